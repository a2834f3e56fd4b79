"""An expectation's kwargs, read with their types; what is wrong is a `MisfitError` that points at the kwarg."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lazaretto.contracts import Contract, Field, Kind, quoted
from lazaretto.rules.document import MisfitError, near
from lazaretto.rules.model import PREFIX_MARK
from lazaretto.rules.values import addressable, shown


@dataclass(frozen=True)
class Compiled:
    """An expectation compiled, before the suite adds id, severity and row condition.

    `failing` is two-valued Spark SQL. `accepts` says whether a Python value of the column satisfies the expectation;
    its answer is None where only Spark can tell.
    """

    failing: str
    columns: tuple[str, ...]
    field: str | None
    detail: str
    regexes: tuple[str, ...] = ()
    accepts: Callable[[Any], bool | None] | None = None


def sql_of(field: Field) -> str:
    """The field's column in a rule's SQL."""
    return PREFIX_MARK + ".".join(quoted(part) for part in field.path.split("."))


def resolve(path: Any, contract: Contract, *at: str | int) -> Field:
    """The contract's field at a dotted path that no array crosses.

    Raises:
        MisfitError: it is not in the contract; names the nearest.
    """
    if not isinstance(path, str):
        raise MisfitError(f"{shown(path)} is not a column name", *at)
    field = contract.find(path)
    if field is None or not addressable(path):
        known = [f.path for f in contract.walk() if addressable(f.path)]
        why = "cannot be named in SQL" if field is not None else "is not in the contract"
        raise MisfitError(f"column {path!r} {why}{near(path, known)}", *at)
    return field


class Arguments:
    """Typed access to the kwargs of one expectation."""

    def __init__(self, kwargs: Mapping[str, Any], contract: Contract) -> None:
        self.kwargs = kwargs
        self.contract = contract

    def given(self, name: str) -> Any:
        """A kwarg that must be there and not null."""
        if self.kwargs.get(name) is None:
            raise MisfitError(f"needs the kwarg {name}", "kwargs", *([name] if name in self.kwargs else []))
        return self.kwargs[name]

    def column(self, name: str = "column", kinds: frozenset[Kind] = frozenset(Kind)) -> Field:
        return self._kind(resolve(self.given(name), self.contract, "kwargs", name), kinds, name)

    def columns(self, name: str = "column_list", kinds: frozenset[Kind] = frozenset(Kind)) -> tuple[Field, ...]:
        """Two or more different columns."""
        given = self.items(name)
        fields = tuple(
            self._kind(resolve(path, self.contract, "kwargs", name, index), kinds, name, index)
            for index, path in enumerate(given)
        )
        if len(fields) < 2 or len(set(given)) != len(given):
            raise MisfitError(f"{name} needs two or more different columns", "kwargs", name)
        return fields

    def items(self, name: str) -> list[Any]:
        """A list that is not empty."""
        given = self.given(name)
        if not isinstance(given, list):
            raise MisfitError(f"{name} is {shown(given)}, not a list", "kwargs", name)
        if not given:
            raise MisfitError(f"{name} is empty", "kwargs", name)
        return given

    def text(self, name: str) -> str:
        given = self.given(name)
        if not isinstance(given, str):
            raise MisfitError(f"{name} is {shown(given)}, not text", "kwargs", name, remedy="quote it")
        return given

    def texts(self, name: str) -> list[str]:
        given = self.items(name)
        for index, item in enumerate(given):
            if not isinstance(item, str):
                raise MisfitError(f"{shown(item)} is not text", "kwargs", name, index, remedy="quote it")
        return given

    def flag(self, name: str) -> bool:
        given = self.kwargs.get(name)
        if given is None:
            return False
        if not isinstance(given, bool):
            raise MisfitError(f"{name} is {shown(given)}, not true or false", "kwargs", name)
        return given

    def choice(self, name: str, known: Sequence[str]) -> str:
        """One of the known words; the first is the default."""
        given = self.kwargs.get(name)
        if given is None:
            return known[0]
        if given not in known:
            nearest = near(given, known) if isinstance(given, str) else ""
            raise MisfitError(
                f"{name} is {shown(given)}{nearest}", "kwargs", name, remedy=f"one of: {', '.join(known)}"
            )
        return str(given)

    def count(self, name: str) -> int | None:
        """A whole number of at least 0, or None."""
        given = self.kwargs.get(name)
        if given is None:
            return None
        if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 2**31:
            raise MisfitError(f"{name} is {shown(given)}, not a whole number of at least 0", "kwargs", name)
        return given

    @staticmethod
    def _kind(field: Field, kinds: frozenset[Kind], *at: str | int) -> Field:
        if field.kind not in kinds:
            raise MisfitError(f"does not work on column {field.path!r}, which is {field.ddl}", "kwargs", *at)
        return field
