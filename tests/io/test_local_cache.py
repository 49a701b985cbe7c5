"""The local cache: the same bytes as the store's, fewer requests, bounded folders, damaged blocks, many processes."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import flaky_proxy
import pyarrow as pa
import pytest
import s3_server
from store_wrappers import CountingStore

import bitlake
from bitlake import _clock
from bitlake.errors import CorruptError, InvalidRequest, NotFound, StorageUnavailable
from bitlake.io import ResolvingStore, local_cache, open_store
from bitlake.io.local import LocalStore
from bitlake.io.local_cache import FILE_KINDS, CachedStore, cache_options, clear_memory, file_kind

UUID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
DATA = f"data-{UUID}-0.parquet"
BLOCK = 4096


def options(folder: Path | None, **more: str) -> dict[str, str]:
    given = {"enabled": "true", "block-size": str(BLOCK), "whitelist": ",".join(FILE_KINDS), **more}
    if folder is not None:
        given["dir"] = str(folder)
    return {f"local-cache.{name.replace('_', '-')}": value for name, value in given.items()}


def over(inner: Any, folder: Path | None, **more: str) -> CachedStore:
    made = cache_options(options(folder, **more), {})
    assert made is not None
    return CachedStore(inner, made)


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    clear_memory()
    return tmp_path / "cache" if request.param == "disk" else None


def blocks_of(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and len(p.name) == 64)


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"local-cache.size": "1"}, "unknown storage option 'local-cache.size'"),
        ({"local-cache.enabled": "maybe"}, "'local-cache.enabled' must be true or false"),
        ({"local-cache.enabled": "true", "local-cache.max-size": "big"}, "'local-cache.max-size' must be a size"),
        ({"local-cache.enabled": "true", "local-cache.block-size": "1 kb"}, "from 4 kb to 64 mb"),
        (
            {"local-cache.enabled": "true", "local-cache.whitelist": "meta, rows"},
            "unknown kind of file 'rows'",
        ),
        ({"local-cache.enabled": "true", "local-cache.max-size": "7 mb"}, "at least eight blocks"),
        ({"local-cache.enabled": "true", "local-cache.dir": "s3://lake/x"}, "must be a folder of the local disk"),
        ({"local-cache.enabled": "true", "local-cache.dir": "a\0b"}, "must be a folder of the local disk"),
    ],
)
def test_invalid_options_are_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        bitlake.connect("s3://lake/x", storage_options={**s3_server.options("http://127.0.0.1:1"), **given})


def test_options_are_paimons_and_session_settings_complete_them() -> None:
    assert cache_options({}, {}) is None
    assert cache_options({"local-cache.dir": "/c"}, {}) is None
    default = cache_options({"Local-Cache.Enabled": " TRUE "}, {})
    assert default is not None
    assert (default.folder, default.block_size, default.kinds) == (None, 1 << 20, {"meta", "global-index"})
    session = {"spark.bitlake.local-cache.enabled": "true", "spark.bitlake.local-cache.dir": "/session"}
    both = cache_options({"local-cache.dir": "/own", "local-cache.max-size": "2gb"}, session)
    assert both is not None and (both.folder, both.max_size) == ("/own", 2 << 30)
    for spelt in ("/a b", "file:/a b", "file:///a b", "FILE://localhost/a b"):
        named = cache_options({"local-cache.enabled": "true", "local-cache.dir": spelt}, {})
        assert named is not None and named.folder == "/a b"
    off = cache_options({"local-cache.enabled": "false"}, session)
    assert off is None


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    given = options(tmp_path / "file" / "cache")
    with pytest.raises(InvalidRequest, match="local cache's folder .*: Not a directory; choose another"):
        bitlake.connect("s3://lake/x", storage_options={**s3_server.options("http://127.0.0.1:1"), **given})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"manifest-{UUID}-0", "meta"),
        (f"manifest-list-{UUID}-1", "meta"),
        (f"index-manifest-{UUID}-0", "meta"),
        (f"stat-{UUID}-0", "meta"),
        (f"index-{UUID}-3", "bucket-index"),
        (f"data-{UUID}-0.parquet.index", "file-index"),
        (f"btree-global-index-{UUID}.index", "global-index"),
        (DATA, "data"),
        (f"changelog-{UUID}-0.orc", "data"),
        (f"mine-{UUID}-0.zstd.avro", "data"),
        ("snapshot-1", None),
        ("schema-0", None),
        (f"tag-{UUID}", None),
        (f"consumer-{UUID}", None),
        ("LATEST", None),
        ("data.csv", None),
        (f".manifest-{UUID}-0.{UUID}.tmp", None),
    ],
)
def test_kinds_of_files(name: str, kind: str | None) -> None:
    assert file_kind(f"s3://b/{UUID}/t/{name}") == kind


# --- bytes and requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 10 * BLOCK + 77])
def test_reads_equal_the_files_bytes(place: Path | None, tmp_path: Path, size: int) -> None:
    chance = random.Random(size)
    data = chance.randbytes(size)
    path = str(tmp_path / DATA)
    Path(path).write_bytes(data)
    inner = CountingStore(LocalStore())
    for _ in range(3):  # the third store finds what the others kept
        store = over(inner, place)
        for _ in range(40):
            ranges = []
            for _ in range(chance.randrange(1, 5)):
                offset = chance.randint(0, size)
                ranges.append((offset, chance.randint(0, size - offset)))
            assert store.read_ranges(path, ranges) == [data[o : o + n] for o, n in ranges]
            offset, length = chance.randint(0, size + 10), chance.randint(0, 3 * BLOCK)
            assert store.read_part(path, offset, length) == (data[offset : offset + length], size)
        assert store.read(path) == data
        with store.open_input(path, size) as file:
            assert file.read() == data
    inner.reset()
    store.read(path)
    store.read_ranges(path, [(0, size)])
    assert not size or inner.calls == {}, "all of it was kept"


def test_one_read_fetches_each_missing_block_once(place: Path | None, tmp_path: Path) -> None:
    path = str(tmp_path / DATA)
    data = random.Random(1).randbytes(9 * BLOCK)
    Path(path).write_bytes(data)
    inner = CountingStore(LocalStore())
    store = over(inner, place)
    assert store.read_range(path, BLOCK + 5, 10) == data[BLOCK + 5 : BLOCK + 15]
    inner.reset()
    got = store.read_ranges(path, [(0, 3 * BLOCK), (5 * BLOCK, 2 * BLOCK), (2 * BLOCK, 5)])
    assert got == [data[: 3 * BLOCK], data[5 * BLOCK : 7 * BLOCK], data[2 * BLOCK : 2 * BLOCK + 5]]
    assert inner.calls == {"read_ranges": 1} and inner.bytes_read == 4 * BLOCK


def test_errors_are_those_of_the_store(place: Path | None, tmp_path: Path) -> None:
    store = over(LocalStore(), place)
    path = str(tmp_path / DATA)
    for ask in (store.read, store.size, store.open_input, lambda p: store.read_range(p, 0, 1)):
        with pytest.raises(NotFound):
            ask(path)
    Path(path).write_bytes(b"abcdefghij")
    for _ in range(2):
        with pytest.raises(CorruptError, match="ends 1 bytes before"):
            store.read_range(path, 8, 3)
        with pytest.raises(CorruptError, match=r"ends \d+ bytes before"):
            store.read_range(path, 3 * BLOCK, 5)
        with pytest.raises(InvalidRequest, match="negative"):
            store.read_range(path, -1, 3)
        with pytest.raises(CorruptError, match="read up to 5 bytes"):
            store.read(path, 5)
    assert store.read(path) == b"abcdefghij"


def test_files_that_may_be_replaced_are_read_from_the_store(place: Path | None, tmp_path: Path) -> None:
    store = over(LocalStore(), place)
    for name in ("snapshot-1", "schema-0", "LATEST", "tag-t", "data.csv"):
        path = str(tmp_path / name)
        for content in (b"first", b"second"):
            Path(path).write_bytes(content)
            assert store.read(path) == store.read_tagged(path)[0] == store.read_range(path, 0, len(content)) == content


def test_kinds_that_are_not_listed_are_not_kept(tmp_path: Path) -> None:
    inner = CountingStore(LocalStore())
    store = over(inner, tmp_path / "cache", whitelist="meta")
    for name, requests in ((DATA, 2), (f"manifest-{UUID}-0", 1)):
        path = str(tmp_path / name)
        Path(path).write_bytes(b"x" * 100)
        inner.reset()
        assert store.read(path) == store.read(path) == b"x" * 100
        assert inner.calls["read"] == requests


def test_servers_are_told_apart_and_credentials_are_not(tmp_path: Path) -> None:
    def location(**more: str) -> object:
        given = {**s3_server.options("http://127.0.0.1:1"), **more}
        return open_store("s3://lake/x", {**given, **options(tmp_path)}).location

    assert location() == location(**{"s3.access-key": "other", "s3.secret-key": "other"})
    assert location() != location(**{"s3.endpoint": "http://127.0.0.1:2"})
    assert "AKID" not in repr(location()) and "secret" not in repr(location())


# --- the folder -------------------------------------------------------------------------------------------------------


def test_damaged_blocks_are_fetched_again(tmp_path: Path) -> None:
    path, folder = str(tmp_path / DATA), tmp_path / "cache"
    data = random.Random(2).randbytes(3 * BLOCK + 100)
    Path(path).write_bytes(data)
    over(LocalStore(), folder).read(path)
    chance = random.Random(3)
    for how in ("byte", "short", "empty", "longer", "folder"):
        for block in blocks_of(folder):
            raw = bytearray(block.read_bytes())
            if how == "byte":
                raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
            elif how == "short":
                del raw[chance.randrange(1, len(raw)) :]
            elif how == "longer":
                raw += b"\0"
            block.write_bytes(b"" if how == "empty" else bytes(raw))
            if how == "folder":
                block.unlink()
                block.mkdir()
        inner = CountingStore(LocalStore())
        assert over(inner, folder).read_range(path, 0, len(data)) == data, how
        assert inner.bytes_read == len(data), how
        if how != "folder":
            inner.reset()
            assert over(inner, folder).read(path) == data and inner.calls == {}, how


def test_the_least_recently_used_blocks_go(tmp_path: Path) -> None:
    folder, most = tmp_path / "cache", 40 * BLOCK
    store = over(LocalStore(), folder, max_size=str(most))
    paths = [str(tmp_path / f"data-{UUID}-{i}.parquet") for i in range(60)]
    stranger = folder / "bitlake-blocks-1" / "ab" / "notes.txt"
    stranger.parent.mkdir(parents=True)
    stranger.write_text("not a block")
    for number, path in enumerate(paths):
        Path(path).write_bytes(random.Random(number).randbytes(3 * BLOCK))
        before = {p: p.stat().st_mtime for p in blocks_of(folder)}
        store.read(path)
        for block in blocks_of(folder):  # as if a second had passed since each file
            when = before.get(block, 1_000_000 + number)
            os.utime(block, (when, when))
        assert sum(b.stat().st_size for b in blocks_of(folder)) <= most + 4 * BLOCK
    inner = CountingStore(LocalStore())
    again = over(inner, folder, max_size=str(most))
    assert again.read(paths[-1]) == Path(paths[-1]).read_bytes() and inner.calls == {}
    again.read(paths[0])
    assert inner.calls, "the first file's blocks made room"
    assert stranger.read_text() == "not a block"


def test_a_block_that_is_used_stays(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    store = over(LocalStore(), folder)
    path = str(tmp_path / DATA)
    Path(path).write_bytes(b"x" * 10)
    store.read(path)
    (block,) = blocks_of(folder)
    os.utime(block, (1_000_000, 1_000_000))
    store.read(path)
    assert block.stat().st_mtime > 1_000_000


def test_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    old, new = (folder / "bitlake-blocks-1" / "cd" / f".{n * 64}.1-1.tmp" for n in "ab")
    old.parent.mkdir(parents=True)
    old.write_bytes(b"half")
    os.utime(old, (1_000_000, 1_000_000))
    new.write_bytes(b"being written")
    path = str(tmp_path / DATA)
    Path(path).write_bytes(b"x")
    over(LocalStore(), folder).read(path)
    assert not old.exists() and new.exists()


def test_a_full_disk_costs_the_cache_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, folder = str(tmp_path / DATA), tmp_path / "cache"
    data = random.Random(5).randbytes(2 * BLOCK)
    Path(path).write_bytes(data)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    store = over(LocalStore(), folder)
    assert store.read(path) == store.read_range(path, 0, len(data)) == data
    assert blocks_of(folder) == []
    inner = CountingStore(LocalStore())
    small = over(inner, folder)
    assert small.read_range(path, 5, 10) == data[5:15] and small.read_part(path, 5, 10) == (data[5:15], len(data))
    assert inner.bytes_read == 20, "whole blocks are not fetched while none can be kept"
    monkeypatch.undo()
    monkeypatch.setattr(_clock, "now_ms", lambda now=_clock.now_ms: now() + 61_000)
    assert small.read_range(path, 5, 10) == data[5:15]
    assert len(blocks_of(folder)) == 1, "a minute later it is tried again"


def test_a_folder_that_can_only_be_read_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, folder = str(tmp_path / DATA), tmp_path / "cache"
    Path(path).write_bytes(b"abc")
    over(LocalStore(), folder).read(path)
    for block in blocks_of(folder):
        os.utime(block, (1_000_000, 1_000_000))

    def read_only(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", read_only)
    inner = CountingStore(LocalStore())
    assert over(inner, folder).read_range(path, 1, 1) == b"b" and inner.calls == {}


def test_a_folder_that_vanishes_is_made_again(tmp_path: Path) -> None:
    path, folder = str(tmp_path / DATA), tmp_path / "cache"
    Path(path).write_bytes(b"abc")
    store = over(LocalStore(), folder)
    for _ in range(2):
        assert store.read(path) == b"abc" and len(blocks_of(folder)) == 1
        subprocess.run(["rm", "-r", str(folder)], check=True)


# --- threads and processes --------------------------------------------------------------------------------------------


class Slow(CountingStore):
    """Answers once ``go`` is set; fails ``failures`` times."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__(LocalStore())
        self.go = threading.Event()
        self.failures = failures

    def read_part(self, path: str, offset: int, length: int) -> tuple[bytes, int]:
        self.go.wait(10)
        with self._lock:
            self.failures -= 1
            if self.failures >= 0:
                raise StorageUnavailable("the connection broke")
        return super().read_part(path, offset, length)


def in_threads(count: int, inner: Slow, read: Any) -> list[object]:
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(read())
        except StorageUnavailable as e:
            outcomes.append(str(e))

    threads = [threading.Thread(target=run) for _ in range(count)]
    for t in threads:
        t.start()
    inner.go.set()
    for t in threads:
        t.join()
    return outcomes


def test_threads_share_a_fetch(place: Path | None, tmp_path: Path) -> None:
    path = str(tmp_path / DATA)
    data = random.Random(6).randbytes(5 * BLOCK)
    Path(path).write_bytes(data)
    inner = Slow()
    store = over(inner, place)
    assert in_threads(12, inner, lambda: store.read_range(path, 0, len(data))) == [data] * 12
    assert inner.bytes_read == len(data)


def test_a_failed_fetch_fails_its_own_thread(place: Path | None, tmp_path: Path) -> None:
    path = str(tmp_path / DATA)
    data = random.Random(7).randbytes(5 * BLOCK)
    Path(path).write_bytes(data)
    inner = Slow(failures=1)
    store = over(inner, place)
    outcomes = in_threads(8, inner, lambda: store.read_range(path, 0, len(data)))
    assert sorted(map(str, outcomes)) == sorted(map(str, [data] * 7 + ["the connection broke"]))
    assert store.read(path) == data


def test_an_interrupted_read_keeps_no_other_waiting(
    place: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / DATA)
    data = random.Random(10).randbytes(300 * BLOCK)
    Path(path).write_bytes(data)
    monkeypatch.setattr(local_cache, "_FETCH_WAIT_SECONDS", 0.2)
    chance = random.Random(11)
    interrupted = 0
    for _ in range(30):
        inner = Slow()
        inner.go.set()
        store = over(inner, place, max_size=str(chance.randrange(400, 500) * BLOCK))
        left = chance.randrange(1, 4000)

        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename.endswith("local_cache.py"):
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            store.read_range(path, 0, len(data))
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            sys.settrace(None)
        assert store.read_range(path, 0, len(data)) == data
    assert interrupted > 10


def test_pickled_stores_share_what_is_kept(place: Path | None, tmp_path: Path) -> None:
    path = str(tmp_path / DATA)
    Path(path).write_bytes(b"abc")
    store = over(LocalStore(), place)
    assert store.read(path) == b"abc"
    Path(path).unlink()
    other = pickle.loads(pickle.dumps(store))
    assert other.read(path) == b"abc" and other.identity == store.identity
    with pytest.raises(NotFound):
        other.uncached.read(path)


def test_a_task_does_not_fail_for_the_folder_of_its_machine(s3_endpoint: str, tmp_path: Path) -> None:
    folder, name = tmp_path / "cache", tmp_path.name
    lake = connected(s3_endpoint, name, folder)
    before = lake.create_table("t", pa.table({"id": range(100)})).scan().to_arrow()
    table = lake.table("t")
    several = ResolvingStore({**s3_server.options(s3_endpoint), **options(folder)}, {}, f"s3://lake/{name}")
    there = pickle.dumps((table, several))
    subprocess.run(["rm", "-r", str(folder)], check=True)
    folder.write_text("a file")
    assert pickle.loads(there)[0].scan().to_arrow() == before
    assert pickle.loads(there)[1].list(f"s3://lake/{name}/default.db/t/schema")
    with pytest.raises(InvalidRequest, match="cannot create the local cache's folder"):
        connected(s3_endpoint, name, folder)


# --- tables in a bucket -----------------------------------------------------------------------------------------------


def connected(endpoint: str, name: str, folder: Path | None) -> bitlake.Lake:
    given = s3_server.options(endpoint)
    return bitlake.connect(f"s3://lake/{name}", storage_options={**given, **(options(folder) if folder else {})})


def test_another_process_reads_neither_manifests_nor_data_again(s3_endpoint: str, tmp_path: Path) -> None:
    folder, name = tmp_path / "cache", tmp_path.name
    table = connected(s3_endpoint, name, None).create_table("t", pa.schema([("id", pa.int64()), ("v", pa.int64())]))
    table.append(pa.table({"id": range(20_000), "v": [i % 7 for i in range(20_000)]}))
    script = (
        "import bitlake, sys, json\n"
        "lake = bitlake.connect(sys.argv[1], storage_options=json.loads(sys.argv[2]))\n"
        "print(lake.table('t').scan(where='v = 3').to_arrow().num_rows)\n"
    )
    with flaky_proxy.running(s3_endpoint) as proxy:
        seen = []
        for _ in range(2):
            given = json.dumps({**s3_server.options(proxy.endpoint), **options(folder)})
            command = [sys.executable, "-c", script, f"s3://lake/{name}", given]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            assert done.stdout.strip() == str(sum(i % 7 == 3 for i in range(20_000)))
            seen.append([path for method, path, _ in proxy.seen if method == "GET" and file_kind(path.split("?")[0])])
            proxy.seen.clear()
    assert len(seen[0]) >= 3 and seen[1] == []


def test_changes_by_others_are_seen(s3_endpoint: str, tmp_path: Path) -> None:
    folder, name = tmp_path / "cache", tmp_path.name
    writer = connected(s3_endpoint, name, None)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
    keyed = {"bucket": "1", "deletion-vectors.enabled": "true"}
    table = writer.create_table("t", schema, primary_key=["id"], options=keyed)
    reader = connected(s3_endpoint, name, folder)
    expected: dict[int, int] = {}
    chance = random.Random(8)
    for step in range(8):
        rows = {chance.randrange(50): step for _ in range(20)}
        table.upsert(pa.table({"id": list(rows), "v": list(rows.values())}))
        expected |= rows
        for lake in (reader, connected(s3_endpoint, name, folder)):
            got = lake.table("t").scan().to_arrow().to_pydict()
            assert dict(zip(got["id"], got["v"], strict=True)) == expected
    table.history.rollback(2)
    table.upsert(pa.table({"id": [1], "v": [99]}))
    want = writer.table("t").scan().to_arrow().sort_by("id")
    for lake in (reader, connected(s3_endpoint, name, folder)):
        assert lake.table("t").scan().to_arrow().sort_by("id") == want


def test_verify_reads_the_bucket(s3_endpoint: str, tmp_path: Path) -> None:
    folder, name = tmp_path / "cache", tmp_path.name
    lake = connected(s3_endpoint, name, folder)
    table = lake.create_table("t", pa.table({"id": range(1000)}))
    before = table.scan().to_arrow()
    assert lake.table("t").maintenance.verify().ok
    (file,) = table.scan().plan().files
    store = open_store(f"s3://lake/{name}", s3_server.options(s3_endpoint))
    whole = store.read(file.path)
    store.write(file.path, whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    again = connected(s3_endpoint, name, folder).table("t")
    assert again.scan().to_arrow() == before, "from the cache"
    assert not again.maintenance.verify().ok
    for lake in (connected(s3_endpoint, name, folder), again):
        with pytest.raises(CorruptError, match="data-"):
            lake.table("t").scan().to_arrow() if isinstance(lake, bitlake.Lake) else lake.scan().to_arrow()
    store.write(file.path, whole)
    assert connected(s3_endpoint, name, folder).table("t").scan().to_arrow() == before, "what failed is not kept"


@pytest.mark.parametrize("kind", ["manifest-", "manifest-list-", "index-manifest-", "index-", ".index"])
def test_a_file_that_is_restored_is_read_again(s3_endpoint: str, tmp_path: Path, kind: str) -> None:
    folder, name = tmp_path / "cache", tmp_path.name
    lake = connected(s3_endpoint, name, folder)
    more = {
        "deletion-vectors.enabled": "true",
        "file-index.bitmap.columns": "v",
        "file-index.in-manifest-threshold": "1",
    }
    table = lake.create_table("t", pa.table({"id": range(1000), "v": [i % 3 for i in range(1000)]}), options=more)
    table.delete("id < 10")
    before = connected(s3_endpoint, name, None).table("t").scan(where="v = 1").to_arrow()
    store = open_store(f"s3://lake/{name}", s3_server.options(s3_endpoint))
    root = table.path
    folders = [f"{root}/{f}" for f in ("manifest", "index", "bucket-0")]
    paths = [f"{f}/{e.name}" for f in folders for e in store.list(f) if kind in e.name and not e.is_dir]
    paths = [p for p in paths if p.rpartition("/")[2].startswith(kind) or p.endswith(kind)]
    whole = {path: store.read(path) for path in paths}
    assert whole
    for path, data in whole.items():
        store.write(path, data[: len(data) // 2] + bytes(b ^ 0x55 for b in data[len(data) // 2 :]))

    def rows() -> Any:
        return connected(s3_endpoint, name, folder).table("t").scan(where="v = 1").to_arrow()

    if kind == ".index":
        assert rows() == before, "an index that cannot be read excludes nothing"
    else:
        with pytest.raises(CorruptError):
            rows()
    for path, data in whole.items():
        store.write(path, data)
    assert rows() == before


def test_explain_tells_what_the_cache_had(s3_endpoint: str, tmp_path: Path) -> None:
    folder, name = tmp_path / "cache", tmp_path.name
    chance = random.Random(9)
    numbers = [chance.randrange(1 << 60) for _ in range(50_000)]
    made = connected(s3_endpoint, name, None).create_table("t", pa.table({"id": numbers}))

    def phases(lake: bitlake.Lake) -> dict[str, Any]:
        explained = lake.table("t").scan(where="id >= 0").explain("dict", analyze=True)
        return {p["phase"]: p for p in explained["phases"]}

    first = phases(connected(s3_endpoint, name, folder))
    assert first["read"]["cached_bytes"] * 10 < first["read"]["bytes"], "a block of the footer's read alone"
    again = phases(connected(s3_endpoint, name, folder))
    for phase in ("manifests", "read"):
        assert 0 < again[phase]["cached_bytes"] <= again[phase]["bytes"]
    assert again["read"]["cached_bytes"] == again["read"]["bytes"]
    text = connected(s3_endpoint, name, folder).table("t").scan().explain(analyze=True)
    assert "in local cache" in text and "in local cache" not in made.scan().explain(analyze=True)
    page = connected(s3_endpoint, name, folder).table("t").scan().explain("html", analyze=True)
    assert "from the local cache" in page
