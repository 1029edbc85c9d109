"""Background data: its options, its rows and their weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from .._common.checks import require_one_of, require_unmasked
from . import gpu_arrays
from .inputs import HostRows
from .tables import require_same_rows


@dataclass(frozen=True, eq=False)
class Background:
    """Background rows of interventional values, from which the features outside a coalition are taken."""

    #: float32 or float64, (n_rows, n_features): encoded rows, C-contiguous; NaN means missing.
    rows: np.ndarray
    weights: np.ndarray  # float64, (n_rows,): weights of the rows, non-negative, with sum 1

    @classmethod
    def read(cls, data: Any, weights: Any, reader: Callable[[Any], HostRows], x_dtype: str) -> Background:
        """Read and encode background rows as X is read; divide the weights by their sum.

        Raise ``ValueError`` or ``TypeError`` if the model does not accept ``data``, or the weights do not fit
        it.
        """
        with about_data(data):
            host_rows = reader(data)
            encoded = host_rows.chunk(0, host_rows.n_rows)
        row_weights = normalized_weights(weights, host_rows)
        # As in the model's library, overflow gives infinity, and underflow gives zero.
        with np.errstate(over="ignore", under="ignore"):
            rows = np.array(encoded, x_dtype, order="C")
        return cls(rows, row_weights)


@contextmanager
def about_data(data: Any) -> Iterator[None]:
    """Reword the messages of errors, raised while ``data`` is read, that speak of X.

    Raise ``TypeError`` if ``data`` is on a GPU, or is a masker or a summary of shap.
    """
    if gpu_arrays.on_gpu(data):
        raise TypeError("background rows are read on the host, but data is on a GPU: copy it to the host")
    _require_no_object_of_shap(data)
    try:
        yield
    except NotFittedError:
        raise
    except (TypeError, ValueError) as error:
        if error.args == (str(error),):  # some classes build their message from other arguments
            error.args = (_reworded(str(error)),)
        raise


def _require_no_object_of_shap(data: Any) -> None:
    """Raise ``TypeError`` for a masker of shap or for what ``shap.kmeans`` returns, which are no rows."""
    kind = type(data)
    if kind.__module__.partition(".")[0] != "shap":
        return
    advice = "pass rows, as an array or a data frame"
    if hasattr(data, "data"):
        advice = "pass its rows, data=masker.data, or all rows that it was made from"
        if hasattr(data, "weights"):
            advice = "pass data=summary.data and data_weight=summary.weights, or the rows themselves"
        elif kind.__name__ == "Partition":
            advice += "; feature_groups= and index='OV' explain columns within groups"
    raise TypeError(f"data is shap's {kind.__name__}: {advice}")


def require_perturbation(perturbation: str, data: Any, weights: Any, cover: str) -> None:
    """Raise ``ValueError`` if ``feature_perturbation`` is invalid or contradicts other options."""
    require_one_of("feature_perturbation", perturbation, ("auto", "tree_path_dependent", "interventional"))
    if perturbation == "interventional" and data is None:
        raise ValueError("feature_perturbation='interventional' needs background rows: give data=")
    if weights is not None and data is None:
        raise ValueError("data_weight gives the weights of background rows: give data= as well")
    require_one_of("cover", cover, ("auto", "count", "weight"))
    if cover != "auto" and data is not None:
        raise ValueError(
            f"cover={cover!r} selects covers that the model stores, but with data they are not used: leave "
            "out cover or data"
        )


def _reworded(message: str) -> str:
    """Reword a message about X, from this package or from a step of a pipeline, to be about ``data``."""
    named = re.sub(r"(?<!column )(?<!- )\bX(?=\Z| (?:has|holds|is|contains|must|does)\b)", "data", message)
    return f"data: {message}" if named == message else named


def normalized_weights(
    weights: Any, rows: HostRows, rows_name: str = "data", name: str = "data_weight"
) -> np.ndarray:
    """Return the weights of rows, divided by their sum; raise ``ValueError`` if there are no rows.

    Errors of invalid weights are those of :func:`read_weights`.
    """
    if not rows.n_rows:
        raise ValueError(f"{rows_name} has no rows: at least one is needed")
    if weights is None:
        return np.full(rows.n_rows, 1 / rows.n_rows)
    numbers = read_weights(name, weights, rows.n_rows, rows_name, rows.row_labels, f"{rows_name}.index")
    numbers = numbers / numbers.max()  # so that the sum cannot overflow
    return numbers / numbers.sum()


def read_weights(
    name: str,
    weights: Any,
    n_rows: int,
    rows_name: str,
    row_labels: Any = None,
    index_name: str = "explanation.row_labels",
) -> np.ndarray:
    """Return the weight of each row as float64.

    ``name``, ``rows_name`` and ``index_name`` are the names of the weights, of the rows and of
    ``row_labels``, for messages. A series of weights must have the index ``row_labels``. Raise ``ValueError``
    or ``TypeError`` if the weights are not finite numbers from 0 on, one for each row and not all 0; or they
    are a series with another index than the rows.
    """
    require_unmasked(name, weights, "fill it first, with 0 where rows do not count")
    try:
        numbers = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} must be numbers: {error}") from error
    if numbers.shape != (n_rows,):
        raise ValueError(
            f"{name} must have one entry for each of the {n_rows} rows of {rows_name}, not the shape "
            f"{numbers.shape}"
        )
    require_same_rows(weights, row_labels, name, rows_name, index_name)
    invalid = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(invalid):
        raise ValueError(
            f"{name} must be finite and not negative, but entry {invalid[0]} is {numbers[invalid[0]]}"
        )
    if not numbers.any():
        raise ValueError(f"{name} is zero for all rows")
    return numbers
