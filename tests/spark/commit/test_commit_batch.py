"""One batch from stage to ledger, and the same batch again."""

from __future__ import annotations


def test_plain(lake, rec, bad):
    records = [rec("a", 1), rec("b", 2, 5), bad(None, 3), bad("c", 4, "UNKNOWN_FIELD", "x")]
    result = lake.run(records)
    assert (result.records_read, result.records_inserted, result.records_quarantined) == (4, 2, 2)
    assert lake.bronze() == [("a", 1, 1), ("b", 5, 2)]
    assert lake.quarantine() == [(3, "MALFORMED"), (4, "UNKNOWN_FIELD")]
    assert lake.run(records).already_committed
