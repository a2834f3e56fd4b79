"""What the commit decides without Spark: names, counts, the gate, and which error is whose fault."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lazaretto.commit import Acceptance, Batch, BatchKind, GateFinding, Policy, Tables, quarantine_id
from lazaretto.commit.durable import read_json, write_json
from lazaretto.commit.frozen import Manifest
from lazaretto.commit.gate import Passage, Refusal, load, refusals, save
from lazaretto.commit.ledger_table import Counts
from lazaretto.commit.screened import columns_of, screened_ddl
from lazaretto.commit.spark_edge import causes, edge, is_conflict, is_source_fault, named, session_is_gone
from lazaretto.commit.tables import folder_name
from lazaretto.config import CatalogWarehouse, OnFailure, PathWarehouse
from lazaretto.contracts import Contract, Field, Kind, UnknownFields
from lazaretto.errors import AccountingError, BatchClass, ConfigurationError, SinkError

CONTRACT = Contract(
    "orders",
    "1",
    (
        Field("event_id", "event_id", Kind.STRING),
        Field("event_time", "event_time", Kind.TIMESTAMP),
        Field("meta", "meta", Kind.STRUCT, children=(Field("id", "meta.id", Kind.BIGINT),)),
        Field("tags", "tags", Kind.ARRAY, item=Field("tag", "tags[]", Kind.STRING)),
    ),
)
MANIFEST = Manifest(
    stage_id="s", dataset="orders", batch_id="b", run_id="r", started_at="2026-11-30T12:00:00+00:00",
    schema_id="orders:1", ruleset="x", columns=CONTRACT.ddl, records_read=10, records_valid=8, records_invalid=2,
    records_filtered=0, first_day=1, last_day=1, ranges=(), declared=None, files={},
)  # fmt: skip


@pytest.mark.parametrize("batch_id", ["orders-2026-11-30-001", "9f1c-17", "a_b.c"])
def test_a_plain_batch_id_is_its_folder(batch_id):
    assert folder_name(batch_id) == batch_id


@pytest.mark.parametrize("batch_id", ["../../etc", "a/b", "a:b", ".hidden", "_hidden", "a__b", "a..b", "*", "x" * 200])
def test_any_other_batch_id_gets_a_safe_folder_of_its_own(batch_id):
    name = folder_name(batch_id)
    assert name not in (batch_id, folder_name(batch_id + "x"))
    assert not set(name) & set("/:*?[]{} .")
    assert name[0] not in "._"
    assert len(name) < 100


def test_where_everything_lies(tmp_path):
    by_path = Tables(PathWarehouse(root=tmp_path), tmp_path)
    assert by_path.bronze("orders").path == str(tmp_path / "bronze" / "orders")
    assert by_path.ingestion_status.identifier == f"delta.`{tmp_path}/ingestion_status`"
    assert by_path.staging_dir("orders", "b1") == tmp_path / "staging" / "orders" / "b1"
    by_name = Tables(CatalogWarehouse(catalog="main", schema="lake", files=tmp_path), tmp_path)
    assert by_name.bronze("orders").identifier == "`main`.`lake`.`bronze_orders`"


def test_quarantine_ids_cannot_be_confused():
    coordinate = ("orders", "kafka", "orders", "0", 12)
    assert quarantine_id(*coordinate) == hashlib.sha256(b"6:orders5:kafka6:orders1:02:12").hexdigest()
    others = [
        ("orders", "kafka", "orders", "01", 2), ("orders", "kafka", "orders0", "", 12),
        ("orders", "kafka", "orders", None, 12), ("orders", "kafka", "orders", "~", 12),
    ]  # fmt: skip
    assert len({quarantine_id(*c) for c in [coordinate, *others]}) == 5


def test_the_screened_schema_follows_the_contract():
    assert "record STRUCT<`event_id`: STRING, `event_time`: TIMESTAMP," in screened_ddl(CONTRACT)
    keeping = replace(CONTRACT, unknown=UnknownFields.KEEP)
    assert columns_of(keeping) == ("event_id", "event_time", "meta", "tags", "_unknown")
    assert "`_unknown`: VARIANT>" in screened_ddl(keeping)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"event_id": "nothing"}, "event_id is 'nothing'"),
        ({"event_id": "meta"}, "no single-valued field"),
        ({"event_id": "tags[]"}, "event_id is 'tags"),
        ({"event_time": "event_id"}, "event_time is 'event_id'"),
    ],
)
def test_the_policys_fields_must_be_in_the_contract(changes, told):
    with pytest.raises(ConfigurationError, match=told):
        Policy(**changes).check(CONTRACT)


def test_a_nested_id_is_quoted_part_by_part():
    policy = Policy(event_id="meta.id")
    policy.check(CONTRACT)
    assert policy.id_column == "`meta`.`id`"


def test_values_that_cannot_be():
    now = datetime(2026, 11, 30, tzinfo=UTC)
    with pytest.raises(ValueError, match="needs an id"):
        Batch("orders", " ", BatchKind.STREAM, "r", "c", now)
    with pytest.raises(ValueError, match="time zone"):
        Batch("orders", "b", BatchKind.STREAM, "r", "c", now.replace(tzinfo=None))
    with pytest.raises(ConfigurationError, match="needs a reason"):
        Acceptance("b", " ", "maya")


@pytest.mark.parametrize(
    ("policy", "findings", "expected", "classes"),
    [
        (Policy(), (), None, []),
        (Policy(), (GateFinding("R", "critical", False),), 10, []),
        (Policy(), (), 11, [BatchClass.INCOMPLETE]),
        (Policy(min_completeness=0.8), (), None, []),
        (Policy(min_completeness=0.81), (), None, [BatchClass.DATA_QUALITY]),
        (Policy(on_failure=OnFailure.REJECT_BATCH), (GateFinding("R", "warning", False),), None,
         [BatchClass.DATA_QUALITY]),
        (Policy(on_failure=OnFailure.REJECT_BATCH), (GateFinding("R", "critical", False),), 9,
         [BatchClass.INCOMPLETE, BatchClass.DATA_QUALITY, BatchClass.DATA_QUALITY]),
    ],
)  # fmt: skip
def test_what_the_gate_refuses(policy, findings, expected, classes):
    assert [r.error_class for r in refusals(MANIFEST, policy, findings, expected)] == classes


def test_an_empty_batch_is_complete():
    empty = replace(MANIFEST, records_read=0, records_valid=0, records_invalid=0)
    assert empty.completeness == 1.0
    assert refusals(empty, Policy(min_completeness=1.0), (), None) == ()


def test_the_gates_outcome_survives(tmp_path):
    passage = Passage(
        (GateFinding("R", "critical", False, "3 rows"),),
        (Refusal(BatchClass.INCOMPLETE, "2 instead of 3"),),
        Acceptance("b", "known", "maya"),
    )
    assert load(tmp_path) is None
    save(tmp_path, passage, "here")
    assert load(tmp_path) == passage
    (tmp_path / "gate.json").write_text("{}")
    with pytest.raises(SinkError, match="damaged"):
        load(tmp_path)


def test_json_files_are_whole_or_not_there(tmp_path):
    file = tmp_path / "manifest.json"
    assert read_json(file) is None
    write_json(file, {"größe": 1})
    assert read_json(file) == {"größe": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["manifest.json"]
    file.write_text('{"a": ')
    with pytest.raises(SinkError, match=r"manifest\.json cannot be read"):
        read_json(file)


def test_records_must_add_up():
    Counts(10, 8, 5, 1, 1, 2, 1).check("here")
    with pytest.raises(AccountingError, match="11 records read, but accounted for: 5 inserted"):
        Counts(11, 8, 5, 1, 1, 2, 1).check("here")
    with pytest.raises(AccountingError):
        Counts(10, 8, 10).check("here")


class FakeThrowable:
    """As much of a Java exception as the edge looks at."""

    def __init__(self, name, condition=None, cause=None):
        self._name, self._condition, self._cause = name, condition, cause

    def getClass(self):  # noqa: N802
        return self

    def getName(self):  # noqa: N802
        return self._name

    def getCondition(self):  # noqa: N802
        if self._condition is None:
            raise AttributeError("not a Spark throwable")
        return self._condition

    def getCause(self):  # noqa: N802
        return self._cause


class SparkSaidError(Exception):
    def __init__(self, throwable):
        super().__init__("a text with a value of a record")
        self.java_exception = throwable


def test_whose_fault_an_error_is():
    kafka = SparkSaidError(
        FakeThrowable("java.util.concurrent.ExecutionException", None,
                      FakeThrowable("org.apache.kafka.common.errors.TimeoutException"))
    )  # fmt: skip
    assert is_source_fault(kafka)
    assert named(kafka) == "TimeoutException"
    gone = SparkSaidError(FakeThrowable("org.apache.spark.SparkException", "FAILED_READ_FILE.FILE_NOT_EXIST"))
    assert is_source_fault(gone)
    full = SparkSaidError(FakeThrowable("org.apache.spark.SparkException", None, FakeThrowable("java.io.IOException")))
    assert not is_source_fault(full)
    assert not is_conflict(full)
    lost = SparkSaidError(FakeThrowable("io.delta.exceptions.ConcurrentAppendException"))
    assert is_conflict(lost)
    assert causes(lost)[0].class_name.endswith("ConcurrentAppendException")


def test_a_full_disk_is_the_sinks_fault(tmp_path):
    with (
        pytest.raises(SinkError, match=r"the stage could not be written \(No such file or directory\)"),
        edge("the stage could not be written", "here"),
    ):
        Path(tmp_path, "nowhere", "file").write_text("")


def test_a_reader_of_our_output_that_has_left_is_not_taken_for_java() -> None:
    gone = BrokenPipeError(32, "Broken pipe")
    assert not session_is_gone(gone)
    with pytest.raises(SinkError, match=r"^here: it failed \(Broken pipe\)"), edge("it failed", "here"):
        raise gone
