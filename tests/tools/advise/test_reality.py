"""Estimates against what really happens: index bytes and bytes saved a query, within a factor of 2."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from long import long

import bitlake
from bitlake.demo import orders
from bitlake.errors import InvalidRequest
from bitlake.expressions.tree import sources_of
from bitlake.tools.advise import estimate, layout, trial
from bitlake.tools.advise import questions as profile
from bitlake.tools.advise.advice import Advice
from bitlake.tools.advise.advisor import Measured, bytes_of, index_sizes
from bitlake.tools.advise.estimate import side_by_side
from bitlake.write.z_order import bits_for, bounds_of, ranks, zorder
from tests.tools.advise.tables import lineitem, stored

FACTOR = 2.0
PAGE_ROWS = "parquet.page.row.count.limit"
LITTLE = 64 * 1024
"""Bytes of a query below which a factor says nothing: some requests."""


def near(estimated: float, real: float) -> bool:
    return real / FACTOR <= estimated <= real * FACTOR


def hold(advice: Advice) -> Measured:
    """Carry the advice out and compare."""
    measured = advice.apply().measured
    assert measured is not None
    for index in measured.indexes:
        assert near(index.estimated_bytes, index.bytes), index
    for column in dict.fromkeys(q.columns[0] for q in measured.questions if len(q.columns) == 1):
        expected, found = measured.expected_bytes_of(column), measured.bytes_of(column)
        assert expected is not None and found is not None
        estimated, real = expected[0] - expected[1], found[0] - found[1]
        assert near(estimated, real) or abs(estimated - real) <= LITTLE, (column, estimated, real)
    assert near(measured.estimated_saved, measured.saved) or abs(measured.saved) <= LITTLE
    return measured


@pytest.mark.exhaustive
def test_build_time_by_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs take, times the table's rows: of clocks of threads that go on by a second at each look.

    Whether seconds come true is measured, not tested: the case ``advise`` of ``make bench``.
    """
    monkeypatch.setattr(profile, "RUN_ROWS", 32_768)
    ticks: dict[int, itertools.count[int]] = defaultdict(itertools.count)
    runs: list[str] = []
    monkeypatch.setattr(trial, "time", SimpleNamespace(thread_time=lambda: float(next(ticks[get_ident()]))))
    monkeypatch.setattr(trial, "_read_as_indexed", lambda _, run, field, __: (runs.append(field.name), (2.0, False))[1])
    advice = stored(tmp_path, orders(300_000), 2).indexes.advise(sample=130_000)
    (found,) = (c for c in advice.columns if c.column == "payload")
    seconds = {tried.index_type: tried.build_seconds for tried in found.tried}
    # A run of each file at least, two seconds to read and one to build; files are indexed side by side.
    assert runs.count("payload") >= 2
    plain = 3 * runs.count("payload") / advice.sampled_rows * 300_000 / side_by_side([150_000, 150_000])
    assert seconds["bloom-filter"] == pytest.approx(plain)
    # An index that sorts has more distinct values to sort in a file of 150,000 rows: some, not twice as long.
    assert plain < seconds["range-bitmap"] < 2 * plain


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ["spark", long("python")])
def test_orders_looked_at_whole(tmp_path: Path, engine: str) -> None:
    """The benchmark's table: what is looked at whole is foretold nearly to the byte."""
    advice = stored(tmp_path, orders(250_000), 2).indexes.advise(engine=engine)
    measured = hold(advice)
    assert {i.column for i in measured.indexes} >= ({"user_id", "amount"} if engine == "spark" else set())
    for index in measured.indexes:
        assert abs(index.estimated_bytes - index.bytes) <= 0.02 * index.bytes + 1024
    for q in measured.questions:
        assert abs(q.estimated_before - q.before) <= 0.02 * q.before + LITTLE, q


@pytest.mark.exhaustive
def test_orders_by_a_sample_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "RUN_ROWS", 16_384)
    advice = stored(tmp_path, orders(400_000), 4).indexes.advise(sample=100_000)
    assert advice.sampled_rows < advice.rows / 2.5
    measured = hold(advice)
    assert {i.column for i in measured.indexes} >= {"user_id", "amount"}


@pytest.mark.exhaustive
def test_lineitem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "RUN_ROWS", 16_384)
    table = stored(tmp_path, lineitem(250_000), 2)
    asked = [
        "l_partkey = 4711",
        "l_partkey IN (17, 1700, 17000)",
        "l_extendedprice > 90000.00",
        "l_suppkey = 7 AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1995-01-05'",
        "l_shipmode = 'MAIL' AND l_quantity > 49",
    ]
    advice = table.indexes.advise(asked, sample=120_000)
    assert advice.sampled_rows < 200_000
    measured = hold(advice)
    assert measured.indexes


@pytest.mark.exhaustive
def test_every_index_that_is_tried_by_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that advice is against: what they weigh, and what asking them, or not, costs each query."""
    monkeypatch.setattr(profile, "RUN_ROWS", 65_536)
    table = stored(tmp_path, lineitem(500_000), 2)
    advice = table.indexes.advise(
        [
            "l_partkey = 4711",
            "l_suppkey = 77",
            "l_extendedprice > 90000.00",
            "l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1995-01-05'",
            "l_shipmode = 'MAIL' AND l_quantity > 49",
        ],
        sample=262_144,
    )
    assert advice.sampled_rows == 262_144
    asked = {q.question: bytes_of(table._core, q.question, advice.engine) for q in advice.questions}
    tried = [t for c in advice.columns for t in c.tried]
    assert {t.index_type for t in tried} == {"bitmap", "bloom-filter", "range-bitmap"} and len(tried) > 10
    for t in tried:
        table.alter_options({}, [k for k in table.schema.options if k.startswith("file-index.")])
        table.alter_options({f"file-index.{t.index_type}.columns": t.column})
        table.alter_options({f"file-index.{t.index_type}.{t.column}.{k}": v for k, v in t.options})
        table.indexes.rebuild()
        assert near(t.index_bytes, index_sizes(table._core)[t.column, t.index_type]), t
        about = [(q, was) for q, was in asked.items() if t.column in sources_of(q.predicate)]
        saved = sum(was - bytes_of(table._core, q, advice.engine) for q, was in about) / len(about)
        expected = t.bytes_before - t.bytes_after
        little = max(abs(expected), abs(saved)) <= LITTLE
        assert little or (expected * saved > 0 and near(abs(expected), abs(saved))), (t, saved)


@pytest.mark.exhaustive
def test_files_side_by_side_wait_for_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate.os, "cpu_count", lambda: 4)
    assert side_by_side([]) == side_by_side([7]) == side_by_side([0, 0]) == 1.0
    assert side_by_side([10] * 4) == side_by_side([10] * 40) == 2.0
    assert side_by_side([90, 10]) == pytest.approx(1 / 0.9)


def laid_out(table: bitlake.Table, statement: str) -> None:
    """Carry out in this process what CALL sys.compact does on Spark: all rows sorted, or along the curve."""
    found = re.search(r"order_strategy => '(\w+)', order_by => '([^']*)'", statement)
    assert found is not None, statement
    rows, names = table.scan().to_arrow(), found[2].split(",")
    if found[1] == "order":
        table.overwrite(rows.sort_by([(n, "ascending") for n in names]))
        return
    bits = bits_for(len(names))
    columns = [rows.column(n).combine_chunks() for n in names]
    place = zorder([ranks(c, bounds_of(c, bits), bits) for c in columns], bits)
    table.overwrite(rows.take(np.argsort(place, kind="stable")))


def events(rows: int) -> pa.Table:
    random = np.random.default_rng(8)
    letters = random.integers(0, 256, rows * 40, dtype=np.uint8)
    return pa.table(
        {
            "day": pa.array(random.integers(0, 2000, rows).astype(np.int32)).cast(pa.date32()),
            "place": random.integers(0, 100_000, rows),
            "payload": pa.Array.from_buffers(pa.binary(40), rows, [None, pa.py_buffer(letters)]).cast(pa.binary()),
        }
    )


DAYS = ("day BETWEEN DATE '1971-01-01' AND DATE '1971-03-01'", "day >= DATE '1975-03-01'")
PLACES = ("place BETWEEN 5000 AND 9000", "place < 2000")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("asked", "kind", "engine"),
    [
        *[(DAYS, "sort", "spark"), long(DAYS, "sort", "python")],
        *[long((*DAYS, *PLACES), "zorder", "spark"), ((*DAYS, *PLACES), "zorder", "python")],
    ],
)
def test_sorting_brings_what_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, asked: tuple[str, ...], kind: str
) -> None:
    monkeypatch.setattr(layout, "_WORTH_SORTING", 1 << 20)
    monkeypatch.setattr(layout, "_WORTH_SAVING", 64 << 10)
    table = stored(tmp_path, events(120_000), 3, options={PAGE_ROWS: "1000"})
    advice = table.indexes.advise(asked, engine=engine)
    (advised,) = (item for item in advice.layout if item.kind in ("sort", "zorder"))
    assert advised.kind == kind and len(advised.questions) == len(asked)
    done = advice.apply(lambda statement: laid_out(table, statement) if "order_by" in statement else None, layout=True)
    assert done.measured is not None
    (found,) = (item for item in done.measured.layout if item.kind == kind)
    assert found.estimated_before is not None and found.before is not None
    assert found.estimated_after is not None and found.after is not None
    assert near(found.estimated_before, found.before), found
    assert near(found.estimated_after, found.after), found
    assert near(found.estimated_before - found.estimated_after, found.before - found.after), found
    assert f"{'sort' if kind == 'sort' else 'z-order'} by" in str(done).split("Measured")[1]
    assert not [i for i in table.indexes.advise(asked, engine=engine).layout if i.kind == "sort"], "it is sorted now"


@pytest.mark.exhaustive
def test_smaller_pages_bring_what_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are for files that are written from then on, so the same rows are written again."""
    monkeypatch.setattr(layout, "_WORTH_SAVING", 64 << 10)
    rows = events(200_000)
    group = np.random.default_rng(9).integers(0, 30_000, rows.num_rows)
    rows = rows.append_column("group", pa.array(group))
    table = stored(tmp_path, rows, 1, options={"file-index.bitmap.columns": "group"})
    advice = table.indexes.advise([f"group = {n}" for n in (7, 7000, 29_000)])
    (advised,) = (item for item in advice.layout if item.kind == "page")
    before = [bytes_of(table._core, q, advice.engine) for q in advised.questions]
    assert table.schema.options.get(PAGE_ROWS) is None
    table.alter_options({PAGE_ROWS: advised.value})
    assert table.schema.options[PAGE_ROWS] == advised.value
    table.overwrite(rows)
    after = [bytes_of(table._core, q, advice.engine) for q in advised.questions]
    assert advised.bytes_before is not None and near(advised.bytes_before, sum(before) / len(before))
    assert advised.bytes_after is not None and near(advised.bytes_after, sum(after) / len(after))


@pytest.mark.exhaustive
def test_fewer_buckets_are_as_large_as_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_SMALL_BUCKET", 256 << 10)
    monkeypatch.setattr(layout, "_BUCKET_BYTES", 4 << 20)
    table = stored(tmp_path, events(60_000), options={"bucket": "32", "bucket-key": "place"})
    advice = table.indexes.advise(["day = DATE '1971-01-01'"])
    (advised,) = advice.layout
    assert advised.kind == "bucket" and int(advised.value) < 32
    advice.apply(layout=True)
    sizes: dict[int, int] = {}
    for e in table._core.state().entries():
        sizes[e.bucket] = sizes.get(e.bucket, 0) + e.file.file_size
    assert len(sizes) == int(advised.value) and table.scan().count() == 60_000
    assert near(1 << 20, sum(sizes.values()) / len(sizes)), "a quarter of what a bucket may have"
    assert table.indexes.advise(["day = DATE '1971-01-01'"]).layout == ()


@pytest.mark.exhaustive
def test_what_takes_spark_says_so_before_anything_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_WORTH_SORTING", 1 << 20)
    monkeypatch.setattr(layout, "_WORTH_SAVING", 64 << 10)
    table = stored(tmp_path, events(60_000), options={PAGE_ROWS: "1000"})
    advice = table.indexes.advise(DAYS)
    with pytest.raises(InvalidRequest, match=r"apply\(lake\.sql, layout=True\)"):
        advice.apply(layout=True)
    assert table._core.state().snapshot_id == 1 and advice.apply().measured is not None


@pytest.mark.exhaustive
def test_a_table_with_a_primary_key(tmp_path: Path) -> None:
    """All its files are compacted already: its indexes are built beside them."""
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    table = stored(tmp_path, orders(120_000), primary_key=("order_id",), options=options)
    table.maintenance.compact(full=True)
    advice = table.indexes.advise(["user_id = 77", "amount < 1000.00"])
    assert {c.column for c in advice.columns if c.action == "add"} == {"user_id"}
    assert advice.statements()[-1] == "CALL sys.rewrite_file_index(table => 'default.t')"
    assert len(hold(advice).indexes) == 1


@pytest.mark.exhaustive
def test_files_that_are_merged_by_key_gain_nothing(tmp_path: Path) -> None:
    table = stored(tmp_path, orders(3000), primary_key=("order_id",), options={"bucket": "1", "write-only": "true"})
    table.upsert(orders(3000))
    (found,) = (c for c in table.indexes.advise(["user_id = 5"]).columns if c.column == "user_id")
    assert found.action == "none" and "compact the table first" in found.reason


@pytest.mark.exhaustive
def test_tables_of_the_article_have_nothing_to_save(tmp_path: Path) -> None:
    """Six events and ten orders: any index would be larger than what it spares."""
    advice = stored(tmp_path, orders(10)).indexes.advise()
    assert [c.action for c in advice.columns] == ["none"] * 7
    assert advice.statements() == []
    assert "Nothing to change." in str(advice)
    measured = advice.apply().measured
    assert measured is not None and measured.indexes == () and measured.saved == 0
