"""ORDER BY … LIMIT n under a filter that no index answers: the best rows are read first, against sorting everything."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs
from long import exhaustive, long
from pyroaring import BitMap
from topn_model import SCHEMA, keyed, orders, sorted_rows

import bitlake
from bitlake.fileindex.selection import Selection
from bitlake.scan import top_n as topn_read
from bitlake.scan import top_n as topn_rounds
from bitlake.scan.top_n import FileRanges

INDEXED = {"file-index.range-bitmap.columns": "i,f,s,flag", "file-index.bitmap.columns": "grp"}
DIRECTIONS = (hs.sampled_from(["asc", "desc"]), hs.sampled_from(["first", "last"]))
CONDITIONS = {
    "d > 0": lambda r: r["d"] is not None and r["d"] > 0,
    "d > 4 AND grp = 'x'": lambda r: r["d"] is not None and r["d"] > 4 and r["grp"] == "x",
    "s LIKE '%b%'": lambda r: r["s"] is not None and "b" in r["s"],
    "d IS NULL": lambda r: r["d"] is None,
}


@pytest.fixture
def _small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of single rows, in files of a dozen."""
    for name, value in (("_FIRST", 1), ("_GROWTH", 2), ("_FIRST_SHARE", 1), ("_SHARE", 1), ("_PER_N", 1)):
        monkeypatch.setattr(topn_rounds, name, value)
    monkeypatch.setattr(topn_read, "_FEW_ROWS", 0)
    monkeypatch.setattr(topn_read, "_FEW_PER_N", 0)


VALUES: dict[str, list[Any]] = {
    "i": [None, -(2**31), -1, 0, 1, 2**31 - 1],
    "f": [None, 0.0, -0.0, math.nan, math.inf, -math.inf, 1.5],
    "s": [None, "", "a", "b" * 20, "b" * 20 + "c", "ü"],
    "d": [None, *map(Decimal, ("-1.00", "0.50", "4.25", "5.00"))],
    "flag": [None, True, False],
    "grp": ["x", "y", None],
}


@pytest.mark.parametrize("examples", [8, exhaustive(20), long(60)])
@pytest.mark.usefixtures("_small_rounds")
def test_rounds_are_sorting_everything(tmp_path_factory: Any, examples: int) -> None:
    @settings(max_examples=examples)
    @given(seed=hs.integers(0, 2**32), data=hs.data())
    def run(seed: int, data: Any) -> None:
        sort_in_rounds(tmp_path_factory, seed, data)

    run()


def sort_in_rounds(tmp_path_factory: Any, seed: int, data: Any) -> None:
    random = np.random.default_rng(seed)
    first = data.draw(hs.tuples(hs.sampled_from("ifs"), *DIRECTIONS))
    order = [first, *(o for o in data.draw(orders()) if o[0] != first[0])][: data.draw(hs.integers(1, 3))]
    n = data.draw(hs.integers(1, 5))
    condition = data.draw(hs.sampled_from(list(CONDITIONS)))
    holds: Any = CONDITIONS[condition]
    folder = tmp_path_factory.mktemp("lake")
    try:
        table = bitlake.connect(str(folder)).create_table("t", SCHEMA, options=INDEXED)
        rows: list[dict[str, Any]] = []
        for _ in range(data.draw(hs.integers(1, 3))):
            new = [
                {"id": len(rows) + i, **{c: v[random.integers(len(v))] for c, v in VALUES.items()}}
                for i in range(random.integers(10, 40))
            ]
            table.append(pa.Table.from_pylist(new, SCHEMA))
            rows += new
        columns = data.draw(hs.sampled_from([["id"], [*SCHEMA.names], ["s", "id", "__paimon_row_index"]]))
        got = table.scan(columns, where=condition).top_n(order, n).to_arrow()
        by_id = {r["id"]: r for r in rows}
        told = [by_id[i] for i in got.column("id").to_pylist()]
        wanted = sorted_rows([r for r in rows if holds(r)], order)[:n]
        assert keyed(told, order) == keyed(wanted, order)
        assert len({r["id"] for r in told}) == len(told) and all(holds(r) for r in told)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def numbers(folder: Any, files: int = 2, rows: int = 40_000) -> bitlake.Table:
    """``amount`` is unique and shuffled; ``text`` is ``amount`` mod 100, and no index knows it."""
    random = np.random.default_rng(5)
    amounts = random.permutation(files * rows)
    options = {"file-index.range-bitmap.columns": "amount"}
    schema = pa.schema([("amount", pa.int64()), ("text", pa.string()), ("late", pa.string())])
    table = bitlake.connect(str(folder / "lake")).create_table("t", schema, options=options)
    for i in range(files):
        part = amounts[i * rows : (i + 1) * rows]
        text = np.char.mod("%02d", part % 100)
        table.append(pa.table({"amount": part, "text": pa.array(text), "late": pa.array(text)}, schema=schema))
    return table


def test_rounds_read_only_the_best_rows(tmp_path: Any) -> None:
    table = numbers(tmp_path)
    scan = table.scan(["amount", "late"], where="text >= '50' AND text < '90'").top_n([("amount", "desc")], 5)
    top = scan.to_arrow()
    assert top.column("amount").to_pylist() == [79989, 79988, 79987, 79986, 79985]
    assert top.column("late").to_pylist() == ["89", "88", "87", "86", "85"]
    read = scan.plan().metrics.rows_read
    assert 5 < read < 400, "two files, a round or two of 32 rows, and the five once more"
    plain = scan.without_index()
    assert plain.to_arrow() == top and plain.plan().metrics.rows_read > 80_000
    low = table.scan(["amount"], where="text = '07'").top_n(["amount", "late"], 3)
    assert low.to_arrow().column("amount").to_pylist() == [7, 107, 207]


def test_rows_in_vain_are_few(tmp_path: Any) -> None:
    """No survivor in the first round: the rest is read at once, not round after round."""
    table = numbers(tmp_path, files=1)
    scan = table.scan(["amount"], where="text LIKE '%x'").top_n(["amount"], 5)
    assert scan.to_arrow().num_rows == 0
    assert scan.plan().metrics.rows_read == 40_000


def test_no_more_rows_than_allowed(tmp_path: Any) -> None:
    table = numbers(tmp_path)
    scan = table.scan(["amount"], where="text < '50'").top_n(["amount"], 5)
    within = scan._core.to_arrow_within(200)
    assert within is not None and within.column("amount").to_pylist() == [0, 1, 2, 3, 4]
    assert scan._core.to_arrow_within(10) is None
    assert table.scan(["amount"], where="text LIKE '%x'").top_n(["amount"], 5)._core.to_arrow_within(10_000) is None
    assert scan.without_index()._core.to_arrow_within(10_000) is None


def test_deleted_rows_stay_deleted(tmp_path: Any) -> None:
    """Rounds take rows of the selection only: what deletion vectors took out of it does not come back."""
    table = numbers(tmp_path, files=1)
    scan = table.scan(["amount"], where="text < '50'").top_n(["amount"], 5)
    plan = scan.plan()
    (file,) = plan.files
    amounts = table.scan(["amount"]).to_arrow().column("amount").to_numpy()
    gone = BitMap(np.flatnonzero(amounts < 3).tolist())
    left = replace(file, selection=Selection.of(BitMap(range(file.row_count)) - gone, False))
    ranges = FileRanges(plan.order[0], plan.schema, plan.schemas, scan._core.state.paths)
    rounds = topn_rounds.BestFirst(scan._core.store, left, ranges, plan.schemas, 5, True, plan.metrics)
    seen = BitMap()
    survivors = 0
    while (rows := rounds.take(None, survivors)) is not None:
        assert not rows & (seen | gone)
        seen |= rows
        survivors += 1
    assert seen == left.selection.rows
