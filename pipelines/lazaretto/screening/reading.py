"""Read a parsed JSON value into a contract's type: exactly, or not at all.

The value arrives as a VARIANT, because only a VARIANT still knows the JSON token a value came from: `from_json` turns
numbers into text, text into numbers, rounds decimals through DOUBLE and drops doubled keys. Everything here builds
Columns and evaluates nothing. `value` is NULL where the value is absent, null or unfit; `is_fit` tells these apart;
`faults` names what is wrong and is evaluated for held records only.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from lazaretto.contracts import INTEGERS, Contract, Field, Kind, UnknownFields, quoted
from lazaretto.errors import RecordCode
from lazaretto.screening.forms import date_value, is_finite, is_too_fine, timestamp_value

VIOLATION = "STRUCT<code: STRING, field: STRING, detail: STRING>"
VIOLATIONS = f"ARRAY<{VIOLATION}>"

MAX_LISTED = 100
"""Unknown fields listed per object; what is beyond is counted in the last one's detail."""
MAX_NAME = 200
"""Characters kept of an unknown field's name: names come from the record and may be of any length."""

# The parser keeps numbers with an exponent, and those of more than 38 digits, as DOUBLE only: the shortest text of a
# double is what was written as long as that had at most 15 significant digits (IEEE 754 binary64). A record that holds a
# longer one anywhere is not trusted with an exact type out of a DOUBLE; the pattern is looked for in such records only.
_ROUNDED_BY_PARSER = r"[:\[,]\s*-?(?:[0-9.]{39,}|[0-9.]{17,}[eE])"
_EXACT_DIGITS = 15


def violation(code: RecordCode | str, field: str | Column | None, detail: str | Column | None = None) -> Column:
    """One element of a violations array."""
    name = field if isinstance(field, Column) else F.lit(field)
    text = detail if isinstance(detail, Column) else F.lit(detail)
    return F.struct(F.lit(str(code)).alias("code"), name.alias("field"), text.alias("detail")).cast(VIOLATION)


def none_found() -> Column:
    """An empty violations array."""
    return F.array().cast(VIOLATIONS)


def token(value: Column) -> Column:
    """The JSON type of a VARIANT: VOID, BOOLEAN, BIGINT, DECIMAL(p,s), DOUBLE, STRING, OBJECT<..>, ARRAY<..>."""
    return F.schema_of_variant(value)


def members(value: Column, fields: Sequence[Field]) -> Column:
    """STRUCT of VARIANTs with the named members of an object; NULL where it is none."""
    ddl = "STRUCT<" + ", ".join(f"{quoted(f.name)}: VARIANT" for f in fields) + ">"
    return F.try_variant_get(value, "$", ddl)


def elements(value: Column) -> Column:
    """ARRAY of VARIANTs; NULL where the value is no array."""
    return F.try_variant_get(value, "$", "ARRAY<VARIANT>")


def member_names(value: Column) -> Column:
    """The keys of an object (each once); NULL where it is none."""
    return F.map_keys(F.try_variant_get(value, "$", "MAP<STRING, VARIANT>"))


def is_missing(value: Column) -> Column:
    """TRUE where a member is absent or a JSON null."""
    return value.isNull() | F.is_variant_null(value)


class JsonReader:
    """Reads VARIANTs by the fields of one contract.

    Args:
        contract: its `unknown` policy also holds inside nested objects; `keep` keeps top-level fields only, so a
            nested unknown field is ignored under `keep` as under `ignore`.
        text: the record's JSON text.
    """

    def __init__(self, contract: Contract, text: Column) -> None:
        self._closed = contract.unknown is UnknownFields.FORBID
        self._rounded_by_parser = text.rlike(_ROUNDED_BY_PARSER)

    def value(self, field: Field, x: Column) -> Column:
        """The typed value, or NULL."""
        kind = field.kind
        if kind is Kind.STRUCT:
            parts = members(x, field.children)
            typed = [self.value(c, parts[c.name]).alias(c.name) for c in field.children]
            return F.when(parts.isNotNull(), F.struct(*typed)).cast(field.ddl)
        if kind is Kind.ARRAY:
            item = _item(field)
            if _is_plain(item):
                return F.when(token(x).isin(f"ARRAY<{item.kind}>", "ARRAY<VOID>"), F.try_variant_get(x, "$", field.ddl))
            return F.transform(elements(x), lambda e: self.value(item, e)).cast(field.ddl)
        return self._scalar(field, x)

    def is_fit(self, field: Field, x: Column, value: Column) -> Column:
        """TRUE where the member is what the contract asks for; never NULL."""
        fit = value.isNotNull()
        if field.kind is Kind.STRUCT:
            parts = members(x, field.children)
            for child in field.children:
                fit = fit & self.is_fit(child, parts[child.name], value[child.name])
            if self._closed:
                known = sum((parts[c.name].isNotNull().cast("INT") for c in field.children), F.lit(0))
                fit = fit & (F.size(member_names(x)) == known)
        elif field.kind is Kind.ARRAY:
            item = _item(field)
            if _is_plain(item):
                return fit if field.required else is_missing(x) | fit
            each = F.zip_with(elements(x), value, lambda e, v: self.is_fit(item, e, v))
            fit = fit & F.forall(each, lambda is_fit: is_fit)
        fit = F.coalesce(fit, F.lit(False))
        return fit if field.required else is_missing(x) | fit

    def faults(self, field: Field, x: Column) -> Column:
        """The violations array of one member, nested ones included; empty where it is fit."""
        required = violation(RecordCode.MISSING_REQUIRED, field.path)
        missing = F.array(required) if field.required else none_found()
        wrong = F.array(violation(RecordCode.TYPE_MISMATCH, field.path, _found(field, x)))
        if field.kind is Kind.STRUCT:
            parts = members(x, field.children)
            inner = [self.faults(c, parts[c.name]) for c in field.children]
            if self._closed:
                inner.append(unknown_fields(member_names(x), [c.name for c in field.children], f"{field.path}."))
            present = F.when(parts.isNotNull(), F.concat(*inner)).otherwise(wrong)
        elif field.kind is Kind.ARRAY:
            item = _item(field)
            inside = F.array_distinct(F.flatten(F.transform(elements(x), lambda e: self.faults(item, e))))
            present = F.when(elements(x).isNotNull(), inside).otherwise(wrong)
        else:
            present = F.when(self._scalar(field, x).isNotNull(), none_found()).otherwise(
                F.array(self._scalar_fault(field, x))
            )
        return F.when(is_missing(x), missing).otherwise(present)

    def _scalar(self, field: Field, x: Column) -> Column:
        """The typed value of a VARIANT that holds no object and no array, or NULL where it is not exact."""
        kind, found = field.kind, token(x)
        if kind is Kind.STRING:
            return F.when(found == "STRING", F.try_variant_get(x, "$", "STRING"))
        if kind is Kind.BOOLEAN:
            return F.when(found == "BOOLEAN", F.try_variant_get(x, "$", "BOOLEAN"))
        if kind is Kind.DATE:
            return F.when(found == "STRING", date_value(F.try_variant_get(x, "$", "STRING")))
        if kind is Kind.TIMESTAMP:
            return F.when(found == "STRING", timestamp_value(F.try_variant_get(x, "$", "STRING")))
        if kind in (Kind.FLOAT, Kind.DOUBLE):
            number = F.try_variant_get(x, "$", "DOUBLE").cast(field.ddl)
            return F.when(_is_number(found) & is_finite(number), number)
        scale = field.scale
        # the token's scale is that of the number without trailing zeros: 12.50 is DECIMAL(3,1), 42.0 is DECIMAL(2,0)
        scales = "|".join(str(s) for s in range(scale + 1))
        whole = F.try_variant_get(x, "$", field.ddl)
        return (
            F.when(found == "BIGINT", whole)
            .when(found.rlike(rf"^DECIMAL\([0-9]+,(?:{scales})\)$"), whole)
            .when(found == "DOUBLE", F.when(~self._rounded_by_parser, _exact_double(F.try_variant_get(x, "$", "DOUBLE"), field.ddl)))
        )

    @staticmethod
    def _scalar_fault(field: Field, x: Column) -> Column:
        mismatch = violation(RecordCode.TYPE_MISMATCH, field.path, _found(field, x))
        kind, found = field.kind, token(x)
        if kind in (Kind.DATE, Kind.TIMESTAMP):
            text = F.try_variant_get(x, "$", "STRING")
            bad = violation(RecordCode.BAD_TIMESTAMP, field.path, f"not a real {_FORM[kind]}")
            if kind is Kind.TIMESTAMP:
                fine = violation(RecordCode.PRECISION_LOSS, field.path, "finer than a microsecond")
                bad = F.when(is_too_fine(text), fine).otherwise(bad)
            return F.when(found == "STRING", bad).otherwise(mismatch)
        if kind in (Kind.STRING, Kind.BOOLEAN):
            return mismatch
        too_large = violation(RecordCode.OUT_OF_RANGE, field.path, f"does not fit {field.ddl}")
        if kind in (Kind.FLOAT, Kind.DOUBLE):
            return F.when(_is_number(found), too_large).otherwise(mismatch)
        rounded = violation(RecordCode.PRECISION_LOSS, field.path, f"fits {field.ddl} only after rounding")
        double = F.try_variant_get(x, "$", "DOUBLE")
        # what rounds into the type at all is a matter of precision, the rest is a matter of range
        fits = F.when(found == "DOUBLE", double.cast("STRING").try_cast(field.ddl)).otherwise(
            F.try_variant_get(x, "$", _rounding_ddl(field)).try_cast(field.ddl)
        )
        return F.when(
            _is_number(found),
            F.when(fits.isNotNull() & ~((found == "DOUBLE") & ~is_finite(double)), rounded).otherwise(too_large),
        ).otherwise(mismatch)


_FORM = {
    Kind.DATE: "date of the form yyyy-MM-dd",
    Kind.TIMESTAMP: "date-time with offset of the form yyyy-MM-ddTHH:mm:ss[.ffffff](Z|+HH:mm)",
}


def _item(field: Field) -> Field:
    assert field.item is not None, f"{field.path} is no array"
    return field.item


def _is_plain(item: Field) -> bool:
    """Elements that their common token proves: no lambda is needed, and Spark interprets lambdas."""
    return item.kind in (Kind.STRING, Kind.BOOLEAN, Kind.BIGINT) and not item.required


def _rounding_ddl(field: Field) -> str:
    # decimals cast to an integer type are cut, not rounded, and INT casts of large ones wrap: go through DECIMAL(38,0)
    return "DECIMAL(38,0)" if field.kind in INTEGERS else field.ddl


def _found(field: Field, x: Column) -> Column:
    """`expected BIGINT, found STRING`: type names only, nothing of the value, nothing of nested names."""
    head = F.regexp_extract(token(x), "^[A-Z]+", 0)
    return F.concat(F.lit(f"expected {field.ddl if not field.children else 'an object'}, found "), head)


def _is_number(found: Column) -> Column:
    return (found == "BIGINT") | (found == "DOUBLE") | found.startswith("DECIMAL(")


def _exact_double(double: Column, ddl: str) -> Column:
    """A number that was written with an exponent, as an exact type; NULL where that would round."""
    text = double.cast("STRING")
    digits = F.length(F.btrim(F.regexp_replace(text, r"E.*$|[-.]", ""), F.lit("0")))
    value = text.try_cast("DECIMAL(38,18)").try_cast(ddl) if not ddl.startswith("DECIMAL") else text.try_cast(ddl)
    return F.when((digits <= _EXACT_DIGITS) & (value.try_cast("DOUBLE") == double), value)


def unknown_fields(names: Column, known: Sequence[str], prefix: str) -> Column:
    """UNKNOWN_FIELD for every name that is not known; the array is empty where there is none."""
    extra = F.array_except(names, F.array(*[F.lit(n) for n in known]).cast("ARRAY<STRING>"))
    more = F.size(extra) - F.lit(MAX_LISTED)
    listed = F.transform(
        F.slice(extra, 1, MAX_LISTED),
        lambda name, i: violation(
            RecordCode.UNKNOWN_FIELD,
            F.concat(F.lit(prefix), F.substring(name, 1, MAX_NAME)),
            F.when(
                (i == MAX_LISTED - 1) & (more > 0), F.concat(F.lit("and "), more.cast("STRING"), F.lit(" more"))
            ).otherwise(F.lit("not in the contract")),
        ),
    )
    return F.coalesce(listed, none_found())
