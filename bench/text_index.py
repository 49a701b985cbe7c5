"""What do indexes of text, expressions and array elements cost, and what do they save?

Generated log lines (:mod:`bench.log_lines`) are one column of tables with and without indexes.  Queries take turns with
DuckDB's and Spark's scan of the plain table's Parquet files, and with the text indexes of chdb and pylance, where
:mod:`bench.text_peers` finds them.  Each run of ours connects to a new lake.

``make bench CASES=text_index TEXT_MB=1000`` measures a gigabyte.
"""

from __future__ import annotations

import functools
import importlib.metadata
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import bitlake
from bench.log_lines import log_lines
from bench.measure import Result, interleaved
from bench.peers import TextPeer
from bitlake.fileindex.block_signature import text_bytes
from bitlake.fileindex.ngram import NGRAM
from bitlake.fileindex.tokens import TOKENS
from bitlake.types import parse_type

if TYPE_CHECKING:
    from bench.cases import Bench

BYTES_A_LINE = 220
_LINES_AN_APPEND = 1 << 20
_COST_LINES = 500_000
_USERS = 1_000_000
TABLES = {
    "log_plain": {},
    "log_grams": {"bitlake.index.grams": "ngram(message)"},
    "log_words": {"bitlake.index.words": "tokens(message)"},
}
USER_INDEXES = {"bitlake.index.low": "bitmap(lower(email))", "bitlake.index.by_tag": "bitmap(element(tags))"}
_COMMON = "message LIKE '%connection reset%'"


@dataclass
class Timed:
    """An action whose wall time is returned, and whose processor time in this process is kept.  Mutable."""

    action: Callable[[], Any]
    rows: int = -1
    cpu: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        """Seconds that one run took."""
        started, used = time.perf_counter(), time.process_time()
        result = self.action()
        self.cpu.append(time.process_time() - used)
        self.rows = getattr(result, "num_rows", -1)
        return time.perf_counter() - started

    @property
    def ms(self) -> float:
        """The median processor time of the runs after the first, in milliseconds."""
        return 1000 * statistics.median(self.cpu[1:])


def text_index(bench: Bench) -> list[Result]:
    """How do text, expression and element indexes compare with scans, without indexes, and with other libraries'?"""
    results = _append_costs(bench) + _build_speed(bench)
    bench.say(f"text_index: appending {bench.text_mb} MB of log lines to each of {len(TABLES)} tables")
    size, needle = _fill(bench)
    results += _sizes(bench, size)
    bench.say("text_index: needles, beside DuckDB, Spark and other text indexes")
    results += _needles(bench, needle)
    results += _expressions_and_elements(bench)
    for name in (*TABLES, "users_plain", "users_lower", "users_none"):
        bench.lake.drop_table(f"bench.{name}", if_exists=True)
    return results


# --- costs ------------------------------------------------------------------------------------------------------------


def _create(bench: Bench, name: str, schema: pa.Schema, options: dict[str, str]) -> Any:
    bench.lake.drop_table(f"bench.{name}", if_exists=True)
    return bench.lake.create_table(f"bench.{name}", schema, options=options)


def _append_costs(bench: Bench) -> list[Result]:
    rows = pa.table({"message": pa.chunked_array(list(log_lines(_COST_LINES)))})
    runs = {name: Timed(lambda: None) for name in TABLES}

    def fresh(name: str) -> float:
        table = _create(bench, name, rows.schema, TABLES[name])
        runs[name].action = lambda: table.append(rows)
        return runs[name]()

    m = interleaved({name: functools.partial(fresh, name) for name in TABLES}, max(5, bench.rounds))
    plain = runs["log_plain"].ms
    return [
        Result(f"append of log lines, {kind}", "s", m[name], m["log_plain"], "no index", 1.5, max(5, bench.rounds),
               f"{rows.nbytes / 1e6:.0f} MB, one column; processor time {runs[name].ms / plain:.2f} x {plain:.0f} ms")
        for name, kind in (("log_grams", "ngram"), ("log_words", "tokens"))
    ]  # fmt: skip


def _build_speed(bench: Bench) -> list[Result]:
    batches = list(log_lines(_COST_LINES, seed=5))
    size = sum(map(text_bytes, batches))
    results = []
    for index in (NGRAM, TOKENS):
        spent = []
        for _ in range(bench.rounds + 1):
            writer = index.writer(parse_type("STRING"), {})
            started = time.process_time()
            for batch in batches:
                writer.add(batch)
            writer.finish()
            spent.append(time.process_time() - started)
        seconds = statistics.median(spent[1:]) * 1e8 / size
        note = f"{100 / seconds:.0f} MB/s a core"
        results.append(Result(f"build {index.name} of 100 MB", "s", seconds, None, "", 1.0, bench.rounds, note))
    return results


def _fill(bench: Bench) -> tuple[int, str]:
    """Append the same lines to all tables; return the bytes of text, and a request's id in the middle."""
    lines = bench.text_mb * 1_000_000 // BYTES_A_LINE
    tables = [_create(bench, name, pa.schema([("message", pa.string())]), o) for name, o in TABLES.items()]
    size, pending, needle, written = 0, [], "", 0
    for batch in log_lines(lines):
        pending.append(batch)
        written += len(batch)
        size += text_bytes(batch)
        if not needle and written >= lines // 2:
            needle = pc.extract_regex(batch.slice(77, 1), r"request_id=(?P<id>\w+)")[0]["id"].as_py()
        if written == lines or sum(map(len, pending)) >= _LINES_AN_APPEND:
            rows = pa.table({"message": pa.chunked_array(pending)})
            for table in tables:
                table.append(rows)
            pending = []
    return size, needle


def _sizes(bench: Bench, size: int) -> list[Result]:
    stored = {
        name: sum(f.stat().st_size for f in (bench.warehouse / "bench.db" / name).rglob("*") if f.is_file())
        for name in TABLES
    }
    plain = stored["log_plain"]
    results = []
    for name, kind in (("log_grams", "ngram"), ("log_words", "tokens")):
        entries = bench.lake.table(f"bench.{name}$file_indexes").scan().to_arrow()
        index, extra = pc.sum(entries["bytes"]).as_py(), stored[name] - plain
        note = f"the table takes {extra / 1e6:.1f} MB more than {plain / 1e6:.0f} MB ({100 * extra / plain:.1f} %)"
        results.append(Result(f"{kind} index ÷ text", "MB", index / 1e6, size / 1e6, "uncompressed", 0.05, 1, note))
    return results


# --- queries ----------------------------------------------------------------------------------------------------------


def _scan(bench: Bench, table: str, where: str) -> Timed:
    def run() -> pa.Table:
        return bitlake.connect(str(bench.warehouse)).table(f"bench.{table}").scan(where=where).to_arrow()

    return Timed(run)


def _needles(bench: Bench, needle: str) -> list[Result]:
    files = bench.parquet_files("bench.log_plain")
    peer = TextPeer.start(bench.folder / "text-peers")
    wheres = {
        "rare needle": f"message LIKE '%{needle[2:14]}%'",
        "absent needle": "message LIKE '%OutOfMemoryError%'",
        "rare token": f"has_token(message, '{needle}')",
    }
    results: list[Result] = []
    try:
        builds = [] if peer is None else list(peer.build(files))
        for name, where in wheres.items():
            literal = {"rare needle": needle[2:14], "absent needle": "OutOfMemoryError"}.get(name, needle)
            results += _needle(bench, name, where, literal, files, peer, dict(builds))
        assert peer is not None or not builds
        notes = [
            Result(f"{e} {peer.versions[e]}: load and index", "s", b["seconds"], None, "", None, 1, b["note"])
            for e, b in builds
        ]
        results += notes
    finally:
        if peer is not None:
            peer.close()
    if not builds:
        results.append(Result("chdb, pylance", "s", 0.0, None, "", None, 0, "skipped: not installed"))
    m = interleaved(
        {"grams": _scan(bench, "log_grams", _COMMON), "plain": _scan(bench, "log_plain", _COMMON)}, bench.rounds
    )
    results.append(Result("common needle", "s", m["grams"], m["plain"], "no index", 1.05, bench.rounds))
    return results


def _needle(
    bench: Bench, name: str, where: str, literal: str, files: list[str], peer: TextPeer | None, builds: dict[str, Any]
) -> list[Result]:
    table = "log_words" if "token" in name else "log_grams"
    connection = duckdb.connect()
    query = f"SELECT * FROM read_parquet({files!r}) WHERE contains(message, '{literal}')"
    frame = bench.spark.read.parquet(*files).where(f"contains(message, '{literal}')")
    ours = _scan(bench, table, where)
    runs: dict[str, Callable[[], float]] = {
        "ours": ours,
        "duckdb": (theirs := Timed(lambda: connection.sql(query).to_arrow_table())),
        "spark": Timed(frame.toArrow),
    }
    for engine in builds:
        assert peer is not None
        if table == "log_words" or engine != "chdb text, words":
            runs[engine] = functools.partial(_find, peer, engine, literal, ours)
    m = interleaved(runs, max(5, bench.rounds))
    counts = {ours.rows, theirs.rows}
    assert len(counts) == 1, counts
    bases = {
        "duckdb": (f"DuckDB {duckdb.__version__}, scan", 0.05),
        "spark": (f"Spark {importlib.metadata.version('pyspark')}, scan", 0.1),
    }
    note = f"{ours.rows:,} lines; processor time {ours.ms:.0f} ms, DuckDB's {theirs.ms:.0f}"
    return [
        Result(name, "s", m["ours"], m[engine], bases[engine][0] if engine in bases else f"{engine}, index",
               bases[engine][1] if engine in bases and name == "rare needle" else None, max(5, bench.rounds),
               note if engine == "duckdb" else "")
        for engine in runs if engine != "ours"
    ]  # fmt: skip


def _find(peer: TextPeer, engine: str, literal: str, ours: Timed) -> float:
    seconds, rows = peer.find(engine, literal)
    assert ours.rows in (-1, rows), (engine, rows, ours.rows)
    return seconds


def _users() -> Iterator[tuple[str, pa.Table, dict[str, str]]]:
    rng = np.random.default_rng(23)
    numbers = pa.array(rng.integers(0, 100_000, _USERS)).cast(pa.string())
    tags = pa.array(rng.integers(0, 500_000, 3 * _USERS)).cast(pa.string())
    lists = pa.ListArray.from_arrays(pa.array(np.arange(0, 3 * _USERS + 1, 3, dtype=np.int32)), tags)
    for name, template, options in (
        ("users_plain", "user", {"file-index.bitmap.columns": "email"}),
        ("users_lower", "User", USER_INDEXES),
        ("users_none", "User", {}),
    ):  # fmt: skip
        emails = pc.binary_join_element_wise(template, numbers, "@example.com", "")
        yield name, pa.table({"email": emails, "tags": lists}), options


def _expressions_and_elements(bench: Bench) -> list[Result]:
    for name, rows, options in _users():
        _create(bench, name, rows.schema, options).append(rows)
    runs = {
        "lower": _scan(bench, "users_lower", "lower(email) = 'user77777@example.com'"),
        "plain": _scan(bench, "users_plain", "email = 'user77777@example.com'"),
        "element": _scan(bench, "users_lower", "array_contains(tags, '77777')"),
        "scan": _scan(bench, "users_none", "array_contains(tags, '77777')"),
    }
    m = interleaved(runs, max(9, bench.rounds))
    assert runs["lower"].rows == runs["plain"].rows > 0
    assert runs["element"].rows == runs["scan"].rows > 0
    rounds = max(9, bench.rounds)

    def result(name: str, ours: str, base: str, base_name: str, target: float) -> Result:
        ratio = runs[ours].ms / runs[base].ms
        note = f"{runs[ours].rows} of {_USERS:,} rows; processor time {runs[ours].ms:.1f} ms, ratio {ratio:.3f}"
        return Result(name, "s", m[ours], m[base], base_name, target, rounds, note)

    return [
        result("lower(email) = ?", "lower", "plain", "bitmap of email", 1.2),
        result("array_contains(tags, ?)", "element", "scan", "scan", 0.05),
    ]
