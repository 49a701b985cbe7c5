"""How fast does ``LIKE '%needle%'`` find a line in a log with the indexes ``ngram`` and ``tokens``?

Run by itself: ``python -m bench.text_index --mb 1000 --folder /tmp/text``.  Generated log lines
(:mod:`bench.log_lines`) are appended to tables with the indexes and without.  Each query runs in turns on the indexed
table, on the plain one, and as DuckDB's scan of the plain table's Parquet files; with ``--spark``, as Spark's scan of
these, too.  Times are medians of wall and processor time; the operating system's cache is warm.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

import bitlake
from bench.log_lines import log_lines
from bitlake.fileindex.block_signature import text_bytes
from bitlake.fileindex.ngram import NGRAM
from bitlake.fileindex.tokens import TOKENS
from bitlake.types import parse_type

_BYTES_A_LINE = 220
_LINES_AN_APPEND = 1 << 20


def main() -> None:
    """Generate, build, query, and print one line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1000, help="megabytes of text")
    parser.add_argument(
        "--folder", default="/tmp/bitlake-text", help="where the tables are created; existing ones are replaced"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spark", action="store_true")
    args = parser.parse_args()
    shutil.rmtree(args.folder, ignore_errors=True)
    lake = bitlake.connect(args.folder)
    lines = args.mb * 1_000_000 // _BYTES_A_LINE
    needle = _append(lake, lines)
    _build_speed()
    _queries(lake, args.folder, needle, args.rounds, args.spark)


def _append(lake: bitlake.Lake, lines: int) -> str:
    """Append the same lines to both tables; return a request's id in the middle of them."""
    schema = pa.schema([("message", pa.string())])
    kinds = {"grams": "ngram(message)", "words": "tokens(message)"}
    options = {f"bitlake.index.{name}": kind for name, kind in kinds.items()}
    tables = {
        "plain": lake.create_table("plain", schema),
        "grams": lake.create_table("grams", schema, options={"bitlake.index.grams": kinds["grams"]}),
        "indexed": lake.create_table("indexed", schema, options=options),
    }
    spent = dict.fromkeys(tables, 0.0)
    size, pending, needle, written = 0, [], "", 0
    for batch in log_lines(lines):
        pending.append(batch)
        written += len(batch)
        size += text_bytes(batch)
        if not needle and written >= lines // 2:
            needle = pc.extract_regex(batch.slice(77, 1), r"request_id=(?P<id>\w+)")[0]["id"].as_py()
        if written == lines or sum(map(len, pending)) >= _LINES_AN_APPEND:
            rows = pa.table({"message": pa.chunked_array(pending)})
            for name, table in tables.items():
                start = time.process_time()
                table.append(rows)
                spent[name] += time.process_time() - start
            pending = []
    print(f"text: {size / 1e6:.0f} MB in {written:,} lines")
    for name in ("grams", "indexed"):
        ratio = spent[name] / spent["plain"]
        print(f"append with {name}: {ratio:.2f} x the processor time without ({spent['plain']:.1f} s)")
    root = Path(lake.path)
    stored = {name: sum(f.stat().st_size for f in root.glob(f"**/{name}/**/*") if f.is_file()) for name in tables}
    for name in ("grams", "indexed"):
        extra = stored[name] - stored["plain"]
        print(f"stored with {name}: {extra / 1e6:.1f} MB more, {100 * extra / size:.2f} % of the text "
              f"(the Parquet files alone: {stored['plain'] / 1e6:.0f} MB)")  # fmt: skip
    return needle


def _build_speed() -> None:
    batches = list(log_lines(400_000, seed=5))
    size = sum(map(text_bytes, batches))
    for index in (NGRAM, TOKENS):
        writer = index.writer(parse_type("STRING"), {})
        start = time.process_time()
        for batch in batches:
            writer.add(batch)
        payload = writer.finish()
        spent = time.process_time() - start
        share = 100 * len(payload) / size
        print(f"{index.name}: built at {size / 1e6 / spent:.0f} MB/s a core, {share:.2f} % of the text")


def _queries(lake: bitlake.Lake, folder: str, needle: str, rounds: int, with_spark: bool) -> None:
    files = f"{folder}/default.db/plain/bucket-0/*.parquet"
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    wheres = {
        "rare needle": f"message LIKE '%{needle[2:14]}%'",
        "rare needle, ILIKE": f"message ILIKE '%{needle[2:14].upper()}%'",
        "absent needle": "message LIKE '%OutOfMemoryError%'",
        "common needle": "message LIKE '%connection reset%'",
        "rare token": f"has_token(message, '{needle}')",
    }
    frame = lake.spark.read.parquet(files.replace("*.parquet", "")) if with_spark else None
    for name, where in wheres.items():
        elsewhere = where.replace("has_token", "contains")
        runs: dict[str, Callable[[], Any]] = {
            "indexed": functools.partial(_scan, folder, "indexed", where),
            "plain": functools.partial(_scan, folder, "plain", where),
            "duckdb": functools.partial(
                _duckdb, connection, f"SELECT * FROM read_parquet('{files}') WHERE {elsewhere}"
            ),
        }
        if frame is not None:
            runs["spark"] = frame.where(elsewhere).toArrow
        print(f"{name}: {_in_turns(runs, rounds)}")


def _scan(folder: str, table: str, where: str) -> Any:
    return bitlake.connect(folder).table(table).scan(where=where).to_arrow()


def _duckdb(connection: Any, text: str) -> Any:
    return connection.sql(text).to_arrow_table()


def _in_turns(runs: dict[str, Callable[[], Any]], rounds: int) -> str:
    """Run queries in turns; return the number of lines, and the median milliseconds of each."""
    wall: dict[str, list[float]] = {engine: [] for engine in runs}
    spent: dict[str, list[float]] = {engine: [] for engine in runs}
    counts = {}
    for _ in range(rounds):
        for engine, run in runs.items():
            started, used = time.perf_counter(), time.process_time()
            counts[engine] = run().num_rows
            spent[engine].append(1000 * (time.process_time() - used))
            wall[engine].append(1000 * (time.perf_counter() - started))
    assert len(set(counts.values())) == 1, counts
    shown = (f"{e} {statistics.median(wall[e]):.0f} ms ({statistics.median(spent[e]):.0f} cpu)" for e in runs)
    return f"{counts['plain']:,} lines; {'; '.join(shown)}"


if __name__ == "__main__":
    main()
