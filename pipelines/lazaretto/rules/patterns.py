"""Regular expressions and LIKE patterns, checked without a JVM as far as that goes.

Spark compiles a pattern when it first meets a value, so a bad one would fail the batch. What Java takes and Python
does not is translated first; what stays doubtful is left to `verify_rules`, which asks Java itself.
"""

from __future__ import annotations

import re
import warnings

_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|$)", re.DOTALL)
_PYTHON_ONLY = ((re.compile(r"\(\?P[<=>]"), "(?P"), (re.compile(r"\(\?#"), "(?#"), (re.compile(r"\(\?\("), "(?("))
_JAVA_ONLY = (
    (re.compile(r"\\[pP](\{[^}]*\}|[A-Za-z])"), r"\\w"),
    (re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>"), r"(?P<\1>"),
    (re.compile(r"\\k<([A-Za-z][A-Za-z0-9]*)>"), r"(?P=\1)"),
    (re.compile(r"\\[hHvVRX]"), r"\\s"),
    (re.compile(r"\\z"), r"\\Z"),
    (re.compile(r"\\x\{[0-9A-Fa-f]+\}"), r"\\x41"),
    (re.compile(r"\\[eG]"), r""),
    (re.compile(r"\\c."), r"\\x01"),
    (re.compile(r"\(\?[idmsuxU]+(-[idmsuxU]+)?\)"), r""),
    (re.compile(r"\(\?[idmsuxU]*(-[idmsuxU]+)?:"), r"(?:"),
)
# These mean the same to both compilers; anything else may be a difference of the two languages.
_SURE = (
    "missing )", "unbalanced parenthesis", "unterminated character set", "nothing to repeat",
    "bad escape (end of pattern)", "min repeat greater than max repeat", "unterminated subpattern",
    "bad character range", "invalid group reference", "unknown group name",
)  # fmt: skip
_SAME = re.compile(
    r"(?:[^\\()\[\]{}?+*|&^$.]|\\[dDwWsS.\-/\\]|[()|^$.*+?]|\[[\w \-.,/:;@#]+\]|\{\d+(,\d*)?\})*", re.ASCII
)


class PatternError(ValueError):
    """The pattern cannot be compiled; the text says why."""


def check_regex(pattern: str) -> None:
    """Refuse a pattern that Java is sure to refuse.

    Raises:
        PatternError: with the reason in the words of the compiler.
    """
    text = _QUOTED.sub(lambda m: re.escape(m.group(1)), pattern)
    for found, syntax in _PYTHON_ONLY:
        if found.search(text):
            raise PatternError(f"{syntax} is Python's syntax, patterns are Java's")
    for found, same in _JAVA_ONLY:
        text = found.sub(same, text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(text)
        except re.error as exc:
            if "[" in text and "&&" in text:
                return
            if exc.msg.startswith(_SURE):
                raise PatternError(exc.msg) from None
        except (RecursionError, OverflowError):
            raise PatternError("too large") from None


def certain_match(pattern: str, text: str) -> bool | None:
    """Whether the pattern is found in the text, where Python and Java cannot differ; else None."""
    if not (pattern.isascii() and text.isascii() and _SAME.fullmatch(pattern)) or "\n" in text or "\r" in text:
        return None
    try:
        return re.search(pattern, text, re.ASCII) is not None
    except re.error:
        return None


def check_like(pattern: str, escape: str = "\\") -> None:
    """Refuse a LIKE pattern whose escape character stands before anything but `%`, `_` or itself.

    Raises:
        PatternError: Spark would throw at the first value.
    """
    if len(escape) != 1 or escape in "%_":
        raise PatternError("escape must be one character, not % or _")
    position = 0
    while position < len(pattern):
        if pattern[position] == escape:
            after = pattern[position + 1 : position + 2]
            if after not in ("%", "_", escape):
                raise PatternError(f"escape character before {after!r}" if after else "escape character at its end")
            position += 1
        position += 1
