"""The memory that tables and calls may take, and the number of rows that a call can process at once."""

from __future__ import annotations

import contextlib
import os
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .digits import number

#: Size of the buffers for a batch without a memory limit. Larger buffers would not be faster.
CHUNK_BYTES = 256 * 2**20

#: Size of tables that no option requests, without a memory limit. Leaves of interventional values that do not
#: fit into the tables are slower, and trees of path-dependent values that do not fit are walked.
TABLE_BYTES = 2**28

#: Smallest size of results whose memory is kept for later results: kLargeBytes of csrc/base/large_memory.h.
LARGE_BYTES = 4 * 2**20

#: Environment variable with the bytes of results and tables that are kept for new ones.
KEPT_VARIABLE = "SKSHAPGPU_KEPT_MEMORY"
KEPT_BYTES = 512 * 2**20

#: Environment variable with the bytes of page-locked memory for results of GPUs. The default is the machine's
#: memory divided by _LOCKED_DIVISOR, but at most MOST_LOCKED_BYTES.
LOCKED_VARIABLE = "SKSHAPGPU_PAGE_LOCKED_MEMORY"
_LOCKED_DIVISOR, MOST_LOCKED_BYTES = 16, 4 * 2**30

#: Bytes of each unit of sizes.
_BYTES_OF_UNIT = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}


def parse_bytes(limit: int | str | None, name: str = "memory_limit") -> int | None:
    """Return the bytes of a number or of a string such as "500MB". Messages call the option ``name``."""
    if limit is None:
        return None
    if isinstance(limit, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]i?|)b?\s*", limit, re.IGNORECASE)
        if match is None:
            raise ValueError(f"{name} must be bytes or a string such as '500MB' or '2GiB', not {limit!r}")
        limit = int(float(match[1]) * _BYTES_OF_UNIT[match[2].lower()])
    elif isinstance(limit, bool) or not isinstance(limit, (int, np.integer)):
        raise TypeError(f"{name} must be an int, a str or None, not {limit!r}")
    if limit <= 0:
        raise ValueError(f"{name} must be positive, not {limit!r}")
    return int(limit)


def shown(n_bytes: int) -> str:
    """Format a number of bytes for readers, such as "1.5 GiB"; :func:`parse_bytes` reads it."""
    size, unit = float(n_bytes), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{number(size, 2)} {unit}"


def table_bytes(limit: int | None, requested: bool) -> int:
    """Return the bytes that tables may take; ``requested`` says whether an option requires tables."""
    if limit is not None:
        return limit // 2 if requested else min(TABLE_BYTES, limit // 2)
    return (machine_bytes() or 4 * TABLE_BYTES) // 4 if requested else TABLE_BYTES


def kept_bytes() -> int:
    """Return how many bytes of deleted results and tables are kept for new ones.

    Raise ``ValueError`` if the environment variable ``SKSHAPGPU_KEPT_MEMORY`` is no number of bytes.
    """
    return _variable_bytes(KEPT_VARIABLE, KEPT_BYTES)


def locked_bytes() -> int:
    """Return how many bytes of page-locked memory the results of GPUs may take.

    Raise ``ValueError`` if the environment variable ``SKSHAPGPU_PAGE_LOCKED_MEMORY`` is no number of bytes.
    """
    machine = machine_bytes() or MOST_LOCKED_BYTES
    return _variable_bytes(LOCKED_VARIABLE, min(machine // _LOCKED_DIVISOR, MOST_LOCKED_BYTES))


def _variable_bytes(variable: str, default: int) -> int:
    setting = os.environ.get(variable, "").strip()
    return 0 if setting == "0" else parse_bytes(setting or default, variable) or 0


@cache
def machine_bytes() -> int | None:
    """Return the bytes of memory that this process may use; None if the system does not report them.

    They are the machine's memory, or less if a control group, such as that of a container, has a limit.
    """
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
    return min([machine, *group_limits(Path("/proc/self"))])


def group_limits(process: Path) -> list[int]:
    """Return the limits of the control groups (v1 and v2) of a process, and of the groups that contain them.

    ``process`` is the folder of the process in /proc.
    """
    try:
        # Names may have any bytes; those of the parts that are compared are ASCII.
        mounts = [_mount(line) for line in os.fsdecode((process / "mountinfo").read_bytes()).splitlines()]
        groups = [line.split(":", 2) for line in os.fsdecode((process / "cgroup").read_bytes()).splitlines()]
    except (OSError, ValueError):
        return []
    limits = []
    for _, controllers, path in (group for group in groups if len(group) == 3):
        is_second = not controllers
        if not is_second and "memory" not in controllers.split(","):
            continue
        name = "memory.max" if is_second else "memory.limit_in_bytes"
        for kind, options, root, place in mounts:
            if kind != ("cgroup2" if is_second else "cgroup") or not (is_second or "memory" in options):
                continue
            below = os.path.relpath(path, root)
            folder = place if below.startswith("..") else place / below
            for group in (folder, *folder.parents):
                if group == place.parent:
                    break
                with contextlib.suppress(OSError, ValueError):  # v2 has "max" instead of a number
                    limits.append(int((group / name).read_text()))
    return limits


def _mount(line: str) -> tuple[str, list[str], str, Path]:
    """Return the type of a mounted file system, its options, the folder that is mounted, and where."""
    fields, _, about = line.partition(" - ")
    root, place = (re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), s) for s in fields.split()[3:5])
    kind, _, options = about.split(maxsplit=2)
    return kind, options.split(","), root, Path(place)


class Need(NamedTuple):
    """The memory that a call takes."""

    n_rows: int  # rows of the call
    result_row: int  # bytes of each row of the result
    work_row: int  # bytes of each row being processed
    tables: int  # bytes that tables take
    fixed: int  # bytes that threads take, independent of the number of rows
    what: str  # name of the result, for the error message
    advice: str  # what to do if the result does not fit, for the error message

    @property
    def result(self) -> int:
        """Bytes of the result."""
        return self.n_rows * self.result_row

    def rows_at_once(self, limit: int | None, available: int | None = None) -> int:
        """Return the number of rows of a batch.

        ``limit`` is the number of bytes that the call may allocate, tables included; ``available`` is the
        size of the memory into which the result must fit, None if unknown. Raise ``MemoryError`` if the limit
        leaves no room for even one row, or the result is larger than the memory.
        """
        left = None if limit is None else limit - self.tables - self.result - self.fixed
        if limit is not None and left is not None and self.n_rows and left < self.work_row:
            minimum = self.tables + self.fixed
            # Without room for tables and threads, neither fewer rows nor a smaller result would fit.
            advice = f", {self.advice}" if minimum < limit else f" above {minimum:,}, which any call needs"
            tables = f", of which tables take {self.tables:,}" if self.tables else ""
            raise MemoryError(
                f"memory_limit is {limit:,} bytes{tables}, but {self._demand()}, {self.fixed:,} for threads "
                f"and {self.work_row:,} for each row being processed; raise memory_limit{advice}"
            )
        if available is not None and self.result > available:
            advice = self.advice.removeprefix("or ")
            raise MemoryError(f"the machine has {available:,} bytes, but {self._demand()}; {advice}")
        return max(1, (CHUNK_BYTES if left is None else left) // max(self.work_row, 1))

    def _demand(self) -> str:
        return f"{self.n_rows} rows need {self.result:,} for their {self.what}"

    def peak(self, rows_at_once: int) -> int:
        """Return the total bytes for batches of ``rows_at_once`` rows."""
        return self.result + self.tables + self.fixed + min(rows_at_once, self.n_rows) * self.work_row
