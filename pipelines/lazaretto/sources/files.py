"""The shared reader of files: every record with the number it has in its own file.

How a record gets its number without any counting across tasks: each file is read unsplit, in a Spark partition of its
own, so the low 33 bits of `monotonically_increasing_id` are the record's index in its file, whatever the parallelism.
Spark packs and splits files by two settings of the session that *made the relation*, so the relation is made on a
sibling session that has them set, and its plan is then handed to the caller's session: nothing on the caller's session
changes, and nothing set there later can change the numbers. (Spark 4.2: `FilePartition`, `FileSourceScanExec`.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lazaretto.errors import SourceError
from lazaretto.sources.json_rows import json_value

# As cost of opening a file and as size of a partition: a file with at least one byte then fills its partition.
_ONE_FILE = str(1 << 60)
_UNSPLIT = {
    "spark.sql.files.openCostInBytes": _ONE_FILE,
    "spark.sql.files.maxPartitionBytes": _ONE_FILE,
    # with fewer partitions than files Spark would pack them anew
    "spark.sql.files.maxPartitionNum": str((1 << 31) - 1),
}
_READER = {
    "recursiveFileLookup": "true",  # a folder called `day=1` is a folder, no column
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # Hadoop's checksummed local files cannot have a `:` in their name, and trust a stale .crc file of the sender's
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
_INDEX = (1 << 33) - 1
_PATTERN = re.compile(r"([{}\[\]*?\\])")


def read_lines(spark: SparkSession, paths: Sequence[Path], folder: Path, *, separator: str = "\n") -> DataFrame:
    """Each line of each file as it is, lazily: no file needs to fit memory.

    A line ends at `separator` only, so CR and U+2028 are part of it; the last one needs no separator. Blank lines are
    lines. UTF-8's byte order mark at the head of a file is the file's mark, not part of its first line (Hadoop's reader
    takes it off).

    Args:
        paths: absolute, below `folder`, at least one.

    Returns:
        `path STRING` (relative to `folder`), `position BIGINT` (1-based), `value BINARY`, `changed_at TIMESTAMP` (the
        file's). The query fails rather than number the records of a file that Spark has split after all.

    Raises:
        SourceError: a file is not there. One that goes away later fails the query; see `as_source_error`.
    """
    parts = _relations(spark, "text", paths, lineSep=separator)
    return _union([_numbered(df, folder, F.col("value").cast("BINARY")) for df in parts])


def read_rows(spark: SparkSession, file_format: str, paths: Sequence[Path], folder: Path) -> DataFrame:
    """Each row of Parquet or Avro files of one schema, as JSON text in `value`; all else as `read_lines`."""
    parts = _relations(spark, file_format, paths)
    return _union([_numbered(df, folder, json_value(df)) for df in parts])


def _relations(spark: SparkSession, file_format: str, paths: Sequence[Path], **options: str) -> list[DataFrame]:
    sibling = spark.newSession()
    for name, value in _UNSPLIT.items():
        sibling.conf.set(name, value)
    reader = sibling.read.format(file_format).options(**_READER, **options)
    # Spark takes explicit paths for patterns. Escapes help, unless there is a `:`, which breaks Hadoop's globber. Its
    # option against globbing is right for a single path only: with several it reads some of them twice.
    alone = [str(p) for p in paths if _PATTERN.search(str(p)) and ":" in str(p)]
    together = [escaped(p) for p in paths if str(p) not in alone]
    try:
        made = [reader.load(together)] if together else []
        made += [reader.option("__globPaths__", "false").load([path]) for path in alone]
    except AnalysisException as exc:
        if exc.getCondition() != "PATH_NOT_FOUND":
            raise
        raise SourceError(
            "a file to be read is not there any more",
            remedy="put it back (an empty file of that name will do if its records are not wanted), run again",
        ) from exc
    return [_on_session(spark, df) for df in made]


def _on_session(spark: SparkSession, df: DataFrame) -> DataFrame:
    """`df`'s plan on another session; its file relations stay with the session that made them."""
    dataset = spark._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr]
    return DataFrame(dataset.ofRows(spark._jsparkSession, df._jdf.queryExecution().analyzed()), spark)


def _numbered(df: DataFrame, folder: Path, value: Column) -> DataFrame:
    """The result's columns; must stand directly on the relation, where one partition is one file."""
    meta = df.metadataColumn("_metadata")
    prefix = f"{folder}/"
    whole_path = decoded(meta["file_path"])
    is_whole = (meta["file_block_start"] == 0) & (meta["file_block_length"] == meta["file_size"])
    number = F.monotonically_increasing_id().bitwiseAND(F.lit(_INDEX)) + 1
    return df.select(
        # the scheme before the folder is written `file:`, `file://` or `dbfs:`
        F.substr(whole_path, F.instr(whole_path, F.lit(prefix)) + len(prefix)).alias("path"),
        F.when(is_whole, number)
        .otherwise(F.raise_error(F.lit("a file was split: its records have no number")))
        .alias("position"),
        value.alias("value"),
        meta["file_modification_time"].alias("changed_at"),
    )


def _union(parts: list[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionAll, parts)


def decoded(text: Column) -> Column:
    """Percent-encoding undone; unlike in forms, a plus is a plus."""
    plain = F.url_decode(F.replace(text, F.lit("+"), F.lit("%2B")))
    return F.when(F.contains(text, F.lit("%")), plain).otherwise(text)


def escaped(path: Path) -> str:
    """A path for readers that take patterns, so that it means itself."""
    return _PATTERN.sub(r"\\\1", str(path))
