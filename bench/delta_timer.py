"""Runs in Delta Lake's own environment (PySpark 4.1 and its jar) and times one statement per request.

Started by bench.peers.  A request is a line of JSON: {"setup": [SQL ...]} runs statements, {"time": SQL} answers
{"seconds"}, {"count": SQL} answers {"rows"} of its first value; {"error"} if it fails.
"""

import importlib.metadata
import json
import os
import sys
import time
import traceback


def session():
    from pyspark.sql import SparkSession

    cores = os.environ.get("BITLAKE_BENCH_CORES", "*")
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.jars", os.environ["BITLAKE_DELTA_JARS"])
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", os.environ["BITLAKE_DELTA_FOLDER"])
        .config("spark.sql.shuffle.partitions", os.environ.get("BITLAKE_BENCH_PARTITIONS", "4"))
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
    )
    return builder.getOrCreate()


def answer(spark, request):
    if "setup" in request:
        for statement in request["setup"]:
            spark.sql(statement)
        return {}
    if "count" in request:
        return {"rows": spark.sql(request["count"]).collect()[0][0]}
    started = time.perf_counter()
    spark.sql(request["time"]).collect()
    return {"seconds": time.perf_counter() - started}


def main():
    answers, sys.stdout = sys.stdout, sys.stderr
    spark = session()
    versions = {
        "pyspark (Delta)": importlib.metadata.version("pyspark"),
        "delta jars": os.environ["BITLAKE_DELTA_JARS"],
    }
    versions["delta jars"] = ", ".join(p.rsplit("/", 1)[-1] for p in versions["delta jars"].split(","))
    print(json.dumps(versions), file=answers, flush=True)
    for line in sys.stdin:
        try:
            found = answer(spark, json.loads(line))
        except Exception:  # noqa: BLE001 - goes back to the harness
            found = {"error": traceback.format_exc()}
        print(json.dumps(found), file=answers, flush=True)


main()
