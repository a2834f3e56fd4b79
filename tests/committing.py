"""A small lake to commit into: records as plain values, the real protocol, real Delta tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lazaretto.commit import (
    Acceptance,
    Batch,
    BatchKind,
    BatchResult,
    Finding,
    OnStep,
    Policy,
    TableRef,
    Tables,
    Verdict,
    ignore,
    run_batch,
    screened_ddl,
)
from lazaretto.config import PathWarehouse
from lazaretto.contracts import Contract, Field, Kind

CONTRACT = Contract(
    name="orders",
    version="1.0.0",
    fields=(
        Field("event_id", "event_id", Kind.STRING, required=True),
        Field("event_time", "event_time", Kind.TIMESTAMP, required=True),
        Field("amount", "amount", Kind.INT),
        Field("city", "city", Kind.STRING, personal=True),
    ),
)
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Session settings for small data: compiling a plan costs far more than interpreting it."""

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Rec:
    """One screened record. `amount` stands for the payload: another amount is another payload."""

    event_id: str | None
    position: int
    amount: int = 1
    minute: int = 0
    day: int = 0
    arrived: int | None = None
    partition: str = "0"
    stream: str = "orders"
    verdict: Verdict = Verdict.VALID
    codes: tuple[tuple[str, str | None], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def event_time(self) -> datetime:
        return NOON + timedelta(days=self.day, minutes=self.minute)

    @property
    def payload(self) -> bytes:
        return json.dumps([self.event_id, self.event_time.isoformat(), self.amount]).encode()

    def row(self) -> tuple[Any, ...]:
        valid = self.verdict is Verdict.VALID
        source_time = NOON + timedelta(seconds=self.position if self.arrived is None else self.arrived)
        return (
            ("kafka", self.stream, self.partition, self.position),
            f"k{self.position}".encode(),
            [("trace", b"\x00\xff")],
            source_time,
            self.payload,
            hashlib.sha256(self.payload).hexdigest(),
            len(self.payload),
            self.verdict.value,
            (self.event_id, self.event_time, self.amount, "Kaohsiung") if valid else None,
            self.event_id,
            self.event_time if valid else None,
            [(code, fld, None) for code, fld in self.codes],
            list(self.warnings),
            [],
        )


def held(event_id: str | None, position: int, code: str = "MALFORMED", fld: str | None = None, **more: Any) -> Rec:
    """An invalid record."""
    return Rec(event_id, position, verdict=Verdict.INVALID, codes=((code, fld),), **more)


@dataclass
class Lake:
    spark: SparkSession
    tables: Tables
    policy: Policy = field(default_factory=Policy)
    contract: Contract = CONTRACT
    reads: int = 0

    def with_policy(self, **changes: Any) -> Lake:
        self.policy = replace(self.policy, **changes)
        return self

    def frame(self, records: Iterable[Rec], slices: int = 2) -> DataFrame:
        rows = [r.row() for r in records]
        frame = self.spark.createDataFrame(rows, screened_ddl(self.contract))
        return frame.coalesce(slices)

    def run(
        self,
        records: Iterable[Rec],
        batch_id: str = "b1",
        *,
        kind: BatchKind = BatchKind.STREAM,
        started_at: datetime = NOON,
        gate: Callable[[DataFrame], Sequence[Finding]] | None = None,
        acceptance: Acceptance | None = None,
        expected_records: int | None = None,
        on_step: OnStep = ignore,
        source_range: Mapping[str, Any] | None = None,
        screen: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        ruleset: str = "rules-1",
    ) -> BatchResult:
        def envelope() -> DataFrame:
            self.reads += 1
            return self.frame(records)

        return run_batch(
            self.spark,
            self.tables,
            Batch("orders", batch_id, kind, "run-1", "corr-1", started_at),
            contract=self.contract,
            policy=self.policy,
            schema_id=self.contract.schema_id,
            ruleset=ruleset,
            envelope=envelope,
            screen=screen,
            gate=gate,
            source_range=source_range,
            expected_records=expected_records,
            acceptance=acceptance,
            clock=lambda: NOON + timedelta(minutes=1),
            operator="tester",
            on_step=on_step,
        )

    @property
    def bronze_table(self) -> TableRef:
        return self.tables.bronze("orders")

    def bronze(self) -> list[tuple[str, int, int]]:
        """(event_id, amount, position), sorted."""
        rows = self.bronze_table.read(self.spark).select("event_id", "amount", "_source.position").collect()
        return sorted(tuple(row) for row in rows)

    def quarantine(self) -> list[tuple[int, str]]:
        """(position, error_code), sorted."""
        rows = self.tables.quarantine.read(self.spark).select("source.position", "error_code").collect()
        return sorted(tuple(row) for row in rows)

    def ledger(self, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.tables.ingestion_status.read(self.spark).select(*columns).collect()
        return sorted(tuple(row) for row in rows)

    def audit(self, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.tables.audit.read(self.spark).select(*columns).collect()
        return sorted(tuple(row) for row in rows)

    def stage(self, batch_id: str = "b1") -> Path:
        return self.tables.staging_dir("orders", batch_id)


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """`INTERPRETED` for a while."""
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in INTERPRETED:
            spark.conf.unset(name)


@pytest.fixture
def _interpreted(spark: SparkSession) -> Iterator[None]:
    with interpreted(spark):
        yield


@pytest.fixture
def lake(spark: SparkSession, _interpreted: None, warehouse: Path) -> Lake:
    return Lake(spark, Tables(PathWarehouse(root=warehouse), warehouse))


@pytest.fixture
def new_lake(spark: SparkSession, _interpreted: None, tmp_path: Path) -> Callable[[], Lake]:
    """Further empty lakes, to compare with."""
    made = 0

    def make() -> Lake:
        nonlocal made
        made += 1
        root = tmp_path / f"lake{made}"
        root.mkdir()
        return Lake(spark, Tables(PathWarehouse(root=root), root))

    return make


@pytest.fixture
def rec() -> type[Rec]:
    return Rec


@pytest.fixture
def bad() -> Callable[..., Rec]:
    return held
