"""Errors raised by skshapgpu that have no standard name."""


class UnsupportedModelError(NotImplementedError):
    """The model, or a feature that it uses, cannot be explained exactly.

    Wrong data is a ``ValueError`` or ``TypeError``, a model that was not fitted yet a
    ``sklearn.exceptions.NotFittedError``.
    """
