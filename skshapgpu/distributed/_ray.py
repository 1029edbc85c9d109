"""Ray datasets, as Arrow tables in actors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..devices import elsewhere
from ..record_batches import BatchExplainer
from ._parcel import Parcel


def explain_ray(
    model: Any,
    dataset: Any,
    *,
    features: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    top: int | None = None,
    interactions: bool = False,
    pairs: Any = "all",
    index: str | None = None,
    prefix: str = "",
    dtype: str = "auto",
    concurrency: int | tuple[int, int] | None = None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    batch_size: int | None = None,
    **options: Any,
) -> Any:
    """SHAP values, or interactions, of the rows of a Ray dataset: lazily, by ``map_batches`` with actors.

    Nothing is computed in the call but the check of its arguments; names of columns are checked where Ray
    knows them without reading, else when rows come. Each actor compiles the explainer once.

    Parameters
    ----------
    model : TreeExplainer, fitted model, str or path
        An explainer, or what :class:`.TreeExplainer` takes, or the path of a file that
        :meth:`.TreeExplainer.save` wrote. Actors need skshapgpu, but not the model's library; of the leading
        steps of a pipeline they need theirs.
    dataset : ray.data.Dataset
        Its columns are taken as those of Arrow. A null is missing.
    features : sequence of str, default=None
        Columns that the model takes, in its order. None: those that it was trained with, by name, where it
        knows names and all are there; else all that are not in ``keep``.
    keep : sequence of str, default=()
        Columns that are handed on, before the values: row ids, for instance. Ray keeps the order of blocks
        only if ``DataContext.execution_options.preserve_order`` says so.
    top : int or None, default=None
        Give only so many values of each row, those of largest magnitude: columns "feature_1", "shap_1",
        "feature_2", and so on.
    interactions : bool, default=False
        Whether to give interactions of pairs.
    pairs : {"all", "occurring"} or list of pairs, default="all"
        Of interactions: all that occur on a path of the model, as others are zero, or those listed.
    index : str or None, default=None
        As for :func:`skshapgpu.explain`.
    prefix : str, default=""
        What the names of the columns of values begin with.
    dtype : {"auto", "float32", "float64"}, default="auto"
        Of the values. "auto" is float32 where all features are float32 columns, and the model is no pipeline;
        else float64.
    concurrency : int, tuple of two int or None, default=None
        Number of actors, or the least and the greatest. None: from one to as many as there is room for.
    num_cpus, num_gpus : float or None, default=None
        What each actor reserves, as of Ray. With ``num_gpus`` an actor sees its own GPU, which
        ``device="auto"`` takes when the work is worth it; Ray then wants a ``batch_size``.
    batch_size : int or None, default=None
        Rows of a batch. None: whole blocks.
    **options
        Options of :class:`.TreeExplainer`, unless ``model`` is one. ``device`` is looked for by the actors,
        ``n_jobs=None`` is one thread for each actor.

    Returns
    -------
    ray.data.Dataset
        The columns ``keep`` and those of the values, with the names of :class:`.ShapTransformer` or
        :class:`.ShapInteractionTransformer`; as many rows as ``dataset``.

    Raises
    ------
    TypeError
        ``dataset`` is none of Ray, or an argument has the wrong type.
    ValueError
        ``dataset`` does not have the columns of the model, an argument has no such value, or what is asked
        for depends on other rows.
    UnsupportedModelError, NotFittedError
        As for :class:`.TreeExplainer`.
    ImportError
        Ray Data is not installed.
    """
    try:
        from ray import cloudpickle
        from ray.data import ActorPoolStrategy, Dataset
    except ImportError as error:
        raise ImportError("explain_ray needs Ray Data: pip install skshapgpu[ray]") from error
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"dataset is a {type(dataset).__module__}.{type(dataset).__qualname__}, not a dataset of Ray"
        )
    with elsewhere():
        batches = BatchExplainer(
            model,
            features=features,
            keep=keep,
            top=top,
            interactions=interactions,
            pairs=pairs,
            index=index,
            prefix=prefix,
            dtype=dtype,
            **options,
        )
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
        raise TypeError(f"concurrency must be a number of actors, or two of them, not {concurrency!r}")
    if not 1 <= bounds[0] <= bounds[1]:
        raise ValueError(f"concurrency must be at least 1, the least before the greatest: {concurrency!r}")
    return {"min_size": bounds[0], "max_size": bounds[1]}


def _check_columns(dataset: Any, batches: BatchExplainer) -> None:
    """Refuse columns that are known not to be those of the model."""
    import pyarrow as pa

    known = dataset.schema(fetch_if_missing=False)
    if known is None:
        return
    schema = known.base_schema
    if not isinstance(schema, pa.Schema):  # of pandas blocks: their types are found when they are turned
        schema = pa.schema([(name, pa.float64()) for name in known.names])
    batches.output_schema(schema)


class _Actor:
    """Explains tables, by an explainer that is compiled when the actor starts."""

    def __init__(self, parcel: Parcel) -> None:
        self._explain = parcel.open()

    def __call__(self, table: Any) -> Any:
        import pyarrow as pa

        schema = self._explain.output_schema(table.schema)
        made = [self._explain(batch) for batch in table.combine_chunks().to_batches()]
        return pa.Table.from_batches(made, schema)
