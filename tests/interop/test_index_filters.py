"""Paimon's own filters through indexes that bitlake wrote.

Java pushes a filter down and does not apply it again, so what it returns shows what our index said: with a bitmap
exactly the matches, with a bloom filter every match, and no file whose filter knows better.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from interop.every_type import ATOMIC, BITMAP_COLUMNS, BLOOM_COLUMNS, atomic_rows
from interop.rows import comparable, rows_of, same_rows

import bitlake
from bitlake.fileindex.registry import INDEX_TYPES
from bitlake.types import from_arrow

pytestmark = pytest.mark.interop

Rows = list[tuple[Any, ...]]
PLACES = {"embedded": "100 mb", "separate": "1 b"}


def write(warehouse: Path, options: dict[str, str], parts: list[pa.Table]) -> Rows:
    lake = bitlake.connect(str(warehouse))
    lake.create_database("db")
    table = lake.create_table("db.t", parts[0].schema, partition_by=[], options=options)
    for part in parts:
        table.append(part)
    return [r for part in parts for r in rows_of(part)]


def values_of(rows: Rows, column: str) -> list[Any]:
    """The distinct values of a column but NULL and NaN (which Paimon's literals cannot say)."""
    at = ATOMIC.get_field_index(column)
    found = {comparable(r[at]): r[at] for r in rows}
    return [v for v in found.values() if v is not None and not (isinstance(v, float) and math.isnan(v))]


def matching(rows: Rows, column: str, value: Any) -> Rows:
    at = ATOMIC.get_field_index(column)
    # As bytes, not as SQL: Paimon tells -0.0 from 0.0 in an index.
    return [r for r in rows if comparable(r[at]) == comparable(value)]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("version", ["1", "2"])
def test_bitmaps_return_exactly_the_matches(tmp_path: Path, java: ModuleType, version: str, place: str) -> None:
    options = {
        "file-index.bitmap.columns": ",".join(BITMAP_COLUMNS),
        "file-index.in-manifest-threshold": PLACES[place],
    } | {f"file-index.bitmap.{c}.version": version for c in BITMAP_COLUMNS}
    rows = write(tmp_path, options, [atomic_rows(150, seed=1), atomic_rows(80, seed=2)])
    for column in BITMAP_COLUMNS:
        at = ATOMIC.get_field_index(column)
        for value in values_of(rows, column):
            if value == 0 and isinstance(value, float):
                continue  # Parquet's statistics and Java's disagree about -0.0 = 0.0; tests/fileindex holds ours
            same_rows(java.dump(tmp_path, "db.t", **{column: value}), matching(rows, column, value))
        nulls = [r for r in rows if r[at] is None]
        same_rows(java.read(tmp_path, "db.t", [(column, "isnull", [])]).rows, nulls)
        rest = [r for r in rows if r[at] is not None]
        same_rows(java.read(tmp_path, "db.t", [(column, "notnull", [])]).rows, rest)


def test_bitmaps_answer_in_and_and(tmp_path: Path, java: ModuleType) -> None:
    rows = write(tmp_path, {"file-index.bitmap.columns": ",".join(BITMAP_COLUMNS)}, [atomic_rows(200)])
    some = values_of(rows, "c_str")[:4]
    s, b = ATOMIC.get_field_index("c_str"), ATOMIC.get_field_index("c_bool")
    same_rows(java.read(tmp_path, "db.t", [("c_str", "in", some)]).rows, [r for r in rows if r[s] in some])
    answer = java.read(tmp_path, "db.t", [("c_str", "in", some), ("c_bool", "=", [True])])
    same_rows(answer.rows, [r for r in rows if r[s] in some and r[b]])


def test_bitmap_v2_of_many_blocks(tmp_path: Path, java: ModuleType) -> None:
    """Small blocks make Java search the block dictionary; 3,000 distinct strings, one row each, and some of many."""
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    texts = [f"key-{i:05d}" for i in range(3000)] + ["often"] * 500 + [None] * 100
    rows = pa.table([pa.array(range(len(texts))), pa.array(texts)], schema=schema)
    options = {"file-index.bitmap.columns": "s", "file-index.bitmap.s.index-block-size": "512 b"}
    write(tmp_path, options, [rows])
    for text in ["key-00000", "key-01234", "key-02999", "often"]:
        want = [r for r in rows_of(rows) if r[1] == text]
        same_rows(java.dump(tmp_path, "db.t", s=text), want)
    assert java.dump(tmp_path, "db.t", s="key-01234x") == []


@pytest.mark.parametrize("place", PLACES)
def test_blooms_lose_no_match_and_skip_files(tmp_path: Path, java: ModuleType, place: str) -> None:
    options = {
        "file-index.bloom-filter.columns": ",".join(BLOOM_COLUMNS),
        "file-index.in-manifest-threshold": PLACES[place],
    }
    rows = write(tmp_path, options, [atomic_rows(150, seed=1), atomic_rows(80, seed=2)])
    for column in BLOOM_COLUMNS:
        for value in values_of(rows, column):
            if value == 0 and isinstance(value, float):
                continue
            found = {repr(r) for r in java.dump(tmp_path, "db.t", **{column: value})}
            assert {repr(r) for r in matching(rows, column, value)} <= found, (column, value)
    # Between a file's smallest and largest value, so that only the bloom filter can rule it out.
    absent = [f"word-{i}x" for i in range(40)]
    without = sum(bool(java.dump(tmp_path, "db.t", c_str=text)) for text in absent)
    assert without <= 4, f"{without} of {len(absent)} absent values were let through; the rate asked for is 0.1"


def test_pypaimon_filters_the_same_rows(tmp_path: Path, pypaimon: ModuleType) -> None:
    options = {
        "file-index.bitmap.columns": ",".join(BITMAP_COLUMNS),
        "file-index.bloom-filter.columns": ",".join(BLOOM_COLUMNS),
    }
    rows = write(tmp_path, options, [atomic_rows(150, seed=1), atomic_rows(80, seed=2)])
    for column in ("c_int", "c_str", "c_date"):
        for value in values_of(rows, column)[:6]:
            for native in (False, True):
                same_rows(pypaimon.dump(tmp_path, "db.t", native, **{column: value}), matching(rows, column, value))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["range-bitmap", "bsi"])
def test_ordered_indexes_return_exactly_the_matches(tmp_path: Path, java: ModuleType, kind: str, place: str) -> None:
    columns = [f.name for f in ATOMIC if INDEX_TYPES[kind].supports(from_arrow(f.type))]
    if kind == "bsi":
        # They hold the least BIGINT and decimals beyond 64 bits, which this index cannot: such a file goes without.
        columns = [c for c in columns if c not in ("c_big", "c_dec38")]
    options = {f"file-index.{kind}.columns": ",".join(columns), "file-index.in-manifest-threshold": PLACES[place]}
    parts = [atomic_rows(150, seed=1), atomic_rows(80, seed=2)]
    rows = write(tmp_path, options, parts)
    indexed = {
        n for e in bitlake.connect(str(tmp_path)).table("db.t")._core.state().entries() for n in e.file.extra_files
    }
    assert bool(indexed) == (place == "separate")
    for column in columns:
        at = ATOMIC.get_field_index(column)
        for value in values_of(rows, column)[:12]:
            if value == 0 and isinstance(value, float):
                continue  # as above
            same_rows(java.dump(tmp_path, "db.t", **{column: value}), matching(rows, column, value))
        same_rows(java.read(tmp_path, "db.t", [(column, "isnull", [])]).rows, [r for r in rows if r[at] is None])
        same_rows(java.read(tmp_path, "db.t", [(column, "notnull", [])]).rows, [r for r in rows if r[at] is not None])
    for column in ("c_int", "c_small"):
        at = ATOMIC.get_field_index(column)
        for value in values_of(rows, column)[:6]:
            below = [r for r in rows if r[at] is not None and r[at] < value]
            same_rows(java.read(tmp_path, "db.t", [(column, "<", [value])]).rows, below)


def test_paimon_goes_on_with_files_of_keys_that_got_indexes_later(tmp_path: Path, java: ModuleType) -> None:
    """It filters by an index built beside a file of keys, merges such files, and what it makes of them is sound."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("city", pa.string())])
    lake = bitlake.connect(str(tmp_path))
    lake.create_database("db")
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    table = lake.create_table("db.t", schema, primary_key=["id"], options=options)
    for first in (0, 300):
        table.upsert(pa.table({"id": range(first, first + 600), "city": [f"city{i % 40}" for i in range(600)]}))
    table.maintenance.compact(full=True)
    table.alter_options({"file-index.bitmap.columns": "city", "file-index.in-manifest-threshold": "1 b"})
    table.indexes.rebuild()
    rows = rows_of(table.scan().to_arrow())
    same_rows(java.dump(tmp_path, "db.t", city="city7"), [r for r in rows if r[1] == "city7"])
    java.write(tmp_path, "db.t", [("+I", (5, "from java"))], full=True)
    assert table.maintenance.verify().ok
    same_rows(rows_of(table.scan().to_arrow()), [r for r in rows if r[0] != 5] + [(5, "from java")])
