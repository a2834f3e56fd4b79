"""The local broker: what was acknowledged survives a kill, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from lazaretto.errors import SourceError
from lazaretto.jobs.broker import LocalBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _gone(pid: int, within_s: float = 10) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.1)
    return False


def test_spark_reads_the_bytes_that_were_sent(spark: SparkSession, topic: Any) -> None:
    sent = [b'{"a": 1}', b"\xff\xfe", b"", None]
    topic.produce(sent, keys=[b"k"] * 4, headers=[("h", b"1")])
    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", topic.bootstrap_servers)
        .option("subscribe", topic.name)
        .option("includeHeaders", "true")
        .load()
    )
    rows = frame.orderBy("offset").collect()
    assert [None if row.value is None else bytes(row.value) for row in rows] == sent
    assert bytes(rows[0].headers[0].value) == b"1"


def test_topic_is_not_created_twice_nor_by_accident(broker: LocalBroker, topic: Any) -> None:
    with pytest.raises(SourceError, match="already exists"):
        broker.create_topic(topic.name)


def test_acknowledged_records_survive_a_kill_and_the_address_stays(tmp_path: Path) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    with LocalBroker(data_dir=tmp_path / "kafka") as broker:
        address, first_pid = broker.bootstrap_servers, broker.pid
        broker.create_topic("orders")
        producer = Producer({"bootstrap.servers": address, "log_level": 0})
        for number in range(100):
            producer.produce("orders", value=str(number))
        assert producer.flush(30) == 0
        broker.kill()
        assert broker.pid is None
        broker.start()
        assert broker.bootstrap_servers == address
        assert broker.pid not in (None, first_pid)
        consumer = Consumer({"bootstrap.servers": address, "group.id": "any", "log_level": 0})
        consumer.assign([TopicPartition("orders", 0, 0)])
        values = [message.value() for message in consumer.consume(100, timeout=30)]
        consumer.close()
    assert values == [str(number).encode() for number in range(100)]
    assert broker.pid is None
    assert (tmp_path / "kafka" / "data").is_dir()


def test_broker_and_its_data_go_when_its_owner_is_killed() -> None:
    code = (
        "from lazaretto.jobs.broker import LocalBroker\n"
        "broker = LocalBroker().start()\n"
        "print(broker.pid, broker.data_dir, flush=True)\n"
        "input()\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid, folder = owner.stdout.readline().split()
    os.kill(owner.pid, signal.SIGKILL)
    owner.communicate()
    assert _gone(int(pid))
    assert _is_removed(Path(folder))


def _is_removed(folder: Path, within_s: float = 10) -> bool:
    deadline = time.monotonic() + within_s
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not folder.exists()
