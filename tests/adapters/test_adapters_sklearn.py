"""The scikit-learn adapter: margins equal the model's own, on rows at the edge of every comparison."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from helpers.checks import assert_margin, hard_rows
from sklearn.base import BaseEstimator, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
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
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, MultiOutputRegressor, RegressorChain
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.svm import SVC
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)
from sklearn.tree._tree import Tree as SklearnTree

from skshapgpu.adapters import adapt
from skshapgpu.errors import UnsupportedModelError
from skshapgpu.schema import AdaptedModel, Column

N_FEATURES = 5
RTOL = 1e-10
MEAN_MODELS = (DecisionTreeClassifier, RandomForestClassifier, ExtraTreesClassifier, BaggingClassifier)
HIST_MODELS = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)
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


def make_data(target: str, *, nan: bool = False, n_rows: int = 250, seed: int = 0):
    """X with two columns of few distinct values, and a target of the given kind."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, N_FEATURES))
    X[:, 3] = np.round(X[:, 3])
    X[:, 4] = rng.integers(0, 4, n_rows) / 10
    signal = X[:, 0] + X[:, 1] * (X[:, 3] > 0) + 3 * X[:, 4] + rng.normal(scale=0.3, size=n_rows)
    if nan:
        # Missing values say something: in one column they go with high targets, in one with low ones.
        X[(signal > 1) & (rng.random(n_rows) < 0.5), 0] = np.nan
        X[(signal < 0) & (rng.random(n_rows) < 0.5), 1] = np.nan
        X[rng.random(n_rows) < 0.1, 3] = np.nan
    y = {
        "number": signal,
        "positive": np.exp(signal / 2),
        "several": np.column_stack([signal, -(signal**2), rng.normal(size=n_rows)]),
        "binary": np.where(signal > 0.7, "yes", "no"),
        "three": np.array(["c", "a", "b"])[np.digitize(signal, [-0.5, 1.0])],
        "single": np.full(n_rows, 7),
    }[target]
    return X, y


def weights(n_rows: int = 250) -> np.ndarray:
    return np.random.default_rng(5).uniform(0.1, 3.0, n_rows)


def own_margin(model, X: np.ndarray) -> np.ndarray:
    """What the fitted model itself predicts, in the space that its trees add up in."""
    if isinstance(model, IsolationForest):
        n = model._max_samples
        average = 2 * (np.log(n - 1) + np.euler_gamma) - 2 * (n - 1) / n
        return -np.log2(-model.score_samples(X)) * average
    if isinstance(model, MEAN_MODELS):
        proba = model.predict_proba(X)
        return proba[:, 1] if proba.shape[1] == 2 else proba
    if is_classifier(model):
        return model.decision_function(X)
    return model._raw_predict(X) if isinstance(model, HIST_MODELS) else model.predict(X)


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


TREE = dict(max_depth=5, random_state=0)
FOREST = dict(n_estimators=7, max_depth=5, random_state=0)
BOOST = dict(n_estimators=8, max_depth=3, random_state=0)
HIST = dict(max_iter=8, min_samples_leaf=5, random_state=0)
SHALLOW = DecisionTreeClassifier(max_depth=3)

CASES = {
    "tree classifier": (DecisionTreeClassifier(**TREE), "binary", {}),
    "tree classifier, NaN": (DecisionTreeClassifier(**TREE), "binary", {"nan": True}),
    "tree classifier, three classes": (DecisionTreeClassifier(**TREE), "three", {}),
    "tree classifier, entropy and leaf limit": (
        DecisionTreeClassifier(criterion="entropy", max_leaf_nodes=9, random_state=0),
        "three",
        {},
    ),
    "tree classifier, class weights": (DecisionTreeClassifier(class_weight="balanced", **TREE), "three", {}),
    "tree classifier, sample weights": (DecisionTreeClassifier(**TREE), "three", {"weighted": True}),
    "tree classifier, monotonic": (
        DecisionTreeClassifier(monotonic_cst=[1, 0, 0, 0, -1], **TREE),
        "binary",
        {},
    ),
    "tree classifier, one class": (DecisionTreeClassifier(**TREE), "single", {}),
    "tree classifier, one leaf": (DecisionTreeClassifier(min_samples_leaf=200, random_state=0), "three", {}),
    "extra tree classifier": (ExtraTreeClassifier(**TREE), "three", {}),
    "extra tree classifier, NaN": (ExtraTreeClassifier(**TREE), "binary", {"nan": True}),
    "extra tree classifier, best splitter": (ExtraTreeClassifier(splitter="best", **TREE), "binary", {}),
    "tree regressor": (DecisionTreeRegressor(**TREE), "number", {}),
    "tree regressor, NaN": (DecisionTreeRegressor(**TREE), "number", {"nan": True}),
    "tree regressor, unlimited": (DecisionTreeRegressor(random_state=0), "number", {}),
    "tree regressor, several targets": (DecisionTreeRegressor(**TREE), "several", {"nan": True}),
    "tree regressor, poisson": (DecisionTreeRegressor(criterion="poisson", **TREE), "positive", {}),
    "tree regressor, absolute error": (
        DecisionTreeRegressor(criterion="absolute_error", **TREE),
        "number",
        {"weighted": True},
    ),
    "tree regressor, pruned": (DecisionTreeRegressor(ccp_alpha=0.02, **TREE), "number", {}),
    "tree regressor, monotonic": (
        DecisionTreeRegressor(monotonic_cst=[1, 0, 0, -1, 1], **TREE),
        "number",
        {},
    ),
    "tree regressor, one leaf": (DecisionTreeRegressor(max_depth=1, min_samples_leaf=200), "several", {}),
    "extra tree regressor": (ExtraTreeRegressor(**TREE), "number", {"weighted": True}),
    "forest classifier": (RandomForestClassifier(**FOREST), "binary", {}),
    "forest classifier, NaN": (RandomForestClassifier(**FOREST), "three", {"nan": True}),
    "forest classifier, class weights": (
        RandomForestClassifier(class_weight="balanced_subsample", **FOREST),
        "three",
        {"weighted": True},
    ),
    "forest classifier, one class": (RandomForestClassifier(**FOREST), "single", {}),
    "forest classifier, monotonic": (
        RandomForestClassifier(monotonic_cst=[1, 0, 0, 0, 1], **FOREST),
        "binary",
        {},
    ),
    "forest regressor": (RandomForestRegressor(max_samples=0.5, **FOREST), "number", {"weighted": True}),
    "forest regressor, several targets": (RandomForestRegressor(**FOREST), "several", {"nan": True}),
    "extra trees classifier": (ExtraTreesClassifier(**FOREST), "three", {}),
    "extra trees classifier, NaN": (ExtraTreesClassifier(bootstrap=True, **FOREST), "binary", {"nan": True}),
    "extra trees regressor": (ExtraTreesRegressor(max_leaf_nodes=9, **FOREST), "number", {}),
    "extra trees regressor, absolute error": (
        ExtraTreesRegressor(criterion="absolute_error", **FOREST),
        "number",
        {},
    ),
    "bagging classifier": (BaggingClassifier(SHALLOW, 6, random_state=0), "binary", {"nan": True}),
    "bagging classifier, feature subsets": (
        BaggingClassifier(SHALLOW, 6, max_features=0.6, random_state=0),
        "three",
        {},
    ),
    "bagging classifier, repeated features": (
        BaggingClassifier(SHALLOW, 6, bootstrap_features=True, random_state=0),
        "three",
        {"nan": True},
    ),
    "bagging classifier, one class": (BaggingClassifier(SHALLOW, 3, random_state=0), "single", {}),
    "bagging regressor": (BaggingRegressor(n_estimators=5, random_state=0), "number", {}),
    "bagging regressor, several targets": (
        BaggingRegressor(ExtraTreeRegressor(max_depth=4), 5, max_features=3, random_state=0),
        "several",
        {"nan": True},
    ),
    "isolation forest": (IsolationForest(n_estimators=8, random_state=0), "number", {}),
    "isolation forest, feature subsets": (
        IsolationForest(n_estimators=8, max_features=0.6, max_samples=64, random_state=0),
        "number",
        {"weighted": True},
    ),
    "isolation forest, NaN": (IsolationForest(n_estimators=8, random_state=0), "number", {"nan": True}),
    "boosting classifier": (GradientBoostingClassifier(**BOOST), "binary", {}),
    "boosting classifier, exponential": (
        GradientBoostingClassifier(loss="exponential", **BOOST),
        "binary",
        {"weighted": True},
    ),
    "boosting classifier, three classes": (GradientBoostingClassifier(subsample=0.7, **BOOST), "three", {}),
    "boosting classifier, early stopping": (
        GradientBoostingClassifier(n_estimators=200, learning_rate=1.0, n_iter_no_change=2, random_state=0),
        "three",
        {},
    ),
    "boosting classifier, zero init": (GradientBoostingClassifier(init="zero", **BOOST), "three", {}),
    "boosting classifier, most frequent init": (
        GradientBoostingClassifier(init=DummyClassifier(strategy="most_frequent"), **BOOST),
        "binary",
        {},
    ),
    "boosting classifier, uniform init": (
        GradientBoostingClassifier(init=DummyClassifier(strategy="uniform"), **BOOST),
        "three",
        {},
    ),
    "boosting regressor": (GradientBoostingRegressor(learning_rate=0.3, **BOOST), "number", {}),
    "boosting regressor, absolute error": (
        GradientBoostingRegressor(loss="absolute_error", **BOOST),
        "number",
        {"weighted": True},
    ),
    "boosting regressor, huber": (GradientBoostingRegressor(loss="huber", **BOOST), "number", {}),
    "boosting regressor, quantile": (GradientBoostingRegressor(loss="quantile", **BOOST), "number", {}),
    "boosting regressor, zero init": (GradientBoostingRegressor(init="zero", **BOOST), "number", {}),
    "boosting regressor, constant init": (
        GradientBoostingRegressor(init=DummyRegressor(strategy="constant", constant=3.5), **BOOST),
        "number",
        {},
    ),
    "hist classifier": (HistGradientBoostingClassifier(**HIST), "binary", {}),
    "hist classifier, NaN": (HistGradientBoostingClassifier(**HIST), "binary", {"nan": True}),
    "hist classifier, three classes": (
        HistGradientBoostingClassifier(class_weight="balanced", **HIST),
        "three",
        {"nan": True},
    ),
    "hist classifier, early stopping": (
        HistGradientBoostingClassifier(
            max_iter=100, learning_rate=1.0, early_stopping=True, n_iter_no_change=2, random_state=0
        ),
        "three",
        {},
    ),
    "hist classifier, one class": (HistGradientBoostingClassifier(**HIST), "single", {}),
    "hist regressor": (HistGradientBoostingRegressor(max_leaf_nodes=6, **HIST), "number", {"nan": True}),
    "hist regressor, sample weights": (HistGradientBoostingRegressor(**HIST), "number", {"weighted": True}),
    "hist regressor, monotonic": (
        HistGradientBoostingRegressor(monotonic_cst=[1, 0, 0, 0, 1], interaction_cst="pairwise", **HIST),
        "number",
        {},
    ),
    "hist regressor, poisson": (HistGradientBoostingRegressor(loss="poisson", **HIST), "positive", {}),
    "hist regressor, gamma": (HistGradientBoostingRegressor(loss="gamma", **HIST), "positive", {}),
    "hist regressor, quantile": (
        HistGradientBoostingRegressor(loss="quantile", quantile=0.8, **HIST),
        "number",
        {},
    ),
    "hist regressor, absolute error": (
        HistGradientBoostingRegressor(loss="absolute_error", **HIST),
        "number",
        {},
    ),
    "hist regressor, one leaf": (
        HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=200),
        "number",
        {},
    ),
}


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
    # Beyond float32 a number is an infinity to all but HistGradientBoosting.
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
    """A float64 number between two float32 numbers is rounded first, or not, as the model does."""
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
    """Missing values are not always sent left: each node says where."""
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
    """Trees come class by class inside an iteration, and every prefix of iterations adds up."""
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
    """A tree of a bag may see some of the columns, some twice, and some of the classes only."""
    X, _ = make_data("number")
    y = np.array(["x"] * 245 + ["y"] * 3 + ["z"] * 2)
    X[y != "x", 4] = 9.0

    class FirstRows(DecisionTreeClassifier):
        """Has no ``sample_weight``: the bag then draws rows, and rare classes go missing."""

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


def encoded(adapted: AdaptedModel, columns: list[tuple[str, np.ndarray]]) -> np.ndarray:
    """Encode categorical columns through the schema, and read the others as numbers."""
    X = np.empty((len(columns[0][1]), len(columns)))
    for i, (name, values) in enumerate(columns):
        encoder = adapted.schema.encoders.get(i)
        X[:, i] = np.asarray(values, np.float64) if encoder is None else encoder.encode(Column(name, values))
    return X


def category_data(n_rows: int = 400, seed: int = 0):
    """Columns: number, word, number, code; words and codes decide the target, some are missing."""
    rng = np.random.default_rng(seed)
    words = np.array([f"w{i}" for i in range(40)], object)
    word, code = rng.integers(0, 40, n_rows), rng.choice([-5, 3, 7, 300, 1000], n_rows)
    effect = rng.normal(size=40)
    first, second = rng.normal(size=(2, n_rows))
    signal = 2 * effect[word] + (code == 7) * 3 - (code == 300) * 2 + first + rng.normal(size=n_rows) * 0.2
    word_column, code_column = words[word], code.astype(float)
    word_column[rng.random(n_rows) < 0.1] = None
    code_column[rng.random(n_rows) < 0.1] = np.nan
    second[rng.random(n_rows) < 0.2] = np.nan
    return [first, word_column, second, code_column], signal


def decoded(adapted: AdaptedModel, X: np.ndarray, unseen: bool = True) -> list[np.ndarray]:
    """The columns whose encoding is X, with categories that training never met where X has NaN."""
    columns = []
    for i in range(X.shape[1]):
        if i not in adapted.schema.encoders:
            columns.append(X[:, i])
            continue
        categories = adapted.schema.encoders[i].categories
        values = np.full(len(X), np.nan, object if categories.dtype == object else np.float64)
        known = ~np.isnan(X[:, i])
        values[known] = categories[X[known, i].astype(int)]
        missing = np.flatnonzero(~known)
        if unseen:
            values[missing[::2]] = "never seen" if categories.dtype == object else -77
        columns.append(values)
    return columns


CATEGORY_HIST = dict(max_iter=3, max_leaf_nodes=15, min_samples_leaf=5, random_state=0)
NAMES = ["first", "word", "second", "code"]


@pytest.mark.parametrize(
    "how, target",
    [
        ("names", "number"),
        ("mask", "binary"),
        ("dtype", "three"),
        ("dtype", "number"),
    ],
)
def test_hist_categories_in_a_frame(how, target):
    pd = pytest.importorskip("pandas")
    columns, signal = category_data()
    frame = pd.DataFrame(dict(zip(NAMES, columns, strict=True)))
    if how == "dtype":
        frame = frame.astype({"word": "category", "code": "category"})
    y = {"number": signal, "binary": signal > 0, "three": np.digitize(signal, [-1, 1])}[target]
    features = {"names": ["code", "word"], "mask": [False, True, False, True], "dtype": "from_dtype"}[how]
    cls = HistGradientBoostingRegressor if target == "number" else HistGradientBoostingClassifier
    model = cls(categorical_features=features, **CATEGORY_HIST).fit(frame, y)
    adapted = adapt(model)
    e = adapted.ensemble
    assert adapted.schema.feature_names == tuple(NAMES)
    assert set(adapted.schema.encoders) == {1, 3}
    assert set(e.feature[e.category_set >= 0]) == {1, 3}
    assert np.isin(e.feature[(e.category_set < 0) & (e.left >= 0)], [0, 2]).all()
    X = hard_rows(e, unseen=False)
    rows = decoded(adapted, X)
    asked = pd.DataFrame(dict(zip(NAMES, rows, strict=True)))
    if how == "dtype":
        # The frame's own codes mean nothing: its categories come in another order.
        for name in ("word", "code"):
            order = asked[name].dropna().unique()[::-1]
            asked[name] = pd.Categorical(asked[name], categories=order)
    expected = own_margin(model, asked)
    np.testing.assert_array_equal(encoded(adapted, list(zip(NAMES, rows, strict=True))), X)
    assert_margin(e, X, expected, RTOL)
    # What comparing codes as numbers would give: it has to be another answer, or this test is none.
    numeric = copy.copy(e)
    object.__setattr__(numeric, "category_set", np.empty(0, np.int32))
    assert np.abs(numeric.margin(X) - expected.reshape(len(X), -1)).max() > 0.1


def test_hist_categories_in_an_array():
    columns, signal = category_data()
    shop = np.random.default_rng(1).choice([10.0, 20.0, 40.0], len(signal))
    signal = signal + 3 * (shop == 20)
    X = np.column_stack([columns[0], columns[3], columns[2], shop])
    model = HistGradientBoostingRegressor(categorical_features=[3, 1], **CATEGORY_HIST).fit(X, signal)
    adapted = adapt(model)
    np.testing.assert_array_equal(adapted.schema.encoders[1].categories[:5], [-5, 3, 7, 300, 1000])
    np.testing.assert_array_equal(adapted.schema.encoders[3].categories, [10, 20, 40])
    codes = hard_rows(adapted.ensemble, unseen=False)
    rows = decoded(adapted, codes)
    names = ["a", "b", "c", "d"]
    np.testing.assert_array_equal(encoded(adapted, list(zip(names, rows, strict=True))), codes)
    assert_margin(adapted.ensemble, codes, own_margin(model, np.column_stack(rows)), RTOL)


def test_hist_strings_in_an_object_array():
    columns, signal = category_data()
    X = np.empty((len(signal), 4), object)
    for i, values in enumerate(columns):
        X[:, i] = values
    model = HistGradientBoostingRegressor(categorical_features=[1], **CATEGORY_HIST)
    X[[v is None for v in X[:, 1]], 1] = np.nan
    adapted = adapt(model.fit(X, signal))
    codes = hard_rows(adapted.ensemble, unseen=False)
    rows = np.empty((len(codes), 4), object)
    for i, values in enumerate(decoded(adapted, codes)):
        rows[:, i] = values
    assert_margin(adapted.ensemble, codes, own_margin(model, rows), RTOL)


def test_hist_categories_in_polars():
    pl = pytest.importorskip("polars")
    columns, signal = category_data()
    frame = pl.DataFrame({"first": columns[0], "word": list(columns[1]), "second": columns[2]})
    frame = frame.with_columns(pl.col("word").cast(pl.Categorical))
    model = HistGradientBoostingRegressor(categorical_features=["word"], **CATEGORY_HIST).fit(frame, signal)
    adapted = adapt(model)
    asked = frame.head(200)
    values = np.array(asked["word"].to_list(), object)
    X = encoded(adapted, [("first", columns[0][:200]), ("word", values), ("second", columns[2][:200])])
    assert_margin(adapted.ensemble, X, own_margin(model, asked), RTOL)


def test_hist_with_256_codes_uses_every_word_of_the_bitset():
    rng = np.random.default_rng(0)
    code = np.tile(np.arange(255.0), 12)
    effect = rng.normal(size=255)
    X = np.column_stack([rng.normal(size=len(code)), code])
    model = HistGradientBoostingRegressor(
        categorical_features=[1], max_bins=255, min_samples_leaf=1, max_iter=5
    ).fit(X, effect[code.astype(int)])
    adapted = adapt(model)
    assert adapted.ensemble.category_values.max() > 223
    rows = np.column_stack([np.zeros(258), np.r_[np.arange(255.0), np.nan, 255.0, -1.0]])
    codes = encoded(adapted, [("x", rows[:, 0]), ("code", rows[:, 1])])
    assert_margin(adapted.ensemble, codes, own_margin(model, rows), RTOL)


def test_encoder_refuses_what_the_model_refuses():
    pd = pytest.importorskip("pandas")
    columns, signal = category_data()
    frame = pd.DataFrame(dict(zip(NAMES, columns, strict=True)))
    model = HistGradientBoostingRegressor(categorical_features=["word", "code"], **CATEGORY_HIST)
    model.fit(frame, signal)
    encoders = adapt(model).schema.encoders
    assert set(encoders) == {1, 3}
    with pytest.raises(ValueError, match=r"column 'code' contains infinity"):
        encoders[3].encode(Column("code", np.array([3.0, np.inf])))
    with pytest.raises(ValueError, match="infinity"):
        model.predict(frame.assign(code=np.inf))
    with pytest.raises(ValueError, match=r"column 'word' contains the number 2\.0.*such as 'w0'"):
        encoders[1].encode(Column("word", np.array([np.nan, 2.0])))
    with pytest.raises(TypeError):
        model.predict(frame.assign(word=2.0))
    assert np.isnan(encoders[1].encode(Column("word", np.array([np.nan, np.nan])))).all()
    mixed = np.array(["w1", 3, None, np.nan, "W1"], object)
    np.testing.assert_array_equal(encoders[1].encode(Column("word", mixed)), [1] + [np.nan] * 4)
    integers = np.array([-5, 7, 8, 1001, -6])
    np.testing.assert_array_equal(encoders[3].encode(Column("code", integers)), [0, 2] + [np.nan] * 3)
    objects = np.array([7, 7.0, "7", None], object)
    np.testing.assert_array_equal(encoders[3].encode(Column("code", objects)), [2, 2, np.nan, np.nan])


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
    AdaBoostClassifier(),
    AdaBoostRegressor(),
    VotingClassifier([("a", LEAF)]),
    VotingRegressor([("a", DecisionTreeRegressor())]),
    StackingClassifier([("a", LEAF)]),
    StackingRegressor([("a", DecisionTreeRegressor())]),
    CalibratedClassifierCV(LEAF),
    MultiOutputClassifier(LEAF),
    MultiOutputRegressor(DecisionTreeRegressor()),
    ClassifierChain(LEAF),
    RegressorChain(DecisionTreeRegressor()),
    OneVsRestClassifier(LEAF),
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


@pytest.mark.parametrize(
    "cls", [DecisionTreeClassifier, ExtraTreeClassifier, RandomForestClassifier, ExtraTreesClassifier]
)
def test_multi_output_classification_is_refused(cls):
    X, y = make_data("several")
    with pytest.raises(UnsupportedModelError, match=rf"{cls.__name__} of several targets"):
        adapt(cls(max_depth=2).fit(X, y > 0))


@pytest.mark.parametrize(
    "model",
    [
        BaggingClassifier(KNeighborsClassifier(), 2),
        BaggingClassifier(RandomForestClassifier(2), 2),
        BaggingRegressor(KNeighborsRegressor(), 2),
        BaggingRegressor(LinearRegression(), 2),
        # A bag of regressors counts their predictions as votes, one of classifiers averages their labels.
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
    """A subclass that predicts as its base does."""


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
        ("threshold", np.nan),
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
