"""Arrow rows as the texts of a result's cells."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

NULL = "NULL"


def cells(rows: pa.Table) -> list[list[str]]:
    """One text for each value of the rows that are shown, row by row; binary as hexadecimal digits."""
    columns = [[_cell(v) for v in column.to_pylist()] for column in rows.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def numeric(made: pa.DataType) -> bool:
    """Whether values of a type are set to the right."""
    return bool(pa.types.is_integer(made) or pa.types.is_floating(made) or pa.types.is_decimal(made))


def _cell(value: Any) -> str:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_cell(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        if value and all(isinstance(v, tuple) and len(v) == 2 for v in value):
            return "{" + ", ".join(f"{_cell(k)}: {_cell(v)}" for k, v in value) + "}"
        return "[" + ", ".join(map(_cell, value)) + "]"
    text = str(value)
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text) if not text.isprintable() else text
