"""Queries on DuckDB whose files DuckDB reads itself: which these are, and that rows are those of a dataset."""

from __future__ import annotations

import datetime as dt
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import every_type
from fixtures import expected, warehouse
from long import long

import bitlake
from bitlake.catalog.catalog import Identifier
from bitlake.errors import EvaluationFailed, NotFound
from bitlake.scan import page_pruning
from bitlake.sql import duckdb_engine, spark_types
from bitlake.sql.duckdb_engine import fetch
from bitlake.sql.duckdb_values import NotTranslatable
from bitlake.table.migrate import migrate_folder

DIRECT = "with its own Parquet reader"
ARROW = "reads rows through Arrow: "


def way(lake: bitlake.Lake, query: str) -> str:
    """How DuckDB reads the query's only table, as EXPLAIN says; the plan of the query itself must be the same."""
    text = lake.sql(f"EXPLAIN {query}", engine="duckdb").to_pylist()[0]["plan"]
    (line,) = (line for line in text.splitlines() if line.startswith("  DuckDB "))
    # What DuckDB answers from footers is read by neither.
    plan = str(lake.sql(query, engine="duckdb").explain())
    assert ("ARROW_SCAN" if DIRECT in line else "READ_PARQUET") not in plan, line
    return str(line.removeprefix("  DuckDB     "))


def through_arrow(lake: bitlake.Lake, query: str, patch: pytest.MonkeyPatch) -> pa.Table:
    with patch.context() as m:
        m.setattr(duckdb_engine, "direct_files", lambda scan: "a dataset")
        return fetch(lake.sql(query, engine="duckdb"))


def agree(lake: bitlake.Lake, query: str, patch: pytest.MonkeyPatch) -> pa.Table:
    """The rows of a query, which must be those of the same query through a dataset."""
    direct, other = fetch(lake.sql(query, engine="duckdb")), through_arrow(lake, query, patch)
    assert direct.schema == other.schema, query
    assert sorted(map(repr, direct.to_pylist())) == sorted(map(repr, other.to_pylist())), query
    return direct


def plain_columns(table: bitlake.Table) -> str:
    """The columns that DuckDB calculates with."""
    known = [f.name for f in table.schema.fields if spark_types.of_column(f.type) != spark_types.OPAQUE]
    return ", ".join(f"`{name}`" for name in known)


WHOLE = {
    *(f"bucket_key_{t}" for t in ("bigint", "bin", "bool", "date", "dec", "double", "int", "string", "tiny", "ts")),
    *("append_bucketed", "append_plain", "bitmap_v1", "bitmap_v2", "bitmap_v2_small_blocks", "bloom_filter", "bsi"),
    *("every_index_embedded", "map_key_index", "nested_types", "partitioned", "pk_dv_dml", "pk_dv_full_compacted"),
    *("pk_first_row", "range_bitmap", "range_bitmap_small_chunks", "time_travel"),
}
"""The tables that Paimon left as whole files; others have deleted rows, rows to merge, or an evolved schema."""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("number", "name"), list(enumerate(sorted(p.name for p in (warehouse() / "default.db").iterdir())))
)
@pytest.mark.parametrize("step", [4, long(1)])
def test_tables_of_paimons_agree(number: int, name: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """``step``: of a table's queries, every how many-th is asked, from another one on for each table."""
    lake = bitlake.connect(str(warehouse()))
    query = f"SELECT {plain_columns(lake.table(name))} FROM {name}"
    assert (DIRECT in way(lake, query)) == (name in WHOLE)
    agree(lake, query, monkeypatch)
    for asked in expected().get(name, [])[number % step :: step]:
        try:
            agree(lake, asked["sql"], monkeypatch)
        except NotTranslatable:
            continue


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(str(tmp_path / "lake"))


ROWS = pa.table({"id": pa.array(range(1000), pa.int64()), "s": [f"s{i % 7}" for i in range(1000)]})


def test_every_type(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_table("t", every_type())
    query = f"SELECT {plain_columns(table)} FROM t"
    assert DIRECT in way(lake, query)
    agree(lake, query, monkeypatch)
    for column in ("c_array", "c_map", "c_row"):
        assert f"column '{column}' is" in way(lake, f"SELECT {column} FROM t")
    for f in table.schema.fields:
        if spark_types.of_column(f.type) != spark_types.OPAQUE:
            agree(lake, f"SELECT count({f.name}) c, min({f.name}) low, max({f.name}) high FROM t", monkeypatch)


@pytest.mark.parametrize("kind", ["TIME", "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)"])
def test_types_that_duckdb_reads_otherwise(kind: str, lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    number, arrow = {
        "TIME": (pa.int32(), pa.time32("ms")),
        "TIMESTAMP(3)": (pa.int64(), pa.timestamp("ms")),
        "TIMESTAMP_LTZ(3)": (pa.int64(), pa.timestamp("ms", "UTC")),
    }[kind]
    lake.create_table("t", pa.table({"a": pa.array([1, None, 86399], number).cast(arrow)}))
    assert (DIRECT in way(lake, "SELECT a FROM t")) == (kind in ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)"))
    agree(lake, "SELECT a FROM t", monkeypatch)


def test_bounds_with_nan(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN is the largest number, and no bound of a file or row group counts it."""
    lake.create_table("t", pa.table({"f": [1.0, math.nan, 2.0], "g": pa.array([1.0, math.nan, -0.0], pa.float32())}))
    for where in ("f > 5", "g > 5", "f >= 2", "g = 0", "f <> 1", "NOT f < 5"):
        query = f"SELECT count(*) n FROM t WHERE {where}"
        assert DIRECT in way(lake, query)
        agree(lake, query, monkeypatch)
    assert fetch(lake.sql("SELECT count(*) n FROM t WHERE f > 5", engine="duckdb")).to_pylist() == [{"n": 1}]


def evolve(lake: bitlake.Lake) -> None:
    lake.table("t").alter(rename={"s": "old"}, add={"s": "STRING"})
    lake.table("t").append(pa.table({"id": [1], "old": ["o"], "s": ["new"]}))


def widen(lake: bitlake.Lake) -> None:
    lake.sql("ALTER TABLE t ALTER COLUMN n TYPE BIGINT", engine="duckdb")


def add_columns(lake: bitlake.Lake) -> None:
    lake.table("t").alter(add={"more": "INT"})


SELECTED = "rows are chosen by indexes or page bounds, deleted, or merged by key"
CHANGED = "columns have changed since a file was written, or it stores them in another way"
QUERY = "SELECT id, s FROM t"
NUMBERED = ROWS.append_column("n", pa.array(range(1000), pa.int32()))


@pytest.mark.parametrize(
    ("change", "query", "reason"),
    [
        (lambda lake: lake.table("t").append(ROWS), QUERY, DIRECT),
        (lambda lake: lake.table("t").delete("id < 10"), QUERY, SELECTED),
        (evolve, QUERY, CHANGED),
        (evolve, "SELECT id FROM t", DIRECT),
        (widen, "SELECT n FROM t", CHANGED),
        (widen, QUERY, DIRECT),
        (add_columns, QUERY, DIRECT),
        (add_columns, "SELECT more FROM t", CHANGED),
        (lambda lake: None, "SELECT id FROM t WHERE s = 's3'", SELECTED),
        (lambda lake: None, "SELECT s FROM t WHERE id > 5000", "no file is read"),
        (lambda lake: None, "SELECT s FROM t WHERE length(s) = 2 AND id % 3 = 1", DIRECT),
        (lambda lake: None, "SELECT file_path FROM t$files", "not those of one branch's files"),
    ],
)
def test_changed_tables_agree(
    lake: bitlake.Lake,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[bitlake.Lake], Any],
    query: str,
    reason: str,
) -> None:
    lake.create_table("t", NUMBERED, options={"file-index.bitmap.columns": "s", "deletion-vectors.enabled": "true"})
    change(lake)
    assert reason in way(lake, query)
    agree(lake, query, monkeypatch)


def test_ranges_of_pages(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows side by side are DuckDB's; few rows, or pages far apart, are read by the page."""
    monkeypatch.setattr(page_pruning, "WORTH_BYTES", 0)
    ids = range(400_000)
    lake.create_table("t", pa.table({"id": pa.array(ids, pa.int64()), "s": [f"text {i % 7919}" for i in ids]}))
    for where, direct in (
        ("id BETWEEN 200000 AND 270000", True),
        ("id BETWEEN 200000 AND 210000", False),
        ("id IN (5, 100005, 200005, 300005)", False),
    ):
        query = f"SELECT count(*) n, sum(id) total, max(s) last FROM t WHERE {where}"
        assert lake.table("t").scan(where=where).plan().files[0].by_pages
        assert (DIRECT in way(lake, query)) == direct, where
        agree(lake, query, monkeypatch)


def test_primary_keys(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_table("t", ROWS, primary_key=["id"], options={"bucket": "1"})
    assert DIRECT in way(lake, QUERY)
    table.upsert(pa.table({"id": [1, 5000], "s": ["changed", "new"]}))
    assert SELECTED in way(lake, QUERY)
    assert agree(lake, "SELECT count(*) n FROM t", monkeypatch).to_pylist() == [{"n": 1001}]
    table.delete("id < 500")
    table.maintenance.compact(full=True)
    assert DIRECT in way(lake, QUERY)
    assert agree(lake, QUERY, monkeypatch).num_rows == 501


def test_folders_of_partitions_are_no_columns(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"day": [dt.date(2026, 1, 1), None], "code": ["007", "a b=c"], "v": [1, 2]})
    lake.create_table("t", rows, partition_by=["day", "code"])
    assert DIRECT in way(lake, "SELECT * FROM t")
    made = agree(lake, "SELECT * FROM t ORDER BY v", monkeypatch)
    assert made.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("folder", ["a*", "a?b", "a[b]", "{a,b}", "it's"])
def test_paths_are_not_patterns(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (folder, "ab", "aXb", "a", "b"):
        lake = bitlake.connect(str(tmp_path / name))
        lake.create_table("t", pa.table({"id": [1], "s": [name]}))
    lake = bitlake.connect(str(tmp_path / folder))
    assert (DIRECT in way(lake, QUERY)) == (folder == "it's")
    assert agree(lake, QUERY, monkeypatch).to_pylist() == [{"id": 1, "s": folder}]


def test_a_file_that_is_gone(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", ROWS)
    bound = lake.sql(QUERY, engine="duckdb")
    shutil.rmtree(Path(table.dataset().files[0]).parent)
    with pytest.raises(EvaluationFailed, match="DuckDB cannot read the files; if snapshots expired, query again"):
        fetch(bound)
    lake.clear_cache()  # it holds the footers, and the data of small files with them
    with pytest.raises(NotFound, match="its snapshot has expired meanwhile"):
        fetch(lake.sql(QUERY, engine="duckdb"))


def test_queries_do_not_share_names(lake: bitlake.Lake) -> None:
    """All queries of a lake run in one instance of DuckDB."""
    lake.create_table("t", ROWS)
    lake.create_table("u", pa.table({"id": [7], "s": ["u"]}))
    first, second = lake.sql(QUERY, engine="duckdb"), lake.sql("SELECT id, s FROM u", engine="duckdb")
    assert (len(first.fetchall()), second.fetchall()) == (1000, [(7, "u")])


@pytest.mark.parametrize(
    ("values", "direct"),
    [
        (pa.array(["x", "y"]), True),
        (pa.array(["x", "y"], pa.large_string()), False),
        (pa.array([dt.datetime(2026, 1, 1), None], pa.timestamp("us")), True),
    ],
)
def test_migrated_files(
    values: pa.Array,
    direct: bool,
    lake: bitlake.Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files that others wrote may store a column in a way that DuckDB reads as another type."""
    (tmp_path / "old" / "p=7").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2], "s": values}), tmp_path / "old" / "p=7" / "a")
    migrate_folder(lake._catalog, str(tmp_path / "old"), Identifier("default", "t"))
    assert (DIRECT in way(lake, QUERY)) == direct
    agree(lake, QUERY, monkeypatch)
    assert CHANGED in way(lake, "SELECT id, p FROM t")  # the folder has it, and no file
    assert agree(lake, "SELECT id, p FROM t WHERE id = 1", monkeypatch).to_pylist() == [{"id": 1, "p": 7}]


def test_bounds_of_old_writers(lake: bitlake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A footer without column orders may hold bounds of texts as signed bytes, which DuckDB trusts."""
    lake.create_table("t", ROWS)
    footer = duckdb_engine.footer_of
    monkeypatch.setattr(duckdb_engine, "footer_of", lambda *a: replace(footer(*a), type_ordered=(True, False)))
    assert CHANGED in way(lake, QUERY) and DIRECT in way(lake, "SELECT id FROM t")


def test_the_scan_is_recorded(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"), record_scans=True)
    table = lake.create_table("t", ROWS)
    fetch(lake.sql("SELECT id FROM t WHERE id % 2 = 1 AND s LIKE 's%'", engine="duckdb"))
    (record,) = table.indexes.scans()
    assert record.engine == "duckdb" and "s LIKE 's%'" in record.where
