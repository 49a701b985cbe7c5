"""Changes of columns: what the next schema says, and what Paimon forbids."""

from __future__ import annotations

from typing import Any

import pytest

from bitlake.errors import AlreadyExists, BitlakeError, InvalidRequest, NotFound
from bitlake.metadata.evolve import evolve, follow_drop, follow_rename
from bitlake.metadata.schema import (
    FIRST,
    AddColumn,
    DropColumn,
    MoveColumn,
    Position,
    RenameColumn,
    RetypeColumn,
    SchemaChange,
    SetComment,
    SetDefault,
    SetNullable,
    TableSchema,
    assign_ids,
)
from bitlake.types import ArrayType, DataField, DataType, MapType, RowType, parse_type

P = parse_type
INNER = RowType((DataField(-1, "x", P("INT")), DataField(-1, "y", P("STRING"))))


def schema(options: dict[str, str] | None = None, primary_keys: tuple[str, ...] = ()) -> TableSchema:
    columns: list[tuple[str, DataType, str | None]] = [
        ("id", P("INT NOT NULL"), None),
        ("a", P("INT"), "an a"),
        ("s", INNER, None),
        ("l", ArrayType(INNER), None),
        ("m", MapType(P("STRING NOT NULL"), P("INT")), None),
        ("p", P("STRING"), None),
    ]
    fields, highest = assign_ids(columns)
    return TableSchema(3, fields, highest, ("p",), primary_keys, options or {})


def shape(fields: Any) -> list[Any]:
    return [(f.name, str(f.type)) for f in fields]


def test_a_new_column_takes_an_id_that_none_ever_had() -> None:
    old = schema()
    gone = evolve(old, [DropColumn(("a",))])
    assert gone.highest_field_id == old.highest_field_id == 9
    new = evolve(gone, [AddColumn(("a",), RowType((DataField(-1, "q", P("INT")),)), "again")])
    field = new.field("a")
    assert (field.id, field.type.fields[0].id, field.description) == (10, 11, "again")  # type: ignore[union-attr]
    assert (new.id, new.highest_field_id) == (5, 11)
    assert new.field_names == ("id", "s", "l", "m", "p", "a")


def test_places() -> None:
    made = evolve(
        schema(), [AddColumn(("n",), P("INT"), None, FIRST), AddColumn(("o",), P("INT"), None, Position("A"))]
    )
    assert made.field_names == ("n", "id", "a", "o", "s", "l", "m", "p")
    made = evolve(
        made, [MoveColumn(("s",), FIRST), MoveColumn(("N",), Position("m")), MoveColumn(("o",), Position("p"))]
    )
    assert made.field_names == ("s", "id", "a", "l", "m", "n", "p", "o")
    before = schema({"add-column-before-partition": "true"})
    assert evolve(before, [AddColumn(("n",), P("INT"))]).field_names == ("id", "a", "s", "l", "m", "n", "p")
    assert evolve(schema(), [MoveColumn(("id",), FIRST)]) == schema()


def test_inside_structs_arrays_and_maps() -> None:
    made = evolve(
        schema(),
        [
            AddColumn(("s", "z"), P("DATE"), "late", FIRST),
            RenameColumn(("S", "x"), "xx"),
            MoveColumn(("s", "y"), Position("z")),
            DropColumn(("l", "element", "x")),
            AddColumn(("l", "element", "k"), P("INT")),
            RetypeColumn(("l", "element", "k"), P("BIGINT")),
            RetypeColumn(("m", "value"), P("BIGINT")),
            SetComment(("s", "y"), "why"),
        ],
    )
    assert str(made.field("s").type) == "ROW<`z` DATE, `y` STRING, `xx` INT>"
    assert [f.id for f in made.field("s").type.fields] == [10, 4, 3]  # type: ignore[union-attr]
    assert made.field("s").type.fields[1].description == "why"  # type: ignore[union-attr]
    assert str(made.field("l").type) == "ARRAY<ROW<`y` STRING, `k` BIGINT>>"
    assert str(made.field("m").type) == "MAP<STRING NOT NULL, BIGINT>"


def test_types_keep_whether_they_may_be_null() -> None:
    made = evolve(schema(), [RetypeColumn(("id",), P("BIGINT")), RetypeColumn(("a",), P("BIGINT NOT NULL"))])
    assert shape(made.fields[:2]) == [("id", "BIGINT NOT NULL"), ("a", "BIGINT")]
    made = evolve(made, [SetNullable(("id",), True), SetDefault(("a",), "5")])
    assert made.field("id").type.nullable
    assert made.field("a").default_value == "5"
    allowed = schema({"alter-column-null-to-not-null.disabled": "false"})
    assert not evolve(allowed, [SetNullable(("a",), False)]).field("a").type.nullable


OPTIONS = {
    "bucket": "4",
    "bucket-key": "id,a",
    "file-index.bitmap.columns": "a, id",
    "file-index.bitmap.a.version": "1",
    "file-index.bloom-filter.columns": "m[k1],m[k2],a",
    "file-index.bloom-filter.m.items": "7",
    "file-index.bloom-filter.m[k1].fpp": "0.2",
    "fields.a.stats-mode": "full",
    "fields.a,b.sequence-group": "id,a",
    "other.a": "a",
}


def test_options_follow_a_rename() -> None:
    made = evolve(schema(OPTIONS), [RenameColumn(("A",), "aa"), RenameColumn(("m",), "mm")])
    assert made.options == {
        "bucket": "4",
        "bucket-key": "id,aa",
        "file-index.bitmap.columns": "aa,id",
        "file-index.bitmap.aa.version": "1",
        "file-index.bloom-filter.columns": "mm[k1],mm[k2],aa",
        "file-index.bloom-filter.mm.items": "7",
        "file-index.bloom-filter.mm[k1].fpp": "0.2",
        "fields.aa.stats-mode": "full",
        "fields.aa,b.sequence-group": "id,aa",
        "other.a": "a",
    }
    assert evolve(schema(OPTIONS), [RenameColumn(("s", "x"), "a")]).options == OPTIONS
    assert evolve(schema(primary_keys=("id",)), [RenameColumn(("id",), "key")]).primary_keys == ("key",)


def test_indexes_go_with_their_column() -> None:
    without_bucket = {k: v for k, v in OPTIONS.items() if not k.startswith("bucket")}
    made = evolve(schema(without_bucket), [DropColumn(("m",))])
    assert made.options["file-index.bloom-filter.columns"] == "a"
    assert not [k for k in made.options if ".m" in k]
    made = evolve(made, [DropColumn(("a",))])
    assert made.options == {
        "file-index.bitmap.columns": "id",
        "fields.b.sequence-group": "id",
        "other.a": "a",
    }


FORBIDDEN: list[tuple[SchemaChange, type[BitlakeError], str]] = [
    (AddColumn(("n",), P("INT NOT NULL")), InvalidRequest, "NOT NULL"),
    (AddColumn(("A",), P("INT")), AlreadyExists, "already exists"),
    (AddColumn(("s", "X"), P("INT")), AlreadyExists, r"'s\.X' already exists"),
    (AddColumn(("_KEY_x",), P("INT")), InvalidRequest, "reserved"),
    (AddColumn(("rowkind",), P("INT")), InvalidRequest, "reserved"),
    (AddColumn(("_LEVEL",), P("INT")), InvalidRequest, "reserved"),
    (AddColumn((" ",), P("INT")), InvalidRequest, "a column's name is blank"),
    (RenameColumn(("s", "x"), " "), InvalidRequest, "a column's name is blank"),
    (AddColumn(("n",), P("INT"), None, Position("nope")), NotFound, "nope"),
    (AddColumn(("a", "n"), P("INT")), NotFound, "has no part"),
    (AddColumn(("l", "n"), P("INT")), NotFound, "is called 'element'"),
    (AddColumn(("l", "element"), P("INT")), InvalidRequest, "no name"),
    (DropColumn(("idd",)), NotFound, "did you mean id"),
    (DropColumn(("p",)), InvalidRequest, "partition column 'p' cannot be dropped"),
    (DropColumn(("a",)), InvalidRequest, "bucket-key"),
    (RenameColumn(("p",), "q"), InvalidRequest, "partition column 'p' cannot be renamed"),
    (RenameColumn(("a",), "ID"), AlreadyExists, "exists"),
    (RenameColumn(("a",), "a"), AlreadyExists, "exists"),
    (RenameColumn(("a",), "a,b"), InvalidRequest, "must not|may hold"),
    (RetypeColumn(("p",), P("INT")), InvalidRequest, "partition column 'p' cannot change its type"),
    (RetypeColumn(("a",), P("BIGINT")), InvalidRequest, "bucket-key"),
    (RetypeColumn(("s",), INNER), InvalidRequest, "one by one"),
    (RetypeColumn(("l",), ArrayType(P("INT"))), InvalidRequest, r"column\.element"),
    (RetypeColumn(("m", "key"), P("INT")), InvalidRequest, "keys of map"),
    (RetypeColumn(("s", "x"), P("DATE")), InvalidRequest, "INT cannot become DATE"),
    (SetNullable(("a",), False), InvalidRequest, "alter-column-null-to-not-null.disabled"),
    (MoveColumn(("a",), Position("A")), InvalidRequest, "after itself"),
    (SetComment(("s", "q"), "x"), NotFound, r"'s\.q'"),
    (RenameColumn(("a",), "ID"), AlreadyExists, "^column 'ID' already exists"),
    (RenameColumn(("s", "x"), "Y"), AlreadyExists, r"^column 's\.Y' already exists"),
    (RenameColumn(("l", "element", "x"), "y"), AlreadyExists, r"^column 'l\.element\.y' already exists"),
    (RenameColumn((), "x"), InvalidRequest, "a column's name is empty"),
    (RenameColumn(("",), "x"), InvalidRequest, "a column's name is empty"),
    (SetComment(("s", ""), "x"), InvalidRequest, "a column's name is empty"),
    (DropColumn(("", "x")), InvalidRequest, "a column's name is empty"),
]


@pytest.mark.parametrize(("change", "kind", "message"), FORBIDDEN, ids=[repr(f[0]) for f in FORBIDDEN])
def test_what_is_forbidden_says_why(change: SchemaChange, kind: type[BitlakeError], message: str) -> None:
    with pytest.raises(kind, match=message):
        evolve(schema(OPTIONS), [change])


def test_keys_the_last_column_and_the_last_member_stay() -> None:
    keyed = schema(primary_keys=("id", "p"))
    change: SchemaChange
    for change in (DropColumn(("id",)), RetypeColumn(("id",), P("BIGINT")), SetNullable(("id",), True)):
        with pytest.raises(InvalidRequest, match="primary key column 'id'"):
            evolve(keyed, [change])
    with pytest.raises(InvalidRequest, match="last one"):
        evolve(schema(), [DropColumn((n,)) for n in ("id", "a", "s", "l", "m")])
    with pytest.raises(InvalidRequest, match="last member"):
        evolve(schema(), [DropColumn(("s", "x")), DropColumn(("s", "y"))])


def test_if_exists_and_explicit_casts() -> None:
    assert evolve(schema(), [DropColumn(("q",), True), DropColumn(("s", "q"), True)]) == schema()
    assert evolve(schema(), [RetypeColumn(("a",), P("TINYINT"))]).field("a").type == P("TINYINT")
    strict = schema({"disable-explicit-type-casting": "true"})
    assert evolve(strict, [RetypeColumn(("a",), P("BIGINT"))]).field("a").type == P("BIGINT")
    with pytest.raises(InvalidRequest, match="disable-explicit-type-casting"):
        evolve(strict, [RetypeColumn(("a",), P("TINYINT"))])
    # Without a snapshot no row lies in a bucket yet.
    assert evolve(schema(OPTIONS), [RetypeColumn(("a",), P("BIGINT"))], has_snapshot=False).field("a").type == P(
        "BIGINT"
    )


def test_what_is_no_change_is_refused() -> None:
    options: Any = {"bucket": "4"}  # a mapping is a sequence of its keys
    with pytest.raises(InvalidRequest, match="'bucket' is not a schema change.*alter_options"):
        evolve(schema(), options)


def test_members_of_members() -> None:
    """The neighbours of what changes stay where they are, at every depth."""
    deep = RowType((DataField(-1, "f", P("INT")), DataField(-1, "in", INNER), DataField(-1, "g", P("INT"))))
    fields, highest = assign_ids([("a", P("INT"), None), ("d", ArrayType(MapType(P("INT"), deep)), None)])
    old = TableSchema(0, fields, highest, (), (), {})
    path = ("d", "element", "value", "in")
    made = evolve(old, [RenameColumn((*path, "x"), "xx"), AddColumn((*path, "z"), P("DATE"))])
    inner = "ROW<`f` INT, `in` ROW<`xx` INT, `y` STRING, `z` DATE>, `g` INT>"
    assert str(made.field("d").type) == f"ARRAY<MAP<INT, {inner}>>"
    assert made.field("a") == old.field("a")
    with pytest.raises(NotFound, match=r"'d\.element\.value\.f' is INT, which has no part 'q'"):
        evolve(old, [DropColumn(("d", "element", "value", "f", "q"))])
    with pytest.raises(NotFound, match=r"'d\.element' is MAP.*, whose part is called 'value', not 'element'"):
        evolve(old, [DropColumn(("d", "element", "element", "f"))])


# --- options that name columns ----------------------------------------------------------------------------------------

NAMING = {
    "owner": "a",
    "bucket-key": "a,b",
    "sequence.field": "b, a",
    "fields.a.aggregate-function": "sum",
    "fields.default-aggregate-function": "max",
    "fields.a,b.sequence-group": "c,d",
    "fields.lr.nested-key": "x,a",
    "file-index.bitmap.columns": "a, m[a], b",
    "file-index.bitmap.a.version": "1",
    "file-index.bitmap.m[a].version": "2",
    "file-index.read.enabled": "true",
}


def test_each_option_that_names_a_column_follows() -> None:
    assert follow_rename(NAMING, "a", "n") == {
        "owner": "a",
        "bucket-key": "n,b",
        "sequence.field": "b,n",
        "fields.n.aggregate-function": "sum",
        "fields.default-aggregate-function": "max",
        "fields.n,b.sequence-group": "c,d",
        "fields.lr.nested-key": "x,n",
        "file-index.bitmap.columns": "n,m[a],b",
        "file-index.bitmap.n.version": "1",
        "file-index.bitmap.m[a].version": "2",
        "file-index.read.enabled": "true",
    }
    assert follow_rename(NAMING, "z", "n") == NAMING
    renamed = follow_rename(NAMING, "m", "n")
    assert renamed["file-index.bitmap.columns"] == "a,n[a],b" and renamed["file-index.bitmap.n[a].version"] == "2"


def test_changes_are_values() -> None:
    change = RenameColumn(("a",), "z")
    assert change == RenameColumn(("a",), "z") != RenameColumn(("a",), "y") and len({change, change}) == 1
    with pytest.raises(AttributeError):
        change.new_name = "y"  # type: ignore[misc]


def test_values_that_only_look_like_lists_of_columns() -> None:
    options = {"fields.b.default-value": "a", "fields.b.aggregate-function": "a, b", "x.sequence-group": "a, b"}
    assert follow_rename(options, "a", "n") == options
    assert follow_rename(options, "b", "n") == {
        "fields.n.default-value": "a", "fields.n.aggregate-function": "a, b", "x.sequence-group": "a, b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("column", "option"),
    [("b", "bucket-key"), ("c", "fields.a,b.sequence-group"), ("m", "file-index.bitmap.columns")],
)
@pytest.mark.parametrize("sign", list(",.[]"))
def test_the_first_option_that_cannot_hold_a_name_is_named(column: str, option: str, sign: str) -> None:
    new = f"n{sign}n"
    with pytest.raises(InvalidRequest) as e:
        follow_rename(NAMING, column, new)
    said = f"column '{column}' cannot be called '{new}': option '{option}' names it, where no name may hold '{sign}'"
    assert str(e.value) == said
    assert follow_rename(NAMING, "unnamed", new) == NAMING


def test_what_a_drop_takes_along_and_what_it_may_not() -> None:
    for column, option in (("a", "bucket-key"), ("b", "bucket-key")):
        with pytest.raises(InvalidRequest, match=f"'{column}' cannot be dropped: '{option}' = 'a,b' names it"):
            follow_drop(NAMING, column)
    for option in ("sequence.field", "rowkind.field", "record-level.time-field"):
        with pytest.raises(InvalidRequest, match=f"'{option}' = ' a ' names it"):
            follow_drop({option: " a "}, "a")
    left = follow_drop(NAMING, "m")
    assert left["file-index.bitmap.columns"] == "a,b" and "file-index.bitmap.m[a].version" not in left
    only = {"file-index.bitmap.columns": "m[a]", "fields.m.stats-mode": "none", "clustering.columns": "m", "x": "m"}
    assert follow_drop(only, "m") == {"x": "m"}


def test_members_of_structs_may_be_named_like_keys() -> None:
    """What is forbidden for a key column is allowed for a member of its name, and NOT NULL is allowed for keys."""
    inside = RowType((DataField(-1, "id", P("INT NOT NULL")), DataField(-1, "k", P("INT"))))
    fields, highest = assign_ids([("id", P("INT NOT NULL"), None), ("k", P("INT"), None), ("s", inside, None)])
    options = {"alter-column-null-to-not-null.disabled": "false"}
    keyed = TableSchema(0, fields, highest, (), ("id", "k"), options)
    relaxed = evolve(keyed, [SetNullable(("s", "id"), True)])
    assert shape(relaxed.field("s").type.fields) == [("id", "INT"), ("k", "INT")]  # type: ignore[union-attr]
    assert not evolve(keyed, [SetNullable(("k",), False)]).field("k").type.nullable
    for name in ("id", "k"):
        with pytest.raises(InvalidRequest, match=f"primary key column '{name}' cannot become nullable"):
            evolve(keyed, [SetNullable((name,), True)])


def test_options_that_only_look_like_those_of_indexes() -> None:
    """A list of columns is one of an index type; other values stay as they are, whatever they say."""
    options = {"other.columns": "a", "file-index.bitmap.columns": "a,id", "file-index.bitmap.a.note": "a", "x": "a"}
    renamed = evolve(schema(options), [RenameColumn(("a",), "z")])
    assert dict(renamed.options) == {
        "other.columns": "a", "file-index.bitmap.columns": "z,id", "file-index.bitmap.z.note": "a", "x": "a",
    }  # fmt: skip
