from __future__ import annotations

import errno
import io
import os
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from bitlake.errors import CorruptError, InvalidRequest, StorageFull
from bitlake.formats.orc import OrcWriter, read_columns
from bitlake.types import AtomicType, DataField, Root
from tests.fixtures import warehouse

FILES = sorted((warehouse() / "default.db" / "pk_orc_dv").rglob("data-*.orc"))
FIELDS = (DataField(0, "a", AtomicType(Root.BIGINT, nullable=False)),)


def test_files_of_paimon() -> None:
    rows = 0
    for path in FILES:
        table = pa.Table.from_batches(read_columns(str(path), ["order_id", "_VALUE_KIND", "amount"], batch_size=100))
        whole = orc.ORCFile(str(path)).read(columns=["order_id", "_VALUE_KIND", "amount"])
        assert table.equals(whole.select(table.column_names))
        rows += table.num_rows
    assert rows > 300


def test_broken_bytes_are_corrupt() -> None:
    data = FILES[0].read_bytes()
    for broken in (b"", data[:50], data[: len(data) // 2]):
        with pytest.raises(CorruptError):
            list(read_columns(pa.BufferReader(broken)))


def test_a_write_that_fails_after_another() -> None:
    """Bug: Arrow's writer, deleted after its output was closed, ended the process."""
    out = pa.BufferOutputStream()
    writer = OrcWriter(out, FIELDS)
    writer.write(pa.table({"a": [1, 2]}))
    with pytest.raises(InvalidRequest, match="NOT NULL"):
        writer.write(pa.table({"a": pa.array([None], pa.int64())}))
    out.close()
    del writer


class Disk(io.BytesIO):
    full = False

    def write(self, data: Any) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_a_full_disk() -> None:
    """Bug: an error while the last stripe was written ended the process."""
    out = Disk()
    writer = OrcWriter(out, FIELDS)
    writer.write(pa.table({"a": [1, 2]}))
    out.full = True
    with pytest.raises(StorageFull, match="No space left"):
        writer.close()
    del writer
