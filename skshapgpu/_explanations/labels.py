"""Selection of rows by their labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from .values import LabelledValues

T = TypeVar("T", bound="LabelledValues")


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
        places = [np.arange(len(index))[index.get_loc(label)] for label in asked]
        found = np.concatenate([np.atleast_1d(place) for place in places]) if places else np.empty(0, int)
        return self._explanation[found]
