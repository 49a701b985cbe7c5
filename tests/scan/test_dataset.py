"""A scan as an Arrow dataset: engines get a full scan's rows, and what they push prunes as `scan(where=…)` does."""

from __future__ import annotations

import functools
import pickle
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from long import few

import bitlake
from bitlake.errors import BitlakeError, InvalidRequest, NotFound
from bitlake.scan.scan import TableScan

N = 6_000
WORDS = ["NEW", "PAID", "SENT", "LOST", None]


def _rows(start: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 1000, N).astype(float)
    numbers[::97] = np.nan
    return pa.table(
        {
            "id": pa.array(np.arange(start, start + N)),
            "status": pa.array([WORDS[i] for i in rng.integers(0, 5, N)]),
            "amount": pa.array(numbers, mask=np.arange(N) % 11 == 0),
            "day": pa.array(np.sort(rng.integers(19_700, 19_800, N)).astype("int32"), pa.date32()),
            "n": pa.array(rng.integers(-5000, 5000, N, "int32")).cast(pa.decimal128(12, 2)),
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> bitlake.Table:
    """Three files with indexes, deletions of some rows, and a column added later."""
    lake = bitlake.connect(tmp_path_factory.mktemp("lake"))
    options = {
        "file-index.bitmap.columns": "status",
        "file-index.bsi.columns": "id",
        "deletion-vectors.enabled": "true",
    }
    table = lake.create_table("orders", _rows(0, 1), options=options)
    table.append(_rows(N, 2))
    table.delete("id IN (5, 4321, 7000) OR id BETWEEN 100 AND 180")
    table.add_column("note", "STRING")
    table.append(_rows(2 * N, 3).append_column("note", pa.array(["x"] * N)))
    return table


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The plans that were read, in order."""
    made: list[Any] = []
    tables = TableScan._tables

    def watched(self: TableScan, *arguments: Any, **options: Any) -> Any:
        made.append(self.plan())
        return tables(self, *arguments, **options)

    monkeypatch.setattr(TableScan, "_tables", watched)
    return made


def _ids(rows: Any) -> list[int]:
    return sorted(r[0] for r in rows)


def _of_polars(frame: pl.LazyFrame) -> list[int]:
    return frame.select("id").collect()["id"].to_list()


def _query(text: str, orders: Any) -> list[Any]:
    """DuckDB's rows; it finds ``orders`` by its name."""
    return duckdb.sql(text).fetchall()


CASES = [
    ("status = 'SENT'", pc.field("status") == "SENT", pl.col("status") == "SENT"),
    ("status IN ('NEW', 'LOST')", pc.field("status").isin(["NEW", "LOST"]), pl.col("status").is_in(["NEW", "LOST"])),
    ("status IS NULL", pc.field("status").is_null(), pl.col("status").is_null()),
    ("status IS NOT NULL", pc.field("status").is_valid(), pl.col("status").is_not_null()),
    (
        "id BETWEEN 4000 AND 4400",
        (pc.field("id") >= 4000) & (pc.field("id") <= 4400),
        pl.col("id").is_between(4000, 4400),
    ),
    ("id = 4321", pc.field("id") == 4321, pl.col("id") == 4321),
    (
        "status = 'PAID' AND (id < 50 OR id > 17950)",
        (pc.field("status") == "PAID") & ((pc.field("id") < 50) | (pc.field("id") > 17950)),
        (pl.col("status") == "PAID") & ((pl.col("id") < 50) | (pl.col("id") > 17950)),
    ),
    ("note IS NOT NULL AND status = 'NEW'", pc.field("note").is_valid() & (pc.field("status") == "NEW"), None),
]


@pytest.mark.parametrize(("where", "arrow", "polars"), CASES, ids=[w for w, *_ in CASES])
def test_engines_read_what_a_scan_reads(
    table: bitlake.Table, plans: list[Any], where: str, arrow: pc.Expression, polars: pl.Expr | None
) -> None:
    expected = table.scan(["id"], where)
    ids, plan = _ids(zip(*expected.to_arrow().to_pydict().values(), strict=True)), expected.plan()
    orders = table.dataset()
    answers = {
        "arrow": lambda: orders.to_table(columns=["id"], filter=arrow).to_pydict()["id"],
        "filtered": lambda: orders.filter(arrow).to_table(columns=["id"]).to_pydict()["id"],
        "fragments": lambda: [
            i for f in orders.get_fragments(arrow) for b in f.to_batches(columns=["id"]) for i in b["id"].to_pylist()
        ],
        "duckdb": lambda: [r[0] for r in _query(f"SELECT id FROM orders WHERE {where}", orders)],
        "relation": lambda: [r[0] for r in table.to_duckdb().filter(where).project("id").fetchall()],
    }
    if polars is not None:
        for name, lazy in (("lazy", table.lazy()), ("scan_pyarrow_dataset", pl.scan_pyarrow_dataset(orders))):
            answers[name] = functools.partial(_of_polars, lazy.filter(polars))
    for engine, answer in answers.items():
        plans.clear()
        assert sorted(answer()) == ids, engine
        read = [f.path for p in plans for f in p.files]
        assert sorted(read) == sorted(f.path for f in plan.files), engine
        assert sum(p.metrics.rows_chosen for p in plans) == plan.metrics.rows_chosen, engine
    assert orders.count_rows(filter=arrow) == len(ids)


def _by_dask(orders: Any) -> Any:
    frames = pytest.importorskip("dask.dataframe")
    sent = orders.filter((pc.field("status") == "SENT") & (pc.field("id") > 13_000))
    empty = sent.schema.empty_table().select(["id"]).to_pandas()
    parts = list(sent.get_fragments())
    return frames.from_map(lambda part: part.to_table(columns=["id"]).to_pandas(), parts, meta=empty).id.compute(
        scheduler="sync"
    )


def _by_ibis(orders: Any) -> Any:
    connection = pytest.importorskip("ibis").duckdb.connect()
    connection.con.register("orders", orders)
    bound = connection.table("orders")
    return bound.filter((bound.status == "SENT") & (bound.id > 13_000)).id.execute()


@pytest.mark.parametrize("answer", [_by_dask, _by_ibis])
def test_dask_and_ibis_prune_by_the_indexes(table: bitlake.Table, plans: list[Any], answer: Any) -> None:
    expected = table.scan(["id"], "status = 'SENT' AND id > 13000")
    ids, plan = sorted(expected.to_arrow()["id"].to_pylist()), expected.plan()
    assert len(plan.files) == 1 and plan.metrics.rows_chosen == len(ids)
    plans.clear()
    assert sorted(answer(table.dataset())) == ids
    assert [f.path for p in plans for f in p.files] == [f.path for f in plan.files]
    assert sum(p.metrics.rows_chosen for p in plans) == plan.metrics.rows_chosen


def test_what_is_not_understood_stays_with_the_engine(table: bitlake.Table, plans: list[Any]) -> None:
    orders = table.dataset()
    total = table.count()
    even = [i for i in table.to_arrow(["id"]).column(0).to_pylist() if i % 2 == 0]
    expression = pc.bit_wise_and(pc.field("id"), 1) == 0
    assert sorted(orders.to_table(columns=["id"], filter=expression).column(0).to_pylist()) == even
    assert orders.count_rows(filter=expression) == len(even)
    assert orders.to_table(columns=["status"], filter=expression).num_rows == len(even)
    plans.clear()
    both = orders.to_table(columns=["id"], filter=expression & (pc.field("id") > 17_990)).column(0).to_pylist()
    assert sorted(both) == [i for i in even if i > 17_990] and len(plans[0].files) == 1
    assert table.lazy().filter(pl.col("id") % 2 == 0).select(pl.len()).collect().item() == len(even)
    (counted,) = _query("SELECT count(*) FROM orders WHERE id % 2 = 0 AND status LIKE '%'", orders)
    assert counted == (
        sum(
            s is not None
            for i, s in zip(*table.to_arrow(["id", "status"]).to_pydict().values(), strict=True)
            if i % 2 == 0
        ),
    )
    assert len(orders.filter(expression).filter(pc.field("id") < 10).to_table()) == len([i for i in even if i < 10])
    assert total == orders.count_rows() == len(orders.to_table())


def test_columns(table: bitlake.Table) -> None:
    orders = table.dataset()
    assert orders.schema == table.arrow_schema
    assert orders.to_table(columns=["day", "id"]).column_names == ["day", "id"]
    doubled = orders.to_table(columns={"twice": pc.field("id") * 2}, filter=pc.field("id") == 6)
    assert doubled.to_pydict() == {"twice": [12]}
    assert orders.to_table(columns=[]).num_rows == table.count()
    assert orders.head(3).num_rows == 3 and orders.take([0, 2]).num_rows == 2
    assert orders.scanner(columns=["id"]).to_reader().schema.names == ["id"]
    assert max(b.num_rows for b in orders.to_batches(batch_size=100)) <= 100
    assert table.scan(["id"], "id < 10").dataset().schema.names == ["id"]


def test_a_limited_scan_is_limited_before_it_is_filtered(table: bitlake.Table) -> None:
    first = table.scan(["id", "status"], limit=5)
    kept = first.to_arrow().to_pydict()["id"]
    assert set(first.dataset().to_table(filter=pc.field("id") > 2).column("id").to_pylist()) == {
        i for i in kept if i > 2
    }
    assert first.lazy().filter(pl.col("id") > 2).collect()["id"].to_list() == [i for i in kept if i > 2]
    assert first.lazy().head(2).collect().height == 2 and first.lazy().head(50).collect().height == 5
    assert table.lazy().head(4).collect().height == 4
    assert table.lazy().filter(pl.col("status") == "NEW").head(4).collect().height == 4


def test_a_dataset_stays_at_its_snapshot(table: bitlake.Table) -> None:
    lake = bitlake.connect(Path(table.path).parents[1])
    own = lake.create_table("own", pa.table({"id": [1, 2]}))
    dataset, relation, lazy = own.dataset(), own.to_duckdb(), own.lazy()
    own.append(pa.table({"id": [3]}))
    assert dataset.count_rows() == len(dataset.to_table()) == len(relation.fetchall()) == lazy.collect().height == 2
    assert own.scan(snapshot=1).dataset().count_rows() == 2 and own.dataset().count_rows() == 3


def _datafusion(dataset: Any, text: str) -> Any:
    """A query of DataFusion over ``t``, which is bound but not read."""
    context = pytest.importorskip("datafusion").SessionContext()
    context.register_dataset("t", dataset)
    return context.sql(text)


@pytest.mark.parametrize("how", ["dropped", "expired"])
def test_a_dataset_of_files_that_are_gone_names_the_table(tmp_path: Path, how: str) -> None:
    lake = bitlake.connect(tmp_path)
    own = lake.create_table("own", pa.table({"id": [1, 2]}))
    dataset, relation, lazy = own.dataset(), own.to_duckdb(), own.lazy()
    connection = duckdb.connect()
    connection.register("t", dataset)
    frame = _datafusion(dataset, "SELECT * FROM t")
    query = lake.sql("SELECT id FROM own WHERE id > 0", engine="duckdb")
    if how == "dropped":
        lake.drop_table("own")
    else:
        own.overwrite(pa.table({"id": [3]}))
        own.maintenance.expire_snapshots(retain_max=1, retain_min=1)
    lake.clear_cache()
    with pytest.raises(NotFound, match=r"default\.own.*it has expired \(read the table again\), or was damaged"):
        dataset.to_table()
    for read in (relation.fetchall, lambda: connection.sql("SELECT * FROM t").fetchall(), query.fetchall):
        with pytest.raises(duckdb.Error, match="default.*own"):
            read()
    with pytest.raises((BitlakeError, pl.exceptions.PolarsError), match=r"default\.own"):
        lazy.collect()
    with pytest.raises((BitlakeError, pl.exceptions.PolarsError), match=r"default\.own"):
        pl.scan_pyarrow_dataset(dataset).collect()
    with pytest.raises(Exception, match=r"DataFusion error: .*NotFound: table 'default\.own'"):
        frame.to_arrow_table()
    if how == "expired":
        assert lake.table("own").to_arrow()["id"].to_pylist() == [3]


TYPES = {
    "keys": pa.array([[([1, 2], 5)], None], pa.map_(pa.list_(pa.int32()), pa.int32())),
    "structs": pa.array([[({"a": 1}, 5)], []], pa.map_(pa.struct([("a", pa.int32())]), pa.int32())),
    "time": pa.array([3_723_004, None], pa.int32()).view(pa.time32("ms")),
    "wide": pa.array([Decimal("12345678901234567890.5"), None], pa.decimal128(38, 10)),
}
"""Types that not every engine has: maps with keys of nested types, TIME, long decimals."""


@pytest.mark.parametrize("name", TYPES)
def test_types_that_an_engine_may_lack(tmp_path: Path, name: str) -> None:
    """Each engine gives the two rows."""
    lake = bitlake.connect(tmp_path)
    own = lake.create_table("own", pa.table({"id": [1, 2], "c": TYPES[name]}))
    assert own.to_arrow()["c"].combine_chunks().equals(TYPES[name])
    for rows in (
        own.to_duckdb().fetchall(),
        duckdb.from_arrow(own.dataset()).fetchall(),
        lake.sql("SELECT id, c FROM own", engine="duckdb").fetchall(),
        own.to_polars().height * [0],
        own.lazy().filter(pl.col("c").is_null() | pl.col("c").is_not_null()).collect().height * [0],
        pl.scan_pyarrow_dataset(own.dataset()).filter(pl.col("id") > 0).collect().height * [0],
        own.to_pandas(),
        _datafusion(own.dataset(), "SELECT id, c FROM t").to_arrow_table()["id"],
    ):
        assert len(rows) == 2


def test_what_a_table_cannot_hold_is_one_error(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path)
    unsigned = pa.table({"id": pa.array([2**63, 1], pa.uint64())})
    with pytest.raises(InvalidRequest, match="Arrow type uint64 has no counterpart in a Paimon table; cast the column"):
        lake.create_table("own", unsigned)
    own = lake.create_table("own", pa.table({"id": [1]}))
    with pytest.raises(InvalidRequest, match="column 'id' is BIGINT, but a value of uint64 is not"):
        own.append(unsigned)
    assert own.to_arrow()["id"].to_pylist() == [1] and lake.tables() == ["own"]


def test_what_is_closed_is_not_read_again(tmp_path: Path) -> None:
    own = bitlake.connect(tmp_path).create_table("own", pa.table({"id": [1, 2]}))
    scan = own.scan()
    batches, reader = scan.to_batches(), pa.RecordBatchReader.from_stream(own)
    next(batches)
    batches.close()
    reader.close()
    with pytest.raises(pa.ArrowInvalid, match="closed"):
        reader.read_all()
    connection = duckdb.connect()
    relation = own.to_duckdb(connection)
    connection.close()
    with pytest.raises(duckdb.Error, match="closed"):
        relation.fetchall()
    assert list(batches) == [] and scan.to_arrow().num_rows == 2


def test_unknown_columns(table: bitlake.Table, plans: list[Any]) -> None:
    orders = table.dataset()
    for read in (
        lambda: orders.to_table(filter=pc.field("statuss") == "NEW"),
        lambda: orders.to_table(columns=["statuss"]),
        lambda: orders.count_rows(filter=pc.field("statuss").is_null()),
    ):
        with pytest.raises(NotFound, match="no column 'statuss'; did you mean 'status'"):
            read()
    text = "SELECT id FROM orders WHERE statuss = 'NEW'"
    engines: dict[str, Callable[[], Any]] = {
        "DuckDB": lambda: _query(text, orders),
        "a relation of DuckDB": lambda: table.to_duckdb().filter("statuss = 'NEW'").fetchall(),
        "Polars": lambda: table.lazy().filter(pl.col("statuss") == "NEW").collect(),
        "a dataset in Polars": lambda: pl.scan_pyarrow_dataset(orders).filter(pl.col("statuss") == "NEW").collect(),
        "DataFusion": lambda: _datafusion(orders, text.replace("orders", "t")).to_arrow_table(),
    }
    plans.clear()
    for name, ask in engines.items():
        with pytest.raises(Exception, match=r"(?s)statuss.*status") as error:
            ask()
        assert "Traceback" not in str(error.value) and not plans, name
    with pytest.raises(NotFound, match="no column 'STATUS'; names match by case"):
        orders.to_table(columns=["STATUS"])


def test_arrows_own_operations(table: bitlake.Table, tmp_path: Path) -> None:
    """What reaches past the scanner is right or refused, and never crashes."""
    small = table.scan(["id", "status"], "id < 5").dataset()
    assert small.sort_by([("id", "descending")]).to_table().column("id").to_pylist() == [4, 3, 2, 1, 0]
    joined = small.join(table.scan(["id", "day"], "id < 3").dataset(), "id", join_type="inner")
    assert sorted(joined.to_table().column("id").to_pylist()) == [0, 1, 2]
    ds.write_dataset(small, tmp_path / "copy", format="parquet")
    assert ds.dataset(tmp_path / "copy").count_rows() == 5
    for refused in (
        lambda: ds.dataset([small, ds.dataset(small.to_table())]).to_table(),
        lambda: ds.Scanner.from_dataset(small).to_table(),
        lambda: small.replace_schema(pa.schema({"id": pa.int32()})),
    ):
        with pytest.raises(
            InvalidRequest, match=r"pyarrow cannot do this with a bitlake dataset; give it dataset\.to_table\(\)"
        ):
            refused()
    assert all(Path(f).exists() for f in small.files) and repr(small).startswith("Dataset(default.orders: id, status")
    again = pickle.loads(pickle.dumps(small.filter(pc.field("id") > 2)))
    assert sorted(again.to_table().column("id").to_pylist()) == [3, 4]


def test_merge_on_read_and_changes_and_system_tables(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path)
    rows = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
    table = lake.create_table("k", rows, primary_key=["id"], options={"bucket": "1", "write-only": "true"})
    table.upsert(pa.table({"id": [2, 4], "v": ["B", "d"]}))
    merged = table.dataset()
    assert sorted(_query("SELECT id, v FROM orders WHERE id >= 2", merged)) == [(2, "B"), (3, "c"), (4, "d")]
    assert _query("SELECT id FROM orders WHERE v = 'b'", merged) == []
    added = _query("SELECT id, v FROM orders WHERE rowkind = '+I'", table.changes(1).dataset())
    assert sorted(added) == [(2, "B"), (4, "d")]
    assert table.changes(1).lazy().filter(pl.col("id") == 4).collect().rows() == [("+I", 4, "d")]
    snapshots = lake.table("k$snapshots").to_duckdb()
    assert snapshots.filter("snapshot_id = 2").project("commit_kind").fetchall() == [("APPEND",)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", few(range(4), 0, 1))
def test_random_predicates(table: bitlake.Table, seed: int) -> None:
    """DuckDB's and Polars' answers over datasets are their own answers over the rows in memory."""
    rng = random.Random(seed)
    memory = table.to_arrow()
    for _ in range(25):
        text = _condition(rng, rng.randrange(3))
        query = f"SELECT id FROM orders WHERE {text}"
        assert _ids(_query(query, table.dataset())) == _ids(_query(query, memory)), text
        expression = _polars(rng, rng.randrange(3))
        for ours, plain in (
            (table.lazy(), pl.DataFrame(memory).lazy()),
            # Polars' filters in Arrow's words differ from its own for NaN and NULL.
            (pl.scan_pyarrow_dataset(table.dataset()), pl.scan_pyarrow_dataset(ds.dataset(memory))),
        ):
            found, expected = (f.filter(expression).select("id").collect()["id"].sort() for f in (ours, plain))
            assert found.to_list() == expected.to_list(), str(expression)


def _condition(rng: random.Random, depth: int) -> str:
    if depth:
        left, right = _condition(rng, depth - 1), _condition(rng, depth - 1)
        return rng.choice([f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"])
    number, word = rng.randrange(3 * N), rng.choice(["NEW", "PAID", "none"])
    op = rng.choice(["=", "<>", "<", "<=", ">", ">="])
    return rng.choice(
        [
            f"id {op} {number}",
            f"status {op} '{word}'",
            f"status IN ('{word}', 'LOST')",
            f"status NOT IN ('{word}', 'LOST')",
            "status IS NULL",
            "amount IS NOT NULL",
            f"amount {op} {number % 1000}",
            "amount = 'nan'::DOUBLE",
            f"n {op} {number % 5000 - 2500}.00",
            f"day {op} DATE '2024-01-{number % 28 + 1:02}'",
            f"id % 3 = {number % 3}",
            "note IS NULL",
        ]
    )


def _polars(rng: random.Random, depth: int) -> pl.Expr:
    if depth:
        left, right = _polars(rng, depth - 1), _polars(rng, depth - 1)
        return rng.choice([left & right, left | right, ~left])
    number, word = rng.randrange(3 * N), rng.choice(["NEW", "PAID", "none"])
    name, value = rng.choice([("id", number), ("status", word), ("amount", float(number % 1000)), ("amount", np.nan)])
    column = pl.col(name)
    return rng.choice(
        [
            column == value,
            column != value,
            column < value,
            column >= value,
            column.is_null(),
            pl.col("status").is_in([word, "LOST"]),
            ~pl.col("status").is_in([word, "LOST"]),
            pl.col("amount").is_nan(),
            pl.col("status").str.starts_with(word[:2]),
            pl.col("id").is_between(number, number + 500, closed=rng.choice(["both", "left", "right", "none"])),
            pl.col("id") % 3 == number % 3,
        ]
    )


def test_datasets_of_many_threads_share_one_io_thread(table: bitlake.Table) -> None:
    """A scan that waited for Arrow's pool on a thread of that pool would never end."""
    before = pa.io_thread_count()
    pa.set_io_thread_count(1)
    try:
        names = [f"d{i}" for i in range(12)]
        connection = duckdb.connect()
        for name in names:
            connection.register(name, table.dataset())
        union = " UNION ALL ".join(f"SELECT id FROM {name}" for name in names)
        assert connection.sql(f"SELECT count(*) FROM ({union})").fetchall() == [(12 * table.count(),)]
    finally:
        pa.set_io_thread_count(before)


def test_a_constant_of_polars_reaches_the_scan_as_it_is(tmp_path: Path, plans: list[Any]) -> None:
    """Polars reads some floats back from its JSON one unit off: the scan missed their rows."""
    values = [-1617453.5483744983, -462225.78664050205, 0.1]
    own = bitlake.connect(tmp_path).create_table("own", pa.table({"x": values}))
    for value in values:
        assert own.lazy().filter(pl.col("x") == value).collect()["x"].to_list() == [value]
        assert own.lazy().filter(pl.col("x") >= value).collect().height == sum(v >= value for v in values)
    plans.clear()
    both = (pl.col("x") < float("inf")) & (pl.col("x") < -2e6)
    assert own.lazy().filter(both).collect().height == 0 and not plans[0].files


def test_text_that_is_not_utf8_is_an_error_for_engines_that_would_crash(tmp_path: Path) -> None:
    """DuckDB's instance was lost by lower(v), length(v) was another than Spark's, and Polars ended the process."""
    table = bitlake.connect(str(tmp_path)).create_table("t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    table.append(pa.table({"id": [1, 2], "v": pa.array([b"\xff a", b"ok"], pa.binary()).view(pa.string())}))
    table.append(pa.table({"id": [3], "v": ["fine"]}))
    dataset = table.dataset()
    says = r"table 'default.t': .*\.parquet: column 'v' has text that is not UTF-8.*engine='spark'"
    reads: list[Callable[[], Any]] = [
        lambda: duckdb.from_arrow(dataset).query("t", "SELECT lower(v) FROM t").fetchall(),
        lambda: table.to_duckdb().aggregate("max(length(v))").fetchall(),
        lambda: table.lazy().select(pl.col("v").str.to_uppercase()).collect(),
        table.to_polars,
        dataset.to_table,
    ]
    for read in reads:
        with pytest.raises((BitlakeError, duckdb.Error, pl.exceptions.PolarsError, pa.ArrowException), match=says):
            read()
    assert duckdb.sql("SELECT id FROM dataset ORDER BY id").fetchall() == [(1,), (2,), (3,)]
    assert duckdb.sql("SELECT lower(v) FROM dataset WHERE id = 3").fetchall() == [("fine",)]
    assert table.scan(["v"]).to_arrow()["v"].cast(pa.binary()).to_pylist() == [b"\xff a", b"ok", b"fine"]


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_datafusion_sees_no_members_of_null_structs(tmp_path: Path, file_format: str) -> None:
    """DataFusion shows what Arrow holds under a NULL struct, which was 0 of Avro files and of added columns."""
    kind = pa.struct([("a", pa.int32()), ("d", pa.struct([("e", pa.string())]))])
    rows = [{"s": {"a": 1, "d": {"e": "x"}}}, {"s": None}, {"s": {"a": None, "d": None}}]
    lake = bitlake.connect(str(tmp_path / "lake"))
    table = lake.create_table("t", pa.schema([("s", kind)]), options={"file.format": file_format})
    table.append(pa.Table.from_pylist(rows, schema=table.arrow_schema))
    table.add_column("added", kind)
    context = pytest.importorskip("datafusion").SessionContext()
    context.register_dataset("t", table.dataset())
    for path, count in (("s['a']", 2), ("s['d']['e']", 2), ("added['a']", 3), ("added['d']['e']", 3)):
        assert context.sql(f"SELECT count(*) AS n FROM t WHERE {path} IS NULL").to_pydict() == {"n": [count]}, path


def test_errors_of_streams_are_short(tmp_path: Path) -> None:
    """Arrow puts an error's traceback, with those of its causes, into the message that other libraries show."""
    table = bitlake.connect(tmp_path).create_table("t", pa.table({"i": [1, 2]}))
    next(tmp_path.rglob("*.parquet")).unlink()
    connection = duckdb.connect()
    connection.register("t", table.dataset())
    reads = [
        lambda: pa.RecordBatchReader.from_stream(table).read_all(),
        lambda: connection.sql("SELECT sum(i) FROM t").fetchall(),
        lambda: table.to_duckdb(connection).filter("i = 1").fetchall(),
    ]
    for read in reads:
        with pytest.raises((pa.ArrowInvalid, duckdb.Error), match="data file .* is missing") as error:
            read()
        assert len(str(error.value).splitlines()) < 8


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_polars_counts_rows_without_columns(tmp_path: Path, engine: Any) -> None:
    """Bug: a query that needs no column, but the number of rows, had no rows."""
    rows = pa.table({"id": range(10), "v": ["a"] * 10})
    table = bitlake.connect(str(tmp_path)).create_table("t", rows)
    for query in (
        lambda frame: frame.with_row_index().select("index"),
        lambda frame: frame.with_row_index().filter(pl.col("index") < 3).select(pl.len()),
        lambda frame: frame.head(4).with_row_index().select("index"),
        lambda frame: frame.select(pl.len()),
        lambda frame: frame.with_columns(k=pl.lit(2)).select("k"),
    ):
        assert query(table.lazy()).collect(engine=engine).equals(query(pl.from_arrow(rows).lazy()).collect())
