"""What the pages say about commands, settings, codes and rooms is what the code has; links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lazaretto import errors
from lazaretto.cli.main import app
from lazaretto.config import (
    CatalogWarehouse,
    DatasetSettings,
    DedupeTable,
    DedupeWindow,
    FilesSource,
    KafkaSource,
    PathWarehouse,
    Settings,
)
from lazaretto.errors import BATCH_CLASSES, RECORD_CODES, LazarettoError
from lazaretto.jobs.demo_events import CONFLICTS, DEFECTS

_NOT_OURS = {".git", ".venv", "build", "dist", "demo-lake", "__pycache__"}
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

_AWAITED: set[str] = set()
"""Linked already and still being written; take each out of here once it is there."""

# A path of somebody's machine, a package registry's host, an index of somebody's own.
_MACHINE = re.compile(r"(?<![\w.}-])/(?:home|root|work|Users)/")
_REGISTRY = re.compile(
    r"(?i)\b(?:pypi\.org|pythonhosted\.org|maven\.org|maven\.apache\.org|npmjs\.org|crates\.io|proxy\.golang\.org"
    r"|rubygems\.org|anaconda\.org|jfrog\.io)\b|--(?:extra-)?index-url"
)


@pytest.fixture(scope="module")
def files(repo_root: Path) -> list[Path]:
    """What the repository holds; in a copy without git, what lies there."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=repo_root, capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout:
        found = [repo_root / name for name in done.stdout.split("\0") if name]
    else:
        found = [f for f in repo_root.rglob("*") if not _NOT_OURS & set(f.relative_to(repo_root).parts)]
    return [file for file in found if file.is_file()]


@pytest.fixture(scope="module")
def readme(repo_root: Path) -> str:
    return (repo_root / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def architecture(repo_root: Path) -> str:
    return (repo_root / "ARCHITECTURE.md").read_text(encoding="utf-8")


def table(page: str, *headings: str) -> Iterator[list[str]]:
    """The rows of every table with these headings, cell by cell."""
    inside = False
    for line in page.splitlines():
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if tuple(cells) == headings:
            inside = True
        elif not cells:
            inside = False
        elif inside and not set(cells[0]) <= {"-"}:
            yield cells


def fenced(page: str) -> Iterator[str]:
    """The lines of the page's code blocks."""
    for _, block in _FENCED.findall(page):
        yield from block.splitlines()


def code(cell: str) -> list[str]:
    return _CODE.findall(cell)


# --- the command line -------------------------------------------------------------------------------------------------


def leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in node.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def options_of(command: Any) -> set[str]:
    return {param.opts[0] for param in command.params if param.param_type_name == "option"}


def mistake(words: list[str], *, complete: bool) -> str | None:
    """What of a command line the application does not know; `complete`: what it lacks, too."""
    node: Any = typer.main.get_command(app)
    rest, given, arguments = list(words), set(), 0
    while rest:
        word = rest.pop(0)
        if word.startswith("-"):
            name = word.split("=")[0]
            option = next((p for p in node.params if name in (*p.opts, *p.secondary_opts)), None)
            if option is None:
                return f"{name} is no option of {node.name}"
            given.add(option.name)
            if not option.is_flag and "=" not in word:
                rest.pop(0)
        elif hasattr(node, "commands"):
            if word not in node.commands:
                return f"{word} is no command of {node.name}"
            node, given = node.commands[word], set()
        else:
            arguments += 1
    wanted = [p for p in getattr(node, "params", []) if p.param_type_name == "argument"]
    if arguments > len(wanted):
        return f"{node.name} takes {len(wanted)} arguments"
    if complete and hasattr(node, "commands"):
        return f"{node.name} needs a command"
    if complete and arguments < sum(p.required for p in wanted):
        return f"{node.name} needs an argument"
    lacking = [p.opts[0] for p in node.params if p.required and p.param_type_name == "option" and p.name not in given]
    return f"{node.name} needs {lacking[0]}" if complete and lacking else None


def test_commands_of_the_readme_exist(readme: str) -> None:
    prose = _FENCED.sub("", readme)
    lines = [line.strip().removeprefix(".venv/bin/") for line in fenced(readme)]
    whole = [line for line in lines if line.startswith("lazaretto ")]
    named = [text for text in code(prose) if text.startswith("lazaretto ")]
    assert len(whole) > 5
    assert len(named) > 5
    wrong = [(line, mistake(shlex.split(line)[1:], complete=True)) for line in whole]
    wrong += [(text, mistake(re.sub(r"[\[\]]", "", text).split()[1:], complete=False)) for text in named]
    assert [each for each in wrong if each[1]] == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("replay plan", "replay is no command of lazaretto"),
        ("quarantine park", "park is no command of quarantine"),
        ("batch orders --manfest x", "--manfest is no option of batch"),
        ("batch orders", "batch needs --manifest"),
        ("stream", "stream needs an argument"),
        ("check a b", "check takes 1 arguments"),
        ("--conf x", "lazaretto needs a command"),
    ],
)
def test_a_wrong_command_would_be_found(line: str, told: str) -> None:
    assert mistake(line.split(), complete=True) == told


def test_the_table_of_commands_is_whole(readme: str) -> None:
    told = {}
    for cells in table(readme, "command", "options", "what it does"):
        words = [w for w in code(cells[0])[0].split()[1:] if w.strip("[]").islower()]
        told[" ".join(words)] = set(code(cells[1]))
    assert told == {name: options_of(command) for name, command in leaves(typer.main.get_command(app))}
    above = {option for cells in table(readme, "option", "what it does") for option in code(cells[0])}
    assert above == options_of(typer.main.get_command(app))


def test_make_targets_exist(repo_root: Path, files: list[Path]) -> None:
    known = set(re.findall(r"^([a-z-]+):", (repo_root / "Makefile").read_text(encoding="utf-8"), re.M))
    pages = [file.read_text(encoding="utf-8") for file in files if file.suffix == ".md"]
    told = {line.split()[1] for page in pages for line in fenced(page) if line.startswith("make ")}
    told |= {text.split()[1] for page in pages for text in code(_FENCED.sub("", page)) if re.match("make [a-z]", text)}
    assert told
    assert told <= known


def test_exit_codes_are_those_of_the_errors(readme: str, architecture: str) -> None:
    kinds = {name: getattr(errors, name) for name in errors.__all__ if name.endswith("Error")}
    rows = {
        int(cells[0]): code(cells[1]) for cells in table(architecture, "exit code", "raised as", "caller's next step")
    }
    for name, kind in kinds.items():
        if kind is not LazarettoError:
            assert name in rows[kind.exit_code], name
    assert {int(cells[0]) for cells in table(readme, "exit code", "meaning")} == set(rows)


# --- settings ---------------------------------------------------------------------------------------------------------


def default_of(field: FieldInfo) -> str:
    """A default as one would write it in the file."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "{" + ", ".join(f"{name}: {each}" for name, each in value.model_dump().items()) + "}"
    return "none" if value is None else str(value)


def keys() -> dict[str, str]:
    """Every key of the configuration with its default, as the README's table names them."""
    found: dict[str, str] = {}
    for prefix, model in (
        ("", Settings), ("", DatasetSettings), ("warehouse.", PathWarehouse), ("warehouse.", CatalogWarehouse),
        ("source.", KafkaSource), ("source.", FilesSource), ("dedupe.", DedupeTable), ("dedupe.", DedupeWindow),
    ):  # fmt: skip
        for name, field in model.model_fields.items():
            found.setdefault(prefix + (field.alias or name), default_of(field))
    # not of the file; and told by its parts
    del found["origin"], found["warehouse"]
    return found


def test_the_table_of_settings_is_whole_and_has_the_defaults(readme: str) -> None:
    rows = list(table(readme, "key", "default", "meaning"))
    told = {code(cells[0])[0]: cells[1].strip("`") for cells in rows}
    assert len(told) == len(rows)
    assert told == keys()


# --- codes and rooms --------------------------------------------------------------------------------------------------


def test_every_code_stands_in_the_architecture(architecture: str) -> None:
    told = {code(cells[0])[0]: cells[1] for cells in table(architecture, "code", "class", "meaning")}
    assert told.pop("rule_id") == "data_quality"
    assert told == {record_code.value: info.error_class.value for record_code, info in RECORD_CODES.items()}
    paragraph = architecture[architecture.index("Classes of a batch") :].split("\n\n")[0]
    assert set(code(paragraph)) == BATCH_CLASSES


def test_rooms_are_those_of_the_import_contracts(repo_root: Path, architecture: str) -> None:
    rows = [(code(cells[0])[0], cells[2]) for cells in table(architecture, "room", "what lives there", "may import")]
    rooms = [room for room, _ in rows]
    assert set(rooms) == {file.parent.name for file in (repo_root / "pipelines/lazaretto").glob("*/__init__.py")}
    settings = tomllib.loads((repo_root / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in settings["tool"]["importlinter"]["contracts"]:
        (room,) = (source.removeprefix("lazaretto.") for source in contract["source_modules"])
        forbidden = {module.removeprefix("lazaretto.") for module in contract["forbidden_modules"]}
        told = dict(rows)[room]
        may = set(rooms[: rooms.index(room)]) if told == "all above" else set(told.split(", ")) - {"nothing"}
        assert may == set(rooms) - forbidden - {room}, room


def test_the_demo_in_the_readme_is_the_demo(readme: str) -> None:
    held = {defect.code: defect.count for defect in DEFECTS} | {"ID_CONFLICT": CONFLICTS}
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in fenced(readme) if line.startswith("│")]
    assert {row[0]: int(row[3]) for row in rows} == held
    assert f"{sum(held.values())} records held in quarantine" in readme


# --- all pages, all files ---------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_relative_links_lead_somewhere(files: list[Path]) -> None:
    broken = []
    for page in (file for file in files if file.suffix == ".md"):
        for link in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() and any(target.match(page_to_come) for page_to_come in _AWAITED):
                continue
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.name}: {link}")
    assert broken == []


@pytest.mark.parametrize("pattern", [_MACHINE, _REGISTRY], ids=["machine path", "registry host"])
def test_no_file_names_a_machine_or_a_registry(repo_root: Path, files: list[Path], pattern: re.Pattern[str]) -> None:
    found = []
    for file in files:
        content = file.read_bytes()
        if b"\0" in content:
            continue
        for number, line in enumerate(content.decode("utf-8", errors="replace").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{file.relative_to(repo_root)}:{number}")
    assert found == []


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("see " + "/".join(["", "home", "me", "x"]), _MACHINE),
        ("path=" + "/".join(["", "work", "x"]), _MACHINE),
        ("(" + "/".join(["", "root", "x"]) + ")", _MACHINE),
        ("https://" + ".".join(["pypi", "org"]) + "/simple", _REGISTRY),
        ("https://repo1." + ".".join(["maven", "org"]) + "/maven2", _REGISTRY),
    ],
)
def test_a_planted_one_would_be_found(text: str, pattern: re.Pattern[str]) -> None:
    assert pattern.search(text)
