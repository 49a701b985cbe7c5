"""TPC-H's lineitem in bitlake, plain Parquet, Delta Lake and Iceberg: one face, so that each is asked the same.

All load the same eight Parquet files, in order of ``l_orderkey``, one task to a file, zstd; what else is set is in
:data:`SETUP`.  Every engine runs in a Spark session of its own, but plain Parquet in bitlake's.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bench.measure import timed
from bench.peers import SparkPeer
from bench.spark_peer import summary

if TYPE_CHECKING:
    from bench.cases import Bench

FILES = 8
_BLOOM = "l_partkey"
_KEY = "l_orderkey, l_linenumber"
_COLUMNS = (
    "l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber INT, l_quantity DECIMAL(15, 2), "
    "l_extendedprice DECIMAL(15, 2), l_discount DECIMAL(15, 2), l_tax DECIMAL(15, 2), l_returnflag STRING, "
    "l_linestatus STRING, l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct STRING, "
    "l_shipmode STRING, l_comment STRING"
)
_INDEXES = {
    "file-index.bsi.columns": "l_partkey",
    "file-index.bitmap.columns": "l_shipmode,l_returnflag",
    "file-index.range-bitmap.columns": "l_shipdate",
}
_APPEND = {"deletion-vectors.enabled": "true", **_INDEXES}
_KEYED = {
    "primary-key": _KEY.replace(" ", ""),
    "bucket": "4",
    "bucket-key": "l_orderkey",
    "deletion-vectors.enabled": "true",
}
_DELTA = {
    "delta.enableDeletionVectors": "true",
    # Delta Lake 4.1.0 reads no checkpoint on PySpark 4.1.4 (NoSuchMethodError), and makes one after ten commits.
    "delta.checkpointInterval": "1000",
}
_ICEBERG = {
    "format-version": "3",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    f"write.parquet.bloom-filter-enabled.column.{_BLOOM}": "true",
}
SETUP = {
    "bitlake": "append table with deletion vectors; bsi on l_partkey, bitmaps on l_shipmode and l_returnflag, "
    "range-bitmap on l_shipdate",
    "primary key": "bitlake's table with primary key (l_orderkey, l_linenumber), 4 buckets by l_orderkey, deletion "
    "vectors, no index; an upsert is INSERT INTO, compaction included",
    "plain Parquet": f"Spark's own write, Parquet bloom filter on {_BLOOM}; a delete rewrites everything",
    "Delta Lake": f"deletion vectors, Parquet bloom filter on {_BLOOM} (by the session's Hadoop setting), no "
    "checkpoint of its log within the run",
    "Iceberg": f"format v3 with merge-on-read deletion vectors, Parquet bloom filter on {_BLOOM} (table property)",
}
_TOTALS = "SELECT count(*), sum(l_orderkey), sum(l_partkey), sum(l_quantity), sum(l_extendedprice) FROM {}"
_ONE_TASK_A_FILE = {"spark.sql.files.maxPartitionBytes": "1g", "spark.sql.files.openCostInBytes": "1g"}
_BLOOM_OPTION = f"parquet.bloom.filter.enabled#{_BLOOM}"
Answer = list[str]


class Engine(Protocol):
    """One table with all lines, in one engine.  Times are seconds."""

    name: str

    def load(self, source: Path) -> float:
        """Make the table from the files of a folder."""
        ...

    def read(self, where: str) -> tuple[float, Answer]:
        """Collect whole lines; with what must agree between engines."""
        ...

    def delete(self, where: str) -> float:
        """Delete lines."""
        ...

    def upsert(self, changed: Path) -> float:
        """Bring the lines of a folder of Parquet in, in place of those of the same key."""
        ...

    def totals(self) -> Answer:
        """Count and sums of everything."""
        ...

    def stored(self) -> tuple[int, float]:
        """Data files and megabytes of everything in the table's folder."""
        ...


class Ours:
    """bitlake: the append table with indexes, or the one with a primary key."""

    def __init__(self, bench: Bench, keyed: bool) -> None:
        self.name = "primary key" if keyed else "bitlake"
        self._keyed = keyed
        self._bench = bench
        self._table = "lines.keyed" if keyed else "lines.appended"

    def load(self, source: Path) -> float:
        bench, options = self._bench, _KEYED if self._keyed else _APPEND
        bench.lake.sql("CREATE DATABASE IF NOT EXISTS lines")
        bench.lake.sql(f"DROP TABLE IF EXISTS {self._table}")
        pairs = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
        bench.lake.sql(f"CREATE TABLE {self._table} ({_COLUMNS}) TBLPROPERTIES ({pairs})")
        with _settings(bench.spark, {} if self._keyed else _ONE_TASK_A_FILE):
            bench.spark.read.parquet(str(source)).createOrReplaceTempView("lines_source")
            return timed(lambda: bench.lake.sql(f"INSERT INTO {self._table} SELECT * FROM lines_source"))

    def read(self, where: str) -> tuple[float, Answer]:
        rows: list[Any] = []
        query = f"SELECT * FROM {self._table} WHERE {where}"
        seconds = timed(lambda: rows.extend(self._bench.lake.sql(query).collect()))
        return seconds, summary(rows)

    def scan(self, where: str) -> tuple[float, Answer]:
        """The same read without Spark: an Arrow table in this process."""
        import bitlake

        found: list[Any] = []

        def run() -> None:
            table = bitlake.connect(str(self._bench.warehouse)).table(self._table)
            found.append(table.scan(where=where).to_arrow())

        seconds = timed(run)
        return seconds, summary(found[0].to_pylist())

    def delete(self, where: str) -> float:
        return timed(lambda: self._bench.lake.sql(f"DELETE FROM {self._table} WHERE {where}").collect())

    def upsert(self, changed: Path) -> float:
        self._bench.spark.read.parquet(str(changed)).createOrReplaceTempView("changed")
        statement = f"INSERT INTO {self._table} SELECT * FROM changed" if self._keyed else merge(self._table)
        return timed(lambda: self._bench.lake.sql(statement).collect())

    def totals(self) -> Answer:
        return [str(value) for value in self._bench.lake.sql(_TOTALS.format(self._table)).collect()[0]]

    def stored(self) -> tuple[int, float]:
        return _stored(self._bench.warehouse / "lines.db" / self._table.partition(".")[2])


class PlainParquet:
    """A folder of Parquet and Spark's own reader and writer."""

    def __init__(self, bench: Bench) -> None:
        self.name = "plain Parquet"
        self._bench = bench
        self._folders = (bench.folder / "lines-plain", bench.folder / "lines-plain-next")

    def load(self, source: Path) -> float:
        with _settings(self._bench.spark, _ONE_TASK_A_FILE):
            seconds = self._write(self._bench.spark.read.parquet(str(source)), self._folders[0])
        self._look()
        return seconds

    def read(self, where: str) -> tuple[float, Answer]:
        rows: list[Any] = []
        query = f"SELECT * FROM lines_plain WHERE {where}"
        seconds = timed(lambda: rows.extend(self._bench.spark.sql(query).collect()))
        return seconds, summary(rows)

    def delete(self, where: str) -> float:
        now, then = self._folders
        kept = self._bench.spark.sql(f"SELECT * FROM lines_plain WHERE NOT ({where})")
        seconds = self._write(kept, then)
        shutil.rmtree(now)
        then.rename(now)
        self._look()
        return seconds

    def upsert(self, changed: Path) -> float:
        raise NotImplementedError("plain Parquet is not asked for upserts")

    def totals(self) -> Answer:
        return [str(value) for value in self._bench.spark.sql(_TOTALS.format("lines_plain")).collect()[0]]

    def stored(self) -> tuple[int, float]:
        return _stored(self._folders[0])

    def _write(self, rows: Any, folder: Path) -> float:
        shutil.rmtree(folder, ignore_errors=True)
        write = rows.write.option("compression", "zstd").option(_BLOOM_OPTION, "true")
        return timed(lambda: write.parquet(str(folder)))

    def _look(self) -> None:
        self._bench.spark.read.parquet(str(self._folders[0])).createOrReplaceTempView("lines_plain")


class Peer:
    """Delta Lake or Iceberg, in the process of its own."""

    def __init__(self, process: SparkPeer) -> None:
        self.name = SparkPeer.NAMES[process.kind]
        self._process = process
        self._table = "ice.lines.lineitem" if process.kind == "iceberg" else "lineitem"

    def load(self, source: Path) -> float:
        if self._process.kind == "iceberg":
            before = ["CREATE NAMESPACE IF NOT EXISTS ice.lines"]
            kind, options = "iceberg", _ICEBERG
        else:
            before = [f"SET `{_BLOOM_OPTION}` = true", "SET spark.sql.parquet.compression.codec = zstd"]
            kind, options = "delta", _DELTA
        pairs = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
        before += [f"DROP TABLE IF EXISTS {self._table}", *(f"SET {k} = {v}" for k, v in _ONE_TASK_A_FILE.items())]
        self._process.ask(setup=before)
        made = f"CREATE TABLE {self._table} USING {kind} TBLPROPERTIES ({pairs}) AS SELECT * FROM parquet.`{source}`"
        seconds: float = self._process.ask(time=made)["seconds"]
        self._process.ask(setup=[f"RESET {k}" for k in _ONE_TASK_A_FILE])
        return seconds

    def read(self, where: str) -> tuple[float, Answer]:
        found = self._process.ask(read=f"SELECT * FROM {self._table} WHERE {where}")
        return found["seconds"], found["answer"]

    def delete(self, where: str) -> float:
        seconds: float = self._process.ask(time=f"DELETE FROM {self._table} WHERE {where}")["seconds"]
        return seconds

    def upsert(self, changed: Path) -> float:
        view = f"CREATE OR REPLACE TEMPORARY VIEW changed USING parquet OPTIONS (path '{changed}')"
        self._process.ask(setup=[view])
        seconds: float = self._process.ask(time=merge(self._table))["seconds"]
        return seconds

    def totals(self) -> Answer:
        answer: Answer = self._process.ask(values=_TOTALS.format(self._table))["answer"]
        return answer

    def stored(self) -> tuple[int, float]:
        return _stored(self._process.folder)


def merge(table: str) -> str:
    """The MERGE of the view ``changed`` by the key."""
    same = " AND ".join(f"t.{column} = s.{column}" for column in _KEY.split(", "))
    return (
        f"MERGE INTO {table} t USING changed s ON {same} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def _stored(folder: Path) -> tuple[int, float]:
    files = [p for p in folder.rglob("*") if p.is_file()]
    return sum(p.suffix == ".parquet" for p in files), sum(p.stat().st_size for p in files) / 1e6


class _settings:
    """Spark settings for the length of a block."""

    def __init__(self, spark: Any, values: dict[str, str]) -> None:
        self._spark, self._values = spark, values

    def __enter__(self) -> None:
        for name, value in self._values.items():
            self._spark.conf.set(name, value)

    def __exit__(self, *_: object) -> None:
        for name in self._values:
            self._spark.conf.unset(name)
