"""Explanation of batches that have one schema: the names and types of the output are known in advance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np

from .._common.indices import INDICES
from .._common.positions import repeated_names
from .._engine.agreement import quiet
from .._engine.links import unit_of
from .._explanations.grouping import group_pairs
from .._explanations.interactions import set_names
from .._explanations.values import Explanation, column_names, side_by_side
from .._rows.arrow import (
    MISSING_KEY,
    MISSING_NAN,
    columns_of_rows,
    decoded,
    require_arrow,
    rows_of_columns,
)
from .._rows.pandas_types import UNKNOWN_NULLS, PandasTypes, TypesScan, columns_of, recorded_nulls
from .batch_arguments import BatchArguments, plain_labels
from .frame_rows import FrameRows
from .independent_rows import require_values_of_categories
from .strongest import Strongest

#: Key of a schema's metadata that holds base values and other facts about the explainer, as JSON.
METADATA_KEY = b"skshapgpu"


class SchemaExplainer:
    """Explainer of batches that have one schema.

    ``schema`` is that of the batches; None if they are arrays or sparse matrices, which are float32 with
    ``single``. ``types`` are the types of the features in the source of the batches; if None, they are
    determined from each batch. The attribute ``names`` has the columns that are features, in the order of the
    model, and ``feature_names`` the names of the features of the results. ``ValueError`` is raised as by
    :meth:`.BatchExplainer.input_names`.
    """

    def __init__(
        self,
        arguments: BatchArguments,
        schema: Any,
        *,
        single: bool = False,
        types: PandasTypes | None = None,
    ) -> None:
        self.arguments, self.input_schema, self._types = arguments, schema, types
        self.names: tuple[str, ...] | None = None
        if schema is not None:
            self.names = arguments.input_names(schema)
            single = all(str(schema.field(name).type) == "float" for name in self.names)
        explainer, grouping = arguments.explainer, arguments.input_grouping
        if grouping is None:
            self.feature_names = explainer._names_explained(self.names, arguments.index)
        else:
            self.feature_names = grouping.names
        self._pairs = self._requested_pairs()
        self._single = single and not arguments.reader.steps

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of the values of a row: (n_features,) or (n_interactions,), and the number of outputs."""
        outputs = self.arguments.explainer.output_names
        ranked = self.feature_names if self._pairs is None else self._pairs
        return (len(ranked),) if outputs is None else (len(ranked), len(outputs))

    @cached_property
    def _ranked_names(self) -> tuple[str, ...]:
        """Names of the features, or of the pairs, for which each output has a value."""
        return self.feature_names if self._pairs is None else set_names(self.feature_names, self._pairs)

    @cached_property
    def _strongest(self) -> Strongest | None:
        """The object that makes the columns of the strongest values; None for the columns of all values."""
        arguments = self.arguments
        if arguments.n_reasons is None:
            return None
        value, outputs = INDICES[arguments.index].column_name, arguments.explainer.output_names
        return Strongest(
            arguments.n_reasons, self._ranked_names, outputs, value, arguments.prefix, arguments.by_sign
        )

    def _requested_pairs(self) -> np.ndarray | None:
        """Return the requested pairs, by positions of features; None for values of single features."""
        explainer, grouping = self.arguments.explainer, self.arguments.input_grouping
        request = self.arguments.request
        if request is None:
            return None
        if request.form == "listed":
            are_columns = explainer._features_are_columns
            if grouping is not None:
                origins = explainer._origins
                are_columns = origins is not None and origins.grouped(grouping.features).are_columns
            return request.positions(self.feature_names, are_columns)
        pairs = explainer.occurring_interactions()
        return pairs if grouping is None else group_pairs(pairs, grouping.group_of_feature())[0]

    @cached_property
    def output_schema(self) -> Any:
        """Schema of the output, with base values in its metadata.

        Reading it raises ``ValueError`` if two columns of the output have the same name.
        """
        arrow, arguments = require_arrow(), self.arguments
        value_type = arrow.float32() if self._single else arrow.float64()
        if arguments.dtype != "auto":
            value_type = arrow.float32() if arguments.dtype == "float32" else arrow.float64()
        if value_type == arrow.float32():
            advice = "give X in float64" if self._single else "use dtype='float64'"
            arguments.explainer._compiled.require_range_of(np.float32, advice)
        if self._strongest is None:
            value_names = column_names(self._ranked_names, arguments.explainer.output_names)
            fields = [
                arrow.field(arguments.prefix + name, value_type, nullable=False) for name in value_names
            ]
        else:
            fields = self._strongest.fields(value_type)
        kept_fields = [self.input_schema.field(name) for name in arguments.keep]
        value_columns = [field.name for field in fields]
        duplicates = sorted({*value_columns} & {field.name for field in kept_fields}) or sorted(
            repeated_names(value_columns)
        )
        if duplicates:
            raise ValueError(
                f"the output would have two columns {duplicates[0]!r}, one kept and one of values: "
                "use prefix=, 'shap_' for instance"
            )
        return arrow.schema([*kept_fields, *fields], {METADATA_KEY: json.dumps(self._metadata()).encode()})

    def _metadata(self) -> dict[str, Any]:
        explainer, base = self.arguments.explainer, self.arguments.explainer.expected_value
        return {
            "base_values": base if isinstance(base, float) else base.tolist(),
            "output_names": explainer.output_names and plain_labels(explainer.output_names),
            "feature_names": list(self.feature_names),
            "index": self.arguments.index,
            "model_output": explainer.model_output,
            "feature_perturbation": explainer.feature_perturbation,
            "precision": explainer.precision,
            "unit": unit_of(explainer._adapted, explainer.model_output),
        }

    def on_gpu(self, index: int) -> SchemaExplainer:
        """Return this object with an explainer for calls on one of its GPUs."""
        view = copy(self)
        view.arguments = self.arguments.on_gpu(index)
        return view

    def explain(self, batch: Any) -> Any:
        """Return a record batch of the columns to keep and of the values of a record batch."""
        return self.output_batch(self.kept_columns(batch), self.compute(batch))

    def explain_frame(self, frame: Any, was_array: bool = False) -> Any:
        """Explain the rows of a pandas data frame without converting it to Arrow; no columns are kept.

        ``was_array`` says that the frame was made from an array. A step that takes arrays then gets an array.
        """
        reader = self.arguments.reader
        rows = frame.iloc[:, [self.input_schema.names.index(name) for name in self.names or ()]]
        X = rows.to_numpy() if was_array and reader.steps and reader.takes_arrays else rows
        return self.output_batch([], self._values_or_explanation(X) if len(rows) else None)

    def kept_columns(self, batch: Any) -> list[Any]:
        """Return the columns of a batch that are copied to the output."""
        return [batch.column(name) for name in self.arguments.keep]

    def compute(self, batch: Any) -> Any:
        """Return all values of a batch, (n_rows, n_values); None if there are no rows.

        If the output also has feature values, return an explanation.
        """
        if not batch.shape[0]:
            return None
        return self._values_or_explanation(batch if self.names is None else self._rows(batch, self.names))

    def _values_or_explanation(self, X: Any) -> Any:
        self.arguments.require_independent_rows(X)
        has_data = self._strongest is not None and self._pairs is None
        return self._explanation(X) if has_data else side_by_side(self.values(X))

    def values(self, X: Any) -> np.ndarray:
        """Compute all values of some rows, (n_rows, *row_shape), in the type that the explainer returns."""
        arguments = self.arguments
        if arguments.request is None:
            return self._explanation(X).values
        if arguments.input_grouping is not None:
            return self._interactions_of_inputs(X)
        pairs: Any = self._pairs if arguments.request.form == "listed" else "occurring"
        explanation = arguments.silent.explain_interactions(
            arguments.as_taken(X), interactions=pairs, index=arguments.index
        )
        return explanation.values

    def _interactions_of_inputs(self, X: Any) -> np.ndarray:
        """Compute the requested interactions of columns of X, which are sums over all pairs that occur."""
        arguments = self.arguments
        assert arguments.request is not None and self._pairs is not None
        explanation = arguments.silent.explain_interactions(
            arguments.as_taken(X), interactions="occurring", index=arguments.index
        )
        grouped = explanation.sum_by("input")
        if arguments.request.form != "listed":
            return grouped.values
        position_of_pair = {tuple(pair): i for i, pair in enumerate(grouped.interactions.tolist())}
        shape = (len(grouped), len(self._pairs), *grouped.values.shape[2:])
        values = np.zeros(shape, grouped.values.dtype)
        for column, pair in enumerate(np.sort(self._pairs, axis=1).tolist()):
            if tuple(pair) in position_of_pair:
                values[:, column] = grouped.values[:, position_of_pair[tuple(pair)]]
        return values

    def _explanation(self, X: Any) -> Explanation:
        arguments = self.arguments
        explanation = arguments.silent.explain(arguments.as_taken(X), index=arguments.index)
        return explanation if arguments.sum_by is None else explanation.sum_by(arguments.sum_by)

    def output_batch(self, kept_columns: list[Any], values: Any) -> Any:
        """Return a record batch of the columns to keep and of what :meth:`compute` returned."""
        arrow = require_arrow()
        fields = list(self.output_schema)[len(kept_columns) :]
        if values is None:
            columns = [arrow.array([], field.type) for field in fields]
        else:
            dtype = np.float32 if str(fields[-1].type) == "float" else np.float64
            if self._strongest is None:
                columns = [arrow.array(column) for column in columns_of_rows(values, dtype)]
            else:
                data = values.data if isinstance(values, Explanation) else None
                columns = self._strongest.columns(np.asarray(values), data, dtype)
        return arrow.RecordBatch.from_arrays([*kept_columns, *columns], schema=self.output_schema)

    def _rows(self, batch: Any, names: Sequence[str]) -> Any:
        """Return the features of a batch, the columns ``names``, in a form that ``explain`` accepts.

        The rows are of the kind with which the model or the first step of the pipeline was trained: an array,
        a data frame or a ``pyarrow.Table``.
        """
        if isinstance(batch, FrameRows):
            return batch.frame
        arguments, reader, arrow = self.arguments, self.arguments.reader, require_arrow()
        # The column may have no values in the first file, and thus no type.
        arguments.require_no_codes(batch.schema, names)
        columns = [batch.column(name) for name in names]
        columns = [c.cast(arrow.float64()) if arrow.types.is_null(c.type) else c for c in columns]
        kinds = {str(column.type) for column in columns}
        plain = reader.takes_arrays and not (reader.takes_strings or reader.schema.has_encoders)
        if len(kinds) == 1 and kinds <= {"float", "double"} and plain:
            return rows_of_columns(columns, np.float32 if kinds == {"float"} else np.float64)
        if reader.steps:
            types = self._types or self._types_of_batch(batch, names)
            if reader.takes_arrays or reader.takes_strings:
                return types.array(batch)
            frame = types.frame(batch)
            if types.differing and len(frame):
                with quiet():
                    require_values_of_categories(arguments.silent._reader, frame, types)
            return frame
        if arguments.explainer.family == "sklearn":  # scikit-learn would reject dictionaries with nulls
            columns = [decoded(name, column) for name, column in zip(names, columns)]
        return arrow.Table.from_arrays(columns, names=list(names))

    def _types_of_batch(self, batch: Any, names: Sequence[str]) -> PandasTypes:
        """Return the pandas types of the features of a batch whose source is not known."""
        arrow = require_arrow()
        schema = columns_of(batch.schema, names)
        fields = [f.with_type(arrow.float64()) if arrow.types.is_null(f.type) else f for f in schema]
        if self.arguments.reader.takes_strings:  # a vectorizer has a better message about NaN than about None
            fields = [field.with_metadata({MISSING_KEY: MISSING_NAN}) for field in fields]
        schema = arrow.schema(fields, schema.metadata)
        scan = TypesScan(schema)
        if not self.arguments.reader.schema.takes_codes:  # the codes may differ from batch to batch
            scan.add_categories(batch.select(list(names)))
        for name in recorded_nulls(schema):
            scan.add_nulls(name)
        return scan.types(UNKNOWN_NULLS)
