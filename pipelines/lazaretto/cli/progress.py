"""Progress on stderr: a live line on a terminal, plain lines elsewhere, nothing under `--json`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.status import Status

from lazaretto.cli.context import Context
from lazaretto.commit import Moment, Step

_DOING = {
    Step.STAGE: "screening and staging",
    Step.GATE: "asking the batch rules",
    Step.PROBE: "looking for duplicates",
    Step.QUARANTINE: "holding the invalid",
    Step.BRONZE: "landing the valid",
    Step.LEDGER: "writing the ledger",
}


class Progress:
    """Shows which step of which batch is going on, and how long it has been at it."""

    def __init__(self, context: Context) -> None:
        self._console = context.notes
        self._silent = context.json
        self._status: Status | None = None
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._silent:
            self._status = self._console.status("starting")
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, text: str) -> None:
        """What is going on now; a line of its own where there is no live one."""
        if self._silent:
            return
        if self._status is not None:
            self._console.print(f"  {text}", markup=False)
            self._status.update(text)
        else:
            self._console.print(f"{self._elapsed()} {text}", markup=False)

    def on_step(self, step: Step, info: Mapping[str, Any]) -> None:
        """A step of the batch protocol has begun or ended."""
        if self._status is None or info.get("when") != Moment.BEFORE:
            return
        self._status.update(f"batch {info.get('batch_id')}: {_DOING[step]} ({self._elapsed()})")

    def _elapsed(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60}:{seconds % 60:02d}"
