"""Damaged, missing, too new and forbidden files: one clear error naming table and file, or a read without the index."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import events
from caches import forget

import bitlake
from bitlake.errors import BitlakeError, CorruptError, NotFound, StorageUnavailable, UnsupportedFeature
from bitlake.file_store_table import FileStoreTable
from bitlake.fileindex.container import encode_container, read_header
from bitlake.io.local import LocalStore
from bitlake.metadata.manifest import ManifestEntry
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan

INDEXES = {"file-index.bitmap.columns": "status", "file-index.bloom-filter.columns": "id"}
BITMAP = {**INDEXES, "file-index.in-manifest-threshold": "1 mb"}
SEPARATE = {**INDEXES, "file-index.in-manifest-threshold": "1 b"}
ROWS = events(1000)


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(str(tmp_path / "lake"))


def made(lake: bitlake.Lake, name: str = "t", **options: str) -> bitlake.Table:
    table = lake.create_table(name, ROWS.schema, options=options)
    table.append(ROWS)
    return table


def files(table: bitlake.Table, pattern: str) -> list[Path]:
    return sorted(Path(table.path).glob(pattern))


def read_all(table: bitlake.Table) -> int:
    """Everything that touches files: a new handle, a whole scan, and one with a condition."""
    forget()
    again = bitlake.Table(FileStoreTable(table.name, table.path, table._core.store))
    return again.scan().to_arrow().num_rows + again.scan(where="status = 'S2'").to_arrow().num_rows


def garbage(data: bytes) -> bytes:
    return b"\xff\xfe\x00" + os.urandom(0) + bytes(range(256)) * (1 + len(data) // 256)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "one byte": lambda data: data[:1],
    "half": lambda data: data[: len(data) // 2],
    "last byte gone": lambda data: data[:-1],
    "garbage": garbage,
    "zeros": lambda data: bytes(len(data)),
}
FILES = {
    "schema": "schema/schema-0",
    "snapshot": "snapshot/snapshot-1",
    "manifest list": "manifest/manifest-list-*-1",
    "manifest": "manifest/manifest-[!l]*",
    "data file": "bucket-0/*.parquet",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("which", FILES)
def test_a_damaged_file_is_named(lake: bitlake.Lake, which: str, damage: str) -> None:
    table = made(lake, **BITMAP)
    (path,) = files(table, FILES[which])
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(CorruptError) as caught:
        read_all(table)
    assert "default.t" in str(caught.value)
    assert str(path) in str(caught.value)
    if which in ("schema", "snapshot", "manifest list"):
        with pytest.raises(CorruptError, match=path.name):
            bitlake.Table(FileStoreTable(table.name, table.path, table._core.store)).append(ROWS)


@pytest.mark.parametrize("which", [w for w in FILES if w != "schema"])
def test_a_missing_file_is_named(lake: bitlake.Lake, which: str) -> None:
    table = made(lake, **BITMAP)
    (path,) = files(table, FILES[which])
    path.unlink()
    if which == "snapshot":
        # The LATEST hint is not believed then: the table is what its snapshots say, and there are none.
        assert read_all(table) == 0
        return
    with pytest.raises(NotFound) as caught:
        read_all(table)
    assert "default.t" in str(caught.value)
    assert str(path) in str(caught.value)
    assert "read the table again" in str(caught.value)


def test_a_missing_schema(lake: bitlake.Lake) -> None:
    table = made(lake)
    table.alter_options(BITMAP)
    first, last = files(table, "schema/schema-*")
    kept = first.read_bytes()
    first.unlink()
    with pytest.raises(NotFound) as caught:
        read_all(table)
    assert "default.t" in str(caught.value) and str(first) in str(caught.value)
    last.unlink()
    with pytest.raises(NotFound, match=r"default\.t"):
        read_all(table)
    first.write_bytes(kept)
    assert read_all(table) == 1250


def test_every_byte_of_json_files_may_be_anything(lake: bitlake.Lake) -> None:
    """A flipped byte is an error of ours or still means something; nothing else ever comes out."""
    table = made(lake)
    for pattern in (FILES["schema"], FILES["snapshot"]):
        (path,) = files(table, pattern)
        whole = path.read_bytes()
        for at in range(0, len(whole), 23):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x95]) + whole[at + 1 :])
            _only_ours(lambda: read_all(table))
        path.write_bytes(whole)
    assert read_all(table) == 1250


@pytest.mark.parametrize("which", ["manifest list", "manifest", "data file"])
def test_flipped_bytes_of_binary_files_raise_only_our_errors(lake: bitlake.Lake, which: str) -> None:
    table = made(lake, **BITMAP)
    (path,) = files(table, FILES[which])
    whole = path.read_bytes()
    places = range(0, len(whole), max(1, len(whole) // 60))
    for at in (*places, *range(len(whole) - 30, len(whole))):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        _only_ours(lambda: read_all(table))
    path.write_bytes(whole)
    assert read_all(table) == 1250


def _only_ours(action: Callable[[], Any]) -> None:
    with contextlib.suppress(BitlakeError):
        action()


# --- versions of the future -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("which", "version"), [("schema", 4), ("snapshot", 4)])
def test_a_json_file_of_a_later_version(lake: bitlake.Lake, which: str, version: int) -> None:
    table = made(lake)
    (path,) = files(table, FILES[which])
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": version}))
    with pytest.raises(UnsupportedFeature) as caught:
        read_all(table)
    assert all(part in str(caught.value) for part in ("default.t", str(path), f"version {version}", "3"))


@pytest.mark.parametrize("which", ["manifest list", "manifest"])
def test_a_manifest_record_of_a_later_version(lake: bitlake.Lake, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(lake)
    with monkeypatch.context() as m:
        m.setattr("bitlake.metadata.manifest.VERSION", 9)
        (newer,) = files(made(lake, "newer"), FILES[which])
    (path,) = files(table, FILES[which])
    path.write_bytes(newer.read_bytes())
    with pytest.raises(UnsupportedFeature) as caught:
        read_all(table)
    assert all(part in str(caught.value) for part in ("default.t", str(path), "version 9", "2"))


# --- files that contradict each other ---------------------------------------------------------------------------------


def replaced(table: bitlake.Table, change: Callable[[ManifestEntry], ManifestEntry]) -> None:
    """Commit the table's files anew with changed manifest entries."""
    state = table._core.state()
    adds = tuple(change(e) for e in state.entries())
    shutil.rmtree(state.paths.snapshot_dir)
    shutil.rmtree(state.paths.manifest_dir)
    forget()
    commit(table._core.store, state.paths, CommitPlan("APPEND", adds), state.schema, "test")


@pytest.mark.parametrize("rows", [999, 1001])
def test_a_wrong_row_count_in_the_manifest(lake: bitlake.Lake, rows: int) -> None:
    table = made(lake)
    replaced(table, lambda e: dataclasses.replace(e, file=dataclasses.replace(e.file, row_count=rows)))
    (path,) = files(table, FILES["data file"])
    for scan in (table.scan(), table.scan(where="amount > 3"), table.scan(where="id < 5", columns=["region"])):
        forget()
        with pytest.raises(CorruptError) as caught:
            scan.to_arrow()
        assert all(part in str(caught.value) for part in ("default.t", str(path), "1000 rows", str(rows)))


@pytest.mark.parametrize("size", [0, 11, 500, 10**9, -5])
def test_a_wrong_file_size_in_the_manifest(lake: bitlake.Lake, size: int) -> None:
    table = made(lake)
    replaced(table, lambda e: dataclasses.replace(e, file=dataclasses.replace(e.file, file_size=size)))
    (path,) = files(table, FILES["data file"])
    with pytest.raises(CorruptError) as caught:
        read_all(table)
    assert "default.t" in str(caught.value) and str(path) in str(caught.value)


def test_a_data_file_without_the_column(lake: bitlake.Lake) -> None:
    table = made(lake)
    (path,) = files(table, FILES["data file"])
    pq.write_table(ROWS.drop_columns(["region"]), path)
    replaced(table, lambda e: dataclasses.replace(e, file=dataclasses.replace(e.file, file_size=path.stat().st_size)))
    for scan in (table.scan(), table.scan(columns=["region"]), table.scan(where="region = 'EU'")):
        forget()
        with pytest.raises((CorruptError, NotFound)) as caught:
            scan.to_arrow()
        assert all(part in str(caught.value) for part in ("default.t", str(path), "region"))


def test_a_data_file_of_other_types(lake: bitlake.Lake) -> None:
    table = made(lake)
    (path,) = files(table, FILES["data file"])
    wrong = ROWS.set_column(0, "id", pa.array([f"row {i}" for i in range(1000)]))
    pq.write_table(wrong, path)
    replaced(table, lambda e: dataclasses.replace(e, file=dataclasses.replace(e.file, file_size=path.stat().st_size)))
    with pytest.raises(CorruptError) as caught:
        read_all(table)
    assert all(part in str(caught.value) for part in ("default.t", str(path), "id"))


def test_nulls_in_a_column_that_has_none(lake: bitlake.Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    table = lake.create_table("t", schema)
    table.append(pa.table({"id": [1, 2], "v": ["a", "b"]}, schema))
    (path,) = files(table, FILES["data file"])
    pq.write_table(pa.table({"id": pa.array([1, None], pa.int64()), "v": ["a", "b"]}), path)
    replaced(table, lambda e: dataclasses.replace(e, file=dataclasses.replace(e.file, file_size=path.stat().st_size)))
    forget()
    with pytest.raises(CorruptError) as caught:
        table.scan().to_arrow()
    assert all(part in str(caught.value) for part in ("default.t", str(path), "'id'", "NOT NULL"))


# --- names that are nobody's ------------------------------------------------------------------------------------------


def test_strange_names_beside_snapshots_and_schemas_are_ignored(lake: bitlake.Lake) -> None:
    table = made(lake)
    for folder, prefix in (("snapshot", "snapshot-"), ("schema", "schema-")):
        here = Path(table.path, folder)
        for tail in ("", "x", "-1", "1.tmp", "1e3", "٣", "9" * 30, "0x10", " 2"):
            (here / f"{prefix}{tail}").write_bytes(b"\xff")
        (here / f".{prefix}7.tmp").write_bytes(b"")
        (here / "README").write_bytes(b"\xff\xff")
        (here / "folder").mkdir()
    assert read_all(table) == 1250
    for hint in (b"", b"x", b"99", b"-1", b"\xff\xff", b"1" * 40, b"0"):
        Path(table.path, "snapshot", "LATEST").write_bytes(hint)
        Path(table.path, "snapshot", "EARLIEST").write_bytes(hint)
        assert read_all(table) == 1250
    table.append(ROWS)
    assert read_all(table) == 2500


def test_a_folder_in_place_of_a_file(lake: bitlake.Lake) -> None:
    table = made(lake)
    for pattern in FILES.values():
        (path,) = files(table, pattern)
        kept = path.read_bytes()
        path.unlink()
        path.mkdir()
        with pytest.raises(BitlakeError) as caught:
            read_all(table)
        assert "default.t" in str(caught.value) and str(path) in str(caught.value)
        path.rmdir()
        path.write_bytes(kept)
    assert read_all(table) == 1250


# --- no permission ----------------------------------------------------------------------------------------------------


class _Forbidden:
    """The ``os`` module of a user who may do nothing (the tests may run as one who may do all)."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name in self._names:

            def refuse(path: Any, *_: Any, **__: Any) -> Any:
                raise PermissionError(13, "Permission denied", str(path))

            return refuse
        return getattr(os, name)


READING = {"open", "stat", "scandir", "listdir"}
WRITING = {"makedirs", "link", "replace", "unlink", "mkdir", "rename"}


def forbid(monkeypatch: pytest.MonkeyPatch, names: set[str]) -> None:
    from bitlake.io import local

    monkeypatch.setattr(local, "os", _Forbidden(names))
    if "open" in names:

        def refuse(path: Any, *_: Any, **__: Any) -> Any:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(local, "open", refuse, raising=False)
        monkeypatch.setattr(pa, "OSFile", refuse)


def test_a_warehouse_that_may_not_be_read(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(lake, **SEPARATE)
    forget()
    forbid(monkeypatch, READING)
    actions: list[Callable[[], Any]] = [
        lake.databases, lake.tables, lambda: lake.table("t"), table.scan, lambda: table.append(ROWS),
        lambda: lake.create_table("u", ROWS.schema), lambda: lake.create_database("d"), lambda: lake.drop_table("t"),
        lambda: lake.drop_database("d", if_exists=True),
    ]  # fmt: skip
    for action in actions:
        with pytest.raises(StorageUnavailable, match="Permission denied") as caught:
            action()
        assert lake.path in str(caught.value)


def test_a_warehouse_that_may_not_be_written(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(lake, **SEPARATE, **{"commit.max-retries": "0"})
    before = sorted(Path(lake.path).rglob("*"))
    with monkeypatch.context() as m:
        forbid(m, WRITING)
        m.setattr("bitlake.io.local.shutil", _Forbidden({"rmtree"}))
        actions: list[Callable[[], Any]] = [
            lambda: table.append(ROWS), lambda: table.overwrite(ROWS), table.truncate,
            lambda: table.alter_options({"some": "thing"}), lambda: lake.create_table("u", ROWS.schema),
            lambda: lake.create_database("d"), lambda: lake.drop_table("t"),
        ]  # fmt: skip
        for action in actions:
            with pytest.raises(StorageUnavailable, match="Permission denied") as caught:
                action()
            assert lake.path in str(caught.value)
        assert table.scan().count() == 1000
    visible = [p for p in Path(lake.path).rglob("*") if not p.name.startswith(".")]
    assert set(before) <= set(visible)
    assert table.scan().count() == 1000


def test_a_data_file_that_may_not_be_read(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(lake)
    scan = table.scan()
    scan.plan()
    forbid(monkeypatch, {"open"})
    with pytest.raises(StorageUnavailable, match="Permission denied") as caught:
        scan.to_arrow()
    assert "default.t" in str(caught.value) and ".parquet" in str(caught.value)


# --- indexes that cannot be read --------------------------------------------------------------------------------------


def with_index(lake: bitlake.Lake, change: Callable[[bytes], bytes | None], embedded: bool, **options: str) -> Any:
    """A table whose index is changed (None: deleted); returns it and what names its index in messages."""
    table = made(lake, **{**(BITMAP if embedded else SEPARATE), **options})
    (data,) = files(table, FILES["data file"])
    if embedded:

        def swap(e: ManifestEntry) -> ManifestEntry:
            assert e.file.embedded_index is not None
            new = change(e.file.embedded_index)
            assert new is not None
            return dataclasses.replace(e, file=dataclasses.replace(e.file, embedded_index=new))

        replaced(table, swap)
        name = data.name
    else:
        (path,) = files(table, "bucket-0/*.index")
        new = change(path.read_bytes())
        if new is None:
            path.unlink()
        else:
            path.write_bytes(new)
        name = data.name
    forget()
    return table, name


def payload_changed(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Change the payload of the bitmap of ``status``; the container stays whole."""

    def work(data: bytes) -> bytes:
        header = read_header(data)
        out = {c: {t: data[s : s + n] for t, (s, n) in inner.items()} for c, inner in header.columns.items()}
        out["status"]["bitmap"] = change(out["status"]["bitmap"])
        return encode_container(out, [(c, t) for c in out for t in out[c]])

    return work


def renamed(data: bytes) -> bytes:
    header = read_header(data)
    out = {c: {t: data[s : s + n] for t, (s, n) in inner.items()} for c, inner in header.columns.items()}
    out["status"] = {"quantum": out["status"]["bitmap"]}
    return encode_container(out, [(c, t) for c in out for t in out[c]])


def of_another_file(rows: int) -> Callable[[bytes], bytes]:
    def work(data: bytes) -> bytes:
        from bitlake.fileindex.registry import IndexBuilder, parse_index_options
        from bitlake.schema.create import ColumnSpec, new_schema
        from bitlake.types import parse_type

        columns = [ColumnSpec(n, parse_type(k)) for n, k in (("id", "BIGINT"), ("status", "STRING"))]
        schema = new_schema("x", columns, (), {}, None)
        specs = parse_index_options({"file-index.bitmap.columns": "status"}, schema.fields)
        builder = IndexBuilder(specs, schema.fields)
        builder.add(events(rows, statuses=2).select(["id", "status"]))
        return builder.finish()

    return work


BROKEN: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "three bytes": lambda data: data[:3],
    "cut header": lambda data: data[:30],
    "garbage": garbage,
    "zeros": lambda data: bytes(len(data)),
    "container version 2": lambda data: data[:8] + (2).to_bytes(4, "big") + data[12:],
    "bitmap version 3": payload_changed(lambda p: b"\x03" + p[1:]),
    "bitmap cut": payload_changed(lambda p: p[: len(p) // 2]),
    "bitmap empty": payload_changed(lambda p: b""),
    "bitmap garbage": payload_changed(lambda p: bytes([2]) + garbage(p)[: len(p) - 1]),
    "unknown type": renamed,
    "of a larger file": of_another_file(5000),
    "of a smaller file": of_another_file(10),
}
WHERE = "status = 'S2' AND id < 900"
ANSWER = [r for r in ROWS.to_pylist() if r["status"] == "S2" and r["id"] < 900]


@pytest.mark.parametrize("embedded", [False, True])
@pytest.mark.parametrize("broken", BROKEN)
def test_an_unreadable_index_is_counted_and_never_wrong(
    lake: bitlake.Lake, broken: str, embedded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if embedded and broken in ("missing", "empty"):
        pytest.skip("an embedded index is there or not, and an empty one is none")
    table, name = with_index(lake, BROKEN[broken], embedded)
    with caplog.at_level(logging.WARNING, "bitlake"):
        for _ in range(3):  # the second and third plan find the index cached
            scan = table.scan(where=WHERE)
            plan = scan.plan()
            assert scan.to_arrow().to_pylist() == ANSWER
            assert plan.metrics.unreadable_indexes == 1
            assert plan.problems and all(name in p for p in plan.problems)
    warnings = [r for r in caplog.records if name in r.getMessage()]
    assert len(warnings) == 1, [r.getMessage() for r in warnings]
    # A condition on no indexed column, and a scan without the index, have nothing to do with it.
    other = table.scan(where="amount > 3").without_index()
    assert other.plan().metrics.unreadable_indexes == 0


@pytest.mark.parametrize("broken", BROKEN)
def test_an_unreadable_index_can_be_made_an_error(lake: bitlake.Lake, broken: str) -> None:
    table, name = with_index(lake, BROKEN[broken], False, **{"file-index.on-unreadable": "fail"})
    for _ in range(3):
        with pytest.raises(CorruptError) as caught:
            table.scan(where=WHERE).to_arrow()
        assert all(part in str(caught.value) for part in ("default.t", name, "file-index.on-unreadable"))
    assert table.scan().count() == 1000
    assert table.scan(where=WHERE).without_index().to_arrow().to_pylist() == ANSWER


def test_rewriting_replaces_an_unreadable_index(lake: bitlake.Lake) -> None:
    for number, broken in enumerate(
        ("missing", "empty", "garbage", "container version 2", "bitmap version 3", "bitmap empty")
    ):
        table, _ = with_index(bitlake.connect(f"{lake.path}{number}"), BROKEN[broken], False)
        (done,) = table.indexes.rebuild()
        assert done.new is not None
        plan = table.scan(where="status = 'S2'").plan()
        assert plan.chosen_rows == 250 and not plan.problems


def test_a_failing_store_is_not_remembered_as_a_broken_index(lake: bitlake.Lake) -> None:
    """A cached index whose bytes once could not be fetched would never be used again."""
    table = made(lake, **SEPARATE)

    class Shaky(LocalStore):
        broken = True

        def read_range(self, path: str, offset: int, length: int) -> bytes:
            if self.broken and path.endswith(".index"):
                raise StorageUnavailable("connection reset")
            return super().read_range(path, offset, length)

        def read_part(self, path: str, offset: int, length: int) -> tuple[bytes, int]:
            return super().read_part(path, offset, 0 if path.endswith(".index") else length)

    store = Shaky()
    shaky = bitlake.Table(FileStoreTable(table.name, table.path, store))
    plan = shaky.scan(where=WHERE).plan()
    assert plan.metrics.unreadable_indexes == 1 and "connection reset" in plan.problems[0]
    store.broken = False
    plan = shaky.scan(where=WHERE).plan()
    assert plan.metrics.unreadable_indexes == 0
    assert plan.chosen_rows == 250


def test_option_fail_holds_for_an_index_opened_before(lake: bitlake.Lake) -> None:
    table, _ = with_index(lake, BROKEN["bitmap version 3"], False)
    assert table.scan(where="id = 3").to_arrow().num_rows == 1
    assert table.scan(where=WHERE).plan().metrics.unreadable_indexes == 1
    table.alter_options({"file-index.on-unreadable": "fail"})
    for _ in range(2):
        with pytest.raises(CorruptError, match="bitmap"):
            table.scan(where=WHERE).plan()


def test_a_table_made_anew_at_the_same_path_shows_nothing_of_the_old(lake: bitlake.Lake) -> None:
    for number in range(3):
        table = lake.create_table("t", ROWS.schema, options=SEPARATE if number % 2 else BITMAP)
        rows = events(1000 + number, statuses=3 + number)
        table.append(rows)
        found = table.scan(where="status = 'S2'").to_arrow().to_pylist()
        assert found == [r for r in rows.to_pylist() if r["status"] == "S2"]
        lake.drop_table("t")
    assert not Path(table.path).exists() or not files(table, "*/*")


def test_two_indexes_named_for_one_file(lake: bitlake.Lake) -> None:
    table = made(lake, **SEPARATE)

    def twice(e: ManifestEntry) -> ManifestEntry:
        return dataclasses.replace(
            e, file=dataclasses.replace(e.file, extra_files=(*e.file.extra_files, "another.index"))
        )

    replaced(table, twice)
    scan = table.scan(where=WHERE)
    assert scan.plan().metrics.unreadable_indexes == 1
    assert scan.to_arrow().to_pylist() == ANSWER


def test_a_table_whose_folder_vanishes(lake: bitlake.Lake) -> None:
    table = made(lake)
    scan = table.scan()
    shutil.rmtree(table.path)
    forget()
    with pytest.raises(NotFound, match=r"default\.t"):
        scan.to_arrow()
    with pytest.raises(NotFound, match=r"default\.t"):
        table.append(ROWS)
    assert not Path(table.path).exists()


@pytest.mark.parametrize("damage", [d for d in DAMAGE if d != "last byte gone"])
def test_an_index_cannot_be_built_from_a_damaged_data_file(lake: bitlake.Lake, damage: str) -> None:
    table = made(lake)
    table.alter_options(SEPARATE)
    (path,) = files(table, FILES["data file"])
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(CorruptError) as caught:
        table.indexes.rebuild()
    assert "default.t" in str(caught.value) and str(path) in str(caught.value)
    path.unlink()
    with pytest.raises(NotFound) as missing:
        table.indexes.rebuild()
    assert "default.t" in str(missing.value) and str(path) in str(missing.value)
    assert not files(table, "bucket-0/*.index")
    assert table.snapshot is not None and table.snapshot.id == 1


@pytest.mark.parametrize(
    ("option", "invalid", "valid"),
    [
        ("ignore-delete", "maybe", "true"),
        ("bucket", "two", "2"),
        ("merge-engine", "newest", "deduplicate"),
        ("deletion-vectors.enabled", "perhaps", "false"),
        ("changelog-producer", "all", "input"),
        ("fields.v.stats-mode", "some", "counts"),
    ],
)
def test_an_invalid_option_of_another_engine_can_be_changed(
    lake: bitlake.Lake, option: str, invalid: str, valid: str
) -> None:
    """Bug: no statement could remove it, because the value before the change was read, too."""
    rows = pa.table({"id": [1], "v": ["a"]})
    lake.create_table("t", rows.schema, primary_key=["id"], options={"bucket": "2"}).upsert(rows)
    path = Path(lake.table("t").path, "schema", "schema-0")
    stored = json.loads(path.read_text())
    stored["options"][option] = invalid
    path.write_text(json.dumps(stored))
    forget()
    with pytest.raises(BitlakeError, match=f"{option}' = '{invalid}' is not allowed"):
        lake.table("t").upsert(rows)
    with pytest.raises(BitlakeError, match=f"{option}' = '{invalid}' is not allowed.*UNSET TBLPROPERTIES"):
        lake.table("t").alter_options({"write-only": "true"})
    lake.table("t").alter_options({"write-only": "true"}, unset=[option])
    assert option not in lake.table("t").schema.options
    Path(path.parent, "schema-1").unlink()
    forget()
    lake.table("t").alter_options({option: valid})
    lake.table("t").upsert(rows)
    assert lake.table("t").scan().to_arrow().to_pylist() == rows.to_pylist()


def test_refusals_of_options_say_what_to_do(lake: bitlake.Lake) -> None:
    table = made(lake)
    with pytest.raises(UnsupportedFeature, match=r"readStream.option\('consumer-id', 'me'\)"):
        table.alter_options({"consumer-id": "me"})
    path = Path(table.path, "schema", "schema-0")
    stored = json.loads(path.read_text())
    stored["options"]["visibility-callback.enabled"] = "true"
    path.write_text(json.dumps(stored))
    forget()
    with pytest.raises(UnsupportedFeature, match=r"UNSET TBLPROPERTIES \('visibility-callback.enabled'\)"):
        lake.table("t").append(ROWS)
    lake.table("t").alter_options(unset=["visibility-callback.enabled"])
    lake.table("t").append(ROWS)
