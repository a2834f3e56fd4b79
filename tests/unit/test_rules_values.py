"""Bounds and literals against the contract's types."""

from __future__ import annotations

import operator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazaretto.contracts import Field, Kind
from lazaretto.rules.patterns import PatternError, certain_match, check_like, check_regex
from lazaretto.rules.values import UnfitError, beyond, fitted, grid, instant, literal, string_literal

FIELDS = [
    Field("c", "c", Kind.TINYINT),
    Field("c", "c", Kind.INT),
    Field("c", "c", Kind.DECIMAL, precision=5, scale=2),
    Field("c", "c", Kind.DECIMAL, precision=38, scale=10),
]
OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@given(st.sampled_from(FIELDS), st.data(), st.booleans(), st.booleans())
def test_a_moved_bound_gives_the_same_verdict(field: Field, data: st.DataObject, below: bool, strict: bool) -> None:
    low, high, scale = grid(field)
    near = st.integers(-300, 300).map(lambda n: n / 7)
    edges = st.sampled_from(
        [int(low), int(high), int(low) - 1, int(high) + 1, 1e30, -1e300, float("inf"), float("-inf")]
    )
    bound = data.draw(near | edges | st.floats(allow_nan=False))
    steps = 10**scale
    small = st.integers(max(-30000, int(low * steps)), min(30000, int(high * steps)))
    value = data.draw(small | st.integers(int(low * steps), int(high * steps)))
    exactly = Fraction(value, steps)
    sign = ("<=" if strict else "<") if below else (">=" if strict else ">")
    if bound in (float("inf"), float("-inf")):
        expected = OPERATORS[sign](0, bound)
    else:
        expected = OPERATORS[sign](exactly, Fraction(Decimal(repr(bound))))
    assert evaluated(beyond("c", field, bound, below=below, strict=strict), exactly) == expected


def evaluated(sql: str | None, value: Fraction) -> bool:
    if sql is None or sql == "TRUE":
        return sql is not None
    column, sign, number = sql.split()
    assert column == "c"
    return bool(OPERATORS[sign](value, Fraction(number.rstrip("BDLYS"))))


@pytest.mark.parametrize(
    ("value", "field", "written"),
    [
        (5, Field("c", "c", Kind.TINYINT), "5Y"),
        (-(2**63), Field("c", "c", Kind.BIGINT), "-9223372036854775808L"),
        (1, Field("c", "c", Kind.DECIMAL, precision=10, scale=2), "1.00BD"),
        (1e-7, Field("c", "c", Kind.DOUBLE), "1E-07D"),
        (True, Field("c", "c", Kind.BOOLEAN), "TRUE"),
        ("a'\\\n\u200b\U000e0001é", Field("c", "c", Kind.STRING), "'a\\'\\\\\\u000A\\u200B\\U000E0001é'"),
        ("2020-02-29", Field("c", "c", Kind.DATE), "DATE '2020-02-29'"),
    ],
)
def test_literals(value: Any, field: Field, written: str) -> None:
    assert literal(fitted(value, field), field) == written


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (128, Field("c", "c", Kind.TINYINT)),
        (1.5, Field("c", "c", Kind.INT)),
        (True, Field("c", "c", Kind.INT)),
        ("1", Field("c", "c", Kind.INT)),
        (10**10, Field("c", "c", Kind.DECIMAL, precision=10, scale=2)),
        (float("nan"), Field("c", "c", Kind.DECIMAL, precision=10, scale=2)),
        (1e39, Field("c", "c", Kind.FLOAT)),
        (10**400, Field("c", "c", Kind.DOUBLE)),
        ("\ud800", Field("c", "c", Kind.STRING)),
        (1, Field("c", "c", Kind.BOOLEAN)),
        ("20200101", Field("c", "c", Kind.DATE)),
        ("2020-W01", Field("c", "c", Kind.DATE)),
        ([1], Field("c", "c", Kind.ARRAY, item=Field("item", "c[]", Kind.INT))),
    ],
)
def test_unfit_values(value: Any, field: Field) -> None:
    with pytest.raises(UnfitError):
        fitted(value, field)


@pytest.mark.parametrize(
    "text", ["2020-01-01", "2020-01-01T00:00:00", "2020-13-01T00:00:00Z", "0001-01-01T00:00:00+14:00"]
)
def test_an_instant_needs_an_offset_and_a_year(text: str) -> None:
    with pytest.raises(UnfitError):
        instant(text)


@given(st.text())
def test_a_string_literal_cannot_be_left(text: str) -> None:
    written = string_literal(text)
    inner = written[1:-1]
    assert "\x00" not in written
    assert written[0] == written[-1] == "'"
    position = 0
    while position < len(inner):
        assert inner[position] != "'"
        position += 2 if inner[position] == "\\" else 1
    assert position == len(inner)


@pytest.mark.parametrize(
    "pattern", ["(", "a)", "[a", "*a", "a{2,1}", "\\", "(?<n>a", "(?P<n>a)", "(?#c)", "(?(1)a)", "\\Qa\\E("]
)
def test_patterns_that_java_refuses(pattern: str) -> None:
    with pytest.raises(PatternError):
        check_regex(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a",
        "^\\p{L}+$",
        "(?<n>a)\\k<n>",
        "\\Q(\\E",
        "[a-z&&[^b]]",
        "(?i)a",
        "(?iu:a)",
        "a++",
        "\\h\\R\\z",
        "(?>a|b)",
        "[[:alpha:]]",
        "\\x{1F600}",
    ],
)
def test_patterns_that_java_takes(pattern: str) -> None:
    check_regex(pattern)


def test_only_certain_matches_are_answered() -> None:
    assert certain_match("^[A-Z]{3}$", "EUR") is True
    assert certain_match("^[A-Z]{3}$", "eur") is False
    assert certain_match("\\p{Lu}", "A") is None
    assert certain_match("a", "é") is None
    assert certain_match("a$", "a\n") is None


@pytest.mark.parametrize(
    ("pattern", "escape"), [("a\\", "\\"), ("a\\b", "\\"), ("a!", "!"), ("a", ""), ("a", "%"), ("a", "ab")]
)
def test_like_patterns_that_spark_refuses(pattern: str, escape: str) -> None:
    with pytest.raises(PatternError):
        check_like(pattern, escape)
