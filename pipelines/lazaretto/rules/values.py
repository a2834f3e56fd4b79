"""A suite's values against the contract's types: do they fit exactly, and how are they written in Spark SQL.

Nothing is rounded here. A bound that lies between two values of an exact type is moved to the neighbour that gives
the same verdict, so that the comparison needs no cast on the column.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from typing import Any

from lazaretto.contracts import INTEGERS, Field, Kind

BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}
_SUFFIX = {Kind.TINYINT: "Y", Kind.SMALLINT: "S", Kind.INT: "", Kind.BIGINT: "L"}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})")
_WIDE = Context(prec=400)
_FLOAT_MAX = 3.4028234663852886e38

ORDERED_NUMBERS = INTEGERS | {Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE}
SCALARS = frozenset(Kind) - {Kind.STRUCT, Kind.ARRAY}


class UnfitError(ValueError):
    """The value is not one of the field's type; the text says why."""


def shown(value: Any) -> str:
    """A suite's value in a message, cut to a line."""
    return cut(repr(value) if isinstance(value, str) else str(value))


def cut(text: str) -> str:
    """Text on one line, of 60 characters at most."""
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


def string_literal(text: str) -> str:
    """Text as a Spark SQL string literal: what prints stays readable, the rest is escaped.

    So is the dollar of `${`: Spark puts the value of a setting, or of a variable of the environment, in the place of
    `${...}` before it parses, even inside a literal.
    """
    out = []
    for char, after in zip(text, (*text[1:], ""), strict=False):
        code = ord(char)
        if char in "\\'":
            out.append("\\" + char)
        elif char.isprintable() and (char, after) != ("$", "{"):
            out.append(char)
        elif code <= 0xFFFF:
            out.append(f"\\u{code:04X}")
        else:
            out.append(f"\\U{code:08X}")
    return "'" + "".join(out) + "'"


def addressable(path: str) -> bool:
    """Whether SQL can name a contract path: no array on the way, and nothing that Spark would substitute."""
    return "[]" not in path and "${" not in path


def exact(value: Any) -> Decimal:
    """A YAML number as a decimal: the number that was written, not its binary neighbour.

    Raises:
        UnfitError: not a number, or NaN.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise UnfitError(f"{shown(value)} is not a number")
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if number.is_nan():
        raise UnfitError("NaN is not a bound")
    return number


def grid(field: Field) -> tuple[Decimal, Decimal, int]:
    """Lowest and highest value of an exact type, and its scale."""
    if field.kind is Kind.DECIMAL:
        top = Decimal((0, (9,) * field.precision, -field.scale))
        return -top, top, field.scale
    half = Decimal(2) ** (BITS[field.kind] - 1)
    return -half, half - 1, 0


def on_grid(number: Decimal, scale: int, rounding: str) -> Decimal:
    """The nearest multiple of 10^-scale at or below (ROUND_FLOOR) or at or above (ROUND_CEILING)."""
    with localcontext(_WIDE):
        return number.quantize(Decimal(1).scaleb(-scale), rounding=rounding)


def fitted(value: Any, field: Field) -> Any:
    """The value as the Python type of the field.

    Raises:
        UnfitError: another type, out of range, or it would have to be rounded.
    """
    kind = field.kind
    if kind is Kind.STRING:
        if isinstance(value, str):
            if any(0xD800 <= ord(c) <= 0xDFFF for c in value):
                raise UnfitError("text with a lone surrogate")
            return value
        hint = ", quote it" if isinstance(value, bool | int | float | dt.date) else ""
        raise UnfitError(f"{shown(value)} is not a STRING{hint}")
    if kind is Kind.BOOLEAN:
        if isinstance(value, bool):
            return value
        raise UnfitError(f"{shown(value)} is not a BOOLEAN")
    if kind in INTEGERS or kind is Kind.DECIMAL:
        return _fitted_exact(value, field)
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        return _fitted_float(value, kind)
    if kind is Kind.DATE:
        return _date(value)
    if kind is Kind.TIMESTAMP:
        return instant(value)
    raise UnfitError(f"{shown(value)} cannot be a value of {field.ddl}")


def _fitted_exact(value: Any, field: Field) -> int | Decimal:
    try:
        number = exact(value)
    except UnfitError:
        raise UnfitError(f"{shown(value)} is not a {field.ddl}") from None
    low, high, scale = grid(field)
    if not low <= number <= high:
        raise UnfitError(f"{shown(value)} does not fit {field.ddl}")
    at = on_grid(number, scale, ROUND_FLOOR)
    if at != number:
        raise UnfitError(f"{shown(value)} does not fit {field.ddl} without rounding")
    return at if field.kind is Kind.DECIMAL else int(at)


def _fitted_float(value: Any, kind: Kind) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnfitError(f"{shown(value)} is not a {kind}")
    try:
        number = float(value)
    except OverflowError:
        raise UnfitError(f"{shown(value)} does not fit {kind}") from None
    if kind is Kind.FLOAT and math.isfinite(number) and abs(number) > _FLOAT_MAX:
        raise UnfitError(f"{shown(value)} does not fit FLOAT")
    return number


def _date(value: Any) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    if isinstance(value, str) and _DATE.fullmatch(value):
        try:
            return dt.date.fromisoformat(value)
        except ValueError:
            pass
    raise UnfitError(f"{shown(value)} is not a DATE, such as 2026-01-31")


def instant(value: Any) -> dt.datetime:
    """An instant in UTC. Without an offset it is `UnfitError`: the instant would depend on the zone of a session."""
    found = value
    if isinstance(value, str) and _INSTANT.fullmatch(value):
        try:
            found = dt.datetime.fromisoformat(value)
        except ValueError:
            found = None
    if isinstance(found, dt.datetime) and found.tzinfo is not None:
        try:
            return found.astimezone(dt.UTC)
        except OverflowError:
            pass
    raise UnfitError(f"{shown(value)} is not a TIMESTAMP with offset, such as 2026-01-31T00:00:00Z")


def literal(value: Any, field: Field) -> str:
    """A fitted value in Spark SQL, typed so that the column side of a comparison is never cast."""
    kind = field.kind
    if value is None:
        return f"CAST(NULL AS {field.ddl})"
    if kind is Kind.STRING:
        return string_literal(value)
    if kind is Kind.BOOLEAN:
        return "TRUE" if value else "FALSE"
    if kind in INTEGERS:
        return f"{value}{_SUFFIX[kind]}"
    if kind is Kind.DECIMAL:
        return f"{value:f}BD"
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        return double_literal(value)
    if kind is Kind.DATE:
        return f"DATE '{value.isoformat()}'"
    return instant_literal(value)


def double_literal(value: float) -> str:
    """A DOUBLE in Spark SQL, the infinities and NaN included."""
    if math.isnan(value):
        return "CAST('NaN' AS DOUBLE)"
    if math.isinf(value):
        return f"CAST('{'-' if value < 0 else ''}Infinity' AS DOUBLE)"
    return f"{value!r}D".upper()


def instant_literal(value: dt.datetime) -> str:
    """An instant in UTC as a TIMESTAMP in Spark SQL, whatever the session's zone."""
    text = value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    return f"TIMESTAMP '{text}Z'"


def beyond(column: str, field: Field, value: Any, *, below: bool, strict: bool) -> str | None:
    """SQL that is TRUE where a non-null column lies beyond a bound; None where nothing of the type can.

    Args:
        column: the column in SQL.
        below: the bound is a minimum (beyond means below it), else a maximum.
        strict: the bound itself is beyond too.

    Raises:
        UnfitError: the bound's type cannot be compared with the field's.
    """
    sign = "<" if below else ">"
    if field.kind not in INTEGERS and field.kind is not Kind.DECIMAL:
        bound = fitted(value, field)
        if isinstance(bound, float) and math.isnan(bound):
            raise UnfitError("NaN is not a bound")
        return f"{column} {sign}{'=' if strict else ''} {literal(bound, field)}"
    try:
        number = exact(value)
    except UnfitError as exc:
        raise UnfitError(f"{exc}, and the column is {field.ddl}" if "number" in str(exc) else str(exc)) from None
    low, high, scale = grid(field)
    with localcontext(_WIDE):
        # Far from the range the exact place of a bound does not matter, and infinity has none.
        number = max(min(number, high * 2 + 2), low * 2 - 2)
    # x < 0.5 is x < 1 on whole numbers, and x <= 0.5 is x <= 0.
    upward = below is not strict
    at = on_grid(number, scale, ROUND_CEILING if upward else ROUND_FLOOR)
    if below:
        never, always = (at < low, at >= high) if strict else (at <= low, at > high)
    else:
        never, always = (at > high, at <= low) if strict else (at >= high, at < low)
    if never:
        return None
    if always:
        return "TRUE"
    return f"{column} {sign}{'=' if strict else ''} {literal(at if field.kind is Kind.DECIMAL else int(at), field)}"
