"""What was produced: every record of a topic, or of the files of a manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

Coordinate = tuple[str, str, str | None, int]
"""System, stream, partition, position."""


class UnreadableError(Exception):
    """What was to be compared cannot be read."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What was produced at a coordinate: `sha256` is None for a tombstone, `event_id` where the payload has one."""

    sha256: str | None
    event_id: str | None


def sent_of(value: bytes | None, id_field: str) -> Sent:
    """The facts of one payload."""
    if value is None:
        return Sent(None, None)
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        document = None
    found = document.get(id_field) if isinstance(document, dict) else None
    return Sent(hashlib.sha256(value).hexdigest(), found if isinstance(found, str) else None)


def from_kafka(servers: str, topic: str) -> Iterator[tuple[Coordinate, bytes | None]]:
    """Every committed record of a topic, from the first that is there to the end as of now."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "verifier", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": True,
        }
    )  # fmt: skip
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        if not partitions:
            raise UnreadableError("there is no such topic")
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        at_end: set[int] = set()
        while len(at_end) < len(partitions):
            for message in consumer.consume(10_000, timeout=1.0):
                error = message.error()
                if error is None:
                    yield ("kafka", topic, str(message.partition()), message.offset()), message.value()
                elif error.name() == "_PARTITION_EOF":
                    at_end.add(message.partition())
                else:
                    raise UnreadableError(f"the topic cannot be read: {error.name()}")
    finally:
        consumer.close()


def from_manifest(manifest: Path) -> Iterator[tuple[Coordinate, bytes | None]]:
    """Every line of the files of a manifest, which lie beside it: plain UTF-8 JSON lines without a byte order mark."""
    document = json.loads(manifest.read_text(encoding="utf-8"))
    if document.get("format", "jsonl") != "jsonl":
        raise UnreadableError("only manifests of JSON lines files can be verified")
    for file in document["files"]:
        content = (manifest.parent / file["path"]).read_bytes()
        lines = content.split(b"\n")
        for number, line in enumerate(lines[:-1] if content.endswith(b"\n") else lines, 1):
            yield ("files", document["manifest_id"], file["path"], number), line
