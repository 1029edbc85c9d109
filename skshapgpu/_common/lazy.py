"""Attributes that are computed, and libraries that are imported, when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def import_for(what: str, module: str, install: str) -> Any:
    """Import a library that is not required to install skshapgpu.

    If it cannot be imported, raise an ``ImportError`` that says ``what`` needs it, and what to install.
    """
    try:
        importlib.import_module(module.partition(".")[0])
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{what}: pip install {install}") from error


class computed_once(Generic[T]):
    """Property that is computed at its first use, and then stored as an attribute.

    ``functools.cached_property`` of Python 3.11 holds a lock while it computes, which all objects of a class
    share: two threads that also need a lock of the model would wait for each other.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __get__(self, instance: Any, owner: type) -> T:
        value = vars(instance)[self._compute.__name__] = self._compute(instance)
        return value
