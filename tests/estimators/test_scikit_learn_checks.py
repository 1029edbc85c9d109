"""scikit-learn's own checks of the transformers around models of every family.

Failures around a model of another library are listed with the reason, and must persist.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.fixes import parse_version

from skshapgpu import ShapInteractionTransformer, ShapTransformer

SMALL: dict[str, dict[str, Any]] = {
    "xgboost": {"n_estimators": 3, "max_depth": 3, "n_jobs": 1},
    "lightgbm": {"n_estimators": 3, "num_leaves": 7, "learning_rate": 0.5, "verbose": -1, "n_jobs": 1},
    "catboost": {
        "iterations": 3,
        "depth": 3,
        "verbose": False,
        "allow_writing_files": False,
        "thread_count": 1,
        "random_seed": 0,
    },
}

#: Names of the classes.
PREFIXES, KINDS = {"xgboost": "XGB", "lightgbm": "LGBM", "catboost": "CatBoost"}, ("Regressor", "Classifier")


OF_SCIKIT_LEARN = [
    ShapTransformer(DecisionTreeRegressor(random_state=0)),
    ShapTransformer(DecisionTreeClassifier(random_state=0)),
    ShapTransformer(RandomForestRegressor(5, random_state=0)),
    ShapTransformer(RandomForestClassifier(5, random_state=0), outputs="all"),
    ShapTransformer(HistGradientBoostingRegressor(max_iter=5, random_state=0)),
    ShapTransformer(HistGradientBoostingClassifier(max_iter=5, random_state=0)),
    ShapTransformer(GradientBoostingRegressor(n_estimators=5, random_state=0)),
    ShapTransformer(GradientBoostingClassifier(n_estimators=5, random_state=0)),
    ShapTransformer(IsolationForest(n_estimators=5, random_state=0), precision="double"),
    ShapInteractionTransformer(DecisionTreeRegressor(random_state=0)),
    ShapInteractionTransformer(DecisionTreeClassifier(random_state=0), interactions=3),
    ShapInteractionTransformer(RandomForestRegressor(5, random_state=0), interactions=2, index="STII"),
    ShapInteractionTransformer(RandomForestClassifier(5, random_state=0), outputs="all"),
    ShapInteractionTransformer(HistGradientBoostingRegressor(max_iter=5, random_state=0), index="BII"),
    ShapInteractionTransformer(HistGradientBoostingClassifier(max_iter=5, random_state=0)),
    ShapInteractionTransformer(GradientBoostingClassifier(n_estimators=5, random_state=0)),
    ShapInteractionTransformer(IsolationForest(n_estimators=5, random_state=0), precision="double"),
]


@parametrize_with_checks(OF_SCIKIT_LEARN)
def test_models_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def of_other_libraries() -> Iterator[Any]:
    for library, options in SMALL.items():
        try:
            module = importlib.import_module(library)
        except ImportError:
            continue
        regressor, classifier = (getattr(module, PREFIXES[library] + kind) for kind in KINDS)
        yield ShapTransformer(regressor(**options))
        yield ShapTransformer(classifier(**options))
        yield ShapInteractionTransformer(classifier(**options))


NUMBERED = "the check trains with labels other than 0, 1, ..., which XGBoost refuses"
CATBOOST_SPARSE = "CatBoost says that it takes sparse X, but takes some kinds of scipy.sparse only"
CATBOOST_ARRAYS = "CatBoost takes arrays, lists and frames, but nothing else that numpy.asarray takes"

#: Failures of the models themselves, by their class and the check.
EXPECTED = {
    "XGBRegressor": {
        "check_regressor_multioutput": "XGBoost predicts float32",
    },
    "XGBClassifier": {
        "check_classifier_data_not_an_array": NUMBERED,
        "check_classifiers_classes": NUMBERED,
        "check_estimators_dtypes": NUMBERED,
    },
    "LGBMRegressor": {},
    "LGBMClassifier": {},
    "CatBoostRegressor": {
        "check_dtype_object": "CatBoost refuses objects with an error of its own class",
        "check_estimator_sparse_array": CATBOOST_SPARSE,
        "check_estimator_sparse_matrix": CATBOOST_SPARSE,
        "check_estimator_sparse_tag": CATBOOST_SPARSE,
        "check_fit2d_1sample": "CatBoost refuses constant features with an error of its own class",
        "check_regressor_data_not_an_array": CATBOOST_ARRAYS,
        "check_supervised_y_2d": "CatBoost takes y with a second axis without a warning",
        "check_supervised_y_no_nan": "CatBoost takes infinite y",
        "check_transformer_data_not_an_array": CATBOOST_ARRAYS,
    },
    "CatBoostClassifier": {
        "check_classifier_data_not_an_array": CATBOOST_ARRAYS,
        "check_classifiers_one_label": "CatBoost refuses y of one class with an error of its own class",
        "check_classifiers_one_label_sample_weights": "CatBoost counts classes whose rows have no weight",
        "check_classifiers_train": "of more than two classes CatBoost predicts a column",
        "check_dtype_object": "CatBoost refuses objects with an error of its own class",
        "check_estimator_sparse_array": CATBOOST_SPARSE,
        "check_estimator_sparse_matrix": CATBOOST_SPARSE,
        "check_estimator_sparse_tag": CATBOOST_SPARSE,
        "check_fit2d_1sample": "CatBoost refuses constant features with an error of its own class",
        "check_transformer_data_not_an_array": CATBOOST_ARRAYS,
    },
}


def expected(transformer: Any) -> dict[str, str]:
    name = type(transformer.estimator).__name__
    if name == "XGBClassifier":
        version = importlib.import_module("xgboost").__version__
        if parse_version(version) < parse_version("3.4"):
            return EXPECTED[name] | {"check_fit2d_1feature": NUMBERED, "check_fit2d_1sample": NUMBERED}
    if name.startswith("CatBoost") and not hasattr(transformer.estimator, "__sklearn_tags__"):
        return EXPECTED[name] | {"check_estimators_nan_inf": "CatBoost 1.2.0 does not say that it takes NaN"}
    return EXPECTED[name]


CHECKS = parametrize_with_checks(list(of_other_libraries()), expected_failed_checks=expected)


def name_without_address(value: Any) -> str:
    """Return scikit-learn's name of a case, without the address of a model that CatBoost 1.2.0 writes."""
    return re.sub("objectat0x[0-9a-f]+", "", CHECKS.kwargs["ids"](value))


@pytest.mark.parametrize(*CHECKS.args, **(CHECKS.kwargs | {"ids": name_without_address}))
def test_models_of_other_libraries(estimator: Any, check: Any) -> None:
    check(estimator)
