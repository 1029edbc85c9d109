"""Model files whose fields contradict each other, or have another type than the library writes, are refused.

Each file was read before, and some gave other values than the library: ./dev fuzz readers found the edits.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.readers import workers
from fuzz.readers.targets import TARGETS
from helpers import onnx_models, ubjson

from skshapgpu import TreeExplainer, UnsupportedModelError
from skshapgpu.adapters import adapt
from skshapgpu.adapters.ensemble import Ensemble
from skshapgpu.adapters.schema import AdaptedModel, InputSchema

Edit = Callable[[Any], Any]


def document(target: str, name: str) -> Any:
    return copy.deepcopy(TARGETS[target].documents()[name])


def forest(model: Any) -> Any:
    return model["learner"]["gradient_booster"]["model"]


def tree(model: Any) -> Any:
    """Return the tree with categories."""
    return forest(model)["trees"][1]


def test_files_as_they_were_written_are_read() -> None:
    for target in ("xgboost_json", "xgboost_ubjson", "lightgbm", "catboost_json", "treelite", "onnx"):
        for model in TARGETS[target].documents().values():
            assert adapt(TARGETS[target].write(model)).ensemble.n_trees


XGBOOST = [
    (lambda m: forest(m).update(iteration_indptr=[1, 2]), "iteration_indptr does not rise from 0"),
    (lambda m: forest(m).update(iteration_indptr=[0, 1]), "to the number of trees, 2"),
    (lambda m: forest(m).update(iteration_indptr=[0, 1.0, 2]), "iteration_indptr is .* whole numbers"),
    (lambda m: forest(m)["gbtree_model_param"].update(num_trees="3"), "num_trees is 3, but the model has 2"),
    (lambda m: forest(m)["gbtree_model_param"].update(num_trees="2.0"), "num_trees is '2.0', not a string"),
    (lambda m: forest(m).update(tree_info=[0.5, 0]), "tree_info is .*whole numbers"),
    (lambda m: forest(m).update(tree_info=[False, 0]), "tree_info is .*whole numbers"),
    (lambda m: tree(m).update(id=0), "tree 1: id is 0"),
    (lambda m: tree(m)["tree_param"].update(num_nodes="5"), "tree 1: .* has 7 numbers instead of 5"),
    (lambda m: tree(m)["tree_param"].update(num_deleted="1"), "tree 1: num_deleted is 1"),
    (lambda m: tree(m)["tree_param"].update(num_feature="4"), "num_feature is 4, but 3 for the whole model"),
    (lambda m: tree(m)["tree_param"].update(size_leaf_vector="-1"), "size_leaf_vector is '-1'"),
    (lambda m: tree(m)["left_children"].__setitem__(0, 1.7), "left_children is .* whole numbers"),
    (lambda m: tree(m)["left_children"].__setitem__(0, 2**32 + 1), "left_children has the number 4294967297"),
    (lambda m: tree(m)["left_children"].__setitem__(0, True), "left_children is .* whole numbers"),
    (lambda m: tree(m)["left_children"].__setitem__(0, 7), "tree 1: a node has .* a child outside its tree"),
    (lambda m: tree(m)["left_children"].__setitem__(0, -2), "tree 1: a node has .* a child outside its tree"),
    (lambda m: tree(m)["right_children"].__setitem__(0, -1), "tree 1: a node has one child only"),
    (lambda m: tree(m)["parents"].__setitem__(0, 0), "tree 1: parents has a number that is no node"),
    (lambda m: tree(m)["parents"].__setitem__(1, 2), "tree 1: .* do not fit parents"),
    (lambda m: tree(m)["parents"].pop(), "parents has 6 numbers instead of 7"),
    (lambda m: tree(m)["default_left"].__setitem__(0, 2), "tree 1: default_left has a number"),
    (lambda m: tree(m)["default_left"].__setitem__(0, -1), "default_left has the number -1"),
    (lambda m: tree(m)["split_conditions"].__setitem__(0, 1), "split_conditions is .* floats"),
    (lambda m: tree(m)["split_conditions"].__setitem__(0, "0.5"), "split_conditions is .* floats"),
    (lambda m: tree(m)["split_conditions"].__setitem__(0, 0.6500000059604645), "halfway between two numbers"),
    (lambda m: tree(m)["split_indices"].__setitem__(6, -1), "tree 1: split_indices has a negative"),
    (lambda m: tree(m)["loss_changes"].pop(), "loss_changes has 6 numbers instead of 7"),
    (lambda m: tree(m)["categories"].__setitem__(0, 1.5), "categories is .* whole numbers"),
    (lambda m: tree(m)["categories"].__setitem__(0, 2**31 - 1), "categories has a number that is not in 0"),
    (lambda m: tree(m).update(categories_nodes=[*tree(m)["categories_nodes"], 6]), "different lengths"),
    (lambda m: tree(m)["categories_segments"].__setitem__(0, 1), "categories_segments does not fit"),
    (lambda m: m["learner"].update(feature_names=["a"]), "feature_names has 1 items, but num_feature is 3"),
    (lambda m: m["learner"].update(feature_names=[0, 1, 2]), "feature_names is .* not a list of strings"),
    (lambda m: m["learner"].update(feature_types=["c"]), "feature_types has 1 items, but num_feature is 3"),
    (lambda m: m["learner"].update(attributes={"a": 1}), "attributes is .* not an object of strings"),
    (lambda m: m["learner"]["objective"].update(reg_loss_param=[]), "reg_loss_param is .* not an object"),
    (lambda m: m["learner"]["learner_model_param"].update(num_feature="3_0"), "num_feature is '3_0'"),
    (lambda m: m["learner"]["learner_model_param"].update(num_target="0"), "num_target is '0'"),
    (
        lambda m: m["learner"]["learner_model_param"].update(base_score="true"),
        "base_score is .True., not a list",
    ),
    (lambda m: forest(m)["cats"].pop("sorted_idx"), "sorted_idx"),
    (lambda m: m.update(version=[3, 4]), "version is .* not three numbers"),
]


@pytest.mark.parametrize("edit, message", XGBOOST)
def test_xgboost(edit: Edit, message: str) -> None:
    model = document("xgboost_json", "categories")
    assert len(tree(model)["left_children"]) == 7 and len(tree(model)["categories"])
    edit(model)
    with pytest.raises(ValueError, match=message):
        adapt(json.dumps(model).encode())


@pytest.mark.parametrize(
    "edit, message",
    [
        (lambda cats: cats["enc"][0].pop("offsets"), "type"),
        (lambda cats: cats["enc"].pop(), "enc does not list the categories of each of 2 features"),
        (lambda cats: cats["enc"][1]["offsets"].__setitem__(1, 7), "offsets does not rise from 0"),
        (lambda cats: cats["enc"][1]["offsets"].__setitem__(1, 1.0), "offsets is .* whole numbers"),
        (lambda cats: cats["feature_segments"].__setitem__(2, 5), "feature_segments does not fit"),
        (lambda cats: cats["sorted_idx"].pop(), "sorted_idx has 5 numbers for 6 categories"),
    ],
)
def test_xgboost_categories_of_a_frame(edit: Edit, message: str) -> None:
    model = document("xgboost_json", "frame")
    edit(forest(model)["cats"])
    with pytest.raises(ValueError, match=message):
        adapt(json.dumps(model).encode())


def test_xgboost_numbers_halfway_between_two_of_float32() -> None:
    """XGBoost writes 33554448 as 3.355445E7, which is halfway to 33554452."""
    model = document("xgboost_json", "pruned")
    for digits, threshold in ((33554450.0, 33554448.0), (33554454.0, 33554456.0), (1e39, np.inf)):
        forest(model)["trees"][0]["split_conditions"][0] = digits
        assert adapt(json.dumps(model).encode()).ensemble.threshold[0] == threshold


def test_xgboost_weights_of_dart() -> None:
    model = document("xgboost_json", "dart")
    assert forest(model)["weight_drop"]
    forest(model)["weight_drop"] = None
    with pytest.raises(ValueError, match="weight_drop is None"):
        adapt(json.dumps(model).encode())


def wrapped(model: Any) -> Any:
    """Store the weights of DART as XGBoost does up to version 3.2."""
    gbtree = model["learner"]["gradient_booster"]
    weights = gbtree["model"].pop("weight_drop")
    model["version"] = [3, 2, 0]
    model["learner"]["gradient_booster"] = {"gbtree": gbtree, "name": "dart", "weight_drop": weights}
    return model["learner"]["gradient_booster"]


def test_xgboost_dart_of_two_forms() -> None:
    model = document("xgboost_json", "dart")
    weights = forest(model)["weight_drop"] = [0.5 + i for i in range(len(forest(model)["trees"]))]
    later = adapt(json.dumps(model).encode()).ensemble
    assert wrapped(model)["weight_drop"] == weights
    earlier = adapt(json.dumps(model).encode()).ensemble
    np.testing.assert_array_equal(earlier.value, later.value)
    forest(model := document("xgboost_json", "dart"))["weight_drop"] = [1.0] * len(weights)
    assert (adapt(json.dumps(model).encode()).ensemble.value != later.value).any()


@pytest.mark.parametrize(
    "edit",
    [
        lambda booster: booster.update(name="gbtree"),
        lambda booster: booster["gbtree"].update(name="dart"),
        lambda booster: booster.pop("weight_drop"),
        lambda booster: booster.update(model=booster["gbtree"]["model"]),
        lambda booster: booster["gbtree"]["model"].update(weight_drop=booster["weight_drop"]),
        lambda booster: booster["gbtree"].update(weight_drop=booster["weight_drop"]),
    ],
)
def test_xgboost_dart_that_contradicts_itself(edit: Edit) -> None:
    """XGBoost refuses some of these files, and ignores the other trees or weights in the others."""
    model = document("xgboost_json", "dart")
    edit(wrapped(model))
    with pytest.raises(ValueError, match=r"do not fit its name|which XGBoost would ignore"):
        adapt(json.dumps(model).encode())


@pytest.mark.parametrize(
    "edit",
    [
        lambda booster, weights: booster.update(weight_drop=weights),
        lambda booster, weights: booster["model"].update(weight_drop=weights),
        lambda booster, weights: booster.update(gbtree={"name": "gbtree", "model": booster["model"]}),
        lambda booster, weights: booster.update(name="dart"),
        lambda booster, weights: booster.update(name="dart", weight_drop=weights),
    ],
)
def test_xgboost_trees_with_the_weights_of_dart(edit: Any) -> None:
    """XGBoost 3.2 ignores the weights of a gbtree: the values would be those of another model."""
    model = document("xgboost_json", "regression")
    booster = model["learner"]["gradient_booster"]
    booster["model"].pop("weight_drop", None)
    model["version"] = [3, 2, 0]
    adapt(json.dumps(model).encode())
    edit(booster, [0.5] * len(booster["model"]["trees"]))
    with pytest.raises(ValueError, match=r"do not fit its name|which XGBoost would ignore"):
        adapt(json.dumps(model).encode())


def test_xgboost_pruned_nodes() -> None:
    """A node that pruning has deleted goes left by default, and has a parent."""
    for name, value, message in (
        ("default_left", 0, "num_deleted is 6"),
        ("parents", 99, "no node of the tree"),
    ):
        model = document("xgboost_json", "pruned")
        part = forest(model)["trees"][0]
        part[name][part["split_indices"].index(2**31 - 1)] = value
        with pytest.raises(ValueError, match=message):
            adapt(json.dumps(model).encode())


def test_xgboost_classes() -> None:
    model = document("xgboost_json", "classes")
    model["learner"]["objective"]["softmax_multiclass_param"]["num_class"] = "4"
    with pytest.raises(ValueError, match="num_class is 3, but 4 for the objective"):
        adapt(json.dumps(model).encode())
    model = document("xgboost_json", "classes")
    model["learner"]["learner_model_param"]["num_target"] = "3"
    with pytest.raises(ValueError, match="num_class is 3 and num_target is 3"):
        adapt(json.dumps(model).encode())


def test_xgboost_trees_with_several_outputs() -> None:
    for name in ("sum_hessian", "leaf_weights"):
        model = document("xgboost_json", "vector_leaves")
        del tree(model)[name]
        with pytest.raises(ValueError, match=name):
            adapt(json.dumps(model).encode())


def test_xgboost_typed_arrays() -> None:
    model = document("xgboost_ubjson", "categories")
    tree(model)["right_children"] = tree(model)["right_children"].astype(np.int64)
    with pytest.raises(ValueError, match=r"right_children is .* of the type int32"):
        adapt(ubjson.dumps(model))
    model = document("xgboost_ubjson", "categories")
    tree(model)["right_children"] = tree(model)["right_children"].tolist()
    with pytest.raises(ValueError, match="some of its arrays are typed, and some are lists"):
        adapt(ubjson.dumps(model))


def test_a_name_that_occurs_twice_in_ubjson() -> None:
    content = ubjson.dumps(document("xgboost_ubjson", "regression"))
    name = ubjson.length(len("tree_info")) + b"tree_info"
    assert content.count(name) == 1
    with pytest.raises(ValueError, match="the name 'tree_info' twice"):
        adapt(content.replace(name, name + ubjson.dumps([0, 0]) + name))


def test_xgboost_sums_that_overflow() -> None:
    model = document("xgboost_json", "regression")
    for part in forest(model)["trees"]:
        leaves = np.array(part["left_children"]) == -1
        part["split_conditions"] = np.where(leaves, 3e38, part["split_conditions"]).tolist()
    with pytest.raises(UnsupportedModelError, match=r"the largest leaves of this model add up to \de\+38"):
        adapt(json.dumps(model).encode())


def split(model: Any) -> Any:
    return model["oblivious_trees"][0]["splits"][0]


CATBOOST = [
    (lambda m: split(m).update(border=2.5), "is not the split that features_info lists"),
    (lambda m: split(m).update(split_index=split(m)["split_index"] ^ 1), "is not the split"),
    (lambda m: split(m).update(split_index=10**6), "split 1000000 of a CatBoost tree is not the split"),
    (lambda m: split(m).pop("split_index"), "split_index"),
    (lambda m: split(m).update(split_index=True), "split_index is True, not a whole number"),
    (lambda m: split(m).update(float_feature_index=bool(split(m)["float_feature_index"])), "whole number"),
    (lambda m: split(m).update(border=str(split(m)["border"])), "border is '.*', not a finite number"),
    (lambda m: m["oblivious_trees"][0]["leaf_values"].__setitem__(0, "0.5"), "leaf_values is .*numbers"),
    (lambda m: m["oblivious_trees"][0]["leaf_values"].__setitem__(0, True), "leaf_values is .*numbers"),
    (lambda m: m["features_info"]["float_features"][0]["borders"].append(9.5), "is not the split"),
    (lambda m: m["features_info"]["float_features"][0]["borders"].reverse(), "borders that do not ascend"),
    (lambda m: m["features_info"]["float_features"][1].update(flat_feature_index=3), "columns wrongly"),
    (lambda m: m["scale_and_bias"].__setitem__(0, "2"), "the scale is '2', not a finite number"),
    (lambda m: m["scale_and_bias"].__setitem__(0, -(2**63)), "the scale is -9223372036854775808"),
    (
        lambda m: m["scale_and_bias"].__setitem__(1, [2**63 - 1]),
        "the bias holds a whole number that has no exact",
    ),
    (lambda m: m.update(oblivious_trees=[]), "the CatBoost model has no trees"),
    (lambda m: m["model_info"].update(parameter=float("inf")), "holds Infinity"),
    (lambda m: m["model_info"].update(parameter=-float("nan")), "holds NaN"),
]


@pytest.mark.parametrize("edit, message", CATBOOST)
def test_catboost(edit: Edit, message: str) -> None:
    model = document("catboost_json", "regression")
    edit(model)
    with pytest.raises(ValueError, match=message):
        adapt(json.dumps(model).encode())


def test_catboost_trees_of_two_kinds() -> None:
    """CatBoost reads the symmetric trees only."""
    model = document("catboost_json", "regression")
    model["trees"] = document("catboost_json", "lossguide")["trees"]
    with pytest.raises(ValueError, match="symmetric trees and other trees"):
        adapt(json.dumps(model).encode())


@pytest.mark.parametrize(
    "target, name, old",
    [
        ("xgboost_json", "regression", '"base_score": "'),
        ("xgboost_json", "regression", '"split_conditions": ['),
        ("catboost_json", "regression", '"border": '),
        ("catboost_json", "lossguide", '"trees": ['),
    ],
)
def test_json_with_two_values_of_one_name(target: str, name: str, old: str) -> None:
    """JSON readers differ in which of the values they use."""
    text = json.dumps(document(target, name))
    assert text.count(old)
    field = old.split('"')[1]
    with pytest.raises(ValueError, match=f"not valid: an object has the name '{field}' twice"):
        adapt(text.replace(old, f'"{field}": 0, {old}', 1).encode())


def test_json_with_many_names_is_refused_at_once() -> None:
    """The search for the name that occurs twice takes time in proportion to the number of names."""
    names = ", ".join(f'"{i}": 0' for i in range(200_000))
    start = time.process_time()
    with pytest.raises(ValueError, match="an object has the name '199999' twice"):
        adapt(f'{{"learner": 0, {names}, "199999": 0}}'.encode())
    assert time.process_time() - start < 4  # of 2.6 MB, for which 3.6 seconds are allowed; usually 0.2


def test_catboost_features_with_the_same_number() -> None:
    model = document("catboost_json", "classes")
    features = model["features_info"]["float_features"]
    assert not features[1]["borders"]  # no split is on this feature
    features[1]["feature_index"] = 0
    with pytest.raises(ValueError, match="numbers its columns wrongly"):
        adapt(json.dumps(model).encode())


@pytest.mark.parametrize(
    "name, sizes, size",
    [("ctrs", [2, 2, 2], 2**16 + 2), ("symmetric", [2, 2], 2**24 + 2), ("lossguide", [7, 7], 39)],
)
def test_catboost_sizes_of_trees(name: str, sizes: list[int], size: int) -> None:
    """CatBoost crashes when it predicts with such symmetric trees, but exports them without an error."""
    pytest.importorskip("catboost")
    content = document("catboost_cbm", name)
    assert adapt(content).ensemble.n_trees == len(sizes)
    before, old, after = content.rpartition(np.array([len(sizes), *sizes], "<i4").tobytes())
    assert old
    content = before + np.array([len(sizes), size, *sizes[1:]], "<i4").tobytes() + after
    with pytest.raises(ValueError, match="the sizes of its trees do not fit the positions of their splits"):
        adapt(content)


@pytest.mark.parametrize(
    "position, old, new, message",
    [
        (6732, 1, 2, "a CTR of the CatBoost model has borders that do not ascend"),  # the number of borders
        (6964, 0, 1, "two exports of the model have different features"),  # the number of one-hot features
        # the number of features computed from text; CatBoost 1.2.0 crashes, in a process of its own
        (6968, 0, 1, "two exports of the model have different features|CatBoost crashes while reading it"),
    ],
)
def test_catboost_numbers_of_features_and_borders(position: int, old: int, new: int, message: str) -> None:
    pytest.importorskip("catboost")
    content = bytearray(document("catboost_cbm", "ctrs"))
    assert content[position] == old
    content[position] = new
    with pytest.raises(ValueError, match=message):
        adapt(bytes(content))


def lightgbm(name: str, old: str, new: str) -> bytes:
    text = TARGETS["lightgbm"].write(document("lightgbm", name)).decode()
    assert old in text
    return text.replace(old, new, 1).encode()


@pytest.mark.parametrize(
    "name, old, new, message",
    [
        ("regression", "tree_sizes=", "tree_sizes=1", "longer or shorter trees, than tree_sizes"),
        ("regression", "shrinkage=1\n", "shrinkage=1.0\n", "longer or shorter trees, than tree_sizes"),
        ("regression", "num_class=1", "num_class=3", "has 3 classes, but 1 trees in a round"),
        ("regression", "num_class=1", "num_class=1.0", "num_class is '1.0', not a string of a whole number"),
        ("regression", "label_index=0\n", "", "has no label_index"),
        ("regression", "feature_infos=", "feature_infos=none ", "no feature_infos for each of 3 features"),
        ("regression", "objective=regression", "objective=", "an objective without a name"),
        ("classes", "objective=multiclass", "objective=", "an objective without a name"),
        ("classes", "objective=multiclass num_class:3", "objective=multiclass", "it has no 'num_class'"),
        ("classes", "objective=multiclass num_class:3", "objective=multiclass num_class:", "num_class is ''"),
        ("regression", "Column_1", "", "a feature without a name"),
        ("regression", "Column_1", "Column\0_1", "a null character"),
        ("regression", "split_gain=", "split_gain=x", "needs 3 numbers as split_gain, not 0"),
        ("regression", "leaf_weight=", "leaf_weight=1 ", "needs 4 numbers as leaf_weight, not more"),
        ("regression", "is_linear=0", "is_linear=2", "is_linear=2, not 0 or 1"),
        ("regression", "num_cat=0\n", "num_cat=0\nnum_cat=0\n", "the field num_cat twice"),
        ("regression", "\nleft_child=", "\n\nleft_child=", "does not end at its first empty line"),
    ],
)
def test_lightgbm(name: str, old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adapt(lightgbm(name, old, new))


def test_lightgbm_with_many_names_is_refused_at_once() -> None:
    """The search for the field that occurs twice takes time in proportion to the number of fields."""
    fields = "".join(f"a{i}=\n" for i in range(100_000))
    text = lightgbm("regression", "\nnum_class=1\n", f"\nnum_class=1\n{fields}a99999=\n")
    start = time.process_time()
    with pytest.raises(ValueError, match="has the field a99999 twice"):
        adapt(text)
    assert time.process_time() - start < 1.7  # the limit for 0.7 MB; usually 0.1


def test_lightgbm_classes_of_the_objective() -> None:
    """LightGBM computes probabilities of as many classes as the objective has."""
    text = TARGETS["lightgbm"].write(document("lightgbm", "classes"))
    assert b"\nnum_class=3\n" in text and text.count(b" num_class:3\n") == 1
    with pytest.raises(ValueError, match="has 3 classes, but its objective 2"):
        adapt(text.replace(b" num_class:3\n", b" num_class:2\n"))


@pytest.mark.parametrize("number", [-1, 2**32])
def test_lightgbm_words_of_categories(number: int) -> None:
    model = document("lightgbm", "sets")
    part = next(part for part in model["trees"] if "cat_threshold" in part)
    part["cat_threshold"][0] = str(int(part["cat_threshold"][0]) + number if number > 0 else number)
    with pytest.raises(ValueError, match="a cat_threshold that is no word of 32 bits"):
        adapt(TARGETS["lightgbm"].write(model))


def test_lightgbm_without_sizes_of_trees() -> None:
    """LightGBM reads such a text, too; somebody who edits a text removes the line."""
    text = lightgbm("regression", "tree_sizes=", "removed=").decode()
    lines = [line for line in text.split("\n") if not line.startswith("removed=")]
    assert adapt("\n".join(lines).replace("shrinkage=1\n", "shrinkage=1.0\n").encode()).ensemble.n_trees == 2


@pytest.mark.parametrize("field", ["leaf_coeff", "leaf_value", "threshold"])
def test_lightgbm_word_behind_the_numbers(field: str) -> None:
    model = document("lightgbm", "linear")
    model["trees"][1][field].append("None")
    with pytest.raises(ValueError, match=f"numbers as {field}, not more"):
        adapt(TARGETS["lightgbm"].write(model))


@pytest.mark.parametrize("number", ["1e-320", "-1e-310", "2.2250738585072012e-308"])
@pytest.mark.parametrize("tree_number, field", [(0, "leaf_const"), (1, "leaf_const"), (1, "leaf_coeff")])
def test_lightgbm_linear_leaves_below_the_normal_numbers(tree_number: int, field: str, number: str) -> None:
    """LightGBM ends the process at such a number, but reads it as a value or a threshold."""
    model = document("lightgbm", "linear")
    model["trees"][tree_number][field][0] = number
    with pytest.raises(ValueError, match=f"tree {tree_number} .* a linear leaf with a number between 0 and"):
        adapt(TARGETS["lightgbm"].write(model))
    model = document("lightgbm", "linear")
    model["trees"][tree_number].update(leaf_value=[number] * 4, threshold=["1", number, "2"])
    assert adapt(TARGETS["lightgbm"].write(model)).ensemble.n_trees == 2


def test_lightgbm_average_of_no_trees() -> None:
    """LightGBM predicts NaN then, and 0 as the sum of no trees."""
    for name in ("regression", "forest"):
        model = document("lightgbm", name)
        model["trees"] = []
        content = TARGETS["lightgbm"].write(model)
        if name == "regression":
            assert adapt(content).ensemble.n_trees == 0
            continue
        with pytest.raises(ValueError, match="no trees, whose average is its prediction"):
            adapt(content)


def test_treelite_shape_of_leaves() -> None:
    for name, field, value in (
        ("treelite_categories", "leaf_vector_shape", [1, 2]),
        ("treelite_categories", "class_id", [-1, 0]),
        ("treelite_classes", "leaf_vector_shape", [1, 1]),
    ):
        model = document("treelite", name)
        model["header"][field] = np.array(value)
        with pytest.raises(ValueError, match="leaves of another shape than its outputs"):
            adapt(TARGETS["treelite"].write(model))


@pytest.mark.parametrize(
    "name, attribute, value, message",
    [
        ("ensemble", "nodes_modes", np.array([6, 6, 6, 0, 0, 6], np.int32), "nodes_modes are of int32"),
        ("ensemble", "nodes_modes", [6, 6, 6, 0, 0, 6], "nodes_modes are not a tensor"),
        ("ensemble", "membership_values", np.arange(9.0), "membership_values are of float64"),
        ("ensemble", "nodes_splits", [0.0] * 6, "nodes_splits are not a tensor"),
        ("ensemble", "tree_roots", np.array([0, 3]), "tree_roots are not a list of integers"),
        ("ensemble", "post_transform", "NONE", "post_transform is b'NONE'"),
        ("ensemble", "post_transform", 0.0, "post_transform is 0.0"),
        ("ensemble", "aggregate_function", [1], "aggregate_function is array"),
        ("regressor", "aggregate_function", 1, "aggregate_function is 1"),
        ("regressor", "nodes_values", np.zeros(14, np.float32), "nodes_values are not a list of floats"),
        ("regressor", "base_values", "x", "base_values are not a list of floats"),
        ("regressor", "base_values", [], "base_values are not a list of floats"),  # of integers
        ("classifier", "post_transform", 0, "post_transform is 0"),
        ("regressor", "nodes_nodeids", [*range(7), 2**32 + 1, *range(1, 7)], "outside the range of int32"),
    ],
)
def test_onnx_types_of_attributes(name: str, attribute: str, value: Any, message: str) -> None:
    model = document("onnx", name)
    assert adapt(TARGETS["onnx"].write(model)).ensemble.n_trees == 2
    model["attributes"][attribute] = value
    with pytest.raises(ValueError, match=message):
        adapt(TARGETS["onnx"].write(model))


@pytest.mark.parametrize("output", [3, 2**63 - 1, -1])
@pytest.mark.parametrize("name, kind", [("regressor", "target"), ("classifier", "class")])
def test_onnx_outputs_of_inner_nodes(name: str, kind: str, output: int) -> None:
    """The weight of an inner node has no effect, but its output must exist."""
    model = document("onnx", name)
    attributes = model["attributes"]
    assert attributes["nodes_modes"][0] != "LEAF"
    attributes[f"{kind}_nodeids"][0] = 0
    assert adapt(TARGETS["onnx"].write(model)).ensemble.n_trees == 2
    attributes[f"{kind}_ids"][0] = output
    with pytest.raises(ValueError, match=r"a node has a weight for an output outside 0\.\."):
        adapt(TARGETS["onnx"].write(model))


@pytest.mark.parametrize("transform", range(5))
def test_onnx_scores_are_compared_before_the_transformation(transform: int, tmp_path: Path) -> None:
    """onnxruntime applies a transformation to several targets, most of them not to a single one."""
    pytest.importorskip("onnxruntime")
    model = document("onnx", "ensemble")
    model["attributes"].update(post_transform=transform, n_targets=2)
    path = tmp_path / "model.onnx"
    path.write_bytes(TARGETS["onnx"].write(model))
    rows = np.random.default_rng(0).integers(-3, 4, (20, 3)).astype(np.float32)
    scores = workers.onnx(str(path), rows)[1]
    np.testing.assert_allclose(scores, onnx_models.margin(adapt(path), rows), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"data": True}, {"precision": "double"}, {"algorithm": "treeshap"}], ids=str
)
def test_leaves_whose_sums_overflow(options: dict[str, Any]) -> None:
    model = document("lightgbm", "regression")
    for part in model["trees"]:
        part["leaf_value"] = ["1e308", "-1e308", "1e308", "-1e308"]
    data = np.zeros((2, 3)) if options.pop("data", False) else None
    with pytest.raises(UnsupportedModelError, match="so large that their sums overflow in float64"):
        TreeExplainer(TARGETS["lightgbm"].write(model), data, device="cpu", **options)


def test_leaves_below_the_normal_numbers() -> None:
    """Such numbers have few digits, and their sums differ by rounding."""
    model = document("catboost_json", "classes")
    model["scale_and_bias"][0] = 1e-320
    explainer = TreeExplainer(json.dumps(model).encode(), device="cpu")
    explanation = explainer.explain(np.random.default_rng(0).normal(size=(50, 3)))
    assert (np.abs(explanation.values) < 1e-319).all() and explanation.values.any()


def test_outputs_of_wholly_different_magnitudes() -> None:
    """The outputs of a tree share a scale: the smaller output would be lost."""
    ensemble = Ensemble(
        n_features=1,
        tree_offsets=np.array([0, 3]),
        tree_output=np.array([-1]),
        left=np.array([1, -1, -1]),
        right=np.array([2, -1, -1]),
        feature=np.zeros(3, int),
        threshold=np.zeros(3),
        missing_left=np.zeros(3, bool),
        cover=np.array([2.0, 1.0, 1.0]),
        value=np.array([[0, 0], [0.1, 1e300], [0.4, 2e300]]),
        intercept=np.zeros(2),
    )
    adapted = AdaptedModel(ensemble, InputSchema(1), "test")
    with pytest.raises(
        UnsupportedModelError, match=r"the leaves of one output add up to 0\.\d+, those of another"
    ):
        TreeExplainer(adapted, device="cpu")
