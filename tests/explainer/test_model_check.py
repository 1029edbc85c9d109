"""The first call of an explainer compares it with the model's own prediction."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.families import (
    classifier,
    forest,
    forest_classifier,
    frame_with_categories,
    library,
    regressor,
    with_categories,
)
from sklearn.ensemble import GradientBoostingClassifier, IsolationForest, RandomForestRegressor
from sklearn.feature_selection import RFE
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skshapgpu import PredictionMismatchError, TreeExplainer, explain, explain_batches, explain_interactions
from skshapgpu.adapters import AdaptedModel, Ensemble, InputSchema, adapt

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 5))
Y = 100.0 + 3.0 * X[:, 0] + X[:, 1] * X[:, 2] + X[:, 3]
LABELS = (X[:, 0] + X[:, 1] > 0).astype(int)


def treelite_model() -> Any:
    return library("treelite").frontend.from_xgboost(regressor("xgboost").fit(X, Y).get_booster())


#: A fitted model of each family and form for which the package calls the model's own prediction.
MODELS = {
    "HistGradientBoosting": lambda: regressor("sklearn").fit(X, Y),
    "forest": lambda: forest().fit(X, Y),
    "forest_classifier": lambda: forest_classifier().fit(X, LABELS),
    "GradientBoosting": lambda: GradientBoostingClassifier(n_estimators=8, random_state=0).fit(X, LABELS),
    "IsolationForest": lambda: IsolationForest(n_estimators=8, random_state=0).fit(X),
    "xgboost": lambda: regressor("xgboost").fit(X, Y),
    "xgboost_classifier": lambda: classifier("xgboost").fit(X, LABELS),
    "Booster": lambda: classifier("xgboost").fit(X, LABELS).get_booster(),
    "lightgbm": lambda: regressor("lightgbm").fit(X, Y),
    "lightgbm_classifier": lambda: classifier("lightgbm").fit(X, LABELS),
    "lightgbm_Booster": lambda: regressor("lightgbm").fit(X, Y).booster_,
    "catboost": lambda: regressor("catboost").fit(X, Y),
    "catboost_classifier": lambda: classifier("catboost").fit(X, LABELS),
    "treelite": treelite_model,
}


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {}


@pytest.fixture(params=MODELS)
def model(request: Any, models: dict[str, Any]) -> Any:
    if request.param not in models:
        models[request.param] = MODELS[request.param]()
    return models[request.param]


def with_changes(adapted: AdaptedModel, **changes: Any) -> AdaptedModel:
    return replace(adapted, ensemble=replace(adapted.ensemble, **changes))


def shifted_threshold(adapted: AdaptedModel) -> AdaptedModel:
    """Raise the thresholds of the first tree, whose column varies, above the values of all rows."""
    ensemble = adapted.ensemble
    threshold = ensemble.threshold.copy()
    threshold[: ensemble.tree_offsets[1]] += 10.0
    return with_changes(adapted, threshold=threshold)


def changed_intercept(adapted: AdaptedModel) -> AdaptedModel:
    return with_changes(adapted, intercept=adapted.ensemble.intercept + 1e-3)


def swapped_columns(adapted: AdaptedModel) -> AdaptedModel:
    columns = np.arange(adapted.ensemble.n_features)
    columns[:2] = 1, 0
    return with_changes(adapted, feature=columns[np.maximum(adapted.ensemble.feature, 0)])


def dropped_tree(adapted: AdaptedModel) -> AdaptedModel:
    """Drop the last tree."""
    ensemble, end = adapted.ensemble, adapted.ensemble.tree_offsets[-2]
    names = ("left", "right", "feature", "threshold", "missing_left", "cover", "value")
    nodes = {name: getattr(ensemble, name)[:end] for name in names}
    if len(ensemble.category_set):
        nodes["category_set"] = ensemble.category_set[:end]
    return with_changes(
        replace(adapted, other_covers={}),
        tree_offsets=ensemble.tree_offsets[:-1],
        tree_output=ensemble.tree_output[:-1],
        **nodes,
    )


def other_precision(adapted: AdaptedModel) -> AdaptedModel:
    """Read X in the other precision than the library."""
    other = {"float32": "float64", "float64": "float32"}[adapted.ensemble.x_dtype]
    return with_changes(adapted, x_dtype=other)


def beside_thresholds(ensemble: Ensemble) -> np.ndarray:
    """Return rows with a number next to a threshold; float32 moves many of them to the other side."""
    rows = np.repeat(X, 4, axis=0)
    inner = np.flatnonzero(ensemble.left >= 0)
    node = np.random.default_rng(0).choice(inner, len(rows))
    threshold = ensemble.threshold[node]
    distance = np.tile([-0.3, -0.01, 0.01, 0.3], len(X)) * np.spacing(np.float32(threshold))
    rows[np.arange(len(rows)), ensemble.feature[node]] = threshold + distance
    return rows


@pytest.mark.parametrize("plant", [shifted_threshold, changed_intercept, swapped_columns, dropped_tree])
def test_a_planted_mistake_is_found(model, plant):
    adapted = adapt(model)
    assert explain(model, X).checked_against == "model"
    for call in (TreeExplainer.explain, TreeExplainer.shap_values, TreeExplainer.shap_interaction_values):
        with pytest.raises(PredictionMismatchError, match="report this"):
            call(TreeExplainer(plant(adapted)), X)
    TreeExplainer(plant(adapted), check_additivity=False).explain(X)
    TreeExplainer(plant(adapted)).shap_values(X, check_additivity=False)


def test_a_changed_intercept_is_found_far_from_zero():
    """The resolution of float32 at the margin, 0.1, is no excuse: values of float32 are not as large."""
    rows = X.astype(np.float32)
    fitted = RandomForestRegressor(5, max_depth=4, random_state=0).fit(rows, X[:, 0] + 1e5)
    assert explain(fitted, rows).checked_against == "model"
    with pytest.raises(PredictionMismatchError):
        explain(changed_intercept(adapt(fitted)), rows)


def test_another_precision_of_x_is_found(model):
    adapted = adapt(model)
    rows = beside_thresholds(adapted.ensemble)
    changed = other_precision(adapted)
    differs = (adapted.ensemble.margin(rows) != changed.ensemble.margin(rows)).any(axis=1)
    rows = rows[differs][:16]
    assert len(rows)
    assert explain(model, rows).checked_against == "model"
    with pytest.raises(PredictionMismatchError):
        explain(changed, rows)


@pytest.mark.parametrize("family", ["sklearn", "xgboost", "lightgbm", "catboost"])
def test_a_flipped_category_is_found(family):
    frame, y = frame_with_categories()
    if family == "catboost":
        frame["color"] = frame["color"].astype(str)
        fitted = regressor(family, one_hot_max_size=10).fit(frame, y, cat_features=["color"])
    else:
        fitted = with_categories(family, frame, y)
    adapted = adapt(fitted)
    assert explain(fitted, frame).checked_against == "model"
    flipped = with_changes(adapted, category_listed_left=~adapted.ensemble.category_listed_left)
    with pytest.raises(PredictionMismatchError):
        explain(flipped, frame)
    encoders = dict(adapted.schema.encoders)
    if encoders:  # one category read as another
        swapped = replace(adapted, schema=replace(adapted.schema, encoders={1: Swapped(encoders[1])}))
        with pytest.raises(PredictionMismatchError):
            explain(swapped, frame)


class Swapped:
    """Encoder that takes code 0 for code 1 and the reverse."""

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder

    def encode(self, column: Any) -> np.ndarray:
        codes = self.encoder.encode(column)
        return np.select([codes == 0, codes == 1], [1.0, 0.0], codes)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("model_output", ["probability", "log_loss", "response"])
def test_functions_of_the_margin_are_compared(model_output):
    xgboost = library("xgboost")
    if model_output == "response":
        fitted = xgboost.XGBRegressor(n_estimators=8, objective="count:poisson").fit(X, np.abs(Y))
    else:
        fitted = classifier("lightgbm").fit(X, LABELS)
    options = {"data": X[:20], "model_output": model_output}
    y = LABELS if model_output == "log_loss" else None
    assert explain(fitted, X, y, **options).checked_against == "model"
    with pytest.raises(PredictionMismatchError):
        explain(changed_intercept(adapt(fitted)), X, y, **options)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("step", [88.0, 100.0, 120.0])
def test_predictions_below_the_normal_range(step: float) -> None:
    """XGBoost rounds them to multiples of 1.4e-45, and to zero."""
    model = library("xgboost").XGBRegressor(
        objective="reg:gamma", n_estimators=1, learning_rate=1.0, base_score=0.3, reg_lambda=0.0
    )
    model.set_params(min_child_weight=0.0, max_delta_step=step).fit(X, np.full(len(X), 1e-30))
    assert model.predict(X).max() < 1e-37
    assert explain(model, X, data=X[:20], model_output="response").checked_against == "model"


def test_both_outputs_of_a_binary_classifier_are_compared():
    for fitted in (forest_classifier().fit(X, LABELS), classifier("xgboost").fit(X, LABELS)):
        assert explain(fitted, X, outputs="all").checked_against == "model"
        with pytest.raises(PredictionMismatchError):
            explain(dropped_tree(adapt(fitted)), X, outputs="all")


def test_pipelines_are_compared_from_their_own_first_step_on(monkeypatch):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X * [1, 10, 100, 1000, 1], columns=list("abcde"))
    pipeline = make_pipeline(StandardScaler(), RFE(regressor("lightgbm"), n_features_to_select=3))
    pipeline.fit(frame, Y)
    assert explain(pipeline, frame).checked_against == "model"
    scaled = make_pipeline(StandardScaler(), forest()).fit(frame, Y)
    monkeypatch.setattr("skshapgpu._explainer.compiled_explainer.unwrap", lambda model: ([], scaled[-1]))
    with pytest.raises(PredictionMismatchError), pytest.warns(UserWarning, match="feature names"):
        explain(scaled, frame)


def test_every_form_of_x_is_compared_as_it_is():
    pd, sparse = pytest.importorskip("pandas"), pytest.importorskip("scipy.sparse")
    fitted = regressor("xgboost").fit(X, Y)
    forms = {
        "list": X.tolist(),
        "float32": X.astype(np.float32),
        "big-endian": X.astype(">f8"),
        "frame": pd.DataFrame(X),
        "sparse": sparse.csr_array(X),
        "DMatrix": library("xgboost").DMatrix(X),
        "one row": X[:1],
    }
    for name, rows in forms.items():
        assert explain(fitted, rows).checked_against == "model", name


def test_categories_of_polars_are_compared_as_those_of_pandas():
    """CatBoost itself reads foreign memory, and ends the process."""
    pl, (frame, y) = library("polars"), frame_with_categories()
    fitted = regressor("catboost").fit(frame.astype({"color": str}), y, cat_features=["color"])
    assert explain(fitted, pl.from_pandas(frame)).checked_against == "model"


def test_the_first_call_compares_and_no_other(monkeypatch):
    fitted = forest().fit(X, Y)
    calls = []
    predict = fitted.predict
    monkeypatch.setattr(type(fitted), "predict", lambda self, X: calls.append(len(X)) or predict(X))
    monkeypatch.setattr(type(fitted).predict, "__module__", type(fitted).__module__, raising=False)
    explainer = TreeExplainer(fitted)
    assert explainer.shap_values(X[:0]).shape == (0, 5) and not calls  # nothing to compare
    explainer.explain(X)
    explainer.explain(X)
    explainer.explain_interactions(X[:3])
    assert calls == [16]
    assert explainer._agreement._model is None and not explainer._agreement._predictions


def test_values_that_do_not_add_up_are_of_a_compared_model():
    fitted = forest().fit(X, Y)
    assert explain(fitted, X, index="BV").checked_against == "model"
    assert explain_interactions(fitted, X, interactions=3).checked_against == "model"
    with pytest.raises(PredictionMismatchError):
        explain(dropped_tree(adapt(fitted)), X, index="BV")


def test_a_model_that_is_trained_further_is_explained_as_it_was():
    fitted = regressor("sklearn", warm_start=True).fit(X, Y)
    explainer, before = TreeExplainer(fitted), fitted.predict(X)
    fitted.set_params(max_iter=30).fit(X, Y)
    explanation = explainer.explain(X)
    assert np.abs(fitted.predict(X) - before).max() > 0.1
    np.testing.assert_allclose(explanation.base_values + explanation.values.sum(1), before, rtol=1e-6)
    assert explanation.checked_against == "trees"
    assert "was changed" in explanation.check_note


def test_steps_whose_rows_depend_on_each_other_are_no_mistake():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcde"))
    pipeline = make_pipeline(FunctionTransformer(lambda rows: rows - rows.mean()), forest()).fit(frame, Y)
    explanation = explain(pipeline, frame)
    expected = pipeline.predict(frame)
    np.testing.assert_allclose(explanation.base_values + explanation.values.sum(1), expected, rtol=1e-6)
    assert explanation.checked_against == "trees"
    assert "alone" in explanation.check_note


def test_a_custom_adapter_states_its_prediction():
    ensemble = adapt(forest().fit(X, Y)).ensemble
    silent = AdaptedModel(ensemble, InputSchema(5), "mine")
    explanation = explain(silent, X)
    assert explanation.checked_against == "trees" and "mine" in explanation.check_note
    spoken = replace(silent, predictions={"raw": ensemble.margin})
    assert explain(spoken, X).checked_against == "model"
    with pytest.raises(PredictionMismatchError, match="differ by 1,"):
        explain(replace(silent, predictions={"raw": lambda rows: ensemble.margin(rows) + 1.0}), X)


def test_files_are_read_without_their_library(tmp_path):
    model = regressor("xgboost").fit(X, Y)
    model.save_model(tmp_path / "model.ubj")
    explanation = explain(tmp_path / "model.ubj", X)
    assert explanation.checked_against == "trees"
    assert "pass the model that the library loads" in explanation.check_note


def test_a_prediction_that_fails_is_said(tmp_path):
    silent = replace(adapt(forest().fit(X, Y)), predictions={"raw": lambda rows: rows.nothing})
    explanation = explain(silent, X)
    assert explanation.checked_against == "trees" and "AttributeError" in explanation.check_note


def test_pickles_and_files_remember(tmp_path):
    fitted = forest().fit(X, Y)
    explainer = TreeExplainer(fitted)
    assert pickle.loads(pickle.dumps(explainer)).explain(X).checked_against == "trees"
    explainer.save(tmp_path / "before.npz")
    assert TreeExplainer.load(tmp_path / "before.npz").explain(X).checked_against == "trees"
    explainer.explain(X)
    assert pickle.loads(pickle.dumps(explainer)).explain(X).checked_against == "model"
    explainer.save(tmp_path / "after.npz")
    assert TreeExplainer.load(tmp_path / "after.npz").explain(X).checked_against == "model"


def test_batches_are_compared(tmp_path):
    broken = dropped_tree(adapt(forest().fit(X, Y)))
    with pytest.raises(PredictionMismatchError):
        explain_batches(broken, X, tmp_path / "values.npy", batch_size=50)


def test_rounding_of_float32_is_no_mistake():
    xgboost = library("xgboost")
    fitted = xgboost.XGBRegressor(n_estimators=600, max_depth=3, learning_rate=0.03, base_score=0.0)
    fitted.fit(X, 1e6 + Y)
    error = np.abs(adapt(fitted).ensemble.margin(X)[:, 0] - fitted.predict(X)).max()
    assert error > 0.05  # the library's own
    assert explain(fitted, X, precision="double").checked_against == "model"


@pytest.mark.usefixtures("on_cpu")
def test_rounding_within_linear_leaves_is_no_mistake():
    lgb = library("lightgbm")
    rng = np.random.default_rng(0)
    deviations = rng.normal(size=(500, 3))
    rows = 0.7 + 1e-7 * deviations  # terms of some 10 million, which cancel
    options = {"linear_tree": True, "linear_lambda": 0.0, "n_jobs": 1, "verbose": -1}
    fitted = lgb.LGBMRegressor(n_estimators=15, num_leaves=3, learning_rate=1.0, **options)
    fitted.fit(rows, deviations @ [1.0, 2.0, 3.0])
    explanation = explain(fitted, rows, data=rows[:5], precision="double")
    error = np.abs(explanation.base_values + explanation.values.sum(axis=1) - fitted.predict(rows)).max()
    assert error > 1e-9
    assert explanation.checked_against == "model"
