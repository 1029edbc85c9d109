"""Dask arrays and data frames, part by part."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np
import scipy.sparse as sp

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
from ..batches.batch_arguments import BatchArguments, explainer_of
from ..batches.frame_rows import frame_schema
from ..batches.record_batches import BatchExplainer
from ..batches.schema_explainer import SchemaExplainer
from ._parcel import Parcel

#: Data frames of earlier releases do not accept a graph key as an argument.
_OLDEST_DASK = (2025, 5)


@lists_options
def explain_dask(
    model: Model,
    X: Any,
    *,
    features: ColumnNames | None = None,
    keep: ColumnNames = (),
    interactions: Literal["occurring"] | ListedInteractions | None = None,
    index: ValueIndex | InteractionIndex | None = None,
    prefix: str = "",
    **options: Unpack[ExplainerOptions],
) -> Any:
    """Compute SHAP values, or interactions, of the rows of a Dask collection: lazily, on its workers.

    The call itself only checks its arguments. The values of a part are computed by a worker, which receives
    and compiles the explainer once, however many parts it explains. The values are bit-identical to the
    values that :class:`.TreeExplainer` computes for the same part.

    Parameters
    ----------
    model : fitted model, str, path, bytes or TreeExplainer
        A fitted model or its file, or an explainer or its file: see :class:`.TreeExplainer`.
        Workers need skshapgpu, but not the model's library; for the leading steps of a pipeline, they need
        the libraries of the steps.
    X : dask array of shape (n_rows, n_features), or dask data frame
        Chunks of an array may be NumPy, SciPy (sparse) or CuPy arrays, and may have unknown lengths. Chunks
        of columns are merged.
    features : sequence of str, default=None
        Columns of a data frame that the model takes, in its order. None selects the columns with the names
        of the training data if the model knows names and all exist, and otherwise all columns that are not
        in ``keep``.
    keep : sequence of str, default=()
        Columns of a data frame to copy to the result, before the values.
    interactions : "occurring", list of pairs or None, default=None
        Which interactions to compute instead of SHAP values; see :meth:`.TreeExplainer.explain_interactions`.
        The result has a column for each pair that occurs on a path or that is listed. A number is rejected,
        because the strongest pairs depend on all rows.
    index : str or None, default=None
        "SV", "BV" or "OV", for interactions "SII", "STII" or "BII"; see :meth:`.TreeExplainer.explain` and
        :meth:`.TreeExplainer.explain_interactions`. None means "SV" or "SII".
    prefix : str, default=""
        Prefix of the names of the columns of values in a data frame.
    **options
        Options of :class:`.TreeExplainer`, unless ``model`` is an explainer. The workers resolve ``device``.
        ``n_jobs=None`` means one thread for each part that a worker explains at a time.

    Returns
    -------
    dask array or data frame
        For an array, an array with the row chunks of X and shape (n_rows, n_features[, n_outputs]), for
        interactions (n_rows, n_interactions[, n_outputs]).
        For a data frame, a data frame with the same index and divisions, the columns ``keep`` and a column
        for each value, named as by :class:`.ShapTransformer` or :class:`.ShapInteractionTransformer`.
        Values are float32 for float32 X, and float64 otherwise. For a pipeline with leading steps, they are
        always float64.

    Raises
    ------
    TypeError
        X is not a Dask array or data frame, or an argument has the wrong type.
    ValueError
        X does not have the columns of the model, an argument has an invalid value, or the requested values
        depend on other rows.
    UnsupportedModelError, NotFittedError
        See :class:`.TreeExplainer`.
    ImportError
        Dask or pyarrow is not installed, or Dask is older than 2025.5.

    Examples
    --------
    >>> import dask.array as da
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu.distributed import explain_dask
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> values = explain_dask(model, da.from_array(X, chunks=(100, -1)))
    >>> values.chunks
    ((100, 100, 100, 100, 42), (10,))
    >>> values.compute().shape
    (442, 10)
    """
    require_options(explain_dask, options)
    try:
        import dask.array as da
        from dask import __version__ as version
    except ImportError as error:
        raise ImportError(
            "explain_dask needs Dask: pip install 'dask[array,dataframe]' distributed"
        ) from error
    if tuple(map(int, version.split(".")[:2])) < _OLDEST_DASK:
        raise ImportError(f"explain_dask needs Dask 2025.5 or later, not {version}: pip install -U dask")
    is_array = isinstance(X, da.Array)
    if is_array and (features is not None or len(keep) or prefix):
        raise ValueError("features, keep and prefix are for data frames, but X is an array")
    is_frame = type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "map_partitions")
    if not is_array and not is_frame:
        raise TypeError(f"X is a {type(X).__module__}.{type(X).__qualname__}, not a Dask array or data frame")
    if is_frame and X.ndim != 2:
        raise TypeError("X is a Dask series: make a data frame of it, X.to_frame()")
    with elsewhere():
        explainer = explainer_of(model, options)
    batches = BatchExplainer(
        explainer,
        features=features,
        keep=keep,
        interactions=interactions,
        index=index,
        prefix=prefix,
    )
    return _explain_array(batches._arguments, X) if is_array else _explain_frame(batches._arguments, X)


def _parcel(explainer: SchemaExplainer) -> Any:
    """Wrap an explainer in a parcel that is a single key of the graph."""
    from cloudpickle import dumps
    from dask import delayed

    return delayed(Parcel(explainer, dumps), pure=True, traverse=False)


def _explain_array(arguments: BatchArguments, X: Any) -> Any:
    from dask.array.utils import meta_from_array

    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead")
    if np.isnan(X.shape[1]):
        raise ValueError("X has an unknown number of columns: call its compute_chunk_sizes() first")
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    explainer = SchemaExplainer(arguments, None)
    shape, dtype = explainer.row_shape, np.dtype(np.float64)
    arguments.warn_of_names(None)
    if not arguments.reader.steps:  # steps may reject a table without rows, and their values are float64
        dtype = explainer.values(np.empty((0, X.shape[1]), X.dtype)).dtype
    meta_of_values = None if sp.issparse(X._meta) else X._meta  # the values of sparse rows are dense
    return X.map_blocks(
        _values_of_block,
        _parcel(explainer),
        dtype,
        dtype=dtype,
        chunks=(X.chunks[0], *((n,) for n in shape)),
        new_axis=list(range(2, 1 + len(shape))) or None,
        meta=meta_from_array(meta_of_values, ndim=1 + len(shape), dtype=dtype),
    )


def _values_of_block(block: Any, parcel: Parcel, dtype: Any) -> Any:
    return parcel.open().values(block).astype(dtype, copy=False)


def _explain_frame(arguments: BatchArguments, X: Any) -> Any:
    import pandas as pd

    if not isinstance(X._meta, pd.DataFrame):
        raise TypeError(
            f"X has partitions of {type(X._meta).__module__.partition('.')[0]}: use X.to_backend('pandas')"
        )
    empty, keep = X._meta.iloc[:0], list(arguments.keep)
    schema = frame_schema(empty)
    arguments.warn_of_names(schema)
    explainer = SchemaExplainer(arguments, schema)
    dtype: np.dtype[Any] = np.dtype(np.float64)
    columns = explainer.output_schema.names[len(keep) :]
    if not arguments.reader.steps:  # steps may reject a table without rows, and their values are float64
        dtype = arguments.silent.shap_values(empty[list(explainer.names or ())]).dtype
    values = pd.DataFrame(columns=columns, index=empty.index, dtype=dtype)
    meta = pd.concat([empty[keep], values], axis=1)
    return X.map_partitions(_frame_of_part, _parcel(explainer), columns, dtype, meta=meta)


def _frame_of_part(part: Any, parcel: Parcel, columns: list[str], dtype: Any) -> Any:
    import pandas as pd

    explainer = parcel.open()
    keep = list(explainer.arguments.keep)
    values = explainer.values(part[list(explainer.names)]).astype(dtype, copy=False)
    frame = pd.DataFrame(values.reshape(len(part), len(columns)), part.index, columns, copy=False)
    return pd.concat([part[keep], frame], axis=1) if keep else frame
