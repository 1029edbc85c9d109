"""Compile and link the core for Windows and macOS on another system; ``./dev cross`` runs this.

The result cannot be run on this machine. It is compiled with this machine's headers of Python and the sizes
of the target. A library with the names that the headers declare stands in for Python's library. Any other
missing name is an error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from build import ROOT, WORK, build_tools, compiler, new_environment, run, say

#: The target of zig, the system and the processor of CMake, and the end of the module's name.
TARGETS = (
    ("x86_64-windows-gnu", "Windows", "x86_64", ".pyd"),
    ("aarch64-macos.11.0", "Darwin", "arm64", ".so"),
)


def main() -> None:
    tools = build_tools(new_environment(WORK / "cross-python", Path(sys.executable)))
    version = "{}.{}".format(*sys.version_info)
    for target, system, processor, suffix in TARGETS:
        folder = WORK / f"cross-{target}-python-{version}"  # CMake keeps what it found for one version
        folder.mkdir(parents=True, exist_ok=True)
        windows = system == "Windows"
        headers = python_headers(folder, windows)
        library = windows_library(folder) if windows else mac_library(folder)
        # CMake also links the libraries of this machine's Python, which other systems have in the C library.
        (folder / "libdl.a").write_bytes(b"!<arch>\n")
        settings = {
            "CMAKE_BUILD_TYPE": "Check",  # one without flags of its own
            "CMAKE_CXX_FLAGS": "-O1 -DNDEBUG",
            "CMAKE_SYSTEM_NAME": system,
            "CMAKE_SYSTEM_PROCESSOR": processor,
            "CMAKE_CXX_COMPILER": compiler(target, "c++") if windows else mac_compiler(target),
            "CMAKE_OSX_SYSROOT": "",
            "CMAKE_OSX_DEPLOYMENT_TARGET": "",
            "CMAKE_RC_COMPILER": "false",
            "CMAKE_MODULE_LINKER_FLAGS": f"-L{folder}",
            "PYTHON_MODULE_EXTENSION": suffix,
            "Python_EXECUTABLE": sys.executable,
            "Python_INCLUDE_DIR": headers,
            "SKSHAPGPU_CUDA": "OFF",
            "pybind11_DIR": tools / "pybind11/share/cmake/pybind11",
        }
        # Only on Windows are modules of Python linked with its library.
        settings["Python_LIBRARY" if windows else "CMAKE_CXX_STANDARD_LIBRARIES"] = library
        say(f"compiling and linking for {target}")
        variables = {"PYTHONPATH": str(tools), "PATH": f"{tools / 'bin'}:{os.environ['PATH']}"}
        cmake, built = tools / "bin/cmake", folder / "build"
        defined = [f"-D{name}={value}" for name, value in settings.items()]
        configure = [cmake, "-S", ROOT, "-B", built, "-G", "Ninja", *defined]
        run(*configure, variables=variables, quiet=True)
        run(cmake, "--build", built, variables=variables, quiet=True)
        (module,) = built.glob(f"_core*{suffix}")
        objects = len(list(built.rglob("*.cpp.o*")))
        say(f"{target}: {objects} files compiled, {module.name} linked, {module.stat().st_size / 1e6:.1f} MB")


def python_headers(folder: Path, windows: bool) -> Path:
    """Copy the headers of Python; for Windows, change what differs there."""
    headers = folder / "include"
    shutil.rmtree(headers, ignore_errors=True)
    shutil.copytree(sysconfig.get_path("include"), headers)
    if windows:
        config = headers / "pyconfig.h"
        text = re.sub(r"#define HAVE_SYS_\w+ 1", "", config.read_text())
        for name, value in {
            "ALIGNOF_LONG": 4,
            "SIZEOF_LONG": 4,
            "SIZEOF_WCHAR_T": 2,
            "HAVE_DECLSPEC_DLL": 1,
            "MS_WINDOWS": 1,
            "MS_WIN32": 1,
            "MS_WIN64": 1,
            "Py_ENABLE_SHARED": 1,
        }.items():
            text += f"\n#undef {name}\n#define {name} {value}"
        config.write_text(text + "\n")
    return headers


def declared_names(folder: Path) -> tuple[list[str], list[str]]:
    """Return the functions and the variables that the headers of Python declare."""
    text = "\n".join(path.read_text() for path in (folder / "include").rglob("*.h"))
    functions = set(re.findall(r"PyAPI_FUNC\([^)]*\)\s*(\w+)", text))
    variables = set(re.findall(r"PyAPI_DATA\([^)]*\)\s*(\w+)", text))
    return sorted(functions - variables), sorted(variables)


def windows_library(folder: Path) -> Path:
    """Write an import library, like that of Python's DLL."""
    functions, variables = declared_names(folder)
    version = "{}{}".format(*sys.version_info)  # CMake reads the name
    definition, library = folder / "python.def", folder / f"libpython{version}.a"
    names = [*functions, *(f"{name} DATA" for name in variables)]
    definition.write_text("\n".join([f"LIBRARY python{version}.dll", "EXPORTS", *names, ""]))
    tool = [sys.executable, "-m", "ziglang", "dlltool"]
    subprocess.run([*tool, "-m", "i386:x86-64", "-d", definition, "-l", library], check=True)
    return library


def mac_library(folder: Path) -> Path:
    """Write the names of Python's shared library as a text file, which linkers read in its place."""
    functions, variables = declared_names(folder)
    names = ", ".join(f"_{name}" for name in functions + variables)
    library = folder / "libpython.tbd"
    library.write_text(
        "--- !tapi-tbd\ntbd-version: 4\ntargets: [ arm64-macos ]\n"
        "install-name: '@rpath/libpython.dylib'\n"
        f"exports:\n  - targets: [ arm64-macos ]\n    symbols: [ {names} ]\n...\n"
    )
    return library


def mac_compiler(target: str) -> Path:
    """Write a compiler that links a shared library instead of a bundle, on which zig's linker crashes.

    The compiler also refuses missing names, which pybind11 would leave to the start of the program.
    """
    path = compiler(target, "c++")
    arguments = (
        "for argument; do\n  shift\n  case $argument in\n"
        "    -bundle) argument=-dynamiclib ;;\n    dynamic_lookup) argument=error ;;\n"
        '  esac\n  set -- "$@" "$argument"\ndone\nexec '
    )
    path.write_text(path.read_text().replace("exec ", arguments))
    return path


if __name__ == "__main__":
    main()
