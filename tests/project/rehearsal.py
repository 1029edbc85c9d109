"""Rehearse a release on this machine: ``./dev release --rehearse``.

Build the files of the last commit twice and compare them, upload them to a package index that runs here, and
use them from there as a user would: in new virtual environments, without a compiler and without the checkout.
A copy of each wheel with the version 0.0.9 stands for an earlier release. One more environment, which has a
compiler, installs the source distribution.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
WORK = ROOT / ".cache" / "rehearsal"
EARLIER = "0.0.9"
#: The tests under QEMU, where all of them would take days; ./dev arm64 runs more of the core's.
EMULATED_TESTS = ["engine/test_instruction_sets.py", "explainer/test_explainer.py"]
#: Variables that say where pip finds packages, and how. The others of pip could change what it installs.
SOURCES_OF_PIP = {
    "PIP_CACHE_DIR",
    "PIP_CERT",
    "PIP_CONFIG_FILE",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "PIP_PROXY",
    "PIP_TRUSTED_HOST",
}


def main() -> None:
    """Run all steps; exit at the first that fails."""
    parser = argparse.ArgumentParser(prog="./dev release --rehearse", description=__doc__.partition("\n")[0])
    parser.add_argument("--dist", type=Path, help="use the files of this folder instead of building them")
    parser.add_argument(
        "--allow-differences", action="store_true", help="continue if two builds are not the same bytes"
    )
    parser.add_argument("--no-sdist", action="store_true", help="do not compile the source distribution")
    parser.add_argument("--python", nargs="+", help="versions of Python (all that ./dev wheel builds for)")
    parser.add_argument(
        "--arch",
        nargs="+",
        choices=("x86_64", "aarch64"),
        default=[platform.machine()],
        help="processors, aarch64 under QEMU (this one)",
    )
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="use wheels with the GPU module, and run the tests on this machine's GPU",
    )
    parser.add_argument("--extras", default="all", help="extras to install (all)")
    parser.add_argument(
        "--tests", nargs="*", help="arguments of pytest, in the folder tests (all tests; under QEMU, a part)"
    )
    arguments = parser.parse_args()
    start = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    files = WORK / "files"
    options = ["--arch", *arguments.arch, *(["--gpu"] if arguments.gpu else [])]
    options += ["--python", *arguments.python] if arguments.python else []
    built = arguments.dist or built_twice(options, arguments.allow_differences)
    shutil.copytree(built.resolve(), files)
    sdists = list(files.glob("*.tar.gz"))
    if len(sdists) != 1:
        sys.exit(f"rehearsal: {built} must have one source distribution, for its tests; it has {len(sdists)}")
    sdist = sdists[0]
    version = sdist.name.removesuffix(".tar.gz").rpartition("-")[2]
    source = unpacked(sdist)
    wheels = [
        wheel
        for wheel in sorted(files.glob("*.whl"))
        if arch_of(wheel) in arguments.arch
        and python_of(wheel) in (arguments.python or [python_of(wheel)])
        and can_run(wheel)
    ]
    if not wheels:
        sys.exit(f"rehearsal: {files} has no wheel for these versions of Python")
    for wheel in wheels:
        earlier(wheel)
    with index() as address:
        upload(address, [sdist, *files.glob("*.whl")])
        for wheel in wheels:
            rehearse(wheel, version, address, source, arguments)
        if not arguments.no_sdist:
            rehearse_sdist(version, address, source, arguments)
    say(f"all passed after {time.monotonic() - start:.0f} s")


def built_twice(options: list[str], allow_differences: bool) -> Path:
    """Build the files of the last commit in two runs that share nothing; exit if they differ."""
    commit = clean_commit()
    for number in (1, 2):
        say(f"build {number} of 2, of commit {commit[:12]}")
        for folder in (ROOT / ".cache" / "wheels").glob("build-*"):
            shutil.rmtree(folder)
        command = [sys.executable, ROOT / "tests" / "wheels" / "build.py", "--no-try", *options]
        # zig keeps all that it has compiled, and would only copy it in the second run.
        cache = str(WORK / f"zig-{number}")
        variables = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        subprocess.run(command, check=True, env=os.environ | variables)
        if clean_commit() != commit:
            sys.exit("rehearsal: somebody committed during the build: run this again")
        shutil.copytree(DIST, WORK / f"build-{number}")
    compare(WORK / "build-1", WORK / "build-2", allow_differences)
    return WORK / "build-1"


def clean_commit() -> str:
    """Return the last commit; exit if the working tree differs from it, as a build would use the tree."""
    # The build reads .gitignore, but not the file of ignored names that a person may have.
    git = ("git", "-C", ROOT, "-c", f"core.excludesFile={os.devnull}")
    if changed := run(*git, "status", "--porcelain", "--untracked-files=all"):
        sys.exit(
            "rehearsal: a release is built from a commit, but these files differ from the last one:\n"
            f"{changed}Commit or remove them, or use files that were built before: --dist FOLDER"
        )
    return run(*git, "rev-parse", "HEAD").strip()


def compare(first: Path, second: Path, allow_differences: bool) -> None:
    """Print which files of two builds are the same bytes; exit if one is not, unless that is allowed."""
    hashes = [{path.name: sha256(path.read_bytes()) for path in build.iterdir()} for build in (first, second)]
    differing = []
    for name in sorted(hashes[0] | hashes[1]):
        if hashes[0].get(name) == hashes[1].get(name):
            say(f"two builds of {name} are the same bytes, {hashes[0][name][:16]}...")
            continue
        differing.append(name)
        if all(name in build for build in hashes):
            say(f"two builds of {name} DIFFER in {differences(first / name, second / name)}")
        else:
            say(f"only one of two builds has {name}")
    if differing and not allow_differences:
        names = ", ".join(differing)
        sys.exit(f"rehearsal: two builds of one commit differ: {names}. --allow-differences continues")


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


def rehearse(wheel: Path, version: str, address: str, source: Path, arguments: argparse.Namespace) -> None:
    """Install, upgrade, try, test, downgrade and uninstall in a new environment."""
    user = User(python_of(wheel), arch_of(wheel), address)
    user.create()
    user.install(f"skshapgpu=={EARLIER}", EARLIER)
    user.install(f"skshapgpu[{arguments.extras}]", version, "--upgrade")
    print(user.run(source / "tests" / "wheels" / "smoke.py", source / "README.md"))
    if arguments.gpu:
        user.run(
            "-c", "import skshapgpu; info = skshapgpu.cuda_info(); assert info['available'], info['reason']"
        )
    if arguments.tests != []:
        user.test(source, arguments.tests, "cuda" if arguments.gpu else "cpu")
    user.install(f"skshapgpu=={EARLIER}", EARLIER)
    user.run("-m", "pip", "uninstall", "--quiet", "--yes", "skshapgpu")
    left = [path for path in user.folder.rglob("*skshapgpu*") if path.is_file()]
    if left:
        sys.exit(f"rehearsal: uninstalling left {left}")
    user.say("uninstalled, nothing is left")


def rehearse_sdist(version: str, address: str, source: Path, arguments: argparse.Namespace) -> None:
    """Install the source distribution with this Python, and try what it compiles: only the best kernels."""
    user = User(sysconfig.get_python_version(), platform.machine(), address, compiles=True)
    user.create()
    settings = {"SKSHAPGPU_KERNELS": "native", "SKSHAPGPU_CUDA": "OFF"}
    options = [f"--config-settings=cmake.define.{name}={value}" for name, value in settings.items()]
    user.install(f"skshapgpu[{arguments.extras}]=={version}", version, *options)
    print(user.run(source / "tests" / "wheels" / "smoke.py", source / "README.md"))


@dataclass(frozen=True)
class User:
    """Somebody with a new virtual environment and no folder of the checkout.

    A compiler is on the path only if the user compiles; others install wheels only.
    """

    python: str
    arch: str
    address: str
    compiles: bool = False

    @property
    def folder(self) -> Path:
        return WORK / f"python-{self.python}-{self.arch}{'-compiled' if self.compiles else ''}"

    @property
    def is_emulated(self) -> bool:
        return self.arch != platform.machine()

    @property
    def variables(self) -> dict[str, str]:
        path = [str(self.folder / "bin"), *([os.environ["PATH"]] if self.compiles else [])]
        variables = {
            "PATH": os.pathsep.join(path),
            "PYTHONSAFEPATH": "1",
            "LOKY_MAX_CPU_COUNT": "1",
            "OMP_NUM_THREADS": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_BINARY" if self.compiles else "PIP_ONLY_BINARY": "skshapgpu",
        }
        index = f"{self.address}simple/"
        if os.environ.get("PIP_NO_INDEX"):  # there is no network: all else is in the folder PIP_FIND_LINKS
            return variables | {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": index}
        return variables | {"PIP_EXTRA_INDEX_URL": index}

    @property
    def environment(self) -> dict[str, str]:
        """All variables: also those of this process, without those of its Python, and most of pip's."""
        own = ("PIP_", "PYTHON", "VIRTUAL_ENV", "CONDA_")
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name in SOURCES_OF_PIP or not name.startswith(own)
        }
        return inherited | self.variables

    def create(self) -> None:
        """Make the environment, with the first pip that knows groups, or a later one."""
        self.say("a new environment")
        if self.is_emulated:
            emulator().new_environment(self.folder)
        else:
            interpreter = run(ROOT / "dev", "python", self.python).strip()
            run(interpreter, "-m", "venv", self.folder, env=self.environment)
        self.run("-m", "pip", "install", "--quiet", "pip>=25.1")

    def run(self, *command: object) -> str:
        """Run Python with arguments; return what it prints."""
        elsewhere = WORK / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        return run(self.folder / "bin" / "python", *command, cwd=elsewhere, env=self.environment)

    def install(self, requirement: str, expected: str, *options: str) -> None:
        """Install from the index; exit if the version is not the expected one."""
        self.run("-m", "pip", "install", "--quiet", *options, requirement)
        installed = self.run("-c", "import skshapgpu; print(skshapgpu.__version__)").strip()
        if installed != expected:
            sys.exit(f"rehearsal: installed {requirement}, and skshapgpu is {installed}, not {expected}")
        self.say(f"{requirement} installed {installed}")

    def test(self, source: Path, tests: list[str] | None, device: str) -> None:
        """Run the tests of the source distribution; on an emulated processor, a part with fewer examples."""
        self.run(
            "-m", "pip", "install", "--quiet", "--group", f"{source / 'pyproject.toml'}:test", "pytest-xdist"
        )
        command = [self.folder / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        variables = self.environment
        if self.is_emulated:
            command += ["-p", "helpers.fewer_examples"]
            variables |= {"SKSHAPGPU_EXAMPLES": "10", "PYTHONPATH": str(source / "tests")}
        command += tests or (EMULATED_TESTS if self.is_emulated else ["."])
        self.say(f"testing the installed wheel, --device {device}")
        run_there = [*command, "--device", device]
        subprocess.run(run_there, cwd=source / "tests", env=variables, check=True)

    def say(self, text: str) -> None:
        arch = f" on {self.arch}" if self.is_emulated else ""
        say(f"Python {self.python}{arch}{', compiling' if self.compiles else ''}: {text}")


def can_run(wheel: Path) -> bool:
    """Return whether this machine has an interpreter for the wheel, or can emulate one."""
    if arch_of(wheel) == platform.machine():
        return True
    version = emulator().of_python("sysconfig.get_python_version()")
    if python_of(wheel) != version:
        say(f"{wheel.name} is not used: Debian's Python for {arch_of(wheel)} is {version}")
    return python_of(wheel) == version


def emulator() -> ModuleType:
    """Return the module of ``./dev arm64``, with Debian's Python for arm64 unpacked."""
    if any(shutil.which(name) is None for name in ("qemu-aarch64", "apt-get", "dpkg")):
        sys.exit("rehearsal: to use the wheel for aarch64, install qemu-user on a Debian machine")
    sys.path.append(str(ROOT / "tests" / "arm64"))
    arm64 = importlib.import_module("run")
    arm64.fetch_python()
    return arm64


def arch_of(wheel: Path) -> str:
    """Return the processor that a wheel is for."""
    return re.sub(r".*manylinux_\d+_\d+_", "", wheel.stem)


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


def run(*command: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command and return what it prints; print all of it, and exit, if the command fails."""
    result = subprocess.run([str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True)
    if result.returncode:
        print(result.stdout, result.stderr)
        sys.exit(f"rehearsal: failed: {' '.join(str(part) for part in command)}")
    return result.stdout


def say(text: str) -> None:
    print(f"rehearsal: {text}", flush=True)


if __name__ == "__main__":
    main()
