"""Cohorts of rows, rows by their labels, and the strongest values of a row."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.families import forest, frame_with_categories, with_categories
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skshapgpu import (
    Cohorts,
    Explanation,
    ShapBarDisplay,
    TreeExplainer,
    cross_val_explain,
    explain,
    explain_interactions,
)

pd = pytest.importorskip("pandas")
rng = np.random.default_rng(1)
N_ROWS = 60
FRAME = pd.DataFrame(
    {
        "b": rng.normal(size=N_ROWS),
        "place": rng.integers(3, size=N_ROWS) * 10,
        "a": np.where(rng.random(N_ROWS) < 0.2, np.nan, rng.normal(size=N_ROWS)),
    },
    index=[f"row {i}" for i in rng.permutation(N_ROWS)],
)
Y = FRAME["b"] * FRAME["place"] + FRAME["a"].fillna(3.0)
COLOR = rng.choice(["red", "green", "blue"], N_ROWS)


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return explain(forest().fit(FRAME, Y), FRAME)


def importances(values: np.ndarray, labels: Any) -> dict[Any, np.ndarray]:
    """Compute mean magnitudes with pandas, in the order of its own groupby."""
    grouped = pd.DataFrame(np.abs(values)).groupby(np.asarray(labels))
    return {label: row.to_numpy() for label, row in grouped.mean().iterrows()}


def assert_cohorts(cohorts: Cohorts, explanation: Explanation, labels: Any) -> None:
    expected = importances(explanation.values, labels)
    assert list(cohorts) == list(expected) and len(cohorts) == len(expected) > 1
    np.testing.assert_allclose(cohorts.importance(), list(expected.values()), rtol=1e-12)
    for label, part in cohorts.items():
        rows = np.flatnonzero(np.asarray(labels) == label)
        np.testing.assert_array_equal(part.values, explanation.values[rows])
        assert part.data.equals(FRAME.iloc[rows])


def test_labels_of_every_kind(explanation: Explanation) -> None:
    assert_cohorts(explanation.groupby("place"), explanation, FRAME["place"])
    for labels in (COLOR, COLOR.tolist(), tuple(COLOR), pd.Series(COLOR, FRAME.index, name="color")):
        assert_cohorts(explanation.groupby(labels), explanation, COLOR)
    assert explanation.groupby(labels).name == "color" and explanation.groupby(COLOR).name is None

    def of_index(label: str) -> int:
        return int(label.removeprefix("row ")) % 4

    assert_cohorts(explanation.groupby(of_index), explanation, [of_index(label) for label in FRAME.index])
    polars = pytest.importorskip("polars")
    assert_cohorts(explanation.groupby(polars.Series("color", COLOR)), explanation, COLOR)


def test_frame_is_that_of_pandas(explanation: Explanation) -> None:
    frame = explanation.groupby("place").to_frame()
    expected = pd.DataFrame(importances(explanation.values, FRAME["place"]), index=list(FRAME)).T
    assert list(frame.index) == [0, 10, 20] and frame.index.name == "place"
    assert list(frame.columns) == list(expected.mean().sort_values(ascending=False).index)
    np.testing.assert_allclose(frame[list(FRAME)], expected, rtol=1e-12)


def test_order_of_categories_and_of_labels_that_cannot_be_compared(explanation: Explanation) -> None:
    sizes = pd.Categorical(COLOR, ["red", "violet", "green", "blue"])
    for labels in (sizes, pd.CategoricalIndex(sizes), pd.Series(sizes, FRAME.index)):
        assert list(explanation.groupby(labels)) == ["red", "green", "blue"]
    mixed = [1, "one"] * (N_ROWS // 2)
    assert list(explanation.groupby(mixed)) == [1, "one"]
    days = pd.Series(pd.to_datetime(["2024-02-01", "2024-01-01"] * (N_ROWS // 2)), FRAME.index)
    assert [label.month for label in explanation.groupby(days)] == [1, 2]


@pytest.mark.parametrize(
    "labels, message",
    [
        ("color", "the rows of the explanation have no column 'color'"),
        (COLOR[:-1], "59 labels, but the explanation has 60 rows"),
        (pd.Series(COLOR), "the index differs from that of the explanation, or has another"),
        (pd.Series(COLOR, FRAME.index[::-1]), "has another order"),
        (np.stack([COLOR, COLOR], axis=1), "one dimension, not 2"),
        ("a", "the label of row .* is missing"),
        ([None, *COLOR[1:]], "the label of row 0 is missing"),
        (pd.Series([*COLOR[:-1], pd.NA], FRAME.index), "the label of row 59 is missing"),
    ],
)
def test_refused_labels(explanation: Explanation, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explanation.groupby(labels)


def test_no_rows_have_no_cohorts(explanation: Explanation) -> None:
    cohorts = explanation[[]].groupby([])
    assert cohorts.importance().shape == (0, 3) and len(cohorts.to_frame()) == 0


def test_columns_by_category_and_before_a_pipeline() -> None:
    frame, y = frame_with_categories()
    cohorts = explain(with_categories("sklearn", frame, y), frame).groupby("color")
    assert list(cohorts) == sorted(set(frame["color"]))
    assert [len(part) for part in cohorts.values()] == frame["color"].value_counts(sort=False).tolist()
    model = make_pipeline(SimpleImputer(), forest()).fit(FRAME, Y)
    of_pipeline = explain(model, FRAME)
    assert list(of_pipeline.groupby("place")) == [0, 10, 20]
    encoder = make_column_transformer((OneHotEncoder(), ["color"]), remainder="passthrough")
    encoded = explain(make_pipeline(encoder, forest()).fit(frame, y), frame)
    assert "color" not in encoded.feature_names
    by_color = encoded.groupby("color")
    for color, part in by_color.items():
        np.testing.assert_array_equal(part.values, encoded.values[(frame["color"] == color).to_numpy()])
    assert list(by_color) == sorted(set(frame["color"]))


@pytest.mark.parametrize("kind", ["int64", "uint64", "object", "Int64", "polars", "pyarrow"])
def test_integers_that_float64_rounds(kind: str) -> None:
    """Accounts beyond 2**53 are cohorts of their own, although they are equal in float64."""
    accounts = 2**60 + np.arange(N_ROWS) // 20
    model = make_pipeline(make_column_transformer(("passthrough", ["b", "place"])), forest())
    full_explanation = explain(model.fit(FRAME, Y), FRAME)
    if kind in ("polars", "pyarrow"):
        library = pytest.importorskip(kind)
        frame = (library.table if kind == "pyarrow" else library.DataFrame)({"account": accounts})
    else:
        frame = pd.DataFrame({"account": pd.Series(accounts, FRAME.index, dtype=kind)})
    assert full_explanation.origins is not None
    cohorts = replace(
        full_explanation, origins=replace(full_explanation.origins, data=frame, names=("account",))
    ).groupby("account")
    assert list(cohorts) == [2**60, 2**60 + 1, 2**60 + 2]
    for i, part in enumerate(cohorts.values()):
        np.testing.assert_array_equal(part.values, full_explanation.values[20 * i : 20 * (i + 1)])


def test_text_names_the_strongest_features(explanation: Explanation) -> None:
    lines = repr(explanation.groupby("place")).splitlines()
    assert lines[0] == "Cohorts by place" and len(lines) == 4
    for place, line in zip((0, 10, 20), lines[1:]):
        part = explanation[(FRAME["place"] == place).to_numpy()]
        assert line.startswith(f"  {place}: {len(part)} rows: {part.strongest(1)[0][0]} ")
    assert repr(explanation.groupby(np.arange(N_ROWS))).endswith("\n  and 40 more cohorts")


def test_outputs_interactions_and_rows_without_values() -> None:
    several = explain(forest().fit(FRAME, np.c_[Y, -2 * FRAME["place"]]), FRAME)
    cohorts = several.groupby(COLOR)
    expected = np.stack([np.abs(several.values[COLOR == c]).mean(axis=0) for c in ("blue", "green", "red")])
    np.testing.assert_allclose(cohorts.importance(), expected, rtol=1e-12)
    ranked = cohorts.strongest(1)["red"]
    assert ranked[0][1] == pytest.approx(expected[2].sum(axis=1).max())

    model = forest().fit(FRAME, Y)
    pairs = explain_interactions(model, FRAME)
    cohorts_of_pairs = pairs.groupby(COLOR)
    frame, (first, second) = cohorts_of_pairs.to_frame(), pairs.interactions.T
    assert list(frame.columns) == list(pairs.interaction_names)
    matrices = explain(model, FRAME), TreeExplainer(model).shap_interaction_values(FRAME)
    for color in ("blue", "green", "red"):
        of_color = 2 * np.abs(matrices[1][COLOR == color]).mean(axis=0)[first, second]
        np.testing.assert_allclose(frame.loc[color], of_color, atol=1e-6, rtol=1e-6)
    with pytest.raises(TypeError, match="must be an Explanation"):
        ShapBarDisplay.from_explanation(cohorts_of_pairs)

    splits = [(np.arange(20, N_ROWS), np.arange(20))]
    partial = cross_val_explain(forest(), FRAME, Y, cv=splits)["explanation"]
    means = partial.groupby(["tested"] * 20 + ["untested"] * 40).importance()
    assert np.isfinite(means[0]).all() and np.isnan(means[1]).all()


def test_bars_beside_each_other(explanation: Explanation) -> None:
    pytest.importorskip("matplotlib").use("agg")
    cohorts = explanation.groupby("place")
    display = ShapBarDisplay.from_explanation(cohorts, max_features=2)
    means = cohorts.importance()
    order = np.argsort(-means.sum(axis=0))
    expected = np.c_[means[:, order[:2]], means[:, order[2]]]
    drawn = [[bar.get_width() for bar in bars] for bars in display.bars_]
    np.testing.assert_allclose(drawn, expected, rtol=1e-12)
    labels = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert labels == [list(FRAME)[order[0]], list(FRAME)[order[1]], "1 other feature"]
    legend = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    counts = FRAME["place"].value_counts()
    assert legend == [f"place = {p} ({counts[p]} rows)" for p in (0, 10, 20)]
    places = [bars[0].get_y() for bars in display.bars_]
    assert places == sorted(places)  # from top to bottom, as the axis is inverted
    assert len({bars[0].get_facecolor() for bars in display.bars_}) == 3
    with pytest.raises(ValueError, match="bars of 1 to 8 cohorts"):
        ShapBarDisplay.from_explanation(explanation.groupby(np.arange(N_ROWS) // 6))
    several = explain(forest().fit(FRAME, np.c_[Y, -2 * FRAME["place"]]), FRAME).groupby(COLOR)
    summed = ShapBarDisplay.from_explanation(several)
    np.testing.assert_allclose(
        np.sort(summed.importances, axis=0), np.sort(several.importance().sum(axis=2).T, axis=0), rtol=1e-12
    )
    one = ShapBarDisplay.from_explanation(several, output=1)
    np.testing.assert_allclose(one.importances, several.importance()[:, :, 1].T, rtol=1e-12)


# ---- strongest values of rows ---------------------------------------------------------------------


def expected_reasons(
    explanation: Explanation, values: np.ndarray, n: int, **extra: Any
) -> list[dict[str, Any]]:
    """Sort the values of each row plainly."""
    results = []
    for i, label in enumerate(explanation.row_labels):
        pairs = list(enumerate(values[i]))
        for reason, sign in (("for", 1), ("against", -1)):
            those = sorted([(-sign * v, f) for f, v in pairs if sign * v > 0])[:n]
            for rank, (_, f) in enumerate(those, 1):
                value = explanation.data.iloc[i, f]
                results.append(
                    {
                        "row": label,
                        **extra,
                        "reason": reason,
                        "rank": rank,
                        "feature": explanation.feature_names[f],
                        "value": None if pd.isna(value) else value,
                        "shap_value": values[i, f],
                    }
                )
    return results


@pytest.mark.parametrize("n", [1, 2, 50])
def test_top_by_sign(explanation: Explanation, n: int) -> None:
    expected = expected_reasons(explanation, explanation.values, n)
    assert explanation.reasons(n, by_sign=True) == expected
    assert n == 1 or {record["value"] is None for record in expected} == {True, False}
    assert {record["reason"] for record in expected} == {"for", "against"}
    several = explain(forest().fit(FRAME, np.c_[Y, -2 * FRAME["place"]]), FRAME)
    assert several.reasons(n, by_sign=True) == [
        record for o in (0, 1) for record in expected_reasons(several, several.values[..., o], n, output=o)
    ]


def test_top_of_categories_groups_and_untested_rows() -> None:
    frame, y = frame_with_categories()
    explanation = explain(with_categories("sklearn", frame, y), frame)
    colors = [r for r in explanation.reasons(by_sign=True) if r["feature"] == "color"]
    assert len(colors) > 100 and all(r["value"] == frame["color"][r["row"]] for r in colors)
    grouped = explain(forest().fit(FRAME, Y), FRAME, feature_groups={"ab": ["a", "b"]}).reasons(1)
    assert {record["feature"] for record in grouped} == {"ab", "place"}
    for record in grouped:
        row = FRAME.loc[record["row"]]
        pair = f"b={row['b']:.5g}, a={row['a']:.5g}".replace("nan", "missing")
        assert record["value"] == (pair if record["feature"] == "ab" else row["place"])
    partial = cross_val_explain(forest(), FRAME, Y, cv=[(np.arange(20, N_ROWS), np.arange(20))])[
        "explanation"
    ]
    assert {record["row"] for record in partial.reasons(by_sign=True)} <= set(FRAME.index[:20])
    for n, error in ((0, ValueError), (1.5, TypeError)):
        with pytest.raises(error):
            explanation.reasons(n, by_sign=True)
    with pytest.raises(TypeError, match="by_sign"):
        explanation.reasons(by_sign=1)


@pytest.mark.parametrize("n", [1, 2, 50])
def test_top_by_magnitude(explanation: Explanation, n: int) -> None:
    result = explanation.reasons(n)
    signed = expected_reasons(explanation, explanation.values, 3)
    for label in FRAME.index:
        those = sorted((r for r in signed if r["row"] == label), key=lambda r: -abs(r["shap_value"]))[:n]
        assert [r for r in result if r["row"] == label] == [
            record | {"rank": rank} for rank, record in enumerate(those, 1)
        ]
    assert json.loads(json.dumps(result)) == result
    zero = replace(explanation[:2], values=np.array([[0.0, 2.0, -3.0], [np.nan, np.nan, np.nan]]))
    assert [(r["rank"], r["feature"], r["reason"]) for r in zero.reasons()] == [
        (1, "a", "against"),
        (2, "place", "for"),
    ]


# ---- rows by labels -------------------------------------------------------------------------------


def test_rows_by_labels(explanation: Explanation) -> None:
    one = explanation.loc["row 7"]
    place = FRAME.index.get_loc("row 7")
    np.testing.assert_array_equal(one.values, explanation.values[[place]])
    assert list(one.row_labels) == ["row 7"] and one.data.equals(FRAME.iloc[[place]])
    labels = ["row 30", "row 2"]
    for asked in (labels, np.array(labels), pd.Index(labels), pd.Series(labels)):
        assert list(explanation.loc[asked].row_labels) == labels
    assert explanation.loc[[]].shape == (0, 3)
    with pytest.raises(KeyError, match="row 99"):
        explanation.loc[["row 1", "row 99"]]
    with pytest.raises(KeyError, match="not among the labels"):
        explanation.loc[[["row 1"]]]  # no label, as it cannot be hashed
    with pytest.raises(TypeError, match="slice"):
        explanation.loc["row 1":"row 2"]  # type: ignore[misc]
    pairs = explain_interactions(forest().fit(FRAME, Y), FRAME)
    np.testing.assert_array_equal(pairs.loc[labels].values, pairs.values[FRAME.index.get_indexer(labels)])
    with pytest.raises(ValueError, match="no labels"):
        explain(forest().fit(FRAME, Y), FRAME.to_numpy()).loc[0]


@pytest.mark.parametrize("dtype", ["bool", "boolean"])
def test_masks_are_of_the_same_rows(explanation: Explanation, dtype: str) -> None:
    mask = (FRAME["b"] > 0).astype(dtype)
    expected = explanation.values[mask.to_numpy(bool)]
    np.testing.assert_array_equal(explanation[mask].values, expected)
    pairs = explain_interactions(forest().fit(FRAME, Y), FRAME)
    in_another_order = mask.sort_index()
    for each in (explanation, pairs):
        with pytest.raises(ValueError, match="the mask: the index differs from that of the explanation, or"):
            each[in_another_order]
    np.testing.assert_array_equal(explanation[in_another_order.loc[FRAME.index]].values, expected)
    assert len(explain(forest().fit(FRAME, Y), FRAME.to_numpy())[in_another_order]) == len(expected)


@pytest.mark.parametrize("dtype", ["bool", "boolean"])
def test_masks_are_of_the_same_names(explanation: Explanation, dtype: str) -> None:
    strength = pd.Series(explanation.importance().reshape(3, -1).sum(axis=1), list(explanation.feature_names))
    mask = (strength > strength.min()).astype(dtype)
    names = mask.index[mask]
    expected = explanation[:, list(names)].values
    pairs = explain_interactions(forest().fit(FRAME, Y), FRAME)
    for given in (mask, mask.reset_index(drop=True), mask.to_numpy(bool), names):
        np.testing.assert_array_equal(explanation[:, given].values, expected)
    for other in (mask[::-1], mask.reset_index(drop=True)[::-1], mask.set_axis(["a", "b", "d"])):
        for each in (explanation, pairs):
            with pytest.raises(ValueError, match="the mask is of other names than the explanation"):
                each[:, other]


def test_labels_that_repeat_and_tuples() -> None:
    model, repeated = forest().fit(FRAME, Y), FRAME.set_axis(np.arange(N_ROWS) // 2, axis=0)
    explanation = explain(model, repeated)
    np.testing.assert_array_equal(explanation.loc[[4, 1]].values, explanation.values[[8, 9, 2, 3]])
    shuffled = FRAME.set_axis(np.arange(N_ROWS) % 30, axis=0)
    explanation = explain(model, shuffled)
    np.testing.assert_array_equal(explanation.loc[4].values, explanation.values[[4, 34]])
    pairs = [(i % 7, i) for i in range(N_ROWS)]
    explanation = explain(model, FRAME.set_axis(pd.MultiIndex.from_tuples(pairs), axis=0))
    np.testing.assert_array_equal(explanation.loc[2, 9].values, explanation.values[[9]])
    np.testing.assert_array_equal(explanation.loc[[(3, 3), (1, 8)]].values, explanation.values[[3, 8]])
    np.testing.assert_array_equal(explanation.loc[2].values, explanation.values[2::7])
