"""CSV in explain_batches and on the command line; the references are pandas.read_csv and explain."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from skshapgpu import TreeExplainer, explain_batches
from skshapgpu.batches import csv_files
from skshapgpu.batches.csv_files import CsvFile, CsvFormat
from skshapgpu.command_line import main

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pyarrow.csv")

RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.normal(size=150), "b": RNG.integers(-9, 9, 150) * 1.0, "c": RNG.random(150)})
Y = 100 + 30 * X["a"] + 10 * X["b"] * X["c"]
MODEL = HistGradientBoostingRegressor(max_iter=8, min_samples_leaf=4).fit(X, Y)
EXPLAINER = TreeExplainer(MODEL)


def read(text: str, **options: Any) -> Any:
    return pd.read_csv(io.StringIO(text), **options)


def found_in(
    path: Path, text: str, explainer: Any = EXPLAINER, batch_size: int | str = "auto", **csv_options: Any
) -> np.ndarray:
    (path / "rows.csv").write_text(text, encoding="utf-8")
    how: dict[str, Any] = {"batch_size": batch_size, "csv_options": csv_options, "if_exists": "overwrite"}
    return np.load(explain_batches(explainer, path / "rows.csv", path / "out.npy", **how).path)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks of a few rows, so that types differ between blocks."""
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 400)


#: Values of the column b by the number of the row, of 150; in many, the last rows differ from the first.
COLUMNS: dict[str, Callable[[int], str]] = {
    "whole": lambda i: str(i - 70),
    "whole, then not": lambda i: str(i) if i < 100 else f"{i}.25",
    "not, then whole": lambda i: f"{i}.25" if i < 100 else str(i),
    "empty, then whole": lambda i: "" if i < 100 else str(i % 9),
    "whole, then empty": lambda i: str(i % 9) if i < 100 else "",
    "empty": lambda i: "",
    "exponents": lambda i: f"{i - 50}e-1",
    "signs and blanks": lambda i: f" +{i % 9} ",
    "infinite": lambda i: ("inf", "-inf", "Infinity", "1.5")[i % 4],
    "truth": lambda i: ("True", "FALSE", "true")[i % 3],
    "long": lambda i: str(2**62 + 2**40 * i),
    "longer": lambda i: str(2**63 + 2**40 * i),
    "quoted": lambda i: f'"{i % 9}"',
    **{
        f"missing {text!r}": lambda i, text=text: text if i % 3 else str(i % 8)  # type: ignore[misc]
        for text in ('""', "NA", "N/A", "<NA>", "None", "null", "nan", "#N/A", "-1.#IND", "n/a", "NULL")
    },
}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_those_of_pandas(name: str, tmp_path: Path) -> None:
    lines = [
        f"{a!r},{COLUMNS[name](i)},{c!r}" for i, (a, c) in enumerate(zip(X["a"].tolist(), X["c"].tolist()))
    ]
    text = "\n".join(["a,b,c", *lines])
    frame = read(text)
    (tmp_path / "rows.csv").write_text(text)
    result = explain_batches(EXPLAINER, tmp_path / "rows.csv", tmp_path / "out", keep=["b"], prefix="shap_")
    values = np.column_stack(pq.read_table(result.path).columns[1:])
    np.testing.assert_array_equal(values, EXPLAINER.shap_values(frame))
    kept = pq.read_table(result.path).column("b")
    actual = kept.to_pandas(integer_object_nulls=True)
    assert kept.null_count == frame["b"].isna().sum()
    assert actual.dropna().tolist() == frame["b"].dropna().tolist()


def test_text_is_missing_where_it_is_for_pandas(tmp_path: Path) -> None:
    """Some transformers take None and NaN for two categories, or tell True from "True"."""
    n = np.arange(150)
    columns = {
        "text": np.array(["x", "", "y", '"q, ""r"""', "NA", " z"], object)[n % 6],
        "date": np.array(["2020-01-01", "2021-01-01", ""], object)[n % 3],
        "flag": np.array(["True", "False", ""], object)[n % 3],
        "zip": np.array(["01234", "1234"], object)[n % 2],
        "size": np.array(["1", "2", ""], object)[n % 3],
    }
    lines = zip(X["a"].astype(str), *columns.values())
    text = "\n".join([f"a,{','.join(columns)}", *(",".join(line) for line in lines)])
    frame = read(text)
    assert frame.isna().sum().tolist() == [0, 50, 50, 50, 0, 50]

    def as_text(X: Any) -> Any:
        return X.astype(str)

    codes = OneHotEncoder(handle_unknown="ignore")
    steps = make_column_transformer(
        (codes, ["text", "date", "flag"]),
        (make_pipeline(FunctionTransformer(as_text), codes), ["zip", "size"]),
        remainder="passthrough",
    )
    model = make_pipeline(steps, RandomForestRegressor(5, random_state=0))
    model.fit(frame, 100 * frame.isna().sum(axis=1) + X["a"])
    explainer = TreeExplainer(model, algorithm="quadrature")  # whatever the number of rows, for equal bits
    want = explainer.shap_values(frame)
    # Each batch except the last has rows with and without missing values.
    np.testing.assert_array_equal(found_in(tmp_path, text, explainer, batch_size=149), want)


def test_empty_text_is_a_missing_category(tmp_path: Path) -> None:
    texts = np.array(["x", "", "y"], object)[np.arange(150) % 3]
    text = X.assign(b=texts).to_csv(index=False)
    frame = read(text).astype({"b": "category"})
    assert frame["b"].isna().sum() == 50
    model = HistGradientBoostingRegressor(max_iter=8, categorical_features="from_dtype")
    model.fit(frame, Y + 100 * frame["b"].isna())
    want = TreeExplainer(model).shap_values(frame)
    assert np.abs(want[:, 1]).min() > 5
    np.testing.assert_array_equal(found_in(tmp_path, text, TreeExplainer(model), batch_size=40), want)


def test_delimiters_quotes_decimals_and_null_values(tmp_path: Path) -> None:
    gaps = X.assign(b=np.where(X["b"] > 5, np.nan, X["b"]), text="a;b|c'd")
    for pandas_options, options in (
        ({"sep": ";"}, {"delimiter": ";"}),
        ({"sep": ";", "decimal": ","}, {"delimiter": ";", "decimal": ","}),
        ({"sep": "|", "na_rep": "?"}, {"delimiter": "|", "null_values": ["?"]}),
        ({"sep": "\t", "na_rep": "-999"}, {"delimiter": "\t", "null_values": ["-999"]}),
        ({"quotechar": "'", "quoting": 1}, {"quote_char": "'"}),
        ({"quoting": 3}, {"quote_char": ""}),
    ):
        text = gaps.to_csv(index=False, **pandas_options)
        result = found_in(tmp_path, text, **options)
        np.testing.assert_array_equal(result, EXPLAINER.shap_values(gaps[list(X)]))
        again = explain_batches(EXPLAINER, tmp_path / "rows.csv", tmp_path / "out.npy", csv_options=options)
        assert again.n_resumed == 150
    with pytest.raises(ValueError, match="finished output of another call"):
        explain_batches(EXPLAINER, tmp_path / "rows.csv", tmp_path / "out.npy")
    # A numeric null value is recognized in every notation, as by pandas.
    text = gaps.assign(b=gaps["b"].fillna(-999)).to_csv(index=False)
    assert "-999.0" in text
    want = EXPLAINER.shap_values(read(text, na_values=["-999"])[list(X)])
    np.testing.assert_array_equal(want, EXPLAINER.shap_values(gaps[list(X)]))
    np.testing.assert_array_equal(found_in(tmp_path, text, null_values=["-999"]), want)


def test_a_file_of_other_delimiters_is_named(tmp_path: Path) -> None:
    for sep, shown in ((";", "';'"), ("\t", r"'\\t'"), ("|", r"'\|'")):
        advice = rf"use the CSV option delimiter={shown}"
        with pytest.raises(ValueError, match=rf"rows\.csv' has a single column, .* {advice}"):
            found_in(tmp_path, X.to_csv(sep=sep, index=False))
    advice = "numbers with a decimal comma need the CSV option decimal=','"
    with pytest.raises(ValueError, match=rf"row 0 of column 'a' .* {advice}"):
        found_in(tmp_path, X.to_csv(sep=";", decimal=",", index=False), delimiter=";")
    advice = "use the CSV option delimiter=';'"
    with pytest.raises(ValueError, match=rf"delimiter and decimal are both ','.* {advice}"):
        found_in(tmp_path, X.to_csv(sep=";", decimal=",", index=False), decimal=",")
    # A thousands separator is no decimal point.
    with pytest.raises(ValueError, match=r"row 1 of column 'a' of .* is '1\.234', where the model"):
        found_in(tmp_path, "a;b;c\n1,5;2;3\n1.234;2;3\n", delimiter=";", decimal=",")
    # A single column may have such a name.
    model = RandomForestRegressor(3, random_state=0).fit(X[["b"]].rename(columns={"b": "b;c"}), Y)
    text = X[["b"]].rename(columns={"b": "b;c"}).to_csv(index=False)
    result = found_in(tmp_path, text, TreeExplainer(model), delimiter=",")
    np.testing.assert_array_equal(result, TreeExplainer(model).shap_values(read(text)))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,c\n" + "1,2,3\n" * 90 + "1,x7,3\n", r"row 90 of column 'b' of .*rows\.csv' is 'x7', where the"),
        (
            "a,b,c\n" + "1,2,3\n" * 90 + "1,2\n",
            r"rows\.csv' cannot be read as CSV: .*Row #92: Expected 3 columns",
        ),
        ("a,b,c\n" + "1,2,3\n" * 90 + "1,2,3,4\n", r"Expected 3 columns, got 4"),
        ("", "it is empty"),
        ("a,b,b,c\n1,2,3,4\n", "several columns 'b'"),
        ("a,b\n1,2\n", "'c'|- c"),
        (
            'a,b,c\n1,2,"' + "3\n" * 999,
            r"cannot be read as CSV: .*; a row is longer than .*, or a quote is not",
        ),
    ],
)
def test_files_that_are_refused_before_any_row_is_explained(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        found_in(tmp_path, text)
    assert not (tmp_path / "out.npy").exists() and not list(tmp_path.glob(".*"))


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(X.assign(text="é").to_csv(index=False).encode("latin-1"))
    result = explain_batches(EXPLAINER, tmp_path / "rows.csv", tmp_path / "out")  # it does not need the text
    assert result.n_rows == 150
    with pytest.raises(ValueError, match=r"cannot be read as CSV: .*UTF8 data.*; save the file as UTF-8"):
        explain_batches(EXPLAINER, tmp_path / "rows.csv", tmp_path / "o2", keep=["text"])
    (tmp_path / "names.csv").write_bytes(X.assign(größe=0).to_csv(index=False).encode("latin-1"))
    with pytest.raises(ValueError, match=r"names of columns in '.*names.csv' are not UTF-8; save the file"):
        explain_batches(EXPLAINER, tmp_path / "names.csv", tmp_path / "o3")


def test_lines_in_quotes_compression_marks_and_no_rows(tmp_path: Path) -> None:
    frame = X.assign(text=np.where(np.arange(150) % 2, "two\nlines, one row", 'a "word"'))[["text", *X]]
    text = frame.to_csv(index=False)
    want = EXPLAINER.shap_values(read(text)[list(X)])
    np.testing.assert_array_equal(found_in(tmp_path, "\ufeff" + text), want)
    np.testing.assert_array_equal(found_in(tmp_path, text.replace("\n", "\r\n")), want)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(text.encode()))
    result = explain_batches(
        EXPLAINER, tmp_path / "rows.csv.gz", tmp_path / "out", keep=["text"], batch_size=40
    )
    assert pq.read_table(result.path).column("text").to_pylist() == frame["text"].tolist()
    assert found_in(tmp_path, "a,b,c\n").shape == (0, 3)


def test_types_of_all_files(tmp_path: Path) -> None:
    """A kept column becomes strings if one file has strings in it; the model's columns must agree."""
    for i, (ids, b) in enumerate((("1", "1"), ("x2", "1.5"), ("", ""), ("2020-01-01", "2"))):
        (tmp_path / f"{i}.csv").write_text(f"id,a,b,c\n{ids},1,{b},1\n")
    paths = sorted(tmp_path.glob("*.csv"))
    result = explain_batches(EXPLAINER, paths, tmp_path / "out", keep=["id"])
    assert pq.read_table(result.path).column("id").to_pylist() == ["1", "x2", None, "2020-01-01"]
    values = np.column_stack(pq.read_table(result.path).columns[1:])
    want = np.concatenate([EXPLAINER.shap_values(pd.read_csv(path)[list(X)]) for path in paths])
    np.testing.assert_array_equal(values, want)


def test_the_rows_are_counted_before(tmp_path: Path) -> None:
    told = []
    (tmp_path / "rows.csv").write_text(X.to_csv(index=False))
    explain_batches(
        EXPLAINER,
        tmp_path / "rows.csv",
        tmp_path / "out",
        batch_size=40,
        progress=lambda *at: told.append(at),
    )
    assert told[-1] == (150, 150)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"delimiter": ""}, ValueError, "delimiter must be a single character"),
        ({"delimiter": ";;"}, ValueError, "delimiter must be a single character, not ';;'"),
        ({"quote_char": "''"}, ValueError, "quote_char must be a single character"),
        ({"null_values": "NA"}, TypeError, "null_values must be a list of strings"),
        ({"null_values": [-999]}, TypeError, "null_values must be a list of strings"),
        ({"decimal": ";"}, ValueError, "decimal must be"),
        ({"sep": ";"}, ValueError, "csv_options has no 'sep'; its keys are delimiter, quote_char"),
    ],
)
def test_wrong_options(options: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        found_in(tmp_path, X.to_csv(index=False), **options)


def test_options_of_csv_for_other_files(tmp_path: Path) -> None:
    X.to_parquet(tmp_path / "rows.parquet")
    for source in (tmp_path / "rows.parquet", X, X.to_numpy()):
        with pytest.raises(ValueError, match="the source is not a CSV file: leave out the CSV options"):
            explain_batches(EXPLAINER, source, tmp_path / "out", csv_options={"delimiter": ";"})


def test_kinds_are_those_of_the_whole_file(tmp_path: Path) -> None:
    """Types are the same as in pandas for any order of the values."""
    values = {
        ("1", "-2"): "int64",
        ("1", str(2**63)): "uint64",
        ("-1", str(2**63)): ("double", "string"),
        ("1", str(2**64)): ("double", "string"),
        ("1.5", str(2**64)): "double",
        ("1", "True"): "string",
        ("1", "0x1F"): "string",
        ("1", "1_000"): "string",
        ("True", "false"): "bool",
        ("True", "yes"): "string",
        ("NA", ""): "null",
    }
    for pair, kind in values.items():
        for order in (pair, pair[::-1]):
            (tmp_path / "rows.csv").write_text("x,y\n" + "".join(f"{value},1\n" for value in order))
            file = CsvFile(str(tmp_path / "rows.csv"), CsvFormat(), "csv")
            file.scan(["x"])
            expected = kind if isinstance(kind, tuple) else (kind, kind)
            assert (str(file.type_of("x")), str(file.type_of("x", exact=True))) == expected, order


def run(*arguments: Any, capsys: Any) -> tuple[int, str]:
    code = main([str(argument) for argument in arguments])
    return code, capsys.readouterr().err


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    EXPLAINER.save(tmp_path / "model.npz")
    gaps = X.assign(b=np.where(X["b"] > 5, np.nan, X["b"]), text="it's")
    gaps.to_csv(tmp_path / "rows.csv", sep=";", decimal=",", na_rep="?", index=False)
    base = ("explain", tmp_path / "model.npz", tmp_path / "rows.csv", "-o", tmp_path / "out.npy", "--quiet")
    code, err = run(*base, capsys=capsys)
    assert code == 1 and "has a single column" in err and "use the CSV option --delimiter ';'" in err
    code, err = run(*base, "--delimiter", ";", capsys=capsys)
    assert code == 1 and "need the CSV option --decimal ," in err
    code, err = run(*base, "--delimiter", ";", "--decimal", ",", capsys=capsys)
    assert (
        code == 1 and "column 'b'" in err and "'?'" in err and "list it in the CSV option --null-value" in err
    )
    options = (
        "--delimiter",
        ";",
        "--decimal",
        ",",
        "--null-value",
        "x",
        "--null-value",
        "?",
        "--quote-char",
        "'",
    )
    code, err = run(*base, *options[:-2], capsys=capsys)
    assert (code, err) == (0, "")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), EXPLAINER.shap_values(gaps[list(X)]))
    assert run(*base, "--delimiter", ";;", capsys=capsys)[0] == 1
    assert run(*base, "--decimal", ";", capsys=capsys)[0] == 2
