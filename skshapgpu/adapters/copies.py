"""Errors of copies of models and steps, which may raise anything when they are copied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import UnsupportedModelError


@contextmanager
def copying(problem: str, advice: str) -> Iterator[None]:
    """Raise ``UnsupportedModelError`` with the problem and the advice for any error but ``MemoryError``."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise UnsupportedModelError(f"{problem}: {error}. {advice}") from error
