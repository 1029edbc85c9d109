"""Rows and comparisons that every family's tests share."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from skshapgpu import TreeExplainer, UnsupportedModelError
from skshapgpu.adapters import adapt
from skshapgpu.adapters.ensemble import Ensemble


def hard_rows(
    ensemble: Ensemble,
    n_rows: int = 2000,
    seed: int = 0,
    *,
    nan: bool = True,
    inf: bool = True,
    unseen: bool = True,
) -> np.ndarray:
    """Draw encoded rows on and next to the threshold of every comparison of the trees.

    A value is a threshold of its feature, the next number above or below a threshold in the model's
    ``x_dtype``, a number between thresholds, zero, minus zero, a denormal number, NaN or an infinity.
    Categorical columns hold listed codes, and unseen, negative and fractional codes.

    Returns
    -------
    ndarray of the ensemble's ``x_dtype``, shape (n_rows, n_features)
    """
    rng = np.random.default_rng(seed)
    dtype = np.dtype(ensemble.x_dtype).type
    inner = ensemble.left >= 0
    sets = ensemble.category_set if len(ensemble.category_set) else np.full(ensemble.n_nodes, -1)
    X = np.empty((n_rows, ensemble.n_features), dtype)
    for f in range(ensemble.n_features):
        nodes = np.flatnonzero(inner & (ensemble.feature == f))
        used = sets[nodes][sets[nodes] >= 0]
        if len(used):
            listed = np.concatenate(
                [
                    ensemble.category_values[ensemble.category_offsets[s] : ensemble.category_offsets[s + 1]]
                    for s in np.unique(used)
                ]
            ).astype(dtype)
            pool = [listed, listed] + ([[listed.max() + 1, listed.max() + 100, -1.0]] if unseen else [])
        else:
            thresholds = np.unique(ensemble.threshold[nodes])
            thresholds = thresholds[np.isfinite(thresholds)].astype(dtype)
            if not len(thresholds):
                thresholds = np.zeros(1, dtype)
            spread = np.float64(thresholds.max()) - np.float64(thresholds.min()) + 1.0
            between = rng.uniform(thresholds.min() - spread * 0.1, thresholds.max() + spread * 0.1, 200)
            pool = [
                thresholds,
                np.nextafter(thresholds, dtype(np.inf)),
                np.nextafter(thresholds, dtype(-np.inf)),
                between,
                [0.0, -0.0, 1e-36, -1e-36],
            ]
            if inf:
                pool.append([np.inf, -np.inf])
        which = rng.integers(len(pool), size=n_rows)
        for i, candidates in enumerate(pool):
            rows = which == i
            X[rows, f] = rng.choice(np.asarray(candidates, dtype), rows.sum())
        if nan:
            X[rng.random(n_rows) < 0.1, f] = np.nan
    assert len(np.unique(X, axis=0)) > min(n_rows, 10) or ensemble.n_features == 0
    return X


def assert_margin(ensemble: Ensemble, X: np.ndarray, expected: np.ndarray, rtol: float) -> None:
    """Check ``Ensemble.margin`` against the library's raw prediction, relative to max(1, |expected|)."""
    expected = np.asarray(expected, np.float64).reshape(len(X), ensemble.n_outputs)
    error = np.abs(ensemble.margin(X) - expected) / np.maximum(1.0, np.abs(expected))
    worst = np.unravel_index(np.argmax(error), error.shape)
    assert error.max() <= rtol, f"row {worst[0]}, output {worst[1]}: relative error {error.max():.3g}"


def refused_when_damaged(path: Path, n_rounds: int, model: Path | None = None) -> int:
    """Damage a model file in three ways, each ``n_rounds`` times; return how often it is rejected.

    The file is truncated, or a byte or a number in it is changed. Reading it must then succeed or raise a
    documented error. The file is restored afterwards. If ``model`` is passed, the file is in this folder,
    which is read as the model.
    """
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for kind in ["cut", "byte", "number"] * n_rounds:
        at = int(rng.integers(4, len(content) - 8))
        changed = {
            "cut": content[:at],
            "byte": content[:at] + bytes([rng.integers(256)]) + content[at + 1 :],
            "number": content[:at]
            + rng.choice([b"\xff\xff\xff\x7f", b"\xff" * 4, bytes(4), b"99999999999"])
            + content[at + 4 :],
        }
        path.write_bytes(changed[kind])
        try:
            adapt(model or path)
        except (ValueError, UnsupportedModelError):
            refused += 1
    path.write_bytes(content)
    return refused


def corrupt(rng: np.random.Generator, content: bytes, kind: int) -> bytes:
    """Damage the bytes of a file according to its kind: flip bits, cut off the end, swap or replace parts."""
    data = bytearray(content)
    if kind == 0:  # bits
        for place in rng.integers(len(data), size=rng.integers(1, 4)):
            data[place] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        del data[int(rng.integers(len(data))) :]
    elif kind == 2:  # two parts swap places
        n = int(rng.integers(1, 200))
        a, b = sorted(rng.integers(len(data) - n, size=2).tolist())
        data[a : a + n], data[b : b + n] = data[b : b + n], data[a : a + n]
    else:
        place = int(rng.integers(len(data)))
        data[place : place + int(rng.integers(64))] = rng.bytes(int(rng.integers(64)))
    return bytes(data)


def shrink_leaves(explainer: TreeExplainer, factor: float) -> None:
    """Let the additivity check believe that the leaves are smaller by a factor, so that it finds errors."""
    compiled = explainer._compiled
    compiled.leaf_magnitude *= factor
    compiled._allowed_gaps.clear()  # earlier calls computed them


def peak_of(call: Callable[[], Any]) -> int:
    """Return the largest number of bytes that Python and NumPy allocate during a call."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
