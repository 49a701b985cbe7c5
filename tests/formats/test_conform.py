from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bitlake.errors import InvalidRequest
from bitlake.formats.conform import cast_column, conform, null_column
from bitlake.types import DataField, arrow_schema, parse_type

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


def test_text_is_not_parsed() -> None:
    with pytest.raises(pa.ArrowNotImplementedError):
        cast_column(pa.array(["1"]).dictionary_encode(), pa.int64())


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


VIEWS = pa.ListViewArray.from_arrays(
    pa.array([4, 2, 0, 3], pa.int32()),
    pa.array([1, 2, 9, 0], pa.int32()),
    pa.array(range(9), pa.int8()),
    mask=pa.array([False, False, True, False]),
)
LARGE_VIEWS = pa.LargeListViewArray.from_arrays([4, 2, 0, 3], [1, 2, 9, 0], VIEWS.values, mask=VIEWS.is_null())
ITEMS = [[4], [2, 3], None, []]


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
