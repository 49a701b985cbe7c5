"""Paimon's data types: values, text form, and their Arrow counterparts."""

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from bitlake.types.arrow import arrow_field, arrow_schema, arrow_type, from_arrow

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

_OF_ARROW = frozenset(("arrow_field", "arrow_schema", "arrow_type", "from_arrow"))


def __getattr__(name: str) -> Any:
    """Arrow is loaded when one of its counterparts is asked for: schemas and snapshots are read without it."""
    if name not in _OF_ARROW:
        raise AttributeError(f"module 'bitlake.types' has no attribute '{name}'")
    from bitlake.types import arrow

    found = globals()[name] = getattr(arrow, name)
    return found
