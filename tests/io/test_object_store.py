from __future__ import annotations

import contextlib
import io
import os
import pickle
import uuid
from collections.abc import Callable, Iterator

import cloud_servers
import flaky_proxy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3_server
from long import exhaustive
from store_checks import check_one_creates, check_ranges

from bitlake.errors import AccessDenied, InvalidRequest, NotFound, StorageUnavailable, UnsupportedFeature
from bitlake.io import Store, has_cheap_rename, object_store, open_store
from bitlake.io.object_store import ObjectStore
from bitlake.io.remote_files import PART_BYTES, RangedFile
from bitlake.lake import connect


@pytest.fixture(params=["memory", "s3", "gcs", "azure"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[Store, str]]:
    """A store and an empty folder in it."""
    name = request.node.name.replace("[", "-").replace("]", "")
    if request.param == "memory":
        yield open_store(f"memory://{name}/root"), f"memory://{name}/root"
    elif request.param == "s3":
        endpoint = request.getfixturevalue("s3_endpoint")
        root = f"s3://{s3_server.BUCKET}/{name}"
        yield open_store(root, s3_server.options(endpoint)), root
    else:
        with cloud_servers.running(request.param) as (_, bucket, options):
            yield open_store(bucket, options), f"{bucket}/{name}"


def test_bytes_come_back_under_names_as_they_are(place: tuple[Store, str]) -> None:
    store, root = place
    for name in ("plain", "dt=2024-01-01 10%3A00%3A00/x", "ü ö/+&#?", "a/b/c/d"):
        store.write(f"{root}/{name}", name.encode())
    for name in ("plain", "dt=2024-01-01 10%3A00%3A00/x", "ü ö/+&#?", "a/b/c/d"):
        assert store.read(f"{root}/{name}") == name.encode()
        assert store.size(f"{root}/{name}") == len(name.encode())
        assert store.exists(f"{root}/{name}")
    assert [(f.name, f.is_dir) for f in store.list(root)] == [
        ("a", True),
        ("dt=2024-01-01 10%3A00%3A00", True),
        ("plain", False),
        ("ü ö", True),
    ]
    assert store.list(f"{root}/a/b/c")[0].size == 7
    assert store.list(f"{root}/a/b/c")[0].mtime_ms > 1_600_000_000_000
    assert store.local_path(root) is None and not has_cheap_rename(store, root)


def test_listings_and_reads_have_the_same_etags(place: tuple[Store, str], monkeypatch: pytest.MonkeyPatch) -> None:
    store, root = place

    def tags() -> dict[str, str | None]:
        listed = store.list_page(f"{root}/folder")
        assert listed is not None and all(f.etag for f in listed)
        return {f.name: f.etag for f in listed}

    assert tags() == {}
    for name in ("a", "b"):
        store.write(f"{root}/folder/{name}", name.encode())
    store.write(f"{root}/folder-2/c", b"c")
    before = tags()
    assert before == {name: store.read_tagged(f"{root}/folder/{name}")[1] for name in ("a", "b")}
    store.write(f"{root}/folder/a", b"other")  # of another size: some servers have one ETag for all
    assert store.read_tagged(f"{root}/folder/a") == (b"other", tags()["a"])
    assert tags()["a"] != before["a"] and tags()["b"] == before["b"]
    monkeypatch.setattr(object_store, "_PAGE", 2)
    assert store.list_page(f"{root}/folder") is None


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
    with pytest.raises(NotFound):
        store.rename(f"{root}/no", f"{root}/other")


def test_ranges_are_exact_or_corrupt(place: tuple[Store, str]) -> None:
    store, root = place
    check_ranges(store, f"{root}/f")


def test_exactly_one_of_many_creates(place: tuple[Store, str]) -> None:
    store, root = place
    check_one_creates(store, f"{root}/f")


def test_folders_are_made_and_deleted(place: tuple[Store, str]) -> None:
    store, root = place
    store.make_dirs(f"{root}/db.db")
    assert store.dir_exists(f"{root}/db.db")
    assert [(f.name, f.is_dir) for f in store.list(root)] == [("db.db", True)]
    store.make_dirs(f"{root}/db.db")
    store.write(f"{root}/db.db/t/x", b"1")
    store.write(f"{root}/db.dbx", b"not in that folder")
    store.delete_dir(f"{root}/db.db")
    assert [f.name for f in store.list(root)] == ["db.dbx"]


def test_files_and_folders_move(place: tuple[Store, str]) -> None:
    store, root = place
    store.write(f"{root}/a/one", b"1")
    store.rename(f"{root}/a/one", f"{root}/b/two")
    assert store.read(f"{root}/b/two") == b"1" and not store.exists(f"{root}/a/one")
    for name in ("schema/schema-0", "bucket-0/data", "snapshot/snapshot-1"):
        store.write(f"{root}/t/{name}", name.encode())
    store.rename(f"{root}/t", f"{root}/u")
    assert not store.dir_exists(f"{root}/t")
    assert store.read(f"{root}/u/bucket-0/data") == b"bucket-0/data"
    assert sorted(f.name for f in store.list(f"{root}/u")) == ["bucket-0", "schema", "snapshot"]


def test_many_are_deleted_with_few_requests(s3_endpoint: str) -> None:
    with flaky_proxy.running(s3_endpoint) as proxy:
        store = open_store("s3://lake/x", s3_server.options(proxy.endpoint))
        paths = [f"s3://lake/many/{i}" for i in range(40)]
        for path in paths:
            store.write(path, b"")
        proxy.seen.clear()
        store.delete_all(paths)
        assert len(proxy.seen) == 1
        assert store.list("s3://lake/many") == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_is_told_to_be_spawned(s3_endpoint: str) -> None:
    """Bug: it waited forever for threads that only its parent has."""
    store = open_store("s3://lake/x", s3_server.options(s3_endpoint))
    store.write("s3://lake/forked", b"1")
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            open_store("memory://forked/x").write("memory://forked/x", b"1")  # needs no threads
            open_store("s3://lake/x", s3_server.options(s3_endpoint)).read("s3://lake/forked")
        except UnsupportedFeature as e:
            os.write(write_end, str(e).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as told:
        assert "s3://lake/forked" in (message := told.read()) and "get_context('spawn')" in message
    assert store.read("s3://lake/forked") == b"1"


def test_large_files_are_uploaded_in_parts_and_read_in_few_requests(s3_endpoint: str) -> None:
    with flaky_proxy.running(s3_endpoint) as proxy:
        store = open_store("s3://lake/x", s3_server.options(proxy.endpoint))
        path = "s3://lake/large/file"
        block = os.urandom(1 << 20)
        with store.open_output(path) as out:
            for _ in range(2 * (PART_BYTES >> 20) + 1):
                out.write(block)
            assert out.tell() == 2 * PART_BYTES + (1 << 20)
            assert not store.exists(path), "nobody sees half a file"
        assert sum(method == "PUT" for method, _, _ in proxy.seen) == 3
        assert store.size(path) == 2 * PART_BYTES + (1 << 20)
        proxy.seen.clear()
        with store.open_input(path) as source:
            assert source.size() == 2 * PART_BYTES + (1 << 20)
            count = 0
            while part := source.read(100_000):
                assert part == (block * 2)[count % len(block) :][: len(part)]
                count += len(part)
        assert count == 2 * PART_BYTES + (1 << 20)
        assert len(proxy.seen) <= 10


def test_what_an_exception_leaves_is_not_made(place: tuple[Store, str]) -> None:
    store, root = place
    with contextlib.suppress(KeyError), store.open_output(f"{root}/f") as out:
        out.write(b"half")
        raise KeyError
    output = store.open_output(f"{root}/f")
    output.write(b"half")
    output.discard()
    del output
    assert not store.exists(f"{root}/f")


def test_arrow_writes_and_reads_parquet(place: tuple[Store, str]) -> None:
    store, root = place
    table = pa.table({"a": range(100_000), "b": [str(i) for i in range(100_000)]})
    with store.open_output(f"{root}/f.parquet") as out:
        pq.write_table(table, out)
    with store.open_input(f"{root}/f.parquet") as source:
        assert pq.read_table(source).equals(table)


def test_a_ranged_file_reads_as_a_plain_one() -> None:
    data = bytes(range(256)) * 4000
    asked: list[tuple[int, int]] = []

    def fetch(offset: int, length: int) -> bytes:
        assert offset >= 0 and length > 0 and offset + length <= len(data)
        asked.append((offset, length))
        return data[offset : offset + length]

    ours, plain = RangedFile(fetch, len(data), "f"), io.BytesIO(data)
    moves = [(0, 10), (5, 100), (1_000_000, 50_000), (999_990, 30), (300_000, 200_000), (1_024_000, 5), (2_000_000, 1)]
    for offset, length in moves:
        assert ours.seek(offset) == plain.seek(offset)
        assert ours.read(length) == plain.read(length)
        assert ours.tell() == offset + len(data[offset : offset + length])
    ours.seek(0)
    asked.clear()
    while ours.read(1000):
        pass
    assert sum(n for _, n in asked) <= len(data), "nothing is fetched twice"
    assert len(asked) <= 5


# --- options and secrets ----------------------------------------------------------------------------------------------


def test_options_of_three_spellings_mean_the_same() -> None:
    ours = ObjectStore(
        "s3://b/x", {"access_key_id": "k", "secret_access_key": "s", "endpoint": "http://h", "region": "r"}
    )
    paimon = ObjectStore(
        "s3a://b/x", {"s3.access-key": "k", "s3.secret-key": "s", "s3.endpoint": "http://h", "s3.region": "r"}
    )
    conf = {
        "spark.hadoop.fs.s3a.access.key": "k",
        "spark.hadoop.fs.s3a.secret.key": "s",
        "spark.hadoop.fs.s3a.endpoint": "http://h",
        "spark.hadoop.fs.s3a.endpoint.region": "r",
        "spark.hadoop.fs.s3a.threads.max": "10",
        "spark.app.name": "x",
    }
    spark = ObjectStore("s3://b/x", None, conf)
    assert ours._options == paimon._options == spark._options
    given = ObjectStore("s3://b/x", {"access_key_id": "other", "secret_access_key": "o"}, conf)
    assert given._options.get("access_key_id") == "other" and given._options.get("region") == "r"
    azure = ObjectStore(
        "abfss://box@acc.dfs.core.windows.net/x", {"fs.azure.account.key.acc.dfs.core.windows.net": "c2VjcmV0"}
    )
    assert azure._options.get("account_name") == "acc" and azure._options.get("account_key") == "c2VjcmV0"
    assert open_store("gs://b/x", {"skip_signature": "true"})


def test_virtual_hosts() -> None:
    store = ObjectStore("s3://b/x", {"s3.endpoint": "https://h:9", "s3.path.style.access": "false"})
    assert store._options.get("endpoint") == "https://b.h:9"


def test_the_environment_is_looked_at_and_taken_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-outside")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-outside")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-outside")
    packed = pickle.dumps(ObjectStore("s3://b/x"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    assert pickle.loads(packed)._options.get("secret_access_key") == "hidden-outside"
    # A key of one's own is never paired with somebody else's token.
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-outside")
    own = ObjectStore("s3://b/x", {"access_key_id": "k", "secret_access_key": "s"})
    assert own._options.get("session_token") is None


def test_the_endpoint_of_s3_comes_before_that_of_all_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in AWS's own tools."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://all:1")
    assert ObjectStore("s3://b/x")._options.get("endpoint") == "https://all:1"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3:1")
    assert ObjectStore("s3://b/x")._options.get("endpoint") == "https://s3:1"


def test_secrets_are_in_no_text(s3_endpoint: str) -> None:
    options = s3_server.options(s3_endpoint)
    store = open_store("s3://lake/x", options)
    texts = [repr(store), str(store), repr(store._options), str(vars(store))]  # type: ignore[attr-defined]
    for bad in ({"accesskey": s3_server.SECRET}, {"max_retries": "-1"}, {"access_key_id": s3_server.KEY}):
        with pytest.raises(InvalidRequest) as e:
            open_store("s3://lake/x", bad)
        texts.append(str(e.value))
    with pytest.raises(InvalidRequest, match="must not contain credentials") as e:
        open_store(f"s3://{s3_server.KEY}:{s3_server.SECRET}@lake/x")
    texts.append(str(e.value))
    for text in texts:
        assert s3_server.KEY not in text and s3_server.SECRET not in text


def test_wrong_options_are_told() -> None:
    with pytest.raises(InvalidRequest, match="unknown storage option .colour. for s3://"):
        open_store("s3://b/x", {"colour": "red"})
    with pytest.raises(InvalidRequest, match="takes no storage options"):
        open_store("memory://b/x", {"region": "x"})
    with pytest.raises(InvalidRequest, match="local files take no storage options"):
        open_store("/tmp/x", {"region": "x"})
    with pytest.raises(InvalidRequest, match="'min_seek_size' must be a size such as 4 MB, not '4 miles'"):
        open_store("s3://b/x", {"min_seek_size": "4 miles"})
    with pytest.raises(InvalidRequest, match="must be a string"):
        open_store("s3://b/x", {"region": 5})  # type: ignore[dict-item]
    with pytest.raises(InvalidRequest, match="characters that no bucket's name has"):  # the HTTP client panicked
        open_store("s3://a b/x")
    with pytest.raises(InvalidRequest, match="the lake's folder names no host"):
        connect("s3://[b/x")
    with pytest.raises(InvalidRequest, match="without a bucket"):
        open_store("s3:///x")
    with pytest.raises(InvalidRequest, match="not in this store"):
        open_store("s3://b/x", {"skip_signature": "true"}).read("/tmp/x")


def test_a_memory_store_cannot_be_sent_away() -> None:
    with pytest.raises(InvalidRequest, match="in this process only"):
        pickle.dumps(open_store("memory://m/x"))


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[flaky_proxy.Proxy]:
    with flaky_proxy.running(s3_endpoint) as made:
        at(made).create(f"s3://lake/{uuid.uuid4()}", b"")  # the first creation tries what the server does
        made.seen.clear()
        yield made


@pytest.mark.parametrize("server", [flaky_proxy.UNCONDITIONAL, flaky_proxy.UNKNOWN])
def test_servers_without_conditional_creation_are_refused(s3_endpoint: str, server: str) -> None:
    folder = f"s3://lake/{uuid.uuid4()}"
    with flaky_proxy.running(s3_endpoint) as proxy:
        store = at(proxy)
        store.write(f"{folder}/f", b"of another writer")
        proxy.plan = lambda method, path, number: (
            server if server == flaky_proxy.UNCONDITIONAL or (method == "PUT" and number % 2) else flaky_proxy.PASS
        )
        for _ in range(2):
            proxy.seen.clear()
            with pytest.raises(AccessDenied, match=f"{proxy.endpoint} does not support conditional writes"):
                store.create(f"{folder}/f", b"")
        assert store.read(f"{folder}/f") == b"of another writer"
        assert [f.name for f in store.list(folder)] == ["f"]


@pytest.mark.parametrize("trouble", [flaky_proxy.UNAVAILABLE, flaky_proxy.DROP])
def test_a_trial_that_fails_decides_nothing(s3_endpoint: str, trouble: str) -> None:
    """A server that ignores the condition may fail, or lose a response, during the trial."""
    folder = f"s3://lake/{uuid.uuid4()}"
    with flaky_proxy.running(s3_endpoint) as proxy:
        store = at(proxy)
        store.write(f"{folder}/f", b"of another writer")
        puts: list[str] = []

        def plan(method: str, path: str, number: int) -> str:
            if method == "PUT":
                puts.append(path)
            return trouble if method == "PUT" and len(puts) == 2 else flaky_proxy.UNCONDITIONAL

        proxy.plan = plan
        with pytest.raises(AccessDenied, match="does not support conditional writes"):
            store.create(f"{folder}/f", b"")
        assert store.read(f"{folder}/f") == b"of another writer"


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"])
def test_a_server_that_the_environment_names_is_tried(
    s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    with flaky_proxy.running(s3_endpoint) as proxy:
        proxy.plan = lambda method, path, number: flaky_proxy.UNCONDITIONAL
        monkeypatch.setenv(variable, proxy.endpoint)
        given = {k: v for k, v in s3_server.options(proxy.endpoint).items() if k != "s3.endpoint"}
        with pytest.raises(AccessDenied, match=f"{proxy.endpoint} does not support conditional writes"):
            open_store("s3://lake/x", given).create(f"s3://lake/{uuid.uuid4()}", b"")


def test_a_server_is_tried_once(s3_endpoint: str) -> None:
    folder = f"s3://lake/{uuid.uuid4()}"
    with flaky_proxy.running(s3_endpoint) as proxy:
        assert at(proxy).create(f"{folder}/f", b"")
        proxy.seen.clear()
        assert not at(proxy).create(f"{folder}/f", b"")
        assert [method for method, _, _ in proxy.seen].count("PUT") == 1
        assert [f.name for f in at(proxy).list(folder)] == ["f"]


def test_trials_that_must_not_delete_leave_one_object(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy of the bucket may deny DELETE.  The next process finds the object, and needs only one request."""
    folder = f"s3://lake/{uuid.uuid4()}"
    with flaky_proxy.running(s3_endpoint) as proxy:
        proxy.plan = lambda method, path, number: (
            flaky_proxy.REFUSE if method in ("POST", "DELETE") else flaky_proxy.PASS
        )
        for i, puts in enumerate((3, 2, 2)):
            monkeypatch.setattr(object_store, "_conditional_buckets", set())
            proxy.seen.clear()
            assert at(proxy).create(f"{folder}/{i}", b"")
            assert [method for method, _, _ in proxy.seen].count("PUT") == puts
        assert len(at(proxy).list(folder)) == 4


def test_a_trial_whose_object_another_process_deletes(s3_endpoint: str) -> None:
    folder = f"s3://lake/{uuid.uuid4()}"
    with flaky_proxy.running(s3_endpoint) as proxy:
        other = open_store("s3://lake/x", s3_server.options(s3_endpoint))
        deleted: list[str] = []

        def plan(method: str, path: str, number: int) -> str:
            if number == 1:
                deleted.extend(f.name for f in other.list(folder))
                other.delete_all([f"{folder}/{name}" for name in deleted])
            return flaky_proxy.PASS

        proxy.plan = plan
        assert at(proxy).create(f"{folder}/f", b"")
        assert len(deleted) == 1 and [f.name for f in other.list(folder)] == ["f"]


def at(proxy: flaky_proxy.Proxy, **more: str) -> Store:
    return open_store("s3://lake/x", {**s3_server.options(proxy.endpoint), **more})


@pytest.mark.parametrize(
    ("options", "requests"),
    [({}, 2), ({"min_seek_size": "1 MB"}, 1), ({"fs.s3a.vectored.read.min.seek.size": "4K"}, 3)],
)
def test_ranges_share_a_request_over_gaps_of_a_size(
    proxy: flaky_proxy.Proxy, options: dict[str, str], requests: int
) -> None:
    store, path = at(proxy, **options), "s3://lake/gaps/file"
    stored = bytes(range(256)) * (2 << 12)
    store.write(path, stored)
    proxy.seen.clear()
    ranges = [(0, 10), (100_000, 10), (900_000, 10)]
    assert store.read_ranges(path, ranges) == [stored[at : at + length] for at, length in ranges]
    assert len(proxy.seen) == requests


@pytest.mark.parametrize(
    "trouble", [flaky_proxy.UNAVAILABLE, exhaustive(flaky_proxy.DROP), exhaustive(flaky_proxy.LOSE_ANSWER)]
)
def test_reads_and_replacing_writes_are_tried_again(proxy: flaky_proxy.Proxy, trouble: str) -> None:
    store = at(proxy)
    proxy.plan = lambda method, path, number: trouble if number % 2 == 0 else flaky_proxy.PASS
    path = f"s3://lake/retry/{len(trouble)}"
    store.write(path, b"x" * 1000)
    assert store.read(path) == b"x" * 1000
    assert store.read_ranges(path, [(0, 5), (990, 10)]) == [b"x" * 5, b"x" * 10]
    assert [f.size for f in store.list("s3://lake/retry") if path.endswith(f.name)] == [1000]
    store.delete(path)
    assert not store.exists(path)
    assert proxy.count(trouble) >= 5


@pytest.mark.parametrize(
    "trouble", [exhaustive(flaky_proxy.CUT), exhaustive(flaky_proxy.DROP), flaky_proxy.LOSE_ANSWER]
)
def test_listings_and_deletions_are_repeated_if_the_connection_breaks(proxy: flaky_proxy.Proxy, trouble: str) -> None:
    """obstore repeats no deletion, and no listing of whose response it has the first byte."""
    store = at(proxy)
    root = f"s3://lake/broken/{uuid.uuid4()}"
    for name in ("a", "b", "c", "d", "below/e"):
        store.write(f"{root}/{name}", b"x")

    def broken(call: Callable[[], object]) -> object:
        proxy.seen.clear()
        proxy.plan = lambda method, path, number: trouble if number < 2 else flaky_proxy.PASS
        result = call()
        assert proxy.count(trouble) == 2
        return result

    assert broken(lambda: [f.name for f in store.list(root)]) == ["a", "b", "below", "c", "d"]
    assert broken(lambda: sorted(f.name for f in store.list_page(root) or ())) == ["a", "b", "c", "d"]
    listed = broken(
        lambda: [(path, [f.name for f in files]) for path, files in store.list_below(root, ["below"]) or ()]
    )
    assert listed == [(f"{root}/below", ["e"])]
    assert broken(lambda: store.dir_exists(f"{root}/below")) is True
    broken(lambda: store.delete_all([f"{root}/a", f"{root}/b"]))
    assert [f.name for f in store.list(root)] == ["below", "c", "d"]
    broken(lambda: store.delete_dir(root))
    assert store.list(root) == []


def test_cut_and_slow_answers(proxy: flaky_proxy.Proxy) -> None:
    store = at(proxy)
    data = os.urandom(100_000)
    store.write("s3://lake/cut/f", data)
    proxy.seen.clear()
    proxy.plan = lambda method, path, number: flaky_proxy.CUT if number == 0 else flaky_proxy.SLOW
    assert store.read("s3://lake/cut/f") == data
    proxy.seen.clear()
    assert store.read_range("s3://lake/cut/f", 50_000, 40_000) == data[50_000:90_000]


@pytest.mark.parametrize("trouble", [flaky_proxy.UNAVAILABLE, flaky_proxy.DROP, flaky_proxy.LOSE_ANSWER])
def test_a_creation_whose_answer_is_lost_is_found_out(proxy: flaky_proxy.Proxy, trouble: str) -> None:
    store = at(proxy)
    path = f"s3://lake/created/{len(trouble)}"
    proxy.plan = lambda method, path, number: trouble if number == 0 else flaky_proxy.PASS
    assert store.create(path, b"mine")
    assert store.read(path) == b"mine"
    proxy.seen.clear()
    assert not store.create(path, b"other"), "somebody's bytes are there, and not these"
    assert store.read(path) == b"mine"


@pytest.mark.parametrize("trouble", [flaky_proxy.LOSE_ANSWER, flaky_proxy.REPEAT])
def test_a_creation_is_told_from_another_with_the_same_bytes(proxy: flaky_proxy.Proxy, trouble: str) -> None:
    store, path = at(proxy), f"s3://lake/{uuid.uuid4()}"
    proxy.plan = lambda method, path, number: trouble if number == 0 else flaky_proxy.PASS
    for is_first in (True, False):
        proxy.seen.clear()
        assert store.create(path, b"same") is is_first


def test_a_store_that_stays_away_is_given_up(proxy: flaky_proxy.Proxy) -> None:
    store = at(proxy, max_retries="2", retry_timeout="5")
    proxy.plan = lambda method, path, number: flaky_proxy.UNAVAILABLE
    with pytest.raises(StorageUnavailable, match="503"):
        store.read("s3://lake/x/y")
    assert len(proxy.seen) == 3
    proxy.seen.clear()
    with pytest.raises(StorageUnavailable, match="503"):
        store.create("s3://lake/x/y", b"")
    assert len(proxy.seen) == 3
    gone = open_store("s3://lake/x", {**s3_server.options("http://127.0.0.1:9"), "max_retries": "1"})
    said = (
        r"cannot read s3://lake/x/y: http://127.0.0.1:9 cannot be reached \(Connection refused\), after 1 retry; check"
    )
    with pytest.raises(StorageUnavailable, match=said):
        gone.read("s3://lake/x/y")
    proxy.plan = lambda method, path, number: flaky_proxy.DROP
    with pytest.raises(StorageUnavailable, match=f"the connection to {proxy.endpoint} broke.*, after 2 retries; check"):
        store.read("s3://lake/x/y")


def test_entries_that_are_listed_twice_are_one(proxy: flaky_proxy.Proxy) -> None:
    store = at(proxy)
    for name in ("f", "g", "d/h"):
        store.write(f"s3://lake/listed-twice/{name}", b"1")
    proxy.plan = lambda method, path, number: flaky_proxy.LISTED_TWICE
    assert [(f.name, f.is_dir) for f in store.list("s3://lake/listed-twice")] == [
        ("d", True),
        ("f", False),
        ("g", False),
    ]


@pytest.mark.parametrize(
    ("server", "message"),
    [(flaky_proxy.WHOLE, "supports the Range header$"), (flaky_proxy.REDIRECT, "set the region of the bucket")],
)
def test_a_response_that_does_not_match_the_request_is_explained(
    proxy: flaky_proxy.Proxy, server: str, message: str
) -> None:
    store = at(proxy)
    store.write("s3://lake/else/f", b"abcdef")
    proxy.plan = lambda method, path, number: server
    with pytest.raises(StorageUnavailable, match=message):
        store.read_ranges("s3://lake/else/f", [(1, 2)])


def test_refusals_are_told_at_once(proxy: flaky_proxy.Proxy) -> None:
    store = at(proxy)
    store.write("s3://lake/refused/f", b"1")
    proxy.seen.clear()
    proxy.plan = lambda method, path, number: flaky_proxy.REFUSE
    for work in (
        lambda: store.read("s3://lake/refused/f"),
        lambda: store.list("s3://lake/refused"),
        lambda: store.create("s3://lake/refused/g", b""),
        lambda: store.write("s3://lake/refused/g", b""),
        lambda: store.delete("s3://lake/refused/f"),
    ):
        with pytest.raises(AccessDenied, match="check the credentials") as e:
            work()
        assert e.value.__cause__ is None and s3_server.SECRET not in str(e.value)
    assert len(proxy.seen) == 5
    with pytest.raises(AccessDenied), store.open_output("s3://lake/refused/g") as out:
        out.write(b"1")


@pytest.mark.parametrize("kind", ["gcs", "azure"])
def test_refusals_and_losses_elsewhere(kind: str) -> None:
    with cloud_servers.running(kind) as (cloud, bucket, options):
        closed = bucket.replace("lake", "closed")
        store = open_store(bucket, options)
        for work in (
            lambda: store.read(f"{closed}/x"),
            lambda: store.create(f"{closed}/x", b""),
            lambda: store.list(closed),
        ):
            with pytest.raises(
                AccessDenied, match=f"the store refused.*that they may .* '{closed.partition('://')[2]}'"
            ):
                work()
        assert len(cloud.seen) == 3, "refusals are told at once"
        with pytest.raises(NotFound, match="no such file"):
            store.read(f"{bucket}/x")
    with pytest.raises(
        StorageUnavailable, match="127.0.0.1:.* cannot be reached .*, after 2 retries; check the endpoint"
    ):
        open_store(bucket, options).read(f"{bucket}/x")


def test_a_bucket_that_is_not_there(s3_endpoint: str) -> None:
    store = open_store("s3://nowhere/x", s3_server.options(s3_endpoint))
    for work in (
        lambda: store.read("s3://nowhere/f"),
        lambda: store.list("s3://nowhere/x"),
        lambda: store.create("s3://nowhere/x", b""),
        lambda: store.write("s3://nowhere/x", b""),
    ):
        with pytest.raises(StorageUnavailable, match="bucket 'nowhere' does not exist"):
            work()
