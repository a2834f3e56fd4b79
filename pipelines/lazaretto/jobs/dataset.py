"""A dataset, opened: its settings, contract, rules, policy and tables, read and checked before any data moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lazaretto.commit import Acceptance, Batch, BatchResult, OnStep, Policy, Tables, ignore, job_lease, run_batch
from lazaretto.config import DatasetSettings, Settings, Tombstones
from lazaretto.contracts import Contract, read_contract
from lazaretto.jobs.run import Run
from lazaretto.rules import RuleSet, read_rules, run_batch_rules, verify_rules
from lazaretto.screening import Screening, screen


@dataclass(frozen=True)
class Dataset:
    """Everything a job needs to know of one dataset; opening it needs no Spark and moves nothing."""

    name: str
    settings: DatasetSettings
    tables: Tables
    contract: Contract
    rules: RuleSet
    screening: Screening
    policy: Policy

    def lease(self, spark: SparkSession, run: Run, job: str) -> AbstractContextManager[None]:
        """Around a job that writes: two at once would share a stage. See `commit.job_lease` for what it raises."""
        return job_lease(
            spark, self.tables.lease_file(self.name), job=job, run_id=run.run_id,
            on_wait=lambda: run.log.warning("lease_awaited", dataset=self.name),
        )  # fmt: skip

    def verify(self, spark: SparkSession) -> None:
        """Analyse every rule against the contract on this Spark, without a job.

        Raises:
            RuleError: a rule does not compile; it is named.
        """
        verify_rules(spark, self.rules, self.contract)

    def ingest(
        self,
        spark: SparkSession,
        batch: Batch,
        envelope: Callable[[], DataFrame],
        run: Run,
        *,
        csv_columns: tuple[str, ...] | None = None,
        source_range: Mapping[str, Any] | None = None,
        expected_records: int | None = None,
        acceptance: Acceptance | None = None,
        on_step: OnStep = ignore,
    ) -> BatchResult:
        """Bring one batch through the batch protocol; see `commit.run_batch` for what it raises."""
        # the same object for every batch of a stream, so that its SQL is put together once
        screening = replace(self.screening, csv_columns=csv_columns) if csv_columns else self.screening
        return run_batch(
            spark,
            self.tables,
            batch,
            contract=self.contract,
            policy=self.policy,
            schema_id=self.contract.schema_id,
            ruleset=self.rules.fingerprint,
            envelope=envelope,
            screen=partial(screen, screening=screening),
            gate=partial(run_batch_rules, self.rules) if self.rules.batch else None,
            source_range=source_range,
            expected_records=expected_records,
            acceptance=acceptance,
            clock=run.clock,
            operator=run.operator,
            on_step=on_step,
        )


def open_dataset(settings: Settings, name: str) -> Dataset:
    """Read and check a dataset's files.

    Raises:
        ConfigurationError: no such dataset, or its settings do not fit the contract.
        ContractError, RuleError: the file is named, with the line where it can be told.
    """
    chosen = settings.dataset(name)
    contract = read_contract(chosen.contract)
    rules = read_rules(chosen.rules, contract)
    screening = Screening(
        contract=contract,
        rules=rules,
        event_id=chosen.event_id,
        event_time=chosen.event_time,
        encoding=chosen.encoding,
        max_bytes=chosen.max_bytes,
        filter_tombstones=chosen.tombstones is Tombstones.FILTER,
    )
    policy = Policy.of(chosen)
    policy.check(contract)
    return Dataset(name, chosen, Tables.of(settings), contract, rules, screening, policy)
