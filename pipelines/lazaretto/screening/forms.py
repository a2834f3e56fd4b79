"""The text forms of the contract's types: when a text is a date, a timestamp, a number, exactly.

Patterns are anchored Java regular expressions; `try_cast` decides the rest (real days, ranges). Dates and timestamps
follow RFC 3339: `2026-11-20`, `2026-11-20T10:00:00.123456+14:00`. All functions take and give SQL text.
"""

from __future__ import annotations

from lazaretto.contracts import Field, Kind
from lazaretto.screening.sql import case, matches

_SECOND = r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
_OFFSET = r"(?:Z|[+-][0-9]{2}:[0-9]{2})$"
DATE = r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}$"
# fractions of a second beyond microseconds are exact only when they are zeros
TIMESTAMP = rf"{_SECOND}(?:[.][0-9]{{1,6}}0*)?{_OFFSET}"
_FINE_TIMESTAMP = rf"{_SECOND}[.][0-9]{{7,}}{_OFFSET}"
INTEGER = r"^-?[0-9]+$"
NUMBER = r"^-?[0-9]+(?:[.][0-9]+)?(?:[eE][-+]?[0-9]+)?$"
PLAIN_NUMBER = r"^-?[0-9]+(?:[.][0-9]+)?$"


def date_value(x: str) -> str:
    """DATE of a text, or NULL where it is not a real day written `yyyy-MM-dd`."""
    return case((matches(x, DATE), f"try_cast({x} AS DATE)"))


def timestamp_value(x: str) -> str:
    """TIMESTAMP of a text, or NULL where it is not a real date-time with offset that fits microseconds."""
    return case((matches(x, TIMESTAMP), f"try_cast({x} AS TIMESTAMP)"))


def is_too_fine(x: str) -> str:
    """TRUE where a text is a real timestamp, but finer than a microsecond."""
    coarse = f"try_cast(regexp_replace({x}, '([.][0-9]{{6}})[0-9]+', '$1') AS TIMESTAMP)"
    return f"({matches(x, _FINE_TIMESTAMP)} AND NOT {matches(x, TIMESTAMP)} AND {coarse} IS NOT NULL)"


def exact_decimal(scale: int) -> str:
    """The pattern of plain numbers with at most `scale` decimals, trailing zeros apart."""
    return rf"^-?[0-9]+(?:[.][0-9]{{0,{scale}}}0*)?$"


def is_finite(number: str) -> str:
    """TRUE where a floating-point number is neither infinite nor NaN."""
    return f"(NOT isnan({number}) AND abs({number}) != double('Infinity'))"


def text_value(field: Field, x: str) -> str:
    """The typed value of a text cell (CSV), or NULL where it is not exactly one of the type's forms."""
    kind = field.kind
    if kind is Kind.STRING:
        return x
    if kind is Kind.BOOLEAN:
        return case((f"{x} = 'true'", "true"), (f"{x} = 'false'", "false"))
    if kind is Kind.DATE:
        return date_value(x)
    if kind is Kind.TIMESTAMP:
        return timestamp_value(x)
    number = f"try_cast({x} AS {field.ddl})"
    if kind is Kind.DECIMAL:
        return case((matches(x, exact_decimal(field.scale)), number))
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        return case((f"{matches(x, NUMBER)} AND {is_finite(number)}", number))
    return case((matches(x, INTEGER), number))
