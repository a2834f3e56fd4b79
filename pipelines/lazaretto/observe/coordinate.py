"""Where a record came from: the same words for the same record, however often it is read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from lazaretto.errors import ConfigurationError

_WRITTEN = re.compile(r"(?P<system>[^/]*)/(?P<between>.*)/(?P<position>-?[0-9]{1,18})", re.S)


@dataclass(frozen=True, order=True)
class Coordinate:
    """`system/stream/partition/position`, such as `kafka/orders/0/1042` or `files/orders-001/part-0.jsonl/17`."""

    system: str
    stream: str
    partition: str
    position: int

    def __str__(self) -> str:
        return f"{self.system}/{self.stream}/{self.partition}/{self.position}"

    @classmethod
    def of(cls, source: Row) -> Coordinate:
        """From a row's `source`; what is missing there is empty here."""
        return cls(source["system"] or "", source["stream"] or "", source["partition"] or "", source["position"])


def came_from(written: str) -> Column:
    """The condition that a row's `source` is the one written so. Streams and partitions may hold slashes themselves.

    Raises:
        ConfigurationError: that is no coordinate.
    """
    match = _WRITTEN.fullmatch(written)
    if match is None:
        raise ConfigurationError(
            "this is no coordinate", remedy="write SYSTEM/STREAM/PARTITION/POSITION, such as kafka/orders/0/1042"
        )
    stream, partition = (F.coalesce(F.col(f"source.{part}"), F.lit("")) for part in ("stream", "partition"))
    between = F.concat(stream, F.lit("/"), partition)
    return (
        # Delta keeps the bounds of positions: this one leaves out most files.
        (F.col("source.position") == int(match["position"]))
        & (F.coalesce(F.col("source.system"), F.lit("")) == match["system"])
        & (between == match["between"])
    )
