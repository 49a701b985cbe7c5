"""Spark as a real cluster: master, two workers and driver are processes, and share nothing but a bucket."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flaky_proxy
import pyarrow.compute as pc
import pytest
import s3_server
from cluster import daemons, job

import bitlake

pytestmark = pytest.mark.cluster


@pytest.fixture
def two(tmp_path: Path) -> Iterator[daemons.Cluster]:
    with daemons.running(tmp_path) as made:
        yield made


def run(step: str, made: daemons.Cluster, endpoint: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, job.__file__, step, made.url, endpoint],
        env=daemons.environment(),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_both_workers_do_all_kinds_of_work(two: daemons.Cluster, s3_endpoint: str) -> None:
    found = run("whole", two, s3_endpoint)
    for name in ("ingest", "load", "upsert", "backfill", "compact", "events", "orders"):
        busy = found[name]["tasks"]
        assert len(busy) == 2, (name, busy)
        if name not in ("backfill", "compact"):  # these are a task for each file or bucket: two may go to one
            assert min(busy.values()) > 0, (name, busy)
    n = job.ROWS
    assert found["events"]["rows"] == [[str(n), str(n * (n - 1) // 2), str(n // 100)]]
    amounts = sum(i % 1000 for i in range(n) if i % 3) + n // 3 * 1.5
    assert [[int(float(v)) for v in r] for r in found["orders"]["rows"]] == [
        [n, n * (n - 1) // 2, n // 3, int(amounts)]
    ]
    assert found["pruned"]["rows"] == n // 100


@pytest.mark.parametrize("step", ["append", "upsert"])
def test_a_worker_killed_in_mid_write(two: daemons.Cluster, s3_endpoint: str, step: str) -> None:
    table = f"killed_{step}"
    killed: list[str] = []

    def plan(method: str, path: str, number: int) -> str:
        if method == "PUT" and f"/{table}/" in path and "/data-" in path:
            killed.append(path)
            if len(killed) == 3:
                two.kill(0)  # two files are there, more are being written
        return flaky_proxy.PASS

    with flaky_proxy.running(s3_endpoint) as proxy:
        proxy.plan = plan
        run(step, two, proxy.endpoint)
    assert len(killed) > 3
    assert two.workers[0].poll() is not None and two.workers[1].poll() is None
    lake = bitlake.connect(job.WAREHOUSE, storage_options=s3_server.options(s3_endpoint))
    ids = lake.table(table).scan(columns=["id"]).to_arrow().column("id")
    assert len(ids) == job.ROWS and pc.count_distinct(ids).as_py() == job.ROWS
    assert pc.sum(ids).as_py() == job.ROWS * (job.ROWS - 1) // 2
