"""How often a scan requests a data file: bytes that came with the footer are not requested again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from store_wrappers import CountingStore

import bitlake
from bitlake.formats.parquet.footer import PREFETCH
from bitlake.io.base import WHOLE_FILE_BYTES

ROWS = 300
INDEXED = {"file-index.bitmap.columns": "s", "file-index.in-manifest-threshold": "1 mb"}


@pytest.fixture(params=["path", "file URI", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a lake is: local files, or a remote store."""
    return {"path": str(tmp_path), "file URI": tmp_path.as_uri(), "memory": f"memory://{uuid4()}/lake"}[request.param]


def small_rows(file: int) -> pa.Table:
    first = file * ROWS
    return pa.table({"i": range(first, first + ROWS), "s": [f"k{i % 10}" for i in range(ROWS)], "v": [0.5] * ROWS})


def requests(place: str, columns: list[str] | None, where: str | None) -> tuple[pa.Table, list[int]]:
    """What a scan by a new lake returns, and how many requests it sent for each data file."""
    lake = bitlake.connect(place)
    store = lake._catalog.store = CountingStore(lake._catalog.store)
    rows = lake.table("t").scan(columns=columns, where=where).to_arrow()
    sent = Counter(path for call, path in store.paths if "/data-" in path and call != "size")
    return rows, list(sent.values())


def test_a_small_file_is_requested_once(place: str) -> None:
    table = bitlake.connect(place).create_table("t", small_rows(0).schema, options=INDEXED)
    for file in range(3):
        table.append(small_rows(file))
    expected = pa.concat_tables([small_rows(file) for file in range(3)])
    rows, sent = requests(place, None, None)
    assert rows.sort_by("i").equals(expected.cast(rows.schema)) and sent == [1, 1, 1]
    for where in ("s = 'k3'", "i % 10 = 3", "i % 10 = 3 AND s = 'k3'"):
        rows, sent = requests(place, ["i", "v"], where)
        assert rows.column("i").to_pylist() == list(range(3, 900, 10)) and sent == [1, 1, 1]


def test_pages_in_the_tail_cost_no_request_of_their_own(place: str) -> None:
    random = np.random.default_rng(1)
    rows = pa.table(
        {"text": [random.bytes(400).hex() for _ in range(2_000)], "s": [f"k{i % 100}" for i in range(2_000)]}
    )
    assert rows.nbytes > 8 * PREFETCH
    bitlake.connect(place).create_table("t", rows.schema, options=INDEXED).append(rows)
    for where, count in ((None, 2_000), ("s = 'k7'", 20)):
        found, sent = requests(place, ["s"], where)
        assert (found.num_rows, sent) == (count, [1])
    found, sent = requests(place, None, "s = 'k99'")
    assert found.equals(rows.filter(pa.array([i % 100 == 99 for i in range(2_000)])).cast(found.schema)) and sent == [2]


class _Ranges(CountingStore):
    """Counts the bytes of ranges alone."""

    def read(self, path: str, limit: int = WHOLE_FILE_BYTES) -> bytes:
        return self.inner.read(path, limit)

    def read_tagged(self, path: str, limit: int = WHOLE_FILE_BYTES) -> tuple[bytes, str | None]:
        return self.inner.read_tagged(path, limit)


def test_a_full_scan_fetches_no_byte_of_a_remote_file_twice() -> None:
    random = np.random.default_rng(2)
    rows = pa.table({"a": random.integers(0, 1 << 60, 100_000), "b": random.integers(0, 1 << 60, 100_000)})
    lake = bitlake.connect(f"memory://{uuid4()}/lake")
    table = lake.create_table("t", rows.schema)
    table.append(rows)
    (file,) = table.scan().plan().files
    assert file.entry.file.file_size > 4 * PREFETCH
    store = lake._catalog.store = _Ranges(lake._catalog.store)
    found = lake.table("t").scan().to_arrow()
    assert found.equals(rows.cast(found.schema))
    assert store.calls["read_range"] == 2, "the footer, and what lies before it"
    assert store.bytes_read < file.entry.file.file_size
