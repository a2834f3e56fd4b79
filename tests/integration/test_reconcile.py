"""`lazaretto reconcile` over real lakes: a sound one has no difference, and each planted fault is named where it is."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from lazaretto.cli import main as cli
from lazaretto.config import load_settings
from lazaretto.errors import ConfigurationError
from lazaretto.jobs.batch import run_manifest
from lazaretto.jobs.broker import LocalBroker
from lazaretto.jobs.reconcile import reconcile
from lazaretto.jobs.restart import Restart
from lazaretto.jobs.stream import run_stream
from lazaretto.observe import Difference, Reconciliation, Standing

from .lake import Lake, deliver, new_run
from .test_jobs import NOW, kafka_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "secret-4711"
CONTRACT = """\
apiVersion: v3.1.0
kind: DataContract
id: orders
name: orders
version: 1.0.0
status: active
schema:
  - name: orders
    properties:
      - {name: event_id, logicalType: string, required: true}
      - {name: event_time, logicalType: timestamp, required: true}
      - {name: amount, logicalType: integer}
"""


@dataclass(frozen=True)
class World:
    """A sound lake: a topic with two partitions and an aborted transaction, in three batches, and a manifest."""

    lake: Lake
    topic: Any
    manifest: Path
    between: datetime
    """A moment between the batches of the first run of the stream and all later ones."""


def small_lake(folder: Path, source: str, **settings: str) -> Lake:
    """A lake whose contract has three fields and whose dataset has no rules: screening is not what is tried here."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "orders.yaml").write_text(CONTRACT, encoding="utf-8")
    dataset = {"contract": "orders.yaml", "source": json.loads(source), **settings}
    conf = folder / "lazaretto.yml"
    conf.write_text(json.dumps({"warehouse": "./lake", "datasets": {"orders": dataset}}), encoding="utf-8")
    return Lake(conf, folder / "lake")


def order(event_id: str, amount: int = 1, day: int = 20) -> bytes:
    event = {"event_id": event_id, "event_time": f"2026-11-{day}T10:00:00Z", "amount": amount}
    return json.dumps(event, separators=(",", ":")).encode()


def stream(spark: SparkSession, lake: Lake, **options: Any) -> None:
    run_stream(spark, lake.open(), new_run(), trigger=NOW, **options)


def produce_in_transaction(topic: Any, values: list[bytes], *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": topic.bootstrap_servers, "transactional.id": f"tx-{topic.name}-{commit}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic.name, value=value, partition=1)
    producer.flush(30)
    (producer.commit_transaction if commit else producer.abort_transaction)(30)


def ask(spark: SparkSession, lake: Lake, **options: Any) -> Reconciliation:
    return reconcile(spark, load_settings(lake.conf), "orders", **options)


def kinds(result: Reconciliation) -> set[str]:
    return {difference.kind.value for difference in result.differences}


def one(result: Reconciliation, kind: str) -> Difference:
    [found] = [difference for difference in result.differences if difference.kind == kind]
    return found


@pytest.fixture(scope="module")
def world(spark: SparkSession, make_topic: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("reconcile")
    topic = make_topic(partitions=2)
    lake = small_lake(folder / "home", kafka_source(topic))
    # 0 to 9 on partition 0; on partition 1: three, two that were aborted, a marker, two, a marker
    sent = [order(f"a-{n}") for n in range(6)]
    topic.produce([*sent, sent[0], b'{"x": "%s' % SECRET.encode(), order("a-1", amount=3), None], partition=0)
    topic.produce([order("b-0"), order("b-1"), b"[]"], partition=1)
    produce_in_transaction(topic, [order("no-1"), order("no-2")], commit=False)
    produce_in_transaction(topic, [order("b-2"), order("b-3")], commit=True)
    stream(spark, lake)
    between = datetime.now(UTC)
    time.sleep(0.01)
    topic.produce([order("a-6"), order("b-3"), b"oops"], partition=0)
    stream(spark, lake)
    topic.produce([order("a-7"), order("a-8")], partition=0)
    stream(spark, lake)
    manifest = deliver(folder / "sent", "m-1", {"p.jsonl": [order("m-0"), b"oops"], "q.jsonl": [sent[0], b"{}"]})
    run_manifest(spark, lake.open(), manifest, new_run())
    return World(lake, topic, manifest, between)


@pytest.fixture
def lake(world: World, tmp_path: Path) -> Lake:
    """A copy of the sound lake, to plant a fault in."""
    shutil.copytree(world.lake.conf.parent, tmp_path / "copy")
    return Lake(tmp_path / "copy" / world.lake.conf.name, tmp_path / "copy" / "lake")


def at(topic: Any, partition: int, position: int, column: str = "_source") -> str:
    return (
        f"{column}['stream'] = '{topic.name}' and {column}['partition'] = '{partition}' "
        f"and {column}['position'] = {position}"
    )


def delete(lake: Lake, table: str, which: str) -> None:
    done = DeltaTable(str(lake.root / table)).delete(which)
    assert done["num_deleted_rows"] == 1


def update(lake: Lake, table: str, which: str, **values: str) -> None:
    done = DeltaTable(str(lake.root / table)).update(updates=values, predicate=which)
    assert done["num_updated_rows"] == 1


def test_a_sound_lake_has_no_difference(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--conf", str(world.lake.conf), "--json", "reconcile", "orders"]) == 0
    out, err = capsys.readouterr()
    [line] = out.splitlines()
    document = json.loads(line)
    assert (document["dataset"], document["ok"], document["differences"]) == ("orders", True, [])
    assert document["batches"] == len(world.lake.ledger)
    by_place = {(r["stream"], r["partition"]): r for r in document["ranges"]}
    assert {key: (r["source"], r["ledger"], r["bronze"], r["quarantine"], r["duplicate"]) for key, r in by_place.items()
            } == {
        (world.topic.name, "0"): (15, 15, 9, 4, 2),
        (world.topic.name, "1"): (5, 5, 4, 1, 0),
        ("m-1", "p.jsonl"): (None, 2, 1, 1, None),
        ("m-1", "q.jsonl"): (None, 2, 0, 1, None),
    }  # fmt: skip
    assert by_place["m-1", "p.jsonl"]["standing"] == "not compared"
    assert document["hashes_compared"] == 18
    assert SECRET not in out + err


def test_people_get_a_table(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert cli.run(["--conf", str(world.lake.conf), "reconcile", "orders", "--sample", "3"]) == 0
    out, err = capsys.readouterr()
    assert f"{len(world.lake.ledger)} committed batches, 3 records compared by hash" in out
    row = next(line for line in out.splitlines() if f"kafka/{world.topic.name}/0" in line)
    assert [cell.strip() for cell in row.split("│")[2:8]] == ["15", "15", "9", "4", "2", "0"]
    assert "2 not compared" in out
    assert out.endswith("no difference\n")
    assert "reading the ledger" in err


def at_of(result: Reconciliation) -> dict[str, set[tuple[str | None, int]]]:
    """Partition and position of each difference that names any, by kind."""
    told: dict[str, set[tuple[str | None, int]]] = {}
    for each in result.differences:
        for position in each.positions:
            told.setdefault(each.kind.value, set()).add((each.place and each.place.partition, position))
    return told


def batch_of(world: World, event_id: str) -> str:
    [batch] = [row["_batch_id"] for row in world.lake.bronze if row["event_id"] == event_id]
    return str(batch)


def test_rows_that_are_gone_are_named(world: World, lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    delete(lake, "bronze/orders", at(world.topic, 0, 4))
    delete(lake, "quarantine", at(world.topic, 0, 12, "source"))
    assert cli.run(["--conf", str(lake.conf), "--json", "reconcile", "orders"]) == 6
    out, err = capsys.readouterr()
    document = json.loads(out.splitlines()[-1])
    assert (document["exit_code"], document["ok"], document["error"]["type"]) == (6, False, "FinishedWithFailuresError")
    told = {(d["kind"], d["batch_id"], d["partition"], tuple(d["positions"])) for d in document["differences"]}
    first, second = batch_of(world, "a-4"), batch_of(world, "a-6")
    assert told == {
        ("bronze_count", first, None, ()), ("lost", first, "0", (4,)),
        ("quarantine_count", second, "0", ()), ("lost", second, "0", (12,)),
    }  # fmt: skip
    assert {r["partition"]: r["difference"] for r in document["ranges"] if r["system"] == "kafka"} == {"0": 3, "1": 0}
    [line] = [line for line in err.splitlines() if "error 6" in line]
    assert "4 differences (1 bronze_count, 2 lost, 1 quarantine_count) batch " in line
    assert f"kafka/{world.topic.name}/0" in line
    assert SECRET not in out + err


def test_hashes_and_copies_are_named(spark: SparkSession, world: World, lake: Lake) -> None:
    from pyspark.sql import functions as F

    update(lake, "bronze/orders", at(world.topic, 0, 2), _payload_sha256=f"'{'0' * 64}'")
    update(lake, "quarantine", at(world.topic, 0, 7, "source"), payload="payload_sha256")
    update(lake, "quarantine", at(world.topic, 1, 2, "source"), payload_sha256="NULL")
    bronze = spark.read.format("delta").load(str(lake.root / "bronze/orders"))
    row = bronze.where((F.col("_source.partition") == "0") & (F.col("_source.position") == 13))
    row.write.format("delta").mode("append").save(str(lake.root / "bronze/orders"))
    held = spark.read.format("delta").load(str(lake.root / "quarantine")).where("source.position = 12")
    moved = held.withColumn("source", F.col("source").withField("position", F.lit(10).cast("bigint")))
    moved.write.format("delta").mode("append").save(str(lake.root / "quarantine"))
    result = ask(spark, lake, sample=0)
    assert kinds(result) == {"changed", "bronze_count", "doubled", "quarantine_count", "both"}
    # what was put beside the record at 10 has the hash of another one, too
    assert at_of(result) == {
        "changed": {("0", 2), ("0", 7), ("1", 2), ("0", 10)}, "doubled": {("0", 13)}, "both": {("0", 10)},
    }  # fmt: skip
    assert one(result, "bronze_count").batch_id == batch_of(world, "a-7")
    assert one(result, "quarantine_count").batch_id == batch_of(world, "a-6")


def test_a_ledger_that_says_something_else(spark: SparkSession, world: World, lake: Lake) -> None:
    second, third = batch_of(world, "a-6"), batch_of(world, "a-8")
    update(lake, "ingestion_status", "batch_id = 'm-1'", records_quarantined="records_quarantined + 1")
    # nor do numbers that agree with each other get through
    update(lake, "ingestion_status", f"batch_id = '{third}'", records_read="3", records_duplicate="1",
           source_range="replace(source_range, '\"records\": 2', '\"records\": 3')")  # fmt: skip
    # and its records are covered by no other batch
    update(lake, "ingestion_status", f"batch_id = '{second}'", status="'failed'", committed_at="NULL")
    result = ask(spark, lake)
    assert {(d.kind.value, d.batch_id) for d in result.differences} == {
        ("ledger_sum", "m-1"), ("quarantine_count", "m-1"), ("source_count", third), ("overstated", third),
        ("uncovered", None),
    }  # fmt: skip
    assert (one(result, "source_count").expected, one(result, "source_count").found) == (3, 2)
    assert at_of(result) == {"uncovered": {("0", 10), ("0", 11), ("0", 12)}}
    assert one(result, "uncovered").records == 3


def test_only_the_batches_of_a_time(
    spark: SparkSession, world: World, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    # a fault in the first batch, and none in the later ones
    delete(lake, "bronze/orders", at(world.topic, 0, 4))
    later = ask(spark, lake, since=world.between)
    assert (later.ok, later.batches) == (True, 3)
    places = {each.place.partition: each for each in later.places}
    assert (places["0"].start, places["0"].source, places["0"].duplicate) == (10, 5, 1)
    earlier = ask(spark, lake, until=world.between)
    assert (kinds(earlier), earlier.batches) == ({"bronze_count", "lost"}, 1)
    none = ["--conf", str(lake.conf), "--json", "reconcile", "orders", "--to", "2020-01-01"]
    assert cli.run(none) == 0
    assert json.loads(capsys.readouterr().out)["batches"] == 0


def test_a_manifests_files(spark: SparkSession, world: World, lake: Lake, tmp_path: Path) -> None:
    # the row at the end of one of its files is gone
    delete(lake, "quarantine", "source['stream'] = 'm-1' and source['partition'] = 'p.jsonl'")
    result = ask(spark, lake, manifests=[world.manifest])
    assert kinds(result) == {"quarantine_count", "lost"}
    assert at_of(result) == {"lost": {("p.jsonl", 2)}}
    places = {each.place.partition: each for each in result.places if each.place.stream == "m-1"}
    assert {p: (c.source, c.bronze, c.quarantine, c.duplicate, c.standing) for p, c in places.items()} == {
        "p.jsonl": (2, 1, 0, 1, Standing.READ),
        "q.jsonl": (2, 0, 1, 1, Standing.READ),
    }
    # of its files one was written to, and one is gone
    sent = tmp_path / "sent"
    shutil.copytree(world.manifest.parent, sent)
    (sent / "p.jsonl").write_bytes((sent / "p.jsonl").read_bytes().replace(b"oops", b"OOPS"))
    (sent / "q.jsonl").unlink()
    result = ask(spark, world.lake, manifests=[sent / world.manifest.name])
    assert kinds(result) == {"file_changed"}
    assert one(result, "file_changed").place.partition == "p.jsonl"
    assert [c.standing for c in result.places if c.place.partition == "q.jsonl"] == [Standing.GONE]
    unknown = deliver(tmp_path / "other", "m-2", {"p.jsonl": [order("x")]})
    with pytest.raises(ConfigurationError, match="not among the committed batches"):
        ask(spark, lake, manifests=[unknown])


def test_where_rows_are_replaced_tombstones_skipped_and_records_gone_from_the_topic(
    spark: SparkSession, broker: LocalBroker, topic: Any, tmp_path: Path
) -> None:
    lake = small_lake(tmp_path, kafka_source(topic), on_match="update_if_newer", tombstones="filter")
    topic.produce([order("a"), order("b"), None, order("c"), order("c", day=21)], partition=0)
    stream(spark, lake)
    topic.produce([order("a", day=21), order("b"), b"oops"], partition=0)
    stream(spark, lake)
    result = ask(spark, lake)
    assert result.ok
    [place] = result.places
    assert (place.source, place.bronze, place.quarantine, place.duplicate, place.filtered) == (8, 3, 1, 3, 1)

    # what retention has removed is no difference, and what is left is compared all the same
    admin = AdminClient({"bootstrap.servers": topic.bootstrap_servers, "log_level": 0})
    for future in admin.delete_records([TopicPartition(topic.name, 0, 6)]).values():
        future.result(30)
    delete(lake, "bronze/orders", "event_id = 'b'")
    update(lake, "quarantine", at(topic, 0, 7, "source"), payload_sha256="NULL")
    result = ask(spark, lake)
    assert kinds(result) == {"bronze_total", "changed"}
    assert (one(result, "bronze_total").expected, one(result, "bronze_total").found) == (3, 2)
    assert at_of(result) == {"changed": {("0", 7)}}
    [place] = result.places
    assert (place.source, place.ledger, place.not_read, place.standing) == (2, 8, 6, Standing.GONE)

    for future in admin.delete_topics([topic.name]).values():
        future.result(30)
    assert cli.run(["--conf", str(lake.conf), "--json", "reconcile", "orders"]) == 4

    # one that is made anew under the name has offsets that fit, and other records
    broker.create_topic(topic.name)
    topic.produce([order("x")] * 8, partition=0)
    result = ask(spark, lake)
    assert kinds(result) == {"bronze_total"}
    assert [(c.source, c.not_read, c.standing) for c in result.places] == [(None, 8, Standing.GONE)]


def test_a_landing_folder_taken_twice(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    lake = small_lake(tmp_path, json.dumps({"kind": "files", "path": "./landing"}))
    command = ["--conf", str(lake.conf), "--json", "reconcile", "orders"]
    assert cli.run(command) == 2, "there is no ledger yet"
    (landing / "a.jsonl").write_bytes(order("a") + b"\noops\n" + order("b"))
    (landing / "b.jsonl").write_bytes(order("b") + b"\n" + order("c"))
    stream(spark, lake)
    stream(spark, lake, restart=Restart())
    (landing / "a.jsonl").unlink()
    (landing / "b.jsonl").write_bytes(order("b") + b"\n" + order("d"))
    result = ask(spark, lake)
    assert [(c.source, c.ledger, c.bronze, c.quarantine, c.duplicate, c.standing) for c in result.places] == [
        (None, 6, 2, 1, None, Standing.GONE), (4, 4, 1, 0, 3, Standing.READ),
    ]  # fmt: skip
    assert kinds(result) == {"changed"}
    assert at_of(result) == {"changed": {("b.jsonl", 2)}}
