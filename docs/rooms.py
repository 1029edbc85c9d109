"""Draw the rooms of the package, which room imports which, and the way of X through ``explain``.

    python docs/rooms.py          write docs/rooms.svg
    python docs/rooms.py --text   print the picture's content

A room is a folder or a module directly inside ``skshapgpu``. Imports are read from the source, at the head of
a module or inside a function; the picture leaves out arrows that others imply. The way of X is recorded while
a small forest is explained; each number in the picture is a stay in a room.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

DOCS = Path(__file__).resolve().parent
PACKAGE = DOCS.parent / "skshapgpu"
PICTURE = DOCS / "rooms.svg"

_WIDTH, _BOX_WIDTH, _BOX_HEIGHT, _GAP, _LAYER = 1080, 150, 46, 24, 104


def room_of(path: Path) -> str:
    """Return the folder or module directly inside the package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the dotted names, relative to the package, that a file imports from the package."""
    folder = list(path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            base = folder[: len(folder) - node.level + 1]
        elif node.module and node.module.split(".")[0] == PACKAGE.name:
            base = []
        else:
            continue
        names = node.module.split(".") if node.module else []
        if not node.level:
            names = names[1:]
        target = [*base, *names]
        for alias in node.names:
            yield ".".join(target or [alias.name])


def arrows() -> dict[str, set[str]]:
    """Return the rooms that each room imports from; ``__init__``, which only re-exports, is left out."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = room_of(path)
        if room in {"__init__", "__main__"}:
            continue
        targets = found.setdefault(room, set())
        for name in imported_modules(path):
            target = name.split(".")[0]
            if target != room and target in _rooms():
                targets.add(target)
    return found


def _rooms() -> set[str]:
    return {room_of(path) for path in PACKAGE.rglob("*.py")}


def layers(found: dict[str, set[str]]) -> list[list[str]]:
    """Return the rooms from the top layer down, such that every arrow points to a lower layer."""
    depth: dict[str, int] = {}

    def visit(room: str, above: tuple[str, ...]) -> int:
        if room in above:
            raise ValueError(f"rooms import each other: {' -> '.join([*above, room])}")
        if room not in depth:
            depth[room] = 1 + max((visit(target, (*above, room)) for target in found[room]), default=-1)
        return depth[room]

    for room in found:
        visit(room, ())
    return [sorted(room for room in found if depth[room] == d) for d in range(max(depth.values()), -1, -1)]


def way_of_x() -> list[str]:
    """Return the files of the package that a call of ``explain`` enters or returns to, in order."""
    import numpy as np
    from sklearn.ensemble import RandomForestRegressor

    from skshapgpu import TreeExplainer

    X = np.random.default_rng(0).normal(size=(50, 4))
    explainer = TreeExplainer(RandomForestRegressor(3, random_state=0).fit(X, X[:, 0]), device="cpu")
    explainer.explain(X)  # what is compiled or imported once is not on the way
    stays: list[str] = []

    def record(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event in {"call", "return"} and path.is_relative_to(PACKAGE):
            where = frame if event == "call" else frame.f_back
            path = Path(where.f_code.co_filename) if where is not None else path
            if path.is_relative_to(PACKAGE):
                name = path.relative_to(PACKAGE).as_posix()
                if not stays or stays[-1] != name:
                    stays.append(name)

    sys.setprofile(record)
    try:
        explainer.explain(X)
    finally:
        sys.setprofile(None)
    return stays


def without_implied(found: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the arrows without those that lead where others lead, too, by way of another room."""
    reached: dict[str, set[str]] = {}
    for room in reversed([room for rooms in layers(found) for room in rooms]):
        reached[room] = found[room].union(*(reached[target] for target in found[room]))
    return {
        room: {
            target for target in targets if not any(target in reached[other] for other in targets - {target})
        }
        for room, targets in found.items()
    }


def text() -> str:
    """Return what the picture shows."""
    found, stays = arrows(), way_of_x()
    lines = ["Rooms, from the top layer down, and what each imports:"]
    for rooms in layers(found):
        lines += [f"  {room}: {', '.join(sorted(found[room])) or 'nothing'}" for room in rooms]
        lines.append("")
    rooms = [room for room, _ in groupby(stays, lambda name: room_of(PACKAGE / name))]
    lines.append(f"X passes through {len(set(rooms))} rooms in {len(rooms)} stays: {', '.join(rooms)}")
    lines.append(f"and through {len(set(stays))} files in {len(stays)} stays:")
    lines += [f"  {number}. {name}" for number, name in enumerate(stays, 1)]
    return "\n".join(lines)


def drawing() -> str:
    """Return the picture as SVG: a box for each room, an arrow for each import, the way of X in numbers."""
    found = arrows()
    placed = layers(found)
    visits: dict[str, list[str]] = {}
    for number, (room, _) in enumerate(groupby(way_of_x(), lambda name: room_of(PACKAGE / name)), 1):
        visits.setdefault(room, []).append(str(number))
    centre: dict[str, tuple[float, float]] = {}
    for row, rooms in enumerate(placed):
        step = _BOX_WIDTH + _GAP
        left = (_WIDTH - step * len(rooms) + _GAP) / 2
        for column, room in enumerate(rooms):
            centre[room] = (left + step * column + _BOX_WIDTH / 2, 30 + _LAYER * row + _BOX_HEIGHT / 2)
    height = 40 + _LAYER * len(placed)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#8a94a6"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for room, targets in without_implied(found).items():
        for target in sorted(targets):
            (x0, y0), (x1, y1) = centre[room], centre[target]
            parts.append(
                f'<line x1="{x0:.0f}" y1="{y0 + _BOX_HEIGHT / 2:.0f}" x2="{x1:.0f}" '
                f'y2="{y1 - _BOX_HEIGHT / 2:.0f}" stroke="#b6bfcc" marker-end="url(#tip)"/>'
            )
    for room, (x, y) in centre.items():
        on_the_way = room in visits
        fill = "#dbe9ff" if on_the_way else "#f4f5f7"
        parts.append(
            f'<rect x="{x - _BOX_WIDTH / 2:.0f}" y="{y - _BOX_HEIGHT / 2:.0f}" width="{_BOX_WIDTH}" '
            f'height="{_BOX_HEIGHT}" rx="6" fill="{fill}" stroke="#5b6779"/>'
        )
        parts.append(
            f'<text x="{x:.0f}" y="{y - (2 if on_the_way else -5):.0f}" text-anchor="middle" '
            f'font-size="14">{room}</text>'
        )
        if on_the_way:
            parts.append(
                f'<text x="{x:.0f}" y="{y + 15:.0f}" text-anchor="middle" font-size="10" '
                f'fill="#1d4f9c">{" ".join(visits[room])}</text>'
            )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    sys.path.insert(0, str(PACKAGE.parent))
    if "--text" in sys.argv[1:]:
        print(text())
    else:
        PICTURE.write_text(drawing())
