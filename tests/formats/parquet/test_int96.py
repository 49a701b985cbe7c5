"""INT96 timestamps that nanoseconds in 64 bits do not represent; Paimon (Java) writes TIMESTAMP(7) to (9) so."""

from __future__ import annotations

import contextlib
import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from bitlake.errors import UnsupportedFeature
from bitlake.formats.parquet.decode import read_columns
from tests.formats.parquet_files import Source, parquet, read_rows

ROWS = 3_000
FAR, NEAR = dt.datetime(9999, 12, 31), dt.datetime(2262, 4, 11, 23, 47, 16, 854_775)
FIRST = dt.datetime(1677, 9, 21, 0, 12, 43, 145_225)


def file_of(value: dt.datetime, at: int) -> bytes:
    """A file of small pages in which row ``at`` of three columns holds a time."""
    times = [dt.datetime(2024, 1, 1, 0, 0, 0, i) for i in range(ROWS)]
    times[at] = value
    flat = pa.array(times, pa.timestamp("us"))
    table = pa.table(
        {
            "id": np.arange(ROWS),
            "flat": flat,
            "list": pa.ListArray.from_arrays(np.arange(ROWS + 1, dtype=np.int32), flat),
            "struct": pa.StructArray.from_arrays([flat], ["at"]),
        }
    )
    return parquet(
        table, use_deprecated_int96_timestamps=True, row_group_size=1_000, max_rows_per_page=50, write_batch_size=50
    )


def read_at(data: bytes, rows: list[int], columns: list[str]) -> pa.Table:
    """Rows by their pages."""
    source = Source(data)
    return read_rows(source.footer(), source.fetch_ranges, np.array(rows), columns)[0]


@pytest.mark.parametrize("column", ["flat", "list", "struct"])
@pytest.mark.parametrize("value", [FAR, dt.datetime(1600, 1, 1), NEAR + dt.timedelta(microseconds=1)])
def test_a_time_beyond_nanoseconds_is_refused(column: str, value: dt.datetime) -> None:
    """It was read as another time: 9999-12-31 as a day of 1816."""
    data = file_of(value, 2_500)
    message = f"column '{column}' holds {value:%Y-%m-%dT%H:%M:%S}.*, outside the range of nanoseconds in 64 bits"
    with pytest.raises(UnsupportedFeature, match=message):
        list(read_columns(pa.BufferReader(data), ["id", column]))
    assert sum(b.num_rows for b in read_columns(pa.BufferReader(data), ["id", column], row_groups=[0, 1])) == 2_000
    assert sum(b.num_rows for b in read_columns(pa.BufferReader(data), ["id"])) == ROWS
    with pytest.raises(UnsupportedFeature, match=message):
        read_at(data, [5, 1_200, 2_500], ["id", column])
    assert read_at(data, [5, 1_200], ["id", column]).num_rows == 2


@pytest.mark.parametrize("value", [NEAR, FIRST])
def test_the_first_and_the_last_time_that_fit(value: dt.datetime) -> None:
    data = file_of(value, 7)
    whole = pa.Table.from_batches(read_columns(pa.BufferReader(data)))
    wanted = (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) * 1000
    assert whole["flat"].cast(pa.int64())[7].as_py() == wanted
    assert read_at(data, [7, 8], ["flat"])["flat"].cast(pa.int64())[0].as_py() == wanted


def test_files_with_dictionaries_of_several_row_groups() -> None:
    """Their batches end at row groups, and those of the times alone do not: building an index failed."""
    for value, fails in ((NEAR, False), (FAR, True)):
        times = [dt.datetime(2024, 1, 1)] * (ROWS - 1) + [value]
        table = pa.table({"at": pa.array(times, pa.timestamp("us")), "text": [f"{i % 7}" for i in range(ROWS)]})
        data = parquet(table, use_deprecated_int96_timestamps=True, row_group_size=1_001)
        batches = read_columns(pa.BufferReader(data), read_dictionary=["text"], batch_size=1_500)
        with pytest.raises(UnsupportedFeature, match="9999") if fails else contextlib.nullcontext():
            assert sum(b.num_rows for b in batches) == ROWS


@pytest.mark.parametrize("kind", [pa.large_list(pa.timestamp("us")), pa.list_(pa.timestamp("us"), 1)])
def test_lists_of_other_kinds(kind: pa.DataType) -> None:
    """A file that pandas or Polars wrote names the kind of its lists; only one kind was checked."""
    for value, fails in ((NEAR, False), (FAR, True)):
        data = parquet(pa.table({"at": pa.array([[value]], kind)}), use_deprecated_int96_timestamps=True)
        with pytest.raises(UnsupportedFeature, match="9999") if fails else contextlib.nullcontext():
            assert sum(b.num_rows for b in read_columns(pa.BufferReader(data))) == 1
