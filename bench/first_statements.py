"""How much longer does the first statement of its kind in a session take than the next ones?

python -m bench.first_statements WAREHOUSE KIND TURN      the statements in a session of their own, as JSON
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from bench.machine import processor_seconds
from bench.measure import Result, timed

if TYPE_CHECKING:
    from bench.cases import Bench

KINDS = ("scan", "Spark's own scan", "DELETE", "MERGE")
_TIMES = 5
_SCAN = "SELECT status, count(*), sum(amount), max(payload) FROM {} GROUP BY status ORDER BY 1"
_CHANGED = (
    "order_id, user_id, 'CHANGED' AS status, region, CAST(amount + 1 AS DECIMAL(10, 2)) AS amount, order_date, payload"
)
_MERGE = (
    "MERGE INTO bench.firsts AS t USING (SELECT {} FROM bench.firsts WHERE order_id BETWEEN {} AND {}) AS s "
    "ON t.order_id = s.order_id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def first_statements(bench: Bench) -> list[Result]:
    """How much longer do the first scan, DELETE and MERGE of a session take than the next ones?"""
    bench.create("firsts", {"deletion-vectors.enabled": "true"})
    bench.insert("firsts")
    results = []
    for kind in KINDS:
        runs = [_in_its_session(bench, kind, turn) for turn in range(bench.rounds)]
        first, later = (statistics.median(run[key] for run in runs) for key in ("first", "later"))
        cpu = [statistics.median(run[key] for run in runs) for key in ("first_cpu", "later_cpu")]
        note = f"processor time {cpu[0]:.2f} and {cpu[1]:.2f} s, ratio {cpu[0] / cpu[1]:.2f}; {runs[0]['jobs']} jobs"
        target = None if kind.startswith("Spark") else 2.0
        results.append(Result(f"first {kind}", "s", first, later, "later ones", target, bench.rounds, note))
    bench.lake.sql("DROP TABLE bench.firsts")
    return results


def _in_its_session(bench: Bench, kind: str, turn: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.first_statements", str(bench.warehouse), kind, str(turn)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def main(warehouse: str, kind: str, turn: int) -> None:
    """Run the statements of one kind in a new session, and print what they took.

    Before a DELETE or MERGE the session has read the table twice.
    """
    import bitlake
    from bitlake.spark.session import get_or_create

    spark = get_or_create("bitlake-first-statements")
    lake = bitlake.connect(warehouse, spark=spark)
    scan = _SCAN.format("bench.firsts")
    if kind in ("DELETE", "MERGE"):
        for _ in range(2):
            lake.sql(scan).collect()
    if kind.startswith("Spark"):
        files = [f.path for f in lake.table("bench.firsts").scan().plan().files]

    def statement(number: int) -> Any:
        place = turn * _TIMES + number
        if kind == "DELETE":
            return lake.sql(f"DELETE FROM bench.firsts WHERE order_id % 1000 = {place + 500}").collect()
        if kind == "MERGE":
            return lake.sql(_MERGE.format(_CHANGED, place * 2000, place * 2000 + 999)).collect()
        if kind.startswith("Spark"):
            spark.read.parquet(*files).createOrReplaceTempView("files")
            return spark.sql(_SCAN.format("files")).collect()
        return lake.sql(scan).collect()

    seconds, processor, jobs = [], [], []
    for number in range(_TIMES):
        before, known = processor_seconds(), _jobs(spark)
        seconds.append(timed(lambda n=number: statement(n)))  # type: ignore[misc]
        processor.append(processor_seconds() - before)
        jobs.append(_jobs(spark) - known)
    spark.stop()
    later = {"later": statistics.median(seconds[2:]), "later_cpu": statistics.median(processor[2:])}
    print(json.dumps({"first": seconds[0], "first_cpu": processor[0], **later, "jobs": jobs[0]}))


def _jobs(spark: Any) -> int:
    return int(spark.sparkContext._jsc.sc().statusStore().jobsList(None).size())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
