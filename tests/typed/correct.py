"""A user's script without a mistake: no type checker may report any line.

``tests/project/typed.py`` runs the checkers; nothing runs this script.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import xgboost
from matplotlib import pyplot as plt
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import skshapgpu
from skshapgpu import (
    Explanation,
    InteractionExplanation,
    ShapBarDisplay,
    ShapBeeswarmDisplay,
    ShapBoruta,
    ShapComparisonDisplay,
    ShapDependenceDisplay,
    ShapInteractionDisplay,
    ShapInteractionTransformer,
    ShapRFECV,
    ShapSelector,
    ShapTransformer,
    ShapWaterfallDisplay,
    TreeExplainer,
    compare_explanations,
    cross_val_explain,
    explain,
    explain_batches,
    explain_interactions,
    friedman_h,
    partial_dependence,
    shap_importance,
)
from skshapgpu.batches import BatchExplainer
from skshapgpu.mlflow import load_model

X = np.zeros((10, 3), dtype=np.float32)
unknown_shape: npt.NDArray[np.float64] = X.astype(np.float64)
y = np.zeros(10)
frame = pd.DataFrame(X, columns=["a", "b", "c"])
model = RandomForestRegressor().fit(X, y)

# Rows.
explain(model, X)
explain(model, unknown_shape)
explain(model, X[y > 0])
explain(model, X[:, [0, 1]])
explain(model, np.asarray([[1, 2]]))
explain(model, np.asfortranarray(X), y)
explain(model, y.reshape(-1, 1))
explain(model, np.column_stack([y, y]))
explain(model, np.random.default_rng(0).normal(size=(5, 3)))
explain(model, [[1.0, 2.0], [3.0, 4.0]])
explain(model, ((1.0, 2.0), (3.0, 4.0)))
explain(model, [X[0], X[1]])
explain(model, frame, frame["a"], data=frame, model_output="log_loss")
explain(model, frame[["a", "b"]])
explain(model, frame.loc[:5])
explain(model, frame.iloc[:5], data=frame.drop(columns="c"))
explain(model, pl.DataFrame({"a": [1.0]}), y=pl.Series([1.0]))
explain(model, pa.table({"a": [1.0]}))
explain(model, pa.table({"a": [1.0]}).to_reader())
explain(model, sparse.csr_matrix(X), data=sparse.csr_array(X))
explain(model, sparse.csr_array(X), data=sparse.csr_matrix(X), data_weight=frame["a"])
explain(model, xgboost.DMatrix(X))
explain(model, lightgbm.Dataset(X))
explain(model, catboost.Pool(X))

# Models.
pipeline: Pipeline = make_pipeline(StandardScaler(), model)
explain(pipeline, X)
explain(GridSearchCV(model, {}), X)
explain(FrozenEstimator(model), X)
explain(HistGradientBoostingClassifier(), X)
explain(xgboost.XGBRegressor(), X)
explain(xgboost.XGBRegressor().get_booster(), X)
explain(lightgbm.LGBMClassifier(), X)
explain(lightgbm.LGBMClassifier().booster_, X)
explain(catboost.CatBoostClassifier(), X)
explain("model.ubj", X)
explain(Path("explainer.npz"), X)
explain(b"content of a file", X)
explain(TreeExplainer(model), X)


# Options.
def explain_on(device: str, rank: int) -> None:
    explain(model, X, device=device)
    explain(model, X, device=f"cuda:{rank}")
    TreeExplainer.load("explainer.npz", device=f"cuda:{rank}")


def show(done: int, total: int | None) -> None:
    print(done, total)


groups: dict[str, list[str]] = {"both": ["a", "b"]}
options: dict[str, Any] = {"device": "cpu"}
explain(model, X, device="cuda:4", progress=show)
explain(model, X, device=[f"cuda:{i}" for i in range(4)], n_jobs=os.cpu_count())
explain(model, X, **options)
explain(model, frame, feature_groups=groups)
explain(model, frame, feature_groups={"both": ("a", "b"), "third": [2], "rest": frame.columns[3:]})
explain(model, X, times=pd.Series([1.0, 2.0]), data=X, model_output="survival")
explain(model, X, times=[30, 90], expected_rows=len(X))
explain(model, X, times=np.array([1.0]), memory_limit="2GiB", progress=lambda done, total: None)
explainer = TreeExplainer(model, frame, data_weight=[1.0] * 10, feature_groups="input")
explainer.shap_values(X, out=np.empty((10, 3)))
seconds = explainer.plan(len(X), dtype="float32", interactions="matrices").seconds
algorithm = explainer.plan(10, interactions=[(0, 1)], index="STII").tree_groups[0].algorithm
load_model("runs:/1/explainer", device="cuda:5", verify=True)

# Interactions.
pairs: InteractionExplanation = explain_interactions(model, frame, interactions=[("a", "b"), ("a", "c")])
explain_interactions(model, X, interactions=np.array([[0, 1]]), index="BII")
explain_interactions(model, X, interactions=explainer.occurring_interactions(3), order=3)
explain_interactions(model, X, interactions=[np.array([0, 1])])
matrix = pairs.matrices()[0]

# Results.
explanation: Explanation = explain(model, frame)
total = explanation.values.sum(axis=1) + explanation.base_values
explanation.to_frame().to_csv("values.csv")
explanation.sum_by({"both": ["a", "b"]}).sum_by("input")
row = explanation.sum_by(groups)[0:3, ["both"]].loc[2].values
explanation.groupby(frame["a"] > 0)[True].importance()
rows: list[dict[str, Any]] = explanation.reasons(3)
strengths = friedman_h(model, frame, features=frame.columns).h_squared
friedman_h(model, X, [0, 1])
friedman_h(model, X, range(3), sample_weight=y)
curves = partial_dependence(model, frame, frame.columns[:2], custom_values={"a": [1, 2]}).average
partial_dependence(explainer, X, 0, grid_resolution="exact", categorical_features=[True, False, False])
comparison = compare_explanations(explanation, "values.parquet", reference_weight=y, current_weight="weight")
compare_explanations([Path("a.parquet"), Path("b.parquet")], Path("folder")).to_frame().sort_values("psi")


# Batches.
def frames() -> Iterator[pd.DataFrame]:
    yield frame


result = explain_batches(model, "rows.parquet", Path("values.parquet"), keep=["id"], batch_size=1000)
explain_batches(
    model, [Path("a.parquet"), Path("b.parquet")], "values", features=frame.columns, sum_by="input"
)
explain_batches(model, frames(), "values", interactions=[("a", "b")], index="SII", batch_size="auto")
explain_batches(model, frame, "values.csv", keep=("a",), progress=show)
explain_batches(model, X, "values.npy", dtype="float32", device="cuda:1", if_exists="overwrite")
explain_batches(model, pyarrow.dataset.dataset("rows"), "values")
print(
    result.paths[0], result.n_rows / result.seconds, BatchExplainer(model, keep=("id",)).explainer.n_features
)

# Estimators.
ShapTransformer(model, cv=5, columns="used").fit(X, y).transform(frame)
ShapTransformer.from_fitted(model, precision="double", columns="used").explain(X).values.mean(axis=0)
ShapInteractionTransformer(model, interactions=[("a", "b")], cv=KFold(3)).fit_transform(X, y).mean(axis=0)
ShapInteractionTransformer.from_fitted("explainer.npz", interactions=20, index="STII").transform(X)
ShapSelector(model, threshold="1.25*mean", cv=KFold(3).split(X)).fit(X, y).get_support(indices=True)
ShapBoruta(model, tentative="keep", explain_params={"device": "cpu"}).fit(frame, y).transform(frame)
ShapRFECV(model, cv=[(np.arange(5), np.arange(5, 10))], rule="one_std_err").fit(X, frame["a"])
make_pipeline(ShapTransformer(model), LogisticRegression()).fit(X, y)
shap_importance(model, frame, aggregation="rms", sum_by="input").importances_mean.argsort()
results = cross_val_explain(model, frame, y, cv=KFold(5), explain_params={"data": frame, "device": "cuda:6"})

# Displays.
figure, axes = plt.subplots()
ShapBarDisplay.from_explanation(explanation.groupby(y), ax=axes, color=["r", "b"]).figure_.savefig("bars.png")
ShapBarDisplay.from_cv_results(results, max_features=None).ax_.set_title("importance")
ShapBeeswarmDisplay.from_estimator(model, frame, cmap=plt.get_cmap("viridis"), device="cpu")
ShapDependenceDisplay.from_estimator(model, frame, "a", color_by=None)
ShapInteractionDisplay.from_explanation(pairs, colorbar=False)
ShapComparisonDisplay.from_explanations(explanation, "values.parquet").plot()
ShapWaterfallDisplay.from_estimator("explainer.npz", frame, row="id3")
print(skshapgpu.__version__, skshapgpu.cuda_info()["available"], total, rows, comparison.psi.max())
