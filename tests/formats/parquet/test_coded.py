from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long import exhaustive

import bitlake.formats.parquet.pages as decode
from bitlake.formats.parquet.gather import CodedGatherer, PageBytes
from tests.formats.parquet.test_decode import _watched
from tests.formats.parquet.test_pages import with_nulls
from tests.formats.parquet_files import Source, parquet, read_rows

OPTIONS: dict[str, Any] = {"compression": "zstd", "write_batch_size": 10, "store_decimal_as_integer": True}


def coded(n: int, distinct: int, run: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    """Columns of ``distinct`` values, each of which comes ``run`` times in a row."""
    few = np.repeat(rng.integers(0, distinct, n // run + 1), run)[:n]
    return {
        "text": pa.array([f"value {i}"[: i % 9] for i in few.tolist()]),
        "binary": pa.array([bytes([i % 256]) * (i % 5) for i in few.tolist()]),
        "int32": pa.array((few - 3).astype("int32")),
        "int64": pa.array(few * 10**12),
        "double": pa.array(few / 8),
        "date": pa.array(few.astype("int32")).cast(pa.date32()),
        "us": pa.array(few).cast(pa.timestamp("us")),
        "decimal": pa.array([Decimal(int(i) - 3) / 100 for i in few], pa.decimal128(12, 2)),
    }


@st.composite
def coded_files(draw: st.DrawFn) -> tuple[pa.Table, bytes]:
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    n = draw(st.integers(1, 1_500))
    made = coded(n, draw(st.sampled_from([1, 2, 7, 60, 400])), draw(st.sampled_from([1, 9, 200])), rng)
    fields, arrays = [], []
    for name in draw(st.lists(st.sampled_from(sorted(made)), min_size=4, max_size=8, unique=True)):
        share = draw(st.sampled_from([None, 0.0, 0.0, 0.01]))
        arrays.append(made[name] if share is None else with_nulls(made[name], rng, share))
        fields.append(pa.field(name, made[name].type, nullable=share is not None))
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    rows, groups = draw(st.sampled_from([100, 1_000])), draw(st.sampled_from([1 << 20, 300]))
    return table, parquet(table, **OPTIONS, max_rows_per_page=rows, row_group_size=groups)


@pytest.mark.parametrize("examples", [40, exhaustive(150)])
def test_rows_of_dictionary_pages_as_pyarrow(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(coded_files(), st.data())
    def run(made: tuple[pa.Table, bytes], data: st.DataObject) -> None:
        table, stored = made
        first = data.draw(st.integers(0, table.num_rows - 1))
        last = data.draw(st.integers(first, table.num_rows - 1))
        scattered = np.sort(np.random.default_rng(first).integers(0, table.num_rows, 30))
        rows = data.draw(st.sampled_from([np.arange(first, last + 1), scattered]))
        source = Source(stored)
        footer = source.footer()
        for _ in range(2):  # the second knows which columns are pyarrow's
            found, _ = read_rows(footer, source.fetch_ranges, rows, table.column_names)
            assert found.equals(table.take(pa.array(rows)))
            found.validate(full=True)

    run()


def test_small_dictionaries_are_not_pyarrows_and_large_ones_and_nulls_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _watched(monkeypatch)
    few = coded(1_000, 7, 1, np.random.default_rng(3))
    table = pa.table({**few, "many": [f"text {i % 200}" for i in range(1_000)], "holes": [None, *range(9)] * 100})
    source = Source(parquet(table, **OPTIONS))
    footer = source.footer()
    rows = np.arange(100, 900)
    for _ in range(2):
        found, _ = read_rows(footer, source.fetch_ranges, rows, table.column_names)
        assert found.equals(table.take(pa.array(rows)))
    assert seen == [["many", "holes"]] * 2
    names = [footer.leaves[i].name for i in footer.cache.not_gathered]
    assert sorted(names) == ["holes", "many"]


def test_one_page_alone_is_pyarrows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _watched(monkeypatch)
    source = Source(parquet(pa.table(coded(1_000, 7, 1, np.random.default_rng(3))), **OPTIONS))
    read_rows(source.footer(), source.fetch_ranges, np.arange(100), ["text"])
    assert seen == [["text"]]


@pytest.mark.parametrize("distinct", [1, 2, 3, 5, 9, 60, 1_000, 40_000])
def test_few_scattered_rows_of_many_pages_are_one_chunk(monkeypatch: pytest.MonkeyPatch, distinct: int) -> None:
    """A text column was a chunk a page, and so a batch a page whatever came with it."""
    seen = _watched(monkeypatch)
    rng = np.random.default_rng(distinct)
    few = rng.integers(0, distinct, 80_000)
    few[5_000:30_000] = 0  # runs of one code beside packed ones
    named = {"text": [f"value {i}" for i in few.tolist()]} if distinct <= 60 else {}
    table = pa.table({"number": few, **named})
    sizes = {"max_rows_per_page": 4_000, "data_page_size": 1 << 20, "dictionary_pagesize_limit": 1 << 22}
    source = Source(parquet(table, **{**OPTIONS, "write_batch_size": 1_000}, **sizes))
    rows = np.sort(rng.choice(80_000, 800, replace=False))
    found, _ = read_rows(source.footer(), source.fetch_ranges, rows, table.column_names)
    assert found.equals(table.take(pa.array(rows)))
    assert [c.num_chunks for c in found.columns] == [1] * found.num_columns
    assert seen == []


@pytest.mark.parametrize("examples", [60, exhaustive(300)])
def test_damaged_codes_end_in_values_or_are_refused(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
        kind = data.draw(st.sampled_from(["text", "int64"]))
        source = Source(parquet(pa.table({kind: coded(400, 20, 3, rng)[kind]}), **OPTIONS))
        footer = source.footer()
        read_rows(footer, source.fetch_ranges, np.arange(400), [kind])
        chunk, pages = footer.row_groups[0].chunks[0], footer.cache.pages[0, 0]
        cuts = [(chunk.start, int(pages.offsets[0])), (int(pages.offsets[0]), int(pages.ends[0]))]
        split = [decode.split_page(memoryview(source.data)[a:b]) for a, b in cuts]
        gatherer = CodedGatherer(footer.leaves[0], footer.schema.field(0).type)
        few: Any = np.array([0, 7, 8, 200, 399])
        chosen, count = data.draw(st.sampled_from([(slice(0, 400), 400), (few, 5)]))
        stated: list[PageBytes] = [p for p in split if p is not None]
        good = len(stated) == 2
        for page in stated:
            block = bytearray(pa.decompress(bytes(page.body), page.size, "zstd").to_pybytes())
            for _ in range(data.draw(st.integers(0, 2))):
                block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
            values = np.frombuffer(bytes(block), np.uint8)
            if good and page.kind == decode.DICTIONARY_PAGE:
                good = gatherer.dictionary(values, page, 0)
            elif good:
                good = gatherer.add(values, page, 0, chosen)
        if good:
            found = gatherer.array()
            found.validate(full=False)
            assert len(found) == count

    run()
