"""The command line without Spark: usage errors, exit codes, one line for people and one object for programs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import structlog
from py4j.protocol import Py4JError, Py4JNetworkError

import lazaretto
from lazaretto.cli import main as cli
from lazaretto.cli.context import Context
from lazaretto.errors import (
    AccountingError,
    BatchRejectedError,
    CommitConflictError,
    ConfigurationError,
    FinishedWithFailuresError,
    GuardRefusedError,
    LazarettoError,
    SinkError,
    SourceError,
)

MARKER = "marker-4711"
COMMANDS = ["stream", "batch", "check", "demo", "status", "reconcile", "quarantine", "maintain"]

CONF = """\
warehouse: ./lake
datasets:
  orders: {contract: c.yaml}
  returns: {contract: c.yaml}
"""
CONTRACT = """\
apiVersion: v3.1.0
kind: DataContract
id: x
name: orders
version: 1.0.0
status: active
schema:
  - name: orders
    properties:
      - {name: event_id, logicalType: string}
      - {name: event_time, logicalType: timestamp}
"""


class Line:
    """One command line that has ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def document(self) -> dict[str, Any]:
        """The JSON object in the last line of stdout."""
        document: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return document


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails at once where a command would start Spark before it has looked at what it was given."""

    def started(self: Context) -> NoReturn:
        pytest.fail("Spark was started")

    monkeypatch.setattr(Context, "spark", started)
    yield
    structlog.reset_defaults()


@pytest.fixture
def conf(tmp_path: Path) -> str:
    (tmp_path / "c.yaml").write_text(CONTRACT, encoding="utf-8")
    file = tmp_path / "conf.yml"
    file.write_text(CONF, encoding="utf-8")
    return str(file)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "100")

    def _run(*arguments: str) -> Line:
        code = cli.run(arguments)
        out, err = capsys.readouterr()
        return Line(code, out, err)

    return _run


USAGE = {
    "no such command": (["strem", "orders"], "No such command 'strem'. Did you mean 'stream'?"),
    "no such command below": (["quarantine", "grups"], "No such command 'grups'. Did you mean 'groups'?"),
    "no such option": (["--nope"], "No such option: --nope"),
    "no such option of a command": (["stream", "orders", "--nope"], "No such option: --nope"),
    "no dataset": (["stream"], "Missing argument"),
    "no manifest": (["batch", "orders"], "Missing option '--manifest'"),
    "no number": (["status", "--limit", "x"], "Invalid value for '--limit'"),
    "too much": (["status", "orders", "more"], "unexpected extra argument"),
    "log format": (["--log-format", "xml", "status"], "'xml': console or json"),
    "no command": (["quarantine"], "a command is missing"),
}


@pytest.mark.parametrize("name", USAGE)
def test_a_usage_error_is_one_line_on_stderr(run: Any, name: str) -> None:
    arguments, told = USAGE[name]
    line = run(*arguments)
    assert line.code == 2
    assert re.fullmatch(r"lazaretto: error 2: .*\(see `lazaretto.* --help`\)\n", line.err)
    assert told in line.err


@pytest.mark.parametrize("name", USAGE)
def test_a_usage_error_is_one_object_under_json(run: Any, name: str) -> None:
    arguments, told = USAGE[name]
    line = run("--json", *arguments)
    assert line.code == 2
    assert line.document["exit_code"] == 2
    assert told in line.document["error"]["message"]
    assert set(line.document["error"]) == {"message", "type", "class"}
    if name != "no command":
        assert len(line.out.splitlines()) == 1
    assert len(line.err.splitlines()) == 1


def test_without_json_nothing_of_an_error_is_on_stdout(run: Any, conf: str) -> None:
    assert run("strem").out == ""
    assert run("--conf", conf, "stream", "nope").out == ""


BY_DATASET = {
    "stream": ["stream", "order"],
    "batch": ["batch", "order", "--manifest", "m.json"],
    "check": ["check", "order"],
    "status": ["status", "order"],
    "groups": ["quarantine", "groups", "order"],
    "optimize": ["maintain", "optimize", "order"],
    "reconcile": ["reconcile", "order"],
}


@pytest.mark.parametrize("command", BY_DATASET)
def test_an_unknown_dataset_names_those_there_are(run: Any, conf: str, command: str) -> None:
    line = run("--conf", conf, "--json", *BY_DATASET[command])
    told = f"{conf}: no dataset 'order' (next: one of: orders, returns)"
    assert line.code == 2
    assert line.err == f"lazaretto: error 2: {told}\n"
    assert line.document == {
        "exit_code": 2,
        "error": {"message": told, "type": "ConfigurationError", "class": None},
    }


@pytest.mark.parametrize("command", [*BY_DATASET.values(), ["check"], ["status"], ["quarantine", "show", "a" * 64]])
def test_a_missing_configuration(run: Any, tmp_path: Path, command: list[str]) -> None:
    line = run("--conf", str(tmp_path / "none.yml"), *command)
    assert line.code == 2
    assert line.err == (
        f"lazaretto: error 2: {tmp_path}/none.yml: cannot read the configuration (FileNotFoundError) "
        "(next: check --conf and --env)\n"
    )


def test_a_missing_environment(run: Any, conf: str, tmp_path: Path) -> None:
    line = run("--conf", conf, "--env", "nope", "status")
    assert line.code == 2
    assert f"{tmp_path}/nope.yml: cannot read the configuration" in line.err


def test_a_mistake_in_the_configuration_names_its_line(run: Any, conf: str) -> None:
    Path(conf).write_text(CONF.replace("  returns", "  Returns"), encoding="utf-8")
    line = run("--conf", conf, "check")
    assert line.code == 2
    assert f"{conf}:2: datasets: dataset 'Returns'" in line.err


def test_a_configuration_without_datasets_cannot_be_checked(run: Any, conf: str) -> None:
    Path(conf).write_text("warehouse: ./lake\ndatasets: {}\n", encoding="utf-8")
    line = run("--conf", conf, "check")
    assert line.code == 2
    assert "no dataset is configured (next: add one to `datasets:`)" in line.err


@pytest.mark.parametrize("command", [["stream", "orders"], ["check"]])
def test_a_mistake_in_the_contract_stops_before_spark(run: Any, conf: str, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "c.yaml").write_text(CONTRACT.replace("logicalType: string", "logicalType: time"), encoding="utf-8")
    line = run("--conf", conf, *command)
    assert line.code == 2
    assert "event_id: logicalType 'time' is not supported" in line.err


@pytest.mark.parametrize("trigger", ["soon", "10", "0s", "-1s", "1 d", "", "10s; drop", "1.5s"])
def test_a_trigger_is_a_time(run: Any, conf: str, trigger: str) -> None:
    line = run("--conf", conf, "stream", "orders", f"--trigger={trigger}")
    assert line.code == 2
    assert f"--trigger: {trigger!r} is no time: write 10s, 500ms, 5m or 1h" in line.err


ACCEPTING = {
    "reason alone": (["--reason", "because"], "--reason: goes with --accept-batch"),
    "batch alone": (["--accept-batch", "b-1"], "--reason: is needed with --accept-batch"),
    "blank reason": (["--accept-batch", "b-1", "--reason", "  "], "--reason: is needed with --accept-batch"),
}


@pytest.mark.parametrize("command", [["stream", "orders"], ["batch", "orders", "--manifest", "m.json"]])
@pytest.mark.parametrize("name", ACCEPTING)
def test_a_batch_is_accepted_with_a_reason_or_not_at_all(run: Any, conf: str, command: list[str], name: str) -> None:
    arguments, told = ACCEPTING[name]
    line = run("--conf", conf, *command, *arguments)
    assert line.code == 2
    assert told in line.err


@pytest.mark.parametrize("since", ["yesterday", "2026-11-30T12:00:00", "2026-02-30"])
def test_since_is_a_time_with_a_zone(run: Any, conf: str, since: str) -> None:
    line = run("--conf", conf, "quarantine", "groups", "--since", since)
    assert line.code == 2
    assert "--since is no date, and no time with a zone" in line.err


@pytest.mark.parametrize("option", ["--from", "--to"])
@pytest.mark.parametrize("text", ["yesterday", "2026-11-30T12:00:00", "2026-02-30"])
def test_from_and_to_are_times_with_a_zone(run: Any, conf: str, option: str, text: str) -> None:
    line = run("--conf", conf, "reconcile", "orders", option, text)
    assert line.code == 2
    assert f"{option} is no date, and no time with a zone" in line.err


@pytest.mark.parametrize("until", ["2026-11-30", "2026-11-29T23:00:00Z"])
def test_from_is_before_to(run: Any, conf: str, until: str) -> None:
    line = run("--conf", conf, "reconcile", "orders", "--from", "2026-11-30T00:00:00Z", "--to", until)
    assert line.code == 2
    assert "--from is not before --to" in line.err


def test_a_report_stands_beside_its_error_in_one_object(run: Any, failing: Any) -> None:
    failing(FinishedWithFailuresError("2 of 3 failed", report={"ok": False, "parts": [1, 2]}))
    line = run("--json", "check")
    assert line.code == 6
    assert len(line.out.splitlines()) == 1
    assert line.document == {
        "exit_code": 6,
        "error": {"message": "2 of 3 failed", "type": "FinishedWithFailuresError", "class": None},
        "ok": False,
        "parts": [1, 2],
    }


def test_version(run: Any) -> None:
    line = run("--version")
    assert (line.code, line.out, line.err) == (0, f"lazaretto {lazaretto.__version__}\n", "")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes every command fail with an error when it asks for its settings."""

    def _failing(error: BaseException) -> None:
        def settings(self: Context) -> NoReturn:
            raise error

        monkeypatch.setattr(Context, "settings", property(settings))

    return _failing


@pytest.mark.parametrize("verbose", [False, True])
def test_an_unexpected_exception_tells_its_type_and_not_its_text(run: Any, failing: Any, verbose: bool) -> None:
    failing(KeyError(MARKER))
    line = run(*(["--verbose"] if verbose else []), "--json", "check")
    assert line.code == 1
    told = "unexpected KeyError (next: run again with --verbose and report it)"
    assert line.err.splitlines()[-1] == f"lazaretto: error 1: {told}"
    assert line.document == {"exit_code": 1, "error": {"message": told, "type": "KeyError", "class": None}}
    assert MARKER not in line.out
    # whoever asks for the traceback gets it
    assert (MARKER in line.err) == verbose
    assert ("Traceback" in line.err) == verbose


@pytest.mark.parametrize("gone", [ConnectionRefusedError(111, "x"), Py4JNetworkError(MARKER), Py4JError(MARKER)])
def test_a_java_process_that_is_gone_is_the_sinks_fault(run: Any, failing: Any, gone: Exception) -> None:
    failing(gone)
    line = run("--json", "check")
    assert line.code == 5
    assert line.err.splitlines()[-1].startswith("lazaretto: error 5: the Java process of Spark is gone")
    assert line.document["error"]["class"] == "sink_failure"
    assert MARKER not in line.out + line.err


def test_a_wrong_call_into_java_is_a_bug(run: Any, failing: Any) -> None:
    failing(Py4JError("An error occurred while calling o1.x. Trace:\npy4j.Py4JException: Method x([]) does not exist"))
    assert run("check").code == 1


@pytest.mark.parametrize(
    ("kind", "code", "error_class"),
    [
        (LazarettoError, 1, None),
        (AccountingError, 1, None),
        (ConfigurationError, 2, None),
        (BatchRejectedError, 3, "data_quality"),
        (SourceError, 4, "upstream_unavailable"),
        (GuardRefusedError, 4, None),
        (SinkError, 5, "sink_failure"),
        (CommitConflictError, 5, "sink_failure"),
        (FinishedWithFailuresError, 6, None),
    ],
)
def test_each_known_error_has_its_exit_code(
    run: Any, failing: Any, kind: type[LazarettoError], code: int, error_class: str | None
) -> None:
    failing(kind("it broke [bold]here[/]", where="batch b-1", remedy="mend it"))
    line = run("--json", "check")
    told = "batch b-1: it broke [bold]here[/] (next: mend it)"
    assert line.code == code
    assert line.err == f"lazaretto: error {code}: {told}\n"
    assert line.document == {
        "exit_code": code,
        "error": {"message": told, "type": kind.__name__, "class": error_class},
    }


def test_a_long_error_stays_one_line(run: Any, failing: Any) -> None:
    failing(SinkError("x" * 500, remedy="mend it"))
    assert len(run("check").err.splitlines()) == 1


def test_an_interrupt_is_130(run: Any, failing: Any) -> None:
    failing(KeyboardInterrupt())
    assert run("check").code == 130


def test_the_session_is_closed_however_a_command_ends(run: Any, failing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr(Context, "close", lambda self: closed.append(self))
    failing(ValueError())
    run("check")
    run("--version")
    run("--nope")
    assert len(closed) == 3


def test_main_exits_with_the_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["lazaretto", "--nope"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "No such option: --nope" in capsys.readouterr().err


def _plain(printed: str) -> str:
    """Without colours and without blanks at the ends of lines."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n") + "\n"


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help(run: Any, repo_root: Path, flag: str) -> None:
    """100 columns wide. Regenerate with UPDATE_GOLDEN=1."""
    line = run(flag)
    assert (line.code, line.err) == (0, "")
    printed = _plain(line.out)
    golden = repo_root / "tests/golden/cli_help.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(printed, encoding="utf-8")
    assert printed == golden.read_text(encoding="utf-8")


def test_help_lists_the_commands_and_the_global_options(run: Any) -> None:
    printed = _plain(run("--help").out)
    assert re.findall(r"^│ ([a-z]+) ", printed, re.MULTILINE) == COMMANDS
    assert set(re.findall(r"^│ (--[a-z-]+)", printed, re.MULTILINE)) == {
        "--conf", "--env", "--json", "--verbose", "--log-format", "--memory", "--correlation-id", "--version", "--help",
    }  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run: Any, command: str) -> None:
    line = run(command, "--help")
    assert line.code == 0
    assert f"Usage: lazaretto {command}" in _plain(line.out)


def test_without_a_command_the_help_is_shown_and_it_is_an_error(run: Any) -> None:
    line = run()
    assert line.code == 2
    assert "Usage: lazaretto" in _plain(line.out)
    assert line.err == "lazaretto: error 2: a command is missing (see `lazaretto --help`)\n"
