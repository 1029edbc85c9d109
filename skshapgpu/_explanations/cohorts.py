"""Cohorts: the rows of an explanation in groups that are compared with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._common.digits import number
from .._rows.columns import GroupedRows, read_column
from .._rows.real_numbers import is_missing
from .._rows.tables import names_of, require_same_rows

if TYPE_CHECKING:
    from .interactions import InteractionExplanation
    from .values import Explanation

#: Number of cohorts, and of features of each, that are shown as text.
_N_SHOWN = 20
_N_FEATURES = 3


class Cohorts(Mapping[Any, Any]):
    """Mapping of cohort labels to explanations of their rows; ``explanation.groupby()`` makes it.

    Its methods are public; its constructor is private.

    Iteration is in the order of the labels: sorted, or in the order of their categories.

    Parameters
    ----------
    explanation : Explanation or InteractionExplanation
        All rows.
    rows : dict of object to ndarray of int
        Positions of the rows of each cohort.
    name : str or None, default=None
        Name of the labels.

    Attributes
    ----------
    explanation : Explanation or InteractionExplanation
    rows : dict of object to ndarray of int
    name : str or None

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import explain
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    >>> explanation = explain(RandomForestRegressor(10, random_state=0).fit(X, y), X)
    >>> cohorts = explanation.groupby("sex")
    >>> list(cohorts), cohorts[2].shape
    ([1, 2], (207, 10))
    >>> [name for name, _ in cohorts[2].strongest(2)]
    ['bmi', 's5']
    """

    def __init__(
        self,
        explanation: Explanation | InteractionExplanation,
        rows: dict[Any, np.ndarray],
        name: str | None = None,
    ) -> None:
        self.explanation = explanation
        self.rows = rows
        self.name = name

    def __getitem__(self, label: Any) -> Any:
        return self.explanation[self.rows[label]]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def importance(self) -> np.ndarray:
        """Return the mean magnitude of the values in each cohort.

        Returns
        -------
        ndarray of float64, shape ``(n_cohorts, *values.shape[1:])``
            ``importance()`` of each cohort; NaN where no row has values.
        """
        found = [part.importance() for part in self.values()]
        return np.array(found, np.float64).reshape(len(self), *self.explanation.shape[1:])

    def strongest(self, n: int = 10) -> dict[Any, list[tuple[str, float]]]:
        """Return the strongest features, or interactions, of each cohort.

        Parameters
        ----------
        n : int, default=10
            Number of names.

        Returns
        -------
        dict of object to list of (str, float)
            For each label, the result of ``strongest(n)`` of its rows.
        """
        return {label: part.strongest(n) for label, part in self.items()}

    def to_frame(self) -> Any:
        """Return the importances as a pandas data frame.

        Returns
        -------
        pandas.DataFrame of shape (n_cohorts, n_features)
            Mean magnitudes, summed over the outputs, the column with the largest mean over the cohorts
            first. The index has the labels. For interactions, there is a column for each.
        """
        import pandas as pd

        ranked = self.strongest(np.iinfo(np.int64).max)
        index = pd.Index(list(self), name=self.name)
        frame = pd.DataFrame([dict(pairs) for pairs in ranked.values()], index=index)
        order = np.argsort(-frame.mean(axis=0).to_numpy(), kind="stable")
        return frame.iloc[:, order]

    def __repr__(self) -> str:
        lines = [f"Cohorts{'' if self.name is None else ' by ' + self.name}"]
        for label in list(self)[:_N_SHOWN]:
            part = self[label]
            shown = ", ".join(f"{name} {number(mean, 4)}" for name, mean in part.strongest(_N_FEATURES))
            lines.append(f"  {label}: {len(part)} rows: {shown}")
        return "\n".join(lines + ["  ..."] * (len(self) > _N_SHOWN))


def cohorts_of(explanation: Any, labels: Any) -> Cohorts:
    """Return the cohorts of an explanation; see :meth:`.LabelledValues.groupby`, which lists the errors."""
    name = labels if isinstance(labels, str) else getattr(labels, "name", None)
    if isinstance(labels, str):
        found, order = _of_column(explanation, labels)
    elif callable(labels):
        name = None
        keys = range(len(explanation)) if explanation.row_labels is None else explanation.row_labels
        found, order = [labels(key) for key in keys], None
    else:
        found, order = _given(explanation, labels)
    if len(found) != len(explanation):
        raise ValueError(f"there are {len(found)} labels, but the explanation has {len(explanation)} rows")
    rows: dict[Any, list[int]] = {}
    for row, label in enumerate(found):
        if is_missing(label):
            raise ValueError(
                f"the label of row {row} is missing: give such rows a label of their own, as "
                "fillna('missing') of pandas does, or leave them out of the explanation"
            )
        rows.setdefault(label, []).append(row)
    ordered = _sorted(list(rows)) if order is None else [label for label in order if label in rows]
    return Cohorts(
        explanation,
        {label: np.array(rows[label]) for label in ordered},
        None if name is None else str(name),
    )


def _of_column(explanation: Any, name: str) -> tuple[list[Any], Sequence[Any] | None]:
    """Return the values of a column of the rows, and their order; None: they are sorted."""
    names, data = list(explanation.feature_names), explanation.data
    if isinstance(data, GroupedRows) and name not in names:
        names, data = list(data.names), data.rows
    origins = getattr(explanation, "origins", None)
    if (data is None or name not in names) and origins is not None and origins.data is not None:
        data = origins.data  # before the steps of a pipeline
        names = names_of(data) or list(origins.names)
    if data is None or name not in names:
        raise ValueError(
            f"{name!r} is no column of the rows that the explanation has: give the labels themselves, one "
            "for each row"
        )
    column = read_column(data, names.index(name), np.arange(len(explanation)))
    if column.categories is None:
        numbers = column.numbers
        small = np.abs(numbers) < 2**53
        if column.exact is not None and not small.all():  # different numbers may be equal in float64
            return column.exact.tolist(), None
        whole = bool((small & (numbers == np.round(numbers))).all())
        return (numbers.astype(np.int64) if whole else numbers).tolist(), None
    texts = [None if np.isnan(code) else column.categories[int(code)] for code in column.numbers]
    return texts, column.categories


def _given(explanation: Any, labels: Any) -> tuple[list[Any], Sequence[Any] | None]:
    """Return labels that were given for the rows, and their order; None: they are sorted."""
    if getattr(labels, "ndim", 0) == 1:
        require_same_rows(labels, explanation.row_labels, "labels")
    is_categorical = type(getattr(labels, "dtype", None)).__name__ == "CategoricalDtype"
    order = labels.dtype.categories.tolist() if is_categorical else None
    found = labels if hasattr(labels, "ndim") else np.asarray(labels, object)
    if found.ndim != 1:
        raise ValueError(f"labels must have one dimension, not {found.ndim}")
    return list(found.tolist()), order


def _sorted(labels: list[Any]) -> list[Any]:
    """Return labels in ascending order, or as they are if they cannot be compared."""
    try:
        return sorted(labels)
    except TypeError:
        return labels
