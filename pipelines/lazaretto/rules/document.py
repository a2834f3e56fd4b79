"""Read YAML and remember the line of everything in it, so that an error can say where."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from lazaretto.errors import RuleError

_MAX_BYTES = 2_000_000

Key = str | int


class MisfitError(Exception):
    """Something in one expectation is wrong; the reader of the suite adds the file, the line and the rule id.

    Args:
        what: one line.
        at: path inside the expectation, such as `("kwargs", "value_set", 3)`.
        remedy: what to do next.
    """

    def __init__(self, what: str, *at: Key, remedy: str = "mend this rule") -> None:
        super().__init__(what)
        self.what = what
        self.at = at
        self.remedy = remedy


def near(name: str, known: Iterable[str]) -> str:
    """`; nearest is 'x'` where a known name resembles this one, else nothing."""
    names = sorted(known)
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not found:
        lowered = {n.lower(): n for n in names}
        found = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.6)
        found = [lowered[found[0]]] if found else []
    return f"; nearest is {found[0]!r}" if found else ""


class Document:
    """A YAML document of plain values, with the line of each mapping key and list item."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[tuple[Key, ...], int] = {}
        self.value = self._read()

    def where(self, *at: Key) -> str:
        """`file:line` of the deepest known part of this path."""
        while at not in self._lines and at:
            at = at[:-1]
        return f"{self.path}:{self._lines.get(at, 1)}"

    def _read(self) -> Any:
        try:
            raw = self.path.read_bytes()
            text = raw.decode("utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise RuleError(
                f"cannot read the rule file ({type(exc).__name__})", where=str(self.path), remedy="check `rules:`"
            ) from exc
        if len(raw) > _MAX_BYTES:
            raise RuleError(f"larger than {_MAX_BYTES} bytes", where=str(self.path), remedy="split the suite")
        try:
            for token in yaml.scan(text, Loader=yaml.SafeLoader):
                if isinstance(token, yaml.AliasToken):
                    # An alias of an alias grows without bound, and no error could name its line.
                    raise self._error(token.start_mark.line, "YAML aliases are not read", "write the value out")
            loader = yaml.SafeLoader(text)
            try:
                node = loader.get_single_node()
                if node is None:
                    return None
                self._mark(node, ())
                return loader.construct_document(node)
            finally:
                loader.dispose()
        except yaml.YAMLError as exc:
            mark = getattr(exc, "problem_mark", None)
            problem = " ".join(str(getattr(exc, "problem", None) or "cannot be parsed").split())
            line = mark.line if mark is not None else 0
            raise self._error(line, f"not a YAML document of plain values: {problem}", "mend the YAML") from exc
        except (RecursionError, ValueError, TypeError, OverflowError) as exc:
            # A date such as 2024-13-45 is a ValueError of the YAML constructor; an unhashable key a TypeError.
            raise self._error(
                0, f"not a YAML document of plain values ({type(exc).__name__})", "mend the YAML"
            ) from exc

    def _mark(self, node: yaml.Node, at: tuple[Key, ...]) -> None:
        self._lines.setdefault(at, node.start_mark.line + 1)
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._mark(item, (*at, index))
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                    raise self._error(key.start_mark.line, "a key that is not plain text", "quote it")
                if key.value in seen:
                    raise self._error(key.start_mark.line, f"key {key.value!r} twice", "keep one")
                seen.add(key.value)
                self._lines[(*at, key.value)] = key.start_mark.line + 1
                self._mark(value, (*at, key.value))

    def _error(self, line: int, what: str, remedy: str) -> RuleError:
        return RuleError(what, where=f"{self.path}:{line + 1}", remedy=remedy)
