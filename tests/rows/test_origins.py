"""Values of encoded columns, summed over the columns derived from each column of X."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from helpers.families import forest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, VarianceThreshold, f_regression
from sklearn.frozen import FrozenEstimator
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.utils.fixes import parse_version

from skshapgpu import ShapTransformer, TreeExplainer, cross_val_explain, explain

pd = pytest.importorskip("pandas")

N_ROWS = 120


def frame() -> Any:
    """Build columns whose names and categories do not show which encoded column derives from which."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "a": rng.choice(["b_c", "c", "d"], N_ROWS),
            "a_b": rng.choice(["c", "d", "e", "f"], N_ROWS),
            "size": rng.normal(size=N_ROWS),
            "weight": rng.normal(size=N_ROWS),
            "text": rng.choice(["good movie", "bad movie", "good plot"], N_ROWS),
        },
        index=[f"row {i}" for i in range(N_ROWS)],
    )
    X.loc[rng.random(N_ROWS) < 0.2, "size"] = np.nan
    return X


X = frame()
Y = (
    2.0 * (X["a"] == "d")
    - (X["a_b"] == "e")
    + X["size"].fillna(2)
    + X["weight"] ** 2
    + 3 * X["text"].str.contains("good")
).to_numpy()
CLASSES = np.digitize(Y, [1, 3])
TEXTS, NUMBERS, EVERYTHING = ["a", "a_b"], ["size", "weight"], ["a", "a_b", "size", "weight", "text"]


def columns_that_move(steps: Any, data: Any, names: list[str]) -> list[str]:
    """Find, by trial, the column of X on which each column made by the steps depends.

    Columns of X are shuffled, one at a time.
    """

    def made(rows: Any) -> np.ndarray:
        for step in steps:
            rows = step.transform(rows)
        return rows.toarray() if sp.issparse(rows) else np.asarray(rows)

    before, rng, result = made(data), np.random.default_rng(1), {}
    for name in names:
        for _ in range(3):
            moved = data.copy()
            moved[name] = rng.permutation(moved[name].to_numpy())
            for column in np.flatnonzero(~np.isclose(before, made(moved), equal_nan=True).all(axis=0)):
                assert result.setdefault(column, name) == name, f"column {column} depends on several"
    return [result[column] for column in range(before.shape[1])]


def check(*steps: Any, y: np.ndarray = Y, of: list[str] = EVERYTHING) -> Any:
    """Return the grouped explanation, after comparing its sums with independently computed sums."""
    model: Any = RandomForestClassifier(5, random_state=0) if y is CLASSES else forest(5, None)
    pipeline = make_pipeline(*steps, model).fit(X[of], y)
    explanation = explain(pipeline, X[of])
    inputs = columns_that_move(explainer_steps(pipeline), X[of], of)
    grouped = explanation.sum_by("input")
    assert list(grouped.feature_names) == list(dict.fromkeys(inputs))
    for i, name in enumerate(grouped.feature_names):
        by_hand = explanation.values[:, [origin == name for origin in inputs]].sum(axis=1)
        np.testing.assert_allclose(grouped.values[:, i], by_hand, atol=1e-12)
    np.testing.assert_allclose(grouped.values.sum(axis=1), explanation.values.sum(axis=1), atol=1e-12)
    assert grouped.base_values is explanation.base_values
    pd.testing.assert_frame_equal(grouped.data, X[list(grouped.feature_names)])
    return grouped


def explainer_steps(pipeline: Any) -> Any:
    return TreeExplainer(pipeline)._reader.steps


@pytest.mark.parametrize(
    "encoder",
    [
        OneHotEncoder(),
        OneHotEncoder(sparse_output=False, drop="first"),
        OneHotEncoder(drop="if_binary"),
        OneHotEncoder(min_frequency=35, handle_unknown="infrequent_if_exist"),
        OneHotEncoder(max_categories=2, drop="first"),
        OneHotEncoder(drop=["c", "f"]),
        OrdinalEncoder(),
        TargetEncoder(),
        FrozenEstimator(OneHotEncoder().fit(X[TEXTS])),
    ],
    ids=lambda encoder: str(encoder),
)
def test_encoders(encoder: Any) -> None:
    check(encoder, of=TEXTS)


def test_a_target_encoder_of_several_classes() -> None:
    grouped = check(TargetEncoder(), y=CLASSES, of=TEXTS)
    assert grouped.values.shape == (N_ROWS, 2, 3)


@pytest.mark.parametrize(
    "step",
    [
        StandardScaler(),
        QuantileTransformer(n_quantiles=20),
        SimpleImputer(),
        SimpleImputer(add_indicator=True),
        make_pipeline(SimpleImputer(add_indicator=True), VarianceThreshold()),
        make_pipeline(SimpleImputer(), KBinsDiscretizer(4, strategy="uniform")),
        make_pipeline(SimpleImputer(), KBinsDiscretizer(4, encode="ordinal", strategy="uniform")),
        make_pipeline(SimpleImputer(), SplineTransformer(n_knots=4)),
        make_pipeline(SimpleImputer(), SplineTransformer(n_knots=4, include_bias=False)),
        FunctionTransformer(),
        FunctionTransformer(np.abs, feature_names_out="one-to-one"),
        FunctionTransformer(np.abs, feature_names_out=lambda self, names: names),
        make_pipeline(SimpleImputer(), SelectKBest(f_regression, k=1)),
        FeatureUnion([("scaled", StandardScaler()), ("missing", MissingIndicator()), ("no", "drop")]),
        FeatureUnion([("same", "passthrough"), ("binned", make_pipeline(SimpleImputer(), StandardScaler()))]),
    ],
    ids=lambda step: str(step).replace("\n", "")[:60],
)
def test_transformers_of_numbers(step: Any) -> None:
    check(step, of=NUMBERS)


def test_an_imputer_that_drops_a_column() -> None:
    data = X[["size", "weight"]].assign(none=np.nan)[["none", "size", "weight"]]
    imputer = SimpleImputer(add_indicator=True)
    explanation = explain(make_pipeline(imputer, forest(5, None)).fit(data, Y), data)
    assert explanation.values.shape[1] == 4  # two numbers, and what was missing in "none" and in "size"
    grouped = explanation.sum_by("input")
    assert grouped.feature_names == ("size", "weight", "none")
    np.testing.assert_allclose(grouped.values[:, 0], explanation.values[:, [0, 3]].sum(axis=1))


def mixed(**options: Any) -> ColumnTransformer:
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    return ColumnTransformer(
        [
            ("words", TfidfVectorizer(), "text"),
            ("numbers", numbers, NUMBERS),
            ("nothing", "drop", ["weight"]),
            ("categories", OneHotEncoder(drop="first"), ["a_b", "a"]),
            ("none", StandardScaler(), []),
        ],
        **options,
    )


@pytest.mark.parametrize("set_output", [None, "pandas"])
def test_a_column_transformer(set_output: str | None) -> None:
    encode = mixed(sparse_threshold=0)
    if set_output:
        length = FunctionTransformer(lambda text: text.str.len().to_frame())
        encode.set_params(categories__sparse_output=False, words=length).set_output(transform=set_output)
    grouped = check(encode)
    assert grouped.feature_names == ("text", "size", "weight", "a_b", "a")
    assert list(grouped.row_labels) == list(X.index)


def test_sparse_output_and_classes() -> None:
    grouped = check(mixed(sparse_threshold=1), y=CLASSES)
    assert grouped.values.shape == (N_ROWS, 5, 3)


@pytest.mark.parametrize(
    "choose",
    [
        TEXTS,
        [0, 1],
        [-5, -4],
        slice(0, 2),
        slice("a", "a_b"),
        np.array([True, True, False, False, False]),
        [True, True, False, False, False],
        make_column_selector("^a"),
    ],
    ids=lambda choose: type(choose).__name__,
)
def test_ways_to_choose_columns(choose: Any) -> None:
    numbers = make_column_transformer(
        (OneHotEncoder(), choose), ("drop", ["text"]), remainder=SimpleImputer()
    )
    assert check(numbers).feature_names == ("a", "a_b", "size", "weight")
    passed = make_column_transformer((OneHotEncoder(), choose), ("drop", ["text"]), remainder="passthrough")
    assert check(passed).feature_names == ("a", "a_b", "size", "weight")


def test_nests() -> None:
    inner = make_column_transformer((OneHotEncoder(), TEXTS), remainder="passthrough")
    union = FeatureUnion(
        [("encoded", inner), ("binned", make_column_transformer((SimpleImputer(), ["size"])))]
    )
    outer = make_column_transformer((make_pipeline(union, VarianceThreshold()), ["a_b", "size", "a"]))
    check("passthrough", outer, None, StandardScaler(with_mean=False))


def test_what_is_made_of_one_column_comes_from_it() -> None:
    words = make_pipeline(CountVectorizer(), FunctionTransformer(sp.csr_array.toarray), PCA(2))
    powers = make_pipeline(SimpleImputer(), PolynomialFeatures(3, include_bias=False))
    check(make_column_transformer((words, "text"), (powers, ["weight"]), (OneHotEncoder(), ["a"])))


def test_columns_by_name_in_another_order() -> None:
    pipeline = make_pipeline(mixed(), forest(5, None)).fit(X, Y)
    other = X[X.columns[::-1]].assign(more=1)[["more", *X.columns[::-1]]]
    explanation, expected = explain(pipeline, other).sum_by("input"), explain(pipeline, X).sum_by("input")
    np.testing.assert_array_equal(explanation.values, expected.values)
    pd.testing.assert_frame_equal(explanation.data, expected.data)


def test_columns_that_are_not_used_may_be_missing() -> None:
    """Columns after the missing ones have different positions than in training."""
    encode = make_column_transformer((OneHotEncoder(), ["a_b"]), ("passthrough", ["weight"]))
    pipeline = make_pipeline(encode, forest(5, None)).fit(X, Y)
    used = X[["text", "weight", "a_b"]]
    grouped = explain(pipeline, used).sum_by("input")
    np.testing.assert_array_equal(grouped.values, explain(pipeline, X).sum_by("input").values)
    pd.testing.assert_frame_equal(grouped.data, X[["a_b", "weight"]])


def test_made_up_names_are_not_those_of_a_frame() -> None:
    """The model was trained on an array, and explains a frame with misleading names."""
    numbers = X[["weight", "weight"]].to_numpy() * [1, -2]
    pipeline = make_pipeline(StandardScaler(), RandomForestRegressor(5, max_features=1)).fit(numbers, Y)
    with pytest.warns(UserWarning, match="fitted without feature names"):
        grouped = explain(pipeline, pd.DataFrame(numbers, columns=["x1", "x0"])).sum_by("input")
    np.testing.assert_array_equal(grouped.data, numbers)
    np.testing.assert_array_equal(grouped.values, explain(pipeline, numbers).values)


@pytest.mark.skipif(
    parse_version(sklearn.__version__) >= parse_version("1.9"), reason="scikit-learn refuses such frames"
)
def test_columns_of_the_same_name_are_kept_apart() -> None:
    numbers = X[["weight", "weight"]] * [1, -2]
    pipeline = make_pipeline(FunctionTransformer(np.exp), StandardScaler(), forest(5, None)).fit(numbers, Y)
    grouped = explain(pipeline, numbers).sum_by("input")
    assert grouped.feature_names == ("weight [0]", "weight [1]")
    np.testing.assert_array_equal(grouped.values, explain(pipeline, numbers).values)
    np.testing.assert_array_equal(grouped.data, numbers)


def test_arrays_and_other_frames() -> None:
    numbers = X[NUMBERS].to_numpy()
    imputer = SimpleImputer(add_indicator=True)
    pipeline = make_pipeline(imputer, forest(5, None)).fit(numbers, Y)
    grouped = explain(pipeline, numbers).sum_by("input")
    assert grouped.feature_names == ("x0", "x1")
    np.testing.assert_array_equal(grouped.data, numbers)
    np.testing.assert_array_equal(explain(pipeline, numbers.tolist()).sum_by("input").data, numbers)
    pl = pytest.importorskip("polars")
    table = pl.DataFrame({name: X[name].to_numpy() for name in NUMBERS})
    pipeline = make_pipeline(imputer, forest(5, None)).fit(table, Y)
    grouped = explain(pipeline, table).sum_by("input")
    assert grouped.data.columns == NUMBERS
    assert grouped.feature_names == tuple(getattr(pipeline[0], "feature_names_in_", ["x0", "x1"]))


# Explanations


def test_selections_and_copies_keep_the_origins() -> None:
    explanation = explain(make_pipeline(mixed(), forest(5, None)).fit(X, Y), X)
    grouped = explanation.sum_by("input")
    rows = [5, 3, 8]
    np.testing.assert_array_equal(explanation[rows].sum_by("input").values, grouped.values[rows])
    pd.testing.assert_frame_equal(explanation[rows].sum_by("input").data, grouped.data.iloc[rows])
    pd.testing.assert_frame_equal(explanation[2:4].sum_by("input").data, grouped.data.iloc[2:4])
    mask = np.arange(N_ROWS) % 2 == 0
    np.testing.assert_array_equal(explanation[mask].sum_by("input").values, grouped.values[mask])
    of_a = explanation[:, [name for name in explanation.feature_names if name.startswith("categories__a_")]]
    assert set(of_a.sum_by("input").feature_names) == {"a", "a_b"}
    other = pickle.loads(pickle.dumps(explanation))
    np.testing.assert_array_equal(other.sum_by("input").values, grouped.values)
    classes = explain(make_pipeline(mixed(), RandomForestClassifier(3)).fit(X, CLASSES), X)
    np.testing.assert_array_equal(
        classes[:, :, 1].sum_by("input").values, classes.sum_by("input").values[..., 1]
    )


def test_groups_of_groups() -> None:
    explanation = explain(make_pipeline(mixed(), forest(5, None)).fit(X, Y), X)
    words = [name for name in explanation.feature_names if name.startswith("words__")]
    within = explanation.sum_by({"any word": words})
    assert within.sum_by("input").feature_names == explanation.sum_by("input").feature_names
    across = explanation.sum_by({"any": [words[0], "numbers__weight"]})
    with pytest.raises(ValueError, match="grouped across input columns"):
        across.sum_by("input")
    numbers = explanation.sum_by("input").sum_by({"numbers": NUMBERS})
    assert numbers.feature_names == ("text", "numbers", "a_b", "a")
    again = explanation.sum_by("input").sum_by("input")
    np.testing.assert_array_equal(again.values, explanation.sum_by("input").values)


def test_a_model_without_steps_has_its_own_columns() -> None:
    explanation = explain(forest(5, None).fit(X[["weight"]], Y), X[["weight"]])
    assert explanation.sum_by("input") is explanation
    with pytest.raises(ValueError, match="mapping must be 'input' or"):
        explanation.sum_by("output")


def test_transformers_in_and_around_pipelines() -> None:
    inside = ShapTransformer(make_pipeline(mixed(), forest(5, None))).fit(X, Y)
    around = make_pipeline(mixed(), ShapTransformer(forest(5, None))).fit(X, Y)
    expected = explain(inside.estimator_, X).sum_by("input")
    for explanation in (inside.explain(X), explain(around, X), explain(inside, X)):
        np.testing.assert_array_equal(explanation.sum_by("input").values, expected.values)
        assert explanation.sum_by("input").feature_names == expected.feature_names


# Columns without an origin


class Nameless(TransformerMixin, BaseEstimator):
    """Minimal transformer, as users write them."""

    def fit(self, X: Any, y: Any = None) -> Any:
        return self

    def transform(self, X: Any) -> Any:
        return np.asarray(X)[:, ::-1]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([SimpleImputer(), PCA(2)], "PCA mixes columns"),
        ([SimpleImputer(), PolynomialFeatures(2)], "PolynomialFeatures mixes columns"),
        (
            [make_column_transformer((make_pipeline(SimpleImputer(), PCA(1)), NUMBERS))],
            "in 'pipeline' of a ColumnTransformer, PCA mixes columns",
        ),
        (
            [SimpleImputer(), FeatureUnion([("parts", PCA(1)), ("all", StandardScaler())])],
            "in 'parts' of a FeatureUnion, PCA mixes columns",
        ),
        (
            [SimpleImputer(), FunctionTransformer(np.fliplr)],
            "FunctionTransformer is not known to make each",
        ),
        (
            [
                SimpleImputer(),
                FunctionTransformer(np.fliplr, feature_names_out=lambda self, names: ["p", "q"]),
            ],
            "FunctionTransformer is not known to make each",
        ),
        ([Nameless()], "Nameless does not say how many columns X has"),
        ([SimpleImputer(), Nameless()], "Nameless is not known to make each"),
    ],
)
def test_steps_without_origins_are_named(steps: list[Any], message: str) -> None:
    pipeline = make_pipeline(*steps, forest(5, None)).fit(X[NUMBERS], Y)
    explanation = explain(pipeline, X[NUMBERS])
    for part in (explanation, explanation[:5], explanation.sum_by({"both": explanation.feature_names[:2]})):
        with pytest.raises(ValueError, match=message) as caught:
            part.sum_by("input")
        assert "mapping of names" in str(caught.value)


def test_texts_are_no_columns() -> None:
    pipeline = make_pipeline(CountVectorizer(), forest(5, None)).fit(X["text"], Y)
    explanation = explain(pipeline, X["text"])
    assert explanation.shape == (N_ROWS, 4)
    with pytest.raises(ValueError, match="CountVectorizer does not say how many columns X has"):
        explanation.sum_by("input")


# Names of the columns that the model sees


def test_a_step_without_names() -> None:
    first = make_pipeline(StandardScaler(), Nameless(), forest(5, None)).fit(
        X[["weight", "weight"]].to_numpy(), Y
    )
    assert explain(first, X[["weight", "weight"]].to_numpy()).feature_names == ("x0", "x1")
    hidden = make_column_transformer((FunctionTransformer(np.abs), ["weight"]), (OneHotEncoder(), ["a"]))
    pipeline = make_pipeline(hidden, forest(5, None)).fit(X, Y)
    assert explain(pipeline, X).feature_names == ("x0", "x1", "x2", "x3")
    # Names with which a later step was fitted, or which it makes, are present again.
    unnamed = FunctionTransformer(lambda data: data)
    pipeline = make_pipeline(unnamed, OneHotEncoder(), forest(5, None)).fit(X[["a"]], Y)
    assert explain(pipeline, X[["a"]]).feature_names == ("a_b_c", "a_c", "a_d")


@pytest.mark.parametrize("names", ["argument", "error", "number"])
def test_a_step_whose_names_fail(names: str) -> None:
    """Predictions need no names, so a step that cannot return names used to fail only in explanations."""

    class Named(Nameless):
        def get_feature_names_out(self, *given: Any) -> Any:
            if names == "argument":
                raise TypeError("get_feature_names_out() takes 1 positional argument but 2 were given")
            if names == "error":
                raise KeyError("names")
            return ["only"]

    rows = X[["weight", "weight"]].to_numpy()
    pipeline = make_pipeline(StandardScaler(), Named(), forest(5, None)).fit(rows, Y)
    explanation = explain(pipeline, rows)
    assert explanation.feature_names == ("x0", "x1")
    margins = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(margins, pipeline.predict(rows), atol=1e-5)
    assert ShapTransformer(pipeline).fit(rows, Y).get_feature_names_out().tolist() == ["x0", "x1"]
    assert cross_val_explain(pipeline, rows, Y, cv=2)["explanation"].feature_names == ("x0", "x1")


def test_names_that_two_columns_share() -> None:
    pipeline = make_pipeline(OneHotEncoder(), forest(5, None)).fit(X[TEXTS], Y)
    assert list(pipeline[0].get_feature_names_out()).count("a_b_c") == 2
    names = explain(pipeline, X[TEXTS]).feature_names
    assert names[0] == "a_b_c [0]" and "a_b_c [3]" in names and len(set(names)) == 7
    transformer = ShapTransformer(pipeline).set_output(transform="pandas")
    assert tuple(transformer.fit_transform(X[TEXTS], Y).columns) == names


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix, sp.coo_array])
def test_sparse_rows_are_kept(make: Any) -> None:
    numbers = make(X[["weight", "weight"]].to_numpy())
    pipeline = make_pipeline(VarianceThreshold(), StandardScaler(with_mean=False), forest(5, None)).fit(
        numbers, Y
    )
    explanation = explain(pipeline, numbers)
    for grouped, rows in (
        (explanation.sum_by("input"), slice(None)),
        (explanation[3:5].sum_by("input"), [3, 4]),
    ):
        assert grouped.feature_names == ("x0", "x1")
        np.testing.assert_array_equal(grouped.data.toarray(), numbers.toarray()[rows])
