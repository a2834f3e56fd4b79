"""Expectations about one column, compiled. Null semantics are Great Expectations' own: a null is no violation,
except to the two expectations about nulls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lazaretto.contracts import INTEGERS, Field, Kind
from lazaretto.rules.arguments import Arguments, Compiled, sql_of
from lazaretto.rules.document import MisfitError
from lazaretto.rules.patterns import PatternError, certain_match, check_like, check_regex
from lazaretto.rules.values import (
    ORDERED_NUMBERS,
    SCALARS,
    UnfitError,
    beyond,
    exact,
    fitted,
    literal,
    shown,
    string_literal,
)

_TEXT = frozenset({Kind.STRING})
_ORDERED = ORDERED_NUMBERS | {Kind.DATE, Kind.TIMESTAMP}


def _compiled(
    field: Field,
    violated: str | None,
    detail: str,
    accepts: Callable[[Any], bool | None] | None = None,
    regexes: tuple[str, ...] = (),
) -> Compiled:
    """`violated` is SQL over a value that is not null; None where no value can violate the expectation."""
    column = sql_of(field)
    if violated is None:
        failing = "FALSE"
    elif violated == "TRUE":
        failing = f"{column} IS NOT NULL"
    else:
        # The test for null comes first: it makes the whole two-valued, and nothing after it is evaluated on a null.
        failing = f"{column} IS NOT NULL AND {violated}"
    return Compiled(failing, (field.path,), field.path, detail, regexes, accepts)


def not_be_null(args: Arguments) -> Compiled:
    """The column is never null."""
    field = args.column()
    return Compiled(f"{sql_of(field)} IS NULL", (field.path,), field.path, "is null", accepts=lambda v: True)


def be_null(args: Arguments) -> Compiled:
    """The column is always null."""
    field = args.column()
    return Compiled(f"{sql_of(field)} IS NOT NULL", (field.path,), field.path, "is not null", accepts=lambda v: False)


def _value_set(args: Arguments, field: Field) -> list[Any]:
    found: dict[str, Any] = {}
    for index, item in enumerate(args.items("value_set")):
        if item is None:
            # A null in a set is never equal to anything, and a null value is skipped before the set is looked at.
            continue
        try:
            value = fitted(item, field)
        except UnfitError as exc:
            raise MisfitError(str(exc), "kwargs", "value_set", index) from None
        found.setdefault(literal(value, field), value)
    if not found:
        raise MisfitError("value_set holds nulls only", "kwargs", "value_set")
    return [found[key] for key in sorted(found)]


def be_in_set(args: Arguments) -> Compiled:
    """The value is one of a set."""
    field = args.column(kinds=SCALARS)
    values = _value_set(args, field)
    listed = ", ".join(literal(v, field) for v in values)
    detail = f"not in a set of {len(values)}"
    return _compiled(field, f"{sql_of(field)} NOT IN ({listed})", detail, lambda v: v in values)


def not_be_in_set(args: Arguments) -> Compiled:
    """The value is none of a set."""
    field = args.column(kinds=SCALARS)
    values = _value_set(args, field)
    listed = ", ".join(literal(v, field) for v in values)
    detail = f"in a set of {len(values)} that are not allowed"
    return _compiled(field, f"{sql_of(field)} IN ({listed})", detail, lambda v: v not in values)


def be_between(args: Arguments) -> Compiled:
    """The value lies between two bounds, either of which may be left out."""
    field = args.column(kinds=_ORDERED)
    column = sql_of(field)
    low, high = args.kwargs.get("min_value"), args.kwargs.get("max_value")
    strict_low, strict_high = args.flag("strict_min"), args.flag("strict_max")
    if low is None and high is None:
        raise MisfitError("needs min_value or max_value", "kwargs")
    parts = []
    for name, bound, below, strict in (("min_value", low, True, strict_low), ("max_value", high, False, strict_high)):
        if bound is None:
            continue
        try:
            part = beyond(column, field, bound, below=below, strict=strict)
        except UnfitError as exc:
            raise MisfitError(f"{name}: {exc}", "kwargs", name) from None
        if part is not None:
            parts.append(part)
    if low is not None and high is not None and _comparable(low, field) > _comparable(high, field):
        raise MisfitError("min_value is greater than max_value", "kwargs", "min_value")
    violated = "TRUE" if "TRUE" in parts else " OR ".join(parts) or None
    if len(parts) == 2 and violated != "TRUE":
        violated = f"({violated})"

    def accepts(value: Any) -> bool:
        # NaN is the greatest number to Spark, and has no order in Python.
        if value != value:
            return high is None
        above = low is None or (value > _comparable(low, field) if strict_low else value >= _comparable(low, field))
        under = high is None or (value < _comparable(high, field) if strict_high else value <= _comparable(high, field))
        return bool(above and under)

    return _compiled(field, violated, _range("", low, high, strict_low, strict_high), accepts)


def _comparable(bound: Any, field: Field) -> Any:
    """The bound as a Python value that compares with the field's own as Spark's do."""
    exactly = field.kind in INTEGERS or field.kind is Kind.DECIMAL
    return exact(bound) if exactly else fitted(bound, field)


def _range(what: str, low: Any, high: Any, strict_low: bool = False, strict_high: bool = False) -> str:
    if high is None:
        return f"{what}{'not above' if strict_low else 'below'} {shown(low)}"
    if low is None:
        return f"{what}{'not below' if strict_high else 'above'} {shown(high)}"
    ends = ("(" if strict_low else "[", ")" if strict_high else "]") if strict_low or strict_high else ("", "")
    return f"{what}outside {ends[0]}{shown(low)}..{shown(high)}{ends[1]}"


def _regex(pattern: str, *at: str | int) -> str:
    try:
        check_regex(pattern)
    except PatternError as exc:
        raise MisfitError(f"regular expression: {exc}", "kwargs", *at) from None
    return pattern


def match_regex(args: Arguments) -> Compiled:
    """The text holds a match of a Java pattern."""
    field = args.column(kinds=_TEXT)
    pattern = _regex(args.text("regex"), "regex")
    violated = f"NOT {sql_of(field)} RLIKE {string_literal(pattern)}"
    return _compiled(
        field, violated, f"does not match {shown(pattern)}", lambda v: certain_match(pattern, v), (pattern,)
    )


def not_match_regex(args: Arguments) -> Compiled:
    """The text holds no match of a Java pattern."""
    field = args.column(kinds=_TEXT)
    pattern = _regex(args.text("regex"), "regex")
    return _compiled(
        field, f"{sql_of(field)} RLIKE {string_literal(pattern)}", f"matches {shown(pattern)}",
        lambda v: _negated(certain_match(pattern, v)), (pattern,),
    )  # fmt: skip


def _negated(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _regex_list(args: Arguments) -> list[str]:
    given = args.texts("regex_list")
    return sorted({_regex(pattern, "regex_list", index) for index, pattern in enumerate(given)})


def _joined(tests: list[str], word: str) -> str:
    return tests[0] if len(tests) == 1 else "(" + f" {word} ".join(tests) + ")"


def match_regex_list(args: Arguments) -> Compiled:
    """The text holds a match of any or of all patterns."""
    field = args.column(kinds=_TEXT)
    patterns = _regex_list(args)
    match_on = args.choice("match_on", ("any", "all"))
    tests = [f"{sql_of(field)} RLIKE {string_literal(p)}" for p in patterns]
    violated = f"NOT {_joined(tests, 'OR' if match_on == 'any' else 'AND')}"
    detail = f"does not match {match_on} of {len(patterns)} patterns"
    return _compiled(field, violated, detail, lambda v: None, tuple(patterns))


def not_match_regex_list(args: Arguments) -> Compiled:
    """The text holds a match of none of the patterns."""
    field = args.column(kinds=_TEXT)
    patterns = _regex_list(args)
    tests = [f"{sql_of(field)} RLIKE {string_literal(p)}" for p in patterns]
    detail = f"matches one of {len(patterns)} patterns that are not allowed"
    return _compiled(field, _joined(tests, "OR"), detail, lambda v: None, tuple(patterns))


def _like(args: Arguments, field: Field, name: str) -> tuple[list[str], list[str]]:
    """The patterns, and one LIKE test for each."""
    escape = args.text("escape") if args.kwargs.get("escape") is not None else "\\"
    given = args.texts(name) if name.endswith("_list") else [args.text(name)]
    for index, pattern in enumerate(given):
        try:
            check_like(pattern, escape)
        except PatternError as exc:
            at: list[str | int] = [name, index] if name.endswith("_list") else [name]
            raise MisfitError(f"LIKE pattern: {exc}", "kwargs", *at) from None
    suffix = "" if escape == "\\" else f" ESCAPE {string_literal(escape)}"
    patterns = sorted(set(given))
    return patterns, [f"{sql_of(field)} LIKE {string_literal(p)}{suffix}" for p in patterns]


def match_like(args: Arguments) -> Compiled:
    """The text is like a SQL pattern."""
    field = args.column(kinds=_TEXT)
    patterns, tests = _like(args, field, "like_pattern")
    return _compiled(field, f"NOT {tests[0]}", f"is not like {shown(patterns[0])}", lambda v: None)


def not_match_like(args: Arguments) -> Compiled:
    """The text is not like a SQL pattern."""
    field = args.column(kinds=_TEXT)
    patterns, tests = _like(args, field, "like_pattern")
    return _compiled(field, tests[0], f"is like {shown(patterns[0])}", lambda v: None)


def match_like_list(args: Arguments) -> Compiled:
    """The text is like any or all of the SQL patterns."""
    field = args.column(kinds=_TEXT)
    patterns, tests = _like(args, field, "like_pattern_list")
    match_on = args.choice("match_on", ("any", "all"))
    violated = f"NOT {_joined(tests, 'OR' if match_on == 'any' else 'AND')}"
    return _compiled(field, violated, f"is not like {match_on} of {len(patterns)} patterns", lambda v: None)


def not_match_like_list(args: Arguments) -> Compiled:
    """The text is like none of the SQL patterns."""
    field = args.column(kinds=_TEXT)
    patterns, tests = _like(args, field, "like_pattern_list")
    detail = f"is like one of {len(patterns)} patterns that are not allowed"
    return _compiled(field, _joined(tests, "OR"), detail, lambda v: None)


def lengths_between(args: Arguments) -> Compiled:
    """The text's length, in code points, lies between two bounds."""
    field = args.column(kinds=_TEXT)
    low, high = args.count("min_value"), args.count("max_value")
    strict_low, strict_high = args.flag("strict_min"), args.flag("strict_max")
    if low is None and high is None:
        raise MisfitError("needs min_value or max_value", "kwargs")
    if low is not None and high is not None and low > high:
        raise MisfitError("min_value is greater than max_value", "kwargs", "min_value")
    length = f"length({sql_of(field)})"
    parts = []
    if low is not None:
        parts.append(f"{length} {'<=' if strict_low else '<'} {low}")
    if high is not None:
        parts.append(f"{length} {'>=' if strict_high else '>'} {high}")

    def accepts(value: str) -> bool:
        size = len(value)
        above = low is None or (size > low if strict_low else size >= low)
        return above and (high is None or (size < high if strict_high else size <= high))

    return _compiled(field, _joined(parts, "OR"), _range("length ", low, high, strict_low, strict_high), accepts)


def lengths_equal(args: Arguments) -> Compiled:
    """The text has one length, in code points."""
    field = args.column(kinds=_TEXT)
    args.given("value")
    value = args.count("value")
    return _compiled(field, f"length({sql_of(field)}) <> {value}", f"length is not {value}", lambda v: len(v) == value)
