"""The four steps in one pass: decode, contract, rules, verdict.

A chain of projections over the envelope; nothing is shuffled, counted or read twice. Each step's columns are used
several times by the next, so that Spark keeps the steps apart and evaluates each column once. What names a record's
violations is evaluated behind `when(not valid)`: valid records pay for the decision only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lazaretto.contracts import UNKNOWN_COLUMN, Contract, Field, Kind, UnknownFields
from lazaretto.errors import ConfigurationError
from lazaretto.rules import RowRule, RuleSet, Severity
from lazaretto.screening import csv_text, json_text
from lazaretto.screening.payload import decoded, payload_faults
from lazaretto.screening.reading import (
    JsonReader,
    members,
    none_found,
    unknown_fields,
    violation,
)

VALID, INVALID, FILTERED = "valid", "invalid", "filtered"

_ENVELOPE = ("source", "key", "headers", "source_time")


@dataclass(frozen=True)
class Screening:
    """What a dataset's records are held to.

    Attributes:
        contract, rules: both read and checked.
        event_id, event_time: the contract's columns that identify and date a record; required whatever it says.
        encoding: a Python codec name. max_bytes: the payload's cap.
        filter_tombstones: null values are skipped and counted instead of held.
        csv_columns: the header when payloads are CSV records; None for JSON.
    """

    contract: Contract
    rules: RuleSet
    event_id: str
    event_time: str
    encoding: str = "utf-8"
    max_bytes: int = 1_048_576
    filter_tombstones: bool = False
    csv_columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        identity = self.contract.find(self.event_id)
        if identity is None or identity.kind not in (Kind.STRING, Kind.INT, Kind.BIGINT):
            raise ConfigurationError(
                f"event_id: the contract has no top-level text or integer field {self.event_id!r}",
                remedy="name the contract's field that identifies an event",
            )
        time = self.contract.find(self.event_time)
        if time is None or time.kind is not Kind.TIMESTAMP or identity.path != identity.name or time.path != time.name:
            raise ConfigurationError(
                f"event_time: the contract has no top-level timestamp {self.event_time!r}",
                remedy="name the contract's field that says when an event happened",
            )

    @property
    def fields(self) -> tuple[Field, ...]:
        """The contract's fields, with those that every record must have marked as required."""
        needed = (self.event_id, self.event_time)
        return tuple(replace(f, required=f.required or f.name in needed) for f in self.contract.fields)


def screen(envelope: DataFrame, screening: Screening) -> DataFrame:
    """Judge every record of an envelope.

    Returns:
        One row per row of the envelope: `source, key, headers, source_time, payload, payload_sha256, payload_bytes,
        verdict, record, event_id, event_time, violations, warnings, degraded` (types: `commit.screened_ddl`).
        `verdict` is never NULL, `violations` is non-empty exactly where it is `invalid`.
    """
    parsed = _parse(_decode(envelope, screening), screening)
    return _verdict(_read(parsed, screening), screening)


def _decode(envelope: DataFrame, screening: Screening) -> DataFrame:
    value = F.col("value")
    return envelope.select(
        *_ENVELOPE,
        value.alias("payload"),
        F.sha2(value, 256).alias("payload_sha256"),
        F.octet_length(value).cast("BIGINT").alias("payload_bytes"),
        decoded(value, screening.encoding, screening.max_bytes).alias("text"),
    )


_CARRIED = (*_ENVELOPE, "payload", "payload_sha256", "payload_bytes", "text")


def _parse(df: DataFrame, screening: Screening) -> DataFrame:
    """Adds `single`, `value` (the parsed object, for `keep`), `names` (its keys) and a raw column per field."""
    if screening.csv_columns is not None:
        return csv_text.parse(df, _CARRIED, screening.csv_columns, screening.fields)
    seal = F.col("payload_sha256")
    sealed = df.select(*_CARRIED, json_text.sealed(F.col("text"), seal).alias("parsed"))
    value = sealed.select(
        *_CARRIED,
        json_text.is_single(F.col("parsed"), seal).alias("single"),
        json_text.first_value(F.col("parsed")).alias("value"),
    )
    top = value.select(
        *_CARRIED,
        "single",
        F.when(F.col("single"), F.col("value")).alias("value"),
        F.when(F.col("single"), members(F.col("value"), screening.fields)).alias("raw"),
    )
    closed = screening.contract.unknown is UnknownFields.FORBID
    names = F.when(F.col("raw").isNotNull(), F.json_object_keys("text") if closed else F.lit(None))
    return top.select("*", names.cast("ARRAY<STRING>").alias("names"))


def _reader(screening: Screening) -> JsonReader | csv_text.CsvReader:
    if screening.csv_columns is not None:
        return csv_text.CsvReader()
    return JsonReader(screening.contract, F.col("text"))


def _read(df: DataFrame, screening: Screening) -> DataFrame:
    """Adds `read` (STRUCT of the typed columns) and `fit` (STRUCT of a BOOLEAN per top-level field).

    Every value first gets a column of its own: a struct would be taken apart again by the optimizer, and each use of a
    field would evaluate it anew.
    """
    reader, fields = _reader(screening), screening.fields
    carried = (*_CARRIED, "single", "raw", "names")
    typed = [reader.value(f, F.col("raw")[f.name]).alias(f"v{i}") for i, f in enumerate(fields)]
    columns = [F.col(f"v{i}").alias(f.name) for i, f in enumerate(fields)]
    if screening.contract.unknown is UnknownFields.KEEP:
        typed.append(_kept(screening).alias("unknown"))
        columns.append(F.col("unknown").alias(UNKNOWN_COLUMN))
    values = df.select(*carried, *typed)
    fit = [_is_fit(reader, f, F.col(f"v{i}"), screening).alias(f"f{i}") for i, f in enumerate(fields)]
    judged = values.select("*", *fit)
    flags = [F.col(f"f{i}").alias(f.name) for i, f in enumerate(fields)]
    return judged.select(*carried, F.struct(*columns).alias("read"), F.struct(*flags).alias("fit"))


def _is_fit(
    reader: JsonReader | csv_text.CsvReader, field: Field, value: Column, screening: Screening
) -> Column:
    fit = reader.is_fit(field, F.col("raw")[field.name], value)
    if field.name == screening.event_id and field.kind is Kind.STRING:
        fit = fit & value.rlike(r"\S")
    return F.coalesce(fit, F.lit(False))


def _kept(screening: Screening) -> Column:
    known = F.array(*[F.lit(f.name) for f in screening.contract.fields])
    everything = F.try_variant_get(F.col("value"), "$", "MAP<STRING, VARIANT>")
    unknown = F.map_filter(everything, lambda name, _: ~F.array_contains(known, name))
    return F.when(F.size(unknown) > 0, F.try_parse_json(F.to_json(unknown)))


def _verdict(df: DataFrame, screening: Screening) -> DataFrame:
    held = [r for r in screening.rules.rows if r.severity is Severity.CRITICAL and r.degrade is None]
    degrading = [r for r in screening.rules.rows if r.degrade is not None]
    warning = [r for r in screening.rules.rows if r.severity is not Severity.CRITICAL and r.degrade is None]

    fits = F.coalesce(F.col("raw").isNotNull(), F.lit(False))
    for field in screening.fields:
        fits = fits & F.col("fit")[field.name]
    if screening.contract.unknown is UnknownFields.FORBID:
        # no unknown field exactly if there are as many keys as members that the contract names
        present = sum((F.col("raw")[f.name].isNotNull().cast("INT") for f in screening.fields), F.lit(0))
        fits = fits & (F.size("names") == present)
    valid = F.coalesce(fits, F.lit(False))
    for rule in held:
        valid = valid & ~rule.failed("read")
    if screening.filter_tombstones:
        verdict = F.when(F.col("payload").isNull(), FILTERED).when(valid, VALID).otherwise(INVALID)
    else:
        verdict = F.when(valid, VALID).otherwise(INVALID)

    judged = df.select("*", verdict.alias("verdict"))
    is_valid, is_invalid = F.col("verdict") == VALID, F.col("verdict") == INVALID
    return judged.select(
        *_ENVELOPE,
        "payload",
        "payload_sha256",
        "payload_bytes",
        "verdict",
        F.when(is_valid, _degraded(degrading)).alias("record"),
        F.col("read")[screening.event_id].cast("STRING").alias("event_id"),
        F.col("read")[screening.event_time].alias("event_time"),
        F.when(is_invalid, _violations(screening, held)).otherwise(none_found()).alias("violations"),
        F.when(is_valid, _failed_ids(warning)).otherwise(_no_ids()).alias("warnings"),
        F.when(is_valid, _failed_ids(degrading)).otherwise(_no_ids()).alias("degraded"),
    )


def _no_ids() -> Column:
    return F.array().cast("ARRAY<STRING>")


def _failed_ids(rules: Sequence[RowRule]) -> Column:
    if not rules:
        return _no_ids()
    any_failed = F.lit(False)
    for rule in rules:
        any_failed = any_failed | rule.failed("read")
    named = F.array_compact(F.array(*[F.when(r.failed("read"), F.lit(r.rule_id)) for r in rules]))
    return F.when(any_failed, named).otherwise(_no_ids())


def _degraded(rules: Sequence[RowRule]) -> Column:
    """`read`, with the fields of failed degrading rules replaced by their rule's value."""
    record = F.col("read")
    for rule in rules:
        assert rule.degrade is not None and rule.field is not None
        here = F.col("read")
        for part in rule.field.split("."):
            here = here[part]
        record = record.withField(rule.field, F.when(rule.failed("read"), F.lit(rule.degrade.value)).otherwise(here))
    return record


def _violations(screening: Screening, held: Sequence[RowRule]) -> Column:
    """Everything that is wrong with a record, in the order of the steps, then of the contract and the suite."""
    text, names = F.col("text"), F.col("names")
    fields = screening.fields
    before = payload_faults(F.col("payload"), text, screening.max_bytes)
    if screening.csv_columns is not None:
        syntax = csv_text.csv_faults(F.col("single"))
    else:
        known = list(dict.fromkeys(f.name for f in screening.contract.walk()))
        syntax = json_text.json_faults(text, F.col("single"), F.col("raw").isNotNull(), known)
    reader = _reader(screening)
    inside = [_field_faults(reader, f, screening) for f in fields]
    if screening.contract.unknown is UnknownFields.FORBID:
        inside.append(unknown_fields(names, [f.name for f in fields], ""))
    inside += [_rule_faults(rule, screening.event_id) for rule in held]
    return F.when(F.size(before) > 0, before).when(F.size(syntax) > 0, syntax).otherwise(F.concat(*inside))


def _field_faults(reader: JsonReader | csv_text.CsvReader, field: Field, screening: Screening) -> Column:
    faults = reader.faults(field, F.col("raw")[field.name])
    if field.name == screening.event_id:
        blank = violation("MISSING_REQUIRED", field.path, "blank")
        faults = F.when(F.col("read")[field.name].isNotNull(), F.array(blank)).otherwise(faults)
    return F.when(F.col("fit")[field.name], none_found()).otherwise(faults)


def _rule_faults(rule: RowRule, event_id: str) -> Column:
    """A rule judges a held record only by fields that could be read: what has no value breaks no rule."""
    readable = F.lit(True)
    for column in dict.fromkeys(c.split(".")[0] for c in rule.columns):
        fit = F.col("fit")[column]
        # a blank event id is unfit, but it was read
        readable = readable & (fit | F.col("read")[column].isNotNull() if column == event_id else fit)
    failed = readable & rule.failed("read")
    return F.when(failed, F.array(violation(rule.rule_id, rule.field, rule.detail))).otherwise(none_found())
