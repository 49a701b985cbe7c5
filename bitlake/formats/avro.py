"""Avro data files, as Paimon (Java) writes them: read as Arrow batches, and written.

=========================  =====================================================================================
Paimon                     Avro
=========================  =====================================================================================
NULLable type              union of null and the type, default null
TINYINT, SMALLINT, INT     int
CHAR, VARCHAR              string
DECIMAL                    bytes, logical type decimal
DATE, TIME                 int, logical types date and time-millis
TIMESTAMP                  long, ``timestamp-millis|micros`` (the reverse of what Avro means)
TIMESTAMP_LTZ              long, ``local-timestamp-millis|micros`` (likewise)
MAP, key CHAR or VARCHAR   map
MAP with any other key     array of record{key, value}, logical type ``map``
MULTISET                   a map to nullable int
ROW                        record, named after the path to it (names must differ)
=========================  =====================================================================================

Because timestamps are reversed, only Paimon's own readers interpret these files correctly.

fastavro decodes and encodes rows one by one, as Python objects: the format is for tables that others write as Avro, not
for speed.  A file is checked before fastavro sees it (:mod:`bitlake.codec.avro`): its schema, and the size to which a
block decompresses, which is at most 64 MiB plus 32 times its stored size.

Written files have statistics counted from the data: Paimon keeps none for Avro files (its extractor reads only the
number of rows), but prunes by those it finds.

Source: table-format spec, section 8.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

import fastavro
import fastavro.write
import pyarrow as pa

from bitlake import _clock
from bitlake.codec.avro import BLOCK_BYTES, Header, PlainContainer, read_blocks, read_header
from bitlake.errors import CorruptError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.formats.conform import conform, nulls_inside
from bitlake.formats.parquet.write import WrittenFile
from bitlake.io.local import failure
from bitlake.metadata.stats import TableBounds
from bitlake.types.arrow import arrow_schema
from bitlake.types.datatypes import (
    STRINGS,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
)

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "timestamp-millis": pa.timestamp("ms"),
    "timestamp-micros": pa.timestamp("us"),
    "local-timestamp-millis": pa.timestamp("ms", "UTC"),
    "local-timestamp-micros": pa.timestamp("us", "UTC"),
}

_MOST_ROWS = 16 * 1024
_MOST_VALUES = 4 << 20
_LEAST_BLOCK = 64 << 20
_MOST_RATIO = 32
_WHAT = "the Avro file"
_Convert = Callable[[Any], Any]


# --- reading ----------------------------------------------------------------------------------------------------------


def read_columns(
    source: Any, columns: Sequence[str] | None = None, *, batch_size: int = 64 * 1024
) -> Iterator[pa.RecordBatch]:
    """The rows of an Avro file in order, in batches of at most ``batch_size``, and of some thousand (Python objects).

    Raises :class:`NotFound` for a file or column that is not there, :class:`CorruptError` for bytes that are not
    valid, :class:`UnsupportedFeature` for an Avro type that Paimon does not write.
    """
    with _stream(source) as stream:
        header = read_header(stream, _WHAT)
        schema = _arrow_schema(header.schema)
        wanted = schema.names if columns is None else list(columns)
        for name in wanted:
            if name not in schema.names:
                raise NotFound(f"the Avro file has no column '{name}'; it has {', '.join(schema.names)}")
        if len(set(schema.names)) != len(schema.names):
            raise CorruptError("the Avro file names a column twice")
        chosen = pa.schema([schema.field(n) for n in wanted])
        converts = [_decoder(f.type) for f in chosen]
        reader = _reader(stream, header)
        # Of a schema of very many columns fewer rows, for each value is a Python object.
        most = max(1, min(batch_size, _MOST_ROWS, _MOST_VALUES // header.nodes))
        while rows := _next_rows(reader, most):
            try:
                arrays = [
                    nulls_inside(pa.array([r[f.name] if c is None else c(r[f.name]) for r in rows], f.type))
                    for f, c in zip(chosen, converts)
                ]
            except (pa.ArrowException, ValueError, TypeError, KeyError, AttributeError) as e:
                raise CorruptError(f"Avro rows: {e}") from e
            if arrays:
                yield pa.RecordBatch.from_arrays(arrays, schema=chosen)
            else:
                yield pa.RecordBatch.from_arrays([pa.nulls(len(rows))], names=[""]).select([])


def _stream(source: Any) -> BinaryIO:
    if not isinstance(source, str):
        stream: BinaryIO = source
        return stream
    try:
        return open(source, "rb")
    except FileNotFoundError as e:
        raise NotFound(f"no such file: {source}") from e


def _reader(stream: BinaryIO, header: Header) -> Any:
    at = stream.tell()
    total = stream.seek(0, 2)
    stream.seek(at)
    blocks = read_blocks(stream, header, total, lambda size: _LEAST_BLOCK + _MOST_RATIO * size, _WHAT)
    try:
        return fastavro.reader(PlainContainer(header, blocks))  # type: ignore[arg-type]
    except Exception as e:  # fastavro raises whatever the broken header leads to
        raise CorruptError(f"Avro header: {type(e).__name__} {e}") from e


def _next_rows(reader: Any, count: int) -> list[dict[str, Any]]:
    try:
        return list(islice(reader, count))
    except CorruptError:
        raise
    except Exception as e:  # as above: struct, zlib, zstd, index and unicode errors
        raise CorruptError(f"Avro block: {type(e).__name__} {e}") from e


def _arrow_schema(made: Any) -> pa.Schema:
    if not isinstance(made, dict) or made.get("type") != "record":
        raise CorruptError("Avro: a data file's schema must be a record")
    try:
        return pa.schema([_arrow_field(f["name"], f["type"]) for f in made["fields"]])
    except (KeyError, TypeError, ValueError) as e:
        raise CorruptError(f"Avro schema: {type(e).__name__} {e}") from e


def _arrow_field(name: str, made: Any) -> pa.Field:
    if not isinstance(made, list):
        return pa.field(name, _arrow_type(made), nullable=False)
    others = [m for m in made if m != "null"]
    if len(others) != 1:
        raise UnsupportedFeature(f"Avro column '{name}': a union of {len(others)} types")
    return pa.field(name, _arrow_type(others[0]), nullable=len(others) < len(made))


def _arrow_type(made: Any) -> pa.DataType:
    if isinstance(made, str):
        made = {"type": made}
    kind, logical = made["type"], made.get("logicalType")
    if isinstance(kind, dict | list):
        return _arrow_field("", kind).type
    if kind == "record":
        return pa.struct([_arrow_field(f["name"], f["type"]) for f in made["fields"]])
    if kind == "array" and logical == "map":
        key, value = (_arrow_field(f["name"], f["type"]) for f in made["items"]["fields"])
        return pa.map_(key.with_nullable(False), value)
    if kind == "array":
        return pa.list_(_arrow_field("element", made["items"]))
    if kind == "map":
        return pa.map_(pa.field("key", pa.string(), False), _arrow_field("value", made["values"]))
    if logical == "decimal":
        return pa.decimal128(made["precision"], made.get("scale", 0))
    arrow = _LOGICAL.get(logical) or _PRIMITIVES.get(kind)
    if arrow is None:
        raise UnsupportedFeature(f"Avro type {kind} is not one that Paimon writes")
    return arrow


def _decoder(kind: pa.DataType) -> _Convert | None:
    """How a decoded value must change for pyarrow: maps become pairs, wherever they are nested; None: not at all."""
    if pa.types.is_struct(kind):
        inner = {kind.field(i).name: _decoder(kind.field(i).type) for i in range(kind.num_fields)}
        changed = {n: c for n, c in inner.items() if c is not None}
        if not changed:
            return None
        return lambda v: v and {n: changed[n](x) if n in changed else x for n, x in v.items()}
    if pa.types.is_map(kind):
        key, item = _decoder(kind.key_type) or _same, _decoder(kind.item_type) or _same

        def pairs(value: Any) -> Any:
            if value is None:
                return None
            entries = value.items() if isinstance(value, dict) else ((e["key"], e["value"]) for e in value)
            return [(key(k), item(v)) for k, v in entries]

        return pairs
    if pa.types.is_list(kind):
        element = _decoder(kind.value_type)
        return None if element is None else lambda v: None if v is None else [element(x) for x in v]
    return None


def _same(value: Any) -> Any:
    return value


# --- writing ----------------------------------------------------------------------------------------------------------

_ROW_NAME = "org.apache.paimon.avro.generated.record"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_BATCH_ROWS = 8 * 1024
CODECS = {"zstd": "zstandard", "deflate": "deflate", "gzip": "deflate", "none": "null"}
_INTS = {Root.TINYINT, Root.SMALLINT, Root.INT}
_SIMPLE = {
    Root.BOOLEAN: "boolean",
    Root.BIGINT: "long",
    Root.FLOAT: "float",
    Root.DOUBLE: "double",
    Root.BINARY: "bytes",
    Root.VARBINARY: "bytes",
}


class AvroWriter:
    """Writes one file: :meth:`write` any number of times, then :meth:`close` (which leaves ``output`` open).

    Memory is bounded by one block and some thousand rows.  ``output`` is any binary file object with ``tell``.
    """

    def __init__(
        self, output: Any, fields: Sequence[DataField], *, compression: str = "zstd", level: int | None = 1
    ) -> None:
        codec = CODECS.get(compression.lower())
        if codec is None:
            raise InvalidRequest(f"Avro compression '{compression}' is not one of {', '.join(CODECS)}")
        self._output = output
        self._fields = tuple(fields)
        self._schema = arrow_schema(self._fields)
        self._stored = [_stored_type(f.type) for f in self._schema]
        self._converts = [_encoder(f.type) for f in fields]
        self._bounds = TableBounds(self._fields)
        self._rows = 0
        self._start: int = output.tell()
        marker = bytes.fromhex(_clock.new_uuid().replace("-", ""))
        try:
            self._writer = fastavro.write.Writer(
                output,
                avro_schema(self._fields),
                codec=codec,
                sync_interval=BLOCK_BYTES,
                sync_marker=marker,
                compression_level=level if codec == "zstandard" else None,
            )
        except (ValueError, fastavro.schema.SchemaParseException) as e:
            raise InvalidRequest(f"cannot write Avro: {e}") from e

    @property
    def row_count(self) -> int:
        """Rows written so far."""
        return self._rows

    @property
    def bytes_written(self) -> int:
        """The file's size so far, without the block that is being filled."""
        size: int = self._output.tell() - self._start
        return size

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows; columns are matched by name and brought to the table's types.

        Raises :class:`InvalidRequest`, naming the column, for a value that the column cannot hold.
        """
        table = conform(batch, self._fields, self._schema)
        self._bounds.add(table)
        names = [f.name for f in self._fields]
        for start in range(0, table.num_rows, _BATCH_ROWS):
            part = table.slice(start, _BATCH_ROWS)
            columns = []
            for column, stored, convert in zip(part.columns, self._stored, self._converts, strict=True):
                values = (column if column.type == stored else column.cast(stored)).to_pylist()
                columns.append(values if convert is None else [convert(v) for v in values])
            try:
                for row in zip(*columns, strict=True):
                    self._writer.write(dict(zip(names, row, strict=True)))
            except (ValueError, TypeError, OverflowError) as e:
                raise InvalidRequest(f"cannot write Avro: {e}") from e
            except OSError as e:
                raise failure("write", "an Avro file", e) from e
        self._rows += table.num_rows

    def close(self) -> WrittenFile:
        """Finish the file and return what it holds."""
        try:
            self._writer.flush()
        except OSError as e:
            raise failure("write", "an Avro file", e) from e
        mins, maxs, nulls = self._bounds.result()
        return WrittenFile(self.bytes_written, self._rows, mins, maxs, nulls)


def avro_schema(fields: Sequence[DataField]) -> dict[str, Any]:
    """The Avro schema that Paimon gives a file of these columns.

    Raises :class:`UnsupportedFeature` naming the column for a name or type that Avro, or Paimon's Avro, cannot have.
    """
    return _record(_ROW_NAME, fields)


def _record(name: str, fields: Sequence[DataField]) -> dict[str, Any]:
    made = []
    for field in fields:
        if not _NAME.match(field.name):
            raise UnsupportedFeature(
                f"column '{field.name}' cannot be in an Avro file: names there are letters, digits and underscores"
            )
        entry: dict[str, Any] = {"name": field.name, "type": _avro_type(field.type, f"{name}_{field.name}")}
        if field.type.nullable:
            entry["default"] = None
        made.append(entry)
    return {"type": "record", "name": name, "fields": made}


def _avro_type(made: DataType, name: str) -> Any:
    kind = _required(made, name)
    return ["null", kind] if made.nullable else kind


def _required(made: DataType, name: str) -> Any:
    if isinstance(made, RowType):
        return _record(name, made.fields)
    if isinstance(made, ArrayType):
        return {"type": "array", "items": _avro_type(made.element, name)}
    if isinstance(made, MapType | MultisetType):
        key, value = _entry(made)
        if _is_text(key):
            return {"type": "map", "values": _avro_type(value, name)}
        value_field: dict[str, Any] = {"name": "value", "type": _avro_type(value, f"{name}_value")}
        if value.nullable:
            value_field["default"] = None
        fields = [{"name": "key", "type": _avro_type(key, f"{name}_key")}, value_field]
        return {"type": "array", "items": {"type": "record", "name": name, "fields": fields}, "logicalType": "map"}
    assert isinstance(made, AtomicType)
    return _atomic(made)


def _atomic(made: AtomicType) -> Any:
    if made.root in _INTS:
        return "int"
    if made.root in STRINGS:
        return "string"
    if made.root is Root.DATE:
        return {"type": "int", "logicalType": "date"}
    if made.root is Root.TIME:
        if (made.precision or 0) > 3:
            raise UnsupportedFeature(f"{made} cannot be in an Avro file: its TIME has up to 3 decimals")
        return {"type": "int", "logicalType": "time-millis"}
    if made.root is Root.DECIMAL:
        return {"type": "bytes", "logicalType": "decimal", "precision": made.precision or 10, "scale": made.scale or 0}
    if made.root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ):
        precision = 6 if made.precision is None else made.precision
        if precision > 6:
            raise UnsupportedFeature(f"{made} cannot be in an Avro file: its timestamps have up to 6 decimals")
        local = "local-" if made.root is Root.TIMESTAMP_LTZ else ""
        return {"type": "long", "logicalType": f"{local}timestamp-{'millis' if precision <= 3 else 'micros'}"}
    if made.root not in _SIMPLE:
        raise UnsupportedFeature(f"{made} cannot be in an Avro file")
    return _SIMPLE[made.root]


def _entry(made: MapType | MultisetType) -> tuple[DataType, DataType]:
    if isinstance(made, MapType):
        return made.key, made.value
    return made.element, AtomicType(Root.INT)


def _is_text(made: DataType) -> bool:
    return isinstance(made, AtomicType) and made.root in STRINGS


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type whose Python values fastavro writes without a thought about calendars: numbers for times."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        members = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([m.with_type(_stored_type(m.type)) for m in members])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_stored_type(key.type)), item.with_type(_stored_type(item.type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_stored_type(kind.value_type)))
    return kind


def _encoder(made: DataType) -> _Convert | None:
    """How a column's Python values must change for fastavro: the pairs of maps, wherever they are nested."""
    if isinstance(made, RowType):
        inner = {f.name: c for f in made.fields if (c := _encoder(f.type)) is not None}
        if not inner:
            return None
        return lambda v: v and {n: inner[n](x) if n in inner else x for n, x in v.items()}
    if isinstance(made, ArrayType):
        element = _encoder(made.element)
        return None if element is None else lambda v: None if v is None else [element(x) for x in v]
    if not isinstance(made, MapType | MultisetType):
        return None
    key_type, value_type = _entry(made)
    key, value = _encoder(key_type) or _same, _encoder(value_type) or _same
    if _is_text(key_type):
        return lambda v: None if v is None else {key(k): value(x) for k, x in v}
    return lambda v: None if v is None else [{"key": key(k), "value": value(x)} for k, x in v]
