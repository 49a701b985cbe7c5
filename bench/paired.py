"""Old code against new code, row by row, in turns: is anything slower than at another commit?

    make bench-paired BASE=COMMIT        or: python -m bench.paired --base COMMIT [--rows N] [--pairs N] [--only a,b]

Two processes, each with a Spark session of its own, run the same row in turns (old new, new old, …) over tables of
their own with the same rows.  The pairs are spread over three such sessions, because sessions of the same code differ:
`insert-keyed` took 1.98 to 2.65 s in seven.  The interval takes the pairs for independent, so a row whose interval lies
little above 1.03 is to be measured again.  The old process imports bitlake from a work tree of the base commit in
`.bench/base`, the new one from this tree; rows use only the public API that both have.  For each row: the geometric
mean of the paired ratios new ÷ old and its 95 % interval (Student's t over the logarithms).  A row is slower if its
whole interval lies above 1.03; all rows together if their geometric mean is above 1.01.  Both are printed, and make the
exit code 1.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".bench"
SLOWER_ROW = 1.03
SLOWER_ALL = 1.01
_SESSIONS = 3
_T_95 = {8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201, 12: 2.179, 14: 2.145, 16: 2.120, 20: 2.086, 30: 2.042}
"""Two-sided 95 % points of Student's t by degrees of freedom; those between take the next lower one."""
INDEXED = {"file-index.bitmap.columns": "status,region", "file-index.bloom-filter.columns": "user_id"}
COLUMNS = (
    "order_id BIGINT, user_id BIGINT, status STRING, region STRING, "
    "amount DECIMAL(10, 2), order_date DATE, payload STRING"
)


@dataclass
class Side:
    """One process's lake, and the tables that its rows ask.  Mutable: rows that write make their tables first."""

    lake: Any
    core: Any
    """The same lake without Spark."""
    spark: Any
    source: str
    warehouse: Path

    def create(self, name: str, options: dict[str, str], key: str = "", query: str = "SELECT * FROM source") -> None:
        """A table of the source's rows."""
        columns = COLUMNS.replace("order_id BIGINT", "order_id BIGINT NOT NULL") if key else COLUMNS
        made = options | ({"primary-key": key, "bucket": "2"} if key else {})
        pairs = ", ".join(f"'{k}' = '{v}'" for k, v in made.items())
        self.lake.sql(f"DROP TABLE IF EXISTS {name}")
        self.lake.sql(f"CREATE TABLE {name} ({columns})" + (f" TBLPROPERTIES ({pairs})" if pairs else ""))
        if query:
            self.lake.sql(f"INSERT INTO {name} {query}")

    def copy(self, table: str, name: str) -> None:
        """A table with another one's files, linked: what a row that writes begins with."""
        folder = self.warehouse / "default.db"
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(folder / table, folder / name, copy_function=_link)

    def rows_of(self, query: str) -> list[Any]:
        """Run a query to its end."""
        return self.lake.sql(query).collect()  # type: ignore[no-any-return]


def _link(source: str, target: str) -> None:
    (os.link if source.endswith((".parquet", ".index")) else shutil.copy2)(source, target)


@dataclass(frozen=True)
class Row:
    """One measured action; ``before`` is not measured."""

    run: Callable[[Side], object]
    before: Callable[[Side], object] = lambda side: None


def _query(text: str) -> Row:
    return Row(lambda side: side.rows_of(text))


def _write(table: str, action: Callable[[Side], object]) -> Row:
    return Row(action, lambda side: side.copy(table, "written"))


def _scan(side: Side, table: str, where: str | None = None) -> Any:
    return side.core.table(table).scan(where=where)


def _plan_anew(side: Side) -> Any:
    """A plan of a lake that has read nothing yet (docs/decisions/0017-caches.md: a lake has caches of its own)."""
    import bitlake

    return bitlake.connect(str(side.warehouse)).table("many").scan(where="order_id = 77").plan()


def _stream(side: Side) -> int:
    return sum(batch.num_rows for batch in _scan(side, "indexed").to_batches())


def _append_small(side: Side) -> None:
    import pyarrow.parquet as pq

    table = side.lake.table("written")
    rows = pq.read_table(side.source).slice(0, 1000)
    for _ in range(20):
        table.append(rows)


def _upsert(side: Side) -> None:
    import pyarrow.parquet as pq

    side.lake.table("written").upsert(pq.read_table(side.source).slice(0, 50_000))


def _delete(side: Side) -> None:
    side.lake.sql("DELETE FROM written WHERE order_id % 100 = 7")


_AGGREGATE = "SELECT region, count(*), sum(amount), max(payload) FROM {} GROUP BY region ORDER BY 1"
ROWS: dict[str, Row] = {
    "plan": Row(lambda side: _scan(side, "many", "order_id = 77").plan()),
    "connect-plan": Row(_plan_anew),
    "pending-arrow": Row(lambda side: _scan(side, "indexed", "status = 'PENDING'").to_arrow()),
    "value-arrow": Row(lambda side: _scan(side, "indexed", "user_id = 4711").to_arrow()),
    "scan-arrow": Row(lambda side: _scan(side, "indexed").to_arrow()),
    "scan-batches": Row(_stream),
    "key-arrow": Row(lambda side: _scan(side, "keyed", "order_id = 4711").to_arrow()),
    "merge-on-read": Row(lambda side: _scan(side, "merged").to_arrow()),
    "append-20": Row(_append_small, lambda side: side.create("written", {}, query="")),
    "upsert-arrow": _write("keyed", _upsert),
    "pending-select": _query("SELECT * FROM indexed WHERE status = 'PENDING'"),
    "counts-by-status": _query("SELECT status, count(*) FROM indexed GROUP BY status"),
    "beyond-bounds": _query("SELECT * FROM indexed WHERE order_id = -5"),
    "in-list": _query(f"SELECT * FROM indexed WHERE user_id IN ({', '.join(str(7 * i) for i in range(1000))})"),
    "days": _query("SELECT region, sum(amount) FROM indexed WHERE order_date < DATE '2024-02-01' GROUP BY region"),
    "aggregate": _query(_AGGREGATE.format("indexed")),
    "top-10": _query("SELECT * FROM indexed ORDER BY amount DESC LIMIT 10"),
    "and-or": _query("SELECT count(*) FROM indexed WHERE (status = 'PENDING' AND region = 'EU') OR user_id = 5"),
    "keyed-aggregate": _query(_AGGREGATE.format("keyed")),
    "insert": Row(
        lambda side: side.lake.sql("INSERT INTO written SELECT * FROM source"),
        lambda side: side.create("written", INDEXED, query=""),
    ),
    "insert-keyed": Row(
        lambda side: side.lake.sql("INSERT INTO written SELECT * FROM source"),
        lambda side: side.create("written", {"deletion-vectors.enabled": "true"}, "order_id", query=""),
    ),
    "delete": _write("vectors", _delete),
    "delete-keyed": _write("keyed", _delete),
    "update": _write("vectors", lambda side: side.lake.sql("UPDATE written SET amount = 1 WHERE order_id % 100 = 7")),
    "merge": _write(
        "vectors",
        lambda side: side.lake.sql(
            "MERGE INTO written t USING (SELECT * FROM source WHERE order_id % 20 = 3) s ON t.order_id = s.order_id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ),
    ),
}


# --- one side: a process that does as it is asked --------------------------------------------------------------------


def serve(warehouse: Path, source: str) -> None:
    """Make the tables, then run each row named on standard input and answer with its seconds."""
    import bitlake
    from bitlake.spark.session import get_or_create

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep what Spark and Java print out of the answers
    spark = get_or_create("bitlake-paired")
    spark.sparkContext.setLogLevel("ERROR")
    spark.read.parquet(source).createOrReplaceTempView("source")
    shutil.rmtree(warehouse, ignore_errors=True)
    side = Side(bitlake.connect(str(warehouse), spark=spark), bitlake.connect(str(warehouse)), spark, source, warehouse)
    vectors = {"deletion-vectors.enabled": "true"}
    side.create("indexed", INDEXED)
    side.create("vectors", vectors)
    side.create("keyed", vectors, "order_id")
    side.create("merged", {"write-only": "true"}, "order_id")
    side.lake.sql("INSERT INTO merged SELECT * FROM source WHERE order_id % 10 = 0")
    side.create("many", {"target-file-size": "1 mb"})
    print(json.dumps({"at": bitlake.__file__}), file=answers, flush=True)
    for line in sys.stdin:
        row = ROWS[line.strip()]
        row.before(side)
        gc.collect()
        started = time.perf_counter()
        row.run(side)
        print(json.dumps({"seconds": time.perf_counter() - started}), file=answers, flush=True)


class Process:
    """One side, seen from the process that compares."""

    def __init__(self, name: str, tree: Path, source: Path) -> None:
        arguments = [sys.executable, str(Path(__file__)), "--serve", str(FOLDER / f"paired-{name}"), str(source)]
        log = (FOLDER / f"paired-{name}.log").open("w")
        environment = os.environ | {"PYTHONPATH": str(tree)}
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=tree
        )
        self.tree = tree

    def answer(self) -> Any:
        """The next answer; ends the comparison where the process has died."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process over {self.tree} has died; its log is in {FOLDER}")
        return json.loads(line)

    def seconds(self, row: str) -> float:
        """Run one row."""
        assert self._process.stdin is not None
        print(row, file=self._process.stdin, flush=True)
        return float(self.answer()["seconds"])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


# --- the comparison ---------------------------------------------------------------------------------------------------


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """The geometric mean of paired ratios with its 95 % interval."""
    logs = [math.log(r) for r in ratios]
    freedom = len(logs) - 1
    point = _T_95[max(f for f in _T_95 if f <= freedom)]
    middle, half = statistics.fmean(logs), point * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


Seconds = dict[str, tuple[list[float], list[float]]]
"""Seconds per row, old and new; equal positions form a pair."""


def compare(trees: tuple[Path, Path], source: Path, names: list[str], pairs: int) -> Seconds:
    """Return the seconds of each row, old and new in turns, in sessions of their own, after two warm runs of each."""
    seconds: Seconds = {name: ([], []) for name in names}
    for session in range(_SESSIONS):
        sides = Process("old", trees[0], source), Process("new", trees[1], source)
        for side in sides:
            imported = Path(side.answer()["at"])
            if not imported.is_relative_to(side.tree):
                raise SystemExit(f"{side.tree}: bitlake was imported from {imported}")
        session_pairs = len(range(session, pairs, _SESSIONS))
        for name in names:
            for turn in range(-2, session_pairs):
                for place in (0, 1) if (turn + session) % 2 else (1, 0):
                    taken = sides[place].seconds(name)
                    if turn >= 0:
                        seconds[name][place].append(taken)
        for side in sides:
            side.close()
        print(f"session {session + 1} of {_SESSIONS} done", file=sys.stderr, flush=True)
    return seconds


def _base_tree(commit: str) -> Path:
    tree = FOLDER / "base"
    if tree.exists():
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=False)
    subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], cwd=ROOT, check=True)
    return tree


def main() -> int:
    """Compare this tree with a base commit."""
    parser = argparse.ArgumentParser(prog="bench.paired", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", default="HEAD~1", help="the commit of the old code")
    parser.add_argument("--rows", type=int, default=1_000_000, help="orders in the tables")
    parser.add_argument("--pairs", type=int, default=9, help="pairs a row, at least 9")
    parser.add_argument("--only", default=",".join(ROWS), help=f"some of {','.join(ROWS)}")
    chosen = parser.parse_args()
    names = chosen.only.split(",")
    if unknown := set(names) - set(ROWS):
        parser.error(f"unknown rows {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    if chosen.pairs < 9:
        parser.error("fewer than nine pairs give no usable interval")
    FOLDER.mkdir(exist_ok=True)
    source = FOLDER / f"orders-{chosen.rows}.parquet"
    if not source.exists():
        from bench.orders import write_orders

        write_orders(str(source), chosen.rows)
    random.Random(0).shuffle(names)
    seconds = compare((_base_tree(chosen.base), ROOT), source, names, chosen.pairs)
    print(f"{chosen.rows:,} orders, {chosen.pairs} pairs a row in {_SESSIONS} sessions, base {chosen.base}\n")
    return 1 if _report(seconds) else 0


def _report(seconds: Seconds) -> bool:
    """Print the ratios; return True if a row or the total is too slow."""
    means, slower = [], []
    print("| row | old, median | new, median | new ÷ old | 95 % interval |\n| --- | ---: | ---: | ---: | --- |")
    for name, (before, after) in seconds.items():
        mean, low, high = interval([b / a for a, b in zip(before, after, strict=True)])
        means.append(mean)
        if low > SLOWER_ROW:
            slower.append(name)
        old_ms, new_ms = (1000 * statistics.median(s) for s in (before, after))
        mark = " slower" if low > SLOWER_ROW else ""
        print(f"| {name} | {old_ms:.1f} ms | {new_ms:.1f} ms | {mean:.3f} | {low:.3f} to {high:.3f}{mark} |")
    total = math.exp(statistics.fmean(map(math.log, means)))
    print(f"\ngeometric mean over {len(means)} rows: {total:.3f} (at most {SLOWER_ALL})")
    print(f"rows whose interval lies wholly above {SLOWER_ROW}: {', '.join(slower) or 'none'}")
    return bool(slower) or total > SLOWER_ALL


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main())
