"""A landing folder as a stream: Spark's checkpoint remembers which files were taken, nothing else does.

The stream itself carries paths only. Each micro-batch's paths are then read by the shared reader, so that a record's
coordinate is the same whether its file came alone or with a thousand others.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from lazaretto.config import FilesSource
from lazaretto.errors import SourceError
from lazaretto.sources.envelope import ENVELOPE, file_envelope
from lazaretto.sources.failures import as_source_error
from lazaretto.sources.files import escaped, read_lines

SUFFIXES = (".jsonl", ".ndjson", ".json")
_PATTERN = "*.{[jJ][sS][oO][nN],[jJ][sS][oO][nN][lL],[nN][dD][jJ][sS][oO][nN]}"
_SCHEMA = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_REMEDY = "put it back (an empty file of that name will do if its records are not wanted), run again"


def landing_stream(spark: SparkSession, source: FilesSource) -> DataFrame:
    """The folder's files as a stream of `path STRING, length BIGINT, modificationTime TIMESTAMP`; no content is read.

    Taken are `*.jsonl`, `*.ndjson` and `*.json` in any case, in sub-folders too, oldest first. Left alone are names and
    folders that begin with `.` or `_`, and everything else: see `ignored_files`. A file is taken once, by its path,
    whatever its age; writing to it later changes nothing.
    """
    return (
        spark.readStream.format("binaryFile")
        .schema(_SCHEMA)
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", _PATTERN)
        .option("maxFilesPerTrigger", source.max_files_per_trigger)
        # by default Spark skips, without a word, files that are a week older than the newest it has seen
        .option("maxFileAge", "36500d")
        .load(escaped(_folder(source)))
        .select("path", "length", "modificationTime")
    )


def landing_envelope(spark: SparkSession, source: FilesSource, batch_df: DataFrame) -> DataFrame:
    """The envelope of one micro-batch of `landing_stream`: stream is the folder's name, partition the relative path.

    Raises:
        SourceError: a file has gone since it was listed, or is a link that leads out of the folder.
    """
    folder = _folder(source)
    try:
        rows = batch_df.select("path").collect()
    except Exception as exc:
        # Spark looks at each file once more before it gives its path
        gone = as_source_error(exc, where=f"landing folder {folder.name}")
        if gone is None:
            raise
        raise gone from exc
    return read_landing(spark, source, sorted({_below(folder, row.path) for row in rows}))


def read_landing(spark: SparkSession, source: FilesSource, relative: Sequence[str]) -> DataFrame:
    """The envelope of some of the folder's files, by their paths relative to it.

    Raises:
        SourceError: a file is not there, or is a link that leads out of the folder.
    """
    folder = _folder(source)
    for name in relative:
        _check(folder, name)
    if not relative:
        return spark.createDataFrame([], ENVELOPE)
    return file_envelope(read_lines(spark, [folder / name for name in relative], folder), folder.name)


def ignored_files(source: FilesSource) -> list[str]:
    """Relative paths of the visible files that the stream does not take, for a warning at its start."""
    folder = _folder(source)
    found = []
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "_")))
        found += [
            str((Path(here) / name).relative_to(folder))
            for name in names
            if not name.startswith((".", "_")) and not name.lower().endswith(SUFFIXES)
        ]
    return sorted(found)


def landing_name(source: FilesSource) -> str:
    """The stream of the folder's records: its name."""
    return _folder(source).name


def check_landing(source: FilesSource) -> None:
    """Make sure that the folder is there and can be listed.

    Raises:
        SourceError: it is missing, no folder, or not readable.
    """
    folder = _folder(source)
    try:
        os.scandir(folder).close()
    except OSError as exc:
        raise SourceError(
            f"the landing folder cannot be listed ({type(exc).__name__})", where=str(folder),
            remedy="create or mount it, or mend `source.path`",
        ) from exc  # fmt: skip


def _folder(source: FilesSource) -> Path:
    return source.path.absolute()


def _below(folder: Path, path: str) -> str:
    # what is before the folder is the scheme, in one of several spellings
    prefix = f"{folder}/"
    return path[path.index(prefix) + len(prefix) :]


def _check(folder: Path, name: str) -> None:
    file = folder / name
    if not file.is_file():
        raise SourceError("this file was listed and is gone", where=str(file), remedy=_REMEDY)
    if not file.resolve().is_relative_to(folder.resolve()):
        raise SourceError(
            "this file is a link that leads out of the landing folder", where=str(file),
            remedy="put the file itself (or an empty one) in its place, run again",
        )  # fmt: skip
