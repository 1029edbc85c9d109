"""Interactions of models of every family against their definition, through the public API.

They run on the device that the run of the tests is for, see ``--device``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import leaf_scale
from sklearn.datasets import load_diabetes
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import TreeExplainer
from skshapgpu.adapters import adapt
from skshapgpu.ensemble import Ensemble
from skshapgpu.inputs import read
from skshapgpu.reference import (
    path_dependent_banzhaf,
    path_dependent_interactions,
    path_dependent_shap,
    path_dependent_triples,
)

X, Y = load_diabetes(return_X_y=True)
CLASSES = np.digitize(Y, [100, 180])
MISSING = np.where(np.random.default_rng(0).random(X.shape) < 0.15, np.nan, X)
#: The second column holds categories.
CATEGORIES = np.where(np.arange(10) == 1, np.digitize(X[:, 2], np.linspace(-0.1, 0.1, 7))[:, None], X)

#: Largest error of each precision, relative to the leaves.
TOLERANCE = {"single": 5e-6, "double": 1e-10}


def _xgboost(classes: bool = False, **options: Any) -> tuple[Any, np.ndarray]:
    xgboost = pytest.importorskip("xgboost")
    kind = xgboost.XGBClassifier if classes else xgboost.XGBRegressor
    model = kind(n_estimators=6, max_depth=5, n_jobs=1, **options)
    return model.fit(MISSING, CLASSES if classes else Y), MISSING


def _xgboost_categories() -> tuple[Any, np.ndarray]:
    xgboost = pytest.importorskip("xgboost")
    types = ["c" if column == 1 else "q" for column in range(10)]
    matrix = xgboost.DMatrix(CATEGORIES, Y, feature_types=types, enable_categorical=True)
    return xgboost.train({"max_depth": 5, "nthread": 1, "max_cat_to_onehot": 1}, matrix, 6), CATEGORIES


def _lightgbm(classes: bool = False) -> tuple[Any, np.ndarray]:
    lightgbm = pytest.importorskip("lightgbm")
    kind = lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor
    model = kind(n_estimators=6, n_jobs=1, verbose=-1)
    rows = MISSING if classes else CATEGORIES
    options = {} if classes else {"categorical_feature": [1]}
    return model.fit(rows, CLASSES if classes else Y, **options), rows


def _catboost(classes: bool = False, **options: Any) -> tuple[Any, np.ndarray]:
    catboost = pytest.importorskip("catboost")
    kind = catboost.CatBoostClassifier if classes else catboost.CatBoostRegressor
    model = kind(iterations=6, depth=5, verbose=0, thread_count=1, allow_writing_files=False, **options)
    return model.fit(MISSING, CLASSES if classes else Y), MISSING


def _hist(classes: bool) -> tuple[Any, np.ndarray]:
    if classes:
        return HistGradientBoostingClassifier(max_iter=4).fit(MISSING, CLASSES), MISSING
    return HistGradientBoostingRegressor(max_iter=6, categorical_features=[1]).fit(CATEGORIES, Y), CATEGORIES


FAMILIES: dict[str, Callable[[], tuple[Any, np.ndarray]]] = {
    "tree": lambda: (DecisionTreeRegressor(max_depth=8, random_state=0).fit(X, Y), X),
    "forest": lambda: (RandomForestRegressor(4, max_depth=7, random_state=0).fit(X, Y), X),
    "extra trees, vector leaves": lambda: (
        ExtraTreesClassifier(4, max_depth=6, random_state=0).fit(X, CLASSES),
        X,
    ),
    "bagging": lambda: (BaggingRegressor(n_estimators=3, random_state=0).fit(X, Y), X),
    "isolation forest": lambda: (IsolationForest(n_estimators=5, random_state=0).fit(X), X),
    "gradient boosting": lambda: (
        GradientBoostingClassifier(n_estimators=4, random_state=0).fit(X, CLASSES),
        X,
    ),
    "hist, categories": lambda: _hist(False),
    "hist, classes": lambda: _hist(True),
    "xgboost": _xgboost,
    "xgboost, classes": lambda: _xgboost(True),
    "xgboost, categories": _xgboost_categories,
    "xgboost, dart": lambda: _xgboost(booster="dart", rate_drop=0.3),
    "lightgbm, categories": _lightgbm,
    "lightgbm, classes": lambda: _lightgbm(True),
    "catboost": _catboost,
    "catboost, classes": lambda: _catboost(True),
    "catboost, lossguide": lambda: _catboost(grow_policy="Lossguide"),
}


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest) -> tuple[Any, np.ndarray]:
    model, rows = FAMILIES[request.param]()
    return model, rows[:12]


def as_trees_see_them(model: Any, rows: np.ndarray) -> tuple[Ensemble, np.ndarray]:
    """The model's ensemble, and rows with categories encoded as its trees compare them."""
    adapted = adapt(model)
    encoded = read(rows, adapted.schema, adapted.ensemble.x_dtype).chunk(0, len(rows))
    return adapted.ensemble, encoded


def outputs_second(values: np.ndarray, n_axes: int) -> np.ndarray:
    return values[:, np.newaxis] if values.ndim == n_axes else np.moveaxis(values, -1, 1)


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("index", ["sii", "stii", "bii"])
def test_pairs(case: tuple[Any, np.ndarray], index: Any, precision: str) -> None:
    model, rows = case
    ensemble, encoded = as_trees_see_them(model, rows)
    expected = path_dependent_interactions(ensemble, encoded, index)
    explainer = TreeExplainer(model, precision=precision)
    allowed = TOLERANCE[precision] * leaf_scale(ensemble)
    dense = explainer.explain_interactions(rows, index=index)
    found = outputs_second(dense.values, 3)
    assert (np.abs(found - expected) <= allowed[:, np.newaxis, np.newaxis]).all()
    assert (found == found.swapaxes(2, 3)).all()
    sparse = explainer.explain_interactions(rows, index=index, pairs="occurring")
    first, second = sparse.pairs.T
    whole = outputs_second(sparse.values, 2)
    assert (np.abs(whole - 2 * expected[..., first, second]) <= 2 * allowed[:, np.newaxis]).all()
    again = outputs_second(sparse.dense().values, 3)
    assert (np.abs(again - found) <= 1e-12 * leaf_scale(ensemble).max()).all()


def test_sums(case: tuple[Any, np.ndarray]) -> None:
    model, rows = case
    ensemble, encoded = as_trees_see_them(model, rows)
    explainer = TreeExplainer(model, precision="double")
    shapley, _ = path_dependent_shap(ensemble, encoded)
    allowed = TOLERANCE["double"] * leaf_scale(ensemble)
    for index in ("sii", "stii"):
        matrices = outputs_second(explainer.explain_interactions(rows, index=index).values, 3)
        assert (np.abs(matrices.sum(axis=3) - shapley) <= allowed[:, np.newaxis]).all()
        margin = matrices.sum(axis=(2, 3)) + explainer.expected_value
        assert (np.abs(margin - ensemble.margin(encoded)) <= 10 * allowed).all()


def test_banzhaf_values(case: tuple[Any, np.ndarray]) -> None:
    model, rows = case
    ensemble, encoded = as_trees_see_them(model, rows)
    expected = path_dependent_banzhaf(ensemble, encoded)
    for precision, tolerance in TOLERANCE.items():
        found = outputs_second(TreeExplainer(model, precision=precision).explain(rows, index="bv").values, 2)
        assert (np.abs(found - expected) <= tolerance * leaf_scale(ensemble)[:, np.newaxis]).all()


def test_triples(case: tuple[Any, np.ndarray]) -> None:
    model, rows = case
    ensemble, encoded = as_trees_see_them(model, rows)
    values, triples = path_dependent_triples(ensemble, encoded[:4])
    expected = dict(zip(map(tuple, triples.tolist()), np.moveaxis(values, -1, 0)))
    explainer = TreeExplainer(model, device="cpu", precision="double")
    explanation = explainer.explain_interactions(rows[:4], order=3, pairs="occurring")
    allowed = TOLERANCE["double"] * leaf_scale(ensemble)
    found = np.moveaxis(outputs_second(explanation.values, 2), -1, 0)
    for features, ours in zip(map(tuple, explanation.pairs.tolist()), found):
        assert (np.abs(ours - expected.pop(features)) <= allowed).all()
    assert all((np.abs(others) <= allowed).all() for others in expected.values())
