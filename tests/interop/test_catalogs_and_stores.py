"""pypaimon and bitlake share a jdbc catalog, a REST catalog's server, and a bucket."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
import rest_server
import s3_server

import bitlake

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}, SCHEMA)

_HEAD = """
import json, sys
import pyarrow as pa
from pypaimon import CatalogFactory, Schema
catalog = CatalogFactory.create(json.loads(sys.argv[1]))

def read(name):
    builder = catalog.get_table(name).new_read_builder()
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return rows.sort_by("id").to_pylist()

def append(name, table):
    builder = catalog.get_table(name).new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(table)
    commit.commit(write.prepare_commit())
    write.close()
    commit.close()
"""


def ask(pypaimon: ModuleType, options: dict[str, str], text: str) -> Any:
    """What a script of pypaimon's prints as JSON."""
    done = subprocess.run(
        [pypaimon.find_python(), "-c", _HEAD + text, json.dumps(options)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_jdbc_catalog(tmp_path: Path, pypaimon: ModuleType) -> None:
    uri = f"jdbc:sqlite:{tmp_path}/catalog.db"
    lake = bitlake.connect(tmp_path / "wh", catalog="jdbc", uri=uri)
    lake.create_database("db")
    lake.create_table("db.ours", SCHEMA, options={"bucket": "-1"}).append(ROWS)
    options = {"metastore": "jdbc", "uri": uri, "warehouse": f"{tmp_path}/wh"}
    found = ask(
        pypaimon,
        options,
        """
seen = [catalog.list_databases(), catalog.list_tables("db"), read("db.ours")]
schema = Schema.from_pyarrow_schema(pa.schema([("id", pa.int64()), ("name", pa.string())]), options={"bucket": "-1"})
catalog.create_table("db.theirs", schema, False)
append("db.theirs", pa.table({"id": [7, 8], "name": ["x", "y"]}))
catalog.rename_table("db.ours", "db.renamed")
catalog.create_database("more", False)
print(json.dumps(seen))
""",
    )
    assert found == [["db"], ["ours"], ROWS.to_pylist()]
    assert lake.databases() == ["db", "more"] and lake.tables("db") == ["renamed", "theirs"]
    assert lake.table("db.theirs").scan().to_arrow().column("id").to_pylist() == [7, 8]
    lake.rename_table("db.theirs", "more.moved").append(ROWS)
    lake.drop_table("db.renamed")
    found = ask(
        pypaimon,
        options,
        'print(json.dumps([catalog.list_tables("db"), catalog.list_tables("more"), read("more.moved")]))',
    )
    assert found[:2] == [[], ["moved"]] and [r["id"] for r in found[2]] == [1, 2, 3, 7, 8]
    lake.drop_database("more", cascade=True)
    assert ask(pypaimon, options, "print(json.dumps(catalog.list_databases()))") == ["db"]


def test_a_rest_catalog(tmp_path: Path, pypaimon: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are clients of one server, which makes the snapshots."""
    for name in ("WAREHOUSE", "PREFIX"):  # pypaimon encodes other characters twice
        monkeypatch.setattr(rest_server, name, "plain")
    with rest_server.running(tmp_path / "wh") as server:
        token = {"token.provider": "bear", "token": rest_server.TOKEN}
        lake = bitlake.connect(rest_server.WAREHOUSE, catalog="rest", uri=server.uri, catalog_options=token)
        lake.create_database("db")
        ours = lake.create_table("db.ours", SCHEMA, options={"bucket": "-1"})
        ours.append(ROWS)
        found = ask(
            pypaimon,
            {"metastore": "rest", "uri": server.uri, "warehouse": rest_server.WAREHOUSE, **token},
            """
seen = [catalog.list_databases(), catalog.list_tables("db"), read("db.ours")]
schema = Schema.from_pyarrow_schema(pa.schema([("id", pa.int64()), ("name", pa.string())]), options={"bucket": "-1"})
catalog.create_table("db.theirs", schema, False)
append("db.theirs", pa.table({"id": [7, 8], "name": ["x", "y"]}))
append("db.ours", pa.table({"id": [9], "name": ["z"]}))
print(json.dumps(seen))
""",
        )
        assert found == [["db"], ["ours"], ROWS.to_pylist()]
        assert sorted(lake.tables("db")) == ["ours", "theirs"]
        assert lake.table("db.theirs").scan().to_arrow().column("id").to_pylist() == [7, 8]
        ours.append(ROWS)
        assert sorted(ours.scan().to_arrow().column("id").to_pylist()) == [1, 1, 2, 2, 3, 3, 9]
        assert [s.id for s in ours.history.snapshots()] == [1, 2, 3]


def test_a_bucket(pypaimon: ModuleType, s3_endpoint: str) -> None:
    lake = bitlake.connect("s3://lake/with-pypaimon", storage_options=s3_server.options(s3_endpoint))
    lake.create_database("db")
    lake.create_database("empty")
    table = lake.create_table("db.t", SCHEMA, options={"bucket": "-1"})
    table.append(ROWS)
    options = {
        "warehouse": "s3://lake/with-pypaimon",
        "fs.s3.endpoint": s3_endpoint,
        "fs.s3.accessKeyId": s3_server.KEY,
        "fs.s3.accessKeySecret": s3_server.SECRET,
        "fs.s3.region": "us-east-1",
    }
    found = ask(
        pypaimon,
        options,
        """
seen = [sorted(catalog.list_databases()), catalog.list_tables("db"), catalog.list_tables("empty"), read("db.t")]
append("db.t", pa.table({"id": [4], "name": ["theirs"]}))
print(json.dumps(seen))
""",
    )
    assert found == [["db", "empty"], ["t"], [], ROWS.to_pylist()]
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 2, 3, 4]
    table.append(ROWS)
    assert table.snapshot is not None and table.snapshot.id == 3
