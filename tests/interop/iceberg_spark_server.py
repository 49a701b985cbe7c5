"""Iceberg's Spark runtime reads tables on request, in a session of its own.  Started by iceberg_peer.py.

Requests and answers are those of iceberg_server.py; a table is found by its folder, as Iceberg's Hadoop tables are.
"""

import json
import os
import sys
import traceback
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.driver.extraClassPath", os.environ["ICEBERG_JAR"])
for key, value in {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}.items():
    builder = builder.config(key, value)
out = os.dup(1)  # answers; Spark writes to the other one
os.dup2(2, 1)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")

for line in sys.stdin:
    try:
        request = json.loads(line)
        folder = Path(request["metadata"]).parents[1]
        rows = spark.read.format("iceberg").load(folder.as_uri()).toArrow()
        with pa.OSFile(request["file"], "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        answer = {"rows": rows.num_rows}
    except Exception:  # noqa: BLE001 - the caller reports it
        answer = {"error": traceback.format_exc()[-3000:]}
    os.write(out, (json.dumps(answer) + "\n").encode())
