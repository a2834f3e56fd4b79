"""Ask Spark itself, before any data moves: does every rule analyse, compile and behave."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.types import BooleanType

from lazaretto.contracts import Contract, quoted
from lazaretto.errors import RuleError
from lazaretto.rules.model import PREFIX_MARK, RowRule, RuleSet
from lazaretto.rules.values import literal, string_literal

_PREFIX = "record"


def verify_rules(spark: SparkSession, rules: RuleSet, contract: Contract) -> None:
    """Analyse every rule against the contract's empty struct, compile each pattern, try each degrade value.

    Reads no data and starts no job: the rows it evaluates are literals, which the optimizer folds.

    Raises:
        RuleError: names the first rule that fails, and Spark's error condition.
    """
    if spark.conf.get("spark.sql.parser.escapedStringLiterals", "false") != "false":
        raise RuleError(
            "spark.sql.parser.escapedStringLiterals is on: texts in rules would be read otherwise",
            where=rules.name, remedy="switch it off",
        )  # fmt: skip
    empty = _empty_record(spark, contract)
    _for_each(rules, lambda chosen: _analyse(empty, chosen))
    _for_each(rules, lambda chosen: _compile_patterns(spark, chosen))
    _for_each(rules, lambda chosen: _try_degrades(spark, chosen, contract))


def _empty_record(spark: SparkSession, contract: Contract) -> DataFrame:
    fields = ", ".join(f"{quoted(f.name)}: {f.ddl}" for f in contract.fields)
    return spark.sql(f"SELECT CAST(NULL AS STRUCT<{fields}>) AS {quoted(_PREFIX)}")


def _for_each(rules: RuleSet, check: Callable[[list[RowRule]], object]) -> None:
    """All rules in one call to Spark; where it fails, one by one, to name the rule."""
    everything = list(rules.rows)
    if not everything:
        return
    try:
        check(everything)
        return
    except PySparkException:
        pass
    for rule in everything:
        try:
            check([rule])
        except PySparkException as exc:
            condition = exc.getCondition() or type(exc).__name__
            raise RuleError(
                f"rule {rule.rule_id}: Spark refuses it ({condition})",
                where=rule.where or rules.name,
                remedy="mend this rule",
            ) from exc
    raise RuleError("Spark refuses the rules together, not one by one", where=rules.name, remedy="report this")


def _analyse(empty: DataFrame, rules: list[RowRule]) -> None:
    analysed = empty.select(*(rule.failed(_PREFIX).alias(f"r{i}") for i, rule in enumerate(rules)))
    for rule, column in zip(rules, analysed.schema.fields, strict=True):
        if not isinstance(column.dataType, BooleanType):
            raise RuleError(f"rule {rule.rule_id}: not a condition", where=rule.where, remedy="mend this rule")


def _compile_patterns(spark: SparkSession, rules: list[RowRule]) -> None:
    patterns = list(dict.fromkeys(pattern for rule in rules for pattern in rule.regexes))
    if patterns:
        _evaluate(spark, [expr(f"'' RLIKE {string_literal(pattern)}") for pattern in patterns])


def _try_degrades(spark: SparkSession, rules: list[RowRule], contract: Contract) -> None:
    tried: list[RowRule] = []
    tests: list[Column] = []
    for rule in rules:
        if rule.degrade is not None and rule.field is not None:
            field = contract.find(rule.field)
            assert field is not None
            column = PREFIX_MARK + ".".join(quoted(part) for part in rule.field.split("."))
            value = f"CAST({literal(rule.degrade.value, field)} AS {field.ddl})"
            tried.append(rule)
            tests.append(expr(rule.failing.replace(column, value)))
    if not tests:
        return
    for rule, failed in zip(tried, _evaluate(spark, tests), strict=True):
        if failed is not False:
            raise RuleError(
                f"rule {rule.rule_id}: the degrade value does not satisfy the rule",
                where=rule.where,
                remedy="mend its value",
            )


def _evaluate(spark: SparkSession, columns: list[Column]) -> tuple[object, ...]:
    # One literal row: the optimizer folds the whole into a local relation, and collecting that starts no job.
    row = spark.sql("SELECT * FROM VALUES (1) AS folded(one)")
    return tuple(row.select(*(column.alias(f"c{i}") for i, column in enumerate(columns))).collect()[0])
