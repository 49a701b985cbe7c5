"""Columns of system tables: their Paimon types, and rows gathered into Arrow.

What is gathered grows with metadata (snapshots, files), never with rows of data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

import pyarrow as pa

from bitlake.metadata.paths import render_value
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.state import TableState
from bitlake.types import AtomicType, DataField, DataType, arrow_schema
from bitlake.types.datatypes import parse_type


def columns(*specs: str | tuple[str, DataType]) -> tuple[DataField, ...]:
    """Fields of texts such as ``a BIGINT NOT NULL, b STRING``, or of a name and a type."""
    pairs: list[tuple[str, DataType]] = []
    for spec in specs:
        if isinstance(spec, str):
            parts = (column.split(" ", 1) for column in spec.split(", "))
            pairs += [(name, parse_type(kind)) for name, kind in parts]
        else:
            pairs.append(spec)
    return tuple(DataField(number, name, kind) for number, (name, kind) in enumerate(pairs))


@dataclass(frozen=True, slots=True)
class Metadata:
    """A system table that is gathered from a table's metadata."""

    fields: tuple[DataField, ...]
    gather: Callable[[TableState], Iterable[Sequence[Any]]]
    """The rows; times are ms since the epoch."""

    def table(self, state: TableState) -> pa.Table:
        """The rows."""
        schema = arrow_schema(self.fields)
        rows = list(self.gather(state))
        values = list(zip(*rows, strict=True)) or [()] * len(schema)
        return pa.Table.from_arrays([pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema)

    @property
    def schema(self) -> TableSchema:
        """The columns as a table's."""
        return TableSchema(0, self.fields, len(self.fields))


def gathered(*specs: str | tuple[str, DataType]) -> Callable[[Callable[[TableState], Iterable[Any]]], Metadata]:
    """Make a function that returns rows a system table with these :func:`columns`."""
    return lambda gather: Metadata(columns(*specs), gather)


def listed(items: Callable[[TableState], Iterable[Any]], *specs: str | tuple[str, Callable[[Any], Any]]) -> Metadata:
    """A system table with a row for each item: a column is the attribute of its name, or what a function returns."""
    fields, values = [], []
    for spec in specs:
        text, own = (spec, None) if isinstance(spec, str) else spec
        fields.append(text)
        values += [own or attrgetter(f.name) for f in columns(text)]
    return Metadata(columns(*fields), lambda state: ([v(item) for v in values] for item in items(state)))


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
