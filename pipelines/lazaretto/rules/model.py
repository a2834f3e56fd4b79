"""Rules as plain values: what a suite says, compiled against a contract."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pyspark.sql import Column
from pyspark.sql.functions import expr

from lazaretto.contracts import quoted

PREFIX_MARK = "\x00"
"""Stands before each column in a rule's SQL, where the name of the struct column will go. No literal can hold it."""


class Severity(StrEnum):
    """What a failed rule means to whoever acts on it; Great Expectations' own three levels."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Degrade:
    """What the field becomes, with a flag, when its rule fails: a Python value of the contract's type, or None."""

    value: Any


@dataclass(frozen=True)
class RowRule:
    """A row-level expectation, compiled to one native expression.

    Attributes:
        rule_id: unique in its suite; the code of the violation.
        expectation: the Great Expectations name.
        columns: every dotted contract path the rule reads, those of its row condition too.
        field: the path a violation is attributed to; None when there are several.
        degrade: set when a failure repairs the field instead of holding the record.
        detail: short text for the violation, made of the rule's own arguments, never of a record's value.
        failing: Spark SQL, TRUE where the expectation itself is violated, else FALSE; columns follow `PREFIX_MARK`.
        condition: Spark SQL of the row condition, two-valued; None when the rule holds for every row.
        regexes: the Java patterns used, so that they can be compiled before any data moves.
        where: `file:line` of the rule in its suite.
    """

    rule_id: str
    expectation: str
    severity: Severity
    columns: tuple[str, ...]
    field: str | None
    degrade: Degrade | None
    detail: str
    failing: str
    condition: str | None = None
    regexes: tuple[str, ...] = ()
    where: str = dataclasses.field(default="", compare=False)

    def sql(self, prefix: str) -> str:
        """The rule as Spark SQL, over the struct column `prefix`."""
        text = self.failing if self.condition is None else f"({self.condition}) AND ({self.failing})"
        return text.replace(PREFIX_MARK, f"{quoted(prefix)}.")

    def failed(self, prefix: str) -> Column:
        """TRUE where the record violates the rule, else FALSE; never NULL, and evaluating it never throws.

        Args:
            prefix: name of the struct column that holds the contract's fields, such as `record`.
        """
        return expr(self.sql(prefix))


@dataclass(frozen=True)
class BatchRule:
    """An expectation about a batch as a whole; Great Expectations runs it on the staged rows."""

    rule_id: str
    expectation: str
    kwargs: Mapping[str, Any]
    severity: Severity
    detail: str


@dataclass(frozen=True)
class BatchFinding:
    """What Great Expectations said about one batch rule.

    `error` is the type of the exception when the expectation could not be evaluated; such a rule has not passed.
    """

    rule_id: str
    severity: Severity
    passed: bool
    detail: str
    error: str | None = None


@dataclass(frozen=True)
class RuleSet:
    """A suite, compiled.

    `fingerprint` changes when anything changes that can change a verdict, and stays when only order, layout or
    comments do: the first 16 hex digits of a SHA-256.
    """

    name: str
    rows: tuple[RowRule, ...]
    batch: tuple[BatchRule, ...]
    fingerprint: str
