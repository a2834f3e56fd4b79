"""A checkpoint, a table or a topic that is not as the ledger has it: nothing starts, and there is a way on."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lazaretto.cli.main import run as command
from lazaretto.errors import ConfigurationError, GuardRefusedError
from lazaretto.jobs.batch import run_manifest
from lazaretto.jobs.micro_batches import StreamReport
from lazaretto.jobs.restart import Restart
from lazaretto.jobs.stream import run_stream

from ..committing import interpreted
from ..verifier.verify import verify
from .lake import Lake, deliver, make_lake, new_run, order
from .test_jobs import kafka_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .conftest import Topic


@pytest.fixture(scope="module", autouse=True)
def _small(spark: SparkSession) -> Iterator[None]:
    with interpreted(spark):
        yield


def stream(spark: SparkSession, lake: Lake, **options: Any) -> StreamReport:
    return run_stream(spark, lake.open(), new_run(), trigger={"availableNow": True}, **options)


def found_by_verifier(lake: Lake, topic: Topic) -> dict[str, Any]:
    return verify(
        argparse.Namespace(
            warehouse=lake.root, dataset="orders", kafka=topic.bootstrap_servers, topic=topic.name, manifest=[],
            checkpoint=None, filter_tombstones=False, event_id="event_id", on_match="ignore",
        )
    )  # fmt: skip


@dataclass
class Sea:
    """A topic of which two batches are in a lake, and a third is not yet."""

    topic: Topic
    lake: Lake

    def copy(self, folder: Path) -> Lake:
        shutil.copytree(self.lake.conf.parent, folder, dirs_exist_ok=True)
        return Lake(folder / self.lake.conf.name, folder / "lake")


@pytest.fixture(scope="module")
def sea(
    spark: SparkSession, make_topic: Callable[..., Topic], repo_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Sea:
    topic = make_topic(partitions=2)
    lake = make_lake(tmp_path_factory.mktemp("sea"), repo_root, kafka_source(topic, max_offsets_per_trigger=6))
    for partition in (0, 1):
        topic.produce([order(f"e-{partition}{n}") for n in range(4)] + [b"oops", order("e-00")], partition=partition)
    assert stream(spark, lake).batches == 2
    topic.produce([order("late-1"), b"[]", order("e-01")], partition=1)
    return Sea(topic, lake)


def checkpoint_gone(spark: SparkSession, lake: Lake, checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)


def offsets_torn(spark: SparkSession, lake: Lake, checkpoint: Path) -> None:
    file = checkpoint / "offsets" / "1"
    file.write_bytes(file.read_bytes()[:-9])
    (checkpoint / "commits" / "1").unlink()


def older_copy(spark: SparkSession, lake: Lake, checkpoint: Path) -> None:
    for name in ("offsets/1", "offsets/.1.crc", "commits/1", "commits/.1.crc"):
        (checkpoint / name).unlink()


def another_query(spark: SparkSession, lake: Lake, checkpoint: Path) -> None:
    (checkpoint / "metadata").write_text(json.dumps({"id": "6b1f0c1e-0000-4000-8000-000000000001"}))


def ledger_taken_back(spark: SparkSession, lake: Lake, checkpoint: Path) -> None:
    spark.sql(f"RESTORE TABLE delta.`{lake.root / 'ingestion_status'}` TO VERSION AS OF 1").collect()


@pytest.mark.parametrize(("damage", "told"), [(older_copy, "older copy"), (another_query, "another query's")])
def test_a_checkpoint_that_is_not_ours_any_more_starts_nothing(
    spark: SparkSession, sea: Sea, tmp_path: Path, damage: Callable[..., None], told: str
) -> None:
    lake = sea.copy(tmp_path)
    damage(spark, lake, lake.root / "checkpoints" / "orders")
    before = lake.ledger
    with pytest.raises(GuardRefusedError, match=told) as refused:
        stream(spark, lake)
    assert "--restart-from-ledger" in str(refused.value)
    assert lake.ledger == before


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (checkpoint_gone, "the checkpoint is gone"),
        (offsets_torn, "offsets/1 is missing, empty or torn"),
        (ledger_taken_back, "ahead"),
    ],
)
def test_damaged_state_starts_nothing_and_the_ledger_is_a_way_on(
    spark: SparkSession, sea: Sea, tmp_path: Path, damage: Callable[..., None], told: str
) -> None:
    lake = sea.copy(tmp_path)
    checkpoint = lake.root / "checkpoints" / "orders"
    damage(spark, lake, checkpoint)
    before = lake.ledger
    with pytest.raises(GuardRefusedError, match=told) as refused:
        stream(spark, lake)
    assert refused.value.exit_code == 4
    assert "--restart-from-ledger" in str(refused.value)
    assert lake.ledger == before

    report = stream(spark, lake, restart=Restart())
    again = 6 if damage is ledger_taken_back else 0  # what the ledger does not know is read again, and not doubled
    assert report.counts["records_read"] == 3 + again
    rows = {row["event_id"] for row in lake.bronze}
    assert rows == {*(f"e-{p}{n}" for p in (0, 1) for n in range(4)), "late-1"}
    assert len(lake.bronze) == len(rows)
    assert len(lake.held) == 3
    found = found_by_verifier(lake, sea.topic)
    if damage is not ledger_taken_back:
        assert found["problems"] == []
        assert len(list(checkpoint.parent.glob("orders.*"))) == (damage is not checkpoint_gone), "never deleted"
    else:
        # bronze keeps the id of the batch that the ledger has lost
        assert set(found["problem_counts"]) <= {"unpublished_rows", "counts"}
    assert stream(spark, lake).batches == 0
    assert [row["action"] for row in lake.rows("audit")] == ["stream_restarted"]


def test_a_table_that_was_taken_back(spark: SparkSession, sea: Sea, tmp_path: Path, repo_root: Path) -> None:
    lake = sea.copy(tmp_path)
    bronze = lake.root / "bronze" / "orders"
    complete = {row["event_id"] for row in lake.bronze}
    spark.sql(f"RESTORE TABLE delta.`{bronze}` TO VERSION AS OF 1").collect()
    lost = complete - {row["event_id"] for row in lake.bronze}
    assert lost
    manifest = deliver(tmp_path / "sent", "m-1", {"part-0.jsonl": [order("m")]})
    told = "bronze/orders was taken back to version 1; by the ledger it was at version 2"
    for job in (lambda: stream(spark, lake), lambda: run_manifest(spark, lake.open(), manifest, new_run())):
        with pytest.raises(GuardRefusedError, match=told):
            job()
    stream(spark, lake, restart=Restart())
    assert {row["event_id"] for row in lake.bronze} == complete | {"late-1"}
    assert len(lake.bronze) == len(complete) + 1
    assert run_manifest(spark, lake.open(), manifest, new_run()).records_inserted == 1, "all is well again"


def test_a_table_of_which_only_older_files_are_there(spark: SparkSession, repo_root: Path, tmp_path: Path) -> None:
    lake = make_lake(tmp_path, repo_root, "null")
    sent = [deliver(tmp_path / "sent", f"m-{n}", {f"part-{n}.jsonl": [order(f"e-{n}"), b"{"]}) for n in range(3)]
    for manifest in sent[:2]:
        run_manifest(spark, lake.open(), manifest, new_run())
    newest = max((lake.root / "quarantine" / "_delta_log").glob("*.json"))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    (newest.parent / newest.name.replace(".json", ".crc")).unlink(missing_ok=True)
    spark.catalog.clearCache()
    with pytest.raises(GuardRefusedError, match="quarantine was taken back") as refused:
        run_manifest(spark, lake.open(), sent[2], new_run())
    assert "lazaretto batch orders --accept-gap REASON" in str(refused.value)
    run_manifest(spark, lake.open(), sent[2], new_run(), accept_gap="ticket 7")
    assert [row["event_id"] for row in lake.bronze if row["event_id"] == "e-2"] == ["e-2"]
    restart = next(row for row in lake.ledger if row["kind"] == "restart")
    assert (restart["status"], restart["records_read"], restart["next_action"]) == ("committed", 0, "ticket 7")


def test_what_was_staged_is_finished_before_a_restart(spark: SparkSession, sea: Sea, tmp_path: Path) -> None:
    lake = sea.copy(tmp_path)

    def crash(step: Any, info: Any) -> None:
        if (str(step), str(info["when"])) == ("bronze", "after"):
            raise RuntimeError("pulled the plug")

    with pytest.raises(RuntimeError, match="pulled the plug"):
        stream(spark, lake, on_step=crash)
    staged = next(iter((lake.root / "staging" / "orders").glob("*/manifest.json"))).parent
    document = json.loads((staged / "manifest.json").read_text(encoding="utf-8"))
    assert document["declared"]["end"] == {"0": 6, "1": 9}
    shutil.rmtree(lake.root / "checkpoints")
    assert stream(spark, lake, restart=Restart()).counts["records_read"] == 0, "its stage had everything"
    assert [row["batch_id"] for row in lake.ledger if row["records_read"] == 3 and row["status"] == "committed"] == [
        document["batch_id"]
    ]
    assert found_by_verifier(lake, sea.topic)["problems"] == []


def test_a_stage_of_another_range_is_not_taken_for_this_batch(spark: SparkSession, sea: Sea, tmp_path: Path) -> None:
    lake = sea.copy(tmp_path)

    def crash(step: Any, info: Any) -> None:
        if (str(step), str(info["when"])) == ("gate", "before"):
            raise RuntimeError("pulled the plug")

    with pytest.raises(RuntimeError):
        stream(spark, lake, on_step=crash)
    # The copy is of before that batch was planned; planned anew, it is a smaller one.
    for name in ("2", ".2.crc"):
        (lake.root / "checkpoints/orders/offsets" / name).unlink()
    lake.conf.write_text(lake.conf.read_text().replace('"max_offsets_per_trigger": 6', '"max_offsets_per_trigger": 2'))
    with pytest.raises(GuardRefusedError, match="staged from another range"):
        stream(spark, lake)
    stream(spark, lake, restart=Restart())
    assert found_by_verifier(lake, sea.topic)["problems"] == []


def test_retention_past_our_offset(
    spark: SparkSession, topic: Topic, repo_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    lake = make_lake(tmp_path, repo_root, kafka_source(topic))
    topic.produce([order(f"e-{n}") for n in range(5)], partition=0)
    stream(spark, lake)
    topic.produce([order(f"e-{n}") for n in range(5, 10)], partition=0)
    admin = AdminClient({"bootstrap.servers": topic.bootstrap_servers, "log_level": 0})
    for future in admin.delete_records([TopicPartition(topic.name, 0, 8)]).values():
        future.result(30)

    words = ["--conf", str(lake.conf), "--json", "stream", "orders", "--available-now"]
    assert command(words) == 4
    error = json.loads(capsys.readouterr().out.splitlines()[-1])["error"]
    assert error["type"] == "GuardRefusedError"
    assert "partition 0 begins at offset 8 now; 3 before it were not read" in error["message"]
    assert "--accept-gap REASON" in error["message"]
    assert command([*words, "--restart-from-ledger"]) == 4, "the gap is not accepted by that"
    assert command([*words, "--accept-gap", " "]) == 2
    capsys.readouterr()
    assert command([*words, "--accept-gap", "ticket 12"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["records_read"] == 2
    assert {row["event_id"] for row in lake.bronze} == {f"e-{n}" for n in (*range(5), 8, 9)}
    gap = next(row for row in lake.ledger if row["kind"] == "restart")
    said = json.loads(gap["source_range"])["declared"]
    assert (said["start"], said["end"]) == ({"0": 5}, {"0": 8})
    assert gap["next_action"] == "ticket 12: partition 0 offsets 5 to 7"
    audit = lake.rows("audit")
    assert [(row["action"], row["reason"]) for row in audit] == [("stream_restarted", gap["next_action"])]
    assert stream(spark, lake).batches == 0


def test_a_topic_that_was_made_anew(
    spark: SparkSession, make_topic: Callable[..., Topic], repo_root: Path, tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = make_topic()
    lake = make_lake(tmp_path, repo_root, kafka_source(topic))
    topic.produce([order("old-0"), order("old-1")], partition=0)
    stream(spark, lake)
    admin = AdminClient({"bootstrap.servers": topic.bootstrap_servers, "log_level": 0})
    admin.delete_topics([topic.name])[topic.name].result(30)
    deadline = time.monotonic() + 30
    while topic.name in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    admin.create_topics([NewTopic(topic.name, 1, 1)])[topic.name].result(30)
    # More than the old one had: by its offsets alone nothing would show, and two records would be skipped.
    topic.produce([order(f"new-{n}") for n in range(5)], partition=0)
    with pytest.raises(GuardRefusedError, match="made anew under its name"):
        stream(spark, lake)
    assert stream(spark, lake, restart=Restart("moved to a new cluster")).counts["records_inserted"] == 5
    assert len(lake.bronze) == 7
    assert stream(spark, lake).batches == 0


def test_a_restart_needs_a_ledger_and_a_gap_a_reason(
    spark: SparkSession, topic: Topic, repo_root: Path, tmp_path: Path
) -> None:
    lake = make_lake(tmp_path, repo_root, kafka_source(topic))
    with pytest.raises(ConfigurationError, match="no batch of this stream"):
        stream(spark, lake, restart=Restart())
    with pytest.raises(ConfigurationError, match="needs a reason"):
        Restart("  ")


def test_a_landing_folder_is_read_again_and_nothing_is_doubled(
    spark: SparkSession, repo_root: Path, tmp_path: Path
) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    lake = make_lake(tmp_path, repo_root, json.dumps({"kind": "files", "path": "./landing", "format": "jsonl"}))
    (landing / "a.jsonl").write_bytes(order("a") + b"\n{\n")
    stream(spark, lake)
    shutil.rmtree(lake.root / "checkpoints")
    (landing / "b.jsonl").write_bytes(order("b") + b"\n")
    with pytest.raises(GuardRefusedError, match="gone"):
        stream(spark, lake)
    report = stream(spark, lake, restart=Restart())
    assert {name: n for name, n in report.counts.items() if n} == {
        "records_read": 3, "records_inserted": 1, "records_duplicate": 2,
    }  # fmt: skip
    assert (len(lake.bronze), len(lake.held)) == (2, 1)
    assert stream(spark, lake).batches == 0
