from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(_shared_spark: SparkSession) -> SparkSession:
    """The run's one local session, tuned for small data: leave its settings as you found them."""
    return _shared_spark
