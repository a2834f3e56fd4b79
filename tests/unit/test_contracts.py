"""Contracts: an ODCS v3 file becomes columns, or is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lazaretto.contracts import Contract, Field, Kind, UnknownFields, quoted, read_contract
from lazaretto.errors import ContractError

HEAD = """\
apiVersion: v3.1.0
kind: DataContract
id: 00000000-0000-0000-0000-000000000001
name: things
version: 2.1.0
status: active
schema:
  - name: things
"""
PROPERTIES = "    properties:\n"
FIRST_LINE = len((HEAD + PROPERTIES).splitlines()) + 1

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(text: str) -> Path:
        file = tmp_path / "things.odcs.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return _write


@pytest.fixture
def fields(write: Write) -> Callable[..., Contract]:
    """The contract of some properties, each written in YAML's flow style."""

    def _fields(*properties: str, schema: str = "") -> Contract:
        listed = "".join(f"      - {p}\n" for p in properties)
        return read_contract(write(HEAD + schema + PROPERTIES + listed))

    return _fields


def test_the_orders_contract(repo_root: Path) -> None:
    contract = read_contract(repo_root / "conf/contracts/orders.odcs.yaml")
    assert contract.schema_id == "orders:1.0.0"
    assert contract.unknown is UnknownFields.FORBID
    assert contract.has_personal_data
    assert contract.ddl == (
        "`event_id` STRING, `event_type` STRING, `event_time` TIMESTAMP, `user_id` BIGINT, `amount` DECIMAL(10,2), "
        "`currency` STRING, `quantity` INT, `score` DOUBLE, `birth_date` DATE, "
        "`device` STRUCT<`os`: STRING, `version`: STRING>, `tags` ARRAY<STRING>"
    )
    assert [f.name for f in contract.fields if f.required] == [
        "event_id", "event_type", "event_time", "user_id", "amount", "currency", "quantity",
    ]  # fmt: skip
    assert [f.path for f in contract.walk() if f.personal] == ["birth_date"]
    assert [f.path for f in contract.walk()][-5:] == ["device", "device.os", "device.version", "tags", "tags[]"]


LOGICAL = {
    "string": "STRING", "boolean": "BOOLEAN", "integer": "BIGINT", "number": "DOUBLE", "date": "DATE",
    "timestamp": "TIMESTAMP",
}  # fmt: skip


@pytest.mark.parametrize("logical", LOGICAL)
def test_a_logical_type_alone(fields: Callable[..., Contract], logical: str) -> None:
    assert fields(f"{{name: a, logicalType: {logical}}}").ddl == f"`a` {LOGICAL[logical]}"


PHYSICAL = {
    "STRING": "STRING", "text": "STRING", "varchar": "STRING", "BOOLEAN": "BOOLEAN", "bool": "BOOLEAN",
    "TINYINT": "TINYINT", "byte": "TINYINT", "SMALLINT": "SMALLINT", "short": "SMALLINT", "INT": "INT",
    "integer": "INT", "BIGINT": "BIGINT", "long": "BIGINT", "FLOAT": "FLOAT", "real": "FLOAT", "DOUBLE": "DOUBLE",
    "DECIMAL": "DECIMAL(10,0)", "numeric": "DECIMAL(10,0)", "DECIMAL(38)": "DECIMAL(38,0)",
    "decimal(10, 2)": "DECIMAL(10,2)", "NUMERIC ( 5 , 5 )": "DECIMAL(5,5)", "DECIMAL(38,38)": "DECIMAL(38,38)",
    "DATE": "DATE", "TIMESTAMP": "TIMESTAMP", " int ": "INT",
}  # fmt: skip


@pytest.mark.parametrize("physical", PHYSICAL)
def test_a_physical_type_alone(fields: Callable[..., Contract], physical: str) -> None:
    assert fields(f'{{name: a, physicalType: "{physical}"}}').ddl == f"`a` {PHYSICAL[physical]}"


@pytest.mark.parametrize(
    ("logical", "physical"),
    [
        ("string", "STRING"), ("boolean", "BOOLEAN"), ("integer", "TINYINT"), ("integer", "DECIMAL(20,0)"),
        ("number", "INT"), ("number", "FLOAT"), ("number", "DECIMAL(10,2)"), ("date", "DATE"),
        ("timestamp", "TIMESTAMP"),
    ],
)  # fmt: skip
def test_where_both_types_agree_the_physical_one_counts(
    fields: Callable[..., Contract], logical: str, physical: str
) -> None:
    contract = fields(f'{{name: a, logicalType: {logical}, physicalType: "{physical}"}}')
    assert contract.ddl == f"`a` {physical}"


def test_every_kind_can_be_reached() -> None:
    reached = {ddl.split("(")[0] for ddl in (*LOGICAL.values(), *PHYSICAL.values())}
    assert reached == {k.value for k in Kind} - {"STRUCT", "ARRAY"}


def test_nested_objects_and_arrays(fields: Callable[..., Contract]) -> None:
    contract = fields(
        "{name: at, logicalType: object, required: true, properties: ["
        "{name: geo, logicalType: object, properties: ["
        "{name: lat, logicalType: number, required: true, classification: PII}]}]}",
        "{name: lines, logicalType: array, items: {logicalType: object, properties: ["
        '{name: sku, logicalType: string, required: true}, {name: price, physicalType: "DECIMAL(8,2)"}]}}',
        "{name: grid, physicalType: ARRAY, items: {logicalType: array, items: {physicalType: INT, required: true}}}",
    )
    assert contract.ddl == (
        "`at` STRUCT<`geo`: STRUCT<`lat`: DOUBLE>>, `lines` ARRAY<STRUCT<`sku`: STRING, `price`: DECIMAL(8,2)>>, "
        "`grid` ARRAY<ARRAY<INT>>"
    )
    assert [f.path for f in contract.walk()] == [
        "at", "at.geo", "at.geo.lat", "lines", "lines[]", "lines[].sku", "lines[].price", "grid", "grid[]", "grid[][]",
    ]  # fmt: skip
    assert [f.path for f in contract.walk() if f.required] == ["at", "at.geo.lat", "lines[].sku", "grid[][]"]
    assert contract.has_personal_data


def test_find_is_by_whole_path_and_case(fields: Callable[..., Contract]) -> None:
    contract = fields("{name: at, logicalType: object, properties: [{name: Lat, logicalType: number}]}")
    assert contract.find("at.Lat") == Field("Lat", "at.Lat", Kind.DOUBLE)
    assert contract.find("at.lat") is None
    assert contract.find("Lat") is None


def test_inside_objects_a_name_may_begin_with_an_underscore(fields: Callable[..., Contract]) -> None:
    contract = fields("{name: at, logicalType: object, properties: [{name: _source, logicalType: string}]}")
    assert contract.ddl == "`at` STRUCT<`_source`: STRING>"


@pytest.mark.parametrize("policy", UnknownFields)
def test_the_policy_for_unknown_fields(fields: Callable[..., Contract], policy: UnknownFields) -> None:
    schema = (
        f"    customProperties: [{{property: owner, value: me}}, {{property: additionalFields, value: {policy}}}]\n"
    )
    contract = fields("{name: a, logicalType: string}", schema=schema)
    assert contract.unknown is policy
    assert contract.ddl == ("`a` STRING, _unknown VARIANT" if policy is UnknownFields.KEEP else "`a` STRING")


def test_without_a_policy_a_contract_is_closed(fields: Callable[..., Contract]) -> None:
    contract = fields("{name: a, logicalType: string}")
    assert contract.unknown is UnknownFields.FORBID
    assert contract.schema_id == "things:2.1.0"
    assert not contract.has_personal_data


@pytest.mark.parametrize("word", ["personal", "PII", "sensitive", "confidential", "restricted", "special"])
def test_classifications_of_personal_data(fields: Callable[..., Contract], word: str) -> None:
    assert fields(f"{{name: a, logicalType: string, classification: {word}}}").has_personal_data


@pytest.mark.parametrize("word", ["public", "internal"])
def test_other_classifications_are_not_personal(fields: Callable[..., Contract], word: str) -> None:
    assert not fields(f"{{name: a, logicalType: string, classification: {word}}}").has_personal_data


def test_names_are_quoted() -> None:
    assert quoted("a`b c") == "`a``b c`"


def test_what_the_standard_has_beside_types_is_allowed(fields: Callable[..., Contract]) -> None:
    contract = fields(
        "{name: a, businessName: A, description: an a, logicalType: string, primaryKey: true, examples: [x], tags: [t],"
        " customProperties: [{property: mine, value: {any: thing}}]}"
    )
    assert contract.ddl == "`a` STRING"


REFUSED = {
    "unknown logical type": ("{name: a, logicalType: time}", "a: logicalType 'time' is not supported", "one of: str"),
    "unknown physical type": ("{name: a, physicalType: BINARY}", "a: physicalType 'BINARY' is not supported", "STRING"),
    "map": ('{name: a, physicalType: "MAP<STRING,INT>"}', "physicalType 'MAP<STRING,INT>' is not supported", "one of"),
    "timestamp without zone": ("{name: a, physicalType: TIMESTAMP_NTZ}", "'TIMESTAMP_NTZ' is not supported", "one of"),
    "empty type": ('{name: a, physicalType: ""}', "a: physicalType '' is not supported", "one of"),
    "no type": ("{name: a}", "a: no type", "give logicalType or physicalType"),
    "text that is a number": (
        "{name: a, logicalType: string, physicalType: INT}", "'INT' does not fit logicalType 'string'", "agree",
    ),
    "integer that has decimals": (
        "{name: a, logicalType: integer, physicalType: DOUBLE}", "'DOUBLE' does not fit logicalType 'integer'", "agree",
    ),
    "date that is a timestamp": (
        "{name: a, logicalType: date, physicalType: TIMESTAMP}", "does not fit logicalType 'date'", "agree",
    ),
    "object that is an array": (
        "{name: a, logicalType: object, physicalType: ARRAY}", "does not fit logicalType 'object'", "agree",
    ),
    "decimal too wide": ('{name: a, physicalType: "DECIMAL(39,2)"}', "DECIMAL(39,2) is not a decimal type", "1 to 38"),
    "decimal of nothing": ('{name: a, physicalType: "DECIMAL(0)"}', "DECIMAL(0,0) is not a decimal type", "1 to 38"),
    "scale beyond precision": ('{name: a, physicalType: "DECIMAL(2,3)"}', "DECIMAL(2,3) is not a decimal", "at most"),
    "scale below zero": ('{name: a, physicalType: "DECIMAL(10,-2)"}', "'DECIMAL(10,-2)' is not supported", "one of"),
    "decimal of letters": ('{name: a, physicalType: "DECIMAL(p,s)"}', "'DECIMAL(p,s)' is not supported", "one of"),
    "decimal left open": ('{name: a, physicalType: "DECIMAL(10,2"}', "'DECIMAL(10,2' is not supported", "one of"),
    "underscore": ("{name: _source, logicalType: string}", "field '_source' begins with an underscore", "rename it"),
    "dot": ("{name: a.b, logicalType: string}", "'a.b': a field needs a name, without", "rename it"),
    "brackets": ('{name: "a[]", logicalType: string}', "'a[]': a field needs a name, without", "rename it"),
    "substitution": ('{name: "a${b}", logicalType: string}', "'a${b}': a field needs a name, without", "rename it"),
    "substitution below": (
        '{name: o, logicalType: object, properties: [{name: "${b}", logicalType: string}]}', "'o.${b}': a field", "re",
    ),
    "line end": ('{name: "a\\nb", logicalType: string}', "'a\\nb': a field needs a name, without", "rename it"),
    "no name": ("{logicalType: string}", "'': a field needs a name", "rename it"),
    "empty name": ('{name: "", logicalType: string}', "'': a field needs a name", "rename it"),
    "object without properties": ("{name: a, logicalType: object}", "a: an object without properties", "properties:"),
    "array without items": ("{name: a, logicalType: array}", "a: an array without items", "describe its `items:`"),
    "mistake in an item": (
        "{name: a, logicalType: array, items: {logicalType: time}}", "a[]: logicalType 'time' is not", "one of",
    ),
    "mistake deep below": (
        "{name: a, logicalType: array, items: {logicalType: object, properties: [{name: b}]}}", "a[].b: no type", "or",
    ),
    "required that is no boolean": (
        "{name: a, logicalType: string, required: perhaps}", "schema.0.properties.0.required: ", "mend this key",
    ),
    "name that is no text": ("{name: 3, logicalType: string}", "schema.0.properties.0.name: ", "mend this key"),
    "unknown key": ("{name: a, logicalType: string, requird: true}", "unknown key requird", "did you mean `required`?"),
    "unknown key deep below": (
        "{name: a, logicalType: array, items: {logicalType: string, nulable: 1}}", "unknown key nulable", "custom",
    ),
    "key twice": ("{name: a, logicalType: string, name: b}", "key name stands here twice", "keep one of them"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_property_is_refused(fields: Callable[..., Contract], name: str) -> None:
    written, what, remedy = REFUSED[name]
    with pytest.raises(ContractError) as caught:
        fields("{name: fine, logicalType: string}", written.replace("properties.0", "properties.1"))
    error = caught.value
    assert what.replace("properties.0", "properties.1") in str(error)
    assert remedy in (error.remedy or "")
    assert "things.odcs.yaml" in (error.where or "")
    assert len(str(error).splitlines()) == 1
    if what.startswith(("unknown key", "key ")):
        assert (error.where or "").endswith(f":{FIRST_LINE + 1}")


@pytest.mark.parametrize("other", ["a", "A"])
def test_names_that_a_table_cannot_tell_apart(fields: Callable[..., Contract], other: str) -> None:
    text = f"fields 'a' and '{other}' differ by case alone or are the same"
    with pytest.raises(ContractError, match=text):
        fields("{name: a, logicalType: string}", f"{{name: {other}, logicalType: integer}}")
    inner = f"[{{name: a, logicalType: string}}, {{name: {other}, logicalType: string}}]"
    with pytest.raises(ContractError, match=text):
        fields(f"{{name: o, logicalType: object, properties: {inner}}}")


def test_an_unknown_policy(fields: Callable[..., Contract]) -> None:
    with pytest.raises(ContractError, match=r"additionalFields is 'drop' \(next: one of: forbid, ignore, keep\)$"):
        fields(
            "{name: a, logicalType: string}",
            schema="    customProperties: [{property: additionalFields, value: drop}]\n",
        )


ONE = "{name: a, properties: [{name: x, logicalType: string}]}"
TOP = HEAD.split("schema:", maxsplit=1)[0]
NO_CONTRACT = {
    "no properties": (HEAD, "has no properties"),
    "no schema": (TOP, "has 0 schemas, one is expected"),
    "two schemas": (f"{TOP}schema: [{ONE}, {ONE}]\n", "has 2 schemas, one is expected"),
    "version 2": (TOP.replace("v3.1.0", "v2.2.2"), "apiVersion is not v3.x"),
    "no version": (TOP.replace("apiVersion: v3.1.0\n", "") + f"schema: [{ONE}]\n", "apiVersion is not v3.x"),
    "unknown key at the top": (TOP + "owner: me\n", "owner"),
    "unknown key of the schema": (f"{TOP}schema: [{{name: a, propertis: []}}]\n", "unknown key propertis"),
    "nothing": ("", "not an ODCS v3 contract"),
    "a list": ("- a\n", "not an ODCS v3 contract"),
    "a word": ("contract\n", "not an ODCS v3 contract"),
    "schema that is no list": (TOP + "schema: orders\n", "schema"),
    "items without an end": (
        f"{TOP}schema: [{{name: a, properties: [&x {{name: l, logicalType: array, items: *x}}]}}]\n", "items",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_CONTRACT)
def test_a_file_is_refused(write: Write, name: str) -> None:
    text, what = NO_CONTRACT[name]
    file = write(text)
    with pytest.raises(ContractError) as caught:
        read_contract(file)
    assert what in caught.value.what
    assert (caught.value.where or "").startswith(str(file))
    assert caught.value.remedy


def test_a_yaml_error_has_its_line(write: Write) -> None:
    file = write(HEAD + "    properties: [\n")
    with pytest.raises(ContractError) as caught:
        read_contract(file)
    assert str(caught.value) == f"{file}:{len(HEAD.splitlines()) + 2}: not valid YAML (next: mend the YAML)"


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"cannot read the contract file \(FileNotFoundError\)"):
        read_contract(tmp_path / "none.yaml")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(b"apiVersion: \xff\n")
    with pytest.raises(ContractError, match="UnicodeDecodeError"):
        read_contract(file)
