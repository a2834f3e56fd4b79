"""Step 1: evaluate the batch once and freeze it; `frozen` has the layout of what is written."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F

from lazaretto.commit.durable import write_json
from lazaretto.commit.frozen import MANIFEST, Manifest, Range, Stage, drop, staged_rows, staged_sizes
from lazaretto.commit.isolate import Isolated, evaluated
from lazaretto.commit.model import Batch
from lazaretto.commit.screened import Verdict
from lazaretto.commit.spark_edge import edge, settings
from lazaretto.contracts import Contract
from lazaretto.errors import AccountingError

WRITE_SETTINGS = {
    # Spark's default writes INT96, which other readers take for nanoseconds and cannot hold before 1677 or after 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A frozen batch of old dates must not fail for ever, nor be shifted.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
# The verdicts are written side by side, so that few held records can be read without the many valid ones; without
# this Spark would sort the rows by verdict first.
_SIDE_BY_SIDE = {"spark.sql.maxConcurrentOutputFileWriters": str(2 * len(Verdict))}


def write_stage(
    spark: SparkSession,
    folder: Path,
    batch: Batch,
    *,
    contract: Contract,
    schema_id: str,
    ruleset: str,
    envelope: Callable[[], DataFrame],
    screen: Callable[[DataFrame], DataFrame],
    source_range: Mapping[str, Any] | None,
    written: Callable[[], None],
) -> Stage:
    """Evaluate source and screening once, into a new stage.

    Args:
        written: called when the rows are on disk and the manifest is not.

    Raises:
        SourceError, SinkError, ProcessingError: as `edge` tells them apart.
        AccountingError: screening lost, doubled or misjudged rows.
    """
    where = batch.where
    drop(folder)
    with edge("the stage could not be prepared", where):
        folder.mkdir(parents=True)
    read = seen = Observation()

    def write(isolated: Isolated) -> None:
        nonlocal read, seen
        # An observation is good for one evaluation, and so is what a failed one has written.
        read, seen = Observation(), Observation()
        shutil.rmtree(folder / "data", ignore_errors=True)
        with edge("the batch could not be screened", where, reads_source=True):
            screened = screen(isolated.others(envelope()).observe(read, F.count(F.lit(1)).alias("records")))
            if isolated.records:
                screened = screened.unionByName(isolated.held(envelope(), contract))
            numbered = screened.observe(seen, *_broken()).withColumn("_row", F.monotonically_increasing_id())
        with (
            edge("the rows could not be staged", where, reads_source=True, evaluates=True),
            settings(spark, {**WRITE_SETTINGS, **_SIDE_BY_SIDE}),
        ):
            numbered.write.partitionBy("verdict").parquet(str(folder / "data"))

    isolated = evaluated(where, write, envelope, screen)
    with edge("the rows could not be staged", where, reads_source=True):
        records_read = int(read.get.get("records") or 0) + len(isolated.records)
        broken = {name: int(count) for name, count in seen.get.items() if count}
    written()
    if broken:
        told = ", ".join(f"{count} {name}" for name, count in sorted(broken.items()))
        raise AccountingError(f"screening gave rows that cannot be: {told}", where=where)

    with edge("the stage could not be counted", where):
        groups = _count(staged_rows(spark, folder, contract))
        files = staged_sizes(folder / "data")
    staged = sum(group["records"] for group in groups)
    if staged != records_read:
        raise AccountingError(f"{records_read} records were read, {staged} rows were staged", where=where)

    def total(verdict: Verdict) -> int:
        return sum(group["records"] for group in groups if group["verdict"] == verdict.value)

    days = [(g["first_day"], g["last_day"]) for g in groups if g["first_day"] is not None]
    manifest = Manifest(
        stage_id=uuid.uuid4().hex,
        dataset=batch.dataset,
        batch_id=batch.batch_id,
        run_id=batch.run_id,
        started_at=batch.started_at.astimezone(UTC).isoformat(),
        schema_id=schema_id,
        ruleset=ruleset,
        columns=contract.ddl,
        records_read=records_read,
        records_valid=total(Verdict.VALID),
        records_invalid=total(Verdict.INVALID),
        records_filtered=total(Verdict.FILTERED),
        first_day=min((first for first, _ in days), default=None),
        last_day=max((last for _, last in days), default=None),
        ranges=_ranges(groups),
        declared=source_range,
        files=files,
        isolated=len(isolated.records),
    )
    with edge("the stage's manifest could not be written", where):
        write_json(folder / MANIFEST, asdict(manifest))
    return Stage(folder, manifest, contract)


def event_day(time: Column) -> Column:
    """The UTC day of a timestamp as days since 1970-01-01, whatever the session's time zone."""
    seconds = F.unix_seconds(time)
    return ((seconds - F.pmod(seconds, F.lit(86_400))) / F.lit(86_400)).cast("int")


def _broken() -> Iterable[Column]:
    """Counters of rows that screening must never give, taken while the stage is written: no second reading."""
    verdict = F.col("verdict")
    valid, invalid = verdict == Verdict.VALID.value, verdict == Verdict.INVALID.value
    id_missing = F.col("event_id").isNull() | (F.length(F.trim("event_id")) == 0)
    rules = {
        "without a verdict": verdict.isNull() | ~verdict.isin(*(v.value for v in Verdict)),
        "without a coordinate": F.col("source.stream").isNull() | F.col("source.position").isNull(),
        "valid without a record": valid & F.col("record").isNull(),
        "valid without an event id": valid & id_missing,
        "valid without an event time": valid & F.col("event_time").isNull(),
        "invalid without a violation": invalid & (F.coalesce(F.size("violations"), F.lit(0)) <= 0),
    }
    return [F.count_if(F.coalesce(wrong, F.lit(False))).alias(name) for name, wrong in rules.items()]


def _count(rows: DataFrame) -> list[Row]:
    """Records, positions and days per partition and verdict: a row for each, small enough to bring here."""
    valid = F.col("verdict") == Verdict.VALID.value
    day = F.when(valid, event_day(F.col("event_time")))
    return (
        rows.groupBy("source.system", "source.stream", "source.partition", "verdict")
        .agg(
            F.count(F.lit(1)).alias("records"),
            F.min("source.position").alias("start"),
            F.max("source.position").alias("end"),
            F.min(day).alias("first_day"),
            F.max(day).alias("last_day"),
        )
        .collect()
    )


def _ranges(groups: list[Row]) -> tuple[Range, ...]:
    found: dict[tuple[str, str, str | None], Range] = {}
    for g in groups:
        key = (g["system"], g["stream"], g["partition"])
        old = found.get(key)
        held = (g["start"], g["end"]) if g["verdict"] == Verdict.INVALID.value else (None, None)
        found[key] = Range(
            *key,
            start=g["start"] if old is None else min(old.start, g["start"]),
            end=g["end"] if old is None else max(old.end, g["end"]),
            records=g["records"] + (old.records if old else 0),
            held_start=held[0] if held[0] is not None or old is None else old.held_start,
            held_end=held[1] if held[1] is not None or old is None else old.held_end,
        )
    return tuple(found[key] for key in sorted(found, key=lambda k: tuple(part or "" for part in k)))
