"""Convert a batch to a table's columns and Arrow types; an error names the column that does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.lazy_modules import compute as pc
from bitlake.types.arrow import holds
from bitlake.types.datatypes import MAX_LENGTH, AtomicType, DataField, Root

Column = Any
"""A pyarrow Array or ChunkedArray (pyarrow has no type stubs)."""
Rows = Any
"""A pyarrow Table or RecordBatch."""


def conform(batch: pa.RecordBatch | pa.Table, fields: Sequence[DataField], schema: pa.Schema) -> pa.Table:
    """The columns ``fields`` of a batch, by name, as ``schema`` (the fields' Arrow schema).

    Extra columns, in any order, are an error, as is a missing column that is NOT NULL; a missing nullable column is
    NULL.  Timestamps are floored to the column's unit, as Paimon does; any other loss raises, and so does a value that
    would get another meaning: a number as a time, whose unit is not known, or bytes as a number.
    Raises :class:`InvalidRequest` naming the column.
    """
    table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    if table.schema.equals(schema):
        columns: list[Column] = table.columns
    else:
        unknown = [n for n in table.column_names if n not in schema.names]
        if unknown:
            raise InvalidRequest(f"the batch has column '{unknown[0]}', which is not among {', '.join(schema.names)}")
        columns = [_column(table, f, target) for f, target in zip(fields, schema, strict=True)]
    for field, column in zip(fields, columns, strict=True):
        if not field.type.nullable and column.null_count:
            raise InvalidRequest(f"column '{field.name}' is NOT NULL, but {column.null_count} of its values are NULL")
        if pa.types.is_nested(column.type):
            for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                _check_nested(chunk, field.name)
    return pa.Table.from_arrays(columns, schema=schema)


def null_column(rows: int, kind: pa.DataType) -> pa.Array:
    """Return ``rows`` NULLs that can be written: under NULL structs, NOT NULL members hold arbitrary values.

    ``pa.nulls`` makes those NULL too, which Arrow's Parquet writer then refuses.
    """
    if not pa.types.is_struct(kind):
        return pa.nulls(rows, kind)
    return nulls_inside(pa.array([None], kind)).take(pa.array(np.zeros(rows, np.int64)))


def nulls_inside(array: pa.Array) -> pa.Array:
    """The array with members that are NULL where their struct is, unless they are NOT NULL.

    Arrow keeps other values there, which readers must not look at.  DataFusion does: it shows them as the members of
    NULL structs.
    """
    kind = array.type
    if not holds(kind, pa.types.is_struct):
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        members = [
            member if field.nullable else array.field(i).slice(array.offset, len(array))
            for i, (field, member) in enumerate(zip(kind, array.flatten(), strict=True))
        ]
        return pa.StructArray.from_arrays([nulls_inside(m) for m in members], fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        items = nulls_inside(array.items)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=mask)
    return pa.ListArray.from_arrays(array.offsets, nulls_inside(array.values), type=kind, mask=mask)


def nullable(schema: pa.Schema) -> pa.Schema:
    """The schema with columns that may be NULL."""
    return pa.schema([f.with_nullable(True) for f in schema])


def retyped(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of ``table`` under ``schema``, in order, cast by :func:`cast_column` where the types differ.

    Casting equal types is not for nothing: Arrow refuses it for a NULL struct whose type has NOT NULL fields.
    """
    columns = [cast_column(c, f.type) for c, f in zip(table.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(table: pa.Table, field: DataField, target: pa.Field) -> Column:
    places = table.schema.get_all_field_indices(field.name)
    if len(places) > 1:
        raise InvalidRequest(f"the batch has {len(places)} columns named '{field.name}'")
    if not places:
        if not field.type.nullable:
            raise InvalidRequest(f"the batch lacks column '{field.name}', which is NOT NULL")
        return null_column(table.num_rows, target.type)
    column = table.column(places[0])
    if column.type == target.type:
        return column
    try:
        reason = _other_meaning(column.type, target.type)
        if reason is not None:
            raise pa.ArrowNotImplementedError(reason)
        column = addressable(column)
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            _check_values(chunk, target.type)
        return cast_column(column, target.type)
    except (pa.ArrowException, ValueError) as e:
        raise InvalidRequest(f"column '{field.name}' is {field.type}, but a value of {column.type} is not: {e}") from e


def _other_meaning(source: pa.DataType, target: pa.DataType) -> str | None:
    """Why values of a type, or of its members, must not be cast to another that Arrow would cast them to."""
    if pa.types.is_dictionary(source) or pa.types.is_run_end_encoded(source):
        source = source.value_type
    extension = getattr(source, "extension_name", None)
    if extension == "pandas.period":
        return "a period is not taken as a number; make timestamps of it first"
    if extension == "arrow.uuid" and _is_text(target):
        return "a UUID is 16 bytes, not text; cast it to text first"
    for before, after in _members(source, target):
        reason = _other_meaning(before, after)
        if reason is not None:
            return reason
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        unknown = next((f.name for f in source if target.get_field_index(f.name) < 0), None)
        if unknown is not None:
            return f"member '{unknown}' is not among {', '.join(f.name for f in target)}"
        if len({f.name for f in source}) < source.num_fields:
            return f"two members have one name, of {', '.join(f.name for f in source)}"
    if _is_text(source) and not _is_text(target):
        return f"text is not parsed; cast it to {target} first"
    if pa.types.is_duration(source):
        return "no column type stores a duration; cast it to a number first"
    if pa.types.is_temporal(source) and is_number(target):
        return f"a time is not taken as a number; cast it to {target} first"
    if is_number(source) and pa.types.is_temporal(target):
        return f"a number is not taken as a time, since its unit is not known; cast it to {target} first"
    if pa.types.is_timestamp(source) and pa.types.is_time(target):
        return f"the day would be lost; cast it to {target} first"
    if _is_bytes(source) and (is_number(target) or pa.types.is_boolean(target)):
        return f"bytes are not parsed; cast them to {target} first"
    return None


def _members(source: pa.DataType, target: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]]:
    """The types inside two nested types that a cast pairs."""
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        names = {f.name: f.type for f in target}
        return [(f.type, names[f.name]) for f in source if f.name in names]
    if pa.types.is_map(source) and pa.types.is_map(target):
        return [(source.key_type, target.key_type), (source.item_type, target.item_type)]
    if hasattr(source, "value_type") and hasattr(target, "value_type"):
        return [(source.value_type, target.value_type)]
    return []


def _check_values(array: pa.Array, target: pa.DataType) -> None:
    """Raise :class:`pyarrow.ArrowInvalid` for a value, or one inside it, that Arrow's cast would change silently."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    source = array.type
    if source == target:
        return
    if pa.types.is_timestamp(source) and pa.types.is_date(target):
        _check_midnight(array)
    elif pa.types.is_boolean(target) and (pa.types.is_integer(source) or pa.types.is_floating(source)):
        _check_boolean(array)
    elif (pa.types.is_timestamp(source) or pa.types.is_date(source)) and _is_text(target):
        _check_years(array)
    elif pa.types.is_floating(source) and pa.types.is_floating(target):
        if pc.any(pc.and_(pc.is_finite(array), pc.is_inf(array.cast(target))), min_count=0).as_py():
            raise pa.ArrowInvalid(f"a number is too large for {target}")
    elif pa.types.is_nested(source) and pa.types.is_nested(target):
        # A map and a list, for example, have no members to pair; Arrow's cast refuses them.
        for (_, values), (_, inner) in zip(_children(array), _members(source, target), strict=False):
            _check_values(values, inner)


_MAX_SECONDS_AS_TEXT = 971_800_000_000
"""Seconds from 1970 to the year 32765: Arrow formats years of 16 bits."""


def _check_midnight(array: pa.Array) -> None:
    """Raise :class:`pyarrow.ArrowInvalid` unless timestamps are whole days, in their own zone: pandas has no dates."""
    local = array if array.type.tz is None else pc.local_timestamp(array)
    if not pc.all(pc.equal(pc.floor_temporal(local, unit="day"), local), min_count=0).as_py():
        raise pa.ArrowInvalid("a timestamp has a time of day, which a DATE would lose; cast it first")


def _check_years(times: pa.Array) -> None:
    """Raise :class:`pyarrow.ArrowInvalid` for a year of more than 16 bits: Arrow formats another year, or an error."""
    bounds = pc.min_max(times.cast(pa.timestamp("s"), safe=False).cast(pa.int64()))
    if any(abs(bounds[end].as_py() or 0) > _MAX_SECONDS_AS_TEXT for end in ("min", "max")):
        raise pa.ArrowInvalid("a date or time is out of the range of years that have a text (-28825 to 32765)")


def _check_boolean(numbers: Column) -> None:
    """Raise :class:`pyarrow.ArrowInvalid` unless all numbers are 0 or 1: Arrow takes every number but 0 for TRUE."""
    if not pc.all(pc.or_(pc.equal(numbers, 0), pc.equal(numbers, 1)), min_count=0).as_py():
        raise pa.ArrowInvalid("only the numbers 0 and 1 are booleans")


def cast_column(column: Column, target: pa.DataType) -> Column:
    """Cast ``column`` to ``target`` without loss, except that timestamps are floored.

    Raises :class:`pyarrow.ArrowInvalid` or :class:`pyarrow.ArrowNotImplementedError`.
    """
    column = addressable(column)
    source = column.type
    if source == target:
        return column
    if _is_text(source) and not _is_text(target):
        raise pa.ArrowNotImplementedError(f"text is not parsed; cast it to {target} first")
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        if _UNITS[source.unit] > _UNITS[target.unit]:
            column = pc.floor_temporal(column, unit=_UNIT_NAMES[target.unit])
    elif pa.types.is_boolean(target) and (pa.types.is_integer(source) or pa.types.is_floating(source)):
        _check_boolean(column)
    elif pa.types.is_integer(source) and pa.types.is_decimal(target):
        # Arrow wants room for any 64-bit number at the target's scale, then checks the values against the precision.
        column = column.cast(pa.decimal128(38, 0)).cast(pa.decimal256(76, target.scale))
    return column.cast(target)


_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_CHUNK_BYTES = 1 << 30
"""The most that a chunk takes whose text, bytes and lists are to be addressed with 32 bits; these reach 2 GiB."""


def addressable(column: Column) -> Column:
    """The column without views and run-end encoding, in chunks whose values can be addressed with 32 bits.

    Arrow refuses to cast large strings beyond 2 GiB to strings, and a slice of them, too, and makes invalid strings of
    such string views (as of Arrow 26).  Polars has such columns: its text is large, and often in one chunk.
    """
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    if not holds(column.type, _is_wide):
        return column
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    pieces = [piece for chunk in chunks for piece in _pieces(_without_views(chunk))]
    if len(pieces) == 1 and isinstance(column, pa.Array):
        return pieces[0]
    return pa.chunked_array(pieces, _type_without_views(column.type))


def rebased(rows: Rows) -> Rows:
    """The rows with copies of columns that have structs inside lists, maps or structs, so that no offset is above 0.

    DuckDB 2.0 refuses offsets above these structs, which slices of a file's rows have.
    """
    for i, field in enumerate(rows.schema):
        if _has_inner_struct(field.type):
            column = rows.column(i)
            copied = (
                pa.chunked_array([_copied(c) for c in column.chunks], field.type)
                if isinstance(column, pa.ChunkedArray)
                else _copied(column)
            )
            rows = rows.set_column(i, field, copied)
    return rows


def _copied(array: pa.Array) -> pa.Array:
    """The array in buffers of its own, whose offsets begin at 0."""
    return pa.concat_arrays([array, array.slice(0, 0)])


def _has_inner_struct(kind: pa.DataType) -> bool:
    if not pa.types.is_nested(kind):
        return False
    if pa.types.is_map(kind):
        inside = [kind.key_type, kind.item_type]
    else:
        inside = [kind.field(i).type for i in range(kind.num_fields)]
    return any(pa.types.is_struct(k) or _has_inner_struct(k) for k in inside)


def in_pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows in tables of at most :data:`_CHUNK_BYTES`, or of one row, whose rows Arrow can gather.

    It concatenates the chunks of a column first, which fails for strings beyond 2 GiB.
    """
    if rows.num_rows > 1 and rows.nbytes > _CHUNK_BYTES:
        half = rows.num_rows // 2
        yield from in_pieces(rows.slice(0, half))
        yield from in_pieces(rows.slice(half))
    else:
        yield rows


def take_rows(rows: pa.Table, numbers: pa.Array) -> pa.Table:
    """Gather rows by their numbers, however much text they have; see :func:`in_pieces`."""
    if rows.nbytes <= _CHUNK_BYTES:
        return rows.take(numbers)
    schema = rows.schema
    large = pa.schema([f.with_type(_LARGE.get(f.type, f.type)) for f in schema])
    return retyped(retyped(rows, large).take(numbers), schema)


def _pieces(array: pa.Array) -> list[pa.Array]:
    """The array in pieces of at most :data:`_CHUNK_BYTES`, or of one value, whose offsets begin at 0."""
    if len(array) > 1 and _decoded_bytes(array) > _CHUNK_BYTES:
        half = len(array) // 2
        return [*_pieces(array.slice(0, half)), *_pieces(array.slice(half))]
    if array.offset and holds(array.type, _is_large):
        return [_copied(array)]
    return [array]


def _decoded_bytes(array: pa.Array) -> int:
    """Estimate the bytes of an array without its dictionary."""
    kind = array.type
    if not pa.types.is_dictionary(kind) or not (_is_text(kind.value_type) or _is_bytes(kind.value_type)):
        return int(array.nbytes)
    return pc.sum(pc.binary_length(array.dictionary).take(array.indices), min_count=0).as_py() or 0


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_large_list(kind))


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _is_view(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return holds(kind.value_type, _is_view)
    return bool(_is_list_view(kind) or pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _is_wide(kind: pa.DataType) -> bool:
    """Whether values of a type may take more than 32 bits address."""
    return _is_large(kind) or _is_view(kind) or bool(pa.types.is_dictionary(kind))


def _type_without_views(kind: pa.DataType) -> pa.DataType:
    """The type with large strings and large bytes for views, and large lists for lists of views and for list views."""
    if not holds(kind, _is_view):
        return kind
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _type_without_views(kind.value_type), kind.ordered)
    inside = [kind.field(i) for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        inside = [kind.key_field, kind.item_field]
    fields = [f.with_type(_type_without_views(f.type)) for f in inside]
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_map(kind):
        return pa.map_(*fields)
    return pa.list_(fields[0], kind.list_size) if pa.types.is_fixed_size_list(kind) else pa.large_list(fields[0])


def _without_views(array: pa.Array) -> pa.Array:
    """The array as :func:`_type_without_views`.

    Arrow's cast gives other values where a list view is a slice.
    """
    kind = array.type
    if not holds(kind, _is_view):
        return array
    made = _type_without_views(kind)
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(array.indices, _without_views(array.dictionary), ordered=kind.ordered)
    if not pa.types.is_nested(kind):
        return array.cast(made)
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        children = [_without_views(array.field(i)) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(made), mask=mask)
    if pa.types.is_fixed_size_list(kind):
        start = array.offset * kind.list_size
        values = array.values.slice(start, len(array) * kind.list_size)
        return pa.FixedSizeListArray.from_arrays(_without_views(values), type=made, mask=mask)
    if pa.types.is_map(kind):
        # Offsets that are a slice cannot go with a mask.
        offsets = pa.array(array.offsets.to_numpy())
        keys, items = _without_views(array.keys), _without_views(array.items)
        return pa.MapArray.from_arrays(offsets, keys, items, type=made, mask=mask)
    sizes = pc.fill_null(pc.list_value_length(array), 0)
    offsets = np.concatenate([[0], np.cumsum(sizes.to_numpy(), dtype=np.int64)])
    return pa.LargeListArray.from_arrays(offsets, _without_views(array.flatten()), type=made, mask=mask)


_UNITS = {"s": 0, "ms": 1, "us": 2, "ns": 3}
_UNIT_NAMES = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a type has integers, floating-point numbers or decimals."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(test(kind) for test in tests)


def _check_nested(array: pa.Array, name: str) -> None:
    """Refuse NULL in a NOT NULL member, where the parent itself is not NULL."""
    for member, values in _children(array):
        if not member.nullable and values.null_count:
            raise InvalidRequest(f"column '{name}': its '{member.name}' is NOT NULL, but {values.null_count} are NULL")
        if pa.types.is_nested(values.type):
            _check_nested(values, name)


def _children(array: pa.Array) -> list[tuple[pa.Field, pa.Array]]:
    """The values inside a nested array, by member; those under NULL are not among them."""
    kind = array.type
    if pa.types.is_struct(kind):
        inside = array.filter(array.is_valid()) if array.null_count else array
        return [(kind.field(i), inside.field(i)) for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        # Slots of NULL maps may hold leftover entries; a rebuilt array has none.
        whole = array.filter(array.is_valid()) if array.null_count else array
        start, stop = whole.offsets[0].as_py(), whole.offsets[len(whole)].as_py()
        keys, items = whole.keys.slice(start, stop - start), whole.items.slice(start, stop - start)
        return [(kind.key_field, keys), (kind.item_field, items)]
    return [(kind.value_field, array.flatten())]


def fit_length(table: str, column: Column, field: DataField) -> Column:
    """Return the values as a column of CHAR, VARCHAR, BINARY or VARBINARY stores them: padded, without blanks too many.

    Values of other types are returned as they are.  Raises :class:`InvalidRequest` for a longer value.
    """
    declared = field.type
    if not isinstance(declared, AtomicType) or declared.length is None or declared.length == MAX_LENGTH:
        return column  # of a type without a length, or of the longest
    if declared.root in (Root.CHAR, Root.VARCHAR):
        lengths = pc.utf8_length(column)
        if (pc.max(lengths).as_py() or 0) > declared.length:
            if (pc.max(pc.utf8_length(pc.utf8_rtrim(column, characters=" "))).as_py() or 0) > declared.length:
                raise InvalidRequest(f"table '{table}': a value is longer than column '{field.name}' {declared} allows")
            column = pc.utf8_slice_codeunits(column, 0, declared.length)  # blanks beyond the length are dropped
        if declared.root is Root.CHAR:
            column = pc.utf8_rpad(column, width=declared.length, padding=" ")
    elif (pc.max(pc.binary_length(column)).as_py() or 0) > declared.length:
        raise InvalidRequest(f"table '{table}': a value is longer than column '{field.name}' {declared} allows")
    return column
