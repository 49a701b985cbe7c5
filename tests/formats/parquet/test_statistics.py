from __future__ import annotations

import datetime
import decimal
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bitlake.formats.parquet.footer import footer_stats
from bitlake.formats.parquet.write import ParquetWriter
from bitlake.types import DataField, from_arrow, parse_type
from tests.fixtures import warehouse
from tests.formats.parquet_files import Source, parquet, read_rows

EPOCH = datetime.date(1970, 1, 1)


def fields_of(schema: pa.Schema) -> list[DataField]:
    return [DataField(i, f.name, from_arrow(f.type)) for i, f in enumerate(schema)]


def physical(value: Any, kind: pa.DataType) -> Any:
    """A value of an Arrow scalar as the predicate tree's physical value: the slow, plain way."""
    if value is None:
        return None
    if isinstance(value, Decimal):
        return int(value.scaleb(kind.scale, decimal.Context(prec=80)))
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_date(kind):
        return pa.scalar(value, kind).cast(pa.int32() if kind.bit_width == 32 else pa.int64()).as_py()
    return value


def check_file(data: bytes, table: pa.Table) -> int:
    """Statistics bound the values, and are exact where they are known; returns how many columns have bounds."""
    footer = Source(data).footer()
    mins, maxs, nulls = footer_stats(footer, fields_of(table.schema))
    known = 0
    for field, low, high, null in zip(table.schema, mins, maxs, nulls):
        column = table.column(field.name)
        if pa.types.is_nested(field.type):
            assert (low, high, null) == (None, None, None)
            continue
        assert null in (column.null_count, None), field
        assert (low is None) == (high is None), field
        if low is None:
            continue
        known += 1
        values = pc.min_max(column).as_py()
        assert (low, high) == (physical(values["min"], field.type), physical(values["max"], field.type)), field
    return known


PARQUET = sorted(warehouse().rglob("*.parquet"))
SAMPLE = PARQUET[:: max(1, len(PARQUET) // 80)]


@pytest.mark.parametrize("path", SAMPLE, ids=lambda p: f"{p.parent.parent.name}-{p.stem[-12:]}")
def test_files_of_paimon_by_statistics_and_by_rows(path: Path) -> None:
    source = Source(path.read_bytes())
    table = pq.ParquetFile(path).read()
    check_file(source.data, table)
    rows = np.arange(0, table.num_rows, 3)
    found, _ = read_rows(source.footer(), source.fetch_ranges, rows, table.column_names)
    assert found.equals(table.take(pa.array(rows)))


def test_fixtures_have_statistics_of_each_type() -> None:
    kinds = set()
    for path in PARQUET:
        if "/bucket_key_" in str(path) or "nested" in str(path) or "append" in str(path):
            schema = pq.read_schema(path)
            mins, _, _ = footer_stats(Source(path.read_bytes()).footer(), fields_of(schema))
            kinds |= {str(f.type).split("(")[0] for f, low in zip(schema, mins) if low is not None}
    assert {"int8", "int32", "int64", "string", "decimal128", "date32[day]", "bool", "timestamp[us]"} <= kinds


def types_table() -> pa.Table:
    moment = datetime.datetime(1969, 5, 6, 7, 8, 9, 123000)
    return pa.table(
        {
            "i8": pa.array([-3, 5, None], pa.int8()),
            "i64": pa.array([-(1 << 40), 5, None]),
            "d9": pa.array([Decimal("-1.25"), Decimal("7.00"), None], pa.decimal128(9, 2)),
            "d38": pa.array([Decimal("-1.25"), Decimal(10) ** 30, None], pa.decimal128(38, 2)),
            "s": pa.array(["a", "zürich", None]),
            "b": pa.array([b"\x00", b"\xff", None]),
            "dt": pa.array([EPOCH, None, datetime.date(1950, 1, 1)]),
            "ms": pa.array([moment, None, moment], pa.timestamp("ms")),
            "us": pa.array([moment, None, moment], pa.timestamp("us", "UTC")),
            "bool": pa.array([True, False, None]),
            "nulls": pa.array([None, None, None], pa.string()),
        }
    )


@pytest.mark.parametrize("as_integer", [False, True])
def test_types_written_by_pyarrow(as_integer: bool) -> None:
    table = types_table()
    assert check_file(parquet(table, store_decimal_as_integer=as_integer, row_group_size=2), table) == 10


def test_types_written_by_polars_and_duckdb(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    table = types_table().drop_columns(["nulls"])
    table = pa.concat_tables([table] * 4000)
    path = str(tmp_path / "f.parquet")
    for number in range(2):
        if number:
            duckdb.from_arrow(table).write_parquet(path)
        else:
            polars.from_arrow(table).write_parquet(path, row_group_size=5000, data_page_size=2000)
        source = Source(Path(path).read_bytes())
        whole = pq.ParquetFile(path).read()
        assert check_file(source.data, whole) >= 6
        rows = np.array([1, 17, 6000, 11_999])
        found, _ = read_rows(source.footer(), source.fetch_ranges, rows, whole.column_names[::-1])
        assert found.equals(whole.select(whole.column_names[::-1]).take(pa.array(rows)))


@pytest.mark.spark
def test_types_written_by_spark(spark: Any, tmp_path: Path) -> None:
    table = types_table().drop_columns(["i8"])
    path = tmp_path / "out"
    frame = spark.createDataFrame(table).coalesce(1)
    for kind, known in (("TIMESTAMP_MICROS", 9), ("INT96", 7)):
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        frame.write.mode("overwrite").parquet(str(path))
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
        file = next(path.glob("*.parquet"))
        whole = pq.ParquetFile(file).read()
        source = Source(file.read_bytes())
        assert check_file(source.data, whole) >= known
        found, _ = read_rows(source.footer(), source.fetch_ranges, np.array([1, 2]), whole.column_names)
        assert found.equals(whole.slice(1))
    check_spark_reads_ours(spark, table, tmp_path / "ours.parquet")


def check_spark_reads_ours(spark: Any, table: pa.Table, path: Path) -> None:
    """The other way: a file of ours, nested columns and INT96 included, as Spark reads it."""
    kind = pa.struct([("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int32()))])
    table = table.append_column("n", pa.array([{"l": [1, None], "m": [("k", 2)]}, None, {"l": None, "m": []}], kind))
    for unit in ("us", "ns"):
        made = table.append_column("extra", table.column("us").cast(pa.timestamp(unit, "UTC")))
        with path.open("wb") as f:
            writer = ParquetWriter(f, fields_of(made.schema), page_rows=1)
            writer.write(made)
            writer.close()
        expected = made.set_column(made.num_columns - 1, "extra", made.column("us"))
        found = spark.read.parquet(str(path)).toArrow()
        for name in expected.column_names:
            assert found.column(name).cast(expected.column(name).type).equals(expected.column(name)), (unit, name)


def one(column: pa.Array, kind: str, **options: Any) -> tuple[Any, Any, int | None]:
    footer = Source(parquet(pa.table({"x": column}), **options)).footer()
    mins, maxs, nulls = footer_stats(footer, [DataField(0, "x", parse_type(kind))])
    return mins[0], maxs[0], nulls[0]


def test_nan_is_greater_than_what_arrow_calls_the_maximum() -> None:
    column = pa.array([1.0, math.nan, 3.0])
    assert one(column, "DOUBLE") == (None, None, 0)
    footer = Source(parquet(pa.table({"x": column}))).footer()
    fields = [DataField(0, "x", parse_type("DOUBLE"))]
    assert footer_stats(footer, fields, nan_columns={"x"})[1] == [None]
    assert footer_stats(footer, fields, nan_columns=())[1] == [3.0]


def test_truncated_bounds_are_unknown() -> None:
    import bitlake.formats.parquet.footer as stats

    raw = {stats.MIN_VALUE: b"a", stats.MAX_VALUE: b"c"}
    assert stats._raw_bounds(raw, True, 6) == (b"a", b"c")
    assert stats._raw_bounds(raw, False, 6) is None
    assert stats._raw_bounds(raw | {stats.MAX_EXACT: False}, True, 6) is None
    old = {stats.MIN: b"a", stats.MAX: b"c"}
    assert stats._raw_bounds(old, True, 6) is None and stats._raw_bounds(old, True, 1) == (b"a", b"c")


def test_columns_that_do_not_go_together_have_no_bounds() -> None:
    assert one(pa.array([1, 2]), "STRING") == (None, None, 0)
    assert one(pa.array([1, 2], pa.uint64()), "BIGINT") == (None, None, 0)
    assert one(pa.array([Decimal("1.5")], pa.decimal128(9, 1)), "DECIMAL(9, 2)") == (None, None, 0)
    assert one(pa.array([1500], pa.timestamp("us")), "TIMESTAMP(3)") == (None, None, 0)
    assert one(pa.array([2000], pa.timestamp("us")), "TIMESTAMP(3)") == (2, 2, 0)
    assert one(pa.array([2], pa.timestamp("ms")), "TIMESTAMP(6)") == (2000, 2000, 0)
    assert one(pa.array([1, None]), "BIGINT", write_statistics=False) == (None, None, None)


def test_a_column_the_file_lacks_is_all_null() -> None:
    footer = Source(parquet(pa.table({"x": [1, 2]}))).footer()
    assert footer_stats(footer, [DataField(0, "y", parse_type("INT"))]) == ([None], [None], [2])
