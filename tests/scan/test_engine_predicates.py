"""Generated predicates over datasets: the engine's own rows, and no file or row that `scan(where=…)` would not read.

A part of a predicate counts as pushed if a condition reached bitlake's scan that selects, of all rows, only those for
which the part is TRUE, and that names the columns that matter to it.  Rows with NaN in these may be among them,
since engines compare NaN in different ways.  A filter that DuckDB offers also counts where the plan shows that it
would prune nothing, so that it is left to DuckDB.
"""

from __future__ import annotations

import importlib.util
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from engine_predicates import COUNTED, Term, in_bitlake, in_datafusion, in_polars, in_sql, random_term
from fixtures import copy_warehouse
from interop.every_type import BITMAP_COLUMNS, BLOOM_COLUMNS, atomic_rows
from long import exhaustive, long

import bitlake
from bitlake.errors import UnsupportedFeature
from bitlake.expressions.binder import all_of, bind
from bitlake.expressions.evaluate import evaluate
from bitlake.expressions.tree import Predicate, columns_of
from bitlake.scan import duckdb_source
from bitlake.scan.dataset import ScanFragment
from bitlake.scan.plan import Plan
from bitlake.scan.scan import TableScan
from bitlake.sql import duckdb_engine

FIXTURES = ["every_index_embedded", "partitioned", "schema_evolution", "append_dv", "pk_dv", "pk_mor"]
LAKE_SQL = "lake.sql on DuckDB"
ENGINES = ["DuckDB", LAKE_SQL, "Polars lazy()", "Polars scan_pyarrow_dataset", "DataFusion"]
IN_ARROWS_WORDS = {"Polars scan_pyarrow_dataset", "DataFusion"}
"""Engines that translate filters to Arrow's expressions, which differ from their own for NaN and NULL."""
Answer = Callable[[Term], Counter[Any]]


class Subject:
    """A table, the rows of its full scan, and each engine's answers over the table and over these rows."""

    def __init__(self, lake: bitlake.Lake, table: bitlake.Table) -> None:
        self.lake = lake
        self.table = table
        self.rows = table.to_arrow()
        self.columns = [f.name for f in self.rows.schema if not pa.types.is_nested(f.type)]
        self.key = self.columns[0]

    def answers(self, engine: str) -> tuple[Answer, Answer]:
        """Over the table, and over the rows in memory."""
        dataset, memory = self.table.dataset(), ds.dataset(self.rows)
        if engine == "DuckDB":
            connection = duckdb.connect()
            connection.register("pushed", dataset)
            connection.from_arrow(self.rows).create("memory")
            return partial(self._duckdb, connection, "pushed"), partial(self._duckdb, connection, "memory")
        if engine == LAKE_SQL:
            connection = duckdb.connect()
            connection.from_arrow(self.rows).create("memory")
            return self._lake_sql, partial(self._duckdb, connection, "memory")
        if engine == "Polars lazy()":
            return partial(self._polars, self.table.lazy()), partial(self._polars, pl.DataFrame(self.rows).lazy())
        # Arrow filters the rows in memory as well.
        if engine == "DataFusion":
            return partial(self._datafusion, dataset), partial(self._datafusion, _Rows(self.rows))
        pushed, plain = (partial(self._polars, pl.scan_pyarrow_dataset(d)) for d in (dataset, memory))
        return pushed, plain

    def _duckdb(self, connection: Any, name: str, term: Term) -> Counter[Any]:
        query = f"SELECT {self.key} FROM {name} WHERE {in_sql(term)}"
        return Counter(k for (k,) in connection.execute(query).fetchall())

    def _lake_sql(self, term: Term) -> Counter[Any]:
        query = f"SELECT {self.key} FROM {self.table.name} WHERE {in_sql(term, spark=True)}"
        return Counter(k for (k,) in self.lake.sql(query, engine="duckdb").fetchall())

    def _polars(self, frame: pl.LazyFrame, term: Term) -> Counter[Any]:
        return Counter(frame.filter(in_polars(term)).select(self.key).collect()[self.key].to_list())

    def _datafusion(self, dataset: Any, term: Term) -> Counter[Any]:
        import datafusion  # tests run without it

        context = datafusion.SessionContext()
        context.register_dataset("t", dataset)
        found = context.table("t").filter(in_datafusion(term)).select(self.key)
        return Counter(found.to_arrow_table().column(0).to_pylist())

    def chosen(self, scan: TableScan, term: Term) -> Counter[Any]:
        """The keys of the rows that satisfy a scan's condition, without NaN in the term's columns."""
        assert scan.predicate is not None
        mask = evaluate(scan.predicate, self.rows, self.table.schema.fields)
        for name in term.columns():
            if pa.types.is_floating(self.rows.schema.field(name).type):
                mask = pc.and_not(mask, pc.fill_null(pc.is_nan(self.rows.column(name)), False))
        return Counter(self.rows.filter(mask).column(self.key).to_pylist())


class _Rows(ds.InMemoryDataset):  # type: ignore[misc]  # pyarrow has no type stubs
    """Rows in memory, which take what DataFusion makes of a condition that it folded: a scalar."""

    def get_fragments(self, filter: Any = None) -> Iterator[ScanFragment]:
        yield ScanFragment(self)

    def scanner(self, filter: Any = None, **options: Any) -> ds.Scanner:
        return super().scanner(filter=pc.scalar(filter) if isinstance(filter, pa.Scalar) else filter, **options)


def _every_type(lake: bitlake.Lake) -> bitlake.Table:
    """Four files of every atomic type, with edge values, NULL and NaN."""
    options = {
        "file-index.bitmap.columns": ",".join(BITMAP_COLUMNS),
        "file-index.bloom-filter.columns": ",".join(BLOOM_COLUMNS),
        "file-index.bsi.columns": "id,c_date",
        "file-index.in-manifest-threshold": "1 mb",
    }
    table = lake.create_table("every_type", atomic_rows(1_500, 1), options=options)
    for part in range(3):
        rows = atomic_rows(300, part + 2, distinct=2)
        table.append(rows.set_column(0, "id", pc.add(rows["id"], 1_500 + 300 * part)))
    return table


def _keyed(lake: bitlake.Lake) -> bitlake.Table:
    """A partitioned primary-key table with deletion vectors: upserted, deleted from, compacted, evolved."""
    rows = atomic_rows(1_000, 7)
    rows = rows.append_column("part", pa.array([i % 4 for i in range(len(rows))], pa.int32()))
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "file-index.bitmap.columns": "c_str,c_tiny"}
    table = lake.create_table("keyed", rows, primary_key=["part", "id"], partition_by=["part"], options=options)
    table.upsert(rows.slice(100, 300).set_column(5, "c_big", pa.array(range(300), pa.int64())))
    table.delete("id BETWEEN 500 AND 540")
    table.maintenance.compact()
    table.add_column("later", "INT")
    table.rename_column("c_small", "small")
    table.alter_column("c_tiny", type="INT")
    names = ["small" if c == "c_small" else c for c in rows.column_names]
    table.upsert(rows.slice(900).rename_columns(names).append_column("later", pa.array(range(100), pa.int32())))
    return table


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> list[Subject]:
    lake = bitlake.connect(copy_warehouse(tmp_path_factory.mktemp("lake"), *FIXTURES))
    return [Subject(lake, t) for t in (_every_type(lake), _keyed(lake), *map(lake.table, FIXTURES))]


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[TableScan]:
    """The scans that were read, or given to DuckDB with their files, in order."""
    seen: list[TableScan] = []
    read = TableScan._read

    def watched(self: TableScan, *arguments: Any, **options: Any) -> Iterator[pa.Table]:
        seen.append(self)
        return read(self, *arguments, **options)

    bind = duckdb_engine.bind_scans

    def bound(connection: Any, scans: Mapping[str, TableScan]) -> Any:
        seen.extend(scans.values())
        return bind(connection, scans)

    monkeypatch.setattr(TableScan, "_read", watched)
    monkeypatch.setattr(duckdb_engine, "bind_scans", bound)
    return seen


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> list[Predicate]:
    """The filters that DuckDB offered to a dataset, in order."""
    seen: list[Predicate] = []
    judge = duckdb_source.take_selective
    monkeypatch.setattr(duckdb_source, "take_selective", lambda s, term: (seen.append(term), judge(s, term))[1])
    return seen


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("predicates", [5, exhaustive(15), long(30), long(100)])
def test_engines_read_what_a_scan_reads(
    subjects: list[Subject],
    scans: list[TableScan],
    offered: list[Predicate],
    engine: str,
    predicates: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    count = int(os.environ.get("BITLAKE_PREDICATES", predicates))
    if engine == "DataFusion" and importlib.util.find_spec("datafusion") is None:
        pytest.skip("DataFusion is not installed")
    rng = random.Random(count)
    asked, pushed = Counter[str](), Counter[str]()
    planned = refused = 0
    answers = [(s, *s.answers(engine)) for s in subjects]
    for i in range(count):
        subject, over_table, over_rows = answers[i % len(subjects)]
        term = random_term(rng, subject.rows, subject.columns, rng.randrange(4))
        scans.clear()
        offered.clear()
        expected = over_rows(term)
        parts = Counter(n.kind for n in term.nodes())
        asked.update(parts)
        try:
            assert over_table(term) == expected, f"{subject.table.name}: {term}"
        except UnsupportedFeature:
            assert engine == LAKE_SQL
            refused += 1
            continue
        if not scans:  # the engine saw that no row can satisfy it
            pushed.update(parts)
            continue
        scan, *parts_of_it = scans  # DuckDB reads a bound scan through Arrow where it cannot read the files itself
        assert all(s.predicate == scan.predicate and set(s.columns) <= set(scan.columns) for s in parts_of_it)
        reached = Counter(_pushed(term, subject, scan.where_bound(all_of(offered)), expected, over_rows))
        pushed.update(reached)
        if reached == parts and _same_meaning(engine, term) and expected == Counter(_keys(subject, term)):
            planned += 1
            where = subject.table.scan(list(scan.columns), in_bitlake(term)).plan()
            assert _rows_outside(scan.plan(), where) == {}, f"{subject.table.name}: {term}"
    shares = ", ".join(f"{k} {pushed[k]} of {asked[k]} ({pushed[k] / asked[k]:.1%})" for k in COUNTED)
    with capsys.disabled() if count > 100 else nullcontext():
        print(f"\n{engine}: {count} predicates, {planned} plans compared, {refused} left to Spark; pushed: {shares}")


def _same_meaning(engine: str, term: Term) -> bool:
    """Whether a filter of an engine means what bitlake's condition does: below NOT, theirs may keep NULL."""
    return engine not in IN_ARROWS_WORDS or not any(n.kind == "NOT" or n.operator == "NOT IN" for n in term.nodes())


def _keys(subject: Subject, term: Term) -> list[Any]:
    return subject.table.to_arrow([subject.key], in_bitlake(term)).column(0).to_pylist()


def _pushed(term: Term, subject: Subject, scan: TableScan, expected: Counter[Any], engine: Answer) -> Iterator[str]:
    """The kinds of the term's parts that reached the scan."""
    if scan.predicate is None:
        return
    whole = bind(in_bitlake(term).predicate, subject.table.schema.fields)
    if columns_of(whole) <= columns_of(scan.predicate) and subject.chosen(scan, term) <= expected:
        yield from (n.kind for n in term.nodes())
    elif term.kind == "AND":
        for part in term.parts:
            yield from _pushed(part, subject, scan, engine(part), engine)


def _rows_outside(plan: Plan, other: Plan) -> dict[str, int]:
    """The number of rows, by file, that one plan reads and another does not."""
    read = {f.path: f for f in other.files}
    outside = {}
    for file in plan.files:
        rows = file.selection.positions(file.row_count)
        if file.path in read:
            rows = np.setdiff1d(rows, read[file.path].selection.positions(file.row_count))
        if len(rows):
            outside[file.path] = len(rows)
    return outside
