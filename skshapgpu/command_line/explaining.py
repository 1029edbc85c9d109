"""``skshapgpu explain``: from a file of rows to a file of values."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any, cast

import numpy as np

from .._common.digits import number
from .._common.types import CsvOptions
from .._files.locations import shown
from ..batches import explain_batches
from ..batches.batch_arguments import groups_of_inputs
from ..batches.csv_files import CsvFormat
from ..batches.sources import open_source
from ..explainer import TreeExplainer
from .answers import Answer, base_values_text
from .models import open_explainer
from .rows import columns_for, csv_options, meant, read_rows, require_file

#: Number of rows that are sampled to find the strongest pairs. More rows are not needed to rank pairs.
_RANKING_ROWS = 10_000


def run(args: argparse.Namespace) -> Answer:
    """Explain all rows of the file."""
    require_file(args.data, "DATA")
    explainer = open_explainer(
        args.model, args, device=args.device, n_jobs=args.n_jobs, memory_limit=args.memory_limit
    )
    interaction_options: dict[str, Any] = {}
    if args.interactions is not None:
        interaction_options = {"interactions": _interactions(args, explainer)}
    try:
        result = explain_batches(
            explainer,
            args.data,
            args.output,
            batch_size=args.batch_size,
            features=args.features,
            keep=args.keep,
            reasons=args.reasons,
            by_sign=args.by_sign,
            sum_by=args.sum_by,
            prefix=args.prefix,
            csv_options=cast(CsvOptions, asdict(_csv_options_of_data(args))),
            if_exists=args.if_exists,
            progress=args.progress or (not args.quiet and _bar_is_welcome()),
            **interaction_options,
        )
    except KeyboardInterrupt as interrupt:
        flag_to_omit = "" if args.if_exists == "resume" else f" without --if-exists {args.if_exists}"
        interrupt.add_note(f"; the same command{flag_to_omit} resumes where it stopped")
        raise
    except ValueError as error:
        if message := _missing_column(args, explainer):
            raise ValueError(message) from error
        raise
    facts = {
        "output": shown(args.output),
        "n_rows": result.n_rows,
        "n_resumed": result.n_resumed,
        "seconds": result.seconds,
        "rows_per_second": result.rows_per_second,
        "base_values": result.base_values,
        "feature_names": result.feature_names,
        **interaction_options,
    }
    if isinstance(facts.get("interactions"), np.ndarray):
        facts["interactions"] = facts["interactions"].tolist()
    return Answer(facts, "" if args.quiet else _text(facts))


def _interactions(args: argparse.Namespace, explainer: TreeExplainer) -> Any:
    """Return the requested interactions in the form of :func:`explain_batches`."""
    requested = args.interactions
    if isinstance(requested, list):
        grouping = None if args.sum_by is None else groups_of_inputs(explainer)
        names = explainer._names_explained(args.features) if grouping is None else grouping.names
        return [pair_of(text, names) for text in requested]
    if isinstance(requested, str):
        return requested
    rows = read_rows(
        args.data,
        "DATA",
        _columns(args, explainer),
        csv=csv_options(args),
        categories=explainer._reader.schema.has_encoders,
        steps=explainer._reader.steps,
        n_rows=_RANKING_ROWS,
        at_most=True,
    )
    silent = explainer._without_warnings
    if args.sum_by is None:
        explanation = silent.explain_interactions(rows, interactions=requested)
        return explanation.interactions
    explanation = silent.explain_interactions(rows, interactions="occurring").sum_by(args.sum_by)
    strongest = explanation.importance().reshape(len(explanation.interactions), -1).sum(axis=1)
    return explanation.interactions[np.argsort(-strongest, kind="stable")[:requested]]


def _columns(args: argparse.Namespace, explainer: TreeExplainer) -> Callable[[Any], list[str]]:
    """Return a function that selects the columns of DATA that the model, or the first step, takes."""
    names, _, blank_as_underscore = explainer._reader.expected_columns
    return columns_for(args, names, blank_as_underscore)


def _csv_options_of_data(args: argparse.Namespace) -> CsvFormat:
    """Return the CSV options for DATA. If DATA is not CSV, the given options are for the background."""
    options = csv_options(args)
    is_csv = getattr(open_source(args.data, options), "kind", None) == "csv"
    return options if is_csv or args.background is None else CsvFormat()


def _missing_column(args: argparse.Namespace, explainer: TreeExplainer) -> str | None:
    """Return a message about a column that is missing from DATA, or None if no column is missing."""
    select_columns = _columns(args, explainer)
    try:
        schema = open_source(args.data, csv_options(args), keep=args.keep).schema
    except (ValueError, OSError):
        return None
    if schema is None:
        return None
    try:
        select_columns(schema)
        names = schema.names
        for name in args.keep:
            if name not in names:
                raise ValueError(f"there is no column {name}{meant(name, names)}")
    except ValueError as error:
        return f"DATA: {shown(args.data)!r}: {error}"
    return None


def pair_of(text: str, names: Sequence[str]) -> tuple[str, str]:
    """Parse a pair of features such as "age:income"; names may contain colons themselves.

    Raise ``ValueError`` if the text does not name two features, or if it can be read as several pairs.
    """
    possible_pairs = [(text[:i], text[i + 1 :]) for i, sign in enumerate(text) if sign == ":"]
    known_pairs = [pair for pair in possible_pairs if set(pair) <= set(names)]
    if len(known_pairs) == 1:
        return known_pairs[0]
    if known_pairs:
        raise ValueError(f"--interactions: {text!r} can be read as several pairs of features")
    unknown_name = next((name for pair in possible_pairs for name in pair if name not in names), text)
    raise ValueError(
        f"--interactions: {unknown_name!r} is no feature of the model{meant(unknown_name, names)}"
    )


def _bar_is_welcome() -> bool:
    """Return whether stderr is a terminal and a library that draws progress bars is installed."""
    return sys.stderr.isatty() and any(find_spec(name) is not None for name in ("tqdm", "rich"))


def _text(facts: dict[str, Any]) -> str:
    text, n_new = f"{facts['output']}: {facts['n_rows']:,} rows", facts["n_rows"] - facts["n_resumed"]
    if facts["n_resumed"]:
        text += f", {'all' if not n_new else format(facts['n_resumed'], ',')} of them written before"
    if n_new:
        text += f", in {number(facts['seconds'], 2)} s ({facts['rows_per_second']:,.0f} rows/s)"
    if facts["base_values"] is not None:
        text += f"\nbase value {base_values_text(facts['base_values'])}"
    return text
