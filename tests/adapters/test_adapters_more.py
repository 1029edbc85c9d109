"""NGBoost, scikit-survival and quantile-forest: margins on hard rows, and values by the definition."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.checks import assert_margin, hard_rows
from helpers.families import library
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import TreeExplainer, UnsupportedModelError, explain, reference
from skshapgpu.adapters import adapt
from skshapgpu.adapters.schema import AdaptedModel

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 4))
Y = X[:, 0] + X[:, 1] * np.where(X[:, 2] > 0, 2.0, -1.0)
WITH_NAN = np.where(rng.random(X.shape) < 0.1, np.nan, X)
EVENT = rng.random(200) < 0.7
TIME = np.ceil(10 * np.exp(Y / 2))


def check(model: Any, margin: Callable[[np.ndarray], np.ndarray]) -> AdaptedModel:
    """Check the margin on 2,000 hard rows, and compare values of some of them with the definition."""
    adapted = adapt(model)
    rows = hard_rows(adapted.ensemble, nan=adapted.schema.allow_nan, inf=False).astype(np.float64)
    expected = np.asarray(margin(rows), np.float64)
    assert np.ptp(expected, axis=0).min() > 0
    assert_margin(adapted.ensemble, rows, expected, 1e-11)

    rows, background = rows[:30], rows[30:40]
    result = TreeExplainer(model, precision="double").shap_values(rows)
    values, base_value, _ = reference.path_dependent(adapted.ensemble, rows)
    values = values[:, 0] if values.shape[1] == 1 else values.swapaxes(1, 2)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(result, values, rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(np.ravel(TreeExplainer(model).expected_value), base_value, atol=1e-5 * scale)
    result = TreeExplainer(model, background, precision="double").shap_values(rows)
    values = reference.interventional(adapted.ensemble, rows, background).values
    values = values[:, 0] if values.shape[1] == 1 else values.swapaxes(1, 2)
    np.testing.assert_allclose(result, values, rtol=0, atol=1e-10 * scale)
    return adapted


def assert_as_predict_reads(model: Any, predict: Callable[[Any], Any]) -> None:
    """Check that NaN and infinities are rejected if and only if the library itself rejects them."""
    for number in (np.nan, np.inf, 1e300):
        rows = X[:3].copy()
        rows[1, 0] = number
        try:
            predict(rows)
        except ValueError:
            with pytest.raises(ValueError, match="row 1"):
                explain(model, rows)
        else:
            assert np.isfinite(explain(model, rows).values).all()


# ---- NGBoost --------------------------------------------------------------------------------------


def ngb(kind: str, **options: Any) -> Any:
    options = {"n_estimators": 8, "verbose": False, "random_state": 0, "learning_rate": 0.1} | options
    return getattr(library("ngboost"), kind)(**options)


def parameters(model: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that predicts the parameters from which ``pred_dist`` makes a distribution."""
    return lambda rows: model.pred_param(rows)


def test_ngboost_regressor():
    model = ngb("NGBRegressor").fit(X, Y)
    adapted = check(model, parameters(model))
    assert adapted.output_names == ("loc", "log_scale")
    distribution = model.pred_dist(X)
    margin = adapted.ensemble.margin(X)
    np.testing.assert_allclose(margin[:, 0], model.predict(X), rtol=1e-12)
    np.testing.assert_allclose(margin[:, 1], np.log(distribution.params["scale"]), rtol=1e-9, atol=1e-9)
    explanation = explain(model, X[:5])
    assert explanation.values.shape == (5, 4, 2)
    assert_as_predict_reads(model, model.predict)


DISTRIBUTIONS = {
    "LogNormal": ("loc", "log_scale"),
    "Laplace": ("loc", "log_scale"),
    "TFixedDf": ("loc", "log_scale"),
    "Cauchy": ("loc", "log_scale"),
    "Gamma": ("log_alpha", "log_beta"),
    "Weibull": ("log_shape", "log_scale"),
    "Exponential": None,
    "Poisson": None,
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_ngboost_distribution(name):
    distributions = pytest.importorskip("ngboost.distns")
    target = np.ceil(np.exp(Y)) if name == "Poisson" else np.exp(Y / 3)
    model = ngb("NGBRegressor", Dist=getattr(distributions, name), n_estimators=4).fit(X, target)
    adapted = check(model, parameters(model))
    assert adapted.output_names == DISTRIBUTIONS[name]
    margin, distribution = adapted.ensemble.margin(X), model.pred_dist(X)
    for i, parameter in enumerate(adapted.output_names or ()):
        value = getattr(distribution, parameter.removeprefix("log_"))
        value = np.log(value) if parameter.startswith("log_") else value
        np.testing.assert_allclose(margin[:, i], value, rtol=1e-9, atol=1e-9)


def test_ngboost_columns_and_rows_of_each_round():
    model = ngb("NGBRegressor", col_sample=0.5, minibatch_frac=0.7, n_estimators=12).fit(X, Y)
    assert {len(columns) for columns in model.col_idxs} == {2}
    assert len({tuple(columns) for columns in model.col_idxs}) > 3
    assert len(set(model.scalings)) > 1
    check(model, parameters(model))


def test_ngboost_binary_classifier():
    model = ngb("NGBClassifier").fit(X, (Y > 0).astype(int))
    adapted = check(model, parameters(model))
    assert (adapted.binary, adapted.link, adapted.class_names) == ("margin", "logistic", (0, 1))
    explanation = explain(model, X[:20], data=X[:30], model_output="probability")
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, model.predict_proba(X[:20])[:, 1], atol=1e-5)


def test_ngboost_classes():
    distributions = pytest.importorskip("ngboost.distns")
    classes = np.digitize(Y, [-0.5, 0.5])
    model = ngb("NGBClassifier", Dist=distributions.k_categorical(3)).fit(X, classes)
    adapted = check(model, parameters(model))
    assert adapted.output_names == (1, 2)
    logits = np.c_[np.zeros(len(X)), adapted.ensemble.margin(X)]
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(proba, model.predict_proba(X), rtol=1e-9)


def test_ngboost_several_targets():
    distributions = pytest.importorskip("ngboost.distns")
    model = ngb("NGBRegressor", Dist=distributions.MultivariateNormal(2), n_estimators=5)
    model.fit(X, np.c_[Y, Y**2 + X[:, 3]])
    adapted = check(model, parameters(model))
    assert adapted.ensemble.n_outputs == 5 and adapted.output_names is None
    np.testing.assert_allclose(adapted.ensemble.margin(X)[:, :2], model.predict(X), rtol=1e-9)


def test_ngboost_survival():
    model = ngb("NGBSurvival").fit(X, TIME, EVENT)
    assert check(model, parameters(model)).output_names == ("loc", "log_scale")


def test_ngboost_missing_values():
    model = ngb("NGBRegressor").fit(WITH_NAN, Y)
    assert check(model, parameters(model)).schema.allow_nan
    assert_as_predict_reads(model, model.predict)


def test_ngboost_early_stopping_is_that_of_predict():
    model = ngb("NGBRegressor", n_estimators=200, learning_rate=0.5, early_stopping_rounds=3)
    model.fit(X[:150], Y[:150], X_val=X[150:], Y_val=Y[150:])
    assert len(model.base_models) < 200
    assert check(model, parameters(model)).ensemble.n_trees == 2 * len(model.base_models)


def test_ngboost_several_base_learners_and_pickle():
    base = [DecisionTreeRegressor(max_depth=d, random_state=0) for d in (2, 4)]
    try:
        model = ngb("NGBRegressor", Base=base).fit(X, Y)
    except (TypeError, ValueError, AttributeError):
        pytest.skip("this NGBoost takes one base learner")
    model = pickle.loads(pickle.dumps(model))
    check(model, parameters(model))


def test_ngboost_refusals():
    with pytest.raises(UnsupportedModelError, match="of Ridge"):
        adapt(ngb("NGBRegressor", Base=Ridge()).fit(X, Y))
    with pytest.raises(NotFittedError):
        adapt(ngb("NGBRegressor"))
    with pytest.raises(UnsupportedModelError, match="it is not a model"):
        adapt(ngb("NGBRegressor").fit(X, Y).pred_dist(X))


# ---- scikit-survival ------------------------------------------------------------------------------


def survival(module: str, name: str, **options: Any) -> Any:
    library("sksurv")
    return getattr(pytest.importorskip(f"sksurv.{module}"), name)(random_state=0, **options)


def outcome() -> np.ndarray:
    util = pytest.importorskip("sksurv.util")
    return util.Surv.from_arrays(EVENT, TIME)


@pytest.mark.parametrize("low_memory", [False, True])
@pytest.mark.parametrize("rows", [X, WITH_NAN], ids=["full", "nan"])
@pytest.mark.parametrize(
    "module, name",
    [
        ("ensemble", "RandomSurvivalForest"),
        ("ensemble", "ExtraSurvivalTrees"),
        ("tree", "SurvivalTree"),
        ("tree", "ExtraSurvivalTree"),
    ],
)
def test_survival_forest(module, name, rows, low_memory):
    options = {"n_estimators": 5} if module == "ensemble" else {}
    model = survival(module, name, low_memory=low_memory, **options)
    try:
        model.fit(rows, outcome())
    except ValueError:  # random splits do not support missing values
        assert np.isnan(rows).any() and "Extra" in name
        return
    adapted = check(model, model.predict)
    assert adapted.ensemble.n_outputs == 1
    assert_as_predict_reads(model, model.predict)


def test_survival_forest_names():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = survival("ensemble", "RandomSurvivalForest", n_estimators=3).fit(frame, outcome())
    assert explain(model, frame).feature_names == ("a", "b", "c", "d")
    with pytest.raises(ValueError, match="feature names"):
        explain(model, frame[list("bacd")])


@pytest.mark.parametrize("loss", ["coxph", "squared", "ipcwls"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_survival_boosting(loss, dropout):
    options = {"n_estimators": 12, "learning_rate": 0.5, "subsample": 0.7, "max_depth": 3}
    model = survival(
        "ensemble", "GradientBoostingSurvivalAnalysis", loss=loss, dropout_rate=dropout, **options
    )
    model.fit(X, outcome())
    if dropout:
        assert np.ptp(model._scale) > 0
    check(model, model.predict if loss == "coxph" else lambda rows: np.log(model.predict(rows)))
    assert_as_predict_reads(model, model.predict)


def test_survival_refusals():
    model = survival("ensemble", "ComponentwiseGradientBoostingSurvivalAnalysis", n_estimators=5)
    with pytest.raises(UnsupportedModelError, match="its coef_ explain it"):
        adapt(model.fit(X, outcome()))
    linear = pytest.importorskip("sksurv.linear_model")
    with pytest.raises(UnsupportedModelError, match="not a tree model of scikit-survival"):
        adapt(linear.CoxPHSurvivalAnalysis().fit(X, outcome()))
    with pytest.raises(NotFittedError):
        adapt(survival("ensemble", "RandomSurvivalForest"))

    class Halved(type(survival("ensemble", "RandomSurvivalForest"))):
        def predict(self, rows):
            return super().predict(rows) / 2

    with pytest.raises(UnsupportedModelError, match="has a predict of its own"):
        adapt(Halved(n_estimators=2).fit(X, outcome()))


# ---- quantile-forest ------------------------------------------------------------------------------


def quantile(name: str, **options: Any) -> Any:
    return getattr(library("quantile_forest"), name)(n_estimators=6, random_state=0, **options)


FORESTS = ["RandomForestQuantileRegressor", "ExtraTreesQuantileRegressor"]


@pytest.mark.parametrize("kept", [1, 3, 0.5, None])
@pytest.mark.parametrize("name", FORESTS)
def test_quantile_forest_mean(name, kept):
    model = quantile(name, max_samples_leaf=kept, min_samples_leaf=5).fit(X, Y)
    check(model, lambda rows: model.predict(rows, quantiles="mean", aggregate_leaves_first=False))
    margin, default = adapt(model).ensemble.margin(X)[:, 0], model.predict(X, quantiles="mean")
    if kept == 1:
        np.testing.assert_allclose(margin, default, rtol=0, atol=1e-12)
    elif kept is None:
        # If leaves keep every target, the forest predicts like an equal forest of scikit-learn.
        trees = [tree.predict(X.astype(np.float32)) for tree in model.estimators_]
        np.testing.assert_allclose(margin, np.mean(trees, axis=0), atol=1e-12)
        assert np.abs(margin - default).max() > 0.01  # and the default is another number


@pytest.mark.parametrize("name", FORESTS)
def test_quantile_forest_missing_values_and_targets(name):
    """The model is fitted without missing values, but predicts rows that have missing values."""
    model = quantile(name).fit(X, np.c_[Y, Y**2])
    adapted = check(model, lambda rows: model.predict(rows, quantiles="mean"))
    assert adapted.ensemble.n_outputs == 2 and adapted.schema.allow_nan
    assert_as_predict_reads(model, lambda rows: model.predict(rows, quantiles="mean"))


def test_quantile_forest_monotonic():
    model = quantile("RandomForestQuantileRegressor", monotonic_cst=[1, 0, 0, -1], max_depth=4).fit(X, Y)
    check(model, lambda rows: model.predict(rows, quantiles="mean"))
    plain = clone(model).set_params(monotonic_cst=None).fit(X, Y)
    assert np.abs(adapt(plain).ensemble.margin(X) - adapt(model).ensemble.margin(X)).max() > 0


def test_quantile_forest_refusals():
    model = quantile("RandomForestQuantileRegressor")
    with pytest.raises(NotFittedError):
        adapt(model)

    class Median(type(model)):
        def predict(self, rows, **options):
            return super().predict(rows, quantiles=0.5)

    with pytest.raises(UnsupportedModelError, match="has a predict of its own"):
        adapt(Median(n_estimators=2).fit(X, Y))
