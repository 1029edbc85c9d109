"""Explanations of more rows than fit into memory: in batches, from files to files, resumable after a crash.

``sources.py`` and ``files.py`` read rows, ``schema_explainer.py`` explains them and ``sinks.py`` writes the
values, into the folders of ``folders.py``. ``overlap.py`` does all of this at the same time, and
``journal.py`` records which call an output belongs to. A batch has the same rows in every run, and its values
depend only on these rows, so a resumed run writes the same output as an uninterrupted run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, Unpack

import numpy as np

from .. import _core
from .._common.checks import require_count, require_one_of, require_options
from .._common.progress import require_progress, watched
from .._common.types import (
    BatchSource,
    ColumnNames,
    CsvOptions,
    ExplainerOptions,
    InteractionIndex,
    ListedInteractions,
    Model,
    Progress,
    ValueIndex,
    Values,
    lists_options,
)
from .._files.locations import is_inside, is_path, locate
from .._versions import __version__
from .batch_arguments import BatchArguments
from .csv_files import CsvFormat
from .files import FilesSource
from .fingerprint import columns_written, fingerprint
from .index_levels import require_no_levels
from .journal import call_digest, difference
from .overlap import overlapped
from .record_batches import BatchExplainer
from .schema_explainer import SchemaExplainer
from .sinks import FORMATS, Sink, open_sink, tidy
from .source import Source
from .sources import open_source
from .types import wide_codes

__all__ = ["BatchExplainer", "BatchesResult", "explain_batches"]

#: Bytes of a batch if there is no memory limit: of its rows, their values and the output columns together.
_BATCH_BYTES = 2**26

#: Batches in memory at the same time, for each GPU: one is read, two are explained, and the others wait or
#: are encoded.
_BATCHES_IN_MEMORY = 6

#: Threads, for each GPU, that encode batches. They start when batches wait for them.
_ENCODERS_PER_GPU = 3

#: Smallest number of batches for each GPU with which each GPU explains entire batches. If there are fewer,
#: every batch is divided among all GPUs.
_MIN_BATCHES_PER_GPU = 4

#: Maximum number of rows of a batch; larger batches would not be faster.
_MAX_ROWS = 2**20

#: Batch sizes above this number are rounded down to a multiple of it.
_BATCH_MULTIPLE = 1024


@dataclass(frozen=True)
class BatchesResult:
    """Result of :func:`skshapgpu.explain_batches`.

    Its attributes are public; its constructor is private.

    Attributes
    ----------
    path : Path or str
        The output: a file or a folder. It is a Path if the output is in the local file system. Otherwise it
        is a string: the path in ``filesystem``, or the URL without credentials.
    paths : tuple of Path or str
        The files of the output, in the order of their rows.
    n_rows : int
        Number of rows of the output.
    n_resumed : int
        Number of the rows that an earlier call had written.
    batch_rows : int
        Rows of a batch.
    seconds : float
        Duration of this call.
    base_values : float or ndarray of shape (n_outputs,)
        See :attr:`.TreeExplainer.expected_value`.
    feature_names : tuple of str
        Names of the columns that the model sees.
    output_names : tuple or None
        See :attr:`.TreeExplainer.output_names`.
    checked_against, check_note : str or None
        As in :class:`.Explanation`. Both are None if an earlier call had written all rows.
    """

    path: Path | str
    paths: tuple[Path | str, ...]
    n_rows: int
    n_resumed: int
    batch_rows: int
    seconds: float
    base_values: float | Values
    feature_names: tuple[str, ...]
    output_names: tuple[Any, ...] | None
    checked_against: str | None
    check_note: str | None

    @property
    def rows_per_second(self) -> float:
        """Rows per second that this call explained, including reading and writing."""
        return (self.n_rows - self.n_resumed) / self.seconds if self.seconds else 0.0


@lists_options
def explain_batches(
    model: Model,
    source: BatchSource,
    sink: str | os.PathLike[str],
    *,
    batch_size: int | Literal["auto"] = "auto",
    features: ColumnNames | None = None,
    keep: ColumnNames = (),
    reasons: int | None = None,
    by_sign: bool = False,
    sum_by: Literal["input"] | None = None,
    interactions: Literal["occurring"] | ListedInteractions | None = None,
    index: ValueIndex | InteractionIndex | None = None,
    prefix: str = "",
    dtype: Literal["auto", "float32", "float64"] = "auto",
    format: Literal["parquet", "arrow"] | None = None,
    csv_options: CsvOptions | None = None,
    if_exists: Literal["resume", "overwrite", "error"] = "resume",
    progress: Progress = False,
    filesystem: Any = None,
    **options: Unpack[ExplainerOptions],
) -> BatchesResult:
    """Explain any number of rows in batches, from files to files.

    Reading, explaining, encoding and writing overlap, in several threads. The memory does not depend on the
    number of rows: it holds six batches (for each GPU that ``device`` lists) and what one call of
    :meth:`.TreeExplainer.explain` needs. With several GPUs, each explains entire batches if there are many.

    If the process is killed, at whatever moment, the same call resumes after the last complete batch, and
    the output is bit-identical to the output of an uninterrupted run. The output records its call. The same
    call for a finished output returns at once; a call with a different model, source, batch size or other
    option that affects the output is rejected.

    Parameters
    ----------
    model : fitted model, str, path, bytes or TreeExplainer
        A fitted model or its file, or an explainer or its file: see :class:`.TreeExplainer`.
    source : path, list of paths, dataset, table, array, matrix, data frame or iterator
        - The path of a Parquet, Arrow (IPC, Feather), CSV or NumPy (``.npy``) file. CSV files are recognized
          by their names, other files by their content.
        - The path of a folder with files in one of the first three formats, which are read in the order of
          their paths; folders named "name=value" become columns. Or a list of paths of such files. All files
          must have the columns of the first file, in any order; numeric columns get a type that holds the
          values of all files.
        - A pyarrow ``Dataset`` or ``Table``, or anything that exports a stream of Arrow, such as a
          ``RecordBatchReader`` or a relation of DuckDB.
        - A two-dimensional NumPy array, in memory or memory-mapped, or a sparse matrix.
        - An iterator over record batches, tables, pandas or polars data frames, arrays or sparse matrices.
          All items must have the columns of the first item, whose types the output takes over. To resume, the
          iterator must yield the same rows again; rows that were explained before are read and dropped. It is
          consumed in another thread.

        URLs such as "s3://bucket/rows/" are paths, too, here and in ``model`` and ``sink``. The steps of a
        pipeline receive data frames in which each column has one dtype in all batches; see docs/batches.md.
    sink : path
        A single file, ``NAME.parquet``, ``NAME.arrow``, ``NAME.csv`` or ``NAME.npy``, which appears when it
        is complete. If the name has no extension or ends with a slash, it is a folder of part files, one for
        each batch. A NumPy file holds only the values, in the shape that ``explain`` returns. A CSV file has
        no base values, because it has no metadata. Incomplete output is kept in a hidden folder, beside the
        file or inside the output folder.
    batch_size : int or "auto", default="auto"
        Rows of a batch. "auto" chooses the number so that rows and values take about 64 MiB, or less if that
        exceeds a twelfth of ``memory_limit``, divided by the number of GPUs. A resumed run keeps the size of
        the first run.
    features, keep, reasons, by_sign, sum_by, interactions, index, prefix, dtype
        See :class:`~skshapgpu.batches.BatchExplainer`. ``keep`` may also name levels of a pandas index, in
        data frames and in Parquet files that pandas wrote. Arrays have no columns to keep.
    format : {"parquet", "arrow"} or None, default=None
        Format of the files of a folder. None means Parquet.
    csv_options : dict or None, default=None
        How to read CSV files, which are otherwise read as ``pandas.read_csv`` reads them, with column types
        determined from the whole file. The keys are "delimiter" (by default a comma, or a tab if the file's
        name ends in ".tsv"), "quote_char" (by default '"'; with "", nothing is quoted), "null_values"
        (a list of strings that stand for missing values, besides those of pandas such as "" and "NA") and
        "decimal" ("." by default, or ",").
    if_exists : {"resume", "overwrite", "error"}, default="resume"
        What to do if ``explain_batches`` has written to ``sink`` before. "resume" continues an output that
        the same call left unfinished, and returns at once if that output is finished. "overwrite" starts
        anew. "error" raises ``ValueError``. An output that was deleted does not count. Files that
        ``explain_batches`` did not write, or that were changed since, are never replaced or deleted.
    progress : bool or callable, default=False
        True shows a bar with rows per second and the time left, using tqdm or rich. A function is called
        after each batch with the number of rows written and the number of all rows, which is None if it is
        not known. An exception that the function raises ends the run.
    filesystem : file system of pyarrow or fsspec, or None, default=None
        File system of ``model``, ``source`` and ``sink`` if they are paths without a scheme. None means the
        local file system. "file://" URLs are always local.
    **options
        Options of :class:`.TreeExplainer`, such as ``device`` and ``n_jobs``, unless ``model`` is one.

    Returns
    -------
    BatchesResult
        The files of the output, and how many rows they have.

    Raises
    ------
    ValueError, TypeError
        An argument has an invalid value; columns are missing, differ from file to file or hold values that
        the model does not accept; a step of a pipeline drops or moves rows; or there is an output of another
        call (the message says what differs) or a file that ``explain_batches`` did not write.
    RuntimeError
        Another call is writing the same output or, in another file system, has begun to write it since; or
        the system cannot start a thread. See also :meth:`.TreeExplainer.explain`.
    ImportError
        pyarrow, or a package for a URL, is not installed, or, for ``progress=True``, neither tqdm nor rich.
    OSError
        A file cannot be read or written. All batches written so far are kept, and the same call resumes.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow.parquet
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import explain_batches
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = RandomForestRegressor(10, random_state=0).fit(X, y)
    >>> folder = tempfile.mkdtemp()
    >>> source, sink = f"{folder}/rows.parquet", f"{folder}/values.parquet"
    >>> X.assign(patient=range(len(X))).to_parquet(source)
    >>> explain_batches(model, source, sink, keep=["patient"]).n_rows
    442
    >>> pyarrow.parquet.read_schema(sink).names[:3]
    ['patient', 'age', 'sex']
    """
    start = perf_counter()
    require_options(explain_batches, options)
    require_progress(progress)
    require_count("batch_size", batch_size, also=("auto",))
    require_one_of("if_exists", if_exists, ("resume", "overwrite", "error"))
    if format is not None:
        require_one_of("format", format, FORMATS)
    located: Any = model if filesystem is None or not is_path(model) else locate(model, filesystem)
    arguments = BatchExplainer(
        located,
        features=features,
        keep=keep,
        reasons=reasons,
        by_sign=by_sign,
        sum_by=sum_by,
        interactions=interactions,
        index=index,
        prefix=prefix,
        dtype=dtype,
        **options,
    )._arguments
    output = open_sink(sink, format, filesystem)
    csv = CsvFormat.parse(csv_options)
    row_source = open_source(source, csv, filesystem, arguments.keep)
    _require_use_of_csv_options(csv, row_source)
    run = _Run(arguments, row_source, output)
    _require_place(output, source, row_source, filesystem)
    return run.explain(batch_size, if_exists, progress, start)


def _require_place(output: Sink, source: Any, row_source: Source, filesystem: Any) -> None:
    """Reject an output that would be a part of its source, or would replace a file that is not ours."""
    if is_path(source) and is_inside(output.place, place := locate(source, filesystem)) and place.is_dir():
        raise ValueError(
            f"the output {str(output.place)!r} is inside the source folder: choose another path for it"
        )
    if not output.journal.folder.exists() and output.place.exists():
        output.require_ours()  # before the journal's folder is created there
    for file in row_source.places:
        if is_inside(file, output.place):
            raise ValueError(
                f"{str(file)!r} has rows, and would be replaced by the output: choose another path for it"
            )


def _require_use_of_csv_options(csv: CsvFormat, source: Source) -> None:
    """Reject CSV options for a source that is not a CSV file."""
    if csv.non_defaults() and not (isinstance(source, FilesSource) and source.kind == "csv"):
        options_to_omit = ", ".join(f"{name}=" for name in csv.non_defaults())
        raise ValueError(f"the source is not a CSV file: leave out the CSV options {options_to_omit}")


class _Run:
    """A call of ``explain_batches`` with its arguments parsed."""

    batch_rows: int

    def __init__(self, arguments: BatchArguments, source: Source, sink: Sink) -> None:
        self._arguments, self._source, self._sink = arguments, source, sink
        arguments.warn_of_names(source.schema)
        self._columns: tuple[str, ...] = ()
        if source.schema is not None:
            names = arguments.input_names(source.schema)
            require_no_levels(names, source.levels)
            selected = arguments.selected_columns(names)
            source.settle(selected)
            self._columns = selected.columns
        elif arguments.keep or arguments.features:
            raise ValueError("keep= and features= name columns, but the source has arrays, without names")
        self.explainer = SchemaExplainer(
            arguments, source.schema, single=source.single, types=source.pandas_types
        )
        self._schema = self.explainer.output_schema = wide_codes(self.explainer.output_schema)
        self._row: tuple[int, ...] = ()
        sink.require_types(self._schema)
        if sink.holds_values:
            if arguments.keep or arguments.n_reasons:
                raise ValueError(
                    "a .npy file holds only values: keep= and reasons= are for Parquet, Arrow and CSV"
                )
            self._row = self.explainer.row_shape
            self._dtype = np.float32 if str(self._schema.types[0]) == "float" else np.float64
            sink.shape(*self._row, dtype=self._dtype)

    def explain(self, batch_size: int | str, if_exists: str, progress: Any, start: float) -> BatchesResult:
        """Begin or resume the output, and complete it. ``start`` is the time at which the call began."""
        with self._sink.journal.hold():
            self._sink.require_ours()
            n_batches = self._settle(batch_size, if_exists)
            if n_batches is None:
                names, n_rows = self._finished()
                n_resumed = n_rows
            else:
                n_resumed = n_batches * self.batch_rows
                names, n_rows = self._work_off(n_batches, progress)
        explainer = self._arguments.explainer
        return BatchesResult(
            path=self._sink.path,
            paths=tuple(self._sink.files(names)),
            n_rows=n_rows,
            n_resumed=n_resumed,
            batch_rows=self.batch_rows,
            seconds=perf_counter() - start,
            base_values=explainer.expected_value,
            feature_names=self.explainer.feature_names,
            output_names=explainer.output_names,
            checked_against=explainer._agreement.against,
            check_note=explainer._agreement.note,
        )

    def _settle(self, batch_size: int | str, if_exists: str) -> int | None:
        """Begin or resume the output. Return the number of written batches; None if it is complete."""
        journal, sink = self._sink.journal, self._sink
        earlier_call = None if sink.is_gone() else journal.call
        if earlier_call is not None and batch_size == "auto":
            self.batch_rows = earlier_call["batch_rows"]
        else:
            self.batch_rows = self._auto_rows() if isinstance(batch_size, str) else int(batch_size)
        call = self._call()
        if earlier_call is not None and if_exists != "overwrite":
            state = "finished" if journal.finished else "unfinished"
            changed = difference(earlier_call, call)
            if changed is not None:
                raise ValueError(
                    f"{str(sink.place)!r} is the {state} output of another call: {changed}. Choose another "
                    "path, or pass if_exists='overwrite' to start anew"
                )
            if if_exists == "error":
                raise ValueError(
                    f"{str(sink.place)!r} is the {state} output of the same call: pass if_exists='resume' to "
                    "continue it, or if_exists='overwrite' to start anew"
                )
            if journal.finished is not None and sink.is_there(journal.finished):
                tidy(sink)  # the run may have ended just before it did
                return None
            journal.folder.take(call_digest(call))
            n_batches = sink.n_complete(self.batch_rows)
            if journal.finished is not None:  # some parts were deleted
                journal.begin(call)
            sink.open(self._schema, n_batches)
            return n_batches
        if earlier_call is not None and isinstance(batch_size, str):  # the output is overwritten
            self.batch_rows = self._auto_rows()
            call = self._call()
        journal.folder.take(call_digest(call))
        sink.clear()
        journal.begin(call)
        sink.open(self._schema, 0)
        return 0

    def _finished(self) -> tuple[list[str], int]:
        """Return the names of the files and the number of rows of a complete output."""
        facts = self._sink.journal.finished
        assert facts is not None
        return [name for name, _ in facts["files"]], facts["n_rows"]

    def _work_off(self, n_batches: int, progress: Any) -> tuple[list[str], int]:
        """Explain the rows after the first ``n_batches`` batches, and complete the output."""
        n_done = n_batches * self.batch_rows
        n_written = [n_done]

        def explain(explainer: SchemaExplainer, number: int, piece: Any) -> tuple[int, Any, Any]:
            n_rows = piece.shape[0]
            with self._naming_rows(n_batches + number, n_rows):
                return n_rows, explainer.kept_columns(piece), explainer.compute(piece)

        def encode(number: int, explained: tuple[int, Any, Any]) -> tuple[int, Any]:
            n_rows, kept_columns, values = explained
            with self._naming_rows(n_batches + number, n_rows):
                batch = self._output_batch(kept_columns, values)
            return n_rows, self._sink.prepare(n_batches + number, batch)

        def write(prepared: tuple[int, Any]) -> None:
            self._sink.write(prepared[1])
            n_written[0] += prepared[0]

        def report() -> None:
            if tracker is not None:
                tracker.done(n_written[0])

        pieces = self._source.read(self._columns, n_done, self.batch_rows)
        n_rows = self._source.n_rows
        try:
            steps = [partial(explain, explainer) for explainer in self._explainers(n_done)]
            with watched(progress, n_rows, n_done) as tracker:
                overlapped(
                    pieces,
                    steps if len(steps) > 1 else steps[0],
                    encode,
                    write,
                    report,
                    n_encoders=min(_ENCODERS_PER_GPU * self._n_gpus, os.cpu_count() or 1),
                    max_items=_BATCHES_IN_MEMORY * self._n_gpus,
                )
            if n_rows is not None and n_written[0] != n_rows:
                raise ValueError(
                    f"the source had {n_rows:,} rows, but {n_written[0]:,} were read: it was changed "
                    "meanwhile; explain it again"
                )
            names = self._sink.finish(n_written[0])
        finally:
            self._sink.close()
        self._sink.journal.finish({"n_rows": n_written[0], "files": self._sink.sizes(names)})
        tidy(self._sink)
        return names, n_written[0]

    def _explainers(self, n_done: int) -> list[SchemaExplainer]:
        """Return the explainers, one for each thread, that explain the rows after the first ``n_done``.

        A GPU has two explainers, so that one batch is read and checked while another is explained. With
        several GPUs, each gets entire batches if there are many. Otherwise there is one explainer, in the
        caller's thread: also for a pipeline, because its steps may not be thread-safe.
        """
        gpus = self._arguments.gpus(self.batch_rows)
        if not gpus or self._arguments.reader.steps:
            return [self.explainer]
        n_rows = self._source.n_rows
        n_batches = math.inf if n_rows is None else (n_rows - n_done) / self.batch_rows
        if len(gpus) == 1 or n_batches < _MIN_BATCHES_PER_GPU * len(gpus):
            return [self.explainer] * 2
        return [self.explainer.on_gpu(index) for index in gpus] * 2

    @property
    def _n_gpus(self) -> int:
        """Number of GPUs that the option ``device`` names; 1 if it names none."""
        return len(self._arguments.explainer._compiled.options.devices.indices) or 1

    def _output_batch(self, kept_columns: list[Any], values: Any) -> Any:
        """Return what the sink takes for a piece: an array of values, or a batch of all columns."""
        if self._row:
            return values.reshape(len(values), *self._row)
        kept_columns = [column.cast(field.type) for column, field in zip(kept_columns, self._schema)]
        return self.explainer.output_batch(kept_columns, values)

    @contextmanager
    def _naming_rows(self, number: int, n_rows: int) -> Iterator[None]:
        """Add to the messages of errors which rows of the source are in the batch."""
        start = number * self.batch_rows
        try:
            yield
        except Exception as error:
            if type(error) not in (ValueError, TypeError, RuntimeError, MemoryError):
                raise
            stop = start + n_rows
            raise type(error)(
                f"in rows {start:,} to {stop - 1:,} of the source, counted from row {start:,}: {error}"
            ) from error

    def _auto_rows(self) -> int:
        limit = self._arguments.explainer.memory_limit
        budget = (
            _BATCH_BYTES
            if limit is None
            else min(_BATCH_BYTES, limit // (2 * _BATCHES_IN_MEMORY * self._n_gpus))
        )
        # The rows are in memory twice, as read and as one block; the values too, as computed and as columns.
        n_values = math.prod(self.explainer.row_shape)
        row = 2 * self._source.row_bytes(self._columns) + 2 * n_values * 8
        rows = min(max(budget // max(row, 1), 1), _MAX_ROWS)
        return rows - rows % _BATCH_MULTIPLE if rows > _BATCH_MULTIPLE else rows

    def _call(self) -> dict[str, Any]:
        """Return everything that determines the bits of the output, in a JSON-compatible form."""
        on_gpus, names = self._arguments.gpus(self.batch_rows), self.explainer.names
        return {
            "model": fingerprint(self._arguments.explainer),
            "options": self._arguments.as_json() | {"features": names and list(names)},
            "source": self._source.fingerprint(self._columns),
            "columns": columns_written(self._schema),
            "sink": self._sink.kind,
            "batch_rows": self.batch_rows,
            "device": "cuda" if on_gpus else f"cpu, {_core.instruction_set()}",
            "skshapgpu": __version__,
        }
