"""Queries as people write them, read for what they ask of a table; and advice by them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.tree import And, Comparison, has_computed
from bitlake.sql.text import TableName
from bitlake.sql.workload import read_workload
from bitlake.types import DataField, from_arrow


def fields(**columns: pa.DataType) -> tuple[DataField, ...]:
    return tuple(DataField(n, name, from_arrow(kind)) for n, (name, kind) in enumerate(columns.items()))


ORDERS = fields(id=pa.int64(), status=pa.string(), amount=pa.float64())
OTHER = fields(id=pa.int64(), k=pa.int64())


def resolve(name: TableName) -> Sequence[DataField] | None:
    return {"orders": ORDERS, "other": OTHER}.get(name.table.lower())


def read(*texts: str) -> list[tuple[Any, tuple[str, ...] | None]]:
    return [(q.where, q.columns) for q in read_workload(texts, ORDERS, resolve, "UTC").queries]


def test_conditions_and_columns_are_found_in_queries() -> None:
    ((where, columns),) = read("SELECT id FROM orders WHERE status = 'NEW' AND amount > 3")
    assert isinstance(where, And) and {c.column for c in where.children if isinstance(c, Comparison)} == {
        "status",
        "amount",
    }
    assert columns is not None and set(columns) == {"id", "status", "amount"}
    ((where, _),) = read("select o.* from other x join Orders o on o.id = x.id where o.status = 'A' and x.k = 1")
    assert isinstance(where, Comparison) and where.column == "status"


def test_odd_texts_are_counted_and_none_fails() -> None:
    texts = [
        "SELECT * FROM orders WHERE status = 'a;b' ; -- a comment; with a semicolon\n SELECT 1;;",
        "WITH big AS (SELECT * FROM orders WHERE amount > 9) SELECT count(*) FROM big",
        "(SELECT id FROM orders WHERE id = 1) UNION ALL (SELECT id FROM orders WHERE id = 2)",
        "(status = 'NEW' OR amount > 3)",
        "status = 'NEW'",
        "DELETE FROM orders WHERE id = 3; INSERT INTO orders VALUES (1, 'x', 2.0)",
        "CALL sys.compact(table => 'orders')",
        "EXPLAIN SELECT * FROM orders",
        "SELECT * FROM other WHERE k = 1",
        "SELECT * FROM nowhere",
        "SELECT 'never closed FROM orders",
        "",
        "   ;  ",
        "SELECT FROM WHERE ((((",
        "FROM orders |> WHERE id = 5 |> SELECT id",
        "SELECT * FROM orders VERSION AS OF 3 WHERE id = 1",
        "\ufeffSELECT * FROM orders WHERE id = 7",
        "🙂",
        "SELECT * FROM orders WHERE " + " OR ".join(f"id = {n}" for n in range(3000)),
    ]
    found = read_workload(texts, ORDERS, resolve, "UTC")
    assert len(found.queries) >= 7
    assert found.elsewhere >= 2 and found.no_queries >= 3
    assert any("never closed" in text for text in found.unread)


def test_functions_of_queries_are_asked_about() -> None:
    ((where, _),) = read("SELECT id FROM orders WHERE id = 1 AND lower(status) = 'new' AND my_function(status) > 3")
    assert isinstance(where, And) and [has_computed(c) for c in where.children] == [False, True]
    ((where, _),) = read("SELECT id FROM orders WHERE status LIKE '%x%' OR lower(status) = 'y'")
    assert where is not None and has_computed(where)
    ((where, _),) = read("SELECT id FROM orders WHERE my_function(status) > 3")
    assert where is None


def test_a_lake_takes_queries_of_its_tables(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path)
    random = np.random.default_rng(1)
    rows = pa.table(
        {"id": random.integers(0, 90_000, 250_000), "note": [random.bytes(16).hex() for _ in range(250_000)]}
    )
    lake.create_table("orders", rows.schema).append(rows)
    advice = lake.advise(
        "orders",
        ["SELECT * FROM orders WHERE id = 17; SELECT count(*) FROM orders; SELECT * FROM gone WHERE x = 1", "id = = 3"],
    )
    by_name = {c.column: c for c in advice.columns}
    assert by_name["id"].action == "add"
    assert by_name["note"].reason == "no query asks about it"
    assert [q.question.text for q in advice.questions] == ["id = 17"]
    notes = "\n".join(advice.notes)
    assert "not understood" in notes and "of other tables" in notes and "without a condition" in notes
    assert lake.advise("orders", sample=50_000).asked == "typical questions"
    assert lake.advise("orders", recorded=True).questions == ()
    with pytest.raises(InvalidRequest, match="a list of texts"):
        lake.advise("orders", "SELECT 1")  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        lake.advise("nowhere")
