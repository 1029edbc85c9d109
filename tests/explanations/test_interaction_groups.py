"""Interactions of groups: sums of blocks of the matrices."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skshapgpu import InteractionExplanation, TreeExplainer, explain, explain_interactions

pd = pytest.importorskip("pandas")

#: Columns "a" to "e" are in groups that are no ranges.
GROUPS = {"ca": ["a", "c"], "bd": ["b", "d"]}
MEMBERS = {"ca": [0, 2], "bd": [1, 3], "e": [4]}

_random = np.random.default_rng(3)
X = pd.DataFrame(_random.normal(size=(40, 5)), columns=list("abcde"))
Y = 1000 + 5 * X["a"] * X["b"] + 3 * X["c"] * X["d"] - X["a"] * X["c"] * X["e"]
REGRESSOR = RandomForestRegressor(4, max_depth=5, random_state=0).fit(X, Y)
CLASSIFIER = RandomForestClassifier(4, max_depth=5, random_state=0).fit(X, pd.qcut(Y, 3, labels=False))

FRAME = pd.DataFrame(
    {
        "size": _random.normal(size=60),
        "color": _random.choice(["red", "green", "blue"], 60),
        "place": _random.choice(["a_b", "b", "c"], 60),
    },
    index=[f"row {i}" for i in range(60)],
).iloc[::-1]
_blue_b = (FRAME["place"] == "b") & (FRAME["color"] == "blue")
TARGET = 50 + FRAME["size"] * (FRAME["color"] == "red") + 3 * _blue_b
PIPELINE = make_pipeline(
    make_column_transformer((OneHotEncoder(), ["place", "color"]), remainder="passthrough"),
    RandomForestRegressor(5, max_depth=5, random_state=0),
).fit(FRAME, TARGET)


def blocks(matrices: np.ndarray, members: list[list[int]]) -> np.ndarray:
    """Sum the blocks of matrices (n_rows, n, n, ...) one by one."""
    values = np.zeros((len(matrices), len(members), len(members), *matrices.shape[3:]))
    for (g, one), (h, other) in itertools.product(enumerate(members), repeat=2):
        for i, j in itertools.product(one, other):
            values[:, g, h] += matrices[:, i, j]
    return values


@pytest.mark.parametrize("model", [REGRESSOR, CLASSIFIER], ids=["one output", "classes"])
@pytest.mark.parametrize("index", ["SII", "STII"])
def test_groups_are_sums_of_blocks_and_add_up(model: Any, index: str) -> None:
    explanation = explain_interactions(model, X, index=index, precision="double")
    grouped = explanation.sum_by(GROUPS)
    assert grouped.feature_names == tuple(MEMBERS) and grouped.data is None
    matrices = explanation.matrices()
    if index == "SII":
        matrices = TreeExplainer(model, precision="double").shap_interaction_values(X)
    want = blocks(matrices, list(MEMBERS.values()))
    np.testing.assert_allclose(grouped.matrices(), want, rtol=0, atol=1e-9)
    np.testing.assert_allclose(grouped[3:7].matrices(), want[3:7], rtol=0, atol=1e-9)
    sums = explain(model, X, precision="double").sum_by(GROUPS)
    margin = sums.base_values + sums.values.sum(axis=1)
    total = grouped.values.sum(axis=1) + grouped.main_effects().sum(axis=1)
    np.testing.assert_allclose(grouped.base_values + total, margin, atol=1e-9)
    np.testing.assert_allclose(grouped.matrices().sum(axis=2), sums.values, atol=1e-9)

    assert grouped.interaction_names == ("ca x bd", "ca x e", "bd x e") and grouped.strength is None
    between = {"a x b", "a x d", "b x c", "c x d"} & set(explanation.interaction_names)
    total = explanation[:, sorted(between)].values.sum(axis=1)
    np.testing.assert_allclose(grouped.values[:, 0], total, rtol=0, atol=1e-9)
    assert np.abs(grouped.values - explanation[:, ["a x b"]].values).max() > 0.1


def test_banzhaf_values_stay_on_the_diagonal() -> None:
    explanation = explain_interactions(REGRESSOR, X, index="BII", precision="double")
    want = blocks(explanation.matrices(), list(MEMBERS.values()))
    banzhaf = explain(REGRESSOR, X, index="BV", precision="double").sum_by(GROUPS).values
    want[:, range(3), range(3)] = banzhaf
    np.testing.assert_allclose(explanation.sum_by(GROUPS).matrices(), want, rtol=0, atol=1e-9)


def test_input_names_the_columns_of_x() -> None:
    full_explanation = explain_interactions(PIPELINE, FRAME, precision="double")
    grouped = full_explanation[5:50].sum_by("input")
    assert grouped.feature_names == ("place", "color", "size")
    assert set(grouped.interaction_names) == {"place x color", "place x size", "color x size"}
    assert list(grouped.data["color"]) == list(FRAME["color"][5:50])
    assert list(grouped.row_labels) == list(FRAME.index[5:50])
    matrices = TreeExplainer(PIPELINE, precision="double").shap_interaction_values(FRAME)
    want = blocks(matrices[5:50], [[0, 1, 2], [3, 4, 5], [6]])
    np.testing.assert_allclose(grouped.matrices(), want, rtol=0, atol=1e-9)
    sums = explain(PIPELINE, FRAME, precision="double").sum_by("input")[5:50]
    np.testing.assert_allclose(grouped.matrices().sum(axis=2), sums.values, atol=1e-9)
    np.testing.assert_allclose(grouped.base_values + sums.values.sum(axis=1), PIPELINE.predict(FRAME)[5:50])
    assert grouped.to_frame().columns[-1] in grouped.interaction_names


def test_without_steps_input_changes_nothing() -> None:
    explanation = explain_interactions(REGRESSOR, X)
    assert explanation.sum_by("input") is explanation


def test_listed_pairs_are_summed_if_they_are_all_pairs_of_two_groups() -> None:
    full_explanation = explain_interactions(
        REGRESSOR, X, interactions="occurring", precision="double"
    ).sum_by(GROUPS)
    listed = [("d", "a"), ("a", "b"), ("c", "b"), ("c", "d")]
    explanation = explain_interactions(REGRESSOR, X, interactions=listed, precision="double").sum_by(GROUPS)
    assert explanation.interaction_names == ("ca x bd",)
    np.testing.assert_allclose(explanation.values, full_explanation[:, ["ca x bd"]].values, atol=1e-9)
    incomplete = "'ca' and 'bd' is a sum over 4 pairs of features, of which the explanation has 3: use inter"
    with pytest.raises(ValueError, match=incomplete):
        explain_interactions(REGRESSOR, X, interactions=listed[:3]).sum_by(GROUPS)
    with pytest.raises(ValueError, match=r"'c' and 'a' are both in group 'ca'.*use interactions='occurring'"):
        explain_interactions(REGRESSOR, X, interactions=[("c", "a")]).sum_by(GROUPS)
    with pytest.raises(ValueError, match="of which the explanation has 1"):
        explain_interactions(REGRESSOR, X, interactions=1).sum_by(GROUPS)
    with pytest.raises(ValueError, match="not all pairs are available"):
        explanation.main_effects()
    assert np.isnan(explanation.matrices().diagonal(0, 1, 2)).all()


def test_refusals() -> None:
    triples = explain_interactions(REGRESSOR, X, interactions="occurring", order=3)
    with pytest.raises(ValueError, match="interactions of triples cannot be grouped"):
        triples.sum_by(GROUPS)
    explanation: InteractionExplanation = explain_interactions(REGRESSOR, X)
    with pytest.raises(ValueError, match="mapping, 'g': there is no feature 'z', only "):
        explanation.sum_by({"g": ["z"]})
    with pytest.raises(ValueError, match="mapping must be 'input'"):
        explanation.sum_by("columns")
