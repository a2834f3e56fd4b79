"""The notebook runs from its first cell to its last, on a lake made by the real stream job, and shows what is there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

from lazaretto.config import load_settings
from lazaretto.jobs.dataset import open_dataset
from lazaretto.jobs.run import Run
from lazaretto.jobs.stream import run_stream
from lazaretto.observe import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARKER = "marker-4711"

# Warnings of Jupyter's machinery are not ours to answer for, so it runs in a process of its own.
_EXECUTE = """
import sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=500, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


def _event(event_id: str, **changes: Any) -> bytes:
    event = {
        "event_id": event_id,
        "event_type": "purchase",
        "event_time": "2026-11-30T10:00:00Z",
        "user_id": 42,
        "amount": 12.5,
        "currency": "EUR",
        "quantity": 1,
    }
    return json.dumps({**event, **changes}).encode()


@pytest.fixture(scope="module")
def conf(spark: SparkSession, repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a lake with 20 events landed, one of them sent twice, and 9 records held."""
    folder = tmp_path_factory.mktemp("notebook")
    landing = folder / "landing"
    landing.mkdir()
    records = [_event(f"e-{n}") for n in range(20)] + [_event("e-0")]
    records += [b'{"event_id": "' + MARKER.encode() for _ in range(5)]
    records += [_event(f"c-{n}", currency=MARKER) for n in range(3)]
    records += [_event("u-0", amount="12,5")]
    (landing / "part-0.jsonl").write_bytes(b"\n".join(records) + b"\n")
    file = folder / "lazaretto.yml"
    file.write_text(
        "warehouse: ./lake\n"
        "datasets:\n"
        "  orders:\n"
        f"    contract: {json.dumps(str(repo_root / 'conf/contracts/orders.odcs.yaml'))}\n"
        f"    rules: {json.dumps(str(repo_root / 'dq_rules/orders.yml'))}\n"
        "    source: {kind: files, path: ./landing}\n"
    )
    dataset = open_dataset(load_settings(file), "orders")
    run_stream(spark, dataset, Run(get_logger()), trigger={"availableNow": True})
    return file


@pytest.fixture(scope="module")
def outputs(conf: Path, repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each code cell shows: tables as HTML, prints as text."""
    done = tmp_path_factory.mktemp("executed") / "quarantine.ipynb"
    subprocess.run(
        [sys.executable, "-c", _EXECUTE, str(repo_root / "notebooks/quarantine.ipynb"), str(done)],
        cwd=repo_root / "notebooks",
        env={**os.environ, "LAZARETTO_CONF": str(conf)},
        check=True,
        timeout=550,
    )
    notebook = nbformat.read(done, as_version=4)
    return ["\n".join(_shown(cell)) for cell in notebook.cells if cell.cell_type == "code"]


def _shown(cell: Any) -> Iterator[str]:
    for output in cell.outputs:
        assert output.output_type != "error", output
        yield output.text if output.output_type == "stream" else output.data["text/html"]


def _rows(shown: str) -> list[list[str]]:
    """The cells of a pandas table, without its heading and index."""
    body = shown.split("<tbody>", 1)[1]
    return [re.findall(r"<td>(.*?)</td>", row, re.S) for row in re.findall(r"<tr>(.*?)</tr>", body, re.S)]


def test_the_ledger(outputs: list[str]) -> None:
    [row] = _rows(outputs[1])
    assert row[1:] == ["stream", "committed", "30", "20", "0", "1", "9", "0", "0.7"]


def test_the_top_reasons(outputs: list[str]) -> None:
    reasons = [(row[0], row[2]) for row in _rows(outputs[2])]
    assert reasons == [("5", "MALFORMED"), ("3", "ORD-003"), ("1", "TYPE_MISMATCH")]


def test_one_group_without_its_payloads(outputs: list[str]) -> None:
    assert [row[1] for row in _rows(outputs[3])] == ["MALFORMED"] * 5
    assert MARKER not in "".join(outputs)


def test_the_trend(outputs: list[str]) -> None:
    assert _rows(outputs[4]) == [["5", "3", "1"]]


def test_violations_by_field(outputs: list[str]) -> None:
    assert [row[:3] for row in _rows(outputs[5])][1:] == [
        ["ORD-003", "currency", "3"],
        ["TYPE_MISMATCH", "amount", "1"],
    ]


def test_what_landed(outputs: list[str]) -> None:
    assert _rows(outputs[6]) == [["2026-11-30", "20"]]
    assert outputs[7].strip() == "20 events in bronze, 9 records held"


def test_it_is_committed_without_outputs(repo_root: Path) -> None:
    notebook = nbformat.read(repo_root / "notebooks/quarantine.ipynb", as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) == 8
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
