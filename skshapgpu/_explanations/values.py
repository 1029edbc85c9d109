"""SHAP values together with their features, outputs, rows and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from .._common.checks import require_bool, require_count
from .._common.digits import number
from .._common.indices import INDICES
from .._common.lazy import import_for
from .._common.types import ColumnNames, Values
from .._rows.gpu_arrays import to_host
from .._rows.origins import Origins
from .._rows.tables import require_same_rows, select
from .cohorts import Cohorts, split_into_cohorts
from .grouping import grouping_of
from .reasons import records
from .selection import ByLabel, expand, is_whole, positions, selects_one
from .shap_form import ATTRIBUTES_OF_SHAP, converted, missing_attribute

if TYPE_CHECKING:
    import shap
    from pandas import DataFrame, Index

#: Number of features in the table that a notebook shows.
_N_SHOWN = 12


def with_unit(text: str, unit: str) -> str:
    """Add the unit of values in parentheses, unless it is the margin or the prediction, which say no more."""
    return text if unit in ("margin", "prediction") else f"{text} ({unit})"


def _and_more(n: int) -> str:
    return f", and {n - _N_SHOWN} more" if n > _N_SHOWN else ""


@dataclass(frozen=True, eq=False, repr=False)
class LabelledValues:
    """Base class of values with their labels; the subclasses define the fields."""

    values: Values
    base_values: float | Values
    data: Any
    feature_names: tuple[str, ...]
    output_names: tuple[Any, ...] | None = None
    row_labels: Index | None = None
    precision: str = "single"
    device: str = "cpu"
    seconds: float = 0.0
    additivity_error: float | None = None
    feature_indices: npt.NDArray[np.integer[Any]] | None = None
    group_columns: tuple[tuple[int, ...], ...] | None = None
    unit: str = "margin"
    checked_against: str | None = None
    check_note: str | None = None
    index: str = "SV"

    #: Heading of the ranked names in a notebook.
    _ranked_noun: ClassVar[str]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of ``values``."""
        return self.values.shape

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, key: Any) -> Any:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Self]:
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return ``values`` as a NumPy array: NumPy itself would read the explanation row by row."""
        values = to_host(self.values)
        if copy is False and values is not self.values:
            raise ValueError("the values are on a GPU: NumPy needs a copy of them on the host")
        # Before NumPy 2, copy=None is not accepted.
        return np.asarray(values, dtype) if copy is None else np.array(values, dtype, copy=copy)

    def importance(self) -> npt.NDArray[np.float64]:
        """Return the mean magnitude of the values over the rows that have values.

        Returns
        -------
        ndarray of float64, shape ``values.shape[1:]``
            NaN if no row has values.
        """
        return _mean_without_nan(np.abs(to_host(self.values)))

    def groupby(self, labels: Any) -> Cohorts[Self]:
        """Split the rows into cohorts, whose importances can be compared.

        Parameters
        ----------
        labels : str, array-like of shape (n_rows,) or callable
            The name of a column of ``data`` or, for a pipeline, of the original X; or an array, list or
            series with the label of each row; or a function that returns it, called with each row's label
            in ``row_labels``, or with its position if there are no ``row_labels``. The index of a pandas
            series must be the index of the rows explained, in the same order.

        Returns
        -------
        Cohorts
            Mapping of each label to the explanation of its rows. :meth:`ShapBarDisplay.from_explanation`
            draws it.

        Raises
        ------
        ValueError
            The column is unknown, there is not one label for each row, labels have another index than the
            rows, or a label is missing.
        """
        return split_into_cohorts(self, labels)

    @property
    def loc(self) -> ByLabel[Self]:
        """Rows by their labels: ``explanation.loc[label]`` or ``explanation.loc[labels]``.

        The pandas data frame that was explained has the labels in its index. The rows come in the order of
        ``labels``. A label that no row has raises ``KeyError``.
        """
        return ByLabel(self)

    @property
    def _base_values_by_row(self) -> bool:
        """Whether each row has its own base values."""
        return np.ndim(self.base_values) > self.values.ndim - 2

    def _several_outputs(self) -> tuple[Any, ...] | None:
        return self.output_names if self.values.ndim > 2 else None

    def _key_parts(self, key: Any) -> list[Any]:
        """Split an index into its parts: rows, columns and outputs."""
        outputs = self._several_outputs()
        parts = expand(key, 2 if outputs is None else 3)
        if isinstance(parts[0], str):
            raise IndexError(f"rows are selected by position{self._hint(parts[0])}")
        if str(getattr(parts[0], "dtype", "")).startswith("bool"):
            require_same_rows(parts[0], self.row_labels, "the mask")
        return parts

    def _second_names(self) -> Sequence[str]:
        """Return the names of the second axis of the values."""
        raise NotImplementedError

    def _hint(self, name: str) -> str:
        """Say how to select by a name that is in the place of rows."""
        if name in self._second_names():
            return f": write explanation[:, {name!r}]"
        if name in map(str, self._several_outputs() or ()):
            return f": write explanation[..., {name!r}] for this output"
        return f", and the explanation has no values of {name!r}"

    def _select_outputs(self, key: Any, arrays: dict[str, Any]) -> dict[str, Any]:
        """Select outputs of the fields; ``arrays`` are fields whose last axis has the outputs."""
        base_values: Any = self.base_values
        output_names = self._several_outputs()
        if output_names is not None:
            outputs = positions(key, len(output_names), output_names, "output")
            if outputs is not None:
                arrays = {name: array[..., outputs] for name, array in arrays.items()}
                base_values = base_values[..., outputs]
                output_names = tuple(output_names[i] for i in outputs)
            if len(output_names) == 1:
                arrays = {name: array[..., 0] for name, array in arrays.items()}
                base_values = base_values[..., 0] if self._base_values_by_row else float(base_values[0])
        else:
            output_names = self.output_names
        return arrays | {"base_values": base_values, "output_names": output_names}

    def _select_features(self, features: np.ndarray | None) -> dict[str, Any]:
        """Select features in the fields that describe features; None: all features."""
        names, indices, groups = self.feature_names, self.feature_indices, self.group_columns
        if features is not None:
            names = tuple(names[i] for i in features)
            if groups is None:
                indices = features if indices is None else indices[features]
            else:
                groups = tuple(groups[i] for i in features)
        return {"feature_names": names, "feature_indices": indices, "group_columns": groups}

    def _frame(self) -> DataFrame:
        """Return the values as a data frame."""
        pd = import_for("to_frame() needs pandas", "pandas", "pandas")
        columns = column_names(self._second_names(), self._several_outputs())
        values = to_host(self.values).reshape(len(self), len(columns))
        return pd.DataFrame(values, index=self.row_labels, columns=columns)

    def _title(self) -> str:
        return INDICES[self.index].values_name

    def strongest(self, n: int = 10) -> list[tuple[str, float]]:
        raise NotImplementedError

    def _facts(self) -> list[tuple[str, str]]:
        facts = [("rows", f"{len(self)}"), ("features", f"{len(self.feature_names)}")]
        if self.output_names is not None:
            shown = ", ".join(map(str, self.output_names[:_N_SHOWN]))
            facts.append(("outputs", shown + _and_more(len(self.output_names))))
        facts.append(("base value", self._base_values_shown()))
        device = "the CPU" if self.device == "cpu" else self.device
        facts.append(("computed", f"on {device} in {number(self.seconds, 3)} s, {self.precision} precision"))
        gap = self.additivity_error
        facts.append(("additivity error", "not checked" if gap is None else f"at most {number(gap, 2)}"))
        return facts

    def _base_values_shown(self) -> str:
        by_row = self._base_values_by_row
        base = np.atleast_1d(_mean_without_nan(np.asarray(self.base_values)) if by_row else self.base_values)
        if by_row and np.isnan(base).all():
            return "one for each row"
        shown = ", ".join(number(value, 6) for value in base[:_N_SHOWN])
        shown += _and_more(len(base)) + (" on average" if by_row else "")
        return with_unit(shown, self.unit)

    def _shown(self) -> tuple[str, list[tuple[str, float, str]], str]:
        """Return a heading, the strongest names with their means as numbers and texts, and what is left out.

        Means within the additivity error are due to rounding, and are 0.
        """
        ranked = self.strongest(_N_SHOWN)
        error = self.additivity_error or 0.0
        lines = [(name, mean, "0" if mean <= error else number(mean, 4)) for name, mean in ranked]
        n_others = len(self._second_names()) - len(ranked)
        others = f"and {n_others} more" if n_others > 0 else ""
        return with_unit(f"mean |{INDICES[self.index].value_name}|", self.unit), lines, others

    def __repr__(self) -> str:
        heading, ranked, others = self._shown()
        lines = [f"{name}: {value}" for name, value in self._facts()]
        lines += [f"{heading}:"] + [f"  {name}: {mean}" for name, _, mean in ranked]
        lines += [f"  {others}"] if others else []
        return f"{type(self).__name__}\n" + "\n".join(lines)

    def _repr_html_(self) -> str:
        heading, ranked, others = self._shown()
        longest = max((mean for _, mean, _ in ranked if mean > 0), default=1.0)
        rows = "".join(
            f"<tr><td style='text-align:left'>{escape(name)}</td>"
            f"<td style='text-align:right'>{text}</td>"
            f"<td style='text-align:left'><div style='background:#0072b2;height:0.8em;"
            f"width:{10 * mean / longest if mean > 0 else 0:.2f}em'></div></td></tr>"
            for name, mean, text in ranked
        )
        facts = "<br>".join(f"{name}: {escape(value)}" for name, value in self._facts())
        return (
            f"<div><b>{self._title()}</b><br>{facts}<table style='font-size:inherit;margin-top:0.5em'>"
            f"<thead><tr><th style='text-align:left'>{self._ranked_noun}</th>"
            f"<th>{escape(heading)}</th><th></th></tr></thead><tbody>{rows}</tbody></table>{others}</div>"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(LabelledValues):
    """SHAP values of some rows, with their features, outputs and row labels.

    Its attributes and methods are public; its constructor is private.

    ``explanation[rows, features, outputs]`` selects; each part is a position, a slice, a list of positions
    or a boolean mask, or, for features and outputs, a name or a list of names. Rows and features remain
    axes of ``values`` even if a single one is selected, so that every method keeps working; there is an
    axis for outputs if there are several. Where an array is expected, as in ``np.abs(explanation)`` or
    ``model.fit(explanation, y)``, an explanation acts as its ``values``.

    Attributes
    ----------
    values : array of float32 or float64, shape (n_rows, n_features[, n_outputs])
        A NumPy array, or one of the library of X if X was on a GPU. NaN in rows for which
        :func:`cross_val_explain` found no values.
    base_values : float or ndarray of shape (n_outputs,)
        Expected margin: base value and SHAP values of a row add up to its margin (or to another
        ``model_output``). For a log loss, with ``base_margin``, or from :func:`cross_val_explain`, each row
        has its own: shape (n_rows[, n_outputs]).
    data : array, sparse matrix, data frame or None
        The rows explained, as the model's last step saw them; X itself, not a copy, unless features were
        selected, as by ``columns="used"``. With ``feature_groups`` of an explainer, an object whose ``rows``
        are these rows, and which NumPy reads as an array of strings such as "place=north, day=3", one for
        each group.
    feature_names : tuple of str
    output_names : tuple or None
        Class labels or target names; None when the model has one output.
    row_labels : pandas.Index or None
        Row labels of the pandas data frame that was explained.
    precision : {"single", "double"}
        Arithmetic of the values.
    device : str
        Device that computed the values: "cpu", "cuda:0", or several names.
    seconds : float
        Time taken to compute the values.
    additivity_error : float or None
        Largest gap, over rows and outputs, between a margin and its base value plus SHAP values;
        None when it was not checked.
    feature_indices : ndarray of int or None
        Positions of the features among the columns of the rows explained; None if the features are all
        columns, or groups of columns.
    group_columns : tuple of tuple of int, or None
        For an explainer with ``feature_groups``: positions of the columns of the rows explained that form
        each feature.
    index : {"SV", "BV", "OV"}
        "SV": Shapley values, that is, SHAP values; "BV": Banzhaf values, which do not add up to the margin;
        "OV": Owen values, which add up to the Shapley values of groups of features.
    feature_perturbation : {"tree_path_dependent", "interventional"}
        How features outside a coalition are treated: by the covers of the trees, or by background rows.
    model_output : {"raw", "probability", "log_loss", "response", "survival", "cumulative_hazard", \
            "score_samples", "decision_function"}
        Quantity that the values explain; see :class:`TreeExplainer`. If it is a function of time,
        ``output_names`` has the times.
    unit : str
        Unit of the values, with which displays label their axes: "log-odds", "probability", "softmax score",
        "log of the prediction", "prediction" if the model was trained to minimize the squared error, or
        "margin" if none of these is known; otherwise the ``model_output``.
    checked_against : {"model", "trees"} or None
        What the first call of the explainer compared the values with. "model": the library's own prediction
        of up to 16 rows; "trees": only the trees as they were read, for the reason in ``check_note``; None:
        nothing, because of ``check_additivity=False``.
    check_note : str or None
        Why the values could not be compared with the model.
    origins : Origins or None
        For a pipeline with leading steps: the original X, and the column of X from which each feature was
        made. :meth:`sum_by` uses them.
    """

    feature_perturbation: str = "tree_path_dependent"
    model_output: str = "raw"
    origins: Origins | None = None
    #: Whether a position or label selected the only row: an axis for rows is then ours, and not shap's.
    _is_row: bool = False

    _ranked_noun: ClassVar[str] = "feature"

    if not TYPE_CHECKING:  # type checkers report unknown attributes themselves

        def __getattr__(self, name: str) -> Any:
            if name in ATTRIBUTES_OF_SHAP:
                raise missing_attribute(self, name)
            return object.__getattribute__(self, name)  # raises the usual error, or that of a property

    def __getitem__(self, key: Any) -> Explanation:
        """Select rows, then features, then an output.

        Parameters
        ----------
        key : int, slice, array, name or tuple of up to three of these
            Rows by position; features and outputs by position or name.

        Returns
        -------
        Explanation
            Explanation of what was selected.
        """
        parts = self._key_parts(key)
        rows = positions(parts[0], len(self), None)
        names = self.feature_names
        features = positions(parts[1], len(names), names, "feature")
        values = self.values[rows] if features is None else self.values[rows][:, features]
        selected = self._select_outputs(parts[2], {"values": values})
        if self._base_values_by_row:
            selected["base_values"] = selected["base_values"][rows]
        return replace(
            self,
            data=None if self.data is None else select(self.data, rows, features),
            **self._select_features(features),
            row_labels=None if self.row_labels is None else self.row_labels[rows],
            origins=None if self.origins is None else self.origins.select(rows, features),
            _is_row=selects_one(parts[0]) or (self._is_row and is_whole(parts[0])),
            **selected,
        )

    def sum_by(self, mapping: Mapping[str, ColumnNames] | Literal["input"]) -> Explanation:
        """Add up the values of features that belong together, such as one-hot columns.

        Base value and values of a row still add up to its margin. A sum is in general not the SHAP value of
        the group. An explainer with ``feature_groups`` computes that SHAP value: it treats a group as known
        or unknown as a whole.

        Parameters
        ----------
        mapping : mapping of str to sequence of str, or "input"
            Name of each group, and the features in it. Features in no group are kept; a group takes the
            place of its first feature. "input" groups the features by the columns of X from which the
            leading steps of a pipeline made them. It supports the steps of scikit-learn that make each
            output column from one input column, in any nesting of ``Pipeline``, ``ColumnTransformer`` and
            ``FeatureUnion``, and any step whose input is one column.

        Returns
        -------
        Explanation
            Explanation without ``data``, as a group has no single value in a row; with "input", ``data``
            has the columns of X.

        Raises
        ------
        ValueError
            A feature is unknown or in two groups, or a group is empty or has the name of a feature outside
            the group. With "input": a step, such as PCA, ``Normalizer`` or a class of your own, is not known
            to make each output column from one input column; the message names the step.

        Examples
        --------
        >>> import pandas as pd
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import OneHotEncoder
        >>> from skshapgpu import explain
        >>> X = pd.DataFrame({"color": ["red", "green", "blue"] * 9, "size": ["S", "L", "L"] * 9})
        >>> forest = RandomForestRegressor(5, random_state=0)
        >>> model = make_pipeline(OneHotEncoder(), forest).fit(X, range(27))
        >>> explanation = explain(model, X)
        >>> explanation.feature_names
        ('color_blue', 'color_green', 'color_red', 'size_L', 'size_S')
        >>> explanation.sum_by("input").feature_names
        ('color', 'size')
        """
        grouping = grouping_of(mapping, self.feature_names, self.origins, len(self))
        if grouping is None:
            return self
        return replace(self, values=grouping.summed(to_host(self.values)), **grouping.facts())

    def to_frame(self) -> DataFrame:
        """Return the values as a pandas data frame with the row labels of X.

        Returns
        -------
        pandas.DataFrame of shape (n_rows, n_features * n_outputs)
            Columns are named as by :meth:`ShapTransformer.get_feature_names_out`.
        """
        return self._frame()

    def to_shap(self) -> shap.Explanation:
        """Convert to a ``shap.Explanation``, for the plots of shap.

        Returns
        -------
        shap.Explanation
            Explanation with a base value for each row (and output), and ``data`` as a dense array. For
            categorical columns, ``data`` has the numbers of the categories, in the order of the column's
            type or of their names, and ``display_data`` has the categories. As in shap, a single row that
            was selected by its position or label, as ``explanation[0]``, has no axis for rows:
            ``shap.plots.waterfall`` draws it.
        """
        return converted(self, self._is_row)

    def _facts(self) -> list[tuple[str, str]]:
        index = [] if self.index == "SV" else [("index", self._title())]
        facts = [*index, *super()._facts(), ("feature perturbation", self.feature_perturbation)]
        return facts if self.model_output == "raw" else [*facts, ("model output", self.model_output)]

    def _second_names(self) -> Sequence[str]:
        return self.feature_names

    def strongest(self, n: int = 10) -> list[tuple[str, float]]:
        """Return the features with the largest mean magnitude over the rows.

        Parameters
        ----------
        n : int, default=10
            Number of features.

        Returns
        -------
        list of (str, float)
            Name and mean magnitude, summed over the outputs, the largest first.

        Raises
        ------
        ValueError, TypeError
            ``n`` is not an int from 1 on.
        """
        return ranking(self.feature_names, self.importance(), n)

    def reasons(self, n: int = 3, *, by_sign: bool = False) -> list[dict[str, Any]]:
        """Return for each row the features with the strongest values, as records.

        Parameters
        ----------
        n : int, default=3
            Maximum number of features of a row or, with ``by_sign``, of each sign in a row. There are fewer
            if the row has fewer values other than 0.
        by_sign : bool, default=False
            Whether to list first the features with positive values, which are reasons for a high output, and
            then the features with negative values. Otherwise all features are listed by magnitude.

        Returns
        -------
        list of dict
            For each row and output, the features with the largest magnitudes, the largest first. The keys
            are "row" (its label, or its position), "output" (if there are several), "reason" ("for" if the
            SHAP value is positive, else "against"), "rank" (from 1 on, with ``by_sign`` within the sign),
            "feature", "value" (the feature's value in ``data``: an int, bool or float, as the column has it,
            the name of a category, a string with the values of a group's columns, or None if the value is
            missing or unknown) and "shap_value". ``pd.DataFrame`` makes a data frame of the records, and
            ``json.dumps`` makes JSON.

        Raises
        ------
        ValueError, TypeError
            ``n`` is not an int from 1 on, or ``by_sign`` is not a bool.

        See Also
        --------
        strongest : Return the features with the largest mean magnitude over the rows.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from skshapgpu import explain
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
        >>> explanation = explain(RandomForestRegressor(10, random_state=0).fit(X, y), X)
        >>> [(r["feature"], r["value"], r["reason"]) for r in explanation.loc[0].reasons(2)]
        [('s5', 4.8598, 'for'), ('bmi', 32.1, 'for')]
        """
        require_bool("by_sign", by_sign)
        require_count("n", n)
        rows: Any = range(len(self)) if self.row_labels is None else self.row_labels
        values, outputs = to_host(self.values), self._several_outputs()
        if outputs is None:
            return list(records(values, self.data, self.feature_names, n, by_sign, rows, {}))
        records_by_output = [
            records(values[:, :, i], self.data, self.feature_names, n, by_sign, rows, {"output": output})
            for i, output in enumerate(outputs)
        ]
        return [record for output_records in records_by_output for record in output_records]


def _mean_without_nan(values: np.ndarray) -> np.ndarray:
    """Return the mean over rows in float64, ignoring NaN; NaN if all values are NaN."""
    if len(values):
        means = values.mean(axis=0, dtype=np.float64)
        if not np.isnan(means).any():
            return means
    is_number = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(values.sum(axis=0, dtype=np.float64, where=is_number) / is_number.sum(axis=0))


def ranking(names: Sequence[str], means: np.ndarray, n: int) -> list[tuple[str, float]]:
    """Return the n names with the largest means, summed over the outputs; ties keep their order.

    Raise ``ValueError`` or ``TypeError`` if ``n`` is not an int from 1 on.
    """
    require_count("n", n)
    total = means.reshape(len(names), int(np.prod(means.shape[1:]))).sum(axis=1)
    return [(names[i], float(total[i])) for i in np.argsort(-total, kind="stable")[:n]]


def side_by_side(values: np.ndarray) -> np.ndarray:
    """Flatten the values of each row, with outputs side by side, in the order of :func:`column_names`."""
    return values.reshape(len(values), int(np.prod(values.shape[1:])))


def from_fields(fields: dict[str, Any]) -> Explanation:
    """Return the explanation with these fields, which must be all public ones. It owns the dict from now on.

    The constructor of a frozen dataclass calls a function for each field: 3 of the 15 microseconds of a call
    for one row.
    """
    explanation = object.__new__(Explanation)
    fields["_is_row"] = False
    object.__setattr__(explanation, "__dict__", fields)
    return explanation


def column_names(feature_names: Sequence[str], output_names: Sequence[Any] | None) -> list[str]:
    """Return unique names of values laid out as ``values.reshape(n_rows, n_features * n_outputs)``.

    A name is ``feature__output``, or the feature's own name if ``output_names`` is None. If two names would
    be equal, outputs are named by their positions.
    """
    if output_names is None:
        return list(feature_names)
    names = [f"{feature}__{output}" for feature in feature_names for output in output_names]
    if len(set(names)) < len(names):
        names = [f"{feature}__{output}" for feature in feature_names for output in range(len(output_names))]
    return names
