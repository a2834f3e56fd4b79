"""A soak: minutes of faults over a stream that goes on, then a quiet end and the verifier. `make soak` runs it.

docs/soak.md has the story. `python -m tests.soak.soak --help` has the options. Exit code 0 only if all is clean.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .faults import FAULTS, Scene
from .ledger import first_row_s
from .lives import Life, Lives, Supervisor
from .report import Teller, finish, folder_for, judged, spread
from .schedule import Planned, faults_of
from .site import Pump, Site, open_site

MAX_OFFSETS = 20_000
TICK_S = 0.05
TOLD_EVERY_S = 15.0
LAST_S = 1800.0


class Sender(threading.Thread):
    """Sends events at a steady rate until told to stop."""

    def __init__(self, pump: Pump, rate: float) -> None:
        super().__init__(daemon=True)
        self._pump = pump
        self._rate = rate
        self._over = threading.Event()

    def run(self) -> None:
        """Send what is due, again and again."""
        began = time.monotonic()
        while not self._over.wait(TICK_S):
            self._pump.send(int((time.monotonic() - began) * self._rate) - self._pump.number)

    def end(self) -> None:
        """Stop, and wait until the broker has everything."""
        self._over.set()
        self.join()
        self._pump.flush()


def main(arguments: list[str]) -> int:
    """One soak."""
    options = _options(arguments)
    planned = faults_of(options.seed, options.minutes, FAULTS)
    if options.plan:
        for each in planned:
            sys.stdout.write(f"{each.at_s:8.1f} s  {each.fault} {dict(each.arguments)}\n")
        return 0
    with open_site(options.folder, options.seed, partitions=4, max_offsets=MAX_OFFSETS, keep=options.keep) as site:
        document = soak(site, planned, options)
        return finish(site, document, summary(document))


def soak(site: Site, planned: list[Planned], options: argparse.Namespace) -> dict[str, Any]:
    """The whole run, as its document."""
    tell = Teller(site.folder)
    tell(f"seed {options.seed}: {options.minutes:g} minutes, {options.rate:g} events/s, {len(planned)} faults")
    pump = Pump(site)
    sender = Sender(pump, options.rate)

    def ended(life: Life) -> None:
        tell(f"{life.name} ended with {life.code}")

    began = time.monotonic()
    supervisor = Supervisor(site.lives, ["--trigger", "1s"], ended)
    sender.start()
    done = strike(Scene(site, supervisor), planned, began, tell, pump)
    wait_until(began + options.minutes * 60, tell, site, pump)

    tell("quiet end: no more events, no more faults")
    sender.end()
    problems = [] if supervisor.end() else ["the stream did not stop at the end"]
    problems += last_run(site.lives, tell)
    problems += site.lives.left_behind() + site.lives.surprises()
    tell("verifying")
    rows = site.ledger.committed()
    first, *restarts = [(life, first_row_s(rows, life.name, life.started_at)) for life in site.lives.all[:-1]]
    times = {life.name: s for life, s in restarts}
    return {
        "kind": "soak", "seed": options.seed, "minutes": options.minutes, "rate": options.rate,
        **judged(site, pump, site.verify(), problems),
        "faults": dict(sorted(Counter(each["fault"] for each in done).items())),
        "restarts": len(restarts),
        "first_row_s": {"first_start": first[1], "restarts": spread(times.values()), "each": times},
        "partitions": site.partitions(),
        "done": done,
    }  # fmt: skip


def strike(scene: Scene, planned: list[Planned], began: float, tell: Teller, pump: Pump) -> list[dict[str, Any]]:
    """Do the faults, each at its time, or as soon as the one before is over."""
    done = []
    for each in planned:
        wait_until(began + each.at_s, tell, scene.site, pump)
        said = FAULTS[each.fault].act(scene, **each.arguments)
        tell(f"{each.fault}: {said}")
        done.append({**asdict(each), "said": said})
    return done


def wait_until(when: float, tell: Teller, site: Site, pump: Pump) -> None:
    """Sleep, with a line about how far it has come now and then."""
    while (left := when - time.monotonic()) > 0:
        time.sleep(min(left, TOLD_EVERY_S))
        if left > TOLD_EVERY_S / 2:
            rows = site.ledger.committed()
            read = sum(row.records_read for row in rows)
            tell(f"{pump.number:,} sent, {read:,} read in {len(rows)} batches, {len(site.lives.all)} lives")


def last_run(lives: Lives, tell: Teller) -> list[str]:
    """Take what is left, and end with exit code 0."""
    tell("the last run takes what is left")
    life = lives.start(["--available-now"])
    life.allowed.add(0)
    if lives.ended(life, LAST_S):
        return []
    life.kill("both")
    lives.ended(life)
    return [f"the last run did not end within {LAST_S:.0f} s"]


def summary(document: dict[str, Any]) -> list[str]:
    """The document for a reader."""
    times = document["first_row_s"]
    restarts = times["restarts"]
    faults = ", ".join(f"{count} {name}" for name, count in document["faults"].items())
    return [
        f"soak of {document['minutes']:g} minutes, seed {document['seed']}",
        f"  faults       {sum(document['faults'].values())}: {faults}",
        f"  restarts     {document['restarts']}; exit codes {document['ends']}",
        f"  first row    {restarts['median']} s after a restart (median of {restarts['count']} that got so far; "
        f"max {restarts['max']}); {times['first_start']} s after the first start",
    ]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=500, help="events a second")
    parser.add_argument("--folder", type=Path, help="where everything goes; must be empty")
    parser.add_argument("--keep", action="store_true", help="keep lake and topic after a clean run, too")
    parser.add_argument("--plan", action="store_true", help="print the plan, and do nothing")
    options = parser.parse_args(arguments)
    options.folder = (options.folder or folder_for("soak", options.seed)).resolve()
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
