"""The source of an index: a column, the value of a map's key, or an expression over one row.

An index of a type that Paimon does not know is stored under ``<type>[<source>]``: Paimon fails on a filter of a
column that has an index of an unknown type, and looks up columns' own names only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.expressions.functions import members
from bitlake.expressions.indexed import expression_named, has_members, values_of
from bitlake.expressions.terms import columns_in
from bitlake.expressions.tree import IndexedExpression
from bitlake.fileindex.capabilities import IndexWriter, MemberWriter
from bitlake.fileindex.container import split_map_key
from bitlake.lazy_modules import compute as pc
from bitlake.types import DataField, DataType, MapType


@dataclass(frozen=True, slots=True)
class IndexSource:
    """The source of an index in a file: the ``columns`` that it reads, and the ``type`` of its values.

    ``name`` is a column's name, ``m[k]`` for the ``key`` of a map, or an expression.
    """

    name: str
    columns: tuple[str, ...]
    type: DataType
    key: str | None = None

    @property
    def expression(self) -> IndexedExpression | None:
        """The expression; None for a column or a map's key."""
        return self.name if isinstance(self.name, IndexedExpression) else None

    @property
    def has_members(self) -> bool:
        """Whether a row has any number of values: array elements, or map keys."""
        return self.expression is not None and has_members(self.expression)

    def add_to(self, writer: IndexWriter, values: pa.Array | pa.ChunkedArray) -> None:
        """Add the :meth:`values` of a batch to a writer; raises the errors of the writer."""
        if self.has_members:
            assert isinstance(writer, MemberWriter)
            writer.add_members(*members(values), len(values))
        else:
            writer.add(values)

    def values(self, batch: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
        """The values to index, one for each row of a batch that has at least :attr:`columns`.

        Of members, the arrays or maps.
        Raises :class:`bitlake.errors.EvaluationFailed` where an expression fails for a row.
        """
        names = batch.schema.names
        missing = [c for c in self.columns if c not in names]
        if missing:
            raise InvalidRequest(f"column '{missing[0]}' is indexed, but not among the batch's: {names}")
        expression = self.expression
        if expression is not None:
            if isinstance(batch, pa.RecordBatch):
                return values_of(expression, batch)
            chunks = [values_of(expression, b) for b in _batches(batch.select(self.columns))]
            if len({c.type for c in chunks}) > 1:
                chunks = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in chunks]
            return pa.chunked_array(chunks)
        column = batch.column(self.columns[0])
        if self.key is not None:
            column = pc.map_lookup(column, pa.scalar(self.key, column.type.key_type), "first")
        return column


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    """A table's batches; at least one, so that values computed of them have a type."""
    return table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]


def index_source(name: str, fields: Iterable[DataField]) -> IndexSource | None:
    """Return the source that an entry's name stands for, over a file's columns.  None for an unknown column.

    A column's own name comes first: a column may have the name of a map's key or an expression.
    """
    fields = tuple(fields)
    known = indexed_type(name, fields)
    if known is not None:
        return IndexSource(str(name), (known[0].name,), known[2], known[1])
    expression = name if isinstance(name, IndexedExpression) else expression_named(name, fields)
    if expression is None:
        return None
    columns = tuple(sorted(columns_in(expression.term)))
    have = {f.name for f in fields}
    return IndexSource(expression, columns, expression.type) if have.issuperset(columns) else None


def indexed_type(column: str, fields: Iterable[DataField]) -> tuple[DataField, str | None, DataType] | None:
    """Return (field, map key or None, type of the indexed values) of ``c`` or ``m[k]``.  None if it does not exist."""
    fields = tuple(fields)
    for field in fields:
        if field.name == column:
            return field, None, field.type
    top, key = split_map_key(column)
    for field in fields if key is not None else ():
        if field.name == top and isinstance(field.type, MapType):
            return field, key, field.type.value
    return None
