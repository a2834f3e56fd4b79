"""Ranges to ask about, and bins that let a record find those it is in without meeting all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lazaretto.observe.accounts import Place, Range

_MOST_BINS = 200_000


@dataclass(frozen=True)
class Span:
    """A range of positions to ask about: a batch's, or with `batch_id` None one that no batch covers."""

    batch_id: str | None
    place: Place
    start: int
    end: int

    @classmethod
    def of(cls, batch_id: str, each: Range) -> Span:
        """The range as that batch's."""
        return cls(batch_id, each.place, each.start, each.end)


def bin_width(spans: Sequence[Span]) -> int:
    """How many positions share a bin, so that the spans together touch only a few times as many bins as there are."""
    positions = sum(span.end - span.start + 1 for span in spans)
    return max(1, -(-positions // max(1, min(len(spans), _MOST_BINS))))


def bins(spans: Sequence[Span], width: int) -> Iterator[tuple[int, int]]:
    """(index of the span, number of a bin it touches): a record at `position` is in bin `position // width`."""
    for index, span in enumerate(spans):
        for number in range(span.start // width, span.end // width + 1):
            yield index, number
