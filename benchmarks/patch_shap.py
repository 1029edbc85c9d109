"""Times of packages that explain with shap, without and with skshapgpu.patch_shap(), on one processor.

    python benchmarks/patch_shap.py [--repeats 5] [--output FILE] [EXAMPLES]

A run times the examples of the packages that are installed, and keeps the results of other packages in the
file. The packages require different releases of their dependencies, so each has an environment of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import reports
from dashboards import EXAMPLES, Example, package_of

from skshapgpu import ShapFallbackWarning, patch_shap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("examples", nargs="*", metavar="EXAMPLES", help=f"of {', '.join(EXAMPLES)}")
    parser.add_argument("--repeats", type=int, default=5, help="rounds; each runs both in turn (5)")
    parser.add_argument("--output", type=Path, help="file of results (that of the repository)")
    arguments = parser.parse_args()
    arguments.command, arguments.quick = "patch-shap", False
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    report = reports.start_report("patch-shap", arguments)
    for name in arguments.examples or EXAMPLES:
        if importlib.util.find_spec(package_of(name)) is None:
            print(f"{name}: not installed", file=sys.stderr)
            continue
        report["models"].append({"name": name, **measure(EXAMPLES[name](), arguments.repeats)})
        print(report["models"][-1], flush=True)
        reports.write(report, arguments)


def measure(example: Example, repeats: int) -> dict[str, Any]:
    """Run an example in turn without and with the patch.

    ``errors`` are the largest differences between the results, divided by the largest magnitude of shap's
    results. ``fallbacks`` are the reasons for which shap computed values despite the patch.
    """
    seconds: dict[str, list[float]] = {"shap": [], "patched": []}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(repeats):
            expected, taken = timed(example)
            seconds["shap"].append(taken)
            with patch_shap():
                results, taken = timed(example)
            seconds["patched"].append(taken)
    return {
        "errors": {key: relative_error(results[key], expected[key]) for key in expected},
        "fallbacks": sorted({str(w.message) for w in caught if w.category is ShapFallbackWarning}),
        "repeats": repeats,
        "median_seconds": {key: median(times) for key, times in seconds.items()},
        "seconds": seconds,
        "times_as_fast": median(a / b for a, b in zip(seconds["shap"], seconds["patched"])),
    }


def timed(example: Example) -> tuple[dict[str, np.ndarray], float]:
    start = time.perf_counter()
    result = example()
    return result, time.perf_counter() - start


def relative_error(values: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference over the largest magnitude."""
    if values.shape != expected.shape:
        raise ValueError(f"the result has shape {values.shape} under the patch, and {expected.shape} without")
    return float(np.abs(values - expected).max() / (np.abs(expected).max() or 1.0))


if __name__ == "__main__":
    main()
