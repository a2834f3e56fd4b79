"""What the ledger and the quarantine tell, read from real tables."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from lazaretto.commit import Tables, quarantine_id
from lazaretto.config import PathWarehouse
from lazaretto.errors import ConfigurationError, SinkError
from lazaretto.observe import Coordinate, LedgerEntry, batch_status, groups, held_records, show, trend


def test_status_is_newest_first_with_counts(lake: Any) -> None:
    entries = batch_status(lake.spark, lake.tables)
    told = [(e.dataset, e.batch_id, e.status, e.records_read, e.records_inserted, e.records_duplicate,
             e.records_quarantined) for e in entries]  # fmt: skip
    assert told == [
        ("orders", "b3", "rejected", 2, 0, 0, 0),
        ("orders", "b2", "committed", 3, 1, 0, 2),
        ("returns", "b1", "committed", 1, 0, 0, 1),
        ("orders", "b1", "committed", 9, 2, 0, 7),
    ]
    newest = entries[0]
    assert newest.started_at == lake.noon + timedelta(days=2)
    assert newest.started_at.tzinfo is UTC
    assert newest.committed_at is None
    assert newest.error_class == "data_quality"
    assert newest.next_action
    assert entries[1].committed_at == lake.noon + timedelta(days=1, minutes=1)


def test_status_has_the_ledgers_columns(lake: Any) -> None:
    assert [f.name for f in fields(LedgerEntry)] == lake.tables.ingestion_status.read(lake.spark).columns


def test_status_of_one_dataset_and_limit(lake: Any) -> None:
    assert [e.batch_id for e in batch_status(lake.spark, lake.tables, "orders", 2)] == ["b3", "b2"]
    with pytest.raises(ConfigurationError, match="shows nothing"):
        batch_status(lake.spark, lake.tables, None, 0)


def test_groups_by_reason(lake: Any) -> None:
    found = groups(lake.spark, lake.tables)
    assert [(g.count, g.dataset, g.error_class, g.error_code, g.field) for g in found] == [
        (5, "orders", "contract_violation", "MALFORMED", None),
        (2, "orders", "contract_violation", "UNKNOWN_FIELD", "[red]x"),
        (1, "orders", "data_quality", "ORD-002", "amount"),
        (1, "orders", "duplicate", "ID_CONFLICT", "event_id"),
        (1, "returns", "data_quality", "ORD-002", "amount"),
    ]
    first = found[0]
    assert (first.first_seen, first.last_seen) == (lake.noon, lake.noon + timedelta(days=1))
    assert (first.schema_id, first.stream) == ("orders:1.0.0", "orders")
    assert first.samples == tuple(Coordinate("kafka", "orders", "0", n) for n in (11, 12, 13))
    assert first.sample_ids == tuple(quarantine_id("orders", "kafka", "orders", "0", n) for n in (11, 12, 13))


def test_groups_narrowed(lake: Any) -> None:
    def counts(**narrow: Any) -> list[tuple[str, int]]:
        return [(g.dataset, g.count) for g in groups(lake.spark, lake.tables, **narrow)]

    assert counts(code="ORD-002") == [("orders", 1), ("returns", 1)]
    assert counts(dataset="returns") == [("returns", 1)]
    assert counts(since=lake.noon + timedelta(microseconds=1)) == [("orders", 1), ("orders", 1), ("returns", 1)]
    assert counts(code="MALFORMED", since=lake.noon) == [("orders", 5)]
    assert counts(limit=1) == [("orders", 5)]
    assert counts(code="NO-SUCH") == []
    with pytest.raises(ConfigurationError, match="zone"):
        counts(since=datetime(2026, 11, 30))


def test_show_finds_by_id_coordinate_and_group(lake: Any) -> None:
    key = quarantine_id("orders", "kafka", "orders", "0", 12)
    for how in (
        {"quarantine_id": key},
        {"quarantine_id": key[:8].upper()},
        {"coordinate": "kafka/orders/0/12"},
        {"coordinate": Coordinate("kafka", "orders", "0", 12)},
    ):
        assert [(r.quarantine_id, r.source.position) for r in show(lake.spark, lake.tables, **how)] == [(key, 12)], how
    group = groups(lake.spark, lake.tables)[0]
    found = show(lake.spark, lake.tables, group_key=group.group_key, limit=4)
    assert [r.source.position for r in found] == [11, 12, 13, 14]
    assert show(lake.spark, lake.tables, coordinate="kafka/orders/1/12") == []


def test_show_hides_what_was_sent_unless_asked(lake: Any) -> None:
    [hidden] = show(lake.spark, lake.tables, coordinate="kafka/orders/0/20")
    assert (hidden.payload, hidden.key, hidden.headers) == (None, None, None)
    assert lake.marker not in repr(hidden)
    [shown] = show(lake.spark, lake.tables, coordinate="kafka/orders/0/11", payload=True)
    assert shown.payload == b'{"a": "\x1b[31m\xff'
    assert shown.key == b"key marker-4711"
    assert shown.headers == (("trace", b"header marker-4711\x1b[2J"),)


def test_show_has_every_column(lake: Any) -> None:
    [record] = show(lake.spark, lake.tables, coordinate="kafka/orders/0/11")
    assert set(vars(record)) == set(lake.tables.quarantine.read(lake.spark).columns)
    assert record.ingest_date == date(2026, 11, 30)
    assert record.ingested_at == lake.noon
    assert record.source_time == lake.noon + timedelta(seconds=11)
    assert [(v.code, v.field, v.detail) for v in record.violations] == [("MALFORMED", None, "ends too early")]
    assert record.payload_bytes == 13


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"quarantine_id": "a" * 64, "group_key": "b"},
        {"quarantine_id": "abc"},
        {"quarantine_id": "x" * 64},
        {"coordinate": "kafka/orders"},
        {"group_key": "a", "limit": 0},
    ],
)
def test_show_refuses_what_says_nothing(lake: Any, how: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as error:
        show(lake.spark, lake.tables, **how)
    assert error.value.remedy


def test_trend_and_rows_for_notebooks(lake: Any) -> None:
    assert [tuple(row) for row in trend(lake.spark, lake.tables, "orders").collect()] == [
        (date(2026, 11, 30), "contract_violation", "MALFORMED", 4),
        (date(2026, 11, 30), "contract_violation", "UNKNOWN_FIELD", 2),
        (date(2026, 11, 30), "duplicate", "ID_CONFLICT", 1),
        (date(2026, 12, 1), "contract_violation", "MALFORMED", 1),
        (date(2026, 12, 1), "data_quality", "ORD-002", 1),
    ]
    assert held_records(lake.spark, lake.tables, "returns").count() == 1


def test_an_empty_warehouse_says_so(spark: Any, warehouse: Any) -> None:
    tables = Tables(PathWarehouse(root=warehouse), warehouse)
    with pytest.raises(ConfigurationError, match="no ledger yet"):
        batch_status(spark, tables)
    with pytest.raises(ConfigurationError, match="no quarantine yet"):
        groups(spark, tables)


def test_sparks_words_are_not_passed_on(spark: Any, warehouse: Any) -> None:
    tables = Tables(PathWarehouse(root=warehouse), warehouse)
    path = str(warehouse / "ingestion_status")
    spark.createDataFrame([("marker-4711",)], "dataset STRING").write.format("delta").save(path)
    with pytest.raises(SinkError) as error:
        batch_status(spark, tables)
    assert "\n" not in str(error.value)
    assert "UNRESOLVED_COLUMN" in str(error.value)
    assert "marker-4711" not in str(error.value)


def test_years_that_python_cannot_hold(lake: Any) -> None:
    from pyspark.sql import functions as F

    from lazaretto.observe.times import aware, micros

    far = lake.spark.range(1).select(F.timestamp_micros(F.lit(1_700_000_000_000_000_000)).alias("at"))
    assert aware(far.select(micros("at")).collect()[0]["at"]) is None
