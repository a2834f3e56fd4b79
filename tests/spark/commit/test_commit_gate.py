"""What the gate refuses, and how a batch gets through all the same."""

from __future__ import annotations

import shutil

import pytest

from lazaretto.commit import Acceptance, GateFinding, Moment, Step
from lazaretto.config import OnFailure
from lazaretto.errors import BatchClass, BatchRejectedError, ConfigurationError


def test_rejected_then_accepted(lake, rec, bad):
    lake.with_policy(min_completeness=0.9)
    batch = [rec("a", 1), rec("b", 2), bad(None, 3)]
    with pytest.raises(BatchRejectedError) as caught:
        lake.run(batch)
    assert caught.value.exit_code == 3
    assert "completeness 0.666667 (2 of 3 records valid) is below 0.9" in str(caught.value)
    assert "--accept-batch b1 --reason" in str(caught.value)
    assert lake.bronze() == []
    assert lake.quarantine() == []
    assert not lake.stage().exists()
    assert lake.ledger("status", "error_class", "records_read", "records_inserted") == [
        ("rejected", "data_quality", 3, 0)
    ]

    # accepting another batch does not help; the next run screens anew
    with pytest.raises(BatchRejectedError):
        lake.run(batch, acceptance=Acceptance("b2", "known outage", "maya"))
    assert lake.reads == 2

    result = lake.run(batch, acceptance=Acceptance("b1", "known outage", "maya"))
    assert (result.status, result.records_inserted, result.records_quarantined) == ("committed", 2, 1)
    assert lake.audit("action", "operator", "reason") == [
        ("batch_accepted", "maya", "known outage"),
        ("batch_rejected", "tester", "completeness 0.666667 (2 of 3 records valid) is below 0.9"),
        ("batch_rejected", "tester", "completeness 0.666667 (2 of 3 records valid) is below 0.9"),
    ]
    # committed is committed: the same acceptance again does nothing
    assert lake.run(batch, acceptance=Acceptance("b1", "known outage", "maya")).already_committed
    assert len(lake.audit("action")) == 3


class Killed(BaseException):
    pass


def test_an_acceptance_counts_once(lake, rec, bad):
    lake.with_policy(on_failure=OnFailure.REJECT_BATCH)
    batch, acceptance = [rec("a", 1), bad(None, 2)], Acceptance("b1", "known outage", "maya")

    def kill(step, info):
        if (step, info["when"]) == (Step.GATE, Moment.AFTER):
            raise Killed

    with pytest.raises(Killed):
        lake.run(batch, acceptance=acceptance, on_step=kill)
    # the frozen batch was let through: its retry needs no acceptance, and may have one
    with pytest.raises(Killed):
        lake.run(batch, acceptance=acceptance, on_step=kill)
    # another evaluation of the batch is not what was looked at
    shutil.rmtree(lake.stage())
    with pytest.raises(ConfigurationError, match="an acceptance counts once"):
        lake.run(batch, acceptance=acceptance)
    assert lake.audit("action") == [("batch_accepted",)]


def test_findings(lake, rec):
    seen = []

    def check(frame):
        seen.append((frame.columns, frame.count()))
        return [
            GateFinding("ORD-100", "critical", False, "2 rows instead of 10"),
            GateFinding("ORD-101", "warning", False, "late"),
            GateFinding("ORD-102", "info", True),
        ]

    batch = [rec("a", 1), rec("b", 2)]
    result = lake.run(batch, gate=check)
    assert seen == [(["event_id", "event_time", "amount", "city"], 2)]
    assert [f.rule_id for f in result.findings if not f.passed] == ["ORD-100", "ORD-101"]
    assert lake.ledger("status", "next_action") == [
        ("committed", "batch rules failed: ORD-100, ORD-101; see the audit")
    ]
    assert lake.audit("action", "reason") == [
        ("batch_rule_failed", "critical rule ORD-100 failed: 2 rows instead of 10"),
        ("batch_rule_failed", "warning rule ORD-101 failed: late"),
    ]

    lake.with_policy(on_failure=OnFailure.REJECT_BATCH)
    with pytest.raises(BatchRejectedError, match="nothing landed: batch rule ORD-100 failed"):
        lake.run(batch, "b2", gate=check)
    with pytest.raises(BatchRejectedError, match="2 records instead of 3 announced") as caught:
        lake.run(batch, "b3", expected_records=3)
    assert caught.value.error_class is BatchClass.INCOMPLETE
