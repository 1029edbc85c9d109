"""Models of every family with the options that change values, each with rows to explain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

N_ROWS = 240
N_FEATURES = 6

Builder = Callable[[], tuple[Any, Any]]
#: Models that the tests share: each function fits a model and returns it with rows to explain.
CASES: dict[str, Builder] = {}


def data(target: str = "number", *, nan: bool = False, zeros: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Draw six columns, one with few values and one uninformative, and a target with interactions."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_FEATURES))
    X[:, 3] = rng.integers(0, 4, N_ROWS) / 10
    signal = X[:, 0] * (X[:, 1] > 0) + 4 * X[:, 3] * X[:, 2] + X[:, 4] + 0.2 * rng.normal(size=N_ROWS)
    targets = {
        "number": signal + 3,
        "several": np.column_stack([signal, -(signal**2), X[:, 5] ** 2]),
        "binary": (signal > 0.3).astype(int),
        "three": np.digitize(signal, [-0.5, 1.0]),
    }
    if zeros:
        X[rng.random(X.shape) < 0.3] = 0.0
    if nan:
        X[(signal > 0.5) & (rng.random(N_ROWS) < 0.4), 0] = np.nan
        X[(signal < 0) & (rng.random(N_ROWS) < 0.4), 1] = np.nan
        X[rng.random(X.shape) < 0.05] = np.nan
    return X, targets[target]


N_COLOURS, N_CODES = 6, 40
COLOURS = ["red", "a", "blue", "", "z", "green"]


def category_data(target: str = "number", *, nan: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Draw a column of 6 codes, one of 40, and two numbers; every code is informative."""
    rng = np.random.default_rng(1)
    X = np.column_stack(
        [rng.integers(N_COLOURS, size=600), rng.integers(N_CODES, size=600), rng.normal(size=(600, 2))]
    )
    y = (X[:, 0] % 2) * X[:, 2] * 2 + 3 * np.cos(X[:, 1] * 3) + X[:, 3]
    if nan:
        X[rng.random(X.shape) < 0.05] = np.nan
    return X, y if target == "number" else np.digitize(y, [-1.0, 1.5])


def category_frame(target: str = "number") -> tuple[Any, np.ndarray]:
    """Return ``category_data`` as a frame; the colours are words that are not in alphabetical order."""
    pd = pytest.importorskip("pandas")
    codes, y = category_data(target)
    colour, code = np.nan_to_num(codes[:, :2], nan=-1).astype(int).T
    return pd.DataFrame(
        {
            "colour": pd.Categorical.from_codes(colour, COLOURS),
            "code": pd.Categorical.from_codes(code, [3 * i + 7 for i in range(N_CODES)]),
            "x": codes[:, 2],
            "z": codes[:, 3],
        }
    ), y


# scikit-learn


TREE = {"max_depth": 5, "random_state": 0}
FOREST = {"n_estimators": 5, "max_depth": 5, "random_state": 0}
BOOST = {"n_estimators": 6, "max_depth": 3, "random_state": 0}
HIST = {"max_iter": 6, "max_leaf_nodes": 12, "min_samples_leaf": 5, "random_state": 0}


def sklearn_case(
    name: str, model: BaseEstimator, target: str = "number", *, nan: bool = False, weighted: bool = False
) -> None:
    def build() -> tuple[Any, Any]:
        X, y = data(target, nan=nan)
        weight = {"sample_weight": np.linspace(0.1, 3, N_ROWS)} if weighted else {}
        return clone(model).fit(X, y, **weight), X

    CASES[f"sklearn {name}"] = build


sklearn_case("tree", DecisionTreeRegressor(**TREE))
sklearn_case("tree, NaN, weights", DecisionTreeRegressor(**TREE), nan=True, weighted=True)
sklearn_case("tree, several targets", DecisionTreeRegressor(**TREE), "several")
sklearn_case("tree, binary", DecisionTreeClassifier(**TREE), "binary")
sklearn_case("tree, three classes, weights", DecisionTreeClassifier(**TREE), "three", weighted=True)
sklearn_case("tree, three classes, NaN", DecisionTreeClassifier(**TREE), "three", nan=True)
sklearn_case("extra tree", ExtraTreeRegressor(**TREE))
sklearn_case("extra tree, three classes", ExtraTreeClassifier(**TREE), "three")
sklearn_case("forest", RandomForestRegressor(**FOREST))
sklearn_case("forest, several targets", RandomForestRegressor(**FOREST), "several")
sklearn_case("forest, binary, NaN", RandomForestClassifier(**FOREST), "binary", nan=True)
sklearn_case("forest, binary", RandomForestClassifier(**FOREST), "binary")
sklearn_case("forest, three classes", RandomForestClassifier(class_weight="balanced", **FOREST), "three")
sklearn_case("extra trees", ExtraTreesRegressor(**FOREST))
sklearn_case("extra trees, several targets", ExtraTreesRegressor(**FOREST), "several")
sklearn_case("extra trees, three classes", ExtraTreesClassifier(**FOREST), "three")
sklearn_case("extra trees, binary, NaN", ExtraTreesClassifier(**FOREST), "binary", nan=True)
sklearn_case("boosting", GradientBoostingRegressor(**BOOST))
sklearn_case("boosting, huber, from zero", GradientBoostingRegressor(loss="huber", init="zero", **BOOST))
sklearn_case("boosting, binary", GradientBoostingClassifier(subsample=0.7, **BOOST), "binary")
sklearn_case("boosting, exponential loss", GradientBoostingClassifier(loss="exponential", **BOOST), "binary")
sklearn_case("boosting, three classes", GradientBoostingClassifier(**BOOST), "three")
sklearn_case("histograms", HistGradientBoostingRegressor(**HIST))
sklearn_case("histograms, NaN", HistGradientBoostingRegressor(**HIST), nan=True)
sklearn_case("histograms, binary", HistGradientBoostingClassifier(**HIST), "binary")
sklearn_case("histograms, three classes, NaN", HistGradientBoostingClassifier(**HIST), "three", nan=True)
sklearn_case("bagging", BaggingRegressor(DecisionTreeRegressor(max_depth=4), 5, random_state=0))
sklearn_case(
    "bagging, several targets",
    BaggingRegressor(DecisionTreeRegressor(max_depth=4), 5, random_state=0),
    "several",
)
sklearn_case(
    "bagging, three classes, subsets of features",
    BaggingClassifier(DecisionTreeClassifier(max_depth=4), 5, max_features=0.5, random_state=0),
    "three",
)
sklearn_case("isolation", IsolationForest(n_estimators=5, max_samples=64, random_state=0))
sklearn_case(
    "isolation, subsets of features",
    IsolationForest(n_estimators=5, max_samples=64, max_features=0.5, random_state=0),
)


def hist_categories(name: str, target: str, *, frame: bool) -> None:
    def build() -> tuple[Any, Any]:
        cls = HistGradientBoostingClassifier if target == "three" else HistGradientBoostingRegressor
        if not frame:
            X, y = category_data(target)
            model = cls(categorical_features=[1, 0], **HIST).fit(X, y)
            X[:4, :2] = [[7, 3], [2, 99], [-1, 5], [100, 100]]  # unseen categories count as missing
            return model, X[:60]
        X, y = category_frame(target)
        model = cls(categorical_features="from_dtype", **HIST).fit(X, y)
        X["colour"] = X["colour"].cat.add_categories(["unseen"])
        X.loc[X.index[:5], "colour"] = "unseen"
        return model, X[:60]

    CASES[f"sklearn histograms, {name}"] = build


hist_categories("categories", "number", frame=True)
hist_categories("categories, three classes", "three", frame=True)
hist_categories("codes", "number", frame=False)
hist_categories("codes, three classes", "three", frame=False)


# XGBoost


def xgboost_case(
    name: str,
    target: str = "number",
    estimator: str = "XGBRegressor",
    *,
    nan: bool = True,
    wrapped: bool = True,
    **options: Any,
) -> None:
    def build() -> tuple[Any, Any]:
        xgb = pytest.importorskip("xgboost")
        X, y = data(target, nan=nan)
        fit: dict[str, Any] = {}
        if estimator == "XGBRanker":
            fit["group"] = [30] * (N_ROWS // 30)
        if "early_stopping_rounds" in options:
            noise = np.random.default_rng(0).normal(size=N_ROWS)
            fit |= {"eval_set": [(X, y * 0.3 + noise)], "verbose": False}
        if options.get("missing"):
            X = np.nan_to_num(X, nan=options["missing"])
        settings = {"n_estimators": 6, "max_depth": 4, "n_jobs": 1, "random_state": 0, "tree_method": "hist"}
        model = getattr(xgb, estimator)(**settings | options).fit(X, y, **fit)
        return model if wrapped else model.get_booster(), X

    CASES[f"xgboost {name}"] = build


xgboost_case("regressor")
xgboost_case("booster", wrapped=False)
xgboost_case("exact", tree_method="exact", gamma=0.5, max_depth=6)
xgboost_case("by leaves", grow_policy="lossguide", max_leaves=9, max_depth=0)
xgboost_case("constant base score", base_score=0.7)
xgboost_case("poisson", "binary", objective="count:poisson")
xgboost_case("dart", booster="dart", rate_drop=0.5, one_drop=1)
xgboost_case("dart, three classes", "three", "XGBClassifier", booster="dart", rate_drop=0.5, one_drop=1)
xgboost_case("forest", estimator="XGBRFRegressor")
xgboost_case("binary", "binary", "XGBClassifier", scale_pos_weight=3)
xgboost_case("three classes", "three", "XGBClassifier")
xgboost_case("three classes, parallel trees", "three", "XGBClassifier", num_parallel_tree=3, subsample=0.6)
xgboost_case("several targets", "several")
xgboost_case("missing is a number", missing=-999.0)
xgboost_case("no missing", nan=False)
xgboost_case("ranker", "three", "XGBRanker", objective="rank:ndcg")
xgboost_case("early stopping", n_estimators=30, early_stopping_rounds=3)


def xgboost_vector_leaves() -> tuple[Any, Any]:
    xgb = pytest.importorskip("xgboost")
    if version(xgb) < (3, 2):
        pytest.skip("before XGBoost 3.2 leaves of several outputs come without covers")
    X, y = data("several", nan=True)
    model = xgb.XGBRegressor(
        n_estimators=6, max_depth=4, n_jobs=1, tree_method="hist", multi_strategy="multi_output_tree"
    )
    return model.fit(X, y), X


def xgboost_categories(name: str, target: str = "number", *, frame: bool = False, **options: Any) -> None:
    def build() -> tuple[Any, Any]:
        xgb = pytest.importorskip("xgboost")
        X, y = category_frame(target) if frame else category_data(target)
        cls = xgb.XGBClassifier if target == "three" else xgb.XGBRegressor
        types = {} if frame else {"feature_types": ["c", "c", "q", "q"]}
        model = cls(
            n_estimators=5,
            max_depth=4,
            n_jobs=1,
            tree_method="hist",
            enable_categorical=True,
            **types,
            **options,
        ).fit(X, y)
        return model, X[:60]

    CASES[f"xgboost {name}"] = build


CASES["xgboost leaves of several outputs"] = xgboost_vector_leaves
xgboost_categories("codes")
xgboost_categories("codes, one-hot", max_cat_to_onehot=100)
xgboost_categories("codes, three classes", "three")
xgboost_categories("categories", frame=True)


# LightGBM


LIGHTGBM: dict[str, Any] = {
    "n_estimators": 6,
    "num_leaves": 10,
    "min_child_samples": 5,
    "n_jobs": 1,
    "verbose": -1,
    "random_state": 0,
}
RF: dict[str, Any] = {"boosting_type": "rf", "subsample_freq": 1, "subsample": 0.6}
CATEGORICAL = {"min_data_per_group": 5, "cat_smooth": 1.0, "max_cat_threshold": 64}


def lightgbm_case(
    name: str,
    target: str = "number",
    estimator: str = "LGBMRegressor",
    *,
    nan: bool = False,
    zeros: bool = False,
    wrapped: bool = True,
    **options: Any,
) -> None:
    def build() -> tuple[Any, Any]:
        lgb = pytest.importorskip("lightgbm")
        X, y = data(target, nan=nan, zeros=zeros)
        fit: dict[str, Any] = {"group": [30] * (N_ROWS // 30)} if estimator == "LGBMRanker" else {}
        if options.get("early_stopping_round"):
            fit["eval_set"] = [(X, y * 0.3 + np.random.default_rng(0).normal(size=N_ROWS))]
        model = getattr(lgb, estimator)(**LIGHTGBM | options).fit(X, y, **fit)
        return model if wrapped else model.booster_, X

    CASES[f"lightgbm {name}"] = build


lightgbm_case("regressor")
lightgbm_case("regressor, NaN", nan=True)
lightgbm_case("zeros are missing", nan=True, zeros=True, zero_as_missing=True)
lightgbm_case("nothing is missing", zeros=True, use_missing=False)
lightgbm_case("dart", boosting_type="dart", drop_rate=0.5, skip_drop=0.0)
lightgbm_case("goss", data_sample_strategy="goss", learning_rate=0.5)
lightgbm_case("forest", **RF)
lightgbm_case("forest, three classes", "three", "LGBMClassifier", nan=True, **RF)
lightgbm_case("binary", "binary", "LGBMClassifier")
lightgbm_case("three classes", "three", "LGBMClassifier", nan=True)
lightgbm_case("three classes, booster", "three", "LGBMClassifier", wrapped=False)
lightgbm_case("ranker", "three", "LGBMRanker")
lightgbm_case("early stopping", n_estimators=40, learning_rate=0.3, early_stopping_round=3)


def lightgbm_categories(name: str, target: str = "number", *, frame: bool = False, **options: Any) -> None:
    def build() -> tuple[Any, Any]:
        lgb = pytest.importorskip("lightgbm")
        X, y = category_frame(target) if frame else category_data(target)
        cls = lgb.LGBMClassifier if target == "three" else lgb.LGBMRegressor
        columns = {} if frame else {"categorical_feature": [0, 1]}
        return cls(**LIGHTGBM | CATEGORICAL | options).fit(X, y, **columns), X[:60]

    CASES[f"lightgbm {name}"] = build


lightgbm_categories("codes")
lightgbm_categories("codes, one-hot", max_cat_to_onehot=100)
lightgbm_categories("codes, three classes", "three")
lightgbm_categories("codes, forest", **RF)
lightgbm_categories("categories", frame=True)


# CatBoost


CATBOOST: dict[str, Any] = {
    "iterations": 5,
    "depth": 4,
    "learning_rate": 0.3,
    "thread_count": 1,
    "random_seed": 0,
    "allow_writing_files": False,
    "logging_level": "Silent",
}


def catboost_case(
    name: str,
    target: str = "number",
    estimator: str = "CatBoostRegressor",
    *,
    nan: bool = False,
    scale_and_bias: tuple[float, Any] | None = None,
    **options: Any,
) -> None:
    def build() -> tuple[Any, Any]:
        cb = pytest.importorskip("catboost")
        X, y = data(target, nan=nan)
        model = getattr(cb, estimator)(**CATBOOST | options).fit(X, y)
        if scale_and_bias is not None:
            model.set_scale_and_bias(*scale_and_bias)
        return model, X

    CASES[f"catboost {name}"] = build


UNEVEN: dict[str, dict[str, Any]] = {
    "Depthwise": {"grow_policy": "Depthwise", "depth": 5, "min_data_in_leaf": 15},
    "Lossguide": {"grow_policy": "Lossguide", "max_leaves": 7, "depth": 6},
}
catboost_case("symmetric")
catboost_case("three classes, NaN", "three", "CatBoostClassifier", nan=True)
for policy, options in UNEVEN.items():
    catboost_case(policy, **options)
    catboost_case(f"{policy}, NaN", nan=True, nan_mode="Max", **options)
    catboost_case(f"{policy}, three classes", "three", "CatBoostClassifier", **options)
    catboost_case(f"{policy}, MultiRMSE", "several", loss_function="MultiRMSE", **options)
catboost_case("nan_mode Min", nan=True, nan_mode="Min")
catboost_case("nan_mode Max", nan=True, nan_mode="Max")
catboost_case("binary", "binary", "CatBoostClassifier")
catboost_case("MultiRMSE", "several", loss_function="MultiRMSE")
catboost_case("ordered", boosting_type="Ordered", boost_from_average=False)
catboost_case("scale and bias", scale_and_bias=(-2.5, 7.0))
catboost_case(
    "scale and bias, MultiRMSE", "several", loss_function="MultiRMSE", scale_and_bias=(0.5, [1.0, -2.0, 3.0])
)


def catboost_one_hot(name: str, target: str = "number", **options: Any) -> None:
    def build() -> tuple[Any, Any]:
        cb = pytest.importorskip("catboost")
        X, y = category_frame(target)
        X = X.assign(
            colour=X["colour"].astype(object).where(X["colour"].notna(), "none").astype(str),
            code=X["code"].cat.codes.astype(int),
        )
        cls = cb.CatBoostClassifier if target == "three" else cb.CatBoostRegressor
        model = cls(cat_features=["colour", "code"], one_hot_max_size=50, **CATBOOST | options).fit(X, y)
        X.loc[X.index[:5], "colour"] = "unseen"
        return model, X[:60]

    CASES[f"catboost {name}"] = build


catboost_one_hot("one-hot", iterations=15)
catboost_one_hot("one-hot, Lossguide", iterations=15, **UNEVEN["Lossguide"])
catboost_one_hot("one-hot, three classes", "three")


# References from the libraries themselves


def version(module: Any) -> tuple[int, int]:
    major, minor = module.__version__.split(".")[:2]
    return int(major), int(minor)
