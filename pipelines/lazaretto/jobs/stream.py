"""The stream job: a `foreachBatch` query whose every micro-batch goes through the batch protocol.

All progress lives in `checkpoints/<dataset>`; the ledger is the proof. A batch's id is made of the query's id, which
the checkpoint keeps, and the micro-batch's number: the same after a restart, another one with a new checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lazaretto.commit import Acceptance, BatchKind, BatchResult, OnStep, ignore
from lazaretto.commit.spark_edge import session_gone, session_is_gone
from lazaretto.config import FilesSource, KafkaSource
from lazaretto.errors import ConfigurationError, LazarettoError, SinkError, SourceError
from lazaretto.jobs.checkpoint import RESTART, read_checkpoint
from lazaretto.jobs.dataset import Dataset
from lazaretto.jobs.guard import check_start
from lazaretto.jobs.restart import Restart, begin_anew
from lazaretto.jobs.run import Run
from lazaretto.jobs.standing import declared_offsets
from lazaretto.jobs.stopping import StopRequestedError, StopSwitch
from lazaretto.sources import (
    TopicState,
    as_source_error,
    check_kafka,
    check_landing,
    ignored_files,
    kafka_envelope,
    keeps_ascii,
    landing_envelope,
    landing_stream,
    read_kafka_stream,
)

_POLL_S = 0.5
_COMMIT_WAIT_S = 30.0

COUNTS = (
    "records_read", "records_inserted", "records_updated", "records_duplicate", "records_quarantined",
    "records_filtered",
)  # fmt: skip


@dataclass
class StreamReport:
    """What a run of the stream came to: the sum over the batches it committed."""

    batches: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))

    def add(self, result: BatchResult) -> None:
        """Count a batch, unless an earlier run has committed it."""
        if result.already_committed:
            return
        self.batches += 1
        for name in COUNTS:
            self.counts[name] += getattr(result, name)


OnBatch = Callable[[BatchResult], None]


def run_stream(
    spark: SparkSession,
    dataset: Dataset,
    run: Run,
    *,
    trigger: Mapping[str, Any],
    acceptance: Acceptance | None = None,
    restart: Restart | None = None,
    stop: StopSwitch | None = None,
    on_batch: OnBatch = lambda result: None,
    on_step: OnStep = ignore,
) -> StreamReport:
    """Run a dataset's stream to its end: all that is there, or until asked to stop.

    Args:
        trigger: as `DataStreamWriter.trigger` takes it, such as `{"availableNow": True}`.
        acceptance: lets the batch it names through the gate once.
        restart: begin a new checkpoint where the ledger ends, instead of going on from the one that is there.
        stop: asked to stop by signals unless one is given.

    Raises:
        GuardRefusedError: checkpoint, ledger, tables and source disagree; nothing was read.
        LazarettoError: what ended the query, typed: the batch's own error, or the source's.
    """
    source, topic = _checked_source(dataset, run)
    dataset.verify(spark)
    switch = stop or StopSwitch()
    checkpoint = dataset.tables.checkpoint_dir(dataset.name)
    worker = _Worker(dataset, source, topic, run, checkpoint, acceptance, switch, on_batch, on_step)
    with dataset.lease(spark, run, "stream"), switch.on_signals():
        starting = None
        if restart is not None:
            starting = begin_anew(spark, dataset, source, topic, run, restart)
        else:
            check_start(spark, dataset.tables, dataset.name, source, topic)
        try:
            query = (
                _read(spark, source, starting)
                .writeStream.foreachBatch(worker)
                .option("checkpointLocation", str(checkpoint))
                .queryName(f"lazaretto-{dataset.name}")
                .trigger(**trigger)
                .start()
            )
            _await(query, switch, checkpoint, worker)
        except (PySparkException, Py4JError, ConnectionError) as exc:
            # `worker.failure` is the error itself; what Spark raises is a text about it
            if not (worker.failure is None and switch.asked):
                raise _typed(worker.failure or exc, dataset) from exc
    return worker.report


def _checked_source(dataset: Dataset, run: Run) -> tuple[KafkaSource | FilesSource, TopicState | None]:
    source = dataset.settings.source
    if source is None:
        raise ConfigurationError(
            f"dataset {dataset.name} has no source", remedy="add `source:` to it, or load it by `lazaretto batch`"
        )
    if isinstance(source, KafkaSource):
        return source, check_kafka(source)
    if not keeps_ascii(dataset.settings.encoding):
        raise ConfigurationError(
            f"files in {dataset.settings.encoding} cannot be split into lines", where=f"dataset {dataset.name}",
            remedy="deliver them in an encoding that keeps ASCII, such as utf-8",
        )  # fmt: skip
    check_landing(source)
    left = ignored_files(source)
    if left:
        run.log.warning("files_ignored", dataset=dataset.name, files=len(left), first=left[0])
    return source, None


def _read(spark: SparkSession, source: KafkaSource | FilesSource, starting: Mapping[int, int] | None) -> DataFrame:
    if isinstance(source, KafkaSource):
        return read_kafka_stream(spark, source, starting)
    return landing_stream(spark, source)


class _Worker:
    """The batch function. Never swallows an error: a failed batch that returned would count as done."""

    def __init__(
        self,
        dataset: Dataset,
        source: KafkaSource | FilesSource,
        topic: TopicState | None,
        run: Run,
        checkpoint: Path,
        acceptance: Acceptance | None,
        switch: StopSwitch,
        on_batch: OnBatch,
        on_step: OnStep,
    ) -> None:
        self.report = StreamReport()
        self.failure: BaseException | None = None
        self.last_epoch: int | None = None
        self._dataset = dataset
        self._source = source
        self._topic = topic
        self._run = run
        self._checkpoint = checkpoint
        self._acceptance = acceptance
        self._switch = switch
        self._on_batch = on_batch
        self._on_step = on_step

    def __call__(self, df: DataFrame, epoch: int) -> None:
        try:
            with self._switch.batch():
                self._ingest(df, epoch)
        except StopRequestedError:
            raise
        except BaseException as exc:
            self.failure = exc
            raise

    def _ingest(self, df: DataFrame, epoch: int) -> None:
        checkpoint = read_checkpoint(self._checkpoint, self._dataset.name)
        if checkpoint is None:
            raise SinkError(
                "the checkpoint is gone while the stream runs", where=str(self._checkpoint),
                remedy=RESTART.format(dataset=self._dataset.name),
            )  # fmt: skip
        batch = self._run.batch(self._dataset.name, checkpoint.batch_id(epoch), BatchKind.STREAM)
        source, declared = self._source, None
        if isinstance(source, KafkaSource):
            declared = declared_offsets(
                source.topic, self._topic.topic_id if self._topic else None, checkpoint.start(epoch),
                checkpoint.end(epoch),
            )  # fmt: skip

        def envelope() -> DataFrame:
            if isinstance(source, KafkaSource):
                return kafka_envelope(df)
            return landing_envelope(df.sparkSession, source, df)

        result = self._dataset.ingest(
            df.sparkSession, batch, envelope, self._run, source_range=declared, acceptance=self._acceptance,
            on_step=self._on_step,
        )  # fmt: skip
        self.last_epoch = epoch
        self.report.add(result)
        log_result(self._run, self._dataset.name, result)
        self._on_batch(result)


def log_result(run: Run, dataset: str, result: BatchResult) -> None:
    """One event per batch, with the ledger's counts; and an alarm for records that made it fail."""
    if result.isolated:
        run.log.error("records_isolated", dataset=dataset, batch_id=result.batch_id, records_isolated=result.isolated)
    run.log.info(
        f"batch_{result.status}",
        dataset=dataset,
        batch_id=result.batch_id,
        completeness=result.completeness,
        **{name: getattr(result, name) for name in COUNTS},
    )


def _await(query: StreamingQuery, switch: StopSwitch, checkpoint: Path, worker: _Worker) -> None:
    """Until the query ends by itself, by an error, or because a stop was asked for."""
    while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # takes fractions
        if not switch.asked:
            continue
        with switch.between_batches:
            _until_committed(checkpoint, worker.last_epoch, query)
            query.stop()
        return


def _until_committed(checkpoint: Path, epoch: int | None, query: StreamingQuery) -> None:
    """Wait until Spark has noted the last batch, so that the next start does not have to look at it again."""
    deadline = time.monotonic() + _COMMIT_WAIT_S
    while epoch is not None and query.isActive and time.monotonic() < deadline:
        if (checkpoint / "commits" / str(epoch)).exists():
            return
        time.sleep(0.05)


def _typed(exc: BaseException, dataset: Dataset) -> BaseException:
    """A query's error as one of ours, by the names of its conditions; never with Spark's text."""
    if isinstance(exc, LazarettoError):
        return exc
    if session_is_gone(exc):
        return session_gone(f"dataset {dataset.name}")
    source = as_source_error(exc, where=f"dataset {dataset.name}")
    if source is not None:
        return source
    if isinstance(exc, StreamingQueryException):
        return SourceError(
            f"the stream stopped ({exc.getCondition() or 'no condition given'})", where=f"dataset {dataset.name}",
            remedy="look at the source, the checkpoint and the Spark log, run again",
        )  # fmt: skip
    return exc
