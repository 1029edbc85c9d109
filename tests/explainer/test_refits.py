"""Explainers whose model, pipeline or data is refitted or changed in place after they were made."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from helpers.families import (
    FAMILIES,
    classifier,
    forest,
    frame_with_categories,
    library,
    regressor,
    with_categories,
)
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    IsolationForest,
)
from sklearn.feature_selection import RFE, SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import ShapTransformer, TreeExplainer, UnsupportedModelError, cross_val_explain, explain
from skshapgpu.batches.fingerprint import fingerprint

DIABETES, PROGRESSION = (part[:150] for part in load_diabetes(return_X_y=True))

#: Data for the second fit: other columns on other scales, and another target.
OTHERS = DIABETES[::-1, ::-1] * 1000 + np.arange(10)
THEIRS = -5 * PROGRESSION


def encoded() -> Any:
    return make_column_transformer(
        (KBinsDiscretizer(3, encode="onehot-dense", strategy="uniform"), [0, 3]),
        (StandardScaler(), [5, 2, 1]),
        remainder="passthrough",
    )


PIPELINES: dict[str, Callable[[], Any]] = {
    "scaler": lambda: make_pipeline(StandardScaler(), forest(3)),
    "columns": lambda: make_pipeline(encoded(), forest(3)),
    "nested": lambda: make_pipeline(make_pipeline(MinMaxScaler(), StandardScaler()), forest(3)),
    "union": lambda: make_pipeline(FeatureUnion([("a", StandardScaler()), ("b", MinMaxScaler())]), forest(3)),
    "selection": lambda: make_pipeline(SelectKBest(k=4), forest(3)),
    "search": lambda: GridSearchCV(make_pipeline(StandardScaler(), forest(3)), {}, cv=2),
    "transformer": lambda: ShapTransformer(make_pipeline(StandardScaler(), forest(3))),
    "shap values": lambda: make_pipeline(ShapTransformer(forest(3)), forest(3)),
    "elimination": lambda: RFE(forest(3), n_features_to_select=3),
}


def innermost(model: Any) -> Any:
    """Return the pipeline in a search or transformer, where it is fitted in place."""
    while True:
        for name in ("best_estimator_", "estimator_"):
            if hasattr(model, name) and not isinstance(model, (Pipeline, RFE)):
                model = getattr(model, name)
                break
        else:
            return model


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_pipeline_that_is_fitted_again(name: str, frozen: bool) -> None:
    model = PIPELINES[name]().fit(DIABETES, PROGRESSION)
    given = FrozenEstimator(model) if frozen else model
    expected = explain(pickle.loads(pickle.dumps(model)), DIABETES)
    explainer = TreeExplainer(given)
    used, mark = TreeExplainer(given), fingerprint(explainer)
    before = used.explain(DIABETES)
    np.testing.assert_array_equal(before.values, expected.values)
    innermost(model).fit(OTHERS, THEIRS)
    model.fit(OTHERS, THEIRS)
    for each in (explainer, used):
        after = each.explain(DIABETES)
        np.testing.assert_array_equal(after.values, expected.values)
        np.testing.assert_array_equal(after.base_values, expected.base_values)
        np.testing.assert_array_equal(after.data, expected.data)
        assert after.feature_names == expected.feature_names
        assert after.origins.columns is None or (after.origins.columns == expected.origins.columns).all()
    assert fingerprint(explainer) == mark != fingerprint(TreeExplainer(given))
    assert (TreeExplainer(given).shap_values(DIABETES) != expected.values).any()


@pytest.mark.parametrize("make", [lambda model: ShapTransformer(model).fit(DIABETES, PROGRESSION), None])
def test_transformers_around_a_pipeline_that_is_fitted_again(make: Any) -> None:
    model = make_pipeline(StandardScaler(), forest(3)).fit(DIABETES, PROGRESSION)
    transformer = ShapTransformer.from_fitted(model) if make is None else make(FrozenEstimator(model))
    copies = [deepcopy(transformer), pickle.loads(pickle.dumps(transformer))]
    expected = transformer.transform(DIABETES)
    model.fit(OTHERS, THEIRS)
    for each in (transformer, *copies):
        np.testing.assert_array_equal(each.transform(DIABETES), expected)
    refitted = ShapTransformer(FrozenEstimator(model)).fit(DIABETES)
    np.testing.assert_array_equal(refitted.transform(DIABETES), explain(model, DIABETES).values)


def test_a_step_that_goes_on_learning_and_steps_that_are_changed_in_place() -> None:
    model = make_pipeline(StandardScaler(), forest(3)).fit(DIABETES, PROGRESSION)
    explainer = TreeExplainer(model)
    expected = explainer.shap_values(DIABETES)
    model[0].partial_fit(OTHERS)
    np.testing.assert_array_equal(explainer.shap_values(DIABETES), expected)
    model[0].mean_[:] = 7
    model[0].scale_ *= 3
    model.steps.insert(0, ("more", MinMaxScaler().fit(DIABETES)))
    np.testing.assert_array_equal(explainer.shap_values(DIABETES), expected)


def test_a_pipeline_with_a_cache(tmp_path: Any) -> None:
    model = Pipeline(
        [("scale", make_pipeline(StandardScaler(), memory=str(tmp_path))), ("forest", forest(3))]
    )
    explainer = TreeExplainer(model.fit(DIABETES, PROGRESSION))
    expected = explain(model, DIABETES).values
    model.fit(OTHERS, THEIRS)
    np.testing.assert_array_equal(explainer.shap_values(DIABETES), expected)


class Counting(TransformerMixin, BaseEstimator):
    """Model that counts its copies; ``lock`` cannot be copied."""

    n_copies = 0

    def fit(self, X: Any, y: Any = None) -> Counting:
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> Any:
        return 2 * X

    def __deepcopy__(self, memo: dict[int, Any]) -> Counting:
        type(self).n_copies += 1
        result = type(self)()
        result.__dict__.update({name: deepcopy(value, memo) for name, value in vars(self).items()})
        return result


def test_steps_are_copied_only_where_somebody_could_fit_them_again() -> None:
    model = make_pipeline(Counting(), forest(3))
    Counting.n_copies = 0
    results = cross_val_explain(model, DIABETES, PROGRESSION, cv=3, return_estimator=True)
    explanation = explain(model.fit(DIABETES, PROGRESSION), DIABETES)
    assert Counting.n_copies == 0
    assert np.isfinite(results["explanation"].values).all()
    np.testing.assert_array_equal(TreeExplainer(model).shap_values(DIABETES), explanation.values)
    assert Counting.n_copies == 1


def test_a_step_that_cannot_be_copied() -> None:
    model = make_pipeline(Counting(), forest(3)).fit(DIABETES, PROGRESSION)
    model[0].lock = threading.Lock()
    with pytest.raises(UnsupportedModelError, match=r"cannot copy a Counting.*explain the last step"):
        TreeExplainer(model)
    # Both solutions that the message names.
    values = explain(model, DIABETES).values
    np.testing.assert_array_equal(TreeExplainer(model[-1]).shap_values(2 * DIABETES), values)
    function = FunctionTransformer(lambda X: 2 * X)  # which scikit-learn cannot pickle, but copies
    other = make_pipeline(function, forest(3)).fit(DIABETES, PROGRESSION)
    np.testing.assert_array_equal(TreeExplainer(other).shap_values(DIABETES), values)


# Models and data


def assert_same_after(model: Any, X: Any, change: Callable[[], Any], **options: Any) -> None:
    """Check that a change does not affect explainers made before it, whether they were used or not."""
    twin = pickle.loads(pickle.dumps(TreeExplainer(model, **options)))
    expected, base_values = twin.shap_values(X), twin.expected_value
    untouched, used = TreeExplainer(model, **options), TreeExplainer(model, **options)
    np.testing.assert_array_equal(used.shap_values(X), expected)
    change()
    for explainer in (untouched, used):
        np.testing.assert_array_equal(explainer.shap_values(X), expected)
        np.testing.assert_array_equal(explainer.expected_value, base_values)
    np.testing.assert_array_equal(
        untouched.shap_interaction_values(X[:5]), twin.shap_interaction_values(X[:5])
    )
    assert fingerprint(untouched) == fingerprint(twin)


@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeRegressor(max_depth=4),
        forest(3).set_params(warm_start=True),
        ExtraTreesRegressor(3, max_depth=4),
        BaggingRegressor(DecisionTreeRegressor(max_depth=3), 3, max_features=0.5),
        GradientBoostingRegressor(n_estimators=4, warm_start=True),
        HistGradientBoostingRegressor(max_iter=4, warm_start=True),
        IsolationForest(n_estimators=4),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_of_scikit_learn(model: Any) -> None:
    model.fit(DIABETES, PROGRESSION)

    def change() -> None:
        trees = np.ravel(getattr(model, "estimators_", [model])).tolist()
        for tree in trees:
            if hasattr(tree, "tree_"):
                tree.tree_.value[:] = 17.0
                tree.tree_.threshold[:] = 0.0
        for (predictor,) in getattr(model, "_predictors", []):
            predictor.nodes["value"] = 17.0
            predictor.nodes["num_threshold"] = 0.0
        if hasattr(model, "warm_start") and not isinstance(model, (IsolationForest, BaggingRegressor)):
            model.set_params(**{"max_iter" if hasattr(model, "max_iter") else "n_estimators": 9})
        model.fit(OTHERS, THEIRS)

    assert_same_after(model, DIABETES, change)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_models_that_are_fitted_again(family: str, kind: str) -> None:
    y = PROGRESSION if kind == "regressor" else (PROGRESSION > 140).astype(int)
    model = (regressor if kind == "regressor" else classifier)(family).fit(DIABETES, y)
    other = THEIRS if kind == "regressor" else 1 - y
    assert_same_after(model, DIABETES, lambda: model.fit(OTHERS, other))


def test_boosters_that_are_trained_on() -> None:
    xgboost, lightgbm, catboost = map(library, ("xgboost", "lightgbm", "catboost"))
    rows = xgboost.DMatrix(DIABETES, PROGRESSION)
    booster = xgboost.train({"max_depth": 3, "nthread": 1}, rows, 4)
    assert_same_after(booster, DIABETES, lambda: booster.update(xgboost.DMatrix(OTHERS, THEIRS), 4))

    other = lightgbm.train(
        {"num_leaves": 5, "verbose": -1, "num_threads": 1},
        lightgbm.Dataset(DIABETES, PROGRESSION, free_raw_data=False),
        4,
        keep_training_booster=True,
    )

    def change() -> None:
        other.update()
        other.set_leaf_output(0, 0, 1234.5)

    assert_same_after(other, DIABETES, change)
    third = catboost.CatBoostRegressor(
        iterations=4, depth=3, verbose=False, allow_writing_files=False, thread_count=1
    ).fit(DIABETES, PROGRESSION)

    def shrink() -> None:
        third.set_scale_and_bias(3.0, 11.0)
        third.shrink(2)

    assert_same_after(third, DIABETES, shrink)


@pytest.mark.parametrize("family", ["sklearn", "xgboost", "lightgbm"])
def test_categories(family: str) -> None:
    X, y = frame_with_categories()
    model = with_categories(family, X, y)

    def change() -> None:
        if family == "lightgbm":
            model.booster_.pandas_categorical[0][:] = model.booster_.pandas_categorical[0][::-1]
        if family == "sklearn":
            encoded = model._preprocessor.named_transformers_["encoder"].categories_[0]
            encoded[:] = encoded[::-1]
        others = X.assign(color=X["color"].cat.rename_categories(lambda name: name[::-1]))
        model.fit(others.iloc[:, ::-1], -y)

    expected = TreeExplainer(model)
    values = expected.shap_values(X)
    untouched = TreeExplainer(model)
    change()
    for explainer in (expected, untouched):
        np.testing.assert_array_equal(explainer.shap_values(X), values)


def test_categories_of_catboost() -> None:
    catboost = library("catboost")
    X, y = frame_with_categories()
    options = {"iterations": 6, "depth": 3, "verbose": False, "allow_writing_files": False, "thread_count": 1}
    # One-hot splits and CTRs.
    model = catboost.CatBoostRegressor(cat_features=["color"], one_hot_max_size=2, **options).fit(X, y)
    untouched, used = TreeExplainer(model), TreeExplainer(model)
    values = used.shap_values(X)
    others = X.assign(color=X["color"].cat.rename_categories(lambda name: name[::-1]))
    model.fit(others, -y)
    for explainer in (untouched, used):
        np.testing.assert_array_equal(explainer.shap_values(X), values)


@pytest.mark.parametrize("model_output", ["raw", "probability", "log_loss"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_background_rows_and_weights(model_output: str, dtype: type) -> None:
    y = (PROGRESSION > 140).astype(int)
    model = classifier("sklearn").fit(DIABETES, y)
    data, weights = DIABETES[:20].astype(dtype), np.arange(1.0, 21.0)
    labels = y if model_output == "log_loss" else None
    options = {"data": data, "data_weight": weights, "model_output": model_output, "device": "cpu"}
    untouched, used = TreeExplainer(model, **options), TreeExplainer(model, **options)
    expected = used.explain(DIABETES, labels)
    data[:], weights[:] = 1e6, 1.0
    for explainer in (untouched, used):
        explanation = explainer.explain(DIABETES, labels)
        np.testing.assert_array_equal(explanation.values, expected.values)
        np.testing.assert_array_equal(explanation.base_values, expected.base_values)


def test_background_rows_behind_a_pipeline() -> None:
    frame = pytest.importorskip("pandas").DataFrame(DIABETES, columns=[f"c{i}" for i in range(10)])
    model = make_pipeline(StandardScaler(), forest(3)).fit(frame, PROGRESSION)
    data = frame.iloc[:20].copy()
    explainer = TreeExplainer(model, data)
    expected = explainer.explain(frame)
    data.loc[:, "c3"] = 1e6
    model.fit(frame.iloc[::-1] * 7, THEIRS)
    explanation = explainer.explain(frame)
    np.testing.assert_array_equal(explanation.values, expected.values)
    assert explanation.base_values == expected.base_values


def test_an_adapted_model_that_is_changed_in_place() -> None:
    from skshapgpu.adapters import adapt

    adapted = adapt(forest(3).fit(DIABETES, PROGRESSION))
    explainer, used = TreeExplainer(adapted), TreeExplainer(adapted)
    expected = used.shap_values(DIABETES)
    for name in ("value", "threshold", "cover"):
        array = getattr(adapted.ensemble, name)
        if array.flags.writeable:
            array[:] = 1.0
    for each in (explainer, used):
        np.testing.assert_array_equal(each.shap_values(DIABETES), expected)
