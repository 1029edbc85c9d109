"""Options with which the core compiles plans."""

from __future__ import annotations

from typing import Any

#: Tables of level-uniform trees only, as "auto" builds them, or of all trees, as in Fast TreeSHAP v2.
KINDS: dict[str, dict[str, Any]] = {
    "level_uniform": {"tables": "level_uniform"},
    "groups": {"tables": "level_uniform", "table_nodes": 99},
    "fast_v2": {"method": "fast_v2"},
}
