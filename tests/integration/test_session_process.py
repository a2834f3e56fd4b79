"""A local session in a process of its own: what it must not print, and what it must not leave behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

# In a process of its own, as its JVM is stopped and its streams are read.
_STORY = """
import json, os, sys
from pathlib import Path
from lazaretto.jobs.session import local_session, stop_session

spark = local_session("story", cores="local[1]", memory="1g")
spark.range(3).write.format("delta").save(sys.argv[1])
count = spark.read.format("delta").load(sys.argv[1]).count()
spark.sql("create table by_name (id bigint) using delta")
try:
    spark.sql("select cast(value as int) from values ('a-secret-value') t(value)").collect()
except Exception as error:
    name = type(error).__name__
def fail(batch, _):
    raise ValueError("a-secret-value")
query = spark.readStream.format("rate").load().writeStream.foreachBatch(fail).trigger(once=True).start()
try:
    query.awaitTermination()
except Exception as error:
    stream = type(error).__name__
pid = spark.sparkContext._gateway.proc.pid
scratch = spark.conf.get("spark.sql.warehouse.dir")
stop_session(spark)
said = {"count": count, "error": name, "stream": stream}
print(json.dumps({**said, "pid": pid, "cwd": os.listdir(), "scratch": scratch}))
"""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    cwd = tmp_path_factory.mktemp("cwd")
    table = tmp_path_factory.mktemp("lake") / "table"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _STORY, str(table)], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *before, last = done.stdout.splitlines()
    return {**json.loads(last), "stdout": before, "stderr": done.stderr}


def test_delta_works_and_errors_are_raised(story: dict[str, Any]) -> None:
    assert story["count"] == 3
    assert story["error"] == "NumberFormatException"
    assert story["stream"] == "StreamingQueryException"


def test_the_terminal_stays_quiet(story: dict[str, Any]) -> None:
    assert story["stdout"] == []
    assert story["stderr"] == ""


def test_stopping_ends_the_jvm_and_leaves_no_files(story: dict[str, Any]) -> None:
    assert not psutil.pid_exists(story["pid"])
    assert story["cwd"] == []
    assert not Path(story["scratch"].removeprefix("file:")).parent.exists()
