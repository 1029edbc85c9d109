"""Samples of SHAP values, from explanations in memory or from files, read a batch of rows at a time."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._common.indices import INDICES, INTERACTION_INDICES
from .._common.positions import repeated_names
from .._explanations.interactions import InteractionExplanation
from .._explanations.values import Explanation, column_names
from .._files.locations import is_path, locate, shown
from .._rows.arrow import require_arrow
from .._rows.background import read_weights
from .._rows.gpu_arrays import to_host
from ..batches.files import FilesSource
from ..batches.journal import is_unfinished
from ..batches.schema_explainer import METADATA_KEY
from ..batches.source import SelectedColumns
from ..batches.sources import open_source

#: Number of values in a batch.
_BATCH_VALUES = 2**20

#: Facts that two samples must have in common.
FACTS = ("index", "model_output", "feature_perturbation")


class Sample(ABC):
    """Values of some rows; ``role`` is "reference" or "current", for messages."""

    feature_names: tuple[str, ...]
    #: None if the values of a row have one axis, which is the axis of features.
    output_names: tuple[Any, ...] | None
    only_output: Any = None  # name of the only output if it was selected from several outputs, else None
    facts: dict[str, str]  # value of each fact in ``FACTS``
    unit: str  # unit of the values, "margin" if it has no name
    n_rows: int

    def __init__(self, role: str) -> None:
        self.role = role

    @property
    def column_names(self) -> list[str]:
        """Names of all columns of values. The outputs of a feature are side by side."""
        return column_names(self.feature_names, self.output_names)

    @abstractmethod
    def read(self, columns: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield batches of rows: the values of some columns, given by position, and the weights of the rows.

        Values are float64 of shape (n, n_columns), weights of shape (n,).
        """

    def _require(self) -> None:
        """Raise ``ValueError`` if the sample cannot be compared."""
        names = self.feature_names
        if not self.n_rows:
            raise ValueError(f"{self.role} has no rows: there is nothing to compare")
        if repeated := repeated_names(names):
            raise ValueError(
                f"{self.role} has several features {repeated[0]!r}, so they cannot be matched by name"
            )


class ExplanationSample(Sample):
    """The values of an explanation."""

    def __init__(self, role: str, explanation: Explanation, weights: Any) -> None:
        super().__init__(role)
        self.n_rows = len(explanation)
        self.feature_names = tuple(map(str, explanation.feature_names))
        self.output_names = explanation._several_outputs()
        if self.output_names is None and explanation.output_names is not None:
            (self.only_output,) = explanation.output_names
        self.facts = {fact: getattr(explanation, fact) for fact in FACTS}
        self.unit = explanation.unit
        values = to_host(explanation.values)
        self._values = values.reshape(self.n_rows, int(np.prod(values.shape[1:])))
        self._require()
        self._weights: np.ndarray | None = None
        if isinstance(weights, str):
            raise ValueError(
                f"{role}_weight names the column {weights!r}, but {role} is an explanation: give the "
                "weight of each row"
            )
        if weights is not None:
            self._weights = read_weights(f"{role}_weight", weights, self.n_rows, role, explanation.row_labels)

    def read(self, columns: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        n = max(1, _BATCH_VALUES // max(len(columns), 1))
        for start in range(0, self.n_rows, n):
            block = self._values[start : start + n]
            values = block[:, list(columns)].astype(np.float64)
            yield values, np.ones(len(block)) if self._weights is None else self._weights[start : start + n]


class FileSample(Sample):
    """The values in files that ``explain_batches`` wrote."""

    def __init__(self, role: str, path: Any, weights: Any) -> None:
        super().__init__(role)
        if weights is not None and not isinstance(weights, str):
            raise TypeError(
                f"{role}_weight must be the name of a column of the files that {role} names, one of the "
                f"columns in keep=, not a {type(weights).__name__}"
            )
        self._name = repr(shown(path)) if is_path(path) else "the files"
        if is_path(path) and is_unfinished(locate(path)):
            raise ValueError(
                f"{role}: {self._name} is an unfinished output of explain_batches: repeat that call, which "
                "resumes it"
            )
        require_arrow()
        source = open_source(path)
        if not isinstance(source, FilesSource) or source.kind == "csv":
            raise ValueError(
                f"{role}: {self._name} is no Parquet or Arrow output of explain_batches, in which values "
                "have the names of features"
            )
        self._source = source
        description, names = self._describe()
        self.feature_names = tuple(description["feature_names"])
        self.output_names = description["output_names"] and tuple(description["output_names"])
        self.facts = {fact: description[fact] for fact in FACTS}
        self.unit = description["unit"]
        self._columns = self._value_columns(names)
        self._weights = weights
        if weights is not None and (weights not in source.schema.names or weights in self._columns):
            raise ValueError(
                f"{role}_weight: there is no column {weights!r} in {self._name}: name it in keep= of "
                "explain_batches"
            )
        source.settle(SelectedColumns(tuple(self._columns), () if weights is None else (weights,)))
        self.n_rows = source.n_rows or 0
        self._require()

    def _describe(self) -> tuple[dict[str, Any], list[str]]:
        """Return the description of the values, which must be the same in all files, and the columns."""
        descriptions: list[tuple[dict[str, Any], list[str]]] = []
        for path, schema in self._source.schemas():
            try:
                description = json.loads((schema.metadata or {})[METADATA_KEY])
                description = {
                    key: description[key] for key in ("feature_names", "output_names", "unit", *FACTS)
                }
                if not description["feature_names"] or description["output_names"] in ([], {}, ""):
                    raise ValueError("it has no names of features or outputs")
            except (KeyError, ValueError, TypeError, RecursionError) as error:
                raise ValueError(
                    f"{self.role}: {path!r} was not written by explain_batches, or its metadata was lost"
                ) from error
            descriptions.append((description, schema.names))
            if descriptions[0] != descriptions[-1]:
                raise ValueError(
                    f"{self.role}: {path!r} has values of another kind, or other columns, than "
                    f"{self._source.schemas()[0][0]!r}: compare outputs of one call, or of equal ones"
                )
        return descriptions[0]

    def _value_columns(self, names: list[str]) -> list[str]:
        """Return the columns of values, which are the last columns of a file and may have a prefix."""
        if self.facts["index"] in INTERACTION_INDICES:
            noun = INDICES[self.facts["index"]].values_name
            raise ValueError(
                f"{self.role}: {self._name} has {noun}; values of features are compared, not interactions"
            )
        expected = self.column_names
        last = names[len(names) - len(expected) :] if len(names) >= len(expected) else []
        prefix = last[0].removesuffix(expected[0]) if last else ""
        if last != [prefix + name for name in expected]:
            raise ValueError(
                f"{self.role}: {self._name} does not have a column for each feature: an output of reasons= "
                "holds only the strongest values of each row, which cannot be compared"
            )
        return last

    def read(self, columns: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        names = [self._columns[column] for column in columns]
        columns_read = [*names, *([] if self._weights is None else [self._weights])]
        for batch in self._source.read(columns_read, 0, max(1, _BATCH_VALUES // len(columns_read))):
            values = np.column_stack([_numbers(batch.column(name)) for name in names])
            if self._weights is None:
                yield values, np.ones(len(values))
            else:
                yield values, self._read_weights(batch.column(self._weights))

    def _read_weights(self, column: Any) -> np.ndarray:
        try:
            weights = _numbers(column)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{self.role}_weight: column {self._weights!r} is {column.type}, not numbers"
            ) from error
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(f"{self.role}_weight must be finite and not negative, without missing values")
        return weights


def open_sample(role: str, sample: Any, weights: Any) -> Sample:
    """Return the sample for an argument of :func:`compare_explanations`: an explanation or paths."""
    if isinstance(sample, Explanation):
        return ExplanationSample(role, sample, weights)
    if isinstance(sample, InteractionExplanation):
        raise TypeError(
            f"{role} is an InteractionExplanation: values of features are compared, not interactions; pass "
            "the result of explain"
        )
    paths = sample if isinstance(sample, (list, tuple)) else [sample]
    if paths and all(isinstance(path, (str, os.PathLike)) for path in paths):
        return FileSample(role, sample, weights)
    raise TypeError(
        f"{role} must be an Explanation, or the path of files that explain_batches wrote, not a "
        f"{type(sample).__name__}"
    )


def _numbers(column: Any) -> np.ndarray:
    """Return a column of Arrow as float64, with NaN for null."""
    arrow = require_arrow()
    try:
        return column.cast(arrow.float64()).to_numpy(zero_copy_only=False)
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError) as error:
        raise ValueError(str(error)) from error
