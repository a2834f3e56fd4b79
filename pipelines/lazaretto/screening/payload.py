"""From bytes to text: what can be said of a payload before it is parsed. All functions take and give SQL text."""

from __future__ import annotations

from lazaretto.errors import ConfigurationError, RecordCode
from lazaretto.screening.sql import NONE_FOUND, case, matches, only, text, violation

# The first bytes of compressed data, as hex. Sources: RFC 1952 (gzip), RFC 8878 (zstd), PKWARE APPNOTE (zip),
# bzip2 and xz file formats, LZ4 and Snappy frame formats, RFC 1950 (zlib).
_MAGIC = (
    "1F8B", "28B52FFD", "504B0304", "504B0506", "504B0708", "425A68", "FD377A585A00", "04224D18",
    "FF060000734E61507059", "7801", "785E", "789C", "78DA",
)  # fmt: skip
_MAGIC_BYTES = max(len(m) for m in _MAGIC) // 2

# Python's canonical codec names, where Java's charset registry knows another one.
_JAVA_NAMES = {
    "utf-8": "UTF-8", "ascii": "US-ASCII", "utf-16": "UTF-16", "utf-16-le": "UTF-16LE", "utf-16-be": "UTF-16BE",
    "utf-32": "UTF-32", "utf-32-le": "UTF-32LE", "utf-32-be": "UTF-32BE", "iso8859-1": "ISO-8859-1",
    "iso8859-15": "ISO-8859-15", "cp1250": "windows-1250", "cp1251": "windows-1251", "cp1252": "windows-1252",
    "gbk": "GBK", "gb2312": "GB2312", "gb18030": "GB18030", "big5": "Big5", "shift_jis": "Shift_JIS",
    "euc_jp": "EUC-JP", "euc_kr": "EUC-KR", "koi8-r": "KOI8-R", "cp949": "x-windows-949", "cp932": "windows-31j",
}  # fmt: skip


def java_charset(encoding: str) -> str:
    """The JVM's name of a Python codec.

    Raises:
        ConfigurationError: there is none; the message lists those there are.
    """
    try:
        return _JAVA_NAMES[encoding]
    except KeyError:
        raise ConfigurationError(
            f"encoding {encoding!r} is not supported", remedy=f"one of: {', '.join(sorted(_JAVA_NAMES))}"
        ) from None


def decoded(value: str, encoding: str, max_bytes: int) -> str:
    """The payload as text, or NULL where it is null, too large, or not strictly in its encoding.

    UTF-8 costs a validity check only. Other charsets are decoded and encoded again: unequal bytes mean that something
    was replaced. That needs a session with `spark.sql.legacy.javaCharsets` and `...codingErrorAction` set.
    """
    small = f"octet_length({value}) <= {max_bytes}"
    if encoding == "utf-8":
        as_text = f"CAST({value} AS STRING)"
        return case((f"{small} AND is_valid_utf8({as_text})", as_text))
    charset = text(java_charset(encoding))
    as_text = f"decode({value}, {charset})"
    return case((f"{small} AND encode({as_text}, {charset}) = {value}", as_text))


def payload_faults(value: str, as_text: str, max_bytes: int) -> str:
    """Why there is no text to parse, or none worth parsing; an empty array where there is.

    Args:
        value: the payload's bytes. as_text: what `decoded` made of them.
    """
    head = f"hex(substring({value}, 1, {_MAGIC_BYTES}))"
    compressed = matches(head, "^(?:" + "|".join(_MAGIC) + ")")
    return case(
        (f"{value} IS NULL", only(violation(RecordCode.TOMBSTONE, None, "null value"))),
        (
            f"octet_length({value}) > {max_bytes}",
            only(violation(RecordCode.TOO_LARGE, None, f"more than {max_bytes} bytes")),
        ),
        (f"octet_length({value}) = 0", only(violation(RecordCode.EMPTY, None, "no bytes"))),
        (compressed, only(violation(RecordCode.COMPRESSED, None, "begins like a compressed file"))),
        (f"{as_text} IS NULL", only(violation(RecordCode.ENCODING, None, "not valid in the declared encoding"))),
        (matches(as_text, r"^\s*$"), only(violation(RecordCode.EMPTY, None, "blanks only"))),
        otherwise=NONE_FOUND,
    )
