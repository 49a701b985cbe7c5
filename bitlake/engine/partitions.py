"""Partitions in SQL: TRUNCATE, ADD and DROP PARTITION, and PARTITION clauses as physical values.

The literals of a PARTITION clause are cast to the types of the partition columns as Spark casts any other value
(:meth:`Session.partition_values`).  A partition exists where it has rows: ADD PARTITION changes nothing, as in Paimon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from bitlake.engine.session import Session, nothing
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound
from bitlake.metadata.manifest import ManifestEntry
from bitlake.snapshot.partitions import files_by_partition
from bitlake.snapshot.state import TableState
from bitlake.sql import statements as st
from bitlake.sql.statements import AddPartitions, DropPartitions


def truncate(session: Session, statement: st.Truncate) -> pa.Table:
    """TRUNCATE TABLE, or one of its partitions."""
    table = session.session_table(session.identify_table(statement.table))
    state = table.state()
    spec = partition_spec(session, state, statement.partition)
    missing = [k for k, v in spec.items() if v is None]
    if missing:
        raise InvalidRequest(f"table '{table.name}': TRUNCATE needs a value for partition column '{missing[0]}'")
    table.truncate(session.partition_values(state, spec) if spec else None)
    return nothing()


def drop_partitions(session: Session, statement: DropPartitions) -> pa.Table:
    """ALTER TABLE … DROP PARTITION: every partition that matches a spec, in one snapshot.

    As in Paimon, one that all columns name must exist, without IF EXISTS.
    """
    table = session.session_table(session.identify_table(statement.table))
    state = table.state()
    keys = state.schema.partition_keys
    specs = [session.partition_values(state, partition_spec(session, state, s)) for s in statement.partitions]
    have = files_by_partition(state)
    matched = [s for s in specs if any(_matches(s, keys, values) for values in have)]
    missing = [s for s in specs if s not in matched and len(s) == len(keys)]
    if missing and not statement.if_exists:
        raise _no_partition(table.name, missing[0])
    if matched:
        table.truncate(*matched)
    return nothing()


def add_partitions(session: Session, statement: AddPartitions) -> pa.Table:
    """ALTER TABLE … ADD PARTITION: a partition exists where it has rows, so there is nothing to add, as in Paimon."""
    table = session.table(session.identify_table(statement.table))
    state = table.state()
    for given in statement.partitions:
        spec = whole_partition(session, state, given)
        if tuple(spec.values()) in files_by_partition(state) and not statement.if_not_exists:
            raise AlreadyExists(f"table '{table.name}' has a partition {spec} already; add IF NOT EXISTS to keep it")
    return nothing()


def whole_partition(session: Session, state: TableState, given: Mapping[str, Any]) -> dict[str, Any]:
    """The physical values of all partition columns, in key order; raises :class:`InvalidRequest` if one is missing."""
    spec = partition_spec(session, state, given)
    missing = [k for k in state.schema.partition_keys if spec.get(k) is None]
    if missing or not spec:
        lacks = f"'{missing[0]}' has none" if missing else "the table is not partitioned"
        raise InvalidRequest(f"table '{state.name}': PARTITION needs a value of every partition column, and {lacks}")
    return session.partition_values(state, {k: spec[k] for k in state.schema.partition_keys})


def existing_partition(session: Session, state: TableState, given: Mapping[str, Any]) -> list[ManifestEntry]:
    """The live files of a partition that all its columns name; raises :class:`NotFound`."""
    spec = whole_partition(session, state, given)
    files = files_by_partition(state).get(tuple(spec.values()))
    if files is None:
        raise _no_partition(state.name, spec)
    return files


def _no_partition(table: str, spec: Mapping[str, Any]) -> NotFound:
    return NotFound(f"table '{table}' has no partition {dict(spec)}; SHOW PARTITIONS lists them; or add IF EXISTS")


def _matches(spec: Mapping[str, Any], keys: Sequence[str], values: Sequence[Any]) -> bool:
    named = dict(zip(keys, values, strict=True))
    return all(named[k] == v for k, v in spec.items())


def partition_spec(session: Session, state: TableState, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """A PARTITION clause by the schema's own names."""
    table, names = state.name, session.names
    keys = {names.key(k): k for k in state.schema.partition_keys}
    out: dict[str, Any] = {}
    for name, value in (given or {}).items():
        key = keys.get(names.key(name))
        if key is None:
            have = ", ".join(keys.values()) or "none"
            raise InvalidRequest(f"table '{table}': '{name}' is not a partition column; they are: {have}")
        if key in out:
            raise InvalidRequest(f"table '{table}': partition column '{key}' is given twice")
        out[key] = value
    return out
