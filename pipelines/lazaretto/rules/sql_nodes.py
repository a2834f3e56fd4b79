"""Write a parsed predicate anew, node by node: the allow-list of SQL is what this writer knows how to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from lazaretto.contracts import Kind
from lazaretto.rules.document import near
from lazaretto.rules.functions import NAMES, Piece, call
from lazaretto.rules.patterns import PatternError, check_like, check_regex
from lazaretto.rules.sql_literals import CASTS_FROM, dated, number, only, target
from lazaretto.rules.sql_types import BOOLEAN, NULL, STRING, ZERO, RefusedError, SqlType, arithmetic, common
from lazaretto.rules.values import string_literal

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
}  # fmt: skip
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply", exp.Div: "divide", exp.Mod: "mod",
}  # fmt: skip


class Writer:
    """Writes one expression. `column` gives the piece for a column's parts, or raises `RefusedError`."""

    def __init__(self, column: Callable[[list[str]], Piece]) -> None:
        self._resolve = column

    def write(self, node: exp.Expr) -> Piece:
        """The node as a checked piece; raises `RefusedError` for any node or argument that is not known here."""
        kind = type(node)
        if kind in _COMPARISONS:
            return self._compare(node, _COMPARISONS[kind])
        if kind in _ARITHMETIC:
            return self._calculate(node, _ARITHMETIC[kind])
        method = _NODES.get(kind)
        if method is None:
            raise RefusedError(f"{node.key.upper()} is not allowed")
        return method(self, node)

    def _compare(self, node: exp.Expr, sign: str) -> Piece:
        only(node, "this", "expression")
        return self._compared(self.write(node.this), self.write(node.expression), sign)

    def _compared(self, left: Piece, right: Piece, sign: str) -> Piece:
        left, right = dated(left, right), dated(right, left)
        if NULL in (left.type, right.type):
            raise RefusedError("a comparison with NULL; write IS NULL")
        common(left.type, right.type)
        return _joined(f"({left.sql} {sign} {right.sql})", BOOLEAN, [left, right])

    def _calculate(self, node: exp.Expr, name: str) -> Piece:
        only(node, "this", "expression", "typed", "safe")
        left, right = self.write(node.this), self.write(node.expression)
        return _joined(f"try_{name}({left.sql}, {right.sql})", arithmetic(name, left.type, right.type), [left, right])

    def _logic(self, node: exp.Expr) -> Piece:
        only(node, "this", "expression")
        assert isinstance(node, exp.And | exp.Or)
        # A long chain is one deep tree: flatten it, or the depth of the recursion would be its length.
        pieces = [self._condition(part) for part in node.flatten(unnest=False)]
        word = " AND " if isinstance(node, exp.And) else " OR "
        return _joined("(" + word.join(p.sql for p in pieces) + ")", BOOLEAN, pieces)

    def _condition(self, node: exp.Expr) -> Piece:
        piece = self.write(node)
        if piece.type != BOOLEAN:
            raise RefusedError(f"a {piece.type.name} where a condition is expected")
        return piece

    def _not(self, node: exp.Expr) -> Piece:
        only(node, "this")
        piece = self._condition(node.this)
        return _joined(f"(NOT {piece.sql})", BOOLEAN, [piece])

    def _paren(self, node: exp.Expr) -> Piece:
        only(node, "this")
        return self.write(node.this)

    def _is(self, node: exp.Expr) -> Piece:
        only(node, "this", "expression", "negate")
        word = "IS NOT" if node.args.get("negate") else "IS"
        if isinstance(node.expression, exp.Null):
            piece = self.write(node.this)
            return _joined(f"({piece.sql} {word} NULL)", BOOLEAN, [piece])
        if isinstance(node.expression, exp.Boolean):
            piece = self._condition(node.this)
            return _joined(f"({piece.sql} {word} {_truth(node.expression)})", BOOLEAN, [piece])
        raise RefusedError("IS with something other than NULL, TRUE or FALSE")

    def _in(self, node: exp.Expr) -> Piece:
        only(node, "this", "expressions", "negate")
        tested = self.write(node.this)
        items = [dated(self.write(item), tested) for item in node.expressions]
        if not items:
            raise RefusedError("IN without a list")
        for item in items:
            if NULL in (item.type, tested.type):
                raise RefusedError("NULL in a list; write IS NULL")
        # One list has one type, so every member must go with every other.
        found = tested.type
        for item in items:
            found = common(found, item.type)
        word = "NOT IN" if node.args.get("negate") else "IN"
        listed = ", ".join(item.sql for item in items)
        return _joined(f"({tested.sql} {word} ({listed}))", BOOLEAN, [tested, *items])

    def _between(self, node: exp.Expr) -> Piece:
        only(node, "this", "low", "high", "negate")
        tested = self.write(node.this)
        low = self._compared(tested, self.write(node.args["low"]), ">=")
        high = self._compared(tested, self.write(node.args["high"]), "<=")
        word = "NOT " if node.args.get("negate") else ""
        return _joined(f"({word}({low.sql} AND {high.sql}))", BOOLEAN, [low, high])

    def _like(self, node: exp.Expr) -> Piece:
        only(node, "this", "expression", "negate")
        return self._liked(node, "\\")

    def _escape(self, node: exp.Expr) -> Piece:
        only(node, "this", "expression")
        escape = node.expression
        if not isinstance(node.this, exp.Like | exp.ILike) or not _is_text(escape):
            raise RefusedError("ESCAPE without LIKE")
        only(node.this, "this", "expression", "negate")
        return self._liked(node.this, str(escape.this))

    def _liked(self, node: exp.Expr, escape: str) -> Piece:
        tested, pattern = self._text(node.this), self.write(node.expression)
        if not isinstance(pattern.literal, str):
            raise RefusedError("LIKE takes a pattern written out")
        try:
            check_like(pattern.literal, escape)
        except PatternError as exc:
            raise RefusedError(f"LIKE pattern: {exc}") from None
        word = ("NOT " if node.args.get("negate") else "") + ("LIKE" if isinstance(node, exp.Like) else "ILIKE")
        suffix = "" if escape == "\\" else f" ESCAPE {string_literal(escape)}"
        return _joined(f"({tested.sql} {word} {pattern.sql}{suffix})", BOOLEAN, [tested, pattern])

    def _rlike(self, node: exp.Expr) -> Piece:
        only(node, "this", "expression", "negate", "full_match")
        if node.args.get("full_match"):
            raise RefusedError("this form of RLIKE")
        piece = self._called("regexp_like", [self.write(node.this), self.write(node.expression)])
        return _joined(f"(NOT {piece.sql})", BOOLEAN, [piece]) if node.args.get("negate") else piece

    def _text(self, node: exp.Expr) -> Piece:
        piece = self.write(node)
        if piece.type != STRING:
            raise RefusedError(f"LIKE takes text, not {piece.type.name}")
        return piece

    def _case(self, node: exp.Expr) -> Piece:
        only(node, "this", "ifs", "default")
        subject = self.write(node.this) if node.this else None
        pieces: list[Piece] = []
        results: list[Piece] = []
        text = "CASE"
        for branch in node.args["ifs"]:
            only(branch, "this", "true")
            when = self._compared(subject, self.write(branch.this), "=") if subject else self._condition(branch.this)
            then = self.write(branch.args["true"])
            text += f" WHEN {when.sql} THEN {then.sql}"
            pieces += [when, then]
            results.append(then)
        if node.args.get("default") is not None:
            default = self.write(node.args["default"])
            text += f" ELSE {default.sql}"
            pieces.append(default)
            results.append(default)
        found = NULL
        for result in results:
            found = common(found, result.type)
        if found == NULL:
            raise RefusedError("CASE without a typed result")
        return _joined(f"({text} END)", found, pieces)

    def _negative(self, node: exp.Expr) -> Piece:
        only(node, "this")
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return number(f"-{node.this.this}")
        piece = self.write(node.this)
        return _joined(f"try_subtract(0, {piece.sql})", arithmetic("subtract", ZERO, piece.type), [piece])

    def _concatenation(self, node: exp.Expr) -> Piece:
        only(node, "this", "expression", "safe")
        return self._called("concat", [self.write(node.this), self.write(node.expression)])

    def _cast(self, node: exp.Expr) -> Piece:
        only(node, "this", "to", "_type", "safe", "requires_string")
        wanted = target(node.args["to"])
        if _is_text(node.this) and wanted.kind in (Kind.DATE, Kind.TIMESTAMP):
            return dated(self.write(node.this), Piece("", wanted))
        piece = self.write(node.this)
        source = piece.type.kind
        if source is None or wanted.kind not in CASTS_FROM.get(source, frozenset()):
            raise RefusedError(f"CAST of {piece.type.name} to {wanted.name}")
        return _joined(f"TRY_CAST({piece.sql} AS {wanted.name})", wanted, [piece])

    def _column(self, node: exp.Expr) -> Piece:
        parts: list[str] = []
        while isinstance(node, exp.Dot):
            only(node, "this", "expression")
            parts.insert(0, _name(node.expression))
            node = node.this
        if not isinstance(node, exp.Column):
            raise RefusedError(f"{node.key.upper()} before a dot")
        only(node, "this", "table", "db", "catalog")
        return self._resolve([_name(part) for part in node.parts] + parts)

    def _call(self, node: exp.Expr) -> Piece:
        only(node, "this", "expressions")
        if not isinstance(node.this, str):
            raise RefusedError("a quoted function name")
        if node.this.lower() not in NAMES:
            raise RefusedError(f"function {node.this} is not allowed{near(node.this.lower(), NAMES)}")
        return self._called(node.this, [self.write(argument) for argument in node.expressions])

    def _called(self, name: str, pieces: Sequence[Piece]) -> Piece:
        sql, found, regexes = call(name, pieces)
        for pattern in regexes:
            try:
                check_regex(pattern)
            except PatternError as exc:
                raise RefusedError(f"regular expression: {exc}") from None
        joined = _joined(f"({sql})" if " " in sql.split("(")[0] else sql, found, pieces)
        return Piece(joined.sql, joined.type, None, joined.columns, (*joined.regexes, *regexes))

    def _literal(self, node: exp.Expr) -> Piece:
        only(node, "this", "is_string")
        text = str(node.this)
        if node.args["is_string"]:
            return Piece(string_literal(text), STRING, text)
        return number(text)

    def _raw(self, node: exp.Expr) -> Piece:
        only(node, "this")
        return Piece(string_literal(str(node.this)), STRING, str(node.this))

    def _truth(self, node: exp.Expr) -> Piece:
        return Piece(_truth(node), BOOLEAN)

    def _null(self, node: exp.Expr) -> Piece:
        return Piece("NULL", NULL)


_NODES: dict[type[exp.Expr], Callable[[Writer, exp.Expr], Piece]] = {
    exp.And: Writer._logic, exp.Or: Writer._logic, exp.Not: Writer._not, exp.Paren: Writer._paren,
    exp.Is: Writer._is, exp.In: Writer._in, exp.Between: Writer._between, exp.Like: Writer._like,
    exp.ILike: Writer._like, exp.Escape: Writer._escape, exp.RegexpLike: Writer._rlike, exp.Case: Writer._case,
    exp.Neg: Writer._negative, exp.DPipe: Writer._concatenation, exp.Cast: Writer._cast, exp.TryCast: Writer._cast,
    exp.Column: Writer._column, exp.Dot: Writer._column, exp.Anonymous: Writer._call, exp.Literal: Writer._literal,
    exp.RawString: Writer._raw, exp.Boolean: Writer._truth, exp.Null: Writer._null,
}  # fmt: skip


def _joined(sql: str, found: SqlType, pieces: Sequence[Piece]) -> Piece:
    columns = tuple(c for p in pieces for c in p.columns)
    regexes = tuple(r for p in pieces for r in p.regexes)
    return Piece(sql, found, None, columns, regexes)


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _name(node: exp.Expr) -> str:
    if not isinstance(node, exp.Identifier):
        raise RefusedError(f"{node.key.upper()} in a column name")
    return str(node.this)


def _truth(node: exp.Expr) -> str:
    return "TRUE" if node.this else "FALSE"
