"""CSV records: one payload is one record of a file whose header is known. All functions take and give SQL text.

RFC 4180: comma, double quotes, doubled quotes inside quotes. An empty cell is null. A nested field cannot stand in a
CSV record, so it counts as absent.
"""

from __future__ import annotations

from collections.abc import Sequence

from lazaretto.contracts import INTEGERS, Field, Kind, quoted
from lazaretto.errors import RecordCode
from lazaretto.screening.forms import INTEGER, NUMBER, PLAIN_NUMBER, is_too_fine, text_value
from lazaretto.screening.sql import NONE_FOUND, case, matches, only, text, texts, violation

_CORRUPT = "_corrupt_record"
_OPTIONS = (
    f"map('mode', 'PERMISSIVE', 'escape', '\"', 'maxCharsPerColumn', '-1', 'columnNameOfCorruptRecord', '{_CORRUPT}')"
)


def row(as_text: str, columns: Sequence[str]) -> str:
    """STRUCT of the record's cells, all text."""
    ddl = ", ".join(f"{quoted(c)} STRING" for c in columns) + f", {_CORRUPT} STRING"
    return f"from_csv({as_text}, {text(ddl)}, {_OPTIONS})"


def is_single(as_text: str, cells: str) -> str:
    """TRUE where the text is one record of the header's width; never NULL."""
    return f"({as_text} IS NOT NULL AND {cells} IS NOT NULL AND {cells}.{_CORRUPT} IS NULL)"


def raw(cells: str, columns: Sequence[str], fields: Sequence[Field]) -> str:
    """STRUCT of the cells by the contract's fields; NULL where the header has no such column."""
    here = set(columns)
    picked = [f"{cells}.{quoted(f.name)}" if f.name in here else "CAST(NULL AS STRING)" for f in fields]
    return "named_struct(" + ", ".join(f"{text(f.name)}, {p}" for f, p in zip(fields, picked, strict=True)) + ")"


def names(cells: str, columns: Sequence[str], fields: Sequence[Field]) -> str:
    """The names that a record has: columns the contract does not know always, its own where the cell is not empty."""
    known = {f.name for f in fields}
    own = [case((f"{cells}.{quoted(c)} IS NOT NULL", text(c))) for c in columns if c in known]
    unknown = texts(c for c in columns if c not in known)
    return f"concat({unknown}, CAST(array_compact(array({', '.join(own)})) AS ARRAY<STRING>))"


def csv_faults(single: str) -> str:
    """MALFORMED where the text is not one record of the header's width."""
    malformed = violation(RecordCode.MALFORMED, None, "not one CSV record of the header's width")
    return case((single, NONE_FOUND), otherwise=only(malformed))


class CsvReader:
    """Reads text cells by the contract's types; answers the same questions as `JsonReader`."""

    def value(self, field: Field, x: str, parts: str | None = None) -> str:
        """The typed value, or NULL."""
        if field.kind in (Kind.STRUCT, Kind.ARRAY):
            return f"CAST(NULL AS {field.ddl})"
        return text_value(field, x)

    def fit(self, field: Field, x: str, value: str, parts: str | None = None) -> str:
        """TRUE where the cell is what the contract asks for; never NULL."""
        return f"({value} IS NOT NULL)" if field.required else f"({x} IS NULL OR {value} IS NOT NULL)"

    def faults(self, field: Field, x: str) -> str:
        """The violations array of a nested field's cell."""
        may_be_absent = str(not field.required).lower()
        return case((f"{x} IS NULL AND {may_be_absent}", NONE_FOUND), otherwise=only(_unfit(field, x)))

    def scalar_fault(self, field: Field, x: str) -> str:
        """What is wrong with a cell that has no value; NULL where it is empty and may be."""
        missing = violation(RecordCode.MISSING_REQUIRED, field.path, "absent or empty") if field.required else "NULL"
        return case((f"{x} IS NULL", missing), otherwise=_unfit(field, x))


def _unfit(field: Field, x: str) -> str:
    mismatch = violation(RecordCode.TYPE_MISMATCH, field.path, f"not a text form of {field.ddl}")
    too_large = violation(RecordCode.OUT_OF_RANGE, field.path, f"does not fit {field.ddl}")
    rounded = violation(RecordCode.PRECISION_LOSS, field.path, f"fits {field.ddl} only after rounding")
    bad = violation(RecordCode.BAD_TIMESTAMP, field.path, "not a real ISO 8601 date, or date-time with offset")
    fine = violation(RecordCode.PRECISION_LOSS, field.path, "finer than a microsecond")
    if field.kind is Kind.DATE:
        return bad
    if field.kind is Kind.TIMESTAMP:
        return case((is_too_fine(x), fine), otherwise=bad)
    if field.kind in (Kind.FLOAT, Kind.DOUBLE):
        return case((matches(x, NUMBER), too_large), otherwise=mismatch)
    if field.kind is Kind.DECIMAL:
        fits = f"try_cast({x} AS {field.ddl}) IS NOT NULL"
        return case((f"NOT {matches(x, PLAIN_NUMBER)}", mismatch), (fits, rounded), otherwise=too_large)
    if field.kind in INTEGERS:
        whole = f"try_cast(try_cast({x} AS DECIMAL(38,0)) AS {field.ddl}) IS NOT NULL"
        return case(
            (matches(x, INTEGER), too_large),
            (f"NOT {matches(x, PLAIN_NUMBER)}", mismatch),
            (whole, rounded),
            otherwise=too_large,
        )
    if field.kind in (Kind.STRUCT, Kind.ARRAY):
        return case(
            (f"{x} IS NULL", violation(RecordCode.MISSING_REQUIRED, field.path, "absent or empty")), otherwise=mismatch
        )
    return mismatch
