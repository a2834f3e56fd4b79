"""What can go wrong, grouped by what the caller does next.

    LazarettoError                    exit  caller's next step
    ├── ConfigurationError              2   mend the named file or argument
    │   ├── ContractError               2   mend the contract file
    │   └── RuleError                   2   mend the rule suite
    ├── BatchRejectedError              3   mend the batch or let it through by name
    ├── SourceError                     4   bring the source back, run again
    │   └── GuardRefusedError           4   state and source disagree: decide, run again
    ├── SinkError                       5   bring the tables back, run again
    │   ├── CommitConflictError         5   another writer is active; a lost commit is retried by itself
    │   └── CommitOutcomeUnknownError   5   look at the table before retrying
    ├── FinishedWithFailuresError       6   read the report: some parts failed
    ├── ProcessingError                 1   rows cannot be evaluated, and it is not a few of them: report it
    └── AccountingError                 1   a bug: records do not add up, nothing was published

Messages never hold anything from a record: coordinates, codes, field names of the contract and counts only.
"""

from __future__ import annotations

from lazaretto.errors.codes import BATCH_CLASSES, RECORD_CODES, BatchClass, CodeInfo, ErrorClass, RecordCode

__all__ = [
    "BATCH_CLASSES",
    "RECORD_CODES",
    "AccountingError",
    "BatchClass",
    "BatchRejectedError",
    "CodeInfo",
    "CommitConflictError",
    "CommitOutcomeUnknownError",
    "ConfigurationError",
    "ContractError",
    "ErrorClass",
    "FinishedWithFailuresError",
    "GuardRefusedError",
    "LazarettoError",
    "ProcessingError",
    "RecordCode",
    "RuleError",
    "SinkError",
    "SourceError",
]


class LazarettoError(Exception):
    """Base of every error this package raises on purpose.

    Args:
        what: what happened, in one line, without anything from a record.
        where: the file (with line), dataset, batch or coordinate it happened at.
        remedy: what to do next.
        error_class: the batch-level class for ledger and audit; None where no batch is concerned.
        passing: it may pass by itself, as an outage does: worth waiting for.
    """

    exit_code = 1
    default_class: BatchClass | None = None

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        remedy: str | None = None,
        error_class: BatchClass | None = None,
        passing: bool = False,
    ) -> None:
        self.passing = passing
        self.what = what
        self.where = where
        self.remedy = remedy
        self.error_class = error_class or self.default_class
        super().__init__(what)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        told = f"{text} (next: {self.remedy})" if self.remedy else text
        # one line, whatever a file's name or a key brings along
        return " ".join(told.splitlines())


class ConfigurationError(LazarettoError):
    """A setting, argument, contract or rule file is wrong; no data has moved."""

    exit_code = 2


class ContractError(ConfigurationError):
    """The contract file cannot be read or asks for something unsupported."""


class RuleError(ConfigurationError):
    """The rule suite does not compile against the contract."""


class BatchRejectedError(LazarettoError):
    """Policy refused the whole batch: nothing landed, the ledger says why."""

    exit_code = 3
    default_class = BatchClass.DATA_QUALITY


class SourceError(LazarettoError):
    """The source cannot be reached or read; nothing was held and no attempt was burnt."""

    exit_code = 4
    default_class: BatchClass | None = BatchClass.UPSTREAM_UNAVAILABLE


class GuardRefusedError(SourceError):
    """Checkpoint, ledger, tables and source disagree; no data has moved."""

    default_class = None


class SinkError(LazarettoError):
    """A table, the stage or the checkpoint could not be written."""

    exit_code = 5
    default_class = BatchClass.SINK_FAILURE


class CommitConflictError(SinkError):
    """A concurrent writer won the commit and retries were used up, or another job holds the dataset's lease."""


class CommitOutcomeUnknownError(SinkError):
    """The commit's answer was lost: it may or may not have happened."""


class FinishedWithFailuresError(LazarettoError):
    """The run came to its end, and some of its parts failed.

    Attributes:
        report: what came of all parts, fit for JSON; the command line puts it beside the error.
    """

    exit_code = 6

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        remedy: str | None = None,
        error_class: BatchClass | None = None,
        report: dict[str, object] | None = None,
    ) -> None:
        super().__init__(what, where=where, remedy=remedy, error_class=error_class)
        self.report = dict(report or {})


class ProcessingError(LazarettoError):
    """The rows of a batch could not be evaluated, and neither source nor sink is at fault.

    `reason` is the error condition or the class of what Spark raised.
    """

    exit_code = 1
    default_class = BatchClass.TRANSIENT

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        remedy: str | None = None,
        error_class: BatchClass | None = None,
        reason: str = "",
    ) -> None:
        self.reason = reason
        super().__init__(what, where=where, remedy=remedy, error_class=error_class)


class AccountingError(LazarettoError):
    """Records read do not equal records accounted for: a bug, so nothing was published."""

    exit_code = 1
