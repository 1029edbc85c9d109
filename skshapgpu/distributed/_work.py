"""What is asked for of each chunk of an array, and what it will look like: known before any row is read.

Columns have names, and are worked off by ``record_batches.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..batch_arguments import explainer_of, request_of
from ..devices import elsewhere


class Work:
    """SHAP values, or interactions, of any rows; made where the workers are not, and picklable.

    Parameters
    ----------
    model : TreeExplainer, fitted model, str or path
    interactions, pairs, index
        As for :func:`skshapgpu.explain`.
    options : dict
        Options of :class:`.TreeExplainer`. GPUs, and what ``device="auto"`` stands for, are looked for by the
        process that explains.

    Raises
    ------
    ValueError, TypeError
        An option has no such value, or what is asked for depends on other rows than those of a part.
    """

    def __init__(
        self, model: Any, interactions: bool, pairs: Any, index: str | None, options: dict[str, Any]
    ) -> None:
        self._request, self._index = request_of(interactions, pairs, index)
        self._pairs = pairs
        with elsewhere():
            self.explainer = explainer_of(model, options)

    def values(self, X: Any) -> Any:
        """An array of the dtype that :meth:`dtype` says, or float32 or float64 as X has it."""
        if self._request is None:
            return self.explainer.explain(X, index=self._index).values
        return self.explainer.explain_interactions(X, pairs=self._pairs, index=self._index).values

    def dtype(self, empty: Any) -> np.dtype:
        """Of the values of rows like these, after a check of their columns.

        Parameters
        ----------
        empty : array or data frame of shape (0, n_features)

        Raises
        ------
        ValueError, TypeError
            They are not the columns of the model, or the values asked for are not to be had.
        """
        if self.explainer.steps:  # they may take no table without rows, and decide on its dtype
            return np.dtype(np.float64)
        return self.values(empty).dtype

    def shape(self) -> tuple[int, ...]:
        """Shape of the values of one row."""
        explainer, outputs = self.explainer, self.explainer.output_names
        n, k = explainer.n_features, () if outputs is None else (len(outputs),)
        if self._request is None:
            return (n, *k)
        if self._request.form == "all":
            return (n, n, *k)
        if self._request.form == "listed":
            return (len(self._request.positions(explainer.names_seen())), *k)
        return (len(explainer.occurring_pairs()), *k)
