"""Partial dependence against scikit-learn's brute force and the libraries' predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import catboost_ctrs
from helpers.cases import CASES, FOREST, HIST, data
from helpers.displays import scikit_learns_display
from helpers.ensembles import leaf_scale
from helpers.families import library
from helpers.own_values import fitted, own_margin
from sklearn.base import is_classifier
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.inspection import PartialDependenceDisplay
from sklearn.inspection import partial_dependence as brute_force
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import UnsupportedModelError, partial_dependence
from skshapgpu._rows.inputs import read
from skshapgpu.adapters import adapt

X, Y = load_diabetes(return_X_y=True)
Y = Y + 1e4


def replaced(X: Any, feature: int, value: Any) -> Any:
    """Return X with one value in all rows of a column."""
    changed = X.copy()
    if isinstance(X, np.ndarray):
        changed[:, feature] = value
        return changed
    pd = library("pandas")
    name, column = X.columns[feature], X.iloc[:, feature]
    missing = value is None or value != value
    if isinstance(column.dtype, pd.CategoricalDtype):
        code = -1 if missing else column.cat.categories.get_loc(value)
        changed[name] = pd.Categorical.from_codes([code] * len(X), dtype=column.dtype)
    else:
        changed[name] = [value] * len(X)
    return changed


@pytest.mark.parametrize("name", CASES)
def test_every_family_by_definition(name: str) -> None:
    """Curves of each column; rows have missing values, values at comparisons' edges, unseen categories."""
    case = fitted(name)
    ensemble, schema = case.adapted.ensemble, case.adapted.schema
    largest = leaf_scale(ensemble) + np.abs(ensemble.intercept)
    tolerance = 2e-6 if case.adapted.family == "xgboost" else 1e-10  # XGBoost predicts in float32
    weights = np.linspace(0, 3, len(case.X)) if len(name) % 2 else None
    for feature in range(case.X.shape[1]):
        custom = None
        if isinstance(case.X, np.ndarray):
            custom = {feature: np.unique(np.concatenate([case.X[:5, feature], case.X[-6:, feature]]))}
        curves = partial_dependence(
            case.model, case.X, feature, kind="both", custom_values=custom, sample_weight=weights
        )
        (values,) = curves.grid_values
        assert curves.individual.shape == (ensemble.n_outputs, len(case.X), len(values))
        for i, value in enumerate(values):
            changed = replaced(case.X, feature, value)
            own = own_margin(case.model, changed)
            assert (np.abs(curves.individual[:, :, i].T - own) <= tolerance * largest).all()
            rows = read(changed, schema, ensemble.x_dtype)
            margin = ensemble.margin(rows.chunk(0, rows.n_rows))
            assert (np.abs(curves.individual[:, :, i].T - margin) <= 1e-12 * largest).all()
            mean = np.average(margin, axis=0, weights=weights)
            assert (np.abs(curves.average[:, i] - mean) <= 1e-12 * largest).all()


def boosted(package: str, name: str, **options: Any) -> Any:
    common = {"xgboost": {"n_jobs": 1}, "lightgbm": {"n_jobs": 1, "verbose": -1}, "catboost": {}}[package]
    if package == "catboost":
        common = {"thread_count": 1, "allow_writing_files": False, "logging_level": "Silent"}
    return getattr(library(package), name)(**common, **options)


MODELS = {
    "forest": lambda: RandomForestRegressor(**FOREST),
    "deep forest": lambda: RandomForestRegressor(3, random_state=0),
    "forest of classes": lambda: RandomForestClassifier(**FOREST),
    "extra trees": lambda: ExtraTreesClassifier(**FOREST),
    "boosting": lambda: GradientBoostingRegressor(n_estimators=9),
    "boosting of classes": lambda: GradientBoostingClassifier(n_estimators=9),
    "histograms": lambda: HistGradientBoostingRegressor(**HIST),
    "histograms of classes": lambda: HistGradientBoostingClassifier(**HIST),
    "xgboost": lambda: boosted("xgboost", "XGBRegressor", n_estimators=9),
    "xgboost, binary": lambda: boosted("xgboost", "XGBClassifier", n_estimators=9),
    "lightgbm": lambda: boosted("lightgbm", "LGBMRegressor", n_estimators=9),
    "lightgbm, binary": lambda: boosted("lightgbm", "LGBMClassifier", n_estimators=9),
    "catboost": lambda: boosted("catboost", "CatBoostRegressor", n_estimators=9),
}


class AsScikitLearn:
    """Estimator whose ``predict`` is the model's margin, in the form that scikit-learn's function accepts."""

    _estimator_type = "regressor"

    def __init__(self, model: Any) -> None:
        self.fitted_, self.model = True, model

    def fit(self, X: Any, y: Any) -> AsScikitLearn:
        return self

    def __sklearn_tags__(self) -> Any:
        return RandomForestRegressor().__sklearn_tags__()

    def predict(self, X: Any) -> np.ndarray:
        margin = own_margin(self.model, X)
        return margin[:, 0] if margin.shape[1] == 1 else margin


@pytest.mark.parametrize("form", ["array", "float32", "frame"])
@pytest.mark.parametrize("name", MODELS)
def test_as_scikit_learn(name: str, form: str) -> None:
    """Grids are equal, and curves equal up to rounding, for features with many or few values, and pairs."""
    model = MODELS[name]()
    nan = name not in ("boosting", "boosting of classes")
    target = "number" if not is_classifier(model) else "binary" if "binary" in name else "three"
    rows, y = data(target, nan=nan)
    rows[:, 2] = np.nan_to_num(rows[:, 2])
    rows[:, 5] = np.round(np.nan_to_num(rows[:, 5]))
    if form == "float32":
        rows = rows.astype(np.float32)
    if form == "frame":
        rows = library("pandas").DataFrame(rows, columns=list("uvwxyz"))
    model.fit(rows, y + 1e4 if target == "number" else y)
    weights = np.linspace(0, 3, len(rows))
    tolerance = 2e-6 if "xgboost" in name else 1e-12
    for features in ([2], [5], [3], [2, 5], [3, 2]):
        options = {"sample_weight": weights, "kind": "both"}
        if len(features) == 2:
            options["grid_resolution"] = 7
        if form == "frame":
            features = ["uvwxyz"[i] for i in features]
        curves = partial_dependence(model, rows, features, n_jobs=2, **options)
        expected = brute_force(AsScikitLearn(model), rows, features, method="brute", **options)
        for ours, theirs in zip(curves.grid_values, expected.grid_values, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for key in ("average", "individual"):
            assert curves[key].shape == expected[key].shape
            largest = np.abs(expected[key]).max()
            np.testing.assert_allclose(curves[key], expected[key], rtol=0, atol=tolerance * largest)
        alone = partial_dependence(model, rows, features, **options | {"kind": "average"})
        np.testing.assert_array_equal(alone.average, curves.average)
        assert "individual" not in alone


def test_through_the_users_own_predictions() -> None:
    """No wrapper: predict of a regressor, decision_function and predict_proba of classifiers."""
    rows, y = data("binary")
    regressor = GradientBoostingRegressor(n_estimators=9).fit(rows, y + 7.0)
    classifier = GradientBoostingClassifier(n_estimators=9).fit(rows, y)
    of_classes = RandomForestClassifier(5, random_state=0).fit(rows, data("three")[1])
    for model, method, output in (
        (regressor, "auto", "raw"),
        (classifier, "decision_function", "raw"),
        (classifier, "predict_proba", "probability"),
        (of_classes, "predict_proba", "raw"),
        (of_classes, "predict_proba", "probability"),
    ):
        for features in (1, (1, 3)):
            options = {"kind": "both", "grid_resolution": 9, "sample_weight": np.arange(len(rows))}
            expected = brute_force(
                model, rows, list(np.ravel(features)), method="brute", response_method=method, **options
            )
            curves = partial_dependence(model, rows, features, model_output=output, **options)
            for key in ("average", "individual"):
                np.testing.assert_allclose(curves[key], expected[key], rtol=0, atol=1e-13 * 8)


def test_response() -> None:
    """Mean counts, which are no function of the mean margin."""
    rows, y = data("binary")
    model = boosted("xgboost", "XGBRegressor", n_estimators=5, objective="count:poisson").fit(rows, 7 * y)
    curves = partial_dependence(model, rows, 1, model_output="response", grid_resolution=5, kind="both")
    for i, value in enumerate(curves.grid_values[0]):
        own = model.predict(replaced(rows, 1, value))
        np.testing.assert_allclose(curves.individual[0, :, i], own, rtol=2e-6)
        np.testing.assert_allclose(curves.average[0, i], own.mean(dtype=float), rtol=2e-6)
    margin = partial_dependence(model, rows, 1, grid_resolution=5)
    assert np.abs(np.exp(margin.average) - curves.average).max() > 0.1


def test_probabilities_of_several_labels() -> None:
    rows, _ = data("binary")
    labels = (rows[:, :3] > 0).astype(int)
    model = boosted("xgboost", "XGBClassifier", n_estimators=5, max_depth=3).fit(rows, labels)
    curves = partial_dependence(model, rows, 1, model_output="probability", grid_resolution=5)
    for i, value in enumerate(curves.grid_values[0]):
        own = model.predict_proba(replaced(rows, 1, value)).mean(axis=0, dtype=float)
        np.testing.assert_allclose(curves.average[:, i], own, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["forest", "histograms", "xgboost", "lightgbm", "lightgbm, float32", "catboost"]
)
def test_exact_grid(name: str) -> None:
    """Between its points the curve is a line: compare it at random numbers and next to every threshold."""
    rows, y = data("number", nan=name not in ("lightgbm, float32",))
    rows[:, 2] = np.nan_to_num(rows[:, 2])
    if name.endswith("float32"):
        rows = rows.astype(np.float32)
    model = MODELS[name.partition(",")[0]]().fit(rows, y)
    curves = partial_dependence(model, rows, 2, grid_resolution="exact", percentiles=(0.1, 0.8))
    (grid,), (curve,) = curves.grid_values, curves.average
    low, high = np.quantile(rows[:, 2], [0.1, 0.8])
    assert (np.diff(grid) > 0).all() and abs(grid[0] - low) < 0.05 and abs(grid[-1] - high) < 0.05
    ensemble = adapt(model).ensemble
    tested = (ensemble.left >= 0) & (ensemble.feature == 2)
    inside = ensemble.threshold[tested & (ensemble.threshold > grid[0]) & (ensemble.threshold < grid[-1])]
    at = np.concatenate([np.random.default_rng(0).uniform(grid[0], grid[-1], 40), inside, grid])
    at = at.astype(rows.dtype).clip(grid[0], grid[-1])
    expected = [own_margin(model, replaced(rows, 2, value)).mean() for value in at]
    number = np.float32 if ensemble.x_dtype == "float32" else float
    read_as = at.astype(number).clip(grid[0], grid[-1])
    np.testing.assert_allclose(np.interp(read_as, grid, curve), expected, rtol=0, atol=2e-6)
    assert len(np.unique(curve.round(9))) > 3


def test_exact_grid_where_zeros_are_missing() -> None:
    rows, y = data("number", nan=True, zeros=True)
    model = boosted("lightgbm", "LGBMRegressor", n_estimators=9, zero_as_missing=True).fit(rows, y)
    curves = partial_dependence(model, rows, 0, grid_resolution="exact")
    (grid,), (curve,) = curves.grid_values, curves.average
    at = np.concatenate([grid, [0.0, 1e-36, -1e-36, 1e-34, -1e-34]])
    expected = [own_margin(model, replaced(rows, 0, value)).mean() for value in at]
    np.testing.assert_allclose(np.interp(at, grid, curve), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [">f8", "i8"])
def test_arrays_that_lightgbm_rounds(dtype: str) -> None:
    """LightGBM reads arrays of other types as float32, and with them the values of the grid."""
    lightgbm = library("lightgbm")
    rng = np.random.default_rng(0)
    rows = np.column_stack([2**24 + np.arange(40), rng.integers(0, 3, 40)]).astype(np.float64)
    model = lightgbm.LGBMRegressor(
        n_estimators=20, num_leaves=20, min_child_samples=1, min_data_in_bin=1, verbose=-1
    ).fit(rows, rows[:, 0] % 7)
    passed_rows = rows.astype(dtype)
    for resolution in (100, "exact"):
        curves = partial_dependence(model, passed_rows, 0, grid_resolution=resolution, percentiles=(0, 1))
        (values,) = curves.grid_values
        right = [model.predict(replaced(passed_rows, 0, value)).mean() for value in values.astype(dtype)]
        np.testing.assert_allclose(curves.average[0], right, rtol=0, atol=1e-12)
        if resolution == "exact":
            np.testing.assert_array_equal(values[1:-1], values[1:-1].astype(np.float32))


def test_a_name_of_two_columns() -> None:
    """A column that steps make may have the name of a column that they drop from the frame."""
    pd = pytest.importorskip("pandas")
    selection = make_column_transformer(("passthrough", [1, 2]), verbose_feature_names_out=False)
    model = make_pipeline(selection, RandomForestRegressor(3, random_state=0)).fit(X[:, :3], Y)
    frame = pd.DataFrame(X[:, :3], columns=["x1", "x2", "x0"])
    with pytest.raises(
        ValueError, match="features: 'x1' is the name of a column that the model receives, and of another"
    ):
        partial_dependence(model, frame, "x1")
    np.testing.assert_array_equal(
        partial_dependence(model, frame, 1).average, partial_dependence(model, X[:, :3], 1).average
    )


def test_centered() -> None:
    """Subtract the mean margin, or for the probability the mean probability."""
    rows, y = data("three")
    model = GradientBoostingClassifier(n_estimators=5).fit(rows, y)
    weights = np.arange(len(rows))
    options = {"sample_weight": weights, "kind": "both", "grid_resolution": 6}
    for features in (0, (1, 3)):
        plain = partial_dependence(model, rows, features, **options)
        curves = partial_dependence(model, rows, features, centered=True, **options)
        mean = np.average(model.decision_function(rows), axis=0, weights=weights)
        for key in ("average", "individual"):
            subtracted = mean.reshape(-1, *[1] * (plain[key].ndim - 1))
            np.testing.assert_allclose(curves[key], plain[key] - subtracted, rtol=0, atol=1e-13)
    binary = GradientBoostingClassifier(n_estimators=5).fit(rows, y > 0)
    options |= {"model_output": "probability"}
    plain, curves = (partial_dependence(binary, rows, 0, centered=c, **options) for c in (False, True))
    mean = np.average(binary.predict_proba(rows)[:, 1], weights=weights)
    np.testing.assert_allclose(curves.average, plain.average - mean, rtol=0, atol=1e-13)


# Features and grids


def test_missing_values() -> None:
    """If a feature has few values, NaN is the last point; if it has many, ``custom_values`` may have NaN."""
    rows, y = data("number", nan=True)
    model = HistGradientBoostingRegressor(**HIST).fit(rows, y)
    few = partial_dependence(model, rows, 3)
    assert np.isnan(few.grid_values[0][-1]) and not np.isnan(few.grid_values[0][:-1]).any()
    many = partial_dependence(model, rows, 0)
    present = rows[~np.isnan(rows[:, 0])]
    ends = brute_force(model, present, [0], method="brute").grid_values[0][[0, -1]]
    np.testing.assert_array_equal(many.grid_values[0][[0, -1]], ends)
    custom_curves = partial_dependence(model, rows, 0, custom_values={0: [0.5, np.nan]})
    expected = [model.predict(replaced(rows, 0, value)).mean() for value in (0.5, np.nan)]
    np.testing.assert_allclose(custom_curves.average[0], expected, rtol=1e-12)
    rows[:, 0] = np.nan
    with pytest.raises(ValueError, match="column 'x0' is missing in all rows"):
        partial_dependence(model, rows, 0, grid_resolution="exact")


def test_categories_of_a_frame() -> None:
    """Grids have the categories that occur, with a missing one last, also in a pair with a number."""
    ranges = []
    for name in ("sklearn histograms, categories", "xgboost categories", "lightgbm categories"):
        case = fitted(name)
        curves = partial_dependence(case.model, case.X, ("colour", "x"), grid_resolution=5)
        assert curves.is_categorical == (True, False) and list(curves.deciles) == [2]
        values = list(curves.grid_values[0])
        present = [v for v in values if isinstance(v, str)]
        assert present == sorted(set(case.X["colour"].dropna())) and len(values) == len(present) + 1
        for i, colour in enumerate(values):
            for j, x in enumerate(curves.grid_values[1]):
                changed = replaced(replaced(case.X, 0, colour), 2, x)
                own = own_margin(case.model, changed).mean()
                assert abs(curves.average[0, i, j] - own) < 2e-6
        full_curves = partial_dependence(case.model, case.X, "colour")
        ranges.append(np.ptp(full_curves.average))
        some = partial_dependence(case.model, case.X, "colour", custom_values={"colour": values[::-1]})
        np.testing.assert_allclose(some.average, full_curves.average[:, ::-1], rtol=0, atol=1e-14)
        with pytest.raises(ValueError, match="'colour' has 'violet', which occurs in no row of X"):
            partial_dependence(case.model, case.X, "colour", custom_values={"colour": ["a", "violet"]})
    assert sorted(ranges)[1] > 0.01  # one of the models does not use it


@pytest.mark.parametrize("family", ["lightgbm", "xgboost", "sklearn"])
def test_categories_that_are_numbers_and_not_named(family: str) -> None:
    """If a call names other columns as categories, numbers in a column of codes stand for its categories."""
    pd = library("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"code": pd.Categorical(rng.choice([10, 20, 30, 40], 400)), "x": rng.normal(size=400)}
    )
    effect = {10: 5.0, 20: -3.0, 30: 2.0, 40: 9.0}
    y = frame["code"].astype(int).map(effect) + frame["x"]
    model: Any
    if family == "lightgbm":
        model = library("lightgbm").LGBMRegressor(n_estimators=20, verbose=-1)
    elif family == "xgboost":
        model = library("xgboost").XGBRegressor(n_estimators=20, enable_categorical=True)
    else:
        model = HistGradientBoostingRegressor(max_iter=20, categorical_features="from_dtype")
    model.fit(frame, y)
    expected = [
        model.predict(frame.assign(code=pd.Categorical([code] * 400, frame["code"].cat.categories))).mean()
        for code in effect
    ]
    assert np.ptp(expected) > 5
    for categorical in ([], ["x"], [False, True]):
        curves = partial_dependence(model, frame, "code", categorical_features=categorical)
        np.testing.assert_array_equal(curves.grid_values[0], list(effect))
        np.testing.assert_allclose(curves.average[0], expected, rtol=0, atol=1e-5)
        assert curves.is_categorical == (False,)
    with pytest.raises(
        ValueError, match=r"'code', which is not in categorical_features, has 25.0, which occurs"
    ):
        partial_dependence(model, frame, "code", categorical_features=["x"], custom_values={"code": [10, 25]})


def test_categories_of_an_array() -> None:
    """The model splits by codes, or the call names their column; any numbers may be in ``custom_values``."""
    case = fitted("lightgbm codes")
    curves = partial_dependence(case.model, case.X, 1)
    np.testing.assert_array_equal(curves.grid_values[0], np.unique(case.X[:, 1]))
    custom_curves = partial_dependence(case.model, case.X, 1, custom_values={1: [77, 2, 31, -1]})
    expected = [own_margin(case.model, replaced(case.X, 1, value)).mean() for value in (77, 2, 31, -1)]
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(custom_curves.average[0], expected, rtol=1e-12)
    with pytest.raises(ValueError, match=r"splits column .* by categories.* name it in categorical_features"):
        partial_dependence(case.model, case.X[:30], 1, categorical_features=[0], grid_resolution="exact")
    model = RandomForestRegressor(3, random_state=0).fit(X, Y)
    for categorical in ([1, 2], np.arange(10) == 2, 2, "x2"):
        named = partial_dependence(model, X, 2, categorical_features=categorical)
        np.testing.assert_array_equal(named.grid_values[0], np.unique(X[:, 2]))
        assert named.is_categorical == (True,) and not named.deciles


def test_integers_and_unused_columns() -> None:
    rows = np.column_stack([np.arange(300), np.arange(300) % 7, np.zeros(300, int)])
    model = RandomForestRegressor(3, random_state=0).fit(rows, rows[:, 0] * (rows[:, 1] > 3))
    curves = partial_dependence(model, rows, 0)
    floats = partial_dependence(model, rows.astype(float), 0)
    np.testing.assert_array_equal(curves.average, floats.average)
    assert np.ptp(partial_dependence(model, rows, 2, custom_values={2: [0, 1]}).average) == 0


@pytest.mark.parametrize("kind", ["regressor", "classes"])
def test_ctrs(kind: str) -> None:
    """Curves exist for columns with CTRs of their own, and for numbers in no CTR; others are refused."""
    model = catboost_ctrs.fit(kind, iterations=8, depth=4, max_ctr_complexity=1)
    derived = adapt(model).schema.derived
    assert derived is not None and any(0 in sources for sources in derived.sources)
    rows = catboost_ctrs.unseen(catboost_ctrs.rows(2, 60, nan=True))
    for feature in range(rows.shape[1]):
        curves = partial_dependence(model, rows, feature, custom_values=None, grid_resolution=60)
        for i, value in enumerate(curves.grid_values[0]):
            changed = rows.copy()
            changed[rows.columns[feature]] = value
            own = catboost_ctrs.raw(model, changed).mean(axis=0)
            np.testing.assert_allclose(curves.average[:, i], own, rtol=0, atol=1e-10)
    mixed = catboost_ctrs.fit(kind, iterations=20, depth=5)
    refused = 0
    for feature in range(rows.shape[1]):
        try:
            partial_dependence(mixed, rows, feature, grid_resolution=60)
        except ValueError as error:
            assert "(a CTR of CatBoost)" in str(error) and "method='brute'" in str(error)
            refused += 1
    assert refused > 2


def test_pipeline() -> None:
    """Features are the columns that the last step receives; X goes through the steps."""
    steps = make_pipeline(StandardScaler(), RandomForestRegressor(5, max_depth=4, random_state=0)).fit(X, Y)
    scaled = steps[0].transform(X)
    curves = partial_dependence(steps, X, "x2", sample_weight=np.arange(len(X)))
    expected = partial_dependence(steps[-1], scaled, 2, sample_weight=np.arange(len(X)))
    np.testing.assert_array_equal(curves.average, expected.average)
    np.testing.assert_array_equal(curves.grid_values[0], expected.grid_values[0])


def test_sparse_and_other_containers() -> None:
    from scipy import sparse

    rows = np.where(X > 0, X, 0)
    model = RandomForestRegressor(5, random_state=0).fit(rows, Y)
    expected = partial_dependence(model, rows, 2, kind="both")
    for container in (
        sparse.csr_matrix(rows),
        sparse.coo_array(rows),
        rows.tolist(),
        np.asfortranarray(rows),
    ):
        curves = partial_dependence(model, container, 2, kind="both")
        for key in ("average", "individual"):
            np.testing.assert_array_equal(curves[key], expected[key])
        np.testing.assert_array_equal(curves.grid_values[0], expected.grid_values[0])
    nan = np.where(X > 0, X, np.nan)
    booster = boosted("xgboost", "XGBRegressor", n_estimators=5).fit(nan, Y)
    absent = sparse.csr_matrix(rows)  # entries that are not stored are missing
    curves = partial_dependence(booster, absent, 1)
    expected_of_nan = partial_dependence(booster, nan, 1)
    np.testing.assert_array_equal(curves.grid_values[0], expected_of_nan.grid_values[0])
    assert np.isnan(curves.grid_values[0][-1])
    np.testing.assert_array_equal(curves.average, expected_of_nan.average)
    for package in ("polars", "pyarrow"):
        frame = library("pandas").DataFrame(rows, columns=[f"c{i}" for i in range(10)])
        named = RandomForestRegressor(5, random_state=0).fit(frame, Y)
        module = library(package)
        table = module.from_pandas(frame) if package == "polars" else module.Table.from_pandas(frame)
        curves = partial_dependence(named, table, "c2")
        np.testing.assert_array_equal(curves.average, expected.average)


# Threads, memory, progress, displays


def test_memory_limit_progress_and_threads() -> None:
    model = HistGradientBoostingClassifier(**HIST).fit(X, Y > Y.mean())
    rows, reports = np.tile(X, (20, 1)), []
    weights = np.linspace(0, 3, len(rows))
    for options in ({}, {"model_output": "probability"}):
        full_curves = partial_dependence(model, rows, 2, kind="both", sample_weight=weights, **options)
        for limits in ({"memory_limit": "12MB"}, {"n_jobs": 3}, {"progress": lambda *n: reports.append(n)}):
            curves = partial_dependence(
                model, rows, 2, kind="both", sample_weight=weights, **options, **limits
            )
            np.testing.assert_array_equal(curves.individual, full_curves.individual)
            if "memory_limit" in limits and options:
                np.testing.assert_allclose(curves.average, full_curves.average, rtol=0, atol=1e-13)
            else:
                np.testing.assert_array_equal(curves.average, full_curves.average)
    assert reports[-1] == (len(rows), len(rows)) and len(reports) > 3
    with pytest.raises(MemoryError, match=r"memory_limit is .* or use fewer rows of X or a smaller grid"):
        partial_dependence(model, rows, 2, kind="individual", memory_limit="3MB")


def test_scikit_learns_display() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    case = fitted("sklearn histograms, categories")
    complete = case.X.dropna()
    for features in ("x", "colour", ("x", "z")):
        curves = partial_dependence(case.model, complete, features, grid_resolution=10)
        display = scikit_learns_display(curves)
        drawn = (
            display.bars_
            if features == "colour"
            else display.lines_
            if features == "x"
            else display.contours_
        )
        assert drawn[0, 0] is not None
    rows, y = data("number")
    model = RandomForestRegressor(5, random_state=0).fit(rows, y)
    ours, theirs = (
        partial_dependence(model, rows, 0),
        PartialDependenceDisplay.from_estimator(model, rows, [0]),
    )
    np.testing.assert_allclose(ours.deciles[0], theirs.deciles[0])


# Errors


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"features": (0, 1, 2)}, ValueError, "one feature or two, not 3"),
        ({"features": []}, ValueError, "one feature or two, not 0"),
        ({"features": (1, 1)}, ValueError, "'x1' twice"),
        ({"features": 10}, ValueError, "features: column 10 is out of range for 10 columns"),
        ({"features": -1}, ValueError, "features: column -1 is out of range"),
        ({"features": "bmi"}, ValueError, "features: there is no feature 'bmi', only 'x0'"),
        ({"features": [True]}, TypeError, "features: True is neither a name nor a position"),
        ({"kind": "curve"}, ValueError, "kind must be"),
        ({"model_output": "log_loss"}, ValueError, "model_output must be"),
        ({"model_output": "probability"}, ValueError, "needs a classifier"),
        ({"percentiles": 0.5}, ValueError, "percentiles must be two numbers"),
        ({"percentiles": (0.5, 0.5)}, ValueError, "percentiles must be ascending"),
        ({"features": 2, "percentiles": (0.5, 0.5 + 1e-12)}, ValueError, "too close to each other"),
        ({"grid_resolution": 1}, ValueError, "grid_resolution must be at least 2"),
        ({"grid_resolution": "all"}, TypeError, "an int or 'exact', not 'all'"),
        ({"custom_values": {3: [1]}}, ValueError, "'x3', which is not among the features"),
        ({"custom_values": {0: ["a"]}}, ValueError, "custom_values of 'x0' must be numbers"),
        ({"custom_values": {"x0": [1], 0: [2]}}, ValueError, "custom_values has 'x0' twice"),
        ({"custom_values": {0: [[1]]}}, ValueError, "must be a list of values"),
        ({"custom_values": {0: [np.inf]}}, ValueError, "infinity"),
        (
            {"sample_weight": [1, 2]},
            ValueError,
            "sample_weight must have one entry for each of the 442 rows of X",
        ),
        ({"sample_weight": -np.ones(442)}, ValueError, "sample_weight must be finite and not negative"),
        ({"sample_weight": np.zeros(442)}, ValueError, "sample_weight is zero for all rows"),
        ({"sample_weight": np.ma.masked_all(442)}, TypeError, "sample_weight is a masked array"),
        ({"categorical_features": "bmi"}, ValueError, "categorical_features: there is no feature 'bmi'"),
        ({"categorical_features": [True]}, ValueError, "mask must have 10 elements"),
        ({"X": X[:0]}, ValueError, "X has no rows"),
        ({"X": X[:, :3]}, ValueError, "X has 3 features, but the model expects 10"),
        ({"n_jobs": 0}, ValueError, "n_jobs"),
        ({"memory_limit": "lots"}, ValueError, "memory_limit must be bytes"),
        ({"progress": 3}, TypeError, "progress must be"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], error: type[Exception], message: str) -> None:
    model = RandomForestRegressor(2, max_depth=3, random_state=0).fit(X, Y)
    arguments = {"X": X, "features": 0} | change
    with pytest.raises(error, match=message):
        partial_dependence(model, **arguments)


def test_x_on_a_gpu() -> None:
    class OnGpu:
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {"shape": (1, 10), "typestr": "<f8", "data": (0, False), "version": 3}

    model = RandomForestRegressor(2, random_state=0).fit(X, Y)
    with pytest.raises(TypeError, match="computed on the CPU, but X is on a GPU: copy it to the host"):
        partial_dependence(model, OnGpu(), 0)


def test_refused_models_and_columns() -> None:
    frame = library("pandas").DataFrame(X, columns=[f"c{i}" for i in range(10)])
    model = RandomForestRegressor(2, random_state=0).fit(frame, Y)
    with pytest.raises(ValueError, match="same order"):
        partial_dependence(model, frame.iloc[:, ::-1], "c1")
    from sklearn.linear_model import LinearRegression

    with pytest.raises(UnsupportedModelError):
        partial_dependence(LinearRegression().fit(X, Y), X, 0)
