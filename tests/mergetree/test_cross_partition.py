"""Keys that are unique over partitions, written in this process: the table ends up as a plain dictionary."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from caches import forget
from long import every, halves, long
from store_wrappers import CountingStore

import bitlake
from bitlake.errors import CommitConflict
from bitlake.file_store_table import FileStoreTable
from bitlake.io.local import LocalStore
from bitlake.mergetree import bucket
from bitlake.mergetree.bucket import bucket_states
from bitlake.mergetree.bucket_assignment import AssignerLayout
from bitlake.mergetree.commit import publish
from bitlake.mergetree.cross_partition import NEW_BUCKET, OLD_BUCKET, OLD_PREFIX, Rerouter
from bitlake.mergetree.writer import prepare_rows, write_changes
from bitlake.snapshot import manifests, partitions
from bitlake.table.table import Table

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("k", pa.string(), nullable=False),
        pa.field("p", pa.string()),
        pa.field("v", pa.int64()),
        pa.field("w", pa.int64()),
    ]
)
Row = tuple[int, str, str, int | None, int | None]
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate, vectors": {"deletion-vectors.enabled": "true"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "aggregation, vectors": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "deletion-vectors.enabled": "true",
    },
    "first-row": {"merge-engine": "first-row"},
}


def made(root: Path, **options: str) -> Table:
    given = {"bucket": "-1", "primary-key": "id,k", "dynamic-bucket.target-row-num": "8", **options}
    return bitlake.connect(str(root)).create_table("t", COLUMNS, partition_by=["p"], options=given)


def arrow(rows: list[Row]) -> pa.Table:
    return pa.table([list(c) for c in zip(*rows, strict=True)], schema=COLUMNS)


def read(table: Table) -> list[Row]:
    return sorted(zip(*table.scan().to_arrow().to_pydict().values(), strict=True), key=repr)


def rows(table: Table) -> list[Row]:
    """With those of level 0."""
    return sorted(zip(*table.scan().with_level_0().to_arrow().to_pydict().values(), strict=True), key=repr)


def merged(engine: str, old: Row | None, new: Row) -> Row:
    if old is None:
        return new
    if engine == "first-row":
        return old
    later = tuple(o if n is None else n for o, n in zip(old[3:], new[3:], strict=True))
    if engine.startswith("partial-update"):
        return (*old[:3], *later)
    if engine.startswith("aggregation"):
        return (*old[:3], old[3] if new[3] is None else (old[3] or 0) + new[3], later[1])
    return new


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "buffer", "large"), halves(ENGINES, ["256 mb", "1 b"], [False, True]))
@pytest.mark.parametrize("turns", [3, long(4)])
def test_a_key_is_in_one_partition(
    name: str, buffer: str, large: bool, turns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``large``: as in a table of many files, of which a write loads the partitions that its rows go to."""
    if large:
        monkeypatch.setattr(partitions, "MANY_FILES", 1)
        monkeypatch.setattr(manifests, "COLUMNAR_ENTRIES", 1)
    table = made(tmp_path, **ENGINES[name], **{"write-buffer-size": buffer})
    rng = random.Random(name + buffer)
    model: dict[Any, Row] = {}
    for turn in range(turns):
        rows: list[Row] = []
        for i in range(60):
            value = None if rng.random() < 0.2 else turn * 100 + i
            rows.append((rng.randrange(25), rng.choice("xy"), rng.choice("abc"), value, rng.choice([None, i])))
        for row in rows:
            model[row[:2]] = merged(name, model.get(row[:2]), row)
        # Several batches: with the small buffer each is placed by itself, and knows of those before.
        table.upsert([arrow(rows[at : at + 20]) for at in range(0, 60, 20)])
        assert read(table) == sorted(model.values(), key=repr)
        assert table.scan().count() == len(model)
    assert max(e.bucket for e in table._core.state().entries()) > 0
    if name == "deduplicate":
        assert table.delete("id < 5") == sum(k[0] < 5 for k in model)
        table.upsert(arrow([(1, "x", "zz", 1, 1), (99, "y", "zz", 2, 2)]), ["-D", "+I"])
        model = {k: r for k, r in model.items() if k[0] >= 5} | {(99, "y"): (99, "y", "zz", 2, 2)}
        table.maintenance.compact(full=True)
        assert read(table) == sorted(model.values(), key=repr)


@pytest.mark.parametrize("name", ENGINES)
def test_rows_that_wait_for_compaction_are_known(name: str, tmp_path: Path) -> None:
    """With first-row and deletion vectors, readers do not see level 0: the next write must."""
    table = made(tmp_path, **ENGINES[name], **{"write-only": "true"})
    first: list[Row] = [(1, "x", "a", 1, None), (2, "x", "a", 2, None)]
    later: list[Row] = [(1, "x", "b", 10, None), (3, "x", "b", 30, None)]
    table.upsert(arrow(first))
    table.upsert(arrow(later))
    model = {row[:2]: row for row in first}
    model |= {row[:2]: merged(name, model.get(row[:2]), row) for row in later}
    assert rows(table) == sorted(model.values(), key=repr)
    table.maintenance.compact(full=True)
    assert read(table) == sorted(model.values(), key=repr)


@pytest.mark.parametrize("name", ENGINES)
def test_an_overwrite_by_no_rows_empties_the_table(name: str, tmp_path: Path) -> None:
    table = made(tmp_path, **ENGINES[name])
    assert table.upsert(COLUMNS.empty_table()) is None
    table.upsert(arrow([(1, "a", "x", 1, None), (2, "b", "y", 2, None)]))
    table.overwrite(COLUMNS.empty_table())
    assert table.count() == 0
    table.upsert(arrow([(1, "a", "y", 3, None)]))
    assert table.to_arrow().to_pylist() == arrow([(1, "a", "y", 3, None)]).to_pylist()


def test_many_keys_are_looked_up_by_their_range_in_key_columns_only(tmp_path: Path) -> None:
    wide = "x" * 2000
    columns = pa.schema([pa.field("id", pa.int64(), False), pa.field("p", pa.int32()), pa.field("text", pa.string())])
    options = {"bucket": "-1", "primary-key": "id", "deletion-vectors.enabled": "true", "file.compression": "none"}
    made_ = bitlake.connect(str(tmp_path)).create_table("t", columns, partition_by=["p"], options=options)

    def rows(ids: range, p: int) -> pa.Table:
        return pa.table([list(ids), [p] * len(ids), [f"{i}{wide}" for i in ids]], schema=columns)

    made_.upsert(rows(range(1000), 1))
    made_.upsert(rows(range(1000, 2000), 2))
    store = CountingStore(LocalStore())
    table = Table(FileStoreTable("default.t", made_.path, store))
    before = store.bytes_read
    table.upsert(rows(range(600), 3))
    assert store.bytes_read - before < 400_000  # a file has 2 MB
    found = table.scan(["id", "p"]).to_arrow().sort_by("id").to_pydict()
    assert found["id"] == list(range(2000))
    assert found["p"] == [3] * 600 + [1] * 400 + [2] * 1000


@pytest.mark.parametrize("name", every(2, ENGINES))
def test_a_write_to_a_large_table_loads_the_partitions_that_its_rows_go_to(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the key's live row, and its own; all others' entries stay columns."""
    table = made(tmp_path, **ENGINES[name])
    for turn in range(3):
        table.upsert(arrow([(i, "x", "abcdef"[i % 6], turn, None) for i in range(60)]))
    monkeypatch.setattr(partitions, "MANY_FILES", 1)
    monkeypatch.setattr(manifests, "COLUMNAR_ENTRIES", 1)
    forget()
    loaded: list[set[bytes]] = []
    whole = bucket_states

    def states(state: Any, only: Any = None, partitions: Any = None) -> Any:
        assert only is None
        loaded.append(set(partitions))
        return whole(state, partitions=partitions)

    monkeypatch.setattr(bucket, "bucket_states", states)
    table.upsert(arrow([(0, "x", "b", 9, None)]))
    assert len(set().union(*loaded)) == (2 if name.startswith("deduplicate") else 0 if name == "first-row" else 1)
    monkeypatch.undo()
    where = [(r[2], r[3]) for r in rows(table) if r[:2] == (0, "x")]
    added = 12 if name.startswith("aggregation") else 9
    assert where == [("b", 9)] if name.startswith("deduplicate") else [("a", 0 if name == "first-row" else added)]


def test_of_two_writers_at_once_the_second_looks_again(tmp_path: Path) -> None:
    table = made(tmp_path)
    state = table._core.state()
    late = write_changes(state, prepare_rows("t", state.schema, [arrow([(1, "x", "a", 1, 1)])]), "late")
    table.upsert(arrow([(1, "x", "b", 2, 2)]))
    with pytest.raises(bitlake.errors.CommitConflict, match="other partitions"):
        publish(table._core, state, late, operation="WRITE")
    table.upsert(arrow([(1, "x", "a", 1, 1)]))
    assert read(table) == [(1, "x", "a", 1, 1)]


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "first-row"])
def test_rows_joined_with_old_ones_are_routed_alike_however_they_are_cut(engine: str, tmp_path: Path) -> None:
    """Spark's batches end anywhere, also within a key."""
    table = made(tmp_path, **ENGINES[engine])
    chance = random.Random(6)
    homes: dict[int, tuple[int, str] | None] = {i: chance.choice([None, (3, "a"), (4, "b")]) for i in range(30)}
    rows = []
    for i, home in homes.items():
        for n in range(chance.choice([1, 1, 2, 3])):
            row = {"id": i, "k": "x", "p": chance.choice("ab"), "v": n, "w": None, "_VALUE_KIND": 0}
            rows.append({**row, OLD_BUCKET: home and home[0], OLD_PREFIX + "p": home and home[1]})
    types = [*COLUMNS, ("_VALUE_KIND", pa.int8()), (OLD_BUCKET, pa.int32()), (OLD_PREFIX + "p", pa.string())]
    came = pa.Table.from_pylist(rows, schema=pa.schema(types))

    def routed(size: int) -> list[str]:
        rerouter = Rerouter(table.schema, AssignerLayout(8), {})
        parts = [rerouter.add(came.slice(at, size)) for at in range(0, len(came), size)]
        assert rerouter.add(came.slice(0, 0)) is None
        parts += [rerouter.finish()]
        assert rerouter.finish() is None
        names = [*COLUMNS.names, "_VALUE_KIND", NEW_BUCKET]
        return sorted(str(r) for p in parts if p is not None for r in p.select(names).to_pylist())

    whole = routed(len(came))
    assert all(routed(size) == whole for size in (1, 2, 3, 7))
    for i, home in homes.items():
        found = [r for r in whole if f"'id': {i}," in r]
        last = next(r["p"] for r in reversed(rows) if r["id"] == i)
        first = next(r["p"] for r in rows if r["id"] == i)
        moved = home is not None and home[1] != last
        if engine == "deduplicate":
            assert {"'p': 'a'" in r for r in found if "'_VALUE_KIND': 0" in r} == {last == "a"}
            deletes = [r for r in found if "'_VALUE_KIND': 3" in r]
            assert len(deletes) == moved and all(f"'{NEW_BUCKET}': {home and home[0]}" in r for r in deletes)
        elif found:
            assert {"'p': 'a'" in r for r in found} == {(home[1] if home else first) == "a"}


def test_the_second_of_two_first_writes_is_refused(tmp_path: Path) -> None:
    """It looked for its keys in no partition, and the first may have put them into any."""
    table = made(tmp_path)
    state = table._core.state()
    jobs = [
        write_changes(state, prepare_rows("t", state.schema, [arrow([(1, "x", p, 0, 0)])]), "me") for p in ("a", "b")
    ]
    assert publish(table._core, state, jobs[0], operation="WRITE") is not None
    with pytest.raises(CommitConflict):
        publish(table._core, state, jobs[1], operation="WRITE")
    assert read(table) == [(1, "x", "a", 0, 0)]
