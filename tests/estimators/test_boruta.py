"""ShapBoruta: columns that are more important than shadows, on rows that models were not trained on."""

from __future__ import annotations

import pickle
from math import comb
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from helpers.families import forest, forest_classifier
from joblib import parallel_backend
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from skshapgpu import ShapBoruta, ShapTransformer, TreeExplainer, UnsupportedModelError
from skshapgpu._estimators.shadow_rounds import p_values
from skshapgpu._estimators.shadows import with_shadows

RESULTS = ("support_", "ranking_", "p_values_", "importances_history_", "thresholds_", "hits_", "n_trials_")


def planted(n_rows: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows in which only columns 1 and 4 matter, and a target far from zero."""
    X = np.random.default_rng(seed).normal(size=(n_rows, 6))
    return X, 100 + 3 * X[:, 1] - 4 * X[:, 4]


def stump(**options: Any) -> DecisionTreeRegressor:
    return DecisionTreeRegressor(max_depth=3, random_state=0, **options)


def assert_same(one: ShapBoruta, other: ShapBoruta) -> None:
    for name in RESULTS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@parametrize_with_checks(
    [
        ShapBoruta(DecisionTreeRegressor(random_state=0), max_iter=1, cv=2, random_state=0),
        ShapBoruta(
            DecisionTreeClassifier(random_state=0), max_iter=2, cv=2, tentative="keep", random_state=0
        ),
        ShapBoruta(IsolationForest(n_estimators=2, random_state=0), max_iter=1, cv=2, random_state=0),
    ]
)
@pytest.mark.filterwarnings("ignore:No features were selected")
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


# Rounds


def test_rounds_from_the_definition() -> None:
    """The importances, hits and decisions equal the results of a plain implementation."""
    X, y = planted()
    selector = ShapBoruta(stump(), cv=KFold(3), max_iter=50, alpha=0.1, random_state=5).fit(X, y)
    seed = np.random.RandomState(5).randint(2**31 - 1)
    decisions, hits, trials = np.zeros(6, int), np.zeros(6, int), np.zeros(6, int)
    for number in range(selector.n_iter_):
        assert (decisions == 0).any()
        columns = np.flatnonzero(decisions >= 0)
        copied = np.resize(columns, max(5, len(columns)))
        wide = with_shadows(X, columns, copied, np.random.default_rng([seed, number]))
        importances_of_splits = []
        for train, test in KFold(3).split(X):
            explainer = TreeExplainer(stump().fit(wide[train], y[train]))
            importances_of_splits.append(np.abs(explainer.shap_values(wide[test])).mean(axis=0))
        importances = np.mean(importances_of_splits, axis=0)
        threshold = importances[len(columns) :].max()
        np.testing.assert_allclose(
            selector.importances_history_[number, columns], importances[: len(columns)]
        )
        assert np.isnan(selector.importances_history_[number, decisions < 0]).all()
        np.testing.assert_allclose(selector.thresholds_[number], threshold)
        for place, column in enumerate(columns):
            if decisions[column] == 0:
                trials[column] += 1
                hits[column] += importances[place] > threshold
                tail = min(hits[column], trials[column] - hits[column])
                p_value = 6 * 2 * sum(comb(trials[column], k) for k in range(tail + 1)) / 2 ** trials[column]
                if p_value <= 0.1:
                    decisions[column] = 1 if 2 * hits[column] > trials[column] else -1
    np.testing.assert_array_equal(selector.hits_, hits)
    np.testing.assert_array_equal(selector.n_trials_, trials)
    np.testing.assert_array_equal(selector.confirmed_, decisions == 1)
    np.testing.assert_array_equal(selector.rejected_, decisions == -1)
    np.testing.assert_array_equal(selector.tentative_, decisions == 0)
    assert selector.get_support(indices=True).tolist() == [1, 4] and selector.n_features_ == 2
    assert selector.n_iter_ == trials.max() < 50  # it ended when all were decided
    assert (selector.ranking_ == 1).tolist() == selector.support_.tolist()
    order = np.argsort(-selector.importances_[selector.rejected_])
    ranks = selector.ranking_[selector.rejected_][order]
    assert ranks[0] == 3 and (np.diff(ranks) >= 0).all() and ranks[-1] <= 6  # equal ones share a rank


def test_p_values_are_exact() -> None:
    hits, trials = np.array([0, 3, 5, 7, 10]), np.array([10, 10, 10, 8, 10])
    both = [2 / 1024, 2 * 176 / 1024, 1, 2 * 9 / 256, 2 / 1024]  # 176 = 1 + 10 + 45 + 120
    np.testing.assert_allclose(p_values(hits, trials, None), both, rtol=1e-14)
    np.testing.assert_allclose(p_values(hits, trials, "bonferroni"), np.minimum(1, np.multiply(5, both)))
    ordered = np.array([both[0] * 5 / 2, both[1] * 5 / 4, 1, both[3] * 5 / 3, both[0] * 5 / 2])
    np.testing.assert_allclose(p_values(hits, trials, "fdr_bh"), ordered)


def test_warm_start_continues_to_the_bit() -> None:
    X, y = planted()
    model = RandomForestRegressor(5, max_depth=3)  # random_state is set by the selector
    options: dict[str, Any] = {"cv": ShuffleSplit(3, random_state=0), "random_state": 3, "alpha": 1e-9}
    at_once = ShapBoruta(model, max_iter=7, **options).fit(X, y)
    resumed = ShapBoruta(model, max_iter=2, warm_start=True, **options).fit(X, y)
    assert resumed.n_iter_ == 2 and resumed.tentative_.all() and not resumed.support_.any()
    resumed = pickle.loads(pickle.dumps(resumed)).set_params(max_iter=5).fit(X, y)
    assert_same(resumed.set_params(max_iter=7).fit(X, y), at_once)
    assert_same(resumed.fit(X, y), at_once)  # nothing is left to do
    with parallel_backend("threading"):
        assert_same(ShapBoruta(model, max_iter=7, n_jobs=2, **options).fit(X, y), at_once)
    assert not np.array_equal(
        at_once.thresholds_, clone(at_once).set_params(random_state=4).fit(X, y).thresholds_
    )
    with pytest.raises(ValueError, match="max_iter=6 must be at least 7"):
        resumed.set_params(max_iter=6).fit(X, y)
    with pytest.raises(ValueError, match="there were 120, now X has 100"):
        resumed.set_params(max_iter=9).fit(X[:100], y[:100])
    with pytest.raises(ValueError, match="X has 5 features"):
        resumed.fit(X[:, :5], y)
    assert_same(resumed.set_params(max_iter=7, warm_start=False).fit(X, y), at_once)


def test_warm_start_with_splits_that_are_random() -> None:
    """The splits of the first call are used again."""
    X, y = planted()
    selector = ShapBoruta(
        stump(), max_iter=1, cv=ShuffleSplit(2), alpha=1e-9, warm_start=True, random_state=0
    )
    first = selector.fit(X, y)._splits
    assert selector.set_params(max_iter=2).fit(X, y)._splits is first


def test_interrupted_rounds_are_kept() -> None:
    X, y = planted()
    seen = []

    def interrupt(done: int, total: int) -> None:
        seen.append((done, total))
        if done == 3:
            raise KeyboardInterrupt

    options: dict[str, Any] = {"max_iter": 5, "cv": 2, "random_state": 0, "alpha": 1e-9}
    selector = ShapBoruta(stump(), progress=interrupt, **options)
    with pytest.raises(KeyboardInterrupt):
        selector.fit(X, y)
    assert seen == [(1, 5), (2, 5), (3, 5)]
    with pytest.raises(NotFittedError):
        selector.transform(X)
    selector.set_params(progress=False, warm_start=True).fit(X, y)
    assert_same(selector, ShapBoruta(stump(), **options).fit(X, y))


def test_tentative_columns() -> None:
    X, y = planted()
    options: dict[str, Any] = {"max_iter": 3, "cv": 2, "random_state": 0}
    expected = {"drop": [], "keep": [0, 1, 2, 3, 4, 5], "median": [1, 4]}
    for tentative, columns in expected.items():
        selector = ShapBoruta(stump(), tentative=tentative, **options).fit(X, y)
        assert selector.get_support(indices=True).tolist() == columns and selector.tentative_.all()
        assert selector.n_features_ == len(columns) and (selector.ranking_ == 2).all()


def test_percentile_and_correction() -> None:
    X, y = planted()
    selectors = [
        ShapBoruta(forest(), percentile=p, correction=c, cv=2, max_iter=20, random_state=0).fit(X, y)
        for p, c in ((100, "bonferroni"), (50, "bonferroni"), (100, "fdr_bh"), (100, None))
    ]
    assert (selectors[1].thresholds_[0] < selectors[0].thresholds_[0]) and selectors[0].support_[[1, 4]].all()
    # Without a miss, 6 rounds decide at 0.05, and 8 rounds with Bonferroni's correction for 6 columns. With
    # the correction of Benjamini and Hochberg, 7 rounds are enough, as two columns have no miss.
    n_trials = [selector.n_trials_[4] for selector in selectors]
    assert n_trials[:2] == [8, 8] and n_trials[2] in (6, 7) and n_trials[3] == 6


# Columns and rows


def test_shadows_keep_type_and_entries() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "a": [1.5, np.nan, 3.0, 4.0],
            "b": pd.Categorical(["x", "y", None, "x"], categories=["x", "y", "z"]),
            "c": pd.array([1, None, 3, 4], dtype="Int8"),
            "shadow_": ["p", "q", "r", None],
        },
        index=[7, 7, 1, 2],
    )
    sources = np.array([1, 3, 2, 1, 0])
    made = with_shadows(X, np.array([3, 1]), sources, rng)
    assert list(made.columns[:2]) == ["shadow_", "b"] and made.index.equals(X.index)
    assert made.columns.is_unique and not set(made.columns[2:]) & set(X.columns)
    for place, source in enumerate(sources):
        shadow, column = made.iloc[:, 2 + place], X.iloc[:, source]
        assert shadow.dtype == column.dtype
        assert sorted(map(str, shadow)) == sorted(map(str, column))
    pd.testing.assert_frame_equal(made.iloc[:, :2], X[["shadow_", "b"]])
    numbered = with_shadows(pd.DataFrame(np.eye(5), columns=[3, 1, 9, 4, 5]), np.arange(2), np.arange(5), rng)
    assert numbered.columns.tolist() == [3, 1, 10, 11, 12, 13, 14]
    with pytest.raises(TypeError, match="all strings or all whole numbers"):
        with_shadows(pd.DataFrame(np.eye(2), columns=["a", 1]), np.arange(2), np.arange(2), rng)


@pytest.mark.parametrize("package", ["polars", "pyarrow", "sparse"])
def test_shadows_of_other_tables(package: str) -> None:
    X, _ = planted(20)
    names = list("abcdef")
    if package == "sparse":
        X[X < 0] = 0
        made = with_shadows(sp.csr_matrix(X), np.array([5, 1]), np.arange(6), np.random.default_rng(0))
        assert made.format == "csr"
        made = made.toarray()
    else:
        module = pytest.importorskip(package)
        given = {name: column for name, column in zip(names, X.T)}
        table = module.DataFrame(given) if package == "polars" else module.table(given)
        made = with_shadows(table, np.array([5, 1]), np.arange(6), np.random.default_rng(0))
        made = np.column_stack(
            [np.asarray(made[name]) for name in (made.columns if package == "polars" else made.column_names)]
        )
    expected = with_shadows(X, np.array([5, 1]), np.arange(6), np.random.default_rng(0))
    np.testing.assert_array_equal(made, expected)
    np.testing.assert_array_equal(expected[:, :2], X[:, [5, 1]])
    np.testing.assert_array_equal(np.sort(expected[:, 2:], axis=0), np.sort(X, axis=0))


def test_categories_and_missing_values() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    color, size, noise = rng.integers(4, size=300), rng.normal(size=300), rng.integers(4, size=300)
    y = np.array([0, 5, -5, 2])[color] + 3 * np.isnan(np.where(size > 1, np.nan, size))
    X = pd.DataFrame(
        {
            "noise": pd.Categorical.from_codes(noise, list("wxyz")),
            "size": np.where(size > 1, np.nan, size),
            "constant": 1.0,
            "color": pd.Categorical.from_codes(color, list("abcd")),
        }
    )
    model = HistGradientBoostingRegressor(max_iter=5, categorical_features="from_dtype", random_state=0)
    selector = ShapBoruta(model, cv=3, max_iter=20, random_state=0).set_output(transform="pandas").fit(X, y)
    kept = selector.transform(X)
    assert list(kept.columns) == ["size", "color"] and kept["color"].dtype == X["color"].dtype
    assert selector.rejected_.tolist() == [True, False, True, False] and selector.importances_[2] == 0
    with pytest.raises(ValueError, match="same order"):
        selector.transform(X[X.columns[::-1]])
    # A pipeline that encodes columns by name encodes their shadows, too.
    encode = ColumnTransformer([("encode", OneHotEncoder(handle_unknown="ignore"), ["color", "noise"])])
    encode.set_params(remainder="passthrough", sparse_threshold=0)
    piped = ShapBoruta(make_pipeline(encode, forest()), cv=3, max_iter=20, random_state=0).fit(X, y)
    assert piped.get_feature_names_out().tolist() == ["size", "color"]


def test_one_column_and_equal_columns() -> None:
    X, y = planted()
    single = ShapBoruta(stump(), cv=2, max_iter=10, random_state=0).fit(X[:, [4]], y)
    assert single.support_.tolist() == [True] and single.n_iter_ == 6
    twice = np.column_stack([X[:, 4], X[:, 0], X[:, 4], np.zeros(120)])
    selector = ShapBoruta(forest(10, max_features=1), cv=2, max_iter=20, random_state=0).fit(twice, y)
    assert selector.support_.tolist() == [True, False, True, False]


@pytest.mark.filterwarnings("ignore:the t")
def test_split_of_one_class() -> None:
    """A split without a second class is left out; it is an error if no split remains."""
    X, y = planted()
    label = np.where(y > 100, "yes", "no")
    only = np.flatnonzero(label == "no")
    rest = np.setdiff1d(np.arange(120), only)
    good = (np.arange(0, 120, 2), np.arange(1, 120, 2))
    options: dict[str, Any] = {"max_iter": 2, "random_state": 0}
    both = ShapBoruta(forest_classifier(), cv=[(only, rest), good], **options).fit(X, label)
    alone = ShapBoruta(forest_classifier(), cv=[good], **options).fit(X, label)
    assert_same(both, alone)
    with pytest.raises(ValueError, match="no split could be explained"):
        ShapBoruta(forest_classifier(), cv=[(only, rest)], **options).fit(X, label)


# Parameters of fit and of the explainer


def test_weights_count_in_fits_and_importances() -> None:
    X, y = planted(60)
    weight = np.random.default_rng(1).integers(0, 3, size=60)
    splits = list(KFold(3).split(X))
    weight[splits[2][1]] = 0  # its importances do not count
    selector = ShapBoruta(stump(), cv=splits, max_iter=1, random_state=0)
    selector.fit(X, y, sample_weight=weight)
    seed = np.random.RandomState(0).randint(2**31 - 1)
    wide = with_shadows(X, np.arange(6), np.arange(6), np.random.default_rng([seed, 0]))
    importances_of_splits = []
    for train, test in splits[:2]:
        model = stump().fit(wide[train], y[train], sample_weight=weight[train])
        magnitudes = np.abs(TreeExplainer(model).shap_values(wide[test]).astype(float))
        importances_of_splits.append(weight[test] @ magnitudes / weight[test].sum())
    np.testing.assert_allclose(selector.importances_, np.mean(importances_of_splits, axis=0)[:6], rtol=1e-6)
    np.testing.assert_allclose(
        selector.thresholds_, np.mean(importances_of_splits, axis=0)[6:].max(), rtol=1e-6
    )
    for bad in (weight[:-1], -weight, np.zeros(60), np.full(60, np.nan)):
        with pytest.raises(ValueError, match="sample_weight"):
            selector.fit(X, y, sample_weight=bad)
    with pytest.raises(TypeError, match="sample_weight is a masked array"):
        selector.fit(X, y, sample_weight=np.ma.masked_less(weight, 1))


def test_routing() -> None:
    X, y = planted()
    params = {"sample_weight": 1 + (y > 100), "groups": np.arange(120) % 7}
    options: dict[str, Any] = {"cv": GroupKFold(3), "max_iter": 2, "random_state": 0}
    plain = ShapBoruta(stump(), **options).fit(X, y, **params)
    by_step = {"decisiontreeregressor__sample_weight": params["sample_weight"], "groups": params["groups"]}
    assert_same(ShapBoruta(make_pipeline(stump()), **options).fit(X, y, **by_step), plain)
    without = ShapBoruta(stump(), **options).fit(X, y, groups=params["groups"])
    assert not np.allclose(plain.thresholds_, without.thresholds_)
    with sklearn.config_context(enable_metadata_routing=True):
        model = stump().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(
            ShapBoruta(model, **options, tentative="keep"), stump().set_fit_request(sample_weight=False)
        )
        assert_same(ShapBoruta(model, **options).fit(X, y, **params), plain)
        np.testing.assert_array_equal(pipeline.fit(X, y, **params)[0].thresholds_, plain.thresholds_)
        with pytest.raises(UnsetMetadataPassedError):
            ShapBoruta(stump(), **options).fit(X, y, **params)


def test_background_data_gets_shadows() -> None:
    X, y = planted()
    options: dict[str, Any] = {"cv": 2, "max_iter": 9, "random_state": 0}
    selector = ShapBoruta(stump(), explain_params={"data": X[::6].tolist()}, **options).fit(X, y)
    assert selector.get_support(indices=True).tolist() == [1, 4]
    assert not np.allclose(selector.thresholds_[0], ShapBoruta(stump(), **options).fit(X, y).thresholds_[0])


# Errors come before any work


class NeverFitted(RandomForestClassifier):
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NeverFitted:
        raise AssertionError("fitted")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_iter": 0}, ValueError, "max_iter"),
        ({"max_iter": 2.5}, TypeError, "max_iter"),
        ({"alpha": 0}, ValueError, "alpha"),
        ({"percentile": 0}, ValueError, "percentile"),
        ({"correction": "holm"}, ValueError, "correction must be one of"),
        ({"tentative": "maybe"}, ValueError, "tentative must be one of"),
        ({"progress": "yes"}, TypeError, "progress"),
        ({"n_jobs": 0}, ValueError, "n_jobs must not be 0"),
        ({"cv": []}, ValueError, "cv has no splits"),
        ({"explain_params": {"precision": "half"}}, ValueError, "precision"),
        ({"explain_params": {"feature_groups": {"a": [0, 1]}}}, ValueError, "groups"),
        ({"explain_params": {"columns": "used"}}, ValueError, "columns='used'"),
        ({"estimator": FrozenEstimator(NeverFitted())}, ValueError, "frozen"),
        ({"estimator": NeverFitted(monotonic_cst=[0] * 6)}, ValueError, "monotonic_cst"),
    ],
)
def test_refused_before_any_fit(options: dict[str, Any], error: type[Exception], message: str) -> None:
    X, y = planted()
    with pytest.raises(error, match=message):
        ShapBoruta(**({"estimator": NeverFitted()} | options)).fit(X, y > 100)


def test_models_without_shap_values() -> None:
    X, y = planted()
    for model in (
        LogisticRegression(),
        make_pipeline(LogisticRegression()),
        ShapTransformer(LogisticRegression()),
    ):
        with pytest.raises(UnsupportedModelError, match="LogisticRegression"):
            ShapBoruta(model).fit(X, y > 100)
