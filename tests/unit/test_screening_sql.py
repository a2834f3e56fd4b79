"""Screening as SQL text: what is put in is what Spark reads, nothing else; the steps of orders, word for word."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lazaretto.contracts import Contract, Field, Kind, UnknownFields, read_contract
from lazaretto.errors import ConfigurationError
from lazaretto.rules import RuleSet, read_rules
from lazaretto.screening import Screening
from lazaretto.screening.sql import case, found, text, texts, violation
from lazaretto.screening.verdict import steps

_SHORT = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
# a string literal, an identifier in backticks, or anything else: the tokens that decide where text ends
_TOKEN = re.compile(r"'(?P<text>(?:\\.|[^'\\])*)'|`(?P<name>(?:``|[^`])*)`|(?P<code>[^'`]+)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)


def _unescaped(body: str) -> str:
    """What Spark makes of a literal's inside (ParserUtils.unescapeSQLString)."""

    def one(found: re.Match[str]) -> str:
        escape = found.group(1)
        if escape[0] in "uU" and len(escape) > 1:
            return chr(int(escape[1:], 16))
        if len(escape) == 3:
            return chr(int(escape, 8))
        return _SHORT.get(escape, escape)

    return _ESCAPE.sub(one, body)


def _tokens(sql: str) -> tuple[list[str], list[str], str]:
    """The literals as Spark reads them, the quoted names, and the code in between."""
    literals: list[str] = []
    names: list[str] = []
    code: list[str] = []
    at = 0
    while at < len(sql):
        token = _TOKEN.match(sql, at)
        assert token is not None, f"nothing ends what begins at {sql[at : at + 40]!r}"
        at = token.end()
        if token["text"] is not None:
            literals.append(_unescaped(token["text"]))
        elif token["name"] is not None:
            names.append(token["name"].replace("``", "`"))
        else:
            code.append(token["code"])
    return literals, names, " ".join(code)


# A loaded machine is no reason to fail.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# no surrogates: they cannot be sent to the JVM at all, and no YAML file holds them
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NASTY = st.text(
    st.sampled_from(["'", "\\", "$", "{", "}", "`", '"', "\n", "\0", "u", "0", "%", "_", "-", "/", "*", "é"])
)


@UNHURRIED
@given(ANY_TEXT | NASTY)
@example("it's")
@example("\\")
@example("\\'")
@example("' OR true --")
@example("${spark.app.id}")
@example("$${env:HOME}")
@example("\\${x}")
@example("\\u0027")
@example("\\%")
@example("東京 \U0001f680")
def test_a_literal_reads_as_what_was_put_in(value: str) -> None:
    written = text(value)
    literals, names, code = _tokens(written)
    assert (literals, names, code) == ([value], [], "")
    # Spark would replace it before it parses anything
    assert "${" not in written


@UNHURRIED
@given(st.lists(ANY_TEXT | NASTY, max_size=4))
def test_lists_of_literals(values: list[str]) -> None:
    assert _tokens(texts(values))[0] == values


@UNHURRIED
@given(NASTY, NASTY, st.none() | NASTY)
def test_a_violation_holds_its_texts(code: str, field: str, detail: str | None) -> None:
    literals, _, rest = _tokens(violation(code, field, detail))
    assert literals == ["code", code, "field", field, "detail", *([] if detail is None else [detail])]
    assert ("CAST(NULL AS STRING)" in rest) == (detail is None)


def test_small_pieces() -> None:
    assert text(None) == "CAST(NULL AS STRING)"
    assert case(("a", "1"), ("b", "2"), otherwise="3") == "CASE WHEN a THEN 1 WHEN b THEN 2 ELSE 3 END"
    assert case(("a", "1")) == "CASE WHEN a THEN 1 ELSE NULL END"
    empty = "CAST(array() AS ARRAY<STRUCT<code: STRING, field: STRING, detail: STRING>>)"
    assert found([]) == empty
    assert found(["x", "y"]) == empty.replace("array()", "array_compact(array(x, y))")


NO_RULES = RuleSet("none", (), (), "0" * 16)


def _screening(
    name: str, unknown: UnknownFields = UnknownFields.FORBID, columns: tuple[str, ...] | None = None
) -> Screening:
    inner = Field(name, f"o.{name}", Kind.DECIMAL, precision=5, scale=2, required=True)
    item = Field("item", f"l{name}[]", Kind.STRUCT, children=(Field(name, f"l{name}[].{name}", Kind.DATE),))
    fields = (
        Field("id", "id", Kind.STRING),
        Field("at", "at", Kind.TIMESTAMP),
        Field(name, name, Kind.INT),
        Field("o", "o", Kind.STRUCT, children=(inner,)),
        Field(f"l{name}", f"l{name}", Kind.ARRAY, item=item),
    )
    return Screening(Contract("things", "1", fields, unknown), NO_RULES, "id", "at", csv_columns=columns)


EVIL = st.text(st.sampled_from(["'", "\\", "`", '"', "{", "$", "}", ")", "-", " ", "é"]), min_size=1).filter(
    lambda name: "${" not in name  # refused by contracts
)


@settings(UNHURRIED, max_examples=40)
@given(EVIL, st.sampled_from(UnknownFields), st.booleans())
@example("`) --", UnknownFields.FORBID, False)
@example("' || x || '", UnknownFields.KEEP, False)
@example("\\", UnknownFields.FORBID, True)
def test_names_stay_inside_their_quotes(mark: str, unknown: UnknownFields, csv: bool) -> None:
    """Whatever a field is called, the code around quotes is the same as for a field called plainly."""
    skeletons, nested = [], []
    for name in (f"QX{mark}", "QXplain"):
        columns = ("id", "at", name, f"strange{mark}") if csv else None
        joined = "\n".join(column for step in steps(_screening(name, unknown, columns)) for column in step)
        literals, names, code = _tokens(joined)
        assert "QX" not in code
        assert "${" not in joined
        assert name in names
        assert name in literals
        skeletons.append(code)
        nested.append([each for each in literals if each.startswith("STRUCT<")])
    assert skeletons[0] == skeletons[1]
    # types inside literals are parsed once more: names are quoted there, too
    for ddl in nested[0]:
        assert "QX" not in _tokens(ddl)[2]


@UNHURRIED
@given(NASTY)
def test_a_csv_header_cannot_leave_its_literal(column: str) -> None:
    """A header comes with the file: it is not ours."""
    plain, evil = (
        "\n".join(c for step in steps(_screening("n", columns=("id", "at", "n", name))) for c in step)
        for name in ("zz", f"zz{column}")
    )
    assert _tokens(evil)[2] == _tokens(plain)[2]
    assert "${" not in evil


@pytest.fixture
def orders(repo_root: Path) -> Screening:
    contract = read_contract(repo_root / "conf/contracts/orders.odcs.yaml")
    return Screening(contract, read_rules(repo_root / "dq_rules/orders.yml", contract), "event_id", "event_time")


def test_the_steps_of_orders(repo_root: Path, orders: Screening) -> None:
    """One step a block, one column a line. Regenerate with UPDATE_GOLDEN=1."""
    written = "\n\n".join("\n".join(step) for step in steps(orders)) + "\n"
    golden = repo_root / "tests/golden/screening_orders.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(written, encoding="utf-8")
    assert written == golden.read_text(encoding="utf-8")


def test_steps_are_the_same_for_the_same_contract_and_rules(repo_root: Path, orders: Screening) -> None:
    contract = read_contract(repo_root / "conf/contracts/orders.odcs.yaml")
    again = Screening(contract, read_rules(repo_root / "dq_rules/orders.yml", contract), "event_id", "event_time")
    assert again is not orders
    assert steps(again) == steps(orders)


def test_no_column_holds_a_line_end(orders: Screening) -> None:
    assert [column for step in steps(orders) for column in step if "\n" in column] == []


def test_what_is_in_no_step_of_a_plain_dataset_comes_with_its_setting(orders: Screening) -> None:
    def joined(**changes: object) -> str:
        return "\n".join(column for step in steps(replace(orders, **changes)) for column in step)  # type: ignore[arg-type]

    assert "'filtered'" not in joined()
    assert "WHEN payload IS NULL THEN 'filtered'" in joined(filter_tombstones=True)
    assert "octet_length(value) <= 7 AND" in joined(max_bytes=7)
    assert "decode(value, 'windows-1252')" in joined(encoding="cp1252")
    assert "decode(" not in joined()


def _held_to(event_id: str = "id", event_time: str = "at", encoding: str = "utf-8") -> Screening:
    fields = (
        Field("id", "id", Kind.STRING), Field("number", "number", Kind.BIGINT), Field("small", "small", Kind.INT),
        Field("at", "at", Kind.TIMESTAMP), Field("day", "day", Kind.DATE), Field("share", "share", Kind.DOUBLE),
        Field("o", "o", Kind.STRUCT, children=(
            Field("id2", "o.id2", Kind.STRING), Field("at2", "o.at2", Kind.TIMESTAMP),
        )),
    )  # fmt: skip
    return Screening(Contract("things", "1", fields), NO_RULES, event_id, event_time, encoding)


@pytest.mark.parametrize("event_id", ["none", "ID", "at", "share", "o", "o.id2", "id2", ""])
def test_an_event_id_must_be_text_or_a_whole_number_at_the_top(event_id: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _held_to(event_id=event_id)
    assert str(caught.value) == (
        f"contract things:1: event_id: there is no top-level text or integer field {event_id!r} "
        "(next: name the field that identifies an event)"
    )


@pytest.mark.parametrize("event_time", ["none", "AT", "id", "day", "o.at2", "at2"])
def test_an_event_time_must_be_a_timestamp_at_the_top(event_time: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _held_to(event_time=event_time)
    assert str(caught.value) == (
        f"contract things:1: event_time: there is no top-level timestamp {event_time!r} "
        "(next: name the field that says when an event happened)"
    )


@pytest.mark.parametrize("event_id", ["id", "number", "small"])
def test_event_id_and_event_time_are_required_whatever_the_contract_says(event_id: str) -> None:
    screening = _held_to(event_id=event_id)
    assert {f.name for f in screening.fields if f.required} == {event_id, "at"}
    assert not any(f.required for f in screening.contract.fields)


@pytest.mark.parametrize("encoding", ["rot13", "utf-7", "cp037", "UTF-8", "base64"])
def test_an_encoding_without_a_counterpart_is_refused(encoding: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^encoding '{encoding}' is not supported \(next: one of: ascii, "):
        _held_to(encoding=encoding)
