"""How ``./dev release --rehearse`` compares two builds, and which Python it takes for a wheel."""

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
