"""Paimon's hash of a row's key as a Spark column, and the bucket that a row goes to.

Spark's ``hash`` of a binary value is Murmur3 with seed 42, as Paimon's of a BinaryRow.  So where all key columns are
whole numbers or dates that cannot be NULL, Spark is told to put the row's bytes together and to hash them.  Other keys
are hashed in Python workers: no slower by itself, but the rest of each row waits in the JVM meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from bitlake.codec.binary_row import null_bytes
from bitlake.codec.bucket import bucket_of, row_hash
from bitlake.expressions import spark_dialect
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.table.lsm.postpone import bucket_numbers
from bitlake.types import AtomicType, DataField, Root

_BITS = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.DATE: 32, Root.BIGINT: 64}
"""Types whose value fills the low bits of its slot, and how many."""


def quoted(name: str) -> Column:
    """A column by its exact name."""
    return F.col(spark_dialect.quoted(name))


def hash_column(fields: Sequence[DataField]) -> Column:
    """The hash of each row's BinaryRow of these columns: an INT, never NULL."""
    if all(isinstance(f.type, AtomicType) and f.type.root in _BITS and not f.type.nullable for f in fields):
        return F.hash(F.concat(F.lit(bytes(null_bytes(len(fields)))), *[_slot(f) for f in fields]))
    types = [f.type for f in fields]

    def hashes(*columns: pa.Array) -> pa.Array:
        return pa.array(row_hash(types, list(columns)).view("int32"), pa.int32())

    return _in_python(hashes, fields)


def bucket_column(schema: TableSchema) -> Column | None:
    """The bucket of a row in a table of fixed buckets; None for other tables."""
    options = schema.opts
    total = options.of(opt.BUCKET)
    if total <= 0:
        return None
    if total == 1:
        return F.lit(0)
    fields = schema.bucket_fields
    function = options.of(opt.BUCKET_FUNCTION)
    if function == "default":
        return F.abs(hash_column(fields) % F.lit(total))
    if function == "mod":
        return F.pmod(quoted(fields[0].name), F.lit(total)).cast("int")
    types = [f.type for f in fields]

    def number(*columns: pa.Array) -> pa.Array:
        return pa.array(bucket_of(types, list(columns), total, function), pa.int32())

    return _in_python(number, fields)


def differing_bucket_column(schema: TableSchema, counts: Mapping[bytes, int]) -> Column:
    """The bucket of a row where partitions differ in their number of buckets: ``counts``, else the schema's."""
    fields = list({f.name: f for f in (*schema.partition_fields, *schema.bucket_fields)}.values())
    names = [f.name for f in fields]

    def number(*columns: pa.Array) -> pa.Array:
        return pa.array(bucket_numbers(pa.table(list(columns), names=names), schema, counts), pa.int32())

    return _in_python(number, fields)


def _slot(field: DataField) -> Column:
    """The eight bytes of a value in a BinaryRow: little-endian, zeros above."""
    assert isinstance(field.type, AtomicType)
    bits = _BITS[field.type.root]
    column = quoted(field.name)
    value = F.unix_date(column) if field.type.root is Root.DATE else column
    value = value.cast("bigint")
    swapped: Column | None = None
    for at in range(0, bits, 8):
        # Only the lowest byte is left of what is shifted to the top.
        byte = F.shiftrightunsigned(value, at).bitwiseAND(F.lit(255).cast("bigint"))
        byte = F.shiftleft(byte, 56 - at)
        swapped = byte if swapped is None else swapped.bitwiseOR(byte)
    assert swapped is not None
    return F.unhex(F.lpad(F.hex(swapped), 16, "0"))


def _in_python(function: Any, fields: Sequence[DataField]) -> Column:
    call: Any = arrow_udf(function, T.IntegerType())  # type: ignore[call-overload]
    column: Column = call(*[quoted(f.name) for f in fields])
    return column
