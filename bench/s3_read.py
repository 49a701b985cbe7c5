"""What a selective read of a table in a bucket asks of the store: requests and bytes, over a real S3 server process.

Requests and bodies are counted by a proxy before the server (tests/flaky_proxy.py), the same for everyone; every read
begins with nothing remembered.  Times are those of a server in Python on loopback: only for information.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from bench.measure import Result, timed

if TYPE_CHECKING:
    from bench.cases import Bench

_MOST_ROWS = 4_000_000
"""The server keeps its objects in memory, and answers slowly."""
_INDEXES = {
    "file-index.bitmap.columns": "status,region",
    "file-index.bloom-filter.columns": "user_id",
    "target-file-row-num": "500000",
}
_OURS, _UNINDEXED, _PYARROW = "bitlake", "the same without index", "pyarrow dataset on the same files"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one read took: requests by what they are for, bytes of answers' bodies, rows found, seconds."""

    asked: dict[str, int]
    received: int
    rows: int
    seconds: float

    @property
    def requests(self) -> int:
        """How many in all."""
        return sum(self.asked.values())


def s3_read(bench: Bench) -> list[Result]:
    """How many requests and bytes does a selective read in a bucket take, beside pyarrow, and without indexes?"""
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
    import flaky_proxy
    import s3_server

    import bitlake

    out: list[Result] = []
    with s3_server.running() as endpoint, flaky_proxy.running(endpoint) as proxy:
        options = s3_server.options(proxy.endpoint)

        def lake() -> Any:
            return bitlake.connect("s3://lake/bench", storage_options=options)

        source = pq.ParquetFile(bench.source)
        rows = min(bench.rows, _MOST_ROWS)
        table = lake().create_table("orders", source.schema_arrow, options=_INDEXES)
        bench.say(f"S3: {rows:,} orders into a bucket")
        table.append(_head(source, rows))
        sizes = [e.file.file_size for e in table._core.state().entries()]
        files = [f.path.removeprefix("s3://") for f in table.scan().plan().files]
        users = table.scan(columns=["user_id"]).to_arrow().column("user_id").to_numpy()
        user = int(users[0])
        # One that statistics cannot rule out.
        nobody = int(np.setdiff1d(np.arange(users.min(), users.max()), users)[0])
        about = f"{rows:,} rows in {len(files)} files of {sum(sizes) / 1e6:.0f} MB together; metadata included"

        def ours(where: str, indexed: bool) -> int:
            scan = lake().table("orders").scan(where=where)
            count: int = (scan if indexed else scan.without_index()).to_arrow().num_rows
            return count

        questions = (
            ("status = 'PENDING'", "status = 'PENDING'", ds.field("status") == "PENDING"),
            ("user_id = ?", f"user_id = {user}", ds.field("user_id") == user),
            ("a user_id that is not there", f"user_id = {nobody}", ds.field("user_id") == nobody),
        )
        for name, where, expression in questions:
            reads: dict[str, Callable[[], int]] = {
                _OURS: lambda where=where: ours(where, True),
                _UNINDEXED: lambda where=where: ours(where, False),
                _PYARROW: lambda expression=expression: _pyarrow(proxy.endpoint, files, expression),
            }
            costs = {who: [_cost(proxy, read) for _ in range(max(3, bench.rounds))] for who, read in reads.items()}
            out += _lines(bench, name, costs, sum(sizes), about)
    return out


def _cost(proxy: Any, read: Callable[[], int]) -> Cost:
    proxy.seen.clear()
    proxy.received = 0
    found: list[int] = []
    seconds = timed(lambda: found.append(read()))
    asked = Counter(_kind(path) for _, path, _ in proxy.seen)
    return Cost(dict(asked.most_common()), proxy.received, found[0], seconds)


def _kind(path: str) -> str:
    """What a request is for, by the path of its object."""
    name = path.partition("?")[0]
    if name.endswith((".parquet", ".index")):
        return "data" if name.endswith(".parquet") else "index"
    return "metadata"


def file_system(endpoint: str) -> Any:
    """Arrow's file system of the server; its module is on the path by then."""
    import pyarrow.fs
    import s3_server

    return pyarrow.fs.S3FileSystem(
        access_key=s3_server.KEY, secret_key=s3_server.SECRET, endpoint_override=endpoint, region="us-east-1"
    )


def _pyarrow(endpoint: str, files: list[str], expression: ds.Expression) -> int:
    # A new file system for every read, as bitlake opens its table again; the files are named, so nothing is listed.
    store = file_system(endpoint)
    count: int = ds.dataset(files, filesystem=store, format="parquet").to_table(filter=expression).num_rows
    return count


def _lines(bench: Bench, name: str, costs: dict[str, Sequence[Cost]], size: int, about: str) -> list[Result]:
    """Requests, bytes and time of bitlake beside each of the others."""
    if len({c.rows for taken in costs.values() for c in taken}) != 1:
        raise AssertionError(f"S3, {name}: different numbers of rows: {costs}")
    first = costs[_OURS][0]
    middle = {who: _median(taken) for who, taken in costs.items()}
    for who, c in middle.items():
        bench.say(f"S3, {name}, {who}: {c.requests} requests, {c.received:,} bytes, {c.seconds:.2f} s")
    runs = len(costs[_OURS])
    ours = middle.pop(_OURS)
    asked = ", ".join(f"{count} {kind}" for kind, count in ours.asked.items())
    note = f"{first.rows:,} rows found; requests: {asked}; {ours.received / size:.4f} of the data files' bytes; {about}"
    out = []
    for base, c in middle.items():
        told, note = note, ""
        out += [
            Result(f"S3, {name}: requests", "requests", ours.requests, c.requests, base, None, runs, told),
            Result(f"S3, {name}: bytes", "KB", ours.received / 1024, c.received / 1024, base, None, runs),
            Result(f"S3, {name}: time", "s", ours.seconds, c.seconds, base, None, runs),
        ]
    return out


def _median(taken: Sequence[Cost]) -> Cost:
    typical = sorted(taken, key=lambda c: (c.requests, c.received))[len(taken) // 2]
    return replace(typical, seconds=statistics.median(c.seconds for c in taken))


def _head(source: pq.ParquetFile, rows: int) -> pa.RecordBatchReader:
    def batches() -> Any:
        left = rows
        for batch in source.iter_batches(100_000):
            if left <= 0:
                return
            yield batch.slice(0, left)
            left -= batch.num_rows

    return pa.RecordBatchReader.from_batches(source.schema_arrow, batches())
