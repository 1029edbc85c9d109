"""Comparison of an explainer in double precision with the definition, through a model's own predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from helpers.families import values_by_definition
from skshapgpu import Explanation, TreeExplainer, reference
from skshapgpu.adapters import adapt


def assert_values_equal_definition(
    model: Any,
    predict: Callable[[Any], np.ndarray],
    rows: Any,
    background: Any,
    against: str = "model",
    **options: Any,
) -> Explanation:
    """Check values of a model, and return the path-dependent explanation.

    ``predict`` is the model's own function, with the margins of a data frame: (n_rows,) or
    (n_rows, n_outputs). Interventional values are compared with the definition over all coalitions of these
    margins. Path-dependent values must add up to the margins, and are compared with the definition over all
    coalitions of the trees and covers that were read. ``against`` is the expected ``checked_against``.
    """
    own = np.asarray(predict(rows), np.float64)
    # Sums of some hundred numbers, each rounded by 2^-53 of the largest: 1e-10 leaves room for cancellation.
    tolerance = 1e-10 * max(1.0, np.abs(own).max())
    expected = values_by_definition(predict, rows, background)
    assert np.abs(expected).max() > 1e-3
    explanation = TreeExplainer(model, background, precision="double", **options).explain(rows)
    assert explanation.checked_against == against, explanation.check_note
    values = explanation.values.reshape(expected.shape)
    np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance)
    assert_adds_up_to(explanation, own, tolerance)
    explanation = TreeExplainer(model, precision="double", **options).explain(rows)
    assert explanation.checked_against == against, explanation.check_note
    assert_adds_up_to(explanation, own, tolerance)
    by_covers, _, _ = reference.path_dependent(adapt(model).ensemble, rows.to_numpy())
    np.testing.assert_allclose(
        explanation.values.reshape(len(rows), rows.shape[1], -1),
        np.moveaxis(by_covers, 1, 2),
        rtol=0,
        atol=tolerance,
    )
    return explanation


def assert_adds_up_to(explanation: Explanation, own: np.ndarray, tolerance: float) -> None:
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total.reshape(len(own), -1), own.reshape(len(own), -1), rtol=0, atol=tolerance)
