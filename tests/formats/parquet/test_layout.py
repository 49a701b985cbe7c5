from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bitlake.fileindex.cost import PAGE_ROWS
from bitlake.formats.parquet.footer import read_footer
from bitlake.formats.parquet.page_index import load_pages
from bitlake.formats.parquet.write import ParquetWriter, clusters, into_pages, page_cuts
from bitlake.types import DataField, parse_type
from bitlake.types.datatypes import ArrayType

ROWS = 100_000


def statuses(*runs: tuple[int, int, str | None], rows: int = ROWS, seed: int = 3) -> pa.ChunkedArray:
    """Random statuses with runs [start, stop) of one value."""
    codes = np.random.default_rng(seed).choice(["DONE", "SHIPPED", "GONE"], rows, p=[0.6, 0.3, 0.1]).astype(object)
    for start, stop, value in runs:
        codes[start:stop] = value
    return pa.chunked_array([codes[:33_333].tolist(), codes[33_333:].tolist()], pa.string())


@pytest.mark.parametrize(
    ("start", "stop"), [(40_000, 41_000), (33_000, 33_900), (0, 600), (99_400, ROWS), (777, 1_500)]
)
def test_clusters_of_a_rare_value_are_found_to_the_row(start: int, stop: int) -> None:
    assert clusters(statuses((start, stop, "PENDING"))) == [(start, stop)]
    assert clusters(statuses((start, stop, None))) == [(start, stop)]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_clusters_of_nan(kind: pa.DataType) -> None:
    """NaN equals no value, and a file with a cluster of NaN ended in an IndexError."""
    values = np.arange(ROWS, dtype=np.float64) % 1000
    values[4_000:7_000] = np.nan
    nulls = pa.array(np.arange(ROWS) == 5_000)
    assert clusters(pa.chunked_array([pa.array(values, kind, mask=nulls.to_numpy(False))])) == [(4_000, 7_000)]


def test_what_is_frequent_short_or_thin_is_no_cluster() -> None:
    assert clusters(statuses()) == []
    assert clusters(statuses((500, 600, "PENDING"))) == []
    assert clusters(statuses((20_000, 60_000, "PENDING"))) == []
    thin = [(i, i + 1, "PENDING") for i in range(20_000, 60_000, 17)]
    assert clusters(statuses(*thin)) == []
    assert clusters(pa.chunked_array([pa.array(range(ROWS))])) == []
    assert clusters(pa.chunked_array([], pa.int32())) == []
    assert clusters(pa.chunked_array([pa.array([[1]] * ROWS)])) == []


def test_a_cluster_may_have_other_rows_in_it() -> None:
    assert clusters(statuses((20_000, 21_000, "PENDING"), (20_400, 20_600, "DONE"))) == [(20_000, 21_000)]
    every_other = [(i, i + 1, "PENDING") for i in range(20_000, 24_000, 2)]
    assert clusters(statuses(*every_other)) == [(20_000, 23_999)]
    two = statuses((20_000, 21_000, "PENDING"), (30_000, 30_700, "PENDING"), (30_700, 31_700, "LOST"))
    assert clusters(two) == [(20_000, 21_000), (30_000, 30_700), (30_700, 31_700)]


def test_sorted_values_are_clusters_but_cuts_stay_few() -> None:
    days = pa.chunked_array([pa.array(np.arange(ROWS) // 1_000)])
    assert clusters(days) == [(i, i + 1_000) for i in range(0, ROWS, 1_000)]
    assert len(page_cuts(pa.table({"day": days}), ["day"], PAGE_ROWS)) <= 1 + ROWS // PAGE_ROWS // 8


def columns(**types: str) -> list[DataField]:
    return [DataField(i, name, parse_type(text)) for i, (name, text) in enumerate(types.items())]


TAGS = DataField(2, "tags", ArrayType(parse_type("INT")))


def layout(data: bytes) -> list[list[int]]:
    """For each leaf the rows at which its pages begin."""
    footer = read_footer(lambda offset, length: data[offset : offset + length], len(data))
    wanted = [(0, leaf) for leaf in range(len(footer.leaves))]
    load_pages(footer, lambda ranges: [data[o : o + n] for o, n in ranges], wanted)
    return [footer.cache.pages[key].first_rows.tolist() for key in wanted]


def test_a_run_of_an_indexed_column_has_pages_of_its_own_in_every_column() -> None:
    table = pa.table(
        {
            "id": np.arange(ROWS),
            "status": statuses((40_000, 41_000, "PENDING")),
            "tags": pa.array([[i, i] if i % 3 else None for i in range(ROWS)], pa.list_(pa.int32())),
        }
    )
    made = {}
    for clustered in ((), ("status",)):
        out = io.BytesIO()
        writer = ParquetWriter(out, [*columns(id="BIGINT", status="STRING"), TAGS], clustered=clustered)
        for start in range(0, ROWS, 30_000):
            writer.write(table.slice(start, 30_000))
        writer.close()
        assert pq.read_table(io.BytesIO(out.getvalue())).equals(table.cast(writer.schema))
        made[clustered] = layout(out.getvalue())
    plain = [*range(0, ROWS, PAGE_ROWS), ROWS]
    assert made[()][:2] == [plain] * 2
    apart = [*range(0, 40_000, PAGE_ROWS), 40_000, *range(41_000, ROWS, PAGE_ROWS), ROWS]
    assert made["status",][:2] == [apart] * 2
    # pyarrow ends a page of lists before its last row, as it does not know yet that the row is complete.
    assert {b - 1 for b in apart[1:-1]} <= set(made["status",][2])
    assert all(min(np.diff(rows)) > 0 for pages in made.values() for rows in pages)


def test_pages_of_long_values_are_cut_by_bytes() -> None:
    texts = pa.chunked_array([pa.array(["x"] * 3_000 + ["y" * 10_000] * 100 + ["z"] * 3_000)])
    pages = into_pages(texts, np.zeros(0, np.int64), 4_096, 64 << 10)
    assert pages.equals(texts) and max(c.nbytes for c in pages.chunks) <= 128 << 10 and len(pages.chunks) < 50
    assert len(into_pages(texts, np.zeros(0, np.int64), 4_096, None).chunks) == 2


def test_small_batches_do_not_make_small_pages() -> None:
    out = io.BytesIO()
    writer = ParquetWriter(out, columns(id="INT"))
    for start in range(0, 10_000, 7):
        writer.write(pa.table({"id": pa.array(range(start, min(start + 7, 10_000)), pa.int32())}))
    writer.close()
    assert layout(out.getvalue()) == [[0, 4_096, 8_192, 10_000]]
    assert pq.read_table(io.BytesIO(out.getvalue())).column("id").to_pylist() == list(range(10_000))
