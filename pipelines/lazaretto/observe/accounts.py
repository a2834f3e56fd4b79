"""What the ledger says of the committed batches, and what of the source has to be read to check it.

All but `committed_accounts` are plain values and arithmetic. Positions are inclusive, as in the ledger.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lazaretto.commit import BatchKind, Tables, committed
from lazaretto.commit.spark_edge import edge
from lazaretto.observe.times import known, micros

PARTS = ("inserted", "updated", "duplicate", "quarantined", "filtered")
"""What the records that were read became; together they are all of them."""

_VERSIONS = ("bronze_version", "quarantine_version")


class Place(NamedTuple):
    """A partition of a source: kafka/topic/partition, or files/manifest id or landing folder/path of the file."""

    system: str
    stream: str
    partition: str

    def __str__(self) -> str:
        return "/".join(self)


@dataclass(frozen=True)
class Range:
    """A batch has seen `records` records of this place, the first at `start`, the last at `end`."""

    place: Place
    start: int
    end: int
    records: int


@dataclass(frozen=True)
class Account:
    """A committed batch, as its ledger row tells it.

    Attributes:
        read: number of records. parts: what they became, by the names of `PARTS`.
        ranges: where they stood; empty, too, where the ledger's JSON cannot be read.
        declared: what the source said it hands over; for a manifest its files.
        bronze_version, quarantine_version: of the tables, which have this batch's rows since then.
    """

    batch_id: str
    kind: str
    committed_at: datetime
    read: int
    parts: Mapping[str, int]
    ranges: tuple[Range, ...]
    declared: Mapping[str, Any] = field(default_factory=dict)
    bronze_version: int | None = None
    quarantine_version: int | None = None

    @property
    def landed(self) -> int:
        """Rows that this batch has written to bronze."""
        return self.parts["inserted"] + self.parts["updated"]

    @property
    def topic_id(self) -> str | None:
        """Of the topic that was read, where it is known: one that is made anew has another."""
        named = self.declared.get("topic_id")
        return str(named) if named else None

    @property
    def is_restart(self) -> bool:
        """It holds no records: a stream was begun anew."""
        return self.kind == BatchKind.RESTART.value

    @property
    def is_replay(self) -> bool:
        """Its records came from the quarantine: the source was asked by the batch that held them."""
        return self.kind == BatchKind.REPLAY.value


def committed_accounts(spark: SparkSession, tables: Tables, dataset: str) -> list[Account]:
    """All committed batches of a dataset, by when they were published. A batch with two such rows is in it twice.

    Raises:
        ConfigurationError: there is no ledger yet.
        SinkError: the ledger cannot be read.
    """
    with edge("the ledger could not be read", str(tables.ingestion_status)):
        counts = ["records_read", *(f"records_{part}" for part in PARTS)]
        rows = (
            committed(spark, tables, dataset)
            .where(F.col("committed_at").isNotNull())
            .select("batch_id", "kind", micros("committed_at"), "source_range", *_VERSIONS, *counts)
            .collect()
        )
    found = []
    for row in rows:
        ranges, declared = read_ranges(row["source_range"])
        parts = {part: int(row[f"records_{part}"] or 0) for part in PARTS}
        at = known(row["committed_at"])
        read, versions = int(row["records_read"] or 0), (row[name] for name in _VERSIONS)
        found.append(Account(row["batch_id"], row["kind"], at, read, parts, ranges, declared, *versions))
    return sorted(found, key=lambda account: (account.committed_at, account.batch_id))


def read_ranges(source_range: str | None) -> tuple[tuple[Range, ...], Mapping[str, Any]]:
    """The ledger's `source_range`: its ranges and what was declared; nothing of what cannot be read."""
    try:
        document = json.loads(source_range or "{}")
        ranges = tuple(
            Range(
                Place(r["system"] or "", r["stream"] or "", r["partition"] or ""),
                int(r["start"]),
                int(r["end"]),
                int(r["records"]),
            )
            for r in document.get("ranges", ())
        )
        declared = document.get("declared")
    except (ValueError, TypeError, KeyError, AttributeError):
        return (), {}
    return ranges, declared if isinstance(declared, dict) else {}


def given_up(oldest_first: Sequence[Account]) -> set[str]:
    """Batches whose rows a table has lost (it was taken back), where a later restart has accepted that."""
    lost: set[str] = set()
    limits: dict[str, int] = {}
    for account in reversed(oldest_first):
        if account.is_restart:
            kept = account.declared.get("kept") or {}
            for name in _VERSIONS:
                version = kept.get(name)
                if version is not None:
                    limits[name] = min(version, limits.get(name, version))
        elif any((getattr(account, name) or 0) > limit for name, limit in limits.items()):
            lost.add(account.batch_id)
    return lost


def published_within(accounts: Iterable[Account], since: datetime | None, until: datetime | None) -> list[Account]:
    """Those published at `since` or later, and before `until`."""
    return [
        account
        for account in accounts
        if (since is None or account.committed_at >= since) and (until is None or account.committed_at < until)
    ]


Interval = tuple[int, int]


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """The same positions in the fewest intervals, in order."""
    made: list[Interval] = []
    for start, end in sorted(intervals):
        if made and start <= made[-1][1] + 1:
            made[-1] = (made[-1][0], max(made[-1][1], end))
        else:
            made.append((start, end))
    return made


def gaps(chosen: Iterable[Account], everyone: Iterable[Account]) -> dict[Place, list[Interval]]:
    """Positions between the chosen batches that no committed batch covers: there should be no records there."""
    covered = _intervals(everyone)
    found: dict[Place, list[Interval]] = {}
    for place, wanted in _intervals(chosen).items():
        first, last = min(start for start, _ in wanted), max(end for _, end in wanted)
        spans = [(start, end) for start, end in joined(covered.get(place, wanted)) if end >= first and start <= last]
        between = [(left[1] + 1, right[0] - 1) for left, right in pairwise(spans)]
        if between:
            found[place] = between
    return found


def to_read(chosen: Iterable[Account], between: Mapping[Place, list[Interval]]) -> dict[Place, list[Interval]]:
    """What to read of each place: the chosen batches' ranges and the gaps between, each position once."""
    return {place: joined([*wanted, *between.get(place, ())]) for place, wanted in sorted(_intervals(chosen).items())}


def layers(reads: Mapping[Place, list[Interval]]) -> list[dict[Place, Interval]]:
    """The same intervals as rounds with at most one of each place, for readers that take one. Mostly one round."""
    rounds = max((len(intervals) for intervals in reads.values()), default=0)
    return [{place: each[n] for place, each in reads.items() if n < len(each)} for n in range(rounds)]


def _intervals(accounts: Iterable[Account]) -> dict[Place, list[Interval]]:
    found: dict[Place, list[Interval]] = defaultdict(list)
    for account in accounts:
        if not account.is_replay:
            for each in account.ranges:
                found[each.place].append((each.start, each.end))
    return dict(found)
