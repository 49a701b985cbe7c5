"""Statements as jobs: what Spark has done of their tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import bitlake
from bitlake import progress as progress_module
from bitlake.formatting import one_line
from bitlake.progress import Job, amounts
from bitlake.spark import runner

pytestmark = pytest.mark.spark


class Wall:
    """Takes the place of the board: remembers jobs, and how far they were at their end."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.ends: list[str] = []

    def add(self, made: Job) -> None:
        self.jobs.append(made)

    def remove(self, gone: Job) -> None:
        self.ends.append(amounts(gone))


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    made = Wall()
    monkeypatch.setattr(progress_module, "place", lambda: object)
    monkeypatch.setattr(progress_module, "board", made)
    monkeypatch.setattr(runner, "_EVERY", 0.0)
    return made


def test_tasks_are_counted_by_statement(spark: Any, wall: Wall) -> None:
    spark.range(10).count()  # somebody else's
    with runner.watched(spark, "first", True):
        assert spark.range(0, 100, 1, 5).selectExpr("sum(id)").collect()[0][0] == 4950
        first = wall.jobs[0]
        if first.look is None:
            assert first.total is None or first.done <= first.total
            pytest.skip("Spark Connect tells by itself, at intervals that may miss the last tasks")
        first.look(first)
        assert first.unit == "tasks" and first.total is not None and first.total >= 6
        assert first.done == first.total
    assert first.look is None
    with runner.watched(spark, "second", True):
        assert wall.jobs[1].look is not None
        wall.jobs[1].look(wall.jobs[1])
        assert wall.jobs[1].total is None, "the tasks of another statement"


def test_every_statement_is_one_job(lake: bitlake.Lake, wall: Wall) -> None:
    lake.sql("CREATE TABLE t (id BIGINT)")
    lake.sql("INSERT INTO t SELECT id FROM range(0, 100, 1, 3)")
    lake.sql("CALL sys.compact(table => 't')")
    assert [j.label for j in wall.jobs] == [
        "CREATE TABLE t (id BIGINT)",
        "INSERT INTO t SELECT id FROM range(0, 100, 1, 3)",
        "CALL sys.compact(table => 't')",
    ]
    lake.write(lake.sql("SELECT id FROM t"), "t")
    assert wall.jobs[-1].label == "writing to default.t"
    lake._catalog.runtime = replace(lake._catalog.runtime, shows_progress=False)
    lake.sql("SELECT id FROM t")
    assert wall.jobs[-1].label == "writing to default.t"


def test_long_statements_are_cut() -> None:
    assert one_line("SELECT 1\n  FROM t", runner._LABEL_LENGTH) == "SELECT 1 FROM t"
    assert len(one_line("SELECT " + "x, " * 50, runner._LABEL_LENGTH)) == 60
