"""Commit: staging, gate, quarantine, bronze MERGE and ledger; knows no source.

`run_batch` is the one way in. `docs/tables.md` describes what it writes, `docs/adr/0001-batch-protocol.md` why so.
"""

from lazaretto.commit.audit_table import AuditEntry, audit
from lazaretto.commit.frozen import frozen_batches
from lazaretto.commit.gate import GateCheck
from lazaretto.commit.history import kept_version
from lazaretto.commit.lease import job_lease
from lazaretto.commit.ledger_table import committed, ledger, read_published
from lazaretto.commit.model import (
    Acceptance,
    Batch,
    BatchKind,
    BatchResult,
    Finding,
    GateFinding,
    Moment,
    OnStep,
    Policy,
    Status,
    Step,
    ignore,
)
from lazaretto.commit.protocol import run_batch
from lazaretto.commit.quarantine import quarantine_id
from lazaretto.commit.recordless import committed_result, record_refusal, record_restart
from lazaretto.commit.screened import Verdict, columns_of, record_ddl, screened_ddl
from lazaretto.commit.tables import TableRef, Tables

__all__ = [
    "Acceptance",
    "AuditEntry",
    "Batch",
    "BatchKind",
    "BatchResult",
    "Finding",
    "GateCheck",
    "GateFinding",
    "Moment",
    "OnStep",
    "Policy",
    "Status",
    "Step",
    "TableRef",
    "Tables",
    "Verdict",
    "audit",
    "columns_of",
    "committed",
    "committed_result",
    "frozen_batches",
    "ignore",
    "job_lease",
    "kept_version",
    "ledger",
    "quarantine_id",
    "read_published",
    "record_ddl",
    "record_refusal",
    "record_restart",
    "run_batch",
    "screened_ddl",
]
