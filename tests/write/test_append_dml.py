"""DELETE and UPDATE of append tables in this process: what is read, what is written, what a failure leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from append_tables import VECTORS, fill, table_of
from store_wrappers import WRITES, FaultyStore

import bitlake
from bitlake.errors import BitlakeError, CommitConflict, InvalidRequest, NotFound, StorageUnavailable
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata.manifest import FileSource
from bitlake.runtime import LocalRunner
from bitlake.snapshot.manifests import index_entries
from bitlake.table.table import Table
from bitlake.write import append_dml
from bitlake.write.append_dml import estimated_search_bytes, find_hits, scan_of_hits, write_deletion


def ids_of(table: Table) -> list[int]:
    return sorted(table.scan(["id"]).to_arrow().column(0).to_pylist())


def break_data(table: Table) -> None:
    """Make every data file unreadable."""
    for path in Path(table.path).rglob("data-*.parquet"):
        path.write_bytes(b"not to be opened")


def written(table: Table) -> set[str]:
    """All data and index files in the table's folder."""
    return {p.name for p in Path(table.path).rglob("*") if p.name.startswith(("data-", "index-"))}


# --- finding ----------------------------------------------------------------------------------------------------------


def test_rows_that_an_index_is_sure_of_are_not_read(tmp_path: Path) -> None:
    table = table_of(tmp_path, {**VECTORS, "file-index.bitmap.columns": "v"})
    fill(table, 3)
    break_data(table)
    scan = table._core.scan().where("v = 'v3' OR v IN ('v5', 'none')")
    assert estimated_search_bytes(scan) == 0
    assert table.delete("v = 'v3' OR v IN ('v5', 'none')") == sum(i % 7 in (3, 5) for i in range(60))
    assert table.delete("v = 'v3'") == 0
    assert table.scan(where="v = 'v1'").count() == sum(i % 7 == 1 for i in range(60))


def test_whole_files_and_partitions_go_without_being_read(tmp_path: Path) -> None:
    table = table_of(tmp_path, VECTORS, ["p"])
    fill(table, 3)
    break_data(table)
    assert table.delete("p = 'p1' OR id < 20") == 30 + 10
    assert len(table._core.state().entries()) == 2
    assert table.snapshot is not None and table.snapshot.index_manifest is None
    assert table.delete() == 20
    assert list(table._core.state().entries()) == []


def test_a_file_goes_when_its_last_row_does(tmp_path: Path) -> None:
    table = table_of(tmp_path, VECTORS)
    fill(table, 2)
    table.delete("id < 19")
    assert len(table._core.state().entries()) == 2
    table.delete("v IS NOT NULL AND id = 19")
    assert len(table._core.state().entries()) == 1
    assert not any(e.ranges for e in index_entries(table._core.state().table_files, table.snapshot))


def test_only_the_conditions_columns_are_read(tmp_path: Path) -> None:
    table = table_of(tmp_path, VECTORS)
    fill(table, 1, rows=50_000)
    scan = table._core.scan().where("id = 77 OR id = 40000")
    hits = find_hits(scan, LocalRunner())
    assert [sorted(rows) for rows in hits.values()] == [[77, 40000]]
    read = scan_of_hits(table._core.scan(), hits)
    assert read.to_arrow().column("v").to_pylist() == ["v0", "v2"]
    assert read.plan().metrics.pages_read <= 6, "the pages of two rows"


@pytest.mark.parametrize("file_format", ["orc", "avro"])
@pytest.mark.parametrize("vectors", [{}, VECTORS], ids=["copy-on-write", "vectors"])
def test_other_formats(tmp_path: Path, file_format: str, vectors: dict[str, str]) -> None:
    table = table_of(tmp_path, {**vectors, "file.format": file_format})
    fill(table, 2)
    assert table.delete("v = 'v2'") == sum(i % 7 == 2 for i in range(40))
    assert table.update({"v": "new"}, "id >= 38") == 2
    assert ids_of(table) == [i for i in range(40) if i % 7 != 2]
    assert table.scan(where="v = 'new'").count() == 2


# --- vectors ----------------------------------------------------------------------------------------------------------


def test_only_touched_index_files_are_replaced(tmp_path: Path) -> None:
    """Without buckets index files roll at a target size; those that hold no vector of a touched file stay."""
    table = table_of(tmp_path, {**VECTORS, "deletion-vector.index-file.target-size": "1 b"})
    fill(table, 4)
    table.delete("v = 'v1'")
    before = {r.data_file: e.file_name for e in _indexes(table) for r in e.ranges or ()}
    assert len(set(before.values())) == 4
    table.delete("id = 25")
    after = {r.data_file: e.file_name for e in _indexes(table) for r in e.ranges or ()}
    assert sum(after[name] == before[name] for name in before) == 3
    assert ids_of(table) == [i for i in range(80) if i % 7 != 1 and i != 25]


def test_a_bucket_has_one_index_file(tmp_path: Path) -> None:
    table = table_of(tmp_path, {**VECTORS, "bucket": "2", "bucket-key": "id"})
    fill(table, 3)
    table.delete("v = 'v1'")
    table.delete("v = 'v2'")
    assert sorted(e.bucket for e in _indexes(table)) == [0, 1]
    assert sum(r.cardinality or 0 for e in _indexes(table) for r in e.ranges or ()) == 60 - len(ids_of(table))


def _indexes(table: Table) -> list[Any]:
    return index_entries(table._core.state().table_files, table.snapshot)


# --- UPDATE -----------------------------------------------------------------------------------------------------------


def test_new_values(tmp_path: Path) -> None:
    table = table_of(tmp_path, VECTORS, ["p"])
    fill(table, 1)
    assert table.update({"v": None, "P": "moved"}, "id < 3") == 3
    assert table.update({"id": lambda old: pc.add(old.column("id"), 100)}, "id BETWEEN 3 AND 4") == 2
    assert table.update({"v": pa.scalar("s")}, "id = 104") == 1
    rows = {r["id"]: (r["v"], r["p"]) for r in table.scan().to_arrow().to_pylist()}
    assert [rows[i] for i in (0, 1, 2)] == [(None, "moved")] * 3
    assert (rows[103], rows[104], rows[5]) == (("v3", "p1"), ("s", "p0"), ("v5", "p1"))
    assert len(rows) == 20


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"nope": 1}, NotFound, "nope"),
        ({}, InvalidRequest, "no column"),
        ({"v": 1, "V": 2}, InvalidRequest, "twice"),
        ({"id": b"many"}, InvalidRequest, "invalid int64 value"),
        ({"id": "many"}, NotFound, "no column 'many'"),  # SQL, as the column holds no text
        ({"v": lambda old: old.column("v").slice(1)}, InvalidRequest, "returned 4 values for 5 rows"),
        ({"v": lambda old: "x"}, InvalidRequest, "returned str"),
    ],
)
def test_wrong_values_change_nothing(
    tmp_path: Path, values: dict[str, Any], error: type[BitlakeError], message: str
) -> None:
    table = table_of(tmp_path, VECTORS)
    fill(table, 1)
    before = written(table)
    with pytest.raises(error, match=message):
        table.update(values, "id < 5")
    assert table._core.state().snapshot_id == 1
    assert written(table) == before
    if not any(map(callable, values.values())):
        with pytest.raises(error, match=message):
            table.update(values, "id > 100")  # also where no row matches


@pytest.mark.parametrize("key", [[], ["id"]])
def test_a_moment_that_is_not_a_day_or_a_time_is_refused(tmp_path: Path, key: list[str]) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("at", pa.time32("ms"))])
    table = bitlake.connect(str(tmp_path)).create_table("t", schema, primary_key=key)
    table.append(pa.table({"id": [1], "day": [date(2024, 1, 1)], "at": [time(1)]}))
    moments = (datetime(2024, 1, 2, 5), np.datetime64("2024-01-02T05:00:00"))
    for values in ({name: moment} for name in ("day", "at") for moment in moments):
        for where in ("id = 1", "id = 2"):
            with pytest.raises(InvalidRequest, match="it has a .*day, which a (DATE|TIME) would lose"):
                table.update(values, where)
    for day in (np.datetime64("2024-01-02T00:00:00"), np.datetime64("2024-01-02"), datetime(2024, 1, 2)):
        assert table.update({"day": day, "at": time(2)}) == 1
    assert table.to_arrow().to_pylist() == [{"id": 1, "day": date(2024, 1, 2), "at": time(2)}]


# --- other writers, and failures --------------------------------------------------------------------------------------


def test_disjoint_deletes_at_once_are_all_done(tmp_path: Path) -> None:
    table = table_of(tmp_path, VECTORS)
    fill(table, 2, rows=60)

    def run(k: int) -> int:
        return bitlake.connect(str(tmp_path / "lake")).table("t").delete(f"v = 'v{k}'")

    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(run, range(5))) == [sum(i % 7 == k for i in range(120)) for k in range(5)]
    assert ids_of(table) == [i for i in range(120) if i % 7 >= 5]


@pytest.mark.parametrize("options", [VECTORS, {}], ids=["vectors", "copy-on-write"])
def test_updates_of_the_same_rows_at_once_are_done_one_after_the_other(
    tmp_path: Path, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(tmp_path, options)
    fill(table, 1)
    plain, others = append_dml.write_deletion, [1]

    def late(*arguments: Any) -> Any:
        done = plain(*arguments)
        if others:
            others.pop()
            assert table.update({"id": lambda old: pc.add(old.column("id"), 1000)}, "v = 'v1'") == 3
        return done

    monkeypatch.setattr(append_dml, "write_deletion", late)
    assert table.update({"id": lambda old: pc.multiply(old.column("id"), -1)}, "v = 'v1'") == 3
    assert sorted(i for i in ids_of(table) if i < 0) == [-1015, -1008, -1001]
    assert len(ids_of(table)) == 20


@pytest.mark.parametrize("options", [VECTORS, {}], ids=["vectors", "copy-on-write"])
def test_every_failing_write_leaves_the_table_as_it_was(tmp_path: Path, options: dict[str, str]) -> None:
    table = table_of(tmp_path, {**options, "commit.max-retries": "0", "commit.min-retry-wait": "1 ms"})
    fill(table, 2)
    before = written(table)
    for step in range(60):
        broken = Table(FileStoreTable("t", table.path, FaultyStore(table._core.store, fail_at=step, only=WRITES)))
        error = ""
        try:
            broken.update({"v": "new"}, "id IN (3, 30)")
        except StorageUnavailable as e:
            error = str(e)
        if not error:
            break
        assert written(table) == before or "unknown" in error
        assert table.scan(where="v = 'new'").count() == 0
        assert ids_of(table) == list(range(40))
        for name in written(table) - before:
            next(Path(table.path).rglob(name)).unlink()
    assert step > 5
    assert table.scan(where="v = 'new'").count() == 2


def test_hits_that_are_gone_already_are_left_out(tmp_path: Path) -> None:
    table = table_of(tmp_path, VECTORS)
    fill(table, 1)
    hits = find_hits(table._core.scan().where("id < 4"), LocalRunner())
    table.delete("id < 2")
    gone = write_deletion(table._core.state(), hits, LocalRunner())
    assert gone.rows == 2
    gone.discard(table._core.state())


def test_a_statement_waits_before_it_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer each time, since writers that start again together meet again."""
    clock, waits, most = 0.0, [], []

    caller = threading.get_ident()

    def sleep(seconds: float) -> None:
        if threading.get_ident() == caller:  # py4j's threads sleep, too
            waits.append(seconds)

    def step(_: Any) -> None:
        nonlocal clock
        clock += 2.0
        raise CommitConflict("another writer was first")

    monkeypatch.setattr(append_dml.time, "monotonic", lambda: clock)
    monkeypatch.setattr(append_dml.time, "sleep", sleep)
    for _ in range(50):
        with pytest.raises(CommitConflict):
            append_dml.retrying(lambda: None, step)
        most = [max(pair) for pair in zip(waits[-4:], most or [0.0] * 4, strict=True)]
        assert all(0 <= wait <= bound for wait, bound in zip(waits[-4:], [2, 4, 8, 10], strict=True))
    assert len(waits) == 200
    assert most[0] < most[1] < most[2]


def test_a_second_run_of_a_task_leaves_the_files_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark runs a second copy of a slow task (speculation), and stops the run that is slower."""
    table = table_of(tmp_path, {})
    fill(table, 3)
    state = table._core.state()

    class Twice:
        def run(self, items: Sequence[Any], fn: Callable[[Any], Any]) -> list[Any]:
            first = [fn(item) for item in items]
            monkeypatch.setattr(append_dml.DataFileFactory, "entry", interrupted)
            for item in items:
                with pytest.raises(KeyboardInterrupt):
                    fn(item)
            return first

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    groups = [[e] for e in state.entries()]
    new = append_dml.rewrite(state, groups, {}, Twice(), FileSource.COMPACT)
    assert len(new) == 3 and {e.file.file_name for group in new for e in group} <= written(table)
