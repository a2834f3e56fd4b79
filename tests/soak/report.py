"""The result of a run: one JSON document, and the same for a reader."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .events import Kind
from .lives import Lives
from .site import Pump, Site

RESULT = "result.json"


class Teller:
    """Progress lines on stderr, and in `progress.log` beside everything else."""

    def __init__(self, folder: Path) -> None:
        self._began = time.monotonic()
        self._file = folder / "progress.log"

    def __call__(self, line: str) -> None:
        seconds = int(time.monotonic() - self._began)
        told = f"[{seconds // 60:3d}:{seconds % 60:02d}] {line}\n"
        sys.stderr.write(told)
        sys.stderr.flush()
        with self._file.open("a", encoding="utf-8") as file:
            file.write(told)


def spread(seconds: Iterable[float | None]) -> dict[str, float | int | None]:
    """Number, median and largest of the times that are there."""
    known = [s for s in seconds if s is not None]
    return {
        "count": len(known),
        "median": round(statistics.median(known), 2) if known else None,
        "max": max(known, default=None),
    }


def ends_of(lives: Lives) -> dict[str, int]:
    """How many lives ended with which code."""
    return dict(sorted(Counter(str(life.code) for life in lives.all).items()))


def judged(site: Site, pump: Pump, found: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    """The part that both kinds of run have: what was sent, what was found, and whether that is right."""
    if not found["ok"]:
        problems = ["the verifier is not satisfied", *problems]
    elif pump.failed:
        problems = [f"{pump.failed} events were not taken by the broker", *problems]
    else:
        wanted = {"produced": pump.acknowledged, "bronze": pump.kinds[Kind.SOUND]}
        problems = [f"{found[n]} {n}, {w} expected" for n, w in wanted.items() if found[n] != w] + problems
    rows = site.ledger.committed()
    return {
        "ok": not problems,
        "problems": problems,
        "events": {
            "sent": pump.number, "acknowledged": pump.acknowledged,
            "kinds": {kind.value: count for kind, count in sorted(pump.kinds.items())},
        },
        "batches": len(rows),
        "lives": len(site.lives.all),
        "ends": ends_of(site.lives),
        "verifier": found,
    }  # fmt: skip


def finish(site: Site, document: Mapping[str, Any], summary: Iterable[str]) -> int:
    """Write the document, print summary and document, and give the exit code."""
    site.clean = document["ok"]
    text = json.dumps(document)
    (site.folder / RESULT).write_text(text + "\n", encoding="utf-8")
    sys.stdout.write("\n".join(["", *summary, *_verdict(document), "", text]) + "\n")
    sys.stdout.flush()
    return 0 if document["ok"] else 1


def _verdict(document: Mapping[str, Any]) -> list[str]:
    found, events = document["verifier"], document["events"]
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in events["kinds"].items())
    lines = [f"  events       {events['sent']:,} sent: {kinds}"]
    if "produced" in found:
        lines.append(
            f"  verifier     {found['produced']:,} in the topic = {found['bronze']:,} in bronze "
            f"+ {found['quarantine']:,} held + {found['duplicates']:,} duplicates; "
            f"{found['committed_batches']:,} batches; problems: {found['problem_counts'] or 'none'}"
        )
    else:
        lines.append(f"  verifier     {found.get('unreadable')}")
    lines += [f"  PROBLEM      {problem}" for problem in document["problems"]]
    return [*lines, f"  {'clean' if document['ok'] else 'NOT CLEAN'}"]


def folder_for(kind: str, seed: int) -> Path:
    """A folder of this run's own, under `build/`."""
    return Path("build") / kind / f"{time.strftime('%Y%m%d-%H%M%S')}-seed-{seed}"
