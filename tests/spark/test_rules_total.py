"""Whatever a record holds, a rule says TRUE or FALSE: it is never NULL and never throws, though Spark is ANSI."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from lazaretto.contracts import Contract, Field, Kind, read_contract
from lazaretto.errors import RuleError
from lazaretto.rules import RuleSet, read_rules, verify_rules
from lazaretto.rules.functions import FUNCTIONS
from lazaretto.rules.sql import _column, _Dialect, guard
from lazaretto.rules.sql_nodes import Writer
from lazaretto.rules.sql_types import RefusedError, SqlType

EXTREMES: dict[Kind, list[Any]] = {
    Kind.STRING: [None, "", "abc", "\U0001f600\n'\\", "9" * 50, "NaN", "2020-02-30", "a" * 3000],
    Kind.BOOLEAN: [None, True, False],
    Kind.FLOAT: [None, 0.0, -0.0, float("nan"), float("inf"), float("-inf"), 3.4e38, 1e-45],
    Kind.DOUBLE: [None, 0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.7e308, 5e-324],
    Kind.DATE: [None, dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1), dt.date(2020, 2, 29)],
    Kind.TIMESTAMP: [
        None,
        dt.datetime(1, 1, 2, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 30, tzinfo=dt.UTC),
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    ],
}
BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}


def extremes(field: Field) -> list[Any]:
    if field.kind in BITS:
        half = 2 ** (BITS[field.kind] - 1)
        return [None, -half, half - 1, 0, -1]
    if field.kind is Kind.DECIMAL:
        top = "9" * field.precision + f"E-{field.scale}"
        return [None, Decimal(top), Decimal("-" + top), Decimal(0), Decimal(f"1E-{field.scale}")]
    if field.kind is Kind.STRUCT:
        return [None, *(tuple(extremes(c)[n % len(extremes(c))] for c in field.children) for n in range(4))]
    if field.kind is Kind.ARRAY:
        return [None, [], [None], ["abc", None]]
    return EXTREMES[field.kind]


@pytest.fixture(scope="module")
def golden(repo_root: Path) -> Path:
    return repo_root / "tests" / "golden"


@pytest.fixture(scope="module")
def contract(golden: Path) -> Contract:
    return read_contract(golden / "rules_every.odcs.yaml")


@pytest.fixture(scope="module")
def records(spark: SparkSession, contract: Contract) -> DataFrame:
    """One struct column `record`; the extremes of the columns meet each other in many ways."""
    columns = [extremes(field) for field in contract.fields]
    rows = [
        tuple(
            column[(number * (1 + place % 5) + place * (number // 8)) % len(column)]
            for place, column in enumerate(columns)
        )
        for number in range(64)
    ]
    flat = spark.createDataFrame([(n, *row[1:]) for n, row in enumerate(rows)], contract.ddl)
    data = flat.coalesce(1).select(functions.struct("*").alias("record")).cache()
    data.count()
    return data


@pytest.mark.parametrize("name", ["every", "own"])
def test_every_expectation_is_total(records: DataFrame, golden: Path, contract: Contract, name: str) -> None:
    rules = read_rules(golden / f"rules_{name}.yml", contract)
    verdicts = records.select(*(rule.failed("record").alias(f"r{n}") for n, rule in enumerate(rules.rows))).collect()
    for rule, column in zip(rules.rows, zip(*verdicts, strict=True), strict=True):
        assert set(column) <= {True, False}, rule.rule_id


SAMPLES = {
    "s": ["s"], "n": ["tiny", "l", "d", "wide", "f"], "f": ["f", "x"], "d": ["day"], "t": ["ts"],
    "m": ["day", "ts"], "b": ["b"], "a": ["tags"], "v": ["s", "i", "wide"], "i": ["2"], "r": ["'a'"],
}  # fmt: skip


def expressions() -> list[str]:
    """Each function on each family of column, each operator on each pair of numbers, each cast."""
    found = []
    for name, function in FUNCTIONS.items():
        if name == "array_contains":
            found.append("array_contains(tags, 'abc')")
            continue
        letters = function.takes + function.more * 2
        for chosen in product(*(SAMPLES[letter] for letter in letters)):
            found.append(f"{name}({', '.join(chosen)})")
    numbers = ["tiny", "l", "d", "wide", "f", "x", "-1", "1.5", "1e308"]
    for left, right in product(numbers, numbers):
        found += [f"{left} {sign} {right}" for sign in ("+", "-", "*", "/", "%", "<", "=")]
    kinds = [
        "STRING",
        "TINYINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL(10,2)",
        "DECIMAL(38,38)",
        "DATE",
        "TIMESTAMP",
        "BOOLEAN",
    ]
    for column, kind in product(["s", "b", "l", "wide", "f", "x", "day", "ts"], kinds):
        found.append(f"CAST({column} AS {kind})")
    found += [f"-{column}" for column in ("tiny", "i", "l", "d", "wide", "f", "x")]
    found += ["CASE WHEN b THEN i ELSE l END", "s || s", "day BETWEEN '0001-01-01' AND '9999-12-31'", "s LIKE '%\\\\%'"]
    return found


def test_nothing_that_the_guard_lets_through_throws(records: DataFrame, contract: Contract) -> None:
    allowed = []
    for text in expressions():
        try:
            allowed.append(guard(f"({text}) IS NULL", contract).sql.replace("\x00", "record."))
        except RefusedError:
            continue  # families that do not go together
    assert len(allowed) > 700
    for start in range(0, len(allowed), 300):
        chunk = allowed[start : start + 300]
        verdicts = records.select(*(functions.expr(sql).alias(f"e{n}") for n, sql in enumerate(chunk)))
        assert len(verdicts.collect()) == 64


def test_the_types_are_sparks(records: DataFrame, contract: Contract) -> None:
    """The guard's own idea of a type decides which casts are safe, so it has to be Spark's."""
    writer = Writer(lambda parts: _column(parts, contract))
    known: list[tuple[str, SqlType]] = []
    for text in expressions():
        try:
            piece = writer.write(_Dialect().parse(text)[0])  # type: ignore[arg-type]
        except RefusedError:
            continue
        known.append((piece.sql.replace("\x00", "record."), piece.type))
    types = records.select(*(functions.expr(sql).alias(f"e{n}") for n, (sql, _) in enumerate(known))).schema.fields
    wrong = {
        sql: (found.name, actual.dataType.simpleString().upper())
        for (sql, found), actual in zip(known, types, strict=True)
        if found.name != actual.dataType.simpleString().upper().replace("LONG", "BIGINT")
    }
    assert wrong == {}


def test_verifying_starts_no_job(spark: SparkSession, golden: Path, contract: Contract) -> None:
    context = spark.sparkContext
    context.setJobGroup("verify-rules", "nothing runs")
    try:
        for name in ("every", "own"):
            verify_rules(spark, read_rules(golden / f"rules_{name}.yml", contract), contract)
        assert list(context.statusTracker().getJobIdsForGroup("verify-rules")) == []
    finally:
        context.setLocalProperty("spark.jobGroup.id", "")
    verify_rules(spark, read_rules(None, contract), contract)


def one(tmp_path: Path, contract: Contract, kwargs: str, meta: str = "{rule_id: R1}", regex: str = "regex") -> RuleSet:
    path = tmp_path / "suite.yml"
    path.write_text(
        "name: one\nexpectations:\n"
        "  - {type: expect_column_values_to_not_be_null, kwargs: {column: s}, meta: {rule_id: R0}}\n"
        f"  - {{type: expect_column_values_to_match_{regex}, kwargs: {kwargs}, meta: {meta}}}\n",
        encoding="utf-8",
    )
    return read_rules(path, contract)


@pytest.mark.parametrize("pattern", ["\\p{Nope}", "(?<a>b)(?<a>c)", "[a&&[b"])
def test_a_pattern_that_only_java_refuses(
    spark: SparkSession, contract: Contract, tmp_path: Path, pattern: str
) -> None:
    rules = one(tmp_path, contract, f"{{column: s, regex: '{pattern}'}}")
    with pytest.raises(RuleError, match=r"suite\.yml:4: rule R1: Spark refuses it"):
        verify_rules(spark, rules, contract)


def test_a_degrade_value_is_tried_by_spark(spark: SparkSession, contract: Contract, tmp_path: Path) -> None:
    kwargs = "{column: s, regex: '^\\p{Lu}+$'}"
    good = one(tmp_path, contract, kwargs, "{rule_id: R1, degrade: {value: É}}")
    verify_rules(spark, good, contract)
    bad = one(tmp_path, contract, kwargs, "{rule_id: R1, degrade: {value: é}}")
    with pytest.raises(RuleError, match=r"suite\.yml:4: rule R1: the degrade value does not satisfy the rule"):
        verify_rules(spark, bad, contract)


def test_texts_are_read_as_they_are_written(spark: SparkSession, golden: Path, contract: Contract) -> None:
    rules = read_rules(golden / "rules_own.yml", contract)
    spark.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    try:
        with pytest.raises(RuleError, match="escapedStringLiterals"):
            verify_rules(spark, rules, contract)
    finally:
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")


def test_literals_reach_spark_unchanged(spark: SparkSession, contract: Contract) -> None:
    from lazaretto.rules.values import string_literal

    texts = [
        "",
        "a'b",
        "\\",
        "\\'",
        "\\u0041",
        "\\%",
        "%_",
        "\n\t\r\0",
        '"',
        "`x`",
        "\u2028",
        "\U0001f600",
        "--",
        "/*",
        "${x}",
        "{x}",
    ]
    row = spark.range(1).select(*(functions.expr(string_literal(t)).alias(f"t{n}") for n, t in enumerate(texts))).head()
    assert row is not None
    assert list(row) == texts
