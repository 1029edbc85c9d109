"""Failing allocations, threads and system calls: each raises a named error, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.failing_calls import FILE_RUNS, MEMORY_RUNS, compile_library, run_failing


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = compile_library(tmp_path_factory.mktemp("library"))
    if path is None:
        pytest.skip("only Linux with the GNU C library and a C++ compiler lets calls fail in this way")
    return path


def test_allocations(library: Path, tmp_path: Path) -> None:
    """A call or a construction raises MemoryError or succeeds, frees its memory, and works again."""
    counts = run_failing(library, "memory", tmp_path)
    assert set(counts) == set(MEMORY_RUNS)
    assert all(run["allocation: MemoryError"] > 50 for run in counts.values())
    assert counts["large results"]["mapping: MemoryError"] > 0


def test_threads(library: Path, tmp_path: Path) -> None:
    """If a thread cannot start, the other threads do the work."""
    counts = run_failing(library, "threads", tmp_path)
    assert all(run.get("thread in a fork") or "allocation in a fork" in run for run in counts.values())
    assert counts["fast_v2"]["allocation in a fork"] > 50


def test_files(library: Path, tmp_path: Path) -> None:
    """A file is the earlier one or the complete new one, and the next run completes it."""
    counts = run_failing(library, "files", tmp_path)
    assert set(counts) == set(FILE_RUNS)
    for name, run in counts.items():
        assert run["open: OSError"] > 0
        assert name == "load" or (run["write: OSError"] > 4 and run["sync: OSError"] > 0)
