"""Copies of delivered files on our side: where each lies, and when a finished one may be used again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

COPY_SUFFIX = ".data"
"""Ends every copy's name, so that Spark guesses no compression from it."""


@dataclass(frozen=True)
class VerifiedFile:
    """A file that is what was promised.

    Attributes:
        path: relative, as in the manifest.
        copy: what is read: the content without compression, for CSV without the header.
        bytes: size as delivered; `sha256` likewise.
        schema: equal for Parquet or Avro files that Spark can read together.
        columns: a CSV file's header.
    """

    path: str
    copy: Path
    bytes: int
    sha256: str
    records: int
    schema: str = ""
    columns: tuple[str, ...] = ()


def copy_path(inbox: Path, relative: str) -> Path:
    """Where a file's copy lies: under its own path, percent-encoded where Spark would skip the name.

    Folders lose their dots, so that none can have the name of a copy.
    """
    *folders, name = relative.split("/")
    return inbox.joinpath(*(_visible(f).replace(".", "%2E") for f in folders), _visible(name) + COPY_SUFFIX)


def _visible(name: str) -> str:
    name = name.replace("%", "%25")
    return f"%{ord(name[0]):02X}{name[1:]}" if name[0] in "._" else name


def keep_copy(partial: Path, found: VerifiedFile, read_as: Sequence[str]) -> None:
    """Rename a copy into place, then write down what it is: that record makes it a finished one."""
    record = _record_of(found.copy)
    record.unlink(missing_ok=True)
    content = {**asdict(found), "copy": _sha256(partial), "read_as": list(read_as)}
    os.replace(partial, found.copy)
    draft = record.with_name(record.name + ".partial")
    with draft.open("w", encoding="utf-8") as out:
        json.dump(content, out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(draft, record)
    folder = os.open(found.copy.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def finished_copy(inbox: Path, path: str, promise: tuple[int, str, int], read_as: Sequence[str]) -> VerifiedFile | None:
    """The copy of an earlier run, if it was of this promise (bytes, sha256, records) and still hashes to its record."""
    copy = copy_path(inbox, path)
    try:
        content = json.loads(_record_of(copy).read_text(encoding="utf-8"))
        hashed, read_then = content.pop("copy"), content.pop("read_as")
        kept = VerifiedFile(**{**content, "copy": copy, "columns": tuple(content["columns"])})
        same = (kept.bytes, kept.sha256, kept.records) == promise and read_then == list(read_as)
        return kept if same and _sha256(copy) == hashed else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _record_of(copy: Path) -> Path:
    return copy.with_name(copy.name + ".verified")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
