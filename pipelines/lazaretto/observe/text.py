"""Text that was once bytes of somebody else's, made fit to look at: nothing in it can steer a terminal or a log."""

from __future__ import annotations

import unicodedata

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that show nothing, or change what is shown around them (line ends, bidi overrides, ...)."""


def printable(text: str, *, keep: str = "") -> str:
    """`text` with everything unseen as a backslash escape, so that two different texts never look the same.

    Args:
        keep: unseen characters to leave as they are, such as the line feed where lines are wanted.
    """
    return "".join(c if c in keep else _escaped(c) for c in text)


def decoded(payload: bytes, *, keep: str = "") -> str:
    r"""Bytes as text: UTF-8 where they are, `\xNN` for each byte that is not; then as `printable` does."""
    whole: list[str] = []
    rest = payload
    while rest:
        try:
            whole.append(printable(rest.decode("utf-8"), keep=keep))
            break
        except UnicodeDecodeError as exc:
            whole.append(printable(rest[: exc.start].decode("utf-8"), keep=keep))
            whole.extend(f"\\x{byte:02x}" for byte in rest[exc.start : exc.end])
            rest = rest[exc.end :]
    return "".join(whole)


def _escaped(char: str) -> str:
    if char == "\\":
        return "\\\\"
    if unicodedata.category(char) not in _UNSEEN:
        return char
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if short is not None:
        return short
    code = ord(char)
    if code < 0x100:
        # \u, because \xNN stands for a byte that is not UTF-8
        return f"\\u{code:04x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
