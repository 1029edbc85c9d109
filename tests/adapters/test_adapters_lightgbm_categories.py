"""The LightGBM adapter: categorical columns and data frames."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from helpers.checks import assert_margin
from helpers.lightgbm_models import (
    CATEGORICAL,
    MISSING,
    N_ROWS,
    QUIET,
    RTOL,
    categorical_data,
    check,
    data,
    train,
)

from skshapgpu._rows.inputs import read
from skshapgpu.adapters import adapt
from skshapgpu.adapters.schema import AdaptedModel
from skshapgpu.errors import UnsupportedModelError

lgb = pytest.importorskip("lightgbm")

pytestmark = pytest.mark.filterwarnings("ignore:::lightgbm")


# Categories ------------------------------------------------------------------------------------------


ODD_CODES = [
    np.nan,
    -1.0,
    -0.5,
    -1e-36,
    1e-36,
    0.5,
    2.9,
    31.0,
    32.0,
    1e10,
    -1e10,
    2.0**31,
    2.0**32,
    2.0**32 + 1.0,
    -(2.0**32) + 1.0,
    np.inf,
    -np.inf,
    1e300,
]


@pytest.mark.parametrize(
    ("n_codes", "name", "nan"),
    [
        (3, "default", False),
        (1500, "default", True),
        *((40, name, nan) for name in MISSING for nan in (False, True)),
    ],
)
def test_categorical_codes(n_codes, name, nan):
    X, y = categorical_data(n_codes, nan=nan, n_rows=4 * n_codes if n_codes > 1000 else N_ROWS)
    model = train(X, y, 4, categorical=[1], objective="regression", **CATEGORICAL, **MISSING[name])
    ensemble = check(model).ensemble
    assert 0 in ensemble.category_values
    assert ensemble.category_values.max() >= min(n_codes - 1, 1000)
    assert ensemble.category_listed_left.all()
    odd = np.column_stack([np.zeros(len(ODD_CODES)), ODD_CODES])
    assert_margin(ensemble, odd, model.predict(odd), RTOL)
    every = np.column_stack([np.zeros(n_codes), np.arange(n_codes)])
    assert_margin(ensemble, every + np.array([0.0, 0.25]), model.predict(every), RTOL)


def test_categorical_one_hot_and_negative_codes_in_training():
    X, y = categorical_data(5)
    X[X[:, 1] == 4, 1] = -3.0
    model = train(
        X, y, 6, categorical=[1], objective="regression", **CATEGORICAL | {"max_cat_to_onehot": 100}
    )
    ensemble = check(model).ensemble
    assert (np.diff(ensemble.category_offsets) == 1).any()


def test_categorical_multiclass_with_zeros_missing_elsewhere():
    X, y = categorical_data(40)
    X[::3, 0] = 0.0
    model = train(
        X,
        np.digitize(y, [0.0, 1.0]),
        4,
        categorical=[1],
        objective="multiclass",
        num_class=3,
        zero_as_missing=True,
        **CATEGORICAL,
    )
    ensemble = check(model).ensemble
    assert ensemble.zero_missing.tolist() == [True, False]


def test_feature_that_is_categorical_in_a_part_of_the_trees():
    X, y = categorical_data(10)
    first = train(X, y, 2, categorical=[1], objective="regression", **CATEGORICAL)
    model = lgb.train(QUIET | {"objective": "regression"}, lgb.Dataset(X, y), 2, init_model=first)
    ensemble = adapt(model).ensemble
    of_feature = (ensemble.feature == 1) & (ensemble.left >= 0)
    assert len(np.unique(ensemble.category_set[of_feature] >= 0)) == 2
    X = np.column_stack([np.zeros(len(ODD_CODES)), ODD_CODES])
    assert_margin(ensemble, X, model.predict(X), RTOL)


@pytest.mark.parametrize("listed", [0, 5])
def test_codes_of_a_feature_whose_zeros_are_missing_in_other_trees(listed):
    """A zero cannot be the listed code 0 in one node and a missing value in another."""
    X, _ = categorical_data(10)
    y = (X[:, 1] == listed) + 0.01 * X[:, 1]
    first = train(
        X,
        y,
        1,
        categorical=[1],
        objective="regression",
        num_leaves=2,
        **CATEGORICAL | {"max_cat_to_onehot": 100},
    )
    assert adapt(first).ensemble.category_values.tolist() == [listed]
    zero_as_missing = {"zero_as_missing": True}
    model = lgb.train(
        QUIET | zero_as_missing | {"objective": "regression"},
        lgb.Dataset(X, y, params=zero_as_missing),
        2,
        init_model=first,
    )
    if listed == 0:
        with pytest.raises(UnsupportedModelError, match="zeros of feature 1"):
            adapt(model)
    else:
        ensemble = adapt(model).ensemble
        assert ensemble.zero_missing.tolist()[1]
        rows = np.column_stack([np.zeros(len(ODD_CODES)), ODD_CODES])
        assert_margin(ensemble, rows, model.predict(rows), RTOL)


# Data frames -----------------------------------------------------------------------------------------


def encoded(adapted: AdaptedModel, X) -> np.ndarray:
    """Return X as the trees compare it."""
    return read(X, adapted.schema, adapted.ensemble.x_dtype).chunk(0, len(X))


def frame_data(kind: str, *, ordered: bool = False):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(7)
    labels = {
        "text": ["b", "a", "d", "c"],
        "int": [10, 7, 0, -3],
        "float": [0.5, -1.0, 2.25, 7.0],
        "bool": [True, False],
    }[kind]
    code = rng.integers(len(labels), size=N_ROWS)
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=N_ROWS),
            "kind": pd.Categorical([labels[c] for c in code], categories=labels, ordered=ordered),
            "size of it": rng.normal(size=N_ROWS),
            "other": pd.Categorical(rng.choice(["x", "y", "z"], N_ROWS), categories=["z", "x", "y"]),
        }
    )
    y = np.array([4.0, -1.0, 2.0, 0.0])[code] + frame["number"] * (frame["other"] == "x")
    return frame, y


@pytest.mark.parametrize("kind", ["text", "int", "float", "bool"])
def test_pandas_categories(kind):
    pd = pytest.importorskip("pandas")
    frame, y = frame_data(kind)
    model = train(frame, y, objective="regression", **CATEGORICAL)
    adapted = adapt(model)
    assert adapted.schema.n_categorical == 2
    assert adapted.schema.feature_names == ("number", "kind", "size_of_it", "other")
    assert_margin(adapted.ensemble, encoded(adapted, frame), model.predict(frame), RTOL)

    other = frame.copy()
    reordered = list(frame["kind"].cat.categories)[::-1]
    other["kind"] = frame["kind"].cat.set_categories(reordered[1:])  # the last one becomes missing
    other["other"] = pd.Categorical(["new", "y", None] * (N_ROWS // 3), categories=["y", "new", "unused"])
    X = encoded(adapted, other)
    assert np.isnan(X).any(axis=0).tolist() == [False, True, False, True]
    assert_margin(adapted.ensemble, X, model.predict(other), RTOL)
    assert np.abs(model.predict(other) - model.predict(frame)).max() > 0.5

    again = pickle.loads(pickle.dumps(adapted))
    np.testing.assert_array_equal(encoded(again, other), X)


def test_pandas_categories_as_codes():
    """An array already holds codes."""
    frame, y = frame_data("text")
    model = train(frame, y, objective="regression", **CATEGORICAL)
    codes = frame.assign(kind=frame["kind"].cat.codes, other=frame["other"].cat.codes).to_numpy(np.float64)
    adapted = check(model)
    assert_margin(adapted.ensemble, encoded(adapted, codes), model.predict(codes), RTOL)
    np.testing.assert_array_equal(encoded(adapted, codes), encoded(adapted, frame))


def test_frames_must_have_the_categorical_columns_of_training():
    frame, y = frame_data("text")
    model = train(frame, y, objective="regression", **CATEGORICAL)
    plain = frame.assign(kind=frame["kind"].cat.codes)
    for X in (plain, plain.assign(other=frame["other"].cat.codes)):
        with pytest.raises(ValueError):
            model.predict(X)
        with pytest.raises(ValueError, match="trained with 2"):
            encoded(adapt(model), X)
    numbers = train(plain[["number", "kind"]], y, objective="regression", **CATEGORICAL)
    with pytest.raises(ValueError, match="trained with 0"):
        encoded(adapt(numbers), frame[["number", "kind"]])


def test_trained_on_an_array_explained_on_a_frame():
    """Without a list of categories, LightGBM uses the codes of the frame's own categories."""
    pd = pytest.importorskip("pandas")
    X, y = categorical_data(9)
    model = train(X, y, categorical=[1], objective="regression", **CATEGORICAL)
    labels = [5, 3, 8, 1, 0, 2, 7, 6, 4]
    frame = pd.DataFrame(
        {"a": X[:, 0], "b": pd.Categorical([labels[int(c)] for c in X[:, 1]], categories=labels)}
    )
    adapted = adapt(model)
    assert_margin(adapted.ensemble, encoded(adapted, frame), model.predict(frame), RTOL)
    np.testing.assert_array_equal(model.predict(frame), model.predict(X))


def test_integer_arrays_are_rounded_to_float32():
    """LightGBM itself rounds arrays, but not frames."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    X = 2**26 + rng.integers(0, 40, (N_ROWS, 2))
    y = (X[:, 0] % 8 + X[:, 1] % 4).astype(float)
    model = train(X.astype(float), y, objective="regression")
    adapted = adapt(model)
    for table in (X, X.astype(float), pd.DataFrame(X)):
        assert_margin(adapted.ensemble, encoded(adapted, table), model.predict(table), RTOL)
    assert np.abs(model.predict(X) - model.predict(X.astype(float))).max() > 0.1


def test_pandas_categories_among_columns_that_are_none():
    """The text of a model has the order of the categorical columns, but not their positions."""
    pd = pytest.importorskip("pandas")
    frame, y = frame_data("text")
    frame["constant"] = pd.Categorical(["k"] * N_ROWS)
    frame["count"] = np.arange(N_ROWS) % 50
    model = train(frame, y, objective="regression", **CATEGORICAL)
    adapted = adapt(model)
    assert_margin(adapted.ensemble, encoded(adapted, frame), model.predict(frame), RTOL)


def test_pandas_categories_beside_a_count():
    """A column of small integers could have a list of categories, but all lists belong to other columns."""
    frame, y = frame_data("text")
    frame.insert(1, "count", np.arange(N_ROWS) % 3)
    model = train(frame, y, objective="regression", **CATEGORICAL)
    adapted = adapt(model)
    assert_margin(adapted.ensemble, encoded(adapted, frame), model.predict(frame), RTOL)


def test_ordered_pandas_category_is_a_number():
    frame, y = frame_data("text", ordered=True)
    frame.loc[frame.index % 5 == 0, "kind"] = None
    y[frame.index % 5 == 0] = 20.0
    model = train(frame, y, objective="regression", **CATEGORICAL)
    adapted = adapt(model)
    assert (
        not len(adapted.ensemble.category_set)
        or (adapted.ensemble.category_set[adapted.ensemble.feature == 1] == -1).all()
    )
    X = encoded(adapted, frame)
    assert_margin(adapted.ensemble, X, model.predict(frame), RTOL)
    frame["kind"] = frame["kind"].cat.set_categories(["c", "b", "a"]).cat.rename_categories({"b": "unseen"})
    assert_margin(adapted.ensemble, encoded(adapted, frame), model.predict(frame), RTOL)


def test_ordered_pandas_category_beside_a_count():
    """An ordered category and a small count look alike in the text of a model."""
    frame, y = frame_data("text", ordered=True)
    frame["count"] = np.arange(N_ROWS) % 4
    frame = frame[["number", "count", "kind", "other"]]
    model = train(frame, y, objective="regression", **CATEGORICAL)
    adapted = adapt(model)
    assert_margin(adapted.ensemble, encoded(adapted, frame), model.predict(frame), RTOL)


def test_explicit_categorical_columns_beside_pandas_categories():
    frame, y = frame_data("text")
    frame["code"] = np.arange(N_ROWS) % 9
    model = train(frame, y, categorical=["kind", "other", "code"], objective="regression", **CATEGORICAL)
    adapted = adapt(model)
    assert_margin(adapted.ensemble, encoded(adapted, frame), model.predict(frame), RTOL)


def test_feature_names():
    X, y = data()
    assert adapt(train(X, y, 1, objective="regression")).schema.feature_names is None
    named = lgb.train(QUIET, lgb.Dataset(X, y, feature_name=list("dcba")), 1)
    assert adapt(named).schema.feature_names == ("d", "c", "b", "a")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["Ünicode", "Tree=0", "a b", "end"])
    model = lgb.LGBMRegressor(n_estimators=3, verbose=-1, n_jobs=1).fit(frame, y)
    adapted = adapt(model)
    # LightGBM writes underscores for blanks.
    assert adapted.schema.feature_names == ("Ünicode", "Tree=0", "a_b", "end")
    assert_margin(adapted.ensemble, X, model.predict(frame), RTOL)
