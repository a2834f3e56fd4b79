"""Ledger rows of what holds no records: a batch refused before one was read, a stream begun anew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from lazaretto.commit import ledger_table
from lazaretto.commit.audit_table import AuditEntry, audit
from lazaretto.commit.history import current_version
from lazaretto.commit.model import Batch, BatchResult, Status
from lazaretto.commit.schema import ensure_ledger
from lazaretto.commit.tables import Tables
from lazaretto.errors import BatchClass

NEXT_ACTION = "have the refused files sent again, with a manifest that supersedes this one"


def committed_result(spark: SparkSession, tables: Tables, dataset: str, batch_id: str) -> BatchResult | None:
    """What a batch came to, when the ledger has it as committed; None when it has not."""
    if not tables.ingestion_status.exists(spark):
        return None
    row = ledger_table.committed_row(spark, tables, dataset, batch_id)
    return None if row is None else ledger_table.result_of(row)


def record_refusal(
    spark: SparkSession,
    tables: Tables,
    batch: Batch,
    *,
    error_class: BatchClass,
    reason: str,
    ruleset: str,
    schema_id: str,
    operator: str,
    at: datetime,
    declared: Mapping[str, Any],
) -> None:
    """Write an audit row and a `rejected` ledger row for a batch of which nothing was read.

    Args:
        reason: one line, nothing from a record. declared: what the source said it hands over, for `source_range`.

    Raises:
        SinkError: a table cannot be written.
    """
    _write_down(
        spark, tables, batch, Status.REJECTED, action="batch_rejected", subject=f"batch {batch.batch_id}",
        reason=reason, operator=operator, at=at, declared=declared, details={"error_class": error_class.value},
        ruleset=ruleset, schema_id=schema_id, error_class=error_class.value, next_action=f"{reason}; {NEXT_ACTION}",
    )  # fmt: skip


def record_restart(
    spark: SparkSession,
    tables: Tables,
    batch: Batch,
    *,
    reason: str,
    operator: str,
    at: datetime,
    ruleset: str,
    schema_id: str,
    declared: Mapping[str, Any],
) -> None:
    """Write an audit row and a committed ledger row without records: from here on the ledger counts anew.

    Args:
        reason: one line. declared: what of the source is given up, and which versions of the tables were still there.

    Raises:
        SinkError: a table cannot be read or written.
    """
    _write_down(
        spark, tables, batch, Status.COMMITTED, action="stream_restarted", subject=f"dataset {batch.dataset}",
        reason=reason, operator=operator, at=at, declared=declared,
        details={"declared": json.dumps(declared, sort_keys=True)}, once=batch.batch_id,
        ruleset=ruleset, schema_id=schema_id, next_action=reason, committed_at=at,
        bronze_version=current_version(spark, tables.bronze(batch.dataset)),
        quarantine_version=current_version(spark, tables.quarantine),
    )  # fmt: skip


def _write_down(
    spark: SparkSession,
    tables: Tables,
    batch: Batch,
    status: Status,
    *,
    action: str,
    subject: str,
    reason: str,
    operator: str,
    at: datetime,
    declared: Mapping[str, Any],
    details: Mapping[str, str],
    once: str = "",
    **row: Any,
) -> None:
    """The audit's row, then the ledger's, of which `row` are further columns."""
    ensure_ledger(spark, tables)
    entry = AuditEntry(
        at=at, operator=operator, action=action, dataset=batch.dataset, subject=subject, reason=reason,
        batch_id=batch.batch_id, run_id=batch.run_id, correlation_id=batch.correlation_id, details=details, once=once,
    )  # fmt: skip
    audit(spark, tables, [entry])
    source_range = json.dumps({"ranges": [], "declared": declared}, ensure_ascii=False, sort_keys=True)
    counts = ledger_table.Counts(0, 0, 0, 0, 0, 0, 0)
    ended = ledger_table.LedgerRow(
        batch, status, counts=counts, started_at=batch.started_at, source_range=source_range, **row
    )  # fmt: skip
    ledger_table.write(spark, tables, ended)
