"""Backfill in batches: killed ones go on where they were, and other writers are never undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from builders import events

import bitlake
from bitlake.table.backfill import backfill
from bitlake.table.rewrite_index import Rewritten
from bitlake.table.runner import LocalRunner

BITMAP = {"file-index.bitmap.columns": "status"}


class Disturbed(LocalRunner):
    """Runs the work and then, after the n-th batch, lets something else happen."""

    def __init__(self, after: int, happen: Callable[[], object]) -> None:
        super().__init__(1)
        self._after = after
        self._happen = happen
        self.items: list[int] = []

    def run(self, items: Sequence[Any], fn: Callable[[Any], Any]) -> list[Any]:
        done = super().run(items, fn)
        self.items.append(len(items))
        if len(self.items) == self._after:
            self._happen()
        return done


def many_files(path: Path, **options: str) -> bitlake.Table:
    rows = events(1000)
    table = bitlake.connect(str(path)).create_table("t", rows.schema, options={"target-file-row-num": "100", **options})
    table.append(rows)
    table.alter_options(BITMAP)
    return table


def run(table: bitlake.Table, runner: Any) -> list[Rewritten]:
    state = table.state()
    return backfill(state, state.entries(), table.state, runner, "tester", batch_files=4)


def indexed(table: bitlake.Table) -> int:
    return sum(bool(e.file.extra_files or e.file.embedded_index) for e in table.state().entries())


def test_a_killed_backfill_goes_on_where_it_was(tmp_path: Path) -> None:
    table = many_files(tmp_path)

    def killed() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(table, Disturbed(2, killed))
    assert indexed(table) == 4, "the first batch is committed"
    done = run(table, LocalRunner())
    assert [d.new is None for d in done].count(True) == 4, "what was done is not done again"
    assert indexed(table) == 10
    assert table.scan(where="status = 'S1'").to_arrow().num_rows == 250


def test_files_that_another_writer_replaced_are_not_brought_back(tmp_path: Path) -> None:
    table = many_files(tmp_path)
    fresh = events(50)
    runner = Disturbed(2, lambda: table.overwrite(fresh))
    run(table, runner)
    assert table.scan().to_arrow().equals(fresh.cast(table.arrow_schema))
    assert not any(p.suffix == ".index" for p in Path(table.path).rglob("*-*.index") if p.stat().st_size == 0)


def test_two_backfills_at_once_end_with_every_file_indexed_once(tmp_path: Path) -> None:
    table = many_files(tmp_path)
    run(table, Disturbed(1, lambda: run(table, LocalRunner())))
    assert indexed(table) == 10
    assert table.scan().count() == 1000
    live = {n for e in table.state().entries() for n in e.file.extra_files}
    assert all(Path(table.path, "bucket-0", n).exists() for n in live)
    assert pa.table(table.scan(where="status = 'S3'").to_arrow()).num_rows == 250
