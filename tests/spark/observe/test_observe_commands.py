"""The commands that look, over a real lake: what they print, what `--json` gives, and that nothing sent slips out."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

from lazaretto.cli import reading
from lazaretto.cli.context import Context
from lazaretto.commit import quarantine_id
from lazaretto.errors import ConfigurationError

Run = Callable[..., str]


@pytest.fixture
def run(lake: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs one command line and gives what it printed on stdout."""
    conf = tmp_path / "lazaretto.yml"
    root = lake.tables.files_root
    conf.write_text(
        f"warehouse: {json.dumps(str(root))}\n"
        "datasets:\n  orders: {contract: c.yaml}\n  returns: {contract: c.yaml}\n"
    )
    app = typer.Typer()
    reading.register(app)

    def run(*arguments: str, as_json: bool = False) -> str:
        context = Context(conf=conf, json=as_json, _session=lake.spark)
        out = io.StringIO()
        context.console = Console(file=out, width=120, quiet=as_json)
        typer.main.get_command(app).main(list(arguments), standalone_mode=False, obj=context)
        return out.getvalue() + capsys.readouterr().out

    return run


def test_status(run: Run) -> None:
    printed = run("status", "--limit", "3")
    assert "9 read" not in printed
    assert "3 read = 1 inserted + 2 quarantined" in printed
    assert "2026-12-02 12:00:00  rejected   orders  b3  (stream)" in printed
    assert "data_quality: " in printed
    batches = json.loads(run("status", "orders", as_json=True))["batches"]
    assert [(b["batch_id"], b["run_id"], b["records_quarantined"]) for b in batches] == [
        ("b3", "run-b3", 0), ("b2", "run-b2", 2), ("b1", "run-b1", 7),
    ]  # fmt: skip
    assert batches[1]["committed_at"] == "2026-12-01T12:01:00+00:00"


def test_groups_can_be_shown_by_what_is_printed(run: Run, lake: Any) -> None:
    printed = run("quarantine", "groups", "--code", "UNKNOWN_FIELD", "--since", "2026-11-30")
    assert "2  UNKNOWN_FIELD at [red]x" in printed
    key = printed.rsplit("--group ", 1)[1].strip().strip("'")
    shown = run("quarantine", "show", "--group", key, "--limit", "1")
    assert "kafka/orders/0/20" in shown
    assert "kafka/orders/0/21" not in shown
    [group] = json.loads(run("quarantine", "groups", "returns", as_json=True))["groups"]
    assert (group["count"], group["error_code"]) == (1, "ORD-002")
    assert group["samples"] == [
        {"coordinate": "kafka/returns/0/1", "quarantine_id": quarantine_id("returns", "kafka", "returns", "0", 1)}
    ]


def test_what_was_sent_is_shown_only_on_demand_and_cannot_steer_the_terminal(run: Run, lake: Any) -> None:
    at = ("quarantine", "show", "--coordinate", "kafka/orders/0/11")
    for as_json in (False, True):
        hidden = run(*at, as_json=as_json)
        assert lake.marker not in hidden
        assert '{"a"' not in hidden
    shown = run(*at, "--payload")
    assert '{"a": "\\u001b[31m\\xff' in shown
    assert "\x1b" not in shown
    [record] = json.loads(run(*at, "--payload", as_json=True))["records"]
    assert record["payload"] == '{"a": "\\u001b[31m\\xff'
    assert record["payload_base64"] == "eyJhIjogIhtbMzFt/w=="
    assert record["headers"] == [{"key": "trace", "value": "header marker-4711\\u001b[2J"}]
    assert record["source"] == {"system": "kafka", "stream": "orders", "partition": "0", "position": 11}


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "oders"),
        ("quarantine", "groups", "--since", "yesterday"),
        ("quarantine", "groups", "--since", "2026-11-30T12:00:00"),
        ("quarantine", "show", "0" * 64),
        ("quarantine", "show"),
        ("maintain", "optimize", "oders"),
    ],
)
def test_mistakes_are_configuration_errors(run: Run, arguments: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError) as error:
        run(*arguments)
    assert error.value.remedy
