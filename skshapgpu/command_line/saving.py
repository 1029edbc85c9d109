"""``skshapgpu save``: save a compiled model with the tables that its calls use."""

from __future__ import annotations

import argparse
import os
from time import perf_counter

from .._common.digits import number
from .._files.locations import RemotePath, locate, shown
from .._files.storage import require_ours
from .answers import Answer, bytes_text
from .models import is_explainer, open_explainer, require_place


def run(args: argparse.Namespace) -> Answer:
    """Compile the model and save it."""
    require_place(args.output)
    place = locate(args.output)
    require_ours(place)
    start = perf_counter()
    explainer = open_explainer(args.model, args, n_jobs=args.n_jobs, memory_limit=args.memory_limit)
    if explainer._reader.steps:
        raise ValueError(
            f"{shown(args.model)!r} is a pipeline, whose first steps an explainer file cannot keep: give "
            "'skshapgpu explain' the file of skops"
        )
    building_seconds = perf_counter() - start
    explainer.save(args.output)
    seconds = perf_counter() - start
    file_bytes = place.stamp()[0] if isinstance(place, RemotePath) else os.path.getsize(place)
    table_bytes = explainer.model_info()["table_bytes"]
    facts = {
        "file": shown(args.output),
        "file_bytes": file_bytes,
        "table_bytes": table_bytes,
        "seconds": seconds,
        "building_seconds": building_seconds,
    }
    text = (
        f"{shown(args.output)}: {bytes_text(file_bytes)}, of which tables {bytes_text(table_bytes)}; "
        f"compiled in {number(building_seconds, 2)} s, written in {number(seconds - building_seconds, 2)} s"
    )
    path_dependent = explainer.feature_perturbation == "tree_path_dependent"
    if not table_bytes and path_dependent and not is_explainer(args.model):
        text += (
            "\nno tables were saved, because none would serve every call: a call with enough rows makes "
            "its own tables. --algorithm fast_v2 saves tables of all trees"
        )
    return Answer(facts, text)
