"""scikit-learn's callbacks of ``fit``, which are experimental. Releases before 1.9 have no callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from sklearn.frozen import FrozenEstimator

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """A base class without callbacks."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method itself."""
        return method


class Tasks:
    """Tasks of a ``fit`` that :func:`with_callbacks` wraps, which are reported to the callbacks.

    ``n_tasks`` is the number of calls of :meth:`task` before :meth:`end`; X and y are the training data.
    """

    def __init__(self, owner: Any, X: Any, y: Any, n_tasks: int) -> None:
        self._about = {"estimator": owner, "X": X, "y": y}
        self._context = None
        if hasattr(owner, "_init_callback_context"):
            self._context = owner._init_callback_context(max_subtasks=n_tasks)
            self._context.call_on_fit_task_begin(**self._about)

    @contextmanager
    def task(self, name: str, model: Any = None) -> Iterator[None]:
        """Report a task. If it fits a model that supports callbacks, pass the callbacks on to the model."""
        if self._context is None:
            yield
            return
        context = self._context.subcontext(task_name=name)
        passes_on = hasattr(model, "set_callbacks") and not isinstance(model, FrozenEstimator)
        with context.propagate_callback_context(model) if passes_on else nullcontext():
            context.call_on_fit_task_begin(**self._about)
            yield
            context.call_on_fit_task_end(**self._about)

    def end(self) -> None:
        """Report that all work is done."""
        if self._context is not None:
            self._context.call_on_fit_task_end(**self._about)
