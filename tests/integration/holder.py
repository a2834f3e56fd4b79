"""A second process for test_lease.py: `holder.py hold LOCK_FILE` or `holder.py append TABLE ROWS NAME`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from lazaretto.commit import TableRef, job_lease
from lazaretto.jobs.session import local_session, stop_session


def main() -> None:
    what, path, *rest = sys.argv[1:]
    spark = local_session("holder", cores="local[1]", memory="512m")
    if what == "hold":
        with job_lease(spark, Path(path), job="stream", run_id="run-of-the-holder"):
            sys.stdout.write(f"{spark.sparkContext._gateway.proc.pid}\n")
            sys.stdout.flush()
            time.sleep(600)
    table = TableRef("t", path=path)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for number in range(int(rest[0])):
        table.append(spark.sql(f"select '{rest[1]}' as writer, {number} as number"))
    stop_session(spark)


if __name__ == "__main__":
    main()
