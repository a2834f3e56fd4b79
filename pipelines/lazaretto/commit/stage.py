"""Step 1: evaluate the batch once and freeze it.

    staging/<dataset>/<batch>/
        data/verdict=V/*.parquet   the screened rows, with `_row`: a number for each row, fixed by the writing
        manifest.json       appears last, by rename; from then on the batch is frozen
        gate.json           the gate let it through, and with which findings
        probe.json, probe/  the decisions of the last probe

A retry reads these files, never the source or newer rules. The manifest keeps names and sizes, not hashes: a hash would
read everything again, and what sizes do not show (a flipped bit) is found by the reader, since Parquet pages and
Hadoop's `.crc` files carry checksums of their own.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F

from lazaretto.commit.durable import damaged, read_json, write_json
from lazaretto.commit.model import Batch
from lazaretto.commit.screened import Verdict, columns_of, screened_ddl
from lazaretto.commit.spark_edge import edge, settings
from lazaretto.contracts import Contract
from lazaretto.errors import AccountingError, ConfigurationError

MANIFEST = "manifest.json"
WRITE_SETTINGS = {
    # Spark's default writes INT96, which other readers take for nanoseconds and cannot hold before 1677 or after 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A frozen batch of old dates must not fail for ever, nor be shifted.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
# The verdicts are written side by side, so that few held records can be read without the many valid ones; without
# this Spark would sort the rows by verdict first.
_SIDE_BY_SIDE = {"spark.sql.maxConcurrentOutputFileWriters": str(2 * len(Verdict))}
_FORMAT = 1


@dataclass(frozen=True)
class Range:
    """What a batch holds of one partition: first and last position, both inclusive, and the number of records.

    `held_*` are the bounds of the invalid ones; None when there are none.
    """

    system: str
    stream: str
    partition: str | None
    start: int
    end: int
    records: int
    held_start: int | None = None
    held_end: int | None = None


@dataclass(frozen=True)
class Manifest:
    """The frozen facts of a batch. Days are days since 1970-01-01 UTC, of the valid rows; None without any."""

    stage_id: str
    dataset: str
    batch_id: str
    run_id: str
    started_at: str
    schema_id: str
    ruleset: str
    columns: str
    records_read: int
    records_valid: int
    records_invalid: int
    records_filtered: int
    first_day: int | None
    last_day: int | None
    ranges: tuple[Range, ...]
    declared: Mapping[str, Any] | None
    files: Mapping[str, int]
    format: int = _FORMAT

    @property
    def arrived_at(self) -> datetime:
        """The arrival time of every row of the batch."""
        return datetime.fromisoformat(self.started_at)

    @property
    def completeness(self) -> float:
        inspected = self.records_valid + self.records_invalid
        return self.records_valid / inspected if inspected else 1.0


@dataclass(frozen=True)
class Stage:
    """A frozen batch on disk."""

    folder: Path
    manifest: Manifest
    contract: Contract

    def rows(self, spark: SparkSession) -> DataFrame:
        """All rows: the screened columns and `_row`."""
        return _rows(spark, self.folder, self.contract)

    def valid(self, spark: SparkSession) -> DataFrame:
        return self.rows(spark).where(F.col("verdict") == F.lit(Verdict.VALID.value))

    def records(self, spark: SparkSession) -> DataFrame:
        """The contract's columns of the valid rows: what the batch rules look at."""
        return self.valid(spark).select(*(F.col("record").getField(n).alias(n) for n in columns_of(self.contract)))


def drop(folder: Path) -> None:
    """Remove a stage. The manifest goes first: a half-removed stage must not look like a damaged one."""
    with edge("the stage could not be removed", str(folder)):
        (folder / MANIFEST).unlink(missing_ok=True)
        if folder.exists():
            shutil.rmtree(folder)


def open_stage(folder: Path, batch: Batch, contract: Contract) -> Stage | None:
    """The frozen stage an earlier attempt has left, or None.

    Raises:
        SinkError: it is there but damaged.
        ConfigurationError: it was screened under another contract than the present one.
    """
    document = read_json(folder / MANIFEST)
    if document is None:
        return None
    try:
        ranges = tuple(Range(**entry) for entry in document.pop("ranges"))
        manifest = Manifest(ranges=ranges, **document)
    except (TypeError, KeyError) as exc:
        raise damaged(folder, f"{MANIFEST} has other keys than it should") from exc
    if (manifest.format, manifest.dataset, manifest.batch_id) != (_FORMAT, batch.dataset, batch.batch_id):
        raise damaged(folder, f"{MANIFEST} is of another batch")
    with edge("the stage could not be read", str(folder)):
        present = _sizes(folder / "data")
    if present != manifest.files:
        wrong = sorted(n for n in {*present, *manifest.files} if present.get(n) != manifest.files.get(n))
        raise damaged(folder, f"{len(wrong)} of {len(manifest.files)} files are missing or of another size")
    if manifest.columns != contract.ddl:
        raise ConfigurationError(
            f"the batch was staged under contract {manifest.schema_id}, whose columns differ from {contract.schema_id}",
            where=str(folder),
            remedy="finish it with that contract, or delete this folder to have it read and screened anew",
        )
    return Stage(folder, manifest, contract)


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
        SourceError, SinkError: as `edge` tells them apart.
        AccountingError: screening lost, doubled or misjudged rows.
    """
    where = batch.where
    drop(folder)
    with edge("the stage could not be prepared", where):
        folder.mkdir(parents=True)
    read, seen = Observation(), Observation()
    with edge("the batch could not be screened", where, reads_source=True):
        arrived = envelope().observe(read, F.count(F.lit(1)).alias("records"))
        screened = screen(arrived).observe(seen, *_broken())
    with (
        edge("the stage could not be written", where, reads_source=True),
        settings(spark, {**WRITE_SETTINGS, **_SIDE_BY_SIDE}),
    ):
        numbered = screened.withColumn("_row", F.monotonically_increasing_id())
        numbered.write.partitionBy("verdict").parquet(str(folder / "data"))
        records_read = int(read.get.get("records") or 0)
        broken = {name: int(count) for name, count in seen.get.items() if count}
    written()
    if broken:
        told = ", ".join(f"{count} {name}" for name, count in sorted(broken.items()))
        raise AccountingError(f"screening gave rows that cannot be: {told}", where=where)

    with edge("the stage could not be counted", where):
        groups = _count(_rows(spark, folder, contract))
        files = _sizes(folder / "data")
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
    )
    with edge("the stage's manifest could not be written", where):
        write_json(folder / MANIFEST, asdict(manifest))
    return Stage(folder, manifest, contract)


def event_day(time: Column) -> Column:
    """The UTC day of a timestamp as days since 1970-01-01, whatever the session's time zone."""
    seconds = F.unix_seconds(time)
    return ((seconds - F.pmod(seconds, F.lit(86_400))) / F.lit(86_400)).cast("int")


def _rows(spark: SparkSession, folder: Path, contract: Contract) -> DataFrame:
    # The schema is known: without it Spark would start a job to look at the files.
    return spark.read.schema(f"{screened_ddl(contract)}, _row BIGINT").parquet(str(folder / "data"))


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


def _sizes(data: Path) -> dict[str, int]:
    files = sorted(data.glob("*/*.parquet"))
    return {file.relative_to(data).as_posix(): file.stat().st_size for file in files}
