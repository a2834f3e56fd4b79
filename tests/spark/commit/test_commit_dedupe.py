"""Which of several records with one event id wins, within a batch and across batches, under each policy.

The oracle is the policy said in plain Python, one record after the other; ids are independent of each other, so each
id of a random batch is a case of its own.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from lazaretto.config import DedupeWindow, OnMatch

IGNORE, NEWEST = OnMatch.IGNORE, OnMatch.UPDATE_IF_NEWER


def test_update_if_newer(lake, rec):
    lake.with_policy(on_match=NEWEST)
    first = lake.run(
        [
            rec("newer-later", 1, amount=1, minute=1),
            rec("newer-later", 2, amount=2, minute=2),
            rec("newer-first", 3, amount=2, minute=2),
            rec("newer-first", 4, amount=1, minute=1),
            rec("tie", 5, amount=1, arrived=7),
            rec("tie", 6, amount=2, arrived=6),
            rec("position", 7, amount=1, arrived=7),
            rec("position", 8, amount=2, arrived=7),
            rec("stays", 9, amount=5, minute=5),
            rec("moves", 10, amount=5, day=-30),
        ]
    )
    assert (first.records_inserted, first.records_duplicate) == (6, 4)
    assert lake.bronze() == [
        ("moves", 5, 10), ("newer-first", 2, 3), ("newer-later", 2, 2), ("position", 2, 8), ("stays", 5, 9),
        ("tie", 1, 5),
    ]  # fmt: skip
    second = lake.run(
        [
            rec("stays", 11, amount=4, minute=4),  # older: superseded
            rec("moves", 12, amount=6),  # thirty days newer: found and replaced all the same
            rec("tie", 13, amount=3, arrived=8),  # same event time, arrived later
            rec("position", 14, amount=2, arrived=9),  # newer, but the same payload
            rec("new", 15),
        ],
        "b2",
    )
    assert (second.records_inserted, second.records_updated, second.records_duplicate) == (1, 2, 2)
    assert lake.bronze() == [
        ("moves", 6, 12), ("new", 1, 15), ("newer-first", 2, 3), ("newer-later", 2, 2), ("position", 2, 8),
        ("stays", 5, 9), ("tie", 3, 13),
    ]  # fmt: skip
    assert lake.quarantine() == []


@pytest.mark.parametrize("policy", [IGNORE, NEWEST])
def test_an_id_is_unique_within_its_window_only(lake, rec, policy):
    lake.with_policy(on_match=policy, dedupe=DedupeWindow(scope="window", days=7))
    lake.run([rec("a", 1, day=0), rec("b", 2, day=0)])
    result = lake.run([rec("a", 3, amount=2, day=8), rec("b", 4, amount=2, day=8)], "b2")
    assert (result.records_inserted, result.records_updated, result.records_quarantined) == (2, 0, 0)
    # day 7 sees both: the nearest in the policy's order is what it is compared with
    result = lake.run([rec("a", 5, amount=3, day=7), rec("c", 6, day=7)], "b3")
    assert result.records_inserted == 1
    assert lake.bronze() == [("a", 1, 1), ("a", 2, 3), ("b", 1, 2), ("b", 2, 4), ("c", 1, 6)]


def expected(batches, policy):
    """What each id comes to: `(id -> (amount, position)), counts`."""
    stored, counts = {}, []

    def order(r):
        arrival = (r.arrived if r.arrived is not None else r.position, r.stream, r.partition, r.position)
        return (r.event_time, *arrival) if policy is NEWEST else arrival

    for batch in batches:
        count = Counter()
        by_id = {}
        for r in batch:
            by_id.setdefault(r.event_id, []).append(r)
        for event_id, records in by_id.items():
            old = stored.get(event_id)
            if policy is IGNORE:
                winner = old or min(records, key=order)
                for r in records:
                    if r is winner:
                        count["inserted"] += 1
                    else:
                        count["duplicate" if r.payload == winner.payload else "quarantined"] += 1
                stored[event_id] = winner
            else:
                winner = max(records, key=order)
                count["duplicate"] += len(records) - 1
                if old is None:
                    count["inserted"] += 1
                    stored[event_id] = winner
                elif order(winner) > order(old) and winner.payload != old.payload:
                    count["updated"] += 1
                    stored[event_id] = winner
                else:
                    count["duplicate"] += 1
        counts.append((count["inserted"], count["updated"], count["duplicate"], count["quarantined"]))
    rows = sorted((r.event_id, r.amount, r.position) for r in stored.values())
    return rows, counts


@pytest.mark.parametrize("policy", [IGNORE, NEWEST])
def test_random_batches_follow_the_oracle(lake, rec, policy):
    lake.with_policy(on_match=policy)
    dice = random.Random(20261130)
    batches, position = [], 0
    for size in (400, 400):
        batch = []
        for _ in range(size):
            position += 1
            batch.append(
                rec(
                    f"e{dice.randrange(250)}", position, amount=dice.randrange(3), minute=dice.randrange(3),
                    day=dice.choice((0, 0, 0, -3)), arrived=dice.randrange(5), partition=str(dice.randrange(3)),
                )
            )  # fmt: skip
        # what arrives is in no order
        dice.shuffle(batch)
        batches.append(batch)
    rows, counts = expected(batches, policy)
    for number, (batch, count) in enumerate(zip(batches, counts, strict=True)):
        result = lake.run(batch, f"b{number}")
        got = (
            result.records_inserted, result.records_updated, result.records_duplicate, result.records_quarantined,
        )  # fmt: skip
        assert got == count
        assert sum(got) == result.records_read == len(batch)
    assert lake.bronze() == rows
    assert len(lake.quarantine()) == sum(count[3] for count in counts)
