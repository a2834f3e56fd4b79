"""Killed between any two things the protocol does, run again: as if nothing had happened."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from lazaretto.commit import Moment, Step, read_published
from lazaretto.config import OnMatch
from lazaretto.errors import SinkError

ALL = [
    (step, moment)
    for step in Step
    for moment in Moment
    if moment is not Moment.WRITTEN or step not in (Step.GATE, Step.PROBE)
]
# Nothing happens between the end of a step and the beginning of the next, so one of the two is killed at. After the
# ledger row the next run finds the batch committed, so that step's end is not reached again.
KILLS = [p for p in ALL if p[1] is not Moment.BEFORE or p[0] is Step.STAGE][:-1]


class Killed(BaseException):
    """Not an Exception: like a kill, it leaves no time to write anything down."""


@dataclass
class Failpoints:
    """Kills once at each of these points, in the order they are reached."""

    points: list[tuple[Step, Moment]]
    hit: list[tuple[Step, Moment]] = field(default_factory=list)

    def __call__(self, step, info):
        here = (step, info["when"])
        if here in self.points:
            self.points.remove(here)
            self.hit.append(here)
            raise Killed(here)


def content(lake):
    """Everything the tables hold of the batch, apart from versions and failed attempts."""
    spark = lake.spark
    bronze = sorted(str(r) for r in lake.bronze_table.read(spark).collect())
    quarantine = sorted(str(r) for r in lake.tables.quarantine.read(spark).drop("run_id").collect())
    committed = lake.tables.ingestion_status.read(spark).where("status = 'committed'")
    rows = committed.drop("bronze_version", "quarantine_version").collect()
    return bronze, quarantine, sorted(str(r) for r in rows)


def test_killed_at_every_point(lake, new_lake, rec, bad):
    before = [rec("a", 1), rec("b", 2), bad(None, 3)]
    batch = [
        rec("a", 4),  # duplicate of a stored one
        rec("b", 5, amount=9),  # conflict with a stored one
        rec("c", 6),
        rec("c", 7, amount=9),  # conflict within the batch
        rec("d", 8),
        bad(None, 9),
        bad(None, 3),  # held already
    ]
    smooth = new_lake()
    smooth.run(before, "b0")
    told = []
    smooth.run(batch, on_step=lambda step, info: told.append((step, info["when"])))
    assert told == ALL

    lake.run(before, "b0")
    lake.reads = 0
    failpoints = Failpoints(list(KILLS))
    started, midnight = before[0].event_time, before[0].event_time + timedelta(hours=13)
    runs = 0
    while failpoints.points:
        runs += 1
        # once the batch is frozen, retries come after midnight and with other rules
        frozen = runs > 3
        started_at, ruleset = (midnight, "rules-2") if frozen else (started, "rules-1")
        with pytest.raises(Killed):
            lake.run(batch, on_step=failpoints, started_at=started_at, ruleset=ruleset)
        if failpoints.hit[-1] == (Step.BRONZE, Moment.WRITTEN):
            # half-done: the rows are in bronze, a reader of what is published does not see them
            assert len(lake.bronze()) == 4
            assert read_published(lake.spark, lake.tables, "orders").count() == 2
    assert failpoints.hit == KILLS
    assert lake.run(batch).already_committed
    # before it was frozen it was read anew, afterwards never again
    assert lake.reads == 2
    assert not lake.stage().exists()
    assert content(lake) == content(smooth)


def test_killed_around_the_merge_of_updates(lake, new_lake, rec):
    before = [rec("a", 1), rec("b", 2, minute=5)]
    batch = [rec("a", 3, amount=2, minute=1), rec("b", 4, amount=2, minute=1), rec("c", 5), rec("c", 6, minute=2)]
    for one in (lake, smooth := new_lake()):
        one.with_policy(on_match=OnMatch.UPDATE_IF_NEWER).run(before, "b0")
    result = smooth.run(batch)
    assert (result.records_inserted, result.records_updated, result.records_duplicate) == (1, 1, 2)

    points = [(Step.PROBE, Moment.AFTER), (Step.BRONZE, Moment.WRITTEN), (Step.BRONZE, Moment.AFTER)]
    failpoints = Failpoints(points)
    while failpoints.points:
        with pytest.raises(Killed):
            lake.run(batch, on_step=failpoints)
    assert lake.run(batch).status == "committed"
    assert content(lake) == content(smooth)


def test_a_lost_stage_after_the_merge(lake, rec, bad):
    """Rows that bronze has from this very batch are its own, not duplicates."""
    batch = [rec("a", 1), rec("a", 2), rec("b", 3), bad(None, 4)]
    with pytest.raises(Killed):
        lake.run(batch, on_step=Failpoints([(Step.BRONZE, Moment.AFTER)]))
    shutil.rmtree(lake.stage())
    result = lake.run(batch)
    assert (result.records_inserted, result.records_duplicate, result.records_quarantined) == (2, 1, 1)
    assert lake.bronze() == [("a", 1, 1), ("b", 1, 3)]
    assert len(lake.quarantine()) == 1


def test_a_damaged_stage(lake, rec):
    with pytest.raises(Killed):
        lake.run([rec("a", 1)], on_step=Failpoints([(Step.STAGE, Moment.AFTER)]))
    file = next((lake.stage() / "data").glob("*/*.parquet"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SinkError, match="the stage is damaged: 1 of ") as caught:
        lake.run([rec("a", 1)])
    assert "delete this folder" in caught.value.remedy
    assert lake.ledger("status", "error_class") == [("failed", "sink_failure")]


def test_a_failure_is_written_down(lake, rec):
    def fail(step, info):
        if step is Step.PROBE:
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        lake.run([rec("a", 1)], on_step=fail)
    assert lake.ledger("status", "records_read", "records_inserted", "next_action") == [
        ("failed", 1, None, "unexpected RuntimeError: run again, and report it if it stays")
    ]
