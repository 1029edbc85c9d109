"""Selection with a pipeline as the model: importances belong to the columns of X, or do not exist."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import sklearn
from helpers.families import forest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import RFE, RFECV, SelectFromModel, SelectKBest, f_regression
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from sklearn.utils.fixes import parse_version

from skshapgpu import ShapSelector, ShapTransformer, TreeExplainer, explain, shap_importance
from skshapgpu._rows.pipelines import unwrap

N_ROWS = 200
_RNG = np.random.default_rng(0)
#: y depends on columns 5 and 1, and a little on 3.
X = _RNG.normal(size=(N_ROWS, 7))
Y = 5 * X[:, 5] + 3 * X[:, 1] ** 2 + X[:, 3] + 100
LABELS = np.digitize(Y, [97, 104])


def frame() -> Any:
    return pytest.importorskip("pandas").DataFrame(X, columns=[f"c{i}" for i in range(7)])


def importances_by_trying(model: Any, rows: np.ndarray, n_columns: int) -> np.ndarray:
    """Compute the mean magnitude of the summed SHAP values of all columns that move with a column of X."""
    steps, _ = unwrap(model)

    def made(given: np.ndarray) -> np.ndarray:
        for step in steps:
            given = step.transform(given)
        return np.asarray(given)

    values = TreeExplainer(model).shap_values(rows)
    values = values.reshape(*values.shape[:2], -1)
    before, rng = made(rows), np.random.default_rng(1)
    importances, owned = np.zeros(n_columns), np.zeros(values.shape[1], int)
    for column in range(n_columns):
        moved = rows.copy()
        moved[:, column] = rng.permutation(moved[:, column])
        mine = (before != made(moved)).any(axis=0)
        owned += mine
        importances[column] = np.abs(values[:, mine].sum(axis=1)).mean(axis=0).sum()
    assert (owned <= 1).all() and importances.sum() > 0
    return importances


def next_to_last(rows: Any) -> list[int]:
    return [rows.shape[1] - 2, 3]


def backwards(rows: Any) -> list[int]:
    return list(range(rows.shape[1]))[::-1]


def reordering(**options: Any) -> ColumnTransformer:
    return ColumnTransformer(
        [("late", StandardScaler(), [6, 5]), ("early", StandardScaler(), [2, 1, 0])], **options
    )


STEPS = {
    "reorders": reordering(remainder="passthrough"),
    "drops": reordering(),
    "drops by name": ColumnTransformer([("no", "drop", [0, 2]), ("yes", StandardScaler(), [5, 4, 1])]),
    "slice": ColumnTransformer([("part", StandardScaler(), slice(3, 6))], remainder=StandardScaler()),
    "mask": ColumnTransformer(
        [("part", "passthrough", np.array([False] * 3 + [True] * 3 + [False]))], remainder="passthrough"
    ),
    "callable": ColumnTransformer([("part", "passthrough", next_to_last)], remainder="passthrough"),
    "union": FeatureUnion([("scaled", StandardScaler()), ("reordered", reordering()), ("no", "drop")]),
    "bins": make_column_transformer(
        (KBinsDiscretizer(3, encode="onehot-dense", strategy="uniform"), [5, 0]), remainder="passthrough"
    ),
    "selects": make_pipeline(SelectKBest(f_regression, k=4), StandardScaler()),
    "nested": make_pipeline(
        StandardScaler(), "passthrough", reordering(remainder="passthrough"), StandardScaler()
    ),
}
STEP = pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)


@STEP
@pytest.mark.parametrize("classes", [False, True])
def test_importances_are_those_of_the_columns_of_x(step: Any, classes: bool) -> None:
    model: Any = RandomForestClassifier(4, max_depth=4, random_state=0) if classes else forest(6, 5)
    y = LABELS if classes else Y
    pipeline = make_pipeline(step, model)
    fitted = clone(pipeline).fit(X, y)
    expected = importances_by_trying(fitted, X, 7)
    transformer = ShapTransformer(pipeline).fit(X, y)
    np.testing.assert_allclose(transformer.feature_importances_, expected)
    grouped = explain(fitted, X).sum_by("input")
    importances = dict(
        zip(grouped.feature_names, grouped.importance().reshape(len(grouped.feature_names), -1))
    )
    by_group = [importances[f"x{i}"].sum() if f"x{i}" in importances else 0 for i in range(7)]
    np.testing.assert_allclose(transformer.feature_importances_, by_group)
    selector = ShapSelector(pipeline).fit(X, y)
    np.testing.assert_allclose(selector.importances_, expected)
    frozen = ShapTransformer(FrozenEstimator(fitted)).fit(X)
    np.testing.assert_allclose(frozen.feature_importances_, expected)
    other = pickle.loads(pickle.dumps(transformer))
    np.testing.assert_array_equal(other.feature_importances_, transformer.feature_importances_)


@STEP
def test_selectors_find_the_columns_that_matter(step: Any) -> None:
    pipeline = make_pipeline(step, forest(6, 5))
    search = GridSearchCV(pipeline, {"randomforestregressor__max_depth": [2, 5]}, cv=2)
    for selector in (
        SelectFromModel(ShapTransformer(pipeline), max_features=1, threshold=-np.inf),
        SelectFromModel(ShapTransformer(search), max_features=1, threshold=-np.inf),
        SelectFromModel(
            GridSearchCV(ShapTransformer(pipeline), {"estimator__memory": [None]}, cv=2),
            max_features=1,
            threshold=-np.inf,
            importance_getter="best_estimator_.feature_importances_",
        ),
        ShapSelector(pipeline, max_features=1),
        ShapSelector(ShapTransformer(search), max_features=1, cv=2),
    ):
        np.testing.assert_array_equal(selector.fit(X, Y).get_support(indices=True), [5])


def test_elimination_refits_on_fewer_columns() -> None:
    """The steps reverse the columns, whatever their number."""
    last = SelectKBest(lambda rows, y: np.arange(rows.shape[1]), k=1)
    turned = FeatureUnion([("last", last), ("all", "passthrough")])
    for step in (turned, make_column_transformer(("passthrough", backwards))):
        model = ShapTransformer(make_pipeline(step, forest(6, 5)))
        selector = RFE(model, n_features_to_select=2).fit(X, Y)
        np.testing.assert_array_equal(selector.get_support(indices=True), [1, 5])
        selector = RFECV(model, cv=2, min_features_to_select=2).fit(X, Y)
        assert selector.support_[[1, 5]].all()


def test_splits() -> None:
    """Steps may produce different columns in each split."""
    steps = make_pipeline(SelectKBest(f_regression, k=4), reordering_of_four())
    pipeline = make_pipeline(steps, forest(6, 5))
    importances_of_splits, kept = [], set()
    for train, test in KFold(4).split(X):
        fitted = clone(pipeline).fit(X[train], Y[train])
        kept.add(tuple(fitted[0][0].get_support(indices=True)))
        importances_of_splits.append(importances_by_trying(fitted, X[test], 7))
    assert len(kept) > 1
    selector = ShapSelector(pipeline, cv=KFold(4)).fit(X, Y)
    np.testing.assert_allclose(selector.importances_, np.mean(importances_of_splits, axis=0))
    np.testing.assert_allclose(selector.importances_std_, np.std(importances_of_splits, axis=0))


def reordering_of_four() -> ColumnTransformer:
    return ColumnTransformer([("late", StandardScaler(), [3, 1]), ("early", StandardScaler(), [2, 0])])


def test_encoded_columns() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        {
            "size": rng.normal(size=N_ROWS),
            "noise": rng.normal(size=N_ROWS),
            "color": rng.choice(["red", "green", "blue"], N_ROWS),
            "word": rng.choice(["a", "b"], N_ROWS),
        }
    )
    y = 4 * (data["color"] == "green") + 2 * data["size"] + rng.normal(size=N_ROWS) / 10
    encode = make_column_transformer(
        (OneHotEncoder(drop="first"), make_column_selector("color|word")), remainder=SimpleImputer()
    )
    pipeline = make_pipeline(encode, forest(6, 5))
    explanation = explain(clone(pipeline).fit(data, y), data).sum_by("input")
    expected = dict(zip(explanation.feature_names, explanation.importance()))
    for model in (ShapTransformer(pipeline), ShapTransformer(pipeline, cv=2)):
        importances = model.fit(data, y).feature_importances_
        np.testing.assert_allclose(importances, [expected[name] for name in data.columns])
    selector = ShapSelector(pipeline, max_features=2).set_output(transform="pandas")
    assert list(selector.fit_transform(data, y).columns) == ["size", "color"]
    np.testing.assert_allclose(selector.importances_, [expected[name] for name in data.columns])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_taken_by_name(library: str) -> None:
    """A fitted pipeline accepts columns in another order, and additional ones."""
    if library == "polars" and parse_version(sklearn.__version__) < parse_version("1.9"):
        pytest.skip("a ColumnTransformer may refuse names of columns that are not pandas'")
    passed_rows = frame()
    steps = make_column_transformer((StandardScaler(), ["c5", "c2"]), ("passthrough", ["c1"]))
    fitted = make_pipeline(steps, forest(6, 5)).fit(passed_rows, Y)
    expected = ShapTransformer(FrozenEstimator(fitted)).fit(passed_rows).feature_importances_
    assert expected.argmax() == 5
    names = ["more", "c1", "c6", "c5", "c0", "c2"]
    other = passed_rows.assign(more=0.0)[names]
    if library == "polars":
        other = pytest.importorskip("polars").DataFrame(other.to_dict("list"))
    for result in (
        ShapTransformer(FrozenEstimator(fitted)).fit(other).feature_importances_,
        ShapTransformer.from_fitted(fitted).fit(other).feature_importances_,
        ShapSelector(FrozenEstimator(fitted)).fit(other).importances_,
        ShapSelector(FrozenEstimator(fitted), cv=2).fit(other, Y).importances_,
    ):
        assert result.argmax() == 3
        by_name = [expected[int(name[1])] if name in ("c1", "c2", "c5") else 0 for name in names]
        np.testing.assert_allclose(result, by_name, rtol=1e-6)


def test_names_in_an_output_container() -> None:
    passed_rows = frame()
    steps = make_pipeline(
        reordering(remainder="passthrough", verbose_feature_names_out=False), OrdinalEncoder()
    ).set_output(transform="pandas")
    transformer = ShapTransformer(make_pipeline(steps, forest(6, 5))).fit(passed_rows, Y)
    assert transformer.explainer_._reader.names_seen()[:2] == ("c6", "c5")
    assert transformer.feature_importances_.argmax() == 5


# Columns whose origin is not known


class Unnamed(TransformerMixin, BaseEstimator):
    """Reversed columns, without names."""

    def fit(self, rows: Any, y: Any = None) -> Unnamed:
        self.n_features_in_ = rows.shape[1]
        return self

    def transform(self, rows: Any) -> np.ndarray:
        return np.asarray(rows)[:, ::-1]


class Permuting(Unnamed):
    """The columns are reversed but their names are not, so names and columns no longer match."""

    def get_feature_names_out(self, names: Any = None) -> np.ndarray:
        return np.array([f"x{i}" for i in range(self.n_features_in_)] if names is None else names, object)


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (FunctionTransformer(lambda rows: rows[:, ::-1]), "FunctionTransformer"),
        (FunctionTransformer(lambda rows: rows[:, 1:]), "FunctionTransformer"),
        (FunctionTransformer(np.fliplr, feature_names_out="one-to-one"), "FunctionTransformer"),
        (Unnamed(), "Unnamed"),
        (Permuting(), "Permuting"),
        (Permuting().set_output(transform="pandas"), "Permuting"),
        (PCA(4), "PCA"),
        (PCA(), "PCA"),
        (Normalizer(), "Normalizer"),
        (make_pipeline(StandardScaler(), FeatureUnion([("a", PCA(2)), ("b", StandardScaler())])), "PCA"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_columns_of_unknown_origin_are_refused_by_the_name_of_the_step(step: Any, name: str) -> None:
    pytest.importorskip("pandas")
    pipeline = make_pipeline(step, forest(6, 5))
    reason = "mixes columns" if name in ("PCA", "Normalizer") else "is not known to make each of its columns"
    message = f"input columns .* are not known: .*{name} {reason}"
    transformer = ShapTransformer(pipeline).fit(X, Y)
    assert transformer.transform(X).shape[0] == N_ROWS  # everything else works
    with pytest.raises(ValueError, match=message) as caught:
        _ = transformer.feature_importances_
    with pytest.raises(ValueError, match=message):
        _ = ShapTransformer.from_fitted(transformer.estimator_).feature_importances_
    assert "make_pipeline(step, SelectFromModel(ShapTransformer(model)))" in str(caught.value)
    for selector in (
        SelectFromModel(ShapTransformer(pipeline)),
        RFE(ShapTransformer(pipeline), n_features_to_select=2),
        RFECV(ShapTransformer(pipeline), cv=2),
        ShapSelector(pipeline),
        ShapSelector(pipeline, max_features=2, cv=2),
    ):
        with pytest.raises(ValueError, match=message):
            selector.fit(X, Y).get_support()


def test_the_way_out() -> None:
    """With steps before the selector, it selects among the columns that the steps produce."""
    turned = FunctionTransformer(lambda rows: rows[:, ::-1])
    for selector in (
        SelectFromModel(ShapTransformer(forest(6, 5)), max_features=2),
        ShapSelector(forest(6, 5)),
    ):
        pipeline = make_pipeline(turned, selector, forest(6, 5)).fit(X, Y)
        np.testing.assert_array_equal(pipeline[1].get_support(indices=True), [1, 5])  # 6 - 5 and 6 - 1
    transformer = ShapTransformer(make_pipeline(PCA(3), forest(6, 5))).fit(X, Y)
    importances = shap_importance(transformer, X)
    np.testing.assert_allclose(importances.importances_mean, transformer.explain(X).importance())


def test_displays_of_what_has_no_importances() -> None:
    """Notebooks show all attributes listed."""
    transformer = ShapTransformer(make_pipeline(PCA(3), forest(6, 5)))
    assert "feature_importances_" not in dir(transformer)
    transformer.fit(X, Y)
    assert "PCA" in transformer._repr_html_() and "feature_importances_" not in dir(transformer)
    known = ShapTransformer(forest(6, 5))
    assert not hasattr(known, "feature_importances_")
    with pytest.raises(AttributeError, match="no attribute 'predict_proba'"):
        _ = known.predict_proba
    known.fit(X, Y)
    assert "RandomForest" in known._repr_html_() and "feature_importances_" in dir(known)
    known.set_params(estimator=make_pipeline(PCA(3), forest(6, 5))).fit(X, Y)
    with pytest.raises(ValueError, match="PCA mixes columns"):
        _ = known.feature_importances_
