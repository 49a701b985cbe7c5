"""What ``write.merge-schema`` makes of a table's schema and the columns of rows that are to be written.

Columns and struct members that the table lacks are added; others keep their types, and the values are cast.  With
``type-widening`` a column takes the rows' type where its own values fit into that without loss, with ``explicit-cast``
where they can be cast at all.  Source: Paimon's SchemaMergingUtils; unlike there, rows of a type that the table's own
holds anyway (INT into BIGINT) are no reason to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bitlake.errors import InvalidRequest
from bitlake.metadata.names import Names
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.schema_change import AddColumn, Path, RetypeColumn, SchemaChange
from bitlake.types.casts import why_not_cast
from bitlake.types.datatypes import ArrayType, AtomicType, DataField, DataType, MapType, Root, RowType

PREFIX = "write.merge-schema"


@dataclass(frozen=True, slots=True)
class MergeSchema:
    """How far the rows' columns may change the table's."""

    on: bool = False
    widening: bool = False
    explicit: bool = False

    @staticmethod
    def of(options: Mapping[str, str]) -> MergeSchema:
        """What options say; raises :class:`InvalidRequest` for a value that is neither true nor false."""
        on = _flag(options, PREFIX)
        widening = on and _flag(options, f"{PREFIX}.type-widening")
        return MergeSchema(on, widening, widening and _flag(options, f"{PREFIX}.explicit-cast"))


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidRequest(f"option '{name}' = '{options[name]}' is not allowed; it is true or false")
    return text == "true"


def merged_changes(
    table: str,
    schema: TableSchema,
    columns: Sequence[tuple[str, DataType]],
    how: MergeSchema,
    names: Names = Names.FOLDED,
) -> tuple[SchemaChange, ...]:
    """The changes of a schema after which rows of these columns can be stored; raises :class:`InvalidRequest`."""
    out: list[SchemaChange] = []
    _fields(table, (), schema.fields, columns, how, names, out)
    return tuple(out)


def _fields(
    table: str,
    path: Path,
    fields: Sequence[DataField],
    columns: Sequence[tuple[str, DataType]],
    how: MergeSchema,
    names: Names,
    out: list[SchemaChange],
) -> None:
    written = {f.name: f for f in fields}
    have = {names.key(f.name): f for f in fields}
    for name, made in columns:
        field = written.get(name) or have.get(names.key(name))
        if field is None:
            out.append(AddColumn((*path, name), replace(made, nullable=True)))
        else:
            _type(table, (*path, field.name), field.type, made, how, names, out)


def _type(
    table: str, path: Path, old: DataType, new: DataType, how: MergeSchema, names: Names, out: list[SchemaChange]
) -> None:
    match old, new:
        case RowType(), RowType():
            _fields(table, path, old.fields, [(f.name, f.type) for f in new.fields], how, names, out)
        case ArrayType(), ArrayType():
            _type(table, (*path, "element"), old.element, new.element, how, names, out)
        case MapType(), MapType():
            _type(table, (*path, "value"), old.value, new.value, how, names, out)
        case _ if how.widening:
            wider = _wider(table, path, old, new, how.explicit)
            if wider is not None:
                out.append(RetypeColumn(path, wider))


def _wider(table: str, path: Path, old: DataType, new: DataType, explicit: bool) -> DataType | None:
    """The type that a column takes on; None if it keeps its own."""
    old, new = replace(old, nullable=True), replace(new, nullable=True)
    if old == new:
        return None
    decimals = isinstance(old, AtomicType) and isinstance(new, AtomicType) and old.root == new.root == Root.DECIMAL
    if decimals:
        assert isinstance(old, AtomicType) and isinstance(new, AtomicType)
        if old.scale != new.scale:
            raise _refused(table, path, old, new)
        return new if (new.precision or 0) > (old.precision or 0) else None
    if why_not_cast(old, new, explicit=False) is None and not _shorter(old, new):
        return new
    if not explicit:
        if why_not_cast(new, old, explicit=False) is None:
            return None
        raise _refused(table, path, old, new)
    if why_not_cast(old, new, explicit=True) is not None:
        raise _refused(table, path, old, new)
    return new


def _shorter(old: DataType, new: DataType) -> bool:
    """Whether values of one type may be cut off, or lose digits of seconds, in another of the same kind."""
    assert isinstance(old, AtomicType) and isinstance(new, AtomicType)
    if old.length is not None and new.length is not None:
        return new.length < old.length
    return old.precision is not None and new.precision is not None and new.precision < old.precision


def _refused(table: str, path: Path, old: DataType, new: DataType) -> InvalidRequest:
    return InvalidRequest(
        f"table '{table}': column '{'.'.join(path)}' is {old}, which does not become {new} without loss; cast the "
        f"rows, or change the column by ALTER TABLE"
    )
