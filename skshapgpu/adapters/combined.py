"""Weighted sums of fitted models that no estimator of scikit-learn forms, such as the difference of two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .._common.checks import with_article
from ..errors import UnsupportedModelError
from .schema import AdaptedModel
from .sklearn_members import fitted_member
from .sums import weighted_sum


def sum_of_models(models: Sequence[Any], weights: npt.ArrayLike) -> AdaptedModel:
    """Return the weighted sum of the margins of fitted models, as a model that can be explained.

    The difference of two models has the weights 1 and -1: its values say which features make the models
    differ, row by row. Everything works for it that works for a single model, but it has no probabilities.

    Parameters
    ----------
    models : sequence of fitted models
        Models of any supported library, which take the same X. The steps of a pipeline are read as those of a
        member of a ``VotingRegressor`` are.
    weights : array-like of shape (n_models,)
        The weight of each model.

    Returns
    -------
    AdaptedModel
        The sum, which :class:`~skshapgpu.TreeExplainer` and :func:`~skshapgpu.explain` take as a model.

    Raises
    ------
    UnsupportedModelError
        A model cannot be explained, or the margins cannot be added up: they have different units, such as
        log-odds and probabilities, or different outputs; or the models read the same X in different ways.
    ValueError
        There is no model, or not one finite weight for each.
    TypeError
        The models are not in a list or a tuple.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    >>> from skshapgpu import explain
    >>> from skshapgpu.adapters import sum_of_models
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> forest = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> boosting = HistGradientBoostingRegressor(max_iter=20).fit(X, y)
    >>> explain(sum_of_models([boosting, forest], [1, -1]), X).shape
    (442, 10)
    """
    if not isinstance(models, (list, tuple)):
        raise TypeError(f"models must be a list of fitted models, not {with_article(models)}")
    factors = np.asarray(weights)
    are_numbers = factors.dtype.kind in "biuf" and bool(np.isfinite(factors).all())
    if not len(models) or factors.shape != (len(models),) or not are_numbers:
        raise ValueError(
            f"weights must be a finite number for each of the {len(models)} models, at least one"
        )
    factors = factors.astype(np.float64)
    fitted = [fitted_member("sum", model) for model in models]
    members = [member.model for member in fitted]
    first, n_outputs = members[0], members[0].ensemble.n_outputs
    for member in members:
        if member.no_margin is not None:
            raise UnsupportedModelError(
                "cannot explain a sum of models one of which has no margin, only a mean of probabilities: "
                "explain each of the models"
            )
        if (member.link, member.link_scale, member.binary) != (first.link, first.link_scale, first.binary):
            raise UnsupportedModelError(
                "cannot explain a sum of models whose margins have different units, such as log-odds and "
                "probabilities: explain each of the models"
            )
        names = (member.output_names, member.class_names)
        if member.ensemble.n_outputs != n_outputs or names != (first.output_names, first.class_names):
            raise UnsupportedModelError(
                "cannot explain a sum of models with different outputs or classes: explain each of the models"
            )
    parts = [member.part(factor * np.eye(n_outputs)) for member, factor in zip(fitted, factors)]
    adapted = weighted_sum("sum", parts, np.zeros(n_outputs))
    functions = [member.predictions["raw"] for member in members if "raw" in member.predictions]
    predictions = {"raw": partial(_total, functions, factors)} if len(functions) == len(members) else {}
    return replace(adapted, output_names=first.output_names, squared_error=False, predictions=predictions)


def _total(functions: Sequence[Callable[[Any], Any]], factors: np.ndarray, X: Any) -> np.ndarray:
    """Return the weighted sum of predictions, in the dtype of the least precise of them."""
    margins = [np.asarray(function(X)) for function in functions]
    total: np.ndarray = sum(factor * margin for factor, margin in zip(factors, margins))
    return total.astype(np.float32) if any(margin.dtype == np.float32 for margin in margins) else total
