"""Background data: its options, its rows and their weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from .._common.checks import require_one_of, require_weights_unmasked
from . import gpu_arrays
from .inputs import HostRows
from .tables import require_same_rows


@dataclass(frozen=True, eq=False)
class Background:
    """Background rows of interventional values, from which the features outside a coalition are taken.

    Attributes
    ----------
    rows : ndarray of float32 or float64, shape (n_rows, n_features)
        Encoded rows, C-contiguous; NaN means missing.
    weights : ndarray of float64, shape (n_rows,)
        Weights of the rows, non-negative, with sum 1.
    """

    rows: np.ndarray
    weights: np.ndarray

    @classmethod
    def read(cls, data: Any, weights: Any, reader: Callable[[Any], HostRows], x_dtype: str) -> Background:
        """Read and encode background rows as X is read; divide the weights by their sum.

        Raises
        ------
        ValueError, TypeError
            The model does not accept ``data``, or the weights do not fit it.
        """
        with about_data(data):
            host_rows = reader(data)
            encoded = host_rows.chunk(0, host_rows.n_rows)
        row_shares = shares(weights, host_rows)
        with np.errstate(over="ignore", under="ignore"):  # to infinity or zero, as in the model's library
            rows = np.array(encoded, x_dtype, order="C")
        return cls(rows, row_shares)


@contextmanager
def about_data(data: Any) -> Iterator[None]:
    """Reword messages about X to be about ``data``, which is read within.

    Raises
    ------
    TypeError
        ``data`` is on a GPU.
    """
    if gpu_arrays.on_gpu(data):
        raise TypeError("background rows are read on the host, but data is on a GPU: copy it to the host")
    try:
        yield
    except NotFittedError:
        raise
    except (TypeError, ValueError) as error:
        if error.args == (str(error),):  # some classes build their message from other arguments
            error.args = (_about_data(str(error)),)
        raise


def require_perturbation(asked: str, data: Any, weights: Any, cover: str) -> None:
    """Reject an option ``feature_perturbation`` that is invalid or contradicts other options.

    Raises
    ------
    ValueError
    """
    require_one_of("feature_perturbation", asked, ("auto", "tree_path_dependent", "interventional"))
    if asked == "interventional" and data is None:
        raise ValueError("feature_perturbation='interventional' needs background rows: give data=")
    if weights is not None and data is None:
        raise ValueError("data_weight gives the weights of background rows: pass data= as well")
    require_one_of("cover", cover, ("auto", "count", "weight"))
    if cover != "auto" and data is not None:
        raise ValueError(
            f"cover={cover!r} selects covers that the model stores, but with data they are not used: leave "
            "out one"
        )


def is_interventional(asked: str, data: Any) -> bool:
    """Return whether values are interventional; if they are not, covers are counted from ``data``, if any."""
    return data is not None and asked != "tree_path_dependent"


def _about_data(message: str) -> str:
    """Reword a message about X, from this package or from a step of a pipeline, to be about ``data``."""
    named = re.sub(r"(?<!column )(?<!- )\bX(?=\Z| (?:has|holds|is|contains|must|does)\b)", "data", message)
    return f"data: {message}" if named == message else named


def shares(weights: Any, rows: HostRows, data: str = "data", name: str = "data_weight") -> np.ndarray:
    """Return the weights of the rows of ``data``, divided by their sum; errors give these names.

    Raises
    ------
    ValueError, TypeError
        There are no rows, or the weights are invalid, or a series of another index than the rows.
    """
    n_rows = rows.n_rows
    if not n_rows:
        raise ValueError(f"{data} has no rows: at least one is needed")
    if weights is None:
        return np.full(n_rows, 1 / n_rows)
    require_weights_unmasked(name, weights)
    try:
        shares = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} must be numbers: {error}") from error
    if shares.shape != (n_rows,):
        raise ValueError(
            f"{name} must have one entry for each of the {n_rows} rows of {data}, not the shape "
            f"{shares.shape}"
        )
    require_same_rows(weights, rows.row_labels, name, data, f"{data}.index")
    wrong = np.flatnonzero(~(np.isfinite(shares) & (shares >= 0)))
    if len(wrong):
        raise ValueError(
            f"{name} must be finite and not negative, but entry {wrong[0]} is {shares[wrong[0]]}"
        )
    if not shares.any():
        raise ValueError(f"{name} is zero for all rows")
    shares = shares / shares.max()  # so that the sum cannot overflow
    return shares / shares.sum()
