"""Arguments of runs over batches: the explainer, and the requested values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from .._common.algorithms import Kind
from .._common.checks import require_one_of
from .._common.indices import VALUE_INDICES
from .._common.positions import repeated_names
from .._engine.agreement import quiet
from .._engine.interactions import Request
from .._explanations.grouping import Grouping, grouping_of
from .._rows.arrow import is_category, require_columns
from .._rows.column_rules import warn_of_names
from .._rows.inputs import Reader
from .._rows.pandas_types import PandasTypes
from .._rows.pipelines import takes_arrays, unwrap
from .._rows.tables import check_known_names, check_names, n_rows_of
from ..explainer import TreeExplainer, as_explainer
from .independent_rows import require_independent_rows
from .index_levels import level_columns
from .source import SelectedColumns


@dataclass(frozen=True, eq=False)
class BatchArguments:
    """The parsed arguments of a batch explainer, and what they say about the columns of batches."""

    explainer: TreeExplainer
    features: tuple[str, ...] | None
    keep: tuple[str, ...]
    n_reasons: int | None
    by_sign: bool
    sum_by: Literal["input"] | None
    request: Request | None  # the requested interactions; None for values of single features
    index: Any
    prefix: str
    dtype: str
    input_grouping: Grouping | None  # columns of X whose values are sums; None if values are not summed

    #: Holds an element once the rows of a batch were compared; see :meth:`require_independent_rows`.
    rows_are_independent: list[bool] = field(default_factory=list)

    @property
    def reader(self) -> Reader:
        """Reader of the explainer."""
        return self.explainer._reader

    @property
    def silent(self) -> TreeExplainer:
        """The explainer without warnings about names, which :meth:`warn_of_names` gives once."""
        return self.explainer._without_warnings

    def as_json(self) -> dict[str, Any]:
        """Return the arguments that affect the output, besides the model, in a JSON-compatible form."""
        request = self.request
        return {
            "features": self.features and list(self.features),
            "keep": list(self.keep),
            "reasons": self.n_reasons,
            "by_sign": self.by_sign,
            "sum_by": self.sum_by,
            "index": self.index,
            "interactions": request
            and (plain_labels(request.listed) if request.form == "listed" else "occurring"),
            "prefix": self.prefix,
            "dtype": self.dtype,
        }

    def input_names(self, schema: Any) -> tuple[str, ...]:
        """Return the names of the columns that are features; see :meth:`.BatchExplainer.input_names`."""
        names = self.features
        expected_names, n_expected, blank = self.reader.expected_columns
        if names is None and expected_names is not None:
            column_of_name = {name.replace(" ", "_") if blank else name: name for name in schema.names}
            if all(name in column_of_name for name in expected_names):
                names = tuple(column_of_name[name] for name in expected_names)
        if names is None:
            other_columns = {*self.keep, *level_columns(schema)}
            names = tuple(name for name in schema.names if name not in other_columns)
        require_columns(schema, (*self.keep, *names))
        if expected_names is not None:
            check_names([name.replace(" ", "_") for name in names] if blank else names, expected_names)
        if not self.reader.steps:
            check_known_names(names, self.reader.schema.known_names)
        if n_expected is not None and len(names) != n_expected:
            raise ValueError(
                f"the model takes {n_expected} features, but there are {len(names)} columns: "
                f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}; name those to take in features="
            )
        self.require_no_codes(schema, names)
        feature_set = frozenset(names)
        fixed_order = [name for name in schema.names if name in feature_set]
        self.reader.require_fixed_columns(fixed_order, "the source")
        return names

    def require_no_codes(self, schema: Any, names: Sequence[str]) -> None:
        """Raise ``ValueError`` if the model uses category codes, which may differ between batches."""
        if self.reader.steps or not self.reader.schema.takes_codes:  # for steps, see pandas_types.py
            return
        if any(is_category(schema.field(name).type) for name in names):
            raise ValueError(
                "the model takes the codes of categories as they are, but each batch may have other codes "
                "for them: pass columns of integers, the codes of the training data"
            )

    def selected_columns(self, names: tuple[str, ...]) -> SelectedColumns:
        """Return which columns of a source to read if ``names`` are the features."""
        return SelectedColumns(
            names,
            self.keep,
            all_columns=self.features is None and self.reader.expected_columns[0] is None,
            only_numbers=not self.reader.steps and not self.reader.schema.has_encoders,
            through_pandas=bool(self.reader.steps) and not self.reader.takes_strings,
        )

    def gpus(self, n_rows: int) -> tuple[int, ...]:
        """Return the GPUs that explain a batch of ``n_rows`` rows; none means the CPU."""
        kind = Kind(1, self.index) if self.request is None else self.request.kind
        return self.explainer._gpus(kind, n_rows)

    def on_gpu(self, index: int) -> BatchArguments:
        """Return the arguments with an explainer for calls on one of its GPUs."""
        return replace(self, explainer=self.explainer._on_gpu(index))

    def warn_of_names(self, schema: Any) -> None:
        """Warn about names as the model's ``predict`` does; ``schema`` is None if there are no names."""
        if not self.reader.steps:  # the first step of a pipeline warns itself
            is_named = schema is not None and has_names(schema)
            warn_of_names(self.reader.schema, has_names=is_named, is_frame=schema is not None)

    def as_taken(self, X: Any) -> Any:
        """Return X as the explainer takes it: the only column of X if the explainer takes strings."""
        if not self.reader.takes_strings:
            return X
        if X.shape[1] != 1:
            raise ValueError(
                f"the model takes one column of strings, but there are {X.shape[1]} columns: name it in "
                "features="
            )
        return X[:, 0] if isinstance(X, np.ndarray) else X.iloc[:, 0].to_numpy(object, na_value=np.nan)

    def require_independent_rows(self, X: Any) -> None:
        """Raise ``ValueError`` if steps transform a row depending on the other rows of the batch.

        Batches are checked until the rows of one of them could be compared.
        """
        if not self.reader.steps or self.rows_are_independent or n_rows_of(X) < 2:
            return
        with quiet():
            compared = require_independent_rows(self.silent._reader, self.as_taken(X))
        if compared:
            self.rows_are_independent.append(True)


def explainer_of(model: Any, options: Mapping[str, Any]) -> TreeExplainer:
    """Return the explainer of a model for rows without labels.

    Raise errors as :func:`.as_explainer` does, and ``ValueError`` if labels are needed.
    """
    explainer = None if options.get("model_output") == "log_loss" else as_explainer(model, options)
    if explainer is None or explainer.model_output == "log_loss":
        raise ValueError("model_output='log_loss' needs labels, which batches do not have: use TreeExplainer")
    return explainer


def groups_of_inputs(explainer: TreeExplainer, index: str = "SV") -> Grouping | None:
    """Return the columns of X from which features were made; None if the features are columns of X.

    Raise ``ValueError`` if the columns are not known.
    """
    origins = explainer._features_of(index).origins(explainer._reader.origins)
    if origins is not None:
        origins.require("Group the columns of the last step by name instead, with feature_groups=")
    return grouping_of("input", (), origins, 0)


def steps_of(model: Any) -> tuple[list[Any], Any]:
    """Return the fitted steps of a pipeline that transform X, and the model that they end in."""
    return unwrap(model)


def rows_for(steps: Sequence[Any], rows: Any, types: PandasTypes) -> Any:
    """Return rows of a file, whose columns have these types, as the leading steps of a pipeline take them."""
    return types.array(rows) if takes_arrays(steps[0]) else types.frame(rows)


def request_of(interactions: Any, index: str | None) -> tuple[Request | None, Any]:
    """Return the requested interactions (None for values of single features) and the index.

    Raise ``ValueError`` or ``TypeError`` if an argument has an invalid value, or the result would depend on
    rows of other batches.
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


def parse_names(argument: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not np.iterable(value) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"{argument} must be a sequence of names, not {value!r}")
    names = tuple(value)
    if repeated := repeated_names(names):
        raise ValueError(f"{argument} names the column {repeated[0]!r} twice")
    return names


def has_names(schema: Any) -> bool:
    """Return whether columns have names. Numbers, which a schema holds as strings, are not names."""
    return not all(name.isdecimal() for name in schema.names)


def plain_labels(names: Any) -> Any:
    """Return labels, or pairs of labels, in a JSON-compatible form."""
    if isinstance(names, (tuple, list)):
        return [plain_labels(name) for name in names]
    name = names.item() if isinstance(names, np.generic) else names
    return name if isinstance(name, (int, float, bool, str)) else str(name)
