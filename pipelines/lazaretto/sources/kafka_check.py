"""Is the broker there, and does it have the topic: asked before Spark is, because Spark's answer takes minutes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from lazaretto.config import KafkaSource
from lazaretto.errors import SourceError
from lazaretto.sources.kafka import client_options

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


def check_kafka(source: KafkaSource, timeout_s: float = 10.0) -> int:
    """The topic's number of partitions; does not create the topic.

    Returns 0 without asking where the connection needs what only a Java client can read (key stores, other logins).

    Raises:
        SourceError: nobody answers within `timeout_s`, the broker refuses us, or it has no such topic.
        ConfigurationError: an option of the source may not be set.
    """
    config = _librdkafka(source)
    if config is None:
        return 0
    where = f"topic {source.topic} at {source.bootstrap_servers}"
    try:
        admin = AdminClient(config, logger=_SILENT)
        asked = admin.describe_topics(TopicCollection([source.topic]), request_timeout=timeout_s)
        return len(asked[source.topic].result(timeout=timeout_s + 1).partitions)
    except (KafkaException, TimeoutError, ValueError) as exc:
        raise _refusal(exc, where) from exc


@dataclass(frozen=True)
class KafkaExtent:
    """What of each partition asked about the broker still has: offsets from `first` on and before `after`.

    A partition that the topic does not have is in neither. `is_compacted`: single records go before `first` does.
    """

    first: dict[int, int]
    after: dict[int, int]
    is_compacted: bool


def kafka_extent(source: KafkaSource, partitions: Iterable[int], timeout_s: float = 10.0) -> KafkaExtent | None:
    """Where the partitions begin and end by now.

    Returns None where the connection needs what only a Java client can read (key stores, other logins).

    Raises:
        SourceError: as `check_kafka`.
        ConfigurationError: an option of the source may not be set.
    """
    config = _librdkafka(source)
    if config is None:
        return None
    where = f"topic {source.topic} at {source.bootstrap_servers}"
    there = check_kafka(source, timeout_s)
    asked = [TopicPartition(source.topic, number) for number in sorted(set(partitions)) if number < there]
    try:
        admin = AdminClient(config, logger=_SILENT)
        found: list[dict[int, int]] = []
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):  # type: ignore[no-untyped-call]
            answers = admin.list_offsets(dict.fromkeys(asked, spec), request_timeout=timeout_s) if asked else {}
            found.append({at.partition: each.result(timeout=timeout_s + 1).offset for at, each in answers.items()})
        return KafkaExtent(found[0], found[1], _is_compacted(admin, source.topic, timeout_s))
    except (KafkaException, TimeoutError, ValueError) as exc:
        raise _refusal(exc, where) from exc


def _is_compacted(admin: AdminClient, topic: str, timeout_s: float) -> bool:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
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
        remedy="check that it runs and that `source.bootstrap_servers` is right, run again",
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
