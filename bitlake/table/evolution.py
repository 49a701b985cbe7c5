"""Reading a file written under another schema: columns are matched by field id, never by name.

Source: table-format spec, section 2 ("Reading an old file").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from bitlake.errors import CorruptError
from bitlake.predicate.tree import (
    FALSE,
    TRUE,
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Leaf,
    Like,
    Or,
    Predicate,
)
from bitlake.types import ArrayType, AtomicType, DataField, DataType, MapType, MultisetType, RowType, arrow_type
from bitlake.types.datatypes import BINARIES, INTEGER_BITS, INTEGERS, STRINGS, Root


@dataclass(frozen=True, slots=True)
class FileMapping:
    """Which of a file's columns holds each table column.

    ``fields`` maps a table column's name to the file's field, or to None where the file has no such column and every
    row reads NULL.  ``identical`` is True when names and types agree for all of them.
    """

    fields: Mapping[str, DataField | None]
    identical: bool


def map_fields(table: Sequence[DataField], file: Sequence[DataField]) -> FileMapping:
    """Match a table's columns with a file's by id."""
    by_id = {f.id: f for f in file}
    found = {f.name: by_id.get(f.id) for f in table}
    same = all(
        other is not None and other.name == f.name and _same(f.type, other.type) for f, other in _pairs(table, found)
    )
    return FileMapping(found, same)


def _pairs(
    table: Sequence[DataField], found: Mapping[str, DataField | None]
) -> list[tuple[DataField, DataField | None]]:
    return [(f, found[f.name]) for f in table]


def stored_alike(a: DataType, b: DataType) -> bool:
    """Whether a file's values of type ``b`` mean what the table's of type ``a`` do, for bounds and indexes too."""
    return _same(a, b)


def _same(a: DataType, b: DataType) -> bool:
    """Whether values of the two types are stored alike, so that a filter on one means the same on the other."""
    if isinstance(a, AtomicType) and isinstance(b, AtomicType):
        if a.root in STRINGS and b.root in STRINGS:
            # CHAR pads its values: only the same CHAR means the same.
            return a.root is b.root and (a.root is Root.VARCHAR or a.length == b.length)
        if a.root in BINARIES and b.root in BINARIES:
            return True
        return replace(a, nullable=True) == replace(b, nullable=True)
    if isinstance(a, ArrayType) and isinstance(b, ArrayType):
        return _same(a.element, b.element)
    if isinstance(a, MultisetType) and isinstance(b, MultisetType):
        return _same(a.element, b.element)
    if isinstance(a, MapType) and isinstance(b, MapType):
        return _same(a.key, b.key) and _same(a.value, b.value)
    if isinstance(a, RowType) and isinstance(b, RowType):
        if [(f.id, f.name) for f in a.fields] != [(f.id, f.name) for f in b.fields]:
            return False
        return all(_same(x.type, y.type) for x, y in zip(a.fields, b.fields, strict=True))
    return False


def map_predicate(predicate: Predicate, table: Sequence[DataField], mapping: FileMapping) -> Predicate:
    """Say a bound predicate in a file's own names; what cannot be said exactly becomes TRUE (keeps every row).

    A column the file lacks is NULL in every row: comparisons with it are never TRUE, IS NULL always is.
    """
    if mapping.identical:
        return predicate
    types = {f.name: f.type for f in table}
    return _map(predicate, types, mapping)


def _map(predicate: Predicate, types: Mapping[str, DataType], mapping: FileMapping) -> Predicate:
    match predicate:
        case And(children):
            return And(tuple(_map(c, types, mapping) for c in children))
        case Or(children):
            mapped = tuple(_map(c, types, mapping) for c in children)
            return TRUE if TRUE in mapped else Or(mapped)
        case Constant():
            return predicate
        case Comparison() | In() | Like() | IsNull():
            return _map_leaf(predicate, types, mapping)
    raise AssertionError(f"not a bound predicate: {predicate}")


def _map_leaf(leaf: Leaf, types: Mapping[str, DataType], mapping: FileMapping) -> Predicate:
    if leaf.column not in mapping.fields:
        return TRUE
    field = mapping.fields[leaf.column]
    if field is None:
        return TRUE if isinstance(leaf, IsNull) and not leaf.negated else FALSE
    if _same(types[leaf.column], field.type) or _narrower_integers(leaf, types[leaf.column], field.type):
        return replace(leaf, column=field.name)
    return replace(leaf, column=field.name) if isinstance(leaf, IsNull) else TRUE


def _narrower_integers(leaf: Leaf, table: DataType, file: DataType) -> bool:
    """Whether the file holds narrower integers than the table and every literal fits them."""
    if not (isinstance(table, AtomicType) and isinstance(file, AtomicType)):
        return False
    if table.root not in INTEGERS or file.root not in INTEGERS:
        return False
    bits = INTEGER_BITS[file.root]
    if INTEGER_BITS[table.root] < bits:
        return False
    values = (leaf.value,) if isinstance(leaf, Comparison) else leaf.values if isinstance(leaf, In) else ()
    bound = 1 << (bits - 1)
    return all(-bound <= v < bound for v in values)


def align(
    array: pa.Array | pa.ChunkedArray, field: DataField, file_field: DataField, path: str
) -> pa.Array | pa.ChunkedArray:
    """Turn a file's column into the table's type: cast values, and match struct members by id."""
    wanted = arrow_type(field.type)
    if array.type == wanted:
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([align(c, field, file_field, path) for c in array.chunks], type=wanted)
    return _align(array, field.type, file_field.type, path, field.name)


def _align(array: pa.Array, to: DataType, file: DataType, path: str, column: str) -> pa.Array:
    wanted = arrow_type(to)
    if array.type == wanted:
        return array
    if isinstance(to, RowType) and isinstance(file, RowType):
        names = {f.name: i for i, f in enumerate(array.type)}
        members = {f.id: f for f in file.fields}
        children = []
        for member in to.fields:
            source = members.get(member.id)
            if source is None or source.name not in names:
                children.append(pa.nulls(len(array), arrow_type(member.type)))
                continue
            child = pc.struct_field(array, names[source.name])
            children.append(_align(child, member.type, source.type, path, f"{column}.{member.name}"))
        mask = array.is_null() if array.null_count else None
        if not children:
            return pa.nulls(len(array), wanted)
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)
    if isinstance(to, ArrayType) and isinstance(file, ArrayType):
        start, length = array.offsets[0].as_py(), array.offsets[-1].as_py() - array.offsets[0].as_py()
        values = _align(array.values.slice(start, length), to.element, file.element, path, f"{column}.element")
        offsets = pc.subtract(array.offsets, array.offsets[0])
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(offsets, values, type=wanted, mask=mask)
    if isinstance(to, MapType) and isinstance(file, MapType):
        start, length = array.offsets[0].as_py(), array.offsets[-1].as_py() - array.offsets[0].as_py()
        keys = _align(array.keys.slice(start, length), to.key, file.key, path, f"{column}.key")
        items = _align(array.items.slice(start, length), to.value, file.value, path, f"{column}.value")
        offsets = pc.subtract(array.offsets, array.offsets[0])
        mask = array.is_null() if array.null_count else None
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=mask)
    try:
        # Paimon narrows integers like Java's primitive casts and truncates timestamps: no overflow errors.
        return array.cast(wanted, safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise CorruptError(
            f"column '{column}' holds {array.type}, which cannot be read as {to}: {e}", None, path
        ) from e
