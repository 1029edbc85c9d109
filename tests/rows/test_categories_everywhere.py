"""Strings, categories and names of columns mean the same in explain, batches and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.families import frame_with_categories, library, library_with_categories, with_categories

from skshapgpu import TreeExplainer, explain
from skshapgpu.command_line import main
from skshapgpu.command_line.rows import meant

FAMILIES = ["sklearn", "xgboost", "lightgbm"]


def with_holes() -> tuple[Any, Any, np.ndarray]:
    """Return a frame for training, a copy with missing colours, and targets."""
    X, y = frame_with_categories()
    return X, X.assign(color=X["color"].where(np.arange(len(X)) % 4 > 0)), y


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["text", "dictionary"])
def test_missing_categories_of_batches(family: str, kind: str) -> None:
    arrow = library("pyarrow")
    library_with_categories(family)
    from skshapgpu.batches.record_batches import BatchExplainer

    X, holes, y = with_holes()
    model = with_categories(family, X, y)
    table = arrow.table(holes.assign(color=holes["color"].astype(object)))
    if kind == "dictionary":
        table = table.set_column(1, "color", table["color"].dictionary_encode())
    expected = explain(model, holes).values
    for explainer in (BatchExplainer(model), BatchExplainer(model, data=X[:40])):
        parts = [explainer(batch) for batch in table.to_batches(max_chunksize=40)]
        columns = [[part.column(i).to_numpy() for part in parts] for i in range(3)]
        values = np.column_stack([np.concatenate(column) for column in columns])
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6)
        expected = TreeExplainer(model, X[:40]).shap_values(holes)


@pytest.mark.parametrize("family", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_missing_categories_of_a_background_on_the_command_line(
    family: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library("pyarrow")
    library_with_categories(family)
    X, holes, y = with_holes()
    model = with_categories(family, X, y)
    path = tmp_path / ("model.ubj" if family == "xgboost" else "model.txt")
    if family == "xgboost":
        model.save_model(path)
    else:
        model.booster_.save_model(path)
    holes = holes.fillna({"size": 0.25})
    given, out = tmp_path / f"rows.{suffix}", tmp_path / "out.npz"
    if suffix == "csv":
        holes.to_csv(given, index=False)
    else:
        holes.to_parquet(given, index=False)
    assert main([str(a) for a in ("save", path, "--background", given, "-o", out)]) == 0
    expected = TreeExplainer(str(path), holes)
    explainer = TreeExplainer.load(out)
    assert explainer.expected_value == pytest.approx(expected.expected_value, abs=1e-6)
    np.testing.assert_allclose(explainer.shap_values(X), expected.shap_values(X), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("capital-gain", ["capital-loss", "age"], None),
        ("capital_gain", ["capital-gain"], "capital-gain"),
        ("bmj", ["bmi", "s5"], "bmi"),
        ("Age", ["age"], "age"),
        ("explanier.npz", ["explainer.npz"], "explainer.npz"),
        ("income", ["outcome"], None),
    ],
)
def test_only_slips_are_answered_by_a_suggestion(name: str, known: list[str], expected: str | None) -> None:
    assert meant(name, known) == ("" if expected is None else f"; did you mean {expected!r}?")


def test_a_column_that_the_model_has_itself_is_not_suggested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pd, xgboost = library("pandas"), library("xgboost")
    library("pyarrow")
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=["x_1", "x_2", "x_3"])
    xgboost.XGBRegressor(n_estimators=2).fit(X, X["x_1"]).save_model(tmp_path / "model.ubj")
    for columns, end in (({"x_3": "y"}, "there is no column x_3\n"), ({"x_3": "x3"}, "did you mean 'x3'?\n")):
        X.rename(columns=columns).to_csv(tmp_path / "rows.csv", index=False)
        call = ["explain", tmp_path / "model.ubj", tmp_path / "rows.csv", "-o", tmp_path / "out.csv"]
        assert main([str(argument) for argument in call]) == 1
        assert capsys.readouterr().err.endswith(end)
