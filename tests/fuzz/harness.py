"""Shared parts of all targets: limits and checks of any input, edits of documents, and the fuzzer.

A target is a module with a function ``test_one(data: bytes)`` and a tuple ``INSTRUMENT`` of the modules whose
branches guide the fuzzer. Any error that ``test_one`` raises is a finding.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import math
import os
import resource
import sys
import time
import tracemalloc
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from skshapgpu import TreeExplainer, UnsupportedModelError, register_adapter
from skshapgpu.adapters.ensemble import Ensemble
from skshapgpu.adapters.schema import AdaptedModel, InputSchema

CORPUS = Path(__file__).parent / "corpus"

#: Documented limits for an input: CPU seconds of this thread per million bytes, plus one second, and bytes of
#: memory per byte, plus one mebibyte.
SECONDS_PER_MEGABYTE, SECONDS = 1.0, 1.0
MEMORY_PER_BYTE, MEMORY = 200, 2**20

#: Address space that an input may request in addition to what is in use already.
_ROOM = 2**30


class Finding(Exception):
    """A broken promise."""


@contextlib.contextmanager
def limits(n_bytes: int) -> Iterator[None]:
    """Let documented errors end the block; raise a finding if it takes too much time or memory."""
    if not tracemalloc.is_tracing():  # and never stopped: each start and stop leaks
        tracemalloc.start()
    tracemalloc.reset_peak()
    before, start = tracemalloc.get_traced_memory()[0], time.thread_time()
    try:
        yield
    except MemoryError as error:
        if "memory_limit" not in str(error) and "algorithm" not in str(error):
            raise Finding(f"a MemoryError without the name of an option: {error}") from error
    except (ValueError, TypeError, UnsupportedModelError):
        pass
    finally:
        seconds, peak = time.thread_time() - start, tracemalloc.get_traced_memory()[1] - before
    if seconds > SECONDS + SECONDS_PER_MEGABYTE * n_bytes / 1e6:
        raise Finding(f"{n_bytes} bytes took {seconds:.2g} seconds")
    if peak > MEMORY + MEMORY_PER_BYTE * n_bytes:
        raise Finding(f"{n_bytes} bytes took {peak:,} bytes of memory")


class PreadaptedModel:
    """Wrapper around a model that has been read."""

    def __init__(self, adapted: AdaptedModel) -> None:
        self.adapted = adapted


register_adapter(f"{PreadaptedModel.__module__}.PreadaptedModel", lambda model: model.adapted)

#: Options of the explainers for an input, by its last byte.
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"algorithm": "quadrature", "precision": "double"},
    {"algorithm": "fast_v2"},
    {"algorithm": "fast_v1", "precision": "double"},
    {"algorithm": "treeshap", "precision": "double"},
    {"data": True},
    {"interactions": True},
    {"data": True, "interactions": True},
)

#: With more columns no rows are explained: the rows, not the model, would take the memory.
_MAX_COLUMNS = 2**10


def adapted_from(ensemble: Ensemble) -> AdaptedModel:
    """Wrap an ensemble, ignoring its players: each feature is a player."""
    plain = replace(ensemble, player=np.empty(0, np.int32))
    return AdaptedModel(plain, InputSchema(ensemble.n_features), "fuzz")


def explain_some(adapted: AdaptedModel, which: int) -> None:
    """Explain rows of an accepted model; their sums must be the margins of the trees."""
    ensemble = adapted.ensemble
    plain = PreadaptedModel(adapted_from(ensemble))
    if ensemble.n_features > _MAX_COLUMNS:
        TreeExplainer(plain, device="cpu", n_jobs=1)
        return
    explain_rows(plain, ensemble, rows_for(ensemble), dict(OPTIONS[which % len(OPTIONS)]))


def rows_for(ensemble: Ensemble) -> np.ndarray:
    """Build a row of thresholds, one of zeros and one of missing values."""
    X = np.zeros((3, ensemble.n_features))
    inner = ensemble.left >= 0
    with np.errstate(over="ignore"):
        X[0, ensemble.feature[inner]] = ensemble.threshold[inner].astype(ensemble.x_dtype)
    X[2] = np.nan
    return X


def explain_rows(model: Any, ensemble: Ensemble, X: np.ndarray, options: dict[str, Any]) -> None:
    interactions = options.pop("interactions", False)
    if options.get("data"):
        options["data"] = X
    # A small memory limit, which must hold whatever the model is.
    explainer = TreeExplainer(
        model, device="cpu", n_jobs=1, memory_limit=2**28, check_additivity=False, **options
    )
    if interactions:
        explanation = explainer.explain_interactions(X, interactions="occurring")
        explanation.values.sum()
        return
    explanation = explainer.explain(X)
    n_outputs = ensemble.n_outputs
    values = explanation.values.reshape(len(X), -1, n_outputs).sum(axis=1)
    total = np.reshape(explanation.base_values, (-1, n_outputs)) + values
    expected = ensemble.margin(X)
    scale = float(np.abs(ensemble.value).sum()) + float(np.abs(ensemble.intercept).max())
    if ensemble.has_linear_leaves:
        largest = np.abs(X).max(initial=0.0, where=np.isfinite(X))
        scale += float(np.abs(ensemble.linear_intercept).sum())
        scale += float((np.abs(ensemble.linear_coefficient) * largest).sum())
    recursive = options.get("algorithm") in ("fast_v1", "treeshap")  # these lose digits on long paths
    if not scale < 1e300 or (recursive and ensemble.n_leaves > 16):
        return
    gap = np.abs(total - expected).max(initial=0.0)
    if not gap <= (1e-4 if "precision" not in options else 1e-6) * scale:
        raise Finding(f"base value plus values differ from the margin by {gap}, of {scale}")


#: Numbers, strings and structures that no honest document contains.
HOSTILE: tuple[Any, ...] = (
    0, 1, -1, 2, 7, 255, 2**15, 2**24, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1,
    -(2**63), 2**64, 0.5, -0.0, 1e-320, 1e38, 1e308, -1e308, math.inf, -math.inf, math.nan,
    "", "0", "-1", "nan", "1e999", "2147483647", "[1,2", "[]", "{}", "null", "c", "int", "gblinear", "ß",
    "\0", "\ud800", None, True, False, [], {}, [[]], [0], [-1], [1e308], {"a": 1},
)  # fmt: skip


class Choices:
    """Bytes that are turned into choices; zeros when none are left."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)

    def number(self, n: int) -> int:
        """Draw a number from 0 to n - 1."""
        byte = next(self._data, 0)
        if n > 256:
            byte = byte << 16 | next(self._data, 0) << 8 | next(self._data, 0)
        return byte % max(n, 1)

    def one_of(self, things: Any) -> Any:
        return things[self.number(len(things))]

    def hostile(self) -> Any:
        return copy.deepcopy(self.one_of(HOSTILE))  # values put into a document may be edited, too

    def number_as_text(self) -> str:
        return str(self.one_of([h for h in HOSTILE if isinstance(h, (int, float, str))]))


def edited(document: Any, choices: Choices) -> Any:
    """Copy a nested document with up to four changes."""
    document = copy.deepcopy(document)
    for _ in range(1 + choices.number(4)):
        _edit(document, choices)
    return document


def _edit(document: Any, choices: Choices) -> None:
    part = document
    for _ in range(32):
        keys = list(part) if isinstance(part, dict) else range(len(part))
        if not len(keys):
            return
        key = choices.one_of(keys)
        inside = part[key]
        if isinstance(inside, (dict, list)) and len(inside) and choices.number(8):
            part = inside
            continue
        if isinstance(inside, np.ndarray) and choices.number(8):
            part[key] = changed_array(inside, choices)
        else:
            _replace(part, key, choices)
        return


def _replace(part: Any, key: Any, choices: Choices) -> None:
    action = choices.number(8)
    if action == 0:
        del part[key]
    elif action == 1:
        other = choices.one_of(list(part) if isinstance(part, dict) else range(len(part)))
        part[key] = copy.deepcopy(part[other])
    elif action == 2 and isinstance(part, list):
        part += [copy.deepcopy(part[key])] * (1 + choices.number(4))
    elif action == 3 and isinstance(part[key], (list, str)):
        part[key] = part[key] * choices.number(5)
    elif isinstance(part, np.ndarray):
        pass
    else:
        part[key] = choices.hostile()


def changed_array(array: np.ndarray, choices: Choices) -> np.ndarray:
    """Copy an array with other entries, another length or another dtype."""
    action = choices.number(8)
    if action == 0:
        return array[: choices.number(len(array) + 1)]
    if action == 1:
        return np.concatenate([array, array])
    if action == 2:
        with np.errstate(all="ignore"):
            return array.astype(choices.one_of(["f4", "f8", "i1", "u1", "i2", "i4", "i8", "u8", "?"]))
    array = array.copy()
    for _ in range(1 + choices.number(3)):
        if not array.size:
            break
        where = np.unravel_index(choices.number(array.size), array.shape)
        if array.dtype.kind in "iu":
            limits_ = np.iinfo(array.dtype)
            array[where] = choices.one_of(
                [0, 1, 2, 3, limits_.max, limits_.min, array.size, choices.number(array.size + 2)]
            )
        elif array.dtype.kind == "f":
            with np.errstate(over="ignore"):
                array[where] = choices.one_of([h for h in HOSTILE if type(h) is float])
        elif array.dtype.kind == "b":
            array[where] = not array[where]
    return array


def seeds(target: str) -> list[bytes]:
    """Return the files of a target's corpus, in the order of their names."""
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]


def main() -> None:
    """Run ``harness.py TARGET ARGUMENTS``: a target with the arguments of libFuzzer."""
    import atheris

    name = sys.argv[1]
    with atheris.instrument_imports(include=["_fuzzed"]):
        module = importlib.import_module(f"target_{name}")
    for instrumented in module.INSTRUMENT:
        _instrument(atheris, importlib.import_module(instrumented))

    def test_one(data: bytes) -> None:
        module.test_one(data or b"\0")

    def test_one_in_limits(data: bytes) -> None:
        _limit_memory()
        test_one(data)

    # Run a few inputs first, so that imports and objects of first calls do not count towards any input.
    files = seeds(name) if (CORPUS / name).exists() else []
    for seed in (b"", bytes(range(8, 40)), bytes(range(40, 72)), *files):
        with contextlib.suppress(Finding):
            test_one(seed)
    # Hostile numbers cause warnings; other tests check the warnings for honest numbers.
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    atheris.Setup([sys.argv[0], *sys.argv[2:]], test_one_in_limits, enable_python_coverage=True)
    atheris.Fuzz()


def _limit_memory() -> None:
    """Limit the address space relative to its current use, which grows because atheris leaks."""
    with open("/proc/self/statm") as file:
        in_use = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (in_use + _ROOM, resource.RLIM_INFINITY))


def _instrument(atheris: Any, module: Any) -> None:
    """Instrument the functions and methods that a module defines, so that they report their branches."""
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    for value in [value for holder in [module, *classes] for value in vars(holder).values()]:
        if getattr(value, "__module__", None) == module.__name__ and hasattr(value, "__code__"):
            atheris.instrument_func(value)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.modules["harness"] = sys.modules["__main__"]
    main()
