"""What a lake's ledger says, read from its files as they appear: which life committed what, and when.

Reads Delta's log and the one small file of each commit, nothing of the product: polling takes no time to speak of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq

_COLUMNS = ["batch_id", "correlation_id", "status", "records_read"]


@dataclass(frozen=True)
class Row:
    """A row of the ledger; `at` is when its commit was written, as the file system says (seconds since 1970)."""

    at: float
    batch_id: str
    life: str
    status: str
    records_read: int


class Ledger:
    """The rows of a ledger so far. Each life gives its name as its correlation id, so rows say whose they are."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._next = 0
        self._rows: list[Row] = []

    def rows(self) -> list[Row]:
        """All rows, in the order of their commits."""
        while (commit := self._table / "_delta_log" / f"{self._next:020d}.json").exists():
            self._rows += self._rows_of(commit)
            self._next += 1
        return self._rows

    def committed(self) -> list[Row]:
        """The rows of batches that are published."""
        return [row for row in self.rows() if row.status == "committed"]

    def _rows_of(self, commit: Path) -> list[Row]:
        actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
        at = commit.stat().st_mtime
        found = []
        for add in (action["add"] for action in actions if "add" in action):
            if add["dataChange"]:
                with pq.ParquetFile(self._table / unquote(add["path"])) as file:
                    rows = file.read(columns=_COLUMNS).to_pylist()
                found += [
                    Row(at, r["batch_id"], r["correlation_id"], r["status"], r["records_read"] or 0) for r in rows
                ]
        return found


def first_row_s(rows: Iterable[Row], life: str, started_at: float) -> float | None:
    """Seconds from a life's start to the first row it committed; None when it did not get so far."""
    mine = [row.at for row in rows if row.life == life and row.status == "committed"]
    return round(min(mine) - started_at, 2) if mine else None
