"""Values of probabilities and losses: the core and every family against the definition, and shap.

With ``--device cuda``, all that GPUs compute is computed there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
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
from sklearn.datasets import load_diabetes
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import TreeExplainer, _core, reference
from skshapgpu.adapters import adapt
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of

X, Y = load_diabetes(return_X_y=True)
HIGH = Y > 140

#: Largest error of each precision, relative to the leaves and to the slope of the link.
TOLERANCE = {"single": 5e-6, "double": 1e-10}

#: Each link as a function of the margin m and the label y, and its derivative with respect to m.
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
    return TreeExplainer(model, data, model_output=model_output, **options)


# The core


def compile_plan(
    ensemble: Ensemble,
    background: np.ndarray,
    link: str,
    weights: np.ndarray | None = None,
    precision: str = "double",
    scale: float = 1.0,
) -> Any:
    """Compile a plan of the core for the device of the test run."""
    if weights is None:
        weights = np.full(len(background), 1 / len(background))
    attributes = attributes_of(ensemble)
    plan = _core.RescaledPlan(attributes, precision, background, weights, link, scale)
    on_gpu = os.environ["SKSHAPGPU_DEVICE"].startswith("cuda")
    return PlanOnGpu(plan, attributes, background) if on_gpu else plan


class PlanOnGpu:
    """A ``_cuda.CudaPlan`` with the methods of ``_core.RescaledPlan``."""

    def __init__(self, plan: Any, attributes: dict[str, Any], background: np.ndarray) -> None:
        from skshapgpu import _cuda

        self.background_margin = plan.background_margin
        self._plan = _cuda.CudaPlan.rescaled(_core.RescaledTables(plan, attributes, background, 2**30), 0)

    def explain(self, X: Any, values: Any, margin: Any, n_threads: int, labels: Any = None) -> None:
        self._plan.explain(X, values, margin, None, 0, labels=labels)


def compute(plan: Any, rows: np.ndarray, ensemble: Ensemble, labels: Any = None, n_threads: int = 1) -> Any:
    """Compute values and margins with the core."""
    shape = len(rows), ensemble.n_outputs, ensemble.n_features
    values, margin = np.full(shape, np.nan), np.full(shape[:2], np.nan)
    plan.explain(rows, values, margin, n_threads, labels)
    return values, margin


def largest_slope(link: str, ensemble: Ensemble, labels: Any) -> np.ndarray:
    """Bound the link's slope for each row and output, (n_rows, n_outputs)."""
    if link != "squared_error":
        return np.full((len(labels), ensemble.n_outputs), 1.0)
    return 2 * (np.abs(labels)[:, np.newaxis] + leaf_scale(ensemble) + np.abs(ensemble.intercept))


def assert_is_the_definition(
    ensemble: Ensemble, rows: np.ndarray, background: np.ndarray, weights: np.ndarray | None = None
) -> None:
    labels = np.arange(len(rows)) % 2.0
    for link, (of, derivative) in LINKS.items():
        expected = reference.rescaled(
            ensemble, rows, background, of, derivative, weight=weights, labels=labels
        ).values
        allowed = (largest_slope(link, ensemble, labels) * leaf_scale(ensemble))[:, :, np.newaxis]
        for precision, tolerance in TOLERANCE.items():
            plan = compile_plan(ensemble, background, link, weights, precision)
            given = None if link == "logistic" else labels
            values, margin = compute(plan, rows, ensemble, given)
            assert (np.abs(values - expected) <= tolerance * allowed).all(), (link, precision)
            for result, of_rows in ((margin, rows), (plan.background_margin, background)):
                error = np.abs(result - ensemble.margin(of_rows))
                assert (error <= 1e-13 * (leaf_scale(ensemble) + np.abs(ensemble.intercept))).all()


@given(options=ensemble_options(max_used=5), n_background=st.sampled_from([1, 2, 5]), weighted=st.booleans())
@settings(max_examples=80)
def test_core_is_the_definition(options: dict[str, Any], n_background: int, weighted: bool) -> None:
    """Rows at the edges of every comparison; one row of X is in the background."""
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
    """Words, tiles and groups end at different places within 300 background rows, some of which repeat."""
    ensemble = random_ensemble(5, n_trees=3, n_features=4, n_used=3, max_leaves=9)
    rows = random_rows(5, ensemble, 302)
    weights = np.random.default_rng(5).random(300)
    assert_is_the_definition(ensemble, rows[:2], rows[2:], weights / weights.sum())


def test_more_rows_than_a_block() -> None:
    ensemble = random_ensemble(6, n_trees=3, n_features=4, n_used=3, max_leaves=9)
    rows = random_rows(6, ensemble, 153)
    assert_is_the_definition(ensemble, rows[:150], rows[150:])


def test_values_by_hand() -> None:
    """A stump of 0 and 2 against two rows, one of which also goes right and contributes nothing."""
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
    """Build size * (x0 > 0.5) + size * (x1 > 0.5) - size."""
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
    """Each feature moves the margin, both together do not: values are the margin's times the slope."""
    ensemble, slope = two_stumps(size), {"logistic": 0.25, "log_loss": 0.5, "squared_error": 0.0}
    row, background = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    for link, expected in slope.items():
        labels = None if link == "logistic" else np.zeros(1)
        values, _ = compute(compile_plan(ensemble, background, link), row, ensemble, labels)
        np.testing.assert_allclose(values[0, 0], expected * size * np.array([1, -1]), rtol=1e-14)


@pytest.mark.parametrize("difference", [0.0, 1e-14, 1e-9, 1e-4, 0.3, 5.0, 2000.0])
@pytest.mark.parametrize("start", [-800.0, -40.0, -1.0, 0.0, 3.0, 40.0, 800.0])
def test_slopes_keep_their_digits(start: float, difference: float) -> None:
    """For large or close margins, the slope is compared with the mean of the derivative between them."""
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
    """The reference is values against single background rows; squared errors have a simple slope."""
    ensemble = random_chain(depth, depth, depth)
    rows = np.random.default_rng(depth).random((12, depth))
    x, background = rows[:4], rows[4:]
    labels = np.linspace(-1, 1, 4)
    attributes = attributes_of(ensemble)
    expected = np.zeros((4, 1, depth))
    for b in background:
        single = _core.background_plan(attributes, "double", b[np.newaxis], np.ones(1), "SII", 2**24)
        values, margin = np.empty((4, 1, depth)), np.empty((4, 1))
        single.explain(x, values, margin, 1)
        slope = margin[:, 0] + ensemble.margin(b[np.newaxis])[0, 0] - 2 * labels
        expected += slope[:, np.newaxis, np.newaxis] * values / len(background)
    plan = compile_plan(ensemble, background, "squared_error")
    values, _ = compute(plan, x, ensemble, labels)
    scale = leaf_scale(ensemble)[0] * largest_slope("squared_error", ensemble, labels).max()
    assert np.abs(values - expected).max() <= 1e-10 * scale
    assert np.abs(expected).max() > 1e-3


def test_what_the_core_refuses() -> None:
    chain = random_chain(0, 65, 65)
    with pytest.raises(ValueError, match="a path has 65 different features; background data allow for"):
        compile_plan(chain, np.zeros((1, 65)), "logistic")
    ensemble = random_ensemble(9)
    with pytest.raises(
        ValueError,
        match="link must be 'logistic', 'log_loss', 'squared_error', 'exp', 'gumbel' or 'normal', not 'log'",
    ):
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
    with pytest.raises(TypeError, match="labels must be float64"):
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
    """Compute probabilities, (n_rows, n_outputs)."""
    values = np.asarray(model.predict_proba(rows), np.float64)
    return values if several else values[:, 1:]


def scale_of(model: Any) -> float:
    return getattr(model, "sigmoid", None) or (2.0 if getattr(model, "loss", "") == "exponential" else 1.0)


def scaled(link: tuple[Any, Any], scale: float) -> tuple[Any, Any]:
    """Return a link and its derivative for a multiple of the margin."""
    of, derivative = link
    return lambda m, y: of(scale * m, y), lambda m, y: scale * derivative(scale * m, y)


@pytest.mark.parametrize("weights", [None, [3, 0, 1, 2, 0.5]])
def test_probabilities_of_classifiers(classifier: tuple[Any, np.ndarray, bool], weights: Any) -> None:
    model, rows, several = classifier
    rows, background = rows[:4], rows[20:25]
    ensemble, encoded = as_trees_see_them(model, rows)
    scale = scale_of(model)
    encoded_background = as_trees_see_them(model, background)[1]
    expected, base_values, _ = reference.rescaled(
        ensemble, encoded, encoded_background, *scaled(LINKS["logistic"], scale), weight=weights
    )
    for precision, tolerance in TOLERANCE.items():
        explainer = explainer_of(model, background, data_weight=weights, precision=precision)
        explanation = explainer.explain(rows)
        values = explanation.values.reshape(len(rows), rows.shape[1], -1).swapaxes(1, 2)
        allowed = tolerance * scale * leaf_scale(ensemble)
        assert (np.abs(values - expected) <= allowed[:, np.newaxis]).all()
        np.testing.assert_allclose(np.atleast_1d(explainer.expected_value), base_values[0], rtol=1e-12)
        # Some libraries compute probabilities in single precision.
        total = values.sum(axis=2) + explainer.expected_value
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
    expected, base_values, _ = reference.rescaled(
        ensemble, encoded, encoded_background, *scaled(LINKS["log_loss"], scale), labels=labels
    )
    loss = -np.log(probability(model, rows, False)[:, 0] * labels + probability_of_no(model, rows) * ~labels)
    # CatBoost 1.2.0 makes strings of booleans, which predict returns, too.
    y = labels.astype(str) if isinstance(getattr(model, "classes_", [None])[0], str) else labels
    for precision, tolerance in TOLERANCE.items():
        explainer = explainer_of(model, background, "log_loss", precision=precision)
        explanation = explainer.explain(rows, y)
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
    expected, base_values, _ = reference.rescaled(
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


#: Continuous numbers that float32 can hold: some other numbers would be on a threshold, where shap errs.
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
    # If two margins are equal, shap uses the values of the margin unchanged; these data have no such pairs.
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


def test_a_regressor_with_labels_far_away() -> None:
    """The permitted gap grows with the label, as the rounding error of its square does."""
    model = GradientBoostingRegressor(n_estimators=5, random_state=0).fit(X, Y / 1e6)
    for precision in TOLERANCE:
        explainer = explainer_of(model, X[:9], "log_loss", precision=precision)
        explanation = explainer.explain(X, Y + 1e9)
        assert explanation.additivity_error is not None
        total = explanation.values.sum(axis=1) + explanation.base_values
        np.testing.assert_allclose(total, (model.predict(X) - Y - 1e9) ** 2, rtol=1e-14)
