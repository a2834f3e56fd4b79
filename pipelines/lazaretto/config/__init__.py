"""Configuration: typed, frozen, read once at the edge and passed in."""

from lazaretto.config.load import load_settings
from lazaretto.config.settings import (
    CatalogWarehouse,
    DatasetSettings,
    DedupeTable,
    DedupeWindow,
    FileFormat,
    FilesSource,
    KafkaSource,
    OnFailure,
    OnMatch,
    PathWarehouse,
    Settings,
    Tombstones,
)

__all__ = [
    "CatalogWarehouse",
    "DatasetSettings",
    "DedupeTable",
    "DedupeWindow",
    "FileFormat",
    "FilesSource",
    "KafkaSource",
    "OnFailure",
    "OnMatch",
    "PathWarehouse",
    "Settings",
    "Tombstones",
    "load_settings",
]
