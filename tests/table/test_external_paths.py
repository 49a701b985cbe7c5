"""Files outside of a table's folder: read, written and deleted only below the external paths that are allowed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from caches import forget
from long import exhaustive

import bitlake
from bitlake.errors import InvalidRequest, NotFound
from bitlake.lake import Lake
from bitlake.metadata.manifest import decode_manifest, encode_manifest
from bitlake.schema.data_paths import _entropy
from bitlake.snapshot import references
from bitlake.snapshot.table_files import TableFiles
from bitlake.table.table import Table

ROWS = pa.table({"p": ["a", "a", "b"], "id": pa.array([1, 2, 3], pa.int32())})
PATHS, STRATEGY = "data-file.external-paths", "data-file.external-paths.strategy"


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    return [tmp_path / "ext1", tmp_path / "ext2"]


@pytest.fixture
def lake(tmp_path: Path, roots: list[Path]) -> Lake:
    return bitlake.connect(tmp_path / "lake", external_paths=[f"file:{root}" for root in roots])


def options(roots: list[Path], strategy: str = "round-robin", **more: str) -> dict[str, str]:
    return {PATHS: ", ".join(f"file://{root}" for root in roots), STRATEGY: strategy, **more}


def reread(lake: Lake) -> Table:
    forget()
    return lake.table("t")


# --- where files may be -----------------------------------------------------------------------------------------------


def test_external_paths_is_a_list(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="list of folders"):
        bitlake.connect(tmp_path, external_paths="/data")


def point(root: Path, path: str) -> None:
    """Have every manifest entry say that its file is elsewhere."""
    for f in root.glob("manifest/manifest-*"):
        if not f.name.startswith("manifest-list"):
            entries = decode_manifest(f.read_bytes())
            moved = [dataclasses.replace(e, file=dataclasses.replace(e.file, external_path=path)) for e in entries]
            f.write_bytes(encode_manifest(moved))


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "{}/../victim.parquet", "{}/.."])
def test_an_external_path_that_is_not_allowed(tmp_path: Path, form: str) -> None:
    """Bug: an absolute external path of a manifest was read, and expiry deleted what it names."""
    lake = bitlake.connect(tmp_path / "lake")
    table = lake.create_table("t", ROWS.schema)
    table.append(ROWS)
    table.overwrite(ROWS)
    victim = tmp_path / "victim.parquet"
    victim.write_bytes(next(Path(table.path, "bucket-0").iterdir()).read_bytes())
    point(Path(table.path), form.format(victim))
    table = reread(lake)
    acts: list[Callable[[], object]] = [
        lambda: table.scan().to_arrow(),
        lambda: table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60),
    ]
    for act in acts:
        with pytest.raises(InvalidRequest, match=r"external_paths=\[.*--external-path.*'external-paths'.*spark"):
            act()
    assert victim.exists()
    if ".." not in form:
        allowed = bitlake.connect(tmp_path / "lake", external_paths=[str(tmp_path)])
        assert allowed.table("t").scan().to_arrow().num_rows == 3


def test_files_of_the_table_itself_are_always_allowed(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path / "lake")
    table = lake.create_table("t", ROWS.schema)
    table.append(ROWS)
    [file] = Path(table.path, "bucket-0").iterdir()
    point(Path(table.path), f"file://{file}")
    assert reread(lake).scan().to_arrow().num_rows == 3


# --- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [(), ("p", "id")])
@pytest.mark.parametrize("directory", [exhaustive(None), "data/d"])
def test_a_table_with_external_paths_lives_as_any(
    lake: Lake, roots: list[Path], key: tuple[str, ...], directory: str | None
) -> None:
    more = {
        "file-index.bitmap.columns": "id",
        "file-index.in-manifest-threshold": "1 b",
        "bucket": "1" if key else "-1",
    }
    more |= {"deletion-vectors.enabled": "true", "index-file-in-data-file-dir": "true"}
    more |= {} if directory is None else {"data-file.path-directory": directory}
    table = lake.create_table("t", ROWS.schema, primary_key=key, partition_by=["p"], options={**options(roots), **more})
    for i in range(6):
        rows = ROWS.set_column(1, "id", pa.array([i, 10 + i, 20 + i], pa.int32()))
        table.upsert(rows) if key else table.append(rows)
    below = "" if directory is None else f"{directory}/"
    names = [name for root in roots for name in files(root)]
    data = [n for n in names if n.endswith(".parquet")]
    assert data and all(n.startswith((f"{below}p=a/bucket-0/data-", f"{below}p=b/bucket-0/data-")) for n in data)
    assert all(any(n.endswith(".parquet") for n in files(root)) for root in roots)  # in turn
    assert any(n.endswith(".index") for n in names)
    assert not [n for n in files(Path(table.path)) if n.endswith((".parquet", ".index"))]
    assert table.delete("id = 3 OR id = 13") is not None
    assert not (Path(table.path) / "index").exists()
    expected = sorted(x for i in range(6) for x in (i, 10 + i, 20 + i) if x not in (3, 13))
    assert sorted(reread(lake).scan().to_arrow()["id"].to_pylist()) == expected
    assert table.scan(where="id = 4").to_arrow().num_rows == 1
    assert table.maintenance.verify().ok
    table.maintenance.compact(full=True) if key else table.maintenance.compact()
    assert sorted(reread(lake).scan().to_arrow()["id"].to_pylist()) == expected
    table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60)
    assert sorted(reread(lake).scan().to_arrow()["id"].to_pylist()) == expected
    live = {Path(f.path).name for f in table.scan().plan().files}
    left = {Path(n).name for root in roots for n in files(root) if n.endswith(".parquet")}
    assert live <= left and len(left) < len(data)  # what compaction replaced is gone
    assert table.maintenance.verify().ok
    for folder in (roots[0] / f"{below}p=a/bucket-0", roots[1] / "other"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "data-old.parquet").write_text("old")
    assert [Path(o.path).parent.name for o in table.maintenance.remove_orphan_files(2**60)] == ["bucket-0"]
    assert (roots[1] / "other" / "data-old.parquet").exists()
    (roots[0] / "someone-else").write_text("mine")
    lake.drop_table("t")
    assert [files(root) for root in roots] == [["someone-else"], ["other/data-old.parquet"]]


def test_data_goes_to_the_directory_that_the_option_names(lake: Lake) -> None:
    table = lake.create_table("t", ROWS.schema, partition_by=["p"], options={"data-file.path-directory": "data"})
    table.append(ROWS)
    found = [n for n in files(Path(table.path)) if n.endswith(".parquet")]
    assert [os.path.dirname(n) for n in found] == ["data/p=a/bucket-0", "data/p=b/bucket-0"]
    assert reread(lake).scan().to_arrow().num_rows == 3
    table.overwrite(ROWS)
    table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60)
    (Path(table.path) / "data/p=a/bucket-0/data-old.parquet").write_text("old")
    assert [Path(o.path).name for o in table.maintenance.remove_orphan_files(2**60)] == ["data-old.parquet"]
    assert reread(lake).scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("directory", ["../x", "/x", "a/../../x", "s3://b/x", "a\\b"])
def test_a_directory_that_leads_out_is_refused(lake: Lake, directory: str) -> None:
    with pytest.raises(InvalidRequest, match="data-file.path-directory"):
        lake.create_table("t", ROWS.schema, options={"data-file.path-directory": directory})


def test_writing_to_a_path_that_is_not_allowed(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path / "lake", external_paths=[str(tmp_path / "other")])
    table = lake.create_table("t", ROWS.schema, options=options([tmp_path / "ext"]))
    for act in (lambda: table.append(ROWS), lambda: table.maintenance.remove_orphan_files(2**60)):
        with pytest.raises(InvalidRequest, match="--external-path"):
            act()
    assert not (tmp_path / "ext").exists()
    lake.drop_table("t")


def test_orphan_removal_refuses_another_tables_folder(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path / "lake", external_paths=[str(tmp_path)])
    other = lake.create_table("other", ROWS.schema)
    other.append(ROWS)
    table = lake.create_table("t", ROWS.schema, options=options([Path(other.path)]))
    with pytest.raises(InvalidRequest, match="folder of a table"):
        table.maintenance.remove_orphan_files(2**60)
    assert other.scan().to_arrow().num_rows == 3


def test_strategies(lake: Lake, roots: list[Path]) -> None:
    def spread(strategy: str, **more: str) -> list[int]:
        lake.drop_table("t", if_exists=True)
        table = lake.create_table("t", ROWS.schema, options=options(roots, strategy, **more))
        for _ in range(12):
            table.append(ROWS)
        assert table.scan().to_arrow().num_rows == 36
        return [len(files(root)) for root in roots]

    assert spread("none") == [0, 0]
    assert sum(spread("round-robin")) == 12
    assert sum(spread("weight-robin")) == 12
    one, two = spread("weight-robin", **{"data-file.external-paths.weights": "1,1000"})
    assert one < two
    assert sum(spread("specific-fs", **{"data-file.external-paths.specific-fs": "FILE"})) == 12
    assert sum(spread("entropy-inject")) == 12
    assert {n.count("/") for root in roots for n in files(root)} == {5}  # bucket-0 and four folders of the hash


def test_the_hash_of_entropy_is_guavas() -> None:
    # Murmur3-32 of '' and 'hello' with seed 0 is 0 and 0x248bfa47 (the reference's test vectors).
    assert _entropy("hello") == "1011/1111/1010/01000111"
    assert _entropy("") == "0000/0000/0000/00000000"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({PATHS: "/no/scheme", STRATEGY: "round-robin"}, PATHS),
        ({PATHS: "file:/a/../b", STRATEGY: "round-robin"}, PATHS),
        ({PATHS: "file:/a,", STRATEGY: "round-robin"}, PATHS),
        ({PATHS: "file:/a", STRATEGY: "best"}, STRATEGY),
        ({PATHS: "file:/a", STRATEGY: "specific-fs"}, "specific-fs"),
        ({PATHS: "file:/a", STRATEGY: "specific-fs", f"{PATHS}.specific-fs": "s3"}, "scheme 's3'"),
        ({PATHS: "file:/a,file:/b", STRATEGY: "weight-robin", f"{PATHS}.weights": "1,2,3"}, "3 weights for 2"),
        ({PATHS: "file:/a,file:/b", STRATEGY: "weight-robin", f"{PATHS}.weights": "1,0"}, "weights"),
    ],
)
def test_options_that_paimon_refuses(lake: Lake, given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        lake.create_table("t", ROWS.schema, options=given)


def test_external_files_in_another_store(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path / "lake", external_paths=["memory://external-test/ext"])
    table = lake.create_table("t", ROWS.schema, options={PATHS: "memory://external-test/ext", STRATEGY: "round-robin"})
    table.append(ROWS)
    table.overwrite(ROWS)
    assert not [n for n in files(Path(table.path)) if n.endswith(".parquet")]
    assert reread(lake).scan().to_arrow().num_rows == 3
    [path] = [f.path for f in table.scan().plan().files]
    assert path.startswith("memory://external-test/ext/bucket-0/data-")
    table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60)
    store = lake._catalog.store
    assert [f.name for f in store.list("memory://external-test/ext/bucket-0")] == [path.rpartition("/")[2]]
    lake.drop_table("t")
    with pytest.raises(NotFound):
        store.read(path)


def test_a_branch_and_a_tag_keep_external_files(lake: Lake, roots: list[Path]) -> None:
    table = lake.create_table("t", ROWS.schema, options=options(roots))
    table.append(ROWS)
    table.history.create_tag("x")
    table.history.create_branch("b", "x")
    table.overwrite(ROWS.slice(0, 1))
    table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60)
    assert lake.table("t$branch_b").scan().to_arrow().num_rows == 3
    assert lake.table("t$branch_b").maintenance.remove_orphan_files(2**60) == []
    table.history.delete_branch("b")
    table.history.delete_tag("x")
    assert sum(len(files(root)) for root in roots) == 1


def test_dropping_beside_the_deletion_of_a_branch_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", pa.schema({"id": pa.int64()}))
    table.append(pa.table({"id": [1]}))
    table.history.create_branch("dev")
    listed = references.schema_ids

    def then_deleted(line: TableFiles) -> list[int]:
        ids = listed(line)
        if line.paths.branch_root.endswith("branch-dev"):
            for file in Path(line.paths.branch_root, "schema").iterdir():
                file.unlink()
        return ids

    monkeypatch.setattr(references, "schema_ids", then_deleted)
    lake.drop_table("t")
    assert not caplog.records and not (tmp_path / "default.db/t").exists()
