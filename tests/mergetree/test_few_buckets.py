"""Writers to a large table without partitions make objects only of their buckets' entries, and write the same rows."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from caches import forget
from keyed_tables import COLUMNS, made, rows_of
from long import every, halves, long
from made_entries import made_entries

import bitlake
from bitlake.codec.binary_row import EMPTY_ROW
from bitlake.codec.bucket import bucket_of
from bitlake.errors import CommitConflict, InvalidRequest
from bitlake.mergetree.bucket import LiveBuckets, bucket_states
from bitlake.mergetree.commit import publish
from bitlake.mergetree.cross_partition import stored_row_counts
from bitlake.mergetree.writer import prepare_rows, write_changes
from bitlake.snapshot import manifests
from bitlake.snapshot import partitions as partition_files
from bitlake.snapshot.state import TableState
from bitlake.table.table import Table

KINDS = {
    "fixed": {"bucket": "4"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "8"},
    "vectors": {"bucket": "4", "deletion-vectors.enabled": "true"},
    "lookup": {"bucket": "4", "changelog-producer": "lookup"},
    "dynamic vectors": {
        "bucket": "-1",
        "dynamic-bucket.target-row-num": "8",
        "deletion-vectors.enabled": "true",
    },
}


def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table from now on is as if it had many files."""
    monkeypatch.setattr(partition_files, "MANY_FILES", 1)
    monkeypatch.setattr(manifests, "COLUMNAR_ENTRIES", 1)


def elsewhere(table: Table) -> Table:
    """The table, and nothing of it is known in this process."""
    forget()
    return bitlake.connect(str(Path(table.path).parent.parent)).table("t")


def content(table: Table) -> dict[int, str]:
    """The rows by key, with those of level 0; what is cached stays."""
    found = table.scan(["id", "v"]).with_level_0().to_arrow()
    out = dict(zip(*(c.to_pylist() for c in found.columns), strict=True))
    assert len(out) == found.num_rows, "a key is there twice"
    return out


def bucket_of_key(table: Table) -> dict[int, int]:
    found = table.scan(["id", "__paimon_bucket"]).to_arrow()
    return dict(zip(*(c.to_pylist() for c in found.columns), strict=True))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("cold", "kind"), halves([True, False], KINDS))
@pytest.mark.parametrize("turns", [4, long(5)])
def test_rows_end_as_in_a_dictionary(
    tmp_path: Path, kind: str, cold: bool, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upserts, deletes and compactions, and in each round another writer's commit between a write and its commit."""
    large(monkeypatch)
    table, chance, model = made(tmp_path, **KINDS[kind], **{"commit.max-retries": "5"}), random.Random(kind), {}
    for turn in range(turns):
        table = elsewhere(table) if cold else table
        ids = chance.sample(range(100), 30)
        table.upsert(rows_of(ids, f"t{turn}"))
        model |= dict.fromkeys(ids, f"t{turn}")
        assert content(table) == model
        gone = chance.sample(sorted(model), 10)
        table.upsert(rows_of(gone, "gone"), ["-D"] * 10)
        model = {k: v for k, v in model.items() if k not in gone}
        if turn == 1:
            table.add_column("x", "INT")
        # Existing keys: for new ones, both writers would create the same dynamic bucket.
        state, mine, theirs = table._core.state(), sorted(model)[::2], sorted(model)[::3]
        rows = prepare_rows("t", state.schema, [rows_of(mine, f"mine{turn}")])
        changes = write_changes(state, rows, "me")
        table.upsert(rows_of(theirs, f"theirs{turn}"))
        publish(table._core, state, changes, operation="WRITE")
        model |= dict.fromkeys(theirs, f"theirs{turn}") | dict.fromkeys(mine, f"mine{turn}")
        if turn % 2:
            table.maintenance.compact(full=turn == 3)
        assert content(table) == model
        assert len({e.bucket for e in table._core.state().entries()}) > 2
    assert table.delete("id < 20") == sum(k < 20 for k in model)
    assert content(table) == {k: v for k, v in model.items() if k >= 20}
    assert table.maintenance.verify().ok


@pytest.mark.parametrize("kind", every(2, KINDS))
def test_the_same_buckets_as_of_a_small_table(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    for name in ("small", "large"):
        table = made(tmp_path / name, **KINDS[kind])
        for turn in range(4):
            table.upsert(rows_of(range(turn, 60, turn + 1), f"t{turn}"))
            table = elsewhere(table)
        shapes.append(
            sorted(
                (e.bucket, e.total_buckets, e.file.level, e.file.row_count, e.file.min_sequence_number)
                for e in table._core.state().entries()
            )
        )
        large(monkeypatch)
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("kind", every(2, KINDS))
def test_live_entries_of_other_buckets_stay_columns(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted ones become objects in the commit, to find what they delete; merges of manifests drop them."""
    table = made(tmp_path, **KINDS[kind])
    for turn in range(3):
        table.upsert(rows_of(range(60), f"t{turn}"))
    own = bucket_of_key(table)[7]
    live = {e.file.file_name: e.bucket for e in table._core.state().entries()}
    assert len(set(live.values())) > 2
    large(monkeypatch)
    table = elsewhere(table)
    objects = made_entries(monkeypatch)
    for value in ("new", "newer"):  # the second time, what was read is cached
        objects.clear()
        table.upsert(rows_of([7], value))
        assert {e.bucket for e in objects if e.file.file_name in live} <= {own}
        assert own in {e.bucket for e in objects}
    assert content(table)[7] == "newer"


def test_no_entry_is_sent_to_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path, bucket="4", **{"write-only": "true"})
    sizes = []
    for _ in range(3):
        for turn in range(5):
            table.upsert(rows_of(range(40), f"t{turn}"))
        sent = pickle.dumps(LiveBuckets.of(table._core.state()))
        with monkeypatch.context() as patch:
            large(patch)
            lazy = LiveBuckets.of(table._core.state())
            sizes.append((len(pickle.dumps(lazy)), len(sent)))
            loaded: LiveBuckets = pickle.loads(pickle.dumps(lazy))
            loaded.load([(EMPTY_ROW, 2), (EMPTY_ROW, -2)])
            assert set(loaded.states) == {(EMPTY_ROW, 2)}
            assert loaded[EMPTY_ROW, 2] == bucket_states(table._core.state())[EMPTY_ROW, 2]
    assert max(lazy for lazy, _ in sizes) - min(lazy for lazy, _ in sizes) < 20, "whatever the number of files"
    assert sizes[0][1] + 3_000 < sizes[2][1]


def listed(monkeypatch: pytest.MonkeyPatch, **unknown: None) -> None:
    """Each manifest list from now on lacks some fields, as if an older writer had written it."""
    whole = manifests.decode_manifest_list
    monkeypatch.setattr(manifests, "decode_manifest_list", lambda data: [replace(m, **unknown) for m in whole(data)])


@pytest.mark.parametrize("unknown", [{}, {"min_bucket": None}, {"max_bucket": None}])
def test_manifests_that_cannot_hold_a_bucket_are_not_read(
    tmp_path: Path, unknown: dict[str, None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the list does not say which buckets a manifest has: then it may hold any."""
    table = made(tmp_path, bucket="4", **{"write-only": "true"})
    table.upsert(rows_of(range(40), "first"))
    at = bucket_of_key(table)
    for bucket in range(4):
        table.upsert(rows_of([k for k in range(40) if at[k] == bucket], "second"))
    forget()
    wanted = [[e for e in table._core.state().entries() if e.bucket == b] for b in range(5)]
    large(monkeypatch)
    listed(monkeypatch, **unknown)
    whole, read = manifests.decode_columns, list[int]()

    def decoded(data: Any) -> Any:
        read.append(len(data))
        return whole(data)

    monkeypatch.setattr(manifests, "decode_columns", decoded)
    for bucket, entries in enumerate(wanted):
        forget()
        read.clear()
        assert list(table._core.state().bucket_entries([bucket])) == entries
        assert sum(read) == (5 if unknown else 2 if bucket < 4 else 0)
    assert TableState.bucket_entries(replace(table._core.state(), snapshot=None), [1]) == ()


@pytest.mark.parametrize("refused", [0, 1, 2, 9])
def test_a_manifest_that_is_not_decoded_to_columns_is_read_by_entry(
    tmp_path: Path, refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path, bucket="2", **{"write-only": "true"})
    for turn in range(3):
        table.upsert(rows_of(range(20), f"t{turn}"))
    table.maintenance.compact(full=True)  # with DELETE entries
    table.upsert(rows_of(range(20), "last"))
    wanted = [[e for e in table._core.state().entries() if e.bucket == b] for b in range(2)]
    large(monkeypatch)
    whole = manifests.decode_columns
    monkeypatch.setattr(
        manifests,
        "decode_columns",
        lambda data: [None if i == refused or refused == 9 else c for i, c in enumerate(whole(data))],
    )
    forget()
    state = table._core.state()
    assert [list(state.bucket_entries([b])) for b in range(2)] == wanted
    assert list(state.bucket_entries([0, 1])) == list(state.entries())
    assert [list(state.bucket_entries([b])) for b in range(2)] == wanted, "all are cached now"
    table.upsert(rows_of([3], "new"))
    assert content(table) == dict.fromkeys(range(20), "last") | {3: "new"}


def test_another_number_of_buckets_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a bucket with files is loaded, and of an empty one when its rows are committed: other buckets have files."""
    table = made(tmp_path, bucket="2")
    table.upsert(rows_of(range(20), "first"))
    large(monkeypatch)
    for cold in (True, False):
        table = elsewhere(table) if cold else table
        state = table._core.state()
        rescaled = replace(state, schema=state.schema.with_options({"bucket": "8"}))
        at = bucket_of_key(table)
        with pytest.raises(InvalidRequest, match="one of 2 buckets.*'bucket' = '8'"):
            write_changes(rescaled, prepare_rows("t", state.schema, [rows_of(range(20), "x")]), "me")
        keys = [k for k in range(200) if at_of_eight(rescaled, k) > 1][:5]
        changes = write_changes(rescaled, prepare_rows("t", state.schema, [rows_of(keys, "x")]), "me")
        assert all(c.bucket > 1 for c in changes)
        with pytest.raises(CommitConflict, match="its files have 2 buckets and new files 8"):
            publish(table._core, rescaled, changes, operation="WRITE")
        assert set(at) == set(range(20)) == set(content(table))


def at_of_eight(state: TableState, key: int) -> int:
    rows = rows_of([key], "")
    return int(bucket_of([state.schema.field("id").type], [rows.column("id")], 8)[0])


def test_an_overwrite_replaces_all_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path, bucket="4")
    table.upsert(rows_of(range(40), "first"))
    large(monkeypatch)
    table = elsewhere(table)
    table.overwrite(rows_of([1], "only"))
    assert content(table) == {1: "only"}


def test_rows_stored_in_each_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = bitlake.connect(str(tmp_path)).create_table(
        "t", COLUMNS, partition_by=["v"], options={"primary-key": "id", "dynamic-bucket.target-row-num": "5"}
    )
    assert stored_row_counts(table._core.state()) == {}
    for turn in range(3):
        for day in ("a", "b"):
            table.upsert(rows_of(range(turn * 10, 12 + turn * 10), day))
    expected: dict[bytes, dict[int, int]] = {}
    for e in table._core.state().entries():
        of_partition = expected.setdefault(e.partition, {})
        of_partition[e.bucket] = of_partition.get(e.bucket, 0) + e.file.row_count
    assert len(expected) == 2 and max(map(len, expected.values())) > 2
    assert stored_row_counts(table._core.state()) == expected
    large(monkeypatch)
    forget()
    assert stored_row_counts(table._core.state()) == expected
