"""File formats: one interface to read and write data files of any format.

The name of a file gives its format.  :func:`reader_for` reads whole columns as a stream, :func:`take_rows` takes chosen
rows out of one, and :func:`open_writer` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from bitlake.errors import UnsupportedFeature
from bitlake.fileindex.cost import PAGE_ROWS
from bitlake.formats import avro, orc
from bitlake.formats.avro import CODECS as AVRO_CODECS
from bitlake.formats.avro import AvroWriter, avro_schema
from bitlake.formats.orc import CODECS as ORC_CODECS
from bitlake.formats.orc import STRIPE_BYTES, OrcWriter
from bitlake.formats.parquet import decode
from bitlake.formats.parquet.write import CODECS as PARQUET_CODECS
from bitlake.formats.parquet.write import PAGE_BYTES, ParquetWriter, WrittenFile
from bitlake.types.datatypes import AtomicType, DataField, Root, all_types


class ReadColumns(Protocol):
    """Reads columns of a whole file; ``source`` is a local path or a :class:`pyarrow.NativeFile`."""

    def __call__(
        self, source: Any, columns: Sequence[str] | None = None, *, batch_size: int = ...
    ) -> Iterator[pa.RecordBatch]:
        """Rows in order, columns in the order asked for; raises NotFound, CorruptError, UnsupportedFeature."""


_READERS: dict[str, ReadColumns] = {
    "parquet": decode.read_columns,
    "orc": orc.read_columns,
    "avro": avro.read_columns,
}


def format_of(file_name: str) -> str:
    """``parquet``, ``orc`` or ``avro``, by the file's extension; raises :class:`UnsupportedFeature` for others."""
    _, dot, extension = file_name.rsplit("/", 1)[-1].lower().rpartition(".")
    if not dot or extension not in _READERS:
        raise UnsupportedFeature(f"data file {file_name}: format '{extension}' is not one of {', '.join(_READERS)}")
    return extension


def reader_for(file_name: str) -> ReadColumns:
    """The function that reads columns of such a file."""
    return _READERS[format_of(file_name)]


# --- writing ----------------------------------------------------------------------------------------------------------

FORMATS = ("parquet", "orc", "avro")
CODECS = {"parquet": PARQUET_CODECS, "orc": tuple(ORC_CODECS), "avro": tuple(AVRO_CODECS)}
"""The compressions that each format is written with."""


class FileWriter(Protocol):
    """Writes one data file: :meth:`write` any number of times, then :meth:`close`, which leaves the output open."""

    @property
    def row_count(self) -> int:
        """Rows written so far."""

    @property
    def bytes_written(self) -> int:
        """About the file's size so far."""

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows."""

    def close(self) -> WrittenFile:
        """Finish the file and return what it holds."""


def open_writer(
    file_format: str,
    output: Any,
    fields: Sequence[DataField],
    *,
    compression: str,
    level: int | None,
    group_bytes: int,
    page_bytes: int = PAGE_BYTES,
    page_rows: int = PAGE_ROWS,
    clustered: Sequence[str] = (),
) -> FileWriter:
    """The writer of a file in ``file_format``; ``group_bytes`` bounds a Parquet row group or an ORC stripe.

    ``page_bytes`` (uncompressed) and ``page_rows`` bound a Parquet page; clusters of a rare value in the columns
    ``clustered`` get Parquet pages of their own.

    Raises :class:`InvalidRequest` for a compression that the format does not have.
    """
    if file_format == "orc":
        return OrcWriter(output, fields, compression=compression, stripe_bytes=min(group_bytes, STRIPE_BYTES))
    if file_format == "avro":
        return AvroWriter(output, fields, compression=compression, level=level)
    return ParquetWriter(
        output,
        fields,
        compression=compression,
        level=level,
        row_group_bytes=group_bytes,
        page_bytes=page_bytes,
        page_rows=page_rows,
        clustered=clustered,
    )


def check_format(file_format: str, fields: Sequence[DataField]) -> None:
    """Raise :class:`UnsupportedFeature` for a format nobody writes here, or a column that it cannot hold."""
    if file_format not in FORMATS:
        raise UnsupportedFeature(
            f"'file.format' = '{file_format}' cannot be written; the formats are {', '.join(FORMATS)}"
        )
    if file_format == "avro":
        avro_schema(fields)
    if file_format == "orc":
        for field in fields:
            if any(isinstance(t, AtomicType) and t.root is Root.VARIANT for t in all_types(field.type)):
                raise UnsupportedFeature(f"column '{field.name}' is {field.type}, which an ORC file cannot hold")
