"""The compiled text of every expectation, as a person reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lazaretto.contracts import read_contract
from lazaretto.rules import RowRule, read_rules
from lazaretto.rules.compile_columns import ROW_EXPECTATIONS


def rendered(rule: RowRule) -> str:
    lines = [
        f"{rule.rule_id}  {rule.expectation}  {rule.severity}",
        f"  reads    {', '.join(rule.columns)}",
        f"  field    {rule.field or '-'}",
        f"  detail   {rule.detail}",
    ]
    if rule.degrade is not None:
        lines.append(f"  degrade  {rule.degrade.value!r}")
    return "\n".join([*lines, f"  failed   {rule.sql('record')}"])


@pytest.mark.parametrize("name", ["every", "own"])
def test_compiled_text(repo_root: Path, name: str) -> None:
    golden = repo_root / "tests" / "golden"
    contract = read_contract(golden / "rules_every.odcs.yaml")
    rules = read_rules(golden / f"rules_{name}.yml", contract)
    text = "\n\n".join(rendered(rule) for rule in rules.rows) + "\n"
    expected = golden / f"rules_{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")


def test_every_expectation_is_in_a_golden_file(repo_root: Path) -> None:
    golden = repo_root / "tests" / "golden"
    contract = read_contract(golden / "rules_every.odcs.yaml")
    used = {
        rule.expectation
        for name in ("every", "own")
        for rule in read_rules(golden / f"rules_{name}.yml", contract).rows
    }
    assert used == set(ROW_EXPECTATIONS)
