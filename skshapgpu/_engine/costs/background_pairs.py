"""Estimated times of interventional interactions, by which ``device="auto"`` chooses."""

from __future__ import annotations

from typing import NamedTuple

#: Seconds on one thread of a CPU with AVX-512: for each number that a row adds up; for each result that is
#: written; for each number of a table for GPUs; and for each number of a table that the CPU makes for a tile.
#: A tile of fewer rows than _FULL_ROWS needs only a fraction of the numbers.
_CPU_NUMBER, _CPU_RESULT, _FILLED_NUMBER, _TILE_NUMBER, _FULL_ROWS = 3e-10, 5e-9, 8e-9, 4e-9, 1000

#: Seconds for each tile and table.
_TILE_TABLE = 4e-6

#: Seconds on one thread of a CPU, and on a GPU, for each pattern of background data with which a row is
#: compared at leaves without a table: estimates.
_CPU_TEST, _CUDA_TEST = 2e-9, 5e-13

#: Largest number of rows of a tile, and about the smallest number of rows that need most entries of a table.
_TILE_ROWS, _SMALL_TILE_ROWS = 4096, 512

#: Seconds on a GPU for each call, for each row and table, for each number that a row adds up, and for each
#: result that is transferred. The price of a number is an estimate, the other prices are from trees.py.
_CUDA_CALL, _CUDA_LOOKUP, _CUDA_NUMBER, _CUDA_RESULT = 8e-5, 2e-11, 1e-12, 6e-10


class PairTables(NamedTuple):
    """Costs of the tables with which GPUs compute interactions of a kind."""

    n_lookups: int  # number of tables
    n_numbers: int  # numbers that a row adds up
    n_tests: int  # largest number of comparisons of a row with patterns of the background data
    table_bytes: int  # size of the tables

    def cpu_seconds(self, n_rows: int, n_results: int, n_threads: int, element_bytes: int) -> float:
        """Return the seconds of a call on the CPU, which makes tables for each tile of rows.

        ``n_results`` is the number of results of a row.
        """
        n_tiles = max(-(-n_rows // _TILE_ROWS), min(n_threads, -(-n_rows // _SMALL_TILE_ROWS)))
        fraction = min(1.0, n_rows / max(n_tiles, 1) / _FULL_ROWS)
        number_seconds = self.table_bytes / element_bytes * _TILE_NUMBER * fraction
        tile_seconds = n_tiles * (number_seconds + self.n_lookups * _TILE_TABLE)
        row_seconds = self.n_numbers * _CPU_NUMBER + self.n_tests * _CPU_TEST + n_results * _CPU_RESULT
        return (tile_seconds + n_rows * row_seconds) / n_threads

    def build_seconds(self, n_threads: int, element_bytes: int) -> float:
        """Return the seconds in which the CPU fills the tables of a GPU."""
        return self.table_bytes / element_bytes * _FILLED_NUMBER / n_threads

    def cuda_seconds(self, n_rows: int, n_results: int) -> float:
        """Return the seconds of a call on a GPU that has the tables."""
        lookup_seconds = self.n_lookups * _CUDA_LOOKUP + self.n_numbers * _CUDA_NUMBER
        return _CUDA_CALL + n_rows * (lookup_seconds + self.n_tests * _CUDA_TEST + n_results * _CUDA_RESULT)
