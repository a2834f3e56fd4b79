"""Batch expectations, run by Great Expectations itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from lazaretto.contracts import Contract, read_contract
from lazaretto.rules import BatchFinding, Severity, read_rules, run_batch_rules
from lazaretto.rules.compile_columns import ROW_EXPECTATIONS
from lazaretto.rules.gate import batch_expectations

SUITE = """
name: gate
expectations:
  - {type: expect_table_row_count_to_be_between, kwargs: {min_value: 5}, meta: {rule_id: count}}
  - {type: expect_column_values_to_be_unique, kwargs: {column: rid}, meta: {rule_id: unique}, severity: warning}
  - {type: expect_column_values_to_not_be_null, kwargs: {column: nest.s, mostly: 0.5}, meta: {rule_id: mostly}}
  - type: expect_column_values_to_be_in_set
    kwargs: {column: s, value_set: [secret], mostly: 0.9}
    meta: {rule_id: set}
  - type: expect_column_mean_to_be_between
    kwargs: {column: i, max_value: 2, row_condition: "s = 'secret' and i / 0 is null", condition_parser: spark}
    meta: {rule_id: mean}
    severity: info
  - {type: expect_column_max_to_be_between, kwargs: {column: s, max_value: 3}, meta: {rule_id: raises}}
  - {type: expect_column_to_exist, kwargs: {column: nothing}, meta: {rule_id: exists}}
  - {type: expect_column_values_to_be_null, kwargs: {column: x}, meta: {rule_id: a-row-rule}}
"""


@pytest.fixture(scope="module")
def contract(repo_root: Path) -> Contract:
    return read_contract(repo_root / "tests" / "golden" / "rules_every.odcs.yaml")


@pytest.fixture(scope="module")
def valid(spark: SparkSession, contract: Contract) -> DataFrame:
    rows = [(1, "secret", 1), (2, "secret", 2), (2, "other", 9)]
    named = [{"rid": rid, "s": s, "i": i, "nest": {"s": s}} for rid, s, i in rows]
    # A contract that keeps unknown fields brings a VARIANT column along.
    return spark.createDataFrame(named, contract.ddl).selectExpr("*", "parse_json('{}') AS _unknown")


def test_findings(valid: DataFrame, contract: Contract, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gate.yml"
    path.write_text(SUITE, encoding="utf-8")
    rules = read_rules(path, contract)
    assert [r.rule_id for r in rules.rows] == ["a-row-rule"]
    findings = run_batch_rules(rules, valid)
    assert findings == [
        BatchFinding("count", Severity.CRITICAL, False, "min_value=5"),
        BatchFinding("unique", Severity.WARNING, False, "2 of 3 unexpected; column=rid"),
        BatchFinding("mostly", Severity.CRITICAL, True, "0 of 3 unexpected; column=nest.s, mostly=0.5"),
        BatchFinding("set", Severity.CRITICAL, False, "1 of 3 unexpected; column=s, mostly=0.9, value_set=['secret']"),
        BatchFinding("mean", Severity.INFO, True, "column=i, max_value=2"),
        BatchFinding("raises", Severity.CRITICAL, False, "column=s, max_value=3", "TypeError"),
        BatchFinding("exists", Severity.CRITICAL, False, "column=nothing"),
    ]
    out, err = capfd.readouterr()
    assert "Calculating Metrics" not in out + err
    assert not any("other" in finding.detail for finding in findings)


def test_without_batch_rules_great_expectations_is_not_imported(repo_root: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from lazaretto.contracts import read_contract;"
        "from lazaretto.rules import read_rules, run_batch_rules;"
        f"golden = Path({str(repo_root / 'tests' / 'golden')!r});"
        "rules = read_rules(golden / 'rules_own.yml', read_contract(golden / 'rules_every.odcs.yaml'));"
        "assert run_batch_rules(rules, None) == [] and rules.rows;"
        "assert 'great_expectations' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=repo_root, timeout=120)


def test_our_kwargs_are_those_of_great_expectations() -> None:
    """A release that adds a kwarg to an expectation changes what it means: then this page of ours has to follow."""
    theirs = batch_expectations()
    for name, expectation in ROW_EXPECTATIONS.items():
        assert expectation.kwargs == theirs[name], name
