from __future__ import annotations

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from bitlake.errors import CorruptError
from bitlake.formats.orc import read_columns, read_schema
from tests.fixtures import warehouse

FILES = sorted((warehouse() / "default.db" / "pk_orc_dv").rglob("data-*.orc"))


def test_files_of_paimon() -> None:
    rows = 0
    for path in FILES:
        table = pa.Table.from_batches(read_columns(str(path), ["order_id", "_VALUE_KIND", "amount"], batch_size=100))
        whole = orc.ORCFile(str(path)).read(columns=["order_id", "_VALUE_KIND", "amount"])
        assert table.equals(whole.select(table.column_names)) and read_schema(str(path)).names[0] == "_KEY_order_id"
        rows += table.num_rows
    assert rows > 300


def test_broken_bytes_are_corrupt() -> None:
    data = FILES[0].read_bytes()
    for broken in (b"", data[:50], data[: len(data) // 2]):
        with pytest.raises(CorruptError):
            list(read_columns(pa.BufferReader(broken)))
