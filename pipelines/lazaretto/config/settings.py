"""The settings' shape. Unknown keys are errors; paths are absolute once loaded."""

from __future__ import annotations

import codecs
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator

from lazaretto.errors import ConfigurationError

_NAME = re.compile(r"^[a-z][a-z0-9_]{0,63}$")
_SQL_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Tombstones(StrEnum):
    """What happens to a null value: held, or skipped and counted."""

    QUARANTINE = "quarantine"
    FILTER = "filter"


class OnFailure(StrEnum):
    """What an invalid record does to its batch."""

    QUARANTINE_AND_CONTINUE = "quarantine_and_continue"
    REJECT_BATCH = "reject_batch"


class OnMatch(StrEnum):
    """What happens when bronze already has the event id."""

    IGNORE = "ignore"
    UPDATE_IF_NEWER = "update_if_newer"


class FileFormat(StrEnum):
    """The formats a manifest or a landing folder can hold."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    AVRO = "avro"


class KafkaSource(_Frozen):
    """A Kafka topic, read committed, from the stream's checkpoint on.

    `options` go to the Kafka source with a `kafka.` prefix (security settings, timeouts).
    """

    kind: Literal["kafka"]
    bootstrap_servers: str = Field(min_length=1)
    topic: str = Field(min_length=1)
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    max_offsets_per_trigger: int = Field(default=100_000, gt=0)
    options: dict[str, str] = Field(default_factory=dict)


class FilesSource(_Frozen):
    """A landing folder: each file is read once, when it has appeared whole (write elsewhere, then rename into it)."""

    kind: Literal["files"]
    path: Path
    format: Literal[FileFormat.JSONL] = FileFormat.JSONL
    max_files_per_trigger: int = Field(default=1000, gt=0)


class DedupeTable(_Frozen):
    """An event id is unique in the whole table."""

    scope: Literal["table"] = "table"


class DedupeWindow(_Frozen):
    """An event id is unique within `days` before and after its event date."""

    scope: Literal["window"]
    days: int = Field(gt=0, le=3660)


class DatasetSettings(_Frozen):
    """One dataset: its contract, rules, source and policies."""

    contract: Path
    rules: Path | None = None
    event_id: str = "event_id"
    event_time: str = "event_time"
    source: Annotated[KafkaSource | FilesSource, Field(discriminator="kind")] | None = None
    encoding: str = "utf-8"
    max_bytes: int = Field(default=1_048_576, gt=0)
    tombstones: Tombstones = Tombstones.QUARANTINE
    on_failure: OnFailure = OnFailure.QUARANTINE_AND_CONTINUE
    min_completeness: float = Field(default=0.0, ge=0.0, le=1.0)
    outage_wait_s: float = Field(default=60.0, ge=0.0)
    on_match: OnMatch = OnMatch.IGNORE
    dedupe: Annotated[DedupeTable | DedupeWindow, Field(discriminator="scope")] = DedupeTable()

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        try:
            return codecs.lookup(value).name
        except LookupError:
            raise ValueError(f"unknown encoding {value!r}") from None


class PathWarehouse(_Frozen):
    """Tables by path: `<root>/bronze/<dataset>`, `<root>/quarantine`, `<root>/ingestion_status`, ..."""

    root: Path


class CatalogWarehouse(_Frozen):
    """Tables by name: `<catalog>.<schema>.bronze_<dataset>`, `.quarantine`, `.ingestion_status`, ...

    Stage, checkpoints and refused files still need a folder: `files`, for instance a volume.
    """

    catalog: str
    schema_: str = Field(alias="schema")
    files: Path

    @field_validator("catalog", "schema_")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not _SQL_NAME.fullmatch(value):
            raise ValueError("letters, digits and underscores only")
        return value


def warehouse_kind(value: Any) -> str:
    """Tables by name as soon as anything of a catalog is given, so that a mistake is told about the kind meant."""
    keys = value if isinstance(value, dict) else vars(value) if isinstance(value, BaseModel) else {}
    return "catalog" if any(k in keys for k in ("catalog", "schema", "schema_", "files")) else "path"


class Settings(_Frozen):
    """Everything a job needs to know, with absolute paths.

    `origin` names the file(s) it was read from, for messages.
    """

    warehouse: Annotated[
        Annotated[PathWarehouse, Tag("path")] | Annotated[CatalogWarehouse, Tag("catalog")],
        Discriminator(warehouse_kind),
    ]
    datasets: dict[str, DatasetSettings]
    origin: str = ""

    @field_validator("datasets")
    @classmethod
    def _plain_datasets(cls, value: dict[str, DatasetSettings]) -> dict[str, DatasetSettings]:
        for name in value:
            if not _NAME.fullmatch(name):
                raise ValueError(f"dataset {name!r}: lower-case letters, digits and underscores, a letter first")
        return value

    def dataset(self, name: str) -> DatasetSettings:
        """A dataset's settings.

        Raises:
            ConfigurationError: there is none of this name.
        """
        found = self.datasets.get(name)
        if found is None:
            known = ", ".join(sorted(self.datasets)) or "none"
            raise ConfigurationError(f"no dataset {name!r}", where=self.origin, remedy=f"one of: {known}")
        return found

    @property
    def files_root(self) -> Path:
        """The folder with `staging/`, `checkpoints/` and `quarantine_files/`."""
        return self.warehouse.root if isinstance(self.warehouse, PathWarehouse) else self.warehouse.files
