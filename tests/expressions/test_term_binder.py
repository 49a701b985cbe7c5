"""Binding of terms: names, numbers of arguments, types, NULL, and the text of what is bound."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bitlake.errors import EvaluationFailed, InvalidRequest, NotFound
from bitlake.expressions.binder import bind
from bitlake.expressions.evaluate import evaluate
from bitlake.expressions.parser import parse_predicate, parse_term
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.term_binder import NAMES, Columns, TermBinder
from bitlake.expressions.tree import FALSE, Comparison, Computed, MapKey, Op, conjuncts
from bitlake.types import DataField, MapType, RowType, arrow_type, parse_type

TYPES = {
    "a": "INT",
    "b": "INT",
    "y": "TINYINT",
    "big": "BIGINT",
    "x": "DOUBLE",
    "p": "DECIMAL(3, 1)",
    "w": "DECIMAL(38, 30)",
    "s": "STRING",
    "d": "DATE",
    "d2": "DATE",
    "o": "BOOLEAN",
    "now": "INT",
    "c": "CHAR(3)",
    "clock": "TIME",
}
FIELDS = [DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(TYPES.items())]
FIELDS += [
    DataField(
        20, "addr", RowType((DataField(21, "city", parse_type("STRING")), DataField(22, "zip", parse_type("INT"))))
    ),
    DataField(23, "m", MapType(parse_type("STRING"), parse_type("INT NOT NULL"))),
]
ROW: dict[str, Any] = {
    "a": 7,
    "b": 2,
    "y": 3,
    "big": 5,
    "x": 2.5,
    "p": Decimal("1.5"),
    "w": Decimal(5),
    "s": "abc",
    "d": dt.date(2026, 1, 31),
    "d2": dt.date(2026, 1, 1),
    "o": True,
    "now": 1,
    "addr": {"city": "Paris", "zip": 75001},
    "m": [("k", 3)],
}


def truth(condition: str, **values: Any) -> bool | None:
    """A condition of one row, that of ``ROW`` but for some values."""
    row = {**ROW, **values}
    rows = pa.table({f.name: pa.array([row.get(f.name)], arrow_type(f.type)) for f in FIELDS})
    found: bool | None = evaluate(bind(parse_predicate(condition), FIELDS), rows, FIELDS)[0].as_py()
    return found


def kind(sql: str) -> str:
    """The type of a term."""
    return str(TermBinder(FIELDS, "UTC").bind(parse_term(sql)).type)


def refused(condition: str, why: str) -> None:
    """A condition that a scan does not evaluate."""
    with pytest.raises(InvalidRequest, match=re.escape(why)):
        bind(parse_predicate(condition), FIELDS)


# --- names ------------------------------------------------------------------------------------------------------------


def columns(*names: str) -> Columns:
    """A schema of some names; ``s`` is a struct with a member ``a``."""
    whole = parse_type("INT")
    types = {"s": RowType((DataField(9, "a", whole),))}
    return Columns([DataField(i, n, types.get(n, whole)) for i, n in enumerate(names)])


def test_dotted_names() -> None:
    """A column's own name comes first, then a struct's member, then a column behind the names of its table."""
    assert columns("s", "s.a").member("s.a") == [] and columns("s", "s.a").field("s.a").name == "s.a"
    assert [f.name for f in columns("s").member("db.t.s.a")] == ["s", "a"]
    assert columns("s").member("s") == columns("s", "a").member("a.b") == columns("s").member("other") == []
    assert columns("a").field("db.t.a").name == columns("a").field("t.a").name == "a"
    assert columns("x.y", "a").field("t.x.y").name == "x.y"
    with pytest.raises(InvalidRequest, match="'s.a' is a member of a struct, and not a column"):
        columns("s", "a").field("s.a")


def test_names_that_differ_in_case() -> None:
    assert columns("Ab", "aB").field("aB").name == "aB" and columns("Ab").field("AB").name == "Ab"
    with pytest.raises(InvalidRequest, match="column 'ab' is ambiguous: Ab, aB"):
        columns("Ab", "aB").field("ab")


def test_unknown_names_list_three_near_ones_or_ten_of_all() -> None:
    near = columns(*(f"column{i}" for i in range(6)))
    with pytest.raises(NotFound) as e:
        near.field("column")
    assert str(e.value).count("'column") == 1 + 3 and "did you mean" in str(e.value)
    with pytest.raises(NotFound) as e:
        near.field("zzz")
    assert str(e.value).endswith("there are " + ", ".join(f"'column{i}'" for i in range(6)))
    with pytest.raises(NotFound) as e:
        columns(*(f"column{i}" for i in range(12))).field("zzz")
    assert str(e.value).endswith("there are " + ", ".join(f"'column{i}'" for i in range(10)) + " …")


def test_a_key_that_a_map_does_not_have_is_null() -> None:
    value = Columns(FIELDS).map_value(MapKey("m", "k"))
    assert str(value.type) == "INT" and value.type.nullable


def test_unknown_functions_list_three_near_ones() -> None:
    with pytest.raises(InvalidRequest, match=r"did you mean \w+, \w+, \w+\?\)"):
        bind(parse_predicate("lastr(d) = 1"), FIELDS)
    refused("foo(a)", "it has no function 'foo'")


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [*(n for n in NAMES if " " not in n), "isnull", "isnotnull", "to_date", "int"])
def test_any_number_of_arguments_is_bound_or_refused(function: str) -> None:
    """Never another error."""
    for count in range(4):
        for given in itertools.product(("a", "s", "d"), repeat=count):
            with contextlib.suppress(InvalidRequest):
                assert bind(parse_predicate(f"{function}({', '.join(given)}) IS NULL"), FIELDS)


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("isnull(a, b)", "does not take that number of arguments"),
        ("isnotnull()", "does not take that number of arguments"),
        ("year() = 1", "does not take that number of arguments"),
        ("datediff(d) = 1", "does not take that number of arguments"),
        ("datediff(MONTH, d, d2) = 1", "does not take that number of arguments"),
        ("date_trunc() = d", "does not take that number of arguments"),
        ("locate('a', s, 2) = 1", "none of the functions that a scan computes"),
        ("instr(s, 'a', 1, 2) = 1", "none of the functions that a scan computes"),
        ("dateadd(MONTH, 3, d) = d2", "none of the functions that a scan computes"),
        ("if(a IN (SELECT 1), o, o)", "none of the functions that a scan computes"),
        ("if(a IN (), o, o)", "none of the functions that a scan computes"),
        ("d + INTERVAL '1.5' DAY > d2", "an interval is a whole number of one unit"),
        ("d + INTERVAL '1-2' YEAR TO MONTH > d2", "an interval is a whole number of one unit"),
        ("d + INTERVAL '1' DAY TO HOUR > d2", "an interval is a whole number of one unit"),
        ("now(1) = 1", "it has no function 'now'"),
        ("isnan(NULL)", "isnan takes FLOAT or DOUBLE"),  # in Spark it is FALSE, not NULL
        ("greatest(c, c) = 'x'", "c is CHAR(3), which is not computed with"),
        ("coalesce(clock, clock) = clock", "clock is TIME(0), which is not computed with"),
        ("coalesce(addr) IS NULL", "which is not computed with"),
        ("coalesce(w, 5) > 1", "DECIMAL(40, 30) has more than 38 digits"),
    ],
)
def test_what_is_refused(condition: str, why: str) -> None:
    refused(condition, why)


@pytest.mark.parametrize(
    "condition",
    [
        "d + a = DATE '2026-02-07'",
        "d - a = DATE '2026-01-24'",
        "date_add(d, a * b) = DATE '2026-02-14'",
        "date_add(d, a * -2) = DATE '2026-01-17'",
        "date_add(d, a * -1) = DATE '2026-01-24'",
        "date_add(d, a + -1) = DATE '2026-02-06'",
        "date_sub(d, a) = DATE '2026-01-24'",
        "instr(s, 'c') = 3",
        "d BETWEEN d2 AND '2026-12-31'",
        "NOT (d BETWEEN d2 AND '2026-01-30')",
        "'2026-01-15' BETWEEN d2 AND d",
        "NOT ('2026-02-01' BETWEEN d2 AND d)",
        "nullif('2026-01-31', d) IS NULL",
        "nullif(d, '2026-01-31') IS NULL",
        "CASE d WHEN '2026-01-30' THEN FALSE WHEN '2026-01-31' THEN o END",
        "CASE w WHEN 5 THEN o END",  # the literal has one digit, beside DECIMAL(38, 30)
        "CASE WHEN a < 0 THEN 'l' WHEN b = 2 THEN 'm' ELSE 'n' END = 'm'",
        "CASE WHEN a < 0 THEN 'l' WHEN b < 2 THEN 'm' WHEN o THEN 'o' ELSE 'n' END = 'o'",
        "a IN (b + 5)",
        "if(a IN (7), o, NOT o)",
        "if(a IN (6, 7), o, NOT o)",
        "now = 1 AND d < current_date()",
        "addr.zip = 75001",
        "p <= a",
        "length(NULL) <=> nullif(a, 7)",
        "NOT (length(NULL) <=> a)",
        "isnull(nullif(a, 7)) AND isnotnull(a)",
    ],
)
def test_what_is_true_of_the_row(condition: str) -> None:
    assert truth(condition) is True
    assert truth(f"NOT ({condition})") is False


@pytest.mark.parametrize("condition", ["length(NULL) > 1", "length(NULL) < length(s)", "length(NULL) = a", "a > NULL"])
def test_what_compares_with_null_is_true_of_no_row(condition: str) -> None:
    """It and its negation are found to be so without reading."""
    assert bind(parse_predicate(condition), FIELDS) == FALSE
    assert bind(parse_predicate(f"NOT ({condition})"), FIELDS) == FALSE


def test_values_out_of_range_are_found_without_reading_where_nothing_can_fail() -> None:
    assert bind(parse_predicate("addr.zip = 99999999999"), FIELDS) == FALSE
    assert bind(parse_predicate("m['k'] = 99999999999"), FIELDS) == FALSE
    assert truth("a + 2147483640 = 99999999999") is False
    with pytest.raises(EvaluationFailed, match="overflows INT"):
        truth("a + 2147483641 = 99999999999")


# --- types and texts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("-9223372036854775808", "BIGINT"),
        ("-9223372036854775809", "DECIMAL(19, 0)"),
        ("9223372036854775808", "DECIMAL(19, 0)"),
        ("1.", "DECIMAL(1, 0)"),
        ("100BD", "DECIMAL(3, 0)"),
        ("1.0BD", "DECIMAL(2, 1)"),
        ("CAST(a AS DECIMAL)", "DECIMAL(10, 0)"),
        ("CAST(a AS DECIMAL(5))", "DECIMAL(5, 0)"),
        ("CAST(a AS DECIMAL(5, 2))", "DECIMAL(5, 2)"),
        ("coalesce(p, 5)", "DECIMAL(11, 1)"),  # an INT, whatever its digits
        ("CASE WHEN o THEN y WHEN o THEN a ELSE y END", "INT"),
        ("CASE WHEN o THEN y WHEN o THEN y ELSE a END", "INT"),
        ("CASE WHEN o THEN y WHEN o THEN y WHEN o THEN big ELSE a END", "BIGINT"),
        ("CASE WHEN o THEN a ELSE NULL END", "INT"),
        ("coalesce(w, w)", "DECIMAL(38, 30)"),
    ],
)
def test_types(sql: str, expected: str) -> None:
    assert kind(sql) == expected


@pytest.mark.parametrize(
    "text",
    [
        "date_sub(d, a) > d2",
        "date_add(d, (a * 2)) > d2",
        "date_add(d, a) > d2",
        "datediff(DATE '2026-01-08', d) > 3",
        "CASE WHEN (a > 1) THEN 'x' WHEN (b > 2) THEN 'y' ELSE 'z' END = 'y'",
        "CASE WHEN (a > 1) THEN s WHEN (b > 2) THEN 'y' WHEN o THEN 'x' ELSE NULL END = 'y'",
        "(a + 1) IS NOT NULL",
        "(a = 7) = o",
    ],
)
def test_texts_are_read_back(text: str) -> None:
    bound = bind(parse_predicate(text), FIELDS)
    assert to_sql(bound, FIELDS) == text
    assert bind(parse_predicate(to_sql(bound, FIELDS)), FIELDS) == bound


def test_constants_are_computed_once_and_printed_as_they_are() -> None:
    """Read again, the text gives an equal condition."""
    bound = bind(parse_predicate("datediff(DATE '2026-01-05' + 3, d) > 3"), FIELDS)
    assert to_sql(bound, FIELDS) == "datediff(DATE '2026-01-08', d) > 3"
    assert bind(parse_predicate(to_sql(bound, FIELDS)), FIELDS) == bound


def test_a_range_is_implied_beside_the_test() -> None:
    found = conjuncts(bind(parse_predicate("a + 1 > 5"), FIELDS))
    assert found[0] == Comparison("a", Op.GE, 5) and isinstance(found[1], Computed) and len(found) == 2


# --- stored values ----------------------------------------------------------------------------------------------------


def test_timestamps_are_read_in_any_unit() -> None:
    """Nanoseconds are cut down to microseconds, before 1970 too."""
    fields = [DataField(i, f"t{p}", parse_type(f"TIMESTAMP({p})")) for i, p in enumerate((3, 6, 9))]
    hour = 3_600_000
    wanted = {"t3": ("ms", 1), "t6": ("us", 1000), "t9": ("ns", 1_000_000)}
    rows = pa.table({n: pa.array([5 * hour * by, None, -by], pa.timestamp(u)) for n, (u, by) in wanted.items()})
    for name in wanted:
        for sql, expected in (
            (f"hour({name}) = 5", [True, None, False]),
            (f"second({name}) = 59", [False, None, True]),
        ):
            assert evaluate(bind(parse_predicate(sql), fields), rows, fields).to_pylist() == expected
    exact = pa.table({**{n: rows[n] for n in ("t3", "t6")}, "t9": pa.array([5_000_999, -1, -1001], pa.timestamp("ns"))})
    for moved, found in ((5000, [True, False, False]), (-1, [False, True, False]), (-2, [False, False, True])):
        wall = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=moved + 1)
        bound = bind(parse_predicate(f"t9 + INTERVAL 1 MICROSECOND = TIMESTAMP_NTZ '{wall}'"), fields)
        assert evaluate(bound, exact, fields).to_pylist() == found


def test_members_are_found_by_name_in_rows_of_another_order() -> None:
    struct = pa.array([{"zip": 5, "city": "x"}, None], pa.struct([("zip", pa.int32()), ("city", pa.string())]))
    of = [f for f in FIELDS if f.name == "addr"]
    bound = bind(parse_predicate("length(addr.city) = 1 AND addr.zip + 1 = 6"), of)
    assert evaluate(bound, pa.table({"addr": struct}), of).to_pylist() == [True, None]
    with pytest.raises(InvalidRequest, match="no struct member 'city'"):
        evaluate(bound, pa.table({"addr": pa.array([{"zip": 5}])}), of)


def test_operands_that_a_null_leaves_open_are_computed() -> None:
    """NULL AND FALSE is FALSE, NULL OR TRUE is TRUE."""
    assert truth("coalesce(nullif(a, 7) > b AND b > a, o)") is False
    assert truth("coalesce(nullif(a, 7) > b OR a > b, NOT o)") is True
    assert truth("(nullif(a, 7) > b AND a > b) IS NULL") is True
