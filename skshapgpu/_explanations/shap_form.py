"""Explanations in the form of shap, and the attributes that only shap's explanations have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._common.lazy import import_for
from .._rows.columns import numbers_of
from .._rows.gpu_arrays import to_host
from .._rows.tables import to_array

if TYPE_CHECKING:
    import shap

    from .values import Explanation

#: Attributes of ``shap.Explanation`` that :class:`.Explanation` lacks, each with our counterpart, if any.
ATTRIBUTES_OF_SHAP = {
    "abs": "importance()",
    "argsort": "strongest()",
    "clustering": "",
    "cohorts": "groupby()",
    "compute_time": "seconds",
    "display_data": "data",
    "error_std": "",
    "flip": "",
    "hclust": "",
    "hierarchical_values": "",
    "hstack": "",
    "identity": "",
    "instance_names": "row_labels",
    "lower_bounds": "",
    "main_effects": "main_effects() of explain_interactions",
    "max": "",
    "mean": "importance()",
    "min": "",
    "op_history": "",
    "output_dims": "",
    "output_indexes": "",
    "percentile": "",
    "sample": "",
    "sum": "sum_by()",
    "upper_bounds": "",
}


def missing_attribute(explanation: Explanation, name: str) -> AttributeError:
    """Return the error for an attribute that only shap's explanations have: it says to convert first."""
    counterpart = ATTRIBUTES_OF_SHAP[name]
    other = f", or use {counterpart}" if counterpart else ""
    return AttributeError(
        f"'Explanation' object has no attribute {name!r}, which explanations of shap have: call to_shap() "
        f"first, as in explanation.to_shap().{name}{other}",
        name=name,
        obj=explanation,
    )


def converted(explanation: Explanation, is_row: bool) -> shap.Explanation:
    """Return an explanation in the form of shap; with ``is_row``, its only row, without an axis for rows."""
    shap = import_for("to_shap() needs shap", "shap", "shap")
    values = to_host(explanation.values)
    outputs = explanation.output_names if values.ndim > 2 else None
    data = display_data = None
    if explanation.data is not None:
        data = to_array(explanation.data)
        if data.dtype.kind not in "fiub":
            array = data
            data, has_categories = numbers_of(explanation.data)
            display_data = array if has_categories else None
    base_values = np.broadcast_to(explanation.base_values, (len(values), *values.shape[2:])).copy()
    rows = shap.Explanation(
        values=values,
        base_values=base_values,
        data=data,
        display_data=display_data,
        feature_names=list(explanation.feature_names),
        output_names=None if outputs is None else [str(name) for name in outputs],
        compute_time=explanation.seconds,
    )
    return rows[0] if is_row else rows
