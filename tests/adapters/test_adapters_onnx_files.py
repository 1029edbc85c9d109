"""ONNX files: graphs around the trees, which are rejected if they change X or scores; damaged files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.checks import refused_when_damaged
from helpers.onnx_models import (
    MODES,
    STUMP,
    around,
    classifier,
    ensemble,
    field,
    hard_numbers,
    indexed,
    listed,
    margin,
    model,
    operator,
    random_trees,
    regressor,
    scores,
    value_info,
)

from skshapgpu import TreeExplainer, UnsupportedModelError, explain
from skshapgpu.adapters import adapt
from skshapgpu.adapters.ensemble import Ensemble
from skshapgpu.adapters.onnx.splits import Ranks
from skshapgpu.adapters.schema import AdaptedModel


def step(kind: str, given: str, name: str, **attributes: Any) -> bytes:
    return operator(kind, [given, *attributes.pop("more", [])], [name], attributes)


@pytest.mark.parametrize(
    "after",
    [
        [step("Identity", "S", "Y")],
        [step("Reshape", "S", "T", more=["shape"]), step("Cast", "T", "Y", to=11)],
        [step("Exp", "S", "T"), step("Mul", "T", "Y", more=["c"])],
        [step("Mul", "S", "T", more=["c"]), step("Sigmoid", "T", "Y")],
        [step("ArgMax", "S", "T"), step("Add", "T", "Y", more=["c"])],
    ],
)
def test_operators_behind_the_trees(after):
    adapted = adapt(around(["I"], [step("Identity", "X", "I")], after))
    X = np.array([[9, 0, 9], [9, 1, 9]], np.float32)
    np.testing.assert_array_equal(margin(adapted, X), scores([STUMP], X))


def test_link_needs_the_scores_themselves():
    """The operator's probability is not the model's probability if another operator changes it."""

    def content(*kinds: str) -> bytes:
        attributes = {
            **listed([STUMP], "class"),
            "classlabels_int64s": [0, 1],
            "post_transform": "LOGISTIC",
        }
        names = ["S", *"ABCD"[: len(kinds) - 1], "Y"]
        operators = [operator("TreeEnsembleClassifier", ["X"], ["L", "S"], attributes, ml=True)]
        operators += [step(kind, names[i], names[i + 1]) for i, kind in enumerate(kinds)]
        return model(operators, [value_info("X", "float32", [None, 3])], [value_info("Y", "float32", [None])])

    assert adapt(content("Identity", "ZipMap")).link == "logistic"
    assert adapt(content("ArgMax")).link == "logistic"
    assert adapt(content("Identity", "Mul")).link is None
    assert adapt(content("Normalizer")).link is None


@pytest.mark.parametrize(
    "before, after, reason",
    [
        ([step("Scaler", "X", "I")], [], "operator Scaler of the ONNX model changes X before the trees"),
        ([step("Imputer", "X", "H"), step("Identity", "H", "I")], [], "operator Imputer .* changes X"),
        ([operator("Concat", ["X", "X"], ["I"], {"axis": 1})], [], "operator Concat .* changes X"),
        ([step("Cast", "X", "H", to=11), step("Cast", "H", "I", to=1)], [], "casts X twice"),
        ([step("Cast", "X", "I", to=7)], [], "casts X twice, or to other types"),
        ([step("Identity", "X", "I")], [step("Mul", "S", "Y", more=["c"])], "Mul .* changes the scores"),
        (
            [step("Identity", "X", "I")],
            [step("Mul", "S", "T", more=["c"]), step("Sigmoid", "T", "Y"), step("Identity", "T", "Z")],
            "Mul .* changes the scores",
        ),
        ([step("Identity", "X", "I")], [step("Cast", "S", "Y", to=7)], "Cast .* changes the scores"),
        (
            [step("Identity", "X", "I"), step("MatMul", "I", "W", more=["c"])],
            [operator("Add", ["S", "W"], ["Y"])],
            "operator MatMul of the ONNX model uses the model's inputs beside the trees",
        ),
    ],
)
def test_operators_that_are_refused(before, after, reason):
    with pytest.raises(UnsupportedModelError, match=reason):
        adapt(around(["I"], before, after, outputs=("Y", "Z")))


def test_graphs_that_are_refused():
    for shape in ([None, None], ["N", "C"], [3], []):
        with pytest.raises(UnsupportedModelError, match="does not say how many columns X has: its input 'X'"):
            adapt(around(["X"], [], [], shape=shape))
    with pytest.raises(UnsupportedModelError, match=r"no tree ensemble; its operators are Gemm, Relu"):
        x, y = (value_info(name, "float32", [None, 3]) for name in "XY")
        adapt(model([step("Gemm", "X", "T"), step("Relu", "T", "Y")], [x], [y]))
    two = operator("TreeEnsembleRegressor", ["X"], ["T"], {**listed([STUMP]), "n_targets": 1}, ml=True)
    with pytest.raises(UnsupportedModelError, match="has 2 tree ensembles; exactly one"):
        adapt(around(["X"], [], [two]))
    with pytest.raises(ValueError, match="nothing computes 'I'"):
        adapt(around(["I"], [], []))
    with pytest.raises(ValueError, match="nothing computes"):
        adapt(around(["I"], [step("Identity", "J", "I"), step("Identity", "I", "J")], []))
    branch = operator("If", ["c"], ["Y"], {})
    with pytest.raises(UnsupportedModelError, match="operator If, with a graph of its own"):
        adapt(around(["X"], [], [branch]))
    own = operator("Exp", ["S"], ["Y"]) + field(7, "own")
    with pytest.raises(UnsupportedModelError, match="operator Exp of the ONNX model changes the scores"):
        adapt(around(["X"], [], [own]))
    with pytest.raises(ValueError, match="it has no graph"):
        adapt(field(1, 8))


def test_tensors_in_other_files():
    tensor = field(1, 1) + field(2, 11) + field(13, b"") + field(14, 1)
    attribute = field(1, "nodes_values_as_tensor") + field(5, tensor) + field(20, 4)
    trees = operator("TreeEnsembleRegressor", ["X"], ["Y"], listed([STUMP]), ml=True) + field(5, attribute)
    content = model([trees], [value_info("X", "float32", [None, 3])], [value_info("Y", "float32", [None, 1])])
    with pytest.raises(UnsupportedModelError, match="save_as_external_data=False"):
        adapt(content)


# Files, and damage


def assert_equal(actual: AdaptedModel, expected: AdaptedModel) -> None:
    for each in fields(Ensemble):
        np.testing.assert_array_equal(
            getattr(actual.ensemble, each.name), getattr(expected.ensemble, each.name)
        )


def test_path_content_and_message_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)  # so that importing it fails
    trees = random_trees(np.random.default_rng(4), MODES[:-1])
    content = regressor(listed(trees))
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    message = type("ModelProto", (), {"__module__": "onnx.onnx_ml_pb2"})()
    message.SerializeToString = lambda: content
    for given in (path, str(path), message, regressor(listed(trees), packed=True)):
        assert_equal(adapt(given), adapt(content))
    other = type("GraphProto", (), {"__module__": "onnx.onnx_ml_pb2"})()
    with pytest.raises(UnsupportedModelError, match=r"GraphProto of ONNX: pass the onnx\.ModelProto"):
        adapt(other)


def test_explainers_are_saved(tmp_path):
    trees = random_trees(np.random.default_rng(5), MODES[:-1])
    X = hard_numbers(np.random.default_rng(0), trees, "float32", 20)
    explainer = TreeExplainer(regressor(listed(trees)), X)
    assert explainer._adapted.schema.encoders
    explainer.save(tmp_path / "explainer")
    np.testing.assert_array_equal(
        TreeExplainer.load(tmp_path / "explainer").shap_values(X), explainer.shap_values(X)
    )


def test_columns_that_are_compared_by_equality_need_numbers():
    pd = pytest.importorskip("pandas")
    trees = [[("EQ", 0, 3.0, 1, 2, True), *STUMP[1:]]]
    content = regressor(listed(trees))
    frame = pd.DataFrame({"a": [3, 4, -3], "b": 0.0, "c": 0.0})
    background = np.array([[3.0, 0, 0], [0, 0, 0]])
    total = explain(content, frame, data=background)
    np.testing.assert_allclose(total.base_values + total.values.sum(axis=1), [1, -2, -2], atol=1e-6)
    for column in (pd.Categorical([3, 4, 3]), ["3", "4", "3"], pd.array(["3", "4", "3"], "string")):
        with pytest.raises(ValueError, match=r"column 'a' is categorical or text.* pass the codes"):
            explain(content, frame.assign(a=column), data=background)


def edited(name: str, change: Callable[[list[Any]], Any], **options: Any) -> dict[str, Any]:
    attributes = listed([STUMP, STUMP])
    values = list(attributes[name])
    change(values)
    return attributes | {name: values}


def put(at: int, value: Any) -> Callable[[list[Any]], Any]:
    return lambda values: values.__setitem__(at, value)


@pytest.mark.parametrize(
    "name, change, reason",
    [
        ("nodes_truenodeids", put(0, 9), "refers to node 9 of tree 0, which it does not have"),
        ("nodes_truenodeids", put(3, -1), "refers to node -1 of tree 1"),
        ("nodes_truenodeids", put(0, 0), "node 0 of tree 0 is not reached exactly once"),
        ("nodes_truenodeids", put(0, 2), "node 1 of tree 0 is not reached exactly once"),
        ("nodes_falsenodeids", put(0, 2**62), "refers to node 4611686018427387904"),
        ("nodes_nodeids", put(1, 2), "two of its nodes have the same numbers"),
        ("nodes_treeids", put(1, 1), "nodes of a tree are not side by side"),
        ("nodes_treeids", put(1, 7), "not side by side"),
        ("nodes_modes", put(0, "BRANCH_MOD"), "unknown mode b'BRANCH_MOD'"),
        ("nodes_modes", put(0, "BRANCH_MEMBER"), "unknown mode"),
        ("nodes_modes", lambda values: values.pop(), "nodes_modes do not fit"),
        ("nodes_values", put(0, float("nan")), "a node has a NaN threshold"),
        ("nodes_values", lambda values: values.pop(), "nodes_values have 5 items instead of 6"),
        ("nodes_featureids", put(0, 3), r"tests a column outside 0\.\.2"),
        ("nodes_featureids", put(0, -1), "tests a column outside"),
        ("nodes_featureids", put(0, 2**40), "tests a column outside"),
        ("nodes_missing_value_tracks_true", lambda values: values.pop(), "5 items instead of 6"),
        ("target_ids", put(0, 1), r"weight for an output outside 0\.\.0"),
        ("target_ids", put(0, -1), "weight for an output outside"),
        ("target_nodeids", put(0, 5), "refers to node 5 of tree 0"),
        ("target_nodeids", put(0, 2), "a leaf has two weights for the same output"),
        ("target_treeids", put(0, 2), "refers to node 1 of tree 2"),
        ("target_weights", put(0, float("inf")), "a weight that is not finite"),
        ("target_weights", lambda values: values.pop(), "target_weights have 3 items instead of 4"),
    ],
)
def test_damaged_lists_are_refused(name, change, reason):
    with pytest.raises(ValueError, match=f"cannot be read as a model of ONNX: .*{reason}"):
        adapt(regressor(edited(name, change)))


@pytest.mark.parametrize(
    "name, change, reason",
    [
        ("tree_roots", put(0, 5), "tree_roots are not different nodes"),
        ("tree_roots", put(0, 1), "tree_roots are not different nodes"),
        ("tree_roots", put(0, -1), "tree_roots are not different nodes"),
        ("nodes_truenodeids", put(0, 9), "a child that does not exist"),
        ("nodes_trueleafs", put(0, 0), "a node is reached in more than one way"),
        ("leaf_targetids", put(0, 4), "weight for an output outside"),
        ("leaf_targetids", lambda values: values.pop(), "3 items instead of 4"),
        ("nodes_modes", lambda values: np.array([0, 7], np.uint8), "unknown mode"),
        ("nodes_modes", lambda values: np.array([0, 6], np.uint8), "it has no 'membership_values'"),
        ("nodes_splits", lambda values: np.array([0, np.nan], np.float32), "NaN threshold"),
        ("nodes_splits", lambda values: ["a", "b"], "nodes_splits are not a tensor"),
    ],
)
def test_damaged_indices_are_refused(name, change, reason):
    attributes = {**indexed([STUMP, STUMP]), "n_targets": 1}
    values = list(attributes[name])
    replaced = change(values)
    attributes[name] = replaced if isinstance(replaced, (np.ndarray, list)) else values
    with pytest.raises(ValueError, match=f"cannot be read as a model of ONNX: .*{reason}"):
        adapt(ensemble("TreeEnsemble", attributes))


def test_lists_of_members_must_fit():
    trees = [[("MEMBER", 0, [1.0, 2.0], 1, 2, False), *STUMP[1:]]]
    attributes = {**indexed(trees), "n_targets": 1}
    assert attributes["membership_values"].tolist()[:2] == [1, 2]
    for members in ([1.0, 2.0], [1.0, 2.0, np.nan]):
        attributes["membership_values"] = np.array(members, np.float32)
        assert adapt(ensemble("TreeEnsemble", attributes)).ensemble.category_values.tolist() == [1, 3]
    attributes["membership_values"] = np.array([1.0, np.nan, 2.0], np.float32)
    with pytest.raises(ValueError, match="membership_values are 2 lists for 1 nodes"):
        adapt(ensemble("TreeEnsemble", attributes))
    attributes["membership_values"] = np.array([np.nan], np.float32)
    with pytest.raises(ValueError, match="a list without values"):
        adapt(ensemble("TreeEnsemble", attributes))


@pytest.mark.parametrize("n_targets", [0, -1, 2**31, 2**40, 2**62])
def test_numbers_of_targets(n_targets):
    with pytest.raises(ValueError, match="n_targets is"):
        adapt(regressor({**listed([STUMP]), "n_targets": n_targets}))


def test_many_outputs_with_few_weights():
    trees = [[*STUMP[:1], ("LEAF", {i: 1.0}), ("LEAF", {i + 1: 1.0})] for i in range(1000)]
    with pytest.raises(UnsupportedModelError, match="a leaf has weights for few of them"):
        adapt(regressor({**listed(trees), "n_targets": 1001}))


def test_lists_in_several_parts_are_refused():
    """Reading many parts could take time that grows with the square of their number."""
    parts = b"".join(field(8, i) + field(7, float(i)) for i in range(3))
    trees = operator("TreeEnsembleRegressor", ["X"], ["Y"], listed([STUMP]), ml=True)
    trees += field(5, field(1, "more") + parts)
    content = model([trees], [value_info("X", "float32", [None, 3])], [value_info("Y", "float32", [None, 1])])
    with pytest.raises(ValueError, match="list whose items are not side by side"):
        adapt(content)


def test_fields_that_occur_twice():
    """Readers of protobuf merge them, or take the last one."""
    content = regressor(listed([STUMP]))
    with pytest.raises(ValueError, match="it has two graphs"):
        adapt(content + content)
    x, y = value_info("X", "float32", [None, 3]), value_info("Y", "float32", [None, 1])

    def with_attribute(*fields: bytes) -> bytes:
        trees = operator("TreeEnsembleRegressor", ["X"], ["Y"], listed([STUMP]), ml=True)
        return model([trees + b"".join(field(5, field(1, "n_targets") + each) for each in fields)], [x], [y])

    one = field(3, 1) + field(20, 2)
    assert adapt(with_attribute(one)).ensemble.n_outputs == 1
    with pytest.raises(ValueError, match="'TreeEnsembleRegressor' has two attributes of the same name"):
        adapt(with_attribute(one, one))
    with pytest.raises(ValueError, match="an attribute has a field twice"):
        adapt(with_attribute(one + field(3, 2)))
    packed = field(8, b"\1") + field(20, 7)
    with pytest.raises(ValueError, match="an attribute has a field twice"):
        adapt(with_attribute(packed + field(8, b"\2")))


def test_functions_and_many_attributes_are_refused():
    with pytest.raises(UnsupportedModelError, match="functions of its own"):
        adapt(regressor(listed([STUMP])) + field(25, field(1, "Identity")))
    more = {f"more_{i}": 1 for i in range(100)}
    with pytest.raises(UnsupportedModelError, match="an operator with more than 100 attributes"):
        adapt(regressor({**listed([STUMP]), **more}))


@pytest.mark.parametrize("dims", [[2, 3], [6, 1], [-6], [0], []], ids=str)
def test_tensors_of_other_shapes(dims):
    """Reading many dimensions could take time that grows with the square of their number."""
    tensor = b"".join(field(1, n) for n in dims) + field(2, 11) + field(9, np.zeros(6).tobytes())
    attributes = listed([STUMP, STUMP])
    del attributes["nodes_values"]
    trees = operator("TreeEnsembleRegressor", ["X"], ["Y"], attributes, ml=True)
    trees += field(5, field(1, "nodes_values_as_tensor") + field(5, tensor) + field(20, 4))
    content = model([trees], [value_info("X", "float64", [None, 3])], [value_info("Y", "float32", [None, 1])])
    with pytest.raises(ValueError, match="it has a tensor of 6 items and shape"):
        adapt(content)


def test_nodes_that_no_root_reaches():
    attributes = {**indexed([STUMP] * 3), "n_targets": 1, "tree_roots": [1]}
    assert adapt(ensemble("TreeEnsemble", attributes)).ensemble.n_nodes == len(STUMP)
    attributes |= {"nodes_truenodeids": [2, 2, 0], "nodes_trueleafs": [0, 1, 0]}  # nodes 0 and 2 are a cycle
    assert adapt(ensemble("TreeEnsemble", attributes)).ensemble.n_nodes == len(STUMP)


def test_root_below_a_chain_is_refused():
    """A chain of tests for equality must not absorb the root of its tree."""
    tree = [
        ("EQ", 0, 1.0, 2, 3, False),
        ("EQ", 0, 2.0, 2, 0, False),
        *STUMP[1:],
    ]
    with pytest.raises(ValueError, match=r"tree 0 is not reached exactly once"):
        adapt(regressor(listed([tree])))


def test_labels_that_are_equal():
    for labels in ({"classlabels_int64s": [1, 1]}, {"classlabels_strings": ["a", "b", "a"]}):
        with pytest.raises(ValueError, match="two of its classes have the same label"):
            adapt(classifier({**listed([STUMP], "class"), **labels}))


@pytest.mark.parametrize(
    "values, x_dtype, reason",
    [
        (np.empty(0), "float32", "not ascending"),
        (np.array([1.0, 1.0]), "float32", "not ascending"),
        (np.array([np.nan]), "float32", "not ascending"),
        (np.array([1.0, np.nan]), "float64", "not ascending"),
        (np.array([1.0], np.float32), "float32", "not an array of float64"),
        ("1", "float32", "not an array of float64"),
        (np.array([1.0]), "object", "x_dtype must be"),
    ],
)
def test_encoders_of_damaged_explainer_files(values, x_dtype, reason):
    with pytest.raises(ValueError, match=reason):
        Ranks(values, x_dtype)


def test_mixed_strict_comparisons_with_minus_infinity():
    def content(*modes: str) -> bytes:
        return regressor(listed([[(mode, 0, -np.inf, 1, 2, False), *STUMP[1:]] for mode in modes]))

    assert margin(adapt(content("LT", "GTE")), np.array([[-np.inf, 0, 0]])).item() == -2 + 1
    with pytest.raises(UnsupportedModelError, match="mixes < minus infinity with <= or >"):
        adapt(content("LT", "LEQ"))


@pytest.mark.parametrize("kind", ["listed", "indexed"])
def test_damaged_files(kind, tmp_path):
    trees = random_trees(np.random.default_rng(0), MODES[:-1], n_trees=2, depth=3)
    content = {
        "listed": regressor({**listed(trees), "n_targets": 1}),
        "indexed": ensemble("TreeEnsemble", {**indexed(trees), "n_targets": 1}),
    }[kind]
    path = Path(tmp_path / "model.onnx")
    path.write_bytes(content)
    assert refused_when_damaged(path, 60) > 60


def test_content_of_other_files():
    with pytest.raises(ValueError, match="the content is empty"):
        adapt(b"")
    with pytest.raises(ValueError, match=r"no model of a known kind: .*, ONNX, or an explainer file"):
        adapt(b"nothing")
    with pytest.raises(ValueError, match="the content is a pickle"):
        adapt(b"\x80\x04")


def test_numbers_of_the_wire():
    """A list has integers of any length, some with tags of their own and some packed."""
    from skshapgpu.adapters.onnx import messages

    numbers = [0, 1, 127, 128, 300, 2**31, 2**62, -1, -(2**63), 2**63 - 1]
    for packed, floats in product((False, True), ([1.5, -0.0, 3e38],)):
        attributes = {"ints": numbers, "floats": floats, "none": [], "one": 5, "real": 0.5, "text": "äb"}
        content = model([operator("Any", [], [], attributes, packed=packed)], [], [])
        result = messages.loads(content).operators[0].attributes
        assert result["ints"].tolist() == numbers and len(result["none"]) == 0
        np.testing.assert_array_equal(result["floats"], np.array(floats, np.float32))
        assert (result["one"], result["real"], result["text"]) == (5, 0.5, "äb".encode())
    for array in (
        np.arange(3.0),
        np.arange(3, dtype=np.float32),
        np.arange(-1, 3),
        np.arange(3, dtype=np.uint8),
    ):
        for raw in (False, True):
            content = model([operator("Any", [], [], {"t": array}, packed=not raw)], [], [])
            result = messages.loads(content).operators[0].attributes["t"]
            assert result.dtype == array.dtype and result.tolist() == array.tolist()
