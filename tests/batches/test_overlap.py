"""Reading, explaining, encoding and writing at once: order, errors, interrupts, items in memory."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers.kernels import interrupted
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import TreeExplainer
from skshapgpu._common.interrupts import Stopped, check, stoppable
from skshapgpu.batches.overlap import overlapped

X, Y = load_diabetes(return_X_y=True)


class Killed(BaseException):
    """Exception that no handler catches."""


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("skshapgpu")]


def as_it_is(_: int, item: Any) -> Any:
    return item


def nothing() -> None:
    pass


def in_turn(seconds: float = 0.0005) -> Callable[[int, int], int]:
    """Return a step that takes longer for some items, so that threads finish in another order."""

    def step(number: int, item: int) -> int:
        assert item == number
        time.sleep(seconds * (number * 7 % 5))
        return item

    return step


@pytest.mark.parametrize("n_encoders", [1, 3])
@pytest.mark.parametrize("n_explainers", [None, 1, 4])
@pytest.mark.parametrize("max_items", [1, 2, 6])
def test_order_and_few_items(n_explainers: int | None, n_encoders: int, max_items: int) -> None:
    lock, alive, most = threading.Lock(), 0, 0
    threads: list[str] = []

    def items() -> Iterator[int]:
        nonlocal alive, most
        for i in range(120):
            with lock:
                alive += 1
                most = max(most, alive)
            yield i

    written: list[int] = []

    def explain(number: int, item: int) -> int:
        threads.append(threading.current_thread().name)
        return in_turn()(number, item)

    def write(item: int) -> None:
        nonlocal alive
        written.append(item)
        with lock:
            alive -= 1

    steps = explain if n_explainers is None else [explain] * n_explainers
    overlapped(items(), steps, in_turn(), write, nothing, n_encoders=n_encoders, max_items=max_items)
    assert written == list(range(120))
    assert most <= max_items
    caller = threading.current_thread().name
    assert threads[0] == caller
    assert set(threads[1:]) == {caller if n_explainers is None else "skshapgpu-explainer"}


def test_the_stages_overlap() -> None:
    """The second item is read while the first is processed, and the third while the first is written."""
    second, third = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield 0
        second.set()
        yield 1
        third.set()
        yield 2

    def work(_: int, item: int) -> int:
        assert item or second.wait(20)
        return item

    def write(item: int) -> None:
        assert item or third.wait(20)

    overlapped(items(), work, as_it_is, write, nothing)


def test_several_threads_explain_and_encode_at_once() -> None:
    """From the second item on, each step waits until all of its threads have arrived."""
    explaining, encoding = threading.Barrier(3), threading.Barrier(3)

    def wait(barrier: threading.Barrier) -> Callable[[int, int], int]:
        def step(number: int, item: int) -> int:
            if number:
                barrier.wait(20)
            return item

        return step

    written: list[int] = []
    steps = [wait(explaining)] * 3
    overlapped(iter(range(13)), steps, wait(encoding), written.append, nothing, n_encoders=3, max_items=13)
    assert written == list(range(13))


@pytest.mark.parametrize("stage", ["read", "explain", "encode", "write"])
@pytest.mark.parametrize("n_explainers", [None, 3])
def test_items_before_an_error_are_written(stage: str, n_explainers: int | None) -> None:
    """The error of the first item that fails is raised, even if a later item fails earlier."""

    def failing(name: str, step: Callable[[int, int], int]) -> Callable[[int, int], int]:
        def function(number: int, item: int) -> int:
            if stage == name and number in (17, 19):
                time.sleep(0.02 * (number == 17))
                raise Killed(number)
            return step(number, item)

        return function

    def items() -> Iterator[int]:
        for i in range(60):
            yield failing("read", as_it_is)(i, i)

    written: list[int] = []

    def write(item: int) -> None:
        failing("write", as_it_is)(item, item)
        written.append(item)

    explain = failing("explain", in_turn())
    steps = explain if n_explainers is None else [explain] * n_explainers
    with pytest.raises(Killed, match="17"):
        overlapped(items(), steps, failing("encode", in_turn()), write, nothing, n_encoders=3)
    assert written == list(range(17))


@pytest.mark.parametrize("n_explainers", [None, 3])
def test_an_error_of_the_caller(n_explainers: int | None) -> None:
    """The explained items are written, without a gap."""
    explained, written = [], []

    def explain(number: int, item: int) -> int:
        in_turn()(number, item)
        explained.append(number)
        return item

    def done() -> None:
        if len(written) >= 5:
            raise KeyboardInterrupt

    steps = explain if n_explainers is None else [explain] * n_explainers
    with pytest.raises(KeyboardInterrupt):
        overlapped(itertools.count(), steps, in_turn(), written.append, done, n_encoders=2)
    assert written == list(range(len(written)))
    assert 5 <= len(written) <= len(explained) <= len(written) + 6


@pytest.mark.parametrize("in_threads", [False, True])
def test_ctrl_c_ends_long_calls(in_threads: bool) -> None:
    model = RandomForestRegressor(100, max_depth=10, random_state=0).fit(X, Y)
    explainer = TreeExplainer(model, device="cpu", algorithm="quadrature")
    rows, written = np.tile(X, (2000, 1)), []

    def explain(number: int, item: int) -> Any:
        return explainer.shap_values(rows)

    steps = [explain, explain] if in_threads else explain
    with interrupted(0.5):
        overlapped(itertools.count(), steps, as_it_is, written.append, nothing)
    assert not written


def test_events_of_a_thread_and_of_the_threads_that_it_starts() -> None:
    outer, inner = threading.Event(), threading.Event()
    of_inner = stoppable(outer, lambda: stoppable(inner, check))()
    of_inner()
    for event in (inner, outer):
        event.set()
        with pytest.raises(Stopped):
            of_inner()
        event.clear()
    outer.set()
    check()  # of this thread, which has no event
