"""Numbered order events: a number and a seed say what an event is, so that any run can be had again.

Most are sound. Some are invalid, some repeat an earlier event byte for byte, some use an earlier event's id for another
order, some are tombstones. Nothing here needs Spark or a broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial

_MASK = (1 << 64) - 1
_BEGIN = datetime(2026, 11, 1)
_CURRENCIES = ("EUR", "USD", "JPY", "TWD", "CNY")
_SYSTEMS = ("ios", "android", "web")

BACK = 20_000
"""How far back a duplicate or a conflict reaches: over many batches, and many restarts."""


class Kind(StrEnum):
    """What an event is meant to be."""

    SOUND = "sound"
    INVALID = "invalid"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    TOMBSTONE = "tombstone"


SHARES = {Kind.INVALID: 30, Kind.DUPLICATE: 40, Kind.CONFLICT: 5, Kind.TOMBSTONE: 5}
"""Of 1,000 events; the rest is sound."""


@dataclass(frozen=True, slots=True)
class Event:
    """One record to produce. A repeated event comes without a key, so that it may land in another partition."""

    kind: Kind
    key: bytes | None
    value: bytes | None


def event(seed: int, number: int) -> Event:
    """The event of this number; the same at every call."""
    kind = kind_of(seed, number)
    if kind is Kind.TOMBSTONE:
        return Event(kind, _key(seed, number), None)
    if kind is Kind.INVALID:
        return Event(kind, _key(seed, number), _broken(seed, number))
    if kind is Kind.SOUND:
        return Event(kind, _key(seed, number), order(seed, number))
    earlier = _sound_before(seed, number)
    return Event(kind, None, order(seed, earlier, cents_more=1 if kind is Kind.CONFLICT else 0))


def kind_of(seed: int, number: int) -> Kind:
    """Which kind the event of this number is. The first is sound, so that each later one has a sound one before it."""
    drawn = 1000 if number == 0 else _draw(seed, number, 1) % 1000
    for kind, share in SHARES.items():
        if drawn < share:
            return kind
        drawn -= share
    return Kind.SOUND


def _draw(seed: int, number: int, purpose: int) -> int:
    """64 random bits of these three (the finalizer of SplitMix64): a generator each would take most of the time."""
    x = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + purpose * 0x8CB92BA72F3D8DD7) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _sound_before(seed: int, number: int) -> int:
    earlier = max(number - 1 - _draw(seed, number, 2) % BACK, 0)
    while kind_of(seed, earlier) is not Kind.SOUND:
        earlier -= 1
    return earlier


def _id(seed: int, number: int) -> str:
    return f"e{seed}-{number:09d}"


def _key(seed: int, number: int) -> bytes:
    return _id(seed, number).encode()


def order(seed: int, number: int, *, cents_more: int = 0, quantity: str = "", user: str = "") -> bytes:
    """The order of this number, with what is to be another in it."""
    bits = _draw(seed, number, 3)
    cents = 100 + bits % 400_000 + cents_more
    at = (_BEGIN + timedelta(seconds=number // 2)).isoformat()
    return (
        f'{{"event_id":"{_id(seed, number)}","event_type":"purchase","event_time":"{at}.{number % 2 * 500:03d}Z",'
        f'"user_id":{user or (bits >> 20) % 50_000},"amount":{cents // 100}.{cents % 100:02d},'
        f'"currency":"{_CURRENCIES[(bits >> 36) % 5]}","quantity":{quantity or 1 + (bits >> 39) % 8},'
        f'"device":{{"os":"{_SYSTEMS[(bits >> 42) % 3]}","version":"{9 + (bits >> 44) % 9}.{(bits >> 48) % 10}"}}}}'
    ).encode()


def _broken(seed: int, number: int) -> bytes:
    """One of the ways to be invalid. The invalid ones keep ids of their own: none can pass for a sound one's repeat."""
    made = partial(order, seed, number)
    ways = (
        lambda: made()[:-20],
        lambda: made() + made(),
        lambda: made(quantity="0"),
        lambda: made(quantity="3000000000"),
        lambda: made(user='"n/a"'),
        lambda: made().replace(b'"purchase"', b'"purch\xe4se"', 1),
        lambda: made().replace(b'"event_type":"purchase",', b"", 1),
        lambda: b"[]",
        lambda: b"",
        lambda: b"\x1f\x8b\x08\x00" + bytes(8),
    )
    return ways[_draw(seed, number, 4) % len(ways)]()
