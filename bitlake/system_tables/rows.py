"""Columns of system tables: their Paimon types, and rows gathered into Arrow.

What is gathered grows with metadata (snapshots, files), never with rows of data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.metadata.paths import render_value
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.state import TableState
from bitlake.types import AtomicType, DataField, DataType, arrow_schema
from bitlake.types.datatypes import parse_type


def columns(*specs: str | tuple[str, DataType]) -> tuple[DataField, ...]:
    """Fields of ``name TYPE [NOT NULL]`` texts, or of a name and a type."""
    made = []
    for number, spec in enumerate(specs):
        name, kind = spec.split(" ", 1) if isinstance(spec, str) else spec
        made.append(DataField(number, name, parse_type(kind) if isinstance(kind, str) else kind))
    return tuple(made)


@dataclass(frozen=True, slots=True)
class Metadata:
    """A system table that is gathered from a table's metadata."""

    fields: tuple[DataField, ...]
    gather: Callable[[TableState], Mapping[str, Any]]
    """Values (Python, numpy or Arrow) by column; times are ms since the epoch."""

    def table(self, state: TableState) -> pa.Table:
        """The rows."""
        found = self.gather(state)
        schema = arrow_schema(self.fields)
        arrays = [_array(found[f.name], f.type) for f in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    @property
    def schema(self) -> TableSchema:
        """The columns as a table's."""
        return TableSchema(0, self.fields, len(self.fields))


def listed(items: Callable[[TableState], Iterable[Any]], *specs: str | tuple[str, Callable[[Any], Any]]) -> Metadata:
    """A system table with a row for each item: a column is the attribute of its name, or what a function returns."""
    fields = columns(*(s if isinstance(s, str) else s[0] for s in specs))
    values = [attrgetter(f.name) if isinstance(s, str) else s[1] for f, s in zip(fields, specs, strict=True)]
    return Metadata(fields, lambda state: by_rows(fields, ([v(item) for v in values] for item in items(state))))


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.cast(kind)
    if isinstance(values, np.ndarray):
        return pa.array(values).cast(kind)
    return pa.array(list(values), kind)


def by_rows(fields: Sequence[DataField], rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Rows as columns."""
    out: dict[str, list[Any]] = {f.name: [] for f in fields}
    for row in rows:
        for name, value in zip(out, row, strict=True):
            out[name].append(value)
    return out


def local_time(millis: int | None) -> int | None:
    """A time (ms since the epoch) as the local wall clock, which is how Paimon shows times, in ms as if UTC."""
    if millis is None:
        return None
    at = datetime.fromtimestamp(millis / 1000).astimezone()
    offset = at.utcoffset()
    return millis + (0 if offset is None else round(offset.total_seconds() * 1000))


def as_text(fields: Sequence[DataField], values: Sequence[Any]) -> str:
    """A partition or key as Paimon prints a row: ``{a, b}``."""
    return "{" + ", ".join(_text(f, v) for f, v in zip(fields, values, strict=True)) + "}"


def _text(field: DataField, value: Any) -> str:
    if value is None:
        return "null"
    assert isinstance(field.type, AtomicType)
    return render_value(field.type, value, legacy=False)
