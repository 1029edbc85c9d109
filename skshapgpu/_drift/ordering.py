"""Values of two samples in ascending order, in bounded memory: they are read several times instead of stored.

Each float has a 64-bit key, and keys have the order of the floats. A first pass counts how many values have
the same leading bits of their keys. Then, ranges of keys with few enough values are read one after the other,
and sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

#: Values, and their weights: positive in the reference, negative in the current sample.
Pieces = Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]]

#: Bits by which a range of keys is divided at once, and bits of a key.
_BITS_AT_ONCE, _KEY_BITS = 16, 64


def sorted_blocks(
    pieces: Pieces, n_values: int, max_values: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield blocks of the values of two samples in ascending order, with their weights in each sample.

    If a value is repeated, its weights add up. ``pieces`` returns an iterator over the values, float64
    without NaN, and their weights; it is called once for each block, and more often if there is more than
    one. There are at most ``n_values`` values, and at most ``max_values`` are stored at once, in addition to
    a piece.
    """
    for low, high, n in _ranges(pieces, 0, _KEY_BITS, n_values, max_values):
        if low == high and n > max_values:
            yield _value_of_key(pieces, low)
            continue
        all_values, all_weights = [np.empty(0)], [np.empty(0)]
        for values, weights in pieces():
            if (low, high) != (0, 2**_KEY_BITS - 1):
                keys = _keys(values)
                inside = (keys >= np.uint64(low)) & (keys <= np.uint64(high))
                values, weights = values[inside], weights[inside]
            all_values.append(values)
            all_weights.append(weights)
        block, weights = np.concatenate(all_values), np.concatenate(all_weights)
        order = np.argsort(block)
        weights = weights[order]
        yield block[order], np.maximum(weights, 0.0), np.maximum(-weights, 0.0)


def _ranges(
    pieces: Pieces, low: int, bits: int, n_values: int, max_values: int
) -> Iterator[tuple[int, int, int]]:
    """Yield ranges of keys, ends included, with the number of values in each.

    Together they are the ``2**bits`` keys from ``low`` on. A range has at most ``max_values`` values, unless
    it is a single key.
    """
    if n_values <= max_values or bits == 0:
        yield low, low + 2**bits - 1, n_values
        return
    shift = bits - _BITS_AT_ONCE
    counts = np.zeros(2**_BITS_AT_ONCE, np.int64)
    for values, _ in pieces():
        bins = (_keys(values) - np.uint64(low)) >> np.uint64(shift)  # beyond the last bin if outside
        counts += np.bincount(bins[bins < len(counts)].astype(np.int64), minlength=len(counts))
    first, n_first = 0, 0
    for bin_number in np.flatnonzero(counts).tolist():
        n = int(counts[bin_number])
        if n_first and n_first + n > max_values:
            yield low + (first << shift), low + (bin_number << shift) - 1, n_first
            first, n_first = bin_number, 0
        if n > max_values:
            yield from _ranges(pieces, low + (bin_number << shift), shift, n, max_values)
            first = bin_number + 1
        else:
            n_first += n
    if n_first:
        yield low + (first << shift), low + 2**bits - 1, n_first


def _keys(values: np.ndarray) -> np.ndarray:
    """Return unsigned integers with the order of float64 values; -0.0 precedes 0.0."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)


def _value_of_key(pieces: Pieces, key: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the single value that has a key, and its total weight in each sample."""
    value, ours, theirs = np.empty(0), 0.0, 0.0
    for values, weights in pieces():
        equal = _keys(values) == np.uint64(key)
        if equal.any():
            value = values[equal][:1]
            ours += np.maximum(weights[equal], 0.0).sum()
            theirs += np.maximum(-weights[equal], 0.0).sum()
    return value, np.array([ours]), np.array([theirs])
