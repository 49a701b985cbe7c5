"""Runs in pypaimon's own environment and times one read per request, inside this process.  Started by bench.peers.

A request is a line of JSON, {"warehouse", "table", "column", "value", "native"}; the answer is {"seconds", "rows"} or
{"error"}.
The clock runs over what bitlake's runs over: open the table, plan, read, an Arrow table in hand.
"""

import importlib.metadata
import json
import sys
import time
import traceback

from pypaimon import CatalogFactory


def timed_read(request):
    started = time.perf_counter()
    table = CatalogFactory.create({"warehouse": request["warehouse"]}).get_table(request["table"])
    if request["native"]:
        table = table.copy({"read.native.enabled": "true"})
    builder = table.new_read_builder()
    builder = builder.with_filter(builder.new_predicate_builder().equal(request["column"], request["value"]))
    result = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return {"seconds": time.perf_counter() - started, "rows": result.num_rows}


def main():
    answers, sys.stdout = sys.stdout, sys.stderr
    names = ("pypaimon", "pypaimon-rust", "pyarrow")
    print(json.dumps({name: importlib.metadata.version(name) for name in names}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = timed_read(json.loads(line))
        except Exception:  # noqa: BLE001 - goes back to the harness
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


main()
