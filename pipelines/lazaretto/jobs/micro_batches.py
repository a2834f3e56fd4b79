"""One micro-batch after the other through the batch protocol, and what they came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame

from lazaretto.commit import Acceptance, BatchKind, BatchResult, OnStep
from lazaretto.config import FilesSource, KafkaSource
from lazaretto.errors import SinkError
from lazaretto.jobs.checkpoint import RESTART, read_checkpoint
from lazaretto.jobs.dataset import Dataset
from lazaretto.jobs.run import Run
from lazaretto.jobs.standing import declared_offsets
from lazaretto.jobs.stopping import StopRequestedError, StopSwitch
from lazaretto.sources import TopicState, kafka_envelope, landing_envelope

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


class MicroBatches:
    """The batch function. Never swallows an error: a failed batch that returned would count as done.

    `source` and `topic` are set before the query starts; `failure` is what ended it, if that was a batch.
    """

    def __init__(
        self,
        dataset: Dataset,
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
        self.source: KafkaSource | FilesSource | None = None
        self.topic: TopicState | None = None
        self._dataset = dataset
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
        source, declared = self.source, None
        assert source is not None
        if isinstance(source, KafkaSource):
            declared = declared_offsets(
                source.topic, self.topic.topic_id if self.topic else None, checkpoint.start(epoch),
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
