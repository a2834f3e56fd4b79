"""The sums of a reconciliation for each partition of a source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from lazaretto.observe.accounts import Place
from lazaretto.observe.differences import Checked, Difference, Standing


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
