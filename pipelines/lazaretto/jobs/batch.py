"""The batch job: the files of one manifest, verified, then through the same batch protocol as a stream's batch.

The manifest's id is the batch's id, so the same manifest again is a no-op, and a half-done one is completed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lazaretto.commit import (
    Acceptance,
    AuditEntry,
    Batch,
    BatchKind,
    BatchResult,
    OnStep,
    audit,
    committed_result,
    ignore,
    record_refusal,
)
from lazaretto.errors import BatchRejectedError, ConfigurationError
from lazaretto.jobs.dataset import Dataset
from lazaretto.jobs.guard import check_tables
from lazaretto.jobs.micro_batches import log_result
from lazaretto.jobs.outage import through_outages
from lazaretto.jobs.restart import accept_loss
from lazaretto.jobs.run import Run
from lazaretto.sources import Manifest, Verified, manifest_envelope, read_manifest, refuse_files, verify


def run_manifest(
    spark: SparkSession,
    dataset: Dataset,
    manifest_file: Path,
    run: Run,
    *,
    acceptance: Acceptance | None = None,
    accept_gap: str | None = None,
    on_step: OnStep = ignore,
) -> BatchResult:
    """Load the files of a manifest, all or none.

    Args:
        acceptance: lets this batch through the gate once.
        accept_gap: the reason for which rows that a table has lost since may stay lost.

    Raises:
        ConfigurationError: the manifest is not sound, or is another dataset's.
        BatchRejectedError: a file is not what the manifest promised (it is then kept in `quarantine_files/`), or the
            policy refused the batch; nothing landed, and the ledger says why.
        GuardRefusedError: a table was taken back to an older version than the ledger's.
        SourceError, SinkError: run again when the cause is gone.
    """
    manifest = read_manifest(manifest_file)
    if manifest.dataset != dataset.name:
        raise ConfigurationError(
            f"is a manifest of dataset {manifest.dataset!r}", where=str(manifest_file),
            remedy=f"run `lazaretto batch {manifest.dataset}`",
        )  # fmt: skip
    for path in manifest.repeated:
        run.log.warning("file_listed_twice", dataset=dataset.name, batch_id=manifest.manifest_id, file=path)
    batch = run.batch(dataset.name, manifest.manifest_id, BatchKind.MANIFEST)
    # Before the lease: a manifest that is committed needs nobody to wait.
    done = committed_result(spark, dataset.tables, dataset.name, batch.batch_id)
    if done is not None:
        log_result(run, dataset.name, done)
        return done
    with dataset.lease(spark, run, "batch"):
        if accept_gap is not None:
            accept_loss(spark, dataset, run, accept_gap)
        else:
            check_tables(spark, dataset.tables, dataset.name)
        return through_outages(
            lambda: _load(spark, dataset, manifest, batch, run, acceptance, on_step), run, dataset=dataset.name,
            patience_s=dataset.settings.outage_wait_s,
        )  # fmt: skip


def _load(
    spark: SparkSession,
    dataset: Dataset,
    manifest: Manifest,
    batch: Batch,
    run: Run,
    acceptance: Acceptance | None,
    on_step: OnStep,
) -> BatchResult:
    dataset.verify(spark)
    inbox = _inbox(dataset, batch)
    verified = verify(manifest, inbox, encoding=dataset.settings.encoding)
    if verified.problems:
        raise _refused(spark, dataset, manifest, verified, batch, run)
    _note_supersedes(spark, dataset, manifest, batch, run)
    result = dataset.ingest(
        spark,
        batch,
        lambda: manifest_envelope(spark, manifest, verified),
        run,
        csv_columns=verified.csv_columns,
        source_range=_declared(manifest),
        expected_records=manifest.records,
        acceptance=acceptance,
        on_step=on_step,
    )
    shutil.rmtree(inbox, ignore_errors=True)
    log_result(run, dataset.name, result)
    return result


def _inbox(dataset: Dataset, batch: Batch) -> Path:
    """Where the verified copies lie until the batch is committed; beside its stage, which is made anew at will."""
    stage = dataset.tables.staging_dir(dataset.name, batch.batch_id)
    return stage.with_name(stage.name + ".inbox")


def _declared(manifest: Manifest) -> Mapping[str, Any]:
    return {
        "manifest_id": manifest.manifest_id,
        "supersedes": manifest.supersedes,
        "files": [f.model_dump() for f in manifest.files],
    }


def _refused(
    spark: SparkSession, dataset: Dataset, manifest: Manifest, verified: Verified, batch: Batch, run: Run
) -> BatchRejectedError:
    """Keep the bad files, tell ledger and audit, and give the error to raise."""
    tables = dataset.tables
    refuse_files(manifest, verified.problems, tables.files_root, batch.batch_id, dataset.name, batch.started_at.date())
    first, more = verified.problems[0], len(verified.problems) - 1
    reason = f"{first.path} {first.reason}" + (f", and {more} more of its files" if more else "")
    assert verified.error_class is not None
    record_refusal(
        spark, tables, batch, error_class=verified.error_class, reason=reason, ruleset=dataset.rules.fingerprint,
        schema_id=dataset.contract.schema_id, operator=run.operator, at=run.clock(), declared=_declared(manifest),
    )  # fmt: skip
    # what was sound is not kept either: a repaired manifest brings its own
    shutil.rmtree(verified.inbox, ignore_errors=True)
    run.log.error(
        "manifest_refused", dataset=dataset.name, batch_id=batch.batch_id, error_class=verified.error_class,
        files=len(verified.problems),
    )  # fmt: skip
    return BatchRejectedError(
        reason, where=f"manifest {manifest.manifest_id}", error_class=verified.error_class,
        remedy="the reasons, and the files that came, are in quarantine_files/; have them sent again",
    )  # fmt: skip


def _note_supersedes(spark: SparkSession, dataset: Dataset, manifest: Manifest, batch: Batch, run: Run) -> None:
    if manifest.supersedes is None:
        return
    entry = AuditEntry(
        at=run.clock(),
        operator=run.operator,
        action="manifest_superseded",
        dataset=dataset.name,
        subject=f"manifest {manifest.supersedes}",
        reason=f"superseded by manifest {manifest.manifest_id}",
        batch_id=batch.batch_id,
        run_id=batch.run_id,
        correlation_id=batch.correlation_id,
        once=manifest.manifest_id,
    )
    audit(spark, dataset.tables, [entry])
