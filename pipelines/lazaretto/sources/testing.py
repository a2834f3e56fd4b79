"""The one check that every source must pass, for the tests of this package's sources and of your own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lazaretto.sources.envelope import envelope_differences

Coordinate = tuple[str, str, str, int]
"""system, stream, partition, position."""

# What a cluster or an operator may set; none of it may move a record's coordinate.
_SETTINGS: tuple[Mapping[str, str], ...] = (
    {
        "spark.sql.files.maxPartitionBytes": "64",
        "spark.sql.files.openCostInBytes": "1",
        "spark.sql.files.minPartitionNum": "40",
        "spark.sql.leafNodeDefaultParallelism": "9",
    },
    {
        "spark.sql.files.maxPartitionNum": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
    },
)


def check_source(read: Callable[[], DataFrame], written: Mapping[Coordinate, bytes | None]) -> None:
    """Assert that a source gives exactly what was written, at the same coordinates however often and how it is read.

    Args:
        read: reads everything anew.
        written: each record's value by its coordinate.

    Raises:
        AssertionError: the columns are not the envelope, a record is missing, extra, changed, or has moved.
    """
    df = read()
    differences = envelope_differences(df)
    assert not differences, differences
    _same(df, written, "read")
    _same(read().repartition(7), written, "repartitioned")
    _same(read().coalesce(1), written, "coalesced")
    conf = df.sparkSession.conf
    for settings in _SETTINGS:
        before = {name: conf.get(name, None) for name in settings}
        for name, value in settings.items():
            conf.set(name, value)
        try:
            _same(read(), written, str(settings))
        finally:
            for name, old in before.items():
                if old is None:
                    conf.unset(name)
                else:
                    conf.set(name, old)


def _same(df: DataFrame, written: Mapping[Coordinate, bytes | None], how: str) -> None:
    rows = df.select("source.system", "source.stream", "source.partition", "source.position", F.col("value")).collect()
    found = {tuple(row)[:4]: None if row.value is None else bytes(row.value) for row in rows}
    assert len(found) == len(rows), f"{how}: {len(rows) - len(found)} records share a coordinate with another"
    missing = sorted(written.keys() - found.keys())
    extra = sorted(found.keys() - written.keys())
    assert not missing, f"{how}: {len(missing)} records are missing, the first is {missing[0]}"
    assert not extra, f"{how}: {len(extra)} records were not written, the first is {extra[0]}"
    changed = sorted(c for c in written if found[c] != written[c])
    assert not changed, f"{how}: {len(changed)} records have other bytes, the first is {changed[0]}"
