"""An outage in the middle of the work: the job waits, and goes on by itself; nothing is held for it."""

from __future__ import annotations

import resource
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext

from lazaretto.errors import SinkError
from lazaretto.jobs.batch import run_manifest
from lazaretto.jobs.run import Run
from lazaretto.jobs.stream import run_stream

from ..committing import interpreted
from .lake import accounted, deliver, make_lake, order
from .test_jobs import kafka_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .conftest import Topic


class Ears:
    """A log that is listened to; `on_outage` is called at the first outage."""

    def __init__(self, on_outage: Any = lambda: None) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.on_outage = on_outage

    def info(self, event: str, **keys: Any) -> None:
        self.heard.append((event, keys))

    def warning(self, event: str, **keys: Any) -> None:
        self.heard.append((event, keys))
        if event == "outage":
            self.on_outage()

    error = info

    def count(self, event: str) -> int:
        return sum(e == event for e, _ in self.heard)


@contextmanager
def no_room(largest: int) -> Iterator[Any]:
    """Java can write no file larger than `largest` bytes, which it takes for a full disk, until `room()` is called."""
    context = SparkContext._active_spark_context
    assert context is not None
    java = context._gateway.proc.pid
    before = resource.prlimit(java, resource.RLIMIT_FSIZE)

    def room() -> None:
        resource.prlimit(java, resource.RLIMIT_FSIZE, before)

    resource.prlimit(java, resource.RLIMIT_FSIZE, (largest, before[1]))
    try:
        yield room
    finally:
        room()


@pytest.fixture(scope="module", autouse=True)
def _native_libraries(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is unpacked at the first use is unpacked while there is room."""
    spark.range(1).write.parquet(str(tmp_path_factory.mktemp("warm") / "up"))


def large(event_id: str) -> bytes:
    return order(event_id, user_id=secrets.randbelow(1000), device={"os": "ios", "version": secrets.token_hex(60_000)})


def test_a_stream_waits_until_the_disk_has_room(
    spark: SparkSession, topic: Topic, repo_root: Path, tmp_path: Path
) -> None:
    lake = make_lake(tmp_path, repo_root, kafka_source(topic))
    topic.produce([large("a"), b"{", order("b")], partition=0)
    with interpreted(spark), no_room(60_000) as room:
        ears = Ears(room)
        report = run_stream(spark, lake.open(), Run(ears, operator="tester"), trigger={"availableNow": True})
    assert ears.count("outage") >= 1
    assert ears.count("records_isolated") == 0
    assert (report.batches, report.counts["records_inserted"], report.counts["records_quarantined"]) == (1, 2, 1)
    assert sorted(row["event_id"] for row in lake.bronze) == ["a", "b"]
    assert [row["error_code"] for row in lake.held] == ["MALFORMED"]
    last = lake.ledger[-1]
    assert (last["status"], accounted(last)) == ("committed", True)
    assert {row["error_class"] for row in lake.ledger[:-1]} <= {"sink_failure"}


def test_a_manifest_waits_too_and_patience_ends_loudly(spark: SparkSession, repo_root: Path, tmp_path: Path) -> None:
    lake = make_lake(tmp_path, repo_root, "null", outage_wait_s=2)
    manifest = deliver(tmp_path / "sent", "m-1", {"part-0.jsonl": [large("a"), order("b")]})
    with interpreted(spark), no_room(60_000):
        ears = Ears()
        with pytest.raises(SinkError) as failed:
            run_manifest(spark, lake.open(), manifest, Run(ears, operator="tester"))
    assert failed.value.exit_code == 5
    assert ears.count("outage") == 1
    assert lake.bronze == []
    with interpreted(spark):
        assert run_manifest(spark, lake.open(), manifest, Run(Ears(), operator="tester")).records_inserted == 2
    assert lake.held == []


def test_a_stop_asked_for_meanwhile_ends_the_waiting(
    spark: SparkSession, topic: Topic, repo_root: Path, tmp_path: Path
) -> None:
    from lazaretto.jobs.stopping import StopSwitch

    lake = make_lake(tmp_path, repo_root, kafka_source(topic), outage_wait_s=600)
    topic.produce([large("a")], partition=0)
    stop = StopSwitch()
    with interpreted(spark), no_room(60_000):
        ears = Ears(lambda: threading.Timer(0.2, stop.ask).start())
        with pytest.raises(SinkError):
            run_stream(
                spark, lake.open(), Run(ears, operator="tester"), trigger={"availableNow": True}, stop=stop
            )  # fmt: skip
    assert ears.count("outage") == 1
