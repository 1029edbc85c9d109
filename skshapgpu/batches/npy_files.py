"""Arrays in ``.npy`` files as sources of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib import format as npy

from .._files.locations import Place, open_file
from .files import info_of
from .source import Source, files_fingerprint


class NpySource(Source):
    """A ``.npy`` file, from which only the bytes of each piece are read."""

    def __init__(self, path: Place) -> None:
        self._path, self._info, self.places = path, info_of(path), (path,)
        try:
            with open_file(path) as file:
                version = npy.read_magic(file)
                read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
                if read is None:
                    raise ValueError(f"its version of the format is {version}")
                self._shape, self._by_columns, self._dtype = read(file)
                self._begin = file.tell()
            is_shape = all(type(n) is int and n >= 0 for n in self._shape)
            if not is_shape or self._dtype.subdtype or not self._dtype.itemsize:
                raise ValueError(f"it has the shape {self._shape} and the dtype {self._dtype}")
            if self._dtype.hasobject:
                raise ValueError("it holds Python objects, which only a pickle could restore")
            if self._begin + math.prod(self._shape) * self._dtype.itemsize > self._info[1]:
                raise ValueError("it is cut off")
        except (ValueError, EOFError) as error:
            raise ValueError(f"{str(path)!r} cannot be read: {error}") from error
        if len(self._shape) != 2:
            raise ValueError(
                f"{str(path)!r} has an array of shape {self._shape}: it must have two dimensions"
            )
        self.n_rows, self.single = self._shape[0], self._dtype.char == "f"

    def row_bytes(self, columns: Sequence[str]) -> int:
        return self._shape[1] * self._dtype.itemsize

    def fingerprint(self, columns: Sequence[str]) -> dict[str, Any]:
        facts = {"kind": "npy", "dtype": self._dtype.str, "shape": list(self._shape)}
        return facts | files_fingerprint([self._info])

    def _pieces(self, columns: Sequence[str], start: int, n: int) -> Iterator[Any]:
        with open_file(self._path) as file:
            for first in range(start, self._shape[0], n):
                yield self._rows(file, first, min(n, self._shape[0] - first))

    def _rows(self, file: Any, first: int, n: int) -> np.ndarray:
        n_rows, n_columns = self._shape
        shape = (n_columns, n) if self._by_columns else (n, n_columns)
        if self._by_columns:
            pieces = [self._bytes(file, n_rows * i + first, n) for i in range(n_columns)]
        else:
            pieces = [self._bytes(file, first * n_columns, n * n_columns)]
        if info_of(self._path) != self._info:
            raise ValueError(f"{str(self._path)!r} was changed while it was read: explain it again")
        array = np.frombuffer(b"".join(pieces), self._dtype).reshape(shape)
        return np.ascontiguousarray(array.T) if self._by_columns else array

    def _bytes(self, file: Any, first: int, n: int) -> bytes:
        """Return the bytes of ``n`` numbers, from number ``first`` of the array on."""
        file.seek(self._begin + first * self._dtype.itemsize)
        content: bytes = file.read(n * self._dtype.itemsize)
        return content
