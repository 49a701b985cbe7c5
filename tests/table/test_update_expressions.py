"""``Table.update(expressions=…)``: new values as SQL over the old rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest, NotFound

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("amount", pa.decimal128(10, 2)),
        ("n", pa.int32()),
        ("status", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("ms")),
    ]
)
ROWS = {
    "id": [1, 2, 3],
    "amount": [Decimal("1.25"), Decimal("-2.00"), None],
    "n": [1, 2**31 - 1, None],
    "status": ["New", "amount * 2", "ß"],
    "day": [dt.date(2026, 1, 31), dt.date(2026, 2, 1), None],
    "at": [dt.datetime(2026, 1, 31, 5), None, None],
}


@pytest.fixture(params=["append", "vectors", "key"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> bitlake.Table:
    lake = bitlake.connect(str(tmp_path / "lake"))
    options = {"vectors": {"deletion-vectors.enabled": "true"}, "key": {"bucket": "1"}}.get(request.param, {})
    key = ["id"] if request.param == "key" else []
    made = lake.create_table("t", SCHEMA, primary_key=key, options=options)
    made.append(pa.table(ROWS, schema=SCHEMA))
    return made


def rows(table: bitlake.Table, *columns: str) -> list[dict[str, Any]]:
    return sorted(table.to_arrow(["id", *columns]).to_pylist(), key=lambda r: r["id"])


def test_expressions_see_the_old_rows(table: bitlake.Table) -> None:
    new = {"amount": "amount * 2", "status": "upper(status)", "day": "day + INTERVAL 1 MONTH", "n": "length(status)"}
    assert table.update(expressions=new) == 3
    assert [tuple(r.values())[1:] for r in rows(table, "amount", "status", "day", "n")] == [
        (Decimal("2.50"), "NEW", dt.date(2026, 2, 28), 3),
        (Decimal("-4.00"), "AMOUNT * 2", dt.date(2026, 3, 1), 10),
        (None, "SS", None, 1),
    ]


def test_text_among_values_is_a_constant_of_text_and_else_sql(table: bitlake.Table) -> None:
    new = {"status": "amount * 2", "AMOUNT": "amount * 2", "day": "day + INTERVAL 1 DAY"}
    assert table.update(new, "id = 1", expressions={"n": "n - 1"}) == 1
    assert rows(table, "status", "amount", "day", "n")[0] == {
        "id": 1,
        "status": "amount * 2",
        "amount": Decimal("2.50"),
        "day": dt.date(2026, 2, 1),
        "n": 0,
    }
    with pytest.raises(InvalidRequest, match="column 'amount' is set twice"):
        table.update({"amount": "amount * 2"}, expressions={"amount": "amount"})
    with pytest.raises(InvalidRequest, match="column 'day' is DATE"):
        table.update({"day": "2026-01-31"})
    with pytest.raises(NotFound, match="amuont"):
        table.update({"amount": "amuont * 2"})
    with pytest.raises(NotFound, match="amuont"):
        table.update({"amuont": "amount * 2"})


def test_values_are_converted_as_in_spark(table: bitlake.Table) -> None:
    assert table.update(expressions={"amount": "amount * 1.1", "n": "n / 2", "at": "day"}, where="n < 10") == 1
    assert rows(table, "amount", "n", "at")[0] == {
        "id": 1,
        "amount": Decimal("1.38"),  # 1.375, half up
        "n": 0,
        "at": dt.datetime(2026, 1, 31),
    }
    table.update(expressions={"amount": "NULL", "day": "DATE '2026-05-01'"}, where="length(status) = 3")
    assert rows(table, "amount", "day")[0] == {"id": 1, "amount": None, "day": dt.date(2026, 5, 1)}


@pytest.mark.parametrize(
    ("expressions", "error", "message"),
    [
        ({"n": "n + 1"}, InvalidRequest, r"default\.t.*UPDATE: column 'n': \(n \+ 1\): the result overflows INT"),
        ({"n": "status"}, InvalidRequest, "column 'n' is INT and status is STRING"),
        ({"status": "n"}, InvalidRequest, r"write CAST\(n AS …\)"),
        ({"amount": "amount * 100000000000"}, InvalidRequest, "column 'amount'"),
        ({"amount": "amont * 2"}, NotFound, "did you mean 'amount'"),
        ({"amout": "1"}, NotFound, "UPDATE: no column 'amout'; did you mean 'amount'"),
        ({"amount": "amount * "}, InvalidRequest, "line 1"),
        ({"amount": " "}, InvalidRequest, "the expression is empty"),
        ({"amount": "(SELECT 1)"}, InvalidRequest, "a scan cannot evaluate"),
        ({}, InvalidRequest, "no column is set"),
    ],
)
def test_what_does_not_fit_changes_nothing(
    table: bitlake.Table, expressions: dict[str, str], error: type[Exception], message: str
) -> None:
    before = rows(table, *SCHEMA.names[1:])
    with pytest.raises(error, match=message):
        table.update(expressions=expressions)
    assert rows(table, *SCHEMA.names[1:]) == before


def test_a_column_is_set_once(table: bitlake.Table) -> None:
    for other in ("n", "N"):
        with pytest.raises(InvalidRequest, match="set twice"):
            table.update({"n": 1}, expressions={other: "n + 1"})


@pytest.mark.parametrize("key", [[], ["id"]])
def test_lists_and_maps_are_constants(key: list[str], tmp_path: Path) -> None:
    kinds = {"tags": pa.list_(pa.string()), "m": pa.map_(pa.string(), pa.int64())}
    schema = pa.schema([pa.field("id", pa.int64(), False), *kinds.items()])
    table = bitlake.connect(tmp_path).create_table("t", schema, primary_key=key, options={"bucket": 1} if key else {})
    table.append(pa.table({"id": [1, 2], "tags": [None, ["a"]], "m": [None, None]}, schema=schema))
    assert table.update({"tags": ["b"], "m": {"k": 1}}, "id = 2") == 1
    assert rows(table, "tags", "m") == [
        {"id": 1, "tags": None, "m": None},
        {"id": 2, "tags": ["b"], "m": [("k", 1)]},
    ]
    assert table.update({"tags": pa.scalar(["c"], kinds["tags"])}) == 2
    assert [row["tags"] for row in rows(table, "tags")] == [["c"], ["c"]]
