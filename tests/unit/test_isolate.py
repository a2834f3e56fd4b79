"""Halving, without a JVM."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazaretto.commit.isolate import ATTEMPTS, MOST_RECORDS, NOBODY, Isolated, Span, evaluated, search
from lazaretto.errors import ProcessingError, SinkError


def spans(*bounds: tuple[int, int]) -> list[Span]:
    return [Span("kafka", "orders", str(n), start, end) for n, (start, end) in enumerate(bounds)]


def failing(culprits: set[tuple[str, int]], looked: list[Span]) -> Callable[[Span], bool]:
    def fails(span: Span) -> bool:
        looked.append(span)
        return any(p == span.partition and span.start <= at <= span.end for p, at in culprits)

    return fails


@given(st.sets(st.tuples(st.sampled_from("01"), st.integers(0, 2000)), max_size=MOST_RECORDS))
def test_exactly_the_culprits_are_found(culprits: set[tuple[str, int]]) -> None:
    looked: list[Span] = []
    found = search(spans((0, 2000), (0, 2000)), failing(culprits, looked))
    assert {(span.partition, span.start) for span in found} == culprits
    assert all(span.start == span.end for span in found)
    assert len(looked) <= 2 + 2 * 11 * len(culprits)


def test_it_gives_up_when_everything_fails() -> None:
    looked: list[Span] = []
    found = search(spans((0, 1_000_000)), lambda span: bool(looked.append(span)) or True)
    assert len(found) == MOST_RECORDS + 1
    assert len(looked) < 100


def broken(reason: str) -> ProcessingError:
    return ProcessingError(f"the rows could not be staged ({reason})", reason=reason)


def run(outcomes: list[Exception | None]) -> tuple[Isolated, list[float]]:
    left, slept = list(outcomes), list[float]()

    def write(isolated: Isolated) -> None:
        assert isolated is NOBODY
        outcome = left.pop(0)
        if outcome is not None:
            raise outcome

    found = evaluated("b", write, lambda: pytest.fail("nothing is looked for"), lambda df: df, sleep=slept.append)
    assert left == []
    return found, slept


def test_a_failure_that_passes_isolates_nobody() -> None:
    assert run([None]) == (NOBODY, [])
    found, slept = run([broken("A"), broken("A"), None])
    assert found is NOBODY
    assert len(slept) == ATTEMPTS - 1


def test_failures_of_different_kinds_are_no_records_fault() -> None:
    with pytest.raises(ProcessingError, match="B"):
        run([broken("A"), broken("B")])


def test_an_outage_is_not_tried_again_here() -> None:
    with pytest.raises(SinkError, match="full"):
        run([SinkError("the disk is full")])
