"""The edge to Spark, Delta and the file system: their errors become ours, their session settings stay as they were.

Spark's texts carry values of records, so a message of ours names only the error condition or the exception's class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import stamina
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from lazaretto.errors import CommitConflictError, ProcessingError, SinkError, SourceError

_CONFLICT_CLASSES = ("ConcurrentAppend", "ConcurrentDelete", "ConcurrentModification", "ConcurrentTransaction",
                     "ConcurrentWrite", "MetadataChanged", "ProtocolChanged")  # fmt: skip
_CONFLICT_CONDITIONS = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_SOURCE_CONDITIONS = ("KAFKA_", "FAILED_READ_FILE", "PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
_SOURCE_CLASSES = ("org.apache.kafka.", "org.apache.spark.sql.kafka010.")
CONFLICT_ATTEMPTS = 5
"""How often a step is tried against concurrent Delta writers, with growing, jittered pauses (0.1 to 5 s)."""

_STORAGE_CLASSES = ("java.io.", "java.nio.", "java.net.", "org.apache.hadoop.")
_OUTAGE_CLASSES = (
    *_STORAGE_CLASSES, "java.lang.OutOfMemoryError", "java.lang.InterruptedException", "java.util.concurrent.",
    "org.apache.spark.memory.", "java.lang.NoClassDefFoundError", "java.lang.UnsatisfiedLinkError",
    "java.lang.ExceptionInInitializerError",
)  # fmt: skip
_OUTAGE_CONDITIONS = ("SPARK_JOB_CANCELLED", "UNABLE_TO_ACQUIRE_MEMORY")
_DEEPEST_CAUSE = 20


class Cause(NamedTuple):
    """One link of an exception's chain: its class and, where Spark knows one, its error condition."""

    class_name: str
    condition: str | None


def causes(exc: BaseException) -> list[Cause]:
    """The chain of an error raised by PySpark or Py4J, outermost first; Java causes included."""
    chain: list[Cause] = []
    if isinstance(exc, PySparkException):
        chain.append(Cause(type(exc).__name__, exc.getCondition()))
    throwable: Any = getattr(exc, "_origin", None) or getattr(exc, "java_exception", None)
    while throwable is not None and len(chain) < _DEEPEST_CAUSE:
        try:
            chain.append(Cause(throwable.getClass().getName(), _condition(throwable)))
            throwable = throwable.getCause()
        except Exception:  # the JVM may be gone: what we know so far must do
            break
    return chain or [Cause(type(exc).__name__, None)]


def _condition(throwable: Any) -> str | None:
    try:
        return str(throwable.getCondition() or "") or None
    except Exception:  # not a Spark throwable
        return None


def is_conflict(exc: BaseException) -> bool:
    """Whether a concurrent Delta writer won."""
    return any(
        (c.condition or "").startswith(_CONFLICT_CONDITIONS)
        or c.class_name.rsplit(".", 1)[-1].startswith(_CONFLICT_CLASSES)
        for c in causes(exc)
    )


def is_source_fault(exc: BaseException) -> bool:
    """Whether the source could not be read, as far as the chain tells: Kafka, or a file that is gone or unreadable."""
    return any(
        (c.condition or "").startswith(_SOURCE_CONDITIONS) or c.class_name.startswith(_SOURCE_CLASSES)
        for c in causes(exc)
    )


def is_storage_fault(exc: BaseException) -> bool:
    """Whether files or the network failed below Spark: what may pass by itself."""
    return any(c.class_name.startswith(_STORAGE_CLASSES) for c in causes(exc))


def is_of_rows(exc: BaseException) -> bool:
    """Whether rows failed by what was computed of them: not the plan, storage or memory, and nobody has cancelled."""
    return not isinstance(exc, AnalysisException) and not any(
        c.class_name.startswith(_OUTAGE_CLASSES) or (c.condition or "").startswith(_OUTAGE_CONDITIONS)
        for c in causes(exc)
    )


def named(exc: BaseException) -> str:
    """The most telling condition of a chain, else the innermost class."""
    chain = causes(exc)
    conditions = [c.condition for c in chain if c.condition]
    return conditions[-1] if conditions else chain[-1].class_name.rsplit(".", 1)[-1]


def session_is_gone(exc: BaseException) -> bool:
    """Whether the Java process of Spark does not answer any more: killed, or out of memory."""
    # A broken pipe is not among them: py4j never raises it, and a reader of our output that has left does.
    if isinstance(exc, (Py4JNetworkError, ConnectionRefusedError, ConnectionResetError)):
        return True
    # py4j's bare error without a trace is an answer that never came; with one it is a mistake in the call.
    return type(exc) is Py4JError and "Trace:" not in str(exc)


def session_gone(where: str | None) -> SinkError:
    """The error for it: what was under way is as after any crash."""
    return SinkError(
        "the Java process of Spark is gone (killed, or out of memory)", where=where,
        remedy="run again: half-done batches are completed; give it more memory if it happens at the same place",
    )  # fmt: skip


@contextmanager
def edge(doing: str, where: str, *, reads_source: bool = False, evaluates: bool = False) -> Iterator[None]:
    """Translate what PySpark, Py4J and the file system raise inside.

    Args:
        doing: what was going on, as in "the stage could not be written".
        reads_source: the source is evaluated inside, so that its faults can come up here.
        evaluates: rows are evaluated inside, so that one of them can be what fails.

    Raises:
        SourceError: `reads_source`, and the source is at fault.
        ProcessingError: `evaluates`, and neither source nor storage nor memory is at fault.
        CommitConflictError: a concurrent writer won the Delta commit.
        SinkError: the Java process of Spark is gone, and everything else from Spark and the file system.
    """
    try:
        yield
    except (PySparkException, Py4JError, OSError) as exc:
        if session_is_gone(exc):
            raise session_gone(where) from exc
        if isinstance(exc, OSError):
            raise SinkError(
                f"{doing} ({exc.strerror or type(exc).__name__})", where=where,
                remedy="look at the storage, then run again", passing=True,
            ) from exc  # fmt: skip
        if reads_source and is_source_fault(exc):
            raise SourceError(
                f"the source could not be read ({named(exc)})", where=where, remedy="bring it back and run again",
                passing=any(c.class_name.startswith(_SOURCE_CLASSES) for c in causes(exc)),
            ) from exc  # fmt: skip
        if is_conflict(exc):
            raise CommitConflictError(
                f"{doing}: a concurrent writer won ({named(exc)})", where=where, remedy="run again"
            ) from exc
        if evaluates and is_of_rows(exc):
            raise ProcessingError(
                f"{doing} ({named(exc)})", where=where, reason=named(exc),
                remedy="run again; if it stays, look at the Spark log and the newest change of contract or rules",
            ) from exc  # fmt: skip
        raise SinkError(
            f"{doing} ({named(exc)})", where=where, remedy="look at the storage and the Spark log, then run again",
            passing=is_storage_fault(exc),
        ) from exc  # fmt: skip


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Session settings for one statement. Some of them (`userMetadata`) would stick to whatever is committed next."""
    before = {name: spark.conf.get(name, None) for name in values}
    try:
        for name, value in values.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def against_conflicts() -> Iterator[stamina.Attempt]:
    """Trials of a step that can lose against a concurrent Delta writer; nothing else is tried again."""
    return iter(
        stamina.retry_context(
            on=CommitConflictError, attempts=CONFLICT_ATTEMPTS, timeout=None, wait_initial=0.1, wait_max=5.0
        )
    )
