"""Degraded fields: a failed rule's own value takes the field's place, instead of the record being held."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from lazaretto.contracts import UNKNOWN_COLUMN, Contract, Field, Kind, UnknownFields, quoted
from lazaretto.rules import RowRule
from lazaretto.screening.sql import case, text


def literal(value: Any, field: Field) -> str:
    """A rule's value as SQL of the field's type."""
    if value is None:
        written = "NULL"
    elif isinstance(value, bool):
        written = str(value).lower()
    elif isinstance(value, datetime | date):
        written = text(value.isoformat())
    else:
        written = text(str(value))
    return f"CAST({written} AS {field.ddl})"


def degraded(contract: Contract, rules: Sequence[RowRule], record: str) -> str:
    """The record with the fields of failed degrading rules replaced; as it is when there are none.

    Every rule judges the record as it was read, so the order of rules does not matter to what fails.
    """
    by_path: dict[str, list[RowRule]] = {}
    for rule in rules:
        assert rule.field is not None
        by_path.setdefault(rule.field, []).append(rule)
    if not by_path:
        return record
    columns = [f"{text(f.name)}, {_field(f, f'{record}.{quoted(f.name)}', by_path, record)}" for f in contract.fields]
    if contract.unknown is UnknownFields.KEEP:
        columns.append(f"{text(UNKNOWN_COLUMN)}, {record}.{UNKNOWN_COLUMN}")
    return f"named_struct({', '.join(columns)})"


def _field(field: Field, value: str, by_path: dict[str, list[RowRule]], record: str) -> str:
    rules = by_path.get(field.path, [])
    if rules:
        replaced = [(rule.sql(record), literal(rule.degrade.value, field)) for rule in rules if rule.degrade]
        return case(*replaced, otherwise=value)
    below = tuple(path for path in by_path if path.startswith(f"{field.path}."))
    if field.kind is not Kind.STRUCT or not below:
        return value
    children = [f"{text(c.name)}, {_field(c, f'{value}.{quoted(c.name)}', by_path, record)}" for c in field.children]
    return case((f"{value} IS NOT NULL", f"named_struct({', '.join(children)})"))
