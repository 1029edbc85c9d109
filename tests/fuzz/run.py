"""Fuzz targets, run one after another: ``./dev fuzz [NAMES] [--seconds N]``.

Inputs that reach new branches are kept in .cache/fuzz and start the next run. A finding ends its target; its
input is stored in .cache/fuzz/findings, and ``./dev fuzz NAME --input FILE`` repeats it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache" / "fuzz"
BUILD = ROOT / "build" / "fuzz"

#: Maximum seconds of a process; longer runs start new processes, as atheris leaks kilobytes per input.
LONGEST = 600

PYTHON_TARGETS = sorted(path.stem.removeprefix("target_") for path in HERE.glob("target_*.py"))


def clang() -> str | None:
    """Find a clang, which may include libFuzzer; return None if there is none."""
    names = [os.environ.get("FUZZ_CXX", ""), "clang++", *(f"clang++-{n}" for n in range(22, 13, -1))]
    return next((path for name in names if name and (path := shutil.which(name))), None)


def command(target: str) -> list[str]:
    """Return the command that runs a target, without the target's arguments."""
    if target != "core":
        return [sys.executable, str(HERE / "harness.py"), target]
    compiler = clang()
    assert compiler is not None
    configure = ["cmake", "-S", HERE, "-B", BUILD, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}"]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD], check=True, stdout=subprocess.DEVNULL)
    return [str(BUILD / "core")]


def run(target: str, seconds: int, log: Path) -> bool:
    """Run a target for ``seconds``; return whether it found nothing."""
    return all(run_process(target, min(LONGEST, seconds - at), log) for at in range(0, seconds, LONGEST))


def run_process(target: str, seconds: int, log: Path) -> bool:
    """Run a target in one process; write the details to a line of the log."""
    learnt, findings = CACHE / target, CACHE / "findings"
    for folder in (learnt, findings):
        folder.mkdir(parents=True, exist_ok=True)
    folders = [learnt, *(folder for folder in [HERE / "corpus" / target] if folder.exists())]
    arguments = [
        f"-max_total_time={seconds}",
        f"-artifact_prefix={findings}/{target}-",
        "-timeout=600",
        "-rss_limit_mb=4096",
        "-max_len=8192",
        "-len_control=0",
        "-print_final_stats=1",
    ]
    program = command(target)
    start = time.monotonic()
    ended = subprocess.run([*program, *folders, *arguments], capture_output=True, text=True, errors="replace")
    seconds = time.monotonic() - start
    counts = re.findall(r"number_of_executed_units: *(\d+)", ended.stderr)
    ok = ended.returncode == 0
    executions = counts[-1] if counts else 0
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    line = (
        f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {target} commit={commit.stdout.strip()} "
        f"seconds={seconds:.0f} executions={executions} findings={int(not ok)}"
    )
    print(line, flush=True)
    with open(log, "a") as file:
        file.write(line + "\n")
    if not ok:
        print(ended.stdout + ended.stderr[-6000:])
    return ok


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    targets = [*PYTHON_TARGETS, "core"]
    parser.add_argument("names", nargs="*", help=f"targets: {', '.join(targets)}; all of them by default")
    parser.add_argument("--seconds", type=int, default=60, help="of each target")
    parser.add_argument("--log", type=Path, default=CACHE / "log", help="gets a line for each run")
    parser.add_argument("--input", type=Path, help="run one input, of one target, instead")
    options = parser.parse_args()
    if unknown := set(options.names) - set(targets):
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    if options.seconds < 1:
        parser.error("--seconds must be at least 1")
    CACHE.mkdir(parents=True, exist_ok=True)
    # Arrow's own allocator reserves more address space than the harness allows.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    names = options.names or targets
    if "core" in names and clang() is None:
        if options.names:
            parser.error("the target core needs clang, with its libFuzzer, on PATH or as $FUZZ_CXX")
        print("core: skipped, as there is no clang")
        names.remove("core")
    if options.input:
        sys.exit(subprocess.run([*command(names[0]), str(options.input)]).returncode)
    sys.exit(0 if all([run(name, options.seconds, options.log) for name in names]) else 1)


if __name__ == "__main__":
    main()
