"""CatBoost: one-hot categories of all types."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from helpers.catboost_models import CATEGORIES, RTOL, TINY, category_model, data, encoded, raw
from helpers.checks import assert_margin, hard_rows

from skshapgpu import explain
from skshapgpu.adapters import adapt
from skshapgpu.adapters.schema import Column

catboost = pytest.importorskip("catboost")


@pytest.mark.parametrize("grow_policy", ["SymmetricTree", "Depthwise", "Lossguide"])
def test_one_hot(grow_policy):
    pd = pytest.importorskip("pandas")
    model, _ = category_model(grow_policy=grow_policy, iterations=5)
    adapted = adapt(model)
    assert set(adapted.schema.encoders) == {0, 2}
    assert set(adapted.ensemble.feature[np.flatnonzero(adapted.ensemble.category_set >= 0)]) == {0, 2}
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "text": rng.choice(np.array([*CATEGORIES, "blue", "Red", "2"], object), 2000),
            "x": hard_rows(adapted.ensemble)[:, 1],
            "number": rng.integers(-2, 8, 2000),
        }
    )
    codes = encoded(adapted, frame)
    assert (codes[:, 0] == -1).any() and (codes[:, 2] == -1).any()
    assert_margin(adapted.ensemble, codes, raw(model, frame), RTOL)


def test_one_hot_of_several_outputs():
    pytest.importorskip("pandas")
    _, frame = category_model(iterations=1)
    labels = (frame["text"] == "red").to_numpy(int) + (frame["number"] > 2)
    options = TINY | {"one_hot_max_size": 20}
    model = catboost.CatBoostClassifier(cat_features=[0, 2], **options).fit(frame, labels)
    adapted = adapt(model)
    assert_margin(adapted.ensemble, encoded(adapted, frame), raw(model, frame), RTOL)


ACCEPTED = [
    1,
    -7,
    0,
    True,
    False,
    np.int8(-7),
    np.uint64(1),
    np.bool_(True),
    "red",
    np.str_("green"),
    b"red",
    "é".encode(),
    "é",
    "",
    "1",
    "01",
    " 1",
    "True",
    "nan",
    "x" * 40,
    -(1 << 63),
]


@pytest.mark.parametrize("value", ACCEPTED, ids=repr)
def test_category_is_read_as_catboost_reads_it(value):
    model, _ = category_model()
    row = np.empty((1, 3), object)
    row[0] = [value, 0.25, 3]
    adapted = adapt(model)
    codes = [adapted.schema.encoders[i].encode(Column(str(i), row[:, i])) for i in (0, 2)]
    X = np.column_stack([codes[0], [0.25], codes[1]])
    assert_margin(adapted.ensemble, X, raw(model, row), RTOL)


def test_accepted_categories_are_told_apart():
    """The model distinguishes the categories, or else the comparisons above would prove nothing."""
    model, _ = category_model()
    rows = np.array([[c, 0.25, 3] for c in [*CATEGORIES, "unseen"]], object)
    assert len(set(raw(model, rows))) == len(rows)


@pytest.mark.parametrize(
    "value",
    [1.0, 1.5, np.float32(2), math.nan, math.inf, None, 1j, (1,), [1], 1 << 70, np.datetime64("2020-01-01")],
    ids=repr,
)
def test_category_that_catboost_refuses(value):
    model, _ = category_model(iterations=1)
    rows = np.empty((3, 3), object)
    rows[:] = [[1, 0.25, 3]]
    rows[2, 0] = value
    with pytest.raises((catboost.CatBoostError, TypeError, OverflowError)):
        model.predict(rows)
    with pytest.raises(ValueError, match="column 'text'"):
        adapt(model).schema.encoders[0].encode(Column("text", rows[:, 0]))


@pytest.mark.parametrize("dtype", ["int64", "int8", "bool", "category", "string", "Int64", "boolean"])
def test_category_column_of_a_frame(dtype):
    pd = pytest.importorskip("pandas")
    model, frame = category_model()
    frame = frame.head(50).assign(text=pd.Series([0, 1] * 25).astype(dtype))
    adapted = adapt(model)
    assert_margin(adapted.ensemble, encoded(adapted, frame), raw(model, frame), RTOL)


@pytest.mark.parametrize("dtype", ["bool", "boolean", "bool[pyarrow]"])
def test_bools_of_any_frame_are_categories(dtype):
    """CatBoost reads booleans as the strings 0 and 1, not as the floats 0.0 and 1.0."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    model, frame = category_model()
    frame = frame.head(50).assign(text=pd.Series([False, True] * 25).astype(dtype))
    explanation = explain(model, frame)
    np.testing.assert_allclose(
        explanation.values.sum(axis=1) + explanation.base_values, raw(model, frame), rtol=1e-5
    )


@pytest.mark.parametrize("X", [[[1, 2, 3], [0, 1, 0]], [[True, False, True]], [["1", "0", "3"]]], ids=str)
def test_category_column_of_an_array(X):
    model, _ = category_model()
    X = np.array(X)
    adapted = adapt(model)
    codes = [adapted.schema.encoders[i].encode(Column(str(i), X[:, i])) for i in (0, 2)]
    assert_margin(
        adapted.ensemble, np.column_stack([codes[0], X[:, 1].astype(float), codes[1]]), raw(model, X), RTOL
    )


def test_array_of_floats_is_refused():
    model, _ = category_model(iterations=1)
    X = np.array([[1.0, 2.0, 3.0]])
    with pytest.raises(catboost.CatBoostError):
        model.predict(X)
    with pytest.raises(ValueError, match=r"'number'.*holds 3\.0"):
        adapt(model).schema.encoders[2].encode(Column("number", X[:, 2]))


def test_unused_category_column_is_still_read():
    pd = pytest.importorskip("pandas")
    X, y = data()
    frame = pd.DataFrame(X, columns=list("abcde")).assign(constant="k")
    adapted = adapt(catboost.CatBoostRegressor(cat_features=["constant"], **TINY).fit(frame, y))
    encoder = adapted.schema.encoders[5]
    np.testing.assert_array_equal(encoder.encode(Column("constant", np.array(["k", 3], object))), [-1, -1])
    with pytest.raises(ValueError, match="'constant'"):
        encoder.encode(Column("constant", np.array(["k", None], object)))
    assert len(encoder.encode(Column("constant", np.empty(0, object)))) == 0


def test_hashes_of_every_length(tmp_path):
    """The length of a string selects the branch of CityHash64; CatBoost's export has the expected hashes."""
    from skshapgpu.adapters.catboost.cityhash import cityhash64

    rng = np.random.default_rng(0)
    letters = list("abcXYZ 0189_-é漢😀ß")
    texts = list(
        dict.fromkeys(
            ["x" * n for n in range(101)]
            + ["".join(rng.choice(letters, n)) for n in range(101)]
            + ["\xff" * n for n in range(1, 70)]
            + ["y" * n for n in (127, 128, 129, 191, 192, 193, 1000)]
        )
    )
    y = rng.normal(size=2 * len(texts))
    pool = catboost.Pool(np.array(texts * 2, object)[:, None], y, cat_features=[0])
    options = TINY | {"iterations": 1, "depth": 1, "one_hot_max_size": 1000}
    model = catboost.CatBoostRegressor(**options).fit(pool)
    path = tmp_path / "model.json"
    model.save_model(str(path), format="json", pool=pool)
    entries = json.loads(path.read_text(encoding="utf-8"))["features_info"]["cat_features_hash"]
    expected = {entry["value"]: entry["hash"] & 0xFFFFFFFF for entry in entries}
    assert set(expected) == set(texts)
    assert {text: cityhash64(text.encode()) & 0xFFFFFFFF for text in texts} == expected
