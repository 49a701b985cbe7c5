"""What makes one schema of another, in the words of a REST catalog: ``AlterTableRequest`` of Paimon's OpenAPI file.

Columns are known by their ids, so that a rename is told from dropping and adding.  The server makes the next schema
from these changes itself; :mod:`bitlake.table.rest_store` compares what it made with what was meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bitlake.errors import UnsupportedFeature
from bitlake.metadata.schema import TableSchema
from bitlake.types import ArrayType, DataField, DataType, MapType, RowType
from bitlake.types.datatypes import type_to_json

Change = dict[str, Any]


def schema_changes(old: TableSchema, new: TableSchema) -> list[Change]:
    """The changes that make ``new`` of ``old``, in an order in which they can be applied one by one.

    Raises :class:`UnsupportedFeature` for what cannot be said: other keys, members of a struct in another order.
    """
    names = {f.name: f.id for f in old.fields}
    renamed = {f.id: f.name for f in new.fields}
    for before, after in ((old.partition_keys, new.partition_keys), (old.primary_keys, new.primary_keys)):
        if tuple(renamed.get(names[k], k) for k in before) != tuple(after):
            raise UnsupportedFeature("a REST catalog cannot give a table other keys; create it anew")
    out = _fields((), old.fields, new.fields)
    out += [{"action": "removeOption", "key": k} for k in old.options if k not in new.options]
    out += [{"action": "setOption", "key": k, "value": v} for k, v in new.options.items() if old.options.get(k) != v]
    if old.comment != new.comment:
        out.append({"action": "updateComment", "comment": new.comment})
    return out


def _fields(parent: tuple[str, ...], old: Sequence[DataField], new: Sequence[DataField]) -> list[Change]:
    out: list[Change] = []
    kept = {f.id: f for f in new}
    known = {f.id: f for f in old}
    order = [f.id for f in old if f.id in kept]
    out += [{"action": "dropColumn", "fieldNames": [*parent, f.name]} for f in old if f.id not in kept]
    for f in old:
        made = kept.get(f.id)
        if made is not None:
            out += _column(parent, f, made)
    for i, f in enumerate(new):
        if f.id not in known:
            last = i == len(new) - 1
            out += _added(parent, f, None if last else new[i - 1].name if i else "")
            order.insert(len(order) if last else order.index(new[i - 1].id) + 1 if i else 0, f.id)
    return out + _moves(parent, order, new)


def _added(parent: tuple[str, ...], field: DataField, after: str | None) -> list[Change]:
    path = [*parent, field.name]
    made: Change = {"action": "addColumn", "fieldNames": path, "dataType": type_to_json(field.type)}
    if field.description is not None:
        made["comment"] = field.description
    if after is not None:
        made["move"] = _move(field.name, after)
    out = [made]
    if field.default_value is not None:
        out.append({"action": "updateColumnDefaultValue", "fieldNames": path, "newDefaultValue": field.default_value})
    return out


def _column(parent: tuple[str, ...], old: DataField, new: DataField) -> list[Change]:
    out: list[Change] = []
    path = (*parent, new.name)
    if old.name != new.name:
        out.append({"action": "renameColumn", "fieldNames": [*parent, old.name], "newName": new.name})
    out += _type(path, old.type, new.type)
    if old.description != new.description:
        out.append({"action": "updateColumnComment", "fieldNames": [*path], "newComment": new.description})
    if old.default_value != new.default_value:
        out.append({"action": "updateColumnDefaultValue", "fieldNames": [*path], "newDefaultValue": new.default_value})
    return out


def _type(path: tuple[str, ...], old: DataType, new: DataType) -> list[Change]:
    out: list[Change] = []
    if isinstance(old, RowType) and isinstance(new, RowType):
        out += _fields(path, old.fields, new.fields)
    elif isinstance(old, ArrayType) and isinstance(new, ArrayType):
        out += _type((*path, "element"), old.element, new.element)
    elif isinstance(old, MapType) and isinstance(new, MapType) and old.key == new.key:
        out += _type((*path, "value"), old.value, new.value)
    elif replace(old, nullable=True) != replace(new, nullable=True):
        told = type_to_json(replace(new, nullable=old.nullable))
        out.append({"action": "updateColumnType", "fieldNames": [*path], "newDataType": told, "keepNullability": True})
    if old.nullable != new.nullable:
        out.append({"action": "updateColumnNullability", "fieldNames": [*path], "newNullability": new.nullable})
    return out


def _moves(parent: tuple[str, ...], order: list[int], new: Sequence[DataField]) -> list[Change]:
    out: list[Change] = []
    for i, f in enumerate(new):
        if order[i] != f.id:
            if parent:
                raise UnsupportedFeature(
                    f"a REST catalog cannot move '{'.'.join((*parent, f.name))}' inside its struct"
                )
            order.remove(f.id)
            order.insert(i, f.id)
            out.append({"action": "updateColumnPosition", "move": _move(f.name, new[i - 1].name if i else "")})
    return out


def _move(name: str, after: str) -> Change:
    if not after:
        return {"fieldName": name, "referenceFieldName": None, "type": "FIRST"}
    return {"fieldName": name, "referenceFieldName": after, "type": "AFTER"}
