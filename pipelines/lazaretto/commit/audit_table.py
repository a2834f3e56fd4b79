"""The audit table: who or what decided what, on which records, when and why. Rows are only ever added."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from lazaretto.commit.schema import AUDIT, ensure_audit, in_table_order
from lazaretto.commit.spark_edge import edge, settings
from lazaretto.commit.stage import WRITE_SETTINGS
from lazaretto.commit.tables import Tables


@dataclass(frozen=True)
class AuditEntry:
    """One decision.

    Attributes:
        at: zone-aware.
        operator: the person or the job that decided.
        action: what was decided, such as `batch_rejected`.
        subject: on which records: a batch, a group of held records, a coordinate.
        details: counts, rule ids and the like; nothing from a record.
        once: what makes this decision the same one when it is written again by a retry; it is then not doubled.
    """

    at: datetime
    operator: str
    action: str
    dataset: str
    subject: str
    reason: str
    batch_id: str | None = None
    run_id: str | None = None
    correlation_id: str | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    once: str = ""

    @property
    def audit_id(self) -> str:
        """sha256 of what identifies the decision."""
        key = [self.dataset, self.batch_id, self.action, self.subject, self.once or self.at.isoformat()]
        return hashlib.sha256(json.dumps(key).encode()).hexdigest()


def audit(spark: SparkSession, tables: Tables, entries: Sequence[AuditEntry]) -> None:
    """Append the decisions that are not in the table yet, in one commit.

    Raises:
        SinkError: the table cannot be read or written.
    """
    if not entries:
        return
    ensure_audit(spark, tables)
    with edge("the audit could not be written", str(tables.audit)), settings(spark, WRITE_SETTINGS):
        ids = [entry.audit_id for entry in entries]
        known = tables.audit.read(spark).where(F.col("audit_id").isin(ids)).select("audit_id").collect()
        present = {row["audit_id"] for row in known}
        new = [entry for entry in entries if entry.audit_id not in present]
        if not new:
            return
        rows = spark.range(1).select(F.inline(F.array(*(F.struct(*_columns(entry)) for entry in new))))
        tables.audit.append(in_table_order(rows, AUDIT))


def acceptance_used(spark: SparkSession, tables: Tables, dataset: str, batch_id: str) -> bool:
    """Whether this batch was let through by name before."""
    if not tables.audit.exists(spark):
        return False
    with edge("the audit could not be read", str(tables.audit)):
        mine = (F.col("dataset") == dataset) & (F.col("batch_id") == batch_id) & (F.col("action") == "batch_accepted")
        return not tables.audit.read(spark).where(mine).isEmpty()


def _columns(entry: AuditEntry) -> list[Column]:
    texts = {
        "audit_id": entry.audit_id,
        "operator": entry.operator,
        "action": entry.action,
        "dataset": entry.dataset,
        "batch_id": entry.batch_id,
        "run_id": entry.run_id,
        "correlation_id": entry.correlation_id,
        "subject": entry.subject,
        "reason": entry.reason,
    }
    details = [F.lit(part) for pair in sorted(entry.details.items()) for part in pair]
    empty = F.create_map().cast("map<string,string>")
    return [
        *(F.lit(value).cast("string").alias(name) for name, value in texts.items()),
        instant(entry.at).alias("at"),
        (F.create_map(*details) if details else empty).alias("details"),
    ]


def instant(at: datetime) -> Column:
    """A zone-aware time as a literal, whatever the time zones of session and machine."""
    return F.timestamp_micros(F.lit(int(at.timestamp()) * 1_000_000 + at.microsecond))
