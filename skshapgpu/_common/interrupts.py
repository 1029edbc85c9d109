"""Ends of calls in threads other than the main thread, which Ctrl-C does not reach."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from threading import Event
from typing import TypeVar

T = TypeVar("T")

#: Events that end the calls of a thread.
_events: ContextVar[tuple[Event, ...]] = ContextVar("_events", default=())


class Stopped(BaseException):
    """Signal that a call ended because its result is no longer wanted."""


def stoppable(event: Event, function: Callable[..., T]) -> Callable[..., T]:
    """Return a function, for another thread, that ends with ``Stopped`` soon after the event is set.

    The function can run once, in a copy of the current context. So it also ends when an event of this thread
    is set.
    """
    context = copy_context()
    context.run(_events.set, (*_events.get(), event))
    return partial(context.run, function)


def check() -> None:
    """Raise ``Stopped`` if the calls of this thread are to end; the core calls this periodically."""
    if any(event.is_set() for event in _events.get()):
        raise Stopped
