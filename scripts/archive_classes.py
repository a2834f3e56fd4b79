"""Keep Spark's classes in the JVM's own format (class data sharing), so that every later session starts faster.

Runs once in `make setup`: a session that touches what the product uses, whose JVM writes the archive as it ends.
Only a help: where Java cannot write one, sessions start as they always did.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from lazaretto.jobs.java import find_java
from lazaretto.jobs.session import class_archive, local_session, stop_session


def main() -> None:
    archive = class_archive()
    archive.unlink(missing_ok=True)
    java = find_java()
    if java.from_pip:
        # Comes without the archive of Java's own classes that ours builds on.
        subprocess.run([java.executable, "-Xshare:dump", "-Xlog:disable"], check=False, stdout=subprocess.DEVNULL)
    fresh = archive.with_name(f"{archive.name}.{os.getpid()}")
    dump = f"-XX:ArchiveClassesAtExit={fresh} -Xlog:disable"
    session = local_session("archive-classes", extra={"spark.driver.defaultJavaOptions": dump})
    with tempfile.TemporaryDirectory(prefix="lazaretto-classes-") as folder:
        rows = Path(folder, "rows").as_uri()
        table = Path(folder, "table").as_uri()
        some = "id", "cast(id as string) as value", "current_timestamp() as at"
        session.range(100).selectExpr(*some).write.json(rows)
        session.range(100).selectExpr(*some).write.format("delta").save(table)
        (
            session.readStream.schema("id bigint, value string, at timestamp")
            .json(rows)
            .selectExpr("id", "value", "at", "from_json(value, 'a string') as parsed", "sha2(value, 256) as hash")
            .drop("parsed", "hash")
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(Path(folder, "checkpoint")))
            .format("delta")
            .start(table)
            .awaitTermination()
        )
        session.read.format("delta").load(table).createOrReplaceTempView("source")
        session.sql(
            f"merge into delta.`{table}` t using (select distinct * from source where id < 9 and at > now()) s"
            " on t.id = s.id when matched then update set * when not matched then insert *"
        )
        session.read.format("delta").load(table).groupBy("value").count().collect()
    stop_session(session, timeout_s=300)
    if fresh.exists():
        fresh.replace(archive)


if __name__ == "__main__":
    main()
