"""The sender's files: opened with care, read in pieces, never changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lazaretto.errors import BatchClass, SourceError
from lazaretto.sources.manifest import Manifest, resolved_below

_PIECE = 1 << 20


class MismatchError(Exception):
    """A file is not what was promised; the reason continues a sentence that begins with its path."""

    def __init__(self, reason: str, error_class: BatchClass) -> None:
        self.reason = reason
        self.error_class = error_class
        super().__init__(reason)


def open_delivered(manifest: Manifest, relative: str) -> BinaryIO:
    """One of the manifest's files, opened to be read in pieces.

    Raises:
        MismatchError: it is missing, is no plain file, or lies outside the manifest's folder by now.
        SourceError: it is there and cannot be opened.
    """
    path = resolved_below(manifest.folder, relative)
    if path is None:
        raise MismatchError("leads out of the manifest's folder", BatchClass.CONTRACT_VIOLATION)
    try:
        # not blocking on a pipe, not following a link that was put there just now
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise MismatchError("is missing", BatchClass.INCOMPLETE) from None
    except OSError as exc:
        raise _unreadable(exc, path) from exc
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise MismatchError("is not a plain file", BatchClass.CONTRACT_VIOLATION)
    return os.fdopen(handle, "rb", buffering=0)


def pieces(delivered: BinaryIO) -> Iterator[bytes]:
    """The content, at most 1 MiB at a time.

    Raises:
        SourceError: the device or the network in between gives an error.
    """
    while True:
        try:
            piece = delivered.read(_PIECE)
        except OSError as exc:
            raise _unreadable(exc, None) from exc
        if not piece:
            return
        yield piece


def _unreadable(exc: OSError, path: Path | None) -> SourceError:
    return SourceError(
        f"a delivered file cannot be read ({type(exc).__name__})",
        where=str(path) if path else None,
        remedy="check rights and device, run again",
    )
