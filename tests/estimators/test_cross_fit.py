"""cv= of the transformers: fit_transform explains rows by models that were not fitted on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from helpers.families import forest
from helpers.importances import cross_validated_importance
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import IsolationForest, RandomForestClassifier, RandomForestRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from skshapgpu import ShapInteractionTransformer, ShapTransformer, TreeExplainer

IRIS, SPECIES = load_iris(return_X_y=True)
DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
FOLDS = KFold(3, shuffle=True, random_state=1)


def by_hand(model: Any, X: Any, y: Any, splits: Any, **per_row: np.ndarray) -> np.ndarray:
    values = None
    for train, test in splits:
        weights = {name: value[train] for name, value in per_row.items()}
        result = TreeExplainer(clone(model).fit(X[train], y[train], **weights)).shap_values(X[test])
        if values is None:
            values = np.full((len(X), *result.shape[1:]), np.nan)
        values[test] = result
    assert values is not None
    return values.reshape(len(X), -1)


@pytest.mark.parametrize(
    ("model", "second", "chance"),
    [
        (RandomForestClassifier(20, random_state=0), LogisticRegression(C=100), 0.5),
        (RandomForestRegressor(20, random_state=0), LinearRegression(), 0.0),
    ],
)
def test_noise_teaches_a_second_model_nothing(model: Any, second: Any, chance: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 10))
    y = rng.permutation(np.arange(300) % 2) if chance else rng.normal(size=300)
    leaking = ShapTransformer(model).fit_transform(X, y)
    fitted = ShapTransformer(model, cv=5).fit_transform(X, y)
    assert cross_val_score(second, leaking, y, cv=5).mean() > chance + 0.4
    # The standard error of an accuracy is 0.03, and the standard error of R2 is smaller.
    assert cross_val_score(second, fitted, y, cv=5).mean() < chance + 0.1


def test_values_are_those_of_the_models_of_the_folds() -> None:
    transformer = ShapTransformer(forest(), cv=FOLDS)
    values = transformer.fit_transform(DIABETES, PROGRESSION)
    np.testing.assert_array_equal(values, by_hand(forest(), DIABETES, PROGRESSION, FOLDS.split(DIABETES)))
    # All other results belong to the model fitted on all rows.
    plain = ShapTransformer(forest()).fit(DIABETES, PROGRESSION)
    np.testing.assert_array_equal(transformer.transform(DIABETES), plain.transform(DIABETES))
    np.testing.assert_array_equal(transformer.feature_importances_, plain.feature_importances_)
    np.testing.assert_array_equal(transformer.predict(DIABETES), plain.predict(DIABETES))
    assert not np.allclose(values, plain.transform(DIABETES))


def test_interactions_are_those_of_the_models_of_the_folds() -> None:
    transformer = ShapInteractionTransformer(forest(), interactions=6, cv=FOLDS)
    values = transformer.fit_transform(DIABETES, PROGRESSION)
    plain = ShapInteractionTransformer(forest(), interactions=6).fit(DIABETES, PROGRESSION)
    np.testing.assert_array_equal(transformer.interactions_, plain.interactions_)
    first, second = plain.interactions_.T
    for train, test in FOLDS.split(DIABETES):
        explainer = TreeExplainer(forest().fit(DIABETES[train], PROGRESSION[train]))
        matrices = explainer.shap_interaction_values(DIABETES[test])
        np.testing.assert_array_equal(values[test], 2 * matrices[:, first, second])


def test_a_number_makes_the_same_stratified_folds_each_time() -> None:
    model = RandomForestClassifier(3, random_state=0)
    transformer = ShapTransformer(model, cv=3)  # rows are sorted by class: without shuffling none were left
    values = transformer.fit_transform(IRIS, SPECIES)
    assert values.shape == (150, 12)
    np.testing.assert_array_equal(values, clone(transformer).fit_transform(IRIS, SPECIES))
    splits = StratifiedKFold(3, shuffle=True, random_state=0).split(IRIS, SPECIES)
    np.testing.assert_array_equal(values, by_hand(model, IRIS, SPECIES, splits))
    lists = [(train.tolist(), test.tolist()) for train, test in FOLDS.split(IRIS)]
    np.testing.assert_array_equal(
        ShapTransformer(model, cv=lists).fit_transform(IRIS, SPECIES),
        by_hand(model, IRIS, SPECIES, FOLDS.split(IRIS)),
    )


@pytest.mark.parametrize("kind", ["list", "csr", "coo", "pandas", "polars"])
def test_every_kind_of_table(kind: str) -> None:
    X: Any = DIABETES
    if kind in ("pandas", "polars"):
        module = pytest.importorskip(kind)
        X = module.DataFrame({f"f{i}": DIABETES[:, i] for i in range(10)})
        if kind == "pandas":
            X.index = np.random.default_rng(0).permutation(len(X))
    else:
        X = {"list": np.ndarray.tolist, "csr": sp.csr_array, "coo": sp.coo_array}[kind](DIABETES)
    transformer = ShapTransformer(forest(), cv=FOLDS)
    expected = by_hand(forest(), DIABETES, PROGRESSION, FOLDS.split(DIABETES))
    np.testing.assert_array_equal(transformer.fit_transform(X, PROGRESSION), expected)
    if kind in ("pandas", "polars"):
        frame = transformer.set_output(transform=kind).fit_transform(X, PROGRESSION)
        assert type(frame) is type(X) and list(frame.columns) == list(transformer.get_feature_names_out())
        np.testing.assert_array_equal(frame.to_numpy(), expected)
        if kind == "pandas":
            np.testing.assert_array_equal(frame.index, X.index)


def test_without_a_target() -> None:
    model = IsolationForest(n_estimators=5, random_state=0)
    assert ShapTransformer(model, cv=3).fit_transform(DIABETES).shape == DIABETES.shape


# Parameters of fit


def test_weights_of_the_rows_of_a_fold() -> None:
    weight = (PROGRESSION > 150) + 0.5
    expected = by_hand(forest(), DIABETES, PROGRESSION, FOLDS.split(DIABETES), sample_weight=weight)
    transformer = ShapTransformer(forest(), cv=FOLDS)
    values = transformer.fit_transform(DIABETES, PROGRESSION, sample_weight=weight)
    np.testing.assert_array_equal(values, expected)
    series = pytest.importorskip("pandas").Series(weight, index=np.arange(len(weight))[::-1])
    values = transformer.fit_transform(DIABETES, PROGRESSION, sample_weight=series)
    np.testing.assert_array_equal(values, expected)


def test_groups_stay_together() -> None:
    groups = np.random.default_rng(0).integers(8, size=len(DIABETES))
    splits = list(GroupKFold(4).split(DIABETES, PROGRESSION, groups))
    expected = by_hand(forest(), DIABETES, PROGRESSION, splits)
    assert not np.allclose(
        ShapTransformer(forest(), cv=4).fit_transform(DIABETES, PROGRESSION), expected, atol=1
    )
    transformer = ShapTransformer(forest(), cv=GroupKFold(4))
    np.testing.assert_array_equal(transformer.fit_transform(DIABETES, PROGRESSION, groups=groups), expected)
    with pytest.raises(ValueError, match="groups"):
        transformer.fit_transform(DIABETES, PROGRESSION)


def test_metadata_routing_in_the_middle_of_a_pipeline() -> None:
    groups = np.random.default_rng(0).integers(8, size=len(DIABETES))
    weight = (PROGRESSION > 150) + 0.5
    scaled = StandardScaler().fit_transform(DIABETES)
    splits = list(GroupKFold(4).split(scaled, PROGRESSION, groups))
    expected = by_hand(forest(), scaled, PROGRESSION, splits, sample_weight=weight)
    with sklearn.config_context(enable_metadata_routing=True):
        model = forest().set_fit_request(sample_weight=True)
        transformer = ShapTransformer(model, cv=GroupKFold(4))
        values = transformer.fit_transform(scaled, PROGRESSION, sample_weight=weight, groups=groups)
        np.testing.assert_array_equal(values, expected)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        last = LinearRegression().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, transformer, last)
        pipeline.fit(DIABETES, PROGRESSION, sample_weight=weight, groups=groups)
        np.testing.assert_allclose(pipeline[-1].coef_, LinearRegression().fit(expected, PROGRESSION).coef_)
        # Without cv= the weights also reach the model.
        pipeline.set_params(shaptransformer__cv=None).fit(DIABETES, PROGRESSION, sample_weight=weight)
    plain = forest().fit(scaled, PROGRESSION, sample_weight=weight)
    np.testing.assert_array_equal(pipeline[1].transform(scaled), TreeExplainer(plain).shap_values(scaled))


# Pipelines inside, with columns that depend on the fold


def test_columns_that_a_fold_has_not() -> None:
    texts = [f"common rare{i}" for i in range(20)]
    y = np.arange(20.0)
    inside = make_pipeline(CountVectorizer(), forest())
    splits = list(FOLDS.split(texts))
    for X in (texts, pytest.importorskip("pandas").Series(texts, index=np.arange(20)[::-1])):
        transformer = ShapTransformer(inside, cv=FOLDS).fit(X, y)
        values = transformer.fit_transform(X, y)
        names = list(transformer.get_feature_names_out())
        assert values.shape == (20, 21)
        train, test = splits[0]
        model = clone(inside).fit([texts[i] for i in train], y[train])
        explanation = TreeExplainer(model).explain([texts[i] for i in test])
        positions = [names.index(name) for name in explanation.feature_names]
        assert len(positions) == len(train) + 1
        np.testing.assert_array_equal(values[np.ix_(test, positions)], explanation.values)
        assert not np.delete(values[test], positions, axis=1).any()
        pairs = ShapInteractionTransformer(
            inside, cv=FOLDS, interactions=[("rare0", "rare1"), ("rare2", "rare5")]
        )
        assert pairs.fit_transform(X, y).shape == (20, 2)


def test_columns_that_only_a_fold_has() -> None:
    X = np.random.default_rng(0).normal(size=(60, 20))
    inside = make_pipeline(SelectKBest(k=2), RandomForestClassifier(2, random_state=0))
    with pytest.raises(ValueError, match=r"make a column 'x\d+' in fold"):
        ShapTransformer(inside, cv=10).fit_transform(X, np.arange(60) % 2)


class WithoutNames(TransformerMixin, BaseEstimator):
    """Columns that are not constant, without names."""

    def fit(self, X: np.ndarray, y: Any = None) -> WithoutNames:
        self.kept_ = np.ptp(X, axis=0) > 0
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        return X[:, self.kept_]


@pytest.mark.parametrize(
    "steps",
    [
        [WithoutNames()],
        [make_column_transformer((WithoutNames(), [0, 1, 2]))],
        [WithoutNames(), StandardScaler()],
        [WithoutNames(), KBinsDiscretizer(2, strategy="uniform")],
    ],
    ids=["alone", "inside", "before a scaler", "before an encoder"],
)
def test_columns_without_names(steps: list[Any]) -> None:
    """Positions are not comparable if a fold has fewer columns."""
    X, y = DIABETES[:, :3].copy(), PROGRESSION
    transformer = ShapTransformer(make_pipeline(*steps, forest()), cv=KFold(3))
    assert transformer.fit_transform(X, y).shape[0] == len(X)
    X[:300, 0] = 0  # constant where the last fold is trained
    assert np.ptp(X[:, 0]) > 0
    with pytest.raises(
        ValueError,
        match=r"sees \d columns and the model of all rows \d columns, which have no names to align",
    ):
        transformer.fit_transform(X, y)
    with pytest.raises(ValueError, match="columns, which have no names to align them by"):
        cross_validated_importance(transformer.estimator, X, y, cv=KFold(3))


def test_names_that_a_step_makes_anew() -> None:
    texts = np.array([f"Common rare{i}" for i in range(20)], object)
    lower = FunctionTransformer(lambda rows: [text.lower() for text in rows])
    inside = make_pipeline(lower, CountVectorizer(), forest())
    values = ShapTransformer(inside, cv=FOLDS).fit_transform(texts, np.arange(20.0))
    expected = make_pipeline(CountVectorizer(), forest())
    np.testing.assert_array_equal(
        values, ShapTransformer(expected, cv=FOLDS).fit_transform(texts, np.arange(20.0))
    )


# Refusals


class Untrainable(DecisionTreeRegressor):
    def fit(self, X: Any, y: Any) -> Any:
        raise AssertionError


def test_folds_that_do_not_test_each_row_once() -> None:
    for cv in (ShuffleSplit(3, random_state=0), [(np.arange(5), np.arange(5, 10))]):
        with pytest.raises(ValueError, match="must test each of the 442 rows once"):
            ShapTransformer(Untrainable(), cv=cv).fit_transform(DIABETES, PROGRESSION)


def test_a_class_that_a_fold_does_not_see() -> None:
    model = ShapTransformer(RandomForestClassifier(2), cv=KFold(3))
    with pytest.raises(ValueError, match=r"fold 0 of cv=.* has no row of class 0"):
        model.fit_transform(IRIS, SPECIES)


def test_a_frozen_model() -> None:
    model = FrozenEstimator(forest().fit(DIABETES, PROGRESSION))
    with pytest.raises(ValueError, match="the model is frozen: use cv=None"):
        ShapTransformer(model, cv=3).fit_transform(DIABETES, PROGRESSION)


CROSS_FITTED = "fit_transform is cross-fitted on purpose: it is not fit().transform()"


@parametrize_with_checks(
    [ShapTransformer(DecisionTreeRegressor(random_state=0), cv=3)],
    expected_failed_checks=lambda estimator: {
        "check_transformer_data_not_an_array": CROSS_FITTED,
        "check_transformer_general": CROSS_FITTED,
    },
)
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)
