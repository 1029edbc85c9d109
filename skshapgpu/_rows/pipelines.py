"""The steps that pipelines and other wrappers apply to X before the model inside sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils.validation import validate_data

from ..adapters.copies import copying
from ..adapters.step_origins import ONE_TO_ONE, all_columns, names_made
from ..adapters.wrappers import is_a, is_self_training, nest, wrapper_of
from .gpu_arrays import on_gpu
from .in_place import any_may_write, copied
from .tables import n_rows_of, row_labels


def unwrap(model: Any) -> tuple[list[Any], Any]:
    """Return the fitted steps that transform X, and the innermost model; raise the errors of :func:`nest`."""
    steps: list[Any] = []
    for layer in nest(model, fitted=True):
        steps += steps_before(layer)
    return steps, layer


def steps_before(model: Any) -> list[Any]:
    """Return the transformers that a model applies to X before the model inside sees it."""
    if wrapper_of(model) is None:
        return []
    if isinstance(model, Pipeline):
        steps = [step for _, step in model.steps[:-1] if not (step is None or isinstance(step, str))]
        if is_a(model, "imblearn", "Pipeline"):  # samplers act in fit, not in predict
            steps = [step for step in steps if not hasattr(step, "fit_resample")]
        return steps
    if is_a(model, "sklearn", "RFE"):
        return [_without(model, "estimator_")]
    if is_self_training(model):
        return [AsArray(model)]
    return []


class AsArray:
    """First step of a ``SelfTrainingClassifier``: it checks X and returns an array without names."""

    def __init__(self, model: Any) -> None:
        self._owner = _without(model, "estimator_", "transduction_", "labeled_iter_")
        for attribute in ("n_features_in_", "feature_names_in_"):
            if hasattr(model, attribute):
                setattr(self, attribute, getattr(model, attribute))

    def transform(self, X: Any) -> Any:
        """Return X as an array or a sparse matrix."""
        return validate_data(self._owner, X, accept_sparse=True, ensure_all_finite=False, reset=False)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns of X."""
        return OneToOneFeatureMixin.get_feature_names_out(self._owner, input_features)


ONE_TO_ONE[AsArray] = all_columns


def _without(model: Any, *attributes: str) -> Any:
    """Return a shallow copy of a model without some of its fitted attributes, to save memory."""
    result = copy(model)
    for attribute in attributes:
        vars(result).pop(attribute, None)
    return result


def takes_arrays(step: Any) -> bool:
    """Return whether a step says that it was fitted on an array, so that it knows columns by position only.

    Only steps that scikit-learn's own ``fit`` has fitted say so, by ``n_features_in_`` without
    ``feature_names_in_``; other classes set these attributes as they like.
    """
    if isinstance(step, FrozenEstimator):
        return takes_arrays(step.estimator)
    if isinstance(step, Pipeline):
        steps = [member for _, member in step.steps if not (member is None or isinstance(member, str))]
        return bool(steps) and takes_arrays(steps[0])
    if isinstance(step, FeatureUnion):
        return any(takes_arrays(member) for _, member in step.transformer_list if not isinstance(member, str))
    if hasattr(step, "feature_names_in_") or not hasattr(step, "n_features_in_"):
        return False
    owner = next((base for base in type(step).__mro__ if "fit" in vars(base)), type(step))
    return owner.__module__.partition(".")[0] in ("sklearn", "skshapgpu")


def copies_of(steps: Sequence[Any]) -> list[Any]:
    """Return copies of fitted steps, which do not change if the steps are refitted.

    Raise ``UnsupportedModelError`` if a step cannot be copied.
    """
    memo: dict[int, Any] = {}
    copies = []
    for step in steps:
        with copying(
            f"cannot copy a {type(step).__name__}; the explainer needs a copy because the pipeline may be "
            "refitted",
            "Call explain(model, X) instead, or explain the last step, with X as the other steps transform "
            "it",
        ):
            copies.append(deepcopy(step, memo))
    return copies


@dataclass(frozen=True, eq=False)
class Prepared:
    """X, and the result of the leading steps of a pipeline for it."""

    original: Any
    transformed: Any


def prepare(steps: Sequence[Any], X: Any, may_write: bool | None = None) -> Prepared:
    """Transform X by the steps, or a copy of X if they may write into it.

    ``may_write`` says whether they may; with None, this function determines it. Raise ``ValueError`` if a
    step returns other rows than it receives, or returns them in another order.
    """
    may_write = any_may_write(steps) if may_write is None else may_write
    transformed = copied(X) if may_write else X
    for step in steps:
        before, transformed = transformed, step.transform(transformed)
        _require_rows(step, before, transformed)
    return Prepared(X, transformed)


def _require_rows(step: Any, before: Any, after: Any) -> None:
    """Raise ``ValueError`` if the rows of a step's result are not the rows that it received.

    Another order shows in the index of pandas, unless the step gives the rows a new index.
    """
    name = type(step).__name__
    try:
        n_before, n_after = n_rows_of(before), n_rows_of(after)
    except (TypeError, LookupError):  # no table, which is refused where it is read
        return
    if n_before != n_after:
        raise ValueError(
            f"the step {name} of the pipeline returns {n_after:,} rows for the {n_before:,} rows of X, so it "
            "is not known which row a value belongs to: remove from X the rows that the step drops, or use a "
            "step that keeps all rows"
        )
    labels, labels_after = row_labels(before), row_labels(after)
    if labels is None or labels_after is None or labels_after.equals(labels):
        return
    is_range = type(labels_after).__name__ == "RangeIndex"
    if is_range and (labels_after.start, labels_after.step) == (0, 1):  # the step has numbered the rows anew
        return
    if labels_after.names == labels.names and labels_after.isin(labels).all():
        raise ValueError(
            f"the step {name} of the pipeline returns the {n_before:,} rows of X in another order, or some "
            "of them repeatedly, by the index: use a step that keeps the order of the rows"
        )


def prepare_on_gpu(steps: Sequence[Any], X: Any, may_write: bool) -> Any:
    """Return X on a GPU, transformed by the steps, which must leave it there.

    Raise ``TypeError``, ``ValueError`` or ``RuntimeError`` if a step fails, returns rows on the host, or
    returns other rows than it receives; the message names the step.
    """
    X = copied(X) if may_write else X
    for step in steps:
        name = type(step).__name__
        try:
            result = step.transform(X)
        except (MemoryError, NotFittedError):
            raise
        except Exception as error:  # a step of any library may raise anything
            kind = next((kind for kind in (ValueError, RuntimeError) if isinstance(error, kind)), TypeError)
            raise kind(
                f"X is on a GPU, and the step {name} of the pipeline failed there: {type(error).__name__}: "
                f"{error}. If it takes rows on the host only, copy X to the host"
            ) from error
        if not on_gpu(result):
            raise TypeError(
                f"X is on a GPU, but the step {name} of the pipeline returns a {type(result).__qualname__} "
                "on the host: copy X to the host, or use a step that leaves it on the GPU"
            )
        _require_rows(step, X, result)
        X = result
    return X


def names_behind(steps: Sequence[Any], names: Any) -> list[str] | None:
    """Return the names of the columns that the steps make from columns with these names; None if unknown.

    After a step without names, the next step starts from the names that it was fitted with, as in
    scikit-learn.
    """
    for step in steps:
        names = names_made(step, names)
    return names


def unique(names: Sequence[str]) -> list[str]:
    """Return the names, with the position added to each name that occurs several times: "a [0]", "a [2]"."""
    counts = Counter(names)
    marked = [f"{name} [{i}]" if counts[name] > 1 else name for i, name in enumerate(names)]
    return marked if len(set(marked)) == len(marked) else [f"x{i}" for i in range(len(names))]
