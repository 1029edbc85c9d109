"""imbalanced-learn: ensembles of scikit-learn whose members are trained on resampled rows.

Samplers act in training only. A ``RUSBoostClassifier`` predicts as an ``AdaBoostClassifier``, and a
``BalancedBaggingClassifier`` as a ``BaggingClassifier``. The margin of an ``EasyEnsembleClassifier`` is its
``decision_function``, the mean of the decisions of its members. Its ``predict_proba`` is the mean of their
probabilities, which are functions of sums of trees and no sums themselves, unless the members are forests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..errors import UnsupportedModelError
from . import sklearn, sklearn_ensembles
from ._subclasses import require_own_predictions
from .schema import AdaptedModel
from .sklearn_trees import require_all_members
from .wrappers import is_a


def adapt(model: Any) -> AdaptedModel:
    """Read a fitted ensemble of imbalanced-learn; raise errors as ``sklearn.adapt`` does."""
    name = type(model).__name__
    if not is_a(model, "imblearn", "EasyEnsembleClassifier"):
        return sklearn.adapt(model)
    check_is_fitted(model, "estimators_")
    require_own_predictions(model, "imblearn")
    if not hasattr(model, "decision_function"):
        return sklearn.adapt(model)
    require_all_members(model)
    classes = tuple(model.classes_.tolist())
    for member in model.estimators_:  # members are trained on the numbers of the classes
        if not np.array_equal(member.classes_, np.arange(len(classes))):
            raise UnsupportedModelError(
                f"cannot explain a {name} some of whose members have not seen all classes: train it on more "
                "rows, or explain each of its estimators_"
            )
    return replace(
        sklearn_ensembles.bagging(model, "decision_function"),
        output_names=classes if len(classes) > 2 else None,
        class_names=classes if len(classes) == 2 else None,
        binary="margin" if len(classes) == 2 else None,
        squared_error=False,
    )
