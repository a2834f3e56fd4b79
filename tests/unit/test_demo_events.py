"""The demo's events: the same every time, as many of each kind as declared, each with its one defect."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lazaretto.errors import ConfigurationError
from lazaretto.jobs.demo import prepare, write_landing, write_manifest
from lazaretto.jobs.demo_events import CONFLICTS, DEFECTS, DUPLICATES, landing_events, manifest_events
from lazaretto.sources import read_manifest, verify

FIELDS = {
    "event_id", "event_type", "event_time", "user_id", "amount", "currency", "quantity", "score", "birth_date",
    "device", "tags",
}  # fmt: skip
BROKEN = sum(defect.count for defect in DEFECTS)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise KeyError("doubled")
    return dict(pairs)


def _unparsable(payload: bytes) -> str | None:
    """The code of what cannot be read as one object, by Python's own means."""
    if payload == b"":
        return "EMPTY"
    if payload.startswith(b"\x1f\x8b"):
        return "COMPRESSED"
    try:
        json.loads(payload.decode(), object_pairs_hook=_pairs)
    except UnicodeDecodeError:
        return "ENCODING"
    except KeyError:
        return "DUPLICATE_KEY"
    except json.JSONDecodeError as exc:
        return "TRAILING_DATA" if exc.msg == "Extra data" else "MALFORMED"
    return None


def _is_date_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _defects(payload: bytes) -> list[str]:
    """Every code a payload deserves."""
    code = _unparsable(payload)
    if code is not None:
        return [code]
    event = json.loads(payload, parse_float=Decimal)
    user, amount, quantity = event.get("user_id"), Decimal(event["amount"]), event["quantity"]
    wrong = {
        "UNKNOWN_FIELD": bool(set(event) - FIELDS),
        "MISSING_REQUIRED": user is None,
        "TYPE_MISMATCH": user is not None and not isinstance(user, int),
        "BAD_TIMESTAMP": not _is_date_time(event["event_time"]),
        "PRECISION_LOSS": amount != round(amount, 2),
        "OUT_OF_RANGE": quantity >= 2**31,
        "ORD-002": not 0 <= amount <= 100_000,
        "ORD-003": event["currency"] not in ("EUR", "USD", "JPY", "TWD", "CNY"),
        "ORD-004": not 1 <= quantity <= 1000 and quantity < 2**31,
    }
    return [code for code, is_so in wrong.items() if is_so]


@pytest.fixture(scope="module")
def landing() -> list[bytes]:
    return landing_events()


def test_the_same_every_time(landing: list[bytes]) -> None:
    assert landing_events() == landing
    assert list(manifest_events()) == list(manifest_events())
    assert landing_events(seed=8) != landing


@pytest.mark.parametrize("total", [2_000, 20_000])
def test_as_many_as_asked_for(total: int) -> None:
    assert len(landing_events(total)) == total


def test_each_defect_as_often_as_declared_and_never_two_in_a_record(landing: list[bytes]) -> None:
    found = [_defects(payload) for payload in landing]
    assert max(len(codes) for codes in found) == 1
    assert Counter(code for codes in found for code in codes) == {defect.code: defect.count for defect in DEFECTS}


def test_what_is_sound_fits_the_contract(landing: list[bytes]) -> None:
    sound = [json.loads(payload) for payload in landing if not _defects(payload)]
    assert len(sound) == len(landing) - BROKEN
    assert {frozenset(event) for event in sound} == {frozenset(FIELDS)}
    assert all(event["event_type"] == "purchase" and isinstance(event["score"], float) for event in sound)
    assert {event["device"]["os"] for event in sound} == {"ios", "android", "web"}
    assert all(datetime.strptime(event["birth_date"], "%Y-%m-%d") for event in sound)
    assert all(isinstance(event["tags"], list) for event in sound)


def test_repetitions_and_conflicts_come_after_what_they_repeat(landing: list[bytes]) -> None:
    first = len(landing) - DUPLICATES - CONFLICTS
    originals = {}
    for payload in landing[:first]:
        if not _defects(payload):
            originals[json.loads(payload)["event_id"]] = payload
    assert len(originals) == first - BROKEN, "before the repetitions each event id is used once"
    repeated, conflicting = landing[first : first + DUPLICATES], landing[first + DUPLICATES :]
    assert [originals[json.loads(p)["event_id"]] for p in repeated] == repeated
    assert len(conflicting) == CONFLICTS
    for payload in conflicting:
        event = json.loads(payload)
        before = json.loads(originals[event.pop("event_id")])
        assert event.pop("amount") != before.pop("amount")
        assert event.items() <= before.items()


def test_no_record_breaks_a_line(landing: list[bytes]) -> None:
    assert not any(b"\n" in payload or b"\r" in payload for payload in landing)


def test_the_manifest_repeats_a_hundred_orders_of_the_stream(landing: list[bytes]) -> None:
    events = list(manifest_events())
    assert len(events) == 1_000
    assert not any(_defects(payload) for payload in events)
    assert set(events[:100]) <= set(landing)
    ids = [json.loads(payload)["event_id"] for payload in events]
    assert len(set(ids)) == 1_000
    used = {found.group().decode() for payload in landing if (found := re.search(rb"evt-[0-9]{7}", payload))}
    assert not used.intersection(ids[100:])


def test_event_times_rise_with_the_number() -> None:
    times = [json.loads(payload)["event_time"] for payload in list(manifest_events())[100:]]
    assert all(before < after for before, after in pairwise(times))


def test_landing_files_hold_the_records_in_order(tmp_path: Path, landing: list[bytes]) -> None:
    write_landing(tmp_path / "landing", landing)
    files = sorted((tmp_path / "landing").iterdir())
    assert [f.name for f in files] == ["part-0.jsonl", "part-1.jsonl", "part-2.jsonl", "part-3.jsonl"]
    assert b"".join(f.read_bytes() for f in files) == b"".join(payload + b"\n" for payload in landing)
    assert list(tmp_path.iterdir()) == [tmp_path / "landing"]


def test_the_manifest_promises_what_is_there(tmp_path: Path) -> None:
    manifest = read_manifest(write_manifest(tmp_path / "delivery", list(manifest_events())))
    assert manifest.dataset == "orders"
    assert verify(manifest, tmp_path / "inbox").problems == ()
    [file] = manifest.files
    assert (file.records, file.bytes) == (1_000, (tmp_path / "delivery/part-0.jsonl").stat().st_size)


def test_the_demo_uses_the_project_s_contract_and_rules(tmp_path: Path, repo_root: Path) -> None:
    """The package carries copies: an installed wheel has no `conf/`."""
    prepare(tmp_path / "demo")
    for written, ours in (
        ("contracts/orders.odcs.yaml", "conf/contracts/orders.odcs.yaml"),
        ("rules/orders.yml", "dq_rules/orders.yml"),
    ):
        assert (tmp_path / "demo" / written).read_bytes() == (repo_root / ours).read_bytes()


def test_the_demo_makes_its_own_folder_anew_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    prepare(folder)
    (folder / "lake").mkdir()
    prepare(folder)
    assert not (folder / "lake").exists()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("three years of work")
    with pytest.raises(ConfigurationError, match="in use, and not by a demo"):
        prepare(mine)
    assert (mine / "thesis.txt").read_text() == "three years of work"
