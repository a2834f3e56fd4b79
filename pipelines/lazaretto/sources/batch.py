"""A verified manifest as an envelope."""

from __future__ import annotations

from functools import reduce
from itertools import groupby
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lazaretto.config import FileFormat
from lazaretto.errors import BatchClass, BatchRejectedError
from lazaretto.sources.copies import COPY_SUFFIX
from lazaretto.sources.counting import CSV_SEPARATOR
from lazaretto.sources.envelope import ENVELOPE, file_envelope
from lazaretto.sources.files import decoded, read_lines, read_rows
from lazaretto.sources.manifest import Manifest
from lazaretto.sources.verify import Verified


def manifest_envelope(spark: SparkSession, manifest: Manifest, verified: Verified) -> DataFrame:
    """The envelope of all records of a manifest, read from the verified copies.

    Stream is the manifest's id, partition the file's path as in the manifest, position the record's number in the file.
    `value` is a line (jsonl), a CSV record without its line ending and without the header, or a Parquet or Avro row
    as JSON. `source_time` is when the delivered file was last changed.

    Raises:
        BatchRejectedError: some file has a problem, or Spark cannot read its schema.
        SourceError: a copy has gone.
    """
    if verified.problems:
        first = verified.problems[0]
        raise BatchRejectedError(
            f"{first.path} {first.reason}", where=f"manifest {manifest.manifest_id}",
            remedy="have the sender deliver it again under a new manifest", error_class=verified.error_class,
        )  # fmt: skip
    if not verified.files:
        return spark.createDataFrame([], ENVELOPE)
    try:
        records = _records(spark, manifest, verified)
    except AnalysisException as exc:
        raise BatchRejectedError(
            f"Spark cannot read these files' schema ({exc.getCondition()})",
            where=f"manifest {manifest.manifest_id}",
            remedy="have the sender deliver them with plain column types under a new manifest",
            error_class=BatchClass.CONTRACT_VIOLATION,
        ) from exc
    path = F.col("path")
    original = decoded(F.substr(path, F.lit(1), F.length(path) - len(COPY_SUFFIX)))
    return file_envelope(records.withColumn("path", original), manifest.manifest_id)


def _records(spark: SparkSession, manifest: Manifest, verified: Verified) -> DataFrame:
    if manifest.format is FileFormat.JSONL:
        return read_lines(spark, _copies(verified), verified.inbox)
    if manifest.format is FileFormat.CSV:
        return read_lines(spark, _copies(verified), verified.inbox, separator=CSV_SEPARATOR)
    # Spark takes the schema of one file for all: columns that only others have would be lost without a word
    by_schema = groupby(sorted(verified.files, key=lambda f: f.schema), key=lambda f: f.schema)
    parts = [read_rows(spark, manifest.format.value, [f.copy for f in files], verified.inbox) for _, files in by_schema]
    return reduce(DataFrame.unionAll, parts)


def _copies(verified: Verified) -> list[Path]:
    return [f.copy for f in verified.files]
