"""Conditions as Python values and parameters of SQL text: the same predicates as SQL text, and errors that help."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bitlake
from bitlake import col
from bitlake.errors import EvaluationFailed, InvalidRequest, NotFound
from bitlake.expressions.condition import Condition
from bitlake.expressions.spark_dialect import with_values

NAN = float("nan")
STAMP_MONTH = dt.datetime(2024, 1, 1)
DAY = dt.date(2024, 1, 2)
DAY_STAMP = dt.datetime(2024, 1, 2)
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, None], pa.int64()),
        "s": ["a%b", "ab", "b", None],
        "x": [1.5, float("nan"), None, -0.0],
        "n": pa.array([Decimal("1.50"), Decimal("2.00"), None, Decimal("3.25")], pa.decimal128(9, 2)),
        "day": [DAY, DAY + dt.timedelta(1), None, DAY],
        "m": pa.array([[("k", 1)], [], None, [("k", 2)]], pa.map_(pa.string(), pa.int32())),
        "ts": pa.array([dt.datetime(2024, 1, 1, 1), dt.datetime(2024, 2, 2), None, STAMP_MONTH], pa.timestamp("us")),
    }
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> bitlake.Table:
    """A table that tests only read."""
    return bitlake.connect(tmp_path_factory.mktemp("lake")).create_table("t", ROWS)


@pytest.fixture
def changed(tmp_path: Path) -> bitlake.Table:
    """A table of the test's own."""
    return bitlake.connect(tmp_path / "lake").create_table("t", ROWS)


SAME: list[tuple[Condition, str]] = [
    (col("id") == 2, "id = 2"),
    (col("ID") != 2, "id <> 2"),
    ((col("id") > 1) & (col("id") <= 3), "id > 1 AND id <= 3"),
    ((col("id") < 2) | col("s").is_null(), "id < 2 OR s IS NULL"),
    (~((col("id") >= 2) | (col("s") == "ab")), "NOT (id >= 2 OR s = 'ab')"),
    (~~(col("id") == 2), "id = 2"),
    (col("id").isin([1, 3]), "id IN (1, 3)"),
    (~col("id").isin({1, 3}), "id NOT IN (1, 3)"),
    (col("id").isin([]), "false"),
    (col("id").isin(np.array([1, 2])), "id IN (1, 2)"),
    (col("id").isin(pd.Series([1, 2])), "id IN (1, 2)"),
    (col("id").isin(pl.Series([1, 2])), "id IN (1, 2)"),
    (col("id").isin(pa.array([1, 2])), "id IN (1, 2)"),
    (col("id") == np.int64(2), "id = 2"),
    (col("id") == pa.scalar(2), "id = 2"),
    (col("id").between(2, 3), "id BETWEEN 2 AND 3"),
    (col("s").is_not_null(), "s IS NOT NULL"),
    (col("s").like("a_"), "s LIKE 'a_'"),
    (col("s").like("a!%b", escape="!"), "s LIKE 'a!%b' ESCAPE '!'"),
    (col("s").startswith("a%"), r"s LIKE 'a\\%%'"),
    (col("s").endswith("b"), "s LIKE '%b'"),
    (col("s").contains("%"), r"s LIKE '%\\%%'"),
    (col("x") == NAN, "x = double('nan')"),
    (col("x") > 1, "x > 1"),
    (col("x") == 0, "x = 0"),
    (col("n") == Decimal("1.5"), "n = 1.5"),
    (col("day") >= DAY, "day >= DATE '2024-01-02'"),
    (col("day") > "2024-01-02", "day > '2024-01-02'"),
    (col("m")["k"] == 2, "m['k'] = 2"),
]
WEEK = dt.timedelta(days=7)
SAME_COMPUTED: list[tuple[Condition, str]] = [
    (col("id") == col("x"), "id = x"),
    (col("ID") < col("m")["k"] + 1, "id < m['k'] + 1"),
    (~(col("id") >= col("x")), "NOT (id >= x)"),
    (col("id").between(1, col("x")), "id >= 1 AND id <= x"),
    (col("id") * 2 > 3, "id * 2 > 3"),
    ((2 + col("id")) - (3 - col("id")) == 1, "(2 + id) - (3 - id) = 1"),
    (2 * col("id") % 3 == 1, "2 * id % 3 = 1"),
    (7 % col("id") == 1, "7 % id = 1"),
    (6 / col("id") > col("id") / 2, "6 / id > id / 2"),
    (-col("id") < -1, "-id < -1"),
    (abs(-col("id")) == 2, "abs(-id) = 2"),
    (col("n") + Decimal("0.5") == 2, "n + 0.5 = 2"),
    (col("x") + 0.5 > 1, "x + 0.5D > 1"),
    (col("n").cast("int") == 1, "CAST(n AS INT) = 1"),
    (col("n").cast("Decimal(20, 1)") == Decimal("1.5"), "CAST(n AS DECIMAL(20, 1)) = 1.5"),
    (col("id").cast("string") == "2", "CAST(id AS STRING) = '2'"),
    (
        col("day").cast("timestamp_ntz") == dt.datetime(2024, 1, 2),
        "CAST(day AS TIMESTAMP_NTZ) = TIMESTAMP_NTZ '2024-01-02'",
    ),
    (col("s").upper() == "AB", "upper(s) = 'AB'"),
    (col("s").trim().lower().isin(["ab", "b"]), "lower(trim(s)) IN ('ab', 'b')"),
    (col("s").lower().startswith("a%"), r"lower(s) LIKE 'a\\%%'"),
    (col("s").upper().like("_B"), "upper(s) LIKE '_B'"),
    (col("s").length().between(2, 3), "length(s) BETWEEN 2 AND 3"),
    (col("s").substring(2) == "b", "substring(s, 2) = 'b'"),
    (col("s").substring(-1, 1) == "b", "substring(s, -1, 1) = 'b'"),
    (col("s").coalesce("none") == "none", "coalesce(s, 'none') = 'none'"),
    (col("id").coalesce(col("n").cast("bigint"), 7).is_not_null(), "coalesce(id, CAST(n AS BIGINT), 7) IS NOT NULL"),
    ((col("id") + None).is_null(), "(id + NULL) IS NULL"),
    (col("day").year() == 2024, "year(day) = 2024"),
    ((col("day").month() == 1) & (col("day").day() < 3), "month(day) = 1 AND day(day) < 3"),
    (col("day").cast("timestamp_ntz").hour() == 0, "hour(CAST(day AS TIMESTAMP_NTZ)) = 0"),
    (col("ts").date_trunc("month") == STAMP_MONTH, "date_trunc('MONTH', ts) = TIMESTAMP_NTZ '2024-01-01'"),
    (col("day") + WEEK > dt.date(2024, 1, 9), "day + INTERVAL 7 DAYS > DATE '2024-01-09'"),
    (col("day") - pd.Timedelta(WEEK) < col("day"), "day - INTERVAL 7 DAYS < day"),
    (
        col("ts") - np.timedelta64(90, "m") < STAMP_MONTH,
        "ts - INTERVAL '5400000000' MICROSECOND < TIMESTAMP_NTZ '2024-01-01'",
    ),
]


@pytest.mark.parametrize(("condition", "text"), SAME + SAME_COMPUTED, ids=[text for _, text in SAME + SAME_COMPUTED])
def test_a_condition_is_its_sql(table: bitlake.Table, condition: Condition, text: str) -> None:
    ours, sql = table.scan(where=condition), table.scan(where=text)
    assert repr(ours) == repr(sql)
    assert ours.select(["id", "s", "day"]).to_arrow() == sql.select(["id", "s", "day"]).to_arrow()


@pytest.mark.parametrize(("condition", "text"), SAME_COMPUTED, ids=[text for _, text in SAME_COMPUTED])
def test_a_computed_condition_prints_as_sql_that_means_it(
    table: bitlake.Table, condition: Condition, text: str
) -> None:
    printed = repr(condition).removeprefix("Condition(").removesuffix(")")
    assert table.to_arrow(["id", "s"], printed) == table.to_arrow(["id", "s"], text)


def test_computed_conditions_choose_rows(table: bitlake.Table) -> None:
    assert table.to_arrow(["id"], col("id") * 2 > col("x") + 2)["id"].to_pylist() == []
    assert table.to_arrow(["id"], col("id") + 0.5 >= col("x"))["id"].to_pylist() == [1]
    assert table.to_arrow(["id"], col("s").upper() == "AB")["id"].to_pylist() == [2]
    assert table.to_arrow(["id"], col("day") + WEEK == dt.date(2024, 1, 10))["id"].to_pylist() == [2]
    assert "day >= DATE '2024-01-01'" in repr(table.scan(where=col("day").year() == 2024))  # by which it prunes


def test_update_computes_columns(changed: bitlake.Table) -> None:
    assert changed.update(expressions={"id": col("id") * 10, "s": "upper(s)"}, where=col("id") < 3) == 2
    assert sorted(changed.to_arrow(["id", "s"], "id > 3").to_pylist(), key=str) == [
        {"id": 10, "s": "A%B"},
        {"id": 20, "s": "AB"},
    ]
    with pytest.raises(InvalidRequest, match=r"column 'id' is set to Column\(\(id \* 2\)\), .* `expressions`"):
        changed.update({"id": col("id") * 2})
    wrong: Any
    for wrong in (5, None, col("id") == 1):
        with pytest.raises(
            InvalidRequest, match="the expression of column 'id' is .*; expected SQL text or bitlake.col"
        ):
            changed.update(expressions={"id": wrong})


def test_conditions_delete_and_update(changed: bitlake.Table) -> None:
    assert changed.update({"s": "new"}, col("id") == 1) == 1
    assert changed.count([("s", "==", "new")]) == 1
    assert changed.delete(pc.field("id") == 2) == 1
    assert changed.delete("id = :gone", {"gone": 3}) == 1
    assert changed.update({"s": "x"}, "id = ?", [1]) == 1
    assert changed.scan().where(col("s") == "x").where("id = ?", [1]).count() == 1
    assert set(changed.to_arrow(["id"]).column(0).to_pylist()) == {1, None}


TERMS: list[tuple[Any, str]] = [
    ([("id", "=", 2)], "id = 2"),
    ([("id", "==", 2), ("s", "!=", "x")], "id = 2 AND s <> 'x'"),
    ([("id", "in", [1, 2]), ("s", "NOT IN", ["ab"])], "id IN (1, 2) AND s NOT IN ('ab')"),
    ([[("id", "<", 2)], [("id", ">=", 3), ("s", "=", "b")]], "id < 2 OR id >= 3 AND s = 'b'"),
    ((("id", "<>", 2),), "id <> 2"),
]


@pytest.mark.parametrize(("terms", "text"), TERMS, ids=[text for _, text in TERMS])
def test_terms_are_their_sql(table: bitlake.Table, terms: Any, text: str) -> None:
    assert repr(table.scan(where=terms)) == repr(table.scan(where=text))
    assert table.count(terms) == table.count(text)


def test_moments_of_numpy_and_pandas(changed: bitlake.Table) -> None:
    for moment in (pd.Timestamp(DAY), np.datetime64(DAY), np.datetime64(DAY, "ns"), pa.scalar(DAY)):
        assert changed.count(col("day") == moment) == 2, repr(moment)
    assert changed.count(col("day").isin(np.array([DAY], "datetime64[ns]"))) == 2
    assert changed.count("day = ?", [pa.scalar(DAY)]) == 2
    with pytest.raises(InvalidRequest, match="cannot be a parameter's value: the value is missing"):
        changed.count("day = ?", [pd.NaT])


def test_a_boolean_column_is_a_condition(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "b": [True, False, None]})
    table = bitlake.connect(tmp_path).create_table("t", rows)
    b, later = col("b"), col("id") > 1
    counts = [table.count(c) for c in (b, ~b, b & later, later & ~b, b | later, later | b, b & b)]
    texts = ("b", "NOT b", "b AND id > 1", "id > 1 AND NOT b", "b OR id > 1", "id > 1 OR b", "b AND b")
    assert counts == [table.count(text) for text in texts] == [1, 1, 0, 1, 3, 3, 1]
    assert table.delete(b) == 1 and table.count() == 2
    with pytest.raises(InvalidRequest, match="column 'id' of type BIGINT cannot be compared"):
        table.count(col("id") & later)


def test_an_update_takes_values_of_numpy_and_pandas(changed: bitlake.Table) -> None:
    moment = np.datetime64("2024-05-06T07:08:09.123456")
    for day, stamp in (
        (np.datetime64("2024-05-06"), moment),
        (np.datetime64("2024-05-06", "ns"), moment.astype("datetime64[ns]")),
        (pd.Timestamp("2024-05-06").date(), pd.Timestamp(moment)),
    ):
        changed.update({"day": DAY, "ts": None, "id": 0}, "s = 'b'")
        changed.update({"day": day, "ts": stamp, "id": np.int32(7), "x": np.float32(0.5)}, "s = 'b'")
        (row,) = changed.to_arrow(["day", "ts", "id", "x"], "s = 'b'").to_pylist()
        assert row == {"day": dt.date(2024, 5, 6), "ts": moment.item(), "id": 7, "x": 0.5}
    for missing in (pd.NaT, pd.NA, np.datetime64("NaT", "D"), np.datetime64("NaT", "us"), None):
        changed.update({"ts": DAY_STAMP}, "s = 'b'")
        changed.update({"ts": missing}, "s = 'b'")
        assert changed.to_arrow(["ts"], "s = 'b'")["ts"].to_pylist() == [None]
    for name, wrong in (("day", float("nan")), ("day", Decimal("NaN")), ("ts", np.array([1, 2])), ("s", "\ud800")):
        with pytest.raises(InvalidRequest, match=f"UPDATE: invalid .* value .* for column '{name}'"):
            changed.update({name: wrong}, "s = 'b'")


def test_arrows_errors_are_ours(table: bitlake.Table) -> None:
    with pytest.raises(InvalidRequest, match="is not a condition: its values are of type int64"):
        table.count(pc.field("id") + 1)
    with pytest.raises(EvaluationFailed, match="Arrow cannot evaluate .*divide by zero"):
        table.count(pc.divide(pc.field("id"), 0) == 1)


def test_arrow_expressions_are_their_sql(table: bitlake.Table) -> None:
    expression = (pc.field("id") > 1) & pc.field("s").isin(["ab", "b"])
    assert repr(table.scan(where=expression)) == repr(table.scan(where="id > 1 AND s IN ('ab', 'b')"))
    assert repr(table.scan(where=pc.field("x") <= 1.5)) == repr(table.scan(where="x <= 1.5"))
    # What only Arrow can evaluate joins what prunes.
    some = table.scan(where=(pc.field("x") > 1) & (pc.utf8_length(pc.field("s")) == 3) & (pc.field("id") < 3))
    assert some.count() == 1 and some.to_arrow().column("id").to_pylist() == [1]
    assert "x > 1.0D AND id < 3" in repr(some) and "utf8_length(s)" in repr(some)
    assert table.count(pc.field("x") > 1) == 1 and table.count("x > 1") == 2  # NaN
    assert some.where("id = 2").count() == 0
    with pytest.raises(NotFound, match="no column 'ID': Arrow's expressions name columns by case"):
        table.scan(where=pc.field("ID") == 2)
    with pytest.raises(NotFound, match="no column 'idd'; did you mean 'id'"):
        table.scan(where=pc.field("idd") == 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bool(col("id") == 1), "no truth value"),
        (lambda: (col("id") == 1) and (col("s") == "a"), "no truth value"),
        (lambda: 1 < col("id") < 3, "no truth value"),
        (lambda: col("a") and col("b"), r"col\('a'\) has no truth value; combine conditions with &"),
        (lambda: not col("a"), r"col\('a'\) has no truth value"),
        (lambda: (col("id") == 1) & True, "& takes two conditions, and not True"),
        (lambda: col("id") == None, r"compared with None, .* use is_null\(\)"),  # noqa: E711
        (lambda: col("id").isin([1, None]), r"compared with None, .* use is_null\(\)"),
        (lambda: col("id").isin("ab"), "isin takes a list of values"),
        (lambda: col("id").isin(5), "isin takes a list of values"),
        (lambda: col("id") == (col("s") == "a"), r"compared with Condition\(s = 'a'\); expected a value"),
        (lambda: col("id").isin([col("x")]), r"compared with col\('x'\); expected a value"),
        (lambda: col("id") + (col("s") == "a"), "computed with Condition.*; expected a column or a value"),
        (lambda: col("id") + dt.time(1), "for which Spark SQL has no constant"),
        (lambda: col("id") + pd.NaT, "the value is missing"),
        (lambda: col("id") + [1], "for which Spark SQL has no constant"),
        (lambda: col("id").cast("int3"), "cannot cast to 'int3'; expected a type of Spark SQL"),
        (lambda: col("id").cast("array<int>"), "cannot cast to 'array<int>'"),
        (lambda: col("id").cast(""), "cannot cast to ''"),
        (lambda: col("id").cast(int), "cast takes text, and not <class 'int'>"),
        (lambda: col("s").lower()["k"], "only a map that is a column"),
        (lambda: 1 < col("id") + 1 < 3, "no truth value"),
        (lambda: col("s").like(5), "like takes text, and not 5"),
        (lambda: col(5), "a column is named by text, and not by 5"),
        (lambda: col("m")["k"]["j"], "only a map that is a column"),
        (lambda: col("s").like("b", "xx"), "escape is one character, and not 'xx'"),
        (lambda: col("n") == Decimal("NaN"), "the value is not a finite number"),
        (lambda: col("day") > pd.NaT, "the value is missing"),
        (lambda: col("id") > pd.NA, "the value is missing"),
        (lambda: col("day") > np.datetime64("NaT", "D"), "the value is missing"),
        (lambda: col("id") > 1 & col("x") < 2, "& takes two conditions, and not 1; put each comparison in parentheses"),
        (lambda: col("id") == 1 | (col("x") < 2), r"\| takes two conditions, and not 1; put each comparison"),
        (lambda: (col("id") == 1) & col("x") == 2, "is compared with 2; put each comparison in parentheses"),
        (lambda: col("day") == np.datetime64("2024-01-01T00:00:00.000000001"), "more digits than microseconds"),
        (lambda: col("id") == np.array([1, 2]), "can only convert an array of size 1"),
    ],
)
def test_mistakes_are_named(make: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        make()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ([], "the list of conditions is empty"),
        ([("id", "=")], r"invalid term \('id', '='\) of a condition; expected \(column, operator, value\)"),
        ([("id", "~", 1)], "unknown operator '~'"),
        ([("id", "=", None)], "compared with None"),
        (["id", "=", 1], "invalid term 'id'"),
        (5, r"a condition is SQL text, .* or bitlake.col"),
        ({"id": 1}, "a condition is SQL text"),
    ],
)
def test_a_wrong_condition_is_refused(table: bitlake.Table, where: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        table.scan(where=where)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (col("id") + "x" == 1, r"text|VARCHAR|STRING"),
        (col("s") < col("id"), r"s < id"),
        (col("id").hour() == 1, r"hour\(id\)"),
        (col("day").date_trunc("moon") == DAY, "MOON"),
        (col("dayy").year() == 1, "no column 'dayy'; did you mean 'day'"),
        ((col("id") == 1) | col("s"), "column 's' of type STRING cannot be compared with the boolean True"),
        (col("id") < col("idd"), "no column 'idd'; did you mean 'id'"),
    ],
)
def test_what_cannot_be_computed_is_refused(table: bitlake.Table, where: Condition, message: str) -> None:
    with pytest.raises((InvalidRequest, NotFound), match=message):
        table.scan(where=where)


def test_an_unknown_column_has_its_near_names(table: bitlake.Table) -> None:
    for where in (col("dayy") == DAY, [("dayy", "=", DAY)]):
        with pytest.raises(NotFound, match="no column 'dayy'; did you mean 'day'"):
            table.scan(where=where)


# --- parameters -------------------------------------------------------------------------------------------------------

STAMP = dt.datetime(2024, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("text", "args", "expected"),
    [
        ("id = :v", {"v": 5}, "id = 5"),
        ("id=:v AND s=:t", {"v": 5, "t": "it's"}, r"id=5 AND s='it\'s'"),
        ("id IN (?, ?)", [1, 2], "id IN (1, 2)"),
        ("id BETWEEN :a AND :b OR id = :a", {"a": 1, "b": 2}, "id BETWEEN 1 AND 2 OR id = 1"),
        ("s = ':v' AND id = :v -- :v", {"v": 1}, "s = ':v' AND id = 1 -- :v"),
        ("s = '?' AND id = ?", (1,), "s = '?' AND id = 1"),
        ("day = :end", {"end": DAY}, "day = DATE '2024-01-02'"),
        ("ts = ?", [STAMP.replace(tzinfo=dt.UTC)], "ts = TIMESTAMP '2024-01-02 03:04:05+00:00'"),
        ("x = ? OR b = ? OR y = ?", [1.5, True, b"\x01"], "x = 1.5D OR b = TRUE OR y = X'01'"),
        ("n = ? AND i = ?", [Decimal("1.50"), np.int32(3)], "n = CAST('1.50' AS DECIMAL(3, 2)) AND i = 3"),
        ("s = ?", [None], "s = NULL"),
        ("v:path = 1", {"path": 5}, "v:path = 1"),
        ("id = 1", {"unused": 1}, "id = 1"),
    ],
)
def test_parameters_become_literals(text: str, args: Any, expected: str) -> None:
    assert with_values(text, args) == expected


@pytest.mark.parametrize(
    ("where", "args", "message"),
    [
        ("id = :v", {"w": 1}, "parameter ':v' has no value in args: line 1, column 6"),
        ("id = :v", {}, "parameter ':v' has no value in args"),
        ("id = ? AND id = ?", [1], "the text has 2 parameters, but args has 1 values: line 1, column 17"),
        ("id = ?", "1", "args is a mapping of names to values, or a list of values"),
        ("id = ?", 1, "args is a mapping of names to values, or a list of values"),
        ("id = ?", [object()], "of type object, which cannot be a parameter's value"),
        ([("id", "=", 1)], {"v": 1}, "args are the parameters of a condition in SQL text"),
    ],
)
def test_wrong_parameters_are_refused(table: bitlake.Table, where: Any, args: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        table.scan(where=where, args=args)


def test_a_value_is_no_sql(changed: bitlake.Table) -> None:
    hostile = "x' OR '1' = '1"
    assert changed.count("s = :s", {"s": hostile}) == 0
    assert changed.count(col("s") == hostile) == 0
    changed.append(ROWS.slice(0, 1).set_column(1, "s", [[hostile]]))
    assert changed.count("s = ?", [hostile]) == 1
