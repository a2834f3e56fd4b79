"""A small lake with a history: two datasets, two days, batches committed and rejected, records held."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lazaretto.commit import Batch, BatchKind, Policy, Tables, Verdict, run_batch, screened_ddl
from lazaretto.config import OnFailure, PathWarehouse
from lazaretto.contracts import Contract, Field, Kind
from lazaretto.errors import BatchRejectedError

from ...committing import interpreted

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
MARKER = "marker-4711"


@dataclass(frozen=True)
class Lake:
    spark: SparkSession
    tables: Tables
    noon: datetime = NOON
    marker: str = MARKER

    def load(
        self,
        dataset: str,
        batch_id: str,
        rows: Sequence[tuple[Any, ...]],
        *,
        day: int = 0,
        policy: Policy | None = None,
    ) -> None:
        """One batch through the real protocol, begun at noon of that day; a rejected one is no error here."""
        contract = _contract(dataset)
        at = self.noon + timedelta(days=day)
        with contextlib.suppress(BatchRejectedError):
            run_batch(
                self.spark,
                self.tables,
                Batch(dataset, batch_id, BatchKind.STREAM, f"run-{batch_id}", f"corr-{batch_id}", at),
                contract=contract,
                policy=policy or Policy(),
                schema_id=contract.schema_id,
                ruleset="rules-1",
                envelope=lambda: self.spark.createDataFrame(list(rows), screened_ddl(contract)).coalesce(1),
                screen=lambda frame: frame,
                gate=None,
                source_range=None,
                expected_records=None,
                acceptance=None,
                clock=lambda: at + timedelta(minutes=1),
                operator="tester",
            )


def _contract(dataset: str) -> Contract:
    fields = (
        Field("event_id", "event_id", Kind.STRING, required=True),
        Field("event_time", "event_time", Kind.TIMESTAMP, required=True),
    )
    return Contract(name=dataset, version="1.0.0", fields=fields)


def valid(event_id: str, position: int, stream: str = "orders") -> tuple[Any, ...]:
    return _row(stream, position, event_id, Verdict.VALID, ())


def held(position: int, code: str, field: str | None = None, detail: str | None = None, **more: Any) -> tuple[Any, ...]:
    return _row(more.pop("stream", "orders"), position, None, Verdict.INVALID, ((code, field, detail),), **more)


def _row(
    stream: str, position: int, event_id: str | None, verdict: Verdict, violations: tuple[Any, ...], **more: Any
) -> tuple[Any, ...]:
    payload = more.get("payload", json.dumps([event_id, position, MARKER]).encode())
    ok = verdict is Verdict.VALID
    return (
        ("kafka", stream, "0", position),
        f"key {MARKER}".encode(),
        [("trace", f"header {MARKER}\x1b[2J".encode())],
        NOON + timedelta(seconds=position),
        payload,
        hashlib.sha256(payload).hexdigest(),
        len(payload),
        verdict.value,
        (event_id, NOON) if ok else None,
        event_id,
        NOON if ok else None,
        list(violations),
        [],
        [],
    )


@pytest.fixture(scope="session")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Made once, and not changed by a test."""
    root = tmp_path_factory.mktemp("observe") / "lake"
    root.mkdir()
    lake = Lake(spark, Tables(PathWarehouse(root=root), root))
    truncated = b'{"a": "\x1b[31m\xff'
    with interpreted(spark):
        lake.load(
            "orders",
            "b1",
            [valid("a", 1), valid("b", 2), valid("a", 1 + 2)]
            + [held(n, "MALFORMED", detail="ends too early", payload=truncated) for n in (14, 11, 12, 13)]
            + [held(20, "UNKNOWN_FIELD", "[red]x"), held(21, "UNKNOWN_FIELD", "[red]x")],
        )
        lake.load("orders", "b2", [valid("c", 30), held(31, "MALFORMED"), held(32, "ORD-002", "amount")], day=1)
        lake.load(
            "orders", "b3", [valid("d", 40), held(41, "MALFORMED")], day=2,
            policy=Policy(on_failure=OnFailure.REJECT_BATCH),
        )  # fmt: skip
        lake.load("returns", "b1", [held(1, "ORD-002", "amount", stream="returns")], day=1)
    return lake
