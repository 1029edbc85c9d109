"""Errors about background rows mention ``data``, wherever they are raised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.families import forest
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import ShapTransformer, TreeExplainer, explain

X, Y = load_diabetes(return_X_y=True)
INFINITE = np.where(np.arange(10) == 3, np.inf, X[:3])


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (X[:5, :3], ValueError, "^data has 3 features, but the model expects 10$"),
    (INFINITE, ValueError, "^Input data contains infinity .* row 0, column 3$"),
    (X[0], ValueError, "^data: Expected 2D array, got 1D array"),
    (X[:5] * 1j, ValueError, "^Complex data not supported: data$"),
    (np.ma.masked_array(X[:5]), TypeError, "^data is a masked array"),
    (np.full((2, 10), "a"), ValueError, "could not convert string to float: data holds text"),
    ([[1.0, 2.0], [3.0]], ValueError, "^data is not a table"),
    (np.full((2, 10), "a", object), ValueError, "^data: could not convert .* row 0 of column 0 is 'a'"),
    (np.zeros((2, 10), "M8[s]"), TypeError, "^data holds dates"),
    (sp.csr_array(X[:5, :4]), ValueError, "^data has 4 features"),
    (X[:0], ValueError, "^data has no rows"),
]


@pytest.mark.parametrize(("data", "error", "message"), REFUSED, ids=[m for *_, m in REFUSED])
def test_rows_that_are_refused(data: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TreeExplainer(forest(3, 3).fit(X, Y), data)


def test_steps_of_a_pipeline_and_transformers() -> None:
    model = make_pipeline(StandardScaler(), forest(3, 3)).fit(X, Y)
    with pytest.raises(ValueError, match=r"^data has 3 features, but StandardScaler is expecting 10"):
        TreeExplainer(model, X[:5, :3])
    with pytest.raises(ValueError, match=r"^Input data contains infinity"):
        explain(model, X, data=INFINITE)
    with pytest.raises(ValueError, match=r"^data has 3 features"):
        ShapTransformer(forest(3, 3), data=X[:5, :3]).fit(X, Y)


def test_other_errors_are_left_alone() -> None:
    """Errors about the explained rows mention X; an unfitted step is not an error of the data."""
    explainer = TreeExplainer(forest(3, 3).fit(X, Y), X[:5])
    with pytest.raises(ValueError, match=r"^X has 3 features"):
        explainer.explain(X[:, :3])
    model = make_pipeline(StandardScaler(), forest(3, 3))
    model.steps[-1][1].fit(X, Y)
    with pytest.raises(NotFittedError, match=r"^This StandardScaler"):
        TreeExplainer(model, X[:5])


def test_a_column_named_x() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X[:, :2], columns=["X", "b"])
    model = forest(3, 3).fit(frame, Y)
    with pytest.raises(ValueError, match=r"^data: could not convert .* row 1 of column X is 'no'"):
        TreeExplainer(model, pd.DataFrame({"X": [1.0, "no"], "b": [0.0, 1.0]}))
    with pytest.raises(ValueError, match=r"^data: The feature names(.*\n)*.*now missing:\n- X\n"):
        TreeExplainer(model, frame.rename(columns={"X": "c"}))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (["a"] * 5, "^data_weight must be numbers"),
        ([1.0] * 4, "^data_weight must have one entry for each of the 5 rows of data"),
        ([1, 1, -1, 1, 1], "^data_weight must be finite and not negative"),
    ],
)
def test_weights(weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TreeExplainer(forest(3, 3).fit(X, Y), X[:5], data_weight=weights)


@pytest.mark.parametrize("kind", ["tree_path_dependent", "interventional"])
def test_weights_are_of_the_rows_of_data(kind: str) -> None:
    """Weights of other rows, or in another order, were applied by position."""
    pd = pytest.importorskip("pandas")
    frame, weights = pd.DataFrame(X[:20]), pd.Series(np.arange(20.0))
    model, data = forest(3, 3).fit(X, Y), frame[5:10]

    def explained(given: Any, rows: Any = data) -> np.ndarray:
        return explain(model, X[:3], data=rows, data_weight=given, feature_perturbation=kind).values

    expected = explained([5, 6, 7, 8, 9])
    np.testing.assert_array_equal(explained(weights[5:10]), expected)
    np.testing.assert_array_equal(explained(weights[:5] + 5, X[5:10]), expected)  # data without labels
    for wrong in (weights[:5], weights[5:10][::-1]):
        with pytest.raises(
            ValueError, match=r"data_weight: the index differs from that of data.*loc\[data\.index\]"
        ):
            explained(wrong)
