"""``./dev release --rehearse``: what it builds, how it compares two builds, and what its users have."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
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


def test_two_builds_must_be_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for build in (first, second):
        wheel(build / "same.whl", {"x": b""})
        wheel(build / "changed.whl", {"x": b"", "y": str(build).encode()})
    rehearsal.compare(first, first, False)
    assert "changed.whl are the same bytes" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"differ: changed\.whl\. --allow-differences"):
        rehearsal.compare(first, second, False)
    output = capsys.readouterr().out
    assert "changed.whl DIFFER in y\n" in output and "same.whl are the same bytes" in output
    rehearsal.compare(first, second, True)
    wheel(second / "more.whl", {})
    with pytest.raises(SystemExit, match=r"differ: changed\.whl, more\.whl"):
        rehearsal.compare(first, second, False)
    assert "only one of two builds has more.whl" in capsys.readouterr().out


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@x.invalid", "-c", "commit.gpgsign=false")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small repository with one commit, in place of this one."""
    if shutil.which("git") is None:
        pytest.skip("git is not on the path")
    (tmp_path / "module.py").write_text("")
    (tmp_path / ".gitignore").write_text("dist/\n.cache/\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "x")
    monkeypatch.setattr(rehearsal, "ROOT", tmp_path)
    monkeypatch.setattr(rehearsal, "DIST", tmp_path / "dist")
    monkeypatch.setattr(rehearsal, "WORK", tmp_path / ".cache" / "rehearsal")
    return tmp_path


@pytest.mark.parametrize("name", ["module.py", "folder/new.py"])
def test_only_a_commit_is_built(repository: Path, name: str) -> None:
    assert rehearsal.clean_commit() == git(repository, "rev-parse", "HEAD")
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text("changed")
    with pytest.raises(SystemExit, match=rf"differ from the last one:\n.*{name}\n"):
        rehearsal.built_twice([], True)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("b'same'", None),
        ("os.urandom(8)", r"differ: file\.whl"),
        ("open('module.py', 'w').write('x').to_bytes()", r"differ from the last one:\n M module\.py"),
    ],
)
def test_a_build_is_repeated(repository: Path, contents: str, message: str | None) -> None:
    script = repository / "tests" / "wheels" / "build.py"
    script.parent.mkdir(parents=True)
    script.write_text(
        "import os, shutil, zipfile\n"
        "shutil.rmtree('dist', ignore_errors=True)\n"
        "os.mkdir('dist')\n"
        "with zipfile.ZipFile('dist/file.whl', 'w') as wheel:\n"
        f"    wheel.writestr(zipfile.ZipInfo('x'), {contents})\n"
    )
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "x")
    with contextlib.chdir(repository):
        if message is None:
            assert rehearsal.built_twice([], False) == rehearsal.WORK / "build-1"
        else:
            with pytest.raises(SystemExit, match=message):
                rehearsal.built_twice([], False)


@pytest.mark.parametrize("sdists", [[], ["1/a.tar.gz", "1/b.tar.gz"]])
def test_a_folder_of_files_has_one_source_distribution(
    tmp_path: Path, sdists: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "WORK", tmp_path / "work")
    wheel(tmp_path / "1" / "a.whl", {})
    for name in sdists:
        sdist(tmp_path / name, {})
    monkeypatch.setattr(sys, "argv", ["rehearsal.py", "--dist", str(tmp_path / "1")])
    with pytest.raises(SystemExit, match=f"one source distribution, for its tests; it has {len(sdists)}"):
        rehearsal.main()


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
    assert variables["PATH"].endswith("bin") and os.pathsep not in variables["PATH"]
    name = "PIP_INDEX_URL" if no_network else "PIP_EXTRA_INDEX_URL"
    assert {key for key in variables if key.endswith("_URL")} == {name}
    assert variables[name] == "http://127.0.0.1:1/simple/"


def test_a_user_who_compiles_has_a_compiler_and_no_wheel() -> None:
    users = [rehearsal.User("3.11", "x86_64", "http://127.0.0.1:1/", compiles) for compiles in (False, True)]
    installs_wheels, compiles = (user.variables for user in users)
    assert installs_wheels["PIP_ONLY_BINARY"] == compiles["PIP_NO_BINARY"] == "skshapgpu"
    assert "PIP_NO_BINARY" not in installs_wheels and "PIP_ONLY_BINARY" not in compiles
    assert compiles["PATH"] == os.pathsep.join([str(users[1].folder / "bin"), os.environ["PATH"]])
    assert users[0].folder != users[1].folder


def test_variables_that_do_not_reach_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    reaching = {"PYTEST_ADDOPTS": "-x", "PIP_INDEX_URL": "http://127.0.0.1:2/", "PIP_CERT": "x"}
    others = (
        "PYTHONPATH",
        "PYTHONHOME",
        "PIP_TARGET",
        "PIP_CONSTRAINT",
        "PIP_PRE",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
    )
    for name, value in (reaching | dict.fromkeys(others, "x")).items():
        monkeypatch.setenv(name, value)
    user = rehearsal.User("3.11", "x86_64", "http://127.0.0.1:1/")
    assert user.environment | reaching | user.variables == user.environment
    assert not set(others) & set(user.environment)
