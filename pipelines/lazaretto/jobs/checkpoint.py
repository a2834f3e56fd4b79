"""Where a stream stands by its checkpoint: Spark's own files, read before Spark does, so that damage is told plainly.

metadata            JSON with the query's id
sources/0/0         where the first batch began (Kafka only)
offsets/<n>         where batch n ends; written before it runs
commits/<n>         batch n is done
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lazaretto.errors import GuardRefusedError

RESTART = "run `lazaretto stream {dataset} --restart-from-ledger`: it goes on where the ledger ends"

Offsets = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> the offset of the next record."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that can be read. `planned` is the newest batch with offsets, `done` the newest that is committed.

    A whole checkpoint has `done == planned`, or one batch less: the one that was under way.
    """

    folder: Path
    query_id: str
    planned: int | None
    done: int | None

    @property
    def under_way(self) -> int | None:
        """The batch that Spark will run again, as it was planned."""
        return self.planned if self.planned != self.done else None

    def batch_id(self, number: int) -> str:
        return f"{self.query_id}-{number}"

    def start(self, number: int) -> Offsets | None:
        """Where batch `number` of a Kafka stream begins; None for other sources, or when Spark has not noted it."""
        return self._first if number == 0 else self.end(number - 1)

    def end(self, number: int) -> Offsets | None:
        """Where batch `number` of a Kafka stream ends; None for other sources."""
        # the query's own state, then the source's
        return _kafka_offsets(_lines(self.folder / "offsets" / str(number), documents=2))

    @cached_property
    def _first(self) -> Offsets | None:
        file = self.folder / "sources" / "0" / "0"
        # Spark puts a zero byte before the text.
        return _kafka_offsets(_lines(file)) if file.is_file() else None


def read_checkpoint(folder: Path, dataset: str) -> Checkpoint | None:
    """The checkpoint, or None when there is none yet.

    Raises:
        GuardRefusedError: a file of it is empty, torn or missing.
    """
    try:
        file = folder / "metadata"
        if not folder.is_dir() or not (file.exists() or any(folder.glob("*/*"))):
            return None
        query_id = str(json.loads(file.read_text(encoding="utf-8"))["id"])
        planned, done = _newest(folder / "offsets"), _newest(folder / "commits")
        found = Checkpoint(folder, query_id, planned, done)
        if done is not None and (planned is None or planned < done):
            raise _DamagedError(f"offsets/{done}")
        # Spark looks at the newest two: where it stood, and what it is to run again.
        for number in range(max((planned or 0) - 1, 0), (planned if planned is not None else -1) + 1):
            found.end(number)
        if done is not None:
            _lines(folder / "commits" / str(done))
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise GuardRefusedError(
            f"the checkpoint is damaged: {_told(exc, folder)} is missing, empty or torn", where=str(folder),
            remedy=RESTART.format(dataset=dataset),
        ) from exc  # fmt: skip
    return found


class _DamagedError(ValueError):
    """A file that is not as Spark writes it."""


def _told(exc: Exception, folder: Path) -> str:
    if isinstance(exc, OSError) and exc.filename:
        return Path(exc.filename).relative_to(folder).as_posix()
    return str(exc) if isinstance(exc, _DamagedError) else "metadata"


def _newest(folder: Path) -> int | None:
    """The highest number among the file names."""
    return max((int(file.name) for file in folder.glob("*") if file.name.isdigit()), default=None)


def _lines(file: Path, documents: int = 1) -> list[str]:
    """The JSON documents of a log file, a line each, of which there are at least so many; a version stands before."""
    name = "/".join(file.parts[-2:])
    try:
        lines = file.read_text(encoding="utf-8").lstrip("\0").splitlines()
        read = [json.loads(line) for line in lines[1:]]
    except ValueError as exc:
        raise _DamagedError(name) from exc
    if len(read) < documents or not lines[0].startswith("v"):
        raise _DamagedError(name)
    return lines[1:]


def _kafka_offsets(lines: list[str]) -> Offsets | None:
    document: Any = json.loads(lines[-1])
    if not isinstance(document, dict) or not all(isinstance(parts, dict) for parts in document.values()):
        return None
    return {topic: {int(p): int(offset) for p, offset in parts.items()} for topic, parts in document.items()}
