"""Laws: whatever a table holds and however it is laid out, a scan finds exactly the rows that a plain loop finds."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from expressions.oracle import truth
from hypothesis import given, settings
from hypothesis import strategies as st
from long import exhaustive, long

import bitlake
from bitlake.catalog.catalog import Identifier
from bitlake.expressions.evaluate import physical_array
from bitlake.expressions.tree import And, Comparison, Constant, In, IsNull, Like, Op, Or, Predicate
from bitlake.fileindex.registry import INDEX_TYPES
from bitlake.scan import reader as read
from bitlake.schema.create import ColumnSpec
from bitlake.types import DataField, arrow_schema, parse_type
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan, Overwrite

FLOATS = [float("nan"), -0.0, 0.0, 1.5, -1.5, float("inf"), float("-inf")]
TEXTS = [
    "",
    "a",
    "ab",
    "b%",
    "a_b",
    "ä",
    "\U0001f600",
    "a\nb",
    "z\ud7ff",
    "long " * 20,
    "a/b=c",
    "__DEFAULT_PARTITION__",
]
DAY = 86_400_000_000
KINDS: dict[str, tuple[str, list[Any]]] = {
    "bool": ("BOOLEAN", [True, False]),
    "tiny": ("TINYINT", [-128, -1, 0, 1, 127]),
    "small": ("SMALLINT", [-32768, -1, 0, 1, 32767]),
    "int": ("INT", [-(2**31), -2, -1, 0, 1, 2, 2**31 - 1]),
    "big": ("BIGINT", [-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1]),
    "f": ("FLOAT", FLOATS),
    "d": ("DOUBLE", [*FLOATS, 5e-324, 1.7976931348623157e308]),
    "dec9": ("DECIMAL(9, 2)", [-(10**9) + 1, -1, 0, 5, 10**9 - 1]),
    "dec18": ("DECIMAL(18, 4)", [-(10**18) + 1, -1, 0, 5, 10**18 - 1]),
    "dec38": ("DECIMAL(38, 10)", [-(10**38) + 1, -1, 0, 5, 10**19, 10**38 - 1]),
    "s": ("STRING", TEXTS),
    "vc": ("VARCHAR(5)", ["", "a", "ab", "äöü", "b%"]),
    "ch": ("CHAR(3)", ["a  ", "ab ", "abc", "ä  "]),
    "x": ("BYTES", [b"", b"\x00", b"\xff", b"a", b"\xff" * 40]),
    "day": ("DATE", [-719162, -1, 0, 18000, 2932896]),
    "time": ("TIME(3)", [0, 1, 86_399_999]),
    "ts3": ("TIMESTAMP(3)", [-1, 0, 1, 10**12]),
    "ts6": ("TIMESTAMP(6)", [-DAY, -1, 0, 1, 10**15]),
    "ltz3": ("TIMESTAMP(3) WITH LOCAL TIME ZONE", [-1, 0, 1, 10**12]),
    "ltz6": ("TIMESTAMP(6) WITH LOCAL TIME ZONE", [-DAY, -1, 0, 1, 10**15]),
}
NO_PARTITION = {"x", "time"}
WHERE = {
    "k = 7": 1000,
    "k IN (3, 59)": 2000,
    "k >= 20": 40_000,
    "k < 1 OR s = 'text 59999'": 1001,
    "k IS NOT NULL": 60_000,
}
PATTERNS = ["a%", "%b", "%a%", "a_b", "_", "%", "a\\_b", "ä%", "z%", "long %"]


@dataclass(frozen=True)
class Case:
    """A table to make, what to put into it, and questions."""

    names: list[str]
    partition_by: list[str]
    options: dict[str, str]
    appends: list[list[dict[str, Any]]]
    predicates: list[Predicate]
    limit: int
    columns: list[str]
    late_pages: float


def leaves(names: list[str]) -> st.SearchStrategy[Predicate]:
    @st.composite
    def leaf(draw: st.DrawFn) -> Predicate:
        name = draw(st.sampled_from(names))
        value = st.sampled_from(KINDS[name][1]).map(lambda v: v + 0.0 if isinstance(v, float) else v)
        negated = draw(st.booleans())
        which = draw(st.integers(0, 4))
        if which == 0:
            return IsNull(name, negated)
        if which == 1:
            distinct = list({repr(v): v for v in draw(st.lists(value, min_size=1, max_size=4))}.values())
            plain = sorted(v for v in distinct if v == v)
            return In(name, tuple(plain + [v for v in distinct if v != v]), negated)
        if which == 2 and name in ("s", "vc"):
            return Like(name, draw(st.sampled_from(PATTERNS)), negated)
        return Comparison(name, Op.EQ if which == 3 else draw(st.sampled_from(list(Op))), draw(value))

    return leaf()


def trees(names: list[str]) -> st.SearchStrategy[Predicate]:
    return st.recursive(
        leaves(names) | st.just(Constant(None)),
        lambda inner: (
            st.lists(inner, min_size=1, max_size=3).map(lambda c: And(tuple(c)))
            | st.lists(inner, min_size=1, max_size=3).map(lambda c: Or(tuple(c)))
        ),
        max_leaves=5,
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5, unique=True))
    may = [n for n in names if n not in NO_PARTITION]
    partition_by = draw(st.lists(st.sampled_from(may), max_size=2, unique=True)) if may else []
    options = {
        "file-index.in-manifest-threshold": draw(st.sampled_from(["1 b", "300 b", "1 mb"])),
        "target-file-row-num": draw(st.sampled_from(["7", "25", "1000"])),
    }
    for kind, index in sorted(INDEX_TYPES.items()):
        able = [n for n in names if n not in partition_by and index.supports(parse_type(KINDS[n][0]))]
        chosen = draw(st.lists(st.sampled_from(able), max_size=3, unique=True)) if able else []
        if not index.in_paimon:
            options |= {f"bitlake.index.{kind}_{name}": f"{kind}({name})" for name in chosen}
        elif chosen:
            options[f"file-index.{kind}.columns"] = ",".join(chosen)
            if kind == "bitmap":
                options[f"file-index.bitmap.{chosen[0]}.version"] = draw(st.sampled_from(["1", "2"]))
    if draw(st.booleans()):
        options |= {"bucket": draw(st.sampled_from(["1", "3"])), "bucket-key": "id"}
    row = st.fixed_dictionaries({n: st.none() | st.sampled_from(KINDS[n][1]) for n in names})
    return Case(
        names=names,
        partition_by=partition_by,
        options=options,
        appends=draw(st.lists(st.lists(row, max_size=40), min_size=1, max_size=3)),
        predicates=draw(st.lists(trees(names), min_size=3, max_size=3)),
        limit=draw(st.integers(0, 30)),
        columns=draw(st.lists(st.sampled_from([*names, "id"]), min_size=1, unique=True)),
        late_pages=draw(st.sampled_from([0.5, 1e9])),
    )


def to_arrow(rows: list[dict[str, Any]], fields: tuple[DataField, ...]) -> pa.Table:
    arrays = [physical_array(f, [r[f.name] for r in rows]) for f in fields]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(fields))


def text(table: pa.Table) -> list[str]:
    """Rows as sorted text, in which NaN is equal to itself and -0.0 is not 0.0."""
    return sorted(repr(r) for r in table.to_pylist())


@pytest.mark.parametrize("examples", [8, exhaustive(20), long(60)])
def test_a_scan_finds_what_a_loop_finds(examples: int) -> None:
    @settings(max_examples=examples)
    @given(cases())
    def run(case: Case) -> None:
        look(case)

    run()


def look(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "LATE_PAGES", case.late_pages)
        patch.setattr(read, "IN_ORDER_ROWS", 0)
        lake = bitlake.connect(folder)
        columns = [ColumnSpec("id", parse_type("BIGINT"))]
        columns += [ColumnSpec(n, parse_type(KINDS[n][0])) for n in case.names]
        lake._catalog.create_table(
            Identifier("default", "t"), columns, partition_keys=case.partition_by, options=case.options
        )
        table = lake.table("t")
        fields = table.schema.fields
        numbers = itertools.count()
        rows: list[dict[str, Any]] = []
        for append in case.appends:
            batch = [{"id": next(numbers), **r} for r in append]
            table.append(to_arrow(batch, fields))
            rows += batch
        assert text(table.scan().to_arrow()) == text(to_arrow(rows, fields))
        for predicate in case.predicates:
            check(table, rows, predicate, case)


def check(table: bitlake.Table, rows: list[dict[str, Any]], predicate: Predicate, case: Case) -> None:
    fields = table.schema.fields
    matching = [r for r in rows if truth(predicate, r) is True]
    wanted = to_arrow(matching, fields)
    scan = bitlake.Scan(table.scan()._core.where_bound(predicate))
    found = scan.to_arrow()
    assert text(found) == text(wanted), case
    assert text(scan.without_index().to_arrow()) == text(wanted)
    assert scan.count() == len(matching)
    batches = list(scan.to_batches())
    assert all(b.schema.equals(found.schema) for b in batches)
    assert text(pa.Table.from_batches(batches, found.schema)) == text(found)
    some = scan.select(case.columns).to_arrow()
    assert some.column_names == case.columns
    assert text(some) == text(wanted.select(case.columns))
    limited = scan.limit(case.limit).to_arrow()
    assert limited.num_rows == min(case.limit, len(matching))
    assert set(text(limited)) <= set(text(wanted))
    # What the plan chose of each file: never less than what matches, and just that where it says so.
    plan = scan.plan()
    assert not plan.problems
    true = {r["id"] for r in matching}
    for file in plan.files:
        ids = pq.read_table(file.path, columns=["id"], partitioning=None).column("id").to_pylist()
        chosen = {ids[i] for i in file.selection.positions(file.row_count).tolist()}
        here = true & set(ids)
        assert here <= chosen
        if file.selection.exact:
            assert here == chosen


def test_late_reading_over_several_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Survivors in none, few and all of the pages of a run of row groups; runs of one group and of several."""
    rows = pa.table(
        {
            "id": pa.array(range(60_000)),
            "k": pa.array([i // 1000 for i in range(60_000)], pa.int32()),
            "s": pa.array([f"text {i}" for i in range(60_000)]),
            "n": pa.array([[i] * (i % 3) for i in range(60_000)], pa.list_(pa.int32())),
        }
    )
    table = bitlake.connect(str(tmp_path)).create_table("t", rows.schema)
    table.append(rows)
    (file,) = table.scan().plan().files
    # Our own writer makes larger row groups: put a file of small ones in the place of what it wrote.
    path = Path(file.path)
    pq.write_table(rows, path, row_group_size=10_000, write_page_index=True, max_rows_per_page=1000)
    entry = dataclasses.replace(
        file.entry, file=dataclasses.replace(file.entry.file, file_size=path.stat().st_size, file_name=f"0-{path.name}")
    )
    path.rename(path.with_name(entry.file.file_name))
    plan = CommitPlan("OVERWRITE", (entry,), overwrite=Overwrite())
    commit(table._core.store, table._core.state().paths, plan, table.schema, "test")
    for run_rows in (1, 25_000, 1 << 20):
        monkeypatch.setattr(read, "_RUN_ROWS", run_rows)
        for where, count in WHERE.items():
            got = table.scan(where=where, columns=["s", "id", "k", "n", read.ROW_INDEX]).to_arrow()
            assert got.num_rows == count == table.scan(columns=["id"], where=where).count()
            assert got.column("id").to_pylist() == got.column(read.ROW_INDEX).to_pylist()
            wanted = rows.take(got.column("id")).select(["s", "id", "k", "n"])
            assert got.drop_columns([read.ROW_INDEX]).equals(wanted.cast(got.schema.remove(4)))
        narrow = table.scan(where="k = 7", columns=["id", "s"])
        assert narrow.to_arrow().num_rows == 1000
        assert 0 < narrow.plan().metrics.pages_read <= 4
