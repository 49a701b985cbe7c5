"""Deletion vectors are switched on and off with data there: readers see the same rows, and other writers lose none."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from caches import forget
from faults import Between
from long import exhaustive
from store_wrappers import CountingStore, FaultyStore

import bitlake
from bitlake.errors import CommitConflict, InvalidRequest, StorageUnavailable
from bitlake.file_store_table import FileStoreTable
from bitlake.io.local import LocalStore
from bitlake.mergetree import deletion_vector_mode, dml
from bitlake.mergetree.rescale import rescale, rescale_partitions
from bitlake.mergetree.writer import prepare_rows, write_changes
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.scan.scan import TableScan
from bitlake.snapshot.index_files import IndexChange, write_vectors
from bitlake.snapshot.manifests import index_entries
from bitlake.snapshot.state import load_state
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.time_travel import When
from bitlake.snapshot.vector_mode import is_settled, schema_before_switch
from bitlake.table.table import Table
from bitlake.tableindex.deletion_vectors import DeletionVector
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan, Overwrite
from bitlake.write.writer import write_rows

SCHEMA = pa.schema([pa.field("k", pa.int32(), nullable=False), pa.field("v", pa.int64())])
ENABLED = "deletion-vectors.enabled"


def make(root: Path, **options: str) -> Table:
    named = {
        "primary-key": "k",
        "bucket": "2",
        **{k.replace("__", ".").replace("_", "-"): v for k, v in options.items()},
    }
    return bitlake.connect(root).create_table("t", SCHEMA, options={k: v for k, v in named.items() if v})


def batch(rows: dict[int, int | None]) -> pa.Table:
    return pa.table({"k": list(rows), "v": list(rows.values())}, schema=SCHEMA)


def rows_of(table: Table) -> dict[int, int]:
    got = table.scan().to_arrow().to_pydict()
    assert len(set(got["k"])) == len(got["k"]), "a key twice"
    return dict(zip(got["k"], got["v"], strict=True))


def some_rounds(table: Table, model: dict[int, int], rounds: range) -> None:
    for r in rounds:
        new = {(r * 37 + i * 7) % 200: r * 1000 + i for i in range(60)}
        table.upsert(batch(dict(new)))
        model |= new
        gone = sorted(model)[r % 5 :: 11]
        table.upsert(batch(dict.fromkeys(gone)), kinds=pa.array([3] * len(gone), pa.int8()))
        for k in gone:
            del model[k]


class Meddling(LocalStore):
    """Runs something else right before (or after) a file whose path holds ``where`` is created for the first time."""

    def __init__(self, where: str, other: Callable[[], Any], after: bool = False) -> None:
        super().__init__()
        self.where, self.other, self.after, self.done = where, other, after, False

    def create(self, path: str, data: bytes) -> bool:
        mine = self.where in path and not self.done
        self.done |= mine
        if mine and not self.after:
            self.other()
        made = super().create(path, data)
        if mine and self.after:
            self.other()
        return made


def through(table: Table, store: LocalStore) -> Table:
    return Table(FileStoreTable(table.name, table.path, store))


def test_rows_of_level_0_are_settled_only_for_readers_with_vectors(tmp_path: Path) -> None:
    table = make(tmp_path, deletion_vectors__enabled="true", write_only="true")
    table.append(batch({1: 1}))
    state = table._core.state()
    assert is_settled(state, level_0=True) and not is_settled(state)


@pytest.mark.parametrize(
    "options", [{}, exhaustive({"bucket": "-1"}), {"write_only": "true"}, exhaustive({"changelog_producer": "lookup"})]
)
def test_on_and_off_again_with_data(tmp_path: Path, options: dict[str, str]) -> None:
    table = make(tmp_path, **options)
    model: dict[int, int] = {}
    some_rounds(table, model, range(3))
    assert rows_of(table) == model
    assert table.maintenance.enable_deletion_vectors().options[ENABLED] == "true"
    assert rows_of(table) == model
    assert is_settled(table._core.state())
    assert table.snapshot is not None
    assert table.snapshot.schema_id == table.schema.id
    some_rounds(table, model, range(3, 6))
    table.maintenance.compact()
    assert rows_of(table) == model
    before = table.schema.id
    assert table.maintenance.enable_deletion_vectors().id == before, "it is on already"
    assert table.maintenance.disable_deletion_vectors().options[ENABLED] == "false"
    assert rows_of(table) == model
    some_rounds(table, model, range(6, 9))
    assert rows_of(table) == model


def test_a_table_without_data(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.maintenance.enable_deletion_vectors()
    assert table.snapshot is None
    table.maintenance.disable_deletion_vectors()
    table.alter_options({ENABLED: "true"})
    assert table.schema.opts[ENABLED] == "true"


def test_an_alter_names_the_call(tmp_path: Path) -> None:
    table = make(tmp_path, deletion_vectors__modifiable="true")
    table.upsert(batch({1: 1}))
    with pytest.raises(InvalidRequest, match=r"enable_deletion_vectors\(table\)"):
        table.alter_options({ENABLED: "true"})
    table.maintenance.enable_deletion_vectors()
    with pytest.raises(InvalidRequest, match=r"disable_deletion_vectors\(table\)"):
        table.alter_options({ENABLED: "false"})
    with pytest.raises(InvalidRequest, match=r"disable_deletion_vectors\(table\)"):
        table.alter_options(unset=[ENABLED])


SUMS = {"merge_engine": "aggregation", "fields__v__aggregate_function": "sum"}


@pytest.mark.parametrize(
    ("options", "before", "after"),
    [
        (SUMS, "none", "lookup"),
        (SUMS, "full-compaction", "lookup"),
        (SUMS, "lookup", "none"),
        ({"merge_engine": "partial-update"}, "input", "lookup"),
        ({"sequence__field": "v"}, "none", "lookup"),
    ],
)
def test_a_changelog_that_makes_readers_merge_levels_in_another_way(
    tmp_path: Path, options: dict[str, str], before: str, after: str
) -> None:
    """Paimon takes the option, and reads 9, 109 or NULL from then on."""
    trigger = {"num_sorted_run__compaction_trigger": "3"}
    table = make(tmp_path, bucket="1", changelog_producer=before, **options, **trigger)
    assert table.alter_options({"changelog-producer": after, "comment": "empty"}), "a table without rows takes it"
    table.alter_options({"changelog-producer": before})
    table.upsert(batch(dict.fromkeys(range(2000), 50)))
    table.maintenance.compact(full=True)
    table.alter_options({"changelog-producer": after})
    table.alter_options({"changelog-producer": before})
    for value in (2, None, 4, 3):
        table.upsert(batch({1: value}))
    table.maintenance.compact()
    rows, levels = rows_of(table), {e.file.level for e in table._core.state().entries()}
    assert levels == {2, 3}
    with pytest.raises(InvalidRequest, match="'changelog-producer' cannot change .* several levels.*compact"):
        table.alter_options({"changelog-producer": after})
    table.maintenance.compact(full=True)
    table.alter_options({"changelog-producer": after})
    assert rows_of(table) == rows


@pytest.mark.parametrize(("before", "after"), [("none", "lookup"), ("lookup", "none")])
@pytest.mark.parametrize("options", [SUMS, {}])
def test_a_session_and_a_call_do_not_change_how_levels_are_merged(
    tmp_path: Path, options: dict[str, str], before: str, after: str
) -> None:
    table = make(tmp_path, bucket="1", changelog_producer=before, **options)
    table.upsert(batch({1: 1}))
    lake = bitlake.connect(tmp_path)
    session = {"changelog-producer": after}
    call = f"CALL sys.compact(table => 't', options => 'changelog-producer={after}')"
    if options:
        with pytest.raises(InvalidRequest, match="'changelog-producer' may change only by ALTER TABLE"):
            table._core.state().with_options(session)
        with pytest.raises(InvalidRequest, match="'changelog-producer' may change only by ALTER TABLE"):
            lake.sql(call, engine="duckdb")
    else:
        assert table._core.state().with_options(session).schema.options["changelog-producer"] == after
        lake.sql(call, engine="duckdb")
    assert rows_of(table) == {1: 1}


@pytest.mark.parametrize(("before", "after"), [("none", "lookup"), ("lookup", "none")])
def test_rows_that_replace_each_other_take_any_changelog(tmp_path: Path, before: str, after: str) -> None:
    trigger = {"num_sorted_run__compaction_trigger": "3"}
    table = make(tmp_path, bucket="1", changelog_producer=before, **trigger)
    table.upsert(batch(dict.fromkeys(range(2000), 50)))
    table.maintenance.compact(full=True)
    for value in (2, 4):
        table.upsert(batch({1: value}))
    table.maintenance.compact()
    assert {e.file.level for e in table._core.state().entries()} == {2, 3}
    table.alter_options({"changelog-producer": after})
    assert rows_of(table)[1] == 4


@pytest.mark.parametrize("options", [{"merge_engine": "first-row"}, {"changelog_producer": "full-compaction"}])
def test_tables_that_take_no_vectors(tmp_path: Path, options: dict[str, str]) -> None:
    table = make(tmp_path, **options)
    table.upsert(batch({1: 1}))
    with pytest.raises(InvalidRequest, match="does not go with"):
        table.maintenance.enable_deletion_vectors()
    assert ENABLED not in table.schema.options


@pytest.mark.parametrize("after", [exhaustive(False), True])
@pytest.mark.parametrize("on", [True, False])
def test_another_writer_commits_around_the_switch(tmp_path: Path, on: bool, after: bool) -> None:
    table = make(tmp_path, **({} if on else {"deletion_vectors__enabled": "true"}))
    model: dict[int, int] = {}
    some_rounds(table, model, range(2))
    start = table.schema.id
    store = Meddling(f"schema/schema-{start + 1}", lambda: some_rounds(table, model, range(2, 4)), after)
    switching = through(table, store)
    schema = switching.maintenance.enable_deletion_vectors() if on else switching.maintenance.disable_deletion_vectors()
    assert store.done
    assert not after or schema.id == start + 1, "who wrote after the switch wrote in the new mode: it stands"
    assert schema.options[ENABLED] == str(on).lower() == table.schema.options[ENABLED]
    assert rows_of(table) == model
    some_rounds(table, model, range(4, 6))
    assert rows_of(table) == model


def with_a_large_level(tmp_path: Path, on: bool) -> tuple[Table, dict[int, int]]:
    """A table that is to be switched ``on`` or off; what comes after is compacted above its large level."""
    options = {} if on else {"deletion_vectors__enabled": "true"}
    table = make(tmp_path, write_only="true", num_sorted_run__compaction_trigger="2", **options)
    model = {k: k * 7919 % 10_007 for k in range(20_000)}
    table.upsert(batch(dict(model)))
    table.maintenance.compact(full=True)
    return table, model


def compact_in_old_mode(table: Table, model: dict[int, int], old: TableSchema, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish a compaction right after the switch, by a writer that passed every check right before it."""
    some_rounds(table, model, range(2, 4))
    state = dataclasses.replace(table._core.state(), schema=old)
    with monkeypatch.context() as patched:
        patched.setattr("bitlake.write.commit.latest_schema_id", lambda table: old.id)
        assert dml.compact(table._core, state, state.entries(), False) is not None


@pytest.mark.parametrize("then_writes", [exhaustive(False), True])
@pytest.mark.parametrize("on", [True, False])
def test_a_compaction_of_the_old_mode_that_looked_at_the_schema_before(
    tmp_path: Path, on: bool, then_writes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It publishes right after the switch, having passed every check right before; another commit may follow."""
    table, model = with_a_large_level(tmp_path, on)
    old = table.schema
    in_new_mode: list[list[tuple[int, int]]] = []

    def late() -> None:
        compact_in_old_mode(table, model, old, monkeypatch)
        state = table._core.state()
        got = TableScan(state, state.store, state.schema.field_names).to_arrow().to_pydict()
        in_new_mode.append(sorted(zip(got["k"], got["v"], strict=True)))
        assert rows_of(table) == model, "readers see the snapshot in the old mode"
        if then_writes:
            some_rounds(table, model, range(4, 5))
            table.maintenance.compact()
            assert rows_of(table) == model, "the writer noticed the switch"

    store = Meddling(f"schema/schema-{old.id + 1}", late, after=True)
    switching = through(table, store)
    schema = switching.maintenance.enable_deletion_vectors() if on else switching.maintenance.disable_deletion_vectors()
    assert in_new_mode, "the other writer did not come in between"
    assert in_new_mode != [sorted(model.items())], "the compaction did no harm: the test has lost its point"
    assert schema.id == old.id + 3, "switched, back, and again"
    assert table.schema.options[ENABLED] == str(on).lower()
    assert rows_of(table) == model
    assert table.maintenance.verify().ok


@pytest.mark.parametrize("then_on", [True, exhaustive(False)])
@pytest.mark.parametrize("on", [True, False])
def test_a_switch_that_died_after_a_compaction_of_the_old_mode(
    tmp_path: Path, on: bool, then_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the next switch took its vectors for those of an earlier time, or found nothing to do."""
    table, model = with_a_large_level(tmp_path, on)
    old = table.schema

    def late() -> None:
        compact_in_old_mode(table, model, old, monkeypatch)
        raise StorageUnavailable("the process died")

    switching = through(table, Meddling(f"schema/schema-{old.id + 1}", late, after=True))
    with pytest.raises(StorageUnavailable):
        switching.maintenance.enable_deletion_vectors() if on else switching.maintenance.disable_deletion_vectors()
    schema = table.maintenance.enable_deletion_vectors() if then_on else table.maintenance.disable_deletion_vectors()
    assert schema.options[ENABLED] == str(then_on).lower()
    table.maintenance.compact()
    assert rows_of(table) == model and table.maintenance.verify().ok


def test_vectors_that_another_engine_left_behind_are_not_applied_again(tmp_path: Path) -> None:
    """Paimon switches vectors off without compacting if told so, and leaves them in the index manifest."""
    table = make(tmp_path, bucket="1")
    table.upsert(batch({1: 1, 2: 2, 3: 3}))
    table.maintenance.compact(full=True)
    state = table._core.state()
    (entry,) = state.entries()
    place = (entry.partition, entry.bucket)
    vector = DeletionVector.of(pa.array([0]).to_numpy())
    new = write_vectors(state.table_files, state.schema, *place, {entry.file.file_name: vector})
    plan = CommitPlan("COMPACT", index=(IndexChange(*place, "DELETION_VECTORS", (), (new,)),))
    assert commit(table._core.store, state.paths, plan, state.schema, "other") is not None
    assert rows_of(table) == {1: 1, 2: 2, 3: 3}
    table.maintenance.enable_deletion_vectors()
    assert rows_of(table) == {1: 1, 2: 2, 3: 3}
    state = table._core.state()
    assert not any(e.ranges for e in index_entries(state.table_files, state.snapshot))


def test_a_writer_goes_on_while_the_mode_changes(tmp_path: Path) -> None:
    table = make(tmp_path, num_sorted_run__compaction_trigger="3")
    model: dict[int, int] = {}
    some_rounds(table, model, range(2))
    stop = threading.Event()
    failed: list[Exception] = []

    def write() -> None:
        number = 10
        while not stop.is_set():
            try:
                some_rounds(through(table, LocalStore()), model, range(number, number + 1))
            except Exception as e:  # noqa: BLE001 - whatever it is, the test must tell of it
                failed.append(e)
                return
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for on in (True, False, True):
            for _ in range(20):
                try:
                    table.maintenance.enable_deletion_vectors() if on else table.maintenance.disable_deletion_vectors()
                    break
                except CommitConflict:
                    continue
            assert table.schema.options[ENABLED] == str(on).lower()
    finally:
        stop.set()
        writer.join()
    assert not failed
    table.maintenance.compact(full=True)
    assert rows_of(table) == model


@pytest.mark.exhaustive
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("on", [True, False])
def test_a_switch_that_dies_at_any_step(tmp_path: Path, on: bool, after: bool) -> None:
    number = switched = 0
    while True:
        options = {} if on else {"deletion_vectors__enabled": "true"}
        table = make(tmp_path / str(number), bucket="1", write_only="true", commit__max_retries="0", **options)
        model: dict[int, int] = {}
        some_rounds(table, model, range(1))
        forget()
        store = FaultyStore(LocalStore(), number, after=after, dead=True)
        try:
            dying = through(table, store)
            dying.maintenance.enable_deletion_vectors() if on else dying.maintenance.disable_deletion_vectors()
        except StorageUnavailable:
            pass
        forget()
        table.maintenance.compact()  # level 0 shows with vectors only then; without, it changes nothing
        assert rows_of(table) == model, f"died at call {number}"
        switched += table.schema.options[ENABLED] == str(on).lower() if ENABLED in table.schema.options else 0
        table.maintenance.enable_deletion_vectors() if on else table.maintenance.disable_deletion_vectors()
        assert rows_of(table) == model
        if not store.failed:
            break
        number += 3  # every third call is plenty: the steps are tested one by one in test_commit.py
    assert number >= 27  # at least ten deaths: a switch that makes no store calls would pass all else
    assert 1 < switched < number / 3


# --- append tables ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"bucket": "-1"}, {"bucket": "2", "bucket_key": "k"}])
def test_append_tables(tmp_path: Path, options: dict[str, str]) -> None:
    table = make(tmp_path, **{"primary-key": ""}, **options)
    model: dict[int, int] = {k: k for k in range(50)}
    table.append(batch(dict(model)))
    table.maintenance.enable_deletion_vectors()
    assert rows_of(table) == model
    table.delete("k IN (1, 6, 11, 16)")
    model = {k: v for k, v in model.items() if k not in (1, 6, 11, 16)}
    assert rows_of(table) == model
    assert not is_settled(table._core.state())
    table.maintenance.disable_deletion_vectors()
    assert rows_of(table) == model
    table.delete("k > 40")
    assert rows_of(table) == {k: v for k, v in model.items() if k <= 40}


@pytest.mark.exhaustive
@pytest.mark.parametrize("on", [True, False])
def test_a_compaction_that_began_before_the_switch(tmp_path: Path, on: bool) -> None:
    """Buckets that the switch had not changed kept their compactions of the old mode, and keys had two rows."""
    for number in range(0, 400, 5):
        options = {"changelog_producer": "lookup", ENABLED: str(not on).lower()}
        table = make(tmp_path / str(number), **options)
        model = {k: k for k in range(30)}
        table.upsert(batch(model))
        table.maintenance.compact(full=True)
        table.upsert(batch({0: -1}))  # so that a bucket has two levels
        late = {k: -k for k in range(10, 20)}
        switch = table.maintenance.enable_deletion_vectors if on else table.maintenance.disable_deletion_vectors
        store = Between(LocalStore(), number, switch)
        Table(FileStoreTable(table.name, table.path, store)).upsert(batch(late))
        if not store.done:
            break
        table.maintenance.compact()
        rows = table.scan().to_arrow()
        assert rows.num_rows == 30, f"call {number}"
        assert dict(zip(*rows.to_pydict().values(), strict=True)) == {**model, 0: -1, **late}, f"call {number}"
        assert table.maintenance.verify().ok
    assert number > 30


# --- numbers of buckets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["k,p", ""])
@pytest.mark.parametrize("overwrites", [exhaustive(True), False])
def test_a_write_to_one_partition_beside_a_rescale(tmp_path: Path, key: str, overwrites: bool) -> None:
    """Its files had the old number of buckets, and later writes to the partition were refused."""
    schema = SCHEMA.append(pa.field("p", pa.int32()))
    rows, more = (pa.table([[1, 2, 3], [1, 2, 3], [p] * 3], schema=schema) for p in (0, 1))
    for number in range(0, 200, 4):
        lake = bitlake.connect(tmp_path / str(number))
        options = {"bucket": "2", "bucket-key": "k", **({"primary-key": key} if key else {})}
        table = lake.create_table("t", schema, partition_by=["p"], options=options)
        table.append(rows)
        store = Between(LocalStore(), number, lambda table=table: table.maintenance.rescale(3))
        write = Table(FileStoreTable(table.name, table.path, store))
        with contextlib.suppress(CommitConflict):
            write.overwrite(more, {"p": 1}) if overwrites else write.append(more)
        if not store.done:
            break
        assert {e.total_buckets for e in table._core.state().entries()} == {3}, f"call {number}"
        table.overwrite(more, {"p": 1})
        table.append(more.slice(0, 1))
        assert table.count() == (6 if key else 7)
    assert number > 8


@pytest.mark.parametrize(
    "options",
    [{}, {"deletion_vectors__enabled": "true"}, {"primary-key": "", "bucket_key": "k"}, {"partition": "p"}],
    ids=["merge-on-read", "vectors", "append", "partitioned"],
)
def test_buckets_are_rescaled_by_an_overwrite(tmp_path: Path, options: dict[str, str]) -> None:
    if "partition" in options:
        options = {**options, "primary-key": "k,p"}
        schema = SCHEMA.append(pa.field("p", pa.int32()))
        given = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
        table = bitlake.connect(tmp_path).create_table("t", schema, options={"bucket": "2", **given})
        rows = pa.table({"k": range(100), "v": range(100), "p": [i % 3 for i in range(100)]}, schema=schema)
    else:
        table = make(tmp_path, **options)
        rows = batch({k: k for k in range(100)})
    table.append(rows)
    before = table.scan().to_arrow().sort_by("k")
    table.alter_options({"bucket": "5"})
    assert table.scan().to_arrow().sort_by("k").equals(before)
    with pytest.raises((InvalidRequest, CommitConflict), match="OVERWRITE"):
        table.append(rows.slice(0, 50))
    assert table.scan(where="k = 7").to_arrow().num_rows == 1
    table.overwrite(table.scan().to_arrow())
    assert table.scan().to_arrow().sort_by("k").equals(before)
    assert {e.total_buckets for e in table._core.state().entries()} == {5}
    assert len({e.bucket for e in table._core.state().entries()}) == 5
    if table.schema.primary_keys:
        table.append(rows.slice(0, 50))
        assert table.scan().to_arrow().sort_by("k").equals(before)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"deletion_vectors__enabled": "true"},
        {"deletion_vectors__enabled": "true", "write_only": "true"},
        {"merge_engine": "first-row", "write_only": "true"},
        {"primary-key": "", "bucket_key": "k"},
    ],
    ids=["merge-on-read", "vectors", "not-compacted", "first-row-not-compacted", "append"],
)
def test_rescaling_by_one_call(tmp_path: Path, options: dict[str, str]) -> None:
    """A writer that had looked at the schema before the number changed comes in between: its rows are there, too."""
    table = make(tmp_path, **options)
    model = {k: k for k in range(200)}
    table.append(batch(dict(model)))
    old = table._core.state()
    late: list[object] = []

    def write_late() -> None:
        rows = {k: -k for k in range(1000, 1010)}
        model.update(rows)
        if old.schema.primary_keys:
            changes = write_changes(old, prepare_rows("t", old.schema, [batch(dict(rows))]), "late", compact=False)
            late.append(table._core.publisher(old).publish(old, changes, operation="WRITE"))
        else:
            late.append(
                table._core.commit_files(old, write_rows(old, iter([batch(dict(rows))]), table._core.store), "WRITE")
            )

    store = Meddling("snapshot/snapshot-", write_late)
    through(table, store).maintenance.rescale(5)
    assert late
    table.maintenance.compact()
    assert rows_of(table) == model
    assert {e.total_buckets for e in table._core.state().entries()} == {5}
    snapshot = table.snapshot
    table.maintenance.rescale(5)
    assert table.snapshot == snapshot, "nothing to do"
    table.append(batch({7777: 1}))
    with pytest.raises(InvalidRequest, match="0 buckets"):
        table.maintenance.rescale(0)


def test_a_table_is_rescaled_to_one_bucket_and_from_it(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.append(batch({k: k for k in range(20)}))
    for buckets in (1, 1, 3):
        table.maintenance.rescale(buckets)
        assert {(e.bucket, e.total_buckets) for e in table._core.state().entries()} == {
            (b, buckets) for b in range(buckets)
        }
        assert rows_of(table) == {k: k for k in range(20)}
    for buckets in (0, -1):
        with pytest.raises(InvalidRequest, match=f"cannot have {buckets} buckets"):
            table.maintenance.rescale(buckets)


def test_a_rescaling_that_others_always_overtake_gives_up(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.append(batch({1: 1}))
    tries = []

    def overtaken(*_: Any) -> None:
        tries.append(1)
        raise CommitConflict("another writer committed first")

    with pytest.raises(CommitConflict, match="other writers committed first 10 times while it was rescaled"):
        rescale(table._core, 2 * table.schema.num_buckets, overtaken)
    assert len(tries) == 9, "the first try set the option"


def test_tables_without_fixed_buckets_are_not_rescaled(tmp_path: Path) -> None:
    table = make(tmp_path, bucket="-1")
    with pytest.raises(InvalidRequest, match="no fixed number of buckets"):
        table.maintenance.rescale(3)


def test_dynamic_buckets_stay_dynamic(tmp_path: Path) -> None:
    table = make(tmp_path, bucket="-1")
    table.alter_options({"bucket": "3"})
    table.alter_options({"bucket": "-1"})
    table.upsert(batch({1: 1}))
    with pytest.raises(InvalidRequest, match="not from or to -1"):
        table.alter_options({"bucket": "3"})


def test_postponed_rows_are_not_left_behind(tmp_path: Path) -> None:
    table = make(tmp_path, bucket="-2", postpone__batch_write_fixed_bucket="false")
    table.upsert(batch({1: 1, 2: 2}))
    with pytest.raises(InvalidRequest, match="2 rows are in the postpone bucket; compact the table"):
        table.alter_options({"bucket": "3"})
    table.alter_options({"write-only": "true"})


def test_full_compactions_at_every_write_if_asked_for(tmp_path: Path) -> None:
    """`full-compaction.delta-commits`: Paimon's batch writers compact fully at each write, whatever the number is."""
    table = make(tmp_path, full_compaction__delta_commits="3", changelog_producer="full-compaction", bucket="1")
    model: dict[int, int] = {}
    some_rounds(table, model, range(2))
    assert {e.file.level for e in table._core.state().entries()} == {5}
    assert rows_of(table) == model
    assert table.snapshot is not None
    assert table.snapshot.changelog_record_count


def test_time_travel_over_a_switch_and_to_an_append_snapshot(tmp_path: Path) -> None:
    """``docs/time-travel.md``: a snapshot is read in the mode of its own schema, with vectors without level 0."""

    def history(table: Table) -> list[tuple[str, dict[int, int]]]:
        assert table.snapshot is not None
        scans = [table._core.scan(When(snapshot=n)) for n in range(1, table.snapshot.id + 1)]
        kinds = [s.state.snapshot.commit_kind for s in scans if s.state.snapshot is not None]
        read = [{r["k"]: r["v"] for r in s.to_arrow().to_pylist()} for s in scans]
        return list(zip(kinds, read, strict=True))

    table = make(tmp_path, bucket="1")
    table.upsert(batch({1: 1, 2: 1}))
    table.upsert(batch({1: 2}))
    table.maintenance.enable_deletion_vectors()
    switched = [
        ("APPEND", {1: 1, 2: 1}),
        ("APPEND", {1: 2, 2: 1}),
        ("COMPACT", {1: 2, 2: 1}),
        ("COMPACT", {1: 2, 2: 1}),
    ]
    assert history(table) == switched
    table.upsert(batch({2: 3}))
    written = [*switched, ("APPEND", {1: 2, 2: 1}), ("COMPACT", {1: 2, 2: 3})]
    assert history(table) == written
    assert table.changes(4, 5, kinds=False).to_arrow().to_pylist() == [{"k": 2, "v": 3}]
    assert table.changes(5, 6, kinds=False).to_arrow().num_rows == 0
    table.maintenance.disable_deletion_vectors()
    table.upsert(batch({1: 9}))
    last = history(table)
    assert last[: len(written)] == written and last[-1] == ("APPEND", {1: 9, 2: 3})


@pytest.mark.parametrize("removed", [False, True])
def test_another_engine_switches_off_what_deletes_rows(tmp_path: Path, removed: bool) -> None:
    """Deleted rows stay deleted: reads use the mode of the snapshot, and the next commit undoes the switch."""
    lake = bitlake.connect(str(tmp_path))
    rows = pa.table({"k": pa.array(range(10), pa.int64())})
    table = lake.create_table("t", rows.schema, options={"deletion-vectors.enabled": "true"})
    table.append(rows)
    table.delete("k < 4")
    folder = Path(table.path, "schema")
    schema = json.loads((folder / "schema-0").read_text())
    schema["id"] = 1
    if removed:
        del schema["options"]["deletion-vectors.enabled"]
    else:
        schema["options"]["deletion-vectors.enabled"] = "false"
    (folder / "schema-1").write_text(json.dumps(schema))
    table = bitlake.connect(str(tmp_path)).table("t")
    assert table.scan().count() == 6
    table.append(rows.slice(0, 1))
    assert sorted(table.to_arrow().column("k").to_pylist()) == [0, 4, 5, 6, 7, 8, 9]


def test_a_switch_off_that_died_shows_rows_of_level_0(tmp_path: Path) -> None:
    """No vector deletes a row, so the snapshot is read in the new mode, which shows rows that wait for a compaction."""
    table = make(tmp_path, bucket="1", write_only="true", deletion_vectors__enabled="true")
    table.upsert(batch({1: 1, 2: 2}))
    assert rows_of(table) == {}
    schema = json.loads(Path(table.path, "schema", "schema-0").read_text())
    schema |= {"id": 1, "options": schema["options"] | {"deletion-vectors.enabled": "false"}}
    Path(table.path, "schema", "schema-1").write_text(json.dumps(schema))
    forget()
    assert rows_of(bitlake.connect(str(tmp_path)).table("t")) == {1: 1, 2: 2}


def test_partitions_are_rescaled_until_all_their_files_are(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("p", pa.int32(), nullable=False))
    options = {"primary-key": "k,p", "bucket": "2"}
    table = bitlake.connect(tmp_path).create_table("t", schema, partition_by=["p"], options=options)
    table.append(pa.table({"k": range(60), "v": range(60), "p": [i % 3 for i in range(60)]}, schema=schema))
    before = table.scan().to_arrow().sort_by("k")
    overwrites: list[Overwrite] = []

    def rewrite(state: Any, overwrite: Overwrite) -> None:
        overwrites.append(overwrite)
        if len(overwrites) == 1:
            return  # as if another writer had come first
        publisher = table._core.publisher(state)
        rows = prepare_rows("t", state.schema, [table.scan(where="p = 1").to_arrow()])
        changes = write_changes(state, rows, publisher.user, fresh=True)
        publisher.publish(state, changes, operation="OVERWRITE", overwrite=overwrite)

    rescale_partitions(table._core, 5, "p = 1", rewrite)
    assert [(o.dynamic, o.computed_on) for o in overwrites] == [(True, 1)] * 2
    assert table.scan().to_arrow().sort_by("k").equals(before) and table.schema.num_buckets == 2
    totals = {(e.partition, e.total_buckets) for e in table._core.state().entries()}
    assert sorted(n for _, n in totals) == [2, 2, 5]
    rescale_partitions(table._core, 5, "p = 1", rewrite)
    assert len(overwrites) == 2, "nothing is left to do"


@pytest.mark.parametrize("on", [True, False])
def test_a_table_that_never_settles_is_given_up(tmp_path: Path, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tries to switch vectors on wait for an empty level 0."""
    table = make(tmp_path, deletion_vectors__enabled=str(not on).lower())
    table.upsert(batch({1: 1}))
    ignored: list[bool] = []

    def never(state: Any, *, level_0: bool = False) -> bool:
        ignored.append(level_0)
        return False

    monkeypatch.setattr(deletion_vector_mode, "is_settled", never)
    monkeypatch.setattr(deletion_vector_mode, "_settle", lambda *_: None)
    with pytest.raises(CommitConflict, match=f"switched {'on' if on else 'off'}; try again"):
        deletion_vector_mode.switch_deletion_vectors(table._core, on)
    assert ignored == [not on] * 5 + [True] * 15
    assert table.schema.options[ENABLED] == str(not on).lower()


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("key", ["k", ""])
def test_a_rollback_over_a_switch_is_refused_unless_the_rows_are_the_same(tmp_path: Path, on: bool, key: str) -> None:
    table = make(tmp_path, primary_key=key, bucket="2" if key else "", deletion_vectors__enabled=str(on).lower())
    table.append(batch({1: 1, 2: 2, 3: 3}))
    table.delete("k = 2")
    table.append(batch({4: 4}))
    before = table.snapshot
    assert before is not None
    table.history.create_tag("before")
    switch, back = table.maintenance.disable_deletion_vectors, table.maintenance.enable_deletion_vectors
    switch, back = (switch, back) if on else (back, switch)
    switch()
    after = table.snapshot
    assert after is not None
    table.append(batch({5: 5}))
    if key or on:
        call = "enable" if on else "disable"
        with pytest.raises(InvalidRequest, match=rf"go back to snapshot {before.id}: .*{call}_deletion_vectors"):
            table.history.rollback(before.id)
        with pytest.raises(InvalidRequest, match=f"go back to snapshot {before.id}"):
            table.history.rollback(tag="before")
        assert rows_of(table) == {1: 1, 3: 3, 4: 4, 5: 5}
        # The compaction before the switch left the same rows in both modes.
        table.history.rollback(after.id - 1)
        assert rows_of(table) == {1: 1, 3: 3, 4: 4}
        back()
    table.history.rollback(tag="before")
    assert rows_of(table) == {1: 1, 3: 3, 4: 4}
    table.append(batch({3: 33} if key else {6: 6}))
    assert rows_of(table) == ({1: 1, 3: 33, 4: 4} if key else {1: 1, 3: 3, 4: 4, 6: 6})


def test_the_schema_of_a_snapshot_is_loaded_once(tmp_path: Path) -> None:
    """Bug: until the next commit, each read after ALTER TABLE loaded it again. A replaced table has its own schema."""
    for value in ("true", "false"):
        table = make(tmp_path, **{ENABLED: value})
        table.upsert(batch({1: 1}))
        table.alter_options({"snapshot.num-retained.max": "70"})
        store = CountingStore(LocalStore())
        state = load_state("t", TableFiles(store, TablePaths(table.path)))
        assert state is not None
        switched = dataclasses.replace(
            state, schema=state.schema.with_options({ENABLED: "false" if value == "true" else "true"})
        )
        for _ in range(3):
            old = schema_before_switch(switched)
            assert old is not None and old.options[ENABLED] == value
        assert [p for p in store.paths if p[1].endswith("/schema-0")] == [("read", f"{table.path}/schema/schema-0")]
        bitlake.connect(tmp_path).drop_table("t")
