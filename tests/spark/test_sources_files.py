"""The shared reader: exact bytes, and a number for each record that nothing can move."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lazaretto.errors import SourceError
from lazaretto.sources.envelope import file_envelope
from lazaretto.sources.files import read_lines
from lazaretto.sources.testing import Coordinate, check_source

BYTES: Mapping[str, bytes] = {
    "plain": b"a\nb\n",
    "no newline at the end": b"a\nb",
    "empty": b"",
    "one newline": b"\n",
    "blank lines": b"\n\na\n\n",
    "carriage returns": b"a\r\nb\rc\r\n\r\n",
    "unicode line ends": "a\u2028b\u2029c\u0085d\x0be\x0c\n\x1cf".encode(),
    "not utf-8": b"\xff\xfe\n\xc3\n\x80abc\xed\xa0\x80\n",
    "nul": b"\x00\n\x00\x00",
    "gbk": "订单\n".encode("gbk"),
    "gzip bytes": b"\x1f\x8b\x08\x00\n\x1f\x8b",
    "marks": b"a\n\xef\xbb\xbfb\n",
    "long lines": b"x" * 3_000_000 + b"\n" + b"y" * 70_000 + b"\nz",
}
NAMES = ["a b", "50%25", "é\u2028名", "plus+", "hash#?", "[x]{y}*", "kk=v", "10:00:00", "[a]:b", "q'\"\\", "&;=,~"]


def write(folder: Path, files: Mapping[str, bytes]) -> tuple[list[Path], dict[Coordinate, bytes | None]]:
    written: dict[Coordinate, bytes | None] = {}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        for number, line in enumerate(lines if lines[-1] else lines[:-1], 1):
            written["files", "s", name, number] = line
    return [folder / name for name in files], written


def check(spark: SparkSession, folder: Path, files: Mapping[str, bytes]) -> None:
    paths, written = write(folder, files)
    check_source(lambda: file_envelope(read_lines(spark, paths, folder), "s"), written)


def test_bytes_are_what_was_written(spark: SparkSession, tmp_path: Path) -> None:
    check(spark, tmp_path, BYTES)


def test_the_mark_at_a_files_head_is_the_files(spark: SparkSession, tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    check(
        spark,
        tmp_path,
        {"a": mark + b"a\nb", "only": mark, "blank": mark + b"\n", "half": b"\xef\xbb", "two": mark * 2},
    )


@pytest.mark.parametrize("folder", ["in %5B and + é", "[k=v]"])
def test_names_that_spark_or_hadoop_or_a_url_would_read_otherwise(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    names = [*NAMES, *(f"{folder}/sub/{name}" for name in NAMES)]
    check(spark, tmp_path / folder, {name: name.encode() + b"\n" + name.encode() for name in names})


def test_300_small_files_of_different_lengths(spark: SparkSession, tmp_path: Path) -> None:
    files = {f"{i:03}": b"".join(b"%d:%d\n" % (i, j + 1) for j in range(i % 23)) for i in range(300)}
    paths, written = write(tmp_path, files)
    df = read_lines(spark, paths, tmp_path)
    wrong = df.where("decode(value, 'utf-8') != cast(path AS INT) || ':' || position").count()
    assert (wrong, df.count()) == (0, len(written))


def test_a_file_larger_than_a_partition_is_numbered_through(spark: SparkSession, tmp_path: Path) -> None:
    line = b"x" * 999_999 + b"\n"
    with (tmp_path / "large").open("wb") as out:
        for _ in range(140):
            out.write(line)
    (tmp_path / "small").write_bytes(b"a\nb")
    df = read_lines(spark, [tmp_path / "large", tmp_path / "small"], tmp_path)
    found = sorted(tuple(row) for row in df.select("path", "position").collect())
    assert found == [("large", n) for n in range(1, 141)] + [("small", 1), ("small", 2)]


def test_a_stale_checksum_file_does_not_matter(spark: SparkSession, tmp_path: Path) -> None:
    paths, written = write(tmp_path, {"a": b"new content\n"})
    (tmp_path / ".a.crc").write_bytes(b"crc\x00\x00\x00\x02\x00\x12\x34\x56\x78")
    check_source(lambda: file_envelope(read_lines(spark, paths, tmp_path), "s"), written)


def test_the_callers_session_is_left_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    before = dict(spark.conf.getAll)
    paths, _ = write(tmp_path, {"a": b"1\n", "b": b"2\n"})
    df = read_lines(spark, paths, tmp_path)
    assert df.sparkSession is spark
    df.createOrReplaceTempView("seen_from_the_callers_session")
    assert spark.table("seen_from_the_callers_session").count() == 2
    assert dict(spark.conf.getAll) == before
    spark.catalog.dropTempView("seen_from_the_callers_session")


def test_numbers_survive_what_a_batch_does_with_them(spark: SparkSession, tmp_path: Path) -> None:
    paths, written = write(tmp_path / "in", {f"f{i}": b"\n".join(b"%d" % j for j in range(50)) for i in range(5)})
    df = file_envelope(read_lines(spark, paths, tmp_path / "in"), "s")
    odd = df.where("source.position % 2 = 1 AND value IS NOT NULL").orderBy("value").limit(1000)
    odd.write.parquet(str(tmp_path / "stage"))
    rows = spark.read.parquet(str(tmp_path / "stage")).select("source.partition", "source.position", "value").collect()
    assert len(rows) == 125
    assert all(written["files", "s", r.partition, r.position] == bytes(r.value) for r in rows)


def test_a_file_that_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not there"):
        read_lines(spark, [tmp_path / "gone"], tmp_path)


def test_records_of_a_file_that_was_split_are_not_numbered(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lazaretto.sources.files._UNSPLIT", {"spark.sql.files.maxPartitionBytes": "8"})
    paths, _ = write(tmp_path, {"a": b"123\n" * 10})
    with pytest.raises(Exception, match="a file was split"):
        read_lines(spark, paths, tmp_path).collect()
