"""TreeExplainer.explain_interactions and Banzhaf values: forms, choice of pairs, devices, errors."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.checks import shrink_leaves
from helpers.interactions import (
    BENIGN,
    DIABETES,
    INDICES,
    IRIS,
    PROGRESSION,
    brute_strength,
    on_cpu,
    whole_pairs,
)
from sklearn.ensemble import RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skshapgpu import explain, explain_interactions, reference
from skshapgpu._common import memory
from skshapgpu.adapters import _REGISTERED
from skshapgpu.adapters.ensemble import Ensemble, Tree
from skshapgpu.adapters.schema import AdaptedModel, InputSchema

# Forms


def test_shap_interaction_values(case: Any) -> None:
    explainer, X = case
    matrices, n_features = explainer.shap_interaction_values(X), X.shape[1]
    assert type(matrices) is np.ndarray and matrices.dtype == X.dtype
    assert matrices.shape == (len(X), n_features, n_features, *explainer.shap_values(X).shape[2:])
    assert (matrices == matrices.swapaxes(1, 2)).all()
    values = explainer.shap_values(X)
    np.testing.assert_allclose(matrices.sum(axis=2), values, rtol=0, atol=1e-6 * np.abs(values).max())


@pytest.mark.parametrize("index", INDICES)
def test_matrices(case: Any, index: str) -> None:
    explainer, X = case
    explanation = explainer.explain_interactions(X, index=index)
    matrices, n_features = explanation.matrices(), X.shape[1]
    assert matrices.shape == (len(X), n_features, n_features, *explainer.shap_values(X).shape[2:])
    assert matrices.dtype == X.dtype and explanation.order == 2
    assert (matrices == matrices.swapaxes(1, 2)).all()
    singles = explainer.explain(X, index="BV" if index == "BII" else "SV").values
    atol = 1e-6 * np.abs(singles).max()
    features = np.arange(n_features)
    if index == "SII":
        direct = explainer.shap_interaction_values(X)
        off_diagonal = ~np.eye(n_features, dtype=bool)
        np.testing.assert_array_equal(matrices[:, off_diagonal], direct[:, off_diagonal])
        np.testing.assert_allclose(matrices, direct, rtol=0, atol=atol)
    if index == "BII":
        np.testing.assert_allclose(matrices[:, features, features], singles, rtol=0, atol=atol)
        assert explanation.additivity_error is None
    else:
        np.testing.assert_allclose(matrices.sum(axis=2), singles, rtol=0, atol=atol)
        assert 0 < explanation.additivity_error < 1e-3


@pytest.mark.parametrize("index", ["SII", "STII"])
@pytest.mark.parametrize("form", ["default", "occurring", "number", "list", "array"])
def test_a_value_is_the_whole_index_in_every_form(case: Any, index: str, form: str) -> None:
    """Listed pairs and main effects add up without a factor of 2, for every ``interactions=``."""
    explainer, X = case
    pairs = explainer.occurring_interactions()
    asked: dict[str, Any] = {
        "occurring": {"interactions": "occurring"},
        "number": {"interactions": len(pairs)},
        "list": {"interactions": list(map(tuple, pairs[::-1].tolist()))},
        "array": {"interactions": pairs},
    }.get(form, {})
    explanation = explainer.explain_interactions(X, index=index, **asked)
    main = explainer.explain_interactions(X, index=index).main_effects().astype(float)
    values = explainer.shap_values(X).astype(float)
    atol = 1e-5 * np.abs(values).max()
    shares = np.zeros_like(values)
    for position, pair in enumerate(explanation.interactions):
        for feature in pair:
            shares[:, feature] += explanation.values[:, position] / 2
    np.testing.assert_allclose(main + shares, values, rtol=0, atol=atol)
    total = explanation.values.sum(axis=1, dtype=float) + main.sum(axis=1)
    np.testing.assert_allclose(total, values.sum(axis=1), rtol=0, atol=atol)
    # The other methods speak of the same numbers.
    magnitudes = np.abs(explanation.values).mean(axis=0, dtype=float)
    np.testing.assert_allclose(explanation.importance(), magnitudes, rtol=1e-5)
    means = magnitudes.reshape(len(pairs), -1).sum(axis=1)
    np.testing.assert_allclose(
        [mean for _, mean in explanation.strongest(len(pairs))], np.sort(means)[::-1], rtol=1e-5
    )
    first, second = explanation.interactions.T
    np.testing.assert_array_equal(2 * explanation.matrices()[:, second, first], explanation.values)


@pytest.mark.parametrize("form", [3, [(0, 1), (2, 3)]])
def test_matrices_of_chosen_pairs(case: Any, form: Any) -> None:
    """Pairs that are not listed are zero, and main effects are unknown because they need all pairs."""
    explainer, X = case
    explanation = explainer.explain_interactions(X, interactions=form)
    matrices, direct = explanation.matrices(), explainer.shap_interaction_values(X)
    listed = np.zeros(direct.shape[1:3], bool)
    for first, second in explanation.interactions:
        listed[first, second] = listed[second, first] = True
    np.testing.assert_array_equal(matrices[:, listed], direct[:, listed])
    diagonal = np.eye(X.shape[1], dtype=bool)
    assert (matrices[:, ~(listed | diagonal)] == 0).all() and np.isnan(matrices[:, diagonal]).all()


@pytest.mark.parametrize("index", INDICES)
def test_occurring(case: Any, index: str) -> None:
    explainer, X = case
    explanation = explainer.explain_interactions(X, index=index)
    matrices = explanation.matrices() if index != "SII" else explainer.shap_interaction_values(X)
    pairs, whole = whole_pairs(matrices)
    occurs = [tuple(pair) in set(map(tuple, explanation.interactions)) for pair in pairs]
    np.testing.assert_array_equal(explanation.interactions, pairs[occurs])
    np.testing.assert_array_equal(explanation.interactions, explainer.occurring_interactions())
    np.testing.assert_array_equal(explanation.values, whole[:, occurs])
    assert (whole[:, np.logical_not(occurs)] == 0).all()
    assert explanation.values.dtype == X.dtype
    np.testing.assert_allclose(explanation.strength, brute_strength(explanation.values), rtol=1e-12)
    singles = explainer.explain(X, index="BV" if index == "BII" else "SV").values
    atol = 1e-6 * np.abs(singles).max()
    np.testing.assert_allclose(explanation.single_values, singles, rtol=0, atol=atol)
    default = explainer.explain_interactions(X, index=index, interactions="occurring")
    np.testing.assert_array_equal(default.values, explanation.values)


def test_pairs_and_main_effects_add_up(case: Any) -> None:
    explainer, X = case
    explanation = explainer.explain_interactions(X, interactions="occurring")
    total = explanation.values.sum(axis=1) + explanation.main_effects().sum(axis=1)
    margin = explainer.shap_values(X).sum(axis=1)
    np.testing.assert_allclose(total, margin, rtol=0, atol=1e-5 * np.abs(margin).max())


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("count", [1, 4, 1000])
def test_strongest(case: Any, index: str, count: int) -> None:
    explainer, X = case
    pairs, all_values = whole_pairs(explainer.explain_interactions(X, index=index).matrices())
    strength = brute_strength(all_values)
    n_pairs = len(explainer.occurring_interactions())
    order = np.argsort(-strength, kind="stable")[: min(count, n_pairs)]
    explanation = explainer.explain_interactions(X, interactions=count, index=index)
    np.testing.assert_array_equal(explanation.interactions, pairs[order])
    np.testing.assert_array_equal(explanation.values, all_values[:, order])
    np.testing.assert_allclose(explanation.strength, strength[order], rtol=1e-12)
    assert (np.diff(explanation.strength) <= 0).all()
    assert explanation.values.dtype == X.dtype


class Twins:
    """The trees have equal thresholds and leaves, but each tree splits on two features of its own."""


def adapt_twins(model: Any) -> AdaptedModel:
    trees = [
        Tree(
            left=[1, 3, 5, -1, -1, -1, -1],
            right=[2, 4, 6, -1, -1, -1, -1],
            feature=[first, second, second, 0, 0, 0, 0],
            threshold=[0.0] * 7,
            missing_left=[True] * 7,
            cover=[8, 4, 4, 1, 3, 2, 2],
            value=[0, 0, 0, -1, 3, 2, 7],
        )
        for first, second in [(4, 5), (0, 1), (2, 3)]
    ]
    return AdaptedModel(
        Ensemble.from_trees(trees, n_features=6, intercept=0.0), InputSchema(6), family="twins"
    )


def test_equally_strong_pairs_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_REGISTERED, f"{Twins.__module__}.{Twins.__qualname__}", adapt_twins)
    X = np.tile(np.random.default_rng(0).normal(size=(500, 2)), 3)
    explanation = on_cpu(Twins()).explain_interactions(X, interactions=2)
    np.testing.assert_array_equal(explanation.interactions, [[0, 1], [2, 3]])
    assert explanation.strength[0] == explanation.strength[1] > 0
    assert explanation.strongest(1) == [("x0 x x1", explanation.strength[0])]


def test_listed(case: Any) -> None:
    explainer, X = case
    matrices = explainer.shap_interaction_values(X)
    listed = [(2, 0), ("x1", 3), (np.int64(1), "x0")]
    explanation = explainer.explain_interactions(X, interactions=listed)
    np.testing.assert_array_equal(explanation.interactions, [[2, 0], [1, 3], [1, 0]])
    assert explanation.interaction_names == ("x2 x x0", "x1 x x3", "x1 x x0")
    np.testing.assert_array_equal(explanation.values, 2 * matrices[:, [2, 1, 1], [0, 3, 0]])
    assert explanation.strength is None and explanation.single_values is None
    again = explainer.explain_interactions(X, interactions=explanation.interactions)
    np.testing.assert_array_equal(again.values, explanation.values)


def test_listed_pairs_that_never_occur_are_zero() -> None:
    model = DecisionTreeRegressor(max_depth=2, random_state=0).fit(DIABETES, PROGRESSION)
    explainer = on_cpu(model)
    occurring = set(map(tuple, explainer.occurring_interactions()))
    absent = [pair for pair in combinations(range(10), 2) if pair not in occurring]
    present = [tuple(map(int, pair)) for pair in occurring]
    listed = absent[:3] + present + absent[3:5]
    explanation = explainer.explain_interactions(DIABETES, interactions=listed)
    assert (explanation.values[:, [0, 1, 2, -2, -1]] == 0).all()
    assert np.abs(explanation.values[:, 3:-2]).max() > 0
    assert (explainer.explain_interactions(DIABETES, interactions=absent).values == 0).all()
    assert explainer.explain_interactions(DIABETES, interactions=[]).shape == (442, 0)


def test_models_without_interactions() -> None:
    explainer = on_cpu(DecisionTreeRegressor(max_depth=1).fit(DIABETES, PROGRESSION))
    assert explainer.occurring_interactions().shape == (0, 2)
    for pairs in ("occurring", 3):
        explanation = explainer.explain_interactions(DIABETES, interactions=pairs)
        assert explanation.shape == (442, 0) and "pairs: 0" in repr(explanation)
    occurring = explainer.explain_interactions(DIABETES, interactions="occurring")
    np.testing.assert_array_equal(occurring.main_effects(), explainer.shap_values(DIABETES))


@pytest.mark.parametrize("pairs", ["occurring", 3, [(0, 1)]])
def test_no_rows(multiclass: Any, pairs: Any) -> None:
    explanation = on_cpu(multiclass).explain_interactions(IRIS[:0], interactions=pairs)
    assert explanation.matrices().shape == (0, 4, 4, 3)
    assert on_cpu(multiclass).shap_interaction_values(IRIS[:0]).shape == (0, 4, 4, 3)
    full = on_cpu(multiclass).explain_interactions(IRIS, interactions=pairs)
    assert explanation.shape == (0, *full.shape[1:])
    assert explanation.strength is None or np.isnan(explanation.strength).all()


# Triples


@pytest.mark.parametrize("index", ["SII", "BII"])
def test_triples(case: Any, index: str) -> None:
    explainer, X = case
    if X.shape[1] > reference.MAX_USED_FEATURES:
        explainer = on_cpu(DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, BENIGN), outputs="all")
    X = X[:40]
    expected, _, triples = reference.path_dependent(explainer._adapted.ensemble, X, index=index, order=3)
    expected = np.moveaxis(expected, 1, -1) if expected.shape[1] > 1 else expected[:, 0]
    if explainer.output_names is not None and expected.ndim == 2:
        expected = np.stack([-expected, expected], axis=-1)
    atol = 2e-6 * np.abs(explainer.shap_values(X)).max()
    occurring = explainer.explain_interactions(X, interactions="occurring", index=index, order=3)
    column = {tuple(triple): i for i, triple in enumerate(triples.tolist())}
    columns = [column[tuple(triple)] for triple in occurring.interactions.tolist()]
    assert occurring.order == 3 and len(columns) > 3
    np.testing.assert_array_equal(occurring.interactions, explainer.occurring_interactions(order=3))
    np.testing.assert_allclose(occurring.values, expected[:, columns], rtol=0, atol=atol)
    np.testing.assert_allclose(occurring.strength, brute_strength(occurring.values), rtol=1e-12)
    assert (np.abs(np.delete(expected, columns, axis=1)) <= 1e-6 * atol).all()  # float64's rounding
    assert (occurring.additivity_error is None) == (index == "BII")
    assert occurring.values.dtype == X.dtype

    order = np.argsort(-brute_strength(occurring.values), kind="stable")[:3]
    strongest = explainer.explain_interactions(X, interactions=3, index=index, order=3)
    np.testing.assert_array_equal(strongest.interactions, occurring.interactions[order])
    np.testing.assert_array_equal(strongest.values, occurring.values[:, order])

    listed = [tuple(triple[::-1]) for triple in occurring.interactions[:2].tolist()]
    found = explainer.explain_interactions(X, interactions=listed, index=index, order=3)
    np.testing.assert_array_equal(found.values, occurring.values[:, :2])
    i, j, k = listed[0]
    assert found.interaction_names[0] == f"x{i} x x{j} x x{k}" and "triples: 2" in repr(found)
    if occurring.output_names is None:
        assert list(found.to_frame().columns) == list(found.interaction_names)


def test_triples_of_pairs_only_are_none() -> None:
    explainer = on_cpu(DecisionTreeRegressor(max_depth=2, random_state=0).fit(DIABETES, PROGRESSION))
    for pairs in ("occurring", 5):
        assert explainer.explain_interactions(DIABETES, interactions=pairs, order=3).shape == (442, 0)
    listed = explainer.explain_interactions(DIABETES, interactions=[("x0", 1, 2)], order=3)
    assert (listed.values == 0).all()


# Banzhaf values


def test_banzhaf_values(regressor: Any) -> None:
    """Both indices agree if paths have at most two features, and differ otherwise."""
    explanation = explain(regressor, DIABETES, index="BV", device="cpu", precision="double")
    assert explanation.index == "BV" and explanation.additivity_error is None
    assert "Banzhaf values" in explanation._repr_html_() and "not checked" in repr(explanation)
    assert explanation[:3].index == "BV"
    shapley = explain(regressor, DIABETES, device="cpu", precision="double")
    assert shapley.index == "SV" and "SHAP values" in shapley._repr_html_()
    assert 1e-3 < np.abs(explanation.values - shapley.values).max() < 0.3 * np.abs(shapley.values).max()
    pairs = DecisionTreeRegressor(max_depth=2, random_state=0).fit(DIABETES, PROGRESSION)
    shap, banzhaf = (on_cpu(pairs).explain(DIABETES, index=index).values for index in ("SV", "BV"))
    np.testing.assert_allclose(banzhaf, shap, atol=1e-4)


def test_explain_of_one_call(regressor: Any) -> None:
    explanation = explain_interactions(regressor, DIABETES, interactions=3, index="STII", n_jobs=1)
    assert explanation.shape == (442, 3) and explanation.index == "STII"
    assert explain_interactions(regressor, DIABETES[:9]).shape == (9, 35)
    with pytest.raises(TypeError, match="unexpected keyword argument 'interactions'"):
        explain(regressor, DIABETES, interactions=3)
    with pytest.raises(ValueError, match="index must be one of 'SV', 'BV', 'OV', not 'SII'"):
        explain(regressor, DIABETES, index="SII")
    with pytest.raises(ValueError, match="index must be one of 'SII', 'STII', 'BII', not 'SV'"):
        explain_interactions(regressor, DIABETES, index="SV")


def test_arguments_are_checked_before_the_model() -> None:
    with pytest.raises(ValueError, match="interactions must be"):
        explain_interactions(None, DIABETES, interactions="some")
    with pytest.raises(ValueError, match="index must be one of 'SV', 'BV', 'OV', not 'BII'"):
        explain(None, DIABETES, index="BII")


# Labels and kinds of X


def test_labels_of_a_frame() -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(DIABETES, columns=[f"f{i}" for i in range(10)], index=[f"row {i}" for i in range(442)])
    model = RandomForestRegressor(3, random_state=0).fit(X, PROGRESSION)
    explanation = on_cpu(model).explain_interactions(X, interactions=[("f2", "f8"), (0, "f1")])
    assert explanation.feature_names == tuple(X.columns) and explanation.row_labels is X.index
    assert explanation.data is X and explanation.seconds > 0 and explanation.device == "cpu"
    assert explanation.base_values == on_cpu(model).expected_value
    frame = explanation.to_frame()
    assert list(frame.columns) == ["f2 x f8", "f0 x f1"] and frame.index is X.index
    with pytest.raises(ValueError, match="same order"):
        on_cpu(model).explain_interactions(X[X.columns[::-1]])


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix, np.asfortranarray, list])
def test_kinds_of_x(regressor: Any, make: Any) -> None:
    explainer = on_cpu(regressor)
    np.testing.assert_array_equal(
        explainer.shap_interaction_values(make(DIABETES)), explainer.shap_interaction_values(DIABETES)
    )
    for pairs in ("occurring", 4):
        found = explainer.explain_interactions(make(DIABETES), interactions=pairs)
        expected = explainer.explain_interactions(DIABETES, interactions=pairs)
        np.testing.assert_array_equal(found.values, expected.values)


def test_pipeline(regressor: Any) -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(DIABETES, columns=[f"f{i}" for i in range(10)])
    pipeline = make_pipeline(StandardScaler(), DecisionTreeRegressor(max_depth=4, random_state=0))
    explanation = on_cpu(pipeline.fit(X, PROGRESSION)).explain_interactions(X, interactions=[("f2", "f8")])
    assert explanation.interaction_names == ("f2 x f8",) and np.abs(explanation.values).max() > 0


# Arguments


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"interactions": "some"},
            ValueError,
            "interactions must be 'occurring', a number or a list of pairs, not 'some'$",
        ),
        (
            {"interactions": "all"},
            ValueError,
            r"not 'all': matrices are arrays, which shap_interaction_values\(X\) returns, or "
            r"explain_interactions\(X\)\.matrices\(\)$",
        ),
        ({"interactions": "matrices"}, ValueError, "not 'matrices': matrices are arrays"),
        ({"interactions": 0}, ValueError, "interactions must be at least 1, not 0"),
        ({"interactions": -3}, ValueError, "interactions must be at least 1"),
        ({"interactions": 1.5}, TypeError, "interactions must be 'occurring'"),
        ({"interactions": None}, TypeError, "interactions must be 'occurring'"),
        ({"interactions": True}, TypeError, "interactions must be 'occurring'"),
        ({"interactions": ("x0", "x1")}, ValueError, "list of pairs of features, but 'x0' is no pair"),
        ({"interactions": [(0, 1), 2]}, ValueError, "but 2 is no pair"),
        ({"interactions": [(0, 1, 2)]}, ValueError, r"but \(0, 1, 2\) is no pair"),
        ({"interactions": [("x0", "bmi")]}, ValueError, "interactions: there is no feature 'bmi', only 'x0'"),
        ({"interactions": [(0, 10)]}, ValueError, "interactions: feature 10 is out of range for 10 features"),
        ({"interactions": [(-1, 2)]}, ValueError, "feature -1 is out of range"),
        ({"interactions": [(0, 1.0)]}, TypeError, "neither a name nor a position"),
        ({"interactions": [(0, True)]}, TypeError, "neither a name nor a position"),
        (
            {"interactions": [(3, "x3")]},
            ValueError,
            r"a pair in interactions has a feature twice: \(3, 'x3'\)",
        ),
        (
            {"interactions": [(0, 1), (2, 3), (1, 0)]},
            ValueError,
            r"interactions holds a pair twice: \(1, 0\)",
        ),
        ({"index": "shap"}, ValueError, "index must be one of 'SII', 'STII', 'BII', not 'shap'"),
        ({"index": None}, ValueError, "index must be one of"),
        ({"order": 1}, ValueError, "order must be 2 or 3, not 1"),
        ({"order": 4}, ValueError, "order must be 2 or 3"),
        ({"order": 2.0}, ValueError, "order must be 2 or 3"),
        (
            {"order": 3, "interactions": "all"},
            ValueError,
            "'occurring', a number or a list of triples, not 'all'$",
        ),
        (
            {"order": 3, "index": "STII", "interactions": 2},
            ValueError,
            "order=3 has index 'SII' or 'BII', not 'STII'",
        ),
        ({"order": 3, "interactions": [(0, 1)]}, ValueError, r"list of triples of features, but \(0, 1\)"),
        ({"order": 3, "interactions": "some"}, ValueError, "a number or a list of triples"),
    ],
)
def test_wrong_arguments(
    regressor: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    explainer = on_cpu(regressor)
    explainer._compiled.table_sizes.clear()  # nothing may be compiled, or run, before the error
    with pytest.raises(error, match=message):
        explainer.explain_interactions(DIABETES, **arguments)
    assert not explainer._compiled.table_sizes


def test_wrong_index_of_values(regressor: Any) -> None:
    with pytest.raises(ValueError, match="index must be one of 'SV', 'BV'"):
        on_cpu(regressor).explain(DIABETES, index="SII")


def test_wrong_rows(regressor: Any) -> None:
    bad = DIABETES.astype(object)
    bad[400, 4] = "text"
    explainer = on_cpu(regressor)
    calls: list[Any] = [
        explainer.shap_interaction_values,
        *(partial(explainer.explain_interactions, interactions=pairs) for pairs in ("occurring", 3)),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="9 features"):
            call(DIABETES[:, :9])
        with pytest.raises(ValueError, match="row 400 of column 4 is 'text'"):
            call(bad)


@pytest.mark.parametrize("pairs", ["occurring", 3, [(0, 1)]])
def test_additivity_is_checked(regressor: Any, pairs: Any) -> None:
    explainer = on_cpu(regressor)
    explainer.shap_values(DIABETES)  # compared with the model's own prediction
    shrink_leaves(explainer, 1e-9)
    with pytest.raises(RuntimeError, match="additivity check failed at row 0"):
        explainer.explain_interactions(DIABETES, interactions=pairs)
    with pytest.raises(RuntimeError, match="additivity check failed at row 0"):
        explainer.shap_interaction_values(DIABETES)
    explainer.explain_interactions(DIABETES, interactions=pairs, index="BII")
    unchecked = on_cpu(regressor, check_additivity=False)
    assert unchecked.explain_interactions(DIABETES, interactions=pairs).additivity_error is None


# Threads, copies


def test_threads_and_chunks_do_not_matter(regressor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = on_cpu(regressor)
    expected = {
        pairs: explainer.explain_interactions(DIABETES, interactions=pairs) for pairs in ("occurring", 5)
    }
    monkeypatch.setattr(memory, "CHUNK_BYTES", 20_000)
    for n_jobs in (1, 3):
        for pairs, one in expected.items():
            found = on_cpu(regressor, n_jobs=n_jobs).explain_interactions(DIABETES, interactions=pairs)
            np.testing.assert_array_equal(found.values, one.values)
            np.testing.assert_array_equal(found.interactions, one.interactions)


def test_many_threads_share_an_explainer(regressor: Any) -> None:
    expected = on_cpu(regressor).explain_interactions(DIABETES, interactions=4).values
    fresh = on_cpu(regressor)  # compiles for interactions at the first call of any thread
    with ThreadPoolExecutor(6) as pool:
        found = list(
            pool.map(lambda _: fresh.explain_interactions(DIABETES, interactions=4).values, range(18))
        )
    assert all((values == expected).all() for values in found)


def test_pickles(multiclass: Any) -> None:
    explainer = on_cpu(multiclass)
    expected = explainer.explain_interactions(IRIS, interactions=3)
    other = pickle.loads(pickle.dumps(explainer)).explain_interactions(IRIS, interactions=3)
    again = pickle.loads(pickle.dumps(expected))
    for found in (other, again):
        np.testing.assert_array_equal(found.values, expected.values)
        assert (
            found.interaction_names == expected.interaction_names
            and found.output_names == expected.output_names
        )
