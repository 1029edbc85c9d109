"""TreeExplainer of models in models, of registered ones, and of all libraries."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.multioutput import ClassifierChain, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skshapgpu import TreeExplainer, UnsupportedModelError, explain, register_adapter
from skshapgpu.adapters import _REGISTERED
from skshapgpu.adapters.ensemble import Ensemble, Tree
from skshapgpu.adapters.schema import AdaptedModel, InputSchema

IRIS, SPECIES = load_iris(return_X_y=True)
DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)


# Models in models


def test_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), "passthrough", RandomForestRegressor(5, random_state=0))
    pipeline.fit(DIABETES, PROGRESSION)
    explanation = explain(pipeline, DIABETES)
    scaled = pipeline[0].transform(DIABETES)
    np.testing.assert_array_equal(explanation.values, explain(pipeline[-1], scaled).values)
    np.testing.assert_array_equal(explanation.data, scaled)
    np.testing.assert_allclose(
        explanation.base_values + explanation.values.sum(axis=1), pipeline.predict(DIABETES), rtol=1e-6
    )


def mixed_frame() -> tuple[Any, np.ndarray]:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"color": rng.choice(["red", "green", "blue"], 120), "size": rng.normal(size=120)},
        index=[f"id{i}" for i in range(120)],
    )
    return X, (X["color"] == "red") * 2.0 + X["size"].to_numpy()


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("set_output", [True, False])
def test_pipeline_with_column_transformer(sparse: bool, set_output: bool) -> None:
    X, y = mixed_frame()
    if sparse and set_output:
        pytest.skip("pandas output cannot be sparse")
    encode = ColumnTransformer(
        [("one", OneHotEncoder(sparse_output=sparse), ["color"])],
        remainder=StandardScaler(),
        sparse_threshold=1.0,
    )
    pipeline = make_pipeline(encode, ExtraTreesRegressor(5, random_state=0))
    if set_output:
        pipeline.set_output(transform="pandas")
    pipeline.fit(X, y)
    explanation = explain(pipeline, X, precision="double")
    assert explanation.feature_names == (
        "one__color_blue",
        "one__color_green",
        "one__color_red",
        "remainder__size",
    )
    assert list(explanation.row_labels) == list(X.index)
    assert sp.issparse(explanation.data) == sparse
    np.testing.assert_allclose(
        explanation.base_values + explanation.values.sum(axis=1), pipeline.predict(X), rtol=1e-6
    )
    grouped = explanation.sum_by({"color": explanation.feature_names[:3]})
    assert grouped.feature_names == ("color", "remainder__size")
    np.testing.assert_allclose(grouped.values.sum(axis=1), explanation.values.sum(axis=1), atol=1e-12)


def test_pipeline_of_text() -> None:
    texts = ["good movie", "bad movie", "good plot", "bad plot"] * 5
    pipeline = make_pipeline(CountVectorizer(), RandomForestClassifier(5, random_state=0)).fit(
        texts, [1, 0] * 10
    )
    explanation = explain(pipeline, texts)
    assert explanation.feature_names == ("bad", "good", "movie", "plot")
    assert sp.issparse(explanation.data)
    assert set(np.argsort(-explanation.importance())[:2]) <= {0, 1}


def test_pipeline_whose_steps_have_no_names() -> None:
    pipeline = make_pipeline(FunctionTransformer(lambda X: X[:, :3]), DecisionTreeRegressor(max_depth=3))
    assert explain(pipeline.fit(DIABETES, PROGRESSION), DIABETES).feature_names == ("x0", "x1", "x2")


def wrapped() -> dict[str, Any]:
    forest = RandomForestRegressor(3, max_depth=4, random_state=0)
    grid = {"max_leaf_nodes": [4, 8]}
    return {
        "frozen": FrozenEstimator(forest.fit(DIABETES, PROGRESSION)),
        "search": GridSearchCV(forest, grid, cv=2),
        "random search": RandomizedSearchCV(forest, grid, n_iter=2, cv=2),
        "pipeline of search": make_pipeline(StandardScaler(), GridSearchCV(forest, grid, cv=2)),
        "search of pipeline": GridSearchCV(
            make_pipeline(StandardScaler(), forest), {"randomforestregressor__max_leaf_nodes": [4]}, cv=2
        ),
        "pipeline of pipeline": make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), forest)),
        "frozen pipeline": FrozenEstimator(
            make_pipeline(StandardScaler(), forest).fit(DIABETES, PROGRESSION)
        ),
        "pipeline of frozen": make_pipeline(
            StandardScaler(with_mean=False), FrozenEstimator(forest.fit(DIABETES, PROGRESSION))
        ),
    }


@pytest.mark.parametrize("kind", list(wrapped()))
def test_models_in_models(kind: str) -> None:
    model = wrapped()[kind].fit(DIABETES, PROGRESSION)
    explanation = explain(model, DIABETES)
    np.testing.assert_allclose(
        explanation.base_values + explanation.values.sum(axis=1), model.predict(DIABETES), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (RandomForestRegressor(), NotFittedError, "not fitted yet"),
        (make_pipeline(StandardScaler(), RandomForestRegressor()), NotFittedError, "not fitted yet"),
        (GridSearchCV(RandomForestRegressor(), {}), NotFittedError, "GridSearchCV is not fitted"),
        (
            GridSearchCV(DecisionTreeRegressor(), {}, refit=False, cv=2).fit(DIABETES, PROGRESSION),
            UnsupportedModelError,
            "kept no model: use refit=True",
        ),
        (make_pipeline(StandardScaler(), "passthrough"), UnsupportedModelError, "last step is no model"),
        (
            make_pipeline(StandardScaler(), LinearRegression()).fit(DIABETES, PROGRESSION),
            UnsupportedModelError,
            "LinearRegression",
        ),
        (RandomForestRegressor, TypeError, "pass an instance"),
        (b"model", ValueError, "the content holds no model of a known kind"),
        (bytearray(b"model"), UnsupportedModelError, "builtins.bytearray"),
    ],
)
def test_models_that_are_refused(model: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TreeExplainer(model)


def test_registered_adapter() -> None:
    class Stump:
        def __init__(self, threshold: float) -> None:
            self.threshold = threshold

    def adapt_stump(model: Any) -> AdaptedModel:
        tree = Tree(
            left=[1, -1, -1],
            right=[2, -1, -1],
            feature=[1, 0, 0],
            threshold=[model.threshold, 0, 0],
            missing_left=[True] * 3,
            cover=[4, 3, 1],
            value=[0, -1, 3],
        )
        ensemble = Ensemble.from_trees([tree], n_features=2, intercept=5.0)
        return AdaptedModel(ensemble, InputSchema(2, feature_names=("a", "b")), family="stump")

    path = f"{Stump.__module__}.{Stump.__qualname__}"
    register_adapter(path, adapt_stump)
    try:
        explanation = explain(Stump(0.5), [[0, 0], [0, 1], [0, np.nan]])
    finally:
        del _REGISTERED[path]
    # The base value is 5 + (3 * -1 + 1 * 3) / 4 = 5.
    assert explanation.base_values == 5
    np.testing.assert_allclose(explanation.values, [[0, -1], [0, 3], [0, -1]], atol=1e-6)
    assert explanation.feature_names == ("a", "b")


# Forests whose classes were replaced, chains and stacks of models


def test_forests_from_before_a_patch_of_scikit_learn() -> None:
    """scikit-learn-intelex replaces classes of sklearn.ensemble and sklearn.dummy by its own."""
    script = """
import numpy as np
import sklearn.dummy, sklearn.ensemble
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingRegressor, RandomForestRegressor
X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
y = X[:, 0] * X[:, 1]
models = [cls(n_estimators=3).fit(X, y) for cls in (RandomForestRegressor, GradientBoostingRegressor)]
models.append(ExtraTreesClassifier(3).fit(X, y > 0))
for module, name in ((sklearn.ensemble, "RandomForestRegressor"), (sklearn.ensemble, "ExtraTreesClassifier"),
                     (sklearn.dummy, "DummyRegressor")):
    setattr(module, name, type(name, (), dict(__module__="sklearnex.ensemble")))
Other = type("RandomForestRegressor", (sklearn.ensemble._forest.ForestRegressor,), dict(
    __module__="sklearnex.ensemble._forest", __init__=lambda self: None))
import skshapgpu
for model in models:
    explanation = skshapgpu.explain(model, X)
    own = model.predict_proba(X)[:, 1] if hasattr(model, "classes_") else model.predict(X)
    np.testing.assert_allclose(explanation.base_values + explanation.values.sum(1), own, atol=1e-5)
try:
    skshapgpu.TreeExplainer(Other())
except skshapgpu.UnsupportedModelError as error:
    assert "of scikit-learn-intelex" in str(error) and "unpatch_sklearn" in str(error), error
else:
    raise AssertionError("explained")
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("chain", [RegressorChain, ClassifierChain])
def test_advice_for_chains_leads_to_explanations(chain: Any) -> None:
    is_regressor = chain is RegressorChain
    targets = np.stack([PROGRESSION, -DIABETES[:, 2], DIABETES[:, 3] * 5], axis=1)
    targets = targets if is_regressor else (targets > np.median(targets, axis=0)).astype(int)
    inner = (RandomForestRegressor if is_regressor else RandomForestClassifier)(5, random_state=0)
    model = chain(inner, order=[2, 0, 1]).fit(DIABETES, targets)
    with pytest.raises(
        UnsupportedModelError,
        match=r"X and the predictions of the estimators_ before it; estimators_\[i\] predicts target order",
    ):
        TreeExplainer(model)
    rows, own = DIABETES, model.predict(DIABETES) if is_regressor else model.predict_proba(DIABETES)
    for estimator, target in zip(model.estimators_, model.order_):
        explanation = explain(estimator, rows)
        np.testing.assert_allclose(
            explanation.base_values + explanation.values.sum(axis=1), own[:, target], rtol=1e-5, atol=1e-6
        )
        rows = np.column_stack([rows, estimator.predict(rows)])


@pytest.mark.parametrize("passthrough", [False, True])
def test_advice_for_stacks_leads_to_explanations(passthrough: bool) -> None:
    final = RandomForestRegressor(5, random_state=0)
    model = StackingRegressor(
        [("a", DecisionTreeRegressor(max_depth=3)), ("b", LinearRegression())], final, passthrough=passthrough
    ).fit(DIABETES, PROGRESSION)
    with pytest.raises(
        UnsupportedModelError, match="final_estimator_ on the output of transform, or each of"
    ):
        TreeExplainer(model)
    explanation = explain(model.final_estimator_, model.transform(DIABETES))
    np.testing.assert_allclose(
        explanation.base_values + explanation.values.sum(axis=1), model.predict(DIABETES), rtol=1e-5
    )
    assert explanation.shape[1] == 2 + 10 * passthrough


# Probabilities that are margins


@pytest.mark.parametrize("labels", [BENIGN, np.digitize(CANCER[:, 0], [12, 16])])
@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeClassifier(max_depth=4, random_state=0),
        RandomForestClassifier(5, max_depth=4, random_state=0),
        ExtraTreesClassifier(5, max_depth=4, random_state=0),
        BaggingClassifier(n_estimators=5, random_state=0),
    ],
)
def test_probability_of_a_forest_is_its_margin(model: Any, labels: np.ndarray, tmp_path: Any) -> None:
    model = clone(model).fit(CANCER, labels)
    rows, options = CANCER[::40], {"precision": "double"}
    for data in (None, CANCER[:30]):
        for outputs in ("auto", "all"):
            probability = TreeExplainer(model, data, model_output="probability", outputs=outputs, **options)
            raw = TreeExplainer(model, data, outputs=outputs, **options)
            explanation = probability.explain(rows)
            np.testing.assert_array_equal(explanation.values, raw.explain(rows).values)
            own = model.predict_proba(rows)
            own = own[:, 1] if explanation.values.ndim == 2 else own
            np.testing.assert_allclose(
                explanation.base_values + explanation.values.sum(axis=1), own, atol=1e-6
            )
            assert probability.model_output == explanation.model_output == "probability"
            probability.save(tmp_path / f"{outputs}.npz")
            loaded = TreeExplainer.load(tmp_path / f"{outputs}.npz")
            np.testing.assert_array_equal(loaded.shap_values(rows), explanation.values)
        (tmp_path / "auto.npz").unlink()
        (tmp_path / "all.npz").unlink()
    counted = TreeExplainer(
        model, CANCER[:30], feature_perturbation="tree_path_dependent", model_output="probability"
    )
    mean = model.predict_proba(CANCER[:30]).mean(axis=0)
    np.testing.assert_allclose(counted.expected_value, mean[1] if len(mean) == 2 else mean, atol=1e-6)


# Sums of hessians that are not covers


def refreshed_by_own_objective(xgboost: Any) -> tuple[Any, np.ndarray]:
    """Return a model whose objective is not convex, so that sums of hessians may be negative, and X."""

    def own(predicted: np.ndarray, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        return predicted - rows.get_label(), np.where(rows.get_label() > 150, -0.5, 1.0)

    rows = xgboost.DMatrix(DIABETES, PROGRESSION)
    grown = xgboost.train({"max_depth": 3, "nthread": 1}, rows, 4)
    params = {"process_type": "update", "updater": "refresh", "refresh_leaf": False, "nthread": 1}
    return xgboost.train(params, rows, 4, obj=own, xgb_model=grown), DIABETES


def cox(xgboost: Any) -> tuple[Any, np.ndarray]:
    """Return a model trained with the partial likelihood on few rows with ties."""
    rng = np.random.default_rng(2)
    X, time = rng.normal(size=(60, 3)), rng.integers(1, 4, 60).astype(float)
    label = np.where(rng.random(60) > 0.3, time, -time)
    params = {"objective": "survival:cox", "max_depth": 3, "eta": 1.5, "min_child_weight": 0, "lambda": 0}
    return xgboost.train({"nthread": 1} | params, xgboost.DMatrix(X, label), 15), X


@pytest.mark.parametrize("trained", [refreshed_by_own_objective, cox])
def test_negative_sums_of_hessians_are_not_covers(trained: Any) -> None:
    xgboost, treelite = pytest.importorskip("xgboost"), pytest.importorskip("treelite")
    model, X = trained(xgboost)
    document = json.loads(model.save_raw("json"))["learner"]["gradient_booster"]["model"]
    covers = [tree["sum_hessian"] for tree in document["trees"]]
    assert min(map(min, covers)) < -0.1 and max(map(max, covers)) > 1
    margin = model.predict(xgboost.DMatrix(X), output_margin=True)
    copied = treelite.frontend.from_xgboost(model)
    for source in (model, bytes(model.save_raw("json")), copied):
        with pytest.raises(UnsupportedModelError, match=r"no covers, .* or negative ones; give background"):
            TreeExplainer(source)
        for options in ({}, {"feature_perturbation": "tree_path_dependent"}):
            explanation = TreeExplainer(source, X[:40], **options).explain(X)
            scale = np.abs(margin).max()
            np.testing.assert_allclose(explanation.base_values, margin[:40].mean(), atol=1e-5 * scale)
            np.testing.assert_allclose(
                explanation.base_values + explanation.values.sum(axis=1), margin, atol=1e-5 * scale
            )


# All libraries


def library_models() -> dict[str, Any]:
    """Fit a model of each library on (X, y); return them by name. X has categories in ``color``."""

    def xgboost(X: Any, y: Any) -> Any:
        module = pytest.importorskip("xgboost")
        return module.XGBRegressor(n_estimators=5, enable_categorical=True, max_depth=4, n_jobs=1).fit(X, y)

    def lightgbm(X: Any, y: Any) -> Any:
        module = pytest.importorskip("lightgbm")
        return module.LGBMRegressor(
            n_estimators=5, verbose=-1, n_jobs=1, min_child_samples=5, min_data_per_group=5
        ).fit(X, y)

    def catboost(X: Any, y: Any) -> Any:
        module = pytest.importorskip("catboost")
        return module.CatBoostRegressor(
            iterations=5,
            depth=4,
            cat_features=["color"],
            one_hot_max_size=10,
            thread_count=1,
            verbose=False,
            allow_writing_files=False,
        ).fit(X.astype({"color": str}), y)

    def histogram(X: Any, y: Any) -> Any:
        return HistGradientBoostingRegressor(max_iter=5, categorical_features="from_dtype").fit(X, y)

    return {"xgboost": xgboost, "lightgbm": lightgbm, "catboost": catboost, "sklearn": histogram}


@pytest.mark.parametrize("library", list(library_models()))
def test_frame_with_categories_in_every_library(library: str) -> None:
    pd = pytest.importorskip("pandas")
    X, y = mixed_frame()
    X["color"] = pd.Categorical(X["color"], categories=["red", "blue", "green"])
    X.loc[X.index[::10], "size"] = np.nan
    y = np.nan_to_num(y)
    model = library_models()[library](X, y)
    if library == "catboost":
        X = X.astype({"color": str})
    explainer = TreeExplainer(model, precision="double")
    explanation = explainer.explain(X)
    assert explainer.family == library
    assert explanation.feature_names == ("color", "size")
    assert explanation.importance()[0] > 0.1
    np.testing.assert_allclose(
        explanation.base_values + explanation.values.sum(axis=1), model.predict(X), atol=1e-5
    )
    if library != "catboost":
        # Reordered categories have the same meaning, except to XGBoost before 3.1.
        reordered = X.assign(
            color=pd.Categorical(X["color"].astype(object), categories=["green", "red", "blue"])
        )
        again = explainer.explain(reordered)
        np.testing.assert_allclose(
            again.base_values + again.values.sum(axis=1), model.predict(reordered), atol=1e-5
        )
    other = pickle.loads(pickle.dumps(explainer))
    np.testing.assert_array_equal(other.shap_values(X), explanation.values)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost"])
def test_classifiers_of_every_library(library: str) -> None:
    module = pytest.importorskip(library)
    make = {
        "xgboost": lambda: module.XGBClassifier(n_estimators=3, n_jobs=1),
        "lightgbm": lambda: module.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1),
        "catboost": lambda: module.CatBoostClassifier(
            iterations=3, verbose=False, allow_writing_files=False, thread_count=1
        ),
    }[library]
    model = make().fit(CANCER, BENIGN)
    one, both = explain(model, CANCER), explain(model, CANCER, outputs="all")
    assert one.shape == CANCER.shape and both.shape == (*CANCER.shape, 2)
    assert both.output_names == (0, 1)
    margin = one.base_values + one.values.sum(axis=1)
    np.testing.assert_allclose(1 / (1 + np.exp(-margin)), model.predict_proba(CANCER)[:, 1], atol=1e-5)

    model = make().fit(IRIS, SPECIES)
    explanation = explain(model, IRIS)
    assert explanation.shape == (150, 4, 3)
    assert explanation.output_names == (0, 1, 2)
    margin = np.exp(explanation.base_values + explanation.values.sum(axis=1))
    np.testing.assert_allclose(
        margin / margin.sum(axis=1, keepdims=True), model.predict_proba(IRIS), atol=1e-5
    )


def test_xgboost_takes_what_a_sparse_matrix_does_not_store_as_missing() -> None:
    module = pytest.importorskip("xgboost")
    X = np.where(np.abs(CANCER) > np.median(CANCER, axis=0), CANCER, 0.0)
    model = module.XGBRegressor(n_estimators=5, n_jobs=1).fit(sp.csr_matrix(X), BENIGN)
    explanation = explain(model, sp.csr_matrix(X))
    np.testing.assert_allclose(
        explanation.base_values + explanation.values.sum(axis=1), model.predict(sp.csr_matrix(X)), atol=1e-5
    )
    missing = np.where(X == 0, np.nan, X)
    np.testing.assert_array_equal(explanation.values, explain(model, missing).values)
    assert np.abs(explain(model, X).values - explanation.values).max() > 1e-3


def test_xgboost_missing_number() -> None:
    module = pytest.importorskip("xgboost")
    X = np.where(DIABETES > 0.05, -999.0, DIABETES)
    model = module.XGBRegressor(n_estimators=5, n_jobs=1, missing=-999.0).fit(X, PROGRESSION)
    explanation = explain(model, X)
    np.testing.assert_allclose(
        explanation.base_values + explanation.values.sum(axis=1), model.predict(X), rtol=1e-5
    )


def test_hist_gradient_boosting_classifier_of_strings() -> None:
    pd = pytest.importorskip("pandas")
    X, y = mixed_frame()
    X["color"] = X["color"].astype("category")
    model = HistGradientBoostingClassifier(max_iter=5, categorical_features="from_dtype")
    model.fit(X, np.digitize(y, [0.0, 1.0]))
    explanation = explain(model, X)
    assert explanation.shape == (120, 2, 3)
    np.testing.assert_allclose(
        explanation.base_values + explanation.values.sum(axis=1), model.decision_function(X), atol=1e-5
    )
    assert isinstance(explanation.row_labels, pd.Index)
