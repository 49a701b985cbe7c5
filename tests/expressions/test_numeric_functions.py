"""Arithmetic over whole columns with NULLs, against Python's own decimals and integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pytest

from bitlake.errors import EvaluationFailed, InvalidRequest
from bitlake.expressions.parser import parse_term
from bitlake.expressions.term_binder import KERNELS, TermBinder
from bitlake.expressions.terms import Typed, evaluate_term
from bitlake.types import DataField, arrow_type, parse_type

INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def bound(sql: str, *kinds: str) -> Typed:
    """A term over the columns ``a``, ``b``, … of some types."""
    fields = [DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(zip("abc", kinds, strict=False))]
    return TermBinder(fields, "UTC").bind(parse_term(sql))


def values(sql: str, kinds: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[Any]:
    """The values of a term over rows."""
    arrays = [
        pa.array(column, arrow_type(parse_type(k))) for column, k in zip(zip(*rows, strict=True), kinds, strict=True)
    ]
    found: list[Any] = evaluate_term(
        bound(sql, *kinds), dict(zip("abc", arrays, strict=False)), len(rows), KERNELS
    ).to_pylist()
    return found


def pairs(kind: str) -> list[tuple[Any, Any]]:
    """Every pair of a type's extremes and small numbers, and NULL."""
    end = 1 << INTEGERS[kind] - 1
    numbers = [None, -end, 1 - end, -7, -2, -1, 0, 1, 2, 3, 100, end - 1]
    return [(a, b) for a in numbers for b in numbers]


def _whole(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int:
    return a - b * _whole(a, b)


@pytest.mark.parametrize(("operator", "result"), [("div", _whole), ("%", _remainder)])
@pytest.mark.parametrize("kind", INTEGERS)
def test_whole_quotients_and_remainders_are_cut_toward_zero(
    kind: str, operator: str, result: Callable[[int, int], int]
) -> None:
    """Only a row of two numbers can fail: NULL divided by zero is NULL."""
    rows = [(a, b) for a, b in pairs(kind) if b != 0 or a is None]
    rows.remove((-(1 << INTEGERS[kind] - 1), -1))
    expected = [None if a is None or b is None else result(a, b) for a, b in rows]
    assert values(f"a {operator} b", (kind, kind), rows) == expected
    for a in (0, 5):
        with pytest.raises(EvaluationFailed, match="division by zero"):
            values(f"a {operator} b", (kind, kind), [(None, 0), (a, 0)])


def test_the_least_integer_by_minus_one() -> None:
    """Its remainder is 0; its quotient is a BIGINT, and too great for one only from BIGINT."""
    for kind, bits in INTEGERS.items():
        row = [(-(1 << bits - 1), -1)]
        assert values("a % b", (kind, kind), row) == [0]
        if kind == "BIGINT":
            with pytest.raises(EvaluationFailed, match="overflows BIGINT"):
                values("a div b", (kind, kind), row)
        else:
            assert values("a div b", (kind, kind), row) == [1 << bits - 1]


def test_quotients_and_remainders_of_doubles() -> None:
    numbers = [None, -math.inf, -7.5, -1.0, -0.5, 0.0, 0.5, 2.0, 7.5, math.inf, math.nan]
    rows = [(a, b) for a in numbers for b in numbers if b != 0 or a is None]
    divided = [None if a is None or b is None else a / b for a, b in rows]
    assert list(map(repr, values("a / b", ("DOUBLE",) * 2, rows))) == list(map(repr, divided))
    undefined = [(a, b) for a, b in rows if a is not None and b is not None and (math.isinf(a) or math.isnan(b))]
    rest = [None if a is None or b is None else math.nan if (a, b) in undefined else math.fmod(a, b) for a, b in rows]
    assert list(map(repr, values("a % b", ("DOUBLE",) * 2, rows))) == list(map(repr, rest))
    for operator in ("/", "%"):
        with pytest.raises(EvaluationFailed, match="division by zero"):
            values(f"a {operator} b", ("DOUBLE",) * 2, [(1.0, 2.0), (1.0, -0.0)])


def test_quotients_of_decimals_are_rounded_half_up() -> None:
    """Thousandths by sixteenths have halves in the seventh place, where Spark rounds."""
    numerators = [None, *(Decimal(n) / 1000 for n in (-9999, -17, -3, -1, 0, 1, 3, 5, 16, 9999))]
    rows = [(a, b) for a in numerators for b in (None, *map(Decimal, (-16, -3, -1, 1, 2, 16, 99)))]
    rows += [(None, Decimal(0)), (None, None)]
    place = Decimal("0.000001")
    expected = [None if a is None or b is None else (a / b).quantize(place, ROUND_HALF_UP) for a, b in rows]
    assert values("a / b", ("DECIMAL(4, 3)", "DECIMAL(2, 0)"), rows) == expected
    with pytest.raises(EvaluationFailed, match="division by zero"):
        values("a / b", ("DECIMAL(4, 3)", "DECIMAL(2, 0)"), [(Decimal(0), Decimal(0))])


def test_quotients_of_decimals_have_at_most_18_digits() -> None:
    kinds = ("DECIMAL(12, 0)", "DECIMAL(2, 0)")
    assert str(bound("a / b", *kinds).type) == "DECIMAL(18, 6)"
    greatest = Decimal("999999999999")
    assert values("a / b", kinds, [(greatest, Decimal(-1)), (-greatest, Decimal(7))]) == [
        -greatest,
        Decimal("-142857142857.000000"),
    ]
    for refused in (("DECIMAL(13, 0)", "DECIMAL(2, 0)"), ("DECIMAL(1, 0)", "DECIMAL(17, 0)")):
        with pytest.raises(InvalidRequest, match="more than 18 digits"):
            bound("a / b", *refused)


@pytest.mark.parametrize("kind", ["DECIMAL(1, 0)", "DECIMAL(6, 2)", "DECIMAL(30, 30)"])
@pytest.mark.parametrize(("integer", "digits"), [("TINYINT", 3), ("SMALLINT", 5), ("INT", 10), ("BIGINT", 20)])
def test_an_integer_beside_a_decimal_has_the_digits_of_its_type(integer: str, digits: int, kind: str) -> None:
    """Spark's ``DecimalType.forType``, and for sums its rule of the wider operand and one digit more."""
    p, s = map(int, kind[8:-1].split(", "))
    whole = max(digits, p - s)
    for sql in ("a + b", "b - a"):
        if whole + s + 1 > 38:
            with pytest.raises(InvalidRequest, match="more than 38 digits"):
                bound(sql, integer, kind)
        else:
            assert str(bound(sql, integer, kind).type) == f"DECIMAL({whole + s + 1}, {s})"
    if whole + s <= 38:
        assert str(bound("coalesce(a, b)", integer, kind).type) == f"DECIMAL({whole + s}, {s})"
    if digits + p + 1 <= 38:
        assert str(bound("a * b", integer, kind).type) == f"DECIMAL({digits + p + 1}, {s})"


def test_signs_of_numbers_zeros_and_nulls() -> None:
    rows = [(None,), (-2.5,), (-0.0,), (0.0,), (7.0,), (math.inf,)]
    assert list(map(repr, values("sign(a)", ("DOUBLE",), rows))) == ["None", "-1.0", "-0.0", "0.0", "1.0", "1.0"]
    assert values("sign(a)", ("DECIMAL(3, 1)",), [(Decimal("-0.1"),), (None,), (Decimal(0),)]) == [-1.0, None, 0.0]


def test_width_bucket() -> None:
    """Buckets go up or down; NULL for no buckets, no width, NaN and infinite ends."""
    inf, nan, most = math.inf, math.nan, (1 << 63) - 1
    cases = [
        ((5.3, 0.2, 10.6, 5), 3),
        ((-2.1, 1.3, 3.4, 3), 0),
        ((8.1, 0.0, 5.7, 4), 5),
        ((-0.9, 5.2, 0.5, 2), 3),
        ((5.2, 5.2, 0.5, 2), 1),
        ((0.5, 5.2, 0.5, 2), 3),
        ((6.0, 5.2, 0.5, 2), 0),
        ((10.0, 0.0, 10.0, 5), 6),
        ((0.0, 0.0, 10.0, 5), 1),
        ((inf, 0.0, 10.0, 5), 6),
        *(((a, 0.0, 10.0, 5), None) for a in (None, nan)),
        *(((1.0, low, high, 5), None) for low, high in ((3.0, 3.0), (-inf, 3.0), (nan, 3.0), (1.0, inf), (None, 1.0))),
        *(((1.0, 0.0, 10.0, n), None) for n in (0, -1, most)),
    ]
    for (value, low, high, buckets), expected in cases:
        rows = [(value, low, high)]
        kinds = ("DOUBLE", "DOUBLE", "DOUBLE")
        assert values(f"width_bucket(a, b, c, {buckets})", kinds, rows) == [expected], (value, low, high, buckets)
    decimals = [(Decimal("5.30"),), (None,), (Decimal("-1.00"),)]
    assert values("width_bucket(a, 0, 10, 5)", ("DECIMAL(5, 2)",), decimals) == [3, None, 0]
    with pytest.raises(InvalidRequest, match="is DOUBLE, and not a whole number"):
        bound("width_bucket(a, 0, 10, b)", "DOUBLE", "DOUBLE")
