"""Progress of long calls: a progress bar, or a callback that receives the number of finished rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

#: Minimum number of rows before the first report and between reports; reporting more often costs too much.
_LEAST_ROWS = 128

#: Approximate minimum and maximum seconds between two reports: often enough for a bar to move.
_SECONDS = (0.1, 0.4)

Report = Callable[[int, int | None], object]


class ProgressTracker:
    """The progress of a call: the number of finished rows and the total, which is None if unknown.

    Rows are computed in steps, whose size follows the measured speed. The size does not affect the values,
    because the values of a row do not depend on other rows.
    """

    def __init__(self, n_rows: int | None, report: Report) -> None:
        self._n_rows, self._report = n_rows, report
        self._most_reported = -1
        self.step = _LEAST_ROWS  # rows to compute before the next call of :meth:`done`
        self._last = perf_counter()

    def done(self, n_rows: int) -> None:
        """Record the number of finished rows, and report it if it is a new maximum.

        A call that starts anew on another device counts from 0 again.
        """
        now = perf_counter()
        seconds, self._last = now - self._last, now
        if seconds < _SECONDS[0]:
            self.step *= 2
        elif seconds > _SECONDS[1]:
            self.step = max(_LEAST_ROWS, self.step // 2)
        if n_rows > self._most_reported:
            self._most_reported = n_rows
            self._report(n_rows, self._n_rows)


def require_progress(progress: Any) -> None:
    """Raise an error for an invalid value of the option ``progress``, before any work starts.

    Raise ``TypeError`` if it is neither a boolean nor callable. Raise ``ImportError`` if a bar is requested,
    but no library that can draw it is installed.
    """
    if progress is True:
        _bar_library()
    elif progress is not False and progress is not None and not callable(progress):
        raise TypeError(f"progress must be True, False or a function of two numbers, not {progress!r}")


@contextmanager
def watched(
    progress: Any, n_rows: int | None, n_before: int = 0, *, title: str = "explaining", unit: str = "rows"
) -> Iterator[ProgressTracker | None]:
    """Yield the progress of a call, with a bar if ``progress`` is True; yield None if progress is off.

    ``n_rows`` is None if unknown. ``n_before`` rows were done by an earlier call. The bar shows ``title`` and
    ``unit``, which need not be rows.
    """
    if not progress or n_rows == 0:
        yield None
    elif progress is not True:
        yield ProgressTracker(n_rows, progress)
    elif _bar_library() == "tqdm":
        with _tqdm_bar(n_rows, n_before, title, unit) as report:
            yield ProgressTracker(n_rows, report)
    else:
        with _rich_bar(n_rows, n_before, title, unit) as report:
            yield ProgressTracker(n_rows, report)


def _bar_library() -> str:
    for name in ("tqdm", "rich"):
        try:
            __import__(name)
        except ImportError:
            continue
        return name
    raise ImportError("progress=True draws a bar with tqdm or rich: pip install tqdm")


@contextmanager
def _tqdm_bar(n_rows: int | None, n_before: int, title: str, unit: str) -> Iterator[Report]:
    from tqdm.auto import tqdm

    with tqdm(total=n_rows, initial=n_before, desc=title, unit=f" {unit}", unit_scale=unit == "rows") as bar:
        yield lambda done, _: bar.update(done - bar.n)


@contextmanager
def _rich_bar(n_rows: int | None, n_before: int, title: str, unit: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TextColumn

    start = perf_counter()
    columns = [*Bar.get_default_columns(), TextColumn("{task.fields[speed]}")]
    with Bar(*columns, console=Console(stderr=True)) as bar:  # to stderr, as tqdm does: stdout is for results
        task = bar.add_task(title, total=n_rows, completed=n_before, speed="")

        def report(done: int, _: int | None) -> None:
            speed = (done - n_before) / max(perf_counter() - start, 1e-9)
            bar.update(task, completed=done, speed=f"{speed:,.0f} {unit}/s")

        yield report
