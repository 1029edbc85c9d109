"""Spark data frames, as Arrow batches in Spark's own Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Unpack

from .._common.checks import require_options
from .._common.devices import elsewhere
from .._common.types import BatchOptions, Model, lists_options
from ..batches.record_batches import BatchExplainer
from ._parcel import Parcel


@lists_options
def explain_spark(model: Model, df: Any, **options: Unpack[BatchOptions]) -> Any:
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
    **options
        Options of :class:`.BatchExplainer`, and of :class:`.TreeExplainer` unless ``model`` is an explainer.
        The workers resolve ``device``. ``n_jobs=None`` means one thread for each task. Spark does not keep
        the order of rows through a shuffle: copy a row id with ``keep``.

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
    require_options(explain_spark, options, BatchOptions.__annotations__)
    try:
        from pyspark import cloudpickle
        from pyspark.sql.functions import col
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import StructType
    except ImportError as error:
        raise ImportError("explain_spark needs PySpark and pyarrow: pip install pyspark pyarrow") from error
    df_module = type(df).__module__
    if not df_module.startswith("pyspark.sql") or not hasattr(df, "mapInArrow"):
        raise TypeError(f"df is a {df_module}.{type(df).__qualname__}, not a Spark data frame")
    if df_module.startswith("pyspark.sql.connect"):
        raise TypeError("df is a Spark Connect data frame, which cannot broadcast: use a classic session")
    with elsewhere():
        batches = BatchExplainer(model, **options)
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
