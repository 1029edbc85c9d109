"""Process of the benchmark ``scaling``: explains rows of files or of an array, and prints a line of JSON."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import wraps
from threading import Lock
from typing import Any

BEGIN = time.perf_counter()

import numpy as np  # noqa: E402

from skshapgpu import TreeExplainer, explain_batches  # noqa: E402
from skshapgpu.batches import record_batches, run  # noqa: E402

ROUNDS = 5


class Stages:
    """Seconds that threads spend in each stage, summed over the threads."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._lock = Lock()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def step(*arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                with self._lock:
                    self.seconds[name] += time.perf_counter() - begin

        return step

    def watch(self) -> None:
        """Time the stages of ``explain_batches``; a stage "a.b" is a part of the stage "a"."""
        overlapped = run.overlapped

        def watched(items: Any, explain: Any, encode: Any, write: Any, done: Any, **numbers: int) -> None:
            if callable(explain):
                explain = self.timed("explain", explain)
            else:
                explain = [self.timed("explain", step) for step in explain]
            encode, write = self.timed("encode", encode), self.timed("write", write)
            overlapped(self._timed_items(items), explain, encode, write, done, **numbers)

        run.overlapped = watched
        for name, part in (("rows_of_columns", "explain.convert"), ("columns_of_rows", "encode.transpose")):
            setattr(record_batches, name, self.timed(part, getattr(record_batches, name)))

    def _timed_items(self, items: Iterator[Any]) -> Iterator[Any]:
        following = self.timed("read", lambda: next(items, None))
        while (item := following()) is not None:
            yield item


def from_files(explainer: TreeExplainer, arguments: dict[str, Any]) -> dict[str, Any]:
    stages, processor = Stages(), time.process_time()
    stages.watch()
    result = explain_batches(
        explainer,
        arguments["source"],
        arguments["sink"],
        keep=["id"],
        reasons=arguments["reasons"],
        batch_size=arguments["batch_size"],
    )
    return {
        "rows": result.n_rows,
        "batch_rows": result.batch_rows,
        "seconds": result.seconds,
        "processor_seconds": time.process_time() - processor,
        "stage_seconds": dict(stages.seconds),
    }


def from_memory(explainer: TreeExplainer, arguments: dict[str, Any]) -> dict[str, Any]:
    X = np.random.default_rng(0).standard_normal((arguments["rows"], explainer.n_features), np.float32)
    explainer.shap_values(X)
    seconds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        explainer.shap_values(X)
        seconds.append(time.perf_counter() - begin)
    return {"rows": len(X), "seconds": sorted(seconds)[ROUNDS // 2], "all_seconds": seconds}


def peak_kib() -> int:
    try:  # the other counts what the parent had before this process began, too
        with open("/proc/self/status") as status:
            return int(next(line for line in status if line.startswith("VmHWM")).split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    arguments = json.loads(sys.argv[1])
    explainer = TreeExplainer.load(arguments["model"], device=arguments["device"], n_jobs=arguments["n_jobs"])
    ready = time.perf_counter()
    result = (from_memory if arguments["source"] is None else from_files)(explainer, arguments)
    result |= {"loading_seconds": ready - BEGIN, "peak_mib": peak_kib() / 1024}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
