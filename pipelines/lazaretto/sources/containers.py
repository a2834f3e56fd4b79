"""Parquet and Avro files by their metadata: how many rows, and of which schema."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lazaretto.config import FileFormat
from lazaretto.sources.inflate import RefusedError


def rows_and_schema(file_format: FileFormat, path: Path) -> tuple[int, str]:
    """The number of rows, and a text that is equal for files which Spark reads with one schema.

    Raises:
        RefusedError: the file is not of this format, or has columns that cannot be told apart or not be read.
    """
    return _parquet(path) if file_format is FileFormat.PARQUET else _avro(path)


def _parquet(path: Path) -> tuple[int, str]:
    try:
        with pq.ParquetFile(path) as file:
            rows = int(file.metadata.num_rows)
            columns = [file.schema.column(i) for i in range(len(file.schema))]
            names = file.schema_arrow.names
            described = [
                [c.path, c.physical_type, str(c.logical_type), c.length, c.max_definition_level, c.max_repetition_level]
                for c in columns
            ]
    except (pa.ArrowException, OSError) as exc:
        raise RefusedError("not a Parquet file, or damaged") from exc
    _check_names(names)
    for column in columns:
        if not _readable(json.loads(column.logical_type.to_json())):
            raise RefusedError(f"column {column.path} is of a type that Spark cannot read ({column.logical_type})")
    return rows, _digest(described)


def _readable(logical: dict[str, Any]) -> bool:
    """Whether Spark 4.2 has a type for a column of this logical type. Python's pandas writes nanoseconds by default."""
    return (
        logical["Type"] not in ("Time", "Float16", "UUID")
        and logical.get("timeUnit") != "nanoseconds"
        and logical.get("precision", 0) <= 38
    )


def _avro(path: Path) -> tuple[int, str]:
    try:
        with path.open("rb") as stream:
            reader = fastavro.block_reader(stream)
            schema: Any = reader.writer_schema
            rows = sum(block.num_records for block in reader)
    except Exception as exc:  # whatever its decoder stumbles over: it has no error type of its own
        raise RefusedError("not an Avro file, or damaged") from exc
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise RefusedError("its Avro schema is not a record")
    _check_names([str(f["name"]) for f in schema["fields"]])
    return rows, _digest(schema)


def _check_names(names: list[str]) -> None:
    if not names:
        raise RefusedError("has no columns")
    if len({name.lower() for name in names}) != len(names):
        raise RefusedError("has two columns whose names differ by case alone or not at all")


def _digest(described: Any) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()
