"""The place where a soak happens: a broker, a topic, a lake and its configuration, all in one folder."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lazaretto.errors import SourceError
from lazaretto.jobs.broker import LocalBroker

from .events import Kind, event
from .ledger import Ledger
from .lives import Lives

ROOT = Path(__file__).resolve().parent.parent.parent
VERIFIER = ROOT / "tests" / "verifier" / "verify.py"
TOPIC = "orders"

BROKER_SETTINGS = {
    # A transaction whose producer was cut off is given up soon, so that it does not hold up the readers.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
}


class Site:
    """Broker, topic and lake of one run."""

    def __init__(self, folder: Path, seed: int, broker: LocalBroker, max_offsets: int) -> None:
        self.folder = folder
        self.seed = seed
        self.broker = broker
        self.lake = folder / "lake"
        self.ledger = Ledger(self.lake / "ingestion_status")
        self._conf = folder / "lazaretto.yml"
        self.configure(max_offsets)
        self.lives = Lives(folder / "lives", self._conf)
        # Everything else about the run is in the folder; this is only for the transactions' producers.
        self.token = secrets.token_hex(4)
        self.clean = False

    def configure(self, max_offsets: int) -> None:
        """Write the stream's configuration; a life reads it when it starts."""
        self._conf.write_text(_configuration(self.broker.bootstrap_servers, max_offsets), encoding="utf-8")

    def partitions(self) -> int:
        """How many the topic has."""
        return len(self._admin().list_topics(TOPIC, timeout=30).topics[TOPIC].partitions)

    def add_partitions(self, more: int) -> int:
        """Add some, and say how many there are."""
        from confluent_kafka.cimpl import NewPartitions

        total = self.partitions() + more
        # held until the answer is there: the client ends with its last reference
        admin = self._admin()
        admin.create_partitions([NewPartitions(TOPIC, total)])[TOPIC].result(timeout=30)
        return total

    def start_broker(self) -> None:
        """Start it again on the same data and address. On a busy machine it may need more than one attempt."""
        for attempt in range(3):
            with contextlib.suppress(SourceError):
                self.broker.start()
                return
            time.sleep(1 + attempt)
        self.broker.start()

    def verify(self) -> dict[str, Any]:
        """What the verifier, a process of its own, finds."""
        command = [sys.executable, str(VERIFIER), "--warehouse", str(self.lake), "--dataset", "orders"]
        command += ["--kafka", self.broker.bootstrap_servers, "--topic", TOPIC]
        command += ["--checkpoint", str(self.lake / "checkpoints" / "orders")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            found: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            return {"ok": False, "unreadable": f"the verifier ended with {done.returncode}: {done.stderr[-600:]}"}
        found["ok"] = found["ok"] and done.returncode == 0
        return found

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})


@contextmanager
def open_site(folder: Path, seed: int, *, partitions: int, max_offsets: int, keep: bool) -> Iterator[Site]:
    """A new site; when it closes, by SIGTERM too, nothing runs any more.

    One that was found clean leaves only what was printed, unless `keep`.
    """
    if folder.exists() and any(folder.iterdir()):
        raise SystemExit(f"{folder} is not empty: name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _end)
    with LocalBroker(data_dir=folder / "kafka", settings=BROKER_SETTINGS) as broker:
        broker.create_topic(TOPIC, partitions)
        site = Site(folder, seed, broker, max_offsets)
        try:
            yield site
        finally:
            site.lives.close()
    if site.clean and not keep:
        shutil.rmtree(site.lake)
        shutil.rmtree(folder / "kafka")


def _end(number: int, _: object) -> None:
    # as an exception, so that nothing is left running
    raise SystemExit(128 + number)


class Pump:
    """Sends numbered events, each once, and counts what the broker acknowledged."""

    def __init__(self, site: Site) -> None:
        from confluent_kafka import Producer

        self.number = 0
        self.acknowledged = 0
        self.failed = 0
        self.kinds: Counter[Kind] = Counter()
        self._seed = site.seed
        # Idempotent: a retry inside the client must not double what is counted. It retries for longer than any broker
        # of ours is away.
        self._producer = Producer(
            {
                "bootstrap.servers": site.broker.bootstrap_servers, "enable.idempotence": True, "linger.ms": 20,
                "delivery.timeout.ms": 600_000, "queue.buffering.max.messages": 1_000_000,
                "topic.metadata.refresh.interval.ms": 5000, "compression.type": "lz4", "log_level": 0,
            }
        )  # fmt: skip

    def send(self, count: int) -> None:
        """Hand over the next `count` events; the broker may take them later."""
        for _ in range(count):
            made = event(self._seed, self.number)
            while True:
                try:
                    self._producer.produce(TOPIC, value=made.value, key=made.key, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self.kinds[made.kind] += 1
            self.number += 1
            if self.number % 100 == 0:
                self._producer.poll(0)
        self._producer.poll(0)

    def flush(self, timeout_s: float = 300.0) -> None:
        """Wait until the broker has everything; what it has not taken by then counts as failed."""
        self.failed += self._producer.flush(timeout_s)

    def _delivered(self, error: object, _: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1


def _configuration(servers: str, max_offsets: int) -> str:
    source = {
        "kind": "kafka", "bootstrap_servers": servers, "topic": TOPIC, "starting_offsets": "earliest",
        "max_offsets_per_trigger": max_offsets,
    }  # fmt: skip
    return (
        "warehouse: ./lake\n"
        "datasets:\n"
        "  orders:\n"
        f"    contract: {ROOT / 'conf/contracts/orders.odcs.yaml'}\n"
        f"    rules: {ROOT / 'dq_rules/orders.yml'}\n"
        f"    source: {json.dumps(source)}\n"
    )
