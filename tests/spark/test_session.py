"""The local session: what it can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazaretto.jobs.session import SQL_SETTINGS, current_or_local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_active_session_is_taken_over_with_our_sql_settings(spark: SparkSession) -> None:
    name = "spark.sql.session.timeZone"
    spark.conf.set(name, "Asia/Tokyo")
    try:
        assert current_or_local_session("other") is spark
        assert {each: spark.conf.get(each) for each in SQL_SETTINGS} == SQL_SETTINGS
    finally:
        spark.conf.set(name, SQL_SETTINGS[name])


def test_decode_knows_gbk_and_marks_what_it_cannot_read(spark: SparkSession) -> None:
    row = spark.sql("select decode(X'D6D0', 'GBK') as good, decode(X'D6FF', 'GBK') as bad").first()
    assert row is not None
    assert row.good == "中"
    assert "\ufffd" in row.bad


def test_ansi_stays_on(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
