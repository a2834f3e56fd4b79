"""The faults of a soak: one function each, which does the fault, waits until it is over, and says what it did.

To add one, write a function and decorate it: `weight` is how often it comes, each further keyword an argument with the
range that the plan draws it from. An argument named `seconds` is how long the fault lasts, which the plan waits for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .events import order
from .lives import Life, Supervisor
from .site import TOPIC, Site

SINK = 5
"""The exit code of a stream whose Java process is gone."""

NO_JAVA = 2
"""... and of one whose Java process was gone before it could be asked for anything."""

SOURCE = 4
"""The exit code of a stream whose broker is away."""

STOP_S = 120.0
"""A stream that was asked to stop finishes its batch first."""

MOST_PARTITIONS = 16


@dataclass(frozen=True)
class Scene:
    """What a fault can reach."""

    site: Site
    supervisor: Supervisor

    @property
    def life(self) -> Life:
        return self.supervisor.life


Act = Callable[..., str]


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    act: Act
    weight: int
    ranges: Mapping[str, tuple[float, float]]


FAULTS: dict[str, Fault] = {}


def fault(weight: int, **ranges: tuple[float, float]) -> Callable[[Act], Act]:
    """Put a function into the list, under its own name."""

    def add(act: Act) -> Act:
        FAULTS[act.__name__] = Fault(act, weight, ranges)
        return act

    return add


@fault(weight=2)
def kill_python(scene: Scene) -> str:
    """SIGKILL of Python; the Java process finds out by itself, and may commit until then."""
    return _kill(scene.life, "python", -signal.SIGKILL)


@fault(weight=2)
def kill_java(scene: Scene) -> str:
    """SIGKILL of Spark's Java process, as the kernel does when memory runs out; Python ends by itself."""
    return _kill(scene.life, "jvm", SINK, NO_JAVA)


@fault(weight=2)
def kill_both(scene: Scene) -> str:
    """SIGKILL of the whole process group, as in a crash of the machine."""
    return _kill(scene.life, "both", -signal.SIGKILL)


def _kill(life: Life, what: str, *codes: int) -> str:
    life.struck_by(f"kill {what}", *codes)
    return f"{life.name}" if life.kill(what) else f"{life.name}: too late"


@fault(weight=2)
def stop(scene: Scene) -> str:
    """SIGTERM: it finishes its batch and ends with exit code 0. Before it listens, SIGTERM ends it as any process."""
    life = scene.life
    listens = life.listens()
    life.struck_by("stop", 0, *(() if listens else (-signal.SIGTERM,)))
    asked_at = time.monotonic()
    with contextlib.suppress(ProcessLookupError):
        life.process.terminate()
    while life.code is None and time.monotonic() - asked_at < STOP_S:
        time.sleep(0.1)
    if life.code is None:
        # an exit code that nothing allows: it is told as a surprise
        life.signal_group(signal.SIGKILL)
        return f"{life.name}: still there after {STOP_S:.0f} s"
    return f"{life.name} ended with {life.code} in {time.monotonic() - asked_at:.1f} s{'' if listens else ', starting'}"


@fault(weight=2, seconds=(2, 12), whom=(0, 3))
def freeze_stream(scene: Scene, seconds: float, whom: float) -> str:
    """SIGSTOP, later SIGCONT: of Python, of the Java process, or of both."""
    life, name = scene.life, ("python", "jvm", "both")[min(int(whom), 2)]
    life.struck_by(f"freeze {name}")
    java = life.java()
    pids = [pid for pid, of in ((life.pid, "python"), (java, "jvm")) if pid is not None and name in (of, "both")]
    _signal(pids, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        _signal(pids, signal.SIGCONT)
    return f"{life.name}: {name}" if pids else f"{life.name}: no Java process yet"


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@fault(weight=2, seconds=(0, 10))
def kill_broker(scene: Scene, seconds: float) -> str:
    """SIGKILL of the broker; some seconds later it starts on the same data and address."""
    with _broker_away(scene):
        scene.site.broker.kill()
        time.sleep(seconds)
        scene.site.start_broker()
    return "is back"


@fault(weight=1, seconds=(10, 30))
def freeze_broker(scene: Scene, seconds: float) -> str:
    """SIGSTOP, later SIGCONT, of the broker: connections stay and nobody answers."""
    pid = scene.site.broker.pid
    assert pid is not None
    with _broker_away(scene):
        _signal([pid], signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            _signal([pid], signal.SIGCONT)
    return "is back"


@contextlib.contextmanager
def _broker_away(scene: Scene) -> Any:
    """Streams that live while the broker is away may say so, now or later."""
    first = scene.life.number
    scene.life.struck_by("broker away", SOURCE)
    yield
    for life in scene.site.lives.all[first:]:
        life.struck_by("broker away", SOURCE)


@fault(weight=1, more=(1, 2))
def add_partitions(scene: Scene, more: float) -> str:
    """More partitions of the topic, while it is written to and read."""
    before = scene.site.partitions()
    wanted = min(round(more), MOST_PARTITIONS - before)
    return f"now {scene.site.add_partitions(wanted) if wanted else before}"


@fault(weight=1, events=(10, 2000), seconds=(0, 8))
def abort_transaction(scene: Scene, events: float, seconds: float) -> str:
    """Sound events in a transaction that stays open for a while and is aborted: none of them may land."""
    from confluent_kafka import KafkaException, Producer

    site = scene.site
    producer = Producer(
        {
            "bootstrap.servers": site.broker.bootstrap_servers, "transactional.id": f"aborted-{site.token}",
            "transaction.timeout.ms": 15_000, "log_level": 0,
        }
    )  # fmt: skip
    try:
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in range(round(events)):
            # of another seed: their ids are nobody else's
            producer.produce(TOPIC, value=order(site.seed + 1, number))
        producer.flush(30)
        # until it is decided, nobody reads on behind it
        time.sleep(seconds)
        producer.abort_transaction(30)
    except KafkaException as exc:
        # the broker gives it up by itself, which is an abort too
        return f"{round(events)} events, given up ({exc.args[0].name()})"
    return f"{round(events)} events"
