"""Observe: logs, the ledger's view of batches, what is held and why, what does not add up, keeping tables quick.

Decides nothing.
"""

from lazaretto.observe.coordinate import Coordinate
from lazaretto.observe.differences import Difference, DifferenceKind, Standing
from lazaretto.observe.held import Group, HeldRecord, Violation, groups, held_records, show, trend
from lazaretto.observe.logs import KNOWN_KEYS, LogFormat, configure_logging, get_logger
from lazaretto.observe.maintenance import OptimizeResult, optimize
from lazaretto.observe.places import PlaceCounts
from lazaretto.observe.reconcile import Reconciliation
from lazaretto.observe.status import LedgerEntry, batch_status
from lazaretto.observe.text import decoded, printable

__all__ = [
    "KNOWN_KEYS",
    "Coordinate",
    "Difference",
    "DifferenceKind",
    "Group",
    "HeldRecord",
    "LedgerEntry",
    "LogFormat",
    "OptimizeResult",
    "PlaceCounts",
    "Reconciliation",
    "Standing",
    "Violation",
    "batch_status",
    "configure_logging",
    "decoded",
    "get_logger",
    "groups",
    "held_records",
    "optimize",
    "printable",
    "show",
    "trend",
]
