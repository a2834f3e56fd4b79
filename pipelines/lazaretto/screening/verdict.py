"""The four steps in one pass: decode, contract, rules, verdict.

A chain of projections over the envelope; nothing is shuffled, counted or read twice. Each step's columns are plain ones
that the next step uses several times, so that Spark keeps the steps apart and evaluates each once (fields of a struct
that is put together here would be taken apart again by the optimizer and evaluated at each use). What names a record's
violations stands behind `CASE WHEN verdict = 'invalid'`: valid records pay for the decision only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pyspark.sql import DataFrame

from lazaretto.contracts import UNKNOWN_COLUMN, Field, Kind, UnknownFields, quoted
from lazaretto.errors import RecordCode
from lazaretto.rules import RowRule, Severity
from lazaretto.screening import csv_text, json_text
from lazaretto.screening.dataset import Screening
from lazaretto.screening.degrade import degraded
from lazaretto.screening.payload import decoded, payload_faults
from lazaretto.screening.reading import JsonReader, members, unknown_fields
from lazaretto.screening.sql import NONE_FOUND, case, found, matches, text, texts, violation

VALID, INVALID, FILTERED = "valid", "invalid", "filtered"

_ENVELOPE = ("source", "key", "headers", "source_time")
_CARRIED = (*_ENVELOPE, "payload", "payload_sha256", "payload_bytes", "txt")
_NO_IDS = "CAST(array() AS ARRAY<STRING>)"

Step = tuple[str, ...]
"""The columns of one projection, as SQL text."""


def screen(envelope: DataFrame, screening: Screening) -> DataFrame:
    """Judge every record of an envelope.

    Returns:
        One row per row of the envelope: `source, key, headers, source_time, payload, payload_sha256, payload_bytes,
        verdict, record, event_id, event_time, violations, warnings, degraded` (types: `commit.screened_ddl`).
        `verdict` is never NULL, `violations` is non-empty exactly where it is `invalid`.
    """
    for step in steps(screening):
        envelope = envelope.selectExpr(*step)
    return envelope


@lru_cache(maxsize=64)
def steps(screening: Screening) -> tuple[Step, ...]:
    """The projections that `screen` applies, one after the other. Pure text, the same for the same screening."""
    return (_decode(screening), *_parse(screening), *_read(screening), *_judge(screening), _result(screening))


def _decode(screening: Screening) -> Step:
    return (
        *_ENVELOPE,
        "value AS payload",
        "sha2(value, 256) AS payload_sha256",
        "CAST(octet_length(value) AS BIGINT) AS payload_bytes",
        f"{decoded('value', screening.encoding, screening.max_bytes)} AS txt",
    )


def _parse(screening: Screening) -> list[Step]:
    """Adds `parsed`, and from it `single`, `raw`, `names`, `rest` and the members of nested objects."""
    columns = screening.csv_columns
    if columns is None:
        parsed, single = json_text.sealed("txt", "payload_sha256"), json_text.is_single("parsed", "payload_sha256")
    else:
        parsed, single = csv_text.row("txt", columns), csv_text.is_single("txt", "parsed")
    return [
        (*_CARRIED, f"{parsed} AS parsed"),
        (*_CARRIED, "parsed", f"{single} AS single"),
        (*_CARRIED, "parsed", "single", *_taken_apart(screening, "single")),
    ]


def _taken_apart(screening: Screening, when: str) -> list[str]:
    """The columns that are read out of `parsed`, where `when` holds, else NULL.

    `raw` is a STRUCT of one member per field, `names` the keys that are there, `rest` what `keep` keeps, and `m<i>` the
    members of the nested object that is field i.
    """
    fields, columns = screening.fields, screening.csv_columns
    if columns is not None:
        return [
            f"{case((when, csv_text.raw('parsed', columns, fields)))} AS raw",
            f"{case((when, csv_text.names('parsed', columns, fields)))} AS names",
            "CAST(NULL AS VARIANT) AS rest",
        ]
    raw = members(json_text.first_value("parsed"), fields)
    names = case((when, "json_object_keys(txt)")) if screening.closed else "CAST(NULL AS ARRAY<STRING>)"
    keeps = screening.contract.unknown is UnknownFields.KEEP
    rest = case((when, _kept(screening))) if keeps else "CAST(NULL AS VARIANT)"
    nested = [
        f"{case((when, members(json_text.member('parsed', f.name), f.children)))} AS {name}"
        for f, name in _nested(screening)
    ]
    return [f"{case((when, raw))} AS raw", f"{names} AS names", f"{rest} AS rest", *nested]


def _nested(screening: Screening) -> list[tuple[Field, str]]:
    """The nested objects, each with the column of its members."""
    if screening.csv_columns is not None:
        return []
    return [(f, f"m{i}") for i, f in enumerate(screening.fields) if f.kind is Kind.STRUCT]


def _kept(screening: Screening) -> str:
    known = texts(f.name for f in screening.contract.fields)
    everything = f"try_variant_get({json_text.first_value('parsed')}, '$', 'MAP<STRING, VARIANT>')"
    unknown = f"map_filter({everything}, (name, _) -> NOT array_contains({known}, name))"
    return case((f"size({unknown}) > 0", f"try_parse_json(to_json({unknown}))"))


def _reader(screening: Screening) -> JsonReader | csv_text.CsvReader:
    return csv_text.CsvReader() if screening.csv_columns is not None else JsonReader(screening.contract, "txt")


def _raw(field: Field) -> str:
    return f"raw.{quoted(field.name)}"


def _read(screening: Screening) -> list[Step]:
    """Adds a typed column `v<i>` per field, and `read`, a STRUCT of them by name."""
    reader, fields = _reader(screening), screening.fields
    parts = {f.name: name for f, name in _nested(screening)}
    carried = (*_CARRIED, "parsed", "single", "raw", "names", "rest", *parts.values())
    values = [f"{reader.value(f, _raw(f), parts.get(f.name))} AS v{i}" for i, f in enumerate(fields)]
    columns = [f"{text(f.name)}, v{i}" for i, f in enumerate(fields)]
    if screening.contract.unknown is UnknownFields.KEEP:
        columns.append(f"{text(UNKNOWN_COLUMN)}, rest")
    read = f"named_struct({', '.join(columns)}) AS read"
    return [(*carried, *values), (*carried, *(f"v{i}" for i in range(len(fields))), read)]


def _fits(screening: Screening) -> list[str]:
    """Whether each field is what the contract asks for, over the columns of `_read`."""
    reader = _reader(screening)
    parts = {f.name: name for f, name in _nested(screening)}
    fits = []
    for i, field in enumerate(screening.fields):
        fit = reader.fit(field, _raw(field), f"v{i}", parts.get(field.name))
        if field.name == screening.event_id and field.kind is Kind.STRING:
            not_blank = matches(f"v{i}", r"\S")
            fit = f"coalesce({fit} AND {not_blank}, false)"
        fits.append(fit)
    return fits


def _judge(screening: Screening) -> list[Step]:
    """Adds the verdict; then takes apart again what is held, for its violations.

    The raw members are wide (each VARIANT has the names of all its siblings), so they are not carried on for all
    records but read anew for the few that are held.
    """
    terms = ["raw IS NOT NULL", *_fits(screening)]
    if screening.closed:
        # no unknown field exactly if there are as many keys as members that the contract names
        present = " + ".join(f"int({_raw(f)} IS NOT NULL)" for f in screening.fields)
        terms.append(f"size(names) = {present}")
    terms += [f"NOT ({rule.sql('read')})" for rule in _holding(screening)]
    valid = f"coalesce({' AND '.join(terms)}, false)"
    branches = [("payload IS NULL", text(FILTERED))] if screening.filter_tombstones else []
    verdict = case(*branches, (valid, text(VALID)), otherwise=text(INVALID))
    values = [f"v{i}" for i in range(len(screening.fields))]
    carried = (*_CARRIED, "parsed", "single", *values, "read")
    is_held = f"single AND verdict = {text(INVALID)}"
    # what is kept of a record is part of `read` by now
    again = [c for c in _taken_apart(screening, is_held) if not c.endswith(" AS rest")]
    apart = ["raw", "names", *(name for _, name in _nested(screening))]
    flags = [f"{case((is_held, fit), otherwise='false')} AS f{i}" for i, fit in enumerate(_fits(screening))]
    return [
        (*carried, f"{verdict} AS verdict"),
        (*carried, "verdict", *again),
        (*_CARRIED, "single", "read", "verdict", *apart, *flags),
    ]


def _holding(screening: Screening) -> list[RowRule]:
    return [r for r in screening.rules.rows if r.severity is Severity.CRITICAL and r.degrade is None]


def _result(screening: Screening) -> Step:
    degrading = [r for r in screening.rules.rows if r.degrade is not None]
    warning = [r for r in screening.rules.rows if r.severity is not Severity.CRITICAL and r.degrade is None]
    is_valid = f"verdict = {text(VALID)}"
    is_invalid = f"verdict = {text(INVALID)}"
    return (
        *_ENVELOPE,
        "payload",
        "payload_sha256",
        "payload_bytes",
        "verdict",
        f"{case((is_valid, degraded(screening.contract, degrading, 'read')))} AS record",
        f"CAST(read.{quoted(screening.event_id)} AS STRING) AS event_id",
        f"read.{quoted(screening.event_time)} AS event_time",
        f"{case((is_invalid, _violations(screening)), otherwise=NONE_FOUND)} AS violations",
        f"{case((is_valid, _failed_ids(warning)), otherwise=_NO_IDS)} AS warnings",
        f"{case((is_valid, _failed_ids(degrading)), otherwise=_NO_IDS)} AS degraded",
    )


def _failed_ids(rules: Sequence[RowRule]) -> str:
    if not rules:
        return _NO_IDS
    any_failed = " OR ".join(f"({rule.sql('read')})" for rule in rules)
    ids = ", ".join(case((rule.sql("read"), text(rule.rule_id))) for rule in rules)
    return case((any_failed, f"CAST(array_compact(array({ids})) AS ARRAY<STRING>)"), otherwise=_NO_IDS)


def _violations(screening: Screening) -> str:
    """Everything that is wrong with a record, in the order of the steps, then of the contract and the suite."""
    before = payload_faults("payload", "txt", screening.max_bytes)
    if screening.csv_columns is not None:
        syntax = csv_text.csv_faults("single")
    else:
        known = list(dict.fromkeys(f.name for f in screening.contract.walk()))
        syntax = json_text.json_faults("txt", "single", "raw IS NOT NULL", known)
    inside = _field_faults(screening)
    if screening.closed:
        inside.append(unknown_fields("names", [f.name for f in screening.fields], ""))
    inside.append(found([_rule_fault(screening, rule) for rule in _holding(screening)]))
    # a blank CSV record parses, into empty cells: what can be said of the bytes comes first
    return case((f"size({before}) > 0", before), ("raw IS NOT NULL", f"concat({', '.join(inside)})"), otherwise=syntax)


def _field_faults(screening: Screening) -> list[str]:
    """Violations arrays of the fields in contract order; neighbours without anything nested share one."""
    reader = _reader(screening)
    arrays: list[str] = []
    scalars: list[str] = []
    for i, field in enumerate(screening.fields):
        if field.kind not in (Kind.STRUCT, Kind.ARRAY):
            fault = reader.scalar_fault(field, _raw(field))
            if field.name == screening.event_id:
                blank = violation(RecordCode.MISSING_REQUIRED, field.path, "blank")
                fault = case((f"read.{quoted(field.name)} IS NOT NULL", blank), otherwise=fault)
            scalars.append(case((f"NOT f{i}", fault)))
            continue
        if scalars:
            arrays.append(found(scalars))
            scalars = []
        arrays.append(case((f"f{i}", NONE_FOUND), otherwise=reader.faults(field, _raw(field))))
    if scalars:
        arrays.append(found(scalars))
    return arrays


def _rule_fault(screening: Screening, rule: RowRule) -> str:
    """A rule judges a held record only by fields that could be read: what has no value breaks no rule."""
    terms = []
    for name in dict.fromkeys(column.split(".")[0] for column in rule.columns):
        flag = next(f"f{i}" for i, f in enumerate(screening.fields) if f.name == name)
        # a blank event id is unfit, but it was read
        terms.append(f"({flag} OR read.{quoted(name)} IS NOT NULL)" if name == screening.event_id else flag)
    terms.append(f"({rule.sql('read')})")
    return case((" AND ".join(terms), violation(rule.rule_id, rule.field, rule.detail)))
