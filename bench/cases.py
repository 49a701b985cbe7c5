"""The questions of the benchmark: each takes a Bench and returns the lines that answer it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars

from bench.advise import advise
from bench.aggregates import aggregates
from bench.cores import cores
from bench.first_statements import first_statements
from bench.headline import headline
from bench.index_costs import index_build, index_size
from bench.join_filters import join_filters
from bench.lineitem import lineitem
from bench.machine import WorkerMemory
from bench.measure import Result, interleaved, timed
from bench.peers import PyPaimonTimer, SparkPeer
from bench.planning import planning
from bench.primary_key import dv_delete, pk_growth, pk_read, pk_write, small_merge
from bench.s3_read import s3_read
from bench.scale import scale
from bench.scale_peers import scale_peers
from bench.selective import selective
from bench.text_index import text_index
from bench.tpch import tpch
from bench.tpch_duckdb import tpch_duckdb
from bench.vectors import vectors

try:
    import datafusion
except ModuleNotFoundError:
    datafusion = None

INDEXES = {"file-index.bitmap.columns": "status,region", "file-index.bloom-filter.columns": "user_id"}
COLUMNS = (
    "order_id BIGINT, user_id BIGINT, status STRING, region STRING, "
    "amount DECIMAL(10, 2), order_date DATE, payload STRING"
)
PENDING = "status = 'PENDING'"


@dataclass
class Bench:
    """Where the cases work.  Mutable: tables come and go in the warehouse."""

    spark: Any
    lake: Any
    folder: Path
    source: Path
    rows: int
    rounds: int
    peer: PyPaimonTimer | None
    say: Callable[[str], None]
    delta: SparkPeer | None = None
    iceberg: SparkPeer | None = None
    text_mb: int = 200
    made: set[str] = field(default_factory=set)

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"

    def create(self, name: str, options: dict[str, str]) -> None:
        """An empty orders table, in place of one of that name."""
        self.lake.sql(f"DROP TABLE IF EXISTS bench.{name}")
        pairs = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
        self.lake.sql(f"CREATE TABLE bench.{name} ({COLUMNS})" + (f" TBLPROPERTIES ({pairs})" if pairs else ""))

    def insert(self, name: str, query: str = "SELECT * FROM bench_source") -> None:
        self.lake.sql(f"INSERT INTO bench.{name} {query}")

    def indexed(self) -> str:
        """The name of a table with every row and all indexes, made once."""
        if "indexed" not in self.made:
            self.create("indexed", INDEXES)
            self.insert("indexed")
            self.made.add("indexed")
        return "bench.indexed"

    def without_index(self) -> str:
        """The very same files as :meth:`indexed` (linked), in a table that does not use its indexes."""
        if "noindex" not in self.made:
            self.indexed()
            folder = self.warehouse / "bench.db"
            shutil.rmtree(folder / "noindex", ignore_errors=True)
            shutil.copytree(folder / "indexed", folder / "noindex", copy_function=_link_data)
            self.lake.sql("ALTER TABLE bench.noindex SET TBLPROPERTIES ('file-index.read.enabled' = 'false')")
            self.made.add("noindex")
        return "bench.noindex"

    def parquet_files(self, table: str) -> list[str]:
        """The live data files of a table."""
        return [f.path for f in self.lake.table(table).scan().plan().files]


def writes(bench: Bench) -> list[Result]:
    """What does an append cost beside Spark's own write of the same rows, and what an index built later?"""
    plain = bench.folder / "plain-parquet"

    def spark_write(**options: str) -> float:
        shutil.rmtree(plain, ignore_errors=True)  # like ours, into a folder that is not there yet
        write = bench.spark.read.parquet(str(bench.source)).write.options(compression="zstd", **options)
        return timed(lambda: write.parquet(str(plain)))

    def spark_same_level() -> float:
        return spark_write(**{"parquet.compression.codec.zstd.level": "1"})

    def append_plain() -> float:
        bench.create("later", {})
        return timed(lambda: bench.insert("later"))

    def append_indexed() -> float:
        bench.create("fresh", INDEXES)
        return timed(lambda: bench.insert("fresh"))

    def rewrite() -> float:
        # On a table of its own: the indexes of one round must not be there in the next.
        bench.create("backfill", {})
        bench.insert("backfill")
        pairs = ", ".join(f"'{k}' = '{v}'" for k, v in INDEXES.items())
        bench.lake.sql(f"ALTER TABLE bench.backfill SET TBLPROPERTIES ({pairs})")
        return timed(lambda: bench.lake.sql("CALL sys.rewrite_file_index('bench.backfill')").collect())

    runs = {
        "spark": spark_write,
        "plain": append_plain,
        "indexed": append_indexed,
        "rewrite": rewrite,
        "same": spark_same_level,
    }
    m = interleaved(runs, bench.rounds)
    for name in ("later", "fresh", "backfill"):
        bench.lake.sql(f"DROP TABLE IF EXISTS bench.{name}")
    shutil.rmtree(plain, ignore_errors=True)
    base = "Spark write.parquet (zstd)"
    level = (
        "bitlake writes zstd level 1, as Paimon does, and Spark's default is 3; Spark's own write at level 1 takes "
        f"{m['same']:.2f} s: ratio {m['plain'] / m['same']:.3f}, with the indexes {m['indexed'] / m['same']:.3f}, "
        f"rewrite {m['rewrite'] / m['same']:.3f}"
    )
    return [
        Result("append, no index", "s", m["plain"], m["spark"], base, 1.05, bench.rounds, level),
        Result("append, bitmap ×2 + bloom", "s", m["indexed"], m["spark"], base, 1.25, bench.rounds),
        Result("rewrite_file_index of the three", "s", m["rewrite"], m["spark"], base, 0.30, bench.rounds),
    ]


def point_arrow(bench: Bench) -> list[Result]:
    """How long until the PENDING orders are an Arrow table, with no Spark, beside pypaimon on the same table?"""
    import bitlake

    table = bench.indexed()
    counts: dict[str, int] = {}

    def ours() -> float:
        def read() -> None:
            scan = bitlake.connect(str(bench.warehouse)).table(table).scan(where=PENDING)
            counts["bitlake"] = scan.to_arrow().num_rows

        return timed(read)

    def theirs(native: bool) -> float:
        assert bench.peer is not None
        seconds, rows = bench.peer.read(bench.warehouse, table, "status", "PENDING", native)
        counts[f"pypaimon {native}"] = rows
        return seconds

    if bench.peer is None:
        bench.say("no environment with pypaimon (make .venv-pypaimon/.ready): measuring ours alone")
        m = interleaved({"ours": ours}, 2 * bench.rounds + 1)
        return [Result("PENDING to_arrow", "s", m["ours"], None, "", 0.09, 2 * bench.rounds + 1, "no pypaimon here")]
    rounds = 2 * bench.rounds + 1
    runs = {"ours": ours, "python": lambda: theirs(False), "rust": lambda: theirs(True)}
    m = interleaved(runs, rounds, warmups=2)
    same_counts(counts)
    return [
        Result("PENDING to_arrow", "s", m["ours"], m["python"], "pypaimon", 1 / 20, rounds),
        Result("PENDING to_arrow", "s", m["ours"], m["rust"], "pypaimon native (Rust)", 1.0, rounds),
    ]


def point_spark(bench: Bench) -> list[Result]:
    """The same rows as a Spark SELECT: with the index, and on the same files without."""
    with_index, without = bench.indexed(), bench.without_index()
    counts: dict[str, int] = {}

    def select(table: str) -> Any:
        return bench.lake.sql(f"SELECT * FROM {table} WHERE {PENDING}")

    def collect(table: str) -> float:
        return timed(lambda: counts.update({table: len(select(table).collect())}))

    def to_arrow(table: str) -> float:
        return timed(lambda: counts.update({f"{table} as Arrow": select(table).toArrow().num_rows}))

    runs = {
        "with": lambda: collect(with_index),
        "without": lambda: collect(without),
        "arrow": lambda: to_arrow(with_index),
        "arrow without": lambda: to_arrow(without),
    }
    rounds = 2 * bench.rounds + 1
    m = interleaved(runs, rounds, warmups=3)
    same_counts(counts)
    name = "PENDING as Spark SELECT"
    return [
        Result(f"{name}, collect()", "s", m["with"], m["without"], "the same without index", 1 / 3, rounds),
        Result(f"{name}, collect()", "s", m["with"], None, "(reference machine)", 0.090, rounds),
        Result(f"{name}, toArrow()", "s", m["arrow"], m["arrow without"], "the same without index", 1 / 3, rounds),
        Result(f"{name}, toArrow()", "s", m["arrow"], None, "(reference machine)", 0.090, rounds),
    ]


def point_engines(bench: Bench) -> list[Result]:
    """What do DuckDB, Polars and DataFusion, which push the filter into a dataset, cost beside the scan itself?"""
    import bitlake

    name = bench.indexed()
    counts: dict[str, int] = {}

    def table() -> Any:
        return bitlake.connect(str(bench.warehouse)).table(name)

    def through_datafusion() -> int:
        context = datafusion.SessionContext()
        context.register_dataset("orders", table().dataset())
        return int(context.sql(f"SELECT * FROM orders WHERE {PENDING}").to_arrow_table().num_rows)

    ways: dict[str, Callable[[], int]] = {
        "scan": lambda: int(table().scan(where=PENDING).to_arrow().num_rows),
        "DuckDB": lambda: int(table().to_duckdb().filter(PENDING).to_arrow_table().num_rows),
        "Polars": lambda: int(table().lazy().filter(polars.col("status") == "PENDING").collect().height),
    }
    if datafusion is None:
        bench.say("DataFusion is not installed: measuring DuckDB and Polars alone")
    else:
        ways["DataFusion"] = through_datafusion
    runs = {k: lambda k=k, way=way: timed(lambda: counts.update({k: way()})) for k, way in ways.items()}
    rounds = 2 * bench.rounds + 1
    m = interleaved(runs, rounds, warmups=2)
    same_counts(counts)
    return [
        Result(f"PENDING through {k}", "s", m[k], m["scan"], "scan(where=…).to_arrow()", 2.0, rounds)
        for k in list(ways)[1:]
    ]


def full_scan(bench: Bench) -> list[Result]:
    """Does a query that needs everything pay for the lake table?"""
    table = bench.indexed()
    query = "SELECT region, count(*), sum(amount), max(order_date), max(payload) FROM {} GROUP BY region ORDER BY 1"
    bench.spark.read.parquet(*bench.parquet_files(table)).createOrReplaceTempView("bench_files")
    answers: dict[str, Any] = {}

    def ours() -> float:
        return timed(lambda: answers.update(ours=bench.lake.sql(query.format(table)).collect()))

    def theirs() -> float:
        return timed(lambda: answers.update(theirs=bench.spark.sql(query.format("bench_files")).collect()))

    rounds = 2 * bench.rounds + 1
    m = interleaved({"ours": ours, "theirs": theirs}, rounds, warmups=2)
    assert answers["ours"] == answers["theirs"], "the lake table and its own files disagree"
    return [Result("full-scan aggregate", "s", m["ours"], m["theirs"], "Spark's scan of the same files", 1.0, rounds)]


def memory(bench: Bench) -> list[Result]:
    """How much memory does one writer task take, and does it grow with the input?"""
    peaks = []
    for times in (1, 2):
        # One task writes everything: coalesced, so that the input of the task is the whole input.
        once = bench.spark.read.parquet(str(bench.source))
        (once if times == 1 else once.union(once)).coalesce(1).createOrReplaceTempView("bench_one_task")
        bench.create("memory", INDEXES)
        with WorkerMemory() as watched:
            bench.insert("memory", "SELECT * FROM bench_one_task")
        peaks.append(watched.peak_mb)
    bench.lake.sql("DROP TABLE bench.memory")
    note = f"one task, {bench.rows:,} rows: {peaks[0]:.0f} MB; {2 * bench.rows:,} rows: {peaks[1]:.0f} MB"
    return [Result("peak memory of a Spark writer task", "MB", max(peaks), None, "", 600, 2, note)]


def _link_data(source: str, target: str) -> None:
    """Link what is never written again; copy the rest (hints are replaced in place by some writers)."""
    (os.link if source.endswith((".parquet", ".index")) else shutil.copy2)(source, target)


def same_counts(counts: dict[str, int]) -> None:
    """A fast wrong answer is no result."""
    if len(set(counts.values())) != 1:
        raise AssertionError(f"they read different numbers of rows: {counts}")


CASES: dict[str, Callable[[Bench], list[Result]]] = {
    "writes": writes,
    "point_arrow": point_arrow,
    "point_spark": point_spark,
    "point_engines": point_engines,
    "full_scan": full_scan,
    "memory": memory,
    "first_statements": first_statements,
    "headline": headline,
    "selective": selective,
    "index_build": index_build,
    "index_size": index_size,
    "planning": planning,
    "scale": scale,
    "scale_peers": scale_peers,
    "tpch": tpch,
    "tpch_duckdb": tpch_duckdb,
    "join_filters": join_filters,
    "vectors": vectors,
    "cores": cores,
    "pk_write": pk_write,
    "pk_growth": pk_growth,
    "pk_read": pk_read,
    "dv_delete": dv_delete,
    "small_merge": small_merge,
    "s3_read": s3_read,
    "lineitem": lineitem,
    "advise": advise,
    "aggregates": aggregates,
    "text_index": text_index,
}
