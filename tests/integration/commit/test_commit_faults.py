"""What the source, screening, the tables and other writers can do to a batch."""

from __future__ import annotations

import pytest
import stamina
from pyspark.sql import functions as F

from lazaretto.commit import bronze
from lazaretto.contracts import Contract, Field, Kind
from lazaretto.errors import AccountingError, CommitConflictError, ConfigurationError, SourceError


def test_the_source_fails(lake, rec, tmp_path, spark):
    gone = tmp_path / "gone"
    lake.frame([rec("a", 1)]).write.parquet(str(gone))
    frame = spark.read.parquet(str(gone))
    for file in gone.glob("*.parquet"):
        file.unlink()
    lake.frame = lambda records: frame
    with pytest.raises(SourceError, match=r"could not be read \(FAILED_READ_FILE") as caught:
        lake.run([])
    assert caught.value.exit_code == 4
    assert "parquet" not in str(caught.value)
    assert lake.ledger("status", "error_class", "records_read") == [("failed", "upstream_unavailable", None)]


@pytest.mark.parametrize(
    ("screen", "told"),
    [
        (lambda f: f.limit(1), "2 records were read, 1 rows were staged"),
        (lambda f: f.withColumn("event_id", F.lit(" ")), "2 valid without an event id"),
        (lambda f: f.withColumn("verdict", F.lit("invalid")), "2 invalid without a violation"),
        (lambda f: f.withColumn("verdict", F.lit("perhaps")), "2 without a verdict"),
    ],
)
def test_screening_breaks_its_promise(lake, rec, screen, told):
    with pytest.raises(AccountingError, match=told):
        lake.run([rec("a", 1), rec("b", 2)], screen=screen)
    assert lake.bronze() == []


def test_a_source_that_repeats_a_coordinate(lake, bad):
    with pytest.raises(AccountingError, match="2 records to hold, but 2 rows with 1 coordinates"):
        lake.run([bad(None, 1), bad(None, 1)])
    assert lake.quarantine() == []


def test_a_table_that_is_not_the_contracts(lake, rec):
    lake.run([rec("a", 1)])
    lake.contract = Contract(
        "orders",
        "2.0.0",
        (*lake.contract.fields[:2], Field("amount", "amount", Kind.BIGINT), Field("x", "x", Kind.DATE)),
    )
    with pytest.raises(ConfigurationError) as caught:
        lake.run([], "b2")
    text = str(caught.value)
    assert "column x date is missing" in text
    assert "column city is too much" in text
    assert "column amount is int instead of bigint" in text


def test_a_lost_race_is_tried_again(lake, rec, monkeypatch):
    """Another writer lands an id between probe and MERGE: the batch probes again and calls its own a duplicate."""
    lake.run([], "b0")
    real, tries = bronze.merge, []

    def merge(*args):
        tries.append(1)
        if len(tries) == 1:
            raise CommitConflictError("lost")
        if len(tries) == 2:
            monkeypatch.setattr(bronze, "merge", real)
            lake.run([rec("a", 100)], "other")
            monkeypatch.setattr(bronze, "merge", merge)
        real(*args)

    monkeypatch.setattr(bronze, "merge", merge)
    result = lake.run([rec("a", 1), rec("b", 2)])
    assert (result.records_inserted, result.records_duplicate) == (1, 1)
    assert lake.bronze() == [("a", 1, 100), ("b", 1, 2)]
    assert len(tries) == 2


def test_a_race_lost_for_ever(lake, rec, monkeypatch):
    def merge(*args):
        raise CommitConflictError("lost")

    monkeypatch.setattr(bronze, "merge", merge)
    with stamina.set_testing(True, attempts=2), pytest.raises(CommitConflictError):
        lake.run([rec("a", 1)])
    assert lake.ledger("status", "error_class") == [("failed", "sink_failure")]
