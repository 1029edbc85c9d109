"""A soak test: many threads explain changing models; results must not change, memory must not grow.

``./dev soak [--seconds N]``. Each thread picks a model, options and a kind of work at random, makes an
explainer, sometimes from a file or a pickle, and explains a random part of the rows. The same work must give
the same bits at any time and in any thread. Every explanation is checked to add up. Resident memory is
sampled throughout: after a warm-up it must not grow.
"""

from __future__ import annotations

import argparse
import csv
import gc
import hashlib
import json
import os
import pickle
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)

from skshapgpu import TreeExplainer

N_THREADS = 8

#: Fraction of the run that counts as warm-up; memory must not grow afterwards, because by then every thread
#: has done most kinds of work.
WARM_UP = 0.4

#: Permitted growth between the samples after the warm-up and the last ones: allocators keep freed memory.
ALLOWED_GROWTH, ALLOWED_SHARE = 24 * 2**20, 0.03

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(600, 6)), 2)
X[:, 5] = RNG.integers(0, 9, 600)
Y = X[:, 0] * X[:, 1] + (X[:, 5] % 2) + 0.1 * RNG.normal(size=600)
CLASSES = np.digitize(Y, [-0.3, 0.6])


class Sample(NamedTuple):
    seconds: float
    resident_bytes: int
    explanations: int
    rows: int
    models: int


def models() -> dict[str, Any]:
    """Fit models of every family that is installed."""
    small = {"random_state": 0}
    models: dict[str, Any] = {
        "forest": RandomForestRegressor(20, max_depth=6, **small).fit(X, Y),
        "forest of classes": RandomForestClassifier(15, max_depth=5, **small).fit(X, CLASSES),
        "extra trees": ExtraTreesRegressor(10, max_depth=8, **small).fit(X, Y),
        "boosting": GradientBoostingClassifier(n_estimators=15, **small).fit(X, Y > 0),
        "histograms": HistGradientBoostingRegressor(max_iter=15, categorical_features=[5], **small).fit(X, Y),
        "histograms of classes": HistGradientBoostingClassifier(max_iter=8, **small).fit(X, CLASSES),
        "isolation": IsolationForest(n_estimators=20, max_samples=64, **small).fit(X),
    }
    for name, add in (("xgboost", _xgboost), ("lightgbm", _lightgbm), ("catboost", _catboost)):
        try:
            library = __import__(name)
        except ImportError:
            continue
        models |= {f"{name} {kind}": model for kind, model in add(library).items()}
    return models


def _xgboost(xgboost: Any) -> dict[str, Any]:
    options = {"n_estimators": 15, "max_depth": 4, "n_jobs": 1}
    types = ["q"] * 5 + ["c"]
    categories = {"enable_categorical": True, "feature_types": types, "tree_method": "hist"}
    return {
        "regressor": xgboost.XGBRegressor(**options).fit(X, Y),
        "classes": xgboost.XGBClassifier(**options).fit(X, CLASSES),
        "categories": xgboost.XGBRegressor(**options, **categories).fit(X, Y),
    }


def _lightgbm(lightgbm: Any) -> dict[str, Any]:
    options = {"n_estimators": 15, "num_leaves": 15, "n_jobs": 1, "verbose": -1}
    return {
        "regressor": lightgbm.LGBMRegressor(**options).fit(X, Y),
        "classes": lightgbm.LGBMClassifier(**options).fit(X, CLASSES),
        "categories": lightgbm.LGBMRegressor(**options).fit(X, Y, categorical_feature=[5]),
    }


def _catboost(catboost: Any) -> dict[str, Any]:
    options = {"iterations": 15, "depth": 4, "thread_count": 1, "verbose": 0, "allow_writing_files": False}
    return {
        "regressor": catboost.CatBoostRegressor(**options).fit(X, Y),
        "classes": catboost.CatBoostClassifier(**options).fit(X, CLASSES),
    }


#: Ways to make an explainer, and kinds of work for the explainer.
WORK: dict[str, tuple[dict[str, Any], Callable[[TreeExplainer, np.ndarray], Any]]] = {
    "values": ({}, lambda e, rows: e.shap_values(rows)),
    "double": ({"precision": "double"}, lambda e, rows: e.shap_values(rows)),
    "quadrature": ({"algorithm": "quadrature", "n_jobs": 2}, lambda e, rows: e.shap_values(rows)),
    "fast_v2": ({"algorithm": "fast_v2"}, lambda e, rows: e.shap_values(rows)),
    "fast_v1": ({"algorithm": "fast_v1", "precision": "double"}, lambda e, rows: e.shap_values(rows)),
    "treeshap": ({"algorithm": "treeshap", "precision": "double"}, lambda e, rows: e.shap_values(rows)),
    "background": ({"data": X[:40]}, lambda e, rows: e.shap_values(rows)),
    "limited": ({"memory_limit": 2**23, "n_jobs": 2}, lambda e, rows: e.shap_values(rows)),
    "float32": ({}, lambda e, rows: e.shap_values(rows.astype(np.float32))),
    "banzhaf": ({}, lambda e, rows: e.explain(rows, index="BV").values),
    "interactions": ({}, lambda e, rows: e.shap_interaction_values(rows)),
    "strongest": ({}, lambda e, rows: e.explain_interactions(rows, interactions=3).values),
    "background interactions": (
        {"data": X[:10]},
        lambda e, rows: e.explain_interactions(rows, interactions="occurring").values,
    ),
}

WAYS = ("made", "made", "saved and loaded", "pickled")


class Soak:
    """Work of the threads, and the data that they share."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder = seed, folder
        self.models = models()
        self.names = sorted(self.models)
        self.digests: dict[tuple[Any, ...], bytes] = {}
        self.stop = threading.Event()
        self.error: BaseException | None = None
        self.counts = [[0, 0, 0] for _ in range(N_THREADS)]

    def work(self, number: int) -> None:
        chance = random.Random(self.seed + number)
        try:
            while not self.stop.is_set():
                self._step(chance, number)
        except BaseException as error:
            self.error = error
            self.stop.set()

    def _step(self, chance: random.Random, number: int) -> None:
        name, work, way = chance.choice(self.names), chance.choice(list(WORK)), chance.choice(WAYS)
        options, explain = WORK[work]
        explainer = TreeExplainer(self.models[name], device="cpu", **options)
        if way == "saved and loaded":
            path = self.folder / f"explainer-{number}"
            explainer.save(path)
            explainer = TreeExplainer.load(path, device="cpu", n_jobs=options.get("n_jobs"))
        elif way == "pickled":
            explainer = pickle.loads(pickle.dumps(explainer))
        counts = self.counts[number]
        counts[2] += 1
        for _ in range(chance.randrange(1, 4)):
            start = 32 * chance.randrange(8)
            rows = X[start : start + chance.choice([1, 64, 300])]
            values = explain(explainer, rows)
            # A file does not store the memory limit; without one, more rows are processed at once, and leaves
            # may be in lanes.
            key = (name, work, start, len(rows), way == "saved and loaded" and "memory_limit" in options)
            digest = hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=8).digest()
            if self.digests.setdefault(key, digest) != digest:
                raise AssertionError(f"other values than before, of {key}, of an explainer that was {way}")
            counts[0] += 1
            counts[1] += len(rows)

    def sample(self, start: float) -> Sample:
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        explanations, rows, made = (sum(counts[i] for counts in self.counts) for i in range(3))
        return Sample(time.monotonic() - start, resident, explanations, rows, made)


def soak(seconds: float, seed: int = 0) -> list[Sample]:
    """Run N_THREADS threads for the given seconds; errors of the threads are raised here.

    Returns
    -------
    list of Sample
        About 200, evenly spaced in time.
    """
    with tempfile.TemporaryDirectory() as folder:
        shared = Soak(seed, Path(folder))
        threads = [threading.Thread(target=shared.work, args=(i,)) for i in range(N_THREADS)]
        start = time.monotonic()
        samples = [shared.sample(start)]
        for thread in threads:
            thread.start()
        try:
            while time.monotonic() - start < seconds and not shared.stop.wait(seconds / 200):
                samples.append(shared.sample(start))
        finally:
            shared.stop.set()
            for thread in threads:
                thread.join()
        if shared.error is not None:
            raise shared.error
    gc.collect()
    return samples


def growth(samples: list[Sample]) -> tuple[int, int]:
    """Return the growth of the median memory after the warm-up, and the permitted growth, in bytes."""
    resident = [sample.resident_bytes for sample in samples]
    n = len(resident)
    first = int(np.median(resident[int(WARM_UP * n) : int((WARM_UP + 0.2) * n)]))
    last = int(np.median(resident[int(0.8 * n) :]))
    return last - first, int(ALLOWED_GROWTH + ALLOWED_SHARE * first)


def report(samples: list[Sample]) -> dict[str, Any]:
    grown, allowed = growth(samples)
    last = samples[-1]
    return {
        "seconds": round(last.seconds, 1),
        "threads": N_THREADS,
        "explanations": last.explanations,
        "rows": last.rows,
        "explainers": last.models,
        "peak_resident_bytes": max(sample.resident_bytes for sample in samples),
        "growth_after_warm_up_bytes": grown,
        "allowed_growth_bytes": allowed,
        "python": sys.version.split()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path(".cache/soak"), help="folder of the results")
    options = parser.parse_args()
    samples = soak(options.seconds, options.seed)
    options.output.mkdir(parents=True, exist_ok=True)
    with open(options.output / "samples.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Sample._fields)
        writer.writerows(samples)
    lines = report(samples)
    text = json.dumps(lines, indent=1)
    (options.output / "report.json").write_text(text + "\n")
    print(text)
    if lines["growth_after_warm_up_bytes"] > lines["allowed_growth_bytes"]:
        sys.exit("memory grew")


if __name__ == "__main__":
    main()
