"""Compaction: fewer files, the same rows, every version still there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from lazaretto.commit import Tables
from lazaretto.config import PathWarehouse
from lazaretto.observe import optimize


def test_optimize_makes_few_files_of_many_and_can_be_repeated(spark: Any, warehouse: Path) -> None:
    tables = Tables(PathWarehouse(root=warehouse), warehouse)
    path = tables.bronze("orders").path
    for _ in range(2):
        spark.range(0, 6, 1, 2).write.format("delta").mode("append").save(path)
    dataset = F.when(F.col("id") % 2 == 0, "orders").otherwise("returns").alias("dataset")
    held = spark.range(0, 8, 1, 2).select(dataset, "id")
    held.write.format("delta").partitionBy("dataset").save(tables.quarantine.path)

    seen: list[str] = []
    first = {r.table: r for r in optimize(spark, tables, "orders", on_table=seen.append)}
    assert seen == ["bronze/orders", "quarantine", "ingestion_status", "audit"]
    bronze = first["bronze/orders"]
    assert (bronze.files_after, bronze.changed) == (1, True)
    assert bronze.files_before == 4
    assert bronze.bytes_after < bronze.bytes_before
    # The other dataset's files were left alone.
    assert (first["quarantine"].files_before, first["quarantine"].files_after) == (4, 3)
    assert [r.table for r in first.values() if r.skipped] == ["ingestion_status", "audit"]

    again = {r.table: r for r in optimize(spark, tables, "orders")}
    assert (again["bronze/orders"].changed, again["bronze/orders"].version) == (False, bronze.version)

    rest = {r.table: r for r in optimize(spark, tables, datasets=["orders", "missing"])}
    assert (rest["quarantine"].files_after, rest["bronze/missing"].skipped) == (2, "there is no such table yet")
    assert tables.bronze("orders").read(spark).count() == 12
    assert tables.bronze("orders").read(spark, 0).count() == 6
