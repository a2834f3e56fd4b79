"""Expectations that compare the columns of one record, compiled, and the predicate over the whole record."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_FLOOR
from functools import reduce
from itertools import combinations

from lazaretto.contracts import Field, Kind
from lazaretto.rules import compile_column as one
from lazaretto.rules.arguments import Arguments, Compiled, sql_of
from lazaretto.rules.document import MisfitError
from lazaretto.rules.sql import guard
from lazaretto.rules.sql_types import RefusedError, SqlType, arithmetic, common, decimal, type_of
from lazaretto.rules.values import (
    ORDERED_NUMBERS,
    SCALARS,
    UnfitError,
    cut,
    double_literal,
    exact,
    fitted,
    literal,
    on_grid,
    shown,
)

_PAIR_IGNORES = ("both_values_are_missing", "either_value_is_missing", "neither")
_LIST_IGNORES = ("all_values_are_missing", "any_value_is_missing", "never")
_QUERY = re.compile(r"\s*SELECT\s+\*\s+FROM\s+\{batch\}\s+WHERE\s(.*?)[;\s]*", re.IGNORECASE | re.DOTALL)


def _same_type(fields: tuple[Field, ...], name: str) -> None:
    try:
        reduce(common, (type_of(field) for field in fields))
    except RefusedError as exc:
        raise MisfitError(f"columns cannot be compared: {exc}", "kwargs", name) from None


def _pair(args: Arguments) -> tuple[Field, Field]:
    fields = (args.column("column_A", SCALARS), args.column("column_B", SCALARS))
    _same_type(fields, "column_B")
    return fields


def _counted(fields: tuple[Field, ...], ignore: str) -> str | None:
    """SQL that is TRUE where the record counts; None where each does."""
    columns = [sql_of(field) for field in fields]
    if ignore in ("either_value_is_missing", "any_value_is_missing"):
        return " AND ".join(f"{column} IS NOT NULL" for column in columns)
    if ignore in ("both_values_are_missing", "all_values_are_missing"):
        return "(" + " OR ".join(f"{column} IS NOT NULL" for column in columns) + ")"
    return None


def _compiled(fields: tuple[Field, ...], counted: str | None, violated: str, detail: str) -> Compiled:
    paths = tuple(dict.fromkeys(field.path for field in fields))
    failing = violated if counted is None else f"{counted} AND {violated}"
    return Compiled(failing, paths, paths[0] if len(paths) == 1 else None, detail)


def pair_greater(args: Arguments) -> Compiled:
    """A is greater than B, or equal if that is allowed."""
    a, b = _pair(args)
    args.choice("ignore_row_if", _PAIR_IGNORES)
    sign, word = ("<", "less than") if args.flag("or_equal") else ("<=", "not greater than")
    # A null on either side has no order: Great Expectations lets it pass whatever ignore_row_if says.
    counted = f"{sql_of(a)} IS NOT NULL AND {sql_of(b)} IS NOT NULL"
    return _compiled((a, b), counted, f"{sql_of(a)} {sign} {sql_of(b)}", f"{a.path} is {word} {b.path}")


def pair_equal(args: Arguments) -> Compiled:
    """A and B are the same, two nulls included."""
    a, b = _pair(args)
    counted = _counted((a, b), args.choice("ignore_row_if", _PAIR_IGNORES))
    if counted is not None and " OR " in counted:
        counted = None  # both null are equal already
    return _compiled((a, b), counted, f"NOT ({sql_of(a)} <=> {sql_of(b)})", f"{a.path} differs from {b.path}")


def pair_in_set(args: Arguments) -> Compiled:
    """The pair of values is one of a set."""
    a, b = args.column("column_A", SCALARS), args.column("column_B", SCALARS)
    counted = _counted((a, b), args.choice("ignore_row_if", _PAIR_IGNORES))
    tests = set()
    for index, pair in enumerate(args.items("value_pairs_set")):
        if not isinstance(pair, list) or len(pair) != 2:
            raise MisfitError(f"{shown(pair)} is not a pair", "kwargs", "value_pairs_set", index)
        try:
            values = [None if v is None else fitted(v, f) for v, f in zip(pair, (a, b), strict=True)]
        except UnfitError as exc:
            raise MisfitError(str(exc), "kwargs", "value_pairs_set", index) from None
        tests.add(" AND ".join(f"{sql_of(f)} <=> {literal(v, f)}" for v, f in zip(values, (a, b), strict=True)))
    allowed = " OR ".join(f"({test})" for test in sorted(tests))
    return _compiled((a, b), counted, f"NOT ({allowed})", f"pair not in a set of {len(tests)}")


def unique_within_record(args: Arguments) -> Compiled:
    """No two of the columns hold the same value."""
    fields = args.columns(kinds=SCALARS)
    _same_type(fields, "column_list")
    counted = _counted(fields, args.choice("ignore_row_if", _LIST_IGNORES))
    ordered = sorted(fields, key=lambda field: field.path)
    tests = [f"{sql_of(a)} <=> {sql_of(b)}" for a, b in combinations(ordered, 2)]
    return _compiled(fields, counted, "(" + " OR ".join(tests) + ")", f"a value repeats in {_paths(fields)}")


def columns_equal(args: Arguments) -> Compiled:
    """All columns hold the same value."""
    fields = args.columns(kinds=SCALARS)
    _same_type(fields, "column_list")
    counted = _counted(fields, args.choice("ignore_row_if", _LIST_IGNORES))
    tests = [f"{sql_of(fields[0])} <=> {sql_of(other)}" for other in fields[1:]]
    return _compiled(fields, counted, "NOT (" + " AND ".join(tests) + ")", f"{_paths(fields)} are not all equal")


def _paths(fields: tuple[Field, ...]) -> str:
    return cut(", ".join(field.path for field in fields))


def sum_equals(args: Arguments) -> Compiled:
    """The columns add up to a total; a null adds nothing."""
    fields = args.columns(kinds=ORDERED_NUMBERS)
    counted = _counted(fields, args.choice("ignore_row_if", _LIST_IGNORES))
    total = args.given("sum_total")
    try:
        number = exact(total)
    except UnfitError as exc:
        raise MisfitError(f"sum_total: {exc}", "kwargs", "sum_total") from None
    approximate = any(field.kind in (Kind.FLOAT, Kind.DOUBLE) for field in fields)
    if approximate:
        addends = [f"coalesce(CAST({sql_of(f)} AS DOUBLE), 0.0D)" for f in fields]
        wanted = double_literal(float(total))
        text = reduce(lambda left, right: f"{left} + {right}", addends)
    else:
        # Whole numbers are added as decimals of 38 digits, so that only a sum beyond those has no answer.
        types = [type_of(f) if f.kind is Kind.DECIMAL else decimal(20, 0) for f in fields]
        found: SqlType = reduce(lambda left, right: arithmetic("add", left, right), types)
        addends = [
            f"coalesce(CAST({sql_of(f)} AS {t.name}), CAST(0 AS {t.name}))" for f, t in zip(fields, types, strict=True)
        ]
        text = reduce(lambda left, right: f"try_add({left}, {right})", addends)
        if not number.is_finite() or on_grid(number, found.scale, ROUND_FLOOR) != number:
            raise MisfitError(f"sum_total: no sum of these columns is {shown(total)}", "kwargs", "sum_total")
        if abs(number) >= 10 ** (38 - found.scale):
            raise MisfitError(f"sum_total: {shown(total)} is beyond {found.name}", "kwargs", "sum_total")
        wanted = f"CAST('{number:f}' AS DECIMAL(38,{found.scale}))"
    # A sum that overflows is not the total: NULL counts as violated.
    return _compiled(fields, counted, f"coalesce({text} <> {wanted}, TRUE)", f"sum is not {shown(total)}")


def unexpected_rows(args: Arguments) -> Compiled:
    """No record matches a predicate, which is checked by the guard before it is used."""
    query = args.text("unexpected_rows_query")
    found = _QUERY.fullmatch(query)
    at = ("kwargs", "unexpected_rows_query")
    if found is None:
        raise MisfitError(
            "unexpected_rows_query is not of the one supported form", *at,
            remedy="write: SELECT * FROM {batch} WHERE <predicate>",
        )  # fmt: skip
    # Great Expectations formats the query, so that a brace is written twice in it.
    predicate = found.group(1).replace("{{", "\x01").replace("}}", "\x02")
    if "{" in predicate or "}" in predicate:
        raise MisfitError(
            "a brace in unexpected_rows_query; {batch} is the only parameter", *at, remedy="write it twice"
        )
    try:
        checked = guard(predicate.replace("\x01", "{").replace("\x02", "}"), args.contract)
    except RefusedError as exc:
        raise MisfitError(f"predicate: {exc}", *at) from None
    if not checked.columns:
        raise MisfitError("predicate reads no column", *at)
    field = checked.columns[0] if len(checked.columns) == 1 else None
    failing = f"coalesce({checked.sql}, FALSE)"
    return Compiled(failing, checked.columns, field, "matches the rule's predicate", checked.regexes)


@dataclass(frozen=True)
class Expectation:
    """A row-level expectation: its kwargs in Great Expectations and how it is compiled."""

    compile: Callable[[Arguments], Compiled]
    kwargs: frozenset[str]


_COMMON = ("mostly", "row_condition", "condition_parser")


def _on(compile_: Callable[[Arguments], Compiled], *kwargs: str) -> Expectation:
    return Expectation(compile_, frozenset((*kwargs, *_COMMON)))


_RANGE = ("min_value", "max_value", "strict_min", "strict_max")

ROW_EXPECTATIONS: dict[str, Expectation] = {
    "expect_column_values_to_not_be_null": _on(one.not_be_null, "column"),
    "expect_column_values_to_be_null": _on(one.be_null, "column"),
    "expect_column_values_to_be_in_set": _on(one.be_in_set, "column", "value_set"),
    "expect_column_values_to_not_be_in_set": _on(one.not_be_in_set, "column", "value_set"),
    "expect_column_values_to_be_between": _on(one.be_between, "column", *_RANGE),
    "expect_column_values_to_match_regex": _on(one.match_regex, "column", "regex"),
    "expect_column_values_to_not_match_regex": _on(one.not_match_regex, "column", "regex"),
    "expect_column_values_to_match_regex_list": _on(one.match_regex_list, "column", "regex_list", "match_on"),
    "expect_column_values_to_not_match_regex_list": _on(one.not_match_regex_list, "column", "regex_list"),
    "expect_column_values_to_match_like_pattern": _on(one.match_like, "column", "like_pattern", "escape"),
    "expect_column_values_to_not_match_like_pattern": _on(one.not_match_like, "column", "like_pattern", "escape"),
    "expect_column_values_to_match_like_pattern_list": _on(
        one.match_like_list, "column", "like_pattern_list", "match_on", "escape"
    ),
    "expect_column_values_to_not_match_like_pattern_list": _on(
        one.not_match_like_list, "column", "like_pattern_list", "escape"
    ),
    "expect_column_value_lengths_to_be_between": _on(one.lengths_between, "column", *_RANGE),
    "expect_column_value_lengths_to_equal": _on(one.lengths_equal, "column", "value"),
    "expect_column_pair_values_a_to_be_greater_than_b": _on(
        pair_greater, "column_A", "column_B", "or_equal", "ignore_row_if"
    ),
    "expect_column_pair_values_to_be_equal": _on(pair_equal, "column_A", "column_B", "ignore_row_if"),
    "expect_column_pair_values_to_be_in_set": _on(
        pair_in_set, "column_A", "column_B", "value_pairs_set", "ignore_row_if"
    ),
    "expect_select_column_values_to_be_unique_within_record": _on(unique_within_record, "column_list", "ignore_row_if"),
    "expect_multicolumn_values_to_be_equal": _on(columns_equal, "column_list", "ignore_row_if"),
    "expect_multicolumn_sum_to_equal": _on(sum_equals, "column_list", "sum_total", "ignore_row_if"),
    "unexpected_rows_expectation": Expectation(unexpected_rows, frozenset({"unexpected_rows_query"})),
}
"""Great Expectations' names of what is compiled; anything else is an expectation about a batch."""
