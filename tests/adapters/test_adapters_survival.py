"""Survival functions and cumulative hazards at several times against the library and the definition."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.checks import hard_rows
from helpers.families import library
from scipy import stats
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from skshapgpu import (
    ShapTransformer,
    TreeExplainer,
    cross_val_explain,
    explain,
    explain_batches,
    explain_interactions,
    reference,
    shap_importance,
)
from skshapgpu._common import devices
from skshapgpu.adapters import adapt

rng = np.random.default_rng(3)
X = rng.normal(size=(240, 5))[:, [3, 0, 4, 1, 2]]
RISK = X[:, 1] + X[:, 4] * np.where(X[:, 0] > 0, 2.0, -1.0)
WITH_NAN = np.where(rng.random(X.shape) < 0.1, np.nan, X)
# The first row in time is censored: there is no hazard before the first event.
TIME = 3.0 + np.ceil(20 * rng.exponential(size=240) * np.exp(-RISK / 2))
EVENT = rng.random(240) < 0.7
TIME[0], EVENT[0] = 1.0, False
FIRST_EVENT, LAST = TIME[EVENT].min(), TIME.max()
#: Times before the first time, before and at the first event, at another event, between times, and at the
#: end.
TIMES = [0.0, 0.5, 2.0, FIRST_EVENT, np.sort(TIME[EVENT])[60], np.median(TIME) + 0.25, LAST - 1e-9, LAST]

OUTPUTS = {
    "survival": "predict_survival_function",
    "cumulative_hazard": "predict_cumulative_hazard_function",
}


def survival(name: str, **options: Any) -> Any:
    library("sksurv")
    module = pytest.importorskip("sksurv.tree" if name.endswith("Tree") else "sksurv.ensemble")
    return getattr(module, name)(random_state=0, **options)


def outcome(rows: Any = slice(None)) -> np.ndarray:
    return pytest.importorskip("sksurv.util").Surv.from_arrays(EVENT[rows], TIME[rows])


def boosting(**options: Any) -> Any:
    options = {"n_estimators": 10, "learning_rate": 0.5, "max_depth": 3, "subsample": 0.7} | options
    return survival("GradientBoostingSurvivalAnalysis", **options).fit(X, outcome())


def aft(distribution: str = "normal", scale: float = 1.3, **options: Any) -> Any:
    xgb = library("xgboost")
    data = xgb.DMatrix(WITH_NAN)
    data.set_float_info("label_lower_bound", TIME)
    data.set_float_info("label_upper_bound", np.where(EVENT, TIME, np.inf))
    options = {
        "objective": "survival:aft",
        "aft_loss_distribution": distribution,
        "aft_loss_distribution_scale": scale,
        "max_depth": 3,
        "eta": 0.5,
        "max_delta_step": 1,  # without it, some versions of XGBoost diverge
        "nthread": 1,
        "seed": 0,
    } | options
    return xgb.train(options, data, 8)


def functions(model: Any, model_output: str, rows: np.ndarray, times: Any) -> np.ndarray:
    """Return the functions of the library itself at the times: (n_rows, n_times)."""
    return np.array([np.atleast_1d(f(times)) for f in getattr(model, OUTPUTS[model_output])(rows)])


#: Distributions of the error in log(time) = margin + scale * error.
ERRORS = {"normal": stats.norm, "logistic": stats.logistic, "extreme": stats.gumbel_l}


def outputs_last(values: np.ndarray) -> np.ndarray:
    return values.swapaxes(1, 2)


def rows_of(model: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return rows on and next to thresholds, and background rows, one of which is among the first."""
    adapted = adapt(model)
    rows = hard_rows(adapted.ensemble, 40, nan=adapted.schema.allow_nan, inf=False).astype(np.float64)
    return rows[:25], np.vstack([rows[25:], rows[3]])


# ---- forests --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_output", OUTPUTS)
@pytest.mark.parametrize("rows", [X, WITH_NAN], ids=["full", "nan"])
@pytest.mark.parametrize(
    "name", ["RandomSurvivalForest", "ExtraSurvivalTrees", "SurvivalTree", "ExtraSurvivalTree"]
)
def test_forest_is_the_definition(name: str, rows: np.ndarray, model_output: str) -> None:
    options = {} if name.endswith("Tree") else {"n_estimators": 4}
    if name == "RandomSurvivalForest":
        options["max_samples"] = 0.5  # the last time is in some trees only
    model = survival(name, max_depth=5, **options)
    try:
        model.fit(rows, outcome())
    except ValueError:  # random splits do not support missing values
        assert np.isnan(rows).any() and "Extra" in name
        return
    given, background = rows_of(model)
    ensemble = adapt(model).with_output(model_output, np.array(TIMES)).ensemble
    expected = functions(model, model_output, given, TIMES)
    assert (np.ptp(expected, axis=0)[3:] > 0).all()
    np.testing.assert_allclose(ensemble.margin(given), expected, rtol=0, atol=1e-13 * expected.max())
    tolerance = 1e-10 * expected.max()

    explainer = TreeExplainer(model, model_output=model_output, times=TIMES, precision="double")
    explanation = explainer.explain(given)
    values, base, _ = reference.path_dependent(ensemble, given)
    np.testing.assert_allclose(explanation.values, outputs_last(values), rtol=0, atol=tolerance)
    np.testing.assert_allclose(explainer.expected_value, base, rtol=0, atol=tolerance)
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, expected, rtol=0, atol=tolerance)
    assert explanation.output_names == explainer.times == tuple(TIMES)

    explanation = explain(
        model, given, data=background, model_output=model_output, times=TIMES, precision="double"
    )
    values, base, _ = reference.interventional(ensemble, given, background)
    np.testing.assert_allclose(explanation.values, outputs_last(values), rtol=0, atol=tolerance)
    mean = functions(model, model_output, background, TIMES).mean(axis=0)
    np.testing.assert_allclose(explanation.base_values, mean, rtol=0, atol=tolerance)

    # Interactions, too, because the functions are margins.
    matrices = explain_interactions(
        model, given[:4], model_output=model_output, times=TIMES, precision="double"
    ).matrices()
    pairs = reference.path_dependent(ensemble, given[:4], index="SII").values
    np.testing.assert_allclose(matrices, np.moveaxis(pairs, 1, -1), rtol=0, atol=tolerance)


def test_hazard_at_all_event_times_adds_up_to_the_risk_score() -> None:
    model = survival("RandomSurvivalForest", n_estimators=4, max_depth=4).fit(X, outcome())
    times = model.unique_times_[model.estimators_[0].is_event_time_]
    hazards = explain(model, X[:20], model_output="cumulative_hazard", times=times, precision="double")
    risk = explain(model, X[:20], precision="double")
    scale = np.abs(risk.values).max()
    np.testing.assert_allclose(hazards.values.sum(axis=2), risk.values, rtol=0, atol=1e-11 * scale)


def test_one_time_is_one_output_and_integers_stay_integers() -> None:
    model = survival("RandomSurvivalForest", n_estimators=3, max_depth=4).fit(X, outcome())
    one = TreeExplainer(model, model_output="survival", times=12)
    assert one.times == (12,) and one.output_names is None and isinstance(one.expected_value, float)
    two = explain(model, X[:5], model_output="survival", times=[25, 12])
    assert two.output_names == (25, 12) and two.shape == (5, 5, 2)
    np.testing.assert_allclose(two[:, :, 1].values, one.explain(X[:5]).values, rtol=0, atol=1e-7)
    assert list(two.to_frame().columns[:2]) == ["x0__25", "x0__12"]
    np.testing.assert_array_equal(two[:, :, "25"].values, two.values[..., 0])


# ---- functions of the margin ----------------------------------------------------------------------


def function_of_cox(model_output: str, hazard: float) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the function of a margin, for a baseline hazard, and its derivative."""

    def of_hazard(m: Any, y: Any) -> Any:
        return hazard * np.exp(m)

    def survival_function(m: Any, y: Any) -> Any:
        return np.exp(-hazard * np.exp(m))

    def slope_of_survival(m: Any, y: Any) -> Any:
        return -hazard * np.exp(m) * np.exp(-hazard * np.exp(m))

    return (survival_function, slope_of_survival) if model_output == "survival" else (of_hazard, of_hazard)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("model_output", OUTPUTS)
@pytest.mark.usefixtures("on_cpu")
def test_cox_boosting_is_the_definition(model_output: str, dropout: float) -> None:
    model = boosting(dropout_rate=dropout)
    given, background = rows_of(model)
    weights = rng.random(len(background))
    options = {"data": background, "data_weight": weights, "model_output": model_output, "times": TIMES}
    explainer = TreeExplainer(model, precision="double", **options)
    explanation = explainer.explain(given)
    expected = functions(model, model_output, given, TIMES)
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-11 * expected.max())
    baseline = model._baseline_model.cum_baseline_hazard_
    assert baseline(0.5) == baseline(2.0) == 0 < baseline(TIMES[3])
    ensemble = adapt(model).ensemble
    for i, time in enumerate(TIMES):
        link, slope = function_of_cox(model_output, baseline(time))
        values, base, _ = reference.rescaled(ensemble, given, background, link, slope, weight=weights)
        scale = 1e-10 * max(np.abs(expected[:, i]).max(), 1)
        np.testing.assert_allclose(explanation.values[..., i], values[:, 0], rtol=0, atol=scale)
        np.testing.assert_allclose(explainer.expected_value[i], base[0, 0], rtol=0, atol=scale)
    assert (explanation.values[..., :3] == 0).all()  # no hazard before the first event


@pytest.mark.parametrize("scale", [0.4, 1.3])
@pytest.mark.parametrize("distribution", ["normal", "logistic", "extreme"])
@pytest.mark.usefixtures("on_cpu")
def test_aft_is_the_definition(distribution: str, scale: float, tmp_path: Any) -> None:
    booster = aft(distribution, scale)
    given, background = rows_of(booster)
    times = [1e-3, *TIMES[3:], 1e6]  # no time is too late for a distribution
    explainer = TreeExplainer(booster, background, model_output="survival", times=times, precision="double")
    explanation = explainer.explain(given)
    ensemble, predicted = adapt(booster).ensemble, booster.predict(library("xgboost").DMatrix(given))
    # XGBoost predicts exp(margin) in float32.
    np.testing.assert_allclose(np.exp(ensemble.margin(given)[:, 0]), predicted, rtol=1e-5)
    scale = float(np.float32(scale))  # XGBoost's own
    error, log_times = ERRORS[distribution], np.log(times)
    for i, log_time in enumerate(log_times):

        def of(m: Any, y: Any, t: float = log_time) -> Any:
            return error.sf((t - m) / scale)

        def slope(m: Any, y: Any, t: float = log_time) -> Any:
            return error.pdf((t - m) / scale) / scale

        values, base, _ = reference.rescaled(ensemble, given, background, of, slope)
        np.testing.assert_allclose(explanation.values[..., i], values[:, 0], rtol=0, atol=1e-10)
        np.testing.assert_allclose(explainer.expected_value[i], base[0, 0], rtol=0, atol=1e-12)
    expected = error.sf((log_times - ensemble.margin(given)) / scale)
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-11)
    assert np.ptp(expected, axis=0).max() > 0.2

    path = tmp_path / "aft.ubj"
    booster.save_model(path)
    again = explain(path, given, data=background, model_output="survival", times=times, precision="double")
    np.testing.assert_array_equal(again.values, explanation.values)


@pytest.mark.parametrize("make", [aft, lambda: boosting(loss="ipcwls"), lambda: boosting(), lambda: cox()])
@pytest.mark.usefixtures("on_cpu")
def test_response_is_the_exponential(make: Callable[[], Any]) -> None:
    model = make()
    given, background = rows_of(model)
    explanation = explain(model, given, data=background, model_output="response", precision="double")
    ensemble = adapt(model).ensemble

    def exp(m: Any, y: Any) -> Any:
        return np.exp(m)

    values, base, _ = reference.rescaled(ensemble, given, background, exp, exp)
    scale = np.exp(ensemble.margin(np.vstack([given, background]))).max()
    np.testing.assert_allclose(explanation.values, values[:, 0], rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(explanation.base_values, base[0, 0], rtol=1e-12)
    if hasattr(model, "predict") and getattr(model, "loss", "") == "ipcwls":
        np.testing.assert_allclose(
            explanation.base_values + explanation.values.sum(axis=1), model.predict(given), rtol=1e-10
        )


def cox() -> Any:
    xgb = library("xgboost")
    data = xgb.DMatrix(WITH_NAN, np.where(EVENT, TIME, -TIME))
    return xgb.train({"objective": "survival:cox", "max_depth": 3, "nthread": 1}, data, 8)


def lightgbm(objective: str, **params: Any) -> Any:
    params = {"n_estimators": 6, "verbose": -1, "n_jobs": 1, "objective": objective, **params}
    return library("lightgbm").LGBMRegressor(**params)


def catboost(loss: str) -> Any:
    return library("catboost").CatBoostRegressor(
        loss_function=loss,
        learning_rate=0.5,
        iterations=6,
        depth=3,
        verbose=0,
        allow_writing_files=False,
        thread_count=1,
    )


LOG_LINKS: dict[str, Callable[[], Any]] = {
    **{
        # XGBoost 2.1 would choose a base score of millions for these counts.
        name: lambda name=name: library("xgboost").XGBRegressor(
            n_estimators=6, max_depth=3, objective=name, base_score=10.0
        )
        for name in ("count:poisson", "reg:gamma", "reg:tweedie")
    },
    **{f"lightgbm {name}": lambda name=name: lightgbm(name) for name in ("poisson", "gamma", "tweedie")},
    "lightgbm forest": lambda: lightgbm("poisson", boosting_type="rf", bagging_freq=1, bagging_fraction=0.7),
    **{name: lambda name=name: catboost(name) for name in ("Poisson", "Tweedie:variance_power=1.3")},
    **{
        f"histograms {name}": lambda name=name: HistGradientBoostingRegressor(loss=name, max_iter=6)
        for name in ("poisson", "gamma")
    },
}


@pytest.mark.parametrize("name", LOG_LINKS)
@pytest.mark.usefixtures("on_cpu")
def test_response_of_log_links(name: str) -> None:
    """Against one background row, values are the margin's values times the slope between the predictions."""
    model = LOG_LINKS[name]().fit(X, TIME)
    options: dict[str, Any] = {"precision": "double"}
    explanation = explain(model, X[:30], data=X[30:60], model_output="response", **options)
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, model.predict(X[:30]), rtol=1e-5)
    np.testing.assert_allclose(explanation.base_values, model.predict(X[30:60]).mean(), rtol=1e-5)
    assert np.ptp(total) > 0.1 * total.mean()
    margin_values = explain(model, X[:30], data=X[30:31], **options)
    assert margin_values.unit == "log of the prediction"
    response, base = model.predict(X[:30]), model.predict(X[30:31])[0]
    apart = np.abs(response - base) > 0.01 * base
    slope = (response - base)[apart] / np.log(response / base)[apart]
    values = explain(model, X[:30], data=X[30:31], model_output="response", **options).values[apart]
    np.testing.assert_allclose(
        values, margin_values.values[apart] * slope[:, np.newaxis], rtol=1e-4, atol=1e-5 * base
    )


@pytest.mark.usefixtures("on_cpu")
def test_single_precision_of_functions_of_the_margin() -> None:
    model = boosting()
    for model_output in OUTPUTS:
        exact = explain(
            model, X[:50], data=X[50:80], model_output=model_output, times=TIMES, precision="double"
        )
        single = explain(model, X[:50], data=X[50:80], model_output=model_output, times=TIMES)
        scale = np.abs(exact.values).max(axis=(0, 1)) + 1e-300
        assert (np.abs(single.values - exact.values).max(axis=(0, 1)) <= 1e-5 * scale).all()


# ---- everything that follows ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def forest() -> Any:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(WITH_NAN, columns=list("cadbe"))
    return survival("RandomSurvivalForest", n_estimators=4, max_depth=4).fit(frame, outcome()), frame


def test_transformer_batches_file_and_pickle(forest: Any, tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    model, frame = forest
    options: dict[str, Any] = {"model_output": "survival", "times": [8.5, 20]}
    expected = explain(model, frame, **options).to_frame()
    assert list(expected.columns)[:3] == ["c__8.5", "c__20.0", "a__8.5"]
    transformer = ShapTransformer.from_fitted(model, **options).set_output(transform="pandas")
    assert transformer.transform(frame).equals(expected)

    frame.to_parquet(tmp_path / "rows.parquet")
    explain_batches(model, tmp_path / "rows.parquet", tmp_path / "values.parquet", batch_size=100, **options)
    written = pq.read_table(tmp_path / "values.parquet").to_pandas()
    np.testing.assert_allclose(written[expected.columns], expected, rtol=0, atol=1e-7)

    explainer = TreeExplainer(model, **options)
    explainer.save(tmp_path / "explainer.npz")
    for other in (TreeExplainer.load(tmp_path / "explainer.npz"), pickle.loads(pickle.dumps(explainer))):
        assert other.times == (8.5, 20) and other.model_output == "survival"
        assert other.explain(frame).to_frame().equals(expected)
    assert "survival" in repr(explainer)

    boosted = TreeExplainer(boosting(), X[:20], **options)
    boosted.save(tmp_path / "boosted.npz")
    loaded = TreeExplainer.load(tmp_path / "boosted.npz")
    np.testing.assert_array_equal(loaded.shap_values(X), boosted.shap_values(X))
    assert loaded.times == (8.5, 20)


def test_pipeline_cross_validation_and_importance(forest: Any) -> None:
    _, frame = forest
    model = make_pipeline(
        SimpleImputer().set_output(transform="pandas"),
        ShapTransformer(
            survival("RandomSurvivalForest", n_estimators=3, max_depth=4),
            model_output="cumulative_hazard",
            times=[8.0, 20.0],
        ),
    )
    transformed = model.fit(frame, outcome()).transform(frame)
    assert transformed.shape == (240, 10)
    results = cross_val_explain(model, frame, outcome(), cv=3)
    explanation = results["explanation"]
    assert explanation.output_names == (8.0, 20.0) and explanation.shape == (240, 5, 2)
    assert np.isfinite(explanation.values).all() and results["importances"].shape == (3, 5)
    fold = results["fold"]
    again = model.fit(frame[fold != 1], outcome(fold != 1))
    rows = frame[fold == 1]
    hazard = functions(again[-1].estimator_, "cumulative_hazard", again[:-1].transform(rows), [8.0, 20.0])
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total[fold == 1], hazard, rtol=1e-5, atol=1e-5)
    options = {"model_output": "survival", "times": [8.0]}
    ranked = shap_importance(model[-1].estimator_, frame.fillna(0.0), explain_params=options)
    assert len(ranked.importances_mean) == 5


# ---- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"model_output": "survival"}, "is a function of time: give times="),
        ({"times": [3.0]}, "times= are for model_output='survival'"),
        ({"model_output": "survival", "times": []}, "one or more finite"),
        ({"model_output": "survival", "times": [3.0, np.nan]}, "one or more finite"),
        ({"model_output": "survival", "times": [3.0, 3]}, "differ from each other"),
        ({"model_output": "survival", "times": ["3"]}, "must be numbers"),
        ({"model_output": "survival", "times": [3.0, -0.1]}, "-0.1 is not between 0 and"),
        ({"model_output": "survival", "times": [3.0, LAST + 1]}, "end at the last time of its training rows"),
        ({"model_output": "response", "times": [3.0]}, "times= are for"),
    ],
)
def test_times_are_checked(options: dict[str, Any], message: str) -> None:
    model = survival("RandomSurvivalForest", n_estimators=2).fit(X, outcome())
    with pytest.raises((ValueError, TypeError), match=message):
        TreeExplainer(model, **options)


@pytest.mark.parametrize(
    "make, model_output, data, message",
    [
        (lambda: cox(), "survival", X, "estimates no baseline hazard"),
        (lambda: aft(), "cumulative_hazard", X, "use 'survival', whose negative logarithm"),
        (lambda: aft(), "survival", None, "against background rows only: give data="),
        (lambda: boosting(), "survival", None, "against background rows only: give data="),
        (lambda: boosting(loss="squared"), "survival", X, "functions of time need loss='coxph'"),
        (lambda: regressor(), "survival", X, "needs a model of survival over time"),
        (
            lambda: survival("RandomSurvivalForest", n_estimators=2, low_memory=True).fit(X, outcome()),
            "survival",
            None,
            "fit it with low_memory=False",
        ),
    ],
)
def test_models_without_such_a_function(
    make: Callable[[], Any], model_output: str, data: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        TreeExplainer(make(), data, model_output=model_output, times=[5.0])


def regressor() -> Any:
    return library("xgboost").XGBRegressor(n_estimators=2).fit(X, TIME)


@pytest.mark.usefixtures("on_cpu")
def test_other_refusals() -> None:
    with pytest.raises(ValueError, match=r"times: 0 is not between .*: times are positive"):
        TreeExplainer(aft(), X, model_output="survival", times=[0, 1])
    with pytest.raises(ValueError, match="prediction is known to be the exponential"):
        TreeExplainer(regressor(), X, model_output="response")
    with pytest.raises(ValueError, match="are those of the margin: use model_output='raw'"):
        explain_interactions(boosting(), X, data=X[:9], model_output="survival", times=5.0)
    with (
        devices.elsewhere(),
        pytest.raises(ValueError, match="survival probability are computed on the CPU only"),
    ):
        TreeExplainer(boosting(), X[:9], model_output="survival", times=5.0, device="cuda")
    counted = {"data": X, "feature_perturbation": "tree_path_dependent"}
    with pytest.raises(ValueError, match="against background rows only"):
        TreeExplainer(boosting(), model_output="survival", times=5.0, **counted)


@pytest.mark.usefixtures("on_cpu")
def test_a_response_that_overflows_is_refused() -> None:
    """exp of a margin beyond 709 is infinite, and no values can add up to infinity."""
    adapted = adapt(boosting())
    ensemble = replace(adapted.ensemble, value=1000 * adapted.ensemble.value)
    assert ensemble.margin(X).max() > 720
    with pytest.raises(RuntimeError, match="additivity check failed"):
        explain(replace(adapted, ensemble=ensemble), X, data=X[:20], model_output="response")
