"""HDFS by WebHDFS and by Hadoop's own protocol.

With BITLAKE_WEBHDFS=host:port and BITLAKE_HDFS=host:port what needs no failures runs against that cluster instead.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import threading
import uuid
from collections.abc import Callable, Iterator

import native_hdfs_client
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webhdfs_server as hdfs
from long import exhaustive
from store_checks import check_one_creates, check_ranges

from bitlake.errors import AccessDenied, AlreadyExists, InvalidRequest, NotFound, StorageUnavailable
from bitlake.io import Store, has_cheap_rename, open_store
from bitlake.io.hdfs import NativeHdfsStore
from bitlake.io.remote_files import PART_BYTES
from bitlake.io.webhdfs import Upload, WebHdfs, hdfs_options
from bitlake.lake import connect

OPTIONS = {"user": os.environ.get("HADOOP_USER_NAME", "me")}
QUICK = {"retry_timeout": "2", "timeout": "5"}


@pytest.fixture
def cluster() -> Iterator[hdfs.Cluster]:
    with hdfs.running() as made:
        yield made


@pytest.fixture(params=["webhdfs", "native"])
def place(request: pytest.FixtureRequest) -> tuple[Store, str]:
    """A store and a new folder in it."""
    if request.param == "native":
        return request.getfixturevalue("native_place")
    address = os.environ.get("BITLAKE_WEBHDFS") or request.getfixturevalue("cluster").namenode
    root = f"webhdfs://{address}/tmp/{uuid.uuid4()}"
    return open_store(root, OPTIONS), root


@pytest.fixture
def native_place(monkeypatch: pytest.MonkeyPatch) -> tuple[Store, str]:
    """The same by Hadoop's own protocol: a cluster, or a stand-in with the interface of hdfs-native."""
    address = os.environ.get("BITLAKE_HDFS")
    if address is None:
        address = "stand-in:8020"
        native_hdfs_client.install(monkeypatch)
    root = f"hdfs://{address}/tmp/{uuid.uuid4()}"
    return NativeHdfsStore(root), root


def store_of(cluster: hdfs.Cluster, **options: str) -> tuple[Store, str]:
    root = "hdfs://cluster:8020/lake"
    return open_store(root, {"dfs.namenode.http-address": cluster.namenode, **QUICK, **options}), root


def first(op: str, what: str, times: int = 1) -> hdfs.Plan:
    return lambda o, _, number: what if o == op and number < times else hdfs.PASS


# --- what every store does --------------------------------------------------------------------------------------------


def test_bytes_come_back_under_names_as_they_are(place: tuple[Store, str]) -> None:
    store, root = place
    names = ("plain", "dt=2024-01-01 10%3A00%3A00/x", "ü ö/+&#?", "a/b/c/d", "100%/%25")
    for name in names:
        store.write(f"{root}/{name}", name.encode())
    for name in names:
        assert store.read(f"{root}/{name}") == name.encode()
        assert store.size(f"{root}/{name}") == len(name.encode())
        assert store.exists(f"{root}/{name}")
    assert [(f.name, f.is_dir) for f in store.list(root)] == [
        ("100%", True),
        ("a", True),
        ("dt=2024-01-01 10%3A00%3A00", True),
        ("plain", False),
        ("ü ö", True),
    ]
    assert store.list(f"{root}/a/b/c")[0].size == 7
    assert store.list(f"{root}/a/b/c")[0].mtime_ms > 1_600_000_000_000
    assert store.list(f"{root}/a/b/c/d") == []
    assert store.local_path(root) is None and not has_cheap_rename(store, root)


def test_missing_things(place: tuple[Store, str]) -> None:
    store, root = place
    assert store.list(f"{root}/no") == []
    assert not store.exists(f"{root}/no") and not store.dir_exists(f"{root}/no")
    store.delete(f"{root}/no")
    store.delete_all([f"{root}/no", f"{root}/nor"])
    store.delete_dir(f"{root}/no")
    for ask in (store.read, store.size, store.open_input, lambda p: store.read_range(p, 0, 1)):
        with pytest.raises(NotFound, match="no such file"):
            ask(f"{root}/no")
    for move in (store.rename, store.copy_dir):
        with pytest.raises(NotFound):
            move(f"{root}/no", f"{root}/other")
    with pytest.raises(NotFound, match="name"):
        store.read(f"{root}/surrogate\ud800")


def test_ranges_are_exact_or_corrupt(place: tuple[Store, str]) -> None:
    store, root = place
    path = f"{root}/f"
    check_ranges(store, path)
    assert store.read_part(path, 0, 4) == (b"abcd", 10)
    assert store.read_part(path, 7, 40) == (b"hij", 10)
    assert store.read_part(path, 10, 1) == store.read_part(path, 11, 1) == (b"", 10)
    store.write(path, b"")
    assert store.read(path) == b"" and store.read_part(path, 0, 4) == (b"", 0)


def test_far_ranges_are_requests_side_by_side(place: tuple[Store, str]) -> None:
    store, root = place
    data = os.urandom(1 << 20)
    store.write(f"{root}/f", data)
    ranges = [(900_000, 10), (0, 5), (400_000, 7), (6, 3)]
    assert store.read_ranges(f"{root}/f", ranges) == [data[o : o + n] for o, n in ranges]


def test_create_never_overwrites_and_leaves_nothing_else(place: tuple[Store, str]) -> None:
    store, root = place
    assert store.create(f"{root}/deep/er/f", b"one")
    assert not store.create(f"{root}/deep/er/f", b"two")
    assert store.read(f"{root}/deep/er/f") == b"one"
    store.write(f"{root}/deep/er/f", b"three")
    assert store.read(f"{root}/deep/er/f") == b"three"
    assert [f.name for f in store.list(f"{root}/deep/er")] == ["f"]


def test_exactly_one_of_many_creates(place: tuple[Store, str]) -> None:
    store, root = place
    check_one_creates(store, f"{root}/f")
    assert [f.name for f in store.list(root)] == ["f"]


def test_files_and_folders_move_and_are_copied(place: tuple[Store, str]) -> None:
    store, root = place
    store.write(f"{root}/a/one", b"1")
    store.rename(f"{root}/a/one", f"{root}/b/two")
    assert store.read(f"{root}/b/two") == b"1" and not store.exists(f"{root}/a/one")
    for name in ("schema/schema-0", "bucket-0/data", "snapshot/snapshot-1"):
        store.write(f"{root}/t/{name}", name.encode())
    store.rename(f"{root}/t", f"{root}/u")
    store.copy_dir(f"{root}/u", f"{root}/v")
    assert not store.dir_exists(f"{root}/t")
    for folder in ("u", "v"):
        assert store.read(f"{root}/{folder}/bucket-0/data") == b"bucket-0/data"
        assert [f.name for f in store.list(f"{root}/{folder}")] == ["bucket-0", "schema", "snapshot"]
    with pytest.raises(AlreadyExists):
        store.rename(f"{root}/u", f"{root}/v")
    assert [f.name for f in store.list(f"{root}/v")] == ["bucket-0", "schema", "snapshot"]
    store.delete_dir(f"{root}/v")
    assert not store.dir_exists(f"{root}/v")


def test_folders(place: tuple[Store, str]) -> None:
    store, root = place
    store.make_dirs(f"{root}/db.db")
    store.make_dirs(f"{root}/db.db")
    assert store.dir_exists(f"{root}/db.db") and not store.exists(f"{root}/db.db")
    store.write(f"{root}/file", b"")
    for path in (f"{root}/file", f"{root}/file/below"):
        with pytest.raises(StorageUnavailable, match="a file has its name"):
            store.make_dirs(path)
    with pytest.raises(StorageUnavailable):
        store.create(f"{root}/file/x", b"")
    with pytest.raises(StorageUnavailable):
        store.write(f"{root}/db.db", b"")
    with pytest.raises(InvalidRequest, match="whole file system"):
        store.delete_dir(root.split("/tmp/")[0])


def test_arrow_writes_and_reads_parquet(place: tuple[Store, str]) -> None:
    store, root = place
    table = pa.table({"a": range(200_000), "b": [str(i) for i in range(200_000)]})
    with store.open_output(f"{root}/f.parquet") as out:
        pq.write_table(table, out)
    with store.open_input(f"{root}/f.parquet") as source:
        assert pq.read_table(source).equals(table)
    with store.open_output(f"{root}/large") as out:
        out.write(b"x" * (2 * PART_BYTES + 1))
    assert store.size(f"{root}/large") == 2 * PART_BYTES + 1


def test_what_an_exception_leaves_is_deleted(place: tuple[Store, str]) -> None:
    store, root = place
    with contextlib.suppress(KeyError), store.open_output(f"{root}/f") as out:
        out.write(b"half")
        raise KeyError
    assert not store.exists(f"{root}/f")


def test_a_lake_of_tables(place: tuple[Store, str]) -> None:
    _, root = place
    options = OPTIONS if root.startswith("webhdfs") else None
    lake = connect(root, storage_options=options)
    table = lake.create_table("t", pa.schema({"id": pa.int64(), "p": pa.string()}), partition_by=["p"])
    table.append(pa.table({"id": [1, 2], "p": ["a:b", "c%d"]}))
    failed: list[BaseException] = []

    def append(number: int) -> None:
        try:
            connect(root, storage_options=options).table("t").append(pa.table({"id": [number], "p": ["x"]}))
        except BaseException as e:
            failed.append(e)
            raise

    threads = [threading.Thread(target=append, args=(i,)) for i in (10, 20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed
    assert sorted(lake.table("t").scan().to_arrow()["id"].to_pylist()) == [1, 2, 10, 20]
    assert lake.table("t").scan(where="p = 'a:b'").to_arrow().to_pylist() == [{"id": 1, "p": "a:b"}]
    lake.rename_table("t", "u")
    assert lake.tables() == ["u"]
    lake.drop_table("u")
    assert lake.tables() == []


# --- lost connections -------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize("what", [hdfs.DROP, hdfs.LOSE_ANSWER, hdfs.UNAVAILABLE, hdfs.STANDBY])
@pytest.mark.parametrize("op", ["CREATE", "DATA-CREATE", "RENAME"])
def test_a_creation_is_done_once_whatever_gets_lost(cluster: hdfs.Cluster, op: str, what: str) -> None:
    store, root = store_of(cluster)
    cluster.plan = first(op, what, 2)
    assert store.create(f"{root}/snapshot-1", b"ours")
    assert not store.create(f"{root}/snapshot-1", b"other")
    assert store.read(f"{root}/snapshot-1") == b"ours"
    assert store.list(root)[-1].name == "snapshot-1"


def test_a_rename_that_a_gateway_sends_twice(cluster: hdfs.Cluster) -> None:
    store, root = store_of(cluster)
    cluster.plan = first("RENAME", hdfs.REPEAT)
    assert store.create(f"{root}/snapshot-1", b"ours")
    assert not store.create(f"{root}/snapshot-1", b"other")
    assert [f.name for f in store.list(root)] == ["snapshot-1"]


@pytest.mark.parametrize("what", [hdfs.DROP, hdfs.LOSE_ANSWER])
def test_a_creation_that_is_lost_to_another_is_known_to_be(cluster: hdfs.Cluster, what: str) -> None:
    """Another writer takes the name, and then our answers get lost."""
    store, root = store_of(cluster)
    assert store.create(f"{root}/snapshot-1", b"theirs")
    cluster.plan = first("RENAME", what, 3)
    assert not store.create(f"{root}/snapshot-1", b"ours")
    assert [f.name for f in store.list(root)] == ["snapshot-1"] and store.read(f"{root}/snapshot-1") == b"theirs"


def test_a_refusal_after_a_lost_answer_leaves_the_outcome_open(cluster: hdfs.Cluster) -> None:
    store, root = store_of(cluster)
    cluster.plan = lambda op, path, number: (
        hdfs.PASS if op != "RENAME" else hdfs.LOSE_ANSWER if not number else hdfs.REFUSE
    )
    with pytest.raises(StorageUnavailable) as e:
        store.create(f"{root}/f", b"1")
    assert not isinstance(e.value, AccessDenied) and store.read(f"{root}/f") == b"1"
    with pytest.raises(AccessDenied):
        store.create(f"{root}/g", b"1")
    assert [f.name for f in store.list(root)] == ["f"]


def test_gateways_without_rename_options(cluster: hdfs.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = hdfs._rename
    monkeypatch.setattr(hdfs, "_rename", lambda files, path, to, how: plain(files, path, to, None))
    store, root = store_of(cluster)
    cluster.plan = first("RENAME", hdfs.LOSE_ANSWER)
    assert store.create(f"{root}/f", b"one")
    assert not store.create(f"{root}/f", b"two")
    store.write(f"{root}/f", b"three")
    assert store.read(f"{root}/f") == b"three" and [f.name for f in store.list(root)] == ["f"]


@pytest.mark.parametrize("what", [exhaustive(hdfs.DROP), hdfs.CUT, exhaustive(hdfs.UNAVAILABLE)])
def test_reading_is_tried_again(cluster: hdfs.Cluster, what: str) -> None:
    store, root = store_of(cluster)
    store.write(f"{root}/f", b"0123456789")
    for op in ("OPEN", "DATA-OPEN", "GETFILESTATUS", "LISTSTATUS"):
        if op == "OPEN" and what == hdfs.CUT:
            continue  # a redirect has no body
        start = cluster.count(op)
        cluster.plan = lambda o, _, number, op=op, start=start: what if o == op and number < start + 2 else hdfs.PASS
        assert store.read_range(f"{root}/f", 2, 3) == b"234"
        assert store.size(f"{root}/f") == 10
        assert [f.size for f in store.list(root)] == [10]


def test_what_never_works_ends_and_says_where(cluster: hdfs.Cluster) -> None:
    store, root = store_of(cluster, max_retries="1")
    cluster.plan = lambda op, path, number: hdfs.DROP
    tries: list[Callable[[], object]] = [
        lambda: store.read(f"{root}/f"),
        lambda: store.list(root),
        lambda: store.create(f"{root}/f", b"1"),
        lambda: store.open_output(f"{root}/f"),
        lambda: store.delete(f"{root}/f"),
    ]
    for attempt in tries:
        with pytest.raises(StorageUnavailable, match=f"connection was dropped.*{cluster.namenode}"):
            attempt()
    cluster.plan = first("DATA-CREATE", hdfs.DROP, 99)
    with pytest.raises(StorageUnavailable, match="cannot write"), store.open_output(f"{root}/f") as out:
        out.write(b"x" * 100)
    with pytest.raises(StorageUnavailable, match="9870|refused|name"):
        open_store("hdfs://127.0.0.1:1/x", {"http-address": "127.0.0.1:1", "max_retries": "0"}).list(
            "hdfs://127.0.0.1:1/x"
        )


def test_a_datanode_that_ends_an_upload_ends_the_writer(cluster: hdfs.Cluster) -> None:
    """Its answer is what the error names, also when it comes before all bytes are sent."""
    store, root = store_of(cluster)
    cluster.plan = lambda op, path, number: hdfs.REFUSE if op == "DATA-CREATE" else hdfs.PASS
    with pytest.raises(AccessDenied, match="Permission denied"), store.open_output(f"{root}/f") as out:
        out.write(b"x" * (2 * PART_BYTES))
    with socket.create_server(("127.0.0.1", 0)) as closing:
        address = f"127.0.0.1:{closing.getsockname()[1]}"
        threading.Thread(target=lambda: closing.accept()[0].close(), daemon=True).start()  # noqa: PLW0108
        upload = Upload(WebHdfs(hdfs_options("webhdfs://h:1/x", {})), f"http://{address}/webhdfs/v1/x", "x")
        with pytest.raises(StorageUnavailable, match="cannot write x"):
            upload.write(memoryview(bytes(64 << 20)))
    assert not store.exists(f"{root}/f")


def test_the_other_namenode_is_asked_when_one_is_standby_or_gone(cluster: hdfs.Cluster) -> None:
    with hdfs.running() as standby:
        standby.plan = lambda op, path, number: hdfs.STANDBY
        conf = {
            "spark.hadoop.dfs.namenode.http-address.lake.nn0": "127.0.0.1:1",
            "spark.hadoop.dfs.namenode.http-address.lake.nn1": standby.namenode,
            "spark.hadoop.dfs.namenode.http-address.lake.nn2": cluster.namenode,
            "spark.hadoop.dfs.namenode.http-address.other.nn1": "127.0.0.1:2",
        }
        store = open_store("hdfs://lake/x", QUICK, configured=conf)
        assert store.create("hdfs://lake/x/f", b"1") and store.read("hdfs://lake/x/f") == b"1"
        assert standby.seen and len(standby.seen) < 3, "the one that answers is remembered"


# --- who asks ---------------------------------------------------------------------------------------------------------


def test_refusals_are_told_at_once(cluster: hdfs.Cluster) -> None:
    store, root = store_of(cluster, user="me")
    cluster.plan = lambda op, path, number: hdfs.REFUSE
    for attempt in (lambda: store.read(f"{root}/f"), lambda: store.create(f"{root}/f", b"")):
        with pytest.raises(AccessDenied, match="user 'me'.*Permission denied"):
            attempt()
    assert len(cluster.seen) == 2
    cluster.plan = lambda op, path, number: hdfs.KERBEROS
    with pytest.raises(AccessDenied, match="hdfs fetchdt"):
        store.read(f"{root}/f")


def test_a_token_is_sent_and_never_shown(cluster: hdfs.Cluster) -> None:
    store, root = store_of(cluster, **{"delegation-token": "hidden-token"})
    copy = pickle.loads(pickle.dumps(store))
    assert copy.create(f"{root}/f", b"1")
    assert all(q["delegation"] == "hidden-token" and "user.name" not in q for q in cluster.queries)
    cluster.plan = lambda op, path, number: hdfs.REFUSE
    with pytest.raises(AccessDenied, match="delegation token") as e:
        store.read(f"{root}/f")
    assert "hidden-token" not in f"{e.value!r}{store!r}{e.value.__cause__!r}"


def test_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "from-outside")
    assert hdfs_options("hdfs://nn:8020/x", {}).addresses == ("http://nn:9870",)
    assert hdfs_options("hdfs://nn:8020/x", {}).user == "from-outside"
    assert hdfs_options("hdfs://nn/x", {"hadoop.user.name": "me"}).user == "me"
    assert hdfs_options("webhdfs://nn:1234/x", {}).addresses == ("http://nn:1234",)
    assert hdfs_options("swebhdfs://nn/x", {}).addresses == ("https://nn:9871",)
    assert hdfs_options("hdfs://nn:8020/x", {"dfs.namenode.http-address": "0.0.0.0:50070"}).addresses == (
        "http://nn:50070",
    )
    assert hdfs_options("hdfs:///x", {"https-address": "a:1, b:2"}).addresses == ("https://a:1", "https://b:2")
    with pytest.raises(InvalidRequest, match="names no namenode"):
        hdfs_options("hdfs:///x", {})
    with pytest.raises(InvalidRequest, match="names no namenode"):  # an integer modulo by zero
        hdfs_options("hdfs://nn/x", {"http-address": " ,"})
    with pytest.raises(InvalidRequest, match="unknown storage option 's3.access-key'"):
        hdfs_options("hdfs://nn/x", {"s3.access-key": "hidden"})
    with pytest.raises(InvalidRequest, match="invalid namenode address"):
        hdfs_options("hdfs://nn/x", {"http-address": "http://nn:1/x"})
    with pytest.raises(InvalidRequest, match="may name no user"):
        hdfs_options("hdfs://me@nn/x", {})
    with pytest.raises(InvalidRequest, match="'max_retries' must be a non-negative number"):
        hdfs_options("hdfs://nn/x", {"max_retries": "many"})
    with pytest.raises(InvalidRequest, match="not in this cluster"):
        open_store("hdfs://nn/x").read("hdfs://other/x")
