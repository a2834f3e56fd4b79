"""Step 4: hold what may not land, once, however often it is delivered or the step is repeated."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lazaretto.commit import history
from lazaretto.commit.audit_table import instant
from lazaretto.commit.frozen import Stage
from lazaretto.commit.model import Batch, BatchKind, Policy, Step
from lazaretto.commit.probe import Decision, Decisions, exceptions
from lazaretto.commit.schema import QUARANTINE, in_table_order
from lazaretto.commit.screened import VIOLATIONS_DDL, Verdict
from lazaretto.commit.spark_edge import edge, settings
from lazaretto.commit.stage import WRITE_SETTINGS
from lazaretto.commit.tables import TableRef
from lazaretto.errors import RECORD_CODES, AccountingError, ErrorClass, RecordCode

_MOST_RANGES = 200
"""Above this many partitions (files of a manifest) one range over all of them keeps the plan small."""

_CONFLICT_DETAIL = "another payload is stored under this event id"


@dataclass(frozen=True)
class Held:
    """What became of the rows to hold.

    Attributes:
        quarantined: held by this batch, including what an earlier attempt at it has written.
        duplicate: held already by another batch.
        version: a version of the table that has this batch's rows; None when it has none.
    """

    quarantined: int = 0
    duplicate: int = 0
    version: int | None = None


def quarantine_id(dataset: str, system: str | None, stream: str | None, partition: str | None, position: int) -> str:
    """The key of a held record: sha256 of its dataset and coordinate, 64 hex digits.

    Each part is written as `<bytes in UTF-8>:<text>`, a missing one as `~`, so that no two coordinates look the same.
    """
    parts = (dataset, system, stream, partition, str(position))
    text = "".join("~" if part is None else f"{len(part.encode())}:{part}" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()


def hold(
    spark: SparkSession,
    table: TableRef,
    stage: Stage,
    batch: Batch,
    policy: Policy,
    decisions: Decisions,
    written: Callable[[], None],
) -> Held:
    """Append the invalid rows and the id conflicts that are not held yet; no commit when there are none.

    `written` is called when they have been appended and not been checked.

    A record that another batch holds already came a second time: it counts as duplicate. In a replay, which is made of
    held records, it counts as quarantined: it stays where it is.

    Raises:
        SinkError: the quarantine could not be read or written.
        AccountingError: the table did not take what it was given.
    """
    total = stage.manifest.records_invalid + decisions.conflict
    if total == 0:
        return Held()
    candidates = _candidates(spark, stage, decisions)
    with edge("the quarantine could not be read", str(table)):
        known = _known(spark, table, stage, decisions)
        # A cheap look first: mostly nothing of these source ranges is held yet.
        repeated = candidates.groupBy("source").count().where(F.col("count") > 1).select(F.lit(1))
        suspicious = bool(repeated.unionAll(known.select(F.lit(1))).count())
        new, own = _compare(candidates, known, total, batch) if suspicious else (total, 0)
    if new:
        rows = candidates if new == total else _unknown(candidates, known)
        mark = history.mark(stage.manifest, Step.QUARANTINE, decisions.probe_id)
        with edge("the quarantine could not be written", str(table)), settings(spark, WRITE_SETTINGS):
            table.append(_as_held(rows, stage, policy), user_metadata=mark)
        written()
    version = _version(spark, table, stage, decisions, new, batch) if new + own else None
    if batch.kind is BatchKind.REPLAY:
        return Held(quarantined=total, version=version)
    return Held(quarantined=new + own, duplicate=total - new - own, version=version)


def _candidates(spark: SparkSession, stage: Stage, decisions: Decisions) -> DataFrame:
    """The rows to hold, as staged, with `quarantine_id`; conflicts get their violation here."""
    rows = stage.rows(spark)
    held = F.col("verdict") == Verdict.INVALID.value
    if decisions.conflict:
        rows = rows.join(exceptions(spark, stage, decisions).drop("replaces"), "_row", "left")
        held = held | F.coalesce(F.col("decision") == Decision.CONFLICT.value, F.lit(False))
    dataset = stage.manifest.dataset
    return rows.where(held).withColumn("quarantine_id", _id_column(dataset))


def _known(spark: SparkSession, table: TableRef, stage: Stage, decisions: Decisions) -> DataFrame:
    """`quarantine_id` and `held_by` of this dataset's held rows within the batch's source ranges.

    The ranges let Delta skip files: positions grow, so old files are never opened.
    """
    ranges = [r for r in stage.manifest.ranges if decisions.conflict or r.held_start is not None]
    bounds = [
        (r.start, r.end) if decisions.conflict or r.held_start is None or r.held_end is None
        else (r.held_start, r.held_end)
        for r in ranges
    ]  # fmt: skip
    position = F.col("source.position")
    if len(ranges) > _MOST_RANGES:
        streams = [r.stream for r in ranges]
        within = position.between(min(start for start, _ in bounds), max(end for _, end in bounds))
        within = within & F.col("source.stream").between(min(streams), max(streams))
    else:
        within = reduce(
            Column.__or__,
            (
                F.col("source.stream").eqNullSafe(r.stream)
                & F.col("source.partition").eqNullSafe(F.lit(r.partition))
                & position.between(start, end)
                for r, (start, end) in zip(ranges, bounds, strict=True)
            ),
        )
    rows = table.read(spark).where((F.col("dataset") == stage.manifest.dataset) & within)
    return rows.select("quarantine_id", F.col("batch_id").alias("held_by"))


def _unknown(candidates: DataFrame, known: DataFrame) -> DataFrame:
    return candidates.join(known.select("quarantine_id"), "quarantine_id", "left_anti")


def _compare(candidates: DataFrame, known: DataFrame, total: int, batch: Batch) -> tuple[int, int]:
    """How many of the rows nobody holds yet, and how many an earlier attempt at this batch has written."""
    keyed = candidates.groupBy("quarantine_id").agg(F.count(F.lit(1)).alias("rows"))
    counts = (
        keyed.join(known, "quarantine_id", "left")
        .agg(
            F.coalesce(F.sum("rows"), F.lit(0)).alias("rows"),
            F.count(F.lit(1)).alias("ids"),
            F.count_if(F.col("held_by").isNull()).alias("new"),
            F.count_if(F.col("held_by") == batch.batch_id).alias("own"),
        )
        .collect()[0]
    )
    if counts["rows"] != total or counts["ids"] != total:
        raise AccountingError(
            f"{total} records to hold, but {counts['rows']} rows with {counts['ids']} coordinates", where=batch.where
        )
    return int(counts["new"]), int(counts["own"])


def _version(spark: SparkSession, table: TableRef, stage: Stage, decisions: Decisions, new: int, batch: Batch) -> int:
    """The version of the append just made (its row count checked), or the newest when nothing had to be appended."""
    with edge("the quarantine's history could not be read", str(table)):
        if not new:
            return history.newest(spark, table).version
        wanted = history.mark(stage.manifest, Step.QUARANTINE, decisions.probe_id)
        commit = history.find(spark, table, wanted, stage.manifest.arrived_at)
    if commit is None or commit.metrics.get("numOutputRows", new) != new:
        got = "no commit" if commit is None else f"{commit.metrics['numOutputRows']} rows"
        raise AccountingError(f"{new} records to hold, but the quarantine took {got}", where=batch.where)
    return commit.version


def _as_held(rows: DataFrame, stage: Stage, policy: Policy) -> DataFrame:
    """Staged rows as rows of the quarantine table; everything that is not the record's is a constant of the batch."""
    manifest = stage.manifest
    conflict = F.array(
        F.struct(
            F.lit(RecordCode.ID_CONFLICT.value).alias("code"),
            F.lit(policy.event_id).alias("field"),
            F.lit(_CONFLICT_DETAIL).alias("detail"),
        )
    )
    violations = F.when(F.col("verdict") == Verdict.VALID.value, conflict).otherwise(F.col("violations"))
    first = F.col("violations").getItem(0)
    code, field = first.getField("code"), first.getField("field")
    error_class = _by_code(code, {c: info.error_class.value for c, info in RECORD_CODES.items()},
                           ErrorClass.DATA_QUALITY.value)  # fmt: skip
    group = (error_class, code, field, F.lit(manifest.schema_id), F.col("source.stream"))
    columns = {
        "dataset": F.lit(manifest.dataset),
        # The day is the batch's, not the attempt's: a retry after midnight writes the same row.
        "ingest_date": F.lit(manifest.arrived_at.date()),
        "ingested_at": instant(manifest.arrived_at),
        "batch_id": F.lit(manifest.batch_id),
        "run_id": F.lit(manifest.run_id),
        "error_class": error_class,
        "error_code": code,
        "group_key": F.concat_ws("|", *(F.coalesce(part, F.lit("")) for part in group)),
        "schema_id": F.lit(manifest.schema_id),
        "ruleset": F.lit(manifest.ruleset),
        "attempt_count": F.lit(1),
        "retriable": _by_code(code, {c: info.retriable for c, info in RECORD_CODES.items()}, True),
        "pii": F.lit(stage.contract.has_personal_data),
    }
    shaped = rows.withColumn("violations", violations.cast(VIOLATIONS_DDL)).withColumns(columns)
    return in_table_order(shaped, QUARANTINE)


def _by_code(code: Column, known: dict[RecordCode, str] | dict[RecordCode, bool], otherwise: str | bool) -> Column:
    values: dict[str | bool, list[str]] = {}
    for each, value in known.items():
        values.setdefault(value, []).append(each.value)
    chain = F
    for value, codes in values.items():
        chain = chain.when(code.isin(codes), F.lit(value))  # type: ignore[assignment]
    return chain.otherwise(F.lit(otherwise))  # type: ignore[attr-defined, no-any-return]


def _id_column(dataset: str) -> Column:
    """`quarantine_id` as a column; the two must stay the same."""
    source = F.col("source")
    parts = (
        F.lit(dataset),
        source.getField("system"),
        source.getField("stream"),
        source.getField("partition"),
        source.getField("position").cast("string"),
    )
    told = (F.when(p.isNull(), F.lit("~")).otherwise(F.concat(F.octet_length(p).cast("string"), F.lit(":"), p))
            for p in parts)  # fmt: skip
    return F.sha2(F.concat(*told), 256)
