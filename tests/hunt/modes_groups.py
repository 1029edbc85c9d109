"""Modes of groups of columns: their values, interactions and Owen values, by every way to name a group."""

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
        asked: Any = "input"
    else:
        members = partition(case)
        asked = _named(case, members)
    if case.draw.asked["request"] == "OV":
        owen_values(case, report, asked, members)
    elif case.draw.asked["request"] in ("SV", "BV"):
        values_of_groups(case, report, asked, members)
    else:
        interactions_of_groups(case, report, asked, members)


def _explainer(case: Case, **options: Any) -> TreeExplainer:
    kind = case.draw.asked["perturbation"]
    more = {"feature_perturbation": "tree_path_dependent"} if kind == "counted" else {}
    return explainer_of(case, background=kind != "path-dependent", **more, **options)


def coalition_values(case: Case) -> np.ndarray | None:
    """Return the values of the coalitions of the model's columns, (2^p, n_rows, n_outputs)."""
    if case.draw.asked["perturbation"] == "path-dependent":
        return case.path_coalition_values
    if case.draw.asked["perturbation"] == "counted":
        return case.counted_coalition_values
    pairs = case.pair_coalition_values
    return None if pairs is None else truth.mean_coalition_values(pairs, case.background_weights)


def by_input(case: Case, report: Report) -> list[list[int]] | None:
    """Return the model's columns by the column of X from which they are made; None if that is refused."""
    known = case.draw.steps in wrappers.KNOWN_ORIGINS and case.draw.outer != "self-training"
    origins = case.fitted.origins
    try:
        explainer = _explainer(case, feature_groups="input")
    except ValueError as error:
        if known or not ("single" in str(error) or "not known" in str(error)):
            raise
        report.refusals.append("origins of columns are not known")
        return None
    if None in origins:
        report.true("mixed columns are refused", False, str(explainer.feature_names))
        return None
    first = list(dict.fromkeys(origins))
    return [[j for j, i in enumerate(origins) if i == column] for column in first]


def partition(case: Case) -> list[list[int]]:
    """Draw groups of the model's columns, in the order of their first ones; most columns are in one."""
    rng, p = np.random.default_rng([case.draw.seed, 5]), case.n_columns
    label = rng.integers(0, max(2, p // 2), p)
    single = rng.random(p) < 0.3
    found: dict[Any, list[int]] = {}
    for j in range(p):
        found.setdefault(("alone", j) if single[j] else int(label[j]), []).append(j)
    return list(found.values())


def _named(case: Case, members: list[list[int]]) -> dict[str, list[Any]]:
    """Return groups as a mapping; those of one column are left out at times, and lists are in any order."""
    rng = np.random.default_rng([case.draw.seed, 6])
    # Positions are those of columns of X, which only without steps are the model's.
    positions = case.draw.asked["groups"] if not case.fitted.steps else "names"
    names = case.column_names
    found: dict[str, list[Any]] = {}
    for number, group in enumerate(members):
        if len(group) == 1 and (found or number < len(members) - 1) and rng.random() < 0.7:
            continue  # a column in no group
        way = {"names": [True], "positions": [False]}.get(positions, [True, False])
        listed = [names[j] if rng.choice(way) else j for j in rng.permutation(group).tolist()]
        found[f"group {number}"] = listed
    order = rng.permutation(len(found))
    return {list(found)[i]: list(found.values())[i] for i in order}


def _kept(case: Case, members: list[list[int]]) -> list[int]:
    """Return the groups that get values."""
    used = set(case.kept)
    return [g for g, group in enumerate(members) if used & set(group)]


def _names(case: Case, asked: Any, members: list[list[int]]) -> list[str] | None:
    if asked == "input":
        if not (isinstance(case.train, pd.DataFrame) and isinstance(case.X, pd.DataFrame)):
            return None
        return [str(case.data.train.columns[case.fitted.origins[group[0]]]) for group in members]
    if not isinstance(case.train, pd.DataFrame):  # single columns then have their names from X
        return None
    named = {
        frozenset(j if isinstance(j, int) else case.column_names.index(j) for j in listed): name
        for name, listed in asked.items()
    }
    names = case.names_for(case.X)
    return [named.get(frozenset(group), names[group[0]]) for group in members]


def values_of_groups(case: Case, report: Report, asked: Any, members: list[list[int]]) -> None:
    """Check Shapley or Banzhaf values of groups."""
    index, kept = case.draw.asked["request"], _kept(case, members)
    explanation = _explainer(case, feature_groups=asked).explain(case.passed_X, index=index)
    got = outputs_last(explanation.values, 3)
    report.equal("number of groups", got.shape[1], len(kept))
    names = _names(case, asked, members)
    if names is not None:
        report.equal("names of groups", list(explanation.feature_names), [names[g] for g in kept])
    if index == "SV":
        adds_up(case, report, explanation, "additivity of groups")
    coalitions = coalition_values(case)
    if coalitions is not None:
        right = widened(case, games.values(games.of_groups(coalitions, members), index)[:, kept])
        report.close(f"groups {index}", got[:N_DEFINED], right, case.allowed(right))
    if asked == "input" and case.draw.asked["perturbation"] == "interventional":
        of_rows = mixtures_of_rows(case)
        if of_rows is not None:
            columns = [case.fitted.origins[members[g][0]] for g in kept]
            right = widened(case, games.values(of_rows, index)[:, columns])
            report.close(f"columns of X {index}", got[:N_DEFINED], right, case.allowed(right))


def mixtures_of_rows(case: Case) -> np.ndarray | None:
    """Return coalition values of the columns of X, by mixtures of rows of X that pass through all steps."""
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


def owen_values(case: Case, report: Report, asked: Any, members: list[list[int]]) -> None:
    """Check that each column gets its Owen value, and that those of a group add up to the group's value."""
    explainer = _explainer(case, feature_groups=asked)
    explanation = explainer.explain(case.passed_X, index="OV")
    adds_up(case, report, explanation, "additivity of Owen values")
    got = outputs_last(explanation.values, 3)
    report.equal("columns with Owen values", got.shape[1], len(case.kept))
    if len(case.kept) == case.n_columns:
        unused_are_zero(case, report, got)
        of_groups = outputs_last(explainer.explain(case.passed_X).values, 3).astype(float)
        total = np.stack([got[:, group].astype(float).sum(axis=1) for group in members], axis=1)
        report.close("Owen values by group", total, of_groups, case.allowed(of_groups, factor=3))
    coalitions = coalition_values(case)
    if coalitions is not None:
        right = widened(case, games.owen_values(coalitions, members)[:, case.kept])
        report.close("Owen values", got[:N_DEFINED], right, case.allowed(right))


def interactions_of_groups(case: Case, report: Report, asked: Any, members: list[list[int]]) -> None:
    """Check the matrix of interactions of groups."""
    index, kept = case.draw.asked["request"], _kept(case, members)
    found = _explainer(case, feature_groups=asked).explain_interactions(case.passed_X, index=index)
    got = outputs_last(found.matrices(), 4)
    report.equal("size of the matrix", got.shape[1], len(kept))
    coalitions = coalition_values(case)
    if coalitions is None:
        return
    right = games.matrices(games.of_groups(coalitions, members), index)
    right = widened(case, right[:, kept][:, :, kept])
    report.close(f"groups {index}", got[:N_DEFINED], right, case.allowed(right, factor=2))


GROUPED = {"groups": groups}
