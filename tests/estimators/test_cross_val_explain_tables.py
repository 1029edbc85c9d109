"""cross_val_explain: kinds of X, and columns made by the steps of pipelines."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from helpers.families import forest, forest_classifier
from helpers.tables import diabetes_frame
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import ExtraTreesClassifier, RandomForestRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.model_selection import KFold, RepeatedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils.fixes import parse_version

from skshapgpu import TreeExplainer, cross_val_explain

IRIS, SPECIES = load_iris(return_X_y=True)
DIABETES, PROGRESSION = load_diabetes(return_X_y=True)


# Kinds of X


def test_lists_behind_steps() -> None:
    """The columns of a list can be selected and grouped like the columns of an array."""
    X = [[text, float(number)] for text, number in zip("ab" * 60, PROGRESSION)]
    columns = ColumnTransformer([("text", OneHotEncoder(), [0]), ("number", StandardScaler(), [1])])
    explanation = cross_val_explain(make_pipeline(columns, forest()), X, PROGRESSION[:120], cv=3)[
        "explanation"
    ]
    assert (
        explanation[50:].sum_by("input").data.tolist()
        == explanation.sum_by("input").data.tolist()[50:]
        == X[50:]
    )


def test_data_frame_keeps_its_labels() -> None:
    X, y = diabetes_frame(labelled=True)
    X, y = X.iloc[::-1], y.iloc[::-1]
    results = cross_val_explain(forest(), X, y, cv=KFold(3, shuffle=True, random_state=0))
    plain = cross_val_explain(forest(), X.to_numpy(), y.to_numpy(), cv=KFold(3, shuffle=True, random_state=0))
    np.testing.assert_array_equal(results["explanation"].values, plain["explanation"].values)
    assert results["explanation"].data is X
    frame = results["explanation"].to_frame()
    assert frame.index.equals(X.index) and list(frame.columns) == list(X.columns)


@pytest.mark.parametrize("kind", ["polars", "pyarrow", "csr", "list"])
def test_kinds_of_tables(kind: str) -> None:
    X: Any = DIABETES.tolist()
    if kind == "polars":
        X = pytest.importorskip(kind).DataFrame({f"f{i}": DIABETES[:, i] for i in range(10)})
    elif kind == "pyarrow":
        pa = pytest.importorskip(kind)
        if parse_version(sklearn.__version__) < parse_version("1.7"):
            pytest.skip("cross_validate does not take them")
        X = pa.table({f"f{i}": DIABETES[:, i] for i in range(10)})
    elif kind == "csr":
        X = sp.csr_array(DIABETES)
    ours = cross_val_explain(forest(), X, PROGRESSION.tolist(), cv=3)["explanation"]
    expected = cross_val_explain(forest(), DIABETES, PROGRESSION, cv=3)["explanation"]
    np.testing.assert_array_equal(ours.values, expected.values)
    if kind in ("polars", "pyarrow"):
        assert ours.feature_names[0] == "f0"


@pytest.mark.parametrize("kind", ["list", "array", "series"])
def test_texts(kind: str) -> None:
    texts: Any = ["good movie", "bad movie", "good plot", "bad plot", "fine plot", "bad end"] * 5
    y = np.array([1, 0, 1, 0, 1, 0] * 5)
    order = np.random.default_rng(0).permutation(30)
    if kind == "array":
        texts = np.array(texts, object)
    elif kind == "series":  # with labels that are not positions
        texts = pytest.importorskip("pandas").Series(texts, index=order)
    model = make_pipeline(CountVectorizer(), forest_classifier())
    explanation = cross_val_explain(model, texts, y, cv=3)["explanation"]
    assert explanation.feature_names == ("bad", "end", "fine", "good", "movie", "plot")
    predicted = cross_val_predict(model, texts, y, cv=3, method="predict_proba")[:, 1]
    np.testing.assert_allclose(explanation.base_values + explanation.values.sum(axis=1), predicted, atol=1e-5)
    if kind == "series":
        assert explanation.row_labels.equals(texts.index)


# Pipelines


def test_pipeline_explains_the_columns_of_its_last_step() -> None:
    X, y = diabetes_frame(labelled=True)
    model = make_pipeline(StandardScaler(), forest())
    splits = list(KFold(3).split(X))
    explanation = cross_val_explain(model, X, y, cv=splits)["explanation"]
    assert explanation.feature_names == tuple(X.columns) and explanation.row_labels is X.index
    for train, test in splits:
        scaler = StandardScaler().fit(X.iloc[train])
        np.testing.assert_array_equal(explanation.data[test], scaler.transform(X.iloc[test]))
        inner = forest().fit(scaler.transform(X.iloc[train]), y.iloc[train])
        np.testing.assert_array_equal(
            explanation.values[test], TreeExplainer(inner).shap_values(scaler.transform(X.iloc[test]))
        )


def test_columns_that_a_split_lacks() -> None:
    """A category that occurs only in the last rows is a column of the models of the other splits."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"color": rng.choice(["blue", "red"], 90), "size": rng.normal(size=90)})
    X.loc[70:, "color"] = "green"
    y = X["size"] + (X["color"] == "green") + (X["color"] == "red")
    encode = ColumnTransformer(
        [("one", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["color"])],
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    model = make_pipeline(encode, forest())
    results = cross_val_explain(model, X, y, cv=KFold(3), return_estimator=True)
    explanation = results["explanation"]
    assert explanation.feature_names == ("color_blue", "color_green", "color_red", "size")
    for number, fitted in enumerate(results["estimator"]):
        test = np.flatnonzero(results["fold"] == number)
        expected = TreeExplainer(fitted).explain(X.iloc[test])
        np.testing.assert_array_equal(explanation[test, list(expected.feature_names)].values, expected.values)
        lacks = "color_green" not in expected.feature_names
        assert lacks == (number == 2)
        if lacks:
            assert not explanation[test, "color_green"].values.any()
            assert np.isnan(explanation.data[test, 1]).all()
            assert results["importances"][number, 1] == 0
    predicted = cross_val_predict(model, X, y, cv=KFold(3))
    np.testing.assert_allclose(explanation.base_values + explanation.values.sum(axis=1), predicted, atol=1e-5)
    grouped = explanation.sum_by({"color": ["color_blue", "color_green", "color_red"]})
    assert grouped.feature_names == ("color", "size")
    np.testing.assert_allclose(grouped.base_values + grouped.values.sum(axis=1), predicted, atol=1e-5)


def test_columns_that_splits_select() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 12))
    y = 0.3 * X[:, 3] + rng.normal(size=80)
    model = make_pipeline(SelectKBest(k=3), forest())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the selection's test, which treats y as classes
        results = cross_val_explain(model, X, np.round(y), cv=KFold(4), return_estimator=True)
    chosen = [set(fitted[0].get_feature_names_out()) for fitted in results["estimator"]]
    assert len(set().union(*chosen)) > 3
    names = results["explanation"].feature_names
    assert set(names) == set().union(*chosen)
    for number, of_split in enumerate(chosen):
        others = [i for i, name in enumerate(names) if name not in of_split]
        assert not results["explanation"].values[results["fold"] == number][:, others].any()


class WithoutConstantColumns(BaseEstimator):
    """Transformer that drops constant columns without saying which."""

    def fit(self, X: np.ndarray, y: Any = None) -> WithoutConstantColumns:
        self.kept_ = np.ptp(X, axis=0) > 0
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        return X[:, self.kept_]


def test_columns_without_names() -> None:
    X = DIABETES.copy()
    model = make_pipeline(WithoutConstantColumns(), forest())
    values = cross_val_explain(model, X, PROGRESSION, cv=KFold(3))["explanation"].values
    expected = cross_val_explain(forest(), X, PROGRESSION, cv=KFold(3))["explanation"].values
    np.testing.assert_array_equal(values, expected)
    X[:300, 4] = 0  # constant where the last split is trained
    with pytest.raises(ValueError, match="columns, which have no names to align them by"):
        cross_val_explain(model, X, PROGRESSION, cv=KFold(3))


def test_repeated_splits_of_a_pipeline_of_mixed_columns() -> None:
    """If the last step receives categories, ``explanation.data`` is an array of objects."""
    pd = pytest.importorskip("pandas")
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"color": rng.choice(["blue", "red"], 90), "size": rng.normal(size=90)})
    y = X["size"] + (X["color"] == "red")
    to_category = FunctionTransformer(
        lambda X: X.astype({"color": "category"}), feature_names_out="one-to-one"
    )
    model = make_pipeline(to_category, lightgbm.LGBMRegressor(n_estimators=3, verbose=-1, n_jobs=1))
    cv = RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)
    explanation = cross_val_explain(model, X, y, cv=cv)["explanation"]
    assert explanation.feature_names == ("color", "size")
    np.testing.assert_array_equal(explanation.data[:, 0], X["color"])
    np.testing.assert_array_equal(explanation.data[:, 1].astype(float), X["size"])


def test_values_of_extra_trees_with_weights_in_a_pipeline() -> None:
    weight = np.where(SPECIES == 1, 3.0, 1.0)
    model = make_pipeline(StandardScaler(), ExtraTreesClassifier(4, max_depth=4, random_state=0))
    params = {"extratreesclassifier__sample_weight": weight}
    results = cross_val_explain(model, IRIS, SPECIES, cv=3, params=params)
    for number in range(3):
        test = results["fold"] == number
        fitted = clone(model).fit(
            IRIS[~test], SPECIES[~test], extratreesclassifier__sample_weight=weight[~test]
        )
        np.testing.assert_array_equal(
            results["explanation"].values[test], TreeExplainer(fitted).shap_values(IRIS[test])
        )


def test_encoded_columns_summed_back_to_the_columns_of_x() -> None:
    """Categories that only some splits have seen are columns derived from the same input column."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "color": rng.choice(["red", "green", "blue"], 90),
            "rare": np.where(np.arange(90) == 40, "once", "often"),
            "size": rng.normal(size=90),
        }
    )
    y = rng.normal(size=90) + (frame["color"] == "red")
    encoder = ColumnTransformer(
        [("encoded", OneHotEncoder(handle_unknown="ignore"), ["color", "rare"])], remainder="passthrough"
    )
    model = make_pipeline(encoder, RandomForestRegressor(5, random_state=0))
    explanation = cross_val_explain(model, frame, y, cv=3)["explanation"]
    assert len(explanation.feature_names) == 6
    grouped = explanation.sum_by("input")
    assert set(grouped.feature_names) == set(frame.columns)
    for name in frame.columns:
        of_column = [i for i, feature in enumerate(explanation.feature_names) if f"__{name}" in feature]
        expected = explanation.values[:, of_column].sum(axis=1)
        np.testing.assert_allclose(grouped[:, name].values[:, 0], expected, rtol=0, atol=1e-12)
    pd.testing.assert_frame_equal(grouped.data[list(frame.columns)], frame)
