"""Aggregate functions by example: what goes in and what Paimon's tables would hold."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.merge.functions import accumulator
from bitlake.schema.merge_spec import Function

ITEM = pa.struct([("k", pa.int32()), ("v", pa.string()), ("s", pa.int32())])


def fold(name: str, kind: pa.DataType, values: list[Any], back: tuple[int, ...] = (), **options: str) -> Any:
    """The result of one group fed with the values in order; those at ``back`` are taken back."""
    function = Function(name, {k.replace("_", "-"): v for k, v in options.items()})
    state = accumulator(function, pa.array(values, kind), 1)
    group = np.zeros(1, np.int64)
    for i in range(len(values)):
        (state.retract if i in back else state.agg)(group, np.array([i]))
    result = state.finish()
    assert result.type == kind
    return result.to_pylist()[0]


@pytest.mark.parametrize(
    ("name", "kind", "values", "wanted"),
    [
        ("sum", pa.int8(), [100, None, 27], 127),
        ("sum", pa.float32(), [0.5, 0.25], 0.75),
        ("sum", pa.decimal128(5, 2), [Decimal("900.00"), Decimal("99.99")], Decimal("999.99")),
        ("sum", pa.decimal128(5, 2), [Decimal("900.00"), Decimal("100.00"), Decimal("-1.00")], Decimal("999.00")),
        ("sum", pa.decimal128(19, 2), [Decimal(10**17 - 1), Decimal(1), Decimal("-1.00")], Decimal("-1.00")),
        ("product", pa.int32(), [3, -4, None], -12),
        ("product", pa.decimal128(6, 2), [Decimal("1.25"), Decimal("1.25")], Decimal("1.56")),
        ("product", pa.float64(), [0.5, 4.0], 2.0),
        ("min", pa.string(), ["b", None, "a"], "a"),
        ("max", pa.float64(), [1.0, float("inf"), None], float("inf")),
        ("max", pa.binary(), [b"a", b"\xff"], b"\xff"),
        ("min", pa.decimal128(4, 1), [Decimal("2.5"), Decimal("-2.5")], Decimal("-2.5")),
        ("min", pa.bool_(), [True, False], False),
        ("bool_and", pa.bool_(), [True, None, False], False),
        ("bool_or", pa.bool_(), [False, None, True], True),
        ("bool_or", pa.bool_(), [None], None),
        ("listagg", pa.string(), ["a", " ", None, "b"], "a,b"),
        ("listagg", pa.string(), ["a", "\u00a0", "\u2003", "\u202f"], "a,\u00a0,\u202f"),
        ("first_not_null_value", pa.int32(), [None, 5, 6], 5),
        ("collect", pa.list_(pa.int32()), [[1, 2], None, [2]], [1, 2, 2]),
        ("collect", pa.list_(pa.int32()), [None, None], None),
        ("merge_map", pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", 2)], [("a", 3)]], [("a", 3), ("b", 2)]),
    ],
)
def test_functions(name: str, kind: pa.DataType, values: list[Any], wanted: Any) -> None:
    assert fold(name, kind, values) == wanted


def test_a_sum_with_more_digits_than_its_type_is_an_error() -> None:
    """Paimon stores 1000.00 in a DECIMAL(5, 2).  NULL lost it, and the sum began again with the next row."""
    with pytest.raises(InvalidRequest, match=r"'sum': the result is too large for decimal128\(5, 2\); give the column"):
        fold("sum", pa.decimal128(5, 2), [Decimal("900.00"), Decimal("100.00")])
    assert fold("product", pa.decimal128(5, 2), [Decimal("900.00"), Decimal("100.00")]) is None


def test_options_of_functions() -> None:
    assert fold("listagg", pa.string(), ["a;b", "b;c;;c"], list_agg_delimiter=";", distinct="true") == "a;b;c"
    assert fold("listagg", pa.string(), ["a b", "b c"], list_agg_delimiter="", distinct="true") == "a bc"
    assert fold("collect", pa.list_(pa.int32()), [[1, 2], [2, 3]], distinct="true") == [1, 2, 3]
    maps = pa.map_(pa.string(), pa.struct([("v", pa.int32()), ("t", pa.string())]))
    one = [("a", {"v": 1, "t": "2"}), ("b", {"v": 1, "t": "1"}), ("c", {"v": 1, "t": "1"})]
    two = [("a", {"v": 2, "t": "1"}), ("b", {"v": 2, "t": "2"}), ("c", None)]
    assert fold("merge_map_with_keytime", maps, [one, two]) == [one[0], two[1]]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_sums_keep_the_sign_of_zero(kind: pa.DataType) -> None:
    def is_negative(values: list[float | None], back: tuple[int, ...] = ()) -> bool:
        return bool(np.signbit(fold("sum", kind, values, back=back)))

    assert is_negative([-0.0, None]) and is_negative([-0.0, -0.0]) and not is_negative([-0.0, 0.0])
    assert is_negative([0.0], back=(0,)) and not is_negative([-0.0], back=(0,))


def test_lists_of_rows() -> None:
    items = pa.list_(ITEM)
    one, two, three = ({"k": 1, "v": "a", "s": 5}, {"k": 2, "v": "b", "s": 5}, {"k": 1, "v": "c", "s": 4})
    assert fold("nested_update", items, [[one, two], [three]]) == [one, two, three]
    assert fold("nested_update", items, [[one, two], [three]], count_limit="2") == [one, two]
    assert fold("nested_update", items, [[one, two], [three]], nested_key="k") == [three, two]
    assert fold("nested_update", items, [[one, two], [three]], nested_key="k", nested_sequence_field="s") == [one, two]
    assert fold("nested_update", items, [[one, two], [three]], (1,), nested_key="k") == [two]
    assert fold("nested_update", items, [[one, two], [two]], (1,)) == [one]
    nobody = {"k": None, "v": "n", "s": 1}
    assert fold("nested_update", items, [[one], [nobody]], nested_key="k", nested_key_null_strategy="ignore") == [one]
    with pytest.raises(InvalidRequest, match="NULL in its key"):
        fold("nested_update", items, [[one], [nobody]], nested_key="k", nested_key_null_strategy="error")
    part = {"k": 1, "v": None, "s": 9}
    assert fold("nested_partial_update", items, [[one], [part]], nested_key="k") == [{"k": 1, "v": "a", "s": 9}]


def test_bitmaps() -> None:
    a, b = (bytes(BitMap(v).serialize()) for v in ([1, 2], [2, 3]))
    assert list(BitMap.deserialize(fold("rbm32", pa.binary(), [a, b, None]))) == [1, 2, 3]
    with pytest.raises(CorruptError):
        fold("rbm32", pa.binary(), [a, b"xx"])


def test_taking_back() -> None:
    assert fold("sum", pa.int64(), [5, 3], (1,)) == 2
    assert fold("sum", pa.int64(), [3], (0,)) == -3
    assert fold("sum", pa.decimal128(5, 2), [Decimal("1.00")], (0,)) == Decimal("-1.00")
    assert fold("product", pa.int64(), [-7, 2], (1,)) == -3
    assert fold("product", pa.int64(), [2], (0,)) is None
    for kind, least in ((pa.int8(), -128), (pa.int32(), -(2**31)), (pa.int64(), -(2**63))):
        assert fold("product", kind, [least // 2, 2]) == least, "the smallest value is in range"
        assert fold("product", kind, [-(least + 1), 1]) == -(least + 1), "so is the largest"
    assert fold("last_value", pa.int64(), [5, 3], (1,)) is None
    assert fold("last_non_null_value", pa.int64(), [5, None], (1,)) == 5
    assert fold("collect", pa.list_(pa.int32()), [[1, 1, 2], [1]], (1,)) == [1, 2]
    assert fold("merge_map", pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", 2)], [("a", 0)]], (1,)) == [("b", 2)]
    assert fold("max", pa.int64(), [5, 9], (1,), ignore_retract="true") == 5


@pytest.mark.parametrize(
    ("name", "kind", "values", "back"),
    [
        ("sum", pa.int8(), [100, 28], ()),
        ("sum", pa.int64(), [2**63 - 1, 1], ()),
        ("sum", pa.int64(), [-(2**63)], (0,)),
        ("product", pa.int32(), [2**20, 2**20], ()),
        ("product", pa.int32(), [5, 0], (1,)),
        ("max", pa.int32(), [5, 0], (1,)),
        ("bool_or", pa.bool_(), [True], (0,)),
        ("listagg", pa.string(), ["a"], (0,)),
        ("sum", pa.string(), ["a"], ()),
        ("bool_and", pa.int32(), [1], ()),
        ("theta_sketch", pa.binary(), [b"", b"no sketch"], ()),
        ("hll_sketch", pa.binary(), [b"\x02\x01\x07\x0c\x03\x08\x00\x01", b"x"], ()),
        ("some_sketch", pa.binary(), [b""], ()),
    ],
)
def test_what_cannot_be_is_an_error(name: str, kind: pa.DataType, values: list[Any], back: tuple[int, ...]) -> None:
    with pytest.raises(BitlakeError):
        fold(name, kind, values, back)
    if name == "some_sketch":
        with pytest.raises(UnsupportedFeature):
            fold(name, kind, values, back)


def test_older_rows_are_added_before_what_is_held() -> None:
    """Paimon's aggReversed(held, older) is agg(older, held): all rows of its first list stay, whatever the limit."""
    items = pa.list_(ITEM)
    new = [{"k": 1, "v": "new", "s": 1}]
    older = [{"k": 2, "v": "o", "s": 1}, {"k": 3, "v": "o", "s": 1}]

    def both(values: list[Any], **options: str) -> Any:
        function = Function("nested_update", {k.replace("_", "-"): v for k, v in options.items()})
        state = accumulator(function, pa.array(values, items), 1)
        state.agg(np.zeros(1, np.int64), np.array([0]))
        state.agg_reversed(np.zeros(1, np.int64), np.array([1]))
        return state.finish().to_pylist()[0]

    assert both([new, older], nested_key="k", count_limit="1") == older
    assert both([new, older], nested_key="k", count_limit="3") == [*older, *new]
    assert both([new, older], count_limit="1") == older
    assert both([new, older], count_limit="3") == [*older, *new]
    # A key that is there already takes its newer row above the limit, too.
    assert both([older[:1], [*older[1:], *older[:1]]], nested_key="k", count_limit="1") == [older[1], older[0]]


def test_an_older_value_does_not_replace_the_first_one_that_is_held() -> None:
    """Paimon's aggReversed(held, older) is agg(older, held)."""
    group = np.zeros(1, np.int64)
    for values, wanted in ((["held", "older"], "held"), ([None, "older"], "older")):
        state = accumulator(Function("first_non_null_value", {}), pa.array(values), 1)
        state.set(group, np.array([0]))
        state.agg_reversed(group, np.array([1]))
        assert state.finish().to_pylist() == [wanted]


def test_rows_of_a_list_are_ordered_by_their_sequence_nulls_first() -> None:
    items = pa.list_(ITEM)
    none, low, high = ({"k": 1, "v": str(s), "s": s} for s in (None, -5, 5))
    for first, second, stays in (
        (none, low, low),
        (low, none, low),
        (low, high, high),
        (high, low, high),
        (none, {**none, "v": "later"}, {**none, "v": "later"}),
        (high, {**high, "v": "later"}, {**high, "v": "later"}),
    ):
        assert fold("nested_update", items, [[first], [second]], nested_key="k", nested_sequence_field="s") == [stays]


def test_taking_back_decimals() -> None:
    """As FieldProductAgg and FieldSumAgg: divided, or subtracted; NULL takes nothing back, and a product of nothing
    stays nothing."""
    kind, six, four = pa.decimal128(6, 2), Decimal("6.00"), Decimal("4.00")
    assert fold("product", kind, [six, four], (1,)) == Decimal("1.50")
    assert fold("product", kind, [six, None], (1,)) == six
    assert fold("product", kind, [four], (0,)) is None
    assert fold("sum", kind, [six, four], (1,)) == Decimal("2.00")
    assert fold("sum", kind, [six, None], (1,)) == six
    with pytest.raises(InvalidRequest, match="cannot retract a row with 0"):
        fold("product", kind, [six, Decimal("0.00")], (1,))


def test_elements_of_lists_are_equal_as_java_compares_them() -> None:
    """NaN equals NaN, and other floats only themselves; also inside of nested values."""
    nan, kind = float("nan"), pa.list_(pa.float64())
    kept = fold("collect", kind, [[1.5, nan], [2.5, 1.5, nan]], distinct="true")
    assert [str(v) for v in kept] == ["1.5", "nan", "2.5"]
    left = fold("collect", kind, [[1.5, nan, nan, 2.5], [nan, 2.5]], (1,))
    assert [str(v) for v in left] == ["1.5", "nan"]
    nested = pa.list_(pa.list_(pa.int32()))
    assert fold("collect", nested, [[[1], [1, 2]], [[], [1, 2], [1]]], distinct="true") == [[1], [1, 2], []]
    assert fold("collect", nested, [[[1], [], [1]], [[1]]], (1,)) == [[], [1]]


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_list_of_rows_grows_to_its_limit(limit: int, keyed: bool) -> None:
    """From there on new keys are left out, and held keys are still replaced."""
    options = {"nested_key": "k"} if keyed else {}
    one, two, three = ({"k": k, "v": "old", "s": 1} for k in (1, 2, 3))
    late = {"k": 1, "v": "new", "s": 1}
    found = fold("nested_update", pa.list_(ITEM), [[one, two], [three, late]], count_limit=str(limit), **options)
    room = max(limit - 2, 0)
    if keyed:
        assert found == [late, *[two, three][: limit - 1]]
    else:
        assert found == [*[one, two][:limit], *[three, late][:room]]


def test_elements_are_collected_in_the_order_of_calls() -> None:
    """Paimon's collect adds older rows at the end as well."""
    group = np.zeros(1, np.int64)
    state = accumulator(Function("collect", {}), pa.array([[1, 2], [3]], pa.list_(pa.int32())), 1)
    state.agg(group, np.array([0]))
    state.agg_reversed(group, np.array([1]))
    assert state.finish().to_pylist() == [[1, 2, 3]]
