"""Fingerprints of explainers and of columns, which show whether a run continues an earlier one."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any

import joblib

from .._files import saving
from ..explainer import TreeExplainer


def fingerprint(explainer: TreeExplainer) -> dict[str, Any]:
    """Return a JSON-compatible fingerprint: equal fingerprints mean bit-identical SHAP values.

    Explainers that were created in the same way have equal fingerprints, in any process. If a step of a
    pipeline cannot be pickled, the ``repr`` of the steps is used, which may differ from process to process.
    """
    adapted, compiled = explainer._adapted, explainer._compiled
    model_fields = {f.name: getattr(adapted, f.name) for f in fields(adapted) if f.name != "ensemble"}
    background = compiled.background
    steps = None
    if explainer._reader.steps:
        try:
            steps = joblib.hash(explainer._reader.steps)
        except Exception:  # a step may raise anything when it is pickled
            steps = repr(explainer._reader.steps)
    return {
        "trees": saving.digest(adapted.ensemble),
        "schema": joblib.hash(model_fields),
        "steps": steps,
        "background": background and joblib.hash([background.rows, background.weights]),
        **explainer._value_options(),
        "memory_limit": compiled.options.memory_limit,
        "expected_rows": compiled.options.expected_rows,
    }


def columns_written(schema: Any) -> dict[str, Any]:
    """Return a JSON-compatible fingerprint of an output's columns: their number, the first four, a digest."""
    columns = [[field.name, str(field.type), field.nullable] for field in schema]
    digest = hashlib.sha256(repr(columns).encode()).hexdigest()
    return {"number": len(columns), "first": columns[:4], "digest": digest}
