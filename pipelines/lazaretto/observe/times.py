"""Times from Spark as aware datetimes, whatever the time zones of session and machine.

Spark's own conversion gives naive local times, and fails on years that Python cannot hold, which held records may have.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(column: str) -> Column:
    """A timestamp column as microseconds since 1970, under the same name."""
    return F.unix_micros(F.col(column)).alias(column)


def aware(at_micros: int | None) -> datetime | None:
    """The time in UTC; None for none, and for one that Python cannot hold."""
    if at_micros is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=at_micros)
    except OverflowError:
        return None


def known(at_micros: int) -> datetime:
    """`aware` for a time that one of our own clocks has written."""
    at = aware(at_micros)
    assert at is not None
    return at


def to_micros(at: datetime) -> int:
    """A zone-aware time as microseconds since 1970, exactly."""
    return (at - _EPOCH) // timedelta(microseconds=1)
