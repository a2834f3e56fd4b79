"""A record that makes its batch fail is held, and the rest lands; anything else that fails holds nobody."""

from __future__ import annotations

import resource
import secrets

import pytest
from pyspark.sql import functions as F

from lazaretto.commit import isolate
from lazaretto.errors import ProcessingError, SinkError


@pytest.fixture
def sea(lake, monkeypatch):
    """The lake, whose source gives `value`, as sources do; and no pauses."""
    monkeypatch.setattr(isolate, "_PAUSE_S", 0)
    frame = lake.frame
    lake.frame = lambda records: frame(records).withColumn("value", F.col("payload"))
    return lake


def failing_on(*positions, after=0):
    """A screening that fails on these records; from the `after`th evaluation on it does not."""
    calls = []

    def screen(frame):
        calls.append(1)
        frame = frame.drop("value")
        if after and len(calls) > after:
            return frame
        poison = F.col("source.position").isin(list(positions))
        broken = F.raise_error(F.concat(F.lit("secret-"), F.col("event_id"))).cast("bigint")
        return frame.withColumn("payload_bytes", F.when(poison, broken).otherwise(F.col("payload_bytes")))

    return screen


def test_the_culprits_are_held_and_the_rest_lands(sea, rec, bad):
    records = [rec(f"e{n}", n, partition=str(n // 3)) for n in range(5)] + [bad(None, 5, partition="1")]
    result = sea.run(records, screen=failing_on(2, 3))
    assert (result.records_read, result.records_inserted, result.records_quarantined, result.isolated) == (6, 3, 3, 2)
    assert [row[2] for row in sea.bronze()] == [0, 1, 4]
    assert sea.quarantine() == [(2, "PROCESSING_ERROR"), (3, "PROCESSING_ERROR"), (5, "MALFORMED")]
    held = sea.tables.quarantine.read(sea.spark).where("error_code = 'PROCESSING_ERROR'").orderBy("source.position")
    row = held.select(
        "payload", "payload_sha256", "payload_bytes", "key", "headers", "error_class", "violations"
    ).first()
    assert bytes(row["payload"]) == records[2].payload
    assert (row["payload_sha256"], row["payload_bytes"]) == (records[2].row()[5], len(records[2].payload))
    assert (bytes(row["key"]), row["headers"][0]["key"], row["error_class"]) == (b"k2", "trace", "processing")
    assert "USER_RAISED_EXCEPTION" in row["violations"][0]["detail"]
    assert "secret" not in str(row["violations"]) + str(sea.ledger("next_action")) + str(sea.audit("reason", "details"))
    assert sea.audit("action", "reason") == [
        ("records_isolated", "2 records made the batch fail; they are held as PROCESSING_ERROR")
    ]
    assert sea.ledger("status") == [("committed",)]


def test_a_failure_that_passes_holds_nobody(sea, rec):
    result = sea.run([rec("a", 1), rec("b", 2)], screen=failing_on(1, after=2))
    assert (result.records_inserted, result.isolated) == (2, 0)
    assert sea.quarantine() == []


def test_when_too_many_fail_it_is_not_the_records(sea, rec, monkeypatch):
    monkeypatch.setattr(isolate, "MOST_RECORDS", 1)
    records = [rec(f"e{n}", n) for n in range(4)]
    with pytest.raises(ProcessingError) as caught:
        sea.run(records, screen=failing_on(*range(4)))
    assert caught.value.exit_code == 1
    assert "secret" not in str(caught.value)
    assert sea.ledger("status", "error_class", "records_read") == [("failed", "transient", None)]
    assert (sea.bronze(), sea.quarantine()) == ([], [])
    assert sea.run(records, screen=failing_on()).records_inserted == 4, "and runs when that is mended"


def test_a_full_disk_holds_nobody(sea, rec):
    """The limit on the size of a file stands for the disk's: Java sees an IOException either way."""
    from pyspark import SparkContext

    records = [rec(secrets.token_hex(400_000), 1), rec("b", 2)]
    java = SparkContext._active_spark_context._gateway.proc.pid
    before = resource.prlimit(java, resource.RLIMIT_FSIZE)
    resource.prlimit(java, resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(SinkError, match="the rows could not be staged") as caught:
            sea.run(records, screen=failing_on())
    finally:
        resource.prlimit(java, resource.RLIMIT_FSIZE, before)
    assert not isinstance(caught.value, ProcessingError)
    assert sea.quarantine() == []
    assert sea.ledger("status", "error_class") == [("failed", "sink_failure")]
    assert sea.run(records, screen=failing_on()).records_inserted == 2
