"""Plans whose manifests are decoded in tasks: the same files as in one process, for random conditions and tables."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest
from caches import forget
from long import halves
from made_entries import made_entries

import bitlake
from bitlake.errors import CorruptError, NotFound
from bitlake.metadata.manifest import EntryKind, decode_manifest, encode_manifest
from bitlake.metadata.manifest_columns import decode_columns
from bitlake.scan import task_planning
from bitlake.scan.plan import Plan, PlannedFile
from bitlake.scan.scan import TableScan
from bitlake.snapshot import manifests, partitions
from bitlake.snapshot.file_columns import ColumnarFiles

T = TypeVar("T")
R = TypeVar("R")
ALWAYS = {"read.spark-planning-entries": "1"}


class Processes:
    """Executors that pickle what goes to other processes and what comes back."""

    cores = 2

    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.entries = 0
        """The entries that tasks returned."""

    def run(self, items: Sequence[T], fn: Callable[[T], R]) -> list[R]:
        self.jobs.append(len(items))
        results = []
        for item in items:
            call, given = pickle.loads(pickle.dumps((fn, item)))
            results.append(pickle.loads(pickle.dumps(call(given))))
        self.entries += sum(len(part) for r in results if r is not None for part in r.parts)
        return results


def scan_of(table: bitlake.Table, where: str, columns: Sequence[str] | None = None) -> TableScan:
    scan = table.scan(where=where)._core
    return scan if columns is None else scan.select(columns)


def planned(scan: TableScan) -> tuple[TableScan, Processes]:
    """A scan that tasks help to plan, and those; nothing is cached before."""
    forget()
    tasks = Processes()
    scan = replace(scan.planned_by(lambda: tasks), _planned=[])
    scan.plan()
    return scan, tasks


def in_process(scan: TableScan) -> TableScan:
    forget()
    scan = replace(scan, _planned=[])
    scan.plan()
    return scan


def paths(plan: Plan) -> list[str]:
    """The data files of a plan, those to be merged one by one."""
    return [f.path for file in plan.files for f in _members(file)]


def _members(file: PlannedFile) -> Sequence[PlannedFile]:
    return file.merge.files if file.merge is not None else [file]


def rows(scan: TableScan) -> list[str]:
    return sorted(map(repr, scan.to_arrow().to_pylist()))


def numbers(plan: Plan) -> dict[str, Any]:
    m = plan.metrics
    left_out = m.files_unseen > 0  # manifests were skipped: the sizes of their files are unknown
    size = None if left_out else m.data_bytes
    return {"files": m.files, "rows": m.rows, "bytes": size, "skipped": m.files_skipped, "read": m.files_read}


def random_condition(rng: random.Random, columns: dict[str, Sequence[Any]], depth: int = 2) -> str:
    if depth and rng.random() < 0.7:
        inner = [random_condition(rng, columns, depth - 1) for _ in range(2)]
        return f"({inner[0]} {rng.choice(['AND', 'AND', 'OR'])} {inner[1]})"
    name = rng.choice(list(columns))
    kind = rng.random()
    if kind < 0.12:
        return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
    values = [repr(rng.choice(list(columns[name]))) for _ in range(3)]
    if kind < 0.3:
        return f"{name} IN ({', '.join(values)})"
    return f"{name} {rng.choice(['=', '=', '<', '<=', '>', '>=', '<>'])} {values[0]}"


# --- append tables ----------------------------------------------------------------------------------------------------


def append_table(root: Path, partitioned: bool, vectors: bool) -> bitlake.Table:
    """A table of several schemas with NULLs, deleted rows and files: ``p``, ``n`` (once ``id``), ``s``, ``late``."""
    options = {**ALWAYS, "deletion-vectors.enabled": str(vectors).lower()}
    schema = pa.schema([("p", pa.string()), ("id", pa.int64()), ("s", pa.string()), ("gone", pa.int32())])
    lake = bitlake.connect(str(root))
    table = lake.create_table("t", schema, partition_by=["p"] if partitioned else [], options=options)

    def put(start: int, **others: Any) -> None:
        for part in ("a", "b", None):
            ids = range(start, start + 6)
            columns = {
                "p": pa.array([part] * 6, pa.string()),
                "id": pa.array([None if i % 5 == 0 else i for i in ids], pa.int64()),
                "s": pa.array([None if start == 30 else f"s{i % 7}" for i in ids], pa.string()),
                **others,
            }
            table.append(pa.table(columns))

    for start in (0, 10, 20, 30):
        put(start, gone=pa.array([start] * 6, pa.int32()))
    table.rename_column("id", "n")
    table.drop_column("gone")
    table.add_column("late", "INT")
    for start in (40, 20):
        for part in ("a", "c"):
            ids = range(start, start + 6)
            new = {"p": [part] * 6, "n": list(ids), "s": [f"s{i % 7}" for i in ids]}
            table.append(pa.table({**new, "late": pa.array([7, None] * 3, pa.int32())}))
    table.delete("n = 12 OR n = 23")
    table.delete("n BETWEEN 30 AND 36 AND p = 'a'")  # a whole file
    last = pa.table({"p": ["c"], "n": [99], "s": ["z"], "late": pa.array([1], pa.int32())})
    table.overwrite(last, {"p": "c"}) if partitioned else table.append(last)
    return table


COLUMNS: dict[str, Sequence[Any]] = {
    "p": ["a", "b", "c", "d"],
    "n": [0, 3, 12, 23, 31, 44, 99, 200],
    "s": ["s0", "s3", "s6", "z", "q"],
    "late": [1, 7, 9],
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("partitioned", "vectors"), halves([False, True], [False, True]))
def test_tasks_keep_the_files_of_an_append_table(tmp_path: Path, partitioned: bool, vectors: bool) -> None:
    table = append_table(tmp_path, partitioned, vectors)
    rng = random.Random(partitioned * 2 + vectors)
    jobs = skipped = 0
    for _ in range(30):
        where = random_condition(rng, COLUMNS)
        one = in_process(scan_of(table, where))
        plan = one.plan()
        other, tasks = planned(scan_of(table, where))
        assert paths(other.plan()) == paths(plan), where
        mine, others = numbers(other.plan()), numbers(plan)
        assert mine["bytes"] in (None, others["bytes"]) and {**mine, "bytes": 0} == {**others, "bytes": 0}, where
        assert rows(other) == rows(one)
        jobs += len(tasks.jobs)
        skipped += sum(other.plan().metrics.files_unlisted.values())
        left_by_indexes = sum(n for reason, n in plan.metrics.files_skipped.items() if reason != "statistics")
        assert tasks.entries <= len(plan.files) + 2 * _deletes(table) + left_by_indexes
    assert jobs > 10 and skipped > 60


def _deletes(table: bitlake.Table) -> int:
    state = table._core.state()
    assert state.snapshot is not None
    return sum(m.num_deleted_files for m in manifests.snapshot_manifests(state.table_files, state.snapshot))


def test_a_condition_on_partitions_leaves_manifests_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "MANY_FILES", 1)
    lake = bitlake.connect(str(tmp_path))
    schema = pa.schema([("p", pa.int32()), ("v", pa.int64())])
    table = lake.create_table("t", schema, partition_by=["p"], options={**ALWAYS, "manifest.merge-min-count": "99"})
    for p in range(8):
        for v in range(4):
            table.append(pa.table({"p": [p], "v": [v]}, schema=schema))
    scan, tasks = planned(scan_of(table, "p > 5 AND v = 2"))
    metrics = scan.plan().metrics
    assert tasks.jobs and len(scan.plan().files) == 2 == tasks.entries
    assert (metrics.files, metrics.rows, metrics.files_unseen) == (32, 32, 24)
    assert metrics.files_unlisted == {"statistics": 6} and metrics.files_skipped == {"partition": 24, "statistics": 6}
    assert metrics.manifests_read == 8 and metrics.manifests == 32
    text = bitlake.table.scan.Scan(scan).explain()
    assert "skipped 6 files by statistics; they are not listed" in text
    told = bitlake.table.scan.Scan(scan).explanation()
    assert [s.files for s in told.steps][-1] == 2
    # Partitions that are looked for one by one are found in blocks that need not be decoded.
    assert not planned(scan_of(table, "p = 5 AND v = 2"))[1].jobs


# --- tables with primary keys -----------------------------------------------------------------------------------------

ENGINES = {
    "deduplicate": {},
    "first-row": {"merge-engine": "first-row"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "vectors, merged": {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"},
    "postponed": {"bucket": "-2"},
    "keys across partitions": {"bucket": "-1"},
}
KEYED: dict[str, Sequence[Any]] = {
    "p": ["a", "b", "c"],
    "k": [0, 5, 17, 28, 40, 77, 200],
    "v": [0, 3, 17, 60, 1000, 5000],
    "s": ["s0", "s3", "q"],
}


def keyed_table(root: Path, options: dict[str, str], partitioned: bool, rng: random.Random) -> bitlake.Table:
    """Files in level 0 and above, apart and overlapping, some with deletes."""
    schema = pa.schema(
        [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False)]
        + [pa.field("v", pa.int64()), pa.field("s", pa.string())]
    )
    given = {"bucket": "2", "write-only": "true", "target-file-size": "1 kb", **ALWAYS, **options}
    how: dict[str, Any] = {"partition_by": ["p"], "primary_key": ["p", "k"]} if partitioned else {"primary_key": ["k"]}
    if options.get("bucket") == "-1":
        how["primary_key"] = ["k"]
    table = bitlake.connect(str(root)).create_table("t", schema, options=given, **how)
    may_delete = options.get("merge-engine") is None
    for turn in range(9):
        keys = rng.sample(range(rng.choice([0, 10, 40]), rng.choice([50, 90])), 8)
        parts = [rng.choice("ab") for _ in keys]
        values = [rng.choice([None, turn * 1000, k]) for k in keys]
        new = {"p": parts, "k": keys, "v": values, "s": [f"s{k % 7}" for k in keys]}
        kinds = [rng.choice(["+I", "+I", "-D"]) if may_delete else "+I" for _ in keys]
        table.upsert(pa.table(new, schema=schema), kinds=pa.array(kinds))
        if turn in (3, 6) and options.get("bucket") != "-2":
            table.maintenance.compact(full=turn == 3)
    return table


@pytest.mark.exhaustive
@pytest.mark.parametrize(("engine", "partitioned"), halves(ENGINES, [True, False]))
def test_tasks_keep_the_rows_of_a_table_with_keys(tmp_path: Path, engine: str, partitioned: bool) -> None:
    """Files that are read directly are the same; of those to merge there may be fewer, and the rows are the same."""
    rng = random.Random(f"{engine} {partitioned}")
    table = keyed_table(tmp_path, ENGINES[engine], partitioned, rng)
    exact = engine in ("first-row", "vectors")
    jobs = skipped = 0
    for turn in range(20):
        where = random_condition(rng, KEYED)
        if turn % 2:  # terms that may leave out files that are merged
            where += f" AND {random_condition(rng, {'k': KEYED['k']}, 1)}"
        columns = [None, ["k", "__paimon_file_path", "__paimon_row_index"]][turn % 4 == 3 and engine != "postponed"]
        one = in_process(scan_of(table, where, columns))
        plan = one.plan()
        other, tasks = planned(scan_of(table, where, columns))
        mine, all_of = paths(other.plan()), paths(plan)
        assert set(mine) <= set(all_of) and len(set(mine)) == len(mine)
        assert not exact or mine == all_of, where
        told, expected = numbers(other.plan()), numbers(plan)
        assert (told["files"], told["rows"]) == (expected["files"], expected["rows"])
        assert told["bytes"] in (None, expected["bytes"])
        # Files of level 0 in other partitions are counted there.
        assert not exact or sum(told["skipped"].values()) == sum(expected["skipped"].values())
        assert rows(other) == rows(one), where
        jobs += len(tasks.jobs)
        skipped += sum(other.plan().metrics.files_unlisted.values())
    assert jobs > 3 and (skipped > 3 or engine == "postponed")


# --- what comes back --------------------------------------------------------------------------------------------------


def small_table(root: Path, **options: str) -> bitlake.Table:
    lake = bitlake.connect(str(root))
    table = lake.create_table("t", pa.schema([("id", pa.int64())]), options={**ALWAYS, **options})
    for i in range(6):
        table.append(pa.table({"id": pa.array([i], pa.int64())}))
    return table


def test_a_second_plan_runs_no_task(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    forget()
    tasks = Processes()
    for where, jobs in (("id = 1", 1), ("id = 1", 1), ("id = 2", 2), ("id = 1", 2)):
        plan = scan_of(table, where).planned_by(lambda: tasks).plan()
        assert len(plan.files) == 1 and len(tasks.jobs) == jobs
        assert plan.metrics.files_skipped == {"statistics": 5}
    # The files that a condition leaves are not the table's.
    assert len(table.scan().plan().files) == 6
    scan_of(table, "id = 3").planned_by(lambda: tasks).plan()
    assert len(tasks.jobs) == 2  # all files are known by now
    table.append(pa.table({"id": pa.array([1], pa.int64())}))
    assert len(scan_of(table, "id = 1").planned_by(lambda: tasks).plan().files) == 2


def test_few_entries_are_decoded_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = small_table(tmp_path, **{"read.spark-planning-entries": "7"})
    assert not planned(scan_of(table, "id = 1"))[1].jobs
    table.append(pa.table({"id": pa.array([1], pa.int64())}))
    assert planned(scan_of(table, "id = 1"))[1].jobs
    assert not planned(table.scan()._core)[1].jobs  # nothing to skip by
    table.alter_options(unset=["read.spark-planning-entries"])
    monkeypatch.setattr(task_planning, "MANY_ENTRIES", 7)
    assert not planned(scan_of(table, "id = 1"))[1].jobs  # of two cores, the driver has as many
    monkeypatch.setattr(Processes, "cores", task_planning._LEAST_CORES)
    assert planned(scan_of(table, "id = 1"))[1].jobs
    monkeypatch.setattr(task_planning, "MANY_ENTRIES", 8)
    assert not planned(scan_of(table, "id = 1"))[1].jobs


def test_items_and_jobs_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = small_table(tmp_path)
    monkeypatch.setattr(task_planning, "_LEAST_GROUP", 2)
    monkeypatch.setattr(task_planning, "_GROUP_ENTRIES", 2)
    assert planned(scan_of(table, "id = 1"))[1].jobs == [3]
    monkeypatch.setattr(task_planning, "_JOB_BYTES", 1)
    scan, tasks = planned(scan_of(table, "id > 1"))
    assert tasks.jobs == [1, 1, 1] and len(scan.plan().files) == 4


def _rewrite(table: bitlake.Table, number: int, change: Callable[[bytes], bytes]) -> str:
    """Change a manifest's bytes; returns its path."""
    state = table._core.state()
    assert state.snapshot is not None
    metas = manifests.snapshot_manifests(state.table_files, state.snapshot)
    path = Path(state.paths.manifest(metas[number].file_name))
    path.write_bytes(change(path.read_bytes()))
    return str(path)


def _errors(scan: TableScan) -> list[tuple[type[Exception], str]]:
    out: list[tuple[type[Exception], str]] = []
    for plan in (in_process, planned):
        with pytest.raises((CorruptError, NotFound)) as error:
            plan(scan)
        out.append((type(error.value), str(error.value)))
    return out


def test_damaged_and_missing_manifests_raise_the_same_error(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    scan = scan_of(table, "id = 1")
    path = _rewrite(table, 2, lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    one, other = _errors(scan)
    assert one == other and path in other[1] and "default.t" in other[1]
    Path(path).unlink()
    one, other = _errors(scan)
    assert one == other and other[0] is NotFound and path in other[1] and "it has expired" in other[1]


def test_damaged_statistics_raise_the_same_error(tmp_path: Path) -> None:
    table = small_table(tmp_path)

    def broken(data: bytes) -> bytes:
        entries = decode_manifest(data)
        stats = replace(entries[0].file.value_stats, min=b"\0\0\0\1\0")
        return encode_manifest([replace(e, file=replace(e.file, value_stats=stats)) for e in entries], 1)

    _rewrite(table, 3, broken)
    one, other = _errors(scan_of(table, "id = 1"))
    assert one == other and other[0] is CorruptError


def test_manifests_that_are_read_by_entry_are_read_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = small_table(tmp_path)
    monkeypatch.setattr(manifests, "manifest_columns", lambda table, metas: None)
    scan, tasks = planned(scan_of(table, "id = 1"))
    assert tasks.jobs and len(scan.plan().files) == 1 and len(scan.plan().skipped) == 5


def test_objects_are_made_of_files_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = small_table(tmp_path)
    made = made_entries(monkeypatch)
    scan, _ = planned(scan_of(table, "id IN (1, 4)"))
    assert len(scan.plan().files) == 2 == len(made)


def test_a_delete_without_statistics_cancels_a_file_that_a_task_skipped(tmp_path: Path) -> None:
    """Paimon may drop the statistics of DELETE entries; their files are then skipped, and the entries are not."""
    table = small_table(tmp_path)
    table.delete("id = 3")

    def bare(data: bytes) -> bytes:
        entries = decode_manifest(data)
        stats = replace(entries[0].file.value_stats, min=b"", max=b"", null_counts=())
        return encode_manifest(
            [
                replace(e, file=replace(e.file, value_stats=stats, value_stats_cols=()))
                if e.kind is EntryKind.DELETE
                else e
                for e in entries
            ],
            1,
        )

    for number in range(7):
        _rewrite(table, number, bare)
    one = in_process(scan_of(table, "id > 3"))
    other, tasks = planned(scan_of(table, "id > 3"))
    assert paths(one.plan()) == paths(other.plan()) and numbers(one.plan()) == numbers(other.plan())
    assert tasks.entries == 3 and other.plan().metrics.files_unlisted == {"statistics": 3}


@pytest.mark.parametrize("seed", range(3))
def test_taken_entries_are_the_same(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of blocks that are taken as a whole, in part, and not at all."""
    table = append_table(tmp_path, True, True)
    entries = list(table._core.state().entries()) * 20
    data = b"".join([encode_manifest(entries, 1)])
    monkeypatch.setattr("bitlake.metadata.manifest_columns._TAKEN_BYTES", 3_000)
    (columns,) = decode_columns([data])
    assert columns is not None
    fields = table.schema.fields
    every = np.arange(len(columns))
    assert columns.taken(every) is columns
    rng = np.random.default_rng(seed)
    for share in (0.0, 0.02, 0.5, 0.95):
        places = np.flatnonzero(rng.random(len(columns)) < share)
        taken = pickle.loads(pickle.dumps(columns.taken(places)))
        assert list(taken.entries(np.arange(len(places)))) == list(columns.entries(places))
        assert taken.memory <= columns.memory + 4096
        same = ColumnarFiles([(taken, np.arange(len(places)))]), ColumnarFiles([(columns, places)])
        for a, b in zip(*(f.columns.groups for f in same), strict=True):
            assert (a.schema_id, a.columns, a.places.tolist()) == (b.schema_id, b.columns, b.places.tolist())
            if a.schema_id == table.schema.id:
                found = [g.bounds(f.columns, fields, ["n", "s"], g.places) for g, f in zip((a, b), same, strict=True)]
                for one, other in zip(found[0].values(), found[1].values(), strict=True):
                    assert one is not None and other is not None
                    assert [str(one.low), str(one.high), one.nulls.tolist()] == [
                        str(other.low),
                        str(other.high),
                        other.nulls.tolist(),
                    ]
        assert same[0].columns.partitions[0] == same[1].columns.partitions[0]
