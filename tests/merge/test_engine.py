"""The vectorised engines against the model: random rows in random files, every option that changes the outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long import long
from merge_model import merge_key

from bitlake.errors import CorruptError, InvalidRequest
from bitlake.merge import engine as stream
from bitlake.merge.engine import SortedSource, merge_rows, merge_runs
from bitlake.metadata.schema import TableSchema, assign_ids
from bitlake.schema.merge_spec import MergeSpec
from bitlake.types.datatypes import parse_type

COLUMNS = ("k", "a", "b", "g", "h", "t")
ARROW = pa.schema(
    [
        ("k", pa.int32()),
        *[(c, pa.int64()) for c in "abgh"],
        ("t", pa.string()),
        ("_SEQUENCE_NUMBER", pa.int64()),
        ("_VALUE_KIND", pa.int8()),
    ]
)


def spec_of(options: dict[str, str]) -> MergeSpec:
    names = [("k", "INT NOT NULL"), *[(c, "BIGINT") for c in "abgh"], ("t", "STRING")]
    fields, highest = assign_ids([(n, parse_type(t), None) for n, t in names])
    return MergeSpec.of(TableSchema(0, fields, highest, (), ("k",), options, None, 0))


numbers = st.one_of(st.none(), st.integers(-3, 3))


def rows(kinds: list[int]) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries(
        {
            "k": st.integers(0, 5),
            **dict.fromkeys("abgh", numbers),
            "t": st.one_of(st.none(), st.sampled_from(["x", "y", " ", ""])),
            "_VALUE_KIND": st.sampled_from(kinds),
        }
    )
    return st.lists(row, max_size=25).map(lambda rs: [{**r, "_SEQUENCE_NUMBER": i} for i, r in enumerate(rs)])


def check(spec: MergeSpec, made: list[dict[str, Any]]) -> None:
    keys: dict[int, list[dict[str, Any]]] = {}

    def order(r: dict[str, Any]) -> Any:
        sign = -1 if spec.descending else 1
        user = [(r[c] is not None, sign * (r[c] or 0)) for c in spec.sequence]
        return (*user, r["_SEQUENCE_NUMBER"])

    for r in sorted(made, key=order):
        keys.setdefault(r["k"], []).append(r)
    found_rows = [merge_key(spec, rs) for rs in keys.values()]
    wanted = [tuple(r[c] for c in COLUMNS) for r in found_rows if r is not None]
    shuffled = list(reversed(made))
    table = pa.Table.from_pylist(shuffled, schema=ARROW)
    merged = merge_rows(spec, table, COLUMNS)
    found = [tuple(r[c] for c in COLUMNS) for r in merged.to_pylist()]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    check_stored(spec, keys, table)
    for column in ("a", "t"):  # a part of the columns comes out the same
        few = spec.needed(("k", column))
        part = merge_rows(spec, table.select(list(few)), ("k", column))
        at = COLUMNS.index(column)
        wanted_part = sorted([(r[0], r[at]) for r in wanted], key=repr)
        assert sorted([tuple(r.values()) for r in part.to_pylist()], key=repr) == wanted_part


def check_stored(spec: MergeSpec, keys: dict[int, list[dict[str, Any]]], table: pa.Table) -> None:
    """One row a key in key order, deleted keys too, with the sequence number that the key has reached."""
    for alone in (True, False):
        found = merge_rows(spec, table, COLUMNS, keep_deletes=True, lone_as_is=alone).to_pylist()
        dropped = spec.ignore_delete and spec.engine == "deduplicate"
        held = {k: [r for r in rs if not (dropped and r["_VALUE_KIND"] in (1, 3))] for k, rs in keys.items()}
        assert [r["k"] for r in found] == sorted(k for k, rs in held.items() if rs)
        for row in found:
            number, kind = row.pop("_SEQUENCE_NUMBER"), row.pop("_VALUE_KIND")
            rows = held[row["k"]]
            assert number == rows[-1]["_SEQUENCE_NUMBER"]
            wanted = merge_key(spec, rows, alone)
            if len(rows) == 1 and alone:
                assert kind == rows[0]["_VALUE_KIND"]
            assert (kind in (1, 3)) == (wanted is None)
            if wanted is not None:
                assert row == {c: wanted[c] for c in COLUMNS}


KINDS = [0, 1, 2, 3]
ADDS = [0, 2]
GROUPS = {"fields.g.sequence-group": "a,t", "fields.h.sequence-group": "b"}
FUNCTIONS = {"fields.a.aggregate-function": "sum", "fields.t.aggregate-function": "listagg"}
CASES: list[tuple[dict[str, str], list[int]]] = [
    ({}, KINDS),
    ({"ignore-delete": "true"}, KINDS),
    ({"sequence.field": "g"}, KINDS),
    ({"sequence.field": "g,h", "sequence.field.sort-order": "descending"}, KINDS),
    ({"merge-engine": "partial-update"}, ADDS),
    ({"merge-engine": "partial-update", "ignore-delete": "true"}, KINDS),
    ({"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}, KINDS),
    ({"merge-engine": "partial-update", **GROUPS}, KINDS),
    ({"merge-engine": "partial-update", "fields.g,h.sequence-group": "a,b,t"}, KINDS),
    ({"merge-engine": "partial-update", **GROUPS, "partial-update.remove-record-on-sequence-group": "g"}, KINDS),
    (
        {
            "merge-engine": "partial-update",
            **GROUPS,
            **FUNCTIONS,
            "fields.t.ignore-retract": "true",
            "fields.b.aggregate-function": "first_non_null_value",
            "fields.b.ignore-retract": "true",
        },
        KINDS,
    ),
    ({"merge-engine": "partial-update", **GROUPS, "fields.a.aggregate-function": "max"}, ADDS),
    (
        {
            "merge-engine": "partial-update",
            **GROUPS,
            "fields.a.aggregate-function": "sum",
            "partial-update.remove-record-on-sequence-group": "g",
        },
        KINDS,
    ),
    ({"merge-engine": "aggregation"}, KINDS),
    ({"merge-engine": "aggregation", "fields.default-aggregate-function": "last_value"}, KINDS),
    ({"merge-engine": "aggregation", **FUNCTIONS, "fields.b.aggregate-function": "product"}, ADDS),
    ({"merge-engine": "aggregation", "fields.a.aggregate-function": "min", "fields.b.aggregate-function": "max"}, ADDS),
    (
        {
            "merge-engine": "aggregation",
            "fields.a.aggregate-function": "first_value",
            "fields.b.aggregate-function": "first_non_null_value",
            "sequence.field": "g",
        },
        ADDS,
    ),
    (
        {
            "merge-engine": "aggregation",
            "fields.a.aggregate-function": "sum",
            "fields.b.aggregate-function": "max",
            "fields.b.ignore-retract": "true",
            "aggregation.remove-record-on-delete": "true",
        },
        KINDS,
    ),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("examples", [10, long(30), long(60)])
def test_engines_do_what_the_model_does(case: int, examples: int) -> None:
    options, kinds = CASES[case]
    spec = spec_of(options)

    @settings(max_examples=examples)
    @given(rows(kinds))
    def run(made: list[dict[str, Any]]) -> None:
        check(spec, made)

    run()


def test_what_an_engine_cannot_take_is_an_error() -> None:
    row = {"k": 1, "a": 2**62, "b": 0, "g": None, "h": None, "t": None}
    twice = [{**row, "_SEQUENCE_NUMBER": i, "_VALUE_KIND": 0} for i in range(2)]
    table = pa.Table.from_pylist(twice, schema=ARROW)
    sums = spec_of({"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"})
    with pytest.raises(InvalidRequest, match="too large"):
        merge_rows(sums, table, COLUMNS)
    gone = pa.Table.from_pylist([twice[0], {**twice[1], "_VALUE_KIND": 3}], schema=ARROW)
    with pytest.raises(InvalidRequest, match="cannot merge delete rows"):
        merge_rows(spec_of({"merge-engine": "partial-update"}), gone, COLUMNS)
    with pytest.raises(InvalidRequest, match="cannot retract rows"):
        merge_rows(spec_of({"merge-engine": "aggregation", "fields.a.aggregate-function": "max"}), gone, COLUMNS)
    with pytest.raises(InvalidRequest, match="column 'nope'"):
        spec_of({"sequence.field": "nope"})


@pytest.mark.parametrize("column", ["a", "t"])
def test_functions_before_the_column_that_removes_a_row_must_retract_it(column: str) -> None:
    """Paimon goes through the columns in their order, up to the sequence column that removes the row."""
    groups = {"fields.g.sequence-group": "a,t", "partial-update.remove-record-on-sequence-group": "g"}
    functions = {f"fields.{column}.aggregate-function": "max"}
    values = [(0, 1), (3, 2)]
    made = [{"k": 1, "g": g, "a": 5, "_SEQUENCE_NUMBER": i, "_VALUE_KIND": v} for i, (v, g) in enumerate(values)]
    table = pa.Table.from_pylist(made, schema=ARROW)

    def merged(options: dict[str, str]) -> list[Any]:
        found: list[Any] = merge_rows(
            spec_of({"merge-engine": "partial-update", **options}), table, COLUMNS
        ).to_pylist()
        return found

    if COLUMNS.index(column) < COLUMNS.index("g"):
        with pytest.raises(InvalidRequest, match="'max' cannot retract rows"):
            merged({**groups, **functions})
    else:
        assert merged({**groups, **functions}) == []
    assert merged({**groups, **functions, f"fields.{column}.ignore-retract": "true"}) == []
    assert merged({**groups, f"fields.{column}.aggregate-function": "last_value"}) == []


@pytest.mark.parametrize(("rows", "merged"), [
    ([(0, 1, 5), (3, 2, 6)], None),  # a delete that is not older removes the row
    ([(0, 1, 5), (3, 1, 6)], None),
    ([(0, 2, 5), (3, 1, 6)], (2, 5)),  # an older one removes nothing
    ([(0, 1, 5), (3, None, 6)], (1, 5)),
    ([(0, 1, 5), (1, 2, 6)], (2, None)),  # an update's old row clears the group's columns
    ([(0, 1, 5), (3, 2, 6), (0, 3, 7)], (3, 7)),  # and a later row brings the key back
    ([(3, 2, 6)], None),
])  # fmt: skip
def test_a_sequence_group_removes_rows(
    rows: list[tuple[int, int | None, int]], merged: tuple[int | None, int | None] | None
) -> None:
    options = {"fields.g.sequence-group": "a,t", "partial-update.remove-record-on-sequence-group": "g"}
    spec = spec_of({"merge-engine": "partial-update", **options})
    made = [{"k": 1, "g": g, "a": a, "_SEQUENCE_NUMBER": i, "_VALUE_KIND": v} for i, (v, g, a) in enumerate(rows)]
    found = merge_rows(spec, pa.Table.from_pylist(made, schema=ARROW), COLUMNS).select(["g", "a"]).to_pylist()
    assert [tuple(r.values()) for r in found] == ([] if merged is None else [merged])


keys = st.one_of(
    st.just(st.tuples(st.integers(-5, 40))),
    st.just(st.tuples(st.text("ab\u00e9\U0001f600", max_size=3))),
    st.just(st.tuples(st.integers(0, 3), st.text("xy", max_size=2))),
    st.just(st.tuples(st.floats(allow_nan=False), st.booleans())),
)
runs = keys.flatmap(lambda key: st.lists(st.tuples(st.sets(key, max_size=25), st.integers(1, 7)), max_size=5))


def table_of(rows: Sequence[tuple[Any, ...]], run: int) -> pa.Table:
    columns = [[r[i] for r in rows] for i in range(len(rows[0]))]
    return pa.table({**{f"k{i}": c for i, c in enumerate(columns)}, "run": [run] * len(rows)})


def batches(rows: Sequence[tuple[Any, ...]], size: int, run: int, taken: list[int]) -> Iterator[pa.Table]:
    for start in range(0, len(rows), size):
        taken[run] += len(rows[start : start + size])
        yield table_of(rows[start : start + size], run)


def place(key: tuple[Any, ...]) -> tuple[Any, ...]:
    # -0.0 is below 0.0.
    return tuple((v, str(v)[0] != "-") if isinstance(v, float) else v for v in key)


@settings(max_examples=150, deadline=None)
@given(runs, st.sampled_from([1, 300, 1 << 30]))
def test_every_key_comes_whole_and_in_order(made: list[tuple[set[Any], int]], memory: int) -> None:
    held = stream.MEMORY
    stream.MEMORY = memory
    try:
        sorted_runs = [(sorted(rows, key=place), size) for rows, size in made]
        taken = [0] * len(made)
        width = next((len(r[0]) for r, _ in sorted_runs if r), 1)
        sources = [SortedSource(batches(r, n, i, taken), f"run {i}") for i, (r, n) in enumerate(sorted_runs)]
        names = [f"k{i}" for i in range(width)]
        found: list[tuple[Any, ...]] = []
        last: tuple[Any, ...] | None = None
        for chunk in merge_runs(sources, names):
            assert chunk.num_rows
            rows = [tuple(r.values()) for r in chunk.to_pylist()]
            chunk_keys = sorted(place(r[:-1]) for r in rows)
            assert last is None or chunk_keys[0] > last
            last = chunk_keys[-1]
            found += rows
            if memory == 1:
                # A run holds one batch that is not out yet, at most.
                for i, (_, size) in enumerate(sorted_runs):
                    assert taken[i] - sum(r[-1] == i for r in found) <= 2 * size
        wanted = [(*k, i) for i, (r, _) in enumerate(sorted_runs) for k in r]
        assert sorted(found, key=repr) == sorted(wanted, key=repr)
    finally:
        stream.MEMORY = held


def test_small_runs_come_as_one_chunk() -> None:
    taken = [0, 0]
    parts = [batches([(i,) for i in range(n, 100, 2)], 7, n, taken) for n in (0, 1)]
    (chunk,) = merge_runs([SortedSource(p, "") for p in parts], ["k0"])
    assert chunk.num_rows == 100


@pytest.mark.parametrize("rows", [[2, 1], [1, 2, 3, 1], [None, 1]])
def test_rows_that_are_not_in_key_order_are_an_error(rows: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MEMORY", 1)
    parts = [pa.table({"k0": pa.array(rows[i : i + 3], pa.int64())}) for i in range(0, len(rows), 3)]
    with pytest.raises(CorruptError, match="the file"):
        list(merge_runs([SortedSource(iter(parts), "the file")], ["k0"]))


@pytest.mark.parametrize("memory", [1, 200, 1 << 30])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_key_that_a_run_repeats_comes_whole(size: int, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some releases of pypaimon sorted the rows of an upsert and did not merge them."""
    monkeypatch.setattr(stream, "MEMORY", memory)
    runs = [[(i // 3,) for i in range(40)], [(i // 2,) for i in range(9, 50)], [(5,)] * 11]
    taken = [0] * len(runs)
    sources = [SortedSource(batches(rows, size, i, taken), f"run {i}") for i, rows in enumerate(runs)]
    chunks = [[r["k0"] for r in chunk.to_pylist()] for chunk in merge_runs(sources, ["k0"])]
    assert sorted(k for chunk in chunks for k in chunk) == sorted(k for run in runs for (k,) in run)
    assert all(max(one) < min(other) for one, other in pairwise(chunks))
    assert memory > 1 or len(chunks) > 3
