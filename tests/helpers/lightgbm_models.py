"""Data for LightGBM, boosters trained on it, and comparisons of models' and ensembles' margins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from helpers.checks import assert_margin, hard_rows
from skshapgpu.adapters import adapt
from skshapgpu.adapters.ensemble import Ensemble
from skshapgpu.adapters.schema import AdaptedModel

lgb = pytest.importorskip("lightgbm")

RTOL = 1e-10
N_ROWS = 600
#: kZeroThreshold of LightGBM, a float32.
ZERO = float(np.float32(1e-35))
QUIET = {"verbose": -1, "num_threads": 1, "num_leaves": 12, "min_data_in_leaf": 5, "seed": 3}
RF = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}


def data(seed: int = 0, *, nan: bool = False, zeros: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Draw four numeric columns, the second with many zeros, and a target that needs all of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS, 4))
    if zeros:
        X[rng.random(N_ROWS) < 0.4, 1] = 0.0
    y = X[:, 0] * X[:, 1] + np.abs(X[:, 2]) + 0.3 * X[:, 3] + 0.1 * rng.normal(size=N_ROWS)
    if nan:
        X[rng.random(X.shape) < 0.15] = np.nan
    return X, y


def train(
    X: Any,
    y: np.ndarray,
    rounds: int = 8,
    *,
    categorical: Sequence[Any] = (),
    weight: np.ndarray | None = None,
    init_score: np.ndarray | None = None,
    group: Any = None,
    **params: Any,
) -> Any:
    dataset = lgb.Dataset(
        X,
        y,
        weight=weight,
        init_score=init_score,
        group=group,
        categorical_feature=list(categorical) or "auto",
    )
    return lgb.train(QUIET | params, dataset, rounds)


def raw(model: Any, X: Any, *, rf: bool = False) -> np.ndarray:
    margin = model.predict(X, raw_score=True)
    booster = getattr(model, "booster_", model)
    return margin / (booster.num_trees() // booster.num_model_per_iteration()) if rf else margin


def check(model: Any, *, rf: bool = False, **rows: Any) -> AdaptedModel:
    """Check the margin of ``model`` on hard rows, and on some of them as float32."""
    adapted = adapt(model)
    X = hard_rows(adapted.ensemble, **rows)
    for hard in (X, X[:200].astype(np.float32)):
        expected = raw(model, hard, rf=rf)
        assert len(np.unique(expected)) > 1
        assert_margin(adapted.ensemble, hard, expected, RTOL)
    return adapted


def base_values(ensemble: Ensemble) -> np.ndarray:
    """Compute each output's mean leaf value if rows follow both branches in proportion to the covers."""
    base = ensemble.intercept.copy()
    for start, output in zip(ensemble.tree_offsets, ensemble.tree_output):
        stack = [(start, 1.0)]
        while stack:
            node, share = stack.pop()
            if ensemble.left[node] < 0:
                base[output] += share * ensemble.value[node, 0]
            else:
                children = start + ensemble.left[node], start + ensemble.right[node]
                total = sum(ensemble.cover[child] for child in children)
                stack += [(child, share * ensemble.cover[child] / total) for child in children]
    return base


def edited(model: Any, field: str, tree: int, index: int, value: object) -> str:
    """Return the model text with one number of one tree changed."""
    head, *trees = model.model_to_string().split("\nTree=")
    lines = trees[tree].split("\n")
    (at,) = (i for i, line in enumerate(lines) if line.startswith(field + "="))
    numbers = lines[at].partition("=")[2].split()
    numbers[index] = str(value)
    lines[at] = f"{field}={' '.join(numbers)}"
    trees[tree] = "\n".join(lines)
    # Without tree_sizes, LightGBM reads the trees one after another, so their lengths may change.
    return "\nTree=".join([without_sizes(head), *trees])


def without_sizes(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.startswith("tree_sizes="))


def reload(text: str) -> Any:
    """Load a Booster from an edited text; its ``tree_sizes``, if there are any, are adjusted."""
    head, *trees = text.split("\nTree=")
    last, end, tail = trees[-1].partition("\nend of trees")
    blocks = [f"Tree={tree}\n" for tree in [*trees[:-1], last]]
    lines = [
        "tree_sizes=" + " ".join(str(len(block.encode())) for block in blocks)
        if line.startswith("tree_sizes=")
        else line
        for line in head.split("\n")
    ]
    return lgb.Booster(model_str="\n".join(lines) + "\n" + "".join(blocks)[:-1] + end + tail)


MISSING = {
    "default": {},
    "use_missing=False": {"use_missing": False},
    "zero_as_missing": {"zero_as_missing": True},
}


CATEGORICAL = {
    "min_data_per_group": 1,
    "cat_smooth": 1.0,
    "cat_l2": 0.0,
    "max_cat_to_onehot": 1,
    "min_data_in_bin": 1,
    "max_cat_threshold": 500,
}


def categorical_data(
    n_codes: int, *, nan: bool = False, n_rows: int = N_ROWS
) -> tuple[np.ndarray, np.ndarray]:
    """Draw numbers in column 0 and codes in column 1; each code, 0 included, has its own effect."""
    rng = np.random.default_rng(n_codes)
    codes = rng.permutation(np.arange(n_rows) % n_codes)
    codes[rng.random(n_rows) < 0.05] = 0
    effect = rng.normal(size=n_codes)
    effect[0] = 3.0
    X = np.column_stack([rng.normal(size=n_rows), codes.astype(float)])
    y = effect[codes] + X[:, 0] * (codes % 2)
    if nan:
        X[rng.random(n_rows) < 0.1, 1] = np.nan
    return X, y
