"""CSV records: one payload is one record of a file whose header is known.

RFC 4180: comma, double quotes, doubled quotes inside quotes. An empty cell is null. A nested field cannot stand in a
CSV record, so it counts as absent.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lazaretto.contracts import INTEGERS, Field, Kind, quoted
from lazaretto.errors import RecordCode
from lazaretto.screening.forms import INTEGER, NUMBER, PLAIN_NUMBER, is_too_fine, text_value
from lazaretto.screening.reading import none_found, violation

_CORRUPT = "_corrupt_record"
_OPTIONS = {"mode": "PERMISSIVE", "escape": '"', "columnNameOfCorruptRecord": _CORRUPT, "maxCharsPerColumn": "-1"}


def parse(df: DataFrame, carried: Sequence[str], columns: Sequence[str], fields: Sequence[Field]) -> DataFrame:
    """Adds `single`, `raw` (STRUCT of the cells by field name) and `names` (the header), as the JSON step does."""
    ddl = ", ".join(f"{quoted(c)} STRING" for c in columns) + f", {_CORRUPT} STRING"
    rows = df.select(*carried, F.from_csv(F.col("text"), ddl, _OPTIONS).alias("row"))
    single = F.coalesce(
        F.col("text").isNotNull() & F.col("row").isNotNull() & F.col("row")[_CORRUPT].isNull(), F.lit(False)
    )
    here = set(columns)
    cells = [
        (F.col("row")[f.name] if f.name in here else F.lit(None).cast("STRING")).alias(f.name) for f in fields
    ]
    # columns that the contract does not name are there in every record; the others count by their header, too
    unknown = [c for c in columns if c not in {f.name for f in fields}]
    names = F.array(*[F.lit(c) for c in unknown]).cast("ARRAY<STRING>")
    present = F.filter(
        F.array(*[F.when(c.isNotNull(), F.lit(f.name)) for c, f in zip(cells, fields, strict=True)]),
        lambda name: name.isNotNull(),
    )
    return rows.select(
        *carried,
        single.alias("single"),
        F.when(single, F.struct(*cells)).alias("raw"),
        F.when(single, F.concat(present, names)).alias("names"),
    )


def csv_faults(single: Column) -> Column:
    """MALFORMED where the record is not one row of the header's width."""
    return F.when(single, none_found()).otherwise(
        F.array(violation(RecordCode.MALFORMED, None, "not one CSV record of the header's width"))
    )


class CsvReader:
    """Reads text cells by the contract's types; the same questions as `JsonReader` answers."""

    def value(self, field: Field, x: Column) -> Column:
        """The typed value, or NULL."""
        if field.kind in (Kind.STRUCT, Kind.ARRAY):
            return F.lit(None).cast(field.ddl)
        return text_value(field, x)

    def is_fit(self, field: Field, x: Column, value: Column) -> Column:
        """TRUE where the cell is what the contract asks for; never NULL."""
        fit = value.isNotNull()
        return fit if field.required else x.isNull() | fit

    def faults(self, field: Field, x: Column) -> Column:
        """The violations array of one cell; empty where it is fit."""
        required = violation(RecordCode.MISSING_REQUIRED, field.path)
        missing = F.array(required) if field.required else none_found()
        if field.kind in (Kind.STRUCT, Kind.ARRAY):
            return F.when(x.isNull(), missing).otherwise(
                F.array(violation(RecordCode.TYPE_MISMATCH, field.path, "a CSV cell cannot hold this type"))
            )
        present = F.when(text_value(field, x).isNotNull(), none_found()).otherwise(F.array(_cell_fault(field, x)))
        return F.when(x.isNull(), missing).otherwise(present)


def _cell_fault(field: Field, x: Column) -> Column:
    mismatch = violation(RecordCode.TYPE_MISMATCH, field.path, f"not a text form of {field.ddl}")
    too_large = violation(RecordCode.OUT_OF_RANGE, field.path, f"does not fit {field.ddl}")
    rounded = violation(RecordCode.PRECISION_LOSS, field.path, f"fits {field.ddl} only after rounding")
    if field.kind in (Kind.DATE, Kind.TIMESTAMP):
        bad = violation(RecordCode.BAD_TIMESTAMP, field.path, "not a real ISO 8601 date or date-time with offset")
        if field.kind is Kind.TIMESTAMP:
            bad = F.when(
                is_too_fine(x), violation(RecordCode.PRECISION_LOSS, field.path, "finer than a microsecond")
            ).otherwise(bad)
        return bad
    if field.kind in (Kind.FLOAT, Kind.DOUBLE):
        return F.when(x.rlike(NUMBER), too_large).otherwise(mismatch)
    if field.kind in INTEGERS:
        whole = x.try_cast("DECIMAL(38,0)").try_cast(field.ddl)
        return (
            F.when(x.rlike(INTEGER), too_large)
            .when(x.rlike(PLAIN_NUMBER), F.when(whole.isNotNull(), rounded).otherwise(too_large))
            .otherwise(mismatch)
        )
    if field.kind is Kind.DECIMAL:
        fits = x.try_cast(field.ddl).isNotNull()
        return F.when(x.rlike(PLAIN_NUMBER), F.when(fits, rounded).otherwise(too_large)).otherwise(mismatch)
    return mismatch
