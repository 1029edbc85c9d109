"""How a model's library reads the columns of X, on the host and on a GPU: names, categories and numbers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..adapters.schema import Column, InputSchema, category_codes
from .real_numbers import is_wide, real_numbers, rounds_twice
from .tables import check_known_names, check_names, listed


class ColumnRules:
    """Rules for the columns of one X.

    ``x_dtype`` is the precision in which the model's library reads X. ``package`` is the package of the data
    frame that X is, and ``names`` are the names of its columns. For sets of columns, see
    :class:`.frames.Frame`.
    """

    def __init__(
        self,
        schema: InputSchema,
        x_dtype: np.dtype,
        package: str | None,
        names: tuple[str, ...] | None,
        string_columns: frozenset[int] = frozenset(),
        long_columns: frozenset[int] = frozenset(),
    ) -> None:
        self.package, self.names = package, names
        self.string_columns, self.long_columns = string_columns, long_columns
        self._schema, self._x_dtype = schema, x_dtype
        self._category_numbers: dict[int, int] = {}

    def check_columns(self, labels: Sequence[Any] | None, n_columns: int) -> None:
        """Raise ``ValueError`` unless X has the columns of the training data.

        ``labels`` is None if X has no names of columns.
        """
        if labels is not None:
            self._check_labels(labels)
        if n_columns != self._schema.n_features:
            raise ValueError(f"X has {n_columns} features, but the model expects {self._schema.n_features}")

    def _check_labels(self, labels: Sequence[Any]) -> None:
        names = tuple(map(str, labels))
        if len(set(names)) < len(names):
            repeated = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"X has several columns of the same name:\n{listed(repeated)}")
        expected = self._schema.feature_names
        # Names that are not strings are positions, unless the model knows its columns by these names.
        if self._schema.blank_as_underscore:
            names = tuple(name.replace(" ", "_") for name in names)
        if expected is not None and (
            any(isinstance(name, str) for name in labels) or set(names) == set(expected)
        ):
            check_names(names, expected)
        known_names = self._schema.known_names
        if any(isinstance(name, str) for name in labels) or set(names) >= set(known_names.values()):
            check_known_names(names, known_names)

    def number_categories(self, categorical: Sequence[int]) -> None:
        """Store the positions of columns of categories and strings, and check how many there are."""
        self._category_numbers = {feature: number for number, feature in enumerate(categorical)}
        expected_number = self._schema.n_categorical
        if expected_number is not None and len(categorical) != expected_number:
            raise ValueError(
                f"X has {len(categorical)} categorical columns, but the model was trained with "
                f"{expected_number}: columns must have the types that they had in training"
            )

    def name(self, feature: int) -> str:
        """Return the name of a column for an error message, or its number if it has no name."""
        names = self.names or self._schema.feature_names
        return names[feature] if names else str(feature)

    def is_categorical(self, feature: int) -> bool:
        """Return whether a column has a type for categories or strings."""
        return feature in self._category_numbers or feature in self.string_columns

    def has_encoder(self, feature: int) -> bool:
        """Return whether a column is encoded."""
        return self._encoder(feature) is not None

    def _encoder(self, feature: int) -> Any:
        encoder = self._schema.encoders.get(feature)
        return (
            self._schema.frame_encoder if encoder is None and feature in self._category_numbers else encoder
        )

    def fill(self, out: np.ndarray, feature: int, column: Column, start: int | None) -> None:
        """Write a column's numbers to ``out``, encoded if the column has an encoder.

        ``start`` is the row of X in which the column begins, for error messages; None if its values are not
        rows. Raise ``ValueError`` or ``TypeError`` if the model's library does not accept a value; the
        message names the column.
        """
        try:
            out[...] = self._numbers(feature, column, start)
        except OverflowError as error:
            raise ValueError(f"column {column.name!r} holds a number that is too large: {error}") from error
        except (LookupError, AttributeError) as error:  # from a modified or registered encoder
            raise ValueError(
                f"column {column.name!r} cannot be encoded: {type(error).__name__}: {error}"
            ) from error

    def _numbers(self, feature: int, column: Column, start: int | None) -> np.ndarray:
        encoder = self._encoder(feature)
        if encoder is None:
            if column.codes is not None and not self._schema.allow_categories:
                raise ValueError(
                    f"column {column.name!r} is categorical, but the model was trained on numbers, and its "
                    "library would compare them with the codes of the categories: convert it to numbers"
                )
            values = real_numbers(column.values, start, column.name)
            if feature in self.long_columns:
                self.require_one_rounding(values, column.name)
            return values
        takes_codes = getattr(encoder, "takes_codes", None)
        if column.is_text and takes_codes is not None:
            if takes_codes:
                raise ValueError(
                    f"the model takes the codes of categories as they are, but column {column.name!r} has "
                    "none of its own: convert it to the type category of pandas, or Enum of polars, with the "
                    "categories in the order of training"
                )
            column = replace(column, codes=_string_codes(column.values))
        column = replace(column, category_number=self._category_numbers.get(feature, 0))
        return category_codes(encoder, column)

    def require_one_rounding(self, values: np.ndarray, name: str = "") -> None:
        """Reject numbers whose float32 value depends on whether they are converted to float64 in between.

        Libraries convert the 64-bit integers of a data frame directly or by way of float64, depending on the
        types of all columns and on whether values are missing; arrays of NumPy become float32 directly.
        """
        if (self._x_dtype != np.float32 and not self._schema.also_float32) or not is_wide(values):
            return
        ties = rounds_twice(values)
        if ties.any():
            value = values[tuple(np.argwhere(ties)[0])]
            where = f"column {name!r}" if name else "X"
            raise ValueError(
                f"{where} holds {value}, which the model reads as float32: whether it is rounded up or down "
                "depends on the types of the other columns; pass X as an array of float64 or float32"
            )

    def require_exact(self, block: np.ndarray, start: int) -> None:
        """Reject numbers that float32 cannot hold. ``start`` is the row of X in which the block begins."""
        with np.errstate(over="ignore"):
            inexact = (block.astype(np.float32) != block) & ~np.isnan(block)
        if inexact.any():
            row, feature = np.argwhere(inexact)[0]
            raise ValueError(
                f"row {start + row} of column {self.name(feature)} holds {block[row, feature]!r}, which "
                "members of the model round in different ways: pass X as an array of float64"
            )


def warn_of_names(schema: InputSchema, *, has_names: bool, is_frame: bool, argument: str = "X") -> None:
    """Warn as scikit-learn does if X has names of columns and the training data had none, or the reverse.

    ``has_names`` says whether at least one name of a column of X is a string; ``argument`` is the name of X
    in the warning.
    """
    if schema.warns_as is None:
        return
    if schema.frames_have_names:
        has_names = is_frame
    if has_names and schema.feature_names is None:
        message = f"{argument} has feature names, but {schema.warns_as} was fitted without feature names"
        warnings.warn(message, stacklevel=2)
    elif schema.feature_names is not None and not has_names:
        message = f"{argument} does not have valid feature names, but {schema.warns_as} was fitted with"
        warnings.warn(f"{message} feature names", stacklevel=2)


def _string_codes(values: np.ndarray) -> np.ndarray:
    """Return codes of strings, numbered in order of appearance; -1 means missing."""
    numbers: dict[str, int] = {}
    codes = (numbers.setdefault(v, len(numbers)) if isinstance(v, str) else -1 for v in values.tolist())
    return np.fromiter(codes, np.int64, len(values))
