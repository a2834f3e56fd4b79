"""Which Delta commit was ours: every write to bronze and quarantine carries a mark of its stage in `userMetadata`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lazaretto.commit.frozen import Manifest
from lazaretto.commit.model import Step
from lazaretto.commit.spark_edge import edge
from lazaretto.commit.tables import TableRef

_LOOKS = (1, 20, 400, 8000)
"""How many commits to look at, one after the other: ours is mostly the newest."""

_CLOCK_SKEW = timedelta(days=1)


@dataclass(frozen=True)
class Commit:
    """One Delta commit: its version, and the metrics it reports (numbers by Delta's own names).

    `restored` is the version that a RESTORE brought back: -1 when it was named by a time, None for other commits.
    """

    version: int
    mark: str | None
    metrics: dict[str, int]
    restored: int | None = None


def mark(manifest: Manifest, step: Step, probe_id: str) -> str:
    """The `userMetadata` of what this stage commits in this step, following this probe."""
    return f"lazaretto:{step.value}:{manifest.stage_id}:{probe_id}"


def newest(spark: SparkSession, table: TableRef) -> Commit:
    """The table's newest commit, whoever made it."""
    return _commits(spark, table, 1)[0][0]


def current_version(spark: SparkSession, table: TableRef) -> int | None:
    """The table's version; None when there is no table."""
    if not table.exists(spark):
        return None
    with edge(f"the history of table {table.title} could not be read", str(table)):
        return newest(spark, table).version


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


def kept_version(spark: SparkSession, table: TableRef, known: int) -> int | None:
    """The version whose rows are left of a table that was at version `known` once; None when nothing was taken back.

    A copy from a backup has fewer versions than that; Delta's RESTORE is a newer commit that says what it went back to.
    -1 when the table is gone, or nobody can tell.

    Raises:
        SinkError: the table cannot be read.
    """
    version = current_version(spark, table)
    if version is None or version < known:
        return -1 if version is None else version
    since = min(version - known, _LOOKS[-1])
    with edge(f"the history of table {table.title} could not be read", str(table)):
        commits = _commits(spark, table, since) if since else []
    back = [c.restored for c, _ in commits if c.version > known and c.restored is not None and c.restored < known]
    return min(back, default=None)


def _commits(spark: SparkSession, table: TableRef, limit: int) -> list[tuple[Commit, float]]:
    columns = (
        "version", "userMetadata", "operation", "operationMetrics",
        F.col("operationParameters").getItem("version").alias("restored"),
        F.unix_millis("timestamp").alias("at_ms"),
    )  # fmt: skip
    rows = table.delta(spark).history(limit).select(*columns).collect()
    return [
        (
            Commit(
                version=int(row["version"]),
                mark=row["userMetadata"],
                metrics={name: int(v) for name, v in (row["operationMetrics"] or {}).items() if v.isdigit()},
                restored=_number(row["restored"]) if row["operation"] == "RESTORE" else None,
            ),
            row["at_ms"] / 1000,
        )
        for row in sorted(rows, key=lambda row: row["version"], reverse=True)
    ]


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else -1
