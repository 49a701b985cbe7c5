from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from caches import forget
from hypothesis import given, settings
from hypothesis import strategies as st
from long import exhaustive, long

import bitlake
from bitlake.expressions.statistics import Verdict, judge_leaf
from bitlake.expressions.tree import Comparison, Op
from bitlake.formats.parquet import write
from bitlake.formats.parquet.page_index import PageBounds
from bitlake.scan import page_pruning
from bitlake.scan import reader as read
from bitlake.scan.page_pruning import _bounds
from bitlake.table.table import Table

ROWS = 6_000
SMALL_PAGES = {"parquet.page.size": "16384", "parquet.page.row.count.limit": "100"}
TERMS = {
    "id = 4000": pc.field("id") == 4000,
    "id = -1": pc.field("id") == -1,
    "id BETWEEN 100 AND 260": (pc.field("id") >= 100) & (pc.field("id") <= 260),
    "id IN (5, 300, 5999)": pc.field("id").isin([5, 300, 5999]),
    "name < 'k000150'": pc.field("name") < "k000150",
    "name = 'k005000'": pc.field("name") == "k005000",
    "name LIKE 'k0033%'": pc.starts_with(pc.field("name"), "k0033"),
    "day = DATE '2024-02-01'": pc.field("day") == datetime.date(2024, 2, 1),
    "day <> DATE '2024-02-01'": pc.field("day") != datetime.date(2024, 2, 1),
    "small > 55": pc.field("small") > 55,
    "holes IS NULL": pc.field("holes").is_null(),
    "holes IS NOT NULL": pc.field("holes").is_valid(),
    "holes > 2500": pc.field("holes") > 2500,
    "amount > 0.5D": pc.field("amount") > 0.5,
    "at = TIMESTAMP '2024-01-03 00:00:00.001'": pc.field("at") == datetime.datetime(2024, 1, 3, 0, 0, 0, 1000),
    "at < TIMESTAMP '2024-01-02'": pc.field("at") < datetime.datetime(2024, 1, 2),
    "price BETWEEN 10.05 AND 10.2": (pc.field("price") >= Decimal("10.05")) & (pc.field("price") <= Decimal("10.20")),
}


def rows() -> pa.Table:
    order = np.arange(ROWS)
    holes = pa.array([None if 1_000 <= i < 2_000 or i % 7 == 0 else i for i in range(ROWS)], pa.int32())
    return pa.table(
        {
            "id": order,
            "name": [f"k{i:06d}" for i in range(ROWS)],
            "day": pa.array((order // 100 + 19_723).astype(np.int32)).cast(pa.date32()),
            "small": pa.array((order // 100).astype(np.int8)),
            "holes": holes,
            "at": pa.array(1_704_067_200_000 + order * 86_400_000 // 10 + 1, pa.timestamp("ms")),
            "price": pa.array([Decimal(i) / 100 for i in range(ROWS)], pa.decimal128(9, 2)),
            "amount": np.random.default_rng(7).random(ROWS),
            "payload": [f"payload {i % 977}" for i in range(ROWS)],
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    lake = bitlake.connect(str(tmp_path_factory.mktemp("lake")))
    made = lake.create_table("t", rows().schema, options=SMALL_PAGES | {"deletion-vectors.enabled": "true"})
    made.append(rows())
    made.delete(f"id IN ({', '.join(map(str, range(0, ROWS, 11)))})")
    return made


@pytest.fixture(autouse=True)
def every_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_pruning, "WORTH_ROWS", 0)


def live() -> pa.Table:
    every = rows()
    return every.filter(pa.array(np.arange(ROWS) % 11 != 0))


@pytest.mark.parametrize("examples", [10, exhaustive(25), long(80)])
def test_the_rows_that_match_whatever_is_left_out(table: Table, examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(st.lists(st.sampled_from(sorted(TERMS)), min_size=1, max_size=3), st.booleans())
    def run(terms: list[str], either: bool) -> None:
        match_whatever_is_left_out(table, terms, either)

    run()


def match_whatever_is_left_out(table: Table, terms: list[str], either: bool) -> None:
    expected = TERMS[terms[0]]
    for term in terms[1:]:
        expected = expected | TERMS[term] if either else expected & TERMS[term]
    where = (" OR " if either else " AND ").join(f"({t})" for t in terms)
    found = table.scan(where=where).to_arrow()
    assert found.cast(live().schema).equals(live().filter(expected))


@pytest.mark.parametrize(
    "where",
    [
        "id = 4000", "name = 'k005000'", "id BETWEEN 100 AND 260", "day = DATE '2024-01-05'",
        "at = TIMESTAMP '2024-01-03 00:00:00.001'", "price BETWEEN 10.05 AND 10.2",
    ],
)  # fmt: skip
def test_few_pages_are_read_of_a_column_in_order(table: Table, where: str) -> None:
    scan = table.scan(where=where)
    assert scan.to_arrow().num_rows
    assert scan.plan().metrics.rows_read <= 300


def test_of_a_file_without_a_match_only_the_judged_column_is_read(table: Table) -> None:
    scan = table.scan(where="id = 4004")  # deleted
    assert scan.to_arrow().num_rows == 0 and scan.plan().metrics.pages_read == 1


def test_a_damaged_column_index_leaves_nothing_out(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    made = lake.create_table("t", rows().schema, options=SMALL_PAGES)
    made.append(rows())
    (file,) = tmp_path.rglob("*.parquet")
    task = read.tasks_of(made.scan().plan().files, made.scan().plan().schemas)[0]
    chunk = read.footer_of(made._core.store, task).row_groups[0].chunks[0]
    assert chunk.bounds_offset is not None
    data = bytearray(file.read_bytes())
    data[chunk.bounds_offset : chunk.bounds_offset + 8] = b"\xff" * 8
    file.write_bytes(bytes(data))
    forget()
    scan = made.scan(where="id = 4000")
    assert scan.to_arrow().num_rows == 1 and scan.plan().metrics.rows_read == ROWS


def test_other_columns_are_read_only_where_rows_survive_that_an_index_chose(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    data = rows().select(["id", "name", "payload"]).append_column("shade", [[f"s{i % 97}" for i in range(ROWS)]])
    made = lake.create_table("t", data.schema, options=SMALL_PAGES | {"file-index.bitmap.columns": "shade"})
    made.append(data)
    scan = made.scan(where="shade = 's5' AND payload LIKE '%9'")
    expected = data.filter(pc.and_(pc.equal(data["shade"], "s5"), pc.ends_with(data["payload"], "9")))
    assert scan.to_arrow().cast(data.schema).equals(expected)
    chosen, left = scan.plan().chosen_rows, expected.num_rows
    assert 5 * left < chosen, "a page holds one of them at most"
    assert scan.plan().metrics.pages_read <= 2 * chosen + 2 * left + 4


def test_bounds_of_a_finer_file_are_rounded_outwards() -> None:
    """Microseconds of a file of a TIMESTAMP(3) column, and milliseconds of one of a TIMESTAMP(6) column."""
    low, high = np.array([-1001, -1, 0, 999, 1000]), np.array([-1000, 0, 1, 1001, 2000])
    pages = PageBounds(np.arange(6), low, high, np.zeros(5, bool))
    coarse = _bounds(pages, (10**6, 10**3))
    assert coarse is not None
    assert coarse.low.tolist() == [-2, -1, 0, 0, 1] and coarse.high.tolist() == [-1, 0, 1, 2, 2]
    fine = _bounds(pages, (10**3, 10**6))
    assert fine is not None
    assert fine.low.tolist() == (1000 * low).tolist() and fine.high.tolist() == (1000 * high).tolist()
    same = _bounds(pages, (10**3, 10**3))
    assert same is not None and same.low.tolist() == low.tolist() and same.high.tolist() == high.tolist()
    # Numbers whose multiples leave 64 bits give no bounds; the largest that do not are exact.
    for number in (2**62 // 1000 - 1, -(2**62 // 1000) + 1):
        made = _bounds(PageBounds(np.arange(2), *(np.array([number]),) * 2, np.zeros(1, bool)), (10**3, 10**6))
        assert made is not None and made.low.tolist() == made.high.tolist() == [1000 * number]
    for number in (2**63 // 1000 + 1, -(2**63 // 1000) - 1):
        assert _bounds(PageBounds(np.arange(2), *(np.array([number]),) * 2, np.zeros(1, bool)), (10**3, 10**6)) is None
    # A page of NULLs only: as many NULLs as rows; of others nothing is known.
    some = _bounds(PageBounds(np.array([0, 3, 10]), low[:2], high[:2], np.array([True, False])), (1, 1))
    assert some is not None and some.nulls.tolist() == [3, -1] and some.has_low.tolist() == [False, True]
    assert _bounds(pages, None) is None
    texts = PageBounds(np.arange(2), [b"a"], [b"b"], np.zeros(1, bool))
    assert _bounds(texts, (1, 1)) is None
    made = _bounds(texts, None)
    assert made is not None and made.low.to_pylist() == [b"a"] and made.high.to_pylist() == [b"b"]


def test_equal_bounds_of_a_page_need_not_be_its_value() -> None:
    """A writer may cut both bounds of a page to the same bytes, so ``<>`` cannot leave the page out."""
    bounds = _bounds(PageBounds(np.array([0, 10]), [b"abc"], [b"abc"], np.zeros(1, bool)), None)
    assert bounds is not None
    verdicts = [judge_leaf(Comparison("a", op, "abc"), bounds, np.array([10])).tolist() for op in (Op.NE, Op.EQ)]
    assert verdicts == [[Verdict.SOME.value]] * 2


# --- bloom filters of Parquet -----------------------------------------------------------------------------------------


@pytest.fixture
def scattered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Files whose values lie in no order, with bloom filters, as Spark writes them where it is asked to."""
    if "bloom_filter_options" not in write._parameters():
        pytest.skip("this pyarrow writes no bloom filters")
    opened = write.ParquetWriter._open

    def with_filters(self: write.ParquetWriter, sample: pa.Table) -> None:
        self._options = {**self._options, "bloom_filter_options": dict.fromkeys(("id", "name", "day"), True)}
        opened(self, sample)

    monkeypatch.setattr(write.ParquetWriter, "_open", with_filters)
    monkeypatch.setattr(page_pruning, "WORTH_BYTES", 0)
    made = bitlake.connect(str(tmp_path)).create_table("t", rows().schema, options=SMALL_PAGES)
    order = np.random.default_rng(5).permutation(ROWS)
    for part in np.split(order, 6):
        made.append(rows().take(part))
    return made


@pytest.mark.parametrize(
    "where", [exhaustive("id = 4000"), "id IN (4000, -1)", "name = 'k004000'", exhaustive("name IN ('k004000', 'x')")]
)
def test_files_whose_bloom_filters_deny_a_value_are_skipped(scattered: Table, where: str) -> None:
    plan = scattered.scan(where=where).plan()
    assert plan.metrics.files == 6 and plan.metrics.files_read <= 2
    assert "Parquet's bloom filter" in str(scattered.scan(where=where).explain())
    assert scattered.scan(["id"], where=where).to_arrow()["id"].to_pylist() == [4000]


def test_bloom_filters_leave_out_no_row(scattered: Table) -> None:
    every = rows()
    terms = {
        "id = 17": pc.field("id") == 17,
        "id <> 17": pc.field("id") != 17,
        "id IN (1, 2, 3, 5999)": pc.field("id").isin([1, 2, 3, 5999]),
        "name = 'k000017'": pc.field("name") == "k000017",
        "day = DATE '2024-01-05'": pc.field("day") == datetime.date(2024, 1, 5),
        "id = 17 AND name = 'k000018'": pc.field("id") < 0,
    }
    for where, term in terms.items():
        expected = every.filter(term)
        found = scattered.scan(where=where).to_arrow().sort_by("id")
        assert found.cast(every.schema).equals(expected), where
