"""Expectations about a batch as a whole: checked against Great Expectations' own classes, and run by it.

Great Expectations takes seconds to import, so it is imported only where a suite has such an expectation.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from pyspark.sql import DataFrame

from lazaretto.contracts import Contract
from lazaretto.rules.arguments import resolve
from lazaretto.rules.document import MisfitError
from lazaretto.rules.model import PREFIX_MARK, BatchFinding, BatchRule, RuleSet
from lazaretto.rules.sql import Predicate

# These read other tables or run SQL of their own: there is nothing of the kind beside a staged batch.
_ELSEWHERE = frozenset({"expect_query_results_to_match_comparison", "expect_table_row_count_to_equal_other_table"})
# Fields of an expectation that are not kwargs of a suite.
_NOT_KWARGS = frozenset(
    {"id", "meta", "notes", "result_format", "description", "catch_exceptions", "rendered_content", "windows",
     "batch_id", "severity"}
)  # fmt: skip
_COLUMN_KWARGS = ("column", "column_A", "column_B")


@contextmanager
def _told_from_doctests() -> Iterator[None]:
    """Around imports of Great Expectations, which import `pyspark.sql.connect`.

    Where the main module is neither a file nor a module (`python -c`, some task runners), that takes the process for
    its own doctests and, without its optional packages, ends it with exit code 0.
    """
    main = sys.modules["__main__"]
    is_nameless = getattr(main, "__spec__", None) is None and not hasattr(main, "__file__")
    if is_nameless:
        main.__file__ = "<command>"
    try:
        yield
    finally:
        if is_nameless:
            del main.__file__


@cache
def _registry() -> ModuleType:
    """Great Expectations' registry of expectations, filled."""
    with warnings.catch_warnings(), _told_from_doctests():
        # It imports a module that Python deprecates; nobody who runs a job can mend that.
        warnings.simplefilter("ignore")
        from great_expectations.expectations import core, registry

        assert core is not None  # importing it fills the registry
        return registry


@cache
def batch_expectations() -> Mapping[str, frozenset[str]]:
    """The names in Great Expectations' core registry, with the kwargs of each."""
    registry = _registry()
    found: dict[str, frozenset[str]] = {}
    for name in registry.list_registered_expectation_implementations():
        cls = registry.get_expectation_impl(name)
        if cls.__module__.startswith("great_expectations.expectations.core.") and name not in _ELSEWHERE:
            fields: Mapping[str, Any] = cls.__fields__
            found[name] = frozenset(fields) - _NOT_KWARGS - {f for f in fields if f.startswith(("library_", "domain_"))}
    return found


def checked_kwargs(
    expectation: str, kwargs: Mapping[str, Any], condition: Predicate | None, contract: Contract
) -> dict[str, Any]:
    """The kwargs as they will be handed over, with the guarded row condition in the place of the user's text.

    Raises:
        MisfitError: Great Expectations' own class refuses them, or a column is not in the contract.
    """
    for name in _COLUMN_KWARGS:
        # Whether a column exists may be the very question.
        if name in kwargs and expectation != "expect_column_to_exist":
            resolve(kwargs[name], contract, "kwargs", name)
    if isinstance(kwargs.get("column_list"), list) and not expectation.startswith("expect_table_"):
        for index, path in enumerate(kwargs["column_list"]):
            resolve(path, contract, "kwargs", "column_list", index)
    handed = {k: v for k, v in kwargs.items() if k not in ("row_condition", "condition_parser")}
    if condition is not None:
        handed["row_condition"] = {
            "type": "pass_through", "pass_through_filter": condition.sql.replace(PREFIX_MARK, "")
        }  # fmt: skip
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _registry().get_expectation_impl(expectation)(**handed)
    except Exception as exc:
        # Its validation errors differ by release; the first line of the first one says enough.
        raise MisfitError(f"Great Expectations refuses the kwargs: {_reason(exc)}", "kwargs") from exc
    return handed


def _reason(exc: Exception) -> str:
    errors = getattr(exc, "errors", None)
    if callable(errors):
        first = errors()[0]
        place = ".".join(str(part) for part in first.get("loc", ()) if part != "__root__")
        return f"{place}: {first.get('msg')}" if place else str(first.get("msg"))
    return type(exc).__name__


def run_batch_rules(rules: RuleSet, valid: DataFrame) -> list[BatchFinding]:
    """Let Great Expectations judge the staged valid rows, whose columns are the contract's.

    An expectation that raises has not passed; its finding names the type of the exception only, as its text may hold
    values. The DataFrame is read several times, so it should come from the stage.

    Returns:
        one finding per batch rule, in the order of the suite.
    """
    if not rules.batch:
        return []
    with warnings.catch_warnings(), _told_from_doctests():
        # Great Expectations' own deprecations are not the operator's.
        warnings.simplefilter("ignore")
        import great_expectations as gx
        from great_expectations.core.expectation_suite import ExpectationSuite
        from great_expectations.data_context.types.base import ProgressBarsConfig

        context = gx.get_context(mode="ephemeral")
        context.enable_analytics(False)
        context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
        source = context.data_sources.add_spark("stage", persist=False)
        batches = source.add_dataframe_asset("valid").add_batch_definition_whole_dataframe("whole")
        suite = ExpectationSuite(
            name=rules.name,
            expectations=[
                {"type": rule.expectation, "kwargs": dict(rule.kwargs), "meta": {"rule_id": rule.rule_id}}
                for rule in rules.batch
            ],
        )
        result = batches.get_batch(batch_parameters={"dataframe": valid}).validate(
            suite, result_format={"result_format": "BASIC", "partial_unexpected_count": 0}
        )
    found = {one.expectation_config.meta["rule_id"]: one for one in result.results if one.expectation_config}
    return [_finding(rule, found.get(rule.rule_id)) for rule in rules.batch]


def _finding(rule: BatchRule, result: Any) -> BatchFinding:
    if result is None:
        return BatchFinding(rule.rule_id, rule.severity, False, rule.detail, "NoResult")
    error = _error(result.exception_info)
    if error is not None:
        return BatchFinding(rule.rule_id, rule.severity, False, rule.detail, error)
    counts = result.result
    detail = rule.detail
    if isinstance(counts.get("unexpected_count"), int) and isinstance(counts.get("element_count"), int):
        detail = f"{counts['unexpected_count']} of {counts['element_count']} unexpected; {rule.detail}"
    return BatchFinding(rule.rule_id, rule.severity, bool(result.success), detail)


def _error(info: Any) -> str | None:
    """The type of the exception, or None. Where several metrics failed, Great Expectations nests one entry for each."""
    if not info:
        return None
    entries = [info] if "raised_exception" in info else [e for e in info.values() if isinstance(e, Mapping)]
    for entry in entries:
        if entry.get("raised_exception"):
            # The last line of a traceback is `package.Type: text`; only the type is free of data.
            lines = [line for line in str(entry.get("exception_traceback") or "").splitlines() if line[:1].strip()]
            name = lines[-1].split(":")[0].rsplit(".", 1)[-1].strip() if lines else ""
            return name if name.isidentifier() else "Exception"
    return None
