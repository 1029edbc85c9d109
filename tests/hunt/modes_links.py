"""Modes of probabilities and losses, which are functions of the margin."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import containers, games, models, tolerance, truth
from .case import N_DEFINED, Case
from .modes import (
    adds_up,
    adds_up_probabilities,
    explainer_of,
    of_kept,
    outputs_last,
    widened,
    widened_base,
)
from .report import Report


def probability(case: Case, report: Report) -> None:
    """Check values of probabilities by the rescale rule or, for a softmax, by mixtures of rows.

    Margins that are probabilities keep theirs.
    """
    explainer = explainer_of(case, background=True, model_output="probability")
    explanation = explainer.explain(case.X)
    got = outputs_last(explanation.values, 3)
    if adds_up_probabilities(case):
        adds_up(case, report, explanation)
        return
    total = np.reshape(explanation.base_values, (1, -1)) + got.astype(np.float64).sum(axis=1)
    if is_softmax(case):
        softmax_probability(case, report, explanation.base_values, got, total)
        return
    link, slope = truth.logistic(link_scale(case))
    zero = np.zeros(1)
    right = widened_base(case, link(case.margins, zero), True)
    report.close("additivity of probabilities", total, right, allowed_of_link(case, right, got, 1.0))
    if case.pair_coalition_values is None:
        return
    values, base = truth.rescaled(
        case.pair_coalition_values,
        case.margins[:N_DEFINED],
        case.background_margins,
        link,
        slope,
        case.background_weights,
    )
    values = widened(case, of_kept(case, values))
    report.close("rescaled", got[:N_DEFINED], values, allowed_of_link(case, values, got, 1.0))
    base = widened_base(case, base[:1], True)
    report.close(
        "base value",
        np.reshape(explanation.base_values, (1, -1)),
        base,
        allowed_of_link(case, base, got, 1.0),
    )


def is_softmax(case: Case) -> bool:
    """Return whether probabilities are a softmax of the margins of all classes."""
    one_by_one = ("multiclassova", "MultiClassOneVsAll")
    return case.n_outputs > 1 and not set(one_by_one) & set(map(str, case.draw.params.values()))


def softmax_probability(
    case: Case, report: Report, base_values: Any, got: np.ndarray, total: np.ndarray
) -> None:
    right = truth.softmax(case.margins)
    report.close("additivity of probabilities", total, right, allowed_of_link(case, right, got, 1.0))
    share = truth.shares(case.background_weights, len(case.background_margins))
    base = share[None] @ truth.softmax(case.background_margins)
    report.close("base value", np.reshape(base_values, (1, -1)), base, allowed_of_link(case, base, got, 1.0))
    if case.pair_coalition_values is None:
        return
    offset = (case.margins - case.contrasts)[0]  # of all rows, which the mixtures lack
    probabilities_of_pairs = truth.softmax(case.pair_coalition_values + offset)
    coalition_values = truth.mean_coalition_values(probabilities_of_pairs, case.background_weights)
    right = of_kept(case, games.values(coalition_values))
    report.close("softmax", got[:N_DEFINED], right, allowed_of_link(case, right, got, 1.0))


def allowed_of_link(case: Case, right: np.ndarray, got: np.ndarray, steepest: Any) -> np.ndarray:
    """Bound the errors: errors of margins times the steepest slope of the link, plus errors of the values."""
    margins = np.broadcast_to(case.contrasts.max(axis=0), case.contrasts.shape)
    precision = 3e-6 if case.draw.options.get("precision", "single") == "single" else 1e-11
    own = precision * np.abs(got).reshape(-1, got.shape[-1]).max(axis=0)
    error_of_margins = steepest * link_scale(case) * case._wide(case.allowed(margins, whole=True), right)
    return 2 * (error_of_margins + own) + 4 * tolerance.UNIT64 * np.abs(right).max(initial=0)


def link_scale(case: Case) -> float:
    if case.draw.params.get("loss") == "exponential":
        return 2.0
    return float(case.draw.params.get("sigmoid", 1.0))


def log_loss(case: Case, report: Report) -> None:
    """Check values of the loss by the rescale rule, for binary classifiers and squared-error regressors."""
    explainer = explainer_of(case, background=True, model_output="log_loss")
    classes = models.is_classes(case.draw.task)
    number = case.rng.integers(0, 2, N_DEFINED)
    if classes:
        labels = np.unique(case.y)[number]
        if case.draw.outer in ("native", "file") and case.draw.family == "lightgbm":
            labels = number  # which LightGBM's own models lack
        link, slope = truth.log_loss(link_scale(case))
        y, steepest = number.astype(float), 1.0
    else:
        labels = case.y[:N_DEFINED]
        link, slope = truth.squared_error, truth.squared_error_slope
        y = labels.astype(float)
        margins = np.concatenate([case.margins, case.background_margins])
        steepest = 2 * np.abs(margins - y).max()  # of the squared error
    explanation = explainer.explain(containers.rows(case.X, range(N_DEFINED)), labels)
    got = outputs_last(explanation.values, 3)
    total = np.reshape(explanation.base_values, (-1, 1)) + got.astype(np.float64).sum(axis=1)
    right = link(case.margins[:N_DEFINED], y[:, None])
    report.close("additivity of losses", total, right, allowed_of_link(case, right, got, steepest))
    if case.pair_coalition_values is None:
        return
    values, base = truth.rescaled(
        case.pair_coalition_values,
        case.margins[:N_DEFINED],
        case.background_margins,
        link,
        slope,
        case.background_weights,
        y,
    )
    values = of_kept(case, values)
    report.close("rescaled loss", got, values, allowed_of_link(case, values, got, steepest))
    report.close(
        "base value of losses",
        np.reshape(explanation.base_values, (-1, 1)),
        base,
        allowed_of_link(case, base, got, steepest),
    )


LINKS = {"probability": probability, "log_loss": log_loss}
