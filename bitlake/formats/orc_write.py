"""Write ORC files that Paimon (Java) reads: its types, and field ids as the type attribute ``paimon.id``.

Source: table-format spec, section 8.  TIMESTAMP is ORC's ``timestamp``, LTZ ``timestamp with local time zone``, TIME an
int of milliseconds, TINYINT a byte, CHAR and VARCHAR are ``string`` (Java casts them to their length when it reads).

LTZ is written as the instant that it is.  Paimon takes it for a wall clock of the JVM's zone unless the option
``orc.timestamp-ltz.legacy.type`` is ``false``; tables with such a column get that option when they are created here.
Arrow holds ORC timestamps in nanoseconds, so years before 1677 or after 2262 are refused: they could not be read back.
Its writer stores a moment before 1970 with a negative fraction, which Java (1.4.2) reads when it is whole milliseconds
and fails on when it is not: those are refused too.  (Java's own writer moves 23:59:59.001 … .999 of 1969-12-31 by a
second.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.formats.column_bounds import ColumnBounds
from bitlake.formats.conform import conform
from bitlake.formats.parquet.write import WrittenFile
from bitlake.io.local import failure
from bitlake.lazy_arrow import compute as pc
from bitlake.lazy_arrow import orc as arrow_orc
from bitlake.types.arrow import arrow_schema
from bitlake.types.datatypes import DataField

STRIPE_BYTES = 64 << 20
_BLOCK_BYTES = 256 << 10
CODECS = {"zstd": "zstd", "zlib": "zlib", "gzip": "zlib", "snappy": "snappy", "lz4": "lz4", "none": "uncompressed"}
_GUESSED_RATIO = 0.4
_LATEST_NS = (1 << 63) - 1
_PER_UNIT = {"ms": 1_000_000, "us": 1_000}


class OrcWriter:
    """Writes one file: :meth:`write` any number of times, then :meth:`close` (which leaves ``output`` open).

    Memory is bounded by one stripe.  ``output`` is a :class:`pyarrow.NativeFile` or a binary file object with ``tell``.
    """

    def __init__(
        self, output: Any, fields: Sequence[DataField], *, compression: str = "zstd", stripe_bytes: int = STRIPE_BYTES
    ) -> None:
        codec = CODECS.get(compression.lower())
        if codec is None:
            raise InvalidRequest(f"ORC compression '{compression}' is not one of {', '.join(CODECS)}")
        self._output = output
        self._fields = tuple(fields)
        self._plain = arrow_schema(self._fields)
        self._schema = pa.schema([_orc_field(f) for f in arrow_schema(self._fields, ids=True)])
        self._bounds = ColumnBounds(self._fields)
        self._rows = self._waiting = self._flushed = 0
        self._start: int = output.tell()
        self._seen = self._start
        self._writer = arrow_orc.ORCWriter(
            output, compression=codec, compression_block_size=_BLOCK_BYTES, stripe_size=stripe_bytes
        )

    @property
    def row_count(self) -> int:
        """Rows written so far."""
        return self._rows

    @property
    def bytes_written(self) -> int:
        """The file's size so far; rows that wait for their stripe count by the compression seen until now."""
        done: int = self._output.tell() - self._start
        ratio = done / self._flushed if self._flushed else _GUESSED_RATIO
        return done + int(self._waiting * ratio)

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows; columns are matched by name and brought to the table's types.

        Raises :class:`InvalidRequest`, naming the column, for a value that the column cannot hold.
        """
        table = conform(batch, self._fields, self._plain)
        if not table.num_rows:
            return
        for field, column in zip(self._fields, table.columns, strict=True):
            _check_moments(field.name, column)
        self._bounds.add(table)
        self._write(table)
        self._rows += table.num_rows
        self._waiting += table.nbytes
        now = self._output.tell()
        if now > self._seen + 3:  # a stripe went out; the magic alone is three bytes
            self._seen = now
            self._flushed += self._waiting
            self._waiting = 0

    def close(self) -> WrittenFile:
        """Finish the file and return what it holds."""
        if not self._rows:
            self._write(self._plain.empty_table())
        try:
            self._writer.close()
        except (pa.ArrowException, OSError) as e:
            raise failure("write", "an ORC file", e) from e
        mins, maxs, nulls = self._bounds.result()
        return WrittenFile(self._output.tell() - self._start, self._rows, mins, maxs, nulls)

    def _write(self, table: pa.Table) -> None:
        try:
            arrays = [_as(c, f.type) for c, f in zip(table.columns, self._schema, strict=True)]
            self._writer.write(pa.Table.from_arrays(arrays, schema=self._schema))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, TypeError, ValueError) as e:
            raise InvalidRequest(f"cannot write ORC: {e}") from e
        except OSError as e:
            raise failure("write", "an ORC file", e) from e


def _orc_field(field: pa.Field) -> pa.Field:
    """A field as ORC holds it, its id under the name that Paimon gives it."""
    number = (field.metadata or {}).get(b"PARQUET:field_id")
    metadata = None if number is None else {"paimon.id": number.decode()}
    return pa.field(field.name, _orc_type(field.type), True, metadata=metadata)


def _orc_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_time(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([_orc_field(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_orc_field(kind.key_field).with_nullable(False), _orc_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_orc_field(kind.value_field))
    return kind


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)


def _check_moments(name: str, column: pa.ChunkedArray | pa.Array) -> None:
    """Refuse timestamps, at any depth, that this reader (years) or Java's (fractions before 1970) cannot read."""
    kind = column.type
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if pa.types.is_timestamp(kind) and kind.unit in _PER_UNIT:
            bound = _LATEST_NS // _PER_UNIT[kind.unit]
            numbers = chunk.cast(pa.int64())
            both = pc.min_max(numbers).as_py()
            if both["min"] is not None and (both["min"] < -bound or both["max"] > bound):
                raise InvalidRequest(
                    f"column '{name}': ORC files hold timestamps from 1677-09-22 to 2262-04-11 here; "
                    "use 'file.format' = 'parquet' for others"
                )
            if both["min"] is not None and both["min"] < 0 and kind.unit == "us":
                whole = pc.multiply(pc.divide(numbers, 1000), 1000)
                if pc.any(pc.and_(pc.less(numbers, 0), pc.not_equal(whole, numbers))).as_py():
                    raise InvalidRequest(
                        f"column '{name}': a timestamp before 1970 with a fraction of a millisecond cannot be written "
                        "as ORC so that Paimon reads it; use 'file.format' = 'parquet'"
                    )
        elif pa.types.is_struct(kind):
            for child in chunk.flatten():
                _check_moments(name, child)
        elif pa.types.is_map(kind):
            _check_moments(name, chunk.keys)
            _check_moments(name, chunk.items)
        elif pa.types.is_list(kind):
            _check_moments(name, chunk.flatten())
