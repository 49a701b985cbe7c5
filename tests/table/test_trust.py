"""A table from elsewhere: what its metadata and folders name must stay inside of it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from caches import forget

import bitlake
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.lake import Lake
from bitlake.metadata.index_manifest import IndexFileEntry, decode_index_manifest, encode_index_manifest
from bitlake.metadata.manifest import (
    ManifestEntry,
    ManifestFileMeta,
    decode_manifest,
    decode_manifest_list,
    encode_manifest,
    encode_manifest_list,
)
from bitlake.metadata.paths import TablePaths, are_file_names, data_file_name, is_file_name
from bitlake.table.table import Table

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int32())})
LEADING_OUT = ["../../victim", "..", ".", "", "/etc/passwd", "a/b", "a\\b", "a\0b", "../x"]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return bitlake.connect(tmp_path / "lake")


def hostile(lake: Lake, rewrite: Callable[[Path], None], commits: int = 3, replaced: bool = False) -> Table:
    """A table of a few snapshots whose metadata was then changed, opened by a process that never saw it before."""
    table = lake.create_table("t", ROWS.schema, options={"deletion-vectors.enabled": "true"})
    for _ in range(commits):
        table.append(ROWS)
    table.delete("id = 1")
    if replaced:
        table.overwrite(ROWS)
    rewrite(Path(table.path))
    forget()
    return lake.table("t")


def change_entries(root: Path, change: Callable[[ManifestEntry], ManifestEntry]) -> None:
    for f in root.glob("manifest/manifest-*"):
        if not f.name.startswith("manifest-list"):
            f.write_bytes(encode_manifest([change(e) for e in decode_manifest(f.read_bytes())]))


def data_file(root: Path) -> None:
    change_entries(root, lambda e: with_file(e, file_name="../../../../victim"))


def extra_file(root: Path) -> None:
    change_entries(root, lambda e: with_file(e, extra_files=("../../../../victim",)))


def with_file(entry: ManifestEntry, **changes: object) -> ManifestEntry:
    return dataclasses.replace(entry, file=dataclasses.replace(entry.file, **changes))  # type: ignore[arg-type]


def manifest(root: Path) -> None:
    def moved(meta: ManifestFileMeta) -> ManifestFileMeta:
        return dataclasses.replace(meta, file_name="../../../../victim")

    for f in root.glob("manifest/manifest-list-*"):
        f.write_bytes(encode_manifest_list([moved(m) for m in decode_manifest_list(f.read_bytes())]))


def index_file(root: Path) -> None:
    def moved(entry: IndexFileEntry) -> IndexFileEntry:
        return dataclasses.replace(entry, file_name="../../../../victim")

    for f in root.glob("manifest/index-manifest-*"):
        f.write_bytes(encode_index_manifest([moved(e) for e in decode_index_manifest(f.read_bytes())]))


def member(name: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        for f in root.glob("snapshot/snapshot-*"):
            value = json.loads(f.read_bytes())
            value[name] = "../../../../victim"
            f.write_text(json.dumps(value))

    return change


MEMBERS = ["baseManifestList", "deltaManifestList", "changelogManifestList", "indexManifest", "statistics"]
KINDS = {
    "data file": data_file,
    "extra file": extra_file,
    "manifest": manifest,
    "index file": index_file,
    **{name: member(name) for name in MEMBERS},
}


@pytest.mark.parametrize("kind", KINDS)
def test_names_that_lead_out_of_the_table_are_refused(lake: Lake, tmp_path: Path, kind: str) -> None:
    """Bug: names in metadata were joined to folders unchecked; expiry deleted, and scans read, files anywhere."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "victim").write_text("mine")
    outside = {p: p.read_bytes() for p in [victim, tmp_path / "lake" / "victim"]}

    def attempt(act: Callable[[], object]) -> None:
        with pytest.raises(CorruptError, match="invalid name"):
            act()

    try:
        # Expiry looks only at data files that a snapshot removes.
        table = hostile(lake, KINDS[kind], replaced=kind in ("data file", "extra file"))
    except CorruptError:
        return  # the table's own metadata cannot be opened at all
    attempt(lambda: table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60))
    attempt(lambda: table.scan().to_arrow())
    attempt(lambda: table.maintenance.remove_orphan_files(2**60))
    assert {p: p.read_bytes() for p in outside} == outside


@pytest.mark.parametrize("name", LEADING_OUT)
def test_what_is_no_file_name(name: str) -> None:
    assert not is_file_name(name)
    assert not are_file_names([name]) and not are_file_names(["a", name]) and not are_file_names([name, "a", "b"])
    with pytest.raises(InvalidRequest):
        TablePaths("/t", "x").tag(name)
    if name != "main":
        with pytest.raises(InvalidRequest):
            TablePaths("/t", name)


def test_names_of_files() -> None:
    names = ["a", "..a", "...", "data-1.parquet", "ü~%2e%2e", " "]
    assert all(map(is_file_name, names)) and are_file_names(names) and are_file_names([])


@pytest.mark.parametrize("option", ["data-file.prefix", "changelog-file.prefix"])
@pytest.mark.parametrize("value", ["../../../../victim-", "a/b-", "..\\x"])
def test_options_that_name_files_write_inside_of_the_table(lake: Lake, tmp_path: Path, option: str, value: str) -> None:
    """Bug: ``data-file.prefix`` = ``../…`` put data files outside of the table."""
    options = {option: value, "bucket": "1", "changelog-producer": "input"}
    schema = pa.schema([pa.field("id", pa.int32(), False)])
    with pytest.raises(InvalidRequest, match=option):
        lake.create_table("t", schema, primary_key=["id"], options=options)
    table = lake.create_table("u", schema, primary_key=["id"], options={k: options[k] for k in list(options)[1:]})
    with pytest.raises(InvalidRequest, match=option):
        table.alter_options({option: value})
    path = Path(table.path, "schema", "schema-0")  # a schema that bitlake did not write
    text = json.loads(path.read_text())
    text["options"][option] = value
    path.write_text(json.dumps(text))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidRequest):
        lake.table("u").upsert(ROWS.cast(schema))
    assert [p for p in sorted(tmp_path.rglob("*")) if p not in before and p.is_file()] == []


def test_data_file_name_is_a_name() -> None:
    with pytest.raises(InvalidRequest, match="compression"):
        data_file_name("data-", "u", 0, "parquet", "../../x")


# --- links ------------------------------------------------------------------------------------------------------------


def test_orphan_removal_stays_out_of_links(lake: Lake, tmp_path: Path) -> None:
    """Bug: ``.staging -> X`` made ``remove_orphan_files`` delete everything below X, folders too."""
    table = lake.create_table("t", ROWS.schema)
    table.append(ROWS)
    outside = tmp_path / "outside"
    (outside / "bucket-0").mkdir(parents=True)
    (outside / "empty").mkdir()
    for name in ("a", "bucket-0/b", "manifest-1", "bucket-0/manifest-2"):
        (outside / name).write_text("mine")
    root = Path(table.path)
    for link in (".staging", "bucket-9", "d=1", "index", "statistics", "tag"):
        os.symlink(outside, root / link)
    os.symlink(outside / "a", root / "bucket-0" / "data-old.parquet")
    os.symlink(outside, root / "bucket-0" / "deep")
    table.maintenance.remove_orphan_files(2**60)
    assert {p.name for p in outside.rglob("*")} == {"a", "b", "manifest-1", "manifest-2", "bucket-0", "empty"}
    assert table.scan().to_arrow().num_rows == 3


def test_expiry_deletes_nothing_behind_a_link(lake: Lake, tmp_path: Path) -> None:
    """Bug: a bucket folder that is a link let expiry delete the files behind it."""
    table = lake.create_table("t", ROWS.schema)
    table.append(ROWS)
    table.overwrite(ROWS)
    outside = tmp_path / "outside"
    bucket = Path(table.path, "bucket-0")
    bucket.rename(outside)
    os.symlink(outside, bucket)
    before = sorted(outside.iterdir())
    assert len(before) == 2
    table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60)
    assert sorted(outside.iterdir()) == before
    assert [s.id for s in table.history.snapshots()] == [2]
    assert table.scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("folder", ["snapshot", "tag", "consumer", "branch", "schema"])
def test_history_behind_a_link_is_not_changed(lake: Lake, tmp_path: Path, folder: str) -> None:
    """Bug: ``snapshot -> other/snapshot`` let expiry and rollback delete another table's snapshots."""
    table = lake.create_table("t", ROWS.schema)
    for _ in range(3):
        table.append(ROWS)
    table.history.create_tag("x", 1)
    table.history.create_branch("b", "x")
    here, outside = Path(table.path, folder), tmp_path / "outside"
    here.mkdir(exist_ok=True)
    here.rename(outside)
    os.symlink(outside, here)
    before = sorted(outside.rglob("*"))
    for act in (
        lambda: table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60),
        lambda: table.history.rollback(2),
        lambda: table.history.delete_tag("x"),
        lambda: table.history.delete_branch("b"),
        lambda: table.history.fast_forward("b"),
        lambda: table.append(ROWS),
        lambda: table.alter_options({"write-only": "true"}),
        lambda: table.history.create_tag("y"),
        lambda: table.history.create_branch("c"),
    ):
        with pytest.raises(InvalidRequest, match="symbolic link"):
            act()
    assert sorted(outside.rglob("*")) == before


@pytest.mark.parametrize(
    "change",
    [
        {"lists": ["../../../../victim", 1, "manifest-list-b", 1]},
        {"lists": ["manifest-list-a", 1, "/etc/passwd", 1]},
        {"lists": ["manifest-list-a", 1, "manifest-list-b"]},
        {"tags": ["../../../../victim"]},
        {"schemas": {"../../../../victim": "{}"}},
        {"branch": "../../../../victim"},
        {"stage": "over"},
        {"head": "4"},
    ],
    ids=str,
)
def test_names_in_the_journal_of_a_fast_forward(lake: Lake, tmp_path: Path, change: dict[str, object]) -> None:
    """A journal that came with a table made ``fast_forward`` and ``delete_branch`` delete files outside of it."""
    table = lake.create_table("t", ROWS.schema)
    table.append(ROWS)
    table.history.create_tag("x", 1)
    table.history.create_branch("b", "x")
    victim = tmp_path / "victim"
    victim.write_text("")
    journal = {"branch": "gone", "head": 1, "uuid": "u", "lists": ["manifest-list-a", 1, "manifest-list-b", 1]}
    journal |= {"schemas": {}, "tags": [], "stage": "begun", "switch": 0, **change}
    Path(table.path, "snapshot", ".fast-forward").write_text(json.dumps(journal))
    for act in (
        lambda: table.history.fast_forward("b"),
        lambda: table.history.rollback(1),
        lambda: table.history.delete_branch("b"),
    ):
        with pytest.raises(CorruptError, match=r"\.fast-forward"):
            act()
    assert victim.exists()


def test_a_snapshot_file_of_another_number(lake: Lake) -> None:
    """A commit looked for its base under the number in the file, found it replaced and began again without an end."""
    table = lake.create_table("t", ROWS.schema)
    table.append(ROWS)
    path = Path(table.path, "snapshot", "snapshot-1")
    path.write_text(json.dumps({**json.loads(path.read_text()), "id": 1_000_000_000_000_000}))
    with pytest.raises(CorruptError, match="'id' is 1000000000000000"):
        table.append(ROWS)


def test_a_snapshot_of_a_number_far_ahead(lake: Lake) -> None:
    """Expiry and ``verify`` went through all numbers up to the last one."""
    table = lake.create_table("t", ROWS.schema)
    table.append(ROWS)
    table.append(ROWS)
    path = Path(table.path, "snapshot", "snapshot-2")
    text = {**json.loads(path.read_text()), "id": 2**60}
    path.with_name(f"snapshot-{2**60}").write_text(json.dumps(text))
    assert "snapshot-missing" in table.maintenance.verify().codes
    assert table.maintenance.expire_snapshots(
        retain_max=1, retain_min=1, older_than=2**60, max_deletes=2**62
    ).snapshots == (1, 2)


def test_a_table_whose_own_folder_is_a_link_is_maintained_as_any(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("t", ROWS.schema)
    table.append(ROWS)
    table.overwrite(ROWS)
    root, outside = Path(table.path), tmp_path / "outside"
    root.rename(outside)
    os.symlink(outside, root)
    table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60)
    assert len(list((outside / "bucket-0").iterdir())) == 1
    (outside / "bucket-0" / "data-orphan.parquet").write_text("old")
    assert [Path(o.path).name for o in table.maintenance.remove_orphan_files(2**60)] == ["data-orphan.parquet"]
    lake.drop_table("t")
    assert not root.exists() and (outside / "schema").is_dir()  # the link goes, and not what it leads to
