"""Processes that run seeds; a seed that crashes a process, or takes a minute of it, becomes a finding."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from itertools import count, cycle
from multiprocessing.connection import Connection, wait
from typing import Any

from skshapgpu import _core

from .draws import draw
from .run import Result, run

#: Limit of a case in seconds of the processor, whatever else the machine does. A case takes about half a
#: second. But LightGBM's model_to_string alone takes four if categories have large codes, and a case with
#: selected features calls it twenty times.
MOST_SECONDS = 300.0

#: Limit of a case that waits and computes nothing, in seconds of the clock.
MOST_SECONDS_WAITED = 600.0

_CONTEXT = multiprocessing.get_context("spawn")


#: A process ends after this number of cases; the process that replaces it uses the next instruction set.
_CASES = 500


def _work(connection: Connection, fixed: dict[str, Any], instructions: str) -> None:
    os.environ.setdefault("SKSHAPGPU_ISA", instructions)
    # The first case of a process imports the libraries.
    limit = 3 * MOST_SECONDS
    while True:
        seed = connection.recv()
        if seed is None:
            return
        # The signal ends the process.
        signal.setitimer(signal.ITIMER_PROF, limit)
        limit = MOST_SECONDS
        result = run(seed, fixed)
        result.dimensions["instructions"] = os.environ["SKSHAPGPU_ISA"]
        connection.send(result)


class _Worker:
    """A process and the seed it has."""

    def __init__(self, fixed: dict[str, Any], instructions: str) -> None:
        self.connection, theirs = _CONTEXT.Pipe()
        arguments = (theirs, fixed, instructions)
        self.process = _CONTEXT.Process(target=_work, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.seed: int | None = None
        self.n_cases = 0
        self.since = 0.0

    def start(self, seed: int) -> None:
        self.seed, self.since = seed, time.monotonic()
        self.connection.send(seed)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


class Pool:
    """Processes, restarted when one is lost."""

    def __init__(self, jobs: int, fixed: dict[str, Any]) -> None:
        self.jobs, self.fixed = jobs, fixed
        self.workers: list[_Worker] = []
        self._instructions = cycle(_core.instruction_sets())

    def results(self, start: int, end: float) -> Iterator[Result]:
        """Yield results of seeds from ``start`` on as they finish, until ``time.monotonic()`` is ``end``."""
        seeds = count(start)
        workers = self.workers = [self._start() for _ in range(self.jobs)]
        try:
            for worker in workers:
                worker.start(next(seeds))
            while workers:
                ready = wait([w.connection for w in workers], timeout=1.0)
                for worker in list(workers):
                    result = self._result(worker, worker.connection in ready)
                    if result is None:
                        continue
                    yield result
                    workers.remove(worker)
                    if time.monotonic() < end:
                        if worker.n_cases >= _CASES or not worker.process.is_alive():
                            worker.end()
                            worker = self._start()
                        workers.append(worker)
                        worker.start(next(seeds))
                    else:
                        worker.end()
        finally:
            for worker in workers:
                worker.end()

    def _start(self) -> _Worker:
        return _Worker(self.fixed, next(self._instructions))

    def _result(self, worker: _Worker, ready: bool) -> Result | None:
        assert worker.seed is not None
        if ready:
            try:
                result = worker.connection.recv()
                worker.n_cases += 1
                return result
            except (EOFError, OSError):
                worker.process.join(5)
                if worker.process.exitcode == -signal.SIGPROF:
                    return self._lost(worker, f"no result after {MOST_SECONDS:.0f} s of the processor")
                return self._lost(worker, f"the process died with exit code {worker.process.exitcode}")
        if time.monotonic() - worker.since > MOST_SECONDS_WAITED:
            return self._lost(worker, f"no result after {MOST_SECONDS_WAITED:.0f} s")
        return None

    def _lost(self, worker: _Worker, text: str) -> Result:
        worker.end()
        assert worker.seed is not None
        drawn = draw(worker.seed, **self.fixed)
        return Result(
            worker.seed, str(drawn), drawn.dimensions(), [text], seconds=time.monotonic() - worker.since
        )
