"""Explain one model of each library on data bundled with scikit-learn; ``./dev demo`` runs this.

Prints a table and plots the most important features of each model to demo.png. The additivity error is the
largest difference between a model's own raw prediction and the base value plus SHAP values, relative to the
prediction where that exceeds 1 in magnitude.
"""

from __future__ import annotations

import time

import matplotlib
import numpy as np
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import RandomForestClassifier
from xgboost import XGBRegressor

from skshapgpu import TreeExplainer

matplotlib.use("Agg")
import matplotlib.pyplot as plt

N_TREES = 100
N_TOP = 3
PICTURE = "demo.png"

# Family, task, dataset, model, and the raw prediction to which base value and SHAP values must add up.
CASES = [
    (
        "scikit-learn",
        "binary",
        load_breast_cancer,
        RandomForestClassifier(N_TREES, max_depth=8, random_state=0),
        lambda model, X: model.predict_proba(X)[:, 1],
    ),
    (
        "XGBoost",
        "regression",
        load_diabetes,
        XGBRegressor(n_estimators=N_TREES, max_depth=6, learning_rate=0.1),
        lambda model, X: model.predict(X, output_margin=True),
    ),
    (
        "LightGBM",
        "3 classes",
        load_wine,
        LGBMClassifier(n_estimators=N_TREES, min_child_samples=5, verbose=-1),
        lambda model, X: model.predict(X, raw_score=True),
    ),
    (
        "CatBoost",
        "binary",
        load_breast_cancer,
        CatBoostClassifier(N_TREES, depth=6, verbose=False, allow_writing_files=False, random_seed=0),
        lambda model, X: model.predict(X, prediction_type="RawFormulaVal"),
    ),
]


def main() -> None:
    print("family       task         rows features    rows/s  additivity  top features", "-" * 100, sep="\n")
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    for (family, task, load, model, raw_prediction), ax in zip(CASES, axes.flat, strict=True):
        data = load()
        X, names = data.data, np.asarray(data.feature_names)
        model.fit(X, data.target)
        explainer = TreeExplainer(model)

        start = time.perf_counter()
        explanation = explainer.explain(X)
        seconds = time.perf_counter() - start

        values = explanation.values
        expected = raw_prediction(model, X)
        distance = np.abs(values.sum(axis=1) + explanation.base_values - expected)
        error = (distance / np.maximum(1, np.abs(expected))).max()
        importance = explanation.importance().reshape(X.shape[1], -1).sum(axis=1)  # summed over the classes
        top = np.argsort(importance)[::-1]
        print(
            f"{family:<13}{task:<11}{len(X):>6}{X.shape[1]:>9}{len(X) / seconds:>10,.0f}{error:>12.1e}  "
            + ", ".join(names[top[:N_TOP]])
        )

        shown = top[:8][::-1]
        ax.barh(names[shown], importance[shown])
        ax.set_title(f"{family}: {load.__name__.removeprefix('load_').replace('_', ' ')} ({task})")
        ax.set_xlabel("mean |SHAP value|")
    figure.savefig(PICTURE, dpi=120)
    print(f"\nrows/s: one call on a small dataset. Plot: {PICTURE}")


if __name__ == "__main__":
    main()
