"""Many kills: a topic full of events, and a stream that is killed again and again on its way. `make kills` runs it.

docs/soak.md has the story. `python -m tests.soak.kills --help` has the options. Exit code 0 only if all is clean.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .faults import NO_JAVA, SINK
from .ledger import first_row_s
from .lives import Life
from .report import Teller, finish, folder_for, judged, spread
from .schedule import PlannedKill, kills_of, pairs_of
from .site import Pump, Site, open_site
from .soak import last_run

BATCH = (5_000, 20_000)
"""The smallest and the largest batch."""

AFTER_S = 5.0
"""How long after its first row a life may be killed at the latest."""

GUESS_S = 9.0
"""From a start to its first row, until it has been timed."""

ENOUGH = 8
"""Batches that must be left at a start, so that no life comes to its end before it is killed."""

SLOW = 1.5
"""A restart after a kill may take this much longer than a normal start."""

GIVE_UP_S = 240.0

PYTHON_STARTS = "python starts"
SPARK_STARTS = "spark starts"


@dataclass
class Timed:
    """Seconds from starts to their first rows: after a kill, and after a stop in good order.

    Only lives that were left alone until then: those that are killed meanwhile would leave out the slow ones.
    """

    restarts: list[float] = field(default_factory=list)
    normal: list[float] = field(default_factory=list)

    @property
    def window_s(self) -> float:
        """The time in which lives are killed, reckoned from their start."""
        return statistics.median(self.normal[-5:] or [GUESS_S]) + AFTER_S

    @property
    def ratio(self) -> float | None:
        """Of the medians."""
        if not self.restarts or not self.normal:
            return None
        return round(statistics.median(self.restarts) / statistics.median(self.normal), 2)


class Run:
    """One run of kills."""

    def __init__(self, site: Site, pump: Pump, batch: int, tell: Teller) -> None:
        self.site = site
        self.pump = pump
        self.batch = batch
        self.tell = tell
        self.timed = Timed()
        self.problems: list[str] = []
        self.done: list[dict[str, Any]] = []

    def kill(self, number: int, planned: PlannedKill) -> None:
        """Start the stream and kill it at its moment."""
        for _ in range(5):
            life = self.start()
            moment = planned.share * self.timed.window_s
            if self.site.lives.ended(life, moment):
                # nothing left to do, or a surprise: in neither case a kill
                life.allowed.add(0)
                continue
            where = whereabouts(self.site.lake, life)
            if planned.what == "jvm" and where == PYTHON_STARTS:
                # there is none to kill yet: as soon as there is
                where = SPARK_STARTS
            life.struck_by(f"kill {planned.what}", *((SINK, NO_JAVA) if planned.what == "jvm" else (-signal.SIGKILL,)))
            at = time.time() - life.started_at
            struck = life.kill(planned.what)
            if not self.site.lives.ended(life, GIVE_UP_S):
                self.problems.append(
                    f"{life.name} was still there {GIVE_UP_S:.0f} s after the kill of its {planned.what}"
                )
                life.kill("both")
                self.site.lives.ended(life)
            if struck:
                self.done.append(
                    {"kill": number, "what": planned.what, "at_s": round(at, 2), "where": where, "life": life.name}
                )
                self.tell(f"kill {number}: {planned.what} after {at:.1f} s, {where}; {self.progress()}")
                return
        self.problems.append(f"kill {number} was not done: five lives ended before it")

    def pair(self) -> None:
        """Time a restart after a kill, then a start after a stop in good order."""
        for times, what in ((self.timed.restarts, "restart"), (self.timed.normal, "normal start")):
            life = self.start()
            seconds = self.until_first_row(life)
            # whatever it is doing is finished first
            life.struck_by("stop", 0)
            if life.process.poll() is None:
                life.process.terminate()
            if not self.site.lives.ended(life, GIVE_UP_S):
                self.problems.append(f"{life.name} did not stop")
                life.kill("both")
                self.site.lives.ended(life)
            if seconds is None:
                self.problems.append(f"{life.name} committed nothing in {GIVE_UP_S:.0f} s")
                continue
            times.append(seconds)
            self.tell(f"{what}: first row after {seconds:.1f} s; {self.progress()}")

    def until_first_row(self, life: Life) -> float | None:
        """Seconds from its start to its first row."""
        deadline = time.monotonic() + GIVE_UP_S
        while time.monotonic() < deadline:
            seconds = first_row_s(self.site.ledger.rows(), life.name, life.started_at)
            if seconds is not None or self.site.lives.ended(life, 0.1):
                return seconds
        return None

    def start(self) -> Life:
        """Start the stream, with enough before it."""
        left = self.pump.acknowledged - sum(row.records_read for row in self.site.ledger.committed())
        if left < ENOUGH * self.batch:
            self.tell(f"{left:,} events are left: sending more")
            self.pump.send(2 * ENOUGH * self.batch)
            self.pump.flush()
        return self.site.lives.start(["--available-now"])

    def progress(self) -> str:
        """How far it has come."""
        rows = self.site.ledger.committed()
        return f"{sum(row.records_read for row in rows):,} read in {len(rows)} batches"


def whereabouts(lake: Path, life: Life) -> str:
    """What a life is doing, by the files that are there: none of it is asked, and none of it waits."""
    if life.java() is None:
        return PYTHON_STARTS
    try:
        owner = json.loads((lake / "leases" / "orders.json").read_text(encoding="utf-8"))["pid"]
    except (OSError, ValueError, KeyError):
        owner = None
    if owner != life.pid:
        return SPARK_STARTS
    stages = [each for each in (lake / "staging" / "orders").glob("*") if each.is_dir()]
    if not stages:
        return "between batches"
    have = {file.name for file in stages[0].iterdir()} if stages[0].exists() else set()
    for file, step in (("probe.json", "writing tables"), ("gate.json", "probe"), ("manifest.json", "gate")):
        if file in have:
            return step
    return "stage"


def main(arguments: list[str]) -> int:
    """One run of kills."""
    options = _options(arguments)
    smallest, largest = BATCH
    batch = min(max(options.events // (2 * options.kills), smallest), largest)
    with open_site(options.folder, options.seed, partitions=4, max_offsets=batch, keep=options.keep) as site:
        tell = Teller(site.folder)
        document = kills(site, batch, options, tell)
        return finish(site, document, summary(document))


def kills(site: Site, batch: int, options: argparse.Namespace, tell: Teller) -> dict[str, Any]:
    """The whole run, as its document."""
    tell(f"seed {options.seed}: {options.kills} kills, {options.events:,} events in batches of {batch:,}")
    pump = Pump(site)
    pump.send(options.events)
    pump.flush()
    tell(f"{pump.acknowledged:,} events are in the topic")
    run = Run(site, pump, batch, tell)
    pairs = pairs_of(options.kills)
    for number, planned in enumerate(kills_of(options.seed, options.kills), 1):
        run.kill(number, planned)
        if number in pairs:
            run.pair()
    # nobody is killed any more: what is left may go faster
    site.configure(BATCH[1])
    problems = run.problems + last_run(site.lives, tell)
    problems += site.lives.left_behind() + site.lives.surprises()
    ratio = run.timed.ratio
    if ratio is None or ratio > SLOW:
        problems.append(f"restarts take {ratio} times as long as normal starts, {SLOW} allowed")
    tell("verifying")
    rows = site.ledger.committed()
    killed = {each["life"]: each for each in run.done}
    seen = [first_row_s(rows, life.name, life.started_at) for life in site.lives.all if life.name in killed]
    return {
        "kind": "kills", "seed": options.seed, "kills": len(run.done), "batch": batch,
        **judged(site, pump, site.verify(), problems),
        "killed": dict(Counter(each["what"] for each in run.done)),
        "where": dict(Counter(each["where"] for each in run.done).most_common()),
        "first_row_s": {
            "restarts": spread(run.timed.restarts), "normal": spread(run.timed.normal), "ratio": ratio,
            "killed_after_it": spread(seen),
        },
        "done": run.done,
    }  # fmt: skip


def summary(document: dict[str, Any]) -> list[str]:
    """The document for a reader."""
    times = document["first_row_s"]
    where = ", ".join(f"{count} {name}" for name, count in document["where"].items())
    restarts, normal = times["restarts"], times["normal"]
    return [
        f"{document['kills']} kills, seed {document['seed']}, batches of {document['batch']:,}",
        f"  killed       {document['killed']}",
        f"  where        {where}",
        f"  lives        {document['lives']}; exit codes {document['ends']}",
        f"  first row    {restarts['median']} s after a restart (median of {restarts['count']}; "
        f"max {restarts['max']}); {normal['median']} s after a normal start (median of {normal['count']}; "
        f"max {normal['max']}): {times['ratio']} times",
    ]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where everything goes; must be empty")
    parser.add_argument("--keep", action="store_true", help="keep lake and topic after a clean run, too")
    options = parser.parse_args(arguments)
    options.folder = (options.folder or folder_for("kills", options.seed)).resolve()
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
