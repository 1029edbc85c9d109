"""Steps that compute a row from other rows are refused, as values would depend on the batch size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.impute import KNNImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, QuantileTransformer, StandardScaler

from skshapgpu import explain, explain_batches
from skshapgpu.batches import BatchExplainer

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

_random = np.random.default_rng(11)
X = pd.DataFrame(_random.normal(size=(120, 3)), columns=["a", "b", "c"])
Y = X["a"] * 3 + X["b"] * X["c"]

DEPENDENT = {
    "ranks": lambda rows: rows.rank(),
    "centered": lambda rows: rows - rows.mean(),
    "sorted anew": lambda rows: rows.sort_values("a").reset_index(drop=True),
    "sorted array": lambda rows: np.sort(np.asarray(rows), axis=0),
    "cumulated": lambda rows: rows.cumsum(),
    "difference": lambda rows: rows.diff(),
}


def fitted(*steps: Any) -> Any:
    return make_pipeline(*steps, RandomForestRegressor(5, random_state=0)).fit(X, Y)


@pytest.mark.parametrize("name", DEPENDENT)
def test_dependent_rows(name: str, tmp_path: Path) -> None:
    model = fitted(FunctionTransformer(DEPENDENT[name]))
    message = r"rows 0 to 29 of the source.* a step computes a row from other rows, .* batch size"
    with pytest.raises(ValueError, match=message):
        explain_batches(model, X, tmp_path / "out.npy", batch_size=30)
    with pytest.raises(ValueError, match="a step computes a row from other rows"):
        BatchExplainer(model)(pa.RecordBatch.from_pandas(X))


def test_dependent_rows_in_a_later_batch(tmp_path: Path) -> None:
    """A batch of one row shows nothing."""
    model = fitted(FunctionTransformer(DEPENDENT["ranks"]))
    frames = iter([X[:1], X[1:3], X[3:]])
    with pytest.raises(ValueError, match="a step computes a row from other rows"):
        explain_batches(model, frames, tmp_path / "out.npy", batch_size=1000)


def test_dependent_rows_after_a_batch_that_cannot_be_compared(tmp_path: Path) -> None:
    """If a step refuses a few rows alone, the check learns nothing from them; the next batch is checked."""

    def ranks(rows: Any) -> Any:
        if len(rows) == 2 and rows.index[0] < 4:
            raise ValueError("too few rows")
        return rows.rank()

    model = fitted(FunctionTransformer(ranks))
    message = r"in rows 4 to 7 of the source.* a step computes a row from other rows"
    with pytest.raises(ValueError, match=message):
        explain_batches(model, X, tmp_path / "out.npy", batch_size=4)


@pytest.mark.parametrize(
    "steps",
    [
        (StandardScaler(), PCA(2)),
        (QuantileTransformer(n_quantiles=20),),
        (KNNImputer(n_neighbors=3),),
        (FunctionTransformer(lambda rows: rows.where(rows > -1)), KNNImputer(n_neighbors=2)),
        (FunctionTransformer(lambda rows: rows.assign(d=rows["a"] * 1e12)),),
    ],
)
def test_independent_rows(steps: Any, tmp_path: Path) -> None:
    model = fitted(*steps)
    result = explain_batches(model, X, tmp_path / "out.npy", batch_size=50)
    expected = explain(model, X).values
    np.testing.assert_allclose(np.load(result.path), expected, rtol=0, atol=1e-6 * np.ptp(expected))
