"""Lists of thousands of values: each index finds the rows of brute force, and looks at no value by itself."""

from __future__ import annotations

import datetime as dt
import functools
import operator
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import every, exhaustive

import bitlake
from bitlake.expressions import statistics
from bitlake.fileindex import bsi, keyed
from bitlake.fileindex.bitmap import BitmapReader
from bitlake.fileindex.range_bitmap import Dictionary

ROWS, DISTINCT, ASKED = 4_000, 3_000, 2_000
NUMBERS = ("bitmap", "bsi", "range-bitmap", "bloom-filter")
KINDS: dict[str, tuple[str, Any, Sequence[str]]] = {
    "TINYINT": ("int8", lambda n: n % 256 - 128, NUMBERS),
    "BIGINT": ("int64", lambda n: (n - 1_500) * 10**12, NUMBERS),
    "STRING": ("string", lambda n: f"value {n} é", ("bitmap", "range-bitmap", "bloom-filter")),
    "DATE": ("date32", lambda n: dt.date(1965, 1, 1) + dt.timedelta(days=n), NUMBERS),
    "DECIMAL": ("decimal", lambda n: Decimal(n - 1_500) / 100, ("bsi",)),
    "TIMESTAMP": ("us", lambda n: dt.datetime(1999, 12, 31) + dt.timedelta(seconds=37 * n), NUMBERS),
    "DOUBLE": ("double", lambda n: float(n - 1_500) / 8, ("bitmap", "range-bitmap", "bloom-filter")),
}
ARROW = {
    "int8": pa.int8(),
    "int64": pa.int64(),
    "string": pa.string(),
    "date32": pa.date32(),
    "decimal": pa.decimal128(12, 2),
    "us": pa.timestamp("us"),
    "double": pa.float64(),
}
CASES = [(kind, index) for kind, (_, _, indexes) in KINDS.items() for index in indexes]


def one_by_one(*_: Any) -> Any:
    raise AssertionError("the values of a long list are looked up one by one")


@pytest.mark.parametrize(("kind", "index"), CASES)
def test_rows_are_those_of_brute_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, index: str) -> None:
    arrow, value, _ = KINDS[kind]
    chance = random.Random(f"{kind} {index}")
    held = [None if chance.random() < 0.05 else value(chance.randrange(DISTINCT)) for _ in range(ROWS)]
    asked = [value(n) for n in chance.sample(range(-100, DISTINCT + 100), ASKED)]
    schema = pa.schema({"at": pa.int64(), "k": ARROW[arrow]})
    table = bitlake.connect(str(tmp_path)).create_table("t", schema, options={f"file-index.{index}.columns": "k"})
    table.append(pa.table([pa.array(range(ROWS)), pa.array(held, ARROW[arrow])], schema=schema))
    if kind != "TINYINT":  # it has no 512 values
        monkeypatch.setattr(BitmapReader, "_place", one_by_one)
        monkeypatch.setattr(Dictionary, "find", one_by_one)
        monkeypatch.setattr(bsi, "_descend", one_by_one)
    wanted = set(asked)
    column = bitlake.col("k")
    for where, expected in (
        (column.isin(asked), [i for i, v in enumerate(held) if v in wanted]),
        (~column.isin(asked), [i for i, v in enumerate(held) if v is not None and v not in wanted]),
    ):
        scan = table.scan(["at"], where=where)
        assert scan.to_arrow().column("at").to_pylist() == expected
        if index != "bloom-filter":
            assert f"{index}(k)" in scan.explain()


@pytest.mark.parametrize("index", NUMBERS)
def test_lists_without_a_match_leave_no_file(tmp_path: Path, index: str) -> None:
    table = bitlake.connect(str(tmp_path)).create_table(
        "t", pa.schema({"k": pa.int64()}), options={f"file-index.{index}.columns": "k"}
    )
    table.append(pa.table({"k": range(0, 40_000, 20)}))
    where = bitlake.col("k").isin([20 * n + 7 for n in range(1_500)])
    if index == "bloom-filter":  # some of many values seem to be there
        where = bitlake.col("k").isin([7, 27])
    assert "0 of 1 read" in table.scan(where=where).explain()


@pytest.mark.parametrize("index", NUMBERS)
@pytest.mark.parametrize("negated", [False, True])
def test_files_share_the_converted_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str, negated: bool
) -> None:
    table = bitlake.connect(str(tmp_path)).create_table(
        "t", pa.schema({"k": pa.int64()}), options={f"file-index.{index}.columns": "k"}
    )
    for first in range(3):
        table.append(pa.table({"k": range(first, 3_000, 3)}))
    converted: list[str] = []

    def counted(name: str, convert: Any) -> Any:
        def call(*args: Any) -> Any:
            converted.append(name)
            return convert(*args)

        return call

    monkeypatch.setattr(keyed.Keys, "keys_of_all", counted("keys", keyed.Keys.keys_of_all))
    monkeypatch.setattr(statistics, "_literals", counted("literals", statistics._literals))
    asked = range(0, 6_000, 2)
    where = ~bitlake.col("k").isin(asked) if negated else bitlake.col("k").isin(asked)
    assert table.scan(where=where).count() == 1_500
    assert len(converted) == len(set(converted))  # each at most once, not once per file
    assert "literals" in converted and ("keys" in converted) != (negated and index == "bloom-filter")


@pytest.mark.parametrize(("kind", "index"), every(3, [case for case in CASES if case[0] != "TINYINT"]))
@pytest.mark.parametrize("distinct", [exhaustive(40), DISTINCT])
def test_many_ranges_and_pairs_select_the_rows_of_brute_force(
    tmp_path: Path, kind: str, index: str, distinct: int
) -> None:
    arrow, value, _ = KINDS[kind]
    chance = random.Random(f"{kind} {index} {distinct}")
    schema = pa.schema({"at": pa.int64(), "k": ARROW[arrow], "c": pa.int32()})
    table = bitlake.connect(str(tmp_path)).create_table("t", schema, options={f"file-index.{index}.columns": "k"})
    keys, others = [], [chance.randrange(3) for _ in range(2 * ROWS)]
    for first in (0, 5_000):  # few of the ranges meet the second file
        keys += [None if chance.random() < 0.05 else value(first + chance.randrange(distinct)) for _ in range(ROWS)]
        part = slice(len(keys) - ROWS, len(keys))
        rows = [range(part.start, part.stop), pa.array(keys[part], ARROW[arrow]), others[part]]
        table.append(pa.table(rows, schema=schema))
    starts = [*chance.sample(range(0, DISTINCT, 2), 300), 5_010, 5_020]
    k, c = bitlake.col("k"), bitlake.col("c")
    ranges = [(min(ends), max(ends)) for n in starts for ends in [(value(n), value(n + 1))]]
    held = [i for i, v in enumerate(keys) if v is not None and any(low <= v <= high for low, high in ranges)]
    where = functools.reduce(operator.or_, [k.between(low, high) for low, high in ranges])
    assert table.scan(["at"], where=where).to_arrow().column("at").to_pylist() == held
    assert table.scan(where=where).count() == len(held)
    outside = table.scan(["at"], where=~where).to_arrow().column("at").to_pylist()
    assert outside == sorted({i for i, v in enumerate(keys) if v is not None} - set(held))
    pairs = {(value(n), n % 3) for n in starts}
    where = functools.reduce(operator.or_, [(k == one) & (c == other) for one, other in sorted(pairs)])
    expected = [i for i, row in enumerate(zip(keys, others, strict=True)) if row in pairs]
    assert table.scan(["at"], where=where).to_arrow().column("at").to_pylist() == expected
