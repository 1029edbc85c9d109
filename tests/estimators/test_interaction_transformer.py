"""ShapInteractionTransformer: its own results, and those that it shares with ShapTransformer."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from helpers.families import forest
from helpers.tables import diabetes_frame
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skshapgpu import ShapInteractionTransformer, TreeExplainer

IRIS, SPECIES = load_iris(return_X_y=True)
DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)


# Pairs


def test_all_pairs_that_occur() -> None:
    transformer = ShapInteractionTransformer(forest()).fit(DIABETES, PROGRESSION)
    explainer = TreeExplainer(forest().fit(DIABETES, PROGRESSION))
    expected = explainer.explain_interactions(DIABETES, interactions="occurring")
    np.testing.assert_array_equal(transformer.transform(DIABETES), expected.values)
    np.testing.assert_array_equal(transformer.interactions_, explainer.occurring_interactions())
    assert tuple(transformer.get_feature_names_out()) == expected.interaction_names
    assert transformer.base_values_ == explainer.expected_value
    assert transformer.explain(DIABETES).interaction_names == expected.interaction_names
    matrices = explainer.shap_interaction_values(DIABETES)
    first, second = transformer.interactions_.T
    np.testing.assert_array_equal(transformer.transform(DIABETES), 2 * matrices[:, first, second])


def test_the_strongest_pairs_are_those_of_fit() -> None:
    transformer = ShapInteractionTransformer(forest(), interactions=3).fit(DIABETES, PROGRESSION)
    explainer = transformer.explainer_
    strongest = explainer.explain_interactions(DIABETES, interactions=3)
    np.testing.assert_array_equal(transformer.interactions_, strongest.interactions)
    np.testing.assert_array_equal(transformer.transform(DIABETES), strongest.values)
    # Other pairs are stronger in these rows, but the columns stay.
    strange = DIABETES[np.argsort(-np.abs(strongest.values[:, 2]))[-20:]]
    assert not np.array_equal(
        explainer.explain_interactions(strange, interactions=3).interactions, transformer.interactions_
    )
    listed = explainer.explain_interactions(
        strange, interactions=[tuple(pair) for pair in transformer.interactions_]
    )
    np.testing.assert_array_equal(transformer.transform(strange), listed.values)


def test_listed_pairs() -> None:
    X, y = diabetes_frame()
    transformer = ShapInteractionTransformer(forest(), interactions=[("s5", "bmi"), (0, 2)])
    frame = transformer.set_output(transform="pandas").fit_transform(X, y)
    assert list(frame.columns) == ["s5 x bmi", "age x bmi"]
    assert list(frame.index) == list(X.index)
    matrices = transformer.explainer_.shap_interaction_values(X)
    np.testing.assert_array_equal(frame["s5 x bmi"], 2 * matrices[:, 8, 2])


@pytest.mark.parametrize("index", ["STII", "BII"])
def test_other_indices(index: str) -> None:
    transformer = ShapInteractionTransformer(forest(), interactions=4, index=index).fit(DIABETES, PROGRESSION)
    expected = transformer.explainer_.explain_interactions(DIABETES, interactions=4, index=index)
    np.testing.assert_array_equal(transformer.transform(DIABETES), expected.values)
    assert transformer.explain(DIABETES).index == index


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interactions": "some"}, "interactions must be 'occurring', a number or a list of pairs"),
        ({"interactions": "all"}, "not 'all': matrices are arrays"),
        ({"interactions": 0}, "interactions must be at least 1"),
        ({"interactions": [(0, 0)]}, "has a feature twice"),
        ({"interactions": [(0, 1), (1, 0)]}, "a pair twice"),
        ({"interactions": [(0, 10)]}, "feature 10 is out of range for 10 features"),
        ({"index": "shapley"}, "index must be one of 'SII', 'STII', 'BII'"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShapInteractionTransformer(forest(), **options).fit(DIABETES, PROGRESSION)
    with pytest.raises(ValueError, match=message):
        ShapInteractionTransformer.from_fitted(forest().fit(DIABETES, PROGRESSION), **options)


def test_a_wrong_option_is_refused_before_the_model_is_fitted() -> None:
    class Untrainable(DecisionTreeRegressor):
        def fit(self, X: Any, y: Any) -> Any:
            raise AssertionError

    with pytest.raises(ValueError, match="at least 1"):
        ShapInteractionTransformer(Untrainable(), interactions=-1).fit(DIABETES, PROGRESSION)


def test_a_model_without_interactions() -> None:
    transformer = ShapInteractionTransformer(DecisionTreeRegressor(max_depth=1)).fit(DIABETES, PROGRESSION)
    assert transformer.transform(DIABETES).shape == (442, 0)
    assert len(transformer.get_feature_names_out()) == 0
    assert ShapInteractionTransformer(DecisionTreeRegressor(max_depth=1), interactions=5).fit_transform(
        DIABETES, PROGRESSION
    ).shape == (442, 0)


# Names, dtypes, outputs


def test_names_of_classes() -> None:
    labels = np.array(["setosa", "versicolor", "virginica"])[SPECIES]
    transformer = ShapInteractionTransformer(RandomForestClassifier(4, random_state=0), interactions=2)
    flat = transformer.fit(IRIS, labels).transform(IRIS)
    assert flat.shape == (150, 6)
    np.testing.assert_array_equal(flat, transformer.explain(IRIS).values.reshape(150, -1))
    names = transformer.get_feature_names_out(["a", "b", "c", "d"])
    first, second = ("abcd"[i] for i in transformer.interactions_[0])
    assert list(names[:3]) == [
        f"{first} x {second}__{name}" for name in ("setosa", "versicolor", "virginica")
    ]
    assert len(set(names)) == 6
    with pytest.raises(ValueError, match="input_features should have length"):
        transformer.get_feature_names_out(["a"])


def test_names_are_unique() -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(DIABETES[:, :4], columns=["a", "b", "a x b", "b x a"])
    transformer = ShapInteractionTransformer(forest(), interactions=[("a", "b x a"), ("a x b", "a")])
    names = transformer.fit(X, PROGRESSION).get_feature_names_out()
    assert list(names) == ["0 x 3", "2 x 0"]  # otherwise both would be "a x b x a"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_preserved(dtype: type) -> None:
    transformer = ShapInteractionTransformer(forest(), interactions=3)
    assert transformer.fit_transform(DIABETES.astype(dtype), PROGRESSION).dtype == dtype
    assert transformer.transform(DIABETES[:0].astype(dtype)).shape == (0, 3)


def test_options_reach_the_explainer() -> None:
    model = DecisionTreeClassifier(max_depth=3, random_state=0)
    transformer = ShapInteractionTransformer(
        model, interactions=2, outputs="all", precision="double", check_additivity=False, memory_limit="1GB"
    )
    flat = transformer.fit(CANCER, BENIGN).transform(CANCER)
    np.testing.assert_array_equal(flat[:, ::2], -flat[:, 1::2])
    explanation = transformer.explain(CANCER)
    assert explanation.precision == "double" and explanation.additivity_error is None
    with pytest.raises(MemoryError, match="memory_limit"):
        ShapInteractionTransformer(model, memory_limit=10).fit(CANCER, BENIGN).transform(CANCER)


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix])
def test_sparse(make: Any) -> None:
    X = make(DIABETES)
    np.testing.assert_array_equal(
        ShapInteractionTransformer(forest(), interactions=5).fit(X, PROGRESSION).transform(X),
        ShapInteractionTransformer(forest(), interactions=5).fit(DIABETES, PROGRESSION).transform(DIABETES),
    )


def test_set_output_polars() -> None:
    pl = pytest.importorskip("polars")
    X = pl.DataFrame(DIABETES, schema=[f"f{i}" for i in range(10)])
    transformer = ShapInteractionTransformer(forest(), interactions=[("f1", "f2")]).set_output(
        transform="polars"
    )
    frame = transformer.fit_transform(X, PROGRESSION)
    assert isinstance(frame, pl.DataFrame) and frame.columns == ["f1 x f2"]


# Fitted and frozen models, copies


def test_before_fit() -> None:
    transformer = ShapInteractionTransformer(forest())
    for method in ("transform", "explain", "predict"):
        with pytest.raises(NotFittedError):
            getattr(transformer, method)(DIABETES)
    with pytest.raises(NotFittedError):
        transformer.get_feature_names_out()


def test_from_fitted() -> None:
    X, y = diabetes_frame()
    model = forest().fit(X, y)
    transformer = ShapInteractionTransformer.from_fitted(model, interactions=[("bmi", "s5")])
    expected = TreeExplainer(model).explain_interactions(X, interactions=[(2, 8)])
    np.testing.assert_array_equal(transformer.transform(X), expected.values)
    assert list(transformer.get_feature_names_out()) == ["bmi x s5"]
    np.testing.assert_array_equal(transformer.predict(X), model.predict(X))
    everything = ShapInteractionTransformer.from_fitted(model)
    assert everything.transform(X).shape == (442, len(everything.interactions_))


def test_the_strongest_pairs_need_rows() -> None:
    model = forest().fit(DIABETES, PROGRESSION)
    transformer = ShapInteractionTransformer.from_fitted(model, interactions=2)
    with pytest.raises(NotFittedError):
        transformer.transform(DIABETES)
    assert transformer.fit(DIABETES).transform(DIABETES).shape == (442, 2)
    np.testing.assert_array_equal(transformer.predict(DIABETES), model.predict(DIABETES))
    frozen = ShapInteractionTransformer(FrozenEstimator(model), interactions=2)
    np.testing.assert_array_equal(frozen.fit(DIABETES).transform(DIABETES), transformer.transform(DIABETES))


@pytest.mark.parametrize("copy", [clone, lambda t: pickle.loads(pickle.dumps(t))])
def test_copies(copy: Any) -> None:
    transformer = ShapInteractionTransformer(forest(), interactions=3, index="STII")
    transformer.fit(DIABETES, PROGRESSION)
    other = copy(transformer)
    assert other.get_params()["interactions"] == 3 and other.get_params()["estimator__max_depth"] == 4
    if not hasattr(other, "interactions_"):
        other.fit(DIABETES, PROGRESSION)
    np.testing.assert_array_equal(other.transform(DIABETES), transformer.transform(DIABETES))


@pytest.mark.parametrize("later", [{"index": "STII"}, {"interactions": "occurring"}, {"interactions": 1}])
@pytest.mark.parametrize("interactions", [3, "occurring"])
def test_parameters_take_effect_in_fit(interactions: Any, later: dict[str, Any]) -> None:
    transformer = ShapInteractionTransformer(forest(), interactions=interactions)
    expected = transformer.fit(DIABETES, PROGRESSION).transform(DIABETES)
    transformer.set_params(**later)
    np.testing.assert_array_equal(transformer.transform(DIABETES), expected)
    assert transformer.get_feature_names_out().shape == expected.shape[1:]
    fresh = ShapInteractionTransformer(forest(), **{"interactions": interactions} | later)
    expected = fresh.fit(DIABETES, PROGRESSION).transform(DIABETES)
    np.testing.assert_array_equal(transformer.fit(DIABETES, PROGRESSION).transform(DIABETES), expected)


# Together with others


def test_it_stands_for_its_model() -> None:
    assert is_classifier(ShapInteractionTransformer(RandomForestClassifier()))
    assert is_regressor(ShapInteractionTransformer(RandomForestRegressor()))
    weight = (PROGRESSION > 150).astype(float)
    transformer = ShapInteractionTransformer(forest(), interactions=2).fit(
        DIABETES, PROGRESSION, sample_weight=weight
    )
    expected = forest().fit(DIABETES, PROGRESSION, sample_weight=weight)
    np.testing.assert_array_equal(transformer.predict(DIABETES), expected.predict(DIABETES))
    assert not hasattr(transformer, "feature_importances_")


def test_metadata_routing() -> None:
    weight = (PROGRESSION > 150).astype(float)
    with sklearn.config_context(enable_metadata_routing=True):
        model = forest().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False))
        pipeline.steps.append(("pairs", ShapInteractionTransformer(model, interactions=2)))
        pipeline.fit(DIABETES, PROGRESSION, sample_weight=weight)
    expected = forest().fit(StandardScaler().fit_transform(DIABETES), PROGRESSION, sample_weight=weight)
    np.testing.assert_array_equal(
        pipeline.predict(DIABETES), expected.predict(StandardScaler().fit_transform(DIABETES))
    )


def test_in_a_pipeline_and_cross_validation() -> None:
    model = RandomForestClassifier(4, max_depth=4, random_state=0)
    pipeline = make_pipeline(
        StandardScaler(), ShapInteractionTransformer(model, interactions=10), LogisticRegression()
    )
    assert pipeline.fit(CANCER, BENIGN).score(CANCER, BENIGN) > 0.8
    assert pipeline[:-1].get_feature_names_out().shape == (10,)
    assert cross_val_score(pipeline, CANCER, BENIGN, cv=3).mean() > 0.8
    assert cross_val_predict(pipeline, CANCER, BENIGN, cv=3, method="predict_proba").shape == (569, 2)
    np.testing.assert_array_equal(
        cross_val_score(ShapInteractionTransformer(model, interactions=2), IRIS, SPECIES, cv=3),
        cross_val_score(model, IRIS, SPECIES, cv=3),
    )


def test_in_a_grid_search() -> None:
    search = GridSearchCV(
        ShapInteractionTransformer(forest()),
        {"estimator__max_depth": [1, 4], "interactions": [2, "occurring"]},
        cv=2,
    )
    search.fit(DIABETES, PROGRESSION)
    assert search.best_params_["estimator__max_depth"] == 4
    assert search.transform(DIABETES).shape[0] == 442


def test_in_a_column_transformer() -> None:
    X, y = diabetes_frame()
    pairs = ShapInteractionTransformer(forest(), interactions=[("bmi", "s5")])
    both = ColumnTransformer([("pair", pairs, ["bmi", "bp", "s5"]), ("rest", StandardScaler(), ["age"])])
    frame = both.set_output(transform="pandas").fit_transform(X, y)
    assert list(frame.columns) == ["pair__bmi x s5", "rest__age"]


def test_a_pipeline_inside() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"color": rng.choice(["red", "green"], 200), "size": rng.normal(size=200)})
    y = (X["color"] == "red") ^ (X["size"] > 0.5)
    encode = ColumnTransformer(
        [("one", OneHotEncoder(sparse_output=False), ["color"])], remainder="passthrough"
    )
    model = make_pipeline(encode, RandomForestClassifier(4, random_state=0))
    listed = [("one__color_red", "remainder__size")]
    transformer = ShapInteractionTransformer(model, interactions=listed).set_output(transform="pandas")
    frame = transformer.fit_transform(X, y)
    assert list(frame.columns) == ["one__color_red x remainder__size"]
    assert np.abs(frame.to_numpy()).max() > 0


def test_a_pipeline_of_texts_inside() -> None:
    texts = ["good movie", "bad movie", "good plot", "bad plot"] * 5
    pipeline = make_pipeline(CountVectorizer(), RandomForestClassifier(5, random_state=0))
    transformer = ShapInteractionTransformer(pipeline, interactions=[("bad", "plot")])
    target = [1, 0, 0, 1] * 5
    assert transformer.fit(texts, target).transform(texts).shape == (20, 1)
    assert list(transformer.get_feature_names_out()) == ["bad x plot"]
    strongest = ShapInteractionTransformer(pipeline, interactions=1).fit(texts, target)
    assert strongest.transform(texts).shape == (20, 1)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost"])
def test_models_of_other_libraries(library: str) -> None:
    module = pytest.importorskip(library)
    model = {
        "xgboost": lambda: module.XGBClassifier(n_estimators=3, n_jobs=1),
        "lightgbm": lambda: module.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1),
        "catboost": lambda: module.CatBoostClassifier(
            iterations=3, verbose=False, allow_writing_files=False, thread_count=1
        ),
    }[library]()
    X, y = diabetes_frame()
    transformer = ShapInteractionTransformer(model, interactions=4).set_output(transform="pandas")
    frame = transformer.fit_transform(X, np.digitize(y, [100, 200]))
    assert frame.shape == (442, 12)
    first, second = (X.columns[i] for i in transformer.interactions_[0])
    assert frame.columns[1] == f"{first} x {second}__1"
