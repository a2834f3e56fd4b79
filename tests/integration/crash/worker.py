"""A job in a process of its own, killed where the test says. Run as a script: `worker.py PLAN.json`.

The plan: `{"conf", "settings": of the session, "manifests": [files] or null for the stream, "point", "batch", "kill",
"report"}`. At the point, in the batch whose id ends with `batch`, the processes named by `kill` (`python`, `jvm`,
`both`) get SIGKILL; for `raise` there is an exception instead. Without a point the job runs to its end. Exit codes are
those of the command line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from lazaretto.commit import Step
from lazaretto.config import load_settings
from lazaretto.errors import LazarettoError
from lazaretto.jobs.batch import run_manifest
from lazaretto.jobs.dataset import open_dataset
from lazaretto.jobs.run import Run
from lazaretto.jobs.session import local_session, stop_session
from lazaretto.jobs.stream import run_stream
from lazaretto.observe import get_logger

INSIDE_MERGE = "bronze inside"
"""While the MERGE runs: its first file is there, its commit is not (or just came)."""

DONE = "batch done"
"""The batch function returns: the ledger has its row, Spark has not noted the batch yet."""

NOTED = "batch noted"
"""Spark has written `commits/N`."""

SHORT_LIFE = {
    # The better compiler pays off after minutes; these processes live for seconds.
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"
}


class CrashError(Exception):
    """What `raise` raises."""


class Killer:
    """Watches for the point and kills there, once."""

    def __init__(self, plan: Mapping[str, Any], bronze: Path, checkpoint: Path) -> None:
        self.point = plan.get("point")
        self.batch = str(plan.get("batch", ""))
        self.kill = plan.get("kill")
        self.report = Path(plan["report"])
        self.bronze = bronze
        self.checkpoint = checkpoint
        self.struck = False

    def on_step(self, step: Step, info: Mapping[str, Any]) -> None:
        if self.struck and self.kill == "raise":
            raise CrashError
        if not self._is_mine(info["batch_id"]):
            return
        here = f"{step} {info['when']}"
        if self.point == INSIDE_MERGE and here == "bronze before":
            self.on_rows()
        if here == self.point:
            self._strike()

    def on_batch(self, batch_id: str) -> None:
        if not self._is_mine(batch_id):
            return
        if self.point == NOTED:
            number = batch_id.rsplit("-", 1)[1]
            self._watch((self.checkpoint / "commits" / number).exists)
        if self.point == DONE:
            self._strike()

    def on_rows(self) -> None:
        """The point is when the next file of bronze appears."""
        before = set(self.bronze.rglob("*.parquet"))
        self._watch(lambda: set(self.bronze.rglob("*.parquet")) - before)

    def _is_mine(self, batch_id: str) -> bool:
        return batch_id.endswith(f"-{self.batch}")

    def _watch(self, reached: Callable[[], object]) -> None:
        def look() -> None:
            while not reached():
                time.sleep(0.001)
            self._strike(from_outside=True)

        threading.Thread(target=look, daemon=True).start()

    def _strike(self, *, from_outside: bool = False) -> None:
        """Say so, durably, then kill."""
        point, self.point = self.point, None
        with self.report.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"struck": point, "batch": self.batch, "kill": self.kill}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.struck = True
        context = SparkContext._active_spark_context
        assert context is not None
        if self.kill == "raise":
            if not from_outside:
                raise CrashError
            context.cancelAllJobs()
        if self.kill in ("jvm", "both"):
            os.kill(context._gateway.proc.pid, signal.SIGKILL)
        if self.kill in ("python", "both"):
            os.kill(os.getpid(), signal.SIGKILL)


def work(spark: SparkSession, plan: Mapping[str, Any]) -> None:
    """The job of the plan."""
    dataset = open_dataset(load_settings(Path(plan["conf"])), "orders")
    bronze = Path(str(dataset.tables.bronze("orders").path))
    killer = Killer(plan, bronze, dataset.tables.checkpoint_dir("orders"))
    run = Run(get_logger(), operator="tester")
    if plan.get("manifests") is None:
        run_stream(
            spark, dataset, run, trigger={"availableNow": True}, on_step=killer.on_step,
            on_batch=lambda result: killer.on_batch(result.batch_id),
        )  # fmt: skip
    else:
        for manifest in plan["manifests"]:
            result = run_manifest(spark, dataset, Path(manifest), run, on_step=killer.on_step)
            if not result.already_committed:
                killer.on_batch(result.batch_id)


def main() -> int:
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = local_session("crash", cores="local[2]", memory="1g", extra={**plan["settings"], **SHORT_LIFE})
    try:
        work(spark, plan)
    except LazarettoError as error:
        sys.stderr.write(f"error {error.exit_code}: {error}\n")
        return error.exit_code
    finally:
        stop_session(spark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
