"""Model files in any file system. Files that are not local are copied to a temporary folder first."""

from __future__ import annotations

from typing import Any

from ..adapters import adapt
from ..adapters.files import EXPECTED
from ..adapters.schema import AdaptedModel
from ..adapters.spark_ml import folder as spark_folder
from .locations import RemotePath, fetched, is_path, is_url, locate


def adapt_file(model: Any) -> AdaptedModel:
    """Return the adapted model of a fitted model, or of a model file or folder given by its path or URL.

    Errors are raised as by :func:`.adapt`; ``ValueError`` also if the URL is not the URL of a file.
    """
    if not is_path(model) or not (isinstance(model, RemotePath) or is_url(model)):
        return adapt(model)
    place = locate(model)
    if not isinstance(place, RemotePath):
        return adapt(place)
    if not place.exists():
        raise ValueError(f"there is no file {str(place)!r}; a string is treated as the path of {EXPECTED}")
    if place.is_dir() and not spark_folder.is_saved(place):  # copying it might take long
        raise ValueError(f"{str(place)!r} is a folder; expected {EXPECTED}")
    with fetched(place) as copy:
        return adapt(copy)
