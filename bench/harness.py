"""Answer the benchmark's questions in one process and one Spark session.

    make bench            or: python -m bench.harness [--rows N] [--runs N] [--cases writes,point_arrow,...]

Runs to compare take turns (A B, B A, …) and are medians of warm runs.  The report also goes to .bench/ as JSON and as
the Markdown of the README's results table.  A missed target is printed as missed, and does not fail the run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path

from rich.console import Console

from bench.cases import CASES, Bench
from bench.machine import describe
from bench.measure import Result, markdown, print_report
from bench.orders import write_orders
from bench.peers import PyPaimonTimer, SparkPeer

ROOT = Path(__file__).resolve().parent.parent
DELTA_CASES = {"pk_write", "dv_delete", "lineitem"}
ICEBERG_CASES = {"lineitem"}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000, help="orders in the table")
    parser.add_argument("--runs", type=int, default=3, help="measured rounds of long cases (short ones do more)")
    parser.add_argument("--cases", default=",".join(CASES), help=f"some of {','.join(CASES)}")
    parser.add_argument("--text-mb", type=int, default=200, help="megabytes of log lines of the case text_index")
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench", help="where data and reports go")
    chosen = parser.parse_args()
    if unknown := set(chosen.cases.split(",")) - set(CASES):
        parser.error(f"unknown cases {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    if chosen.runs < 3:
        parser.error("a median of fewer than three runs says little")
    return chosen


def main() -> None:
    """Run the chosen cases and report."""
    chosen = arguments()
    console = Console(stderr=True)
    started = time.perf_counter()

    def say(text: str) -> None:
        console.print(f"[dim]{time.perf_counter() - started:6.0f} s[/]  {text}")

    import bitlake
    from bitlake.spark.session import get_or_create

    chosen.folder.mkdir(exist_ok=True)
    source = chosen.folder / f"orders-{chosen.rows}.parquet"
    if not source.exists():
        say(f"generating {chosen.rows:,} orders")
        write_orders(str(source) + ".part", chosen.rows)
        Path(str(source) + ".part").rename(source)
    shutil.rmtree(chosen.folder / "warehouse", ignore_errors=True)
    say("starting Spark")
    spark = get_or_create("bitlake-bench")
    spark.read.parquet(str(source)).createOrReplaceTempView("bench_source")
    python = PyPaimonTimer.find()
    peer = PyPaimonTimer(python, chosen.folder / "pypaimon.log") if python else None
    asked = set(chosen.cases.split(","))
    delta = SparkPeer.start("delta", chosen.folder / "delta") if asked & DELTA_CASES else None
    iceberg = SparkPeer.start("iceberg", chosen.folder / "iceberg") if asked & ICEBERG_CASES else None
    lake = bitlake.connect(str(chosen.folder / "warehouse"), spark=spark)
    lake.sql("CREATE DATABASE IF NOT EXISTS bench")
    bench = Bench(
        spark, lake, chosen.folder, source, chosen.rows, chosen.runs, peer, say, delta, iceberg, chosen.text_mb
    )
    about = describe(spark) | {f"peer {k}": v for k, v in (peer.versions if peer else {}).items()}
    for other in (delta, iceberg):
        about |= {f"peer {k}": v for k, v in (other.versions if other else {}).items()}
    results: list[Result] = []
    try:
        for name in chosen.cases.split(","):
            say(f"{name}: {(CASES[name].__doc__ or '').splitlines()[0]}")
            results += CASES[name](bench)
    finally:
        for running in (peer, delta, iceberg):
            if running:
                running.close()
        if results:
            print_report(results, about, chosen.rows)
            report = {"rows": chosen.rows, "about": about, "results": [r.as_dict() for r in results]}
            (chosen.folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
            (chosen.folder / "report.md").write_text(markdown(results, about, chosen.rows))
            say(f"report: {chosen.folder / 'report.json'} and report.md")
        spark.stop()


if __name__ == "__main__":
    main()
