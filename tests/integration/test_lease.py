"""One writer at a time on a local disk: what a second process is told, and that no acknowledged commit is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from deltalake import DeltaTable

from lazaretto.commit import TableRef, job_lease
from lazaretto.errors import CommitConflictError, SinkError
from lazaretto.jobs.stream import run_stream

from ..committing import interpreted
from .lake import make_lake, new_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10


@contextmanager
def second_process(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", Path(__file__).with_name("holder.py"), *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("killed", ["python", "jvm"])
def test_a_second_job_is_told_who_writes_and_goes_on_when_the_owner_is_dead(
    spark: SparkSession, repo_root: Path, tmp_path: Path, killed: str
) -> None:
    (tmp_path / "landing").mkdir()
    lake = make_lake(tmp_path, repo_root, '{"kind": "files", "path": "./landing"}')
    dataset = lake.open()
    file = dataset.tables.lease_file("orders")
    assert file is not None
    with second_process("hold", file) as owner:
        assert owner.stdout is not None
        java = psutil.Process(int(owner.stdout.readline()))
        waits: list[str] = []
        with (
            pytest.raises(CommitConflictError) as refused,
            job_lease(spark, file, job="batch", run_id="ours", wait_s=0.5, on_wait=lambda: waits.append("once")),
        ):
            pytest.fail("two jobs at once")
        told = str(refused.value)
        assert f"stream, process {owner.pid} on " in told
        assert "run run-of-the-holder, since 20" in told
        assert (refused.value.exit_code, waits) == (5, ["once"])

        os.kill(owner.pid if killed == "python" else java.pid, signal.SIGKILL)
        # the real job waits by itself for what is left of the old one
        run_stream(spark, dataset, new_run(), trigger={"availableNow": True})
        assert not java.is_running() or java.status() == psutil.STATUS_ZOMBIE
    assert file.with_suffix(".json").is_file()


def test_two_processes_append_to_one_table_and_nothing_acknowledged_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = TableRef("t", path=str(tmp_path / "table"))
    with interpreted(spark), second_process("append", table.path, ROWS, "theirs") as other:
        table.append(spark.sql("select 'ours' as writer, 0 as number"))
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        other.stdin.write("go\n")
        other.stdin.flush()
        for number in range(1, ROWS):
            table.append(spark.sql(f"select 'ours' as writer, {number} as number"))
        assert other.wait(120) == 0
    rows = DeltaTable(str(table.path)).to_pyarrow_table().to_pylist()
    found = sorted((row["writer"], row["number"]) for row in rows)
    assert found == sorted((writer, number) for writer in ("ours", "theirs") for number in range(ROWS))


def test_threads_of_one_process_take_turns(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "leases" / "orders.lock"
    inside: list[str] = []
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with job_lease(spark, file, job="stream", run_id="other"):
            inside.append("other in")
            entered.set()
            leave.wait(30)
            inside.append("other out")

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(30)
    with pytest.raises(CommitConflictError), job_lease(spark, file, job="batch", run_id="ours", wait_s=0.2):
        pytest.fail("two jobs at once")
    leave.set()
    with job_lease(spark, file, job="batch", run_id="ours"):
        inside.append("ours")
    thread.join(30)
    assert inside == ["other in", "other out", "ours"]


def test_a_catalogs_table_is_not_locked_and_a_folder_that_cannot_be_is_a_sink_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    with job_lease(spark, None, job="stream", run_id="ours"):
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "leases").write_text("a file")
    with (
        pytest.raises(SinkError, match="the lock could not be taken"),
        job_lease(spark, tmp_path / "leases" / "orders.lock", job="stream", run_id="ours"),
    ):
        pytest.fail("no lock, no lease")
