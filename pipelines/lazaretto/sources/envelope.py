"""The envelope: the one shape in which every source hands over its records."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

COORDINATE = StructType(
    [
        StructField("system", StringType()),
        StructField("stream", StringType()),
        StructField("partition", StringType()),
        StructField("position", LongType()),
    ]
)
"""Where a record stands at its source: kafka/topic/partition/offset, or files/manifest or folder/file/record number."""

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

ENVELOPE = StructType(
    [
        StructField("source", COORDINATE),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
        StructField("source_time", TimestampType()),
    ]
)
"""The columns of every source, in order. `headers` is NULL, not empty, where there are none."""

ENVELOPE_DDL = (
    "source STRUCT<system: STRING, stream: STRING, partition: STRING, position: BIGINT>, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, source_time TIMESTAMP"
)


def coordinate(system: str, stream: Column, partition: Column, position: Column) -> Column:
    """The `source` column. `partition` is cast to STRING and `position` to BIGINT."""
    return F.struct(
        F.lit(system).alias("system"),
        stream.cast("STRING").alias("stream"),
        partition.cast("STRING").alias("partition"),
        position.cast("BIGINT").alias("position"),
    ).alias("source")


def file_envelope(records: DataFrame, stream: str) -> DataFrame:
    """The envelope of `path`, `position`, `value`, `changed_at`: no key, no headers, the file's time as source time."""
    return records.select(
        coordinate("files", F.lit(stream), F.col("path"), F.col("position")),
        F.lit(None).cast(BinaryType()).alias("key"),
        F.col("value"),
        F.lit(None).cast(HEADERS).alias("headers"),
        F.col("changed_at").alias("source_time"),
    )


def envelope_differences(df: DataFrame) -> list[str]:
    """What keeps `df` from being an envelope: a line for each column missing, extra, moved or of another type.

    Nullability is not compared.
    """
    found = [(f.name, _plain(f.dataType)) for f in df.schema.fields]
    wanted = [(f.name, _plain(f.dataType)) for f in ENVELOPE.fields]
    lines = [f"missing {name} {kind}" for name, kind in wanted if (name, kind) not in found]
    lines += [f"not wanted {name} {kind}" for name, kind in found if (name, kind) not in wanted]
    if not lines and found != wanted:
        lines.append("columns are in another order: " + ", ".join(name for name, _ in found))
    return lines


def _plain(kind: DataType) -> str:
    return kind.simpleString()
