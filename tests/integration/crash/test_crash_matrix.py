"""Killed at every point, run again, checked by the verifier: docs/crash-matrix.md is made of these tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lazaretto.errors import LazarettoError

from ...committing import INTERPRETED, interpreted
from ..lake import Lake, deliver, make_lake, order
from . import worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
VERIFIER = HERE.parent.parent / "verifier" / "verify.py"

# Nothing happens between the end of a step and the beginning of the next: one of the two stands for both.
POINTS = (
    "stage before", "stage written", "stage after", "gate after", "probe after", "quarantine written",
    "quarantine after", worker.INSIDE_MERGE, "bronze written", "bronze after", "ledger written", "ledger after",
    worker.DONE, worker.NOTED,
)  # fmt: skip
PUBLISHED = ("ledger written", "ledger after", worker.DONE, worker.NOTED)
KILLS = ("python", "jvm", "both")
PER_BATCH = 12


def records(batch: int) -> list[bytes | None]:
    """Twelve records: what lands, what is held, what comes twice and what conflicts, in the batch and with others."""
    n = 100 * batch
    again = order(f"e{max(n - 100, 0)}", amount=1.0)
    return [
        order(f"e{n}", amount=1.0), order(f"e{n + 1}"), order(f"e{n + 2}"), order(f"e{n + 1}"),  # the last: a duplicate
        order(f"e{n + 2}", amount=77.0), b'{"event_id": ', again, order(f"e{n + 3}", quantity=-1), None,
        order(f"e{n + 4}"), order(f"e{n + 5}"), b"[]",
    ]  # fmt: skip


@dataclass
class Job:
    """A job over a lake, killed and run again."""

    lake: Lake
    folder: Path
    verify: list[str]
    manifests: list[Path] = field(default_factory=list)
    spark: SparkSession | None = None
    runs: int = 0

    def run(self, batch: int | None = None, point: str | None = None, kill: str | None = None) -> int:
        """The exit code of one run, killed at the point of the batch; negative for the signal that ended it."""
        self.runs += 1
        last = len(self.manifests) if batch is None else batch + 1
        first = 0 if batch is None else max(batch - 1, 0)
        plan = {
            "conf": str(self.lake.conf), "settings": INTERPRETED, "point": point, "batch": batch, "kill": kill,
            "report": str(self.folder / "struck.jsonl"),
            "manifests": [str(m) for m in self.manifests[first:last]] or None,
        }  # fmt: skip
        return self._here(plan) if self.spark else self._apart(plan)

    def _here(self, plan: dict[str, Any]) -> int:
        assert self.spark is not None
        try:
            worker.work(self.spark, plan)
        except LazarettoError as error:
            return error.exit_code
        except worker.CrashError:
            return 1
        return 0

    def _apart(self, plan: dict[str, Any]) -> int:
        file = self.folder / f"plan-{self.runs}.json"
        file.write_text(json.dumps(plan), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-W", "ignore", worker.__file__, file], capture_output=True, text=True, check=False
        )
        (self.folder / f"run-{self.runs}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode

    @property
    def struck(self) -> list[str]:
        file = self.folder / "struck.jsonl"
        return [json.loads(line)["struck"] for line in file.read_text().splitlines()] if file.exists() else []

    def committed(self) -> int:
        return sum(row["status"] == "committed" for row in self.lake.ledger)

    def check(self) -> dict[str, Any]:
        """What the verifier finds."""
        done = subprocess.run(
            [sys.executable, VERIFIER, "--warehouse", self.lake.root, "--dataset", "orders", *self.verify],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout)
        assert (done.returncode == 0) == found["ok"]
        return found


# All chains share the machine.
pytestmark = pytest.mark.timeout(1500)

Results = dict[tuple[str, str, str], list[tuple[str, str]]]
"""(source, chain, how) -> what was killed where, of the chains that ended clean."""


def expected_exits(kill: str, point: str) -> set[int]:
    """A killed Python has no exit code of its own; one whose JVM was killed says so, as of a sink that is gone."""
    codes = {"jvm": {5}, "raise": {1}}.get(kill, {-9})
    # The batch is published: a job that needs no Spark any more ends well. Jobs that Spark cancels fail at the sink.
    if kill == "jvm" and point in PUBLISHED:
        return codes | {0}
    return codes | {5} if kill == "raise" and point == worker.INSIDE_MERGE else codes


@pytest.fixture(scope="module")
def results() -> Results:
    """Filled by the tests of this module, read by the last of them."""
    return {}


MakeJob = Callable[[str, int, "SparkSession | None"], Job]


@pytest.fixture(scope="module")
def make_job(make_topic: Callable[..., Any], repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeJob:
    """`make_job(source, batches, spark)`: a lake, and as many batches waiting for it."""
    # pytest's own is not for several threads
    root = tmp_path_factory.mktemp("crash")

    def make(source: str, batches: int, spark: SparkSession | None) -> Job:
        folder = Path(tempfile.mkdtemp(prefix=f"{source}-", dir=root))
        if source == "manifest":
            lake = make_lake(folder, repo_root, "null")
            sent = [
                deliver(folder / "sent", f"m-{n}", {f"part-{n}.jsonl": [r or b"" for r in records(n)]})
                for n in range(batches)
            ]
            return Job(lake, folder, [x for m in sent for x in ("--manifest", str(m))], sent, spark)
        topic = make_topic(partitions=2)
        settings = {
            "kind": "kafka", "bootstrap_servers": topic.bootstrap_servers, "topic": topic.name,
            "starting_offsets": "earliest", "max_offsets_per_trigger": PER_BATCH,
        }  # fmt: skip
        lake = make_lake(folder, repo_root, json.dumps(settings))
        for n in range(batches):
            some = records(n)
            topic.produce(some[::2], partition=0)
            topic.produce(some[1::2], partition=1)
        verify = ["--kafka", topic.bootstrap_servers, "--topic", topic.name]
        verify += ["--checkpoint", str(lake.root / "checkpoints" / "orders")]
        return Job(lake, folder, verify, [], spark)

    return make


def once(make_job: MakeJob, source: str, kills: Sequence[str], spark: SparkSession | None) -> list[tuple[str, str]]:
    """Batch n is killed at point n; the next run brings it to its end, and is killed in the batch after it."""
    # Spark's own notes exist for streams only.
    points = [p for p in POINTS if source == "kafka" or p != worker.NOTED]
    job = make_job(source, len(points) + 1, spark)
    killed = []
    for number, point in enumerate(points):
        kill = kills[number % len(kills)]
        code = job.run(number, point, kill)
        killed.append((point, kill))
        assert job.struck == points[: number + 1]
        assert code in expected_exits(kill, point), (point, kill, code)
        # what came before is published; what was killed only if its ledger row was there
        assert job.committed() == number + (point in PUBLISHED), point
    finish(job, len(points) + 1)
    return killed


def recovery(make_job: MakeJob, source: str, kills: Sequence[str], spark: SparkSession | None) -> list[tuple[str, str]]:
    """One batch, killed at a point; its recovery is killed at the next point, and so on to the last."""
    # A MERGE killed inside may have committed: its recovery then has nothing to write. Once the ledger has the batch,
    # its steps are not reached again.
    points = [p for p in POINTS[: POINTS.index("ledger written") + 1] if p != worker.INSIDE_MERGE]
    job = make_job(source, 3, spark)
    killed = []
    for number, point in enumerate(points):
        # other processes than in `once`
        kill = kills[(number + 1) % len(kills)]
        code = job.run(1, point, kill)
        killed.append((point, kill))
        assert job.struck == points[: number + 1]
        assert code in expected_exits(kill, point), (point, kill, code)
    finish(job, 3)
    return killed


def finish(job: Job, batches: int) -> None:
    """Run to the end, and have everything verified."""
    assert job.run() == 0
    found = job.check()
    assert found["problems"] == []
    assert (found["produced"], found["committed_batches"]) == (PER_BATCH * batches, batches)
    assert found["bronze"] > 0 < found["duplicates"]
    assert found["quarantine"] > 0


CHAINS = {"once": once, "recovery": recovery}
COLUMNS = [(source, chain) for source in ("kafka", "manifest") for chain in CHAINS]


@pytest.fixture(scope="module")
def killing(make_job: MakeJob) -> Iterator[dict[tuple[str, str], Future[list[tuple[str, str]]]]]:
    """The chains of SIGKILLs, side by side and beside the others: their processes leave half of two cores idle."""
    with ThreadPoolExecutor(len(COLUMNS)) as pool:
        yield {(s, c): pool.submit(CHAINS[c], make_job, s, KILLS, None) for s, c in COLUMNS}


@pytest.mark.usefixtures("killing")
@pytest.mark.parametrize(("source", "chain"), COLUMNS)
def test_raised_at_every_point(
    source: str, chain: str, make_job: MakeJob, spark: SparkSession, results: Results
) -> None:
    with interpreted(spark):
        results[(source, chain, "raise")] = CHAINS[chain](make_job, source, ("raise",), spark)


@pytest.mark.parametrize(("source", "chain"), COLUMNS)
def test_killed_at_every_point(source: str, chain: str, killing: Any, results: Results) -> None:
    results[(source, chain, "kill")] = killing[(source, chain)].result()


def test_the_page_is_made_of_these_results(results: Results, repo_root: Path) -> None:
    """The last test: needs all the others of this module to have run, and to have ended clean."""
    assert set(results) == {(*column, how) for column in COLUMNS for how in ("raise", "kill")}
    lines = []
    for point in POINTS:
        cells = []
        for column in COLUMNS:
            told = [kill for how in ("raise", "kill") for p, kill in results[(*column, how)] if p == point]
            cells.append(", ".join(told) or "-")
        lines.append(f"| {point} | {' | '.join(cells)} |")
    page = repo_root / "docs" / "crash-matrix.md"
    head, mark, _ = page.read_text(encoding="utf-8").partition("|---|---|---|---|---|\n")
    made = head + mark + "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        page.write_text(made, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == made
