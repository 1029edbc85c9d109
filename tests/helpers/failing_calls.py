"""Scripted runs, in a process of their own, in which the n-th call of one kind fails.

``failing_calls.cpp`` counts the calls and lets one fail. After each failure, the same objects must still
work, and the same run must give the same bits and the same files.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import json
import os
import pickle
import platform
import shutil
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

from helpers import TESTS
from skshapgpu import TreeExplainer, _core, explain_batches, partial_dependence

SOURCE = TESTS / "helpers" / "failing_calls.cpp"

#: Numbers of the errors with which calls fail, by the kinds of calls, in the order of ``Kind`` in the source.
ERRORS = {
    "allocation": errno.ENOMEM,
    "mapping": errno.ENOMEM,
    "thread": errno.EAGAIN,
    "open": errno.EMFILE,
    "read": errno.EIO,
    "write": errno.ENOSPC,
    "sync": errno.EIO,
    "truncate": errno.EIO,
    "rename": errno.EIO,
    "unlink": errno.EIO,
    "mkdir": errno.ENOSPC,
    "close": errno.EIO,
}
_KINDS = list(ERRORS)
FILE_KINDS = tuple(_KINDS[3:])

#: In runs with files, each call of a kind fails in turn if there are at most ``MOST_CALLS``. Otherwise, there
#: are many similar ones, such as the 64 reads for the digest of a file, and every ``STRIDE``-th fails.
MOST_CALLS, STRIDE = 40, 7

_RNG = np.random.default_rng(0)
X = np.round(_RNG.normal(size=(60, 4)), 1)
Y = X[:, 0] * X[:, 1] + X[:, 2]
ROWS = np.tile(X, (40, 1))[:2000]
N_ROWS = (1, 10, 2000)
WIDE = np.tile(np.round(_RNG.normal(size=(60, 17)), 1), (40, 1))[:2000]


def compile_library(folder: Path) -> Path | None:
    """Compile the library that lets calls fail; return None where it cannot be compiled."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None or shutil.which("ld") is None or platform.libc_ver()[0] != "glibc":
        return None
    library = folder / "failing_calls.so"
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run([compiler, *options], check=True)
    return library


def run_failing(library: Path, kind: str, folder: Path) -> dict[str, dict[str, int]]:
    """Run all scripted runs of a kind in a process of their own; return the numbers of failures and errors.

    Parameters
    ----------
    library : Path
    kind : {"memory", "threads", "files"}
    folder : Path
        Empty folder.
    """
    environment = os.environ | {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}
    arguments = [kind, str(folder.resolve())]
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "helpers.failing_calls", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, f"{ended.stdout[-2000:]}{ended.stderr[-6000:]}"
    lines = [line.partition(": ") for line in ended.stdout.splitlines()]
    return {name: json.loads(counts) for name, _, counts in lines}


# The library


class _Live(NamedTuple):
    """Memory that the C++ libraries of the process have allocated and not freed, or the core has mapped."""

    blocks: int
    bytes: int
    mapped_bytes: int


class _Library:
    """The library that lets calls fail, in this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.fail_arm.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_int]
        for name in ("disarm", "count", "live_blocks", "live_bytes", "mapped_bytes"):
            getattr(self._library, f"fail_{name}").restype = ctypes.c_long
        assert self._library.fail_find_core(), "the core is not loaded"

    def watch(self, folder: Path) -> None:
        """Count calls for files in this folder."""
        self._library.fail_folder(os.fsencode(folder))

    def count(self, kind: str, work: Callable[[], Any]) -> int:
        """Return the number of calls of a kind."""
        self._library.fail_arm(_KINDS.index(kind), 0, 0, 0)
        work()
        return int(self._library.fail_disarm())

    def fail(self, kind: str, n: int, work: Callable[[], Any]) -> tuple[bool, Any, Exception | None]:
        """Return whether the n-th call was made, which failed, and the result of the work or its error."""
        result, raised = None, None
        number = 2 if kind == "mapping" else 1  # the core tries once more, after it has freed kept memory
        self._library.fail_arm(_KINDS.index(kind), n, number, ERRORS[kind])
        try:
            result = work()
        except Exception as error:
            raised = error.with_traceback(None)  # whose frames have local variables
            raised.__context__ = raised.__cause__ = None
        finally:
            self._library.fail_disarm()
        return self._library.fail_count() > 0, result, raised

    def live(self) -> _Live:
        gc.collect()
        library = self._library
        return _Live(library.fail_live_blocks(), library.fail_live_bytes(), library.fail_mapped_bytes())


# Explainers and their calls


@dataclass(frozen=True)
class MemoryRun:
    """A run that makes an object, mostly an explainer, and calls it."""

    make: Callable[[], Any]
    call: Callable[[Any], Any]


def _explainer(*data: Any, n_trees: int = 3, **options: Any) -> Callable[[], TreeExplainer]:
    model = GradientBoostingRegressor(n_estimators=n_trees, max_depth=3, random_state=0).fit(X, Y)
    return lambda: TreeExplainer(model, *data, device="cpu", **options)


def _classifier(
    *data: Any, bounds: tuple[float, ...] = (0, 1), **options: Any
) -> Callable[[], TreeExplainer]:
    model = GradientBoostingClassifier(n_estimators=2, max_depth=2, random_state=0).fit(
        X, np.digitize(Y, bounds)
    )
    return lambda: TreeExplainer(model, *data, device="cpu", **options)


def _wide() -> Callable[[], TreeExplainer]:
    y = WIDE[:, 0] * WIDE[:, 1] + WIDE[:, 2]
    model = GradientBoostingRegressor(n_estimators=2, max_depth=3, random_state=0).fit(WIDE, y)
    return lambda: TreeExplainer(model, device="cpu", n_jobs=1)


def _loaded() -> Callable[[], TreeExplainer]:
    path = Path(sys.argv[2], "explainer.npz")
    _explainer(algorithm="fast_v2")().save(path)
    return lambda: TreeExplainer.load(path, device="cpu", n_jobs=2)


def _values(explainer: TreeExplainer) -> list[Any]:
    return [explainer.shap_values(ROWS[:n]) for n in N_ROWS]


def _matrices(explainer: TreeExplainer) -> list[Any]:
    return [explainer.shap_interaction_values(ROWS[:n]) for n in N_ROWS]


def _index(index: Any) -> Callable[[TreeExplainer], list[Any]]:
    return lambda explainer: [explainer.explain(ROWS[:n], index=index).values for n in N_ROWS]


def _pairs(index: Any) -> Callable[[TreeExplainer], list[Any]]:
    return lambda explainer: [explainer.explain_interactions(ROWS[:n], index=index).values for n in N_ROWS]


def _dependence(explainer: TreeExplainer) -> list[Any]:
    return [partial_dependence(explainer, ROWS[:n], [0, 1], grid_resolution=5)["average"] for n in (10, 200)]


GROUPS = {"a": [0, 1], "b": [2, 3]}

#: Runs without files, by name. They are functions, so that only the one that is wanted trains its model.
MEMORY_RUNS: dict[str, Callable[[], MemoryRun]] = {
    "values": lambda: MemoryRun(_explainer(algorithm="quadrature", n_jobs=1), _values),
    "values, 4 threads": lambda: MemoryRun(_explainer(algorithm="quadrature", n_jobs=4, n_trees=30), _values),
    "values of classes": lambda: MemoryRun(_classifier(n_jobs=4), _values),
    "tables": lambda: MemoryRun(_explainer(expected_rows=10**7, n_jobs=4), _values),
    "fast_v2": lambda: MemoryRun(_explainer(algorithm="fast_v2", n_jobs=4), _values),
    "treeshap": lambda: MemoryRun(_explainer(algorithm="treeshap", n_jobs=1), _values),
    "Banzhaf values": lambda: MemoryRun(_explainer(n_jobs=4), _index("BV")),
    "Owen values": lambda: MemoryRun(_explainer(feature_groups=GROUPS, n_jobs=4), _index("OV")),
    "interactions": lambda: MemoryRun(_explainer(n_jobs=4), _matrices),
    "Shapley-Taylor index": lambda: MemoryRun(_explainer(n_jobs=1), _pairs("STII")),
    "large results": lambda: MemoryRun(_wide(), lambda wide: [wide.shap_interaction_values(WIDE)]),
    "background": lambda: MemoryRun(_explainer(X[:20], n_jobs=4), _values),
    "background, Owen values": lambda: MemoryRun(_explainer(X[:20], feature_groups=GROUPS), _index("OV")),
    "background, interactions": lambda: MemoryRun(_explainer(X[:20], n_jobs=4), _matrices),
    "probabilities": lambda: MemoryRun(
        _classifier(X[:20], bounds=(0,), model_output="probability", n_jobs=4), _values
    ),
    "partial dependence": lambda: MemoryRun(_explainer(n_jobs=4), _dependence),
    "loaded": lambda: MemoryRun(_loaded(), _values),
    "unpickled": lambda: MemoryRun(partial(pickle.loads, pickle.dumps(_explainer()())), _values),
}

#: Runs in which threads start, with the kinds of calls that fail before or while they do. Each failure takes
#: a fork, so the many allocations fail in one run only.
THREAD_RUNS = {
    "values, 4 threads": ("thread", "mapping"),
    "fast_v2": ("thread", "mapping", "allocation"),
    "background, interactions": ("thread", "mapping"),
    "probabilities": ("thread", "mapping"),
}

#: Name of a run in children of forks, in which no thread starts.
MEMORY_OF_PARENT = "memory of the parent"


def _bits(results: list[Any]) -> list[bytes]:
    return [np.asarray(result).tobytes() for result in results]


def _fail_memory(library: _Library, run: MemoryRun) -> Counter[str]:
    """Let allocations and mappings fail: the run raises MemoryError or succeeds, and frees all memory."""

    def work() -> list[bytes]:
        made.append(run.make())
        return _bits(run.call(made[0]))

    counts: Counter[str] = Counter()
    made: list[Any] = []
    expected = work()
    for kind in ("allocation", "mapping"):
        if kind == "mapping":
            _core.keep_memory(0)  # so that memory is mapped for each large result
        made.clear()
        n_calls = library.count(kind, work)
        made.clear()
        live = library.live()
        for n in range(1, n_calls + 1):
            has_failed, result, error = library.fail(kind, n, work)
            if error is None:
                assert result == expected, f"other values after failure {n} of {kind}"
            else:
                assert type(error) is MemoryError, f"failure {n} of {kind}: {error!r}"
                counts[f"{kind}: MemoryError"] += 1
                if made:
                    assert _bits(run.call(made[0])) == expected, f"other values after failure {n} of {kind}"
            counts[kind] += has_failed
            made.clear()
            del result, error
        assert library.live() == live, f"{kind}: {library.live()} instead of {live}"
        assert work() == expected
    return counts


def _fail_threads(library: _Library, run: MemoryRun, kinds: tuple[str, ...]) -> Counter[str]:
    """Let the start of a thread fail, and what is allocated for it: the other threads do the work.

    A child of a fork has no threads yet, and no kept memory.
    """
    counts: Counter[str] = Counter()
    expected = _bits(run.call(run.make()))

    def explain() -> list[bytes]:
        return _bits(run.call(run.make()))

    def fail(kind: str, n: int) -> bool:
        has_failed, result, error = library.fail(kind, n, explain)
        assert result == expected if error is None else type(error) is MemoryError and kind != "thread"
        assert explain() == expected
        return has_failed

    for kind in kinds:
        n_calls = _in_child(partial(library.count, kind, explain))
        for n in range(1, n_calls + 1):
            counts[f"{kind} in a fork"] += _in_child(partial(fail, kind, n))
    return counts


def _fail_memory_of_parent(library: _Library) -> Counter[str]:
    """Let allocations fail with which a child of a fork would keep the memory of the parent's results."""
    results = [_core.new_array((2**20,), np.dtype("float64"))]

    def fail(n: int) -> bool:
        return library.fail("allocation", n, results.clear)[0]

    n_calls = _in_child(partial(library.count, "allocation", results.clear))
    return Counter({"allocation in a fork": sum(_in_child(partial(fail, n)) for n in range(1, n_calls + 1))})


def _in_child(work: Callable[[], int]) -> int:
    """Return the result of work in a child of a fork."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.write(writing, str(int(work())).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as result:
        number = result.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"the child ended with status {status}"
    return int(number)


# Files


@dataclass(frozen=True)
class FileRun:
    """A run that writes or reads files in a folder.

    Attributes
    ----------
    work : callable
    prepare : callable
        Writes the files that are there before.
    final : tuple of str
        Names of files that must never be half-written or lost.
    is_tidy : bool
        Whether a failed run leaves no other files.
    """

    work: Callable[[Path], Any]
    prepare: Callable[[Path], Any] = lambda folder: None
    final: tuple[str, ...] = ()
    is_tidy: bool = False


def _save(folder: Path) -> None:
    _EXPLAINER.save(folder / "explainer.npz")


def _save_other(folder: Path) -> None:
    _explainer(algorithm="fast_v2")().save(folder / "explainer.npz")


def _load(folder: Path) -> list[bytes]:
    return _bits(_values(TreeExplainer.load(folder / "explainer.npz", device="cpu")))


def _batches(name: str, source: str = "rows.csv", n_rows: int = 100, **options: Any) -> Callable[[Path], Any]:
    def work(folder: Path) -> None:
        path = Path(sys.argv[2], source)
        explain_batches(_EXPLAINER, path, folder / name, batch_size=n_rows, **options)

    return work


_EXPLAINER = _explainer(n_jobs=1)()

FILE_RUNS = {
    "save": FileRun(_save, final=("explainer.npz",), is_tidy=True),
    "save again": FileRun(_save, _save_other, final=("explainer.npz",), is_tidy=True),
    "load": FileRun(_load, _save, final=("explainer.npz",), is_tidy=True),
    "npy": FileRun(_batches("values.npy", "rows.npy"), final=("values.npy",)),
    "csv": FileRun(_batches("values.csv"), final=("values.csv",)),
    "parquet": FileRun(_batches("values.parquet"), final=("values.parquet",)),
    "folder": FileRun(_batches("values"), final=("values/part-000000.parquet", "values/part-000001.parquet")),
    "parquet again": FileRun(
        _batches("values.parquet", if_exists="overwrite"),
        _batches("values.parquet", n_rows=150),
        final=("values.parquet",),
    ),
    "folder again": FileRun(_batches("values", if_exists="overwrite"), _batches("values", n_rows=150)),
}


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _open_files(folder: Path) -> list[str]:
    """Return the open files in a folder. (pyarrow closes the file of rows in a thread, after an error.)"""
    files = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the list of the numbers had a number itself
            files.append(os.readlink(f"/proc/self/fd/{number}"))
    return [file for file in files if file.startswith(os.fspath(folder))]


def _fail_files(library: _Library, run: FileRun, folder: Path) -> Counter[str]:
    """Let system calls fail: the run raises OSError or succeeds, and the same run completes the output."""
    counts: Counter[str] = Counter()
    folder, prepared = folder / "output", folder / "prepared"
    shutil.rmtree(prepared, ignore_errors=True)
    library.watch(folder)

    def begin() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(prepared, folder)

    prepared.mkdir()
    run.prepare(prepared)
    begin()
    before = _files(folder)
    expected = run.work(folder)
    after = _files(folder)
    for kind in ("allocation", "mapping", "thread", *FILE_KINDS):
        begin()
        n_calls = library.count(kind, lambda: run.work(folder))
        for n in range(1, n_calls + 1, STRIDE if n_calls > MOST_CALLS else 1):
            begin()
            has_failed, result, error = library.fail(kind, n, lambda: run.work(folder))
            what = f"failure {n} of {kind}, {error!r}"
            files = _files(folder)
            for name in run.final:
                assert files.get(name) in (before.get(name), after[name]), f"{name} after {what}"
            if error is None:
                assert result == expected and all(files[name] == after[name] for name in run.final), what
            else:
                assert _is_named(error, kind), what
                counts[f"{kind}: {type(error).__name__}"] += 1
            if run.is_tidy:
                assert set(files) <= {*before, *after}, f"{sorted(files)} after {what}"
            assert not _open_files(folder), f"{_open_files(folder)} are open after {what}"
            counts[kind] += has_failed
            del error
            assert run.work(folder) == expected, what
            assert _files(folder) == after, f"{sorted(_files(folder))} after {what} and another run"
    return counts


def _is_named(error: Exception, kind: str) -> bool:
    if kind == "thread":  # Python's threads
        return type(error) is RuntimeError and "thread" in str(error)
    if kind == "allocation":
        return type(error) is MemoryError
    return isinstance(error, OSError) and not isinstance(error, FileExistsError)


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    library = _Library()

    def fail(name: str) -> int:
        if kind == "memory":
            counts = _fail_memory(library, MEMORY_RUNS[name]())
        elif kind == "files":
            counts = _fail_files(library, FILE_RUNS[name], folder)
        elif name == MEMORY_OF_PARENT:
            counts = _fail_memory_of_parent(library)
        else:
            counts = _fail_threads(library, MEMORY_RUNS[name](), THREAD_RUNS[name])
        print(json.dumps(counts), flush=True)
        return 0

    np.save(folder / "rows.npy", ROWS[:300])
    np.savetxt(folder / "rows.csv", ROWS[:300], fmt="%.1f", delimiter=",", header="a,b,c,d", comments="")
    names = {"memory": MEMORY_RUNS, "threads": [*THREAD_RUNS, MEMORY_OF_PARENT], "files": FILE_RUNS}[kind]
    for name in sys.argv[3:] or names:
        print(f"{name}: ", end="", flush=True)  # before the process may end
        _in_child(partial(fail, name))


if __name__ == "__main__":
    main()
