"""Public threads of users of SHAP libraries, a test for each: the case works, or is refused in clear words.

The truth is the model's own prediction, the definition of the values, or a computation by hand.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from helpers.families import (
    FAMILIES,
    assert_adds_up,
    classifier,
    frame_with_categories,
    library,
    raw_prediction,
    regressor,
    values_by_definition,
    with_categories,
)
from scipy.special import logit, softmax
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_selection import RFE
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skshapgpu import ShapSelector, ShapTransformer, TreeExplainer, cross_val_explain, cuda_info, explain
from skshapgpu.adapters import adapt
from skshapgpu.reference import path_dependent_interactions, path_dependent_shap

DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)


def run_python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return run.stdout


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda":
        request.getfixturevalue("gpu")
    return request.param


# Installing


def test_shap_4182_gpu_is_part_of_the_package() -> None:
    """shap/shap#4182: after years without a GPU build that installs, a tracker of what keeps it broken."""
    info = cuda_info()
    assert info["available"] or info["reason"]
    model = DecisionTreeRegressor(max_depth=3).fit(DIABETES, PROGRESSION)
    explanation = assert_adds_up(model, DIABETES, device="auto")
    assert explanation.device == "cpu" or info["available"]


def test_shap_3878_a_sentence_where_there_is_no_gpu() -> None:
    """shap/shap#3878: an ImportError of an extension module was all that an installation said of GPUs."""
    printed = run_python(
        """
import sys
import numpy as np
from sklearn.tree import DecisionTreeRegressor
import skshapgpu
X = np.arange(12.0).reshape(6, 2)
model = DecisionTreeRegressor().fit(X, X[:, 0])
print(skshapgpu.explain(model, X).device)
try:
    skshapgpu.explain(model, X, device="cuda")
except RuntimeError as error:
    print(error)
""",
        CUDA_VISIBLE_DEVICES="",
        SKSHAPGPU_DEVICE="auto",
    )
    device, message = printed.splitlines()
    assert device == "cpu"
    assert message.startswith("device='cuda', but ") and "use device='cpu', or 'auto'" in message


def test_fasttreeshap_37_no_numba_and_any_numpy() -> None:
    """linkedin/FastTreeSHAP#37: the package fails to import with NumPy 2 and pins numba and an old shap."""
    printed = run_python("""
import sys
import numpy as np
from sklearn.ensemble import RandomForestRegressor
import skshapgpu
X = np.random.default_rng(0).normal(size=(200, 4))
model = RandomForestRegressor(5, max_depth=4, random_state=0).fit(X, X[:, 0] * X[:, 1])
tables = skshapgpu.explain(model, X, algorithm="fast_v2").values
print(np.abs(tables - skshapgpu.explain(model, X, algorithm="quadrature").values).max())
print({"numba", "llvmlite", "shap", "fasttreeshap"} & set(sys.modules))
""")
    difference, modules = printed.splitlines()
    assert float(difference) < 1e-5
    assert modules == "set()"


# Numbers that were silently wrong


def test_shap_3936_missing_values_on_the_gpu(device: str) -> None:
    """shap/shap#3936: the GPU's values of rows with NaN were wrong, and its expected value was stale."""
    X = np.where(np.random.default_rng(0).random(DIABETES.shape) < 0.3, np.nan, DIABETES)
    model = regressor("xgboost").fit(X, PROGRESSION)
    explanation = assert_adds_up(model, X, device=device)
    assert explanation.device == ("cpu" if device == "cpu" else "cuda:0")
    expected, base_value = path_dependent_shap(adapt(model).ensemble, X)
    np.testing.assert_allclose(explanation.values, expected[:, 0], atol=1e-6 * np.abs(expected).max())
    np.testing.assert_allclose(explanation.base_values, base_value[0], rtol=1e-12)


@pytest.mark.usefixtures("on_cpu")
def test_shap_3655_log_loss_is_the_same_everywhere_or_refused() -> None:
    """shap/shap#3655: values of the log loss against background data differed between the CPU and the GPU."""
    X, background = CANCER[:60], CANCER[100:140]
    model = GradientBoostingClassifier(n_estimators=8, random_state=0).fit(CANCER, BENIGN)
    options = {"data": background, "model_output": "log_loss"}
    explanation = TreeExplainer(model, **options).explain(X, BENIGN[:60])
    losses = [log_loss([y], p[np.newaxis], labels=[0, 1]) for y, p in zip(BENIGN, model.predict_proba(X))]
    np.testing.assert_allclose(explanation.base_values + explanation.values.sum(axis=1), losses, atol=1e-5)
    with pytest.raises(ValueError, match="model_output='log_loss' is computed on the CPU only"):
        TreeExplainer(model, **options, device="cuda")


@pytest.mark.usefixtures("on_cpu")
def test_shap_1726_probability_adds_up_to_the_probability() -> None:
    """shap/shap#1726 and #2298: the option for probabilities gave something else on the GPU, or nothing."""
    model = classifier("xgboost").fit(CANCER, BENIGN)
    options = {"data": CANCER[:50], "model_output": "probability"}
    explanation = assert_adds_up(model, CANCER, model.predict_proba(CANCER)[:, 1], **options)
    np.testing.assert_allclose(
        explanation.base_values, model.predict_proba(CANCER[:50])[:, 1].mean(), atol=1e-6
    )
    with pytest.raises(ValueError, match="model_output='probability' is computed on the CPU only"):
        explain(model, CANCER, **options, device="cuda")


@pytest.mark.parametrize("how", ["from_dtype", "numbers"])
def test_shap_3436_categorical_hist_gradient_boosting(how: str) -> None:
    """shap/shap#3436: categorical splits of HistGradientBoosting were read as thresholds, without a word."""
    X, y = frame_with_categories()
    if how == "numbers":
        X = X.assign(color=X["color"].cat.codes.astype(float)).to_numpy()
    model = HistGradientBoostingRegressor(
        max_iter=8, min_samples_leaf=5, categorical_features="from_dtype" if how == "from_dtype" else [1]
    ).fit(X, y)
    assert any(p.nodes["is_categorical"].any() for (p,) in model._predictors)
    assert_adds_up(model, X)


@pytest.mark.parametrize("objective", ["regression", "binary", "multiclass"])
def test_lightgbm_6217_random_forest_mode(objective: str) -> None:
    """lightgbm-org/LightGBM#6217: contributions of a random forest are not averaged, as its prediction is."""
    lightgbm = library("lightgbm")
    options = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.7, "verbose": -1, "n_jobs": 1}
    kind = lightgbm.LGBMRegressor if objective == "regression" else lightgbm.LGBMClassifier
    X, y = (IRIS, SPECIES) if objective == "multiclass" else (CANCER, BENIGN)
    model = kind(n_estimators=7, **options).fit(X, y)
    # predict averages as it should; its raw_score is a sum, too.
    average = {
        "regression": model.predict,
        "binary": lambda X: logit(model.predict_proba(X)[:, 1]),
        "multiclass": lambda X: np.log(model.predict_proba(X)),
    }[objective](X)
    explanation = explain(model, X)
    margin = explanation.base_values + explanation.values.sum(axis=1)
    if objective == "multiclass":  # probabilities leave a constant of each row open
        np.testing.assert_allclose(softmax(margin, axis=1), np.exp(average), atol=1e-6)
    else:
        np.testing.assert_allclose(margin, average, atol=1e-5)


@pytest.mark.parametrize("kind", ["regression", "binary", "multiclass"])
def test_shap_4184_xgboost_base_score(kind: str) -> None:
    """shap/shap#4184: base_score became a list in XGBoost 3.1, and no model could be explained for weeks."""
    if kind == "multiclass":
        assert_adds_up(classifier("xgboost").fit(IRIS, SPECIES), IRIS)
    elif kind == "binary":
        model = classifier("xgboost", base_score=0.2).fit(CANCER, BENIGN)
        assert_adds_up(model, CANCER)
        # The start is a probability, the intercept its log-odds.
        np.testing.assert_allclose(adapt(model).ensemble.intercept, logit(0.2), rtol=1e-6)
    else:
        assert_adds_up(regressor("xgboost").fit(DIABETES, PROGRESSION), DIABETES)


@pytest.mark.parametrize("family", ["sklearn", "xgboost", "lightgbm"])
def test_shap_5132_categories_with_background_data(family: str) -> None:
    """shap/shap#5132: with background data, native categorical splits were refused, or crashed."""
    X, y = frame_with_categories()
    model = with_categories(family, X, y)
    background = X.iloc[:12]
    explanation = assert_adds_up(model, X, data=background)
    expected = values_by_definition(model.predict, X.iloc[:40], background)
    assert np.abs(expected).mean(axis=0)[1] > 0.1
    np.testing.assert_allclose(explanation.values[:40], expected, atol=1e-5)


def test_shap_3997_missing_goes_right() -> None:
    """shap/shap#3997: NaN went left in all trees of scikit-learn 1.3 and later, wherever it belonged."""
    X = np.array([[0.0], [1.0], [2.0], [np.nan]])
    y = np.array([0.0, 0.0, 8.0, 8.0])
    model = DecisionTreeRegressor(max_depth=1).fit(X, y)
    assert not model.tree_.missing_go_to_left[0]
    explanation = explain(model, X)
    assert explanation.base_values == 4.0
    np.testing.assert_array_equal(explanation.values[:, 0], [-4.0, -4.0, 4.0, 4.0])
    missing = np.where(np.random.default_rng(0).random(DIABETES.shape) < 0.3, np.nan, DIABETES)
    assert_adds_up(RandomForestRegressor(5, max_depth=5).fit(missing, PROGRESSION), missing)


@pytest.mark.usefixtures("on_cpu")
def test_shap_1071_deep_trees_add_up_and_the_check_says_where_not() -> None:
    """shap/shap#1071: "additivity check failed", and no way out was named but to switch the check off."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1500, 60)), rng.normal(size=1500)
    model = ExtraTreesRegressor(3, max_features=1, random_state=0).fit(X, y)
    assert min(tree.get_depth() for tree in model.estimators_) > 30
    rows = X[:100]
    explanation = assert_adds_up(model, rows)
    assert explanation.additivity_error < 1e-5
    # The recursion that shap uses loses its digits on paths this long: it is refused, and says where.
    with pytest.raises(RuntimeError) as error:
        explain(model, rows, algorithm="treeshap")
    message = str(error.value)
    for part in ("at row 0:", "the margin is", "may differ by", "single precision", "check_additivity=False"):
        assert part in message


@pytest.mark.parametrize("family", FAMILIES)
def test_shap_5116_rows_next_to_a_threshold(family: str) -> None:
    """shap/shap#5116: numbers just above a threshold were equal to it as float32, and went the wrong way."""
    model = regressor(family).fit(DIABETES, PROGRESSION)
    ensemble = adapt(model).ensemble
    inner = np.flatnonzero(ensemble.left >= 0)
    X = np.repeat(DIABETES[:1], 3 * len(inner), axis=0)
    for i, node in enumerate(inner):
        threshold = ensemble.threshold[node]
        near = [np.nextafter(threshold, -np.inf), threshold, np.nextafter(threshold, np.inf)]
        X[3 * i : 3 * i + 3, ensemble.feature[node]] = near
    if ensemble.x_dtype == "float64":
        assert len(np.unique(X.astype(np.float32), axis=0)) < len(np.unique(X, axis=0))
        _, at, above = model.predict(X).reshape(-1, 3).T
        assert (at != above).any()
    assert_adds_up(model, X)


@pytest.mark.usefixtures("on_cpu")
def test_shap_1824_interactions_with_background_data() -> None:
    """shap/shap#1824: interactions against background data were all zeros, without a word."""
    X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    model = DecisionTreeRegressor().fit(X, X[:, 0] * X[:, 1])
    background = X[:2]
    # Two features: the index is v(both) - v(first) - v(second) + v(none), shared between the two halves
    # of the matrix. In the background the first is 0, so that only v(both) = x0 x1, and v(first) = x0 / 2.
    both, first = X[:, 0] * X[:, 1], X[:, 0] / 2
    matrices = TreeExplainer(model, background).shap_interaction_values(X)
    np.testing.assert_allclose(matrices[:, 0, 1], (both - first) / 2, atol=1e-7)
    np.testing.assert_allclose(matrices[:, 1, 0], (both - first) / 2, atol=1e-7)
    np.testing.assert_allclose(matrices.sum(axis=2), explain(model, X, data=background).values, atol=1e-7)


def test_xgboost_12241_covers_are_hessians() -> None:
    """dmlc/xgboost#12241: which cover weighs the branches, sums of hessians or counts of rows?"""
    xgboost = library("xgboost")
    pytest.importorskip("pandas")
    X = np.r_[np.zeros(60), np.ones(40)][:, np.newaxis]
    y = np.r_[np.zeros(57), np.ones(3), np.zeros(10), np.ones(30)]
    model = xgboost.XGBClassifier(n_estimators=10, max_depth=1, n_jobs=1, base_score=0.5).fit(X, y)
    base_value = 0.0
    for _, tree in model.get_booster().trees_to_dataframe().groupby("Tree"):
        leaves = tree[tree["Feature"] == "Leaf"]
        base_value += np.average(leaves["Gain"], weights=leaves["Cover"])  # the column of a leaf's value
    assert abs(base_value - np.average(raw_prediction(model, X))) > 1e-2  # what counts would give
    np.testing.assert_allclose(explain(model, X).base_values, base_value, rtol=1e-5)


# Shapes and state


@pytest.mark.parametrize("family", ["forest", *FAMILIES])
def test_shap_3318_one_rule_for_shapes(family: str) -> None:
    """shap/shap#3318: lists became arrays, and binary forests and boosted models differ in the class axis."""
    make = RandomForestClassifier(5, random_state=0) if family == "forest" else classifier(family)
    binary = clone(make).fit(CANCER, BENIGN)
    assert explain(binary, CANCER).shape == (569, 30)
    both = explain(binary, CANCER, outputs="all")
    assert both.shape == (569, 30, 2) and both.output_names == (0, 1)
    np.testing.assert_array_equal(both[:, :, 1].values, explain(binary, CANCER).values)
    several = explain(clone(make).fit(IRIS, SPECIES), IRIS)
    assert several.shape == (150, 4, 3) and several.base_values.shape == (3,)


def test_shap_4495_expected_value_stays() -> None:
    """shap/shap#4495: the expected value, even its shape, changed with the first call for values."""
    for model, shape in [
        (RandomForestClassifier(5, random_state=0).fit(IRIS, SPECIES), (3,)),
        (GradientBoostingClassifier(n_estimators=5).fit(CANCER, BENIGN), ()),
    ]:
        explainer = TreeExplainer(model)
        before = np.copy(explainer.expected_value)
        assert np.shape(before) == shape
        explainer.shap_values(IRIS if shape else CANCER)
        explainer.shap_interaction_values(IRIS if shape else CANCER[:5])
        np.testing.assert_array_equal(explainer.expected_value, before)
        with pytest.raises(AttributeError):
            explainer.expected_value = 0.0
        if shape:
            explainer.expected_value[:] = 0.0  # a copy
            np.testing.assert_array_equal(explainer.expected_value, before)


# Time and memory


def test_shap_77_time_is_known_beforehand() -> None:
    """shap/shap#77 and #2243: a day on 20 cores for 3.9 million rows, days for the 86 million of a ranker."""
    lightgbm = library("lightgbm")
    groups = np.full(44, 10)
    model = lightgbm.LGBMRanker(n_estimators=100, verbose=-1, n_jobs=1)
    model.fit(DIABETES[:440], np.digitize(PROGRESSION[:440], [100, 150, 200]), group=groups)
    explainer = TreeExplainer(model, device="cpu")
    plan = explainer.plan(3_900_000)
    assert plan.seconds is not None and plan.seconds < 3600
    assert explainer.plan(86_000_000).seconds < 24 * 3600
    assert plan.result_bytes == 3_900_000 * 10 * 8
    assert "3,900,000 rows on cpu, about" in str(plan)
    assert_adds_up(model, np.tile(DIABETES, (20, 1)), device="cpu")
    # And how far a call has come, while it runs.
    told: list[tuple[int, int]] = []
    explainer.explain(np.tile(DIABETES, (20, 1)), progress=lambda *done: told.append(done))
    assert told == sorted(told) and told[-1] == (8840, 8840) and len(told) > 1


@pytest.mark.usefixtures("on_cpu")
def test_shap_1879_too_large_a_result_is_refused_at_once() -> None:
    """shap/shap#1879: 22 thousand rows, 5 thousand features and 224 classes took 184 GiB at once."""
    X = np.random.default_rng(0).normal(size=(448, 5000)).astype(np.float32)
    model = DecisionTreeClassifier(max_features=20, max_depth=8, random_state=0)
    explainer = TreeExplainer(model.fit(X, np.repeat(np.arange(224), 2)), memory_limit="500MB")
    assert explainer.plan(22_000).result_bytes == 22_000 * 5000 * 224 * 8
    with pytest.raises(MemoryError, match="memory_limit is 500,000,000 bytes, but 22000 rows need"):
        explainer.shap_values(np.broadcast_to(X[0], (22_000, 5000)))
    with pytest.raises(MemoryError, match="ask for fewer pairs"):
        explainer.explain_interactions(X[:20])
    # What fits: some rows at a time, and the strongest pairs of features instead of all 5000 x 5000.
    assert explainer.shap_values(X[:50]).shape == (50, 5000, 224)
    strongest = explainer.explain_interactions(X, pairs=10)
    assert strongest.shape == (448, 10, 224) and strongest.strength[0].sum() > 0


def test_xgboost_10936_memory_is_bounded(device: str) -> None:
    """dmlc/xgboost#10936: contributions took more GPU memory with each release, until jobs failed."""
    X = np.tile(DIABETES, (40, 1)).astype(np.float32)
    model = regressor("xgboost").fit(DIABETES, PROGRESSION)
    options = {"device": device, "algorithm": "quadrature"}
    explainer = TreeExplainer(model, **options)
    expected = explainer.shap_values(X)
    # Beside the result: on the CPU some rows at a time and what a thread needs, on a GPU the model, too.
    spare = explainer.plan_info()["scratch_bytes_per_thread"] + 200_000 if device == "cpu" else 512 << 20
    limited = TreeExplainer(model, **options, memory_limit=expected.nbytes + spare)
    tracemalloc.start()
    values = limited.shap_values(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(values, expected)
    assert peak <= expected.nbytes + spare
    with pytest.raises(MemoryError, match="memory_limit"):
        TreeExplainer(model, **options, memory_limit=expected.nbytes // 2).shap_values(X)


@pytest.mark.usefixtures("on_cpu")
def test_fasttreeshap_5_tables_are_counted_first() -> None:
    """linkedin/FastTreeSHAP#5: v2 crashed in 227 of 1024 settings of a search, as its tables did not fit."""
    n_refused = 0
    for depth in (2, 6, 12, None):
        for n_trees in (2, 60):
            model = RandomForestRegressor(n_trees, max_depth=depth, random_state=0).fit(DIABETES, PROGRESSION)
            expected = assert_adds_up(model, DIABETES, algorithm="auto", memory_limit="5MB")
            try:
                tables = explain(model, DIABETES, algorithm="fast_v2", memory_limit="5MB")
            except MemoryError as error:
                assert "memory_limit" in str(error)
                n_refused += 1
            else:
                # Single precision: 5e-6 of the leaves, twice.
                np.testing.assert_allclose(
                    tables.values, expected.values, rtol=0, atol=1e-5 * PROGRESSION.max()
                )
    assert 0 < n_refused < 8


def test_fasttreeshap_7_catboost() -> None:
    """linkedin/FastTreeSHAP#7 and #6: models of CatBoost were not supported."""
    catboost = library("catboost")
    model = regressor("catboost").fit(DIABETES, PROGRESSION)
    explanation = assert_adds_up(model, DIABETES, algorithm="fast_v2")
    own = model.get_feature_importance(catboost.Pool(DIABETES), type="ShapValues")
    np.testing.assert_allclose(explanation.values, own[:, :-1], atol=1e-6 * np.abs(own).max())


# Whole workflows


@pytest.mark.parametrize("family", FAMILIES)
def test_lightgbm_6058_interactions_of_every_family(family: str) -> None:
    """lightgbm-org/LightGBM#6058: LightGBM gives no SHAP interactions; one call does, for all libraries."""
    X = DIABETES[:, :5]
    model = regressor(family).fit(X, PROGRESSION)
    matrices = explain(model, X, interactions=True, precision="double").values
    expected = path_dependent_interactions(adapt(model).ensemble, X[:50])[:, 0]
    assert np.abs(expected[:, 0, 1:]).max() > 1e-3
    np.testing.assert_allclose(matrices[:50], expected, atol=1e-9 * np.abs(expected).max())
    base_value = TreeExplainer(model).expected_value
    np.testing.assert_allclose(base_value + matrices.sum(axis=(1, 2)), raw_prediction(model, X), rtol=1e-5)


def test_shap_1373_pipeline_with_its_column_names() -> None:
    """shap/shap#1373 and #349: a Pipeline is "not yet supported", and the way around it loses the names."""
    X, y = frame_with_categories()
    X = X.astype({"color": str})
    pipeline = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(sparse_output=False), ["color"]),
            remainder="passthrough",
            verbose_feature_names_out=False,
        ),
        HistGradientBoostingRegressor(max_iter=8),
    ).fit(X, y)
    explanation = assert_adds_up(pipeline, X, pipeline.predict(X))
    assert explanation.feature_names == tuple(pipeline[:-1].get_feature_names_out())
    assert explanation.feature_names[:2] == ("color_amber", "color_blue")
    assert list(explanation.index) == list(X.index)
    # And back to the columns of X.
    grouped = explanation.group("input")
    assert grouped.feature_names == ("color", "size", "weight")
    np.testing.assert_allclose(grouped.values[:, 0], explanation.values[:, :6].sum(axis=1), atol=1e-6)
    np.testing.assert_array_equal(grouped.values[:, 1:], explanation.values[:, 6:])


def test_shap_337_out_of_fold_values() -> None:
    """shap/shap#337 and #1008: how to get values over the folds, in order, with base values that differ?"""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X.index = [f"patient {i}" for i in range(len(X))]
    model = RandomForestRegressor(4, max_depth=4, random_state=0)
    cv = KFold(3, shuffle=True, random_state=0)
    results = cross_val_explain(model, X, y, cv=cv)
    explanation = results["explanation"]
    assert list(explanation.index) == list(X.index)
    assert len(set(results["base_values"])) == 3
    for fold, (train, test) in enumerate(cv.split(X)):
        fitted = clone(model).fit(X.iloc[train], y.iloc[train])
        explainer = TreeExplainer(fitted)
        assert results["base_values"][fold] == explainer.expected_value
        assert (results["fold"][test] == fold).all()
        np.testing.assert_array_equal(explanation.values[test], explainer.shap_values(X.iloc[test]))
        total = results["base_values"][fold] + explanation.values[test].sum(axis=1)
        np.testing.assert_allclose(total, fitted.predict(X.iloc[test]), rtol=1e-5)


def test_shap_2118_saved_and_served(tmp_path: Path) -> None:
    """shap/shap#2118 and #2122: an explainer could not be saved, so that each server builds it again."""
    model = classifier("xgboost").fit(CANCER, BENIGN)
    explainer = TreeExplainer(model)
    expected = assert_adds_up(model, CANCER).values
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(explainer)).shap_values(CANCER), expected)
    explainer.save(tmp_path / "explainer.npz")
    np.save(tmp_path / "X.npy", CANCER)
    run_python(f"""
import sys
for name in ("xgboost", "lightgbm", "catboost", "shap", "pandas"):
    sys.modules[name] = None  # importing it is an error
import numpy as np
from skshapgpu import TreeExplainer
folder = {str(tmp_path)!r}
explainer = TreeExplainer.load(folder + "/explainer.npz")
np.save(folder + "/values.npy", explainer.shap_values(np.load(folder + "/X.npy")))
""")
    np.testing.assert_array_equal(np.load(tmp_path / "values.npy"), expected)


def test_sklearn_21934_recursive_elimination_by_shap_values() -> None:
    """scikit-learn/scikit-learn#21934: an importance_getter gets no X, so that SHAP cannot drive RFE."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    y = 3 * X[:, 1] - 2 * X[:, 4] * X[:, 1] + X[:, 4]
    model = DecisionTreeRegressor(max_depth=6)
    selected = RFE(ShapTransformer(model), n_features_to_select=2).fit(X, y)
    assert list(np.flatnonzero(selected.support_)) == [1, 4]
    selector = ShapSelector(model, cv=3, max_features=2, threshold=-np.inf).fit(X, y)
    assert list(np.flatnonzero(selector.get_support())) == [1, 4]
    assert selector.transform(X).shape == (400, 2)


def test_sklearn_31794_fit_and_explain() -> None:
    """scikit-learn/scikit-learn#31794: asks for Shapley values in scikit-learn's way, by fit and explain."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    transformer = ShapTransformer(RandomForestRegressor(5, max_depth=5, random_state=0))
    assert clone(transformer).get_params()["estimator__max_depth"] == 5
    explanation = transformer.fit(X, y).explain(X)
    np.testing.assert_allclose(
        transformer.base_values_ + explanation.values.sum(axis=1), transformer.predict(X), rtol=1e-5
    )
    frame = transformer.set_output(transform="pandas").transform(X)
    assert list(frame.columns) == list(transformer.get_feature_names_out()) == list(X.columns)
    assert transformer.feature_importances_.argmax() == list(X.columns).index("bmi")


# Further threads


@pytest.mark.parametrize("family", ["sklearn", "lightgbm", "xgboost"])
def test_shap_4256_sparse(family: str) -> None:
    """shap/shap#4256 and #138: a CSR matrix is refused, or made dense as a whole."""
    X = np.where(CANCER > np.median(CANCER, axis=0), CANCER, 0.0)
    forest = RandomForestClassifier(5, max_depth=5, random_state=0)
    model = (forest if family == "sklearn" else classifier(family)).fit(sp.csr_matrix(X), BENIGN)
    expected = model.predict_proba(sp.csr_matrix(X))[:, 1]
    explanation = assert_adds_up(
        model, sp.csr_matrix(X), expected if family == "sklearn" else logit(expected.astype(np.float64))
    )
    # What is not stored is zero, for XGBoost missing.
    dense = np.where(X == 0, np.nan, X) if family == "xgboost" else X
    np.testing.assert_array_equal(explanation.values, explain(model, dense).values)


def test_shap_1152_isolation_forest() -> None:
    """shap/shap#1152 and #1389: what of an IsolationForest is explained, and is it, of feature subsets?"""
    model = IsolationForest(n_estimators=10, max_samples=64, max_features=0.5, random_state=0).fit(CANCER)
    explanation = explain(model, CANCER)
    length = explanation.base_values + explanation.values.sum(axis=1)
    # The mean path length; scikit-learn's score is 2 to the power of it over that of an unsuccessful search.
    harmonic = np.log(63) + np.euler_gamma
    average = 2 * harmonic - 2 * 63 / 64
    np.testing.assert_allclose(-(2 ** (-length / average)), model.score_samples(CANCER), atol=1e-6)


def test_shap_3313_missing_of_xgboost() -> None:
    """shap/shap#3313: the number that stands for missing in an XGBoost model was taken as a number."""
    X = np.where(DIABETES > 0.05, -999.0, DIABETES)
    model = regressor("xgboost", missing=-999.0).fit(X, PROGRESSION)
    assert_adds_up(model, X)


def test_shap_1204_pickled_explainer_in_loky_workers() -> None:
    """shap/shap#1204: worker processes crashed on an explainer that was pickled to them."""
    model = RandomForestClassifier(5, random_state=0).fit(IRIS, SPECIES)
    explainer = TreeExplainer(model)
    parts = joblib.Parallel(n_jobs=2, backend="loky")(
        joblib.delayed(explainer.shap_values)(rows) for rows in np.array_split(IRIS, 4)
    )
    np.testing.assert_array_equal(np.concatenate(parts), explainer.shap_values(IRIS))


def test_shap_244_n_jobs() -> None:
    """shap/shap#244: asks for n_jobs."""
    model = RandomForestClassifier(5, random_state=0).fit(IRIS, SPECIES)
    X = np.tile(IRIS, (10, 1))
    expected = explain(model, X, n_jobs=1).values
    for n_jobs in (2, -1, None):
        np.testing.assert_array_equal(explain(model, X, n_jobs=n_jobs).values, expected)


def test_shap_4489_frame_with_the_index_of_the_rows() -> None:
    """shap/shap#4489 and #3455: asks for a data frame of the values, with the row labels of X."""
    X, y = frame_with_categories()
    X.index = [f"customer {i}" for i in range(len(X))]
    model = with_categories("sklearn", X, y)
    explanation = explain(model, X)
    frame = explanation[20:30].to_frame()
    assert list(frame.index) == [f"customer {i}" for i in range(20, 30)]
    assert list(frame.columns) == ["size", "color", "weight"]
    np.testing.assert_array_equal(frame.to_numpy(), explanation.values[20:30])


def test_shap_1654_one_hot_columns_as_one_feature() -> None:
    """shap/shap#1654: how to add up the values of one-hot columns to those of the feature they came from?"""
    rng = np.random.default_rng(0)
    color, size = rng.integers(3, size=300), rng.normal(size=300)
    X = np.column_stack([color == 0, color == 1, color == 2, size]).astype(np.float64)
    model = RandomForestRegressor(5, random_state=0).fit(X, np.array([0.0, 5.0, 9.0])[color] + size)
    explanation = explain(model, X)
    grouped = explanation.group({"color": ["x0", "x1", "x2"]})
    assert grouped.feature_names == ("color", "x3")
    np.testing.assert_allclose(grouped.values[:, 0], explanation.values[:, :3].sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(
        grouped.base_values + grouped.values.sum(axis=1), model.predict(X), rtol=1e-5, atol=1e-5
    )


def test_shap_2887_multiclass_gradient_boosting() -> None:
    """shap/shap#2887: a GradientBoostingClassifier of more than two classes was refused."""
    model = GradientBoostingClassifier(n_estimators=8, random_state=0).fit(IRIS, SPECIES)
    explanation = assert_adds_up(model, IRIS, model.decision_function(IRIS))
    assert explanation.shape == (150, 4, 3)


def test_shap_3574_multiclass_interactions_of_lightgbm() -> None:
    """shap/shap#3574: interactions of a LightGBM model of several classes had the wrong shape."""
    model = classifier("lightgbm").fit(IRIS, SPECIES)
    matrices = TreeExplainer(model).shap_interaction_values(IRIS)
    assert matrices.shape == (150, 4, 4, 3)
    np.testing.assert_allclose(matrices.sum(axis=2), explain(model, IRIS).values, atol=1e-6)
    assert np.abs(matrices[:, 2, 3]).max() > 1e-3


def test_catboost_1284_ranker() -> None:
    """catboost/catboost#1284: SHAP values of a ranker could not be had."""
    catboost = library("catboost")
    model = catboost.CatBoostRanker(
        iterations=8, depth=3, verbose=False, allow_writing_files=False, thread_count=1
    )
    queries = np.repeat(np.arange(34), 13)
    model.fit(DIABETES, PROGRESSION / PROGRESSION.max(), group_id=queries)
    assert_adds_up(model, DIABETES, model.predict(DIABETES))
