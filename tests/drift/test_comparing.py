"""compare_explanations against the definitions, SciPy and scikit-learn."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from helpers.drift import explanation, psi_by_definition
from scipy.stats import wasserstein_distance
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import ndcg_score

from skshapgpu import ExplanationComparison, compare_explanations, explain, explain_interactions
from skshapgpu._drift import comparing
from skshapgpu._drift.measures import ndcg

RNG = np.random.default_rng(0)

#: Samples in which mistakes show: continuous, mostly zero, two values, few values, constant, zero.
REFERENCE = np.column_stack(
    [
        RNG.normal(size=300),
        np.where(RNG.random(300) < 0.7, 0.0, RNG.normal(size=300)),
        RNG.choice([-0.3, 0.8], 300),
        RNG.integers(-3, 4, 300) / 7,
        np.full(300, 0.123),
        np.zeros(300),
    ]
)
CURRENT = np.column_stack(
    [
        RNG.normal(0.3, 1.2, 211),
        np.where(RNG.random(211) < 0.5, 0.0, RNG.normal(size=211)),
        RNG.choice([-0.3, 0.8, 0.2], 211),
        RNG.integers(-4, 4, 211) / 7,
        np.full(211, 0.123),
        np.where(RNG.random(211) < 0.9, 0.0, -0.5),
    ]
)


@pytest.mark.parametrize("n_bins", [2, 3, 10, 40])
def test_measures_are_those_of_the_definitions(n_bins: int) -> None:
    comparison = compare_explanations(explanation(REFERENCE), explanation(CURRENT), n_bins=n_bins)
    # All features are rounded to the same unit, so the definition gets all features on the same scale.
    largest = max(np.abs(REFERENCE).mean(axis=0).max(), np.abs(CURRENT).mean(axis=0).max())
    for i in range(6):
        ours, theirs = REFERENCE[:, i], CURRENT[:, i]
        assert comparison.wasserstein[i] == pytest.approx(wasserstein_distance(ours, theirs), abs=1e-12)
        assert comparison.psi[i] == pytest.approx(
            psi_by_definition(ours, theirs, n_bins, largest), abs=1e-9
        ), i
    np.testing.assert_allclose(comparison.reference_importance, np.abs(REFERENCE).mean(axis=0))
    np.testing.assert_allclose(comparison.current_importance, np.abs(CURRENT).mean(axis=0))
    assert comparison.ndcg == pytest.approx(
        ndcg_score([comparison.reference_importance], [comparison.current_importance])
    )
    assert comparison.psi[4] == comparison.wasserstein[4] == 0
    np.testing.assert_allclose(comparison.relative_wasserstein, comparison.wasserstein / largest)
    assert comparison.psi[5] > 0.5  # below a constant, not above it
    assert (comparison.n_reference, comparison.n_current) == (300, 211)


def test_a_sample_and_itself() -> None:
    comparison = compare_explanations(explanation(REFERENCE), explanation(REFERENCE[::-1]))
    assert not comparison.psi.any() and not comparison.relative_wasserstein.any() and comparison.ndcg == 1
    np.testing.assert_array_equal(comparison.reference_rank, comparison.current_rank)


def test_psi_of_deciles_by_hand() -> None:
    """All values move to the lowest of ten bins, so that nine are empty."""
    reference = np.arange(1.0, 101.0)[:, None]
    current = np.concatenate([np.arange(1.0, 11.0), np.full(90, 5.0)])[:, None]
    (psi,) = compare_explanations(explanation(reference), explanation(current)).psi
    assert psi == pytest.approx(0.9 * np.log(10) + 9 * (1e-4 - 0.1) * np.log(1e-4 / 0.1))


def test_psi_is_that_of_quantile_bins_in_continuous_data(rng: np.random.Generator) -> None:
    reference, current = rng.normal(size=(2, 20_000, 1)) * [[[1]], [[1.2]]]
    edges = np.quantile(reference, np.arange(1, 10) / 10, method="inverted_cdf")
    p, q = (np.bincount(np.searchsorted(edges, x[:, 0]), minlength=10) / 20_000 for x in (reference, current))
    (psi,) = compare_explanations(explanation(reference), explanation(current)).psi
    assert psi == pytest.approx(((q - p) * np.log(q / p)).sum(), rel=0.02)


def test_psi_without_change_has_the_mean_of_theory(rng: np.random.Generator) -> None:
    samples = rng.normal(size=(2, 1000, 300))
    comparison = compare_explanations(explanation(samples[0]), explanation(samples[1, :500]))
    assert comparison.psi.mean() == pytest.approx(9 * (1 / 1000 + 1 / 500), rel=0.1)


@pytest.mark.parametrize("held", [1, 7, 100, 600])
def test_columns_that_are_not_held_give_the_same(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    full_comparison = compare_explanations(explanation(REFERENCE), explanation(CURRENT))
    monkeypatch.setattr(comparing, "_VALUES_IN_MEMORY", held)
    monkeypatch.setattr("skshapgpu._drift.samples._BATCH_VALUES", 64)
    parts = compare_explanations(explanation(REFERENCE), explanation(CURRENT))
    np.testing.assert_array_equal(parts.psi, full_comparison.psi)
    np.testing.assert_allclose(parts.wasserstein, full_comparison.wasserstein, atol=1e-14)


def test_weights_of_other_rows(rng: np.random.Generator) -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60)}, index=rng.permutation(60) + 7)
    explanation = explain(RandomForestRegressor(3, random_state=0).fit(X, X["a"] + X["b"]), X)
    weights = pd.Series(rng.random(60), index=X.index)
    expected = np.average(np.abs(explanation.values), axis=0, weights=weights)
    for given in (weights, weights.to_numpy(), weights.sort_index().loc[explanation.row_labels]):
        importance = compare_explanations(
            explanation, explanation, reference_weight=given
        ).reference_importance
        np.testing.assert_allclose(importance, expected, rtol=1e-6)
    for other in (weights.sort_index(), weights.reset_index(drop=True)):
        with pytest.raises(ValueError, match="reference_weight: the index differs from that of ref"):
            compare_explanations(explanation, explanation, reference_weight=other)


def test_masked_weights() -> None:
    weights = np.ma.masked_less(np.arange(211.0), 100)
    with pytest.raises(TypeError, match="current_weight is a masked array: fill it first, with 0"):
        compare_explanations(explanation(REFERENCE), explanation(CURRENT), current_weight=weights)


def test_weights(rng: np.random.Generator) -> None:
    weights, of_current = rng.integers(0, 4, 300), rng.integers(0, 3, 211)
    comparison = compare_explanations(
        explanation(REFERENCE), explanation(CURRENT), reference_weight=weights, current_weight=of_current
    )
    repeated = compare_explanations(
        explanation(REFERENCE.repeat(weights, axis=0)), explanation(CURRENT.repeat(of_current, axis=0))
    )
    for name in ("reference_importance", "current_importance", "psi", "wasserstein", "ndcg"):
        np.testing.assert_allclose(
            getattr(comparison, name), getattr(repeated, name), atol=1e-12, err_msg=name
        )
    for i in range(6):
        expected = wasserstein_distance(REFERENCE[:, i], CURRENT[:, i], weights, of_current)
        assert comparison.wasserstein[i] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "weights, message",
    [
        (
            np.ones(3),
            r"reference_weight must have one entry for each of the 300 rows of reference, not .* \(3,\)",
        ),
        (-np.ones(300), "reference_weight must be finite and not negative, but entry 0 is -1.0"),
        (np.full(300, np.nan), "must be finite"),
        (np.full(300, np.inf), "must be finite"),
        (np.zeros(300), "reference_weight is zero for all rows"),
        ("w", "names the column 'w', but reference is an explanation"),
    ],
)
def test_wrong_weights(weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_explanations(explanation(REFERENCE), explanation(CURRENT), reference_weight=weights)


def test_rows_without_values_are_left_out() -> None:
    values = REFERENCE.copy()
    values[::3] = np.nan
    values[1, 2] = np.nan
    comparison = compare_explanations(explanation(values), explanation(CURRENT))
    known_values = values[~np.isnan(values[:, 2]), 2]
    assert comparison.wasserstein[2] == pytest.approx(wasserstein_distance(known_values, CURRENT[:, 2]))
    np.testing.assert_allclose(comparison.reference_importance, explanation(values).importance())


def test_features_are_matched_by_name() -> None:
    order = [3, 0, 5, 1, 4, 2]
    one = compare_explanations(explanation(REFERENCE), explanation(CURRENT))
    names = tuple(f"f{i}" for i in order)
    other = compare_explanations(explanation(REFERENCE), explanation(CURRENT[:, order], feature_names=names))
    assert other.feature_names == one.feature_names
    for name in ("current_importance", "current_rank", "psi", "wasserstein"):
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name))
    swapped = compare_explanations(
        explanation(REFERENCE), explanation(REFERENCE[:, order], feature_names=names)
    )
    assert not swapped.psi.any()


def test_outputs_are_matched_by_name(rng: np.random.Generator) -> None:
    ours, theirs = rng.normal(size=(2, 90, 4, 3)) * np.array([1, 2, 3])
    one = explanation(ours, output_names=("a", "b", "c"))
    other = explanation(theirs[..., [2, 0, 1]], output_names=("c", "a", "b"))
    comparison = compare_explanations(one, other)
    assert (
        comparison.psi.shape
        == comparison.wasserstein.shape
        == comparison.reference_importance.shape
        == (4, 3)
    )
    for i, j in np.ndindex(4, 3):
        assert comparison.wasserstein[i, j] == pytest.approx(
            wasserstein_distance(ours[:, i, j], theirs[:, i, j])
        )
        assert comparison.psi[i, j] < 0.5
    largest = np.maximum(comparison.reference_importance, comparison.current_importance).max(axis=0)
    np.testing.assert_allclose(comparison.relative_wasserstein, comparison.wasserstein / largest)
    summed = [comparison.reference_importance.sum(axis=1), comparison.current_importance.sum(axis=1)]
    assert comparison.ndcg == pytest.approx(ndcg_score([summed[0]], [summed[1]]))
    np.testing.assert_array_equal(comparison.reference_rank, (-summed[0]).argsort().argsort() + 1)
    single = compare_explanations(one[..., "b"], other[..., "b"])
    np.testing.assert_array_equal(single.wasserstein, comparison.wasserstein[:, 1])
    frame = comparison.to_frame()
    assert (
        frame.index.names == ["feature", "output"] and frame.loc[("f2", "b"), "psi"] == comparison.psi[2, 1]
    )
    with pytest.raises(ValueError, match="reference is of output 'b', but current is of output 'a'"):
        compare_explanations(one[..., "b"], other[..., "a"])
    with pytest.raises(ValueError, match="reference has one output, but current has 3"):
        compare_explanations(one[..., "b"], other)
    with pytest.raises(ValueError, match="different outputs: only reference has 'a'; only current has 'd'"):
        compare_explanations(one, explanation(theirs, output_names=("d", "b", "c")))


def test_differences_of_rounding_do_not_count(rng: np.random.Generator) -> None:
    """Frequent values, zeros, and a constant that is not a float32, rounded to single precision."""
    noise = 1e-7 * rng.normal(size=REFERENCE.shape)
    single = (REFERENCE + noise).astype(np.float32)
    comparison = compare_explanations(explanation(REFERENCE), explanation(single))
    assert comparison.psi[1:].max() < 1e-12 and comparison.psi[0] < 1e-3
    assert comparison.wasserstein.max() < 1e-6


@pytest.mark.parametrize(
    "reference, current, expected",
    [
        ([3, 2, 1], [3, 2, 1], 1.0),
        ([0.70, 0.50, 0.05], [0.10, 0.20, 0.70], None),
        ([3, 2, 1], [1, 1, 1], None),
        ([3, 2, 2, 0], [5, 0, 5, 1], None),
        ([3, 2, 1, 0], [0, 0, 0, 0], None),
        ([0, 0], [0, 0], 1.0),
        ([0, 0], [1, 2], 0.0),
        ([5], [1], 1.0),
    ],
)
def test_ndcg(reference: list[float], current: list[float], expected: float | None) -> None:
    """The mean over all orders in which ties can be broken."""

    def gain(order: Any) -> float:
        return sum(reference[feature] / np.log2(place + 2) for place, feature in enumerate(order))

    if expected is None:
        orders = [
            order
            for order in itertools.permutations(range(len(current)))
            if all(current[a] >= current[b] for a, b in itertools.pairwise(order))
        ]
        expected = np.mean([gain(o) for o in orders]) / gain(np.argsort(reference)[::-1])
    assert ndcg(np.array(reference, float), np.array(current, float)) == pytest.approx(expected)


def test_ranks_of_tied_features() -> None:
    values = np.array([[1.0, -2.0, 2.0, 0.0, 0.0]])
    comparison = compare_explanations(explanation(values), explanation(values))
    assert comparison.reference_rank.tolist() == [3, 1, 1, 4, 4]


def test_single_rows() -> None:
    comparison = compare_explanations(explanation([[1.0, 2.0]]), explanation([[1.0, 5.0]]))
    assert comparison.wasserstein.tolist() == [0, 3] and comparison.psi[0] == 0
    assert np.isfinite(comparison.psi).all() and comparison.psi[1] > 1


def test_the_frame_and_the_dict() -> None:
    pytest.importorskip("pandas")
    comparison = compare_explanations(explanation(REFERENCE), explanation(CURRENT))
    frame = comparison.to_frame()
    assert frame.index.name == "feature" and sorted(frame.index) == sorted(comparison.feature_names)
    assert frame["psi"].is_monotonic_decreasing
    for i, name in enumerate(comparison.feature_names):
        for column in frame:
            assert frame.loc[name, column] == getattr(comparison, column)[i]
    facts = json.loads(json.dumps(comparison.to_dict()))
    assert facts["ndcg"] == comparison.ndcg and facts["n_current"] == 211
    assert [record["psi"] for record in facts["features"]] == frame["psi"].tolist()
    assert repr(comparison).startswith("ExplanationComparison of 300 and 211 rows\nnDCG of the rankings: ")
    with pytest.raises(AttributeError):
        comparison.ndcg = 1.0  # type: ignore[misc]


def test_labels_of_classes_go_into_json(rng: np.random.Generator) -> None:
    values = rng.normal(size=(20, 2, 2))
    labelled = explanation(values, output_names=(np.int64(3), np.int64(4)))
    facts = json.loads(json.dumps(compare_explanations(labelled, labelled).to_dict()))
    assert {record["output"] for record in facts["features"]} == {3, 4}


@pytest.mark.parametrize(
    "change",
    [
        {"model_output": "probability"},
        {"index": "BV"},
        {"feature_perturbation": "interventional"},
    ],
)
def test_values_of_different_kinds(change: dict[str, str]) -> None:
    (fact,) = change
    with pytest.raises(ValueError, match=f"{fact}=.*values of different kinds cannot be compared"):
        compare_explanations(explanation(REFERENCE), explanation(CURRENT, **change))


def test_units() -> None:
    """A unit without a name matches any unit; two units with names must be equal."""
    odds, unknown = explanation(REFERENCE, unit="log-odds"), explanation(CURRENT)
    assert compare_explanations(odds, unknown).unit == compare_explanations(unknown, odds).unit == "log-odds"
    with pytest.raises(
        ValueError, match="the unit of reference is log-odds, but the unit of current is probability"
    ):
        compare_explanations(odds, explanation(CURRENT, unit="probability"))


def test_wrong_samples() -> None:
    good = explanation(REFERENCE)
    for bad, message in (
        (explanation(CURRENT[:, :5]), "different features: only reference has 'f5'"),
        (
            explanation(CURRENT, feature_names=tuple("abcdef")),
            "only current has 'a', 'b', 'c', 'd', 'e', ...",
        ),
        (explanation(CURRENT[:0]), "current has no rows"),
        (explanation(CURRENT * np.nan), "current has no row with a value of 'f0'"),
        (explanation(np.where(CURRENT == 0.123, np.inf, CURRENT)), "infinite values of 'f4'"),
        (explanation(CURRENT, feature_names=("f0",) * 6), "current has several features 'f0'"),
    ):
        with pytest.raises(ValueError, match=message):
            compare_explanations(good, bad)
    for wrong in (REFERENCE, None, [], 3):
        with pytest.raises(TypeError, match="current must be an Explanation, or the path of files"):
            compare_explanations(good, wrong)
    for n_bins, error in ((1, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match="n_bins"):
            compare_explanations(good, good, n_bins=n_bins)


def test_interactions_are_refused(rng: np.random.Generator) -> None:
    X = rng.normal(size=(40, 3))
    model = RandomForestRegressor(3, random_state=0).fit(X, X[:, 0] * X[:, 1])
    with pytest.raises(TypeError, match="InteractionExplanation: values of features are compared"):
        compare_explanations(explain(model, X), explain_interactions(model, X))


def test_groups_of_columns_and_classes(rng: np.random.Generator) -> None:
    X = rng.normal(size=(200, 4))
    model = RandomForestClassifier(5, random_state=0).fit(X, (X[:, 0] + X[:, 1] > 0) + 0 + (X[:, 2] > 1))
    full_explanation = explain(model, X, feature_groups={"place": [0, 1]})
    comparison = compare_explanations(full_explanation[:100], full_explanation[100:])
    assert isinstance(comparison, ExplanationComparison) and comparison.feature_names[0] == "place"
    assert comparison.output_names == (0, 1, 2)
    with pytest.raises(ValueError, match="different features: only reference has 'place'"):
        compare_explanations(full_explanation, explain(model, X))
