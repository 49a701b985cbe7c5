"""A client of a local Spark Connect server.

Run by ``spark/test_connect.py`` in a process of its own (which has either a classic session or a Connect client), it
tries the lake and prints one JSON line for each statement: its rows, or the kind of its error.  Where
``BITLAKE_TEST_SPARK=connect`` asks for it, whole tests run on :func:`connected` (``make versions``).
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import DefaultChannelBuilder

import bitlake
from bitlake.spark.java import find_java

_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
}
STATEMENTS = (
    "CREATE TABLE t (id BIGINT, v STRING) TBLPROPERTIES ('file-index.bitmap.columns' = 'v')",
    "INSERT INTO t SELECT id, concat('v', id) FROM range(10)",
    "INSERT INTO t VALUES (100, '{x}'), (101, 'y')",
    "SELECT count(*), max(id) FROM t",
    "SELECT id FROM t WHERE v = '{x}' AND length('{') = 1",
    "SELECT a.id, b.v FROM t a JOIN t b ON a.id = b.id WHERE a.id < 2 ORDER BY a.id",
    "UPDATE t SET v = 'z' WHERE id = 1",
    "DELETE FROM t WHERE id = 2 OR v LIKE '{%'",
    "CREATE TABLE k (id BIGINT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'id')",
    "INSERT INTO k SELECT id, concat('k', id) FROM range(5)",
    "MERGE INTO k USING t ON k.id = t.id WHEN MATCHED THEN UPDATE SET v = t.v WHEN NOT MATCHED THEN INSERT *",
    "SELECT id, v FROM k WHERE id IN (0, 1, 2, 101) ORDER BY id",
    "SELECT count(id) FROM t VERSION AS OF 1",
    "SELECT max(snapshot_id) FROM `t$snapshots`",
    "CREATE TEMPORARY VIEW few AS SELECT * FROM t WHERE id < 2",
    "SELECT id, v FROM few ORDER BY id",
    "SELECT nope FROM t",
    "SELECT * FROM nowhere",
    "EXPLAIN SELECT * FROM t",
)
PARAMETERS: tuple[tuple[str, Any], ...] = (
    ("SELECT id FROM t WHERE v = :v OR id = :i ORDER BY id", {"v": "z", "i": 3}),
    ("SELECT id FROM t WHERE v = ? OR id = ? ORDER BY id", ["z", 3]),
    ("SELECT count(*) FROM IDENTIFIER(:name) AS x WHERE x.id < 2", {"name": "default.t"}),
    ("SELECT max(id) FROM IDENTIFIER('t')", None),
    ("EXECUTE IMMEDIATE 'SELECT id FROM t WHERE v = \\'z\\''", None),
    ("EXECUTE IMMEDIATE 'SELECT id FROM t WHERE v = ? AND id < :1' USING 'z'", None),
    ("EXECUTE IMMEDIATE 'SELECT v FROM t WHERE id = :i' USING 1 AS i", None),
    ("WITH t AS (SELECT 5 AS id) SELECT id FROM t", None),
    ("FROM t |> WHERE id < 2 |> SELECT id |> ORDER BY id", None),
)
"""Statements with named and positional parameters, IDENTIFIER and EXECUTE IMMEDIATE, with their arguments."""


def connected() -> Any:
    """A session on a local Connect server, which starts with it; its workers find the tests' own modules too."""
    home = find_java()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    here = Path(__file__).resolve().parent
    places = [str(here.parent), str(here), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(p for p in places if p))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    # PySpark's own server listens where any other does, and its client looks there: one at a time for a machine.
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)  # type: ignore[method-assign]
    builder = SparkSession.builder.remote("local[2]")
    for name, value in {**_SETTINGS, "spark.connect.grpc.binding.port": str(port)}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(folder: str) -> None:
    spark = connected()
    lake = bitlake.connect(folder, spark=spark)
    for _ in range(2):
        bitlake.register(spark)
    try:
        spark.sql("CREATE TABLE made (id INT) USING bitlake")
    except bitlake.InvalidRequest:
        pass
    else:
        raise AssertionError("CREATE TABLE … USING bitlake was run")
    for text, args in (*((text, None) for text in STATEMENTS), *PARAMETERS):
        try:
            said: Any = [list(row) for row in lake.sql(text, args).collect()]
        except Exception as e:  # noqa: BLE001 - the test judges
            said = f"{type(e).__name__}: {e}"[:300]
        print("\n" + json.dumps(said, default=str), flush=True)
    # The data source, a write of a frame, and a stream whose batches are written on the server's side.
    rows = spark.read.format("bitlake").load(f"{folder}/default.db/k").where("id = 101").collect()
    print("\n" + json.dumps([list(r) for r in rows]), flush=True)
    print("\n" + json.dumps(lake.write(spark.range(3).selectExpr("id", "'w' AS v"), "t")), flush=True)
    lake.create_table("u", pa.schema([("id", "int64"), ("v", "string")]), primary_key=["id"])
    stream = lake.read_stream("t", start="earliest")
    query = lake.write_stream(stream, "u", f"{folder}/checkpoint", trigger={"availableNow": True})
    query.awaitTermination(120)
    print("\n" + json.dumps([str(query.exception()), lake.table("u").scan().count()]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
