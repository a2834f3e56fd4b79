"""Observe: logs, the ledger's view of batches, what is held and why, and keeping tables quick; decides nothing."""

from lazaretto.observe.coordinate import Coordinate
from lazaretto.observe.held import Group, HeldRecord, Violation, groups, held_records, show, trend
from lazaretto.observe.logs import KNOWN_KEYS, LogFormat, configure_logging, get_logger
from lazaretto.observe.maintenance import OptimizeResult, optimize
from lazaretto.observe.status import LedgerEntry, batch_status
from lazaretto.observe.text import decoded, printable

__all__ = [
    "KNOWN_KEYS",
    "Coordinate",
    "Group",
    "HeldRecord",
    "LedgerEntry",
    "LogFormat",
    "OptimizeResult",
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
