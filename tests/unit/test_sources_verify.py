from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lazaretto.errors import BatchClass, ConfigurationError, SinkError, SourceError
from lazaretto.sources import InflateCap, Manifest, Verified, read_manifest, refuse_files, verify
from lazaretto.sources.copies import copy_path

INCOMPLETE, CONTRACT = BatchClass.INCOMPLETE, BatchClass.CONTRACT_VIOLATION
LINES = b'{"a": 1}\n{"a": 2}\r\n\xff\xfe'


class Delivery:
    """A sender's folder with a manifest, and our inbox for it."""

    def __init__(self, root: Path, file_format: str = "jsonl", **over: Any) -> None:
        self.folder = root / "in"
        self.inbox = root / "inbox"
        self.folder.mkdir(exist_ok=True)
        self._document: dict[str, Any] = {"manifest_id": "m-1", "dataset": "orders", "format": file_format, **over}
        self._files: list[dict[str, Any]] = []

    def add(self, path: str, content: bytes, records: int, **over: Any) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        self._files.append({"path": path, "bytes": len(content), "sha256": sha256, "records": records, **over})
        return file

    def manifest(self) -> Manifest:
        file = self.folder / "manifest.json"
        file.write_text(json.dumps({**self._document, "files": self._files}))
        return read_manifest(file)

    def verify(self, **over: Any) -> Verified:
        return verify(self.manifest(), self.inbox, **over)

    def only_problem(self, **over: Any) -> tuple[str, BatchClass]:
        verified = self.verify(**over)
        (problem,) = verified.problems
        assert verified.error_class is problem.error_class
        assert not list(self.inbox.rglob("*.partial"))
        return problem.reason, problem.error_class


def test_a_file_as_promised_is_copied_byte_for_byte(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path)
    source = delivery.add("sub/part 1.jsonl", LINES, 3)
    os.utime(source, (1_000_000_000, 1_000_000_000))
    verified = delivery.verify()
    assert verified.problems == ()
    assert verified.error_class is None
    (file,) = verified.files
    assert file.copy.read_bytes() == LINES
    assert file.copy.stat().st_mtime == 1_000_000_000
    assert (file.path, file.bytes, file.records, verified.records) == ("sub/part 1.jsonl", len(LINES), 3, 3)


@pytest.mark.parametrize(
    ("promise", "reason", "error_class"),
    [
        ({"bytes": len(LINES) + 1}, f"has {len(LINES)} bytes, {len(LINES) + 1} were promised", INCOMPLETE),
        ({"bytes": len(LINES) - 1}, f"is longer than the {len(LINES) - 1} bytes promised", CONTRACT),
        ({"sha256": "00" * 32}, "has another sha256 than promised", CONTRACT),
        ({"records": 4}, "has 3 records, 4 were promised", INCOMPLETE),
        ({"records": 2}, "has 3 records, 2 were promised", INCOMPLETE),
    ],
)
def test_broken_promises(tmp_path: Path, promise: Mapping[str, Any], reason: str, error_class: BatchClass) -> None:
    delivery = Delivery(tmp_path)
    delivery.add("a.jsonl", LINES, **{"records": 3, **promise})
    assert delivery.only_problem() == (reason, error_class)


def test_missing_files_and_things_that_are_no_files(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path)
    delivery.add("gone.jsonl", b"", 0).unlink()
    delivery.add("folder.jsonl", b"", 0).unlink()
    (delivery.folder / "folder.jsonl").mkdir()
    delivery.add("pipe.jsonl", b"", 0).unlink()
    os.mkfifo(delivery.folder / "pipe.jsonl")
    delivery.add("good.jsonl", b"{}", 1)
    verified = delivery.verify()
    assert [(p.path, p.reason, p.error_class) for p in verified.problems] == [
        ("gone.jsonl", "is missing", INCOMPLETE),
        ("folder.jsonl", "is not a plain file", CONTRACT),
        ("pipe.jsonl", "is not a plain file", CONTRACT),
    ]
    assert [f.path for f in verified.files] == ["good.jsonl"]
    assert verified.error_class is CONTRACT


def test_a_link_put_there_after_the_manifest_was_read(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path)
    file = delivery.add("a.jsonl", b"root:x\n", 1)
    manifest = delivery.manifest()
    secret = tmp_path / "secret"
    secret.write_bytes(b"root:x\n")
    file.unlink()
    file.symlink_to(secret)
    (problem,) = verify(manifest, delivery.inbox).problems
    assert problem.reason == "leads out of the manifest's folder"
    kept = refuse_files(manifest, [problem], tmp_path, "b", "orders", date(2026, 11, 30))
    assert [p.name for p in kept] == ["reason.json"]


def test_what_is_read_is_the_copy(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path)
    file = delivery.add("a.jsonl", LINES, 3)
    copy = delivery.verify().files[0].copy
    file.write_bytes(b"other\n")
    assert copy.read_bytes() == LINES
    assert delivery.inbox in copy.parents


def test_a_finished_copy_is_used_again_only_when_it_is_still_the_same(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path)
    source = delivery.add("a.jsonl", LINES, 3)
    first = delivery.verify()
    source.unlink()
    assert delivery.verify() == first, "the sender's file is not needed any more"
    first.files[0].copy.write_bytes(LINES[:-1] + b"!")
    assert delivery.only_problem() == ("is missing", INCOMPLETE)
    source.write_bytes(LINES)
    assert delivery.verify() == first
    assert first.files[0].copy.read_bytes() == LINES


def test_a_crash_between_copy_and_its_record_costs_a_copy_only(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path)
    delivery.add("a.jsonl", LINES, 3)
    copy = delivery.verify().files[0].copy
    (record,) = copy.parent.glob("*.verified")
    record.write_text('{"path": "a.js')
    (copy.parent / "a.jsonl.data.partial").write_bytes(b"half")
    assert delivery.verify().files[0].copy.read_bytes() == LINES
    assert not list(copy.parent.glob("*.partial"))


def test_another_format_under_the_same_promise_is_another_copy(tmp_path: Path) -> None:
    content = b'"a\nb"\nc\nd'
    as_lines = Delivery(tmp_path)
    as_lines.add("a", content, 4)
    assert as_lines.verify().problems == ()
    as_csv = Delivery(tmp_path, "csv")
    as_csv.add("a", content, 4)
    assert as_csv.only_problem() == ("has 2 records, 4 were promised", INCOMPLETE)


@pytest.mark.parametrize(
    ("content", "records"),
    [
        (b"", 0),
        (b"\n", 1),
        (b"\n\n", 2),
        (b"a", 1),
        (b"a\n", 1),
        (b"a\nb", 2),
        (b"a\rb\xe2\x80\xa8c", 1),
        (b"\xef\xbb\xbf", 0),
        (b"\xef\xbb\xbf\n", 1),
        (b"\xef\xbb\xbfa", 1),
        (b"\xef\xbb", 1),
    ],
)
def test_how_lines_are_counted(tmp_path: Path, content: bytes, records: int) -> None:
    delivery = Delivery(tmp_path)
    delivery.add("a.jsonl", content, records)
    assert delivery.verify().problems == ()


def test_gzip_is_inflated_and_promised_as_delivered(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path, compression="gzip")
    members = gzip.compress(LINES[:10], mtime=0) + gzip.compress(LINES[10:])
    delivery.add("a.jsonl.gz", members, 3)
    (file,) = delivery.verify().files
    assert file.bytes == len(members)
    assert file.copy.read_bytes() == LINES
    assert not file.copy.name.endswith(".gz")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (LINES, "not gzip"),
        (b"", "not gzip"),
        (gzip.compress(LINES, mtime=0)[:-4], "ends in the middle"),
        (gzip.compress(LINES, mtime=0) + b"garbage", "something follows"),
        (gzip.compress(LINES, mtime=0) + b"\x00" * 8, "something follows"),
        (gzip.compress(LINES, mtime=0) + gzip.compress(LINES, mtime=0)[:12], "ends in the middle"),
        (gzip.compress(LINES, mtime=0)[:-8] + b"\x00" * 8, "damaged"),
    ],
)
def test_bad_gzip(tmp_path: Path, content: bytes, reason: str) -> None:
    delivery = Delivery(tmp_path, compression="gzip")
    delivery.add("a.jsonl.gz", content, 3)
    found, error_class = delivery.only_problem()
    assert reason in found
    assert error_class is CONTRACT


def test_gzip_cut_off_on_the_way_is_incomplete(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path, compression="gzip")
    whole = gzip.compress(LINES, mtime=0)
    delivery.add("a.jsonl.gz", whole[:-4], 3, bytes=len(whole), sha256=hashlib.sha256(whole).hexdigest())
    assert delivery.only_problem()[1] is INCOMPLETE


@pytest.mark.parametrize(
    ("cap", "reason"), [(InflateCap(), "more than 100 times"), (InflateCap(10_000, 5 << 20), "more than 5242880 bytes")]
)
def test_a_gzip_bomb_stops_at_the_cap(tmp_path: Path, cap: InflateCap, reason: str) -> None:
    bomb = gzip.compress(b"\x00" * (64 << 20))
    delivery = Delivery(tmp_path, compression="gzip")
    delivery.add("a.jsonl.gz", bomb, 1)
    found, error_class = delivery.only_problem(inflate_cap=cap)
    assert reason in found
    assert error_class is CONTRACT
    assert not list(delivery.inbox.rglob("*.data"))


def test_csv_records_are_taken_apart_by_their_quotes(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path, "csv")
    content = b'\xef\xbb\xbfid,"na,me"\r\n1,"two\r\nlines, and a ""quote"""\r\n\r\n2,plain "q" in the middle\n'
    content += b'3,\xff\x1e\n4,"x\n"'
    delivery.add("a.csv", content, 5)
    verified = delivery.verify()
    assert verified.csv_columns == ("id", "na,me")
    records = [b'1,"two\r\nlines, and a ""quote"""', b"", b'2,plain "q" in the middle', b"3,\xff\x1e", b'4,"x\n"']
    # the mark is what Spark's reader takes off a file's head
    assert verified.files[0].copy.read_bytes() == b"\xef\xbb\xbf" + b"".join(r + b"\x1e\n" for r in records)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has no header"),
        (b"\n1,2\n", "without a name"),
        (b"a,,b\n1,2,3\n", "without a name"),
        (b"a,b,a\n1,2,3\n", "two columns of one name"),
        (b"a\xff,b\n", "in utf-8"),
        (b'"a"x,b\n', "not one CSV record"),
        (b'a,b\n1,"2\n3,4\n', "not closed"),
        (b'a,b\n1,"x\x1e\ny"\n', "byte 1E"),
    ],
)
def test_bad_csv(tmp_path: Path, content: bytes, reason: str) -> None:
    delivery = Delivery(tmp_path, "csv")
    delivery.add("a.csv", content, 1)
    found, error_class = delivery.only_problem()
    assert reason in found
    assert error_class is CONTRACT


def test_csv_headers_must_agree_and_may_be_in_the_datasets_encoding(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path, "csv")
    delivery.add("a.csv", "名,b\n1,2\n".encode("gbk"), 1)
    delivery.add("b.csv", "b,名\n1,2\n".encode("gbk"), 1)
    verified = delivery.verify(encoding="gbk")
    assert verified.csv_columns == ("名", "b")
    assert [(p.path, p.reason, p.error_class) for p in verified.problems] == [
        ("b.csv", "its header differs from that of a.csv", CONTRACT)
    ]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "cp037", "base64"])
def test_encodings_that_hide_line_ends(tmp_path: Path, encoding: str) -> None:
    delivery = Delivery(tmp_path)
    delivery.add("a.jsonl", b"x", 1)
    with pytest.raises(ConfigurationError, match="cannot be split"):
        delivery.verify(encoding=encoding)


def parquet(path: Path, columns: Mapping[str, Any]) -> bytes:
    pq.write_table(pa.table(dict(columns)), path)
    return path.read_bytes()


def test_parquet_is_counted_by_its_metadata(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path, "parquet")
    delivery.add("a.parquet", parquet(tmp_path / "x", {"id": [1, 2, 3]}), 3)
    delivery.add("b.parquet", parquet(tmp_path / "x", {"id": [1]}), 1)
    delivery.add("c.parquet", parquet(tmp_path / "x", {"id": ["1"]}), 1)
    delivery.add("none.parquet", parquet(tmp_path / "x", {"id": pa.array([], pa.int64())}), 0)
    verified = delivery.verify()
    assert verified.problems == ()
    assert verified.csv_columns is None
    a, b, c, none = (f.schema for f in verified.files)
    assert a == b == none != c


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"id": [1], "ID": [2]}, "differ by case alone"),
        ({"t": pa.array([1], pa.timestamp("ns"))}, "column t is of a type"),
        ({"d": pa.array([1], pa.decimal256(50, 2))}, "column d is of a type"),
        ({"h": pa.array([1.5], pa.float16())}, "column h is of a type"),
        ({"s": pa.array([{"t": 1}], pa.struct([("t", pa.time64("us"))]))}, "column s.t is of a type"),
        ({}, "no columns"),
    ],
)
def test_parquet_that_spark_would_not_read(tmp_path: Path, columns: Mapping[str, Any], reason: str) -> None:
    delivery = Delivery(tmp_path, "parquet")
    delivery.add("a.parquet", parquet(tmp_path / "x", columns), 1)
    found, error_class = delivery.only_problem()
    assert reason in found
    assert error_class is CONTRACT


def avro(path: Path, schema: Mapping[str, Any] | str, rows: list[Any]) -> bytes:
    with path.open("wb") as out:
        fastavro.writer(out, fastavro.parse_schema(schema), rows)
    return path.read_bytes()


ROW = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}


def test_avro_is_counted_by_its_blocks(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path, "avro")
    delivery.add("a.avro", avro(tmp_path / "x", ROW, [{"a": i} for i in range(20_000)]), 20_000)
    assert delivery.verify().problems == ()


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"Obj\x01", b"Obj\x01" + b"\x00" * 40, b"PAR1" * 5, b"{}\n"])
def test_what_is_no_container(tmp_path: Path, file_format: str, content: bytes) -> None:
    delivery = Delivery(tmp_path, file_format)
    delivery.add("a", content, 0)
    found, error_class = delivery.only_problem()
    assert "or damaged" in found
    assert error_class is CONTRACT


def test_avro_that_is_no_table(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path, "avro")
    delivery.add("a", avro(tmp_path / "x", "string", ["x"]), 1)
    assert delivery.only_problem() == ("its Avro schema is not a record", CONTRACT)


def test_nothing_of_the_content_is_in_a_reason(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path, "csv")
    delivery.add("a.csv", b'MARKER,MARKER\n"MARKER', 1)
    delivery.add("b.csv", b'MARKER\xff\n"MARKER', 1)
    delivery.add("c.csv", b'a\n"MARKER', 1)
    for problem in delivery.verify().problems:
        assert "MARKER" not in repr(problem)


def test_an_inbox_that_cannot_be_written_is_no_fault_of_the_sender(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path)
    delivery.add("a.jsonl", b"x", 1)
    delivery.inbox.write_bytes(b"a file where the folder should be")
    with pytest.raises(SinkError, match="inbox"):
        delivery.verify()


def test_a_file_that_cannot_be_opened_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = Delivery(tmp_path)
    delivery.add("a.jsonl", b"x", 1)

    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr("lazaretto.sources.delivered.os.open", refuse)
    with pytest.raises(SourceError, match="PermissionError"):
        delivery.verify()


@pytest.mark.parametrize(
    ("relative", "below"),
    [
        ("a.jsonl", "a.jsonl.data"),
        ("_a", "%5Fa.data"),
        (".a", "%2Ea.data"),
        ("50%.gz", "50%25.gz.data"),
        ("a.data/b", "a%2Edata/b.data"),
        ("_d/.e/f=1", "%5Fd/%2Ee/f=1.data"),
    ],
)
def test_where_copies_lie(relative: str, below: str) -> None:
    assert copy_path(Path("/inbox"), relative) == Path("/inbox") / below


def test_refused_files_are_kept_as_delivered(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path, compression="gzip")
    delivered = delivery.add("sub/a.gz", b"\xffnot gzip MARKER", 1)
    delivery.add("gone.gz", b"", 1).unlink()
    delivery.add("good.gz", gzip.compress(b"x", mtime=0), 1)
    manifest = delivery.manifest()
    verified = verify(manifest, delivery.inbox)

    def refuse() -> list[Path]:
        return refuse_files(manifest, verified.problems, tmp_path / "lake", "batch-7", "orders", date(2026, 1, 2))

    kept = refuse()
    folder = tmp_path / "lake/quarantine_files/orders/2026/01/02/batch-7"
    assert kept == [folder / "sub/a.gz", folder / "reason.json"]
    assert kept[0].read_bytes() == delivered.read_bytes() == b"\xffnot gzip MARKER"
    reason = json.loads(kept[1].read_text())
    assert reason["manifest_id"] == "m-1"
    assert [(f["path"], f["error_class"], f["reason"]) for f in reason["files"]] == [
        ("sub/a.gz", "contract_violation", "not gzip, damaged, or something follows its end"),
        ("gone.gz", "incomplete", "is missing"),
    ]
    assert reason["files"][0]["promised"] == {"bytes": 16, "sha256": manifest.files[0].sha256, "records": 1}
    assert "MARKER" not in kept[1].read_text()
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert refuse() == kept
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    assert [p.name for p in folder.parent.iterdir()] == ["batch-7"]


def test_refused_files_need_a_place(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path)
    delivery.add("a.jsonl", b"x", 2)
    manifest = delivery.manifest()
    problems = verify(manifest, delivery.inbox).problems
    (tmp_path / "quarantine_files").write_bytes(b"")
    with pytest.raises(SinkError, match="cannot be kept"):
        refuse_files(manifest, problems, tmp_path, "b", "orders", date(2026, 1, 2))
