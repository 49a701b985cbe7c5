"""Runs in an environment of Iceberg's readers: reads tables by the path of their metadata.  Started by iceberg_peer.py.

A request is a line of JSON, ``{"engine", "metadata", "properties", "file"}``; the rows are written to the Arrow file,
and the answer is ``{"rows": n}`` or ``{"error": text}``.
"""

import glob
import json
import os
import sys
import traceback
import warnings

import pyarrow as pa

warnings.simplefilter("ignore")  # Polars recommends a plugin of its own


def read_pyiceberg(metadata, **properties):
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(metadata, properties).scan().to_arrow()


def read_polars(metadata):
    import polars as pl

    return pl.scan_iceberg(metadata).collect().to_arrow()


def read_duckdb(metadata):
    import duckdb

    if not hasattr(read_duckdb, "connection"):
        read_duckdb.connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        folder = os.path.join(os.path.dirname(os.path.dirname(duckdb.__file__)), "duckdb_ext", "extensions")
        for name in ("avro", "iceberg"):
            (path,) = glob.glob(f"{folder}/*/*/{name}.duckdb_extension")
            read_duckdb.connection.execute(f"LOAD '{path}'")
    return read_duckdb.connection.execute(f"SELECT * FROM iceberg_scan('{metadata}')").fetch_arrow_table()


ENGINES = {"pyiceberg": read_pyiceberg, "polars": read_polars, "duckdb": read_duckdb}

for line in sys.stdin:
    try:
        request = json.loads(line)
        rows = ENGINES[request["engine"]](request["metadata"], **request["properties"])
        with pa.OSFile(request["file"], "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        answer = {"rows": rows.num_rows}
    except Exception:  # noqa: BLE001 - the caller reports it
        answer = {"error": traceback.format_exc()[-1500:]}
    print(json.dumps(answer), flush=True)
