"""Walk the trees of some models, for run.py, which counts the instructions; prints JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from skshapgpu import TreeExplainer, _core
from skshapgpu._common.algorithms import SHAP_VALUES

N_ROWS = 256

X, Y = make_friedman1(3000, 20, random_state=0)
MODELS = {
    "forest of depth 4": RandomForestRegressor(20, max_depth=4, random_state=0),
    "forest of depth 6": RandomForestRegressor(20, max_depth=6, random_state=0),
    "forest of depth 8": RandomForestRegressor(20, max_depth=8, random_state=0),
    "forest of depth 16": RandomForestRegressor(10, max_depth=16, random_state=0),
    "boosting, 31 leaves": HistGradientBoostingRegressor(max_iter=40, random_state=0),
}


def main() -> None:
    """Walk each model twice, so that the second walk finds everything in place."""
    walks = []
    for name, model in MODELS.items():
        model.fit(X, Y)
        for precision in ("single", "double"):
            explainer = TreeExplainer(model, device="cpu", algorithm="quadrature", precision=precision)
            plan = explainer._compiled.of(SHAP_VALUES).plan()
            rows = np.ascontiguousarray(X[:N_ROWS])
            _core.walk_seconds(plan, rows)
            os.getppid()  # marks the beginning and the end for instructions.c
            _core.walk_seconds(plan, rows)
            os.getppid()
            n_leaves = plan.info()["n_leaves"]
            walks.append({"name": name, "precision": precision, "n_rows": N_ROWS, "n_leaves": n_leaves})
    print(json.dumps({"core": core_address(), "walks": walks}))


def core_address() -> int:
    """Return the address at which the core begins in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return min(int(line.split("-")[0], 16) for line in lines if line.endswith(_core.__file__))


if __name__ == "__main__":
    main()
