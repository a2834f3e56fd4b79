"""Read a parsed JSON value into a contract's type: exactly, or not at all.

The value arrives as a VARIANT, because only a VARIANT still knows the JSON token a value came from: `from_json` turns
numbers into text, text into numbers, rounds decimals through DOUBLE and drops doubled keys. All functions take and give
SQL text. `value` is NULL where the value is absent, null or unfit; `fit` tells these apart; `faults` names what is
wrong, and is evaluated for held records only.
"""

from __future__ import annotations

from collections.abc import Sequence

from lazaretto.contracts import INTEGERS, Contract, Field, Kind, UnknownFields, quoted
from lazaretto.errors import RecordCode
from lazaretto.screening.forms import date_value, is_finite, is_too_fine, timestamp_value
from lazaretto.screening.sql import NONE_FOUND, case, found, matches, only, text, texts, violation, violation_of

MAX_LISTED = 100
"""Unknown fields listed per object; what is beyond is counted in the last one's detail."""
MAX_NAME = 200
"""Characters kept of an unknown field's name: names come from the record and may be of any length."""

# The parser keeps numbers with an exponent, and those of more than 38 digits, as DOUBLE only. The shortest text of a
# double is what was written as long as that had at most 15 significant digits (IEEE 754 binary64). A record that holds
# a longer one anywhere is not trusted with an exact type out of a DOUBLE; only such records are searched.
_ROUNDED_BY_PARSER = r"[:\[,]\s*-?(?:[0-9.]{39,}|[0-9.]{17,}[eE])"
_EXACT_DIGITS = 15

_FORM = {
    Kind.DATE: "date of the form yyyy-MM-dd",
    Kind.TIMESTAMP: "date-time with offset of the form yyyy-MM-ddTHH:mm:ss[.ffffff](Z|+HH:mm)",
}


def token(x: str) -> str:
    """The JSON type of a VARIANT: VOID, BOOLEAN, BIGINT, DECIMAL(p,s), DOUBLE, STRING, OBJECT<..>, ARRAY<..>."""
    return f"schema_of_variant({x})"


def taken(x: str, ddl: str) -> str:
    """A VARIANT as another type, or NULL."""
    return f"try_variant_get({x}, '$', {text(ddl)})"


def members(x: str, fields: Sequence[Field]) -> str:
    """STRUCT of VARIANTs with the named members of an object; NULL where it is none."""
    return taken(x, "STRUCT<" + ", ".join(f"{quoted(f.name)}: VARIANT" for f in fields) + ">")


def elements(x: str) -> str:
    """ARRAY of VARIANTs; NULL where the value is no array."""
    return taken(x, "ARRAY<VARIANT>")


def names_of(x: str) -> str:
    """The keys of an object (each once); NULL where it is none."""
    return f"map_keys({taken(x, 'MAP<STRING, VARIANT>')})"


def is_missing(x: str) -> str:
    """TRUE where a member is absent or a JSON null."""
    return f"({x} IS NULL OR is_variant_null({x}))"


class JsonReader:
    """Reads VARIANTs by the fields of one contract.

    Args:
        contract: `forbid` holds inside nested objects, too; nested unknown fields are dropped under `ignore` and
            `keep`, which keeps top-level ones.
        json_text: SQL of the record's text.
    """

    def __init__(self, contract: Contract, json_text: str) -> None:
        self._closed = contract.unknown is UnknownFields.FORBID
        self._trusted = f"NOT {matches(json_text, _ROUNDED_BY_PARSER)}"

    def value(self, field: Field, x: str, parts: str | None = None) -> str:
        """The typed value, or NULL. `parts` is a column that holds `members` of a STRUCT already."""
        if field.kind is Kind.STRUCT:
            parts = parts or members(x, field.children)
            typed = [text(c.name) + ", " + self.value(c, f"{parts}.{quoted(c.name)}") for c in field.children]
            whole = case((f"{parts} IS NOT NULL", "named_struct(" + ", ".join(typed) + ")"))
            return f"CAST({whole} AS {field.ddl})"
        if field.kind is Kind.ARRAY:
            item = _item(field)
            if _is_plain(item):
                return case((f"{token(x)} IN ('ARRAY<{item.kind}>', 'ARRAY<VOID>')", taken(x, field.ddl)))
            e = _variable(field)
            return f"CAST(transform({elements(x)}, {e} -> {self.value(item, e)}) AS {field.ddl})"
        return self._scalar(field, x)

    def fit(self, field: Field, x: str, value: str, parts: str | None = None) -> str:
        """TRUE where the member is what the contract asks for; never NULL."""
        terms = [f"{value} IS NOT NULL"]
        if field.kind is Kind.STRUCT:
            parts = parts or members(x, field.children)
            for child in field.children:
                name = quoted(child.name)
                terms.append(self.fit(child, f"{parts}.{name}", f"{value}.{name}"))
            if self._closed:
                known = " + ".join(f"int({parts}.{quoted(c.name)} IS NOT NULL)" for c in field.children)
                terms.append(f"size({names_of(x)}) = {known}")
        elif field.kind is Kind.ARRAY and not _is_plain(_item(field)):
            e, v = _variable(field), _variable(field, "v")
            each = f"zip_with({elements(x)}, {value}, ({e}, {v}) -> {self.fit(_item(field), e, v)})"
            terms.append(f"forall({each}, ok -> ok)")
        fit = f"coalesce({' AND '.join(terms)}, false)"
        return fit if field.required else f"({is_missing(x)} OR {fit})"

    def faults(self, field: Field, x: str) -> str:
        """The violations array of one member, nested ones included; empty where it is fit."""
        if field.kind not in (Kind.STRUCT, Kind.ARRAY):
            return found([case((f"{self._scalar(field, x)} IS NULL", self.scalar_fault(field, x)))])
        if field.kind is Kind.STRUCT:
            parts = members(x, field.children)
            inner = [self.faults(c, f"{parts}.{quoted(c.name)}") for c in field.children]
            if self._closed:
                inner.append(unknown_fields(names_of(x), [c.name for c in field.children], f"{field.path}."))
            is_one, inside = f"{parts} IS NOT NULL", f"concat({', '.join(inner)})"
        else:
            e = _variable(field)
            each = f"transform({elements(x)}, {e} -> {self.faults(_item(field), e)})"
            is_one, inside = f"{elements(x)} IS NOT NULL", f"array_distinct(flatten({each}))"
        missing = only(_missing(field)) if field.required else NONE_FOUND
        wrong = only(violation_of(RecordCode.TYPE_MISMATCH, text(field.path), _expected(field, x)))
        return case((is_missing(x), missing), (is_one, inside), otherwise=wrong)

    def scalar_fault(self, field: Field, x: str) -> str:
        """What is wrong with a member that has no value; NULL where it is missing and may be."""
        missing = _missing(field) if field.required else "NULL"
        return case((is_missing(x), missing), otherwise=self._unfit(field, x))

    @staticmethod
    def _unfit(field: Field, x: str) -> str:
        mismatch = violation_of(RecordCode.TYPE_MISMATCH, text(field.path), _expected(field, x))
        kind, is_text = field.kind, f"{token(x)} = 'STRING'"
        if kind in _FORM:
            bad = violation(RecordCode.BAD_TIMESTAMP, field.path, f"not a real {_FORM[kind]}")
            if kind is Kind.TIMESTAMP:
                fine = violation(RecordCode.PRECISION_LOSS, field.path, "finer than a microsecond")
                bad = case((is_too_fine(taken(x, "STRING")), fine), otherwise=bad)
            return case((is_text, bad), otherwise=mismatch)
        if kind in (Kind.STRING, Kind.BOOLEAN):
            return mismatch
        too_large = violation(RecordCode.OUT_OF_RANGE, field.path, f"does not fit {field.ddl}")
        if kind in (Kind.FLOAT, Kind.DOUBLE):
            return case((_is_number(x), too_large), otherwise=mismatch)
        rounded = violation(RecordCode.PRECISION_LOSS, field.path, f"fits {field.ddl} only after rounding")
        # what rounds into the type at all is a matter of precision, the rest is a matter of range
        whole = "DECIMAL(38,0)" if kind in INTEGERS else field.ddl
        fits = case(
            (f"{token(x)} = 'DOUBLE'", f"try_cast(try_cast(string({taken(x, 'DOUBLE')}) AS {whole}) AS {field.ddl})"),
            otherwise=f"try_cast({taken(x, whole)} AS {field.ddl})",
        )
        return case((f"NOT {_is_number(x)}", mismatch), (f"{fits} IS NOT NULL", rounded), otherwise=too_large)

    def _scalar(self, field: Field, x: str) -> str:
        """The typed value of a VARIANT that holds no object and no array, or NULL where it is not exact."""
        kind = field.kind
        if kind in (Kind.STRING, Kind.BOOLEAN):
            return case((f"{token(x)} = '{kind}'", taken(x, kind)))
        if kind is Kind.DATE:
            return case((f"{token(x)} = 'STRING'", date_value(taken(x, "STRING"))))
        if kind is Kind.TIMESTAMP:
            return case((f"{token(x)} = 'STRING'", timestamp_value(taken(x, "STRING"))))
        if kind in (Kind.FLOAT, Kind.DOUBLE):
            number = f"CAST({taken(x, 'DOUBLE')} AS {field.ddl})"
            return case((f"{_is_number(x)} AND {is_finite(number)}", number))
        # the token's scale is that of the number without trailing zeros: 12.50 is DECIMAL(3,1), 42.0 is DECIMAL(2,0)
        scales = "|".join(str(s) for s in range(field.scale + 1))
        exact = rf"^(?:BIGINT|DECIMAL\([0-9]+,(?:{scales})\))$"
        return case(
            (f"{token(x)} = 'BIGINT' OR {matches(token(x), exact)}", taken(x, field.ddl)),
            (f"{token(x)} = 'DOUBLE' AND {self._trusted}", _exact_double(taken(x, "DOUBLE"), field)),
        )


def _item(field: Field) -> Field:
    assert field.item is not None, f"{field.path} is no array"
    return field.item


def _variable(field: Field, letter: str = "e") -> str:
    """A lambda's variable, its own at each level of nesting."""
    return f"{letter}{field.path.count('[]')}"


def _is_plain(item: Field) -> bool:
    """Elements that their common token proves: no lambda is needed, and Spark interprets lambdas."""
    return item.kind in (Kind.STRING, Kind.BOOLEAN, Kind.BIGINT) and not item.required


def _missing(field: Field) -> str:
    return violation(RecordCode.MISSING_REQUIRED, field.path, "absent or null")


def _expected(field: Field, x: str) -> str:
    """`expected BIGINT, found STRING`: type names only, nothing of the value, nothing of nested names."""
    wanted = {Kind.STRUCT: "OBJECT", Kind.ARRAY: "ARRAY"}.get(field.kind, field.ddl)
    return f"concat({text(f'expected {wanted}, found ')}, regexp_extract({token(x)}, '^[A-Z]+', 0))"


def _is_number(x: str) -> str:
    return f"({token(x)} IN ('BIGINT', 'DOUBLE') OR startswith({token(x)}, 'DECIMAL('))"


def _exact_double(double: str, field: Field) -> str:
    """A number that was written with an exponent, as an exact type; NULL where that would round."""
    written = f"string({double})"
    digits = f"length(btrim(regexp_replace({written}, 'E.*$|[-.]', ''), '0'))"
    value = f"try_cast({written} AS {field.ddl})"
    if field.kind in INTEGERS:
        value = f"try_cast(try_cast({written} AS DECIMAL(38,18)) AS {field.ddl})"
    return case((f"{digits} <= {_EXACT_DIGITS} AND try_cast({value} AS DOUBLE) = {double}", value))


def unknown_fields(names: str, known: Sequence[str], prefix: str) -> str:
    """UNKNOWN_FIELD for every name that is not known; the array is empty where there is none."""
    extra = f"array_except({names}, {texts(known)})"
    more = f"size({extra}) - {MAX_LISTED}"
    is_last = f"i = {MAX_LISTED - 1} AND {more} > 0"
    detail = case((is_last, f"concat('and ', string({more}), ' more')"), otherwise="'not in the contract'")
    one = violation_of(RecordCode.UNKNOWN_FIELD, f"concat({text(prefix)}, left(name, {MAX_NAME}))", detail)
    return f"coalesce(transform(slice({extra}, 1, {MAX_LISTED}), (name, i) -> {one}), {NONE_FOUND})"
