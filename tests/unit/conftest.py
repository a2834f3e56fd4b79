from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_jvm() -> Iterator[None]:
    """A unit test that starts a JVM belongs in tests/spark."""
    before = _gateway()
    yield
    assert _gateway() is before, "this test started a JVM: build plain values here, or move it to tests/spark"


def _gateway() -> object:
    context = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark")
    return getattr(getattr(context, "SparkContext", None), "_gateway", None)
