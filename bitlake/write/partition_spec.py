"""Partition specs: which partitions a statement names, in the forms that commits take.

A spec maps partition columns to values.  :func:`physical_partition` converts Python values to physical ones
(:mod:`bitlake.expressions.tree`); :func:`overwrite_scope` turns a spec into the scope of an overwrite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.formats.column_bounds import physical_values
from bitlake.metadata.names import Names
from bitlake.metadata.schema import TableSchema
from bitlake.schema.merge_spec import is_cross_partition
from bitlake.types import arrow_type
from bitlake.write.commit_plan import Overwrite


def overwrite_scope(schema: TableSchema, partition: Mapping[str, Any] | None, *, filled: bool = True) -> Overwrite:
    """Return what an overwrite replaces: the table (None), the partitions written ({}), or those matching a spec.

    The spec's values are physical; ``filled``: new rows replace the old ones.  Raises :class:`InvalidRequest` for
    columns that do not partition the table, and for new rows in some partitions of a table whose keys are unique
    across all partitions: other partitions might hold the same keys.
    """
    if partition is None:
        return Overwrite(partition=None, dynamic=False)
    if filled and is_cross_partition(schema):
        raise InvalidRequest(
            f"partitions of tables whose key ({', '.join(schema.primary_keys)}) lacks a partition column cannot "
            "be overwritten one by one: their new rows may have keys of other partitions; TRUNCATE the partition and "
            "INSERT, or overwrite the whole table"
        )
    if not partition:
        return Overwrite(partition=None, dynamic=bool(schema.partition_keys))
    folded = Names.FOLDED.clear(schema.partition_keys)
    spec: dict[str, Any] = {}
    for name, value in partition.items():
        key = name if name in schema.partition_keys else folded.get(name.lower())
        if key is None:
            raise InvalidRequest(
                f"'{name}' is not a partition column; they are {', '.join(schema.partition_keys) or 'none'}"
            )
        spec[key] = value
    return Overwrite(partition=spec, dynamic=False)


def physical_partition(table: str, schema: TableSchema, partition: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Convert a spec of Python values to physical values; raises :class:`InvalidRequest` for an invalid value."""
    if partition is None:
        return None
    out = {}
    for name, value in partition.items():
        field = schema.field(name)
        try:
            array = pa.array([value], arrow_type(field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as e:
            message = f"table '{table}': invalid {field.type} value {value!r} for partition column '{name}': {e}"
            raise InvalidRequest(message) from e
        out[field.name] = physical_values(array)[0]
    return out
