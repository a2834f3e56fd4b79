"""Sources: Kafka and files, each giving the same envelope."""

from lazaretto.sources.batch import manifest_envelope
from lazaretto.sources.copies import VerifiedFile
from lazaretto.sources.envelope import COORDINATE, ENVELOPE, ENVELOPE_DDL, envelope_differences
from lazaretto.sources.failures import as_source_error
from lazaretto.sources.inflate import InflateCap
from lazaretto.sources.kafka import kafka_envelope, read_kafka_range, read_kafka_stream
from lazaretto.sources.kafka_check import TopicState, check_kafka, is_compacted
from lazaretto.sources.landing import (
    check_landing,
    ignored_files,
    landing_envelope,
    landing_name,
    landing_stream,
    read_landing,
)
from lazaretto.sources.manifest import Manifest, ManifestFile, read_manifest
from lazaretto.sources.refused import refuse_files
from lazaretto.sources.verify import FileProblem, Verified, keeps_ascii, verify

__all__ = [
    "COORDINATE",
    "ENVELOPE",
    "ENVELOPE_DDL",
    "FileProblem",
    "InflateCap",
    "Manifest",
    "ManifestFile",
    "TopicState",
    "Verified",
    "VerifiedFile",
    "as_source_error",
    "check_kafka",
    "check_landing",
    "envelope_differences",
    "ignored_files",
    "is_compacted",
    "kafka_envelope",
    "keeps_ascii",
    "landing_envelope",
    "landing_name",
    "landing_stream",
    "manifest_envelope",
    "read_kafka_range",
    "read_kafka_stream",
    "read_landing",
    "read_manifest",
    "refuse_files",
    "verify",
]
