"""Issues reported by users of SHAP libraries, one test each: the case works or raises a clear error.

Results are compared with the model's own prediction, with the definition of the values, or with numbers
computed by hand.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
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
from helpers.processes import run_python
from scipy.special import logit, softmax
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.metrics import log_loss
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skshapgpu import TreeExplainer, cuda_info, explain, reference
from skshapgpu.adapters import adapt

DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda":
        request.getfixturevalue("gpu")
    return request.param


# Installing


def test_shap_4182_gpu_is_part_of_the_package() -> None:
    """shap/shap#4182 collects the reasons why GPU builds had not been installable for years."""
    info = cuda_info()
    assert info["available"] or info["reason"]
    model = DecisionTreeRegressor(max_depth=3).fit(DIABETES, PROGRESSION)
    explanation = assert_adds_up(model, DIABETES, device="auto")
    assert explanation.device == "cpu" or info["available"]


def test_shap_3878_a_sentence_where_there_is_no_gpu() -> None:
    """shap/shap#3878: the only hint of a missing GPU build was an ImportError of an extension module."""
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


# Silently wrong values


def test_shap_3936_missing_values_on_the_gpu(device: str) -> None:
    """shap/shap#3936: the GPU's values of rows with NaN were wrong, and its expected value was stale."""
    X = np.where(np.random.default_rng(0).random(DIABETES.shape) < 0.3, np.nan, DIABETES)
    model = regressor("xgboost").fit(X, PROGRESSION)
    explanation = assert_adds_up(model, X, device=device)
    assert explanation.device == ("cpu" if device == "cpu" else "cuda:0")
    expected, base_value, _ = reference.path_dependent(adapt(model).ensemble, X)
    np.testing.assert_allclose(explanation.values, expected[:, 0], atol=1e-6 * np.abs(expected).max())
    np.testing.assert_allclose(explanation.base_values, base_value[0], rtol=1e-12)


def test_shap_3655_log_loss_is_the_same_everywhere(device: str) -> None:
    """shap/shap#3655: values of the log loss against background data differed between the CPU and the GPU."""
    X, background = CANCER[:60], CANCER[100:140]
    model = GradientBoostingClassifier(n_estimators=8, random_state=0).fit(CANCER, BENIGN)
    options = {"data": background, "model_output": "log_loss"}
    explanation = TreeExplainer(model, **options, device=device).explain(X, BENIGN[:60])
    losses = [log_loss([y], p[np.newaxis], labels=[0, 1]) for y, p in zip(BENIGN, model.predict_proba(X))]
    np.testing.assert_allclose(explanation.base_values + explanation.values.sum(axis=1), losses, atol=1e-5)
    on_cpu = TreeExplainer(model, **options, device="cpu").shap_values(X, BENIGN[:60])
    np.testing.assert_allclose(explanation.values, on_cpu, rtol=0, atol=1e-6 * np.abs(on_cpu).max())


def test_shap_1726_probability_adds_up_to_the_probability(device: str) -> None:
    """shap/shap#1726 and #2298: the option for probabilities gave other values on the GPU, or none."""
    model = classifier("xgboost").fit(CANCER, BENIGN)
    options = {"data": CANCER[:50], "model_output": "probability"}
    of_class = model.predict_proba(CANCER)[:, 1]
    explanation = assert_adds_up(model, CANCER, of_class, device=device, **options)
    np.testing.assert_allclose(
        explanation.base_values, model.predict_proba(CANCER[:50])[:, 1].mean(), atol=1e-6
    )


@pytest.mark.parametrize("how", ["from_dtype", "numbers"])
def test_shap_3436_categorical_hist_gradient_boosting(how: str) -> None:
    """shap/shap#3436: categorical splits of HistGradientBoosting were silently read as thresholds."""
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
    """lightgbm-org/LightGBM#6217: contributions of a random forest are sums, its prediction is a mean."""
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
    """shap/shap#3997: NaN went left at all nodes of trees of scikit-learn 1.3 and later."""
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
    """shap/shap#1071: "additivity check failed", and the only suggestion was to switch the check off."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1500, 60)), rng.normal(size=1500)
    model = ExtraTreesRegressor(3, max_features=1, random_state=0).fit(X, y)
    assert min(tree.get_depth() for tree in model.estimators_) > 30
    rows = X[:100]
    explanation = assert_adds_up(model, rows)
    assert explanation.additivity_error < 1e-5
    # shap's recursion loses its digits on paths of this length; the error says in which row.
    with pytest.raises(RuntimeError) as error:
        explain(model, rows, algorithm="treeshap")
    message = str(error.value)
    for part in ("at row 0:", "the margin is", "may differ by", "single precision", "check_additivity=False"):
        assert part in message


@pytest.mark.parametrize("family", FAMILIES)
def test_shap_5116_rows_next_to_a_threshold(family: str) -> None:
    """shap/shap#5116: numbers just above a threshold, equal to it in float32, went the wrong way."""
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
    """shap/shap#1824: interactions against background data were silently all zeros."""
    X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    model = DecisionTreeRegressor().fit(X, X[:, 0] * X[:, 1])
    background = X[:2]
    # With two features, the index is v(both) - v(first) - v(second) + v(none), shared between the two halves
    # of the matrix. In the background the first feature is 0, so only v(both) = x0 x1 and v(first) = x0 / 2
    # are not 0.
    both, first = X[:, 0] * X[:, 1], X[:, 0] / 2
    matrices = TreeExplainer(model, background).shap_interaction_values(X)
    np.testing.assert_allclose(matrices[:, 0, 1], (both - first) / 2, atol=1e-7)
    np.testing.assert_allclose(matrices[:, 1, 0], (both - first) / 2, atol=1e-7)
    np.testing.assert_allclose(matrices.sum(axis=2), explain(model, X, data=background).values, atol=1e-7)


def test_xgboost_12241_covers_are_hessians() -> None:
    """dmlc/xgboost#12241: which cover weights the branches, sums of Hessians or counts of rows?"""
    xgboost = library("xgboost")
    pytest.importorskip("pandas")
    X = np.r_[np.zeros(60), np.ones(40)][:, np.newaxis]
    y = np.r_[np.zeros(57), np.ones(3), np.zeros(10), np.ones(30)]
    model = xgboost.XGBClassifier(n_estimators=10, max_depth=1, n_jobs=1, base_score=0.5).fit(X, y)
    base_value = 0.0
    for _, tree in model.get_booster().trees_to_dataframe().groupby("Tree"):
        leaves = tree[tree["Feature"] == "Leaf"]
        base_value += np.average(leaves["Gain"], weights=leaves["Cover"])  # the column of a leaf's value
    assert abs(base_value - np.average(raw_prediction(model, X))) > 1e-2  # values with counts
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
    """shap/shap#4495: the first call for values changed the expected value, and even its shape."""
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
    """shap/shap#77 and #2243: 3.9 million rows took a day on 20 cores, 86 million rows took days."""
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
    # Progress of a call, while it runs.
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
        explainer.shap_interaction_values(X[:20])
    # These calls fit into memory: some rows at a time, and the strongest pairs instead of all 5000 x 5000.
    assert explainer.shap_values(X[:50]).shape == (50, 5000, 224)
    strongest = explainer.explain_interactions(X, interactions=10)
    assert strongest.shape == (448, 10, 224) and strongest.strength[0].sum() > 0


def test_xgboost_10936_memory_is_bounded(device: str) -> None:
    """dmlc/xgboost#10936: contributions took more GPU memory with each release, until jobs failed."""
    X = np.tile(DIABETES, (40, 1)).astype(np.float32)
    model = regressor("xgboost").fit(DIABETES, PROGRESSION)
    options = {"device": device, "algorithm": "quadrature"}
    explainer = TreeExplainer(model, **options)
    expected = explainer.shap_values(X)
    # Memory in addition to the result: on the CPU, for some rows at a time and for a thread; on a GPU, for
    # the model as well.
    spare = explainer.model_info()["scratch_bytes_per_thread"] + 200_000 if device == "cpu" else 512 << 20
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
    """linkedin/FastTreeSHAP#7 and #6: CatBoost models were not supported."""
    catboost = library("catboost")
    model = regressor("catboost").fit(DIABETES, PROGRESSION)
    explanation = assert_adds_up(model, DIABETES, algorithm="fast_v2")
    own = model.get_feature_importance(catboost.Pool(DIABETES), type="ShapValues")
    np.testing.assert_allclose(explanation.values, own[:, :-1], atol=1e-6 * np.abs(own).max())
