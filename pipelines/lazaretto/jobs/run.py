"""One run of a job: who it is, when it is, and where it tells about itself."""

from __future__ import annotations

import getpass
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from lazaretto.commit import Batch, BatchKind


class Log(Protocol):
    """What a job needs of a structured logger: events with keys, never free text from a record."""

    def info(self, event: str, **keys: Any) -> Any: ...
    def warning(self, event: str, **keys: Any) -> Any: ...
    def error(self, event: str, **keys: Any) -> Any: ...


def system_clock() -> datetime:
    """Now, zone-aware."""
    return datetime.now(UTC)


def current_operator() -> str:
    """The account this process runs under; `unknown` where the system cannot say."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


@dataclass(frozen=True)
class Run:
    """Passed through a job instead of globals.

    Attributes:
        log: bound to this run. operator: in whose name decisions are audited.
        run_id: of this process' run. correlation_id: given by whoever started it, else the run's own id.
    """

    log: Log
    operator: str = field(default_factory=current_operator)
    clock: Callable[[], datetime] = system_clock
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    correlation_id: str = ""

    @property
    def correlation(self) -> str:
        """The id that follows this run across systems."""
        return self.correlation_id or self.run_id

    def batch(self, dataset: str, batch_id: str, kind: BatchKind) -> Batch:
        """A batch of this run, beginning now."""
        return Batch(dataset, batch_id, kind, self.run_id, self.correlation, self.clock())
