"""A soak's plan and its events are functions of the seed: what a run did can be had again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest

from ..soak import events, schedule
from ..soak.faults import FAULTS
from ..soak.ledger import Row, first_row_s

MINUTES = 20


def test_the_same_seed_gives_the_same_faults_in_any_process(repo_root: Path) -> None:
    code = (
        "import json; from dataclasses import asdict; from tests.soak.schedule import faults_of, kills_of;"
        "from tests.soak.faults import FAULTS;"
        "print(json.dumps([[asdict(p) for p in faults_of(7, 20, FAULTS)], [asdict(p) for p in kills_of(7, 50)]]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repo_root, capture_output=True, text=True, check=True)
    faults, kills = json.loads(done.stdout)
    assert faults == [asdict(p) for p in schedule.faults_of(7, MINUTES, FAULTS)]
    assert kills == [asdict(p) for p in schedule.kills_of(7, 50)]


def test_another_seed_gives_another_plan() -> None:
    assert schedule.faults_of(1, MINUTES, FAULTS) != schedule.faults_of(2, MINUTES, FAULTS)
    assert schedule.kills_of(1, 50) != schedule.kills_of(2, 50)


def test_a_shorter_plan_is_the_beginning_of_a_longer_one() -> None:
    short, long = schedule.faults_of(3, 2, FAULTS), schedule.faults_of(3, MINUTES, FAULTS)
    assert 0 < len(short) < len(long)
    assert long[: len(short)] == short
    assert schedule.kills_of(3, 10) == schedule.kills_of(3, 200)[:10]


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_has_every_fault_in_its_range_and_in_time(seed: int) -> None:
    planned = schedule.faults_of(seed, MINUTES, FAULTS)
    assert {each.fault for each in planned} == set(FAULTS)
    assert planned[0].at_s == schedule.FIRST_S
    assert planned[-1].at_s < MINUTES * 60
    for each in planned:
        ranges = FAULTS[each.fault].ranges
        assert set(each.arguments) == set(ranges)
        assert all(low <= each.arguments[name] <= high for name, (low, high) in ranges.items())
    low, high = schedule.GAP_S
    for one, after in pairwise(planned):
        # to a tenth of a second
        gap = after.at_s - one.at_s - one.arguments.get("seconds", 0)
        assert low - 0.1 <= gap <= high + 0.1


def test_kills_reach_every_process_at_any_moment() -> None:
    planned = schedule.kills_of(1, 200)
    assert set(Counter(each.what for each in planned)) == set(schedule.KILLED)
    assert min(each.share for each in planned) < 0.05
    assert max(each.share for each in planned) > 0.95


@pytest.mark.parametrize(("kills", "pairs"), [(1, 1), (2, 2), (10, 3), (60, 6), (200, 20), (1000, 20)])
def test_starts_are_timed_all_along(kills: int, pairs: int) -> None:
    after = sorted(schedule.pairs_of(kills))
    assert len(after) == pairs
    assert after[-1] == kills
    assert after[0] >= 1


def test_an_event_is_the_same_at_every_call() -> None:
    some = [events.event(5, n) for n in range(2000)]
    assert some == [events.event(5, n) for n in range(2000)]
    assert some != [events.event(6, n) for n in range(2000)]


def test_events_come_in_their_shares() -> None:
    kinds = Counter(events.kind_of(1, n) for n in range(50_000))
    for kind, share in events.SHARES.items():
        assert kinds[kind] == pytest.approx(50 * share, rel=0.2)


def test_events_are_what_they_are_meant_to_be() -> None:
    sound: dict[str, bytes] = {}
    for n in range(5000):
        made = events.event(1, n)
        if made.kind is events.Kind.SOUND:
            assert made.value is not None
            document = json.loads(made.value)
            assert document["event_id"] not in sound
            sound[document["event_id"]] = made.value
        elif made.kind is events.Kind.TOMBSTONE:
            assert made.value is None
        elif made.kind in (events.Kind.DUPLICATE, events.Kind.CONFLICT):
            assert made.value is not None
            same = sound[json.loads(made.value)["event_id"]] == made.value
            assert same == (made.kind is events.Kind.DUPLICATE)
        else:
            assert made.value not in sound.values()


def test_the_first_row_of_a_life_is_its_own_and_committed() -> None:
    rows = [
        Row(10.0, "b-0", "life-1", "committed", 5), Row(12.0, "b-1", "life-2", "failed", 0),
        Row(14.5, "b-1", "life-2", "committed", 5), Row(15.0, "b-2", "life-2", "committed", 5),
    ]  # fmt: skip
    assert first_row_s(rows, "life-2", started_at=11.0) == 3.5
    assert first_row_s(rows, "life-3", started_at=11.0) is None
