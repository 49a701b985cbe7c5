"""Runs in pypaimon's own environment: reads and writes tables on request.  Started by pypaimon_peer.py.

A request is a line of JSON, ``{"op", "warehouse", "table", "where", "native", "file"}``; data goes through the Arrow
file named in it (written for "read", else read); the answer is ``{"rows": n}`` or ``{"error": text}``.
"""

import base64
import json
import pickle
import sys
import traceback

import pyarrow as pa
from pypaimon import CatalogFactory

# condition operator -> method of pypaimon's PredicateBuilder
METHODS = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less_than",
    "<=": "less_or_equal",
    ">": "greater_than",
    ">=": "greater_or_equal",
    "in": "is_in",
    "isnull": "is_null",
    "notnull": "is_not_null",
}


def read(table, request):
    if request["native"]:
        table = table.copy({"read.native.enabled": "true"})
    builder = table.new_read_builder()
    if request["where"]:
        predicates = builder.new_predicate_builder()
        leaves = []
        for column, operator, literals in pickle.loads(base64.b64decode(request["where"])):
            arguments = [list(literals)] if operator == "in" else list(literals)
            leaves.append(getattr(predicates, METHODS[operator])(column, *arguments))
        builder = builder.with_filter(predicates.and_predicates(leaves))
    result = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    with pa.ipc.new_file(request["file"], result.schema) as out:
        out.write_table(result)
    return result.num_rows


def append(table, request):
    return write(table.new_batch_write_builder(), request)


def overwrite(table, request):
    return write(table.new_batch_write_builder().overwrite(), request)


def write(builder, request):
    with pa.ipc.open_file(request["file"]) as source:
        data = source.read_all()
    write, commit = builder.new_write(), builder.new_commit()
    try:
        write.write_arrow(data)
        commit.commit(write.prepare_commit())
    finally:
        write.close()
        commit.close()
    return data.num_rows


def main():
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints must not fall into the answers
    for line in sys.stdin:
        request = json.loads(line)
        try:
            table = CatalogFactory.create({"warehouse": request["warehouse"]}).get_table(request["table"])
            answer = {"rows": {"read": read, "append": append, "overwrite": overwrite}[request["op"]](table, request)}
        except Exception:  # noqa: BLE001 - everything goes back to the test that asked
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


main()
