"""A contract as plain values: what each record of a dataset must look like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The types a field can have; the value is the Spark SQL name."""

    STRING = "STRING"
    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    STRUCT = "STRUCT"
    ARRAY = "ARRAY"


INTEGERS = frozenset({Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT})
NUMBERS = INTEGERS | {Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL}


class UnknownFields(StrEnum):
    """What happens to a field that the contract does not name."""

    FORBID = "forbid"
    IGNORE = "ignore"
    KEEP = "keep"


UNKNOWN_COLUMN = "_unknown"
"""The VARIANT column that holds unknown top-level fields under `keep`."""


@dataclass(frozen=True)
class Field:
    """One field of a contract.

    Attributes:
        name: its key in the record, case-sensitive.
        path: dotted path from the record's top; items of an array end in `[]` (`tags[]`, `lines[].sku`).
        kind: its type; `precision` and `scale` go with DECIMAL only.
        required: absent and null are violations.
        personal: classified as personal data (ODCS `classification`).
        children: the fields of a STRUCT, in contract order.
        item: the element of an ARRAY.
    """

    name: str
    path: str
    kind: Kind
    required: bool = False
    personal: bool = False
    precision: int = 0
    scale: int = 0
    children: tuple[Field, ...] = ()
    item: Field | None = None

    @property
    def ddl(self) -> str:
        """The Spark SQL type, such as `DECIMAL(10,2)` or `STRUCT<`os`: STRING>`."""
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({self.precision},{self.scale})"
        if self.kind is Kind.STRUCT:
            return "STRUCT<" + ", ".join(f"{quoted(c.name)}: {c.ddl}" for c in self.children) + ">"
        if self.kind is Kind.ARRAY:
            assert self.item is not None
            return f"ARRAY<{self.item.ddl}>"
        return self.kind.value

    def walk(self) -> Iterator[Field]:
        """This field, then everything below it, in contract order."""
        yield self
        for child in self.children:
            yield from child.walk()
        if self.item is not None:
            yield from self.item.walk()


@dataclass(frozen=True)
class Contract:
    """A dataset's contract.

    Attributes:
        name: the ODCS contract's name; schema_id is `name:version`, as written to every row.
        fields: top-level fields in order: the first columns of the bronze table.
        unknown: the policy for fields that are not named, at the top and inside objects.
    """

    name: str
    version: str
    fields: tuple[Field, ...]
    unknown: UnknownFields = UnknownFields.FORBID

    @property
    def schema_id(self) -> str:
        return f"{self.name}:{self.version}"

    @property
    def ddl(self) -> str:
        """The contract's columns as DDL, with `_unknown` under `keep`."""
        columns = [f"{quoted(f.name)} {f.ddl}" for f in self.fields]
        if self.unknown is UnknownFields.KEEP:
            columns.append(f"{UNKNOWN_COLUMN} VARIANT")
        return ", ".join(columns)

    @property
    def has_personal_data(self) -> bool:
        return any(f.personal for f in self.walk())

    def walk(self) -> Iterator[Field]:
        for field in self.fields:
            yield from field.walk()

    def find(self, path: str) -> Field | None:
        """The field at a dotted path, or None. Case-sensitive."""
        return next((f for f in self.walk() if f.path == path), None)


def quoted(name: str) -> str:
    """A name as a Spark SQL identifier."""
    return "`" + name.replace("`", "``") + "`"
