"""Warnings about names and parameters that a later release removes."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T", bound=Callable[..., Any])


def deprecated(*, since: str, removed_in: str, instead: str) -> Callable[[T], T]:
    """Mark a function, a method or a class as deprecated: each call warns.

    A class stays a class: its constructor warns, also that of a subclass which calls it. The docstring gets a
    note below its summary.

    Parameters
    ----------
    since : str
        The first release that warns, such as "0.3".
    removed_in : str
        The release that no longer has the object, at least two minor releases later. From this release on,
        the tests fail as long as the object exists.
    instead : str
        Text that follows "use" and names the replacement, such as "`explain`".

    Returns
    -------
    callable
        A decorator.
    """

    def decorate(target: T) -> T:
        message = (
            f"{target.__qualname__} is deprecated since skshapgpu {since}, and skshapgpu {removed_in} "
            f"removes it: use {instead}"
        )
        note = f".. deprecated:: {since}\n   Removed in {removed_in}: use {instead}."
        if inspect.isclass(target):
            original = target.__init__

            @functools.wraps(original)
            def constructor(self: Any, *args: Any, **kwargs: Any) -> None:
                warnings.warn(message, FutureWarning, stacklevel=2)
                original(self, *args, **kwargs)

            target.__init__ = constructor  # type: ignore[method-assign]
            target.__doc__ = _with_note(target.__doc__, note)
            return target

        @functools.wraps(target)
        def function(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(message, FutureWarning, stacklevel=2)
            return target(*args, **kwargs)

        function.__doc__ = _with_note(target.__doc__, note)
        return cast(T, function)

    return decorate


def renamed_parameter(old: str, new: str, *, since: str, removed_in: str) -> Callable[[T], T]:
    """Accept the old name of a parameter as well, as a keyword, and warn.

    The signature has the new name only. The parameters of a constructor that ``get_params`` lists can be
    renamed too.

    Parameters
    ----------
    old, new : str
        The names; the function has the new one.
    since, removed_in : str
        As for :func:`deprecated`.

    Returns
    -------
    callable
        A decorator of functions and methods. Calls that give both names raise a ``TypeError``.
    """

    def decorate(target: T) -> T:
        name = target.__qualname__.removesuffix(".__init__")
        message = (
            f"the parameter {old!r} of {name} is deprecated since skshapgpu {since}, and skshapgpu "
            f"{removed_in} removes it: use {new!r}"
        )
        signature = inspect.signature(target)
        if new not in signature.parameters or old in signature.parameters:
            raise ValueError(f"{name} must have the parameter {new!r}, and not {old!r}")

        @functools.wraps(target)
        def function(*args: Any, **kwargs: Any) -> Any:
            if old in kwargs:
                value = kwargs.pop(old)
                if new in signature.bind_partial(*args, **kwargs).arguments:
                    raise TypeError(f"{name} got both {old!r} and {new!r}, its new name")
                warnings.warn(message, FutureWarning, stacklevel=2)
                kwargs[new] = value
            return target(*args, **kwargs)

        return cast(T, function)

    return decorate


def _with_note(docstring: str | None, note: str) -> str:
    """Insert a note between the summary and the rest of a docstring, where numpydoc expects it."""
    summary, _, rest = inspect.cleandoc(docstring or "").partition("\n\n")
    return "\n\n".join(part for part in (summary, note, rest) if part)
