from __future__ import annotations

from ...committing import _interpreted, bad, lake, new_lake, rec

__all__ = ["_interpreted", "bad", "lake", "new_lake", "rec"]
