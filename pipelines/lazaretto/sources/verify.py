"""Files brought to our side and compared with what their manifest promised, in one pass over their bytes.

What is compared is the copy, and the copy is what is read afterwards: what happens to the sender's file later does not
matter. Each copy is written under another name, synced and renamed, and gets a record of what was found beside it. A
repeated call takes a finished copy again only when it still hashes to that record.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lazaretto.config import FileFormat
from lazaretto.errors import BatchClass, ConfigurationError, SinkError
from lazaretto.sources.containers import rows_and_schema
from lazaretto.sources.copies import VerifiedFile, copy_path, finished_copy, keep_copy
from lazaretto.sources.counting import Bytes, CsvRecords, Lines, Taker
from lazaretto.sources.delivered import MismatchError, open_delivered, pieces
from lazaretto.sources.inflate import DEFAULT_CAP, InflateCap, Inflater, RefusedError
from lazaretto.sources.manifest import Manifest, ManifestFile

_INCOMPLETE = BatchClass.INCOMPLETE
_CONTRACT = BatchClass.CONTRACT_VIOLATION


@dataclass(frozen=True)
class FileProblem:
    """Why a file is not what its manifest promised; `reason` holds nothing from its content."""

    path: str
    reason: str
    error_class: BatchClass


@dataclass(frozen=True)
class Verified:
    """What became of a manifest's files: each is in `files` or in `problems`."""

    inbox: Path
    files: tuple[VerifiedFile, ...]
    problems: tuple[FileProblem, ...]

    @property
    def records(self) -> int:
        return sum(f.records for f in self.files)

    @property
    def csv_columns(self) -> tuple[str, ...] | None:
        """The header that all CSV files have; None for other formats and for no files."""
        return self.files[0].columns or None if self.files else None

    @property
    def error_class(self) -> BatchClass | None:
        """The class of the batch: other content than promised outweighs missing content."""
        classes = {p.error_class for p in self.problems}
        return _CONTRACT if _CONTRACT in classes else _INCOMPLETE if classes else None


def verify(
    manifest: Manifest, inbox: Path, *, encoding: str = "utf-8", inflate_cap: InflateCap = DEFAULT_CAP
) -> Verified:
    """Copy each file of the manifest into `inbox`, and compare size, sha256 and number of records with the promise.

    A file that is missing, short, or has another number of records is `incomplete`; one that is longer, has another
    sha256, or is not of its format is a `contract_violation`. May be called again with the same inbox at any time.

    Args:
        inbox: a folder of ours for this manifest alone; made if need be.
        encoding: of the text, for the header of CSV.

    Raises:
        SourceError: a file is there and cannot be read (rights, device): nothing is known about it.
        SinkError: the inbox cannot be written.
        ConfigurationError: text in this encoding cannot be told apart into lines.
    """
    if manifest.format in (FileFormat.JSONL, FileFormat.CSV) and not keeps_ascii(encoding):
        raise ConfigurationError(
            f"files in {encoding} cannot be split into records", where=str(manifest.file),
            remedy="deliver them in an encoding that keeps ASCII, such as utf-8",
        )  # fmt: skip
    files: list[VerifiedFile] = []
    problems: list[FileProblem] = []
    inbox = inbox.absolute()
    for promised in manifest.files:
        try:
            promise = (promised.bytes, promised.sha256, promised.records)
            found = finished_copy(inbox, promised.path, promise, _read_as(manifest, encoding)) or _copied(
                manifest, promised, inbox, encoding, inflate_cap
            )
        except MismatchError as exc:
            problems.append(FileProblem(promised.path, exc.reason, exc.error_class))
            continue
        if files and found.columns != files[0].columns:
            problems.append(FileProblem(found.path, f"its header differs from that of {files[0].path}", _CONTRACT))
        else:
            files.append(found)
    return Verified(inbox, tuple(files), tuple(problems))


def keeps_ascii(encoding: str) -> bool:
    """Whether line ends, quotes and commas are the same bytes as in ASCII, so that text can be cut by them."""
    text = '\n\r",[]{}:0a'
    try:
        return text.encode(encoding) == text.encode("ascii")
    except (LookupError, ValueError):
        return False


def _read_as(manifest: Manifest, encoding: str) -> tuple[str, ...]:
    """What else a copy depends on: with another format or encoding it is another copy."""
    return (manifest.format.value, manifest.compression or "", encoding)


def _copied(manifest: Manifest, promised: ManifestFile, inbox: Path, encoding: str, cap: InflateCap) -> VerifiedFile:
    copy = copy_path(inbox, promised.path)
    read_as = _read_as(manifest, encoding)
    partial = copy.with_name(copy.name + ".partial")
    with open_delivered(manifest, promised.path) as delivered:
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as out:
                taker = _taker(manifest.format, out, encoding)
                inflater = Inflater(cap) if manifest.compression else None
                counted = _take(delivered, promised, taker, inflater)
                out.flush()
                os.fsync(out.fileno())
            records, schema = (counted, "") if counted is not None else _rows(manifest.format, partial)
            if records != promised.records:
                raise MismatchError(f"has {records} records, {promised.records} were promised", _INCOMPLETE)
            columns = taker.columns if isinstance(taker, CsvRecords) else ()
            found = VerifiedFile(promised.path, copy, promised.bytes, promised.sha256, records, schema, columns)
            changed = os.fstat(delivered.fileno()).st_mtime_ns
            os.utime(partial, ns=(changed, changed))  # the envelope's source_time is the delivered file's
            keep_copy(partial, found, read_as)
        except OSError as exc:
            raise SinkError(
                f"the inbox cannot be written ({type(exc).__name__})", where=str(inbox),
                remedy="check space and rights, run again",
            ) from exc  # fmt: skip
        finally:
            with suppress(OSError):
                partial.unlink()
    return found


def _take(delivered: BinaryIO, promised: ManifestFile, taker: Taker, inflater: Inflater | None) -> int | None:
    """The number of records, once size and sha256 are as promised and the content is of its format."""
    digest = hashlib.sha256()
    size = 0
    refused: RefusedError | None = None
    counted: int | None = None
    for piece in pieces(delivered):
        digest.update(piece)
        size += len(piece)
        if size > promised.bytes:
            raise MismatchError(f"is longer than the {promised.bytes} bytes promised", _CONTRACT)
        # a broken format may be no more than a cut-off delivery: first see what the size says
        if refused is None:
            try:
                for plain in inflater.feed(piece) if inflater else (piece,):
                    taker.feed(plain)
            except RefusedError as exc:
                refused = exc
    if size < promised.bytes:
        raise MismatchError(f"has {size} bytes, {promised.bytes} were promised", _INCOMPLETE)
    if digest.hexdigest() != promised.sha256:
        raise MismatchError("has another sha256 than promised", _CONTRACT)
    try:
        if refused is not None:
            raise refused
        for plain in inflater.finish() if inflater else ():
            taker.feed(plain)
        counted = taker.finish()
    except RefusedError as exc:
        raise MismatchError(str(exc), _CONTRACT) from exc
    return counted


def _taker(file_format: FileFormat, out: BinaryIO, encoding: str) -> Taker:
    if file_format is FileFormat.JSONL:
        return Lines(out)
    return CsvRecords(out, encoding) if file_format is FileFormat.CSV else Bytes(out)


def _rows(file_format: FileFormat, copy: Path) -> tuple[int, str]:
    try:
        return rows_and_schema(file_format, copy)
    except RefusedError as exc:
        raise MismatchError(str(exc), _CONTRACT) from exc
