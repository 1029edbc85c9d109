"""Owen values of every family against the definition and against shap, and refusals."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from itertools import combinations
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import catboost_ctrs
from helpers.ensembles import leaf_scale
from helpers.families import (
    FAMILIES,
    forest,
    frame_with_categories,
    library,
    raw_prediction,
    regressor,
    with_categories,
)
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import TreeExplainer, explain, reference
from skshapgpu.adapters import adapt
from skshapgpu.batches import BatchExplainer, explain_batches
from skshapgpu.batches.schema_explainer import SchemaExplainer
from skshapgpu.displays import ShapWaterfallDisplay

pd = pytest.importorskip("pandas")
COLUMNS = ["day", "north", "rain", "west", "week", "wind", "hour"]
GROUPS = {"place": ["west", "north"], "time": ["hour", "day", "week"]}
#: Number of the group of each column.
GROUP_OF = np.array([0, 1, 2, 1, 0, 3, 0])


def data(n_rows: int = 300) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(5)
    X = pd.DataFrame(rng.normal(size=(n_rows, 7)).round(2), columns=COLUMNS)
    y = 5 * (X["north"] > 0) * (X["west"] > 0) * (X["rain"] > -1)
    return X, np.asarray(1e3 + y + X["day"] * (X["hour"] > 0) * (X["wind"] > 0) + X["week"])


X, Y = data()


def model_of(family: str) -> Any:
    return (forest(10, 6) if family == "sklearn" else regressor(family)).fit(X, Y)


def owen_values(
    predict: Callable[[Any], np.ndarray], rows: Any, background: Any, groups: list[list[str]]
) -> np.ndarray:
    """Compute interventional Owen values from predictions, over all sets of groups and of their columns."""

    def subsets(players: list[Any]) -> list[tuple[tuple[Any, ...], float]]:
        n = len(players)
        return [
            (chosen, factorial(size) * factorial(n - size) / factorial(n + 1))
            for size in range(n + 1)
            for chosen in combinations(players, size)
        ]

    cached: dict[frozenset[str], np.ndarray] = {}

    def worth(known: frozenset[str]) -> np.ndarray:
        if known not in cached:
            mixed = background.iloc[np.tile(np.arange(len(background)), len(rows))].reset_index(drop=True)
            theirs = rows.iloc[np.repeat(np.arange(len(rows)), len(background))].reset_index(drop=True)
            mixed = pd.concat([(theirs if name in known else mixed)[[name]] for name in rows], axis=1)
            cached[known] = np.asarray(predict(mixed), float).reshape(len(rows), -1).mean(axis=1)
        return cached[known]

    values = np.zeros(rows.shape)
    for group in groups:
        for name in group:
            others = [other for other in groups if other is not group]
            for chosen, weight in subsets(others):
                for own, share in subsets([other for other in group if other != name]):
                    known = frozenset(own).union(*chosen)
                    gain = worth(known | {name}) - worth(known)
                    values[:, list(rows).index(name)] += weight * share * gain
    return values


MEMBERS = [["day", "week", "hour"], ["north", "west"], ["rain"], ["wind"]]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_with_background_data(family: str) -> None:
    model = model_of(family)
    expected = owen_values(lambda rows: raw_prediction(model, rows), X[:8], X[50:60], MEMBERS)
    explainer = TreeExplainer(model, X[50:60], feature_groups=GROUPS, precision="double")
    found = explainer.explain(X[:8], index="OV")
    scale = np.abs(expected).max()
    tolerance = 1e-10 * scale
    if family == "xgboost":  # which predicts in single precision
        tolerance = 4 * np.spacing(np.float32(Y.max()))
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=tolerance)
    assert found.feature_names == tuple(COLUMNS) and found.index == "OV" and found.group_columns is None
    pd.testing.assert_frame_equal(found.data.reset_index(drop=True), X[:8])
    of_groups = found.sum_by(GROUPS)
    np.testing.assert_allclose(of_groups.values, explainer.explain(X[:8]).values, rtol=0, atol=1e-9)
    assert np.abs(explain(model, X[:8], data=X[50:60]).values - expected).max() > 0.01 * scale


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("precision", "tolerance"), [("double", 1e-10), ("single", 5e-6)])
def test_every_family_path_dependent(family: str, precision: str, tolerance: float) -> None:
    model = model_of(family)
    ensemble = adapt(model).ensemble
    rows = X[:20].to_numpy(ensemble.x_dtype)
    expected = reference.path_dependent(ensemble, rows, index="OV", player_groups=GROUP_OF).values[:, 0]
    for algorithm in ("auto", "quadrature"):
        found = explain(
            model, X[:20], feature_groups=GROUPS, precision=precision, algorithm=algorithm, index="OV"
        )
        np.testing.assert_allclose(found.values, expected, rtol=0, atol=tolerance * leaf_scale(ensemble)[0])
        assert found.additivity_error is not None


@pytest.mark.parametrize("family", ["sklearn", "xgboost", "lightgbm"])
def test_categories_and_missing_values(family: str) -> None:
    library(family)
    frame, y = frame_with_categories()
    model = with_categories(family, frame, y)
    expected = owen_values(
        lambda rows: raw_prediction(model, rows),
        frame[:15],
        frame[40:60],
        [["size", "color"], *([name] for name in frame if name not in ("size", "color"))],
    )
    found = explain(
        model,
        frame[:15],
        data=frame[40:60],
        feature_groups={"s": ["size", "color"]},
        precision="double",
        index="OV",
    )
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_by_hand() -> None:
    """Three columns must all be 1: a group of two columns has 1/2, which its columns divide evenly."""
    rows = np.array(np.meshgrid([0, 1], [0, 1], [0, 1])).reshape(3, -1).T.astype(float)
    model = DecisionTreeRegressor().fit(rows, rows.prod(axis=1))
    found = explain(
        model, np.ones((1, 3)), data=np.zeros((1, 3)), feature_groups={"both": [0, 2]}, index="OV"
    )
    np.testing.assert_allclose(found.values, [[1 / 4, 1 / 2, 1 / 4]], rtol=1e-6)


def test_shap_partition_explainer() -> None:
    """shap's tree of two levels, with pairs of columns below the root, has the coalitions of Owen values."""
    shap = pytest.importorskip("shap")
    model = forest(5, 5).fit(X[COLUMNS[:4]].to_numpy(), Y)
    rows, background = X[COLUMNS[:4]].to_numpy(), X[COLUMNS[:4]][50:51].to_numpy()
    clustering = np.array([[0, 1, 0.2, 2], [2, 3, 0.3, 2], [4, 5, 1.0, 4]])
    masker = shap.maskers.Partition(background, clustering=clustering)
    theirs = shap.explainers.Partition(model.predict, masker)(rows[:5], max_evals=500)
    found = explain(
        model,
        rows[:5],
        data=background,
        feature_groups={"a": [0, 1], "b": [2, 3]},
        precision="double",
        index="OV",
    )
    np.testing.assert_allclose(found.values, theirs.values, rtol=0, atol=1e-6)
    apart = explain(model, rows[:5], data=background).values
    assert np.abs(apart - theirs.values).max() > 0.01


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("data", [None, X[:40]])
def test_many_rows_have_tables(data: Any) -> None:
    """For many rows, the explainer builds tables, whose values equal the values of walks and of few rows."""
    model = forest(30, 6).fit(X, Y)
    many = pd.concat([X] * 10, ignore_index=True)
    explainer = TreeExplainer(model, data, feature_groups=GROUPS, precision="double", expected_rows=10**6)
    found = explainer.explain(many, index="OV")
    assert any(
        kind.index == "OV" and intervals.most_entries for kind, intervals in explainer._compiled.table_sizes
    )
    few = explain(model, X[:30], data=data, feature_groups=GROUPS, precision="double", index="OV")
    np.testing.assert_allclose(found.values[:30], few.values, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(found.values[:300], found.values[-300:])


def test_outputs_pipelines_and_used_columns() -> None:
    frame = pd.DataFrame(
        {
            "age": np.random.default_rng(1).normal(40, 10, 200).round(),
            "city": np.random.default_rng(2).choice(["Rome", "Oslo", "Bonn", "Nice"], 200),
            "size": np.random.default_rng(3).normal(size=200),
        }
    )
    y = np.digitize(frame["age"] * frame["city"].isin(["Rome", "Bonn"]) + 9 * frame["size"], [0, 20])
    steps = make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), ["size", "age"]))
    model = make_pipeline(steps, RandomForestClassifier(5, max_depth=4, random_state=0)).fit(frame, y)
    explainer = TreeExplainer(model, feature_groups="input", precision="double")
    found = explainer.explain(frame, index="OV")
    assert found.shape == (200, 6, 3)
    np.testing.assert_allclose(
        found.sum_by("input").values, explainer.explain(frame).values, rtol=0, atol=1e-12
    )
    constant = DecisionTreeRegressor(max_depth=1).fit(X, np.asarray(X["west"] > 0, float))
    used = explain(constant, X, feature_groups=GROUPS, columns="used", index="OV")
    assert used.feature_names == ("west",) and used.feature_indices.tolist() == [3]
    full_explanation = explain(constant, X, feature_groups=GROUPS, index="OV")
    np.testing.assert_array_equal(full_explanation.values[:, [3]], used.values)
    assert not np.delete(full_explanation.values, 3, axis=1).any()


@pytest.mark.usefixtures("on_cpu")
def test_ctrs_are_shared_by_groups_first() -> None:
    """CTRs of columns of several groups give each group the same fraction, as for its Shapley value."""
    library("catboost")
    frame = catboost_ctrs.rows()
    model = catboost_ctrs.fit(frame=frame, iterations=10)
    groups = {"first": ["colour", "shape"], "rest": ["number", "letter", "x", "z"]}
    adapted = adapt(model)
    explainer = TreeExplainer(model, feature_groups=groups, precision="double")
    found = explainer.explain(frame, index="OV")
    scale = np.abs(found.values).max()
    sums = found.sum_by(groups)
    np.testing.assert_allclose(sums.values, explainer.explain(frame).values, rtol=0, atol=1e-10 * scale)
    group_of = [int(name not in groups["first"]) for name in frame]
    members = [sorted({group_of[column] for column in columns}) for columns in adapted.shared]
    assert [0, 1] in members
    of_players = [*group_of, *(2 if len(each) > 1 else each[0] for each in members)]
    rows = catboost_ctrs.encoded(adapted, frame[:10])
    values = reference.path_dependent(adapted.ensemble, rows, index="OV", player_groups=of_players).values[
        :, 0
    ]
    expected = values[:, : len(group_of)].copy()
    for number, columns in enumerate(adapted.shared):
        for column in columns:
            n_alike = sum(group_of[other] == group_of[column] for other in columns)
            share = 1 / (len(members[number]) * n_alike)
            expected[:, column] += share * values[:, len(group_of) + number]
    np.testing.assert_allclose(found.values[:10], expected, rtol=0, atol=1e-10 * scale)


def test_files_pickles_threads_and_displays(tmp_path: Path) -> None:
    explainer = TreeExplainer(model_of("sklearn"), feature_groups=GROUPS)
    expected = explainer.explain(X, index="OV")
    explainer.save(tmp_path / "explainer.npz")
    for other in (TreeExplainer.load(tmp_path / "explainer.npz"), pickle.loads(pickle.dumps(explainer))):
        np.testing.assert_array_equal(other.explain(X, index="OV").values, expected.values)
    threads = TreeExplainer(model_of("sklearn"), feature_groups=GROUPS, n_jobs=2)
    np.testing.assert_array_equal(threads.explain(X, index="OV").values, expected.values)
    pytest.importorskip("matplotlib")
    display = ShapWaterfallDisplay.from_explanation(expected, row=0)
    np.testing.assert_array_equal(display.values, expected.values[0])


@pytest.mark.usefixtures("on_cpu")
def test_little_memory() -> None:
    expected = explain(model_of("sklearn"), X, feature_groups=GROUPS, index="OV")
    limited = explain(model_of("sklearn"), X, feature_groups=GROUPS, index="OV", memory_limit="20 MB")
    np.testing.assert_array_equal(limited.values, expected.values)


def test_batches() -> None:
    arrow = pytest.importorskip("pyarrow")
    model = model_of("sklearn")
    batch = arrow.RecordBatch.from_pandas(X.assign(id=range(len(X))), preserve_index=False)
    options: dict[str, Any] = {"keep": ["id"], "index": "OV", "feature_groups": GROUPS}
    expected = explain(model, X, feature_groups=GROUPS, index="OV")
    found = BatchExplainer(model, **options)(batch)
    assert found.column_names == ["id", *COLUMNS]
    np.testing.assert_array_equal(np.column_stack(found.columns[1:]), expected.values)
    about = json.loads(found.schema.metadata[b"skshapgpu"])
    assert about["index"] == "OV" and about["feature_names"] == COLUMNS
    strongest = BatchExplainer(model, reasons=1, **options)(batch)
    assert strongest.column_names == ["id", "feature_1", "value_1", "owen_1"]
    places = np.abs(expected.values).argmax(axis=1)
    assert strongest["feature_1"].to_pylist() == [COLUMNS[place] for place in places]
    np.testing.assert_array_equal(strongest["owen_1"], expected.values[np.arange(len(X)), places])
    signed = BatchExplainer(model, reasons=1, by_sign=True, **options)(batch)
    assert "for_owen_1" in signed.column_names and "against_value_1" in signed.column_names
    for row, name, value in zip(range(len(X)), *(signed[n].to_pylist() for n in ("for_1", "for_value_1"))):
        assert name is None or float(value) == X[name][row]
    with pytest.raises(ValueError, match="pass feature_groups="):
        BatchExplainer(model, index="OV")


def test_chunks_of_arrays() -> None:
    pytest.importorskip("pyarrow")
    batches = BatchExplainer(model_of("sklearn"), index="OV", feature_groups=GROUPS)
    explainer = SchemaExplainer(batches._arguments, None)
    assert explainer.row_shape == explainer.values(X[:3]).shape[1:] == (7,)


def test_files_in_batches(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    model, path = model_of("sklearn"), tmp_path / "X.parquet"
    X.to_parquet(path)
    explain_batches(
        model, path, tmp_path / "values.parquet", feature_groups=GROUPS, index="OV", batch_size=64
    )
    found = pd.read_parquet(tmp_path / "values.parquet")
    pd.testing.assert_frame_equal(
        found, explain(model, X, feature_groups=GROUPS, index="OV").to_frame(), check_dtype=False, atol=1e-9
    )


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass feature_groups="),
        ({"feature_groups": "input"}, "the model has no such steps"),
        ({"feature_groups": GROUPS, "algorithm": "treeshap"}, "computes SHAP values only, not Owen values"),
        ({"feature_groups": GROUPS, "algorithm": "fast_v2"}, "and Banzhaf values only, not Owen values"),
        (
            {"feature_groups": GROUPS, "data": X[:9], "model_output": "response"},
            "are computed for the margin only",
        ),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    library("xgboost")
    import xgboost

    model = xgboost.XGBRegressor(n_estimators=3, objective="count:poisson").fit(X, Y - Y.min())
    with pytest.raises(ValueError, match=message):
        explain(model, X, index="OV", **options)
