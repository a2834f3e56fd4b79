"""JSON text: strictly one object, and if not, why. All functions take and give SQL text.

The gate wraps the text in an array that ends in a sentinel the record cannot know, its own hash: `[<text>,"<sha256>"]`.
`try_parse_json` refuses doubled keys, NaN, comments, single quotes, lone surrogates, excessive depth and truncation,
but stops after the first value; only when that array has exactly two elements, the last one the sentinel, did the text
hold one value and nothing else (a text that closes the array itself moves the sentinel out of its place).
"""

from __future__ import annotations

from collections.abc import Sequence

from lazaretto.errors import RecordCode
from lazaretto.screening.sql import NONE_FOUND, case, matches, only, text, texts, violation, violation_of

# An escaped backslash is no beginning of an escape: pairs of them are taken out before surrogates are looked for.
_BACKSLASH_PAIR = r"\\\\"
_LONE_SURROGATE = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_STRICT = "map('allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false')"


def sealed(as_text: str, seal: str) -> str:
    """The parsed array of value and sentinel, as VARIANT; NULL where the text is not strict JSON.

    Args:
        as_text: the decoded payload. seal: a text the payload cannot contain: the SHA-256 of its own bytes.
    """
    return f"""try_parse_json(concat('[', {as_text}, ',"', {seal}, '"]'))"""


def is_single(parsed: str, seal: str) -> str:
    """TRUE where `sealed` found one value and nothing after it; never NULL."""
    last = f"try_variant_get({parsed}, '$[1]', 'STRING') = {seal}"
    return f"coalesce({last} AND try_variant_get({parsed}, '$[2]', 'VARIANT') IS NULL, false)"


def first_value(parsed: str) -> str:
    """The text's own value out of `sealed`."""
    return f"try_variant_get({parsed}, '$[0]', 'VARIANT')"


def member(parsed: str, name: str) -> str:
    """One member of the text's own value."""
    return f"try_variant_get({first_value(parsed)}, {text(path(name))}, 'VARIANT')"


def path(name: str) -> str:
    """The JSON path of a top-level member; names may hold anything but a double quote or a backslash."""
    return f'$["{name}"]'


def json_faults(as_text: str, single: str, is_object: str, known: Sequence[str]) -> str:
    """What is wrong with the text as JSON; an empty array where it is strictly one object.

    Args:
        as_text: the decoded, non-blank payload. single: `is_single`. is_object: whether the single value is an object.
        known: names a doubled key may be called by in the detail: the contract's own; other names are the record's.
    """
    alone = f"try_parse_json({as_text})"
    not_object = violation(RecordCode.NOT_OBJECT, None, "a JSON value, but not an object")
    trailing = violation(RecordCode.TRAILING_DATA, None, "something follows the first value")
    after_object = case(
        (f"startswith(schema_of_variant({alone}), 'OBJECT')", only(trailing)),
        otherwise=only(f"{not_object}, {trailing}"),
    )
    return case(
        (f"{single} AND {is_object}", NONE_FOUND),
        (single, only(not_object)),
        (f"{alone} IS NOT NULL", after_object),
        otherwise=_not_strict(as_text, known),
    )


def _not_strict(as_text: str, known: Sequence[str]) -> str:
    """Why the strict parser refuses a text that has not even a first value."""
    plain = f"regexp_replace({as_text}, {text(_BACKSLASH_PAIR)}, '')"
    lone = matches(plain, _LONE_SURROGATE)
    # with the surrogates mended, what is still refused although its syntax is right has a doubled key
    mended = case((lone, f"regexp_replace({plain}, {text(_LONE_SURROGATE)}, 'x')"), otherwise=as_text)
    syntax = f"from_json({mended}, 'MAP<STRING, STRING>', {_STRICT}) IS NOT NULL"
    doubled = f"try_parse_json({mended}) IS NULL"
    surrogate = violation(RecordCode.ENCODING, None, "an escaped lone surrogate")
    key = violation_of(RecordCode.DUPLICATE_KEY, text(None), _doubled_key(mended, known))
    return case(
        (f"NOT ({syntax})", only(violation(RecordCode.MALFORMED, None, "not strict JSON"))),
        (f"{lone} AND {doubled}", only(f"{surrogate}, {key}")),
        (lone, only(surrogate)),
        otherwise=only(key),
    )


def _doubled_key(as_text: str, known: Sequence[str]) -> str:
    names = f"json_object_keys({as_text})"
    doubled = f"filter({texts(known)}, k -> size(filter({names}, n -> n = k)) > 1)"
    plainly = "an object names a key twice"
    return case(
        (f"size({doubled}) > 0", f"concat({text(plainly + ': ')}, array_join({doubled}, ', '))"),
        otherwise=text(plainly),
    )
