"""Steps with known origins of their columns: each is tested by changing one column at a time."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.families import forest
from sklearn import feature_selection
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.impute import IterativeImputer, KNNImputer, MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import AdditiveChi2Sampler
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    KernelCenterer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)

from skshapgpu import ShapBoruta, ShapRFECV, ShapSelector, ShapTransformer, TreeExplainer, explain
from skshapgpu._rows.origins import origins_of
from skshapgpu._rows.pipelines import AsArray
from skshapgpu.adapters.step_origins import ONE_TO_ONE, one_to_one_steps

N_ROWS = 90
_RNG = np.random.default_rng(0)

#: Columns are positive and of different scales; the last has few values, so that its bins coincide.
NUMBERS = np.column_stack(
    [
        _RNG.lognormal(size=N_ROWS),
        _RNG.uniform(5, 9, N_ROWS),
        _RNG.exponential(100, N_ROWS),
        _RNG.choice([1.0, 2.0], N_ROWS, p=[0.8, 0.2]),
    ]
)
#: Columns have different fractions of missing values: none in the third column, all in the second.
GAPS = np.where(_RNG.random((N_ROWS, 4)) < [0.3, 1.0, 0.0, 0.1], np.nan, NUMBERS)
ZEROS = sp.csr_array(np.where(_RNG.random((N_ROWS, 4)) < 0.5, 0.0, NUMBERS))
#: 5, 2, 3 and 1 categories.
TEXTS = np.column_stack(
    [
        _RNG.choice(list("abcde"), N_ROWS, p=[0.4, 0.3, 0.2, 0.06, 0.04]),
        _RNG.choice(list("pq"), N_ROWS),
        _RNG.choice(["x0", "x1", "x2"], N_ROWS),
        np.full(N_ROWS, "z"),
    ]
).astype(object)
Y = NUMBERS[:, 2] + 10 * NUMBERS[:, 3]
LABELS = np.digitize(Y, [30, 100])


def dense(X: Any) -> np.ndarray:
    return X.toarray() if sp.issparse(X) else np.asarray(X)


def columns_that_move(step: Any, X: Any) -> list[set[int]]:
    """Find the columns of X that affect each column made by a step."""
    rng, before = np.random.default_rng(1), dense(step.transform(X))
    passed_rows = dense(X)
    results: list[set[int]] = [set() for _ in range(before.shape[1])]
    for column in range(passed_rows.shape[1]):
        for _ in range(4):
            moved = passed_rows.copy()
            moved[:, column] = rng.permutation(moved[:, column])
            if passed_rows.dtype.kind == "f" and np.isnan(passed_rows[:, column]).all():
                moved[:, column] = np.where(rng.random(len(passed_rows)) < 0.5, np.nan, 1.0)
            after = dense(step.transform(sp.csr_array(moved) if sp.issparse(X) else moved))
            same = (after == before) | ((after != after) & (before != before))
            for made in np.flatnonzero(~same.all(axis=0)):
                results[made].add(column)
    return results


def one_hot(**options: Any) -> tuple[Any, Any]:
    return OneHotEncoder(**options), TEXTS


CASES: list[tuple[Any, Any]] = [
    (Binarizer(threshold=6), NUMBERS),
    (MaxAbsScaler(), NUMBERS),
    (MaxAbsScaler(), ZEROS),
    (MinMaxScaler((2, 3), clip=True), NUMBERS),
    (PowerTransformer(), NUMBERS),
    (PowerTransformer("box-cox", standardize=False), NUMBERS),
    (QuantileTransformer(n_quantiles=10), NUMBERS),
    (QuantileTransformer(n_quantiles=10, output_distribution="normal", ignore_implicit_zeros=True), ZEROS),
    (RobustScaler(), NUMBERS),
    (StandardScaler(), NUMBERS),
    (StandardScaler(with_mean=False), ZEROS),
    (FunctionTransformer(), NUMBERS),
    (FunctionTransformer(validate=True, accept_sparse=True), ZEROS),
    (FunctionTransformer(np.log1p), NUMBERS),
    (FunctionTransformer(np.sqrt, feature_names_out="one-to-one"), ZEROS),
    (KBinsDiscretizer(4, encode="ordinal", strategy="uniform"), NUMBERS),
    (KBinsDiscretizer([3, 2, 4, 5], encode="onehot", strategy="kmeans", subsample=None), NUMBERS),
    (KBinsDiscretizer(5, encode="onehot-dense", strategy="quantile"), NUMBERS),
    (AdditiveChi2Sampler(sample_steps=1), NUMBERS),
    (AdditiveChi2Sampler(sample_steps=3), NUMBERS),
    (AdditiveChi2Sampler(), ZEROS),
    (SplineTransformer(n_knots=3), NUMBERS),
    (SplineTransformer(n_knots=4, degree=2, include_bias=False), NUMBERS),
    (SplineTransformer(n_knots=4, extrapolation="periodic", include_bias=False), NUMBERS),
    (SplineTransformer(n_knots=3, knots="quantile", sparse_output=True), NUMBERS[:, :3]),
    (OrdinalEncoder(), TEXTS),
    (OrdinalEncoder(max_categories=2, handle_unknown="use_encoded_value", unknown_value=-1), TEXTS),
    one_hot(),
    one_hot(sparse_output=False, handle_unknown="ignore"),
    one_hot(drop="first"),
    one_hot(drop="if_binary"),
    one_hot(drop=["b", "q", "x1", "z"]),
    one_hot(min_frequency=12, handle_unknown="infrequent_if_exist"),
    one_hot(max_categories=2),
    one_hot(max_categories=2, drop="first"),
    one_hot(min_frequency=40, drop="if_binary"),
    one_hot(min_frequency=12, drop=["b", "p", "x2", "z"], handle_unknown="ignore"),
    (OneHotEncoder(categories=[list("edcbax"), ["q", "p"], ["x0", "x2", "x1"], ["y", "z"]]), TEXTS),
    (TargetEncoder(target_type="continuous"), (TEXTS, Y)),
    (TargetEncoder(), (TEXTS, LABELS > 0)),
    (TargetEncoder(), (TEXTS, LABELS)),
    (MissingIndicator(error_on_new=False), GAPS),
    (MissingIndicator(features="all"), GAPS),
    (MissingIndicator(sparse=True, error_on_new=False), GAPS),
    (SimpleImputer(), GAPS),
    (SimpleImputer(strategy="median", keep_empty_features=True), GAPS),
    (SimpleImputer(add_indicator=True), GAPS),
    (SimpleImputer(strategy="most_frequent", add_indicator=True, keep_empty_features=True), GAPS),
    (SimpleImputer(strategy="constant", fill_value=-1.0, add_indicator=True), GAPS),
    (SimpleImputer(strategy="constant", keep_empty_features=True), GAPS),
    (SimpleImputer(missing_values=1.0, strategy="mean", add_indicator=True), NUMBERS),
    (SimpleImputer(missing_values="x0", strategy="most_frequent"), TEXTS),
    (SimpleImputer(missing_values="z", strategy="most_frequent"), TEXTS),
    (SimpleImputer(missing_values=np.nan, add_indicator=True), sp.csr_array(GAPS)),
    (
        feature_selection.GenericUnivariateSelect(feature_selection.f_regression, mode="k_best", param=2),
        NUMBERS,
    ),
    (feature_selection.RFE(forest(5), n_features_to_select=2), NUMBERS),
    (feature_selection.RFECV(forest(5), cv=2, min_features_to_select=2), NUMBERS),
    (feature_selection.SelectFdr(feature_selection.f_regression), NUMBERS),
    (feature_selection.SelectFpr(feature_selection.f_regression), ZEROS),
    (feature_selection.SelectFwe(feature_selection.f_regression), NUMBERS),
    (feature_selection.SelectKBest(feature_selection.f_regression, k=2), NUMBERS),
    (feature_selection.SelectPercentile(feature_selection.f_regression, percentile=75), ZEROS),
    (feature_selection.SequentialFeatureSelector(LinearRegression(), n_features_to_select=2, cv=2), NUMBERS),
    (feature_selection.VarianceThreshold(0.5), NUMBERS),
    (SelectFromModel(forest(5), max_features=2, threshold=-np.inf), NUMBERS),
    (SelectFromModel(ShapTransformer(forest(5))), NUMBERS),
    (ShapSelector(forest(5), max_features=3), NUMBERS),
    (ShapBoruta(forest(5), max_iter=3, tentative="keep", cv=2, random_state=0), NUMBERS),
    (ShapRFECV(forest(5), min_features_to_select=3, cv=2), NUMBERS),
    (FrozenEstimator(OneHotEncoder().fit(TEXTS)), TEXTS),
]


def label(case: Any) -> str:
    """Name a step without the addresses of functions: processes that share a run must agree on names."""
    return re.sub(r" at 0x\w+|\s", "", str(case))[:70] if hasattr(case, "transform") else ""


@pytest.mark.parametrize(("step", "data"), CASES, ids=label)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_origins_are_the_columns_that_move_what_is_made(step: Any, data: Any) -> None:
    X, y = data if isinstance(data, tuple) else (data, Y)
    fitted = step.fit(X, y)
    moving, made = columns_that_move(fitted, X), dense(fitted.transform(X))
    origins = origins_of([fitted], len(moving))
    assert origins.columns is not None, origins.reason
    assert len(moving) == len(origins.columns) > 0
    for column, (result, origin) in enumerate(zip(moving, origins.columns.tolist())):
        assert result == {origin} or (not result and (made[:, column] == made[0, column]).all())
    assert any(moving)


def test_every_known_step_is_tried() -> None:
    tried = {type(step) for step, _ in CASES}
    assert {*one_to_one_steps(), *ONE_TO_ONE} - {AsArray} <= tried


class Ratios(StandardScaler):
    """Columns divided by their neighbours."""

    def transform(self, X: Any, copy: Any = None) -> Any:
        return X / np.roll(X, 1, axis=1)


class Reversing(ColumnTransformer):
    def transform(self, X: Any, **params: Any) -> Any:
        return super().transform(X, **params)[:, ::-1]


class ReversingPipeline(Pipeline):
    def transform(self, X: Any, **params: Any) -> Any:
        return super().transform(X, **params)[:, ::-1]


class ReversingUnion(FeatureUnion):
    def transform(self, X: Any, **params: Any) -> Any:
        return super().transform(X, **params)[:, ::-1]


@pytest.mark.parametrize(
    "step",
    [
        Normalizer(),
        TfidfTransformer(),
        KNNImputer(),
        IterativeImputer(max_iter=2),
        PolynomialFeatures(2),
        PCA(3),
        ShapTransformer(forest(5)),
        Ratios(),
        Reversing([("all", StandardScaler(), [0, 1, 2, 3])]),
        ReversingPipeline([("all", StandardScaler())]),
        ReversingUnion([("all", StandardScaler())]),
        FunctionTransformer(np.fliplr),
        FunctionTransformer(np.fliplr, feature_names_out="one-to-one"),
        FunctionTransformer(lambda A: A[:, 1:]),
        FunctionTransformer(lambda A: A / A.sum(axis=1, keepdims=True), feature_names_out="one-to-one"),
    ],
    ids=label,
)
def test_steps_that_mix_or_move_columns_are_refused_by_name(step: Any) -> None:
    """Many of these steps keep the names and the number of the columns."""
    pipeline = make_pipeline(step, forest(5)).fit(NUMBERS, Y)
    known = isinstance(step, (Normalizer, PCA, PolynomialFeatures))
    reason = "mixes columns" if known else "is not known to make each of its columns from a single one"
    message = f"{type(step).__name__} {reason}"
    for pandas in (False, True):
        X: Any = NUMBERS
        if pandas:
            X = pytest.importorskip("pandas").DataFrame(NUMBERS, columns=list("abcd"))
            if isinstance(step, (Ratios, FunctionTransformer)):
                continue  # of arrays
            pipeline = make_pipeline(step, forest(5)).fit(X, Y)
        with pytest.raises(ValueError, match=message) as caught:
            explain(pipeline, X).sum_by("input")
        assert "mapping of names" in str(caught.value)


def test_a_kernel_is_refused() -> None:
    kernel = NUMBERS @ NUMBERS.T
    pipeline = make_pipeline(KernelCenterer(), forest(5)).fit(kernel, Y)
    with pytest.raises(ValueError, match="KernelCenterer is not known"):
        explain(pipeline, kernel).sum_by("input")


@pytest.mark.parametrize(
    "step", [Normalizer(), KNNImputer(), PolynomialFeatures(2), PCA(1), Ratios()], ids=label
)
def test_any_step_that_is_given_one_column_is_known(step: Any) -> None:
    """The origin is also known in a ``ColumnTransformer``, and after steps that make several columns."""
    powers = make_pipeline(KBinsDiscretizer(3, encode="onehot-dense"), PCA(2))
    for of_one in (step, powers):
        encode = make_column_transformer((of_one, [2]), (StandardScaler(), [0]), remainder="drop")
        fitted = encode.fit(NUMBERS, Y)
        moving = columns_that_move(fitted, NUMBERS)
        origins = origins_of([fitted], len(moving))
        assert origins.columns is not None, origins.reason
        n_made = len(moving) - 1
        assert n_made > 0 and origins.columns.tolist() == [2] * n_made + [0]
        assert all(result <= {origin} for result, origin in zip(moving, origins.columns.tolist()))


def test_a_constant_column_has_no_value() -> None:
    """``Normalizer`` mixes all columns into each: no sum over its columns belongs to one column of X."""
    X = np.column_stack([np.full(N_ROWS, 3.0), NUMBERS[:, :2]])
    pipeline = make_pipeline(Normalizer(), forest(5)).fit(X, X[:, 1])
    assert np.abs(TreeExplainer(pipeline).shap_values(X)[:, 0]).max() > 0.1
    with pytest.raises(ValueError, match="Normalizer mixes columns"):
        explain(pipeline, X).sum_by("input")
    one_by_one = make_column_transformer((StandardScaler(), [0, 1]), (FunctionTransformer(np.log), [2]))
    grouped = explain(make_pipeline(one_by_one, forest(5)).fit(X, X[:, 1]), X).sum_by("input")
    np.testing.assert_array_equal(grouped.values[:, 0], 0)
