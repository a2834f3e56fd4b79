"""Step 2: may the batch go on? Completeness, expected count and the findings of the batch rules, under the policy.

What the gate decided is kept in the stage (`gate.json`): a retry of a frozen batch does not ask newer rules, and does
not need its acceptance a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import DataFrame

from lazaretto.commit.durable import damaged, read_json, write_json
from lazaretto.commit.frozen import Manifest
from lazaretto.commit.model import Acceptance, Finding, GateFinding, Policy
from lazaretto.commit.spark_edge import edge
from lazaretto.config import OnFailure
from lazaretto.errors import BatchClass

GateCheck = Callable[[DataFrame], Sequence[Finding]]
"""Runs the batch rules on the contract's columns of the valid rows."""

_FILE = "gate.json"
_CRITICAL = "critical"


@dataclass(frozen=True)
class Refusal:
    """One reason to refuse a batch; `text` holds counts and rule ids only."""

    error_class: BatchClass
    text: str


@dataclass(frozen=True)
class Passage:
    """The gate's outcome for a batch that goes on. `accepted_by` is set when an acceptance overruled refusals."""

    findings: tuple[GateFinding, ...]
    refusals: tuple[Refusal, ...] = ()
    accepted_by: Acceptance | None = None

    @property
    def failed(self) -> tuple[GateFinding, ...]:
        return tuple(f for f in self.findings if not f.passed)

    @property
    def advice(self) -> str | None:
        """The ledger's `next_action` of a committed batch."""
        told = []
        if self.accepted_by is not None:
            told.append("let through by name, see the audit")
        if self.failed:
            told.append(f"batch rules failed: {', '.join(f.rule_id for f in self.failed)}; see the audit")
        return "; ".join(told) or None


def refusals(
    manifest: Manifest, policy: Policy, findings: Sequence[GateFinding], expected_records: int | None
) -> tuple[Refusal, ...]:
    """Why the batch may not land; empty when it may. Pure."""
    found: list[Refusal] = []
    invalid = manifest.records_invalid
    inspected = manifest.records_valid + invalid
    if expected_records is not None and expected_records != manifest.records_read:
        found.append(
            Refusal(BatchClass.INCOMPLETE, f"{manifest.records_read} records instead of {expected_records} announced")
        )
    if manifest.completeness < policy.min_completeness:
        found.append(
            Refusal(
                BatchClass.DATA_QUALITY,
                f"completeness {manifest.completeness:.6g} ({manifest.records_valid} of {inspected} records valid)"
                f" is below {policy.min_completeness:.6g}",
            )
        )
    if policy.on_failure is OnFailure.REJECT_BATCH:
        if invalid:
            found.append(Refusal(BatchClass.DATA_QUALITY, f"{invalid} of {inspected} records are invalid"))
        found.extend(
            Refusal(BatchClass.DATA_QUALITY, f"batch rule {f.rule_id} failed")
            for f in findings
            if not f.passed and f.severity == _CRITICAL
        )
    return tuple(found)


def save(folder: Path, passage: Passage, where: str) -> None:
    """Keep the outcome beside the frozen stage, for a retry."""
    with edge("the gate's outcome could not be kept", where):
        write_json(folder / _FILE, asdict(passage))


def load(folder: Path) -> Passage | None:
    """The outcome an earlier attempt has kept for this frozen stage."""
    document = read_json(folder / _FILE)
    if document is None:
        return None
    try:
        accepted = document["accepted_by"]
        return Passage(
            findings=tuple(GateFinding(**f) for f in document["findings"]),
            refusals=tuple(Refusal(BatchClass(r["error_class"]), r["text"]) for r in document["refusals"]),
            accepted_by=Acceptance(**accepted) if accepted else None,
        )
    except (TypeError, KeyError, ValueError) as exc:
        raise damaged(folder, f"{_FILE} has other keys than it should") from exc
