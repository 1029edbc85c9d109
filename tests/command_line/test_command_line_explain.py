"""``skshapgpu info``, ``save`` and ``explain``: their output, their files and their errors."""

from __future__ import annotations

import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command_line import NAMES, X, Y, frame, model_file
from helpers.families import library
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import skshapgpu
from skshapgpu import TreeExplainer, explain, explain_interactions
from skshapgpu.adapters import adapt
from skshapgpu.command_line import rows
from skshapgpu.command_line.explaining import pair_of
from skshapgpu.command_line.info import depth

pandas = pytest.importorskip("pandas")

# info


@pytest.mark.parametrize("family", ["xgboost", "lightgbm", "catboost", "treelite"])
def test_info_of_a_model_file(family: str, run: Any, tmp_path: Path) -> None:
    model, path = model_file(family, tmp_path, frame_names=family != "treelite")
    code, out, err = run("info", path, "--json")
    assert (code, err) == (0, "")
    facts, expected = json.loads(out), adapt(model)
    assert (facts["kind"], facts["family"]) == ("model", family)
    assert facts["file_bytes"] == path.stat().st_size
    assert facts["n_trees"] == expected.ensemble.n_trees > 1
    assert facts["n_leaves"] == expected.ensemble.n_leaves > facts["n_trees"]
    assert facts["feature_names"] == (None if family == "treelite" else list(NAMES))
    assert facts["n_features"] == 10 and facts["n_outputs"] == 1 and facts["has_covers"]
    assert facts["base_value"] == TreeExplainer(model).expected_value
    assert facts["x_dtype"] == expected.ensemble.x_dtype
    assert facts["estimate"]["result_bytes"] == 80 * facts["estimate"]["n_rows"]
    code, out, _ = run("info", path)
    assert code == 0 and family in out and f"{facts['n_leaves']:,} leaves" in out
    assert ("hessians" in out) == (family in ("xgboost", "lightgbm"))


def test_used_columns(run: Any, fails: Any, tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBRegressor(n_estimators=3, max_depth=2).fit(X, Y)
    path, saved, rows, out = (tmp_path / name for name in ("model.ubj", "saved", "rows.npy", "values.npy"))
    model.save_model(path)
    np.save(rows, X)
    expected = explain(model, X, columns="used")
    assert 1 < len(expected.feature_names) < 10
    code, printed, _ = run("explain", path, rows, "-o", out, "--columns", "used", "--json")
    assert code == 0 and json.loads(printed)["feature_names"] == list(expected.feature_names)
    np.testing.assert_array_equal(np.load(out), expected.values)
    assert run("save", path, "-o", saved, "--columns", "used")[0] == 0
    np.testing.assert_array_equal(TreeExplainer.load(saved).feature_indices, expected.feature_indices)
    assert "--columns" in fails("explain", saved, rows, "-o", out, "--columns", "all")


def test_covers_counted_from_the_background(run: Any, fails: Any, tmp_path: Path) -> None:
    model, path = model_file("xgboost", tmp_path, frame_names=True)
    data, rows, out, saved = (tmp_path / name for name in ("data.csv", "rows.csv", "values.npy", "saved"))
    frame()[list(NAMES[::-1])][:40].to_csv(data, index=False)
    frame()[300:].to_csv(rows, index=False)
    options = ["--background", data, "--feature-perturbation", "tree_path_dependent"]
    assert run("explain", path, rows, "-o", out, *options)[0] == 0
    explainer = TreeExplainer(model, frame()[:40], feature_perturbation="tree_path_dependent")
    expected = explainer.shap_values(frame()[300:])
    assert not np.allclose(expected, TreeExplainer(model).shap_values(frame()[300:]), rtol=1e-2)
    np.testing.assert_array_equal(np.load(out), expected)
    assert run("save", path, "-o", saved, *options)[0] == 0
    np.testing.assert_array_equal(TreeExplainer.load(saved).shap_values(frame()[300:]), expected)
    code, text, _ = run("info", saved)
    assert code == 0 and "counted from data" in text and "tree_path_dependent" in text
    perturbation = ["--feature-perturbation", "interventional"]
    assert "give --background" in fails("explain", path, rows, "-o", out, *perturbation)
    assert "--feature-perturbation" in fails("explain", saved, rows, "-o", out, *perturbation)
    assert "leave out cover or data" in fails("explain", path, rows, "-o", out, *options, "--cover", "weight")


def test_groups(run: Any, fails: Any, tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBRegressor(n_estimators=5, max_depth=3).fit(frame(), Y)
    path, saved, rows, out = (
        tmp_path / name for name in ("model.ubj", "saved", "rows.parquet", "values.parquet")
    )
    model.save_model(path)
    frame()[list(reversed(NAMES))].to_parquet(rows)
    groups = {"body": ["bmi", "bp"], "blood, all": [f"s{i}" for i in range(1, 7)]}
    options = [
        "--feature-group",
        "body=bmi,bp",
        "--feature-group",
        f"blood, all={','.join(groups['blood, all'])}",
    ]
    expected = explain(model, frame(), feature_groups=groups)
    assert expected.feature_names == ("age", "sex", "body", "blood, all")
    code, printed, _ = run("explain", path, rows, "-o", out, *options, "--json")
    assert code == 0 and json.loads(printed)["feature_names"] == list(expected.feature_names)
    result = pandas.read_parquet(out)
    assert tuple(result) == expected.feature_names
    np.testing.assert_array_equal(result.to_numpy(), expected.values)
    assert run("save", path, "-o", saved, *options)[0] == 0
    assert TreeExplainer.load(saved).group_columns == expected.group_columns
    pairs = tmp_path / "pairs.parquet"
    assert run("explain", saved, rows, "-o", pairs, "--interactions", "age:body")[0] == 0
    whole = explain_interactions(model, frame(), feature_groups=groups, interactions=[("age", "body")])
    np.testing.assert_array_equal(pandas.read_parquet(pairs)["age x body"], whole.values[:, 0])
    assert "--feature-group" in fails("explain", saved, rows, "-o", out, "--feature-group", "body=bmi,bp")
    assert "--feature-group, 'body': there is no column 'Bmi'" in fails(
        "explain", path, rows, "-o", out, "--feature-group", "body=Bmi,bp"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--feature-group", "body"], "is neither input nor of the form NAME=COLS"),
        (["--feature-group", "=bmi"], "is neither input nor of the form NAME=COLS"),
        (["--feature-group", "body="], "is not a list of names"),
        (["--feature-group", "body=bmi", "--feature-group", "body=bp"], "group 'body' is given twice"),
    ],
)
def test_wrong_groups(options: list[str], message: str, run: Any, tmp_path: Path) -> None:
    code, _, err = run("explain", tmp_path / "model.ubj", tmp_path / "rows.npy", "-o", "values.npy", *options)
    assert code == 2 and message in err


def test_covers_of_either_kind(run: Any, fails: Any, tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(X, Y > Y.mean())
    path, saved, rows, out = (tmp_path / name for name in ("model.txt", "saved", "rows.npy", "values.npy"))
    model.booster_.save_model(path)
    np.save(rows, X)
    facts = json.loads(run("info", path, "--json")[1])
    assert (facts["cover_kind"], facts["other_cover_kinds"]) == ("count", ["weight"])
    assert re.search(r"covers +counts of training rows; it has weights.*--cover weight", run("info", path)[1])
    assert run("save", path, "-o", saved, "--cover", "weight")[0] == 0
    assert re.search(r"covers +weights of training rows, their hessians\n", run("info", saved)[1])
    facts = json.loads(run("info", saved, "--json")[1])
    assert (facts["cover_kind"], facts["other_cover_kinds"]) == ("weight", [])
    expected = {kind: explain(model, X, cover=kind).values for kind in ("count", "weight")}
    assert np.abs(expected["count"] - expected["weight"]).max() > 1e-3
    for kind in expected:
        assert run("explain", path, rows, "-o", out, "--cover", kind, "--if-exists", "overwrite")[0] == 0
        np.testing.assert_allclose(np.load(out), expected[kind], rtol=0, atol=1e-5)
    assert "fixes --cover" in fails("explain", saved, rows, "-o", out, "--cover", "count")
    _, of_xgboost = model_file("xgboost", tmp_path)
    assert "has no counts" in fails("save", of_xgboost, "-o", saved, "--cover", "count")


def test_info_of_an_explainer(run: Any, tmp_path: Path) -> None:
    model = RandomForestClassifier(4, random_state=0).fit(*load_iris(return_X_y=True))
    data = load_iris().data[:7]
    TreeExplainer(model, data, precision="double").save(tmp_path / "file")
    code, out, _ = run("info", tmp_path / "file", "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["kind"], facts["library_version"]) == ("explainer", skshapgpu.__version__)
    assert (facts["precision"], facts["algorithm"], facts["n_background_rows"]) == ("double", "auto", 7)
    assert facts["feature_perturbation"] == "interventional" and facts["output_names"] == [0, 1, 2]
    assert (
        facts["table_bytes"] == TreeExplainer(model, data, precision="double").model_info()["table_bytes"] > 0
    )
    np.testing.assert_array_equal(facts["base_value"], TreeExplainer.load(tmp_path / "file").expected_value)
    text = run("info", tmp_path / "file")[1]
    assert "7 rows" in text and "0, 1, 2" in text and "interventional" in text


@pytest.mark.usefixtures("on_cpu")
def test_info_of_a_log_loss(run: Any, tmp_path: Path) -> None:
    forest = RandomForestRegressor(3, max_depth=3, random_state=0).fit(X, Y)
    TreeExplainer(forest, X[:5], model_output="log_loss").save(tmp_path / "file")
    code, out, _ = run("info", tmp_path / "file", "--json")
    assert code == 0 and json.loads(out)["base_value"] is None
    code, out, _ = run("info", tmp_path / "file")
    assert code == 0 and "log_loss" in out and "base value" not in out


def test_info_of_a_model_without_covers(run: Any, tmp_path: Path) -> None:
    treelite = pytest.importorskip("treelite")
    builder = treelite.model_builder.ModelBuilder(
        threshold_type="float32",
        leaf_output_type="float32",
        metadata=treelite.model_builder.Metadata(
            num_feature=2, task_type="kRegressor", average_tree_output=False, num_target=1, num_class=[1],
            leaf_vector_shape=(1, 1),
        ),
        tree_annotation=treelite.model_builder.TreeAnnotation(num_tree=1, target_id=[0], class_id=[0]),
        postprocessor=treelite.model_builder.PostProcessorFunc(name="identity"),
        base_scores=[0.0],
    )  # fmt: skip
    builder.start_tree()
    builder.start_node(0)
    builder.numerical_test(
        feature_id=0, threshold=0.5, default_left=True, opname="<", left_child_key=1, right_child_key=2
    )
    builder.end_node()
    for key in (1, 2):
        builder.start_node(key)
        builder.leaf(float(key))
        builder.end_node()
    builder.end_tree()
    builder.commit().serialize(tmp_path / "model")
    code, out, _ = run("info", tmp_path / "model", "--json")
    facts = json.loads(out)
    assert code == 0 and facts["n_leaves"] == 2 and not facts["has_covers"] and "base_value" not in facts
    assert "--background" in run("info", tmp_path / "model")[1]


def test_depth(forest: Any) -> None:
    assert depth(adapt(forest).ensemble) == max(tree.get_depth() for tree in forest.estimators_) == 4
    stumps = RandomForestRegressor(2, random_state=0).fit(X, np.ones(len(X)))
    assert depth(adapt(stumps).ensemble) == 0


# save


@pytest.mark.parametrize("options", [(), ("--algorithm", "fast_v2"), ("--precision", "double")])
def test_table_build(options: tuple[str, ...], run: Any, tmp_path: Path) -> None:
    model, path = model_file("xgboost", tmp_path)
    out = tmp_path / "explainer.npz"
    code, printed, err = run("save", path, "-o", out, "--json", *options)
    facts = json.loads(printed)
    assert (code, err) == (0, "")
    assert facts["file_bytes"] == out.stat().st_size > facts["table_bytes"]
    assert (facts["table_bytes"] > 0) == ("fast_v2" in options)
    assert facts["seconds"] >= facts["building_seconds"] > 0
    given = dict(zip((name.removeprefix("--") for name in options[::2]), options[1::2]))
    values = TreeExplainer.load(out).shap_values(X)
    np.testing.assert_array_equal(values, TreeExplainer(model, **given).shap_values(X))
    text = run("save", path, "-o", out, *options)[1]
    assert "explainer.npz" in text and ("--algorithm fast_v2" in text) == ("fast_v2" not in options)


def test_table_build_with_a_background(run: Any, fails: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    model, path = model_file("xgboost", tmp_path, frame_names=True)
    shuffled = frame().assign(target=Y)[["target", *NAMES[::-1]]]
    shuffled.to_parquet(tmp_path / "b.parquet")
    shuffled.to_csv(tmp_path / "b.csv")
    np.save(tmp_path / "b.npy", X)
    expected = TreeExplainer(model, frame()).shap_values(frame()[:5])
    for name in ("b.parquet", "b.csv", "b.npy"):
        code, out, _ = run("save", path, "-o", tmp_path / "out", "--background", tmp_path / name)
        assert code == 0 and "fast_v2" not in out
        np.testing.assert_array_equal(TreeExplainer.load(tmp_path / "out").shap_values(frame()[:5]), expected)
    build = ("save", path, "-o", tmp_path / "out", "--background")
    for name in ("b.parquet", "b.npy"):
        drawn = {}
        for seed in (0, 1, 0):
            again = drawn.get(seed)
            assert run(*build, tmp_path / name, "--background-rows", 40, "--seed", seed)[0] == 0
            drawn[seed] = (tmp_path / "out").read_bytes()
            assert again in (None, drawn[seed])
            assert "40 rows" in run("info", tmp_path / "out")[1]
        assert drawn[0] != drawn[1]
    assert "there are only 442 rows" in fails(*build, tmp_path / "b.parquet", "--background-rows", 443)
    assert "did you mean 'b.parquet'?" in fails(*build, tmp_path / "b.parque")
    shuffled.rename(columns={"bmi": "bmi2"}).to_parquet(tmp_path / "c.parquet")
    assert fails(*build, tmp_path / "c.parquet").endswith("no column bmi; did you mean 'bmi2'?")
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    assert "d.parquet" in fails(*build, tmp_path / "d.parquet")
    (tmp_path / "b.txt").touch()
    assert "is not a Parquet, Arrow or NumPy file by content" in fails(*build, tmp_path / "b.txt")


def test_options_that_contradict(saved: Path, fails: Any, tmp_path: Path) -> None:
    _, path = model_file("xgboost", tmp_path)
    out = tmp_path / "out"
    assert "give --background, too" in fails("save", path, "-o", out, "--seed", 1)
    assert "give --background, too" in fails("save", path, "-o", out, "--background-rows", 1)
    assert "give --background, too" in fails("save", path, "-o", out, "--model-output", "probability")
    given = ("--precision", "double", "--background", "b.npy")
    assert "fixes --background, --precision" in fails("save", saved, "-o", out, *given)
    assert "--memory-limit must" in fails("save", path, "-o", out, "--memory-limit", "a lot")
    assert not out.exists()


def test_places_that_cannot_be_written(
    saved: Path, fails: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fails("save", saved, "-o", tmp_path / "no" / "out").endswith("make it first")
    assert "is a folder" in fails("save", saved, "-o", tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # for root, who may write everywhere
    assert "nothing may be written" in fails("save", saved, "-o", tmp_path / "out")


# explain


def read(path: Path) -> Any:
    return pytest.importorskip("pyarrow.parquet").read_table(path).to_pandas()


@pytest.mark.parametrize("family", ["xgboost", "lightgbm", "catboost", "treelite", "explainer"])
def test_explain(family: str, run: Any, forest: Any, saved: Path, data: Path) -> None:
    model, path = (
        (forest, saved) if family == "explainer" else model_file(family, data.parent, family != "treelite")
    )
    out = data.parent / "out.parquet"
    options = ("--features", ",".join(NAMES)) if family == "treelite" else ()
    code, printed, err = run("explain", path, data, "-o", out, "--keep", "id", *options, "--batch-size", 100)
    assert (code, err) == (0, "")
    assert "out.parquet: 442 rows, in" in printed and "base value" in printed
    expected = TreeExplainer(model).explain(X if family == "treelite" else frame())
    result = read(out)
    assert list(result) == ["id", *NAMES] and result["id"].tolist() == list(range(442))
    np.testing.assert_array_equal(result[list(NAMES)], expected.values)
    assert np.ptp(expected.values) > 0


def test_explain_says_it_in_json(run: Any, saved: Path, data: Path, forest: Any) -> None:
    code, out, err = run("explain", saved, data, "-o", data.parent / "out.parquet", "--json")
    facts = json.loads(out)
    assert (code, err) == (0, "")
    assert (facts["n_rows"], facts["n_resumed"]) == (442, 0)
    assert facts["feature_names"] == list(NAMES) and facts["seconds"] > 0
    assert facts["base_values"] == TreeExplainer(forest).expected_value
    assert run("explain", saved, data, "-o", data.parent / "other.parquet", "--quiet") == (0, "", "")


def test_quiet_prints_no_warnings(run: Any, saved: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", X)  # without the names that the forest has
    command = "explain", saved, tmp_path / "rows.npy", "-o"
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert run(*command, tmp_path / "loud.npy")[0] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(*command, tmp_path / "quiet.npy", "--quiet") == (0, "", "")


def test_a_tab_may_be_escaped(run: Any, saved: Path, tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "rows.csv", sep="\t", index=False)
    for name, delimiter in (("0.npy", "\t"), ("1.npy", "\\t")):
        command = "explain", saved, tmp_path / "rows.csv", "-o", tmp_path / name, "--delimiter", delimiter
        assert run(*command)[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "0.npy"), np.load(tmp_path / "1.npy"))


@pytest.mark.parametrize("given", ["data.csv", "data.npy", "data.arrow"])
@pytest.mark.parametrize("wanted", ["out.parquet", "out.arrow", "out.npy", "out"])
def test_formats(given: str, wanted: str, run: Any, saved: Path, data: Path, forest: Any) -> None:
    folder = data.parent
    if given == "data.npy":
        np.save(folder / given, X)
    elif given == "data.csv":
        frame().to_csv(folder / given, index=False)
    else:
        frame().to_feather(folder / given)
    assert run("explain", saved, folder / given, "-o", folder / wanted)[0] == 0
    if wanted == "out.npy":
        values = np.load(folder / wanted)
    elif wanted == "out.arrow":
        values = pytest.importorskip("pyarrow.feather").read_table(folder / wanted).to_pandas()
    else:
        values = read(folder / wanted)
    np.testing.assert_array_equal(values, explain(forest, frame()).values)


def test_top(run: Any, saved: Path, data: Path, forest: Any) -> None:
    assert run("explain", saved, data, "-o", data.parent / "out.parquet", "--reasons", 2)[0] == 0
    result, values = read(data.parent / "out.parquet"), explain(forest, frame()).values
    assert list(result) == ["feature_1", "value_1", "shap_1", "feature_2", "value_2", "shap_2"]
    strongest = np.abs(values).argmax(axis=1)
    assert result["feature_1"].tolist() == [NAMES[i] for i in strongest]
    np.testing.assert_array_equal(result["shap_1"], values[np.arange(len(X)), strongest])


@pytest.mark.usefixtures("on_cpu")
def test_background_and_probability(run: Any, data: Path) -> None:
    lightgbm = library("lightgbm")
    model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(frame(), Y > 150)
    path = data.parent / "model.txt"
    model.booster_.save_model(str(path))
    out = data.parent / "out.parquet"
    np.save(data.parent / "b.npy", X[:30])
    base = (
        "explain",
        path,
        data,
        "-o",
        out,
        "--if-exists",
        "overwrite",
        "--background",
        data.parent / "b.npy",
    )
    for options, expected in (
        ((), explain(model, frame(), data=X[:30])),
        (("--model-output", "probability"), explain(model, frame(), data=X[:30], model_output="probability")),
        (("--precision", "double"), explain(model, frame(), data=X[:30], precision="double")),
    ):
        assert run(*base, *options)[0] == 0
        np.testing.assert_array_equal(read(out), expected.values)


@pytest.mark.usefixtures("on_cpu")
def test_functions_of_time(run: Any, fails: Any, data: Path) -> None:
    xgboost = library("xgboost")
    rows = xgboost.DMatrix(frame())
    for bound in ("lower", "upper"):
        rows.set_float_info(f"label_{bound}_bound", Y)
    model = xgboost.train({"objective": "survival:aft", "max_depth": 3}, rows, 5)
    path, background, out = (data.parent / name for name in ("model.ubj", "background.npy", "out.parquet"))
    model.save_model(path)
    np.save(background, X[:30])
    base = ("explain", path, data, "-o", out, "--if-exists", "overwrite", "--model-output", "survival")
    assert run(*base, "--background", background, "--times", "90,150.5")[0] == 0
    options: dict[str, Any] = {"model_output": "survival", "times": [90, 150.5]}
    np.testing.assert_array_equal(
        read(out), explain(model, frame(), data=X[:30], **options).values.reshape(len(X), -1)
    )
    assert list(read(out))[:2] == ["age__90.0", "age__150.5"]
    assert "compares with background rows" in fails(*base, "--times", "90")
    assert "--times belongs to" in fails(*base, "--background", background)
    assert "not a list of numbers" in fails(*base, "--times", "soon", exit_code=2)
    assert (
        run("save", path, "-o", data.parent / "saved", *base[7:], "--background", background, "--times", "9")[
            0
        ]
        == 0
    )
    assert "fixes --times" in fails("explain", data.parent / "saved", data, "-o", out, "--times", "9")
    assert "survival" in run("info", data.parent / "saved")[1]


def test_top_by_sign(run: Any, fails: Any, saved: Path, data: Path, forest: Any) -> None:
    out = data.parent / "out.parquet"
    assert run("explain", saved, data, "-o", out, "--reasons", 1, "--by-sign")[0] == 0
    result, records = read(out), explain(forest, frame()).reasons(1, by_sign=True)
    assert list(result)[:3] == ["for_1", "for_value_1", "for_shap_1"]
    record_of_row = {r["row"]: r for r in records if r["reason"] == "against"}
    assert result["against_1"].tolist() == [
        record_of_row[i]["feature"] if i in record_of_row else None for i in range(len(X))
    ]
    assert "--by-sign splits the strongest features" in fails(
        "explain", saved, data, "-o", out, "--if-exists", "overwrite", "--by-sign"
    )


def test_interactions(run: Any, fails: Any, saved: Path, data: Path, forest: Any) -> None:
    explainer, out = TreeExplainer(forest), data.parent / "out.parquet"
    base = ("explain", saved, data, "-o", out, "--if-exists", "overwrite", "--interactions")
    assert run(*base, "occurring")[0] == 0
    every = explainer.explain_interactions(frame(), interactions="occurring")
    np.testing.assert_array_equal(read(out), every.values)
    code, printed, _ = run(*base, "3", "--json")
    strongest = explainer.explain_interactions(frame(), interactions=3)
    assert code == 0 and json.loads(printed)["interactions"] == strongest.interactions.tolist()
    np.testing.assert_array_equal(read(out), strongest.values)
    assert list(read(out)) == list(strongest.interaction_names)
    assert run(*base, "bmi:s5,bp:bmi")[0] == 0
    listed = explainer.explain_interactions(frame(), interactions=[("bmi", "s5"), ("bp", "bmi")])
    np.testing.assert_array_equal(read(out), listed.values)
    assert np.ptp(listed.values) > 0
    assert "'bmj' is no feature of the model; did you mean 'bmi'?" in fails(*base, "bmj:s5")


def test_texts_are_categories(run: Any, fails: Any, tmp_path: Path) -> None:
    """A CSV file has no types: strings are categories in DATA, in a background, and when pairs are ranked."""
    pandas, xgboost = pytest.importorskip("pandas"), library("xgboost")
    pytest.importorskip("pyarrow")
    if tuple(map(int, xgboost.__version__.split(".")[:2])) < (3, 1):
        pytest.skip("XGBoost keeps categories since 3.1")
    cities = np.array(["Bergen", "Lima", "Oslo"])[np.arange(300) % 3]
    rng = np.random.default_rng(0)
    X = pandas.DataFrame({"city": pandas.Categorical(cities), "size": rng.normal(size=300)})
    y = (X["city"] == "Lima") * X["size"] + (X["city"] == "Oslo")
    model = xgboost.XGBRegressor(n_estimators=5, enable_categorical=True, n_jobs=1).fit(X, y)
    model.save_model(tmp_path / "model.ubj")
    X.to_csv(tmp_path / "data.csv")
    base = ("explain", tmp_path / "model.ubj", tmp_path / "data.csv", "-o", tmp_path / "out.parquet")
    code, _, err = run(*base, "--background", tmp_path / "data.csv")
    assert (code, err) == (0, "")
    expected = explain(model, X, data=X).values
    np.testing.assert_array_equal(read(tmp_path / "out.parquet"), expected)
    assert np.ptp(expected[:, 0]) > 0
    assert run(*base, "--interactions", "1", "--if-exists", "overwrite")[0] == 0
    expected = explain_interactions(model, X, interactions=1).values
    np.testing.assert_array_equal(read(tmp_path / "out.parquet"), expected)


def test_drawn_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In every way to read the file, each row is equally likely to be drawn, and no row is drawn twice."""
    monkeypatch.setattr(rows, "_PIECE", 70)
    np.save(tmp_path / "data.npy", np.arange(1000.0).reshape(-1, 1))
    counts = np.zeros(1000, int)
    for seed in range(200):
        result = rows.read_rows(str(tmp_path / "data.npy"), "DATA", list, n_rows=100, seed=seed)
        numbers = result[:, 0].astype(int)
        assert len(numbers) == 100 and (np.diff(numbers) > 0).all()
        counts[numbers] += 1
    # Each count is binomial (200, 0.1), with mean 20 and variance 18. Sums of 100 counts vary less than sums
    # of independent counts.
    assert counts.sum() == 20_000 and counts.max() < 20 + 6 * 18**0.5
    assert np.abs(counts.reshape(10, 100).sum(axis=1) - 2000).max() < 6 * 1800**0.5


def test_pairs_of_names_with_colons() -> None:
    names = ["a", "b", "a:b", "b:c", "c"]
    assert pair_of("a:c", names) == ("a", "c")
    assert pair_of("a:b:c", [*names[:3], "c"]) == ("a:b", "c")
    with pytest.raises(ValueError, match="several pairs"):
        pair_of("a:b:c", names)


def test_results_are_not_overwritten(run: Any, fails: Any, saved: Path, data: Path) -> None:
    out = data.parent / "out.parquet"
    out.write_bytes(b"a thesis")
    assert "out.parquet" in fails("explain", saved, data, "-o", out)
    assert out.read_bytes() == b"a thesis"
    folder = data.parent / "out"
    assert run("explain", saved, data, "-o", folder)[0] == 0
    code, printed, _ = run("explain", saved, data, "-o", folder, "--json")
    assert code == 0 and json.loads(printed)["n_resumed"] == 442
    assert "442 rows, all of them written before\n" in run("explain", saved, data, "-o", folder)[1]
    assert "pass --if-exists overwrite to start anew" in fails(
        "explain", saved, data, "-o", folder, "--reasons", 1
    )
    code, printed, _ = run("explain", saved, data, "-o", folder, "--json", "--if-exists", "overwrite")
    assert code == 0 and json.loads(printed)["n_resumed"] == 0


def test_what_explain_refuses(fails: Any, saved: Path, data: Path) -> None:
    out = data.parent / "out"
    assert fails("explain", saved, data.parent / "date.parquet", "-o", out).endswith("mean 'data.parquet'?")
    assert "write MODEL before DATA" in fails("explain", data, saved, "-o", out)
    mistaken = fails("explain", saved, data, "-o", out, "--keep", "ids")
    assert mistaken.endswith("there is no column ids; did you mean 'id'?")
    mistaken = fails("explain", saved, data, "-o", out, "--features", "age,bmj")
    assert mistaken.endswith("there is no column bmj; did you mean 'bmi'?")
    assert "--device must" in fails("explain", saved, data, "-o", out, "--device", "gpu")
    assert "--memory-limit must" in fails("explain", saved, data, "-o", out, "--memory-limit", "much")
    assert "no" in fails("explain", saved, data, "-o", data.parent / "no" / "out.parquet")
    assert "out.txt" in fails("explain", saved, data, "-o", data.parent / "out.txt")
    frame().drop(columns="bmi").to_parquet(data.parent / "less.parquet")
    for more in ((), ("--interactions", "3")):
        message = fails("explain", saved, data.parent / "less.parquet", "-o", out, *more)
        assert message == f"DATA: '{data.parent / 'less.parquet'}': there is no column bmi"
    frame().rename(columns={"bmi": "BMI"}).to_parquet(data.parent / "less.parquet")
    assert fails("explain", saved, data.parent / "less.parquet", "-o", out).endswith("you mean 'BMI'?")
    (data.parent / "no.parquet").write_bytes(b"PAR1")
    assert "no.parquet" in fails("explain", saved, data.parent / "no.parquet", "-o", out)
    assert not out.exists()
