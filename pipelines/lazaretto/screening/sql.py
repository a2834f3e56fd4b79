"""Small pieces of Spark SQL text.

Screening is written as SQL text and given to Spark in one piece per column: built call by call, the expressions of a
contract with eleven fields take 17,000 round trips to the JVM, for every batch. Only texts that come from here, from a
checked contract or a compiled rule are ever put together; names are quoted, literals are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

VIOLATION = "STRUCT<code: STRING, field: STRING, detail: STRING>"
VIOLATIONS = f"ARRAY<{VIOLATION}>"
NONE_FOUND = f"CAST(array() AS {VIOLATIONS})"
"""An empty violations array."""


def text(value: str | None) -> str:
    """A string literal, or a NULL of type STRING."""
    if value is None:
        return "CAST(NULL AS STRING)"
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    # Spark replaces ${name} by a setting or an environment variable even inside a literal
    return "'" + escaped.replace("${", "$\\u007B") + "'"


def texts(values: Iterable[str]) -> str:
    """An array of string literals."""
    return f"CAST(array({', '.join(text(v) for v in values)}) AS ARRAY<STRING>)"


def matches(expression: str, pattern: str) -> str:
    """Whether a Java pattern is found in a text."""
    return f"({expression} RLIKE {text(pattern)})"


def case(*branches: tuple[str, str], otherwise: str = "NULL") -> str:
    """`CASE WHEN ... THEN ... ELSE ... END`."""
    return "CASE " + " ".join(f"WHEN {c} THEN {v}" for c, v in branches) + f" ELSE {otherwise} END"


def violation(code: str, field: str | None, detail: str | None = None) -> str:
    """One violation of fixed texts."""
    return violation_of(code, text(field), text(detail))


def violation_of(code: str, field: str, detail: str) -> str:
    """One violation whose field and detail are expressions."""
    return f"named_struct('code', {text(code)}, 'field', {field}, 'detail', {detail})"


def only(one: str) -> str:
    """An array of one violation."""
    return f"CAST(array({one}) AS {VIOLATIONS})"


def found(ones: Sequence[str]) -> str:
    """An array of those violations that are not NULL."""
    return f"CAST(array_compact(array({', '.join(ones)})) AS {VIOLATIONS})" if ones else NONE_FOUND
