"""How ``./dev release --rehearse`` compares two builds, and finds the Python and processor of a wheel."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from project import rehearsal


def wheel(path: Path, contents: dict[str, bytes], year: int = 2020) -> Path:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in contents.items():
            archive.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), data)
    return path


def sdist(path: Path, contents: dict[str, bytes]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, data in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def test_differences_of_wheels(tmp_path: Path) -> None:
    first = wheel(tmp_path / "1" / "a.whl", {"same": b"x", "changed": b"x", "only_first": b""})
    second = wheel(tmp_path / "2" / "a.whl", {"only_second": b"", "changed": b"y", "same": b"x"})
    assert rehearsal.differences(first, second) == "changed, only_first, only_second"
    dated = wheel(tmp_path / "3" / "a.whl", {"same": b"x", "changed": b"x", "only_first": b""}, 2021)
    assert first.read_bytes() != dated.read_bytes()
    assert "dates" in rehearsal.differences(first, dated)


def test_differences_of_source_distributions(tmp_path: Path) -> None:
    first = sdist(tmp_path / "1" / "a.tar.gz", {"a/same": b"x", "a/changed": b"x"})
    second = sdist(tmp_path / "2" / "a.tar.gz", {"a/same": b"x", "a/changed": b"xy"})
    assert rehearsal.differences(first, second) == "a/changed"


@pytest.mark.parametrize(("tag", "python"), [("cp311-cp311", "3.11"), ("cp315-cp315", "3.15")])
def test_the_python_of_a_wheel(tag: str, python: str) -> None:
    assert rehearsal.python_of(Path(f"skshapgpu-1.2.3-{tag}-manylinux_2_17_x86_64.whl")) == python


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_the_processor_of_a_wheel(arch: str) -> None:
    assert rehearsal.arch_of(Path(f"skshapgpu-1.2.3-cp311-cp311-manylinux_2_17_{arch}.whl")) == arch


def test_wheels_for_other_systems_are_for_no_processor_here() -> None:
    name = "skshapgpu-1.2.3-cp311-cp311-macosx_11_0_arm64.whl"
    assert rehearsal.arch_of(Path(name)) not in {"x86_64", "aarch64", "arm64"}


@pytest.mark.parametrize("no_network", [False, True])
def test_the_indexes_of_a_user(no_network: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1" if no_network else "")
    variables = rehearsal.User("3.11", "x86_64", "http://127.0.0.1:1/").variables
    assert variables["PATH"].endswith("bin") and ":" not in variables["PATH"]
    name = "PIP_INDEX_URL" if no_network else "PIP_EXTRA_INDEX_URL"
    assert {key for key in variables if key.endswith("_URL")} == {name}
    assert variables[name] == "http://127.0.0.1:1/simple/"
