from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lazaretto.jobs.broker import LocalBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Topic:
    """A topic that no other test knows, on the run's broker."""

    name: str
    bootstrap_servers: str

    def produce(
        self,
        values: Sequence[bytes | str | None],
        *,
        keys: Sequence[bytes | str | None] | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
        partition: int | None = None,
    ) -> None:
        """Send `values` (None is a tombstone) and wait until the broker has them all, in order within a partition."""
        from confluent_kafka import Producer

        failures: list[object] = []
        # Idempotent: a retry inside the client must not double or reorder what a test counts.
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
        for place, value in enumerate(values):
            producer.produce(
                self.name,
                value=value,
                key=keys[place] if keys else None,
                headers=list(headers) if headers else None,
                partition=-1 if partition is None else partition,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
            producer.poll(0)
        left = producer.flush(60)
        assert not failures, failures[0]
        assert left == 0, f"{left} records were not taken by the broker"


@pytest.fixture(scope="session")
def spark(_shared_spark: SparkSession) -> SparkSession:
    """The run's one local session, tuned for small data: leave its settings as you found them."""
    return _shared_spark


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    """The run's one Kafka broker. A test that stops or kills it starts one of its own instead."""
    with LocalBroker() as running:
        yield running


@pytest.fixture(scope="session")
def make_topic(broker: LocalBroker) -> Callable[..., Topic]:
    """Makes fresh topics: `make_topic(partitions=1, config=None)`."""

    def make(partitions: int = 1, config: Mapping[str, str] | None = None) -> Topic:
        name = f"test-{secrets.token_hex(6)}"
        broker.create_topic(name, partitions, config)
        return Topic(name, broker.bootstrap_servers)

    return make


@pytest.fixture
def topic(make_topic: Callable[..., Topic]) -> Topic:
    """A fresh topic with one partition."""
    return make_topic()
