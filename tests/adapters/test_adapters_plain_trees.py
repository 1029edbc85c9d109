"""Trees without an estimator: ``tree_`` of scikit-learn, and dictionaries of trees in shap's form."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.checks import assert_margin, hard_rows
from helpers.definition import assert_values_equal_definition
from helpers.families import library
from helpers.sums_data import FRAME, LABELS, NUMBERS, TARGETS, THREE, TWO
from numpy.lib import recfunctions
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.tree._tree import Tree

from skshapgpu import TreeExplainer, UnsupportedModelError, explain
from skshapgpu.adapters import adapt

X = FRAME.to_numpy()
#: Rows whose columns have no names, since neither a raw tree nor a dictionary knows them.
PLAIN = pd.DataFrame(X)
ROWS, BACKGROUND = PLAIN.iloc[5:9], PLAIN.iloc[40:46]
HOLES = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)

pytestmark = pytest.mark.filterwarnings("ignore:.*valid feature names")

# Raw trees of scikit-learn


def single(array: Any) -> np.ndarray:
    return np.asarray(array, np.float32)


def tree_of(target: np.ndarray, **options: Any) -> Any:
    kind = DecisionTreeClassifier if target.dtype.kind in "OU" else DecisionTreeRegressor
    return kind(max_depth=4, random_state=0, **options).fit(HOLES, target).tree_


TREES = {
    # With this criterion, trees of scikit-learn 1.6 take no missing values.
    "regression": lambda: (
        DecisionTreeRegressor(max_depth=4, criterion="absolute_error", random_state=0).fit(X, NUMBERS).tree_
    ),
    "targets": lambda: tree_of(TARGETS),
    "member of boosting": lambda: (
        GradientBoostingRegressor(random_state=0).fit(X, NUMBERS).estimators_[2, 0].tree_
    ),
    "three classes": lambda: tree_of(THREE, class_weight={"a": 5, "b": 1, "c": 0.1}),
}


@pytest.mark.parametrize("name", TREES)
def test_values_of_a_raw_tree(name: str) -> None:
    tree = TREES[name]()
    explanation = assert_values_equal_definition(
        tree, lambda rows: tree.predict(single(rows)), ROWS, BACKGROUND
    )
    assert explanation.output_names == {"targets": (0, 1, 2), "three classes": (0, 1, 2)}.get(name)


def test_the_second_of_two_classes_is_the_output_of_a_raw_tree() -> None:
    tree = tree_of(TWO)
    assert_values_equal_definition(tree, lambda rows: tree.predict(single(rows))[:, 1], ROWS, BACKGROUND)
    widened = explain(tree, X, outputs="all", precision="double")
    assert widened.output_names == (0, 1)
    # float32 numbers of X would be compared alike; the sums of the path's values are near 1
    total = widened.values.sum(axis=1) + widened.base_values
    np.testing.assert_allclose(total, tree.predict(single(X)), rtol=0, atol=1e-12)
    probability = TreeExplainer(tree, X[:5], model_output="probability").explain(X)
    assert probability.checked_against == "model"


def test_classes_of_several_targets_of_a_raw_tree() -> None:
    tree = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, LABELS).tree_
    assert tree.n_classes.tolist() == [3, 2]

    def predict(rows: Any) -> np.ndarray:
        fractions = tree.predict(single(rows))  # (n_rows, n_targets, most classes)
        return np.hstack([fractions[:, 0], fractions[:, 1, :2]])

    explanation = assert_values_equal_definition(tree, predict, ROWS, BACKGROUND)
    assert explanation.output_names == ("0_0", "0_1", "0_2", "1_0", "1_1")


@pytest.mark.parametrize("target", [NUMBERS, TWO], ids=["regression", "classes"])
def test_a_raw_tree_on_every_threshold(target: np.ndarray) -> None:
    tree = tree_of(target)
    ensemble = adapt(tree).ensemble
    assert ensemble.missing_left.any()
    rows = hard_rows(ensemble)
    expected = tree.predict(rows)
    assert_margin(ensemble, rows, expected[:, -1], rtol=0)


def test_values_that_are_no_fractions_are_refused() -> None:
    tree = tree_of(THREE)
    state = tree.__getstate__()
    counts = Tree(4, np.array([3], np.intp), 1)
    counts.__setstate__(state | {"values": state["values"] * state["nodes"]["n_node_samples"][:, None, None]})
    with pytest.raises(UnsupportedModelError, match=r"no fractions of the classes.*pass the estimator"):
        explain(counts, X)
    same = Tree(4, np.array([3], np.intp), 1)
    same.__setstate__(state)
    np.testing.assert_array_equal(explain(same, X).values, explain(tree, X).values)


def test_a_tree_without_nodes_and_later_trees_are_refused() -> None:
    with pytest.raises(NotFittedError, match="no nodes"):
        explain(Tree(4, np.array([1], np.intp), 1), X)

    class LaterTree(Tree):
        def __getstate__(self) -> dict[str, Any]:
            state = super().__getstate__()
            return state | {"nodes": recfunctions.append_fields(state["nodes"], "bitset", np.zeros(1))}

    with pytest.raises(UnsupportedModelError, match=r"fields of its tree's nodes"):
        later = LaterTree(4, np.array([1], np.intp), 1)
        later.__setstate__(tree_of(NUMBERS).__getstate__())
        explain(later, X)


# Dictionaries


def as_dictionary(tree: Any, scale: float = 1.0) -> dict[str, Any]:
    """Return a tree of scikit-learn as shap's documentation writes one."""
    left, right = tree.children_left, tree.children_right
    return {
        "children_left": left,
        "children_right": right,
        "children_default": np.where(tree.missing_go_to_left, left, right),
        "features": tree.feature,
        "thresholds": tree.threshold,
        "values": tree.value[:, 0, :] * scale,
        "node_sample_weight": tree.weighted_n_node_samples,
    }


def predicted(model: dict[str, Any], rows: Any) -> np.ndarray:
    """Predict row by row, as shap's documentation describes the form."""
    X = np.asarray(rows, np.float64).astype(model.get("input_dtype", np.float64))
    dtype = model.get("internal_dtype", np.float64)
    result = np.zeros((len(X), model["trees"][0]["values"].shape[1])) + model.get("base_offset", 0.0)
    for tree in model["trees"]:
        for row, x in enumerate(X):
            node = 0
            while tree["children_left"][node] >= 0:
                value, threshold = float(x[tree["features"][node]]), dtype(tree["thresholds"][node])
                if np.isnan(value):
                    node = tree["children_default"][node]
                else:
                    node = tree["children_left" if value <= threshold else "children_right"][node]
            result[row] += tree["values"][node].astype(dtype)
    return result


def forest_dictionary(**entries: Any) -> dict[str, Any]:
    forest = RandomForestRegressor(3, max_depth=3, random_state=0).fit(HOLES, NUMBERS)
    trees = [
        as_dictionary(member.tree_, scale) for member, scale in zip(forest.estimators_, (0.5, -2.0, 1.0))
    ]
    return {"trees": trees, "base_offset": 700.0, **entries}


def targets_dictionary(**entries: Any) -> dict[str, Any]:
    forest = ExtraTreesRegressor(2, max_depth=3, random_state=0).fit(X, TARGETS)
    trees = [
        as_dictionary(member.tree_) | {"values": member.tree_.value[:, :, 0]} for member in forest.estimators_
    ]
    return {"trees": trees, "base_offset": np.array([5.0, -7.0, 0.0]), "n_features": 4, **entries}


@pytest.mark.parametrize("make", [forest_dictionary, targets_dictionary])
@pytest.mark.parametrize("dtypes", [{}, {"input_dtype": np.float32, "internal_dtype": np.float32}])
def test_values_of_a_dictionary(make: Any, dtypes: dict[str, Any]) -> None:
    model = make(**dtypes)
    assert_values_equal_definition(
        model, lambda rows: predicted(model, rows), ROWS, BACKGROUND, against="trees"
    )
    ensemble = adapt(model).ensemble
    rows = hard_rows(ensemble, 300)
    assert_margin(ensemble, rows, predicted(model, rows), rtol=1e-14)


def test_values_of_a_dictionary_are_those_of_shap() -> None:
    shap = library("shap")
    for model in (forest_dictionary(), targets_dictionary(internal_dtype=np.float64)):
        expected = shap.TreeExplainer(model).shap_values(X[:9])
        values = explain(model, X[:9], precision="double").values
        # shap adds up in float64; both are rounded relative to values of about 100
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-8)


def test_outputs_and_links_of_a_dictionary() -> None:
    model = forest_dictionary(tree_output="log_odds", base_offset=0.0)
    for tree in model["trees"]:
        tree["values"] = tree["values"] / 1000
    margin = predicted(model, X)[:, 0]
    probability = TreeExplainer(model, X[:6], model_output="probability", precision="double").explain(X)
    total = probability.base_values + probability.values.sum(axis=1)
    np.testing.assert_allclose(total, 1 / (1 + np.exp(-margin)), rtol=0, atol=1e-12)
    assert explain(model, X, outputs="all").output_names == (0, 1)
    fractions = forest_dictionary(tree_output="probability", base_offset=0.0)
    assert TreeExplainer(fractions, X[:6], model_output="probability").explain(X).values.any()
    squared = forest_dictionary(objective="squared_error")
    loss = TreeExplainer(squared, X[:6], model_output="log_loss", precision="double").explain(
        X[:9], NUMBERS[:9]
    )
    total = loss.base_values + loss.values.sum(axis=1)
    np.testing.assert_allclose(total, (predicted(squared, X[:9])[:, 0] - NUMBERS[:9]) ** 2, rtol=1e-10)


def test_columns_that_no_tree_tests() -> None:
    model = forest_dictionary()
    wide = np.hstack([X, X])
    with pytest.raises(ValueError, match="X has 8 features, but the model expects 4"):
        explain(model, wide)
    values = explain(model | {"n_features": 8}, wide).values
    np.testing.assert_array_equal(values[:, :4], explain(model, X).values)
    assert not values[:, 4:].any()
    for wrong in (3, 4.0, "4"):
        with pytest.raises(ValueError, match="n_features must be an integer of at least 4"):
            explain(model | {"n_features": wrong}, X)


def test_one_output_without_its_axis_and_pickles() -> None:
    model = forest_dictionary()
    flat = {**model, "trees": [tree | {"values": tree["values"][:, 0]} for tree in model["trees"]]}
    explainer = TreeExplainer(flat)
    np.testing.assert_array_equal(explainer.shap_values(X), TreeExplainer(model).shap_values(X))
    restored = pickle.loads(pickle.dumps(explainer))
    np.testing.assert_array_equal(restored.shap_values(X), explainer.shap_values(X))


def changed(**entries: Any) -> dict[str, Any]:
    model = forest_dictionary()
    return {**model, "trees": [model["trees"][0] | entries, *model["trees"][1:]]}


def without(key: str) -> dict[str, Any]:
    model = forest_dictionary()
    del model["trees"][1][key]
    return model


def astray() -> np.ndarray:
    default = forest_dictionary()["trees"][0]["children_default"].copy()
    default[0] = 3
    return default


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: {"trees": []}, ValueError, "at least one dictionary"),
        (lambda: {"trees": [np.zeros(3)]}, ValueError, "tree 0 must be a dictionary"),
        (lambda: without("node_sample_weight"), ValueError, "tree 1 has no 'node_sample_weight'"),
        (lambda: changed(children_default=astray()), ValueError, "node 0 of tree 0 is neither its left"),
        (lambda: changed(features=np.array([0.5])), ValueError, "features of tree 0 must hold integers"),
        (lambda: changed(thresholds=np.array(["a"])), ValueError, "thresholds of tree 0 must hold numbers"),
        (lambda: changed(values=np.zeros((2, 2, 2))), ValueError, r"not the shape \(2, 2, 2\)"),
        (lambda: changed(thresholds=np.zeros(2)), ValueError, "thresholds of tree 0 .*, not 2"),
        (lambda: changed(features=np.array([1])), ValueError, "features of tree 0 .*, not 1"),
        (lambda: changed(values=np.ones(3)), ValueError, "values of tree 0 must have .*, not 3"),
        (
            lambda: forest_dictionary(base_offset=np.zeros(3)),
            ValueError,
            "base_offset must be a finite number",
        ),
        (lambda: forest_dictionary(base_offset=np.nan), ValueError, "base_offset must be a finite number"),
        (lambda: forest_dictionary(num_outputs=1), UnsupportedModelError, "entries that .* 'num_outputs'"),
        (lambda: changed(categories=[]), UnsupportedModelError, "tree 0 .* entries that .* 'categories'"),
        (lambda: forest_dictionary(tree_output="exp"), UnsupportedModelError, "values of tree_output"),
        (lambda: forest_dictionary(objective="other"), UnsupportedModelError, "objectives"),
        (lambda: forest_dictionary(input_dtype=np.float16), UnsupportedModelError, "input_dtype=float16"),
        (lambda: {"tree": []}, UnsupportedModelError, "builtins.dict"),
    ],
)
def test_dictionaries_that_contradict_themselves(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TreeExplainer(make())


def test_trees_of_unlike_outputs_are_refused() -> None:
    trees = [forest_dictionary()["trees"][0], targets_dictionary()["trees"][0]]
    with pytest.raises(ValueError, match=r"values of \[1, 3\] outputs"):
        TreeExplainer({"trees": trees})
