"""Differences between what a source holds, what the ledger says and what the tables hold: values and their judgement.

Counts come in, named differences go out; nothing here reads anything, and nothing here is from a payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lazaretto.observe.accounts import Account, Place, Range

SHOWN = 5
"""How many positions a difference names."""


class DifferenceKind(StrEnum):
    """What is not as it should be; `MEANING` has it in words."""

    LEDGER_TWICE = "ledger_twice"
    LEDGER_SUM = "ledger_sum"
    LEDGER_RANGES = "ledger_ranges"
    DECLARED = "declared"
    SOURCE_COUNT = "source_count"
    SOURCE_ENDS = "source_ends"
    FILE_CHANGED = "file_changed"
    BRONZE_COUNT = "bronze_count"
    BRONZE_TOTAL = "bronze_total"
    QUARANTINE_COUNT = "quarantine_count"
    LOST = "lost"
    OVERSTATED = "overstated"
    DOUBLED = "doubled"
    BOTH = "both"
    INVENTED = "invented"
    CHANGED = "changed"
    UNCOVERED = "uncovered"


MEANING: Mapping[DifferenceKind, str] = {
    DifferenceKind.LEDGER_TWICE: "the ledger has this batch as committed more than once",
    DifferenceKind.LEDGER_SUM: "records read are not the sum of what they became",
    DifferenceKind.LEDGER_RANGES: "the source ranges hold another number of records than were read",
    DifferenceKind.DECLARED: "the manifest declared another number of records",
    DifferenceKind.SOURCE_COUNT: "the source holds another number of records in this range",
    DifferenceKind.SOURCE_ENDS: "the source ends before this range: it is not the one that was read",
    DifferenceKind.FILE_CHANGED: "this file is not what the manifest promised when it was loaded",
    DifferenceKind.BRONZE_COUNT: "bronze holds another number of this batch's rows",
    DifferenceKind.BRONZE_TOTAL: "bronze holds another number of rows than all batches have inserted",
    DifferenceKind.QUARANTINE_COUNT: "quarantine holds another number of this batch's rows",
    DifferenceKind.LOST: "in the source, in no table, and not counted as duplicate or filtered",
    DifferenceKind.OVERSTATED: "more duplicate or filtered records are counted than there are",
    DifferenceKind.DOUBLED: "more than once in one table",
    DifferenceKind.BOTH: "in bronze and in quarantine",
    DifferenceKind.INVENTED: "in a table, and not in the source",
    DifferenceKind.CHANGED: "the hash in the table is not that of what was sent",
    DifferenceKind.UNCOVERED: "between batches, and no committed batch has read it",
}


@dataclass(frozen=True)
class Difference:
    """One thing that is not as it should be.

    Attributes:
        batch_id, place: None where it is about no single one.
        expected, found: numbers of records, where two numbers differ; `expected` is the ledger's or the sender's.
        records: how many records it is about. positions: the first few of them, where they are known.
    """

    kind: DifferenceKind
    batch_id: str | None = None
    place: Place | None = None
    expected: int | None = None
    found: int | None = None
    records: int = 1
    positions: tuple[int, ...] = ()


class Standing(StrEnum):
    """What of a range the source still has for us."""

    READ = "read"
    PARTLY_GONE = "partly gone from the source"
    GONE = "gone from the source"
    ENDS_BEFORE = "beyond the end of the source"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True)
class Reach:
    """What of a place can be read now: positions from `first` on and before `after` (None: no end is known).

    Attributes:
        refused: why nothing of it is read: GONE or NOT_COMPARED; None when it is read.
        sparse: the source drops single records by itself (compaction), so that fewer are no difference.
    """

    first: int = 0
    after: int | None = None
    refused: Standing | None = None
    sparse: bool = False

    def of(self, span: Range) -> Standing:
        """How this range of the place stands."""
        if self.refused is not None:
            return self.refused
        if self.after is not None and span.end >= self.after:
            return Standing.ENDS_BEFORE
        if span.end < self.first:
            return Standing.GONE
        return Standing.READ if span.start >= self.first else Standing.PARTLY_GONE


@dataclass(frozen=True)
class Seen:
    """What source and tables hold within one batch's range. Counts are coordinates; `*_at` the first few positions.

    Attributes:
        source: records of the source. bronze, held: those of this batch that the table has.
        neither: records of the source that this batch has in no table; `empty`: those of them without a value.
        doubled, both, invented: as the kinds of these names.
    """

    source: int = 0
    bronze: int = 0
    held: int = 0
    neither: int = 0
    empty: int = 0
    doubled: int = 0
    both: int = 0
    invented: int = 0
    doubled_at: tuple[int, ...] = ()
    both_at: tuple[int, ...] = ()
    invented_at: tuple[int, ...] = ()


@dataclass(frozen=True)
class Checked:
    """One batch with everything that was seen of it.

    Attributes:
        spans: each of its ranges, how it stands, and what was seen there.
        bronze_rows, held_rows: rows that carry this batch's id, wherever they stand.
        updates: a later record may have taken over a row of this batch's (`update_if_newer`).
    """

    account: Account
    spans: Sequence[tuple[Range, Reach, Seen]]
    bronze_rows: int
    held_rows: int
    updates: bool

    @property
    def is_whole(self) -> bool:
        """Whether the source still has every record of the batch."""
        return all(reach.of(span) is Standing.READ and not reach.sparse for span, reach, _ in self.spans)

    @property
    def explained(self) -> int:
        """Records of the source that may be in no table: duplicates, filtered, replaced since."""
        parts = self.account.parts
        replaced = max(0, self.account.landed - self.bronze_rows) if self.updates else 0
        return parts["duplicate"] + parts["filtered"] + replaced

    @property
    def neither(self) -> int:
        return sum(seen.neither for _, _, seen in self.spans)

    @property
    def lost(self) -> int:
        """Records of the source that nothing explains; negative when more is explained than there is."""
        return 0 if self.account.is_replay else self.neither - self.explained


def judge(checked: Checked) -> list[Difference]:
    """The differences of one batch, but for hashes and the positions of what is lost, which need another look."""
    return [*_of_ledger(checked.account), *_of_counts(checked), *_of_places(checked)]


def _of_ledger(account: Account) -> Iterable[Difference]:
    batch, place = account.batch_id, only_place(account)
    total = sum(account.parts.values())
    if total != account.read:
        yield _numbers(DifferenceKind.LEDGER_SUM, batch, place, account.read, total)
    in_ranges = sum(each.records for each in account.ranges)
    if in_ranges != account.read and not account.is_replay:
        yield _numbers(DifferenceKind.LEDGER_RANGES, batch, place, account.read, in_ranges)
    files = account.declared.get("files")
    if not isinstance(files, list):
        return
    declared = {str(file.get("path")): int(file.get("records") or 0) for file in files if isinstance(file, dict)}
    loaded = {each.place.partition: each.records for each in account.ranges}
    for path in sorted(declared.keys() | loaded.keys()):
        expected, found = declared.get(path, 0), loaded.get(path, 0)
        if expected != found:
            yield _numbers(DifferenceKind.DECLARED, batch, Place("files", batch, path), expected, found)


def _of_counts(checked: Checked) -> Iterable[Difference]:
    account = checked.account
    batch, place = account.batch_id, only_place(account)
    rows = checked.bronze_rows
    if rows > account.landed or (rows < account.landed and not checked.updates):
        yield _numbers(DifferenceKind.BRONZE_COUNT, batch, place, account.landed, rows)
    held = account.parts["quarantined"]
    # What a replay leaves held stays with the batch that held it.
    if checked.held_rows != held and not account.is_replay:
        yield _numbers(DifferenceKind.QUARANTINE_COUNT, batch, place, held, checked.held_rows)
    if checked.lost > 0:
        yield _numbers(DifferenceKind.LOST, batch, place, checked.explained, checked.neither)
    elif checked.lost < 0 and checked.is_whole:
        yield _numbers(DifferenceKind.OVERSTATED, batch, place, checked.explained, checked.neither)


def _of_places(checked: Checked) -> Iterable[Difference]:
    batch = checked.account.batch_id
    for span, reach, seen in checked.spans:
        standing = reach.of(span)
        if standing is Standing.ENDS_BEFORE:
            missing = span.records - seen.source
            yield Difference(DifferenceKind.SOURCE_ENDS, batch, span.place, span.records, seen.source, missing)
        whole = standing is Standing.READ
        if whole and (seen.source > span.records or (seen.source < span.records and not reach.sparse)):
            yield _numbers(DifferenceKind.SOURCE_COUNT, batch, span.place, span.records, seen.source)
        for kind, count, positions in (
            (DifferenceKind.DOUBLED, seen.doubled, seen.doubled_at),
            (DifferenceKind.BOTH, seen.both, seen.both_at),
            (DifferenceKind.INVENTED, seen.invented if whole and not reach.sparse else 0, seen.invented_at),
        ):
            if count:
                yield Difference(kind, batch, span.place, records=count, positions=positions)


def twice(accounts: Iterable[Account]) -> list[Difference]:
    """Batches with more than one committed row."""
    times: dict[str, int] = {}
    for account in accounts:
        times[account.batch_id] = times.get(account.batch_id, 0) + 1
    return [
        Difference(DifferenceKind.LEDGER_TWICE, batch, expected=1, found=count)
        for batch, count in sorted(times.items())
        if count > 1
    ]


def only_place(account: Account) -> Place | None:
    """Where a batch was read, if it was in one place only."""
    return account.ranges[0].place if len(account.ranges) == 1 else None


def _numbers(kind: DifferenceKind, batch: str, place: Place | None, expected: int, found: int) -> Difference:
    return Difference(kind, batch, place, expected, found, abs(expected - found))
