"""skshapgpu compare: output, limits and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import X, frame

from skshapgpu import compare_explanations, explain_batches
from skshapgpu.command_line import comparing

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")


@pytest.fixture
def files(forest: Any, tmp_path: Path) -> list[Path]:
    """Values of all rows, and of rows in which the strongest feature has moved."""
    paths = [tmp_path / "reference.parquet", tmp_path / "current"]
    moved = frame()
    strongest = moved.columns[forest.feature_importances_.argmax()]
    moved[strongest] += moved[strongest].std()
    explain_batches(forest, frame().assign(w=1.0), paths[0], keep=["w"])
    explain_batches(forest, moved, paths[1], batch_size=len(X) // 3)
    return paths


def test_compare(run: Any, files: list[Path]) -> None:
    expected = compare_explanations(*files)
    code, out, err = run("compare", *files)
    assert (code, err) == (0, "") and "FAILED" not in out
    assert f"{len(X):,} reference rows, {len(X):,} current rows\nnDCG of the rankings: " in out
    assert [line.split()[0] for line in out.splitlines()[4:]] == list(expected.to_frame().index)
    code, out, err = run("compare", *files, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == expected.to_dict() | {"passed": True, "failures": []}


def test_limits(run: Any, files: list[Path]) -> None:
    expected = compare_explanations(*files)
    largest = expected.psi.max()
    assert 0.25 < largest and 0.5 < expected.ndcg < 1
    for limits, n_failures in (
        (("--fail-below", expected.ndcg), 0),
        (("--fail-below", expected.ndcg + 1e-9), 1),
        (("--fail-psi-above", largest), 0),
        (("--fail-psi-above", largest - 1e-9), 1),
        (("--fail-below", 1, "--fail-psi-above", largest - 1e-9), 2),
        (("--fail-distance-above", expected.relative_wasserstein.max()), 0),
        (("--fail-distance-above", expected.relative_wasserstein.max() - 1e-9), 1),
        (("--fail-below", 0.1, "--fail-psi-above", 100), 0),
    ):
        code, out, err = run("compare", *files, *limits)
        assert (code, err) == (3 if n_failures else 0, "") and out.count("FAILED: ") == n_failures
        code, out, _ = run("compare", *files, *limits, "--json")
        facts = json.loads(out)
        assert code == (3 if n_failures else 0) and facts["passed"] is not bool(n_failures)
        assert len(facts["failures"]) == n_failures
    assert comparing.DRIFTED == 3


def test_same_values_pass(run: Any, files: list[Path]) -> None:
    assert run("compare", files[0], files[0], "--fail-below", 1, "--fail-psi-above", 0)[0] == 0


def test_options(run: Any, files: list[Path]) -> None:
    code, out, _ = run("compare", *files, "--bins", 4, "--reference-weight", "w", "--json")
    expected = compare_explanations(*files, n_bins=4, reference_weight="w").to_dict()
    assert code == 0 and json.loads(out)["features"] == expected["features"]


def test_errors(fails: Any, forest: Any, files: list[Path], tmp_path: Path) -> None:
    explain_batches(forest, frame(), tmp_path / "top.parquet", reasons=2)
    frame().to_parquet(tmp_path / "rows.parquet")
    assert "CURRENT: there is no file" in fails("compare", files[0], tmp_path / "c")
    assert "an output of --reasons holds only the strongest" in fails(
        "compare", files[0], tmp_path / "top.parquet"
    )
    assert "not written by 'skshapgpu explain'" in fails("compare", tmp_path / "rows.parquet", files[1])
    message = fails("compare", *files, "--reference-weight", "v")
    assert message.startswith("--reference-weight: there is no column 'v' in")
    assert message.endswith("name it in --keep of 'skshapgpu explain'")


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--fail-below", "1.5"], "'1.5' is above 1, the largest nDCG"),
        (["--fail-below", "nan"], "'nan' is not a number of at least 0"),
        (["--fail-below", "-1"], "'-1' is not a number of at least 0"),
        (["--fail-psi-above", "inf"], "'inf' is not a number of at least 0"),
        (["--fail-psi-above", "x"], "'x' is not a number of at least 0"),
        (["--fail-distance-above", "-0.1"], "'-0.1' is not a number of at least 0"),
        (["--bins", "1"], "'1' is not a whole number of at least 2"),
    ],
)
def test_wrong_usage(fails: Any, flags: list[str], message: str) -> None:
    assert message in fails("compare", "a", "b", *flags, exit_code=2)
