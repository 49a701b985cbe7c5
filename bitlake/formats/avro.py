"""Read Avro data files.

Paimon's Avro differs from the Avro specification in one point: TIMESTAMP is written as ``timestamp-millis|micros`` and
LTZ as ``local-timestamp-millis|micros``, the reverse of the usual meaning.  A map whose keys are not strings is an
array of ``record{key, value}`` with ``logicalType: map``.  Source: table-format spec, section 8.

Rows are decoded one by one (fastavro): this format is for reading what others wrote, not for speed.

A file is checked before fastavro sees it (:mod:`bitlake.codec.avro`): its schema, and how much a block decompresses to,
which is at most 64 MiB plus 32 times its stored size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa

from bitlake.codec.avro import Header, PlainContainer, read_blocks, read_header
from bitlake.errors import CorruptError, NotFound, UnsupportedFeature

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


def read_schema(source: Any) -> pa.Schema:
    """The columns of an Avro file (a local path or a binary file object), with Paimon's reading of timestamps."""
    with _stream(source) as stream:
        return _schema(read_header(stream, _WHAT).schema)


def read_columns(
    source: Any, columns: Sequence[str] | None = None, *, batch_size: int = 64 * 1024
) -> Iterator[pa.RecordBatch]:
    """The rows of an Avro file in order, in batches of at most ``batch_size``, and of some thousand (Python objects).

    Raises :class:`NotFound` for a file or column that is not there, :class:`CorruptError` for bytes that are not
    valid, :class:`UnsupportedFeature` for an Avro type that Paimon does not write.
    """
    with _stream(source) as stream:
        header = read_header(stream, _WHAT)
        schema = _schema(header.schema)
        wanted = schema.names if columns is None else list(columns)
        for name in wanted:
            if name not in schema.names:
                raise NotFound(f"the Avro file has no column '{name}'; it has {', '.join(schema.names)}")
        if len(set(schema.names)) != len(schema.names):
            raise CorruptError("the Avro file names a column twice")
        chosen = pa.schema([schema.field(n) for n in wanted])
        converts = [_converter(f.type) for f in chosen]
        reader = _reader(stream, header)
        # Of a schema of very many columns fewer rows, for each value is a Python object.
        most = max(1, min(batch_size, _MOST_ROWS, _MOST_VALUES // header.nodes))
        while rows := _next_rows(reader, most):
            try:
                arrays = [
                    pa.array([r[f.name] if c is None else c(r[f.name]) for r in rows], f.type)
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


def _schema(made: Any) -> pa.Schema:
    if not isinstance(made, dict) or made.get("type") != "record":
        raise CorruptError("Avro: a data file's schema must be a record")
    try:
        return pa.schema([_field(f["name"], f["type"]) for f in made["fields"]])
    except (KeyError, TypeError, ValueError) as e:
        raise CorruptError(f"Avro schema: {type(e).__name__} {e}") from e


def _field(name: str, made: Any) -> pa.Field:
    if not isinstance(made, list):
        return pa.field(name, _type(made), nullable=False)
    others = [m for m in made if m != "null"]
    if len(others) != 1:
        raise UnsupportedFeature(f"Avro column '{name}': a union of {len(others)} types")
    return pa.field(name, _type(others[0]), nullable=len(others) < len(made))


def _type(made: Any) -> pa.DataType:
    if isinstance(made, str):
        made = {"type": made}
    kind, logical = made["type"], made.get("logicalType")
    if isinstance(kind, dict | list):
        return _field("", kind).type
    if kind == "record":
        return pa.struct([_field(f["name"], f["type"]) for f in made["fields"]])
    if kind == "array" and logical == "map":
        key, value = (_field(f["name"], f["type"]) for f in made["items"]["fields"])
        return pa.map_(key.with_nullable(False), value)
    if kind == "array":
        return pa.list_(_field("element", made["items"]))
    if kind == "map":
        return pa.map_(pa.field("key", pa.string(), False), _field("value", made["values"]))
    if logical == "decimal":
        return pa.decimal128(made["precision"], made.get("scale", 0))
    found = _LOGICAL.get(logical) or _PRIMITIVES.get(kind)
    if found is None:
        raise UnsupportedFeature(f"Avro type {kind} is not one that Paimon writes")
    return found


def _converter(kind: pa.DataType) -> _Convert | None:
    """How a decoded value must change for pyarrow: maps become pairs, wherever they are nested; None: not at all."""
    if pa.types.is_struct(kind):
        inner = {kind.field(i).name: _converter(kind.field(i).type) for i in range(kind.num_fields)}
        changed = {n: c for n, c in inner.items() if c is not None}
        if not changed:
            return None
        return lambda v: v and {n: changed[n](x) if n in changed else x for n, x in v.items()}
    if pa.types.is_map(kind):
        key, item = _converter(kind.key_type) or _same, _converter(kind.item_type) or _same

        def pairs(value: Any) -> Any:
            if value is None:
                return None
            entries = value.items() if isinstance(value, dict) else ((e["key"], e["value"]) for e in value)
            return [(key(k), item(v)) for k, v in entries]

        return pairs
    if pa.types.is_list(kind):
        element = _converter(kind.value_type)
        return None if element is None else lambda v: None if v is None else [element(x) for x in v]
    return None


def _same(value: Any) -> Any:
    return value
