"""Estimated times of values of models with linear leaves, which ``TreeExplainer.plan`` reports."""

from __future__ import annotations

#: The most rows of a tile: kMaxTileRows of csrc/background/linear_values.cpp.
_TILE_ROWS = 1024

#: Seconds on one core of a server with AVX-512: for each call; for each row and leaf; for each row and
#: pattern of background data; and for each pair of such a pattern and a pattern of the rows of a tile.
_CALL, _LEAF_ROW, _PATTERN_ROW, _PAIR = 8e-5, 1.8e-9, 1.05e-9, 2.1e-8

#: How the number of patterns grows with the number of rows: with this power of it.
_GROWTH = 0.25


def linear_seconds(n_leaves: int, n_patterns: int, n_background: int, n_rows: int, n_threads: int) -> float:
    """Return the seconds of a call for values of a model with linear leaves, without those of reading rows.

    Parameters
    ----------
    n_leaves : int
    n_patterns : int
        Number of patterns of the background rows, of all leaves.
    n_background : int
        Number of background rows.
    n_rows, n_threads : int
    """
    in_tile = min(n_rows, _TILE_ROWS)
    n_tiles = n_rows / max(in_tile, 1)
    of_background = n_patterns / max(n_leaves, 1)
    of_tile = min(in_tile, of_background * (in_tile / n_background) ** _GROWTH)
    of_rows = n_rows * (n_leaves * _LEAF_ROW + n_patterns * _PATTERN_ROW)
    return _CALL + (of_rows + n_tiles * n_patterns * of_tile * _PAIR) / max(1, min(n_threads, round(n_tiles)))
