"""Stop a stream between two batches, never in one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_POLL_S = 0.05


class StopRequestedError(Exception):
    """Raised at the start of a batch that must not begin any more; ends the query, and is no failure."""


class StopSwitch:
    """Asked to stop from a signal handler; asked whether to go on by the batch function.

    `between_batches` is the lock that a running batch holds, so that whoever stops the query can wait for its end.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self.between_batches = threading.Lock()

    def ask(self) -> None:
        """Begin no further batch."""
        self._asked.set()

    def wait(self, seconds: float) -> bool:
        """Sleep, at most so long; whether a stop was asked for."""
        return self._asked.wait(seconds)

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Around one batch. Raises StopRequestedError when a stop was asked for before it began."""
        # Never waits once a stop is asked for: who stops the query holds the lock, and waits for this very call to end.
        while not self.between_batches.acquire(timeout=_POLL_S):
            if self.asked:
                raise StopRequestedError
        try:
            if self.asked:
                raise StopRequestedError
            yield
        finally:
            self.between_batches.release()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT ask to stop; a second SIGINT acts as it always does."""
        previous = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)}

        def handle(number: int, frame: FrameType | None) -> None:
            if self.asked and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.ask()

        for number in previous:
            signal.signal(number, handle)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
