from __future__ import annotations

import pytest

from lazaretto.errors import BatchClass, GuardRefusedError, SourceError
from lazaretto.sources import as_source_error


@pytest.mark.parametrize(
    ("text", "what", "error_class"),
    [
        ("x: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered", "went away", BatchClass.UPSTREAM_UNAVAILABLE),
        ("[PATH_NOT_FOUND] Path does not exist: file:/x", "went away", BatchClass.UPSTREAM_UNAVAILABLE),
        ("[FAILED_READ_FILE.NO_HINT] Encountered", "cannot be read", BatchClass.CONTRACT_VIOLATION),
        ("org.apache.kafka.common.errors.TimeoutException: MARKER", "does not answer", BatchClass.UPSTREAM_UNAVAILABLE),
        (
            "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: MARKER",
            "does not exist",
            BatchClass.UPSTREAM_UNAVAILABLE,
        ),
        (
            "org.apache.kafka.common.errors.TopicAuthorizationException: MARKER",
            "refuses us",
            BatchClass.UPSTREAM_UNAVAILABLE,
        ),
    ],
)
def test_what_is_the_sources_fault(text: str, what: str, error_class: BatchClass) -> None:
    found = as_source_error(RuntimeError(text + " MARKER"), where="orders")
    assert found is not None
    assert what in found.what
    assert found.error_class is error_class
    assert found.where == "orders"
    assert "MARKER" not in str(found)


def test_lost_offsets_are_a_matter_to_decide() -> None:
    found = as_source_error(RuntimeError("[KAFKA_DATA_LOSS.INITIAL_OFFSET_NOT_FOUND] ..."))
    assert isinstance(found, GuardRefusedError)
    assert found.error_class is None


def test_the_file_is_named() -> None:
    text = (
        "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] "
        "Encountered error while reading file file:///in/a%20b.parquet. SQLSTATE: KD001"
    )
    found = as_source_error(RuntimeError(text), where="orders")
    assert found is not None
    assert found.where == "orders: /in/a b.parquet"


def test_what_is_not() -> None:
    assert as_source_error(RuntimeError("[CAST_INVALID_INPUT] The value 'x'")) is None
    assert as_source_error(KeyError("x")) is None


def test_one_that_is_told_apart_already_comes_back() -> None:
    cause = SourceError("gone")
    wrapped = RuntimeError("in a batch")
    wrapped.__cause__ = cause
    assert as_source_error(cause) is cause
    assert as_source_error(wrapped) is cause
