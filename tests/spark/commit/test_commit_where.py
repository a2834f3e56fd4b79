"""The same tables by catalog name, and with a VARIANT column."""

from __future__ import annotations

from collections.abc import Iterator

import deltalake
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lazaretto.commit import Tables, read_published, screened_ddl
from lazaretto.config import CatalogWarehouse, OnMatch
from lazaretto.contracts import Contract, UnknownFields
from lazaretto.errors import SinkError


@pytest.fixture
def schema(spark) -> Iterator[str]:
    spark.sql("CREATE SCHEMA lazaretto_commit")
    yield "lazaretto_commit"
    spark.sql("DROP SCHEMA lazaretto_commit CASCADE")


def test_tables_by_name(lake, rec, bad, schema, spark, tmp_path):
    warehouse = CatalogWarehouse(catalog="spark_catalog", schema=schema, files=tmp_path)
    lake.tables = Tables(warehouse, tmp_path)
    result = lake.run([rec("a", 1), rec("a", 2, amount=2), bad(None, 3)])
    assert (result.records_inserted, result.records_quarantined) == (1, 2)
    names = [row["tableName"] for row in spark.sql(f"SHOW TABLES IN {schema}").collect()]
    assert sorted(names) == ["bronze_orders", "ingestion_status", "quarantine"]
    assert read_published(spark, lake.tables, "orders").count() == 1
    assert lake.run([]).already_committed
    nowhere = CatalogWarehouse(catalog="spark_catalog", schema="lazaretto_nowhere", files=tmp_path)
    lake.tables = Tables(nowhere, tmp_path)
    with pytest.raises(SinkError, match="SCHEMA_NOT_FOUND"):
        lake.run([], "b2")


def test_unknown_fields_are_kept(lake, rec, spark):
    plain = lake.contract
    lake.contract = Contract("orders", "1.0.0", plain.fields, UnknownFields.KEEP)
    lake.with_policy(on_match=OnMatch.UPDATE_IF_NEWER)
    rows = lake.frame

    def frame(records) -> DataFrame:
        lake.contract, kept = plain, lake.contract
        flat = rows(records)
        lake.contract = kept
        unknown = F.parse_json(F.format_string('{"extra":%s}', F.col("record.amount").cast("string")))
        record = F.when(F.col("record").isNotNull(), F.struct("record.*", unknown.alias("_unknown")))
        return flat.withColumn("record", record).to(flat.sparkSession.createDataFrame([], screened_ddl(kept)).schema)

    lake.frame = frame
    lake.run([rec("a", 1), rec("b", 2, amount=2)])
    lake.run([rec("a", 3, amount=7, minute=1), rec("c", 4)], "b2")
    found = lake.bronze_table.read(spark).select("event_id", F.to_json("_unknown")).collect()
    assert sorted(tuple(r) for r in found) == [("a", '{"extra":7}'), ("b", '{"extra":2}'), ("c", '{"extra":1}')]
    assert len(deltalake.DeltaTable(lake.bronze_table.path).to_pyarrow_table()) == 3
