"""Index files at commit: replaced by bucket, merged with other writers' vectors, refused where rows would come back."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from caches import forget
from hypothesis import given, settings
from hypothesis import strategies as st
from long import exhaustive
from store_wrappers import FaultyStore

from bitlake.codec.binary_row import EMPTY_ROW, encode_row_with_arity
from bitlake.errors import CommitConflict, InvalidRequest, StorageUnavailable
from bitlake.io import Store
from bitlake.io.local import LocalStore
from bitlake.metadata.index_manifest import DELETION_VECTORS, HASH, IndexFileEntry
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema, assign_ids
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot import manifests, versions
from bitlake.snapshot.index_files import IndexChange, read_vectors, write_hashes, write_vectors, write_vectors_rolling
from bitlake.snapshot.manifests import index_entries
from bitlake.snapshot.partitions import index_path
from bitlake.snapshot.table_files import TableFiles
from bitlake.tableindex.deletion_vectors import DeletionVector
from bitlake.types import parse_type
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan, Overwrite

STORE = LocalStore()
ROWS = 100
Positions = Mapping[str, set[int]]


@dataclasses.dataclass
class T:
    """A table with vectors, whose files are names only: commits do not look into data files."""

    paths: TablePaths
    schema: TableSchema

    @staticmethod
    def make(root: Path, key: bool = True, partitioned: bool = False, **options: str) -> T:
        fields, highest = assign_ids([("k", parse_type("INT NOT NULL"), None), ("p", parse_type("INT NOT NULL"), None)])
        given = {"bucket": "1" if key else "-1", "deletion-vectors.enabled": "true", "commit.min-retry-wait": "1 ms"}
        given |= {"commit.max-retry-wait": "1 ms", **{k.replace("_", "-"): v for k, v in options.items()}}
        partition = ("p",) if partitioned else ()
        keys = (("k", *partition)) if key else ()
        schema = TableSchema(0, fields, highest, partition, keys, given)
        paths = TablePaths(str(root))
        assert STORE.create(paths.schema(0), schema.to_json().encode())
        return T(paths, schema)

    def partition(self, p: int | None) -> bytes:
        return EMPTY_ROW if p is None else encode_row_with_arity([parse_type("INT")], [p])

    def file(self, name: str, p: int | None = None, level: int = 0, low: int = 0, high: int = 9) -> ManifestEntry:
        low_key, high_key = (encode_row_with_arity([parse_type("INT")], [k]) for k in (low, high))
        meta = DataFileMeta(
            name, 9, ROWS, low_key, high_key, EMPTY_STATS, EMPTY_STATS, 0, 9, 0, level, value_stats_cols=()
        )
        return ManifestEntry(EntryKind.ADD, self.partition(p), 0, self.schema.num_buckets, meta)

    def vectors(self, marks: Positions, p: int | None = None) -> IndexFileEntry:
        given = {n: DeletionVector.of(np.array(sorted(v), np.int64)) for n, v in marks.items()}
        return write_vectors(TableFiles(STORE, self.paths), self.schema, self.partition(p), 0, given)

    def hashes(self, *hashes: int, p: int | None = None) -> IndexFileEntry:
        return write_hashes(
            TableFiles(STORE, self.paths), self.schema, self.partition(p), 0, np.array(hashes, np.int32)
        )

    def change(self, base: list[IndexFileEntry], *new: IndexFileEntry) -> IndexChange:
        one = (base or new)[0]
        return IndexChange(one.partition, one.bucket, one.index_type, tuple(base), new)

    def commit(self, plan: CommitPlan, store: Store = STORE) -> Snapshot:
        made = commit(store, self.paths, plan, self.schema, "me")
        assert made is not None
        return made

    def add(self, *files: ManifestEntry) -> Snapshot:
        return self.commit(CommitPlan("APPEND", files))

    def mark(self, base: list[IndexFileEntry], *new: IndexFileEntry, kind: str = "COMPACT") -> Snapshot:
        return self.commit(CommitPlan(kind, index=(self.change(base, *new),)))

    def entries(self) -> list[IndexFileEntry]:
        return index_entries(TableFiles(STORE, self.paths), versions.latest_snapshot(TableFiles(STORE, self.paths)))

    def marks(self) -> dict[str, set[int]]:
        out: dict[str, set[int]] = {}
        for e in self.entries():
            for name, v in read_vectors(TableFiles(STORE, self.paths), self.schema, e).items():
                assert name not in out
                out[name] = set(v.positions().tolist())
        return out

    def files(self) -> set[str]:
        snapshot = versions.latest_snapshot(TableFiles(STORE, self.paths))
        return (
            set()
            if snapshot is None
            else {e.file.file_name for e in manifests.live_files(TableFiles(STORE, self.paths), snapshot)}
        )

    def on_disk(self) -> set[str]:
        return {f.name for f in STORE.list(f"{self.paths.root}/index")}


class Meddling(LocalStore):
    """Runs something else right before the first snapshot is created through it."""

    def __init__(self, other: Callable[[], object]) -> None:
        super().__init__()
        self.other: Callable[[], object] | None = other

    def create(self, path: str, data: bytes) -> bool:
        if "/snapshot-" in path and self.other is not None:
            run, self.other = self.other, None
            run()
        return super().create(path, data)


# --- replacing --------------------------------------------------------------------------------------------------------


def test_a_buckets_file_is_replaced_and_others_stay(tmp_path: Path) -> None:
    t = T.make(tmp_path / "t", partitioned=True)
    t.add(t.file("a", 1), t.file("b", 2))
    first, other = t.vectors({"a": {1}}, 1), t.vectors({"b": {2}}, 2)
    made = t.commit(CommitPlan("COMPACT", index=(t.change([], first), t.change([], other))))
    assert (made.commit_kind, made.delta_record_count, made.total_record_count) == ("COMPACT", 0, 2 * ROWS)
    assert manifests.read_manifest_list(TableFiles(STORE, t.paths), made.delta_manifest_list) == ()
    hashes = t.hashes(1, 2, p=1)
    assert t.mark([], hashes, kind="APPEND").commit_kind == "APPEND"
    second = t.vectors({"a": {1, 5}}, 1)
    assert t.mark([first], second, kind="APPEND").commit_kind == "OVERWRITE", "as Paimon calls it"
    assert sorted(e.file_name for e in t.entries()) == sorted(e.file_name for e in (hashes, other, second))
    empty = t.vectors({}, 1)
    t.mark([second], empty)
    assert empty in t.entries()
    unchanged = t.add(t.file("c", 1))
    assert index_entries(TableFiles(STORE, t.paths), unchanged) == t.entries()
    assert t.mark([other]).index_manifest is not None
    assert other not in t.entries()


def test_overwrites_drop_the_index_files_of_what_they_replace(tmp_path: Path) -> None:
    t = T.make(tmp_path / "t", partitioned=True)
    t.add(t.file("a", 1), t.file("b", 2), t.file("c", 3))
    marks = {p: t.vectors({n: {1}}, p) for n, p in (("a", 1), ("b", 2), ("c", 3))}
    hashes = t.hashes(1, p=1)
    t.commit(CommitPlan("COMPACT", index=(*(t.change([], m) for m in marks.values()), t.change([], hashes))))
    made = t.commit(CommitPlan("OVERWRITE", (t.file("a2", 1),), overwrite=Overwrite(dynamic=True)))
    assert t.files() == {"a2", "b", "c"}
    assert set(t.entries()) == {marks[2], marks[3]}
    fresh = t.hashes(7, p=2)
    # What it was computed on does not matter: all of the partition goes.
    plan = CommitPlan(
        "OVERWRITE", (t.file("b2", 2),), overwrite=Overwrite({"p": 2}), index=(t.change([hashes], fresh),)
    )
    plan = dataclasses.replace(plan, index=(dataclasses.replace(plan.index[0], partition=t.partition(2)),))
    t.commit(plan)
    assert set(t.entries()) == {fresh, marks[3]}
    made = t.commit(CommitPlan("OVERWRITE", overwrite=Overwrite({"p": 3})))
    assert set(t.entries()) == {fresh}
    made = t.commit(CommitPlan("OVERWRITE", overwrite=Overwrite()))
    assert (made.index_manifest, t.entries(), t.files()) == (None, [], set())


def test_vectors_go_with_the_files_that_a_compaction_replaces(tmp_path: Path) -> None:
    t = T.make(tmp_path / "t")
    a, b = t.file("a"), t.file("b")
    t.add(a, b)
    base = t.vectors({"a": {1}, "b": {2}})
    t.mark([], base)
    up = dataclasses.replace(b, file=dataclasses.replace(b.file, level=4))
    out = t.file("c", level=5)
    # The change still names "a", which is rewritten; "b" is lifted to another level and keeps its vector.
    new = t.vectors({"a": {1}, "b": {2, 3}})
    t.commit(CommitPlan("COMPACT", (up, out), (a, b), index=(t.change([base], new),)))
    assert t.marks() == {"b": {2, 3}}
    assert t.files() == {"b", "c"}


def test_a_vector_of_a_file_that_is_long_gone_is_carried_over_as_it_is(tmp_path: Path) -> None:
    t = T.make(tmp_path / "t", **{"deletion-vectors.enabled": "false"})
    gone = t.file("gone")
    t.add(gone, t.file("b"))
    base = t.vectors({"gone": {1}})
    t.mark([], base)
    t.commit(CommitPlan("COMPACT", (), (gone,)))
    assert t.marks() == {"gone": {1}}
    for marks in ({"gone": {1, 2}}, {"gone": {1}, "never": {1}}):
        with pytest.raises(CommitConflict, match=f"data file {max(marks)}, .* no longer live"):
            t.mark([base], t.vectors(marks))
    new = t.vectors({"gone": {1}, "b": {2}})
    t.mark([base], new)
    assert t.marks() == {"gone": {1}, "b": {2}}


@pytest.mark.parametrize("wide", [False, True])
def test_vectors_are_written_in_the_width_of_the_table(tmp_path: Path, wide: bool) -> None:
    """``deletion-vectors.bitmap64``, whatever width a vector was read in: Paimon does not merge the two."""
    t = T.make(tmp_path / "t", **{"deletion-vectors.bitmap64": str(wide).lower()})
    given = {n: DeletionVector.of(np.array([i, 7]), bool(i)) for i, n in enumerate(("narrow", "wide"))}
    given["none"] = DeletionVector.of(np.array([], np.int64), wide)
    files, place = TableFiles(STORE, t.paths), (t.partition(None), 0)
    entries = [write_vectors(files, t.schema, *place, given)]
    assert [e.file_name[-2:] for e in (*entries, t.hashes(1))] == ["-0", "-0"]
    for entry in (*entries, *write_vectors_rolling(files, t.schema, *place, given)):
        vectors = read_vectors(files, t.schema, entry)
        assert {n: (v.wide, set(v.positions())) for n, v in vectors.items()} == {
            "narrow": (wide, {0, 7}),
            "wide": (wide, {1, 7}),
        }
        assert entry.row_count == 2


# --- merging ----------------------------------------------------------------------------------------------------------

_MARKS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sets(st.integers(0, ROWS - 1), max_size=8), max_size=3)


@settings(max_examples=60, deadline=None)
@given(base=_MARKS, mine=_MARKS, theirs=_MARKS, key=st.booleans())
def test_a_three_way_merge_is_set_algebra(
    tmp_path_factory: pytest.TempPathFactory, base: Positions, mine: Positions, theirs: Positions, key: bool
) -> None:
    t = T.make(tmp_path_factory.mktemp("t"), key=key)
    t.add(t.file("a"), t.file("b"), t.file("c"))

    def union(x: Positions, y: Positions) -> dict[str, set[int]]:
        return {n: x.get(n, set()) | y.get(n, set()) for n in {*x, *y}}

    def entries(marks: Positions) -> list[IndexFileEntry]:
        return [t.vectors(marks)] if any(marks.values()) else []

    before = entries(base)
    if before:
        t.mark([], *before)
    ours, others = union(base, mine), union(base, theirs)
    they = entries(others)
    if they:
        t.mark(before, *they)
    added = {n: ours[n] - base.get(n, set()) for n in ours}
    twice = any(added[n] & (others.get(n, set()) - base.get(n, set())) for n in added)
    change = entries(ours)
    if not change:
        return
    if twice:
        with pytest.raises(CommitConflict, match="deleted by another commit too"):
            t.mark(before, *change)
        assert t.marks() == {n: v for n, v in others.items() if v}
    else:
        t.mark(before, *change)
        assert t.marks() == {n: v for n, v in union(others, ours).items() if v}


def test_vectors_that_a_change_takes_away_go_from_the_newer_ones_too(tmp_path: Path) -> None:
    """A compaction rewrote `a`; meanwhile rows of `b` were deleted."""
    t = T.make(tmp_path / "t")
    a, b = t.file("a"), t.file("b")
    t.add(a, b)
    base = t.vectors({"a": {1}, "b": {2}})
    t.mark([], base)
    t.mark([base], t.vectors({"a": {1}, "b": {2, 7}}))
    new = t.vectors({"b": {2}})
    t.commit(CommitPlan("COMPACT", (t.file("c", level=5),), (a,), index=(t.change([base], new),)))
    assert t.marks() == {"b": {2, 7}}
    assert new.file_name not in t.on_disk(), "the file that a merged one replaces is of no use"


def test_rows_deleted_meanwhile_from_a_file_that_a_compaction_replaces(tmp_path: Path) -> None:
    t = T.make(tmp_path / "t")
    a, b = t.file("a"), t.file("b")
    t.add(a, b)
    base = t.vectors({"a": {1}})
    t.mark([], base)
    t.mark([base], t.vectors({"a": {1, 2}}))
    compacted = (t.file("c", level=5),)
    with pytest.raises(CommitConflict, match="deleted 1 rows of data file a"):
        t.commit(CommitPlan("COMPACT", compacted, (a,), index=(t.change([base], t.vectors({})),)))
    with pytest.raises(CommitConflict, match="data file a .* does not know of"):
        t.commit(CommitPlan("COMPACT", compacted, (a,)))
    assert t.files() == {"a", "b"}
    assert t.marks() == {"a": {1, 2}}


def test_rows_of_a_file_that_was_replaced_meanwhile(tmp_path: Path) -> None:
    t = T.make(tmp_path / "t", key=False)
    a = t.file("a")
    t.add(a, t.file("b"))
    t.commit(CommitPlan("COMPACT", (t.file("c"),), (a,)))
    with pytest.raises(CommitConflict, match="a, of which rows are to be deleted, is no longer live"):
        t.mark([], t.vectors({"a": {1}}), kind="APPEND")
    t.mark([], t.vectors({"b": {1}}))
    with pytest.raises(CommitConflict, match="no longer live"):
        t.mark([], t.vectors({"a": {1}, "b": {2}}))
    assert t.marks() == {"b": {1}}


def test_vectors_of_files_long_gone_do_no_harm(tmp_path: Path) -> None:
    """They stay when vectors are switched off and files are rewritten: index-format spec, trap 26."""
    t = T.make(tmp_path / "t", key=False)
    a = t.file("a")
    t.add(a, t.file("b"))
    t.mark([], base := t.vectors({"a": {1}}))
    off = dataclasses.replace(t, schema=t.schema.with_options({"deletion-vectors.enabled": "false"}))
    off.commit(CommitPlan("COMPACT", (t.file("c"),), (a,)))
    assert t.entries() == [base]
    t.mark([base], new := t.vectors({"a": {1}, "b": {3}}))
    t.mark([base], t.vectors({"a": {1}, "c": {4}}))
    assert t.marks() == {"b": {3}, "c": {4}}
    assert new.file_name in t.on_disk()


def test_an_unaware_bucket_has_many_files_and_changes_meet_by_data_file(tmp_path: Path) -> None:
    t = T.make(tmp_path / "t", key=False)
    small = t.schema.with_options({"deletion-vector.index-file.target-size": "1 b"})
    t.add(*(t.file(n) for n in "abcd"))
    marks = {n: DeletionVector.of(np.array([1])) for n in "abc"}
    a, b, c = write_vectors_rolling(TableFiles(STORE, t.paths), small, EMPTY_ROW, 0, marks)
    t.mark([], a, b, c)
    t.mark([a], a2 := t.vectors({"a": {1, 2}}))
    t.mark([b], b2 := t.vectors({"b": {1, 3}, "d": {9}}))
    assert set(t.entries()) == {a2, b2, c}
    # Computed on [a] and unaware of a2: merged.  Not touching c, whose entry stays as it is.
    t.mark([a], t.vectors({"a": {1, 8}}))
    assert t.marks() == {"a": {1, 2, 8}, "b": {1, 3}, "c": {1}, "d": {9}}
    assert c in t.entries()
    assert b2 in t.entries()
    # A first vector for a data file that got one meanwhile.
    t.mark([], t.vectors({"d": {5}}))
    assert t.marks() == {"a": {1, 2, 8}, "b": {1, 3}, "c": {1}, "d": {5, 9}}
    with pytest.raises(CommitConflict, match="deleted by another commit too"):
        t.mark([], t.vectors({"d": {5}}))


def test_two_writers_of_one_hash_index(tmp_path: Path) -> None:
    t = T.make(tmp_path / "t", bucket="-1")
    base = t.hashes(1, 2)
    t.commit(CommitPlan("APPEND", (t.file("a"),), index=(t.change([], base),)))
    with pytest.raises(CommitConflict, match="HASH index of bucket 0"):
        t.commit(CommitPlan("APPEND", (t.file("b"),), index=(t.change([], t.hashes(3)),)))
    t.commit(CommitPlan("APPEND", (t.file("b"),), index=(t.change([base], t.hashes(1, 2, 3)),)))
    with pytest.raises(CommitConflict, match="HASH index of bucket 0"):
        t.commit(CommitPlan("APPEND", (t.file("c"),), index=(t.change([base], t.hashes(1, 2, 4)),)))
    assert t.files() == {"a", "b"}


def test_vectors_read_before_that_have_expired(tmp_path: Path) -> None:
    t = T.make(tmp_path / "t")
    t.add(t.file("a"))
    t.mark([], base := t.vectors({"a": {1}}))
    t.mark([base], t.vectors({"a": {1, 2}}))
    STORE.delete(index_path(t.paths, t.schema, base))
    with pytest.raises(CommitConflict, match="have expired"):
        t.mark([base], t.vectors({"a": {1, 3}}))


# --- races and failures -----------------------------------------------------------------------------------------------


def test_the_loser_of_a_race_merges(tmp_path: Path) -> None:
    t = T.make(tmp_path / "t")
    t.add(t.file("a"), t.file("b"))
    t.mark([], base := t.vectors({"a": {1}}))
    mine = CommitPlan("COMPACT", index=(t.change([base], t.vectors({"a": {1, 5}, "b": {6}})),))
    store = Meddling(lambda: t.mark([base], t.vectors({"a": {1, 2}})))
    made = t.commit(mine, store)
    assert made.id == 4
    assert t.marks() == {"a": {1, 2, 5}, "b": {6}}
    used = {
        e.file_name
        for s in range(1, 5)
        for e in index_entries(TableFiles(STORE, t.paths), versions.load_snapshot(TableFiles(STORE, t.paths), s))
    }
    assert t.on_disk() == used, "no index file is left over"


def test_a_merge_that_loses_again_leaves_no_file(tmp_path: Path) -> None:
    t = T.make(tmp_path / "t")
    t.add(t.file("a"), t.file("b"))
    t.mark([], base := t.vectors({"a": {1}}))
    t.mark([base], t.vectors({"a": {1, 2}}))
    latest = t.entries()
    store = Meddling(lambda: t.mark(latest, t.vectors({"a": {1, 2, 3}})))
    t.commit(CommitPlan("COMPACT", index=(t.change([base], t.vectors({"b": {6}, "a": {1}})),)), store)
    assert t.marks() == {"a": {1, 2, 3}, "b": {6}}
    used = {
        e.file_name
        for s in range(1, 6)
        for e in index_entries(TableFiles(STORE, t.paths), versions.load_snapshot(TableFiles(STORE, t.paths), s))
    }
    assert t.on_disk() == used


def test_two_committers_delete_rows_of_the_same_files_at_once(tmp_path: Path) -> None:
    """Each goes for rows of its own and for some that both want: all go, and each row that both want goes once."""
    t = T.make(tmp_path / "t")
    t.add(t.file("a"), t.file("b"))
    won: dict[str, set[int]] = {"even": set(), "odd": set()}

    def work(who: str) -> None:
        for i in range(15):
            own, both = 2 * i + (who == "odd"), 60 + i
            for row in (own, both):
                base = t.entries()
                old = {n: v for e in base for n, v in read_vectors(TableFiles(STORE, t.paths), t.schema, e).items()}
                marks = {n: set(v.positions().tolist()) for n, v in old.items()}
                if row in marks.get("a", set()):
                    continue
                marks["a"] = marks.get("a", set()) | {row}
                try:
                    t.mark(base, t.vectors(marks))
                    won[who].add(row)
                except CommitConflict:
                    assert row == both, "nobody else deletes this row"

    threads = [threading.Thread(target=work, args=(who,)) for who in won]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not won["even"] & won["odd"]
    assert won["even"] | won["odd"] == {*range(30), *range(60, 75)}
    assert t.marks() == {"a": won["even"] | won["odd"]}


@pytest.mark.parametrize("after", [exhaustive(False), True])
@pytest.mark.parametrize("dead", [False, True])
def test_failing_each_call_in_turn_shows_the_old_vectors_or_the_new(tmp_path: Path, after: bool, dead: bool) -> None:
    number = 0
    while True:
        t = T.make(tmp_path / f"t{number}", **{"commit.max-retries": "0" if dead else "3"})
        t.add(t.file("a"))
        t.mark([], base := t.vectors({"a": {1}}))
        t.mark([base], t.vectors({"a": {1, 2}}))
        plan = CommitPlan("COMPACT", index=(t.change([base], t.vectors({"a": {1, 5}})),), changelog=(t.file("log"),))
        forget()
        store = FaultyStore(STORE, number, after=after, dead=dead)
        try:
            t.commit(plan, store)
            done = True
        except StorageUnavailable:
            done = False
            assert dead
        forget()
        found = t.marks()
        assert found in ({"a": {1, 2}}, {"a": {1, 2, 5}})
        assert not done or found == {"a": {1, 2, 5}}
        for n in versions.snapshot_ids(TableFiles(STORE, t.paths)):
            for e in index_entries(TableFiles(STORE, t.paths), versions.load_snapshot(TableFiles(STORE, t.paths), n)):
                assert e.file_name in t.on_disk()
        if not store.failed:
            break
        number += 1
    assert number > 10


def test_plans_that_no_table_could_take(tmp_path: Path) -> None:
    t = T.make(tmp_path / "t")
    t.add(t.file("a"))
    change = t.change([], t.vectors({"a": {1}}))
    with pytest.raises(InvalidRequest, match="twice"):
        t.commit(CommitPlan("COMPACT", index=(change, change)))
    other = dataclasses.replace(change, index_type="SOMETHING")
    t.commit(
        CommitPlan(
            "COMPACT",
            index=(
                dataclasses.replace(
                    other, new=(dataclasses.replace(other.new[0], index_type="SOMETHING", ranges=None),)
                ),
            ),
        )
    )
    with pytest.raises(CommitConflict, match="SOMETHING index"):
        t.commit(CommitPlan("COMPACT", index=(other,)))
    assert DELETION_VECTORS not in {e.index_type for e in t.entries()}
    assert HASH not in {e.index_type for e in t.entries()}
