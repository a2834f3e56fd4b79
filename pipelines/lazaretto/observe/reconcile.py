"""Does what was sent equal what is accounted for: the ledger's batches against the source and the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lazaretto.commit import Tables
from lazaretto.commit.schema import QUARANTINE, columns
from lazaretto.commit.spark_edge import edge
from lazaretto.observe.accounts import Account, Interval, Place, gaps, to_read
from lazaretto.observe.comparing import Changed, SideBySide, Span, side_by_side
from lazaretto.observe.differences import (
    Checked,
    Difference,
    DifferenceKind,
    Reach,
    Standing,
    judge,
    twice,
)

_BRONZE = """_source STRUCT<system STRING, stream STRING, partition STRING, position BIGINT>, _batch_id STRING,
    _payload_sha256 STRING, _replay_id STRING"""
_MOST_NAMED = 500
"""Up to this many batches are named to the tables, which then leave out files by their ids."""


@dataclass(frozen=True)
class PlaceCounts:
    """One partition of a source, all chosen batches that read it taken together. Counts are records.

    Attributes:
        source: in the source, summed over the ranges that were read; None when none was. ledger: by the ledger.
        bronze, quarantine: of these batches, in the table.
        duplicate: in the source and in no table of its batch (under `update_if_newer` also what was replaced since);
            filtered: those of them that have no value, where the dataset skips these. None when nothing was read.
        not_read: by the ledger, in ranges the source does not have any more, or that were not compared.
        differing: that a difference of this place is about.
        standing: of its ranges, the worst.
    """

    place: Place
    start: int
    end: int
    source: int | None
    ledger: int
    bronze: int
    quarantine: int
    duplicate: int | None
    filtered: int | None
    not_read: int
    differing: int
    standing: Standing


@dataclass(frozen=True)
class Reconciliation:
    """What came out. `hashes` is the number of records whose hashes were compared; `batches` were looked at."""

    dataset: str
    batches: int
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
        is_whole: every batch of the dataset is chosen.
    """

    dataset: str
    chosen: Sequence[Account]
    everyone: Sequence[Account]
    updates: bool
    filters: bool
    sample: int

    @property
    def is_whole(self) -> bool:
        return len(self.chosen) == len(self.everyone)

    @property
    def reads(self) -> dict[Place, list[Interval]]:
        """The positions to read of each place."""
        return to_read(self.chosen, gaps(self.chosen, self.everyone))


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
    batches = [account for account in chosen if not account.is_replay]
    spans = [Span.of(account.batch_id, each) for account in batches for each in account.ranges]
    between = gaps(question.chosen, question.everyone)
    uncovered = [Span(None, place, *each) for place, intervals in between.items() for each in intervals]
    expected = sum(each.records for account in batches for each in account.ranges)
    # Some in the sample will be in no table, and some coordinates are luckier than others: twice as many, and a few.
    positions = sum(end - start + 1 for intervals in reads.values() for start, end in intervals)
    share = (2 * question.sample + 50) / max(1, min(expected, positions)) if question.sample else 1.0
    found: list[Difference] = list(twice(question.chosen))
    with (
        edge("source and tables could not be compared", f"dataset {question.dataset}", reads_source=True),
        side_by_side(
            spark, source, bronze, held,
            reads=reads, batches=(account.batch_id for account in question.everyone), share=share,
        ) as sides,
    ):  # fmt: skip
        say(f"comparing {expected:,} records of {len(reads)} partitions by coordinate")
        seen = iter(sides.seen(spans) if spans else ())
        checked = [
            Checked(
                account=account,
                spans=[] if account.is_replay else [(each, reaches[each.place], next(seen)) for each in account.ranges],
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
    return Reconciliation(
        question.dataset, len(chosen), places_of(checked, found, question.filters), tuple(found), hashes
    )


def places_of(checked: Iterable[Checked], found: Iterable[Difference], filters: bool) -> tuple[PlaceCounts, ...]:
    """The sums for each place, in order."""
    differing: Counter[Place] = Counter()
    for difference in found:
        if difference.place is not None:
            differing[difference.place] += max(1, difference.records)
    made: dict[Place, PlaceCounts] = {}
    order = list(Standing)
    for each in checked:
        for span, reach, seen in each.spans:
            standing = reach.of(span)
            read = standing in (Standing.READ, Standing.PARTLY_GONE, Standing.ENDS_BEFORE)
            empty = seen.empty if filters else 0
            one = PlaceCounts(
                place=span.place, start=span.start, end=span.end, source=seen.source if read else None,
                ledger=span.records, bronze=seen.bronze, quarantine=seen.held,
                duplicate=seen.neither - empty if read else None, filtered=empty if read else None,
                not_read=0 if standing is Standing.READ else max(0, span.records - seen.source),
                differing=differing[span.place], standing=standing,
            )  # fmt: skip
            old = made.get(span.place)
            made[span.place] = one if old is None else _sum(old, one, order)
    return tuple(made[place] for place in sorted(made))


def _sum(old: PlaceCounts, new: PlaceCounts, order: list[Standing]) -> PlaceCounts:
    def known(left: int | None, right: int | None) -> int | None:
        return right if left is None else left + (right or 0)

    return replace(
        old,
        start=min(old.start, new.start),
        end=max(old.end, new.end),
        source=known(old.source, new.source),
        ledger=old.ledger + new.ledger,
        bronze=old.bronze + new.bronze,
        quarantine=old.quarantine + new.quarantine,
        duplicate=known(old.duplicate, new.duplicate),
        filtered=known(old.filtered, new.filtered),
        not_read=old.not_read + new.not_read,
        standing=max(old.standing, new.standing, key=order.index),
    )


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
