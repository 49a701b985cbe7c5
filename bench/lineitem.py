"""TPC-H's lineitem beside Delta Lake, Iceberg and plain Parquet: selective lookups, deletes and upserts.

Needs TPC-H's data (bench.tpch) and, for the peers, their environments (bench.peers); what is not there is left out.
Every statement is new to every engine: the literals change from round to round, the same for all.  Collected rows and
totals of the tables are compared; a difference ends the case.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from bench.lineitem_engines import FILES, SETUP, Answer, Engine, Ours, Peer, PlainParquet
from bench.measure import Result, noise, samples
from bench.tpch import tpch_source

if TYPE_CHECKING:
    from bench.cases import Bench

MODES = ("SHIP", "AIR", "RAIL", "MAIL", "FOB", "TRUCK", "REG AIR")
CHANGES = (10_000, 100_000)


def lineitem(bench: Bench) -> list[Result]:
    """Lookups, deletes and upserts on 6M lines of TPC-H, beside Delta Lake, Iceberg and plain Parquet?"""
    source = tpch_source(bench)
    if source is None:
        return []
    lines = _in_files(bench, source / "lineitem.parquet")
    appended, keyed = Ours(bench, keyed=False), Ours(bench, keyed=True)
    peers: list[Engine] = [Peer(p) for p in (bench.delta, bench.iceberg) if p is not None]
    plain = PlainParquet(bench)
    engines: list[Engine] = [appended, keyed, plain, *peers]
    loads = {}
    for engine in engines:
        loads[engine.name] = engine.load(lines)
        bench.say(f"lineitem: loaded into {engine.name} in {loads[engine.name]:.0f} s")
    told = _setup_note(engines, loads)
    agree("after loading", {e.name: e.totals() for e in engines})
    readers = [appended, plain, *peers]
    results = [r for name, where in LOOKUPS.items() for r in _lookup(bench, name, where, appended, readers)]
    for name, where in DELETES.items():
        results += _change(bench, name, engines, lambda e, turn, where=where: e.delete(where(turn)))  # type: ignore[misc]
    changing: list[Engine] = [appended, keyed, *peers]
    for size in CHANGES:
        folders = [_changes(bench, lines, size, turn) for turn in range(_rounds(bench) + 1)]
        name = f"upsert {size // 1000}k changed, {size // 10_000}k new lines"
        results += _change(bench, name, changing, lambda e, turn, folders=folders: e.upsert(folders[turn]))  # type: ignore[misc]
    for name in ("order key", "part key"):
        results += _lookup(bench, f"{name}, after all changes", LOOKUPS[name], appended, [appended, *peers])
    return [replace(results[0], note=f"{results[0].note}; {told}"), *results[1:]]


def _order_key(turn: int) -> str:
    # TPC-H fills eight of every 32 order keys: those that are 0 to 7 above a multiple of 32.
    return f"l_orderkey = {(100_000 + turn * 333_333) % 6_000_000 // 32 * 32 + 1}"


def _part_key(turn: int) -> str:
    return f"l_partkey = {1000 + turn * 7919}"


def _rare(turn: int) -> str:
    # Lines shipped before 1995-06-17 and received after it are flagged N, so few of those shipped weeks before are.
    dates = "l_shipdate BETWEEN DATE '1995-05-20' AND DATE '1995-05-22'"
    return f"l_shipmode = '{MODES[turn % len(MODES)]}' AND l_returnflag = 'N' AND {dates}"


def _hundred_keys(turn: int) -> str:
    keys = (str((i * 59_999 + turn * 7_777) % 6_000_000 // 32 * 32 + 1) for i in range(100))
    return f"l_orderkey IN ({', '.join(keys)})"


def _one_percent(turn: int) -> str:
    return f"l_partkey % 100 = {turn + 1}"


def _month(turn: int) -> str:
    def first(months: int) -> str:
        return f"DATE '{1993 + months // 12}-{months % 12 + 1:02d}-01'"

    return f"l_shipdate >= {first(turn)} AND l_shipdate < {first(turn + 1)}"


LOOKUPS: Mapping[str, Callable[[int], str]] = {
    "order key": _order_key,
    "part key": _part_key,
    "rare ship mode, return flag and dates": _rare,
    "100 order keys": _hundred_keys,
}
DELETES: Mapping[str, Callable[[int], str]] = {"delete 1 % scattered": _one_percent, "delete a month": _month}


def _rounds(bench: Bench) -> int:
    return max(3, bench.rounds)


def _lookup(bench: Bench, name: str, where: Callable[[int], str], ours: Ours, engines: list[Engine]) -> list[Result]:
    """The same selective SELECT in every engine, whole lines collected; and without Spark, for the note."""
    rounds, warmups = 2 * _rounds(bench) + 1, 2
    reads: dict[str, Callable[[str], tuple[float, Answer]]] = {e.name: e.read for e in engines}
    reads["scan"] = ours.scan
    answers: dict[str, list[Answer]] = {who: [] for who in reads}

    def run(who: str, turns: Callable[[], int]) -> float:
        seconds, answer = reads[who](where(turns()))
        answers[who].append(answer)
        return seconds

    runs = {who: in_turns(run, who) for who in reads}
    values = samples(runs, rounds, warmups)
    agree(name, answers)
    scan = statistics.median(values.pop("scan"))
    found = ", ".join(a[0] for a in answers["bitlake"][warmups:])
    note = f"{found} lines; scan().to_arrow() without Spark {scan * 1000:.0f} ms; {noise(values)}"
    return against(bench, name, "bitlake", values, rounds, note)


def _change(bench: Bench, name: str, engines: list[Engine], act: Callable[[Engine, int], float]) -> list[Result]:
    """The same statements in every engine; the tables are equal afterwards."""
    rounds = _rounds(bench)
    by_name = {e.name: e for e in engines}

    def run(who: str, turns: Callable[[], int]) -> float:
        return act(by_name[who], turns())

    values = samples({who: in_turns(run, who) for who in by_name}, rounds)
    totals = {who: e.totals() for who, e in by_name.items()}
    agree(name, totals)
    note = f"{int(totals['bitlake'][0]):,} lines afterwards; {noise(values)}"
    keyed = values.pop("primary key")
    first = against(bench, name, "bitlake", values, rounds, note)
    del values["bitlake"]
    return first + against(
        bench, f"{name}, primary-key table", "primary key", {"primary key": keyed} | values, rounds, ""
    )


def in_turns(run: Callable[[str, Callable[[], int]], float], who: str) -> Callable[[], float]:
    """A measurement that asks ``run`` with turns 0, 1, 2, … of its own."""
    turns = count()
    return lambda: run(who, lambda: next(turns))


def against(
    bench: Bench, name: str, who: str, values: Mapping[str, list[float]], rounds: int, note: str
) -> list[Result]:
    """A line for each other engine, of medians; the note is on the first."""
    medians = {engine: statistics.median(v) for engine, v in values.items()}
    bench.say(f"lineitem, {name}: " + ", ".join(f"{engine} {m:.3f} s" for engine, m in medians.items()))
    ours = medians.pop(who)
    told = f"lineitem, {name}"
    if not medians:
        return [Result(told, "s", ours, None, "", None, rounds, note)]
    lines = [Result(told, "s", ours, m, base, 1.0, rounds) for base, m in medians.items()]
    return [replace(lines[0], note=note), *lines[1:]]


def agree(when: str, answers: Mapping[str, object]) -> None:
    """A fast wrong answer is no result."""
    expected = next(iter(answers.values()))
    if other := {who: found for who, found in answers.items() if found != expected}:
        raise AssertionError(f"lineitem, {when}: {next(iter(answers))} found {expected}, others {other}")


def _setup_note(engines: list[Engine], loads: Mapping[str, float]) -> str:
    parts = []
    for engine in engines:
        files, megabytes = engine.stored()
        parts.append(
            f"{engine.name}: {SETUP[engine.name]} ({files} files, {megabytes:.0f} MB, {loads[engine.name]:.0f} s)"
        )
    return "set-up: " + "; ".join(parts)


def _in_files(bench: Bench, source: Path) -> Path:
    """The lines as eight files in order of their keys, as all engines load them; made once."""
    folder = bench.folder / f"lines-{FILES}"
    if not (folder / "_SUCCESS").exists():
        bench.say("lineitem: the lines in eight files")
        rows = bench.spark.read.parquet(str(source)).repartitionByRange(FILES, "l_orderkey")
        rows = rows.sortWithinPartitions("l_orderkey", "l_linenumber")
        rows.write.mode("overwrite").option("compression", "zstd").parquet(str(folder))
    return folder


def _changes(bench: Bench, lines: Path, size: int, turn: int) -> Path:
    """``size`` changed lines, scattered, and a tenth as many with keys that TPC-H leaves out; made once."""
    folder = bench.folder / f"lines-changed-{size}-{turn}"
    if not (folder / "_SUCCESS").exists():
        shutil.rmtree(folder, ignore_errors=True)
        every = 6_001_215 // size
        rows = bench.spark.read.parquet(str(lines))
        part = f"pmod(xxhash64(l_orderkey, l_linenumber, {turn}), {every * 10})"
        new = f"{part} = 11"
        changed = rows.where(f"{part} < 10 OR {new}").selectExpr(
            f"IF({new}, l_orderkey + 8, l_orderkey) AS l_orderkey",
            "* EXCEPT (l_orderkey, l_quantity, l_extendedprice, l_comment)",
            "CAST(l_quantity + 1 AS DECIMAL(15, 2)) AS l_quantity",
            "CAST(l_extendedprice + 1 AS DECIMAL(15, 2)) AS l_extendedprice",
            f"concat('changed {turn} ', l_comment) AS l_comment",
        )
        ordered = changed.select(*rows.columns).orderBy("l_partkey", "l_suppkey").coalesce(2)
        ordered.write.option("compression", "zstd").parquet(str(folder))
    return folder
