"""What `status` and `quarantine groups|show` print, word for word."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lazaretto.cli.shown import print_groups, print_held, print_optimized, print_status
from lazaretto.observe import Coordinate, Group, HeldRecord, LedgerEntry, OptimizeResult, Violation

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
STREAM = "5f1c0f0e-2f3b-4a8e-9a53-1d2b7a6f0c11"


def _printed(show: Callable[..., None], *what: Any, width: int = 100, **how: Any) -> str:
    out = io.StringIO()
    show(Console(file=out, width=width), *what, **how)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _golden(repo_root: Path, name: str, printed: str) -> None:
    file = repo_root / "tests/golden" / name
    assert printed == file.read_text(encoding="utf-8"), f"{name} differs; where it should, write what is printed there"


def _entry(batch_id: str, status: str, counts: tuple[int | None, ...], **more: Any) -> LedgerEntry:
    read, valid, inserted, updated, duplicate, quarantined, filtered = counts
    values: dict[str, Any] = {
        "dataset": "orders", "batch_id": batch_id, "kind": "stream", "run_id": "run-1", "status": status,
        "ruleset": "rules-1", "schema_id": "orders:1.0.0", "records_read": read, "records_valid": valid,
        "records_inserted": inserted, "records_updated": updated, "records_duplicate": duplicate,
        "records_quarantined": quarantined, "records_filtered": filtered, "completeness": 0.9, "source_range": "{}",
        "bronze_version": 3, "quarantine_version": 2, "error_class": None, "next_action": None, "started_at": NOON,
        "committed_at": NOON if status == "committed" else None, "correlation_id": "c-1",
    }  # fmt: skip
    return LedgerEntry(**{**values, **more})


ENTRIES = [
    _entry(
        "orders-2026-11-30-001", "rejected", (20, 12, 0, 0, 0, 0, 0), kind="manifest", error_class="data_quality",
        started_at=NOON + timedelta(hours=2),
        next_action="completeness 0.6 (12 of 20 records valid) is below 0.9: mend the source and run again",
    ),
    _entry(
        f"{STREAM}-1", "failed", (None,) * 7, error_class="sink_failure", started_at=NOON + timedelta(hours=1),
        next_action="the ledger could not be written (DELTA_X)\x1b[2J (next: look at the storage, then run again)",
    ),
    _entry(f"{STREAM}-0", "committed", (20000, 19500, 18000, 0, 1480, 500, 20)),
    _entry("orders-2026-11-29-001", "committed", (0, 0, 0, 0, 0, 0, 0), kind="manifest"),
]  # fmt: skip

GROUPS = [
    Group(
        "contract_violation|MALFORMED||orders:1.0.0|orders", "orders", "contract_violation", "MALFORMED", None,
        "orders:1.0.0", "orders", 1204, NOON, NOON + timedelta(days=1),
        tuple(Coordinate("kafka", "orders", "0", n) for n in (11, 12, 13)), ("a" * 64, "b" * 64, "c" * 64),
    ),
    Group(
        "contract_violation|UNKNOWN_FIELD|[red]it's\x1b|orders:1.0.0|orders", "orders", "contract_violation",
        "UNKNOWN_FIELD", "[red]it's\x1b", "orders:1.0.0", "orders", 7, NOON, NOON,
        (Coordinate("files", "orders-001", "part-0.jsonl", 17),), ("d" * 64,),
    ),
]  # fmt: skip

HELD = HeldRecord(
    quarantine_id="ab" * 32, dataset="orders", ingest_date=date(2026, 11, 30),
    source=Coordinate("kafka", "orders", "0", 11), source_time=NOON, event_id=None, event_time=None, ingested_at=NOON,
    batch_id=f"{STREAM}-0", run_id="run-1", error_class="contract_violation", error_code="TYPE_MISMATCH",
    violations=(
        Violation("TYPE_MISMATCH", "amount", "a string instead of a number"),
        Violation("MISSING_REQUIRED", "user_id", None),
    ),
    group_key="contract_violation|TYPE_MISMATCH|amount|orders:1.0.0|orders", schema_id="orders:1.0.0",
    ruleset="rules-1", payload_sha256="cd" * 32, payload_bytes=17, attempt_count=1, retriable=True, pii=False,
    payload='{"amount": "七"}\n'.encode(), key=b"\x00k", headers=(("trace", b"1"), (None, None)),
)  # fmt: skip


def test_status(repo_root: Path) -> None:
    _golden(repo_root, "observe_status.txt", _printed(print_status, ENTRIES))


def test_groups(repo_root: Path) -> None:
    _golden(repo_root, "observe_groups.txt", _printed(print_groups, GROUPS))


def test_held(repo_root: Path) -> None:
    printed = _printed(print_held, [HELD], payload=False) + "\n" + _printed(print_held, [HELD], payload=True)
    _golden(repo_root, "observe_held.txt", printed)


def test_optimized() -> None:
    results = [
        OptimizeResult("bronze/orders", 120, 1, 5_000_000, 4_100_000, 7),
        OptimizeResult("quarantine", 1, 1, 900, 900, 3),
        OptimizeResult("audit", skipped="there is no such table yet"),
    ]
    assert _printed(print_optimized, results) == (
        "bronze/orders: 120 files -> 1 file, 5,000,000 -> 4,100,000 bytes\n"
        "quarantine: 1 file, nothing to do\n"
        "audit: skipped: there is no such table yet\n"
    )


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_width_breaks_a_key(width: int) -> None:
    printed = _printed(print_groups, GROUPS, width=width)
    assert "--group 'contract_violation|MALFORMED||orders:1.0.0|orders'" in printed
    assert "\x1b" not in printed


def test_nothing_there() -> None:
    assert _printed(print_status, []) == "No batch has ended yet.\n"
    assert _printed(print_groups, []) == "Nothing is held.\n"
