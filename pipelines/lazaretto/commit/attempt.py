"""One attempt at a batch: each step told about, its outcome kept, its failure written down."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lazaretto.commit import bronze, ledger_table, probe, quarantine
from lazaretto.commit import gate as gate_step
from lazaretto.commit.audit_table import AuditEntry, acceptance_used, audit
from lazaretto.commit.frozen import Stage, drop, open_stage
from lazaretto.commit.gate import GateCheck, Passage, Refusal
from lazaretto.commit.history import newest
from lazaretto.commit.ledger_table import Counts, LedgerRow
from lazaretto.commit.model import (
    Acceptance,
    Batch,
    BatchResult,
    Clock,
    GateFinding,
    Moment,
    OnStep,
    Policy,
    Status,
    Step,
)  # fmt: skip
from lazaretto.commit.probe import Decisions
from lazaretto.commit.quarantine import Held
from lazaretto.commit.spark_edge import against_conflicts, edge
from lazaretto.commit.stage import write_stage
from lazaretto.commit.tables import Tables
from lazaretto.contracts import Contract
from lazaretto.errors import BatchRejectedError, CommitConflictError, ConfigurationError, LazarettoError, RecordCode


@dataclass(frozen=True)
class Rejection:
    """Why the gate lets nothing through."""

    refusals: tuple[Refusal, ...]
    findings: tuple[GateFinding, ...]


@dataclass(frozen=True)
class Landed:
    """What the steps from probe to bronze came to."""

    decisions: Decisions
    held: Held
    bronze_version: int

    def counts(self, frozen: Stage) -> Counts:
        d, m = self.decisions, frozen.manifest
        return Counts(
            records_read=m.records_read,
            records_valid=m.records_valid,
            records_inserted=d.inserted + d.landed,
            records_updated=d.updated,
            records_duplicate=d.duplicate + self.held.duplicate,
            records_quarantined=self.held.quarantined,
            records_filtered=m.records_filtered,
        )


@dataclass
class Attempt:
    """One attempt at a batch: the steps, in the order of the protocol, and what is known so far for the ledger."""

    spark: SparkSession
    tables: Tables
    batch: Batch
    contract: Contract
    policy: Policy
    schema_id: str
    ruleset: str
    clock: Clock
    operator: str
    on_step: OnStep
    frozen: Stage | None = field(default=None, init=False)
    ended: bool = field(default=False, init=False)

    def stage(
        self,
        folder: Path,
        envelope: Callable[[], DataFrame],
        screen: Callable[[DataFrame], DataFrame],
        source_range: Mapping[str, Any] | None,
    ) -> Stage:
        with self._step(Step.STAGE) as info:
            frozen = open_stage(folder, self.batch, self.contract, source_range)
            info["reused"] = frozen is not None
            if frozen is None:
                frozen = write_stage(
                    self.spark, folder, self.batch, contract=self.contract, schema_id=self.schema_id,
                    ruleset=self.ruleset, envelope=envelope, screen=screen, source_range=source_range,
                    written=lambda: self._tell(Step.STAGE, Moment.WRITTEN),
                )  # fmt: skip
            self.frozen = frozen
            m = frozen.manifest
            info |= {"records_read": m.records_read, "records_valid": m.records_valid,
                     "records_invalid": m.records_invalid, "records_filtered": m.records_filtered}  # fmt: skip
        return frozen

    def gate(
        self, frozen: Stage, check: GateCheck | None, expected_records: int | None, acceptance: Acceptance | None
    ) -> Passage | Rejection:
        with self._step(Step.GATE) as info:
            passage = gate_step.load(frozen.folder)
            if passage is None:
                findings: tuple[GateFinding, ...] = ()
                if check is not None:
                    with edge("the batch rules could not be run", self.batch.where):
                        findings = tuple(GateFinding.of(f) for f in check(frozen.records(self.spark)))
                refusals = gate_step.refusals(frozen.manifest, self.policy, findings, expected_records)
                accepted = acceptance if acceptance and acceptance.batch_id == self.batch.batch_id else None
                if refusals and accepted is None:
                    info["rejected"] = True
                    return Rejection(refusals, findings)
                if refusals and acceptance_used(self.spark, self.tables, self.batch.dataset, self.batch.batch_id):
                    raise ConfigurationError(
                        "this batch was let through by name before; an acceptance counts once",
                        where=self.batch.where,
                        remedy="look at the audit and at what the batch holds now; mend the batch or the policy",
                    )
                passage = Passage(findings, refusals, accepted if refusals else None)
                gate_step.save(frozen.folder, passage, self.batch.where)
            # After the outcome is kept, and again by a retry: the audit takes each of these once for this stage.
            audit(self.spark, self.tables, self._gate_entries(frozen, passage))
            info["failed_rules"] = [f.rule_id for f in passage.failed]
        return passage

    def land(self, frozen: Stage) -> Landed:
        for trial in against_conflicts():
            with trial:
                return self._land_once(frozen)
        raise AssertionError("unreachable: the last trial returns or raises")

    def _land_once(self, frozen: Stage) -> Landed:
        spark, table = self.spark, self.tables.bronze(self.batch.dataset)
        with self._step(Step.PROBE) as info:
            decisions = probe.load(frozen)
            # Rows that an earlier attempt has merged would now look stored: its decisions hold.
            commit = bronze.landed(spark, table, frozen, decisions) if decisions and decisions.writes else None
            if decisions is None or commit is None:
                decisions = probe.probe(spark, table, frozen, self.batch, self.policy)
            info |= {"inserted": decisions.inserted, "updated": decisions.updated, "landed": decisions.landed,
                     "duplicate": decisions.duplicate, "conflict": decisions.conflict}  # fmt: skip
        with self._step(Step.QUARANTINE) as info:
            held = quarantine.hold(
                spark, self.tables.quarantine, frozen, self.batch, self.policy, decisions,
                written=lambda: self._tell(Step.QUARANTINE, Moment.WRITTEN),
            )  # fmt: skip
            info["records_quarantined"] = held.quarantined
        with self._step(Step.BRONZE) as info:
            if commit is None and decisions.writes:
                bronze.merge(spark, table, frozen, self.batch, self.policy, decisions)
                self._tell(Step.BRONZE, Moment.WRITTEN)
                commit = bronze.landed(spark, table, frozen, decisions)
                if commit is None:
                    raise CommitConflictError(
                        "another writer came between the comparison with bronze and the MERGE",
                        where=self.batch.where, remedy="run again, with one writer per table",
                    )  # fmt: skip
            with edge("bronze's history could not be read", str(table)):
                version = commit.version if commit else newest(spark, table).version
            info["bronze_version"] = version
        landed = Landed(decisions, held, version)
        landed.counts(frozen).check(self.batch.where)
        return landed

    def publish(self, frozen: Stage, passage: Passage, landed: Landed) -> BatchResult:
        counts = landed.counts(frozen)
        with self._step(Step.LEDGER) as info:
            # From here on the ledger itself says how the attempt ended.
            self.ended = True
            self._write(
                frozen, Status.COMMITTED, counts, committed_at=self.clock(), bronze_version=landed.bronze_version,
                quarantine_version=landed.held.version, next_action=passage.advice,
            )  # fmt: skip
            self._tell(Step.LEDGER, Moment.WRITTEN)
            drop(frozen.folder)
            info |= {name: getattr(counts, name) for name in Counts.__dataclass_fields__}
        return BatchResult(
            batch_id=self.batch.batch_id,
            status=Status.COMMITTED.value,
            **{name: getattr(counts, name) for name in Counts.__dataclass_fields__},
            completeness=frozen.manifest.completeness,
            bronze_version=landed.bronze_version,
            quarantine_version=landed.held.version,
            findings=passage.findings,
            isolated=frozen.manifest.isolated,
        )

    def reject(self, frozen: Stage, rejection: Rejection) -> BatchRejectedError:
        """Say in audit and ledger why nothing lands, drop the stage, and give the error to raise."""
        manifest, batch = frozen.manifest, self.batch
        text = "; ".join(refusal.text for refusal in rejection.refusals)
        error_class = rejection.refusals[0].error_class
        remedy = (
            f"mend the source or the rules and run again, or let it through: --accept-batch {batch.batch_id} --reason R"
        )
        audit(self.spark, self.tables, [self._entry("batch_rejected", text, frozen)])
        counts = Counts(manifest.records_read, manifest.records_valid, 0, 0, 0, 0, manifest.records_filtered)
        self._write(frozen, Status.REJECTED, counts, error_class=error_class.value, next_action=f"{text}: {remedy}")
        drop(frozen.folder)
        return BatchRejectedError(f"nothing landed: {text}", where=batch.where, remedy=remedy, error_class=error_class)

    def record_failure(self, exc: Exception) -> None:
        """A `failed` row, if the ledger takes it; the error itself matters more and goes on."""
        if self.ended:
            return
        error_class, advice = None, f"unexpected {type(exc).__name__}: run again, and report it if it stays"
        if isinstance(exc, LazarettoError):
            error_class, advice = exc.error_class, str(exc)
        m = self.frozen.manifest if self.frozen else None
        counts = Counts(m.records_read, m.records_valid, records_filtered=m.records_filtered) if m else Counts()
        with contextlib.suppress(Exception):
            self._write(
                self.frozen, Status.FAILED, counts,
                error_class=error_class.value if error_class else None, next_action=advice,
            )  # fmt: skip

    def _write(self, frozen: Stage | None, status: Status, counts: Counts, **rest: Any) -> None:
        m = frozen.manifest if frozen else None
        row = LedgerRow(
            self.batch,
            status,
            ruleset=m.ruleset if m else self.ruleset,
            schema_id=m.schema_id if m else self.schema_id,
            counts=counts,
            started_at=m.arrived_at if m else self.batch.started_at,
            completeness=m.completeness if m else None,
            source_range=ledger_table.source_range(m) if m else None,
            **rest,
        )
        for trial in against_conflicts():
            with trial:
                ledger_table.write(self.spark, self.tables, row)

    def _gate_entries(self, frozen: Stage, passage: Passage) -> list[AuditEntry]:
        entries = []
        if isolated := frozen.manifest.isolated:
            told = f"{isolated} records made the batch fail; they are held as {RecordCode.PROCESSING_ERROR}"
            entries.append(self._entry("records_isolated", told, frozen))
        entries += [
            self._entry("batch_rule_failed", f"{f.severity} rule {f.rule_id} failed: {f.detail}", frozen, f.rule_id)
            for f in passage.failed
        ]
        if passage.accepted_by is not None:
            refused = "; ".join(r.text for r in passage.refusals)
            accepted = passage.accepted_by
            entries.append(
                self._entry("batch_accepted", accepted.reason, frozen, operator=accepted.operator, refused=refused)
            )
        return entries

    def _entry(
        self, action: str, reason: str, frozen: Stage, rule_id: str = "", *, operator: str | None = None, **more: str
    ) -> AuditEntry:
        m, batch = frozen.manifest, self.batch
        details = {
            "records_read": str(m.records_read), "records_valid": str(m.records_valid),
            "records_invalid": str(m.records_invalid), "ruleset": m.ruleset, "schema_id": m.schema_id, **more,
        }  # fmt: skip
        return AuditEntry(
            at=self.clock(), operator=operator or self.operator, action=action, dataset=batch.dataset,
            subject=f"batch {batch.batch_id}", reason=reason, batch_id=batch.batch_id, run_id=batch.run_id,
            correlation_id=batch.correlation_id, details=details, once=f"{m.stage_id}:{rule_id}",
        )  # fmt: skip

    @contextmanager
    def _step(self, step: Step) -> Iterator[dict[str, Any]]:
        self._tell(step, Moment.BEFORE)
        info: dict[str, Any] = {}
        yield info
        self._tell(step, Moment.AFTER, info)

    def _tell(self, step: Step, moment: Moment, info: Mapping[str, Any] | None = None) -> None:
        self.on_step(
            step, {"when": moment, "dataset": self.batch.dataset, "batch_id": self.batch.batch_id, **(info or {})}
        )
