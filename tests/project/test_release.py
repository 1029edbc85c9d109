"""The checklist of a release: what each item finds, and that it finds nothing in this repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from project import release, service_files

ROOT = release.ROOT

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small repository that passes, in place of this one."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [1.2.3] - unreleased\n\n- New.\n\n## [1.2.2] - 2026-01-02\n"
    )
    (tmp_path / "page.md").write_text("Version 1.2.30, 11.2.3 or 1.2.3.1.\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x@x.invalid", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "x")


def test_the_tree(repository: Path) -> None:
    assert release.tree(None) == "clean"
    (repository / "new.txt").write_text("")
    with pytest.raises(release.Note, match="not clean: 1 file"):
        release.tree(None)


def test_the_version(repository: Path) -> None:
    assert "no tag yet" in release.version(None) and "as the tag says" in release.version("v1.2.3")
    with pytest.raises(release.Failure, match=r"the tag is v1\.2\.4, and the version 1\.2\.3"):
        release.version("v1.2.4")
    git(repository, "tag", "v1.2.3")
    with pytest.raises(release.Failure, match="has a tag already"):
        release.version(None)
    (repository / "pyproject.toml").write_text('[project]\nversion = "1.2.4.dev0"\n')
    with pytest.raises(release.Failure, match="not a version that can be released"):
        release.version(None)


def test_the_place_of_the_version(repository: Path) -> None:
    assert release.one_place(None) == "pyproject.toml:3"
    (repository / "page.md").write_text("\nThis is 1.2.3.\n")
    with pytest.raises(release.Failure, match=r"page\.md:2, pyproject\.toml:3"):
        release.one_place(None)


@pytest.mark.parametrize(
    ("section", "tag", "error", "message"),
    [
        ("[1.2.3] - 2026-02-03\n\n- New.\n", "v1.2.3", None, ""),
        ("[1.2.3] - unreleased\n\n- New.\n", None, release.Note, "no date yet"),
        ("[1.2.3] - unreleased\n\n- New.\n", "v1.2.3", release.Failure, "no date yet"),
        ("[1.2.3] - 2026-02-03\n\n### Added\n", None, release.Failure, "is empty"),
        ("[1.2.2] - 2026-02-03\n\n- New.\n", None, release.Failure, r"the first section is '\[1\.2\.2\]"),
    ],
)
def test_the_changelog(
    repository: Path, section: str, tag: str | None, error: type[Exception] | None, message: str
) -> None:
    (repository / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## {section}\n## [1.2.1] - 2026-01-02\n\n- Old.\n"
    )
    if error is None:
        assert release.changelog(tag) == "section '[1.2.3] - 2026-02-03'"
    else:
        with pytest.raises(error, match=message):
            release.changelog(tag)


@pytest.mark.parametrize(
    "host", ["py" + "pi.org", "test.py" + "pi.org", "files.python" + "hosted.org", "gh" + "cr.io"]
)
def test_hosts_of_indexes(repository: Path, host: str) -> None:
    assert release.registries(None)
    (repository / "page.md").write_text(f"\nSee https://{host}/project/x.\n")
    with pytest.raises(release.Failure, match=rf"page\.md:2: {re.escape(host)}$"):
        release.registries(None)


@pytest.mark.parametrize("item", [release.one_place, release.changelog, release.registries])
def test_this_repository(item: object) -> None:
    try:
        assert item(None)
    except release.Note:
        pass


def test_the_long_steps_are_commands_of_dev() -> None:
    commands = re.findall(r"^  (\w+)(?: \|.*)?\)$", (ROOT / "dev").read_text(), re.MULTILINE)
    assert {step[0] for step in release.LONG_STEPS} <= set(commands)


def test_a_release_is_a_dry_run_only() -> None:
    command = [sys.executable, ROOT / "tests/project/release.py"]  # which imports files of its own folder
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    run = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert run.returncode == 2 and "--dry-run" in run.stderr


def test_each_file_of_a_service_is_checked() -> None:
    checked = {name for pattern in service_files.SCHEMAS.values() for name in service_files.files(pattern)}
    present = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / ".github").rglob("*")
        if path.suffix in {".yml", ".yaml"}
    }
    assert present <= checked and {".readthedocs.yaml", "CITATION.cff"} <= checked


def test_actions_are_pinned_by_commit() -> None:
    pins = []
    for name in service_files.files(".github/workflows/*.yml"):
        pins += re.findall(r"uses: (?!\./)(\S+)(.*)", (ROOT / name).read_text())
    assert len(pins) > 10
    for action, comment in pins:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+(\.\d+)+", comment), action


def test_wheels_are_built_and_tried_for_each_python() -> None:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(tables["project"]["classifiers"]))
    tags = [f"cp{python.replace('.', '')}" for python in pythons]
    wheels = tables["tool"]["cibuildwheel"]
    assert wheels["build"] == [f"{tag}-*" for tag in tags]
    workflows = ROOT / ".github" / "workflows"
    assert f"python: [{', '.join(tags)}]" in (workflows / "wheels.yml").read_text()
    # A release is tried with the oldest Python, with the newest, and with the newest that has all libraries.
    exceptions = {override["select"]: override["test-extras"] for override in wheels["overrides"]}
    tried = re.findall(r'{ python: "(3\.\d+)", extras: "([\w,]+)" }', (workflows / "release.yml").read_text())
    extras = {f"cp{python.replace('.', '')}-*": names.split(",") for python, names in tried}
    assert {wheels["build"][0], wheels["build"][-1]} < set(extras) <= set(wheels["build"])
    assert extras == {tag: exceptions.get(tag, wheels["test-extras"]) for tag in extras}
    listed = ", ".join(f'"{python}"' for python, _ in tried)
    assert f"python: [{listed}]" in (workflows / "release.yml").read_text()


def test_the_conda_recipe_has_the_lower_bounds_of_the_project() -> None:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requirements = {*tables["build-system"]["requires"], *tables["project"]["dependencies"]}
    requirements.add(f"cmake{tables['tool']['scikit-build']['cmake']['version']}")
    recipe = (ROOT / ".conda" / "recipe.yaml").read_text()
    pairs = re.findall(r"^ +- ([\w-]+) (>=[\d.]+)$", recipe, re.MULTILINE)
    assert {"".join(pair) for pair in pairs} == requirements


def test_each_entry_of_the_checklist_is_one_line() -> None:
    page = (ROOT / "docs" / "releasing.md").read_text()
    entries = re.findall(r"^- \[ \] .*\n(?:(?!- \[ \] |\n).*\n)*", page, re.MULTILINE)
    assert len(entries) > 10
    assert [entry for entry in entries if entry.count("\n") > 1 or len(entry) > 121] == []
