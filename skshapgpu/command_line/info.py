"""``skshapgpu info``: contents of a model file or an explainer file."""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from .._common.digits import counted, number
from .._common.distinct import distinct_numbers
from .._files import saving
from .._files.locations import RemotePath, locate, shown
from .._files.model_files import adapt_file
from ..adapters.ensemble import Ensemble
from ..adapters.schema import AdaptedModel
from ..batches.batch_arguments import steps_of
from ..errors import UnsupportedModelError
from ..explainer import TreeExplainer
from .answers import Answer, aligned, base_values_text, bytes_text, some
from .models import is_explainer, open_model

#: Number of rows for which memory and time are estimated, and the ``n_jobs`` of the command ``explain``.
_N_ESTIMATED_ROWS, _N_JOBS = 1_000_000, -1

_COVERS = {
    None: "yes",
    "count": "counts of training rows",
    "weight": "weights of training rows",
    "data": "counted from data",
}

#: Families that weight a training row by its hessian.
_WITH_HESSIANS = ("xgboost", "lightgbm")

_LINKS = {
    None: "none from one output to a probability",
    "identity": "identity, the margin is a probability",
    "logistic": "logistic, the margin is in log-odds",
    "exp": "exponential, the margin is a logarithm",
    "gumbel": "exp(-exp(-m)) of the scaled margin m",
    "normal": "normal distribution function of the scaled margin",
}


def run(args: argparse.Namespace) -> Answer:
    """Describe the model in the file, with estimates of memory and time."""
    path = args.model
    place = locate(path)
    if isinstance(place, RemotePath):
        n_bytes = place.stamp()[0] if place.is_file() else 0
    else:
        n_bytes = os.path.getsize(place) if os.path.exists(place) else 0
    facts: dict[str, Any] = {"file": shown(path), "file_bytes": n_bytes}
    if is_explainer(path):
        saved = saving.load(place)
        facts |= {"kind": "explainer", "library_version": saving.library_version(place)}
        facts |= _model_facts(saved.adapted) | saved.options
        facts["n_background_rows"] = 0 if saved.background is None else len(saved.background.rows)
        facts |= _explainer_facts(TreeExplainer.load(path, n_jobs=_N_JOBS))
        return Answer(facts, _text(facts))
    model = open_model(path, args)
    steps, bare_model = ([], model) if isinstance(model, str) else steps_of(model)
    adapted: Any = adapt_file(bare_model)
    facts |= {"kind": "model", "steps": [type(step).__name__ for step in steps]} | _model_facts(adapted)
    try:
        facts |= _explainer_facts(TreeExplainer(adapted, n_jobs=_N_JOBS))
    except UnsupportedModelError:  # without covers it needs background rows, which are not read here
        pass
    return Answer(facts, _text(facts))


def _model_facts(adapted: AdaptedModel) -> dict[str, Any]:
    ensemble, schema = adapted.ensemble, adapted.schema
    names, categorical = schema.feature_names, _categorical(adapted)
    return {
        "family": adapted.family,
        "n_trees": ensemble.n_trees,
        "n_leaves": ensemble.n_leaves,
        "depth": depth(ensemble),
        "n_features": schema.n_features,
        "feature_names": names,
        "n_categorical": max(len(categorical), schema.n_categorical or 0),
        "categorical_features": [names[i] if names else i for i in categorical],
        "n_outputs": adapted.n_outputs,
        "output_names": adapted.output_names,
        "class_names": adapted.class_names,
        "link": adapted.link,
        "intercept": ensemble.intercept,
        "x_dtype": ensemble.x_dtype,
        "has_covers": adapted.has_cover,
        "cover_kind": adapted.cover_kind,
        "other_cover_kinds": sorted(adapted.other_covers),
    }


def _categorical(adapted: AdaptedModel) -> list[int]:
    """Return the columns that are known to be categorical.

    LightGBM records only how many columns of a data frame were categorical; the splits show which ones.
    """
    ensemble, schema = adapted.ensemble, adapted.schema
    columns = set(schema.encoders)
    if len(ensemble.category_set):
        split_columns = distinct_numbers(ensemble.feature[ensemble.category_set >= 0])
        columns |= set(split_columns[split_columns < schema.n_features].tolist())
    return sorted(columns)


def _explainer_facts(explainer: TreeExplainer) -> dict[str, Any]:
    info, plan, base = explainer.model_info(), explainer.plan(_N_ESTIMATED_ROWS), explainer.expected_value
    return {
        "base_value": None if callable(base) else base,
        "feature_perturbation": explainer.feature_perturbation,
        "compiled_bytes": info["bytes"],
        "table_bytes": info["table_bytes"],
        "estimate": {
            "n_rows": plan.n_rows,
            "device": plan.device,
            "threads": effective_n_jobs(_N_JOBS),
            "seconds": plan.seconds,
            "result_bytes": plan.result_bytes,
            "table_bytes": plan.table_bytes,
            "peak_bytes": plan.peak_bytes,
            "refusal": plan.refusal,
        },
    }


def _text(facts: dict[str, Any]) -> str:
    names, classes = facts["feature_names"], facts["class_names"]
    outputs = f"{facts['n_outputs']:,}"
    if classes:
        outputs += f": class {classes[1]}, against {classes[0]}"
    elif facts["output_names"]:
        outputs += f": {some(facts['output_names'])}"
    lines = [("file", f"{facts['file']}, {bytes_text(facts['file_bytes'])}")]
    if facts["kind"] == "explainer":
        lines.append(("written by", f"skshapgpu {facts['library_version']}, an explainer file"))
    if facts.get("steps"):
        lines.append(("steps", f"{', '.join(facts['steps'])}; then the model"))
    lines += [
        ("family", facts["family"]),
        ("trees", f"{facts['n_trees']:,}, {facts['n_leaves']:,} leaves, depth {facts['depth']}"),
        ("features", f"{facts['n_features']:,}" + (f": {some(names)}" if names else ", without names")),
        ("categorical", _categorical_text(facts)),
        ("outputs", outputs),
        ("link", _LINKS[facts["link"]]),
        ("X is read as", facts["x_dtype"]),
        ("covers", _covers_text(facts)),
    ]
    if "estimate" not in facts:
        return aligned(lines)
    if facts["base_value"] is not None:
        lines.append(("base value", base_values_text(facts["base_value"])))
    if facts["kind"] == "explainer":
        background, tables = facts["n_background_rows"], facts["table_bytes"]
        lines += [
            ("values", f"{facts['feature_perturbation']}, of the {facts['model_output']} output"),
            ("background", f"{background:,} rows" if background else "none"),
            ("computed by", f"algorithm {facts['algorithm']}, {facts['precision']} precision"),
            ("tables", bytes_text(tables) if tables else "none"),
        ]
    estimate = facts["estimate"]
    seconds = "" if estimate["seconds"] is None else f", about {number(estimate['seconds'], 2)} s"
    device = estimate["device"]
    if device == "cpu":
        device += f" with {counted(estimate['threads'], 'thread')}"
    lines += [
        ("memory", f"{bytes_text(facts['compiled_bytes'])} compiled"),
        (
            f"{estimate['n_rows']:,} rows",
            f"{bytes_text(estimate['result_bytes'])} of values, {bytes_text(estimate['table_bytes'])} of "
            f"tables, {bytes_text(estimate['peak_bytes'])} in all{seconds} on {device}",
        ),
    ]
    if estimate["refusal"] is not None:
        lines.append(("", f"refused in one call: {estimate['refusal']}"))
    return aligned(lines)


def _categorical_text(facts: dict[str, Any]) -> str:
    count, columns = facts["n_categorical"], facts["categorical_features"]
    if not count:
        return "none"
    end = "; no split asks for the others" if columns else ", none of which a split asks for"
    return f"{count:,}{': ' if columns else ''}{some(columns)}{end if count > len(columns) else ''}"


def _covers_text(facts: dict[str, Any]) -> str:
    if not facts["has_covers"]:
        return (
            "none: give --background to explain the model, with interventional values or covers of that data"
        )
    covers = dict(_COVERS)
    if facts["family"] in _WITH_HESSIANS:
        covers["weight"] += ", their hessians"
    text = covers[facts["cover_kind"]]
    for kind in facts["other_cover_kinds"]:
        text += f"; it has {covers[kind]}, too: --cover {kind}"
    return text


def depth(ensemble: Ensemble) -> int:
    """Return the largest number of splits on a path from a root to a leaf."""
    starts = np.repeat(ensemble.tree_offsets[:-1], np.diff(ensemble.tree_offsets))
    level, n_levels = ensemble.tree_offsets[:-1], 0
    while True:
        level = level[ensemble.left[level] >= 0]
        if not len(level):
            return n_levels
        level = np.concatenate([side[level] + starts[level] for side in (ensemble.left, ensemble.right)])
        n_levels += 1
