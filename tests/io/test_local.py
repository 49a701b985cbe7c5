from __future__ import annotations

import contextlib
import errno
import gc
import os
import weakref
from pathlib import Path
from typing import Any

import pytest
from store_checks import check_one_creates, check_ranges
from store_wrappers import CountingStore, FaultyStore, RequestsRepeated

from bitlake.errors import InvalidRequest, NotFound, StorageUnavailable, UnsupportedFeature
from bitlake.io import open_store
from bitlake.io.local import LocalStore, strip_scheme


def test_open_store_takes_paths_and_file_uris_only() -> None:
    for uri in ("/a/b", "file:/a/b", "file:///a/b"):
        assert isinstance(open_store(uri), LocalStore)
        assert open_store(uri).local_path(uri) == "/a/b"
    with pytest.raises(UnsupportedFeature, match="ftp://"):
        open_store("ftp://host/x")
    with pytest.raises(InvalidRequest, match="host"):
        strip_scheme("file://server/x")
    assert strip_scheme("file:/a/k=b%3Ac") == "/a/k=b%3Ac"


def test_create_never_overwrites_and_leaves_no_temporary(tmp_path: Path) -> None:
    store = LocalStore()
    path = f"{tmp_path}/deep/er/f"
    assert store.create(path, b"one")
    assert not store.create(path, b"two")
    assert store.read(path) == b"one"
    assert os.listdir(tmp_path / "deep/er") == ["f"]


def test_create_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    store = LocalStore()
    assert store.create(f"{tmp_path}/f", b"one")
    assert not store.create(f"{tmp_path}/f", b"two")
    assert [f.name for f in store.list(str(tmp_path))] == ["f"]


def test_a_link_that_nfs_makes_twice(tmp_path: Path) -> None:
    store, path = RequestsRepeated(), f"{tmp_path}/f"
    assert store.create(path, b"") and not store.create(path, b"")


def test_exactly_one_of_many_threads_creates(tmp_path: Path) -> None:
    check_one_creates(LocalStore(), f"{tmp_path}/f")


def test_ranges_are_exact_or_corrupt(tmp_path: Path) -> None:
    store = LocalStore()
    path = f"file:{tmp_path}/f"
    store.write(path, b"0123456789")
    check_ranges(store, path)
    assert store.size(path) == 10


def test_missing_things(tmp_path: Path) -> None:
    store = LocalStore()
    missing = f"{tmp_path}/no"
    assert store.list(missing) == []
    assert not store.exists(missing)
    store.delete(missing)
    store.delete_dir(missing)
    with pytest.raises(NotFound, match="no such file"):
        store.read(missing)
    with pytest.raises(StorageUnavailable):
        store.read(str(tmp_path))


def test_the_error_of_a_missing_file_keeps_nothing_alive(tmp_path: Path) -> None:
    """Bug: the error was part of a reference cycle, which kept what its callers held, such as a DuckDB stream."""

    class Held:
        pass

    def fails() -> weakref.ref[Held]:
        held = Held()
        with contextlib.suppress(NotFound):
            LocalStore().read(str(tmp_path / "none"))
        return weakref.ref(held)

    gc.disable()
    try:
        assert fails()() is None
    finally:
        gc.enable()


def test_output_list_and_delete(tmp_path: Path) -> None:
    store = LocalStore()
    with store.open_output(f"{tmp_path}/d/x.parquet") as out:
        out.write(b"xyz")
    infos = store.list(f"{tmp_path}/d")
    assert [(i.name, i.size, i.is_dir) for i in infos] == [("x.parquet", 3, False)]
    assert [i.is_dir for i in store.list(str(tmp_path))] == [True]
    store.delete_dir(f"{tmp_path}/d")
    assert not store.exists(f"{tmp_path}/d")


def test_counting_and_faulty_stack(tmp_path: Path) -> None:
    counting = CountingStore(LocalStore())
    faulty = FaultyStore(counting, fail_at=1, only=frozenset({"create"}))
    assert faulty.create(f"{tmp_path}/a", b"12")
    with pytest.raises(StorageUnavailable, match="made to fail"):
        faulty.create(f"{tmp_path}/b", b"12")
    assert faulty.create(f"{tmp_path}/b", b"12")
    assert counting.calls == {"create": 2}
    assert counting.bytes_written == 4
    after = FaultyStore(LocalStore(), fail_at=0, after=True, dead=True)
    with pytest.raises(StorageUnavailable):
        after.create(f"{tmp_path}/c", b"1")
    with pytest.raises(StorageUnavailable):
        after.read(f"{tmp_path}/c")
    assert LocalStore().read(f"{tmp_path}/c") == b"1"


@pytest.mark.parametrize("name", ["nul\0", "surrogate\ud800", "x" * 300])
def test_names_that_no_file_can_have_are_not_found(tmp_path: Path, name: str) -> None:
    store = LocalStore()
    for ask in (store.read, store.size, lambda p: store.read_range(p, 0, 1)):
        with pytest.raises(NotFound):
            ask(str(tmp_path / name))


def test_a_name_that_is_too_long_is_the_callers(tmp_path: Path) -> None:
    store, path = LocalStore(), str(tmp_path / ("x" * 300) / "f")
    assert store.list(path) == [] and not store.dir_exists(path)
    for make in (lambda: store.create(path, b""), lambda: store.make_dirs(path), lambda: store.open_output(path)):
        with pytest.raises(InvalidRequest, match="'xxxx.*too long .* choose a shorter name"):
            make()


def test_a_folder_is_deleted_while_another_process_deletes_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the first file that was gone ended the deletion, without an error, and the other files stayed."""
    folder = tmp_path / "d"
    for name in "abc":
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_bytes(b"x")
    unlink, gone = os.unlink, []

    def first_is_gone(path: Any, *, dir_fd: int | None = None) -> None:
        unlink(path, dir_fd=dir_fd)
        if not gone:
            gone.append(path)
            raise FileNotFoundError(errno.ENOENT, "gone", path)

    monkeypatch.setattr("os.unlink", first_is_gone)
    LocalStore().delete_dir(str(folder))
    assert gone and not folder.exists()


@pytest.mark.parametrize("writes", [1, 1000])
def test_a_folder_is_deleted_while_another_process_writes(
    tmp_path: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: "Directory not empty", after a table was dropped; its files stayed."""
    folder = tmp_path / "d"
    folder.mkdir()
    rmdir, left = os.rmdir, [writes]

    def late(path: Any, *, dir_fd: int | None = None) -> None:
        if left[0]:
            left[0] -= 1
            (folder / "late").write_bytes(b"x")
        rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr("os.rmdir", late)
    if writes == 1:
        LocalStore().delete_dir(str(folder))
        assert not folder.exists()
    else:  # it ends
        with pytest.raises(StorageUnavailable, match="not empty"):
            LocalStore().delete_dir(str(folder))
