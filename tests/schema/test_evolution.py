"""Tables whose columns change: old files read by field id, filters and indexes used where they still mean the same."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from answers import arrow_rows
from hypothesis import given, settings
from hypothesis import strategies as some
from long import long

import bitlake
from bitlake.errors import AlreadyExists, CommitConflict, CorruptError, InvalidRequest, NotFound
from bitlake.schema.evolution import align
from bitlake.types import DataField, from_arrow, parse_type

INDEXED = {"file-index.bitmap.columns": "a,v", "file-index.bloom-filter.columns": "v"}


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(str(tmp_path / "lake"))


def made(lake: bitlake.Lake, rows: pa.Table, **options: str) -> bitlake.Table:
    table = lake.create_table("t", rows.schema, options=options)
    table.append(rows)
    return table


def simple() -> pa.Table:
    return pa.table(
        {"id": pa.array(range(6), pa.int32()), "a": pa.array([1, 2, 300, None, 2, -5], pa.int32()), "v": list("xyzxyz")}
    )


# --- reading ---------------------------------------------------------------------------------------------------------


def test_columns_are_found_by_id(lake: bitlake.Lake) -> None:
    table = made(lake, simple())
    table.rename_column("v", "w")
    table.add_column("v", pa.string(), first=True, comment="another v")
    table.drop_column("a")
    table.add_column("a", pa.int32())
    assert table.schema.field_names == ("v", "id", "w", "a")
    assert arrow_rows(table.scan(where="id = 1").to_arrow()) == [[None, 1, "y", None]]
    table.append(pa.table({"v": ["n"], "id": pa.array([7], pa.int32()), "w": ["o"], "a": pa.array([9], pa.int32())}))
    assert arrow_rows(table.scan(where="v = 'n' or w = 'x'").to_arrow()) == [
        [None, 0, "x", None],
        [None, 3, "x", None],
        ["n", 7, "o", 9],
    ]
    assert table.scan(where="a is null").count() == 6


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_members_of_structs_lists_and_maps_are_found_by_id(lake: bitlake.Lake, file_format: str) -> None:
    inner = pa.struct([("x", pa.int32()), ("y", pa.string())])
    schema = pa.schema([("s", inner), ("l", pa.list_(inner)), ("m", pa.map_(pa.string(), inner))])
    one, two = {"x": 1, "y": "p"}, {"x": None, "y": "q"}
    rows = [
        {"s": one, "l": [one, None, two], "m": [("k", two), ("n", None)]},
        {"s": None, "l": None, "m": None},
        {"s": two, "l": [], "m": []},
    ]
    table = made(lake, pa.Table.from_pylist(rows, schema), **{"file.format": file_format})
    table.drop_column("s.y")
    table.add_column("s.y", pa.string())  # a new one: the old values must not come back
    table.rename_column("l.element.x", "xx")
    table.alter_column("l.element.xx", type=pa.int64(), after="y")
    table.add_column(("m", "value", "z"), pa.float64(), first=True)
    table.alter_column("m.value.x", type="STRING")
    found = table.scan().to_arrow().to_pylist()
    assert [r["s"] for r in found] == [{"x": 1, "y": None}, None, {"x": None, "y": None}]
    assert found[0]["l"] == [{"y": "p", "xx": 1}, None, {"y": "q", "xx": None}]
    assert found[0]["m"] == [("k", {"z": None, "x": None, "y": "q"}), ("n", None)]
    assert found[1]["l"] is None and found[1]["m"] is None
    assert found[2]["l"] == [] and found[2]["m"] == []
    table.append(table.scan().to_arrow())
    assert table.scan().to_arrow().to_pylist() == found + found


def test_retyped_columns_are_cast_when_read(lake: bitlake.Lake) -> None:
    table = made(lake, simple(), **INDEXED)
    table.alter_column("a", type="TINYINT")
    assert table.scan(["a"]).to_arrow().column("a").to_pylist() == [1, 2, 44, None, 2, -5]
    assert table.scan(where="a = 44").count() == 1
    assert table.scan(where="a < 100").count() == 5
    table.alter_column("a", type="STRING")
    assert table.scan(where="a = '300'").count() == 1
    assert table.scan(where="a like '2%'", limit=1).to_arrow().num_rows == 1
    with pytest.raises(InvalidRequest, match="bitmap takes .*; change that option first"):
        table.alter_column("a", type="DECIMAL(3, 1)")
    table.alter_options({"file-index.bitmap.columns": "v"})
    table.alter_column("a", type="DECIMAL(3, 1)")
    assert table.scan(["a"]).to_arrow().column("a").to_pylist() == [
        Decimal(1),
        Decimal(2),
        None,
        None,
        Decimal(2),
        Decimal(-5),
    ]
    assert table.scan(where="a is null").count() == 2
    assert table.scan(where="a is not null", limit=9).to_arrow().num_rows == 4


def test_a_value_without_counterpart_is_named(lake: bitlake.Lake) -> None:
    table = made(lake, simple())
    table.alter_column("v", type="INT")
    assert table.scan(["id"]).to_arrow().num_rows == 6
    with pytest.raises(
        InvalidRequest, match=r"column 'v' was STRING when .*data-.* and is INT now.*'x' cannot be read"
    ):
        table.scan().to_arrow()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (pa.scalar([1]), "BIGINT"),
        (pa.scalar(dt.date(2024, 1, 1)), "TINYINT"),
        (pa.scalar(True), "DATE"),
        (pa.scalar(dt.time(1, 2), pa.time32("ms")), "INT"),
        (pa.scalar(b"12"), "DOUBLE"),
        (pa.scalar(dt.datetime(2024, 1, 1)), "BOOLEAN"),
    ],
)
def test_types_without_a_cast_are_not_read_by_way_of_a_third(lake: bitlake.Lake, value: pa.Scalar, kind: str) -> None:
    """Bug: a day became a number of days, cut to its last byte, and lists and times ended in errors of Arrow."""
    table = made(lake, pa.table({"id": [1], "v": pa.array([value])}))
    table.alter_column("v", type="STRING")
    table.alter_column("v", type=kind)
    with pytest.raises(InvalidRequest, match=f"column 'v' was .* is {kind} now.* (become|converted to) {kind}"):
        table.to_arrow()
    assert table.to_arrow(["id"]).num_rows == 1


def test_texts_are_cut_to_a_shorter_length(lake: bitlake.Lake) -> None:
    table = made(lake, pa.table({"v": ["abcdef", "ab", None]}), **{"file-index.bitmap.columns": "v"})
    table.alter_column("v", type="VARCHAR(3)")
    assert table.scan(where="v = 'abc'").to_arrow().to_pylist() == [{"v": "abc"}]
    assert table.scan(where="v = 'ab'").count() == 1


# --- filters and indexes ---------------------------------------------------------------------------------------------


def test_indexes_written_before_a_rename_and_a_widening_still_prune(lake: bitlake.Lake) -> None:
    table = made(lake, simple(), **INDEXED)
    table.rename_column("a", "b")
    table.alter_column("b", type=pa.int64())
    table.rename_column("v", "w")
    assert table.schema.options["file-index.bitmap.columns"] == "b,w"
    plan = table.scan(where="b = 2").plan()
    assert plan.files[0].selection.exact and plan.files[0].selection.positions(6).tolist() == [1, 4]
    assert table.scan(where="w = 'y' and b in (2, 5000000000)").plan().chosen_rows == 2
    assert table.scan(where="b = 5000000000").plan().files == ()
    assert table.scan(where="b < 5000000000").count() == 5
    assert table.scan(where="b not in (5000000000)").count() == 5
    assert table.scan(where="b > -5000000000 and w = 'nope'").plan().files == ()
    assert "b" in table.scan(where="b = 7").explain()


def test_what_a_file_can_only_half_say_is_not_exact(lake: bitlake.Lake) -> None:
    table = made(lake, simple(), **INDEXED)
    table.append(simple())
    table.alter_column("a", type="STRING")
    for where, rows in (
        ("a = '2'", 4),
        ("a = '2' and v = 'y'", 4),
        ("a = '300' and v = 'y'", 0),
        ("a = '2' or v = 'x'", 8),
    ):
        scan = table.scan(where=where)
        assert not any(f.selection.exact for f in scan.plan().files), where
        assert scan.count() == rows, where
        # Rows that only can match must not fill the limit.
        assert scan.limit(8).to_arrow().num_rows == rows, where


def test_a_backfill_builds_from_the_right_column(lake: bitlake.Lake) -> None:
    """apache/paimon issue 10091: after drop and add of a name, the old column's values must not be indexed."""
    table = made(lake, simple())
    table.drop_column("v")
    table.add_column("v", pa.string())
    table.append(pa.table({"id": pa.array([9], pa.int32()), "a": pa.array([9], pa.int32()), "v": ["x"]}))
    table.alter_options({"file-index.bitmap.columns": "v"})
    table.indexes.rebuild()
    scan = table.scan(["id"], where="v = 'x'")
    assert scan.to_arrow().column("id").to_pylist() == [9]
    assert table.scan(where="v is null").count() == 6
    assert [d.new for d in table.indexes.rebuild()] == [None, None]


def test_a_backfill_after_rename_and_retype(lake: bitlake.Lake) -> None:
    table = made(lake, simple())
    table.rename_column("a", "b")
    table.alter_column("b", type=pa.float64())
    table.alter_options({"file-index.bitmap.columns": "b", "file-index.bsi.columns": "id"})
    table.indexes.rebuild()
    assert table.scan(where="b = 2").count() == 2
    assert table.scan(where="b = 300.0 and id = 2").count() == 1
    table.drop_column("b")
    assert table.schema.options == {"file-index.bsi.columns": "id"}
    table.indexes.rebuild()
    assert table.scan(where="id >= 3").plan().chosen_rows == 3


@pytest.mark.parametrize("threshold", ["1 mb", "1 b"])
def test_a_file_may_lose_and_get_an_index_again(lake: bitlake.Lake, threshold: str) -> None:
    """An entry that was deleted must never come back: readers would take the file for deleted."""
    table = made(lake, simple(), **{"file-index.in-manifest-threshold": threshold})
    for _ in range(3):
        table.alter_options({"file-index.bitmap.columns": "v"})
        table.indexes.rebuild()
        assert table.scan(where="v = 'x'").plan().chosen_rows == 2
        table.alter_options(unset=["file-index.bitmap.columns"])
        table.indexes.rebuild()
        assert table.scan().count() == 6
        assert table.scan(where="v = 'x'").plan().chosen_rows == 6
        assert [d.new for d in table.indexes.rebuild()] == [None]


def test_files_of_a_type_that_an_index_does_not_take_go_without(lake: bitlake.Lake) -> None:
    table = made(lake, pa.table({"a": [1.0, 2.5]}))
    table.alter_column("a", type="INT")
    table.append(pa.table({"a": pa.array([2, 3], pa.int32())}))
    table.alter_options({"file-index.bsi.columns": "a"})
    table.indexes.rebuild()
    assert table.scan(where="a = 2").to_arrow().num_rows == 2


def test_index_types_that_a_new_type_cannot_have_are_refused(lake: bitlake.Lake) -> None:
    table = made(lake, simple(), **{"file-index.bsi.columns": "a"})
    with pytest.raises(InvalidRequest, match=r"file-index\.bsi\.columns.*'a' is of type STRING"):
        table.alter_column("a", type="STRING")


def test_a_change_of_a_wide_table_compares_each_column_once(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each column was compared with all others: adding one to 1,000 columns took 0.2 s, nearly all of it for that."""
    table = lake.create_table("wide", pa.schema([(f"c{i}", pa.int64()) for i in range(200)]))
    compared = 0
    equal = DataField.__eq__

    def count(self: DataField, other: object) -> bool:
        nonlocal compared
        compared += 1
        return equal(self, other)

    monkeypatch.setattr(DataField, "__eq__", count)
    table.add_column("more", "INT")
    assert compared < 2000


def test_buckets_are_not_pruned_by_another_types_hash(lake: bitlake.Lake) -> None:
    rows = pa.table({"k": pa.array([-1, 2, 3, -7], pa.int32()), "v": list("abcd")})
    table = lake.create_table("t", rows.schema, options={"bucket": "8", "bucket-key": "k"})
    table.append(rows)
    with pytest.raises(InvalidRequest, match="bucket-key"):
        table.alter_column("k", type=pa.int64())
    # Another engine may have done it all the same.
    fields = tuple(f if f.name != "k" else type(f)(f.id, f.name, parse_type("BIGINT")) for f in table.schema.fields)
    new = table.schema.next(fields=fields)
    assert table._core.store.create(f"{table.path}/schema/schema-{new.id}", new.to_json().encode())
    for key, value in (("-1", "a"), ("2", "b"), ("-7", "d")):
        assert table.scan(["v"], where=f"k = {key}").to_arrow().column("v").to_pylist() == [value]


# --- changing --------------------------------------------------------------------------------------------------------


def test_defaults_are_for_new_rows_only(lake: bitlake.Lake) -> None:
    table = made(lake, simple())
    table.add_column("d", pa.date32())
    table.add_column("n", pa.decimal128(5, 2))
    table.alter_column("d", default="'2024-02-29'")
    table.alter_column("n", default="1.5")
    table.append(pa.table({"id": pa.array([9], pa.int32())}))
    assert arrow_rows(table.scan(["id", "d", "n"], where="id in (5, 9)").to_arrow()) == [
        [5, None, None],
        [9, dt.date(2024, 2, 29), Decimal("1.50")],
    ]
    with pytest.raises(InvalidRequest, match=r"invalid default current_date\(\) for DATE"):
        table.alter_column("d", default="current_date()")
    with pytest.raises(InvalidRequest, match="invalid default 'x' for INT"):
        table.alter_column("n", type="INT", default="'x'")
    table.alter_column("d", default="")
    assert table.schema.field("d").default_value is None


@pytest.mark.parametrize("key", [[], ["a"]])
def test_a_struct_with_members_that_are_not_null_may_be_missing(lake: bitlake.Lake, key: list[str]) -> None:
    """Its members were NULL in rows without it, and could then not be written, nor older files compacted."""
    table = lake.create_table("t", pa.schema([("a", pa.int32())]), primary_key=key)
    rows = pa.table({"a": pa.array([1, 2], pa.int32())})
    table.append(rows)
    inner = pa.struct([pa.field("y", pa.string(), False)])
    table.add_column("s", pa.struct([pa.field("x", pa.int32(), False), pa.field("r", inner, False)]))
    table.append(rows.slice(0, 1))
    table.maintenance.compact(full=True)
    assert [r["s"] for r in table.scan().to_arrow().to_pylist()] == [None] * (2 if key else 3)
    assert len(table._core.state().entries()) == 1


def test_nested_types_are_given_as_arrow_types(lake: bitlake.Lake) -> None:
    table = made(lake, simple())
    for text in ("ARRAY<INT>", "MAP<STRING, INT>", "ROW<x INT>"):
        with pytest.raises(InvalidRequest, match=r"only plain types are given as text; .* pa\.list_\(pa\.int32\(\)\)"):
            table.add_column("n", text)
    assert str(table.add_column("n", pa.list_(pa.int32())).fields[-1].type) == "ARRAY<INT>"


def test_not_null_is_for_columns_without_null(lake: bitlake.Lake) -> None:
    table = made(lake, simple(), **{"alter-column-null-to-not-null.disabled": "false"})
    table.alter_column("id", nullable=False)
    with pytest.raises(InvalidRequest, match=r"table 'default\.t': column 'a' holds NULL"):
        table.alter_column("a", nullable=False)
    table.add_column("n", pa.int32())
    with pytest.raises(InvalidRequest, match="column 'n' holds NULL"):
        table.alter_column("n", nullable=False)
    assert table.scan(["id"]).to_arrow().schema.field("id").nullable is False


def test_columns_are_dropped_then_renamed_then_added(lake: bitlake.Lake) -> None:
    table = made(lake, simple())
    before = table.schema
    after = table.alter(drop=["a"], rename={before.field_names[-1]: "last"}, add={"a": "DATE", "n": pa.int16()})
    kept = [n for n in before.field_names if n != "a"]
    assert after.field_names == (*kept[:-1], "last", "a", "n") and after.id == before.id + 1
    assert str(after.field("a").type) == "DATE" and table.scan(["a"]).count("a") == 0


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (pa.list_(pa.int32()), pa.array([{"x": 1}])),
        (pa.map_(pa.string(), pa.int32()), pa.array([[1]])),
        (pa.struct([("x", pa.int32())]), pa.array([1])),
        (pa.list_(pa.list_(pa.int32())), pa.array([[1]])),
    ],
)
def test_nested_columns_of_another_kind_are_damage(kind: pa.DataType, stored: pa.Array) -> None:
    """A file that stored a struct for a list raised AttributeError."""
    field = DataField(0, "n", from_arrow(kind))
    with pytest.raises(CorruptError, match="column 'n.*' holds .*, which cannot be read as"):
        align(stored, field, field, "f.parquet")


def test_changes_come_all_or_not_at_all(lake: bitlake.Lake) -> None:
    table = made(lake, simple())
    before = table.schema
    with pytest.raises(AlreadyExists, match=r"table 'default\.t': column 'A' already exists"):
        table.alter(add={"n": "INT", "A": "INT"})
    assert table.schema == before
    with pytest.raises(InvalidRequest, match=r"default\.t': nothing to change"):
        table.alter()
    with pytest.raises(InvalidRequest, match=r"such as \['a'\]"):
        table.alter(drop="a")
    with pytest.raises(NotFound, match="did you mean"):
        table.drop_column("idd")
    assert table.drop_column("nope", if_exists=True) == before
    with pytest.raises(InvalidRequest, match="nothing to change"):
        table.alter_column("a")
    with pytest.raises(InvalidRequest, match="not both"):
        table.add_column("n", pa.int32(), first=True, after="a")


def test_two_writers_of_schemas_take_turns(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = made(lake, simple()), lake.table("t")
    create: Callable[[str, bytes], bool] = table._core.store.create
    once = [True]

    def late(path: str, data: bytes) -> bool:
        if once and "/schema-" in path:
            once.clear()
            other.add_column("first", pa.int32())
        return create(path, data)

    monkeypatch.setattr(table._core.store, "create", late)
    table.add_column("second", pa.int32())
    assert table.schema.field_names == ("id", "a", "v", "first", "second")
    assert [f.id for f in table.schema.fields] == [0, 1, 2, 3, 4]
    monkeypatch.setattr(table._core.store, "create", lambda path, data: False)
    with pytest.raises(CommitConflict, match="times in a row"):
        table.add_column("third", pa.int32())


def test_renaming_tables(lake: bitlake.Lake) -> None:
    made(lake, simple())
    lake.create_database("other")
    assert lake.rename_table("t", "other.u").scan().count() == 6
    assert (lake.tables(), lake.tables("other")) == ([], ["u"])
    made(lake, simple())
    with pytest.raises(AlreadyExists, match=r"other\.u"):
        lake.rename_table("t", "other.u")
    with pytest.raises(NotFound, match="nope"):
        lake.rename_table("nope", "x")
    with pytest.raises(NotFound, match="database 'no'"):
        lake.rename_table("t", "no.x")


# --- any sequence of changes, against a plain model ------------------------------------------------------------------

TYPES = ["TINYINT", "INT", "BIGINT", "STRING"]
BITS = {"TINYINT": 8, "INT": 32, "BIGINT": 64}


def cast(value: Any, written: str, wanted: str) -> Any:
    """The model's cast: all texts here are numbers that fit."""
    if value is None or written == wanted:
        return value
    if wanted == "STRING":
        return str(value)
    bits = BITS[wanted]
    return (int(value) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


class Model:
    """Columns as [name, id, type]; each row maps an id to the value and type it was written with."""

    def __init__(self) -> None:
        self.columns: list[list[Any]] = [["c0", 0, "INT"], ["c1", 1, "STRING"]]
        self.rows: list[dict[int, tuple[Any, str]]] = []
        self.next_id = 2

    def read(self) -> list[list[Any]]:
        return [
            [cast(*r[i], kind) if i in r else None for _, i, kind in self.columns]
            for r in self.rows
        ]  # fmt: skip


def change(rng: random.Random, table: bitlake.Table, model: Model) -> None:
    column = rng.choice(model.columns)
    others = [c for c in model.columns if c is not column]
    match rng.choice(["append", "append", "add", "drop", "rename", "retype", "move", "index", "rewrite"]):
        case "append":
            rows = []
            for _ in range(rng.randint(1, 5)):
                values = {
                    i: (rng.choice([None, *([1, -1, 7, 100] if k != "STRING" else ["1", "7", "100"])]), k)
                    for _, i, k in model.columns
                }
                rows.append(values)
            arrays = {}
            for name, i, kind in model.columns:
                arrow = {"TINYINT": pa.int8(), "INT": pa.int32(), "BIGINT": pa.int64(), "STRING": pa.string()}[kind]
                scale = 1 if kind in ("TINYINT", "STRING") else rng.choice([1, 1000])
                for r in rows:
                    if r[i][0] is not None and kind != "STRING":
                        r[i] = (r[i][0] * scale, kind)
                arrays[name] = pa.array([r[i][0] for r in rows], arrow)
            table.append(pa.table(arrays))
            model.rows += rows
        case "add":
            name, kind = f"c{rng.randint(0, 9)}", rng.choice(TYPES)
            if name not in [c[0] for c in model.columns]:
                after = rng.choice(model.columns)
                table.add_column(name, kind, after=after[0])
                model.columns.insert(model.columns.index(after) + 1, [name, model.next_id, kind])
                model.next_id += 1
        case "drop" if others:
            table.drop_column(column[0])
            model.columns.remove(column)
        case "rename":
            name = f"c{rng.randint(0, 9)}"
            if name not in [c[0] for c in model.columns]:
                table.rename_column(column[0], name)
                column[0] = name
        case "retype":
            kind = rng.choice(TYPES)
            narrow = kind in ("TINYINT", "INT")
            if not (
                narrow
                and any(
                    r.get(column[1], (0, ""))[1] == "STRING" and abs(int(r[column[1]][0] or 0)) > 127
                    for r in model.rows
                )
            ):
                table.alter_column(column[0], type=kind)
                column[2] = kind
        case "move" if others:
            table.alter_column(column[0], first=True)
            model.columns.remove(column)
            model.columns.insert(0, column)
        case "index":
            table.alter_options(
                {f"file-index.{rng.choice(['bitmap', 'bloom-filter', 'range-bitmap'])}.columns": column[0]}
            )
        case "rewrite":
            table.indexes.rebuild()


def check(rng: random.Random, table: bitlake.Table, model: Model) -> None:
    everything = model.read()
    assert table.schema.field_names == tuple(c[0] for c in model.columns)
    # A rewritten index moves its file to the end of the plan: the order of files is nobody's promise.
    assert sorted(arrow_rows(table.scan().to_arrow()), key=repr) == sorted(everything, key=repr)
    at = rng.randrange(len(model.columns))
    name, _, kind = model.columns[at]
    value: Any = rng.choice([1, 7, 100, 1000, -1000, 7000, 100000])
    if kind == "STRING":
        value = str(value)
    elif kind == "TINYINT":
        value = cast(value, "INT", "TINYINT")
    tests: dict[str, Callable[[Any], bool]] = {
        "=": lambda v: v == value,
        "<>": lambda v: v != value,
        "<": lambda v: v < value,
        ">=": lambda v: v >= value,
    }
    op = rng.choice(list(tests))
    wanted = [r for r in everything if r[at] is not None and tests[op](r[at])]
    scan = table.scan(where=f"{name} {op} {value!r}")
    assert sorted(arrow_rows(scan.to_arrow()), key=repr) == sorted(wanted, key=repr)
    assert scan.count() == len(wanted)
    assert scan.limit(2).to_arrow().num_rows == min(2, len(wanted))
    values = [r[at] for r in everything if r[at] is not None]
    everywhere = table.scan()
    assert everywhere.count(name) == len(values)
    assert scan.count(name) == len(wanted)
    assert set(everywhere.distinct(name).to_pylist()) - {None} == set(values)
    assert {r["count"] for r in scan.group_count(name).to_pylist()} == set(Counter(r[at] for r in wanted).values())
    if values:
        low, high = everywhere.min_max(name)
        assert (getattr(low, "as_py", lambda: low)(), getattr(high, "as_py", lambda: high)()) == (
            min(values),
            max(values),
        )
    top = everywhere.top_n([(name, "desc")], 3).to_arrow().column(name).to_pylist()
    assert top == [*sorted(values, reverse=True), *[None] * (len(everything) - len(values))][:3]
    nulls = [r for r in everything if r[at] is None]
    assert table.scan(where=f"{name} IS NULL").count() == len(nulls)


@pytest.mark.exhaustive
@pytest.mark.parametrize("examples", [6, long(15)])
def test_any_changes_read_as_a_plain_model_does(examples: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    @settings(max_examples=examples)
    @given(seed=some.integers(0, 2**32))
    def run(seed: int) -> None:
        changes_are_the_models(seed, tmp_path_factory.mktemp("lake"))

    run()


@pytest.mark.long
@settings(max_examples=60)
@given(seed=some.integers(0, 2**32))
def test_many_changes_read_as_a_plain_model_does(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    changes_are_the_models(seed, tmp_path_factory.mktemp("lake"))


def changes_are_the_models(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    lake = bitlake.connect(str(folder))
    options = {"file.format": rng.choice(["parquet", "parquet", "orc", "avro"])}
    table = lake.create_table("t", pa.schema([("c0", pa.int32()), ("c1", pa.string())]), options=options)
    model = Model()
    for _ in range(12):
        change(rng, table, model)
        check(rng, table, model)
