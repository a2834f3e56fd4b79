"""The closed lists: record codes with their class, and the classes a batch can fail with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ErrorClass(StrEnum):
    """Why a single record is held."""

    CONTRACT_VIOLATION = "contract_violation"
    DATA_QUALITY = "data_quality"
    DUPLICATE = "duplicate"
    PROCESSING = "processing"


class BatchClass(StrEnum):
    """Why a whole batch did not commit, or was left incomplete."""

    UPSTREAM_UNAVAILABLE = "upstream_unavailable"
    RATE_LIMITED = "rate_limited"
    TRANSIENT = "transient"
    CONTRACT_VIOLATION = "contract_violation"
    DATA_QUALITY = "data_quality"
    DUPLICATE = "duplicate"
    INCOMPLETE = "incomplete"
    SINK_FAILURE = "sink_failure"


BATCH_CLASSES: frozenset[str] = frozenset(BatchClass)


class RecordCode(StrEnum):
    """Every code a violation can carry, apart from the rule ids of the suites."""

    TOMBSTONE = "TOMBSTONE"
    EMPTY = "EMPTY"
    TOO_LARGE = "TOO_LARGE"
    COMPRESSED = "COMPRESSED"
    ENCODING = "ENCODING"
    MALFORMED = "MALFORMED"
    TRAILING_DATA = "TRAILING_DATA"
    DUPLICATE_KEY = "DUPLICATE_KEY"
    NOT_OBJECT = "NOT_OBJECT"
    UNKNOWN_FIELD = "UNKNOWN_FIELD"
    MISSING_REQUIRED = "MISSING_REQUIRED"
    TYPE_MISMATCH = "TYPE_MISMATCH"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    PRECISION_LOSS = "PRECISION_LOSS"
    BAD_TIMESTAMP = "BAD_TIMESTAMP"
    SCHEMA_UNKNOWN = "SCHEMA_UNKNOWN"
    SCHEMA_INCOMPATIBLE = "SCHEMA_INCOMPATIBLE"
    ID_CONFLICT = "ID_CONFLICT"
    PROCESSING_ERROR = "PROCESSING_ERROR"


@dataclass(frozen=True)
class CodeInfo:
    """What a code means to its reader.

    `retriable` says whether the very same bytes can land later without a repair at the sender
    (after a change of contract, rule, reference data or code on our side).
    """

    error_class: ErrorClass
    meaning: str
    retriable: bool


_CONTRACT = ErrorClass.CONTRACT_VIOLATION

RECORD_CODES: dict[RecordCode, CodeInfo] = {
    RecordCode.TOMBSTONE: CodeInfo(_CONTRACT, "null value where the dataset does not allow it", False),
    RecordCode.EMPTY: CodeInfo(_CONTRACT, "no bytes, or blanks only", False),
    RecordCode.TOO_LARGE: CodeInfo(_CONTRACT, "more bytes than the dataset's cap", True),
    RecordCode.COMPRESSED: CodeInfo(_CONTRACT, "compressed bytes where plain ones are expected", False),
    RecordCode.ENCODING: CodeInfo(_CONTRACT, "not valid in the declared encoding, or a lone surrogate", False),
    RecordCode.MALFORMED: CodeInfo(_CONTRACT, "not strictly one value of the declared format", False),
    RecordCode.TRAILING_DATA: CodeInfo(_CONTRACT, "something follows the first value", False),
    RecordCode.DUPLICATE_KEY: CodeInfo(_CONTRACT, "an object names a key twice", False),
    RecordCode.NOT_OBJECT: CodeInfo(_CONTRACT, "a JSON value, but not an object", False),
    RecordCode.UNKNOWN_FIELD: CodeInfo(_CONTRACT, "a field that the closed contract does not name", True),
    RecordCode.MISSING_REQUIRED: CodeInfo(_CONTRACT, "a required field is absent or null", True),
    RecordCode.TYPE_MISMATCH: CodeInfo(_CONTRACT, "another type than the contract's", True),
    RecordCode.OUT_OF_RANGE: CodeInfo(_CONTRACT, "does not fit the contract's type", True),
    RecordCode.PRECISION_LOSS: CodeInfo(_CONTRACT, "fits the contract's type only after rounding", True),
    RecordCode.BAD_TIMESTAMP: CodeInfo(_CONTRACT, "not a real ISO 8601 date, or date-time with offset", True),
    RecordCode.SCHEMA_UNKNOWN: CodeInfo(_CONTRACT, "the registry does not know the schema id", True),
    RecordCode.SCHEMA_INCOMPATIBLE: CodeInfo(_CONTRACT, "the writer's schema does not fit the contract", True),
    RecordCode.ID_CONFLICT: CodeInfo(ErrorClass.DUPLICATE, "the same event id with another payload", True),
    RecordCode.PROCESSING_ERROR: CodeInfo(ErrorClass.PROCESSING, "made the batch fail and was isolated", True),
}
