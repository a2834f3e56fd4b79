"""Lazaretto: quarantine-first ingestion for the lakehouse.

Records are inspected once: valid ones are merged into Delta bronze tables, invalid ones are held with the reason.
The public face is the command line (`lazaretto --help`) and, for notebooks, the names in `__all__`.
"""

if __name__ != "lazaretto":
    raise ImportError(
        f"import it as `lazaretto`, not as `{__name__}`: a second import path would make a second copy of every class"
    )

__version__ = "0.1.0"

__all__ = ["__version__"]
