"""Explanations passed to NumPy, pandas and scikit-learn as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score

from skshapgpu import Explanation, InteractionExplanation

RNG = np.random.default_rng(0)


class Rows:
    """Array whose rows cannot be read one by one, like an array on a GPU; ``get`` copies it to the host."""

    def __init__(self, values: np.ndarray) -> None:
        self.on_host, self.shape, self.ndim = values, values.shape, values.ndim

    def __len__(self) -> int:
        return len(self.on_host)

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("an array is read as a whole, not by its elements")

    def get(self) -> np.ndarray:
        return self.on_host.copy()


def explanation(values: Any) -> Explanation:
    names = tuple(f"f{i}" for i in range(values.shape[1]))
    outputs = ("a", "b") if values.ndim == 3 else None
    return Explanation(values, np.zeros(2) if outputs else 0.0, None, names, outputs)


def interactions(values: Any, pairs: Any) -> InteractionExplanation:
    return InteractionExplanation(values, 0.0, None, ("f0", "f1", "f2"), interactions=pairs)


VALUES = {
    "values": RNG.normal(size=(7, 3)),
    "several outputs": RNG.normal(size=(7, 3, 2)),
    "pairs": RNG.normal(size=(7, 2)).astype(np.float32),
}


def made_of(kind: str, values: Any) -> Any:
    if kind == "pairs":
        return interactions(values, np.array([[0, 1], [0, 2]], np.int32))
    return explanation(values)


@pytest.mark.parametrize("kind", VALUES)
def test_arrays(kind: str) -> None:
    """A list of explanations of single rows would be an array of another shape."""
    values = VALUES[kind]
    explained = made_of(kind, values)
    assert np.asarray(explained) is values
    copy = np.array(explained)
    assert copy.dtype == values.dtype and not np.shares_memory(copy, values)
    np.testing.assert_array_equal(copy, values)
    np.testing.assert_array_equal(np.asarray(explained, np.float16), values.astype(np.float16))
    np.testing.assert_array_equal(np.abs(explained), np.abs(values))
    np.testing.assert_allclose(explained, values, rtol=0, atol=0)
    assert np.allclose(explained, values) and not np.allclose(explained, values + 1)
    np.testing.assert_array_equal(explained - values, np.zeros_like(values))
    np.testing.assert_array_equal(np.mean(explained, axis=0), values.mean(axis=0))
    assert np.shape(explained) == values.shape and np.ndim(explained) == values.ndim
    assert len(explained) == 7 and len(list(explained)) == 7


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="copy=False came with NumPy 2")
def test_copies_are_made_where_they_are_needed() -> None:
    values = VALUES["values"]
    assert np.array(explanation(values), copy=False) is values
    with pytest.raises(ValueError, match="copy"):
        np.array(explanation(values), np.float32, copy=False)
    with pytest.raises(ValueError, match="GPU"):
        np.array(explanation(Rows(values)), copy=False)


def test_values_on_a_gpu_are_copied_to_the_host() -> None:
    values = VALUES["values"]
    explained = explanation(Rows(values))
    assert type(np.asarray(explained)) is np.ndarray
    np.testing.assert_array_equal(np.abs(explained), np.abs(values))
    np.testing.assert_array_equal(np.array(explained, np.float32), values.astype(np.float32))


def test_a_thousand_rows_are_read_at_once(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, key: Any) -> Any:
        raise AssertionError("no row is selected")

    monkeypatch.setattr(Explanation, "__getitem__", refuse)
    values = rng.normal(size=(1000, 10))
    np.testing.assert_array_equal(np.asarray(explanation(values)), values)


def test_scikit_learn_takes_them_as_x(rng: np.random.Generator) -> None:
    values = rng.normal(size=(60, 3))
    y = values @ [1.0, -2.0, 0.5]
    explained = explanation(values)
    model = LinearRegression().fit(explained, y)
    np.testing.assert_allclose(model.coef_, [1.0, -2.0, 0.5])
    np.testing.assert_array_equal(model.predict(explained), model.predict(values))
    np.testing.assert_array_equal(
        PCA(2, random_state=0).fit_transform(explained), PCA(2, random_state=0).fit_transform(values)
    )
    np.testing.assert_array_equal(
        cross_val_score(LinearRegression(), explained, y), cross_val_score(LinearRegression(), values, y)
    )
    with pytest.raises(ValueError, match="dim 3"):
        LinearRegression().fit(explanation(VALUES["several outputs"]), np.arange(7))


def test_pandas_takes_them() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(explanation(VALUES["values"]), columns=["a", "b", "c"])
    np.testing.assert_array_equal(frame.to_numpy(), VALUES["values"])
    with pytest.raises(ValueError, match="2-d"):
        pd.DataFrame(explanation(VALUES["several outputs"]))
