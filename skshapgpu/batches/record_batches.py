"""Explanation of Arrow record batches: the basis of all runs over many rows.

Each batch is explained independently, so batches can be processed by any process and in any order, and the
names and types of the output columns are known in advance. Numeric columns are copied into one array without
an intermediate data frame. If there is a pipeline, its first step receives a pandas frame, whose dtypes are
those of the source (``_rows/pandas_types.py``), not of the batch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from typing import Any, Literal, Unpack

import numpy as np
from sklearn.utils import get_tags

from .._common.checks import require_one_of
from .._common.types import ExplainerOptions, InteractionIndex, Model, ValueIndex, lists_options
from .._engine.agreement import quiet
from .._engine.links import unit_of
from .._explanations.grouping import group_pairs, require_sum_by
from .._explanations.interactions import INDEX_NAMES, set_names
from .._explanations.values import Explanation, column_names, side_by_side
from .._rows.arrow import (
    MISSING_KEY,
    MISSING_NAN,
    columns_of_rows,
    decoded,
    is_category,
    require_arrow,
    require_columns,
    rows_of_columns,
)
from .._rows.column_rules import warn_of_names
from .._rows.pandas_types import UNKNOWN_NULLS, PandasTypes, TypesScan, columns_of, recorded_nulls
from .._rows.pipelines import takes_arrays
from .._rows.tables import check_known_names, check_names, n_rows_of
from ..explainer import _VALUE_KINDS, TreeExplainer
from .batch_arguments import explainer_of, groups_of_inputs, parse_names, request_of
from .frame_rows import FrameRows, frame_schema
from .independent_rows import require_independent_rows, require_values_of_categories
from .index_levels import level_columns
from .strongest import Strongest

#: Key of a schema's metadata that holds base values and other facts about the explainer, as JSON.
METADATA_KEY = b"skshapgpu"

_DTYPES = ("auto", "float32", "float64")

#: Names of columns of values, by index.
_VALUE_COLUMNS = {"SV": "shap", "BV": "banzhaf", "OV": "owen"}


@lists_options
class BatchExplainer:
    """Callable that turns an Arrow record batch of rows into one of their SHAP values or interactions.

    It can be pickled like its explainer, which is compiled again when it is unpickled. The values are equal
    to those of :meth:`.TreeExplainer.explain` for the same rows: as an array if all features are float32
    columns or all are float64 columns, as a pandas frame if the model is a ``Pipeline``, unless a step of
    scikit-learn says that it was fitted on an array, and otherwise as an Arrow table. Nulls are missing
    values. If the model has categorical features, columns of strings are treated as categorical.

    A frame has the dtypes of ``RecordBatch.to_pandas``, and the extension dtypes that pandas recorded in the
    schema. Where these would depend on the rows of the batch, because integers or booleans have nulls, a
    batch is rejected, unless pandas recorded that the column was one of floats or objects: cast such columns
    to float64 beforehand.

    Parameters
    ----------
    model : TreeExplainer, fitted model, str or path
        An explainer, a model or path that :class:`.TreeExplainer` accepts, or the path of a file that
        :meth:`.TreeExplainer.save` wrote.
    features : sequence of str or None, default=None
        Names of the columns that are the model's features, in its order. None selects the columns with the
        names of the training data if the model knows names and all are present; otherwise all columns that
        are neither in ``keep`` nor, as pandas recorded in the schema, levels of an index, in order.
    keep : sequence of str, default=()
        Names of columns that are copied to the output unchanged, such as row ids; they come first.
    reasons : int or None, default=None
        Return only this many values of each row, those of largest magnitude, the largest first; ties are in
        the order of the columns. The output columns are "feature_1", "value_1" and "shap_1", then
        "feature_2", and so on: a feature's name, its value in the row as text, and its SHAP value. A feature
        value is null if it is missing; that of a group of columns has the values of these. For interactions,
        the columns are "pair_1" and "interaction_1". If there are several outputs, each has its own columns:
        "feature_1__cat".
    by_sign : bool, default=False
        With ``reasons``, return that many of the strongest positive and of the strongest negative values of
        each row. The output columns are "for_1", "for_value_1" and "for_shap_1", and so on, then "against_1",
        "against_value_1" and "against_shap_1"; null where a row has no more values of that sign. Not for
        interactions.
    sum_by : {"input"} or None, default=None
        "input": the features are the columns of X from which the leading steps of a pipeline made those that
        the model sees. Their values are sums, as of :meth:`.Explanation.sum_by`, and so are the interactions
        of two columns, as of :meth:`.InteractionExplanation.sum_by`; listed pairs are pairs of these columns.
        The option ``feature_groups="input"`` instead computes Shapley values of these columns, each of them
        known or unknown as a whole.
    interactions : "occurring", list of pairs or None, default=None
        Which interactions to compute instead of SHAP values, with a column for each pair: "occurring" is all
        pairs that occur on a path of the model, as others are zero; a list has names of the columns that the
        model receives, or positions of columns of X, as for :meth:`.TreeExplainer.explain_interactions`.
    index : str or None, default=None
        "SV", "BV" or "OV", for interactions "SII", "STII" or "BII"; see :meth:`.TreeExplainer.explain` and
        :meth:`.TreeExplainer.explain_interactions`. None means "SV" or "SII".
    prefix : str, default=""
        Beginning of the names of the columns of values. Without a prefix, the names are those of
        ``get_feature_names_out`` of :class:`.ShapTransformer` or :class:`.ShapInteractionTransformer`.
    dtype : {"auto", "float32", "float64"}, default="auto"
        Type of the values in the output. "auto" is float32 if all features are float32 columns, else
        float64; it is always float64 for a ``Pipeline``, as the result of its steps is not known in advance.
    **options
        Options of :class:`.TreeExplainer`, unless ``model`` is one; for a saved explainer, options of
        :meth:`.TreeExplainer.load`. ``model_output="log_loss"`` is rejected, as there are no labels.

    Raises
    ------
    ImportError
        pyarrow is not installed.
    ValueError, TypeError
        An argument has an invalid value.
    UnsupportedModelError, NotFittedError
        As for :class:`.TreeExplainer`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu.batches import BatchExplainer
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> batch = pa.RecordBatch.from_pandas(X.assign(patient=range(442)))
    >>> BatchExplainer(model, keep=["patient"], reasons=2)(batch).column_names
    ['patient', 'feature_1', 'value_1', 'shap_1', 'feature_2', 'value_2', 'shap_2']
    """

    def __init__(
        self,
        model: Model,
        *,
        features: Sequence[str] | None = None,
        keep: Sequence[str] = (),
        reasons: int | None = None,
        by_sign: bool = False,
        sum_by: Literal["input"] | None = None,
        interactions: Any = None,
        index: ValueIndex | InteractionIndex | None = None,
        prefix: str = "",
        dtype: Literal["auto", "float32", "float64"] = "auto",
        **options: Unpack[ExplainerOptions],
    ) -> None:
        require_arrow()
        require_one_of("dtype", dtype, _DTYPES)
        self._features = None if features is None else parse_names("features", features)
        self._keep = parse_names("keep", keep)
        if not isinstance(prefix, str):
            raise TypeError(f"prefix must be a str, not {prefix!r}")
        if reasons is not None and (isinstance(reasons, bool) or not isinstance(reasons, (int, np.integer))):
            raise TypeError(f"reasons must be a number or None, not {reasons!r}")
        if reasons is not None and reasons < 1:
            raise ValueError(f"reasons must be at least 1, not {reasons}")
        self._n_reasons, self._prefix, self._dtype = None if reasons is None else int(reasons), prefix, dtype
        self._request, self._index = request_of(interactions, index)
        if not isinstance(by_sign, bool):
            raise TypeError(f"by_sign must be a bool, not {by_sign!r}")
        if by_sign and (reasons is None or self._request is not None):
            raise ValueError(
                "by_sign splits the strongest features of each row: give reasons=, not interactions="
            )
        require_sum_by(sum_by)
        self._by_sign, self._sum_by = by_sign, sum_by
        self._explainer = explainer_of(model, options)
        if self._request is None:
            self._explainer._require_values(self._index)
        self._of_inputs = None if sum_by is None else groups_of_inputs(self._explainer, self._index)
        self._rows_are_independent: list[bool] = []  # shared with copies; filled once it is known
        self._of_texts = takes_texts(self._explainer)
        self._of_arrays = not self._explainer._steps or takes_arrays(self._explainer._steps[0])
        self._last: tuple[Any, tuple[str, ...], Any] | None = None

    @property
    def explainer(self) -> TreeExplainer:
        """Explainer that explains the batches."""
        return self._explainer

    @property
    def keep(self) -> tuple[str, ...]:
        """Names of the columns that are copied to the output."""
        return self._keep

    @property
    def base_values(self) -> Any:
        """Base value: float, or float64 array of shape (n_outputs,) if there are several outputs."""
        return self._explainer.expected_value

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments that affect the output, besides the model.

        Returns
        -------
        dict
            Arguments of the constructor, in a JSON-compatible form.
        """
        request = self._request
        return {
            "features": self._features and list(self._features),
            "keep": list(self._keep),
            "reasons": self._n_reasons,
            "by_sign": self._by_sign,
            "sum_by": self._sum_by,
            "index": self._index,
            "interactions": request and (_plain(request.listed) if request.form == "listed" else "occurring"),
            "prefix": self._prefix,
            "dtype": self._dtype,
        }

    def input_names(self, schema: Any) -> tuple[str, ...]:
        """Return the names of the columns that are features, in the order of the model.

        Parameters
        ----------
        schema : pyarrow.Schema
            Schema of the batches.

        Returns
        -------
        tuple of str
            Names of columns.

        Raises
        ------
        ValueError
            Columns are missing, too many or too few, several have the same name, their names are not those of
            the training data, or the model uses category codes, which may differ between batches.
        """
        names = self._features
        known, n_expected, blank = expected_columns(self._explainer)
        if names is None and known is not None:
            there = {name.replace(" ", "_") if blank else name: name for name in schema.names}
            if all(name in there for name in known):
                names = tuple(there[name] for name in known)
        if names is None:
            others = {*self._keep, *level_columns(schema)}
            names = tuple(name for name in schema.names if name not in others)
        require_columns(schema, (*self._keep, *names))
        if known is not None:
            check_names([name.replace(" ", "_") for name in names] if blank else names, known)
        if not self._explainer._steps:
            check_known_names(names, self._explainer._schema.known_names)
        if n_expected is not None and len(names) != n_expected:
            raise ValueError(
                f"the model takes {n_expected} features, but there are {len(names)} columns: "
                f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}; name those to take in features="
            )
        self._require_no_codes(schema, names)
        chosen = frozenset(names)
        self._explainer._reader.require_fixed_columns(
            [name for name in schema.names if name in chosen], "the source"
        )
        return names

    def _require_no_codes(self, schema: Any, names: Sequence[str]) -> None:
        explainer = self._explainer
        if explainer._steps or not explainer._schema.takes_codes:  # for steps, see _rows()
            return
        if any(is_category(schema.field(name).type) for name in names):
            raise ValueError(
                "the model takes the codes of categories as they are, but each batch may have other codes "
                "for them: pass columns of integers, the codes of the training data"
            )

    @property
    def _takes_all_columns(self) -> bool:
        """Whether all columns that are not kept are features, because nothing names the features."""
        return self._features is None and expected_columns(self._explainer)[0] is None

    @property
    def _takes_frames(self) -> bool:
        """Whether rows are passed through pandas, because a pipeline has steps that transform them."""
        return bool(self._explainer._steps) and not self._of_texts

    @property
    def _takes_numbers(self) -> bool:
        """Whether the model takes only numbers."""
        return not self._explainer._steps and not self._explainer._schema.has_encoders

    def output_schema(self, schema: Any) -> Any:
        """Return the schema of the output; base values are in its metadata.

        Parameters
        ----------
        schema : pyarrow.Schema
            Schema of the batches.

        Returns
        -------
        pyarrow.Schema
            Its metadata has, under the key ``skshapgpu``, JSON with ``base_values``, ``output_names``,
            ``feature_names``, ``index``, ``model_output``, ``feature_perturbation``, ``precision``
            and ``unit``.

        Raises
        ------
        ValueError
            As for :meth:`input_names`, or a kept column has the name of a column of values.
        """
        names = self.input_names(schema)
        single = all(str(schema.field(name).type) == "float" for name in names)
        kept = [schema.field(name) for name in self._keep]
        return self._schema_of(kept, names, single and not self._explainer._steps)

    def _schema_of(self, kept: Sequence[Any], names: Sequence[str] | None, single: bool) -> Any:
        """Return the schema of the output for given features.

        Parameters
        ----------
        kept : sequence of pyarrow.Field
            Fields of the columns that are kept.
        names : sequence of str or None
            Names of the features, if they have any.
        single : bool
            Whether X is float32.

        Returns
        -------
        pyarrow.Schema
            Schema as from :meth:`output_schema`.
        """
        arrow = require_arrow()
        value_names = self._value_names(names)
        value_type = arrow.float32() if single else arrow.float64()
        if self._dtype != "auto":
            value_type = arrow.float32() if self._dtype == "float32" else arrow.float64()
        fields = [arrow.field(name, value_type, nullable=False) for name in value_names]
        if self._n_reasons is not None:
            fields = self._strongest(names).fields(value_type)
        taken = [field.name for field in fields]
        twice = sorted({*taken} & {field.name for field in kept}) or sorted(
            {name for name in taken if taken.count(name) > 1}
        )
        if twice:
            raise ValueError(
                f"the output would have two columns {twice[0]!r}, one kept and one of values: "
                "use prefix=, 'shap_' for instance"
            )
        return arrow.schema([*kept, *fields], {METADATA_KEY: json.dumps(self._about(names)).encode()})

    def _strongest(self, names: Sequence[str] | None) -> Strongest:
        """Return what makes the columns of the strongest values."""
        assert self._n_reasons is not None
        value = _VALUE_COLUMNS.get(self._index, "interaction")
        ranked, outputs = self._ranked_names(names), self._explainer.output_names
        return Strongest(self._n_reasons, ranked, outputs, value, self._prefix, self._by_sign)

    def _names_explained(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """Return the names of the features of the results, given those of the columns of a batch."""
        if self._of_inputs is not None:
            return self._of_inputs.names
        return self._explainer._names_explained(names, self._index)

    def _ranked_names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """Return the names of the features, or pairs, for which each output has a value."""
        seen = self._names_explained(names)
        return seen if self._request is None else set_names(seen, self._pairs(seen))

    def _value_names(self, names: Sequence[str] | None) -> list[str]:
        """Return the names of the columns of all values.

        Parameters
        ----------
        names : sequence of str or None
            Names of the features, if they have any.

        Returns
        -------
        list of str
            Names of columns, ``prefix`` included.
        """
        found = column_names(self._ranked_names(names), self._explainer.output_names)
        return [self._prefix + name for name in found]

    def _pairs(self, seen: Sequence[str]) -> np.ndarray:
        assert self._request is not None
        if self._request.form == "listed":
            return self._request.positions(seen, self._features_are_columns)
        pairs = self._explainer.occurring_interactions()
        return pairs if self._of_inputs is None else group_pairs(pairs, self._of_inputs.group_of_feature())[0]

    @property
    def _features_are_columns(self) -> bool:
        """Whether each feature of the results is the column of X at its own position."""
        if self._of_inputs is None:
            return self._explainer._features_are_columns
        origins = self._explainer._origins
        return origins is not None and origins.grouped(self._of_inputs.features).are_columns

    def _about(self, names: Sequence[str] | None) -> dict[str, Any]:
        explainer, base = self._explainer, self._explainer.expected_value
        index = self._index if self._request is None else INDEX_NAMES[self._index]
        return {
            "base_values": base if isinstance(base, float) else base.tolist(),
            "output_names": explainer.output_names and _plain(explainer.output_names),
            "feature_names": list(self._names_explained(names)),
            "index": index,
            "model_output": explainer.model_output,
            "feature_perturbation": explainer.feature_perturbation,
            "precision": explainer.precision,
            "unit": unit_of(explainer._adapted, explainer.model_output),
        }

    def __call__(self, batch: Any) -> Any:
        """Explain a batch.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Rows to explain.

        Returns
        -------
        pyarrow.RecordBatch
            Values of the same rows in the same order, with the schema that :meth:`output_schema` returns.

        Raises
        ------
        ValueError, TypeError
            A column is missing, or holds a value that the model does not accept; the message names the column
            and the row.
        MemoryError, RuntimeError
            As for :meth:`.TreeExplainer.explain`.
        """
        last = self._last  # batches of a run have the same schema; replacing a tuple is thread-safe
        if last is None:
            self._warn_of_names(batch.schema)
        if last is None or not last[0].equals(batch.schema, check_metadata=False):
            last = self._last = (
                batch.schema,
                self.input_names(batch.schema),
                self.output_schema(batch.schema),
            )
        return self._explain_batch(batch, *last[1:])

    def _explain_batch(self, batch: Any, names: Sequence[str], schema: Any) -> Any:
        """Explain a batch whose schema has already been checked.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Rows to explain.
        names : sequence of str
            Columns that are features, as :meth:`input_names` returns them.
        schema : pyarrow.Schema
            Schema of the output, as :meth:`output_schema` returns it.

        Returns
        -------
        pyarrow.RecordBatch
            Values of the same rows in the same order.
        """
        found = self._found(self._rows(batch, names), names) if batch.num_rows else None
        return self._batch(self._kept(batch), found, names, schema)

    def _kept(self, batch: Any) -> list[Any]:
        return [batch.column(name) for name in self._keep]

    def _gpus(self, n_rows: int) -> tuple[int, ...]:
        """Return the GPUs that explain a batch of so many rows; empty for the CPU."""
        kind = _VALUE_KINDS[self._index] if self._request is None else self._request.kind
        return self._explainer._gpus(kind, n_rows)

    def _on_gpu(self, index: int) -> BatchExplainer:
        """Return this object with an explainer for calls on one of its GPUs."""
        view = copy(self)
        view._explainer = self._explainer._on_gpu(index)
        return view

    def _values(self, X: Any, names: Sequence[str] | None) -> np.ndarray:
        """Compute all values of some rows, side by side.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_rows, n_features)
            Rows to explain.
        names : sequence of str or None
            Names of the features, if they have any.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            Values in the order of :meth:`_value_names`, with the type that the explainer gives them.
        """
        if self._request is None:
            return side_by_side(self._explanation(X).values)
        if self._of_inputs is not None:
            return side_by_side(self._interactions_of_inputs(X))
        pairs: Any = "occurring"
        if self._request.form == "listed":
            pairs = self._pairs(self._names_explained(names))
        found = self._silent.explain_interactions(
            self._as_taken(X), interactions=pairs, index=self._index
        ).values
        return side_by_side(found)

    def _interactions_of_inputs(self, X: Any) -> np.ndarray:
        """Compute the requested interactions of columns of X, which are sums over all pairs that occur."""
        assert self._request is not None and self._of_inputs is not None
        explanation = self._silent.explain_interactions(
            self._as_taken(X), interactions="occurring", index=self._index
        )
        grouped = explanation.sum_by("input")
        if self._request.form != "listed":
            return grouped.values
        place = {tuple(pair): i for i, pair in enumerate(grouped.interactions.tolist())}
        pairs = self._request.positions(self._of_inputs.names, self._features_are_columns)
        values = np.zeros((len(grouped), len(pairs), *grouped.values.shape[2:]), grouped.values.dtype)
        for column, pair in enumerate(np.sort(pairs, axis=1).tolist()):
            if tuple(pair) in place:
                values[:, column] = grouped.values[:, place[tuple(pair)]]
        return values

    def _explanation(self, X: Any) -> Explanation:
        explanation = self._silent.explain(self._as_taken(X), index=self._index)
        return explanation if self._sum_by is None else explanation.sum_by(self._sum_by)

    @property
    def _silent(self) -> TreeExplainer:
        """The explainer for batches, of whose names :meth:`_warn_of_names` warns once for all."""
        return self._explainer._without_warnings

    def _warn_of_names(self, schema: Any) -> None:
        """Warn as the model's ``predict`` does of all rows of a source; without names, the schema is None."""
        if not self._explainer._steps:  # otherwise the first of them warns
            has_names = schema is not None and _has_names(schema)
            warn_of_names(self._explainer._schema, has_names=has_names, is_frame=schema is not None)

    def _as_taken(self, X: Any) -> Any:
        """Return X as the explainer takes it: its only column, if that holds texts."""
        if not self._of_texts:
            return X
        if X.shape[1] != 1:
            raise ValueError(f"the model takes one column of texts, but there are {X.shape[1]} columns")
        return X[:, 0] if isinstance(X, np.ndarray) else X.iloc[:, 0].to_numpy(object, na_value=np.nan)

    def _found(self, X: Any, names: Sequence[str] | None) -> Any:
        """Return all values of some rows, or an explanation if the output has feature values, too."""
        self._require_independent_rows(X)
        has_data = self._n_reasons is not None and self._request is None
        return self._explanation(X) if has_data else self._values(X, names)

    def _require_independent_rows(self, X: Any) -> None:
        """Reject steps for which other batches would have other values, in the first batch that shows it."""
        if not self._explainer._steps or self._rows_are_independent or n_rows_of(X) < 2:
            return
        with quiet():
            compared = require_independent_rows(self._silent._reader, self._as_taken(X))
        if compared:
            self._rows_are_independent.append(True)

    def _batch(self, kept: list[Any], found: Any, names: Sequence[str] | None, schema: Any) -> Any:
        """Return a record batch of kept columns and of what :meth:`_found` returned; None: without rows."""
        arrow = require_arrow()
        fields = list(schema)[len(kept) :]
        if found is None:
            columns = [arrow.array([], field.type) for field in fields]
        else:
            dtype = np.float32 if str(fields[-1].type) == "float" else np.float64
            if self._n_reasons is None:
                columns = [arrow.array(column) for column in columns_of_rows(found, dtype)]
            else:
                data = found.data if isinstance(found, Explanation) else None
                columns = self._strongest(names).columns(np.asarray(found), data, dtype)
        return arrow.RecordBatch.from_arrays([*kept, *columns], schema=schema)

    def _explain_frame(self, frame: Any, was_array: bool = False) -> Any:
        """Explain the rows of a data frame of pandas, which is passed on as it is; nothing is kept.

        If ``was_array``, it has been made from an array, which a step that was fitted on one receives.
        """
        schema = frame_schema(frame)
        names = self.input_names(schema)
        self._warn_of_names(schema)
        rows = frame.iloc[:, [schema.names.index(name) for name in names]]
        X = rows.to_numpy() if was_array and self._explainer._steps and self._of_arrays else rows
        found = self._found(X, names) if len(rows) else None
        return self._batch([], found, names, self.output_schema(schema))

    def _rows(self, batch: Any, names: Sequence[str], types: PandasTypes | None = None) -> Any:
        """Return the features of a batch in a form that ``explain`` accepts.

        Parameters
        ----------
        batch : pyarrow.RecordBatch or FrameRows
            Rows to explain.
        names : sequence of str
            Columns that are features.
        types : PandasTypes or None
            Types of these columns in the source of the batch; None: determined from the batch alone.

        Returns
        -------
        ndarray, data frame or pyarrow.Table
            Rows, with the type that the model or the first step of the pipeline was trained with.
        """
        if isinstance(batch, FrameRows):
            return batch.frame
        explainer = self._explainer
        arrow = require_arrow()
        self._require_no_codes(batch.schema, names)  # in the first file, the column may have had no values
        columns = [batch.column(name) for name in names]
        columns = [c.cast(arrow.float64()) if arrow.types.is_null(c.type) else c for c in columns]
        kinds = {str(column.type) for column in columns}
        plain = self._of_arrays and not (self._of_texts or explainer._schema.has_encoders)
        if len(kinds) == 1 and kinds <= {"float", "double"} and plain:
            return rows_of_columns(columns, np.float32 if kinds == {"float"} else np.float64)
        if explainer._steps:
            types = types or self._types_of_batch(batch, names)
            if self._of_arrays or self._of_texts:
                return types.array(batch)
            frame = types.frame(batch)
            if types.differing and len(frame):
                with quiet():
                    require_values_of_categories(self._silent._reader, frame, types)
            return frame
        if explainer.family == "sklearn":  # it reads values, and rejects dictionaries with nulls
            columns = [decoded(column) for column in columns]
        return arrow.Table.from_arrays(columns, names=list(names))

    def _types_of_batch(self, batch: Any, names: Sequence[str]) -> PandasTypes:
        """Return the pandas types of the features of a batch whose source is not known."""
        arrow = require_arrow()
        schema = columns_of(batch.schema, names)
        fields = [f.with_type(arrow.float64()) if arrow.types.is_null(f.type) else f for f in schema]
        if self._of_texts:  # a vectorizer's message about NaN is better than about None
            fields = [field.with_metadata({MISSING_KEY: MISSING_NAN}) for field in fields]
        schema = arrow.schema(fields, schema.metadata)
        scan = TypesScan(schema)
        if not self._explainer._schema.takes_codes:  # codes need not be those of other batches
            scan.add_categories(batch.select(list(names)))
        for name in recorded_nulls(schema):
            scan.add_nulls(name)
        return scan.types(UNKNOWN_NULLS)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_last": None}  # a cache of pyarrow schemas


def _has_names(schema: Any) -> bool:
    """Return whether columns have names; numbers, which become strings in a schema, are none."""
    return not all(name.isdecimal() for name in schema.names)


def _plain(names: Any) -> Any:
    """Return labels, or pairs of labels, in a JSON-compatible form."""
    if isinstance(names, (tuple, list)):
        return [_plain(name) for name in names]
    name = names.item() if isinstance(names, np.generic) else names
    return name if isinstance(name, (int, float, bool, str)) else str(name)


def expected_columns(explainer: TreeExplainer) -> tuple[Sequence[str] | None, int | None, bool]:
    """Return the names and the number of the columns of X, if known, and whether "_" replaces blanks."""
    if not explainer._steps:
        return explainer.feature_names, explainer.n_features, explainer._schema.blank_as_underscore
    first = explainer._steps[0]
    if takes_texts(explainer):
        return None, 1, False
    names = getattr(first, "feature_names_in_", None)
    names = None if names is None else tuple(map(str, names))
    return names, getattr(first, "n_features_in_", None), False


def takes_texts(explainer: TreeExplainer) -> bool:
    """Return whether X is strings in one dimension, as CountVectorizer takes them, not a table."""
    if not explainer._steps:
        return False
    try:
        tags = get_tags(explainer._steps[0]).input_tags
    except Exception:  # a transformer outside scikit-learn may raise anything; it takes tables
        return False
    return tags.string and not tags.two_d_array
