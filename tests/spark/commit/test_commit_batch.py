"""One batch from stage to ledger: what each table holds afterwards, and what a second delivery changes."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import functions as F

from lazaretto.commit import Verdict, ledger, quarantine_id, read_published
from lazaretto.commit.history import newest
from lazaretto.errors import ConfigurationError

COUNTS = (
    "records_read", "records_valid", "records_inserted", "records_updated", "records_duplicate",
    "records_quarantined", "records_filtered",
)  # fmt: skip


def counts(result):
    return tuple(getattr(result, name) for name in COUNTS)


@pytest.fixture
def mixed(rec, bad):
    """Ten records: three ids that land, and one of everything that does not."""
    return [
        rec("a", 1, warnings=("ORD-005",)),
        rec("b", 2, amount=2),
        bad(None, 3),
        bad("c", 4, "UNKNOWN_FIELD", "colour"),
        bad("d", 5, "ORD-002", "amount"),
        rec("b", 6, amount=2),  # the same again
        rec("b", 7, amount=3),  # the same id with another payload
        rec("e", 8, partition="1", day=-1),
        rec(None, 9, verdict=Verdict.FILTERED),
        rec("b", 10, amount=2, partition="1"),
    ]


def test_a_batch_and_its_redelivery(lake, rec, mixed, spark):
    result = lake.run(mixed, source_range={"topic": "orders"})
    assert counts(result) == (10, 6, 3, 0, 2, 4, 1)
    assert result.completeness == pytest.approx(6 / 9)
    assert lake.bronze() == [("a", 1, 1), ("b", 2, 2), ("e", 1, 8)]
    assert lake.quarantine() == [(3, "MALFORMED"), (4, "UNKNOWN_FIELD"), (5, "ORD-002"), (7, "ID_CONFLICT")]
    assert not lake.stage().exists()

    # the same batch again: a no-op that says so and does not look at the source
    again = lake.run(mixed)
    assert again.already_committed
    assert counts(again) == counts(result)
    assert lake.reads == 1

    # the same records as another batch (a new checkpoint over the same topic), with one new record among them
    second = lake.run([*mixed, rec("f", 11)], "b2")
    assert counts(second) == (11, 7, 1, 0, 9, 0, 1)
    assert lake.bronze() == [("a", 1, 1), ("b", 2, 2), ("e", 1, 8), ("f", 1, 11)]
    assert len(lake.quarantine()) == 4
    assert second.quarantine_version is None

    # an empty batch is a batch
    third = lake.run([], "b3")
    assert counts(third) == (0, 0, 0, 0, 0, 0, 0)
    assert third.completeness == 1.0
    assert third.bronze_version == second.bronze_version
    assert newest(spark, lake.bronze_table).version == second.bronze_version

    rows = {row["batch_id"]: row for row in ledger(spark, lake.tables).collect()}
    first = rows["b1"]
    assert len(rows) == 3
    assert (first["status"], first["kind"], first["run_id"]) == ("committed", "stream", "run-1")
    assert (first["correlation_id"], first["error_class"], first["next_action"]) == ("corr-1", None, None)
    assert (first["ruleset"], first["schema_id"]) == ("rules-1", "orders:1.0.0")
    assert tuple(first[name] for name in COUNTS) == counts(result)
    assert json.loads(first["source_range"]) == {
        "declared": {"topic": "orders"},
        "ranges": [
            {"system": "kafka", "stream": "orders", "partition": "0", "start": 1, "end": 9, "records": 8},
            {"system": "kafka", "stream": "orders", "partition": "1", "start": 8, "end": 10, "records": 2},
        ],
    }
    assert read_published(spark, lake.tables, "orders").count() == 4


def test_every_column(lake, mixed, spark):
    result = lake.run(mixed)

    landed = lake.bronze_table.read(spark).where("event_id = 'a'").collect()[0].asDict(recursive=True)
    assert list(landed)[:4] == ["event_id", "event_time", "amount", "city"]
    assert landed["_event_date"] == date(2026, 11, 30)
    assert landed["_source"] == {"system": "kafka", "stream": "orders", "partition": "0", "position": 1}
    assert landed["_payload_sha256"] == spark.range(1).select(F.sha2(F.lit(mixed[0].payload), 256)).first()[0]
    assert (landed["_schema_id"], landed["_ruleset"]) == ("orders:1.0.0", "rules-1")
    assert (landed["_warnings"], landed["_degraded"]) == (["ORD-005"], [])
    assert (landed["_batch_id"], landed["_run_id"], landed["_replay_id"]) == ("b1", "run-1", None)
    assert landed["_ingested_at"].replace(tzinfo=UTC) == datetime(2026, 11, 30, 12, tzinfo=UTC)

    held = {r["source"]["position"]: r.asDict(recursive=True) for r in lake.tables.quarantine.read(spark).collect()}
    row, conflict = held[4], held[7]
    assert row["quarantine_id"] == quarantine_id("orders", "kafka", "orders", "0", 4)
    assert (row["payload"], row["key"]) == (mixed[3].payload, b"k4")
    assert row["headers"] == [{"key": "trace", "value": b"\x00\xff"}]
    assert (row["error_class"], row["error_code"]) == ("contract_violation", "UNKNOWN_FIELD")
    assert row["group_key"] == "contract_violation|UNKNOWN_FIELD|colour|orders:1.0.0|orders"
    assert (row["retriable"], row["pii"], row["attempt_count"]) == (True, True, 1)
    assert row["ingest_date"] == date(2026, 11, 30)
    assert held[3]["retriable"] is False
    assert (held[5]["error_class"], held[5]["retriable"]) == ("data_quality", True)
    assert (conflict["error_class"], conflict["event_id"]) == ("duplicate", "b")
    assert conflict["violations"][0]["field"] == "event_id"
    assert conflict["payload"] == mixed[6].payload

    # other readers of Delta see the same, and at the same versions
    bronze = deltalake.DeltaTable(lake.bronze_table.path, version=result.bronze_version).to_pyarrow_table()
    assert sorted(bronze["event_id"].to_pylist()) == ["a", "b", "e"]
    quarantine = deltalake.DeltaTable(lake.tables.quarantine.path, version=result.quarantine_version)
    assert sorted(quarantine.to_pyarrow_table()["payload_bytes"].to_pylist()) == sorted(
        r["payload_bytes"] for r in held.values()
    )
    assert deltalake.DeltaTable(lake.tables.ingestion_status.path).to_pyarrow_table()["records_read"].to_pylist() == [
        10
    ]

    # Delta's log keeps smallest and largest values and the conditions of a MERGE: none of them is a record's
    logs = [*_log(lake.bronze_table.path), *_log(lake.tables.quarantine.path)]
    stats = [json.loads(line["add"]["stats"]) for line in logs if "add" in line]
    assert stats
    named = {name for s in stats for name in s["minValues"]}
    assert named <= {"_event_date", "_batch_id", "_ingested_at", "batch_id", "ingested_at", "source"}
    assert "Kaohsiung" not in json.dumps(logs)
    commits = [line["commitInfo"] for line in logs if "commitInfo" in line]
    [merge] = [c["operationParameters"] for c in commits if c["operation"] == "MERGE"]
    assert "2026-11-29" in merge["predicate"]


def _log(path):
    files = sorted(Path(path, "_delta_log").glob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_nothing_published_yet(lake, spark):
    with pytest.raises(ConfigurationError, match="no bronze table yet"):
        read_published(spark, lake.tables, "orders")
    with pytest.raises(ConfigurationError, match="no ledger yet"):
        ledger(spark, lake.tables)
