"""Wait out what may pass by itself: a broker that is away, a disk that is full. Nothing is held, nothing given up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from lazaretto.errors import LazarettoError
from lazaretto.jobs.run import Run

T = TypeVar("T")

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
_JITTER = 0.2


def _nap(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def through_outages(
    work: Callable[[], T],
    run: Run,
    *,
    dataset: str,
    patience_s: float,
    progress: Callable[[], int] = lambda: 0,
    pause: Callable[[float], bool] = _nap,
    now: Callable[[], float] = time.monotonic,
) -> T:
    """What `work` gives; it is done again after every error that may pass by itself.

    Pauses double from 1 s to a minute, +-20 %. Each is told in the log.

    Args:
        patience_s: seconds without progress after which the error is raised; 0 to raise it at once.
        progress: a number that grows when something was achieved meanwhile; patience then begins anew.
        pause: sleeps, and says whether to give up because a stop was asked for.

    Raises:
        LazarettoError: any other error at once, and the last one when patience is at its end.
    """
    seconds, since, reached = FIRST_PAUSE_S, None, progress()
    while True:
        try:
            return work()
        except LazarettoError as exc:
            if not exc.passing:
                raise
            at = now()
            if since is None or progress() > reached:
                seconds, since, reached = FIRST_PAUSE_S, at, progress()
            nap = seconds * random.uniform(1 - _JITTER, 1 + _JITTER)
            if at + nap - since > patience_s:
                raise
            run.log.warning(
                "outage", dataset=dataset, error=str(exc), error_class=exc.error_class, retry_after_s=round(nap, 1)
            )
            if pause(nap):
                raise
            seconds = min(2 * seconds, LONGEST_PAUSE_S)
