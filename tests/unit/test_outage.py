"""Waiting out an outage, by a clock that is only told to go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lazaretto.errors import LazarettoError, SinkError, SourceError
from lazaretto.jobs.outage import LONGEST_PAUSE_S, through_outages
from lazaretto.jobs.run import Run


class Sea:
    """The work, the clock and the log of one case."""

    def __init__(self, *outcomes: LazarettoError | str, stop_at: int = 0) -> None:
        self.outcomes, self.at, self.pauses, self.told, self.done = list(outcomes), 0.0, list[float](), list[Any](), 0
        self.stop_at = stop_at

    def work(self) -> str:
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, LazarettoError):
            raise outcome
        return outcome

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.at += seconds
        return len(self.pauses) == self.stop_at

    def run(self, patience_s: float = 300, progress: Callable[[], int] = lambda: 0) -> str:
        log: Any = type("Log", (), {"warning": lambda _, event, **keys: self.told.append((event, keys))})()
        return through_outages(
            self.work, Run(log), dataset="orders", patience_s=patience_s, progress=progress, pause=self.pause,
            now=lambda: self.at,
        )  # fmt: skip


AWAY = SourceError("the broker does not answer", passing=True)
FULL = SinkError("the disk is full", passing=True)


def test_it_goes_on_when_the_outage_is_over() -> None:
    sea = Sea(AWAY, FULL, AWAY, "done")
    assert sea.run() == "done"
    assert [round(p) for p in sea.pauses] == pytest.approx([1, 2, 4], abs=1)
    assert [(event, keys["error_class"]) for event, keys in sea.told] == [
        ("outage", "upstream_unavailable"), ("outage", "sink_failure"), ("outage", "upstream_unavailable"),
    ]  # fmt: skip
    assert "the disk is full" in sea.told[1][1]["error"]


def test_what_does_not_pass_is_raised_at_once() -> None:
    sea = Sea(SinkError("the stage is damaged"), "done")
    with pytest.raises(SinkError, match="damaged"):
        sea.run()
    assert sea.pauses == []


@pytest.mark.parametrize("patience_s", [0, 30, 3600])
def test_patience_ends_and_never_a_pause_too_late(patience_s: float) -> None:
    sea = Sea(AWAY)
    with pytest.raises(SourceError):
        sea.run(patience_s)
    assert sea.at <= patience_s
    assert sea.at > patience_s - 2.5 * LONGEST_PAUSE_S
    assert all(p <= 1.2 * LONGEST_PAUSE_S for p in sea.pauses)


def test_progress_gives_new_patience() -> None:
    sea = Sea(AWAY)
    with pytest.raises(SourceError):
        sea.run(30, progress=lambda: min(len(sea.pauses), 20) // 4)
    assert sea.at > 60


def test_a_stop_ends_the_waiting() -> None:
    sea = Sea(AWAY, stop_at=2)
    with pytest.raises(SourceError):
        sea.run()
    assert len(sea.pauses) == 2
