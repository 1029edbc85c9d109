"""The MLflow flavor: explainers are saved, loaded and called in the way of MLflow."""

from __future__ import annotations

import logging
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from skshapgpu import TreeExplainer, explain

from . import games, wrappers
from .case import N_DEFINED, Case
from .modes import adds_up_probabilities, explainer_of, of_kept, widened, widened_base
from .report import NotDrawnError, Report


def require() -> None:
    """Skip a case where MLflow is not installed."""
    if util.find_spec("mlflow") is None or util.find_spec("skops") is None:
        raise NotDrawnError("mlflow: not installed")
    logging.getLogger("mlflow").setLevel(logging.ERROR)


def trusted_types(steps: list[Any]) -> list[str]:
    """Return the types of steps that skops trusts only if the caller lists them."""
    from skops import io

    return sorted({kind for step in steps for kind in io.get_untrusted_types(data=io.dumps(step))})


def predicted(explainer: TreeExplainer, steps: list[Any], X: pd.DataFrame, **options: Any) -> pd.DataFrame:
    """Save an explainer, load it, and return the frame of values and the base value that MLflow predicts."""
    import mlflow

    from skshapgpu.mlflow import save_model

    path = Path(wrappers.FOLDER or ".") / "flavor"
    save_model(explainer, path, skops_trusted_types=trusted_types(steps), pip_requirements=[], **options)
    try:
        return mlflow.pyfunc.load_model(str(path)).predict(X, params={"base_values": True})
    except mlflow.exceptions.MlflowException as error:
        if "enforce schema" in str(error):  # a signature of doubles admits no integers, as documented
            raise NotDrawnError("mlflow: columns of other types than those of the signature") from error
        raise


def flavor(case: Case, report: Report) -> None:
    """Check values that MLflow predicts: by sums, by the definition, and with columns in another order."""
    require()
    X = case.converted.plain
    if not isinstance(X, pd.DataFrame) or not isinstance(case.train, pd.DataFrame):
        raise NotDrawnError("mlflow: X is no data frame")
    if case.draw.outer in ("self-training", "sampler", "RFE"):
        raise NotDrawnError("mlflow: other wrappers")
    with_background = case.draw.background_weights
    explainer = explainer_of(case, background=with_background)
    options = {"input_example": X.head(3)} if case.draw.form == "list" and not case.data.categorical else {}
    order = np.random.default_rng(case.draw.seed).permutation(X.shape[1])
    frame = predicted(explainer, case.fitted.steps, X.iloc[:, order], **options)
    right = explain(explainer, X)
    k = 1 if right.values.ndim == 2 else right.values.shape[2]
    base, values = apart(frame, k)
    got = values.reshape(len(X), -1, k)
    report.equal("columns of the flavor", got.shape[1], len(case.kept))
    margins = widened_base(case, case.library("predict", case.margin, X), adds_up_probabilities(case))
    scale = np.abs(got).sum(axis=1).max(axis=0)
    allowed = case.allowed(margins * 0 + scale, whole=True, factor=2)
    report.close("additivity of the flavor", base + got.sum(axis=1), margins, allowed)
    direct = right.values.reshape(got.shape).astype(float)
    report.close("values of the flavor", got, direct, case.allowed(direct, factor=2))
    coalitions = (
        None if with_background or case.seen is not case.converted.plain else case.path_coalition_values
    )
    if coalitions is not None:
        values = widened(case, of_kept(case, games.values(coalitions)))
        report.close("flavor by the definition", got[:N_DEFINED], values, case.allowed(values))


def apart(frame: pd.DataFrame, n_outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return base values and values of a frame that has both."""
    is_base = np.array([str(name).startswith("base_value") for name in frame.columns])
    if is_base.sum() != n_outputs:
        raise AssertionError(f"columns of the flavor: {list(frame.columns)}")
    return frame.loc[:, is_base].to_numpy(float), frame.loc[:, ~is_base].to_numpy(float)


FLAVOR = {"mlflow": flavor}
