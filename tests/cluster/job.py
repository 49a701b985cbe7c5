"""A driver process on a cluster: ``job.py STEP MASTER ENDPOINT`` does a step and prints what came of it as JSON.

The store is all that driver and executors share.  Answers carry, for each statement, how many tasks each executor
ended.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import s3_server

import bitlake
from bitlake.spark.dml import delete_update
from bitlake.spark.read import scan
from bitlake.spark.session import get_or_create
from bitlake.spark.write import primary_key

WAREHOUSE = "s3://lake/cluster"
ROWS = 120_000
_ROW = "id, concat('v', id % 100) AS s, CAST(id % 1000 AS DECIMAL(10, 2)) AS amount"


class Job:
    def __init__(self, master: str, endpoint: str) -> None:
        # So little data would come through the driver.
        scan.DRIVER_ROWS = scan.DRIVER_BYTES = primary_key.DRIVER_BYTES = delete_update.DRIVER_BYTES = -1
        self.spark: Any = get_or_create(
            "job",
            **{
                "spark.master": master,
                "spark.executor.memory": "512m",
                "spark.executor.cores": "1",
                "spark.sql.shuffle.partitions": "4",
                "spark.driver.memory": "512m",
                "spark.driver.extraJavaOptions": "",
            },
        )
        self.lake = bitlake.connect(WAREHOUSE, spark=self.spark, storage_options=s3_server.options(endpoint))
        self.wait_for_executors()

    def wait_for_executors(self) -> None:
        """Both take tasks before anything is counted: a task each that lasts until the other one runs."""
        frame = self.spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(lambda rows: rows)
        assert frame.count() == 2

    def tasks(self) -> dict[str, int]:
        """How many tasks each executor has ended."""
        listed = self.spark.sparkContext._jsc.sc().statusStore().executorList(True)
        found = [listed.apply(i) for i in range(listed.size())]
        return {e.id(): e.completedTasks() for e in found if e.id() != "driver"}

    def run(self, text: str) -> dict[str, Any]:
        """A statement's rows and the tasks that it gave each executor."""
        before = self.tasks()
        rows = [[str(v) for v in r] for r in self.lake.sql(text).collect()]
        return {"rows": rows, "tasks": {k: v - before.get(k, 0) for k, v in self.tasks().items()}}


def whole(job: Job) -> dict[str, Any]:
    """Ingest, upsert, backfill, compact, query."""
    job.lake.sql("SET spark.paimon.read.driver-queries = false")  # the workers are to read
    job.lake.sql("CREATE TABLE events (id BIGINT, s STRING, amount DECIMAL(10, 2))")
    job.lake.sql(
        "CREATE TABLE orders (id BIGINT, s STRING, amount DECIMAL(10, 2)) "
        "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '4', 'deletion-vectors.enabled' = 'true')"
    )
    found = {
        "ingest": job.run(f"INSERT INTO events SELECT {_ROW} FROM range(0, {ROWS}, 1, 8)"),
        "load": job.run(f"INSERT INTO orders SELECT {_ROW} FROM range(0, {ROWS}, 1, 8)"),
        "upsert": job.run(
            f"INSERT INTO orders SELECT id * 3 AS id, 'new' AS s, 1.5BD AS amount FROM range(0, {ROWS // 3}, 1, 8)"
        ),
    }
    job.lake.sql("ALTER TABLE events SET TBLPROPERTIES ('file-index.bitmap.columns' = 's')")
    found["backfill"] = job.run("CALL sys.rewrite_file_index('events')")
    found["compact"] = job.run("CALL sys.compact('orders', compact_strategy => 'full')")
    found["events"] = job.run("SELECT count(*), sum(id), count_if(s = 'v7') FROM events")
    found["orders"] = job.run("SELECT count(*), sum(id), count_if(s = 'new'), sum(amount) FROM orders")
    scan = job.lake.table("events").scan(where="s = 'v7'")
    found["pruned"] = {"rows": scan.plan().chosen_rows, "tasks": {}}
    return found


def append(job: Job) -> dict[str, Any]:
    """One large append, in the midst of which a worker is killed."""
    job.lake.sql("CREATE TABLE killed_append (id BIGINT, s STRING, amount DECIMAL(10, 2))")
    return {"write": job.run(f"INSERT INTO killed_append SELECT {_ROW} FROM range(0, {ROWS}, 1, 12)")}


def upsert(job: Job) -> dict[str, Any]:
    """One large upsert, in the midst of which a worker is killed."""
    job.lake.sql(
        "CREATE TABLE killed_upsert (id BIGINT, s STRING, amount DECIMAL(10, 2)) "
        "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '6', 'deletion-vectors.enabled' = 'true')"
    )
    return {"write": job.run(f"INSERT INTO killed_upsert SELECT {_ROW} FROM range(0, {ROWS}, 1, 12)")}


if __name__ == "__main__":
    step, master, endpoint = sys.argv[1:]
    print(json.dumps({"whole": whole, "append": append, "upsert": upsert}[step](Job(master, endpoint))), flush=True)
