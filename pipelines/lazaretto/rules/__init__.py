"""Rules: a Great Expectations suite, compiled to one native expression per rule."""

from lazaretto.rules.gate import run_batch_rules
from lazaretto.rules.model import BatchFinding, BatchRule, Degrade, RowRule, RuleSet, Severity
from lazaretto.rules.suite import read_rules
from lazaretto.rules.verify import verify_rules

__all__ = [
    "BatchFinding",
    "BatchRule",
    "Degrade",
    "RowRule",
    "RuleSet",
    "Severity",
    "read_rules",
    "run_batch_rules",
    "verify_rules",
]
