"""Issues reported by users of SHAP libraries about workflows around models, one test each.

Results are compared with the model's own prediction, with the definition of the values, or with numbers
computed by hand.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from helpers.families import (
    FAMILIES,
    assert_adds_up,
    classifier,
    frame_with_categories,
    library,
    raw_prediction,
    regressor,
    with_categories,
)
from helpers.processes import run_python
from scipy.special import logit
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_selection import RFE
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import (
    ShapSelector,
    ShapTransformer,
    TreeExplainer,
    cross_val_explain,
    explain,
    explain_interactions,
    reference,
)
from skshapgpu.adapters import adapt

DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)
IRIS, SPECIES = load_iris(return_X_y=True)


# Whole workflows


@pytest.mark.parametrize("family", FAMILIES)
def test_lightgbm_6058_interactions_of_every_family(family: str) -> None:
    """lightgbm-org/LightGBM#6058: LightGBM has no SHAP interactions; one call works for all libraries."""
    X = DIABETES[:, :5]
    model = regressor(family).fit(X, PROGRESSION)
    matrices = explain_interactions(model, X, precision="double").matrices()
    expected = reference.path_dependent(adapt(model).ensemble, X[:50], index="SII").values[:, 0]
    assert np.abs(expected[:, 0, 1:]).max() > 1e-3
    np.testing.assert_allclose(matrices[:50], expected, atol=1e-9 * np.abs(expected).max())
    base_value = TreeExplainer(model).expected_value
    np.testing.assert_allclose(base_value + matrices.sum(axis=(1, 2)), raw_prediction(model, X), rtol=1e-5)


def test_shap_1373_pipeline_with_its_column_names() -> None:
    """shap/shap#1373 and #349: a Pipeline is "not yet supported", and the workaround loses the names."""
    X, y = frame_with_categories()
    X = X.astype({"color": str})
    pipeline = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(sparse_output=False), ["color"]),
            remainder="passthrough",
            verbose_feature_names_out=False,
        ),
        HistGradientBoostingRegressor(max_iter=8),
    ).fit(X, y)
    explanation = assert_adds_up(pipeline, X, pipeline.predict(X))
    assert explanation.feature_names == tuple(pipeline[:-1].get_feature_names_out())
    assert explanation.feature_names[:2] == ("color_amber", "color_blue")
    assert list(explanation.row_labels) == list(X.index)
    # And back to the columns of X.
    grouped = explanation.sum_by("input")
    assert grouped.feature_names == ("color", "size", "weight")
    np.testing.assert_allclose(grouped.values[:, 0], explanation.values[:, :6].sum(axis=1), atol=1e-6)
    np.testing.assert_array_equal(grouped.values[:, 1:], explanation.values[:, 6:])


def test_shap_337_out_of_fold_values() -> None:
    """shap/shap#337 and #1008: how to get values over the folds, in order, with base values that differ?"""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X.index = [f"patient {i}" for i in range(len(X))]
    model = RandomForestRegressor(4, max_depth=4, random_state=0)
    cv = KFold(3, shuffle=True, random_state=0)
    results = cross_val_explain(model, X, y, cv=cv)
    explanation = results["explanation"]
    assert list(explanation.row_labels) == list(X.index)
    assert len(set(results["base_values"])) == 3
    for fold, (train, test) in enumerate(cv.split(X)):
        fitted = clone(model).fit(X.iloc[train], y.iloc[train])
        explainer = TreeExplainer(fitted)
        assert results["base_values"][fold] == explainer.expected_value
        assert (results["fold"][test] == fold).all()
        np.testing.assert_array_equal(explanation.values[test], explainer.shap_values(X.iloc[test]))
        total = results["base_values"][fold] + explanation.values[test].sum(axis=1)
        np.testing.assert_allclose(total, fitted.predict(X.iloc[test]), rtol=1e-5)


def test_shap_2118_saved_and_served(tmp_path: Path) -> None:
    """shap/shap#2118 and #2122: an explainer could not be saved, so each server builds it again."""
    model = classifier("xgboost").fit(CANCER, BENIGN)
    explainer = TreeExplainer(model)
    expected = assert_adds_up(model, CANCER).values
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(explainer)).shap_values(CANCER), expected)
    explainer.save(tmp_path / "explainer.npz")
    np.save(tmp_path / "X.npy", CANCER)
    run_python(f"""
import sys
for name in ("xgboost", "lightgbm", "catboost", "shap", "pandas"):
    sys.modules[name] = None  # importing it is an error
import numpy as np
from skshapgpu import TreeExplainer
folder = {str(tmp_path)!r}
explainer = TreeExplainer.load(folder + "/explainer.npz")
np.save(folder + "/values.npy", explainer.shap_values(np.load(folder + "/X.npy")))
""")
    np.testing.assert_array_equal(np.load(tmp_path / "values.npy"), expected)


def test_sklearn_21934_recursive_elimination_by_shap_values() -> None:
    """scikit-learn/scikit-learn#21934: an importance_getter gets no X, so SHAP cannot drive RFE."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    y = 3 * X[:, 1] - 2 * X[:, 4] * X[:, 1] + X[:, 4]
    model = DecisionTreeRegressor(max_depth=6)
    selected = RFE(ShapTransformer(model), n_features_to_select=2).fit(X, y)
    assert list(np.flatnonzero(selected.support_)) == [1, 4]
    selector = ShapSelector(model, cv=3, max_features=2, threshold=-np.inf).fit(X, y)
    assert list(np.flatnonzero(selector.get_support())) == [1, 4]
    assert selector.transform(X).shape == (400, 2)


def test_sklearn_31794_fit_and_explain() -> None:
    """scikit-learn/scikit-learn#31794: request for Shapley values with fit and explain methods."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    transformer = ShapTransformer(RandomForestRegressor(5, max_depth=5, random_state=0))
    assert clone(transformer).get_params()["estimator__max_depth"] == 5
    explanation = transformer.fit(X, y).explain(X)
    np.testing.assert_allclose(
        transformer.base_values_ + explanation.values.sum(axis=1), transformer.predict(X), rtol=1e-5
    )
    frame = transformer.set_output(transform="pandas").transform(X)
    assert list(frame.columns) == list(transformer.get_feature_names_out()) == list(X.columns)
    assert transformer.feature_importances_.argmax() == list(X.columns).index("bmi")


# Further threads


@pytest.mark.parametrize("family", ["sklearn", "lightgbm", "xgboost"])
def test_shap_4256_sparse(family: str) -> None:
    """shap/shap#4256 and #138: a CSR matrix is rejected, or converted as a whole to a dense one."""
    X = np.where(CANCER > np.median(CANCER, axis=0), CANCER, 0.0)
    forest = RandomForestClassifier(5, max_depth=5, random_state=0)
    model = (forest if family == "sklearn" else classifier(family)).fit(sp.csr_matrix(X), BENIGN)
    expected = model.predict_proba(sp.csr_matrix(X))[:, 1]
    explanation = assert_adds_up(
        model, sp.csr_matrix(X), expected if family == "sklearn" else logit(expected.astype(np.float64))
    )
    # Entries that are not stored are zero, and missing for XGBoost.
    dense = np.where(X == 0, np.nan, X) if family == "xgboost" else X
    np.testing.assert_array_equal(explanation.values, explain(model, dense).values)


def test_shap_1152_isolation_forest() -> None:
    """shap/shap#1152 and #1389: which output of an IsolationForest is explained, and with subsets?"""
    model = IsolationForest(n_estimators=10, max_samples=64, max_features=0.5, random_state=0).fit(CANCER)
    explanation = explain(model, CANCER)
    length = explanation.base_values + explanation.values.sum(axis=1)
    # The values explain the mean path length. scikit-learn's score is -2^(-length / mean length of an
    # unsuccessful search).
    harmonic = np.log(63) + np.euler_gamma
    average = 2 * harmonic - 2 * 63 / 64
    np.testing.assert_allclose(-(2 ** (-length / average)), model.score_samples(CANCER), atol=1e-6)


def test_shap_3313_missing_of_xgboost() -> None:
    """shap/shap#3313: the number that means missing in an XGBoost model was treated as an ordinary number."""
    X = np.where(DIABETES > 0.05, -999.0, DIABETES)
    model = regressor("xgboost", missing=-999.0).fit(X, PROGRESSION)
    assert_adds_up(model, X)


def test_shap_1204_pickled_explainer_in_loky_workers() -> None:
    """shap/shap#1204: worker processes crashed on an explainer that was pickled to them."""
    model = RandomForestClassifier(5, random_state=0).fit(IRIS, SPECIES)
    explainer = TreeExplainer(model)
    parts = joblib.Parallel(n_jobs=2, backend="loky")(
        joblib.delayed(explainer.shap_values)(rows) for rows in np.array_split(IRIS, 4)
    )
    np.testing.assert_array_equal(np.concatenate(parts), explainer.shap_values(IRIS))


def test_shap_244_n_jobs() -> None:
    """shap/shap#244: asks for n_jobs."""
    model = RandomForestClassifier(5, random_state=0).fit(IRIS, SPECIES)
    X = np.tile(IRIS, (10, 1))
    expected = explain(model, X, n_jobs=1).values
    for n_jobs in (2, -1, None):
        np.testing.assert_array_equal(explain(model, X, n_jobs=n_jobs).values, expected)


def test_shap_4489_frame_with_the_index_of_the_rows() -> None:
    """shap/shap#4489 and #3455: request for a data frame of the values, with the row labels of X."""
    X, y = frame_with_categories()
    X.index = [f"customer {i}" for i in range(len(X))]
    model = with_categories("sklearn", X, y)
    explanation = explain(model, X)
    frame = explanation[20:30].to_frame()
    assert list(frame.index) == [f"customer {i}" for i in range(20, 30)]
    assert list(frame.columns) == ["size", "color", "weight"]
    np.testing.assert_array_equal(frame.to_numpy(), explanation.values[20:30])


def test_shap_1654_one_hot_columns_as_one_feature() -> None:
    """shap/shap#1654: how can the values of one-hot columns be summed to a value of the original feature?"""
    rng = np.random.default_rng(0)
    color, size = rng.integers(3, size=300), rng.normal(size=300)
    X = np.column_stack([color == 0, color == 1, color == 2, size]).astype(np.float64)
    model = RandomForestRegressor(5, random_state=0).fit(X, np.array([0.0, 5.0, 9.0])[color] + size)
    explanation = explain(model, X)
    grouped = explanation.sum_by({"color": ["x0", "x1", "x2"]})
    assert grouped.feature_names == ("color", "x3")
    np.testing.assert_allclose(grouped.values[:, 0], explanation.values[:, :3].sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(
        grouped.base_values + grouped.values.sum(axis=1), model.predict(X), rtol=1e-5, atol=1e-5
    )


def test_shap_2887_multiclass_gradient_boosting() -> None:
    """shap/shap#2887: a GradientBoostingClassifier with more than two classes was refused."""
    model = GradientBoostingClassifier(n_estimators=8, random_state=0).fit(IRIS, SPECIES)
    explanation = assert_adds_up(model, IRIS, model.decision_function(IRIS))
    assert explanation.shape == (150, 4, 3)


def test_shap_3574_multiclass_interactions_of_lightgbm() -> None:
    """shap/shap#3574: interactions of a LightGBM model of several classes had the wrong shape."""
    model = classifier("lightgbm").fit(IRIS, SPECIES)
    matrices = TreeExplainer(model).shap_interaction_values(IRIS)
    assert matrices.shape == (150, 4, 4, 3)
    np.testing.assert_allclose(matrices.sum(axis=2), explain(model, IRIS).values, atol=1e-6)
    assert np.abs(matrices[:, 2, 3]).max() > 1e-3


def test_catboost_1284_ranker() -> None:
    """catboost/catboost#1284: SHAP values of a ranker were not available."""
    catboost = library("catboost")
    model = catboost.CatBoostRanker(
        iterations=8, depth=3, verbose=False, allow_writing_files=False, thread_count=1
    )
    queries = np.repeat(np.arange(34), 13)
    model.fit(DIABETES, PROGRESSION / PROGRESSION.max(), group_id=queries)
    assert_adds_up(model, DIABETES, model.predict(DIABETES))
