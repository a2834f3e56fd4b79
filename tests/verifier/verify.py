"""Proves from outside that nothing was lost and nothing doubled: `verify.py --help`.

Uses nothing of the product and no Spark: a plain Kafka consumer (or the files of manifests) says what was produced, the
`deltalake` package what the tables hold. Prints one JSON document; exit code 0 when all is explained, 1 when not, 2
when something cannot be read.

Every produced coordinate must be in exactly one place: bronze, quarantine, an explained duplicate, or filtered.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

try:
    from .produced import Coordinate, Sent, UnreadableError, from_kafka, from_manifest, sent_of
except ImportError:  # run as a script
    from produced import Coordinate, Sent, UnreadableError, from_kafka, from_manifest, sent_of

SHOWN = 20
PARTS = ("inserted", "updated", "duplicate", "quarantined", "filtered")


@dataclass
class Findings:
    """Problems by kind, the first few of each with their place. Never anything of a payload."""

    counts: Counter[str] = field(default_factory=Counter)
    shown: list[dict[str, str]] = field(default_factory=list)

    def add(self, kind: str, where: object, detail: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= SHOWN:
            self.shown.append({"kind": kind, "where": str(where), "detail": detail})


def rows(path: Path, columns: list[str], where: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Rows of a Delta table; none where there is no table."""
    try:
        table = DeltaTable(str(path))
    except TableNotFoundError:
        return []
    filters = [(name, "=", value) for name, value in (where or {}).items()]
    found: list[dict[str, Any]] = table.to_pyarrow_table(columns=columns, filters=filters or None).to_pylist()
    return found


def place(source: dict[str, Any]) -> Coordinate:
    return source["system"], source["stream"], source["partition"], source["position"]


def verify(options: argparse.Namespace) -> dict[str, Any]:
    """The whole comparison, as the document that is printed."""
    found = Findings()
    produced: dict[Coordinate, Sent] = {}
    origins = [from_manifest(m) for m in options.manifest]
    if options.kafka:
        origins.append(from_kafka(options.kafka, options.topic))
    for origin in origins:
        for coordinate, value in origin:
            produced[coordinate] = sent_of(value, options.event_id)

    root, dataset = options.warehouse, options.dataset
    bronze = rows(root / "bronze" / dataset, [options.event_id, "_source", "_payload_sha256", "_batch_id"])
    held = rows(
        root / "quarantine", ["dataset", "source", "payload", "payload_sha256", "payload_bytes", "batch_id"],
        {"dataset": dataset},
    )  # fmt: skip
    ledger = [r for r in rows(root / "ingestion_status", _LEDGER, {"dataset": dataset}) if r["status"] == "committed"]

    landed = check_bronze(bronze, produced, options.event_id, found)
    kept = check_held(held, produced, found)
    for coordinate in landed.keys() & kept:
        found.add("overlap", coordinate, "is in bronze and in quarantine")
    duplicates, filtered = explain(produced, landed, kept, bronze, options, found)
    check_ledger(ledger, bronze, held, options, found)
    check_ranges(ledger, produced, found)
    if sum(row["records_read"] or 0 for row in ledger) == len(produced):
        # Every record was read once, so the ledger's totals are ours; a second delivery counts as duplicates on top.
        for part, ours in (("duplicate", duplicates), ("filtered", filtered)):
            theirs = sum(row[f"records_{part}"] or 0 for row in ledger)
            if theirs != ours:
                found.add("counts", "ledger", f"{theirs} records are {part} by the ledger, {ours} by their payloads")
    if options.checkpoint:
        check_commits(options.checkpoint, ledger, found)
    return {
        "ok": not found.counts, "produced": len(produced), "bronze": len(bronze), "quarantine": len(held),
        "duplicates": duplicates, "filtered": filtered, "committed_batches": len(ledger),
        "problem_counts": dict(found.counts), "problems": found.shown,
    }  # fmt: skip


def check_bronze(
    bronze: list[dict[str, Any]], produced: dict[Coordinate, Sent], id_field: str, found: Findings
) -> dict[Coordinate, str]:
    """Coordinate -> hash of what bronze holds; each row must be what was sent there, each id once."""
    landed: dict[Coordinate, str] = {}
    ids: set[str] = set()
    for row in bronze:
        at = place(row["_source"])
        sent = produced.get(at)
        if at in landed:
            found.add("doubled", at, "is in bronze twice")
        if row[id_field] in ids:
            found.add("id_twice", at, "its event id is in bronze twice")
        ids.add(row[id_field])
        landed[at] = row["_payload_sha256"]
        if sent is None:
            found.add("invented", at, "is in bronze and was never sent")
        elif row["_payload_sha256"] != sent.sha256:
            found.add("changed", at, "bronze has the hash of another payload")
        elif row[id_field] != sent.event_id:
            found.add("changed", at, "bronze has another event id than the payload")
    return landed


def check_held(held: list[dict[str, Any]], produced: dict[Coordinate, Sent], found: Findings) -> set[Coordinate]:
    """The coordinates in quarantine; each payload must be what was sent there, byte for byte."""
    kept: set[Coordinate] = set()
    for row in held:
        at = place(row["source"])
        if at in kept:
            found.add("doubled", at, "is in quarantine twice")
        kept.add(at)
        sent, payload = produced.get(at), row["payload"]
        if sent is None:
            found.add("invented", at, "is in quarantine and was never sent")
            continue
        actual = None if payload is None else hashlib.sha256(payload).hexdigest()
        if actual != sent.sha256:
            found.add("changed", at, "the held payload is not what was sent")
        if payload is not None and (row["payload_sha256"], row["payload_bytes"]) != (actual, len(payload)):
            found.add("changed", at, "hash or size beside the held payload are not its own")
    return kept


def explain(
    produced: dict[Coordinate, Sent],
    landed: dict[Coordinate, str],
    kept: set[Coordinate],
    bronze: list[dict[str, Any]],
    options: argparse.Namespace,
    found: Findings,
) -> tuple[int, int]:
    """Duplicates and filtered records among what is in no table; anything else is lost."""
    stored = {row[options.event_id]: row["_payload_sha256"] for row in bronze}
    duplicates = filtered = 0
    for at, sent in produced.items():
        if at in landed or at in kept:
            continue
        if sent.sha256 is None and options.filter_tombstones:
            filtered += 1
        elif sent.event_id is not None and (
            sent.event_id in stored if options.on_match == "update_if_newer"
            else stored.get(sent.event_id) == sent.sha256
        ):  # fmt: skip
            duplicates += 1
        else:
            found.add("lost", at, "was sent, is in no table, and is no duplicate of a stored record")
    return duplicates, filtered


_LEDGER = ["dataset", "batch_id", "status", "records_read", "source_range", *(f"records_{part}" for part in PARTS)]


def check_ledger(
    ledger: list[dict[str, Any]],
    bronze: list[dict[str, Any]],
    held: list[dict[str, Any]],
    options: argparse.Namespace,
    found: Findings,
) -> None:
    """One row per batch, whose counts are the tables' own."""
    in_bronze = Counter(row["_batch_id"] for row in bronze)
    in_quarantine = Counter(row["batch_id"] for row in held)
    times = Counter(row["batch_id"] for row in ledger)
    for batch, count in times.items():
        if count > 1:
            found.add("ledger_twice", batch, f"has {count} committed rows")
    for batch in (in_bronze.keys() | in_quarantine.keys()) - times.keys():
        found.add("unpublished_rows", batch, "has rows in a table and no committed ledger row")
    for row in ledger:
        batch, counts = row["batch_id"], {part: row[f"records_{part}"] for part in PARTS}
        if None in counts.values() or row["records_read"] != sum(counts.values()):
            found.add("counts", batch, "records read are not the sum of their parts")
            continue
        wrote, has = counts["inserted"] + counts["updated"], in_bronze[batch]
        # A later update takes its row over.
        if has > wrote or (has < wrote and options.on_match == "ignore"):
            found.add("counts", batch, f"{wrote} rows landed by the ledger, {has} are in bronze")
        if in_quarantine[batch] != counts["quarantined"]:
            found.add("counts", batch, f"{counts['quarantined']} held by the ledger, {in_quarantine[batch]} are there")


def check_ranges(ledger: list[dict[str, Any]], produced: dict[Coordinate, Sent], found: Findings) -> None:
    """Each range of each batch holds as many records as were sent in it, and together they leave none out."""
    sent: dict[tuple[str, str, str | None], list[int]] = defaultdict(list)
    for *where, position in sorted(produced, key=lambda at: at[3]):
        sent[tuple(where)].append(position)
    covered = {key: bytearray(len(positions)) for key, positions in sent.items()}
    for row in ledger:
        ranges = json.loads(row["source_range"])["ranges"]
        if sum(r["records"] for r in ranges) != row["records_read"]:
            found.add("counts", row["batch_id"], "its source ranges hold another number of records than it read")
        for r in ranges:
            key = (r["system"], r["stream"], r["partition"])
            first, after = bisect_left(sent[key], r["start"]), bisect_right(sent[key], r["end"])
            if after - first != r["records"]:
                found.add("counts", row["batch_id"], f"{after - first} records were sent in a range it read otherwise")
            if key in covered:
                covered[key][first:after] = b"\1" * (after - first)
    for key, marks in covered.items():
        for index in (n for n, mark in enumerate(marks) if not mark):
            found.add("uncovered", (*key, sent[key][index]), "no committed batch says that it read this record")


def check_commits(checkpoint: Path, ledger: list[dict[str, Any]], found: Findings) -> None:
    """Each micro-batch that Spark calls done has its ledger row."""
    query = json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
    known = {row["batch_id"] for row in ledger}
    for file in (checkpoint / "commits").glob("*"):
        if file.name.isdigit() and f"{query}-{file.name}" not in known:
            found.add("commit_without_ledger", f"commits/{file.name}", "Spark calls it done, the ledger does not")


def main(arguments: list[str]) -> int:
    """0: all explained. 1: problems. 2: wrong usage, or something cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warehouse", type=Path, required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--kafka", metavar="BOOTSTRAP_SERVERS")
    parser.add_argument("--topic")
    parser.add_argument("--manifest", type=Path, action="append", default=[])
    parser.add_argument("--checkpoint", type=Path, help="the stream's: also compare Spark's own commits")
    parser.add_argument("--filter-tombstones", action="store_true")
    parser.add_argument("--event-id", default="event_id", metavar="FIELD")
    parser.add_argument("--on-match", choices=["ignore", "update_if_newer"], default="ignore")
    options = parser.parse_args(arguments)
    if bool(options.kafka) != bool(options.topic) or not (options.kafka or options.manifest):
        parser.error("give --kafka and --topic, or --manifest")
    try:
        document = verify(options)
    except (UnreadableError, OSError, ValueError, KeyError, TypeError, DeltaError) as exc:
        told = str(exc) if isinstance(exc, UnreadableError) else type(exc).__name__
        sys.stdout.write(json.dumps({"ok": False, "unreadable": told}) + "\n")
        return 2
    sys.stdout.write(json.dumps(document) + "\n")
    return 0 if document["ok"] else 1


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    # Arrow's readers may still be reading ahead through Python; an interpreter that ends under them is aborted, now and
    # then, and the exit code is lost.
    os._exit(code)
