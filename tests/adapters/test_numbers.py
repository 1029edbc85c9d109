"""Numbers in the text of a model, as the core reads them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.kernels import same_bits

from skshapgpu._core import parse_numbers
from skshapgpu.adapters.lightgbm import read_text


def test_numbers_are_those_that_python_reads() -> None:
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, 2**64, 5000, dtype=np.uint64).view(np.float64)
    expected = np.concatenate(
        [drawn[np.isfinite(drawn)], [0.0, -0.0, 5e-324, 1.7976931348623157e308, 1.0, np.inf]]
    )
    for form in ("%r", "%.17g", "%.6g"):
        words = [form % x for x in expected.tolist()]
        numbers = np.empty(len(words))
        assert parse_numbers(" ".join(words), numbers) == len(words)
        assert same_bits(numbers, np.array([float(word) for word in words]))
    whole = rng.integers(-(2**63), 2**63, 5000)
    result = np.empty_like(whole)
    assert parse_numbers("\n" + "  ".join(map(str, whole.tolist())) + " \t", result) == len(whole)
    assert (result == whole).all()


@pytest.mark.parametrize(
    ("text", "dtype", "count"),
    [
        ("", "f8", 0),
        (" ", "f8", 0),
        ("1 2", "f8", 2),
        ("1 2 3", "f8", 3),
        ("1 2 3 4", "f8", 4),
        ("1 2 3 4 5", "f8", 4),
        ("1 2x 3", "f8", 1),
        ("1 2,5 3", "f8", 1),
        ("1 2 - 3", "f8", 2),
        ("1 é", "f8", 1),
        ("1 1e999 3", "f8", 1),
        ("1 2 3", "i8", 3),
        ("1 2.0 3", "i8", 1),
        ("1 9223372036854775808", "i8", 1),
    ],
)
def test_how_many_there_are(text: str, dtype: str, count: int) -> None:
    """Four of three numbers stand for too many."""
    numbers = np.full(3, 7, dtype)
    assert parse_numbers(text, numbers) == count
    assert (numbers[count:] == 7).all()


@pytest.mark.parametrize("numbers", [np.empty(3, "f4"), np.empty(3, ">f8"), np.empty(3, "i4"), [1.0]])
def test_wrong_arrays(numbers: np.ndarray) -> None:
    with pytest.raises(TypeError):
        parse_numbers("1 2 3", numbers)
    with pytest.raises(ValueError, match="C-contiguous"):
        parse_numbers("1 2 3", np.empty(6)[::2])


def test_a_tampered_size_allocates_nothing() -> None:
    tree = "num_leaves=1000000000000\nnum_cat=0\nsplit_feature=0\n"
    text = (
        "version=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\nmax_feature_idx=0\nfeature_names=a\n"
        "feature_infos=[0:1]\n"
        f"\nTree=0\n{tree}\nend of trees\n"
    )
    with pytest.raises(ValueError, match="needs 999999999999 numbers as split_feature, not 1"):
        read_text(text)
