"""Base values of rows whose predictions start from margins of their own, such as the log of an exposure.

SHAP values do not depend on such a margin, which no tree tests: it moves the base value of its row. In
XGBoost, ``base_margin`` takes the place of ``base_score``, the intercept of the model. In LightGBM,
``init_score`` of the training data is not part of a model, and is added to the raw score that the model
predicts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._common.checks import require_unmasked
from .._rows.gpu_arrays import on_gpu, to_host
from .._rows.real_numbers import require_real
from .._rows.tables import require_same_rows
from ..adapters.schema import AdaptedModel

#: Libraries whose models take a margin for each row, and whether it takes the place of the intercept.
_REPLACES_INTERCEPT = {"xgboost": True, "lightgbm": False}


def base_values_of_rows(
    adapted: AdaptedModel,
    model_output: str,
    base_value: np.ndarray,
    base_margin: Any,
    n_rows: int,
    row_labels: Any,
) -> np.ndarray:
    """Return the base value of each row: (n_rows,), or (n_rows, n_outputs) if there are several outputs.

    ``base_value`` is that of the model, (n_outputs,), with both classes of a binary classifier if both are
    outputs. ``row_labels`` has the row labels of X, or is None. Raise ``ValueError`` or ``TypeError`` if the
    model has no such margins, the values are not of margins, or ``base_margin`` does not have a finite number
    for each row and output.
    """
    replaces = _REPLACES_INTERCEPT.get(adapted.family)
    if replaces is None:
        raise ValueError(
            f"base_margin= is for models of XGBoost and LightGBM, not for this {adapted.family} model: "
            "explain without it, and add the offset of each row to its base value"
        )
    if model_output != "raw":
        raise ValueError(
            f"base_margin= moves the base value of a margin, but model_output={model_output!r} explains a "
            "function of the margin: use model_output='raw'"
        )
    margins = _read(base_margin, n_rows, adapted.ensemble.n_outputs, row_labels)
    if replaces:
        margins = margins - adapted.ensemble.intercept
    if len(base_value) > margins.shape[1]:  # both classes of a binary classifier, whose margins are opposite
        margins = np.hstack([-margins, margins])
    base_values = base_value + margins
    return base_values[:, 0] if base_values.shape[1] == 1 else base_values


def _read(base_margin: Any, n_rows: int, n_outputs: int, row_labels: Any) -> np.ndarray:
    """Return margins of rows as float64, (n_rows, n_outputs)."""
    require_unmasked("base_margin", base_margin, "fill it first")
    require_same_rows(base_margin, row_labels, "base_margin", "X", "X.index")
    numbers = np.asarray(to_host(base_margin) if on_gpu(base_margin) else base_margin)
    require_real(numbers.dtype.kind, "base_margin")
    try:
        margins = numbers.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(f"base_margin must be numbers: {error}") from error
    shapes = {(n_rows, n_outputs)} | ({(n_rows,)} if n_outputs == 1 else set())
    if margins.shape not in shapes:
        raise ValueError(
            f"base_margin must have the shape {' or '.join(map(str, sorted(shapes)))}, a number for each row "
            f"of X and each output, not {margins.shape}"
        )
    margins = margins.reshape(n_rows, n_outputs)
    invalid = np.flatnonzero(~np.isfinite(margins).all(axis=1))
    if len(invalid):
        raise ValueError(f"base_margin must be finite, but row {invalid[0]} has {margins[invalid[0]]}")
    return margins
