"""The way on when checkpoint and ledger disagree: a new checkpoint that begins where the ledger ends.

Every step can be repeated: what is staged whole is finished; the way on is worked out; the old checkpoint is set aside,
never deleted; audit and ledger get a row of their own, with the gap if there is one.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql import SparkSession

from lazaretto.commit import (
    BatchKind,
    TableRef,
    Tables,
    frozen_batches,
    kept_version,
    record_restart,
)
from lazaretto.commit.spark_edge import edge
from lazaretto.config import FilesSource, KafkaSource
from lazaretto.errors import ConfigurationError, GuardRefusedError, SourceError
from lazaretto.jobs.dataset import Dataset
from lazaretto.jobs.guard import GAP
from lazaretto.jobs.run import Run
from lazaretto.jobs.standing import Standing, covered, declared_offsets, standing
from lazaretto.sources import TopicState


@dataclass(frozen=True)
class Restart:
    """What the operator asked for. `accept_gap` is the reason for which records that are gone may stay lost."""

    accept_gap: str | None = None

    def __post_init__(self) -> None:
        if self.accept_gap is not None and not self.accept_gap.strip():
            raise ConfigurationError("accepting a gap needs a reason", remedy="give --accept-gap REASON")


@dataclass(frozen=True)
class Gap:
    """Offsets that nobody will read any more: partition -> from, and partition -> up to (exclusive)."""

    start: Mapping[int, int]
    end: Mapping[int, int]
    anew: bool = False

    def __bool__(self) -> bool:
        return bool(self.start) or self.anew

    @property
    def text(self) -> str:
        parts = [f"partition {p} offsets {self.start[p]} to {self.end[p] - 1}" for p in sorted(self.start)]
        return "; ".join((["the topic was made anew"] if self.anew else []) + parts)


def begin_anew(
    spark: SparkSession,
    dataset: Dataset,
    source: KafkaSource | FilesSource,
    topic: TopicState | None,
    run: Run,
    asked: Restart,
) -> Mapping[int, int] | None:
    """Set the checkpoint aside; the offset for each partition to begin at, None where the source takes all there is.

    A landing folder is read again from its first file: what is known already counts as duplicate.

    Raises:
        ConfigurationError: the ledger has no batch of this stream.
        GuardRefusedError: records are gone from the source, and their loss was not accepted.
        BatchRejectedError, SinkError: a batch that was staged could not be finished.
    """
    tables = dataset.tables
    finish_staged(spark, dataset, run)
    known = standing(spark, tables, dataset.name)
    if not known.queries:
        raise ConfigurationError(
            "the ledger has no batch of this stream to go on from", where=f"dataset {dataset.name}",
            remedy="begin without the option; move the checkpoint folder away first if it is damaged",
        )  # fmt: skip
    kept = _kept(spark, tables, dataset.name, known)
    starting, gap = None, Gap({}, {})
    if isinstance(source, KafkaSource):
        if topic is None:
            raise SourceError(
                "the topic's offsets cannot be asked for with these security settings", where=f"topic {source.topic}",
                remedy="begin with settings that librdkafka understands, too (see docs/sources.md)",
            )  # fmt: skip
        done = covered(spark, tables, dataset.name, topic=source.topic, topic_id=topic.topic_id, kept=kept)
        starting, gap = way_on(topic, done, known.topic_id)
        if gap and asked.accept_gap is None:
            raise GuardRefusedError(
                f"records are gone from the topic: {gap.text}", where=f"topic {source.topic}",
                remedy=GAP.format(dataset=dataset.name),
            )  # fmt: skip
    declared: dict[str, Any] = {"kept": _versions(kept)}
    if isinstance(source, KafkaSource) and topic is not None:
        name = source.topic
        declared |= declared_offsets(name, topic.topic_id, {name: gap.start}, {name: gap.end})
    _set_aside(tables.checkpoint_dir(dataset.name), run)
    reason = f"{asked.accept_gap}: {gap.text}" if gap else asked.accept_gap or "goes on where the ledger ends"
    _write_down(spark, dataset, run, reason, declared)
    run.log.warning("stream_restarted", dataset=dataset.name, gap=gap.text or None)
    return starting


def way_on(topic: TopicState, done: Mapping[int, int], last_topic_id: str | None) -> tuple[dict[int, int], Gap]:
    """Where to begin in each partition, and what is lost by it.

    Args:
        done: partition -> the first offset that the ledger does not cover.
    """
    anew = last_topic_id is not None and last_topic_id != topic.topic_id
    starting, start, end = {}, {}, {}
    for partition, (low, high) in topic.retained.items():
        at = done.get(partition, low)
        if at > high:  # a shorter topic than the one that was read
            anew, at = True, low
        if at < low:
            start[partition], end[partition] = at, low
        starting[partition] = max(at, low)
    return starting, Gap(start, end, anew)


def finish_staged(spark: SparkSession, dataset: Dataset, run: Run) -> None:
    """Bring the stream's batches that are staged whole to their end, from their stages alone."""
    for batch_id, declared in frozen_batches(dataset.tables, dataset.name).items():
        # A manifest's batch is finished by giving the manifest again.
        if declared is None or "manifest_id" not in declared:
            dataset.ingest(spark, run.batch(dataset.name, batch_id, BatchKind.STREAM), _no_source, run)


def accept_loss(spark: SparkSession, dataset: Dataset, run: Run, reason: str) -> None:
    """Take the tables as they are, though by the ledger they once held more; for datasets without a stream."""
    known = standing(spark, dataset.tables, dataset.name)
    kept = _kept(spark, dataset.tables, dataset.name, known)
    _write_down(spark, dataset, run, reason, {"kept": _versions(kept)})


def _kept(spark: SparkSession, tables: Tables, dataset: str, known: Standing) -> tuple[int | None, int | None]:
    def of(table: TableRef, version: int | None) -> int | None:
        return kept_version(spark, table, version) if version is not None else None

    return of(tables.bronze(dataset), known.bronze_version), of(tables.quarantine, known.quarantine_version)


def _versions(kept: tuple[int | None, int | None]) -> dict[str, int | None]:
    return {"bronze_version": kept[0], "quarantine_version": kept[1]}


def _set_aside(checkpoint: Path, run: Run) -> None:
    if not checkpoint.exists():
        return
    beside = checkpoint.with_name(f"{checkpoint.name}.{run.clock():%Y%m%dT%H%M%S}.{run.run_id[:8]}")
    with edge("the checkpoint could not be set aside", str(checkpoint)):
        checkpoint.rename(beside)


def _write_down(spark: SparkSession, dataset: Dataset, run: Run, reason: str, declared: Mapping[str, Any]) -> None:
    record_restart(
        spark, dataset.tables, run.batch(dataset.name, f"restart-{uuid.uuid4()}", BatchKind.RESTART), reason=reason,
        operator=run.operator, at=run.clock(), ruleset=dataset.rules.fingerprint,
        schema_id=dataset.contract.schema_id, declared=declared,
    )  # fmt: skip


def _no_source() -> NoReturn:
    raise AssertionError("a frozen batch does not ask its source")
