"""Tasks that write without knowing of each other: one snapshot, the rows of a key in order, nothing left behind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from long import exhaustive

import bitlake
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.mergetree import dml, task_writes
from bitlake.mergetree import writer as upserts
from bitlake.mergetree.task_writes import TaskJob, TaskResult, check_tasks, commit_tasks, discard_tasks, write_task
from bitlake.table.table import Table
from bitlake.write.commit import is_committed, last_identifier
from bitlake.write.commit_plan import BatchCommitted, Overwrite

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(str(tmp_path))


def batch(ids: list[int], v: str) -> pa.RecordBatch:
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array([v] * len(ids))], schema=SCHEMA)


def rows(table: Table) -> dict[int, str]:
    found = table.scan().to_arrow()
    return dict(zip(found.column("id").to_pylist(), found.column("v").to_pylist(), strict=True))


def files(table: Table) -> set[str]:
    return {p.name for p in Path(table.path).rglob("*.parquet")}


def staged(table: Table) -> set[str]:
    return {str(p) for p in Path(table.path, ".staging").glob("*")}


def keyed(lake: bitlake.Lake, **options: str) -> Table:
    given = {"bucket": "2", **{k.replace("_", "-"): v for k, v in options.items()}}
    return lake.create_table("k", SCHEMA, primary_key=["id"], options=given)


def job_of(table: Table, **more: object) -> TaskJob:
    state = table._core.state()
    return TaskJob(state, table._core.publisher(state).user, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize("write_only", ["false", "true"])
def test_rows_of_later_tasks_come_later(lake: bitlake.Lake, vectors: str, write_only: str) -> None:
    table = keyed(lake, **{"deletion-vectors.enabled": vectors}, write_only=write_only)
    chance, model = random.Random(7), dict[int, str]()
    for number in range(4):
        job = job_of(table)
        shares = [chance.sample(range(20), 8) for _ in range(3)]
        for task, share in enumerate(shares):
            model |= dict.fromkeys(share, f"{number}.{task}")
        # The tasks may end in any order.
        order = chance.sample(range(3), 3)
        done = {t: write_task(job, t, [batch(shares[t], f"{number}.{t}")]) for t in order}
        made = commit_tasks(table._core, job, [done[t] for t in order])
        assert made == table.snapshot
    if write_only == "true":
        table.alter_options({"write-only": "false"})
        table.maintenance.compact()
    assert rows(table) == model


def test_rows_come_after_those_of_a_writer_that_was_first(lake: bitlake.Lake) -> None:
    table = keyed(lake)
    job = job_of(table)
    done = [write_task(job, t, [batch([1, 2], f"task {t}")]) for t in range(2)]
    table.upsert(pa.table([[1, 3], ["other", "other"]], schema=SCHEMA))
    commit_tasks(table._core, job, done)
    assert rows(table) == {1: "task 1", 2: "task 1", 3: "other"}
    assert not {e.file.file_name for e in table._core.state().entries()} - files(table)


def test_tasks_replace_all_rows(lake: bitlake.Lake) -> None:
    table = keyed(lake)
    table.upsert(pa.table([[1, 3], ["old", "old"]], schema=SCHEMA))
    job = job_of(table, fresh=True)
    done = [write_task(job, t, [batch([t, 5], f"task {t}")]) for t in range(2)]
    commit_tasks(table._core, job, done, Overwrite())
    assert rows(table) == {0: "task 0", 1: "task 1", 5: "task 1"}


def test_a_batch_is_known_by_user_and_number(lake: bitlake.Lake) -> None:
    for table in (lake.create_table("t", SCHEMA), keyed(lake, **{"deletion-vectors.enabled": "true"})):
        mine = Table(table._core.written_by("stream"))
        assert last_identifier(mine._core.state(), "stream") is None
        for number in (0, 1):
            job = job_of(mine)
            commit_tasks(mine._core, job, [write_task(job, 0, [batch([number], "x")])], None, number)
        table.append(pa.table([[9], ["other"]], schema=SCHEMA))
        state = table._core.state()
        assert last_identifier(state, "stream") == 1
        assert [is_committed(state, "stream", n) for n in (0, 1, 2)] == [True, True, False]
        assert not is_committed(state, "another", 0)
        assert rows(table) == {0: "x", 1: "x", 9: "other"}


def test_an_upsert_of_a_batch_that_is_committed_is_refused(lake: bitlake.Lake) -> None:
    mine = keyed(lake)._core.written_by("stream")
    for number in (4, 5):
        assert dml.upsert(mine, batch([number], "x"), identifier=number) is not None
    with pytest.raises(BatchCommitted, match="batch 4 of stream"):
        dml.upsert(mine, batch([4], "again"), identifier=4)
    assert rows(Table(mine)) == {4: "x", 5: "x"}


def test_rows_that_come_once_are_renumbered_beside_another_writer(lake: bitlake.Lake) -> None:
    table = keyed(lake)

    def coming() -> Iterator[pa.RecordBatch]:
        yield batch([1, 2], "mine")
        table.upsert(batch([2, 3], "theirs"))

    table.upsert(coming())
    assert rows(table) == {1: "mine", 2: "mine", 3: "theirs"}


def test_a_process_given_up_for_dead_may_commit_the_batch_first(lake: bitlake.Lake) -> None:
    for table in (lake.create_table("t", SCHEMA), keyed(lake)):
        mine = Table(table._core.written_by("stream"))
        job = job_of(mine)
        done, late = (write_task(job, 0, [batch([1], v)]) for v in ("first", "late"))
        assert not is_committed(job.state, "stream", 5)
        commit_tasks(mine._core, job, [done], None, 5)
        table.append(pa.table([[9], ["other"]], schema=SCHEMA))
        there = files(table)
        with pytest.raises(BatchCommitted, match="batch 5 of stream is in .* already, as snapshot 1"):
            commit_tasks(mine._core, job, [late], None, 5)
        assert rows(table) == {1: "first", 9: "other"}
        assert files(table) < there, "the late files are deleted"
        commit_tasks(mine._core, job_of(mine), [], None, 6)


def test_what_is_discarded_is_gone(lake: bitlake.Lake) -> None:
    for table in (lake.create_table("t", SCHEMA), keyed(lake, changelog_producer="input")):
        before = files(table)
        job = job_of(table)
        done = [write_task(job, t, [batch([1, 2], "x")]) for t in range(2)]
        assert files(table) > before
        discard_tasks(job.state, done)
        assert files(table) == before


def test_a_task_with_too_many_rows_leaves_nothing(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = keyed(lake)
    monkeypatch.setattr(task_writes, "SEQUENCE_RANGE", 3)
    with pytest.raises(InvalidRequest, match="use more tasks"):
        write_task(job_of(table), 1, [batch(list(range(20)), "x")])
    assert not files(table)
    one = lake.create_table("one", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    with pytest.raises(InvalidRequest, match="more than 3 rows"):
        write_task(job_of(one), 1, [batch(list(range(4)), "x")])
    assert not files(one) and write_task(job_of(one), 1, [batch(list(range(3)), "x")])


def placed(lake: bitlake.Lake, where: str, **options: str) -> Table:
    """A table in which a row's bucket depends on all other rows: of dynamic buckets, or of keys over partitions."""
    parts = ["v"] if where == "across" else []
    given = {"dynamic-bucket.target-row-num": "5", **{k.replace("_", "-"): v for k, v in options.items()}}
    return lake.create_table("d", SCHEMA, primary_key=["id"], partition_by=parts, options=given)


@pytest.mark.parametrize("where", ["dynamic", "across"])
@pytest.mark.parametrize("vectors", ["false", exhaustive("true")])
def test_rows_that_tasks_cannot_place_are_placed_by_the_commit(
    lake: bitlake.Lake, where: str, vectors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_writes, "FILE_BYTES", 100)
    table = placed(lake, where, **{"deletion-vectors.enabled": vectors})
    chance, model = random.Random(7), dict[int, str]()
    for number in range(4):
        job = job_of(table)
        shares = [chance.sample(range(40), 16) for _ in range(3)]
        for task, share in enumerate(shares):
            model |= dict.fromkeys(share, f"{number}.{task}")
        order = chance.sample(range(3), 3)
        parts = {t: [batch(shares[t][:9], f"{number}.{t}"), batch(shares[t][9:], f"{number}.{t}")] for t in order}
        commit_tasks(table._core, job, [write_task(job, t, parts[t]) for t in order])
        assert rows(table) == model
    assert not staged(table)
    assert len({(e.partition, e.bucket) for e in table._core.state().entries()}) > 4
    job = job_of(table, fresh=True)
    commit_tasks(table._core, job, [write_task(job, 0, [batch([1, 2], "new")])], Overwrite())
    assert rows(table) == {1: "new", 2: "new"}


@pytest.mark.parametrize("where", ["dynamic", "across"])
def test_staged_batches_are_committed_once(lake: bitlake.Lake, where: str) -> None:
    table = Table(placed(lake, where)._core.written_by("stream"))
    job = job_of(table)
    done, late, again = (write_task(job, 0, [batch([1], v)]) for v in ("first", "late", "again"))
    commit_tasks(table._core, job, [done], None, 5)
    assert last_identifier(table._core.state(), "stream") == 5 and is_committed(table._core.state(), "stream", 5)
    discard_tasks(job.state, [again])
    assert staged(table) == set(late.staged)
    # A process that was given up for dead: it looked before the batch was there, and commits after.
    stale = Table(table._core.written_by("stream"))
    states = iter([job.state])
    stale._core.state = lambda: next(states, table._core.state())  # type: ignore[method-assign]
    with pytest.raises(BatchCommitted):
        commit_tasks(stale._core, job, [late], None, 5)
    assert rows(table) == {1: "first"} and not staged(table)


def test_staged_rows_are_written_again_when_another_writer_came_first(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = placed(lake, "dynamic")
    job = job_of(table)
    done = [write_task(job, t, [batch([t, 5], f"task {t}")]) for t in range(2)]
    written = upserts.write_changes

    def late(*args: object, **more: object) -> object:
        made = written(*args, **more)  # type: ignore[arg-type]
        monkeypatch.setattr(dml, "write_changes", written)
        table.upsert(pa.table([[5, 9], ["other", "other"]], schema=SCHEMA))
        return made

    monkeypatch.setattr(dml, "write_changes", late)
    commit_tasks(table._core, job, done)
    assert rows(table) == {0: "task 0", 1: "task 1", 5: "task 1", 9: "other"}
    assert not staged(table)


def test_rows_that_do_not_fit_fail_in_their_task(lake: bitlake.Lake) -> None:
    table = placed(lake, "dynamic")
    job = job_of(table)
    bad = pa.record_batch([pa.array([None], pa.int64()), pa.array(["x"])], schema=SCHEMA)
    with pytest.raises(InvalidRequest, match="'id' is NOT NULL"):
        write_task(job, 0, [batch([1], "x"), bad])
    assert not staged(table)
    done = write_task(job, 0, [batch([1], "x")])
    (path,) = done.staged
    Path(path).write_bytes(Path(path).read_bytes()[:90])
    with pytest.raises(CorruptError, match=r"staged rows cannot be read.*rows-.*\.arrow"):
        commit_tasks(table._core, job, [done])
    assert table.snapshot is None and not files(table) and not staged(table)


@pytest.mark.parametrize("where", ["", "fixed", "dynamic", "across"])
def test_null_becomes_the_default(lake: bitlake.Lake, where: str) -> None:
    columns = pa.schema([("id", pa.int64()), ("v", pa.string()), ("p", pa.int32())])
    options = {"bucket": "-1"} if where in ("dynamic", "across") else {"bucket": "1", "bucket-key": "id"}
    key = {"": [], "fixed": ["id"], "dynamic": ["id", "p"], "across": ["id"]}[where]
    partitions = ["p"] if where in ("dynamic", "across") else []
    table = lake.create_table("t", columns, primary_key=key, partition_by=partitions, options=options)
    lake.sql("ALTER TABLE t ALTER COLUMN v SET DEFAULT 'none'", engine="duckdb")
    given = pa.record_batch({"ID": [1, 2, 3], "V": [None, "a", None], "p": pa.array([1, 1, None], pa.int32())})
    if partitions:
        given = given.slice(0, 2)
    job = job_of(table)
    commit_tasks(table._core, job, [write_task(job, 0, [given, given.select(["ID", "p"])][:1])], None)
    stored = table.scan(["id", "v", "p"]).to_arrow().sort_by("id").to_pylist()
    expected = [{"id": 1, "v": "none", "p": 1}, {"id": 2, "v": "a", "p": 1}, {"id": 3, "v": "none", "p": None}]
    assert stored == expected[: given.num_rows]


def test_null_becomes_the_default_of_a_column_that_is_not_null(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE t (id BIGINT NOT NULL, n INT NOT NULL DEFAULT 7)", engine="duckdb")
    table = lake.table("t")
    job = job_of(table)
    given = [pa.record_batch({"id": [1, 2], "n": pa.nulls(2)}), pa.record_batch({"id": [3, None], "n": ["x", None]})]
    with pytest.raises(InvalidRequest, match="table 'default.t': column 'n'"):
        write_task(job, 0, given)
    commit_tasks(table._core, job, [write_task(job, 0, given[:1])], None)
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "n": 7}, {"id": 2, "n": 7}]


def test_staged_rows_that_were_left_behind_are_orphans(lake: bitlake.Lake) -> None:
    table = placed(lake, "dynamic")
    job = job_of(table)
    (path,) = write_task(job, 0, [batch([1], "x")]).staged
    table.maintenance.remove_orphan_files(2**53)
    assert not Path(path).exists()


def test_tables_without_keys_have_no_kinds(lake: bitlake.Lake) -> None:
    with pytest.raises(InvalidRequest, match="no primary key"):
        check_tasks(job_of(lake.create_table("p", SCHEMA), kinds="k"))


def test_row_kinds_from_a_column(lake: bitlake.Lake) -> None:
    table = keyed(lake)
    table.upsert(pa.table([[1, 2], ["a", "a"]], schema=SCHEMA))
    job = job_of(table, kinds="kind")
    given = pa.record_batch([[1, 2], ["b", None], ["+U", "-D"]], names=["id", "v", "kind"])
    commit_tasks(table._core, job, [write_task(job, 0, [given])])
    assert rows(table) == {1: "b"}


def test_buckets_that_tasks_wrote_to_are_compacted(lake: bitlake.Lake) -> None:
    """After the commit of all tasks, where the table has more runs than it may have."""
    for write_only, trigger in (("false", "2"), ("true", "2"), ("false", "5")):
        options = {"bucket": "1", "num-sorted-run.compaction-trigger": trigger, "write-only": write_only}
        table = lake.create_table(f"t_{write_only}_{trigger}", SCHEMA, primary_key=["id"], options=options)
        job = job_of(table)
        commit_tasks(table._core, job, [write_task(job, t, [batch([1, t + 2], f"{t}")]) for t in range(3)])
        assert rows(table) == {1: "2", 2: "0", 3: "1", 4: "2"}
        levels = [e.file.level for e in table._core.state().entries()]
        compacted = write_only == "false" and trigger == "2"
        assert (len(levels), set(levels)) == ((1, {2}) if compacted else (3, {0}))


def test_a_task_numbers_its_rows_in_a_range_of_its_own(lake: bitlake.Lake) -> None:
    """2^28 numbers for each, after those of the table."""
    table = keyed(lake, bucket="1", write_only="true")
    table.upsert(pa.table([[1, 2], ["old", "old"]], schema=SCHEMA))
    job = job_of(table)
    for number in (0, 1, 3):
        (change,) = write_task(job, number, [batch([5, 6, 7], "x")]).changes
        (entry,) = change.new_files
        first = 2 + number * 2**28
        assert (entry.file.min_sequence_number, entry.file.max_sequence_number) == (first, first + 2)


def test_tasks_leave_compaction_to_the_commit(lake: bitlake.Lake) -> None:
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "2", "deletion-vectors.enabled": "true"}
    table = lake.create_table("k", SCHEMA, primary_key=["id"], options=options)
    table.upsert(pa.table([[1, 2], ["old", "old"]], schema=SCHEMA))
    result = write_task(job_of(table), 0, [batch([1], "x")])
    assert result and not result.changes[0].compaction and len(result.changes[0].new_files) == 1
    assert not TaskResult() and not TaskResult(number=3)
    assert TaskResult(files=result.changes[0].new_files) and TaskResult(staged=("rows",))


@pytest.mark.parametrize(("more", "files"), [(0, 4), (1, 2)])
def test_staged_files_have_a_size(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch, more: int, files: int) -> None:
    table = placed(lake, "dynamic")
    part = batch([1, 2, 3], "x")
    monkeypatch.setattr(task_writes, "FILE_BYTES", part.nbytes + more)
    result = write_task(job_of(table), 0, [part] * 4)
    assert len(result.staged) == files == len(staged(table))
    assert sum(t.num_rows for t in task_writes.staged_rows(table._core.state(), [result])) == 12
