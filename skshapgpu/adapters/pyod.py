"""PyOD: ``IForest``, which detects outliers with the ``IsolationForest`` of scikit-learn in ``detector_``.

The margin is the average path length E of that forest. Short paths mean outliers: ``decision_function`` is
``2 ** (-E / c) + detector_.offset_``, which rises while E falls, and is the negative of scikit-learn's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..errors import UnsupportedModelError
from . import sklearn
from ._subclasses import require_own_method
from .schema import AdaptedModel
from .wrappers import is_a


def adapt(model: Any) -> AdaptedModel:
    """Read a fitted detector; raise ``UnsupportedModelError`` if it is no isolation forest."""
    name = type(model).__name__
    if not is_a(model, "pyod", "IForest"):
        raise UnsupportedModelError(
            f"cannot explain a {name}: of PyOD's detectors, only the scores of IForest are a function of a "
            "sum of trees"
        )
    check_is_fitted(model, "detector_")
    require_own_method(name, type(model), "decision_function", "pyod")
    adapted = sklearn.adapt(model.detector_)
    schema = replace(  # PyOD turns X into an array of finite numbers
        adapted.schema,
        feature_names=None,
        warns_as=None,
        allow_nan=False,
        allow_inf=False,
        allow_sparse=False,
        frames_are_arrays=True,
    )
    predictions = {"raw": adapted.predictions["raw"], "decision_function": model.decision_function}
    functions = {
        output: function.scaled(np.full((1, 1), -1.0), np.zeros(1))
        for output, function in adapted.functions.items()
        if output == "decision_function"
    }
    return replace(adapted, schema=schema, functions=functions, predictions=predictions)
