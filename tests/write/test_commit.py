from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from caches import forget
from commits import STORE, append, check_table, entry, make_table, names
from faults import noted_sleep
from fixtures import copy_warehouse

import bitlake
from bitlake.codec.binary_row import EMPTY_ROW
from bitlake.errors import CommitConflict, InvalidRequest, NotFound, StorageUnavailable, UnsupportedFeature
from bitlake.io.local import LocalStore
from bitlake.metadata.manifest import EntryKind, ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.snapshot import BATCH_IDENTIFIER
from bitlake.snapshot import manifests, versions
from bitlake.snapshot.index_files import IndexChange
from bitlake.snapshot.table_files import TableFiles
from bitlake.write import commit as committing
from bitlake.write.commit import commit, is_committed, last_identifier
from bitlake.write.commit_plan import BatchCommitted, CommitPlan, Overwrite, PlanResolver, SequenceTaken, StreamBatch


def test_first_and_second_append(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    first = append(paths, schema, entry("a"), entry("b", rows=5))
    assert (first.id, first.commit_kind, first.total_record_count, first.delta_record_count) == (1, "APPEND", 15, 15)
    assert manifests.read_manifest_list(TableFiles(STORE, paths), first.base_manifest_list) == ()
    second = append(paths, schema, entry("c"))
    assert (second.id, second.total_record_count) == (2, 25)
    assert manifests.read_manifest_list(
        TableFiles(STORE, paths), second.base_manifest_list
    ) == manifests.read_manifest_list(TableFiles(STORE, paths), first.delta_manifest_list)
    assert names(paths) == {"a", "b", "c"}
    assert (STORE.read(paths.latest_hint), STORE.read(paths.earliest_hint)) == (b"2", b"1")
    assert second.commit_identifier == 2**63 - 1
    assert second.operation == "WRITE"
    check_table(paths)


def test_the_last_batch_of_a_stream(tmp_path: Path) -> None:
    """By its own commits that have identifiers; those of others, and batch commits of its own, do not count."""
    state = bitlake.connect(str(tmp_path)).create_table("t", pa.schema([("k", pa.int32())]))._core.state()
    for name, user, number in (("a", "me", 4), ("b", "me", 5), ("c", "me", BATCH_IDENTIFIER), ("d", "other", 9)):
        commit(STORE, state.paths, CommitPlan("APPEND", (entry(name),)), state.schema, user, identifier=number)
    assert [last_identifier(state, user) for user in ("me", "other", "unknown")] == [5, 9, None]
    assert [is_committed(state, "me", number) for number in (4, 5, 6)] == [True, True, False]
    assert not is_committed(state, "unknown", 0)


def test_nothing_to_do_makes_no_snapshot(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t", partitioned=True)
    assert commit(STORE, paths, CommitPlan("APPEND"), schema, "me") is None
    append(paths, schema, entry("a", 1))
    again = commit(STORE, paths, CommitPlan("OVERWRITE", overwrite=Overwrite({"k": 9})), schema, "me")
    assert again is not None
    assert again.id == 1
    assert commit(STORE, paths, CommitPlan("OVERWRITE", overwrite=Overwrite(dynamic=True)), schema, "me") == again
    forced = {**schema.options, "commit.force-create-snapshot": "true"}
    made = commit(STORE, paths, CommitPlan("APPEND"), schema, "me", options=forced)
    assert made is not None
    assert (made.id, made.delta_record_count) == (2, 0)


def test_overwrites(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t", partitioned=True)
    append(paths, schema, entry("a1", 1), entry("a2", 2), entry("a3", 3))

    def run(overwrite: Overwrite, *adds: ManifestEntry) -> set[str]:
        made = commit(STORE, paths, CommitPlan("OVERWRITE", adds, overwrite=overwrite), schema, "me")
        assert made is not None
        assert made.commit_kind == "OVERWRITE"
        delta = [
            e.kind
            for m in manifests.read_manifest_list(TableFiles(STORE, paths), made.delta_manifest_list)
            for e in manifests.read_manifest(TableFiles(STORE, paths), m.file_name)
        ]
        assert delta == sorted(delta, reverse=True)  # DELETE before ADD
        return names(paths)

    assert run(Overwrite(dynamic=True), entry("b1", 1)) == {"b1", "a2", "a3"}
    assert run(Overwrite({"k": 2}), entry("b2", 2)) == {"b1", "b2", "a3"}
    assert run(Overwrite({"k": 3})) == {"b1", "b2"}
    with pytest.raises(InvalidRequest, match="k=7"):
        run(Overwrite({"k": 2}), entry("b7", 7))
    with pytest.raises(InvalidRequest, match="not a partition column"):
        run(Overwrite({"z": 2}))
    with pytest.raises(InvalidRequest, match="'y' is not a partition column"):
        run(Overwrite({"k": 2}, others=({"y": 2},)))
    assert run(Overwrite(), entry("x", 1), entry("y", 2), entry("z", 3)) == {"x", "y", "z"}
    assert run(Overwrite({"k": 1}, others=({"k": 3},)), entry("f", 3)) == {"y", "f"}
    with pytest.raises(InvalidRequest, match="k=2"):
        run(Overwrite({"k": 1}, others=({"k": 3},)), entry("g", 2))
    assert run(Overwrite(), entry("c", 1)) == {"c"}
    assert run(Overwrite()) == set()
    check_table(paths)


def test_replacing_files_conflicts_when_they_are_gone(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    old = entry("a")
    append(paths, schema, old)
    new = dataclasses.replace(old, file=dataclasses.replace(old.file, extra_files=("a.index",)))
    made = commit(STORE, paths, CommitPlan("COMPACT", (new,), (old,)), schema, "me")
    assert made is not None
    assert (made.commit_kind, made.delta_record_count, made.total_record_count) == ("COMPACT", 0, 10)
    snapshot = versions.latest_snapshot(TableFiles(STORE, paths))
    assert snapshot is not None
    assert manifests.live_files(TableFiles(STORE, paths), snapshot) == (new,)
    with pytest.raises(CommitConflict, match="no longer live"):
        commit(STORE, paths, CommitPlan("COMPACT", (entry("z"),), (old,)), schema, "me")
    with pytest.raises(CommitConflict, match=r"live in .* already"):
        commit(STORE, paths, CommitPlan("COMPACT", (new,)), schema, "me")
    with pytest.raises(InvalidRequest, match="both adds and deletes"):
        commit(STORE, paths, CommitPlan("COMPACT", (new,), (new,)), schema, "me")
    with pytest.raises(InvalidRequest, match="twice"):
        append(paths, schema, entry("q"), entry("q"))
    check_table(paths)


def test_a_conflict_names_three_of_the_files_that_are_gone(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    append(paths, schema, entry("live"))
    for count, named in ((1, "a"), (3, "a, b, c"), (4, "a, b, c"), (5, "a, b, c")):
        old = [entry(name) for name in "abcde"[:count]]
        plan = CommitPlan("COMPACT", (), (entry("live"), *reversed(old)))
        with pytest.raises(
            CommitConflict, match=rf"^{count} files to be replaced are no longer live in .* \({named}\):"
        ):
            commit(STORE, paths, plan, schema, "me")
    assert names(paths) == {"live"}


@pytest.mark.parametrize("read", [
    lambda number, uuid: {"computed_on": number, "read_uuid": uuid},
    lambda number, uuid: {"alone_since": number, "read_uuid": uuid},
    lambda number, uuid: {"overwrite": Overwrite(computed_on=number, computed_uuid=uuid)},
], ids=["compaction", "keys", "overwrite"])  # fmt: skip
@pytest.mark.parametrize("latest", [0, 1, 2, 3, 4])
def test_what_was_read_of_a_snapshot_that_was_rolled_back_is_not_committed(
    tmp_path: Path, read: Callable[[int, str], dict[str, Any]], latest: int
) -> None:
    """Snapshot 2 was read; the history is now ``latest`` snapshots long.  One that expired is not rolled back."""
    paths, schema = make_table(tmp_path / "t")
    table = TableFiles(STORE, paths)
    uuids = [append(paths, schema, entry(f"f{i}")).uuid for i in range(4)]
    now = versions.load_snapshot(table, latest) if latest else None

    def refused(uuid: str | None) -> bool:
        plan = CommitPlan("COMPACT", (entry("new"),), **read(2, uuid))  # type: ignore[arg-type]
        try:
            PlanResolver(STORE, paths, plan, schema).delta(now)
        except CommitConflict as e:
            return "snapshot 2 of" in str(e) and "was rolled back" in str(e)
        return False

    assert refused(uuids[1]) == (latest < 2)
    assert refused("of another history")
    assert not refused(None), "Paimon's snapshots may have no uuid"
    STORE.delete(paths.snapshot(2))
    forget()
    assert refused(uuids[1]) == (latest < 2)
    assert refused("of another history") == (latest <= 2)


@pytest.mark.parametrize("kind", ["APPEND", "OVERWRITE"])
@pytest.mark.parametrize(("buckets", "total", "fits"), [
    (1, 1, True), (1, 2, False), (2, 1, False), (2, 2, True), (3, 2, False), (-1, 2, True), (-2, 1, True),
    (2, -2, True), (1, -2, True), (-2, -2, True),
])  # fmt: skip
def test_keys_are_appended_by_the_tables_number_of_buckets(
    tmp_path: Path, kind: str, buckets: int, total: int, fits: bool
) -> None:
    paths, schema = make_table(tmp_path / "t", bucket=str(buckets))
    schema = dataclasses.replace(schema, primary_keys=("k",))
    plan = CommitPlan(kind, (entry("a", total=total),), sequences={(EMPTY_ROW, 0): 0})
    resolver = PlanResolver(STORE, paths, plan, schema)
    if fits or kind == "OVERWRITE":
        assert resolver.delta(None).entries == plan.adds
    else:
        with pytest.raises(
            CommitConflict, match=f"has {buckets} buckets, and new files have {total}: INSERT OVERWRITE"
        ):
            resolver.delta(None)


def test_bucket_counts_of_a_partition_must_agree(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t", partitioned=True, bucket="3", bucket_key="v")
    append(paths, schema, entry("a", 1, total=3))
    append(paths, schema, entry("b", 2, total=1))
    with pytest.raises(CommitConflict, match=r"k=1.*3 buckets and new files 1"):
        append(paths, schema, entry("c", 1, total=1))
    with pytest.raises(CommitConflict, match="buckets"):
        append(paths, schema, entry("c", 5, total=1), entry("d", 5, total=2))
    plan = CommitPlan("OVERWRITE", (entry("c", 1, total=1),), overwrite=Overwrite(dynamic=True))
    assert commit(STORE, paths, plan, schema, "me") is not None
    assert names(paths) == {"b", "c"}
    check_table(paths)


def test_a_changed_schema_stops_a_commit_that_needs_the_old_one(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    assert STORE.create(paths.schema(1), schema.next().to_json().encode())
    with pytest.raises(CommitConflict, match="from schema 0 to 1"):
        commit(STORE, paths, CommitPlan("APPEND", (entry("a"),), requires_schema=0), schema, "me")
    assert append(paths, schema, entry("a")).schema_id == 1


def test_tables_this_version_cannot_write(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    high = dataclasses.replace(entry("a"), file=dataclasses.replace(entry("a").file, level=5))
    with pytest.raises(InvalidRequest, match="level 0"):
        append(paths, schema, high)
    with pytest.raises(UnsupportedFeature, match="row tracking"):
        append(paths, schema.with_options({"row-tracking.enabled": "true"}), entry("a"))
    root = copy_warehouse(tmp_path, "append_dv") / "default.db/append_dv"
    dv = TablePaths(str(root))
    dv_schema = versions.latest_schema(TableFiles(STORE, dv))
    latest = versions.latest_snapshot(TableFiles(STORE, dv))
    assert dv_schema is not None
    assert latest is not None
    files = manifests.live_files(TableFiles(STORE, dv), latest)
    with pytest.raises(CommitConflict, match="has deleted rows that the commit replacing it does not know of"):
        commit(STORE, dv, CommitPlan("OVERWRITE", deletes=tuple(files[:1])), dv_schema, "me")
    kept = commit(STORE, dv, CommitPlan("APPEND", (entry("x"),)), dv_schema, "me")
    assert kept is not None
    assert kept.index_manifest == latest.index_manifest is not None
    wiped = commit(STORE, dv, CommitPlan("OVERWRITE", overwrite=Overwrite()), dv_schema, "me")
    assert wiped is not None
    assert (wiped.index_manifest, wiped.total_record_count) == (None, 0)


def test_small_manifests_are_merged(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    schema = schema.with_options({"manifest.merge-min-count": "5"})
    for i in range(23):
        last = append(paths, schema, entry(f"f{i}"))
        assert len(manifests.snapshot_manifests(TableFiles(STORE, paths), last)) <= 6
    assert names(paths) == {f"f{i}" for i in range(23)}
    check_table(paths)


def test_full_merge_drops_what_was_deleted(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t", partitioned=True)
    for i in range(6):
        append(paths, schema, entry(f"f{i}", i % 2))
    commit(STORE, paths, CommitPlan("OVERWRITE", overwrite=Overwrite({"k": 1})), schema, "me")
    small = schema.with_options({"manifest.full-compaction-threshold-size": "1 kb"})
    last = append(paths, small, entry("g", 5))
    base = manifests.read_manifest_list(TableFiles(STORE, paths), last.base_manifest_list)
    assert [(m.num_added_files, m.num_deleted_files) for m in base] == [(3, 0)]
    assert names(paths) == {"f0", "f2", "f4", "g"}
    check_table(paths)


# --- races ------------------------------------------------------------------------------------------------------------


_WRITER = """
import sys, time
from pathlib import Path
import test_commit as t
root, who = sys.argv[1:]
paths = t.TablePaths(root)
schema = t.versions.latest_schema(t.TableFiles(t.STORE, paths))
Path(root, who).touch()
while not all(Path(root, w).exists() for w in "ab"):
    time.sleep(0.001)
for i in range(50):
    t.append(paths, schema, t.entry(f"{who}-{i}"))
"""


@pytest.mark.exhaustive
def test_two_processes_appending_lose_nothing(tmp_path: Path) -> None:
    paths, _ = make_table(tmp_path / "t", **{"commit.max-retries": "0"})
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, paths.root, who], env=env) for who in "ab"]
    assert [w.wait(120) for w in writers] == [0, 0]
    assert names(paths) == {f"{who}-{i}" for who in "ab" for i in range(50)}
    assert versions.latest_snapshot_id(TableFiles(STORE, paths)) == 100
    check_table(paths)


class Meddling(LocalStore):
    """Runs something else right before a snapshot is created, the first ``times`` times."""

    def __init__(self, other: Callable[[int], object], times: int = 1) -> None:
        super().__init__()
        self.other = other
        self.times = times

    def create(self, path: str, data: bytes) -> bool:
        if "/snapshot-" in path and self.times:
            self.times -= 1
            self.other(self.times)
        return super().create(path, data)


def test_losing_many_races_is_no_failure(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    schema = schema.with_options({"commit.max-retries": "0"})
    store = Meddling(lambda i: append(paths, schema, entry(f"o{i}")), 25)
    made = append(paths, schema, entry("mine"), store=store)
    assert made.id == 26
    assert names(paths) == {"mine", *(f"o{i}" for i in range(25))}
    check_table(paths)


def test_waits_double_with_each_lost_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Longest(random.Random):
        def uniform(self, a: float, b: float) -> float:
            assert a == 0
            return b

    waits: list[float] = []
    monkeypatch.setattr("bitlake.write.commit.time.sleep", noted_sleep(waits))
    monkeypatch.setattr("bitlake.write.commit.random.Random", Longest)
    paths, schema = make_table(tmp_path / "t")
    schema = schema.with_options({"commit.min-retry-wait": "10 ms"})
    store = Meddling(lambda i: append(paths, schema, entry(f"o{i}")), 7)
    assert append(paths, schema, entry("mine"), store=store).id == 8
    assert waits == [0.02, 0.04, 0.08, 0.16, 0.32, 0.32, 0.32]
    waits.clear()
    schema = schema.with_options({"commit.min-retry-wait": "1 ms"})
    store = Meddling(lambda i: append(paths, schema, entry(f"p{i}")), 7)
    assert append(paths, schema, entry("mine too"), store=store).id == 16
    assert waits == [0.002, 0.004, 0.008, 0.016, 0.032, 0.032, 0.032]


def test_waits_double_with_each_failure_of_the_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From ``commit.min-retry-wait`` to ``commit.max-retry-wait``, and a fifth more at random."""

    class Longest(random.Random):
        def uniform(self, a: float, b: float) -> float:
            assert a == 1
            return b

    class Broken(LocalStore):
        def create(self, path: str, data: bytes) -> bool:
            raise StorageUnavailable("no answer")

        def write(self, path: str, data: bytes) -> None:
            raise StorageUnavailable("no answer")

    waits: list[float] = []
    monkeypatch.setattr("bitlake.write.commit.time.sleep", noted_sleep(waits))
    monkeypatch.setattr("bitlake.write.commit.random.Random", Longest)
    paths, schema = make_table(tmp_path / "t")
    for retries in (0, 1, 5):
        waits.clear()
        options = {
            "commit.min-retry-wait": "10 ms",
            "commit.max-retry-wait": "50 ms",
            "commit.max-retries": str(retries),
        }
        with pytest.raises(StorageUnavailable, match=r"failed .* \(no answer\); no change is visible") as failed:
            append(paths, schema.with_options(options), entry("a"), store=Broken())
        assert f"failed {retries + 1} time{'s' if retries else ''} (" in str(failed.value)
        assert waits == pytest.approx([0.012, 0.024, 0.048, 0.06, 0.06][:retries])
    assert names(paths) == set()


@pytest.mark.parametrize(("kind", "statistics", "valid"), [
    ("APPEND", None, True), ("COMPACT", None, True), ("OVERWRITE", None, True), ("ANALYZE", "stat-1", True),
    ("ANALYZE", None, False), ("REPLACE", None, False), ("REPLACE", "stat-1", False),
])  # fmt: skip
def test_kinds_of_commits(tmp_path: Path, kind: str, statistics: str | None, valid: bool) -> None:
    paths, schema = make_table(tmp_path / "t")
    resolver = PlanResolver(STORE, paths, CommitPlan(kind, statistics=statistics), schema)
    if valid:
        resolver.check_plan()
    else:
        with pytest.raises(InvalidRequest, match=f"invalid commit kind '{kind}'"):
            resolver.check_plan()


def test_only_tables_with_keys_have_levels(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    keyed = dataclasses.replace(schema, primary_keys=("k",))
    for level in (0, 1, 5):
        added = dataclasses.replace(entry("a"), file=dataclasses.replace(entry("a").file, level=level))
        plan = CommitPlan("COMPACT", (entry("b"), added))
        PlanResolver(STORE, paths, plan, keyed).check_plan()
        if level:
            with pytest.raises(InvalidRequest, match="no primary key: all its files must be of level 0"):
                PlanResolver(STORE, paths, plan, schema).check_plan()
        else:
            PlanResolver(STORE, paths, plan, schema).check_plan()


@pytest.mark.parametrize("on", [False, True])
def test_files_are_not_replaced_in_another_mode_of_deletion_vectors(tmp_path: Path, on: bool) -> None:
    paths, schema = make_table(tmp_path / "t")
    before, after = (schema.with_options({"deletion-vectors.enabled": str(v).lower()}) for v in (not on, on))
    index = IndexChange(EMPTY_ROW, 0, "HASH", (), ())
    for plan in (CommitPlan("COMPACT", (), (entry("a"),)), CommitPlan("APPEND", index=(index,))):
        PlanResolver(STORE, paths, plan, before).check_options(before, None)
        with pytest.raises(CommitConflict, match=f"were switched {'on' if on else 'off'} meanwhile"):
            PlanResolver(STORE, paths, plan, before).check_options(after, None)
    PlanResolver(STORE, paths, CommitPlan("APPEND", (entry("a"),)), before).check_options(after, None)


def test_compactions_are_refused_after_lookup_was_switched_on_or_off(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    keyed = dataclasses.replace(schema, primary_keys=("k",))
    plain, lookup, full = (keyed.with_options({"changelog-producer": p}) for p in ("none", "lookup", "full-compaction"))
    compaction = CommitPlan("COMPACT", (), (entry("a"),))
    for before, after in ((plain, lookup), (lookup, plain)):
        PlanResolver(STORE, paths, CommitPlan("APPEND", (entry("a"),)), before).check_options(after, None)
        with pytest.raises(CommitConflict, match="option 'changelog-producer' of table .* was changed meanwhile"):
            PlanResolver(STORE, paths, compaction, before).check_options(after, None)
    PlanResolver(STORE, paths, compaction, plain).check_options(full, None)


def test_rows_are_not_added_without_the_changelog_that_streams_read(tmp_path: Path) -> None:
    """Streams read a snapshot by the producer of its schema, the latest one, and lost rows without such a changelog."""
    paths, schema = make_table(tmp_path / "t")
    keyed = dataclasses.replace(schema, primary_keys=("k",))
    none, produced, full = (keyed.with_options({"changelog-producer": p}) for p in ("none", "input", "full-compaction"))
    refused = [
        ("APPEND", none, produced),
        ("APPEND", full, produced),
        ("COMPACT", none, full),
        ("COMPACT", produced, full),
    ]
    for kind, before, after in refused:
        resolver = PlanResolver(STORE, paths, CommitPlan(kind, (entry("a"),)), before)
        with pytest.raises(CommitConflict, match="option 'changelog-producer' of table .* was changed meanwhile"):
            resolver.check_options(after, None)
        resolver.check_options(before, None)
    for kind, before, after in [("APPEND", none, full), ("COMPACT", none, produced), ("OVERWRITE", none, produced)]:
        PlanResolver(STORE, paths, CommitPlan(kind, (entry("a"),)), before).check_options(after, None)


def test_rows_need_later_numbers_than_all_rows_of_their_bucket(tmp_path: Path) -> None:
    """The live files have the numbers 0 to 9."""
    paths, schema = make_table(tmp_path / "t")
    append(paths, schema, entry("a", bucket=3), entry("b", bucket=4))
    for bucket, lowest, taken in ((3, 10, False), (3, 9, True), (3, 0, True), (4, 9, True), (5, 0, False)):
        plan = CommitPlan("APPEND", (entry("new", bucket=bucket),), sequences={(EMPTY_ROW, bucket): lowest})
        resolver = PlanResolver(STORE, paths, plan, schema)
        latest = versions.latest_snapshot(TableFiles(STORE, paths))
        if taken:
            with pytest.raises(SequenceTaken, match=f"added rows to bucket {bucket} of"):
                resolver.delta(latest)
        else:
            assert resolver.delta(latest).entries == plan.adds


def test_what_an_overwrite_selects(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t", partitioned=True)
    for k in (1, 2, 3):
        append(paths, schema, entry(f"f{k}", k))
    latest = versions.latest_snapshot(TableFiles(STORE, paths))

    def deleted(overwrite: Overwrite, *adds: ManifestEntry) -> list[str]:
        plan = CommitPlan("OVERWRITE", adds, overwrite=overwrite)
        entries = PlanResolver(STORE, paths, plan, schema).delta(latest).entries
        assert tuple(e for e in entries if e.kind is EntryKind.ADD) == adds
        return [e.file.file_name for e in entries if e.kind is EntryKind.DELETE]

    new = entry("new", 2)
    assert deleted(Overwrite(), new) == ["f1", "f2", "f3"]
    assert deleted(Overwrite(dynamic=True), new) == ["f2"] and deleted(Overwrite(dynamic=True)) == []
    assert deleted(Overwrite({"k": 2}), new) == ["f2"] and deleted(Overwrite({"k": 9})) == []
    assert deleted(Overwrite({"k": 3}, others=({"k": 2},)), new) == ["f2", "f3"]
    with pytest.raises(
        InvalidRequest, match="partition k=2 of the new rows is outside the partitions being overwritten"
    ):
        deleted(Overwrite({"k": 3}, others=({"k": 1},)), new)
    for unknown in (Overwrite({"v": 1}), Overwrite({"k": 3}, others=({"v": 1},))):
        with pytest.raises(InvalidRequest, match="'v' is not a partition column; they are k$"):
            deleted(unknown, new)
    whole, unpartitioned = make_table(tmp_path / "whole")
    plan = CommitPlan("OVERWRITE", overwrite=Overwrite({"k": 1}))
    with pytest.raises(InvalidRequest, match="'k' is not a partition column; they are none$"):
        PlanResolver(STORE, whole, plan, unpartitioned).delta(None)


def test_a_base_snapshot_that_lacks_a_file_is_no_lost_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, schema = make_table(tmp_path / "t")
    base = append(paths, schema, entry("a"))
    STORE.delete(paths.manifest(base.delta_manifest_list))
    forget()
    waits: list[float] = []
    monkeypatch.setattr("bitlake.write.commit.time.sleep", noted_sleep(waits))
    with pytest.raises(NotFound, match=base.delta_manifest_list):
        append(paths, schema, entry("b"))
    assert not waits and not STORE.exists(paths.snapshot(2))


def test_an_overwrite_deletes_what_was_added_meanwhile(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    append(paths, schema, entry("a"))
    store = Meddling(lambda i: append(paths, schema, entry("late")))
    commit(store, paths, CommitPlan("OVERWRITE", (entry("new"),), overwrite=Overwrite()), schema, "me")
    assert names(paths) == {"new"}
    check_table(paths)


def test_a_replacement_conflicts_with_one_that_was_faster(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    append(paths, schema, entry("a"))
    replace = CommitPlan("COMPACT", (entry("b"),), (entry("a"),))
    store = Meddling(lambda i: commit(STORE, paths, CommitPlan("COMPACT", (entry("c"),), (entry("a"),)), schema, "me"))
    with pytest.raises(CommitConflict, match="no longer live"):
        commit(store, paths, replace, schema, "me")
    assert names(paths) == {"c"}
    check_table(paths)


def test_timeout(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    slow = schema.with_options({"commit.timeout": "0 ms"})
    store = Meddling(lambda i: append(paths, schema, entry(f"o{i}")), 1000)
    with pytest.raises(CommitConflict, match=r"commit\.timeout"):
        append(paths, slow, entry("mine"), store=store)
    check_table(paths)


# --- broken storage ---------------------------------------------------------------------------------------------------


def test_a_batch_is_committed_once_wherever_it_was(tmp_path: Path) -> None:
    """It is looked for in every snapshot after the last one that its stream has looked at, and in no earlier one."""
    paths, schema = make_table(tmp_path / "t")
    for number in range(1, 5):
        plan = CommitPlan("APPEND", (entry(f"f{number}"),))
        assert commit(STORE, paths, plan, schema, f"user-{number % 2}", identifier=number) is not None
    for since in range(5):
        for identifier in range(1, 6):
            for user in ("user-0", "user-1"):
                plan = CommitPlan("APPEND", (entry("new"),), batch=StreamBatch(user, identifier, since))
                there = since < identifier < 5 and user == f"user-{identifier % 2}"
                if there:
                    with pytest.raises(BatchCommitted, match=f"as snapshot {identifier}$"):
                        commit(STORE, paths, plan, schema, user, identifier=identifier)
                    continue
                assert commit(STORE, paths, plan, schema, "other", identifier=9) is not None
                STORE.delete(paths.snapshot(5))
                forget()
    STORE.delete(paths.snapshot(2))  # expired since
    forget()
    again = CommitPlan("APPEND", (entry("x"),), batch=StreamBatch("user-1", 3, 1))
    with pytest.raises(BatchCommitted, match="as snapshot 3$"):
        commit(STORE, paths, again, schema, "user-1", identifier=3)


def test_keys_looked_up_in_a_snapshot_suffer_no_other_rows_after_it(tmp_path: Path) -> None:
    """Compactions add none; a snapshot that expired may have added some."""
    paths, schema = make_table(tmp_path / "t")
    for number, kind in enumerate(("APPEND", "COMPACT", "COMPACT", "APPEND", "COMPACT"), 1):
        assert commit(STORE, paths, CommitPlan(kind, (entry(f"f{number}"),)), schema, "me") is not None
    for since in range(6):
        plan = CommitPlan("APPEND", (entry("new"),), alone_since=since)
        if since < 4:
            with pytest.raises(
                CommitConflict, match=f"snapshot {1 if since == 0 else 4} of .* looked up in snapshot {since};"
            ):
                commit(STORE, paths, plan, schema, "me")
            continue
        assert commit(STORE, paths, plan, schema, "me") is not None
        STORE.delete(paths.snapshot(6))
        forget()


def test_what_follows_a_commit_gets_its_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, schema = make_table(tmp_path / "t")
    changes: list[tuple[ManifestEntry, ...] | None] = []
    monkeypatch.setattr(committing, "publish_commit", lambda state, entries: changes.append(entries))
    append(paths, schema, entry("a"))
    append(paths, schema, entry("b"), entry("c"))
    assert [None if c is None else [e.file.file_name for e in c] for c in changes] == [["a"], ["b", "c"]]


class Expiring(LocalStore):
    """Expires the older snapshots as soon as a snapshot is created, as a process beside this one may."""

    def create(self, path: str, data: bytes) -> bool:
        made = super().create(path, data)
        if made and path.endswith("/snapshot-3"):
            for number in (1, 2):
                self.delete(path[:-1] + str(number))
        return made


def test_a_commit_whose_base_expires_at_once_stands(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    append(paths, schema, entry("a"))
    append(paths, schema, entry("b"))
    forget()
    assert append(paths, schema, entry("c"), store=Expiring()).id == 3
    assert names(paths) == {"a", "b", "c"}


def test_statistics_are_kept_until_the_schema_changes(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    append(paths, schema, entry("a"))
    assert commit(STORE, paths, CommitPlan("ANALYZE", statistics="stat-1"), schema, "me") is not None
    assert append(paths, schema, entry("b")).statistics == "stat-1"
    changed = dataclasses.replace(schema, id=1)
    assert STORE.create(paths.schema(1), changed.to_json().encode())
    forget()
    assert append(paths, changed, entry("c")).statistics is None


def test_the_next_row_id_of_paimon_is_handed_on(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    first = append(paths, schema, entry("a"))
    assert first.next_row_id == 0
    STORE.write(paths.snapshot(1), dataclasses.replace(first, next_row_id=7).to_json().encode())
    forget()
    assert append(paths, schema, entry("b")).next_row_id == 7


class Listing(Meddling):
    """Remembers the files that are made."""

    def __init__(self, other: Callable[[int], object], times: int = 1) -> None:
        super().__init__(other, times)
        self.made: list[str] = []

    def create(self, path: str, data: bytes) -> bool:
        self.made.append(path.rsplit("/", 1)[-1])
        return super().create(path, data)

    def write(self, path: str, data: bytes) -> None:
        self.made.append(path.rsplit("/", 1)[-1])
        super().write(path, data)


def test_lost_races_do_not_write_the_added_files_again(tmp_path: Path) -> None:
    paths, schema = make_table(tmp_path / "t")
    store = Listing(lambda i: append(paths, schema, entry(f"o{i}")), 4)
    assert append(paths, schema, entry("mine"), store=store).id == 5
    written = [name for name in store.made if name.startswith("manifest-") and "list" not in name]
    assert len(written) == 1, store.made


@pytest.mark.parametrize("text", [None, "{"])
def test_a_lost_or_damaged_former_schema_stops_no_repair(tmp_path: Path, text: str | None) -> None:
    """Rows written with it cannot be read, but all rows can be replaced."""
    table = bitlake.connect(tmp_path).create_table("t", pa.schema([("k", pa.int32())]))
    table.append(pa.table({"k": pa.array([1], pa.int32())}))
    table.alter_options({"snapshot.num-retained.max": "50"})
    former = Path(table.path, "schema", "schema-0")
    former.unlink()
    if text is not None:
        former.write_text(text)
    table.append(pa.table({"k": pa.array([2], pa.int32())}))
    table.alter_options({"snapshot.num-retained.max": "60"})
    table.overwrite(pa.table({"k": pa.array([3], pa.int32())}))
    assert table.scan().to_arrow().column("k").to_pylist() == [3]
