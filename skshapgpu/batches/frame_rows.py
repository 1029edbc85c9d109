"""Rows of pandas data frames that are not converted, because pandas has dtypes that Arrow does not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._rows.arrow import is_dictionary, require_arrow
from .types import wide_codes


@dataclass(frozen=True)
class FrameRows:
    """Rows of a pandas data frame, with the attributes of Arrow record batches that readers of rows use."""

    frame: Any  # the features
    kept_columns: Any  # columns that are copied to the output

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and of features."""
        return self.frame.shape

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.frame)

    def column(self, name: str) -> Any:
        """Return a column that is copied to the output."""
        return self.kept_columns.column(name)

    def slice(self, begin: int, size: int) -> FrameRows:
        """Return ``size`` rows, from row ``begin`` on."""
        return FrameRows(self.frame.iloc[begin : begin + size], self.kept_columns.slice(begin, size))


def frame_schema(frame: Any) -> Any:
    """Return an Arrow schema with the names of the columns of a data frame.

    Only categories and float32 columns have their types. All other types are null, because Arrow may have no
    type for a pandas column.
    """
    arrow = require_arrow()
    arrow_types = {"category": arrow.dictionary(arrow.int32(), arrow.string()), "float32": arrow.float32()}
    kinds = [arrow_types.get(str(dtype).lower(), arrow.null()) for dtype in frame.dtypes]
    return arrow.schema([(str(name), kind) for name, kind in zip(frame.columns, kinds)])


def one_batch(table: Any) -> Any:
    """Return a table of few rows as one record batch.

    Raise ``ValueError`` if the strings of a column are longer than a record batch can hold, and ``TypeError``
    if Arrow cannot combine the categories of a column, such as intervals.
    """
    arrow = require_arrow()
    if not table.num_columns:
        return arrow.RecordBatch.from_arrays([], names=[])
    try:
        unified = table.cast(wide_codes(table.schema)).unify_dictionaries()
    except arrow.ArrowNotImplementedError as error:
        types = [f"{field.name!r} ({field.type})" for field in table.schema if is_dictionary(field.type)]
        raise TypeError(
            "the pieces of the source have different categories, and Arrow cannot combine all of them: "
            f"{error}. Columns with categories: {', '.join(types)}. Convert their "
            "categories to strings or numbers"
        ) from error
    batches = unified.combine_chunks().to_batches()
    if len(batches) > 1:  # an Arrow column of strings holds at most 2 GiB
        raise ValueError("the strings of a batch are too long: use a smaller batch_size")
    return batches[0] if batches else arrow.RecordBatch.from_pylist([], schema=table.schema)
