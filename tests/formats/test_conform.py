from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bitlake
from bitlake.errors import InvalidRequest
from bitlake.formats.conform import cast_column, conform, in_pieces, null_column, nulls_inside, take_rows
from bitlake.schema.evolution import type_of
from bitlake.types import DataField, arrow_schema, parse_type
from bitlake.types.datatypes import type_from_json

FIELDS = [DataField(0, "a", parse_type("INT NOT NULL")), DataField(1, "t", parse_type("TIMESTAMP(3)"))]
SCHEMA = arrow_schema(FIELDS, ids=True)


def test_a_batch_that_fits_is_not_copied() -> None:
    batch = pa.RecordBatch.from_pydict({"a": pa.array([1], pa.int32()), "t": pa.array([5], pa.timestamp("ms"))})
    made = conform(batch, FIELDS, SCHEMA)
    assert made.schema.equals(SCHEMA, check_metadata=True)
    assert made.column("a").chunk(0).buffers()[1].address == batch.column("a").buffers()[1].address


def test_a_missing_nullable_column_is_null() -> None:
    made = conform(pa.table({"a": [1, 2]}), FIELDS, SCHEMA)
    assert made.column("t").null_count == 2 and made.column("a").type == pa.int32()


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(InvalidRequest, match="2 columns"):
        conform(twice, FIELDS, SCHEMA)


def test_timestamps_floor_also_before_the_epoch() -> None:
    made = cast_column(pa.chunked_array([[-1, 1999]], pa.timestamp("us")), pa.timestamp("ms"))
    assert made.cast(pa.int64()).to_pylist() == [-1, 1]


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint8(), pa.float32(), pa.float64()])
def test_numbers_that_are_booleans(kind: pa.DataType) -> None:
    """Bug: every number but 0 became TRUE, so that 0.1 in a BOOLEAN column was stored as TRUE."""
    numbers = pa.chunked_array([pa.array([0, 1, None], kind), pa.array([], kind)])
    assert cast_column(numbers, pa.bool_()).to_pylist() == [False, True, None]
    assert cast_column(numbers.slice(0, 0), pa.bool_()).to_pylist() == []
    with pytest.raises(pa.ArrowInvalid, match="0 and 1"):
        cast_column(pa.array([1, 2, None], kind), pa.bool_())


@pytest.mark.parametrize(
    ("given", "declared", "message"),
    [
        ([{"x": 1, "z": 2}], pa.struct([("x", pa.int32()), ("y", pa.string())]), "member 'z' is not among x, y"),
        ([[{"X": 1}], None], pa.list_(pa.struct([("x", pa.int32())])), "member 'X' is not among x"),
        ([None, {"b": 2}], pa.struct([("b", pa.bool_())]), "0 and 1"),
        ([[0, 1, 2], None], pa.list_(pa.bool_()), "0 and 1"),
        ([["1"]], pa.list_(pa.int32()), "text is not parsed"),
        ([[datetime(2024, 1, 1, 5)]], pa.list_(pa.date32()), "time of day"),
        (
            pa.array([[("a", 1e300)], None], pa.map_(pa.string(), pa.float64())),
            pa.map_(pa.string(), pa.float32()),
            "too large",
        ),
        ([1.5, 1e300], pa.float32(), "too large for float"),
        (pa.array([1.5, 1e300]).dictionary_encode(), pa.float32(), "too large for float"),
        (pa.array([1, 2]).dictionary_encode(), pa.bool_(), "only the numbers 0 and 1"),
        (
            pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]),
            pa.struct([("a", pa.int64())]),
            "two members have one name",
        ),
    ],
)
def test_nested_values_and_large_numbers_are_kept_or_refused(given: Any, declared: pa.DataType, message: str) -> None:
    """Bug: unknown members were dropped, [2] became [TRUE], ["1"] became [1], and 1e300 an infinite FLOAT."""
    field = DataField(0, "v", type_of(declared))
    with pytest.raises(InvalidRequest, match=message):
        conform(pa.table({"v": given}), [field], arrow_schema([field]))


def test_infinite_numbers_and_nested_booleans_fit() -> None:
    infinite = [0.1, None, float("inf"), float("-inf")]
    fields = [DataField(0, "f", parse_type("FLOAT")), DataField(1, "l", type_of(pa.list_(pa.bool_())))]
    rows = pa.table({"f": infinite, "l": [[1, 0], None, [], [None]]})
    made = conform(rows.slice(1), fields, arrow_schema(fields))
    assert made.to_pydict() == {"f": infinite[1:], "l": [None, [], [None]]}


def test_text_is_not_parsed() -> None:
    with pytest.raises(pa.ArrowNotImplementedError):
        cast_column(pa.array(["1"]).dictionary_encode(), pa.int64())


def fitted(column: pa.Array, kind: Any) -> pa.ChunkedArray:
    fields = [DataField(0, "v", type_from_json(kind))]
    return conform(pa.table({"v": column}), fields, arrow_schema(fields)).column("v")


NOON = datetime(2024, 1, 2, 12)
INSIDE = {"type": "ROW", "fields": [{"id": 2, "name": "y", "type": "BIGINT"}]}
ROWS = {"type": "ROW", "fields": [{"id": 1, "name": "x", "type": INSIDE}]}
OTHERS: list[tuple[pa.Array, Any, str]] = [
    (pa.array([1_700_000_000]), "TIMESTAMP(6)", "unit is not known"),
    (pa.array([1_700_000_000]), "TIMESTAMP(6) WITH LOCAL TIME ZONE", "unit is not known"),
    (pa.array([19_000], pa.int32()), "DATE", "unit is not known"),
    (pa.array([1], pa.int32()), "TIME", "unit is not known"),
    (pa.array([date(2024, 1, 2)]), "INT", "not taken as a number"),
    (pa.array([NOON], pa.timestamp("us", "UTC")), "BIGINT", "not taken as a number"),
    (pa.array([NOON.time()]), "BIGINT", "not taken as a number"),
    (pa.array([NOON]), "TIME", "the day would be lost"),
    (pa.array([timedelta(1)]), "BIGINT", "duration"),
    (pa.array([timedelta(1)]), "STRING", "duration"),
    (pa.array([b"12"]), "INT", "not parsed"),
    (pa.array([b"12"], pa.binary(2)), "DECIMAL(5, 2)", "not parsed"),
    (pa.array([b"1"]), "BOOLEAN", "not parsed"),
    (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16))), "STRING", "a UUID"),
    (pa.array([[1, 2]]), {"type": "ARRAY", "element": "TIMESTAMP(3)"}, "unit is not known"),
    (
        pa.array([[("k", NOON)]], pa.map_(pa.string(), pa.timestamp("s"))),
        {"type": "MAP", "key": "STRING", "value": "BIGINT"},
        "a number",
    ),
    (pa.array([{"x": {"y": NOON}}]), ROWS, "a number"),
    (pa.array([5]).dictionary_encode(), "TIMESTAMP(3)", "unit is not known"),
    (pa.array([datetime(2024, 1, 2), None, NOON]), "DATE", "time of day"),
]


@pytest.mark.parametrize(("column", "kind", "why"), OTHERS, ids=lambda v: str(getattr(v, "type", v)))
def test_values_that_would_get_another_meaning_are_refused(column: pa.Array, kind: Any, why: str) -> None:
    # Arrow casts them: seconds since the epoch, appended to a TIMESTAMP column, became microseconds of 1970.
    with pytest.raises(InvalidRequest, match=f"column 'v' is .*{why}"):
        fitted(column, kind)


@pytest.mark.parametrize(
    ("column", "kind", "expected"),
    [
        (pa.array([7, None]), "INT", [7, None]),
        (pa.array([2.0]), "BIGINT", [2]),
        (pa.array([True, False]), "INT", [1, 0]),
        (pa.array([Decimal("1.20")]), "DOUBLE", [1.2]),
        (pa.array([datetime(2024, 1, 2), None]), "DATE", [date(2024, 1, 2), None]),
        (pa.array([], pa.timestamp("ns")), "DATE", []),
        (pa.array([None], pa.null()), "TIMESTAMP(3)", [None]),
        (pa.array([date(2024, 1, 2)]), "TIMESTAMP(3)", [datetime(2024, 1, 2)]),
        (pa.array([b"ab"]), "STRING", ["ab"]),
    ],
    ids=lambda v: str(getattr(v, "type", v)),
)
def test_values_that_fit(column: pa.Array, kind: str, expected: list[Any]) -> None:
    assert fitted(column, kind).to_pylist() == expected


def test_a_day_is_that_of_the_timestamps_own_zone() -> None:
    # 23:00 in UTC is midnight in Berlin.
    berlin = pa.array([datetime(2024, 1, 1, 23)], pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "Europe/Berlin"))
    assert fitted(berlin, "DATE").to_pylist() == [date(2024, 1, 2)]
    with pytest.raises(InvalidRequest, match="time of day"):
        fitted(berlin.cast(pa.timestamp("us", "UTC")), "DATE")


def test_null_structs_with_members_that_are_not_null_can_be_written() -> None:
    """pa.nulls() makes the members NULL too, and Arrow's Parquet writer refused rows that lack such a column."""
    inner = pa.struct([pa.field("z", pa.string(), False)])
    kind = pa.struct([pa.field("x", pa.int32(), False), pa.field("y", inner, False)])
    column = null_column(3, kind)
    assert (len(column), column.null_count, column.type) == (3, 3, kind)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"s": column}), sink)
    assert pq.read_table(pa.BufferReader(sink.getvalue()))["s"].null_count == 3
    assert null_column(2, pa.int32()).equals(pa.nulls(2, pa.int32()))


def test_members_of_null_structs_are_null_where_they_may_be() -> None:
    inner = pa.struct([pa.field("z", pa.int32(), False), pa.field("n", pa.int32())])
    kind = pa.struct([("x", pa.int32()), ("y", inner), ("l", pa.list_(inner)), ("m", pa.map_(pa.string(), inner))])
    value = {"x": 1, "y": None, "l": [{"z": 1, "n": 2}, None], "m": [("k", None), ("l", {"z": 3, "n": None})]}
    given = pa.array([value, None, {"x": None, "y": {"z": 7, "n": 8}, "l": None, "m": []}], kind)
    made = nulls_inside(given)
    assert made.equals(given) and made.type == kind
    assert made.field("x").to_pylist() == [1, None, None]
    assert made.field("y").null_count == 2 and made.field("y").field("z").null_count == 0
    assert made.field("y").field("n").to_pylist() == [None, None, 8]
    assert made.field("l").values.field("n").to_pylist() == [2, None]
    assert made.field("m").items.field("n").to_pylist() == [None, None]
    added = null_column(2, kind)
    assert added.field("x").null_count == 2 and added.field("y").field("z").null_count == 0


VIEWS = pa.ListViewArray.from_arrays(
    pa.array([4, 2, 0, 3], pa.int32()),
    pa.array([1, 2, 9, 0], pa.int32()),
    pa.array(range(9), pa.int8()),
    mask=pa.array([False, False, True, False]),
)
LARGE_VIEWS = pa.LargeListViewArray.from_arrays([4, 2, 0, 3], [1, 2, 9, 0], VIEWS.values, mask=VIEWS.is_null())
ITEMS = [[4], [2, 3], None, []]


@pytest.mark.parametrize("column", [VIEWS, LARGE_VIEWS])
def test_tables_are_made_for_list_views(column: pa.Array, tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"))
    struct = pa.StructArray.from_arrays([column], ["v"])
    table = lake.create_table("t", pa.table({"v": column, "s": struct}))
    assert [str(f.type) for f in table.schema.fields] == ["ARRAY<TINYINT>", "ROW<`v` ARRAY<TINYINT>>"]
    assert table.to_arrow().to_pylist() == [{"v": v, "s": {"v": v}} for v in ITEMS]


@pytest.mark.parametrize("view", [pa.string_view(), pa.binary_view()])
def test_dictionaries_of_views(view: pa.DataType, tmp_path: Path) -> None:
    """Bug: they were refused with "Function 'binary_length' has no kernel matching input types (string_view)"."""
    codes = pa.array(["-", "a", None, "b", "a"]).cast(view).dictionary_encode().slice(1)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3, 4], pa.int32()), codes)
    table = bitlake.connect(str(tmp_path / "lake")).create_table("t", pa.table({"c": codes, "l": lists}))
    a, b = pa.array(["a", "b"]).cast(view).to_pylist()
    assert table.to_arrow().to_pydict() == {"c": [a, None, b, a], "l": [[a], [], [None, b], [a]]}


@pytest.mark.parametrize(
    "times",
    [
        pa.array([0, 1 << 62], pa.timestamp("s")),
        pa.array([None, -(1 << 31)], pa.date32()),
        pa.array([1 << 50], pa.timestamp("ms", "UTC")).dictionary_encode(),
        pa.array([1 << 62], pa.date64()),
        pa.array([[1 << 62]], pa.list_(pa.timestamp("ms"))),
    ],
    ids=["seconds", "days", "dictionary", "milliseconds of days", "list"],
)
def test_a_time_that_has_no_text_is_refused(times: pa.Array) -> None:
    """Bug: '<value out of range: 4611686018427387904>' was stored in STRING columns."""
    text: object = {"type": "ARRAY", "element": "STRING"} if pa.types.is_list(times.type) else "STRING"
    fields = [DataField(0, "c", type_from_json(text))]
    with pytest.raises(InvalidRequest, match="column 'c' .* out of the range"):
        conform(pa.table({"c": times}), fields, arrow_schema(fields))


def test_a_time_as_text() -> None:
    times = pa.array([0, None, 253402300799], pa.timestamp("s"))
    fields = [DataField(0, "c", parse_type("STRING"))]
    made = conform(pa.table({"c": times}), fields, arrow_schema(fields))
    assert made["c"].to_pylist() == ["1970-01-01 00:00:00", None, "9999-12-31 23:59:59"]


@pytest.mark.parametrize("column", [VIEWS, LARGE_VIEWS])
def test_slices_of_list_views_keep_their_values(column: pa.Array) -> None:
    """Bug: of a sliced list view, Arrow's cast to a list gave other values, or lists that ended the process."""
    kind = column.type
    struct = pa.StructArray.from_arrays([column], ["v"], mask=pa.array([False, False, False, True]))
    pairs = pa.MapArray.from_arrays(pa.array([0, 2, 3, 4], pa.int32()), pa.array(["a", "b", "c", "d"]), column)
    fixed = pa.FixedSizeListArray.from_arrays(column, type=pa.list_(kind, 2))
    views = pa.ListViewArray.from_arrays(pa.array([0, 1, 3], pa.int32()), pa.array([1, 2, 1], pa.int32()), column)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), column)
    inner = pa.list_(pa.int8())
    for array, target, expected in [
        (column, inner, ITEMS),
        (struct, pa.struct([("v", inner)]), [{"v": [4]}, {"v": [2, 3]}, {"v": None}, None]),
        (pairs, pa.map_(pa.string(), inner), [[("a", [4]), ("b", [2, 3])], [("c", None)], [("d", [])]]),
        (fixed, pa.list_(inner), [[[4], [2, 3]], [None, []]]),
        (views, pa.list_(inner), [[[4]], [[2, 3], None], [[]]]),
        (lists, pa.list_(inner), [[[4]], [[2, 3], None], [[]]]),
    ]:
        for start in range(len(expected) + 1):
            found = cast_column(pa.chunked_array([array.slice(start), array.slice(0, start)]), target)
            found.validate(full=True)
            assert found.type == target and found.to_pylist() == expected[start:] + expected[:start], (target, start)


TEXTS = [f"text {i:04} " * (i % 7) for i in range(200)]


def wide(kind: pa.DataType, texts: list[str]) -> tuple[pa.Array, pa.DataType, list[Any]]:
    """Texts as an array of a type that may address more than 32 bits, a table's type for it, and the values."""
    large = pa.array(texts, pa.large_string())
    ids = pa.array(range(len(texts)))
    if kind == "struct":
        made, target = pa.StructArray.from_arrays([large], ["t"]), pa.struct([("t", pa.string())])
    elif kind == "list":
        made, target = pa.LargeListArray.from_arrays(range(len(texts) + 1), large), pa.list_(pa.string())
    elif kind == "map":
        offsets = pa.array(range(len(texts) + 1), pa.int32())
        made, target = pa.MapArray.from_arrays(offsets, ids, large), pa.map_(pa.int64(), pa.string())
    elif kind == "list of views":
        views = large.cast(pa.string_view())
        made = pa.ListArray.from_arrays(pa.array(range(len(texts) + 1), pa.int32()), views)
        target = pa.list_(pa.string())
    elif kind == "dictionary":
        made, target = pa.array(texts).dictionary_encode(), pa.string()
    else:
        made, target = large.cast(kind), pa.binary() if "binary" in str(kind) else pa.string()
    return made, target, made.to_pylist()


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_string(),
        pa.string_view(),
        pa.large_binary(),
        pa.binary_view(),
        "struct",
        "list",
        "map",
        "list of views",
        "dictionary",
    ],
    ids=str,
)
def test_long_texts_are_cast_in_pieces(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: more than 2 GiB of a Polars frame's text could not be written, and Arrow makes invalid strings of views."""
    monkeypatch.setattr("bitlake.formats.conform._CHUNK_BYTES", 2000)
    array, target, expected = wide(kind, TEXTS)
    for start, length in [(0, 200), (57, 143), (199, 1), (10, 0)]:
        found = cast_column(pa.chunked_array([array.slice(start, length)]), target)
        found.validate(full=True)
        assert found.type == target and found.to_pylist() == expected[start : start + length]
        assert all(c.nbytes <= 2500 for c in found.chunks)
    assert cast_column(array, target).to_pylist() == expected


def test_a_slice_beyond_2_gib_is_cast() -> None:
    first = 1 << 31
    data = pa.py_buffer(np.zeros(first + 6, np.uint8))  # pages that are not touched take no memory
    offsets = pa.py_buffer(np.array([0, first, first + 2, first + 2, first + 6]))
    texts = pa.Array.from_buffers(pa.large_string(), 4, [None, offsets, data])
    assert cast_column(texts.slice(1), pa.string()).to_pylist() == ["\0\0", "", "\0" * 4]
    assert cast_column(pa.chunked_array([texts.slice(2)]), pa.string()).to_pylist() == ["", "\0" * 4]


def test_rows_are_cut_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitlake.formats.conform._CHUNK_BYTES", 2000)
    rows = pa.table({"t": pa.chunked_array([TEXTS[:50], TEXTS[50:]]), "i": range(200)})
    pieces = list(in_pieces(rows))
    assert len(pieces) > 3 and all(p.nbytes <= 2000 for p in pieces)
    assert pa.concat_tables(pieces).equals(rows)
    assert list(in_pieces(rows.slice(0, 1))) == [rows.slice(0, 1)]


def test_rows_are_gathered_however_much_text_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table(
        {"t": pa.chunked_array([TEXTS[:50], TEXTS[50:]]), "b": [t.encode() for t in TEXTS], "i": range(200)}
    )
    numbers = pa.array([199, 0, 0, 71, *range(100)])
    expected = rows.take(numbers)
    monkeypatch.setattr("bitlake.formats.conform._CHUNK_BYTES", 2000)
    taken = take_rows(rows, numbers)
    assert taken.schema == rows.schema and taken.equals(expected)
    assert taken["t"].num_chunks > 1, "each chunk is within what 32 bits address"
