"""Indexes of map keys: ``'file-index.bloom-filter.columns' = 'm[a],m[b]'`` prune ``m['a'] = 'x'``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest
from tests.fixtures import warehouse

SCHEMA = pa.schema(
    [("id", pa.int32()), ("m", pa.map_(pa.string(), pa.string())), ("n", pa.map_(pa.string(), pa.int64()))]
)
OPTIONS = {
    "file-index.bloom-filter.columns": "m[a],m[b]",
    "file-index.bloom-filter.m.items": "50",
    "file-index.bloom-filter.m[b].fpp": "0.001",
    "file-index.bitmap.columns": "n[x]",
}


def rows(start: int, count: int = 40) -> list[dict[str, Any]]:
    return [
        {
            "id": i,
            "m": None if i % 7 == 0 else [("a", f"a{i}")] + ([("b", f"b{i % 5}")] if i % 2 else []),
            "n": [("x", i % 3)] if i % 4 else [],
        }
        for i in range(start, start + count)
    ]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    lake = bitlake.connect(str(tmp_path_factory.mktemp("lake")))
    lake.create_database("db")
    made = lake.create_table("db.t", SCHEMA, options=OPTIONS)
    for start in (0, 40, 80):
        made.append(pa.Table.from_pylist(rows(start), SCHEMA))
    return made


@pytest.mark.parametrize(
    ("where", "files", "keep"),
    [
        ("m['a'] = 'a45'", 1, lambda m, n: m.get("a") == "a45"),
        ("m['a'] IN ('a3', 'a100')", 2, lambda m, n: m.get("a") in ("a3", "a100")),
        ("m['b'] = 'none'", 0, lambda m, n: False),
        ("element_at(m, 'a') = 'a1' AND id > 0", 1, lambda m, n: m.get("a") == "a1"),
        ("n['x'] = 2", 3, lambda m, n: n.get("x") == 2),
        ("n['x'] <> 2", 3, lambda m, n: n.get("x") not in (None, 2)),
        ("n['x'] IS NULL", 3, lambda m, n: n.get("x") is None),
        ("m['a'] = 'a45' OR n['x'] = 7", 1, lambda m, n: m.get("a") == "a45"),
        ("m['unindexed'] IS NOT NULL", 3, lambda m, n: False),
    ],
)
def test_pruning_and_answers(table: Any, where: str, files: int, keep: Any) -> None:
    scan = table.scan(where=where)
    assert len(scan.plan().files) == files
    want = [r["id"] for r in rows(0, 120) if keep(dict(r["m"] or []), dict(r["n"] or []))]
    assert scan.to_arrow()["id"].to_pylist() == want
    assert table.scan(where=where).select(["n"]).to_arrow().num_rows == len(want)


def test_exact_rows_come_from_a_bitmap(table: Any) -> None:
    plan = table.scan(where="n['x'] = 2").plan()
    assert plan.chosen_rows == sum(1 for r in rows(0, 120) if dict(r["n"]).get("x") == 2)
    assert all(f.pruned_by == ("bitmap(n[x])",) for f in plan.files)


def test_an_index_of_a_key_needs_a_map_of_texts(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    lake.create_database("db")
    for schema in (pa.schema([("m", pa.string())]), pa.schema([("m", pa.map_(pa.int32(), pa.string()))])):
        with pytest.raises(InvalidRequest, match="m"):
            lake.create_table("db.t", schema, options={"file-index.bitmap.columns": "m[a]"})


def test_the_fixture_of_paimon() -> None:
    table = bitlake.connect(str(warehouse())).table("default.map_key_index")
    for where, files, count in (
        ("m['a'] = 'v1'", 2, 54),
        ("m['b'] = 'w100'", 1, 1),
        ("m['a'] = 'none'", 0, 0),
        ("m['a'] IS NULL", 2, 28),
    ):
        scan = table.scan(where=where)
        assert (len(scan.plan().files), scan.to_arrow().num_rows) == (files, count)
    assert table.scan(where="m['a'] = 'v1'").plan().chosen_rows == 54


def test_an_index_of_a_key_inside_a_struct(tmp_path: Path) -> None:
    kind = pa.struct([("m", SCHEMA.field("n").type)])
    schema = pa.schema([("id", pa.int32()), ("s", kind)])
    table = bitlake.connect(str(tmp_path)).create_table("t", schema)
    table.append(pa.Table.from_pylist([{"id": r["id"], "s": {"m": r["n"]}} for r in rows(0)], schema))
    expected = [r["id"] for r in rows(0) if dict(r["n"]).get("x") == 2]
    assert table.to_arrow(["id"], "s.m['x'] = 2")["id"].to_pylist() == expected
    table.indexes.create("s.m['x']", "bitmap", name="x")
    table.indexes.rebuild()
    for name in ("s", "q"):
        scan = table.scan(["id"], f"{name}.m['x'] = 2")
        assert scan.to_arrow()["id"].to_pylist() == expected and f"{len(expected)} of 40 rows" in str(scan.explain())
        if name == "s":
            table.indexes.drop("x")
            table.rename_column("s", "q")
