"""The XGBoost adapter: categories, as codes and in frames."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.checks import assert_margin, hard_rows
from helpers.xgboost_models import RTOL, VERSION, category_data, check_input, keeps_categories, train

from skshapgpu._rows import inputs
from skshapgpu.adapters import adapt
from skshapgpu.adapters.schema import Column

xgb = pytest.importorskip("xgboost")


@pytest.mark.parametrize("max_cat_to_onehot", [1, 100])
def test_category_codes(max_cat_to_onehot):
    X, y = category_data()
    model = xgb.XGBRegressor(
        n_estimators=8,
        max_depth=4,
        enable_categorical=True,
        tree_method="hist",
        feature_types=["c", "c", "q"],
        max_cat_to_onehot=max_cat_to_onehot,
        n_jobs=1,
    )
    adapted = adapt(model.fit(X, y))
    ensemble = adapted.ensemble
    assert set(adapted.schema.encoders) == {0, 1}
    assert not ensemble.category_listed_left.any()
    listed = set(ensemble.category_values.tolist())
    assert max(listed) > 32 and (0 in listed or max_cat_to_onehot == 100)
    hard = hard_rows(ensemble, inf=False)
    assert_margin(ensemble, hard, model.predict(hard, output_margin=True), RTOL)
    odd = hard[:500].astype(np.float64)
    rng = np.random.default_rng(1)
    codes = [-0.5, -0.0, -1, -7.9, 0.9, 3.7, 3.9999999, 38.5, 40, 63.5, 64, 255, 2.0**24, 2.0**40, 1e30]
    odd[:, :2] = rng.choice(codes, (len(odd), 2))
    check_input(model, odd)
    check_input(model, sp.csr_matrix(odd))


def test_categories_of_every_output():
    X, y = category_data()
    types = {"feature_types": ["c", "c", "float"], "enable_categorical": True}
    booster = train(
        {"objective": "multi:softprob", "num_class": 3, "num_parallel_tree": 2, "gamma": 1.0},
        np.digitize(y, [-1, 2]),
        3,
        X=X,
        **types,
    )
    ensemble = adapt(booster).ensemble
    rows = hard_rows(ensemble, inf=False)
    matrix = xgb.DMatrix(rows, **types)
    assert_margin(ensemble, rows, booster.predict(matrix, output_margin=True), RTOL)


def frame_model(pd: Any, colours: tuple[str, ...] = ("red", "a", "blue", "", "z")) -> tuple[Any, Any]:
    """Fit a model of string, integer and numeric columns; the codes are not in alphabetical order."""
    codes, y = category_data()
    sizes = [30, 10, 20, 7, 5]
    small = np.nan_to_num(codes[:, 1] % 5, nan=-1).astype(int)
    frame = pd.DataFrame(
        {
            "colour": pd.Categorical.from_codes(np.nan_to_num(codes[:, 0], nan=-1).astype(int), colours),
            "size": pd.Categorical.from_codes(small, sizes),
            "x": codes[:, 2],
        }
    )
    model = xgb.XGBRegressor(
        n_estimators=10, max_depth=4, enable_categorical=True, tree_method="hist", n_jobs=1
    )
    return model.fit(frame, y + small), frame


def test_categories_of_a_frame():
    pd = pytest.importorskip("pandas")
    model, frame = frame_model(pd)
    adapted = adapt(model)
    assert adapted.schema.feature_names == ("colour", "size", "x")
    assert set(adapted.schema.encoders) == {0, 1}
    assert len(adapted.ensemble.category_values) > 0
    check_input(model, frame)
    # From 3.1 on, reordered categories are matched by value; earlier versions use their codes unchanged.
    reordered = frame.copy()
    for name in ("colour", "size"):
        # Use a list, because XGBoost before 3.4 misreads integer categories in a reversed view.
        reordered[name] = frame[name].cat.reorder_categories(frame[name].cat.categories.tolist()[::-1])
    same = np.array_equal(model.predict(reordered), model.predict(frame))
    assert same == (VERSION >= (3, 1))
    check_input(model, reordered)
    fewer = frame[frame["colour"].isin(["z", "blue"])].copy()
    fewer["colour"] = fewer["colour"].cat.remove_unused_categories()
    check_input(model, fewer)
    codes = np.stack([frame["colour"].cat.codes, frame["size"].cat.codes, frame["x"]], axis=1)
    check_input(model, codes)


def test_categories_survive_a_pickle():
    pd = pytest.importorskip("pandas")
    model, frame = frame_model(pd)
    adapted = adapt(model)
    again = pickle.loads(pickle.dumps(adapted))
    for one in (adapted, again):
        rows = inputs.read(frame, one.schema, "float32").chunk(0, len(frame))
        assert_margin(one.ensemble, rows, model.predict(frame), RTOL)


@pytest.mark.parametrize("missing", [0, 1, -1])
def test_missing_is_compared_with_the_codes_of_a_frame(missing):
    pd = pytest.importorskip("pandas")
    labels = np.tile(["p", "q", "r"], 20)
    frame = pd.DataFrame({"c": pd.Categorical(labels)})
    model = xgb.XGBRegressor(
        n_estimators=5, missing=missing, enable_categorical=True, tree_method="hist", n_jobs=1
    )
    model.fit(frame, (labels == "q") * 2.0 + (labels == "r"))
    adapted = adapt(model)
    for order in ("pqr", "rpq", "qrp"):
        column = pd.Categorical(labels, categories=list(order))
        codes = adapted.schema.encoders[0].encode(
            Column("c", np.asarray(column), column.codes.astype(np.int64), package="pandas")
        )
        expected = model.predict(pd.DataFrame({"c": column}))
        assert_margin(adapted.ensemble, codes[:, None], expected, RTOL)


@keeps_categories
def test_unseen_category_is_refused():
    pd = pytest.importorskip("pandas")
    model, frame = frame_model(pd)
    for name, value in (("colour", "green"), ("size", 99)):
        unseen = frame.copy()
        unseen[name] = frame[name].cat.add_categories([value])
        unseen.loc[7, name] = value
        if VERSION >= (3, 3):  # until then XGBoost notices only codes beyond the last one it knows
            with pytest.raises(xgb.core.XGBoostError, match="not in the training set"):
                model.predict(unseen)
        with pytest.raises(ValueError, match=f"'{name}'.*{value}.*training set"):
            check_input(model, unseen)


def test_categories_beyond_ascii():
    """Up to 3.3, XGBoost splits strings at wrong bytes: "é" swallows "b", and "b" would be code 2."""
    pd = pytest.importorskip("pandas")
    model, frame = frame_model(pd, ("é", "b", "c", "dd", "e"))
    if (3, 1) <= VERSION < (3, 4):
        with pytest.raises(ValueError, match=r"'colour'.*garbles"):
            check_input(model, frame)
    else:
        check_input(model, frame)
    codes = np.stack([frame["colour"].cat.codes, frame["size"].cat.codes, frame["x"]], axis=1)
    check_input(model, codes)


@keeps_categories
def test_column_that_is_not_categorical_any_more_is_refused():
    pd = pytest.importorskip("pandas")
    model, frame = frame_model(pd)
    as_codes = frame.assign(colour=frame["colour"].cat.codes)
    with pytest.raises(xgb.core.XGBoostError):
        model.predict(as_codes)
    with pytest.raises(ValueError, match="'colour' was categorical"):
        check_input(model, as_codes)


@pytest.mark.parametrize("values", [[7, -2, 5], ["7", "-2", "5"], [0, 1, 2]], ids=str)
def test_categories_in_a_column_of_numbers_are_refused(values):
    """XGBoost compares the codes of the categories, which are in descending order, with the thresholds."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    number = rng.choice([7, -2, 5], 300)
    frame = pd.DataFrame({"number": number, "other": rng.normal(size=300)})
    model = xgb.train({"max_depth": 3}, xgb.DMatrix(frame, number + frame["other"]), 3)
    categories = pd.Categorical(np.array(values)[rng.integers(3, size=300)], categories=values[::-1])
    table = frame.assign(number=categories)
    if VERSION >= (3, 1):
        codes = xgb.DMatrix(frame.assign(number=categories.codes))
        read = xgb.DMatrix(table, enable_categorical=True)
        np.testing.assert_array_equal(model.predict(read), model.predict(codes))
    with pytest.raises(ValueError, match="'number' is categorical, but the model was trained on numbers"):
        inputs.read(table, adapt(model).schema, "float32").chunk(0, 300)


def test_text_without_categories_is_refused():
    pd = pytest.importorskip("pandas")
    model, frame = frame_model(pd)
    with pytest.raises(ValueError):
        model.predict(frame.assign(colour=frame["colour"].astype(str)))
    with pytest.raises(ValueError, match="colour"):
        check_input(model, frame.assign(colour=frame["colour"].astype(str)))
    with pytest.raises(ValueError, match=r"colour.*codes"):
        check_input(model, np.array([["red", 10, 0.5]], object))


def test_frame_for_a_model_of_codes():
    pd = pytest.importorskip("pandas")
    X, y = category_data()
    model = xgb.XGBRegressor(
        n_estimators=10, enable_categorical=True, feature_types=["c", "c", "q"], tree_method="hist", n_jobs=1
    ).fit(X, y)
    frame = pd.DataFrame(X)
    frame[0] = pd.Categorical.from_codes(np.nan_to_num(X[:, 0], nan=-1).astype(int), list("vwxyz")[::-1])
    check_input(model, frame)
