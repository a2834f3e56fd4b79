"""Whole files that were refused, kept as delivered, with the reason beside them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from lazaretto.errors import SinkError
from lazaretto.sources.delivered import MismatchError, open_delivered, pieces
from lazaretto.sources.manifest import Manifest
from lazaretto.sources.verify import FileProblem


def refuse_files(
    manifest: Manifest,
    problems: Sequence[FileProblem],
    target_root: Path,
    batch_id: str,
    dataset: str,
    day: date,
) -> list[Path]:
    """Copy each refused file to `<target_root>/quarantine_files/<dataset>/<yyyy>/<MM>/<dd>/<batch_id>/<its path>`.

    Beside them goes `reason.json`: manifest, and for each file its path, reason and class. The sender's folder is left
    as it is. A file that is missing, or that may not be followed, is in `reason.json` only. Calling again writes the
    same again.

    Returns:
        The paths written, `reason.json` last.

    Raises:
        SinkError: the target cannot be written.
        SourceError: a file is there and cannot be read.
    """
    target = target_root / "quarantine_files" / dataset / f"{day:%Y}" / f"{day:%m}" / f"{day:%d}" / batch_id
    draft = target.parent / f".draft-{batch_id}"  # outside the batch's own folder, where every name may be a file's
    written: list[Path] = []
    try:
        for problem in problems:
            place = target / problem.path
            if _kept(manifest, problem.path, place, draft):
                written.append(place)
        written.append(_reason(manifest, problems, target, batch_id, dataset, draft))
    except OSError as exc:
        raise SinkError(
            f"refused files cannot be kept ({type(exc).__name__})", where=str(target),
            remedy="check space and rights, run again",
        ) from exc  # fmt: skip
    return written


def _kept(manifest: Manifest, path: str, place: Path, draft: Path) -> bool:
    try:
        stream = open_delivered(manifest, path)
    except MismatchError:
        return False
    with stream:
        place.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as out:
            for piece in pieces(stream):
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
    os.replace(draft, place)
    return True


def _reason(
    manifest: Manifest, problems: Sequence[FileProblem], target: Path, batch_id: str, dataset: str, draft: Path
) -> Path:
    promised = {f.path: f for f in manifest.files}
    content = {
        "manifest_id": manifest.manifest_id,
        "dataset": dataset,
        "batch_id": batch_id,
        "files": [
            {
                "path": p.path,
                "reason": p.reason,
                "error_class": p.error_class.value,
                "promised": promised[p.path].model_dump(exclude={"path"}) if p.path in promised else None,
            }
            for p in problems
        ],
    }
    target.mkdir(parents=True, exist_ok=True)
    place = target / "reason.json"
    with draft.open("w", encoding="utf-8") as out:
        json.dump(content, out, ensure_ascii=False, indent=2)
        out.flush()
        os.fsync(out.fileno())
    os.replace(draft, place)
    return place
