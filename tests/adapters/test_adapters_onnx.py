"""ONNX tree ensembles built by hand: on the hardest rows, margins equal the operators' definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.covers import counted
from helpers.families import values_by_definition
from helpers.onnx_models import (
    MODES,
    STUMP,
    around,
    classifier,
    ensemble,
    hard_numbers,
    indexed,
    listed,
    margin,
    operator,
    random_trees,
    regressor,
    scores,
)

from skshapgpu import TreeExplainer, UnsupportedModelError, explain, reference
from skshapgpu._rows.inputs import read
from skshapgpu.adapters import adapt

NUMBERS = ("LEQ", "LT", "GTE", "GT")


@pytest.mark.parametrize(
    "modes",
    [
        *([mode] for mode in MODES[:-1]),
        ["LT", "GTE"],
        ["LEQ", "GT"],
        NUMBERS,
        ["EQ", "NEQ"],
        ["LEQ", "EQ"],
        MODES[:-1],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("dtype, double", [("float32", False), ("float64", False), ("float64", True)])
def test_listed_nodes(modes, dtype, double):
    rng = np.random.default_rng(len(modes))
    trees = random_trees(rng, modes, n_outputs=2)
    content = regressor({**listed(trees, double=double), "n_targets": 2}, dtype=dtype)
    adapted = adapt(content)
    assert adapted.ensemble.strict == (set(modes) <= {"LT", "GTE"})
    X = hard_numbers(rng, trees, dtype)
    expected = scores(trees, X, 2, double)
    assert np.ptp(expected, axis=0).min() > 0
    np.testing.assert_allclose(margin(adapted, X), expected, rtol=0, atol=1e-12)
    explanation = explain(content, X, data=X[:20], precision="double")
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-5 if dtype == "float32" else 1e-10)


@pytest.mark.parametrize(
    "modes", [["LEQ"], ["LT", "GTE"], ["LEQ", "EQ"], ["MEMBER"], ["LEQ", "MEMBER"], MODES], ids=" ".join
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_indexed_nodes(modes, dtype):
    """Leaves are in a list of their own; the leaves of a tree have one output, or different outputs."""
    rng = np.random.default_rng(len(modes))
    trees = random_trees(rng, modes)
    for several in (False, True):
        if several:
            trees = [
                [(n[0], {i % 3: n[1][0]}) if n[0] == "LEAF" else n for i, n in enumerate(t)] for t in trees
            ]
        n_outputs = 3 if several else 1
        content = ensemble("TreeEnsemble", {**indexed(trees, dtype), "n_targets": n_outputs}, dtype=dtype)
        adapted = adapt(content)
        X = hard_numbers(rng, trees, dtype)
        expected = scores(trees, X, n_outputs, dtype == "float64")
        assert np.ptp(expected, axis=0).min() > 0
        np.testing.assert_allclose(margin(adapted, X), expected, rtol=0, atol=1e-12)


def test_trees_that_share_leaves_or_are_one_leaf():
    """A tree of one leaf is a node whose children are that leaf."""
    attributes = {
        **indexed([STUMP]),
        "tree_roots": [1, 0],
        "nodes_featureids": [1, 0],
        "nodes_missing_value_tracks_true": [0, 0],
        "nodes_modes": np.zeros(2, np.uint8),
        "nodes_splits": np.array([0.5, 0.0], np.float32),
        "nodes_truenodeids": [0, 1],
        "nodes_falsenodeids": [1, 1],
        "nodes_trueleafs": [1, 1],
        "nodes_falseleafs": [1, 1],
        "n_targets": 1,
    }
    margins = margin(
        adapt(ensemble("TreeEnsemble", attributes)), np.array([[0, 0, 0], [0, 1, 0]], np.float32)
    )
    assert margins.ravel().tolist() == [1.0 - 2.0, -2.0 - 2.0]


@pytest.mark.parametrize("kind", ["numbers", "equality"])
def test_values_by_definition(kind):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    trees = random_trees(rng, NUMBERS if kind == "numbers" else MODES[:-1], depth=5)
    X = pd.DataFrame(hard_numbers(rng, trees, "float64", 25), columns=["a", "b", "c"])
    background = pd.DataFrame(hard_numbers(rng, trees, "float64", 9), columns=["a", "b", "c"])
    expected = values_by_definition(lambda rows: scores(trees, rows.to_numpy(), 1, True)[:, 0], X, background)
    explainer = TreeExplainer(
        regressor({**listed(trees, double=True), "base_values": [1e4]}, dtype="float64"),
        background,
        precision="double",
    )
    values = explainer.shap_values(X)
    assert np.ptp(expected, axis=0).min() > 0.1
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)
    mean = scores(trees, background.to_numpy(), 1, True).mean() + 1e4
    assert abs(explainer.expected_value - mean) < 1e-8


def test_covers_from_data():
    rng = np.random.default_rng(2)
    trees = random_trees(rng, ["LEQ", "GT", "EQ"])
    content = regressor(listed(trees))
    with pytest.raises(UnsupportedModelError, match=r"this onnx model has no covers.* data="):
        TreeExplainer(content)
    data, X = hard_numbers(rng, trees, "float32", 60), hard_numbers(rng, trees, "float32", 20)
    explainer = TreeExplainer(
        content, data, feature_perturbation="tree_path_dependent", precision="double", device="cpu"
    )
    adapted = adapt(content)
    encoded = [read(rows, adapted.schema, "float32").chunk(0, len(rows)) for rows in (data, X)]
    expected, base_value, _ = reference.path_dependent(
        counted(adapted.ensemble, encoded[0], has_cover=False)[0], encoded[1]
    )
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(explainer.shap_values(X), expected[:, 0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(explainer.expected_value, base_value[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(base_value, scores(trees, data).mean(axis=0), rtol=0, atol=1e-6)


def test_chains_of_equality_are_sets():
    """LightGBM's categories are written as nodes that share their true child and pass missing values on."""
    tree = [
        ("LEQ", 0, 0.0, 1, 6, False),
        ("EQ", 2, 4.0, 4, 2, False),
        ("EQ", 2, 0.5, 4, 3, True),
        ("EQ", 2, -1.0, 4, 5, False),
        ("LEQ", 1, 0.0, 7, 8, False),
        ("LEAF", {0: 3.0}),
        ("EQ", 2, 4.0, 9, 10, False),  # no chain: the next node tests another column
        ("LEAF", {0: 1.0}),
        ("LEAF", {0: -1.0}),
        ("LEAF", {0: 10.0}),
        ("EQ", 1, 4.0, 11, 12, False),
        ("LEAF", {0: 20.0}),
        ("LEAF", {0: 30.0}),
    ]
    adapted = adapt(regressor(listed([tree, STUMP])))
    assert adapted.ensemble.n_nodes == len(tree) - 2 + len(STUMP)
    X = hard_numbers(np.random.default_rng(0), [tree], "float32")
    np.testing.assert_allclose(margin(adapted, X), scores([tree, STUMP], X), rtol=0, atol=1e-12)
    tree[2] = ("EQ", 2, 0.5, 5, 3, True)  # shares a leaf with another node, but in no chain
    with pytest.raises(ValueError, match=r"node \d of tree 0 is not reached exactly once"):
        adapt(regressor(listed([tree])))


def test_base_values_and_averages():
    trees = random_trees(np.random.default_rng(3), NUMBERS, n_outputs=2)
    X = hard_numbers(np.random.default_rng(0), trees, "float32")
    attributes = {**listed(trees), "n_targets": 2, "base_values": [5.0, -7.0]}
    expected = scores(trees, X, 2)
    for aggregate, n in (("SUM", 1), ("AVERAGE", len(trees))):
        margins = margin(adapt(regressor(attributes | {"aggregate_function": aggregate})), X)
        np.testing.assert_allclose(margins, expected / n + [5, -7], rtol=0, atol=1e-12)
    for aggregate in ("MIN", "MAX"):
        with pytest.raises(UnsupportedModelError, match=f"takes the {aggregate} of its trees"):
            adapt(regressor(attributes | {"aggregate_function": aggregate}))
    with pytest.raises(ValueError, match="1 base values for 2 targets"):
        adapt(regressor(attributes | {"base_values": [1.0]}))
    tree = [[(n[0], {0: n[1][0]}) if n[0] == "LEAF" else n for n in tree] for tree in trees]
    content = ensemble("TreeEnsemble", {**indexed(tree), "n_targets": 1, "aggregate_function": 0})
    np.testing.assert_allclose(margin(adapt(content), X), scores(tree, X) / len(tree), rtol=0, atol=1e-12)


def test_a_tree_for_each_output():
    """In boosting, each tree belongs to one class, and its leaves are not padded with zeros."""
    trees = random_trees(np.random.default_rng(3), NUMBERS)
    trees = [
        [(n[0], {i % 3: n[1][0]}) if n[0] == "LEAF" else n for n in tree] for i, tree in enumerate(trees)
    ]
    adapted = adapt(regressor({**listed(trees), "n_targets": 3}))
    assert adapted.ensemble.value.shape[1] == 1
    X = hard_numbers(np.random.default_rng(0), trees, "float32")
    np.testing.assert_allclose(margin(adapted, X), scores(trees, X, 3), rtol=0, atol=1e-12)


def test_type_of_x():
    """A float input rounds X, a double input does not; a Cast to float and comparisons of integers do."""
    t = float(np.float32(0.1))
    X = np.array([[0, x, 0] for x in (t, np.nextafter(t, 1), np.nextafter(np.float32(t), np.float32(1)))])
    tree = [[("LEQ", 1, t, 1, 2, False), *STUMP[1:]]]
    assert margin(adapt(regressor(listed(tree))), X).ravel().tolist() == [1, 1, -2]
    assert margin(adapt(regressor(listed(tree), dtype="float64")), X).ravel().tolist() == [1, -2, -2]
    for given, to in (("float64", 1), ("float32", 11)):
        cast = operator("Cast", ["X"], ["C"], {"to": to})
        content = around(["C"], [cast], [], given)
        assert adapt(content).ensemble.x_dtype == "float32"
    content = around(["C"], [operator("Cast", ["X"], ["C"], {"to": 11})], [], "int64")
    assert adapt(content).ensemble.x_dtype == "float64"
    adapted = adapt(classifier({**listed([STUMP], "class"), "classlabels_int64s": [0, 1]}, dtype="int64"))
    assert adapted.ensemble.x_dtype == "float32" and not adapted.schema.allow_nan
    with pytest.raises(UnsupportedModelError, match="compares X as float32 with tensors of float64"):
        adapt(regressor(listed([STUMP], double=True)))
    with pytest.raises(UnsupportedModelError, match="takes float16 as X"):
        adapt(regressor(listed([STUMP]), dtype="float16"))


# Classifiers


def two_classes(weights: list[dict[int, float]], **more: Any) -> bytes:
    """Build two trees of two leaves each, with these weights."""
    trees = [[*STUMP[:1], ("LEAF", weights[2 * i]), ("LEAF", weights[2 * i + 1])] for i in (0, 1)]
    return classifier({**listed(trees, "class"), "classlabels_strings": ["no", "yes"], **more})


TWO = [
    ("NONE", (0.1, 0.3, 0.2, 0.5), "probability", "identity"),
    ("NONE", (0.1, 0.3, 0.2, 5.0), "probability", None),  # its scores are no probabilities
    ("NONE", (-0.1, 0.3, 0.2, 0.5), "margin", None),
    ("LOGISTIC", (-0.1, 0.3, 0.2, 0.5), "margin", "logistic"),
    ("LOGISTIC", (0.1, 0.3, 0.2, 0.5), "margin", "logistic"),
]


@pytest.mark.parametrize("transform, weights, binary, link", TWO)
def test_weights_of_the_first_class_are_scores_of_the_second(transform, weights, binary, link):
    content = two_classes([{0: w} for w in weights], post_transform=transform, base_values=[0.125])
    adapted = adapt(content)
    assert (adapted.binary, adapted.link, adapted.class_names) == (binary, link, ("no", "yes"))
    X = np.array([[0, 0, 0], [0, 1, 0]], np.float32)
    expected = [weights[0] + weights[2] + 0.125, weights[1] + weights[3] + 0.125]
    np.testing.assert_allclose(margin(adapted, X).ravel(), expected, rtol=0, atol=1e-6)
    both = explain(content, X, data=X, outputs="all")
    assert both.output_names == ("no", "yes")
    total = both.base_values + both.values.sum(axis=1)
    first = 1 - np.array(expected) if binary == "probability" else -np.array(expected)
    np.testing.assert_allclose(total, np.c_[first, expected], rtol=0, atol=1e-6)


def test_weights_of_both_classes():
    """There is one output if the first class follows from the second, and two outputs otherwise."""
    halves = [{0: 0.5 - p, 1: p} for p in (0.125, 0.25, 0.375, 0.5)]
    opposite = [{0: -w, 1: w} for w in (0.125, -0.25, 2.0, 0.5)]
    other = [{0: -w, 1: 2 * w} for w in (0.125, -0.25, 2.0, 0.5)]
    for weights, transform, expected in (
        (halves, "NONE", ("probability", "identity", 1.0)),
        (opposite, "NONE", ("margin", None, 1.0)),
        (opposite, "LOGISTIC", ("margin", "logistic", 1.0)),
        (opposite, "SOFTMAX", ("margin", "logistic", 2.0)),
        (other, "LOGISTIC", (None, "logistic", 1.0)),
        (other, "SOFTMAX", (None, "softmax", 1.0)),
    ):
        adapted = adapt(two_classes(weights, post_transform=transform))
        assert (adapted.binary, adapted.link, adapted.link_scale) == expected
        X = np.array([[0, 0, 0], [0, 1, 0]], np.float32)
        scores_ = [[weights[i][c] + weights[i + 2][c] for c in (0, 1)] for i in (0, 1)]
        kept = slice(1, 2) if adapted.binary else slice(0, 2)
        np.testing.assert_allclose(margin(adapted, X), np.array(scores_)[:, kept], rtol=0, atol=1e-6)
        assert adapted.output_names == (None if adapted.binary else ("no", "yes"))


def test_probability_of_two_classes():
    """The softmax of -s and s is a logistic function of twice the margin."""
    content = two_classes([{0: -w, 1: w} for w in (0.125, -0.25, 2.0, 0.5)], post_transform="SOFTMAX")
    X = np.array([[0, 0, 0], [0, 1, 0]], np.float32)
    explanation = explain(content, X, data=X, model_output="probability")
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, 1 / (1 + np.exp(-2 * np.array([2.125, 0.25]))), atol=1e-6)


@pytest.mark.parametrize(
    "weights, base",
    [
        ([{1: 0.1}] * 4, {}),
        ([{0: 0.1}] * 4, {"base_values": [0.0, 1.0]}),
        ([{0: 0.1, 1: 0.2}] * 4, {"base_values": [1.0]}),
        ([{0: 0.1, 1: 0.2}] * 4, {"base_values": [0.0, 1.0]}),
    ],
)
def test_undefined_scores_of_two_classes(weights, base):
    with pytest.raises(UnsupportedModelError, match="its scores are not defined"):
        adapt(two_classes(weights, **base))


def test_weights_of_inner_nodes():
    """Runtimes ignore such weights, except to decide from them what the scores of two classes are."""
    attributes = listed([STUMP], "class")
    for name, value in (("treeids", 0), ("nodeids", 0), ("ids", 0), ("weights", -1.0)):
        attributes[f"class_{name}"].append(value)
    X = np.array([[0, 0, 0], [0, 1, 0]], np.float32)
    adapted = adapt(classifier({**attributes, "classlabels_int64s": [1, 2, 3]}))
    assert margin(adapted, X).tolist() == [[1, 0, 0], [-2, 0, 0]]
    with pytest.raises(UnsupportedModelError, match="two classes and weights of inner nodes"):
        adapt(classifier({**attributes, "classlabels_int64s": [1, 2]}))


def test_leaves_without_weights():
    """If there is one target, onnxruntime adds the threshold of such a leaf."""
    tree = [STUMP[0], ("LEAF", {}), STUMP[2]]
    attributes = listed([tree])
    X = np.array([[0, 0, 0], [0, 1, 0]], np.float32)
    assert margin(adapt(regressor(attributes)), X).ravel().tolist() == [0, -2]
    attributes["nodes_values"][1] = 5.0
    with pytest.raises(UnsupportedModelError, match="a leaf with a threshold but no weight"):
        adapt(regressor(attributes))


def test_other_classes():
    with pytest.raises(UnsupportedModelError, match="depends on the row"):
        adapt(two_classes([{0: 0.1}, {1: 0.2}] * 2))
    attributes = listed([STUMP], "class")
    with pytest.raises(UnsupportedModelError, match="fewer than two classes"):
        adapt(classifier({**attributes, "classlabels_int64s": [3]}))
    trees = random_trees(np.random.default_rng(0), NUMBERS, n_outputs=3)
    for transform, link in (
        ("NONE", None),
        ("LOGISTIC", "logistic"),
        ("SOFTMAX", "softmax"),
        ("SOFTMAX_ZERO", None),
        ("PROBIT", None),
    ):
        content = classifier(
            {
                **listed(trees, "class"),
                "classlabels_int64s": [7, 8, 9],
                "post_transform": transform,
                "base_values": [1.0, 2.0, 3.0],
            }
        )
        adapted = adapt(content)
        assert (adapted.output_names, adapted.link, adapted.binary) == ((7, 8, 9), link, None)
        X = hard_numbers(np.random.default_rng(0), trees, "float32")
        np.testing.assert_allclose(
            margin(adapted, X), scores(trees, X, 3) + np.arange(1, 4), rtol=0, atol=1e-12
        )
    trees = [[*STUMP[:1], ("LEAF", {0: 0.25, 1: 0.5, 2: 0.25}), ("LEAF", {0: 0.5, 1: 0.5})]]
    adapted = adapt(classifier({**listed(trees, "class"), "classlabels_strings": ["a", "b", "c"]}))
    assert (adapted.output_names, adapted.link) == (("a", "b", "c"), "identity")
