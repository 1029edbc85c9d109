"""Ray datasets, as Arrow tables in actors."""

from __future__ import annotations

from typing import Any, Unpack

from .._common.checks import require_options
from .._common.devices import elsewhere
from .._common.types import BatchOptions, Model, lists_options
from ..batches.record_batches import BatchExplainer
from ._parcel import Parcel


@lists_options
def explain_ray(
    model: Model,
    dataset: Any,
    *,
    concurrency: int | tuple[int, int] | None = None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    batch_size: int | None = None,
    **options: Unpack[BatchOptions],
) -> Any:
    """Compute SHAP values, or interactions, of the rows of a Ray dataset: lazily, by ``map_batches``.

    The call itself only checks its arguments. It checks the names of the columns if Ray knows them without
    reading rows; otherwise they are checked when rows arrive. The values are computed by actors, each of
    which compiles the explainer once.

    Parameters
    ----------
    model : fitted model, str, path, bytes or TreeExplainer
        A fitted model or its file, or an explainer or its file: see :class:`.TreeExplainer`.
        Actors need skshapgpu, but not the model's library; for the leading steps of a pipeline, they need
        the libraries of the steps.
    dataset : ray.data.Dataset
        Its columns are read as Arrow columns. A null is missing; for a pipeline whose first step takes data
        frames, columns of integers or booleans must not have nulls: cast them to float64.
    concurrency : int, tuple of two int or None, default=None
        Number of actors, or the least and the greatest number. None means one actor or more, up to as many
        as the cluster has room for.
    num_cpus, num_gpus : float or None, default=None
        Resources that each actor reserves from Ray. With ``num_gpus`` an actor sees its own GPU, which
        ``device="auto"`` uses if the work is large enough; Ray then requires a ``batch_size``.
    batch_size : int or None, default=None
        Rows of a batch. None means that a batch is a whole block.
    **options
        Options of :class:`.BatchExplainer`, and of :class:`.TreeExplainer` unless ``model`` is an explainer.
        The actors resolve ``device``. ``n_jobs=None`` means one thread for each actor. Ray keeps the order of
        blocks only if ``DataContext.execution_options.preserve_order`` is True: otherwise copy a row id with
        ``keep``.

    Returns
    -------
    ray.data.Dataset
        The columns ``keep`` and the columns of the values, named as by :class:`.ShapTransformer` or
        :class:`.ShapInteractionTransformer`; as many rows as ``dataset``.

    Raises
    ------
    TypeError
        ``dataset`` is not a Ray dataset, or an argument has the wrong type.
    ValueError
        ``dataset`` does not have the columns of the model, an argument has an invalid value, or the
        requested values depend on other rows.
    UnsupportedModelError, NotFittedError
        See :class:`.TreeExplainer`.
    ImportError
        Ray Data is not installed.
    """
    require_options(explain_ray, options, BatchOptions.__annotations__)
    try:
        from ray import cloudpickle
        from ray.data import ActorPoolStrategy, Dataset
    except ImportError as error:
        raise ImportError("explain_ray needs Ray Data: pip install 'ray[data]'") from error
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"dataset is a {type(dataset).__module__}.{type(dataset).__qualname__}, not a Ray dataset"
        )
    with elsewhere():
        batches = BatchExplainer(model, **options)
    _check_columns(dataset, batches)
    resources = {"num_cpus": num_cpus, "num_gpus": num_gpus}
    return dataset.map_batches(
        _Actor,
        fn_constructor_args=(Parcel(batches, cloudpickle.dumps),),
        batch_format="pyarrow",
        batch_size=batch_size,
        compute=ActorPoolStrategy(**_pool(concurrency)),
        **{name: number for name, number in resources.items() if number is not None},
    )


def _pool(concurrency: Any) -> dict[str, int]:
    if concurrency is None:
        return {}
    bounds = concurrency if isinstance(concurrency, tuple) else (concurrency, concurrency)
    if len(bounds) != 2 or any(isinstance(n, bool) or not isinstance(n, int) for n in bounds):
        raise TypeError(f"concurrency must be a number of actors, or two numbers, not {concurrency!r}")
    if not 1 <= bounds[0] <= bounds[1]:
        raise ValueError(
            f"concurrency must be at least 1, and the first number at most the second: {concurrency!r}"
        )
    return {"min_size": bounds[0], "max_size": bounds[1]}


def _check_columns(dataset: Any, batches: BatchExplainer) -> None:
    """Raise an error if Ray knows the columns, and they are not the columns of the model."""
    import pyarrow as pa

    ray_schema = dataset.schema(fetch_if_missing=False)
    if ray_schema is None:
        return
    schema = ray_schema.base_schema
    if not isinstance(schema, pa.Schema):  # pandas blocks get their types when converted
        schema = pa.schema([(name, pa.float64()) for name in ray_schema.names])
    batches.output_schema(schema)


class _Actor:
    """Actor that explains tables, with an explainer that is compiled when the actor starts."""

    def __init__(self, parcel: Parcel) -> None:
        self._explain = parcel.open()

    def __call__(self, table: Any) -> Any:
        import pyarrow as pa

        schema = self._explain.output_schema(table.schema)
        explained = [self._explain(batch) for batch in table.combine_chunks().to_batches()]
        return pa.Table.from_batches(explained, schema)
