"""Expiring snapshots: what is kept stays readable, what nobody needs goes, and a kill on the way harms nothing."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from builders import terms
from caches import forget
from store_wrappers import WRITES, FaultyStore

import bitlake
from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.errors import CorruptError, InvalidRequest, NotFound, StorageUnavailable
from bitlake.metadata.manifest import MANIFEST, ManifestEntry, encode_manifest_list
from bitlake.snapshot import manifests, references
from bitlake.snapshot.expiry import Retention, expire, plan_expiry
from bitlake.snapshot.manifests import partition_stats
from bitlake.snapshot.state import state_at
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import snapshot_ids
from bitlake.table.table import Table
from bitlake.types import parse_type

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])
STRING = [parse_type("STRING")]
EVERYTHING = Retention(retain_max=1, retain_min=1, older_than_ms=1 << 60, max_deletes=1 << 30)


def rows(ids: range, p: str = "a") -> pa.Table:
    return pa.table({"id": list(ids), "p": [p] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    lake = bitlake.connect(str(tmp_path / "lake"))
    options = {"file-index.bitmap.columns": "p", "file-index.in-manifest-threshold": "0 b"}
    made = lake.create_table("default.t", SCHEMA, partition_by=["p"], options=options)
    for i in range(4):
        made.append(rows(range(10 * i, 10 * i + 10), "ab"[i % 2]))
    made.overwrite(rows(range(100, 105)), {"p": "a"})
    made.append(rows(range(200, 203), "c"))
    made.truncate({"p": "b"})
    return made


def files_of(table: Table) -> set[str]:
    root = Path(table.path)
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


def contents(table: Table) -> dict[int, list[int]]:
    ids = snapshot_ids(table._core.state().table_files)
    return {i: sorted(table.scan(snapshot=i).to_arrow().column("id").to_pylist()) for i in ids}


def test_kept_snapshots_read_as_before_and_only_what_they_need_is_left(table: Table) -> None:
    before = contents(table)
    done = table.maintenance.expire_snapshots(retain_max=3, retain_min=1, older_than=0)
    assert done.snapshots == (1, 2, 3, 4) and done.end == 5
    forget()
    assert contents(table) == {i: before[i] for i in (5, 6, 7)}
    table.maintenance.expire_snapshots(**terms(EVERYTHING))
    forget()
    assert contents(table) == {7: before[7]}
    left = files_of(table)
    state = table._core.state()
    live = {e.file.file_name for e in state.entries()}
    assert {Path(f).name for f in left if f.endswith(".parquet")} == live
    assert {Path(f).name for f in left if f.endswith(".index")} == {
        x for e in state.entries() for x in e.file.extra_files
    }
    assert "snapshot/EARLIEST" in left and Path(table.path, "snapshot/EARLIEST").read_text() == "7"
    assert not any("p=b/" in f for f in left)
    table.append(rows(range(300, 301)))
    assert 300 in contents(table)[8]


@pytest.mark.parametrize("many", [1, 5_000])
def test_entries_of_partitions_that_lost_no_file_are_not_decoded(
    table: Table, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only partitions a and b lost files; the sixth snapshot wrote to c.  Small manifests are decoded whole."""
    table.history.create_tag("early", 2)
    for module in (references, manifests):
        monkeypatch.setattr(module, "MANY_ENTRIES", many)
    state = table._core.state()
    of_c = {e.file.file_name for e in state_at(state, 6).entries()} - {
        e.file.file_name for e in state_at(state, 5).entries()
    }
    tagged = {e.file.file_name for e in state_at(state, 2).entries()}
    forget()
    decoded: set[str] = set()
    decode = manifests.decode_manifest

    def noted(data: bytes, partitions: frozenset[bytes] | None = None) -> list[ManifestEntry]:
        found = decode(data, partitions)
        decoded.update(e.file.file_name for e in found)
        return found

    monkeypatch.setattr(manifests, "decode_manifest", noted)
    found = plan_expiry(state.table_files, state.schema, EVERYTHING)
    assert tagged <= decoded and len(of_c) == 1 and (of_c <= decoded) == (many > 1)
    assert found.data_files and not tagged & {path.rsplit("/", 1)[-1] for path in found.data_files}
    monkeypatch.undo()
    before = contents(table)
    table.maintenance.expire_snapshots(**terms(EVERYTHING))
    forget()
    assert contents(table) == {7: before[7]} and table.scan(tag="early").count() == len(before[2])


def test_statistics_of_other_writers_do_not_make_a_file_unneeded(tmp_path: Path) -> None:
    """This list says that all partitions are NULL, and that none is."""
    table = bitlake.connect(str(tmp_path / "lake")).create_table("t", SCHEMA, partition_by=["p"])
    table.append(pa.table({"id": [1, 2], "p": [None, "z"]}, schema=SCHEMA))
    state = table._core.state()
    assert state.snapshot is not None
    (meta,) = manifests.read_manifest_list(state.table_files, state.snapshot.delta_manifest_list)
    wrong = replace(partition_stats([encode_row_with_arity(STRING, [None])], STRING), null_counts=(0,))
    changed = encode_manifest_list([replace(meta, partition_stats=wrong)], 1)
    Path(state.paths.manifest(state.snapshot.delta_manifest_list)).write_bytes(changed)
    snapshot = replace(state.snapshot, delta_manifest_list_size=len(changed))
    Path(state.paths.snapshot(1)).write_text(snapshot.to_json())
    forget()
    table.history.create_tag("early", 1)
    table.overwrite(rows(range(3), "z"), {"p": "z"})
    table.overwrite(pa.table({"id": [7], "p": [None]}, schema=SCHEMA), {"p": None})
    table.maintenance.expire_snapshots(**terms(EVERYTHING))
    forget()
    assert sorted(table.scan(tag="early").to_arrow().column("id").to_pylist()) == [1, 2]


def test_a_truncated_manifest_of_a_tag_stops_expiry(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of which only some partitions are decoded: the files of missing entries would be deleted."""
    table.history.create_tag("early", 2)
    state = table._core.state()
    metas = manifests.snapshot_manifests(state.table_files, state_at(state, 2).snapshot)
    path = Path(state.paths.manifest(metas[0].file_name))
    path.write_bytes(MANIFEST.encode([], 1))
    for module in (references, manifests):
        monkeypatch.setattr(module, "MANY_ENTRIES", 1)
    forget()
    before = files_of(table)
    with pytest.raises(CorruptError, match="the manifest has 0 entries; its list records 1"):
        table.maintenance.expire_snapshots(**terms(EVERYTHING))
    assert files_of(table) == before


def test_a_dry_run_says_what_goes_and_deletes_nothing(table: Table) -> None:
    before = files_of(table)
    would = table.maintenance.expire_snapshots(**terms(EVERYTHING), dry_run=True)
    assert files_of(table) == before
    assert would == table.maintenance.expire_snapshots(**terms(EVERYTHING))
    gone = before - files_of(table)
    named = {
        *would.data_files,
        *would.metadata_files,
        *(f"{table.path}/snapshot/snapshot-{i}" for i in would.snapshots),
    }
    assert {f"{table.path}/{f}" for f in gone} == named


def test_what_the_options_say(table: Table) -> None:
    assert table.maintenance.expire_snapshots().snapshots == ()  # seven are fewer than the ten always kept
    table.alter_options({"snapshot.num-retained.min": "2"})
    assert table.maintenance.expire_snapshots().snapshots == ()  # all are younger than an hour
    table.alter_options({"snapshot.time-retained": "0 ms", "snapshot.expire.limit": "2"})
    assert table.maintenance.expire_snapshots(older_than=1 << 60).snapshots == (1, 2)
    table.alter_options({"snapshot.expire.limit": "50"})
    assert table.maintenance.expire_snapshots(older_than=1 << 60).end == 6


def test_only_snapshots_superseded_before_the_time_go(table: Table) -> None:
    third = table.scan(snapshot=3)._core.state.snapshot
    fourth = table.scan(snapshot=4)._core.state.snapshot
    assert third is not None and fourth is not None
    snapshot = Path(table.path, "snapshot", "snapshot-3")
    snapshot.write_text(snapshot.read_text().replace(str(third.time_millis), str(third.time_millis - 1000)))
    retention = Retention(retain_max=100, retain_min=1, older_than_ms=third.time_millis - 999)
    assert table.maintenance.expire_snapshots(**terms(retention)).end in (1, 2)
    assert 3 in contents(table)


def test_a_consumer_holds_what_it_reads_next(table: Table) -> None:
    folder = Path(table.path, "consumer")
    folder.mkdir()
    (folder / "consumer-a").write_text(json.dumps({"nextSnapshot": 5}))
    (folder / "consumer-b").write_text(json.dumps({"nextSnapshot": 3}))
    assert table.maintenance.expire_snapshots(**terms(EVERYTHING)).end == 3
    (folder / "consumer-b").write_text("{}")
    with pytest.raises(bitlake.errors.CorruptError, match="consumer-b"):
        table.maintenance.expire_snapshots(**terms(EVERYTHING))


def test_consumers_hold_no_snapshot_where_they_hold_changelogs_only(table: Table) -> None:
    """``consumer.changelog-only`` had no effect; Paimon's expiry then passes over consumers."""
    folder = Path(table.path, "consumer")
    folder.mkdir()
    (folder / "consumer-a").write_text(json.dumps({"nextSnapshot": 2}))
    table.alter_options({"consumer.changelog-only": "true"})
    assert table.maintenance.expire_snapshots(**terms(EVERYTHING)).end > 2
    assert table.history.consumers() == {"a": 2}


def test_a_consumer_without_progress_expires(table: Table) -> None:
    # As Paimon's commits; the option was ignored, so that an abandoned consumer held snapshots back for good.
    folder = Path(table.path, "consumer")
    folder.mkdir()
    for name, number, age_s in (("old", 2, 90_000), ("new", 4, 80_000)):
        file = folder / f"consumer-{name}"
        file.write_text(json.dumps({"nextSnapshot": number}))
        os.utime(file, (time.time() - age_s,) * 2)
    assert table.maintenance.expire_snapshots(**terms(EVERYTHING), dry_run=True).end == 2
    table.alter_options({"consumer.expiration-time": "1 d"})
    assert table.maintenance.expire_snapshots(**terms(EVERYTHING), dry_run=True).end == 4
    assert len(list(folder.iterdir())) == 2
    assert table.maintenance.expire_snapshots(**terms(EVERYTHING)).end == 4
    assert [f.name for f in folder.iterdir()] == ["consumer-new"]


@pytest.mark.parametrize("where", ["tag", "branch/branch-dev/tag", "branch/branch-dev/snapshot"])
def test_tags_and_branches_hold_their_files(table: Table, where: str) -> None:
    wanted = contents(table)[2]
    text = Path(table.path, "snapshot", "snapshot-2").read_text()
    folder = Path(table.path, where)
    folder.mkdir(parents=True)
    (folder / ("snapshot-2" if where.endswith("snapshot") else "tag-kept")).write_text(text)
    table.maintenance.expire_snapshots(**terms(EVERYTHING))
    forget()
    assert 2 not in contents(table)
    Path(table.path, "snapshot", "snapshot-2").write_text(text)
    assert sorted(table.scan(snapshot=2).to_arrow().column("id").to_pylist()) == wanted


def test_a_tag_that_cannot_be_read_stops_expiry(table: Table) -> None:
    folder = Path(table.path, "tag")
    folder.mkdir()
    (folder / "tag-broken").write_text("{")
    before = files_of(table)
    with pytest.raises(bitlake.errors.CorruptError, match="tag-broken"):
        table.maintenance.expire_snapshots(**terms(EVERYTHING))
    assert files_of(table) == before


def test_killed_at_any_step_it_goes_on_the_next_time(table: Table, tmp_path: Path) -> None:
    wanted = contents(table)[7]
    whole = tmp_path / "whole"
    shutil.copytree(table.path, whole)
    table.maintenance.expire_snapshots(**terms(EVERYTHING))
    done = files_of(table)
    steps = 0
    for step in range(100):
        shutil.rmtree(table.path)
        shutil.copytree(whole, table.path)
        forget()
        state = table._core.state()
        store = FaultyStore(table._core.store, fail_at=step, dead=True, only=WRITES)
        try:
            expire(TableFiles(store, state.paths), state.schema, EVERYTHING)
            break
        except StorageUnavailable:
            steps += 1
        forget()
        assert sorted(table.scan().to_arrow().column("id").to_pylist()) == wanted
        table.maintenance.expire_snapshots(**terms(EVERYTHING))
        assert files_of(table) == done, f"killed at step {step}"
    assert steps > 20


def test_a_snapshot_that_is_not_there_is_named_with_those_that_are(table: Table) -> None:
    table.maintenance.expire_snapshots(retain_max=2, retain_min=1, older_than=0)
    with pytest.raises(NotFound, match=r"no snapshot 2: snapshots 6 to 7 are kept"):
        table.scan(snapshot=2)


@pytest.mark.parametrize("option", ["changelog.num-retained.min", "changelog.num-retained.max"])
def test_changelogs_that_are_to_outlive_their_snapshots_stop_expiry(table: Table, option: str) -> None:
    table.alter_options({"snapshot.num-retained.max": "50", option: "50"})
    if option.endswith("max"):
        assert table.maintenance.expire_snapshots(**terms(EVERYTHING)).snapshots  # as long as snapshots is no longer
        table.alter_options({option: "51"})
    before = files_of(table)
    with pytest.raises(bitlake.errors.UnsupportedFeature, match=option):
        table.maintenance.expire_snapshots(**terms(EVERYTHING))
    assert files_of(table) == before


def test_numbers_that_contradict_each_other_are_refused(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="retain_max"):
        table.maintenance.expire_snapshots(retain_max=1, retain_min=3)
    with pytest.raises(InvalidRequest, match="at least 1"):
        table.maintenance.expire_snapshots(retain_max=0)
