"""Aggregate functions over many groups at once against one group after the other, as Paimon's field aggregators do it.

An aggregator has ``agg(held, input)``, ``retract(held, input)``, and ``aggReversed(held, older)``, which is
``agg(older, held)``.  The rows of a step are of different groups, in any order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.errors import InvalidRequest
from bitlake.merge.functions import accumulator
from bitlake.schema.merge_spec import Function


class Field:
    """One field of one key: a value, and for the first value whether there was one."""

    def __init__(self, name: str) -> None:
        self.name, self.value, self.begun = name, None, False

    def agg(self, held: Any, new: Any) -> Any:
        if self.name in ("first_value", "first_non_null_value"):
            if self.begun or (new is None and self.name == "first_non_null_value"):
                return held
            self.begun = True
            return new
        if self.name in ("last_value", "primary-key"):
            return new
        if held is None or new is None:
            return new if held is None else held
        functions: dict[str, Callable[[Any, Any], Any]] = {
            "sum": lambda a, b: a + b,
            "product": lambda a, b: a * b,
            "min": min,
            "max": max,
            "bool_and": lambda a, b: a and b,
            "bool_or": lambda a, b: a or b,
            "last_non_null_value": lambda a, b: b,
            "listagg": lambda a, b: f"{a},{b}",
            "collect": lambda a, b: a + b,
        }
        return functions[self.name](held, new)

    def retract(self, held: Any, new: Any) -> Any:
        if self.name == "primary-key":
            return new
        if self.name == "last_value" or new is None:
            return None if self.name == "last_value" else held
        if self.name == "last_non_null_value":
            return None
        if self.name == "sum":
            return (0 if held is None else held) - new
        assert self.name == "product"
        if held is None or not isinstance(held, int):
            return held if held is None else held / new
        size = abs(held) // abs(new)
        return size if (held < 0) == (new < 0) else -size


NUMBERS = [None, None, -3, -2, -1, 1, 2, 3]
CASES: list[tuple[str, pa.DataType, list[Any], bool]] = [
    *((name, pa.int16(), NUMBERS, True) for name in ("sum", "last_value", "last_non_null_value")),
    *((name, pa.int64(), NUMBERS, True) for name in ("sum", "last_value", "last_non_null_value")),
    ("sum", pa.float64(), [None, -0.5, 0.25, 1.0, 2.0], True),
    ("sum", pa.decimal128(20, 1), [None, Decimal("-0.5"), Decimal("2.0"), Decimal("1.5")], True),
    ("product", pa.int64(), [None, -3, -2, -1, 1, 1, 2], True),
    ("product", pa.float64(), [None, -0.5, 2.0, 1.0], True),
    ("primary-key", pa.int32(), NUMBERS, True),
    *((name, pa.int32(), NUMBERS, False) for name in ("min", "max", "first_value", "first_non_null_value")),
    ("min", pa.string(), [None, "", "a", "b", "ab"], False),
    ("max", pa.float32(), [None, -1.5, 0.5, 2.0], False),
    ("bool_and", pa.bool_(), [None, True, True, False], False),
    ("bool_or", pa.bool_(), [None, True, False, False], False),
    ("listagg", pa.string(), [None, "a", "b"], False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "values", "retracts"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
@pytest.mark.parametrize("seed", range(3))
def test_many_groups_are_aggregated_as_each(
    name: str, kind: pa.DataType, values: list[Any], retracts: bool, seed: int
) -> None:
    rng = random.Random(seed)
    groups, steps = 12, 9
    inputs = [rng.choice(values) for _ in range(groups * steps)]
    state = accumulator(Function(name, {}), pa.array(inputs, kind), groups)
    fields = [Field(name) for _ in range(groups)]
    row = 0
    for _ in range(steps):
        chosen = rng.sample(range(groups), rng.randint(0, groups))
        rows = list(range(row, row + len(chosen)))
        row += len(chosen)
        at = np.array(chosen, np.int64), np.array(rows, np.int64)
        how = rng.choice(["agg", "agg", "agg", "reversed", "retract" if retracts else "agg", "set"])
        if how == "set" and name.startswith("first"):
            how = "agg"
        {"agg": state.agg, "reversed": state.agg_reversed, "retract": state.retract, "set": state.set}[how](*at)
        for group, place in zip(chosen, rows, strict=True):
            field, new = fields[group], inputs[place]
            if how == "agg":
                field.value = field.agg(field.value, new)
            elif how == "reversed":
                field.value = field.agg(new, field.value) if name != "last_value" else field.value
            else:
                field.value = new if how == "set" else field.retract(field.value, new)
    assert state.finish().to_pylist() == [field.value for field in fields]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_results_at_the_limits_of_integers(kind: pa.DataType) -> None:
    """Every pair of values near the limits and 0: the exact result where it fits, else an error, in each operation."""
    most = 2 ** (kind.bit_width - 1) - 1
    near = [
        0,
        1,
        -1,
        2,
        -2,
        most // 2,
        most // 2 + 1,
        -(most // 2) - 1,
        -(most // 2) - 2,
        most - 1,
        most,
        -most,
        -most - 1,
    ]
    one = np.zeros(1, np.int64)
    for name, back, exact in (
        ("sum", False, lambda a, b: a + b),
        ("sum", True, lambda a, b: a - b),
        ("product", False, lambda a, b: a * b),
        ("product", True, lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else None),
    ):
        for first in near:
            for second in near:
                state = accumulator(Function(name, {}), pa.array([first, second], kind), 1)
                state.agg(one, one)
                expected = exact(first, second)
                step = state.retract if back else state.agg
                if expected is None or not -most - 1 <= expected <= most:
                    with pytest.raises(
                        InvalidRequest, match="cannot retract a row with 0" if expected is None else "too large"
                    ):
                        step(one, one + 1)
                else:
                    step(one, one + 1)
                    assert state.finish().to_pylist() == [expected], (name, back, first, second)


@pytest.mark.parametrize("name", ["min", "max", "first_value", "first_non_null_value", "bool_and", "listagg"])
def test_functions_that_cannot_retract_say_so_for_a_row_alone(name: str) -> None:
    kind = pa.bool_() if name == "bool_and" else pa.string()
    state = accumulator(Function(name, {}), pa.array([True if kind == pa.bool_() else "a"], kind), 1)
    nothing = np.zeros(0, np.int64)
    state.retract(nothing, nothing)
    with pytest.raises(InvalidRequest, match=f"'{name}'"):
        state.retract(np.zeros(1, np.int64), np.zeros(1, np.int64))
    assert state.finish().to_pylist() == [None]


FOUR_DIGITS = pa.decimal128(4, 2)


def test_decimals_keep_their_digits_and_round_half_up() -> None:
    """A product with more digits than the type has becomes NULL."""

    def of(name: str, back: bool, first: str, second: str, kind: Any = FOUR_DIGITS) -> Any:
        state = accumulator(Function(name, {}), pa.array([Decimal(first), Decimal(second)], kind), 1)
        one = np.zeros(1, np.int64)
        state.agg(one, one)
        (state.retract if back else state.agg)(one, one + 1)
        return state.finish().to_pylist()[0]

    assert of("sum", False, "99.98", "0.01") == Decimal("99.99")
    assert of("sum", True, "-99.98", "0.01") == Decimal("-99.99")
    wide, most = pa.decimal128(38, 10), Decimal("9999999999999999999999999999.9999999999")
    assert of("sum", False, str(most), "0", wide) == most
    assert of("sum", False, str(most), "0.0000000001", wide) is None
    assert of("product", False, "0.05", "0.10") == Decimal("0.01") and of("product", False, "0.05", "0.09") == Decimal(
        "0.00"
    )
    assert of("product", False, "-0.05", "0.10") == Decimal("-0.01") and of("product", False, "50.00", "2.00") is None
    assert of("product", True, "1.00", "8.00") == Decimal("0.13") and of("product", True, "1.00", "3.00") == Decimal(
        "0.33"
    )
    with pytest.raises(InvalidRequest, match="a row with 0"):
        of("product", True, "1.00", "0.00")
