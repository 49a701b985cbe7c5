"""Runs in pypaimon's own environment and times one read per request, inside this process.  Started by bench.peers.

A request is a line of JSON, {"warehouse", "table", "where", "native"}; the answer is {"seconds", "rows"} or {"error"}.
``where`` is a list: [method of pypaimon's PredicateBuilder, column, literal ...], or ["and" | "or", where ...]; the
literal {"decimal": "1.50"} is a decimal.
The clock runs over what bitlake's runs over: open the table, plan, read, an Arrow table in hand.
"""

import decimal
import importlib.metadata
import json
import sys
import time
import traceback

from pypaimon import CatalogFactory


def predicate(builder, where):
    name, *rest = where
    if name in ("and", "or"):
        combine = builder.and_predicates if name == "and" else builder.or_predicates
        return combine([predicate(builder, w) for w in rest])
    return getattr(builder, name)(rest[0], *map(literal, rest[1:]))


def literal(value):
    if isinstance(value, list):
        return [literal(v) for v in value]
    return decimal.Decimal(value["decimal"]) if isinstance(value, dict) else value


def timed_read(request):
    started = time.perf_counter()
    table = CatalogFactory.create({"warehouse": request["warehouse"]}).get_table(request["table"])
    if request["native"]:
        table = table.copy({"read.native.enabled": "true"})
    builder = table.new_read_builder()
    builder = builder.with_filter(predicate(builder.new_predicate_builder(), request["where"]))
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
