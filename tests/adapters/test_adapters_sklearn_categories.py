"""The scikit-learn adapter: categories of HistGradientBoosting, in frames and in arrays."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from helpers.checks import assert_margin, hard_rows
from helpers.sklearn_models import RTOL, own_margin
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from skshapgpu import TreeExplainer
from skshapgpu.adapters import adapt
from skshapgpu.adapters.schema import AdaptedModel, Column


def encoded(adapted: AdaptedModel, columns: list[tuple[str, np.ndarray]]) -> np.ndarray:
    """Encode categorical columns through the schema, and read the others as numbers."""
    X = np.empty((len(columns[0][1]), len(columns)))
    for i, (name, values) in enumerate(columns):
        encoder = adapted.schema.encoders.get(i)
        X[:, i] = np.asarray(values, np.float64) if encoder is None else encoder.encode(Column(name, values))
    return X


def category_data(n_rows: int = 400, seed: int = 0):
    """Draw the columns number, word, number, code; words and codes, some missing, determine the target."""
    rng = np.random.default_rng(seed)
    words = np.array([f"w{i}" for i in range(40)], object)
    word, code = rng.integers(0, 40, n_rows), rng.choice([-5, 3, 7, 300, 1000], n_rows)
    effect = rng.normal(size=40)
    first, second = rng.normal(size=(2, n_rows))
    signal = 2 * effect[word] + (code == 7) * 3 - (code == 300) * 2 + first + rng.normal(size=n_rows) * 0.2
    word_column, code_column = words[word], code.astype(float)
    word_column[rng.random(n_rows) < 0.1] = None
    code_column[rng.random(n_rows) < 0.1] = np.nan
    second[rng.random(n_rows) < 0.2] = np.nan
    return [first, word_column, second, code_column], signal


def decoded(adapted: AdaptedModel, X: np.ndarray, unseen: bool = True) -> list[np.ndarray]:
    """Return columns whose encoding is X; where X has NaN, they have categories unseen in training."""
    columns = []
    for i in range(X.shape[1]):
        if i not in adapted.schema.encoders:
            columns.append(X[:, i])
            continue
        categories = adapted.schema.encoders[i].categories
        values = np.full(len(X), np.nan, object if categories.dtype == object else np.float64)
        is_known = ~np.isnan(X[:, i])
        values[is_known] = categories[X[is_known, i].astype(int)]
        missing = np.flatnonzero(~is_known)
        if unseen:
            values[missing[::2]] = "never seen" if categories.dtype == object else -77
        columns.append(values)
    return columns


CATEGORY_HIST = dict(max_iter=3, max_leaf_nodes=15, min_samples_leaf=5, random_state=0)
NAMES = ["first", "word", "second", "code"]


@pytest.mark.parametrize(
    "how, target",
    [
        ("names", "number"),
        ("mask", "binary"),
        ("dtype", "three"),
        ("dtype", "number"),
    ],
)
def test_hist_categories_in_a_frame(how, target):
    pd = pytest.importorskip("pandas")
    columns, signal = category_data()
    frame = pd.DataFrame(dict(zip(NAMES, columns, strict=True)))
    if how == "dtype":
        frame = frame.astype({"word": "category", "code": "category"})
    y = {"number": signal, "binary": signal > 0, "three": np.digitize(signal, [-1, 1])}[target]
    features = {"names": ["code", "word"], "mask": [False, True, False, True], "dtype": "from_dtype"}[how]
    cls = HistGradientBoostingRegressor if target == "number" else HistGradientBoostingClassifier
    model = cls(categorical_features=features, **CATEGORY_HIST).fit(frame, y)
    adapted = adapt(model)
    e = adapted.ensemble
    assert adapted.schema.feature_names == tuple(NAMES)
    assert set(adapted.schema.encoders) == {1, 3}
    assert set(e.feature[e.category_set >= 0]) == {1, 3}
    assert np.isin(e.feature[(e.category_set < 0) & (e.left >= 0)], [0, 2]).all()
    X = hard_rows(e, unseen=False)
    rows = decoded(adapted, X)
    asked = pd.DataFrame(dict(zip(NAMES, rows, strict=True)))
    if how == "dtype":
        # The frame's own codes mean nothing, as its categories are in another order.
        for name in ("word", "code"):
            order = asked[name].dropna().unique()[::-1]
            asked[name] = pd.Categorical(asked[name], categories=order)
    expected = own_margin(model, asked)
    np.testing.assert_array_equal(encoded(adapted, list(zip(NAMES, rows, strict=True))), X)
    assert_margin(e, X, expected, RTOL)
    # If codes were compared as numbers, the values would be these: they must differ, or the test proves
    # nothing.
    numeric = copy.copy(e)
    object.__setattr__(numeric, "category_set", np.empty(0, np.int32))
    assert np.abs(numeric.margin(X) - expected.reshape(len(X), -1)).max() > 0.1


def test_hist_categories_in_an_array():
    columns, signal = category_data()
    shop = np.random.default_rng(1).choice([10.0, 20.0, 40.0], len(signal))
    signal = signal + 3 * (shop == 20)
    X = np.column_stack([columns[0], columns[3], columns[2], shop])
    model = HistGradientBoostingRegressor(categorical_features=[3, 1], **CATEGORY_HIST).fit(X, signal)
    adapted = adapt(model)
    np.testing.assert_array_equal(adapted.schema.encoders[1].categories[:5], [-5, 3, 7, 300, 1000])
    np.testing.assert_array_equal(adapted.schema.encoders[3].categories, [10, 20, 40])
    codes = hard_rows(adapted.ensemble, unseen=False)
    rows = decoded(adapted, codes)
    names = ["a", "b", "c", "d"]
    np.testing.assert_array_equal(encoded(adapted, list(zip(names, rows, strict=True))), codes)
    assert_margin(adapted.ensemble, codes, own_margin(model, np.column_stack(rows)), RTOL)


def test_hist_strings_in_an_object_array():
    columns, signal = category_data()
    X = np.empty((len(signal), 4), object)
    for i, values in enumerate(columns):
        X[:, i] = values
    model = HistGradientBoostingRegressor(categorical_features=[1], **CATEGORY_HIST)
    X[[v is None for v in X[:, 1]], 1] = np.nan
    adapted = adapt(model.fit(X, signal))
    codes = hard_rows(adapted.ensemble, unseen=False)
    rows = np.empty((len(codes), 4), object)
    for i, values in enumerate(decoded(adapted, codes)):
        rows[:, i] = values
    assert_margin(adapted.ensemble, codes, own_margin(model, rows), RTOL)


def test_hist_categories_in_polars():
    pl = pytest.importorskip("polars")
    columns, signal = category_data()
    frame = pl.DataFrame({"first": columns[0], "word": list(columns[1]), "second": columns[2]})
    frame = frame.with_columns(pl.col("word").cast(pl.Categorical))
    model = HistGradientBoostingRegressor(categorical_features=["word"], **CATEGORY_HIST).fit(frame, signal)
    adapted = adapt(model)
    table = frame.head(200)
    values = np.array(table["word"].to_list(), object)
    X = encoded(adapted, [("first", columns[0][:200]), ("word", values), ("second", columns[2][:200])])
    assert_margin(adapted.ensemble, X, own_margin(model, table), RTOL)


def test_hist_with_256_codes_uses_every_word_of_the_bitset():
    rng = np.random.default_rng(0)
    code = np.tile(np.arange(255.0), 12)
    effect = rng.normal(size=255)
    X = np.column_stack([rng.normal(size=len(code)), code])
    model = HistGradientBoostingRegressor(
        categorical_features=[1], max_bins=255, min_samples_leaf=1, max_iter=5
    ).fit(X, effect[code.astype(int)])
    adapted = adapt(model)
    assert adapted.ensemble.category_values.max() > 223
    rows = np.column_stack([np.zeros(258), np.r_[np.arange(255.0), np.nan, 255.0, -1.0]])
    codes = encoded(adapted, [("x", rows[:, 0]), ("code", rows[:, 1])])
    assert_margin(adapted.ensemble, codes, own_margin(model, rows), RTOL)


def test_encoder_refuses_what_the_model_refuses():
    pd = pytest.importorskip("pandas")
    columns, signal = category_data()
    frame = pd.DataFrame(dict(zip(NAMES, columns, strict=True)))
    model = HistGradientBoostingRegressor(categorical_features=["word", "code"], **CATEGORY_HIST)
    model.fit(frame, signal)
    encoders = adapt(model).schema.encoders
    assert set(encoders) == {1, 3}
    with pytest.raises(ValueError, match=r"column 'code' contains infinity"):
        encoders[3].encode(Column("code", np.array([3.0, np.inf])))
    with pytest.raises(ValueError, match="infinity"):
        model.predict(frame.assign(code=np.inf))
    with pytest.raises(ValueError, match=r"column 'word' contains the number 2\.0.*such as 'w0'"):
        encoders[1].encode(Column("word", np.array([np.nan, 2.0])))
    with pytest.raises(TypeError):
        model.predict(frame.assign(word=2.0))
    assert np.isnan(encoders[1].encode(Column("word", np.array([np.nan, np.nan])))).all()
    mixed = np.array(["w1", 3, None, np.nan, "W1"], object)
    # pandas 2 keeps None in a column of strings; for the model, None is then the last of 41 categories.
    none = 40 if frame["word"].dtype == object else np.nan
    np.testing.assert_array_equal(
        encoders[1].encode(Column("word", mixed)), [1, np.nan, none, np.nan, np.nan]
    )
    integers = np.array([-5, 7, 8, 1001, -6])
    np.testing.assert_array_equal(encoders[3].encode(Column("code", integers)), [0, 2] + [np.nan] * 3)
    objects = np.array([7, 7.0, "7", None], object)
    np.testing.assert_array_equal(encoders[3].encode(Column("code", objects)), [2, 2, np.nan, np.nan])


def test_long_integers_without_missing_values_are_not_rounded() -> None:
    """2**53 + 1 is no category of the model, but would be one once rounded to float64."""
    rng = np.random.default_rng(0)
    number = rng.integers(0, 4, 200)
    y = np.where(number == 0, 50.0, number) + 0.01 * rng.normal(size=200)
    X = (2.0**53 + 2 * number)[:, None]
    model = HistGradientBoostingRegressor(max_iter=5, categorical_features=[0]).fit(X, y)
    rows = np.array([[2**53 + 1], [2**53], [2**53 + 2]], object)
    assert model.predict(rows)[0] != model.predict(rows)[1]
    explanation = TreeExplainer(model, precision="double").explain(rows)
    assert explanation.checked_against == "model"
    total = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(total, model.predict(rows), rtol=1e-12)
