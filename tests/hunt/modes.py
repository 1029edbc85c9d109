"""Modes: requests to the package, and checks of its results. A mode is one entry of ``MODES``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from skshapgpu import TreeExplainer
from skshapgpu._common.types import Order

from . import containers, games, many, truth
from .case import N_DEFINED, Case
from .gpu import on_host
from .margins import is_probability
from .report import NotDrawnError, Report

Mode = Callable[[Case, Report], None]


def explainer_of(case: Case, *, background: bool = False, **options: Any) -> TreeExplainer:
    options = {"device": case.device, **case.draw.options, **options}
    if background:
        assert len(case.background_margins)  # rows that the library refuses are no background
        options |= {"data": case.background.X, "data_weight": case.background_weights}
    return TreeExplainer(case.fitted.top, **options)


def outputs_last(values: np.ndarray, ndim: int) -> np.ndarray:
    """Return values with an axis of outputs, even for a single output, on the host."""
    values = on_host(values)
    return values if values.ndim == ndim else values[..., None]


def of_kept(case: Case, right: np.ndarray) -> np.ndarray:
    """Select the columns that get values, on the second axis of a reference for all columns."""
    return right[:, case.kept]


def widened(case: Case, right: np.ndarray) -> np.ndarray:
    """Widen the reference to both classes, if both are requested; the negative one has negated values."""
    return np.concatenate([-right, right], axis=-1) if case.draw.options.get("outputs") == "all" else right


def widened_base(case: Case, base: np.ndarray, probabilities: bool) -> np.ndarray:
    """Widen base values or margins to both classes; probabilities of both add up to 1, margins to 0."""
    if case.draw.options.get("outputs") != "all":
        return base
    return np.concatenate([float(probabilities) - base, base], axis=-1)


def adds_up_probabilities(case: Case) -> bool:
    return is_probability(case.fitted.last)


def shape_and_names(case: Case, report: Report, explanation: Any) -> None:
    """Check the rows, labels and dtype of the result."""
    n, k = containers.n_rows(case.X), case.n_outputs
    k = 2 if case.draw.options.get("outputs") == "all" else k
    kept = case.kept
    shape = (n, len(kept)) if k == 1 else (n, len(kept), k)
    values = on_host(explanation.values)
    report.equal("shape", values.shape, shape)
    single = case.single_x and not case.fitted.steps
    if not case.fitted.steps:
        report.equal("dtype", str(values.dtype), "float32" if single else "float64")
    report.true("names", len(set(explanation.feature_names)) == len(kept), str(explanation.feature_names))
    some = case.draw.options.get("columns") == "used"
    report.equal("feature indices", explanation.feature_indices, kept if some else None)
    if isinstance(case.X, pd.DataFrame) and isinstance(case.train, pd.DataFrame) and not case.fitted.steps:
        report.equal("names of X", list(explanation.feature_names), list(case.X.columns[kept]))
    if isinstance(case.X, pd.DataFrame):
        report.equal("row labels", list(explanation.row_labels), list(case.X.index))


def adds_up(case: Case, report: Report, explanation: Any, check: str = "additivity") -> None:
    """Check that base value plus values of each row are the library's own margin."""
    values = outputs_last(on_host(explanation.values).astype(np.float64), 3)
    total = np.asarray(explanation.base_values, np.float64).reshape(1, -1) + values.sum(axis=1)
    right = widened_base(case, case.margins, adds_up_probabilities(case))
    scale = np.abs(values).sum(axis=1).max(axis=0)
    allowed = case.allowed(right * 0 + scale, whole=True, factor=2)
    report.close(check, total, right, allowed)


def same_rows(case: Case, report: Report, explain: Callable[[Any], np.ndarray], values: np.ndarray) -> None:
    """Check that rows keep their bits in another order, and beside any other rows.

    The number of rows stays the same, because it decides between lanes, walks and tables.
    """
    if case.device == "auto" or case.passed_X is not case.X:
        return  # another number of rows may select another device
    order = case.rng.permutation(containers.n_rows(case.X))
    repeated = np.resize(order[:3], len(order))
    if not steps_keep_bits(case, case.X, [order, repeated]):
        return
    report.equal("rows in another order", explain(containers.rows(case.X, order)), values[order])
    report.equal("some rows", explain(containers.rows(case.X, repeated)), values[repeated])


def steps_keep_bits(case: Case, X: Any, selections: Iterable[np.ndarray]) -> bool:
    """Return whether the steps transform each selection of rows to the bits that these rows have in X.

    Sums of a Normalizer and products of matrices round differently for other rows, and KNNImputer breaks ties
    between neighbours by these rounding errors. If a threshold is in between, the rows have other values.
    """
    if case.draw.steps == "none":
        return True
    transformed = _transformed(case, X)
    return all(
        pd.DataFrame(_transformed(case, containers.rows(X, rows))).equals(pd.DataFrame(transformed[rows]))
        for rows in selections
    )


def _transformed(case: Case, X: Any) -> np.ndarray:
    transformed = case.fitted.transform(X)
    return transformed.toarray() if sp.issparse(transformed) else np.asarray(transformed)


def unused_are_zero(case: Case, report: Report, values: np.ndarray) -> None:
    """Check that columns that no tree splits on have values of exactly zero, if they have values."""
    if case.unused and len(case.kept) == case.n_columns:
        report.true("unused columns", not values[:, case.unused].any(), f"columns {case.unused}")


def values(case: Case, report: Report, index: Any = "SV") -> None:
    """Check path-dependent SHAP or Banzhaf values."""
    explainer = explainer_of(case)
    explanation = explainer.explain(case.passed_X, index=index)
    shape_and_names(case, report, explanation)
    got = outputs_last(explanation.values, 3)
    if index == "SV":
        adds_up(case, report, explanation)
        same_rows(case, report, explainer.shap_values, explanation.values)
    coalition_values = case.path_coalition_values
    if coalition_values is not None:
        # The reader is right only if all columns together give the library's margin, up to the intercept.
        intercept = case.contrasts[:N_DEFINED] - coalition_values[-1]
        report.close("reader", intercept, intercept[:1].repeat(N_DEFINED, 0), case.allowed(case.contrasts))
        right = widened(case, of_kept(case, games.values(coalition_values, index)))
        report.close(f"values {index}", got[:N_DEFINED], right, case.allowed(right, exact=True))
        base = widened_base(
            case,
            case.margins[:1] - coalition_values[-1][:1] + coalition_values[0][:1],
            adds_up_probabilities(case),
        )
        report.close(
            "base value",
            np.reshape(explanation.base_values, (1, -1)),
            base,
            case.allowed(base * 0, whole=True),
        )
        unused_are_zero(case, report, got)
    own = truth.own_values(case.fitted.last, case.transformed) if index == "SV" else None
    if own is not None:
        right = widened(case, of_kept(case, own[0]))
        report.close("library's values", got, right, case.allowed(right))


def background(case: Case, report: Report, index: Any = "SV") -> None:
    """Check interventional values against background rows."""
    explainer = explainer_of(case, background=True)
    explanation = explainer.explain(case.passed_X, index=index)
    shape_and_names(case, report, explanation)
    got = outputs_last(explanation.values, 3)
    if index == "SV":
        adds_up(case, report, explanation)
        same_rows(case, report, explainer.shap_values, explanation.values)
    unused_are_zero(case, report, got)
    share = truth.shares(case.background_weights, case.draw.background)
    base = widened_base(case, (share @ case.background_margins)[None], adds_up_probabilities(case))
    report.close(
        "base value", np.reshape(explanation.base_values, (1, -1)), base, case.allowed(base * 0, whole=True)
    )
    pairs = case.pair_coalition_values
    if pairs is None:
        return
    coalition_values = truth.mean_coalition_values(pairs, case.background_weights)
    right = widened(case, of_kept(case, games.values(coalition_values, index)))
    report.close(f"interventional {index}", got[:N_DEFINED], right, case.allowed(right))
    if case.fitted.one_to_one and len(case.draw.columns) <= truth.MOST_COLUMNS and case.fitted.steps:
        whole_pipeline(case, report, got, index)


def counted_covers(case: Case, report: Report) -> None:
    """Check path-dependent values with covers counted from the background rows."""
    explainer = explainer_of(case, background=True, feature_perturbation="tree_path_dependent")
    explanation = explainer.explain(case.passed_X)
    shape_and_names(case, report, explanation)
    adds_up(case, report, explanation)
    got = outputs_last(explanation.values, 3)
    unused_are_zero(case, report, got)
    share = truth.shares(case.background_weights, case.draw.background)
    base = widened_base(case, (share @ case.background_margins)[None], adds_up_probabilities(case))
    report.close(
        "base value", np.reshape(explanation.base_values, (1, -1)), base, case.allowed(base * 0, whole=True)
    )
    coalition_values = case.counted_coalition_values
    if coalition_values is not None:
        right = widened(case, of_kept(case, games.values(coalition_values)))
        report.close("counted covers", got[:N_DEFINED], right, case.allowed(right, exact=True))


def whole_pipeline(case: Case, report: Report, got: np.ndarray, index: Any) -> None:
    """Check the definition by mixtures of rows of X itself, through all steps."""
    rows = containers.rows(case.seen, range(N_DEFINED))
    p = len(case.draw.columns)
    pairs = truth.coalition_values_of_pairs(
        lambda X: case.margin(X, contrast=True), rows, case.seen_background, p
    )
    of_columns = games.values(truth.mean_coalition_values(pairs, case.background_weights), index)
    right = widened(case, of_kept(case, of_columns[:, case.fitted.origins]))
    report.close(f"whole pipeline {index}", got[:N_DEFINED], right, case.allowed(right))


def interactions(case: Case, report: Report, with_background: bool = False, order: Order = 2) -> None:
    """Check interactions of pairs in all forms, or of triples."""
    draw = case.draw
    form = "occurring" if order == 3 and draw.form == "matrices" else draw.form
    index: Any = "SII" if order == 3 and draw.index == "STII" else draw.index
    kept = case.kept
    sets = [tuple(c) for c in games.combinations(range(len(kept)), order)]
    if form in ("number", "list") and not sets:
        form = "occurring"
    asked: Any = {"number": 2, "list": _listed(case, sets[::-2])}.get(form, "occurring")
    explainer = explainer_of(case, background=with_background)
    if form == "matrices" and index == "SII":
        got, listed = explainer.shap_interaction_values(case.passed_X), np.empty((0, 2), int)
    else:
        found = explainer.explain_interactions(case.passed_X, interactions=asked, index=index, order=order)
        got, listed = found.matrices() if form == "matrices" else found.values, found.interactions
    n, k = containers.n_rows(case.X), case.n_outputs * (2 if draw.options.get("outputs") == "all" else 1)
    ways = (len(kept),) * 2 if form == "matrices" else (len(listed),)
    report.equal("shape of interactions", got.shape, (n, *ways) if k == 1 else (n, *ways, k))
    if with_background:
        pairs = case.pair_coalition_values
        coalition_values = (
            None if pairs is None else truth.mean_coalition_values(pairs, case.background_weights)
        )
    else:
        coalition_values = case.path_coalition_values
    exact = not with_background  # mixtures of these are predicted by the library
    if form == "matrices":
        got = outputs_last(got, 4)
        report.true("symmetry", np.array_equal(got, got.swapaxes(1, 2)))
        if index != "BII":
            total = outputs_last(explainer.shap_values(case.X), 3)
            report.close(
                "rows add up", got.astype(np.float64).sum(axis=2), total, case.allowed(total, factor=3)
            )
        if coalition_values is not None:
            right = widened(case, games.matrices(coalition_values, index)[:, kept][:, :, kept])
            report.close(
                f"matrices {index}", got[:N_DEFINED], right, case.allowed(right, exact=exact, factor=2)
            )
        return
    got = outputs_last(got, 3)
    members = [tuple(int(i) for i in row) for row in listed]
    if form == "list":
        report.equal("listed", members, sets[::-2])
    if coalition_values is not None:
        right = widened(case, games.sets(coalition_values, _columns(members, kept), index))
        report.close(
            f"sets {index} {order}", got[:N_DEFINED], right, case.allowed(right, exact=exact, factor=2)
        )
        if form == "occurring":
            rest = [m for m in sets if tuple(sorted(m)) not in {tuple(sorted(x)) for x in members}]
            others = games.sets(coalition_values, _columns(rest, kept), index)
            report.close(
                "sets that do not occur", others, 0 * others, case.allowed(np.zeros((1, case.n_outputs)))
            )


def _listed(case: Case, sets: list[tuple[int, ...]]) -> Any:
    """Return sets of features: positions of columns of X, or of features if these differ from the columns."""
    return np.array(sets) if case.fitted.steps or len(case.kept) < case.n_columns else sets


def _columns(members: list[tuple[int, ...]], kept: list[int]) -> list[tuple[int, ...]]:
    """Return the columns of sets whose members are numbered among the columns that get values."""
    return [tuple(kept[i] for i in of_set) for of_set in members]


def many_rows(case: Case, report: Report) -> None:
    """Check the values of a few rows that are repeated often enough for tables or a GPU."""
    with_background = case.draw.form in ("matrices", "list")
    index: Any = "BV" if case.draw.index == "BII" else "SV"
    n = containers.n_rows(case.X)
    # The values of 70,000 rows may be larger than a limit.
    most = many.REPEATS[-2 if "memory_limit" in case.draw.options else -1]
    X, order, repeats = many.repeated(case.X, case.rng, most)
    if not steps_keep_bits(case, case.X, [order]):
        raise NotDrawnError("many rows: the steps round repeated rows differently")
    explainer = explainer_of(case, background=with_background)
    few = outputs_last(explainer.explain(case.X, index=index).values, 3)
    with many.tables(case.draw):
        explanation = explainer.explain(X, index=index)
        many.count_tables(explainer, containers.n_rows(X), report)
    got = outputs_last(explanation.values, 3)
    got = got.reshape(repeats, n, *got.shape[1:])
    report.true("the same row has the same bits", bool((got == got[:1]).all()))
    report.close("values of many rows", got[0], few, case.allowed(few, factor=2))
    coalition_values = case.path_coalition_values
    if with_background:
        pairs = case.pair_coalition_values
        coalition_values = (
            None if pairs is None else truth.mean_coalition_values(pairs, case.background_weights)
        )
    if coalition_values is not None:
        right = widened(case, of_kept(case, games.values(coalition_values, index)))
        allowed = case.allowed(right, exact=not with_background)
        report.close(f"many rows by the definition {index}", got[0, :N_DEFINED], right, allowed)
    if index == "SV":
        base = np.asarray(explanation.base_values, np.float64).reshape(1, -1)
        right = widened_base(case, case.margins, adds_up_probabilities(case))
        scale = np.abs(got[0]).sum(axis=1).max(axis=0)
        allowed = case.allowed(right * 0 + scale, whole=True, factor=2)
        report.close("additivity of many rows", base + got[0].astype(np.float64).sum(axis=1), right, allowed)


MODES: dict[str, Mode] = {
    "values": values,
    "background": background,
    "counted covers": counted_covers,
    "many rows": many_rows,
    "banzhaf": lambda case, report: (background if case.draw.background_weights else values)(
        case, report, "BV"
    ),
    "interactions": interactions,
    "background interactions": lambda case, report: interactions(case, report, with_background=True),
    "triples": lambda case, report: interactions(case, report, order=3),
}
