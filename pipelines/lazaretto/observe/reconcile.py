"""Does what was sent equal what is accounted for: the ledger's batches against the source and the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lazaretto.commit import Tables
from lazaretto.commit.schema import QUARANTINE, columns
from lazaretto.commit.spark_edge import edge
from lazaretto.observe.accounts import Account, Interval, Place, Range, gaps, to_read
from lazaretto.observe.comparing import Changed, SideBySide, side_by_side
from lazaretto.observe.differences import (
    Checked,
    Difference,
    DifferenceKind,
    Reach,
    Seen,
    Standing,
    judge,
    twice,
)
from lazaretto.observe.places import PlaceCounts, places_of
from lazaretto.observe.spans import Span

_BRONZE = """_source STRUCT<system STRING, stream STRING, partition STRING, position BIGINT>, _batch_id STRING,
    _payload_sha256 STRING, _replay_id STRING"""
_MOST_NAMED = 500
"""Up to this many batches are named to the tables, which then leave out files by their ids."""


@dataclass(frozen=True)
class Reconciliation:
    """What came out. `hashes` is the number of records whose hashes were compared; `batches` were looked at;
    `given_up` were not: a table has lost their rows, and somebody has accepted that.
    """

    dataset: str
    batches: int
    given_up: int
    places: tuple[PlaceCounts, ...]
    differences: tuple[Difference, ...]
    hashes: int

    @property
    def ok(self) -> bool:
        return not self.differences


@dataclass(frozen=True)
class Question:
    """What to compare.

    Attributes:
        chosen: the batches that are asked about. everyone: all committed ones, for what they cover.
        updates: `on_match: update_if_newer`, so that rows of a batch can be replaced later.
        filters: `tombstones: filter`.
        sample: how many records to compare by hash; 0 for all.
        earlier: ids of batches that have read an earlier topic of the same name.
        given_up: how many batches are left out, because their loss was accepted.
    """

    dataset: str
    chosen: Sequence[Account]
    everyone: Sequence[Account]
    updates: bool
    filters: bool
    sample: int
    earlier: frozenset[str] = frozenset()
    given_up: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether every batch of the dataset is chosen."""
        return len(self.chosen) == len(self.everyone)

    @property
    def between(self) -> dict[Place, list[Interval]]:
        """Positions between the chosen batches that no committed batch covers."""
        return gaps(self._of_now(self.chosen), self._of_now(self.everyone))

    @property
    def reads(self) -> dict[Place, list[Interval]]:
        """The positions to read of each place."""
        return to_read(self._of_now(self.chosen), self.between)

    def _of_now(self, accounts: Sequence[Account]) -> list[Account]:
        return [account for account in accounts if account.batch_id not in self.earlier]


def compare(
    spark: SparkSession,
    tables: Tables,
    question: Question,
    source: DataFrame | None,
    reaches: Mapping[Place, Reach],
    *,
    say: Callable[[str], None] = lambda text: None,
) -> Reconciliation:
    """Compare what the source has with ledger and tables. Nothing is changed.

    Args:
        source: the envelope of `question.reads`, as far as `reaches` say that it can be read; None for nothing.
        reaches: for each place of `question.reads`.
        say: told what goes on.

    Raises:
        SourceError: the source cannot be read. SinkError: the tables cannot.
    """
    chosen = list({account.batch_id: account for account in question.chosen}.values())
    bronze, held = _bronze(spark, tables, question.dataset), _held(spark, tables, question.dataset)
    say(f"counting the rows of {len(chosen)} batches in bronze and quarantine")
    with edge("the tables could not be read", str(tables.bronze(question.dataset))):
        landed_rows = _count(bronze, "_batch_id", chosen, question.is_whole)
        held_rows = _count(held, "batch_id", chosen, question.is_whole)

    reads = question.reads
    batches = [a for a in chosen if not a.is_replay and a.batch_id not in question.earlier]
    spans = [Span.of(account.batch_id, each) for account in batches for each in account.ranges]
    uncovered = [Span(None, place, *each) for place, intervals in question.between.items() for each in intervals]
    expected = sum(each.records for account in batches for each in account.ranges)
    # Some in the sample will be in no table, and some coordinates are luckier than others: twice as many, and a few.
    positions = sum(end - start + 1 for intervals in reads.values() for start, end in intervals)
    share = (2 * question.sample + 50) / max(1, min(expected, positions)) if question.sample else 1.0
    found: list[Difference] = list(twice(question.chosen))
    with (
        edge("source and tables could not be compared", f"dataset {question.dataset}", reads_source=True),
        side_by_side(
            spark, source, bronze, held,
            reads=reads, batches=(a.batch_id for a in question.everyone if a.batch_id not in question.earlier),
            foreign=question.earlier, share=share,
        ) as sides,
    ):  # fmt: skip
        say(f"comparing {expected:,} records of {len(reads)} partitions by coordinate")
        seen = iter(sides.seen(spans) if spans else ())

        def spans_of(account: Account) -> list[tuple[Range, Reach, Seen]]:
            if account.is_replay:
                return []
            if account.batch_id in question.earlier:
                return [(each, Reach(refused=Standing.GONE), Seen()) for each in account.ranges]
            return [(each, reaches[each.place], next(seen)) for each in account.ranges]

        checked = [
            Checked(
                account=account,
                spans=spans_of(account),
                bronze_rows=landed_rows[account.batch_id],
                held_rows=held_rows[account.batch_id],
                updates=question.updates,
            )
            for account in chosen
        ]
        for each in checked:
            found += judge(each)
        if question.updates and question.is_whole:
            found += _total(chosen, landed_rows)
        found = _with_positions(found, checked, sides, bronze, question)
        if uncovered and source is not None:
            found += [
                Difference(DifferenceKind.UNCOVERED, None, uncovered[n].place, None, None, at.records, at.first)
                for n, at in sorted(sides.records(uncovered).items())
            ]
        hashes, changed = 0, list[Changed]()
        if source is not None:
            say(f"comparing the hashes of {'all' if not question.sample else f'{question.sample:,}'} records")
            hashes, changed = sides.hashes(question.sample)
    found += [
        Difference(DifferenceKind.CHANGED, c.batch_id, c.place, None, None, c.at.records, c.at.first) for c in changed
    ]
    places = places_of(checked, found, question.filters)
    return Reconciliation(question.dataset, len(chosen), question.given_up, places, tuple(found), hashes)


def _with_positions(
    found: list[Difference], checked: list[Checked], sides: SideBySide, bronze: DataFrame, question: Question
) -> list[Difference]:
    """What is lost, told by place and position where they can be told from duplicates: not under updates."""
    suspects = {each.account.batch_id: each.account for each in checked if each.lost > 0}
    if question.updates or not suspects:
        return found
    spans = [Span.of(batch, each) for batch, account in suspects.items() for each in account.ranges]
    where = sides.unexplained(spans, bronze, empty_is_filtered=question.filters)
    made = []
    for difference in found:
        at = [(spans[n].place, positions) for n, positions in sorted(where.items())
              if spans[n].batch_id == difference.batch_id]  # fmt: skip
        if difference.kind is DifferenceKind.LOST and at:
            # The numbers are the batch's; the place is where most of them stand.
            place, positions = max(at, key=lambda each: each[1].records)
            difference = replace(difference, place=place, positions=positions.first)
        made.append(difference)
    return made


def _total(accounts: Sequence[Account], rows: Mapping[str, int]) -> list[Difference]:
    """Under updates a row that is gone looks like one that was replaced; but each update takes the place of one row."""
    inserted = sum(account.parts["inserted"] for account in accounts)
    known = {account.batch_id for account in accounts}
    present = sum(count for batch, count in rows.items() if batch in known)
    # Rows of a batch that is on its way may have taken the place of others.
    if inserted == present or rows.keys() - known:
        return []
    return [Difference(DifferenceKind.BRONZE_TOTAL, None, None, inserted, present, abs(inserted - present))]


def _count(rows: DataFrame, column: str, accounts: Sequence[Account], every: bool) -> Counter[str]:
    if not every and len(accounts) <= _MOST_NAMED:
        rows = rows.where(F.col(column).isin([account.batch_id for account in accounts]))
    counted = rows.groupBy(F.col(column).alias("batch")).count().collect()
    return Counter({row["batch"]: row["count"] for row in counted})


def _bronze(spark: SparkSession, tables: Tables, dataset: str) -> DataFrame:
    table = tables.bronze(dataset)
    with edge("bronze could not be read", str(table)):
        rows = table.read(spark) if table.exists(spark) else spark.createDataFrame([], columns(_BRONZE))
        return rows.select("_source", "_batch_id", "_payload_sha256", "_replay_id")


def _held(spark: SparkSession, tables: Tables, dataset: str) -> DataFrame:
    table = tables.quarantine
    with edge("the quarantine could not be read", str(table)):
        rows = table.read(spark) if table.exists(spark) else spark.createDataFrame([], columns(QUARANTINE))
        return rows.where(F.col("dataset") == dataset).select("source", "batch_id", "payload", "payload_sha256")
