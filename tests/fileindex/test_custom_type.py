"""An index type of its own, defined and registered here alone: everything that built-in types have, it has.

``block-bounds`` keeps the smallest and largest value of each 64 rows::

    u1 version=1 | i4 rows | blocks x ( u1 bits: 1 has values, 2 has NULLs | i8 smallest | i8 largest )

CONTRIBUTING.md cites it as the example of "add an index type".
"""

from __future__ import annotations

import operator
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

import bitlake
from bitlake.codec.bytes import Reader
from bitlake.codec.roaring import bitmap_of
from bitlake.errors import CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.expressions.tree import Comparison, In, IsNull, Leaf, Op
from bitlake.fileindex import registry
from bitlake.fileindex.capabilities import ColumnFacts, IndexType
from bitlake.fileindex.container import encode_container, read_header
from bitlake.fileindex.payload import Fetch, LazyBytes, Page, Section
from bitlake.fileindex.selection import Selection
from bitlake.table.table import Table
from bitlake.types import AtomicType, DataType, Root

BLOCK = 64
HEAD = 5
BOUNDS = np.dtype([("bits", "u1"), ("low", ">i8"), ("high", ">i8")])
VALUES, NULLS = 1, 2


class Writer:
    def __init__(self) -> None:
        self.columns: list[pa.Array] = []

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        self.columns += column.chunks if isinstance(column, pa.ChunkedArray) else [column]

    def finish(self) -> bytes:
        column = pa.chunked_array(self.columns, pa.int64()).combine_chunks()
        blocks = np.zeros(-(-len(column) // BLOCK), BOUNDS)
        for number, start in enumerate(range(0, len(column), BLOCK)):
            block = column.slice(start, BLOCK)
            present = block.drop_null().to_numpy()
            bits = VALUES * (len(present) > 0) + NULLS * (block.null_count > 0)
            blocks[number] = (bits, present.min(initial=2**62), present.max(initial=-(2**62)))
        return b"\x01" + len(column).to_bytes(4, "big") + blocks.tobytes()


class BlockBounds:
    """Evaluates comparisons and ``IS [NOT] NULL`` by block; also estimates costs, and tells MIN and MAX."""

    def __init__(self, payload: LazyBytes, row_count: int) -> None:
        self.payload = payload
        self.row_count = row_count

    def blocks(self) -> Any:
        version, rows = self.payload.view(0, 1)[0], Reader(self.payload.view(1, 4), 1).i4()
        if version != 1 or rows != self.row_count or self.payload.length != HEAD + -(-rows // BLOCK) * BOUNDS.itemsize:
            raise CorruptError(f"this is not a block-bounds index of {self.row_count} rows", 0)
        return np.frombuffer(self.payload.view(HEAD, self.payload.length - HEAD), BOUNDS)

    def _possible(self, leaf: Leaf) -> Any:
        found = self.blocks()
        low, high, bits = found["low"].astype(np.int64), found["high"].astype(np.int64), found["bits"]
        values = bits & VALUES > 0
        match leaf:
            case IsNull(_, negated):
                return values if negated else bits & NULLS > 0
            case Comparison(_, Op.EQ, value):
                return values & (low <= value) & (value <= high)
            case Comparison(_, Op.LT | Op.LE as op, value):
                return values & (low < value if op is Op.LT else low <= value)
            case Comparison(_, Op.GT | Op.GE as op, value):
                return values & (high > value if op is Op.GT else high >= value)
            case In(_, listed, False):
                return values & np.logical_or.reduce([(low <= v) & (v <= high) for v in listed])
        return None

    def test(self, leaf: Leaf) -> Selection | None:
        possible = self._possible(leaf)
        if possible is None:
            return None
        rows = np.flatnonzero(np.repeat(possible, BLOCK)[: self.row_count])
        return Selection.of(bitmap_of(rows), exact=False)

    def bytes_to_read(self, leaf: Leaf, length: int, rows: int) -> int:
        return length

    def selectivity(self, leaf: Leaf) -> float | None:
        possible = self._possible(leaf)
        return None if possible is None else float(possible.mean())

    def extremes(self, rows: BitMap | None) -> pa.Array | None:
        found = self.blocks()
        held = found[found["bits"] & VALUES > 0]
        if rows is not None:
            return None
        return pa.array(sorted({int(held["low"].min()), int(held["high"].max())} if len(held) else set()), pa.int64())

    def difference(self, rebuilt: BlockBounds) -> str | None:
        odd = np.flatnonzero(self.blocks() != rebuilt.blocks())
        return f"it has wrong bounds for {len(odd):,} blocks, the first of row {int(odd[0]) * BLOCK:,}"


class BlockBoundsType(IndexType):
    name = "block-bounds"
    accepts = "block-bounds takes BIGINT"

    def supports(self, kind: DataType) -> bool:
        return isinstance(kind, AtomicType) and kind.root is Root.BIGINT

    def writer(self, kind: DataType, options: Mapping[str, str]) -> Writer:
        return Writer()

    def reader(self, kind: DataType, fetch: Fetch, length: int, row_count: int) -> BlockBounds:
        return BlockBounds(LazyBytes(fetch, length), row_count)

    def describe(self, section: Section, payload: LazyBytes, kind: DataType | None, page: Page | None) -> None:
        rows = Reader(payload.view(1, 4), 1).i4()
        section.facts.update({"version": payload.view(0, 1)[0], "rows": rows})
        section.add("head", 0, HEAD)
        blocks = section.add("blocks", HEAD, payload.length - HEAD)
        if page is not None:
            found = np.frombuffer(payload.view(HEAD, payload.length - HEAD), BOUNDS)
            for number in page.of(len(found)):
                low, high = int(found[number]["low"]), int(found[number]["high"])
                blocks.add(
                    f"block {number}", HEAD + number * BOUNDS.itemsize, BOUNDS.itemsize, {"": f"{low} to {high}"}
                )
            blocks.more = page.left(len(found))

    def stored_rows(self, payload: LazyBytes) -> int | None:
        return Reader(payload.view(1, 4), 1).i4()

    def trial_options(self, column: ColumnFacts) -> Mapping[str, str] | None:
        return {}

    def suitability(self, leaf: Leaf, kind: DataType) -> int:
        return 9


BLOCK_BOUNDS = BlockBoundsType()
OPTION = "file-index.block-bounds.columns"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    registry.register(BLOCK_BOUNDS)
    yield
    del registry.INDEX_TYPES["block-bounds"]


# --- rows: the values of a block are close, blocks in no order, so that pages and files span nearly all values --------

ROWS = 200_000
_blocks = np.random.default_rng(14).permutation(-(-ROWS // BLOCK))
_values = np.repeat(_blocks, BLOCK)[:ROWS] * 1000 + np.random.default_rng(1).integers(0, 500, ROWS)
_null = np.arange(ROWS) % 6400 >= 6390
TABLE = pa.table(
    {
        "id": np.arange(ROWS),
        "v": pa.array(_values, mask=_null),
        "note": pa.array([f"note {i * 7919}" for i in range(ROWS)]),
    }
)


def made(home: Path, threshold: str = "0b", index: bool = True, rows: pa.Table = TABLE) -> Table:
    options = {"file-index.in-manifest-threshold": threshold, **({OPTION: "v"} if index else {})}
    table = bitlake.connect(str(home)).create_table("t", rows.schema, options=options)
    table.append(rows)
    return table


OPS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def check_answers(table: Table, rows: pa.Table) -> None:
    """Every predicate's rows equal brute force, and those that the index evaluates skip rows."""
    ids, values = rows.column("id").to_pylist(), rows.column("v").to_pylist()
    for value in (int(_values[7]), int(_values[100_000]) + 1, 500, 700, -1, 10**9):
        for text, op in OPS.items():
            expected = [i for i, v in zip(ids, values, strict=True) if v is not None and op(v, value)]
            scan = table.scan(["id"], where=f"v {text} {value}")
            assert scan.to_arrow().column("id").to_pylist() == expected
            assert scan.plan().chosen_rows <= len(expected) + 2 * BLOCK or len(expected) > 0.3 * len(values)
    nulls = [i for i, v in zip(ids, values, strict=True) if v is None]
    scan = table.scan(["id"], where="v IS NULL")
    assert scan.to_arrow().column("id").to_pylist() == nulls and 0 < scan.plan().chosen_rows < len(values) / 10


@pytest.mark.parametrize("threshold", [pytest.param("0b", marks=pytest.mark.exhaustive), "1mb"])
def test_rows_are_skipped_and_answers_equal_brute_force(tmp_path: Path, threshold: str) -> None:
    table = made(tmp_path, threshold)
    embedded = [e.file.embedded_index is not None for e in table._core.state().entries()]
    assert embedded == [threshold == "1mb"] and len(list(Path(table.path).rglob("*.index"))) == (threshold == "0b")
    check_answers(table, TABLE)
    plan = table.scan(where=f"v = {int(_values[7])}").plan()
    assert plan.files[0].pruned_by == ("block-bounds(v)",) and plan.chosen_rows == BLOCK
    assert "block-bounds(v)" in table.scan(where=f"v = {int(_values[7])}").explain()
    # Half of the rows match: the estimate says so, and the index is not used.
    assert "about 50 % of the rows" in table.scan(where=f"v < {500 * len(_blocks)}").plan().files[0].unused_indexes[0]
    # A file without a matching row is skipped as a whole.
    assert not table.scan(where=f"v = {int(_values[7]) // 1000 * 1000 + 700}").plan().files


def test_metadata_answers_use_its_bounds(tmp_path: Path) -> None:
    options = {OPTION: "v", "metadata.stats-mode": "none"}
    table = bitlake.connect(str(tmp_path)).create_table("t", TABLE.schema, options=options)
    table.append(TABLE)
    present = TABLE.column("v").drop_null().to_pylist()
    scan = table.scan()
    assert scan.min_max("v") == (min(present), max(present))
    assert scan.plan().metrics.answered_by == {"index": 1}


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="block-bounds takes BIGINT"):
        bitlake.connect(str(tmp_path)).create_table("t", TABLE.schema, options={OPTION: "note"})
    unknown = {OPTION: "v", "file-index.block-bounds.v.x": "1"}
    with pytest.raises(InvalidRequest, match="block-bounds has no option 'x'; its options are none"):
        bitlake.connect(str(tmp_path)).create_table("t", TABLE.schema, options=unknown)
    with pytest.raises(InvalidRequest, match="'block-bounds' is registered already"):
        registry.register(BlockBoundsType())


def test_files_written_before_get_it(tmp_path: Path) -> None:
    table = made(tmp_path, index=False)
    assert not list(Path(table.path).rglob("*.index"))
    table.alter_options({OPTION: "v"})
    assert [done.built for done in table.indexes.rebuild()] == [("block-bounds(v)",)]
    assert table.indexes.rebuild()[0].new is None, "a second run finds nothing to do"
    check_answers(table, TABLE)


def test_it_is_listed_and_described(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    table = made(tmp_path)
    listed = lake.table("t$file_indexes").scan().to_arrow().to_pylist()
    assert [(r["column_name"], r["index_type"], r["distinct_values"], r["problem"]) for r in listed] == [
        ("v", "block-bounds", None, None)
    ]
    name = next(Path(table.path).rglob("*.index")).name
    found = table.maintenance.inspect(name, column="v", value=int(_values[7]), offset=2, limit=3)
    node = found.root.find("v", "block-bounds")
    blocks = node.find("blocks")
    assert node.facts["rows"] == ROWS and not found.faults
    assert [b.name for b in blocks.children] == ["block 2", "block 3", "block 4"]
    assert node.offset is not None and blocks.children[0].offset == node.offset + HEAD + 2 * BOUNDS.itemsize
    content = next(Path(table.path).rglob("*.index")).read_bytes()
    bounds = np.frombuffer(content, BOUNDS, 1, blocks.children[0].offset)[0]
    assert blocks.children[0].facts[""] == f"{bounds['low']} to {bounds['high']}"
    assert "block-bounds(v)" in str(found) and "at most 64 rows: " in str(found)


def test_damage_is_found(tmp_path: Path) -> None:
    table = made(tmp_path)
    assert not table.maintenance.verify().findings
    path = next(Path(table.path).rglob("*.index"))
    content = path.read_bytes()
    start, length = read_header(content).columns["v"]["block-bounds"]
    payload = content[start : start + length]
    last = length - BOUNDS.itemsize + 1
    for damaged, code, what in (
        (payload[:last] + bytes(8) + payload[last + 8 :], "index-wrong", "wrong bounds for 1 blocks"),
        (bytes(1) + payload[1:], "index-unreadable", "not a block-bounds index"),
    ):
        path.write_bytes(encode_container({"v": {"block-bounds": damaged}}))
        findings = table.maintenance.verify().findings
        assert [f.code for f in findings] == [code] and what in findings[0].what
    # A scan answers without it, and says why.
    table._core.store.caches.clear()
    scan = table.scan(["id"], where=f"v = {int(_values[7])}")
    assert scan.to_arrow().num_rows > 0 and "index 'block-bounds' of column 'v'" in str(scan.plan().problems)


def test_it_is_advised(tmp_path: Path) -> None:
    table = made(tmp_path, index=False)
    advice = table.indexes.advise([f"v = {int(_values[7])}", f"v = {int(_values[150_000])}"], engine="python")
    column = next(c for c in advice.columns if c.column == "v")
    assert "block-bounds" in [t.index_type for t in column.tried]
    assert column.chosen is not None and column.chosen.index_type == "block-bounds"
    assert advice.set_options == {OPTION: "v"}
    explained = table.scan(where=f"v = {int(_values[7])}").explanation(analyze=True)
    assert [a.index for a in explained.advice] == ["block-bounds"]


# --- other processes: an entry point ---------------------------------------------------------------------------------


def package(home: Path) -> Path:
    """This file as an installed package that provides the type."""
    path = home / "block_bounds.zip"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("block_bounds_index.py", Path(__file__).read_text())
        out.writestr("block_bounds-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: block-bounds\nVersion: 1\n")
        points = "[bitlake.file_indexes]\nblock-bounds = block_bounds_index:BLOCK_BOUNDS\nbroken = no_such_module:X\n"
        out.writestr("block_bounds-1.dist-info/entry_points.txt", points)
    return path


def test_an_entry_point_provides_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(registry.INDEX_TYPES, "block-bounds")
    assert registry.find_index_type("block-bounds") is None
    monkeypatch.syspath_prepend(str(package(tmp_path)))
    found = registry.find_index_type("block-bounds")
    assert found is not None and found.accepts == BLOCK_BOUNDS.accepts
    with pytest.raises(UnsupportedFeature, match="'broken' cannot be loaded from 'no_such_module:X'"):
        registry.find_index_type("broken")
    assert found in registry.index_types()  # and tables without the broken type go on


def test_spark_executors_build_read_and_verify_it(
    spark: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # addPyFile adds to it for good
    if not hasattr(spark, "_jsc"):  # Spark Connect
        spark.addArtifacts(str(package(tmp_path)), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(package(tmp_path)))
    lake = bitlake.connect(str(tmp_path_factory.mktemp("lake")), spark=spark)
    lake.sql(f"CREATE TABLE t (id BIGINT, v BIGINT, note STRING) TBLPROPERTIES ('{OPTION}' = 'v')")
    spark.createDataFrame(TABLE.to_pandas(), "id BIGINT, v DOUBLE, note STRING").createOrReplaceTempView(
        "rows_of_blocks"
    )
    lake.sql("INSERT INTO t SELECT id, CAST(v AS BIGINT), note FROM rows_of_blocks")
    kinds = lake.sql("SELECT DISTINCT index_type, problem FROM `t$file_indexes`").collect()
    assert [tuple(r) for r in kinds] == [("block-bounds", None)]
    value = int(_values[7])
    expected = sum(v == value for v in TABLE.column("v").to_pylist())
    assert lake.sql(f"SELECT count(*) FROM t WHERE v = {value}").collect()[0][0] == expected > 0
    assert lake.table("t").scan(where=f"v = {value}").plan().chosen_rows < 4 * BLOCK
    assert not lake.verify("t", distributed=True).findings
