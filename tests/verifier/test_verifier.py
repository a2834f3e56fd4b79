"""The verifier is itself verified: on a small sound lake it finds nothing, and each planted fault by its kind."""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from . import verify

SECRET = "secret-4711"
SOURCE = pa.struct(
    [("system", pa.string()), ("stream", pa.string()), ("partition", pa.string()), ("position", pa.int64())]
)
BRONZE = pa.schema(
    [("event_id", pa.string()), ("_source", SOURCE), ("_payload_sha256", pa.string()), ("_batch_id", pa.string())]
)
QUARANTINE = pa.schema(
    [
        ("dataset", pa.string()), ("source", SOURCE), ("payload", pa.binary()), ("payload_sha256", pa.string()),
        ("payload_bytes", pa.int64()), ("batch_id", pa.string()),
    ]
)  # fmt: skip
LEDGER = pa.schema(
    [
        ("dataset", pa.string()), ("batch_id", pa.string()), ("status", pa.string()), ("records_read", pa.int64()),
        ("source_range", pa.string()), *((f"records_{part}", pa.int64()) for part in verify.PARTS),
    ]
)  # fmt: skip


def event(event_id: str, amount: int = 1) -> bytes:
    return json.dumps({"event_id": event_id, "amount": amount, "note": SECRET}).encode()


LINES = [
    event("a"), event("b"), b"{broken " + SECRET.encode(), event("c"), event("a"), b"[1]", event("d"), event("b"),
]  # fmt: skip
LANDED, HELD = (1, 2, 4, 7), (3, 6)


def at(position: int) -> dict[str, Any]:
    return {"system": "files", "stream": "m-1", "partition": "part-0.jsonl", "position": position}


def sha(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


class World:
    """A manifest of eight lines and the lake they came to, in two batches; faults are planted before it is written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        ids = {n: json.loads(LINES[n - 1])["event_id"] for n in LANDED}
        self.bronze = [
            {
                "event_id": ids[n], "_source": at(n), "_payload_sha256": sha(LINES[n - 1]),
                "_batch_id": "q-0" if n <= 4 else "q-1",
            }
            for n in LANDED
        ]  # fmt: skip
        self.held = [
            {
                "dataset": "orders", "source": at(n), "payload": LINES[n - 1], "payload_sha256": sha(LINES[n - 1]),
                "payload_bytes": len(LINES[n - 1]), "batch_id": "q-0" if n <= 4 else "q-1",
            }
            for n in HELD
        ]  # fmt: skip
        self.ledger = [self.batch("q-0", 1, 4, (3, 0, 0, 1, 0)), self.batch("q-1", 5, 8, (1, 0, 2, 1, 0))]
        self.commits = ["0", "1"]

    @staticmethod
    def batch(batch_id: str, start: int, end: int, counts: tuple[int, ...]) -> dict[str, Any]:
        ranges = [{**at(0), "start": start, "end": end, "records": sum(counts)}]
        return {
            "dataset": "orders", "batch_id": batch_id, "status": "committed", "records_read": sum(counts),
            "source_range": json.dumps({"ranges": ranges}),
            **{f"records_{part}": count for part, count in zip(verify.PARTS, counts, strict=True)},
        }  # fmt: skip

    def check(self, *options: str) -> tuple[int, dict[str, Any]]:
        """Exit code and document of the script, in a process of its own."""
        manifest = self.root / "m-1.json"
        manifest.write_text(json.dumps({"manifest_id": "m-1", "files": [{"path": "part-0.jsonl"}]}))
        (self.root / "part-0.jsonl").write_bytes(b"".join(line + b"\n" for line in LINES))
        other = {**self.held[0], "dataset": "returns", "source": at(99)}
        for name, rows, schema in (
            ("bronze/orders", self.bronze, BRONZE),
            ("quarantine", [*self.held, other], QUARANTINE),
            ("ingestion_status", [*self.ledger, {**self.ledger[0], "status": "failed"}], LEDGER),
        ):
            write_deltalake(str(self.root / "lake" / name), pa.Table.from_pylist(rows, schema=schema))
        checkpoint = self.root / "checkpoint"
        (checkpoint / "commits").mkdir(parents=True)
        (checkpoint / "metadata").write_text('{"id": "q"}')
        for number in self.commits:
            (checkpoint / "commits" / number).write_text("v1\n{}")
        done = subprocess.run(
            [
                sys.executable, verify.__file__, "--warehouse", self.root / "lake", "--dataset", "orders", "--manifest",
                manifest, "--checkpoint", checkpoint, *options,
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert SECRET not in done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_sound_lake(world: World) -> None:
    code, found = world.check()
    assert found["problems"] == []
    assert (code, found["ok"], found["produced"]) == (0, True, 8)
    assert (found["bronze"], found["quarantine"], found["duplicates"], found["filtered"]) == (4, 2, 2, 0)


def lose_a_landed(w: World) -> None:
    w.bronze.pop(1)


def lose_a_held(w: World) -> None:
    w.held.pop()


def double_a_row(w: World) -> None:
    w.bronze.append(copy.deepcopy(w.bronze[0]))


def double_a_held(w: World) -> None:
    w.held.append(copy.deepcopy(w.held[0]))


def an_id_twice(w: World) -> None:
    w.bronze.append({**w.bronze[0], "_source": at(5), "_payload_sha256": sha(LINES[4])})


def swap_two_landed(w: World) -> None:
    first, second = w.bronze[0], w.bronze[1]
    first["_payload_sha256"], second["_payload_sha256"] = second["_payload_sha256"], first["_payload_sha256"]


def swap_two_ids(w: World) -> None:
    w.bronze[0]["event_id"], w.bronze[1]["event_id"] = w.bronze[1]["event_id"], w.bronze[0]["event_id"]


def swap_two_held(w: World) -> None:
    for name in ("payload", "payload_sha256", "payload_bytes"):
        w.held[0][name], w.held[1][name] = w.held[1][name], w.held[0][name]


def change_a_byte(w: World) -> None:
    w.held[0]["payload"] = b"}" + w.held[0]["payload"][1:]


def half_a_batch(w: World) -> None:
    w.ledger.pop()


def a_batch_without_its_rows(w: World) -> None:
    w.bronze = [row for row in w.bronze if row["_batch_id"] == "q-0"]


def in_both_tables(w: World) -> None:
    w.held.append({**w.held[0], "source": at(1), "payload": LINES[0], "payload_sha256": sha(LINES[0])})


def invent_a_record(w: World) -> None:
    w.bronze.append({**w.bronze[0], "event_id": "z", "_source": at(42)})


def commit_too_much(w: World) -> None:
    w.commits.append("2")


def publish_twice(w: World) -> None:
    w.ledger.append(copy.deepcopy(w.ledger[0]))


def count_wrongly(w: World) -> None:
    w.ledger[0]["records_inserted"], w.ledger[0]["records_duplicate"] = 2, 1


def read_more_than_was_sent(w: World) -> None:
    w.ledger[1] = w.batch("q-1", 5, 9, (1, 0, 3, 1, 0))


def leave_a_hole(w: World) -> None:
    """A duplicate that no batch has read: in no table, so nothing but the ranges can tell."""
    w.ledger[1] = w.batch("q-1", 6, 8, (1, 0, 1, 1, 0))


def filter_a_duplicate(w: World) -> None:
    w.ledger[1] = w.batch("q-1", 5, 8, (1, 0, 1, 1, 1))


def come_from_elsewhere(w: World) -> None:
    w.held[0]["source"] = {**w.held[0]["source"], "system": "kafka"}


def call_another_payload_a_duplicate(w: World) -> None:
    w.bronze[0]["_payload_sha256"] = sha(b"another")


@pytest.mark.parametrize(
    ("plant", "kinds"),
    [
        (lose_a_landed, {"lost", "counts"}),
        (lose_a_held, {"lost", "counts"}),
        (double_a_row, {"doubled", "id_twice", "counts"}),
        (double_a_held, {"doubled", "counts"}),
        (an_id_twice, {"id_twice", "counts"}),
        (swap_two_landed, {"changed", "lost", "counts"}),
        (swap_two_ids, {"changed", "lost", "counts"}),
        (swap_two_held, {"changed"}),
        (change_a_byte, {"changed"}),
        (half_a_batch, {"unpublished_rows", "uncovered", "commit_without_ledger"}),
        (a_batch_without_its_rows, {"lost", "counts"}),
        (in_both_tables, {"overlap", "counts", "changed"}),
        (invent_a_record, {"invented", "counts"}),
        (commit_too_much, {"commit_without_ledger"}),
        (publish_twice, {"ledger_twice"}),
        (count_wrongly, {"counts"}),
        (call_another_payload_a_duplicate, {"changed", "lost", "counts"}),
        (read_more_than_was_sent, {"counts"}),
        (leave_a_hole, {"uncovered"}),
        (filter_a_duplicate, {"counts"}),
        (come_from_elsewhere, {"invented", "lost"}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_planted_fault_is_reported(world: World, plant: Callable[[World], None], kinds: set[str]) -> None:
    plant(world)
    code, found = world.check()
    assert (code, found["ok"]) == (1, False)
    assert set(found["problem_counts"]) == kinds
    assert {problem["kind"] for problem in found["problems"]} == kinds


def test_a_swap_says_both_places(world: World) -> None:
    swap_two_held(world)
    _, found = world.check()
    assert [p["where"] for p in found["problems"]] == [
        "('files', 'm-1', 'part-0.jsonl', 3)",
        "('files', 'm-1', 'part-0.jsonl', 6)",
    ]


def test_a_tombstone_is_filtered_only_where_that_is_asked_for() -> None:
    produced = {("kafka", "t", "0", 0): verify.sent_of(None, "event_id")}
    for asked, filtered, kinds in ((True, 1, {}), (False, 0, {"lost": 1})):
        found = verify.Findings()
        options = argparse.Namespace(filter_tombstones=asked, on_match="ignore", event_id="event_id")
        assert verify.explain(produced, {}, set(), [], options, found) == (0, filtered)
        assert found.counts == kinds


def test_after_updates_the_same_id_is_enough() -> None:
    produced = {("kafka", "t", "0", 0): verify.sent_of(event("a", amount=2), "event_id")}
    stored = [{"event_id": "a", "_payload_sha256": sha(event("a"))}]
    for policy, duplicates in (("ignore", 0), ("update_if_newer", 1)):
        options = argparse.Namespace(filter_tombstones=False, on_match=policy, event_id="event_id")
        assert verify.explain(produced, {}, set(), stored, options, verify.Findings()) == (duplicates, 0)


def test_what_cannot_be_read_is_not_clean(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.check()
    manifest = world.root / "m-1.json"
    manifest.write_text("{")
    arguments = ["--warehouse", str(world.root / "lake"), "--dataset", "orders", "--manifest", str(manifest)]
    assert verify.main(arguments) == 2
    assert json.loads(capsys.readouterr().out) == {"ok": False, "unreadable": "JSONDecodeError"}


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        verify.main(["--warehouse", "x", "--dataset", "orders"])
    assert stopped.value.code == 2
    assert "--manifest" in capsys.readouterr().err
