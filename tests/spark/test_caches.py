"""Caches where Spark takes part: frames on the driver, and what workers keep from task to task."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.io import Store
from bitlake.runtime import CacheName, Caches
from bitlake.scan.column_reader import FileTask, footer_of
from bitlake.scan.reader import tasks_of
from bitlake.spark.runner import SparkRunner, dumps

pytestmark = pytest.mark.spark

FOOTERS: CacheName[str, Any] = CacheName("footers")


@pytest.fixture
def table(lake: bitlake.Lake) -> bitlake.Table:
    made = lake.create_table("t", pa.schema([("i", pa.int64()), ("s", pa.string())]))
    for file in range(4):
        made.append(pa.table({"i": list(range(file * 10, file * 10 + 10)), "s": ["x"] * 10}))
    return made


def caches_of(lake: bitlake.Lake) -> Caches:
    return lake._catalog.runtime.caches


def rows(frame: Any) -> list[int]:
    return sorted(r[0] for r in frame.collect())


def footers_before(store: Store, task: FileTask) -> tuple[int, int, int, int]:
    """Read a footer in a worker: its process, its budget, and the footers that were cached there before and are now."""
    before = store.caches.sizes().get("footers", 0)
    footer_of(store, task)
    return os.getpid(), store.caches.budget.size, before, store.caches.sizes().get("footers", 0)


def ask(lake: bitlake.Lake, table: bitlake.Table, rounds: int) -> list[tuple[int, int, int, int]]:
    """What workers had in their caches, job by job."""
    plan = table._core.scan().plan()
    tasks = tasks_of(plan.files, plan.schemas)
    work = partial(footers_before, lake._catalog.store)
    return [found for _ in range(rounds) for found in SparkRunner(lake.spark, tasks=2).run(tasks, work)]


def test_workers_keep_what_they_read_for_the_next_task(lake: bitlake.Lake, table: bitlake.Table) -> None:
    for i in range(3):
        assert table.scan(where=f"i = {i}").count() == 1
    assert caches_of(lake).budget.used > 0
    assert len(dumps(lake._catalog.store)) < 1_000, "the driver's entries stay on the driver"
    found = ask(lake, table, 4)
    assert {size for _, size, _, _ in found} == {caches_of(lake).budget.size}
    held: dict[int, int] = {}
    warm = 0
    for process, _, before, after in found:
        assert before >= held.get(process, 0) and after > 0, "one worker, one runtime"
        warm += process in held
        held[process] = after
    assert warm, "a worker ran more than one task"


def test_workers_cache_nothing_where_the_lake_does_not(
    lake: bitlake.Lake, table: bitlake.Table, tmp_path: Path
) -> None:
    off = bitlake.connect(tmp_path / "lake", spark=lake.spark, cache_bytes=0)
    assert {found[1:] for found in ask(off, off.table("t"), 3)} == {(0, 0, 0)}
    assert rows(off.sql("SELECT i FROM t WHERE i > 30")) == list(range(31, 40))
    assert caches_of(off).budget.used == 0 == sum(caches_of(off).sizes().values())


def test_frames_are_cached_by_lake(lake: bitlake.Lake, table: bitlake.Table, tmp_path: Path) -> None:
    query = "SELECT i FROM t WHERE s = 'x'"
    assert rows(lake.sql(query)) == list(range(40))
    sizes = caches_of(lake).sizes()
    assert sizes["query analyses"] and sizes["local relations"] + sizes.get("file relations", 0)
    other = bitlake.connect(tmp_path / "lake", spark=lake.spark)
    assert not caches_of(other).sizes() and rows(other.sql(query)) == list(range(40))
    lake.clear_cache()
    assert not any(caches_of(lake).sizes().values()) and any(caches_of(other).sizes().values())
    assert rows(lake.sql(query)) == list(range(40))
    table.append(pa.table({"i": [100], "s": ["x"]}))
    assert rows(lake.sql(query)) == [*range(40), 100] == rows(other.sql(query))


@pytest.mark.parametrize("cache_bytes", [pytest.param("0", marks=pytest.mark.exhaustive), "100000"])
def test_the_source_takes_the_option(lake: bitlake.Lake, table: bitlake.Table, cache_bytes: str) -> None:
    for _ in range(2):
        for place in ({"path": table.path}, {"warehouse": lake.path, "table": "t"}):
            reader = lake.spark.read.format("bitlake").options(**place)
            assert rows(reader.option("cache-bytes", cache_bytes).load()) == list(range(40))
    with pytest.raises(Exception, match="'cache-bytes' takes a whole number from 0 on, and not '1 gb'"):
        lake.spark.read.format("bitlake").option("cache-bytes", "1 gb").load(table.path).collect()


def test_a_stream_of_a_lake_has_its_budget(lake: bitlake.Lake, tmp_path: Path) -> None:
    small = bitlake.connect(tmp_path / "lake", spark=lake.spark, cache_bytes=12_345)
    assert small._source["cache-bytes"] == "12345"
