"""Jars are resolved once, for exactly the versions installed; a failure leaves nothing that looks finished."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lazaretto.errors import SourceError
from lazaretto.jobs import jars
from lazaretto.jobs.java import Java

COORDINATES = ["org.example:thing:1.0"]


@pytest.fixture
def ivy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Stands in for Ivy: notes the command, and fills the folder it is told to, unless the host is down."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        if 'name="down"' in Path(command[command.index("-ivy") + 1]).read_text():
            return subprocess.CompletedProcess(command, 1, "\tHost jars.example not found. url=x\n", "")
        folder = Path(command[-1]).parent
        folder.mkdir()
        (folder / "thing-1.0.jar").write_bytes(b"")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(jars.subprocess, "run", run)
    monkeypatch.setattr(jars, "find_java", lambda: Java(Path("/java"), 17))
    monkeypatch.setattr(jars, "user_cache", lambda: tmp_path / "cache")
    return calls


def test_a_full_folder_is_left_alone_and_other_versions_replace_it(ivy: list[list[str]], tmp_path: Path) -> None:
    folder = tmp_path / "jars"
    for _ in range(2):
        assert jars.ensure_jars(folder, COORDINATES, beside_spark=True) == folder
    assert len(ivy) == 1
    (folder / "old-0.9.jar").write_bytes(b"")
    jars.ensure_jars(folder, ["org.example:thing:1.1"], beside_spark=True)
    assert len(ivy) == 2
    assert sorted(each.name for each in folder.iterdir()) == ["coordinates.txt", "thing-1.0.jar"]


def test_without_network_one_line_says_so_and_no_folder_appears(ivy: list[list[str]], tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"Host jars\.example not found") as caught:
        jars.ensure_jars(tmp_path / "jars", ["org.example:down:1.0"], beside_spark=False)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy is not None
    assert [each.name for each in tmp_path.iterdir()] == ["cache"]


def test_coordinates_follow_the_installed_versions() -> None:
    assert jars.spark_coordinates() == [
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-avro_2.13:4.2.0",
    ]


def test_what_spark_has_already_is_not_fetched_again(ivy: list[list[str]]) -> None:
    module = jars._ivy_module(COORDINATES, jars._spark_modules())
    assert '<exclude module="hadoop-client-runtime"/>' in module
    assert '<exclude module="scala-library"/>' in module
    assert "kafka-clients" not in module
