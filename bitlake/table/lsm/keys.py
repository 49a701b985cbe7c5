"""What data files of primary-key tables hold beside the table's columns, and keys as manifests keep them.

Columns of a file, in order (table-format spec, section 8)::

    _KEY_<column> …     the trimmed primary key in key order, id = column's + 1073741823; not in thin mode
    _SEQUENCE_NUMBER    BIGINT NOT NULL, id 2147483646
    _VALUE_KIND         TINYINT NOT NULL, id 2147483645: 0 +I, 1 -U, 2 +U, 3 -D
    <column> …          all columns of the table, the key's among them
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.formats.column_bounds import physical_values
from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata.schema import TableSchema
from bitlake.table.merge.spec import SEQUENCE_NUMBER, VALUE_KIND
from bitlake.types import DataField, arrow_schema
from bitlake.types.datatypes import parse_type

KEY_PREFIX = "_KEY_"
KEY_ID_START = 2**31 // 2 - 1
SYSTEM_FIELDS = (
    DataField(2147483646, SEQUENCE_NUMBER, parse_type("BIGINT NOT NULL")),
    DataField(2147483645, VALUE_KIND, parse_type("TINYINT NOT NULL")),
)


def key_fields(schema: TableSchema) -> tuple[DataField, ...]:
    """The columns that rows of a bucket are keyed by, in key order."""
    return tuple(schema.field(n) for n in schema.trimmed_primary_keys)


def stored_keys(schema: TableSchema) -> tuple[DataField, ...]:
    """The key's own columns in data files; none in thin mode."""
    if schema.opts.of(lsm.THIN_MODE):
        return ()
    return tuple(replace(f, id=f.id + KEY_ID_START, name=KEY_PREFIX + f.name) for f in key_fields(schema))


def file_fields(schema: TableSchema) -> tuple[DataField, ...]:
    """The columns of the table's new data files."""
    return (*stored_keys(schema), *SYSTEM_FIELDS, *schema.fields)


def row_schema(schema: TableSchema) -> pa.Schema:
    """Rows on their way into data files: ``_SEQUENCE_NUMBER``, ``_VALUE_KIND`` and the table's columns."""
    return arrow_schema((*SYSTEM_FIELDS, *schema.fields))


def encode_key(schema: TableSchema, rows: pa.Table, at: int) -> bytes:
    """The key of one row as manifests keep it: a BinaryRow with arity."""
    fields = key_fields(schema)
    values = [physical_values(rows.column(f.name).slice(at, 1))[0] for f in fields]
    return encode_row_with_arity([f.type for f in fields], values)
