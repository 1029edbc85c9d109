"""Errors raised by skshapgpu that have no standard name."""


class UnsupportedModelError(NotImplementedError):
    """The model, or a feature that it uses, cannot be explained exactly.

    Wrong data is a ``ValueError`` or ``TypeError``, a model that was not fitted yet a
    ``sklearn.exceptions.NotFittedError``.
    """


def require_one_of(option: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise ``ValueError``, naming the option, unless its value is one of the allowed texts."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{option} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
