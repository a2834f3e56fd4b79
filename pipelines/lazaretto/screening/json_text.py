"""JSON text: strictly one object, and if not, why.

The gate wraps the text in an array that ends in a sentinel the record cannot know, its own hash: `[<text>,"<sha256>"]`.
`try_parse_json` refuses doubled keys, NaN, comments, single quotes, lone surrogates, excessive depth and truncation, but
stops after the first value; only when that array has exactly two elements, the last one the sentinel, did the text hold
one value and nothing else (a text that closes the array itself moves the sentinel out of its place).
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from lazaretto.errors import RecordCode
from lazaretto.screening.reading import none_found, violation

# An escaped backslash is no beginning of an escape: pairs of them are taken out before surrogates are looked for.
_BACKSLASH_PAIR = r"\\\\"
_LONE_SURROGATE = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


def sealed(text: Column, seal: Column) -> Column:
    """The parsed array of value and sentinel, as VARIANT; NULL where the text is not strict JSON.

    Args:
        text: the decoded payload. seal: a text that the payload cannot contain: the SHA-256 of its own bytes.
    """
    return F.try_parse_json(F.concat(F.lit("["), text, F.lit(',"'), seal, F.lit('"]')))


def is_single(parsed: Column, seal: Column) -> Column:
    """TRUE where `sealed` found one value and nothing after it; never NULL."""
    last = F.try_variant_get(parsed, "$[1]", "STRING") == seal
    return F.coalesce(last & F.try_variant_get(parsed, "$[2]", "VARIANT").isNull(), F.lit(False))


def first_value(parsed: Column) -> Column:
    """The text's own value out of `sealed`."""
    return F.try_variant_get(parsed, "$[0]", "VARIANT")


def json_faults(text: Column, single: Column, is_object: Column, known: list[str]) -> Column:
    """What is wrong with the text as JSON; an empty array where it is strictly one object.

    Args:
        text: the decoded, non-blank payload. single: `is_single`. is_object: whether the single value is an object.
        known: names a doubled key may be called by in the detail: the contract's own; other names are the record's.
    """
    alone = F.try_parse_json(text)
    not_object = violation(RecordCode.NOT_OBJECT, None, "a JSON value, but not an object")
    trailing = violation(RecordCode.TRAILING_DATA, None, "something follows the first value")
    after_first = F.when(F.schema_of_variant(alone).startswith("OBJECT"), F.array(trailing)).otherwise(
        F.array(not_object, trailing)
    )
    return (
        F.when(single, F.when(is_object, none_found()).otherwise(F.array(not_object)))
        .when(alone.isNotNull(), after_first)
        .otherwise(_not_strict(text, known))
    )


def _not_strict(text: Column, known: list[str]) -> Column:
    """Why the strict parser refuses a text that has not even a first value."""
    plain = F.regexp_replace(text, _BACKSLASH_PAIR, "")
    lone = plain.rlike(_LONE_SURROGATE)
    # with the surrogates mended, what is still refused although its syntax is right has a doubled key
    mended = F.when(lone, F.regexp_replace(plain, _LONE_SURROGATE, "x")).otherwise(text)
    syntax = F.from_json(mended, "MAP<STRING, STRING>", _STRICT).isNotNull()
    doubled = syntax & F.try_parse_json(mended).isNull()
    malformed = F.array(violation(RecordCode.MALFORMED, None, "not strict JSON"))
    surrogate = F.array(violation(RecordCode.ENCODING, None, "an escaped lone surrogate"))
    key = F.array(violation(RecordCode.DUPLICATE_KEY, None, _doubled_key(mended, known)))
    return F.when(~syntax, malformed).otherwise(
        F.concat(F.when(lone, surrogate).otherwise(none_found()), F.when(doubled, key).otherwise(none_found()))
    )


def _doubled_key(text: Column, known: list[str]) -> Column:
    names = F.json_object_keys(text)
    doubled = F.filter(
        F.array(*[F.lit(k) for k in known]), lambda k: F.size(F.filter(names, lambda n: n == k)) > 1
    )
    return F.when(
        F.size(doubled) > 0, F.concat(F.lit("an object names a key twice: "), F.array_join(doubled, ", "))
    ).otherwise(F.lit("an object names a key twice"))
