"""Kafka: a topic as a stream, or a range of its offsets as a batch.

Only committed records are read, and lost offsets stop the query: both are fixed here, not options.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lazaretto.config import KafkaSource
from lazaretto.errors import ConfigurationError
from lazaretto.sources.envelope import coordinate

_OURS = frozenset(
    {
        "bootstrap.servers",
        "isolation.level",
        "auto.offset.reset",
        "enable.auto.commit",
        "key.deserializer",
        "value.deserializer",
        "interceptor.classes",
    }
)


def read_kafka_stream(spark: SparkSession, source: KafkaSource, starting: Mapping[int, int] | None = None) -> DataFrame:
    """The topic as a stream of Kafka's own columns; give each micro-batch to `kafka_envelope`.

    Where it begins is decided by `starting`, else by `starting_offsets`, for a new checkpoint only; later by the
    checkpoint.

    Args:
        starting: partition -> the offset of its first record, for every partition there is.

    Raises:
        ConfigurationError: an option of the source is not one that may be set.
    """
    return (
        spark.readStream.format("kafka")
        .options(**_options(source))
        .option("subscribe", source.topic)
        .option("startingOffsets", _offsets(source.topic, starting) if starting else source.starting_offsets)
        .option("maxOffsetsPerTrigger", source.max_offsets_per_trigger)
        .load()
    )


def read_kafka_range(
    spark: SparkSession, source: KafkaSource, start: Mapping[int, int], end: Mapping[int, int]
) -> DataFrame:
    """The envelope of the committed records with `start[p] <= offset < end[p]`, for each partition `p` of both.

    Offsets that hold no record (transaction markers, aborted records, compacted ones) give no row.

    Raises:
        ConfigurationError: the two name different partitions, or an option may not be set.
    """
    if set(start) != set(end) or not start:
        raise ConfigurationError("start and end must name the same partitions", where=f"topic {source.topic}")
    df = (
        spark.read.format("kafka")
        .options(**_options(source))
        .option("assign", json.dumps({source.topic: sorted(start)}))
        .option("startingOffsets", _offsets(source.topic, start))
        .option("endingOffsets", _offsets(source.topic, end))
        .load()
    )
    return kafka_envelope(df)


def kafka_envelope(df: DataFrame) -> DataFrame:
    """The envelope of what Spark's Kafka source gives: system `kafka`, stream the topic, position the offset.

    `source_time` is the record's own timestamp (the producer's, or the broker's where the topic says so).
    """
    return df.select(
        coordinate("kafka", F.col("topic"), F.col("partition"), F.col("offset")),
        F.col("key"),
        F.col("value"),
        F.col("headers"),
        F.col("timestamp").alias("source_time"),
    )


def _options(source: KafkaSource) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": source.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
    }
    return {**options, **{f"kafka.{name}": value for name, value in client_options(source).items()}}


def client_options(source: KafkaSource) -> dict[str, str]:
    """The source's `options` by the names of Kafka's client, a `kafka.` before them taken off.

    Raises:
        ConfigurationError: one of them is fixed by this package; the message names it without its value.
    """
    named = {name.removeprefix("kafka."): value for name, value in source.options.items()}
    fixed = sorted(_OURS & named.keys())
    if fixed:
        raise ConfigurationError(
            f"Kafka option {fixed[0]} cannot be set", where=f"topic {source.topic}", remedy="remove it from `options`"
        )
    return named


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(p): o for p, o in sorted(offsets.items())}})
