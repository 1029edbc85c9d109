"""Families of models: which options are drawn for each family, and how its models are built.

To add a family, add an entry to ``FAMILIES``; to add an option, add a choice to the family's ``options``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module, util
from typing import Any

from . import sums, survival

Choose = Callable[..., Any]


@dataclass(frozen=True)
class Family:
    """A kind of model.

    Attributes
    ----------
    library : str
        Top-level module.
    tasks : tuple of str
        Tasks of ``data.target``.
    options : callable
        Draws the parameters from a chooser and the task.
    build : callable
        Builds the unfitted model from the task, the parameters and the categorical columns.
    missing, infinite, categories : bool
        Whether training data may have them.
    """

    library: str
    tasks: tuple[str, ...]
    options: Callable[[Choose, str], dict[str, Any]]
    build: Callable[[str, dict[str, Any], list[int]], Any]
    missing: bool = True
    infinite: bool = False
    categories: bool = False

    @property
    def installed(self) -> bool:
        return util.find_spec(self.library) is not None


CLASSES = ("binary", "classes", "rare binary", "rare class")


def is_classes(task: str) -> bool:
    return task in (*CLASSES, "one class")


def _of_sklearn(regressor: str, classifier: str) -> Callable[[str, dict[str, Any], list[int]], Any]:
    def build(task: str, params: dict[str, Any], categorical: list[int]) -> Any:
        module, name = (classifier if is_classes(task) else regressor).rsplit(".", 1)
        return getattr(import_module(f"sklearn.{module}"), name)(**params)

    return build


def _tree_options(choose: Choose, task: str) -> dict[str, Any]:
    options = {
        "max_depth": choose("depth", [1, 2, 3, 4, 6, 10, None]),
        "min_samples_leaf": choose("min_samples_leaf", [1, 1, 3, 10]),
        "max_features": choose("max_features", [None, None, 1, "sqrt"]),
        "random_state": 0,
    }
    if task in ("regression", "outputs"):
        options["criterion"] = choose("criterion", ["squared_error", "squared_error", "friedman_mse"])
    elif task != "counts":
        options["class_weight"] = choose("class_weight", [None, None, "balanced"])
    if choose("leaves", [False, False, True]):
        options["max_leaf_nodes"] = choose("max_leaf_nodes", [2, 5, 12])
    return options


def _forest_options(choose: Choose, task: str) -> dict[str, Any]:
    return {
        **_tree_options(choose, task),
        "n_estimators": choose("trees", [1, 2, 5, 10, 30]),
        "bootstrap": choose("bootstrap", [True, False]),
    }


def _boosting_options(choose: Choose, task: str) -> dict[str, Any]:
    options = {
        "max_depth": choose("depth", [1, 2, 3, 5]),
        "n_estimators": choose("trees", [1, 2, 5, 15]),
        "subsample": choose("subsample", [1.0, 1.0, 0.5]),
        "random_state": 0,
        "init": choose("init", [None, None, "zero"]),
        "n_iter_no_change": choose("early", [None, None, 1]),
    }
    if task == "regression":
        options["loss"] = choose("loss", ["squared_error", "absolute_error", "huber", "quantile"])
    elif task in ("binary", "rare binary"):
        options["loss"] = choose("loss", ["log_loss", "exponential"])
    return options


def _histogram_options(choose: Choose, task: str) -> dict[str, Any]:
    options = {
        "max_depth": choose("depth", [1, 2, 4, None]),
        "max_iter": choose("trees", [1, 2, 5, 12]),
        "max_leaf_nodes": choose("max_leaf_nodes", [2, 5, 31]),
        "min_samples_leaf": choose("min_samples_leaf", [1, 5, 20]),
        "max_bins": choose("max_bins", [255, 16]),
        "early_stopping": choose("early", [False, False, True]),
        "n_iter_no_change": 1,
        "random_state": 0,
    }
    if task == "regression":
        options["loss"] = choose("loss", ["squared_error", "absolute_error"])
    elif task == "counts":
        options["loss"] = "poisson"
    elif task == "positive":
        options["loss"] = "gamma"
    return options


def _histograms(task: str, params: dict[str, Any], categorical: list[int]) -> Any:
    build = _of_sklearn("ensemble.HistGradientBoostingRegressor", "ensemble.HistGradientBoostingClassifier")
    codes = params.get("codes")
    params = {name: value for name, value in params.items() if name != "codes"}
    return build(task, {**params, "categorical_features": codes or "from_dtype"}, categorical)


def _isolation_options(choose: Choose, task: str) -> dict[str, Any]:
    return {
        "n_estimators": choose("trees", [1, 5, 20]),
        "max_samples": choose("max_samples", ["auto", 16, 0.5]),
        "max_features": choose("max_features", [1.0, 1.0, 0.5]),
        "bootstrap": choose("bootstrap", [False, True]),
        "random_state": 0,
    }


def _bagging_options(choose: Choose, task: str) -> dict[str, Any]:
    return {
        "n_estimators": choose("trees", [1, 3, 10]),
        "max_samples": choose("max_samples", [1.0, 0.5]),
        "max_features": choose("max_features", [1.0, 0.6]),
        "bootstrap_features": choose("bootstrap_features", [False, True]),
        "random_state": 0,
    }


def _xgboost_options(choose: Choose, task: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "n_estimators": choose("trees", [1, 2, 5, 15]),
        "max_depth": choose("depth", [0, 1, 2, 4, 8]),
        "learning_rate": choose("learning_rate", [0.3, 1.0, 0.05]),
        "reg_lambda": choose("reg_lambda", [1.0, 0.0]),
        "min_child_weight": choose("min_child_weight", [1, 0, 5]),
        "grow_policy": choose("grow_policy", ["depthwise", "lossguide"]),
        "subsample": choose("subsample", [1.0, 0.6]),
        "tree_method": choose("tree_method", ["hist", "hist", "exact", "approx"]),
        "max_cat_to_onehot": choose("max_cat_to_onehot", [4, 1, 100]),
        "n_jobs": 1,
        "random_state": 0,
    }
    if options["max_depth"] == 0:  # no limit of depth, which "exact" does not support
        options |= {"tree_method": "hist", "max_leaves": 12}
    if choose("booster", ["gbtree", "gbtree", "dart"]) == "dart":
        options |= {"booster": "dart", "rate_drop": 0.3}
    if choose("parallel", [False, False, True]):
        options |= {"num_parallel_tree": 3, "colsample_bynode": 0.7}
    if choose("base_score", [False, False, True]):
        options["base_score"] = 0.3
    if choose("missing_number", [False, False, False, True]):
        options["missing"] = 0.25
    if task == "regression":
        options["objective"] = choose(
            "objective", ["reg:squarederror", "reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror"]
        )
    elif task == "counts":
        options["objective"] = "count:poisson"
    elif task == "positive":
        options["objective"] = choose("objective", ["reg:gamma", "reg:tweedie"])
    elif task in ("binary", "rare binary"):
        options["objective"] = choose(
            "objective", ["binary:logistic", "binary:logistic", "binary:logitraw", "binary:hinge"]
        )
        options["scale_pos_weight"] = choose("scale_pos_weight", [1, 1, 5])
    elif task == "cox":
        options["objective"] = "survival:cox"
    elif task == "times":
        options |= {
            "objective": "survival:aft",
            "aft_loss_distribution": choose("distribution", ["normal", "logistic", "extreme"]),
            "aft_loss_distribution_scale": choose("distribution_scale", [1.0, 0.6, 2.0]),
        }
    elif task == "outputs":
        options["multi_strategy"] = choose("multi_strategy", ["one_output_per_tree", "multi_output_tree"])
        options["tree_method"] = "hist"
        if options["multi_strategy"] == "multi_output_tree":
            for name in ("booster", "rate_drop", "num_parallel_tree", "colsample_bynode"):
                options.pop(name, None)
    return options


def _xgboost(task: str, params: dict[str, Any], categorical: list[int]) -> Any:
    import xgboost

    if task == "ranking":
        params = {name: value for name, value in params.items() if name != "objective"}
        return xgboost.XGBRanker(**params)
    codes, types = params.get("codes"), params.get("types")
    params = {name: value for name, value in params.items() if name not in ("codes", "types")}
    if categorical or codes:
        params |= {"enable_categorical": True, "tree_method": "hist"}
    if codes:
        params["feature_types"] = types
    if task == "times":
        return survival.AcceleratedTime(**params)
    return (xgboost.XGBClassifier if is_classes(task) else xgboost.XGBRegressor)(**params)


def _lightgbm_options(choose: Choose, task: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "n_estimators": choose("trees", [1, 2, 5, 15]),
        "num_leaves": choose("num_leaves", [2, 5, 31]),
        "min_child_samples": choose("min_child_samples", [1, 5, 20]),
        "learning_rate": choose("learning_rate", [0.3, 1.0, 0.05]),
        "boosting_type": choose("boosting", ["gbdt", "gbdt", "dart", "rf"]),
        "zero_as_missing": choose("zero_as_missing", [False, False, True]),
        "use_missing": choose("use_missing", [True, True, True, False]),
        "min_data_per_group": 5,
        "cat_smooth": 1,
        "max_cat_to_onehot": choose("max_cat_to_onehot", [4, 1]),
        "n_jobs": 1,
        "random_state": 0,
        "verbose": -1,
    }
    if options["boosting_type"] == "rf":
        options |= {"bagging_freq": 1, "bagging_fraction": 0.7, "feature_fraction": 0.7}
    elif choose("goss", [False, False, True]):
        options["data_sample_strategy"] = "goss"
    if task == "regression":
        options["objective"] = choose("objective", ["regression", "regression", "regression_l1", "huber"])
    elif task == "counts":
        options["objective"] = "poisson"
    elif task == "positive":
        options["objective"] = choose("objective", ["gamma", "tweedie"])
    elif task in ("classes", "rare class"):
        options["objective"] = choose("objective", ["multiclass", "multiclassova"])
    elif task in ("binary", "rare binary"):
        options["sigmoid"] = choose("sigmoid", [1.0, 2.5])
    if choose("linear_tree", [False, False, False, True]):
        options |= {"linear_tree": True, "linear_lambda": choose("linear_lambda", [0.0, 0.1])}
        options["zero_as_missing"] = False  # LightGBM accepts neither this nor the absolute error
        if options.get("objective") == "regression_l1":
            options["objective"] = "regression"
    return options


def _lightgbm(task: str, params: dict[str, Any], categorical: list[int]) -> Any:
    import lightgbm

    params = {name: value for name, value in params.items() if name != "codes"}
    if task == "ranking":
        return lightgbm.LGBMRanker(**{**params, "objective": "lambdarank"})
    return (lightgbm.LGBMClassifier if is_classes(task) else lightgbm.LGBMRegressor)(**params)


def _catboost_options(choose: Choose, task: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "iterations": choose("trees", [1, 2, 5, 15]),
        "grow_policy": choose("grow_policy", ["SymmetricTree", "SymmetricTree", "Depthwise", "Lossguide"]),
        "depth": choose("depth", [1, 2, 4, 6]),
        "learning_rate": choose("learning_rate", [0.3, 1.0]),
        "one_hot_max_size": choose("one_hot_max_size", [2, 10]),
        "max_ctr_complexity": choose("max_ctr_complexity", [1, 1, 2]),
        "bootstrap_type": choose("bootstrap_type", ["No", "Bayesian"]),
        "nan_mode": choose("nan_mode", ["Min", "Max"]),
        "random_seed": 0,
        "thread_count": 1,
        "verbose": False,
        "allow_writing_files": False,
    }
    if task == "regression":
        options["loss_function"] = choose("objective", ["RMSE", "RMSE", "MAE"])
    elif task == "counts":
        options["loss_function"] = "Poisson"
    elif task == "outputs":
        options |= {"loss_function": "MultiRMSE", "grow_policy": "SymmetricTree"}
    elif task in ("classes", "rare class"):
        options["loss_function"] = choose("objective", ["MultiClass", "MultiClassOneVsAll"])
    return options


def _catboost(task: str, params: dict[str, Any], categorical: list[int]) -> Any:
    import catboost

    cls = catboost.CatBoostClassifier if is_classes(task) else catboost.CatBoostRegressor
    return cls(**params)


def _sum_options(choose: Choose, task: str) -> dict[str, Any]:
    return sums.options(choose, task, is_classes(task))


def _sum(task: str, params: dict[str, Any], categorical: list[int]) -> Any:
    return sums.build(params, is_classes(task))


_NUMBERS = ("regression", "regression")

FAMILIES = {
    "tree": Family(
        "sklearn",
        (*_NUMBERS, *CLASSES, "one class", "outputs"),
        _tree_options,
        _of_sklearn("tree.DecisionTreeRegressor", "tree.DecisionTreeClassifier"),
    ),
    "extra tree": Family(
        "sklearn",
        (*_NUMBERS, *CLASSES, "outputs"),
        _tree_options,
        _of_sklearn("tree.ExtraTreeRegressor", "tree.ExtraTreeClassifier"),
    ),
    "forest": Family(
        "sklearn",
        (*_NUMBERS, *_NUMBERS, *CLASSES, "one class", "outputs"),
        _forest_options,
        _of_sklearn("ensemble.RandomForestRegressor", "ensemble.RandomForestClassifier"),
    ),
    "extra trees": Family(
        "sklearn",
        (*_NUMBERS, *CLASSES, "outputs"),
        _forest_options,
        _of_sklearn("ensemble.ExtraTreesRegressor", "ensemble.ExtraTreesClassifier"),
    ),
    "bagging": Family(
        "sklearn",
        (*_NUMBERS, *CLASSES),
        _bagging_options,
        _of_sklearn("ensemble.BaggingRegressor", "ensemble.BaggingClassifier"),
    ),
    "boosting": Family(
        "sklearn",
        (*_NUMBERS, *CLASSES),
        _boosting_options,
        _of_sklearn("ensemble.GradientBoostingRegressor", "ensemble.GradientBoostingClassifier"),
        missing=False,
    ),
    "histograms": Family(
        "sklearn",
        (*_NUMBERS, *CLASSES, "counts", "positive"),
        _histogram_options,
        _histograms,
        infinite=True,
        categories=True,
    ),
    "isolation": Family(
        "sklearn", ("outliers",), _isolation_options, _of_sklearn("ensemble.IsolationForest", "")
    ),
    "sums": Family("sklearn", (*_NUMBERS, *_NUMBERS, *CLASSES, "outputs"), _sum_options, _sum),
    "survival": Family("sksurv", ("survival",), survival.options, survival.build, missing=False),
    "xgboost": Family(
        "xgboost",
        (*_NUMBERS, *CLASSES, "counts", "positive", "outputs", "ranking", "cox", "times"),
        _xgboost_options,
        _xgboost,
        categories=True,
    ),
    "lightgbm": Family(
        "lightgbm",
        (*_NUMBERS, *CLASSES, "counts", "positive", "ranking"),
        _lightgbm_options,
        _lightgbm,
        infinite=True,
        categories=True,
    ),
    "catboost": Family(
        "catboost",
        (*_NUMBERS, *CLASSES, "counts", "outputs"),
        _catboost_options,
        _catboost,
        infinite=True,
        categories=True,
    ),
}


@cache
def installed() -> tuple[str, ...]:
    return tuple(name for name, family in FAMILIES.items() if family.installed)


#: Families to which a user can declare the columns of an array that are codes of categories.
WITH_CODES = ("histograms", "xgboost", "lightgbm")
