"""Column defaults: SQL literal text in the schema, given to rows that are written without the column.

Paimon takes the text without its quotes and casts it from STRING (table-format spec, section 2), so ``1``, ``'a'`` and
``'2024-02-29'`` are defaults, and expressions are none.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.formats.conform import null_column
from bitlake.types import arrow_type
from bitlake.types.casts import cast_values
from bitlake.types.datatypes import MAX_LENGTH, AtomicType, DataField, Root

_TEXT = AtomicType(Root.VARCHAR, length=MAX_LENGTH)


def default_column(field: DataField, rows: int) -> Any:
    """``rows`` times a column's default, as an Arrow array; NULLs without one.

    Raises :class:`InvalidRequest` for a default that is no value of the column's type.
    """
    wanted = arrow_type(field.type)
    text = field.default_value
    if text is None:
        return null_column(rows, wanted)
    if not isinstance(field.type, AtomicType):
        raise InvalidRequest(
            f"column '{field.name}': the default {text} of a nested type cannot be written; give values"
        )
    if len(text) > 1 and text.startswith("'") and text.endswith("'"):
        text = text[1:-1]
    try:
        made = cast_values(pa.array([text]), _TEXT, field.type)
    except (ValueError, OverflowError) as e:
        raise InvalidRequest(f"column '{field.name}': {field.default_value} is no default for {field.type}: {e}") from e
    return pa.repeat(made[0], rows)


def check_default(field: DataField) -> None:
    """Raise :class:`InvalidRequest` unless a column's default, if it has one, is a value of its type."""
    if field.default_value is not None and isinstance(field.type, AtomicType):
        default_column(field, 0)
