"""Resident memory that reading files takes: ``python memory_of_reading.py HONEST FILE...``.

Each file is read in a process of its own, which has read the honest file before, so that no import counts.
The line that is printed for a file has the bytes by which the peak of the resident memory (VmHWM) exceeds the
memory before, the seconds of the processor, and the outcome.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

#: Resident memory that ends a process, so that no file fills the machine.
_MOST_BYTES = 6 * 2**30


def read(path: str) -> Any:
    """Read a model file, a folder or an explainer file, without compiling it."""
    from skshapgpu._files import saving
    from skshapgpu.adapters import adapt

    if (place := saving.explainer_file(path)) is not None:
        return saving.load(place, verify=True)
    if path.endswith(".skops"):
        from skshapgpu._files import skops_objects

        trusted = ["sklearn.tree._tree.Tree"]
        return skops_objects.loads(skops_objects.require_skops("tests"), Path(path).read_bytes(), trusted)
    return adapt(path)


def resident(name: str) -> int:
    """Return a line of /proc/self/status in bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def measured(path: str, honest: str) -> str:
    """Read a file in a child process; return the bytes, the seconds and the outcome."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        read(honest)  # pages of libraries become resident when they are first used after a fork
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
        before, start = resident("VmHWM"), time.process_time()
        try:
            outcome = type(read(path)).__name__
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        seconds, peak = time.process_time() - start, resident("VmHWM") - before
        os.write(writer, f"{peak}\t{seconds:.2f}\t{outcome[:300]!r}".encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        line = file.read().decode()
    os.waitpid(child, 0)
    return line or f"{_MOST_BYTES}\t0\t'the process ended'"


def main() -> None:
    """Print a line for each file after the honest one."""
    honest, *paths = sys.argv[1:]
    read(honest)
    for path in paths:
        print(measured(path, honest), flush=True)


if __name__ == "__main__":
    main()
