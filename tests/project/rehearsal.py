"""Rehearse a release on this machine: ``./dev release --rehearse``.

Build the files of a release twice and compare them, upload them to a package index that runs here, and use
them from there as a user would: in new environments, without a compiler and without the checkout. A copy of
each wheel with the version 0.0.9 stands for an earlier release.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
WORK = ROOT / ".cache" / "rehearsal"
EARLIER = "0.0.9"


def main() -> None:
    """Run all steps; exit at the first that fails."""
    parser = argparse.ArgumentParser(prog="./dev release --rehearse", description=__doc__.partition("\n")[0])
    parser.add_argument("--dist", type=Path, help="use the files of this folder instead of building them")
    parser.add_argument("--python", nargs="+", help="versions of Python (all that ./dev wheel builds for)")
    parser.add_argument("--extras", default="all", help="extras to install (all)")
    parser.add_argument("--tests", nargs="*", default=["."], help="arguments of pytest, in the folder tests")
    arguments = parser.parse_args()
    start = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    files = WORK / "files"
    shutil.copytree(arguments.dist.resolve() if arguments.dist else built_twice(arguments.python), files)
    (sdist,) = files.glob("*.tar.gz")
    version = sdist.name.removesuffix(".tar.gz").rpartition("-")[2]
    source = unpacked(sdist)
    wheels = {
        python: wheel
        for wheel in sorted(files.glob("*.whl"))
        if wheel.stem.endswith(platform.machine())
        and (python := python_of(wheel)) in (arguments.python or [python])
    }
    if not wheels:
        sys.exit(f"rehearsal: {files} has no wheel for these versions of Python")
    for wheel in wheels.values():
        earlier(wheel)
    with index() as address:
        upload(address, [sdist, *files.glob("*.whl")])
        for python in wheels:
            rehearse(python, version, address, source, arguments)
    say(f"all passed after {time.monotonic() - start:.0f} s")


def built_twice(pythons: list[str] | None) -> Path:
    """Build the files of the last commit in two runs that share nothing; show what differs."""
    hashes: list[dict[str, str]] = []
    for number in (1, 2):
        say(f"build {number} of 2")
        for folder in (ROOT / ".cache" / "wheels").glob("build-*"):
            shutil.rmtree(folder)
        versions = ["--python", *pythons] if pythons else []
        command = [sys.executable, ROOT / "tests" / "wheels" / "build.py", "--no-try", *versions]
        subprocess.run(command, check=True)
        shutil.copytree(DIST, WORK / f"build-{number}")
        hashes.append({path.name: sha256(path.read_bytes()) for path in DIST.iterdir()})
    for name in sorted(hashes[0] | hashes[1]):
        if hashes[0].get(name) == hashes[1].get(name):
            say(f"two builds of {name} are the same bytes, {hashes[0][name][:16]}...")
        else:
            differing = differences(WORK / "build-1" / name, WORK / "build-2" / name)
            say(f"two builds of {name} DIFFER in {differing}")
    return WORK / "build-1"


def differences(first: Path, second: Path) -> str:
    """Return the names of the members of two archives that differ, or say that only the archives do."""
    contents = [members(path) for path in (first, second)]
    names = sorted(contents[0] | contents[1])
    differing = [name for name in names if contents[0].get(name) != contents[1].get(name)]
    return ", ".join(differing) or "nothing but the dates or the order of their members"


def members(archive: Path) -> dict[str, str]:
    """Return the hashes of the files in a wheel or source distribution."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as file:
            return {name: sha256(file.read(name)) for name in file.namelist()}
    with tarfile.open(archive) as tar:
        return {m.name: sha256(tar.extractfile(m).read()) for m in tar.getmembers() if m.isfile()}


def earlier(wheel: Path) -> None:
    """Write a copy of the wheel whose version is 0.0.9."""
    folder = WORK / "earlier"
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "wheel", "unpack", "--dest", folder, wheel)
    (contents,) = folder.iterdir()
    (metadata,) = contents.glob("*.dist-info")
    name, _, version = contents.name.partition("-")
    text = (metadata / "METADATA").read_text(encoding="utf-8")
    changed = text.replace(f"\nVersion: {version}\n", f"\nVersion: {EARLIER}\n", 1)
    if changed == text:
        sys.exit(f"rehearsal: {wheel.name} does not have the version {version}")
    (metadata / "METADATA").write_text(changed, encoding="utf-8")
    metadata.rename(contents / f"{name}-{EARLIER}.dist-info")
    run(sys.executable, "-m", "wheel", "pack", "--dest-dir", wheel.parent, contents)


@contextmanager
def index() -> Iterator[str]:
    """Run a package index on a free port; yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    packages = WORK / "index"
    packages.mkdir()
    # Without passwords ("." and "."), and without asking another index for packages that it lacks.
    options = ("-i", "127.0.0.1", "-p", str(port), "-a", ".", "-P", ".", "--disable-fallback")
    command = [sys.executable, "-m", "pypiserver", "run", *options, packages]
    with (WORK / "index.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            for _ in range(100):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.2)
            else:
                sys.exit(f"rehearsal: the index does not answer; see {WORK / 'index.log'}")
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()


def upload(address: str, files: list[Path]) -> None:
    """Upload files to the index, as trusted publishing will, but without attestations."""
    say(f"uploading {len(files)} files")
    login = ("--username", "rehearsal", "--password", "rehearsal")
    command = ("twine", "upload", "--non-interactive", "--disable-progress-bar", "--repository-url", address)
    run(sys.executable, "-m", *command, *login, *sorted(files))
    uploaded = {path.name: sha256(path.read_bytes()) for path in (WORK / "index").glob("skshapgpu-*")}
    if uploaded != {path.name: sha256(path.read_bytes()) for path in files}:
        sys.exit("rehearsal: the index does not have the files that were uploaded")


def rehearse(python: str, version: str, address: str, source: Path, arguments: argparse.Namespace) -> None:
    """Install, upgrade, try, test, downgrade and uninstall in a new environment."""
    say(f"Python {python}: a new environment")
    environment = WORK / f"python-{python}"
    interpreter = run(ROOT / "dev", "python", python).strip()
    run(interpreter, "-m", "venv", environment)
    own = environment / "bin" / "python"
    # No compiler, and no folder of the checkout: a missing wheel or module is an error.
    elsewhere = WORK / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    variables = {"PATH": str(environment / "bin"), "PYTHONSAFEPATH": "1", "LOKY_MAX_CPU_COUNT": "1"}
    variables |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_EXTRA_INDEX_URL": f"{address}simple/"}
    variables |= {"PIP_ONLY_BINARY": "skshapgpu", "OMP_NUM_THREADS": "1"}

    def of_user(*command: object) -> str:
        return run(own, *command, cwd=elsewhere, variables=variables)

    def install(requirement: str, expected: str, *options: str) -> None:
        of_user("-m", "pip", "install", "--quiet", *options, requirement)
        installed = of_user("-c", "import skshapgpu; print(skshapgpu.__version__)").strip()
        if installed != expected:
            sys.exit(f"rehearsal: installed {requirement}, and skshapgpu is {installed}, not {expected}")
        say(f"Python {python}: {requirement} installed {installed}")

    of_user("-m", "pip", "install", "--quiet", "pip>=25.1")  # the first that knows groups
    install(f"skshapgpu=={EARLIER}", EARLIER)
    install(f"skshapgpu[{arguments.extras}]", version, "--upgrade")
    print(of_user(source / "tests" / "wheels" / "smoke.py", source / "README.md"))
    if arguments.tests:
        of_user("-m", "pip", "install", "--quiet", "--group", f"{source / 'pyproject.toml'}:test")
        say(f"Python {python}: testing the installed wheel")
        command = [own, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments.tests]
        subprocess.run(command, cwd=source / "tests", env=os.environ | variables, check=True)
    install(f"skshapgpu=={EARLIER}", EARLIER)
    of_user("-m", "pip", "uninstall", "--quiet", "--yes", "skshapgpu")
    left = [path for path in environment.rglob("*skshapgpu*") if path.is_file()]
    if left:
        sys.exit(f"rehearsal: uninstalling left {left}")
    say(f"Python {python}: uninstalled, nothing is left")


def python_of(wheel: Path) -> str:
    """Return the version of Python that a wheel is for."""
    tag = wheel.name.split("-")[2]
    return f"{tag[2]}.{tag[3:]}"


def unpacked(sdist: Path) -> Path:
    """Unpack the source distribution, which has the tests."""
    folder = WORK / "source"
    with tarfile.open(sdist) as tar:
        tar.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    say(f"the source distribution is of {project['name']} {project['version']}")
    return source


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def run(*command: object, cwd: Path | None = None, variables: dict[str, str] | None = None) -> str:
    """Run a command and return what it prints; print all of it, and exit, if the command fails."""
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | (variables or {}),
        capture_output=True,
        text=True,
    )
    if result.returncode:
        print(result.stdout, result.stderr)
        sys.exit(f"rehearsal: failed: {' '.join(str(part) for part in command)}")
    return result.stdout


def say(text: str) -> None:
    print(f"rehearsal: {text}", flush=True)


if __name__ == "__main__":
    main()
