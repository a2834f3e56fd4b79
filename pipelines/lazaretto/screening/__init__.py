"""Screening: envelope in, verdict out. Pure: a DataFrame in, a DataFrame out."""

from lazaretto.screening.dataset import Screening
from lazaretto.screening.verdict import FILTERED, INVALID, VALID, screen

__all__ = ["FILTERED", "INVALID", "VALID", "Screening", "screen"]
