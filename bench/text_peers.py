"""Runs beside the harness, in any environment with chdb or pylance, and times their text indexes.  Started by
bench.peers.

It first prints a line with the versions of what is installed.  A request is a line of JSON, {"op": "build", "engine",
"files"} or {"op": "find", "engine", "literal"}; the answer is {"seconds", "rows", "note"} or {"error"}.  A build loads
the Parquet files into a table of its own.  A search returns the lines that contain a literal as an Arrow table.
"""

import importlib.metadata
import json
import os
import shutil
import sys
import time
import traceback

FOLDER = os.environ["BITLAKE_PEER_FOLDER"]
CHDB = {
    "chdb ngrambf_v1": "ngrambf_v1(5, 65536, 1, 0) GRANULARITY 1",
    "chdb text, ngrams": "text(tokenizer = ngrams(5))",
    "chdb text, words": "text(tokenizer = 'splitByNonAlpha')",
}
LANCE = "pylance NGRAM"
_session = None


def engines():
    """The name of each engine, and the version of its package."""
    versions = {}
    for package, names in (("chdb", list(CHDB)), ("pylance", [LANCE])):
        try:
            versions |= dict.fromkeys(names, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _chdb():
    global _session
    if _session is None:
        from chdb import session

        _session = session.Session(f"{FOLDER}/chdb")
        _session.query("CREATE DATABASE d")
    return _session


def _table(engine):
    return f"d.t{list(CHDB).index(engine)}"


def build(engine, files):
    """Load and index the files; return a note about sizes."""
    if engine == LANCE:
        import lance
        import pyarrow.dataset

        data = lance.write_dataset(pyarrow.dataset.dataset(files).scanner(["message"]).to_reader(), f"{FOLDER}/lance")
        data.create_scalar_index("message", "NGRAM")
        size = sum(
            os.path.getsize(os.path.join(folder, name))
            for folder, _, names in os.walk(f"{FOLDER}/lance/_indices")
            for name in names
        )
        return f"index {size / 1e6:.0f} MB"
    session, table = _chdb(), _table(engine)
    session.query(f"CREATE TABLE {table} (message String, INDEX i message TYPE {CHDB[engine]}) "
                  "ENGINE = MergeTree ORDER BY tuple()")  # fmt: skip
    for file in files:
        session.query(f"INSERT INTO {table} SELECT message FROM file('{file}', Parquet)")
    session.query(f"OPTIMIZE TABLE {table} FINAL")
    database, name = table.split(".")
    size = session.query("SELECT sum(data_compressed_bytes) FROM system.data_skipping_indices "
                         f"WHERE database = '{database}' AND table = '{name}'", "TSV")  # fmt: skip
    return f"index {int(str(size)) / 1e6:.0f} MB"


def find(engine, literal):
    """The number of lines that contain a literal."""
    if engine == LANCE:
        import lance

        return lance.dataset(f"{FOLDER}/lance").to_table(filter=f"contains(message, '{literal}')").num_rows
    words = engine == "chdb text, words"
    where = f"hasToken(message, '{literal}')" if words else f"message LIKE '%{literal}%'"
    return _chdb().query(f"SELECT * FROM {_table(engine)} WHERE {where}", "ArrowTable").num_rows


def main():
    """Answer requests."""
    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    os.dup2(2, 1)
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    print(json.dumps(engines()), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            started = time.perf_counter()
            if request["op"] == "build":
                answer = {"note": build(request["engine"], request["files"])}
            else:
                answer = {"rows": find(request["engine"], request["literal"])}
            answer["seconds"] = time.perf_counter() - started
        except Exception:  # noqa: BLE001 - goes back to the harness
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


main()
