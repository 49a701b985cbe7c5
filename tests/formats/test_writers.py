from __future__ import annotations

import datetime
import io
import itertools
import json
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as arrow_orc
import pytest

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.formats import avro, orc
from bitlake.formats.avro import avro_schema
from bitlake.formats.file_format import check_format, open_writer
from bitlake.metadata.schema import assign_ids
from bitlake.metadata.stats import TableBounds
from bitlake.types import AtomicType, DataField, DataType, MapType, MultisetType, Root, RowType, arrow_schema
from bitlake.types.arrow import from_arrow
from tests.builders import EVERY_TYPE, every_type
from tests.fixtures import warehouse

READERS = {"orc": orc, "avro": avro}


def fields_of(schema: pa.Schema) -> tuple[DataField, ...]:
    return tuple(assign_ids([(f.name, from_arrow(f.type, f.nullable), None) for f in schema])[0])


def file_of(file_format: str, fields: Any, *tables: pa.Table, **options: Any) -> tuple[bytes, Any]:
    out = io.BytesIO()
    settings = {"compression": "zstd", "level": 1, "group_bytes": 1 << 20} | options
    writer = open_writer(file_format, out, fields, **settings)
    for table in tables:
        writer.write(table)
    made = writer.close()
    assert made.size == len(out.getvalue()) and made.row_count == sum(t.num_rows for t in tables)
    return out.getvalue(), made


def small() -> pa.Table:
    """The shared rows, without the moments that an ORC file cannot hold."""
    moments = {"c_ts", "c_ntz", "c_ts3"}
    rows = every_type()
    at = datetime.datetime(2024, 2, 29, 1, 2, 3, 456000)
    for name in moments:
        i = rows.column_names.index(name)
        kind = rows.schema.field(i).type
        values = [None if v is None else at.replace(tzinfo=datetime.UTC if kind.tz else None) for v in rows[name]]
        rows = rows.set_column(i, rows.schema.field(i), pa.array(values, kind))
    return rows


@pytest.mark.parametrize("file_format", ["orc", "avro"])
@pytest.mark.parametrize("compression", ["zstd", "gzip", "none"])
def test_every_type_comes_back(file_format: str, compression: str) -> None:
    fields = fields_of(EVERY_TYPE)
    rows = small()
    data, made = file_of(file_format, fields, rows, rows, compression=compression)
    got = pa.Table.from_batches(READERS[file_format].read_columns(pa.BufferReader(data)))
    assert str(got.cast(EVERY_TYPE).to_pylist()) == str(pa.concat_tables([rows, rows]).to_pylist())  # NaN is not NaN
    assert made.null_counts[EVERY_TYPE.get_field_index("c_int")] == 2 * rows["c_int"].null_count
    empty, made = file_of(file_format, fields)
    assert made.row_count == 0
    assert sum(b.num_rows for b in READERS[file_format].read_columns(pa.BufferReader(empty))) == 0


def test_orc_carries_field_ids_everywhere() -> None:
    fields = fields_of(EVERY_TYPE)
    data, _ = file_of("orc", fields, small())
    schema = arrow_orc.ORCFile(pa.BufferReader(data)).schema
    assert [f.metadata[b"paimon.id"].decode() for f in schema] == [str(f.id) for f in fields]
    parquet = arrow_schema(fields, ids=True)
    member = parquet.field("c_row").type.field("y").metadata[b"PARQUET:field_id"]
    assert schema.field("c_row").type.field("y").metadata[b"paimon.id"] == member
    element = parquet.field("c_array").type.value_field.metadata[b"PARQUET:field_id"]
    assert schema.field("c_array").type.value_field.metadata[b"paimon.id"] == element


def test_the_avro_schema_is_paimons() -> None:
    path = next((warehouse() / "default.db" / "pk_avro").rglob("data-*.avro"))
    with path.open("rb") as f:
        theirs = json.loads(fastavro.reader(f).metadata["avro.schema"])
    made = [
        DataField(0, "order_id", AtomicType(Root.BIGINT, nullable=False)),
        DataField(1, "user_id", AtomicType(Root.BIGINT)),
        DataField(2, "status", AtomicType(Root.VARCHAR, length=2147483647)),
        DataField(3, "region", AtomicType(Root.VARCHAR, length=2147483647)),
        DataField(4, "amount", AtomicType(Root.DECIMAL, precision=10, scale=2)),
        DataField(5, "order_date", AtomicType(Root.DATE)),
    ]
    ours = avro_schema(made)
    assert ours["fields"] == theirs["fields"][3:]
    assert ours["name"] == f"{theirs['namespace']}.{theirs['name']}"


def test_avro_of_maps_rows_and_multisets() -> None:
    text, number = AtomicType(Root.VARCHAR, length=9), AtomicType(Root.INT)
    row = RowType((DataField(5, "x", MapType(number, text)),))
    types: list[DataType] = [MapType(text, row), MultisetType(text), MultisetType(number)]
    ours = avro_schema([DataField(i, f"c{i}", t) for i, t in enumerate(types)])
    record = "org.apache.paimon.avro.generated.record"
    first, second, third = (f["type"][1] for f in ours["fields"])
    assert first["type"] == "map" and first["values"][1]["name"] == f"{record}_c0"
    entry = first["values"][1]["fields"][0]["type"][1]
    assert entry["logicalType"] == "map" and entry["items"]["name"] == f"{record}_c0_x"
    assert second == {"type": "map", "values": ["null", "int"]}
    assert [f["name"] for f in third["items"]["fields"]] == ["key", "value"]


@pytest.mark.parametrize("value", [-1, -1_000_001, 10**16, -(10**16)])
def test_moments_that_orc_would_lose_are_refused(value: int) -> None:
    schema = pa.schema([("at", pa.timestamp("us"))])
    deep = pa.schema([("l", pa.list_(pa.struct([("at", pa.timestamp("us"))])))])
    for table in (
        pa.table([pa.array([5, value], pa.timestamp("us"))], schema=schema),
        pa.table([pa.array([[{"at": value}]], deep.field(0).type)], schema=deep),
    ):
        with pytest.raises(InvalidRequest, match="timestamp"):
            file_of("orc", fields_of(table.schema), table)
    data, _ = file_of("avro", fields_of(schema), pa.table([pa.array([5], pa.timestamp("us"))], schema=schema))
    assert data


def test_what_a_format_cannot_hold() -> None:
    with pytest.raises(UnsupportedFeature, match="'a b'"):
        check_format("avro", [DataField(0, "a b", AtomicType(Root.INT))])
    with pytest.raises(UnsupportedFeature, match="up to 6"):
        check_format("avro", [DataField(0, "a", AtomicType(Root.TIMESTAMP, precision=9))])
    with pytest.raises(UnsupportedFeature, match="'v'"):
        check_format("orc", [DataField(0, "v", MapType(AtomicType(Root.INT), AtomicType(Root.VARIANT)))])
    with pytest.raises(UnsupportedFeature, match="csv"):
        check_format("csv", [])
    for file_format in ("orc", "avro"):
        with pytest.raises(InvalidRequest, match="'lzo'"):
            file_of(file_format, fields_of(pa.schema([("a", pa.int32())])), compression="lzo")


def test_bounds_over_several_batches() -> None:
    schema = pa.schema([("i", pa.int32()), ("f", pa.float64()), ("z", pa.float64()), ("s", pa.string())])
    bounds = TableBounds(fields_of(schema))
    bounds.add(pa.table([[1, None], [1.0, 2.0], [0.0, None], ["é", "a"]], schema=schema))
    bounds.add(pa.table([[None, None], [float("nan"), 3.0], [-0.0, 0.0], ["z", None]], schema=schema))
    mins, maxs, nulls = bounds.result()
    assert (mins, nulls) == ((1, None, 0.0, "a"), (3, 0, 1, 1))
    assert maxs == (1, None, 0.0, "é") and str(mins[2]) == "-0.0" and str(maxs[2]) == "0.0"


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_structs_with_null_come_back_from_slices(file_format: str) -> None:
    """Bug: Arrow's ORC writer stored members of other rows for slices of structs, and for NULL structs in structs."""
    inner = pa.struct([("x", pa.int64()), ("t", pa.string())])
    wrapped = pa.struct([("s", inner)])
    value = {"x": 1, "t": "a"}
    values = [{"s": None}, {"s": value}, {"s": {"x": None, "t": "b"}}, None, {"s": value | {"x": 2}}, {"s": None}]
    columns = {
        "plain": pa.array([None if v is None else v["s"] for v in values], inner),
        "wrapped": pa.array(values, wrapped),
        "full": pa.array([v or {"s": None} for v in values], wrapped),
        "listed": pa.array([[v, None] if i % 3 else None for i, v in enumerate(values)], pa.list_(wrapped)),
        "mapped": pa.array(
            [[("k", v)] if i % 3 else None for i, v in enumerate(values)], pa.map_(pa.string(), wrapped)
        ),
    }
    rows = pa.concat_tables([pa.table(columns)] * 5).combine_chunks()
    starts = [0, 1, 4, 9, 10, 29]
    slices = [rows.slice(a, b - a) for a, b in itertools.pairwise([*starts, rows.num_rows])]
    data, _ = file_of(file_format, fields_of(rows.schema), *slices)
    found = pa.Table.from_batches(READERS[file_format].read_columns(pa.BufferReader(data)))
    for name in rows.column_names:
        assert found[name].to_pylist() == rows[name].to_pylist(), name
