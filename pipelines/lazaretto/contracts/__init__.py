"""Contracts: what a record must look like, read from Open Data Contract Standard files."""

from lazaretto.contracts.model import (
    INTEGERS,
    NUMBERS,
    UNKNOWN_COLUMN,
    Contract,
    Field,
    Kind,
    UnknownFields,
    quoted,
)
from lazaretto.contracts.odcs import read_contract

__all__ = [
    "INTEGERS",
    "NUMBERS",
    "UNKNOWN_COLUMN",
    "Contract",
    "Field",
    "Kind",
    "UnknownFields",
    "quoted",
    "read_contract",
]
