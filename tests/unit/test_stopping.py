"""A stream stops between two batches, never in one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from lazaretto.jobs.stopping import StopRequestedError, StopSwitch

WAIT_S = 10


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Whatever a test does, the runner keeps its own handlers."""
    before = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_batches_run_as_long_as_nobody_asks() -> None:
    switch = StopSwitch()
    done = []
    for number in range(3):
        with switch.batch():
            done.append(number)
    assert done == [0, 1, 2]
    assert not switch.asked


def test_asked_before_a_batch_it_does_not_begin() -> None:
    switch = StopSwitch()
    switch.ask()
    begun = False
    with pytest.raises(StopRequestedError), switch.batch():
        begun = True
    assert not begun
    assert not switch.between_batches.locked()


def test_asked_during_a_batch_it_ends_and_the_next_does_not_begin() -> None:
    switch = StopSwitch()
    with switch.batch():
        switch.ask()
        ended = True
    assert ended
    with pytest.raises(StopRequestedError), switch.batch():
        pytest.fail("a batch began after the stop was asked for")


def test_a_batch_does_not_wait_for_who_is_stopping_the_query() -> None:
    """Spark ends a query only when the batch function has returned: waiting for each other would be for ever."""
    switch = StopSwitch()
    ended = threading.Event()

    def next_batch() -> None:
        with pytest.raises(StopRequestedError), switch.batch():
            pytest.fail("a batch began after the stop was asked for")
        ended.set()

    with switch.between_batches:
        waiting = threading.Thread(target=next_batch, daemon=True)
        waiting.start()
        assert not ended.wait(0.2)
        switch.ask()
        assert ended.wait(WAIT_S)
    waiting.join(WAIT_S)


def test_a_stop_is_no_known_failure() -> None:
    from lazaretto.errors import LazarettoError

    assert not issubclass(StopRequestedError, LazarettoError)


def test_the_lock_is_held_during_a_batch_only() -> None:
    switch = StopSwitch()
    assert not switch.between_batches.locked()
    with switch.batch():
        assert switch.between_batches.locked()
    assert not switch.between_batches.locked()


def test_a_failing_batch_lets_the_lock_go_and_its_error_through() -> None:
    switch = StopSwitch()
    with pytest.raises(ZeroDivisionError), switch.batch():
        raise ZeroDivisionError
    assert not switch.between_batches.locked()
    assert not switch.asked


def test_who_stops_the_query_waits_for_the_batch() -> None:
    switch, order = StopSwitch(), []
    begun, go_on = threading.Event(), threading.Event()

    def batch() -> None:
        with switch.batch():
            begun.set()
            assert go_on.wait(WAIT_S)
            order.append("batch")

    def stop() -> None:
        switch.ask()
        with switch.between_batches:
            order.append("stop")

    threads = [threading.Thread(target=batch)]
    threads[0].start()
    assert begun.wait(WAIT_S)
    threads.append(threading.Thread(target=stop))
    threads[1].start()
    threads[1].join(0.05)
    assert threads[1].is_alive()
    go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert order == ["batch", "stop"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_and_the_batch_ends(number: signal.Signals) -> None:
    switch = StopSwitch()
    with switch.on_signals():
        with switch.batch():
            os.kill(os.getpid(), number)
            assert switch.asked
            ended = True
        with pytest.raises(StopRequestedError), switch.batch():
            pytest.fail("a batch began after the signal")
    assert ended


def test_a_second_interrupt_acts_as_always() -> None:
    switch = StopSwitch()
    with switch.on_signals():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_second_sigterm_changes_nothing() -> None:
    switch = StopSwitch()
    with switch.on_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    assert switch.asked


@pytest.mark.parametrize("fails", [False, True])
def test_the_handlers_of_before_are_back(fails: bool) -> None:
    heard: list[int] = []

    def mine(number: int, frame: object) -> None:
        heard.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, mine)
    try:
        with StopSwitch().on_signals():
            assert signal.getsignal(signal.SIGTERM) is not mine
            if fails:
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert fails
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    assert heard == [signal.SIGTERM, signal.SIGINT]
