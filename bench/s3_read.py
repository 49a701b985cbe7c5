"""What a selective read of a table in a bucket asks of the store: requests and bytes, over a real S3 server process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.measure import Result, timed

if TYPE_CHECKING:
    from bench.cases import Bench

_MOST_ROWS = 1_000_000
"""The server keeps its objects in memory, and answers slowly: the numbers do not depend on how many more there are."""
_INDEXES = {
    "file-index.bitmap.columns": "status,region",
    "file-index.bloom-filter.columns": "user_id",
    "target-file-row-num": "125000",
}


def s3_read(bench: Bench) -> list[Result]:
    """How many requests and bytes does a selective read in a bucket take, beside the same without indexes?"""
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
        bench.say(f"{rows:,} orders into a bucket")
        table.append(_head(source, rows))
        size = sum(e.file.file_size for e in table.state().entries())
        user = table.scan(columns=["user_id"], limit=1).to_arrow().column("user_id")[0].as_py()
        for name, where in (("status = 'PENDING'", "status = 'PENDING'"), ("user_id = ?", f"user_id = {user}")):
            found: dict[str, tuple[int, int, int]] = {}
            for indexed in (True, False):
                _forget()
                proxy.seen.clear()
                proxy.received = 0
                scan = lake().table("orders").scan(where=where)
                chosen = scan if indexed else scan.without_index()
                answer: list[pa.Table] = []
                seconds = timed(lambda chosen=chosen, answer=answer: answer.append(chosen.to_arrow()))
                key = "with" if indexed else "without"
                found[key] = (len(proxy.seen), proxy.received, answer[0].num_rows)
                bench.say(f"{name} {key} index: {found[key][0]} requests, {found[key][1]:,} bytes, {seconds:.2f} s")
            (requests, received, count), (more, all_bytes, same) = found["with"], found["without"]
            assert count == same, "the index changed the answer"
            note = f"{count:,} of {rows:,} rows, {size / 1e6:.0f} MB of data files; nothing cached, metadata included"
            base = "the same without index"
            out.append(Result(f"S3, {name}: requests", "requests", requests, more, base, None, 1, note))
            out.append(Result(f"S3, {name}: bytes", "KB", received / 1024, all_bytes / 1024, base, None, 1))
    return out


def _head(source: pq.ParquetFile, rows: int) -> pa.RecordBatchReader:
    def batches() -> Any:
        left = rows
        for batch in source.iter_batches(100_000):
            if left <= 0:
                return
            yield batch.slice(0, left)
            left -= batch.num_rows

    return pa.RecordBatchReader.from_batches(source.schema_arrow, batches())


def _forget() -> None:
    from bitlake.table import live
    from bitlake.table.index_access import forget_all
    from bitlake.table.read import forget_footers

    live.clear_caches()
    forget_footers()
    forget_all()
