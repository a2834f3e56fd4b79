"""The demo: a lake of its own, the real stream over a landing folder (or a real broker), then the real batch job."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from lazaretto.commit import BatchResult, OnStep, ignore
from lazaretto.config import load_settings
from lazaretto.errors import ConfigurationError, SourceError
from lazaretto.jobs.batch import run_manifest
from lazaretto.jobs.broker import LocalBroker
from lazaretto.jobs.dataset import open_dataset
from lazaretto.jobs.demo_events import landing_events, manifest_events
from lazaretto.jobs.micro_batches import StreamReport
from lazaretto.jobs.run import Run
from lazaretto.jobs.stream import run_stream

_MARK = ".lazaretto-demo"
_FILES = 4
_TOPIC = "orders"

_CONF = """\
# Written by `lazaretto demo`. Paths are relative to this file.
warehouse: ./lake
datasets:
  orders:
    contract: contracts/orders.odcs.yaml
    rules: rules/orders.yml
    event_id: event_id
    event_time: event_time
    source: {source}
"""


@dataclass(frozen=True)
class DemoReport:
    """What the demo's two jobs came to."""

    folder: Path
    conf: Path
    stream: StreamReport
    manifest: BatchResult


def prepare(folder: Path) -> None:
    """An empty demo folder; what an earlier demo has left there is removed.

    Raises:
        ConfigurationError: the folder holds something else.
    """
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARK).is_file():
            raise ConfigurationError(
                "this folder is in use, and not by a demo", where=str(folder), remedy="give another one by --dir"
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()
    package = files("lazaretto.jobs") / "demo_files"
    for name, place in (("orders.odcs.yaml", "contracts/orders.odcs.yaml"), ("orders_rules.yml", "rules/orders.yml")):
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_text((package / name).read_text(encoding="utf-8"), encoding="utf-8")


def run_demo(
    spark: SparkSession,
    folder: Path,
    run: Run,
    *,
    kafka: bool = False,
    say: Callable[[str], None] = lambda text: None,
    on_step: OnStep = ignore,
) -> DemoReport:
    """Write the events, run both jobs over them, and report.

    Args:
        folder: made anew by `prepare`. kafka: through a real broker, which is started and stopped here.
        say: told in a line what is going on.
    """
    prepare(folder)
    records = landing_events()
    with _source(folder, records, kafka, say) as source:
        conf = folder / "lazaretto.yml"
        conf.write_text(_CONF.format(source=source), encoding="utf-8")
        dataset = open_dataset(load_settings(conf), "orders")
        say("stream: screening and landing the events in micro-batches")
        report = run_stream(spark, dataset, run, trigger={"availableNow": True}, on_step=on_step)
    manifest = write_manifest(folder / "delivery", list(manifest_events()))
    say("batch: loading a manifest that repeats a hundred of them")
    result = run_manifest(spark, dataset, manifest, run, on_step=on_step)
    return DemoReport(folder, conf, report, result)


@contextmanager
def _source(folder: Path, records: Sequence[bytes], kafka: bool, say: Callable[[str], None]) -> Iterator[str]:
    """Puts the records where the stream reads them; gives the `source:` of the configuration."""
    if not kafka:
        say(f"writing {len(records):,} order events into {folder / 'landing'}")
        write_landing(folder / "landing", records)
        yield "{kind: files, path: ./landing, format: jsonl, max_files_per_trigger: 2}"
        return
    say("starting a Kafka broker (its jars are fetched the first time)")
    with LocalBroker() as broker:
        broker.create_topic(_TOPIC, partitions=2)
        say(f"producing {len(records):,} order events to topic {_TOPIC}")
        produce(broker.bootstrap_servers, _TOPIC, records)
        yield (
            f'{{kind: kafka, bootstrap_servers: "{broker.bootstrap_servers}", topic: {_TOPIC}, '
            "starting_offsets: earliest, max_offsets_per_trigger: 10000}"
        )


def write_landing(landing: Path, records: Sequence[bytes]) -> None:
    """The records as JSON lines in a few files; each is written beside the folder and renamed into it."""
    landing.mkdir(parents=True)
    size = -(-len(records) // _FILES)
    for number in range(_FILES):
        draft = landing.parent / f".part-{number}.jsonl"
        draft.write_bytes(b"".join(r + b"\n" for r in records[number * size : (number + 1) * size]))
        draft.rename(landing / f"part-{number}.jsonl")


def write_manifest(folder: Path, records: Sequence[bytes]) -> Path:
    """One file of JSON lines and the manifest that promises it."""
    folder.mkdir(parents=True)
    content = b"".join(r + b"\n" for r in records)
    (folder / "part-0.jsonl").write_bytes(content)
    entry = {
        "path": "part-0.jsonl",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "records": len(records),
    }
    manifest = folder / "manifest.json"
    document = {"manifest_id": "orders-demo-001", "dataset": "orders", "format": "jsonl", "files": [entry]}
    manifest.write_text(json.dumps(document, indent=2), encoding="utf-8")
    return manifest


def produce(bootstrap_servers: str, topic: str, records: Sequence[bytes]) -> None:
    """Send the records, in order within a partition, and wait until the broker has them all.

    Raises:
        SourceError: the broker did not take them.
    """
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 20})
    for number, record in enumerate(records):
        while True:
            try:
                producer.produce(topic, value=record, partition=number % 2)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise SourceError("the demo's broker did not take all events", remedy="run the demo again")
