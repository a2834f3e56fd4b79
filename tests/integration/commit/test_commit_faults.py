"""What the source, screening, the tables and other writers can do to a batch."""

from __future__ import annotations

import pytest
import stamina
from pyspark.sql import functions as F

from lazaretto.commit import Moment, Step, TableRef, bronze
from lazaretto.commit.history import newest
from lazaretto.contracts import Contract, Field, Kind
from lazaretto.errors import AccountingError, CommitConflictError, ConfigurationError, SinkError, SourceError
from lazaretto.observe.maintenance import optimize


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


@pytest.mark.parametrize(("table", "ends"), [("quarantine", "failed"), ("bronze", "failed"), ("ledger", "committed")])
def test_a_commit_whose_answer_is_lost(lake, rec, bad, monkeypatch, table, ends):
    """The commit is there, and nobody was told: the next attempt recognises it as its own."""
    lake.run([rec("a", 1)], "b0")
    records = [rec("b", 2), bad(None, 3), rec("a", 4)]
    append, merge = TableRef.append, bronze.merge
    lost = []

    def and_lose_the_answer(wanted):
        if wanted == table and not lost:
            lost.append(wanted)
            raise SinkError("the connection was closed")

    def lossy_append(self, rows, **more):
        append(self, rows, **more)
        and_lose_the_answer({"ingestion_status": "ledger"}.get(self.title, self.title))

    def lossy_merge(*args):
        merge(*args)
        and_lose_the_answer("bronze")

    monkeypatch.setattr(TableRef, "append", lossy_append)
    monkeypatch.setattr(bronze, "merge", lossy_merge)
    with pytest.raises(SinkError, match="the connection was closed"):
        lake.run(records)
    versions = {t: newest(lake.spark, t).version for t in (lake.bronze_table, lake.tables.quarantine)}
    assert ("b1", ends) in lake.ledger("batch_id", "status")
    result = lake.run(records)
    assert (result.records_inserted, result.records_quarantined, result.records_duplicate) == (1, 1, 1)
    assert result.already_committed == (table == "ledger")
    assert [row[0] for row in lake.bronze()] == ["a", "b"]
    assert lake.quarantine() == [(3, "MALFORMED")]
    again = {t: newest(lake.spark, t).version for t in versions}
    assert again[lake.tables.quarantine] == versions[lake.tables.quarantine], "held once"
    assert (again[lake.bronze_table] == versions[lake.bronze_table]) == (table != "quarantine"), "landed once"
    assert lake.ledger("batch_id", "status").count(("b1", "committed")) == 1


def test_compaction_in_the_middle_of_a_batch(lake, rec, bad):
    for n in range(2):
        lake.run([rec(f"e{n}", n), bad(None, 10 + n)], f"b{n}")

    def compact(step, info):
        if (step, info["when"]) in ((Step.QUARANTINE, Moment.BEFORE), (Step.BRONZE, Moment.BEFORE)):
            assert any(table.changed for table in optimize(lake.spark, lake.tables)) or step is Step.BRONZE

    result = lake.run([rec("e0", 20), rec("e2", 2), bad(None, 22)], "b2", on_step=compact)
    assert (result.records_inserted, result.records_duplicate, result.records_quarantined) == (1, 1, 1)
    assert [row[0] for row in lake.bronze()] == ["e0", "e1", "e2"]
    assert [row[0] for row in lake.quarantine()] == [10, 11, 22]
