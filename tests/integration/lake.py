"""A lake of a test's own: its configuration, and its tables as an independent reader sees them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from lazaretto.commit import BatchResult
from lazaretto.config import load_settings
from lazaretto.jobs.dataset import Dataset, open_dataset
from lazaretto.jobs.run import Run
from lazaretto.observe import get_logger


@dataclass(frozen=True)
class Lake:
    """A configuration file with one dataset, `orders`, and what came of it."""

    conf: Path
    root: Path

    def open(self) -> Dataset:
        return open_dataset(load_settings(self.conf), "orders")

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table, read by the `deltalake` package; none where there is no table."""
        try:
            found = DeltaTable(str(self.root / table))
        except TableNotFoundError:  # nor while another process is making it
            return []
        rows: list[dict[str, Any]] = found.to_pyarrow_table().to_pylist()
        return rows

    @property
    def bronze(self) -> list[dict[str, Any]]:
        return self.rows("bronze/orders")

    @property
    def held(self) -> list[dict[str, Any]]:
        return self.rows("quarantine")

    @property
    def ledger(self) -> list[dict[str, Any]]:
        return sorted(self.rows("ingestion_status"), key=lambda r: r["started_at"])


def make_lake(folder: Path, repo_root: Path, source: str, **settings: Any) -> Lake:
    """Write a configuration; `settings` are further keys of the dataset."""
    more = "".join(f"    {name}: {json.dumps(value)}\n" for name, value in settings.items())
    conf = folder / "lazaretto.yml"
    conf.write_text(
        "warehouse: ./lake\n"
        "datasets:\n"
        "  orders:\n"
        f"    contract: {repo_root / 'conf/contracts/orders.odcs.yaml'}\n"
        f"    rules: {repo_root / 'dq_rules/orders.yml'}\n"
        f"    source: {source}\n{more}",
        encoding="utf-8",
    )
    return Lake(conf, folder / "lake")


def new_run() -> Run:
    return Run(get_logger(), operator="tester")


def order(event_id: str, **changes: Any) -> bytes:
    """A sound order event as JSON."""
    event = {
        "event_id": event_id, "event_type": "purchase", "event_time": "2026-11-20T10:00:00Z", "user_id": 42,
        "amount": 12.5, "currency": "EUR", "quantity": 1, "device": {"os": "ios", "version": "17.4"}, **changes,
    }  # fmt: skip
    return json.dumps(event, separators=(",", ":")).encode()


def deliver(folder: Path, manifest_id: str, files: dict[str, Sequence[bytes]], **keys: Any) -> Path:
    """Write JSON lines files and the manifest that promises them."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for name, records in files.items():
        content = b"".join(r + b"\n" for r in records)
        (folder / name).write_bytes(content)
        entries.append(
            {
                "path": name,
                "bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
                "records": len(records),
            }
        )
    manifest = folder / f"{manifest_id}.json"
    document = {"manifest_id": manifest_id, "dataset": "orders", "format": "jsonl", "files": entries, **keys}
    manifest.write_text(json.dumps(document), encoding="utf-8")
    return manifest


def accounted(result: BatchResult | dict[str, Any]) -> bool:
    """Records read = inserted + updated + duplicate + quarantined + filtered."""
    row = result if isinstance(result, dict) else vars(result)
    parts = ("inserted", "updated", "duplicate", "quarantined", "filtered")
    return bool(row["records_read"] == sum(row[f"records_{part}"] for part in parts))
