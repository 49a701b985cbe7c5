"""Struct members put in their places by name, at any depth, for writes by name."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from bitlake.errors import InvalidRequest
from bitlake.expressions.sql_text import quoted
from bitlake.metadata.names import Names


def members_by_name(
    table: str, column: Column, source: T.DataType, wanted: T.DataType, path: str, names: Names, *, fill: bool
) -> Column | None:
    """A column whose structs have the members of ``wanted``, in its order; None if they have already.

    Members belong together whose names are the same by ``names``; those that the source lacks are NULL if ``fill``.
    Raises :class:`InvalidRequest` if they may not be, and for members that the table lacks.  Types of values are left
    as they are.
    """
    if isinstance(source, T.StructType) and isinstance(wanted, T.StructType):
        return _struct(table, column, source, wanted, path, names, fill)
    if isinstance(source, T.ArrayType) and isinstance(wanted, T.ArrayType):
        inner, target = source.elementType, wanted.elementType
        if members_by_name(table, column, inner, target, f"{path}.element", names, fill=fill) is None:
            return None
        return F.transform(column, lambda e: _inside(table, e, inner, target, f"{path}.element", names, fill))
    if isinstance(source, T.MapType) and isinstance(wanted, T.MapType):
        return _map(table, column, source, wanted, path, names, fill)
    return None


def _map(
    table: str, column: Column, source: T.MapType, wanted: T.MapType, path: str, names: Names, fill: bool
) -> Column | None:
    keys, values = (
        (source.keyType, wanted.keyType, f"{path}.key"),
        (source.valueType, wanted.valueType, f"{path}.value"),
    )
    if members_by_name(table, column, *keys, names, fill=fill) is not None:
        new_keys = F.transform(F.map_keys(column), lambda k: _inside(table, k, *keys, names, fill))
        return F.map_from_arrays(
            new_keys, F.transform(F.map_values(column), lambda v: _inside(table, v, *values, names, fill))
        )
    if members_by_name(table, column, *values, names, fill=fill) is None:
        return None
    return F.transform_values(column, lambda _, v: _inside(table, v, *values, names, fill))


def _inside(
    table: str, value: Column, source: T.DataType, wanted: T.DataType, path: str, names: Names, fill: bool
) -> Column:
    made = members_by_name(table, value, source, wanted, path, names, fill=fill)
    return value if made is None else made


def _struct(
    table: str, column: Column, source: T.StructType, wanted: T.StructType, path: str, names: Names, fill: bool
) -> Column | None:
    have = {names.key(f.name): f for f in source.fields}
    _check_members(table, source, wanted, path, names, fill)
    changed = [names.key(f.name) for f in source.fields] != [names.key(f.name) for f in wanted.fields]
    members = []
    for f in wanted.fields:
        found = have.get(names.key(f.name))
        if found is None:
            members.append(F.lit(None).cast(f.dataType).alias(f.name))
            continue
        value = column.getField(found.name)
        made = members_by_name(table, value, found.dataType, f.dataType, f"{path}.{f.name}", names, fill=fill)
        changed = changed or made is not None
        members.append((value if made is None else made).alias(f.name))
    return F.when(column.isNotNull(), F.struct(*members)) if changed else None


def _check_members(table: str, source: T.StructType, wanted: T.StructType, path: str, names: Names, fill: bool) -> None:
    """Raise :class:`InvalidRequest` for members that the table lacks, and unless ``fill`` those that the rows lack."""
    have, known = ({names.key(f.name) for f in made.fields} for made in (source, wanted))
    extra = [f.name for f in source.fields if names.key(f.name) not in known]
    if extra:
        raise InvalidRequest(
            f"table '{table}' has no member '{path}.{extra[0]}'; it has {', '.join(f.name for f in wanted.fields)} "
            "(the option write.merge-schema adds what is new)"
        )
    missing = [f for f in wanted.fields if names.key(f.name) not in have]
    if missing and not fill:
        raise InvalidRequest(
            f"table '{table}': the rows have no member '{path}.{missing[0].name}'; give it a value, CAST(NULL AS "
            f"{missing[0].dataType.simpleString().upper()}) for none, or set write.merge-schema"
        )


def members_as_text(
    table: str, value: str, source: T.DataType, wanted: T.DataType, path: str, old: str | None, names: Names, fill: bool
) -> str | None:
    """As :func:`members_by_name`, of a struct (and structs in it) in SQL text; None if all is in its place.

    With ``old`` (the struct as it was) members that the source lacks stay what they were.
    """
    if not isinstance(source, T.StructType) or not isinstance(wanted, T.StructType):
        return None
    have = {names.key(f.name): f for f in source.fields}
    _check_members(table, source, wanted, path, names, fill)
    changed = [names.key(f.name) for f in source.fields] != [names.key(f.name) for f in wanted.fields]
    items = []
    for f in wanted.fields:
        found, was = have.get(names.key(f.name)), None if old is None else f"{old}.{quoted(f.name)}"
        if found is None:
            item = was or f"CAST(NULL AS {f.dataType.simpleString()})"
        else:
            item = f"{value}.{quoted(found.name)}"
            made = members_as_text(table, item, found.dataType, f.dataType, f"{path}.{f.name}", was, names, fill)
            changed, item = changed or made is not None, item if made is None else made
        escaped = f.name.replace("\\", "\\\\").replace("'", "\\'")
        items.append(f"'{escaped}', {item}")
    return f"CASE WHEN {value} IS NOT NULL THEN named_struct({', '.join(items)}) END" if changed else None
