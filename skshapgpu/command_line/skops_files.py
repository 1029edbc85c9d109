"""MODEL as a file of skops: a fitted pipeline or model, loaded without running code that is not trusted."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from typing import Any

from .._files.locations import Place, open_file, read_file
from .._files.skops_objects import UntrustedTypesError, loads, require_skops


def is_skops(place: Place) -> bool:
    """Return whether there is a file of skops at a place, judging by its content."""
    try:
        with open_file(place) as file, zipfile.ZipFile(file) as archive:
            return "schema.json" in archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError):  # a folder, for instance
        return False  # the code that opens it as something else reports the error


def load_skops(place: Place, trusted: Sequence[str]) -> Any:
    """Load a fitted pipeline or model.

    ``trusted`` lists types that may be loaded in addition to those that skops trusts. Raise ``ValueError`` if
    the file has other types, or is damaged. Raise ``ImportError`` if skops, or a library of the model, is not
    installed.
    """
    skops = require_skops(f"MODEL: {str(place)!r} is a file of skops")
    try:
        return loads(skops, read_file(place), trusted)
    except UntrustedTypesError as error:
        flags = " ".join(f"--trust {name}" for name in error.types)
        reason = f"it has {error}. If you trust them and the file, add {flags}"
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"MODEL: {str(place)!r} cannot be loaded: {reason}")
