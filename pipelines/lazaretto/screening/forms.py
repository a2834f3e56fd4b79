"""The text forms of the contract's types: when a text is a date, a timestamp, a number, exactly.

Patterns are anchored Java regular expressions without alternation over long texts; `try_cast` decides the rest
(real days, ranges). Dates and timestamps follow RFC 3339: `2026-11-20`, `2026-11-20T10:00:00.123456+14:00`.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from lazaretto.contracts import Field, Kind

DATE = r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}$"
# fractions of a second beyond microseconds are exact only when they are zeros
TIMESTAMP = (
    r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]{1,6}0*)?(?:Z|[+-][0-9]{2}:[0-9]{2})$"
)
FINE_TIMESTAMP = (
    r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{7,}(?:Z|[+-][0-9]{2}:[0-9]{2})$"
)
_FRACTION_TAIL = r"([.][0-9]{6})[0-9]+"
INTEGER = r"^-?[0-9]+$"
NUMBER = r"^-?[0-9]+(?:[.][0-9]+)?(?:[eE][-+]?[0-9]+)?$"
PLAIN_NUMBER = r"^-?[0-9]+(?:[.][0-9]+)?$"


def date_value(text: Column) -> Column:
    """DATE of a text, or NULL where it is not a real day written `yyyy-MM-dd`."""
    return F.when(text.rlike(DATE), text.try_cast("DATE"))


def timestamp_value(text: Column) -> Column:
    """TIMESTAMP of a text, or NULL where it is not a real date-time with offset that fits microseconds."""
    return F.when(text.rlike(TIMESTAMP), text.try_cast("TIMESTAMP"))


def is_too_fine(text: Column) -> Column:
    """TRUE where a text is a real timestamp, but finer than a microsecond."""
    coarse = F.regexp_replace(text, _FRACTION_TAIL, "$1").try_cast("TIMESTAMP")
    return text.rlike(FINE_TIMESTAMP) & ~text.rlike(TIMESTAMP) & coarse.isNotNull()


def exact_decimal(scale: int) -> str:
    """The pattern of plain numbers with at most `scale` decimals, trailing zeros apart."""
    return rf"^-?[0-9]+(?:[.][0-9]{{0,{scale}}}0*)?$"


def text_value(field: Field, text: Column) -> Column:
    """The typed value of a text cell (CSV), or NULL where it is not exactly one of the type's forms."""
    kind = field.kind
    if kind is Kind.STRING:
        return text
    if kind is Kind.BOOLEAN:
        return F.when(text == "true", F.lit(True)).when(text == "false", F.lit(False))
    if kind is Kind.DATE:
        return date_value(text)
    if kind is Kind.TIMESTAMP:
        return timestamp_value(text)
    if kind is Kind.DECIMAL:
        return F.when(text.rlike(exact_decimal(field.scale)), text.try_cast(field.ddl))
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        number = text.try_cast(field.ddl)
        return F.when(text.rlike(NUMBER) & is_finite(number), number)
    return F.when(text.rlike(INTEGER), text.try_cast(field.ddl))


def is_finite(number: Column) -> Column:
    """TRUE where a floating-point number is neither infinite nor NaN."""
    return ~F.isnan(number) & (F.abs(number) != F.lit(float("inf")))
