"""Paimon's columns as an Iceberg schema and partition spec.

::

    schema          {"type": "struct", "schema-id": id, "fields": [field …]}
    field           {"id", "name", "required", "type", "doc" if the column has a comment}
    list            {"type": "list", "element-id", "element-required", "element"}
    map             {"type": "map", "key-id", "key", "value-id", "value-required", "value"}
    struct          {"type": "struct", "fields": [field …]}
    partition spec  {"spec-id": 0, "fields": [{"name", "transform": "identity", "source-id", "field-id": 1000 …}]}

Schema ids and field ids are Paimon's.  Elements, keys and values have the ids of Paimon's Parquet files.

Iceberg has neither the smaller integers nor lengths: TINYINT and SMALLINT are ``int``, CHAR is ``string``, BINARY is
``binary``.  Its times are microseconds, so timestamps of fewer than 3 or more than 6 digits, and VARIANT, are refused.

Sources: the Iceberg specification, "Schemas" and "Partition Specs"; Paimon's ``IcebergDataField``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bitlake.errors import InvalidRequest
from bitlake.metadata.options import (
    DATA_EVOLUTION,
    DISABLED,
    DV_BITMAP64,
    DV_ENABLED,
    FILE_FORMAT,
    ICEBERG_STORAGE,
    ICEBERG_VERSION,
    Options,
)
from bitlake.metadata.schema import TableSchema
from bitlake.types import ArrayType, AtomicType, DataField, DataType, MapType, MultisetType, Root, RowType
from bitlake.types.arrow import sign_id
from bitlake.types.datatypes import TIMESTAMPS

FIRST_PARTITION_FIELD_ID = 1000
SPEC_ID = 0
"""The id of the only partition spec: Paimon's partition columns never change."""
_SIMPLE = {
    Root.BOOLEAN: "boolean",
    Root.TINYINT: "int",
    Root.SMALLINT: "int",
    Root.INT: "int",
    Root.BIGINT: "long",
    Root.FLOAT: "float",
    Root.DOUBLE: "double",
    Root.DATE: "date",
    Root.CHAR: "string",
    Root.VARCHAR: "string",
    Root.BINARY: "binary",
    Root.VARBINARY: "binary",
}


def iceberg_schema(schema: TableSchema) -> dict[str, Any]:
    """A schema version; raises :class:`InvalidRequest` for a column that Iceberg cannot hold."""
    return {"type": "struct", "schema-id": schema.id, "fields": [iceberg_field(f) for f in schema.fields]}


def highest_field_id(schema: dict[str, Any]) -> int:
    """The highest id of the columns of an Iceberg schema, 0 without columns."""
    return max((f["id"] for f in schema["fields"]), default=0)


def partition_spec(schema: TableSchema) -> dict[str, Any]:
    """The partition spec: the values of the partition columns themselves."""
    fields = [
        {"name": f.name, "transform": "identity", "source-id": f.id, "field-id": FIRST_PARTITION_FIELD_ID + i}
        for i, f in enumerate(schema.partition_fields)
    ]
    return {"spec-id": SPEC_ID, "fields": fields}


def check_columns(fields: Iterable[DataField]) -> None:
    """Raise :class:`InvalidRequest`, naming the column, for a type that Iceberg cannot hold."""
    for field in fields:
        iceberg_field(field)


def iceberg_field(field: DataField) -> dict[str, Any]:
    """A column or a member of a struct; raises :class:`InvalidRequest` for a type that Iceberg cannot hold."""
    try:
        made = _type(field.type, field.id, 0)
    except InvalidRequest as e:
        raise InvalidRequest(f"column '{field.name}': {e}") from e
    out = {"id": field.id, "name": field.name, "required": not field.type.nullable, "type": made}
    if field.description is not None:
        out["doc"] = field.description
    return out


def _type(made: DataType, field_id: int, depth: int) -> Any:
    below = depth + 1
    match made:
        case AtomicType():
            return _atomic(made)
        case RowType():
            return {"type": "struct", "fields": [iceberg_field(f) for f in made.fields]}
        case ArrayType():
            return {
                "type": "list",
                "element-id": sign_id(field_id, below, 1),
                "element-required": not made.element.nullable,
                "element": _type(made.element, field_id, below),
            }
        case MapType():
            return _map(made.key, made.value, field_id, below)
        case MultisetType():
            return _map(made.element, AtomicType(Root.INT, nullable=False), field_id, below)


def _map(key: DataType, value: DataType, field_id: int, depth: int) -> dict[str, Any]:
    return {
        "type": "map",
        "key-id": sign_id(field_id, depth, -1),
        "key": _type(key, field_id, depth),
        "value-id": sign_id(field_id, depth, 1),
        "value-required": not value.nullable,
        "value": _type(value, field_id, depth),
    }


def _atomic(made: AtomicType) -> str:
    if made.root in _SIMPLE:
        return _SIMPLE[made.root]
    if made.root is Root.DECIMAL:
        return f"decimal({made.precision or 10}, {made.scale or 0})"
    precision = 6 if made.precision is None else made.precision
    if made.root in TIMESTAMPS and 3 <= precision <= 6:
        return "timestamp" if made.root is Root.TIMESTAMP else "timestamptz"
    if made.root is Root.TIME and (made.precision or 0) <= 3:
        return "time"
    digits = {Root.TIME: "; use one of 0 to 3 digits"} | dict.fromkeys(TIMESTAMPS, "; use one of 3 to 6 digits")
    raise InvalidRequest(f"Iceberg metadata cannot describe {made}{digits.get(made.root, '')}")


def exports_vectors(options: Options) -> bool:
    """Whether Iceberg readers see a table's deletion vectors: 64-bit ones, in format version 3."""
    return options.of(DV_ENABLED) and options.of(DV_BITMAP64) and options.of(ICEBERG_VERSION) >= 3


def check_publishable(fields: Iterable[DataField], options: Options, keyed: bool) -> None:
    """Check that Iceberg metadata can show a table, if its options ask for it.

    Raises :class:`InvalidRequest` for a column or an option that Iceberg readers would read wrongly.
    """
    if options.of(ICEBERG_STORAGE) == DISABLED:
        return
    check_columns(fields)
    if not keyed and options.of(DV_ENABLED) and not exports_vectors(options):
        raise InvalidRequest(
            f"with '{DV_ENABLED.name}', Iceberg readers of format version {options.of(ICEBERG_VERSION)} would see "
            f"deleted rows; set '{ICEBERG_VERSION.name}' = '3' and '{DV_BITMAP64.name}' = 'true', or no "
            f"'{ICEBERG_STORAGE.name}'"
        )
    if options.of(DATA_EVOLUTION):
        raise InvalidRequest(
            f"'{DATA_EVOLUTION.name}' stores columns of a row in several files, which Iceberg metadata cannot "
            f"describe; unset '{ICEBERG_STORAGE.name}'"
        )
    if options.of(FILE_FORMAT) not in ("parquet", "orc", "avro"):
        raise InvalidRequest(
            f"Iceberg readers read no {options.of(FILE_FORMAT)} files; use '{FILE_FORMAT.name}' = 'parquet', or unset "
            f"'{ICEBERG_STORAGE.name}'"
        )
