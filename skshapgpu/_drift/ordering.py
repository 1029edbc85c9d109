"""Values of two samples in ascending order, with bounded memory: read several times instead of kept.

Floats have the order of 64-bit keys. Reading counts how many values have which leading bits of their key;
ranges of keys with few enough values are then read one after the other, and sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

#: Values, and their weights: positive in the reference, negative in the current sample.
Pieces = Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]]

#: Bits by which a range of keys is divided at once, and bits of a key.
_BITS_AT_ONCE, _KEY_BITS = 16, 64


def sorted_blocks(
    pieces: Pieces, n_values: int, n_held: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the values of two samples in ascending order.

    Parameters
    ----------
    pieces : callable
        Function that returns an iterator over the values, float64 without NaN, and their weights; called
        once for each block, and more often if there is more than one.
    n_values : int
        Maximum number of values.
    n_held : int
        Number of values to hold at once, in addition to a piece.

    Yields
    ------
    values, reference_weight, current_weight : ndarray of float64
        A block. Values may occur several times, with weights that add up.
    """
    for low, high, n in _ranges(pieces, 0, _KEY_BITS, n_values, n_held):
        if low == high and n > n_held:
            yield _summed(pieces, low)
            continue
        held, of_held = [np.empty(0)], [np.empty(0)]
        for values, weights in pieces():
            if (low, high) != (0, 2**_KEY_BITS - 1):
                keys = _keys(values)
                inside = (keys >= np.uint64(low)) & (keys <= np.uint64(high))
                values, weights = values[inside], weights[inside]
            held.append(values)
            of_held.append(weights)
        block, weights = np.concatenate(held), np.concatenate(of_held)
        order = np.argsort(block)
        weights = weights[order]
        yield block[order], np.maximum(weights, 0.0), np.maximum(-weights, 0.0)


def _ranges(
    pieces: Pieces, low: int, bits: int, n_values: int, n_held: int
) -> Iterator[tuple[int, int, int]]:
    """Yield ranges of keys, ends included, and their numbers of values, at most n_held except in single keys.

    Together they are the ``2**bits`` keys from ``low`` on.
    """
    if n_values <= n_held or bits == 0:
        yield low, low + 2**bits - 1, n_values
        return
    shift = bits - _BITS_AT_ONCE
    counts = np.zeros(2**_BITS_AT_ONCE, np.int64)
    for values, _ in pieces():
        places = (_keys(values) - np.uint64(low)) >> np.uint64(shift)  # beyond the last place if outside
        counts += np.bincount(places[places < len(counts)].astype(np.int64), minlength=len(counts))
    first, n_first = 0, 0
    for place in np.flatnonzero(counts).tolist():
        n = int(counts[place])
        if n_first and n_first + n > n_held:
            yield low + (first << shift), low + (place << shift) - 1, n_first
            first, n_first = place, 0
        if n > n_held:
            yield from _ranges(pieces, low + (place << shift), shift, n, n_held)
            first = place + 1
        else:
            n_first += n
    if n_first:
        yield low + (first << shift), low + 2**bits - 1, n_first


def _keys(values: np.ndarray) -> np.ndarray:
    """Return unsigned integers with the order of float64 values; -0.0 precedes 0.0."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)


def _summed(pieces: Pieces, key: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the single value with a key, and its weights."""
    value, ours, theirs = np.empty(0), 0.0, 0.0
    for values, weights in pieces():
        equal = _keys(values) == np.uint64(key)
        if equal.any():
            value = values[equal][:1]
            ours += np.maximum(weights[equal], 0.0).sum()
            theirs += np.maximum(-weights[equal], 0.0).sum()
    return value, np.array([ours]), np.array([theirs])
