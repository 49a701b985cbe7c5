"""Arrow's expressions as predicates: TRUE for at least the rows that Arrow selects, and for these alone if exact."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from bitlake.errors import InvalidRequest
from bitlake.expressions.arrow_expression import Call, Field, Literal, columns_of, decode, implied
from bitlake.expressions.evaluate import evaluate
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.tree import FALSE, TRUE
from bitlake.types.arrow import arrow_schema
from bitlake.types.datatypes import AtomicType, DataField, Root, RowType, parse_type

_TYPES = {
    "i": "INT",
    "l": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "n": "DECIMAL(10, 2)",
    "s": "STRING",
    "c": "CHAR(3)",
    "y": "VARBINARY(10)",
    "b": "BOOLEAN",
    "day": "DATE",
    "ts": "TIMESTAMP(6)",
    "ns": "TIMESTAMP(9)",
    "ltz": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
}
FIELDS = [DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(_TYPES.items())]
FIELDS.append(DataField(20, "st", RowType((DataField(21, "a", parse_type("INT")),))))
_NOON = dt.datetime(2024, 1, 2, 12)
_VALUES: dict[str, list[Any]] = {
    "i": [None, -5, 0, 3, 2**31 - 1],
    "l": [None, -(2**63), 0, 3, 2**53 + 1],
    "f": [None, -1.5, -0.0, 0.0, 2.5, math.nan, math.inf],
    "d": [None, -1.5, -0.0, 0.0, 2.5, math.nan, -math.inf],
    "n": [None, Decimal("-1.50"), Decimal("0.00"), Decimal("3.25")],
    "s": [None, "", "a", "ab", "b%", "ü"],
    "c": [None, "a  ", "ab ", "abc"],
    "y": [None, b"", b"\x00", b"\xff"],
    "b": [None, True, False],
    "day": [None, dt.date(2024, 1, 1), dt.date(2024, 1, 2)],
    "ts": [None, _NOON, _NOON + dt.timedelta(microseconds=1)],
    "ns": [None, _NOON, _NOON + dt.timedelta(hours=1)],
    "ltz": [None, _NOON.replace(tzinfo=dt.UTC), _NOON.replace(tzinfo=dt.UTC) + dt.timedelta(hours=1)],
    "st": [None, {"a": 1}, {"a": None}],
}
_COMPARED = list(_TYPES)
_OPERATORS: list[Callable[[Any, Any], pc.Expression]] = [
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
]


def _rows(rng: random.Random, rows: int = 60) -> pa.Table:
    schema = arrow_schema(FIELDS)
    return pa.table({n: pa.array(rng.choices(v, k=rows), schema.field(n).type) for n, v in _VALUES.items()}, schema)


def _leaf(rng: random.Random, schema: pa.Schema) -> pc.Expression:
    name = rng.choice(_COMPARED)
    kind, column = schema.field(name).type, pc.field(name)
    known = [v for v in _VALUES[name] if v is not None]
    match rng.randrange(8):
        case 0 | 1:
            return rng.choice(_OPERATORS)(column, pa.scalar(rng.choice(known), kind))
        case 2:  # a literal of another type, or on the left
            if pa.types.is_integer(kind) or pa.types.is_floating(kind):
                return rng.choice(_OPERATORS)(column, rng.choice([0, 3, 2.5, -1.5, 2.0**53, math.nan]))
            return rng.choice(_OPERATORS)(pa.scalar(rng.choice(known), kind), column)
        case 3:
            values = pa.array(rng.choices(_VALUES[name], k=rng.randrange(4)), kind)
            behaviour = rng.choice(["match", "skip", "emit_null", "inconclusive"])
            options = pc.SetLookupOptions(value_set=values, skip_nulls=behaviour == "skip")
            return column.isin(values) if behaviour == "match" else pc.Expression._call("is_in", [column], options)
        case 4:
            values = pa.array(rng.choices(known, k=2), kind)
            return pc.if_else(column.is_valid(), column.isin(values), pa.scalar(None, pa.bool_()))
        case 5:
            return rng.choice([column.is_null(nan_is_null=rng.random() < 0.5), column.is_valid()])
        case 6:
            member = pc.field("st", "a") == 1
            return rng.choice([pc.is_nan(pc.field("d")), pc.field("b"), member, pc.field("st").is_null()])
        case _:
            kernel = rng.choice([pc.starts_with, pc.ends_with, pc.match_substring])
            return kernel(pc.field("s"), pattern=rng.choice(["a", "b%", "", "ü"]), ignore_case=rng.random() < 0.2)


def _expression(rng: random.Random, schema: pa.Schema, depth: int) -> pc.Expression:
    if depth == 0 or rng.random() < 0.3:
        return _leaf(rng, schema)
    left, right = (_expression(rng, schema, depth - 1) for _ in range(2))
    kind = rng.randrange(6)
    if kind == 0:
        return ~left
    if kind == 1:
        return pc.if_else(left, right, _leaf(rng, schema))
    if kind == 2:
        return pc.Expression._call(rng.choice(["and", "or"]), [left, right])  # NULL beside FALSE or TRUE gives NULL
    return left & right if kind < 5 else left | right


@pytest.mark.parametrize("seed", range(10))
def test_a_predicate_selects_what_arrow_selects(seed: int) -> None:
    rng = random.Random(seed)
    table = _rows(rng)
    exact_ones = pushed = 0
    for _ in range(60):
        expression = _expression(rng, table.schema, rng.randrange(3))
        try:
            selected = ds.dataset(table).to_table(columns={"true": expression}).column(0)
        except pa.ArrowInvalid:
            continue  # a literal that Arrow cannot cast
        predicate, exact = implied(decode(expression), FIELDS)
        ours = evaluate(predicate, table, FIELDS)
        shown = f"{expression} as {to_sql(predicate, FIELDS)}"
        for row, (arrows, mine) in enumerate(zip(selected.to_pylist(), ours.to_pylist(), strict=True)):
            assert mine is True or arrows is not True, (shown, row)
            assert not exact or (mine is True) == (arrows is True), (shown, row)
        exact_ones += exact
        pushed += predicate != TRUE
    assert exact_ones > 10 and pushed > 25


def test_engines_forms_are_exact() -> None:
    """What DuckDB and Polars push: comparisons, IN, NULL tests, AND and OR."""
    a, s = pc.field("i"), pc.field("s")
    members = pa.array([1, 3], pa.int32())
    for expression, text in (
        ((a > 1) & (s == "x"), "i > 1 AND s = 'x'"),
        (pc.if_else(a.is_valid(), a.isin(members), pa.scalar(None, pa.bool_())), "i IS NOT NULL AND i IN (1, 3)"),
        (~(a == 1) | s.is_null(), "i <> 1 OR s IS NULL"),
        (pc.starts_with(s, pattern="a_"), r"s LIKE 'a\\_%'"),
        (pc.scalar(5) >= a, "i <= 5"),
        (pc.field("n") < Decimal("1.5"), "n < 1.50"),
        (s == pa.scalar("x", pa.large_string()), "s = 'x'"),
        (pc.field("c").isin(["xyz", "abcd"]), "c = 'xyz'"),
        (pc.field("c") == "abc", "c = 'abc'"),
        (pc.field("i").is_null(nan_is_null=True), "i IS NULL"),
        (pc.field("d").is_null(nan_is_null=True), "d IS NULL OR d = double('nan')"),
        (~pc.field("d").is_null(nan_is_null=True), "d IS NOT NULL AND d <> double('nan')"),
    ):
        predicate, exact = implied(decode(expression), FIELDS)
        assert (to_sql(predicate, FIELDS), exact) == (text, True)


def test_what_is_not_understood_is_left_to_arrow() -> None:
    for expression in (
        pc.field("i") + 1 == 2,
        pc.utf8_lower(pc.field("s")) == "x",
        pc.field("st", "a") == 1,
        pc.field("c") == "a",
        pc.field("c").isin(["abc", "a"]),
        pc.field("c").isin(pa.array([], pa.string())),
        pc.field("f") == pa.scalar("1"),
    ):
        assert implied(decode(expression), FIELDS) == (TRUE, False)
    both = (pc.field("i") + 1 == 2) & (pc.field("l") == 3)
    predicate, exact = implied(decode(both), FIELDS)
    assert to_sql(predicate, FIELDS) == "l = 3" and not exact
    assert implied(decode(pc.field("i") == pa.scalar(None, pa.int32())), FIELDS) == (FALSE, True)
    assert implied(decode(pc.scalar(True)), FIELDS) == (TRUE, True)


def test_a_tree_is_read_whole() -> None:
    tree = decode((pc.field("st", "a").cast(pa.int64()) == 3) | pc.field("s").isin(["x", None]))
    assert isinstance(tree, Call) and tree.function == "or_kleene"
    equal, among = tree.arguments
    assert isinstance(equal, Call) and isinstance(equal.arguments[0], Call)
    assert equal.arguments[0].arguments == (Field(("st", "a")),)
    assert isinstance(equal.arguments[1], Literal) and equal.arguments[1].value.as_py() == 3
    assert isinstance(among, Call) and among.options["value_set"].as_py() == ["x", None]
    assert columns_of(tree) == {"st", "s"}


def test_many_values_are_one_set() -> None:
    values = list(range(0, 200_000, 2))
    predicate, exact = implied(decode(pc.field("l").isin(values)), FIELDS)
    assert exact and list(predicate.values) == values  # type: ignore[union-attr]


def test_an_unknown_form_is_refused() -> None:
    class Other:
        def __reduce__(self) -> Any:
            return Other, (pa.py_buffer(b"nothing"),)

    with pytest.raises(InvalidRequest, match="write the condition as SQL text"):
        decode(Other())


def test_timestamps_of_another_unit_are_compared_and_those_of_another_kind_are_not() -> None:
    for column, zone, other in (("ts", None, "UTC"), ("ltz", "UTC", None)):
        wanted = f"{column} > "
        for unit in ("s", "ms", "ns"):
            node = decode(pc.field(column) > pa.scalar(_NOON, pa.timestamp(unit, zone)))
            found, exact = implied(node, FIELDS)
            assert exact and to_sql(found, FIELDS).startswith(wanted), (column, unit)
        node = Call("greater", (Field((column,)), Literal(pa.scalar(_NOON, pa.timestamp("ms", other)))), {})
        assert implied(node, FIELDS) == (TRUE, False)


def _of(column: str, value: Any, kind: pa.DataType | None = None) -> Call:
    return Call("equal", (Field((column,)), Literal(pa.scalar(value, kind))), {})


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (_of("i", 3, pa.int64()), "i = 3"),
        (_of("i", 2.5, pa.float64()), "FALSE"),
        (_of("i", 2.5, pa.float32()), None),
        (_of("i", Decimal("2.5")), None),
        (_of("n", Decimal("2.5")), "n = 2.50"),
        (_of("n", 2, pa.int8()), "n = 2.00"),
        (_of("n", 2.5, pa.float64()), None),
        (_of("f", 2, pa.int8()), "f = 2.0D"),
        (_of("f", 2.5, pa.float32()), "f = 2.5D"),
        (_of("f", (1 << 24) + 1), None),  # not exactly a FLOAT
        (_of("d", 2.5, pa.float32()), "d = 2.5D"),
        (_of("d", Decimal("2.5")), None),
        (_of("s", "x", pa.string_view()), "s = 'x'"),
        (_of("s", "x", pa.large_string()), "s = 'x'"),
        (_of("s", b"x", pa.binary()), None),
        (_of("y", b"x", pa.binary()), "y = X'78'"),
        (_of("y", b"x", pa.large_binary()), "y = X'78'"),
        (_of("y", b"x", pa.binary_view()), "y = X'78'"),
        (_of("y", "x", pa.string()), None),
        (_of("b", 1, pa.int8()), None),
        (_of("day", _NOON, pa.timestamp("us")), None),
        (_of("ts", dt.date(2024, 1, 2), pa.date32()), None),
        (_of("ts", "x", pa.string()), None),
        (_of("i", _NOON, pa.timestamp("us")), None),
        (_of("c", "abc"), "c = 'abc'"),
        (_of("c", "abcd"), "FALSE"),
        (_of("c", "ab"), None),
    ],
)
def test_literals_that_arrow_compares_as_sql_does(node: Call, expected: str | None) -> None:
    predicate, exact = implied(node, FIELDS)
    assert (to_sql(predicate, FIELDS), exact) == (("TRUE", False) if expected is None else (expected, True))


def test_nanoseconds_that_no_python_clock_has_are_left_to_arrow() -> None:
    micros = (_NOON - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    whole, part = (pa.scalar(micros * 1000 + n, pa.timestamp("ns")) for n in (0, 1))
    found, exact = implied(decode(pc.field("ts") == whole), FIELDS)
    assert (to_sql(found, FIELDS), exact) == ("ts = TIMESTAMP_NTZ '2024-01-02 12:00:00'", True)
    assert implied(Call("equal", (Field(("ns",)), Literal(part)), {}), FIELDS) == (TRUE, False)


def _among(column: str, values: pa.Array, behaviour: int, negated: bool) -> tuple[str, bool]:
    options = {
        "value_set": pa.scalar(values.to_pylist(), pa.list_(values.type)),
        "null_matching_behavior": pa.scalar(behaviour),
    }
    node = Call("is_in", (Field((column,)),), options)
    predicate, exact = implied(Call("invert", (node,), {}) if negated else node, FIELDS)
    return to_sql(predicate, FIELDS), exact


_MATCH, _SKIP, _EMIT_NULL, _INCONCLUSIVE = range(4)


@pytest.mark.parametrize(
    ("column", "values", "behaviour", "negated", "expected"),
    [
        ("i", pa.array([1, None], pa.int32()), _MATCH, False, ("i = 1 OR i IS NULL", True)),
        ("i", pa.array([1, None], pa.int32()), _MATCH, True, ("i <> 1", True)),
        ("i", pa.array([1], pa.int32()), _MATCH, True, ("i <> 1 OR i IS NULL", True)),
        ("i", pa.array([1, None], pa.int32()), _SKIP, False, ("i = 1", True)),
        ("i", pa.array([1, None], pa.int32()), _SKIP, True, ("i <> 1 OR i IS NULL", True)),
        ("i", pa.array([1, None], pa.int32()), _EMIT_NULL, False, ("i = 1", True)),
        ("i", pa.array([1, None], pa.int32()), _EMIT_NULL, True, ("i <> 1", True)),
        ("i", pa.array([1, None], pa.int32()), _INCONCLUSIVE, False, ("i = 1", True)),
        ("i", pa.array([1, None], pa.int32()), _INCONCLUSIVE, True, ("FALSE", True)),
        ("i", pa.array([1], pa.int32()), _INCONCLUSIVE, True, ("i <> 1", True)),
        ("i", pa.array([], pa.int32()), _EMIT_NULL, True, ("i IS NOT NULL", True)),
        ("i", pa.array([], pa.int32()), _EMIT_NULL, False, ("FALSE", True)),
        ("c", pa.array(["abc"]), _EMIT_NULL, False, ("c = 'abc'", True)),
        ("c", pa.array(["abc", "ab"]), _EMIT_NULL, False, ("TRUE", False)),
        ("d", pa.array([1.5]), _EMIT_NULL, False, ("d = 1.5D", False)),
        ("d", pa.array([1.5, 0.0]), _EMIT_NULL, True, ("d <> 1.5D", False)),
        ("d", pa.array([1.5, math.nan]), _EMIT_NULL, False, ("TRUE", False)),
        ("n", pa.array([1.5]), _EMIT_NULL, False, ("TRUE", False)),
    ],
)
def test_sets_with_and_without_null(
    column: str, values: pa.Array, behaviour: int, negated: bool, expected: tuple[str, bool]
) -> None:
    assert _among(column, values, behaviour, negated) == expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (pc.field("d").is_null(nan_is_null=True), ("d IS NULL OR d = double('nan')", True)),
        (~pc.field("d").is_null(nan_is_null=True), ("d IS NOT NULL AND d <> double('nan')", True)),
        (pc.field("i").is_null(nan_is_null=True), ("i IS NULL", True)),
        (pc.field("st", "a").is_null(), ("TRUE", False)),
        (pc.field("st").is_valid(), ("st IS NOT NULL", True)),
        (pc.is_nan(pc.field("d")), ("d = double('nan')", True)),
        (pc.is_nan(pc.field("i")), ("TRUE", False)),
        (pc.field("i") == pc.scalar("3").cast(pa.int32()), ("i = 3", True)),
        (pc.starts_with(pc.field("s"), pattern="a"), ("s LIKE 'a%'", True)),
        (pc.starts_with(pc.field("s"), pattern="a", ignore_case=True), ("TRUE", False)),
        (pc.starts_with(pc.field("y"), pattern="a"), ("TRUE", False)),
        (pc.field("d") > 1.5, ("d > 1.5D", False)),
        (~(pc.field("d") > 1.5), ("d <= 1.5D OR d = double('nan')", True)),
        (~(pc.field("d") <= 1.5), ("d > 1.5D", True)),
    ],
)
def test_nulls_numbers_and_text(node: pc.Expression, expected: tuple[str, bool]) -> None:
    predicate, exact = implied(decode(node), FIELDS)
    assert (to_sql(predicate, FIELDS), exact) == expected


def test_a_set_that_is_null_is_left_to_arrow() -> None:
    options = {"value_set": pa.scalar(None, pa.list_(pa.int32())), "null_matching_behavior": pa.scalar(0)}
    assert implied(Call("is_in", (Field(("i",)),), options), FIELDS) == (TRUE, False)


def test_a_char_without_a_length_has_one_character() -> None:
    char = [DataField(0, "c", AtomicType(Root.CHAR))]
    found, exact = implied(decode(pc.field("c") == "a"), char)
    assert exact and to_sql(found, char) == "c = 'a'"
    assert implied(decode(pc.field("c") == ""), char) == (TRUE, False)
