"""The core refuses ensembles whose arrays contradict each other: it never reads outside of an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.ensembles import random_ensemble

from skshapgpu import _core
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of

N_FEATURES = 3
STUMP: dict[str, Any] = {
    "left": [1, -1, -1],
    "right": [2, -1, -1],
    "feature": [2, 0, 0],
    "threshold": [0.5, 0.0, 0.0],
    "missing_left": [True, False, False],
    "cover": [3.0, 1.0, 2.0],
    "value": [0.0, 1.0, 2.0],
}


def numeric(**options: Any) -> dict[str, Any]:
    """Return two trees of two outputs; every feature is a player, and zeros of one are missing."""
    trees = [Tree(**STUMP), Tree(**STUMP, output=1)]
    options = {"zero_missing": [False, True, False], "player": [1, 0, 2]} | options
    return attributes_of(Ensemble.from_trees(trees, n_features=N_FEATURES, intercept=[0.0, 1.0], **options))


def categorical() -> dict[str, Any]:
    trees = [Tree(**STUMP, categories={0: np.array([1, 5])}), Tree(**STUMP, categories={0: np.array([2])})]
    return attributes_of(Ensemble.from_trees(trees, n_features=N_FEATURES, intercept=0.0))


def vectors() -> dict[str, Any]:
    tree = Tree(**STUMP | {"value": [[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]]})
    return attributes_of(Ensemble.from_trees([tree, tree], n_features=N_FEATURES, intercept=[0.0, 1.0]))


def linear() -> dict[str, Any]:
    return attributes_of(
        Ensemble.from_trees(
            [Tree(**STUMP)],
            n_features=N_FEATURES,
            intercept=0.0,
            linear_offsets=[0, 0, 1, 2],
            linear_feature=[0, 1],
            linear_coefficient=[1.0, 2.0],
            linear_intercept=[0.0, 1.0, 2.0],
        )
    )


BACKGROUND, WEIGHTS = np.zeros((4, N_FEATURES)), np.full(4, 0.25)
DEPENDENCE_AXES: list[Any] = [([2], BACKGROUND)]

COMPILERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "Plan": lambda e: _core.Plan(e, "double"),
    "Plan of order 2": lambda e: _core.Plan(e, "double", 2),
    "fast_v2": lambda e: _core.Plan(e, "double", method="fast_v2"),
    "level_uniform": lambda e: _core.Plan(e, "double", tables="level_uniform"),
    "owen_plan": lambda e: _core.owen_plan(e, "double", [0, 0, 1]),
    "background_plan": lambda e: _core.background_plan(e, "double", BACKGROUND, WEIGHTS, "SII", 1 << 20),
    "BackgroundPairsPlan": lambda e: _core.BackgroundPairsPlan(
        e, "double", BACKGROUND, WEIGHTS, "SII", 1 << 20
    ),
    "RescaledPlan": lambda e: _core.RescaledPlan(e, "double", BACKGROUND, WEIGHTS, "logistic", 1.0),
    "DependentTrees": lambda e: _core.DependentTrees(e, DEPENDENCE_AXES),
    "add_leaf_weights": lambda e: _core.add_leaf_weights(e, BACKGROUND, WEIGHTS, np.zeros(len(e["left"]))),
}
COMPILE_LINEAR = {"LinearPlan": lambda e: _core.LinearPlan(e, "double", BACKGROUND, WEIGHTS)}

#: Attributes that are too short or too long, or whose numbers are positions in another attribute that has no
#: such position: an ensemble, the attribute, and what stands in its place.
CONTRADICTIONS: dict[str, tuple[Callable[[], dict[str, Any]], str, Any]] = {
    "value of one node": (numeric, "value", np.zeros((1, 1))),
    "value of three outputs": (vectors, "value", np.zeros((6, 3))),
    "value of one of two outputs": (vectors, "value", np.zeros((6, 1))),
    "value in one dimension": (vectors, "value", np.zeros(12)),
    "no output": (numeric, "intercept", np.empty(0)),
    "one output of two": (numeric, "intercept", np.zeros(1)),
    "one vector of two": (numeric, "tree_output", np.array([0, -1], np.int32)),
    "tree_output is negative": (numeric, "tree_output", np.array([-2, -2], np.int32)),
    "n_features is negative": (numeric, "n_features", -1),
    "n_features is too large": (numeric, "n_features", 2**31),
    "player is too short": (numeric, "player", np.zeros(2, np.int32)),
    "player is too long": (numeric, "player", np.zeros(4, np.int32)),
    "player is negative": (numeric, "player", np.array([0, 1, -1], np.int32)),
    "player is large": (numeric, "player", np.array([0, 1, 2**31 - 1], np.int32)),
    "zero_missing is too short": (numeric, "zero_missing", np.zeros(1, bool)),
    "cover is too short": (numeric, "cover", np.zeros(5)),
    "left is too short": (numeric, "left", np.full(5, -1, np.int32)),
    "first offset is not 0": (numeric, "tree_offsets", np.array([1, 3, 6])),
    "first offset is negative": (numeric, "tree_offsets", np.array([-6, 0, 6])),
    "offsets descend": (numeric, "tree_offsets", np.array([0, 9, 6])),
    "last offset is large": (numeric, "tree_offsets", np.array([0, 3, 2**40])),
    "a tree without nodes": (numeric, "tree_offsets", np.array([0, 6, 6])),
    "offsets in two dimensions": (numeric, "tree_offsets", np.array([[0, 3, 6]])),
    "child in another tree": (numeric, "left", np.array([4, -1, -1, 1, -1, -1], np.int32)),
    "child is the root": (numeric, "left", np.array([0, -1, -1, 1, -1, -1], np.int32)),
    "child of two nodes": (numeric, "left", np.array([2, -1, -1, 1, -1, -1], np.int32)),
    "right child is missing": (numeric, "right", np.full(6, -1, np.int32)),
    "feature is negative": (numeric, "feature", np.full(6, -1, np.int32)),
    "feature is large": (numeric, "feature", np.full(6, N_FEATURES, np.int32)),
    "threshold is NaN": (numeric, "threshold", np.full(6, np.nan)),
    "category_set is too short": (categorical, "category_set", np.zeros(5, np.int32)),
    "category_set is large": (categorical, "category_set", np.full(6, 2, np.int32)),
    "category_listed_left is too short": (categorical, "category_listed_left", np.zeros(1, bool)),
    "category_values is too short": (categorical, "category_values", np.zeros(2, np.int32)),
    "category_offsets is too short": (categorical, "category_offsets", np.array([0, 3])),
    "first category offset is negative": (categorical, "category_offsets", np.array([-9, 2, 3])),
    "category offsets descend": (categorical, "category_offsets", np.array([0, 2**40, 3])),
    "not aligned": (numeric, "cover", np.frombuffer(bytes(49), np.uint8)[1:].view(np.float64)),
    "of another type": (numeric, "cover", np.zeros(6, np.float32)),
    "of another byte order": (numeric, "cover", np.zeros(6, ">f8")),
    "not contiguous": (numeric, "cover", np.zeros(12)[::2]),
}
LINEAR_CONTRADICTIONS: dict[str, tuple[Callable[[], dict[str, Any]], str, Any]] = {
    "first term is negative": (linear, "linear_offsets", np.array([-9, 0, 1, 2])),
    "offsets descend": (linear, "linear_offsets", np.array([0, 2**40, 1, 2])),
    "offsets are too short": (linear, "linear_offsets", np.array([0, 0, 2])),
    "no offsets": (linear, "linear_offsets", np.empty(0, np.int64)),
    "feature is negative": (linear, "linear_feature", np.array([0, -1], np.int32)),
    "feature is large": (linear, "linear_feature", np.array([0, N_FEATURES], np.int32)),
    "coefficients are too short": (linear, "linear_coefficient", np.zeros(1)),
    "intercepts are too short": (linear, "linear_intercept", np.zeros(2)),
    "leaves of two outputs": (vectors, "strict", False),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_refused(name: str) -> None:
    make, attribute, contradiction = CONTRADICTIONS[name]
    _core.Plan(make(), "double")
    with pytest.raises((ValueError, TypeError)):
        _core.Plan(make() | {attribute: contradiction}, "double")


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", ["value of one node", "feature is large", "category_set is large"])
def test_every_function_checks_the_ensemble(compiler: str, name: str) -> None:
    make, attribute, contradiction = CONTRADICTIONS[name]
    COMPILERS[compiler](make())
    with pytest.raises(ValueError):
        COMPILERS[compiler](make() | {attribute: contradiction})


@pytest.mark.parametrize("name", LINEAR_CONTRADICTIONS)
def test_contradictions_of_linear_leaves_are_refused(name: str) -> None:
    make, attribute, contradiction = LINEAR_CONTRADICTIONS[name]
    _core.LinearPlan(linear(), "double", BACKGROUND, WEIGHTS)
    with pytest.raises(ValueError):
        _core.LinearPlan(make() | {attribute: contradiction}, "double", BACKGROUND, WEIGHTS)


def test_a_cycle_that_no_root_reaches_is_refused() -> None:
    # Each of the nodes 1 and 2 is a child of the other one, and every node has one parent.
    cycle = {
        "left": np.array([3, 2, 1, -1, -1, -1, -1], np.int32),
        "right": np.array([4, 5, 6, -1, -1, -1, -1], np.int32),
        "feature": np.zeros(7, np.int32),
        "threshold": np.zeros(7),
        "missing_left": np.zeros(7, bool),
        "cover": np.ones(7),
        "value": np.zeros((7, 1)),
        "tree_output": np.zeros(1, np.int32),
        "tree_offsets": np.array([0, 7]),
    }
    attributes = numeric() | cycle
    with pytest.raises(ValueError, match="tree 0 has a node that is not reached exactly once"):
        _core.Plan(attributes, "double")


def test_children_may_precede_their_parents() -> None:
    ensemble = random_ensemble(3, order="shuffled", shapes=("random",))
    assert (ensemble.left[ensemble.left >= 0] < np.flatnonzero(ensemble.left >= 0)).any()
    _core.Plan(attributes_of(ensemble), "double")


def test_owen_values_need_groups() -> None:
    with pytest.raises(TypeError, match="groups"):
        _core.owen_plan(numeric(), "double", None)  # type: ignore[arg-type]


def test_tables_of_rescaled_values_need_the_ensemble_of_the_plan() -> None:
    # Rows of the background have no column for a fourth feature.
    plan = _core.RescaledPlan(numeric(), "double", BACKGROUND, WEIGHTS, "logistic", 1.0)
    _core.RescaledTables(plan, numeric(), BACKGROUND, 1 << 20)
    wide = numeric(zero_missing=[], player=[]) | {"n_features": N_FEATURES + 1}
    wide["feature"] = np.full(6, N_FEATURES, np.int32)
    with pytest.raises(ValueError, match="the ensemble must be that of the plan"):
        _core.RescaledTables(plan, wide, BACKGROUND, 1 << 20)


@pytest.mark.parametrize("categories", [False, True])
def test_random_contradictions(categories: bool) -> None:
    # One position is changed. The core refuses the ensemble if the class does.
    rng = np.random.default_rng(0)
    names = ["left", "right", "feature", "tree_offsets", "tree_output"]
    names += ["category_set"] * categories
    n_refused = 0
    for seed in range(400):
        ensemble = random_ensemble(seed % 40, categorical=categories)
        attributes = attributes_of(ensemble)
        name = str(rng.choice(names))
        array = attributes[name].copy()
        inner = np.flatnonzero(ensemble.left >= 0)
        places = inner if len(array) == ensemble.n_nodes else np.arange(len(array))
        if not len(places):
            continue
        limits = np.iinfo(array.dtype)
        # The core takes every negative category set for none.
        least = -1 if name == "category_set" else limits.min
        array[rng.choice(places)] = rng.choice(
            [-1, 0, 1, rng.integers(len(ensemble.left) + 1), least, limits.max]
        )
        attributes[name] = array
        try:
            Ensemble(**attributes)
        except ValueError:
            n_refused += 1
            with pytest.raises(ValueError):
                _core.Plan(attributes, "double")
        else:
            _core.Plan(attributes, "double")
    assert n_refused > 100
