"""Draws of cases: deterministic choices in every dimension.

``draw(seed)`` returns the same case as long as the lists of choices stay the same. Keywords fix choices
instead of drawing them: ``draw(7, family="lightgbm", mode="batches")``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib import util
from typing import Any
from zlib import crc32

import numpy as np

from . import containers, data, models, wrappers
from .choices import MODES, OF_LINEAR_LEAVES, OF_MODES, UNLIKELY, WITH_MANY_ROWS

OFFSETS = [0.0, 0.0, 0.0, 1e1, 1e3, 1e6, 1e9, 1e12, -1e2, -1e5, -1e8, -1e11]
SCALES = [1.0, 1.0, 1.0, 1e-6, 1e-3, 1e3, 1e6, 1e9, 1e12]


@dataclass(frozen=True)
class Draw:
    """One choice in each dimension of a case."""

    seed: int
    family: str
    task: str
    params: dict[str, Any]
    columns: tuple[str, ...]
    names: str
    n_train: int
    style: str
    offset: float
    scale: float
    weights: bool
    unseen: bool
    trained_on: str
    steps: str
    outer: str
    container: str
    background: int
    background_weights: bool
    mode: str
    index: str
    form: str
    options: dict[str, Any]
    tables: str
    device: str
    gpu_arrays: str
    early: bool
    asked: dict[str, Any]
    lanes: str

    def __str__(self) -> str:
        return ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))

    def dimensions(self) -> dict[str, str]:
        """Return the choices that the table counts."""
        offset = "0" if self.offset == 0 else f"{abs(self.offset):.0e}"
        plain = self.task not in ("regression", "outputs")
        lists = {
            name: str(getattr(self, name))
            for name in ("family", "task", "steps", "outer", "trained_on", "container", "mode", "names")
        }
        lists |= {
            "offset in scales": "-" if plain else offset,
            "scale": "-" if plain else f"{self.scale:.0e}",
            "sample weights": str(self.weights),
        }
        lists["tables"] = self.tables if self.mode in WITH_MANY_ROWS else "-"
        lists["lanes"] = self.lanes
        lists["columns with values"] = self.options.get("columns", "default")
        for name in ("precision", "algorithm", "outputs", "n_jobs", "memory_limit"):
            lists[name] = str(self.options.get(name, "default"))
        for choices in OF_MODES.values():
            lists |= {name: str(self.asked.get(name, "-")) for name in choices}
        return lists


class Chooser:
    """Chooser of one of several values, unless the choice of this name is fixed.

    Each choice has its own random numbers, so that one more value in a list changes no other choice.
    """

    def __init__(self, seed: int, fixed: dict[str, Any]) -> None:
        self._seed, self._fixed = seed, fixed
        self._rngs: dict[str, np.random.Generator] = {}

    def __call__(self, name: str, choices: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
        shares = None if weights is None else np.array(weights, float) / sum(weights)
        if name not in self._rngs:
            self._rngs[name] = np.random.default_rng([self._seed, crc32(name.encode())])
        drawn = choices[int(self._rngs[name].choice(len(choices), p=shares))]
        return self._fixed.get(name, drawn)


def draw(seed: int, **fixed: Any) -> Draw:
    """Draw the case of a seed."""
    choose = Chooser(seed, fixed)
    name = choose("family", models.installed())
    family = models.FAMILIES[name]
    task = choose("task", family.tasks)
    params = {**family.options(choose, task), **fixed.get("params", {})}
    steps, columns = _steps(choose, family, task)
    trained_on, columns, params = _training(choose, name, task, steps, columns, params)
    outer = _outer(choose, family, task, steps)
    mode = _mode(choose, family, task, params)
    container = choose("container", containers.choices(_has_categories(columns)))
    if trained_on == "csr" and container not in containers.ARRAYS + containers.SPARSE:
        container = "csr"
    return Draw(
        seed=seed,
        family=name,
        task=task,
        params=params,
        columns=columns,
        names=choose("names", _names(name)),
        n_train=choose("n_train", [40, 60, 100, 200, 300]),
        style=choose("style", ["numbers", "gaps", "text", "floats"] if name != "xgboost" else ["numbers"]),
        offset=choose("offset", OFFSETS),
        scale=choose("scale", SCALES),
        weights=choose("weights", [False, False, True]) and outer not in wrappers.WITHOUT_WEIGHTS,
        unseen=choose("unseen", [False, True]) and name != "xgboost",
        trained_on=trained_on,
        steps=steps,
        outer=outer,
        container=container,
        background=choose("background", [1, 2, 4, 5]),
        background_weights=choose("background_weights", [False, True]),
        mode=mode,
        index=choose("index", ["SII", "STII", "BII"]),
        form=choose("form", ["matrices", "occurring", "number", "list"]),
        options=_options(choose, mode, task),
        tables=choose("tables", ["where they pay", "wherever possible", "cells wherever possible"]),
        device=choose("device", ["cpu", "cuda", "cuda", "auto"]),
        gpu_arrays=choose("gpu_arrays", ["none", "cupy", "torch"]),
        early=choose("early_stopping", [False, False, False, True])
        and _can_stop_early(family, task, steps, columns, trained_on, mode, outer),
        asked={name: choose(name, choices) for name, choices in OF_MODES.get(mode, {}).items()},
        lanes=choose("lanes", ["where they pay", "wherever possible"]),
    )


def _steps(choose: Chooser, family: models.Family, task: str) -> tuple[str, tuple[str, ...]]:
    """Draw the steps before the model, and the kinds of the columns that they can take."""
    steps = choose("steps", list(wrappers.STEPS), [8] + [1] * (len(wrappers.STEPS) - 1))
    native = family.categories and steps in wrappers.ANY_COLUMNS and choose("categories", [True, False])
    columns = _columns(choose, family, steps, native)
    if task in ("ranking", "outliers") and steps != "none":
        steps = "none"
        columns = tuple(kind for kind in columns if native or kind not in data.CATEGORIES) or (
            "normal",
            "few",
        )
    return steps, columns


def _training(
    choose: Chooser, name: str, task: str, steps: str, columns: tuple[str, ...], params: dict[str, Any]
) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    """Draw the container of the training rows; return it with columns and parameters that go with it."""
    family = models.FAMILIES[name]
    trainable = containers.installed(containers.TRAINING)
    trained_on = choose("trained_on", trainable, [6, 12, 3] + [1] * (len(trainable) - 3))
    if _has_categories(columns):
        trained_on = "frame"
    elif name in models.WITH_CODES and steps == "none" and task not in ("ranking", "outputs"):
        columns, params = _with_codes(choose, columns, params)
        trained_on = "array" if "codes" in params else trained_on
    if trained_on == "csr" and (steps != "none" or name in ("histograms", "boosting", "sums")):
        trained_on = "array"
    if trained_on == "csr" and family.library == "sklearn":
        columns = tuple("normal" if "missing" in kind else kind for kind in columns)
    if trained_on == "polars" and family.library in ("lightgbm", "catboost"):
        trained_on = "frame"
    return trained_on, columns, params


def _mode(choose: Chooser, family: models.Family, task: str, params: dict[str, Any]) -> str:
    mode = choose("mode", list(MODES), list(MODES.values()))
    if mode in UNLIKELY and not UNLIKELY[mode](family, task) and choose("likely", [True, True, True, False]):
        mode = "background"
    if "linear_tree" in params and mode not in OF_LINEAR_LEAVES:
        mode = "background"
    return mode


def _has_categories(columns: tuple[str, ...]) -> bool:
    return any(kind in (*data.CATEGORIES, data.WITH_GAPS) for kind in columns)


def _can_stop_early(
    family: models.Family,
    task: str,
    steps: str,
    columns: tuple[str, ...],
    trained_on: str,
    mode: str,
    outer: str,
) -> bool:
    """Return whether the model can be trained with other rows on which it is evaluated."""
    return (
        family.library in ("xgboost", "lightgbm", "catboost")
        and task != "ranking"
        and steps == "none"
        and not _has_categories(columns)
        and trained_on in ("array", "frame", "float32")
        and mode not in ("cross-validated", "fitted again", "transformer")
        and outer in ("none", "frozen", "pickled", "native", "file", "frozen in a pipeline")
    )


def _columns(choose: Chooser, family: models.Family, steps: str, native: bool) -> tuple[str, ...]:
    kinds = list(data.NUMERIC)
    if steps in ("imputer", "nested", "neighbours") or (
        family.missing and steps not in ("pca", "select", "normalizer")
    ):
        kinds += ["missing", "missing", "all missing but few"]
    if family.infinite and steps in wrappers.ANY_COLUMNS[:-1]:
        kinds += ["infinite"]
    if steps != "pca":
        kinds += ["huge integer"]
    if native or steps in wrappers.WITH_CATEGORIES:
        kinds += data.CATEGORIES * 3
    if native and family.library != "catboost":
        kinds += [data.WITH_GAPS] * 3
    # Few columns, if steps make several of each: the definition needs all sets of the model's columns.
    n = choose("n_columns", [2, 3, 4] if steps in ("one-hot", "union") else [2, 3, 4, 5, 6, 7, 8])
    columns = [choose("kind", kinds) for _ in range(n)]
    if steps in wrappers.WITH_CATEGORIES:
        columns[0] = "text"
    if all(kind == "constant" for kind in columns):
        columns[-1] = "normal"
    return choose("columns", [tuple(columns)])


def _with_codes(
    choose: Chooser, columns: tuple[str, ...], params: dict[str, Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Draw some columns as codes of categories, and declare them to the model by their positions."""
    where = [i for i in range(len(columns)) if choose("code", [False, False, True])]
    if not where or not choose("codes", [False, False, True]):
        return columns, params
    kinds = tuple(data.CODES if i in where else kind for i, kind in enumerate(columns))
    types = ["c" if kind == data.CODES else "q" for kind in kinds]
    return kinds, {**params, "codes": where, "types": types}


def _names(family: str) -> list[str]:
    return [name for name in data.NAMES if family != "lightgbm" or name != "unicode"]


def hasattr_importances(family: models.Family) -> bool:
    """Return whether fitted models have importances for RFE."""
    return family not in (
        models.FAMILIES["histograms"],
        models.FAMILIES["bagging"],
        models.FAMILIES["isolation"],
        models.FAMILIES["sums"],
        models.FAMILIES["survival"],
    )


def _outer(choose: Chooser, family: models.Family, task: str, steps: str) -> str:
    choices = list(wrappers.OUTER)
    if task not in ("binary", "rare binary"):
        choices = [name for name in choices if name not in wrappers.OF_CLASSIFIERS]
    if steps != "none" or not hasattr_importances(family):
        choices = [name for name in choices if name != "RFE"]
    if util.find_spec("imblearn") is None:
        choices = [name for name in choices if name != "sampler"]
    if task in ("ranking", "outliers", "times"):
        choices = [name for name in choices if name not in ("search", "RFE")]
    if steps == "none" and family.library in ("xgboost", "lightgbm"):
        choices += wrappers.NATIVE
    if steps == "none" and family.library == "catboost":
        choices += ["file"]
    return choose("outer", choices)


def _options(choose: Chooser, mode: str, task: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    precision = choose("precision", ["single", "single", "double"])
    if precision != "single":
        options["precision"] = precision
    algorithm = choose("algorithm", ["auto", "auto", "auto", "quadrature", "fast_v2", "treeshap", "fast_v1"])
    if algorithm != "auto" and (mode in ("values", "batches") or algorithm == "quadrature"):
        options["algorithm"] = algorithm
    if choose("columns with values", ["all", "all", "used"]) == "used":
        options["columns"] = "used"
    if choose("n_jobs", [None, None, 2]):
        options["n_jobs"] = 2
    if choose("memory_limit", [None, None, None, "20MB"]):
        options["memory_limit"] = "20MB"
    if (
        task in ("binary", "rare binary")
        and mode != "log_loss"
        and choose("outputs", ["auto", "auto", "all"]) == "all"
    ):
        options["outputs"] = "all"
    return options
