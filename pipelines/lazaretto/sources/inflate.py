"""What a container must not do to us: gzip inflated piece by piece, under a cap."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

_PIECE = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS
# A small file may inflate by more than the ratio: it cannot do harm.
_ALWAYS_ALLOWED = 1 << 20


class RefusedError(Exception):
    """A file's content is not what its format says; the text names the reason, never the content."""


@dataclass(frozen=True)
class InflateCap:
    """How far gzip may inflate: to `ratio` times its own size, and to `total_bytes`."""

    ratio: int = 100
    total_bytes: int = 10 << 30


DEFAULT_CAP = InflateCap()


class Inflater:
    """Gzip in, plain bytes out, at most 1 MiB at a time. Several members in a row are one content (RFC 1952)."""

    def __init__(self, cap: InflateCap) -> None:
        self._cap = cap
        self._taken = 0
        self._given = 0
        self._member: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The plain bytes that `data` adds.

        Raises:
            RefusedError: not gzip, damaged, followed by something else, or beyond the cap.
        """
        self._taken += len(data)
        while data:
            if self._member is None:
                self._member = zlib.decompressobj(_GZIP)
            piece = self._inflate(data)
            if piece:
                yield piece
            if self._member.eof:
                data = self._member.unused_data
                self._member = None
            else:
                data = self._member.unconsumed_tail

    def finish(self) -> Iterator[bytes]:
        """What is still held back, after the last `feed`.

        Raises:
            RefusedError: the content ends in the middle, or there was none.
        """
        if self._taken == 0:
            raise RefusedError("not gzip: the file is empty")
        while self._member is not None and not self._member.eof:
            piece = self._inflate(b"")
            if not piece:
                break
            yield piece
        if self._member is not None and not self._member.eof:
            raise RefusedError("the gzip content ends in the middle")

    def _inflate(self, data: bytes) -> bytes:
        assert self._member is not None
        try:
            piece = self._member.decompress(data, _PIECE)
        except zlib.error as exc:
            raise RefusedError("not gzip, damaged, or something follows its end") from exc
        self._given += len(piece)
        if self._given > self._cap.total_bytes:
            raise RefusedError(f"inflates to more than {self._cap.total_bytes} bytes")
        if self._given > max(self._cap.ratio * self._taken, _ALWAYS_ALLOWED):
            raise RefusedError(f"inflates to more than {self._cap.ratio} times its size")
        return piece
