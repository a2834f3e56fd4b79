"""The values of a commit: what is asked, what was decided, what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from lazaretto.config import DatasetSettings, DedupeTable, DedupeWindow, OnFailure, OnMatch
from lazaretto.contracts import Contract, Kind, quoted
from lazaretto.errors import ConfigurationError


class BatchKind(StrEnum):
    """What cut the batch: a micro-batch of a stream, a file manifest, or a replay of held records.

    RESTART holds no records: a stream was begun anew by the ledger, and its row says with which gap.
    """

    STREAM = "stream"
    MANIFEST = "manifest"
    REPLAY = "replay"
    RESTART = "restart"


class Status(StrEnum):
    """How an attempt ended, as written to the ledger."""

    COMMITTED = "committed"
    REJECTED = "rejected"
    FAILED = "failed"


class Step(StrEnum):
    """The steps of the batch protocol, in order."""

    STAGE = "stage"
    GATE = "gate"
    PROBE = "probe"
    QUARANTINE = "quarantine"
    BRONZE = "bronze"
    LEDGER = "ledger"


class Moment(StrEnum):
    """Where in a step the `on_step` callback is called; `info["when"]`.

    WRITTEN: the step's data is durable, but the step has not been confirmed: Parquet without its manifest, a table
    commit that has not been checked, a ledger row whose stage still lies there. Steps that write nothing skip it.
    """

    BEFORE = "before"
    WRITTEN = "written"
    AFTER = "after"


OnStep: TypeAlias = Callable[[Step, Mapping[str, Any]], None]
"""Called around every step with `{"when": Moment, "dataset": ..., "batch_id": ..., ...counts}`.

What it raises ends the attempt. Progress, logs, a lease check before each write, and failpoints hang here.
"""

Clock: TypeAlias = Callable[[], datetime]


def ignore(step: Step, info: Mapping[str, Any]) -> None:
    """The `on_step` that does nothing."""


@dataclass(frozen=True)
class Batch:
    """One batch and the attempt at it.

    Attributes:
        dataset: a name of the settings.
        batch_id: names these source records for ever. A committed id is never loaded again, so it must differ
            between checkpoints that count from 0 (put the query's id into it).
        run_id: this run of the job; a retry of the batch comes with another one.
        correlation_id: follows the batch across systems; kept in ledger and audit.
        started_at: zone-aware; the arrival time of the rows. The first attempt that staged the batch decides.
        replay_id: the replay plan, for `BatchKind.REPLAY` only.
    """

    dataset: str
    batch_id: str
    kind: BatchKind
    run_id: str
    correlation_id: str
    started_at: datetime
    replay_id: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", BatchKind(self.kind))
        if not self.batch_id.strip():
            raise ValueError("a batch needs an id")
        if self.started_at.tzinfo is None:
            raise ValueError("started_at needs a time zone")

    @property
    def where(self) -> str:
        """How messages name the batch."""
        return f"{self.dataset} batch {self.batch_id}"


@dataclass(frozen=True)
class Policy:
    """What a dataset's settings say about committing.

    Attributes:
        min_completeness: valid / (valid + invalid) below this rejects the batch; 0.0 to 1.0.
        event_id, event_time: dotted paths of contract fields.
    """

    on_failure: OnFailure = OnFailure.QUARANTINE_AND_CONTINUE
    min_completeness: float = 0.0
    on_match: OnMatch = OnMatch.IGNORE
    dedupe: DedupeTable | DedupeWindow = field(default_factory=DedupeTable)
    event_id: str = "event_id"
    event_time: str = "event_time"

    @classmethod
    def of(cls, settings: DatasetSettings) -> Policy:
        return cls(
            on_failure=settings.on_failure,
            min_completeness=settings.min_completeness,
            on_match=settings.on_match,
            dedupe=settings.dedupe,
            event_id=settings.event_id,
            event_time=settings.event_time,
        )

    def check(self, contract: Contract) -> None:
        """Raises ConfigurationError when the contract lacks the id or the time, or has them as something else."""
        self._field(contract, "event_id", self.event_id, None)
        self._field(contract, "event_time", self.event_time, frozenset({Kind.TIMESTAMP, Kind.DATE}))

    @property
    def id_column(self) -> str:
        """The id's column in bronze, quoted, such as `meta`.`id`."""
        return ".".join(quoted(part) for part in self.event_id.split("."))

    @property
    def time_column(self) -> str:
        return ".".join(quoted(part) for part in self.event_time.split("."))

    @staticmethod
    def _field(contract: Contract, setting: str, path: str, kinds: frozenset[Kind] | None) -> None:
        found = contract.find(path)
        nested = found is not None and found.kind in (Kind.STRUCT, Kind.ARRAY)
        if found is None or nested or "[]" in path or (kinds is not None and found.kind not in kinds):
            wanted = " or ".join(kinds) if kinds else "single-valued"
            raise ConfigurationError(
                f"{setting} is {path!r}, which is no {wanted} field of the contract",
                where=f"contract {contract.schema_id}",
                remedy=f"name such a field in `{setting}:`",
            )


class Finding(Protocol):
    """One outcome of the batch gate; whatever ran the batch rules returns objects of this shape."""

    @property
    def rule_id(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def passed(self) -> bool: ...
    @property
    def detail(self) -> str: ...


@dataclass(frozen=True)
class GateFinding:
    """One outcome of the batch gate. `severity` is critical, warning or info; `detail` holds no record values."""

    rule_id: str
    severity: str
    passed: bool
    detail: str = ""

    @classmethod
    def of(cls, finding: Finding) -> GateFinding:
        return cls(str(finding.rule_id), str(finding.severity), bool(finding.passed), str(finding.detail))


@dataclass(frozen=True)
class Acceptance:
    """Lets exactly one batch through the gate, once; the audit keeps who and why."""

    batch_id: str
    reason: str
    operator: str

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ConfigurationError("accepting a batch needs a reason", remedy="give --reason TEXT")


@dataclass(frozen=True)
class BatchResult:
    """What a batch came to. Counts are records; versions are Delta versions (None: the table has none yet).

    `isolated` of the quarantined records made the batch fail and were held unscreened.
    """

    batch_id: str
    status: str
    records_read: int
    records_valid: int
    records_inserted: int
    records_updated: int
    records_duplicate: int
    records_quarantined: int
    records_filtered: int
    completeness: float
    bronze_version: int | None
    quarantine_version: int | None
    findings: tuple[GateFinding, ...] = ()
    isolated: int = 0

    @property
    def already_committed(self) -> bool:
        """True when nothing was done, because the ledger has this batch; the counts are those of then."""
        return self.status == ALREADY_COMMITTED


ALREADY_COMMITTED = "already_committed"
