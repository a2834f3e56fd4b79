"""What a dataset's records are held to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lazaretto.contracts import Contract, Field, Kind, UnknownFields
from lazaretto.errors import ConfigurationError
from lazaretto.rules import RuleSet
from lazaretto.screening.payload import java_charset


@dataclass(frozen=True, eq=False)
class Screening:
    """What a dataset's records are held to; compared by identity, so that its SQL is put together once.

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
        where = f"contract {self.contract.schema_id}"
        identity = next((f for f in self.contract.fields if f.name == self.event_id), None)
        if identity is None or identity.kind not in (Kind.STRING, Kind.INT, Kind.BIGINT):
            raise ConfigurationError(
                f"event_id: there is no top-level text or integer field {self.event_id!r}", where=where,
                remedy="name the field that identifies an event",
            )  # fmt: skip
        time = next((f for f in self.contract.fields if f.name == self.event_time), None)
        if time is None or time.kind is not Kind.TIMESTAMP:
            raise ConfigurationError(
                f"event_time: there is no top-level timestamp {self.event_time!r}", where=where,
                remedy="name the field that says when an event happened",
            )  # fmt: skip
        java_charset(self.encoding)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The contract's fields, with those that every record must have marked as required."""
        needed = (self.event_id, self.event_time)
        return tuple(replace(f, required=f.required or f.name in needed) for f in self.contract.fields)

    @property
    def closed(self) -> bool:
        """Whether a field that the contract does not name is a violation."""
        return self.contract.unknown is UnknownFields.FORBID
