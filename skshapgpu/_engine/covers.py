"""Covers counted from data: the weight of the rows that reach each node, for path-dependent values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from .. import _core
from .._rows.background import about_data, normalized_weights
from .._rows.inputs import HostRows
from ..adapters.ensemble import Ensemble, attributes_of
from ..adapters.schema import AdaptedModel

#: Largest number of bytes of the rows that are converted at once.
_BYTES_AT_ONCE = 2**26


def with_covers_of(
    adapted: AdaptedModel, data: Any, weights: Any, reader: Callable[[Any], HostRows], n_jobs: int | None
) -> AdaptedModel:
    """Return the model with covers counted from some rows, which are read as by ``Background.read``.

    Nodes below a node that no row reaches keep the covers of the model; without such covers, they have 0.
    Raise ``ValueError`` or ``TypeError`` if the model does not accept ``data``, or the weights do not match
    its rows.
    """
    ensemble = adapted.ensemble
    with about_data(data):
        rows = reader(data)
    row_weights = normalized_weights(weights, rows)
    if weights is None:
        row_weights = np.ones(rows.n_rows)  # counts are exact
    with about_data(data):
        cover = _leaf_weights(ensemble, rows, row_weights, effective_n_jobs(n_jobs))
    _complete(ensemble, cover, ensemble.cover if adapted.has_cover else None)
    return replace(
        adapted, ensemble=replace(ensemble, cover=cover), has_cover=True, cover_kind="data", other_covers={}
    )


def _leaf_weights(ensemble: Ensemble, rows: HostRows, weights: np.ndarray, n_threads: int) -> np.ndarray:
    """Return the weight of the rows that reach each leaf; 0 at other nodes."""
    attributes = attributes_of(ensemble)
    weight_at = np.zeros(ensemble.n_nodes)
    step = max(1, _BYTES_AT_ONCE // max(1, rows.packed_row_bytes))
    for start in range(0, rows.n_rows, step):
        X = rows.chunk(start, min(start + step, rows.n_rows), packed=True)
        _core.add_leaf_weights(attributes, X, weights[start : start + step], weight_at, n_threads)
    return weight_at


def _complete(ensemble: Ensemble, cover: np.ndarray, model_cover: np.ndarray | None) -> None:
    """Sum the covers of leaves upwards; give nodes below a node without weight the covers of the model."""
    starts = np.repeat(ensemble.tree_offsets[:-1], np.diff(ensemble.tree_offsets))
    left, right = ensemble.left + starts, ensemble.right + starts
    levels, nodes = [], ensemble.tree_offsets[:-1]
    while len(nodes):
        parents = nodes[ensemble.left[nodes] >= 0]
        levels.append(parents)
        nodes = np.concatenate([left[parents], right[parents]])
    for parents in reversed(levels):
        cover[parents] = cover[left[parents]] + cover[right[parents]]
    if model_cover is None:
        return
    parents = np.concatenate([np.empty(0, np.int64), *levels])
    unreached = parents[cover[parents] == 0]
    for children in (left[unreached], right[unreached]):
        cover[children] = model_cover[children]
