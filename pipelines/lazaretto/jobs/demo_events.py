"""The demo's order events: mostly sound, some broken in ways that real senders break them, some sent twice.

Deterministic: the same numbers every time, so that what the demo prints can be checked against what was written.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

_START = datetime(2026, 11, 1, tzinfo=UTC)
_CURRENCIES = ("EUR", "USD", "JPY", "TWD", "CNY")
_SYSTEMS = ("ios", "android", "web")


@dataclass(frozen=True)
class Defect:
    """One way to be broken: the code it is held with, how many there are, and what breaks a sound event."""

    code: str
    count: int
    breaks: Callable[[dict[str, Any]], bytes]


def _changed(**changes: Any) -> Callable[[dict[str, Any]], bytes]:
    return lambda event: encoded({**event, **changes})


def _without(name: str) -> Callable[[dict[str, Any]], bytes]:
    return lambda event: encoded({k: v for k, v in event.items() if k != name})


def _text(old: bytes, new: bytes) -> Callable[[dict[str, Any]], bytes]:
    return lambda event: encoded(event).replace(old, new, 1)


DEFECTS = (
    # A market that went live before its currency was added to the rule: sound orders, held until the rule is mended.
    Defect("ORD-003", 120, _changed(currency="GBP")),
    Defect("ORD-002", 40, _changed(amount=-1)),
    Defect("ORD-004", 30, _changed(quantity=0)),
    Defect("MISSING_REQUIRED", 50, _without("user_id")),
    Defect("TYPE_MISMATCH", 40, _changed(user_id="n/a")),
    Defect("BAD_TIMESTAMP", 30, _changed(event_time="2026-11-31T10:00:00Z")),
    Defect("UNKNOWN_FIELD", 30, _changed(coupon="BF26")),
    Defect("PRECISION_LOSS", 20, _changed(amount=10.005)),
    Defect("OUT_OF_RANGE", 10, _changed(quantity=3_000_000_000)),
    Defect("DUPLICATE_KEY", 10, _text(b'"quantity":', b'"quantity":7,"quantity":')),
    Defect("TRAILING_DATA", 10, lambda event: encoded(event) + b" " + encoded(event)),
    Defect("MALFORMED", 20, lambda event: encoded(event)[:-20]),
    Defect("ENCODING", 10, _text(b'"purchase"', b'"purch\xe4se"')),
    Defect("EMPTY", 5, lambda event: b""),
    Defect("COMPRESSED", 5, lambda event: b"\x1f\x8b\x08\x00" + bytes(8)),
)
DUPLICATES = 600
CONFLICTS = 15


def encoded(event: dict[str, Any]) -> bytes:
    """An event as compact JSON."""
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


def sound_event(number: int, random_: random.Random) -> dict[str, Any]:
    """A valid order event."""
    at = _START + timedelta(seconds=number * 97, milliseconds=random_.randrange(1000))
    return {
        "event_id": f"evt-{number:07d}",
        "event_type": "purchase",
        "event_time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "user_id": random_.randrange(1, 50_000),
        "amount": random_.randrange(100, 500_000) / 100,
        "currency": random_.choice(_CURRENCIES),
        "quantity": random_.randrange(1, 9),
        "score": round(random_.random(), 4),
        "birth_date": f"{random_.randrange(1950, 2008)}-{random_.randrange(1, 13):02d}-{random_.randrange(1, 28):02d}",
        "device": {"os": random_.choice(_SYSTEMS), "version": f"{random_.randrange(9, 18)}.{random_.randrange(10)}"},
        "tags": random_.sample(["new", "gift", "promo", "express", "returning"], k=random_.randrange(0, 4)),
    }


def landing_events(total: int = 20_000, seed: int = 7) -> list[bytes]:
    """The records of the landing folder, in the order they are written.

    `total` records: the defects of `DEFECTS`, `DUPLICATES` byte-for-byte repetitions, `CONFLICTS` with an event id that
    was used before for another order, and sound ones for the rest.
    """
    random_ = random.Random(seed)
    broken = sum(d.count for d in DEFECTS)
    sound = [sound_event(n, random_) for n in range(total - broken - DUPLICATES - CONFLICTS)]
    records = [encoded(event) for event in sound]
    number = len(sound)
    for defect in DEFECTS:
        for _ in range(defect.count):
            records.append(defect.breaks(sound_event(number, random_)))
            number += 1
    random_.shuffle(records)
    # What repeats an order comes after it, as it does in life.
    records += [encoded(event) for event in random_.sample(sound, DUPLICATES)]
    records += [encoded({**event, "amount": event["amount"] + 1}) for event in random_.sample(sound, CONFLICTS)]
    return records


def manifest_events(count: int = 1_000, seed: int = 8) -> Iterator[bytes]:
    """The records of the manifest's file: new orders, and the first hundred of the landing folder's again."""
    again = random.Random(7)
    for number in range(100):
        yield encoded(sound_event(number, again))
    random_ = random.Random(seed)
    for number in range(100_000, 100_000 + count - 100):
        yield encoded(sound_event(number, random_))
