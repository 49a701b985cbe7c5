from __future__ import annotations

import datetime
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from bitlake.errors import CorruptError, NotFound
from bitlake.formats.avro import read_columns
from tests.fixtures import warehouse

FILES = sorted((warehouse() / "default.db" / "pk_avro").rglob("data-*.avro"))


def test_files_of_paimon() -> None:
    assert FILES
    for path in FILES:
        table = pa.Table.from_batches(read_columns(str(path), ["amount", "order_id", "order_date"], batch_size=100))
        with path.open("rb") as f:
            records: list[Any] = list(fastavro.reader(f))
        assert table.to_pylist() == [{n: r[n] for n in table.column_names} for r in records]
        assert table.schema.types == [pa.decimal128(10, 2), pa.int64(), pa.date32()]


def nullable(kind: Any) -> list[Any]:
    return ["null", kind]


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


ENTRY = {"type": "record", "name": "e", "fields": [field("key", "int"), field("value", nullable("string"))]}
ROW = {"type": "record", "name": "r", "fields": [field("x", "int"), field("m", {"type": "map", "values": "long"})]}
SCHEMA = {
    "type": "record",
    "name": "t",
    "fields": [
        field("b", "boolean"),
        field("ts", nullable({"type": "long", "logicalType": "timestamp-micros"})),
        field("lz", nullable({"type": "long", "logicalType": "local-timestamp-millis"})),
        field("tm", nullable({"type": "int", "logicalType": "time-millis"})),
        field("d", nullable({"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 3})),
        field("l", nullable({"type": "array", "items": nullable("int")})),
        field("m", nullable({"type": "array", "logicalType": "map", "items": ENTRY})),
        field("r", nullable(ROW)),
        field("by", nullable("bytes")),
    ],
}
UTC = datetime.UTC
MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5, 678000)
FULL = {
    "b": True, "ts": MOMENT.replace(tzinfo=UTC), "lz": MOMENT, "tm": datetime.time(1, 2, 3), "d": Decimal("-1.250"),
    "l": [1, None], "m": [{"key": 1, "value": "x"}, {"key": 2, "value": None}], "r": {"x": 5, "m": {"k": 9}},
    "by": b"z",
}  # fmt: skip


def data(codec: str = "null") -> bytes:
    out = io.BytesIO()
    nothing = dict.fromkeys(FULL) | {"b": False}
    fastavro.writer(out, SCHEMA, [FULL, nothing], codec=codec)
    return out.getvalue()


def test_types_and_the_swapped_timestamps() -> None:
    table = pa.Table.from_batches(read_columns(io.BytesIO(data())))
    assert table.schema.field("ts").type == pa.timestamp("us") and not table.schema.field("b").nullable
    assert table.schema.field("lz").type == pa.timestamp("ms", "UTC")
    full = table.to_pylist()[0]
    assert full["ts"] == MOMENT and full["lz"] == MOMENT.replace(tzinfo=UTC)
    assert full["m"] == [(1, "x"), (2, None)] and full["r"] == {"x": 5, "m": [("k", 9)]}
    assert {n: full[n] for n in ("tm", "d", "l", "by")} == {n: FULL[n] for n in ("tm", "d", "l", "by")}
    assert table.to_pylist()[1] == dict.fromkeys(FULL) | {"b": False}
    assert [b.num_rows for b in read_columns(io.BytesIO(data()), [], batch_size=1)] == [1, 1]


def test_errors_are_ours(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        list(read_columns(str(tmp_path / "none.avro")))
    with pytest.raises(NotFound, match="'zz'"):
        list(read_columns(io.BytesIO(data()), ["zz"]))
    good = data("deflate")
    for broken in (b"", good[:20], good[:-30], good[: len(good) - 60] + bytes(20) + good[len(good) - 40 :]):
        with pytest.raises(CorruptError):
            list(read_columns(io.BytesIO(broken)))


def test_a_column_named_twice_is_damage() -> None:
    """Found by fuzzing: Arrow's schema cannot tell two columns of one name apart."""
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "a", "type": ["null", "int"]}, {"name": "b", "type": ["null", "int"]}],
    }
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [{"a": 1, "b": 2}])
    twice = sink.getvalue().replace(b'"name": "b"', b'"name": "a"')
    assert twice != sink.getvalue()
    with pytest.raises(CorruptError):
        list(read_columns(pa.BufferReader(twice)))
