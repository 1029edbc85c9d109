"""Estimated times of values of models with linear leaves, which ``TreeExplainer.plan`` reports."""

from __future__ import annotations

#: The most rows of a tile: kMaxTileRows of csrc/background/linear_values.cpp.
_TILE_ROWS = 1024

#: Seconds on one core of a server with AVX-512: for each call; for each row and leaf; for each row and
#: pattern of background data; and for each pair of a pattern of background data and a pattern of the rows of
#: a tile.
_CALL, _LEAF_ROW, _PATTERN_ROW, _PAIR = 8e-5, 1.8e-9, 1.05e-9, 2.1e-8

#: The number of patterns grows with this power of the number of rows.
_GROWTH = 0.25


def linear_seconds(n_leaves: int, n_patterns: int, n_background: int, n_rows: int, n_threads: int) -> float:
    """Return the seconds of a call for values of a model with linear leaves, without the time to read rows.

    ``n_patterns`` is the number of patterns of the background rows at all leaves together.
    """
    tile_rows = min(n_rows, _TILE_ROWS)
    n_tiles = n_rows / max(tile_rows, 1)
    leaf_patterns = n_patterns / max(n_leaves, 1)
    tile_patterns = min(tile_rows, leaf_patterns * (tile_rows / n_background) ** _GROWTH)
    row_seconds = n_rows * (n_leaves * _LEAF_ROW + n_patterns * _PATTERN_ROW)
    pair_seconds = n_tiles * n_patterns * tile_patterns * _PAIR
    return _CALL + (row_seconds + pair_seconds) / max(1, min(n_threads, round(n_tiles)))
