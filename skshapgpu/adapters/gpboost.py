"""GPBoost: ``Booster`` and the scikit-learn wrappers, with and without random effects or Gaussian processes.

The trees are those of LightGBM 3, from which GPBoost was made, and are read by the adapter of LightGBM. The
margin is ``predict(X, pred_latent=True, ignore_gp_model=True)``, the fixed effect. The prediction of a model
with random effects is a function of the fixed effect plus the random effect of the row's group or place,
which does not depend on X. So such a model has no link: its values explain the fixed effect only.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from ..errors import UnsupportedModelError
from . import lightgbm
from ._subclasses import require_own_predictions
from .schema import AdaptedModel
from .wrappers import is_a


def adapt(model: Any) -> AdaptedModel:
    """Read a ``Booster`` of GPBoost or a fitted wrapper.

    Raise ``UnsupportedModelError`` if the model is of another class, ``NotFittedError`` if it is not fitted,
    and the errors of ``lightgbm.read_text``.
    """
    name, classes = type(model).__name__, None
    if is_a(model, "gpboost", "GPBoostModel"):
        booster = getattr(model, "_Booster", None)
        if booster is None:
            raise NotFittedError(f"this {name} is not fitted yet: call fit first")
        if hasattr(model, "classes_"):
            classes = tuple(np.asarray(model.classes_).tolist())
    elif is_a(model, "gpboost", "Booster"):
        booster = model
    else:
        raise UnsupportedModelError(f"cannot explain a {name} of gpboost: pass a Booster or a fitted wrapper")
    require_own_predictions(model, "gpboost")
    text = _text_of_trees(booster)
    adapted = lightgbm.read_text(text, classes)
    if booster.has_gp_model:
        adapted = replace(adapted, link=None, squared_error=False, binary=None, class_names=None)
    ensemble, averages = adapted.ensemble, "\naverage_output\n" in text
    n_averaged = max(ensemble.n_trees // ensemble.n_outputs, 1) if averages else 1
    return replace(
        adapted,
        # GPBoost rounds arrays and frames to float32 if they hold no floats.
        schema=replace(adapted.schema, frames_are_arrays=True, exact_arrays=True),
        family="gpboost",
        predictions={"raw": partial(_fixed_effects, booster, n_averaged)},
    )


def _text_of_trees(booster: Any) -> str:
    """Return the model text of LightGBM.

    With random effects, ``model_to_string`` also writes them, for which it needs the training data. On an
    object without the random effects, it writes the trees alone.
    """
    without_effects = SimpleNamespace(**(vars(booster) | {"has_gp_model": False}))
    text: str = type(booster).model_to_string(without_effects)
    return text


def _fixed_effects(booster: Any, n_averaged: int, X: Any) -> np.ndarray:
    return np.asarray(booster.predict(X, pred_latent=True, ignore_gp_model=True)) / n_averaged
