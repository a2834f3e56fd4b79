"""The guard of user SQL: what it lets through, as it is written anew, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazaretto.contracts import Contract, read_contract
from lazaretto.rules.functions import FUNCTIONS, NAMES
from lazaretto.rules.sql import guard
from lazaretto.rules.sql_types import RefusedError


@pytest.fixture(scope="module")
def contract(repo_root: Path) -> Contract:
    return read_contract(repo_root / "tests" / "golden" / "rules_every.odcs.yaml")


ALLOWED = [
    ("s = 'a'", "(_.`s` = 'a')"),
    ("s == \"a\"", "(_.`s` = 'a')"),
    ("i<>1 AND NOT b", "((_.`i` <> 1) AND (NOT _.`b`))"),
    ("`nest`.`odd name` IS NOT NULL", "(NOT (_.`nest`.`odd name` IS NULL))"),
    ("nest.deep.x > 1e3", "(_.`nest`.`deep`.`x` > 1000.0D)"),
    ("i + j * k - 1 > 0", "(try_subtract(try_add(_.`i`, try_multiply(_.`j`, _.`k`)), 1) > 0)"),
    ("i / j > 1 OR i % j = 0", "((try_divide(_.`i`, _.`j`) > 1) OR (try_mod(_.`i`, _.`j`) = 0))"),
    ("-i < -5", "(try_subtract(0, _.`i`) < -5)"),
    ("abs(i) > 1", "((CASE WHEN _.`i` < 0 THEN try_subtract(0, _.`i`) ELSE _.`i` END) > 1)"),
    ("CAST(s AS INT) = 1", "(TRY_CAST(_.`s` AS INT) = 1)"),
    ("s::decimal(5, 2) = 1.5", "(TRY_CAST(_.`s` AS DECIMAL(5,2)) = 1.5BD)"),
    ("day >= '2020-01-01'", "(_.`day` >= DATE '2020-01-01')"),
    ("day IN (DATE '2020-01-01', '2020-01-02')", "(_.`day` IN (DATE '2020-01-01', DATE '2020-01-02'))"),
    ("ts < '2020-01-01T01:00:00+01:00'", "(_.`ts` < TIMESTAMP '2020-01-01 00:00:00.000000Z')"),
    ("s LIKE 'a\\\\%' AND t NOT ILIKE '_!_' ESCAPE '!'",
     "((_.`s` LIKE 'a\\\\%') AND (_.`t` NOT ILIKE '_!_' ESCAPE '!'))"),
    ("s RLIKE r'^\\d{2}$'", "regexp_like(_.`s`, '^\\\\d{2}$')"),
    ("s NOT RLIKE 'a'", "(NOT regexp_like(_.`s`, 'a'))"),
    ("i NOT BETWEEN 1 AND j", "(NOT (((_.`i` >= 1) AND (_.`i` <= _.`j`))))"),
    ("s <=> t AND i IS DISTINCT FROM j", "((_.`s` IS NOT DISTINCT FROM _.`t`) AND (_.`i` IS DISTINCT FROM _.`j`))"),
    ("b IS TRUE", "(_.`b` IS TRUE)"),
    ("CASE s WHEN 'a' THEN i ELSE NULL END = 1", "((CASE WHEN (_.`s` = 'a') THEN _.`i` ELSE NULL END) = 1)"),
    ("s || '-' || t = 'a-b'", "(concat(concat(_.`s`, '-'), _.`t`) = 'a-b')"),
    ("size(tags) > 1 AND array_contains(tags, 'x')", "((size(_.`tags`) > 1) AND array_contains(_.`tags`, 'x'))"),
    ("IF(b, i, 0) = COALESCE(j, 1)", "(if(_.`b`, _.`i`, 0) = coalesce(_.`j`, 1))"),
    ("tags IS NULL OR nest IS NULL", "((_.`tags` IS NULL) OR (_.`nest` IS NULL))"),
    ("l = 9223372036854775807", "(_.`l` = 9223372036854775807L)"),
    ("s = '{x} -- no comment; 1 /* */'", "(_.`s` = '{x} -- no comment; 1 /* */')"),
    ("s = 'it\\'s\\n'", "(_.`s` = 'it\\'s\\u000A')"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "written"), ALLOWED)
def test_written_anew(contract: Contract, text: str, written: str) -> None:
    sql = guard(text, contract).sql
    expected = written
    # The outermost parentheses of NOT BETWEEN differ by how deep it nests; compare the rest.
    assert sql.replace("\x00", "_.") in (expected, f"({expected})", expected.replace("(NOT (((", "(NOT (("))


REFUSED = [
    # other statements and queries
    "s = 'a'; DROP TABLE x", "DROP TABLE x", "SELECT 1", "(SELECT 1) = 1", "i IN (SELECT 1)", "EXISTS (SELECT 1)",
    "s = 'a' UNION SELECT 1", "1 = 1) OR (SELECT true", "VALUES (1)", "WITH a AS (SELECT 1) SELECT 1",
    "s IN (TABLE x)", "SET a = 1", "EXPLAIN SELECT 1", "s = 'a' GROUP BY s", "s = 'a' LIMIT 1", "s = 'a' AS x",
    "s = (TABLE parquet.`/etc`)", "CALL x()", "s = 'a' ORDER BY 1",
    # functions that read, run or vary
    "java_method('java.lang.System', 'getProperty', 'user.name') = 'x'", "reflect('a', 'b') = 'c'",
    "try_reflect('a', 'b') = 'c'", "input_file_name() = 'x'", "current_user() = s", "current_user = s",
    "current_date > day", "current_timestamp() > ts", "now() > ts", "rand() > 0.5", "randn() > x", "uuid() = s",
    "monotonically_increasing_id() = i", "spark_partition_id() = i", "aes_decrypt(s, t) = s",
    "secret('a', 'b') = s", "version() = s", "session_user() = s", "current_catalog() = s", "getbit(l, 1) = 1",
    "raise_error('x')", "assert_true(b) IS NULL", "try_secret('a', 'b') = s", "read_files('x') IS NULL",
    "ai_query('x', s) = 'a'", "http_request(s) = 'a'", "from_json(s, 'a INT') IS NULL", "sha2(s, 256) = 'x'",
    "shuffle(tags) IS NULL",
    # generators, aggregates, windows, lambdas
    "explode(tags) = 'a'", "count(*) > 1", "sum(i) > 1", "sum(i) OVER () > 1", "row_number() OVER (ORDER BY i) = 1",
    "exists(tags, x -> x = 'a')", "filter(tags, x -> true) IS NULL", "transform(tags, x -> x) IS NULL",
    "aggregate(tags, 0, (a, b) -> a) = 1", "inline(tags) = 1", "stack(1, i) = 1",
    # names and dots
    "unknown = 1", "S = 'a'", "nest.missing = 1", "other.s = 'a'", "nest.* IS NULL", "*",
    "i = system.builtin.abs(j)", "nest.abs(i) = 1", "`length`(s) = 1", "_metadata.file_path = 'x'",
    "record.s = 'a'", "s.x = 'a'", "tags.a = 1", "identifier('s') = 'a'", "i.i.i.i.i = 1",
    # parameters, templates, comments
    ":p = i", "? = i", "${x} = i", "{{ s }} = 'a'", "{% if %} = 1", "@x = i", "$1 = i", "s = 'a' -- x",
    "s = /* x */ 'a'", "/*+ BROADCAST(x) */ s = 'a'", "# x\ns = 'a'", "s = 'a' --", "", "   ", "--",
    # what could throw under ANSI, or is not certain
    "s = 5", "i = '5'", "s > 1.5", "b = 1", "b = 'true'", "day = ts", "day > 5", "i + s > 1", "s + 1 = 2",
    "i IN (1, 'a')", "tags = tags", "nest = nest", "tags[0] = 'a'", "element_at(tags, 5) = 'a'", "nest['s'] = 'a'",
    "i DIV j = 1", "CAST(day AS TIMESTAMP) = ts", "CAST(i AS TIMESTAMP) = ts", "CAST(s AS BINARY) IS NULL",
    "CAST(s AS ARRAY<INT>) IS NULL", "CAST(i AS BOOLEAN)", "CAST(s AS STRING COLLATE UTF8_LCASE) = 'a'",
    "CAST(s AS TIMESTAMP_NTZ) = ts", "CAST(s AS INT FORMAT 'x') = 1", "CAST(tags AS STRING) = 'a'", "i & 1 = 1",
    "~i = 1", "i << 1 = 2", "ts + INTERVAL 1 DAY > ts", "day - day > 1", "day = '2023-02-29'", "day = 'today'",
    "ts = 'now'", "ts = '2020-01-01'", "ts = '2020-01-01 00:00:00'",
    "wide = 1e0 * wide + e AND wide = CAST(s AS DECIMAL(38,0))", "to_date(s) = day", "to_timestamp(s) = ts",
    "round(i, -1) = 10", "substring(s, i, 2) = 'a'", "lpad(s, 2000000000, 'x') = 'a'",
    "repeat(s, 1000000000) = 'a'", "s RLIKE t", "s RLIKE '('", "s RLIKE '(?P<a>b)'", "s LIKE t", "s LIKE 'a\\\\'",
    "s LIKE 'a!b' ESCAPE '!'", "s LIKE 'a' ESCAPE 'ab'", "s LIKE ANY ('a', 'b')", "s = 'a' 'b'", "s = 'it''s'",
    "s = '\\d'", "s = '\\u0041'", "s = '\\101'", "s = x'41'", "s = N'a'", "s COLLATE UTF8_LCASE = 'a'",
    "ts AT TIME ZONE 'UTC' = ts", "i = NULL", "s <> NULL", "i IN (1, NULL)", "i IN ()", "NULL", "s", "i", "'a'",
    "1", "i + 1", "i = 99999999999999999999999", "x = 1e999999", "length(s, t) = 1", "length() = 1",
    "concat() = 'a'", "NOT i", "s AND b", "CASE WHEN s THEN 1 END = 1", "CASE WHEN b THEN 1 ELSE 'a' END = 1",
    "IF(i, 1, 2) = 1", "coalesce(i, s) = 1", "coalesce(NULL, NULL) = 1", "s IS 'a'", "s = 'a' QUALIFY 1",
    "s = DATE", "- - - s = 1", "extract(year FROM day) = 2020", "position('a' IN s) = 1",
    "trim(BOTH 'x' FROM s) = 'a'", "s SIMILAR TO 'a'", "struct(s) = struct(t)", "array(i) = array(j)",
    "map(s, i) IS NULL", "named_struct('a', s) IS NULL", "i == j == b = 1", "(i, j) = (1, 2)", "(i, j) IN ((1, 2))",
    "s:field = 'a'", "s -> 'a' = 'b'", "i = ALL (1)", "i = SOME (1)", "a => 1", "s = 'a' \x00 OR b", "s = `a`",
    "s = '\u2028' OR \u2028", "s = 'a' AND",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_refused(contract: Contract, text: str) -> None:
    with pytest.raises(RefusedError) as caught:
        guard(text, contract)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 500 + "b" + ")" * 500,
        "NOT " * 5000 + "b",
        "-" * 3000 + "i = 1",
        "b AND " * 5000 + "b",
        "CASE WHEN " * 300 + "b" + " THEN b END" * 300,
        "s = '" + "a" * 30_000 + "'",
        "concat(" * 300 + "s" + ")" * 300 + " = 'a'",
        " + ".join(["i"] * 700) + " > 0",
    ],
)
def test_size_and_depth_are_bounded(contract: Contract, text: str) -> None:
    with pytest.raises(RefusedError):
        guard(text, contract)


def test_a_long_flat_condition_is_fine(contract: Contract) -> None:
    predicate = guard(" OR ".join(f"i = {n}" for n in range(300)), contract)
    assert predicate.columns == ("i",)
    assert predicate.sql.count(" OR ") == 299


def test_columns_and_patterns_are_collected(contract: Contract) -> None:
    predicate = guard("nest.i > i AND s RLIKE 'a' AND NOT regexp_like(t, r'\\d') AND i > 1", contract)
    assert predicate.columns == ("nest.i", "i", "s", "t")
    assert predicate.regexes == ("a", "\\d")


def test_the_allow_list_has_nothing_that_varies() -> None:
    for name in FUNCTIONS:
        for word in (
            "rand",
            "uuid",
            "current",
            "now",
            "java",
            "reflect",
            "input_file",
            "secret",
            "aes",
            "user",
            "file",
        ):
            assert word not in name


WORDS = [
    "s", "i", "x", "b", "day", "ts", "nest.i", "tags", "'a'", "'2020-01-01'", "1", "1.5", "1e3", "NULL", "TRUE",
    "(", ")", "AND", "OR", "NOT", "=", "<>", "<", "<=>", "+", "-", "*", "/", "%", "||", "IS", "IN", "BETWEEN",
    "LIKE", "RLIKE", "ESCAPE", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST(", "AS INT)", "length(", "coalesce(",
    "if(", ",", "::", ".", "`", "'", '"', ";", "--", "/*", "{", "$", "[", "]", "->", "SELECT", "FROM", "EXISTS",
    "INTERVAL", "DATE", "@", ":", "?",
]  # fmt: skip


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=30))
def test_anything_is_written_or_refused(contract: Contract, text: str) -> None:
    try:
        sql = guard(text, contract).sql
    except RefusedError:
        return
    # What is let through has its parentheses and quotes in pairs, and no way out of a literal.
    bare = re.sub(r"'(?:[^'\\]|\\.)*'", "", sql)
    assert bare.count("(") == bare.count(")")
    assert not re.search(r"[;'\"{}$@?#]|--|/\*", bare)


def test_the_page_lists_every_function(repo_root: Path) -> None:
    page = (repo_root / "docs" / "rules.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"`{name}`" not in page] == []
