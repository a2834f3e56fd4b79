"""Step 5: MERGE what the probe has decided into bronze, by event id, in one commit."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lazaretto.commit import history
from lazaretto.commit.audit_table import instant
from lazaretto.commit.frozen import Stage
from lazaretto.commit.history import Commit
from lazaretto.commit.lease import table_lock
from lazaretto.commit.model import Batch, Policy, Step
from lazaretto.commit.probe import Decision, Decisions, day, exceptions
from lazaretto.commit.schema import bronze_ddl, columns
from lazaretto.commit.screened import SOURCE_DDL, columns_of
from lazaretto.commit.spark_edge import edge, settings
from lazaretto.commit.stage import WRITE_SETTINGS, event_day
from lazaretto.commit.tables import TableRef
from lazaretto.contracts import quoted
from lazaretto.errors import AccountingError

_REPLACES = "_replaces"


def landed(spark: SparkSession, bronze: TableRef, stage: Stage, decisions: Decisions) -> Commit | None:
    """The commit that did just what `decisions` say, now or in an earlier attempt; None when there is none.

    When a commit did something else, another writer came between probe and MERGE: None too, probe again.
    """
    wanted = history.mark(stage.manifest, Step.BRONZE, decisions.probe_id)
    with edge("bronze's history could not be read", str(bronze)):
        commit = history.find(spark, bronze, wanted, stage.manifest.arrived_at)
    if commit is None:
        return None
    written = (commit.metrics.get("numTargetRowsInserted", 0), commit.metrics.get("numTargetRowsUpdated", 0))
    return commit if written == (decisions.inserted, decisions.updated) else None


def merge(
    spark: SparkSession, bronze: TableRef, stage: Stage, batch: Batch, policy: Policy, decisions: Decisions
) -> None:
    """Write the rows decided as inserted or updated.

    The condition holds days of the batch as literals, so that the cost does not grow with the table; it holds no value
    of a record, because Delta keeps conditions in its log. An update replaces exactly the row the probe compared with.

    Raises:
        CommitConflictError: a concurrent writer won; probe again.
        SinkError: bronze could not be written.
    """
    first, last = stage.manifest.first_day, stage.manifest.last_day
    if first is None or last is None:
        raise AccountingError("rows to write, but none that is valid", where=batch.where)
    if decisions.oldest_replaced_day is not None:
        first, last = min(first, decisions.oldest_replaced_day), max(last, decisions.newest_replaced_day or last)
    ddl = bronze_ddl(stage.contract)
    once = {
        **WRITE_SETTINGS,
        # The source is frozen files: Delta need not copy it to be safe from it changing.
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.databricks.delta.commitInfo.userMetadata": history.mark(stage.manifest, Step.BRONZE, decisions.probe_id),
    }
    with (
        table_lock(spark, bronze.path),
        edge("bronze could not be written", str(bronze)),
        settings(spark, once),
    ):
        names = columns(ddl).names
        values: dict[str, str | Column] = {quoted(name): F.col(f"s.{quoted(name)}") for name in names}
        on = (
            (F.col(f"t.{policy.id_column}") == F.col(f"s.{policy.id_column}"))
            & (F.col("t._event_date") >= day(first))
            & (F.col("t._event_date") <= day(last))
        )
        # Without updates nothing is replaced, yet the clause stays: Delta then joins by the ids alone, where an
        # insert-only MERGE drags the whole rows through a shuffle (measured: 4.7 instead of 7.8 s of CPU).
        replaced = F.col("t._source") == F.col(f"s.{_REPLACES}")
        (
            bronze.delta(spark)
            .alias("t")
            .merge(_source(spark, stage, batch, decisions).alias("s"), on)
            .whenMatchedUpdate(condition=replaced, set=values)
            .whenNotMatchedInsert(values=values)
            .execute()
        )


def _source(spark: SparkSession, stage: Stage, batch: Batch, decisions: Decisions) -> DataFrame:
    """The rows to write: bronze's columns, and in `_replaces` the coordinate of the row an update replaces."""
    rows = stage.valid(spark)
    if not decisions.plain:
        kept = exceptions(spark, stage, decisions)
        goes_on = F.col("decision").isNull() | (F.col("decision") == Decision.UPDATED.value)
        rows = rows.join(kept, "_row", "left").where(goes_on)
    manifest = stage.manifest
    added = {
        "_event_date": F.date_from_unix_date(event_day(F.col("event_time"))),
        "_source": F.col("source"),
        "_source_time": F.col("source_time"),
        "_payload_sha256": F.col("payload_sha256"),
        "_schema_id": F.lit(manifest.schema_id),
        "_ruleset": F.lit(manifest.ruleset),
        "_warnings": F.col("warnings"),
        "_degraded": F.col("degraded"),
        "_batch_id": F.lit(manifest.batch_id),
        "_run_id": F.lit(manifest.run_id),
        "_ingested_at": instant(manifest.arrived_at),
        "_replay_id": F.lit(batch.replay_id).cast("string"),
    }
    record = [F.col("record").getField(name).alias(name) for name in columns_of(stage.contract)]
    replaces = F.col("replaces") if decisions.updated else F.lit(None).cast(SOURCE_DDL)
    return rows.select(*record, *(column.alias(name) for name, column in added.items()), replaces.alias(_REPLACES))
