"""What is held in quarantine: grouped by reason, one by one, and over time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from lazaretto.commit import Tables
from lazaretto.commit.spark_edge import edge
from lazaretto.errors import ConfigurationError
from lazaretto.observe.coordinate import Coordinate, came_from
from lazaretto.observe.times import aware, known, micros, to_micros

SAMPLES = 3
"""How many coordinates a group shows."""

_PAYLOAD = ("payload", "key", "headers")
"""What the sender has sent, as sent: only on demand."""

_TIMES = ("source_time", "event_time", "ingested_at")
_ID_DIGITS = 64
_ID = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True)
class Group:
    """Held records with the same reason, from the same stream, under the same schema; likely one cure for all.

    `samples` and `sample_ids` belong together: the group's first records by time held, then by coordinate.
    """

    group_key: str
    dataset: str
    error_class: str
    error_code: str
    field: str | None
    schema_id: str | None
    stream: str | None
    count: int
    first_seen: datetime
    last_seen: datetime
    samples: tuple[Coordinate, ...]
    sample_ids: tuple[str, ...]


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong with a record; `detail` holds no value from it."""

    code: str
    field: str | None
    detail: str | None


@dataclass(frozen=True)
class HeldRecord:
    """One held record.

    `payload`, `key` and `headers` (pairs of key and value) are None unless asked for. `event_time` is None too where it
    lies in a year that Python cannot hold.
    """

    quarantine_id: str
    dataset: str
    ingest_date: date
    source: Coordinate
    source_time: datetime | None
    event_id: str | None
    event_time: datetime | None
    ingested_at: datetime
    batch_id: str
    run_id: str
    error_class: str
    error_code: str
    violations: tuple[Violation, ...]
    group_key: str
    schema_id: str | None
    ruleset: str | None
    payload_sha256: str | None
    payload_bytes: int | None
    attempt_count: int
    retriable: bool
    pii: bool
    payload: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str | None, bytes | None], ...] | None = None


def held_records(spark: SparkSession, tables: Tables, dataset: str | None = None) -> DataFrame:
    """The quarantine's rows, all columns, unordered; of one dataset or of all.

    Raises:
        ConfigurationError: there is no quarantine yet.
    """
    table = tables.quarantine
    with edge("the quarantine could not be read", str(table)):
        if not table.exists(spark):
            raise ConfigurationError(
                "there is no quarantine yet", where=str(table), remedy="ingest a batch, or check `warehouse:`"
            )
        rows = table.read(spark)
    return rows if dataset is None else rows.where(F.col("dataset") == dataset)


def groups(
    spark: SparkSession,
    tables: Tables,
    dataset: str | None = None,
    code: str | None = None,
    since: datetime | None = None,
    *,
    limit: int = 1000,
) -> list[Group]:
    """The reasons records are held for, most records first, then by dataset and key.

    Args:
        code: only records whose first violation has this code or rule id.
        since: only records held since then; zone-aware.
        limit: at most so many groups. A sender who makes up field names makes a group of each.

    Raises:
        ConfigurationError: there is no quarantine yet, `since` has no zone, or `limit` is below 1.
        SinkError: the quarantine cannot be read.
    """
    check_limit(limit)
    rows = held_records(spark, tables, dataset)
    if code is not None:
        rows = rows.where(F.col("error_code") == code)
    if since is not None:
        if since.tzinfo is None:
            raise ConfigurationError("a time without a zone", remedy="write it as 2026-11-30T00:00:00Z")
        # The day first: it lets Delta leave out whole partitions.
        day = F.col("ingest_date") >= F.lit(since.astimezone(UTC).date())
        rows = rows.where(day & (F.unix_micros("ingested_at") >= to_micros(since)))
    first = F.struct("ingested_at", "source.system", "source.stream", "source.partition", "source.position",
                     "quarantine_id")  # fmt: skip
    samples = F.array_sort(F.min_by(first, first, SAMPLES))
    grouped = rows.groupBy("dataset", "group_key").agg(
        # The key is made of these, so they are the same in all its rows.
        *(F.min(name).alias(name) for name in ("error_class", "error_code", "schema_id")),
        F.min(F.col("violations").getItem(0).getField("field")).alias("field"),
        F.min("source.stream").alias("stream"),
        F.count(F.lit(1)).alias("records"),
        F.unix_micros(F.min("ingested_at")).alias("first_seen"),
        F.unix_micros(F.max("ingested_at")).alias("last_seen"),
        # Without the time: it has ordered them, and Python might not hold it.
        F.transform(samples, lambda s: s.dropFields("ingested_at")).alias("samples"),
    )
    with edge("the quarantine could not be read", str(tables.quarantine)):
        found = grouped.orderBy(F.desc("records"), "dataset", "group_key").limit(limit).collect()
    return [_group(row) for row in found]


def show(
    spark: SparkSession,
    tables: Tables,
    *,
    quarantine_id: str | None = None,
    coordinate: Coordinate | str | None = None,
    group_key: str | None = None,
    limit: int = 5,
    payload: bool = False,
) -> list[HeldRecord]:
    """Held records in full: the one with an id or coordinate, or the first ones of a group; first held first.

    Args:
        quarantine_id: 64 hex digits, or the first 8 or more of them.
        coordinate: a `Coordinate`, or one as text.
        payload: with `payload`, `key` and `headers`: what the sender sent may be personal.

    Raises:
        ConfigurationError: not exactly one of the three is given, or what is given is none.
        SinkError: the quarantine cannot be read.
    """
    check_limit(limit)
    rows = held_records(spark, tables).where(_chosen(quarantine_id, coordinate, group_key))
    rows = rows.orderBy("ingested_at", "source", "quarantine_id").limit(limit)
    columns = [name for name in HeldRecord.__dataclass_fields__ if payload or name not in _PAYLOAD]
    with edge("the quarantine could not be read", str(tables.quarantine)):
        found = rows.select(*(micros(name) if name in _TIMES else F.col(name) for name in columns)).collect()
    return [_record(row) for row in found]


def trend(spark: SparkSession, tables: Tables, dataset: str | None = None) -> DataFrame:
    """Held records per day: `ingest_date`, `error_class`, `error_code`, `records`; by day, then most records first.

    Raises:
        ConfigurationError: there is no quarantine yet.
    """
    counted = held_records(spark, tables, dataset).groupBy("ingest_date", "error_class", "error_code")
    return counted.agg(F.count(F.lit(1)).alias("records")).orderBy("ingest_date", F.desc("records"), "error_code")


def check_limit(limit: int) -> None:
    """Raises ConfigurationError for a limit that shows nothing."""
    if limit < 1:
        raise ConfigurationError(f"a limit of {limit} shows nothing", remedy="give --limit 1 or more")


def _chosen(quarantine_id: str | None, coordinate: Coordinate | str | None, group_key: str | None) -> Column:
    if sum(given is not None for given in (quarantine_id, coordinate, group_key)) != 1:
        raise ConfigurationError(
            "say which held records: by one id, one coordinate or one group",
            remedy="give an ID, or --group KEY, or --coordinate SYSTEM/STREAM/PARTITION/POSITION",
        )
    if quarantine_id is not None:
        digits = quarantine_id.lower()
        if not _ID.fullmatch(digits):
            raise ConfigurationError("this is no quarantine id", remedy="give its first 8 to 64 hex digits")
        # A whole id is a prefix too, but only equality can be told to the Parquet reader.
        whole = len(digits) == _ID_DIGITS
        return F.col("quarantine_id").eqNullSafe(digits) if whole else F.col("quarantine_id").startswith(digits)
    if coordinate is not None:
        return came_from(str(coordinate))
    return F.col("group_key").eqNullSafe(F.lit(group_key))


def _group(row: Row) -> Group:
    return Group(
        group_key=row["group_key"],
        dataset=row["dataset"],
        error_class=row["error_class"],
        error_code=row["error_code"],
        field=row["field"],
        schema_id=row["schema_id"],
        stream=row["stream"],
        count=row["records"],
        first_seen=known(row["first_seen"]),
        last_seen=known(row["last_seen"]),
        samples=tuple(Coordinate.of(sample) for sample in row["samples"]),
        sample_ids=tuple(sample["quarantine_id"] for sample in row["samples"]),
    )


def _record(row: Row) -> HeldRecord:
    values = row.asDict()
    for name in _TIMES:
        values[name] = known(row[name]) if name == "ingested_at" else aware(row[name])
    values["source"] = Coordinate.of(row["source"])
    values["violations"] = tuple(Violation(v["code"], v["field"], v["detail"]) for v in row["violations"])
    for name in ("payload", "key"):
        if values.get(name) is not None:
            values[name] = bytes(values[name])
    if values.get("headers") is not None:
        values["headers"] = tuple((h["key"], None if h["value"] is None else bytes(h["value"])) for h in row["headers"])
    return HeldRecord(**values)
