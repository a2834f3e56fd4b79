"""A record that makes its batch fail is found by halving, and held; the rest of the batch goes on.

Only for what fails the same way again and again while rows are evaluated. What storage, source or memory do is an
outage: nothing is isolated then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lazaretto.commit.schema import columns
from lazaretto.commit.screened import Verdict, screened_ddl
from lazaretto.commit.spark_edge import edge
from lazaretto.contracts import Contract
from lazaretto.errors import ProcessingError, RecordCode

ATTEMPTS = 3
"""So often the same failure is seen before one of the records is suspected."""

MOST_RECORDS = 20
"""With more culprits than this it is not the records: the batch fails as a whole."""

_PAUSE_S = 0.5


@dataclass(frozen=True)
class Span:
    """Records of one partition, by their positions, both inclusive."""

    system: str
    stream: str
    partition: str | None
    start: int
    end: int

    def holds(self) -> Column:
        """Whether a row is one of them."""
        s = F.col("source")
        return (
            (s["system"] == F.lit(self.system))
            & (s["stream"] == F.lit(self.stream))
            & s["partition"].eqNullSafe(F.lit(self.partition))
            & s["position"].between(self.start, self.end)
        )

    def halves(self) -> tuple[Span, Span]:
        middle = (self.start + self.end) // 2
        of = (self.system, self.stream, self.partition)
        return Span(*of, self.start, middle), Span(*of, middle + 1, self.end)


@dataclass(frozen=True)
class Isolated:
    """The records to hold unscreened, and why: one line, nothing from a record."""

    records: tuple[Span, ...] = ()
    reason: str = ""

    def others(self, envelope: DataFrame) -> DataFrame:
        """The envelope without them."""
        return envelope.where(~self._are_ours()) if self.records else envelope

    def held(self, envelope: DataFrame, contract: Contract) -> DataFrame:
        """They themselves as screened rows: invalid, `PROCESSING_ERROR`, everything kept that the source gave."""
        violation = F.array(
            F.struct(
                F.lit(RecordCode.PROCESSING_ERROR.value).alias("code"),
                F.lit(None).cast("string").alias("field"),
                F.lit(self.reason).alias("detail"),
            )
        )
        values = {
            "payload": F.col("value"),
            "payload_sha256": F.sha2("value", 256),
            "payload_bytes": F.octet_length("value").cast("bigint"),
            "verdict": F.lit(Verdict.INVALID.value),
            "violations": violation,
            "warnings": F.array(),
            "degraded": F.array(),
        }
        kept = ("source", "key", "headers", "source_time")
        return envelope.where(self._are_ours()).select(
            *(
                (F.col(c.name) if c.name in kept else values.get(c.name, F.lit(None)).cast(c.dataType)).alias(c.name)
                for c in columns(screened_ddl(contract))
            )
        )

    def _are_ours(self) -> Column:
        return reduce(Column.__or__, (span.holds() for span in self.records))


NOBODY = Isolated()


def evaluated(
    where: str,
    write: Callable[[Isolated], None],
    envelope: Callable[[], DataFrame],
    screen: Callable[[DataFrame], DataFrame],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Isolated:
    """Write the rows; where they fail the same way `ATTEMPTS` times, without the records that make them fail.

    Args:
        write: evaluates all rows but the isolated ones, and writes them beside these.
        envelope, screen: as `run_batch` takes them.

    Returns:
        The records that were isolated: mostly none.

    Raises:
        ProcessingError: the failure is not one of a few records.
    """
    last = None
    for attempt in range(1, ATTEMPTS + 1):
        try:
            write(NOBODY)
        except ProcessingError as exc:
            if last is not None and last.what != exc.what:
                raise
            last = exc
            sleep(_PAUSE_S * attempt)
        else:
            return NOBODY
    assert last is not None
    found = _culprits(where, envelope, screen, last)
    isolated = Isolated(tuple(found), f"the batch failed with it {ATTEMPTS} times: {last.reason}")
    write(isolated)
    return isolated


def _culprits(
    where: str, envelope: Callable[[], DataFrame], screen: Callable[[DataFrame], DataFrame], failure: ProcessingError
) -> list[Span]:
    def fails(span: Span) -> bool:
        try:
            with edge("part of the batch could not be screened", where, reads_source=True, evaluates=True):
                screen(envelope().where(span.holds())).write.format("noop").mode("overwrite").save()
        except ProcessingError:
            return True
        return False

    with edge("the batch could not be counted", where, reads_source=True):
        spans = _spans(envelope())
    found = search(spans, fails)
    if not found or len(found) > MOST_RECORDS:
        raise failure
    return found


def search(spans: Iterable[Span], fails: Callable[[Span], bool]) -> list[Span]:
    """The single records that fail; stops at one more than `MOST_RECORDS`."""
    left, found = list(spans), list[Span]()
    while left and len(found) <= MOST_RECORDS:
        span = left.pop()
        if not fails(span):
            continue
        if span.start == span.end:
            found.append(span)
        else:
            left.extend(span.halves())
    return found


def _spans(envelope: DataFrame) -> list[Span]:
    rows = (
        envelope.groupBy("source.system", "source.stream", "source.partition")
        .agg(F.min("source.position").alias("start"), F.max("source.position").alias("end"))
        .collect()
    )
    return [Span(r["system"], r["stream"], r["partition"], r["start"], r["end"]) for r in rows]
