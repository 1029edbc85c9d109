"""A process that answers requests, is measured from outside, and is replaced when it dies or hangs."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from typing import Any, NamedTuple

from . import workers

_CONTEXT = multiprocessing.get_context("spawn")
_TICKS = os.sysconf("SC_CLK_TCK")


class Answer(NamedTuple):
    """The reply to a request, and what it took.

    Attributes
    ----------
    reply : tuple
        The reply of the function, or ("crashed", the exit status) or ("hangs", the seconds of the clock).
    seconds : float
        Seconds of the processor.
    n_bytes : int
        Resident memory at its peak, beyond what the process had before.
    """

    reply: tuple[Any, ...]
    seconds: float
    n_bytes: int


class Process:
    """A process with a role, "ours" or "library", that works in a folder.

    Attributes
    ----------
    first_request : tuple or None
        The function and its arguments that a process that replaces another calls first, so that imports count
        towards no request.
    """

    def __init__(self, role: str, folder: str) -> None:
        self._role, self._folder = role, folder
        self.first_request: tuple[Any, ...] | None = None
        self._start()

    def _start(self) -> None:
        self._connection, other_end = _CONTEXT.Pipe()
        arguments = (other_end, self._role, self._folder)
        self._process = _CONTEXT.Process(target=workers.serve, args=arguments, daemon=True)
        self._process.start()
        other_end.close()
        if self.first_request is not None:
            self._connection.send((self.first_request[0], self.first_request[1:]))
            self._connection.recv()

    def ask(self, function: str, *arguments: Any, wait: float) -> Answer:
        """Call a function of the process, and measure it; wait at most some seconds of the clock."""
        pid = self._process.pid
        before, start = self._memory("VmRSS"), self._seconds()
        with open(f"/proc/{pid}/clear_refs", "w") as file:
            file.write("5")  # the peak begins anew
        try:
            self._connection.send((function, arguments))
            if not self._connection.poll(wait):
                self.close()
                self._start()
                return Answer(("hangs", wait), wait, 0)
            reply = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            status = self._process.exitcode
            self._start()
            return Answer(("crashed", status), 0.0, 0)
        return Answer(reply, self._seconds() - start, self._memory("VmHWM") - before)

    def _memory(self, name: str) -> int:
        with open(f"/proc/{self._process.pid}/status") as file:
            for line in file:
                if line.startswith(name):
                    return int(line.split()[1]) * 1024
        return 0

    def _seconds(self) -> float:
        with open(f"/proc/{self._process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def close(self) -> None:
        """Kill the process, and the processes that it has started."""
        assert self._process.pid
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()
