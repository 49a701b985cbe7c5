"""The statements of Paimon's page on file indexes: AND and OR without brackets, and TOPN with a second key, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bitlake

Row = dict[str, Any]
DAY = "20250801"
FILES = 4
PER_FILE = 500


def of_file(day: str, file: int) -> pa.Table:
    """Rows of which every file spans all scores and classes, but holds only those that leave its own remainder."""
    chance = np.random.default_rng(file)
    scores = np.concatenate([[0, 104], chance.integers(0, 26, PER_FILE - 2) * 4]) + file
    if file != 0:
        scores = scores[(scores != 100) & (scores != 80)]
    n = len(scores)
    column = lambda low, high: pa.array(chance.integers(low, high, n), pa.int32())  # noqa: E731
    return pa.table(
        {
            "dt": pa.array([day] * n),
            "class_id": column(0, 3),
            "score": pa.array(scores, pa.int32()),
            "col": pa.array(chance.permutation(n), pa.int32()),
        }
    )


TABLES = [of_file(day, i) for day in (DAY, "20250802") for i in range(FILES)]
ROWS: list[Row] = pa.concat_tables(TABLES).to_pylist()
ON_DAY = [r for r in ROWS if r["dt"] == DAY]

Where = Callable[[Row], bool]
PREDICATES: dict[str, Where] = {
    f"dt = '{DAY}' AND score = 100": lambda r: r["dt"] == DAY and r["score"] == 100,
    f"dt = '{DAY}' AND score IN (60, 80)": lambda r: r["dt"] == DAY and r["score"] in (60, 80),
    f"dt = '{DAY}' AND score > 60": lambda r: r["dt"] == DAY and r["score"] > 60,
    f"dt = '{DAY}' AND score < 60": lambda r: r["dt"] == DAY and r["score"] < 60,
    f"dt = '{DAY}' AND class_id = 1 AND score < 60": lambda r: (
        r["dt"] == DAY and r["class_id"] == 1 and r["score"] < 60
    ),
    f"dt = '{DAY}' AND class_id = 1 AND score < 60 OR score > 80": lambda r: (
        (r["dt"] == DAY and r["class_id"] == 1 and r["score"] < 60) or r["score"] > 80
    ),
}
ORDERS: dict[str, list[tuple[str, str]]] = {
    "score ASC": [("score", "asc")],
    "score DESC": [("score", "desc")],
    "score ASC, col DESC": [("score", "asc"), ("col", "desc")],
    "score DESC, col ASC": [("score", "desc"), ("col", "asc")],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("page"))
    table = bitlake.connect(path).create_table(
        "t",
        TABLES[0].schema,
        partition_by=["dt"],
        options={"file-index.range-bitmap.columns": "class_id,score", "file-index.in-manifest-threshold": "1 mb"},
    )
    for rows in TABLES:
        table.append(rows)
    return path


def plain(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted((r["dt"], r["class_id"], r["score"], r["col"]) for r in rows)


def best(order: list[tuple[str, str]]) -> list[tuple[Any, ...]]:
    """The first ten rows' sort keys: rows that share all keys may come in any order."""
    rows = sorted(ON_DAY, key=lambda r: tuple(r[c] if way == "asc" else -r[c] for c, way in order))
    return [tuple(r[c] for c, _ in order) for r in rows[:10]]


@pytest.mark.parametrize("condition", PREDICATES)
def test_the_index_chooses_just_the_rows(root: str, condition: str) -> None:
    wanted = [r for r in ROWS if PREDICATES[condition](r)]
    # No index has the partition's column: below OR, it may be any.
    chosen = wanted if " OR " not in condition else [r for r in ROWS if PREDICATES[condition]({**r, "dt": DAY})]
    scan = bitlake.connect(root).table("t").scan(where=condition)
    plan = scan.plan()
    assert plan.files and sum(f.chosen_rows for f in plan.files) == len(chosen)
    assert all("range-bitmap(score)" in f.pruned_by for f in plan.files)
    assert ("class_id" in condition) == any("range-bitmap(class_id)" in f.pruned_by for f in plan.files)
    if condition.endswith("= 100") or "IN" in condition:
        assert len(plan.files) == 1  # the others span the values but do not hold them
    assert {f.partition for f in plan.files} == ({(DAY,), ("20250802",)} if " OR " in condition else {(DAY,)})
    assert plain(scan.to_arrow().to_pylist()) == plain(wanted)


@pytest.mark.parametrize("text", ORDERS)
def test_the_index_chooses_the_best_rows(root: str, text: str) -> None:
    order = ORDERS[text]
    scan = bitlake.connect(root).table("t").scan(where=f"dt = '{DAY}'").top_n(order, 10)
    found = scan.to_arrow().to_pylist()
    assert [tuple(r[c] for c, _ in order) for r in found] == best(order)
    plan = scan.plan()
    # With a second key, all rows that share the last chosen value of the first one are candidates.
    assert sum(f.chosen_rows for f in plan.files) < len(ON_DAY) // 5
    assert set(plain(found)) <= set(plain(ON_DAY))


@pytest.mark.spark
def test_the_statements_on_spark(root: str, spark: Any) -> None:
    lake = bitlake.connect(root, spark=spark)
    for condition, where in PREDICATES.items():
        found = [tuple(r) for r in lake.sql(f"SELECT * FROM t WHERE {condition}").collect()]
        wanted = sorted((r["class_id"], r["col"], r["dt"], r["score"]) for r in ROWS if where(r))
        names = lake.table("t").schema.field_names
        assert sorted(tuple(r[names.index(c)] for c in ("class_id", "col", "dt", "score")) for r in found) == wanted
    for text, order in ORDERS.items():
        rows = lake.sql(f"SELECT * FROM t WHERE dt = '{DAY}' ORDER BY {text} LIMIT 10").collect()
        assert [tuple(r[c] for c, _ in order) for r in rows] == best(order)
