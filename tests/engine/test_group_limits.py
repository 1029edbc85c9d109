"""Limits of control groups, which are honoured as the machine's memory is."""

from __future__ import annotations

from pathlib import Path

import pytest

from skshapgpu._common import memory


def process(folder: Path, groups: str, *mounts: str) -> Path:
    """Write what the system says about a process. "{}" in mounts is the folder of all control groups."""
    (folder / "proc").mkdir()
    (folder / "proc" / "cgroup").write_text(groups)
    place = str(folder / "my groups").replace(" ", "\\040")
    lines = [f"3{i} 23 0:{i} {mount.format(place)}\n" for i, mount in enumerate(mounts)]
    (folder / "proc" / "mountinfo").write_text("".join(lines))
    return folder / "proc"


def write(folder: Path, **limits: str) -> None:
    """Write files with limits; in names, "__" stands for "/", and "memory_" for "memory."."""
    for name, limit in limits.items():
        path = folder / "my groups" / name.replace("__", "/").replace("memory_", "memory.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(limit + "\n")


SECOND = "/ {} rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"
FIRST = "/ {}/memory rw - cgroup cgroup rw,memory"
OTHER = "/ {}/cpu rw - cgroup cgroup rw,cpu"


def test_second_version(tmp_path: Path) -> None:
    write(tmp_path, a__memory_max="5000", a__b__memory_max="max", a__c__memory_max="7")
    write(tmp_path, memory_max="9000")
    assert memory.group_limits(process(tmp_path, "0::/a/b\n", SECOND)) == [5000, 9000]


def test_first_version(tmp_path: Path) -> None:
    write(tmp_path, memory__a__memory_limit_in_bytes="5000", memory__memory_limit_in_bytes="9000")
    write(tmp_path, cpu__a__memory_limit_in_bytes="7")
    groups = "9:name=systemd:/\n4:memory,hugetlb:/a\n1:cpu:/a\n0::/\n"
    assert memory.group_limits(process(tmp_path, groups, OTHER, FIRST)) == [5000, 9000]


def test_mounts_of_containers(tmp_path: Path) -> None:
    """A container sees its own group as the root of the mount, and may not see the path of its group."""
    write(tmp_path, memory__memory_limit_in_bytes="5000", memory__x__memory_limit_in_bytes="4000")
    mount = FIRST.replace("/ {}", "/docker/abc {}", 1)
    for number, (path, expected) in enumerate(
        (("/docker/abc/x", [4000, 5000]), ("/docker/abc", [5000]), ("/../other", [5000]))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "my groups").symlink_to(tmp_path / "my groups")
        assert memory.group_limits(process(folder, f"4:memory:{path}\n", mount)) == expected


@pytest.mark.parametrize("content", ["", "no line of a group", "4:memory", "0::/a\n"])
def test_unknown_systems(content: str, tmp_path: Path) -> None:
    assert memory.group_limits(tmp_path) == []
    assert memory.group_limits(process(tmp_path, content, "a line of another form", FIRST, SECOND)) == []


def test_the_least_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = memory.machine_bytes.__wrapped__()
    if machine is None:
        pytest.skip("the system does not report its memory")
    for limits, expected in (([12_345, 2**62], 12_345), ([2**62], machine), ([], machine)):
        monkeypatch.setattr(memory, "group_limits", lambda process, limits=limits: limits)
        assert memory.machine_bytes.__wrapped__() == min(machine, expected)
