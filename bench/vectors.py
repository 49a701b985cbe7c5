"""How long do deletion vectors take, beside the figures of the proposal that brought them to Paimon (PIP-16)?

The proposal's own test: of so many rows, a random share is deleted.  Its figures were measured in Java on another
machine, so only their order says something; sizes are exact.  Ours are processor time.  What we deserialize is the
whole index file, with its checksum and every check.  Vectors of two billion rows are made and asked window by window,
as a compaction would.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from bench.measure import Result
from bitlake.codec.roaring import contains
from bitlake.demo import SEED
from bitlake.tableindex.deletion_vectors import DeletionVector, decode_index_file, encode_index_file, encode_vector

if TYPE_CHECKING:
    from bench.cases import Bench

# (share in %, rows): add, serialize, deserialize in ms, file in MB (2^20 bytes), contains in ms
_PROPOSAL = {
    (20, 2_000_000): (43, 5, 26, 0.24, 7),
    (50, 2_000_000): (47, 3, 52, 0.24, 5),
    (80, 2_000_000): (57, 1, 24, 0.24, 8),
    (20, 20_000_000): (450, 13, 247, 2.4, 49),
    (50, 20_000_000): (629, 6, 222, 2.4, 76),
    (80, 20_000_000): (1040, 5, 222, 2.4, 121),
    (20, 200_000_000): (5079, 44, 2262, 24, 442),
    (50, 200_000_000): (9469, 43, 2773, 24, 1107),
    (80, 200_000_000): (13625, 38, 2233, 24, 1799),
    (20, 2_000_000_000): (93753, 568, 22290, 239, 5747),
    (50, 2_000_000_000): (166070, 679, 22339, 239, 14735),
    (80, 2_000_000_000): (218233, 553, 22684, 239, 26504),
}
_WINDOW = 50_000_000
_TARGET = 0.5


def vectors(bench: Bench) -> list[Result]:
    """How long do adding, serializing, deserializing and asking take for vectors of up to 2 billion rows?"""
    results: list[Result] = []
    for (share, rows), known in _PROPOSAL.items():
        rounds = bench.rounds if rows <= 200_000_000 else 1
        measured = [_measure(share, rows) for _ in range(rounds + (1 if rounds > 1 else 0))][-rounds:]
        label = f"{share} % of {rows:,}"
        for at, what in enumerate(("add", "serialize", "deserialize")):
            results.append(_line(f"vector: {what} {label}", "ms", [m[at] for m in measured], known[at], rounds))
        results.append(_line(f"vector: contains {label}", "ms", [m[4] for m in measured], known[4], rounds))
        size = statistics.median(m[3] for m in measured)
        note = f"the proposal's file: {known[3]} MB"
        results.append(Result(f"vector: size {label}", "MB", size, None, "", None, rounds, note))
        bench.say(f"vectors: {label} done")
    return results


def _line(name: str, unit: str, values: list[float], base: float, rounds: int) -> Result:
    return Result(name, unit, statistics.median(values), base, "the proposal's", _TARGET, rounds)


def _measure(share: int, rows: int) -> tuple[float, float, float, float, float]:
    """Milliseconds to add, serialize and deserialize, the file's MB, milliseconds to ask for each deleted row."""
    made: DeletionVector | None = None
    add = ask = 0.0
    for positions in _windows(share, rows):
        started = time.process_time()
        some = DeletionVector.of(positions)
        made = some if made is None else made.merged(some)
        add += time.process_time() - started
    vector = made or DeletionVector.of(np.zeros(0, np.int64))
    started = time.process_time()
    data = encode_vector(vector)
    serialize = time.process_time() - started
    data, places = encode_index_file({"data.parquet": vector})
    started = time.process_time()
    read = decode_index_file(data, places, lambda _: rows)["data.parquet"]
    deserialize = time.process_time() - started
    for positions in _windows(share, rows):
        started = time.process_time()
        found = contains(read.rows, positions)
        ask += time.process_time() - started
        assert found.all(), "a deleted row was not found"
    return add * 1e3, serialize * 1e3, deserialize * 1e3, len(data) / (1 << 20), ask * 1e3


def _windows(share: int, rows: int):  # type: ignore[no-untyped-def]
    """The deleted positions, ascending, a window of rows at a time; the same at each call."""
    random = np.random.default_rng(SEED)
    for start in range(0, rows, _WINDOW):
        stop = min(start + _WINDOW, rows)
        yield np.flatnonzero(random.random(stop - start, np.float32) < share / 100) + start
