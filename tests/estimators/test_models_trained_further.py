"""Transformers of fitted models that are trained further: they explain the model that predicts."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from helpers.families import forest, library
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.datasets import load_diabetes
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import ShapInteractionTransformer, ShapTransformer, TreeExplainer, UnsupportedModelError
from skshapgpu.adapters import adapt, register_adapter

DIABETES, PROGRESSION = (part[:150] for part in load_diabetes(return_X_y=True))
OTHERS, THEIRS = DIABETES[::-1] * 1.5, -5 * PROGRESSION  # of a second training

Model = tuple[Any, Callable[[], Any]]


def warm_start(model: Any, name: str) -> Model:
    model.set_params(warm_start=True).fit(DIABETES, PROGRESSION)
    more = 2 * getattr(model, name)
    return model, lambda: model.set_params(**{name: more}).fit(OTHERS, THEIRS)


def edited_leaves() -> Model:
    model = forest(3).fit(DIABETES, PROGRESSION)

    def change() -> None:
        for tree in model.estimators_:
            tree.tree_.value[:] = 17.0

    return model, change


def pipeline() -> Model:
    model = make_pipeline(StandardScaler(), forest(3)).fit(DIABETES, PROGRESSION)
    return model, lambda: model[0].partial_fit(1000 * OTHERS)


def search() -> Model:
    model = GridSearchCV(forest(3), {"max_depth": [3]}, cv=2).fit(DIABETES, PROGRESSION)
    return model, lambda: model.best_estimator_.fit(OTHERS, THEIRS)


def xgboost_continued() -> Model:
    model = library("xgboost").XGBRegressor(n_estimators=4, n_jobs=1).fit(DIABETES, PROGRESSION)
    return model, lambda: model.fit(OTHERS, THEIRS, xgb_model=model.get_booster())


def xgboost_booster() -> Model:
    xgboost = library("xgboost")
    model = xgboost.XGBRegressor(n_estimators=4, n_jobs=1).fit(DIABETES, PROGRESSION)
    return model, lambda: model.get_booster().update(xgboost.DMatrix(OTHERS, THEIRS), 4)


def xgboost_parameters() -> Model:
    """Return a model whose parameter ``missing`` changes predictions, too."""
    X = np.where(DIABETES < -0.03, -0.05, DIABETES)
    model = library("xgboost").XGBRegressor(n_estimators=4, n_jobs=1).fit(X, PROGRESSION)
    return model, lambda: model.set_params(missing=float(DIABETES[0, 0]))


def lightgbm_booster() -> Model:
    lightgbm = library("lightgbm")
    rows = lightgbm.Dataset(DIABETES[:80], PROGRESSION[:80])
    model = lightgbm.train(
        {"num_leaves": 5, "learning_rate": 0.9, "verbose": -1, "num_threads": 1, "min_data_in_leaf": 3},
        rows,
        30,
        valid_sets=[lightgbm.Dataset(DIABETES[80:], PROGRESSION[80:], reference=rows)],
        callbacks=[lightgbm.early_stopping(3, verbose=False)],
        keep_training_booster=True,
    )
    assert 0 < model.best_iteration < model.current_iteration()  # which a deep copy would forget
    return model, lambda: model.set_leaf_output(0, 0, 1234.5)


def lightgbm_continued() -> Model:
    model = library("lightgbm").LGBMRegressor(n_estimators=4, verbose=-1, n_jobs=1).fit(DIABETES, PROGRESSION)
    return model, lambda: model.fit(OTHERS, THEIRS, init_model=model)


def catboost_scaled() -> Model:
    model = library("catboost").CatBoostRegressor(
        iterations=4, depth=3, verbose=False, allow_writing_files=False, thread_count=1
    )
    model.fit(DIABETES, PROGRESSION)
    return model, lambda: model.set_scale_and_bias(3.0, 11.0)


MODELS: dict[str, Callable[[], Model]] = {
    "forest": lambda: warm_start(forest(3), "n_estimators"),
    "boosting": lambda: warm_start(GradientBoostingRegressor(n_estimators=4), "n_estimators"),
    "histogram boosting": lambda: warm_start(HistGradientBoostingRegressor(max_iter=4), "max_iter"),
    "edited leaves": edited_leaves,
    "step of a pipeline": pipeline,
    "search": search,
    "xgboost, continued": xgboost_continued,
    "xgboost, its Booster": xgboost_booster,
    "xgboost, its parameters": xgboost_parameters,
    "lightgbm Booster": lightgbm_booster,
    "lightgbm, continued": lightgbm_continued,
    "catboost": catboost_scaled,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("way", ["from_fitted", "frozen", "frozen in a pipeline"])
def test_a_transformer_predicts_with_the_model_that_it_explains(name: str, way: str) -> None:
    model, change = MODELS[name]()
    if way != "from_fitted" and type(model).__name__ == "Booster":
        pytest.skip("FrozenEstimator.fit takes estimators only")
    before = model.predict(DIABETES)
    if way == "from_fitted":
        transformer = ShapTransformer.from_fitted(model, precision="double")
    else:
        frozen: Any = FrozenEstimator(model)
        inside = frozen if way == "frozen" else make_pipeline("passthrough", frozen)
        transformer = ShapTransformer(inside, precision="double").fit(DIABETES, PROGRESSION)
    values = transformer.transform(DIABETES)
    change()
    assert np.abs(model.predict(DIABETES) - before).max() > 1e-3 * np.ptp(before)
    for each in (transformer, deepcopy(transformer), pickle.loads(pickle.dumps(transformer))):
        np.testing.assert_array_equal(each.transform(DIABETES), values)
        np.testing.assert_array_equal(each.predict(DIABETES), before)
        total = each.base_values_ + each.transform(DIABETES).sum(axis=1)
        np.testing.assert_allclose(each.predict(DIABETES), total, rtol=1e-5)
    if way != "from_fitted":  # a frozen model is fitted anew as it is then
        again = clone(transformer).fit(DIABETES, PROGRESSION)
        np.testing.assert_array_equal(again.predict(DIABETES), model.predict(DIABETES))


def test_interactions_of_a_model_that_is_trained_further() -> None:
    model, change = MODELS["forest"]()
    transformer = ShapInteractionTransformer.from_fitted(model, interactions=[(2, 8)])
    values, before = transformer.transform(DIABETES), transformer.predict(DIABETES)
    change()
    np.testing.assert_array_equal(transformer.transform(DIABETES), values)
    np.testing.assert_array_equal(transformer.predict(DIABETES), before)
    assert (model.predict(DIABETES) != before).any()


class Locked(RegressorMixin, BaseEstimator):
    """Model that cannot be copied."""

    def __init__(self, model: Any) -> None:
        self.model, self.lock = model, threading.Lock()

    def predict(self, X: Any) -> Any:
        return self.model.predict(X)


def test_models_that_cannot_be_copied() -> None:
    register_adapter(f"{Locked.__module__}.{Locked.__qualname__}", lambda model: adapt(model.model))
    model = Locked(forest(3).fit(DIABETES, PROGRESSION))
    with pytest.raises(UnsupportedModelError, match=r"cannot copy this Locked.*Use TreeExplainer\(model\)"):
        ShapTransformer.from_fitted(model)
    assert TreeExplainer(model).shap_values(DIABETES).shape == DIABETES.shape


def test_models_without_predictions_need_no_copy() -> None:
    treelite = library("treelite")
    model = treelite.sklearn.import_model(forest(3).fit(DIABETES, PROGRESSION))
    transformer = ShapTransformer.from_fitted(model)
    assert transformer.estimator_.estimator is model
    assert not hasattr(transformer, "predict")
    np.testing.assert_array_equal(transformer.transform(DIABETES), TreeExplainer(model).shap_values(DIABETES))
