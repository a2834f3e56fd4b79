"""The screened DataFrame: what screening hands to the commit, one row per row of the envelope."""

from __future__ import annotations

from enum import StrEnum

from lazaretto.contracts import UNKNOWN_COLUMN, Contract, UnknownFields, quoted


class Verdict(StrEnum):
    """What screening decided about a record."""

    VALID = "valid"
    INVALID = "invalid"
    FILTERED = "filtered"


SOURCE_DDL = "STRUCT<`system`: STRING, `stream`: STRING, `partition`: STRING, `position`: BIGINT>"
"""The coordinate of a record."""

HEADERS_DDL = "ARRAY<STRUCT<`key`: STRING, `value`: BINARY>>"
VIOLATIONS_DDL = "ARRAY<STRUCT<`code`: STRING, `field`: STRING, `detail`: STRING>>"


def record_ddl(contract: Contract) -> str:
    """The type of `record`: a struct of the contract's columns, with `_unknown` VARIANT under `keep`."""
    fields = [f"{quoted(f.name)}: {f.ddl}" for f in contract.fields]
    if contract.unknown is UnknownFields.KEEP:
        fields.append(f"{quoted(UNKNOWN_COLUMN)}: VARIANT")
    return f"STRUCT<{', '.join(fields)}>"


def columns_of(contract: Contract) -> tuple[str, ...]:
    """The names of the contract's columns, in order, as they stand first in bronze."""
    kept = (UNKNOWN_COLUMN,) if contract.unknown is UnknownFields.KEEP else ()
    return (*(f.name for f in contract.fields), *kept)


def screened_ddl(contract: Contract) -> str:
    """The schema of the screened DataFrame, as Spark DDL.

    source          the coordinate; unique within the batch
    key             bytes of the source's key
    headers         as the source gave them
    source_time     as the source says
    payload         always the bytes as received; null for a tombstone
    payload_sha256  64 hex digits, lower case; null for a null payload
    payload_bytes   size of the payload, bytes; null for a null payload
    verdict         one of `Verdict`
    record          the contract's columns; null unless valid
    event_id        as text; never null or blank when valid, best effort otherwise
    event_time      never null when valid, best effort otherwise
    violations      every violation in the contract's order, the first decides the class; empty unless invalid
    warnings        ids of the warning rules that failed
    degraded        fields that were given their default value
    """
    return ", ".join(
        (
            f"source {SOURCE_DDL}",
            "key BINARY",
            f"headers {HEADERS_DDL}",
            "source_time TIMESTAMP",
            "payload BINARY",
            "payload_sha256 STRING",
            "payload_bytes BIGINT",
            "verdict STRING",
            f"record {record_ddl(contract)}",
            "event_id STRING",
            "event_time TIMESTAMP",
            f"violations {VIOLATIONS_DDL}",
            "warnings ARRAY<STRING>",
            "degraded ARRAY<STRING>",
        )
    )
