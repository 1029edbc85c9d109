"""Selection of rows by their labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from .values import LabelledValues

T = TypeVar("T", bound="LabelledValues")


def places_of(index: Any, label: Any) -> np.ndarray:
    """Return the positions of the rows with a label in a pandas index.

    Raises
    ------
    KeyError
        There are none.
    """
    from pandas.errors import InvalidIndexError

    try:
        return np.atleast_1d(np.arange(len(index))[index.get_loc(label)])
    except (LookupError, TypeError, InvalidIndexError) as error:
        raise KeyError(f"row {label!r} is not among the labels of the rows that were explained") from error


class ByLabel(Generic[T]):
    """Select rows of an explanation by their labels: ``explanation.loc[labels]``.

    Parameters
    ----------
    explanation : Explanation or InteractionExplanation
    """

    def __init__(self, explanation: T) -> None:
        self._explanation = explanation

    def __getitem__(self, labels: Any) -> T:
        """Return the explanation of the rows with a label, or with each of several labels.

        Parameters
        ----------
        labels : label, or list, array, series or index of labels
            Rows are in the order of the labels; all rows that share a label are selected.

        Raises
        ------
        KeyError
            A label is that of no row.
        ValueError
            The rows have no labels, as X was not a pandas data frame.
        """
        index = self._explanation.row_labels
        if index is None:
            raise ValueError("the rows have no labels, as X had no index: select by position, explanation[i]")
        if isinstance(labels, slice):
            raise TypeError("labels must be a label or a list of labels, not a slice")
        asked = [labels] if isinstance(labels, tuple) or np.ndim(labels) == 0 else list(labels)
        found = [places_of(index, label) for label in asked]
        return self._explanation[np.concatenate(found) if found else np.empty(0, int)]
