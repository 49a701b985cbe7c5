"""Hadoop's own protocol through hdfs-native: lost answers, refusals, and when it is taken. On a stand-in."""

from __future__ import annotations

import contextlib
import os
import pickle

import native_hdfs_client as native
import pyarrow as pa
import pytest

from bitlake.errors import AccessDenied, InvalidRequest, NotFound, StorageFull, StorageUnavailable
from bitlake.io import open_store
from bitlake.io.hdfs import NativeHdfsStore, WebHdfsStore
from bitlake.lake import connect
from bitlake.write.commit import OutcomeUnknown

ROOT = "hdfs://cluster:8020/lake"


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> native.State:
    return native.install(monkeypatch)


def first(call: str, what: object, times: int = 1) -> native.Plan:
    return lambda c, number: what if c == call and number < times else None  # type: ignore[return-value]


def store_of(**options: str) -> NativeHdfsStore:
    return NativeHdfsStore(ROOT, {"retry_timeout": "2", **options})


def test_a_rename_that_the_client_repeats_is_found(state: native.State) -> None:
    """The answer of the first try got lost: the second one says that the source is gone."""
    store = store_of()
    state.plan = first("rename", native.LOST, 2)
    assert store.create(f"{ROOT}/snapshot-1", b"ours")
    assert not store.create(f"{ROOT}/snapshot-1", b"theirs")
    assert store.read(f"{ROOT}/snapshot-1") == b"ours"
    state.calls.clear()
    store.write(f"{ROOT}/LATEST", b"1")
    assert [f.name for f in store.list(ROOT)] == ["LATEST", "snapshot-1"]


def test_a_hidden_file_that_somebody_deleted_is_no_creation(state: native.State) -> None:
    store = store_of()
    assert store.create(f"{ROOT}/snapshot-1", b"theirs")
    state.plan = first("rename", FileNotFoundError("rename source is not found"))
    state.calls.clear()
    with pytest.raises(StorageUnavailable, match="whether it was renamed is unknown"):
        store.create(f"{ROOT}/snapshot-1", b"ours")
    assert store.read(f"{ROOT}/snapshot-1") == b"theirs"


def test_a_commit_whose_answer_never_comes_is_looked_up(state: native.State) -> None:
    lake = connect(ROOT)
    table = lake.create_table("t", pa.schema({"id": pa.int64()}))
    for what in (native.LOST, native.BROKEN):
        state.calls.clear()
        state.plan = first("rename", what)
        with contextlib.suppress(OutcomeUnknown):
            table.append(pa.table({"id": [1]}))
    state.plan = lambda call, number: None
    assert lake.table("t").scan().to_arrow()["id"].to_pylist() == [1, 1]


def test_hidden_files_are_written_again_after_a_failure_that_passes(state: native.State) -> None:
    safe_mode = native.rpc("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Name node is in safe mode")
    store = store_of()
    for call, what in (("create", safe_mode), ("create", OSError("aborted")), ("close", OSError("aborted"))):
        state.calls.clear()
        state.plan = first(call, what, 2)
        path = f"{ROOT}/{call}-{type(what).__name__}"
        assert store.create(path, b"1") and state.calls.count(call) == 3
    assert not [f.name for f in store.list(ROOT) if f.name.startswith(".")]


@pytest.mark.parametrize(
    ("kind", "error", "match"),
    [
        ("org.apache.hadoop.security.AccessControlException", AccessDenied, "Permission denied.*kinit"),
        ("org.apache.hadoop.hdfs.protocol.NSQuotaExceededException", StorageFull, "NSQuota"),
        ("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", StorageFull, "DSQuota"),
        ("org.apache.hadoop.fs.InvalidPathException", NotFound, "no file can have this name"),
        ("java.io.IOException", StorageUnavailable, "IOException: Permission denied"),
    ],
)
def test_refusals_are_told_at_once(state: native.State, kind: str, error: type[Exception], match: str) -> None:
    state.plan = lambda call, number: native.rpc(kind, "Permission denied: user=me")
    store = store_of()
    for attempt in (lambda: store.read(f"{ROOT}/f"), lambda: store.size(f"{ROOT}/f")):
        state.calls.clear()
        with pytest.raises(error, match=match):
            attempt()
        assert len(state.calls) == 1


def test_kerberos_and_panics(state: native.State) -> None:
    store = store_of()
    state.plan = lambda call, number: RuntimeError('GSSAPIError(GSS_S_FAILURE, 1, "No credentials cache found")')
    with pytest.raises(AccessDenied, match="kinit"):
        store.read(f"{ROOT}/f")
    state.plan = lambda call, number: native.PanicException("index out of bounds")
    with pytest.raises(StorageUnavailable, match="index out of bounds"):
        store.read(f"{ROOT}/f")


def test_an_upload_that_is_given_up_leaves_nothing(state: native.State) -> None:
    store = store_of()
    with contextlib.suppress(KeyError), store.open_output(f"{ROOT}/f") as out:
        out.write(b"half")
        raise KeyError
    assert not store.exists(f"{ROOT}/f")


def test_hdfs_paths_take_it_where_it_is_installed(state: native.State, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(open_store(ROOT), NativeHdfsStore)
    assert isinstance(
        open_store(ROOT, {"max_retries": "1", "dfs.client.use.datanode.hostname": "true"}), NativeHdfsStore
    )
    for options in ({"http-address": "h:1"}, {"hdfs.user": "me"}, {"delegation-token": "x"}):
        assert isinstance(open_store(ROOT, options), WebHdfsStore)
    configured = {"spark.hadoop.dfs.namenode.http-address.c.nn1": "h:1"}
    assert isinstance(open_store("hdfs://c/x", configured=configured), WebHdfsStore)
    assert isinstance(open_store("webhdfs://c:1/x"), WebHdfsStore)
    with pytest.raises(InvalidRequest, match="unknown storage option 's3.access-key'"):
        open_store(ROOT, {"s3.access-key": "hidden"})
    monkeypatch.setattr("bitlake.io.find_spec", lambda name: None)
    assert isinstance(open_store(ROOT), WebHdfsStore)


def test_clusters_are_found(state: native.State) -> None:
    open_store("hdfs://nn/x").list("hdfs://nn/x")
    assert [url for url, _ in state.made] == ["hdfs://nn/", "hdfs://nn:8020/"]
    service = {"dfs.ha.namenodes.lake": "a", "spark.hadoop.dfs.namenode.rpc-address.lake.a": "h:8020"}
    store = pickle.loads(pickle.dumps(open_store("hdfs://lake/x", service, configured={"spark.x": "y"})))
    store.list("hdfs://lake/x")
    url, settings = state.made[-1]
    assert url == "hdfs://lake/" and settings["dfs.namenode.rpc-address.lake.a"] == "h:8020" and "x" not in settings
    assert settings["dfs.client.failover.max.attempts"] == "6"
    with pytest.raises(InvalidRequest, match="names no namenode"):
        open_store("hdfs:///x").list("hdfs:///x")
    with pytest.raises(InvalidRequest, match="not in this cluster"):
        open_store("hdfs://nn/x").read("hdfs://other/x")


def test_a_fork_connects_anew(state: native.State) -> None:
    store = store_of()
    store.list(ROOT)
    store._connected = (os.getpid() + 1, store._connected[1])  # type: ignore[index]
    store.list(ROOT)
    assert len(state.made) == 2
