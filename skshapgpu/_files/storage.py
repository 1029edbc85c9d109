"""Files of arrays: an uncompressed ``.npz`` with a JSON header, whose large arrays are memory-mapped.

The format is NumPy's, so that other tools can read it. The header lists the arrays with their
checksums, and has a checksum of its own in the ZIP format. Nothing in a file is executed, and nothing
is trusted before it has been checked: any defect raises ``ValueError``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import secrets
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from .._common.regular_files import open_regular
from .locations import Content, Place, RemotePath, open_file, quoted, shown

_HEADER = "header.json"

#: Arrays begin at multiples of this many bytes, so that they are aligned for vector instructions.
_ALIGNMENT = 64

#: Largest size of an array that is always compared with its checksum when a file is opened. Larger arrays are
#: not compared if they may be read lazily, because comparing reads the whole array.
LAZY_BYTES = 2**24

#: Limits that no file of this package reaches, so that a damaged file cannot request unlimited memory.
_MAX_HEADER = 2**26
_MAX_ARRAYS = 64

#: Sizes in the local file header of a ZIP member: its fixed part, and the ZIP64 field after it.
_LOCAL_BYTES, _ZIP64_BYTES = 30, 20
_LOCAL_SIGNATURE = b"PK\x03\x04"

#: Number of bytes of a file that :func:`begins_like_ours` takes.
N_FIRST_BYTES = _LOCAL_BYTES + len(_HEADER)

#: Numbers of the errors that opening a link raises if links are not followed, and seeking to a position that
#: the content of a file names and that cannot be right. An error of pyarrow for a content has no number.
_ERRORS_OF_CONTENT = (errno.ELOOP, errno.EINVAL, None)

#: ID of a ZIP extra field without a meaning, for alignment.
_PADDING_FIELD = 0xD935


def is_ours(path: Place) -> bool:
    """Return whether a file was written by :func:`write`, judging by its content. A link is not.

    Raise ``OSError`` if the file cannot be read.
    """
    try:
        with open_file(path, follow_links=False) as file, zipfile.ZipFile(file) as archive:
            member = archive.getinfo(_HEADER)
            if member.compress_type != zipfile.ZIP_STORED or member.file_size > _MAX_HEADER:
                return False  # it may be much larger than the file
            header = json.loads(archive.read(member))
        return str(header["format"]).startswith("skshapgpu")
    except (OSError, zipfile.BadZipFile) as error:
        require_read(error)
        return False
    except (EOFError, ValueError, LookupError, TypeError, RecursionError):
        return False
    except (struct.error, zlib.error, NotImplementedError, RuntimeError):
        return False


def require_read(error: BaseException) -> None:
    """Raise the error of the file system that zipfile or pyarrow reports as an error of the content.

    Do nothing if the content is the reason. A file that cannot be read must not be called damaged, or a file
    of somebody else, because the user may then delete it. zipfile raises its own error while it handles the
    error of the file system.
    """
    cause = error if isinstance(error, OSError) else error.__context__
    if isinstance(cause, OSError) and cause.errno not in _ERRORS_OF_CONTENT:
        raise cause from None


def begins_like_ours(first_bytes: bytes) -> bool:
    """Return whether a file begins with the header of an explainer file, given its ``N_FIRST_BYTES``."""
    return first_bytes[:4] == _LOCAL_SIGNATURE and first_bytes[_LOCAL_BYTES:] == _HEADER.encode()


def require_ours(path: Place, is_ours: Callable[[Any], bool] = is_ours) -> None:
    """Raise ``FileExistsError`` if there is a file for which ``is_ours`` is false."""
    exists = path.exists() if isinstance(path, RemotePath) else os.path.lexists(path)
    if exists and not is_ours(path):
        raise not_ours(path)


def not_ours(path: Place) -> FileExistsError:
    """Return the error to raise for an existing file that this package did not write."""
    if isinstance(path, Path) and path.is_symlink():
        return FileExistsError(f"{str(path)!r} {is_link(path)}")
    return FileExistsError(
        f"{shown(path)!r} exists, and is not a file that skshapgpu would replace: choose another "
        "path, or delete it"
    )


def is_link(path: Path) -> str:
    """Return the end of a message about a link where a file is to be written.

    Replacing the link would leave an old file under the other name, and replacing that file may be unwanted.
    """
    return (
        f"is a link to {os.readlink(path)!r}, and links are not replaced: pass the path of the file itself, "
        "or choose another path"
    )


def put(complete_file: Path, path: Path, is_ours: Callable[[Any], bool]) -> None:
    """Rename a complete file to ``path``, where only a file of this package is replaced.

    Raise ``FileExistsError`` if the path is a file that is not ours, or that was created in the meantime;
    ``PermissionError`` if the file at the path cannot be replaced, on Windows because it is in use;
    ``OSError`` if the file cannot be renamed.
    """
    if os.path.lexists(path):
        require_ours(path, is_ours)
        try:
            os.replace(complete_file, path)
        except PermissionError as error:
            raise PermissionError(
                error.errno,
                f"cannot replace {os.fspath(path)!r} ({error.strerror}). On Windows, a file cannot be "
                "replaced while it is in use, for example by an explainer that was loaded from it: delete "
                "that explainer, or choose another path",
            ) from error
        return
    try:
        os.link(complete_file, path)  # unlike a rename, this never replaces a file
    except FileExistsError as error:
        raise not_ours(path) from error
    except OSError:  # a file system without links
        os.replace(complete_file, path)
    else:
        os.unlink(complete_file)


def write(target: Place, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file, completely or not at all.

    The header is written by ``json``; the arrays are C-contiguous and hold no objects. If this function wrote
    a file there before, it is replaced when the new file is complete. Raise ``FileExistsError`` if the path
    is a file that something else wrote; ``PermissionError`` if the file cannot be replaced, or the folder
    cannot be written to; ``OSError`` if the file cannot be written.
    """
    require_ours(target)
    if isinstance(target, RemotePath):
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder, "content")
            with open(local, "xb") as file:
                _write(file, header, arrays)
            require_ours(target)
            target.upload(local)
        return
    # Files made by tempfile would be readable by their owner only.
    temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    try:
        with open(temporary, "xb") as file:
            _write(file, header, arrays)
            file.flush()
            os.fsync(file.fileno())
        put(temporary, target, is_ours)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):  # an interrupt may come after the file has been renamed
            os.unlink(temporary)
        raise


def _write(file: Any, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    content = {
        name: {"dtype": array.dtype.str, "shape": array.shape, "crc32": zlib.crc32(_bytes(array).data)}
        for name, array in arrays.items()
    }
    archive = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
    try:
        with archive.open(_member(file, _HEADER), "w", force_zip64=True) as member:
            member.write(json.dumps({"arrays": content, **header}).encode())
        for name, array in arrays.items():
            with archive.open(_member(file, f"{name}.npy"), "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)
        archive.close()
    except BaseException:
        archive.fp = None  # after an interrupt within a member, closing the archive would raise another error
        raise


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _member(file: BinaryIO, name: str) -> zipfile.ZipInfo:
    """Return a member whose data will begin at an aligned position; its date is the same in every file."""
    member = zipfile.ZipInfo(name)
    begin = file.tell() + _LOCAL_BYTES + len(name.encode()) + 4 + _ZIP64_BYTES
    padding = -begin % _ALIGNMENT
    member.extra = struct.pack("<HH", _PADDING_FIELD, padding) + bytes(padding)
    return member


def read(
    path: Place | Content, lazy: Collection[str] = (), verify: bool = False
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the arrays of a file that :func:`write` wrote, compared with its checksums.

    The arrays are read-only; memory-mapped, or in memory if the file is not in the local file system.
    ``lazy`` are the names of arrays that are not compared with their checksums if they are large, unless
    ``verify`` is True. Raise ``OSError`` if the file cannot be read; ``ValueError`` if this package did not
    write the file, or it is damaged.
    """
    if isinstance(path, Content):
        return _checked(path, path.read_array(), BytesIO(path.content), lazy, verify)
    if isinstance(path, RemotePath):
        from pyarrow import BufferReader

        content = path.read_array()
        return _checked(path, content, BufferReader(content.data), lazy, verify)
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        raw = np.memmap(file, np.uint8, "r", shape=(size,)) if size else np.empty(0, np.uint8)
        return _checked(path, raw, file, lazy, verify)


def _checked(
    path: Place | Content, raw: np.ndarray, file: Any, lazy: Collection[str], verify: bool
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what a file holds, given its bytes as an array and as an open file."""
    if not len(raw):
        raise _damaged(path, "it is empty")
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
        return _read(raw, members, lazy, verify)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise _damaged(path, error) from error
    except (zipfile.BadZipFile, struct.error, NotImplementedError) as error:
        require_read(error)
        raise _damaged(path, error) from error


def _damaged(path: Place | Content, why: object) -> ValueError:
    return ValueError(f"{quoted(path)} is not an explainer file, or it is damaged: {why}")


def _read(
    raw: np.ndarray, members: list[zipfile.ZipInfo], lazy: Collection[str], verify: bool
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not members or members[0].filename != _HEADER or len(members) > _MAX_ARRAYS:
        raise ValueError("it does not begin with a header")
    header_bytes = _data(raw, members[0])
    if len(header_bytes) > _MAX_HEADER:
        raise ValueError("its header is too large")
    _compare(_HEADER, header_bytes, members[0].CRC)
    header = json.loads(header_bytes.tobytes())
    content = header.pop("arrays")
    if [member.filename for member in members[1:]] != [f"{name}.npy" for name in content]:
        raise ValueError("it does not hold the arrays that its header names")
    arrays: dict[str, np.ndarray] = {}
    for member, (name, about) in zip(members[1:], content.items()):
        data = _data(raw, member)
        array = arrays[name] = _array(name, data, about)
        if verify or name not in lazy or array.nbytes <= LAZY_BYTES:
            _compare(name, _bytes(array), about["crc32"])
        else:
            _require_place(name, data, array)
    return header, arrays


def _data(raw: np.ndarray, member: zipfile.ZipInfo) -> np.ndarray:
    """Return the bytes of a member, at the position that follows from its own header."""
    begin = member.header_offset
    local = raw[begin : begin + _LOCAL_BYTES].tobytes()
    if begin < 0 or len(local) < _LOCAL_BYTES or local[:4] != _LOCAL_SIGNATURE:
        raise ValueError(f"the position of {member.filename!r} is wrong")
    if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
        raise ValueError(f"{member.filename!r} is compressed")
    n_name, n_extra = struct.unpack("<HH", local[26:30])
    first = begin + _LOCAL_BYTES + n_name + n_extra
    data = raw[first : first + member.file_size]
    if len(data) != member.file_size:
        raise ValueError(f"{member.filename!r} is cut off")
    return data


def _compare(name: str, data: np.ndarray, crc32: int) -> None:
    if zlib.crc32(data.data) != crc32:
        raise ValueError(f"{name!r} does not match its checksum")


def _require_place(name: str, member: np.ndarray, array: np.ndarray) -> None:
    """Check that an array is at its proper position in the ``.npy``, as its checksum was not verified."""
    start = len(member) - array.nbytes
    fields = f"{{'descr': {array.dtype.str!r}, 'fortran_order': False, 'shape': {array.shape}, }}"
    begin = member[:start].tobytes()
    if (
        begin[:10] != npy.magic(1, 0) + struct.pack("<H", start - 10)
        or begin[10:].rstrip() != fields.encode()
    ):
        raise ValueError(f"{name!r} is not at its proper position")


def _array(name: str, member: np.ndarray, about: dict[str, Any]) -> np.ndarray:
    """Return the array at the end of an ``.npy``, with the header's dtype and shape, without a copy."""
    if not re.fullmatch(r"[<|][biufU][0-9]{1,6}", about["dtype"]):
        raise ValueError(f"{name!r} has the dtype {about['dtype']!r}")
    dtype, shape = np.dtype(about["dtype"]), about["shape"]
    if not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"{name!r} has the shape {shape!r}")
    start = len(member) - math.prod(shape) * dtype.itemsize
    if start < 0 or start % _ALIGNMENT or not dtype.itemsize:
        raise ValueError(f"{name!r} has a wrong size")
    return member[start:].view(dtype).reshape(shape) if math.prod(shape) else np.empty(shape, dtype)
