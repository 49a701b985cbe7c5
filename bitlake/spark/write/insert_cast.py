"""INSERT casts: the rows of a query cast to a table's schema: names, types, lengths, NOT NULL.

Casts are those of ``CAST`` in ANSI mode, as in Paimon: a type that ``CAST`` does not convert is refused here, and a
value that does not fit its column fails the job with the column's name, whatever ``spark.sql.ansi.enabled`` is.

Writes by name match the members of structs by name at any depth.  With ``write.merge-schema``, rows written by name may
bring columns that the table does not have yet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from bitlake.engine.insert import check_count, match_names
from bitlake.errors import AlreadyExists, InvalidRequest
from bitlake.expressions.sql_text import quote, quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata.schema import Names
from bitlake.schema.evolution import MergeSchema, merged_changes
from bitlake.snapshot.state import TableState
from bitlake.spark.context import EngineContext
from bitlake.spark.types import from_spark_field, nullable, spark_type
from bitlake.types import AtomicType, DataField, Root
from bitlake.types.datatypes import MAX_LENGTH

_NUMERIC = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType)
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
_SIMPLE = (*_NUMERIC, *_TIMES, T.BooleanType)


def by_position(table: str, frame: DataFrame, fields: Sequence[DataField]) -> DataFrame:
    """Name the frame's columns after ``fields``, in order; raises :class:`InvalidRequest` if the counts differ."""
    check_count(table, frame.columns, fields)
    return frame.toDF(*[f.name for f in fields])


def by_name(
    table: str,
    frame: DataFrame,
    fields: Sequence[DataField],
    names: Names,
    *,
    nested: bool = True,
    fill: bool = False,
) -> DataFrame:
    """Pick the frame's columns by name, if ``nested`` members of structs too; what is missing is NULL.

    ``names``: which names are the same.  ``fill``: missing members of structs are NULL too, and not refused.
    Raises :class:`InvalidRequest` for columns that the table lacks, or that ``names`` does not tell apart.
    """
    columns = []
    for f, place in zip(fields, match_names(table, frame.columns, fields, names), strict=True):
        if place is None:
            columns.append(_default(f).alias(f.name))
            continue
        source_field = frame.schema.fields[place]
        inside = nested_by_name(table, source_field, f, names, fill=fill) if nested else None
        columns.append((F.col(quoted(source_field.name)) if inside is None else inside).alias(f.name))
    return frame.select(*columns)


def assigned(table: str, frame: DataFrame, fields: Sequence[DataField], names: Names) -> DataFrame:
    """Name the columns of assigned values after ``fields``, in order, with members of structs matched by name."""
    named = by_position(table, frame, fields)
    made = [nested_by_name(table, s, f, names, fill=False) for s, f in zip(named.schema.fields, fields, strict=True)]
    if not any(column is not None for column in made):
        return named
    columns = [F.col(quoted(f.name)) if c is None else c.alias(f.name) for c, f in zip(made, fields, strict=True)]
    return named.select(*columns)


def nested_by_name(table: str, source: T.StructField, field: DataField, names: Names, *, fill: bool) -> Column | None:
    """A column with the members of its structs matched by name, at any depth; None if all are in their places."""
    if isinstance(field.type, AtomicType):
        return None
    column = F.col(quoted(source.name))
    return Members(table, names, fill).matched(column, source.dataType, spark_type(field.type), field.name)


def with_defaults(
    table: str, frame: DataFrame, fields: Sequence[DataField], only: Collection[str] | None = None
) -> DataFrame:
    """The frame (its columns named after ``fields``) with the columns' defaults in place of NULLs, as Paimon writes.

    ``only``: of these columns.
    """
    if all(f.default_value is None for f in fields):
        return frame
    columns = []
    for source, f in zip(frame.schema.fields, fields, strict=True):
        column = with_default(table, source, f) if only is None or f.name in only else None
        columns.append(F.col(quoted(f.name)) if column is None else column.alias(f.name))
    return frame.select(*columns)


def with_default(table: str, source: T.StructField, field: DataField) -> Column | None:
    """A column whose NULLs are replaced by its field's default; None for a field without a default.

    The column is cast to the field's type first, so that the default keeps its own.
    """
    if field.default_value is None:
        return None
    wanted = spark_type(field.type)
    _check_assignable(table, field.name, source.dataType, wanted)
    column = F.col(quoted(source.name))
    if source.dataType != wanted:
        column = _cast(table, column, source.dataType, wanted, field.name, str(field.type))
    return F.coalesce(column, F.expr(field.default_value).cast(nullable(wanted)))


def store_columns(table: str, frame: DataFrame, fields: Sequence[DataField]) -> list[Column]:
    """The frame's columns (named after ``fields``) cast to the table's types and checked, with Parquet field ids."""
    out = []
    for source, f in zip(frame.schema.fields, fields, strict=True):
        column = _stored(table, source, f)
        column = F.col(quoted(source.name)) if column is None else column
        out.append(column.alias(f.name, metadata={"parquet.field.id": f.id}))
    return out


def stored(table: str, frame: DataFrame, fields: Sequence[DataField]) -> DataFrame:
    """The frame (its columns named after ``fields``) cast and checked as by :func:`store_columns`, without field ids.

    A column that is right already costs no call to the JVM: of 300, these calls took seconds.
    """
    casts = [_stored(table, source, f) for source, f in zip(frame.schema.fields, fields, strict=True)]
    if not any(column is not None for column in casts):
        return frame
    columns = [quoted(f.name) if c is None else c.alias(f.name) for c, f in zip(casts, fields, strict=True)]
    return frame.select(*columns)


def _stored(table: str, source: T.StructField, f: DataField) -> Column | None:
    """A column cast and checked; None if it can stay as it is."""
    wanted = spark_type(f.type)
    _check_assignable(table, f.name, source.dataType, wanted)
    filled = not f.type.nullable and source.nullable
    if source.dataType == wanted and not filled and not _fits_length(f) and not _not_null_inside(wanted):
        return None
    column = F.col(quoted(source.name))
    if source.dataType != wanted:
        column = _cast(table, column, source.dataType, wanted, f.name, str(f.type))
    column = _fit_length(table, column, f)
    inside = _null_inside(column, wanted)
    if inside is not None:
        message = f"table '{table}': NULL inside column '{f.name}', where {f.type} has NOT NULL"
        column = F.when(inside, F.raise_error(F.lit(message)).cast(nullable(wanted))).otherwise(column)
    if filled:
        message = f"table '{table}': NULL in column '{f.name}', which is NOT NULL"
        column = F.when(column.isNull(), F.raise_error(F.lit(message)).cast(nullable(wanted))).otherwise(column)
    return column


def _cast(table: str, column: Column, source: T.DataType, wanted: T.DataType, path: str, shown: str) -> Column:
    """The column as the table's type; a value that does not fit, at any depth, fails the job and names its column.

    Spark's own cast names no column, and with ``spark.sql.ansi.enabled`` = false it would store NULL, or wrap a number.
    """
    if _always_fits(source, wanted):
        return column.cast(nullable(wanted))
    made = _cast_inside(table, column, source, wanted, path)
    if made is not None:
        return made.cast(nullable(wanted))
    made = column.try_cast(wanted)
    numbers = isinstance(source, _NUMERIC) and isinstance(wanted, _NUMERIC)
    hint = "write a value in range, or make the column wider" if numbers else "write a value of that type"
    message = F.concat(
        F.lit(f"table '{table}', column '{path}': "),
        column.cast("string"),
        F.lit(f" does not fit {shown}; {hint}"),
    )
    return F.when(column.isNotNull() & made.isNull(), F.raise_error(message).cast(wanted)).otherwise(made)


def _cast_inside(table: str, column: Column, source: T.DataType, wanted: T.DataType, path: str) -> Column | None:
    """An array, a map or a struct with its values cast, by position; None for other types."""

    def inner(value: Column, old: T.DataType, new: T.DataType, name: str) -> Column:
        return value if old == new else _cast(table, value, old, new, f"{path}.{name}", new.simpleString().upper())

    if isinstance(source, T.ArrayType) and isinstance(wanted, T.ArrayType):
        element, to = source.elementType, wanted.elementType
        return F.transform(column, lambda e: inner(e, element, to, "element"))
    if isinstance(source, T.MapType) and isinstance(wanted, T.MapType):
        key, value, to_key, to_value = source.keyType, source.valueType, wanted.keyType, wanted.valueType
        keys = F.transform(F.map_keys(column), lambda k: inner(k, key, to_key, "key"))
        return F.map_from_arrays(keys, F.transform(F.map_values(column), lambda v: inner(v, value, to_value, "value")))
    if isinstance(source, T.StructType) and isinstance(wanted, T.StructType) and len(set(source.names)) == len(source):
        pairs = zip(source.fields, wanted.fields, strict=True)
        made = [inner(column.getField(a.name), a.dataType, b.dataType, b.name).alias(b.name) for a, b in pairs]
        return F.when(column.isNotNull(), F.struct(*made))
    return None


def _always_fits(source: T.DataType, wanted: T.DataType) -> bool:
    """Whether every value of a type can be cast to another."""
    if source == wanted or isinstance(source, T.NullType) or isinstance(wanted, (T.StringType, T.BinaryType)):
        return True
    if isinstance(wanted, _NUMERIC):
        if isinstance(source, T.BooleanType):
            return not isinstance(wanted, T.DecimalType)
        return isinstance(source, _NUMERIC) and _holds(wanted, source)
    if isinstance(wanted, T.BooleanType):
        return isinstance(source, _NUMERIC)
    if isinstance(wanted, _TIMES):
        return isinstance(source, _TIMES)
    inside = _types_inside(source, wanted)
    return inside is not None and all(_always_fits(*pair) for pair in inside)


def _types_inside(source: T.DataType, wanted: T.DataType) -> list[tuple[T.DataType, T.DataType]] | None:
    """The types inside of two arrays, maps or structs, pair by pair; None for types that are not alike."""
    match source, wanted:
        case T.ArrayType(), T.ArrayType():
            return [(source.elementType, wanted.elementType)]
        case T.MapType(), T.MapType():
            return [(source.keyType, wanted.keyType), (source.valueType, wanted.valueType)]
        case T.StructType(), T.StructType() if len(source) == len(wanted):
            return [(a.dataType, b.dataType) for a, b in zip(source.fields, wanted.fields, strict=True)]
    return None


def _holds(wanted: T.DataType, source: T.DataType) -> bool:
    """Whether every number of one type can be cast to another without overflow."""
    if isinstance(wanted, (T.FloatType, T.DoubleType)):
        return True  # rounds, or becomes infinite, as in Spark
    if isinstance(source, (T.FloatType, T.DoubleType)):
        return False
    return _whole_digits(source) <= _whole_digits(wanted)


def _whole_digits(made: T.DataType) -> float:
    """Digits left of the point that a type surely holds (as a target) or may need (as a source)."""
    if isinstance(made, T.DecimalType):
        return made.precision - made.scale
    return {"tinyint": 2.5, "smallint": 4.5, "int": 9.5, "bigint": 18.5}[made.simpleString()]


def _null_inside(column: Column, made: T.DataType) -> Column | None:
    """Whether a value holds NULL where its type has NOT NULL; None if the type has that nowhere inside."""
    if isinstance(made, T.ArrayType):
        return _null_element(column, made.elementType, made.containsNull)
    if isinstance(made, T.MapType):
        keys = _null_element(F.map_keys(column), made.keyType, True)
        values = _null_element(F.map_values(column), made.valueType, made.valueContainsNull)
        return values if keys is None else keys if values is None else keys | values
    if not isinstance(made, T.StructType):
        return None
    found: Column | None = None
    for f in made.fields:
        child = column.getField(f.name)
        bad = _null_inside(child, f.dataType)
        if not f.nullable:
            bad = child.isNull() if bad is None else child.isNull() | bad
        if bad is not None:
            found = bad if found is None else found | bad
    return None if found is None else column.isNotNull() & found


def _null_element(array: Column, made: T.DataType, nullable: bool) -> Column | None:
    if nullable and not _not_null_inside(made):
        return None

    def bad(element: Column) -> Column:
        inside = _null_inside(element, made)
        if inside is None:
            return element.isNull()
        return F.coalesce(inside, F.lit(False)) if nullable else element.isNull() | inside

    return F.coalesce(F.exists(array, bad), F.lit(False))


def has_not_null_inside(fields: Sequence[DataField]) -> bool:
    """Whether a column's type has NOT NULL somewhere inside (a struct's field, an element, a map's value)."""
    return any(_not_null_inside(spark_type(f.type)) for f in fields)


def _not_null_inside(made: T.DataType) -> bool:
    """Whether :func:`_null_inside` has anything to look for in a type."""
    if isinstance(made, T.ArrayType):
        return not made.containsNull or _not_null_inside(made.elementType)
    if isinstance(made, T.MapType):
        return not made.valueContainsNull or _not_null_inside(made.keyType) or _not_null_inside(made.valueType)
    if isinstance(made, T.StructType):
        return any(not f.nullable or _not_null_inside(f.dataType) for f in made.fields)
    return False


def _default(field: DataField) -> Column:
    if field.default_value is not None:
        return F.expr(field.default_value).cast(spark_type(field.type))
    return F.lit(None).cast(spark_type(field.type))


def _fit_length(table: str, column: Column, field: DataField) -> Column:
    """CHAR(n) is padded with blanks and VARCHAR(n) checked, both counting characters, as Spark stores them."""
    kind = field.type
    if not _fits_length(field) or not isinstance(kind, AtomicType) or kind.length is None:
        return column
    message = f"table '{table}': a value is longer than column '{field.name}' {kind} allows"
    too_long = F.raise_error(F.lit(message)).cast(T.StringType())
    fitted = F.rpad(column, kind.length, " ") if kind.root is Root.CHAR else column
    # Trailing blanks beyond the length are dropped rather than refused, in CHAR and VARCHAR alike.
    trimmed = (
        F.rpad(F.rtrim(column), kind.length, " ") if kind.root is Root.CHAR else F.substring(column, 1, kind.length)
    )
    return (
        F.when(F.char_length(column) <= kind.length, fitted)
        .when(F.char_length(F.rtrim(column)) <= kind.length, trimmed)
        .when(column.isNull(), F.lit(None).cast(T.StringType()))
        .otherwise(too_long)
    )


def _fits_length(field: DataField) -> bool:
    """Whether a column's strings have a length to fit."""
    kind = field.type
    return (
        isinstance(kind, AtomicType)
        and kind.root in (Root.CHAR, Root.VARCHAR)
        and kind.length not in (None, MAX_LENGTH)
    )


def _check_assignable(table: str, name: str, source: T.DataType, wanted: T.DataType) -> None:
    if not _assignable(source, wanted):
        raise InvalidRequest(
            f"table '{table}', column '{name}': cannot store {source.simpleString()} into {wanted.simpleString()}, "
            "for which SQL has no cast; convert the value with a function"
        )


def _assignable(source: T.DataType, wanted: T.DataType) -> bool:
    """Whether CAST in ANSI mode converts a type to another, at any depth; structs by position."""
    if source == wanted or isinstance(source, T.NullType):
        return True
    if isinstance(wanted, (T.StringType, T.BinaryType)):
        texts = (T.StringType, T.BinaryType)
        return isinstance(source, texts) or (isinstance(wanted, T.StringType) and isinstance(source, _SIMPLE))
    if isinstance(source, T.StringType):
        return isinstance(wanted, _SIMPLE)
    if isinstance(source, (*_NUMERIC, T.BooleanType)):
        instants = isinstance(wanted, T.TimestampType) and not isinstance(source, T.BooleanType)
        return instants or isinstance(wanted, (*_NUMERIC, T.BooleanType))
    if isinstance(source, _TIMES):
        numbers = isinstance(source, T.TimestampType) and isinstance(wanted, _NUMERIC)
        return numbers or isinstance(wanted, _TIMES)
    inside = _types_inside(source, wanted)
    return inside is not None and all(_assignable(*pair) for pair in inside)


# --- members of structs by name ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Members:
    """Matches the members of structs in rows with those of a table's columns, at any depth.

    Members belong together whose names are the same by ``names``; those that the rows lack are NULL if ``fill``.
    Raises :class:`InvalidRequest` if they may not be, and for members that the table lacks.
    """

    table: str
    names: Names
    fill: bool

    def matched(self, column: Column, source: T.DataType, wanted: T.DataType, path: str) -> Column | None:
        """A column whose structs have the members of ``wanted``, in its order; None if they have already.

        Types of values are left as they are.
        """
        if isinstance(source, T.StructType) and isinstance(wanted, T.StructType):
            return self._struct(column, source, wanted, path)
        if isinstance(source, T.ArrayType) and isinstance(wanted, T.ArrayType):
            inner = (source.elementType, wanted.elementType, f"{path}.element")
            changed = self.matched(column, *inner) is not None
            return F.transform(column, lambda e: self._inside(e, *inner)) if changed else None
        if isinstance(source, T.MapType) and isinstance(wanted, T.MapType):
            keys = (source.keyType, wanted.keyType, f"{path}.key")
            values = (source.valueType, wanted.valueType, f"{path}.value")
            if self.matched(column, *keys) is not None:
                new_keys = F.transform(F.map_keys(column), lambda k: self._inside(k, *keys))
                new_values = F.transform(F.map_values(column), lambda v: self._inside(v, *values))
                return F.map_from_arrays(new_keys, new_values)
            if self.matched(column, *values) is not None:
                return F.transform_values(column, lambda _, v: self._inside(v, *values))
        return None

    def _inside(self, value: Column, source: T.DataType, wanted: T.DataType, path: str) -> Column:
        made = self.matched(value, source, wanted, path)
        return value if made is None else made

    def _struct(self, column: Column, source: T.StructType, wanted: T.StructType, path: str) -> Column | None:
        have, changed = self._have(source, wanted, path)
        members = []
        for f in wanted.fields:
            source_field = have.get(self.names.key(f.name))
            if source_field is None:
                members.append(F.lit(None).cast(f.dataType).alias(f.name))
                continue
            value = column.getField(source_field.name)
            made = self.matched(value, source_field.dataType, f.dataType, f"{path}.{f.name}")
            changed = changed or made is not None
            members.append((value if made is None else made).alias(f.name))
        return F.when(column.isNotNull(), F.struct(*members)) if changed else None

    def _have(self, source: T.StructType, wanted: T.StructType, path: str) -> tuple[dict[str, T.StructField], bool]:
        """The members that the rows have, by the keys of their names; and whether they are not in their places."""
        key = self.names.key
        have, known = ({key(f.name): f for f in made.fields} for made in (source, wanted))
        extra = [f.name for f in source.fields if key(f.name) not in known]
        if extra:
            raise InvalidRequest(
                f"table '{self.table}' has no member '{path}.{extra[0]}'; it has "
                f"{', '.join(f.name for f in wanted.fields)} (the option write.merge-schema adds what is new)"
            )
        missing = [f for f in wanted.fields if key(f.name) not in have]
        if missing and not self.fill:
            raise InvalidRequest(
                f"table '{self.table}': the rows have no member '{path}.{missing[0].name}'; give it a value, CAST(NULL "
                f"AS {missing[0].dataType.simpleString().upper()}) for none, or set write.merge-schema"
            )
        return have, [key(f.name) for f in source.fields] != [key(f.name) for f in wanted.fields]

    def as_text(self, value: str, source: T.DataType, wanted: T.DataType, path: str, old: str | None) -> str | None:
        """As :meth:`matched`, of a struct (and structs in it) in SQL text; None if all is in its place.

        With ``old`` (the struct as it was) members that the source lacks stay what they were.
        """
        if not isinstance(source, T.StructType) or not isinstance(wanted, T.StructType):
            return None
        have, changed = self._have(source, wanted, path)
        items = []
        for f in wanted.fields:
            found, was = have.get(self.names.key(f.name)), None if old is None else f"{old}.{quoted(f.name)}"
            if found is None:
                item = was or f"CAST(NULL AS {f.dataType.simpleString()})"
            else:
                item = f"{value}.{quoted(found.name)}"
                made = self.as_text(item, found.dataType, f.dataType, f"{path}.{f.name}", was)
                changed, item = changed or made is not None, item if made is None else made
            items.append(f"{quote(f.name)}, {item}")
        return f"CASE WHEN {value} IS NOT NULL THEN named_struct({', '.join(items)}) END" if changed else None


# --- new columns: write.merge-schema ----------------------------------------------------------------------------------


def merged_state(
    context: EngineContext, table: FileStoreTable, state: TableState, frame: DataFrame, how: MergeSchema
) -> TableState:
    """The table's state, with the columns that the rows bring if they may; the table is altered before the write."""
    return merged_with(table, state, frame.schema, how, context.names)


def merged_with(
    table: FileStoreTable, state: TableState, types: T.StructType, how: MergeSchema, names: Names = Names.FOLDED
) -> TableState:
    """:func:`merged_state` for rows of which only the columns are known yet."""
    columns = [(f.name, from_spark_field(f)) for f in types.fields] if how.on else []
    changes = merged_changes(table.name, state.schema, columns, how, names)
    if not changes:
        return state
    try:
        table.alter(*changes, names=names)
    except AlreadyExists:  # another writer brought the same columns first
        table.alter(*merged_changes(table.name, table.schema, columns, how, names), names=names)
    return table.state()
