"""Selection of rows, features and outputs of explanations: by position, name or label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from .._common.positions import is_integer, read_positions
from .._rows.tables import row_labels

if TYPE_CHECKING:
    from .values import LabelledValues

ExplanationT = TypeVar("ExplanationT", bound="LabelledValues")


def positions_of_label(index: Any, label: Any) -> np.ndarray:
    """Return the positions of the rows with a label in a pandas index.

    Raise ``KeyError`` if no row has the label.
    """
    from pandas.errors import InvalidIndexError

    try:
        return np.atleast_1d(np.arange(len(index))[index.get_loc(label)])
    except (LookupError, TypeError, InvalidIndexError) as error:
        raise KeyError(f"row {label!r} is not among the labels of the rows that were explained") from error


class ByLabel(Generic[ExplanationT]):
    """Select rows of an explanation by their labels: ``explanation.loc[labels]``.

    Parameters
    ----------
    explanation : Explanation or InteractionExplanation
    """

    def __init__(self, explanation: ExplanationT) -> None:
        self._explanation = explanation

    def __getitem__(self, labels: Any) -> ExplanationT:
        """Return the explanation of the rows with a label, or with each of several labels.

        Parameters
        ----------
        labels : label, or list, array, series or index of labels
            Rows are in the order of the labels; all rows that share a label are selected.

        Raises
        ------
        KeyError
            No row has one of the labels.
        ValueError
            The rows have no labels, as X was not a pandas data frame.
        """
        index = self._explanation.row_labels
        if index is None:
            raise ValueError("the rows have no labels, as X had no index: select by position, explanation[i]")
        if isinstance(labels, slice):
            raise TypeError("labels must be a label or a list of labels, not a slice")
        if isinstance(labels, tuple) or np.ndim(labels) == 0:
            rows_of_label = positions_of_label(index, labels)
            return self._explanation[int(rows_of_label[0]) if len(rows_of_label) == 1 else rows_of_label]
        rows = [positions_of_label(index, label) for label in labels]
        return self._explanation[np.concatenate(rows) if rows else np.empty(0, int)]


def expand(key: Any, ndim: int) -> list[Any]:
    """Expand an index to its parts: rows, features and outputs."""
    parts = list(key) if isinstance(key, tuple) else [key]
    dots = [i for i, part in enumerate(parts) if part is Ellipsis]
    if ndim == 2 and len(parts) > 1 and dots and is_integer(parts[-1]):
        # Whoever writes this expects several outputs, as an array of both classes has.
        raise IndexError(
            f"the explanation has one output, so explanation[..., {parts[-1]}] selects none: leave out the "
            f"output; explanation[:, {parts[-1]}] selects along the second axis"
        )
    if len(parts) - len(dots) > ndim or len(dots) > 1:
        only = "one output, and is indexed by rows and features" if ndim == 2 else "three axes"
        raise IndexError(f"the explanation has {only}: it takes at most {ndim} indices")
    for i in dots:
        parts[i : i + 1] = [slice(None)] * (ndim - len(parts) + 1)
    return parts + [slice(None)] * (3 - len(parts))


def positions(key: Any, size: int, names: Sequence[Any] | None, noun: str = "row") -> Any:
    """Return a selection as an array of positions, or None for all features or outputs.

    For rows (``names`` is None) a slice stays a slice. As indices of Python do, an unknown name raises
    ``KeyError``, and a position that is out of range ``IndexError``.
    """
    if isinstance(key, slice):
        if names is None:
            return key
        return None if key == slice(None) else np.arange(size)[key]
    keys = [key] if isinstance(key, str) or np.ndim(key) == 0 else list(key)
    if names is not None and any(isinstance(k, str) for k in keys):
        try:
            return np.array(read_positions("explanation", keys, names, noun), np.int64)
        except ValueError as error:
            raise KeyError(str(error)) from None
    indices = np.asarray(keys) if len(keys) else np.empty(0, np.int64)
    if indices.dtype == bool and np.ndim(key) == 1:
        if len(indices) != size:
            raise IndexError(f"a mask of {len(indices)} entries does not fit {size}")
        if names is not None:
            _require_mask_of(key, names)
        return np.flatnonzero(indices)
    if indices.dtype.kind not in "iu" or indices.ndim != 1:
        raise IndexError(f"cannot select by {key!r}")
    if len(indices) and (indices.min() < -size or indices.max() >= size):
        raise IndexError(f"explanation: {noun} {key!r} is out of range for {size} {noun}s")
    indices = indices.astype(np.int64)  # a smaller type may not hold the size
    return indices % size if size else indices


def selects_one(key: Any) -> bool:
    """Return whether a valid key is a single position, not a slice, a list or a mask."""
    return not isinstance(key, slice) and np.ndim(key) == 0


def is_whole(key: Any) -> bool:
    """Return whether a key is the slice of everything."""
    return isinstance(key, slice) and key == slice(None)


def _require_mask_of(mask: Any, names: Sequence[Any]) -> None:
    """Raise ``ValueError`` for a mask that is a pandas series with other labels than the names.

    The order of the labels counts, too. A series without an index of its own, whose labels are positions,
    is accepted.
    """
    labels = row_labels(mask)
    if labels is None:
        return
    mask_labels = labels.tolist()
    has_positions = mask_labels == list(range(len(names)))
    if not has_positions and [str(label) for label in mask_labels] != [str(name) for name in names]:
        raise ValueError(
            "the mask is of other names than the explanation, or in another order, by its index: select with "
            "mask.index[mask], or pass mask.to_numpy() if it has the order of the explanation"
        )
