"""How a model's paths are packed into warps by GPUTreeShap: table 5 of arXiv 2010.13972. No GPU is needed."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

import models
import peers

from skshapgpu import TreeExplainer, _cuda
from skshapgpu._common.algorithms import SHAP_VALUES

#: Our name of a heuristic: the paper's name.
PACKINGS = {
    "none": "none",
    "next_fit": "NF",
    "first_fit_decreasing": "FFD",
    "best_fit_decreasing": "BFD",
}

#: The models of the paper's table.
DEFAULT_MODELS = tuple(
    f"{dataset}-{size}"
    for dataset in ("covtype", "cal_housing", "fashion_mnist", "adult")
    for size in ("small", "med", "large")
)


def measure(case: models.Case) -> dict[str, Any]:
    """Measure bins, utilisation and seconds of each heuristic for one model."""
    plan = TreeExplainer(case.model, device="cpu")._compiled.of(SHAP_VALUES).plan()
    lengths = _cuda.path_summary(plan, "none")["lengths"]
    result = {**peers.describe(case, peers.ensemble_of(case.model)), "paths": len(lengths), "packings": {}}
    for packing in PACKINGS:
        start = perf_counter()
        n_bins = _cuda.pack(lengths, packing)[1]
        result["packings"][packing] = {
            "bins": n_bins,
            "utilisation": sum(lengths) / (32 * n_bins),
            "seconds": perf_counter() - start,
        }
    return result


def print_model(result: dict[str, Any]) -> None:
    print(f"\n{result['name']}: {result['paths']:,} paths ({result['note']})")
    for packing, entry in result["packings"].items():
        print(f"{PACKINGS[packing]:6}{entry['bins']:12,} bins{entry['utilisation']:12.6f}")
    sys.stdout.flush()
