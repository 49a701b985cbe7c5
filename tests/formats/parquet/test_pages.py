from __future__ import annotations

import contextlib
import io
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from long import exhaustive

from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, NotFound
from tests.formats.parquet_files import Source, parquet, read_rows


def numbers(n: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    """Columns of every flat kind, named by their type."""
    ints = rng.integers(-100, 100, n)
    few = rng.integers(0, 7, n)
    return {
        "bool": pa.array(ints > 0),
        "int8": pa.array(ints.astype("int8")),
        "int32": pa.array(ints.astype("int32")),
        "int64": pa.array(np.arange(n) * 3),
        "uint32": pa.array(few.astype("uint32")),
        "float": pa.array(ints.astype("float32")),
        "double": pa.array(rng.random(n)),
        "decimal9": pa.array([Decimal(int(i)) / 100 for i in ints], pa.decimal128(9, 2)),
        "decimal30": pa.array([Decimal(int(i)) * 10**15 for i in ints], pa.decimal128(30, 3)),
        "string": pa.array([f"value {i}" * (i % 3) for i in few.tolist()]),
        "unique": pa.array([f"{i:08x}" for i in rng.integers(0, 1 << 31, n).tolist()]),
        "large": pa.array([f"v{i}" for i in few.tolist()], pa.large_string()),
        "binary": pa.array([bytes([i]) * i for i in few.tolist()]),
        "fixed": pa.array([bytes([i, i]) for i in few.tolist()], pa.binary(2)),
        "date": pa.array(ints.astype("int32")).cast(pa.date32()),
        "time": pa.array(few.astype("int32")).cast(pa.time32("ms")),
        "ms": pa.array(ints).cast(pa.timestamp("ms")),
        "utc": pa.array(ints).cast(pa.timestamp("us", "UTC")),
        "dictionary": pa.array([f"k{i}" for i in few.tolist()]).dictionary_encode(),
        "list": pa.array([list(range(i)) for i in few.tolist()], pa.list_(pa.int32())),
        "struct": pa.array([{"a": i, "b": str(i)} for i in few.tolist()]),
        "map": pa.array([[("k", i)] * (i % 3) for i in few.tolist()], pa.map_(pa.string(), pa.int64())),
        "texts": pa.array([[f"v{j}" if j % 3 else None for j in range(i)] for i in few.tolist()]),
        "deep": pa.array([{"a": f"v{i}", "l": [{"b": [b"x" * i] * (i % 4), "c": i}] * (i % 3)} for i in few.tolist()]),
    }


NAMES = tuple(numbers(1, np.random.default_rng(0)))


def with_nulls(array: pa.Array, rng: np.random.Generator, share: float) -> pa.Array:
    indices = pa.array(np.arange(len(array)), mask=rng.random(len(array)) < share)
    return array.take(indices)


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, list[str], Any, bool]:
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    n = draw(st.integers(1, 700))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
    made = numbers(n, rng)
    fields, arrays = [], []
    for name in names:
        share = draw(st.sampled_from([None, 0.0, 0.3, 1.0]))
        arrays.append(made[name] if share is None else with_nulls(made[name], rng, share))
        fields.append(pa.field(name, made[name].type, nullable=share is not None))
    options = {
        "row_group_size": draw(st.sampled_from([1000, 300, 70])),
        "compression": draw(st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4"])),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "data_page_size": draw(st.sampled_from([1, 300, 1 << 20])),
        "write_batch_size": draw(st.sampled_from([10, 64, 1024])),
        "max_rows_per_page": draw(st.sampled_from([20, 100, 100_000])),
        "use_dictionary": draw(st.booleans()),
        "dictionary_pagesize_limit": draw(st.sampled_from([50, 1 << 20])),
        "store_schema": draw(st.booleans()),
        "store_decimal_as_integer": draw(st.booleans()),
        "write_page_index": draw(st.sampled_from([True, True, True, False])),
        "write_page_checksum": draw(st.booleans()),
    }
    data = parquet(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), **options)
    share = draw(st.sampled_from([0.005, 0.1, 0.5, 1.0]))
    rows = np.flatnonzero(rng.random(n) < share)
    chosen = draw(st.permutations(names))[: draw(st.integers(1, len(names)))]
    return data, chosen, rows, draw(st.booleans())


@pytest.mark.exhaustive
@settings(max_examples=150, deadline=None)
@given(files())
def test_any_file_any_rows_as_pyarrow(made: tuple[bytes, list[str], Any, bool]) -> None:
    data, columns, rows, twice = made
    source = Source(data)
    footer = source.footer(prefetch=8 if len(data) % 2 else 1 << 17)
    try:
        expected = pq.read_table(io.BytesIO(data)).select(columns).take(pa.array(rows))
    except (pa.ArrowInvalid, pa.ArrowIndexError):  # pyarrow cannot read back some nested columns it cut into tiny pages
        reject()
    found, stats = read_rows(footer, source.fetch_ranges, rows, columns, max_gap=len(data) % 3 * 100)
    assert found.schema.equals(expected.schema)
    assert found.equals(expected)
    found.validate(full=True)
    assert stats.bytes <= len(data) and (stats.pages > 0) == (len(rows) > 0)
    if twice:
        again, more = read_rows(footer, source.fetch_ranges, rows, columns)
        assert again.equals(expected) and more.bytes <= stats.bytes + len(data)


def big(n: int = 40_000) -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table({"id": np.arange(n), "s": [f"text number {i}" for i in rng.integers(0, 1 << 40, n).tolist()]})


BIG = parquet(big(), max_rows_per_page=1000, row_group_size=20_000, use_dictionary=False, store_schema=False)


def test_only_the_pages_that_hold_the_rows_are_fetched() -> None:
    source = Source(BIG)
    footer = source.footer()
    rows = np.array([5, 999, 25_500])
    source.asked.clear()
    table, stats = read_rows(footer, source.fetch_ranges, rows, ["s", "id"], max_gap=0)
    assert table.column("id").to_pylist() == rows.tolist() and table.column_names == ["s", "id"]
    assert (stats.pages, stats.row_groups, stats.requests) == (4, 2, 4)
    assert sum(length for _, length in source.asked) == stats.bytes < len(BIG) // 10


NESTED = pa.table(
    {
        "id": np.arange(40_000),
        "tags": [[f"tag{i % 11}", None][: i % 3] if i % 7 else None for i in range(40_000)],
        "n": [[i, i + 1] for i in range(40_000)],
        "m": pa.array([[("a", i), ("b", 2 * i)][: i % 3] for i in range(40_000)], pa.map_(pa.string(), pa.int64())),
        "s": [{"x": i, "y": f"text {i % 13}"} for i in range(40_000)],
    }
)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("column", ["tags", "n", "m", "s"])
def test_only_pages_of_nested_columns_that_hold_the_rows_are_fetched(
    column: str, dictionary: bool, version: str
) -> None:
    data = parquet(
        NESTED,
        max_rows_per_page=1000,
        row_group_size=20_000,
        write_batch_size=1000,
        data_page_version=version,
        use_dictionary=dictionary,
    )
    source = Source(data)
    footer = source.footer()
    rows = np.array([5, 6, 5_500, 25_500, 39_999])
    table, stats = read_rows(footer, source.fetch_ranges, rows, [column, "id"], max_gap=0)
    assert table.equals(NESTED.select([column, "id"]).take(pa.array(rows)))
    leaves = range(footer.column(column).leaf, footer.column(column).leaf_end)
    assert min(len(footer.cache.pages[g, leaf].offsets) for g in (0, 1) for leaf in leaves) >= 20
    # For each of four places at most two pages that hold it, and one without values, which Arrow adds.
    assert stats.pages <= 4 * 3 * len(leaves) + 4


def test_leaves_whose_pages_begin_at_different_rows() -> None:
    """Rows whose pages of one leaf are in another page of the other, up to a row at which both begin one."""
    rows = 3000
    column = pa.array([[{"x": i, "y": f"a long text number {i}"}] * (i % 2) for i in range(rows)])
    source = Source(parquet(pa.table({"c": column}), data_page_size=3000, write_batch_size=7, use_dictionary=False))
    footer = source.footer()
    for chosen in ([0], [1500, 1501], [7, 1000, 2999]):
        table, _ = read_rows(footer, source.fetch_ranges, np.array(chosen), ["c"])
        assert table.column("c").combine_chunks().equals(column.take(pa.array(chosen)))
    assert len({footer.cache.pages[0, leaf].first_rows.tobytes() for leaf in (0, 1)}) == 2


def test_small_gaps_are_read_along() -> None:
    source = Source(BIG)
    rows = np.array([500, 2500, 4500])
    _, apart = read_rows(source.footer(), source.fetch_ranges, rows, ["id"], max_gap=0)
    _, joined = read_rows(source.footer(), source.fetch_ranges, rows, ["id"], max_gap=1 << 20)
    assert (apart.requests, joined.requests) == (3, 1) and apart.pages == joined.pages == 3


def test_many_row_groups_are_read_in_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    import bitlake.formats.parquet.page_index as plan

    monkeypatch.setattr(plan, "BATCH_BYTES", 1)
    source = Source(BIG)
    rows = np.arange(0, 40_000, 7)
    table, stats = read_rows(source.footer(), source.fetch_ranges, rows, ["id", "s"])
    assert table.equals(big().take(pa.array(rows))) and stats.row_groups == 2


def test_rows_and_columns_that_are_not_there() -> None:
    source = Source(BIG)
    footer = source.footer()
    for rows in ([-1], [40_000], [2, 1]):
        with pytest.raises(InvalidRequest):
            read_rows(footer, source.fetch_ranges, np.array(rows), ["id"])
    with pytest.raises(NotFound, match="'nope'"):
        read_rows(footer, source.fetch_ranges, np.array([1]), ["nope"])
    empty, _ = read_rows(footer, source.fetch_ranges, np.array([], np.int64), ["s"])
    assert empty.num_rows == 0 and empty.schema.names == ["s"]
    none, _ = read_rows(footer, source.fetch_ranges, np.array([1, 2, 2]), [])
    assert none.num_rows == 3 and none.num_columns == 0
    same, _ = read_rows(footer, source.fetch_ranges, np.array([7, 7, 8]), ["id"])
    assert same.column("id").to_pylist() == [7, 7, 8]


def test_a_cut_file_is_corrupt() -> None:
    source = Source(BIG)
    footer = source.footer()
    with pytest.raises(CorruptError, match="cut"):
        read_rows(footer, lambda rs: [b"" for _ in rs], np.array([1]), ["id"])
    for size in (0, 5, 11, len(BIG) - 1):
        with pytest.raises(CorruptError):
            Source(BIG[:size]).footer()


SMALL = parquet(
    pa.table({"a": np.arange(60), "s": [f"s{i % 5}" for i in range(60)], "l": [[i] * (i % 3) for i in range(60)]}),
    max_rows_per_page=10,
    write_batch_size=10,
    row_group_size=30,
)
_DATA_END = min(
    c.chunks[0].index_offset or 0 for c in Source(SMALL).footer().row_groups
)  # the offset indexes and the footer follow


@pytest.mark.parametrize("examples", [60, exhaustive(300)])
def test_mutated_indexes_and_footers_give_rows_or_an_error(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), min_size=1, max_size=3))
    def run(changes: list[tuple[int, int]]) -> None:
        data = bytearray(SMALL)
        for where, value in changes:
            data[_DATA_END + where % (len(data) - _DATA_END)] = value
        source = Source(bytes(data))
        with contextlib.suppress(BitlakeError):
            footer = source.footer()
            rows = np.array([0, 15, 31, 59])
            table, _ = read_rows(footer, source.fetch_ranges, rows[rows < footer.rows], [*footer.columns])
            table.validate(full=True)

    run()


@pytest.mark.parametrize("examples", [40, exhaustive(150)])
def test_mutated_pages_give_rows_or_an_error(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(st.integers(0, 1 << 30), st.binary(min_size=1, max_size=4))
    def run(where: int, junk: bytes) -> None:
        data = bytearray(SMALL)
        at = 4 + where % (_DATA_END - 4 - len(junk))
        data[at : at + len(junk)] = junk
        source = Source(bytes(data))
        with contextlib.suppress(BitlakeError):
            read_rows(source.footer(), source.fetch_ranges, np.array([0, 15, 31, 59]), ["a", "s", "l"])

    run()
