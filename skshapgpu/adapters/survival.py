"""Models whose outputs are the values of a survival function or cumulative hazard function at some times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from .schema import AdaptedModel

#: Magnitude of a margin for which the links "exp" and "gumbel" are exactly 0 or 1: exp(-800) is 0.
_SATURATED = 800.0


def require_times(times: np.ndarray, low: float, high: float, why: str) -> None:
    """Raise ``ValueError`` unless all times are in [low, high]; ``why`` gives the reason for these limits."""
    outside = times[(times < low) | (times > high)]
    if len(outside):
        raise ValueError(f"times: {outside[0]:g} is not between {low:g} and {high:g}: {why}")


def as_margins(
    adapted: AdaptedModel, times: np.ndarray, value: np.ndarray, intercept: np.ndarray
) -> AdaptedModel:
    """Return a model with an output for each time, whose margin is the value of the function at this time.

    ``adapted`` has one output. ``value``, of shape (n_nodes, n_times), has the values of all leaves at each
    time, and 0 at other nodes. The link is "identity".
    """
    ensemble = replace(
        adapted.ensemble,
        value=value,
        intercept=intercept,
        tree_output=np.full(adapted.ensemble.n_trees, -1 if len(times) > 1 else 0),
    )
    return replace(
        adapted,
        ensemble=ensemble,
        output_names=tuple(times.tolist()) if len(times) > 1 else None,
        link="identity",
        squared_error=False,
        predictions={},
    )


def by_link(
    adapted: AdaptedModel,
    times: np.ndarray,
    shifts: np.ndarray,
    link: Literal["logistic", "exp", "gumbel", "normal"],
    *,
    scale: float = 1.0,
    sign: int = 1,
) -> AdaptedModel:
    """Return a model whose outputs are a link of the shifted margin, with a shift for each time.

    ``adapted`` has one output. ``shifts`` are the numbers that are added to ``sign``, 1 or -1, times the
    margin. At a time with an infinite shift, the function is a constant; the link must then be "exp" or
    "gumbel". ``scale`` is ``AdaptedModel.link_scale``.
    """
    varies, ensemble = np.isfinite(shifts), adapted.ensemble
    predictions: dict[str, Callable[[Any], Any]] = {}
    if "raw" in adapted.predictions:
        predictions["raw"] = partial(_shifted, adapted.predictions["raw"], sign, shifts)
    intercept = np.where(varies, sign * ensemble.intercept[0] + shifts, np.copysign(_SATURATED, shifts))
    value = sign * ensemble.value * varies
    outputs = as_margins(adapted, times, value, intercept)
    return replace(outputs, link=link, link_scale=scale, predictions=predictions)


def _shifted(raw: Callable[[Any], Any], sign: int, shifts: np.ndarray, X: Any) -> np.ndarray:
    """Return the margin at each time, from the library's own function for the margin of the model."""
    margin = np.asarray(raw(X))
    shifted = sign * margin.astype(np.float64).reshape(-1, 1) + shifts
    return shifted.astype(margin.dtype)  # the dtype tells a comparison how the library rounds
