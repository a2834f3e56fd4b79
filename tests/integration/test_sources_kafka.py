"""Kafka as a source, through a real broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from lazaretto.config import KafkaSource
from lazaretto.errors import ConfigurationError, GuardRefusedError, SourceError
from lazaretto.jobs.broker import LocalBroker
from lazaretto.sources import (
    as_source_error,
    check_kafka,
    envelope_differences,
    kafka_envelope,
    read_kafka_range,
    read_kafka_stream,
)
from lazaretto.sources.testing import check_source


def source(topic: Any, **over: Any) -> KafkaSource:
    return KafkaSource(kind="kafka", bootstrap_servers=topic.bootstrap_servers, topic=topic.name, **over)


def run(spark: SparkSession, settings: KafkaSource, checkpoint: Path) -> list[list[tuple[str, int, bytes | None]]]:
    """What each micro-batch of everything available held, in order."""
    batches: list[list[tuple[str, int, bytes | None]]] = []

    def each(batch: DataFrame, _: int) -> None:
        rows = kafka_envelope(batch).select("source.partition", "source.position", "value").collect()
        batches.append(sorted((r.partition, r.position, r.value and bytes(r.value)) for r in rows))

    query = (
        read_kafka_stream(spark, settings)
        .writeStream.foreachBatch(each)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches


def test_the_source_contract(spark: SparkSession, make_topic: Callable[..., Any]) -> None:
    topic = make_topic(partitions=2)
    values = [b'{"a":1}', b"\xff\xfe", b"", None, b"x" * 100_000, "\u2028é".encode()]
    for partition in (0, 1):
        topic.produce(values, partition=partition)
    written = {("kafka", topic.name, p, n): v for p in ("0", "1") for n, v in enumerate(values)}
    check_source(lambda: read_kafka_range(spark, source(topic), {0: 0, 1: 0}, {0: 6, 1: 6}), written)
    part = {c: v for c, v in written.items() if c[2] == "1" and 2 <= c[3] < 4}
    check_source(lambda: read_kafka_range(spark, source(topic), {1: 2}, {1: 4}), part)


def test_key_headers_and_time(spark: SparkSession, topic: Any) -> None:
    topic.produce([b"1"], keys=[b"\x00k"], headers=[("h", b"\xff"), ("h", b"")])
    topic.produce([b"2"])
    producer = Producer({"bootstrap.servers": topic.bootstrap_servers})
    producer.produce(topic.name, value=b"3", timestamp=1_700_000_000_123)
    producer.flush(30)
    df = read_kafka_range(spark, source(topic), {0: 0}, {0: 3})
    assert envelope_differences(df) == []
    first, second, third = df.orderBy("source.position").collect()
    assert bytes(first.key) == b"\x00k"
    assert [(h.key, bytes(h.value)) for h in first.headers] == [("h", b"\xff"), ("h", b"")]
    assert (second.key, second.headers) == (None, None)
    assert third.source_time.timestamp() == 1_700_000_000.123


def test_only_committed_records_are_read(spark: SparkSession, topic: Any, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": topic.bootstrap_servers, "transactional.id": f"tx-{topic.name}"})
    producer.init_transactions(30)
    for commit in (True, False, True):
        producer.begin_transaction()
        for n in range(3):
            producer.produce(topic.name, value=b"%s-%d" % (b"yes" if commit else b"no", n))
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    # three records and a marker each: offsets 3 and 11 are markers, 4 to 6 aborted
    yes = [b"yes-0", b"yes-1", b"yes-2"]
    expected = [("0", offset, v) for offset, v in zip((0, 1, 2, 8, 9, 10), yes * 2, strict=True)]
    assert [r for batch in run(spark, source(topic), tmp_path / "c") for r in batch] == expected
    df = read_kafka_range(spark, source(topic), {0: 0}, {0: 12})
    assert df.count() == 6


def test_a_stream_goes_on_from_its_checkpoint_in_bounded_batches(
    spark: SparkSession, topic: Any, tmp_path: Path
) -> None:
    settings = source(
        topic, max_offsets_per_trigger=4, options={"kafka.fetch.max.bytes": "1000000", "client.id": "test"}
    )
    topic.produce([b"%d" % n for n in range(10)])
    first = run(spark, settings, tmp_path / "c")
    assert [len(batch) for batch in first] == [4, 4, 2]
    assert run(spark, settings, tmp_path / "c") == []
    topic.produce([b"more"])
    assert run(spark, settings, tmp_path / "c") == [[("0", 10, b"more")]]
    assert [r for batch in run(spark, settings, tmp_path / "new") for r in batch][:10] == [r for b in first for r in b]


def test_starting_at_the_latest_offset(spark: SparkSession, topic: Any, tmp_path: Path) -> None:
    topic.produce([b"before"])
    settings = source(topic, starting_offsets="latest")
    assert run(spark, settings, tmp_path / "c") == [[]]
    topic.produce([b"after"])
    assert run(spark, settings, tmp_path / "c") == [[("0", 1, b"after")]]


def test_lost_offsets_stop_the_stream(spark: SparkSession, topic: Any, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic.produce([b"%d" % n for n in range(5)])
    run(spark, source(topic, max_offsets_per_trigger=5), tmp_path / "c")
    topic.produce([b"%d" % n for n in range(5)])
    admin = AdminClient({"bootstrap.servers": topic.bootstrap_servers, "log_level": 0})
    for future in admin.delete_records([TopicPartition(topic.name, 0, 8)]).values():
        future.result(30)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's, which the job tells apart as here
        run(spark, source(topic), tmp_path / "c")
    assert isinstance(as_source_error(caught.value), GuardRefusedError)


def test_the_check_before_the_stream(make_topic: Callable[..., Any], broker: LocalBroker) -> None:
    topic = make_topic(partitions=3)
    topic.produce([b"1", b"2"], partition=2)
    state, another = check_kafka(source(topic)), check_kafka(source(make_topic()))
    assert state is not None
    assert another is not None
    assert state.retained == {0: (0, 0), 1: (0, 0), 2: (0, 2)}
    assert state.topic_id != another.topic_id
    for _ in range(2):  # asking does not create it
        with pytest.raises(SourceError, match="does not exist"):
            check_kafka(KafkaSource(kind="kafka", bootstrap_servers=broker.bootstrap_servers, topic="no-such-topic"))
    with pytest.raises(SourceError):
        check_kafka(
            KafkaSource(kind="kafka", bootstrap_servers=broker.bootstrap_servers, topic="no topic"), timeout_s=3
        )


def test_a_topic_that_goes_unnoticed_until_spark_looks(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    missing = KafkaSource(kind="kafka", bootstrap_servers=broker.bootstrap_servers, topic="no-such-topic")
    with pytest.raises(Exception) as caught:  # noqa: PT011
        run(spark, missing, tmp_path / "c")
    error = as_source_error(caught.value)
    assert error is not None
    assert "does not exist" in error.what


def test_ranges_that_do_not_fit(spark: SparkSession, topic: Any) -> None:
    for start, end in (({}, {}), ({0: 0}, {1: 1})):
        with pytest.raises(ConfigurationError, match="same partitions"):
            read_kafka_range(spark, source(topic), start, end)
