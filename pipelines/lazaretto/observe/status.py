"""What became of the batches: the ledger, newest first."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lazaretto.commit import Tables, ledger
from lazaretto.commit.spark_edge import edge
from lazaretto.observe.held import check_limit
from lazaretto.observe.times import aware, known, micros

_TIMES = ("started_at", "committed_at")


@dataclass(frozen=True)
class LedgerEntry:
    """One ended attempt at a batch: the ledger's columns, times aware and in UTC.

    Counts are records, None where the attempt ended before they were known. `completeness` is valid / (valid +
    invalid). `source_range` is JSON. `committed_at` is None unless the batch was committed.
    """

    dataset: str
    batch_id: str
    kind: str
    run_id: str
    status: str
    ruleset: str | None
    schema_id: str | None
    records_read: int | None
    records_valid: int | None
    records_inserted: int | None
    records_updated: int | None
    records_duplicate: int | None
    records_quarantined: int | None
    records_filtered: int | None
    completeness: float | None
    source_range: str | None
    bronze_version: int | None
    quarantine_version: int | None
    error_class: str | None
    next_action: str | None
    started_at: datetime
    committed_at: datetime | None
    correlation_id: str | None


def batch_status(spark: SparkSession, tables: Tables, dataset: str | None = None, limit: int = 20) -> list[LedgerEntry]:
    """The newest attempts, newest first by when they began (then: committed ones before others, then by batch id).

    Args:
        dataset: only this one's; all of them by default.
        limit: at most so many.

    Raises:
        ConfigurationError: there is no ledger yet, or `limit` is below 1.
        SinkError: the ledger cannot be read.
    """
    check_limit(limit)
    names = [field.name for field in fields(LedgerEntry)]
    with edge("the ledger could not be read", str(tables.ingestion_status)):
        rows = ledger(spark, tables)
        if dataset is not None:
            rows = rows.where(F.col("dataset") == dataset)
        newest = rows.orderBy(
            F.desc("started_at"), F.desc_nulls_last("committed_at"), F.desc("batch_id"), F.desc("run_id")
        ).limit(limit)
        found = newest.select(*(micros(name) if name in _TIMES else F.col(name) for name in names)).collect()
    return [
        LedgerEntry(
            **{
                **row.asDict(),
                "started_at": known(row["started_at"]),
                "committed_at": aware(row["committed_at"]),
            }
        )
        for row in found
    ]
