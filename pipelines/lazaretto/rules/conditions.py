"""`row_condition` in the forms that Great Expectations knows, turned into one guarded predicate."""

from __future__ import annotations

import re
from typing import Any

from lazaretto.contracts import Contract, Kind, quoted
from lazaretto.rules.arguments import Arguments, resolve
from lazaretto.rules.document import MisfitError
from lazaretto.rules.sql import Predicate, guard
from lazaretto.rules.sql_types import RefusedError
from lazaretto.rules.values import ORDERED_NUMBERS, shown, string_literal

_AT = ("kwargs", "row_condition")
_GX_PARSERS = ("great_expectations", "great_expectations__experimental__")
_NUMBER = r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
_LEGACY = re.compile(
    r"""\s*col\("(?P<column>[^"]+)"\)\s*(?:(?P<notnull>\.notnull\(\))
    |(?P<op>>=|<=|==|!=|>|<)\s*(?:(?P<number>"""
    + _NUMBER
    + r""")|(?:date\()?\s*(?P<quote>["'])(?P<text>[^"']+)(?P=quote)\s*\)?))\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_OPERATORS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MAX_CONDITIONS = 100


def row_condition(args: Arguments) -> Predicate | None:
    """The guarded row condition, or None.

    Raises:
        MisfitError: unknown form, or refused by the guard.
    """
    given = args.kwargs.get("row_condition")
    parser = args.kwargs.get("condition_parser")
    if parser is not None:
        known = ("spark", *_GX_PARSERS)
        args.choice("condition_parser", known)
        if given is None:
            raise MisfitError("condition_parser without row_condition", "kwargs", "condition_parser")
    if given is None:
        return None
    if isinstance(given, dict):
        text = _structured(given, args.contract, _MAX_CONDITIONS)
    elif not isinstance(given, str):
        raise MisfitError(f"row_condition is {shown(given)}, not text", *_AT)
    elif parser in _GX_PARSERS:
        text = _legacy(given, args.contract)
    else:
        text = given
    try:
        return guard(text, args.contract)
    except RefusedError as exc:
        raise MisfitError(f"row_condition: {exc}", *_AT) from None


def _legacy(text: str, contract: Contract) -> str:
    found = _LEGACY.fullmatch(text)
    if found is None:
        raise MisfitError(
            "row_condition is not of the great_expectations form", *_AT, remedy='write: col("name") > 5, or .notnull()'
        )
    field = resolve(found["column"], contract, *_AT)
    column = _sql(field.path)
    if found["notnull"]:
        return f"{column} IS NOT NULL"
    number = found["number"]
    if number is None and field.kind in ORDERED_NUMBERS and re.fullmatch(_NUMBER, found["text"]):
        number = found["text"]
    value = string_literal(found["text"]) if number is None else number.lstrip("+")
    return f"{column} {_OPERATORS[found['op']]} {value}"


def _structured(given: dict[Any, Any], contract: Contract, left: int) -> str:
    """A condition as Great Expectations serialises it: comparison, nullity, and, or, pass_through."""
    kind = given.get("type")
    keys = {
        "comparison": {"type", "column", "operator", "parameter"},
        "nullity": {"type", "column", "is_null"},
        "and": {"type", "conditions"},
        "or": {"type", "conditions"},
        "pass_through": {"type", "pass_through_filter"},
    }.get(str(kind))
    if keys is None or set(given) != keys:
        raise MisfitError("row_condition is not a condition of Great Expectations", *_AT)
    if kind in ("and", "or"):
        parts = given["conditions"]
        if not isinstance(parts, list) or not 1 <= len(parts) <= left or not all(isinstance(p, dict) for p in parts):
            raise MisfitError(f"row_condition: {kind} needs a list of conditions", *_AT)
        return "(" + f" {kind} ".join(_structured(p, contract, left - 1) for p in parts) + ")"
    if kind == "pass_through":
        # In parentheses, so that it stays one operand; the guard refuses what is not one expression.
        return f"({given['pass_through_filter']})"
    name = given["column"].get("name") if isinstance(given["column"], dict) else given["column"]
    field = resolve(name, contract, *_AT)
    if kind == "nullity":
        if not isinstance(given["is_null"], bool):
            raise MisfitError("row_condition: is_null is not true or false", *_AT)
        return f"{_sql(field.path)} IS {'' if given['is_null'] else 'NOT '}NULL"
    operator, parameter = given["operator"], given["parameter"]
    if operator in ("IN", "NOT_IN") and isinstance(parameter, list) and parameter:
        listed = ", ".join(_value(item, field.kind) for item in parameter)
        return f"{_sql(field.path)} {operator.replace('_', ' ')} ({listed})"
    if operator not in _OPERATORS:
        raise MisfitError(f"row_condition: operator {shown(operator)}", *_AT)
    return f"{_sql(field.path)} {_OPERATORS[operator]} {_value(parameter, field.kind)}"


def _value(value: Any, kind: Kind) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return repr(value)
    if hasattr(value, "isoformat"):
        value = value.isoformat()
    if isinstance(value, str):
        return string_literal(value)
    raise MisfitError(f"row_condition: {shown(value)} is not a value", *_AT)


def _sql(path: str) -> str:
    return ".".join(quoted(part) for part in path.split("."))
