"""Rows of data frames of pandas, passed on as they are: pandas has dtypes that Arrow does not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._rows.arrow import require_arrow
from .types import wide_codes


@dataclass(frozen=True)
class FrameRows:
    """Rows of a data frame of pandas, with the same part of the interface as record batches of Arrow.

    Attributes
    ----------
    frame : pandas.DataFrame
        The features.
    kept : pyarrow.RecordBatch
        Columns that are copied to the output.
    """

    frame: Any
    kept: Any

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
        return self.kept.column(name)

    def slice(self, begin: int, size: int) -> FrameRows:
        """Return ``size`` rows, from row ``begin`` on."""
        return FrameRows(self.frame.iloc[begin : begin + size], self.kept.slice(begin, size))


def frame_schema(frame: Any) -> Any:
    """Return the names of the columns of a data frame, and which have categories or are float32, as a schema.

    The other types are null: a column of pandas need not have a type of Arrow.
    """
    arrow = require_arrow()
    known = {"category": arrow.dictionary(arrow.int32(), arrow.string()), "float32": arrow.float32()}
    kinds = [known.get(str(dtype).lower(), arrow.null()) for dtype in frame.dtypes]
    return arrow.schema([(str(name), kind) for name, kind in zip(frame.columns, kinds)])


def one_batch(table: Any) -> Any:
    """Return a table of few rows as one record batch.

    Raises
    ------
    ValueError
        A column of text is longer than a record batch can hold.
    """
    arrow = require_arrow()
    if not table.num_columns:
        return arrow.RecordBatch.from_arrays([], names=[])
    batches = table.cast(wide_codes(table.schema)).unify_dictionaries().combine_chunks().to_batches()
    if len(batches) > 1:  # an Arrow column of text holds at most 2 GiB
        raise ValueError("the texts of a batch are too long: use a smaller batch_size")
    return batches[0] if batches else arrow.RecordBatch.from_pylist([], schema=table.schema)
