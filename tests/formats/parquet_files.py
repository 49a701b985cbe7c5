"""Parquet bytes in memory, read the way a store would serve them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bitlake.codec.hashing import Int64s
from bitlake.formats.parquet.footer import FetchRanges, Footer, read_footer
from bitlake.formats.parquet.page_index import split_rows
from bitlake.formats.parquet.pages import ReadStats, read_parts


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


def read_rows(
    footer: Footer, fetch_ranges: FetchRanges, rows: Int64s, columns: Sequence[str], **options: Any
) -> tuple[pa.Table, ReadStats]:
    """All parts of :func:`bitlake.formats.parquet.pages.read_parts` as one."""
    parts = list(read_parts(footer, fetch_ranges, rows, columns, **options))
    stats = [s for _, s in parts]
    total = ReadStats(
        sum(s.pages for s in stats), sum(s.bytes for s in stats), sum(s.requests for s in stats),
        len(split_rows(footer, rows)),
    )  # fmt: skip
    return parts[0][0] if len(parts) == 1 else pa.concat_tables([t for t, _ in parts]), total


def parquet(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **({"write_page_index": True} | options))
    return out.getvalue()
