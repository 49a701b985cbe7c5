"""The vectorised engines against the model: random rows in random files, every option that changes the outcome."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long import long
from merge_model import merge_key

from bitlake.errors import InvalidRequest
from bitlake.merge.engine import merge_rows
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
