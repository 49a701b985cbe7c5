"""Scans as DuckDB's own kind of source: their rows, estimates and filters."""

from __future__ import annotations

import math
import pickle
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from long import every, exhaustive, long

import bitlake
from bitlake.scan import reader
from bitlake.scan.dataset import ScanDataset
from bitlake.scan.duckdb_source import ScanSource, SourceDataset, take_join_keys
from bitlake.scan.scan import TableScan
from bitlake.sql import duckdb_engine
from bitlake.sql.duckdb_engine import fetch
from bitlake.table.scan import Scan

COUNT = 16_000
STATES = ["new", "sent", None, "paid", "späť", ""]


def rows(start: int, count: int, coded: bool) -> pa.Table:
    """Rows of which ``city`` takes few values, or a value a row, which no file stores as codes."""
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "state": pa.array([STATES[i * 7 % 11 % 6] for i in numbers]),
            "city": pa.array([f"c{i % 5}" if coded else f"{i * 7919 % 1_000_003:032d}{i:032d}" for i in numbers]),
            "amount": pa.array([i * 31 % 1000 for i in numbers], pa.int32()),
            "price": pa.array(
                [None if i % 9 == 0 else Decimal(i - 300).scaleb(-2) for i in numbers], pa.decimal128(15, 2)
            ),
            "rate": pa.array([Decimal(i % 97).scaleb(-3) for i in numbers], pa.decimal128(5, 3)),
        },
        schema=pa.schema(
            [
                pa.field("id", pa.int64(), False),
                pa.field("state", pa.string()),
                pa.field("city", pa.string()),
                pa.field("amount", pa.int32()),
                pa.field("price", pa.decimal128(15, 2)),
                pa.field("rate", pa.decimal128(5, 3)),
            ]
        ),
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    lake = bitlake.connect(str(tmp_path_factory.mktemp("sources") / "lake"))
    mixed = lake.create_table("mixed", rows(0, COUNT, coded=True), options={"deletion-vectors.enabled": "true"})
    mixed.append(rows(COUNT, COUNT // 2, coded=False))
    mixed.alter(add={"late": "STRING"})
    mixed.append(rows(2 * COUNT, 100, coded=True).append_column("late", pa.array(["x", "y"] * 50)))
    mixed.delete("id % 1000 = 3")
    lake.create_table("other", pa.table({"id": pa.array(range(5000), pa.int64()), "name": ["n"] * 5000}))
    lake.table("other").delete("id = 7")
    lake.sql("CREATE TABLE keyed (id BIGINT NOT NULL, v STRING, PRIMARY KEY (id))", engine="duckdb")
    for value in ("a", "b"):
        lake.table("keyed").upsert(pa.table({"id": pa.array(range(300), pa.int64()), "v": [value] * 300}))
    return lake


@pytest.fixture
def as_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb_engine, "direct_files", lambda scan: "a source")


def scan_of(scan: Scan) -> ScanSource:
    return ScanSource(scan.dataset()._scan, take_join_keys)


CONDITIONS = [
    "1 = 1",
    "state = 'new'",  # in most blocks: rows come unfiltered
    "state IN ('new', 'späť') OR city LIKE 'c4%'",
    "state IS NULL AND amount > 500",
    "id BETWEEN 32050 AND 32070",
    "amount = 31 AND city = 'c1'",
    "city > '5'",
    "id < 0",
    "length(state) = 4 AND NOT amount < 10",
    "late = 'x'",
    "price > 12.5 AND rate < 0.05",
    "price IS NULL OR price * 2 < -3",
    "late IS NULL AND state <> ''",
]


@pytest.mark.usefixtures("as_source")
@pytest.mark.parametrize("runs", [1 << 19, 1])
@pytest.mark.parametrize("where", every(2, CONDITIONS))
def test_rows_are_those_of_a_scan(where: str, runs: int, lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_RUN_ROWS", runs)
    query = f"SELECT late, city, id, state, price, rate FROM mixed WHERE {where}"
    answer = fetch(lake.sql(query, engine="duckdb")).sort_by("id")
    scan = lake.table("mixed").scan(["late", "city", "id", "state", "price", "rate"], where=where)
    assert answer.to_pylist() == scan.to_arrow().sort_by("id").to_pylist()
    count = fetch(lake.sql(f"SELECT count(*) AS n, sum(amount) AS s FROM mixed WHERE {where}", engine="duckdb"))
    amounts = lake.table("mixed").scan(["amount"], where=where).to_arrow()["amount"].to_pylist()
    assert count.to_pylist() == [{"n": len(amounts), "s": sum(amounts) if amounts else None}]


@pytest.mark.usefixtures("as_source")
def test_merged_rows(lake: bitlake.Lake) -> None:
    answer = fetch(lake.sql("SELECT v, count(*) AS n FROM keyed WHERE v <> 'x' GROUP BY v", engine="duckdb"))
    assert answer.to_pylist() == [{"v": "b", "n": 300}]


def test_rows_that_do_not_match_come_only_where_most_blocks_match(lake: bitlake.Lake) -> None:
    table = lake.table("mixed")
    whole = table.count()
    dense, sparse = (scan_of(table.scan(where=w)) for w in ("state = 'new'", "amount = 31 AND city = 'c1' AND id < 20"))
    assert sum(b.num_rows for b in dense.scan.candidates(["id"])) == whole
    assert sum(b.num_rows for b in sparse.scan.candidates(["id", "state"])) == 1


def test_text_comes_as_the_codes_of_the_largest_file(lake: bitlake.Lake) -> None:
    source = scan_of(lake.table("mixed").scan())
    assert source.compact == {"state", "city", "price", "rate"}
    batches = list(source.scan.candidates(["city"], source.compact))
    assert {b.schema.field("city").type for b in batches} == {pa.dictionary(pa.int32(), pa.string())}
    stored = [v for b in batches for v in b.column(0).to_pylist()]
    assert sorted(stored) == sorted(lake.table("mixed").to_arrow()["city"].to_pylist())
    computed = scan_of(lake.table("mixed").scan(where="length(state) = 4"))
    assert computed.compact == {"city", "price", "rate"}


@pytest.mark.usefixtures("as_source")
def test_duckdb_orders_joins_by_the_number_of_rows(lake: bitlake.Lake) -> None:
    for query in (
        "SELECT count(*) n FROM mixed m JOIN other o ON m.id = o.id",
        "SELECT count(*) n FROM other o JOIN mixed m ON m.id = o.id",
    ):
        plan = str(lake.sql(query, engine="duckdb").explain())
        assert f"~{scan_of(lake.table('mixed').scan()).rows():,} rows" in plan
        assert fetch(lake.sql(query, engine="duckdb")).to_pylist() == [{"n": 4994}]


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The filters that were applied here, each as SQL with its table."""
    seen: list[str] = []
    stream = ScanSource.stream

    def watched(self: ScanSource, columns: Sequence[int] | None, filters: Sequence[Any]) -> tuple[object, bool]:
        seen.extend(f"{self.scan.state.name}: {f.fragment()}" for f in filters)
        return stream(self, columns, filters)

    monkeypatch.setattr(ScanSource, "stream", watched)
    return seen


@pytest.mark.usefixtures("as_source")
def test_a_joins_other_column_prunes(lake: bitlake.Lake, applied: list[str]) -> None:
    query = "SELECT o.id, m.city FROM mixed m JOIN other o ON m.id = o.id WHERE m.id = 4321"
    assert fetch(lake.sql(query, engine="duckdb")).to_pylist() == [{"id": 4321, "city": "c1"}]
    assert applied == ['default.other: ("id" = 4321)']  # the first one's is in its scan


def test_a_dataset_that_is_registered_has_its_rows_and_applies_what_prunes(
    lake: bitlake.Lake, applied: list[str]
) -> None:
    connection = duckdb.connect()
    connection.register("mixed", lake.table("mixed").dataset())
    connection.register("other", lake.table("other").dataset())
    query = "SELECT count(*) FROM mixed m JOIN other o ON m.id = o.id WHERE m.id >= 16000 AND m.amount < 990"
    assert f"~{lake.table('mixed').count():,} rows" in str(connection.sql(query).explain())
    numbers = lake.table("mixed").scan(["id"], where="id >= 16000 AND amount < 990").to_arrow()["id"].to_pylist()
    assert connection.sql(query).fetchall() == [(len(set(numbers) & set(range(5000)) - {7}),)]
    assert {f for f in applied if f.startswith("default.mixed")} == {'default.mixed: ("id" >= 16000)'}
    # amount < 990 holds in every file and page: DuckDB applies it


@pytest.mark.parametrize("where", every(3, CONDITIONS))
def test_a_registered_scan_gives_only_the_rows_of_its_condition(where: str, lake: bitlake.Lake) -> None:
    names = ["late", "city", "id", "state", "price", "rate"]
    scan = lake.table("mixed").scan(names, where=where)
    dataset = scan.dataset()
    assert isinstance(dataset, SourceDataset)
    expected = scan.to_arrow().sort_by("id").to_pylist()
    assert duckdb.from_arrow(dataset).to_arrow_table().sort_by("id").to_pylist() == expected
    some = duckdb.sql("SELECT id, state FROM dataset WHERE id % 3 = 1")
    assert sorted(some.fetchall()) == [(r["id"], r["state"]) for r in expected if r["id"] % 3 == 1]
    assert duckdb.sql("SELECT count(*) FROM dataset").fetchall() == [(len(expected),)]
    assert duckdb.sql("SELECT count(*) FROM dataset WHERE id > 20000").fetchall() == [
        (sum(r["id"] > 20000 for r in expected),)
    ]


@pytest.mark.parametrize(
    ("where", "pruned"),
    [
        ("f > 30", [1, 2, 3, 4]),  # NaN is the largest number, and bounds leave it out
        ("f <> 'NaN'::FLOAT", [1, 2, 3, 4]),
        ("f NOT IN (0, 1)", [1, 2, 3, 4]),
        ("NOT (f <= 30 OR f IS NULL)", [1, 2, 3, 4]),
        ("f = 0", [1, 4]),  # zeros of both signs; the file with NaN has no bounds
        ("f IN (20, 30)", [2, 3, 4]),
        ("f < 0", [4]),
        ("f IS NULL", [2]),
        ("s.x = 5", [1, 2, 3, 4]),
        ("c >= 'b'", [2, 3, 4]),
        ("part = 1 OR (part > 2 AND f < 35)", [1, 3, 4]),
        ("NOT (c < 'c' OR part = 4)", [3]),
    ],
)
def test_filters_mean_what_they_mean_in_duckdb(
    tmp_path: Path, where: str, pruned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"))
    parts = [[0.0, -0.0, 1.0], [20.0, None, 21.0], [30.0, 30.5], [math.nan, 40.0]]
    for at, values in enumerate(parts, 1):
        columns = {"part": [at] * len(values), "f": pa.array(values, pa.float32())}
        columns["c"] = [chr(96 + at)] * len(values)
        columns["s"] = [{"x": at} for _ in values]
        rows = pa.table(columns)
        if at == 1:
            lake.create_table("t", rows)
        else:
            lake.table("t").append(rows)
    table = lake.table("t")
    dataset, connection = table.dataset(), duckdb.connect()
    assert isinstance(dataset, SourceDataset)
    read: list[TableScan] = []
    tables = TableScan._read
    monkeypatch.setattr(TableScan, "_read", lambda self, *a, **k: (read.append(self), tables(self, *a, **k))[1])
    connection.register("memory", table.to_arrow())
    connection.register("lake", dataset)
    in_memory, in_lake = (connection.sql(f"SELECT part, f FROM {t} WHERE {where}") for t in ("memory", "lake"))
    assert sorted(map(repr, in_lake.fetchall())) == sorted(map(repr, in_memory.fetchall()))
    files = dataset.files
    assert read and [files.index(f.path) + 1 for f in read[-1].plan().files] == pruned


@pytest.mark.usefixtures("as_source")
def test_a_dataset_stands_in_where_duckdb_has_other_sources(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bitlake.scan.duckdb_source", None)
    query = "SELECT count(*) AS n FROM mixed WHERE state = 'new'"
    n = lake.table("mixed").count(where="state = 'new'")
    assert fetch(lake.sql(query, engine="duckdb")).to_pylist() == [{"n": n}]


@pytest.mark.usefixtures("as_source")
def test_a_missing_file_is_named(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"))
    table = lake.create_table("t", pa.table({"a": [1, 2, 3]}))
    relation = lake.sql("SELECT sum(a) AS s FROM t", engine="duckdb")
    (file,) = table.dataset().files
    Path(file).unlink()
    with pytest.raises(bitlake.errors.NotFound, match="data file .* is missing"):
        fetch(relation)


def mixed_lake(tmp_path: Path) -> bitlake.Lake:
    """A table of a file without deleted rows and of one with some."""
    lake = bitlake.connect(str(tmp_path / "lake"))
    table = lake.create_table("big", rows(0, COUNT, coded=True), options={"deletion-vectors.enabled": "true"})
    table.append(rows(COUNT, COUNT, coded=False))
    table.delete(f"id >= {COUNT} AND id % 10 = 3")
    return lake


def test_clean_files_of_a_mixed_table_are_duckdbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = mixed_lake(tmp_path)
    whole = "SELECT city, rate, id, state, price FROM big"
    reason = "the others through Arrow: rows are chosen by indexes or page bounds, deleted, or merged by key"
    through_arrow = {q: fetch(lake.sql(q, engine="duckdb")) for q in (whole, *(f"{whole} WHERE {w}" for w in BOTH))}
    assert reason not in explained(lake, whole)  # too few rows
    monkeypatch.setattr(duckdb_engine, "RANGE_ROWS", 1000)
    assert f"reads 1 file with its own Parquet reader, and {reason}" in explained(lake, whole)
    plan = str(lake.sql(whole, engine="duckdb").explain())
    assert "READ_PARQUET" in plan and "ARROW_SCAN" in plan and "Union" in plan
    for query, expected in through_arrow.items():
        answer = fetch(lake.sql(query, engine="duckdb"))
        assert answer.schema == expected.schema
        assert answer.sort_by("id").to_pylist() == expected.sort_by("id").to_pylist(), query
    count = "SELECT count(*) AS n, sum(b.price) AS s FROM big b JOIN big o ON b.id = o.id"
    prices = [p for p in lake.table("big").to_arrow()["price"].to_pylist() if p is not None]
    assert fetch(lake.sql(count, engine="duckdb")).to_pylist() == [{"n": 2 * COUNT - COUNT // 10, "s": sum(prices)}]


BOTH = [
    f"id > {COUNT - 50} AND id < {COUNT + 50}",
    f"id = {COUNT + 4}",
    f"id IN (5, {COUNT + 3}, {COUNT + 4})",
    "state IS NULL AND price < 100",
    f"id >= {COUNT}",
    "city LIKE 'c4%' OR rate = 0.007",
]


def explained(lake: bitlake.Lake, query: str) -> str:
    return str(lake.sql(f"EXPLAIN {query}", engine="duckdb").to_pylist()[0]["plan"])


def test_a_clean_file_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = mixed_lake(tmp_path)
    monkeypatch.setattr(duckdb_engine, "RANGE_ROWS", 1000)
    (file,) = lake.table("big").scan(where="id = 1").dataset().files
    Path(file).unlink()
    with pytest.raises(bitlake.errors.NotFound, match="data file .* is missing"):
        fetch(lake.sql("SELECT sum(id) AS s FROM big", engine="duckdb"))


@pytest.mark.parametrize("engine", ["deduplicate", "aggregation"])
def test_files_that_are_merged_may_store_a_column_in_different_ways(engine: str, tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"))
    options = {"bucket": "1", "write-only": "true", "merge-engine": engine, "fields.price.aggregate-function": "sum"}
    if engine == "deduplicate":
        del options["fields.price.aggregate-function"]
    schema = rows(0, 1, coded=True).append_column("p", pa.array([1], pa.int32())).schema
    schema = schema.set(schema.get_field_index("p"), pa.field("p", pa.int32(), False))
    table = lake.create_table("t", schema, primary_key=["p", "id"], partition_by=["p"], options=options)
    for part, start, count, coded in (
        (1, 0, 9_000, True),
        (2, 0, 2_000, False),
        (2, 1_000, 3_000, True),
        (2, 500, 700, False),
    ):
        data = rows(start, count, coded)
        table.upsert(data.append_column(schema.field("p"), pa.array([part] * count, pa.int32())))
    dataset, connection = table.dataset(), duckdb.connect()
    assert isinstance(dataset, SourceDataset) and {"city", "price"} <= dataset._source.compact
    connection.register("lake", dataset)
    connection.register("memory", table.to_arrow())
    query = "SELECT city, count(*), sum(price), min(state), max(rate) FROM {} GROUP BY city ORDER BY city"
    assert connection.sql(query.format("lake")).fetchall() == connection.sql(query.format("memory")).fetchall()
    where = "WHERE p = 2 AND price > 12"
    query = f"SELECT id, city, price FROM {{}} {where} ORDER BY id"
    assert connection.sql(query.format("lake")).fetchall() == connection.sql(query.format("memory")).fetchall()


def test_a_dataset_is_planned_when_it_is_asked(lake: bitlake.Lake) -> None:
    scan = lake.table("mixed").scan()
    dataset = scan.dataset()
    assert isinstance(dataset, SourceDataset) and scan._core._planned == []
    assert dataset.rows() == lake.table("mixed").count() and len(scan._core._planned) == 1


def test_a_dataset_is_a_source_only_where_it_can_be(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = lake.table("mixed").scan(["id"])
    sent = pickle.loads(pickle.dumps(scan.dataset()))
    assert type(sent) is ScanDataset  # DuckDB may be missing there
    for dataset in (scan.dataset(), sent):
        assert duckdb.from_arrow(dataset).filter("id = 4321").fetchall() == [(4321,)]
    assert isinstance(scan.dataset().filter(pc.field("id") == 4321), SourceDataset)
    odd = scan.dataset().filter(pc.field("id") + 1 == 4322)  # Arrow applies it
    assert not isinstance(odd, SourceDataset)
    assert duckdb.from_arrow(odd).fetchall() == [(4321,)]
    few = scan.limit(7).dataset()
    assert len(duckdb.from_arrow(few).filter("id >= 0").fetchall()) == 7
    monkeypatch.setitem(sys.modules, "bitlake.scan.duckdb_source", None)
    plain = scan.dataset()
    assert type(plain) is ScanDataset
    assert duckdb.from_arrow(plain).filter("id = 4321").fetchall() == [(4321,)]
    monkeypatch.delitem(sys.modules, "duckdb")
    assert type(scan.dataset()) is ScanDataset


def test_texts_longer_than_a_char_column_compare_as_in_duckdb(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"))
    lake.sql("CREATE TABLE t (id BIGINT, c CHAR(3))", engine="duckdb")
    table = lake.table("t")
    table.append(pa.table({"id": [1, 2, 3], "c": ["abc", "a", "ab "]}))
    table.append(pa.table({"id": [4, 5], "c": ["x", "abc"]}))
    connection = duckdb.connect()
    connection.register("lake", table.dataset())
    connection.register("memory", table.to_arrow())
    constants = ["abc", "abc ", "x  ", "x   ", "abcd", "ab ", "ab", "", "abb ", "abc  "]
    for text in constants:
        for condition in (
            *(f"c {op} '{text}'" for op in ("=", "<>", "<", "<=", ">", ">=")),
            f"c NOT IN ('abc', '{text}')",
        ):
            found = [
                connection.sql(f"SELECT id FROM {t} WHERE {condition} ORDER BY id").fetchall()
                for t in ("lake", "memory")
            ]
            assert found[0] == found[1], condition
        expected = table.to_arrow().filter(pc.field("c") != text)["id"].to_pylist()
        assert table.dataset().to_table(filter=pc.field("c") != text)["id"].to_pylist() == expected


@pytest.mark.parametrize("count", [100, exhaustive(700), long(3_000)])
def test_a_condition_of_many_terms(count: int, tmp_path: Path) -> None:
    table = bitlake.connect(str(tmp_path)).create_table("t", pa.table({"a": [1, 2, 3], "b": [4, 5, 6]}))
    connection = duckdb.connect()
    connection.register("lake", table.dataset())
    connection.execute("SET max_expression_depth = 100000")
    terms = " OR ".join(f"(a = {i} AND b = 4)" for i in range(count))
    assert connection.sql(f"SELECT count(*) FROM lake WHERE {terms}").fetchall() == [(1,)]
    deep = "a = 1"
    for i in range(count // 2):
        deep = f"({deep} OR a = {i} AND b = 9) AND b <> {i + 100}"
    assert connection.sql(f"SELECT count(*) FROM lake WHERE {deep}").fetchall() == [(1,)]


def test_filters_that_duckdb_applies_are_recorded(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"), record_scans=True)
    data = {"id": pa.array(range(5_000), pa.int64()), "user": pa.array([i * 7919 % 100 for i in range(5_000)])}
    table = lake.create_table("t", pa.table(data))
    connection = duckdb.connect()
    connection.register("lake", table.dataset())
    assert connection.sql('SELECT count(*) FROM lake WHERE "user" > 97 AND id >= 100').fetchall() == [(98,)]
    assert connection.sql('SELECT count(*) FROM lake WHERE "user" = 7').fetchall() == [(50,)]
    first, second = table.indexes.scans()
    assert set(first.where.split(" AND ")) == {"user > 97", "id >= 100"}
    assert second.where == "user = 7"


@pytest.mark.parametrize("kind", ["VARCHAR(2)", "CHAR(4)"])
def test_texts_of_a_changed_length(kind: str, tmp_path: Path) -> None:
    """Bug: DuckDB saw the texts of older files uncut and without padding, and its filters lost rows."""
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", pa.table({"id": [1, 2, 3], "s": ["banana", "ba", None]}))
    table.alter_column("s", type=kind)
    texts = ["ba", "ba"] if kind == "VARCHAR(2)" else ["bana", "ba  "]
    expected = [*enumerate(texts, 1), (3, None)]
    connection = duckdb.connect()
    connection.register("lake", table.dataset())
    assert connection.sql("SELECT * FROM lake ORDER BY id").fetchall() == expected
    for sought in ("ba", "bana"):
        ids = [(i,) for i, text in expected if text is not None and text.rstrip() == sought]
        assert lake.sql(f"SELECT id FROM t WHERE s = '{sought}' ORDER BY id", engine="duckdb").fetchall() == ids
        padded = sought.ljust(4) if kind == "CHAR(4)" else sought
        assert connection.sql(f"SELECT id FROM lake WHERE s = '{padded}' ORDER BY id").fetchall() == ids
    assert lake.sql("SELECT * FROM t ORDER BY id", engine="duckdb").fetchall() == expected


INNER = pa.struct([("y", pa.int32())])
STRUCTS_INSIDE: dict[str, tuple[pa.DataType, Any]] = {
    "map": (pa.map_(pa.string(), INNER), lambda i: [("k", {"y": i})] if i % 3 else None),
    "list": (pa.list_(INNER), lambda i: [{"y": i}] * (i % 3)),
    "struct": (pa.struct([("x", INNER)]), lambda i: {"x": {"y": i} if i % 4 else None} if i % 5 else None),
}


@pytest.mark.parametrize("kind", STRUCTS_INSIDE)
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_structs_inside_of_chosen_rows(kind: str, file_format: str, tmp_path: Path) -> None:
    """Bug: DuckDB refused slices of such columns, which rows have that an index chose."""
    made, value = STRUCTS_INSIDE[kind]
    given = pa.table({"id": pa.array(range(300), pa.int32()), "w": pa.array([value(i) for i in range(300)], made)})
    lake = bitlake.connect(tmp_path / "lake")
    options = {"file.format": file_format, "file-index.bitmap.columns": "id"}
    table = lake.create_table("t", given.schema, options=options)
    for start, stop in ((0, 5), (5, 12), (12, 300)):
        table.append(given.slice(start, stop - start))
    some = [1, 2, 6, 11, 200]
    expected = [row for row in given.to_pylist() if row["id"] in some]
    condition = f"id IN ({', '.join(map(str, some))})"
    connection = duckdb.connect()
    connection.register("source", table.dataset())
    connection.register("stream", table.scan(where=condition))
    found = {
        "source": connection.sql(f"SELECT * FROM source WHERE {condition}"),
        "stream": connection.sql("SELECT * FROM stream"),
        "relation": table.to_duckdb(connection).filter(condition),
        "query": lake.sql(f"SELECT * FROM t WHERE {condition}", engine="duckdb"),
        "ordered": lake.sql(f"SELECT * FROM t WHERE {condition} ORDER BY id LIMIT 5", engine="duckdb"),
    }
    for door, relation in found.items():
        assert sorted(relation.to_arrow_table().to_pylist(), key=lambda r: r["id"]) == expected, door
