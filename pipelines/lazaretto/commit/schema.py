"""The tables' columns and properties; creating them, and refusing a table that is another one.

No automatic schema evolution: a table that differs from the contract stops the job before any data moves.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from lazaretto.commit.lease import table_lock
from lazaretto.commit.screened import HEADERS_DDL, SOURCE_DDL, VIOLATIONS_DDL
from lazaretto.commit.spark_edge import edge
from lazaretto.commit.tables import TableRef, Tables
from lazaretto.contracts import Contract
from lazaretto.errors import ConfigurationError

BRONZE_ADDED = f"""
    _event_date DATE, _source {SOURCE_DDL}, _source_time TIMESTAMP, _payload_sha256 STRING, _schema_id STRING,
    _ruleset STRING, _warnings ARRAY<STRING>, _degraded ARRAY<STRING>, _batch_id STRING, _run_id STRING,
    _ingested_at TIMESTAMP, _replay_id STRING"""

QUARANTINE = f"""
    quarantine_id STRING, dataset STRING, ingest_date DATE, source {SOURCE_DDL}, key BINARY, source_time TIMESTAMP,
    event_id STRING, event_time TIMESTAMP, ingested_at TIMESTAMP, batch_id STRING, run_id STRING, error_class STRING,
    error_code STRING, violations {VIOLATIONS_DDL}, group_key STRING, schema_id STRING, ruleset STRING, payload BINARY,
    payload_sha256 STRING, payload_bytes BIGINT, headers {HEADERS_DDL}, attempt_count INT, retriable BOOLEAN,
    pii BOOLEAN"""

INGESTION_STATUS = """
    dataset STRING, batch_id STRING, kind STRING, run_id STRING, status STRING, ruleset STRING, schema_id STRING,
    records_read BIGINT, records_valid BIGINT, records_inserted BIGINT, records_updated BIGINT,
    records_duplicate BIGINT, records_quarantined BIGINT, records_filtered BIGINT, completeness DOUBLE,
    source_range STRING, bronze_version BIGINT, quarantine_version BIGINT, error_class STRING, next_action STRING,
    started_at TIMESTAMP, committed_at TIMESTAMP, correlation_id STRING"""

AUDIT = """
    audit_id STRING, at TIMESTAMP, operator STRING, action STRING, dataset STRING, batch_id STRING, run_id STRING,
    correlation_id STRING, subject STRING, reason STRING, details MAP<STRING, STRING>"""

# Delta writes the smallest and largest value of these columns into its log, which nobody erases from: columns of our
# own only, never one that holds something from a record. `_batch_id`, dates and positions are what reads prune by.
_STATISTICS = {
    "bronze": "_event_date,_batch_id,_ingested_at",
    "quarantine": "batch_id,ingested_at,source.position",
    "ingestion_status": "dataset,batch_id,status,bronze_version,started_at,committed_at",
    "audit": "audit_id,at,action,dataset,batch_id",
}

# What every reader of the Delta protocol understands, delta-rs among them.
_PROPERTIES = {
    "delta.enableDeletionVectors": "false",
    "delta.enableRowTracking": "false",
    "delta.columnMapping.mode": "none",
}


def columns(ddl: str) -> StructType:
    """A DDL as a schema; needs an active session."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def bronze_ddl(contract: Contract) -> str:
    """Bronze: the contract's columns in order, then ours."""
    return f"{contract.ddl}, {BRONZE_ADDED}"


def ensure_tables(spark: SparkSession, tables: Tables, dataset: str, contract: Contract) -> None:
    """Create what is missing; check what is there.

    Raises:
        ConfigurationError: a table has other columns than it should, and which.
        SinkError: a table could not be created or opened.
    """
    _ensure(spark, tables.bronze(dataset), "bronze", bronze_ddl(contract), contract.schema_id)
    _ensure(spark, tables.quarantine, "quarantine", QUARANTINE, None, partitioned_by=("dataset", "ingest_date"))
    ensure_ledger(spark, tables)


def ensure_ledger(spark: SparkSession, tables: Tables) -> None:
    """The ledger alone, for a batch that ends before any record is read."""
    _ensure(spark, tables.ingestion_status, "ingestion_status", INGESTION_STATUS, None)


def ensure_audit(spark: SparkSession, tables: Tables) -> None:
    """The audit table, created when its first row is due."""
    _ensure(spark, tables.audit, "audit", AUDIT, None)


def _ensure(
    spark: SparkSession,
    table: TableRef,
    kind: str,
    ddl: str,
    schema_id: str | None,
    *,
    partitioned_by: tuple[str, ...] = (),
) -> None:
    with edge(f"table {table.title} could not be opened", str(table)):
        expected = columns(ddl)
        if not table.exists(spark):
            # DeltaTable's builder takes two-part names only.
            properties = {"delta.dataSkippingStatsColumns": _STATISTICS[kind], **_PROPERTIES}
            told = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
            partitioning = f"PARTITIONED BY ({', '.join(partitioned_by)})" if partitioned_by else ""
            what = f"{table.identifier} ({ddl}) USING delta {partitioning} TBLPROPERTIES ({told})"
            with table_lock(spark, table.path):
                spark.sql(f"CREATE TABLE IF NOT EXISTS {what}")
        actual = table.read(spark).schema
    differences = _differences(expected, actual)
    if differences:
        of = f"contract {schema_id}" if schema_id else "this version of lazaretto"
        raise ConfigurationError(
            f"table {table.title} is not what {of} writes: {'; '.join(differences)}",
            where=str(table),
            remedy="change the table by hand (no column is ever added or changed by itself) or use another warehouse",
        )


def _differences(expected: StructType, actual: StructType) -> list[str]:
    """What is missing, too much or of another type. The order of columns and nullability make no difference."""
    want = {f.name.lower(): f for f in expected}
    have = {f.name.lower(): f for f in actual}
    missing = [f"column {f.name} {_text(f.dataType)} is missing" for n, f in want.items() if n not in have]
    extra = [f"column {f.name} is too much" for n, f in have.items() if n not in want]
    other = [
        f"column {f.name} is {_text(have[n].dataType)} instead of {_text(f.dataType)}"
        for n, f in want.items()
        if n in have and _text(have[n].dataType) != _text(f.dataType)
    ]
    return missing + extra + other


def _text(kind: DataType) -> str:
    return kind.simpleString()


def in_table_order(rows: DataFrame, ddl: str) -> DataFrame:
    """`rows` with exactly the columns of `ddl`, in its order."""
    return rows.select(*(f"`{name}`" for name in columns(ddl).names))
