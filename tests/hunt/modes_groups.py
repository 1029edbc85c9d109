"""Modes with groups of columns: values, interactions and Owen values, with every way to name a group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from skshapgpu import TreeExplainer

from . import containers, games, truth, wrappers
from .case import N_DEFINED, Case
from .modes import adds_up, explainer_of, outputs_last, unused_are_zero, widened
from .report import Report


def groups(case: Case, report: Report) -> None:
    """Check what is requested of groups against the definition."""
    if case.draw.asked["groups"] == "input":
        members = by_input(case, report)
        if members is None:
            return
        feature_groups: Any = "input"
    else:
        members = partition(case)
        feature_groups = _named(case, members)
    if case.draw.asked["request"] == "OV":
        owen_values(case, report, feature_groups, members)
    elif case.draw.asked["request"] in ("SV", "BV"):
        values_of_groups(case, report, feature_groups, members)
    else:
        interactions_of_groups(case, report, feature_groups, members)


def _explainer(case: Case, **options: Any) -> TreeExplainer:
    kind = case.draw.asked["perturbation"]
    more = {"feature_perturbation": "tree_path_dependent"} if kind == "counted" else {}
    return explainer_of(case, background=kind != "path-dependent", **more, **options)


def coalition_values(case: Case) -> np.ndarray | None:
    """Return the coalition values of the model's columns: (2^p, n_rows, n_outputs)."""
    if case.draw.asked["perturbation"] == "path-dependent":
        return case.path_coalition_values
    if case.draw.asked["perturbation"] == "counted":
        return case.counted_coalition_values
    pairs = case.pair_coalition_values
    return None if pairs is None else truth.mean_coalition_values(pairs, case.background_weights)


def by_input(case: Case, report: Report) -> list[list[int]] | None:
    """Return the model's columns, grouped by the column of X from which they are made; None if refused."""
    has_known_origins = case.draw.steps in wrappers.KNOWN_ORIGINS and case.draw.outer != "self-training"
    origins = case.fitted.origins
    try:
        explainer = _explainer(case, feature_groups="input")
    except ValueError as error:
        if "no such steps" in str(error):
            report.true("groups by input are refused without steps only", not case.fitted.steps, str(error))
            report.refusals.append("groups by input without steps")
            return None
        if has_known_origins or not ("single" in str(error) or "not known" in str(error)):
            raise
        report.refusals.append("origins of columns are not known")
        return None
    if None in origins:
        report.true("mixed columns are refused", False, str(explainer.feature_names))
        return None
    first = list(dict.fromkeys(origins))
    return [[j for j, i in enumerate(origins) if i == column] for column in first]


def partition(case: Case) -> list[list[int]]:
    """Draw groups of the model's columns, ordered by their first columns; some columns stay alone."""
    rng, p = np.random.default_rng([case.draw.seed, 5]), case.n_columns
    label = rng.integers(0, max(2, p // 2), p)
    single = rng.random(p) < 0.3
    groups: dict[Any, list[int]] = {}
    for j in range(p):
        groups.setdefault(("alone", j) if single[j] else int(label[j]), []).append(j)
    return list(groups.values())


def _named(case: Case, members: list[list[int]]) -> dict[str, list[Any]]:
    """Return groups as a mapping, in any order; some groups of one column are left out."""
    rng = np.random.default_rng([case.draw.seed, 6])
    # Positions are positions in X. They are positions of the model's columns only if there are no steps.
    positions = case.draw.asked["groups"] if not case.fitted.steps else "names"
    names = case.column_names
    groups: dict[str, list[Any]] = {}
    for number, group in enumerate(members):
        if len(group) == 1 and (groups or number < len(members) - 1) and rng.random() < 0.7:
            continue  # a column in no group
        way = {"names": [True], "positions": [False]}.get(positions, [True, False])
        listed = [names[j] if rng.choice(way) else j for j in rng.permutation(group).tolist()]
        groups[f"group {number}"] = listed
    order = rng.permutation(len(groups))
    return {list(groups)[i]: list(groups.values())[i] for i in order}


def _kept(case: Case, members: list[list[int]]) -> list[int]:
    """Return the groups that get values."""
    used = set(case.kept)
    return [g for g, group in enumerate(members) if used & set(group)]


def _names(case: Case, feature_groups: Any, members: list[list[int]]) -> list[str] | None:
    if feature_groups == "input":
        if not (isinstance(case.train, pd.DataFrame) and isinstance(case.X, pd.DataFrame)):
            return None
        return [str(case.data.train.columns[case.fitted.origins[group[0]]]) for group in members]
    if not isinstance(case.train, pd.DataFrame):  # single columns then have their names from X
        return None
    named = {
        frozenset(j if isinstance(j, int) else case.column_names.index(j) for j in listed): name
        for name, listed in feature_groups.items()
    }
    names = case.names_for(case.X)
    return [named.get(frozenset(group), names[group[0]]) for group in members]


def values_of_groups(case: Case, report: Report, feature_groups: Any, members: list[list[int]]) -> None:
    """Check Shapley or Banzhaf values of groups."""
    index, numbers = case.draw.asked["request"], _kept(case, members)
    explanation = _explainer(case, feature_groups=feature_groups).explain(case.passed_X, index=index)
    got = outputs_last(explanation.values, 3)
    report.equal("number of groups", got.shape[1], len(numbers))
    names = _names(case, feature_groups, members)
    if names is not None:
        report.equal("names of groups", list(explanation.feature_names), [names[g] for g in numbers])
    if index == "SV":
        adds_up(case, report, explanation, "additivity of groups")
    coalitions = coalition_values(case)
    if coalitions is not None:
        right = widened(case, games.values(games.of_groups(coalitions, members), index)[:, numbers])
        report.close(f"groups {index}", got[:N_DEFINED], right, case.allowed(right))
    if feature_groups == "input" and case.draw.asked["perturbation"] == "interventional":
        coalitions_of_rows = mixtures_of_rows(case)
        if coalitions_of_rows is not None:
            columns = [case.fitted.origins[members[g][0]] for g in numbers]
            right = widened(case, games.values(coalitions_of_rows, index)[:, columns])
            report.close(f"columns of X {index}", got[:N_DEFINED], right, case.allowed(right))


def mixtures_of_rows(case: Case) -> np.ndarray | None:
    """Return coalition values of the columns of X, from mixtures of rows of X that pass through all steps."""
    p = len(case.draw.columns)
    if p > truth.MOST_COLUMNS or case.has_combinations:
        return None
    rows = containers.rows(case.seen, range(N_DEFINED))
    pairs = case.library(
        "mixtures",
        truth.coalition_values_of_pairs,
        lambda X: case.margin(X, contrast=True),
        rows,
        case.seen_background,
        p,
    )
    return truth.mean_coalition_values(pairs, case.background_weights)


def owen_values(case: Case, report: Report, feature_groups: Any, members: list[list[int]]) -> None:
    """Check that each column gets its Owen value, and that a group's Owen values add up to its value."""
    explainer = _explainer(case, feature_groups=feature_groups)
    explanation = explainer.explain(case.passed_X, index="OV")
    adds_up(case, report, explanation, "additivity of Owen values")
    got = outputs_last(explanation.values, 3)
    report.equal("columns with Owen values", got.shape[1], len(case.kept))
    if len(case.kept) == case.n_columns:
        unused_are_zero(case, report, got)
        group_values = outputs_last(explainer.explain(case.passed_X).values, 3).astype(float)
        total = np.stack([got[:, group].astype(float).sum(axis=1) for group in members], axis=1)
        report.close("Owen values by group", total, group_values, case.allowed(group_values, factor=3))
    coalitions = coalition_values(case)
    if coalitions is not None:
        right = widened(case, games.owen_values(coalitions, members)[:, case.kept])
        report.close("Owen values", got[:N_DEFINED], right, case.allowed(right))


def interactions_of_groups(case: Case, report: Report, feature_groups: Any, members: list[list[int]]) -> None:
    """Check the matrix of interactions of groups."""
    index, numbers = case.draw.asked["request"], _kept(case, members)
    explanation = _explainer(case, feature_groups=feature_groups).explain_interactions(
        case.passed_X, index=index
    )
    got = outputs_last(explanation.matrices(), 4)
    report.equal("size of the matrix", got.shape[1], len(numbers))
    coalitions = coalition_values(case)
    if coalitions is None:
        return
    right = games.matrices(games.of_groups(coalitions, members), index)
    right = widened(case, right[:, numbers][:, :, numbers])
    report.close(f"groups {index}", got[:N_DEFINED], right, case.allowed(right, factor=2))


GROUPED = {"groups": groups}
