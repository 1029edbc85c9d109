"""Values of probabilities and losses: the public API and errors, on the device of the test run."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.models import CLASSES
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

from skshapgpu import ShapTransformer, TreeExplainer, explain, explain_interactions
from skshapgpu._common.algorithms import SHAP_VALUES

X, Y = load_diabetes(return_X_y=True)
HIGH = Y > 140


def explainer_of(model: Any, data: Any, model_output: str = "probability", **options: Any) -> TreeExplainer:
    return TreeExplainer(model, data, model_output=model_output, **options)


# The public API


@pytest.fixture(scope="module")
def boosting() -> Any:
    return GradientBoostingClassifier(n_estimators=8, max_depth=3, random_state=0).fit(X, HIGH)


@pytest.fixture(scope="module")
def named() -> Any:
    """A classifier whose classes are strings."""
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
    assert part.sum_by({"both": part.feature_names}).base_values.shape == (4,)
    assert f"base value: {explanation.base_values.mean():.6g} on average" in repr(explanation)
    assert "base value: one for each row" in repr(explanation[:0])
    of_background = [-np.log(named.predict_proba(X[:20])[:, column]).mean() for column in range(2)]
    np.testing.assert_allclose(explainer.expected_value(["no", "yes"]), of_background, rtol=1e-12)
    assert isinstance(explainer.expected_value("yes"), float)
    for labels in (y.tolist(), pandas.Series(y, index=np.arange(len(y)) + 5), y.astype(object), y[:, None]):
        np.testing.assert_array_equal(explainer.shap_values(X, labels), explanation.values)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(explainer)).shap_values(X, y), explanation.values)
    direct = explain(named, X, y=y, data=X[:20], model_output="log_loss", precision="double")
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
        weighted = explainer_of(boosting, X[:4], model_output, data_weight=[2, 0, 1, 1], precision="double")
        repeated = explainer_of(boosting, X[[0, 0, 2, 3]], model_output, precision="double")
        np.testing.assert_allclose(
            weighted.shap_values(X, labels), repeated.shap_values(X, labels), rtol=0, atol=1e-14
        )


@pytest.mark.usefixtures("on_cpu")
def test_memory_limit_changes_no_bit(boosting: Any) -> None:
    expected = explainer_of(boosting, X[:10], "log_loss").shap_values(X, HIGH)
    scratch = explainer_of(boosting, X[:10], "log_loss")._compiled.of(SHAP_VALUES).plan().info()
    limit = expected.nbytes + scratch["scratch_bytes_per_thread"] + 4000
    limited = explainer_of(boosting, X[:10], "log_loss", memory_limit=limit)
    np.testing.assert_array_equal(limited.shap_values(X, HIGH), expected)
    with pytest.raises(MemoryError, match="SHAP values"):
        explainer_of(boosting, X[:10], memory_limit=expected.nbytes // 2).shap_values(X)


def test_additivity_is_checked(boosting: Any) -> None:
    for model_output, labels, noun in (("probability", None, "probability"), ("log_loss", HIGH, "log loss")):
        explainer = explainer_of(boosting, X[:10], model_output)
        assert explainer.explain(X, labels).additivity_error < 1e-6
        link = explainer._compiled.link
        assert link is not None
        explainer._compiled.link = replace(link, scale=3.0)  # as if the library had another one
        with pytest.raises(RuntimeError, match=f"additivity check failed at row 0: .* the {noun} is "):
            explainer.shap_values(X, labels)
        unchecked = explainer_of(boosting, X[:10], model_output, check_additivity=False)
        assert unchecked.explain(X, labels).additivity_error is None


def test_pipeline_and_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdefghij"), index=np.arange(len(X)) + 7)
    pipeline = make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=5)).fit(frame, HIGH)
    explanation = explainer_of(pipeline, frame[:8], precision="double").explain(frame)
    assert explanation.row_labels[0] == 7
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total, pipeline.predict_proba(frame)[:, 1], rtol=1e-12)


def test_transformer(boosting: Any) -> None:
    transformer = ShapTransformer(
        GradientBoostingClassifier(n_estimators=4, random_state=0),
        data=X[:9],
        model_output="probability",
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
        ({"model_output": "log_loss"}, "'log_loss' is defined against background rows only: give data="),
        ({"model_output": "margin", "data": X[:3]}, "model_output must be one of 'raw', 'probability', 'log"),
        ({"model_output": None, "data": X[:3]}, "model_output must be one of"),
        (
            {"model_output": "log_loss", "data": X[:3], "feature_perturbation": "tree_path_dependent"},
            "'log_loss' is defined against background rows only: give data= for interventional values",
        ),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):  # before the model is looked at
        TreeExplainer(object(), **options)


@pytest.mark.parametrize("counted", [False, True])
def test_a_probability_that_is_not_the_margin_needs_a_background(counted: bool) -> None:
    options = {"data": X[:3], "feature_perturbation": "tree_path_dependent"} if counted else {}
    for labels in (HIGH, CLASSES):
        model = HistGradientBoostingClassifier(max_iter=3).fit(X, labels)
        with pytest.raises(
            ValueError, match="'probability' is defined against background rows only: give data="
        ):
            TreeExplainer(model, model_output="probability", **options)


def _multiclass() -> Any:
    return HistGradientBoostingClassifier(max_iter=3).fit(X, CLASSES)


def _xgboost_of(objective: str, **options: Any) -> Any:
    xgboost = pytest.importorskip("xgboost")
    options |= {"objective": objective, "nthread": 1}
    target = HIGH if objective.startswith("binary") else Y
    return xgboost.train(options, xgboost.DMatrix(X, target.astype(float)), 3)


def _lightgbm_of(**options: Any) -> Any:
    lightgbm = pytest.importorskip("lightgbm")
    return lightgbm.train({"verbose": -1, "num_threads": 1, **options}, lightgbm.Dataset(X, Y), 3)


@pytest.mark.parametrize(
    "make, model_output, message",
    [
        (
            lambda: _xgboost_of("reg:quantileerror", quantile_alpha=[0.2, 0.7]),
            "probability",
            "needs a classifier whose probability is",
        ),
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
        (np.ma.masked_array(["yes"] * 4, [0, 1, 0, 0]), TypeError, "y is a masked array: leave out the rows"),
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
        with pytest.raises(
            ValueError, match="Banzhaf values are computed for the margin only: use model_output="
        ):
            explainer.explain(X, HIGH, index="BV")
        with pytest.raises(ValueError, match="interaction values of pairs are computed for the margin only"):
            explainer.shap_interaction_values(X)
    with pytest.raises(ValueError, match="y is for model_output='log_loss', not 'probability'"):
        explainer_of(boosting, X[:3]).shap_values(X, HIGH)
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        explain_interactions(boosting, X, y=HIGH)


@pytest.mark.usefixtures("on_cpu")
def test_responses_beyond_single_precision() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(size=(400, 3))
    model = HistGradientBoostingRegressor(loss="gamma", max_iter=30, learning_rate=1.0, min_samples_leaf=3)
    model.fit(rows, np.exp(110 * rows[:, 0] - 5))
    responses = model.predict(rows)
    assert responses.max() > np.finfo(np.float32).max
    explainer = explainer_of(model, rows[:20], "response")
    explanation = explainer.explain(rows)
    assert explainer.precision == "double"
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, responses, atol=1e-10 * responses.max(), rtol=0)
