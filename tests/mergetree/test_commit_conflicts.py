"""Commits of primary-key tables: levels above 0, what compactions rely on, and changelogs as Paimon publishes them."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures import warehouse

from bitlake.codec.binary_row import EMPTY_ROW, encode_row_with_arity
from bitlake.errors import CommitConflict, InvalidRequest
from bitlake.io.local import LocalStore
from bitlake.mergetree.bucket import BucketState, Compaction
from bitlake.mergetree.commit import _is_current
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema, assign_ids
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot import manifests, versions
from bitlake.snapshot.table_files import TableFiles
from bitlake.types import parse_type
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan, Overwrite

STORE = LocalStore()
KEY = [parse_type("INT NOT NULL"), parse_type("STRING NOT NULL")]


def make(root: Path) -> tuple[TablePaths, TableSchema]:
    fields, highest = assign_ids([("k", KEY[0], None), ("s", KEY[1], None)])
    schema = TableSchema(0, fields, highest, (), ("k", "s"), {"bucket": "2"})
    paths = TablePaths(str(root))
    assert STORE.create(paths.schema(0), schema.to_json().encode())
    return paths, schema


def entry(
    name: str, level: int, low: tuple[int, str] = (0, "a"), high: tuple[int, str] = (9, "z"), bucket: int = 0
) -> ManifestEntry:
    keys = (encode_row_with_arity(KEY, k) for k in (low, high))
    file = DataFileMeta(name, 9, 10, *keys, EMPTY_STATS, EMPTY_STATS, 0, 9, 0, level, value_stats_cols=())
    return ManifestEntry(EntryKind.ADD, EMPTY_ROW, bucket, 2, file)


def run(table: tuple[TablePaths, TableSchema], plan: CommitPlan) -> Snapshot:
    made = commit(STORE, table[0], plan, table[1], "me")
    assert made is not None
    return made


def test_a_compaction_holds_while_the_files_above_level_0_stay() -> None:
    old, read, late = entry("old", 1), entry("read", 0), entry("late", 0)
    base = BucketState(EMPTY_ROW, 0, 2, (read, old))
    compaction = Compaction(before=(read,), after=(entry("new", 5),))
    assert _is_current(compaction, base, replace(base, files=(read, old, late)))
    assert not _is_current(compaction, base, replace(base, files=(read, old, entry("other", 1))))
    assert not _is_current(compaction, base, replace(base, files=(old,)))
    assert not _is_current(compaction, base, None)


def test_files_of_one_level_do_not_overlap(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    a = entry("a", 5, (0, "a"), (5, "m"))
    run(table, CommitPlan("COMPACT", (a,)))
    touching = CommitPlan("COMPACT", (entry("b", 5, (5, "m"), (9, "z")),))
    with pytest.raises(CommitConflict, match=r"a and b of level 5 in bucket 0 .* keys in common"):
        run(table, touching)
    with pytest.raises(CommitConflict, match="keys in common"):
        run(table, CommitPlan("COMPACT", (entry("c", 4), entry("d", 4, (9, "z"), (9, "z")))))
    run(table, CommitPlan("COMPACT", (entry("b", 5, (5, "n"), (9, "z")), entry("c", 4))))
    run(table, CommitPlan("COMPACT", (entry("d", 5, bucket=1),)))
    run(table, CommitPlan("APPEND", (entry("e", 0), entry("f", 0))))
    # What it replaces does not count.
    run(table, CommitPlan("COMPACT", (entry("g", 5, (0, "a"), (5, "m")),), (a,)))
    # Nor does what it overwrites: Paimon lifts the files of an overwrite straight to the highest level.
    run(table, CommitPlan("OVERWRITE", (entry("h", 5),), overwrite=Overwrite()))


def test_a_compaction_must_have_looked_into_every_file_above(tmp_path: Path) -> None:
    """Two writers compact new files at once: each looked only into what was there before the other."""
    table = make(tmp_path / "t")
    one, two, far = entry("one", 0), entry("two", 0), entry("far", 0, (10, "a"), (11, "a"))
    seen = run(table, CommitPlan("APPEND", (one, two, far))).id
    run(table, CommitPlan("COMPACT", (entry("up1", 5),), (one,), computed_on=seen))
    mine = CommitPlan("COMPACT", (entry("up2", 4),), (two,), computed_on=seen)
    with pytest.raises(CommitConflict, match="up1 was added to bucket 0 .* may hold keys of two"):
        run(table, mine)
    elsewhere = entry("up3", 4, (10, "a"), (11, "a"))
    run(table, CommitPlan("COMPACT", (elsewhere,), (far,), computed_on=seen))
    three = entry("three", 0)
    seen = run(table, CommitPlan("APPEND", (three,))).id
    run(table, CommitPlan("COMPACT", (entry("up4", 3),), (three,), computed_on=seen))
    STORE.delete(table[0].snapshot(1))
    with pytest.raises(CommitConflict, match="snapshot 1 .* has expired"):
        run(table, CommitPlan("COMPACT", (entry("up5", 2),), computed_on=1))


def test_a_compaction_made_for_another_mode(tmp_path: Path) -> None:
    """A writer compacted while deletion vectors were switched on: its output would show older versions of rows."""
    paths, schema = make(tmp_path / "t")
    old = entry("old", 0)
    run((paths, schema), CommitPlan("APPEND", (old,)))
    on = schema.next(options={**schema.options, "deletion-vectors.enabled": "true"})
    assert STORE.create(paths.schema(1), on.to_json().encode())
    plan = CommitPlan("COMPACT", (entry("new", 4),), (old,))
    with pytest.raises(CommitConflict, match="deletion vectors of table .* were switched on"):
        run((paths, schema), plan)
    assert run((paths, schema), CommitPlan("APPEND", (entry("more", 0),))).schema_id == 1
    run((paths, on), plan)
    off = on.next(options=schema.options)
    assert STORE.create(paths.schema(2), off.to_json().encode())
    with pytest.raises(CommitConflict, match="were switched off"):
        run((paths, on), CommitPlan("COMPACT", (entry("newer", 5),), (entry("new", 4),)))


def test_an_operation_that_paimon_does_not_know(tmp_path: Path) -> None:
    """Java reads the word into an enum: with another one, no reader of Paimon's could open the table any more."""
    paths, schema = make(tmp_path / "t")
    with pytest.raises(InvalidRequest, match="operation 'COMPACT'"):
        commit(STORE, paths, CommitPlan("COMPACT", (entry("a", 0),)), schema, "me", operation="COMPACT")
    assert versions.latest_snapshot(TableFiles(STORE, paths)) is None


def test_levels_are_for_primary_keys(tmp_path: Path) -> None:
    paths, schema = make(tmp_path / "t")
    with pytest.raises(InvalidRequest, match="no primary key"):
        run((paths, dataclasses.replace(schema, primary_keys=())), CommitPlan("COMPACT", (entry("a", 1),)))


# --- changelog --------------------------------------------------------------------------------------------------------


def with_changelog() -> list[tuple[Path, int]]:
    out = []
    for folder in sorted(p.parent for p in warehouse().glob("*.db/*/schema")):
        paths = TablePaths(str(folder))
        for number in versions.snapshot_ids(TableFiles(STORE, paths)):
            if versions.load_snapshot(TableFiles(STORE, paths), number).changelog_manifest_list is not None:
                out.append((folder, number))
    return out


def test_changelogs_of_paimon_are_published_again_as_they_were(tmp_path: Path) -> None:
    """Each of Paimon's changelogs, committed by us: same members of the snapshot, same records of list and manifest."""
    found = with_changelog()
    assert len(found) == 4
    for i, (folder, number) in enumerate(found):
        theirs = TablePaths(str(folder))
        schema = versions.latest_schema(TableFiles(STORE, theirs))
        assert schema is not None
        old = versions.load_snapshot(TableFiles(STORE, theirs), number)
        assert old.changelog_manifest_list is not None
        metas = manifests.read_manifest_list(TableFiles(STORE, theirs), old.changelog_manifest_list)
        assert old.changelog_manifest_list_size == STORE.size(theirs.manifest(old.changelog_manifest_list))
        entries = tuple(e for m in metas for e in manifests.read_manifest(TableFiles(STORE, theirs), m.file_name))
        assert old.changelog_record_count == sum(e.file.row_count for e in entries)
        assert {e.kind for e in entries} == {EntryKind.ADD}

        paths = TablePaths(str(tmp_path / str(i)))
        assert STORE.create(paths.schema(schema.id), schema.to_json().encode())
        made = commit(STORE, paths, CommitPlan("COMPACT", changelog=entries), schema, "me")
        assert made is not None
        text = json.loads(Path(paths.snapshot(1)).read_bytes())
        theirs_text = json.loads(Path(theirs.snapshot(number)).read_bytes())
        assert text["changelogRecordCount"] == theirs_text["changelogRecordCount"]
        order = [m for m in text if "hangelog" in m]
        assert order == [m for m in theirs_text if "hangelog" in m]
        assert order == ["changelogManifestList", "changelogManifestListSize", "changelogRecordCount"]
        assert text["changelogManifestListSize"] == STORE.size(paths.manifest(text["changelogManifestList"]))
        again = manifests.read_manifest_list(TableFiles(STORE, paths), text["changelogManifestList"])
        assert (
            tuple(e for m in again for e in manifests.read_manifest(TableFiles(STORE, paths), m.file_name)) == entries
        )
        # Names and sizes (Avro's header) are each writer's own; all else says the same.
        plain = [dataclasses.replace(m, file_name="", file_size=0) for m in again]
        assert plain == [dataclasses.replace(m, file_name="", file_size=0) for m in metas]
        assert (made.total_record_count, made.delta_record_count) == (0, 0)


def test_a_commit_without_changes_has_no_changelog(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    made = run(table, CommitPlan("APPEND", (entry("a", 0),)))
    assert (made.changelog_manifest_list, made.changelog_record_count) == (None, None)
    text = Path(table[0].snapshot(1)).read_text()
    assert "changelog" not in text
    made = run(table, CommitPlan("APPEND", (entry("b", 0),), changelog=(entry("log", 0),)))
    assert made.changelog_record_count == 10
    assert made.total_record_count == 20, "changelog rows are no rows of the table"
    later = run(table, CommitPlan("APPEND", (entry("c", 0),)))
    assert later.changelog_manifest_list is None


def test_an_overwrite_has_no_changelog(tmp_path: Path) -> None:
    plan = CommitPlan("OVERWRITE", overwrite=Overwrite(), changelog=(entry("log", 0),))
    with pytest.raises(InvalidRequest, match="cannot publish a changelog"):
        run(make(tmp_path / "t"), plan)
