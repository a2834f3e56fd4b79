"""Read a suite: a Great Expectations suite in YAML, compiled against a contract before any data moves."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lazaretto.contracts import Contract, Field, Kind
from lazaretto.errors import RecordCode, RuleError
from lazaretto.rules.arguments import Arguments, Compiled
from lazaretto.rules.compile_columns import ROW_EXPECTATIONS
from lazaretto.rules.conditions import row_condition
from lazaretto.rules.document import Document, Key, MisfitError, near
from lazaretto.rules.gate import batch_expectations, checked_kwargs
from lazaretto.rules.model import BatchRule, Degrade, RowRule, RuleSet, Severity
from lazaretto.rules.values import UnfitError, cut, fitted, shown

_RULE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SUITE_KEYS = frozenset({"name", "id", "expectations", "meta", "notes", "suite_parameters"})
_RULE_KEYS = frozenset({"type", "kwargs", "meta", "severity", "id", "notes", "description"})
_META_KEYS = frozenset({"rule_id", "degrade"})
_DEGRADE_KEYS = frozenset({"value"})


def read_rules(path: Path | None, contract: Contract) -> RuleSet:
    """Read a suite and compile it; without a file, the empty set.

    Raises:
        RuleError: anything in the file that does not compile against the contract; one line, with file and line.
    """
    if path is None:
        return RuleSet("none", (), (), _fingerprint((), ()))
    document = Document(path)
    suite = document.value
    if not isinstance(suite, dict):
        raise RuleError("not a mapping", where=document.where(), remedy="a suite has the keys name and expectations")
    for key in suite:
        if key not in _SUITE_KEYS:
            raise RuleError(
                f"unknown key {key!r} of a suite{near(key, _SUITE_KEYS)}", where=document.where(key),
                remedy=f"one of: {', '.join(sorted(_SUITE_KEYS))}",
            )  # fmt: skip
    name = suite.get("name")
    if not isinstance(name, str) or not name:
        raise RuleError("has no name", where=document.where("name"), remedy="give the suite a `name:`")
    entries = suite.get("expectations")
    if not isinstance(entries, list):
        raise RuleError(
            "has no list of expectations", where=document.where("expectations"), remedy="list them in `expectations:`"
        )
    rows: list[RowRule] = []
    batch: list[BatchRule] = []
    lines: dict[str, str] = {}
    for index, entry in enumerate(entries):
        rule_id: str | None = None
        try:
            rule_id = _identity(entry)
            if rule_id in lines:
                first = lines[rule_id].rpartition(":")[2]
                raise MisfitError(
                    f"rule_id is taken by line {first}", "meta", "rule_id", remedy="give it an id of its own"
                )
            lines[rule_id] = document.where("expectations", index, "meta", "rule_id")
            rule = _rule(rule_id, entry, contract)
        except MisfitError as exc:
            at: tuple[Key, ...] = ("expectations", index, *exc.at)
            what = f"rule {rule_id}: {exc.what}" if rule_id else exc.what
            raise RuleError(what, where=document.where(*at), remedy=exc.remedy) from exc
        if isinstance(rule, RowRule):
            rows.append(replace(rule, where=document.where("expectations", index)))
        else:
            batch.append(rule)
    return RuleSet(name, tuple(rows), tuple(batch), _fingerprint(tuple(rows), tuple(batch)))


def _identity(entry: Any) -> str:
    """The rule's id, so that later errors can name it."""
    if not isinstance(entry, dict):
        raise MisfitError("an expectation that is not a mapping", remedy="it has the keys type, kwargs, meta, severity")
    meta = entry.get("meta")
    if not isinstance(meta, dict) or "rule_id" not in meta:
        misplaced = "rule_id" in entry or (isinstance(entry.get("kwargs"), dict) and "rule_id" in entry["kwargs"])
        why = "rule_id belongs under meta" if misplaced else f"{shown(entry.get('type'))} has no meta.rule_id"
        raise MisfitError(why, *(["meta"] if "meta" in entry else []), remedy="write `meta: {rule_id: ...}`")
    rule_id = meta["rule_id"]
    if not isinstance(rule_id, str) or not _RULE_ID.fullmatch(rule_id):
        raise MisfitError(
            f"rule_id is {shown(rule_id)}", "meta", "rule_id",
            remedy="text of letters, digits, `_`, `.`, `-`, 64 at most, beginning with a letter or digit",
        )  # fmt: skip
    if rule_id.upper() in RecordCode.__members__:
        raise MisfitError(f"rule_id {rule_id} is a record code", "meta", "rule_id", remedy="give it another id")
    return rule_id


def _rule(rule_id: str, entry: Mapping[str, Any], contract: Contract) -> RowRule | BatchRule:
    kwargs = entry.get("kwargs", {})
    for key in entry:
        if key not in _RULE_KEYS:
            nested = key in _kwargs_of(entry.get("type")) and isinstance(kwargs, dict)
            hint = "; it belongs under kwargs" if nested else near(key, _RULE_KEYS)
            raise MisfitError(f"unknown key {key!r}{hint}", key, remedy=f"one of: {', '.join(sorted(_RULE_KEYS))}")
    expectation = entry.get("type")
    if not isinstance(expectation, str):
        raise MisfitError(
            "has no type", *(["type"] if "type" in entry else []), remedy="name an expectation in `type:`"
        )
    if not isinstance(kwargs, dict):
        raise MisfitError("kwargs is not a mapping", "kwargs")
    severity = _severity(entry)
    meta: Mapping[str, Any] = entry["meta"]
    for key in meta:
        # Other keys of meta are the author's own, but not a misspelt one of ours.
        if key not in _META_KEYS and near(key, _META_KEYS):
            raise MisfitError(f"unknown key {key!r} of meta{near(key, _META_KEYS)}", "meta", key)
    if expectation not in ROW_EXPECTATIONS and expectation not in batch_expectations():
        known = {*ROW_EXPECTATIONS, *batch_expectations()}
        raise MisfitError(f"unknown expectation {expectation!r}{near(expectation, known)}", "type")
    _check_kwargs(expectation, kwargs)
    args = Arguments(kwargs, contract)
    condition = row_condition(args)
    if expectation in ROW_EXPECTATIONS:
        compiled = ROW_EXPECTATIONS[expectation].compile(args)
        if _mostly(kwargs) == 1:
            columns = tuple(dict.fromkeys((*compiled.columns, *(condition.columns if condition else ()))))
            return RowRule(
                rule_id=rule_id,
                expectation=expectation,
                severity=severity,
                columns=columns,
                field=compiled.field,
                degrade=_degrade(meta, kwargs, compiled, contract),
                detail=compiled.detail,
                failing=compiled.failing,
                condition=f"coalesce({condition.sql}, FALSE)" if condition else None,
                regexes=tuple(dict.fromkeys((*compiled.regexes, *(condition.regexes if condition else ())))),
            )
    if "degrade" in meta:
        raise MisfitError("degrade works on rules about single records only", "meta", "degrade", remedy="drop degrade")
    kwargs = checked_kwargs(expectation, kwargs, condition, contract)
    return BatchRule(rule_id, expectation, kwargs, severity, _detail(kwargs))


def _kwargs_of(expectation: Any) -> frozenset[str]:
    known = ROW_EXPECTATIONS.get(expectation) if isinstance(expectation, str) else None
    return known.kwargs if known else frozenset({"column", "column_list", "min_value", "max_value", "value"})


def _check_kwargs(expectation: str, kwargs: Mapping[str, Any]) -> None:
    known = (
        ROW_EXPECTATIONS[expectation].kwargs if expectation in ROW_EXPECTATIONS else batch_expectations()[expectation]
    )
    for name, value in kwargs.items():
        if name not in known:
            raise MisfitError(
                f"unknown kwarg {name!r}{near(name, known)}", "kwargs", name,
                remedy=f"{expectation} takes: {', '.join(sorted(known))}",
            )  # fmt: skip
        if isinstance(value, dict) and "$PARAMETER" in value:
            raise MisfitError(f"{name} is a suite parameter", "kwargs", name, remedy="write the value")


def _severity(entry: Mapping[str, Any]) -> Severity:
    given = entry.get("severity", Severity.CRITICAL)
    try:
        return Severity(given)
    except ValueError:
        nearest = near(given, [str(level) for level in Severity]) if isinstance(given, str) else ""
        raise MisfitError(
            f"severity is {shown(given)}{nearest}", "severity", remedy=f"one of: {', '.join(Severity)}"
        ) from None


def _mostly(kwargs: Mapping[str, Any]) -> float:
    given = kwargs.get("mostly", 1)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise MisfitError(f"mostly is {shown(given)}, not a number from 0 to 1", "kwargs", "mostly")
    return given


def _degrade(
    meta: Mapping[str, Any], kwargs: Mapping[str, Any], compiled: Compiled, contract: Contract
) -> Degrade | None:
    if "degrade" not in meta:
        return None
    given = meta["degrade"]
    if not isinstance(given, dict) or set(given) != _DEGRADE_KEYS:
        raise MisfitError(
            "degrade is not of the form {value: ...}", "meta", "degrade", remedy="write `degrade: {value: ...}`"
        )
    at = ("meta", "degrade", "value")
    if "column" not in kwargs or compiled.field is None:
        raise MisfitError("degrade works on rules about one column only", "meta", "degrade", remedy="drop degrade")
    field: Field | None = contract.find(compiled.field)
    assert field is not None
    if given["value"] is None:
        if field.required:
            raise MisfitError(f"degrade to null, and {field.path} is required", *at)
        if compiled.detail == "is null":
            raise MisfitError("degrade to null does not satisfy the rule", *at)
        return Degrade(None)
    if field.kind in (Kind.STRUCT, Kind.ARRAY):
        raise MisfitError(f"degrade to anything but null, and {field.path} is {field.ddl}", *at)
    try:
        value = fitted(given["value"], field)
    except UnfitError as exc:
        raise MisfitError(f"degrade: {exc}", *at) from None
    if compiled.accepts is not None and compiled.accepts(value) is False:
        raise MisfitError(f"degrade: {shown(given['value'])} does not satisfy the rule", *at)
    return Degrade(value)


def _detail(kwargs: Mapping[str, Any]) -> str:
    said = [f"{k}={v}" for k, v in sorted(kwargs.items()) if k != "row_condition" and v is not None]
    return cut(", ".join(said))


def _fingerprint(rows: tuple[RowRule, ...], batch: tuple[BatchRule, ...]) -> str:
    """SHA-256 over what decides: the compiled SQL itself, and the kwargs handed to Great Expectations."""
    said = {
        "rows": sorted(
            [
                r.rule_id, r.severity, r.field or "", r.condition or "", r.failing,
                [] if r.degrade is None else [_written(r.degrade.value)],
            ]
            for r in rows
        ),
        "batch": sorted([b.rule_id, b.severity, b.expectation, _canonical(b.kwargs)] for b in batch),
    }  # fmt: skip
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def _written(value: Any) -> str:
    return f"{type(value).__name__}:{value}"


def _canonical(kwargs: Mapping[str, Any]) -> str:
    def plain(value: Any, key: str = "") -> Any:
        if isinstance(value, Mapping):
            return {str(k): plain(v, str(k)) for k, v in value.items()}
        if isinstance(value, list):
            items = [plain(v) for v in value]
            unordered = key.endswith("_set") or key == "regex_list" or key == "like_pattern_list"
            return sorted(items, key=lambda v: json.dumps(v, sort_keys=True)) if unordered else items
        return value if isinstance(value, str | int | float | bool | None) else _written(value)

    return json.dumps(plain(kwargs), sort_keys=True, separators=(",", ":"))
