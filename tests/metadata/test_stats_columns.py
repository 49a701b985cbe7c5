"""Verdicts over columns of statistics equal those of each file by itself."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long import exhaustive, long

from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.errors import CorruptError
from bitlake.expressions.statistics import NotVectorised, Verdicts, judge, judge_leaf
from bitlake.expressions.statistics import test_stats as prove
from bitlake.expressions.tree import And, Comparison, Constant, In, IsNull, Leaf, Like, Op, Or, Predicate, columns_of
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, SimpleStats
from bitlake.metadata.stats import column_bounds, column_stats
from bitlake.types import ArrayType, DataField, parse_type

TEXT = st.text(st.sampled_from("ab?%_\ud7ff\ue000\U0010ffffé"), max_size=10)
INTS = st.one_of(st.integers(-3, 3), st.sampled_from([-128, 127]))
DOUBLES = st.one_of(st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0]), st.integers(-3, 3).map(float))
WIDE = st.one_of(st.integers(-3, 3), st.sampled_from([10**37, -(10**37), 10**20, -(10**20), 255, 256, -129]))
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": INTS,
    "SMALLINT": INTS,
    "INT": INTS,
    "BIGINT": st.one_of(INTS, st.sampled_from([-(2**63), 2**63 - 1])),
    "DATE": INTS,
    "TIME(3)": st.integers(0, 5),
    "FLOAT": DOUBLES,
    "DOUBLE": DOUBLES,
    "DECIMAL(9, 2)": INTS,
    "DECIMAL(18, 2)": INTS,
    "DECIMAL(38, 4)": WIDE,
    "STRING": TEXT,
    "CHAR(4)": TEXT,
    "VARBINARY(30)": st.binary(max_size=12),
    "TIMESTAMP(3)": INTS,
    "TIMESTAMP(6)": st.one_of(INTS, st.sampled_from([-1001, 1999, 10**15])),
    "TIMESTAMP_LTZ(9)": st.one_of(INTS, st.sampled_from([-1_000_001, 1_999_999, 10**18])),
}
FIELDS = [DataField(i, f"c{i}", parse_type(t)) for i, t in enumerate(KINDS)]
BY_NAME = dict(zip([f.name for f in FIELDS], KINDS.values(), strict=True))


@st.composite
def leaves(draw: st.DrawFn) -> Leaf:
    name = draw(st.sampled_from([*BY_NAME, "gone"]))
    values = BY_NAME.get(name, INTS)
    kinds = ["compare", "in", "null"]
    if isinstance(draw(values), str):
        kinds.append("like")
    match draw(st.sampled_from(kinds)):
        case "compare":
            return Comparison(name, draw(st.sampled_from(Op)), draw(values))
        case "null":
            return IsNull(name, draw(st.booleans()))
        case "like":
            parts = st.lists(st.one_of(TEXT.map(lambda t: t.replace("%", "").replace("_", "")), st.sampled_from("%_")))
            return Like(name, "".join(draw(parts)), draw(st.booleans()))
    found = draw(st.lists(values, max_size=5))
    nan = [v for v in found if isinstance(v, float) and math.isnan(v)][:1]
    numbers = sorted({v for v in found if not (isinstance(v, float) and math.isnan(v))})
    return In(name, tuple(numbers + nan), draw(st.booleans()))


PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    st.one_of(leaves(), st.sampled_from([Constant(True), Constant(False), Constant(None)])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda c: And(tuple(c))),
        st.lists(inner, max_size=3).map(lambda c: Or(tuple(c))),
    ),
    max_leaves=4,
)


@st.composite
def files(draw: st.DrawFn) -> tuple[list[DataFileMeta], tuple[str, ...] | None]:
    columns = draw(st.one_of(st.none(), st.lists(st.sampled_from([*BY_NAME, "no_such"]), unique=True).map(tuple)))
    names = tuple(BY_NAME) if columns is None else columns
    types = [next((f.type for f in FIELDS if f.name == n), parse_type("INT")) for n in names]
    found = []
    for _ in range(draw(st.integers(1, 5))):
        rows = draw(st.integers(0, 3))
        bounds = [sorted(draw(st.lists(BY_NAME.get(n, INTS), min_size=2, max_size=2))) for n in names]
        lows = [draw(st.sampled_from([b[0], b[0], b[0], None])) for b in bounds]
        highs = [draw(st.sampled_from([b[1], b[0], b[1], None])) for b in bounds]
        counts = draw(st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=len(names), max_size=len(names)))
        cut = draw(st.sampled_from([len(names), len(names), 0]))
        nulls = draw(st.sampled_from([tuple(counts), tuple(counts)[:cut], None]))
        stats = SimpleStats(encode_row_with_arity(types, lows), encode_row_with_arity(types, highs), nulls)
        found.append(DataFileMeta("f", 1, rows, b"", b"", EMPTY_STATS, stats, 0, 0, 0, 0, value_stats_cols=columns))
    return found, columns


def vectorised(predicate: Predicate, some: list[DataFileMeta], columns: tuple[str, ...] | None) -> list[int]:
    bounds = column_bounds([f.value_stats for f in some], FIELDS, columns, sorted(columns_of(predicate)))
    rows = np.array([f.row_count for f in some], np.int64)

    def leaf(leaf: Leaf) -> Verdicts:
        return judge_leaf(leaf, bounds[leaf.column], rows)

    found: list[int] = judge(predicate, rows, leaf, bounds).tolist()
    return found


@pytest.mark.parametrize("examples", [20, exhaustive(50), long(150)])
def test_verdicts_of_many_files_are_those_of_each(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(files(), PREDICATES)
    def run(made: tuple[list[DataFileMeta], tuple[str, ...] | None], predicate: Predicate) -> None:
        some, columns = made
        expected = [prove(predicate, column_stats(f, FIELDS), f.row_count).value for f in some]
        assert vectorised(predicate, some, columns) == expected

    run()


def one(stats: SimpleStats) -> list[DataFileMeta]:
    return [DataFileMeta("f", 1, 3, b"", b"", EMPTY_STATS, stats, 0, 0, 0, 0)] * 3


@pytest.mark.parametrize("step", [5, exhaustive(1)])
def test_damaged_rows_are_refused_as_they_are_one_by_one(step: int) -> None:
    values = [True, 1, 1, 1, 1, 1, 1, 1.0, 1.0, 1, 1, 10**20, "a" * 20, "b" * 20, b"c" * 20, 1, 1, 1]
    good = encode_row_with_arity([f.type for f in FIELDS], values)
    predicate = And(tuple(Comparison(f.name, Op.GE, v) for f, v in zip(FIELDS, values, strict=True)))
    nulls = (0,) * len(FIELDS)
    bad = 0
    for at in range(0, len(good), step):
        for change in (0x80, 0x01, 0x7F):
            row = good[:at] + bytes((good[at] ^ change,)) + good[at + 1 :]
            some = one(SimpleStats(row, good, nulls))
            try:
                expected = [prove(predicate, column_stats(some[0], FIELDS), 3).value] * 3
            except CorruptError:
                bad += 1
                with pytest.raises(CorruptError):
                    vectorised(predicate, some, None)
                continue
            try:
                assert vectorised(predicate, some, None) == expected
            except NotVectorised:
                continue
    assert bad > 50 // step
    for row in (b"", good[:-1], good[:40], struct.pack(">i", 3) + good[4:]):
        with pytest.raises(CorruptError):
            vectorised(predicate, one(SimpleStats(good, row, nulls)), None)


def test_some_of_the_files() -> None:
    types = [f.type for f in FIELDS]
    metas = []
    for i in range(10):
        lows = [True, i, i, i, i, i, i, i + 0.0, i + 0.0, i, i, i, f"{i}", f"{i}", b"%d" % i, i, i, i]
        row = encode_row_with_arity(types, lows)
        metas.append(replace(one(SimpleStats(row, row, (i % 2,) * len(FIELDS)))[0]))
    bounds = column_bounds([m.value_stats for m in metas], FIELDS, None, list(BY_NAME))
    picked = np.array([1, 4, 8])
    few = column_bounds([metas[i].value_stats for i in picked.tolist()], FIELDS, None, list(BY_NAME))
    for name in BY_NAME:
        some, wanted = bounds[name], few[name]
        assert some is not None and wanted is not None
        taken = some.take(picked)
        assert list(map(str, taken.low)) == list(map(str, wanted.low))
        assert taken.nulls.tolist() == wanted.nulls.tolist()


EDGES: dict[str, list[Any]] = {
    "BOOLEAN": [False, True],
    "BIGINT": [-(2**63), -1, 0, 2**63 - 1],
    "FLOAT": [-math.inf, -0.0, 0.0, 1.5, math.nan],
    "DOUBLE": [-math.inf, -0.0, 0.0, 1.5, math.nan],
    "DECIMAL(38, 4)": [-(2**127) + 1, -(10**20), -1, 0, 255, 256, 10**37],
    "STRING": ["", "a", "a?", "seven77", "eight888", "ab" * 9, "b?", "?", "\ud7ff"],
    "CHAR(4)": ["", "a", "a?", "abcd"],
    "VARBINARY(30)": [b"", b"a?", b"seven77", b"eight888", b"\xff" * 20],
    "TIMESTAMP(6)": [-1001, -1, 0, 1999, 10**15],
    "TIMESTAMP_LTZ(9)": [-1_000_001, -1, 0, 1_999_999, 10**18],
}


@pytest.mark.parametrize("place", [0, exhaustive(2), 61])
@pytest.mark.parametrize("kind", KINDS)
def test_every_comparison_of_a_column_in_every_place(kind: str, place: int) -> None:
    """A column's bounds are read from its own slot, whatever columns stand before it."""
    values = EDGES.get(kind, [-128, -1, 0, 1, 127])
    fields = [DataField(i, f"c{i}", parse_type("STRING" if i != place else kind)) for i in range(place + 2)]
    types, name = [f.type for f in fields], f"c{place}"

    def row(value: Any) -> bytes:
        return encode_row_with_arity(types, ["other" * (i % 3) if i != place else value for i in range(place + 2)])

    some = [
        replace(one(SimpleStats(row(low), row(high), (nulls,) * len(fields)))[0])
        for i, low in enumerate(values)
        for high in [*values[i:], None]
        for nulls in (0, 1, 3)
    ]
    rows = np.array([f.row_count for f in some], np.int64)
    bounds = column_bounds([f.value_stats for f in some], fields, None, [name])
    leaves_: list[Leaf] = [Comparison(name, op, v) for op in Op for v in values]
    leaves_ += [IsNull(name), IsNull(name, True), In(name, tuple(v for v in values[:2])), In(name, (values[-1],), True)]
    each = [{name: column_stats(f, fields)[name]} for f in some]
    for leaf in leaves_:
        expected = [prove(leaf, stats, 3).value for stats in each]
        assert judge_leaf(leaf, bounds[name], rows).tolist() == expected, leaf


def test_a_decimal_takes_one_to_sixteen_bytes() -> None:
    made = [DataField(0, "c", parse_type("DECIMAL(38, 4)"))]
    good = encode_row_with_arity([made[0].type], [-(2**127)])
    assert len(good) == 4 + 8 + 8 + 16

    def read(row: bytes) -> Any:
        return column_bounds([SimpleStats(row, row, (0,))], made, None, ["c"])["c"]

    (low,) = read(good).low.to_pylist()
    assert low == bytes(16), "the smallest number sorts first"
    for size in (0, 17):
        slot = good[12:20].replace(bytes((16,)), bytes((size,)), 1) if good[12] == 16 else None
        assert slot is not None
        with pytest.raises(CorruptError, match="of no or of more than 16 bytes"):
            read(good[:12] + slot + good[20:] + bytes(8))


LIMITS: dict[str, list[Any]] = {
    "BOOLEAN": [False, True],
    "TINYINT": [-128, -1, 0, 127],
    "SMALLINT": [-(2**15), -1, 2**15 - 1],
    "INT": [-(2**31), -1, 2**31 - 1],
    "DATE": [-(2**31), -1, 2**31 - 1],
    "TIME(3)": [0, 86_399_999],
    "BIGINT": [-(2**63), -1, 2**63 - 1],
    "FLOAT": [-1.5, -0.0, math.inf],
    "DOUBLE": [-1.5, 1e300, -math.inf],
    "DECIMAL(18, 2)": [-(10**18) + 1, 10**18 - 1],
    "DECIMAL(38, 0)": [s * 2**b + d for b in range(0, 126, 7) for s in (1, -1) for d in (-1, 0, 1)]
    + [0, -1, 10**38 - 1],
    "STRING": [*("x" * n for n in range(20)), "\u00e9" * 4, "\u4e2d" * 3],
    "BYTES": [*(bytes([n]) * n for n in range(20)), b"\xff" * 8],
    "TIMESTAMP(3)": [-(2**63), -1, 2**63 - 1],
    "TIMESTAMP(4)": [-1001, -1000, -1, 0, 999, 1000, 10**15],
    "TIMESTAMP(9)": [-1_000_001, -1, 999_999, 1_000_000, (2**62 // 10**6 - 1) * 10**6, -(2**61)],
}


@pytest.mark.parametrize("kind", LIMITS)
def test_bounds_of_many_files_are_those_of_each_at_the_limits_of_types(kind: str) -> None:
    """The column stands between others whose pieces come before and after its own; rows end with their data."""
    types = [parse_type("STRING"), parse_type(kind), parse_type("BYTES")]
    fields = [DataField(i, name, made) for i, (name, made) in enumerate(zip("abc", types, strict=True))]
    for last in (b"", b"eight by", b"nine byte"):
        rows = [encode_row_with_arity(types, ["first of it", v, last]) for v in LIMITS[kind]]
        rows += [encode_row_with_arity(types, ["first of it", None, last])]
        some = [SimpleStats(low, high, (0, i, 0)) for i, (low, high) in enumerate(zip(rows, rows[::-1], strict=True))]
        bounds = column_bounds(some, fields, None, ["b"])["b"]
        assert bounds is not None and bounds.nulls.tolist() == list(range(len(some)))
        for held, values, expected in (
            (bounds.has_low, bounds.low, [*LIMITS[kind], None]),
            (bounds.has_high, bounds.high, [None, *LIMITS[kind][::-1]]),
        ):
            assert held.tolist() == [v is not None for v in expected]
            found = values.to_pylist() if hasattr(values, "to_pylist") else values.tolist()
            for value, want in zip(found, expected, strict=True):
                if isinstance(want, str):
                    assert value == want.encode()
                elif kind == "DECIMAL(38, 0)" and want is not None:
                    assert int.from_bytes(value, "big") - 2**127 == want
                elif want is not None:
                    assert value == want


@pytest.mark.parametrize(("kind", "units"), [("TIMESTAMP(6)", 10**3), ("TIMESTAMP(9)", 10**6)])
def test_timestamps_beyond_what_arrays_hold_are_left_to_one_by_one(kind: str, units: int) -> None:
    fields = [DataField(0, "a", parse_type(kind))]
    for millis in (2**62 // units, -(2**62 // units)):
        for value, held in ((millis * units, False), ((millis - (1 if millis > 0 else -1)) * units, True)):
            row = encode_row_with_arity([fields[0].type], [value])
            if held:
                bounds = column_bounds([SimpleStats(row, row, None)], fields, None, ["a"])["a"]
                assert bounds is not None and bounds.low.tolist() == [value]
            else:
                with pytest.raises(NotVectorised):
                    column_bounds([SimpleStats(row, row, None)], fields, None, ["a"])


def test_one_column_without_pieces() -> None:
    """The whole rows of statistics then have no byte but those of their fixed part."""
    fields = [DataField(0, "a", parse_type("INT"))]
    rows = [encode_row_with_arity([fields[0].type], [v]) for v in (-5, None)]
    bounds = column_bounds([SimpleStats(r, r, None) for r in rows], fields, None, ["a"])["a"]
    assert bounds is not None and bounds.low[0] == -5 and bounds.has_low.tolist() == [True, False]
    assert bounds.nulls.tolist() == [-1, -1]
    assert column_bounds([], fields, None, ["a"])["a"] is not None


def test_nested_columns_have_counts_only() -> None:
    types = [parse_type("INT"), ArrayType(parse_type("INT"))]
    fields = [DataField(0, "a", types[0]), DataField(1, "l", types[1])]
    row = encode_row_with_arity(types, [7, None])
    bounds = column_bounds([SimpleStats(row, row, (0, 4)), SimpleStats(row, row, None)], fields, None, ["l"])["l"]
    assert bounds is not None and not bounds.truncated and bounds.nulls.tolist() == [4, -1]
    assert not bounds.has_low.any() and not bounds.has_high.any() and len(bounds.low) == len(bounds.high) == 2
    assert column_bounds([SimpleStats(row, row, None)], fields, None, ["gone"]) == {"gone": None}


def test_fewer_counts_of_nulls_than_columns() -> None:
    types = [parse_type("INT")] * 3
    fields = [DataField(i, name, made) for i, (name, made) in enumerate(zip("abc", types, strict=True))]
    row = encode_row_with_arity(types, [1, 2, 3])
    for counts in ((), (7,), (7, 8), (7, 8, 9), (None, 8, None), None):
        (file,) = one(SimpleStats(row, row, counts))[:1]
        known = [*(counts or ()), None, None, None][:3]
        assert [column_stats(file, fields)[n].null_count for n in "abc"] == known
        for name, count in zip("abc", known, strict=True):
            bounds = column_bounds([SimpleStats(row, row, counts)] * 2, fields, None, [name])[name]
            assert bounds is not None and bounds.nulls.tolist() == [-1 if count is None else count] * 2


def test_a_millisecond_has_a_million_nanoseconds() -> None:
    fields = [DataField(0, "a", parse_type("TIMESTAMP(9)"))]
    good = encode_row_with_arity([fields[0].type], [999_999])
    bad = good.replace((999_999).to_bytes(4, "little"), (1_000_000).to_bytes(4, "little"))
    assert bad != good
    for row in (good, bad):
        stats = SimpleStats(row, row, None)
        for read in (
            lambda stats=stats: column_bounds([stats], fields, None, ["a"])["a"].low.tolist()[0],  # type: ignore[union-attr]
            lambda stats=stats: column_stats(one(stats)[0], fields)["a"].min,
        ):
            if row is good:
                assert read() == 999_999
            else:
                with pytest.raises(CorruptError, match="nanoseconds"):
                    read()


@pytest.mark.parametrize("slot", [bytes(8), b"\xff" * 8, b"\xff\0\0\0\0\0\0\x81", b"\xff" * 4 + b"\x7f\0\0\0"])
def test_what_stands_in_the_slot_of_a_null_does_not_count(slot: bytes) -> None:
    """Not even where it is not UTF-8, or names a place outside of the row."""
    for kind in KINDS:
        types = [parse_type(kind), parse_type("INT")]
        fields = [DataField(0, "a", types[0]), DataField(1, "b", types[1])]
        row = encode_row_with_arity(types, [None, 7])
        row = row[:12] + slot + row[20:]
        stats = SimpleStats(row, row, None)
        alone = column_stats(one(stats)[0], fields)["a"]
        assert (alone.min, alone.max) == (None, None), kind
        bounds = column_bounds([stats], fields, None, ["a", "b"])
        assert not bounds["a"].has_low.any() and not bounds["a"].has_high.any(), kind  # type: ignore[union-attr]
        assert bounds["b"].low.tolist() == [7], kind  # type: ignore[union-attr]


def test_bounds_of_no_files_are_empty() -> None:
    for name, made in column_bounds([], FIELDS, None, [f.name for f in FIELDS]).items():
        assert made is not None, name
        assert [len(a) for a in (made.low, made.high, made.has_low, made.has_high, made.nulls)] == [0] * 5, name
