from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import rest_server

from bitlake.catalog.rest_store import schema_changes
from bitlake.errors import UnsupportedFeature
from bitlake.metadata.schema import TableSchema
from bitlake.types import ArrayType, AtomicType, DataField, MapType, Root, RowType

INT, BIGINT, TEXT = (AtomicType(r) for r in (Root.INT, Root.BIGINT, Root.DATE))


def schema(*fields: DataField, **more: Any) -> TableSchema:
    return TableSchema(0, fields, max(f.id for f in fields), **more)


def actions(old: TableSchema, new: TableSchema) -> list[tuple[Any, ...]]:
    return [(c["action"], *(v for k, v in c.items() if k != "action")) for c in schema_changes(old, new)]


def test_nothing_changed() -> None:
    made = schema(DataField(0, "a", INT), options={"k": "v"}, comment="c")
    assert schema_changes(made, replace(made, id=1, time_millis=5)) == []


def test_each_change_in_its_words() -> None:
    old = schema(DataField(0, "a", INT), DataField(1, "b", TEXT), options={"k": "v", "gone": "1"}, comment="c")
    assert actions(old, replace(old, options={"k": "w", "new": "2"}, comment=None)) == [
        ("removeOption", "gone"),
        ("setOption", "k", "w"),
        ("setOption", "new", "2"),
        ("updateComment", None),
    ]
    new = replace(old.fields[0], name="z", type=replace(BIGINT, nullable=False), description="d", default_value="1")
    assert actions(old, replace(old, fields=(new, old.fields[1]))) == [
        ("renameColumn", ["a"], "z"),
        ("updateColumnType", ["z"], "BIGINT", True),
        ("updateColumnNullability", ["z"], False),
        ("updateColumnComment", ["z"], "d"),
        ("updateColumnDefaultValue", ["z"], "1"),
    ]
    added = DataField(2, "n", INT, "said", "7")
    assert actions(old, replace(old, fields=(added, *old.fields))) == [
        ("addColumn", ["n"], "INT", "said", {"fieldName": "n", "referenceFieldName": None, "type": "FIRST"}),
        ("updateColumnDefaultValue", ["n"], "7"),
    ]
    assert actions(old, replace(old, fields=old.fields[:1])) == [("dropColumn", ["b"])]


def test_parts_of_columns() -> None:
    inner = RowType((DataField(1, "x", INT), DataField(2, "y", INT)))
    old = schema(DataField(0, "s", ArrayType(MapType(TEXT, inner))))
    made = RowType((DataField(2, "w", BIGINT), DataField(3, "v", INT)))
    new = replace(old, fields=(DataField(0, "t", ArrayType(MapType(TEXT, made))),))
    assert actions(old, new) == [
        ("renameColumn", ["s"], "t"),
        ("dropColumn", ["t", "element", "value", "x"]),
        ("renameColumn", ["t", "element", "value", "y"], "w"),
        ("updateColumnType", ["t", "element", "value", "w"], "BIGINT", True),
        ("addColumn", ["t", "element", "value", "v"], "INT"),
    ]
    turned = replace(old, fields=(DataField(0, "s", ArrayType(MapType(TEXT, RowType(inner.fields[::-1])))),))
    with pytest.raises(UnsupportedFeature, match="inside its struct"):
        schema_changes(old, turned)


def test_keys_follow_a_rename_and_cannot_change_otherwise() -> None:
    old = schema(DataField(0, "a", INT), DataField(1, "b", INT), primary_keys=("a",), partition_keys=("b",))
    renamed = replace(old, fields=(DataField(0, "z", INT), old.fields[1]), primary_keys=("z",))
    assert actions(old, renamed) == [("renameColumn", ["a"], "z")]
    for other in (replace(old, primary_keys=()), replace(old, partition_keys=("a",))):
        with pytest.raises(UnsupportedFeature, match="cannot change the keys"):
            schema_changes(old, other)


def test_any_order_is_reached() -> None:
    chance = random.Random(7)
    for _ in range(300):
        old = [DataField(i, f"c{i}", INT) for i in chance.sample(range(6), chance.randint(1, 6))]
        new = [*chance.sample(old, chance.randint(0, len(old)))]
        for i in range(10, 10 + chance.randint(0, 3)):
            new.insert(chance.randint(0, len(new)), DataField(i, f"c{i}", INT))
        if not new:
            continue
        model: list[dict[str, Any]] = [{"name": f.name} for f in old]
        for change in schema_changes(schema(*old), schema(*new)):
            if change["action"] == "dropColumn":
                model = [f for f in model if f["name"] != change["fieldNames"][0]]
            elif change["action"] == "addColumn":
                model.append({"name": change["fieldNames"][0]})
            rest_server._place(model, change.get("move"))
        assert [f["name"] for f in model] == [f.name for f in new]
