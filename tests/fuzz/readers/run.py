"""Cases: a changed file, the answers of both processes, and whether they agree."""

from __future__ import annotations

import io
import re
import shutil
import tarfile
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .processes import Process
from .targets import TARGETS, mutant
from .workers import DOCUMENTED

#: Documented limits of our reader: seconds, and seconds per byte; bytes, and bytes per byte.
SECONDS, SECONDS_PER_BYTE = 1.0, 1e-6
BYTES, BYTES_PER_BYTE = 2**20, 200

#: Seconds of the clock after which a process hangs, whatever else the machine does.
WAIT = 60.0

#: Words of refusals where a library has not implemented all that its format defines.
UNIMPLEMENTED = ("MemberShip values is only implemented for integers",)

#: Largest difference of margins, as a fraction of the sum of the largest leaves; XGBoost adds up in float32.
TOLERANCE = 2e-5


@dataclass
class Result:
    """The counts of a target, and its findings."""

    name: str
    first_seed: int
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    stricter: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0

    def __add__(self, other: Result) -> Result:
        stricter = {
            message: [*self.stricter.get(message, ()), *other.stricter.get(message, ())]
            for message in self.stricter | other.stricter
        }
        return Result(
            self.name,
            min(self.first_seed, other.first_seed),
            self.counts + other.counts,
            self.findings + other.findings,
            stricter,
            self.seconds + other.seconds,
        )

    def summary(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        return (
            f"{self.name}: {self.counts.total()} cases from seed {self.first_seed} in {self.seconds:.0f} s: "
            f"{counts or 'none'}; findings {len(self.findings)}"
        )

    def refusals(self) -> str:
        """List the messages of files that only we refuse, the most frequent first."""
        lines = []
        for message, cases in sorted(self.stricter.items(), key=lambda item: -len(item[1])):
            lines += [f"{len(cases):5} {message}", *(f"        {case}" for case in cases[:4])]
        return "\n".join(lines)


class Fuzzer:
    """The two processes, and a folder for the files.

    Attributes
    ----------
    stricter : bool
        Whether the library loads the files that we refuse, too. It takes most of the time for some targets.
    """

    def __init__(self, stricter: bool = False) -> None:
        self.stricter = stricter

    def __enter__(self) -> Fuzzer:
        self._folder = tempfile.TemporaryDirectory()
        self._ours, self._library = (Process(role, self._folder.name) for role in ("ours", "library"))
        return self

    def __exit__(self, *error: object) -> None:
        self._ours.close()
        self._library.close()
        self._folder.cleanup()

    def run(self, name: str, seed: int, seconds: float, n_cases: int | None = None, step: int = 1) -> Result:
        """Run cases of one target, for each seed that is some steps after the first.

        There are at most some number of cases, and of seconds.
        """
        result, start = Result(name, seed), time.monotonic()
        self._warm_up(name)
        end = time.monotonic() + seconds
        number = seed
        while time.monotonic() < end and (n_cases is None or number < seed + n_cases * step):
            self._case(name, number, result)
            number += step
        result.seconds = time.monotonic() - start
        return result

    def _warm_up(self, name: str) -> None:
        """Read the files of the corpus as they are: imports and first calls count towards no case."""
        target = TARGETS[name]
        self._ours.first_request = None
        for file_name, document in [*target.documents().items()] * 2:
            path = self._write(target.write(document), target.ending, "honest")
            verdict = self._judge(name, path, 0, 10**9)
            if verdict[0] != "agree":
                raise RuntimeError(f"{name}: the file {file_name} of the corpus: {verdict}")
        self._ours.first_request = ("read", path)

    def _write(self, content: bytes, ending: str, name: str = "model") -> str:
        path = Path(self._folder.name, f"{name}{ending}")
        if ending == "/":
            shutil.rmtree(path, ignore_errors=True)
            with tarfile.open(fileobj=io.BytesIO(content)) as file:
                file.extractall(path, filter="data")
        else:
            path.write_bytes(content)
        return str(path)

    def _case(self, name: str, seed: int, result: Result) -> None:
        rng = np.random.default_rng(seed)
        content, description = mutant(TARGETS[name], rng)
        path = self._write(content, TARGETS[name].ending)
        verdict, why = self._judge(name, path, seed, len(content))
        result.counts[verdict] += 1
        case = f"seed {seed}, {description}"
        if verdict == "finding":
            result.findings.append(f"{case}: {why}")
            print(f"{name}, {case}: {why}", flush=True)
        elif verdict == "we refuse more":
            result.stricter.setdefault(re.sub(r"[-\d.]+(e[+-]?\d+)?", "#", why), []).append(case)

    def _judge(self, name: str, path: str, seed: int, n_bytes: int) -> tuple[str, str]:
        """Return the verdict on a file, and why."""
        ours = self._ours.ask("read", path, wait=WAIT)
        if ours.reply[0] in ("hangs", "crashed"):
            return "finding", f"our reader: {ours.reply}"
        if excess := self._excess(ours, path, n_bytes):
            return "finding", excess
        reply = ours.reply
        if reply[0] == "read":
            reply = self._ours.ask("explain", seed, wait=WAIT).reply
            if reply[0] in ("hangs", "crashed"):
                return "finding", f"explaining rows: {reply}"
        if reply[0] == "refused" and not _is_documented(reply):
            return "finding", f"an undocumented error: {reply[1]}: {reply[2]:.300}"
        X, margins, scale = reply[1:] if reply[0] == "read" else (None, None, 0.0)
        if reply[0] == "read" and margins is None:
            return "too wide", ""
        if reply[0] == "refused" and not self.stricter:
            return "we refuse", ""
        library = self._library.ask(name, path, X, wait=WAIT).reply
        if reply[0] == "refused":
            if library[0] != "read" or not np.isfinite(library[1]).all():
                return "both refuse", ""
            return "we refuse more", f"{reply[1]}: {reply[2].replace(path, 'FILE'):.200}"
        if library[0] != "read":
            if any(words in str(library[-1]) for words in UNIMPLEMENTED):
                return "library lacks it", ""
            why = " ".join(map(str, library[1:])).partition("\nStack trace")[0]  # XGBoost adds one
            return "finding", f"we read it; the library: {library[0]} {' '.join(why.split())[-160:]}"
        return compared(margins, library[1], scale)

    def _excess(self, answer: Any, path: str, n_bytes: int) -> str:
        """Say by how much our reader exceeds the documented limits, if it does so again and again."""
        for _ in range(3):
            seconds = answer.seconds > SECONDS + SECONDS_PER_BYTE * n_bytes
            memory = answer.n_bytes > BYTES + BYTES_PER_BYTE * n_bytes
            if not seconds and not memory:
                return ""
            answer = self._ours.ask("read", path, wait=WAIT)
        return f"{n_bytes} bytes took {answer.seconds:.2g} seconds and {answer.n_bytes:,} bytes of memory"


def run_target(
    name: str, seconds: float, n_cases: int | None, n_jobs: int, stricter: bool, seed: int
) -> Result:
    """Run a target with the seeds of one of the jobs."""
    with Fuzzer(stricter) as fuzzer:
        return fuzzer.run(name, seed, seconds, n_cases, n_jobs)


def _is_documented(reply: tuple[Any, ...]) -> bool:
    _, kind, message = reply
    return kind in DOCUMENTED and (
        kind != "MemoryError" or "memory_limit" in message or "algorithm" in message
    )


def compared(ours: np.ndarray, library: np.ndarray, scale: float) -> tuple[str, str]:
    """Return the verdict on margins, and why; the library may have outputs that come before ours."""
    if ours.shape[1] > library.shape[1]:
        return "finding", f"we have {ours.shape[1]} outputs, the library {library.shape[1]}"
    library = library[:, -ours.shape[1] :]
    with np.errstate(all="ignore"):
        gap = np.abs(ours - library)
        agrees = (gap <= TOLERANCE * scale + 1e-30) | (ours == library)
    if agrees.all():
        return "agree", ""
    row, column = np.argwhere(~agrees)[0]
    return "finding", f"margin {ours[row, column]!r} of row {row}, the library's is {library[row, column]!r}"
