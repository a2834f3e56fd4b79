"""Literals and target types of guarded SQL: read as Spark reads them, or refused."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

from sqlglot import exp

from lazaretto.contracts import Field, Kind
from lazaretto.rules.functions import Piece
from lazaretto.rules.sql_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    RefusedError,
    SqlType,
    decimal,
    type_of,
)
from lazaretto.rules.values import UnfitError, double_literal, fitted, instant, literal

_CASTS: dict[str, SqlType] = {
    "TEXT": STRING, "VARCHAR": STRING, "BOOLEAN": BOOLEAN, "TINYINT": SqlType(Kind.TINYINT, 3),
    "SMALLINT": SqlType(Kind.SMALLINT, 5), "INT": INT, "BIGINT": BIGINT, "FLOAT": SqlType(Kind.FLOAT),
    "DOUBLE": DOUBLE, "DATE": DATE, "TIMESTAMP": TIMESTAMP, "TIMESTAMPTZ": TIMESTAMP, "TIMESTAMPLTZ": TIMESTAMP,
}  # fmt: skip
# Left out: to TIMESTAMP from DATE and numbers, which overflow outside of what TRY_CAST catches.
_FROM_TEXT = frozenset(Kind) - {Kind.STRUCT, Kind.ARRAY}
_FROM_NUMBER = frozenset(
    {Kind.STRING, Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL}
)
CASTS_FROM: dict[Kind, frozenset[Kind]] = {
    Kind.STRING: _FROM_TEXT,
    Kind.BOOLEAN: frozenset({Kind.STRING, Kind.BOOLEAN}),
    Kind.DATE: frozenset({Kind.STRING, Kind.DATE}),
    Kind.TIMESTAMP: frozenset({Kind.STRING, Kind.DATE, Kind.TIMESTAMP}),
} | dict.fromkeys(
    (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL), _FROM_NUMBER
)


def only(node: exp.Expr, *known: str) -> None:
    """Refuse a node with an argument that would be lost when it is written anew."""
    for name, value in node.args.items():
        if name not in known and value not in (None, False, []):
            raise RefusedError(f"{node.key.upper()} with {name}")


def number(text: str) -> Piece:
    """A number as Spark reads it: whole, decimal with a point, double with an exponent."""
    try:
        value = Decimal(text)
    except ArithmeticError:
        raise RefusedError(f"number {text[:20]}") from None
    if "e" in text.lower():
        if math.isinf(float(value)):
            raise RefusedError("a number beyond DOUBLE")
        return Piece(double_literal(float(value)), DOUBLE)
    if "." in text:
        digits = value.as_tuple().digits
        scale = -int(value.as_tuple().exponent)
        if max(len(digits), scale) > 38:
            raise RefusedError("a number of more than 38 digits")
        return Piece(f"{value:f}BD", decimal(max(len(digits), scale), scale))
    if abs(value) < 2**31:
        return Piece(str(int(value)), SqlType(Kind.INT, len(text.lstrip("-"))), int(value))
    if abs(value) < 2**63:
        return Piece(f"{int(value)}L", SqlType(Kind.BIGINT, len(text.lstrip("-"))), int(value))
    raise RefusedError("a whole number beyond BIGINT")


def dated(piece: Piece, other: Piece) -> Piece:
    """Text written out beside a date or timestamp becomes one, here and not in a cast that could throw."""
    if not isinstance(piece.literal, str) or other.type.kind not in (Kind.DATE, Kind.TIMESTAMP):
        return piece
    field = Field("", "", other.type.kind)
    try:
        value: dt.date = instant(piece.literal) if field.kind is Kind.TIMESTAMP else fitted(piece.literal, field)
    except UnfitError as exc:
        raise RefusedError(str(exc)) from None
    return Piece(literal(value, field), type_of(field))


def target(node: exp.Expr) -> SqlType:
    """The type a CAST goes to."""
    assert isinstance(node, exp.DataType)
    only(node, "this", "expressions")
    name = node.this.name if isinstance(node.this, exp.DType) else str(node.this)
    sizes = [int(p.name) for p in node.expressions if isinstance(p, exp.DataTypeParam) and p.name.isdigit()]
    if name == "DECIMAL" and len(sizes) == len(node.expressions) <= 2:
        precision, scale = [*sizes, 10, 0][:2] if len(sizes) != 1 else (sizes[0], 0)
        if 0 < precision <= 38 and scale <= precision:
            return SqlType(Kind.DECIMAL, precision, scale)
    if name in _CASTS and not node.expressions:
        return _CASTS[name]
    raise RefusedError(f"CAST to {name}")
