"""Source, bronze and quarantine laid side by side, by coordinate: one shuffle, kept until the last question is asked.

Every record of the source and every row of the tables becomes a small row: where it stands, which of the three it is
of, its batch, its hashes. Grouped by coordinate they tell what is where. Only counts and a few positions leave Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lazaretto.observe.accounts import Interval, Place
from lazaretto.observe.differences import SHOWN, Seen
from lazaretto.observe.spans import Span, bin_width, bins

_SOURCE, _BRONZE, _REPLAYED, _HELD = range(4)
_NO_BATCH = -1
_FOREIGN = -2


@dataclass(frozen=True)
class Positions:
    """How many records, and the first few positions of them."""

    records: int
    first: tuple[int, ...]


@dataclass(frozen=True)
class Changed:
    """Records of one batch at one place whose hash in a table is not that of what was sent."""

    batch_id: str | None
    place: Place
    at: Positions


@contextmanager
def side_by_side(
    spark: SparkSession,
    source: DataFrame | None,
    bronze: DataFrame,
    held: DataFrame,
    *,
    reads: Mapping[Place, list[Interval]],
    batches: Iterable[str],
    foreign: Iterable[str] = (),
    share: float,
) -> Iterator[SideBySide]:
    """Lay out source and tables; evaluated at the first question, dropped at the end.

    Args:
        source: an envelope; None when no source is read.
        bronze, held: the dataset's rows of the two tables.
        reads: the places and positions that are asked about.
        batches: every id that may be asked about or come up in an answer.
        foreign: batches of an earlier topic of the same name: their coordinates are of other records.
        share: of all coordinates, how many get a hash to compare; 0.0 to 1.0.
    """
    parts = {place: number for number, place in enumerate(reads)}
    numbers = {batch: number for number, batch in enumerate(dict.fromkeys(batches))}
    places = F.broadcast(_frame(spark, _PARTS, [(number, *place) for place, number in parts.items()]))
    known = [*numbers.items(), *((batch, _FOREIGN) for batch in foreign)]
    ids = F.broadcast(_frame(spark, "batch_id STRING, batch INT", known))
    ends = [position for intervals in reads.values() for each in intervals for position in each]

    def within(position: str) -> Column:
        return F.col(position).between(min(ends, default=0), max(ends, default=-1))

    def row(of: Column, batch_id: Column, sha: Column, own: Column, mark: Column) -> list[Column]:
        at = ("system", "stream", "position")
        return [
            *(F.col(f"at.{name}").alias(name) for name in at),
            F.coalesce("at.partition", F.lit("")).alias("partition"),
            of.alias("of"), batch_id.alias("batch_id"), sha.alias("sha"), own.alias("own"), mark.alias("mark"),
        ]  # fmt: skip

    nothing = F.lit(None).cast("STRING")
    no_mark = F.lit(None).cast("BIGINT")
    landed = bronze.where(within("_source.position")).withColumnRenamed("_source", "at")
    of = F.when(F.col("_replay_id").isNull(), _BRONZE).otherwise(_REPLAYED)
    landed = landed.select(row(of, F.col("_batch_id"), F.col("_payload_sha256"), nothing, no_mark))
    # Delta keeps the bounds of the quarantine's positions, and leaves out files by them.
    kept = held.where(within("source.position")).withColumnRenamed("source", "at")
    own_hash = F.sha2("payload", 256)
    kept = kept.select(row(F.lit(_HELD), F.col("batch_id"), F.col("payload_sha256"), own_hash, no_mark))
    rows = landed.unionByName(kept).join(ids, "batch_id", "left").drop("batch_id")
    rows = rows.where(~F.col("batch").eqNullSafe(_FOREIGN))
    if source is not None:
        sent = source.withColumnRenamed("source", "at")
        hashed = F.sha2("value", 256)
        sent = sent.select(row(F.lit(_SOURCE), nothing, hashed, nothing, F.xxhash64(hashed)))
        # the hash of a missing value is a number, too
        sent = sent.withColumn("mark", F.when(F.col("sha").isNotNull(), F.col("mark")))
        rows = rows.unionByName(sent.drop("batch_id").withColumn("batch", F.lit(None).cast("INT")))
    rows = rows.join(places, ["system", "stream", "partition"])
    rows = rows.withColumn("lot", F.xxhash64("system", "stream", "partition", "position"))
    sampled = _sampled(share)
    grouped = _by_coordinate(rows.withColumns({name: F.when(sampled, F.col(name)) for name in ("sha", "own")})).persist(
        StorageLevel.MEMORY_AND_DISK
    )
    try:
        yield SideBySide(grouped, parts, numbers, sampled)
    finally:
        grouped.unpersist()


class SideBySide:
    """The laid out rows; made by `side_by_side`. Each method is one question, one Spark job."""

    def __init__(
        self, rows: DataFrame, parts: Mapping[Place, int], batches: Mapping[str, int], sampled: Column
    ) -> None:
        self._rows = rows
        self._parts = parts
        self._places = list(parts)
        self._batches = batches
        self._batch_ids = list(batches)
        self._sampled = sampled

    def seen(self, spans: Sequence[Span]) -> list[Seen]:
        """What was seen within each of these spans of batches, in their order."""
        in_source = F.col("s") > 0
        own_bronze, own_held = _is_of("b"), _is_of("q")
        own = own_bronze | own_held
        neither = in_source & ~own
        flags = {
            "doubled": own & ((F.col("b") + F.col("r") > 1) | (F.col("q") > 1)),
            # A row that a replay has landed stands beside the held record it came from.
            "both": own & (F.col("b") > 0) & (F.col("q") > 0),
            "invented": own & ~in_source,
        }
        counts = {
            "source": in_source, "bronze": own_bronze, "held": own_held, "neither": neither,
            "empty": neither & F.col("mark").isNull(), **flags,
        }  # fmt: skip
        found = self._within(spans).groupBy("span").agg(
            *(F.count_if(flag).alias(name) for name, flag in counts.items()),
            *(_first(flag).alias(f"{name}_at") for name, flag in flags.items()),
        )  # fmt: skip
        by_span: dict[int, Seen] = {}
        for row in found.collect():
            values: dict[str, Any] = {f.name: row[f.name] for f in fields(Seen)}
            values |= {f"{name}_at": tuple(values[f"{name}_at"]) for name in flags}
            by_span[row["span"]] = Seen(**values)
        return [by_span.get(index, Seen()) for index in range(len(spans))]

    def records(self, spans: Sequence[Span]) -> dict[int, Positions]:
        """The records of the source within each span, by the span's index; none where there are none."""
        return self._positions(self._within(spans).where(F.col("s") > 0))

    def unexplained(self, spans: Sequence[Span], bronze: DataFrame, *, empty_is_filtered: bool) -> dict[int, Positions]:
        """Records of the source within each span that are in no table and a copy of nothing in bronze.

        Holds for `on_match: ignore` only: there a duplicate has the very bytes of a row of bronze.
        """
        rows = self._within(spans).where((F.col("s") > 0) & (F.col("b") + F.col("r") + F.col("q") == 0))
        if empty_is_filtered:
            rows = rows.where(F.col("mark").isNotNull())
        stored = bronze.select(F.xxhash64("_payload_sha256").alias("mark"))
        return self._positions(rows.join(stored, "mark", "left_anti"))

    def hashes(self, sample: int) -> tuple[int, list[Changed]]:
        """Compare the hashes of `sample` records (0: all) that are in the source and in a table.

        Which ones is decided by a hash of the coordinate: the same ones every time.

        Returns:
            how many were compared; where they differ.
        """
        in_both = (F.col("s") > 0) & (F.col("b") + F.col("r") + F.col("q") > 0)
        rows = self._rows.where(in_both & self._sampled)
        if sample:
            rows = rows.orderBy("lot", "part", "position").limit(sample)
        other = F.lit(False)
        for here, names in ((F.col("b") + F.col("r") > 0, ("b_sha", "b_sha2")),
                            (F.col("q") > 0, ("q_sha", "q_sha2", "own", "own2"))):  # fmt: skip
            for name in names:
                other = other | (here & ~F.col(name).eqNullSafe(F.col("s_sha")))
        batch = F.coalesce("b_batch", "q_batch", F.lit(_NO_BATCH)).alias("batch")
        found = (
            rows.groupBy("part", batch)
            .agg(F.count(F.lit(1)).alias("n"), F.count_if(other).alias("wrong"), _first(other).alias("first"))
            .collect()
        )
        changed = [
            Changed(
                None if row["batch"] == _NO_BATCH else self._batch_ids[row["batch"]],
                self._places[row["part"]],
                Positions(row["wrong"], tuple(row["first"])),
            )
            for row in found
            if row["wrong"]
        ]
        return sum(row["n"] for row in found), sorted(changed, key=lambda c: (c.place, c.batch_id or ""))

    def _within(self, spans: Sequence[Span]) -> DataFrame:
        """The rows joined with the spans they are in: by bins, so that a record meets few spans."""
        width = bin_width(spans)
        wanted = []
        for index, number in bins(spans, width):
            span = spans[index]
            batch = _NO_BATCH if span.batch_id is None else self._batches[span.batch_id]
            wanted.append((index, self._parts[span.place], number, batch, span.start, span.end))
        ddl = "span INT, part INT, bin BIGINT, batch INT, start BIGINT, end BIGINT"
        table = F.broadcast(_frame(self._rows.sparkSession, ddl, wanted))
        rows = self._rows.withColumn("bin", F.expr(f"position DIV {width}"))
        inside = F.col("position").between(F.col("start"), F.col("end"))
        return rows.join(table, ["part", "bin"]).where(inside)

    @staticmethod
    def _positions(rows: DataFrame) -> dict[int, Positions]:
        counted = rows.groupBy("span").agg(F.count(F.lit(1)).alias("n"), _first(F.lit(True)).alias("first"))
        return {row["span"]: Positions(row["n"], tuple(row["first"])) for row in counted.collect()}


_PARTS = "part INT, system STRING, stream STRING, partition STRING"


def _by_coordinate(rows: DataFrame) -> DataFrame:
    """One row a coordinate: how often it is in each of the three, in which batches, and the hashes there.

    `s`, `b`, `r`, `q`: rows of the source, of bronze, of bronze by a replay, of the quarantine. Of batches and hashes
    the smallest and the largest: where they are the same, all are.
    """

    def of(*kinds: int, column: str) -> Column:
        return F.when(F.col("of").isin(*kinds), F.col(column))

    several = {
        "b_batch": of(_BRONZE, column="batch"), "q_batch": of(_HELD, column="batch"),
        "b_sha": of(_BRONZE, _REPLAYED, column="sha"), "q_sha": of(_HELD, column="sha"),
        "own": of(_HELD, column="own"),
    }  # fmt: skip
    return rows.groupBy("part", "position").agg(
        F.max("lot").alias("lot"),
        *(
            F.count_if(F.col("of") == kind).alias(name)
            for name, kind in (("s", _SOURCE), ("b", _BRONZE), ("r", _REPLAYED), ("q", _HELD))
        ),
        F.max("mark").alias("mark"),
        F.max(of(_SOURCE, column="sha")).alias("s_sha"),
        *(F.min(column).alias(name) for name, column in several.items()),
        *(F.max(column).alias(f"{name}2") for name, column in several.items()),
    )


def _is_of(table: str) -> Column:
    """Whether a row of this table at this coordinate is of the span's batch."""
    batch = F.col("batch")
    return F.coalesce((F.col(f"{table}_batch") == batch) | (F.col(f"{table}_batch2") == batch), F.lit(False))


def _sampled(share: float) -> Column:
    """Whether a coordinate's lot is among the smallest `share` of all 64-bit numbers."""
    if share >= 1:
        return F.lit(True)
    return F.col("lot") <= F.lit(-(1 << 63) + int(share * (1 << 64)))


def _first(flag: Column) -> Column:
    """The first few positions where the flag holds."""
    position = F.col("position")
    return F.coalesce(F.min_by(position, F.when(flag, position), SHOWN), F.array().cast("ARRAY<BIGINT>"))


def _frame(spark: SparkSession, ddl: str, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, ddl)
