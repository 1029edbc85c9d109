"""The links exp, gumbel and normal: slopes in the far tails and between close margins; the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.ensembles import ensemble_options, leaf_scale, random_ensemble, random_rows, random_weights
from hypothesis import given, settings
from scipy import stats

from skshapgpu import _core, reference
from skshapgpu.adapters.ensemble import Ensemble, Tree, attributes_of

#: Each link as a distribution of SciPy, whose two tails keep their digits; exp has only one.
DISTRIBUTIONS: dict[str, Any] = {"gumbel": stats.gumbel_r, "normal": stats.norm}

TOLERANCE = {"single": 5e-6, "double": 1e-10}


def compute(
    ensemble: Ensemble,
    rows: np.ndarray,
    background: np.ndarray,
    link: str,
    *,
    scale: float = 1.0,
    precision: str = "double",
    weights: Any = None,
) -> np.ndarray:
    if weights is None:
        weights = np.full(len(background), 1 / len(background))
    attributes = attributes_of(ensemble)
    plan = _core.RescaledPlan(attributes, precision, background, weights, link, scale)
    values = np.full((len(rows), ensemble.n_outputs, ensemble.n_features), np.nan)
    plan.explain(rows, values, None, 1)
    return values


def difference(link: str, low: float, step: float) -> float:
    """Return the difference of the link between two margins, to a relative accuracy of about 1e-13."""
    high, middle = low + step, low + step / 2
    if step < 1e-8:  # the next term of Taylor's series is smaller by (step exp(6))^2 / 24, or more
        return step * (np.exp(middle) if link == "exp" else DISTRIBUTIONS[link].pdf(middle))
    if link == "exp":
        return np.exp(low) * np.expm1(step)
    of = DISTRIBUTIONS[link]
    return of.sf(low) - of.sf(high) if middle > 0 else of.cdf(high) - of.cdf(low)


@pytest.mark.parametrize("link", ["exp", "gumbel", "normal"])
@pytest.mark.parametrize("scale", [1.0, 0.3, 5.0])
def test_slope_of_a_stump_keeps_its_digits(link: str, scale: float) -> None:
    """A stump's value against the row of its other leaf is the difference of the link: slope times step."""
    results, expected = [], []
    for low in (-30.0, -6.0, -2.5, -1e-3, 0.0, 0.4, 3.0, 8.0, 30.0):
        for step in (1e-9, 0.01, 0.3, 1.1, 4.0, 50.0):
            tree = Tree(
                [1, -1, -1], [2, -1, -1], [0] * 3, [0.5, 0, 0], [True] * 3, [2, 1, 1], [0, 0, step / scale]
            )
            ensemble = Ensemble.from_trees([tree], n_features=1, intercept=[low / scale])
            value = compute(ensemble, np.ones((1, 1)), np.zeros((1, 1)), link, scale=scale)
            reverse = compute(ensemble, np.zeros((1, 1)), np.ones((1, 1)), link, scale=scale)
            assert value[0, 0, 0] == -reverse[0, 0, 0]
            results.append(value[0, 0, 0])
            expected.append(difference(link, low, step))
    # Margins are rounded by 2^-53 of up to 80, and steps of 0.01 are differences of numbers of up to 30: that
    # is 7e-13 of a step. exp(-exp(6)) multiplies the first by 400.
    np.testing.assert_allclose(results, expected, rtol=5e-12, atol=1e-300)
    assert np.count_nonzero(np.array(expected) > 1e-300) > 35


@pytest.mark.parametrize("link", ["exp", "gumbel", "normal"])
def test_equal_margins_have_the_derivative(link: str) -> None:
    """Two features cancel each other in the margin, but each has the value of the derivative."""
    trees = [
        Tree([1, -1, -1], [2, -1, -1], [f] * 3, [0.5, 0, 0], [True] * 3, [2, 1, 1], [0, 0, size])
        for f, size in ((0, 2.0), (1, -2.0))
    ]
    for margin in (-700.0, -3.0, 0.0, 2.0, 40.0):
        ensemble = Ensemble.from_trees(trees, n_features=2, intercept=[margin])
        values = compute(ensemble, np.ones((1, 2)), np.zeros((1, 2)), link)
        slope = np.exp(margin) if link == "exp" else DISTRIBUTIONS[link].pdf(margin)
        np.testing.assert_allclose(values, [[[2 * slope, -2 * slope]]], rtol=1e-11, atol=1e-300)


@given(options=ensemble_options(max_used=5))
@settings(max_examples=60)
def test_core_is_the_definition(options: dict[str, Any]) -> None:
    ensemble = random_ensemble(**options)
    unit = (leaf_scale(ensemble) + np.abs(ensemble.intercept)).max()
    rows = random_rows(options["seed"], ensemble, 8)
    background, weights = rows[2:], random_weights(options["seed"], 6)
    functions: dict[str, Any] = {
        link: (lambda m, y, of=of: of.cdf(m * scale), lambda m, y, of=of: scale * of.pdf(m * scale))
        for link, of in DISTRIBUTIONS.items()
    }
    functions["exp"] = lambda m, y: np.exp(m * scale), lambda m, y: scale * np.exp(m * scale)
    scale = 3 / max(unit, 1.0)  # so that margins are where links bend
    for link, (of, derivative) in functions.items():
        expected = reference.rescaled(ensemble, rows[:3], background, of, derivative, weight=weights).values
        steepest = scale * np.exp(scale * unit) if link == "exp" else scale
        for precision, tolerance in TOLERANCE.items():
            values = compute(
                ensemble, rows[:3], background, link, scale=scale, precision=precision, weights=weights
            )
            np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance * steepest * unit)


def test_labels_and_unknown_links_are_refused() -> None:
    ensemble = random_ensemble(0)
    with pytest.raises(ValueError, match="link must be"):
        compute(ensemble, np.zeros((1, 5)), np.zeros((1, 5)), "probit")
    attributes = attributes_of(ensemble)
    plan = _core.RescaledPlan(attributes, "double", np.zeros((1, 5)), np.ones(1), "exp", 1.0)
    with pytest.raises(ValueError, match="labels belong to"):
        plan.explain(np.zeros((1, 5)), np.zeros((1, 1, 5)), None, 1, np.zeros(1))
    with pytest.raises(ValueError, match="values of this link are computed on the CPU only"):
        _core.RescaledTables(plan, attributes, np.zeros((1, 5)), 2**20)
