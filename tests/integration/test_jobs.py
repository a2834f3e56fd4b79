"""The two jobs on a real broker and real files: what is sent is in bronze, in quarantine, or counted."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lazaretto
from lazaretto.errors import BatchRejectedError, ConfigurationError, GuardRefusedError, RuleError, SourceError
from lazaretto.jobs.batch import run_manifest
from lazaretto.jobs.micro_batches import StreamReport
from lazaretto.jobs.restart import Restart
from lazaretto.jobs.stream import run_stream

from .lake import Lake, accounted, deliver, make_lake, new_run, order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = {"availableNow": True}


def kafka_source(topic: Any, **more: Any) -> str:
    settings = {
        "kind": "kafka", "bootstrap_servers": topic.bootstrap_servers, "topic": topic.name,
        "starting_offsets": "earliest", **more,
    }  # fmt: skip
    return json.dumps(settings)


def stream(spark: SparkSession, lake: Lake, **options: Any) -> StreamReport:
    return run_stream(spark, lake.open(), new_run(), trigger=NOW, **options)


def poison(repo_root: Path) -> list[dict[str, Any]]:
    lines = (repo_root / "tests/data/poison.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    for case in cases:
        case["bytes"] = None if case["value_b64"] is None else base64.b64decode(case["value_b64"])
    return cases


def check_poison(lake: Lake, cases: list[dict[str, Any]], position: Callable[[int], int]) -> None:
    """Each record is in the right table, with its code, its field, and the bytes that were sent."""
    landed = {row["_source"]["position"] for row in lake.bronze}
    held = {row["source"]["position"]: row for row in lake.held}
    wrong = []
    for number, case in enumerate(cases):
        row = held.get(position(number))
        if case["valid"]:
            is_right = position(number) in landed and row is None
        else:
            found = {(v["code"], v["field"]) for v in row["violations"]} if row else set()
            is_right = (case["code"], case["field"]) in found and row is not None and row["payload"] == case["bytes"]
            is_right = is_right and position(number) not in landed
        if not is_right:
            wrong.append((case["id"], case["code"], row and row["violations"]))
    assert wrong == []


def test_poison_through_kafka_and_through_a_manifest(
    spark: SparkSession, make_topic: Callable[..., Any], repo_root: Path, tmp_path: Path
) -> None:
    cases = poison(repo_root)
    topic = make_topic()
    topic.produce([c["bytes"] for c in cases], partition=0)
    (tmp_path / "kafka").mkdir()
    by_kafka = make_lake(tmp_path / "kafka", repo_root, kafka_source(topic))
    report = stream(spark, by_kafka)
    check_poison(by_kafka, cases, lambda number: number)
    assert report.counts["records_read"] == len(cases)
    assert all(accounted(row) for row in by_kafka.ledger)

    as_lines = [c for c in cases if c["bytes"] is not None and b"\n" not in c["bytes"]]
    (tmp_path / "files").mkdir()
    by_file = make_lake(tmp_path / "files", repo_root, "null")
    manifest = deliver(tmp_path / "sent", "poison-1", {"part-0.jsonl": [c["bytes"] for c in as_lines]})
    result = run_manifest(spark, by_file.open(), manifest, new_run())
    check_poison(by_file, as_lines, lambda number: number + 1)
    assert result.records_read == len(as_lines)

    # the same verdicts, the same bytes, the same hashes either way
    def by_payload(lake: Lake) -> dict[str, Any]:
        return {row["payload_sha256"]: (row["error_code"], row["violations"], row["payload"]) for row in lake.held}

    kafka, files = by_payload(by_kafka), by_payload(by_file)
    assert {k: v for k, v in kafka.items() if k in files} == files


def test_one_invalid_between_two_valid_and_the_next_batch_goes_on(
    spark: SparkSession, topic: Any, repo_root: Path, tmp_path: Path
) -> None:
    lake = make_lake(tmp_path, repo_root, kafka_source(topic))
    topic.produce([order("a"), b'{"event_id":"b"', order("c")], partition=0)
    stream(spark, lake)
    batches = {row["event_id"]: row["_batch_id"] for row in lake.bronze}
    assert batches.keys() == {"a", "c"}
    assert len(set(batches.values())) == 1
    assert [(row["error_code"], row["batch_id"]) for row in lake.held] == [("MALFORMED", batches["a"])]
    topic.produce([order("d")], partition=0)
    stream(spark, lake)
    assert {row["event_id"] for row in lake.bronze} == {"a", "c", "d"}
    assert [row["status"] for row in lake.ledger] == ["committed", "committed"]


def test_again_and_with_a_new_checkpoint_nothing_is_doubled_and_nothing_skipped(
    spark: SparkSession, make_topic: Callable[..., Any], repo_root: Path, tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    lake = make_lake(tmp_path, repo_root, kafka_source(topic, max_offsets_per_trigger=8))
    records = [order(f"e-{n % 15}") for n in range(18)] + [b"{}", order("e-3", amount=99), None]
    for number, record in enumerate(records):
        topic.produce([record], partition=number % 2)
    first = stream(spark, lake)
    assert first.batches > 1
    before = sorted((r["event_id"], r["_source"]["partition"], r["_source"]["position"]) for r in lake.bronze)
    assert len(before) == 15
    assert {row["error_code"] for row in lake.held} == {"MISSING_REQUIRED", "ID_CONFLICT", "TOMBSTONE"}

    again = stream(spark, lake)
    assert (again.batches, again.counts["records_read"]) == (0, 0)

    # With nothing but the records' own places to go by, everything is read again, and nothing lands twice.
    shutil.rmtree(lake.root / "checkpoints")
    shutil.rmtree(lake.root / "ingestion_status")
    renewed = stream(spark, lake)
    assert renewed.counts["records_read"] == len(records)
    assert renewed.counts["records_duplicate"] == len(records), "every record was landed or held before"
    after = sorted((r["event_id"], r["_source"]["partition"], r["_source"]["position"]) for r in lake.bronze)
    assert after == before
    assert len(lake.held) == 3

    # With the ledger, a new checkpoint goes on where it ends; that it is a new one must be said.
    shutil.rmtree(lake.root / "checkpoints")
    with pytest.raises(GuardRefusedError):
        stream(spark, lake)
    topic.produce([order("new")], partition=0)
    assert stream(spark, lake, restart=Restart()).counts["records_read"] == 1
    assert {row["event_id"] for row in lake.bronze} == {f"e-{n}" for n in range(15)} | {"new"}
    records.append(order("new"))
    assert all(accounted(row) and row["status"] == "committed" for row in lake.ledger)
    # each offset is explained by the ledger, once
    seen = [
        (part["partition"], position)
        for row in lake.ledger
        for part in json.loads(row["source_range"])["ranges"]
        for position in range(part["start"], part["end"] + 1)
    ]
    assert sorted(seen) == sorted((str(n % 2), n // 2) for n in range(len(records)))


def test_key_and_headers_are_held_with_the_record(
    spark: SparkSession, topic: Any, repo_root: Path, tmp_path: Path
) -> None:
    lake = make_lake(tmp_path, repo_root, kafka_source(topic))
    topic.produce([b"{"], keys=[b"k\xff"], headers=[("trace", b"\x00\x01")], partition=0)
    stream(spark, lake)
    row = lake.held[0]
    assert (row["key"], row["headers"]) == (b"k\xff", [{"key": "trace", "value": b"\x00\x01"}])
    assert row["payload"] == b"{"
    assert (row["source"]["system"], row["source"]["stream"]) == ("kafka", topic.name)


def test_a_rejected_batch_lands_nothing_until_it_is_accepted(
    spark: SparkSession, topic: Any, repo_root: Path, tmp_path: Path
) -> None:
    from lazaretto.commit import Acceptance

    lake = make_lake(tmp_path, repo_root, kafka_source(topic), on_failure="reject_batch")
    topic.produce([order("a"), b"{}"], partition=0)
    with pytest.raises(BatchRejectedError) as refused:
        stream(spark, lake)
    assert refused.value.exit_code == 3
    assert (lake.bronze, lake.held) == ([], [])
    rejected = lake.ledger[0]
    assert (rejected["status"], rejected["error_class"]) == ("rejected", "data_quality")
    accept = Acceptance(rejected["batch_id"], "known gap, ticket 12", "tester")
    stream(spark, lake, acceptance=accept)
    assert [row["event_id"] for row in lake.bronze] == ["a"]
    assert [row["error_code"] for row in lake.held] == ["MISSING_REQUIRED"]
    accepted = [row for row in lake.rows("audit") if row["action"] == "batch_accepted"]
    assert [(row["operator"], row["reason"]) for row in accepted] == [("tester", "known gap, ticket 12")]


def test_a_missing_topic_and_a_missing_folder_stop_before_any_data_moves(
    spark: SparkSession, topic: Any, repo_root: Path, tmp_path: Path
) -> None:
    absent = json.dumps({"kind": "kafka", "bootstrap_servers": topic.bootstrap_servers, "topic": "no-such-topic"})
    for source in (absent, json.dumps({"kind": "files", "path": "./nowhere"})):
        lake = make_lake(tmp_path, repo_root, source)
        with pytest.raises(SourceError) as stopped:
            stream(spark, lake)
        assert stopped.value.exit_code == 4
        assert not lake.root.exists()


def test_a_rule_that_does_not_compile_stops_before_any_data_moves(
    spark: SparkSession, topic: Any, repo_root: Path, tmp_path: Path
) -> None:
    lake = make_lake(tmp_path, repo_root, kafka_source(topic))
    suite = tmp_path / "rules.yml"
    suite.write_text(
        "name: x\nexpectations:\n"
        "  - type: expect_column_values_to_be_in_set\n"
        "    kwargs: {column: currncy, value_set: [EUR]}\n"
        "    severity: critical\n"
        "    meta: {rule_id: X-1}\n",
        encoding="utf-8",
    )
    text = lake.conf.read_text(encoding="utf-8").replace(str(repo_root / "dq_rules/orders.yml"), str(suite))
    lake.conf.write_text(text, encoding="utf-8")
    with pytest.raises(RuleError) as stopped:
        stream(spark, lake)
    assert "X-1" in str(stopped.value)
    assert "currency" in str(stopped.value)
    assert not lake.root.exists()


def test_a_manifest_lands_once_and_says_so(spark: SparkSession, repo_root: Path, tmp_path: Path) -> None:
    lake = make_lake(tmp_path, repo_root, "null")
    sent = {"p 0.jsonl": [order("a"), order("b")], "ü%20.jsonl": [order("b"), b"oops"]}
    manifest = deliver(tmp_path / "sent", "m-1", sent)
    result = run_manifest(spark, lake.open(), manifest, new_run())
    assert (result.status, result.records_inserted, result.records_duplicate, result.records_quarantined) == (
        "committed", 2, 1, 1,
    )  # fmt: skip
    assert {row["_source"]["partition"] for row in lake.bronze} <= set(sent)
    assert [row["source"] for row in lake.held] == [
        {"system": "files", "stream": "m-1", "partition": "ü%20.jsonl", "position": 2}
    ]
    shutil.rmtree(tmp_path / "sent" / "none", ignore_errors=True)
    (tmp_path / "sent" / "p 0.jsonl").unlink()
    again = run_manifest(spark, lake.open(), manifest, new_run())
    assert again.already_committed
    assert again.records_inserted == 2
    assert len(lake.bronze) == 2
    assert len(lake.ledger) == 1
    assert list((lake.root / "staging").rglob("*.parquet")) == []


def test_a_manifest_whose_file_is_not_as_promised_lands_nothing(
    spark: SparkSession, repo_root: Path, tmp_path: Path
) -> None:
    lake = make_lake(tmp_path, repo_root, "null")
    sent = tmp_path / "sent"
    manifest = deliver(sent, "m-1", {"good.jsonl": [order("a")], "bad.jsonl": [order("b")], "gone.jsonl": [order("c")]})
    damaged = (sent / "bad.jsonl").read_bytes().replace(b"EUR", b"USD")
    (sent / "bad.jsonl").write_bytes(damaged)
    (sent / "gone.jsonl").unlink()
    with pytest.raises(BatchRejectedError) as refused:
        run_manifest(spark, lake.open(), manifest, new_run())
    assert refused.value.exit_code == 3
    assert refused.value.error_class == "contract_violation"
    assert lake.bronze == []
    row = lake.ledger[0]
    assert (row["status"], row["error_class"], row["records_read"]) == ("rejected", "contract_violation", 0)
    kept = list((lake.root / "quarantine_files" / "orders").rglob("bad.jsonl"))
    assert [p.read_bytes() for p in kept] == [damaged]
    # a later manifest brings the repaired files
    repaired = deliver(sent, "m-2", {"good.jsonl": [order("a")], "bad.jsonl": [order("b")]}, supersedes="m-1")
    assert run_manifest(spark, lake.open(), repaired, new_run()).records_inserted == 2
    assert [r["subject"] for r in lake.rows("audit") if r["action"] == "manifest_superseded"] == ["manifest m-1"]


def test_an_incomplete_manifest_and_an_empty_one(spark: SparkSession, repo_root: Path, tmp_path: Path) -> None:
    lake = make_lake(tmp_path, repo_root, "null")
    manifest = deliver(tmp_path / "sent", "short", {"a.jsonl": [order("a"), order("b")]})
    (tmp_path / "sent" / "a.jsonl").write_bytes(order("a") + b"\n")
    with pytest.raises(BatchRejectedError) as refused:
        run_manifest(spark, lake.open(), manifest, new_run())
    assert refused.value.error_class == "incomplete"
    empty = deliver(tmp_path / "sent", "empty", {}, expect_empty=True)
    assert run_manifest(spark, lake.open(), empty, new_run()).records_read == 0
    with pytest.raises(ConfigurationError):
        run_manifest(spark, lake.open(), deliver(tmp_path / "sent", "unsaid", {}), new_run())


def test_a_half_done_manifest_is_completed_without_doubles(
    spark: SparkSession, repo_root: Path, tmp_path: Path
) -> None:
    lake = make_lake(tmp_path, repo_root, "null")
    manifest = deliver(tmp_path / "sent", "m-1", {"a.jsonl": [order("a"), b"oops", order("a", amount=1)]})

    def crash(step: Any, info: Any) -> None:
        if (str(step), str(info["when"])) == ("bronze", "after"):
            raise RuntimeError("pulled the plug")

    with pytest.raises(RuntimeError, match="pulled the plug"):
        run_manifest(spark, lake.open(), manifest, new_run(), on_step=crash)
    assert len(lake.bronze) == 1
    with_nothing_published = lazaretto.read_published(spark, "orders", conf=lake.conf)
    assert with_nothing_published.count() == 0
    result = run_manifest(spark, lake.open(), manifest, new_run())
    assert (result.records_inserted, result.records_quarantined, result.records_duplicate) == (1, 2, 0)
    assert (len(lake.bronze), len(lake.held)) == (1, 2)
    assert lazaretto.read_published(spark, "orders", conf=lake.conf).count() == 1


def test_a_landing_folder_is_taken_file_by_file(spark: SparkSession, repo_root: Path, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    lake = make_lake(tmp_path, repo_root, json.dumps({"kind": "files", "path": "./landing", "format": "jsonl"}))
    (landing / "a.jsonl").write_bytes(order("a") + b"\n\n" + order("b"))
    stream(spark, lake)
    (landing / "b.jsonl").write_bytes(order("b") + b"\n" + order("c") + b"\r\n")
    stream(spark, lake)
    assert {row["event_id"]: row["_source"]["position"] for row in lake.bronze} == {"a": 1, "b": 3, "c": 2}
    assert [(row["error_code"], row["source"]["position"]) for row in lake.held] == [("EMPTY", 2)]


def test_no_marker_from_a_payload_leaves_the_tables_that_hold_payloads(
    spark: SparkSession, topic: Any, repo_root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from lazaretto.observe import configure_logging

    marker = "MARKERqzx7"
    lake = make_lake(tmp_path, repo_root, kafka_source(topic))
    records = [
        order(marker), order("x", currency=marker), order("y", user_id=marker), order("z", event_time=marker),
        f'{{"{marker}'.encode(), order(marker, amount=3), order("u", tags=[marker, 1]), marker.encode(),
    ]  # fmt: skip
    topic.produce(records, partition=0)
    configure_logging("json", verbose=True)
    stream(spark, lake)
    shown = capfd.readouterr()
    assert "batch_committed" in shown.err
    assert marker not in shown.out + shown.err
    assert len(lake.bronze) + len(lake.held) == len(records)
    assert marker not in str(lake.rows("ingestion_status")) + str(lake.rows("audit"))
    for log in lake.root.rglob("_delta_log/*.json"):
        assert marker not in log.read_text(encoding="utf-8"), log
