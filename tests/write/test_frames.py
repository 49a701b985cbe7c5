"""Rows of every library are written as they are, on append, upsert, overwrite, write and create_table."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import bitlake
from bitlake.errors import AlreadyExists, InvalidRequest

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "s": ["a", None, "ü"],
        "x": [1.5, None, -0.0],
        "day": [dt.date(2024, 1, 2), None, dt.date(2024, 1, 3)],
        "ts": pa.array([dt.datetime(2024, 1, 2, 3, 4, 5, 6), None, dt.datetime(2024, 1, 2)], pa.timestamp("us")),
        "n": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(9, 2)),
    }
)


def _relation() -> Any:
    connection = duckdb.connect()
    connection.register("given", ROWS)
    return connection.sql("SELECT * FROM given")


class _ArrowArray:
    """A record batch of a library that offers the Arrow C array interface only."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        return ROWS.combine_chunks().to_batches()[0].__arrow_c_array__(requested_schema)


def _run_end_encoded() -> pa.Table:
    return pa.table({name: pc.run_end_encode(ROWS.column(name).combine_chunks()) for name in ROWS.column_names})


FRAMES: dict[str, Callable[[], Any]] = {
    "table": lambda: ROWS,
    "record batch": lambda: ROWS.to_batches()[0],
    "reader": ROWS.to_reader,
    "dataset": lambda: ds.dataset(ROWS),
    "scanner": lambda: ds.dataset(ROWS).scanner(),
    "batches": lambda: ROWS.to_batches(max_chunksize=1),
    "generator": lambda: (b for b in ROWS.to_batches(max_chunksize=2)),
    "tables": lambda: [ROWS.slice(0, 1), ROWS.slice(1)],
    "pandas": lambda: pd.DataFrame(ROWS.to_pylist(), index=[7, 8, 9]),
    "pandas of Arrow": lambda: ROWS.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda: pl.DataFrame(ROWS),
    "lazy polars": lambda: pl.DataFrame(ROWS).lazy(),
    "duckdb": _relation,
    "Arrow C array": _ArrowArray,
    "run-end encoded": _run_end_encoded,
    "run-end encoded batches": lambda: _run_end_encoded().to_batches(max_chunksize=2),
}


def _written(table: bitlake.Table) -> list[dict[str, Any]]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(tmp_path / "lake")


@pytest.mark.parametrize("kind", FRAMES)
def test_rows_of_each_kind(lake: bitlake.Lake, kind: str) -> None:
    make, expected = FRAMES[kind], ROWS.to_pylist()
    lake.create_table("appended", ROWS.schema).append(make())
    lake.create_table("keyed", ROWS.schema, primary_key=["id"], options={"bucket": "1"}).upsert(make())
    lake.create_table("filled", ROWS.schema).overwrite(make())
    for name in ("appended", "keyed", "filled"):
        assert _written(lake.table(name)) == expected, name
    lake.table("filled").overwrite(make())
    assert lake.table("filled").count() == 3
    if kind == "pandas":  # objects have no type of their own but what Arrow infers
        return
    assert _written(lake.create_table("created", make())) == expected
    assert lake.write(make(), "written") == 3 and lake.write(make(), "written") == 3
    assert lake.table("written").count() == 6
    assert lake.write(make(), "written", "overwrite") == 3 and _written(lake.table("written")) == expected
    for name in ("created", "written"):
        assert lake.table(name).schema.field_names == tuple(ROWS.column_names)


def test_write_modes(lake: bitlake.Lake) -> None:
    frame = pl.DataFrame({"id": [1, 2], "day": ["a", "b"]})
    options = {"file-index.bitmap.columns": "id"}
    assert lake.write(frame, "t", partition_by=["day"], options=options) == 2
    assert lake.table("t").schema.partition_keys == ("day",)
    assert lake.table("t").schema.options["file-index.bitmap.columns"] == "id"
    assert lake.write(frame, "t", "ignore") == 0 and lake.table("t").count() == 2
    with pytest.raises(AlreadyExists, match="use mode 'append' or 'overwrite'"):
        lake.write(frame, "t", "error")
    with pytest.raises(InvalidRequest, match="its partitioning and options are its own"):
        lake.write(frame, "t", partition_by=["day"])
    with pytest.raises(InvalidRequest, match="unknown mode 'replace'; expected append"):
        lake.write(frame, "t", "replace")
    assert lake.create_table("t", frame, if_not_exists=True).count() == 2


def test_pandas_without_surprises(lake: bitlake.Lake) -> None:
    frame = pd.DataFrame({"id": [1, 2], "s": pd.Categorical(["a", "b"]), "x": [1.0, np.nan]}).set_index("id")
    table = lake.create_table("t", frame.reset_index())
    assert table.to_arrow().to_pylist() == [{"id": 1, "s": "a", "x": 1.0}, {"id": 2, "s": "b", "x": None}]
    # Missing integers make pandas use floats; they are integers again in the table.
    table.append(pd.DataFrame({"id": [3.0, np.nan], "s": ["c", None], "x": [None, None]}))
    assert table.count("id = 3") == 1 and table.count("id IS NULL") == 1
    with pytest.raises(InvalidRequest, match="the data frame's values have no Arrow type: .*column mixed"):
        lake.create_table("u", pd.DataFrame({"mixed": [1, "a"]}))
    with pytest.raises(InvalidRequest, match="the data frame's values have no Arrow type: .*too large"):
        table.append(pd.DataFrame({"id": [2**70], "s": ["d"]}))  # an OverflowError
    with pytest.raises(InvalidRequest, match="more than one column 'id'"):
        table.append(pd.DataFrame([[1, 2]], columns=["id", "id"]))


def test_an_index_of_pandas_with_a_name_is_not_lost(lake: bitlake.Lake) -> None:
    """It may be the groups of a groupby(), or a key; without the error rows had NULL in a column of its name."""
    table = lake.create_table("t", pd.DataFrame({"id": [1, 2], "x": [1.0, 2.0]}, index=["no", "name"]))
    frame = pd.DataFrame({"id": [3], "x": [3.0]}).set_index("id")
    for write in (table.append, table.overwrite, lambda rows: lake.create_table("u", rows)):
        with pytest.raises(InvalidRequest, match=r"index 'id' .*reset_index\(\) makes a column"):
            write(frame)
    table.append(frame.reset_index())
    table.append(pd.DataFrame({"id": [4], "x": [4.0]}).set_index("id", drop=False))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]


def test_frames_in_parts(lake: bitlake.Lake) -> None:
    text = "id,s\n1,a\n2,b\n3,c\n"
    table = lake.create_table("t", pd.read_csv(io.StringIO(text), chunksize=2))
    assert table.to_arrow().to_pylist()[2] == {"id": 3, "s": "c"}
    parts = [
        pl.DataFrame({"id": [4]}),
        pa.table({"id": [5]}),
        pa.record_batch({"id": [6]}),
        table.scan(["id"], "id = 1"),
    ]
    table.append(parts)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 1, 2, 3, 4, 5, 6]
    with pytest.raises(InvalidRequest, match="not int"):
        table.append(pd.Series([1, 2]))


def test_columns_of_one_name_are_refused(lake: bitlake.Lake) -> None:
    rows = pa.table([pa.array([1]), pa.array([2])], names=["id", "id"])
    table = lake.create_table("t", pa.schema([("id", pa.int64())]))
    for given in (rows, rows.to_batches()[0], rows.to_reader(), ds.dataset(rows)):
        with pytest.raises(InvalidRequest, match="column 'id'"):
            table.append(given)
    for given in (rows, ds.dataset(rows)):
        with pytest.raises(InvalidRequest, match="column 'id'"):
            lake.create_table("u", given)
    assert table.snapshot is None and lake.tables() == ["t"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"id": [1]}, r"rows must be an Arrow table, .*, not dict; pa.Table.from_pydict\("),
        ([{"id": 1}], r"not dict; pa.Table.from_pylist\("),
        ("id", "not str"),
        (5, "not int"),
        (None, "not NoneType"),
        (np.arange(3), "not int64"),
        (pd.Series([1]), "not int|not Series"),  # pandas 3 gives Arrow arrays
    ],
)
def test_other_values_are_refused(lake: bitlake.Lake, rows: Any, message: str) -> None:
    table = lake.create_table("t", ROWS.schema)
    for write in (table.append, table.overwrite, lambda r: lake.write(r, "t"), lambda r: lake.write(r, "new")):
        with pytest.raises(InvalidRequest, match=message):
            write(rows)
    assert table.count() == 0 and lake.tables() == ["t"]


def test_frames_as_libraries_have_them(lake: bitlake.Lake) -> None:
    stamped = lake.create_table("stamped", pd.DataFrame({"at": pd.to_datetime(["2026-01-01 02:03:04.000005"])}))
    assert stamped.to_arrow().to_pylist() == [{"at": dt.datetime(2026, 1, 1, 2, 3, 4, 5)}]
    listed = pl.Series(["x", "y"], dtype=pl.Enum(["x", "y"]))
    kinds = pl.DataFrame({"c": pl.Series(["a", "b"], dtype=pl.Categorical), "e": listed})
    assert lake.create_table("kinds", kinds).to_arrow().to_pydict() == {"c": ["a", "b"], "e": ["x", "y"]}
    wide = pl.DataFrame({"a": pl.Series([1, None], dtype=pl.Int128)})
    assert lake.create_table("numbers", pa.schema({"a": pa.int64()})).append(wide) is not None
    assert lake.table("numbers").to_arrow().to_pydict() == {"a": [1, None]}
    runs = pa.schema({"a": pa.run_end_encoded(pa.int32(), pa.string())})
    assert lake.create_table("runs", runs).arrow_schema.field("a").type == pa.string()
    with pytest.raises(InvalidRequest, match="column 'a' holds Python objects"):
        lake.create_table("objects", pl.DataFrame({"a": pl.Series([{"x"}], dtype=pl.Object)}))
    for wrong in (pl.Series([1]), pa.chunked_array([[1]])):
        with pytest.raises(InvalidRequest, match="rows must be an Arrow table"):
            stamped.append(wrong)
    for kind in (pa.decimal256(50, 2), pa.decimal128(5, -2)):
        with pytest.raises(InvalidRequest, match="has no counterpart in a Paimon table"):
            lake.create_table("wide", pa.schema({"a": kind}))

    class Wrong:
        def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
            return pa.array([1]).__arrow_c_array__(requested_schema)

    with pytest.raises(InvalidRequest, match="rows must be an Arrow table"):
        stamped.append(Wrong())
    assert lake.tables() == ["kinds", "numbers", "runs", "stamped"]


LONG: list[pa.Array] = [
    pa.array([b"12345"]),
    pa.array([b"12345"], pa.binary(5)),
    pa.array([12345]),
    pa.array(["12345"], pa.string_view()),
    pa.array(["12345"]).dictionary_encode(),
    pc.run_end_encode(pa.array(["12345"])),
]


@pytest.mark.parametrize("value", LONG, ids=lambda v: str(v.type))
def test_lengths_of_values_of_other_types(lake: bitlake.Lake, value: pa.Array) -> None:
    """Bug: only text was measured and padded, before bytes, numbers and booleans became text."""
    lake.sql("CREATE TABLE t (v VARCHAR(4), c CHAR(4))", engine="duckdb")
    table = lake.table("t")
    for name in ("v", "c"):
        with pytest.raises(InvalidRequest, match=f"longer than column '{name}'"):
            table.append(pa.table({name: value}))
    assert table.count() == 0


def test_values_of_other_types_are_padded(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (c CHAR(5))", engine="duckdb")
    table = lake.table("t")
    for value in (b"ab", 12, True):
        table.append(pa.table({"c": [value]}))
    assert table.to_arrow().column("c").to_pylist() == ["ab   ", "12   ", "true "]
    assert table.count("c = 'ab   '") == 1


def test_bytes_of_a_fixed_size_have_a_length(lake: bitlake.Lake) -> None:
    """Bug: bytes of a fixed size were stored in a VARBINARY that is shorter."""
    table = lake.create_table("t", pa.schema({"a": pa.int32()}))
    table.add_column("b", "VARBINARY(3)")
    with pytest.raises(InvalidRequest, match="longer than column 'b'"):
        table.append(pa.table({"b": pa.array([b"12345"], pa.binary(5))}))
    table.append(pa.table({"b": pa.array([b"123"], pa.binary(3))}))
    assert table.to_arrow().column("b").to_pylist() == [b"123"]


def test_periods_of_pandas_are_not_numbers(lake: bitlake.Lake) -> None:
    """Bug: a period became the number of days, months … since 1970."""
    table = lake.create_table("t", pa.schema({"n": pa.int64(), "s": pa.string()}))
    for name in ("n", "s"):
        with pytest.raises(InvalidRequest, match=f"column '{name}' .* a period is not taken as a number"):
            table.append(pd.DataFrame({name: pd.period_range("2024", periods=2, freq="D")}))


def test_what_does_not_fit_leaves_no_table(lake: bitlake.Lake) -> None:
    def broken() -> Any:
        yield ROWS.to_batches()[0]
        raise OSError("the source is gone")

    for write in (lambda: lake.create_table("t", broken()), lambda: lake.write(broken(), "t")):
        with pytest.raises(OSError, match="the source is gone"):
            write()
        assert lake.tables() == []
    with pytest.raises(InvalidRequest, match="cannot tell the schema of an iterable without batches"):
        lake.create_table("t", iter(()))
    with pytest.raises(InvalidRequest, match="has no counterpart in a Paimon table"):
        lake.create_table("t", pa.table({"u": pa.array([1], pa.uint64())}))
    assert lake.tables() == []
    assert lake.create_table("empty", ROWS.schema.empty_table()).count() == 0
    assert lake.create_table("none", pa.RecordBatchReader.from_batches(ROWS.schema, iter(()))).schema.field_names


@pytest.mark.parametrize("keys", [[], ["id"]])
def test_empty_slices_in_a_stream(lake: bitlake.Lake, keys: list[str]) -> None:
    """A raw ArrowIndexError came: Arrow imports an empty slice with buffers that end before its offset."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string()), ("at", pa.timestamp("ms"))])
    rows = pa.table({"id": [1, 2, 3, 4], "s": ["a", None, "c", "d"], "at": [1, 2, None, 4]}, schema)
    batch = rows.to_batches()[0]
    table = lake.create_table("t", schema, primary_key=keys, options={"bucket": "1"} if keys else {})
    table.append(pa.RecordBatchReader.from_batches(schema, [batch.slice(2, 0), batch.slice(0, 3), batch.slice(3, 1)]))
    assert sorted(table.to_arrow().to_pylist(), key=lambda r: r["id"]) == rows.to_pylist()
    table.append(pa.RecordBatchReader.from_batches(schema, [batch.slice(2, 0)]))
    assert table.count() == 4


def test_a_fragment_of_a_dataset_is_written(lake: bitlake.Lake, tmp_path: Path) -> None:
    ds.write_dataset(ROWS, tmp_path / "files", format="parquet")
    (fragment,) = ds.dataset(tmp_path / "files").get_fragments()
    assert lake.write(fragment, "fragment") == ROWS.num_rows
    lake.table("fragment").append(fragment)
    assert lake.table("fragment").count() == 2 * ROWS.num_rows
