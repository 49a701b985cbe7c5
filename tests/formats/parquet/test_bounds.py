"""Bounds of pages: what pyarrow's own statistics say, and what damage does."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlake.codec.bytes import varint
from bitlake.errors import CorruptError
from bitlake.formats.parquet import thrift
from bitlake.formats.parquet.footer import read_footer
from bitlake.formats.parquet.page_index import PageBounds, page_bounds


def bounds_of(data: bytes, name: str, prefetch: int = 1 << 17) -> PageBounds | None:
    footer = read_footer(lambda at, n: data[at : at + n], len(data), prefetch=prefetch)
    return page_bounds(footer, lambda ranges: [data[at : at + n] for at, n in ranges], name)


def written(table: pa.Table, **more: Any) -> bytes:
    sink = io.BytesIO()
    options = {"row_group_size": 1000, "data_page_size": 256, "write_batch_size": 32, "write_page_index": True}
    pq.write_table(table, sink, **{**options, "use_dictionary": False, **more})
    return sink.getvalue()


@pytest.mark.parametrize("prefetch", [1 << 17, 8])
def test_every_value_is_within_its_page(prefetch: int) -> None:
    values = np.random.default_rng(1).integers(-(2**62), 2**62, 2500)
    masked = pa.array(values, mask=(np.arange(2500) // 100) % 3 == 0)
    made = {"i": values, "s": [str(v) for v in values.tolist()], "d": (values % 1000).astype(np.int32), "n": masked}
    data = written(pa.table(made), row_group_size=700)
    for name in ("i", "d", "s", "n"):
        found = bounds_of(data, name, prefetch)
        assert found is not None
        assert len(found.low) == len(found.high) == len(found.empty) == len(found.starts) - 1 > 8
        assert found.starts[0] == 0 and found.starts[-1] == 2500 and (np.diff(found.starts) > 0).all()
        for i in range(len(found.low)):
            page = pa.array(made[name])[int(found.starts[i]) : int(found.starts[i + 1])].drop_null().to_pylist()
            page = [v.encode() if isinstance(v, str) else v for v in page]
            assert bool(found.empty[i]) == (not page)
            assert not page or (min(page), max(page)) == (found.low[i], found.high[i])


def test_other_columns_and_files_have_none() -> None:
    table = pa.table({"f": [1.5], "l": pa.array([[1]]), "i": [1]})
    data = written(table)
    assert bounds_of(data, "f") is None
    assert bounds_of(data, "l") is None
    assert bounds_of(written(table, write_page_index=False), "i") is None


def test_empty_row_groups_have_no_pages() -> None:
    table, sinks = pa.table({"i": range(2000)}), (io.BytesIO(), io.BytesIO(), io.BytesIO())
    orders = ((table, table), (table[:0], table, table[:0], table, table[:0]), (table[:0],))
    for sink, parts in zip(sinks, orders, strict=True):
        options = {"data_page_size": 256, "write_batch_size": 32, "write_page_index": True, "use_dictionary": False}
        with pq.ParquetWriter(sink, table.schema, **options) as writer:
            for part in parts:
                writer.write_table(part)
    plain, mixed, empty = (bounds_of(sink.getvalue(), "i") for sink in sinks)
    assert plain is not None and mixed is not None and empty is None
    for name in ("starts", "low", "high", "empty"):
        assert getattr(mixed, name).tolist() == getattr(plain, name).tolist() and len(plain.empty) > 8


@given(st.integers(0, 400), st.integers(0, 255))
def test_damage_is_an_error_or_harmless(at: int, byte: int) -> None:
    data = bytearray(written(pa.table({"i": list(range(500))})))
    footer = read_footer(lambda a, n: bytes(data[a : a + n]), len(data))
    chunk = footer.row_groups[0].chunks[0]
    assert chunk.bounds_offset is not None
    data[chunk.bounds_offset + at % chunk.bounds_length] = byte
    try:
        found = bounds_of(bytes(data), "i")
    except CorruptError:
        return
    assert found is None or len(found.low) == len(found.starts) - 1


def test_bounds_of_another_number_of_pages_are_refused() -> None:
    data = written(pa.table({"i": list(range(500))}))
    footer = read_footer(lambda a, n: data[a : a + n], len(data))
    chunk = footer.row_groups[0].chunks[0]
    assert chunk.bounds_offset is not None
    one = [thrift.list_field(1, thrift.TRUE, [b"\x02"])]
    one += [thrift.list_field(1, thrift.BINARY, [varint(8) + bytes(8)]) for _ in range(2)]
    index = b"".join(one) + b"\0"
    broken = data[: chunk.bounds_offset] + index.ljust(chunk.bounds_length, b"\0")
    broken += data[chunk.bounds_offset + chunk.bounds_length :]
    with pytest.raises(CorruptError, match="bounds of 1 pages"):
        bounds_of(broken, "i")
