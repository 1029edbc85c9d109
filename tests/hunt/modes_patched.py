"""Tree explainers of shap under patch_shap, with tree limits, slices of models and early stopping.

The reference is XGBoost's own contributions of the same rounds, or the definition by predictions of these
rounds. For all other requests it is shap's result without the patch, unless the definition says that shap is
wrong.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from importlib import util
from typing import Any

import numpy as np
import pandas as pd

from skshapgpu import ShapFallbackWarning, patch_shap

from . import containers, games, readers, trees, truth
from .case import N_DEFINED, Case
from .margins import by_output, library_of, margin_of
from .modes import outputs_last
from .report import NotDrawnError, Report


class _Subject:
    """A model, sliced as drawn, the rounds that the tree limit leaves, and rows."""

    def __init__(self, case: Case) -> None:
        self.case, choices = case, case.draw.asked
        self.model = case.fitted.last
        self.is_xgboost = library_of(self.model) == "xgboost"
        self.X, self.background = self._rows()
        self.sliced = self.is_xgboost and self._cut(choices["slice"])
        self.limit = self._limit(choices["tree limit"])
        self.data = choices["patched data"]
        if case.data.categorical and self.data != "none":
            raise NotDrawnError("patched: shap keeps plain values of background rows")

    def _rows(self) -> tuple[Any, Any]:
        """Return rows as the model saw them in training, but none near thresholds, which shap rounds."""
        case = self.case
        frame = isinstance(case.train, pd.DataFrame)

        def seen(rows: pd.DataFrame) -> Any:
            rows = case.library(
                "transform", case.fitted.transform, rows if frame else rows.to_numpy(np.float64)
            )
            return rows

        return seen(case.data.explain), seen(case.background_frame)

    @cached_property
    def booster(self) -> Any:
        return self.model if type(self.model).__name__ == "Booster" else self.model.get_booster()

    def _cut(self, how: str) -> bool:
        rounds = self.booster.num_boosted_rounds()
        if how == "whole" or rounds < 3 or self.case.draw.params.get("booster") == "dart":
            return False
        best = getattr(self.booster, "best_iteration", None) if self.booster.attr("best_iteration") else None
        stop = rounds - 1 if best is None else max(2, int(best))
        self.model = self.booster[:stop] if how == "head" else self.booster[1:stop]
        self.__dict__.pop("booster")
        return True

    @cached_property
    def trees_of_a_round(self) -> int:
        return len(self.booster.get_dump()) // max(self.booster.num_boosted_rounds(), 1)

    def _limit(self, how: str) -> int | None:
        if not self.is_xgboost or how == "none":
            return None
        rounds = self.booster.num_boosted_rounds()
        best = self.booster.attr("best_iteration")
        limit = {"all": -1, "half": max(1, rounds // 2), "one": 1}.get(how)
        if how == "best":
            limit = rounds if best is None else int(best) + 1
        return -1 if limit is None or limit == -1 else limit * self.trees_of_a_round

    @cached_property
    def rounds(self) -> int:
        """Number of rounds that shap explains; 0 stands for all."""
        best = self.booster.attr("best_iteration")
        if self.limit is None:
            return 0 if best is None else int(best) + 1
        return max(self.limit, 0) // self.trees_of_a_round

    def matrix(self, X: Any) -> Any:
        import xgboost

        missing = getattr(self.case.fitted.last, "missing", np.nan)
        names = {} if hasattr(X, "columns") else {"feature_names": self.booster.feature_names}
        return xgboost.DMatrix(X, missing=missing, enable_categorical=True, **names)

    def margin(self, X: Any) -> np.ndarray:
        """Predict the margin with the rounds that are explained."""
        if not self.is_xgboost:
            return margin_of(self.model, X)
        margins = self.booster.predict(self.matrix(X), iteration_range=(0, self.rounds), output_margin=True)
        return by_output(margins)

    def contributions(self, kind: str) -> np.ndarray:
        """Return XGBoost's own values or interactions, with outputs last and without base values."""
        contributions = self.booster.predict(
            self.matrix(self.X), iteration_range=(0, self.rounds), **{kind: True}
        )
        ndim = 3 if kind == "pred_contribs" else 4
        contributions = contributions if contributions.ndim == ndim else contributions[:, None]
        cut = contributions[..., :-1] if kind == "pred_contribs" else contributions[..., :-1, :-1]
        return np.moveaxis(cut, 1, -1).astype(float)

    def coalition_values(self) -> np.ndarray | None:
        """Return interventional coalition values of the first rows."""
        p = containers.n_columns(self.X)
        if p > truth.MOST_COLUMNS:
            return None
        rows = containers.rows(self.X, range(N_DEFINED))
        pairs = self.case.library(
            "mixtures", truth.coalition_values_of_pairs, self.margin, rows, self.background, p
        )
        return truth.mean_coalition_values(pairs, None)


def patched(case: Case, report: Report) -> None:
    """Compare values under the patch with the truth."""
    if util.find_spec("shap") is None:
        raise NotDrawnError("patched: shap is not installed")
    if case.draw.early and case.draw.family == "lightgbm":
        raise NotDrawnError("patched: shap explains all rounds of LightGBM")
    subject = _Subject(case)
    interactions = case.draw.asked["patched request"] == "interactions"
    dies = case.draw.family == "catboost" and case.n_outputs > 1 and subject.data != "none"
    error = None
    with patch_shap(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            got, base = _of_shap(subject)
        except Exception as raised:
            error = raised
    if error is not None:
        if dies:
            raise NotDrawnError("patched: shap dies of several outputs of CatBoost")
        case.library("shap", _of_shap, subject)  # what shap refuses, too, is no finding
        raise error
    refused = [warning for warning in caught if issubclass(warning.category, ShapFallbackWarning)]
    right = None if refused else _truth(subject, interactions)
    if refused:
        report.refusals.append(str(refused[0].message).partition(": ")[2][:60])
    if right is None:
        if dies:  # the process, in the constructor of shap
            raise NotDrawnError("patched: shap dies of several outputs of CatBoost")
        right = outputs_last(case.library("shap", _of_shap, subject)[0], 4 if interactions else 3)
    got = outputs_last(got, 4 if interactions else 3)
    if got.shape[-1] == 2 and right.shape[-1] == 1:
        right = np.concatenate([-right, right], axis=-1)
    k = right.shape[-1]
    margins = subject.margin(subject.X)
    scale = np.abs(right).reshape(-1, k).max(axis=0) + np.ptp(margins, axis=0).max()
    size = np.abs(margins).max()
    allowed = 2e-5 * scale + 3e-6 * (size if subject.is_xgboost else 0.0) + 1e-13 * size
    allowed = np.broadcast_to(allowed, k)
    check = f"patched {'interactions' if interactions else 'values'}: {subject.data}"
    findings = Report()
    findings.close(check, got[: len(right)], right, allowed)
    report.checks[check] += 1
    if findings.findings and not refused and not _is_right(subject, got, allowed, interactions):
        report.findings += findings.findings
    if refused:
        return
    if not interactions and subject.data != "counted":
        total = np.reshape(base, (1, -1)) + got.sum(axis=1)
        both = np.concatenate([1 - margins, margins], axis=1)
        expected = both if total.shape[1] == 2 and margins.shape[1] == 1 else margins
        report.close(
            "additivity of patched values", total, expected, 3 * allowed + 1e-5 * np.abs(expected).max()
        )


def _of_shap(subject: _Subject) -> tuple[np.ndarray, Any]:
    """Return values or interactions of an explainer of shap, and its expected value."""
    import shap

    choices = subject.case.draw.asked
    options: dict[str, Any] = {"feature_perturbation": "tree_path_dependent"}
    if subject.data == "background":
        options = {"data": subject.background, "feature_perturbation": "interventional"}
    elif subject.data == "counted":
        options["data"] = subject.background
    cls = getattr(shap, choices["patched"])
    if choices["patched"] == "Explainer":
        options = {"masker": options["data"]} if "data" in options and subject.data == "background" else {}
        options["algorithm"] = "tree"
    explainer = cls(subject.model, **options)
    request = choices["patched request"]
    if request == "call" and subject.limit is None:
        return explainer(subject.X).values, explainer.expected_value
    named = {} if subject.limit is None else {"tree_limit": subject.limit}
    if request == "interactions":
        interactions_of_shap = explainer.shap_interaction_values(subject.X, **named)
        return np.stack(interactions_of_shap, axis=-1) if isinstance(
            interactions_of_shap, list
        ) else interactions_of_shap, explainer.expected_value
    values = explainer.shap_values(subject.X, check_additivity=False, **named)
    return values, explainer.expected_value


def _truth(subject: _Subject, interactions: bool) -> np.ndarray | None:
    if subject.data == "background":
        coalitions = subject.coalition_values()
        if coalitions is None:
            return None
        return games.matrices(coalitions, "SII") if interactions else games.values(coalitions)
    if subject.data == "none" and subject.is_xgboost:
        return subject.contributions("pred_interactions" if interactions else "pred_contribs")
    return None


def _is_right(subject: _Subject, got: np.ndarray, allowed: np.ndarray, interactions: bool) -> bool:
    """Return whether values that differ from shap's are right by the definition."""
    if subject.data == "background" or subject.limit is not None or subject.sliced:
        return False
    case, p = subject.case, containers.n_columns(subject.X)
    if p > truth.MOST_COLUMNS or not readers.readable(subject.model):
        return case.has_combinations or bool(case.data.categorical)
    model_trees = readers.trees_of(subject.model)
    if subject.data == "counted":
        model_trees = trees.counted(
            model_trees, readers.rows_of(subject.model, subject.background, case.categories), None
        )
    rows = readers.rows_of(subject.model, containers.rows(subject.X, range(N_DEFINED)), case.categories)
    coalitions = trees.coalition_values(model_trees, rows, case.n_outputs)
    right = games.matrices(coalitions, "SII") if interactions else games.values(coalitions)
    if got.shape[-1] == 2 and right.shape[-1] == 1:
        right = np.concatenate([-right, right], axis=-1)
    trial = Report()
    trial.close("", got[:N_DEFINED], right, allowed)
    return not trial.findings


PATCHED = {"patched": patched}
