"""Shared data and models of the cluster tests, and a step that blocks until a worker has been killed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import Pipeline

#: Seconds after which a test fails instead of waiting any longer.
PATIENCE = 120.0


def flowers(n_rows: int = 400) -> pd.DataFrame:
    """Return a frame of four features with missing values and a row id; index labels are not positions."""
    rng = np.random.default_rng(0)
    X = load_iris(as_frame=True).data.sample(n_rows, replace=True, random_state=0)
    X = X + rng.normal(scale=0.01, size=X.shape)
    X = X.mask(rng.random(X.shape) < 0.1)
    assert 0.05 < X.isna().to_numpy().mean() < 0.15
    X.columns = ["sepal length", "sepal width", "petal length", "petal width"]
    return X.assign(id=rng.permutation(n_rows) + 1000).set_axis([f"row {i}" for i in range(n_rows)])


FEATURES = ["sepal length", "sepal width", "petal length", "petal width"]


def regressor(X: Any) -> Any:
    y = np.nan_to_num(np.asarray(X)[:, :4].astype(float))
    return HistGradientBoostingRegressor(max_iter=20, random_state=0).fit(X, y[:, 0] * y[:, 2] + y[:, 1])


def classifier(X: Any) -> Any:
    y = np.nan_to_num(np.asarray(X)[:, 2].astype(float))
    return HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(
        X, np.array(["none", "short", "long"])[(y > 1.0).astype(int) + (y > 4.0)]
    )


def assert_reasons(frame: Any, explanation: Any, n: int) -> None:
    """Check the columns of each sign's strongest values against ``Explanation.reasons``, by row position."""
    suffixes = [""] if explanation.output_names is None else [f"__{o}" for o in explanation.output_names]
    for suffix, records in zip(suffixes, _by_output(explanation, n), strict=True):
        expected = {(r["row"], r["reason"], r["rank"]): r for r in records}
        assert len(expected) > len(frame)
        for sign in ("for", "against"):
            for rank in range(1, n + 1):
                for row in range(len(frame)):
                    names = [f"{sign}_{kind}{rank}{suffix}" for kind in ("", "value_", "shap_")]
                    feature, value, shap_value = frame.iloc[row][names]
                    record = expected.get((row, sign, rank))
                    if record is None:
                        assert pd.isna(feature) and pd.isna(value) and pd.isna(shap_value)
                        continue
                    assert (feature, shap_value) == (record["feature"], record["shap_value"])
                    assert pd.isna(value) if record["value"] is None else float(value) == record["value"]


def _by_output(explanation: Any, n: int) -> list[list[dict[str, Any]]]:
    if explanation.output_names is None:
        return [explanation.reasons(n, by_sign=True)]
    return [explanation[..., output].reasons(n, by_sign=True) for output in explanation.output_names]


class Gate(TransformerMixin, BaseEstimator):
    """First step of a pipeline, which records in files how far it is, so that other processes can see it.

    The first few calls in any process pass; all later calls wait until the gate is open.
    """

    def __init__(self, folder: str, first: int) -> None:
        self.folder = folder
        self.first = first

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __deepcopy__(self, memo: dict[int, Any]) -> Gate:
        return Gate(self.folder, self.first)  # an explainer copies its steps, which is no arrival

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        (Path(self.folder) / f"arrived-{os.getpid()}-{uuid4().hex}").touch()

    def transform(self, X: Any) -> Any:
        for call in range(self.first):
            try:
                (Path(self.folder) / f"call-{call}").touch(exist_ok=False)
            except FileExistsError:
                continue
            return X
        waits, end = Path(self.folder) / f"waits-{os.getpid()}", Path(self.folder) / "open"
        waits.touch()
        wait_for(end.exists)
        return X

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        return input_features

    def before(self, model: Any) -> Pipeline:
        """Return the pipeline of the gate and a fitted model."""
        return Pipeline([("gate", self), ("model", model)])

    def open(self) -> None:
        (Path(self.folder) / "open").touch()

    def waiting(self) -> list[int]:
        """Return the ids of the processes that wait or have waited."""
        return sorted(int(path.name.split("-")[1]) for path in Path(self.folder).glob("waits-*"))

    def arrivals(self) -> list[int]:
        """Return the ids of the processes that unpickled the gate, with an entry for each time."""
        return sorted(int(path.name.split("-")[1]) for path in Path(self.folder).glob("arrived-*"))


def wait_for(condition: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def count_compilations() -> None:
    """Count, from now on, how often this process compiles a model."""
    model_class = _compiled_model_class()
    if not hasattr(model_class, "compilations"):
        compile_model = model_class._compile

        def counted(self: Any, *arguments: Any) -> None:
            model_class.compilations += 1
            compile_model(self, *arguments)

        model_class._compile = counted
    model_class.compilations = 0


def compilations() -> int:
    return _compiled_model_class().compilations


def _compiled_model_class() -> Any:
    """Import the class whose method is replaced, in the process in which this function runs."""
    from skshapgpu._engine.compiled_model import CompiledModel

    return CompiledModel
