"""What do primary-key tables and deletes cost, beside Spark's own write and scan, Delta Lake and pypaimon?"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bench.measure import Result, interleaved, timed

if TYPE_CHECKING:
    from bench.cases import Bench

KEYED = {"primary-key": "order_id", "bucket": "2", "deletion-vectors.enabled": "true"}
MERGED = {"primary-key": "order_id", "bucket": "2"}
_COLUMNS = "order_id, user_id, status, region, amount, order_date, payload"
_CHANGED = (
    "order_id, user_id, 'CHANGED' AS status, region, CAST(amount + 1 AS DECIMAL(10, 2)) AS amount, order_date, payload"
)
_SPARK_WRITE = "Spark's own write of the same rows (zstd)"
_AGGREGATE = "SELECT status, count(*), sum(amount), max(payload) FROM {} GROUP BY status ORDER BY 1"


def pk_write(bench: Bench) -> list[Result]:
    """What do a load of 2M rows and upserts of 200k scattered over them cost, compaction included?"""
    load, upserts = bench.rows // 2, bench.rows // 20
    bench.lake.sql("DROP TABLE IF EXISTS bench.pk")
    rows = f"SELECT {_COLUMNS} FROM bench_source WHERE order_id < {load}"
    changed = _scattered(bench, load, upserts, 1)
    delta = _delta(bench, load) if bench.delta is not None else None

    def ours_load() -> float:
        bench.create("pk", KEYED)
        return timed(lambda: bench.insert("pk", rows))

    def ours_upsert() -> float:
        return timed(lambda: bench.insert("pk", f"SELECT * FROM {changed}"))

    def delta_upsert() -> float:
        assert delta is not None and bench.delta is not None
        found: float = bench.delta.ask(time=delta)["seconds"]
        return found

    m = interleaved({"spark": lambda: _plain(bench, rows), "ours": ours_load}, bench.rounds)
    results = [Result("load 2M rows into 2 buckets", "s", m["ours"], m["spark"], _SPARK_WRITE, 2.0, bench.rounds)]
    runs: dict[str, Callable[[], float]] = {
        "spark": lambda: _plain(bench, f"SELECT * FROM {changed}"),
        "ours": ours_upsert,
    }
    if delta is not None:
        runs["delta"] = delta_upsert
    m = interleaved(runs, max(3, bench.rounds))
    name = "upsert 200k scattered over 2M, compaction included"
    results.append(Result(name, "s", m["ours"], m["spark"], _SPARK_WRITE, 2.5, bench.rounds))
    if delta is not None:
        ratio = f"Delta's MERGE is {m['delta'] / m['spark']:.1f} × Spark's write"
        results.append(Result(name, "s", m["ours"], m["delta"], "Delta Lake MERGE", None, bench.rounds, ratio))
    assert bench.lake.sql("SELECT count(*) FROM bench.pk").collect()[0][0] == load, "upserts changed the number of keys"
    return results


def pk_growth(bench: Bench) -> list[Result]:
    """Does an upsert of 10k rows grow with the table, 1M → 4M → 16M?"""
    few = max(1, bench.rows // 400)
    sizes = [bench.rows // 4, bench.rows, 4 * bench.rows]
    taken: dict[str, list[float]] = {"clustered": [], "scattered": []}
    for size in sizes:
        # One insert: its sorted files go to the highest level as they are, so the table is compacted.
        bench.create("growing", KEYED)
        parts = max(1, size // bench.rows)
        key = f"order_id + part.id * {bench.rows} AS order_id"
        source = f"bench_source CROSS JOIN range({parts}) AS part WHERE order_id < {min(size, bench.rows)}"
        rows = f"SELECT {_keyed(_COLUMNS, key)} FROM {source}"
        load = timed(lambda q=rows: bench.insert("growing", q))  # type: ignore[misc]
        bench.say(f"growth: {size:,} rows loaded in {load:.0f} s")
        for spread, values in taken.items():
            seconds = []
            for turn in range(bench.rounds + 1):
                number = (
                    f"{size // 2} + {turn * few} + order_id"
                    if spread == "clustered"
                    else (f"order_id * {size // few} + {turn}")
                )
                changed = _keyed(_CHANGED, f"({number}) % {size} AS order_id")
                query = f"SELECT {changed} FROM bench_source WHERE order_id < {few}"
                seconds.append(timed(lambda q=query: bench.insert("growing", q)))  # type: ignore[misc]
            values.append(statistics.median(seconds[1:]))
            bench.say(f"growth: {spread}, {size:,} rows: {values[-1]:.2f} s")
        found = bench.lake.sql("SELECT count(*) FROM bench.growing").collect()[0][0]
        assert found == size, "upserts changed the number of keys"
    bench.lake.sql("DROP TABLE bench.growing")
    results = []
    for spread, values in taken.items():
        counts = " → ".join(f"{size / 1e6:g}M" for size in sizes)
        note = " → ".join(f"{t:.2f}" for t in values) + f" s at {counts} rows"
        target = 1.2 if spread == "clustered" else 16.0
        name = f"upsert {few:,} {spread} keys, table of {sizes[2] / 1e6:g}M"
        base = f"the same into {sizes[0] / 1e6:g}M"
        results.append(Result(name, "s", values[2], values[0], base, target, bench.rounds, note))
    return results


def _keyed(columns: str, key: str) -> str:
    """A SELECT list with another key in place of its first column."""
    return columns.replace("order_id", key, 1)


def pk_read(bench: Bench) -> list[Result]:
    """Do upserts slow reads down, and how long does a point read take?"""
    import bitlake

    load, upserts = bench.rows // 2, bench.rows // 20
    for name, options in (("rounds", KEYED), ("compacted", KEYED), ("merged", MERGED)):
        bench.create(name, options)
        bench.insert(name, f"SELECT {_COLUMNS} FROM bench_source WHERE order_id < {load}")
        for turn in range(10):
            bench.insert(name, f"SELECT * FROM {_scattered(bench, load, upserts, turn)}")
    bench.lake.sql("CALL sys.compact(table => 'bench.compacted', compact_strategy => 'full')").collect()
    files = bench.parquet_files("bench.compacted")
    bench.spark.read.parquet(*files).select(*_COLUMNS.split(", ")).createOrReplaceTempView("bench_pk_files")
    answers: dict[str, Any] = {}

    def aggregate(table: str, spark: bool = False) -> float:
        session = bench.spark if spark else bench.lake
        return timed(lambda: answers.update({table: session.sql(_AGGREGATE.format(table)).collect()}))

    runs: dict[str, Callable[[], float]] = {
        "rounds": lambda: aggregate("bench.rounds"),
        "compacted": lambda: aggregate("bench.compacted"),
        "merged": lambda: aggregate("bench.merged"),
        "spark": lambda: aggregate("bench_pk_files", spark=True),
    }
    n = 2 * bench.rounds + 1
    m = interleaved(runs, n, warmups=2)
    first = answers["bench.compacted"]
    assert all(a == first for a in answers.values()), "the tables disagree"
    results = [
        Result("aggregate after 10 upsert rounds", "s", m["rounds"], m["compacted"], "the same, compacted", 1.3, n),
        Result("aggregate, merge-on-read", "s", m["merged"], m["rounds"], "deletion vectors", None, n),
        Result("aggregate, compacted", "s", m["compacted"], m["spark"], "Spark's scan of the same files", 1.0, n),
    ]
    key = load // 3

    def point() -> float:
        table = bitlake.connect(str(bench.warehouse)).table("bench.rounds")
        return timed(lambda: answers.update(point=table.scan(where=f"order_id = {key}").to_arrow().num_rows))

    def warm() -> float:
        table = bench.lake.table("bench.rounds")
        return timed(lambda: answers.update(point=table.scan(where=f"order_id = {key}").to_arrow().num_rows))

    points: dict[str, Callable[[], float]] = {"ours": point, "warm": warm}
    if bench.peer is not None:
        peer = bench.peer
        where = ["equal", "order_id", key]
        points["rust"] = lambda: peer.read_where(bench.warehouse, "bench.rounds", where, True)[0]
    m = interleaved(points, 2 * n, warmups=3)
    assert answers["point"] == 1
    results.append(Result("point read by key, warm", "s", m["warm"], None, "", 0.010, 2 * n))
    if "rust" in m:
        base = "pypaimon native (Rust)"
        results.append(Result("point read by key", "s", m["ours"], m["rust"], base, 1.0, 2 * n))
    for name in ("rounds", "compacted", "merged"):
        bench.lake.sql(f"DROP TABLE bench.{name}")
    return results


def dv_delete(bench: Bench) -> list[Result]:
    """How long does a DELETE of 1 % of all append rows take, beside Delta Lake with deletion vectors?"""
    condition = "order_id % 100 = {}"
    bench.create("deletes", {"deletion-vectors.enabled": "true"})
    bench.insert("deletes")
    if bench.delta is not None:
        _delta_table(bench, "deletes", bench.rows)
    turns = {"ours": 0, "delta": 0}

    def next_condition(who: str) -> str:
        turns[who] += 1
        return condition.format(turns[who])

    def ours() -> float:
        where = next_condition("ours")
        return timed(lambda: bench.lake.sql(f"DELETE FROM bench.deletes WHERE {where}").collect())

    def theirs() -> float:
        assert bench.delta is not None
        where = next_condition("delta")
        found: float = bench.delta.ask(time=f"DELETE FROM deletes WHERE {where}")["seconds"]
        return found

    runs: dict[str, Callable[[], float]] = {"ours": ours}
    if bench.delta is not None:
        runs["delta"] = theirs
    m = interleaved(runs, max(3, bench.rounds))
    left = bench.lake.sql("SELECT count(*) FROM bench.deletes").collect()[0][0]
    assert left == bench.rows - turns["ours"] * (bench.rows // 100), "DELETE took other rows"
    bench.lake.sql("DROP TABLE bench.deletes")
    name = "DELETE 1 % of 4M append rows"
    if "delta" not in m:
        return [Result(name, "s", m["ours"], None, "", None, bench.rounds, "no environment with Delta Lake")]
    base = "Delta Lake with deletion vectors"
    return [Result(name, "s", m["ours"], m["delta"], base, 1 / 3, bench.rounds)]


def small_merge(bench: Bench) -> list[Result]:
    """How long does a MERGE of 1,000 rows into 4M append rows take, beside the statement on executors?"""
    from bitlake.spark.dml import merge

    bench.create("merges", {"deletion-vectors.enabled": "true"})
    bench.insert("merges")
    few, turns = merge.merge_few, {"here": 0, "executors": 0}

    def run(who: str) -> float:
        turns[who] += 1
        first = turns[who] * 2000 + (bench.rows // 2 if who == "here" else 0)
        rows = f"SELECT {_CHANGED} FROM bench.merges WHERE order_id BETWEEN {first} AND {first + 999}"
        text = (
            f"MERGE INTO bench.merges AS t USING ({rows}) AS s ON t.order_id = s.order_id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        merge.merge_few = few if who == "here" else lambda *_: None
        try:
            return timed(lambda: bench.lake.sql(text).collect())
        finally:
            merge.merge_few = few

    m = interleaved({who: lambda who=who: run(who) for who in turns}, max(3, bench.rounds))  # type: ignore[misc]
    bench.lake.sql("DROP TABLE bench.merges")
    name = "MERGE of 1,000 rows into 4M append rows"
    return [
        Result(name, "s", m["here"], None, "", 1.0, bench.rounds),
        Result(name, "s", m["here"], m["executors"], "the same on executors", None, bench.rounds),
    ]


def _plain(bench: Bench, query: str) -> float:
    """Seconds of Spark's own Parquet write of a query's rows."""
    folder = bench.folder / "plain-parquet"
    shutil.rmtree(folder, ignore_errors=True)
    write = bench.spark.sql(query).write.option("compression", "zstd")
    seconds = timed(lambda: write.parquet(str(folder)))
    shutil.rmtree(folder)
    return seconds


def _scattered(bench: Bench, rows: int, count: int, turn: int) -> str:
    """A view of ``count`` changed rows, their keys spread over the first ``rows``, in no order; made once a turn.

    The rows are in a Parquet file, so that reading them costs each writer the same.
    """
    name = f"bench_changed_{rows}_{count}_{turn}"
    folder = bench.folder / name
    if not folder.exists():
        step = rows // count
        query = f"SELECT {_CHANGED} FROM bench_source WHERE order_id < {rows} AND order_id % {step} = {turn % step}"
        frame = bench.spark.sql(query).orderBy("payload").coalesce(2)
        frame.write.parquet(str(folder))
    bench.spark.read.parquet(str(folder)).createOrReplaceTempView(name)
    return name


def _delta(bench: Bench, rows: int) -> str:
    """A Delta table like ours, and the MERGE to be timed."""
    _delta_table(bench, "pk", rows)
    assert bench.delta is not None
    changed = bench.folder / f"bench_changed_{rows}_{bench.rows // 20}_1"
    bench.delta.ask(setup=[f"CREATE OR REPLACE TEMPORARY VIEW changed USING parquet OPTIONS (path '{changed}')"])
    return (
        "MERGE INTO pk USING changed ON pk.order_id = changed.order_id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def _delta_table(bench: Bench, name: str, rows: int) -> None:
    assert bench.delta is not None
    source = f"SELECT * FROM parquet.`{bench.source}` WHERE order_id < {rows}"
    vectors = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    bench.delta.ask(setup=[f"DROP TABLE IF EXISTS {name}", f"CREATE TABLE {name} USING delta {vectors} AS {source}"])
