"""CatBoost: its models' predictions, computed from their trees."""

from __future__ import annotations

import itertools
import json
import math
import pickle

import numpy as np
import pytest
from helpers.catboost_models import RTOL, TINY, category_model, check, data, encoded, export, raw, regressor
from helpers.checks import assert_margin, hard_rows

from skshapgpu import TreeExplainer, explain, explain_batches
from skshapgpu.adapters import adapt

catboost = pytest.importorskip("catboost")


# Trees and missing values


@pytest.mark.parametrize("grow_policy", ["SymmetricTree", "Depthwise", "Lossguide"])
@pytest.mark.parametrize("nan_mode", ["Min", "Max"])
@pytest.mark.parametrize("trained_with_nan", [False, True])
def test_missing_values(grow_policy, nan_mode, trained_with_nan):
    X, y = data()
    if trained_with_nan:
        X[::4, :2] = np.nan
    ensemble = check(regressor(X, y, grow_policy=grow_policy, nan_mode=nan_mode)).ensemble
    inner = ensemble.left >= 0
    goes_right = {f: not ensemble.missing_left[inner & (ensemble.feature == f)].all() for f in range(3)}
    expected = nan_mode == "Max" and trained_with_nan
    assert goes_right == {0: expected, 1: expected, 2: False}


def test_nan_mode_of_one_feature():
    X, y = data()
    X[::4, :2] = np.nan
    check(regressor(X, y, per_float_feature_quantization=["0:nan_mode=Max", "1:nan_mode=Min"]))


@pytest.mark.parametrize(
    "options",
    [
        {"loss_function": "Quantile:alpha=0.3"},
        {"loss_function": "MAE"},
        {"loss_function": "Poisson"},
        {"loss_function": "Tweedie:variance_power=1.5"},
        {"boosting_type": "Ordered"},
        {"boost_from_average": False},
        {"bootstrap_type": "Bernoulli", "subsample": 0.5},
        {"leaf_estimation_method": "Gradient"},
        {"score_function": "L2", "grow_policy": "Depthwise", "min_data_in_leaf": 30},
        {"grow_policy": "Lossguide", "max_leaves": 5, "depth": 12},
        {"border_count": 1},
        {"depth": 1},
        {"posterior_sampling": True},
        {"monotone_constraints": [1, 0, 0, 0, 0]},
        {"ignored_features": [0, 4]},
    ],
    ids=str,
)
def test_regression_settings(options):
    X, y = data()
    check(regressor(X, np.exp(y), **options))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("grow_policy", ["SymmetricTree", "Depthwise", "Lossguide"])
def test_cover_is_the_training_weight(grow_policy, weighted):
    """Weights of leaves at different depths add up to the total weight; see also catboost#1703."""
    X, y = data()
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(X)) if weighted else np.ones(len(X))
    model = catboost.CatBoostRegressor(**TINY, grow_policy=grow_policy).fit(X, y, sample_weight=weight)
    ensemble = adapt(model).ensemble
    roots = ensemble.tree_offsets[:-1]
    np.testing.assert_allclose(ensemble.cover[roots], weight.sum(), rtol=1e-6)
    start = np.repeat(roots, np.diff(ensemble.tree_offsets))
    inner = np.flatnonzero(ensemble.left >= 0)
    children = (
        ensemble.cover[start[inner] + ensemble.left[inner]]
        + ensemble.cover[start[inner] + ensemble.right[inner]]
    )
    np.testing.assert_allclose(ensemble.cover[inner], children, rtol=1e-15)


def test_symmetric_levels_ask_one_question():
    ensemble = adapt(regressor(*data())).ensemble
    for start, end in itertools.pairwise(ensemble.tree_offsets):
        level = [0]
        while ensemble.left[start + level[0]] >= 0:
            nodes = start + np.array(level)
            assert len(set(zip(ensemble.feature[nodes], ensemble.threshold[nodes]))) == 1
            level = [child for i in nodes for child in (ensemble.left[i], ensemble.right[i])]
        assert len(level) == (end - start + 1) // 2


def test_depth_16():
    X, y = data(n_rows=1000, n_features=16)
    ensemble = check(regressor(X, y, depth=16, iterations=1, border_count=16), n_rows=300).ensemble
    assert ensemble.n_leaves == 1 << 16


@pytest.mark.parametrize("grow_policy", ["Depthwise", "Lossguide"])
def test_trees_of_one_leaf(grow_policy):
    X, y = data()
    model = regressor(X, y, grow_policy=grow_policy, min_data_in_leaf=1000, model_shrink_rate=0.1)
    adapted = check(model)
    assert adapted.ensemble.n_nodes == adapted.ensemble.n_trees == 8


def test_symmetric_tree_without_splits(tmp_path):
    X, y = data()
    document = export(regressor(X, y, iterations=2), tmp_path / "model.json")
    document["oblivious_trees"][0] = {"leaf_values": [0.75], "leaf_weights": [300], "splits": None}
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(document))
    model = catboost.CatBoostRegressor().load_model(str(path), format="json")
    adapted = check(model)
    assert list(np.diff(adapted.ensemble.tree_offsets)) == [1, 31]


# Outputs


def test_binary_classification():
    X, y = data()
    model = catboost.CatBoostClassifier(**TINY).fit(X, np.where(y > 0, "yes", "no"))
    adapted = check(model)
    assert (adapted.binary, adapted.class_names, adapted.output_names) == ("margin", ("no", "yes"), None)
    probability = 1 / (1 + np.exp(-adapted.ensemble.margin(X)[:, 0]))
    np.testing.assert_allclose(probability, model.predict_proba(X)[:, 1], rtol=1e-12)


@pytest.mark.parametrize("labels", [(0, 1), (0.0, 1.5), ("no", "yes")])
def test_class_names_are_the_labels(labels):
    X, y = data()
    model = catboost.CatBoost(TINY | {"loss_function": "Logloss"}).fit(X, np.where(y > 0, *labels[::-1]))
    adapted = adapt(model)
    assert adapted.class_names == labels
    assert [type(name) for name in adapted.class_names] == [type(label) for label in labels]


def test_cross_entropy():
    X, y = data()
    model = catboost.CatBoostClassifier(loss_function="CrossEntropy", **TINY)
    adapted = check(model.fit(X, 1 / (1 + np.exp(-y))))
    assert (adapted.binary, adapted.class_names) == ("margin", (0, 1))


@pytest.mark.parametrize("loss", ["MultiClass", "MultiClassOneVsAll"])
@pytest.mark.parametrize("grow_policy", ["SymmetricTree", "Lossguide"])
def test_multiclass(loss, grow_policy):
    X, y = data()
    labels = np.array(["a", "b", "c"])[np.digitize(y, [-0.5, 0.5])]
    model = catboost.CatBoostClassifier(loss_function=loss, grow_policy=grow_policy, **TINY).fit(X, labels)
    adapted = check(model)
    assert (adapted.binary, adapted.class_names, adapted.output_names) == (None, None, ("a", "b", "c"))


def test_multiclass_deep():
    """shap#429, #1752, #3276 and #2085: memory errors from depth 7 on."""
    X, y = data()
    check(catboost.CatBoostClassifier(**TINY | {"depth": 8}).fit(X, np.digitize(y, [-1, 0, 1])), n_rows=500)


def test_multiclass_of_two_classes_has_two_outputs():
    X, y = data()
    model = catboost.CatBoostClassifier(loss_function="MultiClass", **TINY)
    adapted = check(model.fit(X, (y > 0).astype(int)))
    assert (adapted.binary, adapted.output_names) == (None, (0, 1))


def test_class_that_was_never_seen_has_no_output():
    X, y = data()
    model = catboost.CatBoostClassifier(loss_function="MultiClass", class_names=[10, 20, 30, 40], **TINY)
    model.fit(X, np.array([10, 30, 40])[np.digitize(y, [-0.5, 0.5])])
    adapted = adapt(model)
    X = hard_rows(adapted.ensemble)
    expected = raw(model, X)
    assert np.isneginf(expected[:, 1]).all()
    assert adapted.output_names == (10, 30, 40)
    assert_margin(adapted.ensemble, X, expected[:, [0, 2, 3]], RTOL)


@pytest.mark.parametrize("grow_policy", ["SymmetricTree", "Depthwise"])
@pytest.mark.parametrize(
    ("loss", "n_outputs"),
    [("MultiRMSE", 2), ("RMSEWithUncertainty", 2), ("MultiQuantile:alpha=0.2,0.5,0.8", 3)],
)
def test_several_regression_outputs(loss, n_outputs, grow_policy):
    X, y = data()
    target = np.column_stack([y, y**2]) if loss == "MultiRMSE" else y
    adapted = check(regressor(X, target, loss_function=loss, grow_policy=grow_policy))
    assert adapted.ensemble.n_outputs == n_outputs
    assert (adapted.output_names, adapted.binary, adapted.class_names) == (None, None, None)


@pytest.mark.parametrize("loss", ["MultiLogloss", "MultiCrossEntropy"])
def test_several_labels(loss):
    X, y = data()
    target = np.column_stack([y > 0, y > 1, X[:, 0] > 0]).astype(int)
    adapted = check(catboost.CatBoostClassifier(loss_function=loss, **TINY).fit(X, target))
    assert (adapted.ensemble.n_outputs, adapted.output_names, adapted.binary) == (3, (0, 1, 2), None)


@pytest.mark.parametrize("loss", ["YetiRank", "PairLogit", "QueryRMSE"])
def test_ranking(loss):
    X, y = data()
    model = catboost.CatBoostRanker(loss_function=loss, **TINY)
    adapted = check(model.fit(X, np.digitize(y, [-1, 0, 1]), group_id=np.repeat(np.arange(30), 10)))
    assert (adapted.family, adapted.binary, adapted.output_names) == ("catboost", None, None)


# Scale, bias and the number of trees


def test_scale_and_bias():
    """Scale and bias, as in catboost#1125, #2136, #1170, #1505 and #2389; shap ignores both."""
    X, y = data()
    model = regressor(X, y)
    before = adapt(model).ensemble
    model.set_scale_and_bias(-2.5, 7.0)
    after = check(model).ensemble
    np.testing.assert_allclose(after.value, -2.5 * before.value, rtol=1e-15)
    assert after.intercept == [7.0]


def test_bias_of_each_output():
    X, y = data()
    model = regressor(X, np.column_stack([y, y + 5]), loss_function="MultiRMSE")
    np.testing.assert_allclose(check(model).ensemble.intercept, [y.mean(), y.mean() + 5], rtol=1e-5)
    model.set_scale_and_bias(0.5, [1.0, -2.0])
    np.testing.assert_array_equal(check(model).ensemble.intercept, [1.0, -2.0])


def test_best_iteration():
    X, y = data()
    model = catboost.CatBoostRegressor(**TINY | {"iterations": 40, "learning_rate": 1.0})
    model.fit(X[:100], y[:100], eval_set=(X[100:], y[99:-1]), use_best_model=True)
    assert model.tree_count_ < 40
    assert check(model).ensemble.n_trees == model.tree_count_


def test_shrink():
    X, y = data()
    model = regressor(X, y)
    model.shrink(6, ntree_start=2)
    assert check(model).ensemble.n_trees == 4


@pytest.mark.parametrize("grow_policy", ["SymmetricTree", "Lossguide"])
def test_sum_of_models(grow_policy):
    X, y = data()
    models = [
        catboost.CatBoostClassifier(**TINY, grow_policy=grow_policy).fit(X, y > bound) for bound in (0, 1)
    ]
    adapted = check(catboost.sum_models(models, weights=[0.5, 2.0]))
    assert adapted.ensemble.n_trees == 16
    assert (adapted.binary, adapted.class_names) == ("margin", tuple(models[0].classes_.tolist()))


def test_sum_of_models_with_different_biases():
    X, y = data()
    check(catboost.sum_models([regressor(X, y), regressor(X, y + 10)], weights=[1.0, -0.25]))


def test_changed_leaf_values():
    """catboost#1243: a value in a leaf that no training row reached."""
    X, y = data()
    model = regressor(X, y, iterations=2)
    model.set_leaf_values(np.arange(1.0, 33.0))
    ensemble = check(model).ensemble
    leaf = ensemble.left < 0
    assert (ensemble.cover[leaf] == 0).any()
    np.testing.assert_array_equal(np.sort(ensemble.value[leaf, 0]), np.arange(1.0, 33.0))


@pytest.mark.parametrize("format", ["cbm", "json"])
def test_loaded_model(tmp_path, format):
    X, y = data()
    model = regressor(X, y)
    path = str(tmp_path / "model")
    model.save_model(path, format=format)
    loaded = catboost.CatBoostRegressor().load_model(path, format=format)
    assert check(loaded).schema.n_features == 5
    assert check(pickle.loads(pickle.dumps(model))).schema.n_features == 5


# Columns of X


def test_feature_names():
    pd = pytest.importorskip("pandas")
    X, y = data()
    assert adapt(regressor(X, y)).schema.feature_names is None
    frame = pd.DataFrame(X, columns=list("edcba"))
    assert adapt(regressor(frame, y)).schema.feature_names == tuple("edcba")
    unused = regressor(frame, y, ignored_features=[1, 4])
    schema = adapt(unused).schema
    assert (schema.n_features, schema.feature_names) == (5, tuple("edcba"))


@pytest.mark.parametrize("format", [None, "cbm", "json"])
def test_numbers_as_names_of_columns(tmp_path, format):
    """CatBoost also finds the columns of a data frame by such names; without names, by position."""
    pd = pytest.importorskip("pandas")
    X, y = data()
    frame = pd.DataFrame(X)
    model = regressor(frame, y)
    assert adapt(model).schema.feature_names == tuple("01234")
    reordered = frame[[4, 2, 0, 1, 3]]
    np.testing.assert_array_equal(model.predict(reordered), model.predict(frame))
    source = model if format is None else tmp_path / f"model.{format}"
    if format is not None:
        model.save_model(source, format=format)
    for same in (frame, X):
        explanation = explain(source, same)
        total = explanation.base_values + explanation.values.sum(axis=1)
        np.testing.assert_allclose(total, model.predict(frame), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="same order"):
        explain(source, reordered)
    with pytest.raises(ValueError, match="names should match"):
        explain(source, pd.DataFrame(X, columns=list("abcde")))


@pytest.mark.parametrize("format", [None, "cbm", "json"])
def test_names_of_dropped_features(tmp_path, format):
    """Afterwards, CatBoost still finds the columns that it uses by name, but has lost all other names."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(data()[0], columns=list("edcba"))
    model = regressor(frame, frame["d"].fillna(0) + 2 * frame["b"].fillna(0), ignored_features=[0, 2])
    model.drop_unused_features()
    assert not {"e", "c"} & set(model.feature_names_)
    reordered = frame[list("abcde")]
    np.testing.assert_array_equal(model.predict(reordered), model.predict(frame))
    source = model if format is None else tmp_path / f"model.{format}"
    if format is not None:
        model.save_model(source, format=format)
    n_columns = TreeExplainer(source).n_features  # a file lacks unused columns at the end
    same = frame.iloc[:, :n_columns]
    explanation = explain(source, same)
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, model.predict(frame), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(explain(source, same.to_numpy()).values, explanation.values)
    with pytest.raises(ValueError, match=r"is '.', but the model knows it as '.'"):
        explain(source, reordered.iloc[:, :n_columns])
    reordered.iloc[:, :n_columns].to_csv(tmp_path / "reordered.csv", index=False)
    with pytest.raises(ValueError, match=r"is '.', but the model knows it as '.'"):
        explain_batches(source, tmp_path / "reordered.csv", tmp_path / "values.csv")


def test_dropped_features_leave_column_numbers_alone():
    pd = pytest.importorskip("pandas")
    X, y = data()
    model = regressor(pd.DataFrame(X, columns=list("edcba")), y, ignored_features=[0, 3])
    model.drop_unused_features()
    adapted = check(model)
    assert (adapted.schema.n_features, adapted.schema.feature_names) == (5, None)
    assert not {0, 3} & set(adapted.ensemble.feature[adapted.ensemble.left >= 0])


def test_input_rules():
    """inf and NaN are accepted; float64 numbers beyond float32 count as inf (also checked by hard_rows)."""
    X, y = data()
    model = regressor(X, y)
    schema, ensemble = adapt(model).schema, adapt(model).ensemble
    assert (schema.allow_nan, schema.allow_inf, schema.sparse_zero_missing) == (True, True, False)
    rows = np.zeros((4, 5))
    rows[:, 0] = [1e300, -1e300, np.inf, -np.inf]
    assert_margin(ensemble, rows, raw(model, rows), RTOL)
    threshold = ensemble.threshold[(ensemble.left >= 0) & (ensemble.feature == 0)]
    rows = np.zeros((len(threshold), 5))
    rows[:, 0] = threshold * (1 + 1e-12)  # rounds to the threshold itself
    assert (rows[:, 0] != threshold).all()
    assert_margin(ensemble, rows, raw(model, rows), RTOL)


# Path-dependent values


def expectation(ensemble, tree, node, x, known):
    start = ensemble.tree_offsets[tree]
    i = start + node
    if ensemble.left[i] < 0:
        return ensemble.value[i, 0]
    left, right = ensemble.left[i], ensemble.right[i]
    if ensemble.feature[i] in known:
        follows_left = ensemble.goes_left(np.array([i]), x[[ensemble.feature[i]]])[0]
        return expectation(ensemble, tree, left if follows_left else right, x, known)
    cover = ensemble.cover[[start + left, start + right]]
    share = cover / cover.sum() if cover.sum() else [0.5, 0.5]
    return sum(s * expectation(ensemble, tree, child, x, known) for s, child in zip(share, (left, right)))


def shapley(ensemble, x):
    """Compute Shapley values of the trees from the definition."""
    n = ensemble.n_features
    subsets = [frozenset(s) for r in range(n + 1) for s in itertools.combinations(range(n), r)]
    coalition_values = {
        s: sum(expectation(ensemble, t, 0, x, s) for t in range(ensemble.n_trees)) for s in subsets
    }
    return [
        sum(
            (coalition_values[s | {f}] - coalition_values[s]) / (n * math.comb(n - 1, len(s)))
            for s in subsets
            if f not in s
        )
        for f in range(n)
    ]


def test_order_of_levels_gives_catboosts_own_values():
    """catboost#2556: CatBoost has the same conditional expectations, even if features repeat on a path."""
    X, y = data(n_features=3)
    X[::5, 0] = np.nan
    model = regressor(X, y, iterations=3)
    own = model.get_feature_importance(catboost.Pool(X[:8]), type="ShapValues")[:, :-1]
    ensemble = adapt(model).ensemble
    values = [shapley(ensemble, x) for x in X[:8].astype(np.float32)]
    assert np.abs(own).min(axis=0).max() > 1e-3
    np.testing.assert_allclose(values, own, rtol=0, atol=1e-12)


# Copies


def test_result_pickles():
    model, frame = category_model()
    adapted = adapt(model)
    loaded = pickle.loads(pickle.dumps(adapted))
    np.testing.assert_array_equal(encoded(loaded, frame), encoded(adapted, frame))
    np.testing.assert_array_equal(loaded.ensemble.value, adapted.ensemble.value)
