"""One writer at a time where the store does not arbitrate: two processes that append to one table on a local disk lose
commits that Delta has acknowledged.

The lock is a kernel lock on a file, held by the process that commits: Spark's JVM. The kernel frees it when that
process is dead and not before, so nobody has to guess by time whether an owner still lives, and an owner that lost the
lock cannot commit any more. docs/adr/0004-writer-lease.md has the reasons.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from lazaretto.commit.durable import write_json
from lazaretto.commit.spark_edge import edge
from lazaretto.errors import CommitConflictError, SinkError

JOB_WAIT_S = 60.0
"""How long a job waits for another one to end: long enough for the Java process of a killed one."""

TABLE_WAIT_S = 600.0
"""How long a commit waits for another one: a compaction may take minutes, and a dead writer frees its lock at once."""

_POLL_S = 0.05

# A second channel on a locked file would free the lock when it is closed: within this process, threads queue up here.
_QUEUES: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


@contextmanager
def job_lease(
    spark: SparkSession,
    file: Path | None,
    *,
    job: str,
    run_id: str,
    wait_s: float = JOB_WAIT_S,
    on_wait: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Be the only job that writes a dataset, from here to the end of the block.

    Args:
        file: the lock's file; its folder is made. None where a catalog arbitrates: nothing is locked.
        job, run_id: who we are, for whoever comes second.
        on_wait: called once when another job has it.

    Raises:
        CommitConflictError: another job still has it after `wait_s` seconds; it is named.
        SinkError: the lock cannot be taken at all.
    """
    if file is None:
        yield
        return
    owner = file.with_suffix(".json")
    with contextlib.ExitStack() as held:
        if not _take(held, spark, file, wait_s, on_wait):
            raise CommitConflictError(
                f"another job writes this dataset: {_told(owner)}", where=str(file),
                remedy="wait for it or stop it, then run again",
            )  # fmt: skip
        with edge("the lease could not be noted", str(file)):
            since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            write_json(
                owner, {"host": socket.gethostname(), "pid": os.getpid(), "job": job, "run_id": run_id, "since": since}
            )
        yield


@contextmanager
def table_lock(spark: SparkSession, table_path: str | None, *, wait_s: float = TABLE_WAIT_S) -> Iterator[None]:
    """Be the only process that commits to a table, for one commit. None, a catalog's table, is not locked.

    Raises:
        SinkError: another process has it after `wait_s` seconds, or it cannot be taken at all.
    """
    if table_path is None:
        yield
        return
    table = Path(table_path)
    file = table.with_name(f".{table.name}.lock")
    with contextlib.ExitStack() as held:
        if not _take(held, spark, file, wait_s, lambda: None):
            raise SinkError(
                f"another process has been committing to this table for {wait_s:.0f} s", where=table_path,
                remedy="look for a job that hangs (a compaction takes its time), then run again",
            )  # fmt: skip
        yield


def _take(
    held: contextlib.ExitStack, spark: SparkSession, file: Path, wait_s: float, on_wait: Callable[[], None]
) -> bool:
    """Take the lock and have `held` give it back; False when somebody else still has it after `wait_s` seconds."""
    deadline = time.monotonic() + wait_s
    queue = _QUEUES[os.path.realpath(file)]
    waited = False
    if not queue.acquire(blocking=False):
        on_wait()
        waited = True
        if not queue.acquire(timeout=wait_s):
            return False
    held.callback(queue.release)
    with edge("the lock could not be taken", str(file)):
        file.parent.mkdir(parents=True, exist_ok=True)
        channel = spark._jvm.java.io.RandomAccessFile(str(file), "rw").getChannel()  # type: ignore[union-attr]
        held.callback(_close, channel)
        while channel.tryLock() is None:
            if time.monotonic() > deadline:
                return False
            if not waited:
                on_wait()
                waited = True
            time.sleep(_POLL_S)
    return True


def _close(channel: Any) -> None:
    # With the JVM gone the kernel has freed the lock.
    with contextlib.suppress(Py4JError, ConnectionError):
        channel.close()


def _told(owner: Path) -> str:
    """Who noted itself last; whoever has just taken the lock may not have done so yet."""
    try:
        noted = json.loads(owner.read_text(encoding="utf-8"))
        return (
            f"{noted['job']}, process {noted['pid']} on {noted['host']}, run {noted['run_id']}, since {noted['since']}"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return "it has not said which"
