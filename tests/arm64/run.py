"""Tests of the kernels on arm64, emulated by QEMU on a Debian machine with another processor.

``./dev arm64`` runs this. It cross-compiles the core, fetches Python and its packages for arm64, and runs the
tests of the kernels with each instruction set of arm64, with few examples of hypothesis. Arguments after
``--`` go to pytest. ``--count`` counts the instructions of the walk instead. All files are in .cache/arm64,
and stay there for the next run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache" / "arm64"
SYSTEM, SITE, BUILD, PACKAGE = (CACHE / name for name in ("system", "site", "build", "package"))
PYTHON = SYSTEM / "usr" / "bin" / "arm64-python"

#: Programs, and the packages of Debian that have them.
NEEDED = {
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "aarch64-linux-gnu-nm": "binutils-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
    "apt-get": "apt",
    "cc": "gcc",
    "dpkg": "dpkg",
}

ISA = ("neon", "baseline")

TESTS = (
    "tests/engine/test_kernels.py",
    "tests/engine/test_kernels_calls.py",
    "tests/engine/test_tables.py",
    "tests/engine/test_interval_tables.py",
    "tests/engine/test_lanes.py",
    "tests/engine/test_cells.py",
    "tests/engine/test_owen.py",
    "tests/engine/test_merged_trees.py",
    "tests/engine/interactions/test_indices.py",
    "tests/engine/interactions/test_interactions.py",
    "tests/engine/background/test_background_intervals.py",
    "tests/engine/background/test_background_pairs.py",
    "tests/engine/background/test_few_background_rows.py",
    "tests/engine/background/test_interventional.py",
)

#: Functions of the walk, which are the same in both instruction sets.
WALK = re.compile(r"Walker<|::(walk|walk_scalars|vector_walk|any_vector_walk)<")


def main() -> None:
    """Run what the arguments ask for; exit with 1 if a test fails."""
    parser = argparse.ArgumentParser(prog="./dev arm64", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", action="store_true", help="count the instructions of the walk")
    parser.add_argument("--isa", choices=ISA, help="only one instruction set")
    parser.add_argument("--examples", default="10", help="most examples of a hypothesis test (10)")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    arguments = parser.parse_args()
    sets = [arguments.isa] if arguments.isa else list(ISA)
    check_programs()
    fetch_python()
    fetch_packages()
    build()
    if arguments.count:
        count(sets)
        return
    # The sets that a process may choose, and the one that it chooses, come first: each run below forces one.
    failed = test({}, ["tests/engine/test_instruction_sets.py"], arguments.examples)
    for isa in sets:
        failed |= test({"SKSHAPGPU_ISA": isa}, [*TESTS, *arguments.pytest], arguments.examples)
    sys.exit(failed)


def say(text: str) -> None:
    print(f"arm64: {text}", flush=True)


def check_programs() -> None:
    """Exit with the packages to install if a program is missing."""
    missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    hints = [f"apt-get install {' '.join(missing)}"] if missing else []
    # Use CMake from PyPI, because Debian 12's CMake does not find the emulated Python.
    modules = [name for name in ("pybind11", "cmake", "ninja") if importlib.util.find_spec(name) is None]
    if modules:
        hints.append(f"{sys.executable} -m pip install {' '.join(modules)}")
    if hints:
        sys.exit("arm64: programs are missing: " + "; ".join(hints))


def fetch_python() -> None:
    """Unpack Debian's Python for arm64, and write a script that runs it in its place."""
    if PYTHON.exists():
        return
    say("fetching Python")
    apt = CACHE / "apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()  # nothing is installed, so that all that Python needs is fetched
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "1",
        "Dir::Cache": apt / "cache",
        "Dir::State::Lists": apt / "lists",
        "Dir::State::status": apt / "status",
    }
    apt_get = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items())]
    wanted = ["python3", "libpython3-dev", "libstdc++6", "libgomp1"]  # the last for LightGBM
    log = CACHE / "apt.log"
    logged([*apt_get, "update"], log)
    logged([*apt_get, "-y", "--no-install-recommends", "--download-only", "install", *wanted], log)
    for archive in sorted((apt / "cache" / "archives").glob("*.deb")):
        subprocess.run(["dpkg", "-x", archive, SYSTEM], check=True)
    if not (SYSTEM / "lib").exists():  # newer systems have all of it in /usr/lib
        (SYSTEM / "lib").symlink_to("usr/lib")
    write_interpreter(PYTHON)


def write_interpreter(path: Path) -> None:
    """Write a script that runs Debian's Python under QEMU, and that Python takes for itself."""
    interpreter = (SYSTEM / "usr" / "bin" / "python3").resolve()
    command = shlex.join([str(shutil.which("qemu-aarch64")), "-L", str(SYSTEM)])
    # SKSHAPGPU_QEMU has options of the emulator, for the plugin that counts.
    path.write_text(
        f'#!/bin/sh\nexec {command} $SKSHAPGPU_QEMU -0 "$0" {shlex.quote(str(interpreter))} "$@"\n'
    )
    path.chmod(0o755)


def new_environment(folder: Path) -> None:
    """Make an environment of the emulated Python, with pip, like one that the module venv makes."""
    site = folder / "lib" / f"python{of_python('sysconfig.get_python_version()')}" / "site-packages"
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").write_text(f"home = {SYSTEM / 'usr' / 'bin'}\n")
    write_interpreter(folder / "bin" / "python")
    # Debian has pip in a package of its own. A wheel of pip is for all processors.
    logged([sys.executable, "-m", "pip", "install", "--quiet", "--target", site, "pip"], CACHE / "pip.log")


def of_python(expression: str) -> str:
    """Return what the emulated Python prints for an expression."""
    code = f"import sys, sysconfig; print({expression})"
    return subprocess.run([PYTHON, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def fetch_packages() -> None:
    """Install wheels for arm64: what the package needs, and what the tests of the kernels need."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tools = [name for name in tables["dependency-groups"]["test"] if name.startswith(("pytest", "hypo"))]
    wanted = [*tables["project"]["dependencies"], *tools]
    stamp = CACHE / "packages"
    if stamp.exists() and stamp.read_text().split("\n") == wanted:
        return
    say("fetching packages")
    shutil.rmtree(SITE, ignore_errors=True)
    install(SITE, wanted)
    stamp.write_text("\n".join(wanted))


def install(folder: Path, requirements: list[str]) -> None:
    """Install wheels for arm64 into a folder."""
    version = of_python("sysconfig.get_python_version()")
    platforms = [f"manylinux_2_{glibc}_aarch64" for glibc in range(36, 16, -1)] + ["manylinux2014_aarch64"]
    tags = [f"--platform={name}" for name in platforms]
    tags += [f"--abi={name}" for name in (f"cp{version.replace('.', '')}", "abi3", "none")]
    options = ["--quiet", "--only-binary=:all:", "--implementation=cp", f"--python-version={version}", *tags]
    pip = [sys.executable, "-m", "pip", "install", "--target", folder]
    logged([*pip, *options, *requirements], CACHE / "pip.log")


def build() -> None:
    """Cross-compile the core, and lay the package out with it: links to the checkout's files."""
    suffix = of_python("sysconfig.get_config_var('EXT_SUFFIX')")
    pybind11 = subprocess.run(
        [sys.executable, "-m", "pybind11", "--cmakedir"], check=True, capture_output=True, text=True
    )
    settings = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": "aarch64",
        "CMAKE_CXX_COMPILER": "aarch64-linux-gnu-g++",
        # Python's headers include others of theirs by their path from there.
        "CMAKE_CXX_FLAGS": f"-idirafter {SYSTEM / 'usr' / 'include'}",
        "PYTHON_MODULE_EXTENSION": suffix,
        "Python_EXECUTABLE": PYTHON,
        # Otherwise, CMake asks this machine's python-config.
        "Python_INCLUDE_DIR": of_python("sysconfig.get_path('include')"),
        "SKSHAPGPU_CUDA": "OFF",
        "pybind11_DIR": pybind11.stdout.strip(),
    }
    say("compiling the core")
    log = CACHE / "build.log"
    defined = [f"-D{name}={value}" for name, value in settings.items()]
    logged(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", *defined], log)
    logged(["cmake", "--build", BUILD], log)
    shutil.rmtree(PACKAGE, ignore_errors=True)
    (PACKAGE / "skshapgpu").mkdir(parents=True)
    for path in (ROOT / "skshapgpu").iterdir():
        if path.suffix != ".so" and path.name != "__pycache__":
            (PACKAGE / "skshapgpu" / path.name).symlink_to(path)
    shutil.copy(BUILD / f"_core{suffix}", PACKAGE / "skshapgpu")


def logged(command: list[str | Path], log: Path) -> None:
    """Run a command whose output goes to a file; print its end, and exit, if the command fails."""
    with log.open("a") as file:
        if subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode == 0:
            return
    print("".join(log.open().readlines()[-40:]))
    sys.exit(f"arm64: {command[0]} failed; see {log}")


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of emulated processes."""
    return os.environ | {
        "HYPOTHESIS_STORAGE_DIRECTORY": str(CACHE / "hypothesis"),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(map(str, (PACKAGE, SITE, ROOT / "tests"))),
        "PYTHONSAFEPATH": "1",  # or the checkout's own package would be found first
        **variables,
    }


def test(variables: dict[str, str], arguments: list[str], examples: str) -> bool:
    """Run tests; return whether any failed."""
    say(f"testing with {variables or 'the best instruction set'}")
    start = time.monotonic()
    command = [
        PYTHON,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "-p",
        "helpers.fewer_examples",
        *arguments,
    ]
    variables = environment(**variables, SKSHAPGPU_EXAMPLES=examples)
    failed = subprocess.run(command, cwd=ROOT, env=variables).returncode != 0
    say(f"{'failed' if failed else 'passed'} after {time.monotonic() - start:.0f} s")
    return failed


def count(sets: list[str]) -> None:
    """Print how many instructions the walk executes per row and leaf, by model and instruction set."""
    plugin = CACHE / "instructions.so"
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-o", plugin, HERE / "instructions.c"],
        check=True,
    )
    times: dict[str, list[float]] = {}
    for isa in sets:
        counts = CACHE / f"instructions-{isa}.txt"
        variables = {"SKSHAPGPU_ISA": isa, "SKSHAPGPU_QEMU": f"-plugin {plugin},out={counts}"}
        command = [PYTHON, HERE / "walks.py"]
        output = subprocess.run(command, check=True, env=environment(**variables), stdout=subprocess.PIPE)
        told = json.loads(output.stdout)
        # Before each walk that is counted is one that is not.
        for walk, executed in zip(told["walks"], list(segments(counts))[1::2], strict=True):
            number = walk_instructions(executed, told["core"]) / (walk["n_rows"] * walk["n_leaves"])
            times.setdefault(f"{walk['name']}, {walk['precision']}", []).append(number)
    print(f"{'instructions of the walk for a row and leaf':48}", *(f"{isa:>9}" for isa in sets))
    for name, numbers in times.items():
        print(f"{name:48}", *(f"{number:9.2f}" for number in numbers))


def segments(counts: Path) -> Iterator[list[tuple[int, int]]]:
    """Read the plugin's file: each part has the addresses of blocks and the instructions executed in them."""
    for part in counts.read_text().split("\n\n")[:-1]:
        blocks = [tuple(map(int, line.split())) for line in part.splitlines()]
        yield [(address, n * executions) for address, n, executions in blocks]


def walk_instructions(executed: list[tuple[int, int]], core: int) -> int:
    """Return how many instructions of the walk a process executed, whose core is at this address."""
    library = next((PACKAGE / "skshapgpu").glob("_core*.so"))
    command = ["aarch64-linux-gnu-nm", "--demangle", "--defined-only", "--numeric-sort", library]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    symbols = [line.split(" ", 2) for line in lines]
    functions = [(int(address, 16), name) for address, kind, name in symbols if kind in "tTwW"]
    starts = [address for address, _ in functions]
    total = 0
    for address, n in executed:
        at = bisect_right(starts, address - core) - 1
        if 0 <= at < len(starts) - 1 and WALK.search(functions[at][1]):
            total += n
    return total


if __name__ == "__main__":
    main()
