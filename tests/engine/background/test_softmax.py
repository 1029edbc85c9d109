"""Shapley values of softmax probabilities against the definition with the models' own predict_proba."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import catboost_ctrs
from helpers.families import FAMILIES, classifier, frame_with_categories, library, values_by_definition
from helpers.gpu_rows import OnGpu
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skshapgpu import (
    ShapTransformer,
    TreeExplainer,
    cross_val_explain,
    explain_interactions,
    partial_dependence,
)
from skshapgpu._common.algorithms import SHAP_VALUES
from skshapgpu._common.devices import Devices
from skshapgpu._engine import softmax

pd = pytest.importorskip("pandas")

pytestmark = pytest.mark.usefixtures("on_cpu")


def data(n_rows: int = 240, *, nan: bool = True) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(n_rows, 5)).round(1), columns=list("dacbe"))
    score = 2 * X["a"] + 3 * X["b"] * (X["c"] > 0) + X["d"] + rng.normal(scale=0.3, size=n_rows)
    if nan:
        X = X.mask(rng.random(X.shape) < 0.1)
    return X, np.array(["cat", "ant", "bee"])[np.digitize(score, [-1, 1.2])]


X, Y = data()
CODES = np.unique(Y, return_inverse=True)[1]
DATA, ROWS, WEIGHTS = X[:7], X[50:58], np.arange(7.0)


def by_definition(model: Any, rows: Any, background: Any, groups: Any = ()) -> np.ndarray:
    """Compute values of each class by predict_proba: (n_rows, n_features, n_classes)."""
    return values_by_definition(model.predict_proba, rows, background, groups)


def explainer_of(model: Any, background: Any = DATA, **options: Any) -> TreeExplainer:
    return TreeExplainer(model, background, model_output="probability", **options)


MODELS = {
    **{family: lambda family=family: classifier(family) for family in FAMILIES},
    "sklearn boosting": lambda: GradientBoostingClassifier(n_estimators=8, random_state=0),
    "xgboost vector leaves": lambda: classifier("xgboost", multi_strategy="multi_output_tree"),
    "lightgbm forest": lambda: classifier(
        "lightgbm", boosting_type="rf", bagging_freq=1, bagging_fraction=0.7
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_definition_by_predict_proba(name: str) -> None:
    model = MODELS[name]()
    complete = name == "sklearn boosting"
    frame = X.fillna(0) if complete else X
    background, rows = frame[:7], frame[50:58]
    y = CODES if name.startswith("xgboost") else Y
    model.fit(frame, y)
    tolerance = 2e-6 if name.startswith("xgboost") else 1e-12  # XGBoost predicts in float32
    repeated = background.iloc[np.repeat(np.arange(7), np.arange(7))]
    explanation = explainer_of(model, background, data_weight=WEIGHTS).explain(rows)
    assert explanation.output_names == ((0, 1, 2) if y is CODES else ("ant", "bee", "cat"))
    expected = by_definition(model, rows, repeated)
    assert np.abs(expected).max() > 0.05
    np.testing.assert_allclose(explanation.values, expected, rtol=0, atol=tolerance)
    base = model.predict_proba(repeated).mean(axis=0)
    np.testing.assert_allclose(explanation.base_values, base, rtol=0, atol=tolerance)
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, model.predict_proba(rows), rtol=0, atol=tolerance)
    assert explanation.model_output == "probability" and explanation.additivity_error < 1e-14


@pytest.mark.parametrize("family", ["sklearn", "xgboost", "lightgbm"])
def test_categories(family: str) -> None:
    frame, number = frame_with_categories()
    y = np.digitize(number, [0.2, 1.5])
    options: dict[str, dict[str, Any]] = {
        "sklearn": {"categorical_features": "from_dtype"},
        "xgboost": {"enable_categorical": True, "max_cat_to_onehot": 1},
        "lightgbm": {"min_child_samples": 5, "min_data_per_group": 5, "cat_smooth": 1},
    }
    model = classifier(family, **options[family]).fit(frame, y)
    values = explainer_of(model, frame[:6]).shap_values(frame[20:30])
    assert np.abs(values[:, 1]).max() > 0.02
    expected = by_definition(model, frame[20:30], frame[:6])
    np.testing.assert_allclose(values, expected, rtol=0, atol=2e-6 if family == "xgboost" else 1e-12)


def test_models_that_use_no_feature() -> None:
    rng = np.random.default_rng(0)
    noise, y = rng.normal(size=(40, 3)), np.repeat([0, 1, 1, 2], 10)
    model = HistGradientBoostingClassifier(max_iter=1, min_samples_leaf=30).fit(noise, y)
    explanation = explainer_of(model, noise[:4], data_weight=[1, 2, 3, 4]).explain(noise[:6])
    assert explanation.values.shape == (6, 3, 3)
    assert not explanation.values.any()
    np.testing.assert_allclose(explanation.base_values, model.predict_proba(noise[:1])[0], rtol=0, atol=1e-15)


def test_groups_and_used_columns() -> None:
    frame = X[["a", "b", "d"]].assign(constant=1.0)
    model = classifier("sklearn").fit(frame, Y)
    background, rows = frame[:7], frame[50:58]
    groups = [["a", "d"], ["b"], ["constant"]]
    explainer = explainer_of(model, background, feature_groups={"both": ["d", "a"]})
    assert explainer.explain(rows).feature_names == ("both", "b", "constant")
    expected = by_definition(model, rows, background, groups)
    np.testing.assert_allclose(explainer.shap_values(rows), expected, rtol=0, atol=1e-12)
    used = explainer_of(model, background, columns="used")
    alone = by_definition(model, rows, background)
    assert used.feature_indices.tolist() == [0, 1, 2]
    np.testing.assert_allclose(used.shap_values(rows), alone[:, :3], rtol=0, atol=1e-12)
    assert np.abs(expected[:, 0] - alone[:, 0] - alone[:, 2]).max() > 1e-3


def test_columns_that_share_values() -> None:
    """CTRs of single columns and of combinations: probabilities add up, and players share evenly."""
    frame = catboost_ctrs.rows(n_rows=300)
    y = np.digitize(catboost_ctrs.target(frame), np.quantile(catboost_ctrs.target(frame), [0.3, 0.7]))
    options = catboost_ctrs.OPTIONS | {"iterations": 4, "depth": 3, "max_ctr_complexity": 2}
    catboost = library("catboost")
    model = catboost.CatBoostClassifier(**options, cat_features=catboost_ctrs.CATEGORIES).fit(frame, y)
    explainer = explainer_of(model, frame[:4])
    assert explainer._compiled.sharing is not None
    rows = frame[100:106]
    explanation = explainer.explain(rows)
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, model.predict_proba(rows), rtol=0, atol=1e-10)
    single = catboost.CatBoostClassifier(
        **options | {"max_ctr_complexity": 1}, cat_features=catboost_ctrs.CATEGORIES
    ).fit(frame, y)
    values = explainer_of(single, frame[:4]).shap_values(rows)
    np.testing.assert_allclose(values, by_definition(single, rows, frame[:4]), rtol=0, atol=1e-10)


def test_sparse_rows_float32_and_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.sparse import csr_matrix

    full = X.fillna(0).to_numpy()
    wide = np.hstack([full, np.zeros((len(full), 40))])
    model = GradientBoostingClassifier(n_estimators=8, random_state=0).fit(wide, Y)
    explainer = explainer_of(model, wide[:7])
    expected = explainer.shap_values(wide[50:58])
    np.testing.assert_array_equal(explainer.shap_values(csr_matrix(wide[50:58])), expected)
    np.testing.assert_array_equal(explainer_of(model, wide[:7], n_jobs=2).shap_values(wide[50:58]), expected)
    single = explainer.explain(wide[50:58].astype(np.float32))
    assert single.values.dtype == np.float32
    np.testing.assert_allclose(single.values, expected, rtol=0, atol=1e-6)
    monkeypatch.setattr(softmax, "_MIXTURES_AT_ONCE", 30)
    np.testing.assert_allclose(explainer.shap_values(wide[50:58]), expected, rtol=0, atol=1e-15)
    done: list[int] = []
    explainer.explain(wide[:9], progress=lambda n, total: done.append(n))
    assert done[-1] == 9


def test_files_pickles_and_transformers(tmp_path: Path) -> None:
    model = classifier("sklearn").fit(X, Y)
    explainer = explainer_of(model)
    expected = explainer.shap_values(ROWS)
    explainer.save(tmp_path / "explainer")
    for again in (TreeExplainer.load(tmp_path / "explainer"), pickle.loads(pickle.dumps(explainer))):
        np.testing.assert_array_equal(again.shap_values(ROWS), expected)
        np.testing.assert_array_equal(again.expected_value, explainer.expected_value)
    transformer = ShapTransformer(classifier("sklearn"), data=DATA, model_output="probability").fit(X, Y)
    np.testing.assert_array_equal(transformer.transform(ROWS), expected.reshape(8, -1))
    assert explainer.plan(10).device == "cpu"
    table = X[["b", "a"]].assign(kind=np.where(X["a"] > 0, "high", "low"))
    encode = make_column_transformer((OneHotEncoder(sparse_output=False), ["kind"]), remainder="passthrough")
    pipeline = make_pipeline(encode, classifier("sklearn")).fit(table, Y)
    by_input = explainer_of(pipeline, table[:5], feature_groups="input")
    order = list(by_input.explain(table[:1]).feature_names)
    values = by_definition(pipeline, table[50:54], table[:5])[:, [table.columns.get_loc(n) for n in order]]
    np.testing.assert_allclose(by_input.shap_values(table[50:54]), values, rtol=0, atol=1e-12)


def test_partial_dependence_of_probabilities() -> None:
    model = classifier("sklearn").fit(X, Y)
    found = partial_dependence(model, X, "a", model_output="probability", grid_resolution=7, kind="both")
    for i, value in enumerate(found.grid_values[0]):
        expected = model.predict_proba(X.assign(a=value))
        np.testing.assert_allclose(found.individual[:, :, i].T, expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.average[:, i], expected.mean(axis=0), rtol=0, atol=1e-12)


def test_cross_validation() -> None:
    options = {"data": DATA, "model_output": "probability"}
    results = cross_val_explain(
        classifier("sklearn"), X, Y, cv=3, explain_params=options, return_estimator=True
    )
    explanation = results["explanation"]
    total = explanation.base_values + explanation.values.sum(axis=1)
    for number, model in enumerate(results["estimator"]):
        test = results["fold"] == number
        np.testing.assert_allclose(total[test], model.predict_proba(X[test]), rtol=0, atol=1e-12)


def test_additivity_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = explainer_of(classifier("sklearn").fit(X, Y))
    plan = explainer._compiled.of(SHAP_VALUES).plan()
    monkeypatch.setattr(plan, "_shares", plan._shares * 1.001)
    with pytest.raises(RuntimeError, match=r"additivity check failed .* the probability is"):
        explainer.shap_values(ROWS)


def test_gpus_are_refused() -> None:
    explainer = explainer_of(classifier("sklearn").fit(X, Y), device="cpu")
    what = "SHAP values of a probability are computed on the CPU only"
    with pytest.raises(TypeError, match=f"{what}, but X is on a GPU"):
        explainer.shap_values(OnGpu())
    explainer._compiled.options = replace(explainer._compiled.options, devices=Devices(indices=(0,)))
    with pytest.raises(ValueError, match=f"{what}: use device='cpu' or 'auto'"):
        explainer.explain(ROWS)


def test_refused() -> None:
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(300, 12))
    y = np.digitize(wide.sum(axis=1), [-2, 2])
    model = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(wide, y)
    message = r"2\^12 coalitions of the 12 features .* 300 background rows: 1,228,800 for each row"
    with pytest.raises(ValueError, match=message):
        explainer_of(model, wide)
    one = np.eye(1, 300).ravel()  # rows without weight do not count
    grouped = explainer_of(model, wide, feature_groups={"rest": list(range(4, 12))}, data_weight=one)
    total = grouped.expected_value + grouped.shap_values(wide[5:7]).sum(axis=1)
    np.testing.assert_allclose(total, model.predict_proba(wide[5:7]), rtol=0, atol=1e-12)
    wide = rng.normal(size=(300, 17))
    y = np.digitize(wide.sum(axis=1), [-2, 2])
    model = HistGradientBoostingClassifier(max_iter=30, random_state=0).fit(wide, y)
    with pytest.raises(ValueError, match="At most 16 features"):
        explainer_of(model, wide[:1])
    few = classifier("sklearn").fit(X, Y)
    with pytest.raises(ValueError, match="are computed for the margin only"):
        explainer_of(few).explain(ROWS, index="BV")
    with pytest.raises(ValueError, match="are computed for the margin only"):
        explain_interactions(few, ROWS, data=DATA, model_output="probability")
    with pytest.raises(ValueError, match="defined against background rows only"):
        TreeExplainer(few, model_output="probability")
