"""Schema evolution: change a table's columns, and read files written under an older schema.

* Reading an old file: columns are matched by field id, never by name (table-format spec, section 2, "Reading an old
  file").
* Column defaults: SQL literal text in the schema, given to rows that are written without the column.  Paimon takes the
  text without its quotes and casts it from STRING, so ``1``, ``'a'`` and ``'2024-02-29'`` are defaults; expressions are
  not supported.
* ALTER TABLE: changes of columns as Python callers give them, and the checks of the table's options on the schema that
  results.
* ``write.merge-schema``: columns and struct members that the table lacks are added; others keep their types, and the
  values are cast.  With ``type-widening`` a column takes the rows' type where its own values fit into that without
  loss, with ``explicit-cast`` where they can be cast at all.  Source: Paimon's SchemaMergingUtils; unlike there, rows
  of a type that the table's own type includes (INT into BIGINT) are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa

from bitlake import arguments
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest
from bitlake.expressions import tree
from bitlake.expressions.indexed import indexed_expression, judged_by_indexes, judged_test
from bitlake.expressions.terms import Typed
from bitlake.fileindex.source import indexed_type
from bitlake.formats.conform import null_column
from bitlake.lazy_modules import compute as pc
from bitlake.metadata.schema import (
    FIRST,
    AddColumn,
    MoveColumn,
    Names,
    Path,
    Position,
    RetypeColumn,
    SchemaChange,
    SetComment,
    SetDefault,
    SetNullable,
    TableSchema,
)
from bitlake.runtime import by_identity
from bitlake.schema.create import check_schema_options
from bitlake.types import arrow_type, from_arrow
from bitlake.types.casts import cast_values, why_not_cast
from bitlake.types.datatypes import (
    BINARIES,
    INTEGER_BITS,
    INTEGERS,
    MAX_LENGTH,
    STRINGS,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    NextId,
    Root,
    RowType,
    parse_type,
)


@dataclass(frozen=True, slots=True)
class FileMapping:
    """The file's column for each table column.

    ``fields`` maps a table column's name to the file's field, or to None where the file has no such column and every
    row reads NULL.  ``identical`` is True when names and types agree for all of them.
    """

    fields: Mapping[str, DataField | None]
    identical: bool


def map_fields(table: Sequence[DataField], file: Sequence[DataField]) -> FileMapping:
    """Match a table's columns with a file's by id."""
    # The tuples of schemas, which are kept, come again with every scan.
    return _kept(table, file) if isinstance(table, tuple) and isinstance(file, tuple) else _matched(table, file)


def _matched(table: Sequence[DataField], file: Sequence[DataField]) -> FileMapping:
    by_id = {f.id: f for f in file}
    sources = {f.name: by_id.get(f.id) for f in table}
    same = all(
        (other := sources[f.name]) is not None and other.name == f.name and stored_alike(f.type, other.type)
        for f in table
    )
    return FileMapping(sources, same)


_kept = by_identity(_matched)


def same_columns(table: Sequence[DataField], file: Sequence[DataField]) -> bool:
    """Whether a file has all these columns of the table, under whatever names, with just their types."""
    by_id = {f.id: f for f in file}
    pairs = [(f, by_id.get(f.id)) for f in table]
    return all(g is not None and replace(f.type, nullable=True) == replace(g.type, nullable=True) for f, g in pairs)


def stored_alike(table: DataType, file: DataType) -> bool:
    """Whether a file's values are the table's as they are: a filter on one, bounds and indexes mean the same."""
    if table == file:
        return True
    if isinstance(table, AtomicType) and isinstance(file, AtomicType):
        if table.root in STRINGS and file.root in STRINGS:
            # CHAR pads its values: only the same CHAR means the same.  What was longer is cut when it is read.
            if table.root is not file.root:
                return False
            return table.length == file.length if table.root is Root.CHAR else _no_longer(file, table)
        if table.root in BINARIES and file.root in BINARIES:
            if table.root is Root.BINARY:
                return file.root is Root.BINARY and table.length == file.length
            return _no_longer(file, table)
        return replace(table, nullable=True) == replace(file, nullable=True)
    if isinstance(table, ArrayType) and isinstance(file, ArrayType):
        return stored_alike(table.element, file.element)
    if isinstance(table, MultisetType) and isinstance(file, MultisetType):
        return stored_alike(table.element, file.element)
    if isinstance(table, MapType) and isinstance(file, MapType):
        return stored_alike(table.key, file.key) and stored_alike(table.value, file.value)
    if isinstance(table, RowType) and isinstance(file, RowType):
        if [(f.id, f.name) for f in table.fields] != [(f.id, f.name) for f in file.fields]:
            return False
        return all(stored_alike(x.type, y.type) for x, y in zip(table.fields, file.fields, strict=True))
    return False


def _no_longer(file: AtomicType, table: AtomicType) -> bool:
    return (file.length or 1) <= (table.length or 1)


@dataclass(frozen=True, slots=True)
class MappedPredicate:
    """A predicate in a file's names; ``exact`` if it is TRUE for the same rows, else it is TRUE for more."""

    predicate: tree.Predicate
    exact: bool = True


def map_predicate(predicate: tree.Predicate, table: Sequence[DataField], mapping: FileMapping) -> MappedPredicate:
    """Say a bound predicate in a file's own names; what cannot be said exactly becomes TRUE (keeps every row).

    A column the file lacks is NULL in every row: comparisons with it are never TRUE, IS NULL always is.
    Tests of computed values become leaves about expressions, which indexes judge, where that is possible.
    """
    if mapping.identical:
        if not tree.has_computed(predicate):
            return MappedPredicate(predicate)
        judged = judged_by_indexes(predicate)
        return MappedPredicate(judged.predicate, judged.exact)
    return _map(predicate, {f.name: f.type for f in table}, mapping)


_UNKNOWN = MappedPredicate(tree.TRUE, exact=False)


def _map(predicate: tree.Predicate, types: Mapping[str, DataType], mapping: FileMapping) -> MappedPredicate:
    match predicate:
        case tree.And(children):
            mapped = [_map(c, types, mapping) for c in children]
            kept = tuple(m.predicate for m in mapped if m != _UNKNOWN)
            return MappedPredicate(tree.And(kept), all(m.exact for m in mapped))
        case tree.Or(children):
            mapped = [_map(c, types, mapping) for c in children]
            if _UNKNOWN in mapped:
                return _UNKNOWN
            return MappedPredicate(tree.Or(tuple(m.predicate for m in mapped)), all(m.exact for m in mapped))
        case tree.Constant():
            return MappedPredicate(predicate)
        case tree.TupleIn():
            return _map_tuples(predicate, types, mapping)
        case tree.Comparison() | tree.In() | tree.Like() | tree.IsNull():
            return _map_leaf(predicate, types, mapping)
        case tree.Computed(test, negated):
            judged = judged_test(test, negated, lambda term: _map_term(term, types, mapping))
            return _UNKNOWN if judged is None else MappedPredicate(judged.predicate, judged.exact)
    raise AssertionError(f"not a bound predicate: {predicate}")


def _map_term(term: Typed, types: Mapping[str, DataType], mapping: FileMapping) -> Typed | None:
    """A term over a file's columns; None if the file lacks one, or holds values of another type."""
    if term.function in ("column", "member"):
        path = _map_path(term, types, mapping)
        return path[0] if path is not None and stored_alike(*path[1:]) else None
    arguments = [_map_term(a, types, mapping) for a in term.arguments]
    if any(a is None for a in arguments):
        return None
    return replace(term, arguments=tuple(a for a in arguments if a is not None))


def _map_path(
    term: Typed, types: Mapping[str, DataType], mapping: FileMapping
) -> tuple[Typed, DataType, DataType] | None:
    """A column or a struct's member by a file's names, with its types in the table and in the file."""
    if term.function == "column":
        source = mapping.fields.get(term.parameter)
        return None if source is None else (replace(term, parameter=source.name), types[term.parameter], source.type)
    (outer,) = term.arguments
    path = _map_path(outer, types, mapping) if outer.function in ("column", "member") else None
    if path is None or not (isinstance(path[1], RowType) and isinstance(path[2], RowType)):
        return None
    member = next((f for f in path[1].fields if f.name == term.parameter), None)
    same = None if member is None else next((f for f in path[2].fields if f.id == member.id), None)
    if member is None or same is None:
        return None
    return replace(term, arguments=(path[0],), parameter=same.name), member.type, same.type


def map_indexed(column: str, table: Sequence[DataField], mapping: FileMapping) -> str | None:
    """Map an index's subject to a file's names; None if the file lacks a column, or an expression's column differs.

    ``column`` is a column's name, ``m[k]`` for a map's key, or an :class:`~bitlake.expressions.tree.IndexedExpression`.
    """
    if isinstance(column, tree.IndexedExpression):
        term = _map_term(column.term, {f.name: f.type for f in table}, mapping)
        return None if term is None else indexed_expression(term)
    known = indexed_type(column, table)
    source = None if known is None else mapping.fields[known[0].name]
    if known is None or source is None:
        return None
    return source.name if known[1] is None else f"{source.name}[{known[1]}]"


def _map_leaf(leaf: tree.Leaf, types: Mapping[str, DataType], mapping: FileMapping) -> MappedPredicate:
    column = leaf.column
    if isinstance(column, tree.IndexedExpression):
        term = _map_term(column.term, types, mapping)
        expression = None if term is None else indexed_expression(term)
        return _UNKNOWN if expression is None else MappedPredicate(replace(leaf, column=expression))
    top = column.column if isinstance(column, tree.MapKey) else column
    if top not in mapping.fields:
        return _UNKNOWN
    source = mapping.fields[top]
    if source is None:
        return MappedPredicate(tree.TRUE if isinstance(leaf, tree.IsNull) and not leaf.negated else tree.FALSE)
    table, file, name = types[top], source.type, source.name
    if isinstance(column, tree.MapKey):
        if not (isinstance(table, MapType) and isinstance(file, MapType) and stored_alike(table.key, file.key)):
            return _UNKNOWN
        table, file, name = table.value, file.value, tree.MapKey(name, column.key)
    if stored_alike(table, file):
        return MappedPredicate(replace(leaf, column=name))
    if isinstance(leaf, tree.IsNull):
        # Numbers that do not fit a DECIMAL are read as NULL: there the file knows too few NULLs.
        decimal = isinstance(table, AtomicType) and table.root is Root.DECIMAL and not _whole_range(table, file)
        return _UNKNOWN if decimal else MappedPredicate(replace(leaf, column=name))
    held = _whole_range(table, file)
    if held is None or isinstance(leaf, tree.Like):
        return _UNKNOWN
    return MappedPredicate(_narrowed(replace(leaf, column=name), *held))


def _map_tuples(node: tree.TupleIn, types: Mapping[str, DataType], mapping: FileMapping) -> MappedPredicate:
    """The tuples themselves if the file stores all their columns alike; else a condition for each column they imply."""
    sources = [mapping.fields.get(column) for column in node.columns]
    names = tuple(
        s.name for c, s in zip(node.columns, sources, strict=True) if s is not None and stored_alike(types[c], s.type)
    )
    if len(names) == len(sources):
        return MappedPredicate(replace(node, columns=names))
    terms = tree.column_terms(node)
    return MappedPredicate(_map(tree.And(terms), types, mapping).predicate, exact=False) if terms else _UNKNOWN


def _whole_range(table: DataType, file: DataType) -> tuple[int, int] | None:
    """The physical values that a file's column can hold, if it is a narrower integer or decimal than the table's.

    Then all its values are the table's as they are, and literals in that range mean the same in both.
    """
    if not (isinstance(table, AtomicType) and isinstance(file, AtomicType)):
        return None
    if table.root in INTEGERS and file.root in INTEGERS and INTEGER_BITS[file.root] <= INTEGER_BITS[table.root]:
        bound = 1 << (INTEGER_BITS[file.root] - 1)
        return -bound, bound - 1
    digits = file.precision or 10
    if table.root is file.root is Root.DECIMAL and table.scale == file.scale and digits <= (table.precision or 10):
        return 1 - 10**digits, 10**digits - 1
    return None


def _narrowed(leaf: tree.Comparison | tree.In, low: int, high: int) -> tree.Predicate:
    """A leaf over values of ``low`` to ``high``, without literals beyond: these are never equal, always less …"""
    some = tree.IsNull(leaf.column, negated=True)
    if isinstance(leaf, tree.In):
        fitting = tuple(v for v in leaf.values if low <= v <= high)
        if fitting:
            return replace(leaf, values=fitting)
        return some if leaf.negated else tree.FALSE
    if low <= leaf.value <= high:
        return leaf
    always = (tree.Op.NE, tree.Op.LT, tree.Op.LE) if leaf.value > high else (tree.Op.NE, tree.Op.GT, tree.Op.GE)
    return some if leaf.op in always else tree.FALSE


def align(
    array: pa.Array | pa.ChunkedArray, field: DataField, file_field: DataField, path: str, timezone: str = "UTC"
) -> pa.Array | pa.ChunkedArray:
    """Turn a file's column into the table's type: cast values, and match struct members by id.

    Raises :class:`InvalidRequest` for a value that the column's new type has no counterpart of, and
    :class:`CorruptError` for a column that is not stored as its schema says.
    """
    wanted = arrow_type(field.type)
    same = stored_alike(field.type, file_field.type)
    if same and array.type == wanted:
        return array
    if isinstance(array, pa.ChunkedArray):
        chunks = [align(c, field, file_field, path, timezone) for c in array.chunks]
        return pa.chunked_array(chunks, type=wanted)
    return _Aligner(path, timezone).align(array, field.type, file_field.type, field.name)


_STORED_AS: Mapping[type[DataType], Callable[[pa.DataType], bool]] = {
    RowType: pa.types.is_struct,
    ArrayType: lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind),
    MapType: pa.types.is_map,
}


@dataclass(frozen=True, slots=True)
class _Aligner:
    path: str
    timezone: str

    def align(self, array: pa.Array, to: DataType, file: DataType, column: str) -> pa.Array:
        stored_as = _STORED_AS.get(type(file))
        if stored_as is not None and not stored_as(array.type):
            raise CorruptError(f"column '{column}' holds {array.type}, which cannot be read as {file}", None, self.path)
        if isinstance(to, RowType) and isinstance(file, RowType):
            return self._struct(array, to, file, column)
        if isinstance(to, ArrayType) and isinstance(file, ArrayType):
            start, length, offsets, mask = _entries(array)
            values = self.align(array.values.slice(start, length), to.element, file.element, f"{column}.element")
            return pa.ListArray.from_arrays(offsets, values, type=arrow_type(to), mask=mask)
        if isinstance(to, MapType) and isinstance(file, MapType):
            start, length, offsets, mask = _entries(array)
            keys = self.align(array.keys.slice(start, length), to.key, file.key, f"{column}.key")
            items = self.align(array.items.slice(start, length), to.value, file.value, f"{column}.value")
            return pa.MapArray.from_arrays(offsets, keys, items, type=arrow_type(to), mask=mask)
        return self._values(array, to, file, column)

    def _struct(self, array: pa.Array, to: RowType, file: RowType, column: str) -> pa.Array:
        wanted = arrow_type(to)
        names = {f.name: i for i, f in enumerate(array.type)}
        members = {f.id: f for f in file.fields}
        children = []
        for member in to.fields:
            source = members.get(member.id)
            if source is None or source.name not in names:
                children.append(null_column(len(array), arrow_type(member.type)))
                continue
            child = pc.struct_field(array, names[source.name])
            children.append(self.align(child, member.type, source.type, f"{column}.{member.name}"))
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)

    def _values(self, array: pa.Array, to: DataType, file: DataType, column: str) -> pa.Array:
        stored, wanted = arrow_type(file), arrow_type(to)
        try:
            # Writers store some types in another width (Spark's microseconds in a TIMESTAMP(3), for one).
            array = array if array.type == stored else array.cast(stored, safe=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise CorruptError(
                f"column '{column}' holds {array.type}, which cannot be read as {file}: {e}", None, self.path
            ) from e
        if stored_alike(to, file) or not isinstance(to, AtomicType):
            return array if array.type == wanted else array.cast(wanted)
        try:
            return cast_values(array, file, to, self.timezone)
        except (ValueError, OverflowError) as e:
            raise InvalidRequest(
                f"column '{column}' was {file} when {self.path} was written and is {to} now, which cannot hold all of "
                f"its values: {e}; change the type back"
            ) from e


def _entries(array: pa.Array) -> tuple[int, int, pa.Array, pa.Array | None]:
    """Where a list's or map's entries are in its children, their offsets from there, and which lists are NULL."""
    start, stop = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return (
        start,
        stop - start,
        pc.subtract(array.offsets, array.offsets[0]),
        array.is_null() if array.null_count else None,
    )


_TEXT = AtomicType(Root.VARCHAR, length=MAX_LENGTH)


def default_column(field: DataField, rows: int) -> Any:
    """``rows`` times a column's default, as an Arrow array; NULLs without one.

    Raises :class:`InvalidRequest` for a default that is not a value of the column's type.
    """
    wanted = arrow_type(field.type)
    text = field.default_value
    if text is None:
        return null_column(rows, wanted)
    if not isinstance(field.type, AtomicType):
        raise InvalidRequest(
            f"column '{field.name}': the default {text} of a nested type cannot be written; give values"
        )
    if len(text) > 1 and text.startswith("'") and text.endswith("'"):
        text = text[1:-1]
    try:
        value = cast_values(pa.array([text]), _TEXT, field.type)
    except (ValueError, OverflowError) as e:
        raise InvalidRequest(
            f"column '{field.name}': invalid default {field.default_value} for {field.type}: {e}"
        ) from e
    return pa.repeat(value[0], rows)


def check_default(field: DataField) -> None:
    """Raise :class:`InvalidRequest` unless a column's default, if it has one, is a value of its type."""
    if field.default_value is not None and isinstance(field.type, AtomicType):
        default_column(field, 0)


ColumnName: TypeAlias = str | Sequence[str]
"""A column, or a part of one: ``"s.x"`` or ``("s", "x")``; ``element`` inside an array, ``value`` inside a map."""
ColumnType: TypeAlias = pa.DataType | DataType | str
"""An Arrow type, a Paimon type, or the text of one that has no parts (``"DECIMAL(10, 2)"``)."""


def path_of(schema: TableSchema, name: ColumnName) -> Path:
    """The path of a name; dots separate parts unless a column is called so."""
    if not isinstance(name, str):
        path = arguments.names("the path of a column", name)
        if not path:
            raise InvalidRequest("the path of a column is empty")
        return path
    return (name,) if name in schema.field_names else tuple(name.split("."))


def type_of(given: ColumnType) -> DataType:
    """Return the Paimon type of a caller's type; struct members get their ids when it is put into a schema."""
    if isinstance(given, str):
        if "<" in given:
            raise InvalidRequest(
                f"data type '{given}': only plain types are given as text; give others as Arrow types, such as "
                "pa.list_(pa.int32())"
            )
        return parse_type(given)
    if isinstance(given, pa.DataType):
        return from_arrow(given, next_id=NextId(-1))
    if not isinstance(given, DataType):
        raise InvalidRequest(f"invalid data type {given!r}; expected an Arrow type, or text such as 'DECIMAL(10, 2)'")
    return given


def position_of(first: bool, after: str | None) -> Position | None:
    """FIRST, AFTER a column, or None for neither."""
    if first and after is not None:
        raise InvalidRequest("a column goes first or after another, not both")
    return FIRST if first else None if after is None else Position(after)


def column_changes(
    path: Path,
    kind: ColumnType | None,
    nullable: bool | None,
    comment: str | None,
    default: str | None,
    position: Position | None,
) -> list[SchemaChange]:
    """The change that ALTER COLUMN requests; an empty comment or default removes it."""
    changes: list[SchemaChange] = []
    if kind is not None:
        changes.append(RetypeColumn(path, type_of(kind)))
    if nullable is not None:
        changes.append(SetNullable(path, nullable))
    if comment is not None:
        changes.append(SetComment(path, comment or None))
    if default is not None:
        changes.append(SetDefault(path, default or None))
    if position is not None:
        changes.append(MoveColumn(path, position))
    if not changes:
        raise InvalidRequest(f"column '{'.'.join(path)}': nothing to change is given")
    return changes


def check_evolved(table: str, old: TableSchema, new: TableSchema) -> None:
    """Refuse columns that the table's options (indexes, buckets) cannot go with.

    A change is not refused because of options that did not fit the columns before it (another engine's).
    """
    before = {field.id: field for field in old.fields}
    for field in new.fields:
        if field != before.get(field.id):
            check_default(field)
    try:
        check_schema_options(table, old)
    except BitlakeError:
        return
    try:
        check_schema_options(table, new)
    except InvalidRequest as e:
        where = "" if table in str(e) else f"table '{table}': "
        raise InvalidRequest(f"{where}{e}; change that option first") from e


def made_not_null(old: TableSchema, new: TableSchema) -> list[str]:
    """The columns, by their old names, that could hold NULL and cannot any more."""
    strict = {f.id for f in new.fields if not f.type.nullable}
    return [f.name for f in old.fields if f.type.nullable and f.id in strict]


PREFIX = "write.merge-schema"


@dataclass(frozen=True, slots=True)
class MergeSchema:
    """The changes of the table's columns that rows may cause."""

    on: bool = False
    widening: bool = False
    explicit: bool = False

    @staticmethod
    def of(options: Mapping[str, str]) -> MergeSchema:
        """Read options; raises :class:`InvalidRequest` for a value that is neither true nor false."""
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
    for name, kind in columns:
        field = written.get(name) or have.get(names.key(name))
        if field is None:
            out.append(AddColumn((*path, name), replace(kind, nullable=True)))
        else:
            _type(table, (*path, field.name), field.type, kind, how, names, out)


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
