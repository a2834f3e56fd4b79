"""Lives of the stream: `lazaretto stream` in a process of its own, started again whenever it ends.

A life is a process group: Python, the Java process of Spark, and what Spark's start script runs on the way.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

COMMAND = str(Path(sys.executable).with_name("lazaretto"))
BETWEEN_S = 0.5
"""Before the next start, so that a command that cannot even start does not spin."""

LEFT_S = 60.0
"""How long the Java process of a killed Python may live on."""


@dataclass
class Life:
    """One process of the stream, and what was done to it.

    Attributes:
        code: as `Popen` gives it, negative for a signal; None while it lives.
        gone: nothing runs of it any more, and its process ids may be another's.
        struck: the faults it met. allowed: the exit codes they explain.
    """

    number: int
    process: subprocess.Popen[bytes]
    log: Path
    started_at: float
    ended_at: float | None = None
    code: int | None = None
    gone: bool = False
    struck: list[str] = field(default_factory=list)
    allowed: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        """Its correlation id, by which the ledger knows it."""
        return f"life-{self.number}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def struck_by(self, fault: str, *codes: int) -> None:
        """Note a fault, and the exit codes that it may lead to."""
        self.struck.append(fault)
        self.allowed.update(codes)

    def java(self) -> int | None:
        """The pid of Spark's Java process, once there is one."""
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.pid).children():
                # the start script's own Java is a grandchild, and not yet Spark's
                if child.name() == "java" and "org.apache.spark.deploy.SparkSubmit" in child.cmdline():
                    return child.pid
        return None

    def listens(self) -> bool:
        """Whether SIGTERM is caught by now: before, and when all is done, it ends Python as it ends any process."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
        return False

    def signal_group(self, number: signal.Signals) -> None:
        """A signal to every process of this life."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self, what: str, wait_s: float = 15.0) -> bool:
        """SIGKILL of `python`, `jvm` or `both`; False when it was too late.

        A Java process that is not there yet is waited for.
        """
        if what != "jvm":
            if self.process.poll() is not None:
                return False
            if what == "both":
                self.signal_group(signal.SIGKILL)
            else:
                self.process.kill()
            return True
        deadline = time.monotonic() + wait_s
        while self.process.poll() is None and time.monotonic() < deadline:
            java = self.java()
            if java is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(java, signal.SIGKILL)
                    return True
            time.sleep(0.02)
        return False

    def last_words(self) -> str:
        """The end of what it printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-600:] if self.log.exists() else ""


def _groups() -> dict[int, list[int]]:
    """All processes of this machine but the dead ones, by their groups."""
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            if process.info["status"] != psutil.STATUS_ZOMBIE:
                groups[os.getpgid(process.pid)].append(process.pid)
    return groups


class Lives:
    """Starts lives, one after the other, and remembers them."""

    def __init__(self, folder: Path, conf: Path, memory: str = "1g") -> None:
        self.all: list[Life] = []
        self._folder = folder
        self._conf = conf
        self._memory = memory
        self._folder.mkdir(parents=True, exist_ok=True)

    def start(self, arguments: Sequence[str]) -> Life:
        """Start `lazaretto stream orders` with these arguments."""
        self.remains()
        number = len(self.all) + 1
        log = self._folder / f"life-{number}.log"
        command = [COMMAND, "--conf", str(self._conf), "--log-format", "json", "--memory", self._memory]
        command += ["--correlation-id", f"life-{number}", "stream", "orders", *arguments]
        started_at = time.time()
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, cwd=self._folder,
                start_new_session=True,
            )  # fmt: skip
        life = Life(number, process, log, started_at)
        self.all.append(life)
        return life

    @staticmethod
    def ended(life: Life, timeout_s: float | None = None) -> bool:
        """Wait for the end of a life's Python and note it; False when it has not ended within the time."""
        try:
            life.code = life.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        life.ended_at = life.ended_at or time.time()
        return True

    def surprises(self) -> list[str]:
        """Ends that no fault explains."""
        return [
            f"{life.name} ended with {life.code} after {', '.join(life.struck) or 'nothing'}: {life.last_words()}"
            for life in self.all
            if life.code is not None and life.code not in life.allowed
        ]

    def remains(self) -> dict[str, list[int]]:
        """What runs of lives whose Python has ended: pids by the life's name."""
        groups = _groups()
        ended = [life for life in self.all if life.code is not None and not life.gone]
        for life in ended:
            # looked at often, so that no later group of the same number is taken for it
            life.gone = life.pid not in groups
        return {life.name: groups[life.pid] for life in ended if not life.gone}

    def left_behind(self, wait_s: float = LEFT_S) -> list[str]:
        """Processes that are there `wait_s` seconds after the last life has ended; they are killed."""
        deadline = time.monotonic() + wait_s
        while (left := self.remains()) and time.monotonic() < deadline:
            time.sleep(0.2)
        self.end_all()
        return [f"{name} left {pids}" for name, pids in left.items()]

    def end_all(self) -> None:
        """SIGKILL to whatever runs of any life."""
        self.remains()
        for life in self.all:
            if not life.gone:
                life.signal_group(signal.SIGKILL)


class Supervisor:
    """Starts the stream again whenever it ends, as an operator's service manager would."""

    def __init__(self, lives: Lives, arguments: Sequence[str], on_end: Callable[[Life], None]) -> None:
        self._lives = lives
        self._arguments = arguments
        self._on_end = on_end
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._life = lives.start(arguments)
        self._thread.start()

    @property
    def life(self) -> Life:
        """The one that lives, or that lived last."""
        return self._life

    def _run(self) -> None:
        while self._lives.ended(self._life):
            self._on_end(self._life)
            if self._over.wait(BETWEEN_S):
                return
            self._life = self._lives.start(self._arguments)

    def end(self, timeout_s: float = 180.0) -> bool:
        """No further start; ask the running one to stop. False when it had to be killed."""
        self._over.set()
        deadline = time.monotonic() + timeout_s
        asked: Life | None = None
        while self._thread.is_alive() and time.monotonic() < deadline:
            if self._life is not asked:
                asked = self._life
                asked.struck_by("the end", 0, *(() if asked.listens() else (-signal.SIGTERM,)))
                asked.process.terminate()
            self._thread.join(0.2)
        if self._thread.is_alive():
            self._life.signal_group(signal.SIGKILL)
            self._thread.join()
            return False
        return True
