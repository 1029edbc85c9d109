"""Build, check and try the source distribution and wheels; ``./dev wheel`` runs this.

Wheels for the CPU are compiled by zig's clang, whose targets name the oldest C library to run with, and which
compiles for other processors too. Wheels for this processor are installed into clean environments without a
compiler on the path, for each version of Python on this machine, and tried by smoke.py. A wheel for aarch64
is tried on other Debian machines under QEMU, if it is for the version of Debian's Python.

Wheels with the GPU module need nvcc, which compiles with this machine's GCC only, so that they run with this
machine's C library or a later one.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
WORK = ROOT / ".cache" / "wheels"
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
#: The oldest glibc that a wheel runs with: that of manylinux2014.
GLIBC = "2.17"
#: Alarms for what should not be in a wheel. Of a wheel for x86-64, the core takes 2.3 MB, Python code 0.65.
MOST_MEGABYTES, MOST_MEGABYTES_GPU = 3.0, 15.0
#: Extras that are installed to try a wheel; CatBoost has no wheels for Python 3.15 yet. The quickstart of the
#: README needs pandas, which CatBoost would install.
LIBRARIES = "xgboost,lightgbm,catboost,arrow"
LIBRARIES_OF = {"3.15": "xgboost,lightgbm,arrow"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev wheel", description=__doc__)
    parser.add_argument("--python", nargs="+", choices=PYTHONS, default=PYTHONS, help="versions (all found)")
    parser.add_argument(
        "--arch", nargs="+", choices=("x86_64", "aarch64"), default=[platform.machine()], help="processors"
    )
    parser.add_argument("--gpu", action="store_true", help="with the GPU module, for all GPUs")
    parser.add_argument("--no-try", action="store_true", help="build and check only")
    arguments = parser.parse_args()
    if arguments.gpu and arguments.arch != [platform.machine()]:
        parser.error(f"--gpu builds for {platform.machine()} only")
    # The dates of all members are that of the commit, so that two builds of a commit give the same bytes.
    date = run("git", "-C", ROOT, "log", "-1", "--format=%ct", quiet=True).strip()
    os.environ.setdefault("SOURCE_DATE_EPOCH", date)
    shutil.rmtree(DIST, ignore_errors=True)
    pythons = {version: path for version in arguments.python if (path := find_python(version))}
    sdist = build_sdist()
    for arch in arguments.arch:
        for version, python in pythons.items():
            wheel = build_wheel(sdist, arch, version, python, arguments.gpu)
            if arguments.no_try:
                continue
            if arch == platform.machine():
                try_wheel(wheel, version, python)
            else:
                try_emulated(wheel, arch, version)
    check_metadata()
    for path in sorted(DIST.iterdir()):
        say(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")


def build_sdist() -> Path:
    say("building the source distribution")
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", DIST, ROOT, quiet=True)
    (sdist,) = DIST.glob("*.tar.gz")
    return sdist


def build_wheel(sdist: Path, arch: str, version: str, python: Path, gpu: bool) -> Path:
    """Compile the sources of the sdist; the core is compiled once for all versions of Python."""
    say(f"building the wheel of Python {version} for {arch}{' and GPUs' if gpu else ''}")
    suffix = f".cpython-{version.replace('.', '')}-{arch}-linux-gnu.so"
    raw = WORK / "raw"
    compile_wheel(raw, sdist, arch, version, python, suffix, gpu)
    tag = f"cp{version.replace('.', '')}"
    (built,) = raw.glob(f"*-{tag}-{tag}-*.whl")
    check_modules(built, version, suffix)
    wanted = platform_tag(built, arch, gpu)
    run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", wanted, built, quiet=True)
    (tagged,) = raw.glob("*.whl")
    wheel = DIST / tagged.name
    compress(tagged, wheel)
    run(sys.executable, "-m", "check_wheel_contents", wheel, quiet=True)
    run(sys.executable, "-m", "pydistcheck.cli", "--inspect", wheel, quiet=True)
    megabytes, most = wheel.stat().st_size / 1e6, MOST_MEGABYTES_GPU if gpu else MOST_MEGABYTES
    if megabytes > most:
        raise SystemExit(f"{wheel.name} has {megabytes:.2f} MB, more than {most}")
    return wheel


def compile_wheel(
    folder: Path, sdist: Path, arch: str, version: str, python: Path, suffix: str, gpu: bool
) -> None:
    """Write the wheel, whose modules have this suffix, to an empty folder."""
    source = WORK / "source"
    unpack(sdist, source)
    environment = new_environment(WORK / f"build-python-{version}", python)
    tools = build_tools(environment)
    settings = {
        "build-dir": WORK / f"build-{arch}{'-gpu' if gpu else ''}",
        "cmake.define.SKSHAPGPU_CUDA": "ON" if gpu else "OFF",
        "cmake.define.CMAKE_SHARED_LINKER_FLAGS": "-s",
        "cmake.define.CMAKE_MODULE_LINKER_FLAGS": "-s",
    }
    if not gpu:
        settings |= {
            "cmake.define.CMAKE_SYSTEM_NAME": "Linux",
            "cmake.define.CMAKE_SYSTEM_PROCESSOR": arch,
            "cmake.define.CMAKE_C_COMPILER": compiler(f"{arch}-linux-gnu.{GLIBC}", "cc"),
            "cmake.define.CMAKE_CXX_COMPILER": compiler(f"{arch}-linux-gnu.{GLIBC}", "c++"),
        }
    shutil.rmtree(folder, ignore_errors=True)
    run(
        environment / "bin/python",
        *("-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", folder),
        *(f"--config-settings={name}={value}" for name, value in settings.items()),
        source,
        variables={
            "_PYTHON_HOST_PLATFORM": f"linux-{arch}",
            "SETUPTOOLS_EXT_SUFFIX": suffix,
            "PYTHONPATH": str(tools),
            "PATH": f"{tools / 'bin'}:{os.environ['PATH']}",
        },
        quiet=True,
    )


def check_modules(wheel: Path, version: str, suffix: str) -> None:
    """Require that Python finds each compiled module, and that it exports its function for import only."""
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".so")]
        contents = {name: io.BytesIO(archive.read(name)) for name in modules}
    if not modules or not all(name.endswith(suffix) for name in modules):
        raise SystemExit(f"{wheel.name} has modules that Python {version} does not find: {modules}")
    for name, content in contents.items():
        symbols = ELFFile(content).get_section_by_name(".dynsym").iter_symbols()
        exported = [symbol.name for symbol in symbols if symbol.name and symbol["st_shndx"] != "SHN_UNDEF"]
        if exported != [f"PyInit_{Path(name).name.partition('.')[0]}"]:
            raise SystemExit(f"{wheel.name}: {name} exports {exported}, see csrc/python/exports.map")


def platform_tag(wheel: Path, arch: str, gpu: bool) -> str:
    """Return the tag of the oldest C library that the wheel is for, after a check that it runs with it."""
    shown = run(sys.executable, "-m", "auditwheel", "show", wheel, quiet=True)
    platform_tags = re.findall(r"manylinux_(\d+)_(\d+)_" + arch, shown)
    needed = min(((int(a), int(b)) for a, b in platform_tags), default=None)
    glibc = needed if gpu else tuple(map(int, GLIBC.split(".")))
    if needed is None or needed > glibc:
        raise SystemExit(f"{wheel.name} does not run with glibc {GLIBC}:\n{shown}")
    return f"manylinux_{glibc[0]}_{glibc[1]}_{arch}"


def compress(source: Path, target: Path) -> None:
    """Write a copy of a wheel that is compressed as well as zlib can, which saves 1 % of it."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for member in old.infolist():
            new.writestr(member, old.read(member), zipfile.ZIP_DEFLATED, 9)


def try_wheel(wheel: Path, version: str, python: Path) -> None:
    """Run smoke.py in an environment that has the wheel and the libraries, with nothing else on the path."""
    say(f"trying {wheel.name}")
    environment = new_environment(WORK / f"try-{version}", python)
    pip(environment, "install", "--force-reinstall", "--no-deps", wheel)
    pip(environment, "install", f"{wheel}[{LIBRARIES_OF.get(version, LIBRARIES)}]", "pandas")
    smoke(environment / "bin/python", {"PATH": str(environment / "bin")})


def try_emulated(wheel: Path, arch: str, version: str) -> None:
    """Run smoke.py under QEMU, in an environment like that of `try_wheel`."""
    if arch != "aarch64" or any(shutil.which(name) is None for name in ("qemu-aarch64", "apt-get", "dpkg")):
        say(f"{wheel.name} is not tried: for that, install qemu-user on a Debian machine")
        return
    sys.path.append(str(ROOT / "tests/arm64"))
    import run as arm64

    arm64.fetch_python()
    if (found_version := arm64.of_python("sysconfig.get_python_version()")) != version:
        say(f"{wheel.name} is not tried: Debian's Python is {found_version}")
        return
    say(f"trying {wheel.name} under QEMU")
    site = WORK / f"try-{arch}-{version}"
    if site.exists():
        shutil.rmtree(site / "skshapgpu")
    else:
        arm64.install(site, [f"{wheel}[{LIBRARIES}]"])
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    smoke(arm64.PYTHON, {"PATH": "", "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"})


def smoke(python: Path, variables: dict[str, str]) -> None:
    folder = WORK / "elsewhere"
    folder.mkdir(exist_ok=True)
    # joblib counts the processors by programs that are not on the path.
    variables = {"HOME": str(folder), "PYTHONSAFEPATH": "1", "LOKY_MAX_CPU_COUNT": "1"} | variables
    command = [python, ROOT / "tests/wheels/smoke.py", ROOT / "README.md"]
    subprocess.run(command, env=variables, cwd=folder, check=True)


def check_metadata() -> None:
    files = sorted(DIST.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files, quiet=True)
    for wheel in DIST.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        strays = [name for name in names if not name.startswith("skshapgpu")]
        if strays:
            raise SystemExit(f"{wheel.name} has files outside the package: {strays}")


def compiler(target: str, language: str) -> Path:
    """Write a script that compiles for a target of zig's: a processor, a system and its C library."""
    path = WORK / f"{target}-{language}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {language} -target {target} "$@"\n')
    path.chmod(0o755)
    return path


def build_tools(environment: Path) -> Path:
    """Install the build tools in one folder for all versions of Python: in another, all is compiled anew."""
    folder = WORK / "build-tools"
    if not folder.exists():
        tools = (
            *tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"],
            "cmake>=3.24",
            "ninja",
        )
        pip(environment, "install", "--target", folder, *tools)
    return folder


def new_environment(path: Path, python: Path) -> Path:
    if not (path / "bin/pip").exists():
        run(python, "-m", "venv", path)
    return path


def unpack(sdist: Path, source: Path) -> None:
    """Unpack the sdist, with the times of its files as before, so that only changed files are compiled."""
    new = WORK / "new"
    shutil.rmtree(new, ignore_errors=True)
    run(sys.executable, "-m", "tarfile", "--extract", sdist, new, quiet=True)
    (folder,) = new.iterdir()
    source.mkdir(parents=True, exist_ok=True)
    wanted = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    for path in [path for path in source.rglob("*") if path.is_file()]:
        if path.relative_to(source) not in wanted:
            path.unlink()
    for name in wanted:
        old, fresh = source / name, folder / name
        if not old.exists() or old.read_bytes() != fresh.read_bytes():
            old.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh, old)


def find_python(version: str) -> Path | None:
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return Path(sysconfig.get_config_var("BINDIR")) / f"python{version}"
    result = subprocess.run([ROOT / "dev", "python", version], capture_output=True, text=True)
    if result.returncode:
        say(f"found no Python {version}: no wheel for it")
        return None
    return Path(result.stdout.strip())


def pip(environment: Path, *arguments: object) -> None:
    run(
        environment / "bin/python",
        *("-m", "pip", "--quiet", "--disable-pip-version-check"),
        *arguments,
        quiet=True,
    )


def run(*command: object, variables: dict[str, str] | None = None, quiet: bool = False) -> str:
    """Run a command; return its output if `quiet`, which is printed only if it fails."""
    result = subprocess.run(
        [str(part) for part in command],
        env=os.environ | (variables or {}),
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
    )
    if result.returncode:
        print(result.stdout or "")
        raise SystemExit(f"failed: {' '.join(str(part) for part in command)}")
    return result.stdout or ""


def say(text: str) -> None:
    print(f"wheel: {text}", flush=True)


if __name__ == "__main__":
    main()
