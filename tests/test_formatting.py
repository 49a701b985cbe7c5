"""Numbers, sizes and texts as people read them."""

from __future__ import annotations

import pytest

from bitlake.formatting import counted, human_bytes, shortened


@pytest.mark.parametrize(
    ("number", "one", "said"),
    [
        (0, "file", "0 files"), (1, "file", "1 file"), (2000, "file", "2,000 files"), (2, "branch", "2 branches"),
        (3, "file index", "3 file indexes"), (4, "query", "4 queries"), (1, "query", "1 query"),
    ],
)  # fmt: skip
def test_counts(number: int, one: str, said: str) -> None:
    assert counted(number, one) == said


def test_sizes() -> None:
    sizes = (0, 1023, 1024, 1536, (1 << 20) - 10, 3 << 30, 5 << 50)
    assert [human_bytes(n) for n in sizes] == ["0 B", "1023 B", "1.0 KB", "1.5 KB", "1.0 MB", "3.0 GB", "5.0 PB"]


def test_long_texts() -> None:
    assert [shortened("abcdef", n) for n in (7, 6, 5)] == ["abcdef", "abcdef", "abcd…"]
