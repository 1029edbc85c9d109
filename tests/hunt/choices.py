"""Modes, and the choices that are drawn for some of the modes: each dimension is a list."""

from __future__ import annotations

from typing import Any

from . import typed_columns, typed_sources, typed_steps

#: Frequencies relative to the other choices.
MODES = {
    "values": 6,
    "background": 5,
    "counted covers": 2,
    "many rows": 2,
    "interactions": 3,
    "background interactions": 2,
    "banzhaf": 1,
    "triples": 1,
    "probability": 2,
    "log_loss": 1,
    "saved": 1,
    "permuted": 1,
    "grouped": 2,
    "transformer": 2,
    "cross-validated": 2,
    "selected": 1,
    "fitted again": 1,
    "batches": 3,
    "importances": 1,
    "views": 1,
    "covers": 1,
    "command line": 1,
    "groups": 5,
    "partial dependence": 5,
    "responses": 2,
    "trained further": 3,
    "patched": 3,
    "typed": 8,
    "mlflow": 1,
}

#: Models for which a mode can be drawn; with other models, it would be refused or have nothing to check.
UNLIKELY: dict[str, Any] = {
    "probability": lambda family, task: task in ("binary", "rare binary", "classes", "rare class"),
    "log_loss": lambda family, task: task in ("binary", "rare binary", "regression"),
    "covers": lambda family, task: family.library == "sklearn",
    "responses": lambda family, task: task in ("counts", "positive", "cox", "times", "survival"),
}

#: Modes that support models with linear leaves; other modes would be refused.
OF_LINEAR_LEAVES = ("background", "banzhaf", "many rows", "background interactions", "typed")

#: Modes with calls of enough rows for tables by intervals.
WITH_MANY_ROWS = ("many rows", "transformer", "batches")

_GROUPS = {
    # Ways to name the columns of a group; an "input" group is all columns made from one column of X.
    "groups": ["names", "positions", "both", "input"],
    # The replacement of unknown features.
    "perturbation": ["path-dependent", "interventional", "counted"],
    # Results for the groups.
    "request": ["SV", "SV", "BV", "OV", "OV", "SII", "STII", "BII"],
}

_CURVES = {
    "feature": ["name", "position", "pair of names", "pair of positions", "name and position"],
    "grid": ["default", "few", "exact", "percentiles", "custom by name", "custom by position"],
    "curve": ["average", "average", "individual", "both"],
    "curve of": ["raw", "raw", "probability", "response"],
    "curve by": ["columns", "columns", "input", "group"],
    "categorical": ["by itself", "by itself", "mask", "positions", "names"],
    "weights of curves": ["none", "some"],
    "centered": ["no", "no", "yes"],
}

_RESPONSES = {"response": ["response", "survival", "survival", "cumulative_hazard"]}

_FURTHER = {"further": ["explainer", "explainer", "saved", "from_fitted", "batches"]}

_PATCHED = {
    "patched": ["TreeExplainer", "TreeExplainer", "Explainer", "GPUTreeExplainer"],
    "tree limit": ["none", "none", "all", "half", "one", "best"],
    "slice": ["whole", "whole", "head", "middle"],
    "patched data": ["none", "none", "background", "counted"],
    "patched request": ["values", "values", "call", "interactions"],
}

_TYPED: dict[str, list[Any]] = {
    "first type": list(typed_columns.TYPES),
    "second type": list(typed_columns.TYPES),
    "first step": list(typed_steps.STEPS),
    "source": list(typed_sources.SOURCES),
    "batch size": [3, 7, 20, "auto"],
    "typed perturbation": ["path-dependent", "interventional", "columns of X"],
    "typed model": ["forest", "forest", "histograms", "classifier", "xgboost", "lightgbm", "catboost"],
    "typed sink": ["values.npy", "values.parquet", "values/", "batch explainer", "explain", "mlflow"],
}

#: Choices that are drawn for single modes, by their names.
OF_MODES: dict[str, dict[str, list[Any]]] = {
    "groups": _GROUPS,
    "partial dependence": _CURVES,
    "responses": _RESPONSES,
    "trained further": _FURTHER,
    "patched": _PATCHED,
    "typed": _TYPED,
}
