"""Values of probabilities and losses: the core and every family against the definition, shap, the API.

They are computed on the CPU only, so that every explainer here is told to.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import (
    ensemble_options,
    hard_ensemble,
    leaf_scale,
    random_chain,
    random_ensemble,
    random_rows,
    random_weights,
)
from helpers.models import CATEGORIES, CLASSES, MISSING, as_trees_see_them
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import ShapTransformer, TreeExplainer, _core, explain
from skshapgpu.adapters import adapt
from skshapgpu.algorithms import SHAP_VALUES
from skshapgpu.ensemble import Ensemble, Tree
from skshapgpu.reference import rescaled_shap

X, Y = load_diabetes(return_X_y=True)
HIGH = Y > 140

#: Largest error of each precision, relative to the leaves and to the slope of the link.
TOLERANCE = {"single": 5e-6, "double": 1e-10}

#: Of the margin m and the label y, each link and its derivative by m.
LINKS: dict[str, tuple[Any, Any]] = {
    "logistic": (
        lambda m, y: np.exp(-np.logaddexp(0, -m)),
        lambda m, y: np.exp(-np.logaddexp(0, m) - np.logaddexp(0, -m)),
    ),
    "log_loss": (
        lambda m, y: np.logaddexp(0, m) - y * m,
        lambda m, y: np.exp(-np.logaddexp(0, -m)) - y,
    ),
    "squared_error": (lambda m, y: (m - y) ** 2, lambda m, y: 2 * (m - y)),
}


def explainer_of(model: Any, data: Any, model_output: str = "probability", **options: Any) -> TreeExplainer:
    return TreeExplainer(model, data, model_output=model_output, device="cpu", **options)


# The core


def compile_plan(
    ensemble: Ensemble,
    background: np.ndarray,
    link: str,
    weights: np.ndarray | None = None,
    precision: str = "double",
    scale: float = 1.0,
) -> Any:
    if weights is None:
        weights = np.full(len(background), 1 / len(background))
    attributes = {f.name: getattr(ensemble, f.name) for f in fields(ensemble)}
    return _core.RescaledPlan(attributes, precision, background, weights, link, scale)


def compute(plan: Any, rows: np.ndarray, ensemble: Ensemble, labels: Any = None, n_threads: int = 1) -> Any:
    """Values and margins of the core."""
    shape = len(rows), ensemble.n_outputs, ensemble.n_features
    values, margin = np.full(shape, np.nan), np.full(shape[:2], np.nan)
    plan.explain(rows, values, margin, n_threads, labels)
    return values, margin


def largest_slope(link: str, ensemble: Ensemble, labels: Any) -> np.ndarray:
    """Bound of the link's slope for each row and output, (n_rows, n_outputs)."""
    if link != "squared_error":
        return np.full((len(labels), ensemble.n_outputs), 1.0)
    return 2 * (np.abs(labels)[:, np.newaxis] + leaf_scale(ensemble) + np.abs(ensemble.intercept))


def assert_is_the_definition(
    ensemble: Ensemble, rows: np.ndarray, background: np.ndarray, weights: np.ndarray | None = None
) -> None:
    labels = np.arange(len(rows)) % 2.0
    for link, (of, derivative) in LINKS.items():
        expected, _ = rescaled_shap(ensemble, rows, background, of, derivative, weights, labels)
        allowed = (largest_slope(link, ensemble, labels) * leaf_scale(ensemble))[:, :, np.newaxis]
        for precision, tolerance in TOLERANCE.items():
            plan = compile_plan(ensemble, background, link, weights, precision)
            given = None if link == "logistic" else labels
            values, margin = compute(plan, rows, ensemble, given)
            assert (np.abs(values - expected) <= tolerance * allowed).all(), (link, precision)
            for found, of_rows in ((margin, rows), (plan.background_margin, background)):
                error = np.abs(found - ensemble.margin(of_rows))
                assert (error <= 1e-13 * (leaf_scale(ensemble) + np.abs(ensemble.intercept))).all()


@given(options=ensemble_options(max_used=5), n_background=st.sampled_from([1, 2, 5]), weighted=st.booleans())
@settings(max_examples=80)
def test_core_is_the_definition(options: dict[str, Any], n_background: int, weighted: bool) -> None:
    """Rows at the edges of every comparison; one of X is in the background."""
    ensemble = random_ensemble(**options)
    rows = random_rows(options["seed"], ensemble, n_background + 3)
    background = rows[:n_background].copy()
    if n_background > 2:
        background[2] = rows[-1]
    weights = random_weights(options["seed"], n_background) if weighted else None
    assert_is_the_definition(ensemble, rows[-3:], background, weights)


@pytest.mark.parametrize("shape", ["random", "chain", "perfect", "oblivious", "leaf"])
@pytest.mark.parametrize("vector", [False, True])
def test_core_on_each_shape_of_trees(shape: str, vector: bool) -> None:
    for seed in range(3):
        ensemble = hard_ensemble(seed, shape, vector, n_used=6)
        rows = random_rows(seed, ensemble, 7)
        assert_is_the_definition(ensemble, rows[:3], rows[3:])


def test_more_background_rows_than_a_tile() -> None:
    """Words, tiles and groups end somewhere in 300 background rows; some are there more than once."""
    ensemble = random_ensemble(5, n_trees=3, n_features=4, n_used=3, max_leaves=9)
    rows = random_rows(5, ensemble, 302)
    weights = np.random.default_rng(5).random(300)
    assert_is_the_definition(ensemble, rows[:2], rows[2:], weights / weights.sum())


def test_more_rows_than_a_block() -> None:
    ensemble = random_ensemble(6, n_trees=3, n_features=4, n_used=3, max_leaves=9)
    rows = random_rows(6, ensemble, 153)
    assert_is_the_definition(ensemble, rows[:150], rows[150:])


def test_values_by_hand() -> None:
    """A stump of 0 and 2 against two rows: the one that goes right too gives nothing."""
    tree = Tree([1, -1, -1], [2, -1, -1], [0] * 3, [0.5, 0, 0], [True] * 3, [9, 1, 8], [0, 0, 2])
    ensemble = Ensemble.from_trees([tree], n_features=2, intercept=[1.0])
    background = np.array([[0.0, 7.0], [1.0, 8.0]])
    for link, labels, expected in (
        ("logistic", None, (1 / (1 + np.exp(-3)) - 1 / (1 + np.exp(-1))) / 2),
        ("log_loss", np.zeros(1), (np.log1p(np.exp(3)) - np.log1p(np.exp(1))) / 2),
        ("log_loss", np.ones(1), (np.log1p(np.exp(-3)) - np.log1p(np.exp(-1))) / 2),
        ("squared_error", np.full(1, 7.0), (4.0**2 - 6.0**2) / 2),
    ):
        values, margin = compute(
            compile_plan(ensemble, background, link), np.array([[1.0, 0]]), ensemble, labels
        )
        np.testing.assert_allclose(values, [[[expected, 0]]], rtol=1e-14)
        np.testing.assert_allclose(margin, [[3]], rtol=1e-15)
    scaled, _ = compute(compile_plan(ensemble, background, "logistic", scale=2.0), np.ones((1, 2)), ensemble)
    np.testing.assert_allclose(scaled[0, 0, 0], (1 / (1 + np.exp(-6)) - 1 / (1 + np.exp(-2))) / 2, rtol=1e-14)


def two_stumps(size: float) -> Ensemble:
    """size * (x0 > 0.5) + size * (x1 > 0.5) - size."""
    return Ensemble.from_trees(
        [
            Tree([1, -1, -1], [2, -1, -1], [f] * 3, [0.5, 0, 0], [True] * 3, [2, 1, 1], [0, 0, size])
            for f in (0, 1)
        ],
        n_features=2,
        intercept=[-size],
    )


@pytest.mark.parametrize("size", [1e-9, 1.0, 30.0])
def test_equal_margins_have_the_derivative(size: float) -> None:
    """Each feature moves the margin, their sum does not: values are those of the margin times the slope."""
    ensemble, slope = two_stumps(size), {"logistic": 0.25, "log_loss": 0.5, "squared_error": 0.0}
    row, background = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    for link, expected in slope.items():
        labels = None if link == "logistic" else np.zeros(1)
        values, _ = compute(compile_plan(ensemble, background, link), row, ensemble, labels)
        np.testing.assert_allclose(values[0, 0], expected * size * np.array([1, -1]), rtol=1e-14)


@pytest.mark.parametrize("difference", [0.0, 1e-14, 1e-9, 1e-4, 0.3, 5.0, 2000.0])
@pytest.mark.parametrize("start", [-800.0, -40.0, -1.0, 0.0, 3.0, 40.0, 800.0])
def test_slopes_keep_their_digits(start: float, difference: float) -> None:
    """Of margins far out or close together, against the mean of the derivative between them."""
    tree = Tree([1, -1, -1], [2, -1, -1], [0] * 3, [0.5, 0, 0], [True] * 3, [2, 1, 1], [0, 0, 1.0])
    other = Tree(
        [1, -1, -1], [2, -1, -1], [1] * 3, [0.5, 0, 0], [True] * 3, [2, 1, 1], [0, 0, difference - 1]
    )
    ensemble = Ensemble.from_trees([tree, other], n_features=2, intercept=[start])
    t, w = np.polynomial.legendre.leggauss(200)
    actual = (1.0 + start) + (difference - 1) - start
    m = start + actual * (t + 1) / 2
    p = np.exp(-np.logaddexp(0, -m))
    means = {"logistic": w @ (p * np.exp(-np.logaddexp(0, m))) / 2, "log_loss": w @ p / 2}
    if difference > 1000:  # too wide for the quadrature, and nothing cancels
        ends = np.array([start, start + actual])
        means = {link: (np.diff(of(ends, 0)) / actual).item() for link, (of, _) in LINKS.items()}
        del means["squared_error"]
    for link, mean in means.items():
        labels = None if link == "logistic" else np.zeros(1)
        plan = compile_plan(ensemble, np.zeros((1, 2)), link)
        values, _ = compute(plan, np.ones((1, 2)), ensemble, labels)
        # The margins are rounded to 1e-13 near 800.
        tolerance = 1e-12 * max(1.0, abs(start) / 10)
        np.testing.assert_allclose(values[0, 0, 0], mean, rtol=tolerance, atol=1e-15)


def test_threads_and_neighbours_change_no_bit() -> None:
    ensemble = random_ensemble(8, n_trees=20, n_features=6, max_leaves=16)
    rows = random_rows(8, ensemble, 330)
    plan = compile_plan(ensemble, rows[300:].copy(), "logistic", precision="single")
    expected, _ = compute(plan, rows[:300], ensemble)
    for n_threads in (2, 3):
        np.testing.assert_array_equal(compute(plan, rows[:300], ensemble, n_threads=n_threads)[0], expected)
    for part in (slice(0, 1), slice(17, 90), slice(299, 300), slice(None, None, -1)):
        np.testing.assert_array_equal(compute(plan, rows[:300][part], ensemble)[0], expected[part])


@pytest.mark.parametrize("n_rows, n_trees", [(0, 3), (2, 0)])
def test_no_rows_and_no_trees(n_rows: int, n_trees: int) -> None:
    ensemble = random_ensemble(7, n_trees=n_trees)
    values, margin = compute(
        compile_plan(ensemble, np.zeros((2, 5)), "logistic"), np.zeros((n_rows, 5)), ensemble
    )
    assert values.shape == (n_rows, 1, 5) and (values == 0).all()
    np.testing.assert_allclose(margin, ensemble.margin(np.zeros((n_rows, 5))), rtol=1e-14)


@pytest.mark.parametrize("depth", [20, 64])
def test_long_paths(depth: int) -> None:
    """Against interventional values of single background rows; with squared errors the slope is plain."""
    ensemble = random_chain(depth, depth, depth)
    rows = np.random.default_rng(depth).random((12, depth))
    x, background = rows[:4], rows[4:]
    labels = np.linspace(-1, 1, 4)
    attributes = {f.name: getattr(ensemble, f.name) for f in fields(ensemble)}
    expected = np.zeros((4, 1, depth))
    for b in background:
        single = _core.background_plan(attributes, "double", b[np.newaxis], np.ones(1), 2**24)
        values, margin = np.empty((4, 1, depth)), np.empty((4, 1))
        single.explain(x, values, margin, 1)
        slope = margin[:, 0] + ensemble.margin(b[np.newaxis])[0, 0] - 2 * labels
        expected += slope[:, np.newaxis, np.newaxis] * values / len(background)
    values, _ = compute(compile_plan(ensemble, background, "squared_error"), x, ensemble, labels)
    scale = leaf_scale(ensemble)[0] * largest_slope("squared_error", ensemble, labels).max()
    assert np.abs(values - expected).max() <= 1e-10 * scale
    assert np.abs(expected).max() > 1e-3


def test_what_the_core_refuses() -> None:
    chain = random_chain(0, 65, 65)
    with pytest.raises(ValueError, match="a path has 65 different features; background data allow for"):
        compile_plan(chain, np.zeros((1, 65)), "logistic")
    ensemble = random_ensemble(9)
    with pytest.raises(ValueError, match="link must be 'logistic', 'log_loss' or 'squared_error', not 'log'"):
        compile_plan(ensemble, np.zeros((1, 5)), "log")
    with pytest.raises(ValueError, match="background must have shape"):
        compile_plan(ensemble, np.zeros((0, 5)), "logistic", np.ones(0))
    rows = np.zeros((2, 5))
    for link, labels, message in (
        ("logistic", np.zeros(2), "labels belong to the links"),
        ("log_loss", None, "labels belong to the links"),
        ("log_loss", np.zeros(3), "one for each row"),
    ):
        with pytest.raises(ValueError, match=message):
            compute(compile_plan(ensemble, rows, link), rows, ensemble, labels)
    with pytest.raises(TypeError, match="labels must be a float64 array"):
        compute(compile_plan(ensemble, rows, "log_loss"), rows, ensemble, np.zeros(2, int))


# Models


def _xgboost(**options: Any) -> tuple[Any, np.ndarray]:
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBClassifier(n_estimators=6, max_depth=4, n_jobs=1, **options)
    return model.fit(MISSING, HIGH), MISSING


def _xgboost_several_labels() -> tuple[Any, np.ndarray]:
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1)
    return model.fit(MISSING, np.column_stack([HIGH, CLASSES == 1])), MISSING


def _xgboost_categories() -> tuple[Any, np.ndarray]:
    xgboost = pytest.importorskip("xgboost")
    types = ["c" if column == 1 else "q" for column in range(10)]
    model = xgboost.XGBClassifier(
        n_estimators=6, max_depth=4, n_jobs=1, feature_types=types, enable_categorical=True
    )
    return model.fit(CATEGORIES, HIGH), CATEGORIES


def _lightgbm(categorical: bool = False, **options: Any) -> tuple[Any, np.ndarray]:
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMClassifier(n_estimators=6, n_jobs=1, verbose=-1, **options)
    if categorical:
        return model.fit(CATEGORIES, HIGH, categorical_feature=[1]), CATEGORIES
    ova = options.get("objective") == "multiclassova"
    return model.fit(MISSING, CLASSES if ova else HIGH), MISSING


def _catboost() -> tuple[Any, np.ndarray]:
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostClassifier(iterations=6, depth=4, verbose=0, allow_writing_files=False)
    return model.fit(MISSING, HIGH), MISSING


#: Classifiers with a logistic link, and rows.
CLASSIFIERS: dict[str, Callable[[], tuple[Any, np.ndarray]]] = {
    "xgboost": _xgboost,
    "xgboost, dart": lambda: _xgboost(booster="dart", rate_drop=0.3),
    "xgboost, categories": _xgboost_categories,
    "xgboost, several labels": _xgboost_several_labels,
    "lightgbm": _lightgbm,
    "lightgbm, sigmoid": lambda: _lightgbm(sigmoid=2.5),
    "lightgbm, rf": lambda: _lightgbm(boosting_type="rf", subsample=0.6, subsample_freq=1),
    "lightgbm, categories": lambda: _lightgbm(categorical=True),
    "lightgbm, one against all": lambda: _lightgbm(objective="multiclassova"),
    "catboost": _catboost,
    "gradient boosting": lambda: (GradientBoostingClassifier(n_estimators=6).fit(X, HIGH), X),
    "gradient boosting, exponential": lambda: (
        GradientBoostingClassifier(n_estimators=6, loss="exponential").fit(X, HIGH),
        X,
    ),
    "hist gradient boosting, categories": lambda: (
        HistGradientBoostingClassifier(max_iter=6, categorical_features=[1]).fit(CATEGORIES, HIGH),
        CATEGORIES,
    ),
}

SEVERAL_OUTPUTS = ("xgboost, several labels", "lightgbm, one against all")


@pytest.fixture(scope="module", params=CLASSIFIERS)
def classifier(request: pytest.FixtureRequest) -> tuple[Any, np.ndarray, bool]:
    return *CLASSIFIERS[request.param](), request.param in SEVERAL_OUTPUTS


def probability(model: Any, rows: np.ndarray, several: bool) -> np.ndarray:
    """(n_rows, n_outputs)"""
    found = np.asarray(model.predict_proba(rows), np.float64)
    return found if several else found[:, 1:]


def scale_of(model: Any) -> float:
    return getattr(model, "sigmoid", None) or (2.0 if getattr(model, "loss", "") == "exponential" else 1.0)


def scaled(link: tuple[Any, Any], scale: float) -> tuple[Any, Any]:
    """A link, and its derivative, of so many times the margin."""
    of, derivative = link
    return lambda m, y: of(scale * m, y), lambda m, y: scale * derivative(scale * m, y)


@pytest.mark.parametrize("weights", [None, [3, 0, 1, 2, 0.5]])
def test_probabilities_of_classifiers(classifier: tuple[Any, np.ndarray, bool], weights: Any) -> None:
    model, rows, several = classifier
    rows, background = rows[:4], rows[20:25]
    ensemble, encoded = as_trees_see_them(model, rows)
    scale = scale_of(model)
    encoded_background = as_trees_see_them(model, background)[1]
    expected, base_values = rescaled_shap(
        ensemble, encoded, encoded_background, *scaled(LINKS["logistic"], scale), weights
    )
    for precision, tolerance in TOLERANCE.items():
        explainer = explainer_of(model, background, data_weights=weights, precision=precision)
        explanation = explainer.explain(rows)
        found = explanation.values.reshape(len(rows), rows.shape[1], -1).swapaxes(1, 2)
        allowed = tolerance * scale * leaf_scale(ensemble)
        assert (np.abs(found - expected) <= allowed[:, np.newaxis]).all()
        np.testing.assert_allclose(np.atleast_1d(explainer.expected_value), base_values[0], rtol=1e-12)
        # Libraries compute probabilities in single precision, some of them.
        total = found.sum(axis=2) + explainer.expected_value
        np.testing.assert_allclose(total, probability(model, rows, several), rtol=2e-6, atol=allowed.max())
        mean = np.average(probability(model, background, several), axis=0, weights=weights)
        np.testing.assert_allclose(np.atleast_1d(explainer.expected_value), mean, rtol=2e-6)
        assert explanation.additivity_error is not None
    assert np.abs(expected).max() > 1e-3


def test_log_loss_of_classifiers(classifier: tuple[Any, np.ndarray, bool]) -> None:
    model, rows, several = classifier
    rows, background, labels = rows[:6], rows[20:25], HIGH[:6]
    if several:
        with pytest.raises(ValueError, match="model_output='log_loss' needs a binary classifier"):
            explainer_of(model, background, "log_loss")
        return
    assert labels.any() and not labels.all()
    ensemble, encoded = as_trees_see_them(model, rows)
    scale = scale_of(model)
    encoded_background = as_trees_see_them(model, background)[1]
    expected, base_values = rescaled_shap(
        ensemble, encoded, encoded_background, *scaled(LINKS["log_loss"], scale), labels=labels
    )
    loss = -np.log(probability(model, rows, False)[:, 0] * labels + probability_of_no(model, rows) * ~labels)
    for precision, tolerance in TOLERANCE.items():
        explainer = explainer_of(model, background, "log_loss", precision=precision)
        explanation = explainer.explain(rows, labels)
        allowed = tolerance * scale * leaf_scale(ensemble).max()
        assert (np.abs(explanation.values - expected[:, 0]) <= allowed).all()
        np.testing.assert_allclose(explanation.base_values, base_values[:, 0], rtol=1e-12)
        total = explanation.values.sum(axis=1) + explanation.base_values
        np.testing.assert_allclose(total, loss, rtol=5e-6, atol=allowed)


def probability_of_no(model: Any, rows: np.ndarray) -> np.ndarray:
    return np.asarray(model.predict_proba(rows), np.float64)[:, 0]


def _regressors() -> dict[str, Callable[[], Any]]:
    def xgboost() -> Any:
        return pytest.importorskip("xgboost").XGBRegressor(n_estimators=6, max_depth=4, n_jobs=1)

    def lightgbm() -> Any:
        return pytest.importorskip("lightgbm").LGBMRegressor(n_estimators=6, n_jobs=1, verbose=-1)

    def catboost() -> Any:
        options = {"iterations": 6, "depth": 4, "verbose": 0, "allow_writing_files": False}
        return pytest.importorskip("catboost").CatBoostRegressor(**options)

    return {
        "xgboost": xgboost,
        "lightgbm": lightgbm,
        "catboost": catboost,
        "forest": lambda: RandomForestRegressor(4, max_depth=5, random_state=0),
        "tree": lambda: DecisionTreeRegressor(max_depth=5),
        "gradient boosting": lambda: GradientBoostingRegressor(n_estimators=6),
        "hist gradient boosting": lambda: HistGradientBoostingRegressor(max_iter=6),
    }


@pytest.mark.parametrize("family", _regressors())
def test_squared_error_of_regressors(family: str) -> None:
    model = _regressors()[family]().fit(X, Y)
    rows, background, labels = X[:4], X[20:25], Y[:4]
    ensemble, encoded = as_trees_see_them(model, rows)
    expected, base_values = rescaled_shap(
        ensemble,
        encoded,
        as_trees_see_them(model, background)[1],
        *LINKS["squared_error"],
        labels=labels,
    )
    slope = largest_slope("squared_error", ensemble, labels)[:, 0]
    for precision, tolerance in TOLERANCE.items():
        explanation = explainer_of(model, background, "log_loss", precision=precision).explain(rows, labels)
        error = np.abs(explanation.values - expected[:, 0]).max(axis=1)
        assert (error <= tolerance * leaf_scale(ensemble) * slope).all()
        np.testing.assert_allclose(explanation.base_values, base_values[:, 0], rtol=1e-12)
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total, (model.predict(rows) - labels) ** 2, rtol=2e-5)


# shap


#: Continuous, and numbers that float32 has: of others some lie on a threshold, where shap errs.
CONTINUOUS = np.random.default_rng(1).normal(size=(400, 6)).astype(np.float32).astype(np.float64)
TARGET = CONTINUOUS[:, 0] * CONTINUOUS[:, 1] + np.sin(3 * CONTINUOUS[:, 2]) + CONTINUOUS[:, 3]


def _fitted(name: str) -> Any:
    if name.startswith("xgboost"):
        xgboost = pytest.importorskip("xgboost")
        kind = xgboost.XGBRegressor if "regressor" in name else xgboost.XGBClassifier
        model = kind(n_estimators=12, max_depth=4, n_jobs=1)
    elif name.startswith("lightgbm"):
        lightgbm = pytest.importorskip("lightgbm")
        kind = lightgbm.LGBMRegressor if "regressor" in name else lightgbm.LGBMClassifier
        model = kind(n_estimators=12, n_jobs=1, verbose=-1)
    elif name == "gradient boosting":
        model = GradientBoostingClassifier(n_estimators=12, random_state=0)
    else:
        model = HistGradientBoostingClassifier(max_iter=12)
    return model.fit(CONTINUOUS, TARGET if "regressor" in name else (TARGET > 0).astype(int))


@pytest.mark.parametrize(
    "name, model_output",
    [
        ("xgboost", "probability"),
        ("xgboost", "log_loss"),
        ("xgboost regressor", "log_loss"),
        ("lightgbm", "probability"),
        ("lightgbm", "log_loss"),
        ("lightgbm regressor", "log_loss"),
        ("gradient boosting", "probability"),
        ("hist gradient boosting", "probability"),
    ],
)
def test_against_shap(name: str, model_output: str) -> None:
    shap = pytest.importorskip("shap")
    model = _fitted(name)
    # Where margins are equal shap takes the values of the margin as they are: no such pairs here.
    margin = adapt(model).ensemble.margin(CONTINUOUS)[:, 0]
    apart = np.abs(margin[:, np.newaxis] - margin[:60]).min(axis=1) > 1e-3
    assert apart.sum() > 50
    background, rows, target = CONTINUOUS[:60], CONTINUOUS[apart], TARGET[apart]
    labels = None
    if model_output == "log_loss":
        labels = target if "regressor" in name else (target > 0).astype(float)
    theirs = shap.TreeExplainer(
        model, background, feature_perturbation="interventional", model_output=model_output
    )
    explainer = explainer_of(model, background, model_output, precision="double")
    values = theirs.shap_values(rows, labels, check_additivity=False)
    ours = explainer.shap_values(rows, labels)
    # shap computes in single precision.
    np.testing.assert_allclose(ours, values, rtol=0, atol=2e-6 * np.abs(values).max())
    if labels is None:
        np.testing.assert_allclose(explainer.expected_value, theirs.expected_value, rtol=1e-6)
    else:
        for y in np.unique(labels)[:3]:
            np.testing.assert_allclose(explainer.expected_value(y), theirs.expected_value(y), rtol=1e-6)


# The public API


@pytest.fixture(scope="module")
def boosting() -> Any:
    return GradientBoostingClassifier(n_estimators=8, max_depth=3, random_state=0).fit(X, HIGH)


@pytest.fixture(scope="module")
def named() -> Any:
    """A classifier whose classes are texts."""
    return GradientBoostingClassifier(n_estimators=5, random_state=0).fit(X, np.where(HIGH, "yes", "no"))


def test_the_probability_of_a_forest_is_its_margin() -> None:
    for model in (
        RandomForestClassifier(4, max_depth=5, random_state=0).fit(X, HIGH),
        ExtraTreesClassifier(4, max_depth=5, random_state=0).fit(X, CLASSES),
    ):
        explainer = explainer_of(model, X[:9])
        raw = explainer_of(model, X[:9], "raw")
        np.testing.assert_array_equal(explainer.shap_values(X), raw.shap_values(X))
        np.testing.assert_array_equal(explainer.expected_value, raw.expected_value)
        assert explainer.explain(X[:3]).model_output == "probability"


def test_explanation_of_probabilities(boosting: Any) -> None:
    explainer = explainer_of(boosting, X[:20])
    explanation = explainer.explain(X)
    assert explainer.model_output == explanation.model_output == explanation[:3].model_output == "probability"
    assert repr(explainer).endswith("20 background rows, probability>")
    assert "model output: probability" in repr(explanation)
    assert "model output" not in repr(explainer_of(boosting, X[:20], "raw").explain(X[:2]))
    assert explanation.base_values == explainer.expected_value
    again = pickle.loads(pickle.dumps(explainer))
    np.testing.assert_array_equal(again.shap_values(X), explanation.values)
    assert again.expected_value == explainer.expected_value
    np.testing.assert_array_equal(explainer_of(boosting, X[:20], n_jobs=2).shap_values(X), explanation.values)
    single = explainer.shap_values(X.astype(np.float32))
    assert single.dtype == np.float32


def test_explanation_of_losses(named: Any) -> None:
    pandas = pytest.importorskip("pandas")
    y = np.where(HIGH, "yes", "no")
    explainer = explainer_of(named, X[:20], "log_loss", precision="double")
    explanation = explainer.explain(X, y)
    assert explanation.base_values.shape == (len(X),)
    assert len(np.unique(explanation.base_values)) == 2
    loss = -np.log(named.predict_proba(X)[np.arange(len(X)), HIGH.astype(int)])
    np.testing.assert_allclose(explanation.values.sum(axis=1) + explanation.base_values, loss, rtol=1e-10)
    part = explanation[5:9, [0, 2]]
    np.testing.assert_array_equal(part.base_values, explanation.base_values[5:9])
    np.testing.assert_array_equal(explanation[[3]].base_values, explanation.base_values[[3]])
    assert part.group({"both": part.feature_names}).base_values.shape == (4,)
    assert f"base value: {explanation.base_values.mean():.6g} on average" in repr(explanation)
    assert "base value: one for each row" in repr(explanation[:0])
    of_background = [-np.log(named.predict_proba(X[:20])[:, column]).mean() for column in range(2)]
    np.testing.assert_allclose(explainer.expected_value(["no", "yes"]), of_background, rtol=1e-12)
    assert isinstance(explainer.expected_value("yes"), float)
    for labels in (y.tolist(), pandas.Series(y, index=np.arange(len(y)) + 5), y.astype(object), y[:, None]):
        np.testing.assert_array_equal(explainer.shap_values(X, labels), explanation.values)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(explainer)).shap_values(X, y), explanation.values)
    direct = explain(named, X, y=y, data=X[:20], model_output="log_loss", precision="double", device="cpu")
    np.testing.assert_array_equal(direct.values, explanation.values)


def test_base_values_of_shap(boosting: Any, named: Any) -> None:
    pytest.importorskip("shap")
    assert explainer_of(boosting, X[:20]).explain(X).to_shap().base_values.shape == (len(X),)
    losses = explainer_of(named, X[:20], "log_loss").explain(X, np.where(HIGH, "yes", "no"))
    assert losses[5:9, [0, 2]].to_shap().base_values.shape == (4,)


def test_both_classes(boosting: Any) -> None:
    one, both = explainer_of(boosting, X[:6]), explainer_of(boosting, X[:6], outputs="all")
    values = both.shap_values(X[:20])
    np.testing.assert_array_equal(values[..., 1], one.shap_values(X[:20]))
    np.testing.assert_array_equal(values[..., 0], -values[..., 1])
    np.testing.assert_allclose(both.expected_value, boosting.predict_proba(X[:6]).mean(axis=0), rtol=1e-12)


def test_weights_count_rows(boosting: Any) -> None:
    for model_output, labels in (("probability", None), ("log_loss", HIGH)):
        weighted = explainer_of(boosting, X[:4], model_output, data_weights=[2, 0, 1, 1], precision="double")
        repeated = explainer_of(boosting, X[[0, 0, 2, 3]], model_output, precision="double")
        np.testing.assert_allclose(
            weighted.shap_values(X, labels), repeated.shap_values(X, labels), rtol=0, atol=1e-14
        )


def test_a_regressor_with_labels_far_away() -> None:
    """The gap that is allowed grows with the label, as the rounding of its square does."""
    model = GradientBoostingRegressor(n_estimators=5, random_state=0).fit(X, Y / 1e6)
    for precision in TOLERANCE:
        explainer = explainer_of(model, X[:9], "log_loss", precision=precision)
        explanation = explainer.explain(X, Y + 1e9)
        assert explanation.additivity_error is not None
        total = explanation.values.sum(axis=1) + explanation.base_values
        np.testing.assert_allclose(total, (model.predict(X) - Y - 1e9) ** 2, rtol=1e-14)


def test_memory_limit_changes_no_bit(boosting: Any) -> None:
    expected = explainer_of(boosting, X[:10], "log_loss").shap_values(X, HIGH)
    scratch = explainer_of(boosting, X[:10], "log_loss")._runner.plan(SHAP_VALUES).info()
    limit = expected.nbytes + scratch["scratch_bytes_per_thread"] + 4000
    limited = explainer_of(boosting, X[:10], "log_loss", memory_limit=limit)
    np.testing.assert_array_equal(limited.shap_values(X, HIGH), expected)
    with pytest.raises(MemoryError, match="SHAP values"):
        explainer_of(boosting, X[:10], memory_limit=expected.nbytes // 2).shap_values(X)


def test_additivity_is_checked(boosting: Any) -> None:
    for model_output, labels, noun in (("probability", None, "probability"), ("log_loss", HIGH, "log loss")):
        explainer = explainer_of(boosting, X[:10], model_output)
        assert explainer.explain(X, labels).additivity_error < 1e-6
        link = explainer._runner.link
        assert link is not None
        explainer._runner.link = replace(link, scale=3.0)  # as if the library had another one
        with pytest.raises(RuntimeError, match=f"additivity check failed at row 0: .* the {noun} is "):
            explainer.shap_values(X, labels)
        unchecked = explainer_of(boosting, X[:10], model_output, check_additivity=False)
        assert unchecked.explain(X, labels).additivity_error is None


def test_pipeline_and_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdefghij"), index=np.arange(len(X)) + 7)
    pipeline = make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=5)).fit(frame, HIGH)
    explanation = explainer_of(pipeline, frame[:8], precision="double").explain(frame)
    assert explanation.index[0] == 7
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total, pipeline.predict_proba(frame)[:, 1], rtol=1e-12)


def test_transformer(boosting: Any) -> None:
    transformer = ShapTransformer(
        GradientBoostingClassifier(n_estimators=4, random_state=0),
        data=X[:9],
        model_output="probability",
        device="cpu",
    )
    values = transformer.fit_transform(X, HIGH)
    explainer = explainer_of(transformer.estimator_, X[:9])
    np.testing.assert_array_equal(values, explainer.shap_values(X))
    assert transformer.base_values_ == explainer.expected_value
    np.testing.assert_array_equal(clone(transformer).fit(X, HIGH).transform(X), values)
    assert transformer.explain(X).model_output == "probability"
    model = make_pipeline(transformer, LogisticRegression()).fit(X, HIGH)
    assert model.score(X, HIGH) > 0.5
    for options, message in (
        ({"data": X[:3], "model_output": "log_loss"}, "needs labels, which transform does not get"),
        ({"model_output": "probability"}, "give data="),
    ):
        with pytest.raises(ValueError, match=message):
            ShapTransformer(boosting, **options).fit(X, HIGH)


# Errors


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"model_output": "probability"},
            "'probability' is defined against background rows only: give data=",
        ),
        ({"model_output": "log_loss"}, "'log_loss' is defined against background rows only: give data="),
        ({"model_output": "margin", "data": X[:3]}, "model_output must be one of 'raw', 'probability', 'log"),
        ({"model_output": None, "data": X[:3]}, "model_output must be one of"),
        ({"model_output": "probability", "data": X[:3], "device": "cuda"}, "computed on the CPU only"),
        (
            {"model_output": "probability", "data": X[:3], "feature_perturbation": "tree_path_dependent"},
            "uses no background rows",
        ),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):  # before the model is looked at
        TreeExplainer(object(), **options)


def _multiclass() -> Any:
    return HistGradientBoostingClassifier(max_iter=3).fit(X, CLASSES)


def _xgboost_of(objective: str) -> Any:
    xgboost = pytest.importorskip("xgboost")
    options = {"objective": objective, "nthread": 1}
    target = HIGH if objective.startswith("binary") else Y
    return xgboost.train(options, xgboost.DMatrix(X, target.astype(float)), 3)


def _lightgbm_of(**options: Any) -> Any:
    lightgbm = pytest.importorskip("lightgbm")
    return lightgbm.train({"verbose": -1, "num_threads": 1, **options}, lightgbm.Dataset(X, Y), 3)


@pytest.mark.parametrize(
    "make, model_output, message",
    [
        (_multiclass, "probability", "depends on those of all outputs"),
        (_multiclass, "log_loss", "needs a binary classifier with a logistic link"),
        (
            lambda: IsolationForest(n_estimators=3).fit(X),
            "probability",
            "needs a classifier whose probability",
        ),
        (lambda: IsolationForest(n_estimators=3).fit(X), "log_loss", "needs a binary classifier"),
        (lambda: RandomForestRegressor(2).fit(X, Y), "probability", "needs a classifier"),
        (
            lambda: RandomForestRegressor(2, criterion="absolute_error").fit(X[:60], Y[:60]),
            "log_loss",
            "trained with the squared error",
        ),
        (lambda: BaggingRegressor(n_estimators=2).fit(X, Y), "log_loss", "trained with the squared error"),
        (
            lambda: DecisionTreeRegressor().fit(X, np.column_stack([Y, Y])),
            "log_loss",
            "trained with the squared error",
        ),
        (
            lambda: GradientBoostingRegressor(n_estimators=2, loss="huber").fit(X, Y),
            "log_loss",
            "trained with the squared error",
        ),
        (
            lambda: RandomForestClassifier(2, random_state=0).fit(X, HIGH),
            "log_loss",
            "adds up probabilities, which may be 0",
        ),
        (lambda: _xgboost_of("binary:hinge"), "probability", "needs a classifier"),
        (lambda: _xgboost_of("binary:logitraw"), "log_loss", "needs a binary classifier"),
        (lambda: _xgboost_of("count:poisson"), "log_loss", "trained with the squared error"),
        (lambda: _lightgbm_of(objective="regression", reg_sqrt=True), "log_loss", "squared error"),
        (lambda: _lightgbm_of(objective="regression_l1"), "log_loss", "squared error"),
    ],
)
def test_models_without_such_an_output(make: Callable[[], Any], model_output: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explainer_of(make(), X[:3], model_output)


def test_two_classes_of_a_loss_are_refused(boosting: Any) -> None:
    with pytest.raises(ValueError, match="there is one log loss"):
        explainer_of(boosting, X[:3], "log_loss", outputs="all")


@pytest.mark.parametrize(
    "labels, error, message",
    [
        (None, ValueError, "compares predictions with labels: give y="),
        (["yes"] * 3, ValueError, "y has 3 labels, but X has 4 rows"),
        (
            ["yes", "no", "maybe", "no"],
            ValueError,
            "classes of the model, 'no' and 'yes', but entry 2 is",
        ),
        ([1, 0, 1, 0], ValueError, "'no' and 'yes', but entry 0 is 1"),
        (["yes", None, "no", "no"], ValueError, "entry 1 is None"),
        ([["yes", "no"]] * 4, ValueError, "1d array"),
    ],
)
def test_bad_classes(named: Any, labels: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        explainer_of(named, X[:3], "log_loss").explain(X[:4], labels)


@pytest.mark.parametrize(
    "labels, message",
    [
        ([1.0, np.nan, 2.0], "y must be finite, .* but entry 1 is nan"),
        ([1.0, 2.0, -np.inf], "y must be finite, .* but entry 2 is -inf"),
        ([1.0, 2e30, 3.0], "smaller than 1e.30 in magnitude, but entry 1 is 2e.30"),
        (["a", "b", "c"], "y must hold numbers"),
        ([1.0], "y has 1 labels, but X has 3 rows"),
    ],
)
def test_bad_targets(labels: Any, message: str) -> None:
    model = RandomForestRegressor(2, max_depth=3, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match=message):
        explainer_of(model, X[:3], "log_loss").shap_values(X[:3], labels)


def test_what_only_the_margin_has(boosting: Any) -> None:
    for explainer in (explainer_of(boosting, X[:3]), explainer_of(boosting, X[:3], "log_loss")):
        with pytest.raises(ValueError, match="Banzhaf values are those of the margin: use model_output="):
            explainer.explain(X, HIGH, index="bv")
        with pytest.raises(ValueError, match="interaction values of pairs are those of the margin"):
            explainer.shap_interaction_values(X)
    with pytest.raises(ValueError, match="y is for model_output='log_loss', not 'probability'"):
        explainer_of(boosting, X[:3]).shap_values(X, HIGH)
    with pytest.raises(ValueError, match="not for interactions"):
        explain(boosting, X, y=HIGH, interactions=True)
