from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from lazaretto.config import FilesSource
from lazaretto.errors import SourceError
from lazaretto.sources import as_source_error, check_landing, ignored_files, landing_envelope, landing_stream
from lazaretto.sources.testing import check_source


class Landing:
    """A landing folder and the stream over it, with one checkpoint."""

    def __init__(self, spark: SparkSession, root: Path, name: str = "land") -> None:
        self.spark = spark
        self.folder = root / name
        self.folder.mkdir(parents=True)
        self.checkpoint = root / "checkpoint"

    @property
    def source(self) -> FilesSource:
        return FilesSource(kind="files", path=self.folder, max_files_per_trigger=2)

    def put(self, name: str, content: bytes = b"1\n") -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    def run(self, each: Callable[[DataFrame], None]) -> None:
        query = (
            landing_stream(self.spark, self.source)
            .writeStream.foreachBatch(lambda batch, _: each(batch))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def new(self) -> list[tuple[str, int, bytes]]:
        """Runs the stream over what is new."""
        found: list[tuple[str, int, bytes]] = []

        def each(batch: DataFrame) -> None:
            df = landing_envelope(batch.sparkSession, self.source, batch)
            rows = df.select("source.partition", "source.position", "value").collect()
            found.extend((r.partition, r.position, bytes(r.value)) for r in rows)

        self.run(each)
        return sorted(found)


@pytest.fixture
def landing(spark: SparkSession, tmp_path: Path) -> Landing:
    return Landing(spark, tmp_path)


def test_each_file_is_taken_once_with_its_own_coordinates(landing: Landing) -> None:
    landing.put("a.jsonl", b"1\n2")
    landing.put("b.ndjson", b"3\n")
    landing.put("sub/day=1/C D.JSON", b"4\n5\n")
    landing.put("e[1]-10:00.json", b"6\n")
    assert landing.new() == [
        ("a.jsonl", 1, b"1"), ("a.jsonl", 2, b"2"), ("b.ndjson", 1, b"3"), ("e[1]-10:00.json", 1, b"6"),
        ("sub/day=1/C D.JSON", 1, b"4"), ("sub/day=1/C D.JSON", 2, b"5"),
    ]  # fmt: skip
    assert landing.new() == []
    landing.put("f.jsonl", b"7\n")
    landing.put("a.jsonl", b"changed later\n")
    assert landing.new() == [("f.jsonl", 1, b"7")]


def test_a_file_that_is_old_when_it_arrives_is_taken_all_the_same(landing: Landing) -> None:
    landing.put("new.jsonl")
    assert len(landing.new()) == 1
    old = landing.put("old.jsonl")
    os.utime(old, (time.time() - 400 * 86400,) * 2)
    assert landing.new() == [("old.jsonl", 1, b"1")]


def test_what_is_left_alone_and_said_to_be(landing: Landing) -> None:
    for name in ("a.jsonl", "b.tmp", "c.jsonl.tmp", "d.jsonl.gz", "e.csv", "f", "_g.jsonl", ".h.jsonl", "_i/j.jsonl"):
        landing.put(name)
    landing.put(".k/l.jsonl")
    landing.put("sub/m.txt")
    assert [name for name, _, _ in landing.new()] == ["a.jsonl"]
    assert ignored_files(landing.source) == ["b.tmp", "c.jsonl.tmp", "d.jsonl.gz", "e.csv", "f", "sub/m.txt"]


def test_the_stream_reads_no_content(landing: Landing) -> None:
    # more than an array can hold: reading it would fail
    with landing.put("huge.jsonl").open("wb") as out:
        out.truncate(5 << 30)
    seen: list[Row] = []
    landing.run(lambda batch: seen.extend(batch.collect()))
    assert [(r.path.rsplit("/", 1)[1], r.length) for r in seen] == [("huge.jsonl", 5 << 30)]


def test_a_folder_whose_name_is_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    Landing(spark, tmp_path / "other", "landn").put("wrong.jsonl")
    landing = Landing(spark, tmp_path, "la[n]d {1,2} *?")
    landing.put("a.jsonl")
    landing.put("10:00.json", b"2\n")
    assert landing.new() == [("10:00.json", 1, b"2"), ("a.jsonl", 1, b"1")]


def test_coordinates_do_not_depend_on_the_batch(landing: Landing) -> None:
    contents = {f"{i}.jsonl": b"\n".join(b"%d" % j for j in range(i)) for i in range(1, 8)}
    for name, content in contents.items():
        landing.put(name, content)
    written = {
        ("files", "land", name, number): line
        for name, content in contents.items()
        for number, line in enumerate(content.split(b"\n"), 1)
    }
    paths = landing.spark.createDataFrame([(f"file:{landing.folder}/{name}",) for name in contents], "path STRING")
    check_source(lambda: landing_envelope(landing.spark, landing.source, paths), written)
    assert sorted(landing.new()) == sorted((c[2], c[3], line) for c, line in written.items())


def test_no_files_no_records(landing: Landing) -> None:
    none = landing.spark.createDataFrame([], "path STRING")
    check_source(lambda: landing_envelope(landing.spark, landing.source, none), {})


def test_a_file_that_vanished_stops_the_stream_until_it_is_back(landing: Landing) -> None:
    file = landing.put("a.jsonl")

    def vanish(batch: DataFrame) -> None:
        file.unlink()
        landing_envelope(batch.sparkSession, landing.source, batch)

    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's, which the job tells apart as here
        landing.run(vanish)
    error = as_source_error(caught.value)
    assert isinstance(error, SourceError)
    assert "a.jsonl" in str(error)
    landing.put("a.jsonl", b"")
    assert landing.new() == []
    landing.put("b.jsonl")
    assert landing.new() == [("b.jsonl", 1, b"1")]


def test_a_file_that_vanishes_before_the_stage_is_written(landing: Landing, tmp_path: Path) -> None:
    file = landing.put("a.jsonl")
    paths = landing.spark.createDataFrame([(f"file:{file}",)], "path STRING")
    df = landing_envelope(landing.spark, landing.source, paths)
    file.unlink()
    with pytest.raises(Exception) as caught:  # noqa: PT011
        df.write.parquet(str(tmp_path / "stage"))
    error = as_source_error(caught.value, where="orders")
    assert error is not None
    assert error.where == f"orders: {file}"


def test_links_stay_inside_the_folder(landing: Landing, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"root\n")
    (landing.folder / "a.jsonl").symlink_to(tmp_path / "secret")
    paths = landing.spark.createDataFrame([(f"file:{landing.folder}/a.jsonl",)], "path STRING")
    with pytest.raises(SourceError, match="leads out"):
        landing_envelope(landing.spark, landing.source, paths)


def test_a_landing_folder_that_is_not_there(tmp_path: Path) -> None:
    check_landing(FilesSource(kind="files", path=tmp_path))
    with pytest.raises(SourceError, match="FileNotFoundError"):
        check_landing(FilesSource(kind="files", path=tmp_path / "no"))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SourceError, match="NotADirectoryError"):
        check_landing(FilesSource(kind="files", path=tmp_path / "file"))
