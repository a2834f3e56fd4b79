"""Rows without bytes of their own (Parquet, Avro) as JSON text, so that they are screened like everything else."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructField, StructType, VariantType

_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "timeZone": "UTC",
    "ignoreNullFields": "true",
}
# below this scale Java writes every decimal without an exponent
_PLAIN_SCALE = 6


def json_value(df: DataFrame) -> Column:
    """Each row as one JSON object, BINARY (UTF-8), its keys in column order.

    Timestamps are ISO 8601 with microseconds and `Z`; those that the file keeps without a zone have none here either.
    Dates are `yyyy-MM-dd`, decimals plain numbers, binary is base64; NULL fields are left out; NaN and the infinities
    are strings.
    """
    columns = []
    for field in df.schema.fields:
        column = df[_quoted(field.name)]
        target = _plain_decimals(field.dataType)
        columns.append((column if target == field.dataType else column.cast(target)).alias(field.name))
    return F.to_json(F.struct(*columns), _OPTIONS).cast("BINARY")


def _plain_decimals(kind: DataType) -> DataType:
    """`kind` with fine decimals as VARIANT: `to_json` writes 0.0000001 of a DECIMAL as 1E-7, of a VARIANT as it is."""
    if isinstance(kind, DecimalType):
        return VariantType() if kind.scale > _PLAIN_SCALE else kind
    if isinstance(kind, ArrayType):
        return ArrayType(_plain_decimals(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _plain_decimals(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _plain_decimals(f.dataType), f.nullable) for f in kind.fields])
    return kind


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
