"""What the demo prints at its end: what landed, what is held and why, one held record, and what to type next."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from rich.table import Table

from lazaretto.cli.context import Context
from lazaretto.commit import Tables
from lazaretto.config import load_settings
from lazaretto.jobs.demo import DemoReport
from lazaretto.observe import decoded, groups, show

_SHOWN = 400


def print_report(context: Context, spark: SparkSession, report: DemoReport, run_id: str) -> None:
    """Print the report, and emit it in JSON mode; everything in it is read back from the tables."""
    tables = Tables.of(load_settings(report.conf))
    bronze = tables.bronze("orders").read(spark).count()
    found = groups(spark, tables, "orders")
    by_code: dict[str, int] = {}
    for group in found:
        by_code[group.error_code] = by_code.get(group.error_code, 0) + group.count
    held = sum(by_code.values())
    stream, batch = report.stream.counts, report.manifest

    out = context.console
    out.print()
    out.print(
        f"[bold green]{bronze:,} orders landed[/], each event id once, in {tables.bronze('orders')}", soft_wrap=True
    )
    out.print(
        f"  stream: {stream['records_read']:,} read in {report.stream.batches} batches = {stream['records_inserted']:,}"
        f" inserted + {stream['records_duplicate']:,} duplicate + {stream['records_quarantined']:,} quarantined"
    )
    out.print(
        f"  manifest: {batch.records_read:,} read = {batch.records_inserted:,} inserted + "
        f"{batch.records_duplicate:,} duplicate + {batch.records_quarantined:,} quarantined"
    )
    table = Table(title=f"{held:,} records held in quarantine", title_justify="left")
    for heading in ("code", "class", "field", "records"):
        table.add_column(heading, justify="right" if heading == "records" else "left")
    for group in found:
        table.add_row(group.error_code, group.error_class, group.field or "", f"{group.count:,}")
    out.print(table)
    if found:
        # the largest group first: in the demo a currency that the rule does not know yet
        record = show(spark, tables, group_key=found[0].group_key, limit=1, payload=True)[0]
        out.print("[bold]one held record[/]")
        out.print(f"  id       {record.quarantine_id}")
        out.print(f"  from     {record.source}")
        for violation in record.violations:
            told = " ".join(part for part in (violation.code, violation.field, violation.detail) if part)
            out.print(f"  because  {told}", markup=False)
        payload = decoded(record.payload or b"")[:_SHOWN]
        out.print(f"  payload  {payload}", markup=False, soft_wrap=True)
    out.print()
    out.print("next: see every reason, then every record behind one of them")
    for command in ("quarantine groups", "status"):
        out.print(f"  {_program()} --conf {report.conf} {command}", markup=False, soft_wrap=True)
    context.emit(
        {
            "run_id": run_id, "conf": str(report.conf), "records_in_bronze": bronze, "records_held": held,
            "held_by_code": by_code, "stream": {"batches": report.stream.batches, **stream},
            "batch": {"batch_id": batch.batch_id, "status": batch.status, "records_read": batch.records_read,
                      "records_inserted": batch.records_inserted, "records_duplicate": batch.records_duplicate,
                      "records_quarantined": batch.records_quarantined},
        }
    )  # fmt: skip


def _program() -> str:
    """This program as it can be typed again from here: by its path below this folder, else by its name."""
    path = Path(sys.argv[0])
    here = os.path.relpath(path)
    return here if path.name == "lazaretto" and not here.startswith("..") else "lazaretto"
