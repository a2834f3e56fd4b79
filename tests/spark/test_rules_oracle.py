"""Great Expectations is the oracle: the same suite, the same rows, the same verdict on each of them."""

from __future__ import annotations

import datetime as dt
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession, functions

from lazaretto.contracts import Contract, Field, read_contract
from lazaretto.rules import RuleSet, read_rules, verify_rules

ROWS = 300


def values(pool: list[Any], wide: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A null, one of the values that the rules are about, or anything."""
    return st.sampled_from([0, 1, 1, 1, 2]).flatmap(lambda kind: [st.none(), st.sampled_from(pool), wide][kind])


def whole(bits: int) -> st.SearchStrategy[int]:
    half = 2 ** (bits - 1)
    return values([-half, -1, 0, 0, 1, 1, 99, 100, 101, half - 1], st.integers(-half, half - 1))


def scaled(number: int, scale: int) -> Decimal:
    return Decimal(f"{number}E-{scale}")


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    top = 10**precision - 1
    pool = [scaled(n, 2) for n in (0, 1, -1, 100, 149, 150, 151)] + [scaled(-top, scale)]
    return values(pool, st.integers(-top, top).map(lambda n: scaled(n, scale)))


def floats(width: int) -> st.SearchStrategy[float]:
    pool = [0.0, -0.0, 0.1, -0.1, 0.2, 0.5, 1.0, -1.5, float("nan"), float("inf"), float("-inf"), 1e-30]
    return values(pool, st.floats(width=width).map(lambda n: n))  # type: ignore[arg-type]


TEXTS = ["", "a", "b", "ab", "abb", " ", "a b", "it's", "back\\slash", "é", "\U0001f600", "new\nline", "100%", "日本語"]
text = values(TEXTS, st.text(st.characters(exclude_categories=["Cs"]), max_size=4))
dates = values(
    [dt.date(2020, 1, 1), dt.date(2020, 2, 29), dt.date(2020, 12, 31), dt.date(1970, 1, 1), dt.date(2019, 12, 31)],
    st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
)
instants = values(
    [
        dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2019, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
        dt.datetime(2020, 6, 30, 21, 59, 59, 999999, tzinfo=dt.UTC),
        dt.datetime(2020, 6, 30, 22, 0, 0, tzinfo=dt.UTC),
    ],
    st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC)),
)
RECORDS = st.fixed_dictionaries(
    {
        "s": text,
        "t": text,
        "b": values([True, False], st.booleans()),
        "tiny": whole(8),
        "i": whole(32),
        "j": whole(32),
        "k": whole(32),
        "l": whole(64),
        "d": decimals(10, 2),
        "e": decimals(12, 4),
        "wide": decimals(38, 10),
        "f": floats(32),
        "x": floats(64),
        "y": floats(64),
        "day": dates,
        "due": dates,
        "ts": instants,
        "nest": values(
            [{}],
            st.fixed_dictionaries(
                {"s": text, "i": whole(32), "odd name": text, "deep": st.none() | st.just({"x": 0.5})}
            ),
        ),
        "tags": values([[], ["a"], ["b", None], ["a", "b"]], st.lists(text, max_size=3)),
    }
)


def generated() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    @settings(
        max_examples=ROWS, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(RECORDS)
    def collect(record: dict[str, Any]) -> None:
        found.append(record)

    collect()
    return found


def shaped(value: Any, field: Field) -> Any:
    if value is None or not field.children:
        return value
    return tuple(shaped(value.get(child.name), child) for child in field.children)


def frame(spark: SparkSession, contract: Contract, records: list[dict[str, Any]]) -> DataFrame:
    rows = [
        tuple(shaped({**record, "rid": number}.get(f.name), f) for f in contract.fields)
        for number, record in enumerate(records)
    ]
    data = spark.createDataFrame(rows, contract.ddl).coalesce(1).cache()
    data.count()
    return data


def ours(rules: RuleSet, data: DataFrame) -> dict[str, set[int]]:
    """The failing rows of each rule, having proved that no verdict is NULL."""
    record = data.select(functions.struct("*").alias("record"))
    named = {f"r{n}": rule for n, rule in enumerate(rules.rows)}
    verdicts = record.select("record.rid", *(rule.failed("record").alias(name) for name, rule in named.items()))
    failing: dict[str, set[int]] = {rule.rule_id: set() for rule in rules.rows}
    for row in verdicts.collect():
        for name, rule in named.items():
            assert isinstance(row[name], bool), f"{rule.rule_id} is {row[name]} on row {row.rid}"
            if row[name]:
                failing[rule.rule_id].add(row.rid)
    return failing


def theirs(entries: list[dict[str, Any]], data: DataFrame) -> dict[str, set[int] | str]:
    """The failing rows of each expectation as Great Expectations reports them; a text where it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import great_expectations as gx
        from great_expectations.core.expectation_suite import ExpectationSuite
        from great_expectations.data_context.types.base import ProgressBarsConfig

        context = gx.get_context(mode="ephemeral")
        context.enable_analytics(False)
        context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
        source = context.data_sources.add_spark("oracle", persist=False)
        whole_frame = source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("whole")
        suite = ExpectationSuite(
            name="oracle", expectations=[{k: e[k] for k in ("type", "kwargs", "meta")} for e in entries]
        )
        result = whole_frame.get_batch(batch_parameters={"dataframe": data}).validate(
            suite, result_format={"result_format": "COMPLETE", "unexpected_index_column_names": ["rid"]}
        )
    failing: dict[str, set[int] | str] = {}
    for one in result.results:
        assert one.expectation_config is not None
        rule_id = one.expectation_config.meta["rule_id"]
        if not one.result:
            failing[rule_id] = str(one.exception_info)
        elif "details" in one.result:
            rows = one.result["details"]["unexpected_rows"]
            # It hands over 200 rows at most; a rule that finds more would not be compared.
            assert len(rows) == one.result["observed_value"], rule_id
            failing[rule_id] = {row["rid"] for row in rows}
        else:
            failing[rule_id] = {row["rid"] for row in one.result.get("unexpected_index_list") or []}
    return failing


def their_conditions(entries: list[dict[str, Any]], data: DataFrame) -> dict[str, set[int]]:
    """The same at a tenth of the time: Great Expectations' own condition of each map expectation, all in one query."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
        from great_expectations.expectations import registry
        from great_expectations.validator.metric_configuration import MetricConfiguration
        from great_expectations.validator.metrics_calculator import MetricsCalculator

        engine = SparkDFExecutionEngine(persist=False)
        engine.load_batch_data("rows", data)
        calculator = MetricsCalculator(execution_engine=engine, show_progress_bars=False)
        metrics = {}
        for entry in entries:
            expectation = registry.get_expectation_impl(entry["type"])(**entry["kwargs"])
            name = f"{expectation.map_metric}.condition"
            kwargs = registry.get_metric_kwargs(name, configuration=expectation.configuration)
            metrics[entry["meta"]["rule_id"]] = MetricConfiguration(
                name, kwargs["metric_domain_kwargs"], kwargs["metric_value_kwargs"]
            )
        resolved, aborted = calculator.compute_metrics(list(metrics.values()))
        assert not aborted
        columns: dict[str, Column] = {}
        filtered: dict[str, DataFrame] = {}
        for rule_id, metric in metrics.items():
            condition, domain, accessor = resolved[metric.id]
            # Both parts of the domain: `ignore_row_if` is looked at only where the columns are named beside it.
            rows = engine.get_domain_records({**domain, **accessor})
            if rows is data:
                columns[rule_id] = condition
            else:
                filtered[rule_id] = rows.filter(condition).select("rid")
    failing: dict[str, set[int]] = {rule_id: {row.rid for row in rows.collect()} for rule_id, rows in filtered.items()}
    failing |= {rule_id: set() for rule_id in columns}
    for row in data.select("rid", *(c.alias(f"c{n}") for n, c in enumerate(columns.values()))).collect():
        for n, rule_id in enumerate(columns):
            if row[f"c{n}"]:
                failing[rule_id].add(row.rid)
    return failing


@pytest.fixture(scope="module")
def golden(repo_root: Path) -> Path:
    return repo_root / "tests" / "golden"


@pytest.fixture(scope="module")
def contract(golden: Path) -> Contract:
    return read_contract(golden / "rules_every.odcs.yaml")


@pytest.fixture(scope="module")
def data(spark: SparkSession, contract: Contract) -> DataFrame:
    return frame(spark, contract, generated())


# Reported by Great Expectations in full, to prove that its conditions and its reports are the same.
REPORTED = {"between-13", "equal-2", "sum-2", "where-4"}


def test_verdicts_equal_great_expectations(
    spark: SparkSession, golden: Path, contract: Contract, data: DataFrame
) -> None:
    path = golden / "rules_every.yml"
    rules = read_rules(path, contract)
    verify_rules(spark, rules, contract)
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))["expectations"]
    queries = [e for e in entries if e["type"] == "unexpected_rows_expectation"]
    expected: dict[str, set[int] | str] = dict(their_conditions([e for e in entries if e not in queries], data))
    reported = theirs([*queries, *(e for e in entries if e["meta"]["rule_id"] in REPORTED)], data)
    assert {k: reported[k] for k in REPORTED} == {k: expected[k] for k in REPORTED}
    expected |= reported
    found = ours(rules, data)
    assert found.keys() == expected.keys()
    assert {k: found[k] ^ v for k, v in expected.items() if found[k] != v and isinstance(v, set)} == {}
    assert {k: v for k, v in expected.items() if isinstance(v, str)} == {}
    # A rule that never fails, or always does, compares nothing.
    flat = {k for k, v in found.items() if not 0 < len(v) < ROWS}
    assert flat == {"between-5", "regex-3"}


def test_deviations_are_those_of_the_page(spark: SparkSession, golden: Path, contract: Contract) -> None:
    path = golden / "rules_deviations.yml"
    rules = read_rules(path, contract)
    verify_rules(spark, rules, contract)
    top = scaled(10**38 - 1, 10)
    rows: list[dict[str, Any]] = [
        {"s": "a", "l": 2**53 + 1, "i": 0, "j": 1, "wide": top, "d": Decimal("99999999.99"), "nest": {"i": 1}},
        {"s": "b", "l": 2**53, "i": 2**31 - 1, "j": 1, "wide": Decimal(2**53) + Decimal("0.5"), "d": Decimal(1)},
        {"s": "x", "l": 0, "i": 1, "j": 1, "wide": Decimal(0), "d": Decimal(1)},
    ]
    data = frame(spark, contract, rows)
    found = ours(rules, data)
    expected = theirs(yaml.safe_load(path.read_text(encoding="utf-8"))["expectations"], data)
    raised = {k for k, v in expected.items() if isinstance(v, str)}
    assert {k: (sorted(found[k]), "raised" if k in raised else sorted(expected[k])) for k in found} == {
        "null-in-set": ([1, 2], []),
        "null-not-in-set": ([0], [0]),
        "whole-beyond-double": ([0], []),
        "decimal-beyond-double": ([0, 1], [0]),
        "sum-beyond-double": ([0, 1, 2], [1, 2]),
        "sum-overflow": ([0, 1], [0, 1]),
        "nested-list": ([1], [0, 1, 2]),
        "joined-flags": ([1, 2], [2]),
        "like": ([1, 2], "raised"),
        "overflow": ([0, 2], "raised"),
    }
