"""Spark sessions: a tuned local one, or the one a platform has already opened."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from lazaretto.errors import ConfigurationError
from lazaretto.jobs.jars import spark_coordinates, spark_jars_folder
from lazaretto.jobs.java import Java, find_java, install_prefix, spark_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SQL_SETTINGS", "class_archive", "current_or_local_session", "local_session", "stop_session"]

SQL_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # The JIT never compiles a method above 8000 bytes of byte code; above it Spark then takes its smaller ones.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # decode() knows GBK and its like only with Java's charsets, and reports a bad byte by U+FFFD (which screening
    # looks for) instead of failing the whole batch only with the old coding error action.
    "spark.sql.legacy.javaCharsets": "true",
    "spark.sql.legacy.codingErrorAction": "true",
}
"""What the screening relies on; set on every session we run in, ours or a platform's."""

_LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # One machine: more and smaller tasks only cost scheduling. Delta's default of 50 snapshot partitions is the worst.
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    # Plans are not kept for a UI that is off.
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "1",
    # A record on which a pattern overflows the stack fails its task, and is then isolated; it must not end the process.
    "spark.executor.killOnFatalError.depth": "0",
}


def local_session(
    app_name: str,
    *,
    warehouse_dir: Path | None = None,
    memory: str = "2g",
    cores: str = "local[*]",
    spark_log: str = "off",
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """Open a local session with Delta, Kafka and Avro on board, tuned for one machine.

    Leaves nothing in the working directory; `stop_session` (or the end of the process) removes its scratch folder.

    Args:
        app_name: shown in Spark's own reports.
        warehouse_dir: where tables created by name live; a folder that goes with the session by default.
        memory: the driver's heap, as Spark writes sizes.
        cores: the Spark master, `local[N]`.
        spark_log: level of Spark's own loggers on stderr. They print values of records, hence `off`.
        extra: more Spark settings; they win over ours.

    Raises:
        ConfigurationError: there is no Java, or the JVM does not start.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    java = find_java()
    scratch = Path(tempfile.mkdtemp(prefix="lazaretto-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)

    builder = SparkSession.builder.appName(app_name).master(cores)
    settings = {
        **SQL_SETTINGS,
        **_LOCAL_SETTINGS,
        "spark.driver.memory": memory,
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(warehouse_dir or scratch / "warehouse"),
        "spark.driver.extraJavaOptions": _java_options(java, scratch, spark_log),
        **_jar_settings(),
        **(extra or {}),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)

    # Spark's start script takes its Java from the environment only.
    os.environ["JAVA_HOME"] = str(spark_java_home(java))
    try:
        session: SparkSession = builder.getOrCreate()
    except PySparkRuntimeError as exc:
        raise ConfigurationError(
            "the Java process of Spark did not start",
            where=str(java.home),
            remedy="run again with --verbose to see what Java printed; a smaller `memory` may be needed",
        ) from exc
    _quiet_python_loggers(spark_log)
    return session


def current_or_local_session(
    app_name: str,
    *,
    warehouse_dir: Path | None = None,
    memory: str = "2g",
    cores: str = "local[*]",
    spark_log: str = "off",
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session that is already active (a platform's, a notebook's) with `SQL_SETTINGS` applied, or a new local one.

    Arguments are those of `local_session` and matter only when a new one is opened.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None:
        return local_session(
            app_name, warehouse_dir=warehouse_dir, memory=memory, cores=cores, spark_log=spark_log, extra=extra
        )
    for name, value in SQL_SETTINGS.items():
        active.conf.set(name, value)
    _quiet_python_loggers(spark_log)
    return active


def class_archive() -> Path:
    """Where `scripts/archive_classes.py` leaves Spark's classes in the JVM's own format (class data sharing)."""
    return install_prefix() / "spark-classes.jsa"


def stop_session(session: SparkSession, *, timeout_s: float = 60) -> None:
    """Stop `session` and end its JVM: `session.stop()` alone leaves the Java process until Python ends.

    A session opened by `local_session` afterwards starts a fresh JVM. One that has not ended by itself after
    `timeout_s` seconds is killed.
    """
    from pyspark import SparkContext

    try:
        session.stop()
    except (Py4JError, ConnectionError):
        _forget(session)
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    with contextlib.suppress(Py4JError, ConnectionError):
        gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is not None:
        # The JVM ends when its standard input closes.
        process.stdin.close()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _forget(session: SparkSession) -> None:
    """What `session.stop()` leaves behind in Python when the JVM is gone already."""
    from pyspark.sql import SparkSession
    from pyspark.sql.context import SQLContext

    session.sparkContext._jsc = None
    session.sparkContext.stop()
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    SQLContext._instantiatedContext = None


def _quiet_python_loggers(spark_log: str) -> None:
    """Silence what Spark's Python side prints on stderr by itself: failed queries with the text of the value, and
    (py4j) the traceback of a failed batch function. Both reach the caller as exceptions anyway.
    """
    from pyspark.logger import PySparkLogger

    quiet = spark_log == "off"
    # Fetched through pyspark: a logger of the standard class under this name would make pyspark itself fail.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = quiet
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1 if quiet else logging.WARNING)
    if quiet:
        logging.getLogger().addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """py4j tells the root logger, too, when the JVM does not answer: a traceback before the error we raise."""
    return Path(record.pathname).parent.name != "py4j"


def _jar_settings() -> dict[str, str]:
    folder = spark_jars_folder()
    if folder is None:
        # Installed without `make setup`: Spark resolves the jars itself, at every start.
        return {"spark.jars.packages": ",".join(spark_coordinates())}
    # On the class path rather than in `spark.jars`: nothing is copied, and the class archive covers them too.
    return {"spark.driver.extraClassPath": os.pathsep.join(map(str, sorted(folder.glob("*.jar"))))}


def _java_options(java: Java, scratch: Path, spark_log: str) -> str:
    options = [
        f"-Dlog4j2.configurationFile={files('lazaretto.jobs').joinpath('log4j2.properties')}",
        f"-Dlazaretto.spark.log={spark_log}",
        "-Duser.timezone=UTC",
        # Derby writes its log where it is told, otherwise into the working directory.
        f"-Dderby.system.home={scratch}",
        f"-Djava.io.tmpdir={scratch}",
    ]
    if (archive := class_archive()).is_file():
        # Halves the start. A JVM that the archive does not fit (another version, another jar) ignores it; the second
        # option keeps it from saying so on stdout.
        options += [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"]
    if java.major >= 24:
        # Netty and Hadoop use what Java 24 began to warn about, on the user's terminal.
        options += ["--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow"]
    return " ".join(options)
