"""Read an Open Data Contract Standard v3 file into a `Contract`.

The file is parsed by the `open-data-contract-standard` package; this module only translates, and refuses what the
engine cannot hold a record to. Format: Open Data Contract Standard v3, Bitol project.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import yaml
from open_data_contract_standard.model import OpenDataContractStandard
from pydantic import BaseModel, ValidationError

from lazaretto.contracts.model import UNKNOWN_COLUMN, Contract, Field, Kind, UnknownFields
from lazaretto.errors import ContractError

_PHYSICAL = {
    "STRING": Kind.STRING, "TEXT": Kind.STRING, "VARCHAR": Kind.STRING,
    "BOOLEAN": Kind.BOOLEAN, "BOOL": Kind.BOOLEAN,
    "TINYINT": Kind.TINYINT, "BYTE": Kind.TINYINT, "SMALLINT": Kind.SMALLINT, "SHORT": Kind.SMALLINT,
    "INT": Kind.INT, "INTEGER": Kind.INT, "BIGINT": Kind.BIGINT, "LONG": Kind.BIGINT,
    "FLOAT": Kind.FLOAT, "REAL": Kind.FLOAT, "DOUBLE": Kind.DOUBLE,
    "DECIMAL": Kind.DECIMAL, "NUMERIC": Kind.DECIMAL,
    "DATE": Kind.DATE, "TIMESTAMP": Kind.TIMESTAMP,
    "STRUCT": Kind.STRUCT, "ARRAY": Kind.ARRAY,
}  # fmt: skip
_LOGICAL = {
    "string": Kind.STRING, "boolean": Kind.BOOLEAN, "integer": Kind.BIGINT, "number": Kind.DOUBLE,
    "date": Kind.DATE, "timestamp": Kind.TIMESTAMP, "object": Kind.STRUCT, "array": Kind.ARRAY,
}  # fmt: skip
_FITS = {
    "string": {Kind.STRING},
    "boolean": {Kind.BOOLEAN},
    "integer": {Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.DECIMAL},
    "number": {Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL, Kind.INT, Kind.BIGINT, Kind.SMALLINT, Kind.TINYINT},
    "date": {Kind.DATE},
    "timestamp": {Kind.TIMESTAMP},
    "object": {Kind.STRUCT},
    "array": {Kind.ARRAY},
}
_PERSONAL = frozenset({"personal", "pii", "sensitive", "confidential", "restricted", "special"})
_SIZED = re.compile(r"^(DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)$")
_PLAIN = re.compile(r"^([A-Z_]+)\s*(?:[(<].*)?$")


def read_contract(path: Path) -> Contract:
    """Read and check a contract file.

    Raises:
        ContractError: the file is missing, is not ODCS v3, or names a type that cannot be enforced exactly.
    """
    where = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ContractError(
            f"cannot read the contract file ({type(exc).__name__})", where=where, remedy="check `contract:`"
        ) from exc
    try:
        document = OpenDataContractStandard.from_string(text)
    except yaml.YAMLError as exc:
        raise ContractError("not valid YAML", where=f"{where}{_line(exc)}", remedy="mend the YAML") from exc
    except ValidationError as exc:
        first = exc.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ContractError(
            f"not an ODCS v3 contract: {place}: {first['msg']}", where=where, remedy="mend this key"
        ) from exc
    except (TypeError, ValueError, AttributeError) as exc:
        raise ContractError("not an ODCS v3 contract", where=where, remedy="see the ODCS v3 standard") from exc
    _refuse_unknown_keys(yaml.compose(text, Loader=yaml.SafeLoader), document, where)
    return _contract(document, where)


def _refuse_unknown_keys(node: yaml.Node | None, parsed: Any, where: str) -> None:
    """Refuse keys that the standard does not have, and keys written twice.

    The package drops unknown ones below the top without a word: `requird: true` would make a field optional.
    """
    if isinstance(node, yaml.SequenceNode) and isinstance(parsed, list):
        for each, value in zip(node.value, parsed, strict=False):
            _refuse_unknown_keys(each, value, where)
    if not isinstance(node, yaml.MappingNode) or not isinstance(parsed, BaseModel):
        return
    names = {field.alias or name: name for name, field in type(parsed).model_fields.items()}
    seen: set[str] = set()
    for key, value in node.value:
        at = f"{where}:{key.start_mark.line + 1}"
        if key.value in seen:
            raise ContractError(f"key {key.value} stands here twice", where=at, remedy="keep one of them")
        seen.add(key.value)
        if key.value in names:
            _refuse_unknown_keys(value, getattr(parsed, names[key.value]), where)
        elif key.value != "<<":
            near = difflib.get_close_matches(key.value, names, n=1)
            hint = f"did you mean `{near[0]}`?" if near else "put what is your own under `customProperties:`"
            raise ContractError(f"unknown key {key.value}", where=at, remedy=hint)


def _line(exc: yaml.YAMLError) -> str:
    mark = getattr(exc, "problem_mark", None)
    return f":{mark.line + 1}" if mark is not None else ""


def _contract(document: OpenDataContractStandard, where: str) -> Contract:
    if not str(document.apiVersion or "").startswith("v3."):
        raise ContractError("apiVersion is not v3.x", where=where, remedy="write the contract in ODCS v3")
    schemas = document.schema_ or []
    if len(schemas) != 1:
        raise ContractError(
            f"has {len(schemas)} schemas, one is expected", where=where, remedy="keep one object in `schema:`"
        )
    schema = schemas[0]
    fields = _fields(schema.properties or [], "", where)
    if not fields:
        raise ContractError("has no properties", where=where, remedy="list the fields under `properties:`")
    reserved = [f.name for f in fields if f.name.startswith("_")]
    if reserved:
        raise ContractError(
            f"field {reserved[0]!r} begins with an underscore", where=where,
            remedy=f"rename it: such names belong to the tables ({UNKNOWN_COLUMN}, _source, ...)",
        )  # fmt: skip
    return Contract(
        name=document.name or schema.name or "contract",
        version=document.version or "0",
        fields=fields,
        unknown=_policy(schema.customProperties or [], where),
    )


def _policy(properties: list[Any], where: str) -> UnknownFields:
    for entry in properties:
        if entry.property == "additionalFields":
            try:
                return UnknownFields(str(entry.value))
            except ValueError:
                known = ", ".join(UnknownFields)
                raise ContractError(
                    f"additionalFields is {entry.value!r}", where=where, remedy=f"one of: {known}"
                ) from None
    return UnknownFields.FORBID


def _fields(properties: list[Any], prefix: str, where: str) -> tuple[Field, ...]:
    fields = tuple(_field(p, f"{prefix}{p.name or ''}", where) for p in properties)
    seen: dict[str, str] = {}
    for field in fields:
        # Delta column names are case-insensitive, so two fields may not differ by case alone.
        other = seen.get(field.name.lower())
        seen[field.name.lower()] = field.name
        if other is not None:
            raise ContractError(
                f"fields {other!r} and {field.name!r} differ by case alone or are the same", where=where,
                remedy="rename one: a table cannot hold both",
            )  # fmt: skip
    return fields


def _field(prop: Any, path: str, where: str) -> Field:
    if not prop.name or any(mark in prop.name for mark in (".", "[]", "${", "\n", "\r")):
        # Spark would replace ${name} in SQL text by a setting, even in quotes
        raise ContractError(
            f"{path!r}: a field needs a name, without `.`, `[]`, `${{` and line ends", where=where, remedy="rename it"
        )
    kind, precision, scale = _kind(prop, path, where)
    children: tuple[Field, ...] = ()
    item: Field | None = None
    if kind is Kind.STRUCT:
        children = _fields(prop.properties or [], f"{path}.", where)
        if not children:
            raise ContractError(f"{path}: an object without properties", where=where, remedy="list its `properties:`")
    if kind is Kind.ARRAY:
        if prop.items is None:
            raise ContractError(f"{path}: an array without items", where=where, remedy="describe its `items:`")
        element = prop.items.model_copy(update={"name": prop.items.name or "item"})
        item = _field(element, f"{path}[]", where)
    return Field(
        name=prop.name,
        path=path,
        kind=kind,
        required=bool(prop.required),
        personal=(prop.classification or "").lower() in _PERSONAL,
        precision=precision,
        scale=scale,
        children=children,
        item=item,
    )


def _kind(prop: Any, path: str, where: str) -> tuple[Kind, int, int]:
    logical = prop.logicalType
    if logical is not None and logical not in _LOGICAL:
        raise ContractError(
            f"{path}: logicalType {logical!r} is not supported", where=where, remedy=f"one of: {', '.join(_LOGICAL)}"
        )
    if prop.physicalType is None:
        if logical is None:
            raise ContractError(f"{path}: no type", where=where, remedy="give logicalType or physicalType")
        return _LOGICAL[logical], 0, 0
    physical = prop.physicalType.strip().upper()
    sized = _SIZED.match(physical)
    plain = _PLAIN.match(physical)
    kind = Kind.DECIMAL if sized else _PHYSICAL.get(plain.group(1)) if plain else None
    if kind is None or (kind is Kind.DECIMAL and not sized and physical not in ("DECIMAL", "NUMERIC")):
        raise ContractError(
            f"{path}: physicalType {prop.physicalType!r} is not supported", where=where,
            remedy=f"one of: {', '.join(k.value for k in Kind)}",
        )  # fmt: skip
    if logical is not None and kind not in _FITS[logical]:
        raise ContractError(
            f"{path}: physicalType {prop.physicalType!r} does not fit logicalType {logical!r}", where=where,
            remedy="make the two agree",
        )  # fmt: skip
    if kind is not Kind.DECIMAL:
        return kind, 0, 0
    precision, scale = (int(sized.group(2)), int(sized.group(3) or 0)) if sized else (10, 0)
    if not 0 < precision <= 38 or scale > precision:
        raise ContractError(
            f"{path}: DECIMAL({precision},{scale}) is not a decimal type", where=where,
            remedy="precision 1 to 38, scale at most the precision",
        )  # fmt: skip
    return kind, precision, scale
