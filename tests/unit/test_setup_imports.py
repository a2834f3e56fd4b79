"""The import directions of ARCHITECTURE.md hold, and there is one way to import the package."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path


def test_rooms_import_only_what_the_architecture_allows(repo_root: Path) -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=repo_root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_room_has_its_contract(repo_root: Path) -> None:
    settings = tomllib.loads((repo_root / "pyproject.toml").read_text())
    guarded = {room for each in settings["tool"]["importlinter"]["contracts"] for room in each["source_modules"]}
    rooms = {f"lazaretto.{each.parent.name}" for each in (repo_root / "pipelines/lazaretto").glob("*/__init__.py")}
    # The command line is at the top: it may import every room.
    assert rooms - guarded <= {"lazaretto.cli"}


def test_the_package_refuses_another_name(repo_root: Path) -> None:
    code = "import pipelines.lazaretto"
    done = subprocess.run([sys.executable, "-c", code], cwd=repo_root, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ImportError: import it as `lazaretto`" in done.stderr
