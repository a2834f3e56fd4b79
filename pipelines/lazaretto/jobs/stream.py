"""The stream job: a `foreachBatch` query whose every micro-batch goes through the batch protocol.

All progress lives in `checkpoints/<dataset>`; the ledger is the proof. A batch's id is made of the query's id, which
the checkpoint keeps, and the micro-batch's number: the same after a restart, another one with a new checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lazaretto.commit import Acceptance, OnStep, ignore
from lazaretto.commit.spark_edge import is_storage_fault, named, session_gone, session_is_gone
from lazaretto.config import FilesSource, KafkaSource
from lazaretto.errors import ConfigurationError, LazarettoError, SinkError, SourceError
from lazaretto.jobs.dataset import Dataset
from lazaretto.jobs.guard import check_start
from lazaretto.jobs.micro_batches import MicroBatches, OnBatch, StreamReport
from lazaretto.jobs.outage import through_outages
from lazaretto.jobs.restart import Restart, begin_anew
from lazaretto.jobs.run import Run
from lazaretto.jobs.stopping import StopSwitch
from lazaretto.sources import (
    TopicState,
    as_source_error,
    check_kafka,
    check_landing,
    ignored_files,
    keeps_ascii,
    landing_stream,
    read_kafka_stream,
)

_POLL_S = 0.5
_COMMIT_WAIT_S = 30.0


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
    dataset.verify(spark)
    switch = stop or StopSwitch()
    checkpoint = dataset.tables.checkpoint_dir(dataset.name)
    worker = MicroBatches(dataset, run, checkpoint, acceptance, switch, on_batch, on_step)

    def once() -> None:
        worker.failure = None
        source, worker.topic = _checked_source(dataset, run)
        worker.source = source
        with dataset.lease(spark, run, "stream"):
            starting = None
            if restart is not None and not worker.report.batches:
                starting = begin_anew(spark, dataset, source, worker.topic, run, restart)
            else:
                check_start(spark, dataset.tables, dataset.name, source, worker.topic)
            _run_query(_read(spark, source, starting), dataset, worker, switch, trigger)

    with switch.on_signals():
        through_outages(
            once, run, dataset=dataset.name, patience_s=dataset.settings.outage_wait_s,
            progress=lambda: worker.report.batches, pause=switch.wait,
        )  # fmt: skip
    return worker.report


def _run_query(
    df: DataFrame, dataset: Dataset, worker: MicroBatches, switch: StopSwitch, trigger: Mapping[str, Any]
) -> None:
    checkpoint = dataset.tables.checkpoint_dir(dataset.name)
    try:
        query = (
            df.writeStream.foreachBatch(worker)
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


def _await(query: StreamingQuery, switch: StopSwitch, checkpoint: Path, worker: MicroBatches) -> None:
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
    if is_storage_fault(exc):
        return SinkError(
            f"the checkpoint could not be written ({named(exc)})", where=f"dataset {dataset.name}",
            remedy="look at the storage, then run again", passing=True,
        )  # fmt: skip
    if isinstance(exc, StreamingQueryException):
        return SourceError(
            f"the stream stopped ({exc.getCondition() or 'no condition given'})", where=f"dataset {dataset.name}",
            remedy="look at the source, the checkpoint and the Spark log, run again",
        )  # fmt: skip
    return exc
