"""The command line as a user types it: processes of their own, exit codes, JSON, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from .lake import Lake, deliver, make_lake, order

COMMAND = [str(Path(sys.executable).with_name("lazaretto"))]


def lazaretto(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


def last_json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


def test_the_demo_tells_the_whole_story_twice(tmp_path: Path) -> None:
    from lazaretto.jobs.demo_events import CONFLICTS, DEFECTS, DUPLICATES

    held = {defect.code: defect.count for defect in DEFECTS} | {"ID_CONFLICT": CONFLICTS}
    first = lazaretto("demo", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "19,855 orders landed" in first.stdout
    assert "one held record" in first.stdout
    assert "quarantine groups" in first.stdout
    for code, count in held.items():
        line = next(line for line in first.stdout.splitlines() if f" {code} " in line)
        assert line.split("│")[4].strip() == str(count)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["demo-lake"]

    again = lazaretto("--json", "demo", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    document = last_json(again)
    assert document["held_by_code"] == held
    assert document["stream"]["records_read"] == 20_000
    assert document["stream"]["records_duplicate"] == DUPLICATES
    assert document["batch"]["records_inserted"] == 900
    assert document["records_in_bronze"] == 19_855

    status = lazaretto("--conf", document["conf"], "--json", "status", cwd=tmp_path)
    assert status.returncode == 0, status.stderr
    groups = lazaretto("--conf", document["conf"], "quarantine", "groups", cwd=tmp_path)
    assert "ORD-003" in groups.stdout


def test_a_folder_in_use_is_not_the_demos(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("x")
    done = lazaretto("demo", "--dir", "mine", cwd=tmp_path)
    assert done.returncode == 2
    assert (tmp_path / "mine" / "precious.txt").exists()


def test_batch_prints_counts_and_exit_codes(tmp_path: Path, repo_root: Path) -> None:
    lake = make_lake(tmp_path, repo_root, "null")
    manifest = deliver(tmp_path / "sent", "m-1", {"a.jsonl": [order("a"), b"oops"]})
    done = lazaretto("--conf", lake.conf, "--json", "batch", "orders", "--manifest", manifest, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = last_json(done)
    assert (document["batch_id"], document["status"]) == ("m-1", "committed")
    assert (document["records_inserted"], document["records_quarantined"]) == (1, 1)
    (tmp_path / "sent" / "a.jsonl").unlink()
    gone = deliver(tmp_path / "sent", "m-2", {"b.jsonl": [order("b")]})
    (tmp_path / "sent" / "b.jsonl").unlink()
    refused = lazaretto("--conf", lake.conf, "--json", "batch", "orders", "--manifest", gone, cwd=tmp_path)
    assert refused.returncode == 3
    assert last_json(refused)["error"]["class"] == "incomplete"
    assert len(refused.stderr.strip().splitlines()) <= 2


@contextmanager
def streaming(folder: Path, repo_root: Path) -> Iterator[tuple[subprocess.Popen[str], Lake]]:
    """`lazaretto stream` over 200 files of one record each, with its first two batches committed."""
    landing = folder / "landing"
    landing.mkdir()
    source = json.dumps({"kind": "files", "path": "./landing", "max_files_per_trigger": 1})
    lake = make_lake(folder, repo_root, source)
    for number in range(200):
        (landing / f"{number:03d}.jsonl").write_bytes(order(f"e-{number}") + b"\n")
    process = subprocess.Popen(
        [*COMMAND, "--conf", str(lake.conf), "--log-format", "json", "stream", "orders", "--trigger", "100ms"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 200
        while len(lake.ledger) < 2:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.5)
        yield process, lake
    finally:
        process.kill()
        process.communicate()


def test_sigterm_finishes_the_running_batch_and_exits_0(tmp_path: Path, repo_root: Path) -> None:
    with streaming(tmp_path, repo_root) as (process, lake):
        os.kill(process.pid, signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "batches committed" in out
    ledger = lake.ledger
    assert len(ledger) < 200, "it was stopped on its way"
    assert {row["status"] for row in ledger} == {"committed"}
    assert len(lake.bronze) == len(ledger)
    # Spark has noted the last batch: the next start has nothing to look at again
    commits = {int(p.name) for p in (lake.root / "checkpoints/orders/commits").iterdir() if p.name.isdigit()}
    assert commits == set(range(len(ledger)))


def test_a_killed_java_process_is_one_line_and_exit_code_5(tmp_path: Path, repo_root: Path) -> None:
    with streaming(tmp_path, repo_root) as (process, _):
        [java] = [p for p in psutil.Process(process.pid).children(recursive=True) if p.name() == "java"]
        java.kill()
        _, err = process.communicate(timeout=120)
    assert process.returncode == 5
    told = [line for line in err.splitlines() if not line.startswith("{")]
    assert len(told) == 1, told
    assert told[0].startswith("lazaretto: error 5: ")
    assert "the Java process of Spark is gone" in told[0]


@pytest.mark.parametrize("arguments", [["check"], ["check", "orders"]])
def test_check_reads_no_data(tmp_path: Path, repo_root: Path, arguments: list[str]) -> None:
    lake = make_lake(tmp_path, repo_root, "null")
    done = lazaretto("--conf", lake.conf, "--json", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert last_json(done)["datasets"][0]["row_rules"] == 5
    assert not lake.root.exists()
