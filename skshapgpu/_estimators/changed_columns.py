"""Models whose parameters name columns of X, changed for a table with other columns.

The new table has only some of the columns of X, or several copies of them. If a ``ColumnTransformer`` or
``categorical_features`` names a column of X, the changed model names the columns that come from it. Other
parameters that have an entry for each column are rejected.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from .._common.positions import require_position
from .._rows.pipelines import steps_before
from .._rows.tables import names_of
from ..adapters.wrappers import nest

#: Parameters of models that list categorical columns by name, position or mask.
_CATEGORIES = frozenset({"cat_features", "categorical_feature", "categorical_features"})

#: Values of these parameters that do not list columns.
_NO_LISTS = ("auto", "from_dtype")

#: Parameters of models that have an entry for each column, or name columns in a form of their own.
_PER_COLUMN = frozenset(
    {
        "embedding_features",
        "feature_contri",
        "feature_name",
        "feature_types",
        "feature_weights",
        "first_feature_use_penalties",
        "forcedsplits_filename",
        "ignored_features",
        "interaction_constraints",
        "monotone_constraints",
        "monotonic_cst",
        "per_feature_ctr",
        "per_float_feature_quantization",
        "per_object_feature_penalties",
        "text_features",
    }
)


def changed_model(estimator: Any, X: Any, sources: np.ndarray) -> Any:
    """Return a clone of an unfitted model for X, made for a table with other columns.

    ``sources`` has the position in X of each column of the new table, in the order of the new table. Raise
    ``ValueError`` if the model names columns in a way that cannot be changed.
    """
    change = _Change(X, sources)
    model = clone(estimator)
    after_steps = False
    for layer in nest(model):
        if isinstance(layer, Pipeline):
            for number, (_, step) in enumerate(layer.steps[:-1]):
                change.step(step, first=number == 0 and not after_steps)
        after_steps |= bool(steps_before(layer))
    change.parameters(layer, after_steps=after_steps)
    return model


def changed_params(params: dict[str, Any], X: Any, sources: np.ndarray) -> dict[str, Any]:
    """Return parameters of ``fit`` for a table with other columns; see :func:`changed_model`.

    Raise ``ValueError`` if a parameter names columns in a way that cannot be changed.
    """
    changed = dict(params)
    for name, value in params.items():
        if name in _CATEGORIES and value is not None and not isinstance(value, str):
            changed[name] = _Change(X, sources).columns(value, name)
        elif name.rpartition("__")[2] in _CATEGORIES | _PER_COLUMN:
            raise ValueError(
                f"fit cannot pass on {name}, which names columns that change in a selection: leave it out, "
                "and mark categories by the data type of their columns"
            )
    return changed


class _Change:
    """Change of the columns of X; for ``sources``, see :func:`changed_model`."""

    def __init__(self, X: Any, sources: np.ndarray) -> None:
        self._X, self._sources = X, sources
        self._names = names_of(X)
        self._n_columns = X.shape[1]

    def step(self, step: Any, *, first: bool) -> None:
        """Change a step of a pipeline in place; only the first step sees the columns of X."""
        if first and isinstance(step, ColumnTransformer):
            step.transformers = [
                (name, transformer, self.columns(columns, f"ColumnTransformer, {name!r}"))
                for name, transformer, columns in step.transformers
            ]
        elif first and isinstance(step, Pipeline):
            for number, (_, inner) in enumerate(step.steps):
                self.step(inner, first=number == 0)
        elif hasattr(step, "get_params"):
            nested = step.get_params(deep=True).values()
            if any(isinstance(part, ColumnTransformer) for part in (step, *nested)):
                raise ValueError(
                    "a ColumnTransformer names columns that change in a selection: make it the first step of "
                    "the pipeline, or put it before the selector"
                )

    def parameters(self, model: Any, *, after_steps: bool) -> None:
        """Change the parameters of the innermost model in place.

        After the steps of a pipeline, the model sees other columns than X, so that its parameters cannot be
        changed.
        """
        params = model.get_params(deep=False) if hasattr(model, "get_params") else {}
        for name, value in params.items():
            if value is None or (isinstance(value, str) and (not value or value in _NO_LISTS)):
                continue
            if name in _PER_COLUMN or (name in _CATEGORIES and (after_steps or isinstance(value, str))):
                raise ValueError(
                    f"{name} of {type(model).__name__} names columns that change in a selection: leave it out"
                    + (", and mark categories by the data type of their columns" * (name in _CATEGORIES))
                )
            if name in _CATEGORIES:
                model.set_params(**{name: self.columns(value, name)})

    def columns(self, selection: Any, parameter: str) -> list[int]:
        """Return the positions of the new columns that come from the columns of X in a selection.

        ``parameter`` is the name of the parameter that has the selection, for messages.
        """
        if callable(selection):
            selection = selection(self._X)
        if isinstance(selection, slice):
            selection = self._range(selection, parameter)
        if isinstance(selection, str) or np.ndim(selection) != 1:
            raise ValueError(
                f"{parameter}: columns must be given as a list, a slice or a function, not {selection!r}"
            )
        selection = list(selection)
        if selection and all(isinstance(column, (bool, np.bool_)) for column in selection):
            if len(selection) != self._n_columns:
                raise ValueError(
                    f"{parameter}: a mask of {len(selection)} columns, but X has {self._n_columns}"
                )
            selection = np.flatnonzero(selection).tolist()
        old_positions = {self._position(column, parameter) for column in selection}
        return [new for new, old in enumerate(self._sources.tolist()) if old in old_positions]

    def _range(self, selection: slice, parameter: str) -> list[int]:
        """Return the positions in a slice; a slice of names includes its last name."""
        start, stop = selection.start, selection.stop
        start = self._position(start, parameter) if isinstance(start, str) else start
        stop = self._position(stop, parameter) + 1 if isinstance(stop, str) else stop
        return list(range(self._n_columns)[start : stop : selection.step])

    def _position(self, column: Any, parameter: str) -> int:
        if isinstance(column, str):
            if self._names is None or self._names.count(column) != 1:
                raise ValueError(f"{parameter}: X has no single column {column!r}")
            return self._names.index(column)
        return require_position(parameter, column, self._n_columns, "column", from_end=True)
