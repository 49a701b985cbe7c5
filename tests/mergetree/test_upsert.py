"""Primary-key tables written in this process: after every step they read as a dictionary that saw the same changes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import exhaustive, long

import bitlake
from bitlake.codec.binary_row import decode_row
from bitlake.errors import CommitConflict, InvalidRequest
from bitlake.file_store_table import FileStoreTable
from bitlake.formats.file_format import reader_for
from bitlake.merge.interval_partition import check_level_overlap
from bitlake.mergetree import dml
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.snapshot.manifests import index_entries, read_manifest, read_manifest_list
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.state import state_at
from bitlake.snapshot.versions import load_snapshot
from bitlake.table.table import Table

COLUMNS = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("n", pa.int64()),
    ]
)
KINDS = ("+I", "-U", "+U", "-D")
Model = dict[tuple[str, int], dict[str, Any]]


def made(root: Path, **options: str) -> Table:
    given = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    partitions = ["day"] if given.pop("partitioned", "") else []
    chosen = {"bucket": "2", "primary-key": "day,id", **given}
    return bitlake.connect(str(root)).create_table("t", COLUMNS, partition_by=partitions, options=chosen)


WAITING = {"postpone__batch_write_fixed_bucket": "false"}
"""Rows of ``bucket`` = -2 wait for a compaction to give them buckets."""


def rows_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=COLUMNS)


def read(table: Table, snapshot: int | None = None) -> Model:
    scan = table.scan() if snapshot is None else table._core.scan_of(state_at(table._core.state(), snapshot))
    found = scan.to_arrow().to_pylist()
    out = {(r["day"], r["id"]): r for r in found}
    assert len(out) == len(found), "a key is there twice"
    return out


def check(table: Table) -> None:
    """What must hold of the files of any snapshot."""
    state = table._core.state()
    entries = state.entries()
    check_level_overlap(state.schema, "t", [], entries)
    live = {e.file.file_name: e.file.row_count for e in entries}
    seen = set()
    for index in index_entries(state.table_files, state.snapshot):
        slot = (index.partition, index.bucket, index.index_type)
        assert slot not in seen
        seen.add(slot)
        for place in index.ranges or ():
            assert place.data_file in live and 0 < (place.cardinality or 0) <= live[place.data_file]
    folders = PartitionReader(state.schema, state.paths)
    for e in entries:
        assert Path(folders.data_path(e)).stat().st_size == e.file.file_size


OPTIONS: list[dict[str, str]] = [
    {},
    {"deletion_vectors__enabled": "true"},
    {"deletion_vectors__enabled": "true", "deletion_vectors__bitmap64": "true", "partitioned": "yes"},
    {"deletion_vectors__enabled": "true", "bucket": "-1", "dynamic_bucket__target_row_num": "20", "partitioned": "yes"},
    {"bucket": "-1", "dynamic_bucket__target_row_num": "15"},
    {"num_sorted_run__compaction_trigger": "2", "target_file_row_num": "7", "data_file__thin_mode": "true"},
    {"deletion_vectors__enabled": "true", "num_levels": "2", "write_buffer_size": "600 b"},
    {"write_buffer_size": "600 b", "file__format": "orc", "compaction__force_up_level_0": "true"},
    {"file__format": "avro", "deletion_vectors__enabled": "true", "bucket": "1"},
    {"changelog_producer": "input", "deletion_vectors__enabled": "true", "file__format__per__level": "0:avro"},
    {"changelog_producer": "lookup"},
    {"changelog_producer": "lookup", "deletion_vectors__enabled": "true", "file_index__bitmap__columns": "name"},
    {"sequence__field": "n", "deletion_vectors__enabled": "true"},
    {"sequence__field": "n", "num_sorted_run__compaction_trigger": "3"},
    {"deletion_vectors__enabled": "true", "deletion_vectors__merge_on_read": "true", "lookup_compact": "gentle"},
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(len(OPTIONS)))
@pytest.mark.parametrize("steps", [7, long(14)])
def test_a_table_is_what_a_dictionary_would_be(number: int, steps: int, tmp_path: Path) -> None:
    options, chance = OPTIONS[number % len(OPTIONS)], random.Random(number)
    table, model, past = made(tmp_path, **options), Model(), dict[int, Model]()
    ordered = "sequence__field" in options

    def put(row: dict[str, Any], kind: str) -> None:
        key = (row["day"], row["id"])
        if ordered and key in model and row["n"] < model[key]["n"]:
            return
        model.pop(key, None)
        if kind in ("+I", "+U"):
            model[key] = row

    for step in range(steps):
        what = chance.random()
        if what < 0.7:
            rows = []
            for _ in range(chance.randrange(1, 40)):
                n = 100 * step + chance.randrange(-150, 100) if ordered else chance.randrange(100)
                name = None if chance.random() < 0.1 else f"s{step}"
                rows.append({"day": chance.choice("ab"), "id": chance.randrange(60), "name": name, "n": n})
            kinds = [chance.choice(KINDS) for _ in rows]
            batches = rows_of(rows).to_batches(max_chunksize=9)
            if ordered:
                # A row older than a deleted one comes back once a compaction has dropped the delete: none here.
                kinds = ["+I" for _ in rows]
            table.upsert(pa.Table.from_batches(batches), kinds)
            for row, kind in zip(rows, kinds, strict=True):
                put(row, kind)
        elif what < 0.8:
            low = chance.randrange(60)
            gone = [k for k in model if low <= k[1] < low + 9]
            assert table.delete(f"id >= {low} AND id < {low + 9}") == len(gone)
            for k in gone:
                del model[k]
        elif what < 0.9:
            touched = [k for k in model if k[0] == "a"]
            assert table.update({"name": f"u{step}"}, "day = 'a'") == len(touched)
            for k in touched:
                model[k] = {**model[k], "name": f"u{step}"}
        else:
            table.maintenance.compact(full=chance.random() < 0.5)
        table = Table(FileStoreTable("t", table.path, table._core.store)) if chance.random() < 0.3 else table
        assert read(table) == model, (step, what)
        check(table)
        snapshot = table.snapshot
        if snapshot is not None:
            past[snapshot.id] = dict(model)
    for snapshot_id, expected in past.items():
        assert read(table, snapshot_id) == expected
    table.maintenance.compact(full=True)
    assert read(table) == model
    check(table)
    top = {e.file.level for e in table._core.state().entries()}
    assert len(top) <= 1 and 0 not in top


def _first(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return old


def _filled(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {c: old[c] if v is None else v for c, v in new.items()}


def _summed(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {**_filled(old, new), "n": (old["n"] or 0) + new["n"] if new["n"] is not None else old["n"]}


@pytest.mark.parametrize("steps", [5, long(9)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        exhaustive({"deletion_vectors__enabled": "true"}),
        {"changelog_producer": "lookup", "num_sorted_run__compaction_trigger": "2"},
        exhaustive({"changelog_producer": "full-compaction", "write_buffer_size": "500 b"}),
    ],
)
@pytest.mark.parametrize(
    ("engine", "merge"), [("first-row", _first), ("partial-update", _filled), ("aggregation", _summed)]
)
def test_merge_engines_give_what_they_give_row_by_row(
    engine: str, merge: Any, options: dict[str, str], steps: int, tmp_path: Path
) -> None:
    if engine == "first-row" and options.keys() & {"deletion_vectors__enabled", "changelog_producer"}:
        options = {"num_levels": "3"} if "deletion_vectors__enabled" in options else {"target_file_row_num": "9"}
    chance, model = random.Random(len(engine)), Model()
    options = {**options, **({"fields__n__aggregate_function": "sum"} if engine == "aggregation" else {})}
    table = made(tmp_path, merge_engine=engine, **options)
    for step in range(steps):
        rows = [
            row(chance.randrange(40), chance.choice([None, f"s{step}"]), "a", chance.choice([None, 1, 2]))
            for _ in range(chance.randrange(1, 30))
        ]
        table.upsert(rows_of(rows))
        for r in rows:
            key = (r["day"], r["id"])
            model[key] = merge(model[key], r) if key in model else r
        if chance.random() < 0.25:
            table.maintenance.compact(full=chance.random() < 0.5)
        assert read(table) == model, step
        check(table)
    table.maintenance.compact(full=True)
    assert read(table) == model


# --- one thing at a time ----------------------------------------------------------------------------------------------


def row(number: int, name: str | None = "x", day: str = "a", n: int | None = 1) -> dict[str, Any]:
    return {"day": day, "id": number, "name": name, "n": n}


def test_append_and_compact_snapshots(tmp_path: Path) -> None:
    table = made(tmp_path, deletion_vectors__enabled="true")
    table.append(rows_of([row(i) for i in range(10)]))
    state = table._core.state()
    assert state.snapshot is not None
    first = load_snapshot(state.table_files, 1)
    assert [s.commit_kind for s in (first, state.snapshot)] == ["APPEND", "COMPACT"]
    assert (first.commit_user, first.commit_identifier) == (state.snapshot.commit_user, first.commit_identifier)
    assert [s.operation for s in (first, state.snapshot)] == ["WRITE", "WRITE"]
    assert {e.file.level for e in state.entries()} == {5}


def test_write_only_tables_keep_level_0(tmp_path: Path) -> None:
    table = made(tmp_path, deletion_vectors__enabled="true", write_only="true")
    for step in range(7):
        table.append(rows_of([row(step), row(90, f"v{step}")]))
    assert {e.file.level for e in table._core.state().entries()} == {0}
    assert read(table) == {}
    assert {(r["day"], r["id"]): r for r in table.scan().with_level_0().to_arrow().to_pylist()}["a", 90] == row(
        90, "v6"
    )
    table.maintenance.compact()
    assert read(table) == {**{("a", i): row(i) for i in range(7)}, ("a", 90): row(90, "v6")}


def test_input_changelog_has_every_row(tmp_path: Path) -> None:
    table = made(tmp_path, changelog_producer="input", bucket="1")
    rows, kinds = [row(2), row(1, "a"), row(1, "b"), row(2)], ["+I", "+I", "+U", "-D"]
    snapshot = table.upsert(rows_of(rows), kinds)
    assert snapshot is not None and snapshot.changelog_manifest_list is not None
    assert snapshot.changelog_record_count == 4
    state = table._core.state()
    (meta,) = read_manifest_list(state.table_files, snapshot.changelog_manifest_list)
    (entry,) = read_manifest(state.table_files, meta.file_name)
    assert entry.file.file_name.startswith("changelog-")
    path = PartitionReader(state.schema, state.paths).data_path(entry)
    with table._core.store.open_input(path) as source:
        (batch,) = reader_for(path)(source, ["id", "name", "_VALUE_KIND", "_SEQUENCE_NUMBER"], batch_size=100)
    assert list(zip(*batch.to_pydict().values(), strict=True)) == [
        (1, "a", 0, 0), (1, "b", 2, 1), (2, "x", 0, 2), (2, "x", 3, 3),
    ]  # fmt: skip
    assert [e.file.max_sequence_number for e in state.entries()] == [3]


def test_row_kinds_in_a_column(tmp_path: Path) -> None:
    table = made(tmp_path, rowkind__field="name")
    table.upsert(rows_of([row(1, "+I"), row(2, "+U"), row(3, "+I"), row(3, "-D")]))
    assert sorted(read(table)) == [("a", 1), ("a", 2)]
    for name in (None, "+X"):
        with pytest.raises(InvalidRequest, match="row kind"):
            table.upsert(rows_of([row(1, name)]))
    with pytest.raises(InvalidRequest, match="'name' holds the row kinds"):
        table.upsert(rows_of([row(1, "+I")]), ["+I"])
    assert sorted(read(table)) == [("a", 1), ("a", 2)]


def test_row_kinds_in_a_column_of_char(tmp_path: Path) -> None:
    """Paimon's RowKindGenerator takes every character string."""
    lake = bitlake.connect(str(tmp_path))
    options = "'primary-key' = 'id', 'bucket' = '1', 'rowkind.field' = 'op'"
    lake.sql(f"CREATE TABLE t (id BIGINT NOT NULL, op CHAR(2)) TBLPROPERTIES ({options})", engine="duckdb")
    table = lake.table("t")
    table.upsert(pa.table({"id": [1, 2, 2], "op": ["+I", "+I", "-D"]}))
    assert table.to_arrow().to_pylist() == [{"id": 1, "op": "+I"}]


def test_kinds_beside_rows(tmp_path: Path) -> None:
    table = made(tmp_path, ignore_update_before="true")
    table.upsert(rows_of([row(1), row(2)]), pa.array([0, 2], pa.int32()))
    table.upsert(rows_of([row(1), row(2)]).append_column("op", pa.array(["-D", "-U"])), "op")
    assert sorted(read(table)) == [("a", 2)]
    batches = iter(rows_of([row(i) for i in range(6)]).to_batches(max_chunksize=2))
    table.upsert(batches, ["+I", "+I", "-D", "-D", "+I", "+I"])
    assert [k[1] for k in sorted(read(table))] == [0, 1, 4, 5]
    for kinds in (["+I"], ["+I"] * 3, ["+I", None], ["+I", "?"], [0, 4], [0.5, 1.0], "op"):
        with pytest.raises(InvalidRequest):
            table.upsert(rows_of([row(1), row(2)]), kinds)
    assert [k[1] for k in sorted(read(table))] == [0, 1, 4, 5]


def test_deletes_may_be_ignored(tmp_path: Path) -> None:
    table = made(tmp_path, ignore_delete="true")
    table.upsert(rows_of([row(1), row(1, "gone")]), ["+I", "-D"])
    assert read(table) == {("a", 1): row(1)}


def test_a_null_key_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    table = made(tmp_path)
    bad = pa.table({"day": ["a", "a"], "id": [1, None], "name": ["x", "y"], "n": [1, 2]})
    with pytest.raises(InvalidRequest, match="'id' is NOT NULL"):
        table.upsert([*rows_of([row(7)]).to_batches(), *bad.to_batches()])
    assert table.snapshot is None
    assert not [p for p in Path(table.path).rglob("*") if p.is_file() and "schema" not in p.parts]


def test_keys_and_partitions_cannot_be_updated(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.append(rows_of([row(1)]))
    with pytest.raises(InvalidRequest, match="'id'"):
        table.update({"id": 2})


def test_overwrite(tmp_path: Path) -> None:
    for number, options in enumerate(({}, {"deletion_vectors__enabled": "true"}, {"bucket": "-1"})):
        table = made(tmp_path / str(number), partitioned="yes", **options)
        table.append(rows_of([row(i, day=day) for i in range(5) for day in "ab"]))
        table.upsert(rows_of([row(1, "new"), row(2, "new", "b")]))
        table.overwrite(rows_of([row(9, "fresh", "b")]), {})
        assert sorted(read(table)) == [*(("a", i) for i in range(5)), ("b", 9)]
        assert read(table)["a", 1] == row(1, "new")
        table.overwrite(rows_of([row(8)]), {"day": "a"})
        assert sorted(read(table)) == [("a", 8), ("b", 9)]
        check(table)
        table.upsert(rows_of([row(8, "again"), row(3, day="b")]))
        assert sorted(read(table)) == [("a", 8), ("b", 3), ("b", 9)]
        table.overwrite(rows_of([row(1)]))
        assert read(table) == {("a", 1): row(1)}
        assert {e.file.level for e in table._core.state().entries()} == {5}
        table.truncate()
        assert read(table) == {}
        check(table)


def test_partial_update_takes_deletes_where_it_may(tmp_path: Path) -> None:
    table = made(tmp_path / "no", merge_engine="partial-update")
    table.upsert(rows_of([row(1, None, n=1), row(1, "x", n=None)]))
    assert read(table) == {("a", 1): row(1)}
    assert table.delete("id = 1") == 1  # no -D row may go there: the file is written again
    assert read(table) == {}
    removing = {"merge_engine": "partial-update", "partial_update__remove_record_on_delete": "true"}
    table = made(tmp_path / "yes", **removing)
    table.upsert(rows_of([row(1), row(2)]))
    assert table.delete("id = 1") == 1
    assert sorted(read(table)) == [("a", 2)]
    marking = {"merge_engine": "partial-update", "deletion_vectors__enabled": "true"}
    table = made(tmp_path / "vectors", **marking)
    table.upsert(rows_of([row(1), row(2)]))
    assert table.delete("id = 1") == 1
    assert sorted(read(table)) == [("a", 2)]
    check(table)
    table.upsert(rows_of([row(1, None, n=5)]))
    assert read(table)["a", 1] == row(1, None, n=5)


def test_postponed_rows_wait_as_paimon_has_them(tmp_path: Path) -> None:
    table = made(tmp_path, bucket="-2", **WAITING)
    table.upsert(rows_of([row(3), row(1), row(3, "y")]), ["+I", "+I", "-D"])
    (entry,) = table._core.state().entries()
    file = entry.file
    assert (entry.bucket, entry.total_buckets, file.level) == (POSTPONE_BUCKET, POSTPONE_BUCKET, 0)
    assert file.file_name.startswith("data--u-") and "-s-" in file.file_name and "-w-" in file.file_name
    assert file.file_name.endswith(".avro")
    assert (file.min_sequence_number, file.max_sequence_number, file.delete_row_count) == (-1, -1, 1)
    types = [table.schema.field(k).type for k in table.schema.trimmed_primary_keys]
    assert decode_row(types, file.min_key) == ("a", 3)
    assert (Path(table.path) / "bucket-postpone" / file.file_name).exists()
    assert read(table) == {}


@pytest.mark.parametrize(
    ("options", "total"),
    [
        ({}, 1),
        ({"deletion_vectors__enabled": "true", "postpone__default_bucket_num": "3"}, 3),
        exhaustive({"deletion_vectors__enabled": "true", "postpone__target_row_num_per_bucket": "1"}, None),
    ],
)
def test_postponed_rows_get_buckets_when_they_are_compacted(
    options: dict[str, str], total: int | None, tmp_path: Path
) -> None:
    table, model, chance = (
        made(tmp_path, bucket="-2", partitioned="yes", **WAITING, **options),
        Model(),
        random.Random(4),
    )
    for step in range(6):
        rows = [row(chance.randrange(30), f"s{step}", chance.choice("ab")) for _ in range(25)]
        kinds = [chance.choice(KINDS) for _ in rows]
        table.upsert(rows_of(rows), kinds)
        for r, kind in zip(rows, kinds, strict=True):
            model.pop((r["day"], r["id"]), None)
            if kind in ("+I", "+U"):
                model[r["day"], r["id"]] = r
        if step % 2:
            assert table.maintenance.compact(full=step == 5) is not None
            assert read(table) == model
            check(table)
            found = {e.total_buckets for e in table._core.state().entries()}
            assert found == {total} if total is not None else min(found) > 10
            assert all(0 <= e.bucket < e.total_buckets for e in table._core.state().entries())
    assert not list((Path(table.path) / "day=a").glob("bucket--*"))
    assert table.maintenance.compact() is None or not options


def test_what_has_no_primary_key_cannot_be_upserted(tmp_path: Path) -> None:
    table = bitlake.connect(str(tmp_path)).create_table("t", COLUMNS)
    with pytest.raises(InvalidRequest, match="no primary key"):
        table.upsert(rows_of([row(1)]))


def test_partitions_cannot_be_overwritten_where_keys_are_unique_over_all(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("p", pa.string())])
    options = {"primary-key": "k", "bucket": "-1"}
    table = bitlake.connect(str(tmp_path)).create_table("default.t", schema, partition_by=["p"], options=options)
    rows = pa.table({"k": [1], "p": ["a"]}, schema=schema)
    for partition in ({"p": "a"}, {}):
        with pytest.raises(InvalidRequest, match="TRUNCATE the partition and INSERT"):
            table.overwrite(rows, partition)
    table.truncate({"p": "a"})


def test_rows_that_can_be_read_again_are_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty times at most while other writers come first; rows of an iterator once."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = bitlake.connect(tmp_path).create_table("again", columns, primary_key=["id"])
    rows, tries = pa.table({"id": [1]}, columns), []

    def lose(*_: Any, **__: Any) -> Any:
        tries.append(1)
        raise CommitConflict("another writer")

    monkeypatch.setattr(dml, "_write", lose)
    for given, expected in ((rows, 20), (iter(rows.to_batches()), 1)):
        tries.clear()
        with pytest.raises(CommitConflict):
            dml.upsert(table._core, given)
        assert len(tries) == expected
