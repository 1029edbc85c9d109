"""Numbers that stand for columns are positions in X as it is passed, even if steps change the columns."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_selection import RFE, SelectKBest, f_regression
from sklearn.inspection import partial_dependence as brute_force
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skshapgpu import (
    ShapDependenceDisplay,
    ShapInteractionTransformer,
    TreeExplainer,
    explain,
    explain_batches,
    explain_interactions,
    friedman_h,
    partial_dependence,
)
from skshapgpu.batches import BatchExplainer

mpl.use("Agg")


RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=(150, 4)) * [1, 10, 100, 1000]
Y = 1e4 + NUMBERS[:, 1] * 5 + NUMBERS[:, 3] * (NUMBERS[:, 1] > 0)
FRAME = pd.DataFrame(NUMBERS, columns=list("abcd"))
FRAME.insert(1, "city", RNG.choice(["Oslo", "Moss", "Voss"], 150))
FRAME["unused"] = RNG.choice(["x", "y"], 150)


def forest() -> RandomForestRegressor:
    return RandomForestRegressor(6, max_depth=5, random_state=0)


#: Keeps columns 1 and 3 of four.
SELECTED = RFE(forest(), n_features_to_select=2).fit(NUMBERS, Y)
CHOSEN = make_pipeline(SelectKBest(f_regression, k=2), forest()).fit(NUMBERS, Y)

#: These steps make columns in another order than X: d, b, then three of the city. They drop a, c and unused.
ENCODED = make_pipeline(
    make_column_transformer(("passthrough", ["d", "b"]), (OneHotEncoder(sparse_output=False), ["city"])),
    forest(),
).fit(FRAME, Y + 500 * (FRAME["city"] == "Oslo"))


def require_brute_force(actual: Any, model: Any, X: Any, features: Any, **options: Any) -> None:
    """Compare with scikit-learn, which predicts changed rows of X; the grids are the same."""
    theirs = brute_force(model, X, features, method="brute", **options)
    for ours, grid in zip(actual.grid_values, theirs["grid_values"], strict=True):
        np.testing.assert_array_equal(ours, grid)
    np.testing.assert_allclose(actual.average, theirs["average"], rtol=1e-10)


@pytest.mark.parametrize("model", [SELECTED, CHOSEN], ids=["RFE", "pipeline"])
@pytest.mark.parametrize("position", range(4))
def test_partial_dependence_of_each_column_of_x(model: Any, position: int) -> None:
    curves = partial_dependence(model, NUMBERS, position, grid_resolution=9)
    require_brute_force(curves, model, NUMBERS, [position], grid_resolution=9)
    assert (np.ptp(curves.average) > 0) == (position in (1, 3))
    # scikit-learn has custom_values since 1.7, so the averages here are those of the definition.
    other, custom = 3 - position, [-5.0, 0.0, 7.0]
    some = partial_dependence(
        model, NUMBERS, [position, other], custom_values={position: custom}, grid_resolution=5
    )
    grid = brute_force(model, NUMBERS, [other], method="brute", grid_resolution=5)["grid_values"][0]
    np.testing.assert_array_equal(some.grid_values[0], custom)
    np.testing.assert_array_equal(some.grid_values[1], grid)
    averages = np.empty((1, 3, 5))
    for i, j in np.ndindex(3, 5):
        rows = NUMBERS.copy()
        rows[:, position], rows[:, other] = custom[i], grid[j]
        averages[0, i, j] = model.predict(rows).mean()
    np.testing.assert_allclose(some.average, averages, rtol=1e-10)


@pytest.mark.parametrize("reorder", [list, reversed], ids=["as trained", "in another order"])
@pytest.mark.parametrize("name", ["a", "b", "d", "unused", "city"])
def test_columns_of_a_frame_in_any_order(name: str, reorder: Any) -> None:
    X = FRAME[list(reorder(FRAME.columns))]
    position = X.columns.get_loc(name)
    options: dict[str, Any] = {"grid_resolution": 9}
    if name in ("city", "unused"):
        options["categorical_features"] = [name]
    for ours in (position, np.int64(position)):
        curves = partial_dependence(ENCODED, X, ours, feature_groups="input", grid_resolution=9)
        require_brute_force(curves, ENCODED, X, [position], **options)
        assert curves.feature_names[curves.features[0]] == name
    if name == "city":
        message = "the steps make 3 columns: give their names, 'onehotencoder__city_Moss'"
        with pytest.raises(ValueError, match=message):
            partial_dependence(ENCODED, X, position)
    else:
        curves = partial_dependence(ENCODED, X, position, grid_resolution=9)
        require_brute_force(curves, ENCODED, X, [position], **options)
    for groups in (None, "input"):
        for wrong in (-1, 6):
            with pytest.raises(ValueError, match=f"column {wrong} is out of range for 6 columns"):
                partial_dependence(ENCODED, X, wrong, feature_groups=groups)


def test_masks_and_positions_of_categorical_features() -> None:
    whole = NUMBERS.round(-1)
    model = make_pipeline(SelectKBest(f_regression, k=2), forest()).fit(whole, Y)
    mask = np.array([True, True, False, False])
    moved = pd.Series(mask, index=["d", "c", "b", "a"])
    with pytest.raises(ValueError, match="the index of the mask must be the columns of X"):
        partial_dependence(model, whole, [1, 3], categorical_features=moved)
    for categorical in (mask, mask.tolist(), [0, 1], pd.Series(mask)):
        curves = partial_dependence(model, whole, (1, 3), categorical_features=categorical, grid_resolution=5)
        assert curves.is_categorical == (True, False)
        require_brute_force(curves, model, whole, [1, 3], categorical_features=mask, grid_resolution=5)
        lost = partial_dependence(model, whole, 0, categorical_features=categorical)
        assert lost.is_categorical == (True,) and np.ptp(lost.average) == 0
    with pytest.raises(ValueError, match="must have 4 elements, one for each column of X"):
        partial_dependence(model, whole, 1, categorical_features=[True, False])
    with pytest.raises(ValueError, match="the steps make 3 columns"):
        partial_dependence(ENCODED, FRAME, "passthrough__b", categorical_features=FRAME.columns == "city")


def test_a_display_of_a_column_that_the_steps_drop() -> None:
    from sklearn.inspection import PartialDependenceDisplay

    curves = partial_dependence(SELECTED, NUMBERS, 2)
    assert curves.features == (4 - 1,) and curves.feature_names[3] == "x2" and set(curves.deciles) == {3}
    names = curves.feature_names
    display = PartialDependenceDisplay(
        [curves], features=[curves.features], feature_names=names, target_idx=0, deciles=curves.deciles
    )
    assert np.ptp(display.plot().lines_[0, 0].get_ydata()) == 0
    options = {"grid_resolution": "exact", "kind": "individual", "centered": True}
    exact = partial_dependence(SELECTED, NUMBERS, 2, **options)
    assert exact.individual.shape == (1, 150, 2) and np.ptp(exact.individual, axis=2).max() == 0


def test_positions_of_columns_in_groups_are_refused() -> None:
    model = forest().fit(NUMBERS, Y)
    groups = {"first": [0, 1]}
    alone = partial_dependence(model, NUMBERS, 3, feature_groups=groups, grid_resolution=9)
    require_brute_force(alone, model, NUMBERS, [3], grid_resolution=9)
    with pytest.raises(ValueError, match="no feature by itself: give names, such as 'first'"):
        partial_dependence(model, NUMBERS, 1, feature_groups=groups)


def test_values_that_the_steps_change_need_names() -> None:
    """A grid by position would have scaled values, and values passed for it would be taken as scaled."""
    model = make_pipeline(StandardScaler(), SelectKBest(f_regression, k=2), forest()).fit(NUMBERS, Y)
    message = "of X, whose values the steps change: give the name .* 'x3', or feature_groups='input'"
    for options in ({"features": 3}, {"features": "x3", "custom_values": {3: [0, 1000]}}):
        with pytest.raises(ValueError, match=message):
            partial_dependence(model, NUMBERS, **options)
    curves = partial_dependence(model, NUMBERS, 3, feature_groups="input", grid_resolution=9)
    require_brute_force(curves, model, NUMBERS, [3], grid_resolution=9)
    assert np.ptp(partial_dependence(model, NUMBERS, 0).average) == 0
    mask = np.array([False, True, False, False])
    assert partial_dependence(model, NUMBERS, "x1", categorical_features=mask).is_categorical == (True,)
    assert friedman_h(model, NUMBERS, [1, 3]).names == [("x1", "x3")]


def test_steps_that_mix_columns_need_names() -> None:
    model = make_pipeline(PCA(2), forest()).fit(NUMBERS, Y)
    calls: list[Any] = [
        lambda: partial_dependence(model, NUMBERS, 0),
        lambda: partial_dependence(model, NUMBERS, "pca0", categorical_features=[True, False, False, False]),
        lambda: friedman_h(model, NUMBERS, [0, 1]),
        lambda: TreeExplainer(model, feature_groups={"both": [0, 1]}),
        lambda: ShapDependenceDisplay.from_estimator(model, NUMBERS, 0),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"PCA|mask must have"):
            call()
    with pytest.raises(ValueError, match="give names of features"):
        explain_interactions(model, NUMBERS, interactions=[(0, 1)])


def test_friedman_h_of_columns_of_x() -> None:
    by_name = friedman_h(ENCODED, FRAME, ["passthrough__b", "passthrough__d"])
    strengths = friedman_h(ENCODED, FRAME, [2, 4])
    assert strengths.names == by_name.names and by_name.h_squared.max() > 0.01
    np.testing.assert_array_equal(strengths.h_squared, by_name.h_squared)
    with pytest.raises(ValueError, match="the steps drop 'a', so it interacts with nothing"):
        friedman_h(ENCODED, FRAME, [0, 2])
    with pytest.raises(ValueError, match="the steps make 3 columns"):
        friedman_h(ENCODED, FRAME, [1, 2])


def test_groups_of_columns_of_x() -> None:
    by_name = TreeExplainer(ENCODED, feature_groups={"both": ["passthrough__b", "passthrough__d"]})
    by_position = TreeExplainer(ENCODED, feature_groups={"both": [2, 4]})
    assert by_position.group_columns == by_name.group_columns == ((0, 1), (2,), (3,), (4,))
    messages = (
        ([0, 2], "the steps drop column 0 of X"),
        ([1, 2], "make 3 columns"),
        ([2, 6], "out of range"),
    )
    for wrong, message in messages:
        with pytest.raises(ValueError, match=message):
            TreeExplainer(ENCODED, feature_groups={"both": wrong})


def test_dependence_display_of_columns_of_x() -> None:
    calls: list[tuple[Any, Any, dict[str, Any], dict[int, str]]] = [
        (ENCODED, FRAME, {}, {2: "passthrough__b", 4: "passthrough__d"}),
        (ENCODED, FRAME, {"feature_groups": "input"}, {1: "city", 2: "b", 4: "d"}),
        (SELECTED, NUMBERS, {}, {1: "x1", 3: "x3"}),
        (RandomForestRegressor(3, max_depth=1, random_state=0).fit(NUMBERS, NUMBERS[:, 2]), NUMBERS,
         {"columns": "used"}, {2: "x2"}),
        (make_pipeline(StandardScaler(), forest()).fit(NUMBERS, Y), NUMBERS, {}, {0: "x0", 3: "x3"}),
    ]  # fmt: skip
    for model, X, options, names in calls:
        for position, name in names.items():
            display = ShapDependenceDisplay.from_estimator(model, X, position, color_by=position, **options)
            assert (display.feature_name, display.color_name) == (name, name)
    for model, X, options, position in (
        (ENCODED, FRAME, {}, 0),
        (ENCODED, FRAME, {}, 1),
        (SELECTED, NUMBERS, {}, 0),
        (calls[3][0], NUMBERS, {"columns": "used"}, 0),
    ):
        with pytest.raises(ValueError, match=r"no feature by itself|the steps make 3 columns"):
            ShapDependenceDisplay.from_estimator(model, X, position, **options)


def test_pairs_by_position_need_features_that_are_the_columns_of_x() -> None:
    plain = forest().fit(NUMBERS, Y)
    scaled = make_pipeline(StandardScaler(), forest()).fit(NUMBERS, Y)
    for model in (plain, scaled):
        names = explain_interactions(model, NUMBERS, interactions=[(1, 3)]).interaction_names
        assert names == ("x1 x x3",)
    for model, X, options in (
        (SELECTED, NUMBERS, {}),
        (ENCODED, FRAME, {}),
        (plain, NUMBERS, {"columns": "used", "feature_groups": {"g": [0, 1]}}),
    ):
        explainer = TreeExplainer(model, **options)
        pairs = explainer.occurring_interactions()
        names = [explainer.explain_interactions(X).feature_names[i] for i in pairs[0]]
        for calls in (
            lambda pairs: explainer.explain_interactions(X, interactions=pairs).values,  # noqa: B023
            lambda pairs: explainer.plan(5, interactions=pairs).result_bytes,  # noqa: B023
        ):
            np.testing.assert_array_equal(calls(pairs[:1]), calls([tuple(names)]))
            with pytest.raises(ValueError, match=r"position .* of a column of X, but the features are not"):
                calls([(0, 1)])
    transformer = ShapInteractionTransformer(CHOSEN, interactions=[(0, 1)])
    with pytest.raises(ValueError, match="the features are not the columns of X one by one"):
        transformer.fit(NUMBERS, Y)


def test_pairs_of_batches_by_position() -> None:
    pa = pytest.importorskip("pyarrow")
    rows = pa.RecordBatch.from_pandas(FRAME)
    for options in ({}, {"sum_by": "input"}, {"feature_groups": "input"}):
        with pytest.raises(ValueError, match="the features are not the columns of X one by one"):
            BatchExplainer(ENCODED, interactions=[(0, 1)], **options)(rows)
    scaled = make_pipeline(StandardScaler(), forest()).fit(FRAME[list("abcd")], Y)
    for options in ({}, {"sum_by": "input"}, {"feature_groups": "input"}):
        result = BatchExplainer(scaled, interactions=[(1, 3)], **options)(rows)
        assert result.column_names == ["b x d"]


def test_positions_of_groups_in_columns_of_another_order(tmp_path: Path) -> None:
    """A step that selects by name accepts X in another order, in which positions stand for other columns."""
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 4)), columns=list("abcd"))
    steps = ColumnTransformer([("p", "passthrough", ["b", "a", "d", "c"])], verbose_feature_names_out=False)
    model = make_pipeline(steps, RandomForestRegressor(5, random_state=0)).fit(
        frame, frame.a + 3 * frame.b * frame.c
    )
    moved = frame[["d", "c", "b", "a"]]
    np.testing.assert_array_equal(model.predict(moved), model.predict(frame))
    by_name, by_position = {"g": ["a", "b"]}, {"g": [0, 1]}
    expected = explain(model, frame, feature_groups=by_name).values
    np.testing.assert_array_equal(explain(model, frame, feature_groups=by_position).values, expected)
    np.testing.assert_array_equal(explain(model, moved, feature_groups=by_name).values, expected)
    message = r"column 0 was 'a' in training, and X has 'd' there: give the names"
    for call in (
        lambda: explain(model, moved, feature_groups=by_position),
        lambda: explain(model, frame, data=moved, feature_groups=by_position),
        lambda: pickle.loads(pickle.dumps(TreeExplainer(model, feature_groups=by_position))).explain(moved),
    ):
        with pytest.raises(ValueError, match=message.replace("X has", "(X|data) has")):
            call()
    moved.to_parquet(tmp_path / "moved.parquet")
    for source in (moved, tmp_path / "moved.parquet"):
        with pytest.raises(ValueError, match="the source has 'd' there"):
            explain_batches(model, source, tmp_path / "out.npy", feature_groups=by_position)
