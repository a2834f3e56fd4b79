"""Where a dataset stands by its ledger: which batch was the last of each query, and what of the source is covered.

A Kafka batch's `declared` is `{"topic", "topic_id", "start": {partition: offset}, "end": {partition: offset}}`: it
holds what was committed at `start <= offset < end`. A restart's row has the same for the gap that was accepted, and
`kept`: the newest versions of the tables whose rows were still there, null for all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lazaretto.commit import BatchKind, Tables, committed
from lazaretto.commit.spark_edge import edge
from lazaretto.jobs.checkpoint import Offsets

_NUMBERED = r"^(.*)-([0-9]+)$"


@dataclass(frozen=True)
class Standing:
    """What the committed rows of a dataset say.

    Attributes:
        queries: id of a stream's query -> (number of its newest batch, that batch's `declared`).
        bronze_version, quarantine_version: of the newest batch that had one; None without.
        topic_id: of the topic that was read last; None when it was never noted.
    """

    queries: Mapping[str, tuple[int, Mapping[str, Any] | None]]
    bronze_version: int | None = None
    quarantine_version: int | None = None
    topic_id: str | None = None


def standing(spark: SparkSession, tables: Tables, dataset: str) -> Standing:
    """Read it, in one query whose answer has a row per query id.

    Raises:
        SinkError: the ledger cannot be read.
    """
    with edge("the ledger could not be read", str(tables.ingestion_status)):
        if not tables.ingestion_status.exists(spark):
            return Standing({})
        number = F.regexp_extract("batch_id", _NUMBERED, 2).try_cast("bigint")
        order = F.struct("committed_at", number)
        groups = (
            committed(spark, tables, dataset)
            .groupBy(
                "kind",
                F.when(F.col("kind") == BatchKind.STREAM.value, F.regexp_extract("batch_id", _NUMBERED, 1)).alias("q"),
            )
            .agg(
                F.max(number).alias("number"),
                F.max_by("source_range", number).alias("of_number"),
                F.max_by("source_range", order).alias("newest"),
                F.max_by("bronze_version", order).alias("bronze_version"),
                F.max_by("quarantine_version", F.when(F.col("quarantine_version").isNotNull(), order)).alias("held"),
                F.max(F.unix_micros("committed_at")).alias("at"),
            )
            .collect()
        )
    rows = sorted(groups, key=lambda row: row["at"])
    newest_of_topic = [d for row in rows if (d := _declared(row["newest"])) and d.get("topic_id")]
    # A restart's row says anew what the tables hold.
    bronze = [row["bronze_version"] for row in rows if row["bronze_version"] is not None]
    held = [row["held"] for row in rows if row["held"] is not None]
    return Standing(
        queries={row["q"]: (row["number"], _declared(row["of_number"])) for row in rows if row["q"]},
        bronze_version=bronze[-1] if bronze else None,
        quarantine_version=held[-1] if held else None,
        topic_id=newest_of_topic[-1]["topic_id"] if newest_of_topic else None,
    )


def covered(
    spark: SparkSession,
    tables: Tables,
    dataset: str,
    *,
    topic: str,
    topic_id: str | None,
    kept: tuple[int | None, int | None],
) -> dict[int, int]:
    """Partition -> the first offset that no committed batch covers, after the first one that some batch does.

    Args:
        topic_id: batches of another topic of the same name do not count; None when it is not known.
        kept: the newest versions of bronze and quarantine whose rows are still there, None for all. What was committed
            after them is not covered any more.
    """
    with edge("the ledger could not be read", str(tables.ingestion_status)):
        rows = (
            committed(spark, tables, dataset)
            .where(F.col("kind").isin(BatchKind.STREAM.value, BatchKind.RESTART.value))
            .orderBy(F.desc("committed_at"))
            .select("kind", "source_range", "bronze_version", "quarantine_version")
            .toLocalIterator()
        )
        return resume_points(
            [(row["kind"], row["source_range"], row["bronze_version"], row["quarantine_version"]) for row in rows],
            topic, topic_id, kept,
        )  # fmt: skip


def declared_offsets(topic: str, topic_id: str | None, start: Offsets | None, end: Offsets | None) -> dict[str, Any]:
    """`declared`, of a batch or a gap."""

    def named(offsets: Offsets | None) -> dict[str, int]:
        return {str(p): offset for p, offset in sorted((offsets or {}).get(topic, {}).items())}

    return {"topic": topic, "topic_id": topic_id, "start": named(start), "end": named(end)}


LedgerFact = tuple[str, str | None, int | None, int | None]
"""Kind, source range, bronze version, quarantine version of a committed row."""


def resume_points(
    newest_first: Iterable[LedgerFact], topic: str, topic_id: str | None, kept: tuple[int | None, int | None]
) -> dict[int, int]:
    """`covered`, of the ledger's rows themselves."""
    spans: dict[int, list[tuple[int, int]]] = {}
    first: dict[int, int] = {}
    bronze_kept, held_kept = kept
    for kind, source_range, bronze, held in newest_first:
        declared = _declared(source_range)
        if declared and topic_id and declared.get("topic_id") not in (None, topic_id):
            continue
        gone = _above(bronze, bronze_kept) or _above(held, held_kept)
        for partition, start, end in _spans(source_range, declared, topic):
            first[partition] = min(start, first.get(partition, start))
            if kind == BatchKind.RESTART or not gone:
                spans.setdefault(partition, []).append((start, end))
        if kind == BatchKind.RESTART and declared:
            limits = declared.get("kept") or {}
            bronze_kept = _lower(bronze_kept, limits.get("bronze_version"))
            held_kept = _lower(held_kept, limits.get("quarantine_version"))
    return {partition: _first_hole(first[partition], spans.get(partition, [])) for partition in first}


def _first_hole(begin: int, spans: list[tuple[int, int]]) -> int:
    at = begin
    for start, end in sorted(spans):
        if start > at:
            break
        at = max(at, end)
    return at


def _spans(source_range: str | None, declared: Mapping[str, Any] | None, topic: str) -> Iterable[tuple[int, int, int]]:
    """Partition, start and end (exclusive); by the offsets that were seen where none were declared."""
    ranges = json.loads(source_range)["ranges"] if source_range else []
    seen = {
        int(r["partition"]): (int(r["start"]), int(r["end"]) + 1)
        for r in ranges
        if r["system"] == "kafka" and r["stream"] == topic
    }
    if declared is None or declared.get("topic") != topic:
        return [(partition, *span) for partition, span in seen.items()]
    ends: Mapping[str, int] = declared["end"]
    starts: Mapping[str, int] = declared.get("start") or {}
    return [(int(p), starts.get(p, seen.get(int(p), (end, end))[0]), end) for p, end in ends.items()]


def _declared(source_range: str | None) -> Mapping[str, Any] | None:
    found = json.loads(source_range).get("declared") if source_range else None
    return found if isinstance(found, dict) else None


def _above(version: int | None, limit: int | None) -> bool:
    return limit is not None and version is not None and version > limit


def _lower(one: int | None, other: int | None) -> int | None:
    known = [limit for limit in (one, other) if limit is not None]
    return min(known, default=None)
