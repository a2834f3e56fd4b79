"""A frozen batch: what its stage holds, and how an earlier attempt's is found again.

    staging/<dataset>/<batch>/
        data/verdict=V/*.parquet   the screened rows, with `_row`: a number for each row, fixed by the writing
        manifest.json       appears last, by rename; from then on the batch is frozen
        gate.json           the gate let it through, and with which findings
        probe.json, probe/  the decisions of the last probe

A retry reads these files, never the source or newer rules. The manifest keeps names and sizes, not hashes: a hash would
read everything again, and what sizes do not show (a flipped bit) is found by the reader, since Parquet pages and
Hadoop's `.crc` files carry checksums of their own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lazaretto.commit.durable import damaged, read_json
from lazaretto.commit.model import Batch
from lazaretto.commit.screened import Verdict, columns_of, screened_ddl
from lazaretto.commit.spark_edge import edge
from lazaretto.commit.tables import Tables
from lazaretto.contracts import Contract
from lazaretto.errors import ConfigurationError, GuardRefusedError

MANIFEST = "manifest.json"
_FORMAT = 1


@dataclass(frozen=True)
class Range:
    """What a batch holds of one partition: first and last position, both inclusive, and the number of records.

    `held_*` are the bounds of the invalid ones; None when there are none.
    """

    system: str
    stream: str
    partition: str | None
    start: int
    end: int
    records: int
    held_start: int | None = None
    held_end: int | None = None


@dataclass(frozen=True)
class Manifest:
    """The frozen facts of a batch. Days are days since 1970-01-01 UTC, of the valid rows; None without any.

    `isolated` of the invalid records made the batch fail, and were not screened.
    """

    stage_id: str
    dataset: str
    batch_id: str
    run_id: str
    started_at: str
    schema_id: str
    ruleset: str
    columns: str
    records_read: int
    records_valid: int
    records_invalid: int
    records_filtered: int
    first_day: int | None
    last_day: int | None
    ranges: tuple[Range, ...]
    declared: Mapping[str, Any] | None
    files: Mapping[str, int]
    format: int = _FORMAT
    isolated: int = 0

    @property
    def arrived_at(self) -> datetime:
        """The arrival time of every row of the batch."""
        return datetime.fromisoformat(self.started_at)

    @property
    def completeness(self) -> float:
        inspected = self.records_valid + self.records_invalid
        return self.records_valid / inspected if inspected else 1.0


@dataclass(frozen=True)
class Stage:
    """A frozen batch on disk."""

    folder: Path
    manifest: Manifest
    contract: Contract

    def rows(self, spark: SparkSession) -> DataFrame:
        """All rows: the screened columns and `_row`."""
        return staged_rows(spark, self.folder, self.contract)

    def valid(self, spark: SparkSession) -> DataFrame:
        return self.rows(spark).where(F.col("verdict") == F.lit(Verdict.VALID.value))

    def records(self, spark: SparkSession) -> DataFrame:
        """The contract's columns of the valid rows: what the batch rules look at."""
        return self.valid(spark).select(*(F.col("record").getField(n).alias(n) for n in columns_of(self.contract)))


def drop(folder: Path) -> None:
    """Remove a stage. The manifest goes first: a half-removed stage must not look like a damaged one."""
    with edge("the stage could not be removed", str(folder)):
        (folder / MANIFEST).unlink(missing_ok=True)
        if folder.exists():
            shutil.rmtree(folder)


def frozen_batches(tables: Tables, dataset: str) -> dict[str, Mapping[str, Any] | None]:
    """The dataset's batches that are staged whole and not ended, by id, with what the source said it handed over.

    Raises:
        SinkError: a stage is damaged.
    """
    found = {}
    for file in sorted((tables.files_root / "staging" / dataset).glob(f"*/{MANIFEST}")):
        document = read_json(file) or {}
        if "batch_id" not in document:
            raise damaged(file.parent, f"{MANIFEST} has other keys than it should")
        found[str(document["batch_id"])] = document.get("declared")
    return found


def open_stage(
    folder: Path, batch: Batch, contract: Contract, source_range: Mapping[str, Any] | None = None
) -> Stage | None:
    """The frozen stage an earlier attempt has left, or None.

    Args:
        source_range: what the source hands over now; None to take the stage as it is.

    Raises:
        SinkError: it is there but damaged.
        ConfigurationError: it was screened under another contract than the present one.
        GuardRefusedError: it was made of another range of the source.
    """
    document = read_json(folder / MANIFEST)
    if document is None:
        return None
    try:
        ranges = tuple(Range(**entry) for entry in document.pop("ranges"))
        manifest = Manifest(ranges=ranges, **document)
    except (TypeError, KeyError) as exc:
        raise damaged(folder, f"{MANIFEST} has other keys than it should") from exc
    if (manifest.format, manifest.dataset, manifest.batch_id) != (_FORMAT, batch.dataset, batch.batch_id):
        raise damaged(folder, f"{MANIFEST} is of another batch")
    with edge("the stage could not be read", str(folder)):
        present = staged_sizes(folder / "data")
    if present != manifest.files:
        wrong = sorted(n for n in {*present, *manifest.files} if present.get(n) != manifest.files.get(n))
        raise damaged(folder, f"{len(wrong)} of {len(manifest.files)} files are missing or of another size")
    if manifest.columns != contract.ddl:
        raise ConfigurationError(
            f"the batch was staged under contract {manifest.schema_id}, whose columns differ from {contract.schema_id}",
            where=str(folder),
            remedy="finish it with that contract, or delete this folder to have it read and screened anew",
        )
    now = json.loads(json.dumps(source_range))
    if None not in (now, manifest.declared) and now != manifest.declared:
        # Taken for this range, it would lose what it does not hold.
        raise GuardRefusedError(
            "the batch was staged from another range of the source than it has now",
            where=str(folder),
            remedy="bring back the source or the checkpoint it was staged from, or delete this folder to have it read "
            "and screened anew",
        )
    return Stage(folder, manifest, contract)


def staged_rows(spark: SparkSession, folder: Path, contract: Contract) -> DataFrame:
    """The rows of a stage's folder, manifest or not."""
    # The schema is known: without it Spark would start a job to look at the files.
    return spark.read.schema(f"{screened_ddl(contract)}, _row BIGINT").parquet(str(folder / "data"))


def staged_sizes(data: Path) -> dict[str, int]:
    """The files of a stage, by their path below `data`, with their sizes in bytes."""
    files = sorted(data.glob("*/*.parquet"))
    return {file.relative_to(data).as_posix(): file.stat().st_size for file in files}
