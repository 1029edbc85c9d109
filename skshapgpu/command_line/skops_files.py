"""MODEL in a file of skops: a fitted pipeline or model, loaded without executing code that is not trusted."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from typing import Any


def is_skops(path: str) -> bool:
    """Return whether a ZIP archive is a file of skops."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "schema.json" in archive.namelist()
    except zipfile.BadZipFile:
        return False  # the code that opens it reports what it is


def load_skops(path: str, trusted: Sequence[str]) -> Any:
    """Load a fitted pipeline or model.

    Parameters
    ----------
    path : str
    trusted : sequence of str
        Types that may be loaded, in addition to those that skops trusts.

    Raises
    ------
    ValueError
        The file has other types, or is damaged.
    ImportError
        skops, or a library of the model, is not installed.
    """
    try:
        import skops.io
    except ImportError as error:
        raise ImportError(
            f"MODEL: {path!r} is a file of skops, which is not installed: pip install skshapgpu[skops]"
        ) from error
    try:
        types = skops.io.get_untrusted_types(file=path)
        unknown = [name for name in types if name not in trusted]
        if unknown:
            raise ValueError(
                f"it has types that skops does not trust: {', '.join(unknown)}. If you trust them and the "
                f"file, add {' '.join(f'--trust {name}' for name in unknown)}"
            )
        return skops.io.load(path, trusted=types)
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # of whatever the file makes skops and the types do
        raise ValueError(f"MODEL: {path!r} cannot be loaded: {error}") from error
