"""The transformers inside scikit-learn's tools, and parameters of other libraries' models."""

from __future__ import annotations

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from helpers.families import forest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import skshapgpu._estimators.base
from skshapgpu import ShapInteractionTransformer, ShapTransformer, TreeExplainer, explain

IRIS, SPECIES = load_iris(return_X_y=True)
DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)
BOTH = [ShapTransformer, ShapInteractionTransformer]


# Rows


@pytest.mark.parametrize("transformer", BOTH)
def test_eight_threads_get_the_same_bits(transformer: Any) -> None:
    fitted = transformer(RandomForestClassifier(10, random_state=0), n_jobs=2).fit(IRIS, SPECIES)
    X = np.repeat(IRIS, 5, axis=0)
    expected = fitted.explain(X).values.copy()
    with ThreadPoolExecutor(8) as pool:
        for explanation in pool.map(lambda _: fitted.explain(X), range(32)):
            np.testing.assert_array_equal(explanation.values, expected)
    with ThreadPoolExecutor(8) as pool:  # the first calls of a new transformer, which compile their plans
        other = pickle.loads(pickle.dumps(fitted))
        for values in pool.map(lambda _: other.transform(X), range(8)):
            np.testing.assert_array_equal(values, expected.reshape(len(X), -1))


def library_model(library: str, **options: Any) -> Any:
    module = pytest.importorskip(library)
    if library == "xgboost":
        return module.XGBRegressor(n_estimators=5, max_depth=3, n_jobs=1, **options)
    if library == "lightgbm":
        return module.LGBMRegressor(n_estimators=5, num_leaves=7, verbose=-1, n_jobs=1, **options)
    quiet = {"verbose": False, "allow_writing_files": False, "thread_count": 1}
    return module.CatBoostRegressor(iterations=5, depth=3, **quiet, **options)


@pytest.mark.parametrize("library", ["sklearn", "forest", "xgboost", "lightgbm", "catboost"])
@pytest.mark.parametrize("transformer", BOTH)
def test_missing_values(transformer: Any, library: str) -> None:
    X = DIABETES.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    ours = {"sklearn": HistGradientBoostingRegressor(max_iter=5), "forest": forest()}
    fitted = transformer(ours[library] if library in ours else library_model(library)).fit(X, PROGRESSION)
    says_so = fitted.__sklearn_tags__().input_tags.allow_nan
    # The transformer says what the model says. CatBoost 1.2.0 has no tags, and takes NaN all the same.
    assert says_so == (library != "catboost" or hasattr(fitted.estimator, "__sklearn_tags__"))
    explanation = fitted.explain(X)
    if transformer is ShapTransformer:
        margin = explanation.base_values + explanation.values.sum(axis=1)
    else:
        margin = explanation.base_values + explanation.single_values.sum(axis=1)
    np.testing.assert_allclose(margin, fitted.predict(X), rtol=1e-4)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix])
def test_sparse_rows_of_other_libraries(library: str, make: Any) -> None:
    X = DIABETES.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.5] = 0
    fitted = ShapTransformer(library_model(library)).fit(make(X), PROGRESSION)
    values = fitted.transform(make(X))
    np.testing.assert_allclose(fitted.base_values_ + values.sum(axis=1), fitted.predict(make(X)), rtol=1e-4)
    zero_is_missing = library == "xgboost"
    same = np.allclose(values, fitted.transform(X), atol=1e-3)
    assert same != zero_is_missing


def test_rows_that_the_model_does_not_take() -> None:
    X = DIABETES.copy()
    X[7, 3] = np.nan
    fitted = ShapTransformer(GradientBoostingClassifier(n_estimators=3)).fit(DIABETES, PROGRESSION > 150)
    for method in (fitted.predict, fitted.transform):
        with pytest.raises(ValueError, match="contains NaN"):
            method(X)


@pytest.mark.parametrize("library", ["sklearn", "xgboost", "catboost"])
def test_training_data_is_checked_whatever_the_library_does(library: str) -> None:
    def new() -> Any:
        return ShapTransformer(forest() if library == "sklearn" else library_model(library))

    with pytest.raises(ValueError, match=r"0 sample\(s\) \(shape=\(0, 10\)\)"):
        new().fit(DIABETES[:0], PROGRESSION[:0])
    with pytest.raises(ValueError, match=r"0 feature\(s\)"):
        new().fit(DIABETES[:, :0], PROGRESSION)
    with pytest.raises(ValueError, match="Complex data not supported"):
        new().fit(DIABETES * 1j, PROGRESSION)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        new().fit(DIABETES, PROGRESSION[:-1])
    with pytest.raises(ValueError, match="Reshape your data"):
        new().fit(DIABETES[:, 0], PROGRESSION)
    fitted = new().fit(DIABETES, PROGRESSION)
    for method in (fitted.predict, fitted.transform, fitted.explain):
        with pytest.raises(ValueError, match="X has 9 features, but ShapTransformer is expecting 10"):
            method(DIABETES[:, :-1])
        with pytest.raises(ValueError, match="Reshape your data"):
            method(DIABETES[0])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        ShapTransformer(RandomForestClassifier(2)).fit(DIABETES, PROGRESSION + 0.5)


# Parameters of fit


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize("transformer", BOTH)
def test_eval_set(transformer: Any, library: str, routing: bool) -> None:
    train, test = np.arange(300), np.arange(300, 442)
    weight = (PROGRESSION[train] > 150) + 0.5
    given: dict[str, Any] = {"eval_set": [(DIABETES[test], PROGRESSION[test])], "sample_weight": weight}
    options = {"learning_rate": 1.0, "early_stopping_rounds": 2}
    model = library_model(library, **options).set_params(n_estimators=200)
    expected = clone(model).fit(DIABETES[train], PROGRESSION[train], **given)
    with sklearn.config_context(enable_metadata_routing=routing):
        if routing:
            model.set_fit_request(eval_set=True, sample_weight=True)
        fitted = transformer(model).fit(DIABETES[train], PROGRESSION[train], **given)
        inside = Pipeline([("shap", transformer(model)), ("last", LinearRegression())])
        if routing:
            inside.set_params(last=LinearRegression().set_fit_request(sample_weight=False))
        else:
            given = {f"shap__{name}": value for name, value in given.items()}
        inside.fit(DIABETES[train], PROGRESSION[train], **given)
    n_trees = "best_iteration" if library == "xgboost" else "best_iteration_"
    for result in (fitted, inside["shap"]):
        assert getattr(result.estimator_, n_trees) == getattr(expected, n_trees) < 100
        np.testing.assert_array_equal(result.predict(DIABETES), expected.predict(DIABETES))
        np.testing.assert_array_equal(
            result.explainer_.shap_values(DIABETES), TreeExplainer(expected).shap_values(DIABETES)
        )


# Names


def test_names_of_columns_that_would_collide() -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(IRIS[:, :3], columns=["a", "a__b", "c"])
    labels = np.array(["b__b", "b", "c"])[SPECIES]
    transformer = ShapTransformer(RandomForestClassifier(3, random_state=0)).set_output(transform="pandas")
    frame = transformer.fit_transform(X, labels)
    # "a__b__b" would be two columns: outputs are named by their numbers.
    assert list(frame.columns[:6]) == ["a__0", "a__1", "a__2", "a__b__0", "a__b__1", "a__b__2"]
    np.testing.assert_array_equal(frame.to_numpy(), transformer.explain(X).values.reshape(150, -1))


# Self-description of a transformer


def test_delegated_methods_and_attributes() -> None:
    model = GradientBoostingClassifier(n_estimators=3, random_state=0)
    fitted = ShapTransformer(model).fit(CANCER, BENIGN)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        of_model = getattr(fitted.estimator_, method)(CANCER)
        np.testing.assert_array_equal(getattr(fitted, method)(CANCER), of_model)
    assert fitted.n_features_in_ == 30
    np.testing.assert_array_equal(fitted.classes_, [0, 1])
    np.testing.assert_allclose(
        fitted.base_values_ + fitted.transform(CANCER).sum(axis=1),
        fitted.decision_function(CANCER),
        atol=1e-5,
    )


def nested() -> Any:
    inside = make_pipeline(StandardScaler(), forest())
    return Pipeline([("scale", StandardScaler()), ("shap", ShapTransformer(inside, cv=3))])


def test_parameters_through_pipelines_and_searches() -> None:
    name = "shap__estimator__randomforestregressor__max_depth"
    pipeline = nested()
    assert pipeline.get_params()[name] == 4 and clone(pipeline).get_params()["shap__cv"] == 3
    assert pipeline.set_params(**{name: 2, "shap__precision": "double"})["shap"].precision == "double"
    search = GridSearchCV(nested(), {name: [1, 3], "shap__cv": [None, 2]}, cv=2).fit(DIABETES, PROGRESSION)
    assert search.best_params_[name] == 3
    best = search.best_estimator_["shap"]
    assert best.estimator_[-1].max_depth == 3 and best.estimator[-1].max_depth == 3
    np.testing.assert_array_equal(search.transform(DIABETES), search.best_estimator_.transform(DIABETES))
    np.testing.assert_array_equal(explain(search, DIABETES).values, search.transform(DIABETES))


@pytest.mark.parametrize("transformer", BOTH)
def test_html_shows_the_model_within(transformer: Any) -> None:
    unfitted = transformer(make_pipeline(StandardScaler(), forest()))
    for html in (unfitted._repr_html_(), unfitted.fit(DIABETES, PROGRESSION)._repr_html_()):
        assert transformer.__name__ in html
        assert "RandomForestRegressor" in html and "StandardScaler" in html
        assert f"scikit-learn.org/stable/modules/generated/{transformer.__module__}" not in html
        assert f"generated/skshapgpu.{transformer.__name__}.html" in html  # our own page


def test_html_of_a_native_booster() -> None:
    xgboost = pytest.importorskip("xgboost")
    booster = xgboost.train({"nthread": 1}, xgboost.DMatrix(DIABETES, PROGRESSION), 2)
    assert "FrozenEstimator" in ShapTransformer.from_fitted(booster)._repr_html_()


# Copies in files


@pytest.mark.parametrize("transformer", BOTH)
def test_pickles_of_other_versions(transformer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = transformer(forest()).fit(DIABETES, PROGRESSION)
    stored = pickle.dumps(fitted)
    with warnings.catch_warnings(action="error"):
        pickle.loads(stored)
    monkeypatch.setattr(skshapgpu._estimators.base, "__version__", "99.0")
    with pytest.warns(UserWarning, match=r"stored by version \d.* of skshapgpu and is loaded by 99.0"):
        other = pickle.loads(stored)
    np.testing.assert_array_equal(other.transform(DIABETES), fitted.transform(DIABETES))
    assert "_skshapgpu_version" not in vars(other)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("transformer", BOTH)
@pytest.mark.parametrize("data", [None, DIABETES[::50]], ids=["covers", "background"])
def test_skops(transformer: Any, data: Any) -> None:
    skops = pytest.importorskip("skops.io")
    model = make_pipeline(StandardScaler(), forest())
    fitted = transformer(model, data=data).fit(DIABETES, PROGRESSION)
    stored = skops.dumps(fitted)
    state = {
        "_rows.background.Background",
        "_rows.origins.Origins",
        "_common.devices.Devices",
        "_engine.features.Features",
        "adapters.ensemble.Ensemble",
        "explainer.TreeExplainer",
        "_rows.inputs.Reader",
        "_engine.options.Options",
        "_engine.compiled_model.CompiledModel",
        "adapters.schema.AdaptedModel",
        "adapters.schema.InputSchema",
        f"_estimators.transformers.{transformer.__name__}",
    }
    trusted = sorted({f"skshapgpu.{name}" for name in state} | {"sklearn.tree._tree.Tree"})
    assert set(skops.get_untrusted_types(data=stored)) <= set(trusted)
    other = skops.loads(stored, trusted=trusted)
    np.testing.assert_array_equal(other.transform(DIABETES), fitted.transform(DIABETES))
    np.testing.assert_array_equal(other.predict(DIABETES), fitted.predict(DIABETES))


# Callbacks, which scikit-learn has since 1.9


class Recorder:
    """Callback that scikit-learn passes on to the inner estimators."""

    max_propagation_depth = None

    def __init__(self) -> None:
        self.tasks: list[tuple[str, str, str]] = []

    def setup(self, estimator: Any, context: Any) -> None:
        self.tasks.append(("setup", context.estimator_name, context.task_name))

    def teardown(self, estimator: Any, context: Any) -> None:
        self.tasks.append(("teardown", context.estimator_name, context.task_name))

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.tasks.append(("begin", context.estimator_name, context.task_name))

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        self.tasks.append(("end", context.estimator_name, context.task_name))


def begun(recorder: Recorder) -> list[tuple[str, str]]:
    assert recorder.tasks[0][0] == "setup" and recorder.tasks[-1][0] == "teardown"
    names = [task for kind, *task in recorder.tasks if kind == "begin"]
    ends = [task for kind, *task in recorder.tasks if kind == "end"]
    assert sorted(names) == sorted(ends)
    return [(estimator, task) for estimator, task in names]


def test_callbacks() -> None:
    pytest.importorskip("sklearn.callback")
    recorder = Recorder()
    with warnings.catch_warnings(action="error"):  # no warning about models without callbacks
        transformer = ShapTransformer(forest(), cv=2).set_callbacks(recorder).fit(DIABETES, PROGRESSION)
    tasks = [("ShapTransformer", name) for name in ("fit", "fit-model", "explain")]
    assert begun(recorder) == tasks
    recorder.tasks.clear()
    transformer.fit_transform(DIABETES, PROGRESSION)
    assert begun(recorder) == [*tasks, ("ShapTransformer", "fold-0"), ("ShapTransformer", "fold-1")]
    recorder.tasks.clear()
    with pytest.raises(ValueError, match="could not convert string to float"):
        transformer.fit(np.full((4, 2), "x"), [1, 2, 3, 4])
    assert recorder.tasks[-1][0] == "teardown"


def test_callbacks_reach_what_is_around_and_inside() -> None:
    pytest.importorskip("sklearn.callback")
    recorder = Recorder()
    search = GridSearchCV(forest(), {"max_depth": [1, 2]}, cv=2)
    pipeline = make_pipeline(StandardScaler(), ShapTransformer(search), LinearRegression())
    with warnings.catch_warnings(record=True):  # scikit-learn says which models have no callbacks
        pipeline.set_callbacks(recorder).fit(DIABETES, PROGRESSION)
    tasks = begun(recorder)
    assert ("Pipeline", "fit-transform-shaptransformer") in tasks or ("ShapTransformer", "fit") in tasks
    assert ("ShapTransformer", "explain") in tasks
    assert any(estimator == "GridSearchCV" for estimator, _ in tasks)
    assert not hasattr(pipeline[1].estimator_, "_parent_callback_ctx")
