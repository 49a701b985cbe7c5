"""Counts, distinct values and extremes without rows, against counting the rows."""

from __future__ import annotations

import datetime as dt
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from builders import EVERY_TYPE, every_type
from fixtures import expected, warehouse
from hypothesis import given, settings
from hypothesis import strategies as hs
from long import long

import bitlake
from bitlake.errors import InvalidRequest

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("d", pa.decimal128(12, 2)),
        ("flag", pa.bool_()),
        ("ts", pa.timestamp("us")),
        ("grp", pa.string()),
    ]
)
INDEXES = [
    {},
    {"file-index.bitmap.columns": "i,f,s,flag,ts,grp"},
    {"file-index.range-bitmap.columns": "i,f,s,d,flag,ts", "file-index.bitmap.columns": "grp"},
    {"file-index.bsi.columns": "i,d,ts", "file-index.bloom-filter.columns": "s,grp"},
]
CONDITIONS = {
    None: lambda r: True,
    "grp = 'x'": lambda r: r["grp"] == "x",
    "grp <> 'x'": lambda r: r["grp"] not in ("x", None),
    "i NOT IN (0, 1)": lambda r: r["i"] not in (0, 1, None),
    "grp IS NULL OR i > 0": lambda r: r["grp"] is None or (r["i"] is not None and r["i"] > 0),
    "f > 0 AND grp LIKE '%x%'": lambda r: (
        r["f"] is not None and (math.isnan(r["f"]) or r["f"] > 0) and "x" in (r["grp"] or "")
    ),
}


def key(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def extreme(values: list[Any], largest: bool) -> Any:
    if not values:
        return None
    order = {id(v): ((math.isnan(v), v) if isinstance(v, float) else v) for v in values}
    return key((max if largest else min)(values, key=lambda v: order[id(v)]))


def row_values() -> Any:
    return hs.fixed_dictionaries(
        {
            "i": hs.none() | hs.integers(-2, 2),
            "f": hs.none() | hs.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, 1.5]),
            "s": hs.none() | hs.sampled_from(["", "a", "b" * 20, "b" * 20 + "c", "ü"]),
            "d": hs.none() | hs.decimals(-1, 1, places=2),
            "flag": hs.none() | hs.booleans(),
            "ts": hs.none() | hs.sampled_from([dt.datetime(2024, 1, 1), dt.datetime(1950, 1, 1, 0, 0, 0, 1)]),
            "grp": hs.sampled_from(["x", "y", None]),
        }
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("examples", [25, long(60)])
def test_answers_are_those_of_the_rows(tmp_path_factory: Any, examples: int) -> None:
    @settings(max_examples=examples)
    @given(data=hs.data())
    def run(data: Any) -> None:
        check_answers(tmp_path_factory, data)

    run()


def check_answers(tmp_path_factory: Any, data: Any) -> None:
    files = data.draw(hs.lists(hs.lists(row_values(), min_size=1, max_size=8), max_size=3))
    condition = data.draw(hs.sampled_from(list(CONDITIONS)))
    by = data.draw(hs.sampled_from([[], [], ["grp"]]))
    options = {} if by else data.draw(hs.sampled_from(INDEXES))
    folder = tmp_path_factory.mktemp("lake")
    try:
        table = bitlake.connect(str(folder)).create_table("t", SCHEMA, options=options, partition_by=by)
        for rows in files:
            table.append(pa.Table.from_pylist(rows, SCHEMA))
        scan = table.scan() if condition is None else table.scan(where=condition)
        rows = [r for file in files for r in file if CONDITIONS[condition](r)]
        assert scan.count() == len(rows)
        assert scan.exists() == bool(rows)
        for column in SCHEMA.names:
            values = [r[column] for r in rows]
            there = [v for v in values if v is not None]
            assert scan.count(column) == len(there), column
            assert scan.count_distinct(column) == len({key(v) for v in there})
            counted = scan.group_count(column).to_pylist()
            assert {key(r[column]): r["count"] for r in counted} == Counter(map(key, values))
            assert len(counted) == len({key(v) for v in values})
            assert {key(v) for v in scan.distinct(column).to_pylist()} == {key(v) for v in values}
            low, high = scan.min_max(column)
            assert (key(low), key(high)) == (extreme(there, False), extreme(there, True)), column
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(str(tmp_path / "lake"))


def without_data(table: bitlake.Table) -> bitlake.Table:
    """The table with its data files gone: only metadata and indexes are left."""
    for path in Path(table.path).rglob("*.parquet"):
        path.unlink()
    return table


@pytest.mark.parametrize("embedded", [True, False])
def test_no_data_file_is_opened(lake: bitlake.Lake, embedded: bool) -> None:
    rows = pa.table(
        {
            "id": pa.array(range(1000)),
            "status": [None if i % 9 == 0 else f"S{i % 4}" for i in range(1000)],
            "amount": pa.array([i * 7 % 501 for i in range(1000)]),
        }
    )
    options = {"file-index.bitmap.columns": "status", "file-index.range-bitmap.columns": "amount"}
    options["file-index.in-manifest-threshold"] = "1 mb" if embedded else "1 b"
    table = lake.create_table("t", rows.schema, options=options)
    table.append(rows)
    table.append(rows.slice(0, 10))
    table = without_data(table)
    scan = table.scan()
    plain = rows.to_pylist() + rows.to_pylist()[:10]
    assert scan.count() == 1010
    assert scan.count("status") == sum(r["status"] is not None for r in plain)
    assert scan.min_max("id") == (0, 999)
    assert scan.plan().metrics.answered_by == {"metadata": 6}
    some = table.scan(where="status <> 'S1' AND amount >= 100")
    wanted = [r for r in plain if r["status"] not in (None, "S1") and r["amount"] >= 100]
    assert some.count() == len(wanted)
    assert some.count("amount") == len(wanted)
    assert {r["status"]: r["count"] for r in some.group_count("status").to_pylist()} == Counter(
        r["status"] for r in wanted
    )
    assert some.min_max("amount") == (min(r["amount"] for r in wanted), max(r["amount"] for r in wanted))
    assert some.count_distinct("amount") == len({r["amount"] for r in wanted})
    assert some.exists() and not table.scan(where="status = 'S9'").exists()
    assert set(some.plan().metrics.answered_by) <= {"index", "metadata"}


def test_what_needs_data_reads_one_column(lake: bitlake.Lake) -> None:
    rows = every_type()
    table = lake.create_table("t", rows.schema)
    table.append(rows)
    scan = table.scan()
    for field in EVERY_TYPE:
        assert scan.count(field.name) == 3
        if pa.types.is_nested(field.type):
            with pytest.raises(InvalidRequest, match="cannot be grouped"):
                scan.distinct(field.name)
        else:
            assert scan.count_distinct(field.name) == (2 if field.name == "c_bool" else 3)
    with pytest.raises(InvalidRequest, match="limited"):
        scan.limit(1).distinct("c_int")
    assert scan.limit(2).count() == 2 and scan.limit(2).exists() and not scan.limit(0).exists()
    assert scan.plan().metrics.answered_by["data"] > 0


@pytest.mark.exhaustive
def test_paimons_own_tables() -> None:
    """Statistics and indexes that Paimon (Java) wrote tell the same as its rows; deletion vectors and merging too."""
    lake = bitlake.connect(str(warehouse()))
    asked = 0
    for database in lake.databases():
        for name in lake.tables(database):
            table = lake.table(f"{database}.{name}")
            try:
                rows = table.scan().to_arrow()
            except bitlake.BitlakeError:
                continue
            scan = table.scan()
            assert scan.count() == rows.num_rows
            for field in rows.schema:
                values = rows.column(field.name)
                assert scan.count(field.name) == len(values) - values.null_count, (name, field.name)
                if pa.types.is_nested(field.type):
                    continue
                asked += 1
                plain = [key(v) for v in values.to_pylist()]
                counted = scan.group_count(field.name).to_pylist()
                assert {key(r[field.name]): r["count"] for r in counted} == Counter(plain), (name, field.name)
                there = [v for v in values.to_pylist() if v is not None]
                low, high = scan.min_max(field.name)
                assert (key(low), key(high)) == (extreme(there, False), extreme(there, True)), (name, field.name)
                first = scan.select([field.name]).top_n([(field.name, "desc", "last")], 3)
                top = first.to_arrow().column(0).to_pylist()
                order = sorted(there, key=lambda v: (math.isnan(v), v) if isinstance(v, float) else v, reverse=True)
                wanted = [*order, *[None] * values.null_count][:3]
                assert list(map(key, top)) == list(map(key, wanted)), (name, field.name)
    assert asked > 50 and expected()
