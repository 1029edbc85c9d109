"""Pipelines and models of skops on the command line, and the types that must be trusted first."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from skshapgpu import TreeExplainer, explain, explain_interactions

pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")
skops = pytest.importorskip("skops.io")

_random = np.random.default_rng(11)
FRAME = pd.DataFrame(
    {
        "id": np.arange(80)[::-1],
        "size": _random.normal(size=80).round(3),
        "color": _random.choice(["red", "green", "blue"], 80),
        "place": _random.choice(["a_b", "b"], 80),
    }
)
X = FRAME[["place", "size", "color"]]
Y = 70 + X["size"] * (X["color"] == "red") + 4 * (X["place"] == "b") * (X["color"] == "blue")
ENCODER = make_column_transformer((OneHotEncoder(), ["place", "color"]), remainder="passthrough")
PIPELINE = make_pipeline(ENCODER, RandomForestRegressor(4, max_depth=5, random_state=0)).fit(X, Y)
# The tree, and the list of the remaining columns, which has a type of its own in scikit-learn 1.6
# The command trusts this type of scikit-learn 1.6 by itself.
UNTRUSTED = [
    name for name in skops.get_untrusted_types(data=skops.dumps(PIPELINE)) if "_RemainderColsList" not in name
]
TRUST = [flag for name in UNTRUSTED for flag in ("--trust", name)]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Paths of the pipeline and of a CSV file of rows, with the columns in another order."""
    skops.dump(PIPELINE, tmp_path / "pipeline.skops")
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "pipeline.skops", tmp_path / "rows.csv"


def test_a_pipeline_explains_rows_of_a_csv_file(run: Any, files: Any, tmp_path: Path) -> None:
    out = tmp_path / "values.parquet"
    code, printed, err = run("explain", *files, "-o", out, "--keep", "id", *TRUST, "--json")
    assert (code, err) == (0, "")
    expected = explain(PIPELINE, X)
    assert json.loads(printed)["feature_names"] == list(expected.feature_names)
    table = pq.read_table(out).to_pandas()
    assert list(table["id"]) == list(FRAME["id"])
    np.testing.assert_array_equal(table.drop(columns="id"), expected.values)
    total = json.loads(printed)["base_values"] + table.drop(columns="id").sum(axis=1)
    np.testing.assert_allclose(total, PIPELINE.predict(X), rtol=1e-5)


def test_sums_and_groups_by_the_columns_of_the_data(run: Any, files: Any, tmp_path: Path) -> None:
    sums, players, reasons, pairs = (tmp_path / f"{name}.parquet" for name in ("a", "b", "c", "d"))
    assert run("explain", *files, "-o", sums, *TRUST, "--sum-by", "input")[0] == 0
    full_explanation = explain(PIPELINE, X).sum_by("input")
    np.testing.assert_array_equal(pq.read_table(sums).to_pandas(), full_explanation.to_frame())
    assert run("explain", *files, "-o", players, *TRUST, "--feature-group", "input")[0] == 0
    game = explain(PIPELINE, X, feature_groups="input")
    np.testing.assert_array_equal(pq.read_table(players).to_pandas(), game.to_frame())
    assert np.abs(game.values - full_explanation.values).max() > 1e-3  # they are different values
    assert run("explain", *files, "-o", reasons, *TRUST, "--sum-by", "input", "--reasons", 1)[0] == 0
    table = pq.read_table(reasons).to_pandas()
    record = full_explanation.reasons(1)[7]
    shown = table["value_1"][7]
    assert table["feature_1"][7] == record["feature"]
    assert shown == record["value"] if isinstance(record["value"], str) else float(shown) == record["value"]
    assert run("explain", *files, "-o", pairs, *TRUST, "--sum-by", "input", "--interactions", "1")[0] == 0
    grouped = explain_interactions(PIPELINE, X, interactions="occurring").sum_by("input")
    name, _ = grouped.strongest(1)[0]
    assert pq.read_schema(pairs).names == [name]
    np.testing.assert_array_equal(pq.read_table(pairs).column(0), grouped[:, [name]].values[:, 0])
    listed = ("--interactions", "size:color", "--if-exists", "overwrite")
    assert run("explain", *files, "-o", pairs, *TRUST, "--sum-by", "input", *listed)[0] == 0
    assert pq.read_schema(pairs).names == ["size x color"]


def test_background_rows_go_through_the_steps(run: Any, files: Any, tmp_path: Path) -> None:
    out = tmp_path / "values.parquet"
    assert run("explain", *files, "-o", out, *TRUST, "--background", files[1])[0] == 0
    expected = explain(PIPELINE, X, data=X)
    np.testing.assert_array_equal(pq.read_table(out).to_pandas(), expected.to_frame())
    assert (
        run("explain", *files, "-o", out, *TRUST, "--interactions", "2", "--if-exists", "overwrite")[0] == 0
    )
    strongest = explain_interactions(PIPELINE, X, interactions=2)
    assert pq.read_schema(out).names == list(strongest.interaction_names)


def test_info_and_models_without_steps(run: Any, fails: Any, files: Any, tmp_path: Path) -> None:
    facts = json.loads(run("info", files[0], *TRUST, "--json")[1])
    assert facts["steps"] == ["ColumnTransformer"] and facts["n_trees"] == 4
    assert "ColumnTransformer; then the model" in run("info", files[0], *TRUST)[1]
    message = fails("save", files[0], *TRUST, "-o", tmp_path / "explainer.npz")
    assert "is a pipeline, whose first steps an explainer file cannot keep" in message
    numbers = FRAME[["size", "id"]]
    model = HistGradientBoostingClassifier(max_iter=3).fit(numbers, Y > 71)
    skops.dump(model, tmp_path / "model.skops")
    trust = [
        flag
        for name in skops.get_untrusted_types(file=tmp_path / "model.skops")
        for flag in ("--trust", name)
    ]
    assert run("save", tmp_path / "model.skops", *trust, "-o", tmp_path / "explainer.npz")[0] == 0
    out = tmp_path / "values.parquet"
    assert run("explain", tmp_path / "explainer.npz", files[1], "-o", out)[0] == 0
    np.testing.assert_array_equal(pq.read_table(out).to_pandas(), explain(model, numbers).to_frame())


def shifted(X: Any) -> Any:
    raise AssertionError("this function of the file must not run")


def test_types_that_are_not_trusted_are_listed_and_not_loaded(fails: Any, files: Any, tmp_path: Path) -> None:
    call = ("explain", *files, "-o", tmp_path / "out.parquet")
    message = fails(*call)
    assert "sklearn.tree._tree.Tree" in UNTRUSTED
    assert f"types that skops does not trust: {', '.join(UNTRUSTED)}." in message
    assert message.endswith(f"add {' '.join(TRUST)}")
    assert "--trust sklearn.tree._tree.Tree" in fails(*call, "--trust", "other.Type")
    mixed = make_pipeline(FunctionTransformer(shifted), PIPELINE[-1])
    skops.dump(mixed, tmp_path / "pipeline.skops")
    message = fails("info", tmp_path / "pipeline.skops", *TRUST)
    assert "test_command_line_skops.shifted" in message and "Tree" not in message.split("add")[0]


def test_refusals(fails: Any, run: Any, files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = ("-o", tmp_path / "out.parquet")
    np.save(tmp_path / "rows.npy", X[["size"]])
    other = tmp_path / "damaged.skops"
    with zipfile.ZipFile(files[0]) as whole, zipfile.ZipFile(other, "w") as part:
        part.writestr("schema.json", whole.read("schema.json")[:-40])
    assert f"{str(other)!r} cannot be loaded" in fails("explain", other, files[1], *call)
    with zipfile.ZipFile(other, "w") as part:
        part.writestr("schema.json", json.dumps({"__class__": "list", "content": 3}))
    assert f"{str(other)!r} cannot be loaded" in fails("explain", other, files[1], *call, *TRUST)
    model = RandomForestRegressor(2, random_state=0).fit(X[["size"]], Y)
    TreeExplainer(model).save(tmp_path / "explainer.npz")
    assert "has no types to --trust" in fails("explain", tmp_path / "explainer.npz", files[1], *call, *TRUST)
    assert "--trust is about types in a file of skops" in fails("info", files[1], *TRUST)
    FRAME.drop(columns="color").to_csv(files[1], index=False)
    message = fails("explain", *files, *call, *TRUST)
    assert "there is no column color" in message
    mixing = "--feature-group input --feature-group a=size"
    assert "input stands for all groups" in fails("explain", *files, *call, *mixing.split(), exit_code=2)
    monkeypatch.setitem(__import__("sys").modules, "skops.io", None)
    assert "pip install skops" in fails("explain", *files, *call, *TRUST)


def test_rows_have_the_dtypes_of_pandas(run: Any, tmp_path: Path) -> None:
    """Nullable columns, also of the background, reach the steps as pandas.read_parquet reads them."""
    frame = X.assign(
        flag=pd.array([None if i < 20 else bool(i % 3) for i in range(80)], "boolean"),
        count=pd.array([None if i < 20 else i % 4 for i in range(80)], "Int64"),
    ).iloc[::-1]
    frame.to_parquet(tmp_path / "rows.parquet")
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["flag", "count"]), remainder="drop", sparse_threshold=0
    )
    model = make_pipeline(encoder, RandomForestRegressor(4, max_depth=5, random_state=0))
    model.fit(frame, 9 * frame["flag"].fillna(False) + frame["count"].fillna(30).astype(float))
    skops.dump(model, tmp_path / "model.skops")
    line = [
        "explain",
        tmp_path / "model.skops",
        tmp_path / "rows.parquet",
        *TRUST,
        "-o",
        tmp_path / "out.npy",
    ]
    assert run(*line, "--batch-size", 7)[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), explain(model, frame).values)
    background = ("--background", tmp_path / "rows.parquet", "--background-rows", 40)
    assert run(*line, *background, "--if-exists", "overwrite", "--json")[0] == 0
    taken = np.sort(np.argsort(np.random.default_rng(0).random(80))[:40])
    expected = explain(model, frame, data=frame.iloc[taken]).values
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=0, atol=1e-12)
    assert run(*line[:-1], tmp_path / "pairs.parquet", "--interactions", "1")[0] == 0
    strongest = explain_interactions(model, frame, interactions=1)
    assert pq.read_schema(tmp_path / "pairs.parquet").names == list(strongest.interaction_names)
