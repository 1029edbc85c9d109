"""The cost model of calls, which chooses between tables and quadrature, and between CPU and GPU."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ... import _core
from ..._common import memory

#: Seconds, measured on one core of servers with AVX-512: for each call, for each walked leaf and block of 64
#: rows, and for each thread that a call wakes; by precision, for each walked leaf, quadrature node and vector
#: of 16 rows.
_CPU_CALL, _CPU_BLOCK, _CPU_THREAD = 3.5e-5, 1.2e-8, 5e-6
_CPU_VECTOR = {"single": 1.3e-9, "double": 2.6e-9}

#: How many times as long a walk and a lookup in tables take with other instruction sets. The factors of NEON
#: are estimates, not measurements: its vectors are half as long as vectors of AVX2, and as long as vectors of
#: the baseline.
_WALK_FACTOR = {"avx512": 1.0, "avx2": 2.0, "neon": 4.0, "baseline": 4.5}
_LOOKUP_FACTOR = {"avx512": 1.0, "avx2": 1.3, "neon": 1.7, "baseline": 1.7}

#: Seconds for each number of X, which is compared with the thresholds of its feature, and for each value,
#: which is written and checked.
_CPU_READ, _CPU_WRITE = 1.5e-8, 5e-9

#: Seconds for trees with the same split in all nodes of a level, and for background tables: per row and
#: table, more if a table exceeds the cache next to the core (_LARGE_TABLE bytes); and per row and sum of
#: trees with many features.
_CPU_LOOKUP, _CPU_LARGE_LOOKUP, _LARGE_TABLE, _CPU_PLACE = 3e-9, 7.5e-9, 2**17, 4e-9

#: Seconds for each row and pattern of background data, at leaves without a table.
_CPU_PATTERN, _CUDA_PATTERN = 3e-9, 2.1e-12

#: Tables by intervals: seconds per row and lookup, and additional seconds for each doubling of a table beyond
#: _SMALL_TABLE bytes. To build a table takes seconds per node of a unit, per entry that is written or added
#: to, and per byte of its memory.
_INTERVAL_LOOKUP, _INTERVAL_DOUBLING, _SMALL_TABLE = 1.3e-9, 2.7e-10, 2**13
_INTERVAL_NODE, _INTERVAL_ENTRY, _INTERVAL_BYTE = 2e-7, 3e-9, 2e-10

#: Bytes that a lookup reads in the seconds above: a cache line.
_CPU_LINE = 64

#: Seconds per byte of large tables, which each call reads from the memory.
_TABLE_READ = 1e-10

#: A unit of fewer leaves is walked in less time than its table is looked up, unless other units share it.
_LEAST_LEAVES = 3.0

#: Fraction of the time of the walk that tables must save, because the prices differ among processors.
_LEAST_SAVING = 0.05

#: Fraction of the time of the walk that large tables must save, which are built only with ``expected_rows``.
_LEAST_SAVING_OF_LARGE = 1 / 3

#: Number of calls within which tables must save this fraction. The first call, which builds the tables, must
#: not take longer than a walk.
TABLE_CALLS = 2

#: Smallest number of rows of a call that uses tables by intervals or merged trees. With fewer rows, too
#: little of the tables is in caches, and merging trees takes longer than it saves.
LEAST_TABLE_ROWS = 256

#: Smallest number of rows for which tables by intervals are built, and their largest number of entries, in
#: descending order. Larger tables save lookups, but take longer to build. With MERGED_ONLY entries, there are
#: no tables, but trees are merged.
MERGED_ONLY = 1
_TABLE_SIZES = ((65536, 2048), (8192, 1024), (2048, 512), (1024, 256), (1024, MERGED_ONLY))

#: Leaves in lanes, for calls of at most MOST_LANE_ROWS rows, by instruction set: seconds for each row and
#: step, where a step is the work of a vector for one feature and one quadrature node, by precision; and
#: seconds of a walk of so few rows, which are hardly fewer for one row, for each leaf and quadrature node and
#: once more for each leaf. Those of NEON are estimates, like its factors above. To put leaves into lanes
#: takes _LANE_LEAF seconds for each.
MOST_LANE_ROWS = 16
_LANE_STEP = {
    "avx512": {"single": 1e-9, "double": 9.3e-10},
    "avx2": {"single": 9.5e-10, "double": 9.5e-10},
    "neon": {"single": 1.2e-9, "double": 1e-9},
    "baseline": {"single": 1.4e-9, "double": 1.05e-9},
}
_FEW_ROWS_LEAF = {"avx512": 3.2e-9, "avx2": 3.2e-9, "neon": 4e-9, "baseline": 4.8e-9}
_LANE_LEAF = 6e-7

#: Against up to this many background rows, leaves may be in lanes, too. Few rows look up background tables in
#: about _FEW_LOOKUPS_LEAF seconds for each leaf, most of which they take to decide the nodes.
MOST_LANE_BACKGROUND = 8
_FEW_LOOKUPS_LEAF = 8e-9

#: Number of lanes of a part, which a thread takes: kPartChunks * kChunkLanes of csrc/lanes/builder.cpp. A
#: lane has one or two leaves.
_LANE_PART = 16 * 1024

#: If walking few rows takes less time than this, there are no lanes. And the longest time in which the first
#: call of few rows puts leaves into lanes if ``expected_rows`` does not say that there are many such calls.
_LEAST_LANE_SECONDS, _MOST_LANE_SECONDS = 1e-5, 5e-2

#: Fraction of the time of the walk that lanes must save, because the prices differ among processors.
_LEAST_LANE_SAVING = 0.1

#: Cells that occur, for calls of at least LEAST_CELL_ROWS rows: seconds for each row and leaf of the lookups,
#: and more for each quadrature node beyond _SHORT_CELL_NODES, because longer paths have more columns and
#: their cells may have two keys, both by instruction set. 10,000 rows of real data fall into about
#: _OCCURRING_CELLS cells of a unit. Their number grows with the power _CELL_GROWTH of the number of rows, but
#: each tile of at most _CELL_TILE rows, kTileRows of csrc/cells/runner.cpp, has cells of its own. To walk a
#: cell takes _CELL_WALK times as long as to walk a row, because the tree of a unit has nodes above the unit.
#: To cut trees into units takes _CELL_LEAF seconds for each leaf. For each leaf and each of its outputs, the
#: units take about _CELL_BYTES and _CELL_OUTPUT_BYTES bytes, and cutting them _CELL_BUILD_BYTES and
#: _CELL_BUILD_OUTPUT_BYTES. The seconds of NEON are estimates.
LEAST_CELL_ROWS = 2000
_CELL_LOOKUP = {"avx512": 7.5e-11, "avx2": 8e-11, "neon": 1.5e-10, "baseline": 5e-11}
_CELL_NODE = {"avx512": 5e-11, "avx2": 1.2e-10, "neon": 2e-10, "baseline": 2.2e-10}
_SHORT_CELL_NODES = 4
_OCCURRING_CELLS, _CELL_GROWTH, _CELL_TILE, _CELL_WALK = 1000, 0.45, 16384, 2.1
_CELL_LEAF = 6e-7
_CELL_BYTES, _CELL_OUTPUT_BYTES = {"single": 106, "double": 165}, {"single": 14, "double": 19}
_CELL_BUILD_BYTES, _CELL_BUILD_OUTPUT_BYTES = 300, 60

#: Rows with few sums, one for each feature and output of a leaf, are added in registers. Rows with more sums
#: fall into more cells, unless trees have many leaves, so that few rows reach a unit. Otherwise, cells were
#: slower in all models that were measured, of 45 to 81 features or of 53 features and 7 outputs.
FEW_CELL_SUMS, MOST_CELL_SUMS, MANY_CELL_LEAVES = 32, 72, 250

#: Fractions of the time of the walk that cells must save, with up to _NARROW_CELL_SUMS sums for each row, and
#: with more: the number of cells that occur depends on the data, above all if units test many columns. With
#: independent columns, cells were slower than the walk where they were estimated to save up to 0.35. Of the
#: time with tables, they must save more, as small tables, which stay in a cache, take less time than
#: estimated. They must also save some seconds, because each thread needs tens of MB for a tile.
_NARROW_CELL_SUMS, _LEAST_NARROW_CELL_SAVING, _LEAST_CELL_SAVING = 16, 0.2, 0.38
_LEAST_CELL_SAVING_OVER_TABLES, _LEAST_CELL_SECONDS = 0.3, 5e-3

#: Seconds measured on an H200. A chunk of trees takes time for each leaf, however few the rows are, and each
#: row takes time for each leaf and quadrature node. A chunk has about _CHUNK_LEAVES leaves, kMaxChunkLeaves
#: of csrc/cuda/program/program.cpp; a small chunk has _SMALL_CHUNK_LEAVES, kSmallChunkLeaves there. There are
#: at least about _LEAST_CHUNKS chunks, kChunks there. Numbers of X and values are transferred over the bus.
_CUDA_CALL, _CUDA_CHUNK_LEAF, _CUDA_LOOKUP, _CUDA_NUMBER = 1.1e-4, 4.3e-7, 2e-11, 6e-10
_CUDA_ROW = {"single": 1e-12, "double": 2e-12}
_CHUNK_LEAVES, _SMALL_CHUNK_LEAVES, _LEAST_CHUNKS = 512, 128, 5

#: Largest number of quadrature nodes of a walk on a GPU: kMaxFixedNodes of csrc/plan/program.h. Trees for
#: Owen values that need more nodes are walked several times.
_MOST_CUDA_NODES = 8

#: Seconds on the same H200 for each row and leaf for Owen values without walks, whatever the number of nodes.
_CUDA_OWEN_LEAF = {"single": 7e-12, "double": 1.4e-11}

#: On GPUs, trees are explained leaf by leaf for at most _LEAF_ROWS rows and a product of rows and leaves of
#: at most _LEAF_WORK. There must be enough leaves to save time, but not so many that compiling them takes
#: gigabytes: _LEAVES_ALONE. Then each row and leaf takes _CUDA_LEAF_ROW seconds, and other work takes hardly
#: any time. More rows are walked in small chunks if the product is below _SMALL_WORK and the number of leaves
#: is in _SMALL_LEAVES. Models of more leaves give work to all warps in larger chunks, which share more work;
#: models of fewer leaves have small chunks in any case.
_LEAF_ROWS, _LEAF_WORK, _LEAVES_ALONE, _CUDA_LEAF_ROW = 64, 8e6, (8_000, 1_000_000), 5e-11
_SMALL_WORK, _SMALL_LEAVES = 64e6, (640, 130_000)

#: Tables by intervals on the same H200, which the CPU builds: seconds per row and lookup of _CUDA_LINE bytes,
#: and additional seconds for each doubling of a table beyond _SMALL_TABLE bytes.
_CUDA_INTERVAL, _CUDA_DOUBLING, _CUDA_LINE = 5.4e-12, 5e-13, 32

#: Tables by intervals on GPUs: the limit on their entries, the number of rows for which they are laid out,
#: and for each leaf about the seconds to build tables, or only to merge trees.
GPU_TABLE_ENTRIES, GPU_TABLE_ROWS, GPU_TABLE_LEAF, GPU_MERGED_LEAF = 1024, 2e6, 1.2e-6, 1e-7

#: The host processor of the same H200, an Intel Xeon, takes about this fraction of the CPU times above.
CPU_BESIDE_GPU = 0.8

#: Minimum number of rows that a thread of the core takes from trees with tables, or against background data:
#: kBlockRows of csrc/base/types.h.
BLOCK_ROWS = 64

#: Seconds of walking for which the core wakes a thread, whatever the rows are: kLeastWork of
#: csrc/cpu/explain.cpp. And the largest number of rows for which one thread is used, with a model of hardly
#: any leaves.
_CPU_SHARE, _MOST_ALONE = 4e-5, 1 << 16

#: If walking the rows of all calls takes less time than this, tables cannot save the time to lay them out.
LEAST_TABLE_SECONDS = 2e-3


@dataclass(frozen=True)
class TreeGroup:
    """Trees that are explained in the same way."""

    algorithm: str  # "quadrature" for walks, "tables", "lanes" for leaves in lanes, or "cells"
    n_nodes: int  # number of quadrature nodes, exact for their longest path
    n_trees: int
    n_leaves: int
    #: Number of leaves that are walked: fewer than ``n_leaves`` if trees that begin alike are merged, none if
    #: there are tables.
    n_walked_leaves: int
    n_lookups: int  # number of tables; each row reads a vector from each table
    #: Number of sums to which each row then adds a vector. Some trees share a sum.
    n_places: int
    table_bytes: int  # size of the tables


@cache
def instruction_set() -> str:
    """Return the name of the instruction set whose kernels the core uses."""
    return _core.instruction_set()


def tree_groups_of(listed: Iterable[dict[str, Any]]) -> tuple[TreeGroup, ...]:
    """Return the groups of trees that the core lists."""
    return tuple(TreeGroup(**group) for group in listed)


def cpu_seconds(
    groups: Sequence[TreeGroup],
    n_rows: int,
    n_threads: int,
    work: float = 1.0,
    precision: str = "single",
) -> float:
    """Return the seconds that a call spends in trees; ``work`` is relative to the work for one output."""
    blocks, vectors = -(-n_rows // BLOCK_ROWS), -(-n_rows // 16)
    walk, lookup = _WALK_FACTOR[instruction_set()], _LOOKUP_FACTOR[instruction_set()]
    walking = lookups = 0.0
    for group in groups:
        if group.algorithm == "tables":
            large = group.table_bytes > _LARGE_TABLE * group.n_lookups
            lookups += n_rows * group.n_lookups * (_CPU_LARGE_LOOKUP if large else _CPU_LOOKUP) * lookup
            lookups += n_rows * group.n_places * _CPU_PLACE
        else:
            vector = vectors * group.n_nodes * _CPU_VECTOR[precision] * work
            walking += group.n_walked_leaves * (blocks * _CPU_BLOCK + vector) * walk
    most_threads = blocks if lookups else 1 + int(walking / _CPU_SHARE)
    threads = max(1, min(n_threads, most_threads))
    return (walking + lookups) / threads + _CPU_CALL + (threads - 1) * _CPU_THREAD


def few_rows_seconds(groups: Sequence[TreeGroup]) -> float:
    """Return the seconds in which one thread walks up to ``MOST_LANE_ROWS`` rows."""
    leaves = sum(group.n_walked_leaves * (1 + group.n_nodes) for group in groups)
    return _FEW_ROWS_LEAF[instruction_set()] * leaves


def few_lookups_seconds(groups: Sequence[TreeGroup]) -> float:
    """Return the seconds in which one thread looks up up to ``MOST_LANE_ROWS`` rows in background tables."""
    return _FEW_LOOKUPS_LEAF * sum(group.n_leaves for group in groups)


def may_put_into_lanes(walking: float, building: float, n_rows: int, expected_rows: int | None) -> bool:
    """Return whether calls of ``n_rows`` rows may pay for putting the leaves into lanes.

    ``walking`` are the seconds in which few rows are walked, and ``building`` those to make the lanes.
    """
    is_soon = building <= _MOST_LANE_SECONDS or building * n_rows <= walking * (expected_rows or 0)
    return walking >= _LEAST_LANE_SECONDS and is_soon


def lanes_are_faster(walking: float, n_steps: int, n_rows: int, precision: str) -> bool:
    """Return whether a call of ``n_rows`` rows takes less time with leaves in lanes than by walks."""
    seconds = lane_seconds(n_steps, n_rows, precision) - _CPU_CALL
    return seconds < (1 - _LEAST_LANE_SAVING) * walking


def lanes_are_for_one_thread(groups: Sequence[TreeGroup]) -> bool:
    """Return whether threads have no parts of the lanes to share."""
    return sum(group.n_leaves for group in groups) <= _LANE_PART


def lane_build_seconds(groups: Sequence[TreeGroup]) -> float:
    """Return the seconds to put the leaves of trees into lanes."""
    return _LANE_LEAF * sum(group.n_leaves for group in groups)


def lane_seconds(n_steps: int, n_rows: int, precision: str) -> float:
    """Return the seconds that a call with leaves in lanes spends in trees, in one thread."""
    return _CPU_CALL + n_rows * n_steps * _LANE_STEP[instruction_set()][precision]


def cells_may_pay(groups: Sequence[TreeGroup], n_sums: int) -> bool:
    """Return whether cells can be faster than walks, for rows of ``n_sums`` sums."""
    n_leaves, n_trees = sum(group.n_leaves for group in groups), sum(group.n_trees for group in groups)
    return n_sums <= (MOST_CELL_SUMS if n_leaves >= MANY_CELL_LEAVES * n_trees else FEW_CELL_SUMS)


def least_cell_saving(seconds: float, n_sums: int, over_tables: bool) -> float:
    """Return the seconds that cells must save of the seconds of a call by walks, or with tables."""
    least = _LEAST_NARROW_CELL_SAVING if n_sums <= _NARROW_CELL_SUMS else _LEAST_CELL_SAVING
    if over_tables:
        least = max(least, _LEAST_CELL_SAVING_OVER_TABLES)
    return max(least * seconds, _LEAST_CELL_SECONDS)


def cell_build_seconds(groups: Sequence[TreeGroup]) -> float:
    """Return the seconds in which one thread cuts trees into units."""
    return _CELL_LEAF * sum(group.n_leaves for group in groups)


def cell_bytes(groups: Sequence[TreeGroup], leaf_width: int, precision: str) -> int:
    """Return about the number of bytes that the units of trees take."""
    leaf = _CELL_BYTES[precision] + _CELL_OUTPUT_BYTES[precision] * leaf_width
    return leaf * sum(group.n_leaves for group in groups)


def cell_build_bytes(groups: Sequence[TreeGroup], leaf_width: int) -> int:
    """Return about the most bytes that cutting trees into units takes, besides the units."""
    leaf = _CELL_BUILD_BYTES + _CELL_BUILD_OUTPUT_BYTES * leaf_width
    return leaf * sum(group.n_leaves for group in groups)


def cell_scratch_bytes(n_features: int, n_outputs: int, precision: str) -> int:
    """Return about the most bytes that a thread allocates to explain rows by their cells."""
    number = 4 if precision == "single" else 8
    row = number * (min(n_features, 32) * n_outputs + 16)
    entries = 6 * (row + 8 * n_outputs)  # of four units, with room to grow
    tile = 8 * n_outputs * (n_features + 4) + 4 * n_features
    codes = 5 * min(n_features, 32)  # of the cells of a unit, and of the rows side by side
    return _CELL_TILE * (row + entries + tile + codes + 64) + 2**19


def cell_seconds(
    groups: Sequence[TreeGroup],
    n_rows: int,
    work: float,
    precision: str,
    unit_fraction: float = 1.0,
    walked_fraction: float = 1.0,
) -> float:
    """Return the seconds that a call spends in trees if rows look up their cells, in one thread.

    Trees with the same tests share units: ``unit_fraction`` is the fraction of the units that remain, and
    ``walked_fraction`` the fraction of the leaves that are walked, as trees that also have the same covers
    are walked as one.
    """
    tile_rows = n_rows / max(1, -(-n_rows // _CELL_TILE))
    n_cells = _OCCURRING_CELLS * (tile_rows / 10_000) ** _CELL_GROWTH * n_rows / max(1, tile_rows)
    walk, lookup = _WALK_FACTOR[instruction_set()], _CELL_LOOKUP[instruction_set()]
    seconds = _CPU_CALL
    for group in groups:
        node = _CPU_VECTOR[precision] / 16 * work
        leaf = _CELL_WALK * (_CPU_BLOCK / BLOCK_ROWS + group.n_nodes * node) * walk
        keys = max(0, group.n_nodes - _SHORT_CELL_NODES) * _CELL_NODE[instruction_set()]
        rows = unit_fraction * n_rows * (lookup + keys)
        seconds += group.n_leaves * (rows + walked_fraction * n_cells * leaf)
    return seconds


def rows_to_share(groups: Sequence[TreeGroup], work: float, precision: str) -> int:
    """Return the largest number of rows for which one thread is enough, if all trees are walked."""
    most_seconds = _CPU_CALL + 2 * _CPU_SHARE
    n_numbers = bisect_right(
        range(_MOST_ALONE), most_seconds, key=lambda n: cpu_seconds(groups, n, 1, work, precision)
    )
    return n_numbers - 1


def cpu_row_seconds(n_rows: int, n_features: int, n_outputs: int, n_threads: int) -> float:
    """Return the seconds to read rows and to write their values."""
    numbers = n_rows * n_features * (_CPU_READ + _CPU_WRITE * n_outputs)
    return numbers / max(1, min(n_threads, -(-n_rows // BLOCK_ROWS)))


def cpu_pattern_seconds(n_rows: int, n_patterns: int, n_threads: int) -> float:
    """Return the seconds in which a CPU compares rows with the patterns at leaves without a table."""
    return n_rows * n_patterns * _CPU_PATTERN / max(1, min(n_threads, -(-n_rows // BLOCK_ROWS)))


def cuda_pattern_seconds(n_rows: int, n_patterns: int) -> float:
    """Return the seconds in which a GPU compares rows with the patterns at leaves without a table."""
    return n_rows * n_patterns * _CUDA_PATTERN


def cuda_seconds(
    groups: Sequence[TreeGroup],
    n_rows: int,
    work: float = 1.0,
    precision: str = "single",
    is_for_owen_values: bool = False,
) -> float:
    """Return the seconds that a call spends in trees on a GPU.

    For Owen values, trees are not explained leaf by leaf, and a tree may need several walks.
    """
    walked = [group for group in groups if group.algorithm != "tables"]
    n_lookups = sum(group.n_lookups for group in groups if group.algorithm == "tables")
    n_leaves, method = sum(group.n_walked_leaves for group in walked), cuda_method(groups, n_rows)
    if method == "leaves" and work == 1 and not is_for_owen_values:
        return _CUDA_CALL + n_rows * n_leaves * _CUDA_LEAF_ROW
    most = _CHUNK_LEAVES if method == "chunks" else _SMALL_CHUNK_LEAVES
    leaf_nodes = sum(group.n_walked_leaves * group.n_nodes for group in walked)
    chunk_leaves = min(n_leaves / _LEAST_CHUNKS, most)
    if is_for_owen_values:
        chunk_leaves = sum(
            -(-group.n_nodes // _MOST_CUDA_NODES) * min(group.n_walked_leaves / _LEAST_CHUNKS, most)
            for group in walked
        )
    row_seconds = leaf_nodes * _CUDA_ROW[precision] * work + n_lookups * _CUDA_LOOKUP
    return _CUDA_CALL + n_rows * row_seconds + chunk_leaves * _CUDA_CHUNK_LEAF


def cuda_owen_seconds(groups: Sequence[TreeGroup], n_rows: int, precision: str) -> float:
    """Return the seconds that a call for Owen values spends in trees that a GPU explains without walks."""
    n_leaves = sum(group.n_walked_leaves for group in groups)
    chunk_leaves = min(
        n_leaves, _CHUNK_LEAVES if cuda_method(groups, n_rows) == "chunks" else _SMALL_CHUNK_LEAVES
    )
    return _CUDA_CALL + n_leaves * n_rows * _CUDA_OWEN_LEAF[precision] + chunk_leaves * _CUDA_CHUNK_LEAF


def cuda_method(groups: Sequence[TreeGroup], n_rows: int) -> str:
    """Return ``_cuda``'s name of how a GPU explains the rows: "chunks", "small_chunks" or "leaves"."""
    n_leaves = sum(group.n_walked_leaves for group in groups)
    is_least = n_rows <= _LEAF_ROWS and n_rows * n_leaves <= _LEAF_WORK
    fewest, most = _LEAVES_ALONE
    if is_least and fewest <= n_leaves <= most:
        return "leaves"
    fewest, most = _SMALL_LEAVES
    is_small = fewest < n_leaves <= most and n_rows * n_leaves < _SMALL_WORK
    return "small_chunks" if is_small else "chunks"


def cuda_row_seconds(n_rows: int, n_features: int, n_outputs: int) -> float:
    """Return the seconds that a GPU takes to read rows from the host and to write their values back."""
    return n_rows * n_features * (1 + n_outputs) * _CUDA_NUMBER


@dataclass(frozen=True)
class TableLayout:
    """Tables by intervals and merged trees that a model may have."""

    most_entries: int  # limit on the number of entries of a table
    #: How all trees are explained. Trees for which tables do not pay off are walked, and are merged if they
    #: begin alike.
    tree_groups: tuple[TreeGroup, ...]
    table_bytes: int
    lookup_seconds: float  # to look up a row in all tables
    build_seconds: float  # to build all tables in one thread

    @property
    def is_empty(self) -> bool:
        """Whether all trees are explained in the same way as without the layout."""
        walked = (group for group in self.tree_groups if group.algorithm == "quadrature")
        return not self.table_bytes and all(group.n_walked_leaves == group.n_leaves for group in walked)

    @property
    def walked_fraction(self) -> float:
        """Fraction of the leaves that are walked, as trees are merged; 1 if there are tables."""
        walked = sum(group.n_walked_leaves for group in self.tree_groups)
        return 1.0 if self.table_bytes else walked / sum(group.n_leaves for group in self.tree_groups)

    @property
    def is_large(self) -> bool:
        """Whether the tables take more memory than tables may take unless the user asks for them."""
        return self.table_bytes > memory.TABLE_BYTES

    def call_seconds(self, n_rows: int, n_threads: int, work: float, precision: str) -> float:
        """Return the seconds that a call spends in trees, with tables that exist; see :func:`cpu_seconds`."""
        threads = max(1, min(n_threads, -(-n_rows // BLOCK_ROWS)))
        seconds = cpu_seconds(self.other_groups, n_rows, n_threads, work, precision)
        read = self.table_bytes * _TABLE_READ if self.is_large else 0.0
        return seconds + read + n_rows * self.lookup_seconds / threads

    def seconds(self, n_rows: int, n_calls: float, work: float, precision: str) -> float:
        """Return the seconds of a call in one thread, with its fraction of the time to build the tables.

        ``n_calls`` calls of this size use the tables.
        """
        return self.call_seconds(n_rows, 1, work, precision) + self.build_seconds / n_calls

    @property
    def other_groups(self) -> list[TreeGroup]:
        """The trees without tables."""
        return [group for group in self.tree_groups if group.algorithm == "quadrature"]

    @property
    def largest_fraction(self) -> float:
        """The largest fraction of the time of a call without the layout that a call with it may take."""
        return 1 - (_LEAST_SAVING_OF_LARGE if self.is_large else _LEAST_SAVING)


def table_prices(precision: str) -> dict[str, float]:
    """Return the prices by which the core lays out tables by intervals; its layout.h describes them."""
    walk, lookup = _WALK_FACTOR[instruction_set()], _LOOKUP_FACTOR[instruction_set()]
    leaf, leaf_node = _CPU_BLOCK / BLOCK_ROWS * walk, _CPU_VECTOR[precision] / 16 * walk
    return {
        "leaf": leaf,
        "leaf_node": leaf_node,
        "table": _CPU_LOOKUP * lookup,
        "lookup": _INTERVAL_LOOKUP * lookup,
        "doubling": _INTERVAL_DOUBLING * lookup,
        "small_bytes": _SMALL_TABLE,
        "line_bytes": _CPU_LINE,
        "built_leaf": leaf + 4 * leaf_node,
        "built_table": _CPU_LOOKUP * lookup,
        "unit_node": _INTERVAL_NODE,
        "entry": _INTERVAL_ENTRY,
        "byte": _INTERVAL_BYTE,
        "least_leaves": _LEAST_LEAVES,
    }


def gpu_table_prices(precision: str) -> dict[str, float]:
    """Return the prices of :func:`table_prices` for tables that are built on the CPU and used by GPUs."""
    return table_prices(precision) | {
        "leaf": 0.0,
        "leaf_node": _CUDA_ROW[precision],
        "table": _CUDA_LOOKUP,
        "lookup": _CUDA_INTERVAL,
        "doubling": _CUDA_DOUBLING,
        "line_bytes": _CUDA_LINE,
    }


def gpu_owen_prices(precision: str) -> dict[str, float]:
    """Return the prices that replace prices of :func:`gpu_table_prices` for Owen values without walks."""
    return {"leaf": _CUDA_OWEN_LEAF[precision], "leaf_node": 0.0}


def table_size(n_rows: int) -> int:
    """Return the limit on the entries of the tables for calls of ``n_rows`` rows; 0: there are no tables."""
    return next((most_entries for least, most_entries in _TABLE_SIZES if n_rows >= least), 0)


def typical_rows(most_entries: int) -> float:
    """Return the number of rows for which tables of this size are laid out, above the smallest number."""
    return next(1.5 * least for least, size in _TABLE_SIZES if size == most_entries)
