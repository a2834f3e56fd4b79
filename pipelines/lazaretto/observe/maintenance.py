"""Keep the tables quick to read: many small files into few. Never deletes: old files stay for readers of old versions.

Removing them (VACUUM) is a decision about how long published versions can be read, and is not made here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from lazaretto.commit import TableRef, Tables
from lazaretto.commit.lease import table_lock
from lazaretto.commit.spark_edge import edge


@dataclass(frozen=True)
class OptimizeResult:
    """What compaction did to one table; sizes in bytes. `skipped` says why nothing was tried, else it is None."""

    table: str
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    version: int | None = None
    skipped: str | None = None

    @property
    def changed(self) -> bool:
        """Whether files were rewritten."""
        return (self.files_before, self.bytes_before) != (self.files_after, self.bytes_after)


def optimize(
    spark: SparkSession,
    tables: Tables,
    dataset: str | None = None,
    *,
    datasets: Iterable[str] | None = None,
    on_table: Callable[[str], None] = lambda title: None,
) -> list[OptimizeResult]:
    """Compact bronze, quarantine, ledger and audit; of the quarantine only the dataset's part where one is named.

    Rows do not change and no version is lost, so it may run at any time and as often as wanted, also while batches are
    committed: a batch that collides with it is tried again by itself, and so may this be. A table that is not there is
    skipped and reported.

    Args:
        dataset: its bronze table, and its part of the quarantine; all of them by default.
        datasets: which ones there are, for instance the settings' names; by default those that the ledger knows.
        on_table: told the title of each table before its turn.

    Raises:
        CommitConflictError: a batch was committed to the same files meanwhile; run again.
        SinkError: a table cannot be read or written.
    """
    known = (dataset,) if dataset is not None else datasets
    names = sorted(_in_ledger(spark, tables) if known is None else known)
    partition = None if dataset is None else _equals("dataset", dataset)
    work: list[tuple[TableRef, str | None]] = [(tables.bronze(name), None) for name in names]
    work += [(tables.quarantine, partition), (tables.ingestion_status, None), (tables.audit, None)]
    results = []
    for table, where in work:
        on_table(table.title)
        results.append(_optimize(spark, table, where))
    return results


def _optimize(spark: SparkSession, table: TableRef, where: str | None) -> OptimizeResult:
    with edge(f"table {table.title} could not be compacted", str(table)):
        if not table.exists(spark):
            return OptimizeResult(table.title, skipped="there is no such table yet")
        delta = table.delta(spark)
        before = _size(delta.detail().collect()[0])
        builder = delta.optimize()
        if where is not None:
            builder = builder.where(where)
        with table_lock(spark, table.path):
            builder.executeCompaction()
        # From the table, not from the metrics: what a reader now finds.
        after = _size(delta.detail().collect()[0])
        version = delta.history(1).select(F.col("version")).collect()[0]["version"]
    return OptimizeResult(table.title, before[0], after[0], before[1], after[1], version)


def _in_ledger(spark: SparkSession, tables: Tables) -> list[str]:
    table = tables.ingestion_status
    with edge("the ledger could not be read", str(table)):
        if not table.exists(spark):
            return []
        return [row["dataset"] for row in table.read(spark).select("dataset").distinct().collect()]


def _size(detail: Row) -> tuple[int, int]:
    return int(detail["numFiles"] or 0), int(detail["sizeInBytes"] or 0)


def _equals(column: str, value: str) -> str:
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{column} = '{quoted}'"
