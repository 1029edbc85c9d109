"""Whether two checkouts of this package compute the same bits, for all kinds of values.

    python benchmarks/same_bits.py --other DIR
    python benchmarks/same_bits.py --other DIR --device cuda --select "*owen*"

Small models of all families are trained once. Then each checkout explains them in a process of its own, once
for each instruction set of the processor, and the results are compared. Values that differ are listed with
their largest difference.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before the imports that read them

import argparse
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

N_ROWS, N_BACKGROUND = 700, 60

#: Numbers of rows of a call: one row, fewer than a block, and enough for tables.
ROWS = (1, 37, N_ROWS)

#: Tuple of a model, its rows, and groups of its features.
Case = tuple[Any, np.ndarray, dict[str, list[int]]]

#: Tuple of a model that is not fitted, the rows to train it on, and their targets.
Untrained = tuple[Any, np.ndarray, np.ndarray]

#: Parameters of most models: one thread, and always the same random numbers.
ONE: dict[str, Any] = {"n_jobs": 1, "random_state": 0}


def data(n_columns: int, seed: int, n_rows: int = N_ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with missing values and a target far from zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns)).astype(np.float32)
    y = 50 + X[:, 0] * X[:, 1] + np.abs(X[:, 2]) - X[:, 3:].sum(axis=1) / n_columns
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, y


def classes(y: np.ndarray, n_classes: int) -> np.ndarray:
    return np.searchsorted(np.quantile(y, np.arange(1, n_classes) / n_classes), y)


class TrainingData(NamedTuple):
    """Rows of 9 columns and of 40; the 9 with codes of categories in column 4, and without missing values."""

    X: np.ndarray
    y: np.ndarray
    wide: np.ndarray
    wide_y: np.ndarray
    coded: np.ndarray
    filled: np.ndarray


def training_data() -> TrainingData:
    X, y = data(9, 0)
    wide, wide_y = data(40, 1, 4 * N_ROWS)
    coded = X.copy()
    coded[:, 4] = np.random.default_rng(2).integers(0, 40, N_ROWS)
    return TrainingData(X, y, wide, wide_y, coded, np.nan_to_num(X))


def trained_models() -> dict[str, Case]:
    """Train the models."""
    tables = training_data()
    untrained = (
        xgboost_models(tables) | lightgbm_models(tables) | sklearn_models(tables) | catboost_models(tables)
    )
    models = {}
    for name, (model, rows, target) in untrained.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(rows, target)
        n_columns = rows.shape[1]
        groups = {"first": [0, 1, 2], "second": [3, 5], "third": list(range(6, n_columns))}
        models[name] = model, rows[:N_ROWS], groups
    return models


def xgboost_models(tables: TrainingData) -> dict[str, Untrained]:
    from xgboost import XGBClassifier, XGBRegressor

    X, y = tables.X, tables.y
    types = ["q"] * 4 + ["c"] + ["q"] * 4
    by_category = XGBRegressor(n_estimators=12, max_depth=5, feature_types=types, **ONE)
    return {
        "xgboost-3": (XGBRegressor(n_estimators=20, max_depth=3, **ONE), X, y),
        "xgboost-6": (XGBClassifier(n_estimators=12, max_depth=6, **ONE), X, classes(y, 2)),
        "xgboost-classes": (XGBClassifier(n_estimators=4, max_depth=5, **ONE), X, classes(y, 4)),
        "xgboost-wide-14": (
            XGBRegressor(n_estimators=6, max_depth=14, **ONE),
            tables.wide,
            tables.wide_y,
        ),
        "xgboost-categories": (by_category, tables.coded, y),
    }


def lightgbm_models(tables: TrainingData) -> dict[str, Untrained]:
    from lightgbm import LGBMRegressor

    leaves: dict[str, Any] = {"num_leaves": 63, "min_child_samples": 2}
    by_category = LGBMRegressor(n_estimators=12, categorical_feature=[4], verbose=-1, **leaves, **ONE)
    linear = LGBMRegressor(n_estimators=8, num_leaves=7, linear_tree=True, verbose=-1, **ONE)
    return {
        "lightgbm-63": (by_category, tables.coded, tables.y),
        "lightgbm-linear": (linear, tables.filled, tables.y),
    }


def sklearn_models(tables: TrainingData) -> dict[str, Untrained]:
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        HistGradientBoostingClassifier,
        RandomForestRegressor,
    )

    y, filled = tables.y, tables.filled
    by_category = HistGradientBoostingClassifier(max_iter=12, categorical_features=[4], random_state=0)
    return {
        "histgb": (by_category, tables.coded, classes(y, 2)),
        "forest": (RandomForestRegressor(6, **ONE), filled, y),
        "forest-8": (RandomForestRegressor(8, max_depth=8, **ONE), filled, y),
        "trees-classes": (ExtraTreesClassifier(6, max_depth=9, **ONE), filled, classes(y, 3)),
    }


def catboost_models(tables: TrainingData) -> dict[str, Untrained]:
    from catboost import CatBoostClassifier

    X, y = tables.X, tables.y
    quiet = {"verbose": False, "allow_writing_files": False, "thread_count": 1, "random_seed": 0}
    return {
        "catboost": (CatBoostClassifier(iterations=20, depth=6, **quiet), X, classes(y, 2)),
        "catboost-classes": (CatBoostClassifier(iterations=6, depth=4, **quiet), X, classes(y, 3)),
    }


def computations(case: Case, device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what to compute for a model: a name, and a call that returns an array, or a list of arrays."""
    import skshapgpu
    from skshapgpu import TreeExplainer

    model, X, groups = case
    background = X[:N_BACKGROUND]
    weight = np.linspace(0.5, 2.0, N_BACKGROUND)
    classifies = hasattr(model, "classes_")

    def explained(**options: Any) -> Callable[..., Any]:
        def call(n_rows: int, **choice: Any) -> Any:
            explainer = TreeExplainer(model, device=device, n_jobs=1, **options)
            if "order" in choice:
                result = explainer.explain_interactions(X[:n_rows], **choice)
                return result.values, result.base_values
            labels = {}
            if options.get("model_output") == "log_loss":
                labels["y"] = model.predict(X[:n_rows]).ravel()
            explanation = explainer.explain(X[:n_rows], **labels, **choice)
            return explanation.values, explanation.base_values

        return call

    against: dict[str, Any] = {"data": background, "data_weight": weight}
    for precision in ("single", "double"):
        one: dict[str, Any] = {"precision": precision}
        counted: dict[str, Any] = {"data": background, "feature_perturbation": "tree_path_dependent"}
        for n_rows in ROWS:
            suffix = f"{n_rows} {precision}"
            for name, options in (("", one), (" data", one | against)):
                for index in ("SV", "BV"):
                    yield f"{index}{name} {suffix}", partial(explained(**options), n_rows, index=index)
                for index in ("SV", "OV"):
                    call = explained(**options, feature_groups=groups)
                    yield f"groups {index}{name} {suffix}", partial(call, n_rows, index=index)
                for index, order in (("SII", 2), ("STII", 2), ("BII", 2), ("SII", 3), ("BII", 3)):
                    call = partial(explained(**options), n_rows, index=index, order=order)
                    yield f"{index}{order}{name} {suffix}", call
            yield f"counted {suffix}", partial(explained(**one, **counted), n_rows)
            yield f"expected {suffix}", partial(explained(**one, expected_rows=10**8), n_rows)
            for output in ("probability", "log_loss", "response"):
                if classifies or output == "response":
                    call = explained(**one, **against, model_output=output)
                    yield f"{output} {suffix}", partial(call, n_rows)
            for algorithm in ("quadrature", "fast_v2", "fast_v1", "treeshap"):
                yield f"{algorithm} {suffix}", partial(explained(**one, algorithm=algorithm), n_rows)
    if device == "cpu":

        def dependence(features: Any) -> Any:
            return skshapgpu.partial_dependence(model, X, features, kind="both")["individual"]

        for features in ([0], [2, (0, 1)], [4]):
            yield f"dependence {features}", partial(dependence, features)


def compute(checkout: Path, source: Path, target: Path, device: str, select: str) -> None:
    """Compute all results with a checkout, and pickle them: arrays, or the name of the error."""
    from skshapgpu import _core

    if Path(_core.__file__).resolve().parents[1] != checkout:
        sys.exit(f"{checkout} has no compiled core: {_core.__file__} was imported")
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {}
    for name, case in pickle.loads(source.read_bytes()).items():
        for what, call in computations(case, device):
            if not fnmatch(f"{name} {what}", select):
                continue
            try:
                arrays = call()
            except (ValueError, TypeError, NotImplementedError) as error:
                results[f"{name} {what}"] = type(error).__name__
                continue
            arrays = arrays if isinstance(arrays, (tuple, list)) else [arrays]
            results[f"{name} {what}"] = [np.asarray(array) for array in arrays]
    target.write_bytes(pickle.dumps(results))


def difference(these: Any, others: Any) -> str | None:
    """Return how two results differ; None if they have the same bits."""
    if isinstance(these, str) or isinstance(others, str):
        if isinstance(these, str) and isinstance(others, str):
            return None if these == others else f"{these} instead of {others}"
        return f"{these if isinstance(these, str) else 'values'} instead of " + (
            others if isinstance(others, str) else "values"
        )
    for this, other in zip(these, others, strict=True):
        if (this.shape, this.dtype) != (other.shape, other.dtype):
            return f"{this.dtype} {this.shape} instead of {other.dtype} {other.shape}"
        if this.tobytes() != other.tobytes():
            gap = np.abs(this.astype(np.float64) - other).max() / max(np.abs(other).max(), 1e-300)
            return f"{gap:.1e} of the largest value"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--other", type=Path, required=True, metavar="DIR", help="checkout with a compiled core"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="device (cpu)")
    parser.add_argument(
        "--select", default="*", metavar="PATTERN", help='results to compare, such as "forest *BV*"'
    )
    arguments = parser.parse_args()
    this, other = Path(__file__).resolve().parents[1], arguments.other.resolve()
    sets = [""]
    if arguments.device == "cpu":
        from skshapgpu import _core

        sets = list(_core.instruction_sets())
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "models.pickle"
        source.write_bytes(pickle.dumps(trained_models()))
        for instruction_set in sets:
            results = []
            for number, checkout in enumerate((this, other)):
                target = Path(folder) / f"{number}.pickle"
                path = os.pathsep.join([str(checkout), *filter(None, sys.path[1:])])
                environment = os.environ | {"PYTHONPATH": path}
                if instruction_set:
                    environment["SKSHAPGPU_ISA"] = instruction_set
                # Without "site", whose hooks would import an editable installation, and without the current
                # folder, which may be the other checkout.
                program = (
                    f"import runpy; f = runpy.run_path({__file__!r})['compute']; from pathlib import Path; "
                    f"f(Path({str(checkout)!r}), Path({str(source)!r}), Path({str(target)!r}), "
                    f"{arguments.device!r}, {arguments.select!r})"
                )
                subprocess.run([sys.executable, "-S", "-P", "-c", program], env=environment, check=True)
                results.append(pickle.loads(target.read_bytes()))
            differences = {
                name: found
                for name in results[0]
                if (found := difference(results[0][name], results[1][name]))
            }
            n_values = sum(not isinstance(result, str) for result in results[0].values())
            print(
                f"{instruction_set or arguments.device}: {n_values} results with values, "
                f"{len(results[0]) - n_values} refusals, {len(differences)} differ",
                flush=True,
            )
            for name, text in differences.items():
                print(f"  {name}: {text}")
            failed |= bool(differences)
    sys.exit(failed)


if __name__ == "__main__":
    main()
