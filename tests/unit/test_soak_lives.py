"""Lives of a stream that only looks like one: a small Python process in the place of the command."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ..soak import lives as module
from ..soak.ledger import Ledger
from ..soak.lives import Life, Lives, OverError, Supervisor

LISTENING = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
time.sleep(60)
"""
DEAF = "import time; time.sleep(60)"
FAILING = "import sys; print('no broker'); sys.exit(4)"
LEAVING = """
import subprocess, time
subprocess.Popen(["sleep", "60"])
time.sleep(60)
"""

MakeLives = Callable[[str], Lives]


def soon(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeLives]:
    """Lives whose command is this program."""
    made: list[Lives] = []

    def lives(program: str) -> Lives:
        (tmp_path / "program.py").write_text(program)
        command = tmp_path / "lazaretto"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path / "program.py"} "$@"\n')
        command.chmod(0o755)
        monkeypatch.setattr(module, "COMMAND", str(command))
        monkeypatch.setattr(module, "BETWEEN_S", 0.01)
        made.append(Lives(tmp_path / "lives", tmp_path / "conf.yml"))
        return made[-1]

    yield lives
    for each in made:
        each.close()
        for life in each.all:
            life.process.wait()


def test_a_stream_that_ends_is_started_again_until_the_end(make: MakeLives) -> None:
    lives, ended = make(LISTENING), list[Life]()
    supervisor = Supervisor(lives, ["--trigger", "1s"], ended.append)
    for number in (1, 2):
        soon(lambda n=number: len(lives.all) == n and lives.all[-1].listens())
        supervisor.life.struck_by("kill python", -signal.SIGKILL)
        assert supervisor.life.kill("python")
    soon(lambda: len(lives.all) == 3 and supervisor.life.listens())
    assert supervisor.end()
    assert [life.code for life in lives.all] == [-9, -9, 0]
    assert [life.name for life in ended] == ["life-1", "life-2", "life-3"]
    assert lives.surprises() == []
    assert lives.left_behind() == []


def test_an_end_that_nothing_explains_is_told_with_the_last_words(make: MakeLives) -> None:
    lives = make(FAILING)
    life = lives.start([])
    assert lives.ended(life, 20)
    [told] = lives.surprises()
    assert "life-1 ended with 4 after nothing" in told
    assert "no broker" in told
    life.struck_by("broker away", 4)
    assert lives.surprises() == []


def test_a_process_that_does_not_catch_sigterm_does_not_listen(make: MakeLives) -> None:
    life = make(DEAF).start([])
    time.sleep(0.2)
    assert not life.listens()


def test_what_outlives_its_python_is_found_and_ended(make: MakeLives) -> None:
    lives = make(LEAVING)
    life = lives.start([])
    soon(lambda: len(module._groups().get(life.pid, [])) == 2)
    life.kill("python")
    assert lives.ended(life, 20)
    assert len(lives.remains()["life-1"]) == 1
    [told] = lives.left_behind(wait_s=0.2)
    assert told.startswith("life-1 left [")
    soon(lambda: not lives.remains())
    assert lives.left_behind() == []


def test_both_is_the_whole_group(make: MakeLives) -> None:
    lives = make(LEAVING)
    life = lives.start([])
    soon(lambda: len(module._groups().get(life.pid, [])) == 2)
    assert life.kill("both")
    assert lives.ended(life, 20)
    soon(lambda: not lives.remains())


def test_without_a_java_process_there_is_none_to_kill(make: MakeLives) -> None:
    life = make(DEAF).start([])
    assert life.java() is None
    assert not life.kill("jvm", wait_s=0.1)


def test_no_life_starts_after_the_close(make: MakeLives) -> None:
    lives = make(DEAF)
    life = lives.start([])
    lives.close()
    assert lives.ended(life, 20)
    with pytest.raises(OverError):
        lives.start([])


def test_the_ledger_is_read_as_it_grows(tmp_path: Path) -> None:
    table = tmp_path / "ingestion_status"
    ledger = Ledger(table)
    assert ledger.rows() == []
    for number, status in enumerate(("committed", "rejected", "committed")):
        one = {"batch_id": f"b-{number}", "correlation_id": "life-1", "status": status, "records_read": 5}
        write_deltalake(table, pa.Table.from_pylist([one]), mode="append")
        assert [row.batch_id for row in ledger.rows()] == [f"b-{n}" for n in range(number + 1)]
    assert [row.batch_id for row in ledger.committed()] == ["b-0", "b-2"]
    assert ledger.rows()[0].at == pytest.approx(time.time(), abs=30)
