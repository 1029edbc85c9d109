"""Explanation of Arrow record batches: the basis of all runs over many rows.

Each batch is explained independently, so batches can be processed by any process and in any order. The names
and types of the output columns are known in advance. Numeric columns are copied into one array without an
intermediate data frame. The first step of a pipeline receives a pandas frame, whose dtypes are the dtypes of
the source, not of the batch (see ``_rows/pandas_types.py``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from typing import Any, Literal, Unpack

import numpy as np
from sklearn.utils import get_tags

from .._common.checks import require_one_of, require_options, with_article
from .._common.indices import INDICES
from .._common.types import (
    ColumnNames,
    ExplainerOptions,
    InteractionIndex,
    ListedInteractions,
    Model,
    ValueIndex,
    Values,
    lists_options,
)
from .._engine.agreement import quiet
from .._engine.algorithms import Kind
from .._engine.links import unit_of
from .._explanations.grouping import group_pairs, require_sum_by
from .._explanations.interactions import set_names
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
from ..explainer import TreeExplainer
from .batch_arguments import explainer_of, groups_of_inputs, parse_names, request_of
from .frame_rows import FrameRows, frame_schema
from .independent_rows import require_independent_rows, require_values_of_categories
from .index_levels import level_columns
from .strongest import Strongest

#: Key of a schema's metadata that holds base values and other facts about the explainer, as JSON.
METADATA_KEY = b"skshapgpu"

_DTYPES = ("auto", "float32", "float64")


@lists_options
class BatchExplainer:
    """Callable that returns a record batch with the SHAP values or interactions of the rows of another.

    It can be pickled like its explainer, which compiles its model again when it is unpickled. The values
    equal the values of :meth:`.TreeExplainer.explain` for the same rows as an Arrow table. There are two
    exceptions. The rows are explained as an array if all features are float32 columns or all are float64
    columns. They are explained as a pandas frame if the model is a ``Pipeline``, unless its first step says
    that it was fitted on an array. Nulls are missing values. If the model has categorical features, columns
    of strings are treated as categorical.

    A frame has the dtypes of ``RecordBatch.to_pandas``, and the extension dtypes that pandas recorded in the
    schema. A column of integers or booleans with nulls is rejected, because its dtype would depend on the
    rows of the batch: cast it to float64 beforehand. This is not necessary if pandas recorded that the column
    was of floats or objects.

    Parameters
    ----------
    model : fitted model, str, path, bytes or TreeExplainer
        A fitted model or its file, or an explainer or its file: see :class:`.TreeExplainer`.
    features : sequence of str or None, default=None
        Names of the columns that are the model's features, in its order. None selects the columns with the
        names of the training data if the model knows names and all are present. Otherwise, it selects all
        columns, in order, except the columns in ``keep`` and the index levels that pandas recorded.
    keep : sequence of str, default=()
        Names of columns that are copied to the output unchanged, such as row ids; they come first.
    reasons : int or None, default=None
        Return only this many values of each row, the values of largest magnitude, the largest first; ties are
        in the order of the columns. The output columns are "feature_1", "value_1" and "shap_1", then
        "feature_2", and so on: a feature's name, its value in the row as a string, and its SHAP value. A
        feature value is null if it is missing; the value of a group lists the values of its columns. For
        interactions, the columns are "pair_1" and "interaction_1". If there are several outputs, each has its
        own columns: "feature_1__cat".
    by_sign : bool, default=False
        With ``reasons``, return that many of the strongest positive and of the strongest negative values of
        each row. The output columns are "for_1", "for_value_1" and "for_shap_1", and so on, then "against_1",
        "against_value_1" and "against_shap_1". They are null where a row has no more values of the sign.
        Interactions are not split by sign.
    sum_by : {"input"} or None, default=None
        "input" returns values of the columns of X instead of the columns that the leading steps of a pipeline
        make from them. The value of a column of X is the sum of the values of all columns that are made from
        it, as from :meth:`.Explanation.sum_by`, and interactions are sums, as from
        :meth:`.InteractionExplanation.sum_by`; listed pairs are pairs of columns of X. The option
        ``feature_groups="input"`` instead computes Shapley values of the columns of X, each of which is known
        or unknown as a whole.
    interactions : "occurring", list of pairs or None, default=None
        Which interactions to compute instead of SHAP values, with a column for each pair. "occurring" means
        all pairs that occur on a path of the model; the interactions of other pairs are zero. A list has
        pairs of names of columns that the model receives, or of positions of columns of X, as for
        :meth:`.TreeExplainer.explain_interactions`.
    index : str or None, default=None
        "SV", "BV" or "OV", for interactions "SII", "STII" or "BII"; see :meth:`.TreeExplainer.explain` and
        :meth:`.TreeExplainer.explain_interactions`. None means "SV" or "SII".
    prefix : str, default=""
        Beginning of the names of the columns of values. Without a prefix, the names are those of
        ``get_feature_names_out`` of :class:`.ShapTransformer` or :class:`.ShapInteractionTransformer`.
    dtype : {"auto", "float32", "float64"}, default="auto"
        Type of the values in the output. "auto" is float32 if all features are float32 columns, and float64
        otherwise. For a ``Pipeline`` it is always float64, because the dtype that its steps return is not
        known in advance.
    **options
        Options of :class:`.TreeExplainer`, unless ``model`` is one; for an explainer file, options of
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
        features: ColumnNames | None = None,
        keep: ColumnNames = (),
        reasons: int | None = None,
        by_sign: bool = False,
        sum_by: Literal["input"] | None = None,
        interactions: Literal["occurring"] | ListedInteractions | None = None,
        index: ValueIndex | InteractionIndex | None = None,
        prefix: str = "",
        dtype: Literal["auto", "float32", "float64"] = "auto",
        **options: Unpack[ExplainerOptions],
    ) -> None:
        require_options(BatchExplainer, options)
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
                "by_sign= splits the strongest features of each row: give reasons=, not interactions="
            )
        require_sum_by(sum_by)
        self._by_sign, self._sum_by = by_sign, sum_by
        self._explainer = explainer_of(model, options)
        if self._request is None:
            self._explainer._require_values(self._index)
        self._input_grouping = None if sum_by is None else groups_of_inputs(self._explainer, self._index)
        self._rows_are_independent: list[bool] = []  # shared with copies; filled once it is known
        self._takes_strings = takes_strings(self._explainer)
        self._takes_arrays = not self._explainer._steps or takes_arrays(self._explainer._steps[0])
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
    def base_values(self) -> float | Values:
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
        expected_names, n_expected, blank = expected_columns(self._explainer)
        if names is None and expected_names is not None:
            column_of_name = {name.replace(" ", "_") if blank else name: name for name in schema.names}
            if all(name in column_of_name for name in expected_names):
                names = tuple(column_of_name[name] for name in expected_names)
        if names is None:
            other_columns = {*self._keep, *level_columns(schema)}
            names = tuple(name for name in schema.names if name not in other_columns)
        require_columns(schema, (*self._keep, *names))
        if expected_names is not None:
            check_names([name.replace(" ", "_") for name in names] if blank else names, expected_names)
        if not self._explainer._steps:
            check_known_names(names, self._explainer._schema.known_names)
        if n_expected is not None and len(names) != n_expected:
            raise ValueError(
                f"the model takes {n_expected} features, but there are {len(names)} columns: "
                f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}; name those to take in features="
            )
        self._require_no_codes(schema, names)
        feature_set = frozenset(names)
        self._explainer._reader.require_fixed_columns(
            [name for name in schema.names if name in feature_set], "the source"
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
        return bool(self._explainer._steps) and not self._takes_strings

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
        kept_fields = [schema.field(name) for name in self._keep]
        return self._schema_of(kept_fields, names, single and not self._explainer._steps)

    def _schema_of(self, kept_fields: Sequence[Any], names: Sequence[str] | None, single: bool) -> Any:
        """Return the schema of the output for given features.

        Parameters
        ----------
        kept_fields : sequence of pyarrow.Field
            Fields of the columns to keep.
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
        value_columns = [field.name for field in fields]
        duplicates = sorted({*value_columns} & {field.name for field in kept_fields}) or sorted(
            {name for name in value_columns if value_columns.count(name) > 1}
        )
        if duplicates:
            raise ValueError(
                f"the output would have two columns {duplicates[0]!r}, one kept and one of values: "
                "use prefix=, 'shap_' for instance"
            )
        return arrow.schema(
            [*kept_fields, *fields], {METADATA_KEY: json.dumps(self._metadata(names)).encode()}
        )

    def _strongest(self, names: Sequence[str] | None) -> Strongest:
        """Return the object that makes the columns of the strongest values."""
        assert self._n_reasons is not None
        value = INDICES[self._index].column_name
        ranked, outputs = self._ranked_names(names), self._explainer.output_names
        return Strongest(self._n_reasons, ranked, outputs, value, self._prefix, self._by_sign)

    def _names_explained(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """Return the names of the features of the results, given the names of the model's input columns."""
        if self._input_grouping is not None:
            return self._input_grouping.names
        return self._explainer._names_explained(names, self._index)

    def _ranked_names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """Return the names of the features, or pairs, for which each output has a value."""
        feature_names = self._names_explained(names)
        return (
            feature_names if self._request is None else set_names(feature_names, self._pairs(feature_names))
        )

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
        value_names = column_names(self._ranked_names(names), self._explainer.output_names)
        return [self._prefix + name for name in value_names]

    def _pairs(self, feature_names: Sequence[str]) -> np.ndarray:
        assert self._request is not None
        if self._request.form == "listed":
            return self._request.positions(feature_names, self._features_are_columns)
        pairs = self._explainer.occurring_interactions()
        return (
            pairs
            if self._input_grouping is None
            else group_pairs(pairs, self._input_grouping.group_of_feature())[0]
        )

    @property
    def _features_are_columns(self) -> bool:
        """Whether each feature of the results is the column of X at its own position."""
        if self._input_grouping is None:
            return self._explainer._features_are_columns
        origins = self._explainer._origins
        return origins is not None and origins.grouped(self._input_grouping.features).are_columns

    def _metadata(self, names: Sequence[str] | None) -> dict[str, Any]:
        explainer, base = self._explainer, self._explainer.expected_value
        return {
            "base_values": base if isinstance(base, float) else base.tolist(),
            "output_names": explainer.output_names and _plain(explainer.output_names),
            "feature_names": list(self._names_explained(names)),
            "index": self._index,
            "model_output": explainer.model_output,
            "feature_perturbation": explainer.feature_perturbation,
            "precision": explainer.precision,
            "unit": unit_of(explainer._adapted, explainer.model_output),
        }

    def __call__(self, batch: Any) -> Any:
        """Explain a batch.

        Parameters
        ----------
        batch : pyarrow.RecordBatch or pyarrow.Table
            Rows to explain.

        Returns
        -------
        pyarrow.RecordBatch
            Values of the same rows in the same order, with the schema that :meth:`output_schema` returns.

        Raises
        ------
        ValueError, TypeError
            ``batch`` is neither a record batch nor a table; or a column is missing, or holds a value that the
            model does not accept; the message names the column and the row.
        MemoryError, RuntimeError
            As for :meth:`.TreeExplainer.explain`.
        """
        if not isinstance(getattr(batch, "schema", None), require_arrow().Schema):
            raise TypeError(
                f"batch must be a pyarrow RecordBatch or Table, not {with_article(batch)}: for a pandas data "
                "frame, pass pyarrow.RecordBatch.from_pandas(frame)"
            )
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
        values = self._values_or_explanation(self._rows(batch, names), names) if batch.num_rows else None
        return self._output_batch(self._kept_columns(batch), values, names, schema)

    def _kept_columns(self, batch: Any) -> list[Any]:
        return [batch.column(name) for name in self._keep]

    def _gpus(self, n_rows: int) -> tuple[int, ...]:
        """Return the GPUs that explain a batch of ``n_rows`` rows; none means the CPU."""
        kind = Kind(1, self._index) if self._request is None else self._request.kind
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
        if self._input_grouping is not None:
            return side_by_side(self._interactions_of_inputs(X))
        pairs: Any = "occurring"
        if self._request.form == "listed":
            pairs = self._pairs(self._names_explained(names))
        values = self._silent.explain_interactions(
            self._as_taken(X), interactions=pairs, index=self._index
        ).values
        return side_by_side(values)

    def _interactions_of_inputs(self, X: Any) -> np.ndarray:
        """Compute the requested interactions of columns of X, which are sums over all pairs that occur."""
        assert self._request is not None and self._input_grouping is not None
        explanation = self._silent.explain_interactions(
            self._as_taken(X), interactions="occurring", index=self._index
        )
        grouped = explanation.sum_by("input")
        if self._request.form != "listed":
            return grouped.values
        position_of_pair = {tuple(pair): i for i, pair in enumerate(grouped.interactions.tolist())}
        pairs = self._request.positions(self._input_grouping.names, self._features_are_columns)
        values = np.zeros((len(grouped), len(pairs), *grouped.values.shape[2:]), grouped.values.dtype)
        for column, pair in enumerate(np.sort(pairs, axis=1).tolist()):
            if tuple(pair) in position_of_pair:
                values[:, column] = grouped.values[:, position_of_pair[tuple(pair)]]
        return values

    def _explanation(self, X: Any) -> Explanation:
        explanation = self._silent.explain(self._as_taken(X), index=self._index)
        return explanation if self._sum_by is None else explanation.sum_by(self._sum_by)

    @property
    def _silent(self) -> TreeExplainer:
        """The explainer without warnings about names, which :meth:`_warn_of_names` gives once."""
        return self._explainer._without_warnings

    def _warn_of_names(self, schema: Any) -> None:
        """Warn about names as the model's ``predict`` does; ``schema`` is None if there are no names."""
        if not self._explainer._steps:  # the first step of a pipeline warns itself
            has_names = schema is not None and _has_names(schema)
            warn_of_names(self._explainer._schema, has_names=has_names, is_frame=schema is not None)

    def _as_taken(self, X: Any) -> Any:
        """Return X as the explainer takes it: the only column of X if the explainer takes strings."""
        if not self._takes_strings:
            return X
        if X.shape[1] != 1:
            raise ValueError(
                f"the model takes one column of strings, but there are {X.shape[1]} columns: name it in "
                "features="
            )
        return X[:, 0] if isinstance(X, np.ndarray) else X.iloc[:, 0].to_numpy(object, na_value=np.nan)

    def _values_or_explanation(self, X: Any, names: Sequence[str] | None) -> Any:
        """Return all values of some rows, or an explanation if the output also has feature values."""
        self._require_independent_rows(X)
        has_data = self._n_reasons is not None and self._request is None
        return self._explanation(X) if has_data else self._values(X, names)

    def _require_independent_rows(self, X: Any) -> None:
        """Raise ``ValueError`` if steps transform a row depending on the other rows of the batch.

        Batches are checked until the rows of one of them could be compared.
        """
        if not self._explainer._steps or self._rows_are_independent or n_rows_of(X) < 2:
            return
        with quiet():
            compared = require_independent_rows(self._silent._reader, self._as_taken(X))
        if compared:
            self._rows_are_independent.append(True)

    def _output_batch(
        self, kept_columns: list[Any], values: Any, names: Sequence[str] | None, schema: Any
    ) -> Any:
        """Return a record batch of the columns to keep and of the columns of values.

        ``values`` is what :meth:`_values_or_explanation` returned, or None if there are no rows.
        """
        arrow = require_arrow()
        fields = list(schema)[len(kept_columns) :]
        if values is None:
            columns = [arrow.array([], field.type) for field in fields]
        else:
            dtype = np.float32 if str(fields[-1].type) == "float" else np.float64
            if self._n_reasons is None:
                columns = [arrow.array(column) for column in columns_of_rows(values, dtype)]
            else:
                data = values.data if isinstance(values, Explanation) else None
                columns = self._strongest(names).columns(np.asarray(values), data, dtype)
        return arrow.RecordBatch.from_arrays([*kept_columns, *columns], schema=schema)

    def _explain_frame(self, frame: Any, was_array: bool = False) -> Any:
        """Explain the rows of a pandas data frame without converting it to Arrow; no columns are kept.

        ``was_array`` says that the frame was made from an array. A step that takes arrays then gets an array.
        """
        schema = frame_schema(frame)
        names = self.input_names(schema)
        self._warn_of_names(schema)
        rows = frame.iloc[:, [schema.names.index(name) for name in names]]
        X = rows.to_numpy() if was_array and self._explainer._steps and self._takes_arrays else rows
        values = self._values_or_explanation(X, names) if len(rows) else None
        return self._output_batch([], values, names, self.output_schema(schema))

    def _rows(self, batch: Any, names: Sequence[str], types: PandasTypes | None = None) -> Any:
        """Return the features of a batch in a form that ``explain`` accepts.

        Parameters
        ----------
        batch : pyarrow.RecordBatch or FrameRows
            Rows to explain.
        names : sequence of str
            Columns that are features.
        types : PandasTypes or None
            Types of these columns in the source of the batch. If None, they are determined from the batch.

        Returns
        -------
        ndarray, data frame or pyarrow.Table
            Rows, of the kind with which the model or the first step of the pipeline was trained.
        """
        if isinstance(batch, FrameRows):
            return batch.frame
        explainer = self._explainer
        arrow = require_arrow()
        self._require_no_codes(
            batch.schema, names
        )  # the column may have no values in the first file, and thus no type
        columns = [batch.column(name) for name in names]
        columns = [c.cast(arrow.float64()) if arrow.types.is_null(c.type) else c for c in columns]
        kinds = {str(column.type) for column in columns}
        plain = self._takes_arrays and not (self._takes_strings or explainer._schema.has_encoders)
        if len(kinds) == 1 and kinds <= {"float", "double"} and plain:
            return rows_of_columns(columns, np.float32 if kinds == {"float"} else np.float64)
        if explainer._steps:
            types = types or self._types_of_batch(batch, names)
            if self._takes_arrays or self._takes_strings:
                return types.array(batch)
            frame = types.frame(batch)
            if types.differing and len(frame):
                with quiet():
                    require_values_of_categories(self._silent._reader, frame, types)
            return frame
        if explainer.family == "sklearn":  # scikit-learn would reject dictionaries with nulls
            columns = [decoded(column) for column in columns]
        return arrow.Table.from_arrays(columns, names=list(names))

    def _types_of_batch(self, batch: Any, names: Sequence[str]) -> PandasTypes:
        """Return the pandas types of the features of a batch whose source is not known."""
        arrow = require_arrow()
        schema = columns_of(batch.schema, names)
        fields = [f.with_type(arrow.float64()) if arrow.types.is_null(f.type) else f for f in schema]
        if self._takes_strings:  # a vectorizer has a better message about NaN than about None
            fields = [field.with_metadata({MISSING_KEY: MISSING_NAN}) for field in fields]
        schema = arrow.schema(fields, schema.metadata)
        scan = TypesScan(schema)
        if not self._explainer._schema.takes_codes:  # the codes may differ from batch to batch
            scan.add_categories(batch.select(list(names)))
        for name in recorded_nulls(schema):
            scan.add_nulls(name)
        return scan.types(UNKNOWN_NULLS)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_last": None}  # a cache of pyarrow schemas


def _has_names(schema: Any) -> bool:
    """Return whether columns have names. Numbers, which a schema holds as strings, are not names."""
    return not all(name.isdecimal() for name in schema.names)


def _plain(names: Any) -> Any:
    """Return labels, or pairs of labels, in a JSON-compatible form."""
    if isinstance(names, (tuple, list)):
        return [_plain(name) for name in names]
    name = names.item() if isinstance(names, np.generic) else names
    return name if isinstance(name, (int, float, bool, str)) else str(name)


def expected_columns(explainer: TreeExplainer) -> tuple[Sequence[str] | None, int | None, bool]:
    """Return what is known about the columns of X.

    Returns
    -------
    names : sequence of str or None
    n_columns : int or None
    blank_as_underscore : bool
        Whether ``names`` have "_" where the columns of X may have blanks.
    """
    if not explainer._steps:
        return explainer.feature_names, explainer.n_features, explainer._schema.blank_as_underscore
    first = explainer._steps[0]
    if takes_strings(explainer):
        return None, 1, False
    names = getattr(first, "feature_names_in_", None)
    names = None if names is None else tuple(map(str, names))
    return names, getattr(first, "n_features_in_", None), False


def takes_strings(explainer: TreeExplainer) -> bool:
    """Return whether X is a one-dimensional array of strings, as for CountVectorizer, and not a table."""
    if not explainer._steps:
        return False
    try:
        tags = get_tags(explainer._steps[0]).input_tags
    except Exception:  # a transformer of another library may raise anything, and takes tables
        return False
    return tags.string and not tags.two_d_array
