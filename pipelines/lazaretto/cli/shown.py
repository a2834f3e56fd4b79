"""How the commands that look show what they found, to people and as JSON.

What is stored may come from anybody: it is shown through `printable`, as plain text and never as markup, so that it
cannot steer the terminal. JSON has it as stored. Paragraphs instead of tables: ids and keys are there to be copied.
"""

from __future__ import annotations

import base64
import shlex
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from lazaretto.observe.held import Group, HeldRecord
from lazaretto.observe.maintenance import OptimizeResult
from lazaretto.observe.status import LedgerEntry
from lazaretto.observe.text import decoded, printable

_SENT = ("payload", "key", "headers")
_TOLD = ("inserted", "updated", "duplicate", "quarantined", "filtered")


def print_status(console: Console, entries: list[LedgerEntry]) -> None:
    """One paragraph a batch: when it began, how it ended, what became of its records, what is left to do."""
    if not entries:
        console.print("No batch has ended yet.")
        return
    margin = " " * len("2026-11-30 12:00:00  ")
    for place, entry in enumerate(entries):
        if place:
            console.print()
        style = "" if entry.status == "committed" else "yellow" if entry.status == "rejected" else "red"
        head = f"{_shown_time(entry.started_at)}  {entry.status:<9}  {entry.dataset}  {entry.batch_id}  ({entry.kind})"
        _line(console, head, style=style)
        _line(console, f"{margin}{_counts(entry)}")
        if entry.next_action:
            _line(console, f"{margin}{f'{entry.error_class}: ' if entry.error_class else ''}{entry.next_action}")


def print_groups(console: Console, found: list[Group], *, more: bool = False) -> None:
    """One paragraph a group, the key ready to be pasted."""
    if not found:
        console.print("Nothing is held.")
        return
    total = sum(group.count for group in found)
    number = f"{len(found)} group{'' if len(found) == 1 else 's'}"
    _line(console, f"{total:,} records held in {number}{'; there may be more: --limit' if more else ''}")
    width = len(f"{found[0].count:,}")
    for group in found:
        margin = " " * (width + 2)
        at = f" at {group.field}" if group.field else ""
        console.print()
        _line(console, f"{group.count:>{width},}  {group.error_code}{at}", style="bold")
        _line(console, f"{margin}{group.error_class}; {group.dataset}, schema {group.schema_id}, stream {group.stream}")
        first, last = _shown_time(group.first_seen), _shown_time(group.last_seen)
        _line(console, f"{margin}first seen {first}, last {last}")
        _line(console, f"{margin}{', '.join(map(str, group.samples))}")
        _line(console, f"{margin}--group {shlex.quote(group.group_key)}")


def print_held(console: Console, found: list[HeldRecord], *, payload: bool) -> None:
    """One paragraph a record, one line a column."""
    for place, record in enumerate(found):
        if place:
            console.print()
        _line(console, f"{record.source}  {record.error_code}", style="bold")
        shown = {name: value for name, value in vars(record).items() if name not in _SENT and name != "source"}
        shown["violations"] = "; ".join(
            f"{v.code}{f' at {v.field}' if v.field else ''}{f': {v.detail}' if v.detail else ''}"
            for v in record.violations
        )
        for name, value in shown.items():
            _line(console, f"  {name:<14} {'-' if value is None else _told(value)}")
        if payload:
            for name, text in _sent(record).items():
                # Shown already: a second escape would double the backslashes.
                console.print(Text(f"  {name:<14} {text}"), soft_wrap=True)


def print_optimized(console: Console, results: list[OptimizeResult]) -> None:
    """One line a table."""
    for result in results:
        if result.skipped:
            told = f"skipped: {result.skipped}"
        elif not result.changed:
            told = f"{_files(result.files_before)}, nothing to do"
        else:
            told = (
                f"{_files(result.files_before)} -> {_files(result.files_after)},"
                f" {result.bytes_before:,} -> {result.bytes_after:,} bytes"
            )
        _line(console, f"{result.table}: {told}")


def entry_as_dict(entry: LedgerEntry) -> dict[str, Any]:
    """JSON-able: the ledger's columns."""
    return {name: _plain(value) for name, value in vars(entry).items()}


def group_as_dict(group: Group) -> dict[str, Any]:
    """JSON-able: the group's columns; coordinates as text, with their quarantine ids."""
    plain = {name: _plain(value) for name, value in vars(group).items() if name not in ("samples", "sample_ids")}
    pairs = zip(group.samples, group.sample_ids, strict=True)
    return {**plain, "samples": [{"coordinate": str(c), "quarantine_id": i} for c, i in pairs]}


def held_as_dict(record: HeldRecord, *, payload: bool) -> dict[str, Any]:
    """JSON-able: the quarantine's columns; with `payload` what was sent, as shown and, in `payload_base64`, exactly."""
    values = {name: value for name, value in vars(record).items() if name not in (*_SENT, "violations")}
    result: dict[str, Any] = {name: _plain(value) for name, value in values.items()}
    result["source"] = asdict(record.source)
    result["coordinate"] = str(record.source)
    result["violations"] = [asdict(violation) for violation in record.violations]
    if payload:
        result["payload"] = None if record.payload is None else decoded(record.payload)
        result["payload_base64"] = None if record.payload is None else base64.b64encode(record.payload).decode()
        result["key"] = None if record.key is None else decoded(record.key)
        result["headers"] = [
            {"key": key, "value": None if value is None else decoded(value)} for key, value in record.headers or ()
        ]
    return result


def _counts(entry: LedgerEntry) -> str:
    if entry.records_read is None:
        return "ended before its records were counted"
    if entry.status != "committed":
        return f"{entry.records_read:,} read, none landed"
    parts = [(name, getattr(entry, f"records_{name}") or 0) for name in _TOLD]
    told = " + ".join(f"{count:,} {name}" for name, count in parts if count)
    complete = "" if entry.completeness is None else f"; completeness {entry.completeness:.6g}"
    return f"{entry.records_read:,} read = {told}{complete}" if told else "0 read"


def _sent(record: HeldRecord) -> dict[str, str]:
    sent = {
        "key": "-" if record.key is None else decoded(record.key),
        "payload": "-" if record.payload is None else decoded(record.payload),
    }
    for key, value in record.headers or ():
        sent[f"header {printable(key or '')}"] = "-" if value is None else decoded(value)
    return sent


def _line(console: Console, text: str, *, style: str = "") -> None:
    # As Text: what is stored is no markup. Unwrapped: keys and coordinates are there to be copied.
    console.print(Text(printable(text, keep="\\"), style=style), soft_wrap=True)


def _files(count: int) -> str:
    return f"{count:,} file" if count == 1 else f"{count:,} files"


def _told(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return _shown_time(value)
    return str(value)


def _shown_time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime | date) else value
