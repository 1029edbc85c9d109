"""Survival models, and functions of their margins, computed by the hunt or by the models' libraries."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module, util
from typing import Any, NamedTuple

import numpy as np

from .margins import library_of

#: Fields of the labels of survival tasks: the time until an event, and whether the event was seen.
EVENT, TIME = "event", "time"


def labels(signal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw times, most of which end with an event, in the form that scikit-survival takes."""
    times = np.round(10 * np.exp(np.clip(0.7 * signal, -2, 2)), 1) + 0.1
    seen = rng.random(len(signal)) < 0.7
    seen[np.argsort(times)[[0, -1]]] = True
    return np.array(list(zip(seen, times)), dtype=[(EVENT, bool), (TIME, float)])


if util.find_spec("xgboost") is not None:
    import xgboost

    class AcceleratedTime(xgboost.XGBRegressor):
        """Regressor of censored times, which XGBoost trains without its wrapper only."""

        def fit(self, X: Any, y: np.ndarray, sample_weight: Any = None, **fit_params: Any) -> Any:
            rows = xgboost.DMatrix(X, enable_categorical=True, missing=self.missing, weight=sample_weight)
            rows.set_float_info("label_lower_bound", y[TIME])
            rows.set_float_info("label_upper_bound", np.where(y[EVENT], y[TIME], np.inf))
            self._Booster = xgboost.train(self.get_xgb_params(), rows, self.get_num_boosting_rounds())
            return self


def options(choose: Callable[..., Any], task: str) -> dict[str, Any]:
    kind = choose(
        "survival model", ["RandomSurvivalForest", "ExtraSurvivalTrees", "SurvivalTree", "boosting"]
    )
    options: dict[str, Any] = {"max_depth": choose("depth", [1, 2, 4]), "random_state": 0}
    if kind == "boosting":
        options |= {"loss": choose("survival loss", ["coxph", "coxph", "squared", "ipcwls"])}
        kind = "GradientBoostingSurvivalAnalysis"
    if kind != "SurvivalTree":
        options["n_estimators"] = choose("trees", [1, 2, 5, 15])
    return {"kind": kind, **options}


def build(task: str, params: dict[str, Any], categorical: list[int]) -> Any:
    """Build an unfitted model of scikit-survival."""
    kind = params["kind"]
    module = import_module("sksurv.tree" if kind == "SurvivalTree" else "sksurv.ensemble")
    return getattr(module, kind)(**{name: value for name, value in params.items() if name != "kind"})


class Function(NamedTuple):
    """A function of the margin and its derivative; both take margins, and labels that they ignore."""

    of: Callable[..., np.ndarray]
    derivative: Callable[..., np.ndarray]


EXPONENTIAL = Function(lambda z, y: np.exp(z) + 0 * y, lambda z, y: np.exp(z) + 0 * y)


def is_forest(model: Any) -> bool:
    """Return whether the functions of a model are means over its leaves."""
    return library_of(model) == "sksurv" and not hasattr(model, "loss")


def of_rows(model: Any, name: str, times: np.ndarray, X: Any) -> np.ndarray:
    """Return scikit-survival's own function for each row at the times: (n_rows, n_times)."""
    steps = getattr(model, f"predict_{name}_function")(X)
    return np.array([np.atleast_1d(step(times)) for step in steps], float)


def functions(model: Any, name: str, times: np.ndarray, X: Any, margins: np.ndarray) -> list[Function] | None:
    """Return the function of the margin for each time; None if the model has no function of this name.

    The baseline hazard is computed from the first row of X and its margin.
    """
    if library_of(model) == "xgboost" and name == "survival" and model.objective == "survival:aft":
        return [_aft(model, time) for time in times]
    if library_of(model) == "sksurv" and getattr(model, "loss", "") == "coxph":
        hazards = of_rows(model, "cumulative_hazard", times, X)[0] / np.exp(margins[0, 0])
        return [_cox(name, hazard) for hazard in hazards]
    return None


def _cox(name: str, hazard: float) -> Function:
    if name == "cumulative_hazard":
        return Function(*[lambda z, y: hazard * np.exp(z) + 0 * y] * 2)

    def survival(z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.exp(-hazard * np.exp(z)) + 0 * y

    return Function(survival, lambda z, y: -hazard * np.exp(z) * survival(z, y))


def _aft(model: Any, time: float) -> Function:
    """Return the probability that z + scale * noise, the logarithm of the time, exceeds log(time)."""
    from scipy import stats

    params = model.get_xgb_params()
    # "extreme" is the distribution of the smallest of many.
    kinds = {"normal": stats.norm, "logistic": stats.logistic, "extreme": stats.gumbel_l}
    noise = kinds[params.get("aft_loss_distribution") or "normal"]
    scale = float(params.get("aft_loss_distribution_scale") or 1.0)
    return Function(
        lambda z, y: noise.sf((np.log(time) - z) / scale) + 0 * y,
        lambda z, y: noise.pdf((np.log(time) - z) / scale) / scale + 0 * y,
    )
