"""The guard: a user's SQL predicate, parsed, checked node by node, and written anew.

What reaches Spark is never the user's text. Each node of the parsed tree is either one that this module writes out
itself or the predicate is refused, so a difference between this parser and Spark's cannot smuggle anything in.
Operators that throw under ANSI are written as their `try_` form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from lazaretto.contracts import Contract, quoted
from lazaretto.rules.document import near
from lazaretto.rules.functions import Piece
from lazaretto.rules.model import PREFIX_MARK
from lazaretto.rules.sql_nodes import Writer
from lazaretto.rules.sql_types import BOOLEAN, RefusedError, type_of
from lazaretto.rules.values import addressable

_MAX_CHARS, _MAX_TOKENS, _MAX_DEPTH = 20_000, 1_500, 40
_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t", "r": "\r"}


class _Dialect(Spark):
    """Spark's grammar with every function left as it was called, so that names are checked as they were written."""

    class Parser(SparkParser):
        FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}
        NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, type[exp.Expr]]] = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., exp.Expr | None]]] = {
            name: parse for name, parse in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if name == "CASE"
        }
        FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., exp.Expr | None]]] = {
            name: parse for name, parse in SparkParser.FUNCTION_PARSERS.items() if name in ("CAST", "TRY_CAST")
        }


@dataclass(frozen=True)
class Predicate:
    """A checked predicate: Spark SQL that is TRUE, FALSE or NULL and never throws; columns follow `PREFIX_MARK`."""

    sql: str
    columns: tuple[str, ...]
    regexes: tuple[str, ...]


def guard(text: str, contract: Contract) -> Predicate:
    """Check a predicate and write it anew.

    Raises:
        RefusedError: it is not one boolean expression over the contract's fields, made of allowed parts.
    """
    if len(text) > _MAX_CHARS:
        raise RefusedError(f"longer than {_MAX_CHARS} characters")
    try:
        tokens = _Dialect().tokenize(text)
        _check_tokens(tokens, text)
        statements = _Dialect().parse(text)
        if len(statements) != 1 or statements[0] is None:
            raise RefusedError("not one expression")
        piece = Writer(lambda parts: _column(parts, contract)).write(statements[0])
    except SqlglotError:
        raise RefusedError("not a SQL expression that Spark's grammar knows") from None
    except RecursionError:
        raise RefusedError("nested too deeply") from None
    if piece.type != BOOLEAN:
        raise RefusedError(f"a {piece.type.name}, not a condition")
    return Predicate(piece.sql, tuple(dict.fromkeys(piece.columns)), tuple(dict.fromkeys(piece.regexes)))


def _check_tokens(tokens: list[Token], text: str) -> None:
    if not tokens:
        raise RefusedError("empty")
    if len(tokens) > _MAX_TOKENS:
        raise RefusedError(f"more than {_MAX_TOKENS} words")
    depth = 0
    end = 0
    for token in tokens:
        # Whatever is not a token is a comment to this parser; Spark's could see something else in it.
        if token.comments or text[end : token.start].strip():
            raise RefusedError("comments are not allowed")
        end = token.end + 1
        raw = text[token.start : end]
        if raw in (";", "{", "}", "{{", "}}", "$", "@", "?"):
            raise RefusedError(f"{raw} is not allowed")
        depth += {"(": 1, ")": -1}.get(raw, 0)
        if depth > _MAX_DEPTH:
            raise RefusedError("nested too deeply")
        if token.token_type is TokenType.STRING and _unescaped(raw) != token.text:
            raise RefusedError("an escape in a text that Spark reads in another way; write r'...'")
    if text[end:].strip():
        raise RefusedError("comments are not allowed")


def _unescaped(raw: str) -> str | None:
    """What Spark makes of a string literal, as far as it is certain; None where it is not."""
    if len(raw) < 2 or raw[0] not in "'\"" or raw[-1] != raw[0]:
        return None
    body = raw[1:-1]
    if not re.fullmatch(r"(?:[^\\]|\\[\\'\"ntr])*", body):
        return None
    return re.sub(r"\\(.)", lambda m: _ESCAPES[m.group(1)], body)


def _column(parts: list[str], contract: Contract) -> Piece:
    path = ".".join(parts)
    field = contract.find(path)
    if field is None or not addressable(path):
        known = [f.path for f in contract.walk() if addressable(f.path)]
        raise RefusedError(f"column {path!r} is not in the contract{near(path, known)}")
    return Piece(PREFIX_MARK + ".".join(quoted(part) for part in parts), type_of(field), columns=(path,))
