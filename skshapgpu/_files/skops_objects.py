"""Objects in files of skops, which are loaded without a pickle: only types that are trusted are created.

A file names the types of the objects that it holds. skops creates objects of the types that it trusts itself,
such as the transformers of scikit-learn, and objects of other types only if the caller lists these types.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection
from io import BytesIO
from typing import Any

from .._common.lazy import import_for

#: Limit on the size of the content of a file that is compressed, in bytes for each byte of the file, and in
#: bytes that are allowed in addition. A file that skops writes grows at most to about half of it.
_MOST_GROWTH, _MORE_BYTES = 64, 2**20

#: Types that can be created as safely as the transformers that skops trusts: the columns that remain in a
#: ``ColumnTransformer`` of scikit-learn 1.6, which are a list with a warning.
_HARMLESS = ("sklearn.compose._column_transformer._RemainderColsList",)


class UntrustedTypesError(ValueError):
    """Error for a file that holds types that are not trusted, which are in ``types``."""

    def __init__(self, types: list[str]) -> None:
        super().__init__(f"types that skops does not trust: {', '.join(types)}")
        self.types = types


def require_skops(reason: str) -> Any:
    """Return the module ``skops.io``, or raise ``ImportError`` if skops is not installed.

    ``reason`` is the beginning of the error's message: it says why skops is needed.
    """
    return import_for(f"{reason}, which is not installed", "skops.io", "skops")


def loads(skops: Any, content: bytes, trusted: Collection[str]) -> Any:
    """Return the object in the content of a file.

    ``trusted`` are the full names of types, besides ``_HARMLESS`` and those that skops trusts itself, that
    may be created. Raise ``UntrustedTypesError`` if the file holds other types, and create nothing;
    ``ImportError`` if a package that defines a type is not installed; ``ValueError`` if the content is
    damaged, or the code of a type fails.
    """
    trusted = {*trusted, *_HARMLESS}
    try:
        _require_size(content)
        untrusted = sorted(set(skops.get_untrusted_types(data=content)) - trusted)
        loaded = None if untrusted else skops.loads(content, trusted=sorted(trusted))
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # skops and the code of the types may raise any error
        raise ValueError(str(error)) from error
    if untrusted:
        raise UntrustedTypesError(untrusted)
    return loaded


def _require_size(content: bytes) -> None:
    """Raise ``ValueError`` if the content of a file would grow too much when it is decompressed."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        n_bytes = sum(member.file_size for member in archive.infolist())
    if n_bytes > _MORE_BYTES + _MOST_GROWTH * len(content):
        raise ValueError(
            f"a file of {len(content):,} bytes with {n_bytes:,} compressed bytes is too large to be trusted: "
            "dump the model without compression"
        )
