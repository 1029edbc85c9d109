"""Groups of columns as features: values by the definition, for every family, result and kind of X."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import catboost_ctrs
from helpers.ensemble_model import EnsembleModel
from helpers.ensembles import leaf_scale, random_ensemble, random_rows
from helpers.families import (
    FAMILIES,
    forest,
    frame_with_categories,
    library,
    raw_prediction,
    regressor,
    values_by_definition,
    with_categories,
)
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import TreeExplainer, explain, explain_interactions, partial_dependence, reference
from skshapgpu.adapters import adapt
from skshapgpu.batches.fingerprint import fingerprint

pd = pytest.importorskip("pandas")

GROUPS = {"place": ["west", "north"], "time": ["hour", 0, "week"]}
NAMES = ("time", "place", "rain", "wind")
#: Columns of each feature, in the order of the features.
MEMBERS = (("day", "week", "hour"), ("north", "west"), ("rain",), ("wind",))


def data(n_rows: int = 300) -> tuple[Any, np.ndarray]:
    """Draw columns whose effects within a group and between groups are far from additive."""
    rng = np.random.default_rng(5)
    columns = ["day", "north", "rain", "west", "week", "wind", "hour"]
    X = pd.DataFrame(rng.normal(size=(n_rows, 7)).round(2), columns=columns)
    y = 5 * (X["north"] > 0) * (X["west"] > 0) * (X["rain"] > -1) + X["day"] * (X["hour"] > 0) * (
        X["wind"] > 0
    )
    return X, np.asarray(1e3 + y + X["week"])


X, Y = data()


def model_of(family: str) -> Any:
    return (forest(10, 6) if family == "sklearn" else regressor(family)).fit(X, Y)


@pytest.mark.parametrize("family", FAMILIES)
def test_interventional_values_are_those_of_the_models_predictions(family: str) -> None:
    model = model_of(family)
    expected = values_by_definition(lambda rows: raw_prediction(model, rows), X[:12], X[50:70], MEMBERS)
    explanation = explain(model, X[:12], data=X[50:70], feature_groups=GROUPS, precision="double")
    assert explanation.feature_names == NAMES and explanation.data.rows.equals(X[:12])
    assert explanation.group_columns == ((0, 4, 6), (1, 3), (2,), (5,))
    scale = np.abs(expected).max()
    tolerance = 1e-10 * scale
    if family == "xgboost":  # which predicts in single precision
        tolerance = 2 * np.spacing(np.float32(Y.max()))
    np.testing.assert_allclose(explanation.values, expected, rtol=0, atol=tolerance)
    apart = explain(model, X[:12], data=X[50:70]).sum_by({"time": MEMBERS[0], "place": MEMBERS[1]})
    assert apart.feature_names == NAMES and np.abs(apart.values - expected).max() > 0.01 * scale


@pytest.mark.parametrize("family", ["sklearn", "xgboost", "lightgbm"])
def test_categories_and_missing_values(family: str) -> None:
    library(family)
    frame, y = frame_with_categories()
    model = with_categories(family, frame, y)
    groups = {"shape": ["size", "color"]}
    expected = values_by_definition(
        lambda rows: raw_prediction(model, rows), frame[:15], frame[40:60], [["size", "color"], ["weight"]]
    )
    explanation = explain(model, frame[:15], data=frame[40:60], feature_groups=groups, precision="double")
    assert explanation.feature_names == ("shape", "weight")
    np.testing.assert_allclose(explanation.values, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("precision", "tolerance"), [("double", 1e-10), ("single", 5e-6)])
def test_path_dependent_values(family: str, precision: str, tolerance: float) -> None:
    model = model_of(family)
    ensemble = replace(adapt(model).ensemble, player=[0, 1, 2, 1, 0, 3, 0])
    rows = X[:20].to_numpy(ensemble.x_dtype)
    scale = tolerance * leaf_scale(ensemble)[0]
    explainer = TreeExplainer(model, feature_groups=GROUPS, precision=precision)
    expected, base_value, _ = reference.path_dependent(ensemble, rows)
    np.testing.assert_allclose(explainer.shap_values(X[:20]), expected[:, 0], rtol=0, atol=scale)
    np.testing.assert_allclose(explainer.expected_value, base_value[0], rtol=1e-12)
    banzhaf = reference.path_dependent(ensemble, rows, index="BV").values[:, 0]
    np.testing.assert_allclose(explainer.explain(X[:20], index="BV").values, banzhaf, rtol=0, atol=scale)
    for index in ("SII", "STII", "BII"):
        matrices = reference.path_dependent(ensemble, rows, index=index).values[:, 0]
        explanation = explainer.explain_interactions(X[:20], index=index)
        assert explanation.feature_names == NAMES and explanation.group_columns == explainer.group_columns
        np.testing.assert_allclose(explanation.matrices(), matrices, rtol=0, atol=scale)
    pair = explainer.explain_interactions(X[:20], interactions=[("wind", "time")])
    matrices = reference.path_dependent(ensemble, rows, index="SII").values[:, 0]
    np.testing.assert_allclose(pair.values[:, 0], 2 * matrices[:, 0, 3], rtol=0, atol=scale)
    assert pair.interaction_names == ("wind x time",)


def test_by_hand() -> None:
    """Three columns must all be 1: each column has 1/3, but two columns in a group have 1/2 together."""
    rows = np.array(np.meshgrid([0, 1], [0, 1], [0, 1])).reshape(3, -1).T.astype(float)
    model = DecisionTreeRegressor().fit(rows, rows.prod(axis=1))
    ones, zeros = np.ones((1, 3)), np.zeros((1, 3))
    np.testing.assert_allclose(explain(model, ones, data=zeros).values, [[1 / 3] * 3], rtol=1e-6)
    explanation = explain(model, ones, data=zeros, feature_groups={"both": [0, 2]})
    np.testing.assert_allclose(explanation.values, [[1 / 2, 1 / 2]], rtol=1e-6)
    assert explanation.feature_names == ("both", "x1")


def test_random_trees_and_random_groups() -> None:
    """The models have categories, missing values, several outputs, repeated and unused features."""
    n_pairs = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        n_features = int(rng.integers(3, 9))
        ensemble = random_ensemble(
            rng,
            n_features=n_features,
            n_used=int(rng.integers(1, n_features + 1)),
            n_outputs=int(rng.integers(1, 4)),
            vector=bool(rng.integers(2)),
            categorical=bool(rng.integers(2)),
            zero_missing=bool(rng.integers(2)),
        )
        rows = random_rows(rng, ensemble, 9)
        drawn = rng.integers(0, n_features, n_features)
        player = np.unique(drawn, return_inverse=True)[1]
        of_first = np.unique(player, return_index=True)[1]
        order = np.argsort(of_first)  # groups stand where their first columns do
        groups = {f"group {p}": np.flatnonzero(player == p).tolist() for p in rng.permutation(len(order))}
        game = replace(ensemble, player=np.argsort(order)[player])
        explainer = TreeExplainer(EnsembleModel(ensemble), feature_groups=groups, precision="double")
        tolerance = 1e-10 * leaf_scale(ensemble)[:, np.newaxis]
        expected = reference.path_dependent(game, rows).values
        explanation = explainer.explain(rows)
        assert explanation.feature_names == tuple(f"group {p}" for p in order)
        values = explanation.values.reshape(9, len(order), -1).swapaxes(1, 2)
        assert (np.abs(values - expected) <= tolerance).all()
        against = TreeExplainer(EnsembleModel(ensemble), rows[4:], feature_groups=groups, precision="double")
        expected = reference.interventional(game, rows[:4], rows[4:]).values
        values = against.shap_values(rows[:4]).reshape(4, len(order), -1).swapaxes(1, 2)
        assert (np.abs(values - expected) <= tolerance).all()
        if len(order) > 1:
            pairs = explainer.shap_interaction_values(rows[:3])
            matrices = reference.path_dependent(game, rows[:3], index="SII").values
            pairs = pairs.reshape(3, len(order), len(order), -1).transpose(0, 3, 1, 2)
            assert (np.abs(pairs - matrices) <= tolerance[..., np.newaxis]).all()
            n_pairs += 1
    assert n_pairs > 100


def test_groups_of_one_column_change_no_bit() -> None:
    model = model_of("sklearn")
    renamed = explain(model, X, feature_groups={name.upper(): [name] for name in X})
    np.testing.assert_array_equal(renamed.values, explain(model, X).values)
    assert renamed.feature_names == tuple(name.upper() for name in X)
    np.testing.assert_array_equal(explain(model, X, feature_groups={}).values, explain(model, X).values)


def test_one_group_of_all_columns_has_the_whole_margin() -> None:
    model = model_of("sklearn")
    explanation = explain(model, X, feature_groups={"everything": list(X)}, precision="double")
    np.testing.assert_allclose(
        explanation.values[:, 0], model.predict(X) - explanation.base_values, rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("algorithm", ["auto", "quadrature", "fast_v2", "treeshap", "fast_v1"])
def test_algorithms_agree(algorithm: str) -> None:
    model = model_of("sklearn")
    options: dict[str, Any] = {"feature_groups": GROUPS, "precision": "double", "device": "cpu"}
    expected = explain(model, X, algorithm="quadrature", **options).values
    values = explain(model, X, algorithm=algorithm, **options).values
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9)


def test_used_groups() -> None:
    y = np.asarray(X["north"] + 3 * (X["west"] > 0) * X["wind"])
    model = RandomForestRegressor(5, max_depth=2, random_state=0).fit(X, y)
    full_explanation = explain(model, X, feature_groups=GROUPS)
    used = np.flatnonzero(np.abs(full_explanation.values).max(axis=0) > 0)
    assert 0 < len(used) < 4
    some = explain(model, X, feature_groups=GROUPS, columns="used")
    assert some.feature_names == tuple(NAMES[i] for i in used) and some.feature_indices is None
    assert some.group_columns == tuple(full_explanation.group_columns[i] for i in used)
    np.testing.assert_array_equal(some.values, full_explanation.values[:, used])


def test_selection_keeps_the_columns_of_groups() -> None:
    explanation = explain(model_of("sklearn"), X, feature_groups=GROUPS)
    part = explanation[:5, ["rain", "time"]]
    assert part.feature_names == ("rain", "time") and part.group_columns == ((2,), (0, 4, 6))
    np.testing.assert_array_equal(part.values, explanation.values[:5, [2, 0]])
    both = explanation.sum_by({"sky": ["rain", "wind"]})
    assert both.feature_names == ("time", "place", "sky") and both.group_columns is None
    pairs = explain_interactions(model_of("sklearn"), X[:5], feature_groups=GROUPS)
    assert pairs[2:, [0]].group_columns == pairs.group_columns == explanation.group_columns


# Pipelines


def encoded_pipeline(model: Any) -> tuple[Any, Any, np.ndarray]:
    """Fit a pipeline that makes dummy columns of two columns, and reorders all columns."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, 200).round(),
            "city": rng.choice(["Rome", "Oslo", "Bonn", "Nice"], 200),
            "size": rng.normal(size=200),
            "kind": rng.choice(["a", "b", "c"], 200),
        }
    )
    y = (
        700.0
        + frame["age"] * frame["city"].isin(["Rome", "Bonn"])
        + 9 * (frame["kind"] == "b") * frame["size"]
    )
    steps = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["kind", "city"]), (StandardScaler(), ["size", "age"])
    )
    return make_pipeline(steps, model).fit(frame, np.asarray(y)), frame, np.asarray(y)


def test_input_columns_are_the_groups_of_a_pipeline() -> None:
    model, frame, _ = encoded_pipeline(RandomForestRegressor(10, max_depth=5, random_state=0))
    expected = values_by_definition(model.predict, frame[:10], frame[50:70])
    explanation = explain(model, frame[:10], data=frame[50:70], feature_groups="input", precision="double")
    assert explanation.feature_names == ("kind", "city", "size", "age")
    np.testing.assert_allclose(explanation.values, expected[:, [3, 1, 2, 0]], rtol=0, atol=1e-9)
    pd.testing.assert_frame_equal(explanation.data, frame[:10][["kind", "city", "size", "age"]])
    again = explanation.sum_by("input")
    assert again.feature_names == explanation.feature_names
    np.testing.assert_array_equal(again.values, explanation.values)


def test_named_dummies_of_a_pipeline() -> None:
    model, frame, _ = encoded_pipeline(RandomForestRegressor(10, max_depth=5, random_state=0))
    names = [f"onehotencoder__city_{city}" for city in ("Oslo", "Rome", "Nice", "Bonn")]
    kinds = [f"onehotencoder__kind_{kind}" for kind in "abc"]
    full_explanation = explain(model, frame, feature_groups="input", precision="double")
    explanation = explain(model, frame, feature_groups={"kind": kinds, "city": names}, precision="double")
    assert explanation.feature_names == ("kind", "city", "standardscaler__size", "standardscaler__age")
    np.testing.assert_allclose(explanation.values, full_explanation.values, rtol=0, atol=1e-10)
    assert explanation.data.shape == (len(frame), 4) and explanation.sum_by("input").feature_names == (
        "kind",
        "city",
        "size",
        "age",
    )
    across = explain(model, frame, feature_groups={"both": [*kinds, *names]})
    with pytest.raises(ValueError, match="grouped across input columns"):
        across.sum_by("input")


def test_pipeline_and_sums_of_columns_differ_by_more_than_a_percent() -> None:
    model, frame, _ = encoded_pipeline(RandomForestRegressor(10, max_depth=5, random_state=0))
    all_values = explain(model, frame, feature_groups="input").values
    summed = explain(model, frame).sum_by("input").values
    assert np.abs(all_values - summed).max() > 0.01 * np.abs(all_values).max()


def test_several_outputs() -> None:
    labels = np.digitize(Y, np.quantile(Y, [0.3, 0.6]))
    model = RandomForestClassifier(5, max_depth=4, random_state=0).fit(X, labels)
    explanation = explain(model, X, feature_groups=GROUPS)
    assert explanation.shape == (300, 4, 3) and explanation.output_names == (0, 1, 2)
    np.testing.assert_allclose(
        explanation.base_values + explanation.values.sum(axis=1), model.predict_proba(X), atol=1e-6
    )


def test_ctrs_within_a_group_and_across_groups() -> None:
    """A CTR of columns of one group belongs to it; other CTRs are shared by the groups that they combine."""
    library("catboost")
    frame = catboost_ctrs.rows()
    model = catboost_ctrs.fit(frame=frame, iterations=10)
    adapted, margin = adapt(model), catboost_ctrs.raw(model, frame)[:, 0]
    scale = np.abs(margin).max()
    full_explanation = explain(model, frame, feature_groups={"all": list(frame)}, precision="double")
    np.testing.assert_allclose(
        full_explanation.values[:, 0] + full_explanation.base_values, margin, rtol=0, atol=1e-10 * scale
    )
    groups = {
        "first": ["colour", "shape"],
        "rest": [name for name in frame if name not in ("colour", "shape")],
    }
    explanation = explain(model, frame, feature_groups=groups, precision="double")
    assert explanation.feature_names == ("first", "rest")
    group_of = [int(name not in groups["first"]) for name in frame]
    combined = [sorted({group_of[column] for column in columns}) for columns in adapted.shared]
    assert [1] in combined and [0, 1] in combined
    player_of = [*group_of, *(2 if len(of_both) > 1 else of_both[0] for of_both in combined)]
    game = replace(adapted.ensemble, player=np.array(player_of)[adapted.ensemble.player])
    values = reference.path_dependent(game, catboost_ctrs.encoded(adapted, frame[:10])).values
    expected = values[:, 0, :2] + values[:, 0, 2:] / 2
    np.testing.assert_allclose(explanation.values[:10], expected, rtol=0, atol=1e-10 * scale)
    apart = explain(model, frame[:10], precision="double").sum_by(groups)
    assert np.abs(apart.values - expected).max() > 1e-3 * np.abs(expected).max()


# Files, copies, refusals


def test_files_and_pickles(tmp_path: Path) -> None:
    explainer = TreeExplainer(model_of("sklearn"), X[:30], feature_groups=GROUPS, columns="used")
    expected = explainer.explain(X)
    explainer.save(tmp_path / "explainer.npz")
    for other in (TreeExplainer.load(tmp_path / "explainer.npz"), pickle.loads(pickle.dumps(explainer))):
        explanation = other.explain(X)
        np.testing.assert_array_equal(explanation.values, expected.values)
        assert explanation.feature_names == NAMES and explanation.group_columns == expected.group_columns
        assert fingerprint(other) == fingerprint(explainer)
    assert "4 groups of features" in repr(explainer)
    assert fingerprint(TreeExplainer(model_of("sklearn"), X[:30], columns="used")) != fingerprint(explainer)
    renamed = {"here": GROUPS["place"], "time": GROUPS["time"]}
    other = TreeExplainer(model_of("sklearn"), X[:30], feature_groups=renamed, columns="used")
    assert fingerprint(other) != fingerprint(explainer)


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ("columns", ValueError, "feature_groups must be 'input' or map names"),
        ([["day", "hour"]], TypeError, "feature_groups must be 'input' or map names"),
        ({1: ["day"]}, TypeError, "the name 1 is not a string"),
        ({"time": "day"}, ValueError, "'time' must be a list of columns, not 'day'"),
        ({"time": []}, ValueError, "must be a list of columns"),
        ({"time": np.array([], int)}, ValueError, "must be a list of columns"),
        ({"time": (name for name in ("day", "hour"))}, ValueError, "must be a list of columns"),
        ({"time": None}, ValueError, "must be a list of columns"),
        (
            {"time": ["day", "Hour"]},
            ValueError,
            "feature_groups, 'time': there is no column 'Hour', only 'day'",
        ),
        ({"time": ["day", 7]}, ValueError, "feature_groups, 'time': column 7 is out of range for 7 columns"),
        ({"time": [-1]}, ValueError, "column -1 is out of range"),
        ({"time": ["day", 1.0]}, TypeError, "feature_groups, 'time': 1.0 is neither a name nor a position"),
        ({"time": [True]}, TypeError, "True is neither"),
        ({"time": ["day", 0]}, ValueError, "column 'day' is twice in 'time'"),
        ({"time": ["day"], "date": ["week", "day"]}, ValueError, "'day' is in 'time' and in 'date'"),
        ({"rain": ["day", "hour"]}, ValueError, "'rain' is the name of a column that is not in the group"),
        ("input", ValueError, "the model has no such steps: pass the whole pipeline"),
    ],
)
def test_wrong_groups(groups: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TreeExplainer(model_of("sklearn"), feature_groups=groups)


def test_names_with_blanks() -> None:
    """LightGBM replaces blanks in the names of a data frame by underscores; either name selects a column."""
    lightgbm = library("lightgbm")
    X, y = data()
    X = X.rename(columns={"day": "day of month", "rain": "rain_today"})
    model = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(X, y)
    right = explain(model, X, feature_groups={"both": ["day_of_month", "rain_today"]})
    for names in (["day of month", "rain_today"], ["day of month", "rain today"]):
        explanation = explain(model, X, feature_groups={"both": names})
        assert explanation.group_columns == right.group_columns
        np.testing.assert_array_equal(explanation.values, right.values)
        curve = partial_dependence(model, X, "both", feature_groups={"both": names}, grid_resolution="exact")
        assert curve.average.shape[1] == len(X.groupby(["day of month", "rain_today"]))
    # If names of columns differ only in this, only the exact name selects a column.
    two = make_pipeline(
        "passthrough", lightgbm.LGBMRegressor(n_estimators=2, verbose=-1).fit(X.to_numpy(), y)
    )
    frame = X.rename(columns={"day of month": "a b", "rain_today": "a_b"})
    with pytest.raises(ValueError, match="there is no column 'a  b', only "):
        partial_dependence(two, frame, "g", feature_groups={"g": ["a  b", "wind"]})


def test_a_group_may_have_the_name_of_its_column() -> None:
    explanation = explain(model_of("sklearn"), X, feature_groups={"day": ["day", "hour"]})
    assert explanation.feature_names == ("day", "north", "rain", "west", "week", "wind")


def test_input_columns_that_are_not_known() -> None:
    from sklearn.decomposition import PCA

    model = make_pipeline(PCA(3), forest(3, 3)).fit(X, Y)
    with pytest.raises(ValueError, match=r"input columns of the features are not known.*PCA"):
        TreeExplainer(model, feature_groups="input")


def test_gputreeshap_is_refused_by_name() -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"one player|GPU"):
        TreeExplainer(model_of("sklearn"), feature_groups=GROUPS, algorithm="gputreeshap").shap_values(X)
