"""DELETE and UPDATE of append tables in this process: found, taken out, written anew, committed at once.

If another writer changed what a statement had read, it runs again on the table as it is then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from bitlake.errors import CommitConflict, InvalidRequest, NotFound
from bitlake.formats.conform import null_column
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import Runner
from bitlake.snapshot.partitions import discard_entries
from bitlake.snapshot.removal_markers import has_expired
from bitlake.snapshot.state import TableState
from bitlake.table.append_delete import RowsGone, find_hits, only_hits, take_out
from bitlake.table.scan import Scan
from bitlake.table.write import write_rows
from bitlake.types import arrow_type

NewValue = Any
"""A Python value, an Arrow scalar, or a function of the old rows (all columns, as a table) giving a column."""
CommitRows = Callable[[TableState, RowsGone, str, Sequence[ManifestEntry]], Any]
Result = TypeVar("Result")

STATEMENT_TRIES = 5
"""How often a statement is run in all when others keep changing what it read."""


def retrying(now: Callable[[], TableState], step: Callable[[TableState], Result]) -> Result:
    """Run a statement on the table as it is, and again if another writer changed what it had read, or it expired."""
    for left in range(STATEMENT_TRIES - 1, -1, -1):
        state = now()
        try:
            return step(state)
        except CommitConflict:
            if not left:
                raise
        except NotFound:
            if not left or not has_expired(state.store, state.paths, state.snapshot_id):
                raise
    raise AssertionError("the last try returns or raises")


def delete_rows(scan: Scan, runner: Runner, commit: CommitRows) -> int:
    """Delete the rows that a scan finds; returns how many."""
    gone = take_out(scan.state, find_hits(scan, runner), runner)
    if gone.rows:
        commit(scan.state, gone, "DELETE", ())
    return gone.rows


def update_rows(scan: Scan, values: Mapping[str, NewValue], runner: Runner, commit: CommitRows) -> int:
    """Replace the rows that a scan finds by themselves with other values in some columns; returns how many."""
    state = scan.state
    named = named_values(state.schema, values)
    gone = take_out(state, find_hits(scan, runner), runner)
    if not gone.rows:
        return 0
    try:
        old = only_hits(scan.select(state.schema.field_names), gone.hits)
        files = write_rows(state, changed(old, named), state.store)
    except BaseException:
        gone.discard(state)
        raise
    commit(state, gone, "UPDATE", files)
    return gone.rows


def discard_all(state: TableState, gone: RowsGone, files: Sequence[ManifestEntry]) -> None:
    """Delete what a statement wrote and no commit will name."""
    gone.discard(state)
    discard_entries(state.store, state.paths, state.schema, files)


def named_values(schema: TableSchema, values: Mapping[str, NewValue]) -> dict[str, NewValue]:
    """The new values by the schema's own names."""
    out: dict[str, NewValue] = {}
    for name, value in values.items():
        try:
            field = schema.field(name)
        except NotFound as e:
            raise NotFound(f"UPDATE: {e}") from e
        if field.name in out:
            raise InvalidRequest(f"UPDATE: column '{field.name}' is set twice")
        out[field.name] = value
    if not out:
        raise InvalidRequest("UPDATE: no column is set")
    return out


def changed(old: Scan, values: Mapping[str, NewValue]) -> Iterator[pa.Table]:
    """The rows of a scan with their new values."""
    schema = old.state.schema
    for batch in old.to_batches():
        table = pa.Table.from_batches([batch])
        columns = []
        for name in table.column_names:
            if name not in values:
                columns.append(table.column(name))
            elif callable(values[name]):
                columns.append(_computed(values[name], table, name))
            else:
                columns.append(_repeated(values[name], arrow_type(schema.field(name).type), table.num_rows, name))
        yield pa.table(columns, names=table.column_names)


def _computed(function: Callable[[pa.Table], Any], old: pa.Table, name: str) -> Any:
    made = function(old)
    if not isinstance(made, pa.Array | pa.ChunkedArray) or len(made) != old.num_rows:
        what = f"{len(made)} values" if isinstance(made, pa.Array | pa.ChunkedArray) else type(made).__name__
        raise InvalidRequest(f"UPDATE: the function of column '{name}' gave {what} for {old.num_rows} rows")
    return made


def _repeated(value: Any, wanted: pa.DataType, rows: int, name: str) -> pa.Array:
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, rows)
    try:
        return pa.repeat(pa.scalar(value, wanted), rows) if value is not None else null_column(rows, wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as e:
        raise InvalidRequest(
            f"UPDATE: {value!r} is no {wanted} (column '{name}'): {e}; an expression "
            "over the old rows is given as a function of them, or in SQL: UPDATE … SET"
        ) from e
