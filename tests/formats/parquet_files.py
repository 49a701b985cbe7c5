"""Parquet bytes in memory, read the way a store would serve them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bitlake.formats.parquet.footer import Footer, read_footer


class Source:
    """Serves byte ranges of ``data`` and counts them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def fetch(self, offset: int, length: int) -> bytes:
        assert offset >= 0 and length >= 0 and offset + length <= len(self.data), (offset, length)
        self.asked.append((offset, length))
        return self.data[offset : offset + length]

    def fetch_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.fetch(*r) for r in ranges]

    def footer(self, **options: Any) -> Footer:
        return read_footer(self.fetch, len(self.data), **options)


def parquet(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **({"write_page_index": True} | options))
    return out.getvalue()
