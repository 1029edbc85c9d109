"""Cohorts: the rows of an explanation in groups that are compared with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
import numpy.typing as npt

from .._common.checks import require_count
from .._common.digits import number
from .._common.lazy import import_for
from .._rows.columns import GroupedRows, read_column
from .._rows.real_numbers import has_categories, is_missing
from .._rows.tables import names_of, require_same_rows
from .selection import ExplanationT

if TYPE_CHECKING:
    from pandas import DataFrame

#: Number of cohorts that ``repr`` lists, and number of features that it lists for each cohort.
_N_SHOWN = 20
_N_FEATURES = 3


class Cohorts(Mapping[Any, ExplanationT], Generic[ExplanationT]):
    """Mapping of the label of each cohort to the explanation of its rows; ``explanation.groupby()`` makes it.

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
        explanation: ExplanationT,
        rows: dict[Any, npt.NDArray[np.integer[Any]]],
        name: str | None = None,
    ) -> None:
        self.explanation = explanation
        self.rows = rows
        self.name = name

    def __getitem__(self, label: Any) -> ExplanationT:
        return self.explanation[self.rows[label]]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def importance(self) -> npt.NDArray[np.float64]:
        """Return the mean magnitude of the values in each cohort.

        Returns
        -------
        ndarray of float64, shape ``(n_cohorts, *values.shape[1:])``
            ``importance()`` of each cohort; NaN where no row has values.
        """
        importances = [cohort.importance() for cohort in self.values()]
        return np.array(importances, np.float64).reshape(len(self), *self.explanation.shape[1:])

    def strongest(self, n: int = 10) -> dict[Any, list[tuple[str, float]]]:
        """Return the strongest features, or interactions, of each cohort.

        Parameters
        ----------
        n : int, default=10
            Number of names.

        Returns
        -------
        dict of object to list of (str, float)
            The result of ``strongest(n)`` of each cohort, by label.

        Raises
        ------
        ValueError, TypeError
            ``n`` is not an int from 1 on.
        """
        require_count("n", n)  # there may be no cohort
        return {label: cohort.strongest(n) for label, cohort in self.items()}

    def to_frame(self) -> DataFrame:
        """Return the importances as a pandas data frame.

        Returns
        -------
        pandas.DataFrame of shape (n_cohorts, n_features)
            Mean magnitudes, summed over the outputs, with a row for each cohort and a column for each
            feature or interaction. The column with the largest mean over the cohorts is first.
        """
        pd = import_for("to_frame() needs pandas", "pandas", "pandas")
        ranked = self.strongest(np.iinfo(np.int64).max)
        index = pd.Index(list(self), name=self.name)
        frame = pd.DataFrame([dict(pairs) for pairs in ranked.values()], index=index)
        order = np.argsort(-frame.mean(axis=0).to_numpy(), kind="stable")
        return frame.iloc[:, order]

    def __repr__(self) -> str:
        lines = [f"Cohorts{'' if self.name is None else ' by ' + self.name}"]
        for label in list(self)[:_N_SHOWN]:
            cohort = self[label]
            shown = ", ".join(f"{name} {number(mean, 4)}" for name, mean in cohort.strongest(_N_FEATURES))
            lines.append(f"  {label}: {len(cohort)} rows: {shown}")
        n_others = len(self) - _N_SHOWN
        return "\n".join(lines + [f"  and {n_others} more cohorts"] * (n_others > 0))


def split_into_cohorts(explanation: ExplanationT, labels: Any) -> Cohorts[ExplanationT]:
    """Split the rows of an explanation; :meth:`.LabelledValues.groupby` describes labels and errors."""
    name = labels if isinstance(labels, str) else getattr(labels, "name", None)
    if isinstance(labels, str):
        row_labels, order = _labels_in_column(explanation, labels)
    elif callable(labels):
        name = None
        keys = range(len(explanation)) if explanation.row_labels is None else explanation.row_labels
        row_labels, order = [labels(key) for key in keys], None
    else:
        row_labels, order = _read_labels(explanation, labels)
    if len(row_labels) != len(explanation):
        raise ValueError(
            f"there are {len(row_labels)} labels, but the explanation has {len(explanation)} rows"
        )
    rows: dict[Any, list[int]] = {}
    for row, label in enumerate(row_labels):
        if is_missing(label):
            raise ValueError(
                f"the label of row {row} is missing: give such rows a label of their own, as "
                "fillna('missing') of pandas does, or leave them out of the explanation"
            )
        rows.setdefault(label, []).append(row)
    ordered = list(rows) if order is None else [label for label in order if label in rows]
    if order is None:
        with suppress(TypeError):  # labels that cannot be compared stay in the order of their first rows
            ordered.sort()
    return Cohorts(
        explanation,
        {label: np.array(rows[label]) for label in ordered},
        None if name is None else str(name),
    )


def _labels_in_column(explanation: Any, name: str) -> tuple[list[Any], Sequence[Any] | None]:
    """Return the label of each row from a column, and the order of the labels; None: sort them."""
    names, data = list(explanation.feature_names), explanation.data
    if isinstance(data, GroupedRows) and name not in names:
        names, data = list(data.names), data.rows
    origins = getattr(explanation, "origins", None)
    if (data is None or name not in names) and origins is not None and origins.data is not None:
        data = origins.data  # before the steps of a pipeline
        names = names_of(data) or list(origins.names)
    if data is None or name not in names:
        raise ValueError(
            f"the rows of the explanation have no column {name!r}: pass the labels themselves, one for each "
            "row"
        )
    column = read_column(data, names.index(name), np.arange(len(explanation)))
    if column.categories is None:
        numbers = column.numbers
        is_small = np.abs(numbers) < 2**53
        if column.exact is not None and not (is_small.all() or column.missing.any()):
            return column.exact.tolist(), None  # different numbers may be equal in float64
        if column.exact is not None:
            return column.values(), None
        all_whole = bool((is_small & (numbers == np.round(numbers))).all())
        return (numbers.astype(np.int64) if all_whole else numbers).tolist(), None
    categories = [None if np.isnan(code) else column.categories[int(code)] for code in column.numbers]
    return categories, column.categories


def _read_labels(explanation: Any, labels: Any) -> tuple[list[Any], Sequence[Any] | None]:
    """Return the user's label of each row as a list, and the order of the labels; None: sort them."""
    if getattr(labels, "ndim", 0) == 1:
        require_same_rows(labels, explanation.row_labels, "labels")
    dtype: Any = getattr(labels, "dtype", None)
    order = dtype.categories.tolist() if has_categories(dtype) else None
    array = labels if hasattr(labels, "ndim") else np.asarray(labels, object)
    if array.ndim != 1:
        raise ValueError(f"labels must have one dimension, not {array.ndim}")
    return list(array.tolist()), order
