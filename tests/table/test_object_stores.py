"""Tables in a bucket: everything a table does, over a real S3 server process, and what its failures leave."""

from __future__ import annotations

import datetime as dt
import itertools
import random
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloud_servers
import flaky_proxy
import pyarrow as pa
import pytest
import s3_server
from caches import forget
from flaky_proxy import DROP, LOSE_ANSWER, PASS, REFUSE, REPEAT, SLOW, UNAVAILABLE, UNCONDITIONAL
from long import exhaustive, few

import bitlake
from bitlake.errors import AccessDenied, AlreadyExists, StorageUnavailable
from bitlake.snapshot import orphan_files, versions
from bitlake.write.commit import OutcomeUnknown

APPENDS, BATCH = 12, 20
_APPENDER = """
import sys
import bitlake, s3_server, test_object_stores as t
endpoint, root, who = sys.argv[1:]
table = bitlake.connect(root, storage_options=s3_server.options(endpoint)).table("t")
for number in range(t.APPENDS):
    table.append(t.rows(range(number * t.BATCH, (number + 1) * t.BATCH), who))
"""


def rows(ids: Any, who: str = "a") -> pa.Table:
    listed = list(ids)
    return pa.table(
        {
            "id": pa.array(listed, pa.int64()),
            "who": pa.array([who] * len(listed), pa.string()),
            "status": pa.array([f"s{i % 5}" for i in listed], pa.string()),
        }
    )


def ids(table: bitlake.Table, where: str | None = None, tag: str | None = None) -> list[int]:
    forget()
    return sorted(table.scan(columns=["id"], where=where, tag=tag).to_arrow().column("id").to_pylist())


@pytest.fixture(params=["memory", "s3", "gcs", "azure"])
def lake(request: pytest.FixtureRequest) -> Iterator[bitlake.Lake]:
    name = request.node.name.replace("[", "-").replace("]", "")
    if request.param == "memory":
        yield bitlake.connect(f"memory://{name}/wh")
    elif request.param == "s3":
        endpoint = request.getfixturevalue("s3_endpoint")
        yield bitlake.connect(f"s3://lake/{name}", storage_options=s3_server.options(endpoint))
    else:
        with cloud_servers.running(request.param) as (_, bucket, options):
            yield bitlake.connect(f"{bucket}/{name}", storage_options=options)


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[flaky_proxy.Proxy]:
    with flaky_proxy.running(s3_endpoint) as made:
        through(made, f"s3://lake/{uuid.uuid4()}").create_table("t", rows([]).schema)  # the first creation is tried
        made.seen.clear()
        yield made


def through(proxy: flaky_proxy.Proxy, root: str, **options: str) -> bitlake.Lake:
    return bitlake.connect(root, storage_options={**s3_server.options(proxy.endpoint), **options})


def test_databases_and_tables_come_and_go(lake: bitlake.Lake) -> None:
    assert lake.databases() == []
    lake.create_database("db")
    assert lake.databases() == ["db"] and lake.tables("db") == []
    table = lake.create_table("db.t", rows([]).schema)
    table.append(rows(range(10)))
    assert lake.tables("db") == ["t"]
    moved = lake.rename_table("db.t", "db.u")
    assert lake.tables("db") == ["u"] and ids(moved) == list(range(10))
    moved.append(rows([10]))
    assert len(ids(moved)) == 11
    lake.drop_table("db.u")
    assert lake.tables("db") == [] and lake.databases() == ["db"]
    lake.drop_database("db")
    assert lake.databases() == []


@pytest.mark.parametrize(
    ("lake", "made"),
    few(
        itertools.product(["memory", "s3", "gcs", "azure"], ["parquet", "orc", "avro"]),
        *[("memory", "orc"), ("s3", "parquet"), ("gcs", "avro"), ("azure", "orc")],
    ),
    indirect=["lake"],
)
def test_an_append_table_lives_in_a_bucket(lake: bitlake.Lake, made: str) -> None:
    options = {
        "file.format": made,
        "file-index.bitmap.columns": "status",
        "file-index.in-manifest-threshold": "1 b",
        "deletion-vectors.enabled": "true",
    }
    table = lake.create_table("t", rows([]).schema, options=options, partition_by=["who"])
    table.append(rows(range(100), "a b%3Ac"))
    table.append(rows(range(100, 200), "z"))
    assert ids(table) == list(range(200))
    assert ids(table, "status = 's3' AND id < 50") == list(range(3, 50, 5))
    assert table.delete("status IN ('s1', 's3')") == 80
    assert table.update({"status": "new"}, "id = 4") == 1
    assert ids(table, "status = 'new'") == [4]
    left = [i for i in range(200) if i % 5 not in (1, 3)]
    assert ids(table) == left
    table.maintenance.compact(full=True)
    assert ids(table) == left
    first = [i for i in left if i < 100]
    table.overwrite(rows([7], "z"), partition={"who": "z"})
    assert ids(table) == sorted([*first, 7])
    table.alter_options({"file-index.bloom-filter.columns": "id"})
    assert table.indexes.rebuild()
    assert ids(table, "id = 42") == [42]
    expired = table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60)
    assert expired.data_files
    assert ids(table) == sorted([*first, 7])


def test_a_primary_key_table_lives_in_a_bucket(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", rows([]).schema, primary_key=["id"], options={"bucket": "2"})
    table.upsert(rows(range(100), "old"))
    table.upsert(rows(range(50, 150), "new"))
    assert ids(table, "who = 'new'") == list(range(50, 150))
    table.delete("id < 10")
    table.maintenance.compact(full=True)
    assert ids(table) == list(range(10, 150))
    assert ids(table, "who = 'old'") == list(range(10, 50))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_two_processes_lose_no_commit(s3_endpoint: str) -> None:
    root = "s3://lake/two-processes"
    lake = bitlake.connect(root, storage_options=s3_server.options(s3_endpoint))
    table = lake.create_table("t", rows([]).schema)
    paths = [str(Path(__file__).parent), str(Path(__file__).parent.parent), *sys.path]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}\n{_APPENDER}", s3_endpoint, root, f"w{i}"]
        )
        for i in range(2)
    ]
    try:
        assert [p.wait(120) for p in started] == [0, 0]
    finally:
        for p in started:
            p.kill()
    forget()
    found = table.scan().to_arrow()
    pairs = zip(found.column("who").to_pylist(), found.column("id").to_pylist(), strict=True)
    assert Counter(pairs) == Counter((f"w{w}", i) for w in range(2) for i in range(APPENDS * BATCH))
    assert versions.latest_snapshot_id(table._core.state().table_files) == 2 * APPENDS


# --- failures ---------------------------------------------------------------------------------------------------------


def is_snapshot(method: str, path: str) -> bool:
    return method == "PUT" and "/snapshot/snapshot-" in path


@pytest.mark.parametrize("trouble", [exhaustive(UNAVAILABLE), exhaustive(DROP), LOSE_ANSWER])
def test_a_commit_whose_answer_is_lost_is_made_once(proxy: flaky_proxy.Proxy, trouble: str) -> None:
    table = through(proxy, f"s3://lake/lost-{len(trouble)}").create_table("t", rows([]).schema)
    hurt: list[str] = []

    def plan(method: str, path: str, number: int) -> str:
        if is_snapshot(method, path) and path not in hurt:
            hurt.append(path)
            return trouble
        return PASS

    proxy.plan = plan
    for i in range(3):
        snapshot = table.append(rows([i]))
        assert snapshot is not None and snapshot.id == i + 1
    assert len(hurt) == 3
    assert ids(table) == [0, 1, 2]
    assert versions.latest_snapshot_id(table._core.state().table_files) == 3


@pytest.mark.parametrize("primary_key", [exhaustive([]), ["id"]])
def test_a_commit_that_a_proxy_sends_twice_is_made_once(proxy: flaky_proxy.Proxy, primary_key: list[str]) -> None:
    lake = through(proxy, f"s3://lake/twice-{len(primary_key)}")
    table = lake.create_table("t", rows([]).schema, primary_key=primary_key)

    def plan(method: str, path: str, number: int) -> str:
        return REPEAT if method == "PUT" and ("/snapshot/" in path or "/schema/" in path) else PASS

    proxy.plan = plan
    table.append(rows([0, 1]))
    table.append(rows([2]))
    table.history.create_tag("before")
    assert table.delete("id = 0") == 1
    table.history.rollback(tag="before")
    table.add_column("note", "STRING")
    assert ids(table) == [0, 1, 2]
    lake.sql("CREATE OR REPLACE TABLE t (id BIGINT)", engine="duckdb")
    proxy.plan = lambda method, path, number: PASS
    assert proxy.count(REPEAT) > 5
    table = lake.table("t")
    assert (table.schema.field_names, table.count(), ids(table, tag="before")) == (("id",), 0, [0, 1, 2])
    assert lake.verify("t").ok


def test_files_of_a_table_that_a_proxy_sends_twice_are_created_once(proxy: flaky_proxy.Proxy) -> None:
    root = f"s3://lake/{uuid.uuid4()}"
    lake = through(proxy, root)
    proxy.plan = lambda method, path, number: REPEAT if method == "PUT" else PASS
    table = lake.create_table("t", rows([]).schema, options={"metadata.iceberg.storage": "table-location"})
    table.append(rows([0]))
    assert table.history.create_tag("a") and table.history.create_tag("b")
    with pytest.raises(AlreadyExists, match="already has a tag 'a'"):
        table.history.create_tag("a")
    table.history.rename_tag("b", "c")
    assert table.history.create_branch("dev", "a")
    table.append(rows([1]))
    lake.table("t$branch_dev").append(rows([2]))
    table.history.fast_forward("dev")
    assert sorted(table.history.tags()) == ["a"] and ids(table) == [0, 2]
    with pytest.raises(AlreadyExists, match="already exists"):
        lake.create_table("t", rows([]).schema)
    assert lake.verify("t").ok


@pytest.mark.parametrize("primary_key", [[], ["id"]])
def test_a_server_that_ignores_conditions_gets_no_commit(s3_endpoint: str, primary_key: list[str]) -> None:
    root = f"s3://lake/{uuid.uuid4()}"
    bitlake.connect(root, storage_options=s3_server.options(s3_endpoint)).create_table(
        "t", rows([]).schema, primary_key=primary_key
    ).append(rows([1]))
    with flaky_proxy.running(s3_endpoint) as proxy:
        proxy.plan = lambda method, path, number: UNCONDITIONAL
        table = through(proxy, root).table("t")
        with pytest.raises(AccessDenied, match="one writer could overwrite the commit of another; nothing was changed"):
            table.append(rows([2]))
        assert not any(is_snapshot(method, path) for method, path, _ in proxy.seen)
        assert ids(table) == [1]
        assert len([f for f in table._core.store.list(f"{table.path}/bucket-0") if f.name.startswith("data-")]) == 1


@pytest.mark.exhaustive
def test_the_object_of_a_trial_that_was_killed_is_an_orphan(s3_endpoint: str) -> None:
    root = f"s3://lake/{uuid.uuid4()}"
    bitlake.connect(root, storage_options=s3_server.options(s3_endpoint)).create_table("t", rows([]).schema)
    with flaky_proxy.running(s3_endpoint) as proxy:
        proxy.plan = lambda method, path, number: UNAVAILABLE if method in ("POST", "DELETE") else PASS
        table = through(proxy, root).table("t")
        table.append(rows([1]))
        proxy.plan = lambda method, path, number: PASS
        time = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
        (orphan,) = table.maintenance.remove_orphan_files(time)
        assert "/.if-none-match-" in orphan.path
        assert not table.maintenance.remove_orphan_files(time) and ids(table) == [1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", few(range(3), 1))
def test_nothing_is_lost_or_doubled_on_a_bad_line(proxy: flaky_proxy.Proxy, seed: int) -> None:
    chance = random.Random(seed)
    table = through(proxy, f"s3://lake/bad-line-{seed}").create_table("t", rows([]).schema)
    proxy.plan = lambda method, path, number: chance.choices(
        [PASS, UNAVAILABLE, DROP, LOSE_ANSWER, SLOW], [80, 5, 5, 5, 5]
    )[0]
    for i in range(6):
        table.append(rows(range(10 * i, 10 * i + 10)))
    table.maintenance.compact(full=True)
    assert ids(table) == list(range(60))
    assert sum(done != PASS for _, _, done in proxy.seen) > 5


def test_a_commit_that_stays_unknown_says_so(proxy: flaky_proxy.Proxy) -> None:
    options = {"commit.max-retries": "0"}
    lake = through(proxy, "s3://lake/unknown", max_retries="0")
    table = lake.create_table("t", rows([]).schema, options=options)
    table.append(rows([1]))
    proxy.plan = lambda method, path, number: LOSE_ANSWER if is_snapshot(method, path) else PASS
    with pytest.raises(OutcomeUnknown, match="whether it took place is unknown") as e:
        table.append(rows([2]))
    assert s3_server.SECRET not in str(e.value)
    proxy.plan = lambda method, path, number: PASS
    assert ids(table) == [1, 2], "it did, and its files are there"
    found = versions.latest_snapshot(table._core.state().table_files)
    assert found is not None and found.uuid == e.value.uuid


def test_a_read_only_store_refuses_and_stays_readable(proxy: flaky_proxy.Proxy) -> None:
    table = through(proxy, "s3://lake/read-only").create_table("t", rows([]).schema)
    table.append(rows([1]))
    proxy.plan = lambda method, path, number: PASS if method in ("GET", "HEAD") else REFUSE
    proxy.seen.clear()
    with pytest.raises(AccessDenied, match=r"check the credentials, and that they may write to 'lake'"):
        table.append(rows([2]))
    with pytest.raises(AccessDenied):
        table.delete("id = 1")
    assert proxy.count(REFUSE) < 30, "refusals are not tried again"
    assert ids(table) == [1]
    proxy.plan = lambda method, path, number: REFUSE if is_snapshot(method, path) else PASS
    with pytest.raises(AccessDenied):
        table.append(rows([3]))
    proxy.plan = lambda method, path, number: PASS
    assert ids(table) == [1]
    assert len([f for f in table._core.store.list(f"{table.path}/bucket-0") if f.name.startswith("data-")]) == 1


def test_wrong_credentials_and_buckets(proxy: flaky_proxy.Proxy) -> None:
    through(proxy, "s3://lake/credentials").create_table("t", rows([]).schema)
    proxy.plan = lambda method, path, number: REFUSE
    with pytest.raises(AccessDenied, match="check the credentials"):
        through(proxy, "s3://lake/credentials").table("t")
    with pytest.raises(AccessDenied):
        through(proxy, "s3://lake/credentials").create_table("u", rows([]).schema)
    proxy.plan = lambda method, path, number: PASS
    for work in ("tables", "create"):
        lake = through(proxy, "s3://nowhere/wh")
        with pytest.raises(StorageUnavailable, match="bucket 'nowhere' does not exist"):
            lake.databases() if work == "tables" else lake.create_table("t", rows([]).schema)


def test_no_secret_is_in_any_object(s3_endpoint: str) -> None:
    root = "s3://lake/secrets"
    lake = bitlake.connect(root, storage_options=s3_server.options(s3_endpoint))
    table = lake.create_table("t", rows([]).schema, options={"file-index.bitmap.columns": "status"})
    table.append(rows(range(10)))
    store = table._core.store

    def walk(folder: str) -> Iterator[str]:
        for info in store.list(folder):
            yield from walk(f"{folder}/{info.name}") if info.is_dir else [f"{folder}/{info.name}"]

    names = list(walk(root))
    assert len(names) >= 7
    for name in names:
        content = store.read(name)
        assert s3_server.SECRET.encode() not in content and s3_server.KEY.encode() not in content
    for text in (repr(lake), repr(table), repr(table.scan()), repr(store), str(table.scan().explain())):
        assert s3_server.SECRET not in text and s3_server.KEY not in text


def test_a_selective_read_takes_few_requests_and_bytes(proxy: flaky_proxy.Proxy) -> None:
    options = {"file-index.bitmap.columns": "status", "file-index.in-manifest-threshold": "1 b"}
    chance = random.Random(1)
    wide = pa.table(
        {
            "id": pa.array(range(200_000), pa.int64()),
            "status": pa.array([f"s{i // 500}" for i in range(200_000)]),
            "text": pa.array([chance.randbytes(24).hex() for _ in range(200_000)]),
        }
    )
    table = through(proxy, "s3://lake/selective").create_table("t", wide.schema, options=options)
    table.append(wide)
    size = table._core.state().entries()[0].file.file_size
    forget()
    proxy.seen.clear()
    proxy.received = 0
    assert table.scan(where="status = 's77'").to_arrow().num_rows == 500
    assert len(proxy.seen) <= 16
    assert proxy.received < size / 10, (proxy.received, size, proxy.seen)
    forget()
    proxy.seen.clear()
    found = table.scan(columns=["id"], where="text LIKE '%abc%'").to_arrow()
    assert 0 < found.num_rows < 20_000
    data = [path for _, path, _ in proxy.seen if path.endswith(".parquet")]
    # The footer, the condition's column, and the other's pages where rows survive.
    assert len(data) <= 3, data


def kinds(proxy: flaky_proxy.Proxy) -> Counter[str]:
    """How often which kind of file was asked for."""
    names = [path.partition("?")[0] for _, path, _ in proxy.seen]
    ends = {".parquet": "data", ".index": "index"}
    return Counter(next((kind for end, kind in ends.items() if name.endswith(end)), "metadata") for name in names)


def test_the_first_read_of_a_process_sends_few_requests(proxy: flaky_proxy.Proxy) -> None:
    """An index was read in four requests, each after the one before, and the schema twice."""
    options = {
        "file-index.bitmap.columns": "status",
        "file-index.bloom-filter.columns": "id",
        "file-index.in-manifest-threshold": "1 b",
    }
    wide = pa.table(
        {
            "id": pa.array(range(200_000), pa.int64()),
            "status": pa.array([f"s{i // 500}" for i in range(200_000)]),
        }
    )
    table = through(proxy, "s3://lake/cold").create_table("t", wide.schema, options=options)
    table.append(wide)
    table.append(wide)
    forget()
    proxy.seen.clear()
    found = through(proxy, "s3://lake/cold").table("t").scan(where="status = 's77'").to_arrow()
    assert found.num_rows == 1000
    asked = kinds(proxy)
    # The first schema; listings of schemas and snapshots; the snapshot; two lists of manifests and two manifests.
    assert asked["metadata"] == 8, proxy.seen
    assert asked["index"] == 2 and asked["data"] <= 6, proxy.seen
    sizes = [file.size for file in table._core.store.list(f"{table.path}/bucket-0") if file.name.endswith(".index")]
    assert min(sizes) > 128 * 1024, "an index that does not come with its header"


def test_a_statement_looks_at_each_table_once(proxy: flaky_proxy.Proxy) -> None:
    """Each table's schemas were listed five times for each statement."""
    lake = through(proxy, "s3://lake/statement")
    for name in "abc":
        lake.create_table(name, rows([]).schema).append(rows(range(10)))
    query = "SELECT count(*) FROM a JOIN b USING (id) JOIN c USING (id)"

    def count() -> int:
        return int(lake.sql(query, engine="duckdb").fetchall()[0][0])

    assert count() == 10
    proxy.seen.clear()
    assert count() == 10
    per_table = Counter(path.partition("?")[0] if "prefix" not in path else path for _, path, _ in proxy.seen)
    assert max(per_table.values()) == 2, per_table  # exists it, and what is its schema now
    assert kinds(proxy)["metadata"] == 3 * 3, proxy.seen
    # What others did in between is seen.
    other = through(proxy, "s3://lake/statement")
    other.table("a").append(rows(range(5)))
    other.table("b").alter(add={"d": pa.int32()})
    assert count() == 15
    assert lake.sql("SELECT * FROM b", engine="duckdb").columns[-1] == "d"


def test_a_changed_schema_is_read_and_an_unchanged_one_is_not(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", rows([]).schema)
    table.append(rows(range(3)))
    store = table._core.store
    read: list[str] = []
    plain = store.read_tagged

    def counted(path: str, *more: Any) -> tuple[bytes, str | None]:
        read.append(path)
        return plain(path, *more)

    store.read_tagged = counted  # type: ignore[method-assign]
    assert [f.name for f in table.schema.fields] == ["id", "who", "status"]
    read.clear()
    assert [f.name for f in table.schema.fields] == ["id", "who", "status"]
    assert not [path for path in read if "/schema/" in path]
    table.alter(add={"more": pa.int32()})
    assert [f.name for f in table.schema.fields] == ["id", "who", "status", "more"]
    lake.drop_table("t")
    lake.create_table("t", pa.schema([("other", pa.int32())]))
    assert [f.name for f in table.schema.fields] == ["other"]


def test_orphans_are_found_in_all_folders(lake: bitlake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are not in the order of folder names: ``p=a-b/`` comes before ``p=a/``."""
    monkeypatch.setattr(orphan_files, "_LISTED_TOGETHER", 2)
    names = ["a", "a-b", "a b", "a0", "A", "\u00e4", "b"]
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    found = []
    for place in (lake, bitlake.connect(str(tmp_path))):
        schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
        table = place.create_table("t", schema, partition_by=["p"])
        table.append(pa.table({"id": range(len(names)), "p": names}))
        assert table.maintenance.remove_orphan_files(later, dry_run=True) == []
        for folder in ("p=a/bucket-0", "p=a-b/bucket-0", "p=b/bucket-0", "p=b", "bucket-0", "p=n/q=1/bucket-postpone"):
            table._core.store.write(f"{table.path}/{folder}/data-x-{folder.count('/')}.parquet", b"orphan")
        for folder in ("p=b/bucket-0/below", "snapshot", "elsewhere"):
            table._core.store.write(f"{table.path}/{folder}/stays", b"stays")
        listed = table.maintenance.remove_orphan_files(later)
        found.append(sorted(o.path.removeprefix(f"{table.path}/") for o in listed))
        assert table.scan().to_arrow().num_rows == len(names)
    assert found[0] == found[1] and len(found[0]) == 5
