from __future__ import annotations

import datetime
import gc
import io
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bitlake.errors import InvalidRequest
from bitlake.formats.parquet import write as write_module
from bitlake.formats.parquet.footer import read_footer
from bitlake.formats.parquet.page_index import load_pages
from bitlake.formats.parquet.write import ParquetWriter, WrittenFile, dictionary_columns
from bitlake.types import DataField, arrow_schema, parse_type, type_from_json


def fields(**types: str) -> list[DataField]:
    return [DataField(i, name, parse_type(text)) for i, (name, text) in enumerate(types.items())]


def write(columns: list[DataField], *batches: pa.Table, **options: int) -> tuple[bytes, WrittenFile]:
    out = io.BytesIO()
    writer = ParquetWriter(out, columns, **options)
    for batch in batches:
        writer.write(batch)
    done = writer.close()
    return out.getvalue(), done


ALL = fields(
    b="BOOLEAN", t="TINYINT", s="SMALLINT", i="INT", l="BIGINT NOT NULL", f="FLOAT", d="DOUBLE", d9="DECIMAL(9, 2)",
    d18="DECIMAL(18, 4)", d38="DECIMAL(38, 10)", c="CHAR(3)", v="STRING", bin="BINARY(2)", vb="BYTES", dt="DATE",
    tm="TIME(3)", ts3="TIMESTAMP(3)", ts6="TIMESTAMP(6)", lz3="TIMESTAMP(3) WITH LOCAL TIME ZONE",
    lz6="TIMESTAMP(6) WITH LOCAL TIME ZONE",
)  # fmt: skip
MOMENT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123000)
VALUES = dict(  # noqa: C408  (shorter without forty quotes)
    b=True, t=-5, s=300, i=70000, l=1 << 40, f=1.5, d=-2.25, d9=Decimal("12.34"), d18=Decimal("-5.4321"),
    d38=Decimal("1234567890123456789.5"), c="abc", v="ünï", bin=b"\x00\xff", vb=b"xyz", dt=datetime.date(2024, 5, 6),
    tm=datetime.time(1, 2, 3, 4000), ts3=MOMENT, ts6=MOMENT, lz3=MOMENT, lz6=MOMENT,
)  # fmt: skip


def all_types() -> pa.Table:
    rows = [VALUES, dict.fromkeys(VALUES) | {"l": 7}]
    return pa.Table.from_pylist(rows, schema=arrow_schema(ALL))


def test_every_type_reads_back_with_its_stats() -> None:
    data, done = write(ALL, all_types())
    back = pq.read_table(io.BytesIO(data))
    assert back.cast(arrow_schema(ALL)).equals(all_types())
    assert done.size == len(data) and done.row_count == 2
    millis = 1714979289123
    assert dict(zip((f.name for f in ALL), done.mins)) == VALUES | {
        "l": 7, "d9": 1234, "d18": -54321, "d38": 12345678901234567895000000000, "dt": 19849, "tm": 3723004,
        "ts3": millis, "ts6": millis * 1000, "lz3": millis, "lz6": millis * 1000,
    }  # fmt: skip
    assert done.null_counts == tuple(0 if f.name == "l" else 1 for f in ALL)


def test_the_layout_java_needs() -> None:
    data, _ = write(ALL, all_types())
    schema = pq.ParquetFile(io.BytesIO(data)).schema
    kinds = {schema.column(i).name: str(schema.column(i)) for i in range(len(ALL))}
    assert "INT32" in kinds["d9"] and "INT64" in kinds["d18"] and "FIXED_LEN_BYTE_ARRAY" in kinds["d38"]
    assert "timeUnit=milliseconds" in kinds["ts3"] and "isAdjustedToUTC=false" in kinds["ts3"]
    assert "timeUnit=microseconds" in kinds["lz6"] and "isAdjustedToUTC=true" in kinds["lz6"]
    assert "max_definition_level: 0" in kinds["l"]
    metadata = pq.read_metadata(io.BytesIO(data))
    assert metadata.metadata is None
    chunk = metadata.row_group(0).column(0)
    assert chunk.has_offset_index and chunk.has_column_index and chunk.compression == "ZSTD"
    found = pq.read_schema(io.BytesIO(data))
    assert [f.metadata[b"PARQUET:field_id"] for f in found] == [str(f.id).encode() for f in ALL]


def test_wide_decimals_have_no_dictionary() -> None:
    """Paimon (Java) 1.4 finds none of them in a dictionary (tests/interop/test_written_tables.py)."""
    columns = fields(narrow="DECIMAL(18, 2)", wide="DECIMAL(19, 2)")
    value = [Decimal("1.50")] * 1000
    data, _ = write(columns, pa.table({f.name: pa.array(value, pa.decimal128(19, 2)) for f in columns}))
    chunks = pq.read_metadata(io.BytesIO(data)).row_group(0)
    assert [chunks.column(i).has_dictionary_page for i in range(2)] == [True, False]


@pytest.mark.parametrize("rows", [0, 1, 1000, 32_769, 100_000])
def test_no_row_is_sampled_twice_for_dictionaries(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of 1,000 rows was counted as 16 parts that overlapped: half the time of appending to a wide table."""
    sampled: list[int] = []

    class Compute:
        @staticmethod
        def count_distinct(values: pa.ChunkedArray, mode: str) -> pa.Scalar:
            sampled.append(len(values))
            return pc.count_distinct(values, mode=mode)

    monkeypatch.setattr(write_module, "pc", Compute)
    table = pa.table({"few": np.arange(rows) % 7, "all": np.arange(rows)})
    coded = dictionary_columns(table, 8192)
    assert coded == (["few", "all"] if rows <= 1000 else ["few"])
    assert len(sampled) == 2 and max(sampled) <= min(rows, 17 * 2048)


def test_nanoseconds_are_int96_as_java_wants_them() -> None:
    columns = fields(a="TIMESTAMP(9)", b="TIMESTAMP(3)")
    table = pa.Table.from_pylist([{"a": MOMENT, "b": MOMENT}], schema=arrow_schema(columns))
    data, done = write(columns, table)
    assert {c.physical_type for c in pq.ParquetFile(io.BytesIO(data)).schema} == {"INT96"}
    assert pq.read_table(io.BytesIO(data)).cast(table.schema).equals(table)
    assert done.mins == (None, None)


def test_rows_are_cut_into_row_groups() -> None:
    columns = fields(a="INT", s="STRING")
    table = pa.table({"a": pa.array(range(1000), pa.int32()), "s": ["x" * 100] * 1000})
    data, done = write(columns, table.slice(0, 50), table.slice(50), row_group_rows=300)
    metadata = pq.read_metadata(io.BytesIO(data))
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [300, 300, 300, 100]
    assert (done.mins, done.maxs) == ((0, "x" * 100), (999, "x" * 100))
    data, _ = write(columns, table, row_group_bytes=20_000)
    metadata = pq.read_metadata(io.BytesIO(data))
    assert all(150 < metadata.row_group(i).num_rows < 250 for i in range(metadata.num_row_groups - 1))
    assert pq.read_table(io.BytesIO(data)).equals(table)


def test_an_empty_file_is_valid() -> None:
    data, done = write(fields(a="INT"))
    assert pq.read_table(io.BytesIO(data)).num_rows == 0
    assert done == WrittenFile(len(data), 0, (None,), (None,), (0,))


def test_a_column_with_nan_has_no_bounds_in_the_footer() -> None:
    """Paimon (Java) skipped row groups and pages with NaN by bounds that leave NaN out."""
    columns = fields(x="DOUBLE", y="FLOAT", z="INT")
    rows = pa.table({"x": [1.0, float("nan"), None], "y": [2.0, None, 3.0], "z": [1, 2, 3]})
    data, done = write(columns, rows)
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    found = [(group.column(i).is_stats_set, group.column(i).has_column_index) for i in range(3)]
    assert found == [(False, False), (True, True), (True, True)]
    assert (done.mins, done.maxs, done.null_counts) == ((None, 2.0, 1), (None, 3.0, 3), (1, 1, 0))
    assert pq.read_table(io.BytesIO(data)).column("z").to_pylist() == [1, 2, 3]


def test_nan_hides_the_bounds_of_its_column_only() -> None:
    table = pa.table({"x": [1.0, float("nan")], "y": [0.0, 2.0]})
    _, done = write(fields(x="DOUBLE", y="DOUBLE"), table)
    assert done.mins == (None, -0.0) and str(done.mins[1]) == "-0.0" and done.maxs == (None, 2.0)


def test_values_are_brought_to_the_columns_types() -> None:
    columns = fields(a="INT", d="DECIMAL(5, 1)", t="TIMESTAMP(3)", s="STRING")
    table = pa.table(
        {
            "s": pa.array(["p", "q", "p"]).dictionary_encode(),
            "t": pa.array([-1, 1999, None], pa.timestamp("us")),
            "d": pa.array([7, None, 9999], pa.int64()),
            "a": pa.array([1, 2, None], pa.int64()),
        }
    )
    data, _ = write(columns, table)
    back = pq.read_table(io.BytesIO(data))
    assert back.column("t").cast(pa.int64()).to_pylist() == [-1, 1, None]
    assert back.column("d").to_pylist() == [Decimal(7), None, Decimal(9999)]
    assert back.column("s").to_pylist() == ["p", "q", "p"] and back.column_names == ["a", "d", "t", "s"]


@pytest.mark.parametrize(
    ("kind", "values", "word"),
    [
        ("INT", pa.array([1 << 40]), "'x'"),
        ("INT NOT NULL", pa.array([1, None], pa.int32()), "NOT NULL"),
        ("DECIMAL(3, 1)", pa.array([Decimal("100.5")]), "'x'"),
        ("DECIMAL(3, 1)", pa.array([100]), "'x'"),
        ("TINYINT", pa.array([200]), "'x'"),
        ("INT", pa.array(["1"]), "'x'"),
        ("INT", pa.array([1.5]), "'x'"),
    ],
)
def test_what_does_not_fit_is_refused_by_column(kind: str, values: pa.Array, word: str) -> None:
    with pytest.raises(InvalidRequest, match=word):
        write(fields(x=kind), pa.table({"x": values}))


def test_unknown_and_missing_columns_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="'z'"):
        write(fields(x="INT"), pa.table({"z": [1]}))
    with pytest.raises(InvalidRequest, match="lacks column 'y'"):
        write(fields(x="INT", y="INT NOT NULL"), pa.table({"x": [1]}))


NESTED = type_from_json(
    {"type": "ROW", "fields": [
        {"id": 5, "name": "a", "type": "INT NOT NULL"},
        {"id": 6, "name": "m", "type": {"type": "MAP", "key": "STRING NOT NULL", "value": "INT"}},
        {"id": 7, "name": "l", "type": {"type": "ARRAY", "element": "INT NOT NULL"}},
    ]}
)  # fmt: skip


def test_nested_columns_and_their_not_null_members() -> None:
    columns = [DataField(0, "n", NESTED)]
    rows = [{"a": 1, "m": [("k", None)], "l": [1]}, None, {"a": 2, "m": None, "l": None}]
    good = pa.array(rows, arrow_schema(columns).field(0).type)
    data, done = write(columns, pa.table({"n": good}))
    assert pq.read_table(io.BytesIO(data)).column("n").to_pylist() == good.to_pylist()
    assert done.null_counts == (None,)
    for bad in ({"a": None}, {"a": 1, "l": [None]}):
        loose = pa.array([bad], pa.struct([("a", pa.int32()), ("l", pa.list_(pa.int32()))]))
        with pytest.raises(InvalidRequest, match="'n'"):
            write(columns, pa.table({"n": loose}))


def test_pages_end_at_their_bytes_as_well_as_at_their_rows() -> None:
    texts = pa.table({"x": [f"{i:064d}" for i in range(5_000)]})
    limited = _pages(texts, page_bytes=16 << 10, page_rows=1024)
    assert limited == [241] * 20 + [180]  # 68 bytes a value
    numbers = pa.table({"x": [str(i % 7) for i in range(5_000)]})
    narrow = _pages(numbers, page_bytes=16 << 10, page_rows=1024)
    assert narrow == [1024, 1024, 1024, 1024, 904]


def _pages(rows: pa.Table, **options: int) -> list[int]:
    """How many rows each page of a file of one column holds."""
    output = pa.BufferOutputStream()
    writer = ParquetWriter(output, fields(x="STRING"), **options)
    writer.write(rows)
    writer.close()
    data = output.getvalue().to_pybytes()
    footer = read_footer(lambda offset, length: data[offset : offset + length], len(data))
    load_pages(footer, lambda ranges: [data[o : o + n] for o, n in ranges], [(0, 0)])
    found: list[int] = np.diff(footer.cache.pages[0, 0].first_rows).tolist()
    return found


LISTS: dict[str, tuple[Any, Any]] = {
    "array": ({"type": "ARRAY", "element": "INT"}, []),
    "map": ({"type": "MAP", "key": "STRING", "value": "INT"}, []),
    "row": (
        {"type": "ROW", "fields": [{"id": 1, "name": "a", "type": {"type": "ARRAY", "element": "INT"}}]},
        {"a": []},
    ),
}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("count", [1, 2, 4097])
def test_lists_of_a_first_page_of_one_row(kind: str, count: int) -> None:
    """Arrow's writer began such a chunk with an empty page when pages were to end at a single byte."""
    described, empty = LISTS[kind]
    columns = [DataField(0, "x", type_from_json(described))]
    for value in (None, empty):
        table = pa.Table.from_pylist([{"x": value}] * count, schema=arrow_schema(columns))
        for page_rows in (1, 4096):
            data, _ = write(columns, table, page_rows=page_rows)
            assert pq.read_table(io.BytesIO(data)).column("x").to_pylist() == table.column("x").to_pylist()
            footer = read_footer(lambda offset, length, data=data: data[offset : offset + length], len(data))
            load_pages(footer, lambda ranges, data=data: [data[o : o + n] for o, n in ranges], [(0, 0)])
            assert np.diff(footer.cache.pages[0, 0].first_rows).min() > 0


@pytest.mark.filterwarnings("error")
def test_a_file_that_is_given_up_prints_no_error() -> None:
    """As by Ctrl-C, which closes the file before its writer."""
    sink = io.BytesIO()
    writer = ParquetWriter(sink, (DataField(0, "i", parse_type("INT")),), row_group_rows=2)
    writer.write(pa.table({"i": pa.array([1, 2, 3], pa.int32())}))
    sink.close()
    del writer
    gc.collect()
