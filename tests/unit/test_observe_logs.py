"""Logs: only known keys with plain values pass, and nothing from a record is ever printed."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog

from lazaretto.errors import BatchClass, RecordCode, SourceError
from lazaretto.observe.logs import KNOWN_KEYS, LogFormat, configure_logging, get_logger, guarded, stack_hash

MARKER = "marker-4711"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.getLogger().handlers = [h for h in logging.getLogger().handlers if not isinstance(h, logging.NullHandler)]


@pytest.fixture
def lines() -> Callable[..., list[Any]]:
    """Configures, logs by the given function, and gives the lines: parsed for json, as they are for console."""

    def run(
        log: Callable[[Any], Any], log_format: LogFormat = "json", verbose: bool = False, **bound: Any
    ) -> list[Any]:
        out = io.StringIO()
        configure_logging(log_format, verbose, stream=out)
        log(get_logger(**bound))
        text = out.getvalue().splitlines()
        return [json.loads(line) for line in text] if log_format == "json" else text

    return run


def test_json_has_time_level_event_and_identity_first(lines: Callable[..., list[Any]]) -> None:
    identity = {"correlation_id": "c", "run_id": "r", "dataset": "orders", "batch_id": "b"}
    [line] = lines(
        lambda log: log.warning(
            "record_held", records_read=3, coordinates=["kafka/orders/0/7"], code=RecordCode.MALFORMED
        ),
        **identity,
    )
    assert list(line) == ["timestamp", "level", "event", *identity, "coordinates", "code", "records_read"]
    at = datetime.fromisoformat(line.pop("timestamp"))
    assert at.utcoffset() == UTC.utcoffset(None)
    assert abs((datetime.now(UTC) - at).total_seconds()) < 60
    assert line == {
        "level": "warning",
        "event": "record_held",
        **identity,
        "coordinates": ["kafka/orders/0/7"],
        "code": "MALFORMED",
        "records_read": 3,
    }


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_what_is_not_known_or_not_plain_is_dropped_and_counted(
    lines: Callable[..., list[Any]], log_format: LogFormat
) -> None:
    [line] = lines(
        lambda log: log.info(
            "step",
            payload=MARKER,
            row={"a": MARKER},
            code={"a": MARKER},
            dataset=MARKER.encode(),
            coordinates=[["deep", MARKER]],
            records_read=1,
        ),
        log_format,
    )
    assert MARKER not in str(line)
    assert line["dropped_keys"] == 5 if log_format == "json" else "dropped_keys=5" in line


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize("verbose", [False, True])
def test_an_unexpected_exception_leaves_no_text(
    lines: Callable[..., list[Any]], log_format: LogFormat, verbose: bool
) -> None:
    def log(logger: Any) -> None:
        try:
            raise ValueError(f"cannot cast {MARKER}")
        except ValueError:
            logger.exception("batch_failed")

    [line] = lines(log, log_format, verbose)
    assert MARKER not in str(line)
    if log_format == "json":
        assert line["error_type"] == "ValueError"
        assert len(line["stack_hash"]) == 16
        assert line["level"] == "error"


def test_our_own_errors_may_speak(lines: Callable[..., list[Any]]) -> None:
    error = SourceError("the broker does not answer", where="topic orders", remedy="bring it back")
    [line] = lines(lambda log: log.error("stopped", exc_info=error))
    assert line["error"] == "topic orders: the broker does not answer (next: bring it back)"
    assert (line["error_type"], line["error_class"]) == ("SourceError", BatchClass.UPSTREAM_UNAVAILABLE)
    assert "stack_hash" not in line


def _failure(text: str, deeper: bool = False) -> Exception:
    def fail() -> None:
        raise ValueError(text)

    try:
        try:
            fail()
        except ValueError as exc:
            if deeper:
                raise RuntimeError(text) from exc
            raise
    except Exception as exc:
        return exc
    raise AssertionError


def test_the_hash_tells_failures_apart_but_not_their_texts() -> None:
    assert stack_hash(_failure("one")) == stack_hash(_failure("two"))
    assert stack_hash(_failure("one")) != stack_hash(_failure("one", deeper=True))


def test_control_characters_cannot_make_a_second_line(lines: Callable[..., list[Any]]) -> None:
    [line] = lines(lambda log: log.info("seen\nlevel=error", coordinates="kafka/\x1b[2J/0/1\u202e"), "console")
    assert "\x1b[2J" not in line
    assert "\u202e" not in line
    assert "\\n" in line


def test_long_values_are_cut(lines: Callable[..., list[Any]]) -> None:
    [line] = lines(lambda log: log.info("seen", next_action="x" * 5000))
    assert len(line["next_action"]) == 503


def test_bound_in_the_context(lines: Callable[..., list[Any]]) -> None:
    structlog.contextvars.bind_contextvars(correlation_id="c-1", payload=MARKER)
    [line] = lines(lambda log: log.info("seen"))
    assert (line["correlation_id"], line["dropped_keys"]) == ("c-1", 1)
    assert MARKER not in str(line)


def test_debug_only_when_verbose(lines: Callable[..., list[Any]]) -> None:
    assert lines(lambda log: log.debug("detail")) == []
    assert len(lines(lambda log: log.debug("detail"), verbose=True)) == 1


def test_guarding_twice_changes_nothing_more() -> None:
    once = guarded(None, "info", {"event": "a\\b\n", "payload": 1, "error": "e" * 900, "completeness": float("nan")})
    assert guarded(None, "info", dict(once)) == once
    assert once["completeness"] == "nan"
    assert once["dropped_keys"] == 1


def test_a_host_applications_set_up_is_guarded_too(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.configure(processors=[structlog.processors.JSONRenderer()], logger_factory=structlog.PrintLoggerFactory())
    get_logger().info("seen", payload=MARKER, dataset="orders")
    assert json.loads(capsys.readouterr().out) == {"event": "seen", "dataset": "orders", "dropped_keys": 1}


def test_silent_before_anybody_configured(capsys: pytest.CaptureFixture[str]) -> None:
    get_logger(dataset="orders").bind(run_id="r").error("seen", payload=MARKER)
    assert capsys.readouterr() == ("", "")


def test_importing_configures_nothing_and_third_parties_are_quiet(repo_root: Path) -> None:
    code = (
        "import logging, structlog\n"
        "import lazaretto.observe.logs as logs\n"
        "assert not structlog.is_configured() and not logging.getLogger().handlers\n"
        "logs.configure_logging('json')\n"
        "logs.configure_logging('json')\n"
        f"logging.getLogger('third.party').error('{MARKER}')\n"
        "logs.get_logger().info('seen')\n"
        "assert len(logging.getLogger().handlers) == 1\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=repo_root)
    assert done.stdout == ""
    assert json.loads(done.stderr)["event"] == "seen"


def test_no_key_is_one_of_a_records() -> None:
    assert not KNOWN_KEYS & {"payload", "value", "key", "headers", "record", "event_id", "field", "group_key", "detail"}
