"""Options with which the core compiles plans."""

from __future__ import annotations

from typing import Any

#: Tables of trees that split alike on each level, or of all, as "auto" makes them or Fast TreeSHAP v2 does.
KINDS: dict[str, dict[str, Any]] = {
    "level_uniform": {"tables": "level_uniform"},
    "groups": {"tables": "level_uniform", "table_nodes": 99},
    "fast_v2": {"method": "fast_v2"},
}
