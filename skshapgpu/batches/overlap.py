"""Overlapping of reading, explaining and writing, with two threads in addition to the caller's.

At most one item waits between two threads, so memory is bounded whichever of them is slowest. A thread that
fails or ends wakes the others, so that none of them waits forever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Condition, Thread
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Seconds to wait for the user's iterator if it is still running when a run has failed. Its thread ends after
#: its next item, and never keeps the process alive.
_PATIENCE = 10.0


class Ended(Exception):
    """Signal that there are no more items, or that the consumer has stopped."""


class Channel(Generic[T]):
    """Queue that hands items from one thread to another, one at a time."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._items: list[T] = []
        self._closed = self._abandoned = False
        self._error: BaseException | None = None

    def put(self, item: T) -> None:
        """Hand over an item, after waiting for space. Raise ``Ended`` if the consumer has stopped."""
        with self._changed:
            self._changed.wait_for(lambda: not self._items or self._abandoned)
            if self._abandoned:
                raise Ended
            self._items.append(item)
            self._changed.notify_all()

    def get(self) -> T:
        """Wait for an item. After the last one, raise ``Ended``, or the exception of the producer."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closed)
            if not self._items:
                raise Ended if self._error is None else self._error
            item = self._items.pop()
            self._changed.notify_all()
            return item

    def close(self, error: BaseException | None = None) -> None:
        """Declare that there are no more items."""
        with self._changed:
            self._closed, self._error = True, self._error or error
            self._changed.notify_all()

    def abandon(self, error: BaseException | None = None) -> None:
        """Declare that the consumer takes no more items."""
        with self._changed:
            self._abandoned, self._error = True, self._error or error
            self._items.clear()
            self._changed.notify_all()

    @property
    def error(self) -> BaseException | None:
        """Exception with which the producer or the consumer failed, or None."""
        return self._error


def overlapped(
    items: Iterator[Any], work: Callable[[Any], Any], write: Callable[[Any], None], done: Callable[[], None]
) -> None:
    """Call ``write(work(item))`` for each item, in order.

    Parameters
    ----------
    items : iterator
        Read in a thread of its own.
    work : callable
        Called in the caller's thread.
    write : callable
        Called in a thread of its own.
    done : callable
        Called in the caller's thread after each item, and once at the end.

    Raises
    ------
    BaseException
        Any error that one of them raises. Items that were finished by ``work`` before are written.
    """
    unread: Channel[Any] = Channel()
    unwritten: Channel[Any] = Channel()
    reader = Thread(target=_feed, args=(items, unread), name="skshapgpu-reader", daemon=True)
    writer = Thread(target=_drain, args=(unwritten, write), name="skshapgpu-writer", daemon=True)
    started: list[Thread] = []
    try:
        for thread in (reader, writer):
            thread.start()
            started.append(thread)
        while True:
            try:
                item = unread.get()
            except Ended:
                break
            result = work(item)
            del item
            try:
                unwritten.put(result)
            except Ended:
                break
            del result
            done()
    finally:
        unread.abandon()
        unwritten.close()
        if writer in started:
            writer.join()
        if reader in started:
            reader.join(_PATIENCE)
    if unwritten.error is not None:
        raise unwritten.error
    done()


def _feed(items: Iterator[Any], unread: Channel[Any]) -> None:
    error = None
    try:
        for item in items:
            unread.put(item)
            del item
    except Ended:
        pass
    except BaseException as raised:
        error = raised
    finally:
        try:
            if hasattr(items, "close"):
                items.close()
        finally:
            unread.close(error)


def _drain(unwritten: Channel[Any], write: Callable[[Any], None]) -> None:
    try:
        while True:
            write(unwritten.get())
    except Ended:
        pass
    except BaseException as error:
        unwritten.abandon(error)
