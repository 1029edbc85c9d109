"""How often compare_explanations finds a change of the data, and how often it raises a false alarm."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from skshapgpu import compare_explanations, explain

#: Limits of alarms: the nDCG of the rankings, the largest population stability index, and the largest
#: relative Wasserstein distance.
NDCG, PSI, DISTANCE = 0.9, 0.25, 0.2

#: Cases, and the features that change in each.
CASES: dict[str, tuple[int, ...]] = {
    "unchanged": (),
    "retrained": (),
    "shifted": (1,),
    "effect": (0,),
    "swapped": (0, 2),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=20, help="populations (20)")
    parser.add_argument("--rows", type=int, default=5_000, help="of each sample, and for training (5000)")


def population(rng: np.random.Generator, n: int, effect: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of differently distributed features, and targets; ``effect`` is the effect of the first."""
    X = np.column_stack(
        [
            rng.normal(size=n),
            rng.normal(size=n),
            rng.exponential(size=n),
            rng.integers(0, 2, n),
            rng.uniform(-1, 1, n),
            np.where(rng.random(n) < 0.8, 0.0, rng.normal(size=n)),
            rng.normal(size=n),
            rng.normal(size=n),
        ]
    )
    X[:, 4] += 0.5 * X[:, 1]
    target = effect * X[:, 0] + X[:, 1] + 0.7 * X[:, 2] + 0.6 * X[:, 3] * X[:, 4] + 0.5 * np.abs(X[:, 5])
    return X, target + 0.5 * rng.normal(size=n)


def model(X: np.ndarray, y: np.ndarray) -> Any:
    return HistGradientBoostingRegressor(max_iter=50, random_state=0).fit(X, y)


def samples(case: str, seed: int, n: int) -> tuple[Any, Any]:
    """Return explanations of a reference and a current sample.

    Both samples are drawn with replacement from the same rows, on which the model was not trained. Then a
    feature of the current sample is shifted by its standard deviation, or two of its columns are swapped, or
    another model explains it. That model was trained on new rows, in which the first feature has half of its
    effect, or all of it.
    """
    rng = np.random.default_rng(seed)
    first = model(*population(rng, n))
    rows, _ = population(rng, 2 * n)
    reference, current = (rows[rng.integers(0, len(rows), n)] for _ in range(2))
    second = first
    if case == "shifted":
        current[:, 1] += 1.0
    elif case == "swapped":
        current[:, [0, 2]] = current[:, [2, 0]]
    elif case in ("retrained", "effect"):
        second = model(*population(rng, n, effect=1.0 if case == "effect" else 2.0))
    return explain(first, reference), explain(second, current)


def measure(case: str, seeds: int, n: int) -> dict[str, Any]:
    """Compare both samples of each seed; count alarms, and how often a changed feature changed the most."""
    changed, runs = list(CASES[case]), list[dict[str, Any]]()
    by_psi, by_ndcg, by_distance = list[bool](), list[bool](), list[bool]()
    for seed in range(seeds):
        comparison = compare_explanations(*samples(case, seed, n))
        others = np.delete(comparison.psi, changed)
        distance = comparison.relative_wasserstein
        by_psi.append(bool(comparison.psi.max() > PSI))
        by_ndcg.append(comparison.ndcg < NDCG)
        by_distance.append(bool(distance.max() > DISTANCE))
        runs.append(
            {
                "ndcg": comparison.ndcg,
                "psi_of_changed": float(comparison.psi[changed].min()) if changed else None,
                "psi_of_others": float(others.max()),
                "distance_of_changed": float(distance[changed].min()) if changed else None,
                "distance_of_others": float(np.delete(distance, changed).max()),
                "largest_psi": bool(comparison.psi.argmax() in changed),
                "largest_distance": bool(distance.argmax() in changed),
            }
        )
    return {
        "name": case,
        "seeds": seeds,
        "rows": n,
        "limits": {"ndcg": NDCG, "psi": PSI, "relative_wasserstein": DISTANCE},
        "alarms_of_psi": sum(by_psi),
        "alarms_of_ndcg": sum(by_ndcg),
        "alarms_of_distance": sum(by_distance),
        "changes_with_the_largest_psi": sum(run["largest_psi"] for run in runs),
        "changes_with_the_largest_distance": sum(run["largest_distance"] for run in runs),
        "runs": runs,
    }


def print_result(result: dict[str, Any]) -> None:
    shown = {name: value for name, value in result.items() if name != "runs"}
    for name in ("ndcg", "psi_of_changed", "psi_of_others", "distance_of_changed", "distance_of_others"):
        numbers = [run[name] for run in result["runs"] if run[name] is not None]
        shown[name] = f"{min(numbers):.4f} to {max(numbers):.4f}" if numbers else None
    print(json.dumps(shown, indent=1))
