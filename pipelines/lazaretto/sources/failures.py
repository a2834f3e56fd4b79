"""Spark's failures that are the source's, told apart by the names of conditions and classes in their texts.

Those texts are searched and never shown: they can hold values of records. (A record that carries such a name can at
worst make another failure look like one of these: the query has stopped all the same.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from lazaretto.errors import BatchClass, GuardRefusedError, SourceError


@dataclass(frozen=True)
class _Sign:
    marks: tuple[str, ...]
    what: str
    remedy: str
    error_class: BatchClass | None
    guard: bool = False
    passing: bool = False


_SIGNS = (
    _Sign(
        ("[KAFKA_DATA_LOSS", "KafkaIllegalStateException: Some data may have been lost"),
        "offsets that the checkpoint still needs are gone from the topic",
        "find out what was lost (retention? topic made anew?), then begin with a new checkpoint",
        None,
        guard=True,
    ),
    _Sign(
        ("[FAILED_READ_FILE.FILE_NOT_EXIST]", "[PATH_NOT_FOUND]"),
        "a file went away before it was read",
        "put it back (an empty file of that name will do if its records are not wanted), run again",
        BatchClass.UPSTREAM_UNAVAILABLE,
    ),
    _Sign(
        ("[FAILED_READ_FILE",),
        "a file cannot be read: damaged, or not of the declared format",
        "replace the file, run again",
        BatchClass.CONTRACT_VIOLATION,
    ),
    _Sign(
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException",),
        "the topic does not exist",
        "create it, or mend `source.topic`",
        BatchClass.UPSTREAM_UNAVAILABLE,
    ),
    _Sign(
        (
            "AuthorizationException: ",
            "org.apache.kafka.common.errors.SaslAuthenticationException",
            "org.apache.kafka.common.errors.SslAuthenticationException",
        ),
        "the broker refuses us",
        "check the security settings in `source.options` and the rights on the topic",
        BatchClass.UPSTREAM_UNAVAILABLE,
    ),
    _Sign(
        ("org.apache.kafka.common.errors.TimeoutException", "org.apache.kafka.common.errors.DisconnectException"),
        "the broker does not answer",
        "check that it runs and that `source.bootstrap_servers` is right, run again",
        BatchClass.UPSTREAM_UNAVAILABLE,
        passing=True,
    ),
)
# Spark writes the path percent-encoded, so it ends at the first blank
_FILE = re.compile(r"Encountered error while reading file (?:file:(?://)?)?(\S+)\.\s")


def as_source_error(exc: BaseException, *, where: str | None = None) -> SourceError | None:
    """The `SourceError` that an exception of Spark amounts to, or None when it is not about a source.

    Looks through causes, so it takes a `StreamingQueryException` as well as what a batch's action raises. An exception
    that is a `SourceError` already comes back as it is.

    Args:
        where: the dataset or batch, for the message, which also names the file that could not be read.
    """
    seen: BaseException | None = exc
    while seen is not None:
        if isinstance(seen, SourceError):
            return seen
        seen = seen.__cause__
    text = str(exc)
    for sign in _SIGNS:
        if any(mark in text for mark in sign.marks):
            kind = GuardRefusedError if sign.guard else SourceError
            file = _FILE.search(text)
            place = ": ".join(p for p in (where, unquote(file.group(1)) if file else None) if p)
            return kind(
                sign.what, where=place or None, remedy=sign.remedy, error_class=sign.error_class, passing=sign.passing
            )  # fmt: skip
    return None
