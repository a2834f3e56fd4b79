"""What checkpoint, ledger and topic say of each other, without a JVM and without a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lazaretto.commit import Tables
from lazaretto.config import FilesSource, KafkaSource, PathWarehouse
from lazaretto.errors import GuardRefusedError
from lazaretto.jobs.checkpoint import Checkpoint, read_checkpoint
from lazaretto.jobs.guard import Guard
from lazaretto.jobs.restart import way_on
from lazaretto.jobs.standing import LedgerFact, Standing, resume_points
from lazaretto.sources import TopicState

KAFKA = KafkaSource(kind="kafka", bootstrap_servers="b", topic="orders")
FILES = FilesSource(kind="files", path=Path("landing"))
QUERY = "6b1f0c1e-0000-4000-8000-000000000001"


def write_checkpoint(folder: Path, ends: list[int], done: int, topic: str | None = "orders", begin: int = 0) -> Path:
    """As Spark writes it: a Kafka topic of one partition (or a landing folder), batches that end at `ends`."""
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    if topic:
        (folder / "sources/0/0").write_text("\0v1\n" + json.dumps({topic: {"0": begin}}))
    for number, end in enumerate(ends):
        at = json.dumps({topic: {"0": end}} if topic else {"logOffset": number})
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{at}')
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
        if number <= done:
            (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def read(folder: Path) -> Checkpoint:
    found = read_checkpoint(folder, "orders")
    assert found is not None
    return found


def test_a_whole_checkpoint(tmp_path: Path) -> None:
    found = read(write_checkpoint(tmp_path / "c", [10, 20, 30], done=1, begin=5))
    assert (found.query_id, found.planned, found.done, found.under_way) == (QUERY, 2, 1, 2)
    assert [found.start(n) for n in (0, 1)] == [{"orders": {0: 5}}, {"orders": {0: 10}}]
    assert found.end(2) == {"orders": {0: 30}}
    assert found.batch_id(2) == f"{QUERY}-2"
    folder = read(write_checkpoint(tmp_path / "f", [1, 1], done=1, topic=None))
    assert (folder.end(1), folder.start(0), folder.under_way) == (None, None, None)


def test_no_checkpoint_and_one_that_has_not_begun(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "none", "orders") is None
    (tmp_path / "empty" / "offsets").mkdir(parents=True)
    assert read_checkpoint(tmp_path / "empty", "orders") is None
    begun = read(write_checkpoint(tmp_path / "begun", [], done=-1))
    assert (begun.planned, begun.done, begun.under_way) == (None, None, None)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("offsets/2", b""),
        ("offsets/2", b"v1\n"),
        ("offsets/2", b'v1\n{"batchWatermarkMs":0}'),
        ("offsets/2", b'v1\n{"batchWatermarkMs":0}\n{"orders":{"0":3'),
        ("offsets/2", b"\x00" * 40),
        ("offsets/2", None),
        ("offsets/1", b""),
        ("offsets/1", None),
        ("commits/2", b""),
        ("metadata", b""),
        ("metadata", b"{}"),
        ("metadata", b"\xff\xfe"),
        ("metadata", None),
    ],
)
def test_a_file_that_is_torn_empty_or_missing(tmp_path: Path, file: str, content: bytes | None) -> None:
    folder = write_checkpoint(tmp_path / "c", [10, 20, 30], done=2)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(GuardRefusedError) as refused:
        read_checkpoint(folder, "orders")
    assert refused.value.exit_code == 4
    assert f"{file} is missing, empty or torn" in str(refused.value)
    assert "lazaretto stream orders --restart-from-ledger" in str(refused.value)


def guard(tmp_path: Path, **known: Any) -> Guard:
    return Guard(Tables(PathWarehouse(root=tmp_path), tmp_path), "orders", Standing(**{"queries": {}, **known}))


def declared(end: int) -> dict[str, Any]:
    return {"topic": "orders", "topic_id": "t", "start": {"0": 0}, "end": {"0": end}}


@pytest.mark.parametrize(
    ("ends", "done", "queries"),
    [
        ([], -1, {}),  # the first start of all, crashed or not
        ([10], -1, {}),
        ([10, 20], 1, {QUERY: (1, declared(20))}),
        ([10, 20, 30], 1, {QUERY: (1, declared(20))}),  # crashed in batch 2
        ([10, 20, 30], 1, {QUERY: (2, declared(30))}),  # crashed after its ledger row
        ([10, 20, 30], 1, {QUERY: (2, None)}),
        ([10], -1, {"another": (7, None)}),  # a restart, crashed in its first batch
    ],
)
def test_what_a_crash_leaves_goes_on(tmp_path: Path, ends: list[int], done: int, queries: dict[str, Any]) -> None:
    checkpoint = read(write_checkpoint(tmp_path / "c", ends, done))
    guard(tmp_path, queries=queries).check_checkpoint(checkpoint, KAFKA)


@pytest.mark.parametrize(
    ("ends", "done", "queries", "told"),
    [
        ([10, 20], 1, {QUERY: (3, declared(40))}, "older copy"),
        ([10, 20, 25], 1, {QUERY: (2, declared(30))}, "older copy"),  # planned anew, with other offsets
        ([], -1, {QUERY: (0, declared(10))}, "older copy"),
        ([10, 20, 30], 2, {QUERY: (1, declared(20))}, "ahead: batch 2 is done, and the ledger ends with 1"),
        ([10, 20], 1, {"another": (5, None)}, "another query's"),
        ([10, 20], 1, {}, "another query's"),  # or the ledger is gone
    ],
)
def test_a_checkpoint_that_disagrees_with_the_ledger(
    tmp_path: Path, ends: list[int], done: int, queries: dict[str, Any], told: str
) -> None:
    checkpoint = read(write_checkpoint(tmp_path / "c", ends, done))
    with pytest.raises(GuardRefusedError, match=told) as refused:
        guard(tmp_path, queries=queries).check_checkpoint(checkpoint, KAFKA)
    assert "--restart-from-ledger" in str(refused.value)


def test_a_checkpoint_that_is_gone_or_of_another_source(tmp_path: Path) -> None:
    with pytest.raises(GuardRefusedError, match="gone"):
        guard(tmp_path, queries={QUERY: (1, None)}).check_checkpoint(None, KAFKA)
    guard(tmp_path).check_checkpoint(None, KAFKA)
    of_payments = read(write_checkpoint(tmp_path / "p", [10], 0, topic="payments"))
    of_files = read(write_checkpoint(tmp_path / "f", [10], 0, topic=None))
    of_orders = read(write_checkpoint(tmp_path / "o", [10], 0))
    known = guard(tmp_path, queries={QUERY: (0, None)})
    for checkpoint, source in ((of_payments, KAFKA), (of_files, KAFKA), (of_orders, FILES)):
        with pytest.raises(GuardRefusedError, match="another query's"):
            known.check_checkpoint(checkpoint, source)
    known.check_checkpoint(of_files, FILES)


def test_a_new_checkpoint_may_begin_before_the_end_of_the_ledger_not_after(tmp_path: Path) -> None:
    known = guard(tmp_path, queries={"another": (7, None)})
    begun = read(write_checkpoint(tmp_path / "b", [60], done=-1, begin=50))
    silent = read(write_checkpoint(tmp_path / "s", [], done=-1))
    (silent.folder / "sources/0/0").unlink()
    known.check_beginning(begun, "orders", {0: 50})
    known.check_beginning(begun, "orders", {0: 55})
    for checkpoint, end in ((begun, 49), (silent, 50)):
        with pytest.raises(GuardRefusedError, match="leave out records of 1 partitions"):
            known.check_beginning(checkpoint, "orders", {0: end})


def test_what_is_needed_of_the_topic_depends_on_how_far_the_last_batch_came(tmp_path: Path) -> None:
    checkpoint = read(write_checkpoint(tmp_path / "c", [10, 20, 30], done=1))
    assert guard(tmp_path, queries={QUERY: (1, None)}).next_offsets(checkpoint, "orders") == {0: 20}
    assert guard(tmp_path, queries={QUERY: (2, None)}).next_offsets(checkpoint, "orders") == {0: 30}
    stage = tmp_path / "staging/orders" / f"{QUERY}-2"
    stage.mkdir(parents=True)
    (stage / "manifest.json").write_text(json.dumps({"batch_id": f"{QUERY}-2"}))
    assert guard(tmp_path, queries={QUERY: (1, None)}).next_offsets(checkpoint, "orders") == {0: 30}


@pytest.mark.parametrize(
    ("retained", "topic_id", "told"),
    [
        ({0: (31, 90)}, "t", "begins at offset 31 now; 1 before it"),
        ({0: (0, 29)}, "t", "ends at 29: the topic was made anew"),
        ({1: (0, 90)}, "t", "is not there"),
        ({0: (0, 90)}, "u", "made anew under its name"),
    ],
)
def test_a_topic_that_is_not_as_it_was(
    tmp_path: Path, retained: dict[int, tuple[int, int]], topic_id: str, told: str
) -> None:
    known = guard(tmp_path, topic_id="t")
    known.check_topic(KAFKA, TopicState("t", {0: (30, 30), 1: (0, 5)}), {0: 30})
    with pytest.raises(GuardRefusedError, match=told) as refused:
        known.check_topic(KAFKA, TopicState(topic_id, retained), {0: 30})
    assert "--accept-gap REASON" in str(refused.value)


def fact(start: int, end: int, version: int = 1, topic_id: str | None = "t", seen: bool = False) -> LedgerFact:
    ranges = [{"system": "kafka", "stream": "orders", "partition": "0", "start": start, "end": end - 1, "records": 1}]
    said = None if seen else {**declared(end), "start": {"0": start}, "topic_id": topic_id}
    return "stream", json.dumps({"ranges": ranges if seen else [], "declared": said}), version, None


def restart(start: dict[str, int], end: dict[str, int], kept: int | None = None) -> LedgerFact:
    said = {"topic": "orders", "topic_id": "t", "start": start, "end": end, "kept": {"bronze_version": kept}}
    return "restart", json.dumps({"ranges": [], "declared": said}), 9, None


@pytest.mark.parametrize(
    ("oldest_first", "at"),
    [
        ([fact(5, 10), fact(10, 20)], 20),
        ([fact(5, 10, seen=True), fact(10, 20, seen=True)], 20),
        ([fact(0, 10, seen=True), fact(12, 20, seen=True)], 10),  # a marker, or a loss: read again from there
        ([fact(0, 10), fact(0, 5), fact(5, 30)], 30),
        ([fact(0, 10), fact(15, 20)], 10),
        ([fact(0, 10), restart({"0": 10}, {"0": 15}), fact(15, 20)], 20),  # the gap was accepted
        ([fact(0, 10, version=3), fact(10, 20, version=5), restart({}, {}, kept=3)], 10),  # bronze was taken back
        ([fact(0, 10, version=4), restart({}, {}, kept=3)], 0),
        ([fact(0, 10, version=4), restart({}, {}, kept=3), fact(0, 10, version=10)], 10),
        ([fact(0, 90, topic_id="old"), fact(0, 10)], 10),
        ([fact(0, 10, topic_id=None), fact(10, 20)], 20),
    ],
)
def test_where_the_ledger_ends(oldest_first: list[LedgerFact], at: int) -> None:
    assert resume_points(reversed(oldest_first), "orders", "t", (None, None)) == {0: at}


def test_rows_that_a_table_has_lost_are_not_covered() -> None:
    facts = [fact(10, 20, version=5), fact(0, 10, version=3)]
    assert resume_points(facts, "orders", "t", (3, None)) == {0: 10}
    assert resume_points(facts, "orders", "t", (-1, None)) == {0: 0}
    held: list[LedgerFact] = [("stream", facts[0][1], 5, 8)]
    assert resume_points(held, "orders", "t", (None, 7)) == {0: 10}
    assert resume_points([], "orders", "t", (None, None)) == {}


def test_the_way_on_loses_nothing_that_is_there() -> None:
    topic = TopicState("t", {0: (0, 50), 1: (30, 50), 2: (0, 7)})
    starting, gap = way_on(topic, {0: 20, 1: 10}, "t")
    assert starting == {0: 20, 1: 30, 2: 0}
    assert (gap.start, gap.end, gap.anew) == ({1: 10}, {1: 30}, False)
    assert gap.text == "partition 1 offsets 10 to 29"
    whole, none = way_on(topic, {0: 50, 1: 30}, None)
    assert (whole, bool(none)) == ({0: 50, 1: 30, 2: 0}, False)
    for anew in (way_on(topic, {}, "older"), way_on(topic, {2: 8}, "t")):
        assert anew[0][2] == 0
        assert bool(anew[1])
        assert "the topic was made anew" in anew[1].text
