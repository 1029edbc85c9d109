"""Spark data frames, as Arrow batches in Spark's own Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, Unpack

from .._common.checks import require_options
from .._common.devices import elsewhere
from .._common.types import (
    ColumnNames,
    ExplainerOptions,
    InteractionIndex,
    ListedInteractions,
    Model,
    ValueIndex,
    lists_options,
)
from ..batches.record_batches import BatchExplainer
from ._parcel import Parcel


@lists_options
def explain_spark(
    model: Model,
    df: Any,
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
) -> Any:
    """Compute SHAP values, or interactions, of the rows of a Spark data frame: lazily, by ``mapInArrow``.

    The call itself only checks its arguments. The explainer is broadcast once, and each Python worker
    compiles it once, however many tasks it runs.

    Parameters
    ----------
    model : fitted model, str, path, bytes or TreeExplainer
        A fitted model or its file, or an explainer or its file: see :class:`.TreeExplainer`.
        Workers need skshapgpu and pyarrow, but not the model's library; for the leading steps of a pipeline,
        they need the libraries of the steps.
    df : pyspark.sql.DataFrame
        A null is missing; for a pipeline whose first step takes data frames, columns of integers or booleans
        must not have nulls: cast them to double. Spark Connect is not supported.
    features : sequence of str, default=None
        Columns that the model takes, in its order. None selects the columns with the names of the training
        data if the model knows names and all exist, and otherwise all columns that are not in ``keep``.
    keep : sequence of str, default=()
        Columns, such as row ids, to copy to the result, before the values. Spark does not keep the order of
        rows through a shuffle.
    reasons : int or None, default=None
        Return only this many values of each row, the values of largest magnitude, in columns "feature_1",
        "value_1" (the feature's value as a string), "shap_1", "feature_2", and so on.
    by_sign : bool, default=False
        With ``reasons``, return that many of the strongest positive values of each row, and of the strongest
        negative ones, in columns "for_1", "for_value_1", "for_shap_1", and so on, then "against_1" and so on;
        see :class:`.BatchExplainer`.
    sum_by : {"input"} or None, default=None
        "input" adds up the values of all columns that the leading steps of a pipeline make from each column
        of X; see :class:`.BatchExplainer`.
    interactions : "occurring", list of pairs or None, default=None
        Which interactions to compute instead of SHAP values: of all pairs that occur on a path of the model
        (the interactions of other pairs are zero), or of the listed pairs.
    index : str or None, default=None
        "SV", "BV" or "OV", for interactions "SII", "STII" or "BII"; see :meth:`.TreeExplainer.explain` and
        :meth:`.TreeExplainer.explain_interactions`. None means "SV" or "SII".
    prefix : str, default=""
        Prefix of the names of the columns of values.
    dtype : {"auto", "float32", "float64"}, default="auto"
        Type of the values. "auto" is float32 if all features have Spark's type float and the model is not a
        pipeline, otherwise float64.
    **options
        Options of :class:`.TreeExplainer`, unless ``model`` is an explainer. The workers resolve ``device``.
        ``n_jobs=None`` means one thread for each task.

    Returns
    -------
    pyspark.sql.DataFrame
        The columns ``keep`` and the columns of the values, of type float or double, named as by
        :class:`.ShapTransformer` or :class:`.ShapInteractionTransformer`; as many rows as ``df``.

    Raises
    ------
    TypeError
        ``df`` is not a Spark data frame, a feature or a column to keep has a type that Arrow does not have,
        or an argument has the wrong type.
    ValueError
        ``df`` does not have the columns of the model, an argument has an invalid value, or the requested
        values depend on other rows.
    UnsupportedModelError, NotFittedError
        See :class:`.TreeExplainer`.
    ImportError
        PySpark is not installed.
    """
    require_options(explain_spark, options)
    try:
        from pyspark import cloudpickle
        from pyspark.sql.functions import col
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import StructType
    except ImportError as error:
        raise ImportError("explain_spark needs PySpark and pyarrow: pip install skshapgpu[spark]") from error
    df_module = type(df).__module__
    if not df_module.startswith("pyspark.sql") or not hasattr(df, "mapInArrow"):
        raise TypeError(f"df is a {df_module}.{type(df).__qualname__}, not a Spark data frame")
    if df_module.startswith("pyspark.sql.connect"):
        raise TypeError("df is a Spark Connect data frame, which cannot broadcast: use a classic session")
    with elsewhere():
        batches = BatchExplainer(
            model,
            features=features,
            keep=keep,
            reasons=reasons,
            by_sign=by_sign,
            sum_by=sum_by,
            interactions=interactions,
            index=index,
            prefix=prefix,
            dtype=dtype,
            **options,
        )
    schema = _arrow_schema(df.schema, batches)
    kept_fields = [df.schema[name] for name in batches.keep]  # unchanged, as Arrow has fewer types
    out = StructType(
        [*kept_fields, *list(from_arrow_schema(batches.output_schema(schema)))[len(kept_fields) :]]
    )
    needed = list(dict.fromkeys((*batches.keep, *batches.input_names(schema))))
    parcel = df.sparkSession.sparkContext.broadcast(Parcel(batches, cloudpickle.dumps))
    # mapInArrow does not find columns whose names contain a dot, so columns are numbered for it.
    numbered = [col(_quoted(name)).alias(f"c{i}") for i, name in enumerate(needed)]
    return df.select(numbered).mapInArrow(_explaining(parcel, needed), out)


def _explaining(parcel: Any, names: list[str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function that a task runs, given the broadcast parcel and the names of the columns."""

    def explain(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        explain_batch = parcel.value.open()
        for batch in batches:
            yield explain_batch(pa.RecordBatch.from_arrays(batch.columns, names=names))

    return explain


def _arrow_schema(schema: Any, batches: BatchExplainer) -> Any:
    """Return the schema that Python workers receive.

    Columns that Spark cannot convert are null, or rejected if they are features or columns to keep.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    fields, error_of_column = [], {}
    for field in schema:
        try:
            kind = to_arrow_type(field.dataType)
        except Exception as error:  # Spark's own class, which older releases do not have
            kind, error_of_column[field.name] = pa.null(), error
        fields.append(pa.field(field.name, kind))
    arrow_schema = pa.schema(fields)
    for name in (*batches.keep, *batches.input_names(arrow_schema)):
        if name in error_of_column:
            raise TypeError(
                f"column {name!r} cannot be handed to Python: {error_of_column[name]}"
            ) from error_of_column[name]
    return arrow_schema


def _quoted(name: str) -> str:
    """Quote the name of a column, so that Spark does not read a dot in it as access to a field."""
    return "`" + name.replace("`", "``") + "`"
