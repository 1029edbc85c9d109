"""Arguments of runs over batches: the explainer, and the requested values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._common.checks import require_one_of
from .._common.indices import VALUE_INDICES
from .._engine.interactions import Request
from .._explanations.grouping import Grouping, grouping_of
from .._rows.pandas_types import PandasTypes
from .._rows.pipelines import takes_arrays, unwrap
from ..explainer import TreeExplainer, as_explainer


def explainer_of(model: Any, options: Mapping[str, Any]) -> TreeExplainer:
    """Return the explainer of a model for rows without labels.

    Raises
    ------
    ValueError, TypeError, UnsupportedModelError, NotFittedError, OSError
        As for :func:`.as_explainer`; or labels are needed.
    """
    if options.get("model_output") == "log_loss":
        raise _no_labels()
    explainer = as_explainer(model, options)
    if explainer.model_output == "log_loss":
        raise _no_labels()
    return explainer


def groups_of_inputs(explainer: TreeExplainer, index: str = "SV") -> Grouping | None:
    """Return the columns of X from which features were made; None if the features are columns of X.

    Raises
    ------
    ValueError
        The columns are not known.
    """
    origins = explainer._features_of(index).origins(explainer._reader.origins)
    if origins is not None:
        origins.require("Group the columns of the last step by name instead, with feature_groups=")
    return grouping_of("input", (), origins, 0)


def steps_of(model: Any) -> tuple[list[Any], Any]:
    """Return the fitted steps of a pipeline that transform X, and the model that they end in."""
    return unwrap(model)


def rows_for(steps: Sequence[Any], rows: Any, types: PandasTypes) -> Any:
    """Return rows of a file as the leading steps of a pipeline take them.

    Parameters
    ----------
    steps : sequence of fitted transformers
    rows : pyarrow.Table
    types : PandasTypes
        Types of the columns in the whole file.
    """
    return types.array(rows) if takes_arrays(steps[0]) else types.frame(rows)


def request_of(interactions: Any, index: str | None) -> tuple[Request | None, Any]:
    """Return the requested interactions (None for values of single features) and the index.

    Raises
    ------
    ValueError, TypeError
        An argument has an invalid value, or the result would depend on rows of other batches.
    """
    if interactions is None:
        index = "SV" if index is None else index
        require_one_of("index", index, VALUE_INDICES)
        return None, index
    index = "SII" if index is None else index
    request = Request.parse(interactions, index)
    if request.form == "strongest":
        raise ValueError(
            "interactions must be 'occurring' or a list of pairs: the strongest depend on all rows, not on "
            "those of a batch; find them in a sample with explain_interactions, and list them"
        )
    return request, index


def _no_labels() -> ValueError:
    return ValueError("model_output='log_loss' needs labels, which batches do not have: use TreeExplainer")


def parse_names(argument: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not np.iterable(value) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"{argument} must be a sequence of names, not {value!r}")
    names = tuple(value)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{argument} names the column {twice!r} twice")
    return names
