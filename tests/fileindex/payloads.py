"""Columns of the index payloads as Arrow arrays, and what SQL says about their predicates."""

from __future__ import annotations

import decimal
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from bitlake.expressions.tree import Comparison, In, IsNull, Leaf, Op
from bitlake.types import AtomicType, Root, arrow_type, parse_type
from bitlake.types.datatypes import TIMESTAMPS


def physical(kind: AtomicType, value: Any) -> Any:
    """A payload's JSON value as a physical literal."""
    if value is None:
        return None
    if kind.root is Root.FLOAT or kind.root is Root.DOUBLE:
        bits = int(str(value).removeprefix("bits:"), 16)
        code, width = (">f", 4) if kind.root is Root.FLOAT else (">d", 8)
        return struct.unpack(code, (bits % (1 << 8 * width)).to_bytes(width, "big"))[0]
    if kind.root in TIMESTAMPS:
        ms, ns = str(value).removesuffix("ns").split("ms+")
        precision = kind.precision or 0
        return (
            int(ms)
            if precision <= 3
            else int(ms) * 1000 + int(ns) // 1000
            if precision <= 6
            else int(ms) * 10**6 + int(ns)
        )
    if kind.root is Root.DECIMAL:
        return int(decimal.Decimal(value).scaleb(kind.scale or 0))
    if kind.root in (Root.BINARY, Root.VARBINARY):
        return bytes.fromhex(value.removeprefix("hex:"))
    if kind.root in (Root.CHAR, Root.VARCHAR, Root.BOOLEAN):
        return value
    return int(value)


def column(kind: AtomicType, values: list[Any]) -> pa.Array:
    """Physical values as the Arrow array a data file gives."""
    target = arrow_type(kind)
    if kind.root is Root.DECIMAL:
        scale = kind.scale or 0
        with decimal.localcontext(prec=60):
            return pa.array([None if v is None else decimal.Decimal(v).scaleb(-scale) for v in values], target)
    if kind.root in (Root.FLOAT, Root.DOUBLE):
        dtype = np.float32 if kind.root is Root.FLOAT else np.float64
        numbers = np.array([0 if v is None else v for v in values], dtype)
        return pa.array(numbers, target, mask=np.array([v is None for v in values], bool), from_pandas=False)
    if kind.root in TIMESTAMPS or kind.root in (Root.DATE, Root.TIME):
        width = pa.int32() if kind.root in (Root.DATE, Root.TIME) else pa.int64()
        return pa.array(values, width).cast(target)
    return pa.array(values, target)


def leaf_of(kind: AtomicType, predicate: list[Any]) -> Leaf | None:
    """A payload's predicate as a bound leaf of column ``c``; None for top-n."""
    op, *rest = predicate
    if op == "top":
        return None
    if op in ("is null", "is not null"):
        return IsNull("c", op == "is not null")
    if op in ("in", "not in"):
        return In("c", tuple(physical(kind, v) for v in rest[0]), op == "not in")
    return Comparison("c", Op(op), physical(kind, rest[0]))


def matches(leaf: Leaf, value: Any) -> bool:
    """Whether SQL (Spark) calls the leaf TRUE for a value: the slow, plain truth."""
    if isinstance(leaf, IsNull):
        return (value is None) != leaf.negated
    if value is None:
        return False
    if isinstance(leaf, In):
        return any(_compare(value, v) == 0 for v in leaf.values) != leaf.negated
    assert isinstance(leaf, Comparison)
    return _OPS[leaf.op](_compare(value, leaf.value))


def truth(leaf: Leaf, values: list[Any]) -> list[int]:
    """The positions SQL selects."""
    return [i for i, v in enumerate(values) if matches(leaf, v)]


_OPS: dict[Op, Callable[[int], bool]] = {
    Op.EQ: lambda c: c == 0,
    Op.NE: lambda c: c != 0,
    Op.LT: lambda c: c < 0,
    Op.LE: lambda c: c <= 0,
    Op.GT: lambda c: c > 0,
    Op.GE: lambda c: c >= 0,
}


def _compare(a: Any, b: Any) -> int:
    if isinstance(a, float) and (math.isnan(a) or math.isnan(b)):
        return int(math.isnan(a)) - int(math.isnan(b))
    if isinstance(a, str):
        a, b = a.encode("utf-8", "surrogatepass"), b.encode("utf-8", "surrogatepass")
    return int(a > b) - int(a < b)


def parsed(line: dict[str, Any]) -> tuple[AtomicType, list[Any]]:
    """(type, physical values) of a payload line."""
    kind = parse_type(line["type"])
    return kind, [physical(kind, v) for v in line["values"]]


def written_in_parts(array: pa.Array, writer: Callable[[], Any]) -> list[bytes]:
    """The payloads of a column that arrives whole, as a dictionary, and in parts of both kinds; ``writer`` is new."""
    cut = len(array) // 3
    out = []
    for parts in ([array], [array.dictionary_encode()], [array[:cut], array[cut:].dictionary_encode(), array[:0]]):
        made = writer()
        for part in parts:
            made.add(part)
        out.append(made.finish())
    return out


def check_every_comparison(reader: Any, rows: list[Any], literals: list[Any]) -> None:
    """A reader of ``rows`` gives, exactly, the rows SQL selects by each operator with these literals."""
    leaves: list[Leaf] = [IsNull("c"), IsNull("c", True), In("c", tuple(literals)), In("c", tuple(literals), True)]
    leaves += [Comparison("c", op, v) for v in literals for op in Op]
    for leaf in leaves:
        got = reader.test(leaf)
        assert got is not None and got.exact and got.positions(len(rows)).tolist() == truth(leaf, rows), leaf


def _rows_and_literals(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[list[Any], list[Any]]]:
    return st.tuples(st.lists(st.none() | values, max_size=60), st.lists(values, max_size=4))


FLOATS = _rows_and_literals(
    st.sampled_from([0.0, -0.0, float("nan"), 1.5, -1.5, float("inf")]) | st.floats(width=32, allow_nan=False)
)
"""A column of DOUBLE, with NULLs, and literals to compare it with."""
TEXTS = _rows_and_literals(st.sampled_from(["", "a", "ab", "é", "😀", "\0", "z" * 70]) | st.text(max_size=3))
"""A column of STRING, with NULLs, and literals to compare it with."""
