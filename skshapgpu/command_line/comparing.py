"""``skshapgpu compare``: drift between two files of values."""

from __future__ import annotations

import argparse
from typing import Any

from .._common.digits import number
from .._drift.comparing import compare_explanations
from .._drift.comparison import ExplanationComparison
from .answers import Answer
from .rows import require_file

#: Exit code if the values differ more than the options allow.
DRIFTED = 3

#: Number of features that are listed as text.
_N_SHOWN = 20

_HEADINGS = ("feature", "PSI", "Wasserstein", "relative", "mean |value|", "rank")


def run(args: argparse.Namespace) -> Answer:
    """Compare the values in two files or folders."""
    require_file(args.reference, "REFERENCE")
    require_file(args.current, "CURRENT")
    comparison = compare_explanations(
        args.reference,
        args.current,
        n_bins=args.bins,
        reference_weight=args.reference_weight,
        current_weight=args.current_weight,
    )
    failures = _failures(comparison, args)
    facts = comparison.to_dict() | {"passed": not failures, "failures": failures}
    return Answer(facts, _text(comparison, failures), DRIFTED if failures else 0)


def _failures(comparison: ExplanationComparison, args: argparse.Namespace) -> list[str]:
    """Return a sentence for each limit of the command line that is exceeded."""
    failures = []
    # With "not >=" and "not <=", a measure that is NaN fails.
    if args.fail_below is not None and not comparison.ndcg >= args.fail_below:
        failures.append(f"nDCG {number(comparison.ndcg, 4)} is below {number(args.fail_below, 4)}")
    for measure, measure_name, limit in (
        ("psi", "PSI", args.fail_psi_above),
        ("relative_wasserstein", "relative Wasserstein distance", args.fail_distance_above),
    ):
        for record in comparison.to_dict()["features"] if limit is not None else ():
            if not record[measure] <= limit:
                value = number(record[measure], 4)
                failures.append(f"{measure_name} {value} of {_name(record)} is above {number(limit, 4)}")
    return failures


def _name(record: dict[str, Any]) -> str:
    return record["feature"] + (f", {record['output']}" if "output" in record else "")


def _text(comparison: ExplanationComparison, failures: list[str]) -> str:
    records = comparison.to_dict()["features"]
    rows = [
        (
            _name(record),
            number(record["psi"], 3),
            number(record["wasserstein"], 3),
            number(record["relative_wasserstein"], 3),
            f"{number(record['reference_importance'], 3)} -> {number(record['current_importance'], 3)}",
            f"{record['reference_rank']} -> {record['current_rank']}",
        )
        for record in records[:_N_SHOWN]
    ]
    table = [_HEADINGS, *rows]
    widths = [max(map(len, column)) for column in zip(*table)]
    lines = [
        f"{comparison.n_reference:,} reference rows, {comparison.n_current:,} current rows",
        f"nDCG of the rankings: {number(comparison.ndcg, 4)}",
        "",
    ]
    for name, *numbers in table:
        cells = [text.rjust(width) for text, width in zip(numbers, widths[1:])]
        lines.append("  ".join([name.ljust(widths[0]), *cells]))
    if len(records) > _N_SHOWN:
        lines.append(f"and {len(records) - _N_SHOWN:,} more with a smaller PSI; --json lists all")
    return "\n".join([*lines, *(f"FAILED: {failure}" for failure in failures)])
