"""Paimon's data types: values, text form, and their Arrow counterparts."""

from bitlake.types.arrow import arrow_field, arrow_schema, arrow_type, from_arrow
from bitlake.types.datatypes import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    NextId,
    Root,
    RowType,
    parse_type,
    type_from_json,
    type_to_json,
)

__all__ = [
    "ArrayType",
    "AtomicType",
    "DataField",
    "DataType",
    "MapType",
    "MultisetType",
    "NextId",
    "Root",
    "RowType",
    "arrow_field",
    "arrow_schema",
    "arrow_type",
    "from_arrow",
    "parse_type",
    "type_from_json",
    "type_to_json",
]
