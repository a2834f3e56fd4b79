"""Step 6: the ledger, one row per attempt that ended; and reading what it says is published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from lazaretto.commit.audit_table import instant
from lazaretto.commit.frozen import Manifest
from lazaretto.commit.model import ALREADY_COMMITTED, Batch, BatchResult, Status
from lazaretto.commit.schema import INGESTION_STATUS, columns
from lazaretto.commit.spark_edge import edge, settings
from lazaretto.commit.stage import WRITE_SETTINGS
from lazaretto.commit.tables import Tables
from lazaretto.errors import AccountingError, ConfigurationError


@dataclass(frozen=True)
class Counts:
    """What became of the records of a batch; None where the attempt ended before that was known."""

    records_read: int | None = None
    records_valid: int | None = None
    records_inserted: int | None = None
    records_updated: int | None = None
    records_duplicate: int | None = None
    records_quarantined: int | None = None
    records_filtered: int | None = None

    def check(self, where: str) -> None:
        """Raises AccountingError unless read = inserted + updated + duplicate + quarantined + filtered."""
        parts = {name: value for name, value in asdict(self).items() if name not in ("records_read", "records_valid")}
        if None in parts.values() or self.records_read != sum(v for v in parts.values() if v is not None):
            told = ", ".join(f"{value} {name.removeprefix('records_')}" for name, value in parts.items())
            raise AccountingError(
                f"{self.records_read} records read, but accounted for: {told}",
                where=where,
                remedy="nothing was published; report this with the batch's stage folder",
            )


@dataclass(frozen=True)
class LedgerRow:
    """One ended attempt. `committed_at` is None unless it committed; docs/tables.md has the columns."""

    batch: Batch
    status: Status
    ruleset: str
    schema_id: str
    counts: Counts
    started_at: datetime
    committed_at: datetime | None = None
    completeness: float | None = None
    source_range: str | None = None
    bronze_version: int | None = None
    quarantine_version: int | None = None
    error_class: str | None = None
    next_action: str | None = None


def source_range(manifest: Manifest) -> str:
    """JSON `{"ranges": [{system, stream, partition, start, end, records}], "declared": ...}`.

    Positions are inclusive and those of records seen; `declared` is what the source said it handed over (for Kafka the
    offsets of the micro-batch, for a manifest its id and files), or null.
    """
    keys = ("system", "stream", "partition", "start", "end", "records")
    ranges = [{key: getattr(r, key) for key in keys} for r in manifest.ranges]
    return json.dumps({"ranges": ranges, "declared": manifest.declared}, ensure_ascii=False, sort_keys=True)


def write(spark: SparkSession, tables: Tables, row: LedgerRow) -> None:
    """Append one row in one commit. For a committed attempt this is the moment of publication.

    Raises:
        SinkError: the ledger cannot be written.
    """
    values: Mapping[str, Any] = {
        "dataset": row.batch.dataset,
        "batch_id": row.batch.batch_id,
        "kind": row.batch.kind.value,
        "run_id": row.batch.run_id,
        "correlation_id": row.batch.correlation_id,
        "status": row.status.value,
        "started_at": instant(row.started_at),
        "committed_at": instant(row.committed_at) if row.committed_at else None,
        **asdict(row.counts),
        **{
            name: getattr(row, name)
            for name in (
                "ruleset", "schema_id", "completeness", "source_range", "bronze_version", "quarantine_version",
                "error_class", "next_action",
            )
        },
    }  # fmt: skip
    with edge("the ledger could not be written", str(tables.ingestion_status)), settings(spark, WRITE_SETTINGS):
        schema = columns(INGESTION_STATUS)
        one = spark.range(1).select(*(F.lit(values[c.name]).cast(c.dataType).alias(c.name) for c in schema))
        tables.ingestion_status.append(one)


def committed_row(spark: SparkSession, tables: Tables, dataset: str, batch_id: str) -> Row | None:
    """The ledger's row that says this batch is committed, or None."""
    with edge("the ledger could not be read", str(tables.ingestion_status)):
        found = committed(spark, tables, dataset).where(F.col("batch_id") == batch_id)
        # Times stay in the JVM: Python cannot hold all that Spark can.
        rows = found.drop("started_at", "committed_at").collect()
    return rows[0] if rows else None


def result_of(row: Row) -> BatchResult:
    """The result of a batch that is committed already."""
    kept = set(BatchResult.__dataclass_fields__) - {"status", "findings", "isolated"}
    return BatchResult(status=ALREADY_COMMITTED, **{name: row[name] for name in kept})


def ledger(spark: SparkSession, tables: Tables) -> DataFrame:
    """The ledger, all rows: the columns of `ingestion_status`, unordered.

    Raises:
        ConfigurationError: nothing was ever ingested into this warehouse.
    """
    if not tables.ingestion_status.exists(spark):
        raise ConfigurationError(
            "there is no ledger yet", where=str(tables.ingestion_status), remedy="ingest a batch, or check `warehouse:`"
        )
    return tables.ingestion_status.read(spark)


def read_published(spark: SparkSession, tables: Tables, dataset: str) -> DataFrame:
    """Bronze as of the newest committed batch: whole batches only, whatever is being written meanwhile.

    Returns:
        The bronze columns; no rows when no batch has been committed yet.

    Raises:
        ConfigurationError: the dataset has no table yet.
    """
    bronze = tables.bronze(dataset)
    if not bronze.exists(spark):
        raise ConfigurationError(
            f"dataset {dataset} has no bronze table yet", where=str(bronze), remedy="ingest a batch, or check the name"
        )
    with edge("the ledger could not be read", str(tables.ingestion_status)):
        newest = (
            committed(spark, tables, dataset)
            .where(F.col("bronze_version").isNotNull())
            .agg(F.max(F.struct("committed_at", "bronze_version")).getField("bronze_version").alias("version"))
            .collect()
        )
    version = newest[0]["version"]
    return bronze.read(spark).limit(0) if version is None else bronze.read(spark, version)


def committed(spark: SparkSession, tables: Tables, dataset: str) -> DataFrame:
    """The ledger's rows of a dataset's committed batches."""
    mine = (F.col("dataset") == dataset) & (F.col("status") == Status.COMMITTED.value)
    return ledger(spark, tables).where(mine)
