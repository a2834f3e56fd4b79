"""The arithmetic of a reconciliation: what has to be read, and what the numbers mean."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazaretto.cli.reconciling import _told, as_dict
from lazaretto.observe.accounts import (
    PARTS,
    Account,
    Place,
    Range,
    gaps,
    given_up,
    joined,
    layers,
    published_within,
    read_ranges,
    to_read,
)
from lazaretto.observe.differences import (
    MEANING,
    Checked,
    Difference,
    DifferenceKind,
    Reach,
    Seen,
    Standing,
    judge,
    twice,
)
from lazaretto.observe.places import places_of
from lazaretto.observe.reconcile import Reconciliation
from lazaretto.observe.spans import Span, bin_width, bins

AT = Place("kafka", "orders", "0")
OTHER = Place("kafka", "orders", "1")
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)

intervals = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=8
)


def account(batch_id: str = "b", *ranges: Range, kind: str = "stream", **parts: int) -> Account:
    """A batch that has read as many records as its parts say."""
    counts = {part: parts.get(part, 0) for part in PARTS}
    return Account(batch_id, kind, NOON, sum(counts.values()), counts, ranges)


def reading(*spans: tuple[int, int], place: Place = AT, batch_id: str = "b", **more: Any) -> Account:
    return account(batch_id, *(Range(place, start, end, end - start + 1) for start, end in spans), **more)


def checked(of: Account, seen: Seen, reach: Reach | None = None, **more: Any) -> Checked:
    values = {"bronze_rows": of.landed, "held_rows": of.parts["quarantined"], "updates": False, **more}
    return Checked(of, [(each, reach or Reach(), seen) for each in of.ranges], **values)


def found(each: Checked) -> dict[str, tuple[int | None, int | None, int]]:
    return {d.kind.value: (d.expected, d.found, d.records) for d in judge(each)}


# --- what to read -----------------------------------------------------------------------------------------------------


def positions(spans: list[tuple[int, int]]) -> set[int]:
    return {position for start, end in spans for position in range(start, end + 1)}


@given(intervals)
def test_joined_intervals_are_the_same_positions_apart_from_each_other(spans: list[tuple[int, int]]) -> None:
    made = joined(spans)
    assert positions(made) == positions(spans)
    assert all(left[1] + 1 < right[0] for left, right in pairwise(made))


@given(intervals, intervals)
def test_chosen_ranges_and_gaps_are_read_once_and_nothing_else(
    mine: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    chosen = [reading(span, batch_id=f"mine-{n}") for n, span in enumerate(mine)]
    everyone = [*chosen, *(reading(span, batch_id=f"other-{n}") for n, span in enumerate(others))]
    between = gaps(chosen, everyone)
    wanted = to_read(chosen, between)
    if not mine:
        assert (between, wanted) == ({}, {})
        return
    first, last = min(start for start, _ in mine), max(end for _, end in mine)
    uncovered = set(range(first, last + 1)) - positions([*mine, *others])
    assert positions(between.get(AT, [])) == uncovered
    assert positions(wanted[AT]) == positions(mine) | uncovered
    rounds = layers({**wanted, OTHER: [(0, 0)]})
    assert [each[AT] for each in rounds if AT in each] == wanted[AT]
    assert [OTHER in each for each in rounds] == [n == 0 for n in range(len(rounds))]


def test_a_replay_covers_nothing_of_the_source() -> None:
    replay = reading((0, 9), batch_id="r", kind="replay")
    assert to_read([replay], gaps([replay], [replay])) == {}
    ends = [reading((0, 1)), reading((8, 9), batch_id="c")]
    assert gaps(ends, [*ends, replay]) == {AT: [(2, 7)]}


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 3_000)), min_size=1, max_size=20), st.data())
def test_a_record_finds_its_spans_by_its_bin(pairs: list[tuple[int, int]], data: Any) -> None:
    spans = [Span("b", AT, start, start + length) for start, length in pairs]
    width = bin_width(spans)
    table = list(bins(spans, width))
    assert len(table) <= 3 * len(spans)
    position = data.draw(st.integers(0, 14_000))
    met = {n for n, number in table if number == position // width and spans[n].start <= position <= spans[n].end}
    assert met == {n for n, span in enumerate(spans) if span.start <= position <= span.end}


def test_from_is_within_and_to_is_not() -> None:
    batches = [replace(account(str(n)), committed_at=NOON + timedelta(hours=n)) for n in range(3)]
    hour = timedelta(hours=1)
    assert [a.batch_id for a in published_within(batches, NOON + hour, None)] == ["1", "2"]
    assert [a.batch_id for a in published_within(batches, None, NOON + hour)] == ["0"]
    assert [a.batch_id for a in published_within(batches, None, None)] == ["0", "1", "2"]


def test_batches_whose_loss_a_later_restart_has_accepted() -> None:
    def batch(name: str, bronze: int, held: int | None = None) -> Account:
        return replace(account(name), bronze_version=bronze, quarantine_version=held)

    def restart(**kept: int | None) -> Account:
        return replace(account("restart", kind="restart"), declared={"kept": kept})

    before = [batch("1", 1), batch("2", 2, 1), batch("3", 3, 2)]
    assert given_up(before) == set()
    assert given_up([*before, restart(bronze_version=None, quarantine_version=None)]) == set()
    assert given_up([*before, restart(bronze_version=2)]) == {"3"}
    assert given_up([*before, restart(quarantine_version=0), batch("4", 9, 9)]) == {"2", "3"}
    assert given_up([*before, restart(bronze_version=1), batch("4", 2), restart(bronze_version=5)]) == {"2", "3"}


def test_ranges_of_the_ledger() -> None:
    part = {"system": "files", "stream": "m", "partition": None, "start": 1, "end": 3, "records": 2}
    text = json.dumps({"ranges": [part], "declared": {"files": []}})
    assert read_ranges(text) == ((Range(Place("files", "m", ""), 1, 3, 2),), {"files": []})
    for broken in (None, "", "{", "[]", "null", '{"ranges": [{}]}', '{"ranges": [{"system": "x", "start": "y"}]}'):
        assert read_ranges(broken) == ((), {})


# --- what the numbers mean --------------------------------------------------------------------------------------------


SOUND = reading((0, 9), inserted=6, duplicate=2, quarantined=1, filtered=1)
SEEN = Seen(source=10, bronze=6, held=1, neither=3, empty=1)


def test_a_sound_batch() -> None:
    assert found(checked(SOUND, SEEN)) == {}


def test_each_number_that_is_another_is_named() -> None:
    assert found(checked(replace(SOUND, read=11), SEEN)) == {"ledger_sum": (11, 10, 1), "ledger_ranges": (11, 10, 1)}
    assert found(checked(SOUND, SEEN, bronze_rows=5)) == {"bronze_count": (6, 5, 1)}
    assert found(checked(SOUND, SEEN, bronze_rows=7)) == {"bronze_count": (6, 7, 1)}
    assert found(checked(SOUND, SEEN, held_rows=0)) == {"quarantine_count": (1, 0, 1)}
    assert found(checked(SOUND, replace(SEEN, neither=5))) == {"lost": (3, 5, 2)}
    assert found(checked(SOUND, replace(SEEN, neither=2))) == {"overstated": (3, 2, 1)}
    assert found(checked(SOUND, replace(SEEN, source=12))) == {"source_count": (10, 12, 2)}
    for kind in ("doubled", "both", "invented"):
        seen = replace(SEEN, **{kind: 2, f"{kind}_at": (3, 4)})
        [difference] = judge(checked(SOUND, seen))
        assert (difference.kind, difference.records, difference.positions) == (kind, 2, (3, 4))


def test_a_row_that_a_later_batch_took_over_is_in_no_table_of_its_batch() -> None:
    updated = replace(SEEN, bronze=4, neither=5)
    assert found(checked(SOUND, updated, bronze_rows=4, updates=True)) == {}
    assert found(checked(SOUND, updated, bronze_rows=7, updates=True)).keys() == {"bronze_count", "lost"}


@pytest.mark.parametrize(
    ("reach", "standing"),
    [
        (Reach(), Standing.READ),
        (Reach(0, 10), Standing.READ),
        (Reach(3, 10), Standing.PARTLY_GONE),
        (Reach(10, 12), Standing.GONE),
        (Reach(0, 9), Standing.ENDS_BEFORE),
        (Reach(0, 0), Standing.ENDS_BEFORE),
        (Reach(refused=Standing.NOT_COMPARED), Standing.NOT_COMPARED),
        (Reach(refused=Standing.GONE), Standing.GONE),
    ],
)
def test_what_is_gone_is_no_difference_and_what_never_was_is_one(reach: Reach, standing: Standing) -> None:
    assert reach.of(SOUND.ranges[0]) is standing
    left = SEEN if standing is Standing.READ else replace(SEEN, source=2, neither=1, invented=5)
    told = found(checked(SOUND, left, reach))
    assert told == ({"source_ends": (10, 2, 8)} if standing is Standing.ENDS_BEFORE else {})
    # but what is left is looked at
    assert "lost" in found(checked(SOUND, replace(left, neither=4), reach))


def test_a_topic_that_drops_records_by_itself() -> None:
    fewer = replace(SEEN, source=4, neither=1, invented=5)
    assert found(checked(SOUND, fewer, Reach(0, 10, sparse=True))) == {}
    more = replace(SEEN, source=11, neither=4)
    assert found(checked(SOUND, more, Reach(0, 10, sparse=True))).keys() == {"source_count", "lost"}


def test_a_replay_is_not_asked_for_the_source_nor_for_what_stays_held() -> None:
    replay = reading((0, 9), kind="replay", inserted=4, quarantined=6)
    assert found(Checked(replay, [], bronze_rows=4, held_rows=0, updates=False)) == {}
    assert found(Checked(replay, [], bronze_rows=3, held_rows=0, updates=False)).keys() == {"bronze_count"}


def test_declared_files_are_compared_with_their_ranges() -> None:
    file = Place("files", "b", "p.jsonl")
    loaded = account("b", Range(file, 1, 2, 2), kind="manifest", inserted=2)

    def declaring(**files: int) -> Account:
        return replace(loaded, declared={"files": [{"path": f"{p}.jsonl", "records": n} for p, n in files.items()]})

    assert found(checked(declaring(p=2, empty=0), Seen(2, 2))) == {}
    assert found(checked(declaring(p=3), Seen(2, 2))) == {"declared": (3, 2, 1)}
    [difference] = judge(checked(declaring(p=2, q=1), Seen(2, 2)))
    assert (difference.place, difference.expected, difference.found) == (Place("files", "b", "q.jsonl"), 1, 0)


def test_a_batch_committed_twice() -> None:
    assert [(d.batch_id, d.found) for d in twice([SOUND, account("c"), SOUND])] == [("b", 2)]


def test_every_kind_has_a_meaning_and_stands_on_its_page(repo_root: Any) -> None:
    page = (repo_root / "docs/reconcile.md").read_text(encoding="utf-8")
    assert set(MEANING) == set(DifferenceKind)
    for kind, meaning in MEANING.items():
        assert f"| `{kind.value}` | {meaning} |" in page


# --- what is told -----------------------------------------------------------------------------------------------------


def test_sums_of_a_place_and_what_is_told() -> None:
    second = reading((10, 14), batch_id="c", inserted=5)
    each = [checked(SOUND, SEEN), checked(second, Seen(bronze=5), Reach(20))]
    lost = Difference(DifferenceKind.LOST, "c", AT, 1, 3, 2, (11, 12))
    gap = Difference(DifferenceKind.UNCOVERED, None, OTHER, records=4, positions=(1, 2))
    places = places_of(each, [lost, gap], filters=True)
    [place] = places
    assert (place.start, place.end, place.source, place.ledger, place.bronze) == (0, 14, 10, 15, 11)
    assert (place.duplicate, place.filtered, place.not_read, place.differing) == (2, 1, 5, 2)
    assert place.standing is Standing.GONE
    assert places_of(each, [], filters=False)[0].duplicate == 3
    result = Reconciliation("orders", 2, 0, places, (lost, gap), 7)
    assert _told(result) == "2 differences (1 lost, 1 uncovered) batch c at kafka/orders/0 and 1 more"
    document = json.loads(json.dumps(as_dict(result)))
    assert document["ok"] is False
    assert document["ranges"][0]["partition"] == "0"
    assert document["differences"][1]["batch_id"] is None
    assert document["differences"][0]["positions"] == [11, 12]
