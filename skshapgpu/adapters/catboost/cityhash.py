"""CityHash64, version 1.0, by Geoff Pike and Jyrki Alakuijala: CatBoost's hash of categories.

Later versions of CityHash give other hashes. This is pure Python, so hash each category once, never each
row. Variable names follow the published algorithm; all arithmetic is modulo 2^64.
"""

from __future__ import annotations

_K0 = 0xC3A5C85C97CB3127
_K1 = 0xB492B66FBE98F273
_K2 = 0x9AE16A3B2F90404F
_K3 = 0xC949D7C7509E6557
_MUL = 0x9DDFEA08EB382D69
_MASK = (1 << 64) - 1


def cityhash64(data: bytes) -> int:
    """Return the 64-bit hash of ``data``."""
    n = len(data)
    if n <= 16:
        return _hash_up_to_16(data)
    if n <= 32:
        return _hash_17_to_32(data)
    if n <= 64:
        return _hash_33_to_64(data)
    x = _word(data, 0)
    y = _word(data, n - 16) ^ _K1
    z = _word(data, n - 56) ^ _K0
    v = _weak_hash(data, n - 64, n, y)
    w = _weak_hash(data, n - 32, n * _K1, _K0)
    z = z + _mix(v[1]) * _K1 & _MASK
    x = _rotate(z + x, 39) * _K1
    y = _rotate(y, 33) * _K1
    for i in range(0, (n - 1) & ~63, 64):
        x = _rotate(x + y + v[0] + _word(data, i + 16), 37) * _K1 & _MASK
        y = _rotate(y + v[1] + _word(data, i + 48), 42) * _K1 & _MASK
        x ^= w[1]
        y ^= v[0]
        z = _rotate(z ^ w[0], 33)
        v = _weak_hash(data, i, v[1] * _K1, x + w[0])
        w = _weak_hash(data, i + 32, z + w[1], y)
        z, x = x, z
    return _pair(_pair(v[0], w[0]) + _mix(y) * _K1 + z, _pair(v[1], w[1]) + x)


def _word(data: bytes, start: int, size: int = 8) -> int:
    return int.from_bytes(data[start : start + size], "little")


def _rotate(x: int, shift: int) -> int:
    x &= _MASK
    return (x >> shift | x << 64 - shift) & _MASK


def _mix(x: int) -> int:
    x &= _MASK
    return x ^ x >> 47


def _pair(u: int, v: int) -> int:
    a = _mix((u ^ v) * _MUL)
    b = _mix((v ^ a) * _MUL)
    return b * _MUL & _MASK


def _weak_hash(data: bytes, start: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_word(data, start + 8 * i) for i in range(4))
    c = a + w
    a = c + x + y
    b = _rotate(b + c + z, 21) + _rotate(a, 44)
    return a + z & _MASK, b + c & _MASK


def _hash_up_to_16(data: bytes) -> int:
    n = len(data)
    if n > 8:
        a, b = _word(data, 0), _word(data, n - 8)
        return _pair(a, _rotate(b + n, n)) ^ b
    if n >= 4:
        return _pair(n + (_word(data, 0, 4) << 3), _word(data, n - 4, 4))
    if n:
        y = data[0] + (data[n >> 1] << 8)
        z = n + (data[-1] << 2)
        return _mix(y * _K2 ^ z * _K3) * _K2 & _MASK
    return _K2


def _hash_17_to_32(data: bytes) -> int:
    n = len(data)
    a = _word(data, 0) * _K1
    b = _word(data, 8)
    c = _word(data, n - 8) * _K2
    d = _word(data, n - 16) * _K0
    return _pair(_rotate(a - b, 43) + _rotate(c, 30) + d & _MASK, a + _rotate(b ^ _K3, 20) - c + n & _MASK)


def _hash_33_to_64(data: bytes) -> int:
    n = len(data)

    def half(start: int, a: int, z: int) -> tuple[int, int]:
        b, c = _rotate(a + z, 52), _rotate(a, 37)
        a += _word(data, start + 8)
        c += _rotate(a, 7)
        a += _word(data, start + 16)
        return a + z, b + _rotate(a, 31) + c

    v = half(0, _word(data, 0) + (n + _word(data, n - 16)) * _K0, _word(data, 24))
    w = half(n - 32, _word(data, 16) + _word(data, n - 32), _word(data, n - 8))
    r = _mix((v[0] + w[1]) * _K2 + (w[0] + v[1]) * _K0)
    return _mix(r * _K0 + v[1]) * _K2 & _MASK
