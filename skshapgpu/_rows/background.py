"""Background data for interventional values: its options, its rows and their weights."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from ..errors import require_one_of
from . import gpu_arrays
from .inputs import HostRows


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
        if gpu_arrays.on_gpu(data):
            raise TypeError(
                "background rows are read on the host, but data lies on a GPU: copy it to the host"
            )
        try:
            host_rows = reader(data)
            encoded = host_rows.chunk(0, host_rows.n_rows)
        except NotFittedError:
            raise
        except (TypeError, ValueError) as error:
            if error.args == (str(error),):  # some classes build their message from other arguments
                error.args = (_about_data(str(error)),)
            raise
        if not host_rows.n_rows:
            raise ValueError("data has no rows: interventional SHAP values need at least one background row")
        with np.errstate(over="ignore"):  # overflow to infinity, as in the model's library
            rows = np.array(encoded, x_dtype, order="C")
        return cls(rows, _shares(weights, len(rows)))


def require_perturbation(asked: str, data: Any, weights: Any, cover: str) -> None:
    """Reject an option ``feature_perturbation`` that is invalid or contradicts other options.

    Raises
    ------
    ValueError
    """
    require_one_of("feature_perturbation", asked, ("auto", "tree_path_dependent", "interventional"))
    if asked == "interventional" and data is None:
        raise ValueError("feature_perturbation='interventional' needs background rows: give data=")
    if asked == "tree_path_dependent" and data is not None:
        raise ValueError(
            "feature_perturbation='tree_path_dependent' uses no background rows: leave out data, or use "
            "'interventional'"
        )
    if weights is not None and data is None:
        raise ValueError("data_weights are weights of background rows: give data=, too")
    require_one_of("cover", cover, ("auto", "count", "weight"))
    if cover != "auto" and data is not None:
        raise ValueError(f"cover={cover!r} is for path-dependent values, which use no data: leave out one")


def _about_data(message: str) -> str:
    """Reword a message about X, from this package or from a step of a pipeline, to be about ``data``."""
    named = re.sub(r"(?<!column )(?<!- )\bX(?=\Z| (?:has|holds|is|contains|must|does)\b)", "data", message)
    return f"data: {message}" if named == message else named


def _shares(weights: Any, n_rows: int) -> np.ndarray:
    """Return the weights of background rows, divided by their sum."""
    if weights is None:
        return np.full(n_rows, 1 / n_rows)
    try:
        shares = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(f"data_weights must be numbers: {error}") from error
    if shares.shape != (n_rows,):
        raise ValueError(
            f"data_weights must have one entry for each of the {n_rows} rows of data, not the shape "
            f"{shares.shape}"
        )
    wrong = np.flatnonzero(~(np.isfinite(shares) & (shares >= 0)))
    if len(wrong):
        raise ValueError(
            f"data_weights must be finite and not negative, but entry {wrong[0]} is {shares[wrong[0]]}"
        )
    if not shares.any():
        raise ValueError("data_weights are all zero")
    shares = shares / shares.max()  # so that the sum cannot overflow
    return shares / shares.sum()
