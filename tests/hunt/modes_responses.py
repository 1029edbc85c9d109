"""Functions of the margin: responses, and functions of time of survival models at several times."""

from __future__ import annotations

import numpy as np

from skshapgpu import TreeExplainer

from . import containers, games, survival, truth
from .case import N_DEFINED, Case
from .margins import library_of
from .modes import of_kept, outputs_last
from .report import Report

#: Tasks whose models predict the exponential of the margin.
WITH_LOG_LINK = ("counts", "positive", "cox", "times")


def responses(case: Case, report: Report) -> None:
    """Check the drawn function, or another one if the model lacks it; check the refusal if it has none."""
    name, model = case.draw.asked["response"], case.fitted.last
    if case.draw.outer in ("native", "file") and case.draw.task == "times":
        name = "response"  # a booster has other parameters than a wrapper
    if (
        name != "response"
        and library_of(model) == "sksurv"
        and not hasattr(model, f"predict_{name}_function")
    ):
        name = "response"
    times = _times(case) if name != "response" else None
    if times is not None and survival.is_forest(model):
        of_forest(case, report, name, times)
        return
    if name == "response":
        boosting = getattr(model, "loss", "") if library_of(model) == "sksurv" else ""
        has = case.draw.task in WITH_LOG_LINK or boosting != ""
        functions = [survival.EXPONENTIAL] if has else None
    else:
        functions = (
            None if times is None else survival.functions(model, name, times, case.transformed, case.margins)
        )
    if functions is None:
        refused(case, report, name)
    else:
        of_margins(case, report, name, times, functions)


def _times(case: Case) -> np.ndarray | None:
    """Return some of the training rows' times, or None if the task has no times."""
    if case.draw.task not in ("survival", "times"):
        return None
    quantiles = np.quantile(case.y[survival.TIME][case.y[survival.EVENT]], [0.3, 0.5, 0.8])
    return quantiles[:1] if case.draw.form == "matrices" else quantiles[case.rng.permutation(3)]


def _explainer(case: Case, name: str, times: np.ndarray | None, background: bool = True) -> TreeExplainer:
    options = {"device": case.device, **case.draw.options, "model_output": name}
    if times is not None:
        options["times"] = times if len(times) > 1 else float(times[0])
    if background:
        options |= {"data": case.background.X, "data_weight": case.background_weights}
    return TreeExplainer(case.fitted.top, **options)


def refused(case: Case, report: Report, name: str) -> None:
    """Check that a model without such a function is refused."""
    times = None if name == "response" else np.array([1.0, 2.0])
    try:
        explanation = _explainer(case, name, times).explain(case.X)
        report.true("a model without the function is refused", False, f"{name}: {explanation.values.shape}")
    except ValueError as error:
        if "a border between infinite numbers" in str(error) and "infinite" in case.draw.columns:
            report.refusals.append("a border between infinite numbers")
            return
        report.true("the refusal names the option", name in str(error), str(error))


def of_forest(case: Case, report: Report, name: str, times: np.ndarray) -> None:
    """Check exact values of means over leaves against the library's own functions of mixtures of rows."""
    with_background = case.draw.background_weights or case.draw.options.get("columns") == "used"
    explainer = _explainer(case, name, times, with_background)
    explanation = explainer.explain(case.X)
    got = outputs_last(explanation.values, 3).astype(float)
    model = case.fitted.last
    right = survival.of_rows(model, name, times, case.transformed)
    total = np.reshape(explanation.base_values, (1, -1)) + got.sum(axis=1)
    allowed = 3e-5 * (np.abs(right).max(axis=0) + np.ptp(right, axis=0)) + 1e-6
    report.close(f"additivity of {name}", total, right, allowed)
    if not with_background or case.n_columns > truth.MOST_COLUMNS:
        return
    background = case.library("transform", case.fitted.transform, case.seen_background)
    pairs = case.library(
        "mixtures",
        truth.coalition_values_of_pairs,
        lambda rows: survival.of_rows(model, name, times, rows),
        containers.rows(case.transformed, range(N_DEFINED)),
        background,
        case.n_columns,
    )
    values = games.values(truth.mean_coalition_values(pairs, case.background_weights))
    report.close(f"{name} by the definition", got[:N_DEFINED], of_kept(case, values), allowed)


def of_margins(
    case: Case, report: Report, name: str, times: np.ndarray | None, functions: list[survival.Function]
) -> None:
    """Check values by the rescale rule, and that they add up to the function; each time is an output."""
    explanation = _explainer(case, name, times).explain(case.X)
    got = outputs_last(explanation.values, 3)
    smallest = _smallest(case, got.dtype)
    got = got.astype(float)
    none = np.zeros(1)
    right = np.concatenate([function.of(case.margins, none) for function in functions], axis=1)
    model = case.fitted.last
    if times is not None and library_of(model) == "sksurv":
        right = survival.of_rows(model, name, times, case.transformed)
    total = np.reshape(explanation.base_values, (1, -1)) + got.sum(axis=1)
    allowed = np.concatenate([_allowed(case, function) for function in functions]) + smallest
    report.close(f"additivity of {name}", total, right, allowed)
    if case.pair_coalition_values is None:
        return
    values, bases = zip(
        *[
            truth.rescaled(
                case.pair_coalition_values,
                case.margins[:N_DEFINED],
                case.background_margins,
                function.of,
                function.derivative,
                case.background_weights,
            )
            for function in functions
        ]
    )
    report.close(f"rescaled {name}", got[:N_DEFINED], of_kept(case, np.concatenate(values, axis=2)), allowed)
    base = np.concatenate([base[:1] for base in bases], axis=1)
    report.close(f"base value of {name}", np.reshape(explanation.base_values, (1, -1)), base, allowed)


def _smallest(case: Case, dtype: np.dtype) -> float:
    """Bound the errors of values below the normal range of the type of the values or of the arithmetic."""
    if case.draw.options.get("precision", "single") == "single" or dtype == np.float32:
        return 1e-37
    return 0.0


def _allowed(case: Case, function: survival.Function) -> np.ndarray:
    """Bound each output's errors: errors of margins times the steepest slope, plus errors of values."""
    margins = np.concatenate([case.margins, case.background_margins])
    between = np.linspace(margins.min(axis=0), margins.max(axis=0), 50)
    steepest = np.abs(function.derivative(between, np.zeros(1))).max(axis=0)
    precision = 3e-6 if case.draw.options.get("precision", "single") == "single" else 1e-11
    largest = np.abs(function.of(between, np.zeros(1))).max(axis=0)
    on_margins = case.allowed(np.zeros((1, case.n_outputs)), whole=True)
    return 3 * steepest * on_margins + 4 * precision * largest


RESPONSES = {"responses": responses}
