"""Reads of tables in a bucket, with the latency and throughput of an object store: time, requests and bytes.

The store is bench/folder_server.py: 20 ms before each response, 100 MB a second for each connection.  In process, each
read begins with a new lake, so nothing is remembered.  TPC-H runs on Spark in one session, beside the same tables
through their local path, and with a local cache that the first run fills; it needs tpchgen-cli (bench/tpch.py).
pyarrow gets the names of the files, so it lists
nothing.
"""

from __future__ import annotations

import math
import shutil
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from bench import folder_server
from bench.folder_server import FolderServer, round_trips
from bench.measure import Result, interleaved, timed
from bench.tpch import TABLES, tpch_source
from bench.tpch_queries import QUERIES

if TYPE_CHECKING:
    from bench.cases import Bench

_INDEXES = {
    "file-index.bitmap.columns": "status,region",
    "file-index.bloom-filter.columns": "user_id",
    "target-file-row-num": "500000",
}
_OURS, _UNINDEXED, _PYARROW = "bitlake", "the same without index", "pyarrow dataset on the same files"
_WIDE, _CACHED = "with min_seek_size = 4 MB", "with a local cache"
_PENDING = "status = 'PENDING'"
_STORE = "20 ms a request, 100 MB/s a connection"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one read took: requests by what they are for, bytes of answers' bodies, round trips, rows, seconds."""

    asked: dict[str, int]
    received: int
    trips: int
    rows: int
    seconds: float

    @property
    def requests(self) -> int:
        """How many in all."""
        return sum(self.asked.values())


def s3_read(bench: Bench) -> list[Result]:
    """What do reads of a table in a bucket take, beside pyarrow, without indexes, and beside local files?"""
    root = bench.folder / "bucket"
    with folder_server.running(root) as server:
        return [*_in_process(bench, root, server), *_tpch(bench, root, server)]


def _in_process(bench: Bench, root: Path, server: FolderServer) -> list[Result]:
    import bitlake

    def lake(**more: str) -> Any:
        return bitlake.connect(f"s3://{folder_server.BUCKET}/orders", storage_options={**server.options, **more})

    made = bitlake.connect(str(root / "orders"))
    if "orders" not in made.tables():
        source = pq.ParquetFile(bench.source)
        made.create_table("orders", source.schema_arrow, options=_INDEXES)
        made.table("orders").append(
            pa.RecordBatchReader.from_batches(source.schema_arrow, source.iter_batches(100_000))
        )
    table = made.table("orders")
    sizes = [e.file.file_size for e in table._core.state().entries()]
    names = [f.path.removeprefix("s3://") for f in lake().table("orders").scan().plan().files]
    users = table.scan(columns=["user_id"]).to_arrow().column("user_id").to_numpy()
    user = int(users[0])
    # One that statistics cannot rule out.
    absent = int(np.setdiff1d(np.arange(users.min(), users.max()), users)[0])
    about = f"{len(users):,} rows in {len(names)} files of {sum(sizes) / 1e6:.0f} MB; {_STORE}; a new lake each time"

    def ours(where: str | None, columns: list[str] | None, indexed: bool = True, **more: str) -> int:
        scan = lake(**more).table("orders").scan(where=where, columns=columns)
        count: int = (scan if indexed else scan.without_index()).to_arrow().num_rows
        return count

    def arrow(filter: ds.Expression | None, columns: list[str] | None) -> int:
        store = file_system(server.endpoint)
        dataset = ds.dataset(names, filesystem=store, format="parquet")
        count: int = dataset.to_table(filter=filter, columns=columns).num_rows
        return count

    cache = _cache(bench)
    out: list[Result] = []
    questions: tuple[tuple[str, str | None, ds.Expression | None, list[str] | None], ...] = (
        (_PENDING, _PENDING, ds.field("status") == "PENDING", None),
        ("user_id = ?", f"user_id = {user}", ds.field("user_id") == user, None),
        ("an absent user_id", f"user_id = {absent}", ds.field("user_id") == absent, None),
        ("all rows", None, None, None),
        ("two columns of all rows", None, None, ["order_id", "amount"]),
    )
    for name, where, filter, columns in questions:
        reads: dict[str, Callable[[], int]] = {
            _OURS: lambda where=where, columns=columns: ours(where, columns),  # type: ignore[misc]
            _PYARROW: lambda filter=filter, columns=columns: arrow(filter, columns),  # type: ignore[misc]
        }
        if where is not None:
            reads[_UNINDEXED] = lambda where=where: ours(where, None, False)  # type: ignore[misc]
        if where == _PENDING:
            reads[_WIDE] = lambda: ours(_PENDING, None, min_seek_size="4 MB")
            reads[_CACHED] = lambda: ours(_PENDING, None, **cache)
        costs: dict[str, list[Cost]] = {who: [] for who in reads}
        for _ in range(1 + max(3, bench.rounds)):
            for who, read in reads.items():
                costs[who].append(_cost(server, read))
        typical = {who: _median(taken[1:]) for who, taken in costs.items()}
        if where == _PENDING:
            files = len(lake().table("orders").scan(where=where).plan().files)
            others = {f", {how}": typical.pop(how) for how in (_WIDE, _CACHED)}
            out += _pending(bench, {"": typical[_OURS], **others}, files)
        out += _lines(bench, name, typical, sum(sizes), about)
    return out


def _cost(server: FolderServer, read: Callable[[], int]) -> Cost:
    server.requests()
    found: list[int] = []
    seconds = timed(lambda: found.append(read()))
    seen = server.requests()
    asked = Counter(_kind(r.key) for r in seen)
    return Cost(dict(asked.most_common()), sum(r.received for r in seen), round_trips(seen), found[0], seconds)


def _kind(key: str) -> str:
    """What a request is for, by the name of its object."""
    if key.endswith((".parquet", ".index")):
        return "data" if key.endswith(".parquet") else "index"
    return "metadata"


def file_system(endpoint: str) -> Any:
    """Arrow's file system of a test's server."""
    import pyarrow.fs

    return pyarrow.fs.S3FileSystem(
        access_key=folder_server.KEY, secret_key=folder_server.SECRET, endpoint_override=endpoint, region="us-east-1"
    )


def _lines(bench: Bench, name: str, costs: dict[str, Cost], size: int, about: str) -> list[Result]:
    """Requests, bytes and time of bitlake beside each of the others."""
    if len({c.rows for c in costs.values()}) != 1:
        raise AssertionError(f"S3, {name}: different numbers of rows: {costs}")
    for who, c in costs.items():
        bench.say(f"S3, {name}, {who}: {c.requests} requests, {c.received:,} bytes, {c.seconds:.2f} s")
    ours = costs.pop(_OURS)
    asked = ", ".join(f"{count} {kind}" for kind, count in ours.asked.items())
    share = ours.received / size
    note = f"{ours.rows:,} rows; requests: {asked}; {ours.trips} round trips; {share:.4f} of the bytes; {about}"
    whole = name.endswith("all rows")
    out = []
    for base, c in costs.items():
        most = 1.2 if whole else None
        out += [
            Result(f"S3, {name}: requests", "requests", ours.requests, c.requests, base, most, bench.rounds, note),
            Result(
                f"S3, {name}: bytes",
                "KB",
                ours.received / 1024,
                c.received / 1024,
                base,
                1.01 if whole else None,
                bench.rounds,
            ),
            Result(f"S3, {name}: time", "s", ours.seconds, c.seconds, base, None, bench.rounds),
        ]
        note = ""
    return out


def _pending(bench: Bench, costs: dict[str, Cost], files: int) -> list[Result]:
    """Time, requests of metadata, and requests for each data file that is read: which have targets."""
    out = []
    for how, c in costs.items():
        of_data, note = c.asked.get("data", 0) / files, f"{c.received / 1e6:.1f} MB received"
        metadata = c.asked.get("metadata", 0)
        out += [
            Result(f"S3, PENDING{how}: time", "s", c.seconds, None, "", 0.4, bench.rounds, note),
            Result(f"S3, PENDING{how}: requests of metadata", "requests", metadata, None, "", 6, bench.rounds),
            Result(f"S3, PENDING{how}: requests for a data file", "requests", of_data, None, "", 2, bench.rounds),
        ]
        bench.say(f"S3, PENDING{how}: {of_data:.1f} requests for a data file, {c.seconds:.2f} s, {note}")
    return out


def _median(taken: list[Cost]) -> Cost:
    typical = sorted(taken, key=lambda c: (c.requests, c.received))[len(taken) // 2]
    return replace(typical, seconds=statistics.median(c.seconds for c in taken))


def _tpch(bench: Bench, root: Path, server: FolderServer) -> list[Result]:
    """TPC-H at scale 1 through ``lake.sql`` on Spark: tables in a bucket ÷ the same files through their local path."""
    import bitlake

    source = tpch_source(bench)
    if source is None:
        return []
    local = bitlake.connect(str(root / "tpch"), spark=bench.spark)
    for name in TABLES:
        bench.spark.read.parquet(str(source / f"{name}.parquet")).createOrReplaceTempView(f"tpch_source_{name}")
        local.sql(f"CREATE TABLE IF NOT EXISTS {name} AS SELECT * FROM tpch_source_{name}")

    def remote(options: dict[str, str]) -> Any:
        return bitlake.connect(f"s3://{folder_server.BUCKET}/tpch", spark=bench.spark, storage_options=options)

    plain, cached = remote(server.options), remote({**server.options, **_cache(bench)})
    out: list[Result] = []
    ratios: dict[str, list[float]] = {"bucket": [], "cached": []}
    for number, query in QUERIES.items():
        runs = {
            "bucket": lambda query=query: timed(lambda: plain.sql(query).collect()),  # type: ignore[misc]
            "cached": lambda query=query: timed(lambda: cached.sql(query).collect()),  # type: ignore[misc]
            "local": lambda query=query: timed(lambda: local.sql(query).collect()),  # type: ignore[misc]
        }
        m = interleaved(runs, bench.rounds)
        for way, name in (("bucket", ""), ("cached", f", {_CACHED}")):
            ratios[way].append(m[way] / m["local"])
            told = f"S3, TPC-H query {number}{name}"
            out.append(Result(told, "s", m[way], m["local"], "local files", None, bench.rounds))
        bench.say(
            f"S3, TPC-H query {number}: {m['bucket']:.3f} s, cached {m['cached']:.3f} s, local {m['local']:.3f} s"
        )
    for way, name in (("bucket", ""), ("cached", f", {_CACHED}")):
        mean = math.exp(statistics.mean(map(math.log, ratios[way])))
        told = f"S3, TPC-H scale 1{name} ÷ local files: geometric mean"
        out.append(Result(told, "", mean, None, "", 1.5, bench.rounds, f"Python workers read; {_STORE}"))
    return out


def _cache(bench: Bench) -> dict[str, str]:
    """Options of a local cache on disk of all kinds of files, which begins empty."""
    from bitlake.io.local_cache import FILE_KINDS

    folder = bench.folder / "local-cache"
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "local-cache.enabled": "true",
        "local-cache.dir": str(folder),
        "local-cache.whitelist": ",".join(FILE_KINDS),
    }
