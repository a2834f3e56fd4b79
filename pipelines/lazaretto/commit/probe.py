"""Step 3: decide for each valid row whether it is new, an update, a duplicate or a conflict.

Only ids, hashes and coordinates are looked at, never payloads or whole records. Most batches are not contested: no id
twice, none in bronze. That is found out with 8-byte hashes of the ids, and then every row simply goes on. Otherwise
the rows that do not plainly go on are written to the stage as `probe/`, so that quarantine and MERGE follow one and the
same decision, and a retry after the MERGE can tell what it was.

The order that decides which of several records wins is total, and the same within a batch and across batches:
    ignore            the first by (source_time, system, stream, partition, position); across batches the stored one
    update_if_newer   the newest by (event_time, source_time, system, stream, partition, position)
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lazaretto.commit.durable import damaged, read_json, write_json
from lazaretto.commit.frozen import Stage
from lazaretto.commit.model import Batch, Policy
from lazaretto.commit.screened import SOURCE_DDL
from lazaretto.commit.spark_edge import edge, settings
from lazaretto.commit.stage import WRITE_SETTINGS
from lazaretto.commit.tables import TableRef
from lazaretto.config import DedupeWindow, OnMatch
from lazaretto.errors import AccountingError

_FILE = "probe.json"
_FOLDER = "probe"
_EXCEPTIONS_DDL = f"_row BIGINT, decision STRING, replaces {SOURCE_DDL}"

BROADCAST_ROWS = 2_000_000
"""Up to this many staged rows their id hashes (16 bytes each as a hash table) are sent to every task."""


class Decision(StrEnum):
    """What becomes of a valid row. LANDED: an earlier attempt at this very batch has put it into bronze."""

    INSERTED = "inserted"
    UPDATED = "updated"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    LANDED = "landed"


@dataclass(frozen=True)
class Decisions:
    """The outcome of a probe.

    Attributes:
        inserted ... landed: counts of valid rows; together all of them.
        oldest_replaced_day, newest_replaced_day: UTC days of the stored rows that updates replace, days since
            1970-01-01; None without updates.
        plain: every valid row is inserted; there is no `probe/` folder.
        probe_id: names this probe; the MERGE that follows it carries it.
    """

    probe_id: str
    inserted: int
    updated: int = 0
    duplicate: int = 0
    conflict: int = 0
    landed: int = 0
    oldest_replaced_day: int | None = None
    newest_replaced_day: int | None = None
    plain: bool = False

    @property
    def writes(self) -> int:
        """Rows the MERGE has to write."""
        return self.inserted + self.updated

    @property
    def exceptional(self) -> int:
        """Rows that do not plainly go on."""
        return self.updated + self.duplicate + self.conflict + self.landed


def exceptions(spark: SparkSession, stage: Stage, decisions: Decisions) -> DataFrame:
    """The rows that do not plainly go on: `_row`, `decision`, and for updates the coordinate they replace."""
    rows = spark.read.schema(_EXCEPTIONS_DDL).parquet(str(stage.folder / _FOLDER))
    return F.broadcast(rows) if decisions.exceptional <= BROADCAST_ROWS else rows


def load(stage: Stage) -> Decisions | None:
    """The decisions an earlier attempt has kept. They hold only if that attempt's MERGE is in bronze."""
    document = read_json(stage.folder / _FILE)
    if document is None:
        return None
    try:
        return Decisions(**document)
    except TypeError as exc:
        raise damaged(stage.folder, f"{_FILE} has other keys than it should") from exc


def probe(spark: SparkSession, bronze: TableRef, stage: Stage, batch: Batch, policy: Policy) -> Decisions:
    """Decide, and keep the decisions in the stage.

    Raises:
        SinkError: bronze or the stage cannot be read, or the decisions cannot be kept.
        AccountingError: the decisions do not cover the valid rows.
    """
    valid = stage.manifest.records_valid
    with edge("the batch could not be compared with bronze", batch.where), settings(spark, WRITE_SETTINGS):
        _clear(stage.folder)
        keys = _keys(stage.valid(spark))
        stored = _stored(spark, bronze, stage, keys, policy)
        if valid > 0 and _contested(keys, stored):
            decided = _decide(keys, stored, batch, policy).where(F.col("decision") != Decision.INSERTED.value)
            decided.select("_row", "decision", "replaces", "replaced_day").write.parquet(str(stage.folder / _FOLDER))
            decisions = _count(spark, stage, valid)
        else:
            decisions = Decisions(uuid.uuid4().hex, inserted=valid, plain=True)
        write_json(stage.folder / _FILE, asdict(decisions))
    if decisions.inserted < 0:
        raise AccountingError(f"{valid} valid rows, but more decisions than that", where=batch.where)
    return decisions


def _clear(folder: Path) -> None:
    (folder / _FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / _FOLDER, ignore_errors=True)


def _keys(valid: DataFrame) -> DataFrame:
    return valid.select(
        "_row",
        "event_id",
        F.xxhash64("event_id").alias("id_hash"),
        "event_time",
        "source_time",
        "source",
        F.col("payload_sha256").alias("hash"),
    )


def _contested(keys: DataFrame, stored: DataFrame) -> bool:
    """Whether an id may occur twice in the batch or be in bronze; two ids with one hash only cost the slower way.

    One query, because planning a small one costs more than running it.
    """
    doubled = keys.groupBy("id_hash").count().where(F.col("count") > 1).select("id_hash")
    return bool(doubled.unionAll(stored.select("id_hash")).count())


def _stored(spark: SparkSession, bronze: TableRef, stage: Stage, keys: DataFrame, policy: Policy) -> DataFrame:
    """Bronze rows, small columns only, that may have an id of the batch."""
    rows = bronze.read(spark)
    first, last = stage.manifest.first_day, stage.manifest.last_day
    if isinstance(policy.dedupe, DedupeWindow) and first is not None and last is not None:
        days = policy.dedupe.days
        rows = rows.where(F.col("_event_date").between(day(first - days), day(last + days)))
    rows = rows.select(
        F.col(policy.id_column).cast("string").alias("event_id"),
        F.col(policy.time_column).cast("timestamp").alias("event_time"),
        F.col("_source_time").alias("source_time"),
        F.col("_source").alias("source"),
        F.col("_payload_sha256").alias("hash"),
        F.col("_batch_id").alias("batch_id"),
        F.unix_date("_event_date").alias("day"),
    ).withColumn("id_hash", F.xxhash64("event_id"))
    ids = keys.select("id_hash")
    if stage.manifest.records_valid <= BROADCAST_ROWS:
        ids = F.broadcast(ids)
    return rows.join(ids, "id_hash", "left_semi")


def _decide(keys: DataFrame, stored: DataFrame, batch: Batch, policy: Policy) -> DataFrame:
    newest = policy.on_match is OnMatch.UPDATE_IF_NEWER
    order = _order(newest)
    # Within a window an id can be stored more than once; the one that is compared with is chosen by the same order.
    own = F.col("batch_id") == batch.batch_id
    own_first = F.struct((own if newest else ~own).alias("own"), order.alias("order"))
    kept = F.struct("order", "source", "hash", "batch_id", "day")
    stored_one = (
        stored.withColumn("order", order)
        .groupBy("event_id")
        .agg((F.max_by(kept, own_first) if newest else F.min_by(kept, own_first)).alias("stored"))
    )
    by_id = Window.partitionBy("event_id")
    candidate = F.struct("order", "_row", "hash")
    best = (F.max(candidate) if newest else F.min(candidate)).over(by_id)
    rows = keys.withColumn("order", order).withColumn("winner", best).join(stored_one, "event_id", "left")

    is_stored = F.col("stored").isNotNull()
    mine = F.coalesce(
        (F.col("stored.batch_id") == batch.batch_id) & F.col("stored.source").eqNullSafe(F.col("source")), F.lit(False)
    )
    wins = F.col("winner._row") == F.col("_row")
    same_as_stored = F.col("hash").eqNullSafe(F.col("stored.hash"))
    same_as_winner = F.col("hash").eqNullSafe(F.col("winner.hash"))
    newer = F.col("order") > F.col("stored.order")
    if newest:
        decision = (
            F.when(~wins, _lit(Decision.DUPLICATE))
            .when(mine, _lit(Decision.LANDED))
            .when(~is_stored, _lit(Decision.INSERTED))
            .when(newer & ~same_as_stored, _lit(Decision.UPDATED))
            .otherwise(_lit(Decision.DUPLICATE))
        )
    else:
        decision = (
            F.when(mine, _lit(Decision.LANDED))
            .when(is_stored, F.when(same_as_stored, _lit(Decision.DUPLICATE)).otherwise(_lit(Decision.CONFLICT)))
            .when(wins, _lit(Decision.INSERTED))
            .when(same_as_winner, _lit(Decision.DUPLICATE))
            .otherwise(_lit(Decision.CONFLICT))
        )
    updated = F.col("decision") == _lit(Decision.UPDATED)
    return rows.select("_row", decision.alias("decision"), "stored").select(
        "_row",
        "decision",
        F.when(updated, F.col("stored.source")).alias("replaces"),
        F.when(updated, F.col("stored.day")).alias("replaced_day"),
    )


def _order(newest: bool) -> Column:
    """A struct to compare records by; a missing part comes before every value, as Spark compares structs."""
    coordinate = (F.col("source.system"), F.col("source.stream"), F.col("source.partition"), F.col("source.position"))
    arrival = (F.col("source_time"), *coordinate)
    parts = (F.col("event_time"), *arrival) if newest else arrival
    return F.struct(*(part.alias(f"o{i}") for i, part in enumerate(parts)))


def _count(spark: SparkSession, stage: Stage, valid: int) -> Decisions:
    ddl = f"{_EXCEPTIONS_DDL}, replaced_day INT"
    rows = spark.read.schema(ddl).parquet(str(stage.folder / _FOLDER)).groupBy("decision")
    bounds = (F.min("replaced_day").alias("first"), F.max("replaced_day").alias("last"))
    found = rows.agg(F.count(F.lit(1)).alias("records"), *bounds).collect()
    counts = {row["decision"]: int(row["records"]) for row in found}
    return Decisions(
        probe_id=uuid.uuid4().hex,
        inserted=valid - sum(counts.values()),
        updated=counts.get(Decision.UPDATED, 0),
        duplicate=counts.get(Decision.DUPLICATE, 0),
        conflict=counts.get(Decision.CONFLICT, 0),
        landed=counts.get(Decision.LANDED, 0),
        oldest_replaced_day=min((row["first"] for row in found if row["first"] is not None), default=None),
        newest_replaced_day=max((row["last"] for row in found if row["last"] is not None), default=None),
    )


def day(days: int) -> Column:
    """A literal date, from days since 1970-01-01: Python's dates end at the year 9999, Spark's do not."""
    return F.date_from_unix_date(F.lit(days))


def _lit(decision: Decision) -> Column:
    return F.lit(decision.value)
