"""Values in reasons have the types of their columns, in every container; displays and batches agree."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skshapgpu import Explanation, explain

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
N_ROWS = 80
#: "id" needs more than the 53 bits of float64, and "x" has whole numbers, which stay floats.
FRAME = pd.DataFrame(
    {
        "complaints": RNG.integers(0, 9, N_ROWS),
        "urgent": RNG.random(N_ROWS) < 0.5,
        "x": np.round(RNG.normal(0, 3, N_ROWS)) + 0.0,
        "id": 2**60 + 2**40 * RNG.integers(0, 5, N_ROWS) + 1,
    }
)
TYPES = {"complaints": int, "urgent": bool, "x": float, "id": int}
Y = FRAME["complaints"] + 3 * FRAME["urgent"] + FRAME["x"] + (FRAME["id"] - 2**60) / 2**40
MODEL = HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=5).fit(FRAME.to_numpy(float), Y)

WITH_MISSING = FRAME.astype({"complaints": "Int64", "urgent": "boolean", "id": "Int64"})
WITH_MISSING.loc[::7, "complaints"] = pd.NA
WITH_MISSING.loc[1::7, "urgent"] = pd.NA
WITH_MISSING.loc[2::7, "id"] = pd.NA
OBJECTS = WITH_MISSING.astype(object).where(WITH_MISSING.notna(), None)


def polars(frame: Any) -> Any:
    return pytest.importorskip("polars").from_dict(
        {name: [None if value is pd.NA else value for value in frame[name].tolist()] for name in frame}
    )


def arrow(frame: Any) -> Any:
    return pytest.importorskip("pyarrow").Table.from_pandas(frame, preserve_index=False)


def arrow_types(frame: Any) -> Any:
    pytest.importorskip("pyarrow")
    types = {"complaints": "int16[pyarrow]", "urgent": "bool[pyarrow]", "id": "uint64[pyarrow]"}
    return frame.astype(types)


CONTAINERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "pandas": (FRAME, lambda frame: frame),
    "nullable": (WITH_MISSING, lambda frame: frame),
    "nullable, none missing": (WITH_MISSING.dropna(), lambda frame: frame),
    "Arrow types of pandas": (WITH_MISSING, arrow_types),
    "objects of pandas": (OBJECTS, lambda frame: frame),
    "polars": (FRAME, polars),
    "polars, missing": (WITH_MISSING, polars),
    "Arrow": (FRAME, arrow),
    "Arrow, missing": (WITH_MISSING, arrow),
    "array of objects": (OBJECTS, lambda frame: frame.to_numpy()),
}


def expected_value(value: Any, kind: type) -> Any:
    return None if value is None or value is pd.NA else kind(value)


def values_by_feature(explanation: Explanation) -> list[dict[str, Any]]:
    """Return the value of each feature that is a reason, for each row."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(explanation))]
    labels = range(len(rows)) if explanation.row_labels is None else explanation.row_labels
    position = {label: i for i, label in enumerate(labels)}
    for record in explanation.reasons(4):
        rows[position[record["row"]]][record["feature"]] = record["value"]
    return rows


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("container", CONTAINERS)
def test_types_are_those_of_the_columns(container: str) -> None:
    frame, convert = CONTAINERS[container]
    explanation = explain(MODEL, convert(frame), columns="all")
    seen = set()
    for row, values in enumerate(values_by_feature(explanation)):
        for position, (name, kind) in enumerate(TYPES.items()):
            feature = name if name in explanation.feature_names else f"x{position}"
            if feature in values:
                value, expected = values[feature], expected_value(frame[name].iloc[row], kind)
                assert type(value) is type(expected) and value == expected, (name, row)
                seen.add((name, type(value)))
    missing = {(name, type(None)) for name in TYPES if frame[name].isna().any()}
    assert seen == {*TYPES.items(), *missing}
    records = explanation.reasons(4)
    assert json.loads(json.dumps([record | {"row": 0} for record in records])) == [
        r | {"row": 0} for r in records
    ]


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("container", CONTAINERS)
def test_one_row_has_the_same_values_as_many(container: str) -> None:
    frame, convert = CONTAINERS[container]
    explanation = explain(MODEL, convert(frame))
    many = values_by_feature(explanation)
    for row in range(8):  # some of them have a missing value, of which the others' types do not depend
        one = values_by_feature(explanation[row])[0]
        assert one == many[row]
        assert list(map(type, one.values())) == list(map(type, many[row].values()))


@pytest.mark.parametrize(
    ("convert", "kind"),
    [
        (lambda: FRAME[["complaints", "x"]].to_numpy(np.int8), int),
        (lambda: FRAME[["complaints", "urgent"]].to_numpy(np.uint64), int),
        (lambda: FRAME[["urgent", "urgent"]].to_numpy(), bool),
        (lambda: FRAME[["complaints", "x"]].to_numpy(np.float32), float),
        (lambda: sp.csr_array(FRAME[["complaints", "x"]].to_numpy(np.int64)), int),
        (lambda: sp.csr_array(FRAME[["complaints", "x"]].to_numpy(np.float64)), float),
        (lambda: FRAME[["complaints", "x"]].astype(int).to_numpy().tolist(), int),
    ],
    ids=["int8", "uint64", "bool", "float32", "sparse int", "sparse float", "lists of int"],
)
def test_an_array_has_one_type(convert: Callable[[], Any], kind: type) -> None:
    X = convert()
    dense = X.toarray() if sp.issparse(X) else np.asarray(X)
    model = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=5).fit(dense.astype(float), Y)
    if sp.issparse(X):
        from sklearn.tree import DecisionTreeRegressor

        model = DecisionTreeRegressor(max_depth=4).fit(dense, Y)
    for row, values in enumerate(values_by_feature(explain(model, X))):
        for name, value in values.items():
            assert type(value) is kind and value == dense[row, int(name[1:])]


def test_objects_of_other_kinds_of_numbers() -> None:
    X = np.empty((3, 2), object)
    X[:, 0] = [np.int32(3), np.bool_(True), np.float32(2.5)]
    X[:, 1] = [Decimal("1.5"), None, np.nan]
    explanation = Explanation(np.ones((3, 2)), 0.0, X, ("a", "b"))
    values = [values.get(name) for values in values_by_feature(explanation) for name in ("a", "b")]
    assert values == [3, 1.5, True, None, 2.5, None]
    assert list(map(type, values)) == [int, float, bool, type(None), float, type(None)]


def test_columns_that_a_pipeline_made_have_their_own_types() -> None:
    def halved(frame: Any) -> Any:
        return frame.assign(complaints=frame["complaints"] / 2)[["complaints", "urgent"]]

    steps = FunctionTransformer(halved, feature_names_out=lambda step, names: names[:2])
    model = make_pipeline(steps, HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=5)).fit(FRAME, Y)
    for row, values in enumerate(values_by_feature(explain(model, FRAME))):
        if "complaints" in values:
            assert type(values["complaints"]) is float
            assert values["complaints"] == FRAME["complaints"][row] / 2
        if "urgent" in values:
            assert values["urgent"] is bool(FRAME["urgent"][row])


def words(record: dict[str, Any]) -> str:
    """Write a value as a sentence would."""
    value = record["value"]
    return "missing" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize(
    "container", ["pandas", "nullable", "polars, missing", "Arrow, missing", "array of objects"]
)
def test_waterfalls_write_the_same(container: str) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    from skshapgpu import ShapWaterfallDisplay

    frame, convert = CONTAINERS[container]
    explanation = explain(MODEL, convert(frame.assign(id=frame["id"] % 1000)))
    for row in (0, 1, 7, 8):
        display = ShapWaterfallDisplay.from_explanation(explanation, row=row)
        pyplot.close("all")
        for record in explanation[row].reasons(4):
            feature = explanation.feature_names.index(record["feature"])
            assert display.feature_values is not None
            assert display.feature_values[feature].replace("\N{MINUS SIGN}", "-") == words(record)


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("container", ["pandas", "polars", "Arrow", "nullable, none missing"])
def test_cohorts_have_labels_of_these_types(container: str) -> None:
    frame, convert = CONTAINERS[container]
    explanation = explain(MODEL, convert(frame), columns="all")
    assert list(map(repr, explanation.groupby("urgent"))) == ["False", "True"]
    counts = [repr(int(count)) for count in sorted(set(frame["complaints"]))]
    assert list(map(repr, explanation.groupby("complaints"))) == counts
    assert list(explanation.groupby("id")) == sorted(set(frame["id"]))


def test_groups_write_the_same() -> None:
    explanation = explain(
        HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=5).fit(FRAME, Y),
        FRAME,
        feature_groups={"case": ["complaints", "urgent"]},
    )
    for row, values in enumerate(values_by_feature(explanation)):
        if "case" in values:
            complaints, urgent = FRAME["complaints"][row], FRAME["urgent"][row]
            assert values["case"] == f"complaints={complaints}, urgent={urgent}"
    array = np.asarray(explanation.data)
    assert array[:, 2].tolist() == FRAME["id"].tolist() and type(array[0, 1]) is float


@pytest.mark.parametrize("form", ["pandas", "nullable", "objects of pandas", "file", "array of objects"])
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_batches_write_the_same(form: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    from skshapgpu import explain_batches

    frame, convert = CONTAINERS["nullable" if form == "file" else form]
    source = rows = convert(frame)
    if form == "file":
        source = tmp_path / "rows.parquet"
        frame.to_parquet(source)
    explain_batches(MODEL, source, tmp_path / "reasons.parquet", reasons=4, batch_size=30)
    written = parquet.read_table(tmp_path / "reasons.parquet").to_pylist()
    seen = set()
    for record in explain(MODEL, rows).reasons(4):
        value, string = record["value"], written[record["row"]][f"value_{record['rank']}"]
        expected = str(value).removesuffix(".0")  # a whole number has no decimal point
        assert string == (None if value is None else expected)
        seen.add(string)
    assert {"True", "False"} <= seen and any(string and len(string) == 19 for string in seen)
    assert form == "pandas" or None in seen
