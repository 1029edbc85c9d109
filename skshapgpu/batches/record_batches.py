"""Explanation of Arrow record batches: the basis of all runs over many rows.

Each batch is explained independently, so batches can be processed by any process and in any order. The names
and types of the output columns are known in advance. Numeric columns are copied into one array without an
intermediate data frame. The first step of a pipeline receives a pandas frame, whose dtypes are the dtypes of
the source, not of the batch (see ``_rows/pandas_types.py``).
"""

from __future__ import annotations

from typing import Any, Literal, Unpack

from .._common.checks import require_bool, require_count, require_one_of, require_options, with_article
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
from .._explanations.grouping import require_sum_by
from .._rows.arrow import require_arrow
from ..explainer import TreeExplainer
from .batch_arguments import BatchArguments, explainer_of, groups_of_inputs, parse_names, request_of
from .schema_explainer import SchemaExplainer

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
        feature_names = None if features is None else parse_names("features", features)
        kept_names = parse_names("keep", keep)
        if not isinstance(prefix, str):
            raise TypeError(f"prefix must be a str, not {prefix!r}")
        require_count("reasons", reasons, also=(None,))
        n_reasons = None if reasons is None else int(reasons)
        request, index = request_of(interactions, index)
        require_bool("by_sign", by_sign)
        if by_sign and (reasons is None or request is not None):
            raise ValueError(
                "by_sign= splits the strongest features of each row: give reasons=, not interactions="
            )
        require_sum_by(sum_by)
        explainer = explainer_of(model, options)
        explainer._reader.schema.require_one_input("batches are not explained", "call explain(model, X)")
        if request is None:
            explainer._require_values(index)
        grouping = None if sum_by is None else groups_of_inputs(explainer, index)
        self._arguments = BatchArguments(
            explainer=explainer,
            features=feature_names,
            keep=kept_names,
            n_reasons=n_reasons,
            by_sign=bool(by_sign),
            sum_by=sum_by,
            request=request,
            index=index,
            prefix=prefix,
            dtype=dtype,
            input_grouping=grouping,
        )
        self._last: SchemaExplainer | None = None

    @property
    def explainer(self) -> TreeExplainer:
        """Explainer that explains the batches."""
        return self._arguments.explainer

    @property
    def keep(self) -> tuple[str, ...]:
        """Names of the columns that are copied to the output."""
        return self._arguments.keep

    @property
    def base_values(self) -> float | Values:
        """Base value: float, or float64 array of shape (n_outputs,) if there are several outputs."""
        return self.explainer.expected_value

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
        return self._arguments.input_names(schema)

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
        return SchemaExplainer(self._arguments, schema).output_schema

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
        last = self._last  # batches of a run have the same schema; replacing a reference is thread-safe
        if last is None:
            self._arguments.warn_of_names(batch.schema)
        if last is None or not last.input_schema.equals(batch.schema, check_metadata=False):
            last = self._last = SchemaExplainer(self._arguments, batch.schema)
        return last.explain(batch)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_last": None}  # a cache of pyarrow schemas
