"""Files taken apart into records while they are copied: counted here exactly as Spark will read them."""

from __future__ import annotations

import csv
import io
from typing import BinaryIO, Protocol

from lazaretto.sources.inflate import RefusedError

MAX_RECORD_BYTES = 256 << 20
"""A longer record cannot be held; its file is refused. (The dataset's own `max_bytes` holds single records.)"""

CSV_SEPARATOR = "\x1e\n"
"""Ends each record in our copy of a CSV file, because a quoted field may hold every line ending there is."""

_SEPARATOR = CSV_SEPARATOR.encode()
_BOM = b"\xef\xbb\xbf"


class Taker(Protocol):
    """Takes a file's plain bytes in any pieces, and writes what the copy shall hold."""

    def feed(self, data: bytes) -> None: ...

    def finish(self) -> int | None:
        """The number of records; None where only the finished copy can tell."""


class Bytes:
    """Copies bytes as they are (Parquet, Avro)."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def feed(self, data: bytes) -> None:
        self._out.write(data)

    def finish(self) -> int | None:
        return None


class Lines:
    """Copies lines as they are and counts them: one for each `\\n`, and one for what follows the last of them."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._head = b""
        self._size = 0
        self._count = 0
        self._length = 0

    def feed(self, data: bytes) -> None:
        self._out.write(data)
        if self._size < len(_BOM):
            self._head = (self._head + data)[: len(_BOM)]
        self._size += len(data)
        self._count += data.count(b"\n")
        first, last = data.find(b"\n"), data.rfind(b"\n")
        if self._length + (len(data) if first < 0 else first) > MAX_RECORD_BYTES:
            raise RefusedError(f"a line is longer than {MAX_RECORD_BYTES} bytes")
        self._length = self._length + len(data) if first < 0 else len(data) - last - 1

    def finish(self) -> int:
        only_mark = self._size == len(_BOM) and self._head == _BOM
        return self._count + (1 if self._length and not only_mark else 0)


class CsvRecords:
    """Copies CSV records (RFC 4180: commas, double quotes doubled inside quotes), each ended by `CSV_SEPARATOR`.

    A record ends at LF or CRLF outside quotes; that ending is not part of it. A quote opens only at the start of a
    field. A blank line is a record. The first record is the header: it is not copied.
    """

    def __init__(self, out: BinaryIO, encoding: str) -> None:
        self._out = out
        self._encoding = encoding
        self._rest: list[bytes] = []  # the pieces of a line whose end has not come yet
        self._lines: list[bytes] = []  # the lines of a record whose closing quote has not come yet
        self._held = 0  # bytes in both
        self._count = -1
        self.columns: tuple[str, ...] = ()

    def feed(self, data: bytes) -> None:
        if b"\n" not in data:
            self._hold(self._rest, data)
            return
        head, *lines = data.split(b"\n")
        self._rest.append(head)
        lines.insert(0, b"".join(self._rest))
        tail = lines.pop()
        self._rest = []
        self._held = sum(map(len, self._lines))
        done: list[bytes] = []
        for line in lines:
            self._line(line, done)
        self._write(done)
        self._hold(self._rest, tail)

    def finish(self) -> int:
        rest = b"".join(self._rest)
        done: list[bytes] = []
        if rest:
            self._line(rest, done)
        if self._lines:
            raise RefusedError("a quoted field is not closed by the end of the file")
        self._write(done)
        if self._count < 0:
            raise RefusedError("has no header")
        return self._count

    def _hold(self, where: list[bytes], data: bytes) -> None:
        where.append(data)
        self._held += len(data)
        if self._held > MAX_RECORD_BYTES:
            raise RefusedError(f"a record is longer than {MAX_RECORD_BYTES} bytes")

    def _line(self, line: bytes, done: list[bytes]) -> None:
        inside = bool(self._lines)
        if _ends_in_quotes(line, inside=inside) if b'"' in line else inside:
            self._hold(self._lines, line)
            return
        if self._lines:
            line = b"\n".join([*self._lines, line])
            self._lines = []
            self._held = 0
            if _SEPARATOR in line:
                raise RefusedError("a quoted field holds the byte 1E before a line feed")
        done.append(line[:-1] if line.endswith(b"\r") else line)

    def _write(self, records: list[bytes]) -> None:
        if self._count < 0 and records:
            self.columns = self._header(records.pop(0))
            self._count = 0
            # Spark's reader takes a mark off the head of the copy: this one, so that none of the first record's is lost
            self._out.write(_BOM)
        if records:
            self._count += len(records)
            self._out.write(_SEPARATOR.join(records) + _SEPARATOR)

    def _header(self, record: bytes) -> tuple[str, ...]:
        try:
            text = record.removeprefix(_BOM).decode(self._encoding)
            (cells,) = list(csv.reader(io.StringIO(text, newline=""), strict=True)) or [[]]
        except (UnicodeDecodeError, ValueError, csv.Error) as exc:
            raise RefusedError(f"the header is not one CSV record in {self._encoding}") from exc
        if not cells or not all(cells):
            raise RefusedError("the header has a column without a name")
        if len(set(cells)) != len(cells):
            raise RefusedError("the header has two columns of one name")
        return tuple(cells)


def _ends_in_quotes(line: bytes, *, inside: bool) -> bool:
    """Whether the end of `line` stands inside a quoted field, given whether its start does."""
    at = 0
    if not inside and line.startswith(b'"'):
        inside, at = True, 1
    while True:
        if inside:
            close = line.find(b'"', at)
            if close < 0:
                return True
            if line[close + 1 : close + 2] == b'"':
                at = close + 2
                continue
            inside, at = False, close + 1
        else:
            start = line.find(b',"', at)
            if start < 0:
                return False
            inside, at = True, start + 2
