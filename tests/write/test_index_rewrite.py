"""Backfill in batches: killed ones go on where they were, and other writers are never undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from builders import events
from long import every

import bitlake
from bitlake.runtime import LocalRunner
from bitlake.write.index_rewrite import Rewritten, backfill

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
    state = table._core.state()
    return backfill(state, state.entries(), table._core.state, runner, "tester", batch_files=4)


def indexed(table: bitlake.Table) -> int:
    return sum(bool(e.file.extra_files or e.file.embedded_index) for e in table._core.state().entries())


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
    live = {n for e in table._core.state().entries() for n in e.file.extra_files}
    assert all(Path(table.path, "bucket-0", n).exists() for n in live)
    assert pa.table(table.scan(where="status = 'S3'").to_arrow()).num_rows == 250


@pytest.mark.parametrize(
    "options",
    every(
        2,
        [
            {},
            {"deletion-vectors.enabled": "true"},
            {"merge-engine": "first-row"},
            {"changelog-producer": "lookup"},
            {"bucket": "-1"},
        ],
    ),
    ids=str,
)
def test_files_of_keys_get_indexes_beside_them(tmp_path: Path, options: dict[str, str]) -> None:
    """They were refused, and a compaction writes no file anew that is on the highest level already."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("status", pa.string())])
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", schema, primary_key=["id"], options={"bucket": "2", **options})

    def upsert(first: int, count: int, status: str) -> None:
        table.upsert(
            pa.table({"id": range(first, first + count), "status": [f"{status}{i % 9}" for i in range(count)]})
        )

    upsert(0, 2000, "old")
    upsert(1500, 1000, "new")
    table.maintenance.compact(full=True)
    upsert(0, 10, "late")
    before = table.scan().to_arrow().sort_by("id")
    files = {e.file.file_name: e.file.level for e in table._core.state().entries()}
    table.alter_options(BITMAP)
    disturbed = Disturbed(1, lambda: upsert(10, 10, "meanwhile"))
    assert all(r.built == ("bitmap(status)",) for r in run(table, disturbed) if r.new is not None)
    table.indexes.rebuild()
    assert indexed(table) == len(table._core.state().entries())
    assert not any(r.new for r in table.indexes.rebuild()), "nothing is left to do"
    after = table.scan().to_arrow().sort_by("id")
    same = before.filter(pc.invert(pc.is_in(before["id"], pa.array(range(10, 20)))))
    assert after.filter(pc.is_in(after["id"], same["id"])).equals(same)
    assert all(
        files[e.file.file_name] <= e.file.level for e in table._core.state().entries() if e.file.file_name in files
    )
    for status in ("old7", "new7", "late7", "meanwhile7"):
        found = table.scan(where=f"status = '{status}'").to_arrow().sort_by("id")
        assert found.equals(after.filter(pc.equal(after["status"], status))), status
    table.maintenance.compact(full=True)
    assert table.maintenance.verify().ok and table.scan().to_arrow().sort_by("id").equals(after)
