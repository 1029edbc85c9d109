"""Computation for the chunks of an array, whose shape and dtype are known before any row is read.

Data frames, whose columns have names, are explained by ``record_batches.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._common.devices import elsewhere
from ..batches.batch_arguments import explainer_of, request_of


class Work:
    """Picklable computation of SHAP values or interactions, created by the client and run by the workers.

    Parameters
    ----------
    model : TreeExplainer, fitted model, str or path
    interactions, index
        See :func:`.explain_dask`.
    options : dict
        Options of :class:`.TreeExplainer`. GPUs are detected, and ``device="auto"`` is resolved, in the
        process that explains.

    Raises
    ------
    ValueError, TypeError
        An option has an invalid value, or the requested values depend on rows of other parts of X.
    """

    def __init__(self, model: Any, interactions: Any, index: str | None, options: Mapping[str, Any]) -> None:
        self._request, self._index = request_of(interactions, index)
        self._interactions = interactions
        with elsewhere():
            self.explainer = explainer_of(model, options)
        if self._request is None:
            self.explainer._require_values(self._index)

    def values(self, X: Any) -> Any:
        """Return the values of X. Their dtype is the result of :meth:`dtype`, or the float dtype of X."""
        return self._values(self.explainer._without_warnings, X)

    def _values(self, explainer: Any, X: Any) -> Any:
        if self._request is None:
            return explainer.explain(X, index=self._index).values
        return explainer.explain_interactions(X, interactions=self._interactions, index=self._index).values

    def dtype(self, empty: Any) -> np.dtype:
        """Check the columns of some rows; return the dtype that the values of similar rows have.

        Parameters
        ----------
        empty : array or data frame of shape (0, n_features)

        Raises
        ------
        ValueError, TypeError
            The columns are not those of the model, or the requested values cannot be computed.
        """
        if self.explainer._steps:  # steps may reject a table without rows, and their values are float64
            return np.dtype(np.float64)
        return self._values(self.explainer, empty).dtype

    def shape(self) -> tuple[int, ...]:
        """Return the shape of the values of one row."""
        explainer, outputs = self.explainer, self.explainer.output_names
        output_shape = () if outputs is None else (len(outputs),)
        if self._request is None:
            return (len(explainer._names_explained(index=self._index)), *output_shape)
        if self._request.form == "listed":
            pairs = self._request.positions(explainer._names_explained(), explainer._features_are_columns)
            return (len(pairs), *output_shape)
        return (len(explainer.occurring_interactions()), *output_shape)
