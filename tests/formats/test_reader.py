from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pytest

from bitlake.errors import NotFound, UnsupportedFeature
from bitlake.formats.file_format import format_of, reader_for
from tests.formats.parquet_files import parquet

TABLE = pa.table({"a": np.arange(1000), "s": [f"v{i % 9}" for i in range(1000)]})


def test_the_extension_names_the_format() -> None:
    assert [format_of(n) for n in ("data-1-0.parquet", "/x.orc/y.avro", "A.ORC")] == ["parquet", "avro", "orc"]
    for name in ("data.csv", "parquet", "data-1.parquet.gz"):
        with pytest.raises(UnsupportedFeature):
            format_of(name)


def write(path: Path) -> str:
    if path.suffix == ".orc":
        orc.write_table(TABLE, str(path), stripe_size=1024)
    else:
        path.write_bytes(parquet(TABLE, row_group_size=300))
    return str(path)


@pytest.mark.parametrize("kind", ["orc", "parquet"])
def test_columns_and_rows_of_every_format(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"f.{kind}")
    read = reader_for(path)
    assert pa.Table.from_batches(read(path, batch_size=70)).equals(TABLE)
    rows = pa.array([0, 69, 70, 70, 999])
    found = pa.Table.from_batches(read(path, ["s", "a"], batch_size=70)).take(rows)
    assert found.equals(TABLE.select(["s", "a"]).take(rows))
    assert sum(b.num_rows for b in read(path, [])) == 1000
    with pytest.raises(NotFound, match="'x'"):
        list(read(path, ["x"]))
    with pytest.raises(NotFound):
        list(read(path + "x"))
