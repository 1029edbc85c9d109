"""Errors raised by skshapgpu that have no standard name, and checks of options."""

from numbers import Integral


class UnsupportedModelError(NotImplementedError):
    """The model, or a feature that it uses, cannot be explained exactly.

    Wrong data is a ``ValueError`` or ``TypeError``, a model that was not fitted yet a
    ``sklearn.exceptions.NotFittedError``.
    """


def require_one_of(option: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise ``ValueError``, naming the option, unless its value is one of the allowed texts."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{option} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def require_n_jobs(n_jobs: object) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless it is None or a number of threads, as joblib counts."""
    if n_jobs is None:
        return
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral):
        raise TypeError(f"n_jobs must be an int or None, not {n_jobs!r}")
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0: None or 1 is one thread, -1 all processors")
