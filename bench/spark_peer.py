"""Runs in the environment of Delta Lake or Iceberg (a PySpark and their jars) and times one statement per request.

Started by bench.peers, which says in $BITLAKE_PEER which of the two, in $BITLAKE_PEER_JARS where its jars are and in
$BITLAKE_PEER_FOLDER where its tables go.  A request is a line of JSON, and so is its answer:

    {"setup": [SQL ...]}   runs statements               {}
    {"time": SQL}          one statement                 {"seconds"}
    {"count": SQL}         its first value               {"rows"}
    {"read": SQL}          collects rows of lineitem     {"seconds", "answer"}: :func:`summary` of them
    {"values": SQL}        its first row                 {"answer"}, every value as text

or {"error"} if it fails.  Delta's tables have plain names; Iceberg's begin with ``ice.``.
"""

import importlib.metadata
import json
import os
import sys
import time
import traceback

SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
    },
}


def summary(rows):
    """What collected lines must agree in: how many, and the sums of key, part, line number, quantity and price."""
    columns = ("l_orderkey", "l_partkey", "l_linenumber", "l_quantity", "l_extendedprice")
    return [str(len(rows)), *(str(sum(row[name] for row in rows)) for name in columns)]


def session(kind):
    from pyspark.sql import SparkSession

    cores = os.environ.get("BITLAKE_BENCH_CORES", "*")
    folder = os.environ["BITLAKE_PEER_FOLDER"]
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.jars", os.environ["BITLAKE_PEER_JARS"])
        .config("spark.sql.warehouse.dir", folder)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", os.environ.get("BITLAKE_BENCH_PARTITIONS", "4"))
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    if kind == "iceberg":
        builder = builder.config("spark.sql.catalog.ice.warehouse", folder)
    for name, value in SETTINGS[kind].items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def answer(spark, request):
    if "setup" in request:
        for statement in request["setup"]:
            spark.sql(statement)
        return {}
    if "count" in request:
        return {"rows": spark.sql(request["count"]).collect()[0][0]}
    if "values" in request:
        return {"answer": [str(value) for value in spark.sql(request["values"]).collect()[0]]}
    started = time.perf_counter()
    rows = spark.sql(request["read"] if "read" in request else request["time"]).collect()
    found = {"seconds": time.perf_counter() - started}
    return found | {"answer": summary(rows)} if "read" in request else found


def main():
    answers, sys.stdout = sys.stdout, sys.stderr
    kind = os.environ["BITLAKE_PEER"]
    spark = session(kind)
    jars = ", ".join(path.rsplit("/", 1)[-1] for path in os.environ["BITLAKE_PEER_JARS"].split(","))
    versions = {f"pyspark ({kind})": importlib.metadata.version("pyspark"), f"{kind} jars": jars}
    print(json.dumps(versions), file=answers, flush=True)
    for line in sys.stdin:
        try:
            found = answer(spark, json.loads(line))
        except Exception:  # noqa: BLE001 - goes back to the harness
            found = {"error": traceback.format_exc()}
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
