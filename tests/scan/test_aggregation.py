"""Aggregates of groups from indexes, metadata and rows, against counting the rows in Python."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import full, long

import bitlake
from bitlake.errors import EvaluationFailed, InvalidRequest, NotFound
from bitlake.fileindex.bsi import BsiReader

TYPES = {
    "grp": pa.string(),
    "code": pa.int16(),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "i": pa.int32(),
    "big": pa.int64(),
    "money": pa.decimal128(9, 2),
    "fine": pa.decimal128(18, 4),
    "wide": pa.decimal128(30, 3),
    "f": pa.float64(),
    "ts": pa.timestamp("us"),
}
INDEXES = [
    {"bitmap": "grp,code,flag,day", "bsi": "i,big,money,fine,ts"},
    {"bitmap": "grp,flag,i", "range-bitmap": "code,day,big,money,fine,ts"},
    {"range-bitmap": "grp,code,flag,day,i,big,money,ts"},
    {"bitmap": "grp,code,big", "bsi": "i,money"},
]
YEAR = "trunc(day, 'YEAR')"
KEYS = ["grp", "code", "flag", "day"]
TERMS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "month(day)": lambda r: None if r["day"] is None else r["day"].month,
    YEAR: lambda r: None if r["day"] is None else r["day"].replace(month=1, day=1),
    "code % 3": lambda r: None if r["code"] is None else (abs(r["code"]) % 3) * (-1 if r["code"] < 0 else 1),
    "upper(grp)": lambda r: None if r["grp"] is None else r["grp"].upper(),
}
CONDITIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "": lambda r: True,
    "grp = 'x'": lambda r: r["grp"] == "x",
    "grp <> 'x' AND code >= 0": lambda r: r["grp"] not in ("x", None) and r["code"] is not None and r["code"] >= 0,
    "flag IS NULL OR code IN (1, 2)": lambda r: r["flag"] is None or r["code"] in (1, 2),
    "i > 10": lambda r: r["i"] is not None and r["i"] > 10,
    "grp = 'nope'": lambda r: False,
}
KINDS = ["count", "count_distinct", "sum", "avg", "min", "max"]


def value(rng: random.Random, name: str, few: bool) -> Any:
    """A value of a column: NULL, an end of its range, or one of few or of many."""
    if rng.random() < 0.15:
        return None
    ends = rng.random() < 0.05
    match name:
        case "grp":
            return rng.choice(["x", "X", "y", "zz", ""])
        case "code":
            return rng.choice([-32768, 32767]) if ends else rng.randint(-4, 4)
        case "flag":
            return rng.random() < 0.5
        case "day":
            days = rng.randrange(500 if few else 60)
            return dt.date(1950, 1, 1) if ends else dt.date(2023, 12, 1) + dt.timedelta(days)
        case "i":
            return rng.choice([-(2**31), 2**31 - 1]) if ends else rng.randint(-20, 20 if few else 10**6)
        case "big":
            most = 3 if few else 10**12
            return rng.choice([-(2**52), 2**52]) if ends else rng.randint(-most, most)
        case "money" | "fine" | "wide":
            kind = TYPES[name]
            most = 10**kind.precision - 1 if ends else 500 if few else 10**6
            return Decimal(f"{rng.choice([-most, most]) if ends else rng.randint(-most, most)}E-{kind.scale}")
        case "f":
            return rng.choice([0.0, -0.0, 1.5, -2.25, 1e6])
    micros = rng.randrange(10**7)
    return dt.datetime(1965, 5, 5) if ends else dt.datetime(2024, 1, 1) + dt.timedelta(microseconds=micros)


def options_of(indexes: dict[str, str]) -> dict[str, str]:
    return {f"file-index.{kind}.columns": columns for kind, columns in indexes.items()}


def random_table(lake: bitlake.Lake, rng: random.Random) -> bitlake.Table:
    """A table of a few files: some without index, evolved, with deleted rows, or of rows that are merged by key."""
    keyed = rng.random() < 0.3
    evolved = rng.random() < 0.4
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *TYPES.items()])
    first = schema
    if evolved:  # widened, and added
        first = schema.set(schema.get_field_index("big"), pa.field("big", pa.int32()))
        first = first.remove(first.get_field_index("fine"))
    options = options_of(rng.choice(INDEXES)) if not evolved else {"file-index.bitmap.columns": "grp,code"}
    if keyed:
        options |= {"bucket": "1", "deletion-vectors.enabled": str(rng.random() < 0.7).lower()}
    elif rng.random() < 0.5:
        options["deletion-vectors.enabled"] = "true"
    options["file-index.in-manifest-threshold"] = rng.choice(["1 b", "1 mb"])
    table = lake.create_table("t", first, options=options, **({"primary_key": ["id"]} if keyed else {}))
    few, at = rng.random() < 0.5, 0
    for number in range(rng.randint(1, 4)):
        size = rng.choice([1, 20, 200])
        rows = [{"id": at + i, **{n: value(rng, n, few) for n in TYPES}} for i in range(size)]
        if number == 0:
            rows = [{**r, "big": r["big"] and max(-(2**31), min(r["big"], 2**31 - 1))} for r in rows]
            table.append(pa.Table.from_pylist(rows, first))
            if evolved:
                table.alter_column("big", type="BIGINT")
                table.add_column("fine", "DECIMAL(18, 4)")
            if rng.random() < 0.7:
                table.alter_options(options_of(rng.choice(INDEXES)))
        else:
            table.append(pa.Table.from_pylist(rows, schema))
        at += size - (size // 3 if keyed else 0)
        table = lake.table("t")
    if rng.random() < 0.4:
        table.delete("code = 2 OR id % 7 = 3")
    return lake.table("t")


def expected(kind: str, values: list[Any], column: pa.DataType) -> Any:
    present = [v + 0.0 if isinstance(v, float) else v for v in values if v is not None]
    match kind:
        case "count":
            return len(present)
        case "count_distinct":
            return len(set(present))
    if not present:
        return None
    if kind in ("min", "max"):
        return (min if kind == "min" else max)(present)
    with localcontext(prec=200):
        if kind == "sum" or not pa.types.is_decimal(column):
            return sum(present) if kind == "sum" else sum(present) / len(present)
        quotient = (sum(present) / len(present)).quantize(Decimal(1).scaleb(-38), ROUND_HALF_UP)
        return quotient.quantize(Decimal(1).scaleb(-min(column.scale + 4, 38)), ROUND_HALF_UP)


def same(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 1e-9 * max(abs(a), abs(b)))


def check(table: bitlake.Table, rows: list[dict[str, Any]], rng: random.Random) -> dict[str, int]:
    """One random aggregate against the rows; how its files were answered."""
    condition = rng.choice(list(CONDITIONS))
    items = rng.choice([[], [rng.choice(KEYS)], [rng.choice(KEYS)], rng.sample([*KEYS, *TERMS], 2)])
    asked = {c: rng.sample(KINDS, rng.randint(1, 3)) for c in rng.sample(list(TYPES), rng.randint(1, 3))}
    asked = {c: [k for k in kinds if k not in ("sum", "avg") or is_number(c)] for c, kinds in asked.items()}
    scan = table.scan(where=condition) if condition else table.scan()
    answer = scan.aggregate({"*": "count", **asked}, group_by=items)
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {} if items else {(): []}
    for row in rows:
        if CONDITIONS[condition](row):
            key = tuple(TERMS[k](row) if k in TERMS else row[k] for k in items)
            groups.setdefault(key, []).append(row)
    by_key = {tuple(r[k] for k in items): r for r in answer.to_pylist()}
    assert by_key.keys() == groups.keys() and len(by_key) == answer.num_rows, (condition, items)
    for key, members in groups.items():
        assert by_key[key]["count"] == len(members)
        for column, kinds in asked.items():
            for kind in kinds:
                exact = expected(kind, [r[column] for r in members], TYPES[column])
                assert same(by_key[key][f"{column}_{kind}"], exact), (condition, items, key, column, kind)
    return dict(scan.plan().metrics.answered_by)


def is_number(column: str) -> bool:
    kind = TYPES[column]
    return pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [*range(4), *(long(seed) for seed in range(4, full(34, 206)))])
def test_random_aggregates(tmp_path: Path, seed: int) -> None:
    """50 aggregates of a random table: `make full-counts` makes that 10,300."""
    rng = random.Random(seed)
    table = random_table(bitlake.connect(str(tmp_path)), rng)
    rows = table.scan().to_arrow().to_pylist()
    for _ in range(50):
        check(table, rows, rng)


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(str(tmp_path / "lake"))


def indexed(lake: bitlake.Lake, name: str, seed: int, **options: str) -> tuple[bitlake.Table, list[dict[str, Any]]]:
    """A table of two files with every column indexed for its aggregates."""
    rng = random.Random(seed)
    columns = [n for n in TYPES if n not in ("wide", "f")]
    schema = pa.schema([(n, TYPES[n]) for n in columns])
    table = lake.create_table(name, schema, options=options_of(INDEXES[0]) | options)
    for size in (300, 40):
        table.append(pa.Table.from_pylist([{n: value(rng, n, True) for n in columns} for _ in range(size)], schema))
    return table, table.scan().to_arrow().to_pylist()


def without_data(table: bitlake.Table) -> bitlake.Table:
    for path in Path(table.path).rglob("*.parquet"):
        path.unlink()
    return table


@pytest.mark.parametrize("deleted", [False, True])
def test_no_data_file_is_opened(lake: bitlake.Lake, deleted: bool) -> None:
    table, rows = indexed(lake, "t", 5, **{"deletion-vectors.enabled": str(deleted).lower()})
    if deleted:
        assert table.delete("code = 1") > 0
        table = lake.table("t")
        rows = [r for r in rows if r["code"] != 1]
        assert all(f.deleted for f in table.scan().plan().files)
    scan = without_data(table).scan(where="grp <> 'y' AND i < 15")
    answer = scan.aggregate(
        {"*": "count", "money": ["sum", "avg"], "ts": ["min", "max"], "i": "sum", "day": "count_distinct"},
        group_by=["flag", YEAR],
    )
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        if row["grp"] not in ("y", None) and row["i"] is not None and row["i"] < 15:
            groups.setdefault((row["flag"], TERMS[YEAR](row)), []).append(row)
    assert {(r["flag"], r[YEAR]) for r in answer.to_pylist()} == groups.keys()
    for row in answer.to_pylist():
        members = groups[row["flag"], row[YEAR]]
        assert row["count"] == len(members)
        for column, kind in (("money", "sum"), ("money", "avg"), ("ts", "min"), ("ts", "max"), ("i", "sum")):
            assert row[f"{column}_{kind}"] == expected(kind, [r[column] for r in members], TYPES[column])
        assert row["day_count_distinct"] == len({r["day"] for r in members} - {None})
    assert scan.plan().metrics.answered_by == {"index": 2}
    assert answer.schema.field("money_sum").type == pa.decimal128(19, 2)
    assert answer.schema.field("money_avg").type == pa.decimal128(13, 6)
    assert answer.schema.field("i_sum").type == pa.int64()


def test_aggregates_of_the_same_rows_are_kept(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of({"bitmap": "id,grp", "bsi": "v"}) | {"deletion-vectors.enabled": "true"}
    rows = pa.table({"id": range(8), "grp": ["x", "y"] * 4, "v": [1, 2, 4, 8, 16, 32, 64, 128]})
    table = lake.create_table("t", rows.schema, options=options)
    table.append(rows)
    summed: list[int] = []
    sums = BsiReader.sums
    monkeypatch.setattr(BsiReader, "sums", lambda self, groups: summed.append(len(groups)) or sums(self, groups))

    def totals(where: str | None) -> dict[str, int]:
        scan = lake.table("t").scan(where=where)
        answer = scan.aggregate({"v": "sum"}, group_by=["grp"])
        assert scan.plan().metrics.answered_by == {"index": 1}
        return dict(zip(*(c.to_pylist() for c in answer.columns), strict=True))

    assert totals(None) == totals(None) == {"x": 85, "y": 170}
    assert summed == [2]
    # The same number of rows, with the same first and last one.
    for _ in range(2):
        assert totals("id IN (0, 1, 7)") == {"x": 1, "y": 130}
        assert totals("id IN (0, 2, 7)") == {"x": 5, "y": 128}
    assert len(summed) == 5
    lake.table("t").delete("id = 2")
    assert totals(None) == totals(None) == {"x": 81, "y": 170}
    assert totals("id IN (0, 2, 7)") == {"x": 1, "y": 128}
    lake.table("t").rename_column("v", "w")
    lake.table("t").add_column("v", "BIGINT")
    assert lake.table("t").scan().aggregate({"v": "sum"}, group_by=["grp"])["v_sum"].to_pylist() == [None, None]


def test_a_file_without_index_is_read(lake: bitlake.Lake) -> None:
    table, rows = indexed(lake, "t", 6)
    table.alter_options(unset=[f"file-index.{kind}.columns" for kind in INDEXES[0]])
    more = pa.Table.from_pylist(rows[:50], table.arrow_schema)
    lake.table("t").append(more)
    scan = lake.table("t").scan()
    answer = scan.aggregate({"big": "sum"}, group_by=["grp"])
    totals: dict[Any, int] = {}
    for row in [*rows, *rows[:50]]:
        totals[row["grp"]] = totals.get(row["grp"], 0) + (row["big"] or 0)
    assert {r["grp"]: r["big_sum"] or 0 for r in answer.to_pylist()} == totals
    assert scan.plan().metrics.answered_by == {"index": 2, "data": 1}


def test_one_value_in_a_file_needs_no_index(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", pa.schema([("p", pa.string()), ("n", pa.int32())]), partition_by=["p"])
    for p, n in (("a", 7), ("b", -3), ("a", 5)):
        table.append(pa.table({"p": [p] * 4, "n": pa.array([n] * 4, pa.int32())}))
    scan = without_data(table).scan()
    answer = scan.aggregate({"n": ["sum", "avg", "min"]}, group_by=["p"]).to_pylist()
    assert sorted(answer, key=lambda r: r["p"]) == [
        {"p": "a", "n_sum": 48, "n_avg": 6.0, "n_min": 5},
        {"p": "b", "n_sum": -12, "n_avg": -3.0, "n_min": -3},
    ]
    assert scan.plan().metrics.answered_by == {"metadata": 3}


def test_sums_beyond_their_type(lake: bitlake.Lake) -> None:
    """Partial sums may leave 64 bits, and the result may not."""
    table = lake.create_table("t", pa.schema([("n", pa.int64())]), options={"file-index.bsi.columns": "n"})
    table.append(pa.table({"n": [2**63 - 1, 2**63 - 1, 5]}))
    with pytest.raises(EvaluationFailed, match="sum of column 'n' overflows BIGINT"):
        table.scan().aggregate({"n": "sum"})
    assert table.scan().aggregate({"n": "avg"}).to_pylist() == [{"n_avg": (2**64 + 3) / 3}]
    table.append(pa.table({"n": [-(2**63) + 1, -(2**63) + 1]}))
    assert without_data(lake.table("t")).scan().aggregate({"n": "sum"}).to_pylist() == [{"n_sum": 5}]


def test_an_empty_table(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", pa.schema([("k", pa.string()), ("n", pa.int32())]))
    kinds = {"*": "count", "n": KINDS}
    assert table.scan().aggregate(kinds, group_by=["k"]).num_rows == 0
    assert table.scan().aggregate(kinds).to_pylist() == [
        {"count": 0, "n_count": 0, "n_count_distinct": 0, "n_sum": None, "n_avg": None, "n_min": None, "n_max": None}
    ]


def test_what_cannot_be_aggregated(lake: bitlake.Lake) -> None:
    scan = indexed(lake, "t", 7)[0].scan()
    with pytest.raises(InvalidRequest, match="sum of column 'grp' of type STRING: it takes numbers"):
        scan.aggregate({"grp": "sum"})
    with pytest.raises(InvalidRequest, match="'median' of 'i' is not an aggregate; choose from count, count_distinct"):
        scan.aggregate({"i": "median"})
    with pytest.raises(InvalidRequest, match="'sum' of '\\*' is not an aggregate; choose from count"):
        scan.aggregate({"*": "sum"})
    with pytest.raises(InvalidRequest, match="cannot group by code \\+ i: it takes 2 columns, and a key takes one"):
        scan.aggregate({"*": "count"}, group_by=["code + i"])
    with pytest.raises(NotFound, match="no column 'nope'"):
        scan.aggregate({"i": "sum"}, group_by=["nope"])
    with pytest.raises(InvalidRequest, match="limited"):
        scan.limit(3).aggregate({"i": "sum"})


def test_a_key_of_floats_has_one_zero(lake: bitlake.Lake) -> None:
    table = lake.create_table(
        "t", pa.schema([("f", pa.float64()), ("g", pa.string())]), options={"file-index.bitmap.columns": "f,g"}
    )
    table.append(pa.table({"f": [-0.0, -0.0, 0.0, 1.5], "g": ["x"] * 4}))
    answer = table.scan().aggregate({"*": "count"}, group_by=["f", "g"])
    assert sorted((str(r["f"]), r["count"]) for r in answer.to_pylist()) == [("0.0", 3), ("1.5", 1)]
