"""Is the broker there, and what does it have of the topic: asked before Spark is, whose answer takes minutes."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, not declared
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from lazaretto.config import KafkaSource
from lazaretto.errors import SourceError
from lazaretto.sources.kafka import client_options

_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]

# Of the security settings of Kafka's Java client, these mean the same to librdkafka.
_SHARED = frozenset(
    {
        "client.id",
        "request.timeout.ms",
        "sasl.mechanism",
        "security.protocol",
        "ssl.endpoint.identification.algorithm",
    }
)
_LOGIN = re.compile(
    r'(?:PlainLoginModule|ScramLoginModule)\s+required\b.*?username="([^"]*)".*?password="([^"]*)"', re.S
)


@dataclass(frozen=True)
class TopicState:
    """What a broker has of a topic.

    Attributes:
        topic_id: names this topic for ever; one that is made anew under the same name has another.
        retained: partition -> (offset of the oldest record that is there, offset of the next record to come).
    """

    topic_id: str
    retained: Mapping[int, tuple[int, int]]


def check_kafka(source: KafkaSource, timeout_s: float = 10.0) -> TopicState | None:
    """What the broker has of the topic; does not create it.

    Returns None without asking where the connection needs what only a Java client can read (key stores, other logins).

    Raises:
        SourceError: nobody answers within `timeout_s`, the broker refuses us, or it has no such topic.
        ConfigurationError: an option of the source may not be set.
    """
    config = _librdkafka(source)
    if config is None:
        return None
    where = f"topic {source.topic} at {source.bootstrap_servers}"
    try:
        admin = AdminClient(config, logger=_SILENT)
        asked = admin.describe_topics(TopicCollection([source.topic]), request_timeout=timeout_s)
        found = asked[source.topic].result(timeout=timeout_s + 1)
        numbers = [p.id for p in found.partitions]
        low, high = (_offsets(admin, source.topic, numbers, spec, timeout_s) for spec in (_EARLIEST, _LATEST))
        return TopicState(str(found.topic_id), {n: (low[n], high[n]) for n in numbers})
    except (KafkaException, TimeoutError, ValueError) as exc:
        raise _refusal(exc, where) from exc


def _offsets(
    admin: AdminClient, topic: str, partitions: list[int], spec: OffsetSpec, timeout_s: float
) -> dict[int, int]:
    asked = admin.list_offsets({TopicPartition(topic, n): spec for n in partitions}, request_timeout=timeout_s)
    return {where.partition: int(future.result(timeout=timeout_s + 1).offset) for where, future in asked.items()}


def is_compacted(source: KafkaSource, timeout_s: float = 10.0) -> bool:
    """Whether single records of the topic can go before its oldest one does; False where nobody may ask."""
    config = _librdkafka(source)
    if config is None:
        return False
    resource = ConfigResource(ResourceType.TOPIC, source.topic)
    try:
        admin = AdminClient(config, logger=_SILENT)
        [answer] = admin.describe_configs([resource], request_timeout=timeout_s).values()
        return "compact" in str(answer.result(timeout=timeout_s + 1)["cleanup.policy"].value)
    except (KafkaException, TimeoutError, KeyError):
        # whoever may read a topic need not be allowed to ask how it is kept; most topics are not compacted
        return False


def _refusal(exc: Exception, where: str) -> SourceError:
    error = exc.args[0] if isinstance(exc, KafkaException) and exc.args else None
    name = error.name() if error is not None and hasattr(error, "name") else type(exc).__name__
    if name == "UNKNOWN_TOPIC_OR_PART":
        return SourceError("the topic does not exist", where=where, remedy="create it, or mend `source.topic`")
    if "AUTH" in name or "SSL" in name or "SASL" in name:
        return SourceError(
            f"the broker refuses us ({name})", where=where,
            remedy="check the security settings in `source.options` and the rights on the topic",
        )  # fmt: skip
    if name == "TOPIC_EXCEPTION":
        return SourceError("this is no name for a topic", where=where, remedy="mend `source.topic`")
    return SourceError(
        f"the broker does not answer ({name})", where=where,
        remedy="check that it runs and that `source.bootstrap_servers` is right, run again", passing=True,
    )  # fmt: skip


def _librdkafka(source: KafkaSource) -> dict[str, str | int | float | bool] | None:
    """The connection in librdkafka's words, or None where it has none for it."""
    config: dict[str, str | int | float | bool] = {"bootstrap.servers": source.bootstrap_servers}
    for name, value in client_options(source).items():
        if name == "sasl.jaas.config":
            login = _LOGIN.search(value)
            if login is None:
                return None
            config["sasl.username"], config["sasl.password"] = login.groups()
        elif name in _SHARED:
            config[name] = value
        elif name.startswith(("ssl.", "sasl.")):
            return None
    return config


# librdkafka prints on stderr what it also returns
_SILENT = logging.getLogger("lazaretto.sources.kafka_check.silent")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
