"""Overlapping of reading, explaining, encoding and writing, in threads that hand on items.

Items are numbered in the order in which they are read. If a stage fails for an item, all items before it are
still written and no item after it, so that an output has no gap. An item is read only when fewer than
``max_items`` items are read and not yet written, so memory is bounded whichever stage is slowest.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Condition, Event, Thread
from typing import Any

from .._common.interrupts import stoppable

#: Seconds to wait for the user's iterator if it is still running when a run has failed. Its thread ends after
#: its next item, and never keeps the process alive.
_PATIENCE = 10.0

#: Seconds after which the caller's thread wakes: on Windows, Ctrl-C does not end its waiting.
_LONGEST_WAIT = 0.5

#: Function of an item's number and content.
Step = Callable[[int, Any], Any]


class _Line:
    """The items between the stages.

    ``n_written`` items are written. ``error`` is the error because of which no more items are written; None
    if there is none.
    """

    def __init__(self, max_items: int, n_encoders: int) -> None:
        self._changed = Condition()
        self._max_items = max_items
        self._end = math.inf  # number of the first item that is not to be written
        self._read: deque[Any] = deque()
        self._n_taken = 0  # items that explainers have taken
        self._explained: dict[int, Any] = {}
        self._n_encoded = 0  # items that encoders have taken
        self._n_idle = 0  # encoders that wait for an item
        self._n_startable = n_encoders - 1  # encoders that may still be started
        self.n_written = 0
        self.error: BaseException | None = None

    def end(self, number: int, error: BaseException | None = None) -> None:
        """Declare that no item from ``number`` on is to be written, at the end or because of an error."""
        with self._changed:
            if number < self._end:
                self._end, self.error = number, error
                self._changed.notify_all()

    def stop(self) -> None:
        """End before the first item that is not explained."""
        with self._changed:
            number = self._n_encoded
            while number in self._explained:
                number += 1
            self.end(number)

    def is_wanted(self, number: int) -> bool:
        """Wait until an item may be read; return False if it is not to be read."""
        with self._changed:
            self._changed.wait_for(lambda: number < self.n_written + self._max_items or number >= self._end)
            return number < self._end

    def put(self, item: Any) -> None:
        """Hand over the next item that was read."""
        with self._changed:
            self._read.append(item)
            self._changed.notify_all()

    def take(self) -> tuple[int, Any] | None:
        """Wait for the next item to explain; return None if there are no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._read or self._n_taken >= self._end)
            if self._n_taken >= self._end:
                return None
            self._n_taken += 1
            return self._n_taken - 1, self._read.popleft()

    def put_explained(self, number: int, result: Any) -> bool:
        """Hand over an explained item, and return whether to start another encoder."""
        with self._changed:
            self._explained[number] = result
            self._changed.notify_all()
            if len(self._explained) <= self._n_idle or not self._n_startable:
                return False
            self._n_startable -= 1
            return True

    def take_explained(self) -> tuple[int, Any] | None:
        """Wait for the next item to encode; return None if there are no more."""
        with self._changed:
            self._n_idle += 1
            self._changed.wait_for(lambda: self._n_encoded in self._explained or self._n_encoded >= self._end)
            self._n_idle -= 1
            if self._n_encoded >= self._end:
                return None
            self._n_encoded += 1
            return self._n_encoded - 1, self._explained.pop(self._n_encoded - 1)

    def is_next(self, number: int) -> bool:
        """Wait until all earlier items are written; return False if an item is not to be written."""
        with self._changed:
            self._changed.wait_for(lambda: number == self.n_written or number >= self._end)
            return number < self._end

    def written(self) -> None:
        """Declare that the next item is written."""
        with self._changed:
            self.n_written += 1
            self._changed.notify_all()

    def wait(self, n_written: int) -> bool:
        """Wait until more than ``n_written`` items are written; return False after the last one."""
        with self._changed:
            while n_written >= self.n_written < self._end:
                self._changed.wait(_LONGEST_WAIT)
            return self.n_written < self._end


def _explain_next(line: _Line, function: Step, add_encoder: Callable[[], None]) -> bool:
    """Explain the next item of the line; return False if there is none, or if the function fails."""
    numbered_item = line.take()
    if numbered_item is None:
        return False
    number = numbered_item[0]
    try:
        result = function(*numbered_item)
    except BaseException as error:
        line.end(number, error)
        return False
    del numbered_item
    if line.put_explained(number, result):
        with suppress(RuntimeError):  # no thread can be started: the running encoders do the work
            add_encoder()
    return True


def overlapped(
    items: Iterator[Any],
    explain: Step | Sequence[Step],
    encode: Step,
    write: Callable[[Any], None],
    done: Callable[[], None],
    *,
    n_encoders: int = 1,
    max_items: int = 6,
) -> None:
    """Call ``write(encode(number, explain(number, item)))`` for each item.

    Items are read in a thread of its own, and at most ``max_items`` of them are in memory at the same time.
    ``explain`` is called in the caller's thread; each function of a sequence in a thread of its own, after
    the caller's thread has called one of them for the first item. For this item, the values are compared with
    the model's predictions, and only the main thread can ignore the warnings of ``predict``.
    ``encode`` is called in up to ``n_encoders`` threads at the same time, and ``write`` in the threads of
    ``encode``, for one item after the other, in order. ``done`` is called in the caller's thread again and
    again, and once at the end.

    Raise the error of the first item for which a function failed; all items before it are written. If
    ``done`` fails, raise its error; all items that were explained before are written.
    """
    line, stop = _Line(max_items, n_encoders), Event()
    encoders: list[Thread] = []
    other_threads: list[Thread] = []

    def add_encoder() -> None:
        encoders.append(_started("writer", _encode_all, line, encode, write))

    def explain_next(function: Step) -> bool:
        return _explain_next(line, function, add_encoder)

    def explain_all(function: Step) -> None:
        while explain_next(function):
            pass

    try:
        reader = _started("reader", _feed, items, line)
        other_threads.append(reader)
        add_encoder()
        if callable(explain):
            while explain_next(explain):
                done()
        elif explain_next(explain[0]):
            for function in explain:
                other_threads.append(_started("explainer", stoppable(stop, explain_all), function))
        n_written = 0
        while line.wait(n_written):
            n_written = line.n_written
            done()
    except BaseException:
        line.stop()
        raise
    finally:
        stop.set()  # items that are still being explained are not wanted
        for thread in other_threads[1:] + encoders:
            thread.join()
        for thread in other_threads[:1]:
            thread.join(_PATIENCE)
    if line.error is not None:
        raise line.error
    done()


def _started(name: str, function: Callable[..., None], *arguments: Any) -> Thread:
    thread = Thread(target=function, args=arguments, name=f"skshapgpu-{name}", daemon=True)
    thread.start()
    return thread


def _feed(items: Iterator[Any], line: _Line) -> None:
    number, error = 0, None
    try:
        while line.is_wanted(number):
            line.put(next(items))
            number += 1
    except StopIteration:
        pass
    except BaseException as raised:
        error = raised
    finally:
        try:
            if hasattr(items, "close"):
                items.close()
        finally:
            line.end(number, error)


def _encode_all(line: _Line, encode: Step, write: Callable[[Any], None]) -> None:
    while (numbered_result := line.take_explained()) is not None:
        number = numbered_result[0]
        try:
            encoded = encode(*numbered_result)
            del numbered_result
            if not line.is_next(number):
                return
            write(encoded)
            del encoded
            line.written()
        except BaseException as error:
            line.end(number, error)
            return
