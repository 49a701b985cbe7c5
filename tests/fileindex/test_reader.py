from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long import exhaustive
from pyroaring import BitMap

from bitlake.errors import CorruptError, StorageUnavailable
from bitlake.expressions.tree import FALSE, TRUE, And, Comparison, Constant, In, IsNull, Like, Op, Or, Predicate
from bitlake.fileindex.container import encode_container
from bitlake.fileindex.cost import IndexQuery
from bitlake.fileindex.reader import FileIndexReader, open_index
from bitlake.fileindex.registry import INDEX_TYPES, IndexBuilder, IndexSpec
from bitlake.fileindex.selection import Selection
from bitlake.types import DataField, MapType, parse_type
from tests.fileindex.payloads import matches

FIELDS = [
    DataField(0, "s", parse_type("STRING")),
    DataField(1, "i", parse_type("INT")),
    DataField(2, "d", parse_type("DOUBLE")),
    DataField(3, "plain", parse_type("INT")),
    DataField(4, "m", MapType(parse_type("STRING NOT NULL"), parse_type("INT"))),
]
KINDS = {f.name: f.type for f in FIELDS}


def container(rows: dict[str, list[Any]], specs: list[tuple[str, str]]) -> bytes:
    arrow = {
        "s": pa.string(),
        "i": pa.int32(),
        "d": pa.float64(),
        "plain": pa.int32(),
        "m": pa.map_(pa.string(), pa.int32()),
    }
    builder = IndexBuilder([IndexSpec(c, t, {}) for c, t in specs], FIELDS)
    builder.add(pa.table({n: pa.array(v, arrow[n], from_pandas=False) for n, v in rows.items()}))
    return builder.finish()


def opened(data: bytes, rows: int, strict: bool = False) -> FileIndexReader:
    return open_index(lambda o, n: data[o : o + n], len(data), FIELDS, rows, strict)


def truth(predicate: Predicate, rows: dict[str, list[Any]], i: int) -> bool:
    """Whether a bound predicate is TRUE for a row (no NOT in it, so FALSE and NULL need not be told apart)."""
    match predicate:
        case Constant(value):
            return value is True
        case And(children):
            return all(truth(c, rows, i) for c in children)
        case Or(children):
            return any(truth(c, rows, i) for c in children)
        case Like():
            raise AssertionError
        case _:
            return matches(predicate, rows[predicate.column][i])  # type: ignore[arg-type,union-attr]


numbers = st.one_of(st.none(), st.integers(-3, 3))
floats = st.one_of(st.none(), st.sampled_from([0.0, -0.0, float("nan"), 1.0, -1.0]))
texts = st.one_of(st.none(), st.sampled_from(["", "a", "b", "é", "😀"]))
POOL: dict[str, list[Any]] = {
    "s": ["", "a", "b", "é", "😀", "zz"],
    "i": [-3, -1, 0, 2, 3, 7],
    "d": [0.0, -0.0, float("nan"), 1.0, 2.5],
    "plain": [0, 1],
}


def _some(draw: Any, column: str) -> Predicate:
    op = draw(st.sampled_from([*Op, "in", "null"]))
    negated = draw(st.booleans())
    if op == "null":
        return IsNull(column, negated)
    if op == "in":
        return In(column, tuple(draw(st.lists(st.sampled_from(POOL[column]), max_size=3))), negated)
    return Comparison(column, op, draw(st.sampled_from(POOL[column])))


leaves = st.composite(lambda draw: _some(draw, draw(st.sampled_from(list(POOL)))))()
trees = st.recursive(
    leaves | st.sampled_from([TRUE, FALSE, Constant(None)]),
    lambda inner: st.builds(lambda kind, c: kind(tuple(c)), st.sampled_from([And, Or]), st.lists(inner, max_size=3)),
    max_leaves=6,
)
rows_ = st.lists(st.tuples(texts, numbers, floats, numbers), min_size=1, max_size=30)
CHOICES = [(c, t) for c in ("s", "i", "d") for t in INDEX_TYPES if INDEX_TYPES[t].supports(KINDS[c])]


@pytest.mark.parametrize("examples", [60, exhaustive(300)])
def test_what_is_selected_holds_every_match(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(rows_, trees, st.lists(st.sampled_from(CHOICES), unique=True))
    def run(raw: list[Any], predicate: Predicate, specs: list[tuple[str, str]]) -> None:
        rows = dict(zip(("s", "i", "d", "plain"), map(list, zip(*raw, strict=True)), strict=True))
        data = container(rows, specs) or encode_container({})
        index = opened(data, len(raw), strict=True)
        got = index.evaluate(predicate)
        want = {i for i in range(len(raw)) if truth(predicate, rows, i)}
        chosen = set(got.positions(len(raw)).tolist())
        assert want <= chosen
        if got.exact:
            assert want == chosen
        assert index.problems == []

    run()


def test_answers() -> None:
    data = container({"s": ["a", "b", None, "a"], "i": [1, 2, 3, 4]}, [("s", "bitmap"), ("i", "bloom-filter")])
    index = opened(data, 4)
    assert index.evaluate(Comparison("s", Op.EQ, "a")).positions(4).tolist() == [0, 3]
    assert index.evaluate(Comparison("i", Op.EQ, 99)).is_empty
    assert index.evaluate(Comparison("i", Op.GT, 99)) == Selection.all()
    assert index.evaluate(Comparison("plain", Op.EQ, 1)) == Selection.all()
    assert index.evaluate(TRUE) == Selection.all(True)
    both = And((Comparison("s", Op.EQ, "a"), Comparison("plain", Op.EQ, 1)))
    assert index.evaluate(both).positions(4).tolist() == [0, 3] and not index.evaluate(both).exact
    assert index.problems == [] and index.bytes_read == len(data)


def test_map_keys() -> None:
    data = container({"m": [[("a", 1)], [("b", 1), ("a", 2)], None, []]}, [("m[a]", "bitmap"), ("m[z]", "bitmap")])
    index = opened(data, 4, strict=True)
    assert index.evaluate(Comparison("m[a]", Op.EQ, 2)).positions(4).tolist() == [1]
    assert index.evaluate(IsNull("m[a]")).positions(4).tolist() == [2, 3]
    assert index.evaluate(IsNull("m[z]")).count(4) == 4
    assert index.evaluate(IsNull("m", True)) == Selection.all()


def test_unreadable_indexes_answer_nothing_and_say_so() -> None:
    rows = {"s": ["a", "b", None, "a"], "i": [1, 2, 3, 4]}
    good = container(rows, [("s", "bitmap")])
    leaf = Comparison("s", Op.EQ, "a")
    future = encode_container({"s": {"bitmap": b"\3" + bytes(20)}})
    unknown = encode_container({"s": {"trigram": b"123"}})
    for data, says in [
        (future, "index 'bitmap' of column 's': bitmap index version 3"),
        (unknown, "index 'trigram' of column 's'"),
        (good[:-2], "index 'bitmap'|file index"),
        (b"garbage that is long enough", "the file index"),
        (b"", "the file index"),
        (encode_container({"gone": {"bitmap": b"1"}}), "no column 'gone'"),
    ]:
        name = "gone" if b"gone" in data else "s"
        index = opened(data, 4)
        for _ in range(2):
            assert index.evaluate(Comparison(name, Op.EQ, "a")) == Selection.all()
        assert len(index.problems) == 1
        with pytest.raises(CorruptError, match=says):
            opened(data, 4, strict=True).evaluate(Comparison(name, Op.EQ, "a"))
    index = opened(good, 5)
    assert index.evaluate(leaf) == Selection.all() and "4 rows" in index.problems[0]


def test_top_n() -> None:
    data = container({"i": [3, None, 9, 1], "s": ["a"] * 4}, [("i", "range-bitmap"), ("s", "bitmap")])
    index = opened(data, 4)
    assert index.top_n("i", 2, descending=True, nulls_first=False) == BitMap([0, 2])
    assert index.top_n("i", 1, descending=True, nulls_first=False, found=BitMap([0, 3])) == BitMap([0])
    tied = opened(container({"i": [3, 3, 9, 3]}, [("i", "range-bitmap")]), 4)
    assert tied.top_n("i", 2, True, False) == BitMap([2, 3]), "strictly two rows, unless all ties are asked for"
    assert tied.top_n("i", 2, True, False, strict=False) == BitMap([0, 1, 2, 3])
    assert index.top_n("s", 1, True, False) is None and index.top_n("plain", 1, True, False) is None


class Policy:
    """Skips indexes with the reasons that are left for their columns, and keeps what it was asked."""

    def __init__(self, **reasons: list[str | None]) -> None:
        self.reasons = reasons
        self.asked: list[tuple[Any, ...]] = []

    def reason_to_skip(self, reader: object, query: IndexQuery) -> str | None:
        rows = None if query.rows is None else list(query.rows)
        self.asked.append((query.leaf, query.left, rows, *query.also))
        reasons = self.reasons.get(query.leaf.column, [])
        return reasons.pop(0) if reasons else None


INDEXED = container(
    {"s": ["a", "b", None, "a"], "i": [1, 2, 3, 4], "d": [0.5, 1.5, 2.5, 3.5]},
    [("s", "bitmap"), ("i", "range-bitmap"), ("d", "bitmap")],
)
S, TOP, D = Comparison("s", Op.EQ, "a"), Comparison("i", Op.GT, 1), In("d", (0.5, 3.5))
BELOW, NOT_NULL = Comparison("i", Op.LE, 3), IsNull("s", True)


@pytest.mark.parametrize(("predicate", "reasons", "asked", "used", "skipped", "rows"), [
    # Equality first, then lists, then the others; each is told which rows those before leave.
    (And((TOP, D, S)), {}, [(S, 4, None), (D, 2, [0, 3]), (TOP, 2, [0, 3])], "sdi", "", [3]),
    (And((TOP, NOT_NULL, D)), {}, [(D, 4, None), (TOP, 2, [0, 3]), (NOT_NULL, 1, [3])], "dis", "", [3]),
    (And((D, IsNull("s"))), {}, [(IsNull("s"), 4, None), (D, 1, [2])], "sd", "", []),
    # The other end of a range is named, that of another column is not.
    (And((TOP, BELOW, Comparison("d", Op.LT, 9.0))), {},
     [(TOP, 4, None, BELOW), (BELOW, 3, [1, 2, 3], TOP), (Comparison("d", Op.LT, 9.0), 2, [1, 2])], "id", "", [1, 2]),
    (And((TOP, Comparison("i", Op.GE, 2))), {}, [(TOP, 4, None), (Comparison("i", Op.GE, 2), 3, [1, 2, 3])], "i", "",
     [1, 2, 3]),
    (Or((TOP, BELOW)), {}, [(TOP, 4, None), (BELOW, 4, None)], "i", "", [0, 1, 2, 3]),
    # What is skipped is asked again if the others leave some rows, and only then.
    (And((TOP, S)), {"s": ["large"]}, [(S, 4, None), (TOP, 4, None), (S, 3, [1, 2, 3])], "is", "", [3]),
    (And((TOP, S)), {"s": ["large", "dear"]}, [(S, 4, None), (TOP, 4, None), (S, 3, [1, 2, 3])], "i",
     "bitmap(s): dear", [1, 2, 3]),
    (And((TOP, S)), {"s": ["large"], "i": ["wide"]}, [(S, 4, None), (TOP, 4, None)], "",
     "bitmap(s): large|range-bitmap(i): wide", [0, 1, 2, 3]),
    (And((Comparison("i", Op.GT, 9), S)), {"s": ["large"]}, [(S, 4, None), (Comparison("i", Op.GT, 9), 4, None)], "i",
     "bitmap(s): large", []),
    (And((S, TOP)), {"i": ["wide"]}, [(S, 4, None), (TOP, 2, [0, 3]), (TOP, 2, [0, 3])], "si", "", [3]),
])  # fmt: skip
def test_which_indexes_a_policy_is_asked_about(
    predicate: Predicate, reasons: dict[str, list[str | None]], asked: list[Any], used: str, skipped: str,
    rows: list[int],
) -> None:  # fmt: skip
    policy = Policy(**{column: list(said) for column, said in reasons.items()})
    found = opened(INDEXED, 4, strict=True).evaluate_at_cost(predicate, policy)
    names = {"s": "bitmap(s)", "i": "range-bitmap(i)", "d": "bitmap(d)"}
    assert policy.asked == asked
    assert found.used == tuple(names[c] for c in used)
    assert found.skipped == tuple(skipped.split("|") if skipped else ())
    assert found.selection.positions(4).tolist() == rows


def test_a_policy_knows_the_bytes_of_an_index() -> None:
    lengths = []

    class Sized:
        def reason_to_skip(self, reader: object, query: IndexQuery) -> str | None:
            lengths.append((query.leaf.column, query.length))
            return None

    index = opened(INDEXED, 4, strict=True)
    index.evaluate_at_cost(Or((S, TOP, D)), Sized())
    assert lengths == [
        (c, index.columns[c][k][1]) for c, k in (("s", "bitmap"), ("i", "range-bitmap"), ("d", "bitmap"))
    ]
    without = opened(INDEXED, 4, strict=True).evaluate_at_cost(And((TOP, S)), None)
    assert without.used == ("range-bitmap(i)", "bitmap(s)") and without.skipped == ()


@pytest.mark.parametrize("rows", [None, [], [1, 2], [0, 1, 2, 3]])
def test_how_many_rows_are_null(rows: list[int] | None) -> None:
    columns: dict[str, list[Any]] = {"s": ["a", None, "b", None], "i": [None] * 4, "d": [0.5, 1.0, 1.5, 2.0]}
    data = container({**columns, "plain": [1] * 4}, [("s", "bitmap"), ("i", "range-bitmap"), ("d", "bitmap"),
                                                     ("plain", "bloom-filter")])  # fmt: skip
    index = opened(data, 4, strict=True)
    chosen = None if rows is None else BitMap(rows)
    for name, values in columns.items():
        expected = sum(values[i] is None for i in (range(4) if rows is None else rows))
        assert index.null_count(name, chosen) == expected, name
    assert index.null_count("plain", chosen) is None and index.null_count("gone", chosen) is None


def test_a_failing_store_degrades_too() -> None:
    def fetch(offset: int, n: int) -> bytes:
        raise StorageUnavailable("the store is away")

    index = open_index(fetch, 100, FIELDS, 4)
    assert index.evaluate(IsNull("s")) == Selection.all() and "away" in index.problems[0]


def test_mutated_containers_never_crash() -> None:
    rng = random.Random(4)
    rows = {"s": [rng.choice(["a", "b", None]) for _ in range(20)], "i": list(range(20))}
    good = container(rows, [("s", "bitmap"), ("s", "bloom-filter"), ("i", "bitmap")])
    predicate = Or((In("s", ("a", "x")), And((IsNull("s"), Comparison("i", Op.NE, 3))), Comparison("i", Op.LT, 4)))
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cut = bytes(data[: rng.randrange(len(data))]) if rng.random() < 0.2 else bytes(data)
        got = opened(cut, 20).evaluate(predicate)
        assert got.is_empty or got.positions(20)[-1] < 20


def test_the_first_fetch_is_of_16_kb() -> None:
    """Small containers are fetched whole with their header."""
    data, fetched = container({"i": list(range(5000))}, [("i", "range-bitmap")]), []

    def fetch(offset: int, n: int) -> bytes:
        fetched.append((offset, n))
        return data[offset : offset + n]

    index = open_index(fetch, len(data), FIELDS, 5000)
    assert fetched == [(0, 16 * 1024)] and len(data) > 17 * 1024
    assert index.evaluate(Comparison("i", Op.GE, 4990)).positions(5000).tolist() == [*range(4990, 5000)]
    assert index.bytes_read == sum(n for _, n in fetched)
