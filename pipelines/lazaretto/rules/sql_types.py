"""The types of guarded SQL: enough of Spark's rules to know that no implicit cast can throw.

Spark is ANSI: `'a' = 5` casts the text and fails the batch. So both sides of an operator must be of one family, and
exact numbers must have a common decimal type that holds both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lazaretto.contracts import INTEGERS, Field, Kind

_DIGITS = {Kind.TINYINT: 3, Kind.SMALLINT: 5, Kind.INT: 10, Kind.BIGINT: 20}
_ORDER = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)


class RefusedError(ValueError):
    """The SQL is outside what rules may say; the text says what."""


@dataclass(frozen=True)
class SqlType:
    """A Spark type; `kind` None is an untyped NULL. `precision` and `scale` go with every exact number."""

    kind: Kind | None
    precision: int = 0
    scale: int = 0
    item: Field | None = None

    @property
    def name(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({self.precision},{self.scale})"
        return "NULL" if self.kind is None else self.kind.value

    @property
    def exact(self) -> bool:
        return self.kind in INTEGERS or self.kind is Kind.DECIMAL

    @property
    def approximate(self) -> bool:
        return self.kind in (Kind.FLOAT, Kind.DOUBLE)

    @property
    def number(self) -> bool:
        return self.exact or self.approximate


NULL = SqlType(None)
STRING = SqlType(Kind.STRING)
BOOLEAN = SqlType(Kind.BOOLEAN)
INT = SqlType(Kind.INT, 10)
ZERO = SqlType(Kind.INT, 1)
BIGINT = SqlType(Kind.BIGINT, 20)
DOUBLE = SqlType(Kind.DOUBLE)
DATE = SqlType(Kind.DATE)
TIMESTAMP = SqlType(Kind.TIMESTAMP)


def type_of(field: Field) -> SqlType:
    """The SQL type of a contract field."""
    if field.kind is Kind.DECIMAL:
        return decimal(field.precision, field.scale)
    return SqlType(field.kind, _DIGITS.get(field.kind, 0), 0, field.item)


def decimal(precision: int, scale: int) -> SqlType:
    """A decimal type of at most 38 digits, by Spark's rule: whole digits first, at least six of the fraction."""
    if precision > 38:
        whole = precision - scale
        scale = max(38 - whole, min(scale, 6))
        precision = 38
    return SqlType(Kind.DECIMAL, precision, scale)


def common(left: SqlType, right: SqlType) -> SqlType:
    """The type both sides are compared in.

    Raises:
        RefusedError: they have none, or reaching it could throw.
    """
    if left.kind is None or right.kind is None:
        return right if left.kind is None else left
    if left.number and right.number:
        if left.approximate or right.approximate:
            return left if left.kind is right.kind else DOUBLE
        if left.kind is not Kind.DECIMAL and right.kind is not Kind.DECIMAL:
            return max(left, right, key=lambda t: _ORDER.index(t.kind) if t.kind in _ORDER else 0)
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale
        if precision > 38:
            raise RefusedError(f"{left.name} and {right.name} have no common exact type; CAST one of them")
        return SqlType(Kind.DECIMAL, precision, scale)
    if left.kind is right.kind and left.kind not in (Kind.STRUCT, Kind.ARRAY):
        return replace(left, item=None)
    raise RefusedError(f"{left.name} does not go with {right.name}; CAST one of them")


def arithmetic(operator: str, left: SqlType, right: SqlType) -> SqlType:
    """The type of `left operator right`; the operator is add, subtract, multiply, divide or mod.

    Source of the decimal formulas: Spark's DecimalPrecision rules (those of Hive and SQL Server).
    """
    for side in (left, right):
        if not side.number:
            raise RefusedError(f"arithmetic on {side.name}")
    if left.approximate or right.approximate:
        return left if left.kind is right.kind and operator != "divide" else DOUBLE
    if left.kind is not Kind.DECIMAL and right.kind is not Kind.DECIMAL:
        return DOUBLE if operator == "divide" else common(left, right)
    whole_left, whole_right = left.precision - left.scale, right.precision - right.scale
    if operator == "multiply":
        return decimal(left.precision + right.precision + 1, left.scale + right.scale)
    if operator == "divide":
        scale = max(6, left.scale + right.precision + 1)
        return decimal(whole_left + right.scale + scale, scale)
    scale = max(left.scale, right.scale)
    if operator == "mod":
        return decimal(min(whole_left, whole_right) + scale, scale)
    return decimal(max(whole_left, whole_right) + scale + 1, scale)
