"""ORC and Avro data files: what bitlake writes Java reads row for row, and the other way round."""

from __future__ import annotations

import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from interop.every_type import ATOMIC, BITMAP_COLUMNS, BLOOM_COLUMNS, NESTED, atomic_rows, nested_rows
from interop.rows import rows_of, same_rows

import bitlake

pytestmark = pytest.mark.interop

INDEXES = {
    "file-index.bitmap.columns": ",".join(BITMAP_COLUMNS),
    "file-index.bloom-filter.columns": ",".join(BLOOM_COLUMNS),
}


@pytest.fixture(params=["orc", "avro"])
def file_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def storable(rows: pa.Table, file_format: str) -> pa.Table:
    """The rows without the moments before 1970 that ORC cannot hold in a way that Java reads."""
    if file_format == "avro":
        return rows
    for name in ("c_ts", "c_ntz"):
        rows = rows.filter(pc.fill_null(pc.greater_equal(rows.column(name).cast(pa.int64()), 0), True))
    return rows


def make(warehouse: Path, schema: pa.Schema, options: dict[str, str], partition_by: list[str] | None = None) -> Any:
    lake = bitlake.connect(str(warehouse))
    lake.create_database("db", if_not_exists=True)
    return lake.create_table("db.t", schema, partition_by=partition_by or [], options=options)


@pytest.mark.parametrize("size", ["16 kb", "256 mb"])
def test_java_reads_every_type(tmp_path: Path, java: ModuleType, file_format: str, size: str) -> None:
    table = make(tmp_path, ATOMIC, {"file.format": file_format, "target-file-size": size} | INDEXES)
    rows = storable(atomic_rows(600), file_format)
    table.append(rows)
    table.append(storable(atomic_rows(50, seed=2), file_format))
    want = rows_of(rows) + rows_of(storable(atomic_rows(50, seed=2), file_format))
    assert list(tmp_path.rglob(f"data-*.{file_format}"))
    same_rows(java.dump(tmp_path, "db.t"), want)
    same_rows(rows_of(table.scan().to_arrow()), want)
    at = ATOMIC.get_field_index("c_str")
    pending = [r for r in want if r[at] == "PENDING"]
    same_rows(rows_of(table.scan(where="c_str = 'PENDING'").to_arrow()), pending)
    found = java.dump(tmp_path, "db.t", c_str="PENDING")
    # Java's Avro reader takes no selection of rows: the index prunes whole files there.
    same_rows(found if file_format == "orc" else [r for r in found if r[at] == "PENDING"], pending)


def test_java_reads_nested_types(tmp_path: Path, java: ModuleType, file_format: str) -> None:
    schema = NESTED.append(pa.field("by_number", pa.map_(pa.int32(), pa.list_(pa.map_(pa.int64(), pa.string())))))
    numbers: list[Any] = [None, [], [(1, None), (2, [None, [(5, "x"), (6, None)]])]]
    rows = nested_rows(60)
    column = pa.array([numbers[i % 3] for i in range(60)], schema.field("by_number").type)
    rows = rows.append_column(schema.field("by_number"), column)
    table = make(tmp_path, schema, {"file.format": file_format})
    table.append(rows)
    same_rows(java.dump(tmp_path, "db.t"), rows_of(rows))
    same_rows(rows_of(table.scan().to_arrow()), rows_of(rows))


def test_we_read_what_java_writes(tmp_path: Path, java: ModuleType, file_format: str) -> None:
    table = make(tmp_path, ATOMIC, {"file.format": file_format} | INDEXES)
    rows = storable(atomic_rows(120), file_format)
    java.append(tmp_path, "db.t", rows_of(rows))
    same_rows(rows_of(table.scan().to_arrow()), rows_of(rows))
    at = ATOMIC.get_field_index("c_int")
    same_rows(rows_of(table.scan(where="c_int = 42").to_arrow()), [r for r in rows_of(rows) if r[at] == 42])


def test_statistics_prune_in_java_too(tmp_path: Path, java: ModuleType, file_format: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("name", pa.string())])
    table = make(tmp_path, schema, {"file.format": file_format})
    for part in range(3):
        days = [datetime.date(2024, part + 1, d + 1) for d in range(10)]
        names = [f"{part}-{'x' * 30}-{d}" for d in range(10)]
        table.append(pa.table([pa.array(range(part * 10, part * 10 + 10)), days, names], schema=schema))
    assert java.read(tmp_path, "db.t", [("id", "=", [14])]).files == 1
    assert java.read(tmp_path, "db.t", [("name", ">=", ["2"])]).files == 1
    assert len(table.scan(where="day = DATE'2024-02-03'").plan().files) == 1


def test_formats_side_by_side(tmp_path: Path, java: ModuleType) -> None:
    table = make(tmp_path, ATOMIC, {"file.format": "parquet"} | INDEXES)
    want: list[tuple[Any, ...]] = []
    for seed, file_format in enumerate(("parquet", "orc", "avro", "parquet")):
        table.alter_options({"file.format": file_format})
        rows = storable(atomic_rows(60, seed=seed), "orc")
        table.append(rows)
        want += rows_of(rows)
    assert {p.suffix for p in tmp_path.rglob("data-*") if ".index" not in p.name} == {".parquet", ".orc", ".avro"}
    same_rows(java.dump(tmp_path, "db.t"), want)
    same_rows(rows_of(table.scan().to_arrow()), want)
    at = ATOMIC.get_field_index("c_date")
    day = datetime.date(2024, 2, 29)
    same_rows(rows_of(table.scan(where="c_date = DATE'2024-02-29'").to_arrow()), [r for r in want if r[at] == day])


def test_buckets_partitions_char_and_time(tmp_path: Path, java: ModuleType, file_format: str) -> None:
    schema = pa.schema([("p", pa.string()), ("id", pa.int32()), ("v", pa.string())])
    options = {"file.format": file_format, "bucket": "3", "bucket-key": "id"}
    table = make(tmp_path, schema, options, ["p"])
    rows = pa.table(
        [pa.array(["a", "b", None] * 20), pa.array(range(60), pa.int32()), pa.array(["x", None] * 30)], schema=schema
    )
    table.append(rows)
    same_rows(java.dump(tmp_path, "db.t"), rows_of(rows))


@pytest.mark.parametrize("native", [False, True], ids=["pypaimon", "pypaimon-rust"])
def test_pypaimon_reads_every_type(tmp_path: Path, pypaimon: ModuleType, file_format: str, native: bool) -> None:
    table = make(tmp_path, ATOMIC, {"file.format": file_format} | INDEXES)
    rows = storable(atomic_rows(200), file_format)
    table.append(rows)
    same_rows(pypaimon.dump(tmp_path, "db.t", native), rows_of(rows))
