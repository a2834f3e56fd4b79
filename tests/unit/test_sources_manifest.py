from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lazaretto.errors import ConfigurationError
from lazaretto.sources import read_manifest

SHA = "ab" * 32


def entry(path: str = "part-0.jsonl", **over: Any) -> dict[str, Any]:
    return {"path": path, "bytes": 10, "sha256": SHA, "records": 2, **over}


def document(*files: dict[str, Any], **over: Any) -> dict[str, Any]:
    return {
        "manifest_id": "orders-2026-11-30-001",
        "dataset": "orders",
        "format": "jsonl",
        "files": list(files or [entry()]),
        **over,
    }


def write(folder: Path, content: Any) -> Path:
    file = folder / "manifest.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
    return file


def one_per_line(*files: dict[str, Any]) -> str:
    return json.dumps(document(files=[])).replace("[]", "[\n" + ",\n".join(map(json.dumps, files)) + "]")


def refused(folder: Path, content: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_manifest(write(folder, content))
    assert caught.value.exit_code == 2
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(folder / "manifest.json"))
    return text.removeprefix(str(folder / "manifest.json"))


def test_a_manifest_as_in_the_documentation(tmp_path: Path) -> None:
    manifest = read_manifest(write(tmp_path, document(entry("a.jsonl"), entry("sub/b.jsonl", records=5))))
    assert [f.path for f in manifest.files] == ["a.jsonl", "sub/b.jsonl"]
    assert manifest.records == 7
    assert manifest.folder == tmp_path.resolve()
    assert (manifest.compression, manifest.supersedes, manifest.repeated) == (None, None, ())


def test_optional_keys_and_a_byte_order_mark(tmp_path: Path) -> None:
    content = document(entry(sha256=SHA.upper()), compression="gzip", supersedes="orders-1")
    manifest = read_manifest(write(tmp_path, "\ufeff" + json.dumps(content)))
    assert (manifest.compression, manifest.supersedes) == ("gzip", "orders-1")
    assert manifest.files[0].sha256 == SHA


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/etc/passwd", "absolute"),
        ("../part-0.jsonl", "`..`"),
        ("a/../../b", "`..`"),
        ("s3://bucket/x", "scheme"),
        ("a//b", "scheme"),
        ("file:x", "scheme"),
        ("C:/x", "scheme"),
        ("a\\b", "backslash"),
        ("*.jsonl", "pattern"),
        ("part-?.jsonl", "pattern"),
        ("part-[0].jsonl", "pattern"),
        ("{a,b}.jsonl", "pattern"),
        ("a\u0000b", "control"),
        ("a\nb", "control"),
        ("a\u007fb", "control"),
        ("", "names no file"),
        (".", "names no file"),
        ("folder/", "names no file"),
        ("reason.json", "reason.json"),
        ("./reason.json", "reason.json"),
        ("n" * 201, "longer"),
    ],
)
def test_paths_that_are_not_plainly_below_the_manifest(tmp_path: Path, path: str, reason: str) -> None:
    text = refused(tmp_path, document(entry(path)))
    assert reason in text
    assert text.startswith(":7:"), text


def test_a_lone_surrogate_is_no_path(tmp_path: Path) -> None:
    assert "Unicode" in refused(tmp_path, json.dumps(document(entry("X"))).replace('"X"', '"\\ud800"'))


@pytest.mark.parametrize(
    "name", ["a b.jsonl", "100%.jsonl", "é\u2028.jsonl", "a+b#c&d=e.jsonl", ".hidden", "_tmp/x", "..."]
)
def test_unusual_names_are_fine(tmp_path: Path, name: str) -> None:
    assert read_manifest(write(tmp_path, document(entry(name)))).files[0].path == name


@pytest.mark.parametrize(
    ("over", "key"),
    [
        ({"manifest_id": "a/b"}, "manifest_id"),
        ({"manifest_id": ".."}, "manifest_id"),
        ({"manifest_id": ""}, "manifest_id"),
        ({"manifest_id": "a b"}, "manifest_id"),
        ({"manifest_id": "x\n"}, "manifest_id"),
        ({"manifest_id": "x" * 129}, "manifest_id"),
        ({"dataset": "Orders"}, "dataset"),
        ({"format": "xml"}, "format"),
        ({"compression": "zstd"}, "compression"),
        ({"expect_empty": "yes"}, "expect_empty"),
        ({"supersedes": "../x"}, "supersedes"),
        ({"supersedes": "orders-2026-11-30-001"}, "itself"),
        ({"files": "part-0.jsonl"}, "files"),
        ({"fils": []}, "unknown key fils"),
        ({"files": [], "expect_empty": False}, "expect_empty"),
        ({"files": []}, "expect_empty"),
        ({"expect_empty": True}, "empty"),
    ],
)
def test_values_that_are_wrong(tmp_path: Path, over: dict[str, Any], key: str) -> None:
    assert key in refused(tmp_path, document(**over))


@pytest.mark.parametrize(
    "over",
    [
        {"bytes": -1},
        {"bytes": "10"},
        {"bytes": 10.0},
        {"bytes": True},
        {"records": -1},
        {"records": None},
        {"sha256": "ab"},
        {"sha256": "g" * 64},
        {"size": 1},
    ],
)
def test_promises_that_are_wrong(tmp_path: Path, over: dict[str, Any]) -> None:
    text = refused(tmp_path, document(entry("first.jsonl"), entry("second.jsonl", **over)))
    assert f"files.1.{next(iter(over))}" in text
    assert int(text.split(":")[1]) > 11, text  # somewhere in the second entry


@pytest.mark.parametrize("key", ["manifest_id", "dataset", "format", "files"])
def test_keys_that_are_missing(tmp_path: Path, key: str) -> None:
    content = document()
    del content[key]
    assert key in refused(tmp_path, content)


def test_a_missing_promise_names_the_line_of_its_entry(tmp_path: Path) -> None:
    second = entry("b")
    del second["records"]
    text = refused(tmp_path, one_per_line(entry("a"), second))
    assert text.startswith(":3: files.1.records")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ":1: not valid JSON"),
        ("{\n'a': 1}", ":2: not valid JSON"),
        ('{"a": 1,\n}', "not valid JSON"),
        ('{"a": NaN}', "NaN"),
        ("[]", "not a JSON object"),
        ("3", "not a JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"dataset": "a",\n "dataset": "b"}', "dataset is there twice"),
    ],
)
def test_what_is_no_json_object(tmp_path: Path, text: str, reason: str) -> None:
    assert reason in refused(tmp_path, text)


def test_a_doubled_key_in_an_entry(tmp_path: Path) -> None:
    text = refused(tmp_path, one_per_line(entry("a"), entry("b")).replace('{"path": "b"', '{"records": 3, "path": "b"'))
    assert text.startswith(":3: key records is there twice")


def test_not_utf8_and_not_there(tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    with pytest.raises(ConfigurationError, match="FileNotFoundError"):
        read_manifest(file)
    file.write_bytes(b"{\n\xff}")
    with pytest.raises(ConfigurationError, match=r"manifest\.json:2: not valid UTF-8"):
        read_manifest(file)
    with pytest.raises(ConfigurationError, match="IsADirectoryError"):
        read_manifest(tmp_path)


def test_an_empty_manifest_that_says_so(tmp_path: Path) -> None:
    manifest = read_manifest(write(tmp_path, document(files=[], expect_empty=True)))
    assert (manifest.files, manifest.records) == ((), 0)


def test_a_file_listed_twice_is_loaded_once_and_reported(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "alias.jsonl").symlink_to("a.jsonl")
    manifest = read_manifest(
        write(tmp_path, document(entry("a.jsonl"), entry("./a.jsonl"), entry("alias.jsonl"), entry("b.jsonl")))
    )
    assert [f.path for f in manifest.files] == ["a.jsonl", "b.jsonl"]
    assert manifest.repeated == ("a.jsonl", "alias.jsonl")


@pytest.mark.parametrize("over", [{"bytes": 11}, {"records": 3}, {"sha256": "cd" * 32}])
def test_a_file_listed_twice_with_different_promises(tmp_path: Path, over: dict[str, Any]) -> None:
    assert "twice" in refused(tmp_path, document(entry("a.jsonl"), entry("a.jsonl", **over)))


def test_links_that_lead_out(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "secret").write_text("x")
    (folder / "link.jsonl").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to(tmp_path)
    (folder / "loop").symlink_to("loop")
    for path in ("link.jsonl", "up/secret", "up/nothing", "loop"):
        assert "leads out" in refused(folder, document(entry(path)))
    (folder / "real").mkdir()
    (folder / "inner").symlink_to("real")
    assert read_manifest(write(folder, document(entry("inner/a.jsonl")))).files[0].path == "inner/a.jsonl"
