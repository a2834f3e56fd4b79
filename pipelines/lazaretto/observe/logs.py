"""Structured logs: one event with named keys a line, to stderr, as text for people or as JSON for machines.

Only keys of `KNOWN_KEYS` with plain values pass, whoever logs: nothing from a record gets into a log by accident. What
was dropped is counted in the event. An exception leaves its class and a hash of its stack, never its text, because the
texts of Spark and Java quote records; our own errors (`LazarettoError`) are written so that theirs may be shown.
"""

from __future__ import annotations

import hashlib
import logging
import math
import sys
import traceback
from collections.abc import Mapping
from datetime import date, datetime
from enum import Enum
from pathlib import PurePath
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from lazaretto.errors import LazarettoError
from lazaretto.observe.text import printable

LogFormat = Literal["console", "json"]

_IDENTITY = ("correlation_id", "run_id", "dataset", "batch_id", "coordinates", "code")
_OURS = ("timestamp", "level", "event", *_IDENTITY)

KNOWN_KEYS: frozenset[str] = frozenset(
    {
        *_OURS,
        # which one
        "kind", "plan_id", "quarantine_id", "replay_id", "rule_id", "ruleset", "schema_id", "table", "topic", "stream",
        "partition", "position", "version", "query_id", "first", "file", "operator", "trigger",
        # how it went
        "status", "step", "when", "reused", "rejected", "failed_rules", "completeness", "bronze_version",
        "quarantine_version", "attempt", "signal", "exit_code", "next_action", "already_committed",
        # how many, how long
        "records_read", "records_valid", "records_invalid", "records_inserted", "records_updated", "records_duplicate",
        "records_quarantined", "records_filtered", "records_isolated", "gap", "inserted", "updated", "landed",
        "duplicate", "conflict", "batches",
        "files", "files_before", "files_after", "bytes", "bytes_before", "bytes_after", "duration_s", "retry_after_s",
        # what went wrong
        "error", "error_class", "error_type", "remedy", "stack_hash", "dropped_keys",
    }
)  # fmt: skip
"""The only keys a log line can have."""

_LONGEST = 500
_MOST_ITEMS = 20
_DROPPED = "dropped_keys"


def configure_logging(
    log_format: LogFormat = "console", verbose: bool = False, *, stream: TextIO | None = None
) -> None:
    """Set up the logs of this process; calling it again replaces the set-up.

    Third parties that log through the standard library are not heard: their texts may quote records. What goes wrong
    in them reaches us as exceptions.

    Args:
        log_format: `console` for people, `json` for one JSON object a line.
        verbose: debug events too.
        stream: where to write; stderr by default.
    """
    target = stream or sys.stderr
    renderer: Processor
    if log_format == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=target.isatty(), sort_keys=False)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            guarded,
            _in_order,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbose else logging.INFO),
        context_class=dict,
        logger_factory=structlog.PrintLoggerFactory(target),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    if not any(isinstance(handler, logging.NullHandler) for handler in root.handlers):
        # Without any handler Python itself would print warnings on stderr.
        root.addHandler(logging.NullHandler())


def get_logger(**bound: Any) -> FilteringBoundLogger:
    """A logger with `bound` keys in every event; ask for it where a run begins, not at import.

    Silent until somebody has configured structlog. Where that was another application, its processors render our
    events, but behind our own guard.
    """
    if structlog.is_configured():
        config = structlog.get_config()
        target, processors = config["logger_factory"](), [guarded, *config["processors"]]
    else:
        # structlog's default would print to stdout, which belongs to results
        target, processors = None, [_nothing]
    logger: FilteringBoundLogger = structlog.wrap_logger(target, processors=processors)
    return logger.bind(**bound)


def guarded(_: WrappedLogger | None, __: str, event: EventDict) -> EventDict:
    """A structlog processor: only known keys with plain values pass; an exception becomes its class and a hash.

    Doing it twice changes nothing more.
    """
    exc = _exception(event.pop("exc_info", None))
    before = event.get(_DROPPED)
    dropped = before if isinstance(before, int) else 0
    kept: dict[str, Any] = {}
    for key, value in event.items():
        plain = _plain(value) if key in KNOWN_KEYS else None
        if plain is not None:
            kept[key] = plain
        elif value is not None or key not in KNOWN_KEYS:
            dropped += 1
    if exc is not None:
        kept |= described(exc)
    if dropped:
        kept[_DROPPED] = dropped
    return kept


def described(exc: BaseException) -> Mapping[str, str]:
    """What a log may say of an exception: `error` for our own, else `error_type` and `stack_hash`."""
    if isinstance(exc, LazarettoError):
        told = {"error_type": type(exc).__name__, "error": str(_plain(str(exc)))}
        return told | ({"error_class": exc.error_class.value} if exc.error_class else {})
    return {"error_type": type(exc).__name__, "stack_hash": stack_hash(exc)}


def stack_hash(exc: BaseException) -> str:
    """16 hex digits, the same for the same failure in the same code: classes and functions, no texts, no lines."""
    parts: list[str] = []
    seen: set[int] = set()
    link: BaseException | None = exc
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        parts.append(f"{type(link).__module__}.{type(link).__qualname__}")
        for frame, _ in traceback.walk_tb(link.__traceback__):
            parts.append(f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}")
        link = link.__cause__ or link.__context__
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _exception(exc_info: Any) -> BaseException | None:
    """The exception behind the forms of `exc_info` that logging knows."""
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return exc_info[1] if len(exc_info) == 3 and isinstance(exc_info[1], BaseException) else None
    return sys.exc_info()[1] if exc_info else None


def _plain(value: Any) -> Any:
    """The value as a JSON scalar, or a list of them; None for everything else, bytes and mappings above all."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        # JSON has no word for the others
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, str | PurePath):
        # Backslashes stay, so that passing here twice changes nothing more.
        text = printable(str(value), keep="\\")
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    if isinstance(value, list | tuple | set | frozenset):
        items = list(value)[:_MOST_ITEMS]
        plain = [_plain(item) for item in items if not isinstance(item, list | tuple | set | frozenset)]
        return plain if len(plain) == len(items) and None not in plain else None
    return None


def _in_order(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    first = {key: event[key] for key in _OURS if key in event}
    return {**first, **{key: value for key, value in event.items() if key not in first}}


def _nothing(_: WrappedLogger, __: str, ___: EventDict) -> EventDict:
    raise structlog.DropEvent
