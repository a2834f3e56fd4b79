"""What every kind of test shares. Fixtures that start something live beside the tests that need it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The checkout: where `conf/` and `dq_rules/` are."""
    return ROOT


@pytest.fixture(scope="session")
def _shared_spark() -> Iterator[SparkSession]:
    """The one local session of the run; reached through `spark` in tests/spark and tests/integration only."""
    from lazaretto.jobs.session import local_session, stop_session

    session = local_session("lazaretto-tests", cores="local[2]")
    yield session
    stop_session(session)


@pytest.fixture(autouse=True)
def _logs_of_its_own() -> Iterator[None]:
    """Undo a test's log set-up: it may write to a stream that was closed with the test."""
    import structlog

    yield
    structlog.reset_defaults()


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """An empty warehouse folder of the test's own."""
    folder = tmp_path / "warehouse"
    folder.mkdir()
    return folder
