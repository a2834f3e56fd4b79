"""What a suite may say, and the one line that tells the author what is wrong with it and where."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from lazaretto.contracts import Contract, read_contract
from lazaretto.errors import RuleError
from lazaretto.rules import BatchRule, Degrade, RuleSet, Severity, read_rules

Read = Callable[[str], RuleSet]


@pytest.fixture(scope="module")
def contract(repo_root: Path) -> Contract:
    return read_contract(repo_root / "conf" / "contracts" / "orders.odcs.yaml")


@pytest.fixture
def read(tmp_path: Path, contract: Contract) -> Read:
    def reader(text: str) -> RuleSet:
        path = tmp_path / "suite.yml"
        path.write_text(text, encoding="utf-8")
        return read_rules(path, contract)

    return reader


def suite(*entries: str) -> str:
    """One entry per line, from line 3 on."""
    return "\n".join(["name: orders", "expectations:", *(f"  - {entry}" for entry in entries)]) + "\n"


def rule(
    kwargs: str, name: str = "expect_column_values_to_be_between", meta: str = "{rule_id: R1}", more: str = ""
) -> str:
    return f"{{type: {name}, kwargs: {kwargs}, meta: {meta}{more}}}"


BETWEEN = "{column: amount, min_value: 0}"


def test_the_example_suite(repo_root: Path, contract: Contract) -> None:
    rules = read_rules(repo_root / "dq_rules" / "orders.yml", contract)
    assert rules.name == "orders"
    assert [r.rule_id for r in rules.rows] == ["ORD-001", "ORD-002", "ORD-003", "ORD-004", "ORD-005"]
    assert [r.field for r in rules.rows] == ["event_id", "amount", "currency", "quantity", "device.os"]
    assert rules.rows[4].severity is Severity.WARNING
    assert rules.batch == (
        BatchRule(
            "ORD-100", "expect_table_row_count_to_be_between", {"min_value": 1}, Severity.CRITICAL, "min_value=1"
        ),
    )
    assert len(rules.fingerprint) == 16


def test_without_a_file_there_are_no_rules(contract: Contract) -> None:
    rules = read_rules(None, contract)
    assert (rules.rows, rules.batch) == ((), ())
    assert len(rules.fingerprint) == 16


def test_a_rule_reads_its_row_condition_too(read: Read) -> None:
    found = read(suite(rule("{column: amount, min_value: 0, row_condition: \"device.os = 'ios'\"}"))).rows[0]
    assert found.columns == ("amount", "device.os")
    assert found.field == "amount"


def test_several_columns_have_no_field(read: Read) -> None:
    kwargs = "{column_A: amount, column_B: quantity}"
    found = read(suite(rule(kwargs, "expect_column_pair_values_a_to_be_greater_than_b"))).rows[0]
    assert found.columns == ("amount", "quantity")
    assert found.field is None


def test_severity_is_critical_unless_said(read: Read) -> None:
    assert read(suite(rule(BETWEEN))).rows[0].severity is Severity.CRITICAL


@pytest.mark.parametrize("mostly", ["0.99", "0"])
def test_mostly_makes_a_batch_rule(read: Read, mostly: str) -> None:
    rules = read(suite(rule(f"{{column: amount, min_value: 0, mostly: {mostly}}}")))
    assert not rules.rows
    assert rules.batch[0].kwargs["mostly"] == float(mostly)


@pytest.mark.parametrize("mostly", ["1", "1.0"])
def test_mostly_of_one_is_a_row_rule(read: Read, mostly: str) -> None:
    assert len(read(suite(rule(f"{{column: amount, min_value: 0, mostly: {mostly}}}"))).rows) == 1


def test_a_batch_rule_gets_the_guarded_condition(read: Read) -> None:
    kwargs = "{column: amount, min_value: 0, mostly: 0.5, row_condition: 'quantity/0 > 1', condition_parser: spark}"
    assert read(suite(rule(kwargs))).batch[0].kwargs["row_condition"] == {
        "type": "pass_through", "pass_through_filter": "(try_divide(`quantity`, 0) > 1)"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kwargs", "value", "expected"),
    [
        ("{column: amount, min_value: 0}", "1.5", Decimal("1.50")),
        ("{column: quantity, max_value: 5}", "5", 5),
        ("{column: score, min_value: 0.5}", "1", 1.0),
        ("{column: birth_date, min_value: 2000-01-01}", "2000-01-01", dt.date(2000, 1, 1)),
        (
            "{column: event_time, min_value: 2000-01-01T00:00:00Z}",
            "'2000-01-01T02:00:00+02:00'",
            dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
        ),
        ("{column: score, min_value: 0.5}", "null", None),
    ],
)
def test_degrade_values_have_the_type_of_the_contract(read: Read, kwargs: str, value: str, expected: object) -> None:
    found = read(suite(rule(kwargs, meta=f"{{rule_id: R1, degrade: {{value: {value}}}}}"))).rows[0]
    assert found.degrade == Degrade(expected)
    assert found.degrade is not None
    assert type(found.degrade.value) is type(expected)


ERRORS: list[tuple[str, int, str]] = [
    # the file
    ("[", 1, "not a YAML document"),
    ("- a", 1, "not a mapping"),
    ("name: a\nexpectations: {}", 2, "has no list of expectations"),
    ("expectations: []", 1, "has no name"),
    ("name: a\nexpectation: []", 2, "unknown key 'expectation' of a suite; nearest is 'expectations'"),
    ("name: a\nname: b\nexpectations: []", 2, "key 'name' twice"),
    ("name: &a x\nexpectations: [*a]", 2, "YAML aliases are not read"),
    ("name: !!python/object/apply:os.system [id]\nexpectations: []", 1, "not a YAML document of plain values"),
    ("name: a\nexpectations:\n  - x", 3, "not a mapping"),
    ("name: a\n1: b\nexpectations: []", 2, "a key that is not plain text"),
    # identity
    (suite("{type: expect_column_values_to_be_null, kwargs: {column: score}}"), 3, "has no meta.rule_id"),
    (suite("{type: x, rule_id: A}"), 3, "rule_id belongs under meta"),
    (suite(rule(BETWEEN), rule(BETWEEN)), 4, "rule R1: rule_id is taken by line 3"),
    (suite(rule(BETWEEN, meta="{rule_id: -a}")), 3, "rule_id is '-a'"),
    (suite(rule(BETWEEN, meta="{rule_id: 'a b'}")), 3, "rule_id is 'a b'"),
    (suite(rule(BETWEEN, meta="{rule_id: 12}")), 3, "rule_id is 12"),
    (suite(rule(BETWEEN, meta=f"{{rule_id: {'a' * 65}}}")), 3, "rule_id is"),
    (suite(rule(BETWEEN, meta="{rule_id: TYPE_MISMATCH}")), 3, "is a record code"),
    # shape
    (suite(rule(BETWEEN, more=", severity: fatal")), 3, "rule R1: severity is 'fatal'"),
    (suite(rule(BETWEEN, more=", severity: Warning")), 3, "severity is 'Warning'; nearest is 'warning'"),
    (suite(rule(BETWEEN, more=", severity: [critical]")), 3, "severity is ['critical']"),
    (suite(rule(BETWEEN, more=", column: amount")), 3, "unknown key 'column'; it belongs under kwargs"),
    (suite(rule(BETWEEN, more=", serverity: info")), 3, "unknown key 'serverity'; nearest is 'severity'"),
    (suite("{kwargs: {column: amount}, meta: {rule_id: R1}}"), 3, "has no type"),
    (
        suite("{type: expect_column_values_to_be_null, kwargs: [amount], meta: {rule_id: R1}}"),
        3,
        "kwargs is not a mapping",
    ),
    # names
    (
        suite(rule(BETWEEN, "expect_column_values_to_be_betwen")),
        3,
        "unknown expectation 'expect_column_values_to_be_betwen'; nearest is 'expect_column_values_to_be_between'",
    ),
    (suite(rule("{column: amount, minvalue: 0}")), 3, "unknown kwarg 'minvalue'; nearest is 'min_value'"),
    (suite(rule("{column: amuont, min_value: 0}")), 3, "column 'amuont' is not in the contract; nearest is 'amount'"),
    (suite(rule("{column: Amount, min_value: 0}")), 3, "nearest is 'amount'"),
    (
        suite(rule("{column: device.oss, value_set: [a]}", "expect_column_values_to_be_in_set")),
        3,
        "nearest is 'device.os'",
    ),
    (suite(rule("{column: 'tags[]'}", "expect_column_values_to_be_null")), 3, "cannot be named in SQL"),
    (suite(rule("{min_value: 0}")), 3, "needs the kwarg column"),
    (suite(rule("{column: 5, min_value: 0}")), 3, "5 is not a column name"),
    # values against the contract
    (suite(rule("{column: amount}")), 3, "needs min_value or max_value"),
    (suite(rule("{column: amount, min_value: '0'}")), 3, "'0' is not a number, and the column is DECIMAL(10,2)"),
    (suite(rule("{column: amount, min_value: true}")), 3, "True is not a number"),
    (suite(rule("{column: amount, min_value: .nan}")), 3, "NaN is not a bound"),
    (suite(rule("{column: score, min_value: .nan}")), 3, "NaN is not a bound"),
    (suite(rule("{column: amount, min_value: 2, max_value: 1}")), 3, "min_value is greater than max_value"),
    (suite(rule("{column: amount, min_value: 0, strict_min: 1}")), 3, "strict_min is 1, not true or false"),
    (suite(rule("{column: currency, min_value: a}")), 3, "does not work on column 'currency', which is STRING"),
    (suite(rule("{column: birth_date, min_value: 5}")), 3, "5 is not a DATE"),
    (suite(rule("{column: birth_date, min_value: '2023-02-29'}")), 3, "is not a DATE"),
    (suite(rule("{column: event_time, min_value: 2020-01-01}")), 3, "is not a TIMESTAMP with offset"),
    (suite(rule("{column: event_time, min_value: 2020-01-01 00:00:00}")), 3, "is not a TIMESTAMP with offset"),
    (suite(rule("{column: amount, min_value: {$PARAMETER: x}}")), 3, "min_value is a suite parameter"),
    (
        suite(rule("{column: currency, value_set: [NO, SE]}", "expect_column_values_to_be_in_set")),
        3,
        "False is not a STRING, quote it",
    ),
    (suite(rule("{column: currency, value_set: []}", "expect_column_values_to_be_in_set")), 3, "value_set is empty"),
    (suite(rule("{column: currency, value_set: [null]}", "expect_column_values_to_be_in_set")), 3, "holds nulls only"),
    (suite(rule("{column: currency, value_set: EUR}", "expect_column_values_to_be_in_set")), 3, "'EUR', not a list"),
    (
        suite(rule("{column: quantity, value_set: [1.5]}", "expect_column_values_to_be_in_set")),
        3,
        "1.5 does not fit INT without rounding",
    ),
    (
        suite(rule("{column: quantity, value_set: [2147483648]}", "expect_column_values_to_be_in_set")),
        3,
        "does not fit INT",
    ),
    (suite(rule("{column: amount, value_set: [1.005]}", "expect_column_values_to_be_in_set")), 3, "without rounding"),
    (
        suite(rule("{column: tags, value_set: [a]}", "expect_column_values_to_be_in_set")),
        3,
        "does not work on column 'tags'",
    ),
    (
        suite(rule("{column: quantity, regex: a}", "expect_column_values_to_match_regex")),
        3,
        "does not work on column 'quantity'",
    ),
    (
        suite(rule("{column: currency, regex: '(a'}", "expect_column_values_to_match_regex")),
        3,
        "regular expression: missing )",
    ),
    (
        suite(rule("{column: currency, regex: '(?P<a>b)'}", "expect_column_values_to_match_regex")),
        3,
        "patterns are Java's",
    ),
    (suite(rule("{column: currency, regex: 5}", "expect_column_values_to_match_regex")), 3, "regex is 5, not text"),
    (suite(rule("{column: currency}", "expect_column_values_to_match_regex")), 3, "needs the kwarg regex"),
    (
        suite(rule("{column: currency, regex_list: [a], match_on: some}", "expect_column_values_to_match_regex_list")),
        3,
        "match_on is 'some'",
    ),
    (
        suite(rule("{column: currency, like_pattern: 'a\\'}", "expect_column_values_to_match_like_pattern")),
        3,
        "escape character at its end",
    ),
    (
        suite(rule("{column: currency, min_value: -1}", "expect_column_value_lengths_to_be_between")),
        3,
        "not a whole number of at least 0",
    ),
    (suite(rule("{column: currency}", "expect_column_value_lengths_to_equal")), 3, "needs the kwarg value"),
    (
        suite(rule("{column_A: amount, column_B: currency}", "expect_column_pair_values_to_be_equal")),
        3,
        "DECIMAL(10,2) does not go with STRING",
    ),
    (
        suite(rule("{column_A: event_time, column_B: birth_date}", "expect_column_pair_values_to_be_equal")),
        3,
        "TIMESTAMP does not go with DATE",
    ),
    (
        suite(rule("{column_list: [amount]}", "expect_select_column_values_to_be_unique_within_record")),
        3,
        "two or more different columns",
    ),
    (
        suite(rule("{column_list: [amount, quantity], sum_total: 0.001}", "expect_multicolumn_sum_to_equal")),
        3,
        "no sum of these columns is 0.001",
    ),
    (
        suite(rule("{column_list: [amount, currency], sum_total: 1}", "expect_multicolumn_sum_to_equal")),
        3,
        "does not work on column 'currency'",
    ),
    (
        suite(
            rule(
                "{column_list: [amount, quantity], sum_total: 1, ignore_row_if: nevre}",
                "expect_multicolumn_sum_to_equal",
            )
        ),
        3,
        "nearest is 'never'",
    ),
    # conditions and predicates
    (
        suite(rule("{column: amount, min_value: 0, row_condition: 'amuont > 1'}")),
        3,
        "row_condition: column 'amuont' is not in the contract; nearest is 'amount'",
    ),
    (
        suite(rule("{column: amount, min_value: 0, row_condition: 'amount > 1', condition_parser: pandas}")),
        3,
        "condition_parser is 'pandas'",
    ),
    (
        suite(rule("{column: amount, min_value: 0, condition_parser: spark}")),
        3,
        "condition_parser without row_condition",
    ),
    (
        suite(
            rule(
                "{column: amount, min_value: 0, row_condition: 'col(amount) > 1', condition_parser: great_expectations}"
            )
        ),
        3,
        "not of the great_expectations form",
    ),
    (
        suite(rule("{column: amount, min_value: 0, row_condition: {type: magic}}")),
        3,
        "not a condition of Great Expectations",
    ),
    (
        suite(rule("{unexpected_rows_query: 'SELECT 1'}", "unexpected_rows_expectation")),
        3,
        "not of the one supported form",
    ),
    (
        suite(rule("{unexpected_rows_query: 'SELECT * FROM orders WHERE amount > 1'}", "unexpected_rows_expectation")),
        3,
        "not of the one supported form",
    ),
    (
        suite(
            rule("{unexpected_rows_query: 'SELECT * FROM {batch} WHERE amount > {x}'}", "unexpected_rows_expectation")
        ),
        3,
        "a brace",
    ),
    (
        suite(rule("{unexpected_rows_query: 'SELECT * FROM {batch} WHERE 1 = 1'}", "unexpected_rows_expectation")),
        3,
        "reads no column",
    ),
    (
        suite(rule("{unexpected_rows_query: 'SELECT * FROM {batch} WHERE amount + 1'}", "unexpected_rows_expectation")),
        3,
        "not a condition",
    ),
    (
        suite(
            rule("{unexpected_rows_query: 'SELECT * FROM {batch} WHERE a', mostly: 0.5}", "unexpected_rows_expectation")
        ),
        3,
        "unknown kwarg 'mostly'",
    ),
    # mostly, batch rules
    (suite(rule("{column: amount, min_value: 0, mostly: 2}")), 3, "mostly is 2, not a number from 0 to 1"),
    (suite(rule("{column: amount, min_value: 0, mostly: true}")), 3, "mostly is True"),
    (suite(rule("{column: amuont, mostly: 0.5}", "expect_column_values_to_not_be_null")), 3, "nearest is 'amount'"),
    (suite(rule("{column: amuont}", "expect_column_values_to_be_unique")), 3, "nearest is 'amount'"),
    (
        suite(rule("{column: amount, min_val: 1}", "expect_column_mean_to_be_between")),
        3,
        "unknown kwarg 'min_val'; nearest is 'min_value'",
    ),
    (
        suite(rule("{column: amount, min_value: abc}", "expect_column_mean_to_be_between")),
        3,
        "Great Expectations refuses the kwargs: min_value:",
    ),
    (
        suite(rule("{column_list: [amount, b]}", "expect_compound_columns_to_be_unique")),
        3,
        "column 'b' is not in the contract",
    ),
    (suite(rule("{other_table_name: x}", "expect_table_row_count_to_equal_other_table")), 3, "unknown expectation"),
    (
        suite(
            rule(
                "{base_query: x, comparison_query: y, comparison_data_source_name: z}",
                "expect_query_results_to_match_comparison",
            )
        ),
        3,
        "unknown expectation",
    ),
    # degrade
    (
        suite(rule(BETWEEN, meta="{rule_id: R1, degrad: {value: 1}}")),
        3,
        "unknown key 'degrad' of meta; nearest is 'degrade'",
    ),
    (suite(rule(BETWEEN, meta="{rule_id: R1, degrade: 1}")), 3, "degrade is not of the form {value: ...}"),
    (
        suite(rule(BETWEEN, meta="{rule_id: R1, degrade: {value: 1.005}}")),
        3,
        "degrade: 1.005 does not fit DECIMAL(10,2) without rounding",
    ),
    (suite(rule(BETWEEN, meta="{rule_id: R1, degrade: {value: -1}}")), 3, "degrade: -1 does not satisfy the rule"),
    (suite(rule(BETWEEN, meta="{rule_id: R1, degrade: {value: '1'}}")), 3, "degrade: '1' is not a DECIMAL(10,2)"),
    (suite(rule(BETWEEN, meta="{rule_id: R1, degrade: {value: null}}")), 3, "degrade to null, and amount is required"),
    (
        suite(rule("{column: score}", "expect_column_values_to_not_be_null", "{rule_id: R1, degrade: {value: null}}")),
        3,
        "does not satisfy",
    ),
    (
        suite(rule("{column: tags}", "expect_column_values_to_not_be_null", "{rule_id: R1, degrade: {value: [a]}}")),
        3,
        "anything but null",
    ),
    (
        suite(
            rule(
                "{column: currency, regex: '^[A-Z]+$'}",
                "expect_column_values_to_match_regex",
                "{rule_id: R1, degrade: {value: eur}}",
            )
        ),
        3,
        "does not satisfy",
    ),
    (
        suite(
            rule(
                "{column_A: amount, column_B: quantity}",
                "expect_column_pair_values_to_be_equal",
                "{rule_id: R1, degrade: {value: 1}}",
            )
        ),
        3,
        "one column only",
    ),
    (
        suite(rule("{column: amount, min_value: 0, mostly: 0.5}", meta="{rule_id: R1, degrade: {value: 1}}")),
        3,
        "single records only",
    ),
]


@pytest.mark.parametrize(("text", "line", "message"), ERRORS, ids=range(len(ERRORS)))
def test_errors_say_where_and_what(read: Read, tmp_path: Path, text: str, line: int, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        read(text)
    assert caught.value.where == f"{tmp_path / 'suite.yml'}:{line}"
    assert message in caught.value.what
    assert "\n" not in str(caught.value)
    assert caught.value.remedy


def test_the_line_is_that_of_the_value(read: Read) -> None:
    text = """\
name: orders
expectations:
  - type: expect_column_values_to_be_in_set
    kwargs:
      column: currency
      value_set:
        - EUR
        - 5
    meta: {rule_id: R1}
"""
    with pytest.raises(RuleError, match=r"suite\.yml:8: rule R1: 5 is not a STRING, quote it"):
        read(text)


def test_a_file_that_cannot_be_read(contract: Contract, tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="cannot read the rule file"):
        read_rules(tmp_path / "none.yml", contract)
    (tmp_path / "latin.yml").write_bytes(b"name: \xe9")
    with pytest.raises(RuleError, match="UnicodeDecodeError"):
        read_rules(tmp_path / "latin.yml", contract)


def test_the_fingerprint_ignores_what_cannot_change_a_verdict(read: Read) -> None:
    one = rule("{column: currency, value_set: [EUR, USD]}", "expect_column_values_to_be_in_set")
    two = rule("{min_value: 1, max_value: 2}", "expect_table_row_count_to_be_between", "{rule_id: R2}")
    same = [
        suite(one, two),
        suite(two, one),
        suite(
            one.replace("[EUR, USD]", "[USD, EUR, EUR]"),
            two.replace("min_value: 1, max_value: 2", "max_value: 2, min_value: 1"),
        ),
        suite(one, two).replace("name: orders", "# a comment\nname: other"),
        suite(one.replace("meta:", "notes: why, meta:"), two),
    ]
    assert len({read(text).fingerprint for text in same}) == 1
    query = "{{unexpected_rows_query: '{}'}}"
    spaced = [
        rule(query.format("SELECT * FROM {batch} WHERE amount>1"), "unexpected_rows_expectation"),
        rule(query.format("select * from {batch} where  (amount > 1) ;"), "unexpected_rows_expectation"),
    ]
    assert len({read(suite(text)).fingerprint for text in spaced}) == 1


@pytest.mark.parametrize(
    "changed",
    [
        rule("{column: amount, min_value: 0}", meta="{rule_id: R2}"),
        rule("{column: amount, min_value: 1}"),
        rule("{column: amount, max_value: 0}"),
        rule("{column: amount, min_value: 0, strict_min: true}"),
        rule("{column: score, min_value: 0}"),
        rule("{column: amount, min_value: 0}", more=", severity: warning"),
        rule("{column: amount, min_value: 0}", meta="{rule_id: R1, degrade: {value: 0}}"),
        rule("{column: amount, min_value: 0}", meta="{rule_id: R1, degrade: {value: 1}}"),
        rule("{column: amount, min_value: 0, row_condition: quantity > 1}"),
        rule("{column: amount, min_value: 0, mostly: 0.9}"),
    ],
)
def test_the_fingerprint_sees_what_can(read: Read, changed: str) -> None:
    assert read(suite(changed)).fingerprint != read(suite(rule(BETWEEN))).fingerprint


def test_rules_are_read_by_a_command_without_a_file(repo_root: Path) -> None:
    """PySpark takes such a process for its doctests and would end it, with exit code 0."""
    script = (
        "from pathlib import Path; from lazaretto.contracts import read_contract;"
        "from lazaretto.rules import read_rules;"
        "rules = read_rules(Path('dq_rules/orders.yml'), read_contract(Path('conf/contracts/orders.odcs.yaml')));"
        "print(len(rules.rows) > 0, '__file__' in vars(__import__('__main__')))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=repo_root, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("True False\n", 0), done.stderr
