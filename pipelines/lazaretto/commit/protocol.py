"""The batch protocol: stage, gate, probe, quarantine, bronze, ledger. Streams, manifests and replays all go through.

Every step can be repeated, and each leaves either nothing or something a later attempt recognises as its own, so a
crash anywhere is cured by running again. docs/adr/0001-batch-protocol.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lazaretto.commit import ledger_table
from lazaretto.commit.attempt import Attempt
from lazaretto.commit.frozen import drop
from lazaretto.commit.gate import GateCheck, Passage
from lazaretto.commit.model import (
    Acceptance,
    Batch,
    BatchResult,
    Clock,
    OnStep,
    Policy,
    ignore,
)  # fmt: skip
from lazaretto.commit.schema import ensure_tables
from lazaretto.commit.spark_edge import session_gone, session_is_gone
from lazaretto.commit.tables import Tables
from lazaretto.contracts import Contract


def run_batch(
    spark: SparkSession,
    tables: Tables,
    batch: Batch,
    *,
    contract: Contract,
    policy: Policy,
    schema_id: str,
    ruleset: str,
    envelope: Callable[[], DataFrame],
    screen: Callable[[DataFrame], DataFrame],
    gate: GateCheck | None,
    source_range: Mapping[str, Any] | None,
    expected_records: int | None,
    acceptance: Acceptance | None,
    clock: Clock,
    operator: str,
    on_step: OnStep = ignore,
) -> BatchResult:
    """Bring one batch to its end: committed, rejected, or failed with a typed error and safe to run again.

    Args:
        schema_id, ruleset: what the batch is screened with; frozen with it.
        envelope: gives the source's rows; called at most once, and not when the batch is staged already.
        screen: envelope -> screened rows as `screened_ddl(contract)` describes; likewise.
        gate: the batch rules; None when there are none.
        source_range: what the source says it hands over, JSON values only; goes to the ledger as it is.
        expected_records: what the source has announced; another number is refused by the gate.
        acceptance: lets this batch through a gate that refuses it; one for another batch id is ignored.
        clock: zone-aware now.
        operator: the person or the job in whose name the gate decides.
        on_step: called around every step; what it raises ends the attempt.

    Raises:
        BatchRejectedError: the policy refused the batch; nothing landed.
        ConfigurationError: a table differs from the contract, or the acceptance is used up.
        SourceError, SinkError, CommitConflictError: by whose fault it failed; run again when that is cured.
        AccountingError: records do not add up; nothing was published.
    """
    policy.check(contract)
    ensure_tables(spark, tables, batch.dataset, contract)
    folder = tables.staging_dir(batch.dataset, batch.batch_id)
    committed = ledger_table.committed_row(spark, tables, batch.dataset, batch.batch_id)
    if committed is not None:
        drop(folder)
        return ledger_table.result_of(committed)

    attempt = Attempt(spark, tables, batch, contract, policy, schema_id, ruleset, clock, operator, on_step)
    try:
        frozen = attempt.stage(folder, envelope, screen, source_range)
        outcome = attempt.gate(frozen, gate, expected_records, acceptance)
        if isinstance(outcome, Passage):
            landed = attempt.land(frozen)
            return attempt.publish(frozen, outcome, landed)
    except Exception as exc:
        if session_is_gone(exc):
            raise session_gone(batch.where) from exc
        attempt.record_failure(exc)
        raise
    raise attempt.reject(frozen, outcome)
