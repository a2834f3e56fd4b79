"""A manifest: the sender's promise which files make up one batch, and what is in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictInt, ValidationError

from lazaretto.config import FileFormat
from lazaretto.errors import ConfigurationError

MAX_MANIFEST_BYTES = 64 << 20
_NAME_BYTES = 200
"""Longest name in a path: the copies on our side carry a suffix."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_RESERVED = "reason.json"
_Count = Annotated[StrictInt, Field(ge=0)]
_Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]


def _plain_path(path: str) -> str:
    """The path without `.` parts, or ValueError when it could mean anything but a file below the manifest's folder."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("path is not valid Unicode") from None
    if _CONTROL.search(path):
        raise ValueError("path has a control character")
    for mark, meaning in (("\\", "a backslash"), ("//", "a scheme or an empty part"), (":", "a scheme or drive")):
        if mark in path:
            raise ValueError(f"path has {meaning}: give a plain path relative to the manifest")
    if any(mark in path for mark in "*?[]{}"):
        raise ValueError("path has a pattern: list each file")
    if path.startswith("/"):
        raise ValueError("path is absolute: give it relative to the manifest")
    parts = PurePosixPath(path).parts
    if ".." in parts:
        raise ValueError("path has `..`: files must lie beside or below the manifest")
    if not parts or path.endswith("/"):
        raise ValueError("path names no file")
    if any(len(part.encode()) > _NAME_BYTES for part in parts):
        raise ValueError(f"path has a name longer than {_NAME_BYTES} bytes")
    if parts == (_RESERVED,):
        raise ValueError(f"path is {_RESERVED}, a name that is kept for our own use")
    return "/".join(parts)


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ManifestFile(_Strict):
    """One file as promised: `bytes` and `sha256` as delivered (compressed, if so), `records` without a CSV header."""

    path: Annotated[str, AfterValidator(_plain_path)]
    bytes: _Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$"), AfterValidator(str.lower)]
    records: _Count


class _Document(_Strict):
    manifest_id: _Id
    dataset: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    format: FileFormat
    files: tuple[ManifestFile, ...]
    compression: Literal["gzip"] | None = None
    expect_empty: StrictBool = False
    supersedes: _Id | None = None


@dataclass(frozen=True)
class Manifest:
    """A manifest that was read and is sound in itself; nothing is known yet about its files.

    Attributes:
        manifest_id: fit to be a file name: letters, digits, `.`, `_`, `-`.
        files: each file once, in the manifest's order, with paths relative to `folder`.
        supersedes: the id of an earlier manifest that this one takes the place of.
        folder: where its files lie, with symbolic links resolved.
        file: the manifest itself, for messages.
        repeated: paths that were listed again, word for word or through a link; they are loaded once.
    """

    manifest_id: str
    dataset: str
    format: FileFormat
    files: tuple[ManifestFile, ...]
    folder: Path
    file: Path
    compression: Literal["gzip"] | None = None
    supersedes: str | None = None
    repeated: tuple[str, ...] = field(default=())

    @property
    def records(self) -> int:
        """How many records all files together were promised to have."""
        return sum(f.records for f in self.files)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest and check everything about it that needs no file's content.

    Raises:
        ConfigurationError: it is missing, is not JSON, has a doubled or unknown key or a wrong value, lists a file
            twice with different promises, lists nothing without `expect_empty`, or names a path that is not plainly a
            file in or below its own folder. The message has the line, where it can be told.
    """
    text = _read(path)
    document = _parsed(path, text)
    try:
        made = _Document.model_validate(document)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        place = tuple(first["loc"])
        name = ".".join(str(part) for part in place)
        if first["type"] == "extra_forbidden":
            _fail(path, text, place, f"unknown key {name}", "remove it")
        _fail(path, text, place, f"{name}: {first['msg'].removeprefix('Value error, ')}", "mend the manifest")
    if not made.files and not made.expect_empty:
        _fail(path, text, ("files",), "lists no files", 'say "expect_empty": true if that is meant')
    if made.files and made.expect_empty:
        _fail(path, text, ("expect_empty",), "is said to be empty and lists files", "remove the one or the other")
    if made.supersedes == made.manifest_id:
        _fail(path, text, ("supersedes",), "supersedes itself", "give the new manifest an id of its own")
    folder = path.absolute().parent.resolve()
    files, repeated = _distinct(made.files, folder, path, text)
    return Manifest(
        manifest_id=made.manifest_id,
        dataset=made.dataset,
        format=made.format,
        files=files,
        folder=folder,
        file=path,
        compression=made.compression,
        supersedes=made.supersedes,
        repeated=repeated,
    )


def resolved_below(folder: Path, relative: str) -> Path | None:
    """The file a relative path leads to, links resolved, or None when that is outside `folder` (which is resolved)."""
    try:
        target = (folder / relative).resolve()
    except (OSError, RuntimeError):  # a loop of links
        return None
    return target if target.is_relative_to(folder) and target != folder else None


def _distinct(
    listed: Iterable[ManifestFile], folder: Path, path: Path, text: str
) -> tuple[tuple[ManifestFile, ...], tuple[str, ...]]:
    kept: dict[Path, ManifestFile] = {}
    repeated = []
    for index, file in enumerate(listed):
        place = ("files", index, "path")
        target = resolved_below(folder, file.path)
        if target is None:
            _fail(path, text, place, "path leads out of the manifest's folder", "put the file itself beside it")
        first = kept.setdefault(target, file)
        if first is file:
            continue
        if (first.bytes, first.sha256, first.records) != (file.bytes, file.sha256, file.records):
            _fail(path, text, place, "file is listed twice with different promises", "list it once")
        repeated.append(file.path)
    return tuple(kept.values()), tuple(repeated)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_MANIFEST_BYTES + 1)
    except OSError as exc:
        raise ConfigurationError(
            f"cannot read the manifest ({type(exc).__name__})", where=str(path), remedy="check --manifest"
        ) from exc
    if len(raw) > MAX_MANIFEST_BYTES:
        raise ConfigurationError("the manifest is larger than 64 MiB", where=str(path), remedy="split the batch")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = raw[: exc.start].count(b"\n") + 1
        raise ConfigurationError("not valid UTF-8", where=f"{path}:{line}", remedy="write it in UTF-8") from exc


class _DoubledKeyError(ValueError):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__("a key is there twice")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _DoubledKeyError(key)
        made[key] = value
    return made


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as exc:
        raise ConfigurationError(
            f"not valid JSON: {exc.msg}", where=f"{path}:{exc.lineno}", remedy="mend this line"
        ) from exc
    except _DoubledKeyError as exc:
        _fail(path, text, _place_of_doubled(text, exc.key), f"key {exc.key} is there twice", "remove one of the two")
    except (ValueError, RecursionError) as exc:
        what = str(exc) if isinstance(exc, ValueError) else "nested too deeply"
        raise ConfigurationError(f"not valid JSON: {what}", where=str(path), remedy="mend the manifest") from exc
    if not isinstance(document, dict):
        raise ConfigurationError("not a JSON object", where=str(path), remedy='begin with {"manifest_id": ...')
    return document


_FILES = re.compile(r'"files"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")


def _starts(text: str, *, strict: bool = False) -> Iterable[int]:
    """Where each entry of `files` begins in the text."""
    begin = _FILES.search(text)
    at = begin.end() if begin else len(text)
    decoder = json.JSONDecoder(object_pairs_hook=_object if strict else None)
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        if at >= len(text) or text[at] == "]":
            return
        yield at
        _, at = decoder.raw_decode(text, at)


def _place_of_doubled(text: str, key: str) -> tuple[str | int, ...]:
    """The entry of `files` that has the doubled key, else the top of the document."""
    begun = 0
    try:
        for _ in _starts(text, strict=True):
            begun += 1
    except _DoubledKeyError:
        return ("files", begun - 1, key)
    return (key,)


def _fail(path: Path, text: str, place: tuple[str | int, ...], what: str, remedy: str) -> NoReturn:
    """Raise with the line of the key at `place`, of the entry that should have it, or of neither."""
    start = 0
    if len(place) > 1 and place[0] == "files" and isinstance(place[1], int):
        start = next((at for i, at in enumerate(_starts(text)) if i == place[1]), 0)
    key = re.compile(re.escape(json.dumps(str(place[-1]), ensure_ascii=False)) + r"\s*:").search(text, start)
    at = key.start() if key else start
    where = f"{path}:{text.count(chr(10), 0, at) + 1}" if at else str(path)
    raise ConfigurationError(what, where=where, remedy=remedy)
