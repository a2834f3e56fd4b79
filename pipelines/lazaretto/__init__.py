"""Lazaretto: quarantine-first ingestion for the lakehouse.

Records are inspected once: valid ones are merged into Delta bronze tables, invalid ones are held with the reason.
The public face is the command line (`lazaretto --help`) and, for notebooks, the names in `__all__`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

if __name__ != "lazaretto":
    raise ImportError(
        f"import it as `lazaretto`, not as `{__name__}`: a second import path would make a second copy of every class"
    )

__version__ = "0.1.0"

__all__ = ["__version__", "read_published"]


def read_published(
    spark: SparkSession, dataset: str, *, conf: str | Path | None = None, env: str | None = None
) -> DataFrame:
    """A dataset's bronze rows as of its newest committed batch: whole batches only, whatever is being written.

    Args:
        dataset: its name in the configuration.
        conf, env: as `--conf` and `--env` of the command line; `conf/base.yml` without them.

    Raises:
        ConfigurationError: no such configuration or dataset, or nothing was ingested yet.
    """
    # Inside, so that `import lazaretto` stays cheap and free of Spark.
    from lazaretto.commit import Tables
    from lazaretto.commit import read_published as read
    from lazaretto.config import load_settings
    from lazaretto.errors import ConfigurationError

    settings = load_settings(Path(conf) if conf is not None else None, env)
    if dataset not in settings.datasets:
        known = ", ".join(sorted(settings.datasets)) or "none"
        raise ConfigurationError(f"no dataset {dataset!r}", where=settings.origin, remedy=f"one of: {known}")
    return read(spark, Tables.of(settings), dataset)
