"""Interventional SHAP values: the public API, the transformer, errors."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.checks import shrink_leaves
from helpers.gpu_rows import OnGpu
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import ShapTransformer, TreeExplainer, explain
from skshapgpu._common.devices import Devices
from skshapgpu._engine.costs.trees import CPU_BESIDE_GPU

X, Y = load_diabetes(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)
CLASSES = np.digitize(Y, [100, 180])


def explainer_of(model: Any, data: Any, **options: Any) -> TreeExplainer:
    return TreeExplainer(model, data, device="cpu", **options)


# The public API


def test_base_value_is_the_mean_prediction_of_the_background(forest: Any) -> None:
    explainer = explainer_of(forest, X[:50], precision="double")
    assert explainer.expected_value == pytest.approx(forest.predict(X[:50]).mean(), rel=1e-12)
    explanation = explainer.explain(X)
    assert explanation.values.shape == X.shape and explanation.values.dtype == np.float64
    assert explanation.base_values == explainer.expected_value
    np.testing.assert_allclose(
        explanation.values.sum(axis=1) + explainer.expected_value, forest.predict(X), rtol=1e-12
    )
    np.testing.assert_array_equal(explainer.shap_values(X), explanation.values)
    weights = np.arange(50)
    weighted = explainer_of(forest, X[:50], data_weight=weights, precision="double")
    mean = np.average(forest.predict(X[:50]), weights=weights)
    assert weighted.expected_value == pytest.approx(mean, rel=1e-12)


def test_what_auto_means(forest: Any) -> None:
    with_data, without = explainer_of(forest, X[:5]), TreeExplainer(forest, device="cpu")
    named = explainer_of(forest, X[:5], feature_perturbation="interventional")
    assert with_data.feature_perturbation == named.feature_perturbation == "interventional"
    assert without.feature_perturbation == "tree_path_dependent"
    np.testing.assert_array_equal(with_data.shap_values(X), named.shap_values(X))
    path_dependent = TreeExplainer(forest, feature_perturbation="tree_path_dependent", device="cpu")
    np.testing.assert_array_equal(path_dependent.shap_values(X), without.shap_values(X))
    assert not np.allclose(with_data.shap_values(X), without.shap_values(X))


def test_what_is_shown(forest: Any) -> None:
    explainer = explainer_of(forest, X[:5])
    assert repr(explainer).endswith("single precision, 5 background rows>")
    explanation = explainer.explain(X[:3])
    assert explanation.feature_perturbation == explanation[1:].feature_perturbation == "interventional"
    assert "feature perturbation: interventional" in repr(explanation)
    path_dependent = TreeExplainer(forest, device="cpu")
    assert "background" not in repr(path_dependent)
    assert "feature perturbation: tree_path_dependent" in repr(path_dependent.explain(X[:3]))
    assert explainer.model_info()["n_trees"] == 6


def test_weights_count_rows(forest: Any) -> None:
    """A weight of 2 is equivalent to repeating the row, and a weight of 0 to omitting it."""
    weighted = explainer_of(forest, X[:4], data_weight=[2, 0, 1, 1], precision="double")
    repeated = explainer_of(forest, X[[0, 0, 2, 3]], precision="double")
    np.testing.assert_allclose(weighted.shap_values(X[50:]), repeated.shap_values(X[50:]), atol=1e-10)
    huge = explainer_of(forest, X[:4], data_weight=np.array([2, 0, 1, 1]) * 8e307, precision="double")
    np.testing.assert_allclose(huge.shap_values(X[50:]), weighted.shap_values(X[50:]), atol=1e-10)


def test_float32(forest: Any) -> None:
    rows = X.astype(np.float32)
    values = explainer_of(forest, rows[:5]).shap_values(rows)
    assert values.dtype == np.float32
    np.testing.assert_allclose(
        values, explainer_of(forest, rows[:5]).shap_values(rows.astype(float)), atol=1e-3
    )


def test_both_classes_of_a_binary_classifier() -> None:
    forest = RandomForestClassifier(5, max_depth=4, random_state=0).fit(CANCER, BENIGN)
    boosting = GradientBoostingClassifier(n_estimators=4, random_state=0).fit(CANCER, BENIGN)
    for model, total in ((forest, 1), (boosting, 0)):
        one = explainer_of(model, CANCER[:6])
        both = explainer_of(model, CANCER[:6], outputs="all")
        values = both.shap_values(CANCER[:20])
        np.testing.assert_array_equal(values[..., 1], one.shap_values(CANCER[:20]))
        np.testing.assert_array_equal(values[..., 0], -values[..., 1])
        assert both.expected_value.sum() == pytest.approx(total, abs=1e-12)


def test_any_table_is_a_background(forest: Any) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    expected = explainer_of(forest, X[:7]).shap_values(X)
    for data in (
        X[:7].tolist(),
        np.asfortranarray(X[:7]),
        np.repeat(X[:7], 2, axis=0)[::2],
        sp.csr_array(X[:7]),
        pandas.DataFrame(X[:7]),
        polars.DataFrame(X[:7], schema=[f"c{i}" for i in range(10)]),
        X[:7].astype(object),
    ):
        np.testing.assert_array_equal(explainer_of(forest, data).shap_values(X), expected)


def test_columns_of_a_frame_are_checked() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdefghij"))
    model = RandomForestRegressor(3, max_depth=4, random_state=0).fit(frame, Y)
    explanation = explainer_of(model, frame[:6]).explain(frame[100:])
    assert explanation.to_frame().columns.tolist() == list("abcdefghij")
    assert explanation.row_labels[0] == 100
    np.testing.assert_array_equal(explanation.values, explainer_of(model, X[:6]).shap_values(X[100:]))
    with pytest.raises(ValueError, match=r"^data: The feature names .*(\n.*)*same order"):
        explainer_of(model, frame[list("bacdefghij")])


def test_categories_of_a_frame() -> None:
    """Categories of the background are matched by label, even if their codes are in another order."""
    pandas = pytest.importorskip("pandas")
    colours = np.array(["red", "green", "blue"])[np.digitize(X[:, 2], [-0.02, 0.03])]
    frame = pandas.DataFrame({"colour": pandas.Categorical(colours), "age": X[:, 0], "s5": X[:, 8]})
    model = HistGradientBoostingClassifier(max_iter=4, categorical_features="from_dtype").fit(frame, Y > 140)
    other = frame[:9].assign(colour=pandas.Categorical(colours[:9], categories=["red", "green", "blue"]))
    expected = explainer_of(model, frame[:9]).explain(frame)
    np.testing.assert_array_equal(explainer_of(model, other).shap_values(frame), expected.values)
    assert np.abs(expected.values[:, 0]).max() > 0


def test_pipeline() -> None:
    """Background and X both go through the leading steps."""
    pipeline = make_pipeline(StandardScaler(), RandomForestRegressor(4, max_depth=5, random_state=0)).fit(
        X, Y
    )
    explainer = explainer_of(pipeline, X[:8])
    scaled = pipeline[0].transform(X)
    inner = explainer_of(pipeline[-1], scaled[:8])
    np.testing.assert_array_equal(explainer.shap_values(X), inner.shap_values(scaled))
    assert explainer.expected_value == pytest.approx(pipeline.predict(X[:8]).mean())


def test_explain_passes_the_data_on(forest: Any) -> None:
    explanation = explain(forest, X[:9], data=X[:5], data_weight=[1, 1, 1, 1, 2], device="cpu")
    expected = explainer_of(forest, X[:5], data_weight=[1, 1, 1, 1, 2]).explain(X[:9])
    np.testing.assert_array_equal(explanation.values, expected.values)


def test_the_background_is_a_copy(forest: Any) -> None:
    data, weights = X[:5].copy(), np.ones(5)
    explainer = explainer_of(forest, data, data_weight=weights)
    expected = explainer.shap_values(X[:20])
    data[:], weights[:] = 0, [0, 0, 0, 0, 7]
    np.testing.assert_array_equal(explainer.shap_values(X[:20]), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(explainer)).shap_values(X[:20]), expected)


def test_pickle_keeps_the_background_and_not_the_model() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1).fit(X, CLASSES)
    explainer = explainer_of(model, X[:12], data_weight=np.arange(12))
    stored = pickle.dumps(explainer)
    again = pickle.loads(stored)
    assert again.feature_perturbation == "interventional" and repr(again) == repr(explainer)
    np.testing.assert_array_equal(again.expected_value, explainer.expected_value)
    np.testing.assert_array_equal(again.shap_values(X[:30]), explainer.shap_values(X[:30]))
    assert copy.deepcopy(explainer) is explainer
    without = len(pickle.dumps(TreeExplainer(model, device="cpu")))
    assert len(stored) - without < 12 * 10 * 8 + 12 * 8 + 1000
    code = (
        "import pickle, sys; explainer = pickle.load(sys.stdin.buffer); "
        "assert 'lightgbm' not in sys.modules; print(explainer)"
    )
    run = subprocess.run([sys.executable, "-c", code], input=stored, capture_output=True, check=True)
    assert b"12 background rows" in run.stdout


def test_threads(forest: Any) -> None:
    explainer = explainer_of(forest, X[:30])
    expected = explainer.shap_values(X)
    np.testing.assert_array_equal(explainer_of(forest, X[:30], n_jobs=2).shap_values(X), expected)
    with ThreadPoolExecutor(4) as pool:
        for values in pool.map(explainer.shap_values, [X] * 8):
            np.testing.assert_array_equal(values, expected)


def test_memory_limit_changes_no_bit(forest: Any) -> None:
    expected = explainer_of(forest, X[:10]).shap_values(X)
    result = expected.nbytes
    info = explainer_of(forest, X[:10]).model_info()
    limit = result + info["scratch_bytes_per_thread"] + info["table_bytes"] + 4000
    assert info["table_bytes"] < limit / 2
    limited = explainer_of(forest, X[:10], memory_limit=limit)
    np.testing.assert_array_equal(limited.shap_values(X), expected)
    with pytest.raises(MemoryError, match="SHAP values"):
        explainer_of(forest, X[:10], memory_limit=result // 2).shap_values(X)


def test_memory_limit_bounds_tables(forest: Any) -> None:
    """Leaves whose tables would exceed half of the limit have patterns instead."""
    free = explainer_of(forest, X[:10], precision="double")
    assert free.model_info()["n_leaves_without_table"] == 0 and free.model_info()["table_bytes"] > 10_000
    limited = explainer_of(forest, X[:10], precision="double", memory_limit=20_000)
    info = limited.model_info()
    assert info["n_leaves_without_table"] > 0 and info["table_bytes"] <= 10_000 + 16 * 8
    limited._compiled.options = replace(limited._compiled.options, memory_limit=10**9)  # for the call
    np.testing.assert_allclose(limited.shap_values(X), free.shap_values(X), rtol=0, atol=1e-9)


def test_additivity_is_checked(forest: Any) -> None:
    explainer = explainer_of(forest, X[:10])
    assert explainer.explain(X).additivity_error < 1e-3
    shrink_leaves(explainer, 1e-12)
    with pytest.raises(RuntimeError, match="additivity check failed at row"):
        explainer.shap_values(X)
    assert explainer_of(forest, X[:10], check_additivity=False).explain(X).additivity_error is None


def test_pairs_that_occur_are_those_of_the_trees(forest: Any) -> None:
    np.testing.assert_array_equal(
        explainer_of(forest, X[:4]).occurring_interactions(),
        TreeExplainer(forest, device="cpu").occurring_interactions(),
    )


# The transformer


def test_transformer(forest: Any) -> None:
    background = X[:9]
    transformer = ShapTransformer(
        RandomForestRegressor(4, max_depth=4, random_state=0), data=background, device="cpu"
    )
    values = transformer.fit_transform(X, Y)
    explainer = explainer_of(transformer.estimator_, background)
    np.testing.assert_array_equal(values, explainer.shap_values(X))
    assert transformer.base_values_ == explainer.expected_value
    np.testing.assert_allclose(transformer.feature_importances_, np.abs(values).mean(axis=0), rtol=1e-12)
    again = clone(transformer)
    np.testing.assert_array_equal(again.data, background)
    np.testing.assert_array_equal(again.fit(X, Y).transform(X), values)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(transformer)).transform(X), values)
    frozen = ShapTransformer.from_fitted(forest, data=background, data_weight=np.arange(9), device="cpu")
    expected = explainer_of(forest, background, data_weight=np.arange(9)).shap_values(X)
    np.testing.assert_array_equal(frozen.transform(X), expected)
    assert frozen.explain(X).feature_perturbation == "interventional"
    scores = cross_val_score(make_pipeline(transformer, RandomForestRegressor(3, random_state=0)), X, Y, cv=2)
    assert np.isfinite(scores).all()


def test_transformer_refuses_options_before_it_fits() -> None:
    class Untouched(RandomForestRegressor):
        def fit(self, X: Any, y: Any = None) -> None:
            raise AssertionError("fitted")

    for options, message in (
        ({"feature_perturbation": "interventional"}, "needs background rows"),
        (
            {"feature_perturbation": "tree_path_dependent", "data": X[:3], "cover": "count"},
            "leave out cover or data",
        ),
        ({"data_weight": [1.0]}, "weights of background rows"),
    ):
        with pytest.raises(ValueError, match=message):
            ShapTransformer(Untouched(), **options).fit(X, Y)


# Errors


@pytest.mark.parametrize(
    "options, message",
    [
        ({"feature_perturbation": "interventional"}, "needs background rows: give data="),
        (
            {"feature_perturbation": "tree_path_dependent", "data": X[:3], "cover": "count"},
            "leave out cover or data",
        ),
        ({"feature_perturbation": "marginal", "data": X[:3]}, "feature_perturbation must be one of 'auto'"),
        ({"data_weight": [1.0]}, "data_weight gives the weights of background rows"),
        ({"data": X[:3], "algorithm": "gputreeshap"}, "'gputreeshap' computes no interventional"),
        ({"data": X[:3], "algorithm": "fast_v1"}, "'fast_v1' computes no interventional"),
        ({"data": X[:3], "algorithm": "fast_v2"}, "'fast_v2' computes no interventional"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):  # before the model is looked at
        TreeExplainer(object(), **options)


@pytest.mark.parametrize(
    "data, error, message",
    [
        (X[:0], ValueError, "data has no rows"),
        (X[:3, :9], ValueError, "data has 9 features, but the model expects 10"),
        (X[0], ValueError, "Expected 2D array"),
        (X[:3].astype(complex), ValueError, "Complex data"),
        (np.ma.masked_array(X[:3]), TypeError, "masked array"),
        (np.full((3, 10), np.inf), ValueError, "contains infinity or a value too large"),
    ],
)
def test_bad_backgrounds(forest: Any, data: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        explainer_of(forest, data)


@pytest.mark.parametrize(
    "weights, message",
    [
        ([1.0, 2.0], r"each of the 3 rows of data, not the shape \(2,\)"),
        (np.ones((3, 1)), r"not the shape \(3, 1\)"),
        (1.0, r"not the shape \(\)"),
        ([1.0, -0.5, 1.0], r"finite and not negative, but entry 1 is -0.5"),
        ([1.0, 1.0, np.nan], "entry 2 is nan"),
        ([np.inf, 1.0, 1.0], "entry 0 is inf"),
        ([0.0, 0.0, 0.0], "data_weight is zero for all rows"),
    ],
)
def test_bad_weights(forest: Any, weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explainer_of(forest, X[:3], data_weight=weights)


def test_a_background_on_a_gpu_is_refused(forest: Any) -> None:
    with pytest.raises(TypeError, match="data is on a GPU: copy it to the host"):
        explainer_of(forest, OnGpu())


@pytest.fixture
def no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forbid tables, so that all leaves are treated like leaves of long paths."""
    monkeypatch.setattr("skshapgpu._common.memory.TABLE_BYTES", 0)


@pytest.mark.usefixtures("no_tables")
def test_patterns_are_part_of_the_estimate(forest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "auto" compares how long the devices take for rows with patterns of leaves without a table."""
    monkeypatch.delenv("SKSHAPGPU_DEVICE", raising=False)
    asked: list[tuple[float, float]] = []

    def choose(_: Devices, cpu: float, cuda: float) -> tuple[int, ...]:
        asked.append((cpu, cuda))
        return ()

    monkeypatch.setattr("skshapgpu._common.devices.Devices.choose", choose)
    for n_background in (3, 100):
        explainer = TreeExplainer(forest, X[:n_background], n_jobs=1)
        info = explainer.model_info()
        assert info["n_leaves_without_table"] > 0 and info["n_patterns"] >= info["n_leaves_without_table"]
        assert explainer.explain(X).device == "cpu"
        assert explainer.plan(100_000).seconds == pytest.approx(asked[-1][0] / CPU_BESIDE_GPU)
    (_, _), (few_cpu, few_cuda), (_, _), (cpu, cuda) = asked
    assert cpu > 2 * few_cpu and cuda > few_cuda
