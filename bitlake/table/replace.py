"""REPLACE TABLE: other columns, keys and options for a table that keeps its place, its history and its tags.

As in Paimon, the new schema is the next of the table's schemas, and the rows are gone by an OVERWRITE snapshot; earlier
snapshots are read with the columns they had.  Unlike Paimon's, the new columns' ids go on where the old ones ended, so
that no new column is ever taken for an old one of the same id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from bitlake.errors import CommitConflict, InvalidRequest, UnsupportedFeature
from bitlake.metadata.names import Names
from bitlake.metadata.schema import TableSchema, assign_ids
from bitlake.table.alter import write_schema
from bitlake.table.create import ColumnSpec, new_schema
from bitlake.table.state import TableState


@contextmanager
def replaced_schema(
    state: TableState,
    columns: Sequence[ColumnSpec],
    *,
    partition_keys: Sequence[str] = (),
    primary_keys: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
    names: Names = Names.FOLDED,
) -> Iterator[TableSchema]:
    """Give a table another schema; in the block its rows are to be overwritten.  If that fails, the old one is back.

    Raises :class:`InvalidRequest` for what CREATE TABLE would refuse, :class:`UnsupportedFeature` for other partition
    columns, which Paimon does not replace either, and :class:`CommitConflict`.
    """
    old = state.schema
    if state.paths.branch is not None:
        raise InvalidRequest(f"table '{state.name}': REPLACE TABLE is for the whole table; name it without a branch")
    made = new_schema(state.name, columns, partition_keys, options or {}, comment, primary_keys, names)
    if [(f.name, f.type) for f in made.partition_fields] != [(f.name, f.type) for f in old.partition_fields]:
        raise UnsupportedFeature(
            f"table '{state.name}': REPLACE TABLE cannot change the partition columns "
            f"({', '.join(old.partition_keys) or 'there are none'}); drop the table and create it again"
        )
    fields, highest = assign_ids([(f.name, f.type, f.description) for f in made.fields], old.highest_field_id)
    fields = tuple(replace(f, default_value=m.default_value) for f, m in zip(fields, made.fields, strict=True))
    new = old.next(
        fields=fields,
        highest_field_id=highest,
        partition_keys=made.partition_keys,
        primary_keys=made.primary_keys,
        options=made.options,
        comment=made.comment,
    )
    _write(state, new)
    try:
        yield new
    except BaseException:
        back = replace(old, id=new.id + 1, time_millis=new.time_millis, highest_field_id=new.highest_field_id)
        _write(replace(state, schema=new), back)
        raise


def _write(state: TableState, schema: TableSchema) -> None:
    if not write_schema(state, schema):
        raise CommitConflict(f"table '{state.name}': another writer changed its schema at the same moment; try again")
