"""The rules of the house that a machine can hold: sizes, names, docstrings, and what no module may do."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import lazaretto

ROOT = Path(lazaretto.__file__).parent
MODULES = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.rglob("*.py"))}
# cli writes results; elsewhere a line on stdout would mix with them
MAY_PRINT = {"cli"}
FORBIDDEN_NAMES = {"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "breakpoint"}
FORBIDDEN_IMPORTS = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve"}


def _tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"), module)


def test_there_is_something_to_look_at() -> None:
    assert len(MODULES) > 80
    assert {module.split("/")[0] for module in MODULES if "/" in module} >= {
        "errors", "config", "contracts", "rules", "sources", "screening", "commit", "observe", "jobs", "cli",
    }  # fmt: skip


@pytest.mark.parametrize("module", MODULES)
def test_a_module_stays_under_300_lines(module: str) -> None:
    assert len(MODULES[module].read_text(encoding="utf-8").splitlines()) < 300


@pytest.mark.parametrize("module", MODULES)
def test_what_is_public_says_what_it_promises(module: str) -> None:
    tree = _tree(module)
    public = [
        each
        for each in tree.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not each.name.startswith("_")
    ]
    silent = [each.name for each in public if not (ast.get_docstring(each) or "").strip()]
    if not (ast.get_docstring(tree) or "").strip():
        silent.insert(0, "the module itself")
    assert silent == []


@pytest.mark.parametrize("module", [m for m in MODULES if m.split("/")[0] not in MAY_PRINT])
def test_only_the_command_line_prints(module: str) -> None:
    printing = [
        node.lineno
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "pprint")
    ]
    assert printing == []


@pytest.mark.parametrize("module", MODULES)
def test_names_say_the_idea(module: str) -> None:
    words = {word for part in Path(module).with_suffix("").parts for word in part.split("_")}
    assert words & FORBIDDEN_NAMES == set()


@pytest.mark.parametrize("module", MODULES)
def test_nothing_runs_text_or_bytes_as_code(module: str) -> None:
    found: list[str] = []
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            found.append(f"{node.lineno}: {node.func.id}(")
        elif isinstance(node, ast.Import):
            found += [f"{node.lineno}: {a.name}" for a in node.names if a.name.split(".")[0] in FORBIDDEN_IMPORTS]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_IMPORTS:
            found.append(f"{node.lineno}: {node.module}")
        elif isinstance(node, ast.Attribute) and node.attr in ("unsafe_load", "full_load"):
            found.append(f"{node.lineno}: yaml.{node.attr}")
        elif isinstance(node, ast.keyword) and node.arg == "shell":
            found.append(f"{node.value.lineno}: shell=")
    assert found == []


@pytest.mark.parametrize("module", MODULES)
def test_no_unforeseen_error_disappears(module: str) -> None:
    """What catches everything must do something about it."""
    everything = (None, "Exception", "BaseException")
    swallowed = [
        node.lineno
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ExceptHandler)
        and (ast.unparse(node.type) if node.type else None) in everything
        and all(isinstance(each, ast.Pass | ast.Continue) for each in node.body)
    ]
    assert swallowed == []


@pytest.mark.parametrize("module", [m for m in MODULES if m.endswith("/__init__.py")])
def test_the_face_of_a_room_is_what_it_imports(module: str) -> None:
    """`__all__` names every public name that is imported or defined there, and nothing else, in order."""
    tree = _tree(module)
    listed: list[str] = []
    bound: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            bound |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id == "__all__":
                listed = [ast.literal_eval(element) for element in node.value.elts]  # type: ignore[attr-defined]
            else:
                bound.add(node.targets[0].id)
    assert set(listed) == {name for name in bound if not name.startswith("_")}
    assert len(listed) == len(set(listed))


def test_the_package_s_own_face() -> None:
    assert lazaretto.__all__ == ["__version__", "read_published"]
    assert all(hasattr(lazaretto, name) for name in lazaretto.__all__)


def test_importing_the_package_is_cheap() -> None:
    """Neither Spark nor Great Expectations comes along before it is needed, and nothing is printed."""
    code = (
        "import sys, lazaretto; sys.exit(len({'pyspark', 'great_expectations', 'delta', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_version_is_the_project_s(repo_root: Path) -> None:
    project = tomllib.loads((repo_root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert lazaretto.__version__ == project["version"]
