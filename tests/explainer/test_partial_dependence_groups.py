"""Partial dependence on groups of columns against scikit-learn's brute force and models' predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import catboost_ctrs
from helpers.displays import scikit_learns_display
from helpers.families import library
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.inspection import partial_dependence as brute_force
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import partial_dependence
from skshapgpu.adapters import adapt

pd = pytest.importorskip("pandas")


def data(n_rows: int = 300) -> tuple[Any, np.ndarray]:
    """Draw columns of strings and numbers, some missing, and a target far from zero."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame(
        {
            "rooms": rng.integers(1, 6, n_rows),
            "city": rng.choice(["Oslo", "Bergen", "Moss", "Voss"], n_rows, p=[0.4, 0.3, 0.2, 0.1]),
            "area": rng.normal(80, 20, n_rows).round(1),
            "year": rng.normal(1980, 20, n_rows),
        }
    )
    X.loc[rng.random(n_rows) < 0.2, "area"] = np.nan
    known = X["area"].fillna(60)
    y = 1e4 + known * (X["city"] == "Oslo") + 20 * X["rooms"] * (X["city"] != "Moss") + (X["year"] > 1990)
    return X, np.asarray(y)


X, Y = data()
WEIGHTS = np.linspace(0, 2, len(X))


def pipeline(model: Any = None) -> Pipeline:
    """Return steps whose columns are in another order than X: a scaled number, dummies, bins of a number."""
    prepare = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["area"]),
        (OneHotEncoder(sparse_output=False), ["city"]),
        (KBinsDiscretizer(4, encode="onehot-dense"), ["year"]),
        remainder="passthrough",
    )
    return make_pipeline(prepare, model or RandomForestRegressor(10, max_depth=6, random_state=0))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("features", ["city", "area", "year", "rooms", ("city", "area")], ids=str)
def test_columns_of_x_through_a_pipeline(features: Any) -> None:
    """The curves equal scikit-learn's, which changes the column of X and predicts with the pipeline."""
    model = pipeline().fit(X, Y)
    complete = X.dropna()
    options = {"grid_resolution": 12, "sample_weight": WEIGHTS[: len(complete)]}
    curves = partial_dependence(model, complete, features, feature_groups="input", **options)
    asked = [features] if isinstance(features, str) else list(features)
    theirs = brute_force(
        model,
        complete.astype({"rooms": float}),
        asked,
        method="brute",
        categorical_features=["city"],
        **options,
    )
    for ours, values in zip(curves.grid_values, theirs.grid_values, strict=True):
        assert ours.dtype == object or np.array_equal(ours, values)
        assert list(ours) == list(values)
    assert np.ptp(theirs.average) > 0.1
    np.testing.assert_allclose(curves.average, theirs.average, rtol=1e-11)
    assert curves.feature_names == ["area", "city", "year", "rooms"]
    assert [curves.feature_names[i] for i in curves.features] == asked
    assert curves.is_categorical == tuple(name == "city" for name in asked)


def by_predictions(model: Any, name: str, values: Any, weights: Any = None) -> np.ndarray:
    predictions = [model.predict(X.assign(**{name: value})) for value in values]
    return np.average(predictions, axis=1, weights=weights)


def test_missing_and_given_values() -> None:
    model = pipeline().fit(X, Y)
    numbers = [np.nan, 40.0, 95.55]
    assert 95.55 not in set(X["area"])
    result = partial_dependence(
        model,
        X,
        "area",
        feature_groups="input",
        custom_values={"area": numbers},
        sample_weight=WEIGHTS,
        kind="both",
    )
    np.testing.assert_allclose(result.average[0], by_predictions(model, "area", numbers, WEIGHTS), rtol=1e-11)
    curves = np.array([model.predict(X.assign(area=value)) for value in numbers]).T
    np.testing.assert_allclose(result.individual[0], curves, rtol=1e-11)
    cities = ["Voss", "Oslo"]
    result = partial_dependence(model, X, "city", feature_groups="input", custom_values={"city": cities})
    np.testing.assert_allclose(result.average[0], by_predictions(model, "city", cities), rtol=1e-11)
    codes = X.assign(city=pd.Categorical(X["city"]).codes)  # numbers that are categories
    encoded = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough"),
        RandomForestRegressor(5, random_state=0),
    ).fit(codes.fillna(0), Y)
    result = partial_dependence(encoded, codes.fillna(0), "city", feature_groups="input", grid_resolution=2,
                               categorical_features=["city"])  # fmt: skip
    expected = [encoded.predict(codes.fillna(0).assign(city=code)).mean() for code in range(4)]
    np.testing.assert_array_equal(result.grid_values[0], range(4))
    np.testing.assert_allclose(result.average[0], expected, rtol=1e-11)


def months(X: Any) -> Any:
    return X.apply(lambda column: pd.to_datetime(column).dt.month)


def days(X: Any) -> Any:
    return X.apply(lambda column: pd.to_timedelta(column).dt.days)


@pytest.mark.parametrize("unit", ["ns", "us", "s"])
def test_dates_and_time_spans(unit: str) -> None:
    """Grids have the dates and time spans that occur, in any unit of pandas, with a missing one last."""
    rng = np.random.default_rng(0)
    dates = pd.to_datetime(["2024-01-05", "2024-03-05", "2024-08-05", None])
    spans = pd.to_timedelta([0, 1, 2], unit="D")
    rows = pd.DataFrame(
        {
            "date": pd.Series(dates[rng.integers(0, 4, 200)]).astype(f"datetime64[{unit}]"),
            "span": pd.Series(spans[rng.integers(0, 3, 200)]).astype(f"timedelta64[{unit}]"),
        }
    )
    prepare = make_column_transformer(
        (FunctionTransformer(months), ["date"]), (FunctionTransformer(days), ["span"])
    )
    model = make_pipeline(prepare, HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=5))
    model.fit(rows, rows["date"].dt.month.fillna(20) + 3 * rows["span"].dt.days)
    for name, values in (("date", dates), ("span", spans)):
        expected = [
            model.predict(rows.assign(**{name: pd.Series([value] * 200).astype(rows[name].dtype)})).mean()
            for value in values
        ]
        assert np.ptp(expected) > 3
        curves = partial_dependence(model, rows, name, feature_groups="input")
        np.testing.assert_allclose(curves.average[0], expected, rtol=1e-11)
        assert curves.is_categorical == (True,)
        assert [value for value in curves.grid_values[0] if value == value] == list(values.dropna())
        custom_curves = partial_dependence(
            model, rows, name, feature_groups="input", custom_values={name: [values[1]]}
        )
        np.testing.assert_allclose(custom_curves.average[0], expected[1:2], rtol=1e-11)


@pytest.mark.parametrize("form", ["array", "float32", "polars", "pandas categories"])
def test_containers(form: str) -> None:
    numbers = X[["rooms", "area", "year"]].fillna(70)
    given: Any = {
        "array": lambda: numbers.to_numpy(),
        "float32": lambda: numbers.to_numpy(np.float32),
        "polars": lambda: library("polars").from_pandas(numbers),
        "pandas categories": lambda: numbers.assign(rooms=numbers["rooms"].astype("category")),
    }[form]()
    steps = (StandardScaler(), KBinsDiscretizer(6, encode="onehot-dense"))
    model = make_pipeline(*steps, RandomForestRegressor(5, random_state=0)).fit(given, Y)
    curves = partial_dependence(model, given, 1, feature_groups="input", grid_resolution=9)
    (grid,) = curves.grid_values
    assert len(grid) == 9 and curves.deciles[1].shape == (9,)
    for i, value in enumerate(grid):
        changed = numbers.assign(area=value)
        if form in ("array", "float32"):
            changed = changed.to_numpy(given.dtype)
        elif form == "polars":
            changed = library("polars").from_pandas(changed)
        np.testing.assert_allclose(curves.average[0, i], model.predict(changed).mean(), rtol=1e-11)
    of_rooms = partial_dependence(model, given, 0, feature_groups="input")
    assert of_rooms.is_categorical == (form == "pandas categories",)
    np.testing.assert_array_equal(of_rooms.grid_values[0], [1, 2, 3, 4, 5])


def test_probability() -> None:
    model = pipeline(HistGradientBoostingClassifier(max_iter=20)).fit(X, Y > np.median(Y))
    curves = partial_dependence(model, X, "city", feature_groups="input", model_output="probability")
    expected = [model.predict_proba(X.assign(city=city))[:, 1].mean() for city in curves.grid_values[0]]
    np.testing.assert_allclose(curves.average[0], expected, rtol=1e-11)


def test_sparse_columns_of_a_frame() -> None:
    """Rows of only sparse columns stay sparse on the way to the curve, so scalers do not center them."""
    rng = np.random.default_rng(7)
    rows = rng.normal(5, 1, (200, 3)).round(1)
    prepare = make_column_transformer((RobustScaler(), [2, 0]), remainder="passthrough")
    model = make_pipeline(prepare, RandomForestRegressor(5, random_state=0)).fit(rows, rows.sum(axis=1))
    sparse = pd.DataFrame(rows).astype(pd.SparseDtype(np.float64, 0.0))
    values = [4.05, 4.75, 5.55]  # none occurs in X
    curves = partial_dependence(model, sparse, 0, feature_groups="input", custom_values={0: values})
    right = []
    for value in values:
        changed = sparse.copy()
        changed.isetitem(0, pd.array(np.full(len(rows), value), dtype=sparse.dtypes.iloc[0]))
        right.append(model.predict(changed).mean())
    np.testing.assert_allclose(curves.average[0], right, rtol=1e-12)


def test_combinations_that_occur() -> None:
    """The grid of a named group has the combinations of the rows, in order, with missing values last."""
    table = pd.get_dummies(X, columns=["city"], dtype=float)
    cities = [name for name in table if name.startswith("city_")]
    table.loc[:9, cities] = np.nan
    model = DecisionTreeRegressor(max_depth=8, random_state=0).fit(table, Y)
    groups = {"city": cities, "size": ["rooms", "area"]}
    result = partial_dependence(
        model, table, "city", feature_groups=groups, kind="both", sample_weight=WEIGHTS
    )
    (grid,) = result.grid_values
    assert result.feature_names == ["size", "year", "city"] and result.features == (2,)
    assert list(grid[:4]) == [tuple(row) for row in np.eye(4)[::-1]] and np.isnan(grid[4]).all()
    curves = np.array([model.predict(table.assign(**dict(zip(cities, values)))) for values in grid]).T
    assert np.ptp(curves) > 10
    np.testing.assert_allclose(result.individual[0], curves, rtol=1e-12)
    np.testing.assert_allclose(result.average[0], np.average(curves, axis=0, weights=WEIGHTS), rtol=1e-12)
    options = {"feature_groups": groups, "custom_values": {"city": np.eye(4)[:2]}}
    some = partial_dependence(model, table, ["city", "year"], grid_resolution=5, **options)
    assert some.average.shape == (1, 2, 5) and some.is_categorical == (True, False)
    for i, j in ((0, 0), (1, 4)):
        changed = table.assign(year=some.grid_values[1][j], **dict(zip(cities, np.eye(4)[i])))
        np.testing.assert_allclose(some.average[0, i, j], model.predict(changed).mean(), rtol=1e-12)
    alone = partial_dependence(model, table, "year", feature_groups=groups, grid_resolution="exact")
    plain = partial_dependence(model, table, "year", grid_resolution="exact")
    np.testing.assert_array_equal(alone.average, plain.average)
    full_curves = partial_dependence(model, table, "size", feature_groups=groups, grid_resolution="exact")
    assert len(full_curves.grid_values[0]) == len(table[["rooms", "area"]].drop_duplicates())
    with pytest.raises(ValueError, match=r"'size' have 2\d\d different combinations .* grid_resolution=100"):
        partial_dependence(model, table, "size", feature_groups=groups)


@pytest.mark.parametrize(
    "members",
    [["b", "a"], [1, "a"], np.array(["b", "a"]), ["a", "b"], {"b", "a"}],
    ids=["list", "positions", "array", "in the order of X", "set"],
)
def test_combinations_in_the_order_of_the_list(members: Any) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.integers(0, 3, 200) for name in "abc"})
    model = DecisionTreeRegressor(random_state=0).fit(table, 9 * table["a"] + 3 * table["b"] + table["c"])
    order = ("a", "b") if isinstance(members, set) or members[0] == "a" else ("b", "a")
    options = {"feature_groups": {"pair": members}}
    curves = partial_dependence(model, table, "pair", **options)
    given = partial_dependence(model, table, "pair", custom_values={"pair": [(2, 0), (0, 1)]}, **options)
    assert list(curves.grid_values[0]) == [(i, j) for i in range(3) for j in range(3)]
    assert list(given.grid_values[0]) == [(2, 0), (0, 1)]
    for result in (curves, given):
        expected = [
            model.predict(table.assign(**dict(zip(order, values)))).mean() for values in result.grid_values[0]
        ]
        np.testing.assert_allclose(result.average[0], expected, rtol=1e-12)


def test_columns_that_catboost_combines() -> None:
    """A group of all columns that a CTR combines can change together."""
    model = catboost_ctrs.fit("regressor", iterations=20, depth=5)
    derived = adapt(model).schema.derived
    assert derived is not None
    rows = catboost_ctrs.unseen(catboost_ctrs.rows(2, 40, nan=True))
    combined = sorted({i for sources in derived.sources for i in sources if len(sources) > 1})
    names = [rows.columns[i] for i in combined]
    curves = partial_dependence(model, rows, "all", feature_groups={"all": names}, grid_resolution="exact")
    (grid,) = curves.grid_values
    place = {tuple(map(str, row)): i for i, row in reversed(list(enumerate(rows[names].to_numpy().tolist())))}
    for i, values in list(enumerate(grid))[::7]:
        changed = rows.copy()
        changed[names] = rows[names].iloc[[place[tuple(map(str, values))]] * len(rows)].to_numpy()
        np.testing.assert_allclose(
            curves.average[:, i],
            catboost_ctrs.raw(model, changed.astype(rows.dtypes)).mean(axis=0),
            atol=1e-10,
        )
    with pytest.raises(ValueError, match="a CTR of CatBoost"):
        partial_dependence(
            model, rows, "all", feature_groups={"all": [*names[:1], "x"]}, grid_resolution="exact"
        )


def test_display() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    curves = partial_dependence(pipeline().fit(X, Y), X, "city", feature_groups="input")
    display = scikit_learns_display(curves)
    assert [label.get_text() for label in display.axes_[0, 0].get_xticklabels()] == list(
        curves.grid_values[0]
    )


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"feature_groups": {"a": []}}, ValueError, "feature_groups: 'a' must be a list of columns"),
        ({"feature_groups": ["a"]}, TypeError, "feature_groups must be 'input' or map names"),
        (
            {"feature_groups": {"a": ["city"]}},
            ValueError,
            "feature_groups, 'a': there is no column 'city', only ",
        ),
        ({"features": "town"}, ValueError, "features: there is no feature 'town', only 'area'"),
        (
            {"features": "area", "grid_resolution": "exact"},
            ValueError,
            "steps of the pipeline transform 'area'",
        ),
        ({"custom_values": {"city": ["Rome"]}}, ValueError, "'city' has 'Rome', which occurs in no row of X"),
        ({"custom_values": {"city": []}}, ValueError, "'city' has no values"),
        ({"features": "area", "custom_values": {"area": ["x"]}}, ValueError, "'area' must be numbers"),
        (
            {
                "features": "d",
                "feature_groups": {"d": ["onehotencoder__city_Moss", "onehotencoder__city_Oslo"]},
                "custom_values": {"d": [(0, 1, 0)]},
            },
            ValueError,
            "'d' must be a list of combinations of 2 values",
        ),
    ],
    ids=str,
)
def test_wrong_arguments(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {"X": X, "features": "city", "feature_groups": "input"} | change
    with pytest.raises(error, match=message):
        partial_dependence(pipeline().fit(X, Y), **arguments)


def test_steps_that_mix_columns() -> None:
    numbers = X[["rooms", "year"]]
    model = make_pipeline(PCA(2), DecisionTreeRegressor(max_depth=3)).fit(numbers, Y)
    with pytest.raises(ValueError, match="PCA mixes columns, so none of its columns belongs to a single one"):
        partial_dependence(model, numbers, "year", feature_groups="input")
    tables = library("pyarrow").Table.from_pandas(numbers)
    scaled = make_pipeline(StandardScaler(), DecisionTreeRegressor(max_depth=3)).fit(numbers, Y)
    with pytest.raises(TypeError, match=r"'year' has numbers that do not occur in X.*pandas or polars"):
        partial_dependence(scaled, tables, "year", feature_groups="input")
