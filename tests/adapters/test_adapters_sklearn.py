"""The scikit-learn adapter: margins equal the model's own on rows at the edge of every comparison."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from helpers.checks import assert_margin, hard_rows
from helpers.sklearn_models import (
    BOOST,
    CASES,
    FOREST,
    HIST,
    HIST_MODELS,
    MEAN_MODELS,
    N_FEATURES,
    RTOL,
    TREE,
    make_data,
    own_margin,
    weights,
)
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    RandomTreesEmbedding,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multiclass import OneVsOneClassifier, OutputCodeClassifier
from sklearn.multioutput import ClassifierChain, RegressorChain
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.svm import SVC
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)
from sklearn.tree._tree import Tree as SklearnTree

from skshapgpu import explain
from skshapgpu.adapters import adapt
from skshapgpu.adapters.schema import AdaptedModel
from skshapgpu.errors import UnsupportedModelError

FITTABLE = (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    BaggingClassifier,
    BaggingRegressor,
    IsolationForest,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)


def own_trees(model) -> list:
    if hasattr(model, "tree_"):
        return [model.tree_]
    return [estimator.tree_ for estimator in np.ravel(model.estimators_)]


def accepts(model, X: np.ndarray) -> bool:
    try:
        own_margin(model, X)
    except ValueError:
        return False
    return True


@pytest.fixture(scope="module", params=CASES)
def fitted(request) -> tuple[BaseEstimator, AdaptedModel, str]:
    model, target, options = CASES[request.param]
    X, y = make_data(target, nan=options.get("nan", False))
    model.fit(X, y, **({"sample_weight": weights()} if options.get("weighted") else {}))
    adapted = adapt(model)
    if "one leaf" not in request.param and "one class" not in request.param:
        assert adapted.ensemble.n_leaves > 2 * adapted.ensemble.n_trees
    return model, adapted, target


def test_margin_equals_own_prediction(fitted):
    model, adapted, _ = fitted
    X = hard_rows(adapted.ensemble, nan=adapted.schema.allow_nan, inf=adapted.schema.allow_inf)
    assert_margin(adapted.ensemble, X, own_margin(model, X), RTOL)


def test_cover_is_the_training_weight(fitted):
    model, adapted, _ = fitted
    if isinstance(model, HIST_MODELS):
        expected = [p.nodes["count"] for iteration in model._predictors for p in iteration]
    else:
        expected = [tree.weighted_n_node_samples for tree in own_trees(model)]
    np.testing.assert_array_equal(adapted.ensemble.cover, np.concatenate(expected))


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_schema_accepts_what_the_model_accepts(fitted):
    model, adapted, _ = fitted
    schema = adapted.schema
    assert schema.n_features == N_FEATURES and not schema.encoders and not schema.sparse_zero_missing
    row = np.zeros((2, N_FEATURES))
    assert accepts(model, row)
    for value, allowed in (
        (np.nan, schema.allow_nan),
        (np.inf, schema.allow_inf),
        (-np.inf, schema.allow_inf),
    ):
        assert accepts(model, np.full_like(row, value)) == allowed, value
    # All models but HistGradientBoosting treat a number beyond float32 as infinity.
    huge = np.full_like(row, 1e39)
    assert accepts(model, huge) == schema.allow_inf
    assert adapted.ensemble.x_dtype == ("float64" if isinstance(model, HIST_MODELS) else "float32")
    if schema.allow_inf:
        assert_margin(adapted.ensemble, huge, own_margin(model, huge), RTOL)


def test_outputs_are_named(fitted):
    model, adapted, target = fitted
    probability = isinstance(model, MEAN_MODELS)
    expected = {
        "binary": (1, None, "probability" if probability else "margin", ("no", "yes")),
        "three": (3, ("a", "b", "c"), None, None),
        "several": (3, None, None, None),
        "several classes": (6, ("0_a", "0_b", "0_c", "1_only", "2_no", "2_yes"), None, None),
    }.get(target, (1, None, None, None))
    assert (adapted.ensemble.n_outputs, adapted.output_names, adapted.binary, adapted.class_names) == expected
    assert adapted.family == "sklearn"
    if target == "single":
        constant = 1.0 if probability else model.decision_function(np.zeros((1, N_FEATURES)))[0]
        margin = adapted.ensemble.margin(np.zeros((3, N_FEATURES)))
        np.testing.assert_allclose(margin, np.full((3, 1), constant), rtol=1e-14)


def test_adapted_model_survives_pickling(fitted):
    model, adapted, _ = fitted
    again = pickle.loads(pickle.dumps(adapted))
    X = make_data("number")[0][:20]
    np.testing.assert_array_equal(again.ensemble.margin(X), adapted.ensemble.margin(X))
    assert (again.schema.n_features, again.output_names) == (adapted.schema.n_features, adapted.output_names)
    reloaded = adapt(pickle.loads(pickle.dumps(model)))
    np.testing.assert_array_equal(reloaded.ensemble.value, adapted.ensemble.value)


@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeRegressor(random_state=0),
        RandomForestRegressor(**FOREST),
        GradientBoostingRegressor(**BOOST),
        HistGradientBoostingRegressor(**HIST),
        BaggingRegressor(n_estimators=3, random_state=0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_float64_rows_next_to_a_threshold(model):
    """A float64 number between two float32 numbers is rounded first if the model rounds it."""
    X, y = make_data("number")
    adapted = adapt(model.fit(X, y))
    e = adapted.ensemble
    inner = e.left >= 0
    assert (e.threshold[inner].astype(np.float32) != e.threshold[inner]).any()
    rng = np.random.default_rng(1)
    rows = np.empty((2000, N_FEATURES))
    for f in range(N_FEATURES):
        at = e.threshold[inner & (e.feature == f)]
        rows[:, f] = rng.choice(
            np.concatenate(
                [
                    at,
                    np.nextafter(at, np.inf),
                    np.nextafter(at, -np.inf),
                    at.astype(np.float32),
                ]
            ),
            2000,
        )
    assert_margin(e, rows, own_margin(model, rows), RTOL)
    narrow = e.margin(rows.astype(np.float32))
    assert (narrow != e.margin(rows)).any() == (e.x_dtype == "float64")


def test_nan_goes_both_ways():
    """Missing values do not always go left: each node has its own direction."""
    X, y = make_data("number", nan=True)
    for model in (
        DecisionTreeRegressor(**TREE),
        RandomForestRegressor(**FOREST),
        HistGradientBoostingRegressor(**HIST),
    ):
        adapted = adapt(model.fit(X, y))
        inner = adapted.ensemble.left >= 0
        assert 0 < adapted.ensemble.missing_left[inner].mean() < 1
        rows = hard_rows(adapted.ensemble, inf=adapted.schema.allow_inf)
        left = copy.copy(adapted.ensemble)
        object.__setattr__(left, "missing_left", np.ones_like(left.missing_left))
        assert np.abs(left.margin(rows)[:, 0] - own_margin(model, rows).ravel()).max() > 0.01
        assert_margin(adapted.ensemble, rows, own_margin(model, rows), RTOL)


def test_exponential_loss_starts_at_half_the_log_odds():
    X, y = make_data("binary")
    positive = np.mean(y == "yes")
    assert abs(positive - 0.5) > 0.02
    log_odds = np.log(positive / (1 - positive))
    for loss, start in (("exponential", 0.5 * log_odds), ("log_loss", log_odds)):
        adapted = adapt(GradientBoostingClassifier(loss=loss, n_estimators=2).fit(X, y))
        np.testing.assert_allclose(adapted.ensemble.intercept, [start], rtol=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        GradientBoostingClassifier(**BOOST),
        GradientBoostingClassifier(init="zero", **BOOST),
    ],
    ids=["prior", "zero"],
)
def test_staged_margins_of_multiclass_boosting(model):
    """Within an iteration, there is a tree for each class, and every prefix of iterations adds up."""
    X, y = make_data("three")
    e = adapt(model.fit(X, y)).ensemble
    np.testing.assert_array_equal(e.tree_output, np.tile(np.arange(3), model.n_estimators))
    rows = hard_rows(e, nan=False, inf=False)
    for n_iter, stage in enumerate(model.staged_decision_function(rows), start=1):
        model_then = copy.copy(model)
        model_then.estimators_ = model.estimators_[:n_iter]
        assert_margin(adapt(model_then).ensemble, rows, stage, RTOL)


def test_log_link_is_left_out():
    X, y = make_data("positive")
    model = HistGradientBoostingRegressor(loss="poisson", **HIST).fit(X, y)
    np.testing.assert_allclose(np.exp(adapt(model).ensemble.margin(X)[:, 0]), model.predict(X), rtol=1e-12)


def test_bagging_maps_features_and_missing_classes():
    """A tree of a bag may get only some of the columns, some of them twice, and only some of the classes."""
    X, _ = make_data("number")
    y = np.array(["x"] * 245 + ["y"] * 3 + ["z"] * 2)
    X[y != "x", 4] = 9.0

    class FirstRows(DecisionTreeClassifier):
        """Classifier without ``sample_weight``: a bag draws rows for it, and rare classes go missing."""

        def fit(self, X, y):
            return super().fit(X, y)

    model = BaggingClassifier(
        FirstRows(), 12, max_samples=0.3, max_features=3, bootstrap_features=True, random_state=0
    ).fit(X, y)
    assert len({len(tree.classes_) for tree in model.estimators_}) == 3
    assert any(len(set(features)) < 3 for features in model.estimators_features_)
    adapted = adapt(model)
    rows = hard_rows(adapted.ensemble, inf=False)
    assert_margin(adapted.ensemble, rows, model.predict_proba(rows), RTOL)
    assert adapted.output_names == ("x", "y", "z")
    two = BaggingClassifier(FirstRows(), 12, max_samples=0.3, random_state=0).fit(X, y == "z")
    assert {len(tree.classes_) for tree in two.estimators_} == {1, 2}
    adapted = adapt(two)
    rows = hard_rows(adapted.ensemble, inf=False)
    assert_margin(adapted.ensemble, rows, two.predict_proba(rows)[:, 1], RTOL)
    assert adapted.class_names == (False, True)


def test_isolation_forest_with_feature_subsets_reads_the_right_columns():
    X, _ = make_data("number")
    model = IsolationForest(n_estimators=10, max_features=2, random_state=0).fit(X)
    e = adapt(model).ensemble
    for i, columns in enumerate(model.estimators_features_):
        nodes = slice(e.tree_offsets[i], e.tree_offsets[i + 1])
        assert set(e.feature[nodes][e.left[nodes] >= 0]) <= set(columns)
    # A constant column isolates nothing; a row far outside needs few splits.
    far = np.vstack([X, np.full((1, N_FEATURES), 50.0)])
    assert np.argmin(e.margin(far)[:, 0]) == len(X)


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(n_estimators=2, warm_start=True, max_depth=3, random_state=0),
        GradientBoostingClassifier(n_estimators=2, warm_start=True, random_state=0),
        HistGradientBoostingClassifier(max_iter=2, warm_start=True, random_state=0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_warm_start(model):
    X, y = make_data("three")
    trees = adapt(model.fit(X, y)).ensemble.n_trees
    model.set_params(**{"max_iter" if isinstance(model, HIST_MODELS) else "n_estimators": 5}).fit(X, y)
    e = adapt(model).ensemble
    assert e.n_trees == trees // 2 * 5
    rows = hard_rows(e, nan=False, inf=False)
    assert_margin(e, rows, own_margin(model, rows), RTOL)


def test_labels_keep_their_type():
    X, _ = make_data("number")
    for labels, expected in (([3, 5], (3, 5)), ([False, True], (False, True)), ([-1.0, 2.0], (-1.0, 2.0))):
        adapted = adapt(DecisionTreeClassifier(max_depth=2).fit(X, np.resize(labels, len(X))))
        assert adapted.class_names == expected
        assert [type(c) for c in adapted.class_names] == [type(c) for c in expected]


def test_feature_names():
    pd = pytest.importorskip("pandas")
    X, y = make_data("binary")
    frame = pd.DataFrame(X, columns=list("edcba"))
    for model in (
        DecisionTreeClassifier(max_depth=2),
        RandomForestClassifier(2),
        IsolationForest(n_estimators=2),
        BaggingClassifier(n_estimators=2),
        GradientBoostingClassifier(n_estimators=2),
        HistGradientBoostingClassifier(max_iter=2),
    ):
        assert adapt(model.fit(frame, y)).schema.feature_names == ("e", "d", "c", "b", "a")
        assert adapt(model.fit(X, y)).schema.feature_names is None


@pytest.mark.parametrize("cls", FITTABLE)
def test_unfitted_models_are_named(cls):
    with pytest.raises(NotFittedError, match=cls.__name__):
        adapt(cls())


def test_interrupted_training_is_not_fitted():
    X, y = make_data("binary")
    forest = RandomForestClassifier(2).fit(X, y)
    forest.estimators_ = []
    boosting = GradientBoostingClassifier(n_estimators=2).fit(X, y)
    boosting.estimators_[1, 0] = None
    for model in (forest, boosting):
        with pytest.raises(NotFittedError, match=type(model).__name__):
            adapt(model)


def test_a_class_is_not_a_model():
    with pytest.raises(TypeError, match="RandomForestClassifier"):
        adapt(RandomForestClassifier)


LEAF = DecisionTreeClassifier()
REFUSED = [
    AdaBoostRegressor(),
    ClassifierChain(LEAF),
    RegressorChain(DecisionTreeRegressor()),
    OneVsOneClassifier(LEAF),
    OutputCodeClassifier(LEAF),
    RandomTreesEmbedding(),
    LogisticRegression(),
    LinearRegression(),
    SVC(),
]


@pytest.mark.parametrize("model", REFUSED, ids=lambda m: type(m).__name__)
def test_refused_models_are_named(model):
    with pytest.raises(UnsupportedModelError, match=type(model).__name__):
        adapt(model)


def test_a_tree_with_other_targets_than_its_forest():
    X, y = make_data("several classes")
    model = RandomForestClassifier(**FOREST).fit(X, y)
    model.estimators_[1] = RandomForestClassifier(**FOREST).fit(X, y[:, 1:]).estimators_[0]
    with pytest.raises(ValueError, match=r"3, 1, 2\] classes of its targets, but a tree has \(2, 2\)"):
        adapt(model)


@pytest.mark.parametrize(
    "model",
    [
        BaggingClassifier(KNeighborsClassifier(), 2),
        BaggingRegressor(KNeighborsRegressor(), 2),
        BaggingRegressor(LinearRegression(), 2),
        # A bag of regressors counts predictions as votes, and a bag of classifiers averages labels.
        BaggingClassifier(DecisionTreeRegressor(), 2),
        BaggingRegressor(DecisionTreeClassifier(), 2),
    ],
    ids=lambda m: f"{type(m).__name__}-{type(m.estimator).__name__}",
)
def test_bags_of_other_models_are_refused(model):
    X, y = make_data("number")
    y = (y > 0).astype(int)
    name, member = type(model).__name__, type(model.estimator).__name__
    with pytest.raises(UnsupportedModelError, match=f"{name} of {member}"):
        adapt(model.fit(X, y))


def test_bags_that_were_cut_are_refused() -> None:
    X, y = make_data("number")
    model = BaggingRegressor(n_estimators=4, random_state=0).fit(X, y)
    model.estimators_ = model.estimators_[:2]
    with pytest.raises(
        UnsupportedModelError, match="2 estimators_ and 4 estimators_features_ for n_estimators=4"
    ):
        adapt(model)
    model.estimators_features_ = model.estimators_features_[:2]
    with pytest.raises(UnsupportedModelError, match="2 estimators_features_ for n_estimators=4"):
        adapt(model)
    model.set_params(n_estimators=2)
    explanation = explain(model, X, precision="double")
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, model.predict(X), rtol=1e-9)


@pytest.mark.parametrize(
    "init",
    [
        LogisticRegression(),
        DummyClassifier(strategy="stratified", random_state=0),
    ],
    ids=["LogisticRegression", "stratified"],
)
def test_boosting_from_a_start_that_varies_is_refused(init):
    X, y = make_data("binary")
    model = GradientBoostingClassifier(init=init, n_estimators=2).fit(X, y)
    with pytest.raises(UnsupportedModelError, match=r"GradientBoostingClassifier.*(LogisticReg|stratified)"):
        adapt(model)


class PlainForest(RandomForestRegressor):
    """Subclass that predicts as its base does."""


class MedianForest(RandomForestRegressor):
    def predict(self, X):
        return np.median([tree.predict(X) for tree in self.estimators_], axis=0)


class HalvedTree(DecisionTreeRegressor):
    def predict(self, X, check_input=True):
        return super().predict(X, check_input) / 2


def test_subclasses_of_third_parties():
    X, y = make_data("number")
    model = PlainForest(**FOREST).fit(X, y)
    assert_margin(adapt(model).ensemble, X, model.predict(X), RTOL)
    for model, owner in (
        (MedianForest(**FOREST), "MedianForest"),
        (BaggingRegressor(HalvedTree(max_depth=2), 2), "HalvedTree"),
    ):
        with pytest.raises(UnsupportedModelError, match=rf"{owner} has a predict of its own"):
            adapt(model.fit(X, y))


@pytest.mark.parametrize(
    "field, value",
    [
        ("left_child", 10**6),
        ("right_child", -1),
        ("left_child", 0),
        ("feature", 99),
        ("weighted_n_node_samples", -1.0),
    ],
)
def test_edited_trees_are_refused(field, value):
    X, y = make_data("number")
    model = DecisionTreeRegressor(max_depth=3).fit(X, y)
    state = model.tree_.__getstate__()
    nodes = state["nodes"].copy()
    nodes[field][0] = value
    model.tree_ = SklearnTree(N_FEATURES, np.ones(1, np.intp), 1)
    model.tree_.__setstate__({**state, "nodes": nodes})
    with pytest.raises(ValueError, match="tree 0"):
        adapt(model)


@pytest.mark.parametrize("missing_left", [0, 1])
def test_no_number_is_at_most_a_threshold_of_nan(missing_left):
    """Trees of scikit-learn 1.6 have such thresholds if values were missing in training."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X[::4, 0] = np.nan
    y = np.where(np.isnan(X[:, 0]), 90.0, 60 * X[:, 0]) + 1e3
    model = DecisionTreeRegressor(max_depth=4, random_state=0).fit(X, y)
    state = model.tree_.__getstate__()
    nodes = state["nodes"].copy()
    assert nodes["feature"][0] == 0
    nodes["threshold"][0], nodes["missing_go_to_left"][0] = np.nan, missing_left
    model.tree_ = SklearnTree(3, np.ones(1, np.intp), 1)
    model.tree_.__setstate__({**state, "nodes": nodes})
    # Nodes on the right have higher numbers. The decision_path of scikit-learn 1.6.0 ignores missing values.
    goes_right = model.apply(X) >= nodes["right_child"][0]
    np.testing.assert_array_equal(goes_right, ~np.isnan(X[:, 0]) | (not missing_left))
    predicted = model.predict(X)
    assert np.ptp(predicted) > 1
    explanation = explain(model, X)
    sums = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(sums, predicted, rtol=1e-5)  # of float32
