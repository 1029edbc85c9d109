"""Stand-in for cuDF: data frames over NumPy and pandas with the interface that the package uses.

As in cuDF, nulls differ from NaN, the codes under nulls are arbitrary, and nothing becomes a NumPy array
unless the caller asks for it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from .gpu_stand_in import Array, Device


class Series:
    """A column: values and a mask of nulls, or codes and a mask for categories."""

    def __init__(self, values: np.ndarray, null: np.ndarray, categories: pd.Index | None = None) -> None:
        self._values, self._null, self._categories = values, null, categories

    @classmethod
    def of(cls, series: pd.Series) -> Series:
        null = series.isna().to_numpy()
        if isinstance(series.dtype, pd.CategoricalDtype):
            codes = np.where(null, 0, series.cat.codes).astype(series.cat.codes.dtype)
            return cls(codes, null, series.cat.categories)
        if isinstance(series.dtype, np.dtype) and series.dtype.kind == "f":
            return cls(series.to_numpy(), np.zeros(len(series), bool))  # NaN is no null
        if series.dtype.kind in "iub":
            plain = series.fillna(False if series.dtype.kind == "b" else 0).to_numpy(
                getattr(series.dtype, "numpy_dtype", series.dtype)
            )
            return cls(plain, null)
        return cls(series.to_numpy(object), null)

    @property
    def dtype(self) -> Any:
        return self._values.dtype if self._categories is None else CategoricalDtype()

    @property
    def null_count(self) -> int:
        return int(self._null.sum())

    @property
    def cat(self) -> Cat:
        assert self._categories is not None
        return Cat(self)

    def astype(self, dtype: str) -> Series:
        if dtype != "category":
            return Series(self._values.astype(dtype), self._null)
        return Series.of(pd.Series(self._objects()).astype("category"))

    def _objects(self) -> np.ndarray:
        objects = self._values.astype(object)
        objects[self._null] = None
        return objects

    def to_cupy(self, na_value: Any = None) -> Array:
        assert self._categories is None and self._values.dtype != object
        values = self._values.copy()
        if self._null.any():
            assert na_value is not None, "Column must have no nulls."
            values[self._null] = na_value
        return Array(values, Device.current[-1])

    def to_pandas(self) -> pd.Series:
        if self._categories is not None:
            codes = np.where(self._null, -1, self._values)
            return pd.Series(pd.Categorical.from_codes(codes, self._categories))
        if not self._null.any():
            return pd.Series(self._values)
        if self._values.dtype.kind in "iu":
            return pd.Series(np.where(self._null, np.nan, self._values.astype(np.float64)))
        return pd.Series(self._objects(), dtype=object)


class CategoricalDtype:
    kind = "O"


class Cat:
    def __init__(self, series: Series) -> None:
        self.codes = Series(series._values, series._null)
        self.categories = Index(series._categories)


class Index:
    def __init__(self, index: Any) -> None:
        self._index = index

    def to_pandas(self) -> Any:
        return self._index


class DataFrame:
    def __init__(self, columns: pd.Index, series: list[Series], index: pd.Index) -> None:
        self.columns, self._series, self._index = columns, series, index

    @classmethod
    def of(cls, frame: pd.DataFrame) -> DataFrame:
        return cls(frame.columns, [Series.of(series) for _, series in frame.items()], frame.index)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._index), len(self.columns)

    @property
    def index(self) -> Index:
        return Index(self._index)

    @property
    def iloc(self) -> Iloc:
        return Iloc(self)

    def __len__(self) -> int:
        return len(self._index)

    def items(self) -> Any:
        return zip(self.columns, self._series, strict=True)

    def to_pandas(self) -> pd.DataFrame:
        parts = {i: series.to_pandas() for i, series in enumerate(self._series)}
        frame = pd.DataFrame(parts, index=range(len(self)))
        frame.columns, frame.index = self.columns, self._index
        return frame

    def __array__(self, *args: Any, **options: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a host NumPy array via __array__ is not allowed")


class Iloc:
    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def __getitem__(self, key: Any) -> DataFrame:
        rows, columns = key if isinstance(key, tuple) else (key, list(range(self._frame.shape[1])))
        of = self._frame
        series = [
            Series(old._values[rows], old._null[rows], old._categories)
            for old in (of._series[column] for column in columns)
        ]
        return DataFrame(of.columns[columns], series, of._index[rows])


DataFrame.__module__ = "cudf.core.dataframe"


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("cudf")
    module.DataFrame, module.Series, module.__version__ = DataFrame, Series, "26.10.0"
    module.from_dlpack = lambda array: pytest.fail("results of a frame are arrays of CuPy")
    monkeypatch.setitem(sys.modules, "cudf", module)
