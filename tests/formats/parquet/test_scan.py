from __future__ import annotations

import re
import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bitlake.errors import CorruptError, NotFound, StorageUnavailable
from bitlake.formats.parquet import decode
from bitlake.formats.parquet.decode import read_columns
from tests.formats.parquet_files import parquet

TABLE = pa.table({"a": np.arange(1000), "s": [f"v{i % 9}" for i in range(1000)], "b.c": np.arange(1000) * 2})
DATA = parquet(TABLE, row_group_size=300)


def test_batches_in_order_from_a_path_and_from_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(DATA)
    for source in (str(path), pa.BufferReader(DATA), pa.OSFile(str(path))):
        batches = list(read_columns(source, batch_size=128))
        assert max(b.num_rows for b in batches) <= 128
        assert pa.Table.from_batches(batches).equals(TABLE)


def test_columns_in_the_order_asked_for_and_row_groups() -> None:
    batches = list(read_columns(pa.BufferReader(DATA), ["b.c", "s"], row_groups=[1, 3], read_dictionary=["s"]))
    table = pa.Table.from_batches(batches)
    assert table.column_names == ["b.c", "s"] and pa.types.is_dictionary(table.schema.field("s").type)
    assert table.column("b.c").to_pylist() == [2 * i for i in [*range(300, 600), *range(900, 1000)]]
    assert sum(b.num_rows for b in read_columns(pa.BufferReader(DATA), [])) == 1000


def test_errors_are_ours(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        list(read_columns(str(tmp_path / "none.parquet")))
    with pytest.raises(NotFound, match="'x'"):
        list(read_columns(pa.BufferReader(DATA), ["x"]))
    with pytest.raises((CorruptError, StorageUnavailable)):
        list(read_columns(str(tmp_path)))
    with pytest.raises(CorruptError):
        list(read_columns(pa.BufferReader(DATA[:-20])))
    with pytest.raises(CorruptError):
        list(read_columns(pa.BufferReader(DATA[:4] + bytes(300) + DATA[304:])))


def test_a_page_of_absurd_size_is_not_given_memory() -> None:
    """Arrow gave it as much as its header says when it read through a buffer."""
    good = parquet(TABLE.select(["a"]), use_dictionary=False, compression="none")
    at = pq.ParquetFile(pa.BufferReader(good)).metadata.row_group(0).column(0).data_page_offset
    header = good[at : at + 12]
    # Thrift, compact: i32 fields 1 (kind of page), 2 (bytes) and 3 (bytes as stored), each behind a byte 15.
    size = re.fullmatch(rb"(\x15\x00\x15[\x80-\xff]*[\x00-\x7f]\x15)([\x80-\xff]*[\x00-\x7f]).*", header, re.S)
    assert size is not None
    broken = good[:at] + size[1] + b"\xfe\xff\xff\xff\x07" + good[at + size.end(2) :]  # 1 GiB - 1
    limits = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (512 << 20), limits[1]))
    try:
        with pytest.raises(CorruptError) as found:
            list(read_columns(pa.BufferReader(broken)))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert "alloc" not in str(found.value)


def test_dictionaries_are_asked_for_only_where_the_file_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of plain values Arrow gave every batch a dictionary of all so far: quadratic, for texts that never repeat."""
    monkeypatch.setattr(decode, "_DICTIONARY_BYTES", 20_000)
    rows = 40_000
    table = pa.table({"unique": [f"text number {n}" for n in range(rows)], "few": ["a", "b"] * (rows // 2)})
    for coded in (["few"], ["few", "unique"]):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, use_dictionary=coded, dictionary_pagesize_limit=10_000, row_group_size=15_000)
        asked = list(
            read_columns(pa.BufferReader(sink.getvalue()), ["unique", "few"], read_dictionary=["unique", "few"])
        )
        assert [str(t) for t in asked[0].schema.types] == [
            "string",
            "dictionary<values=string, indices=int32, ordered=0>",
        ]
        assert pa.Table.from_batches(asked).column("unique").equals(table.column("unique"))
