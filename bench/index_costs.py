"""What do file indexes cost: rows a second to build, and bytes beside the column's own in Parquet?"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.measure import Result, noise, samples, timed
from bitlake.demo import SEED, orders
from bitlake.fileindex.registry import INDEX_TYPES
from bitlake.types import NextId, from_arrow

if TYPE_CHECKING:
    from bench.cases import Bench

ROWS = 1_000_000
_BATCH = 128 * 1024  # as tables are written
CARDINALITIES = (2, 10, 100, 1_000, 10_000, 100_000, 1_000_000)


def index_build(bench: Bench) -> list[Result]:
    """How many rows a second does each index take, beside pyarrow's own Parquet encode of the same column?"""
    rounds = 2 * bench.rounds + 1
    results = []
    for label, column in _columns().items():
        runs: dict[str, Callable[[], float]] = {"pyarrow": partial(_timed, _encode, column)}
        for kind in _kinds(column):
            runs[kind] = partial(_timed, _build, column, kind)
        found = samples(runs, rounds)
        speed = {k: ROWS / 1e6 / statistics.median(v) for k, v in found.items()}
        spread = noise(found)
        for kind in _kinds(column):
            name = f"build {kind} of {label}"
            base = "pyarrow's Parquet encode"
            results.append(Result(name, "Mrow/s", speed[kind], speed["pyarrow"], base, None, rounds, spread))
            spread = ""
    return sorted(results, key=lambda r: r.name)


def index_size(bench: Bench) -> list[Result]:
    """How large is each index of 1M random numbers beside the column in Parquet, for 2 to 1M distinct values?"""
    random = np.random.default_rng(SEED)
    results = []
    for distinct in CARDINALITIES:
        values = random.permutation(ROWS) if distinct == ROWS else random.integers(0, distinct, ROWS)
        column = pa.chunked_array([pa.array(values.astype(np.int64))])
        base = len(_encode(column)) / 1024
        for kind in _kinds(column):
            size = len(_build(column, kind)) / 1024
            name = f"size of {kind}, {distinct:,} values"
            results.append(Result(name, "KB", size, base, "BIGINT column in Parquet", None, 1))
    return sorted(results, key=lambda r: r.name.split(",")[0])


def _columns() -> dict[str, pa.ChunkedArray]:
    table = orders(ROWS)
    names = {
        "BIGINT (500k values)": "user_id",
        "STRING (5 values)": "status",
        "DECIMAL(10, 2) (random)": "amount",
        "DATE (50 values, sorted)": "order_date",
        "STRING (unique)": "payload",
    }
    random = np.random.default_rng(SEED)
    found = {label: table.column(name) for label, name in names.items()}
    return found | {"DOUBLE (random)": pa.chunked_array([pa.array(random.random(ROWS))])}


def _timed(work: Callable[..., object], *arguments: object) -> float:
    return timed(lambda: work(*arguments))


def _kinds(column: pa.ChunkedArray) -> list[str]:
    made = from_arrow(column.type, True, next_id=NextId(-1))
    return [kind for kind, index in INDEX_TYPES.items() if index.supports(made)]


def _build(column: pa.ChunkedArray, kind: str) -> bytes:
    """With the index's default options; in batches, as a table is written."""
    writer = INDEX_TYPES[kind].writer(from_arrow(column.type, True, next_id=NextId(-1)), {})
    for start in range(0, len(column), _BATCH):
        writer.add(column.slice(start, _BATCH))
    return writer.finish()


def _encode(column: pa.ChunkedArray) -> Any:
    output = pa.BufferOutputStream()
    pq.write_table(pa.table({"c": column}), output, compression="zstd", compression_level=1, row_group_size=ROWS)
    return output.getvalue()
