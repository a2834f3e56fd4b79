"""Manifests of every format, from the sender's folder to the envelope."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from lazaretto.errors import BatchClass, BatchRejectedError
from lazaretto.sources import Manifest, Verified, manifest_envelope, read_manifest, verify
from lazaretto.sources.testing import Coordinate, check_source


def deliver(
    root: Path, file_format: str, files: Mapping[str, tuple[bytes, int]], **over: Any
) -> tuple[Manifest, Verified]:
    folder = root / "in"
    entries = []
    for path, (content, records) in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        entries.append({"path": path, "bytes": len(content), "sha256": sha256, "records": records})
    document = {"manifest_id": "m-1", "dataset": "orders", "format": file_format, "files": entries, **over}
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(document))
    manifest = read_manifest(folder / "manifest.json")
    return manifest, verify(manifest, root / "in box [1]")


def expected(files: Mapping[str, list[bytes]]) -> dict[Coordinate, bytes | None]:
    return {("files", "m-1", p, n): value for p, values in files.items() for n, value in enumerate(values, 1)}


def check(spark: SparkSession, manifest: Manifest, verified: Verified, files: Mapping[str, list[bytes]]) -> None:
    assert verified.problems == ()
    check_source(lambda: manifest_envelope(spark, manifest, verified), expected(files))


NAMES = ["a.jsonl", "sub dir/_b.jsonl", ".c/.d", "50%25+é#;=.gz.bz2", "k=v/x.data", "x", "x.data"]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_lines(spark: SparkSession, tmp_path: Path, compression: str | None) -> None:
    values = [b'{"a":1}', b"", b"\xff\r", b"last"]
    content = b"\n".join(values)
    packed = gzip.compress(content) if compression else content
    over = {"compression": compression} if compression else {}
    manifest, verified = deliver(tmp_path, "jsonl", dict.fromkeys(NAMES, (packed, 4)), **over)
    check(spark, manifest, verified, dict.fromkeys(NAMES, values))


def test_csv(spark: SparkSession, tmp_path: Path) -> None:
    files = {
        "a.csv": (b'\xef\xbb\xbfid,text\r\n1,"two\r\nlines ""q"""\r\n\r\n2,\xff\x1e\n3,"\x1e"\n\xef\xbb\xbf', 5),
        "marked.csv": (b"id,text\n\xef\xbb\xbf1,x\n2,y", 2),
        "none.csv": (b"id,text", 0),
    }
    manifest, verified = deliver(tmp_path, "csv", files)
    assert verified.csv_columns == ("id", "text")
    values = {
        "a.csv": [b'1,"two\r\nlines ""q"""', b"", b"2,\xff\x1e", b'3,"\x1e"', b"\xef\xbb\xbf"],
        "marked.csv": [b"\xef\xbb\xbf1,x", b"2,y"],
        "none.csv": [],
    }
    check(spark, manifest, verified, values)


def test_csv_separators_across_the_readers_buffers(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop looks for the separator in 64 KiB buffers: one split by a buffer's end is found all the same."""
    values = [b"x" * (65_536 - n) + b"\x1e" * (n % 3) for n in range(1, 40)]
    manifest, verified = deliver(tmp_path, "csv", {"a.csv": (b"h\n" + b"\n".join(values), len(values))})
    check(spark, manifest, verified, {"a.csv": values})


WHEN = datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)


def rendered(df: DataFrame) -> list[str]:
    return [bytes(r.value).decode() for r in df.orderBy("source.partition", "source.position").collect()]


def test_parquet_types(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table(
        {
            "s": ['é\n"\\', None],
            "b": [True, False],
            "i8": pa.array([-128, None], pa.int8()),
            "u32": pa.array([4_294_967_295, None], pa.uint32()),
            "i64": [9_223_372_036_854_775_807, None],
            "f": pa.array([0.1, float("nan")], pa.float64()),
            "d2": pa.array([Decimal("12.50"), None], pa.decimal128(10, 2)),
            "d18": pa.array([Decimal("0.000000000000000001"), Decimal(0)], pa.decimal128(38, 18)),
            "day": pa.array([date(2026, 2, 28), None], pa.date32()),
            "utc": pa.array([WHEN, None], pa.timestamp("us", "UTC")),
            "ms": pa.array([WHEN.replace(microsecond=1000), None], pa.timestamp("ms", "Europe/Berlin")),
            "local": pa.array([WHEN.replace(tzinfo=None), None], pa.timestamp("us")),
            "bin": pa.array([b"\x00\xff", None], pa.binary()),
            "list": [[1, None], []],
            "st": [{"x": None, "y": Decimal("0.00000001")}, None],
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    pq.write_table(table, tmp_path / "x")
    manifest, verified = deliver(tmp_path, "parquet", {"a.parquet": ((tmp_path / "x").read_bytes(), 2)})
    assert verified.problems == ()
    first, second = rendered(manifest_envelope(spark, manifest, verified))
    assert first == (
        '{"s":"é\\n\\"\\\\","b":true,"i8":-128,"u32":4294967295,"i64":9223372036854775807,"f":0.1,"d2":12.50,'
        '"d18":0.000000000000000001,"day":"2026-02-28","utc":"2026-01-02T03:04:05.123456Z",'
        '"ms":"2026-01-02T03:04:05.001000Z","local":"2026-01-02T03:04:05.123456","bin":"AP8=","list":[1,null],'
        '"st":{"y":0.00000001},"map":{"k":1}}'
    )
    assert second == '{"b":false,"f":"NaN","d18":0,"list":[]}'


def test_parquet_files_of_two_schemas_keep_all_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    contents = {}
    for name, column in {"a": "x", "b": "y", "c": "x"}.items():
        pq.write_table(pa.table({"id": [1, 2, 3], column: [name] * 3}), tmp_path / "x", row_group_size=1)
        contents[f"{name}.parquet"] = ((tmp_path / "x").read_bytes(), 3)
    manifest, verified = deliver(tmp_path, "parquet", contents)
    values = {
        f"{name}.parquet": [b'{"id":%d,"%s":"%s"}' % (n, column, name.encode()) for n in (1, 2, 3)]
        for name, column in {"a": b"x", "b": b"y", "c": b"x"}.items()
    }
    check(spark, manifest, verified, values)


def test_parquet_columns_with_odd_names(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a.b": [1], "c`d": [2], "_metadata": [3], "e f,{}": [4]}), tmp_path / "x")
    manifest, verified = deliver(tmp_path, "parquet", {"a": ((tmp_path / "x").read_bytes(), 1)})
    check(spark, manifest, verified, {"a": [b'{"a.b":1,"c`d":2,"_metadata":3,"e f,{}":4}']})


def test_avro_types_and_blocks(spark: SparkSession, tmp_path: Path) -> None:
    schema = fastavro.parse_schema(
        {
            "type": "record", "name": "r",
            "fields": [
                {"name": "n", "type": "long"},
                {"name": "s", "type": ["null", "string"]},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
                {"name": "day", "type": {"type": "int", "logicalType": "date"}},
                {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 10}},
                {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
                {"name": "tags", "type": {"type": "array", "items": "string"}},
            ],
        }
    )  # fmt: skip
    rows = [
        {"n": n, "s": None if n % 2 else "é", "at": WHEN, "day": date(2026, 1, 2), "d": Decimal("1e-10"), "e": "B",
         "tags": ["x"]}
        for n in range(3000)
    ]  # fmt: skip
    with (tmp_path / "x").open("wb") as out:
        fastavro.writer(out, schema, rows, codec="deflate", sync_interval=1000)
    other = fastavro.parse_schema({"type": "record", "name": "q", "fields": [{"name": "z", "type": "int"}]})
    with (tmp_path / "y").open("wb") as out:
        fastavro.writer(out, other, [{"z": 1}])
    files = {"a.avro": ((tmp_path / "x").read_bytes(), 3000), "b.avro": ((tmp_path / "y").read_bytes(), 1)}
    manifest, verified = deliver(tmp_path, "avro", files)
    rest = b'"at":"2026-01-02T03:04:05.123456Z","day":"2026-01-02","d":0.0000000001,"e":"B","tags":["x"]}'
    values = [b'{"n":%d,%s%s' % (n, b"" if n % 2 else '"s":"é",'.encode(), rest) for n in range(3000)]
    check(spark, manifest, verified, {"a.avro": values, "b.avro": [b'{"z":1}']})


def test_source_time_is_the_delivered_files(spark: SparkSession, tmp_path: Path) -> None:
    manifest, verified = deliver(tmp_path, "jsonl", {"a": (b"x", 1)})
    delivered = (manifest.folder / "a").stat().st_mtime
    row = manifest_envelope(spark, manifest, verified).first()
    assert row is not None
    assert row.source_time.timestamp() == pytest.approx(delivered, abs=0.001)
    assert (row.key, row.headers) == (None, None)


def test_an_empty_manifest(spark: SparkSession, tmp_path: Path) -> None:
    manifest, verified = deliver(tmp_path, "jsonl", {}, expect_empty=True)
    check(spark, manifest, verified, {})


def test_a_manifest_with_a_problem_has_no_envelope(spark: SparkSession, tmp_path: Path) -> None:
    manifest, verified = deliver(tmp_path, "jsonl", {"a": (b"x", 1), "b": (b"y", 2)})
    with pytest.raises(BatchRejectedError) as caught:
        manifest_envelope(spark, manifest, verified)
    assert caught.value.error_class is BatchClass.INCOMPLETE
    assert "b has 1 records, 2 were promised" in str(caught.value)
