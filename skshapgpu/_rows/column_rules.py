"""How a model's library reads the columns of X, on the host and on a GPU: names, categories and numbers."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .._common.positions import repeated_names
from ..adapters.schema import Column, InputSchema, category_codes
from .real_numbers import is_wide, real_numbers, rounds_twice
from .tables import check_known_names, check_names, listed


class ColumnNames(NamedTuple):
    """Names of the columns of one X."""

    names: tuple[str, ...]
    are_strings: bool  # whether at least one of them is a string and not a number


class NameRules:
    """Rules for the names of columns, which are compared with the names in training.

    Calls for one row after another have the same names: they are compared once. Threads may use the object
    at the same time.
    """

    def __init__(self, schema: InputSchema) -> None:
        self._schema = schema
        self._last: tuple[Any, ColumnNames] | None = None  # labels that passed, and their names

    def read(self, labels: Any) -> ColumnNames:
        """Return the names for labels of columns.

        Raise ``ValueError`` unless X has the columns of the training data.
        """
        index, last = self._last or (None, None)
        if last is not None and _is_view(labels, index):
            return last
        values = labels.tolist() if hasattr(labels, "tolist") else labels  # much faster than one by one
        columns = ColumnNames(tuple(map(str, values)), any(isinstance(value, str) for value in values))
        if columns == last:
            columns = last
        else:
            self._check(columns)
        self._last = labels, columns
        return columns

    def _check(self, columns: ColumnNames) -> None:
        """Raise ``ValueError`` unless the names are those of the training data."""
        names, are_strings = columns
        if repeated := sorted(repeated_names(names)):
            raise ValueError(f"X has several columns of the same name:\n{listed(repeated)}")
        expected = self._schema.feature_names
        # Names that are not strings are positions, unless the model knows its columns by these names.
        if self._schema.blank_as_underscore:
            names = tuple(name.replace(" ", "_") for name in names)
        if expected is not None and (are_strings or set(names) == set(expected)):
            check_names(names, expected)
        known_names = self._schema.known_names
        if are_strings or set(names) >= set(known_names.values()):
            check_known_names(names, known_names)


def _is_view(labels: Any, index: Any) -> bool:
    """Return whether labels are the same index of pandas, or a view of it.

    Strings of Arrow never change. NumPy's arrays in an index may, although pandas does not expect it.
    """
    is_view_of = getattr(labels, "is_", None)
    return is_view_of is not None and not isinstance(labels.dtype, np.dtype) and is_view_of(index)


def check_number(schema: InputSchema, n_columns: int) -> None:
    """Raise ``ValueError`` unless X has as many columns as the training data."""
    if n_columns != schema.n_features:
        raise ValueError(f"X has {n_columns} features, but the model expects {schema.n_features}")


class ColumnRules:
    """Rules for the values in the columns of one X.

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
        long_columns: frozenset[int] = frozenset(),
        string_columns: frozenset[int] = frozenset(),
        coded_columns: frozenset[int] = frozenset(),
    ) -> None:
        self.package, self.names = package, names
        self.string_columns, self.long_columns = string_columns, long_columns
        self._schema, self._x_dtype = schema, x_dtype
        #: Numbers of the columns of categories and strings of a data frame, if its schema encodes them.
        self._category_numbers: dict[int, int] = {}
        if package is not None and schema.frame_encoder is not None:
            categorical = sorted(string_columns | coded_columns)
            self._category_numbers = {feature: number for number, feature in enumerate(categorical)}

    def check_categorical(self) -> None:
        """Raise ``ValueError`` unless a data frame has as many categorical columns as the training data."""
        n_categorical, expected_number = len(self._category_numbers), self._schema.n_categorical
        if self._schema.frame_encoder is not None and expected_number not in (None, n_categorical):
            raise ValueError(
                f"X has {n_categorical} categorical columns, but the model was trained with "
                f"{expected_number}: columns must have the types that they had in training"
            )

    def column(self, feature: int, values: np.ndarray, codes: np.ndarray | None) -> Column:
        """Return a column with these values, and with codes if it is categorical."""
        return Column(
            self.name(feature),
            values,
            codes,
            self.package,
            feature in self.string_columns,
            self._category_numbers.get(feature, 0),
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
