"""One door to writing data files of any format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from bitlake.errors import UnsupportedFeature
from bitlake.formats.avro_write import CODECS as AVRO_CODECS
from bitlake.formats.avro_write import AvroWriter, avro_schema
from bitlake.formats.orc_write import CODECS as ORC_CODECS
from bitlake.formats.orc_write import STRIPE_BYTES, OrcWriter
from bitlake.formats.parquet.write import CODECS as PARQUET_CODECS
from bitlake.formats.parquet.write import PAGE_BYTES, PAGE_ROWS, ParquetWriter, WrittenFile
from bitlake.types.datatypes import ArrayType, AtomicType, DataField, DataType, MapType, MultisetType, Root, RowType

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
            if _has_variant(field.type):
                raise UnsupportedFeature(f"column '{field.name}' is {field.type}, which an ORC file cannot hold")


def _has_variant(made: DataType) -> bool:
    if isinstance(made, AtomicType):
        return made.root is Root.VARIANT
    if isinstance(made, RowType):
        return any(_has_variant(f.type) for f in made.fields)
    if isinstance(made, MapType):
        return _has_variant(made.key) or _has_variant(made.value)
    assert isinstance(made, ArrayType | MultisetType)
    return _has_variant(made.element)
