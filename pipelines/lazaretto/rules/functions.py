"""The functions that a predicate may call: deterministic scalar built-ins that cannot throw on any value.

A name that is not here is refused, whatever Spark would do with it. Arguments are checked by family, because an
implicit cast is what throws; a position that takes a literal takes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lazaretto.contracts import Kind
from lazaretto.rules.sql_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    ZERO,
    RefusedError,
    SqlType,
    arithmetic,
    common,
    decimal,
)

_MAX_COUNT = 10_000


@dataclass(frozen=True)
class Piece:
    """A checked part of an expression: its SQL, its type, and the value where it is a literal."""

    sql: str
    type: SqlType
    literal: str | int | None = None
    columns: tuple[str, ...] = ()
    regexes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Function:
    """How a function is checked and written.

    `takes` has one letter per argument: s text, n number, f FLOAT or DOUBLE, d date, t timestamp, m date or
    timestamp, b boolean, a array, v any scalar, i whole-number literal, r text literal holding a regular expression.
    `more` is the letter of further arguments, `optional` how many of the last ones may be left out.
    """

    takes: str
    result: SqlType | Callable[[Sequence[Piece]], SqlType]
    optional: int = 0
    more: str = ""
    template: str = ""
    names: tuple[str, ...] = field(default=())


def _unified(pieces: Sequence[Piece]) -> SqlType:
    found = pieces[0].type
    for piece in pieces[1:]:
        found = common(found, piece.type)
    if found.kind is None:
        raise RefusedError("NULL alone has no type")
    return found


def _chosen(pieces: Sequence[Piece]) -> SqlType:
    return _unified(pieces[1:])


def _first(pieces: Sequence[Piece]) -> SqlType:
    _unified(pieces)
    return pieces[0].type


def _absolute(pieces: Sequence[Piece]) -> SqlType:
    given = pieces[0].type
    return common(arithmetic("subtract", ZERO, given), given)


def _whole(pieces: Sequence[Piece]) -> SqlType:
    given = pieces[0].type
    if given.kind is Kind.DECIMAL:
        return decimal(given.precision - given.scale + 1, 0)
    return BIGINT


def _rounded(pieces: Sequence[Piece]) -> SqlType:
    given = pieces[0].type
    digits = pieces[1].literal if len(pieces) > 1 else 0
    assert isinstance(digits, int)
    if given.kind is Kind.DECIMAL:
        scale = min(given.scale, digits)
        return decimal(given.precision - given.scale + 1 + scale, scale)
    return given


def _contains(pieces: Sequence[Piece]) -> SqlType:
    item = pieces[0].type.item
    if item is None or pieces[1].type.kind is not item.kind:
        raise RefusedError("array_contains with a value that is not of the array's element type")
    return BOOLEAN


def _operator(name: str) -> Callable[[Sequence[Piece]], SqlType]:
    return lambda pieces: arithmetic(name, pieces[0].type, pieces[1].type)


_ABS = "CASE WHEN {0} < 0 THEN try_subtract(0, {0}) ELSE {0} END"

FUNCTIONS: dict[str, Function] = {
    "length": Function("s", INT, names=("char_length", "character_length")),
    "upper": Function("s", STRING, names=("ucase",)),
    "lower": Function("s", STRING, names=("lcase",)),
    "trim": Function("s", STRING),
    "ltrim": Function("s", STRING),
    "rtrim": Function("s", STRING),
    "reverse": Function("s", STRING),
    "initcap": Function("s", STRING),
    "ascii": Function("s", INT),
    "substring": Function("sii", STRING, optional=1, names=("substr",)),
    "left": Function("si", STRING),
    "right": Function("si", STRING),
    "lpad": Function("sis", STRING),
    "rpad": Function("sis", STRING),
    "concat": Function("s", STRING, more="s"),
    "concat_ws": Function("ss", STRING, more="s"),
    "replace": Function("sss", STRING),
    "translate": Function("sss", STRING),
    "startswith": Function("ss", BOOLEAN),
    "endswith": Function("ss", BOOLEAN),
    "contains": Function("ss", BOOLEAN),
    "instr": Function("ss", INT),
    "levenshtein": Function("ss", INT),
    "luhn_check": Function("s", BOOLEAN),
    "regexp_like": Function("sr", BOOLEAN, names=("regexp", "rlike")),
    "isnull": Function("v", BOOLEAN),
    "isnotnull": Function("v", BOOLEAN),
    "isnan": Function("f", BOOLEAN),
    "abs": Function("n", _absolute, template=_ABS),
    "ceil": Function("n", _whole, names=("ceiling",)),
    "floor": Function("n", _whole),
    "round": Function("ni", _rounded, optional=1),
    "sqrt": Function("n", DOUBLE),
    "try_add": Function("nn", _operator("add")),
    "try_subtract": Function("nn", _operator("subtract")),
    "try_multiply": Function("nn", _operator("multiply")),
    "try_divide": Function("nn", _operator("divide")),
    "try_mod": Function("nn", _operator("mod"), names=("mod",)),
    "coalesce": Function("v", _unified, more="v"),
    "nvl": Function("vv", _unified, names=("ifnull",)),
    "nullif": Function("vv", _first),
    "if": Function("bvv", _chosen, names=("iff",)),
    "greatest": Function("vv", _unified, more="v"),
    "least": Function("vv", _unified, more="v"),
    "year": Function("m", INT),
    "quarter": Function("m", INT),
    "month": Function("m", INT),
    "day": Function("m", INT, names=("dayofmonth",)),
    "dayofweek": Function("m", INT),
    "dayofyear": Function("m", INT),
    "weekday": Function("m", INT),
    "weekofyear": Function("m", INT),
    "hour": Function("t", INT),
    "minute": Function("t", INT),
    "second": Function("t", INT),
    "unix_date": Function("d", INT),
    "unix_seconds": Function("t", BIGINT),
    "unix_millis": Function("t", BIGINT),
    "unix_micros": Function("t", BIGINT),
    "datediff": Function("mm", INT, names=("date_diff",)),
    "date_add": Function("mi", DATE),
    "date_sub": Function("mi", DATE),
    "last_day": Function("m", DATE),
    "size": Function("a", INT, names=("cardinality", "array_size")),
    "array_contains": Function("av", _contains),
}
_BY_NAME = {name: known for known, function in FUNCTIONS.items() for name in (known, *function.names)}

NAMES: tuple[str, ...] = tuple(sorted(_BY_NAME))
"""Every name a predicate may call."""

_FAMILY: dict[str, tuple[str, Callable[[SqlType], bool]]] = {
    "s": ("text", lambda t: t.kind is Kind.STRING),
    "n": ("a number", lambda t: t.number),
    "f": ("FLOAT or DOUBLE", lambda t: t.approximate),
    "d": ("a date", lambda t: t.kind is Kind.DATE),
    "t": ("a timestamp", lambda t: t.kind is Kind.TIMESTAMP),
    "m": ("a date or a timestamp", lambda t: t.kind in (Kind.DATE, Kind.TIMESTAMP)),
    "b": ("a condition", lambda t: t.kind is Kind.BOOLEAN),
    "a": ("an array", lambda t: t.kind is Kind.ARRAY),
    "v": ("a scalar", lambda t: t.kind not in (Kind.STRUCT, Kind.ARRAY)),
}


def call(name: str, pieces: Sequence[Piece]) -> tuple[str, SqlType, tuple[str, ...]]:
    """The SQL, the type and the regular expressions of a call.

    Raises:
        RefusedError: the name is unknown, or an argument does not fit.
    """
    known = _BY_NAME.get(name.lower())
    if known is None:
        raise RefusedError(f"function {name} is not allowed")
    function = FUNCTIONS[known]
    most = len(function.takes) if not function.more else 200
    if not len(function.takes) - function.optional <= len(pieces) <= most:
        raise RefusedError(f"{known} with {len(pieces)} arguments")
    letters = function.takes + function.more * (len(pieces) - len(function.takes))
    regexes: list[str] = []
    for letter, piece in zip(letters, pieces, strict=False):
        _check(known, letter, piece, regexes)
    result = function.result if isinstance(function.result, SqlType) else function.result(pieces)
    arguments = [piece.sql for piece in pieces]
    sql = function.template.format(*arguments) if function.template else f"{known}({', '.join(arguments)})"
    return sql, result, tuple(regexes)


def _check(name: str, letter: str, piece: Piece, regexes: list[str]) -> None:
    if letter == "i":
        if not isinstance(piece.literal, int) or abs(piece.literal) > _MAX_COUNT:
            raise RefusedError(f"{name} takes a whole number up to {_MAX_COUNT} there, written out")
        if name == "round" and piece.literal < 0:
            raise RefusedError("round to a negative place can overflow")
    elif letter == "r":
        if not isinstance(piece.literal, str):
            raise RefusedError(f"{name} takes a pattern there, written out")
        regexes.append(piece.literal)
    else:
        family, fits = _FAMILY[letter]
        if not fits(piece.type):
            raise RefusedError(f"{name} takes {family}, not {piece.type.name}")
