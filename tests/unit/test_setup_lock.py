"""The lock installs from any index, and nothing that is installed escapes its hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def entries(repo_root: Path) -> list[str]:
    text = (repo_root / "requirements.lock").read_text()
    return [each for each in re.split(r"\n(?=\S)", text.replace("\\\n", "")) if each.strip()]


def _name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[=<>!\[; ]", requirement)[0]).lower()


def test_every_line_is_a_pin_with_hashes_and_no_address(entries: list[str]) -> None:
    for entry in entries:
        assert re.match(r"[a-z0-9-]+==\S+( ; [^/]+?)?( +--hash=sha256:[0-9a-f]{64})+\s*$", entry), entry[:80]


def test_everything_the_project_asks_for_is_locked(entries: list[str], repo_root: Path) -> None:
    project = tomllib.loads((repo_root / "pyproject.toml").read_text())["project"]
    asked = {_name(each) for each in project["dependencies"] + project["optional-dependencies"]["dev"]}
    assert asked <= {_name(each) for each in entries}


def test_spark_and_delta_are_the_pair_whose_jars_resolve(entries: list[str]) -> None:
    pins = {entry.split()[0] for entry in entries}
    assert {"pyspark==4.2.0", "delta-spark==4.4.0"} <= pins
