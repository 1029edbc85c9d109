"""The service of docs/recipes.md, with a function for each way to explain: ``uvicorn serving_app:app``.

The environment variable SERVING_MODEL is the path of a fitted model, SERVING_LIBRARY the name of its library.
Each function answers with the three largest SHAP values of each record, and ``/predict`` with predictions.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import pandas as pd
import serving
from fastapi import FastAPI

from skshapgpu import TreeExplainer

Records = list[dict[str, float | None]]

app = FastAPI()
model = joblib.load(os.environ["SERVING_MODEL"])
explainer = TreeExplainer(model, device="cpu", n_jobs=1, expected_rows=10**6)
names = list(explainer.feature_names or [])


def frame_of(records: Records) -> pd.DataFrame:
    return pd.DataFrame(records, columns=names, dtype=float)


@app.get("/names")
def all_names() -> list[str]:
    return ["predict", "skshapgpu", *others]


@app.post("/predict")
def predict(records: Records) -> list[float]:
    return model.predict(frame_of(records)).tolist()


@app.post("/skshapgpu")
def reasons(records: Records) -> list[dict]:
    return explainer.explain(frame_of(records)).reasons(3)


def strongest_of(make: Callable[[], serving.Call]) -> Callable[[Records], list[dict[str, Any]]]:
    """Return the function of another library, which each thread calls in its own way."""
    own = threading.local()

    def strongest(records: Records) -> list[dict[str, Any]]:
        if not hasattr(own, "call"):
            own.call = make()
        values = own.call(frame_of(records))
        order = np.argsort(-np.abs(values), axis=1)[:, :3]
        return [
            {"row": i, "feature": names[column], "shap_value": float(values[i, column])}
            for i, columns in enumerate(order)
            for column in columns
        ]

    return strongest


others = serving.their_calls(os.environ["SERVING_LIBRARY"], model)
for name, make in others.items():
    app.post(f"/{name}")(strongest_of(make))
