"""What is done to the stream, and when: a function of the seed alone, so that a run can be had again.

`faults_of` plans a soak: at second 12.3 this fault with these arguments. `kills_of` plans the kills: after this share
of a life's time, SIGKILL of these processes. Nothing here needs Spark or a broker.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

FIRST_S = 20.0
"""Before the first fault: the first start makes the tables, and should have begun."""

GAP_S = (5.0, 15.0)
"""Between the end of a fault and the next one."""

KILLED = ("python", "jvm", "both")


class Drawn(Protocol):
    """What the plan needs to know of a kind of fault."""

    @property
    def weight(self) -> int: ...
    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]: ...


@dataclass(frozen=True)
class Planned:
    """One fault of a soak, `at_s` seconds after its beginning."""

    at_s: float
    fault: str
    arguments: Mapping[str, float]


def faults_of(seed: int, minutes: float, kinds: Mapping[str, Drawn]) -> list[Planned]:
    """The faults of a soak. A shorter soak of the same seed has the same beginning.

    Kinds come out of a bag that holds each of them as often as its weight says, and is filled again when it is empty:
    each kind has come before one comes much too often. An argument named `seconds` is how long the fault lasts.
    """
    random_ = random.Random(f"soak {seed}")
    planned = []
    at_s = FIRST_S
    for name in _bagfuls(random_, {name: kind.weight for name, kind in kinds.items()}):
        if at_s >= minutes * 60:
            break
        arguments = {key: round(random_.uniform(*bounds), 1) for key, bounds in kinds[name].ranges.items()}
        planned.append(Planned(round(at_s, 1), name, arguments))
        at_s += arguments.get("seconds", 0.0) + random_.uniform(*GAP_S)
    return planned


def _bagfuls(random_: random.Random, weights: Mapping[str, int]) -> Iterator[str]:
    while True:
        bag = [name for name, weight in weights.items() for _ in range(weight)]
        random_.shuffle(bag)
        yield from bag


@dataclass(frozen=True)
class PlannedKill:
    """SIGKILL of `what` after `share` (0 to 1) of the time that lives are given in that run."""

    what: str
    share: float


def kills_of(seed: int, kills: int) -> list[PlannedKill]:
    """The kills of a run, one for each life."""
    random_ = random.Random(f"kills {seed}")
    return [PlannedKill(random_.choice(KILLED), round(random_.random(), 4)) for _ in range(kills)]


def pairs_of(kills: int) -> frozenset[int]:
    """After which kills (counted from 1) a restart and a normal start are timed: evenly spread, 20 at most, 3 at least.

    Spread, because both get slower as the tables grow: what is compared must be as old.
    """
    pairs = min(20, max(3, kills // 10), kills)
    return frozenset((n + 1) * kills // pairs for n in range(pairs))
