"""Exact sums, extremes and rows by value, from every index that has them, against the values."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from long import every, some
from pyroaring import BitMap

from bitlake.errors import BitlakeError
from bitlake.fileindex import sums
from bitlake.fileindex.capabilities import RowGrouper, ValueBounds, ValueSummer
from bitlake.fileindex.registry import find_index_type
from bitlake.types import arrow_type, parse_type

BITS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63, "DECIMAL(18, 4)": 59, "DECIMAL(5, 2)": 16}
INDEXES = ["bsi", "range-bitmap", "bitmap"]


def reader_of(index: str, kind: str, column: pa.Array, **options: str) -> tuple[Any, bytes]:
    result, type_ = find_index_type(index), parse_type(kind)
    assert result is not None
    writer = result.writer(type_, options)
    writer.add(column)
    payload = writer.finish()
    return result.reader(type_, lambda at, n: payload[at : at + n], len(payload), len(column)), payload


def column_of(kind: str, values: list[int | None]) -> pa.Array:
    result = arrow_type(parse_type(kind))
    if not pa.types.is_decimal(result):
        return pa.array(values, result)
    return pa.array([None if v is None else Decimal(f"{v}E-{result.scale}") for v in values], result)


def values_of(rng: random.Random, kind: str, rows: int, dense: bool) -> list[int | None]:
    most = min((1 << BITS[kind]) - 1, 40) if dense else (1 << BITS[kind]) - 1
    most = min(most, 10**18 - 1) if "18" in kind else min(most, 10**5 - 1) if "5" in kind else most
    return [None if rng.random() < 0.2 else rng.randint(-most, most) for _ in range(rows)]


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("kind", every(2, BITS))
def test_groups_of_rows(index: str, kind: str) -> None:
    if index == "bitmap" and "DECIMAL" in kind:
        pytest.skip("bitmap takes no decimals")
    rng = random.Random(f"{index} {kind}")
    for rows in (1, 7, 80, 700):
        for dense in (True, False):
            values = values_of(rng, kind, rows, dense)
            labels = [rng.randrange(5) for _ in range(rows)]
            options = {"chunk-size": "64"} if index == "range-bitmap" else {}
            reader, _ = reader_of(index, kind, column_of(kind, values), **options)
            assert isinstance(reader, ValueSummer)
            for groups in ([None], [BitMap(i for i in range(rows) if labels[i] == g) for g in range(5)], []):
                result = reader.sums(groups)
                if result is None:
                    assert index == "bitmap" and len(groups) * rows > 1000
                    continue
                for g, group in enumerate(groups):
                    own = [v for i, v in enumerate(values) if v is not None and (group is None or i in group)]
                    assert (result.counts[g], result.totals[g]) == (len(own), sum(own))
                    assert result.magnitudes[g] >= sum(map(abs, own))
                    if isinstance(reader, ValueBounds):
                        expected = column_of(kind, sorted({min(own), max(own)}) if own else [])
                        assert reader.extremes(group).equals(expected)


@pytest.mark.parametrize("index", ["range-bitmap", "bitmap"])
def test_rows_by_value(index: str) -> None:
    values = [None if i % 7 == 0 else f"v{i % 5}" for i in range(100)]
    reader, _ = reader_of(index, "STRING", pa.array(values))
    assert isinstance(reader, RowGrouper)
    for rows in (None, BitMap(range(0, 100, 3)), BitMap()):
        chosen = range(100) if rows is None else rows
        groups = reader.groups(rows, 10)
        assert groups is not None
        expected = {v: [i for i in chosen if values[i] == v] for v in {values[i] for i in chosen}}
        assert dict(zip(groups.values.to_pylist(), map(list, groups.rows), strict=True)) == expected
    assert reader.groups(None, 4) is None


@pytest.mark.parametrize("index", some(INDEXES, "bsi", "range-bitmap"))
def test_damage_is_an_error_of_ours(index: str) -> None:
    """Of damaged payloads sums and groups raise nothing but what readers of indexes catch."""
    rng = random.Random(4)
    column = column_of("INT", values_of(rng, "INT", 300, False))
    _, payload = reader_of(index, "INT", column, **({"chunk-size": "64"} if index == "range-bitmap" else {}))
    result = find_index_type(index)
    assert result is not None
    refused = 0
    for _ in range(150):
        broken = bytearray(payload)
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        data = bytes(broken[: rng.choice([len(broken), rng.randrange(len(broken))])])
        try:
            reader: Any = result.reader(parse_type("INT"), lambda at, n, d=data: d[at : at + n], len(data), 300)
            reader.sums([None])
            reader.sums([BitMap(range(0, 300, 4)), BitMap(range(1, 300, 4))])
            if isinstance(reader, RowGrouper):
                reader.groups(BitMap(range(200)), 1000)
        except BitlakeError:
            refused += 1
    assert refused > 50


def test_sums_do_not_overflow() -> None:
    numbers = np.array([2**63 - 1] * 5 + [-(2**63)] * 4, np.int64)
    assert sums.of_runs(numbers, np.array([0, 5, 5, 9])) == [5 * (2**63 - 1), 0, -4 * 2**63]
    result = sums.of_counts(np.array([2**63 - 1, -(2**63)], np.int64), [np.array([2**31, 3], np.int64)])
    assert result.totals == [2**31 * (2**63 - 1) - 3 * 2**63]
    assert result.magnitudes == [2**31 * (2**63 - 1) + 3 * 2**63]


def test_the_cheapest_way() -> None:
    rows = 4_000_000
    few = [BitMap(range(g, rows, 5_000)) for g in range(5)]
    assert sums.cheapest(30, [None], rows) is sums.Way.SLICES
    assert sums.cheapest(30, few, rows) is sums.Way.SLICES
    assert sums.cheapest(30, few, rows, by_slices=False) is sums.Way.ROWS
    assert sums.cheapest(30, [None], rows, by_slices=False) is None
    assert sums.cheapest(30, [BitMap([i]) for i in range(4000)], rows) is sums.Way.ROWS
