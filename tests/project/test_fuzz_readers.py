"""The fuzzer of readers: a few cases of each target, and results that it must report. The core's compiles."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from fuzz.readers.mutations import Doubled, changed
from fuzz.readers.run import Fuzzer, Result, compared
from fuzz.readers.targets import TARGETS, mutant
from sklearn.utils.fixes import parse_version


def reads_the_corpus(name: str) -> bool:
    """Return whether the library is installed, and reads its corpus, which a later release wrote."""
    module = TARGETS[name].module
    if not importlib.util.find_spec(module):
        return False
    if module != "xgboost":
        return True
    # Before 3.1, XGBoost takes 0.5 for the list in which the corpus has the base score.
    return parse_version(importlib.import_module(module).__version__) >= parse_version("3.1")


def test_fuzzer_of_the_core_compiles() -> None:
    root, compiler = Path(__file__).parents[2], shutil.which("g++")
    if compiler is None or not (root / "csrc").exists():
        pytest.skip("needs GCC and the sources")
    command = [compiler, "-std=c++17", "-fsyntax-only", "-I", root / "csrc", root / "tests/fuzz/core.cpp"]
    assert subprocess.run(command, check=False).returncode == 0


def test_cases() -> None:
    names = [name for name in ("xgboost_json", "treelite") if reads_the_corpus(name)]
    with Fuzzer() as fuzzer:
        results = [fuzzer.run(name, seed=0, seconds=60, n_cases=5) for name in names]
    for result in results:
        assert not result.findings, f"./dev fuzz readers {result.name}: {result.findings}"
        assert result.counts.total() == 5


@pytest.mark.parametrize("name", TARGETS)
def test_a_case_depends_on_its_seed_alone(name: str) -> None:
    cases = [mutant(TARGETS[name], np.random.default_rng(seed)) for seed in (3, 3, 4)]
    assert cases[0] == cases[1] != cases[2]


def test_changes_leave_the_corpus_as_it_is() -> None:
    documents = TARGETS["catboost_json"].documents()
    before = repr(documents)
    for seed in range(50):
        changed(documents["regression"], np.random.default_rng(seed))
    assert repr(documents) == before


def test_a_key_is_written_twice() -> None:
    content = TARGETS["xgboost_json"].write({"part": Doubled({"a": 1}, "a", 2)})
    assert content == b'{"part": {"a": 1, "a": 2}}'


def test_differences_are_findings() -> None:
    ours, library = np.array([[1.0], [2.0]]), np.array([[0.5, 1.0], [0.5, 2.1]])
    assert compared(ours, library, scale=1e5)[0] == "agree"
    assert compared(ours, library, scale=1.0)[0] == "finding"
    assert compared(ours, np.full((2, 1), np.nan), scale=1.0)[0] == "finding"
    assert compared(library, ours, scale=1e5)[0] == "finding"


def test_refusals_are_counted_by_message() -> None:
    result = Result("lightgbm", 0)
    result.stricter = {"rare": ["seed 1"], "often": ["seed 2", "seed 3"]}
    assert [line.split()[1] for line in result.refusals().split("\n") if "seed" not in line] == [
        "often",
        "rare",
    ]
