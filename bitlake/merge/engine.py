"""Merge engines: merge the rows of several sorted runs to one row for each live key.

A key with a single row keeps it, whatever the engine.  The other keys are merged step by step: the first row of every
key, then the second row of every key that has one, and so on.  A key has at most one row in each file, so there are no
more steps than files, each over whole arrays.

Where levels are merged by lookup, the rows of level 0 count, and of the levels above only the row of the lowest level
that has the key (:class:`LevelGroups`).  A compaction of such a table merges the rows of the levels above its output
into its output and leaves them there, so the lowest level that has a key has all its values (index-format spec, section
9.4; Paimon's readers do the same).

Sources: index-format spec, section 10, and the observed behaviour of Paimon's readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import Int64s
from bitlake.codec.roaring import Bools
from bitlake.errors import InvalidRequest
from bitlake.lazy_modules import compute as pc
from bitlake.merge.functions import Accumulator, Choice, LastNonNull, accumulator
from bitlake.merge.keys import Groups, dense_ranks, equality_codes, group_rows, order_codes
from bitlake.schema.merge_spec import (
    ADD,
    AGGREGATION,
    DEDUPLICATE,
    DELETE,
    FIRST_ROW,
    SEQUENCE_NUMBER,
    UPDATE_BEFORE,
    VALUE_KIND,
    MergeSpec,
    SequenceGroup,
)


def with_higher_sequence(rows: pa.Table, shift: int) -> pa.Table:
    """The rows with a number added to each ``_SEQUENCE_NUMBER``."""
    at = rows.column_names.index(SEQUENCE_NUMBER)
    return rows.set_column(at, rows.field(at), pc.add(rows.column(at), pa.scalar(shift, pa.int64())))


def merge_rows(
    spec: MergeSpec, rows: pa.Table, columns: Sequence[str], *, keep_deletes: bool = False, lone_as_is: bool = True
) -> pa.Table:
    """Merge rows to one row for each key, with these columns, for readers or to be stored.

    ``rows``: :meth:`MergeSpec.needed` columns of all runs, in any order.

    For readers (``keep_deletes`` false) deleted keys are left out, and rows come in any order.  To be stored, rows come
    in key order, with ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND`` before the columns, and deleted keys as the rows (-U,
    -D) that must keep hiding rows of older files.

    ``lone_as_is`` false: a key's only row goes through the engine too, as in a compaction that has looked the key up in
    all levels above (an aggregation then retracts a lone -D from nothing).

    Raises :class:`InvalidRequest` for rows that the engine cannot merge (a delete, an overflow).
    """
    kinds = equality_codes(rows.column(VALUE_KIND)).astype(np.int8)
    retracts = (kinds == UPDATE_BEFORE) | (kinds == DELETE)
    if spec.engine in (DEDUPLICATE, FIRST_ROW) and spec.ignore_delete and retracts.any():
        rows = rows.filter(pa.array(~retracts))
        kinds, retracts = kinds[~retracts], retracts[~retracts]
    if keep_deletes and spec.engine == FIRST_ROW and retracts.any():
        raise InvalidRequest("merge engine 'first-row' cannot merge delete rows: set 'ignore-delete'")
    output = [*((SEQUENCE_NUMBER, VALUE_KIND) if keep_deletes else ()), *columns]
    if not rows.num_rows:
        return rows.select(output)
    groups = group_rows([rows.column(k) for k in spec.keys], _ordering(spec, rows, retracts), key_order=keep_deletes)
    if spec.engine in (DEDUPLICATE, FIRST_ROW):
        winners = groups.last if spec.engine == DEDUPLICATE else groups.order[groups.starts]
        return _take(rows.select(output), winners if keep_deletes else winners[~retracts[winners]])
    single = groups.sizes == 1
    if not lone_as_is:
        single &= False if _changes_lone_rows(spec) else ~retracts[groups.last]
    if single.all():
        return _take(rows.select(output), groups.last if keep_deletes else groups.last[~retracts[groups.last]])
    alone = groups.only(single).order
    several = groups.only(~single)
    merge = _Merge(spec, rows.take(pa.array(several.order)), kinds[several.order], several, columns)
    if not keep_deletes:
        kept = _take(rows.select(output), alone[~retracts[alone]])
        return pa.concat_tables([kept, merge.run()])
    merged = pa.concat_tables([rows.select(output).take(pa.array(alone)), merge.run_stored()])
    key_order = np.empty(len(groups), np.int64)
    key_order[np.concatenate([np.flatnonzero(single), np.flatnonzero(~single)])] = np.arange(len(groups))
    return _take(merged, key_order)


def _take(rows: pa.Table, order: Int64s) -> pa.Table:
    """Rows in this order; without a copy if they are in it already."""
    if len(order) == rows.num_rows and np.array_equal(order, np.arange(len(order))):
        return rows
    return rows.take(pa.array(order))


_PLAIN_FUNCTIONS = frozenset(
    "primary-key last_value last_non_null_value first_value first_non_null_value first_not_null_value min max sum "
    "product bool_and bool_or merge_map rbm32 rbm64 theta_sketch hll_sketch".split()
)
"""Functions that return a single value unchanged; the others may change it (blank text, repeated elements)."""


def _changes_lone_rows(spec: MergeSpec) -> bool:
    functions = spec.functions.values()
    return bool(spec.groups) or any(f.name not in _PLAIN_FUNCTIONS for f in functions)


def _ordering(spec: MergeSpec, rows: pa.Table, retracts: Bools) -> list[Int64s]:
    user = [order_codes(rows.column(c), spec.descending) for c in spec.sequence]
    # Of the rows with one sequence number, a retracting row (-U, -D) merges before an adding one.
    return [*user, order_codes(rows.column(SEQUENCE_NUMBER)), (~retracts).astype(np.int64)]


class _Merge:
    """Merges keys with several rows by partial-update or aggregation; rows are in merge order, key by key."""

    def __init__(
        self, spec: MergeSpec, rows: pa.Table, kinds: npt.NDArray[np.int8], groups: Groups, columns: Sequence[str]
    ) -> None:
        self._spec = spec
        self._rows = rows
        self._kinds = kinds
        self._starts, self._sizes = groups.starts, groups.sizes
        self._columns = columns
        self._states: dict[str, Accumulator] = {}
        self._grouped = {c: g for g in spec.groups for c in g.columns}
        self._sequenced = {c: g for g in spec.groups for c in g.sequence}
        functions = spec.functions
        for name in columns:
            column = rows.column(name).combine_chunks()
            function = functions.get(name)
            if name in self._sequenced:
                self._states[name] = Choice(column, len(groups))
            elif function is not None and (spec.engine == AGGREGATION or spec.groups):
                self._states[name] = accumulator(function, column, len(groups))
            elif name in self._grouped:
                self._states[name] = Choice(column, len(groups))
            else:
                self._states[name] = LastNonNull(column, len(groups))
        self._deleted = np.zeros(len(groups), bool)
        self._inserted = np.zeros(len(groups), bool)
        self._filled = np.zeros(len(groups), bool)
        # The newest rank of each sequence group for each key; -1, below all ranks, before the first.
        self._ranks: list[Int64s] = []
        self._empty: list[Bools] = []
        self._newest: list[Int64s] = []
        for group in spec.groups:
            if self._is_needed(group):
                codes = [order_codes(rows.column(c)) for c in group.sequence]
                nulls = [rows.column(c).is_null().to_numpy() for c in group.sequence]
                self._ranks.append(dense_ranks(codes))
                self._empty.append(np.logical_and.reduce(nulls))
            else:
                self._ranks.append(np.zeros(0, np.int64))
                self._empty.append(np.zeros(0, bool))
            self._newest.append(np.full(len(groups), -1, np.int64))

    def _is_needed(self, group: SequenceGroup) -> bool:
        in_output = not set(self._columns).isdisjoint((*group.sequence, *group.columns))
        return in_output or not self._spec.remove_on_group.isdisjoint(group.sequence)

    def run(self) -> pa.Table:
        """Return the merged rows of live keys."""
        self._merge_all()
        return self._result((), ()).filter(pa.array(self._alive()))

    def run_stored(self) -> pa.Table:
        """Return a row for each key, with its sequence number and kind: +I, or -D for a deleted key."""
        self._merge_all()
        last = pa.array(self._starts + self._sizes - 1)
        kinds = pa.array(np.where(self._alive(), ADD, DELETE).astype(np.int8))
        numbers = self._rows.column(SEQUENCE_NUMBER).take(last)
        return self._result((SEQUENCE_NUMBER, VALUE_KIND), (numbers, kinds))

    def _merge_all(self) -> None:
        step = self._aggregate if self._spec.engine == AGGREGATION else self._partial
        for n in range(int(self._sizes.max())):
            groups = np.flatnonzero(self._sizes > n)
            step(groups, self._starts[groups] + n)

    def _alive(self) -> Bools:
        return ~self._deleted if self._spec.engine == AGGREGATION else self._inserted & ~self._deleted

    def _result(self, names: Sequence[str], arrays: Sequence[Any]) -> pa.Table:
        """A table of ``arrays`` under ``names``, followed by the merged columns of all keys."""
        all_names = [*names, *self._columns]
        all_arrays = [*arrays, *(self._states[c].finish() for c in self._columns)]
        if not all_arrays:
            return pa.table({"": pa.nulls(len(self._sizes))}).select([])
        return pa.Table.from_arrays(all_arrays, schema=pa.schema([self._rows.schema.field(c) for c in all_names]))

    def _set(self, groups: Int64s, rows: Int64s) -> None:
        for state in self._states.values():
            state.set(groups, rows)
        for ranks, newest in zip(self._ranks, self._newest, strict=True):
            if len(ranks):
                newest[groups] = ranks[rows]

    # --- aggregation --------------------------------------------------------------------------------------------------

    def _aggregate(self, groups: Int64s, rows: Int64s) -> None:
        kinds = self._kinds[rows]
        removed = (kinds == DELETE) & self._spec.remove_on_delete
        self._deleted[groups] = removed
        self._set(groups[removed], rows[removed])
        retracts = ((kinds == UPDATE_BEFORE) | (kinds == DELETE)) & ~removed
        adds = ~retracts & ~removed
        for state in self._states.values():
            state.retract(groups[retracts], rows[retracts])
            state.agg(groups[adds], rows[adds])

    # --- partial update -----------------------------------------------------------------------------------------------

    def _partial(self, groups: Int64s, rows: Int64s) -> None:
        kinds = self._kinds[rows]
        retracts = (kinds == UPDATE_BEFORE) | (kinds == DELETE)
        self._deleted[groups] = False
        if retracts.any():
            self._retract(groups[retracts], rows[retracts], kinds[retracts])
        groups, rows = groups[~retracts], rows[~retracts]
        if self._spec.groups:
            self._update_groups(groups, rows)
        else:
            for state in self._states.values():
                state.agg(groups, rows)
        self._inserted[groups] = True
        self._filled[groups] = True

    def _retract(self, groups: Int64s, rows: Int64s, kinds: npt.NDArray[np.int8]) -> None:
        fresh = ~self._filled[groups]
        self._set(groups[fresh], rows[fresh])
        self._filled[groups] = True
        if self._spec.ignore_delete:
            return
        if self._spec.groups:
            self._retract_groups(groups, rows, kinds)
        elif self._spec.remove_on_delete:
            deletes = kinds == DELETE
            self._deleted[groups[deletes]] = True
            self._set(groups[deletes], rows[deletes])
        else:
            raise InvalidRequest(
                "merge engine 'partial-update' cannot merge delete rows: set 'ignore-delete', "
                "'partial-update.remove-record-on-delete', or sequence groups"
            )

    def _sequence_order(self, number: int, groups: Int64s, rows: Int64s) -> tuple[Bools, Bools]:
        """Of a sequence group: which rows have a sequence, and which of these are not older than the newest one."""
        ranks, newest = self._ranks[number], self._newest[number]
        if not len(ranks):
            return np.zeros(len(rows), bool), np.zeros(len(rows), bool)
        has_sequence = ~self._empty[number][rows]
        return has_sequence, has_sequence & (ranks[rows] >= newest[groups])

    def _update_groups(self, groups: Int64s, rows: Int64s) -> None:
        sequence_order = {g: self._sequence_order(i, groups, rows) for i, g in enumerate(self._spec.groups)}
        functions = self._spec.functions
        for name, state in self._states.items():
            group = self._grouped.get(name) or self._sequenced.get(name)
            if group is None:
                state.agg(groups, rows)
                continue
            has_sequence, newer = sequence_order[group]
            state.agg(groups[newer], rows[newer])
            older = has_sequence & ~newer
            if name in functions and name not in self._sequenced:
                state.agg_reversed(groups[older], rows[older])
        for i, group in enumerate(self._spec.groups):
            newer = sequence_order[group][1]
            if newer.any():
                self._newest[i][groups[newer]] = self._ranks[i][rows[newer]]

    def _retract_groups(self, groups: Int64s, rows: Int64s, kinds: npt.NDArray[np.int8]) -> None:
        sequence_order = {g: self._sequence_order(i, groups, rows) for i, g in enumerate(self._spec.groups)}
        places = {f.name: place for place, f in enumerate(self._spec.fields)}
        # A row is removed at the first of the group's sequence columns, as in Paimon.
        removed_at = np.full(len(rows), len(places))
        for group, (_, newer) in sequence_order.items():
            if not self._spec.remove_on_group.isdisjoint(group.sequence):
                removes = newer & (kinds == DELETE)
                first = min(places[name] for name in group.sequence)
                removed_at[removes] = np.minimum(removed_at[removes], first)
        removed = removed_at < len(places)
        functions = self._spec.functions
        for name, state in self._states.items():
            group_of = self._grouped.get(name) or self._sequenced.get(name)
            if group_of is None:
                continue
            has_sequence, newer = sequence_order[group_of]
            newer = newer & ~removed
            if name in self._sequenced:
                state.set(groups[newer], rows[newer])
            elif name in functions:
                # Functions of columns before that one retract the row, or refuse to; their results are replaced below.
                retracted = has_sequence & (removed_at > places[name])
                state.retract(groups[retracted], rows[retracted])
            else:
                assert isinstance(state, Choice)
                state.clear(groups[newer])
        for i, group in enumerate(self._spec.groups):
            newer = sequence_order[group][1] & ~removed
            if newer.any():
                self._newest[i][groups[newer]] = self._ranks[i][rows[newer]]
        self._deleted[groups[removed]] = True
        self._set(groups[removed], rows[removed])


LEVEL = "_LEVEL"
"""The column of the level of a row's file, added for merging and never stored."""


@dataclass(frozen=True, slots=True)
class LevelGroups:
    """A chunk grouped by key; of the rows above level 0 it holds only those of the lowest level that has the key.

    ``groups``: rows by key in key order, level 0 first; ``fresh``: keys with a row of level 0; ``high``: the number of
    the key's row above level 0, -1 for none.
    """

    chunk: pa.Table
    groups: Groups
    fresh: Bools
    high: Int64s

    @staticmethod
    def of(keys: Sequence[str], chunk: pa.Table) -> LevelGroups:
        """Group rows with these key columns and :data:`LEVEL`."""
        level = chunk.column(LEVEL).to_numpy()
        groups = group_rows([chunk.column(k) for k in keys], [level.astype(np.int64)], key_order=True)
        upper = level[groups.order] > 0
        starts = np.zeros(len(upper), bool)
        starts[groups.starts] = True
        first = upper.copy()
        first[1:] &= starts[1:] | ~upper[:-1]
        fresh = ~upper[groups.starts]
        kept = ~upper | first
        if not kept.all():
            # Grouped again, since the remaining rows have other numbers.
            return LevelGroups.of(keys, chunk.take(pa.array(np.sort(groups.order[kept]))))
        high = np.full(len(groups), -1, np.int64)
        last = groups.starts + groups.sizes - 1
        high[upper[last]] = groups.order[last[upper[last]]]
        return LevelGroups(chunk, groups, fresh, high)

    def keys(self, names: Sequence[str], selected: Bools) -> list[pa.Array]:
        """Return the key columns of the selected keys, ascending."""
        rows = pa.array(self.groups.order[self.groups.starts[selected]])
        return [self.chunk.column(k).take(rows).combine_chunks() for k in names]
