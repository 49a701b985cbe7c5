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
