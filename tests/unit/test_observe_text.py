"""What may be shown on a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazaretto.observe.text import decoded, printable


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b'{"a": "\xc3\xa4"}', '{"a": "ä"}'),
        (b"\xff\x00a", "\\xff\\u0000a"),
        (b"a\r\n\tb", "a\\r\\n\\tb"),
        (b"\x1b[31m", "\\u001b[31m"),
        ("高雄 👩‍🚀".encode(), "高雄 👩\\u200d🚀"),
        (b"\xe2\x80\xaegnp", "\\u202egnp"),
        (b"a\\nb", "a\\\\nb"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
        (b"\xc3", "\\xc3"),
        (b"", ""),
    ],
)
def test_decoded(payload: bytes, shown: str) -> None:
    assert decoded(payload) == shown


def test_lines_can_be_kept() -> None:
    assert decoded(b"a\nb\r", keep="\n") == "a\nb\\r"


@given(st.binary(), st.binary())
def test_different_bytes_never_look_the_same(one: bytes, other: bytes) -> None:
    assert (decoded(one) == decoded(other)) == (one == other)


@given(st.text())
def test_printable_is_printable(text: str) -> None:
    shown = printable(text)
    assert all(c.isprintable() or c.isspace() for c in shown)
    assert len(shown.splitlines()) <= 1
