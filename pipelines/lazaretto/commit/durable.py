"""Small JSON files that are either there whole or not at all, also after a power cut."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lazaretto.errors import SinkError


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write beside, sync, rename over: a reader sees the old file or the new one. Raises OSError."""
    beside = path.with_name(f".{path.name}.tmp")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(document, file, ensure_ascii=False, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    # Mounted volumes may not let a folder be synced; the rename is atomic all the same.
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_json(path: Path) -> dict[str, Any] | None:
    """The document, or None when there is none.

    Raises:
        SinkError: it is there, but is not what `write_json` writes.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        raise damaged(path.parent, f"{path.name} cannot be read ({type(exc).__name__})") from exc
    if not isinstance(document, dict):
        raise damaged(path.parent, f"{path.name} is not a JSON object")
    return document


def damaged(stage: Path, what: str) -> SinkError:
    """The error for a stage that is not as it was left."""
    return SinkError(
        f"the stage is damaged: {what}",
        where=str(stage),
        remedy="delete this folder and run again: the batch is then read and screened anew",
    )
