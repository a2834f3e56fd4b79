"""The reconciliation: what the ledger says was read is read once more from its source, and compared with the tables."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from lazaretto.commit import BatchKind, Tables
from lazaretto.config import DatasetSettings, FilesSource, KafkaSource, OnMatch, Settings, Tombstones
from lazaretto.errors import BatchClass, ConfigurationError
from lazaretto.observe import Reconciliation
from lazaretto.observe.accounts import (
    Account,
    Interval,
    Place,
    committed_accounts,
    given_up,
    layers,
    published_within,
)
from lazaretto.observe.differences import Difference, DifferenceKind, Reach, Standing
from lazaretto.observe.reconcile import Question, compare
from lazaretto.sources import (
    Manifest,
    TopicState,
    check_kafka,
    check_landing,
    is_compacted,
    landing_name,
    manifest_envelope,
    read_kafka_range,
    read_landing,
    read_manifest,
    verify,
)

_Reads = Mapping[Place, list[Interval]]


@dataclass
class _Found:
    """What can be read of the source: envelopes to be put together, each place's reach, and what is wrong already."""

    envelopes: list[DataFrame] = field(default_factory=list)
    reaches: dict[Place, Reach] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    def refuse(self, places: Iterable[Place], why: Standing) -> None:
        """Nothing of these is read."""
        self.reaches.update((place, Reach(refused=why)) for place in places)


def reconcile(
    spark: SparkSession,
    settings: Settings,
    name: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    manifests: Sequence[Path] = (),
    sample: int = 100,
    say: Callable[[str], None] = lambda text: None,
) -> Reconciliation:
    """Compare source, ledger and tables of a dataset. Reads only; may run beside the dataset's stream.

    Kafka's records and a landing folder's files are read once more as far as they are still there; a manifest's files
    when the manifest is given. What is not read is told as such in the result.

    Args:
        since, until: only batches that were published at `since` or later and before `until`; zone-aware.
        manifests: manifest files whose delivered files are still beside them.
        sample: how many records to compare by hash; 0 for all.
        say: told what goes on.

    Raises:
        ConfigurationError: no such dataset, no ledger yet, `since` is not before `until`, or a manifest that is not
            sound, is another dataset's or not among the batches that are looked at.
        SourceError: the source cannot be read. SinkError: the tables cannot.
    """
    dataset = _checked(settings, name, since, until, sample)
    given = [read_manifest(path) for path in manifests]
    tables = Tables.of(settings)
    say("reading the ledger")
    ledger = committed_accounts(spark, tables, name)
    lost = given_up(ledger)
    everyone = [account for account in ledger if not account.is_restart and account.batch_id not in lost]
    chosen = published_within(everyone, since, until)
    topic = _topic(dataset, chosen, say)
    question = Question(
        dataset=name,
        chosen=chosen,
        everyone=everyone,
        updates=dataset.on_match is OnMatch.UPDATE_IF_NEWER,
        filters=dataset.tombstones is Tombstones.FILTER,
        sample=sample,
        earlier=_of_an_earlier_topic(dataset, everyone, topic),
        given_up=len(published_within([a for a in ledger if a.batch_id in lost], since, until)),
    )
    with tempfile.TemporaryDirectory(prefix="lazaretto-reconcile-") as inbox:
        found = _sources(spark, dataset, question, topic, _of_batches(given, name, chosen), Path(inbox), say)
        source = reduce(DataFrame.unionAll, found.envelopes) if found.envelopes else None
        result = compare(spark, tables, question, source, found.reaches, say=say)
    return replace(result, differences=(*found.differences, *result.differences))


def _checked(
    settings: Settings, name: str, since: datetime | None, until: datetime | None, sample: int
) -> DatasetSettings:
    dataset = settings.dataset(name)
    if since is not None and until is not None and since >= until:
        raise ConfigurationError("--from is not before --to", remedy="nothing lies between: give other times")
    if sample < 0:
        raise ConfigurationError(f"a sample of {sample} records", remedy="give --sample 1 or more, or 0 for all")
    return dataset


def _of_batches(given: Sequence[Manifest], name: str, chosen: Iterable[Account]) -> dict[str, Manifest]:
    loaded = {account.batch_id for account in chosen if account.kind == BatchKind.MANIFEST.value}
    for manifest in given:
        if manifest.dataset != name:
            raise ConfigurationError(
                f"is a manifest of dataset {manifest.dataset!r}", where=str(manifest.file),
                remedy=f"run `lazaretto reconcile {manifest.dataset}`",
            )  # fmt: skip
        if manifest.manifest_id not in loaded:
            raise ConfigurationError(
                f"manifest {manifest.manifest_id} is not among the committed batches", where=str(manifest.file),
                remedy="look at `lazaretto status`, --from and --to",
            )  # fmt: skip
    return {manifest.manifest_id: manifest for manifest in given}


def _sources(
    spark: SparkSession,
    dataset: DatasetSettings,
    question: Question,
    topic: TopicState | None,
    given: Mapping[str, Manifest],
    inbox: Path,
    say: Callable[[str], None],
) -> _Found:
    """Each place by the reader it came through; what has none is not compared."""
    found = _Found()
    source = dataset.source
    by_manifest = {
        each.place for account in question.chosen if account.kind == BatchKind.MANIFEST.value for each in account.ranges
    }
    streamed: dict[Place, list[Interval]] = {}
    for place, intervals in question.reads.items():
        if place in by_manifest:
            # what is read is told below
            found.refuse([place], Standing.NOT_COMPARED)
        elif source is not None and (place.system, place.stream) == _stream_of(source):
            streamed[place] = intervals
        else:  # of a source that the dataset had before
            found.refuse([place], Standing.NOT_COMPARED)
    if streamed and isinstance(source, KafkaSource):
        _from_kafka(spark, source, topic, streamed, found)
    elif streamed and isinstance(source, FilesSource):
        _from_landing(spark, source, streamed, found)
    for account in question.chosen:
        manifest = given.get(account.batch_id)
        if manifest is not None:
            say(f"copying and hashing the files of manifest {manifest.manifest_id}")
            _from_manifest(spark, dataset, account, manifest, inbox / manifest.manifest_id, found)
    return found


def _stream_of(source: KafkaSource | FilesSource) -> tuple[str, str]:
    return ("kafka", source.topic) if isinstance(source, KafkaSource) else ("files", landing_name(source))


def _topic(dataset: DatasetSettings, chosen: Iterable[Account], say: Callable[[str], None]) -> TopicState | None:
    """What the broker has of the topic; not asked when no chosen batch has read it."""
    source = dataset.source
    if not isinstance(source, KafkaSource):
        return None
    if not any(each.place[:2] == _stream_of(source) for account in chosen for each in account.ranges):
        return None
    say(f"asking the broker for topic {source.topic}")
    return check_kafka(source)


def _of_an_earlier_topic(
    dataset: DatasetSettings, oldest_first: Sequence[Account], topic: TopicState | None
) -> frozenset[str]:
    """Batches of a topic that was deleted and made anew under its name: its offsets mean other records now."""
    source = dataset.source
    if not isinstance(source, KafkaSource):
        return frozenset()
    of_topic = [a for a in oldest_first if a.topic_id is not None and a.declared.get("topic") == source.topic]
    if not of_topic:
        return frozenset()
    now = topic.topic_id if topic is not None else of_topic[-1].topic_id
    return frozenset(account.batch_id for account in of_topic if account.topic_id != now)


def _from_kafka(
    spark: SparkSession, source: KafkaSource, topic: TopicState | None, reads: _Reads, found: _Found
) -> None:
    """What the topic still has. Spark fails on offsets that are gone, so what is read is cut to those that are not."""
    within: dict[Place, list[Interval]] = {}
    sparse = topic is not None and is_compacted(source)
    for place, intervals in reads.items():
        # a partition that the topic does not have ends before it begins
        first, after = topic.retained.get(int(place.partition), (0, 0)) if topic is not None else (0, None)
        found.reaches[place] = Reach(first, after, sparse=sparse)
        cut = [(max(start, first), end if after is None else min(end, after - 1)) for start, end in intervals]
        within[place] = [(start, end) for start, end in cut if start <= end]
    for layer in layers(within):
        start = {int(place.partition): first for place, (first, _) in layer.items()}
        end = {int(place.partition): last + 1 for place, (_, last) in layer.items()}
        found.envelopes.append(read_kafka_range(spark, source, start, end))


def _from_landing(spark: SparkSession, source: FilesSource, reads: _Reads, found: _Found) -> None:
    check_landing(source)
    there = sorted(place for place in reads if (source.path / place.partition).is_file())
    found.refuse(reads.keys() - set(there), Standing.GONE)
    found.reaches.update((place, Reach()) for place in there)
    if there:
        found.envelopes.append(read_landing(spark, source, [place.partition for place in there]))


def _from_manifest(
    spark: SparkSession, dataset: DatasetSettings, account: Account, manifest: Manifest, inbox: Path, found: _Found
) -> None:
    """The files that are still what was promised when they were loaded; the others are named."""
    batch = account.batch_id
    places: dict[str, Place] = {each.place.partition: each.place for each in account.ranges}
    then = {str(file.get("path")): str(file.get("sha256")) for file in account.declared.get("files") or ()}
    now = {file.path: file.sha256 for file in manifest.files}
    other = {path for path in then.keys() | now.keys() if then.get(path) != now.get(path)}
    verified = verify(manifest, inbox, encoding=dataset.encoding)
    missing = {p.path for p in verified.problems if p.error_class is BatchClass.INCOMPLETE and p.reason == "is missing"}
    other |= {problem.path for problem in verified.problems} - missing
    for path in sorted(other):
        place = places.get(path, Place("files", batch, path))
        found.differences.append(Difference(DifferenceKind.FILE_CHANGED, batch, place))
    found.refuse((places[path] for path in missing if path in places), Standing.GONE)
    sound = tuple(file for file in verified.files if file.path not in other)
    found.reaches.update((places[file.path], Reach()) for file in sound if file.path in places)
    if sound:
        found.envelopes.append(manifest_envelope(spark, manifest, replace(verified, files=sound, problems=())))
