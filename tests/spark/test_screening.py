"""Screening on Spark: every record that broke other systems gets its verdict, its code and its field."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lazaretto.commit import screened_ddl
from lazaretto.contracts import Contract, UnknownFields, read_contract
from lazaretto.rules import RuleSet, read_rules
from lazaretto.screening import Screening, screen
from lazaretto.sources import ENVELOPE_DDL

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

SOUND: dict[str, Any] = {
    "event_id": "e-1", "event_type": "purchase", "event_time": "2026-11-20T10:00:00Z", "user_id": 42, "amount": 12.5,
    "currency": "EUR", "quantity": 1, "score": 0.5, "birth_date": "1990-02-28",
    "device": {"os": "ios", "version": "17.4"}, "tags": ["a", "b"],
}  # fmt: skip


def sound(**changes: Any) -> bytes:
    return json.dumps({**SOUND, **changes}, separators=(",", ":"), ensure_ascii=False).encode()


def raw(field: str, text: str) -> bytes:
    """A sound record with one field's JSON text replaced, for what `json.dumps` would not write."""
    whole = sound()
    old = f'"{field}":' + json.dumps(SOUND[field], separators=(",", ":"))
    assert old.encode() in whole
    return whole.replace(old.encode(), f'"{field}":{text}'.encode())


@pytest.fixture(scope="module")
def contract(repo_root: Path) -> Contract:
    return read_contract(repo_root / "conf/contracts/orders.odcs.yaml")


@pytest.fixture(scope="module")
def rules(repo_root: Path, contract: Contract) -> RuleSet:
    return read_rules(repo_root / "dq_rules/orders.yml", contract)


@pytest.fixture(scope="module")
def screening(contract: Contract, rules: RuleSet) -> Screening:
    return Screening(contract, rules, "event_id", "event_time")


def judged(spark: SparkSession, screening: Screening, payloads: list[bytes | None]) -> list[Row]:
    """The screened rows, in the order of the payloads."""
    rows = [
        (("kafka", "t", "0", i), None, bytearray(p) if p is not None else None, [], None)
        for i, p in enumerate(payloads)
    ]
    found = screen(spark.createDataFrame(rows, ENVELOPE_DDL).repartition(2), screening).collect()
    return sorted(found, key=lambda r: r.source.position)


def pairs(row: Row) -> set[tuple[str, str | None]]:
    return {(v.code, v.field) for v in row.violations}


def test_every_known_poison_gets_its_verdict_code_and_field(
    spark: SparkSession, screening: Screening, repo_root: Path
) -> None:
    lines = (repo_root / "tests/data/poison.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    payloads = [None if c["value_b64"] is None else base64.b64decode(c["value_b64"]) for c in cases]
    wrong = []
    for case, row, sent in zip(cases, judged(spark, screening, payloads), payloads, strict=True):
        is_right = (row.verdict == "valid") == case["valid"] and (
            not row.violations if case["valid"] else (case["code"], case["field"]) in pairs(row)
        )
        if not is_right or (None if row.payload is None else bytes(row.payload)) != sent:
            wrong.append((case["id"], case["code"], row.verdict, pairs(row)))
    assert len(cases) == 43
    assert wrong == []


@dataclass(frozen=True)
class Case:
    name: str
    payload: bytes
    code: str | None
    field: str | None = None


_TIME = "event_time"
MORE = (
    # more members of the same kinds
    Case("a key twice inside an object", raw("device", '{"os":"ios","os":"web"}'), "DUPLICATE_KEY"),
    Case("an unknown key twice", sound()[:-1] + b',"z":1,"z":2}', "DUPLICATE_KEY"),
    Case("a key twice, once escaped", sound()[:-1] + b',"\\u0061mount":2}', "DUPLICATE_KEY"),
    Case("a key twice and a lone surrogate", raw("currency", '"EUR","currency":"\\ud800"'), "DUPLICATE_KEY"),
    Case("a lone surrogate and a key twice", raw("currency", '"EUR","currency":"\\ud800"'), "ENCODING"),
    Case("a low surrogate alone", raw("currency", '"\\udc00"'), "ENCODING"),
    Case("an escaped backslash before ud800", raw("device", '{"os":"ios","version":"\\\\ud800"}'), None),
    Case("a surrogate pair", raw("device", '{"os":"ios","version":"\\ud83d\\ude00"}'), None),
    Case("an overlong encoding", sound().replace(b"EUR", b"\xc0\xaf"), "ENCODING"),
    Case("a surrogate in UTF-8", sound().replace(b"EUR", b"\xed\xa0\x80"), "ENCODING"),
    Case("UTF-16", sound().decode().encode("utf-16"), "ENCODING"),
    Case("an unknown field inside an object", raw("device", '{"os":"ios","zz":1}'), "UNKNOWN_FIELD", "device.zz"),
    Case("another type inside an object", raw("device", '{"os":5}'), "TYPE_MISMATCH", "device.os"),
    Case("another type inside an array", raw("tags", '["a",1]'), "TYPE_MISMATCH", "tags[]"),
    Case("a null inside an array", raw("tags", '["a",null]'), None),
    Case("an object for an array", raw("tags", "{}"), "TYPE_MISMATCH", "tags"),
    Case("a bracket that closes the wrap", sound() + b"]", "TRAILING_DATA"),
    Case("a text that closes and opens the wrap", sound() + b"],[" + sound(), "TRAILING_DATA"),
    Case("a second object after a comma", sound() + b"," + sound(), "TRAILING_DATA"),
    Case("a comment at the end", sound() + b"//x", "TRAILING_DATA"),
    Case("a NUL at the end", sound() + b"\x00", "TRAILING_DATA"),
    Case("two numbers", b"1 2", "NOT_OBJECT"),
    Case("a text", b'"abc"', "NOT_OBJECT"),
    Case("a word that begins like null", b"nullx", "MALFORMED"),
    Case("a byte order mark", b"\xef\xbb\xbf" + sound(), "MALFORMED"),
    Case("a control character in a text", raw("currency", '"E\nR"'), "MALFORMED"),
    Case("too deep", b"[" * 2000 + b"]" * 2000, "MALFORMED"),
    Case("too deep inside an object", sound()[:-1] + b',"z":' + b"[" * 1500 + b"]" * 1500 + b"}", "MALFORMED"),
    Case("a trailing comma", sound()[:-1] + b",}", "MALFORMED"),
    Case("a leading zero", raw("quantity", "01"), "MALFORMED"),
    Case("Infinity", raw("score", "Infinity"), "MALFORMED"),
    Case("zip", b"PK\x03\x04aaaa", "COMPRESSED"),
    Case("zstd", b"\x28\xb5\x2f\xfd\x00", "COMPRESSED"),
    Case("zlib", b"x\x9cabc", "COMPRESSED"),
    Case("one byte too many", b" " * 1_048_577, "TOO_LARGE"),
    Case("exactly as large as allowed", sound() + b" " * (1_048_576 - len(sound())), None),
    Case("blanks of all kinds", b"\t\r\n ", "EMPTY"),
    # numbers: exactly or not at all
    Case("a decimal as text", raw("amount", '"12.50"'), "TYPE_MISMATCH", "amount"),
    Case("a whole number as text", raw("quantity", '"1"'), "TYPE_MISMATCH", "quantity"),
    Case("NaN as text", raw("score", '"NaN"'), "TYPE_MISMATCH", "score"),
    Case("true for a text", raw("currency", "true"), "TYPE_MISMATCH", "currency"),
    Case("true for a number", raw("quantity", "true"), "TYPE_MISMATCH", "quantity"),
    Case("one and a half for a whole number", raw("quantity", "1.5"), "PRECISION_LOSS", "quantity"),
    Case("1.0 for a whole number", raw("quantity", "1.0"), None),
    Case("1e2 for a whole number", raw("quantity", "1e2"), None),
    Case("1.5e0 for a whole number", raw("quantity", "1.5e0"), "PRECISION_LOSS", "quantity"),
    Case("2^31 for an INT", raw("quantity", "2147483648"), "OUT_OF_RANGE", "quantity"),
    Case("fifty nines for a BIGINT", raw("user_id", "9" * 50), "OUT_OF_RANGE", "user_id"),
    Case("the smallest BIGINT", raw("user_id", "-9223372036854775808"), None),
    Case("1.25e1 for a decimal", raw("amount", "1.25e1"), None),
    Case("1.255e0 for a decimal", raw("amount", "1.255e0"), "PRECISION_LOSS", "amount"),
    Case("1e999999999 for a decimal", raw("amount", "1e999999999"), "OUT_OF_RANGE", "amount"),
    Case("1e-7 for a decimal", raw("amount", "1e-7"), "PRECISION_LOSS", "amount"),
    Case("a digit beyond the 38th", raw("amount", "1." + "0" * 43 + "1"), "PRECISION_LOSS", "amount"),
    Case("a digit beyond a double", raw("amount", "1.0000000000000001"), "PRECISION_LOSS", "amount"),
    Case("zeros at the end", raw("amount", "12.5000000"), None),
    Case("minus zero", raw("amount", "-0.0"), None),
    Case("too large and rounded", raw("amount", "123456789.001"), "OUT_OF_RANGE", "amount"),
    Case("a whole number for a DOUBLE", raw("score", "1"), None),
    # times
    Case("nanoseconds", raw(_TIME, '"2026-11-20T10:00:00.123456789Z"'), "PRECISION_LOSS", _TIME),
    Case("nanoseconds that are zeros", raw(_TIME, '"2026-11-20T10:00:00.123456000Z"'), None),
    Case("hour 24", raw(_TIME, '"2026-11-20T24:00:00Z"'), "BAD_TIMESTAMP", _TIME),
    Case("second 60", raw(_TIME, '"2026-11-20T10:00:60Z"'), "BAD_TIMESTAMP", _TIME),
    Case("the name of a zone", raw(_TIME, '"2026-11-20T10:00:00 Europe/Berlin"'), "BAD_TIMESTAMP", _TIME),
    Case("an offset that is none", raw(_TIME, '"2026-11-20T10:00:00+19:00"'), "BAD_TIMESTAMP", _TIME),
    Case("a year alone", raw(_TIME, '"2026"'), "BAD_TIMESTAMP", _TIME),
    Case("year 0", raw(_TIME, '"0000-11-20T10:00:00Z"'), "BAD_TIMESTAMP", _TIME),
    Case("a day that is none", raw("birth_date", '"2026-02-30"'), "BAD_TIMESTAMP", "birth_date"),
    Case("a date as number", raw("birth_date", "20200101"), "TYPE_MISMATCH", "birth_date"),
    Case("a date with time", raw("birth_date", '"2020-01-01T00:00:00Z"'), "BAD_TIMESTAMP", "birth_date"),
    # required, identity, rules
    Case("a required field that is null", raw("currency", "null"), "MISSING_REQUIRED", "currency"),
    Case("a blank id", sound(event_id="   "), "MISSING_REQUIRED", "event_id"),
    Case("a blank id breaks its rule, too", sound(event_id="   "), "ORD-001", "event_id"),
    Case("an empty id", sound(event_id=""), "MISSING_REQUIRED", "event_id"),
    Case("an id of blanks that are not ASCII", sound(event_id="x\u00a0"), None),
    Case("two at once: the type", sound(currency="eur", quantity="1"), "TYPE_MISMATCH", "quantity"),
    Case("two at once: the rule", sound(currency="eur", quantity="1"), "ORD-003", "currency"),
    Case("a rule's upper bound", sound(amount=100000), None),
    Case("above a rule's upper bound", sound(amount=100000.01), "ORD-002", "amount"),
)  # fmt: skip


def test_more_of_the_same_kinds(spark: SparkSession, screening: Screening) -> None:
    wrong = []
    for case, row in zip(MORE, judged(spark, screening, [c.payload for c in MORE]), strict=True):
        is_right = row.verdict == "valid" and not row.violations
        if case.code is not None:
            is_right = row.verdict == "invalid" and (case.code, case.field) in pairs(row)
        if not is_right:
            wrong.append((case.name, case.code, row.verdict, pairs(row)))
    assert wrong == []


def test_the_rows_are_what_the_commit_expects(spark: SparkSession, screening: Screening, contract: Contract) -> None:
    from pyspark.sql.types import StructType

    envelope = spark.createDataFrame([], ENVELOPE_DDL)
    expected = StructType.fromDDL(screened_ddl(contract))
    actual = screen(envelope, screening).schema
    assert [(f.name, f.dataType.simpleString()) for f in actual] == [
        (f.name, f.dataType.simpleString()) for f in expected
    ]


def test_values_arrive_exactly(spark: SparkSession, screening: Screening) -> None:
    from datetime import UTC, datetime
    from decimal import Decimal

    payload = raw("amount", "99999.99").replace(b"2026-11-20T10:00:00Z", b"2026-11-20T23:30:00.123456+14:00")
    row = judged(spark, screening, [payload])[0]
    assert row.verdict == "valid"
    assert row.record.amount == Decimal("99999.99")
    assert row.event_time.astimezone(UTC) == datetime(2026, 11, 20, 9, 30, 0, 123456, tzinfo=UTC)
    assert row.record.device.asDict() == {"os": "ios", "version": "17.4"}
    assert row.record.tags == ["a", "b"]
    assert row.payload_bytes == len(payload)


def test_large_decimals_keep_every_digit(spark: SparkSession, contract: Contract, rules: RuleSet) -> None:
    from decimal import Decimal

    wide = replace(
        contract,
        fields=tuple(replace(f, precision=38, scale=10) if f.name == "amount" else f for f in contract.fields),
    )
    no_rules = replace(rules, rows=(), batch=())
    screening = Screening(wide, no_rules, "event_id", "event_time")
    texts = ["12345678901234567.89", "9007199254740993", "0.1000000001", "1234567890123456789012345678.0123456789"]
    rows = judged(spark, screening, [raw("amount", t) for t in texts])
    assert [r.record.amount for r in rows] == [Decimal(t) for t in texts]
    # written with an exponent, more digits than a double keeps: held rather than rounded
    held = judged(spark, screening, [raw("amount", "12345678901234567.89e0")])[0]
    assert pairs(held) == {("PRECISION_LOSS", "amount")}


def test_a_warning_does_not_hold_a_record(spark: SparkSession, screening: Screening) -> None:
    row = judged(spark, screening, [raw("device", '{"os":"beos"}')])[0]
    assert (row.verdict, row.warnings, row.degraded) == ("valid", ["ORD-005"], [])


def test_a_degrading_rule_replaces_the_field_and_flags_it(
    spark: SparkSession, contract: Contract, tmp_path: Path
) -> None:
    suite = tmp_path / "rules.yml"
    suite.write_text(
        """
name: degrading
expectations:
  - type: expect_column_values_to_not_be_null
    kwargs: {column: score}
    severity: critical
    meta: {rule_id: DEG-1, degrade: {value: 0.25}}
  - type: expect_column_values_to_be_in_set
    kwargs: {column: device.os, value_set: [ios, other]}
    severity: critical
    meta: {rule_id: DEG-2, degrade: {value: other}}
""",
        encoding="utf-8",
    )
    screening = Screening(contract, read_rules(suite, contract), "event_id", "event_time")
    rows = judged(spark, screening, [raw("score", "null"), raw("device", '{"os":"beos","version":"1"}'), sound()])
    assert [(r.verdict, r.degraded) for r in rows] == [("valid", ["DEG-1"]), ("valid", ["DEG-2"]), ("valid", [])]
    assert rows[0].record.score == 0.25
    assert rows[1].record.device.asDict() == {"os": "other", "version": "1"}
    assert rows[1].payload == raw("device", '{"os":"beos","version":"1"}')


@pytest.mark.parametrize(("policy", "kept"), [(UnknownFields.IGNORE, None), (UnknownFields.KEEP, {"zz": [1, 2.5]})])
def test_unknown_fields_by_policy(
    spark: SparkSession, screening: Screening, contract: Contract, policy: UnknownFields, kept: dict[str, Any] | None
) -> None:
    open_ = replace(screening, contract=replace(contract, unknown=policy))
    rows = judged(spark, open_, [sound(zz=[1, 2.5]), sound(), sound(device={"os": "ios", "extra": 1})])
    assert [r.verdict for r in rows] == ["valid"] * 3
    if kept is not None:
        assert json.loads(rows[0].record["_unknown"].toJson()) == kept
        assert rows[1].record["_unknown"] is None


def test_many_unknown_fields_are_listed_up_to_a_bound(spark: SparkSession, screening: Screening) -> None:
    many = {f"k{i:03d}": i for i in range(300)}
    row = judged(spark, screening, [sound(**many, **{"n" * 1000: 1})])[0]
    assert len(row.violations) == 100
    assert row.violations[-1].detail == "and 201 more"
    assert all(len(v.field) <= 200 for v in row.violations)


def test_tombstones_are_filtered_where_allowed(spark: SparkSession, screening: Screening) -> None:
    rows = judged(spark, replace(screening, filter_tombstones=True), [None, b"", sound()])
    assert [r.verdict for r in rows] == ["filtered", "invalid", "valid"]
    assert rows[0].violations == []


def test_gbk_is_decoded_strictly_where_declared(spark: SparkSession, screening: Screening) -> None:
    gbk = replace(screening, encoding="gbk")
    good = sound(device={"os": "ios", "version": "你好"}).decode().encode("gbk")
    bad = good.replace("你".encode("gbk"), b"\xff\xff")
    rows = judged(spark, gbk, [good, bad, sound()])
    assert [r.verdict for r in rows] == ["valid", "invalid", "valid"]
    assert rows[0].record.device.version == "你好"
    assert pairs(rows[1]) == {("ENCODING", None)}
    assert bytes(rows[1].payload) == bad


def test_no_violation_holds_a_value_of_the_record(spark: SparkSession, screening: Screening) -> None:
    marker = "MARKERqzx"
    payloads = [
        sound(currency=marker), sound(user_id=marker), sound(event_time=marker), raw("amount", f'"{marker}"'),
        sound(event_id={"x": marker}), sound()[:-1] + f',"{marker}'.encode(), marker.encode(),
        sound(tags=[{"k": marker}]), raw("device", f'{{"os":"{marker}","os":"{marker}"}}'),
    ]  # fmt: skip
    rows = judged(spark, screening, [bytes(p) for p in payloads])
    assert [r.verdict for r in rows] == ["invalid"] * len(payloads)
    assert [v for r in rows for v in r.violations if marker in str(v)] == []


CSV_COLUMNS = ("event_id", "event_type", "event_time", "user_id", "amount", "currency", "quantity", "score")


@pytest.mark.parametrize(
    ("record", "code", "field"),
    [
        ("c-1,purchase,2026-11-20T10:00:00Z,42,12.50,EUR,1,0.5", None, None),
        ('c-2,"a ""quoted"", text\nwith a line end",2026-11-20T10:00:00Z,42,12.50,EUR,1,', None, None),
        ("c-3,purchase,2026-11-20T10:00:00Z,42,12.50,EUR,1", "MALFORMED", None),
        ("c-4,purchase,2026-11-20T10:00:00Z,42,12.50,EUR,1,0.5,more", "MALFORMED", None),
        ("c-5,purchase,2026-11-20T10:00:00,42,12.50,EUR,1,0.5", "BAD_TIMESTAMP", "event_time"),
        ("c-6,purchase,2026-11-20T10:00:00Z,4x,12.50,EUR,1,0.5", "TYPE_MISMATCH", "user_id"),
        ("c-7,purchase,2026-11-20T10:00:00Z,42,12.505,EUR,1,0.5", "PRECISION_LOSS", "amount"),
        ("c-8,purchase,2026-11-20T10:00:00Z,42,12.50,EUR,3000000000,0.5", "OUT_OF_RANGE", "quantity"),
        ("c-9,purchase,2026-11-20T10:00:00Z,42,12.50,EUR,1.5,0.5", "PRECISION_LOSS", "quantity"),
        ("c-10,purchase,2026-11-20T10:00:00Z,,12.50,EUR,1,0.5", "MISSING_REQUIRED", "user_id"),
        ("c-11,purchase,2026-11-20T10:00:00Z,42,12.50,eur,1,0.5", "ORD-003", "currency"),
        ("c-12,purchase,2026-11-20T10:00:00Z,42,12.50,EUR,1,1e400", "OUT_OF_RANGE", "score"),
        ("", "EMPTY", None),
    ],
)
def test_csv_records(
    spark: SparkSession, screening: Screening, record: str, code: str | None, field: str | None
) -> None:
    row = judged(spark, replace(screening, csv_columns=CSV_COLUMNS), [record.encode()])[0]
    if code is None:
        assert (row.verdict, list(row.violations)) == ("valid", [])
    else:
        assert (code, field) in pairs(row)


def test_a_csv_column_that_the_contract_does_not_know(spark: SparkSession, screening: Screening) -> None:
    header = replace(screening, csv_columns=(*CSV_COLUMNS, "coupon"))
    record = b"c-1,purchase,2026-11-20T10:00:00Z,42,12.50,EUR,1,0.5,"
    assert pairs(judged(spark, header, [record])[0]) == {("UNKNOWN_FIELD", "coupon")}
