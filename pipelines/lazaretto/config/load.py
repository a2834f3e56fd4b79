"""Read the settings file(s): one `--conf` file, or `conf/base.yml` merged with `conf/<env>.yml`."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from lazaretto.config.settings import (
    CatalogWarehouse,
    DatasetSettings,
    DedupeTable,
    DedupeWindow,
    FilesSource,
    KafkaSource,
    PathWarehouse,
    Settings,
    warehouse_kind,
)
from lazaretto.errors import ConfigurationError

_PATH_KEYS = ("contract", "rules")


def load_settings(conf: Path | None = None, env: str | None = None, *, folder: Path = Path("conf")) -> Settings:
    """Load and check the settings.

    Args:
        conf: one YAML file; paths in it are relative to its folder.
        env: merges `<folder>/<env>.yml` over `<folder>/base.yml` (or over `conf` when that is given).
        folder: where `base.yml` and the environments lie.

    Raises:
        ConfigurationError: a file is missing, not YAML, or has an unknown key or a wrong value; it names the line.
    """
    base = conf or folder / "base.yml"
    files = [base] if env is None else [base, base.parent / f"{env}.yml"]
    if env is not None and not env.replace("-", "").replace("_", "").isalnum():
        raise ConfigurationError(f"--env {env!r} is not a name", remedy="give the name of a file in conf/")
    merged: dict[str, Any] = {}
    lines: dict[tuple[str, ...], str] = {}
    for file in files:
        document = _read(file)
        merged = _merge(merged, _absolute(document, file.parent.resolve()))
        lines.update(_lines(file))
    origin = " + ".join(str(f) for f in files)
    if "origin" in merged:
        raise ConfigurationError("unknown key origin", where=lines[("origin",)], remedy="remove it")
    if isinstance(merged.get("warehouse"), str):
        merged["warehouse"] = {"root": merged["warehouse"]}
    try:
        return Settings.model_validate({**merged, "origin": origin})
    except ValidationError as exc:
        raise _explained(exc, origin, lines) from exc


def _read(file: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(
            f"cannot read the configuration ({type(exc).__name__})", where=str(file), remedy="check --conf and --env"
        ) from exc
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark is not None else str(file)
        raise ConfigurationError("not valid YAML", where=where, remedy="mend this line") from exc
    if not isinstance(document, dict):
        raise ConfigurationError("not a YAML mapping", where=str(file), remedy="begin with `warehouse:`")
    return document


def _absolute(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The document with every path in it made absolute against the file's own folder."""
    result = dict(document)
    warehouse = result.get("warehouse")
    if isinstance(warehouse, str):
        result["warehouse"] = str(_resolved(folder, warehouse))
    elif isinstance(warehouse, dict):
        result["warehouse"] = {
            k: str(_resolved(folder, v)) if k in ("files", "root") and isinstance(v, str) else v
            for k, v in warehouse.items()
        }
    datasets = result.get("datasets")
    if isinstance(datasets, dict):
        result["datasets"] = {name: _absolute_dataset(body, folder) for name, body in datasets.items()}
    return result


def _absolute_dataset(body: Any, folder: Path) -> Any:
    if not isinstance(body, dict):
        return body
    result = {k: str(_resolved(folder, v)) if k in _PATH_KEYS and isinstance(v, str) else v for k, v in body.items()}
    source = result.get("source")
    if isinstance(source, dict) and isinstance(source.get("path"), str):
        result["source"] = {**source, "path": str(_resolved(folder, source["path"]))}
    return result


def _resolved(folder: Path, value: str) -> Path:
    try:
        return (folder / Path(value).expanduser()).resolve()
    except (ValueError, RuntimeError) as exc:
        raise ConfigurationError(
            f"{value!r} is no path ({type(exc).__name__})", where=str(folder), remedy="mend this value"
        ) from exc


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`: mappings are merged key by key, everything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        replaceable = not (isinstance(old, dict) and isinstance(value, dict)) or (
            # another kind of source, dedupe or warehouse replaces the whole mapping: leftovers make no sense
            any(old.get(tag) != value.get(tag, old.get(tag)) for tag in ("kind", "scope"))
            or (key == "warehouse" and warehouse_kind(old) != warehouse_kind(value))
        )
        result[key] = value if replaceable else _merge(old, value)  # type: ignore[arg-type]
    return result


def _lines(file: Path) -> dict[tuple[str, ...], str]:
    """Each key's path and the `file:line` it stands at; a key that stands twice in one mapping is an error."""
    found: dict[tuple[str, ...], str] = {}

    def visit(node: yaml.Node, path: tuple[str, ...]) -> None:
        if not isinstance(node, yaml.MappingNode):
            return
        for key, value in node.value:
            here, where = (*path, str(key.value)), f"{file}:{key.start_mark.line + 1}"
            if here in found:
                raise ConfigurationError(f"{'.'.join(here)} stands here twice", where=where, remedy="keep one of them")
            if len(here) > _DEEPEST:
                raise ConfigurationError("nested too deeply", where=where, remedy="mend this value")
            found[here] = where
            visit(value, here)

    root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    if root is not None:
        visit(root, ())
    return found


def _explained(exc: ValidationError, origin: str, lines: dict[tuple[str, ...], str]) -> ConfigurationError:
    errors = exc.errors()
    # a key that is misspelt is missing, too: what stands in the file tells more than what does not
    error = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    model, path = _place(tuple(str(p) for p in error["loc"]))
    where = origin
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            where = lines[path[:length]]
            break
    name = ".".join(path)
    if error["type"] == "extra_forbidden":
        known = [f.alias or n for n, f in model.model_fields.items() if n != "origin"]
        near = difflib.get_close_matches(path[-1], known, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"one of: {', '.join(known)}"
        return ConfigurationError(f"unknown key {name}", where=where, remedy=hint)
    if error["type"] == "missing":
        return ConfigurationError(f"{name} is missing", where=where, remedy="add it")
    message = error["msg"].removeprefix("Value error, ")
    return ConfigurationError(f"{name}: {message}", where=where, remedy="mend this value")


def _place(loc: tuple[str, ...]) -> tuple[type[BaseModel], tuple[str, ...]]:
    """The model an error lies in, and its keys as the file has them: pydantic puts a union member's tag in between."""
    if len(loc) > 2 and loc[0] == "warehouse":
        return _TAGGED[loc[1]], (loc[0], *loc[2:])
    if len(loc) > 4 and loc[0] == "datasets" and loc[3] in _TAGGED:
        return _TAGGED[loc[3]], (*loc[:3], *loc[4:])
    if loc[0] == "warehouse":
        return PathWarehouse, loc[:1]
    if len(loc) == 4 and loc[3] in _TAGGED:
        return DatasetSettings, loc[:3]
    return (DatasetSettings if len(loc) > 2 else Settings), loc


_TAGGED: dict[str, type[BaseModel]] = {
    "path": PathWarehouse, "catalog": CatalogWarehouse, "kafka": KafkaSource, "files": FilesSource,
    "table": DedupeTable, "window": DedupeWindow,
}  # fmt: skip
_DEEPEST = 20
