from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlake.errors import CorruptError
from bitlake.formats.parquet import thrift
from bitlake.formats.parquet.page_index import _decode_any, _decode_fast, decode_pages, load_pages
from tests.formats.parquet_files import Source, parquet

DATA = parquet(
    pa.table({"a": np.arange(10_000), "b": np.arange(10_000) % 7}), max_rows_per_page=100, row_group_size=5000
)
CHUNK = replace(Source(DATA).footer().row_groups[0].chunks[0], start=0, compressed=1 << 40)


def index(pages: list[tuple[int, int, int]]) -> bytes:
    locations = [
        thrift.i64_field(1, o) + thrift.i32_field(1, s) + thrift.i64_field(1, r) + b"\x00" for o, s, r in pages
    ]
    return thrift.list_field(1, thrift.STRUCT, locations) + b"\x00"


@given(st.lists(st.tuples(st.integers(1, 1 << 30), st.integers(0, 1 << 20)), min_size=1, max_size=300))
def test_both_decoders_agree(steps: list[tuple[int, int]]) -> None:
    pages, offset, row = [], 4, 0
    for size, rows in steps:
        pages.append((offset, size, row))
        offset, row = offset + size, row + rows
    data = index(pages)
    fast, slow = _decode_fast(data), _decode_any(data, 0)
    assert fast is not None and np.array_equal(np.array(fast), np.array(slow))
    found = decode_pages(data, CHUNK, row)
    assert found.first_rows.tolist() == [p[2] for p in pages] + [row]
    assert (found.ends - found.offsets).tolist() == [p[1] for p in pages]


@pytest.mark.parametrize(
    "pages",
    [
        [],
        [(4, 0, 0)],
        [(4, 10, 1)],
        [(4, 10, 0), (13, 10, 5)],
        [(14, 10, 0), (4, 10, 5)],
        [(4, 10, 0), (14, 10, 5), (24, 10, 4)],
        [(4, 10, 0), (14, 10, 11)],
        [(4, (1 << 31) - 1, 0), (1 << 50, 10, 5)],
        [(-4, 10, 0)],
        [(4, -10, 0)],
    ],
)
def test_pages_out_of_order_are_refused(pages: list[tuple[int, int, int]]) -> None:
    with pytest.raises(CorruptError):
        decode_pages(index(pages), CHUNK, 10)


@given(st.binary(max_size=80))
def test_any_bytes_are_pages_or_corrupt(data: bytes) -> None:
    with contextlib.suppress(CorruptError):
        decode_pages(data, CHUNK, 100)
    with contextlib.suppress(CorruptError):
        decode_pages(index([(4, 10, 0), (14, 10, 5)])[:2] + data, CHUNK, 100)


def test_indexes_come_in_one_request_or_with_the_footer() -> None:
    source = Source(DATA)
    wanted = [(g, c) for g in range(2) for c in range(2)]
    near = source.footer()
    assert load_pages(near, source.fetch_ranges, wanted) == (0, 0)
    far = source.footer(prefetch=8)
    requests, size = load_pages(far, source.fetch_ranges, wanted)
    assert requests == 1 and size > 0 and load_pages(far, source.fetch_ranges, wanted) == (0, 0)
    for key in wanted:
        assert np.array_equal(near.cache.pages[key].first_rows, far.cache.pages[key].first_rows)
    assert far.cache.pages[0, 0].first_rows is far.cache.pages[0, 1].first_rows  # equal layouts are one object
    assert len(far.cache.pages[0, 0].offsets) == 50
