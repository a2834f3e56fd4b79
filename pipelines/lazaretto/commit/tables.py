"""Where everything lies: the Delta tables by path or by name, and the folders beside them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from delta import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from lazaretto.commit.lease import table_lock
from lazaretto.config import CatalogWarehouse, PathWarehouse, Settings
from lazaretto.contracts import quoted

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(?:_[A-Za-z0-9.-]+)*")
_LONGEST = 128


@dataclass(frozen=True)
class TableRef:
    """One Delta table: either by `path` or by catalog `name` (quoted, three parts)."""

    title: str
    path: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        return self.name or self.path or self.title

    @property
    def identifier(self) -> str:
        """The table in SQL."""
        return self.name or f"delta.{quoted(str(self.path))}"

    def exists(self, spark: SparkSession) -> bool:
        if self.path is not None:
            return DeltaTable.isDeltaTable(spark, self.path)
        assert self.name is not None
        return spark.catalog.tableExists(self.name)

    def delta(self, spark: SparkSession) -> DeltaTable:
        if self.path is not None:
            return DeltaTable.forPath(spark, self.path)
        assert self.name is not None
        return DeltaTable.forName(spark, self.name)

    def read(self, spark: SparkSession, version: int | None = None) -> DataFrame:
        """The table's rows, of `version` or of now."""
        reader = spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        if self.path is not None:
            return reader.load(self.path)
        assert self.name is not None
        return reader.table(self.name)

    def append(self, rows: DataFrame, *, user_metadata: str | None = None) -> None:
        """Append rows with exactly the table's columns, in one commit."""
        writer = rows.write.format("delta").mode("append")
        if user_metadata is not None:
            writer = writer.option("userMetadata", user_metadata)
        with table_lock(rows.sparkSession, self.path):
            if self.path is not None:
                writer.save(self.path)
            else:
                assert self.name is not None
                writer.saveAsTable(self.name)


@dataclass(frozen=True)
class Tables:
    """Names and paths of everything a warehouse holds.

    By path: `<root>/bronze/<dataset>`, `<root>/quarantine`, `<root>/ingestion_status`, `<root>/audit`. By catalog:
    `<catalog>.<schema>.bronze_<dataset>`, `.quarantine`, `.ingestion_status`, `.audit`. Beside them, under
    `files_root`: `staging/<dataset>/<batch>`, `checkpoints/<dataset>`, `leases/`, `quarantine_files/`.
    """

    warehouse: PathWarehouse | CatalogWarehouse
    files_root: Path

    @classmethod
    def of(cls, settings: Settings) -> Tables:
        return cls(settings.warehouse, settings.files_root)

    def bronze(self, dataset: str) -> TableRef:
        return self._table("bronze", dataset)

    @property
    def quarantine(self) -> TableRef:
        return self._table("quarantine")

    @property
    def ingestion_status(self) -> TableRef:
        return self._table("ingestion_status")

    @property
    def audit(self) -> TableRef:
        return self._table("audit")

    def staging_dir(self, dataset: str, batch_id: str) -> Path:
        return self.files_root / "staging" / dataset / folder_name(batch_id)

    def lease_file(self, dataset: str) -> Path | None:
        """Held by the job that writes the dataset; None where a catalog arbitrates."""
        return self.files_root / "leases" / f"{dataset}.lock" if isinstance(self.warehouse, PathWarehouse) else None

    def checkpoint_dir(self, dataset: str) -> Path:
        return self.files_root / "checkpoints" / dataset

    def _table(self, *parts: str) -> TableRef:
        title = "/".join(parts)
        if isinstance(self.warehouse, PathWarehouse):
            return TableRef(title, path=str(self.warehouse.root.joinpath(*parts)))
        name = (self.warehouse.catalog, self.warehouse.schema_, "_".join(parts))
        return TableRef(title, name=".".join(quoted(part) for part in name))


def folder_name(batch_id: str) -> str:
    """A batch id as the name of a folder: itself where that is safe, else readable and with a hash of it.

    Safe means no separators, no `..`, nothing Spark takes for hidden, nothing Hadoop takes for a scheme or a pattern.
    """
    if _PLAIN.fullmatch(batch_id) and len(batch_id) <= _LONGEST and ".." not in batch_id:
        return batch_id
    readable = re.sub(r"[^A-Za-z0-9-]+", "-", batch_id).strip("-")[:64] or "batch"
    # A double underscore cannot come out of the first branch, so the two never meet.
    return f"{readable}__{hashlib.sha256(batch_id.encode()).hexdigest()[:16]}"
