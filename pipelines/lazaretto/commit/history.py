"""Which Delta commit was ours: every write to bronze and quarantine carries a mark of its stage in `userMetadata`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lazaretto.commit.model import Step
from lazaretto.commit.stage import Manifest
from lazaretto.commit.tables import TableRef

_LOOKS = (1, 20, 400, 8000)
"""How many commits to look at, one after the other: ours is mostly the newest."""

_CLOCK_SKEW = timedelta(days=1)


@dataclass(frozen=True)
class Commit:
    """One Delta commit: its version, and the metrics it reports (numbers by Delta's own names)."""

    version: int
    mark: str | None
    metrics: dict[str, int]


def mark(manifest: Manifest, step: Step, probe_id: str) -> str:
    """The `userMetadata` of what this stage commits in this step, following this probe."""
    return f"lazaretto:{step.value}:{manifest.stage_id}:{probe_id}"


def newest(spark: SparkSession, table: TableRef) -> Commit:
    """The table's newest commit, whoever made it."""
    return _commits(spark, table, 1)[0][0]


def find(spark: SparkSession, table: TableRef, wanted: str, since: datetime) -> Commit | None:
    """The newest commit with this mark, looked for back to `since`; None when there is none."""
    for look in _LOOKS:
        commits = _commits(spark, table, look)
        for commit, _ in commits:
            if commit.mark == wanted:
                return commit
        if len(commits) < look or commits[-1][1] < (since - _CLOCK_SKEW).timestamp():
            return None
    return None


def _commits(spark: SparkSession, table: TableRef, limit: int) -> list[tuple[Commit, float]]:
    columns = ("version", "userMetadata", "operationMetrics", F.unix_millis("timestamp").alias("at_ms"))
    rows = table.delta(spark).history(limit).select(*columns).collect()
    return [
        (
            Commit(
                version=int(row["version"]),
                mark=row["userMetadata"],
                metrics={name: int(v) for name, v in (row["operationMetrics"] or {}).items() if v.isdigit()},
            ),
            row["at_ms"] / 1000,
        )
        for row in sorted(rows, key=lambda row: row["version"], reverse=True)
    ]
