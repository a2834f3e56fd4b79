"""The error tree and the closed list of record codes: what callers, tables and exit codes rely on."""

from __future__ import annotations

import re

import pytest

from lazaretto import errors
from lazaretto.errors import (
    BATCH_CLASSES,
    RECORD_CODES,
    AccountingError,
    BatchClass,
    BatchRejectedError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    ConfigurationError,
    ContractError,
    ErrorClass,
    FinishedWithFailuresError,
    GuardRefusedError,
    LazarettoError,
    ProcessingError,
    RecordCode,
    RuleError,
    SinkError,
    SourceError,
)

EXIT_CODES: dict[type[LazarettoError], int] = {
    LazarettoError: 1,
    AccountingError: 1,
    ProcessingError: 1,
    ConfigurationError: 2,
    ContractError: 2,
    RuleError: 2,
    BatchRejectedError: 3,
    SourceError: 4,
    GuardRefusedError: 4,
    SinkError: 5,
    CommitConflictError: 5,
    CommitOutcomeUnknownError: 5,
    FinishedWithFailuresError: 6,
}

# ARCHITECTURE.md, "Record codes (closed list)"
CODES = {
    "contract_violation": {
        "TOMBSTONE", "EMPTY", "TOO_LARGE", "COMPRESSED", "ENCODING", "MALFORMED", "TRAILING_DATA", "DUPLICATE_KEY",
        "NOT_OBJECT", "UNKNOWN_FIELD", "MISSING_REQUIRED", "TYPE_MISMATCH", "OUT_OF_RANGE", "PRECISION_LOSS",
        "BAD_TIMESTAMP", "SCHEMA_UNKNOWN", "SCHEMA_INCOMPATIBLE",
    },
    "duplicate": {"ID_CONFLICT"},
    "processing": {"PROCESSING_ERROR"},
}  # fmt: skip


def _tree(kind: type[LazarettoError]) -> set[type[LazarettoError]]:
    return {kind}.union(*(_tree(below) for below in kind.__subclasses__()))


def test_exit_codes() -> None:
    assert {kind: kind.exit_code for kind in EXIT_CODES} == EXIT_CODES


def test_there_is_no_error_beside_the_tree() -> None:
    assert {kind for kind in _tree(LazarettoError) if kind.__module__.startswith("lazaretto.")} == set(EXIT_CODES)


@pytest.mark.parametrize("kind", EXIT_CODES)
def test_the_tree_drawn_in_the_docstring_is_the_tree(kind: type[LazarettoError]) -> None:
    drawn = re.search(rf"^ .*\b{kind.__name__} +(\w+)", errors.__doc__ or "", re.MULTILINE)
    assert drawn is not None
    # the first line is the head of the column
    assert drawn.group(1) == ("exit" if kind is LazarettoError else str(EXIT_CODES[kind]))


def test_groups_catch_what_they_say() -> None:
    assert issubclass(ContractError, ConfigurationError)
    assert issubclass(RuleError, ConfigurationError)
    assert issubclass(GuardRefusedError, SourceError)
    assert issubclass(CommitConflictError, SinkError)
    assert issubclass(CommitOutcomeUnknownError, SinkError)
    assert not issubclass(AccountingError, SinkError)


def test_the_list_of_record_codes_is_closed() -> None:
    listed: dict[str, set[str]] = {}
    for code, info in RECORD_CODES.items():
        listed.setdefault(info.error_class.value, set()).add(code.value)
    assert listed == CODES
    assert set(RECORD_CODES) == set(RecordCode)


@pytest.mark.parametrize("code", RecordCode)
def test_every_code_is_explained(code: RecordCode) -> None:
    info = RECORD_CODES[code]
    assert code.value == code.name
    assert isinstance(info.error_class, ErrorClass)
    assert isinstance(info.retriable, bool)
    assert info.meaning.strip() == info.meaning != ""
    assert "\n" not in info.meaning


def test_no_two_codes_mean_the_same() -> None:
    assert len({info.meaning for info in RECORD_CODES.values()}) == len(RECORD_CODES)


def test_what_only_the_sender_can_mend_is_not_retriable() -> None:
    assert {code.value for code, info in RECORD_CODES.items() if not info.retriable} == {
        "TOMBSTONE", "EMPTY", "COMPRESSED", "ENCODING", "MALFORMED", "TRAILING_DATA", "DUPLICATE_KEY", "NOT_OBJECT",
    }  # fmt: skip


def test_classes() -> None:
    assert {c.value for c in ErrorClass} == {"contract_violation", "data_quality", "duplicate", "processing"}
    assert {
        "upstream_unavailable", "rate_limited", "transient", "contract_violation", "data_quality", "duplicate",
        "incomplete", "sink_failure",
    } == BATCH_CLASSES  # fmt: skip


@pytest.mark.parametrize("kind", EXIT_CODES)
def test_text_is_one_line_with_where_and_remedy(kind: type[LazarettoError]) -> None:
    error = kind("it broke", where="conf/base.yml:7", remedy="mend it")
    assert str(error) == "conf/base.yml:7: it broke (next: mend it)"
    assert (error.what, error.where, error.remedy) == ("it broke", "conf/base.yml:7", "mend it")


@pytest.mark.parametrize(
    ("where", "remedy", "text"),
    [(None, None, "it broke"), ("here", None, "here: it broke"), (None, "mend it", "it broke (next: mend it)")],
)
def test_text_without_where_or_remedy(where: str | None, remedy: str | None, text: str) -> None:
    assert str(LazarettoError("it broke", where=where, remedy=remedy)) == text


def test_text_stays_one_line_whatever_comes_in() -> None:
    error = LazarettoError("unknown key a\nb", where="a\r\nfile", remedy="mend\u2028it")
    assert str(error) == "a file: unknown key a b (next: mend it)"


def test_the_batch_class_is_the_kind_s_own_unless_one_is_given() -> None:
    defaults = {kind: kind("x").error_class for kind in EXIT_CODES}
    assert {kind: value for kind, value in defaults.items() if value is not None} == {
        BatchRejectedError: BatchClass.DATA_QUALITY,
        SourceError: BatchClass.UPSTREAM_UNAVAILABLE,
        SinkError: BatchClass.SINK_FAILURE,
        CommitConflictError: BatchClass.SINK_FAILURE,
        CommitOutcomeUnknownError: BatchClass.SINK_FAILURE,
    }
    assert SourceError("x", error_class=BatchClass.RATE_LIMITED).error_class is BatchClass.RATE_LIMITED


def test_public_names_are_exact() -> None:
    assert set(errors.__all__) == {kind.__name__ for kind in EXIT_CODES} | {
        "BATCH_CLASSES", "RECORD_CODES", "BatchClass", "CodeInfo", "ErrorClass", "RecordCode",
    }  # fmt: skip
    assert len(errors.__all__) == len(set(errors.__all__))
    assert all(hasattr(errors, name) for name in errors.__all__)
