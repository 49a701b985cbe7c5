"""Paimon's own client of a REST catalog beside ours, on one server: branches, rollbacks, tags and views.

Each must read what the other's requests made, and both must send the requests that the server knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
import rest_server
from interop.paimon_java import REST, PaimonJava

import bitlake
from bitlake.errors import AlreadyExists, NotFound

pytestmark = pytest.mark.interop
SCHEMA = pa.schema({"id": pa.int64(), "p": pa.string()})


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[rest_server.Server]:
    for name in ("WAREHOUSE", "PREFIX"):  # Paimon's client encodes other characters twice
        monkeypatch.setattr(rest_server, name, "plain")
    with rest_server.running(tmp_path / "wh") as running:
        yield running


@pytest.fixture
def lake(server: rest_server.Server) -> bitlake.Lake:
    options = {"token.provider": "bear", "token": rest_server.TOKEN}
    lake = bitlake.connect(rest_server.WAREHOUSE, catalog="rest", uri=server.uri, catalog_options=options)
    lake.create_database("db")
    lake.create_table("db.t", SCHEMA, options={"bucket": "-1"}).append(rows(1))
    return lake


@pytest.fixture
def client(java: ModuleType, server: rest_server.Server, lake: bitlake.Lake) -> Iterator[PaimonJava]:
    client = PaimonJava(REST)
    client.value("open", server.uri, rest_server.WAREHOUSE, rest_server.TOKEN)
    yield client
    client.close()


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "p": ["x"] * len(ids)}, schema=SCHEMA)


def ids(lake: bitlake.Lake, name: str) -> str:
    return ",".join(map(str, sorted(lake.table(name).scan().to_arrow()["id"].to_pylist())))


def test_branches_and_tags(lake: bitlake.Lake, client: PaimonJava) -> None:
    table = lake.table("db.t")
    table.history.create_tag("ours")
    client.value("tag", "db.t", "theirs")
    client.value("append", "db.t", "2")
    table.history.create_branch("b", tag="theirs")
    client.value("branch", "db.t", "c", "ours")
    assert client.value("branches", "db.t") == "b,c" and sorted(table.history.branches()) == ["b", "c"]
    client.value("append", "db.t$branch_b", "10")
    lake.table("db.t$branch_b").append(rows(11))
    lake.table("db.t$branch_c").append(rows(20))
    client.value("append", "db.t$branch_c", "21")
    for name, expected in (("db.t", "1,2"), ("db.t$branch_b", "1,10,11"), ("db.t$branch_c", "1,20,21")):
        assert client.value("read", name) == ids(lake, name) == expected
    client.value("rename", "db.t", "c", "d")
    assert ids(lake, "db.t$branch_d") == "1,20,21"
    table.history.rename_branch("d", "e")
    assert client.value("read", "db.t$branch_e") == "1,20,21"
    client.value("forward", "db.t", "e")
    assert client.value("read", "db.t") == ids(lake, "db.t") == "1,20,21"
    lake.table("db.t").history.fast_forward("b")
    assert client.value("read", "db.t") == ids(lake, "db.t") == "1,10,11"
    client.value("delete", "db.t", "e")
    table.history.delete_branch("b")
    assert client.value("branches", "db.t") == "" and table.history.branches() == []


def test_rollbacks(lake: bitlake.Lake, client: PaimonJava) -> None:
    table = lake.table("db.t")
    table.history.create_tag("one")
    table.append(rows(2))
    client.value("append", "db.t", "3")
    assert table.history.rollback(2) == (3, 2)
    assert client.value("read", "db.t") == "1,2"
    client.value("append", "db.t", "4")
    client.value("rollback", "db.t", "snapshot", "2")
    table.append(rows(5))
    assert client.value("read", "db.t") == ids(lake, "db.t") == "1,2,5"
    table.maintenance.expire_snapshots(retain_max=1, retain_min=1)
    table.history.rollback(tag="one")
    client.value("append", "db.t", "6")
    assert client.value("read", "db.t") == ids(lake, "db.t") == "1,6"
    assert table.maintenance.verify().ok


def test_views(lake: bitlake.Lake, client: PaimonJava) -> None:
    pytest.importorskip("duckdb")
    lake.table("db.t").append(rows(2, 3))
    client.value("view", "db.theirs", "SELECT id FROM db.t WHERE id > 1")
    lake.sql("CREATE VIEW db.ours AS SELECT id FROM db.t WHERE id > 2", engine="duckdb")
    assert client.value("views", "db") == "ours,theirs"
    assert lake.sql("SELECT count(*) AS n FROM db.theirs", engine="duckdb").fetchall() == [(2,)]
    assert client.value("query", "db.ours", "spark") == "SELECT id FROM db.t WHERE id > 2|id"
    client.value("dialect", "db.ours", "add", "flink", "SELECT 1")
    lake.sql(
        "CALL sys.alter_view_dialect(view => 'db.ours', action => 'update', engine => 'flink', query => 'SELECT 2')"
    )
    assert client.value("query", "db.ours", "flink") == "SELECT 2|id"
    with pytest.raises(RuntimeError, match="ViewAlreadyExistException"):
        client.value("view", "db.ours", "SELECT 1")
    with pytest.raises(AlreadyExists, match="view 'db.theirs' already exists"):
        lake.sql("CREATE VIEW db.theirs AS SELECT id FROM db.t", engine="duckdb")
    client.value("drop", "db.ours")
    with pytest.raises(NotFound, match="view 'db.ours' does not exist"):
        lake.sql("DROP VIEW db.ours", engine="duckdb")
    lake.sql("DROP VIEW db.theirs", engine="duckdb")
    assert client.value("views", "db") == ""
