"""Records are counted while a file streams through in arbitrary pieces: the pieces must not matter."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazaretto.sources import counting
from lazaretto.sources.counting import CsvRecords, Lines
from lazaretto.sources.inflate import DEFAULT_CAP, InflateCap, Inflater, RefusedError

CUTS = st.lists(st.integers(0, 200), max_size=8)
CSV_TEXT = st.text(alphabet='a,"\n\r\x1eé', max_size=60)
CELLS = st.text(alphabet='ab,"\n\ré ', max_size=6)


def cut(content: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(min(c, len(content)) for c in cuts), len(content)]
    return [content[a:b] for a, b in pairwise(edges)]


@given(st.binary(max_size=60).map(lambda b: b.replace(b"\x00", b"\n")), CUTS)
def test_lines(content: bytes, cuts: list[int]) -> None:
    out = io.BytesIO()
    lines = Lines(out)
    for piece in cut(content, cuts):
        lines.feed(piece)
    plain = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert lines.finish() == len(plain) - (plain[-1] == b"")
    assert out.getvalue() == content


def taken(content: bytes, pieces: Sequence[bytes]) -> tuple[int, tuple[str, ...], bytes] | str:
    out = io.BytesIO()
    records = CsvRecords(out, "utf-8")
    try:
        for piece in pieces:
            records.feed(piece)
        return records.finish(), records.columns, out.getvalue()
    except RefusedError as exc:
        return str(exc)


@given(CSV_TEXT, CUTS)
@settings(max_examples=300)
def test_csv_pieces_do_not_matter(text: str, cuts: list[int]) -> None:
    content = ("h\n" + text).encode()
    assert taken(content, cut(content, cuts)) == taken(content, [content])


@given(st.lists(st.lists(CELLS, min_size=2, max_size=3), max_size=6), st.sampled_from(["\n", "\r\n"]), st.booleans())
@settings(max_examples=300)
def test_csv_records_are_what_pythons_reader_sees(rows: list[list[str]], end: str, at_end: bool) -> None:
    text = io.StringIO(newline="")
    # a bare CR outside quotes is part of nothing that two readers agree on
    quoting = csv.QUOTE_ALL if any("\r" in cell for row in rows for cell in row) else csv.QUOTE_MINIMAL
    csv.writer(text, lineterminator=end, quoting=quoting).writerows([["h", "i"], *rows])
    content = text.getvalue().encode()
    if not at_end:
        content = content.removesuffix(end.encode())
    found = taken(content, [content])
    assert not isinstance(found, str), found
    count, columns, copy = found
    assert (count, columns) == (len(rows), ("h", "i"))
    records = copy.removeprefix(b"\xef\xbb\xbf").decode().split("\x1e\n")[:-1]
    assert [next(csv.reader(io.StringIO(r, newline=""))) for r in records] == rows


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), CUTS)
def test_gzip_pieces_and_members_do_not_matter(members: list[bytes], cuts: list[int]) -> None:
    inflater = Inflater(DEFAULT_CAP)
    found = b""
    for piece in cut(b"".join(map(gzip.compress, members)), cuts):
        found += b"".join(inflater.feed(piece))
    found += b"".join(inflater.finish())
    assert found == b"".join(members)


def test_gzip_gives_small_pieces() -> None:
    inflater = Inflater(InflateCap(ratio=10_000))
    content = bytes(range(256)) * (64 << 10)
    sizes = [len(piece) for piece in inflater.feed(gzip.compress(content, 1))] + [len(p) for p in inflater.finish()]
    assert sum(sizes) == len(content)
    assert max(sizes) <= 1 << 20


def feed_all(taker: Lines, pieces: Sequence[bytes]) -> None:
    for piece in pieces:
        taker.feed(piece)


@pytest.mark.parametrize("content", [b"x" * 40, b"ab\n" + b"x" * 40 + b"\n"])
def test_records_that_cannot_be_held(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MAX_RECORD_BYTES", 32)
    for size in (1, 7, 31):  # pieces are smaller than the longest record in real life, too
        with pytest.raises(RefusedError, match="longer than 32 bytes"):
            feed_all(Lines(io.BytesIO()), [content[at : at + size] for at in range(0, len(content), size)])


def test_a_quote_that_would_swallow_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MAX_RECORD_BYTES", 32)
    content = b'a,b\n1,"' + b"2,3\n" * 20
    assert taken(content, cut(content, range(0, 100, 5))) == "a record is longer than 32 bytes"
    fine = b"a,b\n" + b"2,3\n" * 20 + b'"' + b"x" * 25 + b'",1\n'
    assert isinstance(taken(fine, cut(fine, range(0, 200, 5))), tuple)
