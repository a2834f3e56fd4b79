"""Before data moves: checkpoint, ledger, tables and topic must tell the same story, or nothing starts.

Each disagreement would lose records without a word: Spark would skip offsets, or plan a batch anew under an id that the
ledger has. docs/adr/0005-start-up-guard.md lists them. What is compared costs one look at the ledger and one at each
table's history, whatever their size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from lazaretto.commit import Tables, frozen_batches, kept_version
from lazaretto.config import FilesSource, KafkaSource
from lazaretto.errors import GuardRefusedError
from lazaretto.jobs.checkpoint import RESTART, Checkpoint, read_checkpoint
from lazaretto.jobs.standing import Standing, covered, standing
from lazaretto.sources import TopicState

GAP = (
    "bring back what is gone, or accept its loss: `lazaretto stream {dataset} --accept-gap REASON` goes on with what "
    "is there"
)


def check_start(
    spark: SparkSession, tables: Tables, dataset: str, source: KafkaSource | FilesSource, topic: TopicState | None
) -> None:
    """Everything, for a stream.

    Raises:
        GuardRefusedError: they disagree; the message says in what, and the way on.
        SinkError: ledger or tables cannot be read.
    """
    guard = Guard(tables, dataset, standing(spark, tables, dataset))
    checkpoint = read_checkpoint(tables.checkpoint_dir(dataset), dataset)
    guard.check_checkpoint(checkpoint, source)
    guard.check_tables(spark, RESTART.format(dataset=dataset))
    if checkpoint is None or topic is None or not isinstance(source, KafkaSource):
        return
    guard.check_topic(source, topic, guard.next_offsets(checkpoint, source.topic))
    if checkpoint.done is None and guard.known.queries:
        done = covered(spark, tables, dataset, topic=source.topic, topic_id=topic.topic_id, kept=(None, None))
        guard.check_beginning(checkpoint, source.topic, done)


def check_tables(spark: SparkSession, tables: Tables, dataset: str) -> None:
    """What concerns a batch that brings its own source.

    Raises:
        GuardRefusedError: a table has lost what the ledger says it holds.
    """
    way_on = (
        f"`lazaretto batch {dataset} --accept-gap REASON` goes on without its later rows; have the manifests that "
        "brought them sent again under new ids"
    )
    Guard(tables, dataset, standing(spark, tables, dataset)).check_tables(spark, way_on)


@dataclass(frozen=True)
class Guard:
    """The checks, each of which raises GuardRefusedError, given what the ledger says."""

    tables: Tables
    dataset: str
    known: Standing

    def check_tables(self, spark: SparkSession, way_on: str) -> None:
        """No table has lost what the ledger says it holds: none is gone, none was taken back to an older version."""
        for table, version in (
            (self.tables.bronze(self.dataset), self.known.bronze_version),
            (self.tables.quarantine, self.known.quarantine_version),
        ):
            kept = kept_version(spark, table, version) if version is not None else None
            if kept is not None:
                what = "is gone" if kept < 0 else f"was taken back to version {kept}"
                raise GuardRefusedError(
                    f"table {table.title} {what}; by the ledger it was at version {version}", where=str(table),
                    remedy=f"bring version {version} back (Delta's RESTORE can, while its files are there); else "
                    f"{way_on}",
                )  # fmt: skip

    def check_checkpoint(self, checkpoint: Checkpoint | None, source: KafkaSource | FilesSource) -> None:
        """The checkpoint is this dataset's, and neither behind the ledger nor ahead of it."""
        if checkpoint is None:
            if self.known.queries:
                raise self._refused("the checkpoint is gone, and the ledger has batches of this stream")
            return
        self._check_kind(checkpoint, source)
        done, planned = checkpoint.done, checkpoint.planned
        newest, declared = self.known.queries.get(checkpoint.query_id, (None, None))
        if newest is None:
            if done is not None:
                raise self._refused("the checkpoint is another query's: the ledger knows no batch of it")
            return
        if done is not None and newest < done:
            raise self._refused(f"the checkpoint is ahead: batch {done} is done, and the ledger ends with {newest}")
        older = planned is None or newest > planned
        if declared and newest == checkpoint.under_way:
            # Spark would run it again as planned now, and the ledger would take it for the one it has.
            ends = (checkpoint.end(newest) or {}).get(str(declared.get("topic")), {})
            older = declared.get("end") != {str(p): offset for p, offset in ends.items()}
        if older:
            raise self._refused(
                f"the checkpoint is an older copy: it does not have batch {newest} as the ledger has it"
            )

    def _check_kind(self, checkpoint: Checkpoint, source: KafkaSource | FilesSource) -> None:
        if checkpoint.planned is None:
            return
        topics = checkpoint.end(checkpoint.planned)
        if isinstance(source, KafkaSource) and source.topic not in (topics or {}):
            raise self._refused(f"the checkpoint is another query's: it is not of topic {source.topic}")
        if isinstance(source, FilesSource) and topics is not None:
            raise self._refused("the checkpoint is another query's: it is of a topic, and the source is a folder")

    def next_offsets(self, checkpoint: Checkpoint, topic: str) -> Mapping[int, int]:
        """Partition -> the first offset that is still needed: nothing below it will be asked of the source."""
        number = checkpoint.planned
        if number is None:
            return {}
        at = checkpoint.end(number)
        if number == checkpoint.under_way:
            newest, _ = self.known.queries.get(checkpoint.query_id, (None, None))
            staged = checkpoint.batch_id(number) in frozen_batches(self.tables, self.dataset)
            at = at if newest == number or staged else checkpoint.start(number)
        return (at or {}).get(topic, {})

    def check_topic(self, source: KafkaSource, state: TopicState, needed: Mapping[int, int]) -> None:
        """The topic is the one that was read, and still has every record that was not."""
        if self.known.topic_id is not None and self.known.topic_id != state.topic_id:
            raise self._gone(source, "it was made anew under its name since it was read last")
        for partition, offset in sorted(needed.items()):
            low, high = state.retained.get(partition, (0, -1))
            if high < offset:
                now = "is not there" if high < 0 else f"ends at {high}: the topic was made anew"
                raise self._gone(source, f"partition {partition} was read up to offset {offset}, and now {now}")
            if low > offset:
                raise self._gone(
                    source, f"partition {partition} begins at offset {low} now; {low - offset} before it were not read"
                )  # fmt: skip

    def check_beginning(self, checkpoint: Checkpoint, topic: str, done: Mapping[int, int]) -> None:
        """A checkpoint without a committed batch begins where the ledger's coverage ends, or before."""
        start = (checkpoint.start(0) or {}).get(topic)
        late = [p for p, offset in done.items() if start is None or start.get(p, offset) > offset]
        if late:
            raise self._refused(f"the checkpoint is new, and would leave out records of {len(late)} partitions")

    def _refused(self, what: str) -> GuardRefusedError:
        where = str(self.tables.checkpoint_dir(self.dataset))
        return GuardRefusedError(what, where=where, remedy=RESTART.format(dataset=self.dataset))

    def _gone(self, source: KafkaSource, what: str) -> GuardRefusedError:
        return GuardRefusedError(what, where=f"topic {source.topic}", remedy=GAP.format(dataset=self.dataset))
